"""Rankings as the Arrow batches that workers read, made from rows of the oracle by plain loops."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

import pyarrow as pa
import pytest

from ndcg_spark.conventions import Convention
from ndcg_spark.conventions.forms import discount_table
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
    found = []
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
        found.append(
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
    return batch_of(found)


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
        judged = [one for one in query["ideal"] or [] if one is not None]
        counts = (len(query["ranked"] or []), len(judged), sum(1 for one in judged if one > 0))
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
