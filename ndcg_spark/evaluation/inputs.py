"""The tables a job reads, and the columns they turn out to have."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property

from pyspark.sql import DataFrame

from ndcg_spark.core.failures import SPARK_ERRORS
from ndcg_spark.errors import InputRefusedError
from ndcg_spark.evaluation.frames.canonical import judgment_rows, run_rows
from ndcg_spark.evaluation.frames.checks import checked_rows
from ndcg_spark.evaluation.frames.lists import long_tables, rows_of_lists, without_query
from ndcg_spark.evaluation.frames.ranking import Ranking, choose_ranking, differing_columns, other_columns
from ndcg_spark.evaluation.settings import EvaluationSettings
from ndcg_spark.evaluation.tasks.query_rows import canonical_names
from ndcg_spark.evaluation.tasks.rankings import SEVERAL_RANKERS
from ndcg_spark.evaluation.tasks.valid_rows import RowRules
from ndcg_spark.metrics.normalized_gain import GAINS
from ndcg_spark.sources.formats import Table

_QUERY = re.compile(r"^an item comes twice in the [a-z ]+ of query (.*)\.$|^item .* comes \d+ times in query (.*)\.$")
_WHICH = "--duplicates best, or first with --order-col"


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What was read, the settings that fit it, and how it is ranked."""

    table: Table
    judgments: Table | None
    items: Table | None
    interactions: Table | None
    settings: EvaluationSettings

    @property
    def name(self) -> str:
        """Identity of the input, for the metric table."""
        judged = f" judged by {self.judgments.name}" if self.judgments else ""
        share = f", {self.settings.sample:g} of the queries" if self.settings.sample < 1 else ""
        return f"{self.table.name}{judged}{share}"

    @cached_property
    def ranking(self) -> Ranking:
        """Strategy and source; found once."""
        judgments = self.judgments
        return choose_ranking(
            self.table.frame,
            self.settings,
            judgments=judgments.frame if judgments else None,
            items=self.items.frame if self.items else None,
            interactions=self.interactions.frame if self.interactions else None,
            path=self.table.path,
            parse_text=self.table.parse_text,
            parse_judgment_text=judgments.parse_text if judgments else False,
        )

    @cached_property
    def rankings(self) -> DataFrame:
        """Lazy rankings of every query; Spark takes a while to analyse them."""
        return self.ranking.rankings()

    def _long(self) -> tuple[DataFrame, DataFrame | None, EvaluationSettings]:
        """The main table and judgments, and their settings; lists beside judgments become long rows."""
        frame, settings = self.table.frame, self.settings
        judgments = None if self.judgments is None else self.judgments.frame
        if judgments is None or not settings.columns.ranked:
            return frame, judgments, settings
        return long_tables(frame, judgments, settings)

    def count(self) -> int:
        """Run an action: count the rows of the main table; those with several scores once for each."""
        settings, table = self.settings, self.table
        if self.ranking.strategy == "arrays":
            return rows_of_lists(table.frame, settings).count()
        frame, _, settings = self._long()
        rows = run_rows(frame, settings, judged=self.judgments is None, parse_text=table.parse_text)
        return rows.count() * max(1, len(canonical_names(settings).scores))

    def checked(self, *, originals: bool) -> dict[str, DataFrame]:
        """Reasons why rows are bad, by the name of their table; lazy. See `checked_rows`."""
        table, settings = self.table, self.settings
        if self.ranking.strategy == "arrays":
            rows = rows_of_lists(table.frame, settings, original=originals)
            return {"input": checked_rows(rows, RowRules(settings))}
        frame, judgments, settings = self._long()
        rows = run_rows(
            frame, settings, judged=self.judgments is None, parse_text=table.parse_text, original=originals
        )
        found = {"input": checked_rows(rows, RowRules(settings))}
        if judgments is not None:
            parse_text = self.judgments is not None and self.judgments.parse_text
            judged = judgment_rows(judgments, settings, parse_text=parse_text, original=originals)
            found["judgments"] = checked_rows(judged, RowRules(settings, judgments=True))
        return found


def inputs_of(tables: Mapping[str, Table], settings: EvaluationSettings, reference: str) -> Inputs:
    """Fit settings to opened tables, of which the input lies at `reference`. Reads schemas, runs no action.

    A `rank` column is used when no rank column was named, there is one, and there is no score.
    """
    table = tables["input"]
    names = table.frame.columns
    has_score = any(name in names for name in settings.columns.score)
    if (
        not has_score
        and settings.columns.rank not in names
        and {"k", *(one.column for one in GAINS), "status"} <= set(names)
    ):
        raise InputRefusedError(
            f"--input {reference!r} is a per-query table (metrics of queries), not rankings; compare-runs reads it "
            "by --per-query."
        )
    others = {name: tables.get(name) for name in ("judgments", "items", "interactions")}
    if settings.columns.ranked:
        settings = without_query(table.frame, settings)
    settings = replace(settings, columns=settings.columns.with_usual_rank(names))
    return Inputs(table=table, settings=settings, **others)


def with_options(message: str, inputs: Inputs) -> str:
    """Spell the advice on an item that comes twice in options, and name the columns that may tell rankers apart.

    Another message is returned as it is. Where one asks for the ranker, the main table is looked at: an action, a
    scan for the rows of the query.
    """
    what, asked, _ = message.partition(f" {SEVERAL_RANKERS}")
    if not asked:
        return message
    columns = _columns(what, inputs)
    which = f"remove it, or say which counts: {_WHICH}."
    if columns is None:
        return f"{what} {which.capitalize()}"
    named = " or ".join(f"--run-col {name}" for name in columns[:3]) or "--run-col"
    return f"{what} {SEVERAL_RANKERS} Then name the column that tells them apart: {named}. Else {which}"


def _columns(what: str, inputs: Inputs) -> Sequence[str] | None:
    """Columns in which the rows differ, or that are not used if the rows are not found; None if no column differs."""
    frame, settings, found = inputs.table.frame, inputs.settings, _QUERY.match(what)
    if found:
        with suppress(*SPARK_ERRORS):  # the refusal matters more
            differing = differing_columns(frame, settings, found[1] or found[2])
            if differing is not None:
                return differing or None
    return other_columns(frame, settings)
