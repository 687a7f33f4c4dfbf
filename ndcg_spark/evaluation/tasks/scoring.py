"""Score rankings: read batches as ragged gains and compute the metrics of every query."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa

from ndcg_spark.conventions import Convention
from ndcg_spark.conventions.forms import MAX_GAIN, discount_table, gain_function
from ndcg_spark.core import labels, ragged
from ndcg_spark.core.batches import REFUSAL, float_column, float_values, get_value, int_values, list_offsets, to_flags
from ndcg_spark.core.ragged import BoolArray, FloatArray, IntArray
from ndcg_spark.errors import InputRefusedError, MissingColumnError
from ndcg_spark.evaluation.settings import ITEM_RESERVED, EvaluationSettings
from ndcg_spark.evaluation.tasks.items import read_items, take_first_items
from ndcg_spark.evaluation.tasks.partial_ranking import N_REJECTED, TWO_ON_ONE_RANK
from ndcg_spark.evaluation.tasks.valid_rows import NO_QUERY_COLUMN
from ndcg_spark.metrics import CatalogueMetric, Metric, MetricAt, Need, QueryError
from ndcg_spark.metrics.judged import UnjudgedItems
from ndcg_spark.metrics.kernels import TieGroups, canonical_order, sort_within_queries, tie_groups
from ndcg_spark.metrics.lists import GainLists, GainRules, RankedEntries, RelevanceLists

EVALUATED, NO_RELEVANT, MISSING, UNJUDGED, LOST, NO_QUERY = range(6)
STATUS_NAMES = ("evaluated", "no_relevant", "missing", "unjudged", "lost", "no_query")
"""`lost`: all rows of the query were rejected. `no_query`: rejected rows without a query.

From `UNJUDGED` on, a query has no judgments; see `_apply_rules`.
"""
NO_WEIGHT = {
    MISSING: ("is judged but not in the run, and only the run has weights; put them in the judgments", "missing"),
    UNJUDGED: ("is in the run but not judged, and only the judgments have weights; put them in the run", "unjudged"),
}
"""Message for a query without a weight, and the rule that may drop it.

A null weight is a bad row in each table, so only a query that one of the two tables lacks can have no weight.
"""
N_UNJUDGED_ITEMS, N_TOP_ITEMS = "n_unjudged_items", "n_top_items"
"""Columns with the number of unjudged items among the first k, and of all items among the first k."""
NO_RELEVANT_VALUE = {"zero": 0.0, "one": 1.0, "skip": np.nan, "error": np.nan}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringTask:
    """Task for workers that score rankings; small, and the same on every worker."""

    convention: Convention
    cutoffs: tuple[int | None, ...]
    keys: tuple[str, ...]  # columns that identify a query, the run first
    carried: tuple[str, ...]  # columns passed through unchanged
    discount: FloatArray | None  # up to the largest cutoff, computed once; None without a cutoff
    metrics: tuple[MetricAt, ...]
    columns: tuple[str, ...]  # of values; null at cutoffs that were not requested
    levels: tuple[float, ...] = ()  # relevances for which `n_at_least` counts the judged items
    needs: tuple[Need, ...] = ()  # features of items that metrics read
    item_column: str = ""  # the user's name, for messages


def build_scoring_task(columns: Sequence[str], settings: EvaluationSettings) -> ScoringTask:
    """Build the task for workers that score rankings with these columns."""
    if settings.levels and "n_at_least" not in columns:
        raise MissingColumnError(
            "the rankings lack column n_at_least, which the metrics need; rank with the settings that name them."
        )
    if settings.needs and "items" not in columns:
        raise MissingColumnError(
            f"the rankings lack column items, which metric {settings.metric_with(settings.needs[0])!r} needs; rank "
            "with the settings that name it."
        )
    k = settings.max_k
    return ScoringTask(
        convention=settings.convention,
        cutoffs=settings.cutoffs,
        keys=("run", *settings.columns.query_columns(columns)),
        carried=list_carried_columns(columns, settings),
        metrics=settings.computed,
        columns=settings.metric_columns,
        needs=settings.needs,
        item_column=settings.columns.item or "",
        levels=settings.levels,
        discount=None if k is None else discount_table(settings.convention.discount, k),
    )


def list_carried_columns(columns: Sequence[str], settings: EvaluationSettings) -> tuple[str, ...]:
    """List the columns of rankings that are passed through to the metrics of queries."""
    consumed = {"run", *settings.columns.query, "ranked", "ranks", "scores", "tied", "ideal", "n_at_least", REFUSAL}
    consumed |= set(ITEM_RESERVED if settings.needs else ())
    return tuple(column for column in columns if column not in consumed)


def list_dropped_statuses(convention: Convention) -> tuple[str, ...]:
    """List the statuses of queries that a rule drops, and of queries without valid rows."""
    rules = {MISSING: convention.missing_query, UNJUDGED: convention.unjudged_query, LOST: "drop", NO_QUERY: "drop"}
    return tuple(STATUS_NAMES[status] for status, rule in rules.items() if rule == "drop")


def list_uncounted_statuses(convention: Convention) -> tuple[str, ...]:
    """List the statuses of queries that count in no mean: dropped ones, and those whose NDCG is undefined."""
    skipped = (STATUS_NAMES[NO_RELEVANT],) if convention.no_relevant == "skip" else ()
    return (*list_dropped_statuses(convention), *skipped)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Metrics of the queries of a batch at one cutoff."""

    k: int | None
    queries: pa.RecordBatch  # keys, counts and carried columns, a row per query
    status: IntArray  # indices of `STATUS_NAMES`
    values: dict[str, tuple[FloatArray, BoolArray]]  # by column, with flags of queries with a value

    def to_batch(self, task: ScoringTask) -> pa.RecordBatch:
        """Return a row per query, with the columns that users see."""
        n = len(self.status)
        columns = {key: self.queries.column(key) for key in task.keys}
        columns["k"] = pa.repeat(pa.scalar(self.k, type=pa.int32()), n)
        columns |= dict.fromkeys(task.columns, pa.nulls(n, pa.float64()))
        columns |= {column: float_column(*values) for column, values in self.values.items()}
        columns["status"] = pa.array(STATUS_NAMES, type=pa.string()).take(pa.array(self.status))
        columns |= dict(zip(self.queries.schema.names, self.queries.columns, strict=True))
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def has_status(status: IntArray, names: Iterable[str]) -> BoolArray:
    """Flag the queries with one of the named statuses."""
    return np.isin(status, [STATUS_NAMES.index(status_name) for status_name in names])


