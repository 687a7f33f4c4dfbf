"""The table of checks: its programs exist, and `scripts/check` lists and refuses by it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CHECKS = ROOT / "scripts" / "checks"
ROWS = re.findall(
    r"^\| `(.+?)` +\| (.+?) +\| +(\d+) +\| (.+?) +\| (.+?) +\|$", (CHECKS / "README.md").read_text(), re.MULTILINE
)


def run_check(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([ROOT / "scripts" / "check", *arguments], capture_output=True, text=True)


def test_every_program_has_a_row_and_every_row_a_program() -> None:
    modules = {runs for *_, runs in ROWS if not runs.startswith("pytest ")}
    programs = [path for path in CHECKS.rglob("*.py") if re.search(r"^def main\(", path.read_text(), re.MULTILINE)]
    named = {".".join(path.relative_to(ROOT).with_suffix("").parts) for path in programs}
    started_by_others = {"scripts.checks.writes.process", "scripts.checks.writes.local_job"}
    assert modules == named - started_by_others


def test_each_is_listed_with_a_sentence_minutes_and_when() -> None:
    listed = run_check("--list")
    assert listed.returncode == 0
    rows = [f"{name} {minutes} min {shows} when: {when}".replace("`", "") for name, shows, minutes, when, _ in ROWS]
    assert " ".join(listed.stdout.split("\n", 1)[1].split()) == " ".join(rows)


def test_unknown_check_is_refused_with_the_known_ones() -> None:
    refused = run_check("parity")
    assert (refused.returncode, refused.stdout) == (2, "")
    names = " ".join(dict.fromkeys(name.split()[0] for name, *_ in ROWS))
    assert refused.stderr == f"check: there is no check parity; there are {names}.\n"
