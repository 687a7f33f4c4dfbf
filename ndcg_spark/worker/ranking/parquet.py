"""Parquet files that workers read themselves: what files are, how they are divided, and whether they changed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from ndcg_spark.errors import InputRefusedError

WAY_OUT = "source=spark leaves reading to Spark"
MAGIC = b"PAR1"


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """A file when the evaluation was planned: bytes, nanoseconds since 1970, and a digest of the Parquet footer."""

    path: str
    size: int
    modified_ns: int
    footer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePart:
    """The row groups of a file that start at one of the bytes from `start` up to, not including, `end`."""

    file: FileIdentity
    start: int
    end: int


def identify(path: str) -> FileIdentity:
    """Read what tells a file from what it may become; an OSError if it is no Parquet file."""
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        file.seek(max(0, status.st_size - 8))
        end = file.read(8)
        if len(end) < 8 or end[4:] != MAGIC:
            raise OSError(f"{path} is not a Parquet file")
        file.seek(max(0, status.st_size - 8 - int.from_bytes(end[:4], "little")))
        footer = file.read()
    return FileIdentity(path, status.st_size, status.st_mtime_ns, hashlib.sha256(footer).hexdigest()[:16])


def parts_of(files: list[FileIdentity], n_wanted: int, smallest: int, largest: int) -> tuple[FilePart, ...]:
    """Divide files into about `n_wanted` parts, of which each is a task.

    Parts have `smallest` to `largest` bytes; the last of a file has what is left, and files are not put together.
    """
    step = max(smallest, min(largest, -(-sum(file.size for file in files) // n_wanted)))
    return tuple(
        FilePart(file=file, start=start, end=min(start + step, file.size))
        for file in files
        for start in range(0, file.size, step)
    )


def read_part(part: FilePart, columns: Mapping[str, str], schema: pa.Schema, rows: int) -> Iterator[pa.RecordBatch]:
    """Read columns of a part of a file. Refuses a file that is not what it was when the evaluation was planned."""
    path = part.file.path
    try:
        if identify(path) != part.file:
            raise InputRefusedError(f"{path} changed after the evaluation was planned; evaluate again.")
        with pq.ParquetFile(path) as file:
            wanted = list(dict.fromkeys(columns.values()))
            groups = [
                at for at, start in enumerate(starts_of_groups(file.metadata)) if part.start <= start < part.end
            ]
            for batch in file.iter_batches(rows, row_groups=groups, columns=wanted, use_threads=False):
                yield _renamed(batch, columns, schema)
    except (OSError, pa.ArrowException) as error:
        raise InputRefusedError(f"cannot read {path}: {str(error).splitlines()[0]}; {WAY_OUT}.") from error


def _renamed(batch: pa.RecordBatch, columns: Mapping[str, str], schema: pa.Schema) -> pa.RecordBatch:
    typed = [batch.column(columns[one.name]).cast(one.type) for one in schema]
    return pa.RecordBatch.from_arrays(typed, schema=schema)


def starts_of_groups(metadata: pq.FileMetaData) -> list[int]:
    """Byte at which each row group starts."""
    starts = []
    for group in range(metadata.num_row_groups):
        first = metadata.row_group(group).column(0)
        dictionary = first.dictionary_page_offset
        starts.append(first.data_page_offset if dictionary is None else min(dictionary, first.data_page_offset))
    return starts
