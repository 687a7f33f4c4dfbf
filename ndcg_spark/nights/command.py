"""The command that runs the steps of a night."""

from __future__ import annotations

import shlex
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ndcg_spark.errors import InvalidParameterError, NdcgSparkError
from ndcg_spark.jobs.command import GroupedCommand
from ndcg_spark.jobs.endings import DONE, choose_exit_code, report_error
from ndcg_spark.jobs.logs import CommandLog, log_format_option
from ndcg_spark.jobs.options import parse_date, parse_run_date
from ndcg_spark.jobs.places import Source, check_file, choose_dataset, name_missing_packages
from ndcg_spark.nights.steps import read_night

if TYPE_CHECKING:
    from ndcg_spark.core.schemas import TableInfo

_ABOUT = """
    Run the steps of a night, which a file lists, one after another.

    A step is a table [[step]] of the file: its command, and options of that command. Options outside of steps hold
    for all of them. A step reads what an earlier step has written unless it names another table. {run_date} in the
    file is the night, and {run_date-7} the day a week before it. All steps are checked before the first one runs. A
    step that is refused stops the steps that read its tables, and no others.

    Exit codes, the first that a step ended with: 130 interrupted, 143 terminated, 1 a crash, 2 refused, 3 a gate was
    not met or a night flagged, 0 done.
    """
_GROUPS = {
    "Night": [
        click.Option(["--config"], required=True, metavar="FILE", help="TOML file of the steps."),
        click.Option(["--run-date"], metavar="YYYY-MM-DD", help="Night under which results are stored.  [default: "
                     "today, UTC]"),
        click.Option(["--backfill"], metavar="FIRST..LAST", help="Nights to run, one after another, instead of one."),
        click.Option(["--dataset"], metavar="NAME", help="Data set under which results are stored.  [default: that "
                     "of the file, else of the first step]"),
    ],
    "Steps": [
        click.Option(["--only"], multiple=True, metavar="STEP", help="Run this step alone; may be repeated."),
        click.Option(["--from", "first"], metavar="STEP", help="Run this step and those after it."),
        click.Option(["--resume"], is_flag=True, help="Do not run steps that have ended well for this night with the "
                     "same options, version and inputs; the run log tells."),
        click.Option(["--stale"], is_flag=True, help="Run only steps whose results are older than what they were "
                     "made of, as after an earlier night was run again, and those that read them."),
        click.Option(["--plan"], is_flag=True, help="Print what each step reads and writes, and run nothing."),
    ],
    "Operations": [
        click.Option(["--message"], metavar="FILE", help="File to write what the night says: text; a "
                     "file of the same name that ends with .json has it as JSON."),
        click.Option(["--conf"], multiple=True, metavar="NAME=VALUE", help="Spark setting of a local run; may be "
                     "repeated."),
        log_format_option(),
    ],
}  # fmt: skip


def _nights(run_date: str | None, backfill: str | None) -> list[date]:
    if backfill is None:
        return [parse_run_date(run_date)]
    if run_date is not None:
        raise InvalidParameterError("--backfill names the nights; leave --run-date out.")
    days = [parse_date("--backfill", text) for text in backfill.split("..")]
    first, last = days[0], days[-1]
    if len(days) != 2 or first is None or last is None or first > last:
        raise InvalidParameterError(f"--backfill must be as 2026-01-01..2026-01-31; got {backfill!r}.")
    return [first + timedelta(days=n) for n in range((last - first).days + 1)]


