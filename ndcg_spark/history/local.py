"""Nights of metric tables without Spark: their rows, series and flags. The counterpart of `frames`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ndcg_spark.comparison.local import StoredQueries, estimate_all_groups, hash_keys
from ndcg_spark.comparison.plan import STATUS, STORED_WEIGHT, find_local_obstacle, plan_queries
from ndcg_spark.comparison.settings import ComparisonSettings
from ndcg_spark.core.batches import concat_chunks
from ndcg_spark.core.schemas import TableInfo
from ndcg_spark.core.student import require_scipy
from ndcg_spark.evaluation.rules import RULES
from ndcg_spark.history.plan import (
    BASELINE,
    JUDGED,
    PAIR_KEYS,
    PER_QUERY_TABLE,
    create_comparison_settings,
    require_query_columns,
)
from ndcg_spark.history.settings import METRIC_TABLE, NIGHT, FlagSettings, MetricRows
from ndcg_spark.history.tasks import judging
from ndcg_spark.sources.local import (
    LocalTable,
    TablePart,
    filter_rows,
    find_result_obstacle,
    find_type_obstacle,
    read_columns,
)

_TEXTS = ("run", "segment_by", "segment", "metric", "config_hash", RULES, "dataset")
_METRIC_TYPES = {
    "run_date": pa.date32(),
    **dict.fromkeys(_TEXTS, pa.string()),
    **dict.fromkeys(("value", "std_error"), pa.float64()),
    **dict.fromkeys(("k", "n_queries", "n_missing"), pa.int64()),
    "computed_at": pa.timestamp("us", "UTC"),
}
_PER_QUERY_TYPES = {
    "run_date": pa.date32(),
    **dict.fromkeys(("run", "dataset", "config_hash", RULES, STATUS), pa.string()),
    STORED_WEIGHT: pa.float64(),
}
_OF_RUN = ("run", "metric", "k")
"""Keys that the series of a run share with its series over all queries."""
_COUNTS = ("n_queries", "n_missing")
_RUN_NIGHT = ("day", "config_hash", RULES, "segment_by")
_RUN_COUNT = ("day", RULES, *_COUNTS)
_SERIES_NIGHT = ("day", "value", "std_error", "config_hash", RULES, *_COUNTS)
_COMPARED = ("segment_by", "segment", "metric", "k")
_SERIES_PER_BATCH = 1000


def find_metric_table_obstacle(table: LocalTable) -> str | None:
    """Describe in a clause why only Spark reads a metric table; None if `read_metric_rows` does."""
    return find_result_obstacle(table, _METRIC_TYPES)


def find_per_query_obstacle(table: LocalTable, query: Sequence[str]) -> str | None:
    """Describe in a clause why only Spark reads a per-query table; None if `judge_nights` does."""
    return find_type_obstacle(table, _PER_QUERY_TYPES) or find_local_obstacle([table.info], query, None, ())


def require_metric_columns(info: TableInfo, requested: MetricRows) -> None:
    """Refuse a metric table that lacks a column by which rows are requested, or that `read_metric_rows` needs."""
    require_columns(replace(info, label=METRIC_TABLE), requested, ("metric", "run_date", *judging.SERIES, "value"))


def require_columns(info: TableInfo, requested: MetricRows, names: Sequence[str]) -> None:
    """Refuse a table of results that lacks a column by which rows are requested, or one of `names`."""
    for name in ("dataset", "config_hash"):
        if getattr(requested, name) is not None:
            info.require(name, f"--{name.replace('_', '-')}")
    for name in names:
        info.require(name, f"column of a {info.label}")


def read_metric_rows(table: LocalTable) -> pa.Table:
    """Read the columns that flags need, with `night` in place of `run_date`, and null where the table lacks one.

    Null `run`, `segment_by` and `rules` are empty, as is `segment` for all queries.
    """
    return name_nights(read_columns(table, _METRIC_TYPES))


def name_nights(rows: pa.Table) -> pa.Table:
    """Put rows of a metric table into the form of `read_metric_rows`."""
    columns = {NIGHT if name == "run_date" else name: rows.column(name) for name in rows.column_names}
    columns |= {name: pc.fill_null(columns[name], "") for name in ("run", "segment_by", RULES)}
    columns["segment"] = pc.if_else(pc.equal(columns["segment_by"], ""), "", columns["segment"])
    columns["k"] = pc.min_element_wise(columns["k"], 2**31 - 1, skip_nulls=False).cast(pa.int32())  # as Spark does
    return pa.table(columns)


def judge_nights(
    rows: pa.Table, settings: FlagSettings, *, per_query: LocalTable | None = None, query: Sequence[str] = ()
) -> pa.Table:
    """Judge nights by the nights before them, as described in `flag_changes`; `rows` are of `read_metric_rows`."""
    if per_query is None:
        return to_table(
            judging.flag_nights(collect_series(rows, settings), settings), judging.build_schema(judging.FLAG_COLUMNS)
        )
    require_scipy()
    require_query_columns(replace(per_query.info, label=PER_QUERY_TABLE), query)
    selected = select_nights(rows, judging.find_first_nights(settings)[0], settings.end)
    series = selected.group_by(["segment_by", "metric", "k"]).aggregate([]).to_pylist()
    comparison = create_comparison_settings(series, per_query.info, query)
    judged = judging.flag_nights(collect_series(rows, settings), settings, judging.TO_PAIR_COLUMNS)
    nights = to_table(judged, judging.build_schema(judging.TO_PAIR_COLUMNS))
    nights = nights.append_column("later", nights["night"]).append_column("earlier", nights["before"])
    compare = _prepare_pairs(per_query, comparison)
    paired = nights.drop_columns([*judging.PAIR_OF_FLAG]).append_column("paired", compare(nights))
    schema = pa.schema([*paired.schema, *judging.build_schema(judging.PAIR_OF_FLAG)])
    requested = to_table(judging.request_pairs(iter(paired.to_batches())), schema)
    with_flags: list[dict[str, Any]] = []
    for row, of_flag in zip(requested.to_pylist(), compare(requested).to_pylist(), strict=True):
        if row["later"] is None:
            with_flags.append(row | {"of_flags": []})
        else:  # it follows its night
            pair = {name: row[name] for name in judging.PAIR_OF_FLAG}
            with_flags[-1]["of_flags"].append({**pair, "paired": of_flag})
    flags = [judging.judge_by_pairs(row, settings) for row in with_flags]
    return pa.Table.from_pylist(flags, judging.build_schema(judging.FLAG_COLUMNS))


def to_table(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_batches(list(batches), schema)


def _prepare_pairs(per_query: LocalTable, settings: ComparisonSettings) -> Callable[[pa.Table], pa.Array]:
    """Return a function that compares pairs of nights like `frames.add_pairs`; at most three nights are in memory."""
    schema = pa.schema([*(field for field in per_query.info.schema if field.name != "run"), ("run", pa.string())])
    (plan,) = plan_queries([(replace(per_query.info, schema=schema), None)], settings)
    needed = [read.source[0] for read in plan.table.columns.values()]
    names = [name for name in (*needed, "run", RULES, "config_hash") if per_query.info.has(name)]
    types = {name: per_query.info.type_of(name) for name in names}

    @lru_cache(maxsize=3)
    def read_night(night: date) -> pa.Table:
        rows = read_columns(filter_rows(per_query, "run_date", str(night)), types)
        runs = pc.fill_null(rows.column("run"), "") if "run" in types else pa.repeat("", rows.num_rows)
        return rows.drop_columns(["run"] if "run" in types else []).append_column("run", runs)

    def compare(nights: pa.Table) -> pa.Array:
        keys = [tuple(row.values()) for row in nights.select(PAIR_KEYS).to_pylist()]
        differences: dict[tuple[Any, Any], dict[str, Any]] = {}
        for pair in sorted({key for key in keys if key[-1] is not None}, key=lambda key: key[:-3:-1]):
            pair_rows = _select_pair_rows(read_night, dict(zip(PAIR_KEYS, pair, strict=True)), settings)
            for row in _compare_pair(pair_rows, settings):
                series = tuple(row[name] for name in _COMPARED)
                differences[pair, series] = {name: row[name] for name in judging.PAIRED_COLUMNS}
        compared = [tuple(row.values()) for row in nights.select(_COMPARED).to_pylist()]
        paired = [differences.get(key) for key in zip(keys, compared, strict=True)]
        return pa.array(paired, pa.struct(list(judging.build_schema(judging.PAIRED_COLUMNS))))

    return compare


def _compare_pair(rows: pa.Table, settings: ComparisonSettings) -> Iterator[dict[str, Any]]:
    info = TableInfo(schema=rows.schema)
    table = LocalTable(info=info, name="", n_bytes=rows.nbytes, divide=lambda n_parts: [TablePart(rows)])
    for batch in estimate_all_groups([(StoredQueries(table), None)], settings):
        yield from batch.select([*_COMPARED, *judging.PAIRED_COLUMNS]).to_pylist()


def _select_pair_rows(
    read_night: Callable[[date], pa.Table], pair: Mapping[str, Any], settings: ComparisonSettings
) -> pa.Table:
    """Select the rows of both nights of a pair, with the night as the run, like `frames.add_pairs`."""
    sides = []
    for night, side in (("later", JUDGED), ("earlier", BASELINE)):
        rows = read_night(pair[night])
        rows = rows.filter(pc.equal(rows.column("run"), pair["run"]))
        if RULES in rows.column_names:
            texts = pc.unique(rows.column(RULES)).to_pylist()
            same = [text for text in texts if None in (text, pair[RULES]) or pair[RULES].startswith(text)]
            rows = rows.filter(pc.is_in(rows.column(RULES), pa.array(same, pa.string())))
        elif "config_hash" in rows.column_names:
            known = pa.array([pair["config_hash"]], pa.string())
            rows = rows.filter(pc.is_in(rows.column("config_hash"), known))  # null matches null
        side_column = pa.repeat(side, rows.num_rows)
        sides.append(rows.set_column(rows.column_names.index("run"), "run", side_column))
    rows = _unify_weights(pa.concat_tables(sides), settings)
    if STATUS in rows.column_names:
        # A query that was missing on one night is a pair, too: it fell to 0, or rose from it.
        status = rows.column(STATUS)
        known = pc.if_else(pc.equal(status, "missing"), pa.scalar(None, pa.string()), status)
        rows = rows.set_column(rows.column_names.index(STATUS), STATUS, known)
    return rows


def _unify_weights(rows: pa.Table, settings: ComparisonSettings) -> pa.Table:
    """Use the weight and segments of the later night that has a query, as they may differ between nights."""
    names = [*settings.segment_columns]
    if settings.weight is not None:  # null in runs without weights
        weights = pc.fill_null(rows.column(settings.weight).cast(pa.float64()), 1.0)
        rows = rows.set_column(rows.column_names.index(settings.weight), settings.weight, weights)
        names.append(settings.weight)
    if not names or not rows.num_rows:
        return rows
    has_status = STATUS in rows.column_names
    missing = pc.fill_null(pc.equal(rows.column(STATUS), "missing"), False).to_numpy() if has_status else False
    voice = np.where(missing, 0, 2) + pc.equal(rows.column("run"), JUDGED).to_numpy().astype(np.int64)
    queries = hash_keys([concat_chunks(rows.column(name).cast(pa.string())) for name in settings.query]).to_numpy()
    order = np.lexsort((-voice, queries))
    starts = np.append(True, queries[order][1:] != queries[order][:-1])
    leaders = np.empty_like(order)
    leaders[order] = order[np.flatnonzero(starts)[np.cumsum(starts) - 1]]
    # Rows of the leading night keep their own: differences between cutoffs are refused.
    sources = pa.array(np.where(voice == voice[leaders], np.arange(len(order)), leaders))
    for name in names:
        rows = rows.set_column(rows.column_names.index(name), name, rows.column(name).take(sources))
    return rows


def find_missing_series(rows: pa.Table, night: date) -> list[dict[str, Any]]:
    """Find the series that are missing on a night, with `MISSING_COLUMNS`; `rows` are of `read_metric_rows`."""
    settings = FlagSettings(start=night, end=night, lookback=judging.LATEST_DAYS)
    judged = judging.flag_nights(collect_series(rows, settings), settings, judging.MISSING_COLUMNS)
    return [row for batch in judged for row in batch.to_pylist() if row["status"] == judging.MISSING]


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
    first, first_of_runs = judging.find_first_nights(settings)
    needed = select_nights(rows, first, settings.end)
    series, nights = _collect_by(judging.SERIES, _SERIES_NIGHT, needed)
    latest = select_nights(rows, first_of_runs, settings.end)
    distinct = latest.group_by([*_OF_RUN, *_RUN_NIGHT], use_threads=False).aggregate([])
    overall = needed.filter(pc.equal(needed.column("segment_by"), ""))
    of_runs = {
        "run_nights": _collect_by(_OF_RUN, _RUN_NIGHT, distinct),
        "run_counts": _collect_by(_OF_RUN, _RUN_COUNT, overall),
    }
    positions = {
        name: {tuple(run.values()): position for position, run in enumerate(runs.to_pylist())}
        for name, (runs, _) in of_runs.items()
    }
    table_nights = pc.unique(latest.column("day")).to_pylist()
    for start in range(0, series.num_rows, _SERIES_PER_BATCH):
        batch = series.slice(start, _SERIES_PER_BATCH)
        keys = [tuple(run.values()) for run in batch.select(_OF_RUN).to_pylist()]
        of_table = [None if by else table_nights for by in batch.column("segment_by").to_pylist()]
        batch = batch.append_column("nights", nights.slice(start, batch.num_rows))
        for name, (_, lists) in of_runs.items():
            taken = pa.array([positions[name].get(key) for key in keys], pa.int64())
            batch = batch.append_column(name, lists.take(taken))
        batch = batch.append_column("table_nights", pa.array(of_table, pa.list_(pa.int32())))
        yield from batch.combine_chunks().to_batches()


def _collect_by(keys: Sequence[str], columns: Sequence[str], rows: pa.Table) -> tuple[pa.Table, pa.ListArray]:
    """Return the distinct keys, and for each the list of its rows as structs of `columns`."""
    groups, members = group_rows(keys, rows)
    taken = rows.select(columns).take(members.values)
    structs = pa.StructArray.from_arrays([concat_chunks(column) for column in taken.columns], names=list(columns))
    return groups, pa.ListArray.from_arrays(members.offsets, structs)


def group_rows(keys: Sequence[str], rows: pa.Table) -> tuple[pa.Table, pa.ListArray]:
    """Return the distinct keys, and for each the numbers of its rows in their order."""
    numbered = rows.select(keys).append_column("row", pa.array(np.arange(rows.num_rows)))
    groups = numbered.group_by(list(keys), use_threads=False).aggregate([("row", "list")])
    return groups.select(keys), concat_chunks(groups.column("row_list"))
