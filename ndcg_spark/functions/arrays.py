"""Metrics of the arrays in each row: `df.select(ndcg("ranked", "judged", k=10))`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F

from ndcg_spark.errors import one_of
from ndcg_spark.functions import arguments, formulas
from ndcg_spark.functions.arguments import ON
from ndcg_spark.functions.formulas import Value

if TYPE_CHECKING:
    from collections.abc import Callable


def ndcg(
    ranked: Column | str,
    judged: Column | str | None = None,
    *,
    k: int | str | None = None,
    gain: str = "exponential",
    discount: str = "log2",
    no_relevant: str = "zero",
) -> Column:
    """NDCG of the array in each row.

    Parameters
    ----------
    ranked : Column or str
        Array of numbers: relevances in rank order. A null array is an empty list, and a null relevance gains 0. Of an
        array of structs name the field: `"ranked.relevance"`.
    judged : Column, str or None
        Array of all judged relevances of the query, in any order. None takes `ranked` for all that is judged:
        relevant items that were not retrieved then cost nothing.
    k : int, `"all"` or None
        Cutoff; None is the whole list, as `"all"` is.
    gain, discount : str
        As in `Convention`.
    no_relevant : str
        Value if nothing is relevant: `zero`, `one`, or `skip` for null. A query of which nothing was retrieved is 0
        in any case.

    Returns
    -------
    Column
        Double, named after its arguments, as `ndcg(ranked, judged, k=10)`; null for a query without any judged item,
        so that `avg` gives the mean that `evaluate` gives. The action raises for a relevance that is
        NaN, infinite, or so large that its gain exceeds 2^63, and where `ranked` has more items that gain, or larger
        gains, than `judged`. Arrays of ids are relevances to it, and mostly are refused so.

    Raises
    ------
    InvalidParameterError

    Notes
    -----
    Spark cost: an expression of Spark alone; no shuffle, no action, no Python worker. It differs from `evaluate` in
    the last digits at most, as logarithms of the JVM do.

    For ids instead of relevances see `evaluate(ranked=, relevant=)`.
    """
    cut, form = _cut(k), arguments.discount_of(discount, k)
    nothing = arguments.nothing_of(no_relevant)
    return _normalised(
        "ndcg", (ranked, judged), lambda array: arguments.gains_of(array, gain), cut,
        lambda entries: formulas.dcg(ON, entries, cut, form),
        lambda gains: formulas.ideal_dcg(ON, gains, cut.k, form),
        F.when(F.size(arguments.numbers(ranked)) > 0, nothing).otherwise(0.0),  # nothing retrieved: 0
    )  # fmt: skip


def dcg(
    ranked: Column | str, *, k: int | str | None = None, gain: str = "exponential", discount: str = "log2"
) -> Column:
    """DCG of the array in each row.

    Parameters
    ----------
    ranked : Column or str
        As for `ndcg`.
    k : int, `"all"` or None
        Cutoff; None is the whole list, as `"all"` is.
    gain, discount : str
        As in `Convention`.

    Returns
    -------
    Column
        Double, named as `dcg(ranked, k=10)`; null for a list without any judged item. The action raises for
        a relevance that is NaN, infinite, or so large that its gain exceeds 2^63.

    Raises
    ------
    InvalidParameterError

    Notes
    -----
    Spark cost: as for `ndcg`.
    """
    cut, form = _cut(k), arguments.discount_of(discount, k)
    return _of_list(
        "dcg", ranked, arguments.gains_of(ranked, gain), cut, lambda entries: formulas.dcg(ON, entries, cut, form)
    )


def precision(ranked: Column | str, *, k: int | str | None = None, rel: float = 1.0) -> Column:
    """Precision of the array in each row: relevant items among the first k, divided by k.

    Parameters
    ----------
    ranked : Column or str
        As for `ndcg`.
    k : int, `"all"` or None
        Cutoff, and the divisor, even where the list is shorter; None and `"all"` are the length of the list.
    rel : float
        Relevance from which on an item is relevant.

    Returns
    -------
    Column
        Double, named as `precision(ranked, k=10)`; null for a list without any judged item. The action raises for a
        relevance that is NaN or infinite.

    Raises
    ------
    InvalidParameterError

    Notes
    -----
    Spark cost: as for `ndcg`.
    """
    cut = _cut(k)
    gains = arguments.hits_of(ranked, arguments.level_of(rel))
    return _of_list("precision", ranked, gains, cut, lambda entries: formulas.precision(ON, entries, cut))


def recall(
    ranked: Column | str, judged: Column | str | None = None, *, k: int | str | None = None, rel: float = 1.0
) -> Column:
    """Recall of the array in each row: relevant items among the first k, divided by all relevant judged items.

    Parameters
    ----------
    ranked, judged : Column or str
        As for `ndcg`.
    k : int, `"all"` or None
        Cutoff; None is the whole list, as `"all"` is.
    rel : float
        Relevance from which on an item is relevant.

    Returns
    -------
    Column
        Double, named as `recall(ranked, judged, k=10)`; 0 if nothing is relevant, null for a query without
        any judged item. The action raises for a relevance that is NaN or infinite, and where `ranked` has more
        relevant items than `judged`.

    Raises
    ------
    InvalidParameterError

    Notes
    -----
    Spark cost: as for `ndcg`.
    """
    cut, level = _cut(k), arguments.level_of(rel)
    return _normalised(
        "recall", (ranked, judged), lambda array: arguments.hits_of(array, level), cut,
        lambda entries: formulas.hits(ON, entries, cut), lambda hits: formulas.sum_of(ON, hits), F.lit(0.0),
    )  # fmt: skip


def average_precision(
    ranked: Column | str,
    judged: Column | str | None = None,
    *,
    k: int | str | None = None,
    rel: float = 1.0,
    denominator: str = "judged",
) -> Column:
    """Average precision of the array in each row.

    Parameters
    ----------
    ranked, judged : Column or str
        As for `ndcg`.
    k : int, `"all"` or None
        Cutoff; None is the whole list, as `"all"` is.
    rel : float
        Relevance from which on an item is relevant.
    denominator : str
        By what the sum of precisions is divided: `judged`, the number R of relevant judged items, `achievable`,
        min(k, R), or `k`.

    Returns
    -------
    Column
        Double, named as `average_precision(ranked, judged, k=10)`; 0 if nothing is relevant,
        null for a query without any judged item. The action raises as for `recall`.

    Raises
    ------
    InvalidParameterError

    Notes
    -----
    Spark cost: as for `ndcg`.
    """
    one_of("denominator", denominator, arguments.DENOMINATORS)
    cut, level = _cut(k), arguments.level_of(rel)
    return _normalised(
        "average_precision", (ranked, judged), lambda array: arguments.hits_of(array, level), cut,
        lambda entries: formulas.sum_of_precisions(ON, entries, cut),
        lambda hits: formulas.precision_denominator(ON, hits, arguments.numbers(ranked), cut.k, denominator),
        F.lit(0.0),
    )  # fmt: skip


def reciprocal_rank(ranked: Column | str, *, k: int | str | None = None, rel: float = 1.0) -> Column:
    """Reciprocal rank of the array in each row: 1 / rank of the first relevant item.

    Parameters
    ----------
    ranked : Column or str
        As for `ndcg`.
    k : int, `"all"` or None
        Cutoff; None is the whole list, as `"all"` is.
    rel : float
        Relevance from which on an item is relevant.

    Returns
    -------
    Column
        Double, named as `reciprocal_rank(ranked, k=10)`; 0 if no relevant item is among the first k, null for a list
        without any judged item. The action raises for a relevance that is NaN or infinite.

    Raises
    ------
    InvalidParameterError

    Notes
    -----
    Spark cost: as for `ndcg`.
    """
    cut = _cut(k)
    gains = arguments.hits_of(ranked, arguments.level_of(rel))
    return _of_list("reciprocal_rank", ranked, gains, cut, lambda entries: formulas.reciprocal_rank(ON, entries, cut))


def _cut(k: int | str | None) -> formulas.Cut:
    """Lists in rank order have no ties."""
    return formulas.Cut(arguments.cutoff(k), F.lit(False), F.lit(1.0), arguments.shown_k(k))


def _entries(gains: Column, k: Column) -> Value:
    """Entries in rank order, down to rank k; an unjudged item gains 0."""
    return formulas.entries_of_ranked(ON, F.transform(gains, lambda gain: F.coalesce(gain, F.lit(0.0))), k)


def _of_list(
    name: str, ranked: Column | str, gains: Column, cut: formulas.Cut, value: Callable[[Column], Value]
) -> Column:
    """Give a value of a list, null where nothing of it is judged."""

    def where_judged(once: Column) -> Value:
        return formulas.where_judged(ON, once, value(_entries(once, cut.k)))

    return arguments.result(formulas.named_once(ON, gains, where_judged), name, cut, ranked)


def _normalised(
    name: str,
    lists: tuple[Column | str, Column | str | None],
    gains_of: Callable[[Column | str], Column],
    cut: formulas.Cut,
    value: Callable[[Column], Value],
    best: Callable[[Column], Value],
    nothing: Column,
) -> Column:
    """Divide the value of a list by the best one, of the gains that are judged; null where nothing is judged."""
    ranked, judged = lists

    def divided(gains: Column, known: Column) -> Value:
        found, largest = value(_entries(gains, cut.k)), best(known)
        otherwise = formulas.where_judged(ON, known, nothing)
        if judged is None:
            return formulas.ratio(ON, found, largest, otherwise)
        return formulas.refuse_beyond(ON, gains, known, formulas.ratio(ON, found, largest, otherwise))

    def of_gains(gains: Column) -> Value:
        if judged is None:
            return divided(gains, gains)
        return formulas.named_once(ON, gains_of(judged), lambda known: divided(gains, known))

    columns = (ranked,) if judged is None else (ranked, judged)
    return arguments.result(formulas.named_once(ON, gains_of(ranked), of_gains), name, cut, *columns)
