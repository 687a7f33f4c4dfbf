"""Rank rows of a stretch of a query: counts, the first K entries, the K best relevances; merge and finish them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ndcg_spark.conventions.forms import gain_function
from ndcg_spark.core import ragged
from ndcg_spark.core.batches import (
    Entries,
    Values,
    flags_of,
    float_column,
    int_values,
    joined_entries,
    list_column,
    lists_of_counts,
    take_values,
    value_at,
)
from ndcg_spark.core.ragged import BoolArray, FloatArray, IntArray, NumberArray
from ndcg_spark.errors import InputRefusedError, option
from ndcg_spark.evaluation.settings import EvaluationSettings
from ndcg_spark.evaluation.tasks import query_rows as col
from ndcg_spark.evaluation.tasks.query_rows import (
    Names,
    QueryRows,
    RankingTask,
    find_stretches,
    group_rows,
    intersect_flags,
    list_keys,
    order_by_group,
    read_query_rows,
)
from ndcg_spark.evaluation.tasks.valid_rows import format_key
from ndcg_spark.metrics.kernels import tie_groups

COUNT = "n"
"""Items that an entry stands for, where tied items are grouped."""
COUNTS = ("n_rows", "n_left_out", "n_items", "n_judged", "n_relevant")
N_REJECTED = "n_rejected"
"""Rejected rows of a query: those of a stretch are a partial ranking without entries."""
LOST = "lost"
"""Before the name of a segment column: the lowest value in rejected rows, for a query that has no others."""
AT_LEAST = "at_least:"
"""Before the number of a relevance in `EvaluationSettings.levels`: how many judged items reach it."""
TWO_ON_ONE_RANK = "has two items on one rank; is the query key complete?"


@dataclass(slots=True)
class PartialRankings:
    """Partial rankings, each of a stretch of one query of one run.

    `head` has keys, counts, and `low:NAME` and `high:NAME` of carried columns; if rows were rejected, `n_rejected`
    and `lost:NAME` of segments, too.
    """

    head: dict[str, pa.Array]
    ranked: Entries | None  # the first by score or rank; None for judgments
    ideal: Entries | None  # the best relevances; None where no ideal list is made of them

    def keys(self, names: Names) -> pa.RecordBatch:
        keys = {name: column for name, column in self.head.items() if name == col.RUN or name in names.query}
        return pa.RecordBatch.from_pydict(keys)


def rank_partially(rows: QueryRows, task: RankingTask, *, ideal: Entries | None = None) -> PartialRankings:
    """Rank stretches of rows of a run; `ideal` are their ideal lists, where these are known already."""
    if ideal is None and rows.relevance is not None and needs_ideal(task):
        ideal = rank_ideal(rows, task)
    return PartialRankings(describe(rows, task), rank_entries(rows, task), ideal)


def needs_ideal(task: RankingTask) -> bool:
    return task.settings.convention.ideal != "k_ones"


def describe(rows: QueryRows, task: RankingTask) -> dict[str, pa.Array]:
    """Keys, counts and ranges of carried columns of each stretch."""
    starts, names = pa.array(rows.offsets[:-1]), rows.batch.schema.names
    found: dict[str, pa.Array] = {
        key: rows.batch.column(key).take(starts) for key in list_keys(rows.batch, task.names)
    }
    found |= {name: pa.array(count) for name, count in _count_rows(rows, task).items()}
    for name in task.names.carried:
        if name in names:
            column = rows.batch.column(name)
            found |= find_column_range(
                column.cast(pa.float64(), safe=False) if name == col.WEIGHT else column, name, rows.offsets
            )
    return found


def count_rejected(rows: pa.RecordBatch, task: RankingTask) -> PartialRankings:
    """Count the rejected rows of each query, which is known, in partial rankings without entries."""
    nothing, keys = rows.slice(0, 0), list_keys(rows, task.names)
    segments = [name for name in task.names.segments if name in rows.schema.names]
    needed = [*keys, *segments, *(name for name in rows.schema.names if name == col.COPIES)]
    rows, offsets = group_rows(rows.select(needed), task.names, completely=True)
    starts = pa.array(offsets[:-1])
    found = build_empty_partials({key: rows.column(key).take(starts) for key in keys}, nothing, task)
    found.head[N_REJECTED] = pa.array(count_copies(rows, offsets))
    for name in segments:
        found.head[f"{LOST}:{name}"] = find_column_range(rows.column(name), name, offsets)[f"low:{name}"]
    return found


def build_empty_partials(keys: dict[str, pa.Array], nothing: pa.RecordBatch, task: RankingTask) -> PartialRankings:
    """Partial rankings of some queries, with all that those of rows like `nothing` have, but without entries."""
    found = rank_partially(read_query_rows(nothing, np.zeros(1, dtype=np.int64), task.settings), task)
    n = len(next(iter(keys.values())))
    head = dict(keys)
    for name, column in found.head.items():
        if is_count(name):
            head[name] = pa.array(np.zeros(n, dtype=np.int64))
        elif name not in head:
            head[name] = pa.nulls(n, column.type)
    lists = (
        None if entries is None else Entries(entries.columns, np.zeros(n + 1, dtype=np.int64))
        for entries in (found.ranked, found.ideal)
    )
    return PartialRankings(head, *lists)


def _count_rows(rows: QueryRows, task: RankingTask) -> dict[str, IntArray]:
    n_used = ragged.lengths_of(rows.offsets)
    n_rows = count_copies(rows.batch, rows.offsets)
    n_items = _count_flags(rows.retrieved, rows.offsets)
    nothing = np.zeros_like(n_used)
    counts = {
        "n_rows": n_rows,
        "n_left_out": n_rows - n_used + n_items - _count_flags(rows.ranked, rows.offsets),
        "n_items": n_items,
        "n_judged": nothing,
        "n_relevant": nothing,
        **{f"{AT_LEAST}{at}": nothing for at in range(len(task.settings.levels))},
    }
    if rows.relevance is not None:
        counts["n_judged"] = _count_flags(rows.judged, rows.offsets)
        if task.counts_relevant:
            counts["n_relevant"] = _count_flags(intersect_flags(rows.relevance > 0, rows.judged), rows.offsets)
        for at, level in enumerate(task.settings.levels):
            counts[f"{AT_LEAST}{at}"] = _count_flags(
                intersect_flags(rows.relevance >= level, rows.judged), rows.offsets
            )
    return counts


def count_copies(batch: pa.RecordBatch, offsets: IntArray) -> IntArray:
    """Count the rows of the input that each stretch stands for."""
    if col.COPIES not in batch.schema.names or len(offsets) == 1:
        return ragged.lengths_of(offsets)
    return np.add.reduceat(int_values(batch.column(col.COPIES)), offsets[:-1])


def is_count(name: str) -> bool:
    """Whether a column of the head is a count, which merging adds up."""
    return name in COUNTS or name == N_REJECTED or name.startswith(AT_LEAST)


def _count_flags(flags: BoolArray | None, offsets: IntArray) -> IntArray:
    if flags is None or len(offsets) == 1:
        return ragged.lengths_of(offsets)
    return np.add.reduceat(flags, offsets[:-1], dtype=np.int64)  # no stretch is empty


def find_column_range(column: pa.Array, name: str, offsets: IntArray) -> dict[str, pa.Array]:
    """The lowest and the highest value of a column in each stretch. Nulls do not count."""
    encoded = column.dictionary_encode()
    values = encoded.dictionary
    in_order = pc.array_sort_indices(values.cast(pa.int8()) if pa.types.is_boolean(values.type) else values)
    place = np.empty(len(values) + 1, dtype=np.int64)
    place[in_order.to_numpy()] = np.arange(len(values))
    place[-1] = -1  # of null
    places = place[encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)]
    highest = np.maximum.reduceat(places, offsets[:-1]) if len(places) else places
    lowest = np.minimum.reduceat(np.where(places < 0, len(values), places), offsets[:-1]) if len(places) else places
    values = values.take(in_order)
    return {
        f"{end}:{name}": values.take(pa.array(at, mask=highest < 0))
        for end, at in (("low", lowest), ("high", highest))
    }


# ------------------------------------------------------------------------------------------------- the ranked list


def rank_entries(rows: QueryRows, task: RankingTask) -> Entries:
    """Keep the first entries of each stretch in rank order, with what merging and scoring need; NaN if unjudged."""
    if task.ranks_given:
        return _take_entries(rows, _find_first_ranks(rows, get_ranked_limit(task)), task)
    return keep_first_entries(_take_entries(rows, _find_candidates(rows, get_ranked_limit(task)), task), task)


def get_ranked_limit(task: RankingTask) -> int | None:
    """Return how many entries are kept before lists are complete, or None for all.

    One more than the largest cutoff, so that a rank or an item that comes twice across it is seen.
    """
    k = task.settings.max_k
    return k + 1 if k is not None and task.cuts_early else None


def _take_entries(rows: QueryRows, at: IntArray, task: RankingTask) -> Entries:
    batch, convention, ranks_anew = rows.batch, task.settings.convention, not task.ranks_given
    by_item = ranks_anew and convention.ties in ("item_asc", "item_desc")
    columns: dict[str, Values] = (
        {col.SCORE: rows.value[at].astype(np.float64)} if ranks_anew else {col.RANK: rows.value[at].astype(np.int64)}
    )
    if rows.relevance is not None:
        relevance = rows.relevance[at].astype(np.float64)
        columns[col.RELEVANCE] = relevance if rows.judged is None else np.where(rows.judged[at], relevance, np.nan)
    needs_item = by_item or task.checks_duplicates or task.settings.lists_items or task.judgments is not None
    if col.ITEM in batch.schema.names and needs_item:
        columns[col.ITEM] = take_values(batch.column(col.ITEM), at)
    if ranks_anew and convention.ties == "input_order" and col.ORDER in batch.schema.names:
        columns[col.ORDER] = take_values(batch.column(col.ORDER), at)
    if ranks_anew and task.settings.groups_ties:
        columns[COUNT] = np.ones(len(at), dtype=np.int64)
    return Entries(columns, ragged.chosen_offsets(at, rows.offsets))


def _find_first_ranks(rows: QueryRows, kept: int | None) -> IntArray:
    """Rows on the first ranks, in rank order."""
    if kept is None:
        chosen = _find_flagged(rows.ranked, len(rows.value))
        return chosen[np.lexsort((rows.value[chosen], ragged.query_of_rows(rows.offsets)[chosen]))]
    k, n_longest = kept - 1, int(ragged.lengths_of(rows.offsets).max(initial=0))
    ranks = rows.value if rows.ranked is None else np.where(rows.ranked, rows.value.astype(np.int64), k + 1)
    return ragged.first_ranked(ranks, rows.offsets, k, min(kept, max(n_longest, 1)))[0]


def _find_flagged(flags: BoolArray | None, n_rows: int) -> IntArray:
    """Numbers of the flagged rows; None flags all."""
    return np.arange(n_rows) if flags is None else np.flatnonzero(flags)


def _find_candidates(rows: QueryRows, kept: int | None) -> IntArray:
    """Rows that score no less than the last kept one of their stretch."""
    if kept is None:
        return _find_flagged(rows.ranked, len(rows.value))
    score = rows.value if rows.ranked is None else np.where(rows.ranked, rows.value, -np.inf)
    chosen = score >= np.repeat(ragged.kth_largest(score, rows.offsets, kept), ragged.lengths_of(rows.offsets))
    return np.flatnonzero(chosen if rows.ranked is None else chosen & rows.ranked)


def keep_first_entries(entries: Entries, task: RankingTask) -> Entries:
    kept = get_ranked_limit(task)
    if task.ranks_given:
        order = np.lexsort(
            (_get_relevance_key(entries), entries.numbers(col.RANK), ragged.query_of_rows(entries.offsets))
        )
        return entries.taken(order).first(kept)
    if COUNT in entries.columns and col.RELEVANCE in entries.columns:
        return keep_first_tie_groups(entries, None if kept is None else kept - 1, everywhere=False)
    order, same = order_by_rank(entries, task)
    return entries.taken(order).first(kept, same)


def order_by_rank(entries: Entries, task: RankingTask) -> tuple[IntArray, BoolArray | None]:
    """Order entries of each query by score, tie rule, relevance (lowest first) and item; also flag unresolved ties.

    Items only choose among equal rows, for metrics of items and duplicates.
    """
    score, offsets = entries.numbers(col.SCORE), entries.offsets
    order = ragged.falling_order(score, offsets)
    tied = ragged.equals_previous(score[order], offsets)
    if not tied.any():
        return order, None
    places = _rank_by_tie_rule(entries, task)
    keys = [_get_relevance_key(entries), places, -score, ragged.query_of_rows(offsets)]
    if task.settings.convention.ties == "input_order" and col.ITEM in entries.columns:
        keys.insert(0, rank_values(entries.columns[col.ITEM]))
    order = np.lexsort(keys)
    if col.RELEVANCE in entries.columns:
        return order, None
    tied[1:] &= places[order][1:] == places[order][:-1]
    return order, tied


def _rank_by_tie_rule(entries: Entries, task: RankingTask) -> IntArray:
    """Numbers that put entries of equal score in the order of the tie rule; all equal where it has none."""
    name = next((one for one in (col.ORDER, col.ITEM) if one in entries.columns), None)
    ties = task.settings.convention.ties
    if name is None or task.settings.groups_ties or (ties == "input_order" and name == col.ITEM):
        return np.zeros(len(entries.numbers(col.SCORE)), dtype=np.int64)
    place = rank_values(entries.columns[name])
    return ~place if ties == "item_desc" else place  # ~x falls as x rises, and cannot overflow


def rank_values(values: Values) -> IntArray:
    """Rank of each value among all: strings by UTF-8 bytes, numbers by value."""
    if isinstance(values, np.ndarray):
        if values.dtype.kind == "f":  # a time with fractions must not lose them
            return np.asarray(np.unique(values, return_inverse=True)[1], dtype=np.int64)
        return values.astype(np.int64, copy=False)
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    found = pc.rank(values, sort_keys="ascending", tiebreaker="dense")
    return np.asarray(found.to_numpy(zero_copy_only=False)).astype(np.int64)


def _get_relevance_key(entries: Entries) -> FloatArray:
    """What entries are told apart by at last; an unjudged item comes before all judged ones."""
    if col.RELEVANCE not in entries.columns:
        return np.zeros(entries.offsets[-1])
    relevance = entries.numbers(col.RELEVANCE)
    return np.where(np.isnan(relevance), -np.inf, relevance)


def keep_first_tie_groups(entries: Entries, k: int | None, *, everywhere: bool) -> Entries:
    """Keep the tie groups that reach into the first k ranks: best score first, then the lowest relevance.

    `everywhere` merges equal items in all groups; else only in the one beyond rank k + 1, and drops its items.
    """
    score, relevance = entries.numbers(col.SCORE), _get_relevance_key(entries)
    order = ragged.falling_order(score, entries.offsets)
    if ragged.equals_previous(score[order], entries.offsets).any():
        order = np.lexsort((relevance, -score, ragged.query_of_rows(entries.offsets)))
    score, relevance = score[order], relevance[order]
    n = entries.numbers(COUNT)[order].astype(np.int64)
    # An item twice across the cutoff is seen as long as lists have one entry more.
    end = len(n) * int(n.max(initial=1)) + 1 if k is None else k + int(not everywhere)
    groups = tie_groups(score, n, entries.offsets)
    straddles = (groups.start < end) & (groups.start + groups.size > end)
    new_entry = np.ones(len(n), dtype=np.bool_)
    new_entry[1:] = (np.diff(groups.group) > 0) | (relevance[1:] != relevance[:-1])
    new_entry |= ~(straddles | everywhere)
    first = np.flatnonzero(new_entry)
    counts = np.add.reduceat(n, first) if len(n) else n
    inside = groups.start[first] < end
    first, counts = first[inside], counts[inside]
    found = entries.taken(order[first])
    found.columns[COUNT] = counts
    hidden = straddles[first]
    if col.ITEM in found.columns and hidden.any():
        found.columns[col.ITEM] = pc.if_else(pa.array(hidden), None, pa.array(found.columns[col.ITEM]))
    return Entries(found.columns, ragged.chosen_offsets(first, entries.offsets))


# -------------------------------------------------------------------------------------------------- the ideal list


def rank_ideal(rows: QueryRows, task: RankingTask) -> Entries:
    """Keep the best relevances of each stretch, the best first; one more than K where duplicates are looked for."""
    settings, offsets = task.settings, rows.offsets
    listed = intersect_flags(rows.judged, rows.ranked) if settings.convention.ideal == "retrieved" else rows.judged
    relevance = rows.relevance
    if relevance is None:
        raise ValueError("rows have no relevances")
    with_item = task.checks_duplicates and col.ITEM in rows.batch.schema.names
    k = get_ideal_limit(task)
    if k is None or settings.convention.has_gain_table:
        at = _find_flagged(listed, len(relevance))
        columns: dict[str, Values] = {col.RELEVANCE: relevance[at].astype(np.float64)}
        if with_item:
            columns[col.ITEM] = take_values(rows.batch.column(col.ITEM), at)
        return keep_best_entries(Entries(columns, ragged.chosen_offsets(at, offsets)), task)
    value = relevance if listed is None else np.where(listed, relevance.astype(np.float64), -np.inf)
    best, lengths = ragged.largest(value, offsets, _count_flags(listed, offsets), k)
    entries = Entries({col.RELEVANCE: best.astype(np.float64)}, ragged.offsets_of(lengths))
    if with_item:
        entries.columns[col.ITEM] = _take_best_items(rows, value, entries, k)
    return entries


def get_ideal_limit(task: RankingTask) -> int | None:
    """How many entries of an ideal list are kept before it is complete; None keeps all."""
    k = task.settings.max_k
    return None if k is None else k + int(task.checks_duplicates)


def keep_best_entries(entries: Entries, task: RankingTask) -> Entries:
    """Put relevances in ideal order and keep the best of each query."""
    order_by = compute_ideal_key(entries.numbers(col.RELEVANCE), task)
    query = ragged.query_of_rows(entries.offsets)
    in_order = (order_by[1:] <= order_by[:-1]) | (query[1:] != query[:-1])
    if not in_order.all():
        entries = entries.taken(np.lexsort((-order_by, query)))
    return entries.first(get_ideal_limit(task))


def compute_ideal_key(relevance: FloatArray, task: RankingTask) -> FloatArray:
    """By what judged items are put in ideal order: their relevance, or their gain by a table."""
    convention = task.settings.convention
    if not convention.has_gain_table or not len(relevance):
        return relevance
    levels = np.maximum(relevance, 0.0) if convention.negative == "clip" else relevance
    return np.asarray(gain_function(convention.gain)(levels), dtype=np.float64)


def _take_best_items(rows: QueryRows, value: NumberArray, best: Entries, k: int) -> Values:
    """Items of the best relevances. Which of those that tie for the k-th are among them is arbitrary: any does."""
    lengths, starts = ragged.lengths_of(best.offsets), best.offsets[:-1]
    lowest = np.full(len(lengths), -np.inf)
    lowest[lengths == k] = best.numbers(col.RELEVANCE)[starts[lengths == k] + k - 1]
    at = np.flatnonzero(value > np.repeat(lowest, ragged.lengths_of(rows.offsets)))
    query = ragged.query_of_rows(rows.offsets)[at]
    order = np.lexsort((-value[at].astype(np.float64), query))
    place = ragged.rank_of_rows(ragged.offsets_of(np.bincount(query, minlength=len(lengths))))
    found = np.repeat(rows.offsets[:-1], lengths)
    found[starts[query] + place] = at[order]
    return take_values(rows.batch.column(col.ITEM), found)


def merge_by_query(partials: list[PartialRankings], task: RankingTask) -> list[PartialRankings]:
    """Merge the partial rankings of each query: those of queries in one piece, and those that were merged."""
    if not partials:
        return []
    found = concat_partials(partials)
    keys = found.keys(task.names)
    order = order_by_group(keys, task.names)
    if order is None:
        return [found]
    groups = find_stretches(keys.take(pa.array(order)), tuple(keys.schema.names))
    in_parts = ragged.lengths_of(groups) > 1
    alone = order[groups[:-1][~in_parts]]
    apart = order[np.repeat(in_parts, ragged.lengths_of(groups))]
    lengths = ragged.lengths_of(groups)[in_parts]
    parts = [take_partials(found, alone)] if len(alone) else []
    return [*parts, _merge_groups(take_partials(found, apart), ragged.offsets_of(lengths), task)]


def take_partials(partials: PartialRankings, at: IntArray) -> PartialRankings:
    places = pa.array(at)
    return PartialRankings(
        {name: column.take(places) for name, column in partials.head.items()},
        None if partials.ranked is None else partials.ranked.of_queries(at),
        None if partials.ideal is None else partials.ideal.of_queries(at),
    )


def _merge_groups(partials: PartialRankings, offsets: IntArray, task: RankingTask) -> PartialRankings:
    """Merge successive partial rankings, those of a query between two offsets."""
    head = {}
    for name, column in partials.head.items():
        end, colon, carried = name.partition(":")
        if is_count(name):
            head[name] = pa.array(np.add.reduceat(int_values(column), offsets[:-1]))
        elif colon:
            head[name] = find_column_range(column, carried, offsets)[f"{'low' if end == LOST else end}:{carried}"]
        else:
            head[name] = column.take(pa.array(offsets[:-1]))
    ranked, ideal = partials.ranked, partials.ideal
    return PartialRankings(
        head,
        None if ranked is None else keep_first_entries(Entries(ranked.columns, ranked.offsets[offsets]), task),
        None if ideal is None else keep_best_entries(Entries(ideal.columns, ideal.offsets[offsets]), task),
    )


def concat_partials(partials: list[PartialRankings]) -> PartialRankings:
    if len(partials) == 1:
        return partials[0]
    partials = _align_heads(partials)
    head = {name: pa.concat_arrays([one.head[name] for one in partials]) for name in partials[0].head}
    ranked = [one.ranked for one in partials if one.ranked is not None]
    ideal = [one.ideal for one in partials if one.ideal is not None]
    return PartialRankings(head, joined_entries(ranked) if ranked else None, joined_entries(ideal) if ideal else None)


def _align_heads(partials: list[PartialRankings]) -> list[PartialRankings]:
    """Count no rejected row where none was, if any are counted."""
    like = next((one.head for one in partials if N_REJECTED in one.head), None)
    if like is None:
        return partials
    found = []
    for one in partials:
        head, n = dict(one.head), len(one.head["n_rows"])
        for name, column in like.items():
            if name not in head:
                head[name] = pa.array(np.zeros(n, dtype=np.int64)) if is_count(name) else pa.nulls(n, column.type)
        found.append(PartialRankings(head, one.ranked, one.ideal))
    return found


SEVERAL_RANKERS = "Does the table hold several rankers?"
"""Asked where an item comes twice and no column names the ranker: to keep one row of two would mix their lists."""
LISTS = ("ranked list", "list of relevant items")
"""Kinds of lists of items."""
TWICE = "twice"
"""Column of entries: whether the item is judged more than once."""


def finish_rankings(complete: PartialRankings, task: RankingTask) -> Iterator[pa.RecordBatch]:
    """Finish rankings: cut lists to K, refuse items that come twice, use the user's names. See `rank_queries`."""
    batch = _build_rankings(complete, task)
    for start in range(0, batch.num_rows, task.queries_at_once):
        yield batch.slice(start, task.queries_at_once)


