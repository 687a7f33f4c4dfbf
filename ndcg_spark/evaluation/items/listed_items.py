"""How often each item is listed, counted beside the sums of metrics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from ndcg_spark.core.batches import flags_of, list_offsets
from ndcg_spark.core.ragged import BoolArray, query_of_rows

ITEM, LISTED = "item", "listed"
MOST_HELD = 500_000
"""Counts of items that a worker holds; more are passed on."""
Keys: TypeAlias = dict[str, pa.Array]


class ListedItems:
    """Counts of items by keys, such as run, cutoff and segment."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, ...], pa.Table] = {}

    def add(self, batch: pa.RecordBatch, kept: BoolArray, keys: dict[tuple[str, ...], Keys]) -> None:
        """Count the items of kept lists, once for each set of keys."""
        lists = batch.column("items")
        rows = pa.array(np.flatnonzero(kept & flags_of(lists.is_valid())))
        chosen = lists.take(rows)
        owner = rows.take(pa.array(query_of_rows(list_offsets(chosen))))
        for names, columns in keys.items():
            table = pa.table(
                {**{name: column.take(owner) for name, column in columns.items()}, ITEM: chosen.flatten()}
            )
            table = _grouped(table.append_column(LISTED, pa.array(np.ones(table.num_rows, dtype=np.int64))))
            held = self._held.get(names)
            self._held[names] = table if held is None else _grouped(pa.concat_tables([held, table]))

    def passed_on(self, *, at_end: bool) -> Iterator[tuple[tuple[str, ...], pa.Table]]:
        """Hand over what is held, or only what has become too much."""
        for names in list(self._held):
            if at_end or self._held[names].num_rows > MOST_HELD:
                yield names, self._held.pop(names)


def _grouped(table: pa.Table) -> pa.Table:
    """Add up counts of the same keys and item."""
    keys = [name for name in table.column_names if name != LISTED]
    grouped = table.group_by(keys, use_threads=False).aggregate([(LISTED, "sum")])
    return grouped.rename_columns([LISTED if name == f"{LISTED}_sum" else name for name in grouped.column_names])
