"""Metrics of one query as expressions.

Each formula is written once and evaluated as PySpark columns (`arguments.ColumnLanguage`) or SQL (`SqlLanguage`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from ndcg_spark.conventions.forms import DiscountForm, GainForm, parse_gain, relevance_range
from ndcg_spark.sources.references import quote_sql

Expression: TypeAlias = Any
"""A Column or a `SqlExpression`; operators build larger expressions."""


class Language(Protocol):
    """Operations that formulas are built from."""

    def lit(self, value: float | str | bool | None, /) -> Expression:
        """Write a constant; None is a null number."""

    def call(self, name: str, /, *arguments: Expression) -> Expression:
        """Call a Spark SQL function."""

    def refuse(self, *parts: Expression | str) -> Expression:
        """Raise an error whose message is the concatenated parts."""

    def aggregate(
        self, array: Expression, start: Expression, add: Callable[..., Expression], end: Callable[..., Expression], /
    ) -> Expression:
        """Fold an array."""

    def transform(self, array: Expression, change: Callable[..., Expression], /) -> Expression:
        """Map each element of an array; a function of two arguments also gets its index, from 0."""

    def filter(self, array: Expression, keep: Callable[..., Expression], /) -> Expression:
        """Filter the elements of an array."""


def _operator(sign: str) -> Callable[[SqlExpression, SqlExpression | float], SqlExpression]:
    def write(self: SqlExpression, other: SqlExpression | float) -> SqlExpression:
        return SqlExpression(f"({self.sql} {sign} {_text(other)})")

    return write


class SqlExpression:
    """An expression as SQL text."""

    def __init__(self, sql: str) -> None:
        self.sql = sql

    def __getitem__(self, field: str) -> SqlExpression:
        return SqlExpression(f"{self.sql}.{field}")

    __add__, __sub__, __mul__, __truediv__ = map(_operator, "+-*/")
    __lt__, __le__, __gt__, __ge__ = map(_operator, ("<", "<=", ">", ">="))
    __and__, __or__ = _operator("AND"), _operator("OR")
    __eq__ = _operator("=")  # type: ignore[assignment]  # as columns do
    __hash__ = None  # type: ignore[assignment]  # == builds SQL, so an expression cannot be a key


def _text(value: object) -> str:
    """Write a constant with the type that `lit` would give it: Spark reads a bare 1.0 as a decimal."""
    if isinstance(value, SqlExpression):
        return value.sql
    if value is None:
        return "CAST(NULL AS DOUBLE)"
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, str):
        return quote_sql(value)
    return f"{value!r}D" if isinstance(value, float) else str(value)


class SqlLanguage:
    """Write expressions as SQL text, with unique variable names in nested lambdas."""

    def __init__(self) -> None:
        self._outer: list[str] = []

    def lit(self, value: float | str | bool | None) -> SqlExpression:
        return SqlExpression(_text(value))

    def call(self, name: str, *arguments: SqlExpression) -> SqlExpression:
        return SqlExpression(f"{name}({', '.join(_text(argument) for argument in arguments)})")

    def refuse(self, *parts: SqlExpression | str) -> SqlExpression:
        return self.call("raise_error", self.call("concat", *[SqlExpression(_text(part)) for part in parts]))

    def aggregate(
        self,
        array: SqlExpression,
        start: SqlExpression,
        add: Callable[..., SqlExpression],
        end: Callable[..., SqlExpression],
    ) -> SqlExpression:
        return self.call("aggregate", array, start, self._lambda(add), self._lambda(end))

    def transform(self, array: SqlExpression, change: Callable[..., SqlExpression]) -> SqlExpression:
        return self.call("transform", array, self._lambda(change))

    def filter(self, array: SqlExpression, keep: Callable[..., SqlExpression]) -> SqlExpression:
        return self.call("filter", array, self._lambda(keep))

    def _lambda(self, function: Callable[..., SqlExpression]) -> SqlExpression:
        """Write a lambda. Variables keep their Python names, or get a suffix if an enclosing lambda uses the name."""
        variables = []
        for argument in function.__code__.co_varnames[: function.__code__.co_argcount]:
            variables.append(argument if argument not in self._outer else f"{argument}_{len(self._outer)}")
        self._outer.extend(variables)
        body = function(*[SqlExpression(variable) for variable in variables])
        del self._outer[-len(variables) :]
        parameters = variables[0] if len(variables) == 1 else f"({', '.join(variables)})"
        return SqlExpression(f"{parameters} -> {body.sql}")


WHOLE = 2**31 - 1
"""Cutoff of whole lists."""
MAX_DOUBLE = 1.7976931348623157e308
NULL_NUMBER = -MAX_DOUBLE
"""Replaces null where numbers are sorted. It is below all gains, and no score is below it."""
Weight = Callable[[Expression, Expression], Expression]
"""Computes the weight of a position from its rank (from 1) and its index among tied entries (from 0)."""


@dataclass(frozen=True)
class Cut:
    """Cutoff and tie rule, as expressions. `k` may be `WHOLE`.

    If `grouped`, tied entries are averaged over their orders. Otherwise `sign` is 1.0 if the larger gain of two tied
    entries comes first, -1.0 if the smaller gain does. `label` is the cutoff in the name of a result column.
    """

    k: Expression
    grouped: Expression
    sign: Expression
    label: str = ""


# ---------------------------------------------------------------------------------------------------- entries


def make_entry(lang: Language, score: Expression, gain: Expression) -> Expression:
    """Build a struct of score and gain."""
    return lang.call("named_struct", lang.lit("score"), score, lang.lit("gain"), gain)


def make_entries(lang: Language, gains: Expression, k: Expression) -> Expression:
    """Build entries from gains in rank order, up to rank k; the score is the negative index."""
    return lang.transform(
        lang.call("slice", gains, lang.lit(1), k), lambda gain, place: make_entry(lang, lang.lit(0.0) - place, gain)
    )


def rank_entries(lang: Language, entries: Expression, cut: Cut) -> Expression:
    """Sort the retrieved entries, best first, up to the last entry tied with the k-th. Gains are times `sign`."""
    # Sorting numbers is much faster than sorting structs, so entries beyond the cutoff are dropped by score first.
    last = lang.call("array_min", take_largest(lang, entries["score"], cut.k))
    top = bind_once(lang, last, lambda score: lang.filter(entries, lambda entry: entry["score"] >= score))
    signed = lang.transform(
        top,
        lambda entry: make_entry(
            lang, entry["score"], cut.sign * lang.call("coalesce", entry["gain"], lang.lit(0.0))
        ),
    )
    return lang.call("sort_array", signed, lang.lit(False))


def take_largest(lang: Language, numbers: Expression, k: Expression) -> Expression:
    """Return the k largest numbers of an array, the largest first; nulls come last as `NULL_NUMBER`."""
    filled = lang.transform(numbers, lambda number: lang.call("coalesce", number, lang.lit(NULL_NUMBER)))
    return lang.call("slice", lang.call("sort_array", filled, lang.lit(False)), lang.lit(1), k)


def has_number(lang: Language, numbers: Expression) -> Expression:
    """Check that an array has a non-null number: a judged gain, or the score of a retrieved item."""
    return lang.call("isnotnull", lang.call("array_max", numbers))


# ---------------------------------------------------------------------------------------------------- gains


def compute_gain(lang: Language, form: GainForm, relevance: Expression) -> Expression:
    """Compute the gain of a relevance; null for null."""
    if form.table is not None:
        levels = sorted(form.table)
        known = lang.refuse("relevance ", format_number(lang, relevance), f" has no gain in the table {levels}.")
        for level in levels:
            known = lang.call("if", relevance == lang.lit(level), lang.lit(form.table[level]), known)
        return lang.call("if", lang.call("isnull", relevance), lang.lit(None), known)
    if form.name == "power":
        size = lang.call("pow", lang.call("abs", relevance), lang.lit(float(form.number or 1)))
        return lang.call("signum", relevance) * size
    if form.name == "linear":
        gain = relevance
    elif form.name == "binary":
        gain = lang.call("if", relevance > lang.lit(0.0), lang.lit(1.0), relevance * lang.lit(0.0))
    else:
        gain = lang.call("pow", lang.lit(2.0), relevance) - lang.lit(1.0)
    if form.number is None:
        return gain
    return lang.call("if", relevance < lang.lit(float(form.number)), lang.lit(0.0), gain)


def compute_hit(lang: Language, rel: Expression, relevance: Expression) -> Expression:
    """Return 1.0 for a relevant item, 0.0 for an irrelevant item, null for an unjudged item."""
    return lang.call("if", relevance >= rel, lang.lit(1.0), relevance * lang.lit(0.0))


def refuse_relevance(lang: Language, relevance: Expression, lowest: float, highest: float, where: str) -> Expression:
    """Return a relevance; raise if it is NaN (which sorts above all), infinite, or has a gain above 2^63."""
    nan = lang.refuse(
        f"nan_relevance in {where}: NaN is a bad value; set it to null (an unjudged item) or remove the row."
    )
    large = lang.refuse(
        "relevance ", format_number(lang, relevance), f" in {where} has a gain that is infinite or above 2^63; "
        "remove the item or choose another gain.",
    )  # fmt: skip
    above = relevance > lang.lit(min(highest, MAX_DOUBLE))
    below = relevance < lang.lit(max(lowest, -MAX_DOUBLE))
    return lang.call("if", above | below, lang.call("if", lang.call("isnan", relevance), nan, large), relevance)


def compute_checked_gain(lang: Language, gain: str, relevance: Expression, where: str) -> Expression:
    """Compute the gain of a relevance; null for null. Raise for a bad value."""
    return compute_gain(lang, parse_gain(gain), refuse_relevance(lang, relevance, *relevance_range(gain), where))


def compute_checked_hit(lang: Language, rel: Expression, relevance: Expression, where: str) -> Expression:
    """Return 1.0 for a relevant item, 0.0 for an irrelevant one, null for an unjudged one. Raise for a bad value."""
    return compute_hit(lang, rel, refuse_relevance(lang, relevance, -MAX_DOUBLE, MAX_DOUBLE, where))


def refuse_score(lang: Language, score: Expression, where: str) -> Expression:
    """Return a score; raise if it is NaN (which sorts above all) or infinite."""
    advice = "; it has no rank: set it to null (an item that was not retrieved) or remove the row."
    nan = lang.refuse(f"nan_score in {where}: NaN is a bad value{advice}")
    infinite = lang.refuse(f"infinite_score in {where}: ", lang.call("string", score), f" is a bad value{advice}")
    beyond = lang.call("abs", score) > lang.lit(MAX_DOUBLE)
    return lang.call("if", beyond, lang.call("if", lang.call("isnan", score), nan, infinite), score)


def format_number(lang: Language, number: Expression) -> Expression:
    """Format a number without a trailing .0: 3 for 3.0."""
    return lang.call("regexp_replace", lang.call("string", number), lang.lit("[.]0$"), lang.lit(""))


# ---------------------------------------------------------------------------------------------------- sums


def compute_discount(lang: Language, form: DiscountForm, rank: Expression) -> Expression:
    """Compute the weight of a rank, which counts from 1."""
    if form.table is not None:
        weights = lang.call("array", *[lang.lit(weight) for weight in form.table])
        return lang.call("element_at", weights, rank)
    if form.name == "reciprocal":
        return lang.lit(1.0) / rank
    if form.name == "log2":
        return lang.lit(1.0) / lang.call("log2", rank + lang.lit(1))
    base = form.base
    scale = lang.lit(1.0) if base is None else lang.call("ln", lang.lit(float(base)))
    return scale / lang.call("ln", rank + lang.lit(1))


def sum_groups(
    lang: Language,
    ranked: Expression,
    cut: Cut,
    weights: Sequence[Weight],
    group_value: Callable[[Expression], Expression],
) -> Expression:
    """Sum the contributions of groups of tied entries, in one pass over the sorted entries.

    `group_value` computes the contribution of a group from its state at its end: `n` entries, the last at `rank`;
    `gain`, the sum of their gains; `before`, the sum of the gains of all earlier groups; `weight_0`, ...: sums of the
    weights of its positions, up to the cutoff.
    """
    weight_fields = [f"weight_{n}" for n in range(len(weights))]

    def make_state(**fields: Expression) -> Expression:
        arguments = [argument for field, value in fields.items() for argument in (lang.lit(field), value)]
        return lang.call("named_struct", *arguments)

    def add(state: Expression, entry: Expression) -> Expression:
        tied = lang.call("coalesce", cut.grouped & (state["score"] == entry["score"]), lang.lit(False))
        rank, place = state["rank"] + lang.lit(1), lang.call("if", tied, state["n"], lang.lit(0))
        weight_sums = {
            field: lang.call("if", tied, state[field], lang.lit(0.0))
            + lang.call("if", rank <= cut.k, weight(rank, place), lang.lit(0.0))
            for field, weight in zip(weight_fields, weights, strict=True)
        }
        return make_state(
            score=entry["score"],
            rank=rank,
            n=place + lang.lit(1),
            gain=lang.call("if", tied, state["gain"], lang.lit(0.0)) + cut.sign * entry["gain"],
            before=lang.call("if", tied, state["before"], state["before"] + state["gain"]),
            total=lang.call("if", tied, state["total"], state["total"] + group_value(state)),
            **weight_sums,
        )

    zero = lang.lit(0.0)
    start = make_state(
        score=lang.lit(None), rank=lang.lit(0), n=lang.lit(1), gain=zero, before=zero, total=zero,
        **dict.fromkeys(weight_fields, zero),
    )  # fmt: skip
    return lang.aggregate(ranked, start, add, lambda state: state["total"] + group_value(state))


def _dcg(lang: Language, ranked: Expression, cut: Cut, discount: DiscountForm) -> Expression:
    """Compute the DCG: each group adds its mean gain times its weights (McSherry and Najork, ECIR 2008)."""
    weight = [lambda rank, place: compute_discount(lang, discount, rank)]
    return sum_groups(lang, ranked, cut, weight, lambda state: state["gain"] * state["weight_0"] / state["n"])


def _count_hits(lang: Language, ranked: Expression, cut: Cut) -> Expression:
    """Count the relevant entries among the first k: the DCG with equal weights."""
    weight = [lambda rank, place: lang.lit(1.0)]
    return sum_groups(lang, ranked, cut, weight, lambda state: state["gain"] * state["weight_0"] / state["n"])


def _sum_precisions(lang: Language, ranked: Expression, cut: Cut) -> Expression:
    """Sum the precisions at the ranks of relevant entries (expected: McSherry and Najork, ECIR 2008)."""

    def group_value(state: Expression) -> Expression:
        others = lang.call("greatest", state["n"] - lang.lit(1), lang.lit(1))
        first = (state["before"] + lang.lit(1.0)) * state["weight_0"]
        rest = (state["gain"] - lang.lit(1.0)) * state["weight_1"] / others
        return state["gain"] * (first + rest) / state["n"]

    weights = [lambda rank, place: lang.lit(1.0) / rank, lambda rank, place: place / rank]
    return sum_groups(lang, ranked, cut, weights, group_value)


def _mean_first_hit(lang: Language, state: Expression, k: Expression) -> Expression:
    """Compute the mean of 1 / rank of the first relevant entry over all orders of a group, up to the cutoff."""
    before, n, relevant = state["rank"] - state["n"], state["n"], state["gain"]

    def make_state(none: Expression, total: Expression) -> Expression:
        """Build the state: the probability that no position so far is relevant, and the sum so far."""
        return lang.call("named_struct", lang.lit("none"), none, lang.lit("total"), total)

    def add(so_far: Expression, place: Expression) -> Expression:
        left = n - place
        share = so_far["none"] * relevant / left / (before + place + lang.lit(1))
        return make_state(so_far["none"] * (left - relevant) / left, so_far["total"] + share)

    places = lang.call("sequence", lang.lit(0), lang.call("least", n, k - before) - lang.lit(1))
    return lang.aggregate(places, make_state(lang.lit(1.0), lang.lit(0.0)), add, lambda so_far: so_far["total"])


def sum_array(lang: Language, numbers: Expression) -> Expression:
    """Sum an array; nulls count as 0."""
    return lang.aggregate(
        numbers,
        lang.lit(0.0),
        lambda total, number: total + lang.call("coalesce", number, lang.lit(0.0)),
        lambda total: total,
    )


def divide(lang: Language, dividend: Expression, divisor: Expression, otherwise: Expression) -> Expression:
    """Return `dividend / divisor`, or `otherwise` where the divisor is not above 0."""
    # Rarely evaluated branches belong in `otherwise`: the JIT compiles small methods only. `nullif` must not be
    # used: Spark 4 rewrites it to a `With` expression, which pivots copy, so all values get the first one's divisor.
    positive = lang.call("array_max", lang.filter(lang.call("array", divisor), lambda number: number > lang.lit(0.0)))
    return lang.call("coalesce", dividend / positive, otherwise)


def null_if_unjudged(lang: Language, gains: Expression, value: Expression) -> Expression:
    """Return a value, or null for a query without any judged item."""
    return lang.call("if", has_number(lang, gains), value, lang.lit(None))


def refuse_unjudged_gains(lang: Language, ranked: Expression, judged: Expression, value: Expression) -> Expression:
    """Return a value; raise if the positive ranked gains, sorted, exceed the judged gains at any position."""

    def largest_first(gains: Expression) -> Expression:
        return lang.call("sort_array", lang.filter(gains, lambda gain: gain > lang.lit(0.0)), lang.lit(False))

    def compare(judged_gains: Expression) -> Expression:
        return lang.transform(
            largest_first(ranked),
            lambda gain, place: gain > lang.call("coalesce", lang.call("get", judged_gains, place), lang.lit(0.0)),
        )

    exceeds = lang.call("array_max", bind_once(lang, largest_first(judged), compare))
    error = lang.refuse(
        "the ranked array has a relevance that is not in the judged array: pass relevances, not ids, and all judged "
        "relevances of the query, retrieved or not."
    )
    return lang.call("if", exceeds, error, value)


def bind_once(lang: Language, value: Expression, body: Callable[[Expression], Expression]) -> Expression:
    """Pass a value to `body`, which may use it several times; Spark computes it once."""
    return lang.call("element_at", lang.transform(lang.call("array", value), lambda bound: body(bound)), lang.lit(1))


Metric: TypeAlias = Callable[[Language, Expression, Expression, Cut], Expression]
"""Computes a metric from the hits among judged items and the ranked entries; null if nothing is judged."""


def ndcg(
    lang: Language, judged: Expression, ranked: Expression, cut: Cut, discount: DiscountForm, nothing: Expression
) -> Expression:
    """Compute NDCG: `nothing` if no judged item is relevant, null if no item is judged."""
    ideal = lang.filter(take_largest(lang, judged, cut.k), lambda gain: gain > lang.lit(NULL_NUMBER))
    best = sum_array(
        lang, lang.transform(ideal, lambda gain, place: gain * compute_discount(lang, discount, place + lang.lit(1)))
    )
    return divide(lang, _dcg(lang, ranked, cut, discount), best, null_if_unjudged(lang, judged, nothing))


def dcg(lang: Language, judged: Expression, ranked: Expression, cut: Cut, discount: DiscountForm) -> Expression:
    return null_if_unjudged(lang, judged, _dcg(lang, ranked, cut, discount))


def precision(lang: Language, judged: Expression, ranked: Expression, cut: Cut) -> Expression:
    value = divide(lang, _count_hits(lang, ranked, cut), _choose_divisor(lang, ranked, cut.k), lang.lit(0.0))
    return null_if_unjudged(lang, judged, value)


def recall(lang: Language, judged: Expression, ranked: Expression, cut: Cut) -> Expression:
    return divide(
        lang, _count_hits(lang, ranked, cut), sum_array(lang, judged), null_if_unjudged(lang, judged, lang.lit(0.0))
    )


def average_precision(
    lang: Language, judged: Expression, ranked: Expression, cut: Cut, denominator: str = "judged"
) -> Expression:
    """Compute average precision, divided by R (relevant judged entries), min(k, R) (`achievable`) or k."""
    if denominator == "k":
        divisor = null_if_unjudged(lang, judged, _choose_divisor(lang, ranked, cut.k))
    else:
        relevant = sum_array(lang, judged)
        divisor = relevant if denominator == "judged" else lang.call("least", relevant, cut.k)
    return divide(lang, _sum_precisions(lang, ranked, cut), divisor, null_if_unjudged(lang, judged, lang.lit(0.0)))


def reciprocal_rank(lang: Language, judged: Expression, ranked: Expression, cut: Cut) -> Expression:
    """Compute 1 / rank of the first relevant entry (expected: McSherry and Najork, ECIR 2008)."""

    def group_value(state: Expression) -> Expression:
        is_first = (state["before"] == lang.lit(0.0)) & (state["gain"] > lang.lit(0.0))
        is_first = is_first & (state["rank"] - state["n"] < cut.k)
        return lang.call("if", is_first, _mean_first_hit(lang, state, cut.k), lang.lit(0.0))

    return null_if_unjudged(lang, judged, sum_groups(lang, ranked, cut, [], group_value))


def _choose_divisor(lang: Language, ranked: Expression, k: Expression) -> Expression:
    """Return k, even if the list is shorter; the length of the list if there is no cutoff."""
    return lang.call("if", k == lang.lit(WHOLE), lang.call("size", ranked), k)
