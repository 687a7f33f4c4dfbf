"""Pair per-query rows: read rows of several runs, and put the values of all runs of a query side by side."""

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

UNIT, UNCLUSTERED, QUERY, CLUSTER, RUN, K, IDCG, WEIGHT, MISSING = (
    "unit", "unclustered", "query", "cluster", "run", "k", "idcg", "weight", "missing",
)  # fmt: skip
SAME_RULES = "="
"""Short text for the rules of the settings, so that rows need not carry the long one."""
UNWEIGHTED = f"{option('weight', repr(''))} compares without weights"
TOP_ITEM_COLUMNS = ("__top_items", "__judged_items")
"""Columns of query rows: the number of items among the first k, and how many of them are judged."""
PAIR = "__pair"
"""Part of the query key that separates pairs of nights; not shown in messages."""
CHUNK_ROWS = 2**17
_WHOLE_LIST = -1
"""Code of a null k."""


def key_column(number: int) -> str:
    return f"key_{number}"


def value_column(number: int) -> str:
    return f"value_{number}"


def segment_column(number: int) -> str:
    return f"segment_{number}"


def list_sort_columns(settings: ComparisonSettings) -> list[str]:
    """List the columns that rows must be sorted by before they are added up."""
    return [UNIT] if settings.cluster is None else [UNIT, UNCLUSTERED, QUERY]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryChunk:
    """The `n` queries of a chunk, with K cutoffs and R runs.

    `units` are the hashes of the resampled units, which are queries or clusters; queries of a unit are adjacent. With
    clusters, `unclustered` marks queries without a cluster, each of which is a unit. `has_row`, `is_missing` (the row
    has status `missing`) and each metric of `values` have shape (n, K, R); a value is NaN if it is null or has no
    row. `rows` has one row per query, for messages. `rules` are the rules of all rows, an empty text if unknown.
    `top_items` has the counts of `TOP_ITEM_COLUMNS`, shape (2, n, K, R); None if rows do not have them.
    """

    units: WordArray
    unclustered: BoolArray | None
    cutoffs: tuple[int | None, ...]
    has_row: BoolArray
    is_missing: BoolArray
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

    The rows it yields must then be sorted by unit.
    """
    for rows in group_whole_units(batches, QUERY, chunk_rows):
        ids, chosen_rows = _check_rows(rows, settings)
        columns = {column: rows.column(column) for column in rows.schema.names if column != CLUSTER}
        shared = {
            column: rows.column(column).take(pa.array(row_of_query[ids]))
            for column, row_of_query in chosen_rows.items()
        }
        cluster = shared.pop(CLUSTER)
        columns |= shared
        columns[UNIT] = pc.coalesce(cluster, rows.column(QUERY))
        columns[UNCLUSTERED] = cluster.is_null()
        yield pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def group_whole_units(
    batches: Iterator[pa.RecordBatch], key: str, chunk_rows: int = CHUNK_ROWS
) -> Iterator[pa.RecordBatch]:
    """Yield chunks of about `chunk_rows` rows, sorted by key; rows with the same key stay in one chunk."""
    pending: list[pa.RecordBatch] = []
    n_pending = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        pending.append(cast_large_types(batch))
        n_pending += batch.num_rows
        if n_pending >= chunk_rows:
            rows = concat_batches(pending)
            keys = int_values(rows.column(key))
            end = int(np.flatnonzero(keys != keys[-1])[-1]) + 1 if keys[0] != keys[-1] else 0
            if end:
                yield rows.slice(0, end)
            pending = [rows.slice(end)]
            # If all rows have one key, read another `chunk_rows` rows before the next check.
            n_pending = rows.num_rows - end if end else 0
    if pending:
        yield concat_batches(pending)


def read_queries(rows: pa.RecordBatch, settings: ComparisonSettings) -> QueryChunk:
    """Put the values of each query's runs side by side; refuse rows that contradict each other.

    Rows have the columns of a `QueriesPlan`, are sorted by unit, and include all rows of each query.
    """
    ids, chosen_rows = _check_rows(rows, settings)
    first = np.unique(ids, return_index=True)[1]
    n = len(first)
    cutoffs, k_codes = np.unique(int_values(pc.fill_null(rows.column(K), _WHOLE_LIST)), return_inverse=True)
    shape = (n, len(cutoffs), len(settings.runs))
    cells = (ids * shape[1] + k_codes) * shape[2] + int_values(rows.column(RUN))
    _refuse_repeats(rows, cells, settings)
    has_row = np.zeros(n * shape[1] * shape[2], dtype=np.bool_)
    has_row[cells] = True
    is_missing = np.zeros_like(has_row)
    if MISSING in rows.schema.names:
        is_missing[cells] = to_flags(rows.column(MISSING))

    def to_cells(column: str) -> FloatArray:
        values, known = float_values(rows.column(column))
        cell_values = np.full(len(has_row), np.nan)
        cell_values[cells] = np.where(known, values, np.nan)
        return cell_values.reshape(shape)

    if IDCG in rows.schema.names:
        _refuse_differing_ideals(rows, to_cells(IDCG), ids, settings)
    from_row = pa.array(first)
    values = tuple(to_cells(value_column(number)) for number in range(len(settings.compared)))
    weights = None
    if WEIGHT in rows.schema.names:
        has_value = np.logical_or.reduce([~np.isnan(metric_values).all(axis=(1, 2)) for metric_values in values])
        weights = _read_weights(rows, chosen_rows[WEIGHT], has_value, settings)
    top_items = None
    if TOP_ITEM_COLUMNS[0] in rows.schema.names:
        top_items = np.zeros((len(TOP_ITEM_COLUMNS), *shape), dtype=np.int64)
        for counts, name in zip(top_items.reshape(len(TOP_ITEM_COLUMNS), -1), TOP_ITEM_COLUMNS, strict=True):
            counts[cells] = int_values(pc.fill_null(rows.column(name), 0))
    texts = pc.unique(rows.column(RULES)).to_pylist() if settings.rules_in_rows else [SAME_RULES]
    return QueryChunk(
        units=int_values(rows.column(UNIT).take(from_row)).view(np.uint64),
        unclustered=to_flags(rows.column(UNCLUSTERED).take(from_row)) if UNCLUSTERED in rows.schema.names else None,
        cutoffs=tuple(None if k == _WHOLE_LIST else int(k) for k in cutoffs),
        has_row=has_row.reshape(shape),
        is_missing=is_missing.reshape(shape),
        values=values,
        weights=weights,
        segments={
            name: rows.column(segment_column(number)).take(pa.array(chosen_rows[segment_column(number)]))
            for number, name in enumerate(settings.segment_columns)
        },
        rows=rows.select([key_column(number) for number in range(len(settings.query))]).take(from_row),
        rules=frozenset(settings.rules if text == SAME_RULES else text or "" for text in texts),
        top_items=top_items,
    )


def _check_rows(rows: pa.RecordBatch, settings: ComparisonSettings) -> tuple[IntArray, dict[str, IntArray]]:
    """Return the query number of each row and, for each column that runs share, the row with each query's value."""
    ids = _number_queries(rows, settings)
    n_rows, missing = rows.num_rows, np.zeros(rows.num_rows, dtype=np.bool_)
    if MISSING in rows.schema.names:
        missing = to_flags(rows.column(MISSING))
    names = {WEIGHT: settings.weight, CLUSTER: settings.cluster}
    names |= {segment_column(number): label for number, label in enumerate(settings.segment_columns)}
    chosen_rows: dict[str, IntArray] = {}
    for column, label in names.items():
        if column not in rows.schema.names:
            continue
        # A row of a missing query may not know the value. Prefer rows of runs that have the query, then missing rows
        # with a value (from judgments or other runs), then missing rows without one. The rank of a row is one number:
        # its place in this preference (0, 1, 2) times `n_rows`, plus its position.
        unknown = missing & to_flags(rows.column(column).is_null())
        rank = np.arange(n_rows) + n_rows * (missing.astype(np.int64) + unknown)
        chosen = np.full(int(ids[-1]) + 1 if n_rows else 0, 3 * n_rows, dtype=np.int64)
        np.minimum.at(chosen, ids, rank)
        chosen_rows[column] = chosen % max(n_rows, 1)
        _refuse_differing(rows, column, str(label), (ids, chosen_rows[column], missing), settings)
    return ids, chosen_rows


