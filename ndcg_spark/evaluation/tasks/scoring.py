"""Rankings in, metrics of every query out: batches are read as ragged gains, and scored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa

from ndcg_spark.conventions import Convention
from ndcg_spark.conventions.forms import LARGEST_GAIN, discount_table, gain_function
from ndcg_spark.core import labels, ragged
from ndcg_spark.core.batches import REFUSAL, flags_of, float_column, float_values, int_values, list_offsets, value_at
from ndcg_spark.core.ragged import BoolArray, FloatArray, IntArray
from ndcg_spark.errors import InputRefusedError, MissingColumnError
from ndcg_spark.evaluation.settings import ITEM_RESERVED, EvaluationSettings
from ndcg_spark.evaluation.tasks.items import read_items, take_first_items
from ndcg_spark.evaluation.tasks.partial_ranking import N_REJECTED, TWO_ON_ONE_RANK
from ndcg_spark.evaluation.tasks.valid_rows import NO_QUERY_COLUMN
from ndcg_spark.metrics import CatalogueMetric, Metric, MetricAt, Need, QueryError
from ndcg_spark.metrics.judged import UnjudgedItems
from ndcg_spark.metrics.kernels import TieGroups, canonical_order, sort_within_queries, tie_groups
from ndcg_spark.metrics.lists import Entries, GainLists, GainRules, RelevanceLists

EVALUATED, NO_RELEVANT, MISSING, UNJUDGED, LOST, NO_QUERY = range(6)
STATUS_NAMES = ("evaluated", "no_relevant", "missing", "unjudged", "lost", "no_query")
"""`lost`: all rows of the query were rejected. `no_query`: stands for rejected rows without a query."""
NO_WEIGHT = {
    MISSING: ("is judged but not in the run, and only the run has weights; put them in the judgments", "missing"),
    UNJUDGED: ("is in the run but not judged, and only the judgments have weights; put them in the run", "unjudged"),
}
"""What is said of such a query, and whose rule may drop it.

Only a query that one of two tables lacks has none: in each table a null weight is a bad row.
"""
N_UNJUDGED_ITEMS, N_TOP_ITEMS = "n_unjudged_items", "n_top_items"
"""Of the items among the first k: those that are not judged, and all of them."""
NO_RELEVANT_VALUE = {"zero": 0.0, "one": 1.0, "skip": np.nan, "error": np.nan}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringTask:
    """What a worker must know to score rankings; small, and the same on every worker."""

    convention: Convention
    cutoffs: tuple[int | None, ...]
    keys: tuple[str, ...]  # columns that name a query: the run first
    carried: tuple[str, ...]  # columns handed through as they are
    discount: FloatArray | None  # of the largest cutoff, computed once; None where there is none
    metrics: tuple[MetricAt, ...]
    columns: tuple[str, ...]  # of values; null at cutoffs at which their metric is not asked for
    levels: tuple[float, ...] = ()  # relevances whose counts of judged items are in `n_at_least`
    needs: tuple[Need, ...] = ()  # what metrics read of items
    item_column: str = ""  # the user's, for messages


def build_scoring_task(columns: Sequence[str], settings: EvaluationSettings) -> ScoringTask:
    """Build the task that workers score rankings with these columns by."""
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
    """Find the columns of rankings that metrics of queries have as they are."""
    passed = {"run", *settings.columns.query, "ranked", "ranks", "scores", "tied", "ideal", "n_at_least", REFUSAL}
    passed |= set(ITEM_RESERVED if settings.needs else ())
    return tuple(name for name in columns if name not in passed)


def list_dropped_statuses(convention: Convention) -> tuple[str, ...]:
    """Find the statuses of queries that a rule drops, and of those without any valid row."""
    rules = {MISSING: convention.missing_query, UNJUDGED: convention.unjudged_query, LOST: "drop", NO_QUERY: "drop"}
    return tuple(STATUS_NAMES[status] for status, rule in rules.items() if rule == "drop")


def list_uncounted_statuses(convention: Convention) -> tuple[str, ...]:
    """Find the statuses of queries that count in no mean: those that are dropped, or whose NDCG is not defined."""
    skipped = (STATUS_NAMES[NO_RELEVANT],) if convention.no_relevant == "skip" else ()
    return (*list_dropped_statuses(convention), *skipped)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Metrics of the queries of a batch at one cutoff."""

    k: int | None
    queries: pa.RecordBatch  # keys, counts and what is carried, a row per query
    status: IntArray  # numbers of `STATUS_NAMES`
    values: dict[str, tuple[FloatArray, BoolArray]]  # by column, with flags of the queries that have a value

    def to_batch(self, task: ScoringTask) -> pa.RecordBatch:
        """Return a row per query, as users see it."""
        n = len(self.status)
        columns = {name: self.queries.column(name) for name in task.keys}
        columns["k"] = pa.repeat(pa.scalar(self.k, type=pa.int32()), n)
        columns |= dict.fromkeys(task.columns, pa.nulls(n, pa.float64()))
        columns |= {name: float_column(*values) for name, values in self.values.items()}
        columns["status"] = pa.array(STATUS_NAMES, type=pa.string()).take(pa.array(self.status))
        columns |= dict(zip(self.queries.schema.names, self.queries.columns, strict=True))
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def has_status(status: IntArray, names: Iterable[str]) -> BoolArray:
    return np.isin(status, [STATUS_NAMES.index(name) for name in names])


