"""Per-query rows of several runs in, the queries with the values of all runs side by side out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ndcg_spark.comparison.kernels import WordArray
from ndcg_spark.comparison.settings import ComparisonSettings
from ndcg_spark.core import labels
from ndcg_spark.core.batches import cast_large_types, concat_batches, float_values, get_value, int_values, to_flags
from ndcg_spark.core.ragged import BoolArray, FloatArray, IntArray
from ndcg_spark.errors import InputRefusedError, option
from ndcg_spark.evaluation.rules import RULES

UNIT, SOLO, QUERY, CLUSTER, RUN, K, IDCG, WEIGHT, MISSING = (
    "unit", "solo", "query", "cluster", "run", "k", "idcg", "weight", "missing",
)  # fmt: skip
SAME_RULES = "="
"""Stands for the rules of the settings, so that rows need not carry their text."""
UNWEIGHTED = f"{option('weight', repr(''))} compares without weights"
TOP_ITEMS = ("__top_items", "__judged_items")
"""Columns of rows of queries: items among the first k, and those of them that are judged."""
PAIR = "__pair"
"""Part of the query key by which pairs of nights are told apart; it tells a person nothing."""
CHUNK_ROWS = 2**17
_WHOLE_LIST = -1
"""Stands for a null k."""


def key_column(number: int) -> str:
    return f"key_{number}"


def value_column(number: int) -> str:
    return f"value_{number}"


def segment_column(number: int) -> str:
    return f"segment_{number}"


def order_of_units(settings: ComparisonSettings) -> list[str]:
    """Columns by which rows are sorted that are added up."""
    return [UNIT] if settings.cluster is None else [UNIT, SOLO, QUERY]


@dataclass(frozen=True, slots=True, kw_only=True)
class Queries:
    """Queries of a chunk; `n` of them, with K cutoffs and R runs.

    `units` are hashes of the unit that is drawn, the query or its cluster; queries of a unit lie together. With
    clusters, `solo` tells whether the query has none, and so is one by itself. `present`, `missed` (a row says that
    the run misses it) and each metric of `values` have shape (n, K, R); a value is NaN where it is null or its row
    is not there. `rows` has a row of each query, for messages. `rules` are those of any row, empty where unknown.
    `top_items` has counts as in `TOP_ITEMS`, of shape (2, n, K, R); None where rows do not tell.
    """

    units: WordArray
    solo: BoolArray | None
    cutoffs: tuple[int | None, ...]
    present: BoolArray
    missed: BoolArray
    values: tuple[FloatArray, ...]
    weights: FloatArray | None
    segments: dict[str, pa.Array]
    rows: pa.RecordBatch
    rules: frozenset[str]
    top_items: IntArray | None = None


def unify_queries(
    batches: Iterator[pa.RecordBatch], settings: ComparisonSettings, chunk_rows: int = CHUNK_ROWS
) -> Iterator[pa.RecordBatch]:
    """Check the rows of each query, sorted by query, and set its cluster, weight and segments in all of them.

    The result must be sorted by unit.
    """
    for rows in whole_units(batches, QUERY, chunk_rows):
        ids, chosen = _checked(rows, settings)
        columns = {name: rows.column(name) for name in rows.schema.names if name != CLUSTER}
        shared = {name: rows.column(name).take(pa.array(its[ids])) for name, its in chosen.items()}
        cluster = shared.pop(CLUSTER)
        columns |= shared
        columns[UNIT] = pc.coalesce(cluster, rows.column(QUERY))
        columns[SOLO] = cluster.is_null()
        yield pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def whole_units(
    batches: Iterator[pa.RecordBatch], key: str, chunk_rows: int = CHUNK_ROWS
) -> Iterator[pa.RecordBatch]:
    """Put batches together to chunks of about `chunk_rows` rows that end where a value of the key column ends."""
    held: list[pa.RecordBatch] = []
    n_held = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        held.append(cast_large_types(batch))
        n_held += batch.num_rows
        if n_held >= chunk_rows:
            rows = concat_batches(held)
            keys = int_values(rows.column(key))
            end = int(np.flatnonzero(keys != keys[-1])[-1]) + 1 if keys[0] != keys[-1] else 0
            if end:
                yield rows.slice(0, end)
            held = [rows.slice(end)]
            n_held = rows.num_rows - end if end else 0  # a unit that fills a chunk: wait for as many rows again
    if held:
        yield concat_batches(held)


def read_queries(rows: pa.RecordBatch, settings: ComparisonSettings) -> Queries:
    """Put the rows of each query side by side; refuse what does not fit together.

    The rows are canonical and sorted by unit, and all rows of a query are there.
    """
    ids, chosen = _checked(rows, settings)
    first = np.unique(ids, return_index=True)[1]
    n = len(first)
    cutoffs, k_codes = np.unique(int_values(pc.fill_null(rows.column(K), _WHOLE_LIST)), return_inverse=True)
    shape = (n, len(cutoffs), len(settings.runs))
    cells = (ids * shape[1] + k_codes) * shape[2] + int_values(rows.column(RUN))
    _refuse_repeats(rows, cells, settings)
    present = np.zeros(n * shape[1] * shape[2], dtype=np.bool_)
    present[cells] = True
    missed = np.zeros_like(present)
    if MISSING in rows.schema.names:
        missed[cells] = to_flags(rows.column(MISSING))

    def spread(column: str) -> FloatArray:
        values, known = float_values(rows.column(column))
        found = np.full(len(present), np.nan)
        found[cells] = np.where(known, values, np.nan)
        return found.reshape(shape)

    if IDCG in rows.schema.names:
        _refuse_ideals(rows, spread(IDCG), ids, settings)
    from_row = pa.array(first)
    values = tuple(spread(value_column(number)) for number in range(len(settings.compared)))
    weights = None
    if WEIGHT in rows.schema.names:
        has_value = np.logical_or.reduce([~np.isnan(its).all(axis=(1, 2)) for its in values])
        weights = _weights(rows, chosen[WEIGHT], has_value, settings)
    top_items = None
    if TOP_ITEMS[0] in rows.schema.names:
        top_items = np.zeros((len(TOP_ITEMS), *shape), dtype=np.int64)
        for counts, name in zip(top_items.reshape(len(TOP_ITEMS), -1), TOP_ITEMS, strict=True):
            counts[cells] = int_values(pc.fill_null(rows.column(name), 0))
    texts = pc.unique(rows.column(RULES)).to_pylist() if settings.rules_in_rows else [SAME_RULES]
    return Queries(
        units=int_values(rows.column(UNIT).take(from_row)).view(np.uint64),
        solo=to_flags(rows.column(SOLO).take(from_row)) if SOLO in rows.schema.names else None,
        cutoffs=tuple(None if k == _WHOLE_LIST else int(k) for k in cutoffs),
        present=present.reshape(shape),
        missed=missed.reshape(shape),
        values=values,
        weights=weights,
        segments={
            name: rows.column(segment_column(number)).take(pa.array(chosen[segment_column(number)]))
            for number, name in enumerate(settings.segment_columns)
        },
        rows=rows.select([key_column(number) for number in range(len(settings.query))]).take(from_row),
        rules=frozenset(settings.rules if text == SAME_RULES else text or "" for text in texts),
        top_items=top_items,
    )


def _checked(rows: pa.RecordBatch, settings: ComparisonSettings) -> tuple[IntArray, dict[str, IntArray]]:
    """Number the query of each row; and for each column that runs share, choose the row that has a query's value."""
    ids = _query_ids(rows, settings)
    n_rows, missing = rows.num_rows, np.zeros(rows.num_rows, dtype=np.bool_)
    if MISSING in rows.schema.names:
        missing = to_flags(rows.column(MISSING))
    names = {WEIGHT: settings.weight, CLUSTER: settings.cluster}
    names |= {segment_column(number): name for number, name in enumerate(settings.segment_columns)}
    found: dict[str, IntArray] = {}
    for column, name in names.items():
        if column not in rows.schema.names:
            continue
        # A query that a run misses may lack what only that run's own rows would tell: rows of other runs, or what
        # judgments and other runs told another row that misses it.
        unknown = missing & to_flags(rows.column(column).is_null())
        rank = np.arange(n_rows) + n_rows * (missing.astype(np.int64) + unknown)
        chosen = np.full(int(ids[-1]) + 1 if n_rows else 0, 3 * n_rows, dtype=np.int64)
        np.minimum.at(chosen, ids, rank)
        found[column] = chosen % max(n_rows, 1)
        _refuse_differing(rows, column, str(name), (ids, found[column], missing), settings)
    return ids, found


