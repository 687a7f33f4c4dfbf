"""Rankings as the Arrow batches that workers read, made from rows of the oracle by plain loops."""

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
from support.oracle import Choices, Cutoff, Row, gain_function, rows_by_query, to_float32

LISTS = pa.list_(pa.float64())
KEYS = ("run", "query_id")
COUNTED = ("n_items", "n_judged", "n_relevant")


def convention_of(choices: Choices) -> Convention:
    """The convention of the same choices; the oracle knows no `error` and no duplicates."""
    return Convention(**{field.name: getattr(choices, field.name) for field in fields(Choices)})


def rankings(
    rows: Sequence[Row], choices: Choices, *, max_k: Cutoff = None, ranks: bool = False, seed: int = 0
) -> pa.RecordBatch:
    """One row a query: relevances by rank, judged relevances in any order, counts.

    `max_k` cuts both lists, the ideal one after putting the largest gains first. What is empty is null in
    some queries. `ranks` adds the 1-based rank of each item, without gaps.
    """
    random_ = random.Random(seed)
    actual = []
    for query, its_rows in rows_by_query(rows).items():
        retrieved = [row for row in its_rows if row.score is not None]
        judged = [row for row in its_rows if row.relevance is not None]
        listed = in_rank_order(its_rows, choices)
        if choices.unjudged == "condensed":
            listed = [row for row in listed if row.relevance is not None]
        ideal = [row.relevance for row in (retrieved if choices.ideal == "retrieved" else judged)]
        ideal = [relevance for relevance in ideal if relevance is not None]
        ranked = [row.relevance for row in listed]
        random_.shuffle(ideal)
        if max_k is not None:
            ranked = ranked[:max_k]
            ideal = sorted(ideal, key=lambda relevance: gain_of(relevance, choices), reverse=True)[:max_k]
        actual.append(
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
    return batch_of(actual)


def in_rank_order(rows: Iterable[Row], choices: Choices) -> list[Row]:
    """Retrieved rows, best score first, tied ones by the rule of `choices`."""
    rounded = to_float32 if choices.score_precision == "float32" else float
    retrieved = [row for row in rows if row.score is not None]
    if choices.ties == "input_order":
        ordered = sorted(retrieved, key=lambda row: row.position)
    else:
        ordered = sorted(retrieved, key=lambda row: row.item.encode() if isinstance(row.item, str) else row.item)
    if choices.ties == "item_desc":
        ordered.reverse()
    return sorted(ordered, key=lambda row: -rounded(row.score))


def gain_of(relevance: float, choices: Choices) -> float:
    level = max(0.0, relevance) if choices.negative == "clip" else relevance
    return float(gain_function(choices.gain)(level))


def batch_of(queries: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    """Rankings written out as dictionaries; whatever counts they lack are those of their lists."""
    filled = []
    for number, query in enumerate(queries):
        judged = [element for element in query["ideal"] or [] if element is not None]
        counts = (len(query["ranked"] or []), len(judged), sum(1 for row in judged if row > 0))
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


def task_of(convention: Convention, cutoffs: tuple[Cutoff, ...], *, carried: tuple[str, ...] = ()) -> ScoringTask:
    """What the driver sends to workers."""
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


def scores(batches: Sequence[pa.RecordBatch], task: ScoringTask) -> dict[tuple[str, Cutoff], dict[str, Any]]:
    """What the scorer answers, by (query, k)."""
    rows = [row for result in score_rankings(iter(batches), task) for row in result.to_pylist()]
    by_key = {(row["query_id"], row["k"]): row for row in rows}
    assert len(by_key) == len(rows), "a (query, k) came twice"
    return by_key


def pieces(batch: pa.RecordBatch, rows_per_batch: int) -> list[pa.RecordBatch]:
    """Slices of a batch: they share its buffers and have offsets of their own."""
    return [batch.slice(at, rows_per_batch) for at in range(0, batch.num_rows, rows_per_batch)]


def assert_same(found, expected):
    """The package's answer to every (query, k) is the oracle's."""
    assert found.keys() == expected.keys()
    for key, result in expected.items():
        row = found[key]
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
class Bad:
    """A row that is good but for one thing."""

    reason: str
    cells: dict[str, object]
    columns: Columns = SCORED
    convention: Convention = field(default_factory=Convention)

    @property
    def settings(self) -> EvaluationSettings:
        return EvaluationSettings(columns=self.columns, convention=self.convention, cutoffs=(1, 3))


BAD_ROWS = {
    "null query": Bad("null_query", {"query_id": None}),
    "null run": Bad("null_run", {"run": None}),
    "null item": Bad("null_item", {"item_id": None}),
    "null score": Bad("null_score", {"score": None}),
    "NaN score": Bad("nan_score", {"score": NAN}),
    "infinite score": Bad("infinite_score", {"score": INF}),
    "minus infinite score": Bad("infinite_score", {"score": -INF}),
    "null rank": Bad("null_rank", {"rank": None}, BY_RANK),
    "NaN rank": Bad("null_rank", {"rank": NAN}, BY_RANK),
    "rank 0": Bad("rank_below_1", {"rank": 0.0}, BY_RANK),
    "rank -1": Bad("rank_below_1", {"rank": -1.0}, BY_RANK),
    "rank 1.5": Bad("rank_not_whole", {"rank": 1.5}, BY_RANK),
    "infinite rank": Bad("rank_too_large", {"rank": INF}, BY_RANK),
    "NaN relevance": Bad("nan_relevance", {"relevance": NAN}),
    "infinite relevance": Bad("infinite_relevance", {"relevance": INF}),
    "minus infinite relevance": Bad("infinite_relevance", {"relevance": -INF}),
    "gain overflow": Bad("gain_overflow", {"relevance": 1024.0}),
    "level without gain": Bad("level_without_gain", {"relevance": 1.5}, convention=TABLE),
    "negative relevance": Bad("negative_relevance", {"relevance": -1.0}, convention=ERROR),
    "negative weight": Bad("bad_weight", {"w": -0.5}),
    "null weight": Bad("bad_weight", {"w": None}),
    "NaN weight": Bad("bad_weight", {"w": NAN}),
    "infinite weight": Bad("bad_weight", {"w": INF}),
}


def summary_rows(rows: Iterable[dict[str, Any]], confidence: float = 0.95) -> dict[tuple, dict[str, Any]]:
    """By group: rows of `PARTIAL_SCHEMA` grouped, their counts added, their states collected, and finished."""
    groups: dict[tuple, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in GROUP_KEYS), []).append(row)
    columns: dict[str, list[Any]] = {key: [group[at] for group in groups] for at, key in enumerate(GROUP_KEYS)}
    columns[ASKED] = [its_rows[0][ASKED] for its_rows in groups.values()]
    for name in GROUP_COUNTS:
        columns[name] = [sum(row[name] for row in its_rows) for its_rows in groups.values()]
    columns["states"] = [[row["state"] for row in its_rows] for its_rows in groups.values()]
    types = {"states": pa.list_(pa.list_(pa.int64())), "k": pa.int32(), "segment": pa.string(), ASKED: pa.string()}
    arrays = [pa.array(values, types.get(name)) for name, values in columns.items()]
    batch = pa.RecordBatch.from_arrays(arrays, names=list(columns))
    results = [row for mean in compute_means(iter(pieces(batch, 7)), confidence) for row in mean.to_pylist()]
    return dict(zip(groups, results, strict=True))


def finished_rows(partial: Iterable[pa.RecordBatch]) -> dict[tuple, dict[str, Any]]:
    """Means over all queries, by (segment set, metric, k)."""
    batches = list(partial)
    assert all(batch.schema == PARTIAL_SCHEMA for batch in batches)
    actual = summary_rows(row for batch in batches for row in batch.to_pylist())
    return {(row["segment_by"], row["metric"], row["k"]): row for row in actual.values()}
