"""What a report reads from its tables, by Spark or without. The number of rows read does not grow with the tables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from ndcg_spark.comparison.tasks.finishing import PAIR_TOP_ITEMS
from ndcg_spark.core.labels import metric_at
from ndcg_spark.core.schemas import TableInfo
from ndcg_spark.errors import InputRefusedError, MissingColumnError
from ndcg_spark.evaluation.rules import MIXED, RULES, format_difference, read_rules
from ndcg_spark.history.tasks import judging as night_flags
from ndcg_spark.jobs.outputs import SOURCE_TIME
from ndcg_spark.metrics import direction_of, parse_metric
from ndcg_spark.reports.contents import ComparisonRow, Distribution, Mean, RunResult, list_columns
from ndcg_spark.reports.settings import ReportLimits
from ndcg_spark.reports.wording import format_day

MAX_DATASETS = 100
MAX_MEANS = 20_000
"""Maximum of runs times metrics times cutoffs of a night."""
MAX_RECOVERED = 10
BY_DISTANCE, BY_EARLIER_FLAG = (night_flags.LOW, night_flags.HIGH), (night_flags.RECOVERED, night_flags.ONGOING)
"""Statuses of flags, of which those of earlier nights are shown, too, and of what is related to earlier flags."""
MAX_FLAGS = 10_000
"""Maximum of flags that Spark sends for a report: those of all queries, and the newest of segments."""
VALUE, BEFORE = "__value", "__before"
"""Columns of queries beside those of the table; columns of users may have any other name."""
BINS = 20
"""Number of bins of a distribution."""
SEPARATOR = " · "
"""Separator of the key columns in the name of a query."""
SECONDS = "seconds"
"""Type of a timestamp that is read as whole seconds since 1970."""
_TYPES = {
    "str": "string",
    "str | None": "string",
    "int": "bigint",
    "int | None": "bigint",
    "float | None": "double",
}
SEGMENT_COLUMNS = ("value", "std_error", "ci_low", "ci_high", "n_queries", "weight_sum", "n_missing",
                   "n_unjudged_items", "n_top_items")  # fmt: skip
"""Columns of a segment that are also read of the night before."""

Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Columns that a report reads of a table, with their Spark types; tables may lack those that are not `needed`."""

    table: str
    needed: tuple[str, ...]
    types: Mapping[str, str]

    def require(self, info: TableInfo) -> None:
        """Raise for a needed column that a table lacks."""
        for name in self.needed:
            info.require(name, f"a {self.table} has it")


def _list_types(content: type) -> dict[str, str]:
    return {name: _TYPES[kind] for name, kind in list_columns(content).items()}


METRICS = Columns(
    table="metric table",
    needed=("run", "segment_by", "segment", "metric", "k", "value"),
    types={
        **_list_types(Mean),
        **dict.fromkeys(("dataset", "convention", "config_hash", "input", "package_version", "note"), "string"),
        **{"k": "int", "run_date": "date", "computed_at": "timestamp", "flagged": "boolean"},
    },
)
COMPARISONS = Columns(
    table="comparison table",
    needed=("run", "baseline", "segment_by", "segment", "metric", "k", "difference"),
    types={
        **_list_types(ComparisonRow),
        **dict.fromkeys((RULES, "dataset", "period"), "string"),
        **dict.fromkeys(("run_date", "period_start", "period_end"), "date"),
        **{"k": "int", SOURCE_TIME: SECONDS, PAIR_TOP_ITEMS: "array<bigint>"},
    },
)
FLAGS = Columns(
    table="table of flags",
    needed=("night", "metric", "k", "status"),
    types={
        **dict.fromkeys(("metric", "status", "dataset", "run", "segment_by", "segment", "weekday"), "string"),
        **dict.fromkeys(("z", "spread", "std_error", "value", "median"), "double"),
        **dict.fromkeys(("night", "reference_night", "change_night"), "date"),
        **{"k": "int", SOURCE_TIME: SECONDS},
    },
)


@dataclass(frozen=True, slots=True)
class Scope:
    """The data set, night, runs and metric of a report."""

    dataset: str
    run_date: date | None
    runs: tuple[str, ...]
    metric: str
    k: int | None
    limits: ReportLimits = field(default_factory=ReportLimits)
    earlier: Mapping[str, date] = field(default_factory=dict)
    """The night that the means of each run are compared with."""
    before: date | None = None
    """The latest of these nights."""
    baseline: str | None = None
    """The run that losses of queries are against; None: the night before."""
    computed: int | None = None
    """When the means of the night were computed, in seconds since 1970."""

    def rank_run(self, row: Mapping[str, Any]) -> int:
        """Return the place of the run of a row among the runs of the report."""
        return self.runs.index(row["run"])

    def find_older(self, table: str, source: int | None, command: str) -> list[str]:
        """Warn of a table that was computed from older means than those of the night."""
        if source is None or self.computed is None or source >= self.computed:
            return []
        return [f"{table} of {format_day(self.run_date)} is older than its means: run {command} again."]

    def __str__(self) -> str:
        night = "" if self.run_date is None else f" on {self.run_date.isoformat()}"
        runs = ", ".join(map(repr, self.runs))
        return f"{metric_at(self.metric, self.k)}, data set {self.dataset!r}, run {runs}{night}"


