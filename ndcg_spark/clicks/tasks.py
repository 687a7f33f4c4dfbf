"""Cells of impressions and clicks to propensities, and estimates by inverse propensities."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from ndcg_spark.clicks import kernels
from ndcg_spark.clicks.settings import MAX_CELLS, MAX_POSITIONS, PropensitySettings
from ndcg_spark.core.batches import float_values, int_values, list_offsets
from ndcg_spark.core.exact import N_LIMBS
from ndcg_spark.core.ragged import BoolArray, IntArray, offsets_of, query_of_rows
from ndcg_spark.errors import InputRefusedError

K = TypeVar("K")
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


def _add(sums: dict[K, IntArray], keys: Sequence[K], values: IntArray) -> None:
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
    pattern = query_of_rows(offsets_of(_joined(lengths)))
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
_Group = tuple[str | None, ...]


def add_up(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Add up queries (`a`, `b`, `ww`: see `query_states`): a state per group, rarely two."""
    held: dict[_Group, IntArray] = {}
    for batch in batches:
        _add_batch(batch, held)
        if len(held) > MOST_GROUPS_HELD:
            yield _partial(held)
            held = {}
    if held:
        yield _partial(held)


def _add_batch(batch: pa.RecordBatch, held: dict[_Group, IntArray]) -> None:
    """Add the numbers of queries and impressions and the states of a batch, by group."""
    columns = [batch.column(name).cast(pa.string()).dictionary_encode() for name in GROUP_KEYS]
    codes = [its.indices.fill_null(-1).to_numpy(zero_copy_only=False) for its in columns]
    groups, group = np.unique(np.stack(codes), axis=1, return_inverse=True)
    group = group.reshape(-1)  # its shape changed from version to version of NumPy
    a, b, ww = (float_values(batch.column(name))[0] for name in ("a", "b", "ww"))
    sums = np.zeros((groups.shape[1], 2 + kernels.MOMENTS.size), dtype=np.int64)
    np.add.at(sums[:, 0], group, 1)
    np.add.at(sums[:, 1], group, int_values(batch.column("n_impressions")))
    for at, limb in kernels.query_states(a, b, ww).items():
        np.add.at(sums[:, 2 + at], group, limb)
    keys = [
        tuple(None if code < 0 else its.dictionary[code].as_py() for its, code in zip(columns, key, strict=True))
        for key in groups.T.tolist()
    ]
    _add(held, keys, sums)


def _partial(held: dict[_Group, IntArray]) -> pa.RecordBatch:
    columns = {name: pa.array([key[at] for key in held], pa.string()) for at, name in enumerate(GROUP_KEYS)}
    sums = np.array(list(held.values()))
    columns |= {"n_queries": pa.array(sums[:, 0]), "n_impressions": pa.array(sums[:, 1])}
    return pa.RecordBatch.from_pydict({**columns, "state": _states(sums[:, 2:])})


def _states(states: IntArray) -> pa.Array:
    return pa.array(states.tolist(), pa.list_(pa.int64()))


def estimate_groups(batches: Iterator[pa.RecordBatch], confidence: float) -> Iterator[pa.RecordBatch]:
    """Estimate from keys, counts, `propensity_of` and `states`; rounds each number once."""
    for batch in batches:
        states = np.zeros((batch.num_rows, kernels.MOMENTS.size), dtype=np.int64)
        for row, parts in enumerate(batch.column("states")):
            states[row] = int_values(parts.values.flatten()).reshape(-1, kernels.MOMENTS.size).sum(axis=0)
        n_queries = int_values(batch.column("n_queries")).tolist()
        found = [
            kernels.estimates(state, n, confidence=confidence) for state, n in zip(states, n_queries, strict=True)
        ]
        reasons = [REASONS.get(kind) for kind in batch.column(OF).to_pylist()]
        values = [
            (*one.ips, *(kernels.NO_ESTIMATE if reason else one.snips), one.n_eff)
            for one, reason in zip(found, reasons, strict=True)
        ]
        columns = {name: batch.column(name) for name in (*GROUP_KEYS, "n_queries", "n_impressions")}
        for at, name in enumerate(ESTIMATES):
            columns[name] = pa.array([its[at] for its in values], pa.float64())
        columns |= {OF: batch.column(OF), REASON: pa.array(reasons, pa.string()), "state": _states(states)}
        yield pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
