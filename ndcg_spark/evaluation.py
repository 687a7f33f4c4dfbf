"""The front door for notebooks: one call, two lazy DataFrames."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame

from ndcg_spark.conventions import Convention
from ndcg_spark.errors import InvalidParameterError
from ndcg_spark.plan import Columns, EvaluationPlan
from ndcg_spark.spark.ranking import rank_queries
from ndcg_spark.spark.scoring import score_queries
from ndcg_spark.spark.summary import summarize_rankings


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What `evaluate` hands back; nothing of it has run yet.

    Parameters
    ----------
    plan : EvaluationPlan
    rankings : DataFrame
        One row per (run, query) with its two short lists.
    per_query : DataFrame
        One row per (run, query, k); see `score_queries`.
    summary : DataFrame
        One row per (run, segment, metric, k); see `summarize`.
    """

    plan: EvaluationPlan
    rankings: DataFrame
    per_query: DataFrame
    summary: DataFrame


def cutoffs_of(k: int | str | Sequence[int | str | None] | None) -> tuple[int | None, ...]:
    """Put cutoffs in order, each once; `all` or None is the whole list and comes last.

    Parameters
    ----------
    k : int, str, None, or a sequence of these

    Returns
    -------
    tuple of int or None

    Raises
    ------
    InvalidParameterError

    Examples
    --------
    >>> cutoffs_of(["all", 10, 1])
    (1, 10, None)
    """
    given = list(k) if isinstance(k, Iterable) and not isinstance(k, str) else [k]
    numbers: set[int] = set()
    for one in given:
        if one is None or one == "all":
            continue
        try:
            numbers.add(int(one) if isinstance(one, str) else operator.index(one))
        except (ValueError, TypeError):
            raise InvalidParameterError(f"k must be a whole number from 1 on, or all; got {one!r}.") from None
    whole: list[int | None] = [None] if any(one is None or one == "all" for one in given) else []
    return (*sorted(numbers), *whole)


def segment_sets_of(segments: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Read segment sets: each a column, or columns joined by `+`.

    Parameters
    ----------
    segments : sequence of str

    Returns
    -------
    tuple of tuple of str

    Examples
    --------
    >>> segment_sets_of(["country", "country+device"])
    (('country',), ('country', 'device'))
    """
    sets = tuple(tuple(name.strip() for name in one.split("+")) for one in segments)
    repeats = len(set(sets)) < len(sets) or any(len(set(names)) < len(names) for names in sets)
    if repeats or not all(name for names in sets for name in names):
        raise InvalidParameterError(f"segments must be column names, each set once; got {list(segments)}.")
    return sets


def evaluate(
    data: DataFrame,
    *,
    k: int | str | Sequence[int | str | None] | None = 10,
    judgments: DataFrame | None = None,
    convention: str | Convention = "default",
    segments: Sequence[str] = (),
    query: str | Sequence[str] = "query_id",
    item: str | None = "item_id",
    score: str | Sequence[str] = "score",
    rank: str | None = None,
    relevance: str = "relevance",
    run: str | None = None,
    weight: str | None = None,
    order: str | None = None,
    way: str = "auto",
    on_invalid: str = "fail",
) -> Evaluation:
    """Evaluate rankings: NDCG, DCG and IDCG of every query, and their means.

    Parameters
    ----------
    data : DataFrame
        A long table (query, item, score or rank, relevance); a run (without relevance) with `judgments`
        beside it; or one row a query with an array of relevances in rank order.
    k : int, `"all"`, or a sequence of these
        Cutoffs; all of them are computed in one pass.
    judgments : DataFrame or None
        Query, item and relevance under the same column names.
    convention : str or Convention
        A preset's name, with changes after semicolons: `"trec_eval;gain=exponential"`.
    segments : sequence of str
        Columns to group means by, constant within a query; `"a+b"` groups by both together.
    query, item, score, rank, relevance, run, weight, order : str
        Column names; several for a composite query key, and for several rankers side by side.
    way, on_invalid : str
        As in `EvaluationPlan`.

    Returns
    -------
    Evaluation
        Lazy DataFrames.

    Raises
    ------
    MissingColumnError, InputRefusedError, InvalidParameterError

    Notes
    -----
    Spark cost: none until an action; then that of `rank_queries`, `score_queries` and `summarize`.
    """
    chosen = Convention.parse(convention) if isinstance(convention, str) else convention
    columns = Columns(
        query=(query,) if isinstance(query, str) else tuple(query),
        item=item,
        score=(score,) if isinstance(score, str) else tuple(score),
        rank=rank,
        relevance=relevance,
        run=run,
        weight=weight,
        order=order,
    )
    plan = EvaluationPlan(
        columns=columns,
        convention=chosen,
        cutoffs=cutoffs_of(k),
        segment_sets=segment_sets_of(segments),
        way=way,
        on_invalid=on_invalid,
    )
    rankings = rank_queries(data, plan, judgments=judgments)
    return Evaluation(
        plan=plan,
        rankings=rankings,
        per_query=score_queries(rankings, plan),
        summary=summarize_rankings(rankings, plan),
    )
