"""Commands `nightly` (run the steps of a night) and `init` (write a file for it)."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ndcg_spark.errors import InvalidParameterError, NdcgSparkError
from ndcg_spark.jobs.command import GroupedCommand
from ndcg_spark.jobs.endings import EXIT_CRASHED, EXIT_DONE, EXIT_REFUSED, choose_exit_code, report_error
from ndcg_spark.jobs.logs import CommandLog, log_format_option
from ndcg_spark.jobs.options import parse_date, parse_run_date
from ndcg_spark.jobs.places import Source, check_file, choose_dataset, name_missing_packages
from ndcg_spark.nights.steps import Night, insert_dates, read_night

if TYPE_CHECKING:
    from ndcg_spark.core.schemas import TableInfo
    from ndcg_spark.nights.work import NightRun

_ABOUT = """
    Run the steps of a night, listed in a file, one after another.

    A step is a table [[step]] of the file: its command, and options of that command. Options outside of steps apply
    to all steps. A step reads the tables that earlier steps wrote unless it names another table. {run_date} in the
    file is the night, {run_date-7} the day a week before it. All steps are checked before the first one runs. If a
    step is refused, only the steps that read its tables are skipped.

    Exit codes, the first of this list that applies: 130 interrupted, 143 terminated, 1 a crash, 2 refused, 3 a gate
    was not met or a night flagged, 0 done.
    """
_GROUPS = {
    "Night": [
        click.Option(["--config"], required=True, metavar="FILE", help="TOML file of the steps."),
        click.Option(["--run-date"], metavar="YYYY-MM-DD", help="Night under which results are stored.  [default: "
                     "today, UTC]"),
        click.Option(["--backfill"], metavar="FIRST..LAST", help="Run all these nights, one after another."),
        click.Option(["--dataset"], metavar="NAME", help="Data set under which results are stored.  [default: the "
                     "data set of the file, or else of the first step]"),
    ],
    "Steps": [
        click.Option(["--only"], multiple=True, metavar="STEP", help="Run only this step; may be repeated."),
        click.Option(["--from", "first"], metavar="STEP", help="Run this step and the later ones."),
        click.Option(["--resume"], is_flag=True, help="Skip steps that succeeded for this night with the same "
                     "options, version and inputs, according to the run log."),
        click.Option(["--stale"], is_flag=True, help="Run only steps whose results are older than their inputs, for "
                     "example after an earlier night was run again, and the steps that read them."),
        click.Option(["--plan"], is_flag=True, help="Print what each step reads and writes, and run nothing."),
    ],
    "Operations": [
        click.Option(["--message"], metavar="FILE", help="File for the summary of the night, as text. "
                     "A file of the same name with the ending .json has it as JSON. {run_date} is the night."),
        click.Option(["--conf"], multiple=True, metavar="NAME=VALUE", help="Setting of the Spark session that "
                     "the night starts; may be repeated."),
        log_format_option(),
    ],
}  # fmt: skip


def _list_nights(run_date: str | None, backfill: str | None) -> list[date]:
    if backfill is None:
        return [parse_run_date(run_date)]
    if run_date is not None:
        raise InvalidParameterError("--backfill sets the nights; remove --run-date.")
    days = [parse_date("--backfill", text) for text in backfill.split("..")]
    first, last = days[0], days[-1]
    if len(days) == 2 and first is not None and last is not None and first > last:
        raise InvalidParameterError(f"--backfill must name the earlier night first: {last}..{first}.")
    if len(days) != 2 or first is None or last is None:
        raise InvalidParameterError(f"--backfill must look like 2026-01-01..2026-01-31; got {backfill!r}.")
    return [first + timedelta(days=n) for n in range((last - first).days + 1)]


def _check_message_file(path: str) -> None:
    check_file("--message", path)
    if Path(path).suffix == ".json":
        raise InvalidParameterError(
            f"--message {path!r} is for the text, and the JSON would replace it; choose a name such as "
            f"{str(Path(path).with_suffix('.txt'))!r}."
        )


@contextmanager
def _write_refusal(night: Night, runs: Sequence[NightRun], path: str | None) -> Iterator[None]:
    """Write the message of nights that could not begin: an old file would look like their summary."""
    try:
        yield
    except Exception as error:
        if path and not any(run.results or run.refusal for run in runs):
            from ndcg_spark.jobs.runner import describe_end
            from ndcg_spark.nights.message import build_night_message, write_message

            code = EXIT_REFUSED if isinstance(error, NdcgSparkError) else EXIT_CRASHED
            status, reason = describe_end(error, code)
            write_message(build_night_message(night, [], code, f"{status}: {reason}"), path)
        raise


def _format_resume(params: dict[str, Any]) -> str:
    """Format the command that resumes an interrupted night or backfill."""
    nights = f"--run-date {parse_run_date(params['run_date'])}"
    if params["backfill"]:
        nights = f"--backfill {params['backfill']}"
    return f"ndcg-spark nightly --config {shlex.quote(params['config'])} {nights} --resume"


@click.command("nightly", cls=GroupedCommand, groups=_GROUPS, help=_ABOUT, short_help="All steps of a night.")
@click.pass_obj
def nightly(logs: CommandLog | None, /, **params: Any) -> int:
    """Run one night, or several one after another; a refused night does not stop the others."""
    days = _list_nights(params["run_date"], params["backfill"])
    overrides = {option: params[option] for option in ("dataset", "conf", "log_format")}
    nights = [read_night(params["config"], day, **overrides) for day in days]
    selections = [night.select_steps(params["only"], params["first"]) for night in nights]
    messages = [insert_dates({"message": params["message"]}, day)["message"] for day in days]
    if params["message"]:
        _check_message_file(messages[-1])
    skips = {"resume": params["resume"], "stale": params["stale"]}
    if params["plan"] and not any(skips.values()):
        plans = [night.lines(steps) for night, steps in zip(nights, selections, strict=True)]
        click.echo("\n".join(line for plan in plans for line in plan))
        return EXIT_DONE
    with name_missing_packages():
        from ndcg_spark.nights.message import write_message
        from ndcg_spark.nights.work import NightRun, open_shared_session, report_stale
    prog = "ndcg-spark nightly"
    is_brief = len(nights) > 1
    runs: list[NightRun] = []
    codes = []
    with ExitStack() as stack:
        stack.enter_context(_write_refusal(nights[-1], runs, None if params["plan"] else messages[-1]))
        runs += (
            NightRun(night, steps, logs or CommandLog(), f"{prog} {night.run_date}", is_brief=is_brief)
            for night, steps in zip(nights, selections, strict=True)
        )
        spark = stack.enter_context(open_shared_session(runs))
        if params["plan"]:
            click.echo("\n".join(line for run in runs for line in run.plan(spark, **skips)))
            return EXIT_DONE
        for run, message in zip(runs, messages, strict=True):
            try:
                codes.append(run.run(spark, **skips))
            except NdcgSparkError as error:
                if len(nights) == 1:
                    raise
                codes.append(report_error(error, run.logs, run.prog))
            except KeyboardInterrupt:  # also after SIGTERM
                if run.request.run_log is not None:
                    click.echo(f"to resume: {_format_resume(params)}", err=True)
                raise
            finally:
                # Also after a refusal: an old file would look like the summary of this run.
                if message and not (params["stale"] and run.is_unchanged and Path(message).exists()):
                    write_message(run.message, message)
        for line in report_stale(spark, runs, params["config"], params["message"], is_renewal=params["stale"]):
            click.echo(line)
    code = choose_exit_code(codes)
    if code == EXIT_REFUSED and params["run_date"] is None and params["backfill"] is None:
        click.echo(f"{prog}: the night is today, {days[0]} (UTC); --run-date names another one.", err=True)
    return code


def _read_info(reference: str, kind: str | None, label: str) -> TableInfo:
    """Read the columns of a table, with Spark only if Arrow cannot."""
    from ndcg_spark.sources.local import open_local

    table_or_reason = open_local(reference, kind, label=label)
    if not isinstance(table_or_reason, str):
        return table_or_reason.info
    with name_missing_packages(table_or_reason):
        from ndcg_spark.core.columns import describe_table
        from ndcg_spark.jobs.session import open_session
        from ndcg_spark.sources.formats import open_table
    with open_session("ndcg-spark init", {}, long_rows=False) as spark:
        return describe_table(open_table(spark, reference, kind).frame, label)


_INIT = """
    Write a file for `ndcg-spark nightly` from the columns of a table.

    Columns are chosen by name and type; a comment in the file says why. No row is read. The steps are the means, a
    comparison if there are several rankers, flags and a page.
    """


@click.command("init", help=_INIT, short_help="A file for nightly, from the columns of a table.")
@click.option("--input", "reference", required=True, metavar="REF", help="Rankings: a path, a catalog table, or a "
              "SQL query.")  # fmt: skip
@click.option("--input-format", metavar="F", help="Format of that table.  [default: guessed from the reference]")
@click.option("--judgments", metavar="REF", help="Table with the relevances, if the input has none.")
@click.option("--judgments-format", metavar="F", help="Format of that table.")
@click.option("--output", default="night.toml", show_default=True, metavar="FILE", help="File to write; it must "
              "not exist yet.")  # fmt: skip
@click.option("--dataset", metavar="NAME", help="Data set under which results are stored.  [default: last part of "
              "the input that is not a date]")  # fmt: skip
@click.option("--query-col", metavar="C", help="Column of the query.  [default: this and the others by their names]")
@click.option("--item-col", metavar="C", help="Column of the item.")
@click.option("--score-col", metavar="C", help="Column of the score.")
@click.option("--rank-col", metavar="C", help="Column of the rank, instead of a score.")
@click.option("--relevance-col", metavar="C", help="Column of the relevance.")
@click.option("--run-col", metavar="C", help="Column of the ranker.")
def init(
    reference: str,
    input_format: str | None,
    judgments: str | None,
    judgments_format: str | None,
    output: str,
    dataset: str | None,
    **columns: str | None,
) -> int:
    """Choose the columns and write the file."""
    if Path(output).exists():
        raise InvalidParameterError(f"--output {output!r} already exists; remove it, or name another file.")
    check_file("--output", output)
    with name_missing_packages():
        from ndcg_spark.nights.guess import NOT_USED, insert_run_date, write_night_file
    info = _read_info(reference, input_format, "input")
    judged = (judgments, _read_info(judgments, judgments_format, "judgments table")) if judgments else None
    source = Source(reference=reference, kind=input_format, options={})
    formats = {"input": input_format, "judgments": judgments_format}
    named = {option.removesuffix("_col"): column for option, column in columns.items() if column is not None}
    chosen = choose_dataset(dataset, source, is_stored=True)
    text = write_night_file(reference, info, judged, chosen, formats, named)
    Path(output).write_text(text, encoding="utf-8")
    _, run_date = insert_run_date(reference)
    dates = run_date or ("DATE" if "{run_date} is" in text else "")
    night = f" --run-date {dates}" if dates else ""
    unused = next((f"{line[2:]}; " for line in text.splitlines() if line.startswith(NOT_USED)), "")
    command = f"ndcg-spark nightly --config {shlex.quote(output)}{night}"
    click.echo(f"{output}: {unused}check the columns, then run: {command}")
    return EXIT_DONE
