"""The console command: exit codes, and errors in one line. `jobs/registry.py` lists the commands."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import click

from ndcg_spark._version import __version__
from ndcg_spark.jobs.command import Command, CommandGroup
from ndcg_spark.jobs.endings import EXIT_DONE, EXIT_REFUSED, report_error, report_line
from ndcg_spark.jobs.interrupts import raise_on_sigterm
from ndcg_spark.jobs.logs import CommandLog, find_log_format
from ndcg_spark.jobs.printing import tolerate_lost_streams
from ndcg_spark.jobs.registry import COMMANDS, load_command


class _Commands(Mapping[str, click.Command]):
    def __getitem__(self, name: str) -> click.Command:
        command = load_command(name)
        return command.to_click() if isinstance(command, Command | CommandGroup) else command

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


commands: Any = _Commands()  # click annotates a mutable mapping, but only reads it


@click.group(context_settings={"help_option_names": ["-h", "--help"]}, commands=commands)
@click.version_option(__version__, prog_name="ndcg-spark")
def cli() -> None:
    """Evaluate rankings on Apache Spark: NDCG of every query, and its mean per ranker and segment."""


def main(argv: Sequence[str] | None = None, *, prog: str = "ndcg-spark") -> int:
    """Run a command and return its exit code.

    0 done; 2 refused input or options; 3 gate not met, alarm, or flagged night; 130 interrupted; 143 terminated by
    SIGTERM; 1 a crash, whose traceback is on standard error, or an output that is partly written.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    with closing(CommandLog()) as logs, tolerate_lost_streams(prog):
        logs.set_format(find_log_format(arguments))
        for argument in arguments:
            if not argument.isascii() and argument != argument.encode(errors="replace").decode():
                return report_line(logs, prog, f"argument {argument!r} is not valid UTF-8.", EXIT_REFUSED)
        try:
            with raise_on_sigterm():
                result = cli.main(arguments, prog_name=prog, standalone_mode=False, obj=logs)
        except (Exception, KeyboardInterrupt) as error:
            return report_error(error, logs, prog)
    return result if isinstance(result, int) else EXIT_DONE


def run() -> None:
    """Run the console command; exit the process with its code unless all is well."""
    code = main()
    if code:  # a wheel task of Databricks calls this within a process that lives on
        sys.exit(code)
