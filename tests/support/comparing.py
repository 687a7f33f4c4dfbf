"""Comparisons without Spark: worked examples, and canonical rows through the functions that workers run."""

from __future__ import annotations

from itertools import groupby

import numpy as np
import pyarrow as pa
import xxhash

from ndcg_spark.comparison import kernels
from ndcg_spark.comparison.settings import ComparisonSettings
from ndcg_spark.comparison.tasks.finishing import decide_family, estimate_groups
from ndcg_spark.comparison.tasks.pairing import unify_queries
from ndcg_spark.comparison.tasks.summing import GROUP_KEYS, SummingLimits, add_up, merge_sums
from ndcg_spark.metrics import EVERY, MetricAt, parse_metric

QUERIES = [f"q{n:02d}" for n in range(1, 13)]
X = np.array([0.50, 0.30, 0.80, 0, 0.62, 0.91, 0.45, 0.70, 0.25, 0.55, 1, 0.40])
Y = np.array([0.65, 0.42, 0.80, 0.10, 0.60, 0.95, 0.71, 0.64, 0.38, 0.57, 1, 0.52])
Z = np.array([0.55, 0.35, 0.78, 0.05, 0.66, 0.93, 0.52, 0.69, 0.31, 0.55, 0.97, 0.49])
W = np.array([1, 2, 1, 0.5, 3, 1, 1.5, 1, 1, 2, 1, 1])
USERS = ["u1", "u1", "u2", "u2", "u2", "u3", "u1", "u4", "u4", "u4", "u5", "u5"]
COUNTRIES = ["DE"] * 7 + ["US"] * 4 + ["FR"]


def hash_key(*keys: str) -> int:
    """Spark's xxhash64(lit('compare'), keys) as an unsigned number."""
    seed = 42
    for text in ("compare", *keys):
        seed = xxhash.xxh64_intdigest(text.encode(), seed)
    return seed


def hash_keys(keys: list[str]) -> np.ndarray:
    return np.array([hash_key(key) for key in keys], dtype=np.uint64)


def compute_state(x, y, weights=None):
    """Return the state of a group and its number of queries."""
    limbs = kernels.compute_states(x, y, weights, kernels.round_differences(x, y))
    state = kernels.SUMS.states(limbs, 1, np.sum)
    if weights is None:
        kernels.SUMS.fill_unweighted(state, np.array([len(x)]))
    return state[0]


def estimate(x, y, weights=None, *, clusters=None, alpha=0.05, lift="fieller"):
    """Estimate the difference of a group from its state."""
    queries = kernels.SUMS.fractions(compute_state(x, y, weights))
    squares = kernels.select_squares(queries, len(x))
    if clusters is not None:
        w = np.ones(len(x)) if weights is None else weights
        names = sorted(set(clusters))
        sums = [
            [sum((w * values)[np.array(clusters) == name]) for name in names] for values in (np.ones(len(x)), x, y)
        ]
        limbs = kernels.cluster_squares(*map(np.array, sums))
        total = kernels.SQUARES.fractions(kernels.SQUARES.states(limbs, 1, np.sum)[0])
        squares = kernels.select_squares(total, len(names))
    return kernels.estimate_difference(queries, squares, alpha=alpha, lift=lift)