def score_rankings(batches: Iterator[pa.RecordBatch], task: ScoringTask) -> Iterator[pa.RecordBatch]:
    """Score rankings: a row per query and cutoff, one batch a cutoff; see `score_queries`."""
    for batch in batches:
        for scores in score_batch(batch, task):
            yield scores.to_batch(task)


def score_batch(batch: pa.RecordBatch, task: ScoringTask) -> Iterator[Scores]:
    lists = read_lists(batch, task.convention, task.keys, task.cutoffs, task.discount)
    before = _compute_status(batch, task)
    seen = read_relevance_lists(batch, lists, task.convention, task.levels, task.cutoffs[-1])
    if task.needs:
        seen = replace(seen, items=read_items(batch, lists.rank, lists.offsets, task.needs, task.item_column))
    unjudged = _find_unjudged(batch, lists, seen, task.convention)
    with_items = {one.k for one in task.metrics if isinstance(one.metric, CatalogueMetric)}
    for k in task.cutoffs:
        status = _mark_no_relevant(batch, task, before, lists.idcg(k))
        kept = ~has_status(status, list_dropped_statuses(task.convention))
        _refuse_unweighted(batch, task, kept, status)
        n_unjudged = np.zeros(batch.num_rows, dtype=np.int64) if unjudged is None else unjudged.among_first(k)
        columns = {name: batch.column(name) for name in task.keys}
        columns |= {N_UNJUDGED_ITEMS: pa.array(n_unjudged), N_TOP_ITEMS: pa.array(lists.n_among_first(k))}
        columns |= {name: batch.column(name) for name in task.carried}
        if with_items:
            columns["items"] = take_first_items(batch, lists.rank, k if k in with_items else 0)
        values = {}
        for metric in (one.metric for one in task.metrics if one.k == k and isinstance(one.metric, Metric)):
            try:
                values[metric.column] = _apply_rules(metric, metric.values(seen, k), status, kept)
            except QueryError as error:
                refuse_query(batch, task.keys, error.query, f"{error.what} (metric {MetricAt(metric, k)})")
        queries = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
        yield Scores(k=k, queries=queries, status=status, values=values)


def _find_unjudged(
    batch: pa.RecordBatch, lists: GainLists, seen: RelevanceLists, convention: Convention
) -> UnjudgedItems | None:
    """Where the unjudged items are; None where there are none."""
    entries = batch.column("ranked").flatten()
    if not entries.null_count:
        return None
    groups = lists.groups
    if convention.ties in ("best", "worst") and groups is not None:
        return UnjudgedItems(seen.judged, lists.rank, seen.groups, lists.offsets)
    if groups is not None:  # in the order of gains within each group: the entries keep theirs, which costs no sorting
        groups = replace(groups, count=int_values(batch.column("tied").flatten()))
    return UnjudgedItems(flags_of(entries.is_valid()), lists.rank, groups, lists.offsets)


def _compute_status(batch: pa.RecordBatch, task: ScoringTask) -> IntArray:
    retrieved = int_values(batch.column("n_items")) > 0
    judged = int_values(batch.column("n_judged")) > 0
    status = np.where(judged, np.where(retrieved, EVALUATED, MISSING), UNJUDGED)
    if N_REJECTED in batch.schema.names:
        lost = ~judged & (int_values(batch.column("n_rows")) == 0)
        if lost.any():
            nameless = flags_of(batch.column(task.keys[:2][-1]).is_null())  # the first of the query, or the run
            status = np.where(lost, np.where(nameless, NO_QUERY, LOST), status)
    return status


