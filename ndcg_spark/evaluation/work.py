"""What mean-ndcg and explain-difference do with their tables. Everything that is called `run` runs actions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark.core import labels
from ndcg_spark.core.columns import info_of
from ndcg_spark.core.failures import SPARK_ERRORS
from ndcg_spark.core.workers import collect, raise_refusals
from ndcg_spark.errors import InputRefusedError
from ndcg_spark.evaluation import printed
from ndcg_spark.evaluation.explanation import explain_step_by_step
from ndcg_spark.evaluation.frames.duplicates import differing_columns
from ndcg_spark.evaluation.frames.lists import require_query
from ndcg_spark.evaluation.frames.matching import check_matched
from ndcg_spark.evaluation.frames.ranking import Ranking, choose_ranking
from ndcg_spark.evaluation.frames.summary import (
    HIDDEN,
    METRIC_SCHEMA,
    PROVENANCE,
    SUMMARY_SCHEMA,
    per_query_rows,
    per_query_table_schema,
)
from ndcg_spark.evaluation.matching import top_items
from ndcg_spark.evaluation.plan import fit_settings
from ndcg_spark.evaluation.rules import RULES
from ndcg_spark.evaluation.settings import DifferenceJobSettings, EvaluationSettings
from ndcg_spark.evaluation.tasks.partial_ranking import SEVERAL_RANKERS
from ndcg_spark.evaluation.tasks.partial_sums import N_LOST, empty_summary
from ndcg_spark.evaluation.tasks.scoring import uncounted
from ndcg_spark.jobs.outputs import Accounts, rejected_counts, with_provenance
from ndcg_spark.jobs.runner import Job, Line, Outcome, Work
from ndcg_spark.metrics.normalized_gain import GAINS
from ndcg_spark.sources.formats import Table
from ndcg_spark.tables import Rows

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
        )

    @property
    def strategy(self) -> str:
        """For `--explain`."""
        return f"{self.ranking.strategy}, read by {self.ranking.source}: {self.ranking.reason}"

    @cached_property
    def rankings(self) -> DataFrame:
        """Lazy rankings of every query; Spark takes a while to analyse them."""
        return self.ranking.rankings()


def inputs_of(tables: Mapping[str, Table], settings: EvaluationSettings, reference: str) -> Inputs:
    """Fit settings to opened tables. Reads schemas. `reference` names the input in messages."""
    table = tables["input"]
    info = info_of(table.frame)
    names = info.names
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
    return Inputs(table=table, settings=fit_settings(info, settings), **others)


def with_options(message: str, inputs: Inputs) -> str:
    """Spell advice on a repeated item in options; name columns that may tell rankers apart (an action, one scan)."""
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
    return inputs.ranking.plan.others


def stored_metrics(spark: SparkSession, summary: list[dict[str, Any]], facts: Mapping[str, Any]) -> DataFrame:
    """Rows of the metric table; lazy."""
    values = [tuple(row[name] for name in SUMMARY_SCHEMA.fieldNames()) for row in summary]
    return with_provenance(spark.createDataFrame(values, SUMMARY_SCHEMA), facts, PROVENANCE).coalesce(1)


S = TypeVar("S")
MOST_QUERIES = 10


class OfRankings(Work[S]):
    """Doing something with rankings."""

    inputs: Inputs
    by_query = True
    """Whether queries must have names, which rows of lists may lack."""

    def open(self, settings: EvaluationSettings) -> Inputs:
        self.inputs = inputs_of(self.tables, settings, self.request.sources["input"].reference)
        if self.by_query:
            require_query(self.inputs.settings)
        return self.inputs

    def checked(self, *, originals: bool) -> dict[str, DataFrame]:
        """Reasons why rows are bad, by the name of their table; lazy."""
        return self.inputs.ranking.checked(originals=originals)

    def advice(self, message: str) -> str:
        return with_options(message, self.inputs)


class MeanNdcg(OfRankings[EvaluationSettings]):
    """Means per run and segment."""

    by_query = False

    def __init__(self, job: Job[EvaluationSettings]) -> None:
        super().__init__(job)
        self.open(self.settings)
        self.matched: list[str] = []

    def schemas(self) -> Mapping[str, T.StructType]:
        """Of the metric table, and of queries if they are wanted: that takes Spark a while."""
        found = {"output": METRIC_SCHEMA}
        if self.job.wants("per_query_output"):
            found["per_query_output"] = per_query_table_schema(self.inputs.rankings, self.inputs.settings)
        return found

    def explanation(self) -> Sequence[tuple[str, str]]:
        """Say how rankings would be ranked and why, and what it costs."""
        settings, ranking = self.inputs.settings, self.inputs.ranking  # finds missing columns and wrong types
        changed = settings.convention.differences()
        choices = ", ".join(f"{name}={value}" for name, value in changed.items()) or "all as by default"
        named = sum(name in self.request.targets for name in ("output", "per_query_output", "rejects"))
        # Others count bad rows by reason (only if there are any) and rows of catalog tables, and write the run log.
        bad = 0 if settings.on_invalid != "reject" else 1 if self.inputs.judgments is None else 2
        # Means of a table with metrics of queries are made of that table.
        costs = ranking.costs(means_only=not self.job.wants("per_query_output"))
        actions = 1 + named + bad
        metrics = ", ".join(one.label for one in settings.computed if one.shown)
        return (
            ("input", self.inputs.name),
            ("cutoffs", f"{labels.cutoffs(settings.cutoffs)} (all in one pass)"),
            ("metrics", metrics if settings.metrics else "ndcg, dcg, idcg"),
            ("convention", f"{settings.convention} (digest {settings.convention.digest}; {choices})"),
            ("segments", ", ".join("+".join(names) for names in settings.segment_sets) or "none"),
            ("strategy", ranking.strategy),
            ("source", f"{ranking.source}: {ranking.reason}"),
            ("cost", f"{'; '.join(costs)}; at least {actions} action{'s' if actions > 1 else ''}"),
            ("bad rows", settings.on_invalid),
        )

    def run(self) -> Outcome:
        """Rank, score and sum: an action, one more to count bad rows if there are any."""
        ranking = self.inputs.ranking
        if ranking.fell_back:
            self.job.tell(f"read by Spark: {ranking.reason}")
        per_query = (
            ranking.per_query(rejected=True, keep_refusals=True) if self.job.wants("per_query_output") else None
        )
        if per_query is not None:
            self.job.keep(per_query)
        with self.job.step("ranking and scoring"):
            rows = [row.asDict() for row in collect(ranking.summary(per_query, keep_refusals=True))]
        rows = [row for row in rows if row["run"] is not None]  # rejected rows without a run; `accounts` has them
        self.matched = check_matched(top_items(rows), ranking)
        used = sum(
            int(row["n_rows"]) + int(row["n_left_out"])
            for row in printed.counted_rows(sorted(rows, key=labels.row_order))
        )
        accounts = self.job.count_bad_rows(lambda: used if used == self.inputs.ranking.count() else None)
        summary = sorted(self._or_empty(rows, accounts), key=labels.row_order)
        gates = [result for gate in self.request.gates for result in gate.results(summary)]
        facts = self._facts(summary, accounts, gates)
        runs = sorted({row["run"] for row in summary})
        stored = stored_metrics(self.job.spark, summary, facts)
        tables = {"output": Rows(frame=stored, slices=self.job.slices(runs))}
        if per_query is not None:
            has = {row["run"] for row in summary if not row["segment_by"] and row["n_queries"]}
            queries = per_query_rows(raise_refusals(per_query), self.inputs.settings)
            slices = self.job.slices(runs, empty=sorted(set(runs) - has))
            tables["per_query_output"] = Rows(frame=queries, slices=slices)
        return Outcome(facts=facts, tables=tables, lines=self._lines(facts))

    def _or_empty(self, rows: list[dict[str, Any]], accounts: Accounts | None) -> list[dict[str, Any]]:
        """Refuse rows over no query, unless these are accepted."""
        if any(row["n_queries"] for row in rows):
            return rows
        if not self.request.shared.allow_empty:
            found = max((row["n_missing"] + row["n_unjudged"] + row["n_no_relevant"] for row in rows), default=0)
            why = f"none of {found} queries counts under these rules" if found else "there are no rows to evaluate"
            if accounts and accounts.rejected:
                why += f" ({printed.reasons_text(accounts.rejected)})"
            raise InputRefusedError(f"{why}; nothing was written (--allow-empty writes that over what was there).")
        if rows or self.inputs.settings.columns.run is not None:
            return rows
        runs = self.inputs.settings.columns.runs or ("",)
        rows = empty_summary(runs, [one for one in self.inputs.settings.computed if one.shown])
        return [{**row, RULES: self.inputs.settings.rules_of_means} for row in rows]

    def _facts(
        self, summary: list[dict[str, Any]], accounts: Accounts | None, gates: list[dict[str, Any]]
    ) -> dict[str, Any]:
        overall = printed.counted_rows(summary)

        def total(name: str) -> int:
            return sum(int(row[name]) for row in overall)

        evaluated, left_out = total("n_rows"), total("n_left_out")
        counts = rejected_counts(accounts)
        n_rejected = counts["rejected"]
        read = accounts.read if accounts else evaluated + left_out
        if read != evaluated + left_out + n_rejected:
            raise InputRefusedError(
                f"the input had {evaluated + left_out} good rows when it was evaluated, and {read - n_rejected} when "
                "they were counted: it changed meanwhile. Nothing was written; run again."
            )
        settings = self.inputs.settings
        facts: dict[str, Any] = {
            "metrics": [{name: value for name, value in row.items() if name not in HIDDEN} for row in summary],
            "rows": {
                "read": read,
                "evaluated": evaluated,
                "rejected": n_rejected,
                "left_out": left_out,
                "rejected_by_reason": counts["rejected_by_reason"],
            },
            "queries": {
                "in_mean": total("n_queries"),
                **{name: total(f"n_{name}") for name in ("no_relevant", "missing", "unjudged")},
                "lost": total(N_LOST),
            },
            **self.stamp(
                convention=str(settings.convention),
                config_hash=settings.digest,
                rules=settings.rules_of_means,
                input=self.inputs.name,
                sample=settings.sample,
            ),
            "gates": gates,
        }
        if accounts and accounts.judgments is not None:
            facts["judgment_rows"] = accounts.judgments
        return facts

    def _lines(self, facts: Mapping[str, Any]) -> Iterator[Line]:
        asked = [labels.metric_at(one.metric, one.k) for one in self.inputs.settings.asked]
        yield lambda: printed.show_summary(sorted(facts["metrics"], key=lambda row: labels.row_order(row, asked)))
        settings, n_runs = self.inputs.settings, len(printed.counted_rows(facts["metrics"]))
        queries = printed.queries_text(facts["queries"], settings, uncounted(settings.convention), n_runs=n_runs)
        yield printed.counts_line(facts["rows"], queries)
        # Lists mostly name the relevant items alone: all others would be told of.
        if settings.columns.relevant is None:
            yield from printed.unjudged_lines(facts["metrics"])
        yield from printed.rejected_lines(facts["rows"], facts["queries"], facts.get("judgment_rows"))
        overall = printed.counted_rows(facts["metrics"])
        yield from printed.different_queries(overall, settings, judged_apart=not self.inputs.ranking.tables.of_runs)
        yield from self.matched
        if facts["sample"] < 1:
            yield f"sample: {facts['sample']:g} of the queries, by hash; the intervals are about the mean of all"
        yield from filter(None, (gate.contrary for gate in self.request.gates))
        yield from printed.tie_warnings(facts["metrics"])


class ExplainDifference(OfRankings[DifferenceJobSettings]):
    """Why another convention gives another mean."""

    def __init__(self, job: Job[DifferenceJobSettings]) -> None:
        super().__init__(job)
        self.open(self.settings.evaluation)

    def run(self) -> Outcome:
        """Evaluate each step, and find the queries that carry most: two actions."""
        inputs, judgments = self.inputs, self.inputs.judgments
        found = explain_step_by_step(
            inputs.table.frame,
            inputs.settings,
            self.settings.to,
            judgments=judgments.frame if judgments else None,
        )
        with self.job.step("evaluating each step"):
            steps = [row.asDict() for row in found.steps.orderBy("run", "step").collect()]
            largest = found.queries.orderBy(F.abs("contribution").desc(), *inputs.settings.columns.query)
            queries = [row.asDict() for row in largest.limit(MOST_QUERIES).collect()]
        if not any(row["n_queries"] for row in steps):
            raise InputRefusedError("there is no query whose means could be explained.")
        return Outcome(
            facts={"steps": steps, "queries": queries}, lines=(lambda: printed.show_difference(steps, queries),)
        )
