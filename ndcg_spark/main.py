"""The console command: its commands by name, exit codes, and errors in one line."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from importlib import import_module
from typing import Any

import click

from ndcg_spark._version import __version__
from ndcg_spark.core.redaction import redacted
from ndcg_spark.errors import NdcgSparkError, PartlyWrittenError, find_refusal, one_line, text_of
from ndcg_spark.jobs.command import Command, CommandGroup
from ndcg_spark.jobs.interrupts import TerminatedError, terminable
from ndcg_spark.jobs.logs import Logs, form_asked_for
from ndcg_spark.jobs.options import with_flags
from ndcg_spark.jobs.printing import lasting_streams

EXIT_DONE, EXIT_CRASHED, EXIT_REFUSED, EXIT_INTERRUPTED, EXIT_TERMINATED = 0, 1, 2, 130, 143
_WHERE = {
    "mean-ndcg": "evaluation.command:MEAN_NDCG",
    "explain-difference": "evaluation.command:EXPLAIN_DIFFERENCE",
    "retrieve": "retrieval.command:RETRIEVE",
    "compare-runs": "comparison.command:COMPARE_RUNS",
    "diagnose": "diagnosis.command:DIAGNOSE",
    "build-judgments": "judgments.command:BUILD_JUDGMENTS",
    "position-bias": "clicks.command:POSITION_BIAS",
    "report": "reports.command:REPORT",
    "business-link": "business.command:BUSINESS_LINK",
    "roll-up": "history.command:ROLL_UP",
    "flag-changes": "history.command:FLAG_CHANGES",
    "conventions": "evaluation.command:conventions",
    "metrics": "evaluation.command:metrics",
}


def _loaded(name: str) -> Command[Any] | CommandGroup | click.Command:
    module, _, attribute = _WHERE[name].partition(":")
    found: Command[Any] | CommandGroup | click.Command = getattr(import_module(f"ndcg_spark.{module}"), attribute)
    return found


def all_jobs() -> Iterator[Command[Any]]:
    """Load every command that is a job, those of groups one by one."""
    for one in map(_loaded, _WHERE):
        yield from (one.commands if isinstance(one, CommandGroup) else [one] if isinstance(one, Command) else [])


class _Commands(Mapping[str, click.Command]):
    def __getitem__(self, name: str) -> click.Command:
        found = _loaded(name)
        return found.as_click() if isinstance(found, Command | CommandGroup) else found

    def __iter__(self) -> Iterator[str]:
        return iter(_WHERE)

    def __len__(self) -> int:
        return len(_WHERE)


commands: Any = _Commands()  # click's annotation wants to add commands, which it does not do


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, commands=commands)
@click.version_option(__version__, prog_name="ndcg-spark")
def cli() -> None:
    """Evaluate rankings on Apache Spark: NDCG of every query, and its mean per ranker and segment."""


def main(argv: Sequence[str] | None = None, *, prog: str = "ndcg-spark") -> int:
    """Run a command and say how it ended.

    0 done; 2 refused input or options; 3 gate not met, alarm, or flagged night; 130 interrupted; 143 terminated by
    SIGTERM; 1 a crash, whose traceback is on standard error, or an output that is partly written.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    with closing(Logs()) as logs, lasting_streams(prog):
        logs.use(form_asked_for(arguments))
        for one in arguments:
            if not one.isascii() and one != one.encode(errors="replace").decode():
                return _ended(logs, prog, f"argument {one!r} is not valid UTF-8.", EXIT_REFUSED)
        try:
            with terminable():
                result = cli.main(arguments, prog_name=prog, standalone_mode=False, obj=logs)
        except click.ClickException as error:
            return _ended(logs, prog, error.format_message(), EXIT_REFUSED)
        except PartlyWrittenError as error:
            return _ended(logs, prog, with_flags(text_of(error)), EXIT_CRASHED)
        except NdcgSparkError as error:
            message = text_of(error)
            return _ended(logs, prog, with_flags(find_refusal(message) or message), EXIT_REFUSED)
        except (click.Abort, KeyboardInterrupt) as error:  # click turns the latter into the former
            if isinstance(error.__cause__ or error, TerminatedError):
                return _ended(logs, prog, "terminated", EXIT_TERMINATED)
            return _ended(logs, prog, "interrupted", EXIT_INTERRUPTED)
        except Exception as error:
            if logs.is_json:
                logs.error(f"{prog}: crashed", {"exit_code": EXIT_CRASHED}, error)
            else:
                print(redacted("".join(traceback.format_exception(error))), end="", file=sys.stderr)
            return EXIT_CRASHED
    return result if isinstance(result, int) else EXIT_DONE


def _ended(logs: Logs, prog: str, message: str, code: int) -> int:
    """Report in one line why a command ended early."""
    line = f"{prog}: {one_line(redacted(message))}"
    if logs.is_json:
        logs.error(line, {"exit_code": code})
    else:
        print(line, file=sys.stderr)
    return code


def run() -> None:
    """Run the console command; exit the process with its code unless all is well."""
    code = main()
    if code:  # a wheel task of Databricks calls this within a process that lives on
        sys.exit(code)