def example_2():
    """500 keys with skewed differences: keys, x, y."""
    from ndcg_spark.comparison.kernels import hash_words

    keys = [f"e{n}" for n in range(500)]
    u = (hash_words(hash_keys(keys), 0, 9, 3) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    x = 0.3 + 0.6 * u[:, 0]
    return keys, x, np.clip(x + 0.4 * (u[:, 1] - 0.48) * u[:, 2], 0, 1)


def build_metric(name: str, k: int | None = EVERY) -> MetricAt:
    """Build a requested metric."""
    return MetricAt(parse_metric(name)[0], k, name)


NDCG = (build_metric("ndcg"),)


def build_settings(**changes) -> ComparisonSettings:
    settings = {"runs": ("a", "b"), "baseline": "a", "metrics": NDCG, "replicates": 0, "flips": 0, **changes}
    return ComparisonSettings(**settings)


def example_1(*, with_c: bool = False, one_sided: bool = False) -> list[dict]:
    """Return rows of the worked example: query, run, value, weight, country, user."""
    runs = [(0, X), (1, Y), *([(2, Z)] if with_c else [])]
    rows = [
        {"query": query, "run": run, "value": float(value), "weight": float(w), "country": country, "user": user}
        for run, values in runs
        for query, value, w, country, user in zip(QUERIES, values, W, COUNTRIES, USERS, strict=True)
    ]
    if one_sided:
        rows.append({"query": "q13", "run": 0, "value": 0.6})
        rows.append({"query": "q14", "run": 1, "value": 0.2})
    return rows


def to_signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number


def build_canonical_table(rows: list[dict], settings: ComparisonSettings) -> pa.Table:
    """Build the columns that Spark selects; a row may set `ndcg`, `dcg`, ... or a single `value`."""
    hashes = [to_signed(hash_key(row["query"] or "")) for row in rows]
    columns: dict[str, pa.Array] = {}
    if settings.cluster is None:
        columns["unit"] = pa.array([row.get("hash", h) for row, h in zip(rows, hashes, strict=True)], pa.int64())
    else:
        columns["query"] = pa.array(hashes, pa.int64())
        users = [row.get("user") for row in rows]
        columns["cluster"] = pa.array(
            [None if user is None else to_signed(hash_key(user)) for user in users], pa.int64()
        )
    columns["key_0"] = pa.array([row["query"] for row in rows], pa.string())
    columns["run"] = pa.array([row["run"] for row in rows], pa.int32())
    columns["k"] = pa.array([row.get("k", 10) for row in rows], pa.int32())
    for at, metric in enumerate(settings.compared):
        columns[f"value_{at}"] = pa.array([row.get(metric.column, row.get("value")) for row in rows], pa.float64())
    if any("idcg" in row for row in rows):
        columns["idcg"] = pa.array([row.get("idcg") for row in rows], pa.float64())
    if settings.weight is not None:
        columns["weight"] = pa.array([row.get("weight") for row in rows], pa.float64())
    for at, name in enumerate(settings.segment_columns):
        columns[f"segment_{at}"] = pa.array([row.get(name) for row in rows])
    if any("missing" in row for row in rows):
        columns["missing"] = pa.array([row.get("missing", False) for row in rows], pa.bool_())
    return pa.table(columns)


def partition_table(
    table: pa.Table, keys: list[str], n_partitions: int, *, sort: list[str] | None = None
) -> list[pa.Table]:
    """Partition a table by the hash of its keys, each part sorted."""
    numbers = [hash(tuple(row.values())) % n_partitions for row in table.select(keys).to_pylist()]
    parts = [table.filter(pa.array(np.array(numbers) == part)) for part in range(n_partitions)]
    return [part.sort_by([(name, "ascending") for name in sort]) if sort else part for part in parts]


def run_worker(function, parts: list[pa.Table], *task, rows_per_batch: int = 1000) -> pa.Table | None:
    """Run a worker function on each partition, as `in_workers` does."""
    sent = [iter(part.to_batches(max_chunksize=rows_per_batch)) for part in parts]
    results = [batch for batches in sent for batch in function(batches, *task)]
    return pa.Table.from_batches(results) if results else None


def compare_rows(
    rows: list[dict], settings: ComparisonSettings, *, n_partitions: int = 3, rows_per_batch: int = 5, **limits: int
) -> list[dict]:
    """Return the rows of a comparison, in their order; `limits` are those of `SummingLimits`."""
    sizes = SummingLimits(**limits)
    table, sort = build_canonical_table(rows, settings), ["unit"]
    if settings.cluster is not None:
        parts = partition_table(table, ["query"], n_partitions, sort=["query"])
        table = run_worker(unify_queries, parts, settings, sizes.chunk_rows, rows_per_batch=rows_per_batch)
        sort = ["unit", "unclustered", "query"]
    parts = partition_table(table, ["unit"], n_partitions, sort=sort)
    partial = run_worker(add_up, parts, settings, sizes, rows_per_batch=rows_per_batch)
    if partial is None:
        return []
    merged = run_worker(merge_sums, partition_table(partial, [*GROUP_KEYS, "kind", "block"], n_partitions))
    finished = run_worker(estimate_groups, partition_table(merged, list(GROUP_KEYS), n_partitions), settings)
    results = run_worker(decide_family, [finished], settings).to_pylist()
    return sorted(
        results,
        key=lambda row: (
            row["baseline"], row["run"], row["segment_by"], row["segment"] or "", row["metric"], row["k"] or 0,
        ),
    )  # fmt: skip


def select_overall(rows: list[dict]) -> list[dict]:
    return [row for row in rows if not row["segment_by"]]


def index_by_segment(table: list[dict]) -> dict[str, dict]:
    return {key: next(rows) for key, rows in groupby(table, key=lambda row: row["segment"]) if key != ""}
