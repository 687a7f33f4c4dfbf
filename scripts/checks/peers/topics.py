"""Alpha-NDCG against ndeval, query by query."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from ndcg_spark.core.batches import list_offsets
from ndcg_spark.core.ragged import rank_of_rows
from ndcg_spark.evaluation.tasks.items import read_items
from ndcg_spark.metrics import parse_metric
from ndcg_spark.metrics.base import TOPICS
from ndcg_spark.metrics.kernels import TieGroups
from ndcg_spark.metrics.lists import RankedEntries, RelevanceLists
from scripts.checks.peers.comparisons import Outcome, build_outcome
from scripts.checks.peers.tools import import_tool

CUTOFFS = (5, 10, 20)
Judged = dict[str, set[str]]
TOPICS_TYPE = pa.list_(
    pa.struct([("item", pa.string()), ("relevance", pa.float64()), ("topics", pa.list_(pa.string()))])
)


def topic_outcomes(seeds: Sequence[int]) -> Iterator[Outcome]:
    """Compare on random lists and topics, with items of equal gain, unjudged items and short lists."""
    for k in CUTOFFS:
        differences = (difference for seed in seeds for difference in _differences(random.Random(seed), k))
        yield build_outcome("default", f"random topics, alpha_ndcg@{k}", f"ndeval alpha-nDCG@{k}", differences)


def _differences(draw: random.Random, k: int) -> Iterator[float]:
    items = [f"d{number}" for number in range(40)]
    queries = {f"q{number}": draw.sample(items, draw.randint(1, 25)) for number in range(30)}
    judged: dict[str, Judged] = {
        query: {item: set(draw.sample("12345", draw.randint(1, 3))) for item in draw.sample(items, 15)}
        for query in queries
    }
    theirs = _ndeval(queries, judged, k)
    ours = _ours(queries, judged, k)
    return (abs(value - ours[query]) for query, value in theirs.items())


def _ndeval(queries: dict[str, list[str]], judged: dict[str, Judged], k: int) -> dict[str, float]:
    tool = import_tool("pyndeval")
    qrels = [
        tool.SubtopicQrel(query, topic, item, 1)
        for query, items in judged.items()
        for item, topics in items.items()
        for topic in sorted(topics)
    ]
    run = [
        tool.ScoredDoc(query, item, -float(position))
        for query, items in queries.items()
        for position, item in enumerate(items)
    ]
    measurements = tool.ndeval(qrels, run, measures=[f"alpha-nDCG@{k}"])
    return {query: values[f"alpha-nDCG@{k}"] for query, values in measurements.items()}


def _ours(queries: dict[str, list[str]], judged: dict[str, Judged], k: int) -> dict[str, float]:
    topics = [
        [
            {"item": item, "relevance": 1.0, "topics": sorted(item_topics)}
            for item, item_topics in judged[query].items()
        ]
        for query in queries
    ]
    batch = pa.RecordBatch.from_pydict(
        {
            "items": pa.array(list(queries.values()), pa.list_(pa.string())),
            "topics_of_items": pa.array(topics, TOPICS_TYPE),
        }
    )
    offsets = list_offsets(batch.column("items"))
    rank, ones = rank_of_rows(offsets), np.ones(offsets[-1], dtype=np.int64)
    lists = RelevanceLists(
        read=lambda: RankedEntries(
            relevance=np.zeros(len(rank)),
            judged=np.zeros(len(rank), dtype=np.bool_),
            groups=TieGroups(rank, ones, ones, np.arange(len(rank))),
        ),
        offsets=offsets,
        lengths=np.diff(offsets),
        at_least={},
        max_k=k,
        items=read_items(batch, rank, offsets, (TOPICS,), "item_id"),
    )
    metric, _ = parse_metric("alpha_ndcg")
    return dict(zip(queries, metric.values(lists, k).tolist(), strict=True))  # type: ignore[attr-defined]  # it has a value a query
