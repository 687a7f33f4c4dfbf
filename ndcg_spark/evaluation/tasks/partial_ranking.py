"""Rank stretches of rows of a query (counts, the first K entries, the K best relevances), merge and finish them."""

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
    concat_entries,
    float_column,
    get_value,
    int_values,
    list_column,
    make_row_lists,
    take_values,
    to_flags,
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
from ndcg_spark.evaluation.tasks.valid_rows import format_key, split_runs
from ndcg_spark.metrics.kernels import tie_groups

COUNT = "n"
"""Column of entries: the number of tied items that an entry stands for."""
QUERY_COUNTS = ("n_rows", "n_left_out", "n_items", "n_judged", "n_relevant")
N_REJECTED = "n_rejected"
"""Number of rejected rows of a query. Those of a stretch are a partial ranking without entries."""
LOW, HIGH = "low:", "high:"
"""Prefixes of a carried column: its lowest and highest value in a stretch, which must be equal within a query."""
REJECTED_LOW = "rejected_low:"
"""Prefix of a segment column: the lowest value in rejected rows, used if a query has no valid rows."""
AT_LEAST = "at_least:"
"""Prefix of an index of `EvaluationSettings.levels`: the number of judged items with at least that relevance."""
TWO_ON_ONE_RANK = "has two items on one rank; correct the ranks, or name all columns of the query"


@dataclass(slots=True)
class PartialRankings:
    """Partial rankings, each of a stretch of one query of one run.

    `queries` has columns with a value per stretch: keys, counts, and the range of carried columns (`LOW`, `HIGH`). If
    rows were rejected, it also has `n_rejected`, and `REJECTED_LOW` of segments.
    """

    queries: dict[str, pa.Array]
    ranked: Entries | None  # the first entries by score or rank; None for judgments
    ideal: Entries | None  # the best relevances; None if the ideal list does not depend on them

    def keys(self, names: Names) -> pa.RecordBatch:
        """Return the columns of `queries` that identify a query of a run."""
        keys = {name: column for name, column in self.queries.items() if name == col.RUN or name in names.query}
        return pa.RecordBatch.from_pydict(keys)


def rank_partially(rows: QueryRows, task: RankingTask, *, ideal: Entries | None = None) -> PartialRankings:
    """Rank stretches of rows of a run. `ideal` has their ideal lists, if these are known already."""
    if ideal is None and rows.relevance is not None and needs_ideal(task):
        ideal = rank_ideal(rows, task)
    return PartialRankings(describe_stretches(rows, task), rank_entries(rows, task), ideal)


def needs_ideal(task: RankingTask) -> bool:
    return task.settings.convention.ideal != "k_ones"


def describe_stretches(rows: QueryRows, task: RankingTask) -> dict[str, pa.Array]:
    """Compute the keys, counts and ranges of carried columns of each stretch."""
    starts, names = pa.array(rows.offsets[:-1]), rows.batch.schema.names
    queries: dict[str, pa.Array] = {
        key: rows.batch.column(key).take(starts) for key in list_keys(rows.batch, task.names)
    }
    queries |= {key: pa.array(count) for key, count in _count_rows(rows, task).items()}
    for carried in task.names.carried:
        if carried in names:
            column = rows.batch.column(carried)
            queries |= find_column_range(
                column.cast(pa.float64(), safe=False) if carried == col.WEIGHT else column, carried, rows.offsets
            )
    return queries


def count_rejected(rows: pa.RecordBatch, task: RankingTask) -> PartialRankings:
    """Count the rejected rows of each query in partial rankings without entries. Rows must have a query."""
    keys = list_keys(rows, task.names)
    segments = [segment for segment in task.names.segments if segment in rows.schema.names]
    needed = [*keys, *segments, *(column for column in rows.schema.names if column == col.COPIES)]
    rows, offsets = group_rows(rows.select(needed), task.names, completely=True)
    starts = pa.array(offsets[:-1])
    partials = build_empty_partials({key: rows.column(key).take(starts) for key in keys}, task)
    partials.queries[N_REJECTED] = pa.array(count_copies(rows, offsets))
    for segment in segments:
        lowest = find_column_range(rows.column(segment), segment, offsets)[f"{LOW}{segment}"]
        partials.queries[f"{REJECTED_LOW}{segment}"] = lowest
    return partials


