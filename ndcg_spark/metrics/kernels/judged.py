"""The share of judged items in ranked lists, and the number of unjudged ones."""

from __future__ import annotations

import numpy as np

from ndcg_spark.core.ragged import FloatArray, IntArray, segment_sum
from ndcg_spark.metrics.kernels.lists import RelevanceLists


def share_of_judged(lists: RelevanceLists, k: int | None) -> FloatArray:
    """Judged items over all items on the first k ranks, which may have gaps; tied items on average over their orders.

    Parameters
    ----------
    lists : RelevanceLists
    k : int or None

    Returns
    -------
    float64, shape (n_queries,)
        NaN for an empty list.
    """
    judged = lists.sum_of_shares(lists.by_group(lists.judged.astype(np.float64)), k)
    listed = lists.sum_of_shares(lists.by_group(np.ones(len(lists.judged))), k)
    return np.where(listed > 0, judged / np.maximum(listed, 1), np.nan)


def unjudged_items(lists: RelevanceLists, k: int | None) -> IntArray:
    """Count the unjudged items on the first k ranks; of items tied across rank k, as many as any order puts there.

    Parameters
    ----------
    lists : RelevanceLists
    k : int or None

    Returns
    -------
    int64, shape (n_queries,)
    """
    unjudged = lists.by_group((~lists.judged).astype(np.float64))
    return segment_sum(np.minimum(unjudged, lists.inside(k)), lists.spans.offsets).astype(np.int64)
