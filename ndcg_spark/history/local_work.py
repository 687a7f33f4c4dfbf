"""The work of roll-up and flag-changes without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ndcg_spark.core import labels
from ndcg_spark.errors import InputRefusedError
from ndcg_spark.evaluation.local_work import open_sources
from ndcg_spark.history.flagging import MAX_FLAGS, PROVENANCE, FlagChangesBase, Nights, choose_nights
from ndcg_spark.history.local import (
    find_metric_table_obstacle,
    find_per_query_obstacle,
    judge_nights,
    read_metric_rows,
    require_metric_columns,
    select_nights,
)
from ndcg_spark.history.local_periods import (
    check_roll_up,
    find_period_obstacle,
    is_comparison,
    read_period_rows,
    roll_up_table,
)
from ndcg_spark.history.plan import MAX_NAMES, build_absence_error
from ndcg_spark.history.rolling_up import RollUpBase
from ndcg_spark.history.settings import (
    METRIC_TABLE,
    NIGHT,
    FlagJobSettings,
    FlagSettings,
    MetricRows,
    RollUpJobSettings,
    RollUpSettings,
)
from ndcg_spark.history.tasks.judging import BEFORE, BEFORE_PAIRED, PRINTED
from ndcg_spark.jobs.command import Request
from ndcg_spark.jobs.outputs import add_provenance_to_table
from ndcg_spark.jobs.runner import Job
from ndcg_spark.metrics import EVERY
from ndcg_spark.sources.local import LocalTable, filter_rows
from ndcg_spark.tables import SliceKey
from ndcg_spark.tables.slices import Frame


class LocalRollUp(RollUpBase):
    """Add up nights in this process."""

    def __init__(self, job: Job[RollUpJobSettings]) -> None:
        super().__init__(job)
        self._table: LocalTable = job.engine.opened["input"]
        self.is_comparison = is_comparison(self._table.info)
        check_roll_up(self._table.info, self.settings.rows, self.settings.roll_up)

    @staticmethod
    def open_tables(request: Request[RollUpJobSettings]) -> dict[str, LocalTable] | str:
        """Open the table, or return the reason why Spark has to read it."""
        tables = open_sources(request)
        if isinstance(tables, str):
            return tables
        return find_period_obstacle(tables["input"], request.settings.roll_up) or tables

    @property
    def input_name(self) -> str:
        return self._table.name

    def find_nights(self) -> Nights:
        settings = self.settings.roll_up
        rows = read_period_rows(self._table, settings)
        self._rows, nights = _find_nights(rows, self._table.name, self.settings.rows, settings.as_of)
        return nights

    def add_up(self, settings: RollUpSettings) -> None:
        self._periods = roll_up_table(self._rows, settings)

    def list_keys(self) -> list[SliceKey]:
        keys = self._periods.group_by(["period_end", self.by, "period"]).aggregate([])
        return [SliceKey(*key.values()) for key in keys.select(["period_end", self.by, "period"]).to_pylist()]

    def list_rows(self, newest: int | None = None) -> list[dict[str, Any]]:
        rows = self._periods.drop_columns(["state"])
        if newest is None:
            return rows.to_pylist()  # type: ignore[no-any-return]  # pyarrow has no types
        rows = rows.filter(pc.invert(pc.is_in(rows.column("metric"), pa.array(self.hidden_metrics, pa.string()))))
        if not self.settings.verbose:
            rows = rows.filter(pc.equal(rows.column("segment_by"), ""))
        ordered = sorted(rows.to_pylist(), key=self.sort_key)
        return sorted(ordered, key=lambda row: row["period_end"], reverse=True)[:newest]

    def period_table(self, facts: Mapping[str, Any]) -> Frame:
        return add_provenance_to_table(self._periods, facts, PROVENANCE)


class LocalFlagChanges(FlagChangesBase):
    """Judge nights in this process."""

    def __init__(self, job: Job[FlagJobSettings]) -> None:
        super().__init__(job)
        self._opened: dict[str, LocalTable] = job.engine.opened
        if "input" in self._opened:  # a night also checks steps with their planned inputs alone
            require_metric_columns(self._opened["input"].info, self.settings.rows)

    @staticmethod
    def open_tables(request: Request[FlagJobSettings]) -> dict[str, LocalTable] | str:
        """Open the tables, or return the reason why Spark has to read them."""
        tables = open_sources(request)
        if isinstance(tables, str):
            return tables
        obstacle = find_metric_table_obstacle(tables["input"])
        if obstacle is None and "per_query" in tables:
            obstacle = find_per_query_obstacle(tables["per_query"], request.settings.query)
        return obstacle or tables

    @property
    def input_names(self) -> list[str]:
        return [table.name for table in self._opened.values()]

    def find_nights(self) -> Nights:
        table, requested = self._opened["input"], self.settings.rows
        self._rows, nights = _find_nights(read_metric_rows(table), table.name, requested, self.settings.flags.end)
        return nights

    def judge(self, settings: FlagSettings, dataset: str) -> None:
        pairs = self._opened.get("per_query")
        if pairs is not None and "dataset" in pairs.info.names:
            pairs = filter_rows(pairs, "dataset", dataset)
        self._judged = judge_nights(self._rows, settings, per_query=pairs, query=self.settings.query)
        self._flags: list[dict[str, Any]] = self._judged.to_pylist()

    def list_keys(self) -> list[SliceKey]:
        return sorted({SliceKey(row["night"], row["run"]) for row in self._flags})

    def count_statuses(self) -> list[dict[str, Any]]:
        counts = []
        for status in sorted({row["status"] for row in self._flags}):
            rows = [row for row in self._flags if row["status"] == status]
            weekdays = [row["weekday"] for row in rows]
            paired = weekdays.count(BEFORE_PAIRED)
            numbers = {"n": len(rows), "before": weekdays.count(BEFORE) + paired, "paired": paired}
            numbers["held"] = sum(row["z"] is not None for row in rows)
            numbers["nights"] = max(row["n_nights"] or 0 for row in rows)
            counts.append({"status": status, **numbers})
        return counts

    def list_flags(self) -> list[dict[str, Any]]:
        return sorted((row for row in self._flags if row["status"] in PRINTED), key=_sort_key)[:MAX_FLAGS]

    def flag_table(self, facts: Mapping[str, Any]) -> Frame:
        return add_provenance_to_table(self._judged, facts, PROVENANCE)


def _sort_key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Sort flags like Spark, where null comes first."""
    keys = [row[name] for name in ("night", "run", "segment_by", "segment", "metric", "k")]
    return (
        PRINTED[row["status"]],
        row["z"] is not None,
        -abs(row["z"] or 0.0),
        [(key is not None, key) for key in keys],
    )


