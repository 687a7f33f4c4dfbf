"""Metrics as aggregates: `rankings.groupBy("query_id").agg(ndcg_at("score", "relevance", k=10))`."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from ndcg_spark.errors import one_of
from ndcg_spark.functions import arguments, formulas
from ndcg_spark.functions.arguments import ON
from ndcg_spark.functions.formulas import Value


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

    Parameters
    ----------
    score : Column or str
        Number by which items are ranked, the highest first. A null score is a judged item that was not retrieved: it
        takes no rank, and counts in the ideal list. Leave such rows out, and the ideal is that of the items listed,
        and NDCG is too high; for judgments in a table of their own see `evaluate(judgments=)`.
    relevance : Column or str
        Number or boolean. Null is an unjudged item, which gains 0.
    k : int, `"all"` or None
        Cutoff; None is the whole list, as `"all"` is.
    ties : str
        What items of one score count: `expected`, the average of all their orders, or the `best` or the `worst`
        order.
    gain, discount : str
        As in `Convention`.
    no_relevant : str
        Value if nothing is relevant: `zero`, `one`, or `skip` for null. A query of which nothing was retrieved is 0
        in any case.

    Returns
    -------
    Column
        Double, named `ndcg_at(score, relevance, k=10)` after its arguments; null for a group without any judged
        item, so that `avg` gives the mean that `evaluate` gives. The action raises for a score or a relevance
        that is NaN or infinite, and for a relevance whose gain exceeds 2^63.

    Raises
    ------
    InvalidParameterError

    Notes
    -----
    Spark cost: one aggregate, `collect_list`, of all rows of a group, which must fit into the memory of a task; no
    action, no Python worker. `evaluate` cuts lists before they are shuffled, looks for items that come twice, and
    gives the same bits on any cluster; this differs from it in the last digits at most.
    """
    cut, form = _cut(k, ties), arguments.discount_of(discount, k)
    nothing = arguments.nothing_of(no_relevant)
    entries = _entries(score, _gain(relevance, gain))
    ranked = formulas.rank_entries(ON, entries, cut)
    found = formulas.dcg(ON, ranked, cut, form)
    best = formulas.ideal_dcg(ON, entries["gain"], cut.k, form)
    if no_relevant != "zero":  # which a query has in any case of which nothing was retrieved
        nothing = F.when(formulas.any_there(ON, entries["score"]), nothing).otherwise(0.0)
    nothing = formulas.where_judged(ON, entries["gain"], nothing)
    return arguments.result(formulas.ratio(ON, found, best, nothing), "ndcg_at", cut, score, relevance)


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

    Parameters
    ----------
    score, relevance : Column or str
        As for `ndcg_at`.
    k : int, `"all"` or None
        Cutoff; None is the whole list, as `"all"` is.
    ties : str
        As for `ndcg_at`.
    gain, discount : str
        As in `Convention`.

    Returns
    -------
    Column
        Double, named `dcg_at(score, relevance, k=10)`; null for a group without any judged item. The action
        raises as for `ndcg_at`.

    Raises
    ------
    InvalidParameterError

    Notes
    -----
    Spark cost: as for `ndcg_at`.
    """
    cut, form = _cut(k, ties), arguments.discount_of(discount, k)
    entries = _entries(score, _gain(relevance, gain))
    found = formulas.dcg(ON, formulas.rank_entries(ON, entries, cut), cut, form)
    return arguments.result(formulas.where_judged(ON, entries["gain"], found), "dcg_at", cut, score, relevance)


def precision_at(
    score: Column | str,
    relevance: Column | str,
    *,
    k: int | str | None = None,
    ties: str = "expected",
    rel: float = 1.0,
) -> Column:
    """Precision of each group, as an aggregate: relevant items among the first k, divided by k.

    Parameters
    ----------
    score, relevance : Column or str
        As for `ndcg_at`.
    k : int, `"all"` or None
        Cutoff, and the divisor, even where the list is shorter; None and `"all"` are the length of the list.
    ties : str
        As for `ndcg_at`.
    rel : float
        Relevance from which on an item is relevant.

    Returns
    -------
    Column
        Double, named `precision_at(score, relevance, k=10)`; null for a group without any judged item. The action
        raises for a score or a relevance that is NaN or infinite.

    Raises
    ------
    InvalidParameterError

    Notes
    -----
    Spark cost: as for `ndcg_at`.
    """
    cut = _cut(k, ties)
    entries = _entries(score, _hit(relevance, rel))
    found = formulas.precision(ON, formulas.rank_entries(ON, entries, cut), cut)
    return arguments.result(formulas.where_judged(ON, entries["gain"], found), "precision_at", cut, score, relevance)


def recall_at(
    score: Column | str,
    relevance: Column | str,
    *,
    k: int | str | None = None,
    ties: str = "expected",
    rel: float = 1.0,
) -> Column:
    """Recall of each group, as an aggregate: relevant items among the first k, divided by all relevant judged items.

    Parameters
    ----------
    score, relevance : Column or str
        As for `ndcg_at`; without rows of items that were not retrieved, recall is too high.
    k : int, `"all"` or None
        Cutoff; None is the whole list, as `"all"` is.
    ties : str
        As for `ndcg_at`.
    rel : float
        Relevance from which on an item is relevant.

    Returns
    -------
    Column
        Double, named `recall_at(score, relevance, k=10)`; 0 if nothing is relevant, null for a group without any
        judged item. The action raises for a score or a relevance that is NaN or infinite.

    Raises
    ------
    InvalidParameterError

    Notes
    -----
    Spark cost: as for `ndcg_at`.
    """
    cut, entries = _cut(k, ties), _entries(score, _hit(relevance, rel))
    found = formulas.hits(ON, formulas.rank_entries(ON, entries, cut), cut)
    relevant = formulas.sum_of(ON, entries["gain"])
    nothing = formulas.where_judged(ON, entries["gain"], F.lit(0.0))
    return arguments.result(formulas.ratio(ON, found, relevant, nothing), "recall_at", cut, score, relevance)


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

    Parameters
    ----------
    score, relevance : Column or str
        As for `ndcg_at`; without rows of items that were not retrieved, average precision is too high.
    k : int, `"all"` or None
        Cutoff; None is the whole list, as `"all"` is.
    ties : str
        As for `ndcg_at`.
    rel : float
        Relevance from which on an item is relevant.
    denominator : str
        By what the sum of precisions is divided: `judged`, the number R of relevant judged items, `achievable`,
        min(k, R), or `k`.

    Returns
    -------
    Column
        Double, named `average_precision_at(score, relevance, k=10)`; 0 if nothing is relevant, null for a group
        without any judged item. The action raises for a score or a relevance that is NaN or infinite.

    Raises
    ------
    InvalidParameterError

    Notes
    -----
    Spark cost: as for `ndcg_at`.
    """
    one_of("denominator", denominator, arguments.DENOMINATORS)
    cut, entries = _cut(k, ties), _entries(score, _hit(relevance, rel))
    ranked = formulas.rank_entries(ON, entries, cut)
    found = formulas.sum_of_precisions(ON, ranked, cut)
    best = formulas.precision_denominator(ON, entries["gain"], ranked, cut.k, denominator)
    nothing = formulas.where_judged(ON, entries["gain"], F.lit(0.0))
    return arguments.result(formulas.ratio(ON, found, best, nothing), "average_precision_at", cut, score, relevance)


