"""A short leg of scripts/check writes faults, which notices lost, doubled and mixed slices."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from datetime import date

import pyarrow.parquet as pq
import pytest
from support.disks import mount_small_disk

from scripts.checks.writes import engines, faults, local, nights, tables
from scripts.checks.writes import rows as fault_rows


@pytest.mark.slow
def test_no_slice_is_lost_doubled_or_mixed(spark, tmp_path):
    legs = faults.run_legs(spark, 4, "test", tmp_path)
    assert [line for leg in legs for line in leg.complaints] == []
    assert sum(leg.counts["done"] + leg.counts["refused"] + leg.counts["broken"] for leg in legs) >= 4
    printed = faults.format_table([(leg.name, dict(leg.counts), leg.complaints) for leg in legs])
    assert "| folder, threads | 2 |" in printed
    assert "| all | 4 |" in printed


ONE = [(5, i, 3) for i in range(3)]


@pytest.mark.parametrize(
    ("rows", "allowed", "verdict"),
    [
        (ONE, {4, 5}, "whole"),
        ([], {0, 5}, "whole"),
        ([], {5}, "lost"),
        (ONE + ONE, {5}, "doubled"),
        (ONE[1:], {5}, "mixed"),
        ([*ONE, (4, 0, 7)], {4, 5}, "mixed"),
        (ONE, {4}, "wrong"),
    ],
)
def test_verdicts(rows, allowed, verdict):
    assert fault_rows.judge(rows, allowed)[0] == verdict


def test_a_reader_notices_a_slice_that_is_gone(tmp_path):
    reader = fault_rows.Reader(tmp_path)
    reader.settled = {tmp_path / "run_date=2026-01-01" / "slice=a"}
    reader.look()
    assert reader.counts["lost"] == 1


class Ending:
    """Writers that all end alike."""

    def __init__(self, end):
        self.end = end

    def run(self, tasks, rng=None):
        return [self.end for _ in tasks]


@pytest.mark.parametrize(
    ("end", "left_over", "unhealed"), [("done", False, 0), ("broken", False, 1), ("done", True, 1)]
)
def test_a_run_that_does_not_heal_is_noticed(tmp_path, end, left_over, unhealed):
    leg = faults.Leg("a folder", faults.FORMATS["folder"], (str(tmp_path),))
    if left_over:
        (tmp_path / ".ndcg-spark").mkdir()
    leg.heal([fault_rows.Task(date(2026, 1, 1), "shop", ("a",), 7)], Ending(end))
    assert (leg.counts["re-runs"], leg.counts["unhealed"], len(leg.complaints)) == (1 + left_over, unhealed, unhealed)


def test_each_table_of_a_job_is_judged_on_its_own():
    leg = faults.Leg("two tables", faults.FORMATS["folder"], ("metrics", "queries"))
    task = fault_rows.Task(date(2026, 1, 1), "shop", ("a",), 7, tables=(0, 1))
    leg.settle([task, fault_rows.Task(date(2026, 1, 1), "shop", ("a",), 8)], ["done", "killed"])
    (key,) = task.slices
    assert leg.known == {("metrics", key): {7, 8}, ("queries", key): {7}}


def test_task_is_unchanged_after_pickling():
    fault = fault_rows.Fault("put", 1, kill="both")
    task = fault_rows.Task(date(2026, 1, 1), "shop", ("a", "b"), 7, fault, (0, 1))
    assert fault_rows.from_json(json.loads(json.dumps(fault_rows.as_json(task)))) == task


@pytest.mark.parametrize("step", ["register", "release"])
def test_a_process_is_killed_before_the_step_that_was_planned(monkeypatch, step):
    killed, called = [], []
    kind = faults.FORMATS["parquet"]
    owner, name = {**kind.steps, "release": tables.RELEASE}[step]
    # stands in for: the end of this process and a step of its writer, because the process has to tell of them
    monkeypatch.setattr(fault_rows, "end", lambda pid, how: killed.append((pid, how, list(called))))
    monkeypatch.setattr(owner, name, called.append)
    with fault_rows.broken_calls(kind):
        fault_rows._plan.fault = fault_rows.Fault(step, 1, kill="both")
        for call in ("first", "second", "third"):
            getattr(owner, name)(call)
    assert killed == [(os.getpid(), "both", ["first"])]
    assert called == ["first", "second", "third"]


def test_killed_process_has_ended():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        fault_rows.end(process.pid, "both")
        assert process.wait(60) == -signal.SIGKILL


ROWS = 40_000


@pytest.mark.slow
def test_jobs_without_spark_that_are_killed_leave_a_whole_night(tmp_path):
    killed = local.kill_nights(tmp_path, 6, "test", ROWS)
    assert killed.complaints == []
    assert killed.counts["nights"] == 6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kill", "counted"),
    [
        (local.Kill("worker", signal.SIGKILL), {"broken": 1}),
        (local.Kill("all", signal.SIGTERM), {"broken": 1}),
        (local.Kill("job", signal.SIGINT, step="swap"), {"broken": 1}),
        (local.Kill("job", signal.SIGKILL, step="_put_slice", at=1), {"killed": 1, "re-runs": 1}),
    ],
)
def test_every_kill_hits(tmp_path, kill, counted):
    """With kills that cannot miss; random ones may come too late."""
    killed = local.Nights(tmp_path)
    killed.make(ROWS)
    if not kill.step:
        kill = replace(kill, seconds=-1.0)  # as soon as there are workers
    killed.night(kill, 0)
    assert killed.complaints == []
    assert killed.counts.items() >= counted.items()


@pytest.mark.slow
def test_full_temporary_disk_gives_one_line(tmp_path):
    killed = local.Nights(tmp_path)
    killed.make(ROWS)
    held = killed.rows("metrics"), killed.rows("queries")
    (tmp_path / "temporary").rmdir()
    with mount_small_disk(tmp_path / "temporary", 64) as disk:
        code, message = killed.run(0)
        assert message == [
            f"ndcg-spark: No space left on device for temporary files: free space in {disk.folder}, or set TMPDIR to "
            "a folder on another disk."
        ]
        assert code == 2
        assert list(disk.folder.iterdir()) == []
        assert killed.processes() == []
    assert held == (killed.rows("metrics"), killed.rows("queries"))
    assert not (tmp_path / "metrics" / ".ndcg-spark").exists()


@pytest.mark.slow
def test_resumed_nights_equal_unbroken_ones(tmp_path):
    """With this seed both are killed before a step of writing: in the last step and in the first one."""
    actual = nights.resume_nights(tmp_path, 2, "d")
    assert actual.complaints == []
    assert actual.counts.items() >= {"nights": 2, "killed": 2, "resumed": 2}.items()


def test_nights_of_alternating_engines_equal_those_of_one(spark, tmp_path):
    turns = engines.write_in_turns(spark, tmp_path, 2, "test")
    assert turns.complaints == []
    assert (turns.counts["local"], turns.counts["spark"], turns.counts["re-runs"]) == (2, 1, 1)
    (path, *_) = (tmp_path / "turns" / "queries").rglob("*.parquet")
    rows = pq.ParquetFile(path).read()
    pq.write_table(rows.slice(1), path)
    turns.compare("queries", "*")
    assert turns.counts["wrong"] == len(turns.complaints) == 1