def build_empty_partials(keys: dict[str, pa.Array], task: RankingTask) -> PartialRankings:
    """Build partial rankings without entries, with the columns that rankings of rows have."""
    empty_batch = next(split_runs(pa.RecordBatch.from_pylist([], schema=task.rows), task.names))
    template = rank_partially(read_query_rows(empty_batch, np.zeros(1, dtype=np.int64), task.settings), task)
    n = len(next(iter(keys.values())))
    queries = dict(keys)
    for name, column in template.queries.items():
        if is_count(name):
            queries[name] = pa.array(np.zeros(n, dtype=np.int64))
        elif name not in queries:
            queries[name] = pa.nulls(n, column.type)
    lists = (
        None if entries is None else Entries(entries.columns, np.zeros(n + 1, dtype=np.int64))
        for entries in (template.ranked, template.ideal)
    )
    return PartialRankings(queries, *lists)


def _count_rows(rows: QueryRows, task: RankingTask) -> dict[str, IntArray]:
    n_used = ragged.to_lengths(rows.offsets)
    n_rows = count_copies(rows.batch, rows.offsets)
    n_items = _count_flags(rows.retrieved, rows.offsets)
    zeros = np.zeros_like(n_used)
    counts = {
        "n_rows": n_rows,
        "n_left_out": n_rows - n_used + n_items - _count_flags(rows.ranked, rows.offsets),
        "n_items": n_items,
        "n_judged": zeros,
        "n_relevant": zeros,
        **{f"{AT_LEAST}{index}": zeros for index in range(len(task.settings.levels))},
    }
    if rows.relevance is not None:
        counts["n_judged"] = _count_flags(rows.judged, rows.offsets)
        if task.counts_relevant:
            counts["n_relevant"] = _count_flags(intersect_flags(rows.relevance > 0, rows.judged), rows.offsets)
        for index, level in enumerate(task.settings.levels):
            counts[f"{AT_LEAST}{index}"] = _count_flags(
                intersect_flags(rows.relevance >= level, rows.judged), rows.offsets
            )
    return counts


def count_copies(batch: pa.RecordBatch, offsets: IntArray) -> IntArray:
    """Count the input rows of each stretch, copies included."""
    if col.COPIES not in batch.schema.names or len(offsets) == 1:
        return ragged.to_lengths(offsets)
    return np.add.reduceat(int_values(batch.column(col.COPIES)), offsets[:-1])


def is_count(column: str) -> bool:
    """Return True if a column of `PartialRankings.queries` is a count, which merging adds up."""
    return column in QUERY_COUNTS or column == N_REJECTED or column.startswith(AT_LEAST)


def _count_flags(flags: BoolArray | None, offsets: IntArray) -> IntArray:
    if flags is None or len(offsets) == 1:
        return ragged.to_lengths(offsets)
    return np.add.reduceat(flags, offsets[:-1], dtype=np.int64)  # no stretch is empty


def find_column_range(column: pa.Array, name: str, offsets: IntArray) -> dict[str, pa.Array]:
    """Return the lowest and the highest value of a column in each stretch, ignoring nulls."""
    encoded = column.dictionary_encode()
    values = encoded.dictionary
    in_order = pc.array_sort_indices(values.cast(pa.int8()) if pa.types.is_boolean(values.type) else values)
    rank = np.empty(len(values) + 1, dtype=np.int64)
    rank[in_order.to_numpy()] = np.arange(len(values))
    rank[-1] = -1  # of null
    ranks = rank[encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)]
    highest = np.maximum.reduceat(ranks, offsets[:-1]) if len(ranks) else ranks
    lowest = np.minimum.reduceat(np.where(ranks < 0, len(values), ranks), offsets[:-1]) if len(ranks) else ranks
    values = values.take(in_order)
    return {
        f"{end}{name}": values.take(pa.array(index, mask=highest < 0))
        for end, index in ((LOW, lowest), (HIGH, highest))
    }


