"""Rankings with values printed in texts, tests and documents of tools; the oracle and the package reproduce them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from support.oracle import Choices, Cutoff, Row, build_rows
from support.random_rankings import CHOICES_OF_TOOL

PRINTED = 1.0001e-6
"""Six decimals are printed; one value, 14.5953908, was cut and not rounded."""
Values = tuple[float | None, float | None, float | None]


# --- Worked examples


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A list printed in texts on the metric, with its DCG, IDCG and NDCG; None: not printed."""

    relevances: tuple[int, ...]
    k: int
    unretrieved: tuple[int, ...] = ()
    linear: Values | None = None
    exponential: Values | None = None


SIX, FIVE = (3, 2, 3, 0, 1, 2), (2, 3, 1, 0, 0)
EXAMPLES = {
    "six": Example(
        relevances=SIX, k=6, linear=(6.861127, 7.140995, 0.960808), exponential=(13.848264, 14.595390, 0.948811)
    ),
    "six of eight": Example(
        relevances=SIX, k=6, unretrieved=(3, 2),
        linear=(6.861127, 8.740262, 0.785002), exponential=(13.848264, 18.437718, 0.751083),
    ),
    "ranker a": Example(relevances=(3, 2, 3, 1, 2), k=5, exponential=(None, None, 0.958112)),
    "ranker b": Example(relevances=(0, 1, 0, 0, 1), k=5, exponential=(None, None, 0.624051)),
    "five": Example(relevances=FIVE, k=5, linear=(4.392789, 4.761860, 0.922495), exponential=(None, None, 0.842828)),
    "best last": Example(relevances=(3, 2, 1, 0, 3), k=5, linear=(5.922418, 6.323466, 0.936578)),
    "four": Example(relevances=(2, 3, 1, 0), k=4, linear=(None, None, 0.922495)),
    "gap": Example(relevances=(3, 0, 3, 0), k=4, linear=(None, None, 0.919721)),
    "short": Example(relevances=(1, 1, 1), k=5, unretrieved=(1, 1), linear=(None, None, 0.722727)),
}  # fmt: skip
BOOSTED = "table:" + ",".join(repr(1 / 0.8 if rank == 1 else 1 / math.log2(rank + 1)) for rank in range(1, 6))
"""Slot 1 counts 1 / 0.8, the other slots as by default."""
CASES: list[tuple[Example, str, str, Values]] = [
    *((example, gain, "log2", getattr(example, gain))
      for example in EXAMPLES.values() for gain in ("linear", "exponential") if getattr(example, gain)),
    (EXAMPLES["best last"], "linear", BOOSTED, (6.672418, None, 0.943302)),
    (EXAMPLES["six"], "linear", "table:1,1,1,1,1,1", (11, 11, 1)),  # cumulative gain: DCG without a discount
]  # fmt: skip
"""Example, gain, discount, values."""


# --- Values of tools


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintedMean:
    """A mean NDCG printed by a tool, the presets of its name, and its choices."""

    source: str
    presets: tuple[str, ...]
    choices: Choices
    rows: list[Row] = field(repr=False)
    k: Cutoff
    ndcg: float
    tolerance: float = 1e-6

    def __str__(self) -> str:
        return f"{self.source} {self.k} {self.ndcg:.4f}"


LISTS = ([1, 6, 2, 7, 8, 3, 9, 10, 4, 5], [4, 1, 5, 6, 2, 7, 3, 8, 9, 10], [1, 2, 3, 4, 5])
LABELS = ([1, 2, 3, 4, 5], [1, 2, 3], [])
ONES = [[1.0] * len(labels) for labels in LABELS]


def build_prediction_rows(
    lists: Sequence[Sequence[int]], labels: Sequence[Sequence[int]], grades: Sequence[Sequence[float]] = ONES
) -> list[Row]:
    """Build rows of labels in their order, scored by place in the list, as in MLlib; then the other listed items."""
    rows = []
    for query, (items, truth) in enumerate(zip(lists, labels, strict=False)):
        relevance = dict(zip(truth, grades[query], strict=True))
        listed = [*truth, *(item for item in items if item not in relevance)]
        for at, item in enumerate(listed):
            score = -float(items.index(item)) if item in items else None
            rows.append(
                Row(query=f"{query}", item=f"{item}", score=score, relevance=relevance.get(item), position=at)
            )
    return rows


TREC_EVAL = ("trec_eval", "trec_eval_9", "ir_measures")
_PYTREC_EVAL, _SKLEARN = CHOICES_OF_TOOL["pytrec_eval"], CHOICES_OF_TOOL["sklearn_avg_ties_rows_ideal"]
_MLLIB = Choices(unjudged_query="zero")
_XGBOOST, _XGBOOST_MINUS = CHOICES_OF_TOOL["xgboost_metric_exp"], CHOICES_OF_TOOL["xgboost_metric_exp_minus"]
OF_SKLEARN = (10, 0, 0, 1, 5)
RISING = (0.1, 0.2, 0.3, 4, 70)
TIED = build_rows([0.1, 0.9, 0.1, 0.9], [0, 0, 1, 1])


