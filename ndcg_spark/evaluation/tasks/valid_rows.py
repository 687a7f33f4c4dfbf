"""Find bad rows, and add gains and discounts to single rows for an explanation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ndcg_spark.conventions import Convention
from ndcg_spark.conventions.forms import discount_table, gain_function, parse_gain, relevance_range
from ndcg_spark.core import labels
from ndcg_spark.core.batches import cast_large_types, float_values, get_value, list_offsets, to_flags
from ndcg_spark.core.exact import MAX_WEIGHT
from ndcg_spark.core.ragged import BoolArray, FloatArray, offsets_after_filter, to_lengths
from ndcg_spark.errors import InputRefusedError
from ndcg_spark.evaluation.settings import MAX_RANK, EvaluationSettings
from ndcg_spark.evaluation.tasks import query_rows as col
from ndcg_spark.evaluation.tasks.query_rows import Names, bad_row_column, canonical_names

_HELPERS = ("tied", "n_ranked")


def add_gains(batches: Iterator[pa.RecordBatch], convention: Convention, k: int | None) -> Iterator[pa.RecordBatch]:
    """Add `gain`, `discount` and `ideal_discount` to ranked rows. Discounts beyond rank k are 0.

    Drops the input columns `tied` (number of ranks that a row shares, from `rank` on) and `n_ranked` (number of items
    in the ranking of its query).
    """
    for batch in batches:
        yield _add_gains_to_batch(batch, convention, k)


def _add_gains_to_batch(batch: pa.RecordBatch, convention: Convention, k: int | None) -> pa.RecordBatch:
    relevance, judged = float_values(batch.column("relevance"))
    clipped = np.maximum(relevance, 0.0) if convention.negative == "clip" else relevance
    gains = np.zeros(len(clipped))
    gains[judged] = gain_function(convention.gain)(clipped[judged])
    tied, n_ranked = (float_values(batch.column(helper))[0].astype(np.int64) for helper in _HELPERS)
    columns = {column: batch.column(column) for column in batch.schema.names if column not in _HELPERS}
    columns["gain"] = pa.array(gains)
    ends = n_ranked if convention.ideal == "as_many" else None
    columns["discount"] = _average_discounts(batch.column("rank"), np.maximum(tied, 1), None, convention, k)
    columns["ideal_discount"] = _average_discounts(
        batch.column("ideal_rank"), np.ones_like(tied), ends, convention, k
    )
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _average_discounts(
    column: pa.Array, tied: np.ndarray, ends: np.ndarray | None, convention: Convention, k: int | None
) -> pa.Array:
    """Return the discount of each rank, averaged over the ranks that tied rows share; 0 beyond the end of a list."""
    ranks, known = float_values(column)
    first = np.maximum(ranks.astype(np.int64) - 1, 0)
    n_ranks = int((first + tied).max(initial=0))
    table: FloatArray = discount_table(convention.discount, n_ranks if k is None else min(n_ranks, k))
    total = np.concatenate([[0.0], np.cumsum(table)])
    limit = np.full(len(first), len(table)) if ends is None else np.minimum(ends, len(table))
    span = total[np.minimum(first + tied, limit)] - total[np.minimum(first, limit)]
    alone = np.where(first < limit, table[np.minimum(first, len(table) - 1)] if len(table) else 0.0, 0.0)
    return pa.array(np.where(tied == 1, alone, span / tied), mask=~known)


NO_QUERY_COLUMN = "(there is no query column)"
"""Printed in place of the key of a row of lists if the table has no query column."""
MAX_DOUBLE = float(np.finfo(np.float64).max)
Reason = tuple[str, BoolArray | None]
"""A reason, and flags of the rows it applies to; None flags no row."""


@dataclass(frozen=True, slots=True)
class RowCheck:
    """Settings that decide which rows of a table are bad. In judgments the order column may be null."""

    settings: EvaluationSettings
    judgments: bool = False


def select_valid(batch: pa.RecordBatch, check: RowCheck) -> pa.RecordBatch:
    """Return the valid rows of a batch. Under `on_invalid=fail` a bad row raises an InputRefusedError."""
    return split_rejected(mark_rejected(batch, check))[0]


def mark_rejected(batch: pa.RecordBatch, check: RowCheck) -> pa.RecordBatch:
    """Mark rejected rows by a `bad_row` that is not null. The column is absent if no row is rejected.

    Marks do not keep the reason: `find_bad_rows` counts reasons in a pass of its own. The batch has at most one score
    column. Under `on_invalid=fail` a bad row raises an InputRefusedError with the first reason and the query.
    """
    bad: BoolArray | None = None
    for reason, rows in find_reasons(batch, check):
        if check.settings.on_invalid == "fail":
            row = int(np.flatnonzero(rows)[0])
            raise InputRefusedError(f"bad row: {reason} at {format_key(batch, canonical_names(check.settings), row)}")
        bad = rows if bad is None else bad | rows
    if col.BAD_ROW in batch.schema.names:
        batch = batch.select([column for column in batch.schema.names if column != col.BAD_ROW])
    if bad is None:
        return batch
    return _append_marks(batch, pa.array(np.where(bad, "rejected", ""), pa.string(), mask=~bad))


def split_rejected(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
    """Split marked rows into valid rows and rejected rows, both without marks. The second is None if empty."""
    if col.BAD_ROW not in batch.schema.names:
        return batch, None
    marks = batch.column(col.BAD_ROW)
    batch = batch.select([column for column in batch.schema.names if column != col.BAD_ROW])
    if marks.null_count == len(marks):
        return batch, None
    return batch.filter(marks.is_null()), batch.filter(marks.is_valid())


def add_marks(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Add the column of marks if it is missing because no row is rejected."""
    if col.BAD_ROW in batch.schema.names:
        return batch
    return _append_marks(batch, pa.nulls(batch.num_rows, pa.string()))