def _query_ids(rows: pa.RecordBatch, settings: ComparisonSettings) -> IntArray:
    """Number queries from 0 on, in the order of the rows; keys decide where hashes collide."""
    keys = [rows.column(key_column(number)) for number in range(len(settings.query))]
    for column, name in zip(keys, settings.query, strict=True):
        if column.null_count:
            raise InputRefusedError(f"a row has no query: column {name!r} is null; leave such rows out.")
    starts = np.ones(rows.num_rows, dtype=np.bool_)
    starts[1:] = False
    for name in (UNIT, QUERY):
        if name in rows.schema.names:
            values = np.asarray(rows.column(name).to_numpy(zero_copy_only=False))
            starts[1:] |= values[1:] != values[:-1]
    ids = np.cumsum(starts) - 1
    first = pa.array(np.flatnonzero(starts)[ids])
    if all(pc.all(pc.equal(column, column.take(first))).as_py() for column in keys):
        return ids
    coded = [ids, *(int_values(column.dictionary_encode().indices) for column in keys)]
    return np.asarray(np.unique(np.column_stack(coded), axis=0, return_inverse=True)[1]).reshape(-1)


def _refuse_differing(
    rows: pa.RecordBatch,
    column: str,
    name: str,
    queries: tuple[IntArray, IntArray, BoolArray],
    settings: ComparisonSettings,
) -> None:
    ids, chosen, missing = queries
    encoded = rows.column(column).dictionary_encode()
    codes = int_values(pc.fill_null(encoded.indices, -1))
    differ = (codes != codes[chosen][ids]) & ~(missing & (codes < 0))
    if differ.any():
        row = int(np.flatnonzero(differ)[0])
        seen = [get_value(rows.column(column), at) for at in (int(chosen[ids[row]]), row)]
        shown = "" if column == CLUSTER else f" ({seen[0]!r} and {seen[1]!r})"
        way_out = f" ({UNWEIGHTED})" if column == WEIGHT else ""
        what = f"has two values of column {name!r}{shown}; it must be the same in all runs{way_out}"
        _refuse(rows, row, what, settings)


