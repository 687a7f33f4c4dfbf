"""Fit propensities to counts of impressions and clicks, and estimate by inverse propensities."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ndcg_spark.clicks import kernels
from ndcg_spark.clicks.settings import MAX_CELLS, MAX_POSITIONS, PropensitySettings
from ndcg_spark.core.batches import float_values, int_values, list_offsets, make_row_lists
from ndcg_spark.core.exact import N_LIMBS
from ndcg_spark.core.ragged import BoolArray, IntArray, query_of_rows, to_offsets
from ndcg_spark.core.sums import GroupSums, limb_columns, merge_states, read_limbs, read_states
from ndcg_spark.errors import InputRefusedError

PATTERN, PAIRS, HASH = "cells", "pairs", "hash"
"""Sorted list of struct<position, shown, clicked>; number of (query, item) with this list; hash of the list."""
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
    """Fit all patterns; yield one row of `FIT_SCHEMA`.

    EM needs many steps, so it holds its patterns: all, or a sample with at most `limit` counts. The other methods
    only hold sums.
    """
    patterns = _PatternTotals(settings.method, limit)
    for batch in batches:
        patterns.add(batch)
    yield pa.RecordBatch.from_pylist([patterns.fit(settings)], schema=FIT_SCHEMA)


class _PatternTotals:
    """Counts of all patterns of a log, and for EM the patterns themselves.

    If the patterns have too many counts, they are sampled: a pattern of n (query, item) stays if its hash, as a
    number below 1, is below n / 2^level, and counts as at least 2^level (query, item). Frequent patterns therefore
    always stay, sums over the sample are unbiased, and the sample does not depend on the order of patterns.
    """

    def __init__(self, method: str, limit: int) -> None:
        self._method, self._limit, self._level = method, limit, 0
        self._held: list[pa.RecordBatch] = []
        self._n_cells = self.n_patterns = 0
        self._counts: dict[int, IntArray] = {}
        self._sums: dict[int, IntArray] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        cells, positions = concat_patterns([batch])
        self.n_patterns += batch.num_rows
        totals = kernels.count_totals(cells, len(positions))
        _add_by_key(self._counts, positions, np.stack([totals.shown, totals.clicked], axis=1))
        if self._method == "pairs":
            _add_by_key(self._sums, positions, kernels.sum_pairs(cells, len(positions)))
        if self._method == "pbm":
            self._hold([batch.select([PATTERN, PAIRS, HASH])])

    def _hold(self, batches: list[pa.RecordBatch]) -> None:
        sampled = batches
        if self._level:
            sampled = [batch.filter(pa.array(_is_sampled(batch, self._level))) for batch in batches]
        self._n_cells += sum(len(batch.column(PATTERN).flatten()) for batch in sampled)
        self._held += sampled
        if self._n_cells > self._limit:
            held, self._held, self._n_cells = self._held, [], 0
            self._level += 1
            self._hold(held)

    def fit(self, settings: PropensitySettings) -> dict[str, Any]:
        """Fit the patterns; return a row of `FIT_SCHEMA`."""
        positions = collect_positions(self._counts)
        shown, clicked = _select_sums(self._counts, positions, (2,)).T
        totals, n_fitted = kernels.Totals(shown, clicked, np.arange(len(positions))), self.n_patterns
        model, sums = None, _select_sums(self._sums, positions, (2, N_LIMBS))
        if settings.method == "pbm":
            cells, _ = concat_patterns(self._held, positions)
            n_fitted = len(cells.pairs)
            cells = cells._replace(pairs=np.maximum(cells.pairs, 2.0**self._level))
            fitted = kernels.count_totals(cells, len(positions))
            step = kernels.Expectation(cells, len(positions), int(fitted.shown.sum())).step
            model = kernels.fit_click_model(fitted, step, tolerance=settings.tolerance, max_iter=settings.max_iter)
        return build_fit_row(settings.method, positions, totals, (self.n_patterns, n_fitted), model, sums)


def _is_sampled(batch: pa.RecordBatch, level: int) -> BoolArray:
    number = (int_values(batch.column(HASH)).view(np.uint64) >> np.uint64(11)) * 2.0**-53
    return np.asarray(number * 2.0**level < int_values(batch.column(PAIRS)))


def _add_by_key(sums: dict[int, IntArray], keys: Sequence[int], values: IntArray) -> None:
    for key, value in zip(keys, values, strict=True):
        sums[key] = sums[key] + value if key in sums else value


def _select_sums(sums: dict[int, IntArray], positions: Sequence[int], shape: tuple[int, ...]) -> IntArray:
    """Return the sums of positions, zeros for positions without sums."""
    zeros = np.zeros(shape, dtype=np.int64)
    return np.array([sums.get(position, zeros) for position in positions])


def concat_patterns(
    batches: Sequence[pa.RecordBatch], positions: Sequence[int] | None = None
) -> tuple[kernels.Cells, list[int]]:
    """Concatenate the patterns of batches; return cells with numbered positions, and the position of each number."""
    # Concatenate one column after the other, so that memory holds only one column twice.
    lengths: list[Any] = []
    pairs: list[Any] = []
    columns: dict[str, list[Any]] = {"position": [], "shown": [], "clicked": []}
    for batch in batches:
        patterns = batch.column(PATTERN)
        flat = patterns.flatten()
        lengths.append(np.diff(list_offsets(patterns)))
        pairs.append(int_values(batch.column(PAIRS)))
        for field, parts in enumerate(columns.values()):
            parts.append(int_values(flat.field(field)).astype(np.int32 if field == 0 else np.float64))
    position = _concat(columns.pop("position"))
    known = collect_positions(np.unique(position).tolist()) if positions is None else list(positions)
    number = np.searchsorted(np.array(known, dtype=np.int32), position)
    shown, clicked = (_concat(columns.pop(name)).astype(np.float64, copy=False) for name in ("shown", "clicked"))
    pattern = query_of_rows(to_offsets(_concat(lengths)))
    return kernels.Cells(pattern, number, shown, clicked, _concat(pairs).astype(np.float64)), known


def collect_positions(position: Iterable[int]) -> list[int]:
    """Return the distinct positions, sorted; position 1 is always included."""
    positions = {1, *position}
    if len(positions) > MAX_POSITIONS:
        raise InputRefusedError(f"the log has more than {MAX_POSITIONS:,} different positions; remove deep ones.")
    return sorted(positions)


def _concat(parts: list[Any]) -> Any:
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


def build_fit_row(
    method: str,
    positions: list[int],
    totals: kernels.Totals,
    n_patterns: tuple[int, int],
    model: kernels.ClickModel | None,
    sums: IntArray,
) -> dict[str, Any]:
    """Build the row of `FIT_SCHEMA` of a fit; `n_patterns` counts all patterns and the fitted patterns.

    `model` is None unless the method is `pbm`; `sums`, shape (n_positions, 2, N_LIMBS), is read for `pairs` only.
    """
    if model is not None:
        ratio = model.ratio
    else:
        ratio = kernels.estimate_from_pairs(sums) if method == "pairs" else kernels.estimate_from_randomized(totals)
    rows = []
    for index in np.flatnonzero(totals.shown).tolist():
        value = None if np.isnan(ratio[index]) else float(ratio[index])
        reason = _find_reason(value, totals, index, method)
        rows.append(
            {
                "position": int(positions[index]),
                "propensity": None if value is None or reason == "no_clicks" else min(value, 1.0),
                "ratio": value,
                "reason": reason,
                "n_impressions": int(totals.shown[index]),
                "n_clicks": int(totals.clicked[index]),
            }
        )
    return {
        "method": method,
        "positions": rows,
        "n_patterns": n_patterns[0],
        "n_fitted": n_patterns[1],
        "n_iterations": None if model is None else max(len(model.log_likelihood) - 1, 0),
        "converged": None if model is None else model.converged,
        "log_likelihood": None if model is None else model.log_likelihood.tolist(),
    }


def _find_reason(ratio: float | None, totals: kernels.Totals, index: int, method: str) -> str | None:
    """Return why a position has no propensity, or one that differs from its ratio; None otherwise."""
    if ratio is not None:
        if not totals.clicked[index] or not ratio:
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
PROPENSITY_OF, REASON = "propensity_of", "snips_reason"
MIXED = "mixed"
"""Value of `propensity_of` after merging estimates of both kinds."""
REASONS = {"position": "propensities_of_positions", MIXED: "propensities_of_both_kinds"}
"""Reason why SNIPS is null, by `propensity_of`."""
MAX_GROUPS_HELD = 50_000
_COUNTS = ("n_queries", "n_impressions")


def add_up(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Add up the columns `a`, `b` and `ww` of queries (see `compute_query_states`); yield states of groups."""
    sums = GroupSums(GROUP_KEYS, MAX_GROUPS_HELD)
    for batch in batches:
        keys = {column: batch.column(column).cast(pa.string()) for column in GROUP_KEYS}
        ones, n_impressions = np.ones(batch.num_rows, dtype=np.int64), int_values(batch.column("n_impressions"))
        a, b, ww = (float_values(batch.column(column))[0] for column in ("a", "b", "ww"))
        limbs = limb_columns("state", kernels.compute_query_states(a, b, ww))
        sums.add(keys, dict(zip(_COUNTS, (ones, n_impressions), strict=True)) | limbs)
        yield from _build_batches(sums.flush())
    yield from _build_batches(sums.flush(at_end=True))


