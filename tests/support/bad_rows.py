"""Rows that are good except for one thing, with the reason that each must be given."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from ndcg_spark.conventions import Convention
from ndcg_spark.evaluation.settings import Columns, EvaluationSettings

GOOD = {"run": "a", "query_id": "q1", "item_id": "x", "score": 1.0, "rank": 1.0, "relevance": 2.0, "w": 1.0}
SCHEMA = (
    "run string, query_id string, item_id string, score double, rank double, relevance double, w double, place int"
)
SCORED = Columns(run="run", weight="w")
BY_RANK = Columns(run="run", weight="w", rank="rank")
ERROR = Convention(negative="error")
TABLE = Convention(gain="table:0=0,1=1,2=3")
NAN, INF = math.nan, math.inf


@dataclass(frozen=True)
class Bad:
    """A row that is good but for one thing."""

    reason: str
    cells: dict[str, object]
    columns: Columns = SCORED
    convention: Convention = field(default_factory=Convention)

    @property
    def settings(self) -> EvaluationSettings:
        return EvaluationSettings(columns=self.columns, convention=self.convention, cutoffs=(1, 3))


BAD_ROWS = {
    "null query": Bad("null_query", {"query_id": None}),
    "null run": Bad("null_run", {"run": None}),
    "null item": Bad("null_item", {"item_id": None}),
    "null score": Bad("null_score", {"score": None}),
    "NaN score": Bad("nan_score", {"score": NAN}),
    "infinite score": Bad("infinite_score", {"score": INF}),
    "minus infinite score": Bad("infinite_score", {"score": -INF}),
    "null rank": Bad("null_rank", {"rank": None}, BY_RANK),
    "NaN rank": Bad("null_rank", {"rank": NAN}, BY_RANK),
    "rank 0": Bad("rank_below_1", {"rank": 0.0}, BY_RANK),
    "rank -1": Bad("rank_below_1", {"rank": -1.0}, BY_RANK),
    "rank 1.5": Bad("rank_not_whole", {"rank": 1.5}, BY_RANK),
    "infinite rank": Bad("rank_too_large", {"rank": INF}, BY_RANK),
    "NaN relevance": Bad("nan_relevance", {"relevance": NAN}),
    "infinite relevance": Bad("infinite_relevance", {"relevance": INF}),
    "minus infinite relevance": Bad("infinite_relevance", {"relevance": -INF}),
    "gain overflow": Bad("gain_overflow", {"relevance": 1024.0}),
    "level without gain": Bad("level_without_gain", {"relevance": 1.5}, convention=TABLE),
    "negative relevance": Bad("negative_relevance", {"relevance": -1.0}, convention=ERROR),
    "negative weight": Bad("bad_weight", {"w": -0.5}),
    "null weight": Bad("bad_weight", {"w": None}),
    "NaN weight": Bad("bad_weight", {"w": NAN}),
    "infinite weight": Bad("bad_weight", {"w": INF}),
}
