"""Which preset is held against which tool, on which rankings, and how the two are compared."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial

from ndcg_spark.conventions import Convention
from scripts.checks.peers import definitions as written
from scripts.checks.peers import tools
from scripts.checks.peers.data import (
    ANY_GRADE,
    FRACTIONAL,
    GRADES,
    NEGATIVE,
    Cutoff,
    Queries,
    Row,
    Shape,
    SharedSet,
    Values,
    labels,
    random_queries,
    round_score,
    score,
)
from scripts.checks.peers.tools import Tool, UnavailableError

EXACT = 1e-12
SINGLE = 1e-6
FIVE_DECIMALS = 0.5e-5 + 1e-12
CUTOFFS: tuple[Cutoff, ...] = (1, 2, 3, 5, 10, None)
NUMBERS: tuple[Cutoff, ...] = (1, 2, 3, 5, 10)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One line of the table. `skipped` is the reason why nothing was compared."""

    convention: str
    data: str
    tool: str
    values: int = 0
    worst: float = 0.0
    tolerance: float = EXACT
    skipped: str = ""

    @property
    def is_off(self) -> bool:
        return not self.skipped and not (self.values and self.worst <= self.tolerance)


# --- Rankings that a tool can be asked about


def anything(rows: Sequence[Row]) -> bool:
    return True


def is_survived(rows: Sequence[Row]) -> bool:
    """pytrec_eval reads beyond its memory, and often crashes, when no label of a query reaches 0."""
    return not labels(rows) or max(labels(rows)) >= 0


def has_list_and_label(rows: Sequence[Row]) -> bool:
    """A tool that gets a label with every score knows neither missing queries nor queries without judgments."""
    return any(row.score is not None for row in rows) and any(row.relevance is not None for row in rows)


def has_no_gap_below_zero(rows: Sequence[Row]) -> bool:
    """An unjudged item is one of label 0 to a tool: in its ideal list that ranks before a negative label."""
    has_gap = any(row.relevance is None for row in rows if row.score is not None)
    return has_list_and_label(rows) and not (has_gap and min(labels(rows)) < 0)


def has_two_items(rows: Sequence[Row]) -> bool:
    """scikit-learn refuses lists of one item."""
    return has_list_and_label(rows) and sum(row.score is not None for row in rows) > 1


def has_truth(rows: Sequence[Row]) -> bool:
    """A query whose judged items are all irrelevant has no row in a table of relevant items."""
    return bool(written.truth(rows)) or not labels(rows)


# --- The comparisons


@dataclass(frozen=True, slots=True)
class Comparison:
    """A convention against a tool.

    `domain` tells the queries that the tool can be asked about; `optional` is a tool that is used where it happens
    to be installed. The labels a tool takes: no larger than `largest`, and negative only where `shape` has them.
    """

    convention: str
    tool: Tool
    shape: Shape
    domain: Callable[[Sequence[Row]], bool] = anything
    _: KW_ONLY
    cutoffs: tuple[Cutoff, ...] = CUTOFFS
    tolerance: float = EXACT
    largest: float = 30.0
    optional: bool = False

    def takes(self, data: SharedSet) -> bool:
        compared = [rows for run in data.runs.values() for rows in run.values() if self.domain(rows)]
        grades = {relevance for rows in compared for relevance in labels(rows)}
        lowest = min(0.0, *self.shape.grades)
        return bool(grades) and max(grades) <= self.largest and (lowest < 0 or min(grades) >= 0)


def definition(function: written.Definition, of: str) -> Tool:
    return Tool(call=partial(written.compute_values, function), beside=f"definition of {of}")


_WHOLE, _SIGNED, _PARTS = Shape(grades=GRADES), Shape(grades=NEGATIVE), Shape(grades=FRACTIONAL)
_ANY, _UNTIED = Shape(grades=ANY_GRADE), Shape(grades=NEGATIVE, ties=False)
_UNTIED_PARTS = Shape(grades=FRACTIONAL, ties=False)
_INF = math.inf
_SINGLE_SCORES = Shape(grades=NEGATIVE, exact_in_float32=True)
_LISTED = has_list_and_label