def _append_marks(batch: pa.RecordBatch, marks: pa.Array) -> pa.RecordBatch:
    schema = batch.schema.append(pa.field(col.BAD_ROW, pa.string()))  # other fields keep their nullability
    return pa.RecordBatch.from_arrays([*batch.columns, marks], schema=schema)


def has_keys(batch: pa.RecordBatch, names: Names) -> BoolArray:
    """Flag the rows whose query and run are known."""
    is_known = np.ones(batch.num_rows, dtype=np.bool_)
    for key in names.keys:
        for is_missing in _flag_missing_keys(batch.column(key)) if key in batch.schema.names else ():
            is_known &= ~is_missing
    return is_known


def _flag_missing_keys(column: pa.Array) -> Iterator[BoolArray]:
    """Yield flags of null keys, then flags of NaN keys."""
    if column.null_count:
        yield to_flags(column.is_null())
    if pa.types.is_floating(column.type):
        yield np.isnan(float_values(column)[0])


def find_reasons(batch: pa.RecordBatch, check: RowCheck) -> Iterator[tuple[str, BoolArray]]:
    """Yield each reason that applies to some row, with flags of its rows. The first reason of a row is reported."""
    for reason, rows in _check_batch(batch, check):
        if rows is not None and rows.any():
            yield reason, rows


def select_valid_rows(batches: Iterator[pa.RecordBatch], check: RowCheck) -> Iterator[pa.RecordBatch]:
    """Return the valid rows of batches; see `select_valid`."""
    for batch in batches:
        yield select_valid(batch, check)


def mark_rejected_rows(batches: Iterator[pa.RecordBatch], check: RowCheck) -> Iterator[pa.RecordBatch]:
    """Mark rejected rows, and empty all their columns but query and segments; these only if the query is known."""
    for batch in batches:
        yield _clear_rejected(mark_rejected(batch, check), check)


def _clear_rejected(batch: pa.RecordBatch, check: RowCheck) -> pa.RecordBatch:
    batch, names = add_marks(batch), canonical_names(check.settings)
    rejected, lacks_key = batch.column(col.BAD_ROW).is_valid(), pa.array(~has_keys(batch, names))
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    for name, column in columns.items() if rejected.true_count else ():
        if name not in (col.RUN, col.BAD_ROW, col.COPIES):
            is_carried = name in names.query or name in names.segments
            columns[name] = pc.if_else(lacks_key if is_carried else rejected, pa.scalar(None, column.type), column)
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def find_bad_rows(batches: Iterator[pa.RecordBatch], check: RowCheck) -> Iterator[pa.RecordBatch]:
    """Yield bad rows as `reason`, `key`, `n`, `row`, and per batch a row without a reason that counts valid rows."""
    names = canonical_names(check.settings)
    for batch in map(cast_large_types, batches):
        for run_batch in (batch,) if check.judgments else split_runs(batch, names):
            yield _report_batch(run_batch, check, names)


def _report_batch(batch: pa.RecordBatch, check: RowCheck, names: Names) -> pa.RecordBatch:
    first = np.full(batch.num_rows, -1)
    reasons: list[str] = []
    for reason, rows in find_reasons(batch, check):
        first[rows & (first < 0)] = len(reasons)
        reasons.append(reason)
    (bad,) = np.nonzero(first >= 0)
    columns = {
        "reason": pa.array([*(reasons[first[row]] for row in bad), None], pa.string()),
        "key": pa.array([*(format_key(batch, names, int(row), item=True) for row in bad), None], pa.string()),
        "n": pa.array([*np.ones_like(bad), batch.num_rows - len(bad)], pa.int64()),
    }
    if "row" in batch.schema.names:
        columns["row"] = batch.column("row").take(pa.array([*bad, None], pa.int64()))
    return pa.RecordBatch.from_pydict(columns)


