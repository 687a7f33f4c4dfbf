"""Patterns of clicks in one worker and in blocks: the same sums, whatever the batches and blocks."""

from __future__ import annotations

import pyarrow as pa
import pytest
from support.clicks import simulation

from ndcg_spark.clicks.kernels.click_model import fit_click_model
from ndcg_spark.clicks.settings import MAX_POSITIONS, PropensityPlan
from ndcg_spark.clicks.tasks.click_cells import (
    known_positions,
    make_advancer,
    make_fitter,
    make_packer,
    make_stepper,
    make_totaller,
    step_sums,
    totals_of_blocks,
)
from ndcg_spark.errors import InputRefusedError

CELL = pa.struct([("position", pa.int64()), ("shown", pa.int64()), ("clicked", pa.int64())])


def batches(rows_per_batch):
    """The simulated log: a row for each (query, item), as Spark sends them where no two are equal."""
    cells = simulation().cells()
    columns = (cells.position + 1, cells.shown.astype(int), cells.clicked.astype(int))
    rows = [[] for _ in cells.pairs]
    for pattern, *cell in zip(cells.pattern.tolist(), *(its.tolist() for its in columns), strict=True):
        rows[pattern].append(tuple(cell))
    for begin in range(0, len(rows), rows_per_batch):
        its = rows[begin : begin + rows_per_batch]
        arrays = [pa.array(its, pa.list_(CELL)), pa.array([1] * len(its), pa.int64())]
        yield pa.RecordBatch.from_arrays(arrays, names=["cells", "pairs"])


def rows_of(found):
    return [row for batch in found for row in batch.to_pylist()]


@pytest.mark.parametrize("rows_per_batch", [7, 1000])
def test_blocks_find_the_bits_of_one_worker(rows_per_batch):
    (expected,) = rows_of(make_fitter(PropensityPlan(max_iter=7))(batches(1000)))
    blocks = list(make_packer(block_cells=100)(batches(rows_per_batch)))
    assert len(blocks) > 10 or rows_per_batch == 1000
    positions = known_positions([k for row in rows_of(blocks) for k in row["positions"]])
    totals, n_patterns, _ = totals_of_blocks(rows_of(make_totaller(positions, pairs=False)(iter(blocks))), 5)
    n_shown = int(totals.shown.sum())
    assert (n_shown, n_patterns, totals.linked.all()) == (60000, 300, True)
    steps = []

    def step(examined):
        nonlocal blocks
        if len(steps) == 3:  # store the state, then go on from it
            blocks = list(make_advancer(positions, n_shown, list(steps))(iter(blocks)))
            steps.clear()
        steps.append(examined)
        return step_sums(rows_of(make_stepper(positions, n_shown, list(steps))(iter(blocks))), 5)

    model = fit_click_model(totals, step, max_iter=7)
    assert model.log_likelihood.tolist() == expected["log_likelihood"]
    assert model.ratio.tolist() == [one["ratio"] for one in expected["positions"]]


def test_no_pattern_is_no_block():
    assert list(make_packer()(iter([]))) == []
    (row,) = rows_of(make_fitter(PropensityPlan())(iter([])))
    assert (row["positions"], row["n_patterns"]) == ([], 0)


def test_too_many_positions():
    assert known_positions([3, 2, 3]) == [1, 2, 3]
    with pytest.raises(InputRefusedError, match=f"more than {MAX_POSITIONS:,} different positions"):
        known_positions(range(1, MAX_POSITIONS + 2))
