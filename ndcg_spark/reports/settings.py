"""Settings of a report, and limits to how much of a table it shows."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import date
from pathlib import Path
from typing import Annotated, Any

from ndcg_spark.core.flag import Flag, check_values
from ndcg_spark.errors import InvalidParameterError, option

QUERY_TEXT = "query_text"
"""Default column of the text in a table of query texts."""


def require_texts(column: str | None, *, has_texts: bool) -> None:
    """Raise for a column of query texts without a table of query texts."""
    if column is not None and not has_texts:
        raise InvalidParameterError(
            f"{option('query_text_col')} has no effect without {option('query_texts')}; remove it."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportLimits:
    """Limits of a report. The page states what it leaves out.

    Parameters
    ----------
    runs : int
        Runs; those with the highest value come first.
    queries : int
        Queries to list of each run: those with the lowest values, and those that lost the most.

        Also the number of changed queries to list, of those that lost and of those that gained.
    segments : int
        Segments to list, those with the most queries.
    nights : int
        Nights of the trend, the newest.
    comparisons : int
        Rows of the comparison, overall ones first, then those with the most queries.
    items : int
        Items of each list of a query that changed.
    """

    runs: Annotated[int, Flag(hidden=True)] = 8
    queries: Annotated[int, Flag(group="Content", metavar="N")] = 10
    segments: Annotated[int, Flag(name="segments segments", metavar="N")] = 500
    nights: Annotated[int, Flag(metavar="N")] = 400
    comparisons: Annotated[int, Flag(hidden=True)] = 300
    items: Annotated[int, Flag(hidden=True)] = 20

    def __post_init__(self) -> None:
        check_values(self)
        for limit in fields(self):
            maximum = 8 if limit.name == "runs" else 2_000  # colours end at eight
            if not 1 <= getattr(self, limit.name) <= maximum:
                raise InvalidParameterError(
                    f"{limit.name} must be between 1 and {maximum:,}; got {getattr(self, limit.name)}."
                )


def _build_json_reader(name: str, command: str) -> Callable[[str], Mapping[str, Any]]:
    """Build a reader of JSON files that a command wrote; the JSON is the last line of the file."""

    def read(path: str) -> Mapping[str, Any]:
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            raise InvalidParameterError(f"{option(name)} {path!r} cannot be read: {reason}.") from error
        lines = text.strip().splitlines()
        try:
            content = json.loads(lines[-1] if lines else "")
        except ValueError:
            content = None
        if not isinstance(content, dict):
            raise InvalidParameterError(f"{option(name)} {path!r} is not a JSON file of {command}.")
        return content

    return read


def _read_changed_queries(path: str) -> tuple[Mapping[str, Any], ...]:
    """Read the queries from the JSON of `diagnose runs`."""
    queries = _build_json_reader("diagnosis", "diagnose runs")(path).get("queries")
    if not isinstance(queries, list) or not all(isinstance(query, dict) for query in queries):
        raise InvalidParameterError(f"{option('diagnosis')} {path!r} is not a JSON file of diagnose runs.")
    return tuple(queries)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportJobSettings:
    """Settings of the `report` job.

    Parameters
    ----------
    summary
        JSON that mean-ndcg wrote: adds the rows that were rejected.
    diagnosis
        JSON that diagnose runs wrote of `baseline` and a run: adds the queries that lost and gained most, with both
        lists.
    query_text_col
        Column of the table of query texts with the text.
    run_date
        Night that the report is about.
    dataset
        Data set that the report is about.
    runs
        Run to show; may be repeated.
    metric
        Metric that the headline shows.
    baseline
        Show the queries that lose the most against this run.
    production
        Run whose bad news comes first in the headline.
    title
        Title at the top of the page.
    """

    summary: Annotated[
        Mapping[str, Any] | None, Flag(group="Input", metavar="FILE", read=_build_json_reader("summary", "mean-ndcg"))
    ] = None
    diagnosis: Annotated[tuple[Mapping[str, Any], ...] | None, Flag(metavar="FILE", read=_read_changed_queries)] = (
        None
    )
    query_text_col: Annotated[str | None, Flag(metavar="COLUMN", shown=QUERY_TEXT)] = None
    run_date: Annotated[date | None, Flag(group="Content", shown="the newest")] = None
    dataset: Annotated[str | None, Flag(metavar="NAME", shown="the only one")] = None
    runs: Annotated[
        tuple[str, ...], Flag(name="run run", metavar="NAME", repeated=True, shown="those with the highest values")
    ] = ()
    metric: Annotated[str | None, Flag(metavar="ndcg@10", shown="NDCG at 10, or at the largest cutoff")] = None
    baseline: Annotated[str | None, Flag(metavar="RUN", shown="since the night before")] = None
    production: Annotated[
        str | None, Flag(metavar="RUN", shown="the run with the worst news, else the one with the highest value")
    ] = None
    limits: ReportLimits = field(default_factory=ReportLimits)
    title: Annotated[str | None, Flag(metavar="TEXT")] = None