def _build_rankings(complete: PartialRankings, task: RankingTask) -> pa.RecordBatch:
    head, names = complete.head, task.names
    n = len(head["n_rows"])
    columns = {col.RUN: head[col.RUN] if col.RUN in head else pa.repeat(pa.scalar(""), n)}
    columns |= {label: head[name] for name, label in names.query.items()}
    columns |= {name: head[name] for name in COUNTS}
    if task.counts_rejected:
        columns[N_REJECTED] = head[N_REJECTED] if N_REJECTED in head else pa.array(np.zeros(n, dtype=np.int64))
    if task.settings.levels:
        columns["n_at_least"] = lists_of_counts(
            [int_values(head[f"{AT_LEAST}{at}"]) for at in range(len(task.settings.levels))]
        )
    keys = complete.keys(names)
    for name, label in names.carried.items():
        if f"low:{name}" in head:
            shown = str(task.settings.columns.weight) if name == col.WEIGHT else label
            several = find_differences(head[f"low:{name}"], head[f"high:{name}"])
            refuse_first(keys, several, f"column {shown!r} has more than one value in query ", ".", task)
            columns[label] = head[f"low:{name}"]
            if f"{LOST}:{name}" in head:  # a query of rejected rows only, which is in no mean
                lost = (int_values(head["n_rows"]) == 0) & (int_values(head["n_judged"]) == 0)
                columns[label] = pc.if_else(pa.array(lost), head[f"{LOST}:{name}"], columns[label])
    return pa.RecordBatch.from_pydict(columns | _finish_lists(keys, complete, task))