# ------------------------------------------------------------------------------------------------- the ranked list


def rank_entries(rows: QueryRows, task: RankingTask) -> Entries:
    """Return the first entries of each stretch in rank order, with the columns that merging and scoring need.

    Relevance is NaN if an item is unjudged.
    """
    if task.ranks_given:
        return _take_entries(rows, _find_first_ranks(rows, get_ranked_limit(task)), task)
    return keep_first_entries(_take_entries(rows, _find_candidates(rows, get_ranked_limit(task)), task), task)


def get_ranked_limit(task: RankingTask) -> int | None:
    """Return the number of entries to keep of an incomplete list, or None for all.

    It is the largest cutoff plus one, so that a rank or item that occurs twice across the cutoff is noticed.
    """
    k = task.settings.max_k
    return k + 1 if k is not None and task.cuts_early else None


def _take_entries(rows: QueryRows, row: IntArray, task: RankingTask) -> Entries:
    batch, convention, ranks_anew = rows.batch, task.settings.convention, not task.ranks_given
    by_item = ranks_anew and convention.ties in ("item_asc", "item_desc")
    columns: dict[str, Values] = (
        {col.SCORE: rows.value[row].astype(np.float64)}
        if ranks_anew
        else {col.RANK: rows.value[row].astype(np.int64)}
    )
    if rows.relevance is not None:
        relevance = rows.relevance[row].astype(np.float64)
        columns[col.RELEVANCE] = relevance if rows.judged is None else np.where(rows.judged[row], relevance, np.nan)
    needs_item = by_item or task.checks_duplicates or task.settings.lists_items or task.judgments is not None
    if col.ITEM in batch.schema.names and needs_item:
        columns[col.ITEM] = take_values(batch.column(col.ITEM), row)
    if ranks_anew and convention.ties == "input_order" and col.ORDER in batch.schema.names:
        columns[col.ORDER] = take_values(batch.column(col.ORDER), row)
    if ranks_anew and task.settings.groups_ties:
        columns[COUNT] = np.ones(len(row), dtype=np.int64)
    return Entries(columns, ragged.offsets_after_filter(row, rows.offsets))


def _find_first_ranks(rows: QueryRows, limit: int | None) -> IntArray:
    """Return the rows on the first ranks, in rank order."""
    if limit is None:
        ranked = _find_flagged(rows.ranked, len(rows.value))
        return ranked[np.lexsort((rows.value[ranked], ragged.query_of_rows(rows.offsets)[ranked]))]
    k, n_longest = limit - 1, int(ragged.to_lengths(rows.offsets).max(initial=0))
    ranks = rows.value if rows.ranked is None else np.where(rows.ranked, rows.value.astype(np.int64), k + 1)
    return ragged.take_first_ranked(ranks, rows.offsets, k, min(limit, max(n_longest, 1)))[0]


def _find_flagged(flags: BoolArray | None, n_rows: int) -> IntArray:
    """Return the indices of flagged rows; all rows if `flags` is None."""
    return np.arange(n_rows) if flags is None else np.flatnonzero(flags)


def _find_candidates(rows: QueryRows, limit: int | None) -> IntArray:
    """Return the rows whose score is at least the `limit`-th highest of their stretch."""
    if limit is None:
        return _find_flagged(rows.ranked, len(rows.value))
    score = rows.value if rows.ranked is None else np.where(rows.ranked, rows.value, -np.inf)
    is_high = score >= np.repeat(ragged.kth_largest(score, rows.offsets, limit), ragged.to_lengths(rows.offsets))
    return np.flatnonzero(is_high if rows.ranked is None else is_high & rows.ranked)