def _refuse_repeats(rows: pa.RecordBatch, cells: IntArray, settings: ComparisonSettings) -> None:
    if np.bincount(cells, minlength=1).max() <= 1:
        return
    order = np.argsort(cells, kind="stable")
    repeats = order[1:][cells[order][1:] == cells[order][:-1]]
    if len(repeats):
        row = int(repeats.min())
        run, k = settings.runs[rows.column(RUN)[row].as_py()], rows.column(K)[row].as_py()
        where = f"run {run!r} at k={labels.cutoff(k)}"
        _refuse(rows, row, f"comes twice in {where}; choose the rows of one night and data set", settings)


def _refuse_ideals(rows: pa.RecordBatch, ideals: FloatArray, ids: IntArray, settings: ComparisonSettings) -> None:
    low = np.where(np.isnan(ideals), np.inf, ideals).min(axis=2, initial=np.inf)
    high = np.where(np.isnan(ideals), -np.inf, ideals).max(axis=2, initial=-np.inf)
    differ = np.flatnonzero((low < high).any(axis=1))
    if len(differ):
        query = int(differ[0])
        row = int(np.flatnonzero(ids == query)[0])
        at = int(np.flatnonzero(low[query] < high[query])[0])
        ends = f"{low[query, at]:g} and {high[query, at]:g}"
        what = f"has two values of IDCG, {ends}: the runs were evaluated with different judgments"
        way_out = "give the relevances as one table for all runs"
        _refuse(rows, row, f"{what}; {way_out} ({option('judgments')})", settings)


def _weights(
    rows: pa.RecordBatch, chosen: IntArray, has_value: BoolArray, settings: ComparisonSettings
) -> FloatArray:
    """Weight of each query; 0 where it is unknown and no run has a value."""
    values, known = float_values(rows.column(WEIGHT))
    weights, known = values[chosen], known[chosen]
    bad = (~known & has_value) | ~(weights >= 0) | np.isinf(weights)
    if bad.any():
        row = int(chosen[np.flatnonzero(bad)[0]])
        seen = rows.column(WEIGHT)[row].as_py()
        _refuse(rows, row, f"has the weight {seen}; weights must be finite and not negative ({UNWEIGHTED})", settings)
    return weights


def _refuse(rows: pa.RecordBatch, row: int, what: str, settings: ComparisonSettings) -> NoReturn:
    raise InputRefusedError(f"query {query_text(rows, row, settings.query)} {what}.")


def query_text(rows: pa.RecordBatch, row: int, names: Sequence[str]) -> str:
    """Name the query of a row for a person: `query_id=7`."""
    columns = {name: rows.column(key_column(at)) for at, name in enumerate(names) if name != PAIR}
    return labels.key({name: get_value(column, row) for name, column in columns.items()})
