"""Ranked lists for tests of metrics, and their values by definition: averaged over every order of tied items."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np

from ndcg_spark.core.ragged import offsets_of
from ndcg_spark.metrics import Metric, parse_metric
from ndcg_spark.metrics.kernels import tie_groups
from ndcg_spark.metrics.lists import Entries, RelevanceLists

Group = Sequence[float | None]
"""Relevances of items with one score; None is an unjudged item."""


def lists_of(
    queries: Sequence[Sequence[Group]],
    metrics: Sequence[Metric],
    *,
    unretrieved: Sequence[Sequence[float]] | None = None,
    max_k: int | None = None,
) -> RelevanceLists:
    """Build the lists of a batch from the tie groups of each query, equal items of a group in one entry."""
    scores, relevances, counts, lengths = [], [], [], []
    for groups in queries:
        n_before = len(relevances)
        for place, group in enumerate(groups):
            for relevance in sorted(set(group), key=lambda one: -np.inf if one is None else one):
                scores.append(-float(place))
                relevances.append(np.nan if relevance is None else float(relevance))
                counts.append(sum(1 for one in group if one == relevance))
        lengths.append(len(relevances) - n_before)
    offsets, relevance = offsets_of(np.array(lengths, dtype=np.int64)), np.array(relevances, dtype=np.float64)
    missing = unretrieved or [()] * len(queries)
    judged = [
        [one for group in groups for one in group if one is not None] + list(more)
        for groups, more in zip(queries, missing, strict=True)
    ]
    levels = {level for metric in metrics for level in metric.levels}
    return RelevanceLists(
        read=lambda: Entries(
            relevance=np.nan_to_num(relevance),
            judged=~np.isnan(relevance),
            groups=tie_groups(np.array(scores), np.array(counts, dtype=np.int64), offsets),
        ),
        offsets=offsets,
        lengths=np.array([sum(map(len, groups)) for groups in queries], dtype=np.int64),
        at_least={level: np.array([sum(one >= level for one in its) for its in judged]) for level in levels},
        max_k=max_k,
    )


def value(text: str, groups: Sequence[Group], unretrieved: Sequence[float] = ()) -> float:
    """A metric, as a user names it, of one query."""
    metric, at = parse_metric(text)
    k = None if at in (None, "all") else int(at)
    return float(metric.values(lists_of([groups], [metric], unretrieved=[unretrieved], max_k=k), k)[0])


def over_all_orders(definition: Callable[[Sequence[float | None]], float], groups: Sequence[Group]) -> float:
    """Mean of a definition over every order of tied items."""
    orders = [itertools.permutations(group) for group in groups]
    found = [definition([one for group in order for one in group]) for order in itertools.product(*orders)]
    return sum(found) / len(found)
