"""What the demos share: a folder of their own, and commands that are shown and run as a user would type them."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

FOLDER = Path(".demo")


def own_folder(name: str) -> Path:
    """An empty folder `.demo/NAME`."""
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


def run(*command: object, expected: int = 0) -> None:
    """Show a command, run it, and end the demo if it ends otherwise than expected."""
    words = [str(word) for word in command]
    print(f"\n$ {shlex.join(words)}\n", flush=True)
    ended = subprocess.run(words, check=False)
    if ended.returncode != expected:
        print(f"scripts/demo: the command ended with exit code {ended.returncode}.", file=sys.stderr)
        raise SystemExit(ended.returncode)


def run_all(typed: list[list[str]], *, refusals: bool) -> int:
    """Print and run commands in one local Spark session, with the exit codes of those that do not end with 0."""
    from pyspark.sql import SparkSession

    from ndcg_spark.jobs.session import local_settings
    from ndcg_spark.main import main as ndcg_spark

    quiet = files("ndcg_spark.jobs") / "log4j2-quiet.properties"
    settings = local_settings(sys.executable, short_lists=True)
    settings |= {"spark.driver.extraJavaOptions": f'"-Dlog4j2.configurationFile={quiet}"'}
    spark = SparkSession.builder.appName("demo").config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        for one in typed:
            print(f"\n$ ndcg-spark {shlex.join(one)}", flush=True)
            ended = ndcg_spark(one)
            if ended:
                print(f"(exit code {ended})", flush=True)
            if ended not in (0, 3) and not (refusals and ended == 2):
                return ended
    finally:
        spark.stop()
    return 0
