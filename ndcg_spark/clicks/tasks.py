"""Cells of impressions and clicks to propensities, and estimates by inverse propensities."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ndcg_spark.clicks import kernels
from ndcg_spark.clicks.settings import MAX_CELLS, MAX_POSITIONS, PropensitySettings
from ndcg_spark.core.batches import float_values, int_values, list_offsets
from ndcg_spark.core.exact import N_LIMBS
from ndcg_spark.core.ragged import BoolArray, IntArray, query_of_rows, to_offsets
from ndcg_spark.core.sums import GroupSums, limb_columns, merge_states, read_limbs, read_states, state_column
from ndcg_spark.errors import InputRefusedError

PATTERN, PAIRS, HASH = "cells", "pairs", "hash"
"""List of struct<position, shown, clicked>, sorted; how many (query, item) have it; and 64 bits made of it."""
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
        ("n_fitted", pa.int64()),
        ("n_iterations", pa.int64()),
        ("converged", pa.bool_()),
        ("log_likelihood", pa.list_(pa.float64())),
    ]
)


def fit_patterns(
    batches: Iterator[pa.RecordBatch], settings: PropensitySettings, limit: int = MAX_CELLS
) -> Iterator[pa.RecordBatch]:
    """Fit all patterns: one row of `FIT_SCHEMA`.

    EM takes many steps and holds its patterns: all, or a sample of them with at most `limit` counts. Sums of the
    other methods are added up batch by batch.
    """
    patterns = _Patterns(settings.method, limit)
    for batch in batches:
        patterns.add(batch)
    yield pa.RecordBatch.from_pylist([patterns.fitted(settings)], schema=FIT_SCHEMA)


class _Patterns:
    """Counts of all patterns of a log, and for EM the patterns themselves.

    If these have too many counts, a pattern of n (query, item) stays if its hash, as a number below 1, is below n /
    2^level, and stands for 2^level of them if n is less. So frequent patterns always stay, sums over the sample are
    those of all patterns on average, and the sample does not depend on the order of patterns.
    """

    def __init__(self, method: str, limit: int) -> None:
        self._method, self._limit, self._level = method, limit, 0
        self._held: list[pa.RecordBatch] = []
        self._n_cells = self.n_patterns = 0
        self._counts: dict[int, IntArray] = {}
        self._sums: dict[int, IntArray] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        cells, positions = counts_in([batch])
        self.n_patterns += batch.num_rows
        totals = kernels.totals_of(cells, len(positions))
        _add(self._counts, positions, np.stack([totals.shown, totals.clicked], axis=1))
        if self._method == "pairs":
            _add(self._sums, positions, kernels.pair_sums(cells, len(positions)))
        if self._method == "pbm":
            self._hold([batch.select([PATTERN, PAIRS, HASH])])

    def _hold(self, batches: list[pa.RecordBatch]) -> None:
        kept = [one.filter(pa.array(_is_sampled(one, self._level))) for one in batches] if self._level else batches
        self._n_cells += sum(len(batch.column(PATTERN).flatten()) for batch in kept)
        self._held += kept
        if self._n_cells > self._limit:
            held, self._held, self._n_cells = self._held, [], 0
            self._level += 1
            self._hold(held)

    def fitted(self, settings: PropensitySettings) -> dict[str, Any]:
        """Fit, and describe the result as a row of `FIT_SCHEMA`."""
        positions = known_positions(self._counts)
        shown, clicked = _at(self._counts, positions, (2,)).T
        totals, n_fitted = kernels.Totals(shown, clicked, np.arange(len(positions))), self.n_patterns
        model, sums = None, _at(self._sums, positions, (2, N_LIMBS))
        if settings.method == "pbm":
            cells, _ = counts_in(self._held, positions)
            n_fitted = len(cells.pairs)
            cells = cells._replace(pairs=np.maximum(cells.pairs, 2.0**self._level))
            fitted = kernels.totals_of(cells, len(positions))
            step = kernels.Expectation(cells, len(positions), int(fitted.shown.sum())).step
            model = kernels.fit_click_model(fitted, step, tolerance=settings.tolerance, max_iter=settings.max_iter)
        return fit_row(settings.method, positions, totals, (self.n_patterns, n_fitted), model, sums)


def _is_sampled(batch: pa.RecordBatch, level: int) -> BoolArray:
    number = (int_values(batch.column(HASH)).view(np.uint64) >> np.uint64(11)) * 2.0**-53
    return np.asarray(number * 2.0**level < int_values(batch.column(PAIRS)))


def _add(sums: dict[int, IntArray], keys: Sequence[int], values: IntArray) -> None:
    for key, value in zip(keys, values, strict=True):
        sums[key] = sums[key] + value if key in sums else value


def _at(sums: dict[int, IntArray], positions: Sequence[int], shape: tuple[int, ...]) -> IntArray:
    """Sums by position, zeros for positions without sums."""
    zeros = np.zeros(shape, dtype=np.int64)
    return np.array([sums.get(position, zeros) for position in positions])


def counts_in(
    batches: Sequence[pa.RecordBatch], positions: Sequence[int] | None = None
) -> tuple[kernels.Cells, list[int]]:
    """Concatenate the patterns of batches: cells whose positions are numbered, and the position of each number."""
    # Columns are put together one after the other, so that only one of them is there twice.
    lengths: list[Any] = []
    pairs: list[Any] = []
    columns: dict[str, list[Any]] = {"position": [], "shown": [], "clicked": []}
    for batch in batches:
        patterns = batch.column(PATTERN)
        flat = patterns.flatten()
        lengths.append(np.diff(list_offsets(patterns)))
        pairs.append(int_values(batch.column(PAIRS)))
        for at, parts in enumerate(columns.values()):
            parts.append(int_values(flat.field(at)).astype(np.int32 if at == 0 else np.float64))
    position = _joined(columns.pop("position"))
    known = known_positions(np.unique(position).tolist()) if positions is None else list(positions)
    number = np.searchsorted(np.array(known, dtype=np.int32), position)
    shown, clicked = (_joined(columns.pop(name)).astype(np.float64, copy=False) for name in ("shown", "clicked"))
    pattern = query_of_rows(to_offsets(_joined(lengths)))
    return kernels.Cells(pattern, number, shown, clicked, _joined(pairs).astype(np.float64)), known


def known_positions(position: Iterable[int]) -> list[int]:
    """Different positions, sorted; the first position is always included."""
    found = {1, *position}
    if len(found) > MAX_POSITIONS:
        raise InputRefusedError(f"the log has more than {MAX_POSITIONS:,} different positions; leave deep ones out.")
    return sorted(found)


def _joined(parts: list[Any]) -> Any:
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


def fit_row(
    method: str,
    positions: list[int],
    totals: kernels.Totals,
    n_patterns: tuple[int, int],
    model: kernels.ClickModel | None,
    sums: IntArray,
) -> dict[str, Any]:
    """Describe a fit as a row of `FIT_SCHEMA`; `n_patterns` are all, and the fitted ones.

    `model` is that of `pbm`; `sums`, shape (n_positions, 2, N_LIMBS), are those of `pairs`, and ignored otherwise.
    """
    if model is not None:
        ratio = model.ratio
    else:
        ratio = kernels.pair_propensities(sums) if method == "pairs" else kernels.randomized_propensities(totals)
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
        "n_patterns": n_patterns[0],
        "n_fitted": n_patterns[1],
        "n_iterations": None if model is None else max(len(model.log_likelihood) - 1, 0),
        "converged": None if model is None else model.converged,
        "log_likelihood": None if model is None else model.log_likelihood.tolist(),
    }


def _reason(ratio: float | None, totals: kernels.Totals, at: int, method: str) -> str | None:
    """Why a position has no propensity, or another than its ratio; None otherwise."""
    if ratio is not None:
        if not totals.clicked[at] or not ratio:
            return "no_clicks"
        return "above_1" if ratio > 1 else None
    if not totals.shown[0]:
        return "first_not_shown"
    if not totals.clicked[0]:
        return "first_not_clicked"
    return {"pbm": "no_chain", "pairs": "no_pairs"}[method]


GROUP_KEYS = ("run", "segment_by", "segment")
_PARTS = ("", "_std_error", "_ci_low", "_ci_high")
ESTIMATES = (*[f"ips{part}" for part in _PARTS], *[f"snips{part}" for part in _PARTS], "n_eff")
OF, REASON = "propensity_of", "snips_reason"
MIXED = "mixed"
"""Value of `propensity_of` of kernels.estimates of both kinds that were merged."""
REASONS = {"position": "propensities_of_positions", MIXED: "propensities_of_both_kinds"}
"""Why there is no SNIPS, by `propensity_of`."""
MOST_GROUPS_HELD = 50_000
_COUNTS = ("n_queries", "n_impressions")


def add_up(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Add up queries (`a`, `b`, `ww`: see `query_states`): a state per group, rarely two."""
    sums = GroupSums(GROUP_KEYS, MOST_GROUPS_HELD)
    for batch in batches:
        keys = {name: batch.column(name).cast(pa.string()) for name in GROUP_KEYS}
        ones, n_impressions = np.ones(batch.num_rows, dtype=np.int64), int_values(batch.column("n_impressions"))
        a, b, ww = (float_values(batch.column(name))[0] for name in ("a", "b", "ww"))
        limbs = limb_columns("state", kernels.query_states(a, b, ww))
        sums.add(keys, dict(zip(_COUNTS, (ones, n_impressions), strict=True)) | limbs)
        yield from _partial_batches(sums.flush())
    yield from _partial_batches(sums.flush(at_end=True))


