"""Ranked lists of a batch as gains, and their discounted sums by the rules of the convention."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from ndcg_spark.core.ragged import BoolArray, FloatArray, IntArray, segment_sum
from ndcg_spark.metrics.kernels.dcg import dcg, ndcg, padding, rank_weights
from ndcg_spark.metrics.kernels.ties import TieGroups, expected_weights, extreme_weights, straddling_share


@dataclass(frozen=True, slots=True, kw_only=True)
class GainRules:
    """What the convention says of sums of gains.

    Parameters
    ----------
    ties : str
        Where items are tied: `expected`, `best` or `worst`.
    pad : float or None
        Gain of every rank before a cutoff that no item fills. None: 0.
    ideal_of_ones : float or None
        The ideal list has this gain on each of the first k ranks. None: it is made of judged items.
    no_relevant : float
        NDCG where IDCG is 0; NaN where there is none.
    """

    ties: str
    pad: float | None = None
    ideal_of_ones: float | None = None
    no_relevant: float = 0.0


@dataclass(frozen=True)
class GainLists:
    """Ranked lists of a batch as gains; unjudged entries gain 0. What several metrics need is computed once.

    Parameters
    ----------
    ranked : float64, shape (n_entries,)
        Gains of entries in rank order.
    offsets : int64, shape (n_queries + 1,)
    rank : int64, shape (n_entries,)
        From 0 on.
    has_gaps : bool
        Whether ranks were given, and so may leave some out.
    groups : TieGroups or None
        Where the tie rule takes tied items together.
    lengths : int64, shape (n_queries,)
        Ranks that each list fills.
    ideal : float64, shape (n_ideal_entries,)
        Gains of the ideal list.
    ideal_offsets : int64, shape (n_queries + 1,)
    judged : bool, shape (n_queries,)
        Whether any item is.
    discount : float64, shape (n_ranks,)
        As far as the largest cutoff, or the longest list.
    rules : GainRules
    """

    ranked: FloatArray
    offsets: IntArray
    rank: IntArray
    has_gaps: bool
    groups: TieGroups | None
    lengths: IntArray
    ideal: FloatArray
    ideal_offsets: IntArray
    judged: BoolArray
    discount: FloatArray
    rules: GainRules
    _sums: dict[object, FloatArray] = field(default_factory=dict, repr=False)

    def dcg(self, k: int | None, ties: str | None = None) -> FloatArray:
        """DCG of each query, tied items as the rules say, or in the `best` or `worst` order."""
        order = ties or self.rules.ties
        return self._kept(("dcg", k, order), lambda: self._dcg(k, order))

    def idcg(self, k: int | None) -> FloatArray:
        """DCG of the ideal list of each query."""
        return self._kept(("idcg", k), lambda: self._idcg(k))

    def ndcg(self, k: int | None, ties: str | None = None) -> FloatArray:
        """DCG over IDCG of each query."""
        return ndcg(self.dcg(k, ties), self.idcg(k), no_relevant=self.rules.no_relevant)

    def tied_share(self, k: int | None) -> FloatArray:
        """Share of the first k ranks that the group of tied items fills which reaches beyond them.

        NaN for a judged query without NDCG.
        """
        share = np.zeros(len(self.lengths))
        if k is not None and self.groups is not None:
            share = straddling_share(self.groups, self.offsets, k=k)
        return np.where(np.isnan(self.ndcg(k)) & self.judged, np.nan, share)

    def _dcg(self, k: int | None, ties: str) -> FloatArray:
        gained = segment_sum(self.ranked * self._weights(k, ties), self.offsets)
        if self.rules.pad is None or k is None:
            return gained
        given = {"rank": self.rank, "offsets": self.offsets} if self.has_gaps else {}
        return gained + padding(self.lengths, self.rules.pad, self.discount, k=k, **given)

    def _weights(self, k: int | None, ties: str) -> FloatArray:
        if self.groups is None:
            return rank_weights(self.rank, self.discount, k=k)
        if ties == "expected":
            return expected_weights(self.groups, self.discount, k=k)
        return extreme_weights(self.groups, self.ranked, self.discount, k=k, best=ties == "best")

    def _idcg(self, k: int | None) -> FloatArray:
        one = self.rules.ideal_of_ones
        if one is None:
            return dcg(self.ideal, self.ideal_offsets, self.discount, k=k)
        n = self.lengths if k is None else np.full(len(self.lengths), k)
        return np.asarray(one * np.concatenate([[0.0], np.cumsum(self.discount)])[n])

    def _kept(self, name: object, compute: Callable[[], FloatArray]) -> FloatArray:
        if name not in self._sums:
            self._sums[name] = compute()
        return self._sums[name]