def advise_on_repeats(kind: str, settings: EvaluationSettings, others: Sequence[str]) -> str:
    """Advise on an item that comes twice in a list; one of the unused columns `others` may name the ranker."""
    if kind == "list":  # of arrays, of which no entry is left out
        return "Remove it."
    best = settings.convention.advice("duplicates", "best")
    if kind in LISTS:
        return f"Remove it, or say which counts ({best})."
    which = f"say which counts ({best}, or first with {option('order')})"
    if settings.columns.run is not None or len(settings.columns.score) > 1 or kind == "judgments":
        return f"Remove it, or {which}."
    found = f" (columns that are not used: {', '.join(others)})" if others else ""
    run = f"Then name the column that tells them apart: run=...{found}."
    return f"{SEVERAL_RANKERS} {run} Else remove it, or {which}."


def refuse_two_values(keys: pa.RecordBatch, low: pa.Array, high: pa.Array, name: str, task: RankingTask) -> None:
    """Raise where runs name two values of a segment column for a query."""
    at = ragged.first_where(find_differences(low, high), np.arange(len(low) + 1))
    if at is not None:
        values = f"{value_at(low, at)!r} and {value_at(high, at)!r}"
        raise InputRefusedError(
            f"column {name!r} has more than one value in query {format_key(keys, task.names, at)}: {values}; it must "
            "be the same in all runs."
        )


