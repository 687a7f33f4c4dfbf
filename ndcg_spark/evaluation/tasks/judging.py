"""Attach judgments to the rankings of their queries, once both have arrived in one partition."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ndcg_spark.core import ragged
from ndcg_spark.core.batches import Entries, Values, int_values, number_values, take_values, to_flags
from ndcg_spark.core.ragged import BoolArray, FloatArray, IntArray
from ndcg_spark.errors import InputRefusedError
from ndcg_spark.evaluation.tasks.partial_ranking import (
    AT_LEAST,
    HIGH,
    LOW,
    N_REJECTED,
    TWICE,
    PartialRankings,
    advise_on_repeats,
    build_empty_partials,
    concat_partials,
    describe_stretches,
    find_differences,
    keep_best_entries,
    keep_first_entries,
    merge_by_query,
    needs_ideal,
    rank_ideal,
    refuse_first,
    refuse_two_values,
    take_partials,
)
from ndcg_spark.evaluation.tasks.query_rows import (
    ITEM,
    RELEVANCE,
    RUN,
    WEIGHT,
    QueryRows,
    RankingTask,
    group_rows,
    hash_rows,
)
from ndcg_spark.evaluation.tasks.valid_rows import format_key

_ROW_COUNTS = ("n_rows", "n_left_out", "n_items")
"""Counts of the rows of a run; judgments are not rows."""


def attach_judgments(
    complete: list[PartialRankings], judgments: pa.RecordBatch, runs: set[str], task: RankingTask
) -> list[PartialRankings]:
    """Add relevances and ideal lists to the queries of a partition, and add judged queries that a run lacks."""
    index = _JudgmentIndex(judgments, task)
    judged, ranked_queries = [], []
    for partial in complete:
        query = _match_keys(_select_query_keys(partial, task), index.keys, task)
        judged.append(_judge_rankings(partial, query, index, task))
        run_names = partial.queries[RUN].to_pylist() if RUN in partial.queries else [""] * len(query)
        ranked_queries.append((np.array(run_names, dtype=object), query))
    all_runs = sorted(runs)
    if not task.names.has_runs:
        all_runs = list(task.settings.columns.score) if len(task.names.scores) > 1 else [""]
    for run in all_runs:
        missing = int_values(index.queries["n_judged"]) > 0
        for run_array, query in ranked_queries:
            ranked = query[run_array == run]
            missing[ranked[ranked >= 0]] = False
        if missing.any():
            judged.append(_rank_missing_queries(run, np.flatnonzero(missing), index, task))
    return _fill_segments(judged, task) if _has_several_runs(task) else judged


def drop_empty_lists(partial: PartialRankings) -> PartialRankings:
    """Drop queries that have neither rows nor judgments, only the segments of an empty list."""
    queries = partial.queries
    counts = (queries[count] for count in ("n_rows", "n_judged", N_REJECTED) if count in queries)
    is_filled = np.logical_or.reduce([int_values(count) > 0 for count in counts])
    return partial if is_filled.all() else take_partials(partial, np.flatnonzero(is_filled))


def _has_several_runs(task: RankingTask) -> bool:
    return task.names.has_runs or len(task.names.scores) > 1


def _fill_segments(partials: list[PartialRankings], task: RankingTask) -> list[PartialRankings]:
    """Fill missing segments of a query from its other runs. Raise if two runs name different segments."""
    segments = [
        segment
        for segment in task.names.segments
        if any(f"{LOW}{segment}" in partial.queries for partial in partials)
    ]
    if not segments or any(partial.queries[key].null_count for partial in partials for key in task.names.query):
        return partials  # a null query stands for rejected rows without a query
    columns = (*task.names.query, *(f"{end}{segment}" for segment in segments for end in (LOW, HIGH)))
    ranges = [
        PartialRankings({column: partial.queries[column] for column in columns}, None, None) for partial in partials
    ]
    merged = concat_partials(merge_by_query(ranges, task))
    keys = merged.keys(task.names)
    for segment in segments:
        low, high = merged.queries[f"{LOW}{segment}"], merged.queries[f"{HIGH}{segment}"]
        refuse_two_values(keys, low, high, task.names.segments[segment], task)
    for partial in partials:
        query = _match_keys(_select_query_keys(partial, task), keys, task)
        for column in columns[len(task.names.query) :]:
            values = _take_query_values(merged.queries[column], query)
            partial.queries[column] = pc.coalesce(partial.queries[column], values)
    return partials


class _JudgmentIndex:
    """Judgments of a partition: counts, ranges and ideal list of each query, and the relevance of each item."""

    def __init__(self, judgments: pa.RecordBatch, task: RankingTask) -> None:
        batch, offsets = group_rows(judgments, task.names, completely=False)
        relevance, judged = number_values(batch.column(RELEVANCE))
        rows = QueryRows(batch, offsets, relevance, None, None, relevance, judged)
        has_ideal = needs_ideal(task) and task.settings.convention.ideal != "retrieved"
        stretches = PartialRankings(
            describe_stretches(rows, task), None, rank_ideal(rows, task) if has_ideal else None
        )
        complete = concat_partials(merge_by_query([stretches], task)) if batch.num_rows else stretches
        self.queries, self.ideal = complete.queries, complete.ideal
        self.keys = _select_query_keys(complete, task)
        self.items = batch.column(ITEM)
        values = relevance.astype(np.float64)
        self.relevance = values if judged is None else np.where(judged, values, np.nan)
        stretch_query = _match_keys(_select_query_keys(stretches, task), self.keys, task)
        self.query = np.repeat(stretch_query, ragged.to_lengths(offsets))
        if task.checks_duplicates:
            self._refuse_repeats(task)

    def _refuse_repeats(self, task: RankingTask) -> None:
        """Raise if a relevant item is judged twice: it would count twice, whether it is ranked or not."""
        relevant = np.flatnonzero(self.relevance > 0)
        if not len(relevant):
            return
        codes = _encode_items(take_values(self.items, relevant))
        n_codes = int(codes.max()) + 1
        pairs = np.sort(self.query[relevant] * n_codes + codes)
        twice = pairs[1:][pairs[1:] == pairs[:-1]] // n_codes
        flags = np.bincount(twice, minlength=self.keys.num_rows) > 0
        advice = advise_on_repeats("judgments", task.settings, task.others)
        refuse_first(self.keys, flags, "an item appears twice in the judgments of query ", f". {advice}", task)


def _select_query_keys(partial: PartialRankings, task: RankingTask) -> pa.RecordBatch:
    return partial.keys(task.names).select(list(task.names.query))


def _match_keys(left: pa.RecordBatch, right: pa.RecordBatch, task: RankingTask) -> IntArray:
    """Return the row of `right` with the query of each row of `left`, or -1. Queries of `right` are unique."""
    if not right.num_rows or not left.num_rows:
        return np.full(left.num_rows, -1, dtype=np.int64)
    left_hashes, right_hashes = hash_rows(left, task.names), hash_rows(right, task.names)
    order = np.argsort(right_hashes)
    index = order[np.minimum(np.searchsorted(right_hashes, left_hashes, sorter=order), len(order) - 1)]
    hit = right_hashes[index] == left_hashes
    same = hit.copy()
    for key in left.schema.names:
        same &= to_flags(pc.equal(left.column(key), right.column(key).take(pa.array(index))))
    if (same == hit).all() and len(np.unique(right_hashes)) == len(right_hashes):
        return np.where(hit, index, -1)
    # Two keys have the same hash: compare the keys themselves.
    rows = {tuple(row.values()): number for number, row in enumerate(right.to_pylist())}
    return np.array([rows.get(tuple(row.values()), -1) for row in left.to_pylist()], dtype=np.int64)


def _judge_rankings(
    partial: PartialRankings, query: IntArray, index: _JudgmentIndex, task: RankingTask
) -> PartialRankings:
    ranked = partial.ranked
    if ranked is None:
        raise ValueError("rankings without a ranked list")
    relevance, twice = _look_up_relevances(ranked, query, index)
    ranked = Entries({**ranked.columns, RELEVANCE: relevance, TWICE: twice}, ranked.offsets)
    queries = dict(partial.queries)
    unjudged = np.isnan(relevance)
    ideal = None if index.ideal is None else _take_query_lists(index.ideal, query)
    if task.settings.convention.ideal == "retrieved":
        listed = (RELEVANCE, ITEM) if task.checks_duplicates else (RELEVANCE,)
        ideal = keep_best_entries(ranked.select_columns(*listed).where(~unjudged), task)
    if task.settings.convention.unjudged == "condensed":
        removed = ragged.to_lengths(ragged.offsets_after_filter(unjudged, ranked.offsets))
        queries["n_left_out"] = pc.add(queries["n_left_out"], pa.array(removed))
        ranked = ranked.where(~unjudged)
    for count in ("n_judged", "n_relevant", *(count for count in index.queries if count.startswith(AT_LEAST))):
        queries[count] = _take_query_values(index.queries[count], query).fill_null(0)
    for carried in task.names.carried:
        queries |= _combine_ranges(partial, index, carried, query, task)
    cut_task = replace(task, judgments=None)  # judgments are attached, so lists can be cut now
    return PartialRankings(queries, keep_first_entries(ranked, cut_task), ideal)


def _take_query_values(column: pa.Array, query: IntArray) -> pa.Array:
    """Take the values of judged queries; null for a query without judgments."""
    return column.take(pa.array(query, mask=query < 0))


def _take_query_lists(lists: Entries, query: IntArray) -> Entries:
    """Take the lists of judged queries; empty for a query without judgments."""
    n = len(lists.offsets) - 1
    padded = Entries(lists.columns, np.append(lists.offsets, lists.offsets[-1]))  # with an empty list at the end
    return padded.select_queries(np.where(query < 0, n, query))


def _combine_ranges(
    partial: PartialRankings, index: _JudgmentIndex, carried: str, query: IntArray, task: RankingTask
) -> dict[str, pa.Array]:
    """Combine the ranges of a carried column in both tables. Raise if both have it and differ."""
    low, high, queries = f"{LOW}{carried}", f"{HIGH}{carried}", partial.queries
    if low not in index.queries:
        return {}
    judged_range = {end: _take_query_values(index.queries[end], query) for end in (low, high)}
    if low not in queries:
        return judged_range
    differs = find_differences(queries[low], judged_range[low]) | find_differences(queries[high], judged_range[high])
    if differs.any():
        shown = task.settings.columns.weight if carried == WEIGHT else task.names.segments[carried]
        key = format_key(_select_query_keys(partial, task), task.names, int(differs.argmax()))
        raise InputRefusedError(f"column {shown!r} differs between run and judgments in query {key}.")
    return {end: pc.coalesce(judged_range[end], queries[end]) for end in (low, high)}


def _rank_missing_queries(run: str, query: IntArray, index: _JudgmentIndex, task: RankingTask) -> PartialRankings:
    """Return rankings without items for judged queries that a run lacks, given by their rows in the index."""
    indices = pa.array(query)
    judged = {name: column.take(indices) for name, column in index.queries.items() if name not in _ROW_COUNTS}
    keys = {RUN: pa.repeat(pa.scalar(run), len(query))} if _has_several_runs(task) else {}
    partials = build_empty_partials(keys | {key: judged[key] for key in task.names.query}, task)
    ranked, ideal = partials.ranked, index.ideal
    if ranked is None:
        raise ValueError("rankings without a ranked list")
    ranked = Entries({**ranked.columns, RELEVANCE: np.zeros(0)}, ranked.offsets)
    return PartialRankings(partials.queries | judged, ranked, None if ideal is None else ideal.select_queries(query))


def _look_up_relevances(ranked: Entries, query: IntArray, index: _JudgmentIndex) -> tuple[FloatArray, BoolArray]:
    """Return the relevance of each entry, NaN if it is not judged, and flags of entries judged more than once."""
    entry_query = query[ragged.query_of_rows(ranked.offsets)]
    relevances, twice = np.full(len(entry_query), np.nan), np.zeros(len(entry_query), dtype=np.bool_)
    inside = np.flatnonzero(entry_query >= 0)
    if not len(inside) or not len(index.query):
        return relevances, twice
    codes, judged_codes = _encode_both(take_values(ranked.columns[ITEM], inside), index.items)
    n_codes = int(max(codes.max(), judged_codes.max())) + 1
    ranked_pairs, place = np.unique(entry_query[inside] * n_codes + codes, return_inverse=True)
    pairs = index.query * n_codes + judged_codes
    likely = _filter_by_marks(pairs, ranked_pairs)
    nearest = np.minimum(np.searchsorted(ranked_pairs, pairs[likely]), len(ranked_pairs) - 1)
    hit = ranked_pairs[nearest] == pairs[likely]
    pair, relevance = nearest[hit], index.relevance[likely[hit]]
    counts = np.bincount(pair, minlength=len(ranked_pairs))
    twice[inside] = (counts > 1)[place]
    if (counts > 1).any():  # the lowest relevance wins: it is written last
        order = np.argsort(np.where(np.isnan(relevance), -np.inf, relevance))[::-1]
        pair, relevance = pair[order], relevance[order]
    by_pair = np.full(len(ranked_pairs), np.nan)
    by_pair[pair] = relevance
    relevances[inside] = by_pair[place]
    return relevances, twice


def _filter_by_marks(values: IntArray, targets: IntArray) -> IntArray:
    """Return the indices of values that may be in `targets`: a Bloom filter with one hash, so none is missed.

    Most judgments are of items that are not ranked, and a look-up in the filter is faster than a search.
    """
    n_bits = max(10, (16 * len(targets)).bit_length())
    shift = np.uint64(64 - n_bits)
    marks = np.zeros(2**n_bits, dtype=np.bool_)
    marks[(targets.astype(np.uint64) * ragged.ODD_NUMBERS[0]) >> shift] = True
    return np.flatnonzero(marks[(values.astype(np.uint64) * ragged.ODD_NUMBERS[0]) >> shift])


def _encode_items(items: Values) -> IntArray:
    """Number items by small integers; equal items get the same number."""
    column = pa.array(items) if isinstance(items, np.ndarray) else items
    if pa.types.is_integer(column.type):
        values = int_values(column)
        low = int(values.min())
        if int(values.max()) - low < 2**31:
            return values - low
    return int_values(column.dictionary_encode().indices).astype(np.int64)


def _encode_both(items: Values, judged_items: pa.Array) -> tuple[IntArray, IntArray]:
    codes = _encode_items(pa.concat_arrays([pa.array(items).cast(judged_items.type), judged_items]))
    return codes[: len(items)], codes[len(items) :]