def _number_queries(rows: pa.RecordBatch, settings: ComparisonSettings) -> IntArray:
    """Number queries from 0 in the order of the rows; keys separate queries whose hashes collide."""
    keys = [rows.column(key_column(number)) for number in range(len(settings.query))]
    for column, label in zip(keys, settings.query, strict=True):
        if column.null_count:
            raise InputRefusedError(f"a row has no query: column {label!r} is null; remove such rows.")
    starts = np.ones(rows.num_rows, dtype=np.bool_)
    starts[1:] = False
    for label in (UNIT, QUERY):
        if label in rows.schema.names:
            values = np.asarray(rows.column(label).to_numpy(zero_copy_only=False))
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
    label: str,
    ids_chosen_missing: tuple[IntArray, IntArray, BoolArray],
    settings: ComparisonSettings,
) -> None:
    """Refuse a row whose value differs from that of the chosen row of its query."""
    ids, chosen_rows, missing = ids_chosen_missing
    encoded = rows.column(column).dictionary_encode()
    codes = int_values(pc.fill_null(encoded.indices, -1))
    differ = (codes != codes[chosen_rows][ids]) & ~(missing & (codes < 0))
    if differ.any():
        row = int(np.flatnonzero(differ)[0])
        values = [get_value(rows.column(column), position) for position in (int(chosen_rows[ids[row]]), row)]
        shown = "" if column == CLUSTER else f" ({values[0]!r} and {values[1]!r})"
        hint = f" ({UNWEIGHTED})" if column == WEIGHT else ""
        problem = f"has two values of column {label!r}{shown}; it must be the same in all runs{hint}"
        _refuse_query(rows, row, problem, settings)


