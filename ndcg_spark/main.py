"""Entry point of the console command and of `jobs/`: exit codes, and errors in one line."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from contextlib import closing

import click

from ndcg_spark.commands import cli
from ndcg_spark.core.redaction import redacted
from ndcg_spark.errors import NdcgSparkError, PartlyWrittenError, find_refusal, one_line, text_of
from ndcg_spark.jobs.interrupts import TerminatedError
from ndcg_spark.jobs.logs import Logs, form_asked_for
from ndcg_spark.jobs.options import with_flags
from ndcg_spark.jobs.printing import lasting_streams

EXIT_DONE, EXIT_CRASHED, EXIT_REFUSED, EXIT_INTERRUPTED = 0, 1, 2, 130
EXIT_TERMINATED = 143


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
