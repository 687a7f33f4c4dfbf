"""How a command ended: its exit code, and a line about what ended it early."""

from __future__ import annotations

import sys
import traceback
from typing import Final

import click

from ndcg_spark.core.redaction import redacted
from ndcg_spark.errors import NdcgSparkError, PartlyWrittenError, find_refusal, one_line, text_of
from ndcg_spark.jobs.interrupts import TerminatedError
from ndcg_spark.jobs.logs import Logs
from ndcg_spark.jobs.options import with_flags

DONE: Final = 0
CRASHED: Final = 1
REFUSED: Final = 2
GATE_NOT_MET: Final = 3
INTERRUPTED: Final = 130
TERMINATED: Final = 143
_RANKS = (INTERRUPTED, TERMINATED, CRASHED, REFUSED, GATE_NOT_MET, DONE)


def worst(codes: list[int]) -> int:
    """Choose the exit code of several jobs: a crash outranks a refusal, as nobody knows what it left."""
    return min(codes, key=_RANKS.index, default=DONE)


def tell_end(error: BaseException, logs: Logs, prog: str) -> int:
    """Report in one line, or by a traceback, why a command ended early; return its exit code."""
    if isinstance(error, click.ClickException):
        return tell(logs, prog, error.format_message(), REFUSED)
    if isinstance(error, PartlyWrittenError):
        return tell(logs, prog, with_flags(text_of(error)), CRASHED)
    if isinstance(error, NdcgSparkError):
        message = text_of(error)
        return tell(logs, prog, with_flags(find_refusal(message) or message), REFUSED)
    if isinstance(error, click.Abort | KeyboardInterrupt):  # click turns the latter into the former
        if isinstance(error.__cause__ or error, TerminatedError):
            return tell(logs, prog, "terminated", TERMINATED)
        return tell(logs, prog, "interrupted", INTERRUPTED)
    if logs.is_json:
        logs.error(f"{prog}: crashed", {"exit_code": CRASHED}, error)
    else:
        print(redacted("".join(traceback.format_exception(error))), end="", file=sys.stderr)
    return CRASHED


def tell(logs: Logs, prog: str, message: str, code: int) -> int:
    """Print one line, and return an exit code."""
    line = f"{prog}: {one_line(redacted(message))}"
    if logs.is_json:
        logs.error(line, {"exit_code": code})
    else:
        print(line, file=sys.stderr)
    return code
