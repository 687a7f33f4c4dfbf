"""P-values of many comparisons, adjusted for their number."""

from __future__ import annotations

from collections.abc import Sequence


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Adjust p-values to bound the probability of any false finding; None, a test not made, does not count.

    Holm, A simple sequentially rejective multiple test procedure, Scand. J. Statist. 6, 1979.

    >>> [round(p, 12) for p in holm([0.04, 0.001, 0.03])]
    [0.06, 0.003, 0.06]
    """
    order = _order(p_values)
    adjusted: list[float | None] = [None] * len(p_values)
    highest = 0.0
    for rank, at in enumerate(order):
        highest = max(highest, min(1.0, (len(order) - rank) * _known(p_values[at])))
        adjusted[at] = highest
    return adjusted


def benjamini_hochberg(p_values: Sequence[float | None]) -> list[float | None]:
    """Adjust p-values to bound the expected share of false findings; None, a test not made, does not count.

    Benjamini and Hochberg, Controlling the false discovery rate, JRSS B 57(1), 1995.

    >>> benjamini_hochberg([0.04, 0.001, None])
    [0.04, 0.002, None]
    """
    order = _order(p_values)
    adjusted: list[float | None] = [None] * len(p_values)
    lowest = 1.0
    for rank in range(len(order) - 1, -1, -1):
        lowest = min(lowest, len(order) * _known(p_values[order[rank]]) / (rank + 1))
        adjusted[order[rank]] = lowest
    return adjusted


def _order(p_values: Sequence[float | None]) -> list[int]:
    known = [at for at, p in enumerate(p_values) if p is not None]
    return sorted(known, key=lambda at: _known(p_values[at]))


def _known(p: float | None) -> float:
    return 1.0 if p is None else p