def keep_first_entries(entries: Entries, task: RankingTask) -> Entries:
    """Keep the first entries of each query, in rank order."""
    limit = get_ranked_limit(task)
    if task.ranks_given:
        order = np.lexsort(
            (_get_relevance_key(entries), entries.numbers(col.RANK), ragged.query_of_rows(entries.offsets))
        )
        return entries.take(order).first(limit)
    if COUNT in entries.columns and col.RELEVANCE in entries.columns:
        return keep_first_tie_groups(entries, None if limit is None else limit - 1, everywhere=False)
    order, same = order_by_rank(entries, task)
    return entries.take(order).first(limit, same)


def order_by_rank(entries: Entries, task: RankingTask) -> tuple[IntArray, BoolArray | None]:
    """Order entries of each query by score, tie rule, relevance (lowest first) and item. Also flag unresolved ties.

    The item decides only between otherwise equal rows; metrics of items and duplicates depend on it.
    """
    score, offsets = entries.numbers(col.SCORE), entries.offsets
    order = ragged.argsort_descending(score, offsets)
    tied = ragged.equals_previous(score[order], offsets)
    if not tied.any():
        return order, None
    tie_ranks = _rank_by_tie_rule(entries, task)
    keys = [_get_relevance_key(entries), tie_ranks, -score, ragged.query_of_rows(offsets)]
    if task.settings.convention.ties == "input_order" and col.ITEM in entries.columns:
        keys.insert(0, rank_values(entries.columns[col.ITEM]))
    order = np.lexsort(keys)
    if col.RELEVANCE in entries.columns:
        return order, None
    tied[1:] &= tie_ranks[order][1:] == tie_ranks[order][:-1]
    return order, tied


def _rank_by_tie_rule(entries: Entries, task: RankingTask) -> IntArray:
    """Return numbers that sort entries of equal score by the tie rule; all equal if the rule has no order."""
    column = next((candidate for candidate in (col.ORDER, col.ITEM) if candidate in entries.columns), None)
    ties = task.settings.convention.ties
    if column is None or task.settings.groups_ties or (ties == "input_order" and column == col.ITEM):
        return np.zeros(len(entries.numbers(col.SCORE)), dtype=np.int64)
    ranks = rank_values(entries.columns[column])
    return ~ranks if ties == "item_desc" else ranks  # unlike -x, ~x cannot overflow


def rank_values(values: Values) -> IntArray:
    """Return integers that sort like the values: strings by UTF-8 bytes, numbers by value."""
    if isinstance(values, np.ndarray):
        if values.dtype.kind == "f":  # fractions of a time must not be lost
            return np.asarray(np.unique(values, return_inverse=True)[1], dtype=np.int64)
        return values.astype(np.int64, copy=False)
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    ranks = pc.rank(values, sort_keys="ascending", tiebreaker="dense")
    return np.asarray(ranks.to_numpy(zero_copy_only=False)).astype(np.int64)


def _get_relevance_key(entries: Entries) -> FloatArray:
    """Return the last sort key of entries: their relevance, with unjudged items first."""
    if col.RELEVANCE not in entries.columns:
        return np.zeros(entries.offsets[-1])
    relevance = entries.numbers(col.RELEVANCE)
    return np.where(np.isnan(relevance), -np.inf, relevance)


def keep_first_tie_groups(entries: Entries, k: int | None, *, everywhere: bool) -> Entries:
    """Keep the tie groups that begin within the first k ranks: best score first, then the lowest relevance.

    With `everywhere`, entries of equal score and relevance are merged in all groups. Without it, groups that begin
    within the first k + 1 ranks are kept. Entries are merged only in a group that extends beyond these ranks, and its
    items are dropped.
    """
    score, relevance = entries.numbers(col.SCORE), _get_relevance_key(entries)
    order = ragged.argsort_descending(score, entries.offsets)
    if ragged.equals_previous(score[order], entries.offsets).any():
        order = np.lexsort((relevance, -score, ragged.query_of_rows(entries.offsets)))
    score, relevance = score[order], relevance[order]
    n = entries.numbers(COUNT)[order].astype(np.int64)
    # One more entry than k, so that an item on both sides of the cutoff is noticed.
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
    top = entries.take(order[first])
    top.columns[COUNT] = counts
    hidden = straddles[first]
    if col.ITEM in top.columns and hidden.any():
        top.columns[col.ITEM] = pc.if_else(pa.array(hidden), None, pa.array(top.columns[col.ITEM]))
    return Entries(top.columns, ragged.offsets_after_filter(first, entries.offsets))


