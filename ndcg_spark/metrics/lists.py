"""Ranked lists of a batch as metrics read them: as gains, as relevances, groups of tied items, ranks and items."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ndcg_spark.core.distances import Vectors, WordArray
from ndcg_spark.core.ragged import (
    BoolArray,
    FloatArray,
    IntArray,
    offsets_after_filter,
    query_of_rows,
    segment_sum,
    to_lengths,
)
from ndcg_spark.metrics.base import QueryError
from ndcg_spark.metrics.kernels import (
    TieGroups,
    dcg,
    expected_weights,
    extreme_weights,
    ndcg,
    padding,
    rank_weights,
    straddling_share,
)

if TYPE_CHECKING:
    from ndcg_spark.metrics.alpha_ndcg import TopicItems


@dataclass(frozen=True)
class ItemLists:
    """Properties of the items of ranked lists, best rank first, queries end to end; None if no metric asks for one.

    Ranks count from 0. A row without a vector has an arbitrary one; `categories` are bits (see `category_words`),
    none set if an item has no categories. `days` count since the item was first seen; `interactions` and `users`
    count the interactions of each item and its users, beside the totals `n_interactions` and `n_users`. `seen`: the
    user of the query has met the item before. `topics` maps a relevance to the judged items that reach it, and the
    number of each row among these, -1 for a row that is not.
    """

    rank: IntArray
    offsets: IntArray
    vectors: Vectors | None = None
    has_vector: BoolArray | None = None
    categories: WordArray | None = None
    days: FloatArray | None = None
    interactions: IntArray | None = None
    users: IntArray | None = None
    n_interactions: int = 0
    n_users: int = 0
    seen: BoolArray | None = None
    topics: Callable[[float], tuple[TopicItems, IntArray]] | None = field(default=None, repr=False)

    def inside(self, k: int | None) -> BoolArray:
        """Rows on the first k ranks."""
        return self.rank >= 0 if k is None else self.rank < k

    def first(self, k: int | None) -> tuple[BoolArray, IntArray]:
        """Rows on the first k ranks, and the offsets between their queries."""
        inside = self.inside(k)
        return inside, offsets_after_filter(inside, self.offsets)


@dataclass(frozen=True, slots=True)
class Spans:
    """Groups of tied items: the first rank (from 0) and the items of each, shape (n_groups,)."""

    start: IntArray
    size: IntArray
    offsets: IntArray


@dataclass(frozen=True, slots=True)
class Ranks:
    """Ranks that lists fill: the group that fills each, the place in it (from 1), the rank (from 0)."""

    group: IntArray
    place: IntArray
    rank: IntArray
    offsets: IntArray


@dataclass(frozen=True, slots=True)
class RankedEntries:
    """Entries of ranked lists in rank order; relevance is 0 where an item is not judged."""

    relevance: FloatArray
    judged: BoolArray
    groups: TieGroups


class _ArrayCache:
    """Cache of arrays that several metrics need, by name."""

    _sums: dict[object, FloatArray]

    def get_or_compute(self, name: object, compute: Callable[[], FloatArray]) -> FloatArray:
        """Return the cached array of this name; compute it at the first call."""
        if name not in self._sums:
            self._sums[name] = compute()
        return self._sums[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class GainRules:
    """Rules of a convention for sums of gains.

    `pad` is the gain of every rank before a cutoff that no item fills (None: 0). `ideal_of_ones` is the gain of each
    of the first k ranks of the ideal list (None: it is made of judged items). `no_relevant` is NDCG where IDCG is 0;
    NaN for none.
    """

    ties: str
    pad: float | None = None
    ideal_of_ones: float | None = None
    no_relevant: float = 0.0


@dataclass(frozen=True)
class GainLists(_ArrayCache):
    """Ranked lists of a batch as gains in rank order; unjudged entries gain 0.

    Ranks count from 0 and may have gaps if `has_gaps`. `groups` is set if the tie rule treats tied items together.
    `lengths` are the ranks that each list fills; `judged` flags queries with any judgment; `discount` reaches to
    the largest cutoff or the longest list.
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
        return self.get_or_compute(("dcg", k, order), lambda: self._dcg(k, order))

    def idcg(self, k: int | None) -> FloatArray:
        return self.get_or_compute(("idcg", k), lambda: self._idcg(k))

    def ndcg(self, k: int | None, ties: str | None = None) -> FloatArray:
        return ndcg(self.dcg(k, ties), self.idcg(k), no_relevant=self.rules.no_relevant)

    def n_among_first(self, k: int | None) -> IntArray:
        """Count the items on the first k ranks of each list; None: in all of it."""
        if self.has_gaps:
            return to_lengths(self.offsets if k is None else offsets_after_filter(self.rank < k, self.offsets))
        return self.lengths if k is None else np.minimum(self.lengths, k)

    def tied_share(self, k: int | None) -> FloatArray:
        """Share of the first k ranks that the group tied across rank k fills; NaN for a judged query without NDCG."""
        share = np.zeros(len(self.lengths))
        if k is not None and self.groups is not None:
            share = straddling_share(self.groups, self.offsets, k=k)
        return np.where(np.isnan(self.ndcg(k)) & self.judged, np.nan, share)

    def _dcg(self, k: int | None, ties: str) -> FloatArray:
        gained = segment_sum(self.ranked * self._weights(k, ties), self.offsets)
        if self.rules.pad is None or k is None:
            return gained
        ranks = {"rank": self.rank, "offsets": self.offsets} if self.has_gaps else {}
        return gained + padding(self.lengths, self.rules.pad, self.discount, k=k, **ranks)

    def _weights(self, k: int | None, ties: str) -> FloatArray:
        if self.groups is None:
            return rank_weights(self.rank, self.discount, k=k)
        if ties == "expected":
            return expected_weights(self.groups, self.discount, k=k)
        return extreme_weights(self.groups, self.ranked, self.discount, k=k, best=ties == "best")

    def _idcg(self, k: int | None) -> FloatArray:
        gain = self.rules.ideal_of_ones
        if gain is None:
            return dcg(self.ideal, self.ideal_offsets, self.discount, k=k)
        n = self.lengths if k is None else np.full(len(self.lengths), k)
        return np.asarray(gain * np.concatenate([[0.0], np.cumsum(self.discount)])[n])


