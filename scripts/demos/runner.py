"""What the demos share: a folder of their own, and commands that are shown and run as a user would type them."""

from __future__ import annotations

import io
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Collection, Mapping
from contextlib import nullcontext, redirect_stdout
from importlib.resources import files
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

FOLDER = Path(".demo")


def create_folder(name: str) -> Path:
    """Create an empty folder `.demo/NAME`."""
    folder = FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def write(table: pa.Table, path: Path, what: str) -> Path:
    """Write a table as one parquet file and say so."""
    pq.write_table(table, path)
    print(f"Wrote {table.num_rows:,} {what} to {path}.")
    return path


def explain(text: str) -> None:
    """Print a paragraph."""
    print(f"\n{text.strip()}", flush=True)


def run(*words: object, most: int | None = None) -> int:
    """Show a command of the package, and run it in a process of its own; the demo ends with a command that fails.

    `most`: lines that are shown. Gives the exit code: 0, or 3 of a gate that is not met.
    """
    typed = [str(word) for word in words]
    print(f"$ ndcg-spark {shlex.join(typed)}", flush=True)
    out = None if most is None else subprocess.PIPE
    ended = subprocess.run([sys.executable, "-m", "ndcg_spark", *typed], check=False, stdout=out, text=True)
    if most is not None:
        show(ended.stdout, most)
    if ended.returncode:
        print(f"(exit code {ended.returncode})", flush=True)
    if ended.returncode not in (0, 3):
        raise SystemExit(ended.returncode)
    return ended.returncode


def run_in(folder: Path, *words: object, hidden: str, codes: Collection[int] = (0,)) -> str:
    """Show a command of the package, run it in a folder, print its exit code, and return what it printed.

    Of results and logs, in the order in which they come, lines in which the pattern `hidden` is found are counted
    instead of shown; the file `output.txt` of the folder has all. Another exit code than `codes` ends the demo.
    """
    typed = [str(word) for word in words]
    title = f"$ ndcg-spark {shlex.join(typed)}\n"
    print(f"\n{title}", end="", flush=True)
    lines: list[str] = []
    n_hidden = 0
    command = [sys.executable, "-u", "-m", "ndcg_spark", *typed]
    with (
        (folder / "output.txt").open("a", encoding="utf-8") as whole,
        subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process,
    ):
        whole.write(title)
        for line in process.stdout or ():
            lines.append(line)
            whole.write(line)
            if re.search(hidden, line):
                n_hidden += 1
            else:
                print(line, end="", flush=True)
    more = f"; {n_hidden:,} more lines are in {folder}/output.txt" if n_hidden else ""
    print(f"(exit code {process.returncode}{more})", flush=True)
    if process.returncode not in codes:
        raise SystemExit(process.returncode)
    return "".join(lines)


def show(output: str, most: int) -> None:
    """Print the first lines of what a command printed, and say how many there are more."""
    lines = output.splitlines()
    shown, more = lines[:most], len(lines) - most
    if more == 1:
        shown = lines
    elif more > 1:
        shown.append(f"... and {more:,} more lines" if shown else f"... {more:,} lines")
    print("\n".join(shown))


def run_commands(typed: list[list[str]], *, refusals: bool, most: Mapping[str, int] | None = None) -> int:
    """Print and run commands in one local Spark session, with the exit codes of those that do not end with 0.

    With `most`, the first two lines of what each prints are shown, or as many as it says by the name of the command;
    and of commands of one name that follow each other, such as those of several nights, the first and the last.
    """
    from pyspark.sql import SparkSession

    from ndcg_spark.jobs.session import build_local_settings
    from ndcg_spark.main import main as ndcg_spark

    quiet = files("ndcg_spark.jobs") / "log4j2-quiet.properties"
    settings = build_local_settings(sys.executable, long_rows=False)
    settings |= {"spark.driver.extraJavaOptions": f'"-Dlog4j2.configurationFile={quiet}"'}
    spark = SparkSession.builder.appName("demo").config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    passed_over = False
    try:
        for position, command in enumerate(typed):
            around = [other[0] for other in typed[max(position - 1, 0) : position + 2]]
            is_between = most is not None and around == [command[0]] * 3
            if is_between:
                print("" if passed_over else "... and so on, night by night\n", end="", flush=True)
                with redirect_stdout(io.StringIO()):
                    ended = ndcg_spark(command)
            else:
                print(f"\n$ ndcg-spark {shlex.join(command)}", flush=True)
                with redirect_stdout(io.StringIO()) if most is not None else nullcontext() as out:
                    ended = ndcg_spark(command)
                if most is not None and out is not None:
                    show(out.getvalue(), most.get(command[0], 2))
            passed_over = is_between
            if ended:
                print(f"(exit code {ended})", flush=True)
            if ended not in (0, 3) and not (refusals and ended == 2):
                return ended
    finally:
        spark.stop()
    return 0
