"""The demo of a night: exit codes and output of commands, the run log, and no stale results."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest
from support.main_job import read_stored_rows

from ndcg_spark.nights.stale import find_stale
from ndcg_spark.nights.steps import read_night
from scripts.demos.night import BAD, FIRST, LAST, MENDED, MISSING, N_LATE, N_QUERIES, RUN_AGAIN, list_nights

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.slow


class DemoRun:
    """The folder of the demo, and the output of each command by its arguments after the file."""

    def __init__(self, folder: Path, out: str) -> None:
        self.folder = folder
        start = "\n$ ndcg-spark nightly --config night.toml "
        parts = [part.partition("\n") for part in out.split(start)[1:]]
        self.printed = {words: rest for words, _, rest in parts}
        self.codes = {
            words: re.findall(r"^\(exit code (\d+)", rest, re.MULTILINE) for words, rest in self.printed.items()
        }
        self.end = parts[-1][2]

    def statuses(self, night: date) -> dict[str, str]:
        """Return the status of each command of a night from the run log."""
        rows = [row for row in read_stored_rows(self.folder / "run_log") if str(row["run_date"]) == str(night)]
        return {row["command"]: row["status"] for row in sorted(rows, key=lambda row: row["started_at"])}

    def count_queries(self, night: date) -> set[int]:
        """Return the numbers of queries of the rankers on a night."""
        rows = read_stored_rows(self.folder / "metrics")
        return {row["n_queries"] for row in rows if not row["segment_by"] and str(row["run_date"]) == str(night)}


@pytest.fixture(scope="module")
def demo(tmp_path_factory) -> Iterator[DemoRun]:
    folder = tmp_path_factory.mktemp("demo") / "night"
    command = [sys.executable, "-m", "scripts.demos.night", "--output", str(folder)]
    yield DemoRun(folder, subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout)
    shutil.rmtree(folder)


ONE = "--run-date {}"
FILL = "--backfill {}..{} --only mean-ndcg --only compare-runs"
RENEW = f"--backfill {BAD}..{LAST} --stale"


def test_each_command_ends_as_it_should(demo):
    """The missing night is refused and does not stop the others."""
    assert demo.codes == {
        FILL.format(FIRST, "2026-01-24"): ["2"],
        ONE.format(BAD): ["0"],
        FILL.format("2026-01-26", "2026-01-29"): ["0"],
        ONE.format(MENDED): ["0"],
        ONE.format(LAST): ["0"],
        ONE.format(RUN_AGAIN): ["0"],
        RENEW: ["0"],
    }


def test_the_missing_night_is_refused_in_one_line(demo):
    (line,) = [
        line
        for line in demo.printed[FILL.format(FIRST, "2026-01-24")].splitlines()
        if line.startswith("ndcg-spark nightly")
    ]
    assert line == f"ndcg-spark nightly {MISSING}: mean-ndcg: there is no path 'rankings/{MISSING}'."
    assert set(demo.statuses(MISSING).values()) == {"refused"}
    nights = {str(row["run_date"]) for row in read_stored_rows(demo.folder / "metrics")}
    assert nights == set(map(str, list_nights()))


def test_the_lost_digit_is_flagged_once_and_recovers(demo):
    lines = [line for line in demo.printed[ONE.format(BAD)].splitlines() if line.startswith("FLAG")]
    assert [line.partition(" is ")[0] for line in lines] == ["FLAG low: ndcg@10 of run 'pixels', digit=7"]
    assert " is 0.0000 on 2026-01-25, before 0.98" in lines[0]
    done = dict.fromkeys(("mean-ndcg", "compare-runs", "roll-up", "report"), "succeeded")
    assert demo.statuses(BAD) == done | {"nightly": "flagged", "flag-changes": "flagged"}
    mended = demo.printed[ONE.format(MENDED)]
    assert "recovered: ndcg@10 of run 'pixels', digit=7 is " in mended
    assert "FLAG" not in mended
    assert set(demo.statuses(MENDED).values()) == {"succeeded"}


def test_the_first_screen_of_the_bad_night_says_what_happened(demo):
    """The ranker, the change, since when, where and why; the missing night; the gates."""
    page = (demo.folder / f"page-{BAD}.html").read_text("utf-8")
    first = re.sub(r"<[^>]+>", "", page[page.index('<section class="answer"') : page.index("<nav ")])
    lead = next(line for line in map(str.strip, first.splitlines()) if line)
    assert re.fullmatch(
        r"NDCG@10 of pixels fell by 0\.\d+ to 0\.\d+ since the night before: digit=7 fell from 0\.9\d+ to 0\.0+; "
        r"(\d+) of its \1 queries have no list\.",
        lead,
    ), lead
    assert re.search(
        r"pixels is flagged tonight in digit=7: low, [\d.]+ standard errors below the night before\.", first
    )
    assert "Nights without a result in the last 14 days: 14 January 2026." in first
    assert "The gate is met by both rankers: ndcg@10&gt;=0.8" in first
    said = demo.printed[ONE.format(BAD)]
    assert f"\n  {lead}\n" in said
    assert f"\n  page: page-{BAD}.html\n" in said
    index = (demo.folder / "index.html").read_text("utf-8")
    assert f'<a href="page-{LAST}.html">' in index
    assert "no result" in index


def test_rerun_of_a_night_makes_later_flags_and_pages_stale(demo):
    nights = f"{BAD}, {MENDED}, {LAST}"
    assert [
        line for line in demo.printed[ONE.format(RUN_AGAIN)].splitlines() if "older" in line or "to renew" in line
    ] == [
        "older than their inputs:",
        f"  flag-changes: {nights} are older",
        f"  report: {nights} are older",
        f"  to renew them: ndcg-spark nightly --config night.toml {RENEW}",
    ]
    assert demo.count_queries(RUN_AGAIN) == {N_QUERIES}
    assert f"The last {N_LATE} queries of {RUN_AGAIN} have arrived" in demo.printed[ONE.format(LAST)]


def test_nothing_is_stale_after_the_renewal(demo, monkeypatch):
    assert "older than their inputs" not in demo.printed[RENEW]
    monkeypatch.chdir(demo.folder)
    assert find_stale(None, read_night("night.toml", LAST), FIRST) == []


def test_pages_named_at_the_end_exist(demo):
    pages = re.findall(r"\S+/page-\S+\.html", demo.end)
    assert [Path(page).name for page in pages] == [f"page-{BAD}.html", f"page-{LAST}.html"]
    assert all(Path(page).is_file() for page in pages)


def test_the_script_takes_night_as_an_option_too(tmp_path):
    """With an existing environment, and a python that prints its arguments."""
    scripts, python = tmp_path / "scripts", tmp_path / "bin" / "python"
    for name in ("demo", "_environment.sh", "demos/README.md"):
        (scripts / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "scripts" / name, scripts / name)
    with (scripts / "_environment.sh").open("a", encoding="utf-8") as file:
        file.write("ensure_environment() { :; }\n")
    python.parent.mkdir()
    python.write_text('#!/bin/sh\necho "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    path = {"PATH": f"{python.parent}:{os.environ['PATH']}"}
    for words in (["night"], ["--night"], ["--night", "--output", "x"]):
        out = subprocess.run(
            [scripts / "demo", *words], env=os.environ | path, stdout=subprocess.PIPE, text=True
        ).stdout
        assert out.split() == ["-m", "scripts.demos.night", *words[1:]]
