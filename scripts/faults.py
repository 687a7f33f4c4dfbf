"""Break writes of nightly tables on purpose, and look what is left of them.

In each night two to four writers replace slices of one table, often the same ones, at the same time: a data set has
three runs. At random some are broken by a row that raises or by a step of the write that fails, some are held up at
such a step, some meet a full disk, some are killed (Python, its Java, or both); a cluster loses executors.
After each night every slice must hold exactly the rows of one write: of the last one that said it was done, or of one
that was killed. Then what did not get done is run again, which must heal: it is done, and leaves nothing behind.

Of folders a reader checks the same all the time; `missed` counts files that were replaced between its listing and
its opening them, which readers see as an error. Prints a table of outcomes; exits 1 if a slice was lost, doubled or
mixed, or holds rows that it must not (`wrong`), or a re-run did not heal.

Iceberg runs on Spark 3.5 and Delta on Sail, as for scripts/formats, each in an environment of its own.

    scripts/faults --n 500
    scripts/faults --n 100 --leg hive --leg cluster
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import subprocess
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
from formats_places import start_sail
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


def process_leg(spark: SparkSession, name: str, count: int, seed: str, scratch: Path) -> Leg:
    """A table that processes with sessions of their own share, and which are killed."""
    kind = FORMATS[name]
    leg = Leg(f"{name}, processes", kind, kind.reference(scratch, "processes"))
    with Writers(4, name, leg.place, scratch, kind.settings(scratch)) as writers, reading(leg):
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
    spark: SparkSession, count: int, seed: str, scratch: Path, names: Sequence[str] = ("folder", "parquet")
) -> list[Leg]:
    """Nights for each format and the cluster.

    Some of those of the folder and of Iceberg go to processes that are killed, and to full disks. A cluster takes
    long, so it has a quarter of the nights of a format.
    """
    weights = {name: 1 if name == "cluster" else 4 for name in names}
    legs: list[Leg | None] = []
    for at, name in enumerate(names):
        share = count * weights[name] // sum(weights.values())
        share += 0 if at else count - sum(count * one // sum(weights.values()) for one in weights.values())
        if name == "cluster":
            legs.append(cluster_leg(spark, share, seed, scratch))
            continue
        special = share // 4 if name in ("folder", "iceberg") else 0
        disk = special if name == "folder" else 0
        legs.append(thread_leg(spark, name, share - special - disk, seed, scratch))
        if special:
            legs.append(process_leg(spark, name, special, seed, scratch))
        if disk:
            legs.append(disk_leg(spark, disk, seed, scratch))
    return [leg for leg in legs if leg is not None]


Outcome = tuple[str, dict[str, int], list[str]]
"""Name of a leg, its counts and complaints."""


def run_here(names: Sequence[str], count: int, seed: str) -> list[Outcome]:
    """Run legs in this Python."""
    # Writers find the support of the tests, too.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (sys.path[0], os.environ.get("PYTHONPATH"))))
    with tempfile.TemporaryDirectory(prefix="ndcg-spark-faults-") as folder:
        root = Path(folder)
        kinds = [FORMATS[name] for name in names if name in FORMATS]
        server = None
        if "delta" in names:
            spark, server = start_sail(root)
        else:
            spark = session(root, {key: value for kind in kinds for key, value in kind.settings(root).items()})
        try:
            legs = run_legs(spark, count, seed, root, names)
        finally:
            spark.stop()
            if server is not None:
                server.stop()
    return [(leg.name, dict(leg.counts), leg.complaints) for leg in legs]


def run_elsewhere(name: str, count: int, seed: str) -> list[Outcome]:
    """Run a leg in its own environment."""
    python = Path(sys.prefix) / FORMATS[name].environment / "bin" / "python"
    command = [str(python), __file__, "--here", "--n", str(count), "--seed", seed, "--leg", name]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent.parent)}
    environment |= dict.fromkeys(("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"), str(python))
    ended = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if ended.returncode:
        raise RuntimeError(f"the leg {name} ended with exit code {ended.returncode}")
    return [tuple(one) for one in json.loads(ended.stdout.splitlines()[-1])]


def run_all(names: Sequence[str], count: int, seed: str) -> list[Outcome]:
    """Run legs, those of this Python first; each has a share of the nights."""
    here = [name for name in names if name == "cluster" or not FORMATS[name].environment]
    elsewhere = [name for name in names if name not in here]
    each = count // len(names)
    outcomes = run_here(here, count - each * len(elsewhere), seed) if here else []
    for name in elsewhere:
        outcomes += run_elsewhere(name, each, seed)
    return outcomes


def table_of(outcomes: Sequence[Outcome]) -> str:
    """Outcomes as Markdown, with a line of sums."""
    total: Counter[str] = Counter()
    for _, counts, _ in outcomes:
        total.update(counts)
    lines = [f"| table | {' | '.join(COLUMNS)} |", f"| --- |{' ---: |' * len(COLUMNS)}"]
    for name, counts in [*((name, counts) for name, counts, _ in outcomes), ("all", total)]:
        lines.append(f"| {name} | {' | '.join(str(counts.get(column, 0)) for column in COLUMNS)} |")
    return "\n".join(lines)


def main() -> int:
    """Parse, break, answer."""
    names = [*FORMATS, "cluster"]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=200, metavar="NIGHTS")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--leg", action="append", choices=names, help="repeatable; default: all of them")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    run = run_here if options.here else run_all
    outcomes = run(options.leg or names, options.n, options.seed)
    print(json.dumps(outcomes) if options.here else table_of(outcomes))
    for line in [line for _, _, complaints in outcomes for line in complaints][:20]:
        print(line, file=sys.stderr)
    failed = any(counts.get(name) for _, counts, _ in outcomes for name in FAILURES)
    return int(failed and not options.here)


if __name__ == "__main__":
    sys.exit(main())
