"""Per-query tables of several runs to their comparison: one shuffle of rows pairs them, sums do the rest."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema

from ndcg_spark.comparison.settings import ComparisonSettings
from ndcg_spark.comparison.tasks import finishing, pairing, summing
from ndcg_spark.core.batches import REFUSAL
from ndcg_spark.core.columns import columns_of, comparable_key, has_column, named, require_column
from ndcg_spark.core.workers import filter_rows, in_workers
from ndcg_spark.errors import InputRefusedError, option
from ndcg_spark.evaluation.rules import RULES
from ndcg_spark.metrics import EVERY

COMPARISON_SCHEMA: T.StructType = from_arrow_schema(finishing.RESULT_SCHEMA)
_COUNTED = from_arrow_schema(finishing.COUNTED_SCHEMA)
_PARTIAL = from_arrow_schema(summing.PARTIAL_SCHEMA)
STORED_WEIGHT = "weight"
"""Column of per-query tables with the weight of a query in the means."""
_NUMBERS = (T.NumericType, T.BooleanType)


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
    rows = reduce(DataFrame.unionByName, canonical_rows(tables, settings))
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
    order = [pairing.UNIT] if settings.cluster is None else [pairing.UNIT, pairing.SOLO, pairing.QUERY]
    units = rows.repartition(pairing.UNIT).sortWithinPartitions(*order)
    sums = in_workers(units, summing.add_up, settings, schema=_PARTIAL, keep_refusals=True)
    blocks = sums.repartition(*summing.GROUP_KEYS, "kind", "block")
    groups = in_workers(blocks, summing.merge_sums, schema=_PARTIAL).repartition(*summing.GROUP_KEYS)
    return in_workers(groups, finishing.estimate_groups, settings, schema=_COUNTED)


def canonical_rows(tables: Sequence[tuple[DataFrame, str | None]], settings: ComparisonSettings) -> list[DataFrame]:
    """Select what a comparison needs, under the names that workers know: tables with the same columns, lazy."""
    _refuse_other_keys(tables, settings)
    has_ideal = settings.same_ideal and all(has_column(frame, "idcg") for frame, _ in tables)
    has_status = any(has_column(frame, "status") for frame, _ in tables)
    found = [_selected(frame, run, settings, has_ideal=has_ideal, has_status=has_status) for frame, run in tables]
    for name, kind in (*((name, "bigint") for name in pairing.TOP_ITEMS), (REFUSAL, "string")):
        if any(name in rows.columns for rows in found):
            null = F.lit(None).cast(kind)
            found = [rows if name in rows.columns else rows.withColumn(name, null) for rows in found]
    return found


def _refuse_other_keys(tables: Sequence[tuple[DataFrame, str | None]], settings: ComparisonSettings) -> None:
    """Raise where a query column has another kind of type in another table: as texts, 1 and 1.0 would be no pair."""
    for name in settings.query:
        kinds: dict[str, tuple[str, str | None]] = {}
        for frame, run in tables:
            table = "per-query table" if run is None else f"per-query table of run {run!r}"
            kind = require_column(frame, name, option("query"), table)
            kinds.setdefault(
                "whole" if isinstance(kind, T.IntegralType) else kind.simpleString(), (kind.simpleString(), run)
            )
        if len(kinds) > 1:
            (one, of), (other, of_other), *_ = kinds.values()
            raise InputRefusedError(
                f"column {name!r} is {one} in run {of!r} and {other} in run {of_other!r}; cast one of them so that "
                "values compare."
            )


def key_hash(keys: Sequence[Column]) -> Column:
    """Hash of keys as text, by which queries and clusters get their random numbers."""
    return F.xxhash64(F.lit("compare"), *keys)


def _selected(
    frame: DataFrame, run: str | None, settings: ComparisonSettings, *, has_ideal: bool, has_status: bool
) -> DataFrame:
    table = "per-query table" if run is None else f"per-query table of run {run!r}"
    keys = [comparable_key(frame, name, option("query"), table).cast("string") for name in settings.query]
    query, chosen = key_hash(keys), []
    if settings.cluster is None:
        chosen.append(query.alias(pairing.UNIT))
    else:
        unit = comparable_key(frame, settings.cluster, option("cluster"), table).cast("string")
        cluster = F.when(unit.isNotNull(), key_hash([unit]))
        chosen += [query.alias(pairing.QUERY), cluster.alias(pairing.CLUSTER)]
    chosen += [key.alias(pairing.key_column(at)) for at, key in enumerate(keys)]
    if run is None:
        require_column(frame, pairing.RUN, "it says whose row it is", table)
        numbers = [F.when(named(pairing.RUN) == name, F.lit(number)) for number, name in enumerate(settings.runs)]
        chosen.append(F.coalesce(*numbers).cast("int").alias(pairing.RUN))
    else:
        chosen.append(F.lit(settings.runs.index(run)).cast("int").alias(pairing.RUN))
    require_column(frame, "k", "k", table)
    chosen.append(named("k").cast("int").alias(pairing.K))
    counts = _counts_in_means(frame, settings)
    for at, metric in enumerate(settings.compared):
        value = _number(frame, metric.column, "metrics", table)
        chosen.append(F.when(counts, value).alias(pairing.value_column(at)))
    if has_ideal:
        chosen.append(_number(frame, "idcg", "ideal", table).alias(pairing.IDCG))
    if settings.weight is not None:
        chosen.append(_number(frame, settings.weight, option("weight"), table).alias(pairing.WEIGHT))
    for at, name in enumerate(settings.segment_columns):
        chosen.append(comparable_key(frame, name, option("segments"), table).alias(pairing.segment_column(at)))
    if has_status:
        is_missing = (
            F.coalesce(named("status") == "missing", F.lit(False)) if "status" in frame.columns else F.lit(False)
        )
        chosen.append(is_missing.alias(pairing.MISSING))
    if settings.rules_in_rows:
        text = named(RULES).cast("string") if has_column(frame, RULES) else F.lit(None).cast("string")
        chosen.append(F.when(text == settings.rules, pairing.SAME_RULES).otherwise(text).alias(RULES))
    chosen += columns_of([name for name in pairing.TOP_ITEMS if name in frame.columns])
    chosen += columns_of([REFUSAL] if REFUSAL in frame.columns else [])
    rows = filter_rows(frame, named(pairing.RUN).isin(*settings.runs)) if run is None else frame
    return _at_cutoffs(rows, settings).select(*chosen)


def _counts_in_means(frame: DataFrame, settings: ComparisonSettings) -> Column:
    """Whether a query counts in the means: under `no_relevant=skip` not if it has nothing relevant.

    Tables of which no convention is told show that rule where their NDCG is null beside an IDCG.
    """
    if "status" not in frame.columns:
        return F.lit(True)
    skipped = F.lit(settings.skips_no_relevant)
    if {"idcg", "ndcg"} <= set(frame.columns):
        skipped |= named("idcg").isNotNull() & named("ndcg").isNull()
    return ~(F.coalesce(named("status") == "no_relevant", F.lit(False)) & skipped)


def _number(frame: DataFrame, column: str, part: str, table: str) -> Column:
    kind = require_column(frame, column, part, table)
    if not isinstance(kind, _NUMBERS):
        raise InputRefusedError(f"column {column!r} ({part}) of the {table} is {kind.simpleString()}, not a number.")
    return named(column).cast("double")


def _at_cutoffs(rows: DataFrame, settings: ComparisonSettings) -> DataFrame:
    """Leave out rows of cutoffs at which nothing is compared."""
    wanted = {one.k for one in settings.metrics}
    if EVERY in wanted:
        return rows
    numbers = [k for k in wanted if k is not None]
    kept = named("k").isin(*numbers) if numbers else F.lit(False)
    return filter_rows(rows, kept | named("k").isNull() if None in wanted else kept)


def runs_in(frame: DataFrame) -> dict[str, bool]:
    """Run an action: list the runs of a table, sorted, and whether rows of each have a stored weight."""
    has_weight = named(STORED_WEIGHT).isNotNull() if has_column(frame, STORED_WEIGHT) else F.lit(False)
    rows = (
        frame.where(named(pairing.RUN).isNotNull())
        .groupBy(*columns_of([pairing.RUN]))
        .agg(F.max(has_weight))
        .collect()
    )
    return {str(run): bool(weighted) for run, weighted in sorted(map(tuple, rows), key=lambda row: str(row[0]))}
