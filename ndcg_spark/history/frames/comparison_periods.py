"""Nights of a comparison table added up to weeks, months and rolling weeks."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema

from ndcg_spark.comparison.tasks.totals import COUNTS
from ndcg_spark.core.expressions import columns_of, require_column
from ndcg_spark.core.student import require_scipy
from ndcg_spark.core.workers import as_shipped
from ndcg_spark.history.frames.nights import NIGHT, series_rows
from ndcg_spark.history.frames.periods import PERIOD, nights_to_add
from ndcg_spark.history.settings import RollUpPlan
from ndcg_spark.history.tasks.periods import FAMILY, PERIOD_SCHEMA, SERIES_OF_PAIRS, make_decider, make_roller

PERIODS_OF_PAIRS: T.StructType = from_arrow_schema(PERIOD_SCHEMA)
TABLE = "comparison table"
_STORED = (*COUNTS[:-1], "seed", "n_replicates", "cluster_by", "unpaired", "note", "difference", "verdict", "state")


def is_comparison(table: DataFrame) -> bool:
    """Whether a table has differences between runs, and not means."""
    return "baseline" in table.columns


def roll_up_comparisons(comparisons: DataFrame, plan: RollUpPlan) -> DataFrame:
    """Add the nights of a comparison table up to ISO weeks, months and rolling seven days. Lazy; see `roll_up`.

    Rows must be of one data set.

    Spark cost: a shuffle of the rows by series and a small one of results, two passes through Python workers, no
    action; without `as_of` the dates are read once more. Replicates are read only if they may be needed.
    """
    require_scipy()
    for name in ("baseline", *_STORED):
        require_column(comparisons, name, "column of a comparison table", TABLE)
    kept = [*SERIES_OF_PAIRS, *_STORED]
    if plan.independence in (None, "query") and "replicates" in comparisons.columns:
        kept.append("replicates")
    rows = nights_to_add(series_rows(comparisons), kept, plan)
    by_series = rows.repartition(*columns_of(SERIES_OF_PAIRS)).sortWithinPartitions(
        *columns_of([*SERIES_OF_PAIRS, NIGHT])
    )
    family = F.xxhash64(*columns_of([*PERIOD, "baseline"])).alias(FAMILY)
    rolled = by_series.mapInArrow(as_shipped(make_roller(plan)), schema=PERIODS_OF_PAIRS).select("*", family)
    ordered = rolled.repartition(FAMILY).sortWithinPartitions(FAMILY)
    return ordered.mapInArrow(as_shipped(make_decider(plan)), schema=PERIODS_OF_PAIRS)
