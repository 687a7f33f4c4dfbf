"""Compare runs that are equally good, many times, and count how often their intervals hold the difference 0.

Both runs are random orders of the same ten items, with labels from 0 to 3. Intervals of 95 % must hold 0, and sign
flips must have a p-value above 0.05, in 93 to 97 % of the repetitions. Of clustered data (users with 4 to 16 queries;
a third of them get the better of two orders from one run, a third from the other) that is so for clustered errors,
and the naive ones fail. Every repetition has its own seed. Exit code 1 if a share is off.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ndcg_spark.comparison.settings import ComparisonSettings
from ndcg_spark.comparison.tasks.finishing import estimate_groups
from ndcg_spark.comparison.tasks.summing import add_up
from ndcg_spark.conventions.forms import discount_table
from ndcg_spark.metrics import EVERY, MetricAt
from ndcg_spark.metrics.kernels import dcg, ndcg
from ndcg_spark.metrics.normalized_gain import NDCG

LOW, HIGH = 0.93, 0.97
METHODS = ("t", "percentile", "studentised", "flips")
PLAN = {"runs": ("a", "b"), "baseline": "a", "metrics": (MetricAt(NDCG, EVERY),), "flips": 999}


def main(argv: Sequence[str] | None = None) -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--repetitions", type=int, default=1000)
    n = options.parse_args(argv).repetitions
    off = []
    for data, clustered in (("independent", False), ("clustered", True), ("clustered", False)):
        shares = coverage(n, users=data == "clustered", clustered=clustered)
        naive = data == "clustered" and not clustered
        print(f"{data:12} {'clustered' if clustered else 'plain':10}", end="")
        print("  ".join(f"{method} {share:.3f}" for method, share in shares.items()), end="")
        print("  (has to fail)" if naive else "")
        for method in ("t",) if naive else METHODS:
            if naive != (shares[method] < LOW) or shares[method] > HIGH:
                off.append(f"{method} on {data} data")
    print(f"{n:,} repetitions; off: {', '.join(off) or 'none'}")
    return 1 if off else 0


def coverage(repetitions: int, *, users: bool, clustered: bool) -> dict[str, float]:
    """Share of repetitions in which each method finds no difference."""
    held = np.zeros(len(METHODS))
    for seed in range(repetitions):
        row = compare_runs(
            *(clustered_runs(seed) if users else independent_runs(seed)), clustered=clustered, seed=seed
        )
        held += [
            row["ci_low"] <= 0 <= row["ci_high"],
            row["boot_low"] <= 0 <= row["boot_high"],
            row["boot_t_low"] <= 0 <= row["boot_t_high"],
            row["p_sign_flip"] > 0.05,
        ]
    return dict(zip(METHODS, (held / repetitions).tolist(), strict=True))


def independent_runs(seed: int, n: int = 200) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values of both runs, and the cluster of each query: itself."""
    rng = np.random.default_rng([seed, 1])
    x, y = random_orders(rng, n, 2)
    return x, y, np.arange(n)


def clustered_runs(seed: int, n_users: int = 150) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values of both runs, and the user of each query."""
    rng = np.random.default_rng([seed, 2])
    users = np.repeat(np.arange(n_users), rng.integers(4, 17, n_users))
    favoured = rng.integers(0, 3, n_users)[users]
    x, y, other = random_orders(rng, len(users), 3)
    return np.where(favoured == 1, np.maximum(x, other), x), np.where(favoured == 2, np.maximum(y, other), y), users


def random_orders(rng: np.random.Generator, n: int, n_orders: int) -> list[np.ndarray]:
    """NDCG of random orders of the items of n queries."""
    gains = 2.0 ** rng.integers(0, 4, (n, 10)) - 1
    discount, offsets = discount_table("log2", 10), np.arange(n + 1) * 10
    best = dcg(-np.sort(-gains, axis=1).ravel(), offsets, discount)
    orders = [dcg(rng.permuted(gains, axis=1).ravel(), offsets, discount) for _ in range(n_orders)]
    return [ndcg(order, best, no_relevant=0.0) for order in orders]


def compare_runs(x: np.ndarray, y: np.ndarray, units: np.ndarray, *, clustered: bool, seed: int) -> dict[str, object]:
    """Compare two runs with the functions that workers run; return the row."""
    settings = ComparisonSettings(**PLAN, cluster="user" if clustered else None, seed=seed)
    n = len(x)
    keys = np.random.default_rng([seed, 3]).integers(-(2**63), 2**63, n)
    hashes = keys[units] if clustered else keys
    columns = {"unit": hashes, **({"unclustered": np.zeros(n, dtype=bool), "query": keys} if clustered else {})}
    columns |= {"key_0": np.arange(n).astype(str), "k": np.full(n, 10, dtype=np.int32)}
    tables = [
        pa.table({**columns, "run": np.full(n, run, dtype=np.int32), "value_0": values})
        for run, values in ((0, x), (1, y))
    ]
    rows = pa.concat_tables(tables).sort_by([(name, "ascending") for name in ("unit", *(["query"] * clustered))])
    partial = add_up(iter(rows.combine_chunks().to_batches()), settings)
    (estimate,) = [row for batch in estimate_groups(partial, settings) for row in batch.to_pylist()]
    return estimate


if __name__ == "__main__":
    sys.exit(main())
