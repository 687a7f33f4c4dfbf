"""Explain the gap between two conventions with Spark, and the ranks, gains and discounts of every row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark.conventions import Convention
from ndcg_spark.core.adapters import accepts_tables
from ndcg_spark.core.columns import describe_table, exact_col, exact_cols, format_query_key, raise_if
from ndcg_spark.core.flag import OnInvalid
from ndcg_spark.core.workers import in_workers
from ndcg_spark.errors import InvalidParameterError, option
from ndcg_spark.evaluation.api import evaluation_settings
from ndcg_spark.evaluation.difference import Step
from ndcg_spark.evaluation.frames.columns import select_canonical_columns
from ndcg_spark.evaluation.frames.duplicates import resolve_duplicates
from ndcg_spark.evaluation.frames.ranking import choose_ranking, explode_scores, select_valid_rows
from ndcg_spark.evaluation.frames.summary import score_queries
from ndcg_spark.evaluation.frames.window import JUDGED, add_ranks, build_ideal_key
from ndcg_spark.evaluation.plan import require_query
from ndcg_spark.evaluation.plan_columns import plan_rows
from ndcg_spark.evaluation.settings import (
    DuplicateCheck,
    EvaluationSettings,
    NullScore,
    parse_single_cutoff,
)
from ndcg_spark.evaluation.tasks.partial_ranking import advise_on_repeats
from ndcg_spark.evaluation.tasks.query_rows import ITEM, RELEVANCE, RUN, SCORE, canonical_names
from ndcg_spark.evaluation.tasks.valid_rows import RowCheck, add_gains

RESULT_COLUMNS = ("item", "score", "relevance", "rank", "ideal_rank", "gain", "discount", "ideal_discount")


def rank_rows(frame: DataFrame, settings: EvaluationSettings) -> DataFrame:
    """Rank every row and compute its contribution, as in `explain_ranks`. Lazy."""
    columns, names = settings.columns, canonical_names(settings)
    if columns.rank is not None:
        raise InvalidParameterError(f"explain_ranks needs scores; remove {option('rank')}.")
    if columns.item is None:
        raise InvalidParameterError(f"explain_ranks needs the item column; name it ({option('item')}).")
    clashes = sorted(name for name in columns.query if name.lower() in {*RESULT_COLUMNS, RUN})
    if clashes:
        raise InvalidParameterError(f"query column {clashes[0]!r} has the name of a result column; rename it.")
    rows = select_canonical_columns(frame, plan_rows(describe_table(frame), settings, has_judgments_table=False))
    rows = select_valid_rows(explode_scores(rows, settings), RowCheck(settings))
    rows = rows.withColumn(RELEVANCE, F.col(RELEVANCE).cast("double"))
    if ITEM not in rows.columns:
        advice = settings.convention.advice("ties", "item_asc")
        raise InvalidParameterError(
            f"explain_ranks needs items, but no rule of these settings reads them; use {advice}."
        )
    keys = [*([RUN] if RUN in rows.columns else []), *names.query]
    rows = _check_duplicates(rows, settings, keys).withColumn(JUDGED, F.col(RELEVANCE).isNotNull())
    ranked = add_ranks(rows, settings)
    if settings.convention.ties in ("best", "worst"):
        ranked = _order_ties_by_gain(ranked, settings, keys)
    n_ranked = F.count("place").over(Window.partitionBy(*exact_cols(keys)))
    ideal_rank = F.lit(None).cast("int") if settings.convention.ideal == "k_ones" else F.col("ideal_place")
    selected = ranked.select(
        *[exact_col(name).alias(names.query.get(name, name)) for name in keys],
        ITEM,
        SCORE,
        RELEVANCE,
        F.col("place").cast("int").alias("rank"),
        ideal_rank.cast("int").alias("ideal_rank"),
        F.col("tied").cast("int").alias("tied"),
        n_ranked.cast("int").alias("n_ranked"),
    )
    fields = [field for field in selected.schema if field.name not in ("tied", "n_ranked")]
    weights = [T.StructField(name, T.DoubleType()) for name in ("gain", "discount", "ideal_discount")]
    schema = T.StructType([*fields, *weights])
    return in_workers(selected, add_gains, settings.convention, settings.max_k, schema=schema)


def _check_duplicates(rows: DataFrame, settings: EvaluationSettings, keys: list[str]) -> DataFrame:
    if settings.convention.duplicates != "error":
        return resolve_duplicates(rows, settings)
    if settings.check_duplicates == "none":
        return rows
    is_repeated = F.count(F.lit(1)).over(Window.partitionBy(*exact_cols([*keys, ITEM]))) > 1
    advice = advise_on_repeats("ranking", settings, ())
    message = (
        "an item appears twice in query ",
        format_query_key(keys, canonical_names(settings).query),
        f". {advice}",
    )
    return rows.withColumn("twice", is_repeated).withColumn(
        RELEVANCE, raise_if(F.col(RELEVANCE), F.col("twice"), *message, kind="double")
    )


def _order_ties_by_gain(ranked: DataFrame, settings: EvaluationSettings, keys: list[str]) -> DataFrame:
    """Order tied items by gain, best or worst first. An unjudged item gains 0."""
    gain: Column = F.coalesce(build_ideal_key(settings), F.lit(0.0))
    order = gain.desc() if settings.convention.ties == "best" else gain.asc()
    within = Window.partitionBy(*exact_cols(keys), "place").orderBy(order, F.col(ITEM))
    number = F.row_number().over(within)
    return ranked.withColumn("place", F.when(F.col("place").isNotNull(), F.col("place") + number - 1)).withColumn(
        "tied", F.lit(1)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Result of `explain_difference` with Spark: the gap between two conventions, choice by choice.

    Parameters
    ----------
    conventions : tuple of EvaluationSettings
        Settings from the first convention to the second, one part changed at a time.
    steps : DataFrame
        `run`, `step` (0 is the first convention), `part`, `before`, `after`, `value`, `contribution`, `n_queries`.
        The contributions of a run add up to its gap. Lazy.
    queries : DataFrame
        `run`, the query columns, `value_a`, `value_b`, and `contribution`, the share of the query in the gap. A value
        is null if the convention leaves the query out. Lazy.
    """

    conventions: tuple[EvaluationSettings, ...]
    steps: DataFrame
    queries: DataFrame


