"""Nights of a per-query table held against the night before, query by query: a comparison with nights as runs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from ndcg_spark.comparison.frames import STORED_WEIGHT, estimated_groups
from ndcg_spark.comparison.settings import ComparisonSettings
from ndcg_spark.comparison.tasks.pairing import PAIR
from ndcg_spark.core.expressions import columns_of, has_column, named, require_column
from ndcg_spark.errors import InputRefusedError, InvalidParameterError, option
from ndcg_spark.evaluation.rules import RULES
from ndcg_spark.evaluation.settings import SummedMetric
from ndcg_spark.history.frames.nights import NIGHT, config_hash, date_or_null
from ndcg_spark.history.tasks.night_flags import PAIRED_COLUMNS
from ndcg_spark.metrics import parse_metric

_TABLE = "per-query table"
_RUN, _HASH, _DAY, _SIDE, _OWN, _VOICE = "__run", "__hash", "__day", "__side", "__own", "__voice"
"""Columns beside those of the table, which may be called anything."""
_BASELINE, _JUDGED = "the night before", "the night"
"""What nights are called as runs."""
_PAIR_KEYS = ("run", "config_hash", RULES, NIGHT, "before")
_KEYS = {name: f"__of_{name}" for name in (PAIR, "segment_by", "segment", "metric", "k")}
"""Columns by which flags and the pairs of their nights belong together, and what these are called there."""


def with_pairs(flags: DataFrame, per_query: DataFrame, rows: DataFrame, query: Sequence[str]) -> DataFrame:
    """Run an action: add to nights of a short history how their queries differ from those of the night before.

    `flags` has `TO_PAIR_COLUMNS`, `per_query` the metrics of every query of one data set with `run_date`, and `rows`
    are those of the metric table from `series_rows`. Added is a struct `paired` of `PAIRED_COLUMNS`; null where a
    night, metric or segment column lacks.

    Spark cost: the action lists segment sets, metrics and cutoffs of the metric table. The result is lazy: one
    shuffle of the queries of both nights, a second one where they have weights or segments, and small ones of sums.
    """
    settings = _settings(rows, per_query, query)
    flags = flags.withColumn(PAIR, F.xxhash64(*_PAIR_KEYS).cast("string"))
    pairs = flags.where(F.col("before").isNotNull()).select(PAIR, *_PAIR_KEYS).distinct()
    found = _by_key(estimated_groups([(_as_runs(per_query, pairs, settings), None)], settings))
    on = [F.col(name).eqNullSafe(F.col(key)) for name, key in _KEYS.items()]
    return flags.join(found, reduce(and_, on), "left").drop(*_KEYS.values(), PAIR)


def _by_key(found: DataFrame) -> DataFrame:
    """Take the pair out of the segments of a comparison, in which it stands first."""
    alone = F.col("segment_by") == PAIR
    values = F.from_json("segment", "array<string>")
    without = F.when(F.size(values) > 2, F.regexp_replace("segment", r'^\["-?\d+",', "[")).otherwise(
        F.get(values, F.lit(1))
    )
    keys = {
        PAIR: F.when(alone, F.col("segment")).otherwise(F.get(values, F.lit(0))),
        "segment_by": F.when(alone, F.lit("")).otherwise(F.substring("segment_by", len(PAIR) + 2, 2**31 - 1)),
        "segment": F.when(alone, F.lit("")).otherwise(without),
        "metric": F.col("metric"),
        "k": F.col("k"),
    }
    chosen = [column.alias(_KEYS[name]) for name, column in keys.items()]
    return found.where(F.col("segment_by") != "").select(*chosen, F.struct(*PAIRED_COLUMNS).alias("paired"))


def _settings(rows: DataFrame, per_query: DataFrame, query: Sequence[str]) -> ComparisonSettings:
    """Run an action: settings to compare what the metric table has and the per-query table has columns for."""
    for name in (*query, "k"):
        require_column(per_query, name, option("query") if name in query else "k", _TABLE)
    listed = rows.select("segment_by", "metric", "k").distinct().collect()
    at: dict[str, set[int | None]] = {}
    for row in listed:
        at.setdefault(row["metric"], set()).add(row["k"])
    columns = {name: _column(name) for name in sorted(at)}
    metrics = tuple(
        SummedMetric(name, column, frozenset(at[name]))
        for name, column in columns.items()
        if column in per_query.columns and name != "idcg"
    )
    if not metrics:
        raise InputRefusedError(
            f"the {_TABLE} has none of the metrics to judge ({', '.join(columns)}); it has the columns "
            f"{', '.join(per_query.columns)}."
        )
    sets = [tuple(by.split("+")) for by in sorted({row["segment_by"] for row in listed} - {""})]
    return ComparisonSettings(
        runs=(_BASELINE, _JUDGED),
        baseline=_BASELINE,
        metrics=metrics,
        query=(PAIR, *query),
        segment_sets=((PAIR,), *((PAIR, *names) for names in sets if set(names) <= set(per_query.columns))),
        weight=STORED_WEIGHT if has_column(per_query, STORED_WEIGHT) else None,
        unpaired="drop",
        same_ideal=False,
        replicates=0,
        flips=0,
    )


def _column(metric: str) -> str | None:
    """Column of a metric in per-query tables; None for a name that is no metric of this package."""
    try:
        return parse_metric(metric)[0].column
    except InvalidParameterError:
        return None


def _as_runs(per_query: DataFrame, pairs: DataFrame, settings: ComparisonSettings) -> DataFrame:
    """Rows of both nights of each pair, the pair in a column, the night as the run."""
    run = F.coalesce(named("run").cast("string"), F.lit("")) if has_column(per_query, "run") else F.lit("")
    rows = per_query.withColumns({_RUN: run, _HASH: config_hash(per_query), _DAY: date_or_null(per_query, _TABLE)})
    nights = [(NIGHT, _JUDGED), ("before", _BASELINE)]
    sides = F.explode(F.array(*[F.struct(F.col(day).alias("day"), F.lit(name).alias("as")) for day, name in nights]))
    by = [F.col("config_hash").alias("__by"), F.col(RULES).alias("__rules")]
    of = pairs.select(PAIR, F.col("run").alias("__of"), *by, sides.alias(_SIDE))
    on = (F.col(_RUN) == F.col("__of")) & (F.col(_DAY) == F.col(_SIDE)["day"])
    if has_column(per_query, RULES):  # those of means go on with whether queries weigh
        on = on & F.coalesce(F.startswith("__rules", named(RULES)), F.lit(True))
    elif has_column(per_query, "config_hash"):
        on = on & F.col(_HASH).eqNullSafe(F.col("__by"))
    found = _one_weight(
        rows.join(F.broadcast(of), on).drop("__rules").withColumn("run", F.col(_SIDE)["as"]), settings
    )
    if not has_column(found, "status"):
        return found
    # A query that was missing on one night is a pair, too: it fell to 0, or rose from it.
    return found.withColumn("status", F.when(F.col("status") != "missing", F.col("status")))


def _one_weight(rows: DataFrame, settings: ComparisonSettings) -> DataFrame:
    """Give a query the weight and the segments of the later night that has it; they may differ by night."""
    its = {name: named(name) for name in settings.segment_columns if name != PAIR}
    if settings.weight is not None:
        its[settings.weight] = F.coalesce(named(settings.weight), F.lit(1.0))  # null in runs without weights
    if not its:
        return rows
    missing = F.coalesce(named("status") == "missing", F.lit(False)) if "status" in rows.columns else F.lit(False)
    voice = F.when(missing, 0).otherwise(2) + F.when(F.col("run") == _JUDGED, 1).otherwise(0)
    rows = rows.withColumns({_OWN: F.struct(*[one.alias(name) for name, one in its.items()]), _VOICE: voice})
    query = Window.partitionBy(*columns_of(settings.query))
    speaks = F.col(_VOICE) == F.max(_VOICE).over(query)  # such a row keeps its own: what differs by k is refused
    chosen = F.when(speaks, F.col(_OWN)).otherwise(F.max_by(_OWN, _VOICE).over(query))
    rows = rows.withColumn(_OWN, chosen)
    return rows.withColumns({name: F.col(_OWN)[name] for name in its})
