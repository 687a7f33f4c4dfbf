"""Judgments from an event log by this library, and a plain groupBy of the same rows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ndcg_spark.judgments import EventSettings
from ndcg_spark.judgments.frames import judge_events
from scripts.benchmarks.data import write_once
from scripts.benchmarks.timing import (
    Contender,
    build_ratio_rows,
    compute_medians,
    format_table,
    run_in_turns,
    time_contender,
)

EVENTS = ("impression", "view", "cart", "purchase")
SHARES = (0.8, 0.15, 0.03, 0.02)
BEGIN, DAYS = datetime(2026, 1, 1, tzinfo=timezone.utc), 30
SHOWN, ITEMS = 10, 100
"""Items of a page, and of a query."""
_PAGES_AT_ONCE = 200_000
PLAIN = "a plain groupBy: max of the grade"


def judgment_lines(spark: SparkSession, n_events: int, folder: Path, rounds: int) -> list[str]:
    """Return table lines: seconds for the relevance of every (query, item)."""
    events = spark.read.parquet(str(_log(folder, n_events)))
    end = BEGIN + timedelta(days=DAYS)
    decaying = EventSettings(rule="sum", half_life=7.0, as_of=end)
    contenders: dict[str, Callable[[], DataFrame]] = {
        PLAIN: lambda: by_group(events),
        "judgments, best event": lambda: judge_events(events, EventSettings()),
        "judgments, sum of values with a half-life": lambda: judge_events(events, decaying),
    }

    def computed(make: Callable[[], DataFrame]) -> Contender:
        return time_contender(lambda: tuple(make().agg(F.sum("relevance"), F.count("*")).collect()[0]))

    seconds = compute_medians(
        run_in_turns({name: computed(make) for name, make in contenders.items()}, rounds, warm_ups=1)
    )
    rows = build_ratio_rows(f"{n_events:,} events", seconds, PLAIN)
    return format_table(("data", "contender"), ("seconds", "to a groupBy"), rows)


def by_group(events: DataFrame) -> DataFrame:
    """Aggregate as one would by hand: the highest grade of each (query, item), 0 if it was only shown."""
    grade = F.when(F.col("event") == "view", 1.0).when(F.col("event") == "cart", 2.0)
    grade = grade.when(F.col("event") == "purchase", 3.0).otherwise(0.0)
    return events.groupBy("query_id", "item_id").agg(F.max(grade).alias("relevance"))


def _log(folder: Path, n_events: int) -> Path:
    """Generate a seeded log ordered by time: pages of ten items of a query, and the events on them."""
    draw, n_pages = np.random.default_rng(7), n_events // SHOWN
    n_queries = max(1, n_pages // 100)
    step = DAYS * 86_400_000_000 / n_pages
    kinds = pa.array(EVENTS)

    def events(start: int, pages: int) -> dict[str, pa.Array]:
        query = np.repeat(draw.integers(0, n_queries, pages), SHOWN)
        event = draw.choice(len(EVENTS), len(query), p=SHARES)
        ts = np.repeat(((start + np.arange(pages)) * step).astype(np.int64), SHOWN)
        return {
            "query_id": pa.array(query),
            "item_id": pa.array(draw.integers(0, ITEMS, len(query))),
            "event": kinds.take(pa.array(event)),
            "ts": pa.array(ts + int(BEGIN.timestamp()) * 1_000_000).cast(pa.timestamp("us", tz="UTC")),
        }

    return write_once(folder / f"events-{n_events}.parquet", _SCHEMA, events, n_pages, _PAGES_AT_ONCE)


_SCHEMA = pa.schema(
    [("query_id", pa.int64()), ("item_id", pa.int64()), ("event", pa.string()), ("ts", pa.timestamp("us", tz="UTC"))]
)
