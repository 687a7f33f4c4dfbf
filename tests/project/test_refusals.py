"""scripts/refusals: that it notices what jobs must not do, and goes on where it ended. Jobs themselves take long."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support.processes import INCUBATOR

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

import refusals

LINE = "mean_ndcg.py: 1 bad row of 3 in the input: nan_score 1"
TRACEBACK = "Traceback (most recent call last):\n  File daemon.py\nBrokenPipeError: [Errno 32] Broken pipe\n"


@pytest.mark.parametrize(
    ("code", "told", "wrong"),
    [
        (2, f"{INCUBATOR}\nranking and scoring: 5.8 s\n{LINE}\n", []),
        (1, f"{LINE}\n", ["exit code 1, not 2"]),
        (2, TRACEBACK + LINE, ["a traceback"]),
        (2, f"{LINE}\n\tat org.apache.spark\n", ["a traceback"]),
        (2, f"\n{LINE}\nand more\n", ["2 lines"]),
        (2, "mean_ndcg.py: refused", ["'nan_score 1' is not named"]),
    ],
)
def test_ends_that_are_not_as_documented(code, told, wrong):
    assert refusals.judge(code, 2, told, "nan_score 1") == wrong


def test_what_is_in_the_file_is_not_run_again(tmp_path, monkeypatch):
    started = []

    def fake(kind: str, number: int) -> refusals.Result:
        started.append((kind, number))
        return refusals.Result(kind, number, "x", 2, ["a traceback"] if number else [], "")

    # stands in for: jobs that start Spark, because each takes ten seconds, and this is about the file of their ends
    monkeypatch.setattr(refusals, "refused", lambda number: fake("refused", number))
    monkeypatch.setattr(refusals, "interrupted", lambda number, longest: fake("interrupted", number))
    path = tmp_path / "results"
    refusals.run_jobs(1, 1, 5, refusals.Kept(path))
    assert started == [("refused", 0), ("interrupted", 0)]
    with path.open("a") as file:
        file.write('{"kind": "refused", "num')  # as by a kill in the middle of a line
    found = refusals.run_jobs(2, 1, 5, refusals.Kept(path))
    assert started[2:] == [("refused", 1), ("interrupted", 1)]
    assert refusals.table_of(found).splitlines()[2:] == [
        "| refused | 2 | 1 | 1 | 0 |",
        "| interrupted | 2 | 1 | 1 | 0 |",
    ]
