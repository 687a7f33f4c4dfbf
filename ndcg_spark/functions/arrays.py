"""Metrics of an array in each row: `df.select(ndcg("ranked", "judged", k=10))`."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F

from ndcg_spark.functions import arguments, formulas
from ndcg_spark.functions.arguments import COLUMNS, GainOfRelevance, bind_gain, bind_hit, make_cut
from ndcg_spark.functions.formulas import Expression

_document = arguments.document("""\
Spark cost: a plain Spark expression; no shuffle, no action, no Python worker. It differs from `evaluate` in the
last digits at most, because logarithms of the JVM do.""")


@_document
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
        so that `avg` equals the mean of `evaluate`. The action raises for a relevance that is NaN, infinite, or so
        large that its gain exceeds 2^63, and if `ranked` has more items with a gain, or larger gains, than `judged`.
        Arrays of numeric ids are read as relevances; most fail this check.
    """
    cut, form = make_cut(k, "best"), arguments.resolve_discount(discount, k)
    nothing = arguments.resolve_no_relevant(no_relevant)
    nothing = F.when(F.size(arguments.cast_array(ranked)) > 0, nothing).otherwise(0.0)  # nothing retrieved: 0

    def value(gains: Expression, entries: Expression) -> Expression:
        return formulas.ndcg(COLUMNS, gains, entries, cut, form, nothing)

    return _apply_to_lists("ndcg", ranked, judged, cut, bind_gain(gain), value)


@_document
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
    cut, form = make_cut(k, "best"), arguments.resolve_discount(discount, k)

    def value(gains: Expression, entries: Expression) -> Expression:
        return formulas.dcg(COLUMNS, gains, entries, cut, form)

    return _apply_to_lists("dcg", ranked, None, cut, bind_gain(gain), value)


@_document
def precision(ranked: Column | str, *, k: int | str | None = None, rel: float = 1.0) -> Column:
    """Precision of the array in each row: relevant items among the first k, divided by k.

    The divisor is k even where the list is shorter; without a cutoff it is the length of the list.

    Returns
    -------
    Column
        Double, named as `precision(ranked, k=10)`; null for a list without any judged item. The action raises for a
        relevance that is NaN or infinite.
    """
    return _apply_to_hits("precision", ranked, None, k, rel, formulas.precision)


@_document
def recall(
    ranked: Column | str, judged: Column | str | None = None, *, k: int | str | None = None, rel: float = 1.0
) -> Column:
    """Recall of the array in each row: relevant items among the first k, divided by all relevant judged items.

    Returns
    -------
    Column
        Double, named as `recall(ranked, judged, k=10)`; 0 if nothing is relevant, null for a query without
        any judged item. The action raises for a relevance that is NaN or infinite, and if `ranked` has more
        relevant items than `judged`.
    """
    return _apply_to_hits("recall", ranked, judged, k, rel, formulas.recall)


@_document
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
    return _apply_to_hits("average_precision", ranked, judged, k, rel, arguments.bind_denominator(denominator))


@_document
def reciprocal_rank(ranked: Column | str, *, k: int | str | None = None, rel: float = 1.0) -> Column:
    """Reciprocal rank of the array in each row: 1 / rank of the first relevant item.

    Returns
    -------
    Column
        Double, named as `reciprocal_rank(ranked, k=10)`; 0 if no relevant item is among the first k, null for a list
        without any judged item. The action raises for a relevance that is NaN or infinite.
    """
    return _apply_to_hits("reciprocal_rank", ranked, None, k, rel, formulas.reciprocal_rank)


def _apply_to_hits(
    name: str,
    ranked: Column | str,
    judged: Column | str | None,
    k: int | str | None,
    rel: float,
    metric: formulas.Metric,
) -> Column:
    """Compute a metric of relevant items."""
    cut = make_cut(k, "best")  # lists in rank order have no ties

    def value(hits: Expression, entries: Expression) -> Expression:
        return metric(COLUMNS, hits, entries, cut)

    return _apply_to_lists(name, ranked, judged, cut, bind_hit(rel), value)


def _apply_to_lists(
    name: str,
    ranked: Column | str,
    judged: Column | str | None,
    cut: formulas.Cut,
    compute_gain: GainOfRelevance,
    value: Callable[[Expression, Expression], Expression],
) -> Column:
    """Compute `value` from the judged gains and the ranked entries; without `judged`, all judged items are ranked."""

    def compute_gains(array: Column | str) -> Column:
        where = f"array {arguments.format_column(array)}"
        return F.transform(arguments.cast_array(array), lambda relevance: compute_gain(relevance, where))

    def evaluate_ranked(gains: Expression) -> Expression:
        filled = F.transform(gains, lambda gain: F.coalesce(gain, F.lit(0.0)))  # an unjudged item gains 0
        entries = formulas.make_entries(COLUMNS, filled, cut.k)
        if judged is None:
            return value(gains, entries)

        def evaluate_judged(known: Expression) -> Expression:
            return formulas.refuse_unjudged_gains(COLUMNS, gains, known, value(known, entries))

        return formulas.bind_once(COLUMNS, compute_gains(judged), evaluate_judged)

    columns = (ranked,) if judged is None else (ranked, judged)
    return arguments.alias_result(
        formulas.bind_once(COLUMNS, compute_gains(ranked), evaluate_ranked), name, cut, *columns
    )