@accepts_tables
def explain_ranks(
    data: DataFrame,
    *,
    k: int | str = 10,
    convention: str | Convention = "default",
    query: str | Sequence[str] = "query_id",
    item: str = "item_id",
    score: str = "score",
    relevance: str = "relevance",
    run: str | None = None,
    order: str | None = None,
    on_invalid: OnInvalid = "fail",
    null_score: NullScore = "bad",
    check_duplicates: DuplicateCheck = "top",
) -> DataFrame:
    """Rank every row of a long table and show its contribution to DCG and to the ideal DCG.

    Parameters
    ----------
    data : DataFrame
        A long table with scores and relevances.
    k : int or "all"
        Cutoff. Later ranks are listed with weight 0.
    convention : str or Convention
        As for `evaluate`.
    query, item, score, relevance, run, order : str
        Column names, as for `evaluate`.
    on_invalid, null_score, check_duplicates
        As for `evaluate`.

    Returns
    -------
    DataFrame
        Lazy and unsorted, with the columns `run` (if a run column is named), the query columns, `item`, `score`,
        `relevance`, `rank` (from 1; null for an unranked item; with `ties=expected` the first rank of the tie group),
        `ideal_rank` (null for an item outside the ideal list), `gain`, `discount` and `ideal_discount`.

        The sum of gain * discount is DCG@K, and the sum of gain * ideal_discount is IDCG@K. Items added by `pad_to_k`
        and the ideal list of `ideal=k_ones` have no rows.

    Raises
    ------
    MissingColumnError, InputRefusedError, InvalidParameterError

    Notes
    -----
    Spark cost: whole queries are shuffled and sorted several times, and every row passes through Python twice.
    Filter first: the function is meant for a few queries.

    Examples
    --------
    >>> explain_ranks(rankings.where("query_id = 'q1'"), k=5).orderBy("rank").show()  # doctest: +SKIP
    """
    arguments = dict(locals()) | {"k": parse_single_cutoff(k)}
    return rank_rows(arguments.pop("data"), evaluation_settings(**arguments))


def explain_on_spark(
    data: DataFrame | str, steps: Sequence[Step], judgments: DataFrame | str | None = None
) -> Explanation:
    """Split the gap between two conventions into contributions of steps. Lazy."""
    rankings = [choose_ranking(data, step.settings, judgments=judgments) for step in steps]
    settings = steps[0].settings
    require_query(rankings[0].settings)
    rows = [
        ranking.summary()
        .where("metric = 'ndcg' and segment_by = ''")
        .select(
            "run",
            F.lit(index).alias("step"),
            F.lit(step.part).alias("part"),
            F.lit(step.before).alias("before"),
            F.lit(step.after).alias("after"),
            "value",
            "n_queries",
        )
        for index, (ranking, step) in enumerate(zip(rankings, steps, strict=True))
    ]
    by_step = Window.partitionBy("run").orderBy("step")
    merged = reduce(DataFrame.unionByName, rows)
    merged = merged.withColumn("contribution", F.col("value") - F.lag("value").over(by_step))
    ends = [score_queries(rankings[index].rankings(), rankings[index].settings) for index in (0, -1)]
    return Explanation(
        conventions=tuple(step.settings for step in steps),
        steps=merged,
        queries=_compute_query_gaps(*ends, settings=settings),
    )


def _compute_query_gaps(first: DataFrame, second: DataFrame, *, settings: EvaluationSettings) -> DataFrame:
    keys = ["run", *settings.columns.query]
    has_weights = settings.columns.weight is not None

    def side(scored: DataFrame, name: str) -> DataFrame:
        weight = F.when(F.col("ndcg").isNotNull(), F.col("weight") if has_weights else F.lit(1.0))
        weighted_values = scored.select(
            *exact_cols(keys), F.col("ndcg").alias(f"value_{name}"), weight.alias(f"weight_{name}")
        )
        total = F.sum(f"weight_{name}").over(Window.partitionBy("run"))
        return weighted_values.withColumn(f"share_{name}", F.col(f"weight_{name}") / total)

    joined = side(first, "a").join(side(second, "b"), keys, "full")
    terms = [F.coalesce(F.col(f"value_{name}") * F.col(f"share_{name}"), F.lit(0.0)) for name in ("a", "b")]
    contribution = (terms[1] - terms[0]).alias("contribution")
    return joined.select(*exact_cols(keys), "value_a", "value_b", contribution)
