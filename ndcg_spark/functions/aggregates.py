"""Metrics as aggregates: `rankings.groupBy("query_id").agg(ndcg_at("score", "relevance", k=10))`."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F

from ndcg_spark.errors import one_of
from ndcg_spark.functions import arguments, formulas
from ndcg_spark.functions.arguments import ON
from ndcg_spark.functions.formulas import Value

_documented = arguments.documented("""\
Spark cost: one aggregate, `collect_list`, of all rows of a group, which must fit into the memory of a task; no
action, no Python worker. `evaluate` cuts lists before they are shuffled, looks for items that come twice, and gives
the same bits on any cluster; this differs from it in the last digits at most.""")


@_documented
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
        item, so that `avg` gives the mean that `evaluate` gives. The action raises for a score or a relevance
        that is NaN or infinite, and for a relevance whose gain exceeds 2^63.
    """
    cut, form = _cut(k, ties), arguments.discount_of(discount, k)
    nothing = arguments.nothing_of(no_relevant)

    def value(entries: Value, ranked: Value) -> Value:
        otherwise = nothing
        if no_relevant != "zero":  # a query of which nothing was retrieved is 0 in any case
            otherwise = F.when(formulas.any_there(ON, entries["score"]), nothing).otherwise(0.0)
        return formulas.ndcg(ON, entries["gain"], ranked, cut, form, otherwise)

    return _of_group("ndcg_at", score, relevance, cut, _gain(relevance, gain), value)


@_documented
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
    cut, form = _cut(k, ties), arguments.discount_of(discount, k)

    def value(entries: Value, ranked: Value) -> Value:
        return formulas.dcg(ON, entries["gain"], ranked, cut, form)

    return _of_group("dcg_at", score, relevance, cut, _gain(relevance, gain), value)


@_documented
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
    return _of_hits("precision_at", score, relevance, _cut(k, ties), rel, formulas.precision)


@_documented
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
    return _of_hits("recall_at", score, relevance, _cut(k, ties), rel, formulas.recall)


@_documented
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
    value = arguments.average_precision_by(denominator)
    return _of_hits("average_precision_at", score, relevance, _cut(k, ties), rel, value)


@_documented
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
    return _of_hits("reciprocal_rank_at", score, relevance, _cut(k, ties), rel, formulas.reciprocal_rank)


def _cut(k: int | str | None, ties: str) -> formulas.Cut:
    one_of("ties", ties, ("expected", "best", "worst"))
    sign = -1.0 if ties == "worst" else 1.0
    return formulas.Cut(arguments.cutoff(k), F.lit(ties == "expected"), F.lit(sign), arguments.shown_k(k))


def _gain(relevance: Column | str, gain: str) -> Value:
    """Gain of each row; null for an unjudged item."""
    number = arguments.number(relevance, "relevance")
    return formulas.checked_gain(ON, gain, number, f"column {arguments.shown(relevance)}")


def _of_hits(
    name: str, score: Column | str, relevance: Column | str, cut: formulas.Cut, rel: float, metric: formulas.Metric
) -> Column:
    """A metric of hits: 1.0 for a row with a relevant item, else 0.0; null for an unjudged item."""
    number = arguments.number(relevance, "relevance")
    hit = formulas.checked_hit(ON, arguments.level_of(rel), number, f"column {arguments.shown(relevance)}")
    return _of_group(
        name, score, relevance, cut, hit, lambda entries, ranked: metric(ON, entries["gain"], ranked, cut)
    )


def _of_group(
    name: str,
    score: Column | str,
    relevance: Column | str,
    cut: formulas.Cut,
    gain: Value,
    value: Callable[[Value, Value], Value],
) -> Column:
    """Collect scores and gains of a group, in any order, rank them, and compute a value of both."""
    checked = formulas.refuse_score(ON, arguments.number(score, "score"), f"column {arguments.shown(score)}")
    entries = F.collect_list(formulas.entry(ON, checked, gain))
    found = value(entries, formulas.rank_entries(ON, entries, cut))
    return arguments.result(found, name, cut, score, relevance)
