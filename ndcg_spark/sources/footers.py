"""Footers of Parquet files: whether workers can read the columns as the table has them, and how rows are sorted."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa

from ndcg_spark.core.batches import BatchFunction, batch_function
from ndcg_spark.errors import not_in_file
from ndcg_spark.sources.parquet import FileIdentity, FilePart, OpenedFile, misfit, opened, starts_of_groups
from ndcg_spark.sources.stores import reason_of

Range = tuple[Any, Any]
AT_ONCE = 8
"""Footers that a process reads side by side: most of the time is waiting."""
FOUND_SCHEMA = pa.schema([("number", pa.int64()), ("found", pa.string())])


@dataclass(frozen=True, slots=True)
class Footer:
    """A file, and why workers cannot read it, or else its row groups."""

    identity: FileIdentity
    obstacle: str | None
    lacks: str | None
    """A column that is not in the file, in any spelling."""
    groups: list[tuple[int, Range | None]]
    """Where each row group starts, and the range of the query column in it (None: unknown)."""


def read_footers(paths: Sequence[str], columns: Mapping[str, str], schema: pa.Schema) -> list[Footer] | str:
    """Read footers of files of this machine; or say in a clause why workers cannot read one of the files."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return _usable(list(pool.map(lambda path: _read(path, columns, schema), paths)))


def files_without(paths: Sequence[str], columns: Sequence[str], *, exact: bool) -> dict[str, str]:
    """Find columns that a file lacks, and the first such file; `exact`: the case of letters matters, too.

    Files that cannot be read are left to Spark.
    """

    def spelled(name: str) -> str:
        return name if exact else name.lower()

    def names(path: str) -> set[str] | None:
        try:
            with opened(path) as file:
                return set(map(spelled, file.metadata.schema.to_arrow_schema().names))
        except (OSError, pa.ArrowException):
            return None

    with ThreadPoolExecutor(AT_ONCE) as pool:
        held = [(path, its) for path, its in zip(paths, pool.map(names, paths), strict=True) if its is not None]
    without = ((name, [path for path, its in held if spelled(name) not in its]) for name in columns)
    return {name: paths[0] for name, paths in without if paths}


def make_footer_reader(paths: Sequence[str], columns: Mapping[str, str], schema: pa.Schema) -> BatchFunction:
    """Build the function that reads the footers of the files whose numbers are given, as JSON."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            numbers = batch.column(0).to_pylist()
            with ThreadPoolExecutor(AT_ONCE) as pool:
                found = list(pool.map(lambda number: _read(paths[number], columns, schema), numbers))
            texts = [json.dumps(one if isinstance(one, str) else asdict(one)) for one in found]
            yield pa.RecordBatch.from_arrays([pa.array(numbers, pa.int64()), pa.array(texts)], schema=FOUND_SCHEMA)

    return batch_function(read)


def parse_footers(texts: Sequence[str]) -> list[Footer] | str:
    """Read what `make_footer_reader` found; or say in a clause why workers cannot read one of the files."""
    return _usable([_parsed(json.loads(text)) for text in texts])


def _parsed(found: str | dict[str, Any]) -> Footer | str:
    if isinstance(found, str):
        return found
    groups = [(start, tuple(ends) if ends else None) for start, ends in found["groups"]]
    return Footer(FileIdentity(**found["identity"]), found["obstacle"], found["lacks"], groups)


def _usable(found: Sequence[Footer | str]) -> list[Footer] | str:
    lacking = [one for one in found if isinstance(one, Footer) and one.lacks is not None]
    if lacking and len(lacking) < len(found):
        raise not_in_file(f"column {lacking[0].lacks!r} of the input", lacking[0].identity.path)
    for one in found:
        if isinstance(one, str) or one.obstacle:
            return one if isinstance(one, str) else str(one.obstacle)
    return [one for one in found if isinstance(one, Footer)]


def _read(path: str, columns: Mapping[str, str], schema: pa.Schema) -> Footer | str:
    try:
        with opened(path) as found:
            return _footer(found, columns, schema)
    except (OSError, pa.ArrowException) as error:
        return f"a file cannot be read ({reason_of(error, path)})"


def _footer(file: OpenedFile, columns: Mapping[str, str], schema: pa.Schema) -> Footer:
    path, metadata = file.identity.path, file.metadata
    names = {name.lower() for name in metadata.schema.to_arrow_schema().names}
    lacks = next((column for column in columns.values() if column.lower() not in names), None)
    obstacle = misfit(path, metadata.schema.to_arrow_schema(), columns, schema)
    if b"org.apache.spark.legacyDateTime" in (metadata.metadata or {}) and pa.date32() in schema.types:
        obstacle = f"{path} has dates of an old calendar"
    groups: list[tuple[int, Range | None]] = []
    if obstacle is None:
        at = [metadata.schema.column(n).path for n in range(len(metadata.schema))].index(columns["query_0"])
        for number, start in enumerate(starts_of_groups(metadata)):
            statistics = metadata.row_group(number).column(at).statistics
            known = statistics is not None and statistics.has_min_max and _is_key(statistics.min)
            groups.append((start, (statistics.min, statistics.max) if known else None))
    return Footer(file.identity, obstacle, lacks, groups)


def _is_key(value: Any) -> bool:
    return isinstance(value, int | str)


def bounds_between(footers: Sequence[Footer], parts: Sequence[FilePart]) -> tuple[Range, ...] | None:
    """For each part, between which values of the query column its rows lie in no other part.

    Returns None where parts are not in the order of the column, or their files do not say so.
    """
    groups = {one.identity.path: one.groups for one in footers}
    ranges: dict[int, Range] = {}
    for number, part in enumerate(parts):
        inside = [found for start, found in groups[part.file.path] if part.start <= start < part.end]
        if None in inside:
            return None
        if inside:
            ranges[number] = (min(one[0] for one in inside if one), max(one[1] for one in inside if one))
    if len({type(end) for found in ranges.values() for end in found}) > 1:
        return None
    bounds: list[Range] = [(None, None)] * len(parts)
    for before, after in pairwise(sorted(ranges, key=ranges.__getitem__)):
        highest, lowest = ranges[before][1], ranges[after][0]
        if highest > lowest:
            return None
        bounds[before] = (bounds[before][0], lowest)
        bounds[after] = (highest, bounds[after][1])
    return tuple(bounds)
