"""Queries of a report: their distribution, the lowest, those that lost the most, and those that changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any, TypeVar

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ndcg_spark.core.columns import exact_col, exact_cols, has_column, require_column
from ndcg_spark.errors import InputRefusedError, InvalidParameterError, MissingColumnError
from ndcg_spark.evaluation.rules import RULES, format_difference
from ndcg_spark.metrics import direction_of, parse_metric
from ndcg_spark.reports.contents import (
    ChangedQuery,
    Distribution,
    ListedItem,
    QueryRow,
    Row,
    RunResult,
    Section,
    is_within_1,
    read,
)
from ndcg_spark.reports.reading import Rows, Scope, collect_rows, require_rules
from ndcg_spark.reports.settings import QUERY_TEXT, require_texts
from ndcg_spark.reports.wording import clean_text, format_day

T = TypeVar("T", QueryRow, ChangedQuery)
BINS = 20
SEPARATOR = " · "
"""Separator of the key columns in the name of a query."""
MAX_EXACT = 1_000_000
"""Number of queries of a run up to which quartiles are exact; beyond it they are from a sketch."""
_SKETCH = 10_000
"""Accuracy of the sketch: ranks are off by at most 1 / 10,000 of the queries."""
CHANGE_COLUMNS = ("change", "place", "run", "baseline", "metric", "k", "baseline_value", "value", "difference",
                  "weight", "baseline_list", "list")  # fmt: skip
"""Columns of `changed_queries` except those that name a query."""
_VALUE, _BEFORE, _PLACE = "__value", "__before", "__place"
"""Internal columns; columns of users may have any other name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryTable:
    """A per-query table, its key columns, and the column of the metric."""

    frame: DataFrame
    scope: Scope
    keys: tuple[str, ...]
    value: str

    @classmethod
    def from_frame(cls, frame: DataFrame, scope: Scope) -> QueryTable:
        """Find the metric column, and the query columns: those between `run` and `k`."""
        names = frame.columns
        for name in ("run", "k"):
            require_column(frame, name, "a per-query table has it", "per-query table")
        column = parse_metric(scope.metric)[0].column
        keys = tuple(names[names.index("run") + 1 : names.index("k")])
        if not keys:
            raise MissingColumnError(
                "the per-query table has no columns between 'run' and 'k' that name a query; Spark sorts the columns "
                f"of json. A query puts them there: SELECT run, query_id, k, {column}, ... FROM json.`...`."
            )
        require_column(frame, column, f"metric {scope.metric}", "per-query table")
        return cls(frame=frame, scope=scope, keys=keys, value=column)

    @property
    def has_nights(self) -> bool:
        return has_column(self.frame, "run_date")

    def _select(self, night: date | None, runs: Iterable[str]) -> DataFrame:
        """Select queries of a night and of some runs at the cutoff, lazily."""
        rows = self.frame.where(self.scope.matches_k() & F.col("run").isin(*runs))
        if has_column(self.frame, "dataset"):
            rows = rows.where(F.col("dataset") == self.scope.dataset)
        if self.has_nights:
            rows = rows.where(F.col("run_date").eqNullSafe(F.lit(night).cast("date")))
        counts = [name for name in ("n_items", "n_relevant", RULES) if has_column(self.frame, name)]
        return rows.select("run", *exact_cols(self.keys), exact_col(self.value).cast("double").alias(_VALUE), *counts)

    def list_rules(self, night: date | None) -> dict[str, list[str]]:
        """List the rules of the queries of each run; empty if the table lacks them. Runs an action."""
        if not has_column(self.frame, RULES):
            return {}
        rows = self._select(night, self.scope.runs).groupBy("run").agg(F.collect_set(RULES).alias(RULES))
        return {row["run"]: row[RULES] for row in collect_rows(rows)}

    def count_distributions(self, *, max_exact: int = MAX_EXACT) -> tuple[Distribution, ...]:
        """Count the queries of each run in `BINS`; quartiles are exact up to `max_exact` queries of a run.

        Runs two actions, three if the range of the metric is unknown.
        """
        queries = self._select(self.scope.run_date, self.scope.runs)
        low, high = 0.0, 1.0
        if not is_within_1(self.scope.metric):
            ((low, high),) = queries.agg(F.min(_VALUE), F.max(_VALUE)).collect()
            low, high = (low or 0.0), (high or 0.0)
            high = high if high > low else low + 1.0
        value = F.col(_VALUE)
        index = F.least(F.floor((value - low) / (high - low) * BINS), F.lit(BINS - 1))
        inside = (value >= low) & (value <= high)
        counted = queries.groupBy("run").agg(
            F.array(*[F.count_if(inside & (index == at)) for at in range(BINS)]).alias("bins"),
            F.count_if(value < low).alias("n_below"),
            F.count_if(value > high).alias("n_above"),
            F.count_if(value.isNull()).alias("n_undefined"),
            F.count_if(value == low).alias("n_lowest"),
            F.count_if(value == high).alias("n_highest"),
            F.percentile_approx(_VALUE, [0.25, 0.5, 0.75], _SKETCH).alias("estimated"),
        )
        rows = sorted(collect_rows(counted), key=self.scope.rank_run)
        if not rows:
            raise InputRefusedError(f"the per-query table has no rows of {self.scope}.")
        n_values = {row["run"]: sum(row["bins"]) + row["n_below"] + row["n_above"] for row in rows}
        exact = _compute_quartiles(queries, {run: n for run, n in n_values.items() if 0 < n <= max_exact})
        return tuple(
            read(
                Distribution,
                row,
                low=low,
                high=high,
                counts=tuple(row["bins"]),
                quartiles=exact.get(row["run"], tuple(row["estimated"] or (None, None, None))),
                quartile_error=1 / _SKETCH if n_values[row["run"]] > max_exact else 0.0,
            )
            for row in rows
        )

    def find_lowest(self) -> tuple[QueryRow, ...]:
        """Find the worst queries of each run; ties are sorted by the number of relevant items. Runs an action.

        Queries without relevant items are left out if the table counts these: no ranking can do better.
        """
        rows = self._select(self.scope.run_date, self.scope.runs).where(F.col(_VALUE).isNotNull())
        relevant = []
        if "n_relevant" in rows.columns:
            rows, relevant = rows.where(F.coalesce("n_relevant", F.lit(1)) > 0), [F.desc("n_relevant")]
        worst = F.desc(_VALUE) if direction_of(self.scope.metric) is False else F.asc(_VALUE)
        return self._take_first_of_each_run(rows, [worst, *relevant])

    def find_losses(self, *, before: date | None, baseline: str | None) -> tuple[QueryRow, ...]:
        """Find the queries whose value got worse the most, since the night `before` or against a baseline.

        If neither direction is better, those that changed the most. Spark cost: an action that shuffles the queries
        of both sides.
        """
        queries = self._select(self.scope.run_date, [run for run in self.scope.runs if run != baseline])
        if baseline is None:
            other = self._select(before, self.scope.runs)
            on = ["run", *self.keys]
        else:
            other = self._select(self.scope.run_date, [baseline])
            on = list(self.keys)
        joined = queries.join(other.select(*exact_cols(on), F.col(_VALUE).alias(_BEFORE)), on)
        fall, larger_is_better = F.col(_BEFORE) - F.col(_VALUE), direction_of(self.scope.metric)
        loss = F.abs(fall) if larger_is_better is None else fall if larger_is_better else -fall
        return self._take_first_of_each_run(joined.where(loss > 0), [loss.desc()])

    def _take_first_of_each_run(self, rows: DataFrame, order: list[Column]) -> tuple[QueryRow, ...]:
        place = F.row_number().over(Window.partitionBy("run").orderBy(*order, *exact_cols(self.keys)))
        first = rows.withColumn(_PLACE, place).where(F.col(_PLACE) <= self.scope.limits.queries)
        queries = []
        for row in sorted(collect_rows(first.orderBy("run", _PLACE)), key=self.scope.rank_run):
            query = _join_keys(row[key] for key in self.keys)
            queries.append(read(QueryRow, row, query=query, value=row[_VALUE], before=row.get(_BEFORE)))
        return tuple(queries)


