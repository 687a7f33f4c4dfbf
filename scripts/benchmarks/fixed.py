"""Whole processes, from their starts to their ends: what a run costs before a row counts, and what many rows cost."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from scripts.benchmarks import engines
from scripts.benchmarks.data import Shape, generate
from scripts.benchmarks.timing import build_ratio_rows, compute_medians, format_table, run_in_turns, time_contender

JOB = Path(__file__).resolve().parents[2] / "jobs" / "mean_ndcg.py"
BARE = """
import sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
with builder.getOrCreate() as spark:
    spark.read.parquet(sys.argv[1]).count()
"""
SMALL = 43_000
DUCKDB = """
import sys, duckdb
with duckdb.connect() as engine:
    engine.execute("SET threads = 2")
    print(engine.execute(sys.argv[1]).fetchone()[0])
"""
JOINED = """
    (SELECT coalesce(query_id, judged.query_id) AS query_id, item_id, score, coalesce(relevance, 0) AS relevance
     FROM read_parquet('{run}/*') AS run FULL JOIN read_parquet('{judgments}/*') AS judged USING (query_id, item_id))
"""
WINDOWS = f"""
    SELECT sum(CASE WHEN score IS NOT NULL AND place <= {{k}}
                    THEN {engines.GAIN} / log2(place + 1) ELSE 0 END) AS dcg,
           sum(CASE WHEN best <= {{k}} THEN {engines.GAIN} / log2(best + 1) ELSE 0 END) AS idcg
    FROM (SELECT *, row_number() OVER (PARTITION BY query_id ORDER BY score DESC NULLS LAST, item_id) AS place,
                 row_number() OVER (PARTITION BY query_id ORDER BY relevance DESC) AS best FROM {JOINED})
    GROUP BY query_id
"""


def fixed_costs(rounds: int, scratch: Path) -> list[str]:
    """Return lines: a bare Spark job that reads and counts; the main job on each engine, with an output, too."""
    with tempfile.TemporaryDirectory() as folder:
        six = Path(folder) / "six.parquet"
        columns = {"query_id": [1, 1, 1, 2, 2, 2], "item_id": list(range(6)), "score": [0.9, 0.8, 0.7] * 2}
        pq.write_table(pa.table(columns | {"relevance": [2, 0, 1, 0, 0, 1]}), six)
        small = generate(Shape(rows=SMALL), scratch)
        rows = []
        for data, path in (("six rows", six), (f"{SMALL:,} rows", small)):
            processes = {"Spark that starts, reads and counts": [sys.executable, "-c", BARE, str(path)]}
            for engine in ("local", "spark"):
                named = [sys.executable, str(JOB), "--input", str(path), "--engine", engine]
                processes[f"mean-ndcg, {engine}"] = named
                output = str(Path(folder) / engine)
                processes[f"mean-ndcg, {engine}, with a metric table"] = [*named, "--output", output]
            rows += time_processes(data, processes, rounds)
    return format_table(("data", "process"), ("seconds", "to bare Spark"), rows)


def whole_processes(shapes: Sequence[Shape], k: int, rounds: int, folder: Path) -> list[str]:
    """Return table lines: the main job without Spark, and DuckDB, as whole processes."""
    rows = []
    for shape in shapes:
        path = generate(shape, folder)
        rows += time_processes(
            shape.title, against(engines.MAX_BY.format(path=f"{path}/*", k=k), k, "--input", path), rounds
        )
    run, judgments = apart(generate(shapes[0], folder))
    query = WINDOWS.format(run=run, judgments=judgments, k=k)
    command = against(query, k, "--input", run, "--judgments", judgments, "--ties", "item_asc")
    rows += time_processes("run + judgments", command, rounds)
    return format_table(("data", "process"), ("seconds", "to DuckDB"), rows)


def against(query: str, k: int, *arguments: object) -> dict[str, list[str]]:
    job = [sys.executable, str(JOB), "--engine", "local", "--k", str(k), *map(str, arguments)]
    return {"DuckDB": [sys.executable, "-c", DUCKDB, engines.MEAN.format(per_query=query)], "mean-ndcg, local": job}


def apart(path: Path) -> tuple[Path, Path]:
    """Divide rankings into a run and its judgments."""
    differences = []
    for name, value in (("run", "score"), ("judgments", "relevance")):
        target = path.with_name(f"{path.name}-{name}")
        if not target.exists():
            target.mkdir()
            copied = f"SELECT query_id, item_id, {value} FROM read_parquet('{path}/*')"
            duckdb.sql(f"COPY ({copied}) TO '{target}/part.parquet' (FORMAT parquet, ROW_GROUP_SIZE 1000000)")
        differences.append(target)
    return differences[0], differences[1]


def time_processes(data: str, processes: Mapping[str, Sequence[str]], rounds: int) -> list[tuple[str, ...]]:
    """Run processes in turns; ratios are to the first."""

    def run(command: Sequence[str]) -> None:
        subprocess.run(command, check=True, capture_output=True)

    runs = {name: time_contender(partial(run, command)) for name, command in processes.items()}
    seconds = compute_medians(run_in_turns(runs, rounds))
    return build_ratio_rows(data, seconds, next(iter(seconds)))
