"""Binary preference: relevant items against the judged nonrelevant ones above them."""

from __future__ import annotations

import numpy as np

from ndcg_spark.core.ragged import FloatArray, segment_sum
from ndcg_spark.metrics.kernels.lists import RelevanceLists, ratio


def binary_preference(lists: RelevanceLists, rel: float) -> FloatArray:
    """Mean over relevant judged items of 1 - min(a, R) / min(N, R), those not retrieved as 0.

    Parameters
    ----------
    lists : RelevanceLists
    rel : float
        Relevance from which on an item is relevant.

    Returns
    -------
    float64, shape (n_queries,)

    References
    ----------
    Buckley and Voorhees, SIGIR 2004, doi:10.1145/1008992.1009000.
    """
    n_relevant = lists.at_least[rel]
    bound = np.minimum(lists.at_least[0.0] - n_relevant, n_relevant)
    nonrelevant = lists.judged & (lists.relevance >= 0) & (lists.relevance < rel)
    above = lists.before(lists.by_group(nonrelevant.astype(np.float64)))
    lengths = np.diff(lists.offsets)
    capped = np.minimum(above, np.repeat(n_relevant, lengths))
    worth = 1 - ratio(capped, np.repeat(bound, lengths))
    return ratio(segment_sum(np.where(lists.is_relevant(rel), worth, 0.0), lists.offsets), n_relevant)
