"""Nights of several steps that are killed and resumed, beside the same nights unbroken."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from support.main_job import read_stored_rows
from support.night_files import FILE, OTHER
from support.spark_rankings import SHORT_LIVED_SETTINGS

from ndcg_spark.tables.claims import LOCK_FOLDER
from scripts.checks.writes.engines import COLUMNS, generate_night, read_slices, write_table
from scripts.checks.writes.local import JOB, STEPS, Kill

EARLIER, NIGHT = "2026-01-30", "2026-01-31"
RANKERS = ("bm25", "vectors")
SEGMENTS = ('"country"', '"country", "device"')
TARGETS = ("metrics", "queries", "comparisons", "flags", "page", "log")
"""What is being written when a night without Spark is killed."""
WRITTEN = ("metrics", "queries", "comparisons", "flags", "weeks")
WITH_SPARK = 10
"""One night in as many has a step that needs Spark: such a night takes five times as long."""
SETTINGS = {**SHORT_LIVED_SETTINGS, "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
LATER_STEPS = {
    "flags": '[[step]]\ncommand = "flag-changes"\ndirection = "both"\noutput = "./flags"\n',
    "weeks": '[[step]]\ncommand = "roll-up"\nperiods = ["week"]\noutput = "./weeks"\n',
    "page": '[[step]]\ncommand = "report"\noutput = "night-{run_date}.html"\n',
}
"""By the name of what they write."""
IF_FLAGGED = 'when = "flagged"\n'
SECONDS_OF_A_NIGHT = 600


def night_file(rng: random.Random, later: Sequence[str], *, spark: bool) -> str:
    """Steps of a night; some nights miss a gate, and most have a last step for that."""
    more = f'segment-cols = [{rng.choice(SEGMENTS)}]\non-invalid = "reject"\n'
    more += f'gate = ["ndcg@1>={rng.choice((0.1, 0.99))}"]\n'
    text = FILE.replace("k = [1, 3]\n", f"k = [1, 3]\n{more}")
    text = text.replace("replicates = 0\nflips = 0", f"replicates = {rng.choice((0, 20))}\nflips = 30")
    text += "".join(LATER_STEPS[name] for name in later) + ("" if spark else OTHER + 'on-invalid = "reject"\n')
    settings = json.dumps([f"{name}={value}" for name, value in SETTINGS.items()])
    return (f"conf = {settings}\n" if spark else "") + text + (IF_FLAGGED if rng.random() < 0.7 else "")


def write_rankings(rng: random.Random, folder: Path, night: str) -> None:
    """Write the rankings of a night: both rankers order the same items, as their comparison needs."""
    rows = generate_night(rng, RANKERS[:1])
    rows += [{**row, "ranker": RANKERS[1], "score": rng.randrange(9) / 7} for row in rows if row["item_id"] != "bad"]
    write_table(folder / "rankings" / f"{night}.parquet", rows, COLUMNS)


def plan(rng: random.Random, table: str, steps: int, seconds: float) -> Kill:
    """By the clock within the usual time, or before a step of writing a table."""
    if rng.random() < 0.4:
        return Kill("all", signal.SIGKILL, rng.uniform(0.3, 1.0) * seconds)
    if table == "page":
        return Kill("job", signal.SIGKILL, step=table)
    step = rng.choice(STEPS if table != "log" else STEPS[1:])
    # The log has the start and the end of each step and of the night; other tables have a slice for each ranker.
    calls = 2 * (steps + 1) if table == "log" else 2 if step == "_put_slice" or table == "metrics" else 1
    return Kill("job", signal.SIGKILL, step=step, at=rng.randrange(calls), table=table)


@dataclass
class KilledNights:
    """Folders of nights below one folder, and what became of them."""

    folder: Path
    counts: Counter[str] = field(default_factory=Counter)
    complaints: list[str] = field(default_factory=list)

    def run(self, place: Path, *more: str, engine: str = "local", kill: Kill | None = None) -> int:
        """Run nights in a process of their own, with a folder as the working one; nothing of it is left running."""
        temporary = self.folder / "temporary"
        temporary.mkdir(exist_ok=True)
        environment = {**os.environ, "TMPDIR": str(temporary), "SPARK_LOCAL_DIRS": str(temporary)}
        environment |= {"NDCG_SPARK_ENGINE": engine, "NDCG_SPARK_KILL": kill.as_json if kill is not None else ""}
        command = [sys.executable, str(JOB), "nightly", "--config", "night.toml", *more]
        output = (place / "printed").open("w")
        with (
            output,
            subprocess.Popen(
                command, cwd=place, env=environment, stdout=output, stderr=output, start_new_session=True
            ) as job,
        ):
            try:
                with suppress(subprocess.TimeoutExpired):
                    job.wait(kill.seconds if kill is not None and not kill.step else SECONDS_OF_A_NIGHT)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(job.pid, signal.SIGKILL)  # Python, its workers, and the Java that it has started
        return job.returncode

    def night(self, rng: random.Random, number: int) -> None:
        """Run a night unbroken, and kill and resume it in another folder; compare."""
        turn, spark = number // WITH_SPARK, number % WITH_SPARK == WITH_SPARK - 1
        later = ["flags", "page"]
        if spark:
            later[rng.randrange(2)] = "weeks"
        targets = later if spark else TARGETS
        before, unbroken, killed = (self.folder / str(number) / name for name in ("before", "unbroken", "killed"))
        (before / "rankings").mkdir(parents=True)
        text = night_file(rng, later, spark=spark)
        (before / "night.toml").write_text(text, encoding="utf-8")
        for night in (EARLIER, NIGHT):
            write_rankings(rng, before, night)
        # Half of the nights are stored already; most of these were of other rankings.
        last = rng.choice((EARLIER, NIGHT))
        steps = ("--only", "mean-ndcg", "--only", "compare-runs")
        self._run_whole(before, "--backfill", f"{EARLIER}..{last}", *steps)
        if rng.random() < 0.7:
            write_rankings(rng, before, NIGHT)
        for place in (unbroken, killed):
            shutil.copytree(before, place)
        engine = rng.choice(("local", "spark")) if spark else "local"
        began = time.monotonic()
        code = self._run_whole(unbroken, "--run-date", NIGHT, engine=engine)
        table = targets[(turn if spark else number) % len(targets)]
        kill = plan(rng, table, text.count("[[step]]"), time.monotonic() - began)
        about = f"{number}, {engine}, {kill}"
        ended = self.run(killed, "--run-date", NIGHT, engine=engine, kill=kill)
        if ended not in (code, -signal.SIGKILL):
            self._complain("wrong", about, f"ended with {ended}")
        again = self.run(killed, "--run-date", NIGHT, "--resume", engine=engine)
        self.counts.update(nights=1, resumed=1, killed=ended == -signal.SIGKILL, done=ended == code)
        if again != code:
            output = (killed / "printed").read_text()[-500:]
            self._complain("unhealed", about, f"resumed, it ended with {again}, not {code}: {output}")
        self._compare(unbroken, killed, about)
        self._judge_runs(before, killed, about)
        # A page that was not finished is no table: it is removed hours later.
        left = sorted(map(str, killed.rglob(f"{LOCK_FOLDER}*")))
        if left:
            self._complain("unhealed", about, f"left over: {left[:9]}")
        shutil.rmtree(self.folder / str(number))

    def _run_whole(self, place: Path, *more: str, engine: str = "local") -> int:
        code = self.run(place, *more, engine=engine)
        if code not in (0, 3):
            raise RuntimeError(f"a night that nobody kills ended with {code}: {(place / 'printed').read_text()}")
        return code

    def _compare(self, unbroken: Path, killed: Path, about: str) -> None:
        """Compare tables to the bit, and whether there is a page."""
        for name in WRITTEN:
            expected, actual = (read_slices(place / name, "*") for place in (unbroken, killed))
            different = sorted(
                slice_name
                for slice_name in expected.keys() | actual.keys()
                if expected.get(slice_name) != actual.get(slice_name)
            )
            if different:
                self._complain("wrong", about, f"{name} differs from the unbroken night in {different[:3]}")
        pages = [[path.name for path in place.glob("night-*.html")] for place in (unbroken, killed)]
        if pages[0] != pages[1]:
            self._complain("wrong", about, f"pages {pages[1]}, not {pages[0]}")

    def _judge_runs(self, before: Path, killed: Path, about: str) -> None:
        """Look into the run log: only a step that was killed has run twice."""
        known = {row["run_id"] for row in read_stored_rows(before / "log")}
        runs: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        for row in sorted(read_stored_rows(killed / "log"), key=lambda row: row["started_at"]):
            if row["run_id"] not in known and row["command"] != "nightly":
                runs[row["command"], row["dataset"]].append(row["status"])
        twice = {step: statuses for step, statuses in runs.items() if len(statuses) > 1}
        self.counts["twice"] += len(twice)
        if len(twice) > 1 or any(
            len(run_statuses) > 2 or run_statuses[0] != "started" for run_statuses in twice.values()
        ):
            self._complain("wrong", about, f"runs of steps: {dict(runs)}")

    def _complain(self, what: str, about: str, text: str) -> None:
        self.counts[what] += 1
        self.complaints.append(f"night {about}: {text}")


def resume_nights(folder: Path, count: int, seed: str) -> KilledNights:
    """Kill and resume as many nights."""
    nights, began = KilledNights(folder), time.monotonic()
    for number in range(count):
        nights.night(random.Random(f"{seed} nights {number}"), number)
    nights.counts["seconds"] = round(time.monotonic() - began)
    return nights
