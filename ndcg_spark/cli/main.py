"""Entry point of the console command and of `jobs/`: exit codes, and errors in one line."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from contextlib import closing

import click

from ndcg_spark._version import __version__
from ndcg_spark.cli.build_judgments import build_judgments
from ndcg_spark.cli.business_link import business_link
from ndcg_spark.cli.compare_runs import compare_runs
from ndcg_spark.cli.conventions import conventions
from ndcg_spark.cli.diagnose import diagnose
from ndcg_spark.cli.flag_changes import flag_changes
from ndcg_spark.cli.interrupts import TerminatedError
from ndcg_spark.cli.logs import Logs, form_asked_for
from ndcg_spark.cli.make_report import report
from ndcg_spark.cli.mean_ndcg import mean_ndcg
from ndcg_spark.cli.metrics import metrics
from ndcg_spark.cli.position_bias import position_bias
from ndcg_spark.cli.printing import lasting_output
from ndcg_spark.cli.retrieve import retrieve
from ndcg_spark.cli.roll_up import roll_up
from ndcg_spark.errors import NdcgSparkError, PartlyWrittenError, find_refusal, one_line
from ndcg_spark.redaction import redacted

EXIT_DONE, EXIT_CRASHED, EXIT_REFUSED, EXIT_GATE, EXIT_INTERRUPTED = 0, 1, 2, 3, 130
EXIT_TERMINATED = 143


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="ndcg-spark")
def cli() -> None:
    """Evaluate rankings on Apache Spark: NDCG of every query, and its mean per ranker and segment."""


cli.add_command(mean_ndcg)
cli.add_command(retrieve)
cli.add_command(compare_runs)
cli.add_command(diagnose)
cli.add_command(build_judgments)
cli.add_command(position_bias)
cli.add_command(report)
cli.add_command(business_link)
cli.add_command(roll_up)
cli.add_command(flag_changes)
cli.add_command(conventions)
cli.add_command(metrics)


def main(argv: Sequence[str] | None = None, *, prog: str = "ndcg-spark") -> int:
    """Run a command and say how it ended.

    Parameters
    ----------
    argv : sequence of str or None
        Arguments; None takes those of the process.
    prog : str
        What the program is called in messages.

    Returns
    -------
    int
        0 done, 2 refused input or options, 3 gate not met, 130 interrupted, 143 terminated by SIGTERM; 1 a crash,
        whose traceback is on standard error, or an output that is partly written.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    with closing(Logs()) as logs, lasting_output(prog):
        logs.use(form_asked_for(arguments))
        for one in arguments:
            if not one.isascii() and one != one.encode(errors="replace").decode():
                return _ended(logs, prog, f"argument {one!r} is not valid UTF-8.", EXIT_REFUSED)
        try:
            result = cli.main(arguments, prog_name=prog, standalone_mode=False, obj=logs)
        except click.ClickException as error:
            return _ended(logs, prog, error.format_message(), EXIT_REFUSED)
        except PartlyWrittenError as error:
            return _ended(logs, prog, str(error), EXIT_CRASHED)
        except NdcgSparkError as error:
            return _ended(logs, prog, find_refusal(str(error)) or str(error), EXIT_REFUSED)
        except TerminatedError:
            return _ended(logs, prog, "terminated", EXIT_TERMINATED)
        except (click.Abort, KeyboardInterrupt):
            return _ended(logs, prog, "interrupted", EXIT_INTERRUPTED)
        except Exception as error:
            if logs.is_json:
                logs.error(f"{prog}: crashed", {"exit_code": EXIT_CRASHED}, error)
            else:
                print(redacted("".join(traceback.format_exception(error))), end="", file=sys.stderr)
            return EXIT_CRASHED
    return result if isinstance(result, int) else EXIT_DONE


def _ended(logs: Logs, prog: str, message: str, code: int) -> int:
    """Say in one line why a command ended early."""
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
