"""The job that corrects clicks for position bias: read, check, compute, write. Everything here runs actions."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ndcg_spark._version import __version__
from ndcg_spark.clicks.command.position_bias_config import PositionBiasConfig
from ndcg_spark.clicks.command.position_bias_report import explanation, report_lines, warnings_of
from ndcg_spark.clicks.settings import PropensityPlan
from ndcg_spark.errors import InputRefusedError, printable
from ndcg_spark.jobs.accounts import Accounts, account, refusal_of, written_rejects
from ndcg_spark.jobs.job_run import job_run
from ndcg_spark.jobs.progress import Progress
from ndcg_spark.jobs.report import to_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ndcg_spark.sources.formats import Table

EXIT_DONE = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ImpressionInputs:
    """The tables that were read, and what is made of them."""

    table: Table
    propensities: Table | None
    config: PositionBiasConfig

    @property
    def name(self) -> str:
        """Identity of the input."""
        weighted = f" weighted by {self.propensities.name}" if self.propensities else ""
        return f"{self.table.name}{weighted}"

    def made(self) -> DataFrame:
        """What the job makes, lazy: a fit, judgments or estimates."""
        from ndcg_spark.clicks.frames.estimates import inverse_propensity_estimates
        from ndcg_spark.clicks.frames.labels import judgments_from_impressions
        from ndcg_spark.clicks.frames.propensities import fit_propensities

        frame, plan, parse_text = self.table.frame, self.config.plan, self.table.parse_text
        if isinstance(plan, PropensityPlan):
            return fit_propensities(frame, plan, parse_text=parse_text)
        made = {"judgments": judgments_from_impressions, "estimates": inverse_propensity_estimates}[self.config.makes]
        given = self.propensities.frame if self.propensities else None
        return made(frame, plan, given, parse_text=parse_text)

    def checked(self, *, originals: bool) -> dict[str, DataFrame]:
        """Reasons why rows are bad; lazy. Finds missing columns and wrong types at once."""
        from ndcg_spark.clicks.frames.impressions import (
            checked_impressions,
            counted_impressions,
            weighted_impressions,
        )

        frame, plan, parse_text = self.table.frame, self.config.plan, self.table.parse_text
        if isinstance(plan, PropensityPlan):
            found = counted_impressions(frame, plan, parse_text=parse_text)
        else:
            given = self.propensities.frame if self.propensities else None
            found = weighted_impressions(frame, plan, given, parse_text=parse_text)
        return {"impressions": checked_impressions(found, plan.columns, originals=originals)}


def run_position_bias_job(config: PositionBiasConfig) -> int:
    """Run the job: 0 done. Where input or options are refused, nothing has been written."""
    # A pattern may have thousands of positions: Spark has to weigh what it hands to Python.
    with job_run(
        f"position-bias {config.makes}",
        config,
        short_lists=False,
        run_date=config.run_date,
        dataset=config.dataset,
    ) as run:
        return run.exit(_run(run.spark, config, run.progress))


def _run(spark: SparkSession, config: PositionBiasConfig, progress: Progress) -> int:
    from ndcg_spark.sources.formats import read_table

    table, *given = [read_table(spark, one.reference, one.kind, one.options) for _, one in config.sources]
    inputs = ImpressionInputs(table=table, propensities=given[0] if given else None, config=config)
    _check_outputs(spark, inputs, progress)
    if config.explain:
        print(explanation(inputs.name, config))
        return EXIT_DONE
    try:
        accounts = None
        if config.plan.on_invalid == "reject":
            with progress.step("counting bad rows"):
                accounts = account(inputs, config.max_reject_fraction)
        outcome = _make(spark, inputs, accounts, progress)
    except Exception as error:
        raise refusal_of(error, inputs) or error from error
    print("\n".join(map(printable, report_lines(outcome))))
    for warning in warnings_of(outcome):
        progress.line(warning)
    if config.json_path == "-":
        sys.stdout.flush()
        print(to_json(outcome), flush=True)
    return EXIT_DONE


def _make(
    spark: SparkSession, inputs: ImpressionInputs, accounts: Accounts | None, progress: Progress
) -> dict[str, Any]:
    from ndcg_spark.evaluation.command.job import persisted

    makes = inputs.config.makes
    if makes != "judgments":
        with progress.step(f"computing {makes}"):
            described, made = _collected(spark, inputs.made(), makes)
        return _answered(made, described, inputs, accounts, progress)
    made = inputs.made()
    kept = persisted(made)
    try:
        with progress.step("judging"):
            described = _counted(made)
        return _answered(made, described, inputs, accounts, progress)
    finally:
        if kept:
            made.unpersist()


def _answered(
    made: DataFrame,
    described: dict[str, Any],
    inputs: ImpressionInputs,
    accounts: Accounts | None,
    progress: Progress,
) -> dict[str, Any]:
    """Write the outputs, and say what was made."""
    from ndcg_spark.jobs.outputs import Planned, write_together
    from ndcg_spark.tables import RunPartition

    config = inputs.config
    rejected = accounts.rejected if accounts else {}
    n_impressions = described.pop("n_impressions")
    outcome: dict[str, Any] = {
        "makes": config.makes,
        **described,
        "rows": {
            "impressions": n_impressions,
            "rejected": sum(rejected.values()),
            "rejected_by_reason": rejected,
        },
        "run_date": config.run_date.isoformat(),
        "dataset": config.dataset,
        "input": inputs.name,
        "package_version": __version__,
    }
    if not n_impressions and not config.allow_empty:
        raise InputRefusedError(
            f"there are no impressions to make {config.makes} of; nothing was written (--allow-empty writes that "
            "over what was there)."
        )
    runs = sorted({one["run"] for one in described.get("estimates", [])}) or [""]
    planned, nothing = [], [""] if config.allow_empty else []
    if config.rejects is not None:
        planned.append(Planned("rejects", config.rejects, written_rejects(inputs, accounts), [""], [""]))
    if config.output is not None:
        planned.append(Planned(config.makes, config.output, _written(made, config.makes), runs, nothing))
    partition = RunPartition(run_date=config.run_date, dataset=config.dataset)
    write_together(planned, partition, config.json_path, outcome, progress)
    return outcome


def _collected(spark: SparkSession, made: DataFrame, makes: str) -> tuple[dict[str, Any], DataFrame]:
    """Compute a fit (a row) or estimates (a row a group) once: described, and as a frame."""
    rows = made.collect()
    found = [row.asDict(recursive=True) for row in rows]
    frame = spark.createDataFrame(rows, made.schema).coalesce(1)
    if makes == "propensities":
        fitted = found[0] if found else {"positions": []}
        return {**fitted, "n_impressions": sum(one["n_impressions"] for one in fitted["positions"])}, frame
    found.sort(key=lambda row: (row["run"], row["segment_by"], row["segment"] is None, row["segment"] or ""))
    total = sum(row["n_impressions"] for row in found if not row["segment_by"])
    estimates = [{name: value for name, value in row.items() if name != "state"} for row in found]
    return {"estimates": estimates, "n_impressions": total}, frame


def _counted(judgments: DataFrame) -> dict[str, Any]:
    from pyspark.sql import functions as F

    counted = [F.count(F.lit(1)).alias("judgments"), F.max("largest_weight").alias("largest_weight")]
    counted += [F.sum(name).alias(name) for name in ("n_impressions", "n_clipped")]
    (row,) = judgments.agg(*counted).collect()
    return {name: 0 if value is None else value for name, value in row.asDict().items()}


def _written(made: DataFrame, makes: str) -> DataFrame:
    from pyspark.sql import functions as F

    from ndcg_spark.clicks.frames.propensities import propensity_table

    if makes == "estimates":
        return made
    frame = propensity_table(made) if makes == "propensities" else made
    return frame.withColumn("run", F.lit(""))  # slices are named by data set and run


def _check_outputs(spark: SparkSession, inputs: ImpressionInputs, progress: Progress) -> None:
    from ndcg_spark.evaluation.command.metric_table import REJECT_SCHEMA
    from ndcg_spark.jobs.outputs import check_rejects, refuse_outputs
    from ndcg_spark.tables import reading_of

    config = inputs.config
    made = inputs.made()  # finds missing columns and wrong types
    schema = _written(made, config.makes).schema
    if config.output is None and config.rejects is None and config.json_path in (None, "-"):
        return
    check_rejects(inputs, config.rejects)
    planned = [("--output", config.output, schema), ("--rejects", config.rejects, REJECT_SCHEMA)]
    tables = [inputs.table, *([inputs.propensities] if inputs.propensities else [])]
    readings = [
        reading_of(spark, f"{flag} {source.reference!r}", source.reference, source.kind, table.frame)
        for (flag, source), table in zip(config.sources, tables, strict=True)
    ]
    refuse_outputs(spark, planned, readings, config.json_path, progress)
