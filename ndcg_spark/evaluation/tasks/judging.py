"""Rankings of a run and the judgments of its queries, where both have arrived in one partition."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ndcg_spark.core import ragged
from ndcg_spark.core.batches import Entries, Values, flags_of, int_values, number_values, take_values
from ndcg_spark.core.ragged import BoolArray, FloatArray, IntArray
from ndcg_spark.errors import InputRefusedError
from ndcg_spark.evaluation.tasks.partial_ranking import (
    AT_LEAST,
    N_REJECTED,
    TWICE,
    PartialRankings,
    advise_on_repeats,
    concat_partials,
    describe,
    find_differences,
    keep_best_entries,
    keep_first_entries,
    merge_by_query,
    needs_ideal,
    rank_entries,
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
    read_query_rows,
)
from ndcg_spark.evaluation.tasks.valid_rows import format_key, split_runs


def attach_judgments(
    complete: list[PartialRankings], judgments: pa.RecordBatch, runs: set[str], task: RankingTask
) -> list[PartialRankings]:
    """Add relevances and ideal lists to the queries of a partition, and judged queries that a run lacks."""
    truth = _JudgmentIndex(judgments, task)
    found, seen = [], []
    for partial in complete:
        query = _match_keys(_select_query_keys(partial, task), truth.keys, task)
        found.append(_judge_rankings(partial, query, truth, task))
        of_rows = partial.head[RUN].to_pylist() if RUN in partial.head else [""] * len(query)
        seen.append((np.array(of_rows, dtype=object), query))
    names = sorted(runs)
    if not task.names.has_runs:
        names = list(task.settings.columns.score) if len(task.names.scores) > 1 else [""]
    for run in names:
        missing = int_values(truth.head["n_judged"]) > 0
        for of_run, query in seen:
            here = query[of_run == run]
            missing[here[here >= 0]] = False
        if missing.any():
            found.append(_rank_missing_queries(run, np.flatnonzero(missing), truth, task))
    return _fill_segments(found, task) if _has_several_runs(task) else found


def drop_empty_lists(partial: PartialRankings) -> PartialRankings:
    """Leave out queries of which there is nothing but the segment of an empty list."""
    head = partial.head
    counts = (head[name] for name in ("n_rows", "n_judged", N_REJECTED) if name in head)
    kept = np.logical_or.reduce([int_values(count) > 0 for count in counts])
    return partial if kept.all() else take_partials(partial, np.flatnonzero(kept))


def _has_several_runs(task: RankingTask) -> bool:
    return task.names.has_runs or len(task.names.scores) > 1


def _fill_segments(found: list[PartialRankings], task: RankingTask) -> list[PartialRankings]:
    """Fill missing segments of a query from other runs, all of which are here; refuse two segments of a query."""
    segments = [name for name in task.names.segments if any(f"low:{name}" in one.head for one in found)]
    if not segments or any(one.head[name].null_count for one in found for name in task.names.query):
        return found  # null stands for rejected rows without a query
    kept = (*task.names.query, *(f"{end}:{name}" for name in segments for end in ("low", "high")))
    heads = [{name: one.head[name] for name in kept} for one in found]
    queries = concat_partials(merge_by_query([PartialRankings(head, None, None) for head in heads], task))
    keys = queries.keys(task.names)
    for name in segments:
        low, high = queries.head[f"low:{name}"], queries.head[f"high:{name}"]
        refuse_two_values(keys, low, high, task.names.segments[name], task)
    for one in found:
        query = _match_keys(_select_query_keys(one, task), keys, task)
        for name in kept[len(task.names.query) :]:
            one.head[name] = pc.coalesce(one.head[name], _take_query_values(queries.head[name], query))
    return found


class _JudgmentIndex:
    """Judgments of a partition: what is known of each query, and the relevance of each item."""

    def __init__(self, judgments: pa.RecordBatch, task: RankingTask) -> None:
        batch, offsets = group_rows(judgments, task.names, completely=False)
        relevance, judged = number_values(batch.column(RELEVANCE))
        rows = QueryRows(batch, offsets, relevance, None, None, relevance, judged)
        has_ideal = needs_ideal(task) and task.settings.convention.ideal != "retrieved"
        stretches = PartialRankings(describe(rows, task), None, rank_ideal(rows, task) if has_ideal else None)
        complete = concat_partials(merge_by_query([stretches], task)) if batch.num_rows else stretches
        self.head, self.ideal = complete.head, complete.ideal
        self.keys = _select_query_keys(complete, task)
        self.items = batch.column(ITEM)
        values = relevance.astype(np.float64)
        self.relevance = values if judged is None else np.where(judged, values, np.nan)
        of_stretch = _match_keys(_select_query_keys(stretches, task), self.keys, task)
        self.query = np.repeat(of_stretch, ragged.lengths_of(offsets))
        if task.checks_duplicates:
            self._refuse_repeats(task)

    def _refuse_repeats(self, task: RankingTask) -> None:
        """Raise where a relevant item is judged twice: it would be counted twice, wherever it is ranked."""
        relevant = np.flatnonzero(self.relevance > 0)
        if not len(relevant):
            return
        codes = _encode_items(take_values(self.items, relevant))
        n_codes = int(codes.max()) + 1
        pairs = np.sort(self.query[relevant] * n_codes + codes)
        twice = pairs[1:][pairs[1:] == pairs[:-1]] // n_codes
        flags = np.bincount(twice, minlength=self.keys.num_rows) > 0
        advice = advise_on_repeats("judgments", task.settings, task.others)
        refuse_first(self.keys, flags, "an item comes twice in the judgments of query ", f". {advice}", task)


def _select_query_keys(partial: PartialRankings, task: RankingTask) -> pa.RecordBatch:
    return partial.keys(task.names).select(list(task.names.query))


def _match_keys(left: pa.RecordBatch, right: pa.RecordBatch, task: RankingTask) -> IntArray:
    """Row of `right`, where no query comes twice, for the query of each row of `left`; -1 where it has none."""
    if not right.num_rows or not left.num_rows:
        return np.full(left.num_rows, -1, dtype=np.int64)
    of_left, of_right = hash_rows(left, task.names), hash_rows(right, task.names)
    order = np.argsort(of_right)
    at = order[np.minimum(np.searchsorted(of_right, of_left, sorter=order), len(order) - 1)]
    hit = of_right[at] == of_left
    same = hit.copy()
    for name in left.schema.names:
        same &= flags_of(pc.equal(left.column(name), right.column(name).take(pa.array(at))))
    if (same == hit).all() and len(np.unique(of_right)) == len(of_right):
        return np.where(hit, at, -1)
    rows = {tuple(row.values()): number for number, row in enumerate(right.to_pylist())}  # hashes collide
    return np.array([rows.get(tuple(row.values()), -1) for row in left.to_pylist()], dtype=np.int64)


def _judge_rankings(
    partial: PartialRankings, query: IntArray, truth: _JudgmentIndex, task: RankingTask
) -> PartialRankings:
    ranked = partial.ranked
    if ranked is None:
        raise ValueError("rankings without a ranked list")
    relevance, twice = _look_up_relevances(ranked, query, truth)
    ranked = Entries({**ranked.columns, RELEVANCE: relevance, TWICE: twice}, ranked.offsets)
    head = dict(partial.head)
    unjudged = np.isnan(relevance)
    ideal = None if truth.ideal is None else _take_query_lists(truth.ideal, query)
    if task.settings.convention.ideal == "retrieved":
        listed = (RELEVANCE, ITEM) if task.checks_duplicates else (RELEVANCE,)
        ideal = keep_best_entries(ranked.only(*listed).where(~unjudged), task)
    if task.settings.convention.unjudged == "condensed":
        removed = ragged.lengths_of(ragged.chosen_offsets(unjudged, ranked.offsets))
        head["n_left_out"] = pc.add(head["n_left_out"], pa.array(removed))
        ranked = ranked.where(~unjudged)
    for name in ("n_judged", "n_relevant", *(one for one in truth.head if one.startswith(AT_LEAST))):
        head[name] = _take_query_values(truth.head[name], query).fill_null(0)
    for name in task.names.carried:
        head |= _combine_ranges(partial, truth, name, query, task)
    return PartialRankings(head, keep_first_entries(ranked, replace(task, judgments=None)), ideal)


def _take_query_values(column: pa.Array, query: IntArray) -> pa.Array:
    """Values of judged queries; null where a query has no judgment."""
    return column.take(pa.array(query, mask=query < 0))


def _take_query_lists(lists: Entries, query: IntArray) -> Entries:
    """Lists of judged queries; empty where a query has no judgment."""
    n = len(lists.offsets) - 1
    ends = Entries(lists.columns, np.append(lists.offsets, lists.offsets[-1]))  # one list more, an empty one
    return ends.of_queries(np.where(query < 0, n, query))


def _combine_ranges(
    partial: PartialRankings, truth: _JudgmentIndex, name: str, query: IntArray, task: RankingTask
) -> dict[str, pa.Array]:
    """Ranges of a carried column over both tables, which must agree where both have it."""
    low, high, head = f"low:{name}", f"high:{name}", partial.head
    if low not in truth.head:
        return {}
    of_truth = {end: _take_query_values(truth.head[end], query) for end in (low, high)}
    if low not in head:
        return of_truth
    other = find_differences(head[low], of_truth[low]) | find_differences(head[high], of_truth[high])
    if other.any():
        shown = task.settings.columns.weight if name == WEIGHT else task.names.segments[name]
        key = format_key(_select_query_keys(partial, task), task.names, int(other.argmax()))
        raise InputRefusedError(f"column {shown!r} differs between run and judgments in query {key}.")
    return {end: pc.coalesce(of_truth[end], head[end]) for end in (low, high)}


def _rank_missing_queries(run: str, at: IntArray, truth: _JudgmentIndex, task: RankingTask) -> PartialRankings:
    """Judged queries that a run does not have."""
    places, n = pa.array(at), len(at)
    head = {RUN: pa.repeat(pa.scalar(run), n)} if _has_several_runs(task) else {}
    head |= {name: column.take(places) for name, column in truth.head.items()}
    head |= {name: pa.array(np.zeros(n, dtype=np.int64)) for name in ("n_rows", "n_left_out", "n_items")}
    for name in task.names.carried:
        for end in (f"low:{name}", f"high:{name}"):
            if end not in head and name in task.rows.names:
                kind = pa.float64() if name == WEIGHT else task.rows.field(name).type
                head[end] = pa.nulls(n, kind)
    ideal = truth.ideal.of_queries(at) if truth.ideal is not None else None
    nothing = next(split_runs(pa.RecordBatch.from_pylist([], schema=task.rows), task.names))
    found = rank_entries(read_query_rows(nothing, np.zeros(1, dtype=np.int64), task.settings), task)
    ranked = Entries({**found.columns, RELEVANCE: np.zeros(0)}, np.zeros(n + 1, dtype=np.int64))
    return PartialRankings(head, ranked, ideal)


def _look_up_relevances(ranked: Entries, query: IntArray, truth: _JudgmentIndex) -> tuple[FloatArray, BoolArray]:
    """Relevance of each entry, NaN where it is not judged; and whether it is judged more than once."""
    of_entry = query[ragged.query_of_rows(ranked.offsets)]
    found, twice = np.full(len(of_entry), np.nan), np.zeros(len(of_entry), dtype=np.bool_)
    inside = np.flatnonzero(of_entry >= 0)
    if not len(inside) or not len(truth.query):
        return found, twice
    codes, judged_codes = _encode_both(take_values(ranked.columns[ITEM], inside), truth.items)
    n_codes = int(max(codes.max(), judged_codes.max())) + 1
    wanted, place = np.unique(of_entry[inside] * n_codes + codes, return_inverse=True)
    pairs = truth.query * n_codes + judged_codes
    likely = _filter_by_marks(pairs, wanted)
    at = np.minimum(np.searchsorted(wanted, pairs[likely]), len(wanted) - 1)
    hit = wanted[at] == pairs[likely]
    pair, relevance = at[hit], truth.relevance[likely[hit]]
    counts = np.bincount(pair, minlength=len(wanted))
    twice[inside] = (counts > 1)[place]
    if (counts > 1).any():  # the lowest is written last
        order = np.argsort(np.where(np.isnan(relevance), -np.inf, relevance))[::-1]
        pair, relevance = pair[order], relevance[order]
    by_pair = np.full(len(wanted), np.nan)
    by_pair[pair] = relevance
    found[inside] = by_pair[place]
    return found, twice


def _filter_by_marks(values: IntArray, wanted: IntArray) -> IntArray:
    """Find values that may be in `wanted`, by a table of marks: faster than a search, as most judgments are not."""
    n_bits = max(10, (16 * len(wanted)).bit_length())
    shift = np.uint64(64 - n_bits)
    marks = np.zeros(2**n_bits, dtype=np.bool_)
    marks[(wanted.astype(np.uint64) * ragged.ODD_NUMBERS[0]) >> shift] = True
    return np.flatnonzero(marks[(values.astype(np.uint64) * ragged.ODD_NUMBERS[0]) >> shift])


def _encode_items(items: Values) -> IntArray:
    """Small whole numbers for items, the same for the same item."""
    column = pa.array(items) if isinstance(items, np.ndarray) else items
    if pa.types.is_integer(column.type):
        values = int_values(column)
        low = int(values.min())
        if int(values.max()) - low < 2**31:
            return values - low
    return int_values(column.dictionary_encode().indices).astype(np.int64)


def _encode_both(items: Values, judged_items: pa.Array) -> tuple[IntArray, IntArray]:
    if isinstance(items, np.ndarray) and pa.types.is_integer(judged_items.type):
        judged = int_values(judged_items)
        low, high = min(items.min(), judged.min()), max(items.max(), judged.max())
        if int(high) - int(low) < 2**31:
            return items - low, judged - low
    both = pa.concat_arrays([pa.array(items).cast(judged_items.type), judged_items])
    codes = int_values(both.dictionary_encode().indices)
    return codes[: len(items)], codes[len(items) :]
