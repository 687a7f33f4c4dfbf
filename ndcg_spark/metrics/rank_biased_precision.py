"""Rank-biased precision: each rank weighs a fixed share of the one before."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ndcg_spark.core.ragged import FloatArray, segment_sum
from ndcg_spark.metrics.base import Metric
from ndcg_spark.metrics.kernels import expected_weights
from ndcg_spark.metrics.lists import RelevanceLists

_LOG_MIN_DOUBLE = math.log(2.0**-1074)


def _weights(lists: RelevanceLists, p: float, k: int | None) -> FloatArray:
    """Weight of each entry: p^(rank - 1), averaged over the ranks of tied items."""
    n_ranks = int((lists.groups.start + lists.groups.size).max(initial=0))
    n_above_zero = math.ceil(_LOG_MIN_DOUBLE / math.log(p)) + 1
    n = min(n_ranks if k is None else min(k, n_ranks), n_above_zero)
    weights = np.array(
        [p**exponent for exponent in range(n)], dtype=np.float64
    )  # NumPy's power may depend on the processor
    return expected_weights(lists.groups, weights, k=len(weights))


SOURCE = "Moffat and Zobel, TOIS 27(1), 2008, doi:10.1145/1416950.1416952"


@dataclass(frozen=True)
class RankBiasedPrecision(Metric):
    """Sum of gains, each rank weighing p times the one before; an unjudged item gains 0."""

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
        super().__post_init__()
        self.refuse(not 0 < self.p < 1, "p must be between 0 and 1")
        self.refuse(not self.max_grade >= 0, "max_grade must be a relevance above 0")

    def values(self, lists: RelevanceLists, k: int | None) -> FloatArray:
        gains = lists.is_relevant(self.rel).astype(np.float64)
        if self.max_grade:
            lists.refuse_above(self.max_grade, k)
            gains = lists.gains / self.max_grade
        return (1 - self.p) * segment_sum(gains * _weights(lists, self.p, k), lists.offsets)


@dataclass(frozen=True)
class RankBiasedPrecisionResidual(Metric):
    """Gain that rank-biased precision could still get from unjudged items and from ranks beyond the list."""

    p: float = 0.8
    name = "rbp_residual"
    larger_is_better = None
    needs_judgments = False  # without any, it is 1: 0 would say that nothing can be gained
    about = "1 - (1-p) * sum over judged items of p^(rank-1): what rbp could gain from ranks that are not judged"
    source = SOURCE

    def __post_init__(self) -> None:
        super().__post_init__()
        self.refuse(not 0 < self.p < 1, "p must be between 0 and 1")

    def values(self, lists: RelevanceLists, k: int | None) -> FloatArray:
        judged = segment_sum(lists.judged * _weights(lists, self.p, k), lists.offsets)
        return np.asarray(1 - (1 - self.p) * judged)
