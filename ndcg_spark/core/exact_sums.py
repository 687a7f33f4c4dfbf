"""Exact sums of doubles in Spark SQL: as whole numbers, so that the order of rows cannot change a bit.

A value is cut into whole numbers (limbs) of units that fall by 2^32. Limbs add as 64-bit integers, which Spark keeps
in a hash table of fixed width; only what lies below the last unit is cut off, of each value by itself. See also
`core.exact`, which does the same in NumPy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

_BITS = 32
_LIMB = 2.0**_BITS


def limbs(value: Column, n: int, *, highest: int = 0) -> Iterator[Column]:
    """Cut values into whole numbers of units 2^(32 highest), 2^(32 (highest - 1)), ..., the highest unit first.

    The value is a double below 2^(63 + 32 highest) in size. Make it a column of its own first, or Spark computes it
    for each limb anew. All limbs but the first are below 2^32 in size: 2^31 rows add without overflow.
    """
    rest = value * F.lit(_LIMB**-highest) if highest else value
    for _ in range(n):
        yield rest.cast("bigint")
        rest = (rest % F.lit(1.0)) * F.lit(_LIMB)


def from_limbs(sums: Sequence[Column], *, highest: int = 0) -> Column:
    """Put sums of limbs, in the order of `limbs`, together to a double.

    Carries are passed up as whole numbers, then parts are added from the smallest.
    """
    carried, total = F.lit(0).cast("bigint"), F.lit(0.0)
    for at in range(len(sums) - 1, -1, -1):
        whole = sums[at] + carried
        if at:
            carried, whole = F.shiftright(whole, _BITS), whole.bitwiseAND(F.lit(int(_LIMB) - 1))
        total = total + whole.cast("double") * F.lit(_LIMB ** (highest - at))
    return total