def find_differences(one: pa.Array, other: pa.Array) -> BoolArray:
    """Where two columns have different values; nulls do not count, and NaN equals NaN, as in Spark."""
    found = flags_of(pc.not_equal(one, other))
    if pa.types.is_floating(one.type):
        found &= ~flags_of(pc.and_(pc.is_nan(one), pc.is_nan(other)))
    return found


def refuse_first(keys: pa.RecordBatch, flags: np.ndarray, before: str, after: str, task: RankingTask) -> None:
    at = ragged.first_where(flags, np.arange(len(flags) + 1))
    if at is not None:
        raise InputRefusedError(f"{before}{format_key(keys, task.names, at)}{after}")


def _finish_lists(keys: pa.RecordBatch, complete: PartialRankings, task: RankingTask) -> dict[str, pa.Array]:
    ranked, ideal = complete.ranked, complete.ideal
    if ranked is None:
        raise ValueError("rankings without a ranked list")
    if task.checks_duplicates and col.ITEM in ranked.columns:
        kind = "ranking" if task.judgments is None else "ranking or its judgments"
        refuse_repeats(keys, ranked, kind, task)
    k = task.settings.max_k
    others: dict[str, Values] = {}
    if COUNT in ranked.columns:
        ranked = keep_first_tie_groups(ranked.only(col.SCORE, col.RELEVANCE, COUNT), k, everywhere=True)
        others = {"scores": ranked.numbers(col.SCORE), "tied": ranked.numbers(COUNT)}
    elif col.RANK in ranked.columns:
        ranked = ranked if k is None else ranked.where(ranked.numbers(col.RANK) <= k)
        others = {"ranks": ranked.numbers(col.RANK)}
    else:
        ranked = ranked.first(k)
        if task.settings.columns.places:
            same = ragged.equals_previous(ranked.numbers(col.SCORE), ranked.offsets)
            shared = ragged.lengths_of(ragged.chosen_offsets(same, ranked.offsets)) > 0
            refuse_first(keys, shared, "query ", f" {TWO_ON_ONE_RANK}.", task)
    if ideal is None:
        ideal = Entries({col.RELEVANCE: np.zeros(0)}, np.zeros(keys.num_rows + 1, dtype=np.int64))
    ideal = _finish_ideal(keys, ideal, k, task)
    if task.settings.lists_items:
        kind = (
            task.rows.field(col.ITEM).type
            if col.ITEM in task.rows.names
            else task.rows.field(col.RANKED_ITEMS).type.value_type
        )
        others["items"] = pa.array(ranked.columns[col.ITEM]).cast(kind)
    relevance = ranked.numbers(col.RELEVANCE)
    unjudged = np.isnan(relevance)
    relevances = float_column(relevance, ~unjudged) if unjudged.any() else pa.array(relevance)
    return {
        "ranked": list_column(relevances, ranked.offsets),
        **{name: list_column(pa.array(values), ranked.offsets) for name, values in others.items()},
        "ideal": list_column(pa.array(ideal.numbers(col.RELEVANCE)), ideal.offsets),
    }


