"""Weighted clicks of queries to exact states, and estimates from those states."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from ndcg_spark.clicks.kernels.propensity import NO_ESTIMATE, STATE_SIZE, WeightedEstimate, estimates, query_states
from ndcg_spark.core.batches import BatchFunction, batch_function, float_values, int_values
from ndcg_spark.core.ragged import IntArray

GROUP_KEYS = ("run", "segment_by", "segment")
_PARTS = ("", "_std_error", "_ci_low", "_ci_high")
ESTIMATES = (*[f"ips{part}" for part in _PARTS], *[f"snips{part}" for part in _PARTS], "n_eff")
OF, REASON = "propensity_of", "snips_reason"
MIXED = "mixed"
"""Value of `propensity_of` of estimates of both kinds that were merged."""
REASONS = {"position": "propensities_of_positions", MIXED: "propensities_of_both_kinds"}
"""Why there is no SNIPS, by `propensity_of`."""
MOST_GROUPS_HELD = 50_000
_Group = tuple[str | None, ...]


class _Sums:
    """State and counts of one group."""

    def __init__(self) -> None:
        self.state = np.zeros(STATE_SIZE, dtype=np.int64)
        self.n_queries = self.n_impressions = 0


def make_partial_summer() -> BatchFunction:
    """Build the function from queries (`a`, `b`, `ww`, see `kernels.propensity`) to a state per group, rarely two."""

    def add_up(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held: dict[_Group, _Sums] = {}
        for batch in batches:
            _add(batch, held)
            if len(held) > MOST_GROUPS_HELD:
                yield _partial(held)
                held = {}
        if held:
            yield _partial(held)

    return batch_function(add_up)


def _add(batch: pa.RecordBatch, held: dict[_Group, _Sums]) -> None:
    columns = [batch.column(name).cast(pa.string()).dictionary_encode() for name in GROUP_KEYS]
    codes = [its.indices.fill_null(-1).to_numpy(zero_copy_only=False) for its in columns]
    groups, group = np.unique(np.stack(codes), axis=1, return_inverse=True)
    group = group.reshape(-1)  # its shape changed from version to version of NumPy
    a, b, ww = (float_values(batch.column(name))[0] for name in ("a", "b", "ww"))
    states = np.zeros((groups.shape[1], STATE_SIZE), dtype=np.int64)
    for at, limb in query_states(a, b, ww).items():
        np.add.at(states[:, at], group, limb)
    counts = np.zeros((groups.shape[1], 2), dtype=np.int64)
    np.add.at(counts[:, 0], group, 1)
    np.add.at(counts[:, 1], group, int_values(batch.column("n_impressions")))
    for number, codes_of in enumerate(groups.T.tolist()):
        key = tuple(
            None if code < 0 else its.dictionary[code].as_py() for its, code in zip(columns, codes_of, strict=True)
        )
        sums = held.setdefault(key, _Sums())
        sums.state += states[number]
        sums.n_queries += int(counts[number, 0])
        sums.n_impressions += int(counts[number, 1])


def _partial(held: dict[_Group, _Sums]) -> pa.RecordBatch:
    columns = {name: pa.array([key[at] for key in held], pa.string()) for at, name in enumerate(GROUP_KEYS)}
    columns["n_queries"] = pa.array([its.n_queries for its in held.values()], pa.int64())
    columns["n_impressions"] = pa.array([its.n_impressions for its in held.values()], pa.int64())
    columns["state"] = _states(np.array([its.state for its in held.values()]))
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _states(states: IntArray) -> pa.Array:
    return pa.array(states.tolist(), pa.list_(pa.int64()))


def make_estimator(confidence: float) -> BatchFunction:
    """Build the function from keys, counts, `propensity_of` and `states` to estimates; rounds each number once."""

    def finish(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield _estimated(batch, confidence)

    return batch_function(finish)


def _estimated(batch: pa.RecordBatch, confidence: float) -> pa.RecordBatch:
    states = np.zeros((batch.num_rows, STATE_SIZE), dtype=np.int64)
    for row, parts in enumerate(batch.column("states")):
        states[row] = int_values(parts.values.flatten()).reshape(-1, STATE_SIZE).sum(axis=0)
    n_queries = int_values(batch.column("n_queries")).tolist()
    found = [estimates(state, n, confidence=confidence) for state, n in zip(states, n_queries, strict=True)]
    reasons = [REASONS.get(kind) for kind in batch.column(OF).to_pylist()]
    values = [
        (*_numbers(one.ips), *_numbers(NO_ESTIMATE if reason else one.snips), one.n_eff)
        for one, reason in zip(found, reasons, strict=True)
    ]
    columns = {name: batch.column(name) for name in (*GROUP_KEYS, "n_queries", "n_impressions")}
    for at, name in enumerate(ESTIMATES):
        columns[name] = pa.array([its[at] for its in values], pa.float64())
    columns |= {OF: batch.column(OF), REASON: pa.array(reasons, pa.string()), "state": _states(states)}
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _numbers(one: WeightedEstimate) -> tuple[float | None, ...]:
    return one.value, one.std_error, one.ci_low, one.ci_high
