"""Judgments from the ratings of several annotators."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark.core.bad_rows import Reasons, checked, key_reasons, without_bad_rows
from ndcg_spark.core.expressions import columns_of, named, number, require_column
from ndcg_spark.core.workers import as_shipped
from ndcg_spark.errors import option
from ndcg_spark.judgments.settings import MAX_WEIGHT, RatingSettings
from ndcg_spark.judgments.tasks import RATINGS, make_judge

TABLE = "ratings"
"""What the table is called for a person."""
_JUDGED = [
    T.StructField("relevance", T.DoubleType()),
    T.StructField("rule", T.StringType()),
    T.StructField("decided_by", T.ArrayType(T.StringType())),
    T.StructField("n_ratings", T.LongType()),
    T.StructField("n_zero_weight", T.LongType()),
    T.StructField("weight_sum", T.DoubleType()),
    T.StructField("lowest", T.DoubleType()),
    T.StructField("highest", T.DoubleType()),
    T.StructField("disputed", T.BooleanType()),
]


def judged_ratings(ratings: DataFrame, settings: RatingSettings, *, parse_text: bool = False) -> DataFrame:
    """Judge items by ratings, as `from_ratings` describes it; with `parse_text`, numbers may be text. Lazy."""
    rows = rated_items(ratings, settings, parse_text=parse_text)
    keys = [one for one in rows.schema if one.name != RATINGS]
    return rows.mapInArrow(
        as_shipped(make_judge(settings)), schema=T.StructType([*keys, *_JUDGED, rows.schema[RATINGS]])
    )


def rated_items(ratings: DataFrame, settings: RatingSettings, *, parse_text: bool) -> DataFrame:
    """Collect the ratings of each item as `ratings`: sorted, without those that are null. Lazy; one shuffle."""
    columns, keys = settings.columns, [*settings.columns.query, settings.columns.item]
    valid = without_bad_rows(
        ratings, _reasons(ratings, settings, parse_text), [*keys, columns.annotator], settings.on_invalid
    )
    relevance = number(ratings, columns.relevance, option("relevance"), TABLE, parse_text=parse_text)
    weight = F.lit(1.0)
    if columns.weight is not None:
        weight = number(ratings, columns.weight, option("weight"), TABLE, parse_text=parse_text)
    rating = F.struct(
        (relevance + F.lit(0.0)).alias("relevance"),  # -0.0 is 0.0
        named(columns.annotator).cast("string").alias("annotator"),
        weight.alias("weight"),
    )
    listed = F.sort_array(F.collect_list(F.when(named("rating relevance").isNotNull(), named("rating"))))
    rows = valid.select(*columns_of(keys), rating.alias("rating"), relevance.alias("rating relevance"))
    return rows.groupBy(*columns_of(keys)).agg(listed.alias(RATINGS))


def checked_ratings(
    ratings: DataFrame, settings: RatingSettings, *, parse_text: bool = False, originals: bool = False
) -> DataFrame:
    """Say of each rating whether it is bad, and why. Lazy; rows as `checked` gives them.

    The reasons: `malformed_line`, `null_query`, `null_item`, `null_annotator`, `relevance_not_a_number`,
    `nan_relevance`, `infinite_relevance`, `bad_weight` (null, NaN, negative, or above 1e18). With `parse_text`,
    relevances and weights may be text.
    """
    keys = [*settings.columns.query, settings.columns.item, settings.columns.annotator]
    return checked(
        ratings, _reasons(ratings, settings, parse_text), keys, originals=ratings.columns if originals else ()
    )


def _reasons(ratings: DataFrame, settings: RatingSettings, parse_text: bool) -> Reasons:
    columns = settings.columns
    reasons = key_reasons(ratings, columns.query, columns.item, TABLE)
    require_column(ratings, columns.annotator, option("annotator"), TABLE)
    relevance = number(ratings, columns.relevance, option("relevance"), TABLE, parse_text=parse_text)
    given = named(columns.relevance).isNotNull()
    reasons += [
        ("null_annotator", named(columns.annotator).isNull()),
        ("relevance_not_a_number", given & relevance.isNull()),
        ("nan_relevance", F.isnan(relevance)),
        ("infinite_relevance", F.abs(relevance) == float("inf")),
    ]
    if columns.weight is not None:
        weight = number(ratings, columns.weight, option("weight"), TABLE, parse_text=parse_text)
        good = F.coalesce((weight >= 0) & (weight <= MAX_WEIGHT), F.lit(False))
        reasons.append(("bad_weight", ~good))
    return reasons
