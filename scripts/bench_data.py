"""Generated rankings of stated shape, as parquet files made by DuckDB."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import duckdb


@dataclass(frozen=True)
class Shape:
    """What the rows look like.

    rows: how many; items: per query; shuffled: in random order, else a query's rows together; ids: `integer`
    or `string`; grades: number of relevance levels, with the higher ones rarer.
    """

    rows: int
    items: int = 100
    shuffled: bool = False
    ids: str = "integer"
    grades: int = 5

    @property
    def name(self) -> str:
        order = "shuffled" if self.shuffled else "together"
        return f"{self.rows // 1000}k-{self.items}-{order}-{self.ids}-{self.grades}"


def generate(shape: Shape, folder: Path) -> Path:
    """Write the rows, unless they are there; give their path.

    Everything is a hash of the row's number, so that the same shape is the same data on any machine. The rank is
    that of the score within the query, ties by item.
    """
    path = folder / f"{shape.name}.parquet"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    query, item = "i // {items}", "i % {items}"
    if shape.ids == "string":
        query, item = f"'query-' || ({query})", f"'item-' || lpad(({item})::varchar, 7, '0')"
    order = "ORDER BY hash(i, 7)" if shape.shuffled else ""
    sql = f"""
        WITH drawn AS (
            SELECT i, {query} AS query_id, {item} AS item_id,
                   (hash(i) % 16777216)::double / 16777216 AS score,
                   greatest(0, {{grades}} - 1
                       - floor(ln(1 + (hash(i, 1) % 1000)) / ln(1000) * {{grades}}))::int AS drawn
            FROM range({{rows}}) AS numbers(i)
        )
        SELECT i, query_id, item_id, score, least(drawn, {{grades}} - 1) AS relevance,
               row_number() OVER (PARTITION BY query_id ORDER BY score DESC, item_id)::int AS rank
        FROM drawn
    """.format(items=shape.items, grades=shape.grades, rows=shape.rows)
    unfinished = path.with_suffix(".unfinished")
    with duckdb.connect() as engine:
        engine.execute(f"SET temp_directory = '{folder / 'duckdb-temp'}'")
        engine.execute("SET preserve_insertion_order = false" if shape.shuffled else "SELECT 1")
        columns = "query_id, item_id, score, relevance, rank"
        ordered = order or "ORDER BY i"
        engine.execute(
            f"COPY (SELECT {columns} FROM ({sql}) {ordered}) TO '{unfinished}' "
            "(FORMAT parquet, ROW_GROUP_SIZE 1000000)"
        )
    unfinished.rename(path)
    return path
