"""Batches of rankings as ragged gains."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ndcg_spark.conventions import Convention
from ndcg_spark.errors import InputRefusedError
from ndcg_spark.kernels.dcg import sort_within_queries
from ndcg_spark.kernels.forms import LARGEST_GAIN
from ndcg_spark.kernels.gains import gain_function
from ndcg_spark.kernels.ragged import (
    BoolArray,
    FloatArray,
    IntArray,
    first_where,
    lengths_of,
    query_of_rows,
    rank_of_rows,
    segment_sum,
)
from ndcg_spark.kernels.ties import TieGroups, canonical_order, tie_groups
from ndcg_spark.metrics.kernels.lists import RelevanceLists
from ndcg_spark.worker.batches import float_values, int_values, list_offsets, value_at

TWO_ON_ONE_RANK = "has two items on one rank; is the query key complete?"


@dataclass(slots=True)
class RankedLists:
    """One batch of rankings as ragged gains; unjudged entries gain 0."""

    ranked: FloatArray
    offsets: IntArray
    rank: IntArray  # 0-based
    has_gaps: bool  # ranks were given, and so may leave some out
    groups: TieGroups | None  # where the tie rule takes tied items together
    lengths: IntArray  # ranks that each list fills
    ideal: FloatArray
    ideal_offsets: IntArray


def read_lists(batch: pa.RecordBatch, convention: Convention, keys: tuple[str, ...]) -> RankedLists:
    """Read a batch of rankings.

    Refuses an unjudged item under `unjudged=error`, two items on one given rank, and a gain that is not finite.
    """
    ranked_column, ideal_column = batch.column("ranked"), batch.column("ideal")
    offsets = list_offsets(ranked_column)
    relevance, judged = float_values(ranked_column.flatten())
    if convention.unjudged == "error":
        refuse_query(batch, keys, first_where(~judged, offsets), "has an unjudged item among the first k")
    gains = _gains(relevance, judged, convention)
    _refuse_too_large(batch, keys, gains, relevance, offsets)
    groups, has_gaps = None, "ranks" in batch.schema.names
    rank, lengths = _given_ranks(batch, keys, offsets) if has_gaps else (rank_of_rows(offsets), lengths_of(offsets))
    if "tied" in batch.schema.names:
        groups, gains = _tie_groups(batch, gains, offsets)
        lengths = segment_sum(groups.count.astype(np.float64), offsets).astype(np.int64)
    ideal_offsets = list_offsets(ideal_column)
    best, known = float_values(ideal_column.flatten())
    ideal = _gains(best, known, convention)
    _refuse_too_large(batch, keys, ideal, best, ideal_offsets)
    if convention.ideal != "unsorted":
        ideal = sort_within_queries(ideal, ideal_offsets)
    if convention.ideal == "as_many":
        # Counts of items do not tell how many are left of a condensed list. Both lists are cut at the same K.
        most = lengths if convention.unjudged == "condensed" else int_values(batch.column("n_items"))
        ideal = np.where(rank_of_rows(ideal_offsets) < most[query_of_rows(ideal_offsets)], ideal, 0.0)
    return RankedLists(gains, offsets, rank, has_gaps, groups, lengths, ideal, ideal_offsets)


def _tie_groups(batch: pa.RecordBatch, gains: FloatArray, offsets: IntArray) -> tuple[TieGroups, FloatArray]:
    """Tie groups and the gains in an order that does not depend on the order of tied rows."""
    scores = float_values(batch.column("scores").flatten())[0]
    counts = int_values(batch.column("tied").flatten())
    groups = tie_groups(scores, counts, offsets)
    order = canonical_order(groups, gains)
    if order is None:
        return groups, gains
    return tie_groups(scores, counts[order], offsets), gains[order]


def relevance_lists(
    batch: pa.RecordBatch, lists: RankedLists, convention: Convention, levels: tuple[float, ...], max_k: int | None
) -> RelevanceLists:
    """Read a batch of rankings as metrics other than NDCG see it; `lists` is the same batch as gains."""
    relevance, judged = float_values(batch.column("ranked").flatten())
    relevance = np.where(judged, relevance, 0.0)
    if lists.groups is None:
        n = len(lists.rank)
        one = np.ones(n, dtype=np.int64)
        groups = TieGroups(lists.rank, one, one, np.arange(n))
    else:
        groups, order = _groups_of_relevances(batch, relevance, lists.offsets, convention)
        relevance, judged = relevance[order], judged[order]
    counts = int_values(batch.column("n_at_least").flatten()).reshape(-1, len(levels)) if levels else None
    at_least = {} if counts is None else {level: counts[:, at] for at, level in enumerate(levels)}
    clips = convention.negative == "clip"
    return RelevanceLists(relevance, judged, groups, lists.offsets, lists.lengths, at_least, max_k, clips)


def _groups_of_relevances(
    batch: pa.RecordBatch, relevance: FloatArray, offsets: IntArray, convention: Convention
) -> tuple[TieGroups, IntArray]:
    """Tie groups, and the order of entries in them; the best or worst order leaves only equal items tied."""
    scores = float_values(batch.column("scores").flatten())[0]
    counts = int_values(batch.column("tied").flatten())
    groups = tie_groups(scores, counts, offsets)
    gains = relevance if convention.ties == "expected" else _gains_of(batch, convention)
    order = np.lexsort((relevance, gains if convention.ties == "worst" else -gains, groups.group))
    counts = counts[order]
    if convention.ties == "expected":
        return tie_groups(scores, counts, offsets), order
    ends = np.cumsum(counts)
    begins = (ends - counts)[np.minimum(offsets[:-1], max(len(counts) - 1, 0))] if len(counts) else ends
    start = ends - counts - begins[query_of_rows(offsets)] if len(counts) else counts
    return TieGroups(start, counts, counts, np.arange(len(counts))), order


def _gains_of(batch: pa.RecordBatch, convention: Convention) -> FloatArray:
    return _gains(*float_values(batch.column("ranked").flatten()), convention)


def _given_ranks(batch: pa.RecordBatch, keys: tuple[str, ...], offsets: IntArray) -> tuple[IntArray, IntArray]:
    rank = int_values(batch.column("ranks").flatten()) - 1
    twice = np.zeros(len(rank), dtype=np.bool_)
    twice[1:] = rank[1:] == rank[:-1]
    filled = lengths_of(offsets) > 0
    twice[offsets[:-1][filled]] = False
    refuse_query(batch, keys, first_where(twice, offsets), TWO_ON_ONE_RANK)
    lengths = np.zeros(len(offsets) - 1, dtype=np.int64)
    lengths[filled] = rank[offsets[1:][filled] - 1] + 1
    return rank, lengths


def _gains(relevance: FloatArray, known: BoolArray, convention: Convention) -> FloatArray:
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


def _too_large(gains: FloatArray) -> BoolArray:
    if not len(gains) or (gains.min() >= -LARGEST_GAIN and gains.max() <= LARGEST_GAIN):  # not so if any is NaN
        return np.zeros(len(gains), dtype=np.bool_)
    return np.asarray(~(np.abs(gains) <= LARGEST_GAIN))


def _refuse_too_large(
    batch: pa.RecordBatch, keys: tuple[str, ...], gains: FloatArray, relevance: FloatArray, offsets: IntArray
) -> None:
    too_large = _too_large(gains)
    query = first_where(too_large, offsets)
    if query is not None:
        what = f"has relevance {relevance[too_large.argmax()]:g}, whose gain is not finite, or above 2^63"
        refuse_query(batch, keys, query, what)


def one_gain(relevance: float, convention: Convention) -> float:
    """Gain of a single relevance; refused when it is not finite or too large."""
    level = np.array([relevance], dtype=np.float64)
    gains = _gains(level, np.ones(1, dtype=np.bool_), convention)
    if _too_large(gains)[0]:
        raise InputRefusedError(f"the gain of relevance {relevance:g} is not finite, or above 2^63.")
    return float(gains[0])


def refuse_query(batch: pa.RecordBatch, keys: tuple[str, ...], query: int | None, what: str) -> None:
    """Raise with the name of a query, if there is one."""
    if query is not None:
        named = [(name, value_at(batch.column(name), query)) for name in keys]
        shown = ", ".join(f"{name}={value}" for name, value in named if name != "run" or value)
        raise InputRefusedError(f"query {shown} {what}.")
