"""Metrics of one ranked list as defined in their papers: loops, no NumPy."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np

from ndcg_spark.core.ragged import to_offsets
from ndcg_spark.metrics import Metric, parse_metric
from ndcg_spark.metrics.kernels import tie_groups
from ndcg_spark.metrics.lists import RankedEntries, RelevanceLists

Ranked = Sequence[float | None]
"""Relevances in rank order; None is an unjudged item."""


def _hits(ranked: Ranked, rel: float) -> list[int]:
    return [int(item is not None and item >= rel) for item in ranked]


def cg(ranked: Ranked, judged: Sequence[float], k: int) -> float:
    return sum(item or 0 for item in ranked[:k])


def acg(ranked: Ranked, judged: Sequence[float], k: int) -> float:
    return sum(max(item or 0, 0) for item in ranked[:k]) / k


def p(ranked: Ranked, judged: Sequence[float], k: int, rel: float = 1) -> float:
    return sum(_hits(ranked[:k], rel)) / k


def r(ranked: Ranked, judged: Sequence[float], k: int, rel: float = 1) -> float:
    relevant = sum(grade >= rel for grade in judged)
    return sum(_hits(ranked[:k], rel)) / relevant if relevant else 0


def success(ranked: Ranked, judged: Sequence[float], k: int, rel: float = 1) -> float:
    return float(any(_hits(ranked[:k], rel)))


def rr(ranked: Ranked, judged: Sequence[float], k: int, rel: float = 1) -> float:
    return next((1 / (at + 1) for at, hit in enumerate(_hits(ranked[:k], rel)) if hit), 0)


def ap(ranked: Ranked, judged: Sequence[float], k: int, rel: float = 1, denominator: str = "judged") -> float:
    hits = _hits(ranked[:k], rel)
    relevant = sum(grade >= rel for grade in judged)
    by = {"judged": relevant, "achievable": min(k, relevant), "k": k, "hits": sum(hits)}[denominator]
    total = sum(sum(hits[: at + 1]) / (at + 1) for at, hit in enumerate(hits) if hit)
    return total / by if by else 0


def ap_r(ranked: Ranked, judged: Sequence[float], k: int, rel: float = 1) -> float:
    return ap(ranked, judged, sum(grade >= rel for grade in judged), rel)


def wap(ranked: Ranked, judged: Sequence[float], k: int) -> float:
    at_hits = [acg(ranked, judged, at + 1) for at, item in enumerate(ranked[:k]) if item is not None and item > 0]
    return sum(at_hits) / len(at_hits) if at_hits else 0


def err(ranked: Ranked, judged: Sequence[float], k: int, max_grade: float = 4) -> float:
    total, left = 0.0, 1.0
    for at, item in enumerate(ranked[:k]):
        stop = (2 ** max(item or 0, 0) - 1) / 2**max_grade
        total, left = total + left * stop / (at + 1), left * (1 - stop)
    return total


def rbp(ranked: Ranked, judged: Sequence[float], k: int, p: float = 0.8, rel: float = 1) -> float:
    return (1 - p) * sum(hit * p**at for at, hit in enumerate(_hits(ranked[:k], rel)))


def rbp_residual(ranked: Ranked, judged: Sequence[float], k: int, p: float = 0.8) -> float:
    n = min(k, len(ranked))
    return p**n + (1 - p) * sum(p**at for at, item in enumerate(ranked[:n]) if item is None)


def judged(ranked: Ranked, judged: Sequence[float], k: int) -> float:
    listed = ranked[:k]
    return sum(item is not None for item in listed) / len(listed) if listed else float("nan")


def rprec(ranked: Ranked, judged: Sequence[float], k: int, rel: float = 1) -> float:
    relevant = sum(grade >= rel for grade in judged)
    return sum(_hits(ranked[:relevant], rel)) / relevant if relevant else 0


def bpref(ranked: Ranked, judged: Sequence[float], k: int, rel: float = 1) -> float:
    relevant, others = sum(grade >= rel for grade in judged), sum(0 <= grade < rel for grade in judged)
    total, above = 0.0, 0
    for item in ranked:
        if item is not None and item >= rel:
            total += 1 - min(above, relevant) / min(others, relevant) if above else 1
        elif item is not None and item >= 0:
            above += 1
    return total / relevant if relevant else 0


DEFINITIONS: dict[str, Callable[..., float]] = {
    definition.__name__: definition
    for definition in (acg, ap, ap_r, bpref, cg, err, judged, p, r, rbp, rbp_residual, rprec, rr, success, wap)
}


Group = Sequence[float | None]
"""Relevances of items with one score; None is an unjudged item."""


def build_lists(
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
            for relevance in sorted(set(group), key=lambda relevance: -np.inf if relevance is None else relevance):
                scores.append(-float(place))
                relevances.append(np.nan if relevance is None else float(relevance))
                counts.append(sum(1 for other in group if other == relevance))
        lengths.append(len(relevances) - n_before)
    offsets, relevance = to_offsets(np.array(lengths, dtype=np.int64)), np.array(relevances, dtype=np.float64)
    missing = unretrieved or [()] * len(queries)
    judged = [
        [relevance for group in groups for relevance in group if relevance is not None] + list(more)
        for groups, more in zip(queries, missing, strict=True)
    ]
    levels = {level for metric in metrics for level in metric.levels}
    return RelevanceLists(
        read=lambda: RankedEntries(
            relevance=np.nan_to_num(relevance),
            judged=~np.isnan(relevance),
            groups=tie_groups(np.array(scores), np.array(counts, dtype=np.int64), offsets),
        ),
        offsets=offsets,
        lengths=np.array([sum(map(len, groups)) for groups in queries], dtype=np.int64),
        at_least={
            level: np.array([sum(relevance >= level for relevance in rows) for rows in judged]) for level in levels
        },
        max_k=max_k,
    )


def compute_value(text: str, groups: Sequence[Group], unretrieved: Sequence[float] = ()) -> float:
    """Compute a metric by its name for one query."""
    metric, at = parse_metric(text)
    k = None if at in (None, "all") else int(at)
    return float(metric.values(build_lists([groups], [metric], unretrieved=[unretrieved], max_k=k), k)[0])


def average_over_orders(definition: Callable[[Sequence[float | None]], float], groups: Sequence[Group]) -> float:
    """Return the mean of a definition over every order of tied items."""
    orders = [itertools.permutations(group) for group in groups]
    values = [
        definition([relevance for group in order for relevance in group]) for order in itertools.product(*orders)
    ]
    return sum(values) / len(values)
