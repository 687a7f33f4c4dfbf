"""What compare-runs does with its tables: the runs that are compared, and their differences. It runs actions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark.comparison.api import (
    Tables,
    check_compared,
    compare_by,
    compared_evaluations,
    comparison_settings,
    with_baseline,
)
from ndcg_spark.comparison.frames import COMPARISON_SCHEMA, runs_in
from ndcg_spark.comparison.printed import show_comparison
from ndcg_spark.comparison.settings import ComparisonJobSettings, ComparisonSettings, is_companion
from ndcg_spark.comparison.tasks.finishing import TOP_ITEMS
from ndcg_spark.core import labels
from ndcg_spark.core.columns import has_column, named, require_column
from ndcg_spark.core.student import require_scipy
from ndcg_spark.core.workers import collect, raise_refusals
from ndcg_spark.errors import InputRefusedError, InvalidParameterError, option
from ndcg_spark.evaluation.rules import RULES, rules_lines
from ndcg_spark.evaluation.spark_results import Evaluation
from ndcg_spark.evaluation.tasks.stored import PROVENANCE
from ndcg_spark.evaluation.work import OfRankings
from ndcg_spark.jobs.outputs import Accounts, with_provenance
from ndcg_spark.jobs.runner import Job, Line, Outcome
from ndcg_spark.sources.api import one_slice
from ndcg_spark.tables import Rows

PER_QUERY, BASELINE = "--per-query", "--baseline-per-query"
_BY_QUERY = "choose one by a query (run_date = ...), or of a folder by its part (run_date=...)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """What is compared; `names` are the runs of a table to take (None: all), `weight` is as for `compare`."""

    runs: Tables
    names: tuple[str, ...] | None
    weight: str | None


def choose_runs(
    frames: Sequence[DataFrame], settings: ComparisonJobSettings, *, night: date | None, dataset: str | None
) -> Chosen:
    """Choose the runs to compare among those that per-query tables have; the second table is that of the baseline.

    Refuses runs that the tables do not have, and runs of which only some have stored weights.

    Spark cost: a scan of the columns `run` and `weight` of each table, and one each of `run_date` and `dataset`, if
    there.
    """
    frame, *others = frames
    frame = one_slice(frame, PER_QUERY, night=night, dataset=dataset)
    if not others:
        require_column(frame, settings.run_column, option("run"), "per-query table")
        table, held = _listed(frame, settings.run_column, "")
        names = with_baseline(settings.chosen.runs or tuple(held), settings.chosen.baseline)
        _require(names, held, PER_QUERY, night)
        return Chosen(runs=table, names=names, weight=_weight(settings, {run: held[run] for run in names}))
    baseline, (its_rows, has_weight) = str(settings.chosen.baseline), _baseline(others[0], settings, dataset)
    asked = tuple(run for run in settings.chosen.runs or () if run != baseline) or settings.chosen.runs or ()
    table, held = _listed(frame, settings.run_column, asked[0] if len(asked) == 1 else "")
    names = asked or tuple(held)
    _require(names, held, PER_QUERY, night)
    if baseline in names:
        raise InvalidParameterError(
            f"{PER_QUERY} has a run {baseline!r}, too, which is the name of the baseline; choose other runs by "
            "--runs, or name the baseline otherwise by --baseline."
        )
    runs = {baseline: its_rows, **{run: table.where(named("run") == run) for run in names}}
    weighted = {baseline: has_weight, **{run: held[run] for run in names}}
    return Chosen(runs=runs, names=None, weight=_weight(settings, weighted))


def _listed(frame: DataFrame, run_column: str, name: str) -> tuple[DataFrame, dict[str, bool]]:
    """A table with the column `run`, its runs, and whether they have weights. `name`: of a table without runs."""
    has_runs = has_column(frame, run_column)
    column = named(run_column).cast("string") if has_runs else F.lit(name)
    table = frame if run_column == "run" and has_runs else frame.withColumn("run", column)
    return table, runs_in(table)


def _baseline(frame: DataFrame, settings: ComparisonJobSettings, dataset: str | None) -> tuple[DataFrame, bool]:
    """Rows of the baseline in a table of its own, and whether they have weights."""
    # Its night is seldom that of the results.
    frame = one_slice(frame, BASELINE, night=None, dataset=dataset, chosen_otherwise=_BY_QUERY)
    table, held = _listed(frame, settings.run_column, "")
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
    return table.where(named("run") == name), held[name]


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
_STAMPS = (*PROVENANCE, "baseline_input")


class CompareRuns(OfRankings[ComparisonJobSettings]):
    """Comparing runs, of rankings or of per-query tables."""

    EXPLAINED = "Nothing was run but what lists the runs."

    def __init__(self, job: Job[ComparisonJobSettings]) -> None:
        super().__init__(job)
        self.matched: list[str] = []
        self.ranked = self.settings.rankings is not None
        if self.settings.rankings is not None:
            self.open(self.settings.rankings)
            self.name = self.baseline_name = self.inputs.name
        else:
            self.name = self.tables["per_query"].name
            self.baseline_name = self.tables.get("baseline_per_query", self.tables["per_query"]).name

    @staticmethod
    def require_packages() -> None:
        require_scipy()

    def schemas(self) -> Mapping[str, T.StructType]:
        texts = [T.StructField(name, T.StringType()) for name in _STAMPS]
        stamp = T.StructField("computed_at", T.TimestampType())
        return {"output": T.StructType([*COMPARISON_SCHEMA.fields, *texts, stamp])}

    def checked(self, *, originals: bool) -> dict[str, DataFrame]:
        return super().checked(originals=originals) if self.ranked else {}

    def advice(self, message: str) -> str:
        return super().advice(message) if self.ranked else message

    def run(self) -> Outcome:
        """Evaluate and compare: an action, one that lists runs, and one that counts bad rows."""
        frame, settings, evaluations = self._compared()
        accounts = self.job.count_bad_rows() if self.ranked else None
        # Replicates are long, and only stored: they never come to the driver.
        stores_replicates = settings.keep_replicates and self.job.wants("output")
        if stores_replicates:
            self.job.keep(frame)
        with self.job.step("comparing"):
            found = [row.asDict() for row in collect(frame.drop("replicates"))]
        frame = raise_refusals(frame).select(*COMPARISON_SCHEMA.names)
        if not any(row["n_queries"] for row in found):
            raise InputRefusedError("there are no queries to compare; nothing was written.")
        self.matched = check_compared(found, evaluations)
        found.sort(key=lambda row: (row["baseline"], *labels.row_order(row)))
        gates = [result for gate in self.request.gates for result in gate.results(found)]
        facts = self._facts(found, settings, gates, accounts)
        if not stores_replicates:
            values = [tuple(map(row.get, COMPARISON_SCHEMA.names)) for row in found]
            frame = self.job.spark.createDataFrame(values, COMPARISON_SCHEMA)
        stamped = with_provenance(frame, facts, _STAMPS)
        runs = [ALL_PAIRS if settings.baseline is None else settings.baseline]
        return Outcome(
            facts=facts,
            tables={"output": Rows(frame=stamped.coalesce(1), slices=self.job.slices(runs, whole=True))},
            lines=self._lines(found, settings),
        )

    def _compared(self) -> tuple[DataFrame, ComparisonSettings, Mapping[str | None, Evaluation]]:
        """List the runs, an action, and compare them, lazily; with their evaluations."""
        with self.job.step("listing runs"):
            chosen = self._chosen()
            options = self.settings.options
            if chosen.weight is not None:
                options["weight"] = chosen.weight
            convention = self.settings.convention
            settings = comparison_settings(chosen.runs, convention=convention, runs=chosen.names, **options)
        return compare_by(chosen.runs, settings), settings, compared_evaluations(chosen.runs, settings)

    def _chosen(self) -> Chosen:
        if self.ranked:
            evaluation = Evaluation(settings=self.inputs.settings, ranking=self.inputs.ranking)
            return Chosen(runs=evaluation, names=self.settings.chosen.runs or None, weight=None)
        tables = [self.tables[name] for name in ("per_query", "baseline_per_query") if name in self.tables]
        shared = self.request.shared
        return choose_runs(
            [table.frame for table in tables], self.settings, night=shared.run_date, dataset=shared.dataset
        )

    def _facts(
        self,
        rows: list[dict[str, Any]],
        settings: ComparisonSettings,
        gates: list[dict[str, Any]],
        accounts: Accounts | None,
    ) -> dict[str, Any]:
        facts: dict[str, Any] = {
            "comparison": [{name: value for name, value in row.items() if name not in _HIDDEN} for row in rows],
            "baseline": self.settings.chosen.baseline,
            "runs": list(settings.runs),
            "alpha": settings.alpha,
            "margin": settings.margin,
            "weight": settings.weight,
            **self.stamp(
                convention=str(self.settings.convention),
                config_hash=f"{self.inputs.settings.digest}-{settings.digest}" if self.ranked else settings.digest,
                input=self.name,
                baseline_input=self.baseline_name,
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
        yield from rules_lines(row[RULES] for row in rows)
        yield lambda: show_comparison(rows, settings, verbose=self.settings.verbose)
        yield from filter(None, (gate.contrary for gate in self.request.gates))
        yield from self.matched

    def explanation(self) -> Sequence[tuple[str, str]]:
        """List the runs, an action, and say what would be compared, and what it costs."""
        _, settings, _ = self._compared()
        pairs = ", ".join(
            f"{settings.runs[run]} against {settings.runs[baseline]}" for baseline, run in settings.pairs
        )
        shuffles = "two shuffles" if settings.cluster else "one shuffle"
        metrics = [f"{one.label}{' (not tested)' if is_companion(one) else ''}" for one in settings.metrics]
        return (
            ("input", self.name),
            *([("strategy", self.inputs.strategy)] if self.ranked else []),
            ("pairs", pairs),
            ("metrics", ", ".join(metrics)),
            ("weights", settings.weight or "none"),
            (
                "tests",
                f"t, {settings.flips:,} sign flips, {settings.replicates:,} bootstrap replicates, "
                f"seed {settings.seed}",
            ),
            ("cost", f"{shuffles} of the metrics of queries, three small ones of sums"),
        )
