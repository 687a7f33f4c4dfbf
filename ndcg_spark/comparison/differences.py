"""The part of compare-runs that both engines share: which runs are compared, and the output of their differences."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any, TypeAlias

import pyarrow as pa

from ndcg_spark.comparison.printed import show_comparison
from ndcg_spark.comparison.results import check_matched, select_evaluations
from ndcg_spark.comparison.settings import ComparisonJobSettings, ComparisonSettings, is_companion
from ndcg_spark.comparison.tables import QueryTable, Tables, add_baseline, build_settings, plan_tables
from ndcg_spark.comparison.tasks.finishing import PAIR_TOP_ITEMS, RESULT_SCHEMA
from ndcg_spark.core import labels
from ndcg_spark.core.student import require_scipy
from ndcg_spark.errors import InputRefusedError, InvalidParameterError, option
from ndcg_spark.evaluation.rules import RULES, format_rules_notes
from ndcg_spark.evaluation.settings import EvaluationSettings
from ndcg_spark.evaluation.tasks.stored import PROVENANCE
from ndcg_spark.jobs.outputs import SOURCE_TIME, InputCounts
from ndcg_spark.jobs.runner import Job, Line, Outcome, Work
from ndcg_spark.tables import Rows
from ndcg_spark.tables.slices import Frame

PER_QUERY, BASELINE = "--per-query", "--baseline-per-query"
_BY_QUERY = "choose one by a query (run_date = ...), or of a folder by its part (run_date=...)"
Row: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Tables to compare; `runs` are those to select from a table (None: all), `weight` is that of `compare`."""

    tables: Tables
    runs: tuple[str, ...] | None
    weight: str | None


def choose_runs(
    tables: Sequence[QueryTable], settings: ComparisonJobSettings, *, night: date | None, dataset: str | None
) -> Selection:
    """Choose the runs of per-query tables to compare; a second table holds the baseline.

    Refuses runs that the tables do not have, and runs of which only some have stored weights. Reads the columns `run`
    and `weight` of each table, and `run_date` and `dataset` if they exist.
    """
    first, *others = tables
    first = first.select_slice(PER_QUERY, night, dataset)
    if not others:
        replace(first.info, label="per-query table").require(settings.run_column, option("run"))
        first = first.with_runs(settings.run_column, "")
        weighted_by_run = first.runs()
        chosen_runs = add_baseline(settings.chosen.runs or tuple(weighted_by_run), settings.chosen.baseline)
        _require_runs(chosen_runs, weighted_by_run, PER_QUERY, night)
        weight = _choose_weight(settings, {run: weighted_by_run[run] for run in chosen_runs})
        return Selection(tables=[(first, None)], runs=chosen_runs, weight=weight)
    baseline, (baseline_rows, has_weight) = (
        str(settings.chosen.baseline),
        _select_baseline(others[0], settings, dataset),
    )
    requested = tuple(run for run in settings.chosen.runs or () if run != baseline) or settings.chosen.runs or ()
    first = first.with_runs(settings.run_column, requested[0] if len(requested) == 1 else "")
    weighted_by_run = first.runs()
    chosen_runs = requested or tuple(weighted_by_run)
    _require_runs(chosen_runs, weighted_by_run, PER_QUERY, night)
    if baseline in chosen_runs:
        raise InvalidParameterError(
            f"{PER_QUERY} also has a run {baseline!r}, the name of the baseline; choose other runs with --runs, or "
            "give the baseline another name with --baseline."
        )
    tables_of_runs = [(baseline_rows, baseline), *((first.select_run(run), run) for run in chosen_runs)]
    weighted_by_run = {baseline: has_weight, **{run: weighted_by_run[run] for run in chosen_runs}}
    return Selection(tables=tables_of_runs, runs=None, weight=_choose_weight(settings, weighted_by_run))


def _select_baseline(
    table: QueryTable, settings: ComparisonJobSettings, dataset: str | None
) -> tuple[QueryTable, bool]:
    """Select the rows of the baseline from its own table; also return whether they have weights."""
    # The baseline is usually from an earlier night, so the night of the results does not apply.
    table = table.select_slice(BASELINE, None, dataset, _BY_QUERY).with_runs(settings.run_column, "")
    weighted_by_run = table.runs()
    if not weighted_by_run:
        raise InputRefusedError(f"{BASELINE} has no rows; is the night in it?")
    if len(weighted_by_run) == 1:
        return table, next(iter(weighted_by_run.values()))
    run = str(settings.chosen.baseline)
    if run not in weighted_by_run:
        raise InputRefusedError(
            f"{BASELINE} has several runs, {_format_names(weighted_by_run)}; name one of them by --baseline, or "
            "choose its rows by a query."
        )
    return table.select_run(run), weighted_by_run[run]


