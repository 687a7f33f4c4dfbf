"""Metrics as aggregates: `rankings.groupBy("query_id").agg(ndcg_at("score", "relevance", k=10))`."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F

from ndcg_spark.functions import arguments, formulas
from ndcg_spark.functions.arguments import COLUMNS, GainOfRelevance, bind_gain, bind_hit, make_cut
from ndcg_spark.functions.formulas import Expression

_document = arguments.document("""\
Spark cost: one aggregate, `collect_list`, of all rows of a group, which must fit into the memory of a task; no
action, no Python worker. `evaluate` cuts lists before they are shuffled, checks for duplicate items, and returns
the same bits on any cluster; results differ from it in the last digits at most.""")


@_document
def ndcg_at(
    score: Column | str,
    relevance: Column | str,
    *,
    k: int | str | None = None,
    ties: str = "expected",
    gain: str = "exponential",
    discount: str = "log2",
    no_relevant: str = "zero",
) -> Column:
    """NDCG of each group, as an aggregate.

    Returns
    -------
    Column
        Double, named `ndcg_at(score, relevance, k=10)` after its arguments; null for a group without any judged
        item, so that `avg` equals the mean of `evaluate`. The action raises for a score or a relevance
        that is NaN or infinite, and for a relevance whose gain exceeds 2^63.
    """
    cut, form = make_cut(k, ties), arguments.resolve_discount(discount, k)
    nothing = arguments.resolve_no_relevant(no_relevant)

    def value(entries: Expression, ranked: Expression) -> Expression:
        otherwise = nothing
        if no_relevant != "zero":  # a query without retrieved items is always 0
            otherwise = F.when(formulas.has_number(COLUMNS, entries["score"]), nothing).otherwise(0.0)
        return formulas.ndcg(COLUMNS, entries["gain"], ranked, cut, form, otherwise)

    return _aggregate_group("ndcg_at", score, relevance, cut, bind_gain(gain), value)


@_document
def dcg_at(
    score: Column | str,
    relevance: Column | str,
    *,
    k: int | str | None = None,
    ties: str = "expected",
    gain: str = "exponential",
    discount: str = "log2",
) -> Column:
    """DCG of each group, as an aggregate.

    Returns
    -------
    Column
        Double, named `dcg_at(score, relevance, k=10)`; null for a group without any judged item. The action
        raises as for `ndcg_at`.
    """
    cut, form = make_cut(k, ties), arguments.resolve_discount(discount, k)

    def value(entries: Expression, ranked: Expression) -> Expression:
        return formulas.dcg(COLUMNS, entries["gain"], ranked, cut, form)

    return _aggregate_group("dcg_at", score, relevance, cut, bind_gain(gain), value)


@_document
def precision_at(
    score: Column | str,
    relevance: Column | str,
    *,
    k: int | str | None = None,
    ties: str = "expected",
    rel: float = 1.0,
) -> Column:
    """Precision of each group, as an aggregate: relevant items among the first k, divided by k.

    The divisor is k even where the list is shorter; without a cutoff it is the length of the list.

    Returns
    -------
    Column
        Double, named `precision_at(score, relevance, k=10)`; null for a group without any judged item. The action
        raises for a score or a relevance that is NaN or infinite.
    """
    return _aggregate_hits("precision_at", score, relevance, make_cut(k, ties), rel, formulas.precision)


@_document
def recall_at(
    score: Column | str,
    relevance: Column | str,
    *,
    k: int | str | None = None,
    ties: str = "expected",
    rel: float = 1.0,
) -> Column:
    """Recall of each group, as an aggregate: relevant items among the first k, divided by all relevant judged items.

    Returns
    -------
    Column
        Double, named `recall_at(score, relevance, k=10)`; 0 if nothing is relevant, null for a group without any
        judged item. The action raises for a score or a relevance that is NaN or infinite.
    """
    return _aggregate_hits("recall_at", score, relevance, make_cut(k, ties), rel, formulas.recall)


@_document
def average_precision_at(
    score: Column | str,
    relevance: Column | str,
    *,
    k: int | str | None = None,
    ties: str = "expected",
    rel: float = 1.0,
    denominator: str = "judged",
) -> Column:
    """Average precision of each group, as an aggregate.

    Returns
    -------
    Column
        Double, named `average_precision_at(score, relevance, k=10)`; 0 if nothing is relevant, null for a group
        without any judged item. The action raises for a score or a relevance that is NaN or infinite.
    """
    value = arguments.bind_denominator(denominator)
    return _aggregate_hits("average_precision_at", score, relevance, make_cut(k, ties), rel, value)


@_document
def reciprocal_rank_at(
    score: Column | str,
    relevance: Column | str,
    *,
    k: int | str | None = None,
    ties: str = "expected",
    rel: float = 1.0,
) -> Column:
    """Reciprocal rank of each group, as an aggregate: 1 / rank of the first relevant item.

    Returns
    -------
    Column
        Double, named `reciprocal_rank_at(score, relevance, k=10)`; 0 if no relevant item is among the first k,
        null for a group without any judged item. The action raises for a score or a relevance that is NaN or
        infinite.
    """
    return _aggregate_hits("reciprocal_rank_at", score, relevance, make_cut(k, ties), rel, formulas.reciprocal_rank)


def _aggregate_hits(
    name: str, score: Column | str, relevance: Column | str, cut: formulas.Cut, rel: float, metric: formulas.Metric
) -> Column:
    """Aggregate a metric of relevant items."""
    return _aggregate_group(
        name,
        score,
        relevance,
        cut,
        bind_hit(rel),
        lambda entries, ranked: metric(COLUMNS, entries["gain"], ranked, cut),
    )


def _aggregate_group(
    name: str,
    score: Column | str,
    relevance: Column | str,
    cut: formulas.Cut,
    compute_gain: GainOfRelevance,
    value: Callable[[Expression, Expression], Expression],
) -> Column:
    """Collect the scores and gains of a group in any order, rank them, and compute `value` from them."""
    gain = compute_gain(arguments.cast_number(relevance, "relevance"), f"column {arguments.format_column(relevance)}")
    valid_score = formulas.refuse_score(
        COLUMNS, arguments.cast_number(score, "score"), f"column {arguments.format_column(score)}"
    )
    entries = F.collect_list(formulas.make_entry(COLUMNS, valid_score, gain))
    metric = value(entries, formulas.rank_entries(COLUMNS, entries, cut))
    return arguments.alias_result(metric, name, cut, score, relevance)
