"""Tables with one row a query: arrays in rank order, and lists of items that are judged where they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ndcg_spark.core import ragged
from ndcg_spark.core.batches import Entries, float_values, int_values, list_offsets, one_zero, plain_texts
from ndcg_spark.core.ragged import FloatArray, IntArray
from ndcg_spark.evaluation.settings import Columns, EvaluationSettings
from ndcg_spark.evaluation.tasks import partial_ranking
from ndcg_spark.evaluation.tasks import query_rows as col
from ndcg_spark.evaluation.tasks.exchange import rank_stretches
from ndcg_spark.evaluation.tasks.judging import attach_judgments
from ndcg_spark.evaluation.tasks.partial_ranking import (
    LISTS,
    PartialRankings,
    finish_rankings,
    refuse_first,
    refuse_repeats,
)
from ndcg_spark.evaluation.tasks.query_rows import RankingTask, list_keys
from ndcg_spark.evaluation.tasks.valid_rows import RowRules, has_query, mark_rows, split_rejected


def rank_arrays(batches: Iterator[pa.RecordBatch], task: RankingTask) -> Iterator[pa.RecordBatch]:
    rules = RowRules(task.settings)
    for batch in batches:
        valid, rejected = split_rejected(mark_rows(plain_texts(batch), rules))
        yield from finish_rankings(_read_lists(valid, task), task)
        if rejected is not None:
            yield from finish_rankings(
                count_rejected_lists(rejected, task, lambda rows: _read_lists(rows, task)), task
            )


def count_rejected_lists(
    rejected: pa.RecordBatch, task: RankingTask, complete: Callable[[pa.RecordBatch], PartialRankings]
) -> PartialRankings:
    """Rejected rows as rankings without entries: each is a query that is lost, or has no query."""
    nameless = pa.array(~has_query(rejected, task.names))
    columns = dict(zip(rejected.schema.names, rejected.columns, strict=True))
    for name, column in columns.items():
        if name in task.names.query:
            columns[name] = pc.if_else(nameless, pa.scalar(None, column.type), column)
        elif name != col.RUN and name not in task.names.segments:
            columns[name] = pa.nulls(len(column), column.type)
    found = complete(pa.RecordBatch.from_pydict(columns))
    found.head[partial_ranking.N_REJECTED], found.head["n_rows"] = (
        found.head["n_rows"],
        found.head["n_left_out"],
    )  # 1 and 0
    return found


def _read_lists(batch: pa.RecordBatch, task: RankingTask) -> PartialRankings:
    """Both lists of each query, not cut yet, and what is counted of them."""
    there, convention = batch.schema.names, task.settings.convention
    keys = batch.select(list(list_keys(batch, task.names)))
    retrieved = _read_entries(batch, col.RANKED_LIST, col.RANKED_ITEMS, keys, task)
    own = _select_judged(retrieved)
    truth = (
        _select_judged(_read_entries(batch, col.IDEAL_LIST, col.IDEAL_ITEMS, keys, task))
        if col.IDEAL_LIST in there
        else own
    )
    if col.IDEAL_LIST in there and convention.ideal not in ("unsorted", "retrieved"):
        _refuse_missing_judgments(own, truth, keys, task)
    counts = {
        "n_rows": np.ones(batch.num_rows, dtype=np.int64),
        "n_left_out": np.zeros(batch.num_rows, dtype=np.int64),
        "n_items": ragged.lengths_of(retrieved.offsets),
        "n_judged": ragged.lengths_of(truth.offsets),
        "n_relevant": ragged.lengths_of(ragged.chosen_offsets(truth.numbers(col.RELEVANCE) > 0, truth.offsets)),
    }
    head = dict(zip(keys.schema.names, keys.columns, strict=True))
    head |= {name: pa.array(values) for name, values in counts.items()}
    for at, level in enumerate(task.settings.levels):
        reaching = ragged.lengths_of(ragged.chosen_offsets(truth.numbers(col.RELEVANCE) >= level, truth.offsets))
        head[f"{partial_ranking.AT_LEAST}{at}"] = pa.array(reaching)
    for name in task.names.carried:
        if name in there:
            head |= {f"low:{name}": batch.column(name), f"high:{name}": batch.column(name)}
    ranked = own if convention.unjudged == "condensed" else retrieved
    ideal = (own if convention.ideal == "retrieved" else truth).only(col.RELEVANCE)
    if convention.ideal != "unsorted":
        ideal = partial_ranking.keep_best_entries(ideal, task)
    return PartialRankings(head, ranked, ideal if partial_ranking.needs_ideal(task) else None)


def _read_entries(batch: pa.RecordBatch, lists: str, items: str, keys: pa.RecordBatch, task: RankingTask) -> Entries:
    """Relevances of all entries, NaN where they are not judged. Refuses an item that comes twice."""
    column = batch.column(lists)
    values, known = float_values(column.flatten())
    entries = Entries({col.RELEVANCE: np.where(known, values, np.nan)}, list_offsets(column))
    if items in batch.schema.names:
        of_items = one_zero(batch.column(items).flatten())
        if pa.types.is_floating(of_items.type):  # NaN is no item, as null is none
            of_items = pc.if_else(pc.is_nan(of_items), None, of_items)
        if task.settings.check_duplicates != "none":
            refuse_repeats(keys, Entries({col.ITEM: of_items}, entries.offsets), "list", task)
        if task.settings.lists_items and lists == col.RANKED_LIST:
            return Entries({**entries.columns, col.ITEM: of_items}, entries.offsets)
    return entries


def _refuse_missing_judgments(own: Entries, truth: Entries, keys: pa.RecordBatch, task: RankingTask) -> None:
    """Raise where the ranked relevances above 0 are more, or higher, than the judged ones, one by one."""
    found, known = (_select_relevant(one) for one in (own, truth))
    relevance, best = found.numbers(col.RELEVANCE), np.append(known.numbers(col.RELEVANCE), 0.0)
    query = ragged.query_of_rows(found.offsets)
    at = known.offsets[query] + ragged.rank_of_rows(found.offsets)
    known_one = best[np.where(at < known.offsets[query + 1], at, -1)]
    beyond = relevance > known_one * (1 + 1e-6)  # one of the two may have been rounded to float32
    flags = np.bincount(query[beyond], minlength=keys.num_rows) > 0
    columns = task.settings.columns
    before = f"column {columns.relevance!r} has a relevance that column {columns.ideal!r} lacks, in query "
    refuse_first(keys, flags, before, ". Give all judged relevances of a query, retrieved or not.", task)


def _select_relevant(entries: Entries) -> Entries:
    """Entries above 0, the highest first."""
    found = entries.only(col.RELEVANCE).where(entries.numbers(col.RELEVANCE) > 0)
    return found.taken(ragged.falling_order(found.numbers(col.RELEVANCE), found.offsets))


def _select_judged(entries: Entries) -> Entries:
    return entries.where(~np.isnan(entries.numbers(col.RELEVANCE)))


NUMBERS = {col.SCORE: col.RANKED_SCORES, col.RANK: col.RANKED_RANKS}
ROW = "query_0"
"""The number of a row in its batch: the query of its items."""


def rank_lists(batches: Iterator[pa.RecordBatch], task: RankingTask) -> Iterator[pa.RecordBatch]:
    rules, ranker = RowRules(task.settings), _RowRanker(task)
    for batch in batches:
        valid, rejected = split_rejected(mark_rows(plain_texts(batch), rules))
        for part in _split_batch(valid, task.chunk_rows):
            yield from finish_rankings(ranker.rank(part), task)
        if rejected is not None:
            yield from finish_rankings(count_rejected_lists(rejected, task, ranker.rank), task)


def _split_batch(batch: pa.RecordBatch, n_entries: int) -> Iterator[pa.RecordBatch]:
    """Divide rows into parts with about so many entries: all lists of ten thousand rows may be too many at once."""
    n_of_row = sum(
        ragged.lengths_of(list_offsets(batch.column(name))) for name in (col.RANKED_ITEMS, col.IDEAL_ITEMS)
    )
    starts = np.flatnonzero(np.diff(np.cumsum(n_of_row) // n_entries, prepend=-1))
    for start, stop in pairwise([*starts.tolist(), batch.num_rows]):
        yield batch.slice(start, stop - start)


class _RowRanker:
    """Ranks the items of rows, each row by itself."""

    def __init__(self, task: RankingTask) -> None:
        self._task = task
        rows, there = task.rows, task.rows.names
        entries = {ROW: pa.int64(), col.ITEM: _to_small_type(rows.field(col.RANKED_ITEMS).type.value_type)}
        for name, its in NUMBERS.items():
            if its in there:
                entries[name] = rows.field(its).type.value_type
        if not NUMBERS.keys() & entries.keys():
            entries[col.RANK] = pa.int64()  # the place
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
        """The lists of each row, as of complete queries."""
        ranked, judged = self._read_items(batch)
        n, task = batch.num_rows, self._row_task
        offsets = np.append(np.flatnonzero(np.diff(int_values(ranked.column(ROW)), prepend=-1)), ranked.num_rows)
        found = rank_stretches(ranked, offsets, task) if ranked.num_rows else []
        without = np.setdiff1d(np.arange(n), int_values(ranked.column(ROW)))
        if len(without) or not found:
            nothing = pa.RecordBatch.from_pylist([], schema=task.rows)
            found.append(partial_ranking.build_empty_partials({ROW: pa.array(without, pa.int64())}, nothing, task))
        complete = partial_ranking.concat_partials(attach_judgments(found, judged, set(), task))
        complete = partial_ranking.take_partials(complete, np.argsort(int_values(complete.head[ROW])))
        ideal = complete.ideal
        if task.settings.convention.ideal == "unsorted":
            relevance, known = float_values(judged.column(col.RELEVANCE))
            of_row = int_values(judged.column(ROW))[known]
            ideal = Entries({col.RELEVANCE: relevance[known]}, ragged.offsets_of(np.bincount(of_row, minlength=n)))
        return PartialRankings(self._build_head(batch, complete), complete.ranked, ideal)

    def _build_head(self, batch: pa.RecordBatch, complete: PartialRankings) -> dict[str, pa.Array]:
        """What is known of each row beside its lists. A row is one, however many items it has."""
        n, names = batch.num_rows, self._task.names
        head = {col.RUN: batch.column(col.RUN) if col.RUN in batch.schema.names else pa.repeat(pa.scalar(""), n)}
        head |= {name: batch.column(name) for name in names.query}
        head |= {name: column for name, column in complete.head.items() if partial_ranking.is_count(name)}
        head |= {"n_rows": pa.array(np.ones(n, dtype=np.int64)), "n_left_out": pa.array(np.zeros(n, dtype=np.int64))}
        for name in names.carried:
            if name in batch.schema.names:
                head |= {f"{end}:{name}": batch.column(name) for end in ("low", "high")}
        return head

    def _read_items(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Items of rows, and their judgments, as long rows."""
        task = self._row_task
        numbers = {name: its for name, its in NUMBERS.items() if its in batch.schema.names}
        ranked = _explode_lists(batch, col.RANKED_ITEMS, numbers, task.rows)
        judged = _explode_lists(batch, col.IDEAL_ITEMS, {col.RELEVANCE: col.IDEAL_LIST}, task.judgments or task.rows)
        if task.settings.convention.duplicates != "error":
            return _drop_duplicates(ranked, task.settings), _drop_duplicates(judged, task.settings)
        if task.settings.check_duplicates != "none":
            names = self._task.names.query or {col.RANKED_ITEMS: ""}
            keys = batch.select([name for name in batch.schema.names if name == col.RUN or name in names])
            for rows, kind in zip((ranked, judged), LISTS, strict=True):
                offsets = ragged.offsets_of(np.bincount(int_values(rows.column(ROW)), minlength=batch.num_rows))
                refuse_repeats(keys, Entries({col.ITEM: rows.column(col.ITEM)}, offsets), kind, self._task)
        return ranked, judged