COMPARISONS: tuple[Comparison, ...] = (
    Comparison("default", definition(written.default, "NDCG, 2^rel - 1"), _ANY),
    Comparison("linear", definition(written.linear, "NDCG, rel"), _ANY, largest=_INF),
    Comparison("trec_eval", definition(written.trec_eval, "trec_eval 10"), _SIGNED, largest=_INF),
    # Where single precision merges no scores, trec_eval 10 and the version in pytrec_eval are one.
    Comparison("trec_eval", tools.PYTREC_EVAL, _SINGLE_SCORES, is_survived, largest=_INF),
    Comparison("trec_eval_9", tools.PYTREC_EVAL, _SIGNED, is_survived, largest=_INF),
    # With -J trec_eval also drops items with a negative label (its issue 29), which to us are judged.
    Comparison("trec_eval_9;unjudged=condensed", tools.JUDGED_ONLY, _WHOLE, largest=_INF),
    Comparison("ir_measures", tools.IR_MEASURES, _SIGNED, is_survived, largest=_INF),
    Comparison("gdeval", tools.GDEVAL, _SIGNED, tolerance=FIVE_DECIMALS, largest=4),
    Comparison("sklearn", tools.SCIKIT_LEARN, _PARTS, has_two_items, largest=_INF),
    Comparison("lightgbm", tools.LIGHTGBM, _WHOLE, _LISTED),
    Comparison("xgboost", tools.XGBOOST, _WHOLE, _LISTED),
    Comparison("xgboost;gain=linear", tools.XGBOOST_LINEAR, _PARTS, _LISTED, largest=_INF),
    Comparison("xgboost_minus", tools.XGBOOST_MINUS, _WHOLE, _LISTED),
    Comparison("catboost", definition(written.catboost, "CatBoost 1.2"), _ANY, has_no_gap_below_zero, largest=_INF),
    Comparison("catboost", tools.CATBOOST, _ANY, has_no_gap_below_zero, largest=_INF, optional=True),
    Comparison("catboost_exp", definition(written.catboost_exp, "CatBoost 1.2"), _ANY, has_no_gap_below_zero),
    Comparison("catboost_exp", tools.CATBOOST_EXP, _ANY, has_no_gap_below_zero, optional=True),
    Comparison("mllib", definition(written.mllib, "Spark 4 MLlib"), _PARTS),
    Comparison("mllib_sorted", definition(written.mllib_sorted, "Spark 4 MLlib, labels sorted"), _PARTS),
    Comparison("mllib_binary", definition(written.mllib_binary, "Spark 4 MLlib"), _ANY, largest=_INF),
    Comparison(
        "recommenders_spark",
        definition(written.recommenders_spark, "recommenders 1.2"),
        _ANY,
        has_truth,
        largest=_INF,
    ),
    Comparison(
        "recommenders_pandas",
        definition(written.recommenders_pandas, "recommenders 1.2"),
        _UNTIED_PARTS,
        largest=_INF,
    ),
    Comparison("ranx", tools.RANX, _UNTIED, largest=_INF),
    Comparison("ranx_burges", tools.RANX_BURGES, _UNTIED),
    Comparison(
        "torchmetrics",
        definition(written.torchmetrics, "torchmetrics 1.9"),
        _PARTS,
        _LISTED,
        tolerance=SINGLE,
        largest=_INF,
    ),
    Comparison("talr", definition(written.talr, "TALR"), _PARTS, _LISTED, cutoffs=(None,)),
    Comparison("replay", definition(written.replay, "RePlay 0.22"), _ANY, has_truth, largest=_INF),
    Comparison(
        "rectools", definition(written.rectools, "RecTools 0.19"), _ANY, has_truth, cutoffs=NUMBERS, largest=_INF
    ),
    Comparison("mlflow", definition(written.mlflow, "MLflow 3.18"), _ANY, largest=_INF),
    Comparison("evidently", definition(written.evidently, "Evidently 0.7"), _UNTIED_PARTS, _LISTED, largest=_INF),
)

