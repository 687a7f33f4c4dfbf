"""Rank tables with one row per query: arrays of relevances in rank order, and lists of items with judgments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ndcg_spark.core import ragged
from ndcg_spark.core.batches import Entries, cast_large_types, float_values, int_values, list_offsets, normalize_zero
from ndcg_spark.core.ragged import FloatArray, IntArray
from ndcg_spark.evaluation.settings import Columns, EvaluationSettings
from ndcg_spark.evaluation.tasks import partial_ranking
from ndcg_spark.evaluation.tasks import query_rows as col
from ndcg_spark.evaluation.tasks.exchange import rank_stretches
from ndcg_spark.evaluation.tasks.judging import attach_judgments
from ndcg_spark.evaluation.tasks.partial_ranking import (
    HIGH,
    LIST_KINDS,
    LOW,
    PartialRankings,
    build_rankings,
    refuse_first,
    refuse_repeats,
)
from ndcg_spark.evaluation.tasks.query_rows import RankingTask, list_keys
from ndcg_spark.evaluation.tasks.valid_rows import RowCheck, has_keys, mark_rejected, split_rejected


def rank_lists(batches: Iterator[pa.RecordBatch], task: RankingTask) -> Iterator[pa.RecordBatch]:
    """Rank rows that hold one query each: arrays of relevances, or lists of items."""
    check, are_arrays = RowCheck(task.settings), col.RANKED_LIST in task.rows.names
    rank = partial(_read_lists, task=task) if are_arrays else _RowRanker(task).rank
    for batch in batches:
        valid, rejected = split_rejected(mark_rejected(cast_large_types(batch), check))
        for chunk in (valid,) if are_arrays else _split_batch(valid, task.chunk_rows):
            yield from build_rankings(rank(chunk), task)
        if rejected is not None:
            yield from build_rankings(_count_rejected_lists(rejected, task, rank), task)


def _count_rejected_lists(
    rejected: pa.RecordBatch, task: RankingTask, rank: Callable[[pa.RecordBatch], PartialRankings]
) -> PartialRankings:
    """Return rejected rows as rankings without entries: each is a lost query, or has no query."""
    lacks_key = pa.array(~has_keys(rejected, task.names))
    columns = dict(zip(rejected.schema.names, rejected.columns, strict=True))
    for name, column in columns.items():
        if name in task.names.query:
            columns[name] = pc.if_else(lacks_key, pa.scalar(None, column.type), column)
        elif name != col.RUN and name not in task.names.segments:
            columns[name] = pa.nulls(len(column), column.type)
    rankings = rank(pa.RecordBatch.from_pydict(columns))
    ones, zeros = rankings.queries["n_rows"], rankings.queries["n_left_out"]
    rankings.queries[partial_ranking.N_REJECTED], rankings.queries["n_rows"] = ones, zeros
    return rankings


def _read_lists(batch: pa.RecordBatch, task: RankingTask) -> PartialRankings:
    """Read both lists of each query, uncut, with their counts."""
    names, convention = batch.schema.names, task.settings.convention
    keys = batch.select(list(list_keys(batch, task.names)))
    retrieved = _read_entries(batch, col.RANKED_LIST, col.RANKED_ITEMS, keys, task)
    own = _select_judged(retrieved)
    judged = (
        _select_judged(_read_entries(batch, col.IDEAL_LIST, col.IDEAL_ITEMS, keys, task))
        if col.IDEAL_LIST in names
        else own
    )
    if col.IDEAL_LIST in names and convention.ideal not in ("unsorted", "retrieved"):
        _refuse_missing_judgments(own, judged, keys, task)
    counts = {
        "n_rows": np.ones(batch.num_rows, dtype=np.int64),
        "n_left_out": np.zeros(batch.num_rows, dtype=np.int64),
        "n_items": ragged.to_lengths(retrieved.offsets),
        "n_judged": ragged.to_lengths(judged.offsets),
        "n_relevant": ragged.to_lengths(
            ragged.offsets_after_filter(judged.numbers(col.RELEVANCE) > 0, judged.offsets)
        ),
    }
    queries = dict(zip(keys.schema.names, keys.columns, strict=True))
    queries |= {count: pa.array(values) for count, values in counts.items()}
    for index, level in enumerate(task.settings.levels):
        reaching = ragged.to_lengths(
            ragged.offsets_after_filter(judged.numbers(col.RELEVANCE) >= level, judged.offsets)
        )
        queries[f"{partial_ranking.AT_LEAST}{index}"] = pa.array(reaching)
    for carried in task.names.carried:
        if carried in names:
            queries |= {f"{end}{carried}": batch.column(carried) for end in (LOW, HIGH)}
    ranked = own if convention.unjudged == "condensed" else retrieved
    ideal = (own if convention.ideal == "retrieved" else judged).select_columns(col.RELEVANCE)
    if convention.ideal != "unsorted":
        ideal = partial_ranking.keep_best_entries(ideal, task)
    return PartialRankings(queries, ranked, ideal if partial_ranking.needs_ideal(task) else None)


def _read_entries(batch: pa.RecordBatch, lists: str, items: str, keys: pa.RecordBatch, task: RankingTask) -> Entries:
    """Read the relevances of all entries, NaN if unjudged. Raise if an item occurs twice in a list."""
    column = batch.column(lists)
    values, known = float_values(column.flatten())
    entries = Entries({col.RELEVANCE: np.where(known, values, np.nan)}, list_offsets(column))
    if items in batch.schema.names:
        item_values = normalize_zero(batch.column(items).flatten())
        if pa.types.is_floating(item_values.type):  # NaN means that an entry has no item, as null does
            item_values = pc.if_else(pc.is_nan(item_values), None, item_values)
        if task.settings.check_duplicates != "none":
            refuse_repeats(keys, Entries({col.ITEM: item_values}, entries.offsets), "list", task)
        if task.settings.lists_items and lists == col.RANKED_LIST:
            return Entries({**entries.columns, col.ITEM: item_values}, entries.offsets)
    return entries


def _refuse_missing_judgments(own: Entries, judged: Entries, keys: pa.RecordBatch, task: RankingTask) -> None:
    """Raise if the sorted ranked relevances above 0 exceed the sorted judged ones at some place."""
    ranked, judged = (_select_relevant(entries) for entries in (own, judged))
    relevance, best = ranked.numbers(col.RELEVANCE), np.append(judged.numbers(col.RELEVANCE), 0.0)
    query = ragged.query_of_rows(ranked.offsets)
    index = judged.offsets[query] + ragged.rank_of_rows(ranked.offsets)
    judged_relevance = best[np.where(index < judged.offsets[query + 1], index, -1)]
    beyond = relevance > judged_relevance * (1 + 1e-6)  # either column may have been rounded to float32
    flags = np.bincount(query[beyond], minlength=keys.num_rows) > 0
    columns = task.settings.columns
    before = f"column {columns.relevance!r} has a relevance that column {columns.ideal!r} lacks, in query "
    refuse_first(keys, flags, before, ". Pass all judged relevances of a query, retrieved or not.", task)


def _select_relevant(entries: Entries) -> Entries:
    """Select the entries with a relevance above 0, the highest first."""
    relevant = entries.select_columns(col.RELEVANCE).where(entries.numbers(col.RELEVANCE) > 0)
    return relevant.take(ragged.argsort_descending(relevant.numbers(col.RELEVANCE), relevant.offsets))


def _select_judged(entries: Entries) -> Entries:
    return entries.where(~np.isnan(entries.numbers(col.RELEVANCE)))


NUMBERS = {col.SCORE: col.RANKED_SCORES, col.RANK: col.RANKED_RANKS}
ROW = "query_0"
"""Column with the number of a row in its batch, which serves as the query of its items."""


def _split_batch(batch: pa.RecordBatch, n_entries: int) -> Iterator[pa.RecordBatch]:
    """Split a batch into slices of about `n_entries` list entries: all lists of a batch may not fit in memory."""
    row_lengths = sum(
        ragged.to_lengths(list_offsets(batch.column(column))) for column in (col.RANKED_ITEMS, col.IDEAL_ITEMS)
    )
    starts = np.flatnonzero(np.diff(np.cumsum(row_lengths) // n_entries, prepend=-1))
    for start, stop in pairwise([*starts.tolist(), batch.num_rows]):
        yield batch.slice(start, stop - start)


class _RowRanker:
    """Ranks the items of each row as a query of its own."""

    def __init__(self, task: RankingTask) -> None:
        self._task = task
        rows = task.rows
        entries = {ROW: pa.int64(), col.ITEM: rows.field(col.RANKED_ITEMS).type.value_type}
        for number, lists in NUMBERS.items():
            if lists in rows.names:
                entries[number] = rows.field(lists).type.value_type
        if not NUMBERS.keys() & entries.keys():
            entries[col.RANK] = pa.int64()  # the position in the list
        settings = task.settings
        if settings.columns.order is not None:
            entries[col.ORDER] = pa.int64()
        judged = {
            ROW: pa.int64(),
            col.ITEM: entries[col.ITEM],
            col.RELEVANCE: rows.field(col.IDEAL_LIST).type.value_type,
        }
        self._row_task = replace(
            task, settings=_identify_by_row(settings), rows=pa.schema(entries), judgments=pa.schema(judged)
        )

    def rank(self, batch: pa.RecordBatch) -> PartialRankings:
        """Return the ranked and the ideal list of each row, as rankings of complete queries."""
        ranked, judged = self._read_items(batch)
        n, task = batch.num_rows, self._row_task
        offsets = np.append(np.flatnonzero(np.diff(int_values(ranked.column(ROW)), prepend=-1)), ranked.num_rows)
        partials = rank_stretches(ranked, offsets, task) if ranked.num_rows else []
        empty_rows = np.setdiff1d(np.arange(n), int_values(ranked.column(ROW)))
        if len(empty_rows) or not partials:
            partials.append(partial_ranking.build_empty_partials({ROW: pa.array(empty_rows, pa.int64())}, task))
        complete = partial_ranking.concat_partials(attach_judgments(partials, judged, set(), task))
        complete = partial_ranking.take_partials(complete, np.argsort(int_values(complete.queries[ROW])))
        ideal = complete.ideal
        if task.settings.convention.ideal == "unsorted":
            relevance, known = float_values(judged.column(col.RELEVANCE))
            row = int_values(judged.column(ROW))[known]
            ideal = Entries({col.RELEVANCE: relevance[known]}, ragged.to_offsets(np.bincount(row, minlength=n)))
        return PartialRankings(self._build_queries(batch, complete), complete.ranked, ideal)

    def _build_queries(self, batch: pa.RecordBatch, complete: PartialRankings) -> dict[str, pa.Array]:
        """Build the columns of `PartialRankings.queries`. `n_rows` is 1 for each, however many items a row has."""
        n, names = batch.num_rows, self._task.names
        queries = {col.RUN: batch.column(col.RUN) if col.RUN in batch.schema.names else pa.repeat(pa.scalar(""), n)}
        queries |= {key: batch.column(key) for key in names.query}
        queries |= {name: column for name, column in complete.queries.items() if partial_ranking.is_count(name)}
        queries |= {
            "n_rows": pa.array(np.ones(n, dtype=np.int64)),
            "n_left_out": pa.array(np.zeros(n, dtype=np.int64)),
        }
        for carried in names.carried:
            if carried in batch.schema.names:
                queries |= {f"{end}{carried}": batch.column(carried) for end in (LOW, HIGH)}
        return queries

    def _read_items(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Read the items of rows and their judgments as two long tables."""
        task = self._row_task
        numbers = {number: lists for number, lists in NUMBERS.items() if lists in batch.schema.names}
        ranked = _explode_lists(batch, col.RANKED_ITEMS, numbers, task.rows)
        judged = _explode_lists(batch, col.IDEAL_ITEMS, {col.RELEVANCE: col.IDEAL_LIST}, task.judgments or task.rows)
        if task.settings.convention.duplicates != "error":
            return _drop_duplicates(ranked, task.settings), _drop_duplicates(judged, task.settings)
        if task.settings.check_duplicates != "none":
            names = self._task.names.query or {col.RANKED_ITEMS: ""}
            keys = batch.select([column for column in batch.schema.names if column == col.RUN or column in names])
            for rows, kind in zip((ranked, judged), LIST_KINDS, strict=True):
                offsets = ragged.to_offsets(np.bincount(int_values(rows.column(ROW)), minlength=batch.num_rows))
                refuse_repeats(keys, Entries({col.ITEM: rows.column(col.ITEM)}, offsets), kind, self._task)
        return ranked, judged


