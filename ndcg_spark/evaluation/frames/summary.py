"""Score rankings and summarize metrics per run and segment: exact, mergeable, the same on any cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema

from ndcg_spark.core import labels
from ndcg_spark.core.adapters import accepts_rows, accepts_tables
from ndcg_spark.core.batches import REFUSAL, WorkerFunction
from ndcg_spark.core.columns import exact_col, has_column, require_column, spark_schema
from ndcg_spark.core.labels import ASKED
from ndcg_spark.core.session import in_tasks, task_limit
from ndcg_spark.core.shown import FOOTER
from ndcg_spark.core.workers import arrow_schema, filter_rows, in_workers
from ndcg_spark.errors import InvalidParameterError, option
from ndcg_spark.evaluation.frames.items import count_catalogue, get_item_type
from ndcg_spark.evaluation.plan import RankingPlan
from ndcg_spark.evaluation.rules import RULES
from ndcg_spark.evaluation.settings import EvaluationSettings
from ndcg_spark.evaluation.tasks import partial_sums as sums
from ndcg_spark.evaluation.tasks import stored
from ndcg_spark.evaluation.tasks.scoring import build_scoring_task, list_dropped_statuses, score_rankings
from ndcg_spark.metrics.base import CATALOGUE

PARTIAL_SCHEMA = from_arrow_schema(sums.PARTIAL_SCHEMA)
SUMMARY_SCHEMA = from_arrow_schema(stored.SUMMARY_SCHEMA)
METRIC_SCHEMA = from_arrow_schema(stored.METRIC_SCHEMA)


@accepts_rows
def score_queries(rankings: DataFrame, settings: EvaluationSettings) -> DataFrame:
    """Compute the metrics of every query, one row per (run, query, k).

    Parameters
    ----------
    rankings : DataFrame
        From `rank_queries` with the same settings.
    settings : EvaluationSettings

    Returns
    -------
    DataFrame
        `run`, the query columns, `k` (int; null = the whole list), `dcg`, `idcg`, `ndcg` (double), `status`
        (`evaluated`, `no_relevant`, `missing`, `unjudged`), `n_unjudged_items` and `n_top_items` (unjudged items
        among the first k, and all of these), `n_items`, `n_judged`, `n_relevant`, `n_rows`, `n_left_out` (bigint),
        segment columns, `weight`. All metrics are null for a query that a rule drops, and each is null at cutoffs
        that were not requested (`dcg`, `idcg` and `ndcg` have the same cutoffs). Under `no_relevant=skip`, only
        `ndcg` is null for a query without relevant items. Catalogue metrics add `items`, the first k items in rank
        order, at their cutoffs. The last column is `rules`, all settings that change the value of a query, as one
        text. Lazy.

    Raises
    ------
    MissingColumnError
        If the rankings were made without the metrics of the settings.

    Notes
    -----
    Spark cost: no shuffle, no action, one pass through Python workers of about 2 K numbers per query.
    """
    task, schema = build_scoring_task(rankings.columns, settings), build_scored_schema(rankings, settings)
    return add_rules(in_workers(rankings, score_rankings, task, schema=schema), settings)


def add_rules(queries: DataFrame, settings: EvaluationSettings) -> DataFrame:
    """Add the rules to metrics of queries, as a constant column that workers need not produce."""
    return queries.withColumn(RULES, F.lit(settings.rules).cast("string"))


def build_scored_schema(rankings: DataFrame, settings: EvaluationSettings) -> T.StructType:
    """Return the columns of `score_queries` that workers produce. Reads a schema, runs no action."""
    columns = arrow_schema(rankings.schema, rankings.sparkSession)
    return spark_schema(stored.build_scored_schema(columns, settings))


def build_per_query_schema(rankings: DataFrame, settings: EvaluationSettings) -> T.StructType:
    """Return the columns of a stored table of metrics of queries."""
    columns = arrow_schema(rankings.schema, rankings.sparkSession)
    return spark_schema(stored.build_per_query_schema(columns, settings))


def select_per_query_rows(per_query: DataFrame, settings: EvaluationSettings) -> DataFrame:
    """Select the metrics of queries that were not dropped, without the columns that only sums need. Lazy."""
    counted = per_query.where(~F.col("status").isin(*list_dropped_statuses(settings.convention)))
    return counted.drop(*stored.list_sum_columns(settings))


@accepts_tables
def summarize(
    per_query: DataFrame, settings: EvaluationSettings, *, items: DataFrame | None = None, n_tasks: int | None = None
) -> DataFrame:
    """Compute means of metrics, one row per (run, segment, metric, k).

    Parameters
    ----------
    per_query : DataFrame
        From `score_queries` with the same settings. It may be filtered by query.
    settings : EvaluationSettings
    items : DataFrame or None
        The item table, for catalogue metrics.
    n_tasks : int or None
        Maximum number of tasks that finish sums; None lets Spark decide.

    Returns
    -------
    DataFrame
        Lazy, with the columns

        - `run`; `segment_by`, the columns of the segment set joined by `+` (empty: all queries); `segment`, the value
          as text, a JSON list for several columns, null for null;
        - `metric` (`ndcg`, `dcg`, `idcg`, and those of `tie_bounds`); `k`; `asked`, the requested name with its
          cutoff (`recall@5` of the metric `r`), null for a metric that another one implies;
        - `n_queries`: queries whose NDCG is defined, over which all metrics are averaged; for a metric that is not
          defined for every query, the queries with a value;
        - `n_no_relevant`, `n_missing`, `n_unjudged`: queries of that status, in the mean or not;
        - `n_rows`: rows of the queries that were not dropped; `n_left_out`: rows that a rule left out;
        - `n_rejected`: rows of the main table that were rejected as bad; `n_lost_queries`: queries that lost
          all rows. Null under `on_invalid=reject`, as `per_query` lacks them; the summary of `evaluate` has them;
        - `n_unjudged_items`: unjudged items among the first k of the queries that were not dropped. Items are in the
          order of the tie rule. `ties=expected` has no order: of the items tied across rank k, as many as fit count;
        - `n_top_items`: all items among the first k of these queries;
        - `value` (null without a query), `weight_sum`; `std_error`, `ci_low`, `ci_high` (null below two queries);
        - `state`: the exact sums, for `merge_summaries`;
        - `rules`: all settings that change the value of a query, as one text, and whether queries are weighted.

        Catalogue metrics, such as `coverage`, are not means: they have a `value`, and all columns from `weight_sum`
        on are null.

    Notes
    -----
    Spark cost: one small shuffle (a row per group, metric and partition), no action, two passes through Python
    workers. Sums are exact (see `core.exact`), so values are the same to the last bit for any
    partitioning and row order. Catalogue metrics add a shuffle of a row per listed item and input partition,
    and a join with the items of the catalogue.
    """
    return _sum_metrics(per_query, settings, items, n_tasks, sums.add_up, _build_summing_task(settings, per_query))


@accepts_tables
def summarize_rankings(
    rankings: DataFrame, settings: EvaluationSettings, *, items: DataFrame | None = None, n_tasks: int | None = None
) -> DataFrame:
    """Compute the same means as `summarize(score_queries(rankings))`, in one pass through Python workers.

    Parameters
    ----------
    rankings : DataFrame
        From `rank_queries` with the same settings.
    settings : EvaluationSettings
    items : DataFrame or None
        The item table, for catalogue metrics.
    n_tasks : int or None
        As for `summarize`.

    Returns
    -------
    DataFrame
        As for `summarize`; lazy.

    Notes
    -----
    Spark cost: as for `summarize`, but no row per query and cutoff is passed to Spark.
    """
    rankings = rankings.drop("n_relevant")  # means do not use it, and every aggregate costs time
    tasks = build_scoring_task(rankings.columns, settings), _build_summing_task(settings, rankings)
    return _sum_metrics(rankings, settings, items, n_tasks, sums.score_and_add_up, *tasks)


def _sum_metrics(
    rows: DataFrame,
    settings: EvaluationSettings,
    items: DataFrame | None,
    n_tasks: int | None,
    add_up: WorkerFunction,
    *task: Any,
) -> DataFrame:
    rows = rows.drop(RULES)  # a constant that need not be sent to workers with every row
    if not settings.catalogue_metrics:
        return merge_partial_sums(in_workers(rows, add_up, *task, schema=PARTIAL_SCHEMA), settings, n_tasks=n_tasks)
    if items is None:
        raise InvalidParameterError(
            f"metric {settings.metric_with(CATALOGUE)!r} needs the item table ({option('items')})."
        )
    kind = get_item_type(rows)
    partial = in_workers(rows, add_up, *task, schema=_add_item_fields(kind))
    catalogue = count_catalogue(items, settings, kind)
    return _merge_with_catalogue(partial, catalogue, settings)


def merge_on_spark(summaries: DataFrame, confidence: float, *, across_rules: bool) -> DataFrame:
    """Merge summaries; see `merge_summaries`. Lazy; one small shuffle."""
    rules = read_rules(summaries).alias(RULES)
    partial = add_missing_counts(summaries).select(*sums.GROUP_KEYS, ASKED, *sums.GROUP_COUNTS, "state", rules)
    states = [F.collect_list("state").alias("states"), F.collect_set(RULES).alias(RULES)]
    merged = partial.groupBy(*sums.GROUP_KEYS).agg(*sum_counts(), *states)
    merged = in_tasks(merged, task_limit(summaries))
    return in_workers(merged, sums.compute_means, confidence, None, across_rules, schema=SUMMARY_SCHEMA)


def read_rules(table: DataFrame) -> Column:
    """Return the rules of the rows of a table; empty if a row has none."""
    return F.coalesce(exact_col(RULES).cast("string"), F.lit("")) if has_column(table, RULES) else F.lit("")


def _build_summing_task(settings: EvaluationSettings, rows: DataFrame) -> sums.SummingTask:
    listed = None
    if settings.catalogue_metrics:
        listed = arrow_schema(_add_item_fields(get_item_type(rows)), rows.sparkSession)
    return sums.build_summing_task(settings, rows.columns, listed)


def merge_partial_sums(partial: DataFrame, settings: EvaluationSettings, *, n_tasks: int | None = None) -> DataFrame:
    """Merge partial summaries (keys, counts, `state`; any number of rows per group) to means. Lazy."""
    aggregates = [F.collect_list("state").alias("states")]
    if REFUSAL in partial.columns:
        aggregates.append(F.min(REFUSAL).alias(REFUSAL))
    merged = partial.groupBy(*sums.GROUP_KEYS).agg(*sum_counts(), *aggregates)
    return _compute_means(in_tasks(merged, n_tasks), settings, sums.compute_means, settings.confidence)


def _compute_means(merged: DataFrame, settings: EvaluationSettings, compute: WorkerFunction, *task: Any) -> DataFrame:
    means = in_workers(merged, compute, *task, schema=T.StructType(SUMMARY_SCHEMA.fields[:-1]))
    return means.withColumn(RULES, F.lit(settings.rules_of_means).cast("string"))


def add_missing_counts(summaries: DataFrame) -> DataFrame:
    """Add the optional columns that a summary lacks, as nulls. Raise if the table is not a summary. Lazy."""
    for column in (*sums.GROUP_KEYS, *sums.GROUP_COUNTS, "state"):
        if column not in sums.OPTIONAL_COUNTS:
            require_column(summaries, column, "column of a metric table", "metric table")
    types = {ASKED: "string"} | dict.fromkeys(sums.OPTIONAL_COUNTS, "bigint")
    missing = {name: F.lit(None).cast(kind) for name, kind in types.items() if name not in summaries.columns}
    return summaries.withColumns(missing) if missing else summaries


def sum_counts() -> list[Column]:
    """Return aggregates of a group: sums of counts, null if an optional count is null in some row, and `asked`."""
    sums_by_column = {ASKED: F.min(ASKED)} | {count: F.sum(count) for count in sums.GROUP_COUNTS}
    for count in sums.OPTIONAL_COUNTS:
        sums_by_column[count] = F.when(F.count(count) == F.count(F.lit(1)), sums_by_column[count])
    return [column.alias(name) for name, column in sums_by_column.items()]


def _add_item_fields(item: T.DataType) -> T.StructType:
    """Return the schema of rows that are either partial sums or item counts."""
    return T.StructType(
        [*PARTIAL_SCHEMA.fields, T.StructField(sums.ITEM, item), T.StructField(sums.LISTED, T.LongType())]
    )


def _merge_with_catalogue(partial: DataFrame, catalogue: DataFrame, settings: EvaluationSettings) -> DataFrame:
    """Merge partial sums and item counts (see `_add_item_fields`) into a summary. Lazy.

    `catalogue` has the columns `item` and `copies`.

    Spark cost: a shuffle of a row per group, item and partition, a join with the catalogue, and two small shuffles.
    """
    states = F.flatten(F.collect_list("states")).alias("states")
    by_item = partial.groupBy(*sums.GROUP_KEYS, sums.ITEM).agg(
        *sum_counts(), F.collect_list("state").alias("states"), F.sum(sums.LISTED).alias(sums.LISTED)
    )
    known = catalogue.select(sums.ITEM, F.lit(True).alias("known"))
    histogram = (
        by_item.join(known, sums.ITEM, "left")
        .groupBy(*sums.GROUP_KEYS, sums.LISTED, "known")
        .agg(*sum_counts(), states, F.count(sums.ITEM).alias("n"))
    )
    level = F.when(
        F.col(sums.LISTED).isNotNull(), F.struct(sums.LISTED, F.coalesce("known", F.lit(False)).alias("known"), "n")
    )
    merged = histogram.groupBy(*sums.GROUP_KEYS).agg(*sum_counts(), states, F.collect_list(level).alias("levels"))
    twice = F.max(F.when(F.col("copies") > 1, F.col(sums.ITEM).cast("string"))).alias("twice")
    size = catalogue.agg(F.count(F.lit(1)).alias("n_items"), twice)
    task = settings.confidence, settings.catalogue_metrics, str(settings.columns.item)
    return _compute_means(merged.crossJoin(F.broadcast(size)), settings, sums.compute_with_catalogue, *task)


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """A strategy by which Spark ranks a table, given a plan."""

    plan: RankingPlan
    n_tasks: int | None = None

    @property
    def settings(self) -> EvaluationSettings:
        return self.plan.settings

    @property
    def cost(self) -> str:
        """The cost of rankings, as text."""
        raise NotImplementedError

    @property
    def cost_of_means(self) -> str:
        """The cost of means if metrics of queries are not needed."""
        return self.cost

    def rankings(self) -> DataFrame:
        """Rank every query, one row each. Lazy."""
        raise NotImplementedError

    def summary(self) -> DataFrame:
        """Compute the means of all metrics. Lazy."""
        return summarize_rankings(self.rankings(), self.settings, n_tasks=self.n_tasks)


def format_means(
    summary: DataFrame, *, requested: Sequence[str] = (), hidden: Sequence[str] = (), overall: Sequence[str] = ()
) -> DataFrame:
    """Format means as `Evaluation.means` describes them: metrics in the `requested` order, without `hidden` ones.

    Columns `overall` are added for the rows of all queries, as a struct in `FOOTER`. Lazy; one small shuffle to sort.
    """
    rows = filter_rows(summary, ~F.expr(labels.METRIC_AT_SQL).isin(*hidden))
    ordered = rows.orderBy(*map(F.expr, labels.row_order_sql(requested)))
    shown = (
        "run",
        F.expr(labels.SEGMENT_SQL).alias("segment"),
        F.expr(labels.METRIC_SQL).alias("metric"),
        "value",
        F.expr(labels.INTERVAL_SQL).alias("interval"),
        "ci_low",
        "ci_high",
        F.col("n_queries").alias("n"),
    )
    overall_columns = F.when(F.col("segment_by") == "", F.struct(*overall)).alias(FOOTER)
    refusals = [REFUSAL] if REFUSAL in summary.columns else []
    return ordered.select(*shown, *([overall_columns] if overall else []), *refusals)