STORED: Mapping[str, tuple[str, float]] = {
    "pytrec_eval": ("trec_eval_9", EXACT),
    "pytrec_eval_rows_ideal": ("trec_eval_9;ideal=retrieved", EXACT),
    "gdeval_exp_ndcg": ("gdeval", FIVE_DECIMALS),
    # The makers of the files clipped labels below 0, and asked about the queries of the run alone.
    "sklearn_avg_ties_rows_ideal": ("sklearn;negative=clip;missing_query=drop", EXACT),
    "ranx_ndcg": ("ranx;missing_query=drop", EXACT),
    "ranx_ndcg_burges": ("ranx_burges;missing_query=drop", EXACT),
}
"""The convention of each tool whose values per query are stored with the shared data, by its name there."""


# --- Comparing


def against_random(comparison: Comparison, seeds: Sequence[int], *, n_queries: int = 24) -> Outcome:
    """Compare on seeded random rankings."""
    batches = (random_queries(seed, comparison.shape, n_queries) for seed in seeds)
    return _outcome(comparison, f"random, {len(seeds)} seeds", batches)


def against_shared(comparison: Comparison, data: SharedSet) -> Outcome:
    """Compare on a shared data set, the tool being called now."""
    return _outcome(comparison, data.name, iter(data.runs.values()))


def _outcome(comparison: Comparison, name: str, batches: Iterator[Queries]) -> Outcome:
    convention = Convention.parse(comparison.convention)

    def differences() -> Iterator[float]:
        for queries in batches:
            compared = {query: rows for query, rows in queries.items() if comparison.domain(rows)}
            if not compared:
                continue
            theirs = comparison.tool.call(compared, comparison.cutoffs)
            ours = score(compared, convention, comparison.cutoffs)
            if not comparison.shape.ties:
                ours, theirs = without_ties(ours, compared), without_ties(theirs, compared)
            yield from compute_differences(ours, theirs)

    return build_outcome(comparison.convention, name, comparison.tool.title, differences(), comparison.tolerance)


def build_outcome(
    convention: str, data: str, tool: str, differences: Iterable[float], tolerance: float = EXACT
) -> Outcome:
    """Return a line about differences of values, or the reason why nothing was compared."""
    line = partial(Outcome, convention=convention, data=data, tool=tool, tolerance=tolerance)
    try:
        all_differences = list(differences)
    except UnavailableError as error:
        return line(skipped=str(error))
    return line(values=len(all_differences), worst=max(all_differences, default=0.0))


def against_stored(data: SharedSet, tool: str, run: str) -> Outcome:
    """Compare with the values that a tool gave when the data set was made."""
    convention, tolerance = STORED[tool]
    theirs, queries = data.expected[tool, run], data.runs[run]
    cutoffs = sorted({k for _, k in theirs if k is not None})
    ours = score(queries, Convention.parse(convention), cutoffs)
    if tool.startswith("ranx"):
        ours, theirs = without_ties(ours, queries), without_ties(theirs, queries)
    return build_outcome(
        convention, f"{data.name}, {run}", f"{tool}, stored", compute_differences(ours, theirs), tolerance
    )


def compute_differences(ours: Values, theirs: Values) -> list[float]:
    """Return differences of queries; infinite if only one side has a value."""
    return [abs(ours[key] - value) if key in ours else math.inf for key, value in theirs.items()] + [
        math.inf for key in ours if key not in theirs
    ]


def without_ties(values: Values, queries: Queries) -> Values:
    """Values of lists in which no tie reaches the first k ranks, as some tools order tied items as they like."""
    scores = {
        query: sorted((round_score(row) for row in rows if row.score is not None), reverse=True)
        for query, rows in queries.items()
    }

    def is_untied(query: str, k: Cutoff) -> bool:
        first = scores[query] if k is None else scores[query][: k + 1]
        return len(set(first)) == len(first)

    return {key: value for key, value in values.items() if is_untied(*key)}
