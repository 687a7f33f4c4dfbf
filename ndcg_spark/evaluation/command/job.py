"""The main job: read, check, evaluate, write, answer. Everything here runs actions."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ndcg_spark._version import __version__
from ndcg_spark.errors import InputRefusedError
from ndcg_spark.evaluation.command.explain import explain_job
from ndcg_spark.evaluation.settings import EvaluationPlan
from ndcg_spark.jobs.accounts import Accounts, account, refusal_of
from ndcg_spark.jobs.config import JobConfig
from ndcg_spark.jobs.job_run import job_run
from ndcg_spark.jobs.progress import Progress
from ndcg_spark.jobs.report import (
    counted_rows,
    counts_line,
    gate_line,
    reasons_text,
    rejected_lines,
    show_summary,
    sort_key,
    tie_warnings,
    to_json,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ndcg_spark.conventions import Convention
    from ndcg_spark.evaluation.command.inputs import Inputs

EXIT_DONE, EXIT_GATE = 0, 3


def run_job(config: JobConfig) -> int:
    """Run the main job: 0 done, 3 gate not met. Where input or options are refused, nothing has been written."""
    with job_run(
        "mean-ndcg",
        config,
        short_lists=config.short_lists,
        run_date=config.run_date,
        dataset=config.dataset,
    ) as run:
        return run.exit(_run(run.spark, config, run.progress))


def _run(spark: SparkSession, config: JobConfig, progress: Progress) -> int:
    from ndcg_spark.evaluation.command.inputs import read_inputs
    from ndcg_spark.jobs.outputs import check_outputs

    inputs = read_inputs(spark, config, items=config.items, interactions=config.interactions)
    check_outputs(spark, inputs, config, progress)
    if config.explain:
        print(explain_job(inputs, config))
        return EXIT_DONE
    try:
        if config.explain_difference is not None:
            return _explain_difference(inputs, config, config.explain_difference, progress)
        outcome, gates_met = evaluate_and_write(spark, inputs, config, progress)
    except Exception as error:
        raise refusal_of(error, inputs) or error from error
    show_summary(outcome["metrics"])
    print(counts_line(outcome))
    for line in rejected_lines(outcome):
        print(line)
    if outcome["sample"] < 1:
        print(f"sample: {outcome['sample']:g} of the queries, by hash; the intervals are about the mean of all")
    for warning in tie_warnings(outcome["metrics"]):
        progress.line(warning)
    for gate in outcome["gates"]:
        print(gate_line(gate, gate["run"]))
    if config.json_path == "-":
        _print_json(outcome)
    return EXIT_DONE if gates_met else EXIT_GATE


def _explain_difference(inputs: Inputs, config: JobConfig, other: Convention, progress: Progress) -> int:
    from pyspark.sql import functions as F

    from ndcg_spark.evaluation.command.explain import show_difference
    from ndcg_spark.evaluation.explanation import explain_step_by_step
    from ndcg_spark.jobs.outputs import write_text

    judgments = inputs.judgments
    found = explain_step_by_step(
        inputs.table.frame,
        inputs.plan,
        other,
        judgments=judgments.frame if judgments else None,
        parse_text=inputs.table.parse_text,
        parse_judgment_text=judgments.parse_text if judgments else False,
    )
    with progress.step("evaluating each step"):
        steps = [row.asDict() for row in found.steps.orderBy("run", "step").collect()]
        largest = found.queries.orderBy(F.abs("contribution").desc(), *inputs.plan.columns.query).limit(10)
        queries = [row.asDict() for row in largest.collect()]
    show_difference(steps, queries)
    found_steps = {"steps": steps, "queries": queries}
    if config.json_path == "-":
        _print_json(found_steps)
    elif config.json_path is not None:
        write_text("JSON", config.json_path, to_json(found_steps), progress)
    return EXIT_DONE


def evaluate_and_write(
    spark: SparkSession, inputs: Inputs, config: JobConfig, progress: Progress
) -> tuple[dict[str, Any], bool]:
    """Run the actions of the job and write its outputs; returns the outcome, and whether all gates are met.

    Metrics of queries that are kept between actions are released in any case.
    """
    from ndcg_spark.jobs.outputs import write_outputs

    plan = inputs.plan
    if inputs.ranking.fell_back:
        progress.line(f"read by Spark: {inputs.ranking.reason}")
    per_query = inputs.ranking.per_query(rejected=True) if config.per_query_output is not None else None
    kept = per_query is not None and persisted(per_query)
    try:
        summary_frame = inputs.ranking.summary(per_query)
        with progress.step("ranking and scoring"):
            rows = [row.asDict() for row in summary_frame.collect()]
        rows = [row for row in rows if row["run"] is not None]  # rejected rows without a run; `accounts` has them
        accounts = None
        if plan.on_invalid == "reject":
            with progress.step("counting bad rows"):
                accounts = _accounts(rows, inputs, config)
        summary = sorted(_or_empty(rows, plan, config, accounts), key=sort_key)
        outcome = _outcome(summary, inputs, config, accounts)
        gates = [result for gate in config.gates for result in gate.results(summary)]
        outcome["gates"] = gates
        write_outputs(spark, summary, per_query, outcome, inputs, accounts, config, progress)
    finally:
        if kept and per_query is not None:
            per_query.unpersist()
    for row in outcome["metrics"]:
        row.pop("state")
    return outcome, all(gate["met"] for gate in gates)


def _accounts(rows: list[dict[str, Any]], inputs: Inputs, config: JobConfig) -> Accounts:
    """Count bad rows; where all rows were evaluated or left out by rule, there are none to look for."""
    used = sum(int(row["n_rows"]) + int(row["n_left_out"]) for row in counted_rows(sorted(rows, key=sort_key)))
    return account(inputs, config.max_reject_fraction, all_valid=used if used == inputs.count() else None)


def persisted(rows: DataFrame) -> bool:
    """Keep rows between the actions that need them, where the platform can."""
    from pyspark.errors import PySparkException

    try:
        rows.persist()
    except PySparkException:  # some serverless platforms have no cache: the work is then done twice
        return False
    return True


def _or_empty(
    rows: list[dict[str, Any]], plan: EvaluationPlan, config: JobConfig, accounts: Accounts | None
) -> list[dict[str, Any]]:
    if any(row["n_queries"] for row in rows):
        return rows
    if not config.allow_empty:
        found = max((row["n_missing"] + row["n_unjudged"] + row["n_no_relevant"] for row in rows), default=0)
        why = f"none of {found} queries counts under these rules" if found else "there are no rows to evaluate"
        if accounts and accounts.rejected:
            why += f" ({reasons_text(accounts.rejected)})"
        raise InputRefusedError(f"{why}; nothing was written (--allow-empty writes that over what was there).")
    if rows or plan.columns.run is not None:
        return rows
    from ndcg_spark.evaluation.tasks.partial_sums import empty_summary

    runs = plan.columns.score if len(plan.columns.score) > 1 else ("",)
    return empty_summary(runs, plan.cutoffs, plan.summed_metrics)


def _outcome(
    summary: list[dict[str, Any]], inputs: Inputs, config: JobConfig, accounts: Accounts | None
) -> dict[str, Any]:
    from ndcg_spark.evaluation.tasks.partial_sums import N_LOST

    plan = inputs.plan
    overall = counted_rows(summary)

    def total(name: str) -> int:
        return sum(int(row[name]) for row in overall)

    evaluated, left_out = total("n_rows"), total("n_left_out")
    rejected = accounts.rejected if accounts else {}
    n_rejected = sum(rejected.values())
    rows: dict[str, Any] = {
        "read": accounts.read if accounts else evaluated + left_out,
        "evaluated": evaluated,
        "rejected": n_rejected,
        "left_out": left_out,
        "rejected_by_reason": rejected,
    }
    if rows["read"] != evaluated + left_out + n_rejected:
        raise InputRefusedError(
            f"the input had {evaluated + left_out} good rows when it was evaluated, and {rows['read'] - n_rejected} "
            "when they were counted: it changed meanwhile. Nothing was written; run again."
        )
    outcome: dict[str, Any] = {
        "metrics": summary,
        "rows": rows,
        "queries": {
            "in_mean": total("n_queries"),
            **{name: total(f"n_{name}") for name in ("no_relevant", "missing", "unjudged")},
            "lost": total(N_LOST),
        },
        "run_date": config.run_date.isoformat(),
        "dataset": config.dataset,
        "convention": str(plan.convention),
        "config_hash": plan.digest,
        "input": inputs.name,
        "sample": plan.sample,
        "package_version": __version__,
    }
    if accounts and accounts.judgments is not None:
        outcome["judgment_rows"] = accounts.judgments
    return outcome


def _print_json(outcome: dict[str, Any]) -> None:
    sys.stdout.flush()
    print(to_json(outcome), flush=True)
