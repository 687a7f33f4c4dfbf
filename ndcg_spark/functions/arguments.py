"""Check and convert the arguments of column functions: numbers, arrays, cutoffs, gains, discounts."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import partial
from typing import TypeAlias, TypeVar

from pyspark.sql import Column
from pyspark.sql import functions as F

from ndcg_spark.conventions.forms import DiscountForm, check_discount, parse_discount
from ndcg_spark.core.columns import refuse
from ndcg_spark.errors import InvalidParameterError, check_choice
from ndcg_spark.evaluation.settings import check_cutoffs, parse_cutoff
from ndcg_spark.functions import formulas
from ndcg_spark.functions.formulas import Expression


class ColumnLanguage:
    """Write expressions as PySpark columns."""

    call = staticmethod(F.call_function)
    refuse = staticmethod(refuse)
    aggregate = staticmethod(F.aggregate)
    transform = staticmethod(F.transform)
    filter = staticmethod(F.filter)

    def lit(self, value: float | str | bool | None) -> Expression:
        return F.lit(value).cast("double") if value is None else F.lit(value)


COLUMNS = ColumnLanguage()
Function = TypeVar("Function", bound=Callable[..., Column])
GainOfRelevance: TypeAlias = Callable[[Expression, str], Expression]
"""Computes the gain of a relevance; the text names the column in errors."""
NO_RELEVANT = {"zero": 0.0, "one": 1.0, "skip": None}
_PARAMETERS = {
    "ranked": """\
ranked : Column or str
    Array of numbers: relevances in rank order. A null array is an empty list, and a null relevance gains 0. For an
    array of structs, name the field: `"ranked.relevance"`.""",
    "judged": """\
judged : Column, str or None
    Array of all judged relevances of the query, in any order. With None, `ranked` holds all judged items: relevant
    items that were not retrieved then cost nothing.""",
    "score": """\
score : Column or str
    Number by which items are ranked, the highest first. A null score is a judged item that was not retrieved: it has
    no rank, and counts in the ideal list and among the relevant items. Without such rows NDCG, recall and average
    precision are too high; for judgments in a table of their own see `evaluate(judgments=)`.""",
    "relevance": """\
relevance : Column or str
    Number or boolean. Null is an unjudged item, which gains 0.""",
    "k": """\
k : int, `"all"` or None
    Cutoff; None is the whole list, as `"all"` is.""",
    "ties": """\
ties : str
    Order of items with equal scores: `expected` averages over all their orders, `best` and `worst` take one
    order.""",
    "gain": """\
gain : str
    Gain of a relevance, as in `Convention`.""",
    "discount": """\
discount : str
    Weight of a rank, as in `Convention`.""",
    "no_relevant": """\
no_relevant : str
    Value if nothing is relevant: `zero`, `one`, or `skip` for null. A query without retrieved items is
    always 0.""",
    "rel": """\
rel : float
    Lowest relevance of a relevant item.""",
    "denominator": """\
denominator : str
    Divisor of the sum of precisions: `judged`, the number R of relevant judged items, `achievable`,
    min(k, R), or `k`.""",
}
_NUMBERS = "(tinyint|smallint|int|bigint|float|double|decimal[(].*[)]|boolean|void)"


def document(cost: str) -> Callable[[Function], Function]:
    """Complete a docstring of summary and `Returns`: add parameters from the signature, `Raises` and the cost."""

    def complete(function: Function) -> Function:
        summary, _, returns = inspect.cleandoc(function.__doc__ or "").partition("Returns\n")
        parameters = "\n".join(_PARAMETERS[parameter] for parameter in inspect.signature(function).parameters)
        function.__doc__ = (
            f"{summary}Parameters\n----------\n{parameters}\n\nReturns\n{returns}\n\n"
            f"Raises\n------\nInvalidParameterError\n\nNotes\n-----\n{cost}\n"
        )
        return function

    return complete


def bind_denominator(denominator: str) -> formulas.Metric:
    """Check `denominator` and return the average precision that divides by it."""
    check_choice("denominator", denominator, ("judged", "achievable", "k"))
    return partial(formulas.average_precision, denominator=denominator)


def make_cut(k: int | str | None, ties: str) -> formulas.Cut:
    """Check a cutoff and a tie rule."""
    check_choice("ties", ties, ("expected", "best", "worst"))
    number = parse_cutoff(k)
    check_cutoffs((number,))
    return formulas.Cut(
        k=F.lit(formulas.WHOLE if number is None else number),
        grouped=F.lit(ties == "expected"),
        sign=F.lit(-1.0 if ties == "worst" else 1.0),
        label="" if number is None else f", k={number}",
    )


def resolve_discount(discount: str, k: int | str | None) -> DiscountForm:
    """Parse a discount and check that it covers the cutoff."""
    form = parse_discount(discount)
    check_discount(discount, parse_cutoff(k))
    return form


def resolve_no_relevant(no_relevant: str) -> Expression:
    """Return the value of a query without relevant items."""
    check_choice("no_relevant", no_relevant, tuple(NO_RELEVANT))
    return COLUMNS.lit(NO_RELEVANT[no_relevant])


def bind_gain(gain: str) -> GainOfRelevance:
    """Return the function that checks a relevance and computes its gain; null for an unjudged item."""
    return partial(formulas.compute_checked_gain, COLUMNS, gain)


def bind_hit(rel: float) -> GainOfRelevance:
    """Check `rel`; return the function that checks a relevance: 1.0 if relevant, else 0.0; null if unjudged."""
    level: object = rel
    if isinstance(level, bool) or not isinstance(level, int | float) or not abs(level) < math.inf:
        raise InvalidParameterError(f"rel must be a finite number; got {rel!r}.")
    return partial(formulas.compute_checked_hit, COLUMNS, F.lit(float(level)))


def cast_array(array: Column | str) -> Column:
    """Cast an array of numbers to doubles; a null array becomes empty. Spark raises for other types."""
    column = to_column(array)
    kind = F.typeof(column)
    error = refuse(f"array {format_column(array)} is ", kind, "; it must hold numbers (relevances): cast it first.")
    doubles = F.when(kind.rlike(f"^array<{_NUMBERS}>$"), column.cast("array<double>")).otherwise(error)
    return F.coalesce(doubles, F.array().cast("array<double>"))


def cast_number(value: Column | str, argument: str) -> Column:
    """Cast a column of numbers to double. Spark raises for other types; `argument` is its name."""
    column = to_column(value)
    kind = F.typeof(column)
    error = refuse(f"column {format_column(value)} ({argument}) is ", kind, ", not a number; cast it first.")
    return F.when(kind.rlike(f"^{_NUMBERS}$"), column.cast("double")).otherwise(error)


def to_column(value: Column | str) -> Column:
    """Return the named column, or the column itself."""
    return F.col(value) if isinstance(value, str) else value


def format_column(value: Column | str) -> str:
    """Return the readable name of a column: `rels` for `Column<'rels'>`."""
    return value if isinstance(value, str) else str(value).removeprefix("Column<'").removesuffix("'>")


def alias_result(value: Expression, function: str, cut: formulas.Cut, *columns: Column | str) -> Column:
    """Name a result column after the call, equally on classic sessions and on Connect."""
    named: Column = value.alias(f"{function}({', '.join(map(format_column, columns))}{cut.label})")
    return named
