"""Metrics of the arrays in each row: `df.select(ndcg("ranked", "judged", k=10))`."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F

from ndcg_spark.functions import arguments, formulas
from ndcg_spark.functions.arguments import ON
from ndcg_spark.functions.formulas import Value

_documented = arguments.documented("""\
Spark cost: an expression of Spark alone; no shuffle, no action, no Python worker. It differs from `evaluate` in the
last digits at most, as logarithms of the JVM do.""")


@_documented
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

    For ids instead of relevances see `evaluate(ranked=, relevant=)`.

    Returns
    -------
    Column
        Double, named after its arguments, as `ndcg(ranked, judged, k=10)`; null for a query without any judged item,
        so that `avg` gives the mean that `evaluate` gives. The action raises for a relevance that is
        NaN, infinite, or so large that its gain exceeds 2^63, and where `ranked` has more items that gain, or larger
        gains, than `judged`. Arrays of ids are relevances to it, and mostly are refused so.
    """
    cut, form = _cut(k), arguments.discount_of(discount, k)
    nothing = arguments.nothing_of(no_relevant)
    nothing = F.when(F.size(arguments.numbers(ranked)) > 0, nothing).otherwise(0.0)  # nothing retrieved: 0

    def value(gains: Value, entries: Value) -> Value:
        return formulas.ndcg(ON, gains, entries, cut, form, nothing)

    return _of_lists("ndcg", ranked, judged, cut, lambda array: arguments.gains_of(array, gain), value)


@_documented
def dcg(
    ranked: Column | str, *, k: int | str | None = None, gain: str = "exponential", discount: str = "log2"
) -> Column:
    """DCG of the array in each row.

    Returns
    -------
    Column
        Double, named as `dcg(ranked, k=10)`; null for a list without any judged item. The action raises for
        a relevance that is NaN, infinite, or so large that its gain exceeds 2^63.
    """
    cut, form = _cut(k), arguments.discount_of(discount, k)

    def value(gains: Value, entries: Value) -> Value:
        return formulas.dcg(ON, gains, entries, cut, form)

    return _of_lists("dcg", ranked, None, cut, lambda array: arguments.gains_of(array, gain), value)


@_documented
def precision(ranked: Column | str, *, k: int | str | None = None, rel: float = 1.0) -> Column:
    """Precision of the array in each row: relevant items among the first k, divided by k.

    The divisor is k even where the list is shorter; without a cutoff it is the length of the list.

    Returns
    -------
    Column
        Double, named as `precision(ranked, k=10)`; null for a list without any judged item. The action raises for a
        relevance that is NaN or infinite.
    """
    return _of_hits("precision", ranked, None, k, rel, formulas.precision)


@_documented
def recall(
    ranked: Column | str, judged: Column | str | None = None, *, k: int | str | None = None, rel: float = 1.0
) -> Column:
    """Recall of the array in each row: relevant items among the first k, divided by all relevant judged items.

    Returns
    -------
    Column
        Double, named as `recall(ranked, judged, k=10)`; 0 if nothing is relevant, null for a query without
        any judged item. The action raises for a relevance that is NaN or infinite, and where `ranked` has more
        relevant items than `judged`.
    """
    return _of_hits("recall", ranked, judged, k, rel, formulas.recall)


@_documented
def average_precision(
    ranked: Column | str,
    judged: Column | str | None = None,
    *,
    k: int | str | None = None,
    rel: float = 1.0,
    denominator: str = "judged",
) -> Column:
    """Average precision of the array in each row.

    Returns
    -------
    Column
        Double, named as `average_precision(ranked, judged, k=10)`; 0 if nothing is relevant,
        null for a query without any judged item. The action raises as for `recall`.
    """
    return _of_hits("average_precision", ranked, judged, k, rel, arguments.average_precision_by(denominator))


@_documented
def reciprocal_rank(ranked: Column | str, *, k: int | str | None = None, rel: float = 1.0) -> Column:
    """Reciprocal rank of the array in each row: 1 / rank of the first relevant item.

    Returns
    -------
    Column
        Double, named as `reciprocal_rank(ranked, k=10)`; 0 if no relevant item is among the first k, null for a list
        without any judged item. The action raises for a relevance that is NaN or infinite.
    """
    return _of_hits("reciprocal_rank", ranked, None, k, rel, formulas.reciprocal_rank)


def _cut(k: int | str | None) -> formulas.Cut:
    """Lists in rank order have no ties."""
    return formulas.Cut(arguments.cutoff(k), F.lit(False), F.lit(1.0), arguments.shown_k(k))


def _of_hits(
    name: str,
    ranked: Column | str,
    judged: Column | str | None,
    k: int | str | None,
    rel: float,
    metric: formulas.Metric,
) -> Column:
    """Compute a metric of relevant items."""
    cut, level = _cut(k), arguments.level_of(rel)

    def value(hits: Value, entries: Value) -> Value:
        return metric(ON, hits, entries, cut)

    return _of_lists(name, ranked, judged, cut, lambda array: arguments.hits_of(array, level), value)


def _of_lists(
    name: str,
    ranked: Column | str,
    judged: Column | str | None,
    cut: formulas.Cut,
    gains_of: Callable[[Column | str], Column],
    value: Callable[[Value, Value], Value],
) -> Column:
    """Compute a value of the judged gains and the ranked entries; without `judged` the ranked gains are all."""

    def of_ranked(gains: Value) -> Value:
        filled = F.transform(gains, lambda gain: F.coalesce(gain, F.lit(0.0)))  # an unjudged item gains 0
        entries = formulas.entries_of_ranked(ON, filled, cut.k)
        if judged is None:
            return value(gains, entries)

        def of_judged(known: Value) -> Value:
            return formulas.refuse_beyond(ON, gains, known, value(known, entries))

        return formulas.named_once(ON, gains_of(judged), of_judged)

    columns = (ranked,) if judged is None else (ranked, judged)
    return arguments.result(formulas.named_once(ON, gains_of(ranked), of_ranked), name, cut, *columns)
