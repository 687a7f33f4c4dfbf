"""Reading of reports without Spark, from tables in files. Methods read the files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ndcg_spark.evaluation.rules import RULES
from ndcg_spark.history.local import find_missing_series, name_nights
from ndcg_spark.metrics import direction_of
from ndcg_spark.reports import reading
from ndcg_spark.reports.contents import Distribution, is_within_1
from ndcg_spark.reports.reading import BEFORE, BINS, SEPARATOR, VALUE, Columns, Rows, Scope
from ndcg_spark.sources.local import LocalTable, filter_rows, find_result_obstacle, find_type_obstacle, read_columns

_TIME = pa.timestamp("us", "UTC")
_TYPES = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "boolean": pa.bool_(),
    "timestamp": _TIME,
    reading.SECONDS: _TIME,
    "array<bigint>": pa.list_(pa.int64()),
}
_COUNTS = {"n_items": pa.int64(), "n_relevant": pa.int64(), RULES: pa.string()}


def find_obstacle(table: LocalTable, columns: Columns) -> str | None:
    """Describe in a clause why only Spark reads a table of results; None if this module does."""
    if "night" in columns.types and not table.info.has("night"):
        return f"{table.name} has no column 'night'"
    return find_result_obstacle(table, _list_types(columns))


def find_queries_obstacle(table: LocalTable) -> str | None:
    """Describe in a clause why only Spark reads a per-query table; None if this module does."""
    names = table.info.names
    keys = names[names.index("run") + 1 : names.index("k")] if {"run", "k"} <= {*names} else []
    types = {"run": pa.string(), "k": pa.int32(), "run_date": pa.date32(), "dataset": pa.string(), **_COUNTS}
    return _find_key_obstacle(table, keys) or find_type_obstacle(table, types)


def find_texts_obstacle(table: LocalTable) -> str | None:
    """Describe in a clause why only Spark reads a table of query texts; None if this module does."""
    return find_type_obstacle(table, {}) or _find_key_obstacle(table, table.info.names)


def _find_key_obstacle(table: LocalTable, keys: Sequence[str]) -> str | None:
    is_supported = (pa.types.is_string, pa.types.is_integer, pa.types.is_date32)
    for key in keys:
        if not any(is_type(table.info.type_of(key)) for is_type in is_supported):
            return f"column {key!r} of {table.name} is {table.info.type_text(key)}"
    return None


def _list_types(columns: Columns) -> dict[str, pa.DataType]:
    return {name: _TYPES[kind] for name, kind in columns.types.items()}


def _read(table: LocalTable, columns: Columns) -> pa.Table:
    columns.require(replace(table.info, label=columns.table))
    return read_columns(table, _list_types(columns))


def _equals(rows: pa.Table, column: str, value: Any) -> pa.ChunkedArray:
    """Mark the rows in which a column is a value; None matches null."""
    values = rows.column(column)
    return pc.is_null(values) if value is None else pc.equal(values, pa.scalar(value, values.type))


def _select(rows: pa.Table, *conditions: pa.ChunkedArray) -> pa.Table:
    """Select the rows in which all conditions are true."""
    return rows.filter(reduce(pc.and_, conditions))


def _is_in(rows: pa.Table, column: str, values: Sequence[str]) -> pa.ChunkedArray:
    return pc.is_in(rows.column(column), value_set=pa.array(values, pa.string()))


def _select_scope(rows: pa.Table, scope: Scope) -> pa.Table:
    """Select the rows of the metric, and of the data set if it is known."""
    is_dataset = pc.equal(pc.fill_null(rows.column("dataset"), scope.dataset), scope.dataset)
    return _select(rows, is_dataset, _equals(rows, "metric", scope.metric), _equals(rows, "k", scope.k))


def _seconds(row: dict[str, Any], column: str) -> int | None:
    return None if row[column] is None else int(row[column].timestamp() // 1)


class LocalMetrics(reading.MetricTable):
    """A metric table that this process reads."""

    def __init__(self, table: LocalTable) -> None:
        rows = _read(table, reading.METRICS)
        dataset = pc.fill_null(rows.column("dataset"), "")
        self._table = rows.set_column(rows.schema.get_field_index("dataset"), "dataset", dataset)

    def list_datasets(self) -> Rows:
        aggregates = [("run_date", "max"), ("run_date", "count_distinct")]
        datasets = self._table.group_by("dataset").aggregate(aggregates).sort_by("dataset")
        datasets = datasets.select(["dataset", "run_date_max", "run_date_count_distinct"])
        rows: Rows = datasets.rename_columns(["dataset", "newest", "n_nights"]).to_pylist()
        return rows[: reading.MAX_DATASETS + 1]

    def _select_overall(self, rows: pa.Table, runs: Sequence[str]) -> pa.Table:
        overall = _select(rows, _equals(rows, "segment_by", ""))
        return _select(overall, _is_in(overall, "run", runs)) if runs else overall

    def _read_means(self, dataset: str, night: date | None, runs: Sequence[str]) -> Rows:
        of_night = _select(
            self._table, _equals(self._table, "dataset", dataset), _equals(self._table, "run_date", night)
        )
        rows: Rows = self._select_overall(of_night, runs).slice(0, reading.MAX_MEANS + 1).to_pylist()
        for row in rows:
            time = row["computed_at"]
            row |= {"computed": _seconds(row, "computed_at"), "computed_at": time and f"{time:%Y-%m-%d %H:%M} UTC"}
        return rows

    def find_last_nights(self, dataset: str, night: date, runs: Sequence[str]) -> dict[str, date]:
        table = self._table
        is_earlier = pc.less(table.column("run_date"), pa.scalar(night))
        earlier = _select(table, _equals(table, "dataset", dataset), is_earlier, _is_in(table, "run", runs))
        last = earlier.group_by("run").aggregate([("run_date", "max")])
        return dict(zip(last["run"].to_pylist(), last["run_date_max"].to_pylist(), strict=True))

    def read_trend(self, scope: Scope) -> Rows:
        overall = self._select_overall(_select_scope(self._table, scope), scope.runs)
        nights = overall.column("run_date")
        until = pc.is_null(nights) if scope.run_date is None else pc.less_equal(nights, pa.scalar(scope.run_date))
        series = _select(overall, until).sort_by([("run_date", "descending"), ("run", "ascending")])
        rows: Rows = series.slice(0, scope.limits.nights * len(scope.runs)).to_pylist()
        return rows

    def find_missing(self, scope: Scope, runs: Sequence[str]) -> tuple[Rows, int]:
        assert scope.run_date is not None
        rows = _select_scope(self._table, scope)
        missing = [
            row
            for row in find_missing_series(name_nights(rows), scope.run_date)
            if (row["run"] in scope.runs if row["segment_by"] else row["run"] not in scope.runs)
            and (row["segment_by"] or not runs or row["run"] in runs)
        ]
        missing.sort(key=lambda row: reading.order_by(row, "run", "segment_by", "segment"))
        missing.sort(key=lambda row: (row["segment_by"] != "", reading.descend(row["last_queries"])))
        return missing[: scope.limits.segments + 1], sum(row["segment_by"] != "" for row in missing)

    def read_segments(self, scope: Scope) -> tuple[Rows, int]:
        rows = _select_scope(self._table, scope)
        is_segment = pc.not_equal(rows.column("segment_by"), "")
        segments = _select(rows, is_segment, _is_in(rows, "run", scope.runs))
        keys = ["run", "segment_by", "segment", "metric", "k"]
        earlier = [
            pc.and_(_equals(segments, "run", run), _equals(segments, "run_date", night))
            for run, night in scope.earlier.items()
        ]
        now, before = (
            {tuple(row[key] for key in keys): row for row in _select(segments, condition).to_pylist()}
            for condition in (
                _equals(segments, "run_date", scope.run_date),
                reduce(pc.or_, earlier, pa.repeat(False, segments.num_rows)),
            )
        )
        segment_rows = [
            {name: row[name] for name in (*keys, *reading.SEGMENT_COLUMNS)}
            | {f"before_{name}": before.get(key, {}).get(name) for name in reading.SEGMENT_COLUMNS}
            for key, row in now.items()
        ]
        segment_rows.sort(key=lambda row: reading.order_by(row, "run", "segment_by", "segment"))
        segment_rows.sort(key=lambda row: reading.descend(row["n_queries"]))
        return segment_rows[: scope.limits.segments], len(segment_rows)


class LocalFlags(reading.FlagTable):
    """A table of flags that this process reads."""

    def __init__(self, table: LocalTable) -> None:
        rows = _read(table, reading.FLAGS)
        by = pc.fill_null(rows.column("segment_by"), "")
        self._table = rows.set_column(rows.schema.get_field_index("segment_by"), "segment_by", by)

    def _select(self, scope: Scope) -> pa.Table:
        flags = _select_scope(self._table, scope)
        return _select(flags, pc.or_(pc.is_null(flags.column("run")), _is_in(flags, "run", scope.runs)))

    def _count(self, scope: Scope) -> dict[str, Any]:
        flags = self._select(scope)
        tonight = _select(flags, _equals(flags, "night", scope.run_date))
        nights = [night for night in pc.unique(flags.column("night")).to_pylist() if night is not None]
        sources = [_seconds(row, "source_computed_at") for row in tonight.to_pylist()]
        flagged = _select(flags, _is_in(flags, "status", reading.BY_DISTANCE))
        segments = _select(flagged, pc.not_equal(flagged.column("segment_by"), "")).column("night").to_pylist()
        return {
            "n_segments": sum(night == scope.run_date for night in segments),
            "n_earlier": sum(bool(night and scope.run_date and night < scope.run_date) for night in segments),
            "n_judged": tonight.num_rows,
            "last": max((night for night in nights if scope.run_date and night <= scope.run_date), default=None),
            "source": max((source for source in sources if source is not None), default=None),
        }

    def _read_notable(self, scope: Scope) -> Rows:
        flags = self._select(scope)
        is_flag = _is_in(flags, "status", reading.BY_DISTANCE)
        if scope.run_date is not None:
            is_flag = pc.and_(is_flag, pc.less_equal(flags.column("night"), pa.scalar(scope.run_date)))
        is_related = pc.and_(
            _is_in(flags, "status", reading.BY_EARLIER_FLAG), _equals(flags, "night", scope.run_date)
        )
        rows: Rows = flags.filter(pc.or_kleene(is_flag, is_related)).to_pylist()
        return rows


class LocalComparisons(reading.ComparisonTable):
    """A comparison table that this process reads."""

    def __init__(self, table: LocalTable) -> None:
        self._table = _read(table, reading.COMPARISONS)

    def read(self, scope: Scope) -> Rows:
        night, of_scope = scope.run_date, _select_scope(self._table, scope)
        rows: Rows = _select(of_scope, _is_in(of_scope, "run", scope.runs)).to_pylist()
        rows = [
            {**row, "source_computed_at": _seconds(row, "source_computed_at")}
            for row in rows
            if night is None or _is_of_night(row, night)
        ]
        rows.sort(key=lambda row: reading.order_by(row, "run", "baseline", "segment_by", "segment"))
        rows.sort(key=lambda row: (row["segment_by"] != "", reading.descend(row["n_queries"])))
        return rows[: scope.limits.comparisons + 1]

    def find_last_night(self, scope: Scope) -> date | None:
        rows: Rows = _select_scope(self._table, scope).select(["run_date", "period"]).to_pylist()
        nights = [row["run_date"] for row in rows if row["period"] is None]
        return max((night for night in nights if night and scope.run_date and night <= scope.run_date), default=None)


def _is_of_night(row: dict[str, Any], night: date) -> bool:
    """Check whether a comparison is of a night, or of a period with the night: the last one, of seven days."""
    if row["period"] is None:
        return bool((row["run_date"] or night) == night)
    if row["period"] == "rolling_7":
        return bool(row["period_end"] == night)
    return bool(row["period_start"] <= night <= row["period_end"])


class LocalQueries(reading.QueryTable):
    """A per-query table; only the folders of the nights of a report are read."""

    def __init__(self, table: LocalTable, scope: Scope) -> None:
        super().__init__(replace(table.info, label="per-query table"), scope)
        self._table = table
        self._nights: dict[date | None, pa.Table] = {}

    def _read_night(self, night: date | None) -> pa.Table:
        """Read the queries of a night at the cutoff, of the runs of the report; each night once."""
        if night not in self._nights:
            info, scope = self._table.info, self.scope
            table = self._table
            if self.has_nights and night is not None:
                table = filter_rows(table, "run_date", str(night))
            counts = {name: kind for name, kind in _COUNTS.items() if info.has(name)}
            places = {
                name: kind
                for name, kind in {"run_date": pa.date32(), "dataset": pa.string()}.items()
                if info.has(name)
            }
            types = {"run": pa.string(), "k": pa.int32(), self.value: pa.float64(), **counts, **places}
            rows = read_columns(table, {**types, **{key: info.type_of(key) for key in self.keys}})
            conditions = [_equals(rows, "k", scope.k), _is_in(rows, "run", scope.runs)]
            conditions += [_equals(rows, "dataset", scope.dataset)] if "dataset" in places else []
            conditions += [_equals(rows, "run_date", night)] if "run_date" in places else []
            rows = _select(rows, *conditions)
            values = rows.column(self.value)
            self._nights[night] = rows.select(["run", *self.keys, *counts]).append_column(VALUE, values)
        return self._nights[night]

    def _split_runs(self, rows: pa.Table) -> list[tuple[str, pa.Table]]:
        """Split rows by run, in the order of the report; runs without rows are left out."""
        parts = [(run, _select(rows, _equals(rows, "run", run))) for run in self.scope.runs]
        return [(run, part) for run, part in parts if part.num_rows]

    def list_rules(self, night: date | None) -> dict[str, list[str]]:
        if not self._table.info.has(RULES):
            return {}
        return {
            run: part.column(RULES).unique().drop_null().to_pylist()
            for run, part in self._split_runs(self._read_night(night))
        }

    def count_distributions(self) -> tuple[Distribution, ...]:
        rows = self._read_night(self.scope.run_date)
        low, high = 0.0, 1.0
        if not is_within_1(self.scope.metric):
            extremes = pc.min_max(rows.column(VALUE)).as_py()
            low, high = reading.choose_range(extremes["min"], extremes["max"])
        distributions = []
        for run, part in self._split_runs(rows):
            values = np.sort(part.column(VALUE).drop_null().to_numpy())
            inside = values[(values >= low) & (values <= high)]
            bins = np.minimum(np.floor((inside - low) / (high - low) * BINS).astype(np.int64), BINS - 1)
            distributions.append(
                Distribution(
                    run=run,
                    low=low,
                    high=high,
                    counts=tuple(np.bincount(bins, minlength=BINS).tolist()),
                    n_below=int((values < low).sum()),
                    n_above=int((values > high).sum()),
                    n_undefined=part.num_rows - len(values),
                    n_lowest=int((values == low).sum()),
                    n_highest=int((values == high).sum()),
                    quartiles=reading.interpolate_quartiles(len(values), values.item),
                    quartile_error=0.0,
                )
            )
        return tuple(distributions)

    def find_lowest(self) -> Rows:
        rows = self._read_night(self.scope.run_date)
        order = [(VALUE, "descending" if direction_of(self.scope.metric) is False else "ascending")]
        conditions = [rows.column(VALUE).is_valid()]
        if "n_relevant" in rows.column_names:
            conditions.append(pc.greater(pc.fill_null(rows.column("n_relevant"), 1), 0))
            order.append(("n_relevant", "descending"))
        if "n_items" in rows.column_names:  # queries without a list show nothing of a ranking
            rows = rows.append_column("__no_list", pc.fill_null(pc.equal(rows.column("n_items"), 0), False))
            order.insert(0, ("__no_list", "ascending"))
        return self._take_first_of_each_run(_select(rows, *conditions), order)

    def find_losses(self, *, before: date | None, baseline: str | None) -> Rows:
        rows, on = self._read_night(self.scope.run_date), [*self.keys]
        if baseline is None:
            other, on = self._read_night(before), ["run", *on]
        else:
            other = _select(rows, _equals(rows, "run", baseline))
            rows = _select(rows, pc.not_equal(rows.column("run"), baseline))
        other = other.select([*on, VALUE]).rename_columns([*on, BEFORE])
        joined = rows.join(other, on, join_type="inner")
        fall = pc.subtract(joined.column(BEFORE), joined.column(VALUE))
        larger_is_better = direction_of(self.scope.metric)
        loss = pc.abs(fall) if larger_is_better is None else fall if larger_is_better else pc.negate(fall)
        joined = joined.append_column("__loss", loss)
        return self._take_first_of_each_run(_select(joined, pc.greater(loss, 0.0)), [("__loss", "descending")])

    def _take_first_of_each_run(self, rows: pa.Table, order: list[tuple[str, str]]) -> Rows:
        by = [*order, *((key, "ascending") for key in self.keys)]
        first = [
            part.take(pc.select_k_unstable(part, self.scope.limits.queries, by)) for _, part in self._split_runs(rows)
        ]
        return [row for part in first for row in part.to_pylist()]


class LocalTexts(reading.TextTable):
    """Texts of queries that this process reads."""

    def __init__(self, table: LocalTable, column: str) -> None:
        super().__init__(replace(table.info, label="table of query texts"), column)
        self._table = table

    def _find_texts(self, keys: Sequence[str], queries: Sequence[str]) -> dict[str, str | None]:
        rows = read_columns(self._table, {name: self.info.type_of(name) for name in (*keys, self.column)})
        names = [rows.column(key).cast(pa.string()) for key in keys]  # stored queries have no null key
        texts = pa.table(
            {
                "query": pc.binary_join_element_wise(*names, SEPARATOR),
                "text": rows.column(self.column).cast(pa.string()),
            }
        )
        first: dict[str, str | None] = {}
        for row in _select(texts, _is_in(texts, "query", queries)).sort_by("text").to_pylist():
            first.setdefault(row["query"], row["text"])
        return first