def _finish_ideal(keys: pa.RecordBatch, best: Entries, k: int | None, task: RankingTask) -> Entries:
    """Cut the ideal list to k; refuse a repeated item in it. Items tied at the cutoff are arbitrary, so ignored."""
    if col.ITEM in best.columns:
        order_by, lengths = compute_ideal_key(best.numbers(col.RELEVANCE), task), ragged.lengths_of(best.offsets)
        beyond = np.full(len(lengths), -np.inf)
        if k is not None:
            beyond[lengths > k] = order_by[best.offsets[:-1][lengths > k] + k]
        certain = best.where(order_by > np.repeat(beyond, lengths))
        refuse_repeats(keys, certain, "ideal list" if task.judgments is None else "judgments", task)
    return best.first(k)


def refuse_repeats(keys: pa.RecordBatch, entries: Entries, kind: str, task: RankingTask) -> None:
    """Raise where an item comes twice in a list, or is judged twice. Nulls are items that were not kept."""
    items = entries.columns[col.ITEM]
    if isinstance(items, pa.Array) and items.null_count:
        entries = entries.where(flags_of(items.is_valid()))
        items = entries.columns[col.ITEM]
    codes = items if isinstance(items, np.ndarray) else int_values(items.dictionary_encode().indices)
    twice = ragged.repeats(codes, entries.offsets)
    if TWICE in entries.columns:
        twice |= ragged.lengths_of(ragged.chosen_offsets(entries.numbers(TWICE), entries.offsets)) > 0
    advice = advise_on_repeats(kind, task.settings, task.others)
    refuse_first(keys, twice, f"an item comes twice in the {kind} of query ", f". {advice}", task)
