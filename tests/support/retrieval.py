"""Retrieval in plain loops, a worked example, and the worker functions run in order, without Spark."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ndcg_spark.conventions import Convention
from ndcg_spark.conventions.forms import discount_table
from ndcg_spark.core.batches import EXCHANGE_SCHEMA
from ndcg_spark.evaluation.tasks.scoring import ScoringTask, score_rankings
from ndcg_spark.metrics import MetricAt
from ndcg_spark.metrics.normalized_gain import GAINS
from ndcg_spark.retrieval.settings import RetrievalSettings
from ndcg_spark.retrieval.tasks.merging import merge_cells
from ndcg_spark.retrieval.tasks.searching import search_cells, send_rows
from ndcg_spark.retrieval.tasks.tables import N_ITEMS, N_QUERIES, RetrievalTask

LETTERS = "ABCD"


def encode_labels(text: str) -> list[int]:
    """Encode labels as 0 and 1: `AB` has the first two of four."""
    return [int(letter in text) for letter in LETTERS]


# A query with code 178 (10110010) and labels ABD: distances 0, 1, 1, 2, 2, 2, 3, 5, relevances 1 0 2 3 0 1 0 2.
QUERY_178 = {"query_id": ["q"], "code": [178], "labels": [encode_labels("ABD")]}
ITEMS_178 = {
    "item_id": list("abcdefgh"),
    "code": [178, 179, 162, 177, 51, 246, 181, 81],
    "labels": [encode_labels(text) for text in ("A", "C", "AB", "ABD", "C", "D", "", "ACD")],
}


# ---------------------------------------------------------------------------------------------------- the oracle


def score_by_loop(metric: str, left: Sequence[float], right: Sequence[float]) -> float:
    """Return the score of two vectors; codes are passed as their bits."""
    if metric == "hamming":
        return -float(sum(a != b for a, b in zip(left, right, strict=True)))
    if metric == "euclidean":
        return -math.fsum((a - b) ** 2 for a, b in zip(left, right, strict=True))
    product = math.fsum(a * b for a, b in zip(left, right, strict=True))
    if metric == "inner":
        return product
    norms = math.sqrt(math.fsum(a * a for a in left)) * math.sqrt(math.fsum(b * b for b in right))
    return product / norms if norms else 0.0


def count_shared_labels(left: Sequence[int], right: Sequence[int]) -> int:
    return sum(a and b for a, b in zip(left, right, strict=True))


def compute_ndcg(scores: Sequence[float], relevances: Sequence[float], k: int | None) -> float:
    """Return NDCG with gain 2^rel - 1, averaged over the orders of tied items, by loops over groups."""
    k = len(scores) if k is None else k
    gains = [2.0**relevance - 1 for relevance in relevances]
    total, rank = 0.0, 1
    for score in sorted(set(scores), reverse=True):
        group = [gain for other, gain in zip(scores, gains, strict=True) if other == score]
        weights = sum(1 / math.log2(i + 1) for i in range(rank, min(rank + len(group), k + 1)))
        total += sum(group) / len(group) * weights
        rank += len(group)
    best = sum(gain / math.log2(i + 2) for i, gain in enumerate(sorted(gains, reverse=True)[:k]))
    return total / best if best else 0.0


# ------------------------------------------------------------------------------------- the worker functions in a row

KINDS = {"doubles": pa.list_(pa.float64()), "floats": pa.list_(pa.float32()), "words": pa.list_(pa.int64()),
         "signs": pa.list_(pa.int8()), "bytes": pa.binary()}  # fmt: skip


def build_batches(
    columns: Mapping[str, Any], kind: str, task_k: int | None, sizes: tuple[int, int], rows: int
) -> Iterator[pa.RecordBatch]:
    """Build batches of canonical rows, `rows` each."""
    arrays = {"id": pa.array(columns["id"]), "vector": pa.array(columns["vector"], KINDS[kind])}
    if columns.get("labels") is not None:
        labels = columns["labels"]
        arrays["labels"] = pa.array(
            labels, pa.list_(pa.int32()) if isinstance(labels[0], list | np.ndarray) else None
        )
    if columns.get("same") is not None:
        arrays["same"] = pa.array(columns["same"])
    n = len(arrays["id"])
    arrays[N_QUERIES] = pa.array(np.full(n, sizes[0]))
    arrays[N_ITEMS] = pa.array(np.full(n, sizes[1] if task_k is None else 2**62))
    whole = pa.RecordBatch.from_pydict(arrays)
    for start in range(0, n, rows):
        yield whole.slice(start, rows)


def sort_exchange(sent: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Sort rows of the exchange by id and kind, as a shuffle does; one row per batch."""
    rows = [row for batch in sent for row in batch.to_pylist()]
    for row in sorted(rows, key=lambda row: (row["partition_id"], row["kind"])):
        yield pa.RecordBatch.from_pylist([row], schema=EXCHANGE_SCHEMA)


