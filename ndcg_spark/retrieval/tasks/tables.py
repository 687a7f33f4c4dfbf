"""The task of a retrieval, and the rows of queries and corpus: check rows, and pack vectors, codes and labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ndcg_spark.conventions import Convention
from ndcg_spark.core.batches import get_value
from ndcg_spark.core.distances import (
    MAX_SQUARE_SUM,
    MIN_SQUARE_SUM,
    pack_bits,
    pack_bytes,
    scale_to_one,
    sum_squares,
)
from ndcg_spark.core.labels import key
from ndcg_spark.core.ragged import BoolArray
from ndcg_spark.errors import InputRefusedError
from ndcg_spark.retrieval.settings import RetrievalSettings

ID, VECTOR, LABELS, SAME = "id", "vector", "labels", "same"
"""Canonical columns of both tables."""
N_QUERIES, N_ITEMS = "n_queries", "n_items"
"""Columns with the number of rows of the two tables."""
SUB_BLOCKS = 16
"""Parts of a block of queries that are merged separately."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalTask:
    """The task that is shipped to the workers of a retrieval: small, and the same for every worker.

    `k` items are retrieved for each query; None: all. `kind` (of the queries) and `item_kind` (of the corpus) are
    kinds of vector columns: `doubles`, `floats`, `words` (64 packed bits each), `bytes` (packed bits), or `signs` (+1
    and -1); only `doubles` and `floats` may be combined. `label_kind` is `array` or `value`; None without relevance.
    `evaluation` is the convention of an evaluation; None returns a table of items. `carried` are columns of the query
    table to keep. `item_type` is the type of the item column of the result. `levels` are thresholds of relevance
    whose items metrics count in the corpus. `sent_rows` and `sent_bytes` limit the rows that are packed into a
    payload.
    """

    settings: RetrievalSettings
    k: int | None
    kind: str
    item_kind: str
    label_kind: str | None
    evaluation: Convention | None = None
    carried: tuple[str, ...] = ()
    item_type: pa.DataType | None = None
    levels: tuple[float, ...] = ()
    sent_rows: int = 2**17
    sent_bytes: int = 2**23

    @property
    def groups_ties(self) -> bool:
        """True if tied items are kept as counts instead of items."""
        return self.evaluation is not None and self.evaluation.groups_ties

    @property
    def items_fall(self) -> bool:
        """True if the larger of tied items is ranked first."""
        return self.evaluation is not None and self.evaluation.ties == "item_desc"

    def n_blocks(self, n_queries: int, n_items: int) -> int:
        """Return the number of blocks of queries for which the best items of a block fit into memory."""
        n_kept = max(1, n_items if self.k is None else min(self.k, n_items))
        if self.k is None and self.groups_ties and self.settings.metric == "hamming":
            n_kept = min(n_kept, 2048)  # a count for each distance and relevance
        n_per_block = min(max(1, self.settings.held_pairs // n_kept), 2**14)
        return min(max(1, -(-n_queries // n_per_block)), 2**24 // max(SUB_BLOCKS, self.settings.parts))


Matrix = NDArray[Any]
_WIDTH, _DTYPE = b"width", b"dtype"
"""Keys in the metadata of a packed column: entries of a vector or bits of a code, without padding; type of words."""


def pack_rows(batch: pa.RecordBatch, task: RetrievalTask, *, of_corpus: bool) -> pa.RecordBatch:
    """Check canonical rows, and pack vectors and labels into columns of fixed width.

    Raise at the first bad row, and if vectors or labels differ in length.
    """
    id_column = (task.settings.item, "corpus") if of_corpus else (task.settings.query, "query table")
    rows = _CheckedRows(batch, *id_column)
    for name in (ID, VECTOR, SAME, LABELS):
        if name in batch.schema.names:
            rows.refuse(np.asarray(batch.column(name).is_null().to_numpy(zero_copy_only=False)), f"null_{name}")
    columns: dict[str, pa.Array] = {name: batch.column(name) for name in batch.schema.names}
    fields = {name: pa.field(name, column.type) for name, column in columns.items()}
    matrix, width = _read_vectors(rows, task.item_kind if of_corpus else task.kind, task)
    columns[VECTOR], fields[VECTOR] = _pack_column(VECTOR, matrix, width)
    if task.label_kind == "array" and LABELS in columns:
        labels = np.asarray(rows.read_matrix(LABELS).to_numpy(zero_copy_only=False)).reshape(batch.num_rows, -1)
        rows.refuse(((labels != 0) & (labels != 1)).any(axis=1), "label_not_0_or_1")
        matrix, width = pack_bits(labels == 1), labels.shape[1]
        columns[LABELS], fields[LABELS] = _pack_column(LABELS, matrix, width)
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=pa.schema(list(fields.values())))


def read_matrix(batch: pa.RecordBatch, name: str) -> Matrix:
    """Read a column that `pack_rows` wrote, as a matrix with a row for each row of the batch."""
    column, metadata = batch.column(name), batch.schema.field(name).metadata
    width = column.type.byte_width
    raw = np.frombuffer(column.buffers()[1], dtype=np.uint8, offset=column.offset * width, count=len(column) * width)
    return np.asarray(raw.view(np.dtype(metadata[_DTYPE].decode())).reshape(len(column), -1))


def read_width(batch: pa.RecordBatch, name: str) -> int:
    """Return the entries of each vector, or bits of each code, in a column that `pack_rows` wrote."""
    return int(batch.schema.field(name).metadata[_WIDTH])


def refuse_widths(name: str, width: int, other_width: int) -> None:
    """Raise if vectors (entries), codes (bits) or labels differ in length, within a table or between two."""
    if width != other_width:
        low, high = sorted((width, other_width))
        raise InputRefusedError(
            f"bad row: {name} of two lengths, {low} and {high}; all must have the same length in both tables."
        )


def require_one_width(name: str, *batches: pa.RecordBatch) -> None:
    """Raise if the widths of a packed column differ between batches, see `read_width`."""
    widths = [read_width(batch, name) for batch in batches]
    refuse_widths(name, min(widths), max(widths))


class _CheckedRows:
    """Rows that are checked. An error names the bad row by its identifier."""

    def __init__(self, batch: pa.RecordBatch, column: str, table: str) -> None:
        self.batch, self._column, self._table = batch, column, table

    def refuse(self, bad: BoolArray, reason: str) -> None:
        """Raise an error that names the first flagged row, if any is flagged."""
        if bad.any():
            row = key({self._column: get_value(self.batch.column(ID), int(bad.argmax()))})
            raise InputRefusedError(f"bad row: {reason} at {row} of the {self._table}.")

    def read_matrix(self, name: str) -> pa.Array:
        """Return the values of the lists of a column, end to end. Raise if lists differ in length."""
        column = self.batch.column(name)
        if not len(column):
            return column.flatten()
        lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False)
        refuse_widths(name, int(lengths.min()), int(lengths.max()))
        self.refuse(lengths == 0, f"empty_{name}")
        values = column.flatten()
        if values.null_count:
            missing = values.is_null().to_numpy(zero_copy_only=False).reshape(len(column), -1)
            self.refuse(missing.any(axis=1), f"null_in_{name}")
        return values


def _read_vectors(rows: _CheckedRows, kind: str, task: RetrievalTask) -> tuple[Matrix, int]:
    n_rows = rows.batch.num_rows
    if kind == "bytes":
        return _read_byte_codes(rows)
    values = rows.read_matrix(VECTOR)
    if kind in ("words", "signs"):
        integers = np.asarray(values.to_numpy(zero_copy_only=False)).reshape(n_rows, -1)
        if kind == "words":
            if integers.shape[1] > 1 and np.isin(integers, (-1, 1)).all():
                raise InputRefusedError(
                    "codes of +1 and -1 must be array<tinyint>; array<bigint> holds packed bits, 64 in each number."
                )
            return np.ascontiguousarray(integers, dtype=np.int64).view(np.uint64), 64 * integers.shape[1]
        rows.refuse(np.asarray(((integers != 1) & (integers != -1)).any(axis=1)), "not_plus_or_minus_one")
        return pack_bits(integers > 0), integers.shape[1]
    numbers = np.asarray(values.to_numpy(zero_copy_only=False)).reshape(n_rows, -1)
    numbers = numbers.astype(np.float32 if kind == "floats" else np.float64, copy=False)
    rows.refuse(~np.isfinite(numbers).all(axis=1), "not_finite")
    if task.settings.metric == "cosine":
        if task.settings.zero_vector == "bad":
            rows.refuse(np.asarray(~numbers.any(axis=1)), "zero_vector")
        if kind == "doubles":
            numbers = scale_to_one(numbers)
    else:
        with np.errstate(over="ignore"):
            squares = sum_squares(numbers)
        too_small = (squares < MIN_SQUARE_SUM) & numbers.any(axis=1)
        rows.refuse(np.asarray(too_small | ~(squares <= MAX_SQUARE_SUM)), "out_of_range")
    return np.ascontiguousarray(numbers), numbers.shape[1]


def _read_byte_codes(rows: _CheckedRows) -> tuple[Matrix, int]:
    column = rows.batch.column(VECTOR)
    n_rows = len(column)
    lengths = pc.binary_length(column).to_numpy(zero_copy_only=False)
    if n_rows:
        refuse_widths(VECTOR, 8 * int(lengths.min()), 8 * int(lengths.max()))
        rows.refuse(lengths == 0, "empty_vector")
    width = int(lengths[0]) if n_rows else 0
    _, offsets, buffer = column.buffers()
    start = int(np.frombuffer(offsets, dtype=np.int32)[column.offset]) if n_rows else 0
    raw = np.frombuffer(buffer or b"", dtype=np.uint8)[start : start + n_rows * width]
    return pack_bytes(raw.reshape(n_rows, width)), 8 * width


def _pack_column(name: str, matrix: Matrix, width: int) -> tuple[pa.Array, pa.Field]:
    kind = pa.binary(max(1, matrix.shape[1]) * matrix.dtype.itemsize)
    data = pa.py_buffer(np.ascontiguousarray(matrix))
    column = pa.Array.from_buffers(kind, len(matrix), [None, data])
    return column, pa.field(name, kind, metadata={_WIDTH: str(width), _DTYPE: matrix.dtype.str})
