"""The job without Spark, killed while it writes one night over another."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

JOB = Path(__file__).with_name("local_job.py")
NIGHT = "2026-01-31"
TABLES = {"--output": "./metrics", "--per-query-output": "./queries"}
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
VICTIMS = ("job", "worker", "all")
ROWS = 100_000
LINES = {signal.SIGTERM: (143, "terminated"), signal.SIGINT: (130, "interrupted")}
STEPS = ("stage", "swap", "_put_slice", "release")
SECONDS_TO_END = 20.0
OF_THE_MOMENT = "computed_at"


@dataclass(frozen=True, slots=True)
class Kill:
    """Who gets which signal: after some seconds, or, for the job, before the call of a step with a number.

    Below 0 seconds: as soon as there is a worker. With a `table`, only calls for the folder of this name count.
    """

    victim: str
    number: signal.Signals
    seconds: float = 0.0
    step: str = ""
    at: int = 0
    table: str = ""

    @property
    def as_json(self) -> str:
        """Return the JSON for local_job.py: the call before which the job ends itself, if planned."""
        return json.dumps([self.step, self.at, int(self.number), self.table]) if self.step else ""

    @property
    def ends_all(self) -> bool:
        """Check whether the next write must clean up after the killed processes."""
        return self.step == "release" or (self.number == signal.SIGKILL and self.victim != "worker")


@dataclass
class Nights:
    """Folder in which a night is written in two versions, with checks of its state."""

    folder: Path
    counts: Counter[str] = field(default_factory=Counter)
    complaints: list[str] = field(default_factory=list)
    longest: float = 0.0
    known: dict[str, list[list[dict[str, Any]]]] = field(default_factory=dict)

    def make(self, rows: int = ROWS) -> None:
        """Write inputs, and learn what each of them gives if nobody is killed."""
        (self.folder / "temporary").mkdir()
        for version in (0, 1):
            (self.folder / f"in-{version}").mkdir()
            for number in range(4):
                make = np.random.default_rng([version, number])
                columns = {
                    "query_id": make.integers(0, rows // 50, rows // 4),
                    "item_id": np.arange(rows // 4) + number * rows,
                    "score": make.random(rows // 4),
                    "relevance": make.integers(0, 4, rows // 4),
                }
                pq.write_table(
                    pa.table(columns), self.folder / f"in-{version}" / f"{number}.parquet", row_group_size=5000
                )
            began = time.monotonic()
            code, output = self.run(version)
            self.longest = time.monotonic() - began
            if code:
                raise RuntimeError(f"a job that nobody kills ended with {code}: {output}")
            for name in TABLES.values():
                self.known.setdefault(name, []).append(self.rows(name))

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Read the rows of a table, in a fixed order."""
        stored_rows = [
            {key: value for key, value in row.items() if key != OF_THE_MOMENT}
            for path in (self.folder / name).glob("run_date=*/slice=*/*.parquet")
            for row in pq.ParquetFile(path).read().to_pylist()
        ]
        return sorted(stored_rows, key=repr)

    def run(self, version: int, kill: Kill | None = None) -> tuple[int, list[str]]:
        """Write the night; return the exit code and the lines that are no progress."""
        command = [sys.executable, str(JOB), "mean-ndcg", "--engine", "local", "--processes", "2"]
        command += ["--input", f"in-{version}", "--run-date", NIGHT, "--dataset", "shop", "--k", "3,10"]
        command += [word for words in TABLES.items() for word in words]
        environment = {**os.environ, "TMPDIR": str(self.folder / "temporary")}
        environment["NDCG_SPARK_KILL"] = kill.as_json if kill is not None else ""
        with subprocess.Popen(
            command,
            cwd=self.folder,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as job:
            if kill is not None and not kill.step:
                if kill.seconds >= 0:
                    time.sleep(kill.seconds)
                while kill.seconds < 0 and not self.processes() and job.poll() is None:
                    time.sleep(0.01)
                self._send(job, kill)
            _, err = job.communicate(timeout=120)
        return job.returncode, [line for line in err.splitlines() if line.strip() and not line.endswith(" s")]

    def _send(self, job: subprocess.Popen[str], kill: Kill) -> None:
        if job.poll() is not None:
            return
        if kill.victim == "all":
            os.killpg(job.pid, kill.number)
        elif kill.victim == "job":
            job.send_signal(kill.number)
        else:
            for worker in self.processes()[:1]:
                with suppress(ProcessLookupError):
                    os.kill(worker, kill.number)
                    self.counts["workers"] += 1

    def processes(self) -> list[int]:
        """Workers of this folder: their command has the folder of their pool."""
        mark, pids = str(self.folder / "temporary").encode(), []
        for place in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (place / "cmdline").read_bytes():
                    pids.append(int(place.name))
            except (FileNotFoundError, ProcessLookupError):
                continue
        return sorted(pids)

    def night(self, kill: Kill, version: int) -> None:
        """Write, kill, look; where nobody could clear up, look again after the next write."""
        code, output = self.run(version, kill)
        self.counts["nights"] += 1
        held = self.check(kill)
        self._judge_end(kill, code, output)
        if code == 0 and held != dict.fromkeys(TABLES.values(), version):
            self._complain("wrong", kill, f"is done with version {version}, and the tables hold {held}")
        self.wait_for_workers(kill)
        if kill.ends_all:
            self.counts["re-runs"] += 1
            again, lines = self.run(version)
            if again or any("Traceback" in line for line in lines):
                self._complain("unhealed", kill, f"run again: {again}, {lines}")
            elif self.check(kill) != dict.fromkeys(TABLES.values(), version):
                self._complain("unhealed", kill, "run again, and other rows are there")
        self.check_left(kill)

    def check(self, kill: Kill) -> dict[str, int]:
        """Find out which version each table holds; -1 is neither."""
        held = {}
        for name, versions in self.known.items():
            rows = self.rows(name)
            held[name] = next((index for index, known in enumerate(versions) if known == rows), -1)
            if held[name] < 0:
                self._complain("mixed" if rows else "lost", kill, f"{name} has {len(rows)} rows of no version")
        if len(set(held.values())) > 1 and not kill.ends_all:
            self._complain("mixed", kill, f"tables of one job hold {held}")
        return held

    def _judge_end(self, kill: Kill, code: int, output: Sequence[str]) -> None:
        """Done, killed at once, or told to end: in one line, with the exit code of the signal."""
        name = "done" if code == 0 else "killed" if code < 0 else "broken"
        self.counts[name] += 1
        if code in (0, -kill.number):  # the latter before there are handlers, when nothing has begun
            fits = output == []
        elif kill.number in LINES and kill.victim != "worker":
            wanted, word = LINES[kill.number]
            fits = code == wanted and list(output) == [f"ndcg-spark: {word}"]
        else:
            fits = len(output) == 1 and "a worker process was ended by" in output[0]
        if not fits:
            self._complain("wrong", kill, f"ended with {code}: {list(output)[-12:]}")

    def wait_for_workers(self, kill: Kill) -> None:
        """See that workers end with their parent."""
        until = time.monotonic() + SECONDS_TO_END
        while (left := self.processes()) and time.monotonic() < until:
            time.sleep(0.05)
        for pid in left:
            self._complain("unhealed", kill, f"the worker {pid} is left")
            os.kill(pid, signal.SIGKILL)

    def check_left(self, kill: Kill) -> None:
        """See that neither temporary files nor staged ones are there."""
        left = [*(self.folder / "temporary").iterdir()]
        left += [self.folder / name / ".ndcg-spark" for name in TABLES.values()]
        left = [path for path in left if path.exists() and not is_probe(path)]
        if left:
            self._complain("unhealed", kill, f"left over: {sorted(map(str, left))}")
        for path in left:
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def _complain(self, what: str, kill: Kill, text: str) -> None:
        self.counts[what] += 1
        self.complaints.append(f"this machine, {kill}: {text}")


def is_probe(path: Path) -> bool:
    """Check for the file by which Python finds out where it may write: a kill can come before it is removed."""
    return path.is_file() and path.read_bytes() in (b"", b"blat")


def plan(rng: random.Random, longest: float) -> Kill:
    """Mostly by the clock; the time between two renames is too short to be met so."""
    number = rng.choice(SIGNALS)
    if rng.random() < 0.25:
        return Kill("job", number, step=rng.choice(STEPS), at=rng.randrange(3))
    return Kill(rng.choice(VICTIMS), number, rng.uniform(0.1, longest))


def kill_nights(folder: Path, count: int, seed: str, rows: int = ROWS) -> Nights:
    """Write as many nights, each over the one before, and kill."""
    nights, rng = Nights(folder), random.Random(f"{seed} local")
    began = time.monotonic()
    nights.make(rows)
    for number in range(count):
        nights.night(plan(rng, nights.longest), number % 2)
    nights.counts["seconds"] = round(time.monotonic() - began)
    return nights
