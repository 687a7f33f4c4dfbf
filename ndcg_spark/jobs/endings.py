"""Exit codes of commands, and the line that reports an error."""

from __future__ import annotations

import sys
import traceback
from typing import Final

import click

from ndcg_spark.core.redaction import redact
from ndcg_spark.errors import NdcgSparkError, PartlyWrittenError, find_refusal, get_message, to_one_line
from ndcg_spark.jobs.interrupts import TerminatedError
from ndcg_spark.jobs.logs import CommandLog
from ndcg_spark.jobs.options import spell_flags

EXIT_DONE: Final = 0
EXIT_CRASHED: Final = 1
EXIT_REFUSED: Final = 2
EXIT_GATE_NOT_MET: Final = 3
EXIT_INTERRUPTED: Final = 130
EXIT_TERMINATED: Final = 143
_BY_SEVERITY = (EXIT_INTERRUPTED, EXIT_TERMINATED, EXIT_CRASHED, EXIT_REFUSED, EXIT_GATE_NOT_MET, EXIT_DONE)


def choose_exit_code(codes: list[int]) -> int:
    """Return the most severe exit code. A crash outranks a refusal, because outputs may be incomplete."""
    return min(codes, key=_BY_SEVERITY.index, default=EXIT_DONE)


def report_error(error: BaseException, logs: CommandLog, prog: str) -> int:
    """Report an error in one line, or a crash with its traceback; return the exit code."""
    if isinstance(error, click.ClickException):
        return report_line(logs, prog, error.format_message(), EXIT_REFUSED)
    if isinstance(error, PartlyWrittenError):
        return report_line(logs, prog, spell_flags(get_message(error)), EXIT_CRASHED)
    if isinstance(error, NdcgSparkError):
        message = get_message(error)
        return report_line(logs, prog, spell_flags(find_refusal(message) or message), EXIT_REFUSED)
    if isinstance(error, click.Abort | KeyboardInterrupt):  # click turns the latter into the former
        if isinstance(error.__cause__ or error, TerminatedError):
            return report_line(logs, prog, "terminated", EXIT_TERMINATED)
        return report_line(logs, prog, "interrupted", EXIT_INTERRUPTED)
    if logs.is_json:
        logs.error(f"{prog}: crashed", {"exit_code": EXIT_CRASHED}, error)
    else:
        print(redact("".join(traceback.format_exception(error))), end="", file=sys.stderr)
    return EXIT_CRASHED


def report_line(logs: CommandLog, prog: str, message: str, code: int) -> int:
    """Print a line on standard error, or log it as JSON; return `code`."""
    line = f"{prog}: {to_one_line(redact(message))}"
    if logs.is_json:
        logs.error(line, {"exit_code": code})
    else:
        print(line, file=sys.stderr)
    return code