def _compute_quartiles(rows: DataFrame, n_values: Mapping[str, int]) -> dict[str, tuple[float | None, ...]]:
    """Compute quartiles of runs from sorted values, interpolated as by NumPy; `n_values` by run. Runs an action.

    The sort spills to disk; Spark's `percentile` would hold all values of all runs in memory.
    """
    places = {run: [divmod(quarter * (n - 1), 4) for quarter in (1, 2, 3)] for run, n in n_values.items()}
    is_needed = F.lit(False)
    for run, quartiles in places.items():
        needed = sorted({at + step + 1 for at, rest in quartiles for step in (0, min(rest, 1))})
        is_needed = is_needed | ((F.col("run") == run) & F.col(_PLACE).isin(needed))
    if not places:
        return {}
    by_value = Window.partitionBy("run").orderBy(_VALUE)
    placed = rows.where(F.col(_VALUE).isNotNull()).select("run", _VALUE, F.row_number().over(by_value).alias(_PLACE))
    values = {(row["run"], row[_PLACE]): float(row[_VALUE]) for row in collect_rows(placed.where(is_needed))}

    def interpolate(run: str, at: int, rest: int) -> float | None:
        low, high = values.get((run, at + 1)), values.get((run, at + 1 + min(rest, 1)))
        return None if low is None or high is None else low + (high - low) * rest / 4

    return {run: tuple(interpolate(run, *place) for place in quartiles) for run, quartiles in places.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Queries(Section):
    """Distribution of queries, the lowest, and those that lost the most against an earlier night or a run."""

    distributions: tuple[Distribution, ...] = ()
    lowest: tuple[QueryRow, ...] = ()
    losses: tuple[QueryRow, ...] = ()
    losses_against: str = ""

    @classmethod
    def read(
        cls,
        frame: DataFrame | None,
        scope: Scope,
        results: Sequence[RunResult],
        texts: QueryTexts | None = None,
    ) -> Queries:
        """Read the queries of a night, and their texts. Runs actions."""
        if frame is None:
            return cls()
        queries = cls._read(frame, scope, results)
        if texts is None:
            return queries
        rows = texts.add_to((*queries.lowest, *queries.losses), QueryTable.from_frame(frame, scope).keys)
        n_lowest = len(queries.lowest)
        return replace(queries, lowest=rows[:n_lowest], losses=rows[n_lowest:])

    @classmethod
    def _read(cls, frame: DataFrame, scope: Scope, results: Sequence[RunResult]) -> Queries:
        table, baseline = QueryTable.from_frame(frame, scope), scope.baseline
        rules = table.list_rules(scope.run_date)
        for run, texts in rules.items():
            require_rules(results, run, texts, "per-query table")
        queries = cls(distributions=table.count_distributions(), lowest=table.find_lowest())
        changed = any(result.change.kind == "incomparable" for result in results)
        before = scope.before if baseline is None and table.has_nights and not changed else None
        if baseline is None and before is None:
            return queries
        against = format_day(before) if baseline is None else clean_text(baseline)
        rules_before = {} if before is None else table.list_rules(before)
        differences = [format_difference([*texts, *rules.get(run, ())]) for run, texts in rules_before.items()]
        if any(differences) or (baseline is not None and format_difference(result.rules for result in results)):
            not_covered = f"Losses against {against} are not shown: its values were computed by other rules."
            return replace(queries, not_covered=(not_covered,))
        losses = table.find_losses(before=before, baseline=baseline)
        return replace(queries, losses=losses, losses_against=against)


@dataclass(frozen=True, slots=True)
class QueryTexts:
    """A table with the text of each query: the key columns of a per-query table, and the column of the text."""

    frame: DataFrame
    column: str

    @classmethod
    def from_frame(cls, frame: DataFrame | None, column: str | None) -> QueryTexts | None:
        """Describe a table of texts; None without a table. The default column is `query_text`."""
        require_texts(column, has_texts=frame is not None)
        return None if frame is None else cls(frame, column or QUERY_TEXT)

    def add_to(self, rows: Sequence[T], keys: Sequence[str]) -> tuple[T, ...]:
        """Add the text of each query: the first in order if it has several, empty if it has none.

        `keys` are the columns that name a query. Spark cost: an action, one pass over the table.
        """
        require_column(self.frame, self.column, "column of the texts", "table of query texts")
        if not rows:
            return ()
        for key in keys:
            require_column(self.frame, key, "column that names a query", "table of query texts")
        query = F.concat_ws(SEPARATOR, *[F.coalesce(key.cast("string"), F.lit("null")) for key in exact_cols(keys)])
        texts = self.frame.select(query.alias("query"), exact_col(self.column).cast("string").alias("text"))
        shown = texts.where(F.col("query").isin(sorted({row.query for row in rows})))
        text_by_query = {
            row["query"]: clean_text(row["text"])
            for row in collect_rows(shown.groupBy("query").agg(F.min("text").alias("text")))
            if row["text"] is not None
        }
        return tuple(replace(row, text=text_by_query.get(row.query, "")) for row in rows)


def read_changed_queries(
    changed: DataFrame | Iterable[Mapping[str, Any]], scope: Scope, texts: QueryTexts | None = None
) -> tuple[ChangedQuery, ...]:
    """Read changed queries; other columns of `changed` are keys. Runs an action for `texts`, and for a DataFrame."""
    queries: list[ChangedQuery] = []
    keys: list[str] = []
    for row in _select_changes(changed, scope.limits.queries):
        first, second = ((row[name] or [])[: scope.limits.items] for name in ("baseline_list", "list"))
        keys = [name for name in row if name not in CHANGE_COLUMNS]
        query = _join_keys(row[name] for name in keys)
        lists = {"baseline_list": _pair_items(first, second), "run_list": _pair_items(second, first)}
        queries.append(read(ChangedQuery, row, query=query, **lists))
    return tuple(queries) if texts is None else texts.add_to(queries, keys)


def _join_keys(keys: Iterable[Any]) -> str:
    """Name a query by its key columns."""
    return SEPARATOR.join(map(clean_text, keys))


def _pair_items(items: Sequence[Row], others: Sequence[Row]) -> tuple[ListedItem, ...]:
    """Give each item of a list its rank in the other list; None if lists have no names of items."""
    names, other_names = (
        [clean_text(item["item"]) if "item" in item else "" for item in ranking] for ranking in (items, others)
    )
    ranks = {name: rank for rank, name in enumerate(other_names, start=1) if name}
    return tuple(
        ListedItem(rank=rank, name=name, relevance=item.get("relevance"), other_rank=ranks.get(name))
        for rank, (name, item) in enumerate(zip(names, items, strict=True), start=1)
    )


def _select_changes(changed: DataFrame | Iterable[Mapping[str, Any]], limit: int) -> Rows:
    """Select up to `limit` rows of each kind of change, the largest first. Runs an action for a DataFrame."""
    if isinstance(changed, DataFrame):
        for name in CHANGE_COLUMNS:
            require_column(changed, name, "changed_queries has it", "table of changed queries")
        rows = [row.asDict(recursive=True) for row in changed.orderBy("place", "change").limit(2 * limit).collect()]
    else:
        rows = [dict(row) for row in changed]
    missing = sorted({name for row in rows for name in CHANGE_COLUMNS if name not in row})
    if missing:
        raise InvalidParameterError(
            f"the changed queries are not rows of changed_queries: they lack {', '.join(missing)}."
        )
    largest = []
    for change in ("lost", "gained", "lower", "higher"):
        largest += sorted((row for row in rows if row["change"] == change), key=lambda row: int(row["place"]))[:limit]
    return largest