def _mark_no_relevant(batch: pa.RecordBatch, task: ScoringTask, status: IntArray, best: FloatArray) -> IntArray:
    """Tell the evaluated queries apart whose ideal list gains nothing, and refuse them where the rule says so."""
    status = np.where((status == EVALUATED) & ~(best > 0), NO_RELEVANT, status)
    if task.convention.no_relevant == "error":
        empty = ragged.first_where(status == NO_RELEVANT, np.arange(len(best) + 1))
        refuse_query(batch, task.keys, empty, "has nothing relevant")
    return status


def _apply_rules(
    metric: Metric, values: FloatArray, status: IntArray, kept: BoolArray
) -> tuple[FloatArray, BoolArray]:
    """Apply the rules for missing and unjudged queries; flag the queries that are kept and have a value."""
    if not metric.undefined:
        lacks_list, lacks_judgments = status == MISSING, status >= UNJUDGED
        lacks = lacks_list & metric.needs_list | lacks_judgments & metric.needs_judgments
        values = np.where(lacks, 0.0, values)
    return values, kept & ~np.isnan(values)


def _refuse_unweighted(batch: pa.RecordBatch, task: ScoringTask, kept: BoolArray, status: IntArray) -> None:
    if "weight" not in task.carried:
        return
    unknown = ragged.first_where(kept & ~float_values(batch.column("weight"))[1], np.arange(len(kept) + 1))
    if unknown is not None:
        told, whose = NO_WEIGHT.get(int(status[unknown]), ("has no weight", ""))
        advice = f" too, or choose {task.convention.advice(f'{whose}_query', 'drop')}" if whose else ""
        refuse_query(batch, task.keys, unknown, told + advice)


