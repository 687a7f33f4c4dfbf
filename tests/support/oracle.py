"""The reference for the package: plain loops, no NumPy, no import of the package.

Slow on purpose. Each function follows the written definition from top to bottom, so that a reader can check

Slow on purpose. Each function follows the written definition from top to bottom, so that a reader can check
it against the paper. The tests `test_oracle*.py` pin it to values that other tools give.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

Query = Hashable
Cutoff = int | None
Results = dict[tuple[Query, Cutoff], "Result"]

ALLOWED: Mapping[str, tuple[str, ...]] = {
    "ties": ("item_asc", "item_desc", "input_order", "expected", "best", "worst"),
    "score_precision": ("double", "float32"),
    "ideal": ("judged", "retrieved", "k_ones", "as_many"),
    "unjudged": ("zero", "condensed"),
    "negative": ("keep", "clip"),
    "no_relevant": ("zero", "one", "skip"),
    "missing_query": ("zero", "drop"),
    "unjudged_query": ("drop", "zero"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One item of one query, with a score, a relevance or both."""

    query: Query
    item: str | int | float | None = None
    score: float | None = None  # None: judged, not retrieved
    relevance: float | None = None  # None: retrieved, not judged
    position: float = 0  # order of the input; read by `input_order` alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """Every choice that changes a number, with the defaults of the project."""

    gain: str | Callable[[float], float] = "exponential"
    discount: str | Callable[[int], float] = "log2"  # a callable gets the 1-based rank
    ties: str = "expected"
    score_precision: str = "double"
    ideal: str = "judged"
    unjudged: str = "zero"
    negative: str = "keep"
    no_relevant: str = "zero"
    missing_query: str = "zero"
    unjudged_query: str = "drop"
    pad_to_k: float | None = None

    def __post_init__(self) -> None:
        for name, allowed in ALLOWED.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {allowed}, got {getattr(self, name)!r}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Values of one query at one cutoff. A value of None does not count in the mean."""

    dcg: float | None
    idcg: float | None
    ndcg: float | None
    n_items: int  # retrieved items
    n_judged: int  # judged items, retrieved or not
    n_relevant: int  # judged items with a relevance above 0
    status: str  # 'evaluated', 'no_relevant', 'missing' (nothing retrieved), 'unjudged' (no judgment at all)


def evaluate(rows: Iterable[Row], choices: Choices, cutoffs: Sequence[Cutoff]) -> Results:
    """Return DCG, IDCG and NDCG of every query at every cutoff; a cutoff of None is the whole list."""
    results: Results = {}
    for query, query_rows in group_by_query(rows).items():
        _refuse_unusable(query, query_rows)
        for k, result in zip(cutoffs, _evaluate_query(query_rows, choices, cutoffs), strict=True):
            results[query, k] = result
    return results


def mean(results: Mapping[tuple[Query, Cutoff], Result], k: Cutoff, metric: str = "ndcg") -> float | None:
    """Return the exact mean over queries that have a value, rounded once; None if no query has one."""
    values = [getattr(result, metric) for (_, cutoff), result in results.items() if cutoff == k]
    counted = [Fraction(value) for value in values if value is not None]
    return float(sum(counted, Fraction(0)) / len(counted)) if counted else None


def average_over_permutations(rows: Sequence[Row], choices: Choices, k: Cutoff) -> Result:
    """Return the mean over every order of the tied items of one query with short lists."""
    results = list(evaluate_every_order(rows, choices, k))
    by_order: Results = {(n, k): result for n, result in enumerate(results)}
    return replace(results[0], dcg=mean(by_order, k, "dcg"), ndcg=mean(by_order, k, "ndcg"))


def evaluate_every_order(rows: Sequence[Row], choices: Choices, k: Cutoff) -> Iterator[Result]:
    """Yield the result of each order of the tied items of one query."""
    retrieved = [row for row in rows if row.score is not None]
    others = [row for row in rows if row.score is None]
    groups = group_by_score(retrieved, choices.score_precision)
    for order in itertools.product(*(itertools.permutations(group) for group in groups)):
        placed = [replace(row, position=n) for n, row in enumerate(itertools.chain(*order))]
        yield from evaluate(placed + others, replace(choices, ties="input_order"), [k]).values()


def group_by_query(rows: Iterable[Row]) -> dict[Query, list[Row]]:
    """Return the rows of each query, queries in order of appearance."""
    groups: dict[Query, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.query, []).append(row)
    return groups


def _refuse_unusable(query: Query, rows: list[Row]) -> None:
    """Refuse rows without a defined value: the reference never guesses."""
    items = [row.item for row in rows if row.item is not None]
    if len(items) != len(set(items)):
        raise ValueError(f"query {query!r} lists an item twice.")
    for row in rows:
        for value in (row.score, row.relevance):
            if value is not None and not math.isfinite(value):
                raise ValueError(f"query {query!r} has the score or relevance {value!r}.")


def _evaluate_query(rows: list[Row], choices: Choices, cutoffs: Sequence[Cutoff]) -> list[Result]:
    retrieved = [row for row in rows if row.score is not None]
    judged = [row for row in rows if row.relevance is not None]
    counts = (len(retrieved), len(judged), sum(1 for row in judged if (row.relevance or 0) > 0))
    gain, discount = _build_gain(choices), parse_discount(choices.discount)

    listed = retrieved if choices.unjudged == "zero" else [r for r in retrieved if r.relevance is not None]
    groups = _rank(listed, choices, gain)
    in_ideal = [row for row in judged if row.score is not None] if choices.ideal == "retrieved" else judged
    ideal = sorted((gain(row.relevance) for row in in_ideal), reverse=True)
    if choices.ideal == "as_many":
        ideal = ideal[: len(listed)]

    results = []
    for k in cutoffs:
        if k is not None and k < 1:
            raise ValueError(f"a cutoff is at least 1, got {k}.")
        dcg = sum_discounted(_pad(groups, choices, gain, k), discount, k)
        if choices.ideal == "k_ones":
            ideal = [gain(1.0)] * (len(listed) if k is None else k)
        idcg = sum_discounted([[value] for value in ideal], discount, k)
        results.append(_judge(dcg, idcg, choices, counts))
    return results


def _judge(dcg: float, idcg: float, choices: Choices, counts: tuple[int, int, int]) -> Result:
    """Normalize, or apply the policy for queries without results."""
    n_items, n_judged, n_relevant = counts

    def result(values: tuple[float | None, float | None, float | None], status: str) -> Result:
        counted = {"n_items": n_items, "n_judged": n_judged, "n_relevant": n_relevant}
        return Result(dcg=values[0], idcg=values[1], ndcg=values[2], status=status, **counted)

    if n_judged == 0:
        zeros = choices.unjudged_query == "zero"
        return result((0.0, 0.0, 0.0) if zeros else (None, None, None), "unjudged")
    if n_items == 0:
        zeros = choices.missing_query == "zero"
        return result((0.0, idcg, 0.0) if zeros else (None, None, None), "missing")
    if idcg <= 0:
        ndcg = {"zero": 0.0, "one": 1.0, "skip": None}[choices.no_relevant]
        return result((dcg, idcg, ndcg), "no_relevant")
    return result((dcg, idcg, dcg / idcg), "evaluated")


def sum_discounted(groups: Sequence[Sequence[float]], discount: Callable[[int], float], k: Cutoff) -> float:
    """Return the DCG of groups of gains, best group first.

    The items of a group are tied: each of its ranks gets the mean gain, which is the mean over all orders.
    """
    terms, rank = [], 0
    for group in groups:
        gain = math.fsum(group) / len(group)
        for _ in group:
            rank += 1
            if k is None or rank <= k:
                terms.append(gain * discount(rank))
    return math.fsum(terms)


def _rank(rows: list[Row], choices: Choices, gain: Callable[[float | None], float]) -> list[list[float]]:
    """Return gains in rank order. Only `expected` keeps tied items in a group."""
    ranked: list[list[float]] = []
    for tied in group_by_score(rows, choices.score_precision):
        if choices.ties == "input_order":
            tied.sort(key=lambda row: row.position)
        elif choices.ties in ("item_asc", "item_desc") and len(tied) > 1:
            tied.sort(key=_item_order, reverse=choices.ties == "item_desc")
        gains = [gain(row.relevance) for row in tied]
        if choices.ties in ("best", "worst"):
            gains.sort(reverse=choices.ties == "best")
        ranked += [gains] if choices.ties == "expected" else [[value] for value in gains]
    return ranked


def group_by_score(rows: Iterable[Row], precision: str) -> list[list[Row]]:
    """Group rows by score, highest score first."""
    groups: dict[float, list[Row]] = {}
    for row in rows:
        if row.score is not None:
            score = float(row.score) if precision == "double" else to_float32(row.score)
            groups.setdefault(score, []).append(row)  # -0.0 and 0.0 are one key, as they are one number
    return [groups[score] for score in sorted(groups, reverse=True)]


def _item_order(row: Row) -> tuple[bytes | float, ...]:
    """Order strings by their UTF-8 bytes, numbers by value."""
    if row.item is None:
        raise ValueError(f"query {row.query!r} has a tied item without an id.")
    return (row.item.encode() if isinstance(row.item, str) else row.item,)


def to_float32(value: float) -> float:
    """Return the nearest single-precision number; infinity beyond its range, like a cast in C."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def _pad(
    groups: list[list[float]], choices: Choices, gain: Callable[[float | None], float], k: Cutoff
) -> list[list[float]]:
    """Fill ranks n+1..k with items of relevance `pad_to_k`."""
    if choices.pad_to_k is None or k is None:
        return groups
    n_ranked = sum(len(group) for group in groups)
    return groups + [[gain(choices.pad_to_k)]] * max(0, k - n_ranked)


