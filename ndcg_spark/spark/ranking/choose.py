"""Which way to rank, and why."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from ndcg_spark.errors import InvalidParameterError
from ndcg_spark.plan import EvaluationPlan
from ndcg_spark.spark.ranking.ideal import needs_ideal
from ndcg_spark.spark.ranking.stored import is_scattered, obstacle_to_files, obstacle_to_moving
from ndcg_spark.worker.grades import LONGEST

_READ = "workers read the Parquet files"
LARGEST_TOP_K = 99_999
"""Spark takes up to 100,000, and lists in which duplicates are looked for hold one more than k."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How the ranked list and the ideal list come about.

    Parameters
    ----------
    ranked : str
        `files`, `given`, `top_k`, `window` or `arrays`.
    ideal : str
        `files`, `top_k`, `window`, `arrays`, or `grades`: counts of each relevance, and where ranks are given both
        lists.
    reason : str
        For a person.
    others : str
        With `grades`: how the ideal list comes by what is no grade, `top_k` or `window`.
    moves : bool
        With `files`: whether all rows are moved to their query first.
    """

    ranked: str
    ideal: str
    reason: str
    others: str = ""
    moves: bool = False


def has_top_k(frame: DataFrame) -> bool:
    """Whether this Spark aggregates the K largest with `max_by(x, y, k)`. Analyses a query, runs no action.

    Parameters
    ----------
    frame : DataFrame

    Returns
    -------
    bool
        Decided by the type of the result: some engines accept k and ignore it.
    """
    try:
        probe = frame.sparkSession.range(1).selectExpr("max_by(id, id, 2) as best")
        return isinstance(probe.schema["best"].dataType, T.ArrayType)
    except AnalysisException:
        return False


def choose_way(frame: DataFrame, plan: EvaluationPlan, *, judged: bool = True) -> Way:
    """Choose how to rank a table, or check the way that was asked for.

    Reads the schema, and of local Parquet files footers and the first rows of one; runs no action.

    Parameters
    ----------
    frame : DataFrame
        The main table, as it came.
    plan : EvaluationPlan
    judged : bool
        Whether relevances are taken from it, not from a judgments table.

    Returns
    -------
    Way

    Raises
    ------
    InvalidParameterError
        When the way asked for cannot be gone with this table or this Spark.
    """
    columns = plan.columns
    arrays = columns.relevance in frame.columns and isinstance(frame.schema[columns.relevance].dataType, T.ArrayType)
    if arrays:
        _only(plan, "arrays", f"column {columns.relevance!r} holds lists that are in rank order already")
        return Way(ranked="arrays", ideal="arrays", reason=f"column {columns.relevance!r} is an array")
    if plan.convention.ideal == "unsorted":
        raise InvalidParameterError("ideal=unsorted needs arrays: a column of relevances and one of judged ones.")
    files = _files_way(frame, plan, judged=judged)
    if files is not None:
        return files
    lists, reason = _list_way(frame, plan)
    by_grades = judged and _by_grades(frame, plan)
    if columns.rank is not None and plan.convention.unjudged != "condensed":
        given = f"ranks are given in column {columns.rank!r}"
        _only(plan, "given", given)
        if by_grades and plan.way in ("auto", "given") and (plan.longest or 0) <= LONGEST:
            reason = "grades on ranks and counts of them are all it takes"
            return Way(ranked="given", ideal="grades", reason=f"{given}; {reason}", others=lists)
        return Way(ranked="given", ideal=lists, reason=f"{given}; {reason}")
    if plan.way in ("given", "arrays"):
        missing = "a rank column (rank-col)" if plan.way == "given" else "an array column of relevances"
        raise InvalidParameterError(f"way={plan.way} needs {missing}.")
    ranked = lists
    if plan.convention.groups_ties:
        ranked, reason = "window", _why_tied(plan)
    if by_grades and ranked == "window" and needs_ideal(plan):
        return Way(ranked=ranked, ideal="grades", reason=reason, others=lists)
    return Way(ranked=ranked, ideal=lists, reason=reason)


def _files_way(frame: DataFrame, plan: EvaluationPlan, *, judged: bool) -> Way | None:
    if plan.way not in ("auto", "files"):
        return None
    obstacle = obstacle_to_files(frame, plan, judged=judged)
    moves = obstacle is None and is_scattered(frame, plan)
    if moves:
        obstacle = obstacle_to_moving(frame, plan)
    if obstacle is None:
        how = ", move rows to their query, and cut them" if moves else ", and cut what they read"
        return Way(ranked="files", ideal="files", moves=moves, reason=f"{_READ}{how}")
    if plan.way == "files":
        raise InvalidParameterError(f"way=files cannot be gone: {obstacle}; use way=auto.")
    return None


def _by_grades(frame: DataFrame, plan: EvaluationPlan) -> bool:
    """Whether counts of grades hold all there is to know of an ideal list: no items, whole relevances."""
    columns = plan.columns
    if (plan.looks_at_items and columns.item in frame.columns) or plan.longest is None:
        return False
    kind = frame.schema[columns.relevance].dataType if columns.relevance in frame.columns else None
    return isinstance(kind, T.IntegralType | T.BooleanType)


def _why_tied(plan: EvaluationPlan) -> str:
    ties = f"ties={plan.convention.ties}"
    if plan.way == "top_k":
        raise InvalidParameterError(f"way=top_k does not fit: {ties} takes all items that tie at rank k.")
    return f"{ties} takes all items that tie at rank k, which a window finds"


def _only(plan: EvaluationPlan, way: str, why: str) -> None:
    if plan.way not in ("auto", way) and not (way == "given" and plan.way in ("top_k", "window")):
        raise InvalidParameterError(f"way={plan.way} does not fit: {why}.")


def _list_way(frame: DataFrame, plan: EvaluationPlan) -> tuple[str, str]:
    k = plan.longest
    if plan.way == "window":
        return "window", "the window way was asked for"
    obstacle = None
    if k is None:
        obstacle = "whole lists (k=all) have no largest cutoff"
    elif k > LARGEST_TOP_K:
        obstacle = f"top-K aggregates end at k={LARGEST_TOP_K}"
    elif not has_top_k(frame):
        obstacle = "this Spark has no max_by(x, y, k); it came with 4.2"
    if obstacle is None:
        return "top_k", f"the {k} best of each query are found by aggregates, before the shuffle"
    if plan.way == "top_k":
        raise InvalidParameterError(f"way=top_k cannot be gone: {obstacle}; use way=window.")
    return "window", obstacle