def _build_issue_rows(retrieved: str) -> list[Row]:
    """Build three items, two retrieved with one score: trec_eval ranks b above a, and c above b."""
    judged = {"a": 0, "b": 1, "c": 0}
    return [Row(query="q", item=i, score=1 if i in retrieved else None, relevance=r) for i, r in judged.items()]


def _build_printed(source: str, presets: Sequence[str] | str, choices: Choices, *cases: tuple) -> list[PrintedMean]:
    names = (presets,) if isinstance(presets, str) else tuple(presets)
    keys = ("rows", "k", "ndcg", "tolerance")
    return [
        PrintedMean(source=source, presets=names, choices=choices, **dict(zip(keys, case, strict=False)))
        for case in cases
    ]


OF_TOOLS = [
    *_build_printed(
        "RankingMetricsSuite.scala", "mllib_binary", _MLLIB,
        *((build_prediction_rows(LISTS, LABELS), k, ndcg)
          for k, ndcg in ((3, 1 / 3), (5, 0.328788), (10, 0.487913), (15, 0.487913))),
        *((build_prediction_rows([[1, 6, 2], []], LABELS), k, ndcg) for k, ndcg in ((1, 0.5), (2, 0.306574))),
    ),
    *_build_printed(
        "RankingMetricsSuite.scala, relevances", ("mllib", "mllib_sorted"), _MLLIB,
        *((build_prediction_rows(LISTS, LABELS, ([3, 2, 1, 1, 1], [2, 0, 0], [])), k, ndcg)
          for k, ndcg in ((3, 0.511960), (5, 0.487807), (10, 0.518701))),
    ),
    *_build_printed("labels that come worst first", "mllib_sorted", _MLLIB,
                    *((build_prediction_rows([[2, 1]], [[1, 2]], [[0, 3]]), k, 1.0) for k in (1, 2))),
    *_build_printed("README of pytrec_eval", TREC_EVAL, _PYTREC_EVAL,
                    (build_rows((1, 0, 1.5), [None, 1, None]), None, 0.5, 1e-15),
                    (build_rows((4, 2, 1.5), [None, 1, None]), None, 0.6309297535714575, 1e-15)),
    *_build_printed("issue 22 of trec_eval", TREC_EVAL[:2], _PYTREC_EVAL,
                    (_build_issue_rows("ab"), None, 1.0), (_build_issue_rows("bc"), None, 0.6309297535714575)),
    *_build_printed("tests of ir_measures", "ir_measures", _PYTREC_EVAL,
                    (build_rows([0.8, 0.3, 0.7, 0.4, 0.1], [1, -1, 0, 2, 0]), None, 0.7601875, 5e-8)),
    *_build_printed(
        "documentation of scikit-learn", "sklearn", _SKLEARN,
        *((build_rows(scores, OF_SKLEARN), k, ndcg) for scores, k, ndcg in (
            (RISING, None, 0.695694), ((0.05, 1.1, 1.0, 0.5, 0.0), None, 0.493680), ((1, 0, 0, 0, 1), 1, 0.75),
            ((0.05, 1.1, 1.0, 0.5, 0.0), 4, 0.352024), ((1, 1, 1, 1, 1), None, 0.690979),
            ((1, 1, 1, 0.5, 0.5), None, 0.699812),
        )),
    ),
    *_build_printed("tests of XGBoost", "xgboost", _XGBOOST, (build_rows(RISING, OF_SKLEARN), 32, 0.409738)),
    *_build_printed("tests of XGBoost, linear", "xgboost;gain=linear", replace(_XGBOOST, gain="linear"),
                    (build_rows(RISING, OF_SKLEARN), 32, 0.695694)),
    *_build_printed("tests of XGBoost, ties", ("xgboost", "xgboost_minus"), _XGBOOST,
                    (TIED, 32, 0.6509, 5e-5), (TIED, 2, 0.3868, 1e-4)),
    *_build_printed("tests of XGBoost, nothing relevant", "xgboost", _XGBOOST,
                    (build_rows([0.1, 0.9], [0, 0]), 32, 1.0)),
    *_build_printed("tests of XGBoost, ndcg-", "xgboost_minus", _XGBOOST_MINUS,
                    (build_rows([0.1, 0.9], [0, 0]), 32, 0.0)),
]  # fmt: skip
DCG_OF_SKLEARN = (build_rows(RISING, OF_SKLEARN), 9.499458)
"""The one DCG that is printed, by `dcg_score`."""