def _build_gain(choices: Choices) -> Callable[[float | None], float]:
    """Return the function from relevance to gain; unjudged items gain 0 in any case, clipping is first."""
    function = parse_gain(choices.gain)

    def gain(relevance: float | None) -> float:
        if relevance is None:
            return 0.0
        clipped = max(0.0, float(relevance)) if choices.negative == "clip" else float(relevance)
        return float(function(clipped))

    return gain


def parse_gain(gain: str | Callable[[float], float]) -> Callable[[float], float]:
    """Parse `exponential`, `linear`, `table:0=0,1=1` or `power:2`; return a callable unchanged."""
    if callable(gain):
        return gain
    name, _, argument = gain.partition(":")
    if name == "table":
        table = {float(key): float(value) for key, value in (pair.split("=") for pair in argument.split(","))}
        return table.__getitem__  # a relevance that is not listed is a KeyError
    named: dict[str, Callable[[float], float]] = {
        "exponential": lambda relevance: 2.0**relevance - 1.0,
        "linear": lambda relevance: relevance,
        "power": lambda relevance: math.copysign(math.pow(abs(relevance), float(argument)), relevance),
    }
    return named[name]


def parse_discount(discount: str | Callable[[int], float]) -> Callable[[int], float]:
    """Parse `log2`, `ln`, `log:b`, `reciprocal` or `table:1,0.5` (rank 1 first); return a callable unchanged."""
    if callable(discount):
        return discount
    name, _, argument = discount.partition(":")
    if name == "table":
        table = dict(enumerate((float(value) for value in argument.split(",")), start=1))
        return table.__getitem__  # a rank beyond the table is a KeyError
    named: dict[str, Callable[[int], float]] = {
        "log2": lambda rank: 1.0 / math.log2(rank + 1),
        "ln": lambda rank: 1.0 / math.log(rank + 1),
        "log": lambda rank: math.log(float(argument)) / math.log(rank + 1),
        "reciprocal": lambda rank: 1.0 / rank,
    }
    return named[name]


def build_ranking(
    relevances: Sequence[float | None], *, unretrieved: Sequence[float] = (), query: str = "q"
) -> list[Row]:
    """Build items "0", "1", ... in rank order, without ties; then judged items that were not retrieved."""
    listed = [Row(query=query, item=f"{n}", score=-n, relevance=rel) for n, rel in enumerate(relevances)]
    return listed + [Row(query=query, item=f"u{n}", relevance=rel) for n, rel in enumerate(unretrieved)]


def build_rows(scores: Sequence[float], relevances: Sequence[float | None]) -> list[Row]:
    """Build items "0", "1", ... of one query, in input order."""
    pairs = enumerate(zip(scores, relevances, strict=True))
    return [Row(query="q", item=f"{n}", score=s, relevance=rel, position=n) for n, (s, rel) in pairs]


def evaluate_single(rows: Sequence[Row], choices: Choices, k: Cutoff) -> Result:
    """Return the result at one cutoff of rows that have one query."""
    (result,) = evaluate(rows, choices, [k]).values()
    return result