def _find_nights(rows: pa.Table, table: str, requested: MetricRows, until: date | None) -> tuple[pa.Table, Nights]:
    """Select the requested rows of a table, and find their data set and nights."""
    selected = _select_rows(rows, requested)
    nights = selected.column(NIGHT)
    if nights.null_count:
        raise InputRefusedError(f"the {METRIC_TABLE} has a row whose run_date is not a date: null.")
    if not selected.num_rows or requested.metrics:
        _require_names(rows, requested)
    datasets = pc.unique(selected.column("dataset").drop_null()).to_pylist()
    extent = pc.min_max(nights).as_py()
    computed_at = pc.max(select_nights(selected, None, until).column("computed_at")).as_py()
    return selected, choose_nights(table, requested, datasets, (extent["min"], extent["max"]), computed_at)


def _select_rows(rows: pa.Table, requested: MetricRows) -> pa.Table:
    """Select the requested rows, of all data sets if none was named."""
    for name in ("dataset", "config_hash"):
        value = getattr(requested, name)
        if value is not None:
            rows = rows.filter(pc.equal(rows.column(name), value))
    metrics, ks = rows.column("metric"), rows.column("k")
    if not requested.metrics:
        if not requested.WITHOUT:
            return rows
        is_left_out = pc.is_in(metrics, pa.array(requested.WITHOUT, pa.string()))
        return rows.filter(pc.and_(metrics.is_valid(), pc.invert(is_left_out)))
    selected = pa.chunked_array([pa.repeat(False, rows.num_rows)])
    for metric in requested.metrics:
        is_metric = pc.equal(metrics, str(metric.metric))
        if metric.k != EVERY:
            is_metric = pc.and_(is_metric, pc.is_in(ks, pa.array([metric.k], pa.int32())))  # null matches null
        selected = pc.or_(selected, pc.fill_null(is_metric, False))
    return rows.filter(selected)


def _require_names(rows: pa.Table, requested: MetricRows) -> None:
    """Raise for the first requested name that the table does not have."""
    for column, what in (("dataset", "data set"), ("config_hash", "config_hash")):
        name = getattr(requested, column)
        if name is not None:
            _require_present(what, pc.unique(rows.column(column)).to_pylist(), [name])
            rows = rows.filter(pc.equal(rows.column(column), name))
    series = rows.filter(rows.column("metric").is_valid()).group_by(["metric", "k"]).aggregate([]).to_pylist()
    names = [str(metric.metric) for metric in requested.metrics]
    _require_present("metric", [row["metric"] for row in series], names)
    cutoffs = [metric.label for metric in requested.metrics if metric.k != EVERY]
    _require_present("metric", [labels.metric_at(row["metric"], row["k"]) for row in series], cutoffs)


def _require_present(what: str, present: list[str | None], names: list[str]) -> None:
    missing = [name for name in names if name not in present]
    if missing:
        raise build_absence_error(what, missing[0], sorted(filter(None, {*present}), reverse=True)[: MAX_NAMES + 1])
