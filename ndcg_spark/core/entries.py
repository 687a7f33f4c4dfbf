"""Entries of the lists of queries, in NumPy and Arrow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from ndcg_spark.core.batches import int_values, is_plain, list_offsets
from ndcg_spark.core.ragged import BoolArray, IntArray, chosen_offsets, lengths_of, offsets_of, rank_of_rows, rows_of
from ndcg_spark.core.top_k import NumberArray

Values: TypeAlias = NumberArray | pa.Array
"""Numbers are NumPy's; texts, and what may be null, are Arrow's."""


@dataclass(slots=True)
class Entries:
    """Entries of one list of each query, those of a query end to end.

    Columns are `rank` or `score`, `relevance` (NaN: unjudged), `item`, `order`, `n`, as far as rules need them.
    """

    columns: dict[str, Values]
    offsets: IntArray

    def numbers(self, name: str) -> NumberArray:
        """Return a column of numbers."""
        values = self.columns[name]
        return values if isinstance(values, np.ndarray) else values.to_numpy(zero_copy_only=False)

    def taken(self, rows: IntArray) -> Entries:
        """Take entries; offsets stay as they are."""
        return Entries({name: take_values(values, rows) for name, values in self.columns.items()}, self.offsets)

    def of_queries(self, queries: IntArray) -> Entries:
        """Take the lists of some queries, in the order given."""
        found = self.taken(rows_of(queries, self.offsets))
        return Entries(found.columns, offsets_of(lengths_of(self.offsets)[queries]))

    def where(self, flags: BoolArray) -> Entries:
        """Keep some entries of each query."""
        if flags.all():
            return self
        return Entries(self.taken(np.flatnonzero(flags)).columns, chosen_offsets(flags, self.offsets))

    def first(self, k: int | None, same: BoolArray | None = None) -> Entries:
        """Keep the first k entries of each query, and those that are the `same` as the one before."""
        if k is None or lengths_of(self.offsets).max(initial=0) <= k:
            return self
        rank = rank_of_rows(self.offsets)
        if same is not None:
            rank = rank[np.maximum.accumulate(np.where(same, -1, np.arange(len(rank))))]
        return self.where(rank < k)

    def only(self, *names: str) -> Entries:
        """Keep some columns, those that are there."""
        return Entries({name: values for name, values in self.columns.items() if name in names}, self.offsets)


def take_values(values: Values, rows: IntArray) -> Values:
    """Take values by their places; whole numbers become NumPy's."""
    if isinstance(values, pa.Array) and pa.types.is_integer(values.type) and not values.null_count:
        values = int_values(values)
    return values[rows] if isinstance(values, np.ndarray) else values.take(pa.array(rows))


def joined_entries(found: Sequence[Entries]) -> Entries:
    """Put the lists of some queries behind those of others, at least one; they have the same columns."""
    if len(found) == 1:
        return found[0]
    columns: dict[str, Values] = {}
    for name in found[0].columns:
        parts = [one.columns[name] for one in found]
        if all(isinstance(part, np.ndarray) for part in parts):
            columns[name] = np.concatenate(parts)
        else:
            columns[name] = pa.concat_arrays([pa.array(part) for part in parts])
    return Entries(columns, offsets_of(np.concatenate([lengths_of(one.offsets) for one in found])))


def list_column(values: pa.Array, offsets: IntArray) -> pa.ListArray:
    """Arrow lists of successive values."""
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values)


def lists_of_counts(counts: Sequence[IntArray]) -> pa.ListArray:
    """A list of several counts of each query."""
    flat = np.column_stack(counts).reshape(-1)
    return list_column(pa.array(flat), np.arange(0, len(flat) + 1, len(counts)))


def entry_columns(entries: Entries, prefix: str) -> dict[str, pa.Array]:
    """Arrow list columns of entries, named after the list they belong to."""
    return {
        f"{prefix}.{name}": list_column(pa.array(values), entries.offsets) for name, values in entries.columns.items()
    }


def entries_in(batch: pa.RecordBatch, prefix: str) -> Entries | None:
    """Read what `entry_columns` wrote; None where the batch has no such list."""
    names = [name for name in batch.schema.names if name.startswith(f"{prefix}.")]
    if not names:
        return None
    columns: dict[str, Values] = {}
    for name in names:
        values = batch.column(name).flatten()
        columns[name.removeprefix(f"{prefix}.")] = values.to_numpy() if is_plain(values) else values
    return Entries(columns, list_offsets(batch.column(names[0])))
