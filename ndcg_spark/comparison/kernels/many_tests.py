"""P-values of many comparisons, adjusted for their number."""

from __future__ import annotations

from collections.abc import Sequence


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Adjust p-values to bound the probability of any false finding; None, a test not made, does not count.

    Holm, A simple sequentially rejective multiple test procedure, Scand. J. Statist. 6, 1979.

    >>> [round(p, 12) for p in holm([0.04, 0.001, 0.03])]
    [0.06, 0.003, 0.06]
    """
    known = _sorted(p_values)
    adjusted: list[float | None] = [None] * len(p_values)
    highest = 0.0
    for rank, (p, at) in enumerate(known):
        highest = max(highest, min(1.0, (len(known) - rank) * p))
        adjusted[at] = highest
    return adjusted


def benjamini_hochberg(p_values: Sequence[float | None]) -> list[float | None]:
    """Adjust p-values to bound the expected share of false findings; None, a test not made, does not count.

    Benjamini and Hochberg, Controlling the false discovery rate, JRSS B 57(1), 1995.

    >>> benjamini_hochberg([0.04, 0.001, None])
    [0.04, 0.002, None]
    """
    known = _sorted(p_values)
    adjusted: list[float | None] = [None] * len(p_values)
    lowest = 1.0
    for rank, (p, at) in reversed(list(enumerate(known, start=1))):
        lowest = min(lowest, len(known) * p / rank)
        adjusted[at] = lowest
    return adjusted


def _sorted(p_values: Sequence[float | None]) -> list[tuple[float, int]]:
    """P-values of the tests that were made, the smallest first, with their places."""
    return sorted((p, at) for at, p in enumerate(p_values) if p is not None)