def run_workers(
    queries: Mapping[str, Any], items: Mapping[str, Any], task: RetrievalTask, *, rows: int = 1000
) -> list[pa.RecordBatch]:
    """Run the workers that send, search and merge."""
    sizes = len(queries["id"]), len(items["id"])
    sent = [
        *send_rows(build_batches(queries, task.kind, task.k, sizes, rows), task, of_corpus=False),
        *send_rows(build_batches(items, task.item_kind, task.k, sizes, rows), task, of_corpus=True),
    ]
    return list(merge_cells(sort_exchange(search_cells(sort_exchange(sent), task)), task))


def find_items(queries: Mapping[str, Any], items: Mapping[str, Any], metric: str, k: int, *, kind: str = "doubles",
                rows: int = 1000, sent_rows: int = 2**17,
                **choices: Any) -> dict[Any, list[tuple[Any, float]]]:  # fmt: skip
    """Return the k best items of each query with their scores, in order."""
    label_kind = None
    if queries.get("labels") is not None:
        label_kind = "array" if isinstance(queries["labels"][0], list) else "value"
        choices.setdefault("labels", "labels")
    settings = RetrievalSettings(metric=metric, **choices)
    task = RetrievalTask(
        settings=settings, k=k, kind=kind, item_kind=kind, label_kind=label_kind, sent_rows=sent_rows
    )
    items_by_query: dict[Any, list[tuple[Any, float]]] = {}
    for batch in run_workers(queries, items, task, rows=rows):
        for row in batch.to_pylist():
            items_by_query.setdefault(row["query_id"], []).append((row["item_id"], row["score"]))
            assert row["rank"] == len(items_by_query[row["query_id"]])
    return items_by_query


def score_queries(queries: Mapping[str, Any], items: Mapping[str, Any], metric: str, cutoffs: tuple[int | None, ...],
           *, kind: str = "doubles", convention: str = "default", rows: int = 1000, sent_rows: int = 2**17,
           **choices: Any) -> list[dict[str, Any]]:  # fmt: skip
    """Return the metrics of each query and cutoff."""
    labels = queries["labels"][0]
    rules = Convention.parse(convention)
    task = RetrievalTask(
        settings=RetrievalSettings(metric=metric, labels="labels", **choices),
        k=cutoffs[-1], kind=kind, item_kind=kind,
        label_kind="array" if isinstance(labels, list | np.ndarray) else "value", evaluation=rules,
        sent_rows=sent_rows,
    )  # fmt: skip
    k = cutoffs[-1]
    scoring = ScoringTask(
        convention=rules, cutoffs=cutoffs, keys=("run", "query_id"), carried=("n_items", "n_judged", "n_relevant"),
        metrics=tuple(MetricAt(metric, k) for k in cutoffs for metric in GAINS),
        columns=("dcg", "idcg", "ndcg"),
        discount=None if k is None else discount_table(rules.discount, k),
    )  # fmt: skip
    rankings = run_workers(queries, items, task, rows=rows)
    return [row for batch in score_rankings(iter(rankings), scoring) for row in batch.to_pylist()]
