"""Partial rankings of a query to one: entries of a list are cut like rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ndcg_spark.core.batches import int_values
from ndcg_spark.core.entries import Entries, joined_entries
from ndcg_spark.core.ragged import IntArray, lengths_of, offsets_of
from ndcg_spark.evaluation.tasks.partial_ranking import (
    LOST,
    N_REJECTED,
    PartialRankings,
    best_entries,
    column_range,
    first_entries,
    is_count,
)
from ndcg_spark.evaluation.tasks.query_rows import RankingTask, order_by_group, stretch_offsets


def merged(partials: list[PartialRankings], task: RankingTask) -> list[PartialRankings]:
    """Merge the partial rankings of each query: those of queries in one piece, and those that were merged."""
    if not partials:
        return []
    found = joined_partials(partials)
    keys = found.keys(task.names)
    order = order_by_group(keys, task.names)
    if order is None:
        return [found]
    groups = stretch_offsets(keys.take(pa.array(order)), tuple(keys.schema.names))
    in_parts = lengths_of(groups) > 1
    alone = order[groups[:-1][~in_parts]]
    apart = order[np.repeat(in_parts, lengths_of(groups))]
    lengths = lengths_of(groups)[in_parts]
    parts = [taken_partials(found, alone)] if len(alone) else []
    return [*parts, _merged_groups(taken_partials(found, apart), offsets_of(lengths), task)]


def taken_partials(partials: PartialRankings, at: IntArray) -> PartialRankings:
    """Take some partial rankings, in the order given."""
    places = pa.array(at)
    return PartialRankings(
        {name: column.take(places) for name, column in partials.head.items()},
        None if partials.ranked is None else partials.ranked.of_queries(at),
        None if partials.ideal is None else partials.ideal.of_queries(at),
    )


def _merged_groups(partials: PartialRankings, offsets: IntArray, task: RankingTask) -> PartialRankings:
    """Merge successive partial rankings, those of a query between two offsets."""
    head = {}
    for name, column in partials.head.items():
        end, colon, carried = name.partition(":")
        if is_count(name):
            head[name] = pa.array(np.add.reduceat(int_values(column), offsets[:-1]))
        elif colon:
            head[name] = column_range(column, carried, offsets)[f"{'low' if end == LOST else end}:{carried}"]
        else:
            head[name] = column.take(pa.array(offsets[:-1]))
    ranked, ideal = partials.ranked, partials.ideal
    return PartialRankings(
        head,
        None if ranked is None else first_entries(Entries(ranked.columns, ranked.offsets[offsets]), task),
        None if ideal is None else best_entries(Entries(ideal.columns, ideal.offsets[offsets]), task),
    )


def joined_partials(partials: list[PartialRankings]) -> PartialRankings:
    """Put partial rankings behind each other."""
    if len(partials) == 1:
        return partials[0]
    partials = _alike(partials)
    head = {name: pa.concat_arrays([one.head[name] for one in partials]) for name in partials[0].head}
    ranked = [one.ranked for one in partials if one.ranked is not None]
    ideal = [one.ideal for one in partials if one.ideal is not None]
    return PartialRankings(head, joined_entries(ranked) if ranked else None, joined_entries(ideal) if ideal else None)


def _alike(partials: list[PartialRankings]) -> list[PartialRankings]:
    """Count no rejected row where none was, if any are counted."""
    like = next((one.head for one in partials if N_REJECTED in one.head), None)
    if like is None:
        return partials
    found = []
    for one in partials:
        head, n = dict(one.head), len(one.head["n_rows"])
        for name, column in like.items():
            if name not in head:
                head[name] = pa.array(np.zeros(n, dtype=np.int64)) if is_count(name) else pa.nulls(n, column.type)
        found.append(PartialRankings(head, one.ranked, one.ideal))
    return found
