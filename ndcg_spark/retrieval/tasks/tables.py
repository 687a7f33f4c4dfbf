"""Rows of the two tables: which of them are bad, and the others as matrices in packed batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ndcg_spark.core.batches import value_at
from ndcg_spark.core.bits import words_of_bits, words_of_bytes
from ndcg_spark.core.distances import LARGEST_SQUARE, SMALLEST_SQUARE, scaled_to_one, square_sums
from ndcg_spark.core.ragged import BoolArray
from ndcg_spark.errors import InputRefusedError
from ndcg_spark.retrieval.tasks.task import ID, LABELS, SAME, VECTOR, RetrievalTask

Matrix = NDArray[Any]
_WIDTH, _DTYPE = b"width", b"dtype"
"""Metadata of a packed column: entries of a vector, or bits of a code, as the user counts them; type of its words."""


def packed_rows(batch: pa.RecordBatch, task: RetrievalTask, *, of_corpus: bool) -> pa.RecordBatch:
    """Check rows, and put vectors and labels into columns of fixed width.

    Canonical rows have `id`, `vector`, and as far as they are wanted `labels`, `same` and carried columns; packed
    ones have the same. Refused are the first bad row, and vectors or labels of two lengths.
    """
    where = (task.settings.item, "corpus") if of_corpus else (task.settings.query, "query table")
    rows = _Rows(batch, *where)
    for name in (ID, VECTOR, SAME, LABELS):
        if name in batch.schema.names:
            rows.refuse(np.asarray(batch.column(name).is_null().to_numpy(zero_copy_only=False)), f"null_{name}")
    columns: dict[str, pa.Array] = {name: batch.column(name) for name in batch.schema.names}
    fields = {name: pa.field(name, column.type) for name, column in columns.items()}
    matrix, width = _vectors(rows, task.item_kind if of_corpus else task.kind, task)
    columns[VECTOR], fields[VECTOR] = _packed(VECTOR, matrix, width)
    if task.label_kind == "array" and LABELS in columns:
        matrix, width = _label_bits(rows)
        columns[LABELS], fields[LABELS] = _packed(LABELS, matrix, width)
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=pa.schema(list(fields.values())))


def matrix_in(batch: pa.RecordBatch, name: str) -> Matrix:
    """Read a column that `packed_rows` wrote, as a matrix with a row for each row of the batch."""
    column, about = batch.column(name), batch.schema.field(name).metadata
    width = column.type.byte_width
    raw = np.frombuffer(column.buffers()[1], dtype=np.uint8, offset=column.offset * width, count=len(column) * width)
    return np.asarray(raw.view(np.dtype(about[_DTYPE].decode())).reshape(len(column), -1))


def width_of(batch: pa.RecordBatch, name: str) -> int:
    """Entries of each vector, or bits of each code, in a column that `packed_rows` wrote."""
    return int(batch.schema.field(name).metadata[_WIDTH])


def refuse_widths(name: str, one: int, other: int) -> None:
    """Raise where vectors (entries), codes (bits) or labels differ in length, within a table or between two."""
    if one != other:
        low, high = sorted((one, other))
        raise InputRefusedError(
            f"bad row: {name} of two lengths, {low} and {high}; in both tables all must have one length."
        )


class _Rows:
    """Rows, and how to name one that is bad."""

    def __init__(self, batch: pa.RecordBatch, column: str, table: str) -> None:
        self.batch, self._column, self._table = batch, column, table

    def refuse(self, bad: BoolArray, reason: str) -> None:
        """Raise with the name of the first flagged row, if one is flagged."""
        if bad.any():
            found = value_at(self.batch.column(ID), int(bad.argmax()))
            shown = "null" if found is None else found
            raise InputRefusedError(f"bad row: {reason} at {self._column}={shown} of the {self._table}.")

    def matrix(self, name: str) -> pa.Array:
        """Values of a column of lists, end to end, once all lists are known to have one length."""
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


def _vectors(rows: _Rows, kind: str, task: RetrievalTask) -> tuple[Matrix, int]:
    n = rows.batch.num_rows
    if kind == "bytes":
        return _codes_of_bytes(rows)
    values = rows.matrix(VECTOR)
    if kind in ("words", "signs"):
        whole = np.asarray(values.to_numpy(zero_copy_only=False)).reshape(n, -1)
        if kind == "words":
            if whole.shape[1] > 1 and np.isin(whole, (-1, 1)).all():
                raise InputRefusedError(
                    "codes of +1 and -1 must be array<tinyint>; array<bigint> holds packed bits, 64 in each number."
                )
            return np.ascontiguousarray(whole, dtype=np.int64).view(np.uint64), 64 * whole.shape[1]
        rows.refuse(np.asarray(((whole != 1) & (whole != -1)).any(axis=1)), "not_plus_or_minus_one")
        return words_of_bits(whole > 0), whole.shape[1]
    numbers = np.asarray(values.to_numpy(zero_copy_only=False)).reshape(n, -1)
    numbers = numbers.astype(np.float32 if kind == "floats" else np.float64, copy=False)
    rows.refuse(~np.isfinite(numbers).all(axis=1), "not_finite")
    if task.settings.metric == "cosine":
        if task.settings.zero_vector == "bad":
            rows.refuse(np.asarray(~numbers.any(axis=1)), "zero_vector")
        if kind == "doubles":
            numbers = scaled_to_one(numbers)
    else:
        with np.errstate(over="ignore"):
            squares = square_sums(numbers)
        too_small = (squares < SMALLEST_SQUARE) & numbers.any(axis=1)
        rows.refuse(np.asarray(too_small | ~(squares <= LARGEST_SQUARE)), "out_of_range")
    return np.ascontiguousarray(numbers), numbers.shape[1]


def _codes_of_bytes(rows: _Rows) -> tuple[Matrix, int]:
    column = rows.batch.column(VECTOR)
    n = len(column)
    lengths = pc.binary_length(column).to_numpy(zero_copy_only=False)
    if n:
        refuse_widths(VECTOR, 8 * int(lengths.min()), 8 * int(lengths.max()))
        rows.refuse(lengths == 0, "empty_vector")
    width = int(lengths[0]) if n else 0
    _, offsets, data = column.buffers()
    start = int(np.frombuffer(offsets, dtype=np.int32)[column.offset]) if n else 0
    raw = np.frombuffer(data or b"", dtype=np.uint8)[start : start + n * width]
    return words_of_bytes(raw.reshape(n, width)), 8 * width


def _label_bits(rows: _Rows) -> tuple[Matrix, int]:
    values = np.asarray(rows.matrix(LABELS).to_numpy(zero_copy_only=False))
    labels = values.reshape(rows.batch.num_rows, -1)
    rows.refuse(((labels != 0) & (labels != 1)).any(axis=1), "label_not_0_or_1")
    return words_of_bits(labels == 1), labels.shape[1]


def _packed(name: str, matrix: Matrix, width: int) -> tuple[pa.Array, pa.Field]:
    kind = pa.binary(max(1, matrix.shape[1]) * matrix.dtype.itemsize)
    data = pa.py_buffer(np.ascontiguousarray(matrix))
    column = pa.Array.from_buffers(kind, len(matrix), [None, data])
    return column, pa.field(name, kind, metadata={_WIDTH: str(width), _DTYPE: matrix.dtype.str})
