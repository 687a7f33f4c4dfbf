"""Patterns of impressions and clicks to propensities: in one worker, or a step at a time in all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ndcg_spark.clicks.kernels.click_model import (
    Cells,
    ClickModel,
    Expectation,
    StepSums,
    Totals,
    add_totals,
    fit_click_model,
    pair_propensities,
    pair_sums,
    randomized_propensities,
    totals_of,
)
from ndcg_spark.clicks.settings import MAX_CELLS, MAX_POSITIONS, PropensityPlan
from ndcg_spark.core.batches import BatchFunction, batch_function, int_values, list_offsets
from ndcg_spark.core.exact import N_LIMBS
from ndcg_spark.core.ragged import FloatArray, IntArray, offsets_of, query_of_rows
from ndcg_spark.errors import InputRefusedError, option

BLOCK_CELLS = 1_000_000
"""Counts that are packed into one row, some tens of megabytes."""
PATTERN, PAIRS = "cells", "pairs"
"""List of struct<position, shown, clicked>, sorted; and how many (query, item) have it."""
POSITION_TYPE = pa.struct(
    [
        ("position", pa.int64()),
        ("propensity", pa.float64()),
        ("ratio", pa.float64()),
        ("reason", pa.string()),
        ("n_impressions", pa.int64()),
        ("n_clicks", pa.int64()),
    ]
)
FIT_SCHEMA = pa.schema(
    [
        ("method", pa.string()),
        ("positions", pa.list_(POSITION_TYPE)),
        ("n_patterns", pa.int64()),
        ("n_iterations", pa.int64()),
        ("converged", pa.bool_()),
        ("log_likelihood", pa.list_(pa.float64())),
    ]
)


class Counts(NamedTuple):
    """Cells whose positions are numbered, and the position of each number; the first is 1."""

    cells: Cells
    positions: list[int]


def make_fitter(plan: PropensityPlan) -> BatchFunction:
    """Build the function from all patterns to one row of `FIT_SCHEMA`; it holds them, up to `MAX_CELLS` counts."""
    return batch_function(lambda batches: _fitted(batches, plan))


def _fitted(batches: Iterator[pa.RecordBatch], plan: PropensityPlan) -> Iterator[pa.RecordBatch]:
    counts = held_counts(batches, limit=MAX_CELLS)
    n_positions = len(counts.positions)
    totals = totals_of(counts.cells, n_positions)
    model, sums = None, np.zeros((0, 2, N_LIMBS), dtype=np.int64)
    if plan.method == "pbm":
        expectation = Expectation(counts.cells, n_positions, int(totals.shown.sum()))
        model = fit_click_model(totals, expectation.step, tolerance=plan.tolerance, max_iter=plan.max_iter)
    elif plan.method == "pairs":
        sums = pair_sums(counts.cells, n_positions)
    row = fit_row(plan.method, counts.positions, totals, len(counts.cells.pairs), model, sums)
    yield pa.RecordBatch.from_pylist([row], schema=FIT_SCHEMA)


def held_counts(batches: Iterable[pa.RecordBatch], *, limit: int | None) -> Counts:
    """Put patterns of batches with `cells` and `pairs` behind each other; refuse more than `limit` cells."""
    # Columns are put together one after the other, so that only one of them is there twice.
    lengths: list[Any] = []
    pairs: list[Any] = []
    columns: dict[str, list[Any]] = {"position": [], "shown": [], "clicked": []}
    found, n_cells = {1}, 0
    for batch in batches:
        patterns = batch.column(PATTERN)
        flat = patterns.flatten()
        n_cells += len(flat)
        if limit is not None and n_cells > limit:
            raise InputRefusedError(
                f"the log has more than {limit:,} different counts of impressions and clicks, too many for one "
                f"worker; {option('fit', 'distributed')} holds them in all workers."
            )
        lengths.append(np.diff(list_offsets(patterns)))
        pairs.append(int_values(batch.column(PAIRS)))
        for at, parts in enumerate(columns.values()):
            parts.append(int_values(flat.field(at)).astype(np.int32 if at == 0 else np.float64))
        found.update(np.unique(columns["position"][-1]).tolist())
    positions = known_positions(list(found))
    shown, clicked = (_joined(columns.pop(name)).astype(np.float64, copy=False) for name in ("shown", "clicked"))
    number = np.searchsorted(np.array(positions, dtype=np.int32), _joined(columns.pop("position")))
    pattern = query_of_rows(offsets_of(_joined(lengths)))
    return Counts(Cells(pattern, number, shown, clicked, _joined(pairs).astype(np.float64)), positions)


def known_positions(position: Iterable[int]) -> list[int]:
    """Different positions, sorted, and the first in any case."""
    found = {1, *position}
    if len(found) > MAX_POSITIONS:
        raise InputRefusedError(f"the log has more than {MAX_POSITIONS:,} different positions; leave deep ones out.")
    return sorted(found)


def _joined(parts: list[Any]) -> Any:
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


def fit_row(
    method: str,
    positions: list[int],
    totals: Totals,
    n_patterns: int,
    model: ClickModel | None,
    sums: IntArray,
) -> dict[str, Any]:
    """Describe a fit as a row of `FIT_SCHEMA`.

    `model` is that of `pbm`; `sums`, of shape (n_positions, 2, N_LIMBS), are those of `pairs`, and ignored otherwise.
    """
    if model is not None:
        ratio = model.ratio
    else:
        ratio = pair_propensities(sums) if method == "pairs" else randomized_propensities(totals)
    listed = []
    for at in np.flatnonzero(totals.shown).tolist():
        value = None if np.isnan(ratio[at]) else float(ratio[at])
        reason = _reason(value, totals, at, method)
        listed.append(
            {
                "position": int(positions[at]),
                "propensity": None if value is None or reason == "no_clicks" else min(value, 1.0),
                "ratio": value,
                "reason": reason,
                "n_impressions": int(totals.shown[at]),
                "n_clicks": int(totals.clicked[at]),
            }
        )
    return {
        "method": method,
        "positions": listed,
        "n_patterns": n_patterns,
        "n_iterations": None if model is None else max(len(model.log_likelihood) - 1, 0),
        "converged": None if model is None else model.converged,
        "log_likelihood": None if model is None else model.log_likelihood.tolist(),
    }


def _reason(ratio: float | None, totals: Totals, at: int, method: str) -> str | None:
    """Why a position has no propensity, or not the ratio that was found; None otherwise."""
    if ratio is not None:
        if not totals.clicked[at] or not ratio:
            return "no_clicks"
        return "above_1" if ratio > 1 else None
    if not totals.shown[0]:
        return "first_not_shown"
    if not totals.clicked[0]:
        return "first_not_clicked"
    return {"pbm": "no_chain", "pairs": "no_pairs"}[method]


# ------------------------------------------------------------------------------------------------ in all workers


BLOCK_SCHEMA = pa.schema([("payload", pa.binary()), ("attractive", pa.binary()), ("positions", pa.list_(pa.int64()))])
"""A block of patterns: its arrays, the attractiveness of each pattern (null: not begun), and its positions."""


def make_packer(*, block_cells: int = BLOCK_CELLS) -> BatchFunction:
    """Build the function from patterns to rows of `BLOCK_SCHEMA`, of about `block_cells` counts."""

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held, n_cells = [], 0
        for batch in batches:
            held.append(batch)
            n_cells += len(batch.column(PATTERN).flatten())
            if n_cells >= block_cells:
                yield _block(held)
                held, n_cells = [], 0
        if n_cells:
            yield _block(held)

    return batch_function(pack)


def _block(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    counts = held_counts(batches, limit=None)
    row = {"payload": _packed(counts), "attractive": None, "positions": counts.positions}
    return pa.RecordBatch.from_pylist([row], schema=BLOCK_SCHEMA)


def _packed(counts: Counts) -> bytes:
    cells = counts.cells
    lengths = np.bincount(cells.pattern, minlength=len(cells.pairs))
    arrays = (lengths, np.array(counts.positions)[cells.position], cells.shown, cells.clicked, cells.pairs)
    numbers = np.concatenate([np.array([len(cells.pairs)]), *arrays]).astype(np.int64)
    return bytes(numbers.tobytes())


def _unpacked(payload: Any, positions: list[int]) -> Cells:
    numbers = np.frombuffer(payload.as_buffer(), dtype=np.int64)
    n_patterns, lengths = int(numbers[0]), numbers[1 : numbers[0] + 1]
    n_cells = int(lengths.sum())
    bounds = np.cumsum([1 + n_patterns, n_cells, n_cells, n_cells, n_patterns]).tolist()
    position, shown, clicked, pairs = (numbers[begin:end] for begin, end in pairwise(bounds))
    counts = (its.astype(np.float64) for its in (shown, clicked, pairs))
    return Cells(query_of_rows(offsets_of(lengths)), np.searchsorted(positions, position), *counts)


TOTALS_SCHEMA = pa.schema(
    [
        ("shown", pa.list_(pa.int64())),
        ("clicked", pa.list_(pa.int64())),
        ("chain", pa.list_(pa.int64())),
        ("n_patterns", pa.int64()),
        ("sums", pa.list_(pa.int64())),
    ]
)


def make_totaller(positions: list[int], *, pairs: bool) -> BatchFunction:
    """Build the function from packed blocks to a row of `TOTALS_SCHEMA` each; `sums` are those of `pair_sums`."""

    def total(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for payload in batch.column("payload"):
                cells = _unpacked(payload, positions)
                found = totals_of(cells, len(positions))
                row: dict[str, Any] = {name: getattr(found, name).tolist() for name in found._fields}
                row["n_patterns"] = len(cells.pairs)
                row["sums"] = pair_sums(cells, len(positions)).ravel().tolist() if pairs else None
                yield pa.RecordBatch.from_pylist([row], schema=TOTALS_SCHEMA)

    return batch_function(total)


def totals_of_blocks(rows: Sequence[Any], n_positions: int) -> tuple[Totals, int, IntArray]:
    """Add up rows of `TOTALS_SCHEMA`: totals, number of patterns, and sums of pairs (zeros if not asked for)."""
    nothing = np.zeros(n_positions, dtype=np.int64)
    totals = Totals(nothing, nothing, np.arange(n_positions))
    sums = np.zeros((n_positions, 2, N_LIMBS), dtype=np.int64)
    for row in rows:
        totals = add_totals(totals, Totals(*(np.array(row[name], dtype=np.int64) for name in Totals._fields)))
        if row["sums"] is not None:
            sums += np.array(row["sums"], dtype=np.int64).reshape(sums.shape)
    return totals, sum(row["n_patterns"] for row in rows), sums


STEP_SCHEMA = pa.schema([("seen", pa.list_(pa.int64())), ("log_likelihood", pa.int64())])


def make_stepper(positions: list[int], n_shown: int, steps: list[FloatArray]) -> BatchFunction:
    """Build the function that takes steps of EM over packed blocks, and tells the sums of the last of them."""

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for expectation, _, _ in _expectations(batches, positions, n_shown):
            for examined in steps:
                found = expectation.step(examined)
            row = {"seen": found.seen.tolist(), "log_likelihood": found.log_likelihood}
            yield pa.RecordBatch.from_pylist([row], schema=STEP_SCHEMA)

    return batch_function(step)


def step_sums(rows: Sequence[Any], n_positions: int) -> StepSums:
    """Add up rows of `STEP_SCHEMA`."""
    seen = np.zeros(n_positions, dtype=np.int64)
    for row in rows:
        seen += np.array(row["seen"], dtype=np.int64)
    return StepSums(seen, sum(row["log_likelihood"] for row in rows))


def make_advancer(positions: list[int], n_shown: int, steps: list[FloatArray]) -> BatchFunction:
    """Build the function that takes steps of EM over packed blocks, and stores the attractiveness in them."""

    def advance(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for expectation, batch, at in _expectations(batches, positions, n_shown):
            for examined in steps:
                expectation.step(examined)
            attractive = pa.array([expectation.attractive.tobytes()], pa.binary())
            columns = {name: batch.column(name).slice(at, 1) for name in batch.schema.names}
            columns["attractive"] = attractive
            yield pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    return batch_function(advance)


def _expectations(
    batches: Iterator[pa.RecordBatch], positions: list[int], n_shown: int
) -> Iterator[tuple[Expectation, pa.RecordBatch, int]]:
    for batch in batches:
        for at, (payload, stored) in enumerate(zip(batch.column("payload"), batch.column("attractive"), strict=True)):
            attractive = np.frombuffer(stored.as_buffer(), dtype=np.float64) if stored.is_valid else None
            cells = _unpacked(payload, positions)
            yield Expectation(cells, len(positions), n_shown, attractive), batch, at
