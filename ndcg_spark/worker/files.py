"""Parquet files, read where they are cut."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from ndcg_spark.errors import InputRefusedError

ROWS_AT_ONCE = 131_072
"""With fewer, calls cost more; with half as many again nothing is gained (20 million rows, 100 a query)."""
_WAY_OUT = "way=window leaves reading to Spark"


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePart:
    """The row groups of a file that start within some of its bytes.

    Parameters
    ----------
    path : str
        As workers see it.
    start, end : int
        Bytes; the end is not in it.
    """

    path: str
    start: int
    end: int


def parts_of(sizes: dict[str, int], n_wanted: int, smallest: int, largest: int) -> list[FilePart]:
    """Cut files into parts.

    Parameters
    ----------
    sizes : dict from path to bytes
    n_wanted : int
        About so many parts there are to be, if that makes them neither too small nor too large.
    smallest, largest : int
        Bytes of a part; the last of a file is what is left.

    Returns
    -------
    list of FilePart
        Small files are not put together.

    Examples
    --------
    >>> [(part.start, part.end) for part in parts_of({"a": 10, "b": 3}, 2, 1, 6)]
    [(0, 6), (6, 10), (0, 3)]
    """
    step = max(smallest, min(largest, -(-sum(sizes.values()) // n_wanted)))
    return [
        FilePart(path=path, start=start, end=min(start + step, size))
        for path, size in sizes.items()
        for start in range(0, size, step)
    ]


def read_part(part: FilePart, columns: pa.Schema, rows_at_once: int | None = None) -> Iterator[pa.RecordBatch]:
    """Read columns of a part of a Parquet file.

    Parameters
    ----------
    part : FilePart
    columns : pyarrow schema
    rows_at_once : int or None
        `ROWS_AT_ONCE` where it is None.

    Yields
    ------
    pyarrow record batch
        Of at most so many rows.

    Raises
    ------
    InputRefusedError
        When the file cannot be read, or has columns of other types.
    """
    try:
        with pq.ParquetFile(part.path) as file:
            wrong = misfit(part.path, file.schema_arrow, columns)
            if wrong is not None:
                raise InputRefusedError(f"{wrong}; {_WAY_OUT}.")
            names = [name for name in columns.names if name in file.schema_arrow.names]
            groups = [at for at, start in enumerate(starts_of_groups(file)) if part.start <= start < part.end]
            for batch in file.iter_batches(
                rows_at_once or ROWS_AT_ONCE, row_groups=groups, columns=names, use_threads=False
            ):
                yield batch if batch.schema.equals(columns) else _fitted(batch, columns)
    except (OSError, pa.ArrowException) as error:
        raise InputRefusedError(f"cannot read {part.path}: {str(error).splitlines()[0]}; {_WAY_OUT}.") from error


def misfit(path: str, found: pa.Schema, wanted: pa.Schema) -> str | None:
    """Say which column of a file is not of the type that it has in the table.

    Parameters
    ----------
    path : str
    found, wanted : pyarrow schema

    Returns
    -------
    str or None
        A column may be missing, and is null then; a number may be narrower.
    """
    for one in wanted:
        named = [field for field in found if field.name.lower() == one.name.lower()]  # as Spark finds them
        kinds = [field.type for field in named]
        if any(field.name != one.name for field in named):
            return f"column {one.name!r} of {path} is written {named[0].name!r}"
        if len(kinds) > 1 or not all(_fits(kind, one.type) for kind in kinds):
            return f"column {one.name!r} of {path} is {' and '.join(map(str, kinds))}, not {one.type}"
    return None


def _fits(kind: pa.DataType, wanted: pa.DataType) -> bool:
    if kind == wanted or (wanted == pa.string() and kind == pa.large_string()):
        return True
    alike = (pa.types.is_signed_integer, pa.types.is_floating)
    return any(is_one(kind) and is_one(wanted) for is_one in alike) and kind.bit_width < wanted.bit_width


def _fitted(batch: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    found = [
        batch.column(one.name).cast(one.type) if one.name in batch.schema.names else pa.nulls(len(batch), one.type)
        for one in columns
    ]
    return pa.RecordBatch.from_arrays(found, schema=columns)


def starts_of_groups(file: pq.ParquetFile) -> list[int]:
    """Byte at which each row group starts.

    Parameters
    ----------
    file : pyarrow ParquetFile

    Returns
    -------
    list of int
    """
    starts = []
    for group in range(file.num_row_groups):
        first = file.metadata.row_group(group).column(0)
        dictionary = first.dictionary_page_offset
        starts.append(first.data_page_offset if dictionary is None else min(dictionary, first.data_page_offset))
    return starts
