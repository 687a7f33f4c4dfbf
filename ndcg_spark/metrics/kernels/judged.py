"""The share of judged items in ranked lists."""

from __future__ import annotations

import numpy as np

from ndcg_spark.core.ragged import FloatArray
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
