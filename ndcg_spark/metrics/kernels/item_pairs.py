"""Pairs of items of a list: how alike they are, and how many have nothing to compare."""

from __future__ import annotations

import numpy as np

from ndcg_spark.core.ragged import BoolArray, FloatArray, chosen_offsets
from ndcg_spark.metrics.kernels.diversity import mean_cosine, mean_jaccard, share_of_pairs_left_out
from ndcg_spark.metrics.kernels.items import ItemLists


def mean_similarity(items: ItemLists, k: int | None, by: str) -> FloatArray:
    """Mean similarity of the pairs of the first k items that both have features; NaN without such a pair.

    Parameters
    ----------
    items : ItemLists
    k : int or None
    by : {"vector", "categories"}
        Cosine of vectors, or Jaccard similarity of sets of categories.

    Returns
    -------
    float64, shape (n_queries,)

    References
    ----------
    Ziegler et al., WWW 2005, doi:10.1145/1060745.1060754.
    """
    chosen = (items.inside(k) & _with_features(items, by)).nonzero()[0]
    offsets = chosen_offsets(chosen, items.offsets)
    if by == "vector" and items.vectors is not None:
        return mean_cosine(items.vectors, chosen, offsets)
    if items.categories is None:
        raise ValueError("these lists come without categories")
    return mean_jaccard(items.categories[chosen], offsets)


def share_left_out(items: ItemLists, k: int | None, by: str) -> FloatArray:
    """Pairs of the first k items of which one has no features, over all pairs."""
    inside, offsets = items.first(k)
    return share_of_pairs_left_out(_with_features(items, by)[inside], offsets)


def _with_features(items: ItemLists, by: str) -> BoolArray:
    if by == "categories" and items.categories is not None:
        return np.asarray(items.categories.any(axis=1))
    if by == "vector" and items.has_vector is not None:
        return items.has_vector
    raise ValueError(f"these lists come without {by}")
