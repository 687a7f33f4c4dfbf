"""What the functions take: numbers and arrays of them, cutoffs, gains and discounts."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from pyspark.sql import Column
from pyspark.sql import functions as F

from ndcg_spark.conventions.forms import DiscountForm, check_discount, parse_discount
from ndcg_spark.core.columns import refuse
from ndcg_spark.errors import InvalidParameterError, one_of
from ndcg_spark.evaluation.settings import check_cutoffs, cutoff_of
from ndcg_spark.functions import formulas
from ndcg_spark.functions.formulas import Value


class AsColumns:
    """Expressions as columns of PySpark."""

    call = staticmethod(F.call_function)
    refuse = staticmethod(refuse)
    aggregate = staticmethod(F.aggregate)
    transform = staticmethod(F.transform)
    filter = staticmethod(F.filter)

    def lit(self, value: float | str | bool | None) -> Value:
        return F.lit(value).cast("double") if value is None else F.lit(value)


ON = AsColumns()
Function = TypeVar("Function", bound=Callable[..., Column])
NO_RELEVANT = {"zero": 0.0, "one": 1.0, "skip": None}
_PARAMETERS = {
    "ranked": """\
ranked : Column or str
    Array of numbers: relevances in rank order. A null array is an empty list, and a null relevance gains 0. Of an
    array of structs name the field: `"ranked.relevance"`.""",
    "judged": """\
judged : Column, str or None
    Array of all judged relevances of the query, in any order. None takes `ranked` for all that is judged: relevant
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
    What items of one score count: `expected`, the average of all their orders, or the `best` or the `worst`
    order.""",
    "gain": """\
gain : str
    Gain of a relevance, as in `Convention`.""",
    "discount": """\
discount : str
    Weight of a rank, as in `Convention`.""",
    "no_relevant": """\
no_relevant : str
    Value if nothing is relevant: `zero`, `one`, or `skip` for null. A query of which nothing was retrieved is 0
    in any case.""",
    "rel": """\
rel : float
    Relevance from which on an item is relevant.""",
    "denominator": """\
denominator : str
    By what the sum of precisions is divided: `judged`, the number R of relevant judged items, `achievable`,
    min(k, R), or `k`.""",
}
_NUMBERS = "(tinyint|smallint|int|bigint|float|double|decimal[(].*[)]|boolean|void)"


def documented(cost: str) -> Callable[[Function], Function]:
    """Complete docstrings, which have a summary and `Returns`: parameters by the signature, `Raises`, and cost."""

    def complete(function: Function) -> Function:
        summary, _, returns = inspect.cleandoc(function.__doc__ or "").partition("Returns\n")
        parameters = "\n".join(_PARAMETERS[name] for name in inspect.signature(function).parameters)
        function.__doc__ = (
            f"{summary}Parameters\n----------\n{parameters}\n\nReturns\n{returns}\n\n"
            f"Raises\n------\nInvalidParameterError\n\nNotes\n-----\n{cost}\n"
        )
        return function

    return complete


def average_precision_by(denominator: str) -> formulas.Metric:
    """Check what the sum of precisions is divided by."""
    one_of("denominator", denominator, ("judged", "achievable", "k"))
    return partial(formulas.average_precision, denominator=denominator)


def cutoff(k: int | str | None) -> Column:
    """Check a cutoff; `WHOLE` for whole lists."""
    number = cutoff_of(k)
    check_cutoffs((number,))
    return F.lit(formulas.WHOLE if number is None else number)


def discount_of(discount: str, k: int | str | None) -> DiscountForm:
    """Check a discount, which must cover the cutoff."""
    form = parse_discount(discount)
    check_discount(discount, cutoff_of(k))
    return form


def nothing_of(no_relevant: str) -> Value:
    """Give the value of a query with nothing relevant."""
    one_of("no_relevant", no_relevant, tuple(NO_RELEVANT))
    return ON.lit(NO_RELEVANT[no_relevant])


def level_of(rel: float) -> Column:
    """Check the relevance from which on an item is relevant."""
    level: object = rel
    if isinstance(level, bool) or not isinstance(level, int | float) or not abs(level) < math.inf:
        raise InvalidParameterError(f"rel must be a finite number; got {rel!r}.")
    return F.lit(float(level))


def gains_of(array: Column | str, gain: str) -> Column:
    """Gains of an array of relevances; null for null."""
    where = f"the array {shown(array)}"
    return F.transform(numbers(array), lambda relevance: formulas.checked_gain(ON, gain, relevance, where))


def hits_of(array: Column | str, rel: Column) -> Column:
    """1.0 for each relevant item of an array of relevances, else 0.0; null for null."""
    where = f"the array {shown(array)}"
    return F.transform(numbers(array), lambda relevance: formulas.checked_hit(ON, rel, relevance, where))


def numbers(array: Column | str) -> Column:
    """Take an array of numbers, as doubles; a null one is empty."""
    found, name = column(array), shown(array)
    kind = F.typeof(found)
    told = refuse(f"the array {name} is ", kind, "; it must be one of numbers, the relevances: cast it first.")
    checked = F.when(kind.rlike(f"^array<{_NUMBERS}>$"), found.cast("array<double>")).otherwise(told)
    return F.coalesce(checked, F.array().cast("array<double>"))


def number(value: Column | str, what: str) -> Column:
    """Take a number of each row, as a double."""
    found = column(value)
    kind = F.typeof(found)
    told = refuse(f"column {shown(value)} ({what}) is ", kind, ", not a number; cast it first.")
    return F.when(kind.rlike(f"^{_NUMBERS}$"), found.cast("double")).otherwise(told)


def column(value: Column | str) -> Column:
    """Refer to a column by its name, or take it as it is."""
    return F.col(value) if isinstance(value, str) else value


def shown(value: Column | str) -> str:
    """What a column is called for a person: `Column<'rels'>` is `rels`."""
    return value if isinstance(value, str) else str(value).removeprefix("Column<'").removesuffix("'>")


def shown_k(k: int | str | None) -> str:
    """Write a cutoff as in the name of a result; whole lists have none there."""
    number = cutoff_of(k)
    return "" if number is None else f", k={number}"


def result(value: Value, name: str, cut: formulas.Cut, *columns: Column | str) -> Column:
    """Name a result after its arguments, the same on classic sessions and on Connect."""
    named: Column = value.alias(f"{name}({', '.join(shown(one) for one in columns)}{cut.shown})")
    return named
