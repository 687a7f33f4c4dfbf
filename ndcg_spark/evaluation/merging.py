"""Merge summaries of disjoint sets of queries, with Spark or on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

import pyarrow as pa
import pyarrow.compute as pc

from ndcg_spark.core import labels
from ndcg_spark.core.adapters import convert_tables, is_spark_table, refuses_streams
from ndcg_spark.core.arrow_tables import ArrowTable, sort_rows
from ndcg_spark.core.engine import require_spark, resolve_engine
from ndcg_spark.core.schemas import TableInfo, format_type
from ndcg_spark.errors import InputRefusedError, check_fraction
from ndcg_spark.evaluation.api import find_memory_obstacle
from ndcg_spark.evaluation.rules import RULES
from ndcg_spark.evaluation.tasks.partial_sums import OPTIONAL_COUNTS, PARTIAL_SCHEMA, compute_means, merge_partials
from ndcg_spark.evaluation.tasks.stored import SUMMARY_SCHEMA
from ndcg_spark.sources.local import LocalTable, open_memory_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

METRIC_TABLE = "metric table"
_MERGED = pa.schema([*PARTIAL_SCHEMA, (RULES, pa.string())])


@overload
def merge_summaries(summaries: DataFrame, *, confidence: float = 0.95, across_rules: bool = False) -> DataFrame: ...
@overload
def merge_summaries(
    summaries: ArrowTable, *, confidence: float = 0.95, across_rules: bool = False
) -> DataFrame | pa.Table: ...
@refuses_streams
def merge_summaries(
    summaries: DataFrame | ArrowTable, *, confidence: float = 0.95, across_rules: bool = False
) -> DataFrame | pa.Table:
    """Merge summaries of disjoint sets of queries, such as nights, exactly and without reading rankings again.

    Parameters
    ----------
    summaries : DataFrame or other table
        Rows of one or more summaries or metric tables, with `state`. Rows that are merged into one must have the same
        `rules`, as far as known. Tables may lack `rules`, `asked`, `n_rejected`, `n_lost_queries`,
        `n_unjudged_items` or `n_top_items`; the merged values are then null.
    confidence : float
        Level of the new confidence intervals.
    across_rules : bool
        Also merge rows with different rules. The rules that differ are then `mixed` in `rules`.

    Returns
    -------
    DataFrame or pyarrow.Table
        As for `summarize`, one row per (run, segment, metric, k); bit for bit equal to evaluating all queries
        together. Lazy for a Spark DataFrame; the action raises if rows with different `rules` would be merged, and
        names the differences. Other tables are merged immediately on this machine, to a sorted Arrow table.

    Raises
    ------
    MissingColumnError, InvalidParameterError, InputRefusedError
        For a table that is not a summary, a confidence outside 0 and 1, or rows with different `rules`.

    Notes
    -----
    Spark cost: one small shuffle, no action, one pass through Python workers.
    """
    check_fraction("confidence", confidence)
    requested, origin = resolve_engine("auto", "")
    obstacle = f"{origin} was requested" if requested == "spark" else None
    if is_spark_table(summaries):
        obstacle = "the table is a Spark DataFrame"
    if obstacle is None:
        table = open_memory_table(summaries, "summaries", label=METRIC_TABLE)
        obstacle = find_memory_obstacle({"summaries": table}) if requested == "auto" else None
        if obstacle is None:
            return _merge(read_summary_rows(table, _MERGED), confidence, across_rules=across_rules)
    require_spark(obstacle, requested, origin, "merge")
    from ndcg_spark.evaluation.frames.summary import merge_on_spark

    (frame,) = convert_tables({"summaries": summaries}).values()
    return merge_on_spark(frame, confidence, across_rules=across_rules)


def _merge(rows: pa.Table, confidence: float, *, across_rules: bool) -> pa.Table:
    rules = pc.fill_null(rows.column(RULES), "")
    merged = merge_partials(rows.set_column(rows.num_columns - 1, RULES, rules))
    means = pa.Table.from_batches(list(compute_means(iter([merged]), confidence, None, across_rules)))
    return sort_rows(means.select(SUMMARY_SCHEMA.names).cast(SUMMARY_SCHEMA))


def read_summary_rows(table: LocalTable, target: pa.Schema) -> pa.Table:
    """Read rows of a summary or metric table. Optional counts, rules and names that it lacks are null."""
    info, optional = table.info, (*OPTIONAL_COUNTS, labels.ASKED, RULES)
    present = [field for field in target if field.name not in optional or info.has(field.name)]
    types = {field.name: info.require(field.name, f"column of a {METRIC_TABLE}") for field in present}
    schema = pa.schema(list(types.items()))
    batches = (batch for part in table.parts(1) for batch in part.read(schema.names, schema, 2**20))
    rows = pa.Table.from_batches(batches, schema)
    nulls = {field.name: pa.nulls(len(rows), field.type) for field in target}
    return pa.table(nulls | {field.name: _cast(rows.column(field.name), field, info) for field in present})


def _cast(column: pa.ChunkedArray, field: pa.Field, info: TableInfo) -> pa.ChunkedArray:
    try:
        return column.cast(field.type)
    except pa.ArrowException as error:
        actual, expected = info.type_text(field.name), format_type(field.type)
        raise InputRefusedError(f"column {field.name!r} of the {info.label} is {actual}, not {expected}.") from error
