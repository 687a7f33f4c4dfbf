"""Exact retrieval of the 100 nearest items by this library and by FAISS, on the same files."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ndcg_spark.retrieval import RetrievalSettings
from ndcg_spark.retrieval.frames import retrieved_items

WIDTHS = {"hamming": 64, "cosine": 128}
"""Bits of a code, numbers of a vector."""
N_QUERIES, K, THREADS = 10_000, 100, 2
_ROWS_AT_ONCE = 100_000


def retrieval_lines(spark: SparkSession, n_items: int, folder: Path, rounds: int) -> list[str]:
    """Lines of a table: seconds and the hungriest worker of both, for codes and for vectors."""
    lines = [
        "| retrieval | contender | seconds | to FAISS | largest worker, GB |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    for metric, width in WIDTHS.items():
        queries, corpus = (
            _table(folder, metric, n, name) for name, n in (("queries", N_QUERIES), ("corpus", n_items))
        )
        title = f"{N_QUERIES:,} x {n_items:,}, {width} {'bits' if metric == 'hamming' else 'floats'}, {metric}"
        taken: dict[str, list[float]] = {"FAISS, two threads": [], "read by Spark": []}
        largest = 0.0
        for _ in range(rounds):
            theirs, seconds = in_own_process(by_faiss, metric, str(queries), str(corpus))
            taken["FAISS, two threads"].append(seconds)
            with LargestWorker() as memory:
                began = time.perf_counter()
                ours = by_library(spark, metric, str(queries), str(corpus))
                taken["read by Spark"].append(time.perf_counter() - began)
            largest = max(largest, memory.gigabytes)
            print(f"{title}: sums of scores {theirs:.6f} and {ours:.6f}", flush=True)
        found = {name: min(seconds) for name, seconds in taken.items()}
        for name, seconds in found.items():
            memory_text = f"{largest:.2f}" if name == "read by Spark" else ""
            ratio = seconds / found["FAISS, two threads"]
            lines.append(f"| {title} | {name} | {seconds:.1f} | {ratio:.2f} | {memory_text} |")
    return lines


def _table(folder: Path, metric: str, n: int, name: str) -> Path:
    """A seeded table of identifiers and random codes or vectors; made once."""
    path = folder / f"{name}-{metric}-{n}.parquet"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    draw, width = np.random.default_rng(len(name)), WIDTHS[metric]
    key = "query_id" if name == "queries" else "item_id"
    kind, column = (pa.int64(), "code") if metric == "hamming" else (pa.float32(), "vector")
    with pq.ParquetWriter(path, pa.schema([(key, pa.int64()), (column, pa.list_(kind))])) as file:
        for start in range(0, n, _ROWS_AT_ONCE):
            rows = min(_ROWS_AT_ONCE, n - start)
            if metric == "hamming":
                per_row = width // 64
                flat = draw.integers(-(2**63), 2**63, rows * per_row, dtype=np.int64)
            else:
                per_row = width
                flat = draw.standard_normal(rows * per_row, dtype=np.float32)
            offsets = pa.array(np.arange(0, len(flat) + 1, per_row, dtype=np.int32))
            lists = pa.ListArray.from_arrays(offsets, pa.array(flat))
            file.write_table(pa.table({key: pa.array(np.arange(start, start + rows)), column: lists}))
    return path


def by_library(spark: SparkSession, metric: str, queries: str, corpus: str) -> float:
    """Retrieve, and add up the scores."""
    found = retrieved_items(
        spark.read.parquet(queries), spark.read.parquet(corpus), RetrievalSettings(metric=metric), k=K
    )
    return float(found.agg(F.sum("score")).collect()[0][0])


def by_faiss(metric: str, queries: str, corpus: str) -> float:
    """Search a flat index, which compares all pairs, and add up the scores. Reading the files is part of it."""
    import faiss

    faiss.omp_set_num_threads(THREADS)
    tables = [pq.read_table(path) for path in (queries, corpus)]
    values = [np.asarray(one.column(1).combine_chunks().flatten()).reshape(one.num_rows, -1) for one in tables]
    if metric == "hamming":
        wanted, items = (np.ascontiguousarray(one).view(np.uint8) for one in values)
        index = faiss.IndexBinaryFlat(WIDTHS[metric])
        index.add(items)
        return -float(index.search(wanted, K)[0].sum())
    wanted, items = (np.ascontiguousarray(one) for one in values)
    for one in (wanted, items):
        faiss.normalize_L2(one)
    index = faiss.IndexFlatIP(WIDTHS[metric])
    index.add(items)
    return float(index.search(wanted, K)[0].astype(np.float64).sum())


def in_own_process(work: Callable[..., float], *arguments: object) -> tuple[float, float]:
    """The value and the seconds it took, start of the process and imports left out."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_timed, args=(sender, work, arguments))
    process.start()
    sender.close()
    value, seconds = receiver.recv()
    process.join()
    return value, seconds


def _timed(sender: Connection, work: Callable[..., float], arguments: tuple[object, ...]) -> None:
    __import__("faiss")
    began = time.perf_counter()
    value = work(*arguments)
    sender.send((value, time.perf_counter() - began))


class LargestWorker:
    """Samples the resident memory of the Python workers of a local session, and keeps that of the largest."""

    def __init__(self) -> None:
        self.gigabytes = 0.0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> LargestWorker:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(0.1):
            for child in psutil.Process().children(recursive=True):
                try:
                    if "python" in child.name():
                        self.gigabytes = max(self.gigabytes, child.memory_info().rss / 2**30)
                except psutil.Error:  # it ended meanwhile
                    continue