def _build_batches(tables: Iterator[pa.Table]) -> Iterator[pa.RecordBatch]:
    for table in tables:
        states = kernels.MOMENTS.states(read_limbs(table, "state"), table.num_rows)
        columns = {column: table.column(column) for column in (*GROUP_KEYS, *_COUNTS)}
        yield from pa.table({**columns, "state": make_row_lists(states)}).to_batches()


def estimate_groups(batches: Iterator[pa.RecordBatch], confidence: float) -> Iterator[pa.RecordBatch]:
    """Compute the estimates of groups from their counts, `propensity_of` and `states`; rounds each number once."""
    for batch in batches:
        size = kernels.MOMENTS.size
        states = merge_states(read_states(batch.column("states"), size), size)
        n_queries = int_values(batch.column("n_queries")).tolist()
        estimates = [
            kernels.compute_estimates(state, n, confidence=confidence)
            for state, n in zip(states, n_queries, strict=True)
        ]
        reasons = [REASONS.get(kind) for kind in batch.column(PROPENSITY_OF).to_pylist()]
        values = [
            (*estimate.ips, *(kernels.NO_ESTIMATE if reason else estimate.snips), estimate.n_eff)
            for estimate, reason in zip(estimates, reasons, strict=True)
        ]
        columns = {column: batch.column(column) for column in (*GROUP_KEYS, *_COUNTS)}
        for number, column in enumerate(ESTIMATES):
            columns[column] = pa.array([row[number] for row in values], pa.float64())
        columns |= {
            PROPENSITY_OF: batch.column(PROPENSITY_OF),
            REASON: pa.array(reasons, pa.string()),
            "state": make_row_lists(states),
        }
        yield pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
