"""Time mean NDCG@k by this library's public path and by other engines, on the same files in the same run.

Machines are shared and noisy: contenders take turns, medians are given, and ratios to DuckDB's best query are what
counts. Rounds before that warm up. Writes a Markdown table, with versions and the command.
"""

from __future__ import annotations

import argparse
import platform
import shlex
import sys
from collections.abc import Callable
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pyspark.sql import SparkSession

import ndcg_spark
from scripts.benchmarks import engines
from scripts.benchmarks import spark as on_spark
from scripts.benchmarks.beside import Beside
from scripts.benchmarks.compare import compare_lines
from scripts.benchmarks.data import KINDS, Shape, generate
from scripts.benchmarks.fixed import fixed_costs, whole_processes
from scripts.benchmarks.judgments import judgment_lines
from scripts.benchmarks.memory import PeakMemory, measure_others, measure_spark
from scripts.benchmarks.nightly import night_costs, nightly_costs
from scripts.benchmarks.retrieval import retrieval_lines
from scripts.benchmarks.steps import steps, time_steps
from scripts.benchmarks.timing import (
    Contender,
    build_ratio_rows,
    compute_medians,
    format_table,
    run_in_turns,
    time_contender,
)

REFERENCE = "DuckDB, max_by(x, y, k)"
READ, PATH, OFF = "read by Spark", "path given", "duplicate check off"
QUERIES = {
    REFERENCE: engines.MAX_BY,
    "DuckDB, two windows": engines.TWO_WINDOWS,
    "DuckDB, rank given": engines.RANK_GIVEN,
}
BINARY = "mllib_binary;ties=item_asc"
RIVALS = ("ours", "engines", "spark")


def main() -> None:
    arguments = build_parser().parse_args()
    lines = WHAT[arguments.what](arguments)
    print("\n".join([heading(arguments), *lines]))


