"""Ratings of items to judgments and to counts of pairs: one list of ratings an item."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa

from ndcg_spark.core import labels
from ndcg_spark.core.batches import float_values, list_offsets, value_at
from ndcg_spark.core.ragged import BoolArray, FloatArray, IntArray, lengths_of, offsets_of, query_of_rows
from ndcg_spark.errors import InputRefusedError
from ndcg_spark.judgments import kernels
from ndcg_spark.judgments.settings import RatingSettings

RATINGS = "ratings"
"""List of struct<relevance, annotator, weight>, sorted."""


def judge_items(batches: Iterator[pa.RecordBatch], settings: RatingSettings) -> Iterator[pa.RecordBatch]:
    """Judge items by their `ratings`; keys are kept."""
    for batch in batches:
        relevance, weight, offsets = _ratings(batch, settings)
        ratings = kernels.weighty_ratings(relevance, weight, offsets)
        value, rule, deciding = _decided(ratings, settings, offsets)
        n_ratings = lengths_of(ratings.offsets)
        low, high = kernels.rating_range(ratings)
        votes = kernels.majority(ratings)
        disputed = ratings.rated & ((high - low >= settings.dispute_range) | ~votes.more_than_half)
        columns = {
            "relevance": pa.array(value, mask=np.isnan(value)),
            "rule": pa.array(rule, pa.string()),
            "decided_by": _names(batch.column(RATINGS), ratings, deciding),
            "n_ratings": pa.array(n_ratings),
            "n_zero_weight": pa.array(lengths_of(offsets) - n_ratings),
            "weight_sum": pa.array(kernels.weight_sums(ratings)),
            "lowest": pa.array(low, mask=~ratings.rated),
            "highest": pa.array(high, mask=~ratings.rated),
            "disputed": pa.array(disputed),
        }
        kept = {name: batch.column(name) for name in batch.schema.names if name != RATINGS}
        yield pa.RecordBatch.from_pydict({**kept, **columns, RATINGS: batch.column(RATINGS)})


def count_pairs(batches: Iterator[pa.RecordBatch], settings: RatingSettings) -> Iterator[pa.RecordBatch]:
    """Count pairs of `ratings` of one item: `raters`, `first`, `second`, `n`."""
    for batch in batches:
        relevance, weight, offsets = _ratings(batch, settings)
        counts = weight > 0
        numbers = np.bincount(query_of_rows(offsets)[counts], minlength=len(offsets) - 1).astype(np.int64)
        raters, first, second, count = kernels.pair_counts(relevance[counts], offsets_of(numbers))
        columns = [pa.array(raters), pa.array(first), pa.array(second), pa.array(count)]
        yield pa.RecordBatch.from_arrays(columns, names=["raters", "first", "second", "n"])


def measure_agreement(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Compute `alpha`, `reason`, `n_items`, `n_ratings` from each list `pairs`."""
    for batch in batches:
        pairs = batch.column("pairs")
        parts = pairs.flatten()
        raters, first, second, count = (np.asarray(parts.field(at).to_numpy(False)) for at in range(4))
        found = [
            kernels.ordinal_alpha(kernels.PairCounts(raters[a:b], first[a:b], second[a:b], count[a:b]))
            for a, b in pairwise(list_offsets(pairs).tolist())
        ]
        types = (pa.float64(), pa.string(), pa.int64(), pa.int64())
        columns = [pa.array(list(its), kind) for its, kind in zip(zip(*found, strict=True), types, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, names=["alpha", "reason", "n_items", "n_ratings"])


def _ratings(batch: pa.RecordBatch, settings: RatingSettings) -> tuple[FloatArray, FloatArray, IntArray]:
    """Relevances, weights and offsets. Raise if an annotator rated an item twice."""
    column = batch.column(RATINGS)
    offsets, flat = list_offsets(column), column.flatten()
    code = flat.field("annotator").dictionary_encode().indices.to_numpy(zero_copy_only=False)
    item = query_of_rows(offsets)
    order = np.lexsort((code, item))
    twice = np.flatnonzero((np.diff(item[order]) == 0) & (np.diff(code[order]) == 0))
    if len(twice):
        row = int(order[twice[0]])
        keys = (*settings.columns.query, settings.columns.item)
        place = labels.key({name: value_at(batch.column(name), int(item[row])) for name in keys})
        who = value_at(flat.field("annotator"), row)
        raise InputRefusedError(f"annotator {who!r} rated {place} twice; keep one of the ratings.")
    return float_values(flat.field("relevance"))[0], float_values(flat.field("weight"))[0], offsets


def _decided(
    ratings: kernels.Ratings, settings: RatingSettings, offsets: IntArray
) -> tuple[FloatArray, list[str], BoolArray]:
    """Relevance of each item (NaN: none), the rule it follows from, and which ratings decided it."""
    item, votes = ratings.item, kernels.majority(ratings)
    rule = np.full(len(ratings.rated), settings.rule, dtype=object)
    if settings.rule == "mean":
        value, deciding = kernels.weighted_mean(ratings), np.ones(len(item), dtype=np.bool_)
    elif settings.rule == "median":
        lower, upper = kernels.weighted_median(ratings)
        value = lower / 2 + upper / 2
        deciding = (ratings.relevance == lower[item]) | (ratings.relevance == upper[item])
    else:
        tied = votes.lower != votes.higher
        value = votes.higher.copy() if settings.tie == "higher" else votes.lower.copy()
        if settings.tie == "null":
            value[tied] = np.nan
            rule[tied & ratings.rated] = "tie"
        deciding = ratings.relevance == value[item]
    rule[~ratings.rated] = "no_weight"
    rule[lengths_of(offsets) == 0] = "no_ratings"
    return value, rule.tolist(), deciding


def _names(column: pa.Array, ratings: kernels.Ratings, deciding: BoolArray) -> pa.Array:
    """Annotators of the ratings that decided, by item, sorted as text."""
    names = column.flatten().field("annotator").take(pa.array(ratings.source[deciding])).to_pylist()
    counted = np.bincount(ratings.item[deciding], minlength=len(ratings.rated)).astype(np.int64)
    offsets = offsets_of(counted).tolist()
    lists = [sorted(names[begin:end]) for begin, end in pairwise(offsets)]
    return pa.array(lists, pa.list_(pa.string()))
