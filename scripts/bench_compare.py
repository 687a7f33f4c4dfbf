"""Time a comparison of two runs: without replicates, with a bootstrap, and with sign flips; and SciPy's bootstrap.

    python scripts/bench_compare.py --queries 10000000

The queries are made once and kept in --folder. Memory is that of the JVM with its Python workers, and of this
process.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from bench_memory import PeakMemory
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from scipy import stats

from ndcg_spark import compare
from ndcg_spark.kernels.exact import to_limbs
from ndcg_spark.kernels.paired import deltas
from ndcg_spark.kernels.replicates import DRAWN, percentile_interval, replicate_values
from ndcg_spark.kernels.resampling import drawn_sums

CASES = {"no replicates": (0, 0), "bootstrap": (1000, 0), "bootstrap and flips": (1000, 9999)}
ON_THE_DRIVER = 100_000


def main(argv: Sequence[str] | None = None) -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--queries", type=int, default=1_000_000)
    options.add_argument("--segments", type=int, default=20)
    options.add_argument("--repeat", type=int, default=2)
    options.add_argument("--memory", default="6g", help="of the JVM")
    options.add_argument("--folder", type=Path, default=Path(".bench"))
    given = options.parse_args(argv)
    spark = session(given.memory)
    queries = stored(spark, given.folder / f"compare_{given.queries}_{given.segments}", given.queries, given.segments)
    timed(lambda: run(queries.limit(10_000), 100, 100), 1)
    seconds = {}
    with PeakMemory(jvm=True) as peak:
        for name, (replicates, flips) in CASES.items():
            seconds[name] = timed(lambda r=replicates, f=flips: run(queries, r, f), given.repeat)
            print(f"{name:22}{seconds[name]:8.2f} s  {seconds[name] / seconds['no replicates']:5.2f} times the first")
    print(f"peak memory: {peak.gigabytes:.1f} GB of the JVM and its workers, {own_memory():.2f} GB of this process")
    spark.stop()
    on_the_driver()
    return 0


def session(memory: str) -> SparkSession:
    settings = {
        "spark.driver.memory": memory,
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
        "spark.sql.shuffle.partitions": "16",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    found = SparkSession.builder.master("local[*]").config(map=settings).getOrCreate()
    found.sparkContext.setLogLevel("ERROR")
    return found


def stored(spark: SparkSession, folder: Path, n: int, n_segments: int) -> DataFrame:
    """Two runs whose differences are skewed, as parquet."""
    if not folder.is_dir():
        u = [F.rand(seed) for seed in (1, 2, 3)]
        base = spark.range(n).select(
            F.concat(F.lit("query "), "id").alias("query_id"),
            (F.col("id") % n_segments).cast("string").alias("segment"),
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
    frame = compare(queries, baseline="a", names=names, metrics="ndcg", segments=segments,
                    replicates=replicates, flips=flips)  # fmt: skip
    frame.collect()


def on_the_driver() -> None:
    """A percentile interval from 1,000 replicates in this process, by this library and by SciPy.

    Sums of replicates add, so each core makes those of a part of the queries.
    """
    cores = os.cpu_count() or 1
    pool, step = ThreadPoolExecutor(cores), -(-ON_THE_DRIVER // cores)
    rng = np.random.default_rng(0)
    x = rng.random(ON_THE_DRIVER)
    y = np.clip(x + 0.1 * (rng.random(ON_THE_DRIVER) - 0.48), 0, 1)
    hashes = rng.integers(0, 2**63, ON_THE_DRIVER).astype(np.uint64)

    def ours() -> None:
        d = deltas(x, y)
        columns = [
            (name, place, limb.astype(np.float64))
            for name, values in (("m", np.ones(len(d))), ("d", d), ("dd", d * d))
            for place, limb in to_limbs(values).items()
            if limb.any()
        ]
        stacked = np.array([limb for *_, limb in columns])
        parts = [slice(at, at + step) for at in range(0, ON_THE_DRIVER, step)]
        sums = sum(pool.map(lambda at: drawn_sums(hashes[at], stacked[:, at], seed=42, n_replicates=1000), parts))
        drawn: dict[str, dict[int, np.ndarray]] = {name: {} for name in DRAWN if name in {one for one, *_ in columns}}
        for (name, place, _), its in zip(columns, sums, strict=True):
            drawn[name][place] = its
        percentile_interval(replicate_values(drawn, float(d.mean()), 1000)[0], alpha=0.05)

    def scipys(batch: int | None) -> None:
        stats.bootstrap((y - x,), np.mean, n_resamples=1000, method="percentile", batch=batch, rng=1)

    mine = timed(ours, 3)
    print(f"{ON_THE_DRIVER:,} queries in this process, {cores} threads: {mine:.2f} s")
    for batch in (100, None):
        its = timed(lambda b=batch: scipys(b), 2)
        print(f"scipy.stats.bootstrap, percentile, batch {batch}: {its:.2f} s, {its / mine:.1f} times as long")


def timed(work: Callable[[], None], repeat: int) -> float:
    """Seconds of the fastest of several goes."""
    found = []
    for _ in range(repeat):
        began = time.perf_counter()
        work()
        found.append(time.perf_counter() - began)
    return min(found)


def own_memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


if __name__ == "__main__":
    sys.exit(main())
