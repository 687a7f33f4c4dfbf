"""Exact retrieval of the 100 nearest items by this library and by FAISS, on the same files."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ndcg_spark.retrieval import RetrievalSettings
from ndcg_spark.retrieval.frames import retrieve_items
from scripts.benchmarks.data import write_once
from scripts.benchmarks.engines import run_in_process
from scripts.benchmarks.memory import PeakMemory, measure_largest_worker
from scripts.benchmarks.timing import build_ratio_rows, format_table, run_in_turns, time_contender

FAISS = "FAISS, two threads"
WIDTHS = {"hamming": 64, "cosine": 128}
"""Bits of a code, numbers of a vector."""
N_QUERIES, K, THREADS = 10_000, 100, 2
_ROWS_AT_ONCE = 100_000


def retrieval_lines(spark: SparkSession, n_items: int, folder: Path, rounds: int) -> list[str]:
    """Return table lines: seconds and the largest worker of both libraries, for codes and for vectors."""
    rows = []
    for metric, width in WIDTHS.items():
        queries, corpus = (
            str(_table(folder, metric, n, name)) for name, n in (("queries", N_QUERIES), ("corpus", n_items))
        )
        title = f"{N_QUERIES:,} x {n_items:,}, {width} {'bits' if metric == 'hamming' else 'floats'}, {metric}"
        memory = PeakMemory(measure_largest_worker)
        theirs = partial(run_in_process, "faiss", retrieve_with_faiss, metric, queries, corpus)
        ours = memory.around(time_contender(partial(retrieve_with_library, spark, metric, queries, corpus)))
        taken = run_in_turns({FAISS: theirs, "read by Spark": ours}, rounds)
        seconds = {name: min(durations) for name, durations in taken.items()}
        rows += [
            (*row, "" if row[1] == FAISS else f"{memory.gigabytes:.2f}")
            for row in build_ratio_rows(title, seconds, FAISS)
        ]
    return format_table(("retrieval", "contender"), ("seconds", "to FAISS", "largest worker, GB"), rows)


def _table(folder: Path, metric: str, n: int, name: str) -> Path:
    """Write a seeded table of identifiers and random codes or vectors, once."""
    draw, width = np.random.default_rng(len(name)), WIDTHS[metric]
    key = "query_id" if name == "queries" else "item_id"
    kind, column = (pa.int64(), "code") if metric == "hamming" else (pa.float32(), "vector")
    per_row = width // 64 if metric == "hamming" else width

    def rows(start: int, n_rows: int) -> dict[str, pa.Array]:
        if metric == "hamming":
            flat = draw.integers(-(2**63), 2**63, n_rows * per_row, dtype=np.int64)
        else:
            flat = draw.standard_normal(n_rows * per_row, dtype=np.float32)
        offsets = pa.array(np.arange(0, len(flat) + 1, per_row, dtype=np.int32))
        lists = pa.ListArray.from_arrays(offsets, pa.array(flat))
        return {key: pa.array(np.arange(start, start + n_rows)), column: lists}

    schema = pa.schema([(key, pa.int64()), (column, pa.list_(kind))])
    return write_once(folder / f"{name}-{metric}-{n}.parquet", schema, rows, n, _ROWS_AT_ONCE)


def retrieve_with_library(spark: SparkSession, metric: str, queries: str, corpus: str) -> float:
    """Retrieve, and add up the scores."""
    items = retrieve_items(
        spark.read.parquet(queries), spark.read.parquet(corpus), RetrievalSettings(metric=metric), k=K
    )
    return float(items.agg(F.sum("score")).collect()[0][0])


def retrieve_with_faiss(metric: str, queries: str, corpus: str) -> float:
    """Search a flat index, which compares all pairs, and add up the scores. Reading the files is part of it."""
    import faiss

    faiss.omp_set_num_threads(THREADS)
    tables = [pq.read_table(path) for path in (queries, corpus)]
    values = [np.asarray(array.column(1).combine_chunks().flatten()).reshape(array.num_rows, -1) for array in tables]
    if metric == "hamming":
        wanted, items = (np.ascontiguousarray(array).view(np.uint8) for array in values)
        index = faiss.IndexBinaryFlat(WIDTHS[metric])
        index.add(items)
        return -float(index.search(wanted, K)[0].sum())
    wanted, items = (np.ascontiguousarray(array) for array in values)
    for array in (wanted, items):
        faiss.normalize_L2(array)
    index = faiss.IndexFlatIP(WIDTHS[metric])
    index.add(items)
    return float(index.search(wanted, K)[0].astype(np.float64).sum())