@dataclass(frozen=True)
class RelevanceLists(_ArrayCache):
    """Ranked lists of a batch.

    `read` returns the entries, which NDCG alone does not need. `lengths` are the ranks that each list fills, as far
    as its entries are there: those beyond the largest cutoff `max_k` may be missing. `at_least` maps each relevance
    that metrics ask for to the number of judged items of each query that reach it, listed or not. `clips`: the
    convention takes relevances below 0 as 0. `items` and `gains_by_convention` are set if a metric asks for them.
    """

    read: Callable[[], RankedEntries]
    offsets: IntArray
    lengths: IntArray
    at_least: dict[float, IntArray]
    max_k: int | None
    clips: bool = False
    items: ItemLists | None = None
    gains_by_convention: GainLists | None = None
    _sums: dict[object, FloatArray] = field(default_factory=dict, repr=False)

    @property
    def n_queries(self) -> int:
        return len(self.lengths)

    @cached_property
    def entries(self) -> RankedEntries:
        """Entries of all lists, read when a metric first asks."""
        return self.read()

    @property
    def relevance(self) -> FloatArray:
        return self.entries.relevance

    @property
    def judged(self) -> BoolArray:
        return self.entries.judged

    @property
    def groups(self) -> TieGroups:
        return self.entries.groups

    @property
    def as_gains(self) -> GainLists:
        """Lists as gains, for NDCG."""
        if self.gains_by_convention is None:
            raise ValueError("the lists have no convention")
        return self.gains_by_convention

    @property
    def known_items(self) -> ItemLists:
        """Properties of the items; the settings ensure that they are read."""
        if self.items is None:
            raise ValueError("the lists have no items")
        return self.items

    @cached_property
    def clipped(self) -> FloatArray:
        """Relevances, those below 0 as 0."""
        return np.maximum(self.relevance, 0.0)

    @property
    def gains(self) -> FloatArray:
        """Relevances as metrics add them up: those below 0 as the convention says."""
        return self.clipped if self.clips else self.relevance

    @cached_property
    def has_ties(self) -> bool:
        """Check whether any items share their ranks."""
        return bool((self.groups.size > 1).any())

    @cached_property
    def spans(self) -> Spans:
        if not self.has_ties:
            return Spans(self.groups.start, self.groups.size, self.offsets)
        first = self.first
        return Spans(self.groups.start[first], self.groups.size[first], np.searchsorted(first, self.offsets))

    @cached_property
    def ranks(self) -> Ranks:
        """The ranks that lists fill, up to the largest cutoff."""
        spans = self.spans
        if not self.has_ties:
            return Ranks(np.arange(len(spans.start)), np.ones_like(spans.start), spans.start, spans.offsets)
        inside = self.inside(self.max_k)
        ends = np.concatenate([[0], np.cumsum(inside)])
        group = np.repeat(np.arange(len(inside)), inside)
        place = np.arange(ends[-1]) - ends[group] + 1
        return Ranks(group, place, spans.start[group] + place - 1, ends[spans.offsets])

    @cached_property
    def first(self) -> IntArray:
        """The first entry of each group."""
        new = np.ones(len(self.groups.group), dtype=np.bool_)
        new[1:] = self.groups.group[1:] != self.groups.group[:-1]
        return np.flatnonzero(new)

    def inside(self, k: int | None) -> IntArray:
        """Number of ranks before the cutoff that each group fills."""
        spans = self.spans
        return spans.size if k is None else np.clip(k - spans.start, 0, spans.size)

    def by_group(self, values: FloatArray) -> FloatArray:
        """Sum of a value of each entry's items, shape (n_entries,), over the items of each group."""
        if not self.has_ties:
            return values
        return np.add.reduceat(values * self.groups.count, self.first) if len(values) else values

    def hits(self, level: float) -> FloatArray:
        """Number of relevant items of each group: judged, and of at least this relevance."""
        return self.get_or_compute(("hits", level), lambda: self.by_group(self.is_relevant(level).astype(np.float64)))

    def is_relevant(self, level: float) -> BoolArray:
        """Entries that are judged, and of at least this relevance."""
        return np.asarray(self.judged & (self.relevance >= level))

    def sum_before(self, values: FloatArray) -> FloatArray:
        """Sum of the values of all earlier groups of the same query, shape (n_groups,).

        Added in the order of the groups: other queries of the batch do not change a bit.
        """
        offsets = self.spans.offsets
        if np.array_equal(values, np.rint(values)) and np.abs(values).sum() < 2**53:  # exact in any order
            sums = np.concatenate([[0.0], np.cumsum(values)])
            return np.asarray(sums[:-1] - np.repeat(sums[offsets[:-1]], np.diff(offsets)))
        totals, lengths = np.zeros(len(values)), np.diff(offsets)
        for rank in range(1, int(lengths.max(initial=0))):
            groups = offsets[:-1][lengths > rank] + rank
            totals[groups] = totals[groups - 1] + values[groups - 1]
        return totals

    def sum_of_shares(self, values: FloatArray, k: int | None) -> FloatArray:
        """Expected sum over the items on the first k ranks, from the sum of each group."""
        inside, spans = self.inside(k), self.spans
        return segment_sum(np.where(inside == spans.size, values, values / spans.size * inside), spans.offsets)

    def sum_of_ranks(self, terms: FloatArray, k: int | None) -> FloatArray:
        """Sum of the terms of ranks, shape (n_ranks,), over the first k ranks of each query."""
        ranks = self.ranks
        return segment_sum(terms if k is None else np.where(ranks.rank < k, terms, 0.0), ranks.offsets)

    def sum_of_first(self, terms: FloatArray, n: IntArray) -> FloatArray:
        """Sum of the terms of ranks over the first n ranks of each query, n of shape (n_queries,)."""
        ranks = self.ranks
        inside = ranks.rank < np.repeat(n, np.diff(ranks.offsets))
        return self.sum_of_ranks(np.where(inside, terms, 0.0), None)

    def per_rank(self, total: FloatArray, k: int | None) -> FloatArray:
        """Divide by k, also where the list is shorter; without a cutoff by the length of the list."""
        return total / k if k is not None else total / np.maximum(self.lengths, 1)

    def per_relevant(self, total: FloatArray, level: float) -> FloatArray:
        """Divide by the number of judged items of at least this relevance; 0 where there is none."""
        return ratio(total, self.at_least[level])

    def n_hits(self, level: float, k: int | None) -> FloatArray:
        """Expected number of relevant items on the first k ranks."""
        return self.get_or_compute(("n_hits", level, k), lambda: self.sum_of_shares(self.hits(level), k))

    def first_hit(self, level: float) -> tuple[IntArray, IntArray]:
        """Queries whose list has a relevant item, and the first group with one."""
        groups = np.flatnonzero(self.hits(level) > 0)
        query = query_of_rows(self.spans.offsets)[groups]
        new = np.ones(len(query), dtype=np.bool_)
        new[1:] = query[1:] != query[:-1]
        return query[new], groups[new]

    def refuse_above(self, max_grade: float, k: int | None) -> None:
        """Raise QueryError for a relevance above the highest grade that may be on the first k ranks."""
        above = self.relevance > max_grade
        if k is not None:
            above &= self.groups.start < k
        if above.any():
            entry = int(above.argmax())
            query = int(np.searchsorted(self.offsets, entry, side="right") - 1)
            raise QueryError(query, f"has relevance {self.relevance[entry]:g}, above max_grade {max_grade:g}")


def ratio(value: FloatArray, divisor: FloatArray | IntArray) -> FloatArray:
    """Divide; 0 where the divisor is not above 0."""
    positive = divisor > 0
    return np.where(positive, value / np.where(positive, divisor, 1), 0.0)