def reciprocal_rank_at(
    score: Column | str,
    relevance: Column | str,
    *,
    k: int | str | None = None,
    ties: str = "expected",
    rel: float = 1.0,
) -> Column:
    """Reciprocal rank of each group, as an aggregate: 1 / rank of the first relevant item.

    Parameters
    ----------
    score, relevance : Column or str
        As for `ndcg_at`.
    k : int, `"all"` or None
        Cutoff; None is the whole list, as `"all"` is.
    ties : str
        As for `ndcg_at`.
    rel : float
        Relevance from which on an item is relevant.

    Returns
    -------
    Column
        Double, named `reciprocal_rank_at(score, relevance, k=10)`; 0 if no relevant item is among the first k,
        null for a group without any judged item. The action raises for a score or a relevance that is NaN or
        infinite.

    Raises
    ------
    InvalidParameterError

    Notes
    -----
    Spark cost: as for `ndcg_at`.
    """
    cut = _cut(k, ties)
    entries = _entries(score, _hit(relevance, rel))
    found = formulas.reciprocal_rank(ON, formulas.rank_entries(ON, entries, cut), cut)
    value = formulas.where_judged(ON, entries["gain"], found)
    return arguments.result(value, "reciprocal_rank_at", cut, score, relevance)


def _cut(k: int | str | None, ties: str) -> formulas.Cut:
    one_of("ties", ties, ("expected", "best", "worst"))
    sign = -1.0 if ties == "worst" else 1.0
    return formulas.Cut(arguments.cutoff(k), F.lit(ties == "expected"), F.lit(sign), arguments.shown_k(k))


def _gain(relevance: Column | str, gain: str) -> Value:
    """Gain of each row; null for an unjudged item."""
    number = arguments.number(relevance, "relevance")
    return formulas.checked_gain(ON, gain, number, f"column {arguments.shown(relevance)}")


def _hit(relevance: Column | str, rel: float) -> Value:
    """1.0 for a row with a relevant item, else 0.0; null for an unjudged item."""
    number = arguments.number(relevance, "relevance")
    return formulas.checked_hit(ON, arguments.level_of(rel), number, f"column {arguments.shown(relevance)}")


def _entries(score: Column | str, gain: Value) -> Value:
    """Scores and gains of a group, in any order."""
    checked = formulas.refuse_score(ON, arguments.number(score, "score"), f"column {arguments.shown(score)}")
    return F.collect_list(formulas.entry(ON, checked, gain))
