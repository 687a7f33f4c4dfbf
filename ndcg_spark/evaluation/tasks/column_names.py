"""Names of the columns that workers read, whatever the user's table calls them.

Names of the user's own columns have no place here, so none of them can collide with these.
"""

from __future__ import annotations

from dataclasses import dataclass

from ndcg_spark.evaluation.settings import EvaluationPlan

RUN, ITEM, SCORE, RANK, RELEVANCE = "run", "item", "score", "rank", "relevance"
ORDER, WEIGHT, COPIES, BAD_ROW = "order", "weight", "copies", "bad_row"
"""`copies`: how many rows of the input a row stands for. `bad_row`: a reason that only Spark can see."""

RANKED_LIST, RANKED_ITEMS, IDEAL_LIST, IDEAL_ITEMS = "ranked_list", "ranked_items", "ideal_list", "ideal_items"
"""Of tables with one row a query: relevances in rank order, all judged relevances, and their items."""


@dataclass(frozen=True, slots=True)
class Names:
    """The canonical names of a plan's columns, and what the user calls them."""

    query: dict[str, str]
    segments: dict[str, str]
    scores: dict[str, str]  # several, where each score column is a run
    has_runs: bool

    @property
    def keys(self) -> tuple[str, ...]:
        """Canonical columns that identify a query of a run, as they are read."""
        return ((RUN,) if self.has_runs else ()) + tuple(self.query)

    @property
    def carried(self) -> dict[str, str]:
        """Segments and weight: constant within a query, and part of every result."""
        return {**self.segments, WEIGHT: WEIGHT}


def bad_row_of(score: str) -> str:
    """Name the `bad_row` of the run of one of several score columns."""
    return f"{BAD_ROW}:{score}"


def canonical_names(plan: EvaluationPlan) -> Names:
    """Name the columns of a plan."""
    scores = plan.columns.score if plan.columns.rank is None else ()
    several = len(scores) > 1
    return Names(
        query={f"query_{at}": name for at, name in enumerate(plan.columns.query)},
        segments={f"segment_{at}": name for at, name in enumerate(plan.carried_segments)},
        scores={(f"{SCORE}_{at}" if several else SCORE): name for at, name in enumerate(scores)},
        has_runs=plan.columns.run is not None,
    )
