"""Patterns of clicks in a worker: equal bits for any batches, for all patterns or a sample."""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa
import pytest
from support.clicks import simulate_clicks

from ndcg_spark.clicks.settings import MAX_CELLS, MAX_POSITIONS, PropensitySettings
from ndcg_spark.clicks.tasks import collect_positions, fit_patterns
from ndcg_spark.errors import InputRefusedError

CELL = pa.struct([("position", pa.int64()), ("shown", pa.int64()), ("clicked", pa.int64())])


def hash_pattern(pattern):
    return int.from_bytes(hashlib.sha256(repr(pattern).encode()).digest()[:8], "little", signed=True)


def build_batches(rows_per_batch):
    """Build the simulated log: a row for each (query, item), as Spark sends them if no two are equal."""
    cells = simulate_clicks().cells()
    columns = (cells.position + 1, cells.shown.astype(int), cells.clicked.astype(int))
    rows = [[] for _ in cells.pairs]
    for pattern, *cell in zip(cells.pattern.tolist(), *(group.tolist() for group in columns), strict=True):
        rows[pattern].append(tuple(cell))
    for begin in range(0, len(rows), rows_per_batch):
        patterns = rows[begin : begin + rows_per_batch]
        hashes = [hash_pattern(tuple(pattern_cells)) for pattern_cells in patterns]
        arrays = [
            pa.array(patterns, pa.list_(CELL)),
            pa.array([1] * len(patterns), pa.int64()),
            pa.array(hashes, pa.int64()),
        ]
        yield pa.RecordBatch.from_arrays(arrays, names=["cells", "pairs", "hash"])


def collect_rows(batches):
    return [row for batch in batches for row in batch.to_pylist()]


def fit(method="pbm", *, rows_per_batch=1000, of=None, limit=MAX_CELLS):
    settings = PropensitySettings(method=method, max_iter=7)
    (row,) = collect_rows(fit_patterns(build_batches(rows_per_batch) if of is None else iter(of), settings, limit))
    return row


@pytest.mark.parametrize("method", ["pbm", "pairs", "randomized"])
def test_batches_do_not_change_a_bit(method):
    assert fit(method, rows_per_batch=7) == fit(method)
    assert (fit(method)["n_patterns"], fit(method)["n_fitted"]) == (300, 300)


def test_fit_patterns_samples_too_many_counts():
    """The order does not matter; counts are of the whole log; positions outside the sample have no chain."""
    whole, sample = fit(), fit(limit=700)
    assert 0 < sample["n_fitted"] < 150 < whole["n_fitted"] == sample["n_patterns"] == 300
    assert fit(limit=700, rows_per_batch=7) == sample
    assert fit(limit=700, of=list(build_batches(20))[::-1]) == sample
    for method in ("pairs", "randomized"):
        assert fit(method, limit=700) == fit(method)
    counts = [
        [(row["n_impressions"], row["n_clicks"]) for row in fit_row["positions"]] for fit_row in (whole, sample)
    ]
    assert counts[0] == counts[1]
    near = [row["ratio"] for row in sample["positions"]]
    assert near == pytest.approx([row["ratio"] for row in whole["positions"]], rel=0.2)
    assert near != [row["ratio"] for row in whole["positions"]]
    smallest = fit(limit=5)
    assert smallest["n_fitted"] <= 1
    assert sum(position["n_impressions"] for position in smallest["positions"]) == 60000


def test_sample_keeps_frequent_patterns_and_scales_rare_ones():
    """4,096 patterns have 1 pair, one has a million; a pattern shows positions such as 1 and 2."""
    rare = [[(1, n + 2, 1), (2, n + 2, 0)] for n in range(4096)]
    often = [(1, 1, 1), (2, 1, 1)]
    cells = pa.array([*rare, often], pa.list_(CELL))
    pairs = pa.array([1] * 4096 + [1_000_000], pa.int64())
    numbers = np.random.default_rng(7).integers(-(2**63), 2**63 - 1, len(cells))
    batch = pa.RecordBatch.from_arrays([cells, pairs, pa.array(numbers)], names=["cells", "pairs", "hash"])
    row = fit(of=[batch], limit=2048)
    sizes = [sum(n % 2**64 < 2 ** (64 - level) for n in numbers[:-1].tolist()) for level in range(8)]
    assert row["n_fitted"] == 1 + next(n for n in sizes if 2 * n + 2 <= 2048)  # of the highest level that fits
    # The frequent pattern alone has as many clicks at the second position as at the first.
    assert [cell["ratio"] for cell in row["positions"]] == pytest.approx([1, 1], abs=0.01)


def fit_positions(method, *patterns):
    """Fit patterns of (position, shown, clicked); return propensity and reason by position, and all fields."""
    cells, ones = pa.array(patterns, pa.list_(CELL)), pa.array([1] * len(patterns), pa.int64())
    numbers = pa.array([hash_pattern(pattern) for pattern in patterns], pa.int64())
    row = fit(method, of=[pa.RecordBatch.from_arrays([cells, ones, numbers], names=["cells", "pairs", "hash"])])
    return {cell["position"]: (cell["propensity"], cell["reason"]) for cell in row["positions"]}, row["positions"]


@pytest.mark.parametrize(
    ("method", "second", "third"),
    [
        ("pairs", (1, "above_1"), (None, "no_pairs")),
        ("randomized", (1, "above_1"), (1, "above_1")),
        ("pbm", (1, "above_1"), (None, "no_chain")),
    ],
)
def test_positions_without_propensity_and_above_one(method, second, third):
    actual, rows = fit_positions(method, [(1, 10, 2), (2, 10, 4), (4, 10, 0)], [(3, 10, 5)])
    assert actual == {1: (1, None), 2: second, 3: third, 4: (None, "no_clicks")}
    if method == "pairs":
        assert [row["ratio"] for row in rows if row["position"] == 2] == [2.0]


@pytest.mark.parametrize("method", ["pbm", "pairs", "randomized"])
@pytest.mark.parametrize(("first", "clicks", "reason"), [(2, 5, "first_not_shown"), (1, 0, "first_not_clicked")])
def test_a_log_without_its_first_position(method, first, clicks, reason):
    actual, _ = fit_positions(method, [(first, 10, clicks), (3, 10, 5)])
    assert actual == dict.fromkeys((first, 3), (None, reason))


def test_no_patterns_give_no_positions():
    (row,) = collect_rows(fit_patterns(iter([]), PropensitySettings()))
    assert (row["positions"], row["n_patterns"], row["n_fitted"]) == ([], 0, 0)


def test_too_many_positions():
    assert collect_positions([3, 2, 3]) == [1, 2, 3]
    with pytest.raises(InputRefusedError, match=f"more than {MAX_POSITIONS:,} different positions"):
        collect_positions(range(1, MAX_POSITIONS + 2))
