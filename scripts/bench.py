"""Time mean NDCG@10 by this library's public path and by other engines, on the same files in the same run.

Machines are shared and noisy: contenders take turns, medians are given, and the ratio to DuckDB's best query is
what counts. Writes a Markdown table.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import pyspark
from bench_data import Shape, generate
from pyspark.sql import SparkSession

import ndcg_spark

Contender = Callable[[Path], float]
REFERENCE = "DuckDB, max_by(x, y, k)"


def main() -> None:
    arguments = parser().parse_args()
    spark = make_session(arguments.memory)
    contenders = all_contenders(spark, arguments.k)
    lines = [heading(arguments), "| data | contender | seconds | to DuckDB max_by |", "| --- | --- | ---: | ---: |"]
    for shuffled in (False, True):
        shape = Shape(rows=arguments.rows, items=arguments.items, shuffled=shuffled, ids=arguments.ids)
        path = generate(shape, arguments.folder)
        seconds = race(contenders, path, arguments.rounds)
        where = "shuffled" if shuffled else "a query's rows together"
        for name, taken in seconds.items():
            ratio = taken / seconds[REFERENCE]
            lines.append(f"| {where} | {name} | {taken:.2f} | {ratio:.2f} |")
    spark.stop()
    print("\n".join(lines))


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rows", type=int, default=20_000_000)
    options.add_argument("--items", type=int, default=100, help="per query")
    options.add_argument("--ids", choices=["integer", "string"], default="integer")
    options.add_argument("--k", type=int, default=10)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--memory", default="4g", help="heap of the JVM, and limit of DuckDB")
    options.add_argument("--folder", type=Path, default=Path(".bench"), help="where generated files are kept")
    return options


def make_session(memory: str) -> SparkSession:
    builder = SparkSession.builder.master("local[2]").appName("ndcg-spark bench")
    settings = {
        "spark.driver.memory": memory,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "8",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }
    return builder.config(map=settings).getOrCreate()


def all_contenders(spark: SparkSession, k: int) -> dict[str, Contender]:
    def library(**options: object) -> Contender:
        def run(path: Path) -> float:
            found = ndcg_spark.evaluate(spark.read.parquet(str(path)), k=k, **options)
            rows = found.summary.where("metric = 'ndcg'").collect()
            return float(rows[0]["value"])

        return run

    return {
        "ndcg-spark, top-K aggregate": library(way="top_k"),
        "ndcg-spark, window": library(way="window"),
        "ndcg-spark, rank given": library(rank="rank"),
        REFERENCE: lambda path: in_duckdb(MAX_BY, path, k),
        "DuckDB, two windows": lambda path: in_duckdb(TWO_WINDOWS, path, k),
        "DuckDB, rank given": lambda path: in_duckdb(RANK_GIVEN, path, k),
    }


GAIN = "(pow(2, relevance) - 1)"
MAX_BY = """
    SELECT avg(CASE WHEN idcg > 0 THEN dcg / idcg ELSE 0 END) FROM (
        SELECT list_sum(list_transform(max_by(relevance, score, {k}),
                                       lambda r, i: (pow(2, r) - 1) / log2(i + 1))) AS dcg,
               list_sum(list_transform(max(relevance, {k}), lambda r, i: (pow(2, r) - 1) / log2(i + 1))) AS idcg
        FROM read_parquet('{path}') GROUP BY query_id)
"""
TWO_WINDOWS = f"""
    SELECT avg(CASE WHEN idcg > 0 THEN dcg / idcg ELSE 0 END) FROM (
        SELECT sum(CASE WHEN place <= {{k}} THEN {GAIN} / log2(place + 1) ELSE 0 END) AS dcg,
               sum(CASE WHEN best <= {{k}} THEN {GAIN} / log2(best + 1) ELSE 0 END) AS idcg
        FROM (SELECT query_id, relevance,
                     row_number() OVER (PARTITION BY query_id ORDER BY score DESC, item_id) AS place,
                     row_number() OVER (PARTITION BY query_id ORDER BY relevance DESC) AS best
              FROM read_parquet('{{path}}'))
        GROUP BY query_id)
"""
RANK_GIVEN = f"""
    SELECT avg(CASE WHEN idcg > 0 THEN dcg / idcg ELSE 0 END) FROM (
        SELECT sum(CASE WHEN rank <= {{k}} THEN {GAIN} / log2(rank + 1) ELSE 0 END) AS dcg,
               list_sum(list_transform(max(relevance, {{k}}), lambda r, i: (pow(2, r) - 1) / log2(i + 1))) AS idcg
        FROM read_parquet('{{path}}') GROUP BY query_id)
"""


def in_duckdb(query: str, path: Path, k: int) -> float:
    with duckdb.connect() as engine:
        engine.execute("SET threads = 2")
        found = engine.execute(query.format(path=path, k=k)).fetchone()
    assert found is not None
    return float(found[0])


def race(contenders: dict[str, Contender], path: Path, rounds: int) -> dict[str, float]:
    """Median seconds of each; every round runs all of them, the order turned by one. One more round warms up."""
    names = list(contenders)
    taken: dict[str, list[float]] = {name: [] for name in names}
    values: dict[str, float] = {}
    for turn in range(rounds + 1):
        at = turn % len(names)
        for name in names[at:] + names[:at]:
            began = time.perf_counter()
            values[name] = contenders[name](path)
            seconds = time.perf_counter() - began
            if turn:
                taken[name].append(seconds)
            print(f"{path.name} {name}: {seconds:.2f} s, {values[name]:.12f}", file=sys.stderr, flush=True)
    return {name: statistics.median(seconds) for name, seconds in taken.items()}


def heading(arguments: argparse.Namespace) -> str:
    return (
        f"Mean NDCG@{arguments.k}, {arguments.rows:,} rows, {arguments.items} items a query, {arguments.ids} ids, "
        f"local[2], {arguments.memory} heap, median of {arguments.rounds}; ndcg-spark {ndcg_spark.__version__}, "
        f"Spark {pyspark.__version__}, DuckDB {duckdb.__version__}, Python {platform.python_version()}; "
        f"`scripts/bench {' '.join(sys.argv[1:])}`".rstrip()
        + "\n"
    )


if __name__ == "__main__":
    main()
