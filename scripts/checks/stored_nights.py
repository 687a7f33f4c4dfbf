"""The inputs of the small nights of stored_format.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

FIRST = date(2026, 1, 1)
N_NIGHTS = 40
BITS = pa.binary(), pa.list_(pa.int32())


def table(path: Path, names: str, rows: Sequence[tuple[Any, ...]], types: Mapping[str, pa.DataType] = {}) -> None:
    """Write rows as one Parquet file."""
    columns = zip(*rows, strict=True)
    made = {name: pa.array(values, types.get(name)) for name, values in zip(names.split(), columns, strict=True)}
    pq.write_table(pa.table(made), path)


def rankings(night: int) -> list[tuple[Any, ...]]:
    """Run, query, item, score, relevance, country, weight: lists of two rankers, with ties."""
    return [
        (ranker, f"q{query}", f"i{number}", (number * step + query * night) % 7 + 0.0, (number + query) % 4 + 0.0,
         country, 1.5)
        for ranker, step in (("a", 3), ("b", 2))
        for query, country in ((1, "DE"), (2, "DE"), (3, "US"), (4, None), (5, "US"))
        for number in range(3 + query)
    ]  # fmt: skip


def write_inputs(folder: Path) -> None:
    """Write all that the story reads."""
    names = "ranker query_id item_id score relevance country w"
    bad = [("a", "q1", "bad", float("nan"), 1.0, "DE", 1.5), ("b", "q2", None, 2.0, 1.0, "DE", 1.5)]
    table(folder / "long.parquet", names, rankings(1) + bad)
    table(folder / "next.parquet", names, rankings(2))
    ones = [row[1:5] for row in rankings(2) if row[0] == "a"]
    table(folder / "run.parquet", "query_id item_id score", [row[:3] for row in ones])
    lines = [f"{query},{item},{relevance}" for query, item, _, relevance in ones[2:]]
    (folder / "judgments.csv").write_text("\n".join(["query_id,item_id,relevance", *lines, ""]), encoding="utf-8")
    vectors = {"vector": pa.list_(pa.float64())}
    table(
        folder / "items.parquet",
        "item_id vector",
        [(f"i{number}", [1.0, number % 3, number]) for number in range(9)],
        vectors,
    )
    write_clicks(folder)
    shown = [("q1", bytes([5]), [1, 0]), ("q2", bytes([240]), [0, 1])]
    kinds = dict(zip(("code", "labels"), BITS, strict=True))
    table(folder / "photos.parquet", "query_id code labels", shown, kinds)
    corpus = [(f"p{number}", bytes([number * 37 % 256]), [number % 2, (number + 1) % 2]) for number in range(8)]
    table(folder / "corpus.parquet", "item_id code labels", corpus, kinds)
    write_history(folder)


def write_clicks(folder: Path) -> None:
    """Events, ratings, and impressions with clicks."""
    start = datetime(2026, 1, 10, tzinfo=timezone.utc)
    kinds = ("impression", "click", "impression", "buy")
    events = [
        (f"q{number % 2}", f"i{number % 3}", kinds[number % 4], start + timedelta(hours=number))
        for number in range(24)
    ]
    table(folder / "events.parquet", "query_id item_id event ts", events, {"ts": pa.timestamp("us", "UTC")})
    ratings = [(f"q{number % 2}", f"i{number % 3}", f"u{number % 4}", float(number % 5)) for number in range(24)]
    table(folder / "ratings.parquet", "query_id item_id annotator relevance", ratings[:12])
    shown = [
        (f"q{number // 3}", f"i{(number + number // 9) % 3}", number % 3 + 1, int(number % 4 == 0))
        for number in range(36)
    ]
    table(folder / "impressions.parquet", "query_id item_id position click", shown)
    table(folder / "given.parquet", "position propensity", [(1, 1.0), (2, 0.5), (3, 0.25)])


def write_history(folder: Path) -> None:
    """Write a metric table of forty nights, with a drop in the last night, and clicks."""
    nights = [FIRST + timedelta(days=number) for number in range(N_NIGHTS)]
    values = [0.4 + (number * 5 % 7) / 1024 for number in range(N_NIGHTS - 1)] + [0.25]
    names = "run_date run segment_by segment metric k value std_error n_queries config_hash dataset"
    rows = [(night, "", "", "", "ndcg", 10, value, 1 / 512, 100, "c1", "shop") for night, value in
            zip(nights, values, strict=True)]  # fmt: skip
    table(folder / "history.parquet", names, rows)
    clicks = [(night, "", "", 10_000, 500 + number * 3 % 11, 10) for number, night in enumerate(nights)]
    table(folder / "clicks.parquet", "run_date segment_by segment impressions clicks conversions", clicks)