class MetricTable(ABC):
    """A metric table; `dataset` is empty in rows of tables that lack it."""

    @abstractmethod
    def list_datasets(self) -> Rows:
        """List the name, newest night and number of nights of each data set."""

    def read_means(self, dataset: str, night: date | None, runs: Sequence[str]) -> Rows:
        """Read the means over all queries of a night, of `runs` or of all runs."""
        rows = self._read_means(dataset, night, runs)
        if len(rows) > MAX_MEANS:
            raise InputRefusedError(
                f"the night has more than {MAX_MEANS:,} means over all queries; name the runs of the report."
            )
        return rows

    @abstractmethod
    def _read_means(self, dataset: str, night: date | None, runs: Sequence[str]) -> Rows:
        """Read at most `MAX_MEANS` + 1 rows; `computed` is their time in seconds since 1970."""

    @abstractmethod
    def find_last_nights(self, dataset: str, night: date, runs: Sequence[str]) -> dict[str, date]:
        """Find the last earlier night of each run that has one."""

    @abstractmethod
    def read_trend(self, scope: Scope) -> Rows:
        """Read the means of the metric over all queries, of the newest nights up to that of the report."""

    @abstractmethod
    def find_missing(self, scope: Scope, runs: Sequence[str]) -> tuple[Rows, int]:
        """Find runs (of `runs`, if given) and segments of the shown runs that are missing on the night.

        The number is that of all missing segments. Runs come first, then segments with the most queries.
        """

    @abstractmethod
    def read_segments(self, scope: Scope) -> tuple[Rows, int]:
        """Read the segments of the night with the most queries, and the number of all segments.

        Columns of the night before have the prefix `before_`.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagRows:
    """Rows of a table of flags: flags of runs, and of segments, of the metric of a report."""

    nights: Rows
    """Flags of runs, the newest first."""
    segments: Rows
    """Segments flagged on the night, the farthest from usual first."""
    recovered: Rows
    ongoing: Rows
    """Changes to the worse that last."""
    earlier: Rows
    """Number of flagged segments (`n`) and the farthest of them (`farthest`), by earlier night and run."""
    n_segments: int
    n_earlier: int
    n_judged: int
    last: date | None
    """The last night of the table, up to that of the report."""
    source: int | None


class FlagTable(ABC):
    """A table of flags; `segment_by` is empty in rows of all queries."""

    def read(self, scope: Scope) -> FlagRows:
        """Read the flags of a night and of earlier nights."""
        counts, rows = self._count(scope), self._read_notable(scope)
        limit, n_segments = scope.limits.nights * len(scope.runs), scope.limits.segments
        by_series = sorted(rows, key=lambda row: order_by(row, "run", "segment_by", "segment"))
        newest = sorted(by_series, key=lambda row: row["night"] or date.min, reverse=True)
        flagged = [row for row in newest if row["status"] in BY_DISTANCE]
        tonight = [row for row in by_series if row["night"] == scope.run_date]
        flagged_segments = [row for row in flagged if row["segment_by"] and row["night"] == scope.run_date]
        by_night: dict[tuple[date, str], Rows] = {}
        for row in flagged:
            if row["segment_by"] and row["run"] is not None and row["night"] != (scope.run_date or row["night"]):
                by_night.setdefault((row["night"], row["run"]), []).append(row)
        larger_is_better = direction_of(scope.metric)
        ongoing = [
            row
            for row in tonight
            if row["status"] == night_flags.ONGOING
            and (larger_is_better is None or row["z"] is None or (row["z"] < 0) == larger_is_better)
        ]
        return FlagRows(
            nights=[row for row in flagged if not row["segment_by"]][:limit],
            segments=sorted(flagged_segments, key=lambda row: descend(_measure_distance(row)))[:n_segments],
            recovered=[row for row in tonight if row["status"] == night_flags.RECOVERED][:MAX_RECOVERED],
            ongoing=sorted(ongoing, key=lambda row: (row["z"] is not None, descend(_measure_distance(row))))[
                :n_segments
            ],
            earlier=[
                {"night": night, "run": run, "n": len(flags), "farthest": max(flags, key=_rank_distance)}
                for (night, run), flags in list(by_night.items())[:limit]
            ],
            **counts,
        )

    @abstractmethod
    def _count(self, scope: Scope) -> dict[str, Any]:
        """Return `n_segments`, `n_earlier`, `n_judged`, `last` and `source` of `FlagRows`."""

    @abstractmethod
    def _read_notable(self, scope: Scope) -> Rows:
        """Read the rows of `BY_DISTANCE` up to the night of the report, and those of `BY_EARLIER_FLAG` on it."""


def order_by(row: Mapping[str, Any], *columns: str) -> tuple[Any, ...]:
    """Return a sort key by columns, null first."""
    return tuple((row[name] is not None, row[name] if row[name] is not None else "") for name in columns)


def descend(value: float | None) -> float:
    """Return a sort key for values of 0 and above: the largest first, null last."""
    return 1.0 if value is None else -value


def _measure_distance(row: Mapping[str, Any]) -> float | None:
    """Return how far a value is from usual, in units of its history."""
    return None if row["z"] is None else abs(row["z"])


def _rank_distance(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return (_measure_distance(row) or 0.0, *order_by(row, "segment_by", "segment"))


class ComparisonTable(ABC):
    """A comparison table, of nights or of periods."""

    @abstractmethod
    def read(self, scope: Scope) -> Rows:
        """Read rows of the night: overall ones, then segments with the most queries; one row beyond the limit."""

    @abstractmethod
    def find_last_night(self, scope: Scope) -> date | None:
        """Find the last night up to that of the report, of any run."""

    def check(self, rows: Rows) -> None:
        """Refuse evaluations whose judgments match no items; tables were checked when they were written."""
        return


class QueryTable(ABC):
    """A per-query table, its key columns, and the column of the metric. Methods read the table."""

    def __init__(self, info: TableInfo, scope: Scope) -> None:
        """Find the metric column, and the query columns: those between `run` and `k`."""
        names = info.names
        for name in ("run", "k"):
            info.require(name, "a per-query table has it")
        column = parse_metric(scope.metric)[0].column
        self.keys = tuple(names[names.index("run") + 1 : names.index("k")])
        if not self.keys:
            raise MissingColumnError(
                "the per-query table has no columns between 'run' and 'k' that name a query; Spark sorts the columns "
                f"of json. A query puts them there: SELECT run, query_id, k, {column}, ... FROM json.`...`."
            )
        info.require_number(column, f"metric {scope.metric}")
        self.scope, self.value, self.has_nights = scope, column, info.has("run_date")

    @abstractmethod
    def list_rules(self, night: date | None) -> dict[str, list[str]]:
        """List the rules of the queries of each run; empty if the table lacks them."""

    @abstractmethod
    def count_distributions(self) -> tuple[Distribution, ...]:
        """Count the queries of each run in `BINS`, and compute quartiles."""

    @abstractmethod
    def find_lowest(self) -> Rows:
        """Find the worst queries of each run by `VALUE`; ties are sorted by the number of relevant items.

        Queries without relevant items are left out if the table counts these: no ranking can do better.
        """

    @abstractmethod
    def find_losses(self, *, before: date | None, baseline: str | None) -> Rows:
        """Find the queries that got worse the most, since the night `before` or against a baseline.

        If neither direction is better, those that changed the most. Rows have `VALUE` and `BEFORE`.
        """


class TextTable(ABC):
    """A table with the text of each query: the key columns of a per-query table, and the column of the text."""

    def __init__(self, info: TableInfo, column: str) -> None:
        self.info, self.column = info, column

    def find_texts(self, keys: Sequence[str], queries: Sequence[str]) -> dict[str, str | None]:
        """Find the first text, in order, of each query: its keys, joined by `SEPARATOR`. Reads the table."""
        self.info.require(self.column, "column of the texts")
        if not queries:
            return {}
        for key in keys:
            self.info.require(key, "column that names a query")
        return self._find_texts(keys, sorted(set(queries)))

    @abstractmethod
    def _find_texts(self, keys: Sequence[str], queries: Sequence[str]) -> dict[str, str | None]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class NightTables:
    """The tables of a report. `queries` opens the per-query table for a scope."""

    metrics: MetricTable
    queries: Callable[[Scope], QueryTable] | None = None
    comparison: ComparisonTable | None = None
    flags: FlagTable | None = None
    texts: TextTable | None = None


def choose_range(low: float | None, high: float | None) -> tuple[float, float]:
    """Return the range of the bins of a distribution, from the smallest and the largest value."""
    low, high = (low or 0.0), (high or 0.0)
    return low, high if high > low else low + 1.0


def interpolate_quartiles(
    n_values: int, value_at: Callable[[int], float | None]
) -> tuple[float | None, float | None, float | None]:
    """Compute quartiles as NumPy does; `value_at` returns the value at a place of the sorted values, from 0 on."""

    def interpolate(quarter: int) -> float | None:
        at, rest = divmod(quarter * (n_values - 1), 4)
        low, high = (value_at(at), value_at(at + min(rest, 1))) if n_values else (None, None)
        return None if low is None or high is None else low + (high - low) * rest / 4

    return interpolate(1), interpolate(2), interpolate(3)


def require_rules(results: Iterable[RunResult], run: str, texts: Iterable[str | None], table: str) -> None:
    """Refuse a table with rows of a run that were computed by other rules than the means of that run."""
    means = [result.mean.rules for result in results if result.mean.run == run]
    known = [text for text in texts if MIXED not in read_rules(text).values()]  # MIXED: combined on purpose
    difference = format_difference([*means, *known])
    if difference:
        raise InputRefusedError(
            f"the {table} has rows of run {run!r} by other rules than its means ({difference}); evaluate both by "
            "the same rules, or leave the table out."
        )
