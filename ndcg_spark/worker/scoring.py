"""Rankings in, metrics of every query out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from ndcg_spark.conventions import Convention
from ndcg_spark.errors import option
from ndcg_spark.kernels.dcg import dcg, ndcg, padding, rank_weights
from ndcg_spark.kernels.discounts import discount_table
from ndcg_spark.kernels.ragged import BoolArray, FloatArray, IntArray, first_where, lengths_of, segment_sum
from ndcg_spark.kernels.ties import expected_weights, extreme_weights, straddling_share
from ndcg_spark.metrics import Metric, MetricAt, Need, QueryError
from ndcg_spark.worker.batches import BatchFunction, batch_function, flags_of, float_column, float_values, int_values
from ndcg_spark.worker.item_features import known_items, with_items
from ndcg_spark.worker.ranked_lists import RankedLists, one_gain, read_lists, refuse_query, relevance_lists
from ndcg_spark.worker.ranking.partial_ranking import N_REJECTED

EVALUATED, NO_RELEVANT, MISSING, UNJUDGED, LOST, NO_QUERY = range(6)
STATUS_NAMES = ("evaluated", "no_relevant", "missing", "unjudged", "lost", "no_query")
"""`lost`: all rows of the query were rejected. `no_query`: stands for rejected rows without a query."""
NO_WEIGHT = {
    MISSING: "is judged but not in the run, and only the run has weights; put them in the judgments too, "
    f"or choose {option('missing_query', 'drop')}",
    UNJUDGED: "is in the run but not judged, and only the judgments have weights; put them in the run too, "
    f"or choose {option('unjudged_query', 'drop')}",
}
"""Only a query that one of two tables lacks has none: in each table a null weight is a bad row."""
NO_RELEVANT_VALUE = {"zero": 0.0, "one": 1.0, "skip": np.nan, "error": np.nan}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringTask:
    """What a worker must know to score rankings; small, and the same on every worker."""

    convention: Convention
    cutoffs: tuple[int | None, ...]
    keys: tuple[str, ...]  # columns that name a query: the run first
    carried: tuple[str, ...]  # columns handed through as they are
    discount: FloatArray | None  # of the largest cutoff, computed once; None where there is none
    tie_bounds: bool = False  # also the best and the worst order
    metrics: tuple[tuple[Metric, int | None], ...] = ()  # beside NDCG, DCG and IDCG, with their cutoffs
    gain_cutoffs: frozenset[int | None] | None = None  # of NDCG, DCG and IDCG; None: all
    levels: tuple[float, ...] = ()  # relevances whose counts of judged items are in `n_at_least`
    needs: tuple[Need, ...] = ()  # what metrics read of items
    item_column: str = ""  # the user's, for messages
    listed: frozenset[int | None] = frozenset()  # cutoffs with the first items, for metrics of the catalogue


def dropped(convention: Convention) -> tuple[str, ...]:
    """Find the statuses of queries that a rule drops, and of those without any valid row."""
    rules = {MISSING: convention.missing_query, UNJUDGED: convention.unjudged_query, LOST: "drop", NO_QUERY: "drop"}
    return tuple(STATUS_NAMES[status] for status, rule in rules.items() if rule == "drop")


def uncounted(convention: Convention) -> tuple[str, ...]:
    """Find the statuses of queries that count in no mean: those that are dropped, or whose NDCG is not defined."""
    skipped = (STATUS_NAMES[NO_RELEVANT],) if convention.no_relevant == "skip" else ()
    return (*dropped(convention), *skipped)


def make_scorer(task: ScoringTask) -> BatchFunction:
    """Build the function from rankings to a row per query and cutoff, one batch a cutoff.

    dcg, idcg and ndcg are null for a query that a rule drops and at cutoffs at which none of them is asked for; ndcg
    alone for a query with nothing relevant under `skip`.
    """
    return batch_function(lambda batches: (result for batch in batches for result in score_batch(batch, task)))


def score_batch(batch: pa.RecordBatch, task: ScoringTask) -> Iterator[pa.RecordBatch]:
    """Score one batch of rankings; yields a batch of results per cutoff."""
    lists = read_lists(batch, task.convention, task.keys)
    discount = _discounts(lists, task)
    status = _query_status(batch, task)
    companions = _companions(batch, lists, task)
    for k in task.cutoffs:
        gained = _gained(lists, task, discount, k, task.convention.ties)
        if task.convention.ideal == "k_ones":
            ones = lists.lengths if k is None else np.full(batch.num_rows, k)
            best = one_gain(1.0, task.convention) * np.concatenate([[0.0], np.cumsum(discount)])[ones]
        else:
            best = dcg(lists.ideal, lists.ideal_offsets, discount, k=k)
        others = _tie_bounds(lists, task, discount, k) if task.tie_bounds else {}
        result = _result(batch, task, k, gained, best, status, others, companions.get(k, {}))
        yield with_items(result, batch, lists.rank, k if k in task.listed else 0) if task.listed else result


def _companions(
    batch: pa.RecordBatch, lists: RankedLists, task: ScoringTask
) -> dict[int | None, dict[str, FloatArray]]:
    """Values of the metrics beside NDCG, by cutoff and column."""
    if not task.metrics:
        return {}
    relevances = relevance_lists(batch, lists, task.convention, task.levels, task.cutoffs[-1])
    if task.needs:
        items = known_items(batch, lists.rank, lists.offsets, task.needs, task.item_column)
        relevances = replace(relevances, items=items)
    found: dict[int | None, dict[str, FloatArray]] = {}
    for metric, k in task.metrics:
        try:
            found.setdefault(k, {})[metric.column] = metric.values(relevances, k)
        except QueryError as error:
            refuse_query(batch, task.keys, error.query, f"{error.what} (metric {MetricAt(metric, k)})")
    return found


def _gained(lists: RankedLists, task: ScoringTask, discount: FloatArray, k: int | None, ties: str) -> FloatArray:
    gained = segment_sum(lists.ranked * _weights(lists, ties, discount, k), lists.offsets)
    if task.convention.pad_to_k is not None and k is not None:
        gained += _padding(lists, task, discount, k)
    return gained


def _tie_bounds(lists: RankedLists, task: ScoringTask, discount: FloatArray, k: int | None) -> dict[str, FloatArray]:
    """DCG with tied items in the best and in the worst order, and the tied share at the cut."""
    found = {f"ndcg_{ties}": _gained(lists, task, discount, k, ties) for ties in ("best", "worst")}
    share = np.zeros(len(lists.lengths))
    if k is not None and lists.groups is not None:
        share = straddling_share(lists.groups, lists.offsets, k=k)
    return {**found, "tied_share": share}


def _weights(lists: RankedLists, ties: str, discount: FloatArray, k: int | None) -> FloatArray:
    if lists.groups is None:
        return rank_weights(lists.rank, discount, k=k)
    if ties == "expected":
        return expected_weights(lists.groups, discount, k=k)
    return extreme_weights(lists.groups, lists.ranked, discount, k=k, best=ties == "best")


def _padding(lists: RankedLists, task: ScoringTask, discount: FloatArray, k: int) -> FloatArray:
    """What the items that a list misses add, on every rank up to k that has no item."""
    gain = one_gain(task.convention.pad_to_k or 0.0, task.convention)
    if not lists.has_gaps:
        return padding(lists.lengths, gain, discount, k=k)
    return padding(lists.lengths, gain, discount, k=k, rank=lists.rank, offsets=lists.offsets)


def _discounts(lists: RankedLists, task: ScoringTask) -> FloatArray:
    if task.discount is not None:
        return task.discount
    cutoffs = [k for k in task.cutoffs if k is not None]
    n_ranks = max(lists.lengths.max(initial=0), lengths_of(lists.ideal_offsets).max(initial=0), *cutoffs, 0)
    return discount_table(task.convention.discount, int(n_ranks))


def _query_status(batch: pa.RecordBatch, task: ScoringTask) -> IntArray:
    retrieved = int_values(batch.column("n_items")) > 0
    judged = int_values(batch.column("n_judged")) > 0
    status = np.where(judged, np.where(retrieved, EVALUATED, MISSING), UNJUDGED)
    if N_REJECTED in batch.schema.names:
        lost = ~judged & (int_values(batch.column("n_rows")) == 0)
        if lost.any():
            nameless = flags_of(batch.column(task.keys[1]).is_null())
            status = np.where(lost, np.where(nameless, NO_QUERY, LOST), status)
    return status


def _result(
    batch: pa.RecordBatch,
    task: ScoringTask,
    k: int | None,
    gained: FloatArray,
    best: FloatArray,
    status: IntArray,
    others: dict[str, FloatArray],
    companions: dict[str, FloatArray],
) -> pa.RecordBatch:
    convention = task.convention
    status = np.where((status == EVALUATED) & ~(best > 0), NO_RELEVANT, status)
    if convention.no_relevant == "error":
        empty = first_where(status == NO_RELEVANT, np.arange(len(best) + 1))
        refuse_query(batch, task.keys, empty, "has nothing relevant")
    zeroed = status >= MISSING
    gained = np.where(zeroed, 0.0, gained)
    best = np.where(status >= UNJUDGED, 0.0, best)

    def normalised(dcg_values: FloatArray) -> FloatArray:
        value = ndcg(np.where(zeroed, 0.0, dcg_values), best, no_relevant=NO_RELEVANT_VALUE[convention.no_relevant])
        return np.where(zeroed, 0.0, value)

    value = normalised(gained)
    kept = ~np.isin(status, [STATUS_NAMES.index(name) for name in dropped(convention)])
    _refuse_unweighted(batch, task, kept, status)
    asked = kept if task.gain_cutoffs is None or k in task.gain_cutoffs else np.zeros_like(kept)
    columns = {name: batch.column(name) for name in task.keys}
    columns["k"] = pa.repeat(pa.scalar(k, type=pa.int32()), batch.num_rows)
    columns["dcg"] = float_column(gained, asked)
    columns["idcg"] = float_column(best, asked)
    defined = asked & ~np.isnan(value)
    columns["ndcg"] = float_column(value, defined)
    for name, found in others.items():
        columns[name] = float_column(normalised(found) if name.startswith("ndcg") else found, defined)
    columns |= _companion_columns(companions, task, status, kept)
    columns["status"] = pa.array(STATUS_NAMES, type=pa.string()).take(pa.array(status))
    for name in task.carried:
        columns[name] = batch.column(name)
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _refuse_unweighted(batch: pa.RecordBatch, task: ScoringTask, kept: BoolArray, status: IntArray) -> None:
    if "weight" not in task.carried:
        return
    unknown = first_where(kept & ~float_values(batch.column("weight"))[1], np.arange(len(kept) + 1))
    if unknown is not None:
        refuse_query(batch, task.keys, unknown, NO_WEIGHT.get(int(status[unknown]), "has no weight"))


def _companion_columns(
    companions: dict[str, FloatArray], task: ScoringTask, status: IntArray, kept: BoolArray
) -> dict[str, pa.Array]:
    """Metrics beside NDCG.

    Null where a rule drops the query, where the query has no value, and at cutoffs at which they are not asked for.
    """
    columns = {}
    for name, metric in {metric.column: metric for metric, _ in task.metrics}.items():
        values = companions.get(name)
        if values is None:
            columns[name] = pa.nulls(len(kept), pa.float64())
        elif metric.undefined:
            columns[name] = float_column(values, kept & ~np.isnan(values))
        else:
            # 0 is the worst value of all others; of a residual, which is 1 without judgments, it would be the best.
            zeroed = status >= MISSING if metric.larger_is_better else status == MISSING
            columns[name] = float_column(np.where(zeroed, 0.0, values), kept)
    return columns
