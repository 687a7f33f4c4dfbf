"""Periods of metric tables and comparison tables without Spark. The counterpart of `frames.roll_up_table`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from ndcg_spark.comparison.tasks import finishing
from ndcg_spark.core.labels import ASKED
from ndcg_spark.core.schemas import TableInfo
from ndcg_spark.core.student import require_scipy
from ndcg_spark.evaluation.rules import RULES
from ndcg_spark.evaluation.tasks.partial_sums import GROUP_COUNTS, OPTIONAL_COUNTS, PARTIAL_SCHEMA
from ndcg_spark.evaluation.tasks.stored import CONFIG_HASH, CONVENTION
from ndcg_spark.history.local import group_rows, name_nights, require_columns, select_nights, to_table
from ndcg_spark.history.settings import COMPARISON_TABLE, METRIC_TABLE, NIGHT, MetricRows, RollUpSettings
from ndcg_spark.history.tasks import period_sums
from ndcg_spark.history.tasks.judging import SERIES
from ndcg_spark.sources.local import LocalTable, find_result_obstacle, read_columns


def is_comparison(info: TableInfo) -> bool:
    return info.has("baseline")


def find_period_obstacle(table: LocalTable, settings: RollUpSettings) -> str | None:
    """Describe in a clause why only Spark adds up nights of a table; None if `read_period_rows` reads it."""
    return find_result_obstacle(table, _list_types(table.info, settings))


def check_roll_up(info: TableInfo, requested: MetricRows, settings: RollUpSettings) -> None:
    """Refuse a table without a column that is needed or by which rows are requested, and settings it cannot have."""
    if is_comparison(info):
        require_scipy()
    else:
        period_sums.find_day_quantiles(settings)
    label = COMPARISON_TABLE if is_comparison(info) else METRIC_TABLE
    needed = [name for name in ("metric", "run_date", *SERIES, *_list_sums(info)) if name not in OPTIONAL_COUNTS]
    require_columns(replace(info, label=label), requested, needed)


def read_period_rows(table: LocalTable, settings: RollUpSettings) -> pa.Table:
    """Read the columns that `roll_up_table` needs, in the form of `local.read_metric_rows`."""
    return name_nights(read_columns(table, _list_types(table.info, settings)))


def _list_sums(info: TableInfo) -> tuple[str, ...]:
    return ("baseline", *period_sums.STORED) if is_comparison(info) else (*GROUP_COUNTS, "state")


def _list_types(info: TableInfo, settings: RollUpSettings) -> dict[str, pa.DataType]:
    results = finishing.RESULT_SCHEMA if is_comparison(info) else PARTIAL_SCHEMA
    may_need_replicates = is_comparison(info) and settings.independence in (None, "query")
    replicates = ("replicates",) if may_need_replicates and info.has("replicates") else ()
    sums = {name: results.field(name).type for name in (*SERIES, ASKED, *_list_sums(info), *replicates)}
    texts = dict.fromkeys(("dataset", CONVENTION, CONFIG_HASH, RULES), pa.string())
    return {**sums, **texts, "k": pa.int64(), "run_date": pa.date32(), "computed_at": pa.timestamp("us", "UTC")}


def roll_up_table(rows: pa.Table, settings: RollUpSettings) -> pa.Table:
    """Add up nights, as described in `roll_up`; `rows` are of `read_period_rows`, and `settings` have an `as_of`."""
    nights = select_nights(select_nights(rows, None, settings.as_of), *settings.read)
    nights = nights.append_column("as_of", pa.repeat(pa.scalar(settings.as_of, pa.date32()), nights.num_rows))
    if "baseline" in rows.column_names:
        return _roll_up_comparisons(nights, settings)
    day_quantiles = period_sums.find_day_quantiles(settings)
    by_series = _sort_by(nights, period_sums.SERIES_KEY, SERIES)
    return to_table(period_sums.roll_up_means(by_series, settings, day_quantiles), period_sums.MEANS_SCHEMA)


def _roll_up_comparisons(nights: pa.Table, settings: RollUpSettings) -> pa.Table:
    by_series = _sort_by(nights.sort_by(NIGHT), period_sums.SERIES_KEY, period_sums.SERIES_OF_PAIRS)
    periods = to_table(period_sums.roll_up_nights(by_series, settings), period_sums.PAIRS_SCHEMA)
    by_family = _sort_by(periods, period_sums.FAMILY, [*period_sums.PERIOD, "baseline"])
    return to_table(period_sums.decide_families(by_family, settings), period_sums.PAIRS_SCHEMA)


def _sort_by(rows: pa.Table, key: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Put rows with the same `columns` next to each other, in their order, and add their number as `key`."""
    _, members = group_rows(columns, rows)
    ordered = rows.take(members.values).append_column(key, pc.list_parent_indices(members))
    return iter(ordered.combine_chunks().to_batches(period_sums.ROWS_PER_CHUNK))
