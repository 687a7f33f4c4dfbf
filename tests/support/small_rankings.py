"""Rankings of one query that a test writes out by hand, as rows of the oracle."""

from __future__ import annotations

from collections.abc import Sequence

from support.oracle import Choices, Cutoff, Result, Row, evaluate


def ranked(relevances: Sequence[float | None], *, unretrieved: Sequence[float] = (), query: str = "q") -> list[Row]:
    """Items "0", "1", ... in rank order, without ties; then judged items that were not retrieved."""
    listed = [Row(query=query, item=f"{n}", score=-n, relevance=rel) for n, rel in enumerate(relevances)]
    return listed + [Row(query=query, item=f"u{n}", relevance=rel) for n, rel in enumerate(unretrieved)]


def scored(scores: Sequence[float], relevances: Sequence[float | None]) -> list[Row]:
    """Items "0", "1", ... of one query, in the order of the input."""
    pairs = enumerate(zip(scores, relevances, strict=True))
    return [Row(query="q", item=f"{n}", score=s, relevance=rel, position=n) for n, (s, rel) in pairs]


def only(rows: Sequence[Row], choices: Choices, k: Cutoff) -> Result:
    """The result of the one query of `rows` at one cutoff."""
    (result,) = evaluate(rows, choices, [k]).values()
    return result
