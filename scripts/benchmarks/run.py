"""Time mean NDCG@k by this library's public path and by other engines, on the same files in the same run.

Machines are shared and noisy: contenders take turns, medians are given, and ratios to DuckDB's best query are what
counts. Rounds before that warm up. Writes a Markdown table, with versions and the command.
"""

from __future__ import annotations

import argparse
import platform
import shlex
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pyspark.sql import SparkSession

import ndcg_spark
from scripts.benchmarks import engines
from scripts.benchmarks import spark as on_spark
from scripts.benchmarks.beside import Beside
from scripts.benchmarks.data import KINDS, Shape, generate
from scripts.benchmarks.fixed import fixed_costs, whole_processes
from scripts.benchmarks.judgments import judgment_lines
from scripts.benchmarks.memory import PeakMemory
from scripts.benchmarks.nightly import nightly_costs
from scripts.benchmarks.retrieval import retrieval_lines
from scripts.benchmarks.steps import steps, time_steps

Contender = Callable[[], tuple[float, float]]
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
    arguments = parser().parse_args()
    if arguments.fixed:
        print("\n".join([heading(arguments), *fixed_costs(arguments.rounds, arguments.folder)]))
        return
    if arguments.whole:
        shapes = [shape_of(order, arguments) for order in arguments.order]
        print(
            "\n".join([heading(arguments), *whole_processes(shapes, arguments.k, arguments.rounds, arguments.folder)])
        )
        return
    spark = on_spark.make_session(arguments.memory, arguments.k)
    if arguments.retrieval or arguments.judgments:
        make = retrieval_lines if arguments.retrieval else judgment_lines
        print("\n".join([heading(arguments), *make(spark, arguments.rows, arguments.folder, arguments.rounds)]))
        spark.stop()
        return
    if arguments.nightly:
        path = data_of(arguments.order[0], arguments)[1]
        costs = nightly_costs(spark, path, arguments.folder, arguments.k, arguments.rounds)
        print("\n".join([heading(arguments), *costs]))
        spark.stop()
        return
    if arguments.steps:
        print("\n".join([heading(arguments), *steps_of(spark, arguments)]))
        spark.stop()
        return
    lines = [heading(arguments), "| data | contender | seconds | to DuckDB max_by | peak memory, GB |"]
    lines.append("| --- | --- | ---: | ---: | ---: |")
    for order in arguments.order:
        shape, path = data_of(order, arguments)
        lines += race(all_contenders(spark, path, arguments), shape, arguments.rounds, warm_ups=arguments.warm_ups)
    spark.stop()
    print("\n".join(lines))


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rows", type=int, default=20_000_000)
    options.add_argument("--items", type=int, default=100, help="per query")
    options.add_argument("--ids", choices=["integer", "string"], default="integer")
    options.add_argument("--kind", choices=KINDS, default="even", help="what the rows look like")
    options.add_argument("--order", nargs="+", choices=["clustered", "shuffled"], default=["clustered", "shuffled"])
    options.add_argument("--k", type=int, default=10)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--warm-ups", type=int, default=1, help="rounds before those that count")
    options.add_argument("--fixed", action="store_true", help="time whole processes on small tables instead")
    options.add_argument("--whole", action="store_true", help="time whole processes without Spark on --rows instead")
    options.add_argument(
        "--steps", action="store_true", help="time what ranking takes, operation by operation, instead"
    )
    options.add_argument("--rivals", nargs="+", choices=RIVALS, default=["ours", "engines"])
    options.add_argument("--retrieval", action="store_true", help="time the 100 nearest of --rows items instead")
    options.add_argument("--judgments", action="store_true", help="time judgments from --rows events instead")
    options.add_argument("--nightly", action="store_true", help="time the job and its outputs on --rows rows instead")
    options.add_argument(
        "--only", nargs="+", default=[], help="contenders or steps whose names have one of these texts"
    )
    options.add_argument("--memory", default="4g", help="heap of the JVM")
    options.add_argument("--engine-memory", default="4g", help="limit of DuckDB, which needs 6g for a billion rows")
    options.add_argument("--beside", type=Path, help="checkout of an earlier version, timed in the same run")
    options.add_argument("--folder", type=Path, default=Path(".bench"), help="where generated files are kept")
    return options


def data_of(order: str, arguments: argparse.Namespace) -> tuple[Shape, Path]:
    shape = shape_of(order, arguments)
    return shape, generate(shape, arguments.folder)


def shape_of(order: str, arguments: argparse.Namespace) -> Shape:
    return Shape(rows=arguments.rows, items=arguments.items, order=order, ids=arguments.ids, kind=arguments.kind)


def steps_of(spark: SparkSession, arguments: argparse.Namespace) -> list[str]:
    path = data_of(arguments.order[0], arguments)[1]
    k, rows = arguments.k, spark.read.parquet(str(path))

    def seconds(query: str) -> float:
        return engines.in_own_process(engines.in_duckdb, query, str(path), k, arguments.engine_memory)[1]

    frames = {name: frame for name, frame in steps(rows, str(path), k).items() if is_wanted(name, arguments)}
    others = {name: partial(seconds, query) for name, query in QUERIES.items() if is_wanted(name, arguments)}
    return time_steps(spark, frames, others, arguments.rounds, warm_ups=arguments.warm_ups)


def is_wanted(name: str, arguments: argparse.Namespace) -> bool:
    return not arguments.only or any(text in name for text in arguments.only)


def stopwatch(spark: SparkSession, path: Path, k: int) -> Callable[..., Contender]:
    """Make contenders of functions of a table and k."""

    def timed(work: Callable[..., float], *, by_path: bool = False, **options: object) -> Contender:
        def run() -> tuple[float, float]:
            began = time.perf_counter()
            value = work(str(path) if by_path else spark.read.parquet(str(path)), k, **options)
            return value, time.perf_counter() - began

        return run

    return timed


