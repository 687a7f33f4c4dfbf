"""Which queries lie in one part of the files alone, by the statistics that Parquet files keep."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pyarrow.parquet as pq

from ndcg_spark.plan import EvaluationPlan
from ndcg_spark.worker.files import FilePart, starts_of_groups

MOST_FILES = 1_000
"""Whose statistics are read before anything else is done, some milliseconds each."""
Range = tuple[Any, Any]
"""Two values of a column, both whole numbers or both strings; None is no bound."""


def adds_up_whole_queries(plan: EvaluationPlan) -> bool:
    """Whether a query is one value of one column, so that statistics tell where it lies.

    Parameters
    ----------
    plan : EvaluationPlan

    Returns
    -------
    bool
    """
    return len(plan.columns.query) == 1 and plan.columns.run is None


def whole_between(parts: Sequence[FilePart], column: str) -> tuple[Range, ...] | None:
    """Say for each part between which values of a column its rows lie in no other part. Reads footers of files.

    Parameters
    ----------
    parts : sequence of FilePart
    column : str
        Of whole numbers or strings.

    Returns
    -------
    tuple of (low, high) or None
        Both ends left out; None is no bound. None where the parts are not in the order of the column, or their files
        do not say so.
    """
    paths = list(dict.fromkeys(part.path for part in parts))
    if len(paths) > MOST_FILES:
        return None
    try:
        with ThreadPoolExecutor(8) as pool:
            groups = dict(zip(paths, pool.map(lambda path: _ranges_of_groups(path, column), paths), strict=True))
    except (OSError, ValueError):
        return None  # said where rows are read
    ranges: dict[int, Range] = {}
    for number, part in enumerate(parts):
        inside = [found for start, found in groups[part.path] if part.start <= start < part.end]
        if None in inside:
            return None
        if inside:
            ranges[number] = (min(one[0] for one in inside if one), max(one[1] for one in inside if one))
    kinds = {type(end) for found in ranges.values() for end in found}
    return _between_others(ranges, len(parts)) if len(kinds) <= 1 else None


def _ranges_of_groups(path: str, column: str) -> list[tuple[int, Range | None]]:
    """Where each row group starts, and the lowest and highest value that it has; None where that is not known."""
    with pq.ParquetFile(path) as file:
        at = [file.schema.column(n).path for n in range(len(file.schema))].index(column)
        statistics = [file.metadata.row_group(n).column(at).statistics for n in range(file.num_row_groups)]
        known = [(one.min, one.max) if one is not None and one.has_min_max else None for one in statistics]
        return list(zip(starts_of_groups(file), known, strict=True))


def _between_others(ranges: dict[int, Range], n_parts: int) -> tuple[Range, ...] | None:
    bounds: list[Range] = [(None, None)] * n_parts
    for before, after in pairwise(sorted(ranges, key=ranges.__getitem__)):
        highest, lowest = ranges[before][1], ranges[after][0]
        if highest > lowest:
            return None
        bounds[before] = (bounds[before][0], lowest)
        bounds[after] = (highest, bounds[after][1])
    return tuple(bounds)