@click.command("nightly", cls=GroupedCommand, groups=_GROUPS, help=_ABOUT, short_help="All steps of a night.")
@click.pass_obj
def nightly(logs: CommandLog | None, /, **given: Any) -> int:
    """Run one night, or several one after another; a refused night does not stop the others."""
    days = _nights(given["run_date"], given["backfill"])
    more = {name: given[name] for name in ("dataset", "conf", "log_format")}
    nights = [read_night(given["config"], day, **more) for day in days]
    chosen = [one.chosen(given["only"], given["first"]) for one in nights]
    if given["message"]:
        check_file("--message", given["message"])
    if given["plan"]:
        click.echo("\n".join(line for one in nights for line in one.lines()))
        return DONE
    with name_missing_packages():
        from ndcg_spark.nights.message import write_message
        from ndcg_spark.nights.work import NightRun, session_of, stale_lines
    prog = "ndcg-spark nightly"
    each = zip(nights, chosen, strict=True)
    is_brief = len(nights) > 1
    runs = [
        NightRun(one, its, logs or CommandLog(), f"{prog} {one.run_date}", is_brief=is_brief) for one, its in each
    ]
    codes = []
    with session_of(runs) as spark:
        for run in runs:
            try:
                codes.append(run.run(spark, resume=given["resume"], stale=given["stale"]))
            except NdcgSparkError as error:
                if len(nights) == 1:
                    raise
                codes.append(report_error(error, run.logs, run.prog))
            finally:
                if given["message"]:  # that of another night would be taken for this one's
                    write_message(run.message, given["message"])
        for line in stale_lines(spark, runs, given["config"]):
            click.echo(line)
    return choose_exit_code(codes)


def _info(reference: str, kind: str | None, label: str) -> TableInfo:
    """Columns of a table; Spark reads them where only it can."""
    from ndcg_spark.sources.local import open_local

    found = open_local(reference, kind, label=label)
    if not isinstance(found, str):
        return found.info
    with name_missing_packages(found):
        from ndcg_spark.core.columns import describe_table
        from ndcg_spark.jobs.session import open_session
        from ndcg_spark.sources.formats import open_table
    with open_session("ndcg-spark init", {}, short_lists=True) as spark:
        return describe_table(open_table(spark, reference, kind).frame, label)


_INIT = """
    Write a file for `ndcg-spark nightly` from the columns of a table.

    The columns are chosen by their names and types; a comment says why. No row is read. The file has the means, a
    comparison where there are several rankers, flags and a page.
    """


@click.command("init", help=_INIT, short_help="A file for nightly, from the columns of a table.")
@click.option("--input", "reference", required=True, metavar="REF", help="Rankings: a path, a catalog table, or a "
              "SQL query.")  # fmt: skip
@click.option("--input-format", metavar="F", help="Format of that table.  [default: guessed from the reference]")
@click.option("--judgments", metavar="REF", help="Table with the relevances, if the input has none.")
@click.option("--judgments-format", metavar="F", help="Format of that table.")
@click.option("--output", default="night.toml", show_default=True, metavar="FILE", help="File to write, which must "
              "not be there yet.")  # fmt: skip
@click.option("--dataset", metavar="NAME", help="Data set under which results are stored.  [default: last part of "
              "the input that is not a date]")  # fmt: skip
def init(
    reference: str,
    input_format: str | None,
    judgments: str | None,
    judgments_format: str | None,
    output: str,
    dataset: str | None,
) -> int:
    """Choose columns, and write the file."""
    if Path(output).exists():
        raise InvalidParameterError(f"--output {output!r} is there; remove it, or name another file.")
    check_file("--output", output)
    with name_missing_packages():
        from ndcg_spark.nights.guess import night_file, with_run_date
    info = _info(reference, input_format, "input")
    judged = (judgments, _info(judgments, judgments_format, "judgments table")) if judgments else None
    source = Source(reference=reference, kind=input_format, options={})
    formats = {"input": input_format, "judgments": judgments_format}
    text = night_file(reference, info, judged, choose_dataset(dataset, source, is_stored=True), formats)
    Path(output).write_text(text, encoding="utf-8")
    night = f" --run-date {of_night}" if (of_night := with_run_date(reference)[1]) else ""
    click.echo(f"{output}: look at the columns, then run: ndcg-spark nightly --config {shlex.quote(output)}{night}")
    return DONE
