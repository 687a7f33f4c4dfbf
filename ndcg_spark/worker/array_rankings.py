"""Tables with one row a query, whose arrays are in rank order already."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ndcg_spark.kernels.ragged import lengths_of
from ndcg_spark.worker.batches import BatchFunction, batch_function, float_values, list_offsets, plain_texts
from ndcg_spark.worker.canonical import IDEAL_ITEMS, IDEAL_LIST, ITEM, RANKED_ITEMS, RANKED_LIST, RELEVANCE, RUN
from ndcg_spark.worker.entries import Entries, list_column
from ndcg_spark.worker.partial_ranking import best_entries
from ndcg_spark.worker.query_rows import RankingTask
from ndcg_spark.worker.rankings import refuse_repeats, relevance_column
from ndcg_spark.worker.valid_rows import RowRules, valid_rows


def make_array_ranker(task: RankingTask) -> BatchFunction:
    """Build the function from batches of canonical arrays to rankings, under the user's names."""
    rules = RowRules(task.plan)
    return batch_function(
        lambda batches: (_rankings(valid_rows(plain_texts(batch), rules), task) for batch in batches)
    )


def _rankings(batch: pa.RecordBatch, task: RankingTask) -> pa.RecordBatch:
    names, plan, n = task.names, task.plan, batch.num_rows
    columns = {RUN: batch.column(RUN) if RUN in batch.schema.names else pa.repeat(pa.scalar(""), n)}
    columns |= {label: batch.column(name) for name, label in names.query.items()}
    keys = pa.RecordBatch.from_pydict(columns)
    retrieved = _entries(batch, RANKED_LIST, RANKED_ITEMS, keys, task)
    own = _judged(retrieved)
    truth = own
    if IDEAL_LIST in batch.schema.names:
        truth = _judged(_entries(batch, IDEAL_LIST, IDEAL_ITEMS, keys, task))
    counts = {
        "n_rows": np.ones(n, dtype=np.int64),
        "n_left_out": np.zeros(n, dtype=np.int64),
        "n_items": lengths_of(retrieved.offsets),
        "n_judged": lengths_of(truth.offsets),
        "n_relevant": lengths_of(truth.where(truth.numbers(RELEVANCE) > 0).offsets),
    }
    columns |= {name: pa.array(values) for name, values in counts.items()}
    columns |= {label: batch.column(name) for name, label in names.carried.items() if name in batch.schema.names}
    ranked = own if plan.convention.unjudged == "condensed" else retrieved
    ideal = own if plan.convention.ideal == "retrieved" else truth
    if plan.convention.ideal == "k_ones":
        ideal = Entries({RELEVANCE: np.zeros(0)}, np.zeros(n + 1, dtype=np.int64))
    elif plan.convention.ideal != "unsorted":
        ideal = best_entries(ideal, task)
    ranked, ideal = ranked.first(plan.max_k), ideal.first(plan.max_k)
    columns["ranked"] = list_column(relevance_column(ranked.numbers(RELEVANCE)), ranked.offsets)
    columns["ideal"] = list_column(pa.array(ideal.numbers(RELEVANCE)), ideal.offsets)
    return pa.RecordBatch.from_pydict(columns)


def _entries(batch: pa.RecordBatch, lists: str, items: str, keys: pa.RecordBatch, task: RankingTask) -> Entries:
    """Relevances of all entries, NaN where they are not judged. Refuses an item that comes twice."""
    column = batch.column(lists)
    values, known = float_values(column.flatten())
    entries = Entries({RELEVANCE: np.where(known, values, np.nan)}, list_offsets(column))
    if items in batch.schema.names:
        refuse_repeats(keys, Entries({ITEM: batch.column(items).flatten()}, entries.offsets), "list", task)
    return entries


def _judged(entries: Entries) -> Entries:
    return entries.where(~np.isnan(entries.numbers(RELEVANCE)))
