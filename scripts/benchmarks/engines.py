"""Mean NDCG@k by engines of one machine, each run in a process of its own."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

GAIN = "(pow(2, relevance) - 1)"
LISTED = "list_sum(list_transform({list}, lambda r, i: (pow(2, r) - 1) / log2(i + 1)))"
MEAN = "SELECT avg(CASE WHEN idcg > 0 THEN dcg / idcg ELSE 0 END) FROM ({per_query})"
MAX_BY = f"""
    SELECT {LISTED.format(list="max_by(relevance, score, {k})")} AS dcg,
           {LISTED.format(list="max(relevance, {k})")} AS idcg
    FROM read_parquet('{{path}}') GROUP BY query_id
"""
TWO_WINDOWS = f"""
    SELECT sum(CASE WHEN place <= {{k}} THEN {GAIN} / log2(place + 1) ELSE 0 END) AS dcg,
           sum(CASE WHEN best <= {{k}} THEN {GAIN} / log2(best + 1) ELSE 0 END) AS idcg
    FROM (SELECT query_id, relevance,
                 row_number() OVER (PARTITION BY query_id ORDER BY score DESC, item_id) AS place,
                 row_number() OVER (PARTITION BY query_id ORDER BY relevance DESC) AS best
          FROM read_parquet('{{path}}'))
    GROUP BY query_id
"""
RANK_GIVEN = f"""
    SELECT sum(CASE WHEN rank <= {{k}} THEN {GAIN} / log2(rank + 1) ELSE 0 END) AS dcg,
           {LISTED.format(list="max(relevance, {k})")} AS idcg
    FROM read_parquet('{{path}}') GROUP BY query_id
"""


def run_duckdb(per_query: str, path: str, k: int, memory: str) -> float:
    import duckdb

    with duckdb.connect() as engine:
        engine.execute("SET threads = 2")
        engine.execute("SET enable_progress_bar = false")  # it would go into the table
        engine.execute(f"SET memory_limit = '{memory}B'")
        row = engine.execute(MEAN.format(per_query=per_query.format(path=path, k=k))).fetchone()
    return float(row[0]) if row else float("nan")


def in_polars(path: str, k: int) -> float:
    import polars as pl

    def dcg(relevance: pl.Expr) -> pl.Expr:
        discount = (pl.int_range(2, pl.len() + 2).log(2)).head(k)
        return ((2.0**relevance - 1) / discount).sum()

    best = pl.col("relevance").sort(descending=True).head(k)
    ranked = pl.col("relevance").sort_by("score", "item_id", descending=[True, False]).head(k)
    per_query = pl.scan_parquet(path).group_by("query_id").agg(dcg(ranked).alias("dcg"), dcg(best).alias("idcg"))
    value = pl.when(pl.col("idcg") > 0).then(pl.col("dcg") / pl.col("idcg")).otherwise(0.0).mean()
    return float(per_query.select(value).collect(engine="streaming").item())


def run_in_process(module: str, work: Callable[..., float], *arguments: object) -> tuple[float, float]:
    """Return the value and the seconds it took, without the start of the process and the import of the module."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_timed, args=(sender, module, work, arguments))
    process.start()
    sender.close()
    try:
        value, seconds = receiver.recv()
    except EOFError:
        raise RuntimeError(f"{work.__name__} ended without an answer (out of memory?)") from None
    finally:
        process.join()
    return value, seconds


def _timed(sender: Connection, module: str, work: Callable[..., float], arguments: tuple[object, ...]) -> None:
    __import__(module)
    began = time.perf_counter()
    value = work(*arguments)
    sender.send((value, time.perf_counter() - began))
