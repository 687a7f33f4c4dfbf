"""Rows that tell which write they belong to, how they are written and broken, and what a table holds of them."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from support.cluster import list_children

from ndcg_spark.errors import OutputRefusedError
from ndcg_spark.tables import Slices, stage_slices, swap_in
from scripts.checks.writes.tables import RELEASE, Format, Rows, SliceKey

COMPUTE = "compute"
FULL = "No space left on device"
WAYS = ("python", "java", "both")
"""What of a process is killed."""


@dataclass(frozen=True)
class Fault:
    """Point at which a write fails, and the row, slice or output.

    With `seconds` it only waits there; with `kill`, one of `WAYS`, its process is killed there.
    """

    point: str
    at: int
    seconds: float = 0.0
    kill: str = ""


@dataclass(frozen=True)
class Task:
    """One write: of some runs of a night and data set, in a version of its own.

    It writes all `tables` of its leg that it names by their numbers, together, as a job with several outputs does.
    """

    night: date
    dataset: str
    runs: tuple[str, ...]
    version: int
    fault: Fault | None = None
    tables: tuple[int, ...] = (0,)

    @property
    def slices(self) -> list[SliceKey]:
        """Slices that the task replaces."""
        return [(self.night.isoformat(), self.dataset, run) for run in self.runs]


def n_rows(version: int) -> int:
    """Return the number of rows of a slice in a version; it differs, so duplicated or partial slices show."""
    return 3 + version % 5


def plan_fault(rng: random.Random, kind: Format) -> Fault | None:
    """Half of the writes break or are held up, at any point."""
    if rng.random() < 0.5:
        return None
    point = rng.choice([COMPUTE, *kind.steps])
    waits = point != COMPUTE and rng.random() < 0.4
    return Fault(point, rng.randrange(3), rng.uniform(0.05, 0.5) if waits else 0.0)


def plan_kill(rng: random.Random, kind: Format, method: str) -> Fault:
    """Kill a process when it is about to take some step."""
    return Fault(rng.choice([*kind.steps, "release"]), rng.randrange(4), kill=method)


_plan = threading.local()


@contextmanager
def broken_calls(kind: Format) -> Iterator[None]:
    """Let steps of the writer fail or wait where the running thread has planned it."""

    def breaking(point, call):
        def run(*arguments):
            fault = getattr(_plan, "fault", None)
            if fault is not None and fault.point == point:
                _plan.fault = replace(fault, at=fault.at - 1) if fault.at else None
                if fault.at == 0 and fault.kill:
                    end(os.getpid(), fault.kill)
                    return call(*arguments)  # without Java, if that is what was killed
                if fault.at == 0 and not fault.seconds:
                    raise OSError(5, f"injected at {point}")
                if fault.at == 0:
                    time.sleep(fault.seconds)
            return call(*arguments)

        return run

    steps = {**kind.steps, "release": RELEASE}
    originals = {point: getattr(owner, name) for point, (owner, name) in steps.items()}
    try:
        for point, (owner, name) in steps.items():
            setattr(owner, name, breaking(point, originals[point]))
        yield
    finally:
        for point, (owner, name) in steps.items():
            setattr(owner, name, originals[point])


def write(spark: SparkSession, places: Sequence[str], task: Task) -> str:
    """Run a task; `done`, `refused` as somebody else writes the slice, `broken` by the planned fault, `full`, or
    `kept`: broken after a commit that could not be undone.

    All its tables are staged before any of them is swapped, as the jobs do.
    """
    fault = task.fault or Fault("", 0)
    # Of all steps only this one is taken for each slice; the others are taken once for each table.
    _plan.fault = fault if fault.point == "put" else replace(fault, at=fault.at % len(task.tables))
    n = n_rows(task.version)
    rows = [(run, task.version, i, n) for run in task.runs for i in range(n)]
    whole = spark.createDataFrame(rows, "run string, version int, i int, n int").repartition(2)
    breaking = f"run = '{task.runs[-1]}' AND i = {fault.at % n}"
    broken = whole.selectExpr(
        "run", f"CAST(IF({breaking}, raise_error('injected'), version) AS INT) version", "i", "n"
    )
    slices = Slices.for_night(task.night, task.dataset, task.runs)
    try:
        with ExitStack() as stack:
            staged = []
            for number, table in enumerate(task.tables):
                is_broken = fault.point == COMPUTE and number == fault.at % len(task.tables)
                staged_write = stage_slices(broken if is_broken else whole, places[table], None, slices)
                staged.append(stack.enter_context(closing(staged_write)))
            swap_in(staged)
    except OutputRefusedError as error:
        outcomes = {
            "injected": "broken",
            FULL: "full",
            "being written by": "refused",
            "meanwhile; run again": "refused",
        }
        for sign, end_ in outcomes.items():
            if sign in str(error):
                return end_
        raise
    except RuntimeError as error:
        # The job ends with exit code 1 and names the table. Sail does not always read an earlier version.
        if "could not be undone" in str(error):
            return "kept"
        raise
    finally:
        _plan.fault = None
    return "done"


def end(pid: int, how: str) -> None:
    """Kill Python, its Java, or both at once, as when the machine is gone; Python last, as it may be this one."""
    pids = []
    if how != "python":
        pids += [child for child, line in list_children([pid]).items() if "java" in line.split(" ")[0]]
    if how != "java":
        pids.append(pid)
    for child in pids:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


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
                files = [path for path in place.iterdir() if path.suffix == ".parquet" and path.name[0] not in "._"]
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
    """Serialize a task for another process."""
    return {**vars(task), "night": task.night.isoformat(), "fault": task.fault and vars(task.fault)}


def from_json(parts: dict[str, object]) -> Task:
    """Read a task of another process."""
    task = Task(**parts)  # type: ignore[arg-type]  # JSON, of `as_json`
    fault = None if task.fault is None else Fault(**task.fault)
    night = date.fromisoformat(str(task.night))
    return replace(task, night=night, runs=tuple(task.runs), tables=tuple(task.tables), fault=fault)
