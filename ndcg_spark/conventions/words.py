"""Conventions in sentences, for people who did not choose them."""

from __future__ import annotations

from ndcg_spark.conventions.convention import Convention

_GAINS = {
    "exponential": "2 to the power of the relevance, minus 1",
    "linear": "the relevance itself",
    "binary": "1 for a relevance above 0, else 0",
}
_DISCOUNTS = {
    "log2": "1 / log2(rank + 1)",
    "ln": "1 / ln(rank + 1)",
    "reciprocal": "1 / rank",
}
_WORDS: dict[str, tuple[str, dict[str, str]]] = {
    "ties": (
        "Items with equal scores",
        {
            "expected": "every order of them counts alike: the value is the mean over all orders",
            "item_asc": "are ordered by item, ascending",
            "item_desc": "are ordered by item, descending",
            "input_order": "keep the order of the input",
            "best": "are put in the order that is best for the ranker",
            "worst": "are put in the order that is worst for the ranker",
        },
    ),
    "score_precision": (
        "Scores are compared",
        {"double": "in double precision", "float32": "after rounding to 32 bits"},
    ),
    "ideal": (
        "The ideal list holds",
        {
            "judged": "all judged items of the query, retrieved or not",
            "retrieved": "only the judged items that were retrieved",
            "k_ones": "k items of relevance 1, whatever was judged",
            "as_many": "the best judged items, no more of them than are ranked",
            "unsorted": "the judged items in the order in which they were stored",
        },
    ),
    "unjudged": (
        "Items without a judgment",
        {"zero": "gain nothing", "condensed": "are removed before ranking", "error": "are refused among the first k"},
    ),
    "negative": (
        "Relevances below 0",
        {"keep": "cost", "clip": "count as 0", "error": "are bad rows"},
    ),
    "no_relevant": (
        "Queries with nothing relevant",
        {
            "zero": "count as 0",
            "one": "count as 1",
            "skip": "are left out of the mean",
            "error": "are refused",
        },
    ),
    "missing_query": (
        "Judged queries that the ranker did not answer",
        {"zero": "count as 0", "drop": "are left out"},
    ),
    "unjudged_query": (
        "Queries without any judgment",
        {"drop": "are left out", "zero": "count as 0"},
    ),
    "duplicates": (
        "An item that comes twice in a query",
        {
            "error": "is refused",
            "best": "counts once, with its best score",
            "first": "counts once, where it is first",
        },
    ),
}


def in_words(convention: Convention) -> list[tuple[str, str]]:
    """Spell a convention out: what each choice is about, and what was chosen.

    Examples
    --------
    >>> in_words(Convention())[0]
    ('Gain of an item', '2 to the power of the relevance, minus 1')
    """
    found = [
        ("Gain of an item", _gain(convention.gain)),
        ("Discount of a rank", _discount(convention.discount)),
    ]
    found += [(title, words[getattr(convention, choice)]) for choice, (title, words) in _WORDS.items()]
    padded = convention.pad_to_k
    short = "are left short" if padded is None else f"are filled up with items of relevance {padded:g}"
    return [*found, ("Lists shorter than k", short)]


def _gain(gain: object) -> str:
    if not isinstance(gain, str):
        return f"a function of the relevance, {getattr(gain, '__qualname__', gain)}"
    name, _, rest = gain.partition(":")
    if name == "power":
        return f"the relevance to the power of {rest}"
    if name == "table":
        return f"by a table of relevance and gain: {rest}"
    return _GAINS[name] + (f"; 0 for relevances below {rest}" if rest else "")


def _discount(discount: object) -> str:
    if not isinstance(discount, str):
        return f"a function of the rank, {getattr(discount, '__qualname__', discount)}"
    name, _, rest = discount.partition(":")
    if name == "log":
        return f"1 / log(rank + 1), to base {rest}"
    if name == "table":
        return f"by a table, from rank 1 on: {rest}"
    return _DISCOUNTS[name]
