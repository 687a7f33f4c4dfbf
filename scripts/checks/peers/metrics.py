"""Metrics beside NDCG against the tools that give them, query by query."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from ndcg_spark.conventions import Convention
from scripts.checks.peers.comparisons import EXACT, Outcome, build_outcome, is_survived
from scripts.checks.peers.data import NEGATIVE, Queries, Shape, SharedSet, metric_values, random_queries
from scripts.checks.peers.tools import run_ir_measure, run_pytrec_eval_measure

TREC_EVAL = {
    "ap": "map", "ap@5": "map_cut_5", "ap@100": "map_cut_100", "p@5": "P_5", "p@100": "P_100", "r@5": "recall_5",
    "r@100": "recall_100", "rr": "recip_rank", "success@1": "success_1", "success@10": "success_10",
    "rprec": "Rprec", "bpref": "bpref",
}  # fmt: skip
"""Our name and that of trec_eval."""
IR_MEASURES = {
    "AP(rel=2)@100": EXACT, "P(rel=2)@5": EXACT, "R(rel=2)@10": EXACT, "RR(rel=3)": EXACT,
    "Rprec(rel=2)": EXACT, "Bpref(rel=2)": EXACT, "Success(rel=2)@5": EXACT, "Judged@5": EXACT,
    "ERR@5": 5e-6 + EXACT, "ERR@20": 5e-6 + EXACT,
}  # fmt: skip
"""Names that both read, and how far apart values may be: gdeval prints five decimals."""
BY_OTHERS = {"ERR": "gdeval", "Judged": "ir_measures;ties=item_asc;score_precision=double"}
"""Conventions of those that ir_measures does not leave to trec_eval."""
WHOLE_GRADES = tuple(grade for grade in NEGATIVE if grade >= -1)
Ask = Callable[[Queries], dict[str, float]]


def metric_outcomes(seeds: Sequence[int], sets: Iterable[SharedSet]) -> Iterator[Outcome]:
    """Compare on random rankings with ties, unjudged, negative and missing items, and on the shared sets."""
    shape = Shape(grades=WHOLE_GRADES)
    batches = [("random", [random_queries(seed, shape) for seed in seeds])]
    batches += [(data.name, list(data.runs.values())) for data in sets if data.name.startswith("trec_eval")]
    for name, values in batches:
        for ours, theirs in TREC_EVAL.items():
            yield _outcome("trec_eval_9", ours, name, f"pytrec_eval {theirs}", _trec_eval(theirs), values, EXACT)
        for measure, tolerance in IR_MEASURES.items():
            convention = BY_OTHERS.get(measure.partition("@")[0], "ir_measures")
            yield _outcome(convention, measure, name, f"ir_measures {measure}", _ir(measure), values, tolerance)


def _trec_eval(measure: str) -> Ask:
    return lambda queries: run_pytrec_eval_measure(queries, measure)


def _ir(measure: str) -> Ask:
    return lambda queries: run_ir_measure(queries, measure)


def _outcome(
    convention: str, metric: str, data: str, tool: str, ask: Ask, batches: Sequence[Queries], tolerance: float
) -> Outcome:
    """Queries that a tool leaves out are not compared: which these are is the convention's business."""

    def differences() -> Iterator[float]:
        for queries in batches:
            compared = {query: rows for query, rows in queries.items() if is_survived(rows)}
            theirs = ask(compared)
            ours = metric_values(compared, Convention.parse(convention), metric)
            yield from (abs(value - ours[query]) for query, value in theirs.items() if query in ours)

    return build_outcome(convention, f"{data}, {metric}", tool, differences(), tolerance)
