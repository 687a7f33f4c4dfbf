"""Lists beside a table of judgments as long rows, and what empty lists tell; as `frames.lists` has them in Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ndcg_spark.core.batches import flags_of, list_offsets
from ndcg_spark.core.ragged import BoolArray, IntArray, lengths_of, offsets_of, query_of_rows, rank_of_rows
from ndcg_spark.evaluation.plan_lists import LongRows
from ndcg_spark.evaluation.tasks.columns import read_column
from ndcg_spark.evaluation.tasks.complete_queries import Part

ENTRIES_PER_ROW = 64
"""By which a batch of lists is smaller than one of rows."""


@dataclass(frozen=True, slots=True)
class LongPart:
    """The long rows of a part of a table with lists; `source` has its columns that are read."""

    part: Part
    source: pa.Schema
    long: LongRows

    def read(self, columns: Sequence[str], schema: pa.Schema, rows: int) -> Iterator[pa.RecordBatch]:
        """Read columns of the long rows."""
        for batch in self.part.read(self.source.names, self.source, max(1, rows // ENTRIES_PER_ROW)):
            found = pa.Table.from_batches(list(_explode_lists(batch, self.long))).select(list(columns))
            yield from found.cast(schema).combine_chunks().to_batches()


def _explode_lists(batch: pa.RecordBatch, long: LongRows) -> Iterator[pa.RecordBatch]:
    for one in long.lists:
        items = read_column(batch, one.items)
        missing = flags_of(items.is_null())
        offsets = offsets_of(np.where(missing, 1, lengths_of(list_offsets(items))))
        owner, place = query_of_rows(offsets), rank_of_rows(offsets)
        columns = {name: batch.column(name).take(pa.array(owner)) for name in long.kept}
        if long.run is not None:
            columns[long.run] = pa.repeat(pa.scalar(one.name), len(owner))
        columns[long.item] = _take_entries(items, owner, place, missing)
        places = pa.array(place + 1, pa.int32())
        if one.numbers is not None:
            columns[long.number] = _take_entries(read_column(batch, one.numbers), owner, place, missing)
        else:
            columns[long.number] = pa.repeat(pa.scalar(1, pa.int32()), len(owner)) if long.relevant else places
        if long.order is not None:
            columns[long.order] = places
        yield pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _take_entries(lists: pa.Array, owner: IntArray, place: IntArray, missing: BoolArray) -> pa.Array:
    """Take the entry at each place of its list; null for a list that is missing."""
    at = list_offsets(lists)[owner] + place
    return lists.flatten().take(pa.array(at, mask=missing[owner]))


@dataclass(frozen=True, slots=True)
class EmptyListsPart:
    """Rows of a part whose list is empty: with `run`, once for each column of lists, and all of their names.

    Without it, rows without one of the `keys` are left out.
    """

    part: Part
    source: pa.Schema
    lists: tuple[str, ...]
    run: str | None
    keys: tuple[str, ...]

    def read(self, columns: Sequence[str], schema: pa.Schema, rows: int) -> Iterator[pa.RecordBatch]:
        """Read columns of such rows."""
        if self.run is not None:
            names = pa.array(self.lists)
            nulls = {one.name: pa.nulls(len(names), one.type) for one in schema}
            yield pa.RecordBatch.from_pydict({**nulls, self.run: names}, schema=schema)
        for batch in self.part.read(self.source.names, self.source, max(1, rows // ENTRIES_PER_ROW)):
            for name in self.lists:
                empty = pc.fill_null(pc.equal(pc.list_value_length(batch.column(name)), 0), False)
                for key in self.keys if self.run is None else ():
                    empty = pc.and_(empty, batch.column(key).is_valid())
                its = batch.filter(empty)
                if its.num_rows:
                    run = {} if self.run is None else {self.run: pa.repeat(pa.scalar(name), its.num_rows)}
                    found = {one: run[one] if one in run else its.column(one) for one in columns}
                    yield pa.RecordBatch.from_pydict(found, schema=schema)
