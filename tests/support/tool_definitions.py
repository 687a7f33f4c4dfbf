"""Definitions of NDCG in other tools as plain loops, from their source or paper, without this package.

For tools that are too heavy for the tests, or not callable from Python. Each definition gets the rows
of one query and a cutoff (None: the whole list) and returns NDCG, or None if the tool has no value. For
tools that know only a set of relevant items, that set is the items judged above 0. The sums, gains and discounts are
those of the oracle.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from support.oracle import Cutoff, Row, group_by_score, parse_discount, parse_gain, sum_discounted

Values = dict[tuple[str, Cutoff], float]


Definition = Callable[[Sequence[Row], Cutoff], float | None]


def compute_values(definition: Definition, queries: Mapping[str, Sequence[Row]], cutoffs: Sequence[Cutoff]) -> Values:
    values = {(query, k): definition(rows, k) for query, rows in queries.items() for k in cutoffs}
    return {key: value for key, value in values.items() if value is not None}


# --- Small parts

power = parse_gain("exponential")


def compute_dcg(gains: Iterable[float], k: Cutoff, discount: str = "log2") -> float:
    return sum_discounted([[gain] for gain in gains], parse_discount(discount), k)


def rank_retrieved(rows: Sequence[Row], *, last_item_first: bool = False) -> list[Row]:
    """Return retrieved items by score; ties by the bytes of the item, ascending or descending."""
    ordered = sorted((row for row in rows if row.score is not None), key=lambda row: row.item.encode())
    if last_item_first:
        ordered.reverse()
    return sorted(ordered, key=lambda row: row.score or 0.0, reverse=True)


def labels(rows: Sequence[Row]) -> list[float]:
    return [row.relevance for row in rows if row.relevance is not None]


def truth(rows: Sequence[Row]) -> set[str]:
    return {row.item for row in rows if row.relevance is not None and row.relevance > 0}


def label(row: Row) -> float:
    return 0.0 if row.relevance is None else row.relevance


def best(gains: Iterable[float]) -> list[float]:
    return sorted(gains, reverse=True)


def average_over_ties(rows: Sequence[Row], gain: Callable[[float], float], *, single: bool) -> list[float]:
    """Return the gain of each rank, averaged over the items that share its score."""
    averages: list[float] = []
    for tied in group_by_score(rows, "float32" if single else "double"):
        gains = [gain(label(row)) for row in tied]
        averages += [sum(gains) / len(gains)] * len(gains)
    return averages


# --- The two definitions of this project


def default(rows: Sequence[Row], k: Cutoff, gain: Callable[[float], float] = power) -> float | None:
    """Jarvelin and Kekalainen with every judged item in the ideal list, averaged over all orders of tied items."""
    judged = labels(rows)
    if not judged:
        return None
    ideal = compute_dcg(best(gain(relevance) for relevance in judged), k)
    gains = average_over_ties(rows, gain, single=False)  # gains of relevance 0 are 0 here
    return compute_dcg(gains, k) / ideal if gains and ideal > 0 else 0.0


linear = partial(default, gain=float)


# --- Tools of information retrieval


def trec_eval(rows: Sequence[Row], k: Cutoff) -> float | None:
    """trec_eval 10, m_ndcg_cut.c and form_res_rels.c: scores as doubles, ties by docno, last first."""
    if not labels(rows) or not rank_retrieved(rows):
        return None
    ideal = compute_dcg(best(max(0.0, relevance) for relevance in labels(rows)), k)
    gained = compute_dcg((max(0.0, label(row)) for row in rank_retrieved(rows, last_item_first=True)), k)
    return gained / ideal if ideal > 0 else 0.0


def talr(rows: Sequence[Row], k: Cutoff) -> float | None:
    """TALR, +eval/tieNDCG.m: no cutoff; 1 where nothing is relevant."""
    gains = [power(label(row)) for row in rows if row.score is not None]
    ideal = compute_dcg(best(gains), k)
    return compute_dcg(average_over_ties(rows, power, single=False), k) / ideal if ideal else 1.0


def torchmetrics(rows: Sequence[Row], k: Cutoff) -> float | None:
    """torchmetrics 1.9, functional/retrieval/ndcg.py, with double sums in place of its single ones."""
    ideal = compute_dcg(best(label(row) for row in rows if row.score is not None), k)
    return compute_dcg(average_over_ties(rows, float, single=True), k) / ideal if ideal else 0.0


# --- Tools of learning to rank


def catboost(rows: Sequence[Row], k: Cutoff, gain: Callable[[float], float] = float) -> float | None:
    """CatBoost 1.2 dcg.cpp: by prediction, tied items by target, the worst first."""
    listed = sorted((-row.score, label(row)) for row in rows if row.score is not None)
    ideal = compute_dcg(best(gain(target) for _, target in listed), k)
    return compute_dcg((gain(target) for _, target in listed), k) / ideal if ideal > 0 else 1.0


catboost_exp = partial(catboost, gain=power)


# --- Spark MLlib, and what is built on it


def mllib(rows: Sequence[Row], k: Cutoff) -> float | None:
    """RankingMetrics.ndcgAt with relevances: the ideal list is the labels in the order they came in."""
    return _mllib(rank_retrieved(rows), [row for row in rows if row.relevance is not None], k)


def mllib_sorted(rows: Sequence[Row], k: Cutoff) -> float | None:
    """RankingMetrics.ndcgAt for callers who sort the labels first."""
    labelled = sorted((row for row in rows if row.relevance is not None), key=label, reverse=True)
    return _mllib(rank_retrieved(rows), labelled, k)


def _mllib(predicted: Sequence[Row], labelled: Sequence[Row], k: Cutoff) -> float:
    relevance = {row.item: label(row) for row in labelled}
    n = max(len(predicted), len(labelled)) if k is None else min(max(len(predicted), len(labelled)), k)
    gained = most = 0.0
    for i in range(n):
        if i < len(predicted):
            gained += power(relevance.get(predicted[i].item, 0.0)) / math.log(i + 2)
        if i < len(labelled):
            most += power(label(labelled[i])) / math.log(i + 2)
    return gained / most if most else 0.0


def mllib_binary(rows: Sequence[Row], k: Cutoff) -> float | None:
    """RankingMetrics.ndcgAt without relevances, all that PySpark reaches; an empty label set counts 0."""
    predicted, relevant = rank_retrieved(rows), truth(rows)
    gained = compute_dcg((float(row.item in relevant) for row in predicted), k, "ln")
    most = compute_dcg([1.0] * len(relevant), k, "ln")
    return gained / most if relevant else 0.0


def recommenders_spark(rows: Sequence[Row], k: Cutoff) -> float | None:
    """recommenders 1.2, SparkRankingEvaluation: MLlib over the users that both tables have."""
    return mllib_binary(rows, k) if rank_retrieved(rows) and truth(rows) else None


def recommenders_pandas(rows: Sequence[Row], k: Cutoff) -> float | None:
    """recommenders 1.2, python_evaluation.ndcg_at_k, raw: 0 / 0 is NaN, which the mean of pandas leaves out."""
    ideal = compute_dcg(best(labels(rows)), k, "ln")
    gained = compute_dcg((label(row) for row in rank_retrieved(rows)), k, "ln")
    return gained / ideal if ideal else None


# --- Tools of recommendation


def replay(rows: Sequence[Row], k: Cutoff) -> float | None:
    """RePlay 0.22, metrics/ndcg.py: users of the truth; 0 for one without recommendations."""
    relevant = truth(rows)
    if not relevant:
        return None
    gained = compute_dcg((float(row.item in relevant) for row in rank_retrieved(rows, last_item_first=True)), k)
    return gained / compute_dcg([1.0] * len(relevant), k)


def rectools(rows: Sequence[Row], k: Cutoff) -> float | None:
    """RecTools 0.19, metrics/ranking.py, divide_by_achievable=False: k relevant items are taken for granted."""
    relevant = truth(rows)
    if not relevant or k is None:
        return None
    return compute_dcg((float(row.item in relevant) for row in rank_retrieved(rows)), k) / compute_dcg([1.0] * k, k)


def mlflow(rows: Sequence[Row], k: Cutoff) -> float | None:
    """MLflow 3.18, metric_definitions.py: scikit-learn's NDCG cut at the length of the list retrieved."""
    listed, relevant = rank_retrieved(rows)[:k], truth(rows)
    if not listed or not relevant:
        return 0.0 if listed or relevant else 1.0
    gained = compute_dcg((float(row.item in relevant) for row in listed), len(listed))
    return gained / compute_dcg([1.0] * len(relevant), len(listed))


def evidently(rows: Sequence[Row], k: Cutoff) -> float | None:
    """Evidently 0.7, recsys/ndcg_k.py: the items shown, of users with some feedback."""
    targets = [label(row) for row in rank_retrieved(rows)]
    if not any(target > 0 for target in targets):
        return None
    return compute_dcg(targets, k) / compute_dcg(best(targets), k)
