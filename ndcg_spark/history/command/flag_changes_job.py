"""The job behind `flag-changes`: read, judge nights, write, answer. Everything here runs actions."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import date, datetime, timezone
from typing import TYPE_CHECKING, Any

from ndcg_spark._version import __version__
from ndcg_spark.errors import InputRefusedError, printable
from ndcg_spark.evaluation.command.job import EXIT_DONE, EXIT_GATE, persisted
from ndcg_spark.history.command.flag_changes import FlagConfig
from ndcg_spark.history.command.nights import check_output, found_nights, refusals, stamped_results, taken_rows
from ndcg_spark.history.settings import is_behind
from ndcg_spark.history.tasks.night_flags import BEFORE, BEFORE_PAIRED, FLAG_COLUMNS, FLAGGED, SHORT, USUAL
from ndcg_spark.jobs.job_run import job_run
from ndcg_spark.jobs.progress import Progress
from ndcg_spark.jobs.report import to_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ndcg_spark.history.settings import FlagPlan

MOST_SHOWN = 100


def run_flag_changes(config: FlagConfig) -> int:
    """Run the job: 0 done, 3 a night is flagged. Where input or options are refused, nothing has been written."""
    with job_run(
        "flag-changes", config, short_lists=True, run_date=config.plan.end, dataset=config.rows.dataset or ""
    ) as run:
        return run.exit(_run(run.spark, config, run.progress))


def _run(spark: SparkSession, config: FlagConfig, progress: Progress) -> int:
    from ndcg_spark.history.frames.night_flags import flag_changes
    from ndcg_spark.sources.formats import read_table

    source = config.rows.source
    table = read_table(spark, source.reference, source.kind, source.options)
    rows = taken_rows(table, config.rows)
    flag_changes(rows, config.plan, parse_text=table.parse_text)  # finds missing columns and wrong types
    pairs, also = None, []
    if (given := config.per_query) is not None:
        pairs = read_table(spark, given.reference, given.kind, given.options)
        also.append(("--per-query", given, pairs))
    check_output(spark, config.rows, table, config.output, FLAG_COLUMNS, config.json_path, progress, also)
    with refusals():
        with progress.step("looking for nights"):
            nights = found_nights(table, rows, config.rows)
        end = config.plan.end or nights.last
        progress.note(night=end, dataset=nights.dataset)
        plan = replace(config.plan, start=config.plan.start or end, end=end)
        per_query = None if pairs is None else _of_dataset(pairs.frame, nights.dataset)
        judged = flag_changes(rows, plan, per_query=per_query, query=config.query, parse_text=table.parse_text)
        kept = persisted(judged)
        try:
            with progress.step("judging nights"):
                outcome = _outcome(judged)
            if not outcome["slices"]:
                there = f"{nights.first} to {nights.last}{_nights_before(nights.last, plan.start)}"
                asked = f"{plan.start} to {plan.end}"
                raise InputRefusedError(f"{table.name} has no night from {asked}; its nights are from {there}.")
            outcome |= {"from": str(plan.start), "to": str(plan.end), "dataset": nights.dataset, "limits": plan.text}
            name = table.name if pairs is None else f"{table.name} with {pairs.name}"
            outcome |= {"input": name, "package_version": __version__}
            _write(judged, outcome, config, progress)
        finally:
            if kept:
                judged.unpersist()
    if config.plan.end is None:
        _tell_if_behind(end)
    _show(outcome, plan)
    if pairs is not None:
        print("held against the night before: {held:,}; query by query: {paired:,}".format(**outcome["night_before"]))
    if config.json_path == "-":
        sys.stdout.flush()
        print(to_json(_shown(outcome)), flush=True)
    return EXIT_GATE if outcome["flags"] and config.fail_on_flag else EXIT_DONE


def _tell_if_behind(last: date) -> None:
    """Print that the newest night, which is judged, is an old one, if it is."""
    today = datetime.now(timezone.utc).date()
    if is_behind(last, today):
        print(f"the last night in the table is {last}{_nights_before(last, today)}; it is the one that is judged")


def _nights_before(last: date, night: date | None) -> str:
    """Say how long a table has had no night; empty where it has."""
    if night is None or last >= night:
        return ""
    n = (night - last).days
    return f", {n:,} {'night' if n == 1 else 'nights'} before {night}"


def _of_dataset(frame: DataFrame, dataset: str) -> DataFrame:
    from pyspark.sql import functions as F

    return frame.where(F.col("dataset") == dataset) if "dataset" in frame.columns else frame


def _outcome(judged: DataFrame) -> dict[str, Any]:
    """Run three actions: slices, counts by status, and the flags, the farthest first."""
    from pyspark.sql import functions as F

    slices = judged.select("night", "run").distinct().collect()
    numbers = [F.count("*").alias("n"), F.count("z").alias("held"), F.max("n_nights").alias("nights")]
    numbers += [
        F.count_if(F.col("weekday").isin(*kinds)).alias(name)
        for name, kinds in (("before", (BEFORE, BEFORE_PAIRED)), ("paired", (BEFORE_PAIRED,)))
    ]
    counted = judged.groupBy("status").agg(*numbers).orderBy("status").collect()
    short = {row["status"]: row for row in counted}.get(SHORT)
    flagged = judged.where(F.col("status").isin(*FLAGGED))
    farthest = F.abs("z").desc_nulls_first()
    flags = flagged.orderBy(farthest, "night", "run", "segment_by", "segment", "metric", "k").limit(MOST_SHOWN)
    return {
        "slices": slices,
        "by_status": {row["status"]: row["n"] for row in counted},
        "short_history": {"held_against_the_night_before": short["held"], "nights": short["nights"]}
        if short
        else None,
        "night_before": {
            "held": sum(row["before"] for row in counted),
            "paired": sum(row["paired"] for row in counted),
        },
        "flags": [row.asDict() for row in flags.collect()],
    }


def _shown(outcome: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in outcome.items() if name != "slices"}


def _write(judged: DataFrame, outcome: dict[str, Any], config: FlagConfig, progress: Progress) -> None:
    from ndcg_spark.jobs.outputs import Planned, write_together
    from ndcg_spark.tables import ManyNights, NightlySlice

    slices = tuple(NightlySlice(row["night"], row["run"], "") for row in outcome["slices"])
    partition = ManyNights(dataset=outcome["dataset"], night="night", part=None, slices=slices)
    planned = []
    if config.output is not None:
        frame = stamped_results(judged, outcome).repartition("night", "run")
        planned.append(Planned("flags", config.output, frame, list(partition.names), []))
    write_together(planned, partition, config.json_path, _shown(outcome), progress)


def _show(outcome: dict[str, Any], plan: FlagPlan) -> None:
    counts = ", ".join(f"{n:,} {status.replace('_', ' ')}" for status, n in outcome["by_status"].items())
    print(f"nights from {outcome['from']} to {outcome['to']}: {counts}")
    for row in outcome["flags"]:
        print(printable(f"FLAG {row['status']}: {row['rule']}"))
    n = sum(outcome["by_status"].get(status, 0) for status in FLAGGED)
    if n > len(outcome["flags"]):
        print(f"... and {n - len(outcome['flags'])} more; --output has all of them.")
    if not n:
        print(_no_flag(outcome, plan))


def _no_flag(outcome: dict[str, Any], plan: FlagPlan) -> str:
    """Say that there is no flag, and what was not judged."""
    short, usual = outcome["short_history"], outcome["by_status"].get(USUAL, 0)
    if short is None:
        return "no flag" if usual else "nothing could be judged: no night has a value"
    lacks = f"{short['nights']:,} earlier nights, {plan.fewest_any_day} needed"
    if usual:
        return f"no flag; some could not be judged by history: {lacks}"
    if short["held_against_the_night_before"]:
        return f"nothing could be judged by history: {lacks}; no flag against the night before"
    return f"nothing could be judged: {lacks}"