def score_rankings(batches: Iterator[pa.RecordBatch], task: ScoringTask) -> Iterator[pa.RecordBatch]:
    """Score rankings: a row per query and cutoff, one batch per cutoff. See `score_queries`."""
    for batch in batches:
        for scores in score_batch(batch, task):
            yield scores.to_batch(task)


def score_batch(batch: pa.RecordBatch, task: ScoringTask) -> Iterator[Scores]:
    """Score a batch of rankings, one cutoff after the other."""
    lists = read_lists(batch, task)
    base_status = _compute_status(batch, task)
    relevances = _read_relevance_lists(batch, lists, task)
    if task.needs:
        relevances = replace(
            relevances, items=read_items(batch, lists.rank, lists.offsets, task.needs, task.item_column)
        )
    unjudged = _find_unjudged(batch, lists, relevances, task.convention)
    item_cutoffs = {metric.k for metric in task.metrics if isinstance(metric.metric, CatalogueMetric)}
    for k in task.cutoffs:
        status = _mark_no_relevant(batch, task, base_status, lists.idcg(k))
        is_kept = ~has_status(status, list_dropped_statuses(task.convention))
        _refuse_unweighted(batch, task, is_kept, status)
        n_unjudged = np.zeros(batch.num_rows, dtype=np.int64) if unjudged is None else unjudged.among_first(k)
        columns = {key: batch.column(key) for key in task.keys}
        columns |= {N_UNJUDGED_ITEMS: pa.array(n_unjudged), N_TOP_ITEMS: pa.array(lists.n_among_first(k))}
        columns |= {carried: batch.column(carried) for carried in task.carried}
        if item_cutoffs:
            columns["items"] = take_first_items(batch, lists.rank, k if k in item_cutoffs else 0)
        values = {}
        for metric in (metric_at.metric for metric_at in task.metrics if metric_at.k == k):
            if not isinstance(metric, Metric):
                continue
            try:
                values[metric.column] = _apply_rules(metric, metric.values(relevances, k), status, is_kept)
            except QueryError as error:
                refuse_query(batch, task.keys, error.query, f"{error.reason} (metric {MetricAt(metric, k)})")
        queries = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
        yield Scores(k=k, queries=queries, status=status, values=values)