def split_runs(batch: pa.RecordBatch, names: Names) -> Iterator[pa.RecordBatch]:
    """Split a batch with several score columns into one batch per run, with `run` and `score`.

    Any other batch is yielded unchanged.
    """
    if not has_several_scores(batch, names):
        yield batch
        return
    run_columns = {*names.scores, *map(bad_row_column, names.scores)}
    shared = [column for column in batch.schema.names if column not in run_columns]
    for score, run in names.scores.items():
        columns = {col.RUN: pa.repeat(pa.scalar(run), batch.num_rows), col.SCORE: batch.column(score)}
        if bad_row_column(score) in batch.schema.names:
            columns[col.BAD_ROW] = batch.column(bad_row_column(score))
        columns |= {column: batch.column(column) for column in shared}
        yield pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def has_several_scores(batch: pa.RecordBatch, names: Names) -> bool:
    """Return True if a batch has several score columns, each of which is a run."""
    return len(names.scores) > 1 and col.SCORE not in batch.schema.names


def format_key(batch: pa.RecordBatch, names: Names, row: int, *, item: bool = False) -> str:
    """Format the query of a row for a message, such as `query_id=7`, or its malformed line."""
    reason = batch.column(col.BAD_ROW)[row].as_py() if col.BAD_ROW in batch.schema.names else None
    if reason is not None and ": " in reason:
        return f"line {reason.partition(': ')[2]!r}"
    shown = ({col.RUN: col.RUN} if col.RUN in batch.schema.names else {}) | names.query
    shown |= {col.ITEM: col.ITEM} if item and col.ITEM in batch.schema.names else {}
    values = {label: get_value(batch.column(name), row) for name, label in shown.items()}
    if not names.query:
        run = [f"{col.RUN}={values[col.RUN]}"] if values.get(col.RUN) else []
        return ", ".join([*run, _format_list(batch, row)])
    return labels.key(values)


def _format_list(batch: pa.RecordBatch, row: int) -> str:
    """Format the list of a row without a query column for a message."""
    items = get_value(batch.column(col.RANKED_ITEMS), row) if col.RANKED_ITEMS in batch.schema.names else None
    if not items:
        return NO_QUERY_COLUMN
    first = ", ".join(map(labels.text, items[:3]))
    return f"[{first}{', ...' if len(items) > 3 else ''}] {NO_QUERY_COLUMN}"


def _check_batch(batch: pa.RecordBatch, check: RowCheck) -> Iterator[Reason]:
    """Yield all reasons for bad rows, in the order in which they are reported."""
    settings, present = check.settings, set(batch.schema.names)
    if col.BAD_ROW in present:
        yield from _read_conversion_reasons(batch.column(col.BAD_ROW))
    if col.RUN in present:
        yield "null_run", _find_nulls(batch.column(col.RUN))
    for key in canonical_names(settings).query:
        yield from _check_key(batch.column(key), "null_query")
    if col.RANKED_ITEMS in present and col.RANKED_LIST not in present:
        yield from _check_item_lists(batch, settings)
    for list_column in (col.RANKED_LIST, col.IDEAL_LIST):
        if list_column in present:
            column = batch.column(list_column)
            yield "null_list", to_flags(column.is_null())
            yield from _lift_to_lists(column, check_relevances(column.flatten(), settings))
    if col.RANK in present:
        yield from _check_ranks(batch.column(col.RANK), settings)
    if col.SCORE in present:
        yield from _check_scores(batch.column(col.SCORE), settings)
    yield from _check_other_columns(batch, check)
    if col.RELEVANCE in present:
        yield from check_relevances(batch.column(col.RELEVANCE), settings)


def _check_other_columns(batch: pa.RecordBatch, check: RowCheck) -> Iterator[Reason]:
    present = set(batch.schema.names)
    if col.ITEM in present:
        yield from _check_key(batch.column(col.ITEM), "null_item")
    if col.WEIGHT in present:
        weight, known = float_values(batch.column(col.WEIGHT))
        yield "bad_weight", ~(known & (weight >= 0) & (weight <= MAX_WEIGHT))
    if col.ORDER in present and not check.judgments:
        yield "null_order", _find_nulls(batch.column(col.ORDER))


