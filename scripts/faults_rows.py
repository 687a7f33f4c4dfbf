"""Rows that tell which write they belong to, how they are written and broken, and what a table holds of them."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from faults_formats import FORMATS, Format, Rows, SliceKey
from pyspark.sql import SparkSession

from ndcg_spark.errors import OutputRefusedError
from ndcg_spark.tables import RunPartition, replace_partition

COMPUTE = "compute"
FULL = "No space left on device"


@dataclass(frozen=True)
class Fault:
    """Where a write breaks, and at which row or at which of its slices; with `seconds` it only waits there."""

    point: str
    at: int
    seconds: float = 0.0


@dataclass(frozen=True)
class Task:
    """One write: of some runs of a night and data set, in a version of its own."""

    night: date
    dataset: str
    runs: tuple[str, ...]
    version: int
    fault: Fault | None = None

    @property
    def slices(self) -> list[SliceKey]:
        """What it replaces."""
        return [(self.night.isoformat(), self.dataset, run) for run in self.runs]


def n_rows(version: int) -> int:
    """Rows of a slice in a version; versions differ in it, so that doubled and half slices show."""
    return 3 + version % 5


def plan_fault(rng: random.Random, kind: Format) -> Fault | None:
    """Half of the writes break or are held up, at any point."""
    if rng.random() < 0.5:
        return None
    point = rng.choice([COMPUTE, *kind.steps])
    waits = point != COMPUTE and rng.random() < 0.4
    return Fault(point, rng.randrange(3), rng.uniform(0.05, 0.5) if waits else 0.0)


_plan = threading.local()


@contextmanager
def broken_calls(kind: Format) -> Iterator[None]:
    """Let steps of the writer fail or wait where the running thread has planned it."""

    def breaking(point, call):
        def run(*arguments):
            fault = getattr(_plan, "fault", None)
            if fault is not None and fault.point == point:
                _plan.fault = replace(fault, at=fault.at - 1) if fault.at else None
                if fault.at == 0 and not fault.seconds:
                    raise OSError(5, f"injected at {point}")
                if fault.at == 0:
                    time.sleep(fault.seconds)
            return call(*arguments)

        return run

    kept = {point: getattr(owner, name) for point, (owner, name) in kind.steps.items()}
    try:
        for point, (owner, name) in kind.steps.items():
            setattr(owner, name, breaking(point, kept[point]))
        yield
    finally:
        for point, (owner, name) in kind.steps.items():
            setattr(owner, name, kept[point])


def write(spark: SparkSession, place: str, task: Task) -> str:
    """Run a task; `done`, `refused` as somebody else writes the slice, `broken` by the planned fault, or `full`."""
    fault = task.fault or Fault("", 0)
    _plan.fault = fault if fault.point == "put" else replace(fault, at=0)
    n = n_rows(task.version)
    rows = [(run, task.version, i, n) for run in task.runs for i in range(n)]
    frame = spark.createDataFrame(rows, "run string, version int, i int, n int").repartition(2)
    if fault.point == COMPUTE:
        broken = f"run = '{task.runs[-1]}' AND i = {fault.at % n}"
        frame = frame.selectExpr(
            "run", f"CAST(IF({broken}, raise_error('injected'), version) AS INT) version", "i", "n"
        )
    partition = RunPartition(run_date=task.night, dataset=task.dataset)
    try:
        replace_partition(frame, place, None, partition, task.runs)
    except OutputRefusedError as error:
        told = {"injected": "broken", FULL: "full", "being written by": "refused"}
        for sign, end in told.items():
            if sign in str(error):
                return end
        raise
    finally:
        _plan.fault = None
    return "done"


# ------------------------------------------------------------------------------------------------- what is there


def judge(rows: Rows, allowed: set[int]) -> tuple[str, int]:
    """Say whether rows are those of one write; and of which version, 0 where there are none."""
    if not rows:
        return ("whole" if 0 in allowed else "lost"), 0
    versions = {version for version, _, _ in rows}
    version = max(versions)
    indices = sorted(i for _, i, _ in rows)
    if len(versions) > 1:
        return "mixed", version
    if len(indices) > len(set(indices)):
        return "doubled", version
    if indices != list(range(n_rows(version))):
        return "mixed", version
    return ("whole" if version in allowed else "wrong"), version


def _rows(table: pa.Table) -> Rows:
    return [(row["version"], row["i"], row["n"]) for row in table.to_pylist()]


class Reader:
    """Reads a folder while it is written; slices in `settled` were there after some night, and so must stay."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.settled: set[Path] = set()
        self.counts: Counter[str] = Counter()
        self.complaints: list[str] = []

    def look(self) -> None:
        """Read every slice once. Files that vanish between listing and opening are an error that readers see."""
        for place in self.settled | set(self.root.glob("run_date=*/slice=*")):
            must_be = place in self.settled
            rows: Rows = []
            try:
                files = [one for one in place.iterdir() if one.suffix == ".parquet" and one.name[0] not in "._"]
                for file in files:
                    rows += _rows(pq.ParquetFile(file).read())
            except FileNotFoundError as error:
                if Path(str(error.filename or "")) != place:
                    self.counts["missed"] += 1
                    continue
            self.counts["reads"] += 1
            verdict, _ = judge(rows, {version for version, _, _ in rows})
            if verdict != "whole" and (rows or must_be):
                self.counts[verdict] += 1
                self.complaints.append(f"reader: {place} is {verdict}: {rows}")


def as_json(task: Task) -> dict[str, object]:
    """A task on its way to another process."""
    return {**vars(task), "night": task.night.isoformat(), "fault": task.fault and vars(task.fault)}


def from_json(parts: dict[str, object]) -> Task:
    """A task from another process."""
    task = Task(**parts)  # type: ignore[arg-type]  # JSON, of `as_json`
    fault = None if task.fault is None else Fault(**task.fault)
    return replace(task, night=date.fromisoformat(str(task.night)), runs=tuple(task.runs), fault=fault)


__all__ = ["COMPUTE", "FORMATS", "FULL", "Fault", "Reader", "Task", "broken_calls", "judge", "plan_fault", "write"]
