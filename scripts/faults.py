"""Break writes of nightly tables on purpose, and look what is left of them.

In each night two to four writers replace slices of one table at the same time, often the same ones. Some are broken:
by a row that raises, by a step of the swap that fails, or by SIGKILL of their process. After each night every slice
must hold exactly the rows of one write: of the last one that said it was done, or of one that was killed. Of folders
a reader checks the same all the time; `missed` counts files that were replaced between its listing and its opening
them, which readers see as an error. Prints a table of outcomes; exits 1 if a slice was lost, doubled or mixed.

    scripts/faults --nights 200 --seed 1
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path

from faults_process import Writers
from faults_rows import Reader, Task, broken_calls, in_folder, in_table, judge, place_of, plan_fault, write
from pyspark.sql import SparkSession

DATASETS, RUNS = ("shop", "app"), ("a", "b", "c")
COLUMNS = (
    "nights",
    "writers",
    "done",
    "refused",
    "broken",
    "killed",
    "reads",
    "missed",
    "lost",
    "doubled",
    "mixed",
    "wrong",
)
FAILURES = ("lost", "doubled", "mixed", "wrong")


@dataclass
class Leg:
    """One table, and what was done to it; `known` is the version that each slice must hold, or one of several."""

    name: str
    place: str
    known: dict[tuple[str, str, str], set[int]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    complaints: list[str] = field(default_factory=list)
    reader: Reader | None = None

    def settle(self, tasks: Sequence[Task], ended: Sequence[str]) -> None:
        """Learn from what the writers of a night say which versions their slices may hold now."""
        self.counts.update(nights=1, writers=len(tasks))
        self.counts.update(ended)
        for one in {one for task in tasks for one in task.slices}:
            pairs = [(task, end) for task, end in zip(tasks, ended, strict=True) if one in task.slices]
            done = {task.version for task, end in pairs if end == "done"}
            killed = {task.version for task, end in pairs if end == "killed"}
            # Writers that were both done came one after the other; which was the later one, nobody knows here.
            self.known[one] = (done or self.known.get(one, {0})) | killed

    def check(self, found: dict[tuple[str, str, str], list[tuple[int, int, int]]], night: date) -> None:
        """Judge every slice of a night, and remember what it holds."""
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


def nights(count: int, seed: str) -> Iterator[tuple[random.Random, date, list[Task]]]:
    """Tasks of each night; nights come again, so that most writes replace rows."""
    rng = random.Random(seed)
    version = 0
    for _ in range(count):
        night = date(2026, 1, 1) + timedelta(days=rng.randrange(max(1, count // 4)))
        tasks = []
        for _ in range(rng.randint(2, 4)):
            version += 1
            runs = tuple(sorted(rng.sample(RUNS, rng.randint(1, 3))))
            tasks.append(Task(night, rng.choice(DATASETS), runs, version, plan_fault(rng)))
        yield rng, night, tasks


def thread_leg(spark: SparkSession, leg: Leg, count: int, seed: str) -> None:
    """Writers are threads of one session."""
    is_table = "/" not in leg.place
    with broken_calls(), ThreadPoolExecutor(4) as pool:
        for _, night, tasks in nights(count, f"{seed} {leg.name}"):
            ended = list(pool.map(lambda task: write(spark, leg.place, task), tasks))
            leg.settle(tasks, ended)
            leg.check(in_table(spark, leg.place, night) if is_table else in_folder(Path(leg.place), night), night)


def process_leg(leg: Leg, count: int, seed: str, scratch: Path) -> None:
    """Writers are processes with a session each; every other night one of them is killed while it writes."""
    with Writers(4, leg.place, scratch) as writers, ThreadPoolExecutor(4) as pool:
        for rng, night, tasks in nights(count, f"{seed} {leg.name}"):
            kill_after = [None] * len(tasks)
            if rng.random() < 0.5:
                kill_after[rng.randrange(len(tasks))] = rng.uniform(0, 1.5)
            ended = list(pool.map(writers.write, range(len(tasks)), tasks, kill_after))
            leg.settle(tasks, ended)
            leg.check(in_folder(Path(leg.place), night), night)


@contextmanager
def reading(leg: Leg) -> Iterator[None]:
    """Read the folder all the time: what was there once must be there whole, in one version, always."""
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


def run_legs(spark: SparkSession, count: int, seed: str, scratch: Path, *, processes: bool = True) -> list[Leg]:
    """One night of eight by processes, in a folder; half of the others in a folder and half in a catalog table."""
    n_processes = count // 8 if processes else 0
    n_folder = (count - n_processes) // 2
    folder, table = Leg("folder, threads", f"{scratch}/threads"), Leg("catalog table, threads", "faults_nightly")
    with reading(folder):
        thread_leg(spark, folder, n_folder, seed)
    try:
        thread_leg(spark, table, count - n_processes - n_folder, seed)
    finally:
        spark.sql(f"DROP TABLE IF EXISTS {table.place}")
    legs = [folder, table]
    if n_processes:
        other = Leg("folder, processes", f"{scratch}/processes")
        with reading(other):
            process_leg(other, n_processes, seed, scratch)
        legs.append(other)
    return legs


def table_of(legs: Sequence[Leg]) -> str:
    """Outcomes as Markdown."""
    lines = [f"| table | {' | '.join(COLUMNS)} |", f"| --- |{' ---: |' * len(COLUMNS)}"]
    lines += [f"| {leg.name} | {' | '.join(str(leg.counts[name]) for name in COLUMNS)} |" for leg in legs]
    return "\n".join(lines)


def session(scratch: Path) -> SparkSession:
    """Two cores, everything below the scratch folder, no log."""
    options = {
        # Most plans run once: Java spends more on its second compiler than that would save.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.log.level": "OFF",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": f"{scratch}/warehouse",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    return SparkSession.builder.master("local[2]").appName("faults").config(map=options).getOrCreate()


def main() -> int:
    """Parse, break, answer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nights", type=int, default=200)
    parser.add_argument("--seed", default="1")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ndcg-spark-faults-") as name:
        spark = session(Path(name))
        try:
            legs = run_legs(spark, options.nights, options.seed, Path(name))
        finally:
            spark.stop()
    print(table_of(legs))
    for line in [line for leg in legs for line in leg.complaints][:20]:
        print(line, file=sys.stderr)
    return int(any(leg.counts[name] for leg in legs for name in FAILURES))


if __name__ == "__main__":
    sys.exit(main())
