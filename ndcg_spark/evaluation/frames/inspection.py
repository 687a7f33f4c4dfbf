"""Ranks, gains and discounts of every row: how a person looks at one query."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark.core.expressions import columns_of, key_text, named, raise_if
from ndcg_spark.core.workers import as_shipped
from ndcg_spark.errors import InvalidParameterError, option
from ndcg_spark.evaluation.frames.canonical import run_rows
from ndcg_spark.evaluation.frames.ranking import long_rows, resolve_duplicates, valid_only
from ndcg_spark.evaluation.frames.window import JUDGED, ideal_order, with_ranks
from ndcg_spark.evaluation.settings import EvaluationSettings
from ndcg_spark.evaluation.tasks.query_rows import ITEM, RELEVANCE, RUN, SCORE, canonical_names
from ndcg_spark.evaluation.tasks.rankings import advice_on_repeats
from ndcg_spark.evaluation.tasks.row_view import make_row_viewer
from ndcg_spark.evaluation.tasks.valid_rows import RowRules

SHOWN = ("item", "score", "relevance", "rank", "ideal_rank", "gain", "discount", "ideal_discount")


def ranked_rows(frame: DataFrame, settings: EvaluationSettings) -> DataFrame:
    """Rank every row and show what it adds, as `explain_ranks` describes it. Lazy."""
    columns, names = settings.columns, canonical_names(settings)
    if columns.rank is not None:
        raise InvalidParameterError(f"ranks are explained of rows with scores: leave {option('rank')} out.")
    if columns.item is None:
        raise InvalidParameterError(f"ranks are explained item by item: name the item column ({option('item')}).")
    taken = sorted(name for name in columns.query if name.lower() in {*SHOWN, RUN})
    if taken:
        raise InvalidParameterError(f"query column {taken[0]!r} has the name of a column of the result; rename it.")
    rows = valid_only(long_rows(run_rows(frame, settings, judged=True), settings), RowRules(settings))
    rows = rows.withColumn(RELEVANCE, F.col(RELEVANCE).cast("double"))
    if ITEM not in rows.columns:
        way_out = settings.convention.advice("ties", "item_asc")
        raise InvalidParameterError(f"items are shown, which no rule of these settings needs; use {way_out}.")
    keys = [*([RUN] if RUN in rows.columns else []), *names.query]
    rows = _without_duplicates(rows, settings, keys).withColumn(JUDGED, F.col(RELEVANCE).isNotNull())
    placed = with_ranks(rows, settings)
    if settings.convention.ties in ("best", "worst"):
        placed = _by_gain(placed, settings, keys)
    n_ranked = F.count("place").over(Window.partitionBy(*columns_of(keys)))
    ideal_rank = F.lit(None).cast("int") if settings.convention.ideal == "k_ones" else F.col("ideal_place")
    shown = placed.select(
        *[named(name).alias(names.query.get(name, name)) for name in keys],
        ITEM,
        SCORE,
        RELEVANCE,
        F.col("place").cast("int").alias("rank"),
        ideal_rank.cast("int").alias("ideal_rank"),
        F.col("tied").cast("int").alias("tied"),
        n_ranked.cast("int").alias("n_ranked"),
    )
    kept = [one for one in shown.schema if one.name not in ("tied", "n_ranked")]
    added = [T.StructField(name, T.DoubleType()) for name in ("gain", "discount", "ideal_discount")]
    viewer = make_row_viewer(settings.convention, settings.max_k)
    return shown.mapInArrow(as_shipped(viewer), schema=T.StructType([*kept, *added]))


def _without_duplicates(rows: DataFrame, settings: EvaluationSettings, keys: list[str]) -> DataFrame:
    """Keep the item that counts, or refuse a query that has one twice, as the settings say."""
    if settings.convention.duplicates != "error":
        return resolve_duplicates(rows, settings)
    if settings.check_duplicates == "none":
        return rows
    twice = F.count(F.lit(1)).over(Window.partitionBy(*columns_of([*keys, ITEM]))) > 1
    advice = advice_on_repeats("ranking", settings, ())
    message = ("an item comes twice in query ", key_text(keys, canonical_names(settings).query), f". {advice}")
    return rows.withColumn("twice", twice).withColumn(
        RELEVANCE, raise_if(F.col(RELEVANCE), F.col("twice"), *message, kind="double")
    )


def _by_gain(placed: DataFrame, settings: EvaluationSettings, keys: list[str]) -> DataFrame:
    """Place tied items in the best or the worst order. An unjudged item gains 0."""
    gain: Column = F.coalesce(ideal_order(settings), F.lit(0.0))
    order = gain.desc() if settings.convention.ties == "best" else gain.asc()
    within = Window.partitionBy(*columns_of(keys), "place").orderBy(order, F.col(ITEM))
    number = F.row_number().over(within)
    return placed.withColumn("place", F.when(F.col("place").isNotNull(), F.col("place") + number - 1)).withColumn(
        "tied", F.lit(1)
    )
