"""A comparison of two runs: without replicates, with a bootstrap, and with sign flips; and SciPy's bootstrap."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from scipy import stats

from ndcg_spark import compare
from ndcg_spark.comparison.kernels import (
    WordArray,
    bootstrap_statistics,
    join_limbs,
    percentile_interval,
    round_differences,
    studentised_interval,
    sum_draws,
)
from ndcg_spark.core.exact import to_limbs
from ndcg_spark.core.ragged import FloatArray, IntArray
from scripts.benchmarks.memory import PeakMemory, measure_spark
from scripts.benchmarks.timing import time_contender

CASES = {"no replicates": (0, 0), "bootstrap": (1000, 0), "bootstrap and flips": (1000, 9999)}
N_DRIVER_QUERIES, N_SEGMENTS = 100_000, 20


def compare_lines(n: int, rounds: int, memory: str, folder: Path) -> list[str]:
    """Return lines about two runs of n queries; the runs are generated once and stored."""
    spark = open_session(memory)
    queries = write_runs(spark, folder / f"compare_{n}_{N_SEGMENTS}", n)
    run(queries.limit(10_000), 100, 100)
    seconds, lines = {}, []
    with PeakMemory(measure_spark) as peak:
        for name, (replicates, flips) in CASES.items():
            seconds[name] = fastest(partial(run, queries, replicates, flips), rounds)
            to_first = seconds[name] / seconds["no replicates"]
            lines.append(f"{name:22}{seconds[name]:8.2f} s  {to_first:5.2f} times the first")
    spark.stop()
    lines.append(
        f"peak memory: {peak.gigabytes:.1f} GB of the JVM and its workers, {own_memory():.2f} GB of this process"
    )
    return [*lines, *time_on_driver()]


def open_session(memory: str) -> SparkSession:
    settings = {
        "spark.driver.memory": memory,
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
        "spark.sql.shuffle.partitions": "16",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def write_runs(spark: SparkSession, folder: Path, n: int) -> DataFrame:
    """Write two runs with skewed differences as Parquet, once, and read them."""
    if not folder.is_dir():
        u = [F.rand(seed) for seed in (1, 2, 3)]
        base = spark.range(n).select(
            F.concat(F.lit("query "), "id").alias("query_id"),
            (F.col("id") % N_SEGMENTS).cast("string").alias("segment"),
            (0.3 + 0.6 * u[0]).alias("x"),
            (0.4 * (u[1] - 0.48) * u[2]).alias("change"),
        )
        y = F.greatest(F.lit(0.0), F.least(F.lit(1.0), F.col("x") + F.col("change")))
        runs = F.explode(F.array(_run("a", F.col("x")), _run("b", y)))
        rows = base.select("query_id", "segment", F.lit(10).alias("k"), runs.alias("r"))
        rows.select("query_id", "segment", "k", "r.*").write.parquet(str(folder))
    return spark.read.parquet(str(folder))


def _run(name: str, value: Column) -> Column:
    return F.struct(F.lit(name).alias("run"), value.alias("ndcg"))


def run(queries: DataFrame, replicates: int, flips: int) -> None:
    names, segments = ["a", "b"], ["segment"]
    frame = compare(queries, baseline="a", runs=names, metrics="ndcg", segments=segments,
                    replicates=replicates, flips=flips).summary  # fmt: skip
    frame.collect()


def time_on_driver() -> list[str]:
    """Intervals from 1,000 replicates in this process, by this library and by SciPy.

    SciPy's percentile interval needs the means of replicates alone; it has no studentised one to compare with.
    """
    rng = np.random.default_rng(0)
    x = rng.random(N_DRIVER_QUERIES)
    y = np.clip(x + 0.1 * (rng.random(N_DRIVER_QUERIES) - 0.48), 0, 1)
    hashes = rng.integers(0, 2**63, N_DRIVER_QUERIES).astype(np.uint64)
    d = round_differences(x, y)
    mine = fastest(lambda: time_percentile(hashes, d), 5)
    both = fastest(lambda: time_both_intervals(hashes, d), 5)
    lines = [
        f"{N_DRIVER_QUERIES:,} queries in this process, {os.cpu_count()} threads:",
        f"percentile {mine:.3f} s, percentile and studentised {both:.3f} s",
    ]
    plain = {"n_resamples": 1000, "method": "percentile", "batch": 100, "rng": 1}
    cases: dict[str, Callable[[], object]] = {
        "of differences": lambda: stats.bootstrap((y - x,), np.mean, **plain),
        "of differences, one batch": lambda: stats.bootstrap((y - x,), np.mean, **{**plain, "batch": None}),
        "of two runs, paired": lambda: stats.bootstrap(
            (x, y), lambda one, other, axis: np.mean(other - one, axis=axis), paired=True, **plain
        ),
    }
    for name, work in cases.items():
        seconds = fastest(work, 3)
        lines.append(
            f"scipy.stats.bootstrap {name}, percentile: {seconds:.2f} s, {seconds / mine:.1f} times as long as our "
            f"percentile interval, {seconds / both:.1f} times as long as both of ours"
        )
    return lines


def time_percentile(hashes: WordArray, d: FloatArray) -> None:
    drawn = split_draws(hashes, {"m": np.ones(len(d)), "d": d})
    ones, sums = (join_limbs(drawn[name], 1000) for name in ("m", "d"))
    percentile_interval((sums / ones).astype(np.float64), alpha=0.05)


def time_both_intervals(hashes: WordArray, d: FloatArray) -> None:
    drawn = split_draws(hashes, {"m": np.ones(len(d)), "d": d, "dd": d * d})
    means, t_statistics = bootstrap_statistics(drawn, float(d.mean()), 1000)
    percentile_interval(means, alpha=0.05)
    studentised_interval(t_statistics, float(d.mean()), float(d.std() / len(d) ** 0.5), alpha=0.05)


def split_draws(hashes: WordArray, numbers: dict[str, FloatArray]) -> dict[str, dict[int, IntArray]]:
    """Sums of replicates. They add, so each core makes those of a part of the queries."""
    columns = [
        (name, place, limb.astype(np.float64))
        for name, values in numbers.items()
        for place, limb in to_limbs(values).items()
        if limb.any()
    ]
    stacked, cores = np.array([limb for *_, limb in columns]), os.cpu_count() or 1
    step = -(-len(hashes) // cores)
    parts = [slice(start, start + step) for start in range(0, len(hashes), step)]
    with ThreadPoolExecutor(cores) as pool:
        sums = sum(
            pool.map(lambda start: sum_draws(hashes[start], stacked[:, start], seed=42, n_replicates=1000), parts)
        )
    limbs: dict[str, dict[int, IntArray]] = {name: {} for name in numbers}
    for (name, place, _), column_sums in zip(columns, sums, strict=True):
        limbs[name][place] = column_sums
    return limbs


def fastest(work: Callable[[], object], rounds: int) -> float:
    """Seconds of the fastest of several goes."""
    return min(time_contender(work)()[1] for _ in range(rounds))


def own_memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
