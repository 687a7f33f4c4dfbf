"""Which nights a roll-up reads, and which periods hold a night."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ndcg_spark.core.expressions import columns_of
from ndcg_spark.evaluation.frames.summary import CONFIG_HASH, CONVENTION
from ndcg_spark.history.frames.nights import NIGHT, between
from ndcg_spark.history.settings import RollUpPlan

PERIOD = ("period", "period_start", "period_end")
HELD = "held"
"""Column with the periods that hold a night."""


def nights_to_add(rows: DataFrame, columns: Sequence[str], plan: RollUpPlan) -> DataFrame:
    """Select the nights, of rows from `nights.series_rows`, that the periods of a plan need. Lazy.

    Gives the night and the columns that are asked for; `convention` and `config_hash`, null where the table lacks
    them; `as_of`, the last night that is known; and `held`, an array of (`period`, `period_start`, `period_end`),
    which is never empty.

    Spark cost: without `as_of` the dates are read once more.
    """
    provenance = [
        (F.col(name) if name in rows.columns else F.lit(None)).cast("string").alias(name)
        for name in (CONVENTION, CONFIG_HASH)
    ]
    kept = rows.select(*columns_of([NIGHT, *columns]), *provenance)
    if plan.as_of is None:
        kept = kept.crossJoin(F.broadcast(rows.agg(F.max(NIGHT).alias("as_of"))))
    else:
        kept = kept.withColumn("as_of", F.lit(plan.as_of)).where(F.col(NIGHT) <= F.col("as_of"))
    held = kept.where(between(F.col(NIGHT), *plan.read)).withColumn(HELD, _periods(plan))
    return held.where(F.size(HELD) > 0)


def _periods(plan: RollUpPlan) -> Column:
    night = F.col(NIGHT)
    month = F.trunc(night, "month")
    periods: dict[str, list[tuple[Column, Column]]] = {
        "week": [(F.trunc(night, "week"), F.date_add(F.trunc(night, "week"), 6))],
        "month": [(month, F.last_day(month))],
        "rolling_7": [(F.date_add(night, ahead - 6), F.date_add(night, ahead)) for ahead in range(7)],
    }
    every = [
        F.struct(F.lit(name).alias("period"), start.alias("period_start"), end.alias("period_end"))
        for name in dict.fromkeys(plan.periods)
        for start, end in periods[name]
    ]

    def wanted(one: Column) -> Column:
        found = (one["period"] != "rolling_7") | (one["period_end"] <= F.col("as_of"))
        if plan.start is not None:
            found = found & (one["period_end"] >= F.lit(plan.start))
        return found if plan.end is None else found & (one["period_start"] <= F.lit(plan.end))

    return F.filter(F.array(*every), wanted)