# -------------------------------------------------------------------------------------------------- the ideal list


def rank_ideal(rows: QueryRows, task: RankingTask) -> Entries:
    """Return the best relevances of each stretch, best first: K, or K + 1 if duplicates are checked."""
    settings, offsets = task.settings, rows.offsets
    listed = intersect_flags(rows.judged, rows.ranked) if settings.convention.ideal == "retrieved" else rows.judged
    relevance = rows.relevance
    if relevance is None:
        raise ValueError("rows have no relevances")
    with_item = task.checks_duplicates and col.ITEM in rows.batch.schema.names
    k = get_ideal_limit(task)
    if k is None or settings.convention.has_gain_table:
        row = _find_flagged(listed, len(relevance))
        columns: dict[str, Values] = {col.RELEVANCE: relevance[row].astype(np.float64)}
        if with_item:
            columns[col.ITEM] = take_values(rows.batch.column(col.ITEM), row)
        return keep_best_entries(Entries(columns, ragged.offsets_after_filter(row, offsets)), task)
    value = relevance if listed is None else np.where(listed, relevance.astype(np.float64), -np.inf)
    best, lengths = ragged.take_largest(value, offsets, _count_flags(listed, offsets), k)
    entries = Entries({col.RELEVANCE: best.astype(np.float64)}, ragged.to_offsets(lengths))
    if with_item:
        entries.columns[col.ITEM] = _take_best_items(rows, value, entries, k)
    return entries


def get_ideal_limit(task: RankingTask) -> int | None:
    """Return the number of entries to keep of an incomplete ideal list, or None for all."""
    k = task.settings.max_k
    return None if k is None else k + int(task.checks_duplicates)


def keep_best_entries(entries: Entries, task: RankingTask) -> Entries:
    """Sort relevances in ideal order and keep the best of each query."""
    sort_key = compute_ideal_key(entries.numbers(col.RELEVANCE), task)
    query = ragged.query_of_rows(entries.offsets)
    in_order = (sort_key[1:] <= sort_key[:-1]) | (query[1:] != query[:-1])
    if not in_order.all():
        entries = entries.take(np.lexsort((-sort_key, query)))
    return entries.first(get_ideal_limit(task))


def compute_ideal_key(relevance: FloatArray, task: RankingTask) -> FloatArray:
    """Return the sort key of the ideal order: the relevance, or the gain if the convention has a gain table."""
    convention = task.settings.convention
    if not convention.has_gain_table or not len(relevance):
        return relevance
    clipped = np.maximum(relevance, 0.0) if convention.negative == "clip" else relevance
    return np.asarray(gain_function(convention.gain)(clipped), dtype=np.float64)


def _take_best_items(rows: QueryRows, value: NumberArray, best: Entries, k: int) -> Values:
    """Return the items with the best relevances. Items tied at the k-th relevance are chosen arbitrarily."""
    lengths, starts = ragged.to_lengths(best.offsets), best.offsets[:-1]
    lowest = np.full(len(lengths), -np.inf)
    lowest[lengths == k] = best.numbers(col.RELEVANCE)[starts[lengths == k] + k - 1]
    higher = np.flatnonzero(value > np.repeat(lowest, ragged.to_lengths(rows.offsets)))
    query = ragged.query_of_rows(rows.offsets)[higher]
    order = np.lexsort((-value[higher].astype(np.float64), query))
    rank = ragged.rank_of_rows(ragged.to_offsets(np.bincount(query, minlength=len(lengths))))
    item_rows = np.repeat(rows.offsets[:-1], lengths)
    item_rows[starts[query] + rank] = higher[order]
    return take_values(rows.batch.column(col.ITEM), item_rows)


