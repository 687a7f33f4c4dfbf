"""Rankings as the Arrow batches that workers read, built from rows of the oracle by plain loops."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import pyarrow as pa
import pytest

from ndcg_spark.conventions import Convention
from ndcg_spark.conventions.forms import discount_table
from ndcg_spark.core.labels import ASKED
from ndcg_spark.evaluation.settings import Columns, EvaluationSettings
from ndcg_spark.evaluation.tasks.partial_sums import GROUP_COUNTS, GROUP_KEYS, PARTIAL_SCHEMA, compute_means
from ndcg_spark.evaluation.tasks.scoring import ScoringTask, score_rankings
from ndcg_spark.metrics import MetricAt
from ndcg_spark.metrics.normalized_gain import GAINS
from support.oracle import Choices, Cutoff, Row, group_by_query, parse_gain, to_float32

LISTS = pa.list_(pa.float64())
KEYS = ("run", "query_id")
COUNTED = ("n_items", "n_judged", "n_relevant")


def build_convention(choices: Choices) -> Convention:
    """Return the convention with the same choices; the oracle has no `error` and no duplicates."""
    return Convention(**{field.name: getattr(choices, field.name) for field in fields(Choices)})


def build_rankings(
    rows: Sequence[Row], choices: Choices, *, max_k: Cutoff = None, ranks: bool = False, seed: int = 0
) -> pa.RecordBatch:
    """Build one row per query: relevances by rank, judged relevances in random order, counts.

    `max_k` cuts both lists, the ideal one after putting the largest gains first. What is empty (null or [])
    is chosen at random. `ranks` adds the 1-based rank of each item, without gaps.
    """
    random_ = random.Random(seed)
    queries = []
    for query, query_rows in group_by_query(rows).items():
        retrieved = [row for row in query_rows if row.score is not None]
        judged = [row for row in query_rows if row.relevance is not None]
        listed = sort_by_rank(query_rows, choices)
        if choices.unjudged == "condensed":
            listed = [row for row in listed if row.relevance is not None]
        ideal = [row.relevance for row in (retrieved if choices.ideal == "retrieved" else judged)]
        ideal = [relevance for relevance in ideal if relevance is not None]
        ranked = [row.relevance for row in listed]
        random_.shuffle(ideal)
        if max_k is not None:
            ranked = ranked[:max_k]
            ideal = sorted(ideal, key=lambda relevance: compute_gain(relevance, choices), reverse=True)[:max_k]
        queries.append(
            {
                "query_id": query,
                "ranked": ranked or random_.choice([None, []]),
                "ideal": ideal or random_.choice([None, []]),
                "n_items": len(retrieved),
                "n_judged": len(judged),
                "n_relevant": sum(1 for row in judged if row.relevance > 0),
                **({"ranks": list(range(1, len(ranked) + 1)) or None} if ranks else {}),
            }
        )
    return build_batch(queries)


def sort_by_rank(rows: Iterable[Row], choices: Choices) -> list[Row]:
    """Return retrieved rows, best score first, ties broken by the rule of `choices`."""
    rounded = to_float32 if choices.score_precision == "float32" else float
    retrieved = [row for row in rows if row.score is not None]
    if choices.ties == "input_order":
        ordered = sorted(retrieved, key=lambda row: row.position)
    else:
        ordered = sorted(retrieved, key=lambda row: row.item.encode() if isinstance(row.item, str) else row.item)
    if choices.ties == "item_desc":
        ordered.reverse()
    return sorted(ordered, key=lambda row: -rounded(row.score))


def compute_gain(relevance: float, choices: Choices) -> float:
    level = max(0.0, relevance) if choices.negative == "clip" else relevance
    return float(parse_gain(choices.gain)(level))


def build_batch(queries: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    """Build rankings from dictionaries; missing counts are computed from the lists."""
    filled = []
    for number, query in enumerate(queries):
        judged = [relevance for relevance in query["ideal"] or [] if relevance is not None]
        counts = (len(query["ranked"] or []), len(judged), sum(1 for relevance in judged if relevance > 0))
        filled.append({"run": "", "query_id": f"q{number}", **dict(zip(COUNTED, counts, strict=True)), **query})
    types = {
        "ranked": LISTS,
        "ideal": LISTS,
        "ranks": pa.list_(pa.int32()),
        "run": pa.string(),
        "weight": pa.float64(),
    }
    names = list(filled[0]) if filled else [*KEYS, *COUNTED, "ranked", "ideal"]
    types |= dict.fromkeys(COUNTED, pa.int64())
    arrays = [pa.array([query[name] for query in filled], types.get(name)) for name in names]
    return pa.RecordBatch.from_arrays(arrays, names=names)


def build_task(convention: Convention, cutoffs: tuple[Cutoff, ...], *, carried: tuple[str, ...] = ()) -> ScoringTask:
    """Build the task that the driver sends to workers."""
    max_k = cutoffs[-1]
    return ScoringTask(
        convention=convention,
        cutoffs=cutoffs,
        keys=KEYS,
        carried=(*COUNTED, *carried),
        metrics=tuple(MetricAt(metric, k) for k in cutoffs for metric in GAINS),
        columns=("dcg", "idcg", "ndcg"),
        discount=None if max_k is None else discount_table(convention.discount, max_k),
    )


def score_batches(batches: Sequence[pa.RecordBatch], task: ScoringTask) -> dict[tuple[str, Cutoff], dict[str, Any]]:
    """Score batches; return rows by (query, k)."""
    rows = [row for result in score_rankings(iter(batches), task) for row in result.to_pylist()]
    by_key = {(row["query_id"], row["k"]): row for row in rows}
    assert len(by_key) == len(rows), "a (query, k) appears twice"
    return by_key


def slice_batch(batch: pa.RecordBatch, rows_per_batch: int) -> list[pa.RecordBatch]:
    """Slice a batch: slices share its buffers and have their own offsets."""
    return [batch.slice(at, rows_per_batch) for at in range(0, batch.num_rows, rows_per_batch)]


def assert_same(actual, expected):
    """Check that every (query, k) has the values of the oracle."""
    assert actual.keys() == expected.keys()
    for key, result in expected.items():
        row = actual[key]
        assert row["status"] == result.status, key
        assert [row[name] for name in COUNTED] == [getattr(result, name) for name in COUNTED], key
        for metric in ("dcg", "idcg", "ndcg"):
            value = getattr(result, metric)
            assert row[metric] == (value if value is None else pytest.approx(value, rel=1e-12, abs=1e-12)), (
                key,
                metric,
            )


GOOD = {"run": "a", "query_id": "q1", "item_id": "x", "score": 1.0, "rank": 1.0, "relevance": 2.0, "w": 1.0}
SCHEMA = (
    "run string, query_id string, item_id string, score double, rank double, relevance double, w double, place int"
)
SCORED = Columns(run="run", weight="w")
BY_RANK = Columns(run="run", weight="w", rank="rank")
ERROR = Convention(negative="error")
TABLE = Convention(gain="table:0=0,1=1,2=3")
NAN, INF = math.nan, math.inf


@dataclass(frozen=True)
class BadRow:
    """A valid row with one change that makes it bad."""

    reason: str
    cells: dict[str, object]
    columns: Columns = SCORED
    convention: Convention = field(default_factory=Convention)

    @property
    def settings(self) -> EvaluationSettings:
        return EvaluationSettings(columns=self.columns, convention=self.convention, cutoffs=(1, 3))


BAD_ROWS = {
    "null query": BadRow("null_query", {"query_id": None}),
    "null run": BadRow("null_run", {"run": None}),
    "null item": BadRow("null_item", {"item_id": None}),
    "null score": BadRow("null_score", {"score": None}),
    "NaN score": BadRow("nan_score", {"score": NAN}),
    "infinite score": BadRow("infinite_score", {"score": INF}),
    "minus infinite score": BadRow("infinite_score", {"score": -INF}),
    "null rank": BadRow("null_rank", {"rank": None}, BY_RANK),
    "NaN rank": BadRow("null_rank", {"rank": NAN}, BY_RANK),
    "rank 0": BadRow("rank_below_1", {"rank": 0.0}, BY_RANK),
    "rank -1": BadRow("rank_below_1", {"rank": -1.0}, BY_RANK),
    "rank 1.5": BadRow("rank_not_whole", {"rank": 1.5}, BY_RANK),
    "infinite rank": BadRow("rank_too_large", {"rank": INF}, BY_RANK),
    "NaN relevance": BadRow("nan_relevance", {"relevance": NAN}),
    "infinite relevance": BadRow("infinite_relevance", {"relevance": INF}),
    "minus infinite relevance": BadRow("infinite_relevance", {"relevance": -INF}),
    "gain overflow": BadRow("gain_overflow", {"relevance": 1024.0}),
    "level without gain": BadRow("level_without_gain", {"relevance": 1.5}, convention=TABLE),
    "negative relevance": BadRow("negative_relevance", {"relevance": -1.0}, convention=ERROR),
    "negative weight": BadRow("bad_weight", {"w": -0.5}),
    "null weight": BadRow("bad_weight", {"w": None}),
    "NaN weight": BadRow("bad_weight", {"w": NAN}),
    "infinite weight": BadRow("bad_weight", {"w": INF}),
}


def summarize_rows(rows: Iterable[dict[str, Any]], confidence: float = 0.95) -> dict[tuple, dict[str, Any]]:
    """Group rows of `PARTIAL_SCHEMA`, add their counts, finish their states; return results by group."""
    groups: dict[tuple, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in GROUP_KEYS), []).append(row)
    columns: dict[str, list[Any]] = {key: [group[at] for group in groups] for at, key in enumerate(GROUP_KEYS)}
    columns[ASKED] = [group_rows[0][ASKED] for group_rows in groups.values()]
    for name in GROUP_COUNTS:
        columns[name] = [sum(row[name] for row in group_rows) for group_rows in groups.values()]
    columns["states"] = [[row["state"] for row in group_rows] for group_rows in groups.values()]
    types = {"states": pa.list_(pa.list_(pa.int64())), "k": pa.int32(), "segment": pa.string(), ASKED: pa.string()}
    arrays = [pa.array(values, types.get(name)) for name, values in columns.items()]
    batch = pa.RecordBatch.from_arrays(arrays, names=list(columns))
    results = [row for mean in compute_means(iter(slice_batch(batch, 7)), confidence) for row in mean.to_pylist()]
    return dict(zip(groups, results, strict=True))


def summarize_batches(partial: Iterable[pa.RecordBatch]) -> dict[tuple, dict[str, Any]]:
    """Return means over all queries, by (segment set, metric, k)."""
    batches = list(partial)
    assert all(batch.schema == PARTIAL_SCHEMA for batch in batches)
    results = summarize_rows(row for batch in batches for row in batch.to_pylist())
    return {(row["segment_by"], row["metric"], row["k"]): row for row in results.values()}
