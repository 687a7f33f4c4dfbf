"""Summaries of disjoint sets of queries, merged where they are: by Spark, or on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

import pyarrow as pa
import pyarrow.compute as pc

from ndcg_spark.core import labels
from ndcg_spark.core.arrow_tables import ArrowTable, sort_rows
from ndcg_spark.core.engine import require_spark, resolve_engine
from ndcg_spark.core.given import convert_tables, is_spark_table, refuses_streams
from ndcg_spark.core.schemas import TableInfo, format_type
from ndcg_spark.errors import InputRefusedError, check_fraction
from ndcg_spark.evaluation.api import find_memory_obstacle
from ndcg_spark.evaluation.rules import RULES
from ndcg_spark.evaluation.tasks.partial_sums import OPTIONAL_COUNTS, PARTIAL_SCHEMA, finish_means, merge_partials
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
        Rows of one or more summaries or metric tables, with `state`. Rows that are merged into one must agree on
        `rules`, as far as these are known. Rows may lack `rules`, `asked`, `n_rejected`, `n_lost_queries`,
        `n_unjudged_items` or `n_top_items`; sums of such rows have null there.
    confidence : float
        Level of the new confidence intervals.
    across_rules : bool
        Whether rows of different rules are merged all the same. What differs is then `mixed` in `rules`.

    Returns
    -------
    DataFrame or pyarrow.Table
        As for `summarize`, one row per (run, segment, metric, k): the same bits as if all queries had been evaluated
        together. Lazy for a DataFrame of Spark, whose action raises if rows of different `rules` would be merged, and
        names what differs. Other tables are merged at once on this machine, to a sorted table of Arrow.

    Raises
    ------
    MissingColumnError, InvalidParameterError, InputRefusedError
        For a table that is not a summary, a confidence outside 0 and 1, and rows of different `rules`.

    Notes
    -----
    Spark cost: one small shuffle, no action, one pass through Python workers.
    """
    check_fraction("confidence", confidence)
    requested, origin = resolve_engine("auto", "")
    obstacle = f"{origin} was asked for" if requested == "spark" else None
    if is_spark_table(summaries):
        obstacle = "the table is one of Spark"
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
    means = pa.Table.from_batches(list(finish_means(iter([merged]), confidence, None, across_rules)))
    return sort_rows(means.select(SUMMARY_SCHEMA.names).cast(SUMMARY_SCHEMA))


def read_summary_rows(table: LocalTable, target: pa.Schema) -> pa.Table:
    """Read rows of a summary or metric table; counts, rules and names that it lacks are null, as a user's may."""
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