def _identify_by_row(settings: EvaluationSettings) -> EvaluationSettings:
    its = settings.columns
    columns = type(its)(
        query=("row",), item=its.item or Columns().item, rank=its.rank, score=its.score, order=its.order
    )
    return replace(settings, columns=columns, segment_sets=(), on_invalid="fail")


def _to_small_type(kind: pa.DataType) -> pa.DataType:
    return {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}.get(kind, kind)


def _explode_lists(batch: pa.RecordBatch, items: str, numbers: dict[str, str], schema: pa.Schema) -> pa.RecordBatch:
    """A row for each item of a list, with its number, and its rank or place where the schema has them."""
    lists = batch.column(items)
    offsets = list_offsets(lists)
    columns = {
        ROW: pa.array(ragged.query_of_rows(offsets), pa.int64()),
        col.ITEM: one_zero(lists.flatten()).cast(_to_small_type(schema.field(col.ITEM).type)),
    }
    places = pa.array(ragged.rank_of_rows(offsets) + 1, pa.int64())
    columns |= {name: places for name in (col.RANK, col.ORDER) if name in schema.names}
    columns |= {name: batch.column(its).flatten() for name, its in numbers.items()}
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def _drop_duplicates(rows: pa.RecordBatch, settings: EvaluationSettings) -> pa.RecordBatch:
    """Keep one row of each item of a list: the first or, if `duplicates=best`, the best by score, rank or grade."""
    row, item = int_values(rows.column(ROW)), partial_ranking.rank_values(rows.column(col.ITEM))
    by: list[IntArray | FloatArray] = [np.arange(len(row))]
    name = next(one for one in (col.SCORE, col.RANK, col.RELEVANCE) if one in rows.schema.names)
    if settings.convention.duplicates == "best":
        values, known = float_values(rows.column(name))
        by.append(np.where(known, values if name == col.RANK else -values, np.inf))  # a null is the worst
    order = np.lexsort((*by, item, row))
    first = np.ones(len(order), dtype=np.bool_)
    first[1:] = (np.diff(row[order]) != 0) | (np.diff(item[order]) != 0)
    return rows.take(pa.array(np.sort(order[first])))
