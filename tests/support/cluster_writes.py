"""Writes whose tasks fail half-way and run twice at once, reported as JSON; `test_cluster.py` submits this script.

Task 0 fails in its first attempt when half of its rows are out. The first attempt of task 1 waits until Spark, by
speculation, has begun another one; then both write everything.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from ndcg_spark.tables import Rows, Slices, write_together

SLICES = Slices.for_night(date(2026, 1, 31), "shop", [""])
ROWS, PARTS = 400, 4


def fail_and_repeat(marks: str) -> Callable[[Any], Any]:
    """Return a worker function that leaves a mark for each attempt."""

    def run(batches):
        import time

        from pyspark import TaskContext

        context = TaskContext.get()
        task, attempt = context.partitionId(), context.attemptNumber()
        Path(marks, f"{task}-{attempt}").touch()
        for batch in batches:
            half = batch.num_rows // 2
            yield batch.slice(0, half)
            if (task, attempt) == (0, 0):
                raise RuntimeError("half of the rows are out")
            while (task, attempt) == (1, 0) and not Path(marks, "1-1").exists():
                time.sleep(0.05)
            yield batch.slice(half)

    return run


def main(root: Path) -> None:
    spark = SparkSession.builder.getOrCreate()
    results = {}
    for name, reference in (("folder", str(root / "folder")), ("table", "attempts")):
        marks = root / f"marks of {name}"
        marks.mkdir()
        rows = (
            spark.range(0, ROWS, 1, PARTS)
            .mapInArrow(fail_and_repeat(str(marks)), "k long")
            .selectExpr("'' AS run", "k")
        )
        write_together([Rows(frame=rows, slices=SLICES, reference=reference)])
        stored = spark.read.parquet(reference) if name == "folder" else spark.table(reference)
        results[name] = [
            sorted(place.name for place in marks.iterdir()),
            sorted(row["k"] for row in stored.collect()),
        ]
    print(json.dumps(results))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
