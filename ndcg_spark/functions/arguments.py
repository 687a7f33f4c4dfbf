"""What the functions take: numbers and arrays of them, cutoffs, gains and discounts."""

from __future__ import annotations

import math
from collections.abc import Callable

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

    def lit(self, value: float | str | bool | None) -> Value:
        """Write a constant."""
        return F.lit(value).cast("double") if value is None else F.lit(value)

    def call(self, name: str, *arguments: Value) -> Value:
        """Call a function by its name."""
        return F.call_function(name, *arguments)

    def refuse(self, *parts: Value | str) -> Value:
        """Raise, with a message."""
        return refuse(*parts)

    def aggregate(self, array: Value, start: Value, add: Callable[..., Value], end: Callable[..., Value]) -> Value:
        """Fold an array."""
        return F.aggregate(array, start, add, end)

    def transform(self, array: Value, change: Callable[..., Value]) -> Value:
        """Change each element."""
        return F.transform(array, change)

    def filter(self, array: Value, keep: Callable[..., Value]) -> Value:
        """Keep some elements."""
        return F.filter(array, keep)


ON = AsColumns()
NO_RELEVANT = {"zero": 0.0, "one": 1.0, "skip": None}
DENOMINATORS = ("judged", "achievable", "k")
_NUMBERS = "(tinyint|smallint|int|bigint|float|double|decimal[(].*[)]|boolean|void)"


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
