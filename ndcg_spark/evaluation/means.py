"""Work of mean-ndcg that does not depend on the engine."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from ndcg_spark.core import labels
from ndcg_spark.core.schemas import TableInfo
from ndcg_spark.errors import InputRefusedError
from ndcg_spark.evaluation import printed
from ndcg_spark.evaluation.plan import RankingPlan
from ndcg_spark.evaluation.rules import RULES
from ndcg_spark.evaluation.settings import EvaluationSettings
from ndcg_spark.evaluation.tasks.partial_ranking import SEVERAL_RANKERS
from ndcg_spark.evaluation.tasks.partial_sums import N_LOST, build_empty_summary
from ndcg_spark.evaluation.tasks.scoring import list_uncounted_statuses
from ndcg_spark.evaluation.tasks.stored import HIDDEN
from ndcg_spark.jobs.outputs import InputCounts, summarize_rejected
from ndcg_spark.jobs.runner import Job, Line, Outcome, Work
from ndcg_spark.metrics.normalized_gain import GAINS
from ndcg_spark.tables import Rows
from ndcg_spark.tables.slices import Frame

_QUERY = re.compile(r"^(?:an item appears twice in the [a-z ]+ of|item .* appears \d+ times in) query (.*)\.$")
_WHICH = "--duplicates best, or first with --order-col"
Row: TypeAlias = dict[str, Any]


class NamedTable(Protocol):
    """An opened table. Its name is stored with results."""

    @property
    def name(self) -> str: ...


def format_input_name(table: NamedTable, judgments: NamedTable | None, settings: EvaluationSettings) -> str:
    """Format the names of the tables read, for the metric table."""
    judged = f" judged by {judgments.name}" if judgments else ""
    share = f", {settings.sample:g} of the queries" if settings.sample < 1 else ""
    return f"{table.name}{judged}{share}"


def refuse_per_query_table(info: TableInfo, settings: EvaluationSettings, reference: str) -> None:
    """Raise if the input is a per-query table instead of rankings. `reference` names it in messages."""
    columns = info.names
    has_order = settings.columns.rank in columns or any(column in columns for column in settings.columns.score)
    if not has_order and {"k", *(metric.column for metric in GAINS), "status"} <= set(columns):
        raise InputRefusedError(
            f"--input {reference!r} is a per-query table (metrics of queries), not rankings; pass it to "
            "compare-runs --per-query."
        )


def add_option_advice(message: str, others: Sequence[str], differing: Callable[[str], Sequence[str] | None]) -> str:
    """Add command line options to a message about a repeated item, and columns that may distinguish rankers.

    `differing` returns the unused columns in which rows of a query (`query_id=7`) differ; None if the query has no
    rows or they cannot be read.
    """
    problem, has_advice, _ = message.partition(f" {SEVERAL_RANKERS}")
    if not has_advice:
        return message
    columns: Sequence[str] | None = others
    query = _QUERY.match(problem)
    if query and (columns_found := differing(query[1])) is not None:
        columns = columns_found or None
    choice = f"remove it, or choose which one counts: {_WHICH}."
    if columns is None:
        return f"{problem} {choice.capitalize()}"
    run_options = " or ".join(f"--run-col {column}" for column in columns[:3]) or "--run-col"
    return f"{problem} {SEVERAL_RANKERS} Then name the column that tells them apart: {run_options}. Else {choice}"


class Means(Work[EvaluationSettings]):
    """Means per run and segment."""

    def __init__(self, job: Job[EvaluationSettings]) -> None:
        super().__init__(job)
        self.match_notes: list[str] = []

    # ------------------------------------------------------------------------------- implemented by each engine

    @property
    def input_name(self) -> str:
        """Identity of the input, for the metric table."""
        raise NotImplementedError

    @property
    def fitted(self) -> EvaluationSettings:
        """The settings, fitted to the table."""
        raise NotImplementedError

    @property
    def plan(self) -> RankingPlan:
        raise NotImplementedError

    def sources(self) -> tuple[str, str]:
        """Describe the reader of the tables, and the cost."""
        raise NotImplementedError

    def evaluate(self, *, per_query: bool) -> tuple[list[Row], Frame | None]:
        """Rank, score and sum; return rows of the summary and, if requested, the per-query table."""
        raise NotImplementedError

    def check_matched(self, rows: list[Row]) -> list[str]:
        """Raise if judgments match nothing; return lines about runs with few judged items."""
        raise NotImplementedError

    def count_all(self) -> int | None:
        """Return the number of rows of the main table, if that is cheaper than counting bad rows."""
        return None

    def metric_table(self, summary: list[Row], facts: Mapping[str, Any]) -> Frame:
        """Build the metric table."""
        raise NotImplementedError

    # -------------------------------------------------------------------------------------------------- shared work

    def explain(self) -> Sequence[tuple[str, str]]:
        """Describe how the input would be ranked, why, and the cost."""
        settings = self.fitted
        changed = settings.convention.differences()
        choices = ", ".join(f"{choice}={value}" for choice, value in changed.items()) or "all as by default"
        source, cost = self.sources()
        metrics = ", ".join(metric_at.label for metric_at in settings.computed if metric_at.shown)
        return (
            ("input", self.input_name),
            ("cutoffs", f"{labels.cutoffs(settings.cutoffs)} (all in one pass)"),
            ("metrics", metrics if settings.metrics else "ndcg, dcg, idcg"),
            ("convention", f"{settings.convention} (digest {settings.convention.digest}; {choices})"),
            ("segments", ", ".join("+".join(segment_set) for segment_set in settings.segment_sets) or "none"),
            ("strategy", self.plan.strategy),
            ("source", source),
            ("cost", cost),
            ("bad rows", settings.on_invalid),
        )

    def run(self) -> Outcome:
        """Rank, score and sum, and count bad rows if any."""
        wants_queries = self.job.is_requested("per_query_output")
        with self.job.step("ranking and scoring"):
            rows, queries = self.evaluate(per_query=wants_queries)
        rows = [
            row for row in rows if row["run"] is not None
        ]  # drops rejected rows without a run; `input_counts` counts them
        self.match_notes = self.check_matched(rows)
        n_used = sum(
            int(row["n_rows"]) + int(row["n_left_out"])
            for row in printed.select_overall_rows(sorted(rows, key=labels.row_order))
        )
        input_counts = self.job.count_bad_rows(lambda: n_used if n_used == self.count_all() else None)
        summary = sorted(self._require_queries(rows, input_counts), key=labels.row_order)
        gates = [result for gate in self.request.gates for result in gate.results(summary)]
        facts = self._collect_facts(summary, input_counts, gates)
        runs = sorted({row["run"] for row in summary})
        tables = {"output": Rows(frame=self.metric_table(summary, facts), slices=self.job.build_slices(runs))}
        if queries is not None:
            non_empty_runs = {row["run"] for row in summary if not row["segment_by"] and row["n_queries"]}
            slices = self.job.build_slices(runs, may_be_empty=sorted(set(runs) - non_empty_runs))
            tables["per_query_output"] = Rows(frame=queries, slices=slices)
        return Outcome(facts=facts, tables=tables, lines=self._format_lines(facts))

    def _require_queries(self, rows: list[dict[str, Any]], input_counts: InputCounts | None) -> list[dict[str, Any]]:
        """Raise if no query counts, unless empty results are allowed; then return empty rows."""
        if any(row["n_queries"] for row in rows):
            return rows
        if not self.request.shared.allow_empty:
            n_queries = max((row["n_missing"] + row["n_unjudged"] + row["n_no_relevant"] for row in rows), default=0)
            reason = (
                f"none of {n_queries} queries counts under these rules"
                if n_queries
                else "the input has no rows to evaluate"
            )
            if input_counts and input_counts.rejected:
                reason += f" ({printed.format_reasons(input_counts.rejected)})"
            raise InputRefusedError(f"{reason}; nothing was written (--allow-empty replaces the existing rows).")
        if rows or self.fitted.columns.run is not None:
            return rows
        runs = self.fitted.columns.runs or ("",)
        rows = build_empty_summary(runs, [metric_at for metric_at in self.fitted.computed if metric_at.shown])
        return [{**row, RULES: self.fitted.rules_of_means} for row in rows]

    def _collect_facts(
        self, summary: list[dict[str, Any]], input_counts: InputCounts | None, gates: list[dict[str, Any]]
    ) -> dict[str, Any]:
        overall = printed.select_overall_rows(summary)

        def total(column: str) -> int:
            return sum(int(row[column]) for row in overall)

        evaluated, left_out = total("n_rows"), total("n_left_out")
        counts = summarize_rejected(input_counts)
        n_rejected = counts["rejected"]
        read = input_counts.read if input_counts else evaluated + left_out
        if read != evaluated + left_out + n_rejected:
            raise InputRefusedError(
                f"the input changed while the job ran ({evaluated + left_out} valid rows evaluated, "
                f"{read - n_rejected} counted). Nothing was written; run again."
            )
        settings = self.fitted
        facts: dict[str, Any] = {
            "metrics": [{column: value for column, value in row.items() if column not in HIDDEN} for row in summary],
            "rows": {
                "read": read,
                "evaluated": evaluated,
                "rejected": n_rejected,
                "left_out": left_out,
                "rejected_by_reason": counts["rejected_by_reason"],
            },
            "queries": {
                "in_mean": total("n_queries"),
                **{column: total(f"n_{column}") for column in ("no_relevant", "missing", "unjudged")},
                "lost": total(N_LOST),
            },
            **self.build_provenance(
                convention=str(settings.convention),
                config_hash=settings.digest,
                rules=settings.rules_of_means,
                input=self.input_name,
                sample=settings.sample,
            ),
            "gates": gates,
        }
        if input_counts and input_counts.judgments is not None:
            facts["judgment_rows"] = input_counts.judgments
        return facts

    def _format_lines(self, facts: Mapping[str, Any]) -> Iterator[Line]:
        requested = [labels.metric_at(metric_at.metric, metric_at.k) for metric_at in self.fitted.requested]
        yield lambda: printed.show_summary(sorted(facts["metrics"], key=lambda row: labels.row_order(row, requested)))
        settings, n_runs = self.fitted, len(printed.select_overall_rows(facts["metrics"]))
        queries = printed.format_query_counts(
            facts["queries"], settings, list_uncounted_statuses(settings.convention), n_runs=n_runs
        )
        yield printed.format_counts(facts["rows"], queries)
        # Lists usually name relevant items only: all other items would be reported as unjudged.
        if settings.columns.relevant is None:
            yield from printed.format_unjudged(facts["metrics"])
        yield from printed.format_rejects(facts["rows"], facts["queries"], facts.get("judgment_rows"))
        overall = printed.select_overall_rows(facts["metrics"])
        has_judgments_table = self.plan.judgments is not None
        yield from printed.compare_query_counts(overall, settings, has_judgments_table=has_judgments_table)
        yield from self.match_notes
        if facts["sample"] < 1:
            yield f"sample: {facts['sample']:g} of the queries, by hash; the intervals refer to the mean of all"
        yield from filter(None, (gate.contrary for gate in self.request.gates))
        yield from printed.warn_ties(facts["metrics"])
