"""Break writes of nightly tables on purpose, and look what is left of them.

In each night two to four writers replace slices of one table, often the same ones, at the same time: a data set has
three runs. At random some are broken by a row that raises or by a step of the write that fails, some are held up at
such a step, some meet a full disk, some are killed (Python, its Java, or both); a cluster loses executors.
After each night every slice must hold exactly the rows of one write: of the last one that said it was done, or of one
that was killed. Then what did not get done is run again, which must heal: it is done, and leaves nothing behind.

Of folders a reader checks the same all the time; `missed` counts files that were replaced between its listing and
its opening them, which readers see as an error. Prints a table of outcomes; exits 1 if a slice was lost, doubled or
mixed, or holds rows that it must not (`wrong`), or a re-run did not heal.

    scripts/faults --n 500
    scripts/faults --n 100 --format hive
    scripts/faults --n 100 --cluster
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from pathlib import Path
from typing import Protocol

import pytest
from pyspark.sql import SparkSession

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))  # clusters and disks of the tests

from faults_cluster import SETTINGS, cluster_below, losing_executors
from faults_formats import FORMATS, Format, SliceKey, place_of
from faults_process import Writers, session
from faults_rows import Reader, Task, broken_calls, judge, plan_fault, write
from support.cluster import Cluster
from support.disks import Disk, small_disk

DATASETS, RUNS = ("shop", "app"), ("a", "b", "c")
OUTCOMES = ("done", "refused", "broken", "full", "killed")
FAILURES = ("lost", "doubled", "mixed", "wrong", "unhealed")
COLUMNS = ("nights", "writers", *OUTCOMES, "executors", "re-runs", "reads", "missed", *FAILURES)


class Running(Protocol):
    """Writers that run tasks at the same time; with random numbers some of them meet with an accident."""

    def run(self, tasks: Sequence[Task], rng: random.Random | None = None) -> list[str]:
        """How each of them ended."""


@dataclass
class Leg:
    """One table, and what was done to it; `known` is the version that each slice must hold, or one of several."""

    name: str
    kind: Format
    place: str
    known: dict[SliceKey, set[int]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    complaints: list[str] = field(default_factory=list)
    reader: Reader | None = None

    def settle(self, tasks: Sequence[Task], ended: Sequence[str]) -> None:
        """Learn from what the writers of a night say which versions their slices may hold now."""
        for one in {one for task in tasks for one in task.slices}:
            pairs = [(task, end) for task, end in zip(tasks, ended, strict=True) if one in task.slices]
            done = {task.version for task, end in pairs if end == "done"}
            killed = {task.version for task, end in pairs if end == "killed"}
            # Writers that were both done came one after the other; which was the later one, nobody knows here.
            self.known[one] = (done or self.known.get(one, {0})) | killed

    def check(self, spark: SparkSession, night: date) -> None:
        """Judge every slice of a night, and remember what it holds."""
        found = self.kind.read(spark, self.place, night)
        for one, allowed in self.known.items():
            if one[0] != night.isoformat():
                continue
            verdict, version = judge(found.get(one, []), allowed)
            if verdict != "whole":
                self.counts[verdict] += 1
                self.complaints.append(f"{self.name}: {one} is {verdict}: {found.get(one)}, not one of {allowed}")
            self.known[one] = {version}
            if self.reader is not None and version:
                self.reader.settled |= {place_of(self.reader.root, one)}

    def heal(self, tasks: Iterable[Task], writers: Running) -> None:
        """Run tasks again, one after the other and without faults: they are done, and nothing is left over."""
        for task in tasks:
            (end,) = writers.run([task])
            self.counts["re-runs"] += 1
            self.settle([task], [end])
            if end != "done":
                self.counts["unhealed"] += 1
                self.complaints.append(f"{self.name}: run again, {task} is {end}")
        hidden = Path(self.place) / ".ndcg-spark"
        if self.kind.folder and hidden.exists():
            self.counts["unhealed"] += 1
            self.complaints.append(f"{self.name}: left over: {sorted(map(str, hidden.rglob('*')))[:9]}")


def nights(
    count: int, seed: str, kind: Format, versions: Iterator[int], most: int
) -> Iterator[tuple[random.Random, date, list[Task]]]:
    """Tasks of each night; nights come again, so that most writes replace rows."""
    rng = random.Random(seed)
    for _ in range(count):
        night = date(2026, 1, 1) + timedelta(days=rng.randrange(max(1, count // 4)))
        tasks = []
        for _ in range(rng.randint(2, most)):
            runs = tuple(sorted(rng.sample(RUNS, rng.randint(1, 3))))
            tasks.append(Task(night, rng.choice(DATASETS), runs, next(versions), plan_fault(rng, kind)))
        yield rng, night, tasks


def run_leg(spark: SparkSession, leg: Leg, writers: Running, count: int, seed: str, most: int = 4) -> None:
    """Break, check, heal, check, night for night."""
    versions = itertools.count(1)
    for rng, night, tasks in nights(count, f"{seed} {leg.name}", leg.kind, versions, most):
        ended = writers.run(tasks, rng)
        leg.counts.update(nights=1, writers=len(tasks))
        leg.counts.update(ended)
        leg.settle(tasks, ended)
        leg.check(spark, night)
        again = [
            replace(task, fault=None, version=next(versions))
            for task, end in zip(tasks, ended, strict=True)
            if end not in ("done", "refused")
        ]
        if again:
            leg.heal(again, writers)
            leg.check(spark, night)


class Threads:
    """Writers that are threads of one session; with a disk, it is full in every other night."""

    def __init__(self, spark: SparkSession, leg: Leg, disk: Disk | None = None) -> None:
        self._spark, self._leg, self._disk, self._pool = spark, leg, disk, ThreadPoolExecutor(4)

    def run(self, tasks: Sequence[Task], rng: random.Random | None = None) -> list[str]:
        """How each of them ended."""
        if self._disk is not None and rng is not None and rng.random() < 0.5:
            self._disk.fill(left=rng.randrange(160) << 10)
        try:
            return list(self._pool.map(lambda task: write(self._spark, self._leg.place, task), tasks))
        finally:
            if self._disk is not None:
                self._disk.free()


class OnCluster:
    """Writers that are processes, on a cluster that loses executors."""

    def __init__(self, writers: Writers, cluster: Cluster, leg: Leg) -> None:
        self._writers, self._cluster, self._leg = writers, cluster, leg

    def run(self, tasks: Sequence[Task], rng: random.Random | None = None) -> list[str]:
        """How each of them ended."""
        if rng is None:
            return self._writers.run(tasks)
        with losing_executors(self._cluster, rng) as killed:
            ended = self._writers.run(tasks, rng)
        self._leg.counts["executors"] += len(killed)
        return ended


@contextmanager
def reading(leg: Leg) -> Iterator[None]:
    """Read a folder all the time: what was there once must be there whole, in one version, always."""
    if not leg.kind.folder:
        yield
        return
    leg.reader = reader = Reader(Path(leg.place))
    stop = threading.Event()

    def run() -> None:
        while not stop.is_set():
            reader.look()
            time.sleep(0.02)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        leg.counts.update(reader.counts)
        leg.complaints += reader.complaints


def thread_leg(spark: SparkSession, name: str, count: int, seed: str, scratch: Path) -> Leg:
    """A table of a format, written by threads."""
    kind = FORMATS[name]
    leg = Leg(f"{name}, threads", kind, kind.reference(scratch, "threads"))
    kind.make(spark, leg.place)
    try:
        with broken_calls(kind), reading(leg):
            run_leg(spark, leg, Threads(spark, leg), count, seed)
    finally:
        kind.drop(spark, leg.place)
    return leg


def disk_leg(spark: SparkSession, count: int, seed: str, scratch: Path) -> Leg | None:
    """A folder on a disk that fills up; nothing where no disk can be mounted."""
    kind = FORMATS["folder"]
    try:
        with small_disk(scratch / "disk", 4096) as disk:
            leg = Leg("folder, full disk", kind, kind.reference(disk.folder, "table"))
            with broken_calls(kind), reading(leg):
                run_leg(spark, leg, Threads(spark, leg, disk), count, seed)
            return leg
    except pytest.skip.Exception as reason:
        print(f"no leg with full disks: {reason}", file=sys.stderr)
        return None


def process_leg(spark: SparkSession, count: int, seed: str, scratch: Path) -> Leg:
    """A folder, written by processes that are killed."""
    kind = FORMATS["folder"]
    leg = Leg("folder, processes", kind, kind.reference(scratch, "processes"))
    with Writers(4, "folder", leg.place, scratch) as writers, reading(leg):
        run_leg(spark, leg, writers, count, seed)
    return leg


def cluster_leg(spark: SparkSession, count: int, seed: str, scratch: Path) -> Leg:
    """A folder, written by drivers of a cluster; drivers and executors are killed."""
    kind = FORMATS["folder"]
    leg = Leg("folder, cluster", kind, kind.reference(scratch, "cluster-table"))
    with cluster_below(scratch, writers=2) as cluster:
        settings = {**SETTINGS, "spark.master": cluster.url}
        with Writers(2, "folder", leg.place, scratch, settings) as writers, reading(leg):
            run_leg(spark, leg, OnCluster(writers, cluster, leg), count, seed, most=2)
    return leg


def run_legs(
    spark: SparkSession,
    count: int,
    seed: str,
    scratch: Path,
    formats: Sequence[str] = ("folder", "parquet"),
    *,
    short: bool = False,
    cluster: bool = False,
) -> list[Leg]:
    """Nights for each format. Of the folder a quarter goes to killed processes and to full disks, unless `short`."""
    if cluster:
        return [cluster_leg(spark, count, seed, scratch)]
    special = count // 8 if "folder" in formats and not short else 0
    rest = count - 2 * special
    shares = [rest // len(formats) + (at < rest % len(formats)) for at in range(len(formats))]
    legs: list[Leg | None] = [
        thread_leg(spark, name, share, seed, scratch) for name, share in zip(formats, shares, strict=True)
    ]
    if special:
        legs += [process_leg(spark, special, seed, scratch), disk_leg(spark, special, seed, scratch)]
    return [leg for leg in legs if leg is not None]


def table_of(legs: Sequence[Leg]) -> str:
    """Outcomes as Markdown."""
    lines = [f"| table | {' | '.join(COLUMNS)} |", f"| --- |{' ---: |' * len(COLUMNS)}"]
    lines += [f"| {leg.name} | {' | '.join(str(leg.counts[name]) for name in COLUMNS)} |" for leg in legs]
    return "\n".join(lines)


def main() -> int:
    """Parse, break, answer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=200, metavar="NIGHTS")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--format", action="append", choices=list(FORMATS), help="repeatable; default: all of them")
    parser.add_argument("--cluster", action="store_true", help="a folder, written from a cluster of processes")
    options = parser.parse_args()
    formats = options.format or list(FORMATS)
    # Writers find the support of the tests, too.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (sys.path[0], os.environ.get("PYTHONPATH"))))
    settings = dict(pair for name in formats for pair in FORMATS[name].settings)
    with tempfile.TemporaryDirectory(prefix="ndcg-spark-faults-") as name:
        spark = session(Path(name), settings)
        try:
            legs = run_legs(spark, options.n, options.seed, Path(name), formats, cluster=options.cluster)
        finally:
            spark.stop()
    print(table_of(legs))
    for line in [line for leg in legs for line in leg.complaints][:20]:
        print(line, file=sys.stderr)
    return int(any(leg.counts[name] for leg in legs for name in FAILURES))


if __name__ == "__main__":
    sys.exit(main())
