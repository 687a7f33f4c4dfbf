"""Compare runs of per-query tables on Spark: one shuffle pairs rows of queries (two with clusters)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema

from ndcg_spark.comparison.plan import SALT, STATUS, STORED_WEIGHT, QueriesPlan, plan_queries
from ndcg_spark.comparison.settings import ComparisonSettings
from ndcg_spark.comparison.tasks import finishing, pairing, summing
from ndcg_spark.core.batches import REFUSAL
from ndcg_spark.core.columns import describe_table, exact_col, exact_cols, has_column
from ndcg_spark.core.workers import filter_rows, in_workers
from ndcg_spark.evaluation.frames.columns import read_column
from ndcg_spark.evaluation.rules import RULES
from ndcg_spark.metrics import EVERY

COMPARISON_SCHEMA: T.StructType = from_arrow_schema(finishing.RESULT_SCHEMA)
_WITH_TOP_ITEMS = from_arrow_schema(finishing.SCHEMA_WITH_TOP_ITEMS)
_PARTIAL = from_arrow_schema(summing.PARTIAL_SCHEMA)


def compare_queries(tables: Sequence[tuple[DataFrame, str | None]], settings: ComparisonSettings) -> DataFrame:
    """Compare runs by the metrics of their queries; lazy, the columns of `SCHEMA_WITH_TOP_ITEMS`.

    Each table comes with the run that it holds; None if a column `run` names the runs. Rows of other runs are
    dropped. Refusals stay rows (`in_workers`): refusals in the tables, and of rows that cannot be paired.

    Spark cost: one shuffle of the needed columns of all rows (two with a cluster column), and sorts within
    partitions; three small shuffles of sums; four passes through Python workers (five with a cluster column). No
    action.
    """
    results = estimate_all_groups(tables, settings).repartition(1)
    return in_workers(results, finishing.decide_family, settings, schema=_WITH_TOP_ITEMS)


def estimate_all_groups(tables: Sequence[tuple[DataFrame, str | None]], settings: ComparisonSettings) -> DataFrame:
    """Compare runs like `compare_queries`, but accept empty runs; lazy.

    `FAMILY_COLUMNS` stay null, except the verdicts of rows that are not tested.
    """
    rows = select_rows(tables, settings)
    if settings.cluster is not None:
        schema = T.StructType(
            [
                *(field for field in rows.schema if field.name not in (pairing.CLUSTER, REFUSAL)),
                T.StructField(pairing.UNIT, T.LongType()),
                T.StructField(pairing.UNCLUSTERED, T.BooleanType()),
            ]
        )
        by_query = rows.repartition(pairing.QUERY).sortWithinPartitions(pairing.QUERY)
        rows = in_workers(by_query, pairing.unify_queries, settings, schema=schema, keep_refusals=True)
    units = rows.repartition(pairing.UNIT).sortWithinPartitions(*pairing.list_sort_columns(settings))
    sums = in_workers(units, summing.add_up, settings, schema=_PARTIAL, keep_refusals=True)
    blocks = sums.repartition(*summing.GROUP_KEYS, "kind", "block")
    groups = in_workers(blocks, summing.merge_sums, schema=_PARTIAL).repartition(*summing.GROUP_KEYS)
    return in_workers(groups, finishing.estimate_groups, settings, schema=_WITH_TOP_ITEMS)


def select_rows(tables: Sequence[tuple[DataFrame, str | None]], settings: ComparisonSettings) -> DataFrame:
    """Select the columns that a comparison needs, under the names that workers use; lazy."""
    plans = plan_queries([(describe_table(frame), run) for frame, run in tables], settings)
    selected = [_select_columns(frame, plan, settings) for (frame, _), plan in zip(tables, plans, strict=True)]
    return reduce(partial(DataFrame.unionByName, allowMissingColumns=True), selected)


def hash_keys(keys: Sequence[Column]) -> Column:
    """Hash keys as text; the hash seeds the random numbers of queries and clusters."""
    return F.xxhash64(F.lit(SALT), *keys)


def _select_columns(frame: DataFrame, plan: QueriesPlan, settings: ComparisonSettings) -> DataFrame:
    columns = {column: read_column(frame, read) for column, read in plan.columns.items()}
    status = {column: read_column(frame, read) for column, read in plan.status_columns.items()}
    query, rows = hash_keys([columns[column] for column in plan.keys]), frame
    columns[pairing.UNIT if settings.cluster is None else pairing.QUERY] = query
    if settings.cluster is not None:
        cluster = columns[pairing.CLUSTER]
        columns[pairing.CLUSTER] = F.when(cluster.isNotNull(), hash_keys([cluster]))
    if plan.run is None:
        run = columns[pairing.RUN]
        numbers = [F.when(run == name, F.lit(number)) for number, name in enumerate(settings.runs)]
        columns[pairing.RUN] = F.coalesce(*numbers).cast("int")
        rows = filter_rows(frame, run.isin(*settings.runs))
    else:
        columns[pairing.RUN] = F.lit(plan.run).cast("int")
    if status:
        is_missing, has_no_relevant = (
            F.coalesce(status[STATUS] == state, F.lit(False)) for state in ("missing", "no_relevant")
        )
        columns[pairing.MISSING] = is_missing
        is_skipped = F.lit(settings.skips_no_relevant)
        if plan.shows_skipped:
            is_skipped |= status["idcg"].isNotNull() & status["ndcg"].isNull()
        for column in map(pairing.value_column, range(len(settings.compared))):
            columns[column] = F.when(~(has_no_relevant & is_skipped), columns[column])
    if RULES in columns:
        columns[RULES] = F.when(columns[RULES] == settings.rules, pairing.SAME_RULES).otherwise(columns[RULES])
    refusals = exact_cols([REFUSAL] if REFUSAL in frame.columns else [])
    return _filter_cutoffs(rows, settings).select(
        *[expression.alias(column) for column, expression in columns.items()], *refusals
    )


def _filter_cutoffs(rows: DataFrame, settings: ComparisonSettings) -> DataFrame:
    """Drop rows of cutoffs at which nothing is compared."""
    cutoffs = {metric.k for metric in settings.metrics}
    if EVERY in cutoffs:
        return rows
    numbers = [k for k in cutoffs if k is not None]
    condition = exact_col("k").isin(*numbers) if numbers else F.lit(False)
    return filter_rows(rows, condition | exact_col("k").isNull() if None in cutoffs else condition)


def list_runs(frame: DataFrame) -> dict[str, bool]:
    """Run an action: map each run of a table, sorted, to True if any of its rows has a stored weight."""
    has_weight = exact_col(STORED_WEIGHT).isNotNull() if has_column(frame, STORED_WEIGHT) else F.lit(False)
    rows = (
        frame.where(exact_col(pairing.RUN).isNotNull())
        .groupBy(*exact_cols([pairing.RUN]))
        .agg(F.max(has_weight))
        .collect()
    )
    return {str(run): bool(weighted) for run, weighted in sorted(map(tuple, rows), key=lambda row: str(row[0]))}