def _find_unjudged(
    batch: pa.RecordBatch, lists: GainLists, relevances: RelevanceLists, convention: Convention
) -> UnjudgedItems | None:
    """Locate the unjudged items; None if all items are judged."""
    entries = batch.column("ranked").flatten()
    if not entries.null_count:
        return None
    groups = lists.groups
    if convention.ties in ("best", "worst") and groups is not None:
        return UnjudgedItems(relevances.judged, lists.rank, relevances.groups, lists.offsets)
    if groups is not None:  # groups are in the order of gains, entries in that of the input: take their own counts
        groups = replace(groups, count=int_values(batch.column("tied").flatten()))
    return UnjudgedItems(to_flags(entries.is_valid()), lists.rank, groups, lists.offsets)


def _compute_status(batch: pa.RecordBatch, task: ScoringTask) -> IntArray:
    retrieved = int_values(batch.column("n_items")) > 0
    judged = int_values(batch.column("n_judged")) > 0
    status = np.where(judged, np.where(retrieved, EVALUATED, MISSING), UNJUDGED)
    if N_REJECTED in batch.schema.names:
        lost = ~judged & (int_values(batch.column("n_rows")) == 0)
        if lost.any():
            lacks_query = to_flags(batch.column(task.keys[:2][-1]).is_null())  # the first query column, or the run
            status = np.where(lost, np.where(lacks_query, NO_QUERY, LOST), status)
    return status


def _mark_no_relevant(batch: pa.RecordBatch, task: ScoringTask, status: IntArray, idcg: FloatArray) -> IntArray:
    """Mark evaluated queries whose ideal list has no gain. Raise for the first if `no_relevant=error`."""
    status = np.where((status == EVALUATED) & ~(idcg > 0), NO_RELEVANT, status)
    if task.convention.no_relevant == "error":
        empty = ragged.first_query_with(status == NO_RELEVANT, np.arange(len(idcg) + 1))
        refuse_query(batch, task.keys, empty, "has nothing relevant")
    return status


def _apply_rules(
    metric: Metric, values: FloatArray, status: IntArray, is_kept: BoolArray
) -> tuple[FloatArray, BoolArray]:
    """Apply the rules for missing and unjudged queries, and flag the kept queries with a value."""
    if not metric.undefined:
        lacks_list, lacks_judgments = status == MISSING, status >= UNJUDGED
        lacks = lacks_list & metric.needs_list | lacks_judgments & metric.needs_judgments
        values = np.where(lacks, 0.0, values)
    return values, is_kept & ~np.isnan(values)


def _refuse_unweighted(batch: pa.RecordBatch, task: ScoringTask, is_kept: BoolArray, status: IntArray) -> None:
    """Raise for the first kept query without a weight."""
    if "weight" not in task.carried:
        return
    unknown = ragged.first_query_with(is_kept & ~float_values(batch.column("weight"))[1], np.arange(len(is_kept) + 1))
    if unknown is not None:
        problem, rule = NO_WEIGHT.get(int(status[unknown]), ("has no weight", ""))
        advice = f" too, or choose {task.convention.advice(f'{rule}_query', 'drop')}" if rule else ""
        refuse_query(batch, task.keys, unknown, problem + advice)


def read_lists(batch: pa.RecordBatch, task: ScoringTask) -> GainLists:
    """Read a batch of rankings as gains.

    Raises for unjudged items under `unjudged=error`, two items on one rank, gains that are not finite, and a gain
    function that falls as relevance grows.
    """
    convention, keys, discount = task.convention, task.keys, task.discount
    ranked_column, ideal_column = batch.column("ranked"), batch.column("ideal")
    offsets = list_offsets(ranked_column)
    relevance, judged = float_values(ranked_column.flatten())
    if convention.unjudged == "error":
        refuse_query(batch, keys, ragged.first_query_with(~judged, offsets), "has an unjudged item among the first k")
    gains = ranked_gains = _compute_gains(relevance, judged, convention)
    _refuse_too_large(batch, keys, gains, relevance, offsets)
    groups, has_gaps = None, "ranks" in batch.schema.names
    rank, lengths = (
        _read_ranks(batch, keys, offsets) if has_gaps else (ragged.rank_of_rows(offsets), ragged.to_lengths(offsets))
    )
    if "tied" in batch.schema.names:
        groups, gains = _read_tie_groups(batch, gains, offsets)
        lengths = ragged.segment_sum(groups.count.astype(np.float64), offsets).astype(np.int64)
    ideal_offsets = list_offsets(ideal_column)
    best, known = float_values(ideal_column.flatten())
    ideal = _compute_gains(best, known, convention)
    _refuse_too_large(batch, keys, ideal, best, ideal_offsets)
    if callable(convention.gain):
        lists = (offsets, judged, relevance, ranked_gains), (ideal_offsets, known, best, ideal)
        _refuse_falling(batch, keys, lists)
    if convention.ideal != "unsorted":
        ideal = sort_within_queries(ideal, ideal_offsets)
    if convention.ideal == "as_many":
        # `n_items` counts the items before a list is condensed. Both lists are cut at the same K.
        limits = lengths if convention.unjudged == "condensed" else int_values(batch.column("n_items"))
        ideal = np.where(ragged.rank_of_rows(ideal_offsets) < limits[ragged.query_of_rows(ideal_offsets)], ideal, 0.0)
    if discount is None:
        max_lengths = (int(lengths.max(initial=0)), int(ragged.to_lengths(ideal_offsets).max(initial=0)))
        discount = discount_table(convention.discount, max(*max_lengths, *(k or 0 for k in task.cutoffs)))
    any_judged = int_values(batch.column("n_judged")) > 0
    rules = GainRules(
        ties=convention.ties,
        pad=None if convention.pad_to_k is None else compute_gain(convention.pad_to_k, convention),
        ideal_of_ones=compute_gain(1.0, convention) if convention.ideal == "k_ones" else None,
        no_relevant=NO_RELEVANT_VALUE[convention.no_relevant],
    )
    return GainLists(
        gains, offsets, rank, has_gaps, groups, lengths, ideal, ideal_offsets, any_judged, discount, rules
    )