def read_lists(
    batch: pa.RecordBatch,
    convention: Convention,
    keys: tuple[str, ...],
    cutoffs: tuple[int | None, ...],
    discount: FloatArray | None,
) -> GainLists:
    """Read a batch of rankings as gains; `discount` is that of the largest cutoff, None where there is none.

    Refuses unjudged items under `unjudged=error`, two items on one rank, and gains that fall or are not finite.
    """
    ranked_column, ideal_column = batch.column("ranked"), batch.column("ideal")
    offsets = list_offsets(ranked_column)
    relevance, judged = float_values(ranked_column.flatten())
    if convention.unjudged == "error":
        refuse_query(batch, keys, ragged.first_where(~judged, offsets), "has an unjudged item among the first k")
    gains = ranked_gains = _compute_gains(relevance, judged, convention)
    _refuse_too_large(batch, keys, gains, relevance, offsets)
    groups, has_gaps = None, "ranks" in batch.schema.names
    rank, lengths = (
        _read_ranks(batch, keys, offsets) if has_gaps else (ragged.rank_of_rows(offsets), ragged.lengths_of(offsets))
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
        # Counts of items do not tell how many are left of a condensed list. Both lists are cut at the same K.
        most = lengths if convention.unjudged == "condensed" else int_values(batch.column("n_items"))
        ideal = np.where(ragged.rank_of_rows(ideal_offsets) < most[ragged.query_of_rows(ideal_offsets)], ideal, 0.0)
    if discount is None:
        longest = (int(lengths.max(initial=0)), int(ragged.lengths_of(ideal_offsets).max(initial=0)))
        discount = discount_table(convention.discount, max(*longest, *(k or 0 for k in cutoffs)))
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
    """Tie groups and the gains in an order that does not depend on the order of tied rows."""
    scores = float_values(batch.column("scores").flatten())[0]
    counts = int_values(batch.column("tied").flatten())
    groups = tie_groups(scores, counts, offsets)
    order = canonical_order(groups, gains)
    if order is None:
        return groups, gains
    return tie_groups(scores, counts[order], offsets), gains[order]


def read_relevance_lists(
    batch: pa.RecordBatch, lists: GainLists, convention: Convention, levels: tuple[float, ...], max_k: int | None
) -> RelevanceLists:
    """Read a batch of rankings as metrics see it; `lists` is the same batch as gains."""
    counts = int_values(batch.column("n_at_least").flatten()).reshape(-1, len(levels)) if levels else None
    lengths = lists.lengths
    if lists.has_gaps and max_k is not None:  # which end where their last rank is, beyond K if some items are
        lengths = np.where(int_values(batch.column("n_items")) > ragged.lengths_of(lists.offsets), max_k, lengths)
    return RelevanceLists(
        read=partial(_read_entries, batch, lists, convention),
        offsets=lists.offsets,
        lengths=lengths,
        at_least={} if counts is None else {level: counts[:, at] for at, level in enumerate(levels)},
        max_k=max_k,
        clips=convention.negative == "clip",
        gains_by_convention=lists,
    )


def _read_entries(batch: pa.RecordBatch, lists: GainLists, convention: Convention) -> Entries:
    relevance, judged = float_values(batch.column("ranked").flatten())
    relevance = np.where(judged, relevance, 0.0)
    if lists.groups is not None:
        groups, order = _group_relevances(batch, relevance, lists.offsets, convention)
        return Entries(relevance[order], judged[order], groups)
    one = np.ones(len(lists.rank), dtype=np.int64)
    return Entries(relevance, judged, TieGroups(lists.rank, one, one, np.arange(len(one))))


def _group_relevances(
    batch: pa.RecordBatch, relevance: FloatArray, offsets: IntArray, convention: Convention
) -> tuple[TieGroups, IntArray]:
    """Tie groups, and the order of entries in them; the best or worst order leaves only equal items tied."""
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
    filled = ragged.lengths_of(offsets) > 0
    twice[offsets[:-1][filled]] = False
    refuse_query(batch, keys, ragged.first_where(twice, offsets), TWO_ON_ONE_RANK)
    lengths = np.zeros(len(offsets) - 1, dtype=np.int64)
    lengths[filled] = rank[offsets[1:][filled] - 1] + 1
    return rank, lengths


def _compute_gains(relevance: FloatArray, known: BoolArray, convention: Convention) -> FloatArray:
    all_known = known.all()
    levels = relevance.copy() if all_known else relevance[known]  # a gain function may write to it
    if convention.negative == "clip":
        levels = np.maximum(levels, 0.0)
    found = np.asarray(gain_function(convention.gain)(levels), dtype=np.float64)
    if found.shape != levels.shape:
        raise InputRefusedError(f"the gain function gave shape {found.shape} for {levels.shape} relevances.")
    if all_known:
        return found
    gains = np.zeros(len(relevance))
    gains[known] = found
    return gains


def _find_too_large(gains: FloatArray) -> BoolArray:
    if not len(gains) or (gains.min() >= -LARGEST_GAIN and gains.max() <= LARGEST_GAIN):  # not so if any is NaN
        return np.zeros(len(gains), dtype=np.bool_)
    return np.asarray(~(np.abs(gains) <= LARGEST_GAIN))


def _refuse_too_large(
    batch: pa.RecordBatch, keys: tuple[str, ...], gains: FloatArray, relevance: FloatArray, offsets: IntArray
) -> None:
    too_large = _find_too_large(gains)
    query = ragged.first_where(too_large, offsets)
    if query is not None:
        what = f"has relevance {relevance[too_large.argmax()]:g}, whose gain is not finite, or above 2^63"
        refuse_query(batch, keys, query, what)


def _refuse_falling(
    batch: pa.RecordBatch,
    keys: tuple[str, ...],
    lists: tuple[tuple[IntArray, BoolArray, FloatArray, FloatArray], ...],
) -> None:
    """Refuse a gain function that falls within a query. `lists`: (offsets, judged, relevances, gains)."""
    query = np.concatenate([ragged.query_of_rows(offsets)[judged] for offsets, judged, _, _ in lists])
    relevance = np.concatenate([levels[judged] for _, judged, levels, _ in lists])
    gains = np.concatenate([its[judged] for _, judged, _, its in lists])
    order = np.lexsort((gains, relevance, query))
    query, relevance, gains = query[order], relevance[order], gains[order]
    at = np.flatnonzero((query[1:] == query[:-1]) & (gains[1:] < gains[:-1]))
    if len(at):
        low, high = [f"{gains[row]:g} at relevance {relevance[row]:g}" for row in (at[0], at[0] + 1)]
        what = f"has a gain function that falls from {low} to {high}; a gain may not fall as relevance grows"
        refuse_query(batch, keys, int(query[at[0]]), what)


def compute_gain(relevance: float, convention: Convention) -> float:
    """Gain of a single relevance; refused when it is not finite or too large."""
    level = np.array([relevance], dtype=np.float64)
    gains = _compute_gains(level, np.ones(1, dtype=np.bool_), convention)
    if _find_too_large(gains)[0]:
        raise InputRefusedError(f"the gain of relevance {relevance:g} is not finite, or above 2^63.")
    return float(gains[0])


def refuse_query(batch: pa.RecordBatch, keys: tuple[str, ...], query: int | None, what: str) -> None:
    if query is not None:
        named = {name: value_at(batch.column(name), query) for name in keys}
        shown = [labels.key({name: value for name, value in named.items() if name != "run" or value})]
        shown += [NO_QUERY_COLUMN] if len(keys) == 1 else []
        raise InputRefusedError(f"query {', '.join(filter(None, shown))} {what}.")
