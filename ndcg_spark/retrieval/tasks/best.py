"""The best of a block of queries so far: items, or counts per score and relevance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ndcg_spark.core.entries import Entries, Values, take_values
from ndcg_spark.core.ragged import FloatArray, IntArray, offsets_of
from ndcg_spark.retrieval.kernels.nearest import best_items, tied_counts
from ndcg_spark.retrieval.tasks.task import RetrievalTask

QUERY, SCORE, ITEM, RELEVANCE, COUNT = "query", "score", "item", "relevance", "n"


@dataclass(slots=True)
class Best:
    """The best of each query of a block.

    `kept` has, in order, `query` (place in the block), `score`, `relevance`, and `item`, or `n` where tied items are
    grouped. `kth` is the score of the K-th best of each query so far; -inf where there are fewer.
    """

    task: RetrievalTask
    n_queries: int
    kept: dict[str, Values] = field(default_factory=dict)
    kth: FloatArray = field(default_factory=lambda: np.zeros(0))
    _arrived: list[dict[str, Values]] = field(default_factory=list)
    _n_arrived: int = 0

    def __post_init__(self) -> None:
        self.kth = np.full(self.n_queries, -np.inf)

    def add(self, query: IntArray, score: FloatArray, relevance: FloatArray, other: Values) -> None:
        """Take scored pairs: `other` is their items, or how many each stands for."""
        name = COUNT if self.task.groups_ties else ITEM
        self._arrived.append({QUERY: query, SCORE: score, RELEVANCE: relevance, name: other})
        self._n_arrived += len(query)
        if self._n_arrived > max(self.task.settings.held_pairs // 8, self._n_kept // 2):
            self.merge()

    @property
    def _n_kept(self) -> int:
        return len(self.kept[QUERY]) if self.kept else 0

    def merge(self) -> None:
        """Cut what has arrived and what is kept to the best."""
        parts = [*([self.kept] if self.kept else []), *self._arrived]
        self._arrived, self._n_arrived = [], 0
        if not parts:
            return
        found = {name: _joined([part[name] for part in parts]) for name in parts[0]}
        query, score, relevance = (np.asarray(found[name]) for name in (QUERY, SCORE, RELEVANCE))
        k = self.task.k
        if self.task.groups_ties:
            counted = tied_counts(query, score, relevance, np.asarray(found[COUNT]), k, self.n_queries)
            self.kept = dict(zip((QUERY, SCORE, RELEVANCE, COUNT), counted, strict=True))
        else:
            items = item_order(found[ITEM])
            order = best_items(query, score, -items if self.task.items_fall else items, k, self.n_queries)
            self.kept = {name: take_values(values, order) for name, values in found.items()}
        self._find_kth()

    def _find_kth(self) -> None:
        """Read the score of the K-th best: the lowest that is kept, if that many are."""
        if self.task.k is None:
            return
        query = np.asarray(self.kept[QUERY])
        many = np.asarray(self.kept[COUNT]) if self.task.groups_ties else np.ones(len(query), dtype=np.int64)
        totals = np.bincount(query, weights=many, minlength=self.n_queries)
        ends = np.cumsum(np.bincount(query, minlength=self.n_queries))
        full = totals >= self.task.k
        self.kth[full] = np.asarray(self.kept[SCORE])[ends[full] - 1]

    def entries(self) -> Entries:
        """Give the best of all queries, end to end: `score`, `relevance`, and `item` or `n`."""
        self.merge()
        if not self.kept:
            nothing = np.zeros(0)
            name = COUNT if self.task.groups_ties else ITEM
            counts = np.zeros(0, dtype=np.int64)
            empty: dict[str, Values] = {SCORE: nothing, RELEVANCE: nothing, name: counts}
            return Entries(empty, np.zeros(self.n_queries + 1, dtype=np.int64))
        lengths = np.bincount(np.asarray(self.kept[QUERY]), minlength=self.n_queries)
        columns = {name: values for name, values in self.kept.items() if name != QUERY}
        return Entries(columns, offsets_of(lengths))


def item_order(items: Values) -> IntArray:
    """Whole numbers in the order of items: numbers by value, texts by bytes."""
    if isinstance(items, np.ndarray):
        return items.astype(np.int64, copy=False)
    if pa.types.is_integer(items.type):
        return np.asarray(items.to_numpy(zero_copy_only=False), dtype=np.int64)
    return np.asarray(pc.rank(items, sort_keys="ascending", tiebreaker="dense").to_numpy(), dtype=np.int64)


def _joined(parts: Sequence[Values]) -> Values:
    if all(isinstance(part, np.ndarray) for part in parts):
        return np.concatenate(parts)
    arrays = [pa.array(part) for part in parts]
    return pa.concat_arrays([one.cast(arrays[0].type) for one in arrays])
