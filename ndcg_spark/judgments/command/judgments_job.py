"""The job that makes judgments: read, check, judge, write, answer. Everything here runs actions."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ndcg_spark._version import __version__
from ndcg_spark.errors import InputRefusedError, printable
from ndcg_spark.jobs.accounts import Accounts, account, refusal_of, written_rejects
from ndcg_spark.jobs.job_run import job_run
from ndcg_spark.jobs.progress import Progress
from ndcg_spark.jobs.report import to_json
from ndcg_spark.judgments.command.judgments_config import JudgmentsConfig
from ndcg_spark.judgments.settings import EventPlan, RatingPlan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ndcg_spark.sources.formats import Table

EXIT_DONE = 0
_MERGED = {
    "events": ("n_events", "n_impressions", "n_duplicates"),
    "ratings": ("n_ratings", "n_zero_weight"),
}
"""Columns of judgments whose sums account for the rows that were read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgmentInputs:
    """The table that was read, and what is made of it."""

    table: Table
    plan: EventPlan | RatingPlan

    @property
    def kind(self) -> str:
        """`events` or `ratings`."""
        return "events" if isinstance(self.plan, EventPlan) else "ratings"

    def judgments(self) -> DataFrame:
        """Judgments; lazy."""
        from ndcg_spark.judgments.frames.events import judgments_from_events
        from ndcg_spark.judgments.frames.ratings import judgments_from_ratings

        frame, parse_text = self.table.frame, self.table.parse_text
        if isinstance(self.plan, EventPlan):
            return judgments_from_events(frame, self.plan, parse_text=parse_text)
        return judgments_from_ratings(frame, self.plan, parse_text=parse_text)

    def checked(self, *, originals: bool) -> dict[str, DataFrame]:
        """Reasons why rows are bad; lazy."""
        from ndcg_spark.judgments.frames.events import checked_events
        from ndcg_spark.judgments.frames.ratings import checked_ratings

        frame, parse_text = self.table.frame, self.table.parse_text
        if isinstance(self.plan, EventPlan):
            found = checked_events(frame, self.plan, parse_text=parse_text, originals=originals)
        else:
            found = checked_ratings(frame, self.plan, parse_text=parse_text, originals=originals)
        return {self.kind: found}


def run_judgments_job(config: JudgmentsConfig) -> int:
    """Run the job: 0 done. Where input or options are refused, nothing has been written."""
    command = f"build-judgments {'events' if isinstance(config.plan, EventPlan) else 'annotators'}"
    with job_run(
        command,
        config,
        short_lists=True,
        run_date=config.run_date,
        dataset=config.dataset,
    ) as run:
        return run.exit(_run(run.spark, config, run.progress))


def _run(spark: SparkSession, config: JudgmentsConfig, progress: Progress) -> int:
    from ndcg_spark.sources.formats import read_table

    source = config.source
    inputs = JudgmentInputs(table=read_table(spark, source.reference, source.kind, source.options), plan=config.plan)
    judgments = inputs.judgments()  # finds missing columns and wrong types
    _check_outputs(spark, inputs, judgments, config, progress)
    if config.explain:
        print(_explanation(inputs, config))
        return EXIT_DONE
    try:
        accounts = None
        if config.plan.on_invalid == "reject":
            with progress.step("counting bad rows"):
                accounts = account(inputs, config.max_reject_fraction)
        outcome = _judge(judgments, inputs, config, accounts, progress)
    except Exception as error:
        raise refusal_of(error, inputs) or error from error
    print("\n".join(map(printable, _lines(outcome))))
    if config.json_path == "-":
        sys.stdout.flush()
        print(to_json(outcome), flush=True)
    return EXIT_DONE


def _judge(
    judgments: DataFrame,
    inputs: JudgmentInputs,
    config: JudgmentsConfig,
    accounts: Accounts | None,
    progress: Progress,
) -> dict[str, Any]:
    from ndcg_spark.evaluation.command.job import persisted
    from ndcg_spark.jobs.outputs import Planned, write_together
    from ndcg_spark.judgments.frames.ratings import disputed_items
    from ndcg_spark.tables import RunPartition

    kept = persisted(judgments)
    try:
        with progress.step("judging"):
            outcome = _outcome(judgments, inputs, config, accounts)
        if not outcome["judgments"] and not config.allow_empty:
            raise InputRefusedError(
                f"there are no {inputs.kind} to make judgments of; nothing was written (--allow-empty writes that "
                "over what was there)."
            )
        rows, nothing = _with_run(judgments), [""] if config.allow_empty else []
        planned = []
        if config.rejects is not None:
            planned.append(Planned("rejects", config.rejects, written_rejects(inputs, accounts), [""], [""]))
        if config.disputes is not None:
            planned.append(Planned("disputes", config.disputes, disputed_items(rows), [""], [""]))
        if config.output is not None:
            planned.append(Planned("judgments", config.output, rows, [""], nothing))
        partition = RunPartition(run_date=config.run_date, dataset=config.dataset)
        write_together(planned, partition, config.json_path, outcome, progress)
    finally:
        if kept:
            judgments.unpersist()
    return outcome