def _check_key(column: pa.Array, reason: str) -> Iterator[Reason]:
    """Yield a reason for a query or item that is null or NaN."""
    for is_missing in _flag_missing_keys(column):
        yield reason, is_missing


def _check_item_lists(batch: pa.RecordBatch, settings: EvaluationSettings) -> Iterator[Reason]:
    """Yield reasons for lists of items, ranked or judged, and for their scores or ranks."""
    for item_column in (col.RANKED_ITEMS, col.IDEAL_ITEMS):
        column = batch.column(item_column)
        yield "null_list", to_flags(column.is_null())
        yield from _lift_to_lists(column, _check_key(column.flatten(), "null_item"))
    for number_column, reasons in ((col.RANKED_SCORES, _check_scores), (col.RANKED_RANKS, _check_ranks)):
        if number_column in batch.schema.names:
            yield from _lift_to_lists(
                batch.column(number_column), reasons(batch.column(number_column).flatten(), settings)
            )


def _lift_to_lists(column: pa.Array, reasons: Iterator[Reason]) -> Iterator[Reason]:
    """Turn reasons for entries into reasons for their lists."""
    offsets = list_offsets(column)
    for reason, entries in reasons:
        if entries is not None:
            yield reason, to_lengths(offsets_after_filter(entries, offsets)) > 0


def _read_conversion_reasons(column: pa.Array) -> Iterator[Reason]:
    if column.null_count < len(column):
        reasons = pc.replace_substring_regex(column, "(?s): .*", "")  # the malformed line may follow
        for reason in pc.unique(reasons.drop_null()).to_pylist():
            yield reason, to_flags(pc.equal(reasons, reason))


def _check_ranks(column: pa.Array, settings: EvaluationSettings) -> Iterator[Reason]:
    if settings.null_score == "bad":
        yield "null_rank", _find_nulls(column)
    is_whole = pa.types.is_integer(column.type)
    if is_whole and _is_within(column, 1, MAX_RANK):
        return
    rank, known = float_values(column)
    if not is_whole:
        yield "null_rank", known & np.isnan(rank)
    yield "rank_below_1", known & (rank < 1)
    yield "rank_too_large", rank > MAX_RANK
    if not is_whole:
        yield "rank_not_whole", known & (np.floor(rank) != rank)


def _check_scores(column: pa.Array, settings: EvaluationSettings) -> Iterator[Reason]:
    if settings.null_score == "bad":
        yield "null_score", _find_nulls(column)
    if not _is_within(column, -MAX_DOUBLE, MAX_DOUBLE):
        score = float_values(column)[0]
        yield "nan_score", np.isnan(score)
        yield "infinite_score", np.isinf(score)


def check_relevances(column: pa.Array, settings: EvaluationSettings) -> Iterator[Reason]:
    """Yield the reasons for bad relevances. A null relevance is an unjudged item, not a bad one."""
    convention = settings.convention
    lowest, highest = relevance_range(convention.gain)
    minimum = {"error": max(lowest, 0.0), "clip": -MAX_DOUBLE}.get(convention.negative, lowest)
    is_good = _is_within(column, max(minimum, -MAX_DOUBLE), min(highest, MAX_DOUBLE))
    if is_good and not convention.has_gain_table:
        return
    relevance, known = float_values(column)
    if not is_good:
        yield "nan_relevance", np.isnan(relevance)
        yield "infinite_relevance", np.isinf(relevance)
        yield "gain_overflow", relevance > highest
        if convention.negative != "clip":
            yield "gain_overflow", relevance < lowest
    if convention.has_gain_table:
        levels = list(parse_gain(convention.gain).table or ())
        clipped = np.maximum(relevance, 0.0) if convention.negative == "clip" else relevance
        yield "level_without_gain", known & ~np.isin(clipped, levels)
    if convention.negative == "error":
        yield "negative_relevance", relevance < 0


def _is_within(column: pa.Array, lowest: float, highest: float) -> bool:
    """Return True if all values are between two bounds, inclusive, and none is NaN.

    Most batches are valid, so callers run this fast check first and find the bad rows only if it fails.
    """
    if column.null_count == len(column):
        return True
    if column.null_count and pa.types.is_integer(column.type):
        ends = pc.min_max(column).as_py()  # min_max ignores nulls
        return bool(lowest <= ends["min"] and ends["max"] <= highest)
    values = column.to_numpy() if pa.types.is_integer(column.type) else float_values(column)[0]
    return bool(lowest <= values.min() and values.max() <= highest)  # False if any is NaN


def _find_nulls(column: pa.Array) -> BoolArray | None:
    return to_flags(column.is_null()) if column.null_count else None