def _identify_by_row(settings: EvaluationSettings) -> EvaluationSettings:
    """Return settings by which each row of lists is a query of its own."""
    old = settings.columns
    columns = type(old)(
        query=("row",), item=old.item or Columns().item, rank=old.rank, score=old.score, order=old.order
    )
    return replace(settings, columns=columns, segment_sets=(), on_invalid="fail")


def _explode_lists(batch: pa.RecordBatch, items: str, numbers: dict[str, str], schema: pa.Schema) -> pa.RecordBatch:
    """Return one row per list entry, with its numbers, and its position as rank or order if the schema has them."""
    lists = batch.column(items)
    offsets = list_offsets(lists)
    columns = {
        ROW: pa.array(ragged.query_of_rows(offsets), pa.int64()),
        col.ITEM: normalize_zero(lists.flatten()).cast(schema.field(col.ITEM).type),
    }
    positions = pa.array(ragged.rank_of_rows(offsets) + 1, pa.int64())
    columns |= {column: positions for column in (col.RANK, col.ORDER) if column in schema.names}
    columns |= {column: batch.column(lists).flatten() for column, lists in numbers.items()}
    return pa.RecordBatch.from_arrays([columns[column] for column in schema.names], schema=schema)


def _drop_duplicates(rows: pa.RecordBatch, settings: EvaluationSettings) -> pa.RecordBatch:
    """Keep one row per item of a list: the first or, if `duplicates=best`, the best by score, rank or relevance."""
    row, item = int_values(rows.column(ROW)), partial_ranking.rank_values(rows.column(col.ITEM))
    sort_keys: list[IntArray | FloatArray] = [np.arange(len(row))]
    number = next(name for name in (col.SCORE, col.RANK, col.RELEVANCE) if name in rows.schema.names)
    if settings.convention.duplicates == "best":
        values, known = float_values(rows.column(number))
        sort_keys.append(np.where(known, values if number == col.RANK else -values, np.inf))  # null is the worst
    order = np.lexsort((*sort_keys, item, row))
    first = np.ones(len(order), dtype=np.bool_)
    first[1:] = (np.diff(row[order]) != 0) | (np.diff(item[order]) != 0)
    return rows.take(pa.array(np.sort(order[first])))
