"""Lists of items for metrics beyond relevance: batches as Spark sends them to workers, and definitions in loops."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from ndcg_spark.core.batches import list_offsets
from ndcg_spark.core.ragged import rank_of_rows
from ndcg_spark.evaluation.tasks.items import read_items
from ndcg_spark.metrics import NamedMetric, parse_metric
from ndcg_spark.metrics.lists import RelevanceLists
from support.metric_definitions import build_lists

Items = Mapping[Any, Mapping[str, Any]]
"""What is known of each item: vector, categories, days, interactions, users, seen."""
Judged = Sequence[tuple[Any, float, Sequence[str]]]
"""Item, relevance, topics."""

FEATURES = pa.struct(
    [
        ("place", pa.int32()), ("vector", pa.list_(pa.float64())), ("categories", pa.list_(pa.string())),
        ("days", pa.float64()), ("interactions", pa.int64()), ("users", pa.int64()), ("seen", pa.bool_()),
    ]
)  # fmt: skip
MISSING = {"vector": None, "categories": None, "days": 0.0, "interactions": 0, "users": 0, "seen": False}


def build_rankings_batch(
    queries: Sequence[Sequence[Any]], items: Items, judged: Sequence[Judged], totals: tuple[int, int] = (1, 1)
) -> pa.RecordBatch:
    """Build a batch of rankings with the features that Spark joins to their items."""
    kind = pa.array([item for listed in queries for item in listed]).type if any(queries) else pa.string()
    features = [
        [{"place": place, **MISSING, **items.get(item, {})} for place, item in enumerate(listed)]
        for listed in queries
    ]
    topics = [
        [{"item": item, "relevance": float(rel), "topics": list(names)} for item, rel, names in entries]
        for entries in judged
    ]
    n = len(queries)
    of_judged = pa.struct([("item", kind), ("relevance", pa.float64()), ("topics", pa.list_(pa.string()))])
    return pa.RecordBatch.from_pydict(
        {
            "items": pa.array([list(listed) for listed in queries], pa.list_(kind)),
            "features": pa.array(features, pa.list_(FEATURES)),
            "topics_of_items": pa.array(topics, pa.list_(of_judged)),
            "n_interactions": pa.array([totals[0]] * n, pa.int64()),
            "n_users": pa.array([totals[1]] * n, pa.int64()),
        }
    )


def read_item_lists(batch: pa.RecordBatch, metric: NamedMetric, max_k: int | None = None) -> RelevanceLists:
    """Return the lists of a batch, as metrics read them."""
    offsets = list_offsets(batch.column("items"))
    known = read_items(batch, rank_of_rows(offsets), offsets, metric.needs, "item_id")
    lists = build_lists([[[None]] * length for length in np.diff(offsets).tolist()], [], max_k=max_k)
    return replace(lists, items=known)


def compute_values(
    text: str,
    queries: Sequence[Sequence[Any]],
    items: Items | None = None,
    judged: Sequence[Judged] | None = None,
    totals: tuple[int, int] = (1, 1),
) -> list[float]:
    """Compute a metric by its name for each query."""
    metric, at = parse_metric(text)
    k = None if at in (None, "all") else int(at)
    batch = build_rankings_batch(queries, items or {}, judged or [()] * len(queries), totals)
    return metric.values(read_item_lists(batch, metric, k), k).tolist()


# ------------------------------------------------------------------------------------------------- definitions


def compute_ils(listed: Sequence[Any], items: Items, by: str, k: int) -> float:
    """Return the mean similarity of pairs whose items both have features."""
    known = [items[item][by] for item in listed[:k] if items.get(item, {}).get(by)]
    pairs = list(itertools.combinations(known, 2))
    similarity = cosine if by == "vector" else jaccard
    return sum(similarity(*pair) for pair in pairs) / len(pairs) if pairs else math.nan


def cosine(left: Sequence[float], right: Sequence[float]) -> float:
    dot = sum(a * b for a, b in zip(left, right, strict=True))
    return dot / math.sqrt(sum(a * a for a in left)) / math.sqrt(sum(b * b for b in right))


def jaccard(left: Sequence[str], right: Sequence[str]) -> float:
    return len(set(left) & set(right)) / len(set(left) | set(right))


def compute_left_out(listed: Sequence[Any], items: Items, by: str, k: int) -> float:
    pairs = list(itertools.combinations(listed[:k], 2))
    bad = [pair for pair in pairs if not all(items.get(side, {}).get(by) for side in pair)]
    return len(bad) / len(pairs) if pairs else math.nan


def compute_alpha_ndcg(listed: Sequence[Any], judged: Judged, alpha: float, rel: float, k: int) -> float:
    topics = {item: set(names) for item, relevance, names in judged if relevance >= rel and names}
    ideal: list[Any] = []
    while len(ideal) < min(k, len(topics)):
        left = sorted(set(topics) - set(ideal), key=encode_item, reverse=True)
        ideal.append(
            max(left, key=lambda item: topic_gain(item, ideal, topics, alpha))
        )  # the first one with the largest gain
    best = alpha_dcg(ideal, topics, alpha, k)
    return alpha_dcg(listed, topics, alpha, k) / best if best > 0 else 0.0


def encode_item(item: Any) -> Any:
    return item.encode() if isinstance(item, str) else item


def topic_gain(item: Any, above: Sequence[Any], topics: Mapping[Any, set[str]], alpha: float) -> float:
    times = sorted(sum(topic in topics.get(other, ()) for other in above) for topic in topics.get(item, ()))
    return math.fsum((1 - alpha) ** time for time in times)


def alpha_dcg(listed: Sequence[Any], topics: Mapping[Any, set[str]], alpha: float, k: int) -> float:
    return sum(topic_gain(item, listed[:at], topics, alpha) / math.log2(at + 2) for at, item in enumerate(listed[:k]))


def compute_mean(listed: Sequence[Any], value: Any, k: int) -> float:
    values = [value(item) for item in listed[:k]]
    return sum(values) / len(values) if values else math.nan


def compute_first_new(listed: Sequence[Any], items: Items, k: int) -> float:
    return next((at + 1.0 for at, item in enumerate(listed[:k]) if not items.get(item, {}).get("seen")), math.nan)


def compute_exposure(lists: Sequence[Sequence[Any]], catalogue: Sequence[Any], k: int) -> dict[str, float]:
    """Return coverage, Gini and entropy from the exposures of all items of the catalogue, zeros included."""
    shown = [item for listed in lists for item in listed[:k]]
    exposures = sorted(shown.count(item) for item in catalogue)
    n, total = len(exposures), sum(exposures)
    return {
        "coverage": sum(exposure > 0 for exposure in exposures) / n,
        "gini": sum((2 * i - n - 1) * x for i, x in enumerate(exposures, 1)) / (n * total),
        "entropy": sum(-x / total * math.log2(x / total) for x in exposures if x),
        "outside_catalogue": sum(item not in set(catalogue) for item in shown) / len(shown),
    }
