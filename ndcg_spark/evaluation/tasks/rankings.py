"""Complete partial rankings to rankings: what scoring reads, and what a person can read, too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ndcg_spark.core import ragged
from ndcg_spark.core.batches import (
    Entries,
    Values,
    flags_of,
    float_column,
    int_values,
    list_column,
    lists_of_counts,
    value_at,
)
from ndcg_spark.core.ragged import BoolArray
from ndcg_spark.errors import InputRefusedError, option
from ndcg_spark.evaluation.settings import EvaluationSettings
from ndcg_spark.evaluation.tasks import query_rows as col
from ndcg_spark.evaluation.tasks.partial_ranking import (
    AT_LEAST,
    COUNT,
    COUNTS,
    LOST,
    N_REJECTED,
    PartialRankings,
    first_tie_groups,
    ideal_order,
)
from ndcg_spark.evaluation.tasks.query_rows import RankingTask
from ndcg_spark.evaluation.tasks.scoring import TWO_ON_ONE_RANK
from ndcg_spark.evaluation.tasks.valid_rows import key_text

SEVERAL_RANKERS = "Does the table hold several rankers?"
"""Asked where an item comes twice and no column names the ranker: to keep one row of two would mix their lists."""
LISTS = ("ranked list", "list of relevant items")
"""Kinds of lists of items."""
TWICE = "twice"
"""Column of entries: whether the item is judged more than once."""


def rankings_batches(complete: PartialRankings, task: RankingTask) -> Iterator[pa.RecordBatch]:
    """Finish rankings: cut lists to K, refuse items that come twice, use the user's names. See `rank_queries`."""
    batch = _rankings(complete, task)
    for start in range(0, batch.num_rows, task.queries_at_once):
        yield batch.slice(start, task.queries_at_once)


def _rankings(complete: PartialRankings, task: RankingTask) -> pa.RecordBatch:
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
            several = differs(head[f"low:{name}"], head[f"high:{name}"])
            refuse_first(keys, several, f"column {shown!r} has more than one value in query ", ".", task)
            columns[label] = head[f"low:{name}"]
            if f"{LOST}:{name}" in head:  # a query of rejected rows only, which is in no mean
                lost = (int_values(head["n_rows"]) == 0) & (int_values(head["n_judged"]) == 0)
                columns[label] = pc.if_else(pa.array(lost), head[f"{LOST}:{name}"], columns[label])
    return pa.RecordBatch.from_pydict(columns | _lists(keys, complete, task))


def advice_on_repeats(kind: str, settings: EvaluationSettings, others: Sequence[str]) -> str:
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
    at = ragged.first_where(differs(low, high), np.arange(len(low) + 1))
    if at is not None:
        values = f"{value_at(low, at)!r} and {value_at(high, at)!r}"
        raise InputRefusedError(
            f"column {name!r} has more than one value in query {key_text(keys, task.names, at)}: {values}; it must "
            "be the same in all runs."
        )


def differs(one: pa.Array, other: pa.Array) -> BoolArray:
    """Where two columns have different values; nulls do not count, and NaN equals NaN, as in Spark."""
    found = flags_of(pc.not_equal(one, other))
    if pa.types.is_floating(one.type):
        found &= ~flags_of(pc.and_(pc.is_nan(one), pc.is_nan(other)))
    return found


def refuse_first(keys: pa.RecordBatch, flags: np.ndarray, before: str, after: str, task: RankingTask) -> None:
    at = ragged.first_where(flags, np.arange(len(flags) + 1))
    if at is not None:
        raise InputRefusedError(f"{before}{key_text(keys, task.names, at)}{after}")


def _lists(keys: pa.RecordBatch, complete: PartialRankings, task: RankingTask) -> dict[str, pa.Array]:
    ranked, ideal = complete.ranked, complete.ideal
    if ranked is None:
        raise ValueError("rankings without a ranked list")
    if task.checks_duplicates and col.ITEM in ranked.columns:
        kind = "ranking" if task.judgments is None else "ranking or its judgments"
        refuse_repeats(keys, ranked, kind, task)
    k = task.settings.max_k
    others: dict[str, Values] = {}
    if COUNT in ranked.columns:
        ranked = first_tie_groups(ranked.only(col.SCORE, col.RELEVANCE, COUNT), k, everywhere=True)
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
    ideal = _certain_ideal(keys, ideal, k, task)
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


def _certain_ideal(keys: pa.RecordBatch, best: Entries, k: int | None, task: RankingTask) -> Entries:
    """Cut the ideal list to k; refuse a repeated item in it. Items tied at the cutoff are arbitrary, so ignored."""
    if col.ITEM in best.columns:
        order_by, lengths = ideal_order(best.numbers(col.RELEVANCE), task), ragged.lengths_of(best.offsets)
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
    advice = advice_on_repeats(kind, task.settings, task.others)
    refuse_first(keys, twice, f"an item comes twice in the {kind} of query ", f". {advice}", task)
