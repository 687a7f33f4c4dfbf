"""The last line of a test run: skipped tests and reasons."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from conftest import format_not_tested

TESTS = """
import pytest

def test_that_runs(): pass

@pytest.mark.parametrize("n", range(3))
def test_of_a_page(n): pytest.skip("no browser: install one")

def test_of_a_disk(): pytest.skip("no disk (mount: permission denied)")

@pytest.mark.slow
def test_of_a_server(): pass
"""


def test_reasons_are_added_up_without_their_details():
    skipped = Counter({"no disk can be mounted here: a": 2, "no disk can be mounted here: b": 1, "no /dev/full": 1})
    line = format_not_tested(skipped, {})
    assert line == "Not tested: 3 (no disk can be mounted here), 1 (no /dev/full); pytest -rs has the details."
    assert format_not_tested(Counter(), {"slow": 0}) == ""


@pytest.mark.slow
def test_it_is_the_last_line_of_a_run_in_two_processes(tmp_path):
    (tmp_path / "conftest.py").write_bytes((Path(__file__).parents[1] / "conftest.py").read_bytes())
    (tmp_path / "test_some.py").write_text(TESTS)
    tests = str(Path(__file__).parents[1])
    options = ["-q", "-n", "2", "-m", "not slow", "-o", f"pythonpath={tests}"]
    command = [sys.executable, "-m", "pytest", *options, str(tmp_path)]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stdout
    last = ended.stdout.splitlines()[-1]
    assert last == "Not tested: 3 (no browser), 1 (marked slow), 1 (no disk); pytest -rs has the details."
