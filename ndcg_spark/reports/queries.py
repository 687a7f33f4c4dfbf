"""Queries of a report: how they are distributed, which are lowest, which lost the most, and which changed."""

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
    Section,
    Standing,
    is_within_1,
    read,
)
from ndcg_spark.reports.reading import Rows, Scope, collected, require_rules
from ndcg_spark.reports.settings import QUERY_TEXT, require_texts
from ndcg_spark.reports.wording import day, plain

T = TypeVar("T", QueryRow, ChangedQuery)
BINS = 20
SEPARATOR = " · "
"""Between the key columns of a query."""
MOST_EXACT = 1_000_000
"""Queries of a run up to which quartiles are exact; of more, they come from a sketch."""
_SKETCH = 10_000
"""Accuracy of the sketch: ranks are off by at most 1 / 10,000 of the queries."""
OF_CHANGES = ("change", "place", "run", "baseline", "metric", "k", "baseline_value", "value", "difference", "weight",
              "baseline_list", "list")  # fmt: skip
"""Columns of `changed_queries` beside those that name a query."""
_VALUE, _BEFORE, _PLACE = "__value", "__before", "__place"
"""Columns beside those of queries; users may have any other name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryTable:
    """A per-query table, its key columns, and the column of the metric."""

    frame: DataFrame
    scope: Scope
    keys: tuple[str, ...]
    value: str

    @classmethod
    def of(cls, frame: DataFrame, scope: Scope) -> QueryTable:
        """Find the metric and the query columns, between `run` and `k`, by the schema of a per-query table."""
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

    def _rows(self, night: date | None, runs: Iterable[str]) -> DataFrame:
        """Queries of a night and of some runs at the cutoff; lazy."""
        its = self.frame.where(self.scope.at_k() & F.col("run").isin(*runs))
        if has_column(self.frame, "dataset"):
            its = its.where(F.col("dataset") == self.scope.dataset)
        if self.has_nights:
            its = its.where(F.col("run_date").eqNullSafe(F.lit(night).cast("date")))
        kept = [name for name in ("n_items", "n_relevant", RULES) if has_column(self.frame, name)]
        return its.select("run", *exact_cols(self.keys), exact_col(self.value).cast("double").alias(_VALUE), *kept)

    def rules(self, night: date | None) -> dict[str, list[str]]:
        """Run an action: the rules by which queries of each run were computed; empty if the table lacks them."""
        if not has_column(self.frame, RULES):
            return {}
        rows = self._rows(night, self.scope.runs).groupBy("run").agg(F.collect_set(RULES).alias(RULES))
        return {row["run"]: row[RULES] for row in collected(rows)}

    def distributions(self, *, most_exact: int = MOST_EXACT) -> tuple[Distribution, ...]:
        """Run two actions, three if the metric has no known range: count the queries of each run in `BINS`.

        Quartiles are exact up to `most_exact` queries of a run.
        """
        its = self._rows(self.scope.run_date, self.scope.runs)
        low, high = 0.0, 1.0
        if not is_within_1(self.scope.metric):
            ((low, high),) = its.agg(F.min(_VALUE), F.max(_VALUE)).collect()
            low, high = (low or 0.0), (high or 0.0)
            high = high if high > low else low + 1.0
        value = F.col(_VALUE)
        at = F.least(F.floor((value - low) / (high - low) * BINS), F.lit(BINS - 1))
        inside = (value >= low) & (value <= high)
        counted = its.groupBy("run").agg(
            F.array(*[F.count_if(inside & (at == one)) for one in range(BINS)]).alias("bins"),
            F.count_if(value < low).alias("n_below"),
            F.count_if(value > high).alias("n_above"),
            F.count_if(value.isNull()).alias("n_undefined"),
            F.count_if(value == low).alias("n_lowest"),
            F.count_if(value == high).alias("n_highest"),
            F.percentile_approx(_VALUE, [0.25, 0.5, 0.75], _SKETCH).alias("estimated"),
        )
        found = sorted(collected(counted), key=self.scope.place)
        if not found:
            raise InputRefusedError(f"the per-query table has no rows of {self.scope}.")
        n_values = {row["run"]: sum(row["bins"]) + row["n_below"] + row["n_above"] for row in found}
        exact = _quartiles(its, {run: n for run, n in n_values.items() if 0 < n <= most_exact})
        return tuple(
            read(
                Distribution,
                row,
                low=low,
                high=high,
                counts=tuple(row["bins"]),
                quartiles=exact.get(row["run"], tuple(row["estimated"] or (None, None, None))),
                quartile_error=1 / _SKETCH if n_values[row["run"]] > most_exact else 0.0,
            )
            for row in found
        )

    def lowest(self) -> tuple[QueryRow, ...]:
        """Run an action: the worst queries of each run; of equal ones those with most relevant items first.

        Queries without a relevant item are left out where the table has their number: no ranking can do better.
        """
        its = self._rows(self.scope.run_date, self.scope.runs).where(F.col(_VALUE).isNotNull())
        relevant = []
        if "n_relevant" in its.columns:
            its, relevant = its.where(F.coalesce("n_relevant", F.lit(1)) > 0), [F.desc("n_relevant")]
        worst = F.desc(_VALUE) if direction_of(self.scope.metric) is False else F.asc(_VALUE)
        return self._first_of_each_run(its, [worst, *relevant])

    def losses(self, *, before: date | None, baseline: str | None) -> tuple[QueryRow, ...]:
        """Run an action: the queries whose value got worse the most, since the night `before` or against a baseline.

        Where neither direction is better, those that changed the most. Spark cost: one shuffle of the queries, twice
        over.
        """
        its = self._rows(self.scope.run_date, [run for run in self.scope.runs if run != baseline])
        if baseline is None:
            other = self._rows(before, self.scope.runs)
            on = ["run", *self.keys]
        else:
            other = self._rows(self.scope.run_date, [baseline])
            on = list(self.keys)
        joined = its.join(other.select(*exact_cols(on), F.col(_VALUE).alias(_BEFORE)), on)
        fall, larger_is_better = F.col(_BEFORE) - F.col(_VALUE), direction_of(self.scope.metric)
        loss = F.abs(fall) if larger_is_better is None else fall if larger_is_better else -fall
        return self._first_of_each_run(joined.where(loss > 0), [loss.desc()])

    def _first_of_each_run(self, rows: DataFrame, order: list[Column]) -> tuple[QueryRow, ...]:
        place = F.row_number().over(Window.partitionBy("run").orderBy(*order, *exact_cols(self.keys)))
        first = (
            rows.withColumn(_PLACE, place).where(F.col(_PLACE) <= self.scope.limits.queries).orderBy("run", _PLACE)
        )
        return tuple(
            read(
                QueryRow,
                row,
                query=_joined(row[key] for key in self.keys),
                value=row[_VALUE],
                before=row.get(_BEFORE),
            )
            for row in sorted(collected(first), key=self.scope.place)
        )


def _quartiles(rows: DataFrame, n_values: Mapping[str, int]) -> dict[str, tuple[float | None, ...]]:
    """Run an action: the quartiles of runs whose numbers of values are known, interpolated as by NumPy.

    A sort spills where Spark's `percentile` would hold all values of all runs in memory.
    """
    ends = {run: [divmod(quarter * (n - 1), 4) for quarter in (1, 2, 3)] for run, n in n_values.items()}
    wanted = F.lit(False)
    for run, its in ends.items():
        places = sorted({at + beyond + 1 for at, rest in its for beyond in (0, min(rest, 1))})
        wanted = wanted | ((F.col("run") == run) & F.col(_PLACE).isin(places))
    if not ends:
        return {}
    by_value = Window.partitionBy("run").orderBy(_VALUE)
    placed = rows.where(F.col(_VALUE).isNotNull()).select("run", _VALUE, F.row_number().over(by_value).alias(_PLACE))
    values = {(row["run"], row[_PLACE]): float(row[_VALUE]) for row in collected(placed.where(wanted))}

    def between(run: str, at: int, rest: int) -> float | None:
        low, high = values.get((run, at + 1)), values.get((run, at + 1 + min(rest, 1)))
        return None if low is None or high is None else low + (high - low) * rest / 4

    return {run: tuple(between(run, *one) for one in its) for run, its in ends.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Queries(Section):
    """How queries are distributed, the lowest, and those that lost the most against an earlier night or a run."""

    distributions: tuple[Distribution, ...] = ()
    lowest: tuple[QueryRow, ...] = ()
    losses: tuple[QueryRow, ...] = ()
    losses_against: str = ""

    @classmethod
    def read(
        cls,
        frame: DataFrame | None,
        scope: Scope,
        standings: Sequence[Standing],
        texts: QueryTexts | None = None,
    ) -> Queries:
        """Run actions: read the queries of a night, and their texts."""
        if frame is None:
            return cls()
        queries = cls._read(frame, scope, standings)
        if texts is None:
            return queries
        rows = texts.add_to((*queries.lowest, *queries.losses), QueryTable.of(frame, scope).keys)
        n_lowest = len(queries.lowest)
        return replace(queries, lowest=rows[:n_lowest], losses=rows[n_lowest:])

    @classmethod
    def _read(cls, frame: DataFrame, scope: Scope, standings: Sequence[Standing]) -> Queries:
        table, baseline = QueryTable.of(frame, scope), scope.baseline
        rules = table.rules(scope.run_date)
        for run, texts in rules.items():
            require_rules(standings, run, texts, "per-query table")
        queries = cls(distributions=table.distributions(), lowest=table.lowest())
        changed = any(one.change.kind == "incomparable" for one in standings)
        before = scope.before if baseline is None and table.has_nights and not changed else None
        if baseline is None and before is None:
            return queries
        against = day(before) if baseline is None else plain(baseline)
        earlier = {} if before is None else table.rules(before)
        differ = [format_difference([*texts, *rules.get(run, ())]) for run, texts in earlier.items()]
        if any(differ) or (baseline is not None and format_difference(one.rules for one in standings)):
            return replace(
                queries, not_covered=(f"Losses against {against} are not shown: other rules, other values.",)
            )
        losses = table.losses(before=before, baseline=baseline)
        return replace(queries, losses=losses, losses_against=against)


@dataclass(frozen=True, slots=True)
class QueryTexts:
    """A table with the text of each query: the key columns of a per-query table, and the column of the text."""

    frame: DataFrame
    column: str

    @classmethod
    def of(cls, frame: DataFrame | None, column: str | None) -> QueryTexts | None:
        """Describe the table of texts; None if there is none. `column` is `query_text` if it is None."""
        require_texts(column, has_texts=frame is not None)
        return None if frame is None else cls(frame, column or QUERY_TEXT)

    def add_to(self, rows: Sequence[T], keys: Sequence[str]) -> tuple[T, ...]:
        """Run an action: add the text of each query; of several texts the first in order, empty for none.

        `keys` are the columns that name a query. Spark cost: one pass over the table.
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
            row["query"]: plain(row["text"])
            for row in collected(shown.groupBy("query").agg(F.min("text").alias("text")))
            if row["text"] is not None
        }
        return tuple(replace(row, text=text_by_query.get(row.query, "")) for row in rows)


