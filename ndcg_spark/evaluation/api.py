"""The front door for notebooks: one call, lazy DataFrames."""

from __future__ import annotations

import difflib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypedDict

from pyspark.sql import DataFrame

from ndcg_spark.conventions import Convention
from ndcg_spark.core.streams import refuses_streams
from ndcg_spark.errors import InvalidParameterError
from ndcg_spark.evaluation.frames.ranking import Ranking, choose_ranking
from ndcg_spark.evaluation.settings import (
    Columns,
    EvaluationPlan,
    ItemColumns,
    cutoffs_of,
    metrics_of,
    segment_sets_of,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Result of `evaluate`: lazy DataFrames of means, of metrics per query, and of rankings.

    Parameters
    ----------
    plan : EvaluationPlan
    ranking : Ranking
        The strategy and the source that were chosen.

    Attributes
    ----------
    summary : DataFrame
        Means, one row per (run, segment, metric, k); see `summarize`.
    per_query : DataFrame
        Metrics, one row per (run, query, k); see `score_queries`.
    rankings : DataFrame
        What metrics are computed from, one row per (run, query); see `rank_queries`.

    Notes
    -----
    Nothing is cached: each action ranks again.
    """

    plan: EvaluationPlan
    ranking: Ranking

    @cached_property
    def rankings(self) -> DataFrame:
        """One row per (run, query), with the arrays `ranked` and `ideal`; see `rank_queries`. Lazy."""
        return self.ranking.rankings()

    @cached_property
    def summary(self) -> DataFrame:
        """One row per (run, segment, metric, k); see `summarize`. Lazy."""
        return self.ranking.summary()

    @cached_property
    def per_query(self) -> DataFrame:
        """One row per (run, query, k); see `score_queries`. Lazy."""
        return self.ranking.per_query()


COLUMN_OPTIONS = ("query", "item", "score", "rank", "relevance", "ideal", "run", "weight", "order")
ITEM_OPTIONS = ("vector", "categories", "first_seen", "topics", "user")


class EvaluationOptions(TypedDict, total=False):
    """Options of `evaluate`; see there."""

    k: int | str | Sequence[int | str | None] | None
    metrics: str | Sequence[str] | None
    convention: str | Convention
    segments: str | Sequence[str]
    query: str | Sequence[str]
    item: str | None
    score: str | Sequence[str]
    rank: str | None
    relevance: str
    ideal: str | None
    run: str | None
    weight: str | None
    order: str | None
    strategy: str
    source: str
    on_invalid: str
    null_score: str
    check_duplicates: str
    confidence: float
    sample: float
    tie_bounds: bool
    vector: str
    categories: str
    first_seen: str
    topics: str
    user: str | None
    as_of: date | None


def evaluation_plan(**options: Unpack[EvaluationOptions]) -> EvaluationPlan:
    """Build the plan that the options of `evaluate` describe.

    Parameters
    ----------
    **options
        As for `evaluate`.

    Returns
    -------
    EvaluationPlan

    Raises
    ------
    InvalidParameterError

    Examples
    --------
    >>> evaluation_plan(k=[5, 1], convention="trec_eval").cutoffs
    (1, 5)
    """
    given: dict[str, Any] = dict(options)
    unknown = sorted(set(given) - set(EvaluationOptions.__annotations__))
    if unknown:
        near = difflib.get_close_matches(unknown[0], EvaluationOptions.__annotations__, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise InvalidParameterError(f"there is no option {unknown[0]!r}.{hint}")
    columns = {name: given.pop(name) for name in COLUMN_OPTIONS if name in given}
    of_items = {name: given.pop(name) for name in ITEM_OPTIONS if name in given}
    for name in ("query", "score"):
        if name in columns:
            columns[name] = (columns[name],) if isinstance(columns[name], str) else tuple(columns[name])
    convention = given.pop("convention", "default")
    named = given.pop("metrics", None)
    if named is not None:
        metrics, cutoffs = metrics_of(named, given.pop("k")) if "k" in given else metrics_of(named)
    else:
        metrics, cutoffs = (), cutoffs_of(given.pop("k", 10))
    return EvaluationPlan(
        columns=Columns(**columns),
        item_columns=ItemColumns(**of_items),
        convention=Convention.parse(convention) if isinstance(convention, str) else convention,
        cutoffs=cutoffs,
        metrics=metrics,
        segment_sets=segment_sets_of(given.pop("segments", ())),
        **given,
    )


@refuses_streams
def evaluate(
    data: DataFrame | str | os.PathLike[str],
    *,
    judgments: DataFrame | None = None,
    items: DataFrame | None = None,
    interactions: DataFrame | None = None,
    **options: Unpack[EvaluationOptions],
) -> Evaluation:
    """Evaluate rankings: NDCG and other metrics of every query, and their means.

    Parameters
    ----------
    data : DataFrame, str or path
        A long table (query, item, score or rank, relevance); a run without relevances, with `judgments` beside it;
        or one row per query with an array of relevances in rank order. A string is the path of Parquet files, which
        Python workers read themselves where they can; that is the fastest. All files lie at its top, or all in
        `name=value` folders of one depth; such a column is text where a name is not the text of a number or date.
    judgments : DataFrame or None
        Query, item and relevance, under the same column names.
    items : DataFrame or None
        The catalogue, one row per item, with what metrics need: `vector`, `categories`, `first_seen`.
    interactions : DataFrame or None
        What users have met before, one row per interaction: user and item. For `novelty` and `first_new`.
    k : int, `"all"`, or a sequence of these
        Cutoffs, computed in one pass. Default: 10.
    metrics : str or sequence of str
        Metrics to compute in the same pass, such as `["ndcg@10", "ap@100", "p(rel=2)@5", "rr"]`; names of ir_measures
        are understood. A name without `@` is computed at each `k` where `k` is given, else on the whole list.
        Default: `ndcg`, `dcg` and `idcg` at each `k`.
    convention : str or Convention
        Name of a preset, with changes after semicolons: `"trec_eval;gain=exponential"`.
    segments : str or sequence of str
        Columns to group means by, constant within a query; `"a+b"` groups by both together.
    query, item, score, rank, relevance, ideal, run, weight, order : str
        Column names, as in `Columns`. Defaults: `query_id`, `item_id`, `score` and `relevance`; the others are not
        used. A sequence of names makes a composite query key, or one run of each score column.
    vector, categories, first_seen, topics, user : str
        Column names, as in `ItemColumns`, for metrics that need items, topics or interactions.
    as_of : date
        The day on which `first_appearance` counts ages.
    strategy, source, on_invalid, null_score, check_duplicates, confidence, sample, tie_bounds
        As in `EvaluationPlan`.

    Returns
    -------
    Evaluation
        Lazy DataFrames.

    Raises
    ------
    MissingColumnError, InputRefusedError, InvalidParameterError
        For what options and schemas show. Bad rows are found by the action; see `plain_refusals`.

    Notes
    -----
    Spark cost: none until an action; then that of `rank_queries`, `score_queries` and `summarize`. If `data` is a
    path, the footers of its files are read at once, those in an object store by a small job. Metrics of items add a
    join of the first K items of each query with the tables they need, and a shuffle to bring these together again;
    `alpha_ndcg` reads the judged rows twice.

    Examples
    --------
    >>> result = evaluate(rankings, k=[1, 10], segments=["country"])  # doctest: +SKIP
    >>> result.summary.where("metric = 'ndcg'").show()  # doctest: +SKIP
    """
    plan = evaluation_plan(**options)
    ranking = choose_ranking(data, plan, judgments=judgments, items=items, interactions=interactions)
    return Evaluation(plan=plan, ranking=ranking)
