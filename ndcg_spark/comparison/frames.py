"""Per-query tables of several runs to their comparison: one shuffle of rows pairs them, sums do the rest."""

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
_COUNTED = from_arrow_schema(finishing.COUNTED_SCHEMA)
_PARTIAL = from_arrow_schema(summing.PARTIAL_SCHEMA)


def compare_queries(tables: Sequence[tuple[DataFrame, str | None]], settings: ComparisonSettings) -> DataFrame:
    """Compare runs by the metrics of their queries; lazy, the columns of `COUNTED_SCHEMA`.

    Each table comes with the run that it holds, None where a column `run` tells; rows of other runs are left out.
    Refusals are kept (`in_workers`): those of the tables, and of rows that cannot be paired.

    Spark cost: one shuffle of the rows, of the columns that are needed (two with a cluster column), and sorts within
    partitions; three small shuffles of sums; four passes through Python workers. No action.
    """
    results = estimated_groups(tables, settings).repartition(1)
    return in_workers(results, finishing.decide_family, settings, schema=_COUNTED)


def estimated_groups(tables: Sequence[tuple[DataFrame, str | None]], settings: ComparisonSettings) -> DataFrame:
    """Compare runs as `compare_queries`, without the columns `OF_FAMILY`, and without refusing empty runs; lazy."""
    rows = canonical_rows(tables, settings)
    if settings.cluster is not None:
        schema = T.StructType(
            [
                *(one for one in rows.schema if one.name not in (pairing.CLUSTER, REFUSAL)),
                T.StructField(pairing.UNIT, T.LongType()),
                T.StructField(pairing.SOLO, T.BooleanType()),
            ]
        )
        checked = rows.repartition(pairing.QUERY).sortWithinPartitions(pairing.QUERY)
        rows = in_workers(checked, pairing.unify_queries, settings, schema=schema, keep_refusals=True)
    units = rows.repartition(pairing.UNIT).sortWithinPartitions(*pairing.order_of_units(settings))
    sums = in_workers(units, summing.add_up, settings, schema=_PARTIAL, keep_refusals=True)
    blocks = sums.repartition(*summing.GROUP_KEYS, "kind", "block")
    groups = in_workers(blocks, summing.merge_sums, schema=_PARTIAL).repartition(*summing.GROUP_KEYS)
    return in_workers(groups, finishing.estimate_groups, settings, schema=_COUNTED)


def canonical_rows(tables: Sequence[tuple[DataFrame, str | None]], settings: ComparisonSettings) -> DataFrame:
    """Select what a comparison needs, under the names that workers know; lazy."""
    plans = plan_queries([(describe_table(frame), run) for frame, run in tables], settings)
    found = [_selected(frame, plan, settings) for (frame, _), plan in zip(tables, plans, strict=True)]
    return reduce(partial(DataFrame.unionByName, allowMissingColumns=True), found)


def key_hash(keys: Sequence[Column]) -> Column:
    """Hash of keys as text, by which queries and clusters get their random numbers."""
    return F.xxhash64(F.lit(SALT), *keys)


def _selected(frame: DataFrame, plan: QueriesPlan, settings: ComparisonSettings) -> DataFrame:
    found = {name: read_column(frame, one) for name, one in plan.columns.items()}
    told = {name: read_column(frame, one) for name, one in plan.told.items()}
    query, rows = key_hash([found[name] for name in plan.keys]), frame
    found[pairing.UNIT if settings.cluster is None else pairing.QUERY] = query
    if settings.cluster is not None:
        unit = found[pairing.CLUSTER]
        found[pairing.CLUSTER] = F.when(unit.isNotNull(), key_hash([unit]))
    if plan.run is None:
        run = found[pairing.RUN]
        numbers = [F.when(run == name, F.lit(number)) for number, name in enumerate(settings.runs)]
        found[pairing.RUN] = F.coalesce(*numbers).cast("int")
        rows = filter_rows(frame, run.isin(*settings.runs))
    else:
        found[pairing.RUN] = F.lit(plan.run).cast("int")
    if told:
        is_missing, has_none = (F.coalesce(told[STATUS] == one, F.lit(False)) for one in ("missing", "no_relevant"))
        found[pairing.MISSING] = is_missing
        skipped = F.lit(settings.skips_no_relevant)
        if plan.shows_skipped:
            skipped |= told["idcg"].isNotNull() & told["ndcg"].isNull()
        for name in map(pairing.value_column, range(len(settings.compared))):
            found[name] = F.when(~(has_none & skipped), found[name])
    if RULES in found:
        found[RULES] = F.when(found[RULES] == settings.rules, pairing.SAME_RULES).otherwise(found[RULES])
    kept = exact_cols([REFUSAL] if REFUSAL in frame.columns else [])
    return _at_cutoffs(rows, settings).select(*[column.alias(name) for name, column in found.items()], *kept)


def _at_cutoffs(rows: DataFrame, settings: ComparisonSettings) -> DataFrame:
    """Leave out rows of cutoffs at which nothing is compared."""
    wanted = {one.k for one in settings.metrics}
    if EVERY in wanted:
        return rows
    numbers = [k for k in wanted if k is not None]
    kept = exact_col("k").isin(*numbers) if numbers else F.lit(False)
    return filter_rows(rows, kept | exact_col("k").isNull() if None in wanted else kept)


def runs_in(frame: DataFrame) -> dict[str, bool]:
    """Run an action: list the runs of a table, sorted, and whether rows of each have a stored weight."""
    has_weight = exact_col(STORED_WEIGHT).isNotNull() if has_column(frame, STORED_WEIGHT) else F.lit(False)
    rows = (
        frame.where(exact_col(pairing.RUN).isNotNull())
        .groupBy(*exact_cols([pairing.RUN]))
        .agg(F.max(has_weight))
        .collect()
    )
    return {str(run): bool(weighted) for run, weighted in sorted(map(tuple, rows), key=lambda row: str(row[0]))}
