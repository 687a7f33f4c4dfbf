"""Explain a mean or its change: lost gain, shifts of segments, and the queries that changed most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema

from ndcg_spark.core.adapters import accepts_rows, accepts_tables
from ndcg_spark.core.columns import exact_col, exact_cols, raise_if, require_column
from ndcg_spark.core.workers import in_workers
from ndcg_spark.diagnosis import tasks
from ndcg_spark.errors import InputRefusedError, InvalidParameterError
from ndcg_spark.evaluation.frames.ranking import Arrays, Ranking, explode_scores, select_valid_rows
from ndcg_spark.evaluation.frames.summary import (
    PARTIAL_SCHEMA,
    add_rules,
    build_scored_schema,
    merge_partial_sums,
    read_rules,
)
from ndcg_spark.evaluation.rules import RULES
from ndcg_spark.evaluation.settings import EvaluationSettings
from ndcg_spark.evaluation.tasks.partial_sums import add_up, build_summing_task
from ndcg_spark.evaluation.tasks.query_rows import ITEM, RANK, RELEVANCE, RUN, SCORE, canonical_names
from ndcg_spark.evaluation.tasks.scoring import build_scoring_task
from ndcg_spark.evaluation.tasks.valid_rows import RowCheck
from ndcg_spark.metrics import has_value_when_missing, judge_change

MAX_RANK_COLUMNS = 50
"""The gain of each rank up to this cutoff gets a column."""
_UNIT = 2.0**32
_CHANGES = {"better": "gained", "worse": "lost"}


@accepts_rows
def score_losses(rankings: DataFrame, settings: EvaluationSettings) -> DataFrame:
    """Compute what each query loses against its ideal list.

    Parameters
    ----------
    rankings : DataFrame
        From `rank_queries` with the same settings.
    settings : EvaluationSettings
        Settings without metrics, tie bounds or padding, and with numbers for cutoffs.

    Returns
    -------
    DataFrame
        The columns of `score_queries`, and for each query the columns

        - `not_retrieved`: DCG lost because relevant items are not in the list of K items, K being the largest cutoff;
        - `ranked_low`: DCG lost because items of the list are not in the best order;
        - `lost_not_retrieved`, `lost_ranked_low`: both divided by IDCG; they add up to 1 - NDCG;
        - `swap_gain`: DCG that the best swap of two items of the list adds; `swap_rank` and `swap_with`: their ranks;
        - `ndcg_rank_1`, `ndcg_rank_2`, ...: the contribution of each rank to NDCG, for cutoffs up to 50.

        All of these, and `ndcg`, are null for a query without a relevant item. Lazy.

    Notes
    -----
    Spark cost: no shuffle, no action, one pass through Python workers.
    """
    max_k = _check_max_k(settings)
    loss_fields = [T.StructField(column, T.DoubleType()) for column in tasks.LOSSES]
    loss_fields += [T.StructField(column, T.IntegerType()) for column in tasks.SWAPPED]
    loss_fields += [T.StructField(tasks.rank_column(rank), T.DoubleType()) for rank in range(1, max_k + 1)]
    schema = T.StructType([*build_scored_schema(rankings, settings), *loss_fields])
    task = build_scoring_task(rankings.columns, settings)
    return add_rules(in_workers(rankings, tasks.score_losses, task, max_k, schema=schema), settings)


@accepts_tables
def summarize_losses(losses: DataFrame, settings: EvaluationSettings) -> DataFrame:
    """Average the losses of queries, one row per (run, segment, metric, k).

    Parameters
    ----------
    losses : DataFrame
        From `score_losses` with the same settings.
    settings : EvaluationSettings

    Returns
    -------
    DataFrame
        The columns of `summarize`, over queries with a relevant item; `n_no_relevant` counts the others. Metrics are
        the columns of `score_losses`. Lazy.

    Notes
    -----
    Spark cost: as for `summarize`.
    """
    task = replace(
        build_summing_task(settings, losses.columns),
        metrics=tasks.list_loss_metrics(_check_max_k(settings)),
        needs_ndcg=True,
    )
    means = merge_partial_sums(in_workers(losses.drop(RULES), add_up, task, schema=PARTIAL_SCHEMA), settings)
    rank = F.regexp_extract("metric", r"^ndcg_rank_(\d+)$", 1)
    return means.where(
        (rank == "") | (F.expr("try_cast(regexp_extract(metric, '([0-9]+)$', 1) as int)") <= F.col("k"))
    )


def _check_max_k(settings: EvaluationSettings) -> int:
    k = settings.max_k
    if k is None or settings.metrics or settings.tie_bounds or settings.convention.pad_to_k is not None:
        raise InvalidParameterError(
            "lost gain is computed at cutoffs that are numbers, without other metrics, tie bounds or pad_to_k."
        )
    if settings.convention.ideal not in ("judged", "retrieved"):
        raise InvalidParameterError(
            f"lost gain needs {settings.convention.advice('ideal', 'judged')}, or retrieved; got "
            f"ideal={settings.convention.ideal}."
        )
    return min(k, MAX_RANK_COLUMNS)


@accepts_tables
def shift_of_means(before: DataFrame, after: DataFrame, *, across_rules: bool = False) -> DataFrame:
    """Split the change of a mean into mix (changed shares of segments) and within (changed means of segments).

    Parameters
    ----------
    before, after : DataFrame
        Rows of summaries or metric tables with `state`, such as two nights. Rows of one group are added up. Rows
        without a state, such as those of `coverage`, are not means and are left out.
    across_rules : bool
        Compare nights even if their rules differ.

    Returns
    -------
    DataFrame
        Lazy, one row per (run, segment_by, segment, metric, k) and one with `is_total` for all segments together:
        `weight_before`, `weight_after`, `value_before`, `value_after`, `mix`, `within`, `change`. Mix and within of
        the segments add up to the change of the overall mean. `rules` are those of both nights; null if unknown.

    Raises
    ------
    MissingColumnError
    InputRefusedError
        The action raises if rows of one mean were computed by different `rules`.

    Notes
    -----
    Spark cost: one small shuffle, no action, one pass through Python workers.
    """
    rows = _select_night(before, after=False).unionByName(_select_night(after, after=True))
    rows, schema = rows.repartition(*tasks.SHIFT_KEYS), from_arrow_schema(tasks.SHIFT_SCHEMA)
    return in_workers(rows, tasks.split_changes, across_rules, schema=schema)


def _select_night(frame: DataFrame, *, after: bool) -> DataFrame:
    for column in (*tasks.SHIFT_KEYS, "segment", "state"):
        kind = require_column(frame, column, "shift of means", "metric table")
    if not isinstance(kind, T.ArrayType):
        raise InputRefusedError(
            f"column 'state' of the metric table is {kind.simpleString()}, not array<bigint>; read the table that "
            "nights were written to, as csv has no arrays."
        )
    rows = frame.where((exact_col("segment_by") != "") & exact_col("state").isNotNull())
    columns = exact_cols([*tasks.SHIFT_KEYS, "segment", "state"])
    return rows.select(*columns, read_rules(frame).alias(RULES), F.lit(after).alias(tasks.AFTER))


def find_changed_queries(
    per_query: DataFrame,
    ranking: Ranking,
    settings: EvaluationSettings,
    *,
    baseline: str,
    run: str,
    n: int = 10,
    metric: str = "ndcg",
    k: int | None = None,
    segments: Sequence[str] = (),
    depth: int | None = None,
) -> DataFrame:
    """Find the queries that gained and lost most between two runs, as described in `changed_queries`. Lazy.

    Queries are ordered by weight times difference, then by key.
    """
    query = list(settings.columns.query)
    metric_name = next(str(computed.metric) for computed in settings.computed if computed.metric.column == metric)
    missing = F.lit(0.0 if has_value_when_missing(metric_name) else None).cast("double")

    def aggregate_value(run: str) -> Column:
        """Aggregate the value of a query; `missing` if the run lacks the query, null if the query has no value."""
        of_run, value = exact_col(RUN) == run, F.max(F.when(exact_col(RUN) == run, F.col(metric)))
        has_query = F.max(of_run & (F.col("status") != "missing"))
        return F.when(has_query, value).otherwise(F.coalesce(value, missing))

    sides = {"baseline_value": baseline, "value": run}
    changed = (
        per_query.where(exact_col(RUN).isin(baseline, run) & exact_col("k").eqNullSafe(F.lit(k)))
        .groupBy(*exact_cols([*query, "k"]))
        .agg(
            *[aggregate_value(side_run).alias(side) for side, side_run in sides.items()],
            F.max(F.lit(1.0) if settings.columns.weight is None else exact_col("weight")).alias("weight"),
            *[F.max(exact_col(segment)).alias(segment) for segment in segments if segment not in query],
        )
        .withColumn("difference", F.col("value") - F.col("baseline_value"))
        .where((F.rint(F.col("difference") * _UNIT) != 0) & (F.col("weight") != 0))
        .withColumn("change", _name_change(metric_name))
    )
    by_change = Window.partitionBy("change", *exact_cols(list(segments)))
    order = by_change.orderBy((F.abs("difference") * F.col("weight")).desc(), *exact_cols(query))
    top = changed.withColumn("place", F.row_number().over(order)).where(F.col("place") <= n)
    shown = _add_lists(top, ranking, sides, depth or settings.max_k or 10)
    others = ["k", "baseline_value", "value", "difference", "weight", "baseline_list", "list"]
    columns = [*segments, *(column for column in query if column not in segments), *others]
    labels = [
        F.lit(text).alias(column) for column, text in (("run", run), ("baseline", baseline), ("metric", metric))
    ]
    queries = shown.select("change", "place", *labels, *exact_cols(columns))
    if settings.columns.run is None:
        return queries
    nulls = [F.lit(None).cast(field.dataType).alias(field.name) for field in queries.schema]
    return queries.union(_refuse_missing_runs(ranking, (baseline, run)).select(*nulls))


def _name_change(metric: str) -> Column:
    """Name the change: `gained` or `lost`, or `higher` or `lower` if the metric has no better direction."""
    rise, fall = (_CHANGES.get(word, word) for word in (judge_change(metric, 1), judge_change(metric, -1)))
    return F.when(F.col("difference") > 0, rise).otherwise(fall)


def _refuse_missing_runs(ranking: Ranking, runs: Sequence[str]) -> DataFrame:
    """Return no rows; the action raises if a run has no rows, because all of its queries would count as 0."""
    runs_found = ranking.rows.agg(F.sort_array(F.collect_set(exact_col(RUN).cast("string"))).alias("runs"))
    lacking = F.array_except(F.array(*map(F.lit, runs)), F.col("runs"))
    message = ("run ", F.get(lacking, F.lit(0)), " has no rows; the runs are ", F.concat_ws(", ", "runs"), ".")
    return runs_found.where(raise_if(F.lit(False), F.size(lacking) > 0, *message, kind="boolean"))


def _add_lists(top: DataFrame, ranking: Ranking, sides: dict[str, str], depth: int) -> DataFrame:
    """Add the first items of both lists to the top queries."""
    settings = ranking.settings
    rows, names = ranking.rows, canonical_names(settings)
    if isinstance(ranking.implementation, Arrays):
        raise InvalidParameterError(
            "changed queries need a long table, not one row per query; explode the lists, or evaluate them with a "
            "table of judgments."
        )
    keys = list(names.query)
    top_queries = F.broadcast(
        top.select(*[exact_col(label).alias(name) for name, label in names.query.items()]).distinct()
    )
    rows = select_valid_rows(
        explode_scores(rows.join(top_queries, on=keys, how="left_semi"), settings), RowCheck(settings)
    )
    judgments = ranking.implementation.judgments
    if judgments is not None and ITEM in rows.columns:
        judged = select_valid_rows(
            judgments.join(top_queries, on=keys, how="left_semi"), RowCheck(settings, judgments=True)
        )
        judged = judged.select(*exact_cols([*keys, ITEM, RELEVANCE]))
        rows = rows.join(judged, on=[*keys, ITEM], how="left")
    by_rank = RANK in rows.columns
    place = exact_col(RANK) if by_rank else -exact_col(SCORE).cast("double")
    shown = [column for column in (ITEM, RANK if by_rank else SCORE, RELEVANCE) if column in rows.columns]
    entry = F.struct(place.alias("place"), *[exact_col(column) for column in shown])
    rows = rows.where(exact_col(RANK if by_rank else SCORE).isNotNull())

    def collect_items(run: str) -> Column:
        of_run = F.slice(F.sort_array(F.collect_list(F.when(exact_col(RUN) == run, entry))), 1, depth)
        return F.transform(of_run, lambda item: F.struct(*[item[column].alias(column) for column in shown]))

    lists = rows.groupBy(*exact_cols(keys)).agg(
        collect_items(sides["baseline_value"]).alias("baseline_list"), collect_items(sides["value"]).alias("list")
    )
    renamed = lists.select(
        *[exact_col(name).alias(label) for name, label in names.query.items()], "baseline_list", "list"
    )
    return top.join(renamed, on=list(names.query.values()), how="left")
