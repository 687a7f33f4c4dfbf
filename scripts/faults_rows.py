"""Rows that tell which write they belong to, how they are written and broken, and what a table holds of them."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from ndcg_spark.errors import OutputRefusedError
from ndcg_spark.tables import RunPartition, folders, replace_partition, slice_name, table_writes

SliceKey = tuple[str, str, str]
Rows = list[tuple[int, int, int]]
COMPUTE, PUT, REGISTER, VERIFY = "compute", "put", "register", "verify"


@dataclass(frozen=True)
class Task:
    """One write: of some runs of a night and data set, in a version of its own; `fault` is where it breaks."""

    night: date
    dataset: str
    runs: tuple[str, ...]
    version: int
    fault: tuple[str, int] | None

    @property
    def slices(self) -> list[SliceKey]:
        """What it replaces."""
        return [(self.night.isoformat(), self.dataset, run) for run in self.runs]


def n_rows(version: int) -> int:
    """Rows of a slice in a version; versions differ in it, so that doubled and half slices show."""
    return 3 + version % 5


def plan_fault(rng: random.Random) -> tuple[str, int] | None:
    """Where a write breaks, and at which row or at which of its slices; every other write does not."""
    point = rng.choice([None, None, None, None, COMPUTE, PUT, REGISTER, VERIFY])
    return None if point is None else (point, rng.randrange(3))


_plan = threading.local()


@contextmanager
def broken_calls() -> Iterator[None]:
    """Let steps of the swap fail where the running thread has planned it."""
    kept = folders.FolderWrite._put, table_writes.add_partitions, table_writes.verify_counts

    def breaking(point, call):
        def run(*arguments):
            planned, countdown = getattr(_plan, "fault", None) or (None, 0)
            if planned == point:
                if countdown == 0:
                    raise OSError(5, f"injected at {point}")
                _plan.fault = (planned, countdown - 1)
            return call(*arguments)

        return run

    folders.FolderWrite._put = breaking(PUT, kept[0])
    table_writes.add_partitions = breaking(REGISTER, kept[1])
    table_writes.verify_counts = breaking(VERIFY, kept[2])
    try:
        yield
    finally:
        folders.FolderWrite._put, table_writes.add_partitions, table_writes.verify_counts = kept


def write(spark: SparkSession, place: str, task: Task) -> str:
    """Run a task; `done`, `refused` as somebody else writes the slice, or `broken` by the planned fault."""
    point, at = task.fault or (None, 0)
    _plan.fault = (point, at if point == PUT else 0)
    n = n_rows(task.version)
    rows = [(run, task.version, i, n) for run in task.runs for i in range(n)]
    frame = spark.createDataFrame(rows, "run string, version int, i int, n int").repartition(2)
    if point == COMPUTE:
        broken = f"run = '{task.runs[-1]}' AND i = {at % n}"
        frame = frame.selectExpr(
            "run", f"CAST(IF({broken}, raise_error('injected'), version) AS INT) version", "i", "n"
        )
    partition = RunPartition(run_date=task.night, dataset=task.dataset)
    try:
        replace_partition(frame, place, None, partition, task.runs)
    except OutputRefusedError as error:
        if "injected" in str(error):
            return "broken"
        if "being written by" in str(error):
            return "refused"
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


def in_table(spark: SparkSession, table: str, night: date) -> dict[SliceKey, Rows]:
    """Rows of a night in a catalog table."""
    found: dict[SliceKey, Rows] = {}
    if spark.catalog.tableExists(table):
        for row in spark.table(table).where(f"run_date = DATE'{night}'").collect():
            found.setdefault((night.isoformat(), row.dataset, row.run), []).append((row.version, row.i, row.n))
    return found


def place_of(root: Path, key: SliceKey) -> Path:
    """Folder of a slice."""
    night, dataset, run = key
    return root / f"run_date={night}" / f"slice={slice_name(dataset, run)}"


def in_folder(root: Path, night: date) -> dict[SliceKey, Rows]:
    """Rows of a night in a folder, through Arrow."""
    found: dict[SliceKey, Rows] = {}
    for place in root.glob(f"run_date={night}/slice=*/*.parquet"):
        for row in pq.ParquetFile(place).read().to_pylist():
            key = (night.isoformat(), row["dataset"], row["run"])
            if place.parent != place_of(root, key):
                raise RuntimeError(f"{place} holds rows of {key}")
            found.setdefault(key, []).append((row["version"], row["i"], row["n"]))
    return found


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
    return {**vars(task), "night": task.night.isoformat()}


def from_json(parts: dict[str, object]) -> Task:
    """A task from another process."""
    task = Task(**parts)  # type: ignore[arg-type]  # JSON, of `as_json`
    fault = None if task.fault is None else (task.fault[0], task.fault[1])
    return replace(task, night=date.fromisoformat(str(task.night)), runs=tuple(task.runs), fault=fault)