def merge_by_query(partials: list[PartialRankings], task: RankingTask) -> list[PartialRankings]:
    """Merge the partial rankings of each query. Unmerged ones are returned first, unchanged."""
    if not partials:
        return []
    combined = concat_partials(partials)
    keys = combined.keys(task.names)
    order = order_by_group(keys, task.names)
    if order is None:
        return [combined]
    groups = find_stretches(keys.take(pa.array(order)), tuple(keys.schema.names))
    is_split = ragged.to_lengths(groups) > 1
    single = order[groups[:-1][~is_split]]
    split = order[np.repeat(is_split, ragged.to_lengths(groups))]
    lengths = ragged.to_lengths(groups)[is_split]
    unchanged = [take_partials(combined, single)] if len(single) else []
    return [*unchanged, _merge_groups(take_partials(combined, split), ragged.to_offsets(lengths), task)]


def take_partials(partials: PartialRankings, index: IntArray) -> PartialRankings:
    indices = pa.array(index)
    return PartialRankings(
        {name: column.take(indices) for name, column in partials.queries.items()},
        None if partials.ranked is None else partials.ranked.select_queries(index),
        None if partials.ideal is None else partials.ideal.select_queries(index),
    )


def _merge_groups(partials: PartialRankings, offsets: IntArray, task: RankingTask) -> PartialRankings:
    """Merge groups of successive partial rankings; `offsets` separate the groups, one per query."""
    queries = {}
    for name, column in partials.queries.items():
        prefix, colon, carried = name.partition(":")
        if is_count(name):
            queries[name] = pa.array(np.add.reduceat(int_values(column), offsets[:-1]))
        elif colon:
            end = LOW if name.startswith(REJECTED_LOW) else prefix + colon
            queries[name] = find_column_range(column, carried, offsets)[f"{end}{carried}"]
        else:
            queries[name] = column.take(pa.array(offsets[:-1]))
    ranked, ideal = partials.ranked, partials.ideal
    return PartialRankings(
        queries,
        None if ranked is None else keep_first_entries(Entries(ranked.columns, ranked.offsets[offsets]), task),
        None if ideal is None else keep_best_entries(Entries(ideal.columns, ideal.offsets[offsets]), task),
    )


def concat_partials(partials: list[PartialRankings]) -> PartialRankings:
    if len(partials) == 1:
        return partials[0]
    partials = _add_rejected_columns(partials)
    queries = {
        name: pa.concat_arrays([partial.queries[name] for partial in partials]) for name in partials[0].queries
    }
    ranked = [partial.ranked for partial in partials if partial.ranked is not None]
    ideal = [partial.ideal for partial in partials if partial.ideal is not None]
    return PartialRankings(
        queries, concat_entries(ranked) if ranked else None, concat_entries(ideal) if ideal else None
    )


def _add_rejected_columns(partials: list[PartialRankings]) -> list[PartialRankings]:
    """Give all partial rankings the columns of rejected rows, with counts of 0, if some have them."""
    template = next((partial.queries for partial in partials if N_REJECTED in partial.queries), None)
    if template is None:
        return partials
    aligned = []
    for partial in partials:
        queries, n = dict(partial.queries), len(partial.queries["n_rows"])
        for name, column in template.items():
            if name not in queries:
                queries[name] = pa.array(np.zeros(n, dtype=np.int64)) if is_count(name) else pa.nulls(n, column.type)
        aligned.append(PartialRankings(queries, partial.ranked, partial.ideal))
    return aligned


SEVERAL_RANKERS = "Does the table hold several rankers?"
"""Printed if an item occurs twice and no column names the ranker. Dropping one row would mix the lists of two."""
LIST_KINDS = ("ranked list", "list of relevant items")
"""Kinds of lists of items."""
TWICE = "twice"
"""Column of entries: whether the item is judged more than once."""


def build_rankings(complete: PartialRankings, task: RankingTask) -> Iterator[pa.RecordBatch]:
    """Build the rows of `rank_queries`: cut lists to K, raise for repeated items, use the user's column names."""
    batch = _build_batch(complete, task)
    for start in range(0, batch.num_rows, task.queries_at_once):
        yield batch.slice(start, task.queries_at_once)


