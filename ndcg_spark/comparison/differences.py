"""What compare-runs does, whichever engine reads and sums: the runs that are compared, and their differences."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any, TypeAlias

import pyarrow as pa

from ndcg_spark.comparison.printed import show_comparison
from ndcg_spark.comparison.results import check_compared, compared_evaluations
from ndcg_spark.comparison.settings import ComparisonJobSettings, ComparisonSettings, is_companion
from ndcg_spark.comparison.tables import QueryTable, Tables, comparison_settings, plan_tables, with_baseline
from ndcg_spark.comparison.tasks.finishing import RESULT_SCHEMA, TOP_ITEMS
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
class Chosen:
    """What is compared; `names` are the runs of a table to take (None: all), `weight` is as for `compare`."""

    tables: Tables
    names: tuple[str, ...] | None
    weight: str | None


def choose_runs(
    tables: Sequence[QueryTable], settings: ComparisonJobSettings, *, night: date | None, dataset: str | None
) -> Chosen:
    """Choose the runs to compare among those that per-query tables have; the second table is that of the baseline.

    Refuses runs that the tables do not have, and runs of which only some have stored weights.

    Reads the columns `run` and `weight` of each table, and `run_date` and `dataset`, if there.
    """
    first, *others = tables
    first = first.of_slice(PER_QUERY, night, dataset)
    if not others:
        replace(first.info, label="per-query table").require(settings.run_column, option("run"))
        first = first.with_runs(settings.run_column, "")
        held = first.runs()
        names = with_baseline(settings.chosen.runs or tuple(held), settings.chosen.baseline)
        _require(names, held, PER_QUERY, night)
        weight = _weight(settings, {run: held[run] for run in names})
        return Chosen(tables=[(first, None)], names=names, weight=weight)
    baseline, (its_rows, has_weight) = str(settings.chosen.baseline), _baseline(others[0], settings, dataset)
    asked = tuple(run for run in settings.chosen.runs or () if run != baseline) or settings.chosen.runs or ()
    first = first.with_runs(settings.run_column, asked[0] if len(asked) == 1 else "")
    held = first.runs()
    names = asked or tuple(held)
    _require(names, held, PER_QUERY, night)
    if baseline in names:
        raise InvalidParameterError(
            f"{PER_QUERY} has a run {baseline!r}, too, which is the name of the baseline; choose other runs by "
            "--runs, or name the baseline otherwise by --baseline."
        )
    runs = [(its_rows, baseline), *((first.of_run(run), run) for run in names)]
    weighted = {baseline: has_weight, **{run: held[run] for run in names}}
    return Chosen(tables=runs, names=None, weight=_weight(settings, weighted))


def _baseline(table: QueryTable, settings: ComparisonJobSettings, dataset: str | None) -> tuple[QueryTable, bool]:
    """Rows of the baseline in a table of its own, and whether they have weights."""
    # Its night is seldom that of the results.
    table = table.of_slice(BASELINE, None, dataset, _BY_QUERY).with_runs(settings.run_column, "")
    held = table.runs()
    if not held:
        raise InputRefusedError(f"{BASELINE} has no rows; is the night in it?")
    if len(held) == 1:
        return table, next(iter(held.values()))
    name = str(settings.chosen.baseline)
    if name not in held:
        raise InputRefusedError(
            f"{BASELINE} has several runs, {_listing(held)}; name one of them by --baseline, or choose its rows by a "
            "query."
        )
    return table.of_run(name), held[name]


def _require(names: Sequence[str], held: Mapping[str, bool], flag: str, night: date | None) -> None:
    if not held:
        raise InputRefusedError(f"{flag} has no rows; is the night in it?")
    lacking = [run for run in names if run not in held]
    if lacking:
        of_night = "" if night is None else f" of the night {night}"
        raise InvalidParameterError(
            f"{flag} has no rows of run {lacking[0]!r}{of_night}; its runs are {_listing(held)}."
        )


def _weight(settings: ComparisonJobSettings, weighted: Mapping[str, bool]) -> str | None:
    """Column of the weights: the one that was named, or the stored one if the runs have it."""
    asked: str | None = settings.of_queries["weight"]
    if asked is not None or all(weighted.values()):
        return asked
    if any(weighted.values()):
        has, lacks = ([run for run, its in weighted.items() if its is whether] for whether in (True, False))
        raise InputRefusedError(
            f"{_listing(has)} {'has' if len(has) == 1 else 'have'} stored weights, and {_listing(lacks)} "
            f"{'has' if len(lacks) == 1 else 'have'} none; --weight-col '' compares without weights."
        )
    return ""


def _listing(names: Sequence[str] | Mapping[str, bool]) -> str:
    return ", ".join(map(repr, names))


ALL_PAIRS = "(all pairs)"
"""Names the slice of a comparison without baseline."""
_HIDDEN = ("state", "replicates", TOP_ITEMS)
STAMPS = (*PROVENANCE, "baseline_input")


class Differences(Work[ComparisonJobSettings], ABC):
    """Comparing runs, of rankings or of per-query tables."""

    EXPLAINED = "Nothing was run but what lists the runs."

    def __init__(self, job: Job[ComparisonJobSettings]) -> None:
        super().__init__(job)
        self.matched: list[str] = []
        self.ranked = self.settings.rankings is not None

    @staticmethod
    def require_packages() -> None:
        require_scipy()

    # ------------------------------------------------------------------------------- what each engine has its own of

    @property
    @abstractmethod
    def fitted(self) -> EvaluationSettings:
        """The settings of rankings, fitted to their table."""

    @abstractmethod
    def input_names(self) -> tuple[str, str]:
        """Identity of what is compared, and of what has the baseline."""

    @abstractmethod
    def query_tables(self) -> list[QueryTable]:
        """The evaluation of the rankings; or the per-query table, and perhaps that of the baseline."""

    @abstractmethod
    def compare(self, tables: Tables, settings: ComparisonSettings) -> list[Row]:
        """Compare; rows have no replicates."""

    @abstractmethod
    def comparison_table(self, rows: list[Row], facts: Mapping[str, Any]) -> Frame:
        """Rows of the comparison table, with their replicates if these are kept."""

    @abstractmethod
    def strategy(self) -> str:
        """Say how rankings are ranked."""

    @abstractmethod
    def cost(self, settings: ComparisonSettings) -> str:
        """Say what it costs."""

    # -------------------------------------------------------------------------------------------------- what is done

    def schemas(self) -> Mapping[str, pa.Schema]:
        times = ((name, pa.timestamp("us", "UTC")) for name in (SOURCE_TIME, "computed_at"))
        stamps = [*((name, pa.string()) for name in STAMPS), *times]
        return {"output": pa.schema([*RESULT_SCHEMA, *(pa.field(*one) for one in stamps)])}

    def check_columns(self) -> None:
        if not self.ranked:
            tables: Tables = [(one.with_runs(self.settings.run_column, ""), None) for one in self.query_tables()[:1]]
            names = with_baseline(self.settings.chosen.runs or ("", "another"), self.settings.chosen.baseline)
            options = self.settings.options | {"weight": ""}
            plan_tables(
                tables,
                comparison_settings(tables, convention=self.settings.convention, runs=names, **options),
            )

    def run(self) -> Outcome:
        """Evaluate and compare, list runs before, and count bad rows; stored tables tell when they were computed."""
        tables, settings = self._listed()
        accounts = self.job.count_bad_rows() if self.ranked else None
        with self.job.step("comparing"):
            found = self.compare(tables, settings)
        if not any(row["n_queries"] for row in found):
            raise InputRefusedError("there are no queries to compare; nothing was written.")
        self.matched = check_compared(found, compared_evaluations(tables, settings))
        found.sort(key=lambda row: (row["baseline"], *labels.row_order(row)))
        gates = [result for gate in self.request.gates for result in gate.results(found)]
        facts = self._facts(found, settings, gates, accounts)
        times = [] if self.ranked or not self.job.is_requested("output") else [one.computed_at() for one, _ in tables]
        facts[SOURCE_TIME] = max(filter(None, times), default=None)
        runs = [ALL_PAIRS if settings.baseline is None else settings.baseline]
        slices = self.job.build_slices(runs, whole=True)
        return Outcome(
            facts=facts,
            tables={"output": Rows(frame=self.comparison_table(found, facts), slices=slices)},
            lines=self._lines(found, settings),
        )

    def _listed(self) -> tuple[Tables, ComparisonSettings]:
        """List the runs; return what is compared, and how."""
        with self.job.step("listing runs"):
            chosen = self._chosen()
            options = self.settings.options
            if chosen.weight is not None:
                options["weight"] = chosen.weight
            convention = self.settings.convention
            settings = comparison_settings(chosen.tables, convention=convention, runs=chosen.names, **options)
        plan_tables(chosen.tables, settings)
        return chosen.tables, settings

    def _chosen(self) -> Chosen:
        tables = self.query_tables()
        if self.ranked:
            return Chosen(tables=[(tables[0], None)], names=self.settings.chosen.runs or None, weight=None)
        shared = self.request.shared
        return choose_runs(tables, self.settings, night=shared.run_date, dataset=shared.dataset)

    def _facts(
        self,
        rows: list[dict[str, Any]],
        settings: ComparisonSettings,
        gates: list[dict[str, Any]],
        accounts: InputCounts | None,
    ) -> dict[str, Any]:
        name, baseline_name = self.input_names()
        facts: dict[str, Any] = {
            "comparison": [{name: value for name, value in row.items() if name not in _HIDDEN} for row in rows],
            "baseline": self.settings.chosen.baseline,
            "runs": list(settings.runs),
            "alpha": settings.alpha,
            "margin": settings.margin,
            "weight": settings.weight,
            **self.stamp(
                convention=str(self.settings.convention),
                config_hash=f"{self.fitted.digest}-{settings.digest}" if self.ranked else settings.digest,
                input=name,
                baseline_input=baseline_name,
            ),
            "gates": gates,
        }
        if accounts is not None:
            facts["rows"] = {"read": accounts.read, "rejected_by_reason": accounts.rejected}
        return facts

    def _lines(self, rows: list[dict[str, Any]], settings: ComparisonSettings) -> Iterator[Line]:
        if not self.ranked and self.settings.of_queries["weight"] is None and settings.weight is not None:
            yield (
                f"Queries weigh as in their means (stored column {settings.weight!r}); "
                "--weight-col '' takes no weights."
            )
        yield from format_rules_notes(row[RULES] for row in rows)
        yield lambda: show_comparison(rows, settings, verbose=self.settings.verbose)
        yield from filter(None, (gate.contrary for gate in self.request.gates))
        yield from self.matched

    def explain(self) -> Sequence[tuple[str, str]]:
        """List the runs, and say what would be compared, and what it costs."""
        _, settings = self._listed()
        pairs = ", ".join(
            f"{settings.runs[run]} against {settings.runs[baseline]}" for baseline, run in settings.pairs
        )
        metrics = [f"{one.label}{' (not tested)' if is_companion(one) else ''}" for one in settings.metrics]
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
