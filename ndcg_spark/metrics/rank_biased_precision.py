"""Rank-biased precision: what a user sees who goes on to the next item with a fixed chance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ndcg_spark.kernels.ragged import FloatArray, segment_sum
from ndcg_spark.kernels.ties import expected_weights
from ndcg_spark.metrics.base import Metric, QueryError
from ndcg_spark.metrics.lists import RelevanceLists

SOURCE = "Moffat and Zobel, TOIS 27(1), 2008, doi:10.1145/1416950.1416952"


@dataclass(frozen=True)
class RankBiasedPrecision(Metric):
    """Sum of gains, each rank weighing p times the one before."""

    p: float = 0.8
    rel: float = 1.0
    max_grade: float = 0.0
    name = "rbp"
    about = (
        "(1-p) * sum of g * p^(rank-1); g is 1 for a relevant item, or its relevance / max_grade where that is given"
    )
    source = SOURCE

    def __post_init__(self) -> None:
        """Check the parameters."""
        self.refuse(not 0 < self.p < 1, "p must lie between 0 and 1")
        self.refuse(not self.max_grade >= 0, "max_grade must be a relevance above 0")

    def values(self, lists: RelevanceLists, k: int | None) -> FloatArray:
        """Sum of weighted gains; an unjudged item gains 0."""
        gains = lists.is_relevant(self.rel).astype(np.float64)
        if self.max_grade:
            refuse_above(lists, self.max_grade)
            gains = lists.gains / self.max_grade
        return (1 - self.p) * segment_sum(gains * _weights(lists, self.p, k), lists.offsets)


@dataclass(frozen=True)
class RankBiasedPrecisionResidual(Metric):
    """What rank-biased precision could still gain from unjudged items and from ranks that are not seen."""

    p: float = 0.8
    name = "rbp_residual"
    about = "p^min(k,n) + (1-p) * sum over unjudged items of p^(rank-1): how uncertain rbp is"
    source = SOURCE

    def __post_init__(self) -> None:
        """Check the parameter."""
        self.refuse(not 0 < self.p < 1, "p must lie between 0 and 1")

    def values(self, lists: RelevanceLists, k: int | None) -> FloatArray:
        """The part of the whole weight that is on no judged item."""
        unjudged = segment_sum(~lists.judged * _weights(lists, self.p, k), lists.offsets)
        length = lists.lengths if k is None else np.minimum(lists.lengths, k)
        return np.asarray(_powers(self.p, int(length.max(initial=0)) + 1)[length] + (1 - self.p) * unjudged)


def _weights(lists: RelevanceLists, p: float, k: int | None) -> FloatArray:
    n_ranks = k if k is not None else int((lists.groups.start + lists.groups.size).max(initial=0))
    return expected_weights(lists.groups, _powers(p, n_ranks), k=k)


def _powers(p: float, n: int) -> FloatArray:
    """1, p, p^2, ... by Python's power: NumPy's depends on the processor in the last bit."""
    return np.array([p**at for at in range(n)], dtype=np.float64)


def refuse_above(lists: RelevanceLists, max_grade: float) -> None:
    """Raise for a relevance above the highest grade."""
    above = lists.relevance > max_grade
    if above.any():
        at = int(above.argmax())
        query = int(np.searchsorted(lists.offsets, at, side="right") - 1)
        raise QueryError(query, f"has relevance {lists.relevance[at]:g}, above max_grade {max_grade:g}")
