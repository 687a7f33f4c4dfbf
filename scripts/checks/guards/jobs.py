"""Jobs that must be refused or are interrupted, and how they end.

A hundred of each start, or `--n`, two at once, each a process of its own. Refused jobs take turns with causes:
some are found before Spark starts, some by Spark, some by its Python workers. An interrupted job would never end; it
is sent SIGINT with all of its processes, as by Ctrl-C, or SIGTERM alone, as by a scheduler, at some moment of its
first seconds (from one on, when Python itself has started).

A refused job must end with 2, an interrupted one with 130 or 143, each with one line of ours and no traceback;
nothing of it may run on. Prints a table, and each job that ended otherwise; exits with 1 if there is one.

Each result is kept in a file, and what is there is not run again: an interrupted call goes on where it ended. Remove
the file to begin anew.

    scripts/check guards jobs
    scripts/check guards jobs --n 20 --at-once 1 --results /tmp/jobs.jsonl
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from support.main_job import PROGRESS
from support.processes import INCUBATOR, ROOT, kill_group, run_process
from support.spark_rankings import SHORT_LIVED

from scripts.checks.kept import Lines

RESULTS = ROOT / ".guards-jobs.jsonl"
JOB = [sys.executable, str(ROOT / "jobs" / "mean_ndcg.py")]
ENDLESS = "SELECT id AS query_id, array(3, 0, 1) AS relevance FROM range(1000000000000)"
FIRST_SECOND = 1.0
PATIENCE_AFTER_SIGNAL = 120
HEADER = "query_id,item_id,score,relevance\n"


@dataclass(frozen=True)
class Result:
    """Result of a job; `wrong` is empty if the job ended as documented."""

    kind: str
    number: int
    what: str
    code: int | None
    wrong: list[str]
    told: str


@dataclass(frozen=True)
class Cause:
    """Why a job is refused: its flags, given a folder, and what the line must name."""

    flags: Callable[[Path], Sequence[str | Path]]
    named: str


def csv(folder: Path, *rows: str) -> list[str | Path]:
    """Write an input of these rows."""
    (folder / "rows.csv").write_text(HEADER + "".join(f"{row}\n" for row in rows))
    return ["--input", folder / "rows.csv"]


def corrupt(folder: Path) -> list[str | Path]:
    """Write a file that begins like Parquet but is corrupt."""
    (folder / "rows").mkdir()
    (folder / "rows" / "part.parquet").write_bytes(b"PAR1" + b"x" * 100)
    return ["--input", folder / "rows"]


GOOD = ("q,a,3,1", "q,b,2,0")
CAUSES = {
    "unknown option": Cause(lambda folder: [*csv(folder, *GOOD), "--cutoff", "3"], "--cutoff"),
    "bad cutoff": Cause(lambda folder: [*csv(folder, *GOOD), "--k", "0"], "k"),
    "missing file": Cause(lambda folder: ["--input", folder / "missing.csv"], "missing.csv"),
    "missing column": Cause(lambda folder: [*csv(folder, *GOOD), "--score-col", "points"], "'points'"),
    "missing table": Cause(lambda _: ["--input", "nowhere.rankings"], "nowhere.rankings"),
    "no rows": Cause(lambda folder: csv(folder), "no rows"),
    "NaN score": Cause(lambda folder: csv(folder, *GOOD, "q,c,nan,1"), "nan_score 1"),
    "text for a number": Cause(lambda folder: csv(folder, *GOOD, "q,c,high,1"), "1 bad row of 3"),
    "an item twice": Cause(lambda folder: csv(folder, *GOOD, "q,a,1,1"), "appears twice"),
    "corrupt file": Cause(corrupt, "part.parquet"),
    "output below its input": Cause(
        lambda folder: [*csv(folder, *GOOD), "--output", folder / "rows.csv" / "x"], "choose another path"
    ),
    "table of a catalog in memory": Cause(
        lambda folder: [*csv(folder, *GOOD), "--output", "prod.metrics"], "would be lost when the job ends"
    ),
    "no worker Python": Cause(lambda folder: [*csv(folder, *GOOD)], "PYSPARK_PYTHON"),
}
CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


def environment(what: str = "") -> dict[str, str]:
    """Variables of a job."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))}
    variables |= {"PYTHONPATH": str(ROOT), "SPARK_SUBMIT_OPTS": SHORT_LIVED, "SPARK_LOCAL_IP": "127.0.0.1"}
    return variables | ({"PYSPARK_PYTHON": "/nowhere/python"} if what == "no worker Python" else {})