def _with_run(judgments: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return judgments.withColumn("run", F.lit(""))  # slices are named by data set and run


def _check_outputs(
    spark: SparkSession, inputs: JudgmentInputs, judgments: DataFrame, config: JudgmentsConfig, progress: Progress
) -> None:
    from ndcg_spark.evaluation.command.metric_table import REJECT_SCHEMA
    from ndcg_spark.jobs.outputs import check_rejects, refuse_outputs
    from ndcg_spark.tables import reading_of

    check_rejects(inputs, config.rejects)
    source, schema = config.source, _with_run(judgments).schema
    planned = [
        ("--output", config.output, schema),
        ("--disputes", config.disputes, schema),
        ("--rejects", config.rejects, REJECT_SCHEMA),
    ]
    if any(target for _, target, _ in planned) or config.json_path not in (None, "-"):
        name = f"--input {source.reference!r}"
        reading = reading_of(spark, name, source.reference, source.kind, inputs.table.frame)
        refuse_outputs(spark, planned, [reading], config.json_path, progress)


def _outcome(
    judgments: DataFrame, inputs: JudgmentInputs, config: JudgmentsConfig, accounts: Accounts | None
) -> dict[str, Any]:
    """Run an action, and one more for agreement: count judgments by rule, and the rows behind them."""
    from pyspark.sql import functions as F

    from ndcg_spark.judgments.frames.agreement import item_pairs, rating_agreement

    counted = [F.count(F.lit(1)).alias("n"), F.count("relevance").alias("n_judged")]
    counted += [F.sum(name).alias(name) for name in _MERGED[inputs.kind]]
    if isinstance(inputs.plan, RatingPlan):
        counted.append(F.count_if(F.col("disputed")).alias("n_disputed"))
    found = judgments.groupBy("rule").agg(*counted).orderBy("rule").collect()

    def total(name: str) -> int:
        return sum(row[name] or 0 for row in found)

    rejected = accounts.rejected if accounts else {}
    rows = {name.removeprefix("n_"): total(name) for name in _MERGED[inputs.kind]}
    outcome = {
        "judgments": total("n"),
        "judged": total("n_judged"),
        "by_rule": {row["rule"]: row["n"] for row in found},
        "rows": {**rows, "rejected": sum(rejected.values()), "rejected_by_reason": rejected},
        "run_date": config.run_date.isoformat(),
        "dataset": config.dataset,
        "input": inputs.table.name,
        "package_version": __version__,
    }
    if isinstance(inputs.plan, RatingPlan):
        (agreed,) = rating_agreement(item_pairs(judgments, inputs.plan)).collect()
        outcome |= {"disputed": total("n_disputed"), "agreement": agreed.asDict()}
    return outcome


def _lines(outcome: dict[str, Any]) -> list[str]:
    """Say for a person what was judged and from what."""
    rows = outcome["rows"]
    by_rule = ", ".join(f"{rule} {n:,}" for rule, n in outcome["by_rule"].items()) or "none"
    unjudged = outcome["judgments"] - outcome["judged"]
    lines = [f"judgments: {outcome['judgments']:,} ({by_rule}), {unjudged:,} of them without relevance"]
    if "events" in rows:
        read = sum(rows[name] for name in ("events", "impressions", "duplicates", "rejected"))
        lines.append(
            f"events: {read:,} in the window = {rows['events']:,} graded + {rows['impressions']:,} impressions + "
            f"{rows['duplicates']:,} repeated + {rows['rejected']:,} rejected"
        )
        return lines
    agreed = outcome["agreement"]
    weightless = f"{rows['zero_weight']:,} of weight 0, " if rows["zero_weight"] else ""
    lines.append(f"ratings: {rows['ratings']:,} used, {weightless}{rows['rejected']:,} rejected")
    lines.append(f"in dispute: {outcome['disputed']:,}")
    alpha = f"none ({agreed['reason']})" if agreed["alpha"] is None else f"{agreed['alpha']:.4f}"
    behind = f"{agreed['n_ratings']:,} ratings of {agreed['n_items']:,} items"
    lines.append(f"agreement: Krippendorff's alpha (ordinal) {alpha}, {behind}")
    return lines


def _explanation(inputs: JudgmentInputs, config: JudgmentsConfig) -> str:
    plan = inputs.plan
    if isinstance(plan, EventPlan):
        grades = ", ".join(f"{event}={grade:g}" for event, grade in plan.ranked_grades)
        window = f"from {plan.start or 'the first event'} until before {plan.as_of or 'the end'}"
        half_life = "none" if plan.half_life is None else f"{plan.half_life:g} days"
        cost = "one shuffle, all rows of it" if plan.dedup != "none" else "one shuffle of aggregates"
        about = [
            f"grades       {grades}; shown: {plan.impression}",
            f"rule         {plan.rule}; half-life {half_life}; negative {plan.negative}; dedup {plan.dedup}",
            f"window       {window}",
            f"cost         {cost}, in Spark SQL",
        ]
    else:
        about = [
            f"rule         {plan.rule}; tie {plan.tie}; in dispute from {plan.dispute_range:g} apart",
            "cost         one shuffle of all rows, one pass through Python workers",
        ]
    targets = [("judgments", config.output), ("disputes", config.disputes), ("rejects", config.rejects)]
    written = ", ".join(f"{what} to {target.reference}" for what, target in targets if target) or "nothing"
    lines = [f"input        {inputs.table.name}", *about, f"bad rows     {plan.on_invalid}"]
    return "\n".join([*lines, f"would write  {written}", "Nothing was run."])