def build_parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(
        prog="scripts/bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("what", nargs="?", choices=WHAT, default="means", help="scripts/benchmarks/README.md tells")
    options.add_argument("--rows", type=int, default=20_000_000)
    options.add_argument("--items", type=int, default=100, help="per query")
    options.add_argument("--ids", choices=["integer", "string"], default="integer")
    options.add_argument("--kind", choices=KINDS, default="even", help="what the rows look like")
    options.add_argument("--order", nargs="+", choices=["clustered", "shuffled"], default=["clustered", "shuffled"])
    options.add_argument("--k", type=int, default=10)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--warm-ups", type=int, default=1, help="rounds before those that count")
    options.add_argument("--rivals", nargs="+", choices=RIVALS, default=["ours", "engines"])
    options.add_argument(
        "--only", nargs="+", default=[], help="contenders or steps whose names have one of these texts"
    )
    options.add_argument(
        "--session", choices=["job", "plain"], default="job", help="that of our jobs, or Spark's own"
    )
    options.add_argument("--memory", default="4g", help="heap of the JVM")
    options.add_argument("--engine-memory", default="4g", help="limit of DuckDB, which needs 6g for a billion rows")
    options.add_argument("--beside", type=Path, help="checkout of an earlier version, timed in the same run")
    options.add_argument("--folder", type=Path, default=Path(".bench"), help="where generated files are kept")
    return options


def generate_data(order: str, arguments: argparse.Namespace) -> tuple[Shape, Path]:
    shape = build_shape(order, arguments)
    return shape, generate(shape, arguments.folder)


def build_shape(order: str, arguments: argparse.Namespace) -> Shape:
    return Shape(rows=arguments.rows, items=arguments.items, order=order, ids=arguments.ids, kind=arguments.kind)


def time_means(spark: SparkSession, arguments: argparse.Namespace) -> list[str]:
    rows = []
    for order in arguments.order:
        shape, path = generate_data(order, arguments)
        rows += race(all_contenders(spark, path, arguments), shape, arguments.rounds, warm_ups=arguments.warm_ups)
    return format_table(("data", "contender"), ("seconds", "to DuckDB max_by", "peak memory, GB"), rows)


def time_engine_steps(spark: SparkSession, arguments: argparse.Namespace) -> list[str]:
    path = generate_data(arguments.order[0], arguments)[1]
    rows = spark.read.parquet(str(path))
    frames = steps(rows, str(path), arguments.k)
    wanted = {name: frame for name, frame in frames.items() if is_wanted(name, arguments)}
    others = {name: contender for name, contender in by_duckdb(path, arguments).items() if is_wanted(name, arguments)}
    return time_steps(spark, wanted, others, arguments.rounds, warm_ups=arguments.warm_ups)


def time_nightly(spark: SparkSession, arguments: argparse.Namespace) -> list[str]:
    path = generate_data(arguments.order[0], arguments)[1]
    return nightly_costs(spark, path, arguments.folder, arguments.k, arguments.rounds)


def time_whole_processes(arguments: argparse.Namespace) -> list[str]:
    shapes = [build_shape(order, arguments) for order in arguments.order]
    return whole_processes(shapes, arguments.k, arguments.rounds, arguments.folder)


def with_session(work: Callable[[SparkSession, argparse.Namespace], list[str]]) -> Callable[..., list[str]]:
    """Wrap a benchmark so that it gets a new session."""

    def run(arguments: argparse.Namespace) -> list[str]:
        spark = on_spark.make_session(arguments.memory, arguments.k, arguments.session)
        lines = work(spark, arguments)
        spark.stop()
        return lines

    return run


WHAT: dict[str, Callable[[argparse.Namespace], list[str]]] = {
    "means": with_session(time_means),
    "steps": with_session(time_engine_steps),
    "nightly": with_session(time_nightly),
    "night": lambda given: night_costs(given.folder, given.rounds, given.warm_ups),
    "retrieval": with_session(lambda spark, given: retrieval_lines(spark, given.rows, given.folder, given.rounds)),
    "judgments": with_session(lambda spark, given: judgment_lines(spark, given.rows, given.folder, given.rounds)),
    "fixed": lambda given: fixed_costs(given.rounds, given.folder),
    "whole": time_whole_processes,
    "compare": lambda given: compare_lines(given.rows, given.rounds, given.memory, given.folder),
}


def is_wanted(name: str, arguments: argparse.Namespace) -> bool:
    return not arguments.only or any(text in name for text in arguments.only)


def by_duckdb(path: Path, arguments: argparse.Namespace) -> dict[str, Contender]:
    query_arguments = (str(path), arguments.k, arguments.engine_memory)
    return {
        name: partial(engines.run_in_process, "duckdb", engines.run_duckdb, query, *query_arguments)
        for name, query in QUERIES.items()
    }


def on_table(spark: SparkSession, path: Path, k: int) -> Callable[..., Contender]:
    """Make contenders of functions of a table and k."""

    def contender(work: Callable[..., float], *, by_path: bool = False, **options: object) -> Contender:
        return time_contender(lambda: work(str(path) if by_path else spark.read.parquet(str(path)), k, **options))

    return contender


def our_contenders(contender: Callable[..., Contender]) -> dict[str, Contender]:
    library, off, ranked = on_spark.by_library, {"check_duplicates": "none"}, {"rank": "rank"}
    by_item, judged = {"convention": "default;ties=item_asc"}, on_spark.by_library_with_judgments
    return {
        f"{READ}, as by default": contender(library),
        f"{READ}, {OFF}": contender(library, **off),
        f"{READ}, ties by item": contender(library, **by_item),
        f"{READ}, ties by item, {OFF}": contender(library, **by_item, **off),
        f"{READ}, rank given, {OFF}": contender(library, **ranked, **off),
        f"{READ}, run + judgments": contender(judged),
        f"{READ}, run + judgments, {OFF}": contender(judged, **off),
        f"{READ}, six cutoffs": contender(on_spark.by_library_with_six_cutoffs),
        f"{READ}, ten metrics, {OFF}": contender(on_spark.by_library_with_ten_metrics, **off),
        f"{PATH}, ten metrics, {OFF}": contender(on_spark.by_library_with_ten_metrics, by_path=True, **off),
        f"{READ}, window, {OFF}": contender(library, strategy="window", **off),
        f"{PATH}, as by default": contender(library, by_path=True),
        f"{PATH}, {OFF}": contender(library, by_path=True, **off),
        f"{PATH}, ties by item, {OFF}": contender(library, by_path=True, **by_item, **off),
        f"{PATH}, rank given, {OFF}": contender(library, by_path=True, **ranked, **off),
    }


def all_contenders(spark: SparkSession, path: Path, arguments: argparse.Namespace) -> dict[str, Contender]:
    k = arguments.k
    contender = on_table(spark, path, k)
    ours = our_contenders(contender)
    if arguments.beside is not None:
        ours |= beside_contenders(arguments, path)
    others = by_duckdb(path, arguments)
    others["Polars, streaming"] = partial(engines.run_in_process, "polars", engines.in_polars, str(path), k)
    peers = {
        f"{READ}, binary": contender(on_spark.by_library, convention=BINARY),
        f"{READ}, binary, {OFF}": contender(on_spark.by_library, convention=BINARY, check_duplicates="none"),
        "aggregate ndcg_at on Spark": contender(on_spark.by_aggregate),
        "window code on Spark": contender(on_spark.by_window_code),
        "pyspark.ml RankingEvaluator (binary)": contender(on_spark.by_ml_evaluator),
        "MLlib RankingMetrics (binary)": contender(on_spark.by_mllib),
        "recommenders SparkRankingEvaluation (binary)": contender(on_spark.by_recommenders),
    }
    contenders = {REFERENCE: others[REFERENCE]}
    for rival, group in zip(RIVALS, (ours, others, peers), strict=True):
        contenders |= group if rival in arguments.rivals else {}
    return {name: work for name, work in contenders.items() if name == REFERENCE or is_wanted(name, arguments)}


def beside_contenders(arguments: argparse.Namespace, path: Path) -> dict[str, Contender]:
    """Return contenders that run the package of another checkout in a session of its own."""
    other = Beside(arguments.beside, arguments.memory)
    contender = partial(partial, other.seconds, str(path), arguments.k)
    off = {"check_duplicates": "none"}
    return {
        f"beside, as by default, {OFF}": contender(off),
        f"beside, window, {OFF}": contender({"strategy": "window", **off}),
        f"beside, rank given, {OFF}": contender({"rank": "rank", **off}),
    }


def race(contenders: dict[str, Contender], shape: Shape, rounds: int, *, warm_ups: int) -> list[tuple[str, ...]]:
    """Return rows of the table, with the memory of each contender."""
    alone = ("DuckDB", "Polars")
    memory = {name: PeakMemory(measure_others if name.startswith(alone) else measure_spark) for name in contenders}
    watched = {name: memory[name].around(contender) for name, contender in contenders.items()}
    print(shape.name, file=sys.stderr)
    seconds = compute_medians(run_in_turns(watched, rounds, warm_ups=warm_ups))
    rows = build_ratio_rows(shape.title, seconds, REFERENCE, digits=2)
    return [(*row, f"{memory[row[1]].gigabytes:.1f}") for row in rows]


def heading(arguments: argparse.Namespace) -> str:
    versions = []
    for package in ("pyspark", "numpy", "duckdb", "polars", "recommenders", "faiss-cpu"):
        try:
            versions.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    data = f"{arguments.rows:,} rows, {arguments.items} items a query, {arguments.ids} ids"
    others = {
        "fixed": "Whole processes",
        "night": "A night of the demo",
        "retrieval": "Retrieval",
        "judgments": "Judgments",
        "compare": "Comparisons",
    }
    what = others.get(arguments.what, f"Mean NDCG@{arguments.k}, {data}")
    return (
        f"{what}, {arguments.session} session, {arguments.memory} heap, median of {arguments.rounds}; "
        f"ndcg-spark {ndcg_spark.__version__}, {', '.join(versions)}, Python {platform.python_version()}; "
        f"`{shlex.join(['scripts/bench', *sys.argv[1:]])}`\n"
    )


if __name__ == "__main__":
    main()
