"""Metrics of arrays in pandas Series, for columns in notebooks."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ndcg_spark.conventions.discounts import discount_table
from ndcg_spark.conventions.forms import relevance_range
from ndcg_spark.conventions.gains import gain_function
from ndcg_spark.core.batches import refusals_marked
from ndcg_spark.core.ragged import FloatArray, IntArray, lengths_of, offsets_of
from ndcg_spark.core.top_k import NumberArray
from ndcg_spark.errors import InputRefusedError
from ndcg_spark.metrics.kernels.dcg import dcg, ndcg, sort_within_queries


@refusals_marked()
def dcg_series(lists: pd.Series, *, gain: str, discount: str, k: int | None, best_first: bool) -> FloatArray:
    """DCG of each list of relevances in rank order, or put in ideal order first (`best_first`).

    A null list has no items, a null relevance gains 0; one that is infinite, or whose gain exceeds 2^63, is refused.
    """
    gains, offsets = _gains(lists, gain, judged_only=best_first)
    if best_first:
        gains = sort_within_queries(gains, offsets)
    table = discount_table(discount, int(lengths_of(offsets).max(initial=0)) if k is None else k)
    return dcg(gains, offsets, table, k=k)


def ndcg_series(
    ranked: pd.Series, ideal: pd.Series, *, gain: str, discount: str, k: int | None, no_relevant: float
) -> FloatArray:
    """NDCG of each pair of lists: relevances in rank order, and all judged relevances in any order."""
    gained = dcg_series(ranked, gain=gain, discount=discount, k=k, best_first=False)
    best = dcg_series(ideal, gain=gain, discount=discount, k=k, best_first=True)
    return ndcg(gained, best, no_relevant=no_relevant)


def _gains(lists: pd.Series, gain: str, *, judged_only: bool) -> tuple[FloatArray, IntArray]:
    arrays = [_numbers(one) for one in lists]
    if judged_only:  # pandas hands null elements over as NaN
        arrays = [one[~np.isnan(one)] for one in arrays]
    offsets = offsets_of(np.array([len(one) for one in arrays], dtype=np.int64))
    relevance = np.concatenate(arrays) if arrays else np.zeros(0)
    known = ~np.isnan(relevance)
    _refuse_too_large(relevance[known], gain)
    gains = np.zeros(len(relevance))
    gains[known] = gain_function(gain)(relevance[known])
    return gains, offsets


def _numbers(listed: NumberArray | None) -> FloatArray:
    """The relevances of a list; Spark has refused a NaN in it before, but not where it is text."""
    values = np.asarray([] if listed is None else listed)
    if values.dtype == object and any(isinstance(one, str) and one.strip().lower() == "nan" for one in values):
        raise InputRefusedError("nan_relevance in an array of text: NaN is a bad value; make it null.")
    return values.astype(np.float64)


def _refuse_too_large(relevance: FloatArray, gain: str) -> None:
    lowest, highest = relevance_range(gain)
    bad = ~np.isfinite(relevance) | (relevance < lowest) | (relevance > highest)
    if bad.any():
        raise InputRefusedError(
            f"relevance {relevance[bad][0]:g} in an array has a gain that is not finite, or above 2^63; "
            "take the item out, or choose another gain."
        )