def _require_runs(runs: Sequence[str], known: Mapping[str, bool], flag: str, night: date | None) -> None:
    if not known:
        raise InputRefusedError(f"{flag} has no rows; is the night in it?")
    lacking = [run for run in runs if run not in known]
    if lacking:
        of_night = "" if night is None else f" of the night {night}"
        raise InvalidParameterError(
            f"{flag} has no rows of run {lacking[0]!r}{of_night}; its runs are {_format_names(known)}."
        )


def _choose_weight(settings: ComparisonJobSettings, weighted_by_run: Mapping[str, bool]) -> str | None:
    """Return the requested weight column, None for the stored weights that all runs have, or "" for no weights."""
    column: str | None = settings.of_queries["weight"]
    if column is not None or all(weighted_by_run.values()):
        return column
    if any(weighted_by_run.values()):
        has, lacks = (
            [run for run, has_weight in weighted_by_run.items() if has_weight is expected]
            for expected in (True, False)
        )
        raise InputRefusedError(
            f"{_format_names(has)} {'has' if len(has) == 1 else 'have'} stored weights, and {_format_names(lacks)} "
            f"{'has' if len(lacks) == 1 else 'have'} none; --weight-col '' compares without weights."
        )
    return ""


def _format_names(runs: Sequence[str] | Mapping[str, bool]) -> str:
    return ", ".join(map(repr, runs))


ALL_PAIRS = "(all pairs)"
"""Name of the slice of a comparison without baseline."""
_HIDDEN = ("state", "replicates", PAIR_TOP_ITEMS)
STAMPS = (*PROVENANCE, "baseline_input")