def changed_queries(
    changed: DataFrame | Iterable[Mapping[str, Any]], scope: Scope, texts: QueryTexts | None = None
) -> tuple[ChangedQuery, ...]:
    """Read queries that changed; any other column of the diagnosis is a key. Runs an action for `texts`."""
    queries: list[ChangedQuery] = []
    keys: list[str] = []
    for row in _changes_of(changed, scope.limits.queries):
        first, second = ((row[name] or [])[: scope.limits.items] for name in ("baseline_list", "list"))
        keys = [name for name in row if name not in OF_CHANGES]
        query = _joined(row[name] for name in keys)
        lists = {"baseline_list": _beside(first, second), "run_list": _beside(second, first)}
        queries.append(read(ChangedQuery, row, query=query, **lists))
    return tuple(queries) if texts is None else texts.add_to(queries, keys)


def _joined(keys: Iterable[Any]) -> str:
    """Name a query by its key columns."""
    return SEPARATOR.join(map(plain, keys))


def _beside(items: Sequence[Row], others: Sequence[Row]) -> tuple[ListedItem, ...]:
    """Items of a list, each with its rank in the other; lists without names of items have none."""
    names, other_names = ([plain(one["item"]) if "item" in one else "" for one in its] for its in (items, others))
    ranks = {name: rank for rank, name in enumerate(other_names, start=1) if name}
    return tuple(
        ListedItem(rank=rank, name=name, relevance=one.get("relevance"), other=ranks.get(name))
        for rank, (name, one) in enumerate(zip(names, items, strict=True), start=1)
    )


def _changes_of(changed: DataFrame | Iterable[Mapping[str, Any]], most: int) -> Rows:
    """Choose up to `most` rows of `changed_queries` of each kind, the largest first; an action for a DataFrame."""
    if isinstance(changed, DataFrame):
        for name in OF_CHANGES:
            require_column(changed, name, "changed_queries has it", "table of changed queries")
        rows = [row.asDict(recursive=True) for row in changed.orderBy("place", "change").limit(2 * most).collect()]
    else:
        rows = [dict(row) for row in changed]
    missing = sorted({name for row in rows for name in OF_CHANGES if name not in row})
    if missing:
        raise InvalidParameterError(
            f"the changed queries are no rows of changed_queries: they lack {', '.join(missing)}."
        )
    found = []
    for change in ("lost", "gained", "lower", "higher"):
        found += sorted((row for row in rows if row["change"] == change), key=lambda row: int(row["place"]))[:most]
    return found
