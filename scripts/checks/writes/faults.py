"""Break writes of nightly tables on purpose, and look what is left of them.

In each night two to four writers replace slices of a table, often the same ones, at the same time: a data set has
three runs. Two thirds of the jobs write a second table with it. At random some are broken by a row that raises or by
a step of the write that fails, some are held up at such a step, some meet a full disk, some are killed (Python, its
Java, or both), by the clock or just before some step; a cluster loses executors.
After each night every slice of every table must hold exactly the rows of one write: of the last one that said it was
done, or of one that was killed. Then what did not get done is run again, which must heal: it is done, and leaves
nothing behind.

The leg `local` kills jobs without Spark and their workers while they write one night over another: each signal, at
any moment and before steps of the write. They say so in a line, and the next write removes what is left.

The leg `engines` breaks nothing: random nights, each written by Spark or without it, some by one after the other.
Their slices must be those of the same nights by Spark alone, columns and rows, and so must what `roll-up` and
`flag-changes` make of them.

The leg `nights` kills `ndcg-spark nightly`, by the clock or just before a step of writing a table or the run log, and
resumes it. Exit code and tables must be those of the same night unbroken, to the bit; at most the step that was
killed runs `twice`, and nothing is left behind. One night in ten has steps of Spark. 40 nights take 10 minutes; run
it when `nightly`, its run log or the writes of folders have changed.

Of folders a reader checks the same all the time; `missed` counts files that were replaced between its listing and
its opening them, which readers see as an error. Prints a table of outcomes; exits 1 if a slice was lost, doubled or
mixed, or holds rows that it must not (`wrong`), or a re-run did not heal. `seconds` are those of all nights of a row,
without the start of sessions before the first.

Processes share tables of parquet, ORC and Hive by a metastore, which the session that looks serves on this machine.
Delta has no Java, so that Python alone is killed. Full disks are tried with folders and those three, the cluster with
folders and parquet tables.

Iceberg runs on Spark 3.5 and Delta on Sail, as in formats.py, each in an environment of its own.

    scripts/check writes faults --n 500
    scripts/check writes faults --n 100 --leg hive --leg cluster
    scripts/check writes faults --n 100 --leg engines
    scripts/check writes faults --n 40 --leg nights
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from pathlib import Path
from typing import Protocol

import pytest
from pyspark.sql import SparkSession
from support.cluster import Cluster
from support.disks import Disk, mount_small_disk
from support.spark_rankings import SHORT_LIVED_SETTINGS

from ndcg_spark.tables.claims import LOCK_FOLDER
from scripts.checks.writes.cluster import SETTINGS, cluster_below, losing_executors
from scripts.checks.writes.elsewhere import run_elsewhere
from scripts.checks.writes.engines import write_in_turns
from scripts.checks.writes.local import kill_nights
from scripts.checks.writes.nights import resume_nights
from scripts.checks.writes.process import Target, Writers
from scripts.checks.writes.rows import Reader, Task, broken_calls, judge, plan_fault, write
from scripts.checks.writes.sessions import free_port, metastore_settings, serve_metastore, session, start_sail
from scripts.checks.writes.tables import FORMATS, Format, SliceKey, place_of

DATASETS, RUNS = ("shop", "app"), ("a", "b", "c")
TABLES = ((0,), (0, 1), (0, 1))
"""A job writes the table of metrics, and often the one of queries with it."""
OUTCOMES = ("done", "refused", "broken", "full", "killed", "kept")
FAILURES = ("lost", "doubled", "mixed", "wrong", "unhealed")
COLUMNS = (
    "nights",
    "writers",
    *OUTCOMES,
    "executors",
    "re-runs",
    "resumed",
    "twice",
    "reads",
    "missed",
    *FAILURES,
    "seconds",
)


class Running(Protocol):
    """Writers that run tasks at the same time; some of them fail at random."""

    def run(self, tasks: Sequence[Task], rng: random.Random | None = None) -> list[str]:
        """Run tasks; return how each of them ended."""


@dataclass
class Leg:
    """Two tables that jobs write together, and the states that are allowed.

    `known` is the version that each slice of each of them must hold, or one of several.
    """

    name: str
    kind: Format
    places: tuple[str, ...]
    known: dict[tuple[str, SliceKey], set[int]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    complaints: list[str] = field(default_factory=list)
    readers: dict[str, Reader] = field(default_factory=dict)

    def written(self, task: Task) -> list[tuple[str, SliceKey]]:
        """List the slices that a task replaces."""
        return [(self.places[place_number], slice_key) for place_number in task.tables for slice_key in task.slices]

    def settle(self, tasks: Sequence[Task], ended: Sequence[str]) -> None:
        """Learn from what the writers of a night say which versions their slices may hold now."""
        for slice_key in {slice_key for task in tasks for slice_key in self.written(task)}:
            pairs = [(task, end) for task, end in zip(tasks, ended, strict=True) if slice_key in self.written(task)]
            done = {task.version for task, end in pairs if end == "done"}
            killed = {task.version for task, end in pairs if end in ("killed", "kept")}
            # Writers that were both done came one after the other; which was the later one, nobody knows here.
            self.known[slice_key] = (done or self.known.get(slice_key, {0})) | killed

    def check(self, spark: SparkSession, night: date) -> None:
        """Judge every slice of a night, and remember what it holds."""
        rows_by_place = {place: self.kind.read(spark, place, night) for place in self.places}
        for (place, slice_key), allowed in self.known.items():
            if slice_key[0] != night.isoformat():
                continue
            rows = rows_by_place[place].get(slice_key, [])
            verdict, version = judge(rows, allowed)
            if verdict != "whole":
                self.counts[verdict] += 1
                self.complaints.append(f"{self.name}: {place} {slice_key} is {verdict}: {rows}, not one of {allowed}")
            self.known[place, slice_key] = {version}
            if place in self.readers and version:
                self.readers[place].settled |= {place_of(self.readers[place].root, slice_key)}

    def heal(self, tasks: Iterable[Task], writers: Running, spark: SparkSession | None = None) -> None:
        """Run tasks again, one after the other and without faults: they are done, and nothing is left over.

        On a cluster executors of a killed job may write for a moment longer than the last of these runs takes; what
        they leave is removed by the next run, which then is one of the same task.
        """
        tasks = list(tasks)
        self._again(tasks, writers)
        if any((self.kind.root(spark, place) / LOCK_FOLDER).exists() for place in self.places):
            self._again(tasks[-1:], writers)
        for place in self.places:
            hidden = self.kind.root(spark, place) / LOCK_FOLDER
            if hidden.exists():
                self.counts["unhealed"] += 1
                self.complaints.append(f"{self.name}: left over: {sorted(map(str, hidden.rglob('*')))[:9]}")

    def _again(self, tasks: Sequence[Task], writers: Running) -> None:
        for task in tasks:
            (end,) = writers.run([task])
            self.counts["re-runs"] += 1
            self.settle([task], [end])
            if end != "done":
                self.counts["unhealed"] += 1
                self.complaints.append(f"{self.name}: run again, {task} is {end}")


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
            fault, tables = plan_fault(rng, kind), rng.choice(TABLES)
            tasks.append(Task(night, rng.choice(DATASETS), runs, next(versions), fault, tables))
        yield rng, night, tasks


def run_leg(spark: SparkSession, leg: Leg, writers: Running, count: int, seed: str, most: int = 4) -> None:
    """Break, check, heal, check, night for night."""
    versions, began = itertools.count(1), time.monotonic()
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
            leg.heal(again, writers, spark)
            leg.check(spark, night)
    seconds = round(time.monotonic() - began)
    leg.counts["seconds"] += seconds
    print(f"{leg.name}: {count} nights in {seconds} s", file=sys.stderr, flush=True)


class Threads:
    """Writers that are threads of one session; with a disk, it is full in every other night."""

    def __init__(self, spark: SparkSession, leg: Leg, disk: Disk | None = None) -> None:
        self._spark, self._leg, self._disk, self._pool = spark, leg, disk, ThreadPoolExecutor(4)

    def run(self, tasks: Sequence[Task], rng: random.Random | None = None) -> list[str]:
        """Run tasks; return how each of them ended."""
        if self._disk is not None and rng is not None and rng.random() < 0.5:
            self._disk.fill(left=rng.randrange(160) << 10)
        try:
            return list(self._pool.map(lambda task: write(self._spark, self._leg.places, task), tasks))
        finally:
            if self._disk is not None:
                self._disk.free()


class Processes:
    """Writers that are processes, which are killed."""

    def __init__(self, writers: Writers, leg: Leg, name: str, roots: Sequence[Path] = ()) -> None:
        self._writers, self._target = writers, Target(name, leg.places, tuple(map(str, roots)))

    def run(self, tasks: Sequence[Task], rng: random.Random | None = None) -> list[str]:
        """Run tasks; return how each of them ended."""
        return self._writers.run(self._target, tasks, rng)


class OnCluster:
    """Writers that are processes, on a cluster that loses executors."""

    def __init__(self, writers: Processes, cluster: Cluster, leg: Leg) -> None:
        self._writers, self._cluster, self._leg = writers, cluster, leg

    def run(self, tasks: Sequence[Task], rng: random.Random | None = None) -> list[str]:
        """Run tasks; return how each of them ended."""
        if rng is None:
            return self._writers.run(tasks)
        with losing_executors(self._cluster, rng) as killed:
            ended = self._writers.run(tasks, rng)
        self._leg.counts["executors"] += len(killed)
        return ended


@contextmanager
def reading(leg: Leg) -> Iterator[None]:
    """Read folders all the time: a slice that existed once must always be complete, in one version."""
    if not leg.kind.folder:
        yield
        return
    leg.readers = {place: Reader(Path(place)) for place in leg.places}
    stop = threading.Event()

    def run() -> None:
        while not stop.is_set():
            for reader in leg.readers.values():
                reader.look()
            time.sleep(0.02)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        for reader in leg.readers.values():
            leg.counts.update(reader.counts)
            leg.complaints += reader.complaints


@contextmanager
def name_tables(spark: SparkSession, name: str, what: str, folder: Path, schema: str = "") -> Iterator[Leg]:
    """Return two tables of a format, in a schema of the catalog if one is named."""
    kind = FORMATS[name]
    words = what.replace(" ", "_")
    places = tuple(schema + kind.reference(folder, table_name) for table_name in (words, f"{words}_queries"))
    leg = Leg(f"{name}, {what}", kind, places)
    for place in places:
        kind.make(spark, place)
    try:
        with reading(leg):
            yield leg
    finally:
        for place in places:
            kind.drop(spark, place)


def thread_leg(spark: SparkSession, name: str, count: int, seed: str, scratch: Path) -> Leg:
    """Tables of a format, written by threads."""
    with name_tables(spark, name, "threads", scratch) as leg, broken_calls(leg.kind):
        run_leg(spark, leg, Threads(spark, leg), count, seed)
    return leg


def disk_leg(spark: SparkSession, name: str, count: int, seed: str, scratch: Path) -> Leg | None:
    """Tables on a disk that fills up; nothing where no disk can be mounted."""
    schema = "" if FORMATS[name].folder else f"faults_disk_{name}"
    try:
        with mount_small_disk(scratch / f"disk-{name}", 8192) as disk:
            if schema:
                spark.sql(f"CREATE SCHEMA {schema} LOCATION 'file:{disk.folder}/schema'")
            qualified = schema and f"{schema}."
            with name_tables(spark, name, "full disk", disk.folder, qualified) as leg, broken_calls(leg.kind):
                run_leg(spark, leg, Threads(spark, leg, disk), count, seed)
            return leg  # the schema goes with the metastore
    except pytest.skip.Exception as reason:
        print(f"no leg with full disks: {reason}", file=sys.stderr)
        return None


def process_leg(spark: SparkSession, name: str, count: int, seed: str, scratch: Path, writers: Writers) -> Leg:
    """Tables that processes with sessions of their own share, and which are killed."""
    with name_tables(spark, name, "processes", scratch) as leg:
        roots = [leg.kind.root(spark, place) for place in leg.places] if name == "delta" else []
        run_leg(spark, leg, Processes(writers, leg, name, roots), count, seed)
    return leg


def cluster_legs(
    spark: SparkSession, names: Sequence[str], count: int, seed: str, scratch: Path, more: Mapping[str, str]
) -> Iterator[Leg]:
    """Tables of some formats, written by drivers of one cluster; drivers and executors are killed."""
    with cluster_below(scratch, writers=2) as cluster:
        settings = {**more, **SETTINGS, "spark.master": cluster.url}
        with Writers(2, scratch, settings) as writers:
            for number, name in enumerate(names):
                with name_tables(spark, name, "cluster", scratch) as leg:
                    running = OnCluster(Processes(writers, leg, name), cluster, leg)
                    share = count // len(names) + (number < count % len(names))
                    run_leg(spark, leg, running, share, seed, most=2)
                yield leg


def run_legs(
    spark: SparkSession,
    count: int,
    seed: str,
    scratch: Path,
    names: Sequence[str] = ("folder", "parquet"),
    settings: Mapping[str, str] | None = None,
) -> list[Leg]:
    """Nights for each format and the cluster.

    Some of those of each format go to processes that are killed, and to full disks; to processes only where they can
    share its tables, of which `settings` tells that they have one catalog. A cluster takes long, so it has a quarter
    of the nights of a format.
    """
    weights = {name: 1 if name == "cluster" else 4 for name in names}
    shares = {name: count * weight // sum(weights.values()) for name, weight in weights.items()}
    shares[names[0]] += count - sum(shares.values())
    catalog = [name for name in FORMATS if FORMATS[name].metastore]
    legs: list[Leg | None] = []
    killed: list[tuple[str, int]] = []
    for name in [weight for weight in names if weight != "cluster"]:
        alone = settings is None and name in catalog
        # A real run has at least one night with kills for each format; tests give no settings.
        special = 0 if alone else shares[name] // 4 or int(settings is not None and shares[name] > 1)
        disk = shares[name] // 4 if name in ("folder", *catalog) and not (alone and name != "folder") else 0
        legs.append(thread_leg(spark, name, shares[name] - special - disk, seed, scratch))
        if disk:
            legs.append(disk_leg(spark, name, disk, seed, scratch))
        if special:
            killed.append((name, special))
    if killed:
        # The sessions of these writers serve all formats, one after the other.
        with Writers(4, scratch, settings or {}, sail="delta" in names) as writers:
            legs += [process_leg(spark, name, share, seed, scratch, writers) for name, share in killed]
    if "cluster" in names:
        written = ["folder"] if settings is None else ["folder", "parquet"]
        legs += cluster_legs(spark, written, shares["cluster"], seed, scratch, settings or {})
    return [leg for leg in legs if leg is not None]


Outcome = tuple[str, dict[str, int], list[str]]
"""Name of a leg, its counts and complaints."""


def run_here(names: Sequence[str], count: int, seed: str) -> list[Outcome]:
    """Run legs in this Python."""
    if "engines" in names:
        return run_in_turns(count, seed)
    with tempfile.TemporaryDirectory(prefix="ndcg-spark-faults-") as folder:
        root = Path(folder)
        kinds = [FORMATS[name] for name in names if name in FORMATS]
        server = None
        if "delta" in names:
            spark, server = start_sail(root)
            settings: dict[str, str] = {}
        else:
            settings = {key: value for kind in kinds for key, value in kind.settings(root).items()}
            shared = "cluster" in names or any(kind.metastore for kind in kinds)
            port = free_port()
            settings |= metastore_settings(root, port) if shared else {}
            spark = session(root, settings)
            if shared:
                serve_metastore(spark, root, port)
        try:
            legs = run_legs(spark, count, seed, root, names, settings)
        finally:
            spark.stop()
            if server is not None:
                server.stop()
    return [(leg.name, dict(leg.counts), leg.complaints) for leg in legs]


def run_in_turns(count: int, seed: str) -> list[Outcome]:
    """Write nights by both engines."""
    with tempfile.TemporaryDirectory(prefix="ndcg-spark-faults-") as folder:
        spark = session(Path(folder), SHORT_LIVED_SETTINGS)
        try:
            turns = write_in_turns(spark, Path(folder), count, seed)
        finally:
            spark.stop()
    return [("folder, engines in turns", dict(turns.counts), turns.complaints)]


def run_without_spark(count: int, seed: str) -> list[Outcome]:
    """Kill jobs without Spark."""
    with tempfile.TemporaryDirectory(prefix="ndcg-spark-faults-") as folder:
        nights = kill_nights(Path(folder), count, seed)
    return [("folder, without Spark", dict(nights.counts), nights.complaints)]


def run_and_resume(count: int, seed: str) -> list[Outcome]:
    """Kill nights of several steps, and resume them."""
    with tempfile.TemporaryDirectory(prefix="ndcg-spark-faults-") as folder:
        nights = resume_nights(Path(folder), count, seed)
    return [("folder, nights resumed", dict(nights.counts), nights.complaints)]


def run_all(names: Sequence[str], count: int, seed: str) -> list[Outcome]:
    """Run legs, those of this Python first; each has a share of the nights."""
    here = [name for name in names if name == "cluster" or (name in FORMATS and not FORMATS[name].elsewhere)]
    elsewhere = [name for name in names if name not in (*here, "local", "nights")]
    each = count // len(names)
    outcomes = run_without_spark(each, seed) if "local" in names else []
    outcomes += run_and_resume(each, seed) if "nights" in names else []
    outcomes += run_here(here, count - each * (len(names) - len(here)), seed) if here else []
    for name in elsewhere:
        answer = run_elsewhere(name, "scripts.checks.writes.faults", "--n", str(each), "--seed", seed, "--leg", name)
        outcomes += [tuple(outcome) for outcome in answer]
    return outcomes


def format_table(outcomes: Sequence[Outcome]) -> str:
    """Format outcomes as Markdown, with a line of sums."""
    total: Counter[str] = Counter()
    for _, counts, _ in outcomes:
        total.update(counts)
    lines = [f"| table | {' | '.join(COLUMNS)} |", f"| --- |{' ---: |' * len(COLUMNS)}"]
    for name, counts in [*((name, counts) for name, counts, _ in outcomes), ("all", total)]:
        lines.append(f"| {name} | {' | '.join(str(counts.get(column, 0)) for column in COLUMNS)} |")
    return "\n".join(lines)


def main() -> int:
    """Parse, break, answer."""
    names = [*FORMATS, "cluster", "local", "nights", "engines"]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=200, metavar="NIGHTS")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--leg", action="append", choices=names, help="repeatable; default: all of them")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    run = run_here if options.here else run_all
    outcomes = run(options.leg or names, options.n, options.seed)
    print(json.dumps(outcomes) if options.here else format_table(outcomes))
    for line in [line for _, _, complaints in outcomes for line in complaints][:20]:
        print(line, file=sys.stderr)
    failed = any(counts.get(name) for _, counts, _ in outcomes for name in FAILURES)
    return int(failed and not options.here)


if __name__ == "__main__":
    sys.exit(main())
