"""A run and a judgments table beside it: the run is cut to its first K items before it is joined."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark.errors import InputRefusedError
from ndcg_spark.plan import EvaluationPlan
from ndcg_spark.spark.expressions import columns_of, guarded, key_text, named
from ndcg_spark.spark.ranking import window
from ndcg_spark.spark.ranking.choose import Way
from ndcg_spark.spark.ranking.counts import carried, counts, settled
from ndcg_spark.spark.ranking.duplicates import refuse_repeated_items, relevances_of
from ndcg_spark.spark.ranking.ideal import zeros_left_out
from ndcg_spark.spark.ranking.lists import top_ranked, with_entries
from ndcg_spark.spark.ranking.single import (
    finished_lists,
    ideals_apart,
    looks_for_duplicates,
    rank_single,
    with_tied_lists,
)
from ndcg_spark.spark.rows import keys_of

RUN_COUNTS = ("n_rows", "n_left_out", "n_items")
JUDGMENT_COUNTS = ("n_judged", "n_relevant")


def rank_with_judgments(rows: DataFrame, judged: DataFrame, plan: EvaluationPlan, way: Way) -> DataFrame:
    """Rank a run against judgments.

    Parameters
    ----------
    rows : DataFrame
        Canonical rows of the run, without relevances.
    judged : DataFrame
        Canonical rows of the judgments.
    plan : EvaluationPlan
    way : Way

    Returns
    -------
    DataFrame
        Rankings, with `run` only where rankers are named; lazy. Queries of either table are there: those judged but
        not retrieved once for every run.

    Notes
    -----
    Spark cost: the run is cut to K rows a query, then joined with the judgments on (query, item), and with one
    row a query. `unjudged=condensed` and `ideal=retrieved` need the whole run joined: one shuffle of all of it.
    """
    _check_same_key_types(rows, judged, (*plan.columns.query, "item"))
    ideals = _ideals(judged, plan, way)
    if plan.convention.unjudged == "condensed" or plan.convention.ideal == "retrieved":
        ranked = rank_single(_joined(rows, judged, plan), plan, way).drop(*JUDGMENT_COUNTS)
        if plan.convention.ideal == "retrieved":
            ideals = ideals.drop("ideal")
        else:
            ranked = ranked.drop("ideal")
    else:
        ranked = _ranked(rows, judged, plan, way)
    return _matched(ranked, ideals, rows, plan)


def _joined(rows: DataFrame, judged: DataFrame, plan: EvaluationPlan) -> DataFrame:
    on = [*plan.columns.query, "item"]
    return rows.join(judged.select(*columns_of([*on, "relevance"])), on, "left")


def _ranked(rows: DataFrame, judged: DataFrame, plan: EvaluationPlan, way: Way) -> DataFrame:
    """One row per query of the run: counts, carried columns, `ranked`, and `ranks` where they are given."""
    keys = keys_of(plan)
    kept = [*RUN_COUNTS, *carried(rows, plan)]
    on = [*plan.columns.query, "item"]
    relevant = judged.select(*columns_of([*on, "relevance"]))
    if way.ranked == "window" and plan.convention.groups_ties:
        top = window.tied_rows(rows, plan, keys).join(relevant, on, "left")
        if looks_for_duplicates(rows, plan):
            top = refuse_repeated_items(top, keys)
        lists = with_tied_lists(window.tied_lists(top, keys))
        return _counted(rows, plan, keys).join(lists, list(keys), "left")
    top = _top_items(rows, plan, way)
    entry = F.struct("rank", "relevance", "item")
    regrouped = (
        top.join(relevant, on, "left")
        .groupBy(*columns_of(keys))
        .agg(
            F.sort_array(F.collect_list(F.when(F.col("rank").isNotNull(), entry))).alias("entries"),
            *[F.max(named(name)).alias(name) for name in kept],
        )
    )
    with_item = looks_for_duplicates(rows, plan)
    ranked = relevances_of(F.col("entries"), keys, "ranking or its judgments", with_item=with_item)
    regrouped = regrouped.withColumn("ranked", ranked)
    if way.ranked == "given":
        regrouped = regrouped.withColumn("ranks", F.col("entries").getField("rank"))
    return regrouped.drop("entries")


def _top_items(rows: DataFrame, plan: EvaluationPlan, way: Way) -> DataFrame:
    """The first K items of every query, a row each with `rank`; counts and carried columns beside them."""
    keys = keys_of(plan)
    kept = [*keys, *RUN_COUNTS, *carried(rows, plan)]
    if way.ranked == "top_k":
        first = {"entries": top_ranked(plan, plan.longest or 0)}
        grouped = _counted(with_entries(rows, plan, given=False), plan, keys, **first)
        items = F.posexplode_outer(F.col("entries").getField("item")).alias("at", "item")
        return grouped.select(*columns_of(kept), items).withColumn("rank", F.col("at") + 1).drop("at")
    grouped = _counted(rows, plan, keys)
    if way.ranked == "window":
        top = window.ranked_rows(rows, plan, keys, plan.longest)
    else:
        top = rows if plan.longest is None else rows.where(F.col("rank") <= plan.longest)
    top = top.select(*columns_of(keys), "item", "rank")
    return grouped.select(*columns_of(kept)).join(top, list(keys), "left")


def _counted(rows: DataFrame, plan: EvaluationPlan, keys: tuple[str, ...], **more: Column) -> DataFrame:
    """One row per query of the run: counts, carried columns, and further aggregates."""
    wanted = counts(rows, plan) | more
    aggregates = [column.alias(name) for name, column in wanted.items()]
    return settled(rows.groupBy(*columns_of(keys)).agg(*aggregates), keys, carried(rows, plan), plan)


def _ideals(judged: DataFrame, plan: EvaluationPlan, way: Way) -> DataFrame:
    """One row per judged query: `ideal`, counts and carried columns."""
    keys = plan.columns.query
    with_item = looks_for_duplicates(judged, plan)
    apart = []
    wanted = {name: column for name, column in counts(judged, plan).items() if name not in RUN_COUNTS}
    if plan.convention.ideal in ("judged", "as_many"):
        wanted |= zeros_left_out(judged, plan)
        apart = ideals_apart(judged, plan, way, keys, with_item=with_item)
    aggregates = [column.alias(name) for name, column in wanted.items()]
    grouped = settled(judged.groupBy(*columns_of(keys)).agg(*aggregates), keys, carried(judged, plan), plan)
    for lists in apart:
        grouped = grouped.join(lists, list(keys), "left")
    return finished_lists(grouped, keys, plan, with_item=with_item)


def _matched(ranked: DataFrame, ideals: DataFrame, rows: DataFrame, plan: EvaluationPlan) -> DataFrame:
    """Bring rankings and ideals together, keeping the queries that only one side has."""
    keys, query = keys_of(plan), plan.columns.query
    shared = [name for name in carried(ranked, plan) if name in ideals.columns]
    for name in shared:
        ideals = ideals.withColumnRenamed(name, f"judged:{name}")
    if keys != query:
        ideals = _runs(rows, plan).crossJoin(ideals)
    matched = ranked.join(ideals, list(keys), "full")
    for name in (*RUN_COUNTS, *JUDGMENT_COUNTS):
        matched = matched.withColumn(name, F.coalesce(F.col(name), F.lit(0)))
    for name in shared:
        matched = matched.withColumn(name, _agreeing(matched, name, keys)).drop(f"judged:{name}")
    return matched


def _agreeing(matched: DataFrame, name: str, keys: tuple[str, ...]) -> Column:
    of_run, of_judgments = named(name), named(f"judged:{name}")
    kind = matched.schema[name].dataType.simpleString()
    message = (f"column {name!r} differs between run and judgments in query ", key_text(keys), ".")
    return guarded(F.coalesce(of_judgments, of_run), of_run != of_judgments, *message, kind=kind)


def _runs(rows: DataFrame, plan: EvaluationPlan) -> DataFrame:
    names = plan.columns.score
    if len(names) > 1:
        runs = F.explode(F.array(*[F.lit(name) for name in names])).alias("run")
        return rows.sparkSession.range(1).select(runs)
    return rows.select("run").distinct()


def _check_same_key_types(run: DataFrame, judgments: DataFrame, names: tuple[str, ...]) -> None:
    """Raise when a key has one type in the run and another in the judgments. Reads schemas, runs no action.

    Parameters
    ----------
    run, judgments : DataFrame
        Canonical rows.
    names : tuple of str

    Raises
    ------
    InputRefusedError
        A join of text with numbers would compare casts, not keys.
    """
    for name in names:
        left, right = run.schema[name].dataType, judgments.schema[name].dataType
        both_whole = isinstance(left, T.IntegralType) and isinstance(right, T.IntegralType)
        if left != right and not both_whole:
            raise InputRefusedError(
                f"{name} is {left.simpleString()} in the run and {right.simpleString()} in the judgments; "
                "cast one of them so that keys compare."
            )
