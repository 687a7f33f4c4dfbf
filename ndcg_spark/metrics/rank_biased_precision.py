"""Rank-biased precision: each rank weighs a fixed share of the one before."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ndcg_spark.core.ragged import FloatArray, segment_sum
from ndcg_spark.metrics.base import Metric
from ndcg_spark.metrics.lists import RelevanceLists
from ndcg_spark.metrics.ties import expected_weights

_SMALLEST = math.log(2.0**-1074)


def rank_biased_precision(lists: RelevanceLists, k: int | None, p: float, rel: float, max_grade: float) -> FloatArray:
    """(1 - p) times the sum of gains, each times p^(rank - 1); an unjudged item gains 0.

    Parameters
    ----------
    lists : RelevanceLists
    k : int or None
    p : float
        Between 0 and 1.
    rel : float
        Relevance from which on an item gains 1.
    max_grade : float
        Not 0: an item gains its relevance over this instead.

    Returns
    -------
    float64, shape (n_queries,)

    Raises
    ------
    QueryError
        For a relevance above the highest grade on the first k ranks.

    References
    ----------
    Moffat and Zobel, TOIS 27(1), 2008, doi:10.1145/1416950.1416952.
    """
    gains = lists.is_relevant(rel).astype(np.float64)
    if max_grade:
        lists.refuse_above(max_grade, k)
        gains = lists.gains / max_grade
    return (1 - p) * segment_sum(gains * _weights(lists, p, k), lists.offsets)


def residual(lists: RelevanceLists, k: int | None, p: float) -> FloatArray:
    """The part of the whole weight that is on no judged item."""
    judged = segment_sum(lists.judged * _weights(lists, p, k), lists.offsets)
    return np.asarray(1 - (1 - p) * judged)


def _weights(lists: RelevanceLists, p: float, k: int | None) -> FloatArray:
    n_ranks = int((lists.groups.start + lists.groups.size).max(initial=0))
    weights = _powers(p, n_ranks if k is None else min(k, n_ranks))
    return expected_weights(lists.groups, weights, k=len(weights))


def _powers(p: float, n: int) -> FloatArray:
    """1, p, p^2, ... as long as they are not 0, by Python's power: NumPy's may depend on the processor."""
    n_above_zero = math.ceil(_SMALLEST / math.log(p)) + 1
    return np.array([p**at for at in range(min(n, n_above_zero))], dtype=np.float64)


SOURCE = "Moffat and Zobel, TOIS 27(1), 2008, doi:10.1145/1416950.1416952"


@dataclass(frozen=True)
class RankBiasedPrecision(Metric):
    """Sum of gains, each rank weighing p times the one before."""

    p: float = 0.8
    rel: float = 1.0
    max_grade: float = 0.0
    name = "rbp"
    larger_is_better = True
    about = (
        "(1-p) * sum of g * p^(rank-1); g is 1 for a relevant item, or its relevance / max_grade where that is given"
    )
    source = SOURCE

    def __post_init__(self) -> None:
        """Check the parameters."""
        super().__post_init__()
        self.refuse(not 0 < self.p < 1, "p must lie between 0 and 1")
        self.refuse(not self.max_grade >= 0, "max_grade must be a relevance above 0")

    def values(self, lists: RelevanceLists, k: int | None) -> FloatArray:
        """Sum of weighted gains; an unjudged item gains 0."""
        return rank_biased_precision(lists, k, self.p, self.rel, self.max_grade)


@dataclass(frozen=True)
class RankBiasedPrecisionResidual(Metric):
    """What rank-biased precision could still gain from unjudged items and from ranks that are not seen."""

    p: float = 0.8
    name = "rbp_residual"
    larger_is_better = None
    needs_judgments = False  # without any, it is 1: 0 would say that nothing can be gained
    about = "1 - (1-p) * sum over judged items of p^(rank-1): what rbp could gain from ranks that are not judged"
    source = SOURCE

    def __post_init__(self) -> None:
        """Check the parameter."""
        super().__post_init__()
        self.refuse(not 0 < self.p < 1, "p must lie between 0 and 1")

    def values(self, lists: RelevanceLists, k: int | None) -> FloatArray:
        """The part of the whole weight that is on no judged item."""
        return residual(lists, k, self.p)