def _build_batch(complete: PartialRankings, task: RankingTask) -> pa.RecordBatch:
    queries, names = complete.queries, task.names
    n = len(queries["n_rows"])
    columns = {col.RUN: queries[col.RUN] if col.RUN in queries else pa.repeat(pa.scalar(""), n)}
    columns |= {label: queries[key] for key, label in names.query.items()}
    columns |= {count: queries[count] for count in QUERY_COUNTS}
    if task.counts_rejected:
        columns[N_REJECTED] = queries[N_REJECTED] if N_REJECTED in queries else pa.array(np.zeros(n, dtype=np.int64))
    if task.settings.levels:
        counts = [int_values(queries[f"{AT_LEAST}{index}"]) for index in range(len(task.settings.levels))]
        columns["n_at_least"] = make_row_lists(np.column_stack(counts))
    keys = complete.keys(names)
    for carried, label in names.carried.items():
        if f"{LOW}{carried}" in queries:
            shown = str(task.settings.columns.weight) if carried == col.WEIGHT else label
            differs = find_differences(queries[f"{LOW}{carried}"], queries[f"{HIGH}{carried}"])
            refuse_first(keys, differs, f"column {shown!r} has more than one value in query ", ".", task)
            columns[label] = queries[f"{LOW}{carried}"]
            if f"{REJECTED_LOW}{carried}" in queries:  # a query with rejected rows only
                lost = (int_values(queries["n_rows"]) == 0) & (int_values(queries["n_judged"]) == 0)
                columns[label] = pc.if_else(pa.array(lost), queries[f"{REJECTED_LOW}{carried}"], columns[label])
    return pa.RecordBatch.from_pydict(columns | _cut_lists(keys, complete, task))


def advise_on_repeats(kind: str, settings: EvaluationSettings, others: Sequence[str]) -> str:
    """Return advice for an item that occurs twice. One of the unused columns `others` may name the ranker."""
    if kind == "list":  # arrays have no rule for duplicates
        return "Remove it."
    best = settings.convention.advice("duplicates", "best")
    if kind in LIST_KINDS:
        return f"Remove it, or choose which one counts ({best})."
    which = f"choose which one counts ({best}, or first with {option('order')})"
    if settings.columns.run is not None or len(settings.columns.score) > 1 or kind == "judgments":
        return f"Remove it, or {which}."
    unused = f" (columns that are not used: {', '.join(others)})" if others else ""
    run = f"Then name the column that tells them apart: run=...{unused}."
    return f"{SEVERAL_RANKERS} {run} Else remove it, or {which}."


def refuse_two_values(keys: pa.RecordBatch, low: pa.Array, high: pa.Array, column: str, task: RankingTask) -> None:
    """Raise if the runs of a query have two values of a segment column."""
    query = ragged.first_query_with(find_differences(low, high), np.arange(len(low) + 1))
    if query is not None:
        values = f"{get_value(low, query)!r} and {get_value(high, query)!r}"
        raise InputRefusedError(
            f"column {column!r} has more than one value in query {format_key(keys, task.names, query)}: {values}; it "
            "must be the same in all runs."
        )


def find_differences(left: pa.Array, right: pa.Array) -> BoolArray:
    """Flag rows in which two columns differ. A null differs from nothing, and NaN equals NaN, as in Spark."""
    differs = to_flags(pc.not_equal(left, right))
    if pa.types.is_floating(left.type):
        differs &= ~to_flags(pc.and_(pc.is_nan(left), pc.is_nan(right)))
    return differs


def refuse_first(keys: pa.RecordBatch, flags: np.ndarray, before: str, after: str, task: RankingTask) -> None:
    """Raise for the first flagged query, with a message around its key."""
    query = ragged.first_query_with(flags, np.arange(len(flags) + 1))
    if query is not None:
        raise InputRefusedError(f"{before}{format_key(keys, task.names, query)}{after}")


