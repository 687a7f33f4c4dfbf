"""What `compare-runs` does with its tables. What is called `run` runs actions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark._version import __version__
from ndcg_spark.comparison.api import check_compared, compare_by, compared_evaluations, comparison_settings
from ndcg_spark.comparison.choice import Chosen, choose_runs
from ndcg_spark.comparison.frames import COMPARISON_SCHEMA
from ndcg_spark.comparison.printed import show_comparison
from ndcg_spark.comparison.settings import ComparisonJobSettings, ComparisonSettings
from ndcg_spark.comparison.tasks.finishing import TOP_ITEMS
from ndcg_spark.core.student import require_scipy
from ndcg_spark.errors import InputRefusedError
from ndcg_spark.evaluation.api import Evaluation
from ndcg_spark.evaluation.metric_table import PROVENANCE
from ndcg_spark.evaluation.printed import sort_key
from ndcg_spark.evaluation.rules import RULES, rules_lines
from ndcg_spark.evaluation.settings import SummedMetric
from ndcg_spark.evaluation.work import OfRankings
from ndcg_spark.jobs.accounts import Accounts
from ndcg_spark.jobs.runner import Job, Line, Outcome
from ndcg_spark.tables import Rows

ALL_PAIRS = "(all pairs)"
"""Names the slice of a comparison without baseline."""
_HIDDEN = ("state", "replicates", TOP_ITEMS)
"""Columns that JSON leaves out."""
_STAMPS = (*PROVENANCE, "baseline_input")


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What `compare-runs` says as JSON."""

    comparison: list[dict[str, Any]]
    baseline: str | None
    runs: list[str]
    alpha: float
    margin: float
    weight: str | None
    run_date: str
    dataset: str
    convention: str
    config_hash: str
    input: str
    baseline_input: str
    package_version: str = __version__
    gates: list[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonOfValidRows(Comparison):
    """The same, where bad rows were counted."""

    rows: dict[str, Any]


class CompareRuns(OfRankings[ComparisonJobSettings]):
    """Comparing runs, of rankings or of per-query tables."""

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
        """SciPy, for the tests."""
        require_scipy()

    def schemas(self) -> Mapping[str, T.StructType]:
        """Of the comparison table."""
        texts = [T.StructField(name, T.StringType()) for name in _STAMPS]
        stamp = T.StructField("computed_at", T.TimestampType())
        return {"output": T.StructType([*COMPARISON_SCHEMA.fields, *texts, stamp])}

    def checked(self, *, originals: bool) -> dict[str, DataFrame]:
        """Reasons why rows of rankings are bad; lazy."""
        return super().checked(originals=originals) if self.ranked else {}

    def advice(self, message: str) -> str:
        """Spell the advice on an item that comes twice in options."""
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
            found = [row.asDict() for row in frame.drop("replicates").collect()]
        frame = frame.select(*COMPARISON_SCHEMA.names)
        if not any(row["n_queries"] for row in found):
            raise InputRefusedError("there are no queries to compare; nothing was written.")
        self.matched = check_compared(found, evaluations)
        found.sort(key=lambda row: (row["baseline"], *sort_key(row)))
        gates = [result for gate in self.request.gates for result in gate.results(found)]
        facts = self._facts(found, settings, gates, accounts)
        if not stores_replicates:
            values = [tuple(map(row.get, COMPARISON_SCHEMA.names)) for row in found]
            frame = self.job.spark.createDataFrame(values, COMPARISON_SCHEMA)
        stamp = F.lit(datetime.now(timezone.utc).replace(microsecond=0)).cast("timestamp").alias("computed_at")
        stamped = frame.select("*", *(F.lit(getattr(facts, name)).alias(name) for name in _STAMPS), stamp)
        runs = [ALL_PAIRS if settings.baseline is None else settings.baseline]
        who = [{**gate, "who": f"{gate['run']} against {gate['baseline']}"} for gate in gates]
        return Outcome(
            facts=facts,
            tables={"output": Rows(frame=stamped.coalesce(1), runs=runs, whole=True)},
            lines=self._lines(found, settings),
            gates=who,
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
        dataset = self.request.shared.dataset
        return choose_runs(
            [table.frame for table in tables], self.settings, night=self.request.night, dataset=dataset
        )

    def _facts(
        self,
        rows: list[dict[str, Any]],
        settings: ComparisonSettings,
        gates: list[dict[str, Any]],
        accounts: Accounts | None,
    ) -> Comparison:
        found: dict[str, Any] = {
            "comparison": [{name: value for name, value in row.items() if name not in _HIDDEN} for row in rows],
            "baseline": self.settings.chosen.baseline,
            "runs": list(settings.runs),
            "alpha": settings.alpha,
            "margin": settings.margin,
            "weight": settings.weight,
            "run_date": self.request.run_date.isoformat(),
            "dataset": self.request.dataset,
            "convention": str(self.settings.convention),
            "config_hash": f"{self.inputs.settings.digest}-{settings.digest}" if self.ranked else settings.digest,
            "input": self.name,
            "baseline_input": self.baseline_name,
            "gates": gates,
        }
        if accounts is None:
            return Comparison(**found)
        return ComparisonOfValidRows(**found, rows={"read": accounts.read, "rejected_by_reason": accounts.rejected})

    def _lines(self, rows: list[dict[str, Any]], settings: ComparisonSettings) -> Iterator[Line]:
        if not self.ranked and self.settings.of_queries["weight"] is None and settings.weight is not None:
            yield (
                f"Queries weigh as in their means (stored column {settings.weight!r}); "
                "--weight-col '' takes no weights."
            )
        yield from rules_lines(row[RULES] for row in rows)
        yield lambda: show_comparison(rows, settings, verbose=self.settings.printing.verbose)
        yield from filter(None, (gate.contrary for gate in self.request.gates))
        yield from self.matched

    def explanation(self) -> Sequence[str]:
        """List the runs, an action, and say what would be compared, and what it costs."""
        _, settings, _ = self._compared()
        pairs = ", ".join(
            f"{settings.runs[run]} against {settings.runs[baseline]}" for baseline, run in settings.pairs
        )
        ranking = self.inputs.ranking if self.ranked else None
        by = [f"strategy     {ranking.strategy}, read by {ranking.source}: {ranking.reason}"] if ranking else []
        shuffles = "two shuffles" if settings.cluster else "one shuffle"
        return (
            f"input        {self.name}",
            *by,
            f"pairs        {pairs}",
            f"metrics      {', '.join(_described(one, settings) for one in settings.metrics)}",
            f"weights      {settings.weight or 'none'}",
            f"tests        t, {settings.flips:,} sign flips, {settings.replicates:,} bootstrap replicates, "
            f"seed {settings.seed}",
            f"cost         {shuffles} of the metrics of queries, three small ones of sums",
            f"would write  {self.request.written or 'nothing'}",
            "Nothing was run but what lists the runs.",
        )


def _described(metric: SummedMetric, settings: ComparisonSettings) -> str:
    beside = any(one.name == metric.name and one.cutoffs == metric.cutoffs for one in settings.companions)
    return f"{metric.text} (not tested)" if beside else metric.text