def _read_tie_groups(batch: pa.RecordBatch, gains: FloatArray, offsets: IntArray) -> tuple[TieGroups, FloatArray]:
    """Return the tie groups, and the gains in an order that does not depend on the order of tied rows."""
    scores = float_values(batch.column("scores").flatten())[0]
    counts = int_values(batch.column("tied").flatten())
    groups = tie_groups(scores, counts, offsets)
    order = canonical_order(groups, gains)
    if order is None:
        return groups, gains
    return tie_groups(scores, counts[order], offsets), gains[order]


def _read_relevance_lists(batch: pa.RecordBatch, lists: GainLists, task: ScoringTask) -> RelevanceLists:
    """Read a batch of rankings as relevances for metrics. `lists` is the same batch as gains."""
    convention, levels, max_k = task.convention, task.levels, task.cutoffs[-1]
    counts = int_values(batch.column("n_at_least").flatten()).reshape(-1, len(levels)) if levels else None
    lengths = lists.lengths
    if lists.has_gaps and max_k is not None:
        # A list ends at the rank of its last item, which is beyond K if items were cut off.
        lengths = np.where(int_values(batch.column("n_items")) > ragged.to_lengths(lists.offsets), max_k, lengths)
    return RelevanceLists(
        read=partial(_read_entries, batch, lists, convention),
        offsets=lists.offsets,
        lengths=lengths,
        at_least={} if counts is None else {level: counts[:, index] for index, level in enumerate(levels)},
        max_k=max_k,
        clips=convention.negative == "clip",
        gains_by_convention=lists,
    )


def _read_entries(batch: pa.RecordBatch, lists: GainLists, convention: Convention) -> RankedEntries:
    relevance, judged = float_values(batch.column("ranked").flatten())
    relevance = np.where(judged, relevance, 0.0)
    if lists.groups is not None:
        groups, order = _group_relevances(batch, relevance, lists.offsets, convention)
        return RankedEntries(relevance[order], judged[order], groups)
    ones = np.ones(len(lists.rank), dtype=np.int64)
    return RankedEntries(relevance, judged, TieGroups(lists.rank, ones, ones, np.arange(len(ones))))


def _group_relevances(
    batch: pa.RecordBatch, relevance: FloatArray, offsets: IntArray, convention: Convention
) -> tuple[TieGroups, IntArray]:
    """Return tie groups and the order of their entries. Under `best` or `worst`, only equal items stay tied."""
    scores = float_values(batch.column("scores").flatten())[0]
    counts = int_values(batch.column("tied").flatten())
    groups = tie_groups(scores, counts, offsets)
    gains = relevance
    if convention.ties != "expected":
        gains = _compute_gains(*float_values(batch.column("ranked").flatten()), convention)
    order = np.lexsort((relevance, gains if convention.ties == "worst" else -gains, groups.group))
    counts = counts[order]
    if convention.ties == "expected":
        return tie_groups(scores, counts, offsets), order
    ends = np.cumsum(counts)
    begins = (ends - counts)[np.minimum(offsets[:-1], max(len(counts) - 1, 0))] if len(counts) else ends
    start = ends - counts - begins[ragged.query_of_rows(offsets)] if len(counts) else counts
    return TieGroups(start, counts, counts, np.arange(len(counts))), order


