"""Seeded rankings with ties, gaps and awkward values, as rows of the oracle. A seed always gives the same rows."""

from __future__ import annotations

import csv
import gzip
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from support.oracle import Choices, Row

UNJUDGED_QUERY = "unjudged"
MISSING_QUERY = "missing"
NOTHING_RELEVANT_QUERY = "nothing relevant"
GIANT_QUERY = "giant"
SPECIAL_QUERIES = (UNJUDGED_QUERY, MISSING_QUERY, NOTHING_RELEVANT_QUERY, GIANT_QUERY)

AWKWARD_PREFIXES = (
    "",
    "a",
    "aa",
    "A",
    "Z",
    "9",
    "10",
    " ",
    "-",
    "é",
    "e\u0301",
    "ß",
    "中",
    "\uffee",
    "\U0001f600",
)
"""UTF-8 bytes order the last two one way, UTF-16 units (as in Java) the other; one accent has two forms."""

TIED_SCORES = (-1.0, -0.0, 0.0, 0.5, 2.0)
EXTREME_SCORES = (
    -1e300,
    -1e30,
    -5e-324,
    -0.0,
    0.0,
    5e-324,
    1e-50,
    0.1,
    0.1 + 1e-12,
    16777216.0,
    16777217.0,
    1e300,
)
"""Of these single precision merges the tiny with zero, 0.1 with its neighbour, 2^24 with 2^24 + 1."""

GRADES = (0.0, 0.0, 0.0, 1.0, 1.0, 2.0, 3.0, 4.0)
NEGATIVE_GRADES = (-2.0, -1.0)
FRACTIONAL_GRADES = (0.25, 0.5, 1.5, 2.75)