def _refuse_repeats(rows: pa.RecordBatch, cells: IntArray, settings: ComparisonSettings) -> None:
    if np.bincount(cells, minlength=1).max() <= 1:
        return
    order = np.argsort(cells, kind="stable")
    repeats = order[1:][cells[order][1:] == cells[order][:-1]]
    if len(repeats):
        row = int(repeats.min())
        run, k = settings.runs[rows.column(RUN)[row].as_py()], rows.column(K)[row].as_py()
        where = f"run {run!r} at k={labels.cutoff(k)}"
        _refuse_query(rows, row, f"appears twice in {where}; choose the rows of one night and data set", settings)


def _refuse_differing_ideals(
    rows: pa.RecordBatch, ideals: FloatArray, ids: IntArray, settings: ComparisonSettings
) -> None:
    low = np.where(np.isnan(ideals), np.inf, ideals).min(axis=2, initial=np.inf)
    high = np.where(np.isnan(ideals), -np.inf, ideals).max(axis=2, initial=-np.inf)
    differ = np.flatnonzero((low < high).any(axis=1))
    if len(differ):
        query = int(differ[0])
        row = int(np.flatnonzero(ids == query)[0])
        cutoff = int(np.flatnonzero(low[query] < high[query])[0])
        of_runs = ideals[query, cutoff]
        ends = " and ".join(
            f"{of_runs[run]:g} in {settings.runs[run]!r}" for run in (np.nanargmin(of_runs), np.nanargmax(of_runs))
        )
        problem = f"has two values of IDCG, {ends}: one lacks rows, such as rejected ones, or the judgments differ"
        hint = "pass the relevances as one table for all runs"
        _refuse_query(rows, row, f"{problem}; {hint} ({option('judgments')})", settings)


def _read_weights(
    rows: pa.RecordBatch, chosen_rows: IntArray, has_value: BoolArray, settings: ComparisonSettings
) -> FloatArray:
    """Return the weight of each query; 0 if it is unknown and no run has a value."""
    values, known = float_values(rows.column(WEIGHT))
    weights, known = values[chosen_rows], known[chosen_rows]
    bad = (~known & has_value) | ~(weights >= 0) | np.isinf(weights)
    if bad.any():
        row = int(chosen_rows[np.flatnonzero(bad)[0]])
        weight = rows.column(WEIGHT)[row].as_py()
        _refuse_query(
            rows, row, f"has the weight {weight}; weights must be finite and not negative ({UNWEIGHTED})", settings
        )
    return weights


def _refuse_query(rows: pa.RecordBatch, row: int, problem: str, settings: ComparisonSettings) -> NoReturn:
    raise InputRefusedError(f"query {format_query(rows, row, settings.query)} {problem}.")


def format_query(rows: pa.RecordBatch, row: int, query_columns: Sequence[str]) -> str:
    """Format the query of a row for messages: `query_id=7`."""
    columns = {label: rows.column(key_column(number)) for number, label in enumerate(query_columns) if label != PAIR}
    return labels.key({label: get_value(column, row) for label, column in columns.items()})
