"""Worked examples of comparisons, and the hash of keys by the xxhash package."""

from __future__ import annotations

import numpy as np
import xxhash

from ndcg_spark.comparison import kernels

QUERIES = [f"q{n:02d}" for n in range(1, 13)]
X = np.array([0.50, 0.30, 0.80, 0, 0.62, 0.91, 0.45, 0.70, 0.25, 0.55, 1, 0.40])
Y = np.array([0.65, 0.42, 0.80, 0.10, 0.60, 0.95, 0.71, 0.64, 0.38, 0.57, 1, 0.52])
Z = np.array([0.55, 0.35, 0.78, 0.05, 0.66, 0.93, 0.52, 0.69, 0.31, 0.55, 0.97, 0.49])
W = np.array([1, 2, 1, 0.5, 3, 1, 1.5, 1, 1, 2, 1, 1])
USERS = ["u1", "u1", "u2", "u2", "u2", "u3", "u1", "u4", "u4", "u4", "u5", "u5"]
COUNTRIES = ["DE"] * 7 + ["US"] * 4 + ["FR"]


def key_hash(*keys: str) -> int:
    """Spark's xxhash64(lit('compare'), keys) as an unsigned number."""
    seed = 42
    for text in ("compare", *keys):
        seed = xxhash.xxh64_intdigest(text.encode(), seed)
    return seed


def key_hashes(keys: list[str]) -> np.ndarray:
    return np.array([key_hash(key) for key in keys], dtype=np.uint64)


def state_of(x, y, weights=None):
    """State of a group and its number of queries."""
    limbs = kernels.pair_states(x, y, weights, kernels.deltas(x, y))
    state = kernels.SUMS.states(limbs, 1, np.sum)
    if weights is None:
        kernels.SUMS.fill_unweighted(state, np.array([len(x)]))
    return state[0]


def estimate(x, y, weights=None, *, clusters=None, alpha=0.05, lift="fieller"):
    """Estimate of a group, from its state."""
    queries = kernels.SUMS.fractions(state_of(x, y, weights))
    squares = kernels.read_squares(queries, len(x))
    if clusters is not None:
        w = np.ones(len(x)) if weights is None else weights
        named = sorted(set(clusters))
        sums = [[sum((w * one)[np.array(clusters) == name]) for name in named] for one in (np.ones(len(x)), x, y)]
        limbs = kernels.cluster_squares(*map(np.array, sums))
        added = kernels.SQUARES.fractions(kernels.SQUARES.states(limbs, 1, np.sum)[0])
        squares = kernels.read_squares(added, len(named))
    return kernels.paired_estimate(queries, squares, alpha=alpha, lift=lift)


def example_2():
    """500 keys with skewed differences: keys, x, y."""
    from ndcg_spark.comparison.kernels import hash_words

    keys = [f"e{n}" for n in range(500)]
    u = (hash_words(key_hashes(keys), 0, 9, 3) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    x = 0.3 + 0.6 * u[:, 0]
    return keys, x, np.clip(x + 0.4 * (u[:, 1] - 0.48) * u[:, 2], 0, 1)
