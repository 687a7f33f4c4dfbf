"""From tables to rankings: the one entry to every way."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ndcg_spark.errors import InvalidParameterError
from ndcg_spark.plan import EvaluationPlan
from ndcg_spark.spark.expressions import columns_of
from ndcg_spark.spark.ranking.arrays import rank_arrays
from ndcg_spark.spark.ranking.choose import choose_way
from ndcg_spark.spark.ranking.duplicates import resolve_duplicates
from ndcg_spark.spark.ranking.files import rank_files
from ndcg_spark.spark.ranking.judged import rank_with_judgments
from ndcg_spark.spark.ranking.lists import ENTRIES
from ndcg_spark.spark.ranking.single import rank_single
from ndcg_spark.spark.rows import judgment_rows, keys_of, require_carried, run_rows, usable


def rank_queries(
    frame: DataFrame,
    plan: EvaluationPlan,
    *,
    judgments: DataFrame | None = None,
    parse_text: bool = False,
    parse_judgment_text: bool = False,
) -> DataFrame:
    """Rank every query: one row each, with the lists that metrics are computed from.

    Parameters
    ----------
    frame : DataFrame
        A long table, a run, or one row a query with arrays.
    plan : EvaluationPlan
    judgments : DataFrame or None
        Query, item, relevance; None where the main table has the relevances.
    parse_text, parse_judgment_text : bool
        Whether text columns are read as numbers.

    Returns
    -------
    DataFrame
        Rankings, as described at the head of this package; lazy.

    Raises
    ------
    MissingColumnError, InputRefusedError, InvalidParameterError
        For what the schemas show. What only the rows show raises when an action reaches it.

    Notes
    -----
    Spark cost: no action. A pass through Python workers that read files, and one shuffle of a row a query and part
    of these; or one shuffle of at most K rows a query and input partition (top-K aggregates), or two
    such shuffles with two sorts and a small one of counts (windows; one sort where counts of grades make the ideal
    list). With judgments: one more of the judgments, and joins of K rows a query.
    """
    way = choose_way(frame, plan, judged=judgments is None)
    if way.ranked == "arrays":
        if judgments is not None:
            raise InvalidParameterError("arrays of relevances need no judgments table.")
        require_carried(plan, frame)
        return _finished(rank_arrays(frame, plan), plan)
    if way.ranked == "files":
        require_carried(plan, frame)
        return _finished(rank_files(frame, plan, moves=way.moves), plan)
    rows = usable(run_rows(frame, plan, judged=judgments is None, parse_text=parse_text), plan, _guard_column(plan))
    rows = resolve_duplicates(rows, plan, keys_of(plan))
    rows = _moved(rows, plan, keys_of(plan))
    if judgments is None:
        require_carried(plan, frame)
        return _finished(rank_single(rows, plan, way), plan)
    require_carried(plan, frame, judgments)
    judged = usable(judgment_rows(judgments, plan, parse_text=parse_judgment_text), plan, "relevance")
    judged = _moved(resolve_duplicates(judged, plan, plan.columns.query), plan, plan.columns.query)
    return _finished(rank_with_judgments(rows, judged, plan, way), plan)


def _moved(rows: DataFrame, plan: EvaluationPlan, keys: tuple[str, ...]) -> DataFrame:
    """Bring the rows of a query into one partition first, where there is nothing to cut before that."""
    return rows.repartition(*columns_of(keys)) if plan.layout == "scattered" else rows


def _guard_column(plan: EvaluationPlan) -> str:
    given = plan.columns.rank is not None and plan.convention.unjudged != "condensed"
    return "rank" if given else "score"


def _finished(rankings: DataFrame, plan: EvaluationPlan) -> DataFrame:
    """Put the columns in order; name the unnamed ranker with the empty string."""
    if "run" not in rankings.columns:
        rankings = rankings.withColumn("run", F.lit(""))
    names = ["run", *plan.columns.query, "n_rows", "n_left_out", "n_items", "n_judged", "n_relevant"]
    names += plan.carried_segments
    names += ["weight"] if plan.columns.weight is not None else []
    lists = ("ranked", "ranks", "scores", "tied", "ideal", "grades", "others", "pieces")
    names += [name for name in lists if name in rankings.columns]
    for name in ("ranked", "ideal"):
        if name in rankings.columns:
            rankings = rankings.withColumn(name, F.col(name).cast(ENTRIES))
    return rankings.select(*columns_of(names))
