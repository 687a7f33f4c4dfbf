"""Metrics of one query as expressions, written once for PySpark (`arguments.AsColumns`) and for SQL (`AsText`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from ndcg_spark.conventions.forms import DiscountForm, GainForm, parse_gain, relevance_range
from ndcg_spark.sources.references import quote_sql

Value: TypeAlias = Any
"""A Column or a `Text`: an expression, which operators make larger."""


class Language(Protocol):
    """What formulas are written with."""

    def lit(self, value: float | str | bool | None, /) -> Value:
        """Write a constant; None is a null number."""

    def call(self, name: str, /, *arguments: Value) -> Value:
        """Call a function of Spark by its name in SQL."""

    def refuse(self, *parts: Value | str) -> Value:
        """Raise, with a message."""

    def aggregate(self, array: Value, start: Value, add: Callable[..., Value], end: Callable[..., Value], /) -> Value:
        """Fold an array."""

    def transform(self, array: Value, change: Callable[..., Value], /) -> Value:
        """Change each element of an array; a function of two arguments gets its place, too, from 0 on."""

    def filter(self, array: Value, keep: Callable[..., Value], /) -> Value:
        """Keep some elements of an array."""


def _operator(sign: str) -> Callable[[Text, Text | float], Text]:
    def write(self: Text, other: Text | float) -> Text:
        return Text(f"({self.sql} {sign} {_text(other)})")

    return write


class Text:
    """An expression as text of SQL."""

    def __init__(self, sql: str) -> None:
        self.sql = sql

    def __getitem__(self, field: str) -> Text:
        return Text(f"{self.sql}.{field}")

    __add__, __sub__, __mul__, __truediv__ = map(_operator, "+-*/")
    __lt__, __le__, __gt__, __ge__ = map(_operator, ("<", "<=", ">", ">="))
    __and__, __or__ = _operator("AND"), _operator("OR")
    __eq__ = _operator("=")  # type: ignore[assignment]  # as columns do
    __hash__ = None  # type: ignore[assignment]  # what is never equal, but compared in SQL, is no key


def _text(value: object) -> str:
    """Write a constant such that Spark reads the type that a column of it has: 1.0 alone would be a decimal."""
    if isinstance(value, Text):
        return value.sql
    if value is None:
        return "CAST(NULL AS DOUBLE)"
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, str):
        return quote_sql(value)
    return f"{value!r}D" if isinstance(value, float) else str(value)


class AsText:
    """Expressions as text of SQL, with names of their own for the variables of lambdas."""

    def __init__(self) -> None:
        self._around: list[str] = []

    def lit(self, value: float | str | bool | None) -> Text:
        return Text(_text(value))

    def call(self, name: str, *arguments: Text) -> Text:
        return Text(f"{name}({', '.join(_text(one) for one in arguments)})")

    def refuse(self, *parts: Text | str) -> Text:
        return self.call("raise_error", self.call("concat", *[Text(_text(part)) for part in parts]))

    def aggregate(self, array: Text, start: Text, add: Callable[..., Text], end: Callable[..., Text]) -> Text:
        return self.call("aggregate", array, start, self._lambda(add), self._lambda(end))

    def transform(self, array: Text, change: Callable[..., Text]) -> Text:
        return self.call("transform", array, self._lambda(change))

    def filter(self, array: Text, keep: Callable[..., Text]) -> Text:
        return self.call("filter", array, self._lambda(keep))

    def _lambda(self, function: Callable[..., Text]) -> Text:
        """Write a lambda, whose variables are called as in Python, if none around it is."""
        names = []
        for name in function.__code__.co_varnames[: function.__code__.co_argcount]:
            names.append(name if name not in self._around else f"{name}_{len(self._around)}")
        self._around.extend(names)
        body = function(*[Text(name) for name in names])
        del self._around[-len(names) :]
        variables = names[0] if len(names) == 1 else f"({', '.join(names)})"
        return Text(f"{variables} -> {body.sql}")


WHOLE = 2**31 - 1
"""The cutoff of whole lists."""
LARGEST_DOUBLE = 1.7976931348623157e308
NONE = -LARGEST_DOUBLE
"""What null is among numbers that are sorted: below all gains, and no score is below it."""
Weight = Callable[[Value, Value], Value]
"""What a place counts for, from its rank (from 1 on), and its place among tied entries (from 0 on)."""


@dataclass(frozen=True)
class Cut:
    """How entries are ranked and cut, in expressions: at `k`, which may be `WHOLE`.

    If `grouped`, entries of one score count as the average of their orders; else `sign` is 1.0 if the larger gain of
    two tied entries comes first, -1.0 if the smaller does. `shown` is the cutoff in the name of a result.
    """

    k: Value
    grouped: Value
    sign: Value
    shown: str = ""


# ---------------------------------------------------------------------------------------------------- entries


def entry(on: Language, score: Value, gain: Value) -> Value:
    """Put a score and a gain together."""
    return on.call("named_struct", on.lit("score"), score, on.lit("gain"), gain)


def entries_of_ranked(on: Language, gains: Value, k: Value) -> Value:
    """Make entries of gains in rank order, down to rank k: the score of each is minus its place."""
    return on.transform(
        on.call("slice", gains, on.lit(1), k), lambda gain, place: entry(on, on.lit(0.0) - place, gain)
    )


def rank_entries(on: Language, entries: Value, cut: Cut) -> Value:
    """Sort the retrieved entries, best first, down to the last that is tied with the k-th.

    The gain of each is there, times `sign`. Sorting numbers is much quicker than sorting structs.
    """
    last = on.call("array_min", largest(on, entries["score"], cut.k))
    found = named_once(on, last, lambda score: on.filter(entries, lambda one: one["score"] >= score))
    signed = on.transform(
        found, lambda one: entry(on, one["score"], cut.sign * on.call("coalesce", one["gain"], on.lit(0.0)))
    )
    return on.call("sort_array", signed, on.lit(False))


def largest(on: Language, numbers: Value, k: Value) -> Value:
    """Give the k largest numbers of an array, the largest first; nulls, which are no numbers, come last as `NONE`."""
    there = on.transform(numbers, lambda one: on.call("coalesce", one, on.lit(NONE)))
    return on.call("slice", on.call("sort_array", there, on.lit(False)), on.lit(1), k)


def any_there(on: Language, numbers: Value) -> Value:
    """Whether an array has a number: a gain that is judged, or the score of an item that was retrieved."""
    return on.call("isnotnull", on.call("array_max", numbers))


# ---------------------------------------------------------------------------------------------------- gains


def gain_of(on: Language, form: GainForm, relevance: Value) -> Value:
    """Give the gain of a relevance; null for null."""
    if form.table is not None:
        levels = sorted(form.table)
        known = on.refuse("relevance ", shown(on, relevance), f" has no gain in the table {levels}.")
        for level in levels:
            known = on.call("if", relevance == on.lit(level), on.lit(form.table[level]), known)
        return on.call("if", on.call("isnull", relevance), on.lit(None), known)
    if form.name == "power":
        size = on.call("pow", on.call("abs", relevance), on.lit(float(form.number or 1)))
        return on.call("signum", relevance) * size
    if form.name == "linear":
        gain = relevance
    elif form.name == "binary":
        gain = on.call("if", relevance > on.lit(0.0), on.lit(1.0), relevance * on.lit(0.0))
    else:
        gain = on.call("pow", on.lit(2.0), relevance) - on.lit(1.0)
    if form.number is None:
        return gain
    return on.call("if", relevance < on.lit(float(form.number)), on.lit(0.0), gain)


def hit_of(on: Language, rel: Value, relevance: Value) -> Value:
    """Give 1.0 for a relevant item, 0.0 for another, null for an unjudged one."""
    return on.call("if", relevance >= rel, on.lit(1.0), relevance * on.lit(0.0))


def refuse_relevance(on: Language, relevance: Value, lowest: float, highest: float, where: str) -> Value:
    """Give a relevance, or raise: for NaN, which is above all, an infinite one, or one whose gain exceeds 2^63."""
    nan = on.refuse(f"nan_relevance in {where}: NaN is a bad value; make it null (an unjudged item) or take it out.")
    large = on.refuse(
        "relevance ", shown(on, relevance), f" in {where} has a gain that is not finite, or above 2^63; "
        "take the item out, or choose another gain.",
    )  # fmt: skip
    above = relevance > on.lit(min(highest, LARGEST_DOUBLE))
    below = relevance < on.lit(max(lowest, -LARGEST_DOUBLE))
    return on.call("if", above | below, on.call("if", on.call("isnan", relevance), nan, large), relevance)


def checked_gain(on: Language, gain: str, relevance: Value, where: str) -> Value:
    """Give the gain of a relevance, or raise where it has none; null for null."""
    return gain_of(on, parse_gain(gain), refuse_relevance(on, relevance, *relevance_range(gain), where))


def checked_hit(on: Language, rel: Value, relevance: Value, where: str) -> Value:
    """Give 1.0 for a relevant item, 0.0 for another, null for an unjudged one; raise for a bad value."""
    return hit_of(on, rel, refuse_relevance(on, relevance, -LARGEST_DOUBLE, LARGEST_DOUBLE, where))


def refuse_score(on: Language, score: Value, where: str) -> Value:
    """Give a score, or raise for NaN, which is above all, or an infinite one."""
    advice = "; it has no rank: make it null (an item that was not retrieved) or take it out."
    nan = on.refuse(f"nan_score in {where}: NaN is a bad value{advice}")
    infinite = on.refuse(f"infinite_score in {where}: ", on.call("string", score), f" is a bad value{advice}")
    beyond = on.call("abs", score) > on.lit(LARGEST_DOUBLE)
    return on.call("if", beyond, on.call("if", on.call("isnan", score), nan, infinite), score)


def shown(on: Language, number: Value) -> Value:
    """Write a number as a person does: 3 for 3.0."""
    return on.call("regexp_replace", on.call("string", number), on.lit("[.]0$"), on.lit(""))


# ---------------------------------------------------------------------------------------------------- sums


def discount_at(on: Language, form: DiscountForm, rank: Value) -> Value:
    """Give the weight of a rank, which counts from 1."""
    if form.table is not None:
        weights = on.call("array", *[on.lit(weight) for weight in form.table])
        return on.call("element_at", weights, rank)
    if form.name == "reciprocal":
        return on.lit(1.0) / rank
    if form.name == "log2":
        return on.lit(1.0) / on.call("log2", rank + on.lit(1))
    base = form.base
    scale = on.lit(1.0) if base is None else on.call("ln", on.lit(float(base)))
    return scale / on.call("ln", rank + on.lit(1))


def sum_of_groups(
    on: Language, ranked: Value, cut: Cut, weights: Sequence[Weight], closed: Callable[[Value], Value]
) -> Value:
    """Add up what each group of tied entries contributes, in one pass over the sorted entries.

    `closed` computes it from what is known when the group ends: `n` entries, the last of them at `rank`; their
    gains, `gain`, and those of all groups before, `before`; `weight_0`, ...: the weights of its places, up to the
    cutoff.
    """
    names = [f"weight_{at}" for at in range(len(weights))]

    def state(**fields: Value) -> Value:
        parts = [part for name, value in fields.items() for part in (on.lit(name), value)]
        return on.call("named_struct", *parts)

    def add(at: Value, one: Value) -> Value:
        tied = on.call("coalesce", cut.grouped & (at["score"] == one["score"]), on.lit(False))
        rank, place = at["rank"] + on.lit(1), on.call("if", tied, at["n"], on.lit(0))
        counted = {
            name: on.call("if", tied, at[name], on.lit(0.0))
            + on.call("if", rank <= cut.k, weight(rank, place), on.lit(0.0))
            for name, weight in zip(names, weights, strict=True)
        }
        return state(
            score=one["score"],
            rank=rank,
            n=place + on.lit(1),
            gain=on.call("if", tied, at["gain"], on.lit(0.0)) + cut.sign * one["gain"],
            before=on.call("if", tied, at["before"], at["before"] + at["gain"]),
            total=on.call("if", tied, at["total"], at["total"] + closed(at)),
            **counted,
        )

    nothing = on.lit(0.0)
    start = state(
        score=on.lit(None), rank=on.lit(0), n=on.lit(1), gain=nothing, before=nothing, total=nothing,
        **dict.fromkeys(names, nothing),
    )  # fmt: skip
    return on.aggregate(ranked, start, add, lambda at: at["total"] + closed(at))


def _dcg(on: Language, ranked: Value, cut: Cut, discount: DiscountForm) -> Value:
    """A group counts its mean gain times the weights of its places (McSherry and Najork, ECIR 2008)."""
    weight = [lambda rank, place: discount_at(on, discount, rank)]
    return sum_of_groups(on, ranked, cut, weight, lambda at: at["gain"] * at["weight_0"] / at["n"])


def _hits(on: Language, ranked: Value, cut: Cut) -> Value:
    """Relevant entries among the first k, which is the DCG whose ranks all weigh the same."""
    weight = [lambda rank, place: on.lit(1.0)]
    return sum_of_groups(on, ranked, cut, weight, lambda at: at["gain"] * at["weight_0"] / at["n"])


def _sum_of_precisions(on: Language, ranked: Value, cut: Cut) -> Value:
    """Sum of the precisions at the ranks of relevant entries (expected: McSherry and Najork, ECIR 2008)."""

    def closed(at: Value) -> Value:
        others = on.call("greatest", at["n"] - on.lit(1), on.lit(1))
        first = (at["before"] + on.lit(1.0)) * at["weight_0"]
        rest = (at["gain"] - on.lit(1.0)) * at["weight_1"] / others
        return at["gain"] * (first + rest) / at["n"]

    weights = [lambda rank, place: on.lit(1.0) / rank, lambda rank, place: place / rank]
    return sum_of_groups(on, ranked, cut, weights, closed)


def _first_hit(on: Language, at: Value, k: Value) -> Value:
    """Mean of 1 / rank of the first relevant entry over all orders of a group, up to the cutoff."""
    before, n, relevant = at["rank"] - at["n"], at["n"], at["gain"]

    def state(none: Value, total: Value) -> Value:
        """Chance that none of the places so far holds a relevant entry, and the mean so far."""
        return on.call("named_struct", on.lit("none"), none, on.lit("total"), total)

    def add(so_far: Value, place: Value) -> Value:
        left = n - place
        found = so_far["none"] * relevant / left / (before + place + on.lit(1))
        return state(so_far["none"] * (left - relevant) / left, so_far["total"] + found)

    places = on.call("sequence", on.lit(0), on.call("least", n, k - before) - on.lit(1))
    return on.aggregate(places, state(on.lit(1.0), on.lit(0.0)), add, lambda so_far: so_far["total"])


def sum_of(on: Language, numbers: Value) -> Value:
    """Add up an array; nulls add nothing."""
    return on.aggregate(
        numbers, on.lit(0.0), lambda total, one: total + on.call("coalesce", one, on.lit(0.0)), lambda total: total
    )


def ratio(on: Language, found: Value, best: Value, nothing: Value) -> Value:
    """`found / best`, or `nothing` where `best` is not above 0.

    What is seldom needed stands in `nothing` and not around the whole: Java compiles small methods alone. There is no
    `nullif`, which is a `With` since Spark 4; pivots copy that, and divide all values by those of the first.
    """
    positive = on.call("array_max", on.filter(on.call("array", best), lambda one: one > on.lit(0.0)))
    return on.call("coalesce", found / positive, nothing)


def where_judged(on: Language, gains: Value, value: Value) -> Value:
    """Give a value, or null for a query without any judged item."""
    return on.call("if", any_there(on, gains), value, on.lit(None))


def refuse_beyond(on: Language, ranked: Value, judged: Value, value: Value) -> Value:
    """Give a value, or raise where the ranked gains above 0 are more, or larger, than the judged ones, one by one."""

    def largest_first(gains: Value) -> Value:
        return on.call("sort_array", on.filter(gains, lambda gain: gain > on.lit(0.0)), on.lit(False))

    def beyond(its: Value) -> Value:
        return on.transform(
            largest_first(ranked), lambda gain, at: gain > on.call("coalesce", on.call("get", its, at), on.lit(0.0))
        )

    more = on.call("array_max", named_once(on, largest_first(judged), beyond))
    told = on.refuse(
        "the ranked array has a relevance that the array of judged ones lacks: give relevances, not ids, and all "
        "judged relevances of the query, retrieved or not."
    )
    return on.call("if", more, told, value)


def named_once(on: Language, value: Value, body: Callable[[Value], Value]) -> Value:
    """Use a value several times, computed once."""
    return on.call("element_at", on.transform(on.call("array", value), lambda one: body(one)), on.lit(1))


Metric: TypeAlias = Callable[[Language, Value, Value, Cut], Value]
"""A metric of hits, from those that are judged and the ranked entries; null where nothing is judged."""


def ndcg(on: Language, judged: Value, ranked: Value, cut: Cut, discount: DiscountForm, nothing: Value) -> Value:
    """Compute NDCG; `nothing` where no judged entry is relevant, null where nothing is judged."""
    ideal = on.filter(largest(on, judged, cut.k), lambda gain: gain > on.lit(NONE))
    best = sum_of(on, on.transform(ideal, lambda gain, place: gain * discount_at(on, discount, place + on.lit(1))))
    return ratio(on, _dcg(on, ranked, cut, discount), best, where_judged(on, judged, nothing))


def dcg(on: Language, judged: Value, ranked: Value, cut: Cut, discount: DiscountForm) -> Value:
    return where_judged(on, judged, _dcg(on, ranked, cut, discount))


def precision(on: Language, judged: Value, ranked: Value, cut: Cut) -> Value:
    value = ratio(on, _hits(on, ranked, cut), _places(on, ranked, cut.k), on.lit(0.0))
    return where_judged(on, judged, value)


def recall(on: Language, judged: Value, ranked: Value, cut: Cut) -> Value:
    return ratio(on, _hits(on, ranked, cut), sum_of(on, judged), where_judged(on, judged, on.lit(0.0)))


def average_precision(on: Language, judged: Value, ranked: Value, cut: Cut, denominator: str = "judged") -> Value:
    """Divide by R, the number of relevant judged entries, by min(k, R) (`achievable`), or by `k`."""
    if denominator == "k":
        best = where_judged(on, judged, _places(on, ranked, cut.k))
    else:
        relevant = sum_of(on, judged)
        best = relevant if denominator == "judged" else on.call("least", relevant, cut.k)
    return ratio(on, _sum_of_precisions(on, ranked, cut), best, where_judged(on, judged, on.lit(0.0)))


def reciprocal_rank(on: Language, judged: Value, ranked: Value, cut: Cut) -> Value:
    """Give 1 / rank of the first relevant entry (expected: McSherry and Najork, ECIR 2008)."""

    def closed(at: Value) -> Value:
        first = (at["before"] == on.lit(0.0)) & (at["gain"] > on.lit(0.0)) & (at["rank"] - at["n"] < cut.k)
        return on.call("if", first, _first_hit(on, at, cut.k), on.lit(0.0))

    return where_judged(on, judged, sum_of_groups(on, ranked, cut, [], closed))


def _places(on: Language, ranked: Value, k: Value) -> Value:
    """Give k, also where the list is shorter; without a cutoff the length of the list."""
    return on.call("if", k == on.lit(WHOLE), on.call("size", ranked), k)
