"""Tables with one row a query, whose arrays are in rank order already."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ndcg_spark.core.batches import BatchFunction, batch_function, float_values, list_offsets, one_zero, plain_texts
from ndcg_spark.core.entries import Entries
from ndcg_spark.core.ragged import chosen_offsets, lengths_of, query_of_rows, rank_of_rows
from ndcg_spark.core.top_k import falling_order
from ndcg_spark.evaluation.tasks.partial_ranking import (
    AT_LEAST,
    N_REJECTED,
    PartialRankings,
    best_entries,
    needs_ideal,
)
from ndcg_spark.evaluation.tasks.query_rows import (
    IDEAL_ITEMS,
    IDEAL_LIST,
    ITEM,
    RANKED_ITEMS,
    RANKED_LIST,
    RELEVANCE,
    RUN,
    RankingTask,
    keys_in,
)
from ndcg_spark.evaluation.tasks.rankings import rankings_batches, refuse_first, refuse_repeats
from ndcg_spark.evaluation.tasks.valid_rows import RowRules, divided_rows, has_query, marked_rows


def make_array_ranker(task: RankingTask) -> BatchFunction:
    """Build the function from batches of canonical arrays to rankings, under the user's names."""
    rules = RowRules(task.settings)

    def rank(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            valid, rejected = divided_rows(marked_rows(plain_texts(batch), rules))
            yield from rankings_batches(_complete(valid, task), task)
            if rejected is not None:
                yield from rankings_batches(
                    counted_rankings(rejected, task, lambda rows: _complete(rows, task)), task
                )

    return batch_function(rank)


def counted_rankings(
    rejected: pa.RecordBatch, task: RankingTask, complete: Callable[[pa.RecordBatch], PartialRankings]
) -> PartialRankings:
    """Rejected rows as rankings without entries: each is a query that is lost, or has no query."""
    nameless = pa.array(~has_query(rejected, task.names))
    columns = dict(zip(rejected.schema.names, rejected.columns, strict=True))
    for name, column in columns.items():
        if name in task.names.query:
            columns[name] = pc.if_else(nameless, pa.scalar(None, column.type), column)
        elif name != RUN and name not in task.names.segments:
            columns[name] = pa.nulls(len(column), column.type)
    found = complete(pa.RecordBatch.from_pydict(columns))
    found.head[N_REJECTED], found.head["n_rows"] = found.head["n_rows"], found.head["n_left_out"]  # 1 and 0
    return found


def _complete(batch: pa.RecordBatch, task: RankingTask) -> PartialRankings:
    """Both lists of each query, not cut yet, and what is counted of them."""
    there, convention = batch.schema.names, task.settings.convention
    keys = batch.select(list(keys_in(batch, task.names)))
    retrieved = _entries(batch, RANKED_LIST, RANKED_ITEMS, keys, task)
    own = _judged(retrieved)
    truth = _judged(_entries(batch, IDEAL_LIST, IDEAL_ITEMS, keys, task)) if IDEAL_LIST in there else own
    if IDEAL_LIST in there and convention.ideal not in ("unsorted", "retrieved"):
        _refuse_beyond(own, truth, keys, task)
    counts = {
        "n_rows": np.ones(batch.num_rows, dtype=np.int64),
        "n_left_out": np.zeros(batch.num_rows, dtype=np.int64),
        "n_items": lengths_of(retrieved.offsets),
        "n_judged": lengths_of(truth.offsets),
        "n_relevant": lengths_of(chosen_offsets(truth.numbers(RELEVANCE) > 0, truth.offsets)),
    }
    head = dict(zip(keys.schema.names, keys.columns, strict=True))
    head |= {name: pa.array(values) for name, values in counts.items()}
    for at, level in enumerate(task.settings.levels):
        reaching = lengths_of(chosen_offsets(truth.numbers(RELEVANCE) >= level, truth.offsets))
        head[f"{AT_LEAST}{at}"] = pa.array(reaching)
    for name in task.names.carried:
        if name in there:
            head |= {f"low:{name}": batch.column(name), f"high:{name}": batch.column(name)}
    ranked = own if convention.unjudged == "condensed" else retrieved
    ideal = (own if convention.ideal == "retrieved" else truth).only(RELEVANCE)
    if convention.ideal != "unsorted":
        ideal = best_entries(ideal, task)
    return PartialRankings(head, ranked, ideal if needs_ideal(task) else None)


def _entries(batch: pa.RecordBatch, lists: str, items: str, keys: pa.RecordBatch, task: RankingTask) -> Entries:
    """Relevances of all entries, NaN where they are not judged. Refuses an item that comes twice."""
    column = batch.column(lists)
    values, known = float_values(column.flatten())
    entries = Entries({RELEVANCE: np.where(known, values, np.nan)}, list_offsets(column))
    if items in batch.schema.names:
        of_items = one_zero(batch.column(items).flatten())
        if pa.types.is_floating(of_items.type):  # NaN is no item, as null is none
            of_items = pc.if_else(pc.is_nan(of_items), None, of_items)
        if task.settings.check_duplicates != "none":
            refuse_repeats(keys, Entries({ITEM: of_items}, entries.offsets), "list", task)
        if task.settings.lists_items and lists == RANKED_LIST:
            return Entries({**entries.columns, ITEM: of_items}, entries.offsets)
    return entries


def _refuse_beyond(own: Entries, truth: Entries, keys: pa.RecordBatch, task: RankingTask) -> None:
    """Raise where the ranked relevances above 0 are more, or higher, than the judged ones, one by one."""
    found, known = (_relevant(one) for one in (own, truth))
    relevance, best = found.numbers(RELEVANCE), np.append(known.numbers(RELEVANCE), 0.0)
    query = query_of_rows(found.offsets)
    at = known.offsets[query] + rank_of_rows(found.offsets)
    known_one = best[np.where(at < known.offsets[query + 1], at, -1)]
    beyond = relevance > known_one * (1 + 1e-6)  # one of the two may have been rounded to float32
    flags = np.bincount(query[beyond], minlength=keys.num_rows) > 0
    columns = task.settings.columns
    before = f"column {columns.relevance!r} has a relevance that column {columns.ideal!r} lacks, in query "
    refuse_first(keys, flags, before, ". Give all judged relevances of a query, retrieved or not.", task)


def _relevant(entries: Entries) -> Entries:
    """Entries above 0, the highest first."""
    found = entries.only(RELEVANCE).where(entries.numbers(RELEVANCE) > 0)
    return found.taken(falling_order(found.numbers(RELEVANCE), found.offsets))


def _judged(entries: Entries) -> Entries:
    return entries.where(~np.isnan(entries.numbers(RELEVANCE)))