def _partial_batches(tables: Iterator[pa.Table]) -> Iterator[pa.RecordBatch]:
    for table in tables:
        states = kernels.MOMENTS.states(read_limbs(table, "state"), table.num_rows)
        columns = {name: table.column(name) for name in (*GROUP_KEYS, *_COUNTS)}
        yield from pa.table({**columns, "state": state_column(states)}).to_batches()


def estimate_groups(batches: Iterator[pa.RecordBatch], confidence: float) -> Iterator[pa.RecordBatch]:
    """Estimate from keys, counts, `propensity_of` and `states`; rounds each number once."""
    for batch in batches:
        size = kernels.MOMENTS.size
        states = merge_states(read_states(batch.column("states"), size), size)
        n_queries = int_values(batch.column("n_queries")).tolist()
        found = [
            kernels.estimates(state, n, confidence=confidence) for state, n in zip(states, n_queries, strict=True)
        ]
        reasons = [REASONS.get(kind) for kind in batch.column(OF).to_pylist()]
        values = [
            (*one.ips, *(kernels.NO_ESTIMATE if reason else one.snips), one.n_eff)
            for one, reason in zip(found, reasons, strict=True)
        ]
        columns = {name: batch.column(name) for name in (*GROUP_KEYS, *_COUNTS)}
        for at, name in enumerate(ESTIMATES):
            columns[name] = pa.array([its[at] for its in values], pa.float64())
        columns |= {OF: batch.column(OF), REASON: pa.array(reasons, pa.string()), "state": state_column(states)}
        yield pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