def list_errors(code: int | None, expected: int, message: str, named: str) -> list[str]:
    """List the errors in the exit code of a job, and in its standard error."""
    lines = [
        line for line in message.splitlines() if line.strip() and line != INCUBATOR and not PROGRESS.fullmatch(line)
    ]
    wrong = [] if code == expected else ["does not end" if code is None else f"exit code {code}, not {expected}"]
    if "Traceback" in message or "\tat " in message:
        wrong.append("a traceback")
    elif len(lines) != 1:
        wrong.append(f"{len(lines)} lines")
    if named not in message:
        wrong.append(f"{named!r} is not named")
    return wrong


def refused(number: int) -> Result:
    """Start a job that must be refused."""
    what = list(CAUSES)[number % len(CAUSES)]
    with tempfile.TemporaryDirectory(prefix="guards-") as name:
        command = [*JOB, *CAUSES[what].flags(Path(name))]
        ended = run_process(command, Path(name), environment(what))
    return Result(
        "refused", number, what, ended.code, list_errors(ended.code, 2, ended.err, CAUSES[what].named), ended.err
    )


def interrupted(number: int, longest: float) -> Result:
    """Start a job that would never end, and interrupt it."""
    rng = random.Random(number)
    sent = rng.choice((signal.SIGINT, signal.SIGTERM))
    after = rng.uniform(FIRST_SECOND, longest)
    with tempfile.TemporaryDirectory(prefix="guards-") as name, (Path(name) / "err").open("w+") as err:
        process = subprocess.Popen(
            [*JOB, "--input", ENDLESS, "--k", "3"],
            cwd=name,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=err,
            text=True,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background shell ignores it
        )
        try:
            time.sleep(after)
            (os.killpg if sent == signal.SIGINT else os.kill)(process.pid, sent)
            code = wait_for_exit_code(process)
            left = code is not None and stays(process.pid)
        finally:
            kill_group(process)
            process.wait()
        message = (Path(name) / "err").read_text()
    expected_word = "interrupted" if sent == signal.SIGINT else "terminated"
    wrong = list_errors(code, CODES[sent], message, f"mean_ndcg.py: {expected_word}") + (
        ["something of it runs on"] if left else []
    )
    return Result("interrupted", number, f"{sent.name} after {after:.1f} s", code, wrong, message)


def wait_for_exit_code(process: subprocess.Popen[str]) -> int | None:
    """Return the exit code of a process; None if it does not end."""
    try:
        return process.wait(PATIENCE_AFTER_SIGNAL)
    except subprocess.TimeoutExpired:
        return None


def stays(group: int, patience: float = 30) -> bool:
    """Check whether processes of a group survive; Java and workers get a moment to end."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return False
        time.sleep(0.1)
    return True


class Kept(Lines):
    """Ends of jobs."""

    @property
    def results(self) -> list[Result]:
        return [Result(**line) for line in self.lines]


def run_jobs(count: int, at_once: int, longest: float, store: Kept) -> list[Result]:
    """Run what is not in the file yet; refused and interrupted jobs take turns."""
    known = {(result.kind, result.number) for result in store.results}
    todo: list[tuple[str, int]] = [(kind, n) for n in range(count) for kind in ("refused", "interrupted")]

    def run(kind: str, number: int) -> None:
        store.append(asdict(refused(number) if kind == "refused" else interrupted(number, longest)))

    with ThreadPoolExecutor(at_once) as pool:
        for done in [pool.submit(run, *result) for result in todo if result not in known]:
            done.result()
    return [result for result in store.results if (result.kind, result.number) in set(todo)]


def format_table(results: Iterable[Result]) -> str:
    """Format counts as Markdown."""
    lines = [
        "| jobs | started | as documented | tracebacks | ended otherwise |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    results = list(results)
    for kind in ("refused", "interrupted"):
        rows = [result for result in results if result.kind == kind]
        counts = Counter("traceback" if "a traceback" in result.wrong else bool(result.wrong) for result in rows)
        lines.append(f"| {kind} | {len(rows)} | {counts[False]} | {counts['traceback']} | {counts[True]} |")
    return "\n".join(lines)


def main() -> int:
    """Parse, start, answer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=100, help="how many of each; default: 100")
    parser.add_argument("--at-once", type=int, default=2, help="default: 2")
    parser.add_argument("--longest", type=float, default=20, help="seconds until the last interrupt; default: 20")
    parser.add_argument("--results", type=Path, default=RESULTS, help=f"default: {RESULTS.name}")
    options = parser.parse_args()
    results = run_jobs(options.n, options.at_once, options.longest, Kept(options.results))
    print(format_table(results))
    wrong = [result for result in results if result.wrong]
    for result in wrong:
        print(
            f"{result.kind} {result.number} ({result.what}): {', '.join(result.wrong)}: {result.told[-1500:]}",
            file=sys.stderr,
        )
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
