"""Nights of metric tables without Spark: their rows, series and flags. The counterpart of `frames`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ndcg_spark.core.batches import concat_chunks
from ndcg_spark.core.schemas import TableInfo
from ndcg_spark.evaluation.rules import RULES
from ndcg_spark.history import tasks
from ndcg_spark.history.settings import METRIC_TABLE, NIGHT, FlagSettings
from ndcg_spark.sources.local import LocalTable, find_type_obstacle, read_columns

MAX_METRIC_BYTES = 256 * 2**20
"""Larger files of a metric table are read by Spark, whose executors share the rows."""
_TEXTS = ("run", "segment_by", "segment", "metric", "config_hash", RULES, "dataset")
_METRIC_TYPES = {
    "run_date": pa.date32(),
    **dict.fromkeys(_TEXTS, pa.string()),
    **dict.fromkeys(("value", "std_error"), pa.float64()),
    **dict.fromkeys(("k", "n_queries"), pa.int64()),
    "computed_at": pa.timestamp("us", "UTC"),
}
_OF_RUN = ("run", "metric", "k")
"""Keys that the series of a run share with its series over all queries."""
_RUN_NIGHT = ("day", "config_hash", RULES, "segment_by")
_SERIES_NIGHT = ("day", "value", "std_error", "config_hash", RULES, "n_queries")
_SERIES_PER_BATCH = 1000


def find_metric_table_obstacle(table: LocalTable) -> str | None:
    """Describe in a clause why only Spark reads a metric table; None if `read_metric_rows` does."""
    if table.n_bytes > MAX_METRIC_BYTES:
        return f"{table.name} has more than {MAX_METRIC_BYTES >> 20} MiB"
    return find_type_obstacle(table, _METRIC_TYPES)


def require_metric_columns(info: TableInfo) -> None:
    """Refuse a metric table that lacks a column that `read_metric_rows` needs."""
    for name in ("run_date", *tasks.SERIES, "value"):
        replace(info, label=METRIC_TABLE).require(name, f"column of a {METRIC_TABLE}")


def read_metric_rows(table: LocalTable) -> pa.Table:
    """Read the columns that flags need, with `night` in place of `run_date`, and null where the table lacks one.

    Null `run`, `segment_by` and `rules` are empty, as is `segment` for all queries.
    """
    rows = read_columns(table, _METRIC_TYPES)
    columns = {NIGHT if name == "run_date" else name: rows.column(name) for name in rows.column_names}
    columns |= {name: pc.fill_null(columns[name], "") for name in ("run", "segment_by", RULES)}
    columns["segment"] = pc.if_else(pc.equal(columns["segment_by"], ""), "", columns["segment"])
    columns["k"] = columns["k"].cast(pa.int32())
    return pa.table(columns)


def find_missing_series(rows: pa.Table, night: date) -> list[dict[str, Any]]:
    """Find the series that are missing on a night, with `MISSING_COLUMNS`; `rows` are of `read_metric_rows`."""
    settings = FlagSettings(start=night, end=night, lookback=tasks.LATEST_DAYS)
    judged = tasks.flag_nights(collect_series(rows, settings), settings, tasks.MISSING_COLUMNS)
    return [row for batch in judged for row in batch.to_pylist() if row["status"] == tasks.MISSING]


def select_nights(rows: pa.Table, first: date | None, last: date | None) -> pa.Table:
    """Select the rows of the nights from `first` to `last`; None: no bound."""
    for bound, compare in ((first, pc.greater_equal), (last, pc.less_equal)):
        if bound is not None:
            rows = rows.filter(compare(rows.column(NIGHT), pa.scalar(bound, pa.date32())))
    return rows


def collect_series(rows: pa.Table, settings: FlagSettings) -> Iterator[pa.RecordBatch]:
    """Collect the nights of each series, of its run and of the table, as `flag_nights` reads them.

    `rows` has the columns of `read_metric_rows`; those of the data set, the time, and `std_error` may be missing.
    """
    if "std_error" not in rows.column_names:
        rows = rows.append_column("std_error", pa.nulls(rows.num_rows, pa.float64()))
    rows = rows.append_column("day", rows.column(NIGHT).cast(pa.int32()))
    first, first_of_runs = tasks.find_first_nights(settings)
    series, nights = _collect_by(tasks.SERIES, _SERIES_NIGHT, select_nights(rows, first, settings.end))
    latest = select_nights(rows, first_of_runs, settings.end)
    distinct = latest.group_by([*_OF_RUN, *_RUN_NIGHT], use_threads=False).aggregate([])
    runs, run_nights = _collect_by(_OF_RUN, _RUN_NIGHT, distinct)
    table_nights = pc.unique(latest.column("day")).to_pylist()
    numbers = {tuple(run.values()): number for number, run in enumerate(runs.to_pylist())}
    for start in range(0, series.num_rows, _SERIES_PER_BATCH):
        batch = series.slice(start, _SERIES_PER_BATCH)
        of_run = [numbers.get(tuple(run.values())) for run in batch.select(_OF_RUN).to_pylist()]
        of_table = [None if by else table_nights for by in batch.column("segment_by").to_pylist()]
        batch = batch.append_column("nights", nights.slice(start, batch.num_rows))
        batch = batch.append_column("run_nights", run_nights.take(pa.array(of_run, pa.int64())))
        batch = batch.append_column("table_nights", pa.array(of_table, pa.list_(pa.int32())))
        yield from batch.combine_chunks().to_batches()


def _collect_by(keys: Sequence[str], columns: Sequence[str], rows: pa.Table) -> tuple[pa.Table, pa.ListArray]:
    """Return the distinct keys, and for each the list of its rows as structs of `columns`."""
    numbered = rows.select(keys).append_column("row", pa.array(np.arange(rows.num_rows)))
    groups = numbered.group_by(list(keys), use_threads=False).aggregate([("row", "list")])
    members = concat_chunks(groups.column("row_list"))
    taken = rows.select(columns).take(members.values)
    structs = pa.StructArray.from_arrays([concat_chunks(column) for column in taken.columns], names=list(columns))
    return groups.select(keys), pa.ListArray.from_arrays(members.offsets, structs)
