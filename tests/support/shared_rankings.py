"""The shared data sets as rows of the oracle, with the values that outside tools computed on them.

Each tool is named together with the choices it makes, so that a test can say which tool it agrees with.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from support.oracle import Choices, Row

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
    """One data set: what was ranked, and what the tools say about it."""

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


def choices_of_mean(tool: str, mean_over: str) -> Choices:
    """The choices behind a mean: those of the tool, changed by what `mean_over` says about odd queries."""
    choices = choices_of_reference(tool) if tool.startswith("ref_") else CHOICES_OF_TOOL[tool]
    if "missing = 0" in mean_over:
        choices = replace(choices, missing_query="zero")
    for words, policy in (("no relevant = 1", "one"), ("no relevant = 0", "zero"), ("skip others", "skip")):
        if words in mean_over:
            choices = replace(choices, no_relevant=policy)
    return choices


def choices_of_reference(name: str) -> Choices:
    """The choices behind `ref_<gain>_<ties>_<ideal>`, but for its queries without a relevant item."""
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


def queries_without_ties(rows: Iterable[Row], k: int) -> set[str]:
    """The queries in which no tie reaches one of the first `k` ranks."""
    scores: dict[str, list[float]] = {}
    for row in rows:
        if row.score is not None:
            scores.setdefault(str(row.query), []).append(row.score)
    first = {query: sorted(its, reverse=True)[: k + 1] for query, its in scores.items()}
    return {query for query, its in first.items() if len(set(its)) == len(its)}


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