class CompareRunsBase(Work[ComparisonJobSettings], ABC):
    """Base of the commands that compare runs, of rankings or of per-query tables."""

    EXPLAINED = "Nothing was run, except to list the runs."

    def __init__(self, job: Job[ComparisonJobSettings]) -> None:
        super().__init__(job)
        self.match_notes: list[str] = []
        self.ranked = self.settings.rankings is not None

    @staticmethod
    def require_packages() -> None:
        require_scipy()

    # ---------------------------------------------------------------------------------------- methods of each engine

    @property
    @abstractmethod
    def fitted(self) -> EvaluationSettings:
        """The settings of rankings, resolved against their table."""

    @abstractmethod
    def input_names(self) -> tuple[str, str]:
        """Return the identities of the input and of the input that holds the baseline."""

    @abstractmethod
    def query_tables(self) -> list[QueryTable]:
        """Return the evaluation of the rankings; or the per-query table and, if any, the baseline's table."""

    @abstractmethod
    def compare(self, tables: Tables, settings: ComparisonSettings) -> list[Row]:
        """Compare the runs; rows have no replicates."""

    @abstractmethod
    def comparison_table(self, rows: list[Row], facts: Mapping[str, Any]) -> Frame:
        """Build the comparison table, with replicates if they are kept."""

    @abstractmethod
    def strategy(self) -> str:
        """Describe how lists are ranked."""

    @abstractmethod
    def cost(self, settings: ComparisonSettings) -> str:
        """Describe what the comparison costs."""

    # ------------------------------------------------------------------------------------- methods of both engines

    def schemas(self) -> Mapping[str, pa.Schema]:
        times = ((column, pa.timestamp("us", "UTC")) for column in (SOURCE_TIME, "computed_at"))
        stamps = [*((column, pa.string()) for column in STAMPS), *times]
        return {"output": pa.schema([*RESULT_SCHEMA, *(pa.field(*field) for field in stamps)])}

    def check_columns(self) -> None:
        if not self.ranked:
            tables: Tables = [
                (table.with_runs(self.settings.run_column, ""), None) for table in self.query_tables()[:1]
            ]
            runs = add_baseline(self.settings.chosen.runs or ("", "another"), self.settings.chosen.baseline)
            options = self.settings.options | {"weight": ""}
            plan_tables(
                tables,
                build_settings(tables, convention=self.settings.convention, runs=runs, **options),
            )

    def run(self) -> Outcome:
        """List the runs, evaluate and compare them, count bad rows, and read when stored tables were computed."""
        tables, settings = self._resolve_settings()
        input_counts = self.job.count_bad_rows() if self.ranked else None
        with self.job.step("comparing"):
            rows = self.compare(tables, settings)
        if not any(row["n_queries"] for row in rows):
            raise InputRefusedError("there are no queries to compare; nothing was written.")
        self.match_notes = check_matched(rows, select_evaluations(tables, settings))
        rows.sort(key=lambda row: (row["baseline"], *labels.row_order(row)))
        gates = [result for gate in self.request.gates for result in gate.results(rows)]
        facts = self._build_facts(rows, settings, gates, input_counts)
        times = (
            [] if self.ranked or not self.job.is_requested("output") else [table.computed_at() for table, _ in tables]
        )
        facts[SOURCE_TIME] = max(filter(None, times), default=None)
        runs = [ALL_PAIRS if settings.baseline is None else settings.baseline]
        slices = self.job.build_slices(runs, whole=True)
        return Outcome(
            facts=facts,
            tables={"output": Rows(frame=self.comparison_table(rows, facts), slices=slices)},
            lines=self._iterate_lines(rows, settings),
        )

    def _resolve_settings(self) -> tuple[Tables, ComparisonSettings]:
        """List the runs; return the compared tables and the resolved settings."""
        with self.job.step("listing runs"):
            selection = self._select_tables()
            options = self.settings.options
            if selection.weight is not None:
                options["weight"] = selection.weight
            convention = self.settings.convention
            settings = build_settings(selection.tables, convention=convention, runs=selection.runs, **options)
        plan_tables(selection.tables, settings)
        return selection.tables, settings

    def _select_tables(self) -> Selection:
        tables = self.query_tables()
        if self.ranked:
            return Selection(tables=[(tables[0], None)], runs=self.settings.chosen.runs or None, weight=None)
        shared = self.request.shared
        return choose_runs(tables, self.settings, night=shared.run_date, dataset=shared.dataset)

    def _build_facts(
        self,
        rows: list[dict[str, Any]],
        settings: ComparisonSettings,
        gates: list[dict[str, Any]],
        input_counts: InputCounts | None,
    ) -> dict[str, Any]:
        input_name, baseline_name = self.input_names()
        facts: dict[str, Any] = {
            "comparison": [{column: value for column, value in row.items() if column not in _HIDDEN} for row in rows],
            "baseline": self.settings.chosen.baseline,
            "runs": list(settings.runs),
            "alpha": settings.alpha,
            "margin": settings.margin,
            "weight": settings.weight,
            **self.build_provenance(
                convention=str(self.settings.convention),
                config_hash=f"{self.fitted.digest}-{settings.digest}" if self.ranked else settings.digest,
                input=input_name,
                baseline_input=baseline_name,
            ),
            "gates": gates,
        }
        if input_counts is not None:
            facts["rows"] = {"read": input_counts.read, "rejected_by_reason": input_counts.rejected}
        return facts

    def _iterate_lines(self, rows: list[dict[str, Any]], settings: ComparisonSettings) -> Iterator[Line]:
        if not self.ranked and self.settings.of_queries["weight"] is None and settings.weight is not None:
            yield (
                f"Queries have the weights of their means (stored column {settings.weight!r}); "
                "--weight-col '' turns weights off."
            )
        yield from format_rules_notes(row[RULES] for row in rows)
        yield lambda: show_comparison(rows, settings, verbose=self.settings.verbose)
        yield from filter(None, (gate.contrary for gate in self.request.gates))
        yield from self.match_notes

    def explain(self) -> Sequence[tuple[str, str]]:
        """List the runs, and describe what would be compared and its cost."""
        _, settings = self._resolve_settings()
        pairs = ", ".join(
            f"{settings.runs[run]} against {settings.runs[baseline]}" for baseline, run in settings.pairs
        )
        metrics = [f"{metric.label}{' (not tested)' if is_companion(metric) else ''}" for metric in settings.metrics]
        return (
            ("input", self.input_names()[0]),
            *([("strategy", self.strategy())] if self.ranked else []),
            ("pairs", pairs),
            ("metrics", ", ".join(metrics)),
            ("weights", settings.weight or "none"),
            (
                "tests",
                f"t, {settings.flips:,} sign flips, {settings.replicates:,} bootstrap replicates, "
                f"seed {settings.seed}",
            ),
            ("cost", self.cost(settings)),
        )
