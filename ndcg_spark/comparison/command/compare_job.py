"""The job that compares runs: read, evaluate, compare, write, answer. Everything here runs actions."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from ndcg_spark._version import __version__
from ndcg_spark.comparison.command.compare_config import CompareConfig
from ndcg_spark.comparison.command.compare_report import show_comparison
from ndcg_spark.core.student import require_scipy
from ndcg_spark.errors import InputRefusedError
from ndcg_spark.evaluation.command.job import EXIT_DONE, EXIT_GATE, persisted
from ndcg_spark.jobs.accounts import Accounts, account, refusal_of, written_rejects
from ndcg_spark.jobs.job_run import job_run
from ndcg_spark.jobs.progress import Progress
from ndcg_spark.jobs.report import gate_line, sort_key, to_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import types as T

    from ndcg_spark.comparison.command.compare_choice import Chosen
    from ndcg_spark.comparison.settings import ComparisonPlan
    from ndcg_spark.evaluation.command.inputs import Inputs
    from ndcg_spark.evaluation.settings import SummedMetric
    from ndcg_spark.sources.formats import Table

ALL_PAIRS = "(all pairs)"
"""Names the slice of a comparison without baseline."""
_HIDDEN = ("state", "replicates")
"""Columns that JSON leaves out."""


@dataclass(frozen=True, kw_only=True)
class Compared:
    """What was read."""

    tables: list[Table]
    inputs: Inputs | None = None
    baseline_input: str = ""

    @property
    def name(self) -> str:
        """Identity of the input, for the comparison table."""
        return self.inputs.name if self.inputs is not None else self.tables[0].name

    def checked(self, *, originals: bool) -> dict[str, DataFrame]:
        """Reasons why rows of rankings are bad; lazy."""
        return {} if self.inputs is None else self.inputs.checked(originals=originals)


@dataclass(kw_only=True)
class Outcome:
    """Rows of a comparison, and what JSON says beside them."""

    rows: list[dict[str, Any]]
    about: dict[str, Any]
    gates: list[dict[str, Any]] = field(default_factory=list)

    def shown(self) -> dict[str, Any]:
        """What JSON shows."""
        rows = [{name: value for name, value in row.items() if name not in _HIDDEN} for row in self.rows]
        return {"comparison": rows, **self.about, "gates": self.gates}


def run_compare_job(config: CompareConfig) -> int:
    """Run the job: 0 done, 3 gate not met. Where input or options are refused, nothing has been written."""
    require_scipy()
    with job_run(
        "compare-runs",
        config,
        short_lists=True,
        run_date=config.run_date,
        dataset=config.dataset,
    ) as run:
        return run.exit(_run(run.spark, config, run.progress))


def _run(spark: SparkSession, config: CompareConfig, progress: Progress) -> int:
    from ndcg_spark.comparison.api import compare_by, comparison_plan

    compared = _read(spark, config)
    _check_output(spark, compared, config, progress)
    try:
        with progress.step("listing runs"):
            chosen = _chosen(compared, config)
            options = config.options if chosen.weight is None else config.options | {"weight": chosen.weight}
            plan = comparison_plan(chosen.runs, convention=config.convention, names=chosen.names, **options)
        frame = compare_by(chosen.runs, plan)
        if config.explain:
            print(_explanation(compared, plan, config))
            return EXIT_DONE
        accounts = None
        if config.rankings is not None and config.rankings.plan.on_invalid == "reject":
            with progress.step("counting bad rows"):
                accounts = account(compared, config.max_reject_fraction)
        return _compare(spark, compared, frame, accounts, plan, config, progress)
    except Exception as error:
        raise refusal_of(error, compared) or error from error


def _compare(
    spark: SparkSession,
    compared: Compared,
    frame: DataFrame,
    accounts: Accounts | None,
    plan: ComparisonPlan,
    config: CompareConfig,
    progress: Progress,
) -> int:
    from pyspark.sql import functions as F

    from ndcg_spark.comparison.frames import COMPARISON_SCHEMA
    from ndcg_spark.evaluation.command.metric_table import PROVENANCE

    # Replicates are long, and only stored: they never come to the driver.
    stores_replicates = plan.keep_replicates and config.output is not None
    kept = stores_replicates and persisted(frame)
    try:
        with progress.step("comparing"):
            rows = sorted((row.asDict() for row in frame.drop("replicates").collect()), key=_order)
        if not any(row["n_queries"] for row in rows):
            raise InputRefusedError("there are no queries to compare; nothing was written.")
        outcome = Outcome(rows=rows, about=_about(compared, plan, config))
        if accounts is not None:
            outcome.about["rows"] = {"read": accounts.read, "rejected_by_reason": accounts.rejected}
        outcome.gates = [result for gate in config.gates for result in gate.results(rows)]
        if not stores_replicates:
            names = COMPARISON_SCHEMA.names
            frame = spark.createDataFrame([tuple(map(row.get, names)) for row in rows], COMPARISON_SCHEMA)
        stamp = datetime.now(timezone.utc).replace(microsecond=0)
        about = [F.lit(outcome.about[name]).alias(name) for name in (*PROVENANCE, "baseline_input")]
        stamped = frame.select("*", *about, F.lit(stamp).cast("timestamp").alias("computed_at"))
        _write(stamped.coalesce(1), outcome, compared, accounts, plan, config, progress)
    finally:
        if kept:
            frame.unpersist()
    return _answer(outcome, plan, config)


def _order(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["baseline"], *sort_key(row)


def _answer(outcome: Outcome, plan: ComparisonPlan, config: CompareConfig) -> int:
    if _uses_stored_weight(plan, config):
        print(f"Queries weigh as in their means (stored column {plan.weight!r}); --weight-col '' takes no weights.")
    show_comparison(outcome.rows, plan)
    for gate in outcome.gates:
        print(gate_line(gate, f"{gate['run']} against {gate['baseline']}"))
    if config.json_path == "-":
        sys.stdout.flush()
        print(to_json(outcome.shown()), flush=True)
    return EXIT_DONE if all(gate["met"] for gate in outcome.gates) else EXIT_GATE


def _uses_stored_weight(plan: ComparisonPlan, config: CompareConfig) -> bool:
    """Whether weights are used because a per-query table has them, and not because the user named them."""
    return config.rankings is None and config.options["weight"] is None and plan.weight is not None


def _read(spark: SparkSession, config: CompareConfig) -> Compared:
    from ndcg_spark.evaluation.command.inputs import read_inputs
    from ndcg_spark.sources.formats import read_table

    if config.rankings is not None:
        inputs = read_inputs(spark, config.rankings)
        return Compared(tables=list(inputs.tables), inputs=inputs, baseline_input=inputs.name)
    tables = [read_table(spark, source.reference, source.kind, source.options) for _, source in config.sources]
    return Compared(tables=tables, baseline_input=tables[-1].name)


def _chosen(compared: Compared, config: CompareConfig) -> Chosen:
    from ndcg_spark.comparison.command.compare_choice import Chosen, choose_runs
    from ndcg_spark.evaluation.api import Evaluation

    if compared.inputs is None:
        return choose_runs([table.frame for table in compared.tables], config)
    evaluation = Evaluation(plan=compared.inputs.plan, ranking=compared.inputs.ranking)
    return Chosen(runs=evaluation, names=config.runs, weight=None)


def comparison_schema() -> T.StructType:
    """Columns of a comparison table."""
    from pyspark.sql import types as T

    from ndcg_spark.comparison.frames import COMPARISON_SCHEMA
    from ndcg_spark.evaluation.command.metric_table import PROVENANCE

    texts = [T.StructField(name, T.StringType()) for name in (*PROVENANCE, "baseline_input")]
    return T.StructType([*COMPARISON_SCHEMA.fields, *texts, T.StructField("computed_at", T.TimestampType())])


def _check_output(spark: SparkSession, compared: Compared, config: CompareConfig, progress: Progress) -> None:
    from ndcg_spark.evaluation.command.metric_table import REJECT_SCHEMA
    from ndcg_spark.jobs.outputs import check_rejects, refuse_outputs
    from ndcg_spark.tables import reading_of

    if config.output is None and config.rejects is None and config.json_path in (None, "-"):
        return
    readings = [
        reading_of(spark, f"{flag} {source.reference!r}", source.reference, source.kind, table.frame)
        for (flag, source), table in zip(config.sources, compared.tables, strict=True)
    ]
    check_rejects(compared, config.rejects)
    planned = [("--output", config.output, comparison_schema()), ("--rejects", config.rejects, REJECT_SCHEMA)]
    refuse_outputs(spark, planned, readings, config.json_path, progress)


def _about(compared: Compared, plan: ComparisonPlan, config: CompareConfig) -> dict[str, Any]:
    digest = plan.digest
    if compared.inputs is not None:
        digest = f"{compared.inputs.plan.digest}-{digest}"
    return {
        "baseline": config.baseline,
        "runs": list(plan.runs),
        "alpha": plan.alpha,
        "margin": plan.margin,
        "weight": plan.weight,
        "run_date": config.run_date.isoformat(),
        "dataset": config.dataset,
        "convention": str(config.convention),
        "config_hash": digest,
        "input": compared.name,
        "baseline_input": compared.baseline_input,
        "package_version": __version__,
    }


def _write(
    frame: DataFrame,
    outcome: Outcome,
    compared: Compared,
    accounts: Accounts | None,
    plan: ComparisonPlan,
    config: CompareConfig,
    progress: Progress,
) -> None:
    from ndcg_spark.jobs.outputs import Planned, write_together
    from ndcg_spark.tables import RunPartition

    planned = []
    if config.rejects is not None:
        planned.append(Planned("rejects", config.rejects, written_rejects(compared, accounts), [""], [""]))
    if config.output is not None:
        its = [ALL_PAIRS if plan.baseline is None else plan.baseline]
        planned.append(Planned("comparison", config.output, frame, its, [], whole=True))
    partition = RunPartition(run_date=config.run_date, dataset=config.dataset)
    write_together(planned, partition, config.json_path, outcome.shown(), progress)


def _described(metric: SummedMetric, plan: ComparisonPlan) -> str:
    beside = any(one.name == metric.name and one.cutoffs == metric.cutoffs for one in plan.companions)
    return f"{metric.name} (not tested)" if beside else metric.name


def _explanation(compared: Compared, plan: ComparisonPlan, config: CompareConfig) -> str:
    pairs = ", ".join(f"{plan.runs[run]} against {plan.runs[baseline]}" for baseline, run in plan.pairs)
    lines = [f"input        {compared.name}"]
    if compared.inputs is not None:
        ranking = compared.inputs.ranking
        lines.append(f"strategy     {ranking.strategy}, read by {ranking.source}: {ranking.reason}")
    shuffles = "two shuffles of the metrics of queries" if plan.cluster else "one shuffle of the metrics of queries"
    writes = [("comparison", config.output), ("rejects", config.rejects)]
    written = ", ".join(f"{what} to {target.reference}" for what, target in writes if target is not None)
    lines += [
        f"pairs        {pairs}",
        f"metrics      {', '.join(_described(one, plan) for one in plan.metrics)}",
        f"weights      {plan.weight or 'none'}",
        f"tests        t, {plan.flips:,} sign flips, {plan.replicates:,} bootstrap replicates, seed {plan.seed}",
        f"cost         {shuffles}, three small ones of sums",
        f"would write  {written or 'nothing'}",
    ]
    return "\n".join([*lines, "Nothing was run but what lists the runs."])