def _cut_lists(keys: pa.RecordBatch, complete: PartialRankings, task: RankingTask) -> dict[str, pa.Array]:
    ranked, ideal = complete.ranked, complete.ideal
    if ranked is None:
        raise ValueError("rankings without a ranked list")
    if task.checks_duplicates and col.ITEM in ranked.columns:
        kind = "ranking" if task.judgments is None else "ranking or its judgments"
        refuse_repeats(keys, ranked, kind, task)
    k = task.settings.max_k
    lists: dict[str, Values] = {}
    if COUNT in ranked.columns:
        ranked = keep_first_tie_groups(ranked.select_columns(col.SCORE, col.RELEVANCE, COUNT), k, everywhere=True)
        lists = {"scores": ranked.numbers(col.SCORE), "tied": ranked.numbers(COUNT)}
    elif col.RANK in ranked.columns:
        ranked = ranked if k is None else ranked.where(ranked.numbers(col.RANK) <= k)
        lists = {"ranks": ranked.numbers(col.RANK)}
    else:
        ranked = ranked.first(k)
        if task.settings.columns.ranks_are_positions:
            same = ragged.equals_previous(ranked.numbers(col.SCORE), ranked.offsets)
            shared = ragged.to_lengths(ragged.offsets_after_filter(same, ranked.offsets)) > 0
            refuse_first(keys, shared, "query ", f" {TWO_ON_ONE_RANK}.", task)
    if ideal is None:
        ideal = Entries({col.RELEVANCE: np.zeros(0)}, np.zeros(keys.num_rows + 1, dtype=np.int64))
    ideal = _cut_ideal_lists(keys, ideal, k, task)
    if task.settings.lists_items:
        kind = (
            task.rows.field(col.ITEM).type
            if col.ITEM in task.rows.names
            else task.rows.field(col.RANKED_ITEMS).type.value_type
        )
        lists["items"] = pa.array(ranked.columns[col.ITEM]).cast(kind)
    relevance = ranked.numbers(col.RELEVANCE)
    unjudged = np.isnan(relevance)
    relevances = float_column(relevance, ~unjudged) if unjudged.any() else pa.array(relevance)
    return {
        "ranked": list_column(relevances, ranked.offsets),
        **{name: list_column(pa.array(values), ranked.offsets) for name, values in lists.items()},
        "ideal": list_column(pa.array(ideal.numbers(col.RELEVANCE)), ideal.offsets),
    }


def _cut_ideal_lists(keys: pa.RecordBatch, best: Entries, k: int | None, task: RankingTask) -> Entries:
    """Cut ideal lists to k, and raise for a repeated item. Items tied at the cutoff are arbitrary, so ignored."""
    if col.ITEM in best.columns:
        sort_key, lengths = compute_ideal_key(best.numbers(col.RELEVANCE), task), ragged.to_lengths(best.offsets)
        beyond = np.full(len(lengths), -np.inf)
        if k is not None:
            beyond[lengths > k] = sort_key[best.offsets[:-1][lengths > k] + k]
        certain = best.where(sort_key > np.repeat(beyond, lengths))
        refuse_repeats(keys, certain, "ideal list" if task.judgments is None else "judgments", task)
    return best.first(k)


def refuse_repeats(keys: pa.RecordBatch, entries: Entries, kind: str, task: RankingTask) -> None:
    """Raise if an item occurs twice in a list or is judged twice. A null is an item that was not kept."""
    items = entries.columns[col.ITEM]
    if isinstance(items, pa.Array) and items.null_count:
        entries = entries.where(to_flags(items.is_valid()))
        items = entries.columns[col.ITEM]
    codes = items if isinstance(items, np.ndarray) else int_values(items.dictionary_encode().indices)
    twice = ragged.flag_repeats(codes, entries.offsets)
    if TWICE in entries.columns:
        twice |= ragged.to_lengths(ragged.offsets_after_filter(entries.numbers(TWICE), entries.offsets)) > 0
    advice = advise_on_repeats(kind, task.settings, task.others)
    refuse_first(keys, twice, f"an item appears twice in the {kind} of query ", f". {advice}", task)
