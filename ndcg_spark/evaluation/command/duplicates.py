"""An item that comes twice in a query: the advice, in options of the command line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol, runtime_checkable

from ndcg_spark.core.failures import SPARK_ERRORS
from ndcg_spark.evaluation.frames.ranking import differing_columns, other_columns
from ndcg_spark.evaluation.settings import EvaluationPlan
from ndcg_spark.evaluation.tasks.rankings import SEVERAL_RANKERS, WHICH_COUNTS
from ndcg_spark.sources.formats import Table

_QUERY = re.compile(r"^an item comes twice in the [a-z ]+ of query (.*)\.$|^item .* comes \d+ times in query (.*)\.$")
_WHICH = "--duplicates best, or first with --order-col"


@runtime_checkable
class Ranked(Protocol):
    """Tables of a job that ranks one of them."""

    @property
    def table(self) -> Table:
        """The main table."""

    @property
    def plan(self) -> EvaluationPlan:
        """How it is evaluated."""


def with_options(message: str, inputs: object) -> str:
    """Spell the advice of a refusal in options, and name the columns that may tell rankers apart.

    A message that is not about an item that comes twice is returned as it is. Where one asks for the ranker, and
    inputs are `Ranked`, their main table is looked at: an action, a scan for the rows of the query.
    """
    what, asked, _ = message.partition(f" {SEVERAL_RANKERS}")
    if not asked:
        return message.replace(WHICH_COUNTS, _WHICH)
    columns = _columns(what, inputs) if isinstance(inputs, Ranked) else ()
    which = f"remove it, or say which counts: {_WHICH}."
    if columns is None:
        return f"{what} {which.capitalize()}"
    named = " or ".join(f"--run-col {name}" for name in columns[:3]) or "--run-col"
    return f"{what} {SEVERAL_RANKERS} Then name the column that tells them apart: {named}. Else {which}"


def _columns(what: str, inputs: Ranked) -> Sequence[str] | None:
    """Columns in which the rows differ, or that are not used if the rows are not found; None if no column differs."""
    frame, plan, found = inputs.table.frame, inputs.plan, _QUERY.match(what)
    if found:
        with suppress(*SPARK_ERRORS):  # the refusal matters more
            differing = differing_columns(frame, plan, found[1] or found[2])
            if differing is not None:
                return differing or None
    return other_columns(frame, plan)