def random_rows(
    seed: int,
    *,
    n_queries: int = 12,
    max_items: int = 12,
    ties: bool = True,
    extreme_scores: bool = False,
    nulls: bool = True,
    negatives: bool = False,
    fractional: bool = False,
    unretrieved: bool = True,
    integer_items: bool = False,
    special: bool = True,
) -> list[Row]:
    """Generate `n_queries` ordinary queries and, if `special`, SPECIAL_QUERIES; rows are shuffled.

    Parameters
    ----------
    max_items
        An ordinary query has 1 to `max_items` rows, so that most lists are shorter than a large cutoff.
    ties
        The scores come from a few values, -0.0 among them; otherwise those of a query all differ, in single
        precision too.
    extreme_scores
        The scores come from huge, tiny and nearly equal values, also tied, whatever `ties` says.
    nulls, unretrieved
        Some retrieved rows have no relevance; some judged rows have no score.
    negatives, fractional
        Some relevances are below zero; some are fractions. All are exact in binary.
    integer_items
        Item ids are integers, of which text order is not value order; otherwise awkward strings.
    special
        Adds a query without any judgment, one that is judged but not retrieved, one with nothing relevant and
        one that has as many rows as all other queries together.
    """
    random_ = random.Random(seed)
    grades = GRADES + NEGATIVE_GRADES * negatives + FRACTIONAL_GRADES * fractional

    def query(name: str, n_rows: int) -> list[Row]:
        scores = _scores(random_, n_rows, ties=ties, extreme=extreme_scores)
        items = _items(random_, n_rows, integer=integer_items)
        query_grades = [random_.choice(grades) for _ in range(n_rows)]
        positions = random_.sample(range(10 * n_rows), n_rows)
        full = [
            Row(query=name, item=item, score=score, relevance=relevance, position=position)
            for item, score, relevance, position in zip(items, scores, query_grades, positions, strict=True)
        ]
        return [_with_gaps(row, random_.random(), nulls=nulls, unretrieved=unretrieved) for row in full]

    rows = [row for n in range(n_queries) for row in query(f"q{n}", random_.randint(1, max_items))]
    if special:
        n_rows = max(2, max_items // 2)
        rows += _without_judgments(query(UNJUDGED_QUERY, n_rows))
        rows += _without_scores(query(MISSING_QUERY, n_rows))
        rows += _irrelevant(query(NOTHING_RELEVANT_QUERY, n_rows), negatives)
        rows += query(GIANT_QUERY, len(rows))
    random_.shuffle(rows)
    return rows


def _with_gaps(row: Row, fate: float, *, nulls: bool, unretrieved: bool) -> Row:
    """Drop the score of one row in five and the relevance of another one in five, never both."""
    if unretrieved and fate < 0.2:
        return replace(row, score=None)
    return replace(row, relevance=None) if nulls and fate > 0.8 else row


def _scores(random_: random.Random, n: int, *, ties: bool, extreme: bool) -> list[float]:
    if extreme:
        return [random_.choice(EXTREME_SCORES) for _ in range(n)]
    if ties:
        return [random_.choice(TIED_SCORES) for _ in range(n)]
    return [value / 64.0 for value in random_.sample(range(-32 * n, 32 * n), n)]


def _items(random_: random.Random, n: int, *, integer: bool) -> list[str | int]:
    """Generate distinct ids. As text all numbers have one length, so no prefix makes two ids equal."""
    numbers = random_.sample(range(-20 * n, 20 * n), n)
    if integer:
        return list(numbers)
    return [f"{random_.choice(AWKWARD_PREFIXES)}.{number + 10_000_000:08d}" for number in numbers]


def _without_judgments(rows: list[Row]) -> list[Row]:
    return [replace(row, score=0.5 if row.score is None else row.score, relevance=None) for row in rows]


def _without_scores(rows: list[Row]) -> list[Row]:
    return [replace(row, score=None, relevance=row.relevance or 0.0) for row in rows]


def _irrelevant(rows: list[Row], negatives: bool) -> list[Row]:
    """Remove relevances above zero; the first row stays retrieved and judged."""
    first, *others = rows
    lowest = -1.0 if negatives else 0.0
    changed = [row if row.relevance is None else replace(row, relevance=lowest) for row in others]
    return [replace(first, score=first.score or 0.0, relevance=0.0), *changed]


DATA_SETS = ("trec_eval", "trec_eval_rel_level", "lightgbm_lambdarank", "esci_judgments")
CUTOFFS = (1, 3, 5, 10, 20, 100)

_LINEAR = Choices(gain="linear", negative="clip", missing_query="drop")
_EXPONENTIAL = replace(_LINEAR, gain="exponential")
_PYTREC_EVAL = replace(_LINEAR, ties="item_desc", score_precision="float32")
_SCIKIT_LEARN = replace(_LINEAR, ideal="retrieved")
_LIGHTGBM = Choices(ties="input_order", ideal="retrieved", no_relevant="one", missing_query="drop")
_XGBOOST = replace(_LIGHTGBM, score_precision="float32")

CHOICES_OF_TOOL: Mapping[str, Choices] = {
    "pytrec_eval": _PYTREC_EVAL,
    "pytrec_eval_rows_ideal": replace(_PYTREC_EVAL, ideal="retrieved"),
    "gdeval_exp_ndcg": replace(_EXPONENTIAL, ties="item_desc", no_relevant="skip"),
    "sklearn_avg_ties_rows_ideal": replace(_SCIKIT_LEARN, ties="expected"),
    "sklearn_ignore_ties_rows_ideal": replace(_SCIKIT_LEARN, ties="input_order"),
    "ranx_ndcg": replace(_LINEAR, ties="input_order"),
    "ranx_ndcg_burges": replace(_EXPONENTIAL, ties="input_order"),
    "lightgbm_metric": _LIGHTGBM,
    "xgboost_metric_exp": _XGBOOST,
    "xgboost_metric_exp_minus": replace(_XGBOOST, no_relevant="zero"),
    "xgboost_metric_linear": replace(_XGBOOST, gain="linear"),
}
"""By the name that the tool has in the files. The tie rule of those in TIES_UNSPECIFIED is arbitrary."""

TIES_UNSPECIFIED = ("sklearn_ignore_ties_rows_ideal", "ranx_ndcg", "ranx_ndcg_burges")
PRINTED_DECIMALS: Mapping[str, int] = {"gdeval_exp_ndcg": 5}


@dataclass(frozen=True, slots=True)
class SharedRankings:
    """One data set: runs, and values of tools."""

    rows: Mapping[str, list[Row]]  # by run
    per_query: Mapping[tuple[str, str, str, int], float]  # by (tool, run, query, k)
    means: Mapping[tuple[str, str, str, int], tuple[int, float]]  # (n_queries, mean) by (tool, run, over, k)


@cache
def load(folder: Path, name: str) -> SharedRankings:
    """Read the data set `name` of the shared data folder."""
    runs: dict[str, list[Row]] = {}
    for line in _lines(folder / name / "rows.csv.gz"):
        runs.setdefault(line["run"], []).append(_row(line))
    per_query = {
        (line["oracle"], line["run"], line["query_id"], int(line["k"])): float(line["ndcg"])
        for line in _lines(folder / name / "expected_per_query.csv.gz")
    }
    means = {
        (line["oracle"], line["run"], line["mean_over"], int(line["k"])): (
            int(line["n_queries"]),
            float(line["mean_ndcg"]),
        )
        for line in _lines(folder / name / "expected_means.csv")
    }
    return SharedRankings(runs, per_query, means)


def choose_for_mean(tool: str, mean_over: str) -> Choices:
    """Return the choices behind a mean: those of the tool, changed for odd queries as `mean_over` says."""
    choices = choose_for_reference(tool) if tool.startswith("ref_") else CHOICES_OF_TOOL[tool]
    if "missing = 0" in mean_over:
        choices = replace(choices, missing_query="zero")
    for words, policy in (("no relevant = 1", "one"), ("no relevant = 0", "zero"), ("skip others", "skip")):
        if words in mean_over:
            choices = replace(choices, no_relevant=policy)
    return choices


def choose_for_reference(name: str) -> Choices:
    """Return the choices behind `ref_<gain>_<ties>_<ideal>`, except for queries without a relevant item."""
    _, gain, *ties, ideal = name.split("_")
    return Choices(
        gain={"linear": "linear", "exp": "exponential"}[gain],
        ties={
            "docid_desc": "item_desc",
            "docid_asc": "item_asc",
            "stable": "input_order",
            "avg": "expected",
            "worst": "worst",
            "best": "best",
        }["_".join(ties)],
        ideal={"full": "judged", "rows": "retrieved"}[ideal],
        negative="clip",
        missing_query="drop",
    )


def find_queries_without_ties(rows: Iterable[Row], k: int) -> set[str]:
    """Return the queries without a tie that affects the first `k` ranks."""
    scores: dict[str, list[float]] = {}
    for row in rows:
        if row.score is not None:
            scores.setdefault(str(row.query), []).append(row.score)
    first = {query: sorted(query_scores, reverse=True)[: k + 1] for query, query_scores in scores.items()}
    return {query for query, query_scores in first.items() if len(set(query_scores)) == len(query_scores)}


def _row(line: Mapping[str, str]) -> Row:
    return Row(
        query=line["query_id"],
        item=line["doc_id"],
        score=float(line["score"]) if line["score"] else None,
        relevance=float(line["relevance"]) if line["relevance"] else None,
        position=int(line["pos"]) if line["pos"] else 0,
    )


def _lines(path: Path) -> Iterator[dict[str, str]]:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)
