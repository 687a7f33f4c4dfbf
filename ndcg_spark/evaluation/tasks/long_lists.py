"""Explode lists into long rows when judgments are a table of their own; the local counterpart of `frames.lists`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ndcg_spark.core.batches import list_offsets, to_flags
from ndcg_spark.core.ragged import BoolArray, IntArray, query_of_rows, rank_of_rows, to_lengths, to_offsets
from ndcg_spark.evaluation.plan_lists import LongRows
from ndcg_spark.evaluation.tasks.columns import read_column
from ndcg_spark.evaluation.tasks.complete_queries import Part

ENTRIES_PER_ROW = 64
"""Assumed length of a list: a batch has fewer rows of lists than long rows, by this factor."""


@dataclass(frozen=True, slots=True)
class LongPart:
    """Long rows of a part of a table with lists. `source` has the columns to read."""

    part: Part
    source: pa.Schema
    long: LongRows

    def read(self, columns: Sequence[str], schema: pa.Schema, rows: int) -> Iterator[pa.RecordBatch]:
        """Read columns of the long rows, in batches of about `rows` rows."""
        for batch in self.part.read(self.source.names, self.source, max(1, rows // ENTRIES_PER_ROW)):
            exploded = pa.Table.from_batches(list(_explode_lists(batch, self.long))).select(list(columns))
            yield from exploded.cast(schema).combine_chunks().to_batches()


def _explode_lists(batch: pa.RecordBatch, long: LongRows) -> Iterator[pa.RecordBatch]:
    for ranker in long.lists:
        items = read_column(batch, ranker.items)
        missing = to_flags(items.is_null())
        offsets = to_offsets(np.where(missing, 1, to_lengths(list_offsets(items))))
        owner, position = query_of_rows(offsets), rank_of_rows(offsets)
        columns = {column: batch.column(column).take(pa.array(owner)) for column in long.kept_columns}
        if long.run is not None:
            columns[long.run] = pa.repeat(pa.scalar(ranker.name), len(owner))
        columns[long.item] = _take_entries(items, owner, position, missing)
        positions = pa.array(position + 1, pa.int32())
        if ranker.numbers is not None:
            columns[long.number] = _take_entries(read_column(batch, ranker.numbers), owner, position, missing)
        else:
            columns[long.number] = pa.repeat(pa.scalar(1, pa.int32()), len(owner)) if long.relevant else positions
        if long.order is not None:
            columns[long.order] = positions
        yield pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _take_entries(lists: pa.Array, owner: IntArray, position: IntArray, missing: BoolArray) -> pa.Array:
    """Take the entry at each position of its list; null for a missing list."""
    index = list_offsets(lists)[owner] + position
    return lists.flatten().take(pa.array(index, mask=missing[owner]))


@dataclass(frozen=True, slots=True)
class EmptyListsPart:
    """Rows of a part whose list is empty.

    With `run`, a row occurs once for each empty column of lists, and the names of all these columns come first.
    Without `run`, rows with a null in one of the `keys` are left out.
    """

    part: Part
    source: pa.Schema
    lists: tuple[str, ...]
    run: str | None
    keys: tuple[str, ...]

    def read(self, columns: Sequence[str], schema: pa.Schema, rows: int) -> Iterator[pa.RecordBatch]:
        """Read columns of the rows with empty lists."""
        if self.run is not None:
            names = pa.array(self.lists)
            nulls = {field.name: pa.nulls(len(names), field.type) for field in schema}
            yield pa.RecordBatch.from_pydict({**nulls, self.run: names}, schema=schema)
        for batch in self.part.read(self.source.names, self.source, max(1, rows // ENTRIES_PER_ROW)):
            for ranker in self.lists:
                empty = pc.fill_null(pc.equal(pc.list_value_length(batch.column(ranker)), 0), False)
                for key in self.keys if self.run is None else ():
                    empty = pc.and_(empty, batch.column(key).is_valid())
                matches = batch.filter(empty)
                if matches.num_rows:
                    run = {} if self.run is None else {self.run: pa.repeat(pa.scalar(ranker), matches.num_rows)}
                    arrays = {column: run[column] if column in run else matches.column(column) for column in columns}
                    yield pa.RecordBatch.from_pydict(arrays, schema=schema)