def our_contenders(timed: Callable[..., Contender]) -> dict[str, Contender]:
    library, off, ranked = on_spark.by_library, {"check_duplicates": "none"}, {"rank": "rank"}
    by_item, judged = {"convention": "default;ties=item_asc"}, on_spark.by_library_with_judgments
    return {
        f"{READ}, as by default": timed(library),
        f"{READ}, {OFF}": timed(library, **off),
        f"{READ}, ties by item": timed(library, **by_item),
        f"{READ}, ties by item, {OFF}": timed(library, **by_item, **off),
        f"{READ}, rank given, {OFF}": timed(library, **ranked, **off),
        f"{READ}, run + judgments": timed(judged),
        f"{READ}, run + judgments, {OFF}": timed(judged, **off),
        f"{READ}, six cutoffs": timed(on_spark.by_library_with_six_cutoffs),
        f"{READ}, ten metrics, {OFF}": timed(on_spark.by_library_with_ten_metrics, **off),
        f"{PATH}, ten metrics, {OFF}": timed(on_spark.by_library_with_ten_metrics, by_path=True, **off),
        f"{READ}, window, {OFF}": timed(library, strategy="window", **off),
        f"{PATH}, as by default": timed(library, by_path=True),
        f"{PATH}, {OFF}": timed(library, by_path=True, **off),
        f"{PATH}, ties by item, {OFF}": timed(library, by_path=True, **by_item, **off),
        f"{PATH}, rank given, {OFF}": timed(library, by_path=True, **ranked, **off),
    }


def all_contenders(spark: SparkSession, path: Path, arguments: argparse.Namespace) -> dict[str, Contender]:
    k, memory = arguments.k, arguments.engine_memory
    timed = stopwatch(spark, path, k)
    ours = our_contenders(timed)
    if arguments.beside is not None:
        ours |= beside_contenders(arguments, path)
    others: dict[str, Contender] = {
        name: partial(engines.in_own_process, engines.in_duckdb, query, str(path), k, memory)
        for name, query in QUERIES.items()
    }
    others["Polars, streaming"] = partial(engines.in_own_process, engines.in_polars, str(path), k)
    peers = {
        f"{READ}, binary": timed(on_spark.by_library, convention=BINARY),
        f"{READ}, binary, {OFF}": timed(on_spark.by_library, convention=BINARY, check_duplicates="none"),
        "aggregate ndcg_at on Spark": timed(on_spark.by_aggregate),
        "window code on Spark": timed(on_spark.by_window_code),
        "pyspark.ml RankingEvaluator (binary)": timed(on_spark.by_ml_evaluator),
        "MLlib RankingMetrics (binary)": timed(on_spark.by_mllib),
        "recommenders SparkRankingEvaluation (binary)": timed(on_spark.by_recommenders),
    }
    found = {REFERENCE: others[REFERENCE]}
    for rival, group in zip(RIVALS, (ours, others, peers), strict=True):
        found |= group if rival in arguments.rivals else {}
    return {name: one for name, one in found.items() if name == REFERENCE or is_wanted(name, arguments)}


def beside_contenders(arguments: argparse.Namespace, path: Path) -> dict[str, Contender]:
    """The same by the package of another checkout, in a session of its own, which is kept between rounds."""
    other = Beside(arguments.beside, arguments.memory)
    timed = partial(partial, other.seconds, str(path), arguments.k)
    off = {"check_duplicates": "none"}
    return {
        f"beside, as by default, {OFF}": timed(off),
        f"beside, window, {OFF}": timed({"strategy": "window", **off}),
        f"beside, rank given, {OFF}": timed({"rank": "rank", **off}),
    }


def race(contenders: dict[str, Contender], shape: Shape, rounds: int, *, warm_ups: int) -> list[str]:
    """Lines of the table; every round runs all contenders, the order turned by one."""
    names = list(contenders)
    taken: dict[str, list[float]] = {name: [] for name in names}
    peak = dict.fromkeys(names, 0.0)
    for turn in range(warm_ups + rounds):
        at = turn % len(names)
        for name in names[at:] + names[:at]:
            with PeakMemory(jvm=not name.startswith(("DuckDB", "Polars"))) as memory:
                value, seconds = contenders[name]()
            if turn >= warm_ups:
                taken[name].append(seconds)
            peak[name] = max(peak[name], memory.gigabytes)
            print(f"{shape.name} {name}: {seconds:.2f} s, {value:.12f}", file=sys.stderr, flush=True)
    seconds_of = {name: statistics.median(found) for name, found in taken.items()}
    return [
        f"| {shape.title} | {name} | {taken:.2f} | {taken / seconds_of[REFERENCE]:.2f} | {peak[name]:.1f} |"
        for name, taken in seconds_of.items()
    ]


def heading(arguments: argparse.Namespace) -> str:
    found = []
    for package in ("pyspark", "numpy", "duckdb", "polars", "recommenders", "faiss-cpu"):
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    data = f"{arguments.rows:,} rows, {arguments.items} items a query, {arguments.ids} ids"
    others = {"Whole processes": arguments.fixed, "Retrieval": arguments.retrieval, "Judgments": arguments.judgments}
    what = next((name for name, asked in others.items() if asked), f"Mean NDCG@{arguments.k}, {data}")
    return (
        f"{what}, local[2], {arguments.memory} heap, median of {arguments.rounds}; "
        f"ndcg-spark {ndcg_spark.__version__}, {', '.join(found)}, Python {platform.python_version()}; "
        f"`{shlex.join(['scripts/bench', *sys.argv[1:]])}`\n"
    )


if __name__ == "__main__":
    main()
