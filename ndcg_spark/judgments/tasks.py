"""Judgments and pair counts from ratings; each item has one list of ratings."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa

from ndcg_spark.core import labels
from ndcg_spark.core.batches import float_values, get_value, list_offsets
from ndcg_spark.core.ragged import BoolArray, FloatArray, IntArray, query_of_rows, to_lengths, to_offsets
from ndcg_spark.errors import InputRefusedError
from ndcg_spark.judgments import kernels
from ndcg_spark.judgments.settings import RatingSettings

RATINGS = "ratings"
"""List of struct<relevance, annotator, weight>, sorted."""


def judge_items(batches: Iterator[pa.RecordBatch], settings: RatingSettings) -> Iterator[pa.RecordBatch]:
    """Judge items by their `ratings`; key columns are passed on."""
    for batch in batches:
        relevance, weight, offsets = _read_ratings(batch, settings)
        ratings = kernels.sort_ratings(relevance, weight, offsets)
        votes = kernels.find_majority(ratings)
        value, rule, deciding = _decide(ratings, votes, settings, offsets)
        n_ratings = to_lengths(ratings.offsets)
        low, high = kernels.rating_range(ratings)
        disputed = ratings.rated & ((high - low >= settings.dispute_range) | ~votes.more_than_half)
        columns = {
            "relevance": pa.array(value, mask=np.isnan(value)),
            "rule": pa.array(rule, pa.string()),
            "decided_by": _list_deciders(batch.column(RATINGS), ratings, deciding),
            "n_ratings": pa.array(n_ratings),
            "n_zero_weight": pa.array(to_lengths(offsets) - n_ratings),
            "weight_sum": pa.array(kernels.sum_weights(ratings)),
            "lowest": pa.array(low, mask=~ratings.rated),
            "highest": pa.array(high, mask=~ratings.rated),
            "disputed": pa.array(disputed),
        }
        keys = {key: batch.column(key) for key in batch.schema.names if key != RATINGS}
        yield pa.RecordBatch.from_pydict({**keys, **columns, RATINGS: batch.column(RATINGS)})


def count_pairs(batches: Iterator[pa.RecordBatch], settings: RatingSettings) -> Iterator[pa.RecordBatch]:
    """Count pairs of `ratings` of an item: `raters`, `first`, `second`, `n`."""
    for batch in batches:
        relevance, weight, offsets = _read_ratings(batch, settings)
        is_counted = weight > 0
        n_ratings = np.bincount(query_of_rows(offsets)[is_counted], minlength=len(offsets) - 1).astype(np.int64)
        raters, first, second, count = kernels.count_rating_pairs(relevance[is_counted], to_offsets(n_ratings))
        columns = [pa.array(raters), pa.array(first), pa.array(second), pa.array(count)]
        yield pa.RecordBatch.from_arrays(columns, names=["raters", "first", "second", "n"])


def measure_agreement(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Compute `alpha`, `reason`, `n_items`, `n_ratings` from each list `pairs`."""
    for batch in batches:
        pairs = batch.column("pairs")
        structs = pairs.flatten()
        raters, first, second, count = (np.asarray(structs.field(index).to_numpy(False)) for index in range(4))
        agreements = [
            kernels.ordinal_alpha(
                kernels.PairCounts(raters[start:end], first[start:end], second[start:end], count[start:end])
            )
            for start, end in pairwise(list_offsets(pairs).tolist())
        ]
        types = (pa.float64(), pa.string(), pa.int64(), pa.int64())
        columns = [
            pa.array(list(values), kind) for values, kind in zip(zip(*agreements, strict=True), types, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, names=["alpha", "reason", "n_items", "n_ratings"])


def _read_ratings(batch: pa.RecordBatch, settings: RatingSettings) -> tuple[FloatArray, FloatArray, IntArray]:
    """Read relevances, weights and offsets. Raise if an annotator rated an item twice."""
    column = batch.column(RATINGS)
    offsets, flat = list_offsets(column), column.flatten()
    code = flat.field("annotator").dictionary_encode().indices.to_numpy(zero_copy_only=False)
    item = query_of_rows(offsets)
    order = np.lexsort((code, item))
    twice = np.flatnonzero((np.diff(item[order]) == 0) & (np.diff(code[order]) == 0))
    if len(twice):
        row = int(order[twice[0]])
        keys = (*settings.columns.query, settings.columns.item)
        label = labels.key({key: get_value(batch.column(key), int(item[row])) for key in keys})
        annotator = get_value(flat.field("annotator"), row)
        raise InputRefusedError(f"annotator {annotator!r} rated {label} twice; keep one of the ratings.")
    return float_values(flat.field("relevance"))[0], float_values(flat.field("weight"))[0], offsets


def _decide(
    ratings: kernels.Ratings, votes: kernels.Votes, settings: RatingSettings, offsets: IntArray
) -> tuple[FloatArray, list[str], BoolArray]:
    """Return the relevance of each item (NaN if unjudged), the rule that decided, and a mask of deciding ratings."""
    item = ratings.item
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
    rule[to_lengths(offsets) == 0] = "no_ratings"
    return value, rule.tolist(), deciding


def _list_deciders(column: pa.Array, ratings: kernels.Ratings, deciding: BoolArray) -> pa.Array:
    """List the annotators of the deciding ratings of each item, sorted as text."""
    annotators = column.flatten().field("annotator").take(pa.array(ratings.source[deciding])).to_pylist()
    n_deciding = np.bincount(ratings.item[deciding], minlength=len(ratings.rated)).astype(np.int64)
    offsets = to_offsets(n_deciding).tolist()
    lists = [sorted(annotators[start:end]) for start, end in pairwise(offsets)]
    return pa.array(lists, pa.list_(pa.string()))
