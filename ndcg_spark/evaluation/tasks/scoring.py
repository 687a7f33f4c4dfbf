"""Rankings in, metrics of every query out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from ndcg_spark.conventions import Convention
from ndcg_spark.core.batches import BatchFunction, batch_function, flags_of, float_column, float_values, int_values
from ndcg_spark.core.ragged import BoolArray, FloatArray, IntArray, first_where
from ndcg_spark.errors import option
from ndcg_spark.evaluation.items.item_features import known_items, with_items
from ndcg_spark.evaluation.tasks.partial_ranking import N_REJECTED
from ndcg_spark.evaluation.tasks.ranked_lists import read_lists, refuse_query, relevance_lists
from ndcg_spark.metrics import Metric, MetricAt, Need, QueryError
from ndcg_spark.metrics.kernels.gain_lists import GainLists
from ndcg_spark.metrics.normalized_gain import value_columns

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringTask:
    """What a worker must know to score rankings; small, and the same on every worker."""

    convention: Convention
    cutoffs: tuple[int | None, ...]
    keys: tuple[str, ...]  # columns that name a query: the run first
    carried: tuple[str, ...]  # columns handed through as they are
    discount: FloatArray | None  # of the largest cutoff, computed once; None where there is none
    metrics: tuple[tuple[Metric, int | None], ...]  # with their cutoffs
    levels: tuple[float, ...] = ()  # relevances whose counts of judged items are in `n_at_least`
    needs: tuple[Need, ...] = ()  # what metrics read of items
    item_column: str = ""  # the user's, for messages
    listed: frozenset[int | None] = frozenset()  # cutoffs with the first items, for metrics of the catalogue

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of values; null at cutoffs at which their metric is not asked for."""
        return value_columns(metric for metric, _ in self.metrics)


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

    Metrics are null for a query that a rule drops and at cutoffs at which they are not asked for; ndcg for a query
    with nothing relevant under `skip`, too.
    """
    return batch_function(lambda batches: (result for batch in batches for result in score_batch(batch, task)))


def score_batch(batch: pa.RecordBatch, task: ScoringTask) -> Iterator[pa.RecordBatch]:
    """Score one batch of rankings; yields a batch of results per cutoff."""
    lists = read_lists(batch, task.convention, task.keys, task.cutoffs, task.discount)
    found = _query_status(batch, task)
    values = _values(batch, lists, task)
    for k in task.cutoffs:
        status = _with_no_relevant(batch, task, found, lists.idcg(k))
        result = _result(batch, task, k, status, values.get(k, {}))
        yield with_items(result, batch, lists.rank, k if k in task.listed else 0) if task.listed else result


def _values(batch: pa.RecordBatch, lists: GainLists, task: ScoringTask) -> dict[int | None, dict[Metric, FloatArray]]:
    """Values of metrics by cutoff."""
    seen = relevance_lists(batch, lists, task.convention, task.levels, task.cutoffs[-1])
    if task.needs:
        seen = replace(seen, items=known_items(batch, lists.rank, lists.offsets, task.needs, task.item_column))
    found: dict[int | None, dict[Metric, FloatArray]] = {}
    for metric, k in task.metrics:
        try:
            found.setdefault(k, {})[metric] = metric.values(seen, k)
        except QueryError as error:
            refuse_query(batch, task.keys, error.query, f"{error.what} (metric {MetricAt(metric, k)})")
    return found


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


def _with_no_relevant(batch: pa.RecordBatch, task: ScoringTask, status: IntArray, best: FloatArray) -> IntArray:
    """Tell the evaluated queries apart whose ideal list gains nothing, and refuse them where the rule says so."""
    status = np.where((status == EVALUATED) & ~(best > 0), NO_RELEVANT, status)
    if task.convention.no_relevant == "error":
        empty = first_where(status == NO_RELEVANT, np.arange(len(best) + 1))
        refuse_query(batch, task.keys, empty, "has nothing relevant")
    return status


def _result(
    batch: pa.RecordBatch, task: ScoringTask, k: int | None, status: IntArray, values: dict[Metric, FloatArray]
) -> pa.RecordBatch:
    kept = ~np.isin(status, [STATUS_NAMES.index(name) for name in dropped(task.convention)])
    _refuse_unweighted(batch, task, kept, status)
    columns = {name: batch.column(name) for name in task.keys}
    columns["k"] = pa.repeat(pa.scalar(k, type=pa.int32()), batch.num_rows)
    columns |= dict.fromkeys(task.columns, pa.nulls(batch.num_rows, pa.float64()))
    columns |= {metric.column: _column(metric, its, status, kept) for metric, its in values.items()}
    columns["status"] = pa.array(STATUS_NAMES, type=pa.string()).take(pa.array(status))
    for name in task.carried:
        columns[name] = batch.column(name)
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _column(metric: Metric, values: FloatArray, status: IntArray, kept: BoolArray) -> pa.Array:
    """Values of a metric; null where a rule drops the query, and where it has no value."""
    if not metric.undefined:
        lacks_list, lacks_judgments = status == MISSING, status >= UNJUDGED
        lacks = lacks_list & metric.needs_list | lacks_judgments & metric.needs_judgments
        values = np.where(lacks, 0.0, values)
    return float_column(values, kept & ~np.isnan(values))


def _refuse_unweighted(batch: pa.RecordBatch, task: ScoringTask, kept: BoolArray, status: IntArray) -> None:
    if "weight" not in task.carried:
        return
    unknown = first_where(kept & ~float_values(batch.column("weight"))[1], np.arange(len(kept) + 1))
    if unknown is not None:
        refuse_query(batch, task.keys, unknown, NO_WEIGHT.get(int(status[unknown]), "has no weight"))
