"""Entry point of the console command and of `jobs/`: exit codes, and errors in one line."""

from __future__ import annotations

import io
import sys
import traceback
from collections.abc import Sequence
from contextlib import closing, redirect_stderr
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version

import click

from ndcg_spark.cli.flags import with_flags
from ndcg_spark.cli.interrupts import TerminatedError
from ndcg_spark.cli.logs import Logs, form_asked_for
from ndcg_spark.cli.printing import lasting_streams
from ndcg_spark.errors import MissingPackageError, NdcgSparkError, PartlyWrittenError, find_refusal, one_line, text_of
from ndcg_spark.redaction import redacted

EXIT_DONE, EXIT_CRASHED, EXIT_REFUSED, EXIT_GATE, EXIT_INTERRUPTED = 0, 1, 2, 3, 130
EXIT_TERMINATED = 143
_NEEDED = ("numpy", "pyarrow", "pandas", "pyspark", "rich")
"""What commands import."""


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
    with closing(Logs()) as logs, lasting_streams(prog):
        logs.use(form_asked_for(arguments))
        for one in arguments:
            if not one.isascii() and one != one.encode(errors="replace").decode():
                return _ended(logs, prog, f"argument {one!r} is not valid UTF-8.", EXIT_REFUSED)
        try:
            result = _commands().main(arguments, prog_name=prog, standalone_mode=False, obj=logs)
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


def _commands() -> click.Group:
    """Import the commands, here, as packages that do not fit together are a line, too."""
    try:
        with redirect_stderr(io.StringIO()):  # NumPy prints stacks about modules that were made for another one
            from ndcg_spark.cli.commands import cli
    except Exception:
        for name in _NEEDED:
            refused = _refused_import(name)
            if refused is not None:
                raise refused from None
        raise
    return cli


def _refused_import(name: str) -> MissingPackageError | None:
    """Say why a package cannot be imported; None if it can."""
    try:
        with redirect_stderr(io.StringIO()):
            import_module(name)
    except Exception as error:
        try:
            installed = f"{name} {version(name)}"
        except PackageNotFoundError:
            extra, note = ("[spark]", " (not on Databricks, which has its own)") if name == "pyspark" else ("", "")
            return MissingPackageError(f"{name} is not installed: pip install 'ndcg-spark{extra}'{note}.")
        why = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        numpy = f" with NumPy {version('numpy')}" if name != "numpy" else ""
        return MissingPackageError(
            f"{installed} cannot be imported{numpy} ({why.rstrip('.')}): pip install --upgrade {name}, or the "
            "packages that it was made for."
        )
    return None


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
