"""Discounts: what a rank is worth.

Tables are computed with the C library's scalar logarithm, one value at a time, in this one place.
The vectorised logarithms of NumPy and of the JVM differ from it, and from each other, by an ulp.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from ndcg_spark.errors import InvalidParameterError
from ndcg_spark.kernels.ragged import FloatArray

DiscountFunction: TypeAlias = Callable[[FloatArray], FloatArray]

DISCOUNT_FORMS = "log2, ln, log:BASE, reciprocal, table:D1,D2,..."


def parse_discount_table(text: str) -> list[float]:
    """Read `D1,D2,...`, one weight a rank from rank 1 on.

    Parameters
    ----------
    text : str

    Returns
    -------
    list of float

    Raises
    ------
    InvalidParameterError
        When an entry is no finite number.
    """
    try:
        table = [float(entry) for entry in text.split(",")]
    except ValueError:
        raise InvalidParameterError(f"discount table {text!r} is not a list of numbers.") from None
    if not all(math.isfinite(value) for value in table):
        raise InvalidParameterError(f"discount table {text!r} has a value that is not finite.")
    return table


def _log_base(text: str) -> float:
    try:
        base = float(text)
    except ValueError:
        base = math.nan
    if not 1 < base < math.inf:
        raise InvalidParameterError(f"discount log base must be above 1; got {text!r}.")
    return base


def check_discount(spec: str | DiscountFunction, max_k: int | None) -> None:
    """Raise unless `spec` is a discount that covers `max_k` ranks.

    Parameters
    ----------
    spec : str or callable
        As for `discount_table`.
    max_k : int or None
        The largest cutoff; None when whole lists are scored.

    Raises
    ------
    InvalidParameterError
    """
    if callable(spec):
        return
    if not isinstance(spec, str):
        raise InvalidParameterError(f"discount must be a name or a function; got {spec!r}.")
    form, _, argument = spec.partition(":")
    if spec in ("log2", "ln", "reciprocal"):
        return
    if form == "log" and argument:
        _log_base(argument)
        return
    if form == "table" and argument:
        have = len(parse_discount_table(argument))
        if max_k is None or have < max_k:
            want = "all ranks" if max_k is None else f"k={max_k}"
            raise InvalidParameterError(f"discount table has {have} ranks, too few for {want}.")
        return
    raise InvalidParameterError(f"discount must be one of {DISCOUNT_FORMS}; got {spec!r}.")


def discount_table(spec: str | DiscountFunction, n_ranks: int) -> FloatArray:
    """Weights of ranks 1..n_ranks.

    Parameters
    ----------
    spec : str or callable
        `log2` 1/log2(i+1), `ln` 1/ln(i+1), `log:B` 1/log_B(i+1), `reciprocal` 1/i,
        `table:D1,D2,...`, or a NumPy function from the 1-based ranks (float64) to weights.
    n_ranks : int

    Returns
    -------
    float64, shape (n_ranks,)

    Raises
    ------
    InvalidParameterError
        For an unknown name, a table that is too short, or a function whose answer has another shape.

    References
    ----------
    Jarvelin and Kekalainen, TOIS 20(4), 2002; with 1/log2(i+1) as in Burges et al., ICML 2005.

    Examples
    --------
    >>> discount_table("log2", 3).tolist()
    [1.0, 0.6309297535714575, 0.5]
    >>> discount_table("table:1.25,1", 2).tolist()
    [1.25, 1.0]
    """
    check_discount(spec, n_ranks)
    ranks = range(1, n_ranks + 1)
    if callable(spec):
        weights = np.asarray(spec(np.arange(1, n_ranks + 1, dtype=np.float64)), dtype=np.float64)
        if weights.shape != (n_ranks,):
            raise InvalidParameterError(f"discount function gave shape {weights.shape} for {n_ranks} ranks.")
        return weights
    form, _, argument = spec.partition(":")
    if spec == "log2":
        values = [1.0 / math.log2(rank + 1) for rank in ranks]
    elif spec == "ln":
        values = [1.0 / math.log(rank + 1) for rank in ranks]
    elif form == "log":
        scale = math.log(_log_base(argument))
        values = [scale / math.log(rank + 1) for rank in ranks]
    elif spec == "reciprocal":
        values = [1.0 / rank for rank in ranks]
    else:
        values = parse_discount_table(argument)[:n_ranks]
    return np.array(values, dtype=np.float64)