def _read_ranks(batch: pa.RecordBatch, keys: tuple[str, ...], offsets: IntArray) -> tuple[IntArray, IntArray]:
    rank = int_values(batch.column("ranks").flatten()) - 1
    twice = np.zeros(len(rank), dtype=np.bool_)
    twice[1:] = rank[1:] == rank[:-1]
    filled = ragged.to_lengths(offsets) > 0
    twice[offsets[:-1][filled]] = False
    refuse_query(batch, keys, ragged.first_query_with(twice, offsets), TWO_ON_ONE_RANK)
    lengths = np.zeros(len(offsets) - 1, dtype=np.int64)
    lengths[filled] = rank[offsets[1:][filled] - 1] + 1
    return rank, lengths


def _compute_gains(relevance: FloatArray, known: BoolArray, convention: Convention) -> FloatArray:
    all_known = known.all()
    levels = relevance.copy() if all_known else relevance[known]  # a copy, as a gain function may write to it
    if convention.negative == "clip":
        levels = np.maximum(levels, 0.0)
    known_gains = np.asarray(gain_function(convention.gain)(levels), dtype=np.float64)
    if known_gains.shape != levels.shape:
        raise InputRefusedError(
            f"the gain function returned shape {known_gains.shape} for relevances of shape {levels.shape}."
        )
    if all_known:
        return known_gains
    gains = np.zeros(len(relevance))
    gains[known] = known_gains
    return gains


def _find_too_large(gains: FloatArray) -> BoolArray:
    if not len(gains) or (gains.min() >= -MAX_GAIN and gains.max() <= MAX_GAIN):  # False if any is NaN
        return np.zeros(len(gains), dtype=np.bool_)
    return np.asarray(~(np.abs(gains) <= MAX_GAIN))


def _refuse_too_large(
    batch: pa.RecordBatch, keys: tuple[str, ...], gains: FloatArray, relevance: FloatArray, offsets: IntArray
) -> None:
    too_large = _find_too_large(gains)
    query = ragged.first_query_with(too_large, offsets)
    if query is not None:
        problem = f"has relevance {relevance[too_large.argmax()]:g}, whose gain is not finite, or above 2^63"
        refuse_query(batch, keys, query, problem)


def _refuse_falling(
    batch: pa.RecordBatch,
    keys: tuple[str, ...],
    lists: tuple[tuple[IntArray, BoolArray, FloatArray, FloatArray], ...],
) -> None:
    """Raise if gains fall as relevance grows within a query. `lists`: (offsets, judged, relevances, gains)."""
    query = np.concatenate([ragged.query_of_rows(offsets)[judged] for offsets, judged, _, _ in lists])
    relevance = np.concatenate([levels[judged] for _, judged, levels, _ in lists])
    gains = np.concatenate([gains[judged] for _, judged, _, gains in lists])
    order = np.lexsort((gains, relevance, query))
    query, relevance, gains = query[order], relevance[order], gains[order]
    falls = np.flatnonzero((query[1:] == query[:-1]) & (gains[1:] < gains[:-1]))
    if len(falls):
        low, high = [f"{gains[row]:g} at relevance {relevance[row]:g}" for row in (falls[0], falls[0] + 1)]
        problem = f"has a gain function that falls from {low} to {high}; a gain may not fall as relevance grows"
        refuse_query(batch, keys, int(query[falls[0]]), problem)


def compute_gain(relevance: float, convention: Convention) -> float:
    """Compute the gain of a single relevance. Raise if it is not finite or too large."""
    level = np.array([relevance], dtype=np.float64)
    gains = _compute_gains(level, np.ones(1, dtype=np.bool_), convention)
    if _find_too_large(gains)[0]:
        raise InputRefusedError(f"the gain of relevance {relevance:g} is not finite, or above 2^63.")
    return float(gains[0])


def refuse_query(batch: pa.RecordBatch, keys: tuple[str, ...], query: int | None, problem: str) -> None:
    """Raise for a query with a message of its key and the problem; do nothing if `query` is None."""
    if query is not None:
        values = {key: get_value(batch.column(key), query) for key in keys}
        shown = [labels.key({key: value for key, value in values.items() if key != "run" or value})]
        shown += [NO_QUERY_COLUMN] if len(keys) == 1 else []
        raise InputRefusedError(f"query {', '.join(filter(None, shown))} {problem}.")
