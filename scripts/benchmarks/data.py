"""Generated rankings of stated shape, as parquet files made by DuckDB."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

KINDS = (
    "even",
    "skewed",
    "zipf",
    "tied",
    "constant-score",
    "constant-label",
    "levels",
    "fractional",
    "single",
    "nulls",
)
"""even: all queries have the same number of items, few ties. skewed: one query has half of the rows. zipf: the n-th
query has rows in proportion to 1/n. tied: eleven different scores. constant-score, constant-label: one value.
levels: fifty labels, so that most are no grades. fractional: labels are fractions. single: one item a query.
nulls: nine of ten relevances are null."""
CHUNK = 100_000_000


@dataclass(frozen=True)
class Shape:
    """Shape of generated rows.

    rows: how many; items: per query; order: `clustered` by query or `shuffled`; ids: `integer` or `string`;
    kind: one of KINDS; grades: number of relevance levels, with the higher ones rarer.
    """

    rows: int
    items: int = 100
    order: str = "clustered"
    ids: str = "integer"
    kind: str = "even"
    grades: int = 5

    @property
    def name(self) -> str:
        return f"{self.rows // 1000}k-{self.items}-{self.order}-{self.ids}-{self.kind}-{self.grades}"

    @property
    def title(self) -> str:
        return self.order if self.kind == "even" else f"{self.kind}, {self.order}"


def generate(shape: Shape, folder: Path) -> Path:
    """Write the rows, unless they are there; give the folder of parquet files they are in.

    Everything is a hash of the row's number, so that the same shape is the same data on any machine. The rank is
    that of the score within the query, ties by item. Rows are made in chunks of whole queries, so that a billion
    rows need no more memory than a hundred million.
    """
    target = folder / shape.name
    if target.exists():
        return target
    unfinished = folder / f"{shape.name}.unfinished"
    unfinished.mkdir(parents=True, exist_ok=True)
    for chunk, start in enumerate(range(0, shape.rows, CHUNK)):
        stop = min(start + CHUNK, shape.rows)
        with duckdb.connect() as engine:
            engine.execute(f"SET temp_directory = '{folder / 'duckdb-temp'}'")
            engine.execute("SET memory_limit = '10GB'")
            engine.execute("SET threads = 2")
            engine.execute(
                f"COPY ({_rows(shape, start, stop)}) TO '{unfinished / f'part-{chunk:03}.parquet'}' "
                "(FORMAT parquet, ROW_GROUP_SIZE 1000000)"
            )
    unfinished.rename(target)
    return target


def write_once(
    path: Path, schema: pa.Schema, rows: Callable[[int, int], Mapping[str, pa.Array]], n: int, at_once: int
) -> Path:
    """Write a file in parts, which `rows` makes from the number of the first and how many, unless it is there."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with pq.ParquetWriter(path, schema) as file:
            for start in range(0, n, at_once):
                file.write_table(pa.table(rows(start, min(at_once, n - start)), schema=schema))
    return path


def _rows(shape: Shape, start: int, stop: int) -> str:
    query, item = _keys(shape)
    if shape.ids == "string":
        query, item = f"'query-' || ({query})", f"'item-' || lpad(({item})::varchar, 9, '0')"
    order = "hash(i, 7)" if shape.order == "shuffled" else "i"
    return f"""
        WITH drawn AS (
            SELECT i, {query} AS query_id, {item} AS item_id,
                   {_score(shape)} AS score, {_relevance(shape)} AS relevance
            FROM range({start}, {stop}) AS numbers(i)
        )
        SELECT query_id, item_id, score, relevance,
               row_number() OVER (PARTITION BY query_id ORDER BY score DESC, item_id)::int AS rank
        FROM drawn ORDER BY {order}
    """


def _keys(shape: Shape) -> tuple[str, str]:
    if shape.kind == "skewed":
        half = shape.rows // 2
        return f"CASE WHEN i < {half} THEN 0 ELSE 1 + (i - {half}) // {shape.items} END", "i"
    if shape.kind == "zipf":  # rows of query n in proportion to 1/n: the n of row i grows exponentially
        n_queries = shape.rows // shape.items
        return f"floor(pow({n_queries}.0, i / {shape.rows}.0))::bigint", "i"
    if shape.kind == "single":
        return "i", "i"
    return f"i // {shape.items}", f"i % {shape.items}"


def _score(shape: Shape) -> str:
    if shape.kind == "constant-score":
        return "0.5::double"
    if shape.kind == "tied":
        return "(hash(i) % 11)::double / 10"
    return "(hash(i) % 16777216)::double / 16777216"


def _relevance(shape: Shape) -> str:
    drawn = f"greatest(0, {shape.grades} - 1 - floor(ln(1 + (hash(i, 1) % 1000)) / ln(1000) * {shape.grades}))::int"
    if shape.kind == "constant-label":
        return "1::int"
    if shape.kind == "levels":
        return "(hash(i, 1) % 50)::int"
    if shape.kind == "fractional":
        return "(hash(i, 1) % 1000)::double / 250"
    if shape.kind == "nulls":
        return f"CASE WHEN hash(i, 2) % 10 = 0 THEN {drawn} END"
    return drawn
