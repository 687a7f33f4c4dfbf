"""Worker processes: order of results, refusals, crashes, killed workers, cleanup."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ndcg_spark.errors import InputRefusedError, NdcgSparkError
from ndcg_spark.local.pool import Pool


def wait_and_return(seconds: float, what: str) -> str:
    time.sleep(seconds)
    return what


def get_process(_: int) -> int:
    return os.getpid()


def wait_and_get_process(seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()


def refuse(what: str) -> str:
    time.sleep(3)  # until all have started
    raise InputRefusedError(what)


def divide(dividend: int, divisor: int) -> float:
    time.sleep(3)
    return dividend / divisor


def end_worker(parent: int, how: int) -> None:
    """End the process that runs this, if it is a worker."""
    if os.getpid() != parent:
        os.kill(os.getpid(), how)
    time.sleep(3)


def print_lines(parent: int) -> int:
    time.sleep(1)
    if os.getpid() != parent:
        print("no result\n" * 2000)
    return 2000


def test_results_come_in_the_order_of_jobs():
    with Pool(2) as pool:
        jobs = [(wait_and_return, (0.3, "slow")), (wait_and_return, (0.0, "fast")), (wait_and_return, (0.1, "last"))]
        assert list(pool.run(jobs)) == ["slow", "fast", "last"]


@pytest.mark.slow
def test_more_than_one_process_works():
    with Pool(2) as pool:
        actual = set(pool.run([(wait_and_get_process, (3.0,)), (wait_and_get_process, (3.0,))]))
        assert os.getpid() in actual
        assert len(actual) == 2
    with Pool(1) as pool:
        assert set(pool.run([(get_process, (1,)), (get_process, (2,))])) == {os.getpid()}


def test_functions_that_workers_cannot_import_run_here():
    here = {"a": lambda: 1}
    with Pool(2) as pool:
        assert list(pool.run([(here.__getitem__, ("a",)), (get_process, (1,))]))[1] == os.getpid()


def test_output_of_workers_is_not_a_result(capfd):
    with Pool(2) as pool:
        assert list(pool.run([(print_lines, (os.getpid(),))] * 4)) == [2000] * 4
    assert capfd.readouterr().out == ""


@pytest.mark.slow
def test_the_first_of_several_refusals_by_text_is_raised():
    with Pool(2) as pool, pytest.raises(InputRefusedError, match=r"^a$"):
        list(pool.run([(refuse, ("b",)), (refuse, ("a",))]))


@pytest.mark.slow
def test_other_errors_are_raised_before_refusals():
    with Pool(2) as pool, pytest.raises(ZeroDivisionError):
        list(pool.run([(refuse, ("a",)), (divide, (1, 0))]))


@pytest.mark.slow
def test_a_killed_worker_is_named_in_one_line():
    with (
        Pool(2) as pool,
        pytest.raises(NdcgSparkError, match=r"^a worker process was ended by SIGKILL; memory may be short"),
    ):
        list(pool.run([(end_worker, (os.getpid(), signal.SIGKILL))] * 3))


def test_nothing_is_left_behind():
    with Pool(2) as pool:
        list(pool.run([(get_process, (1,)), (get_process, (2,))]))
        workers, folder = [worker.pid for worker in pool._workers], Path(pool.folder)
        assert folder.is_dir()
    assert not folder.exists()
    assert not any(map(is_alive, workers))


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
def test_workers_of_a_killed_process_end_and_remove_its_folder(tmp_path: Path):
    """A killed process cannot end its workers: they notice that their pipe is closed."""
    code = (
        "import sys, time\n"
        "from ndcg_spark.local.pool import Pool\n"
        "pool = Pool(2)\n"
        "pool.start()\n"
        "print(pool.folder, *(one.pid for one in pool._workers), flush=True)\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert parent.stdout is not None
    folder, *workers = parent.stdout.readline().split()
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and (any(is_alive(int(worker)) for worker in workers) or Path(folder).exists()):
        time.sleep(0.1)
    assert not any(is_alive(int(worker)) for worker in workers)
    assert not Path(folder).exists()


@pytest.mark.slow
def test_a_signal_to_all_processes_leaves_workers_to_their_parent():
    """Like Ctrl-C in a terminal, or the end of a service, from a worker's first moment."""
    with Pool(2) as pool:
        pool.start()
        for number in (signal.SIGINT, signal.SIGTERM):
            for worker in pool._workers:
                worker.send_signal(number)
        assert list(pool.run([(wait_and_return, (0.1, "a")), (wait_and_return, (0.1, "b"))])) == ["a", "b"]


@pytest.mark.slow
def test_leftovers_of_killed_processes_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    code = "import os, ndcg_spark.local.pool as its; pool = its.Pool(1); print(pool.folder, flush=True); input()"
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for _ in range(2)
    ]
    folders = [Path(str(process.stdout and process.stdout.readline()).strip()) for process in processes]
    processes[0].kill()
    processes[0].wait()
    assert [folder.is_dir() for folder in folders] == [True, True]
    # stands in for: TMPDIR, because Python looks at it only once
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with Pool(1) as pool:
        assert sorted(tmp_path.iterdir()) == sorted([folders[1], Path(pool.folder)])
    processes[1].communicate("\n")
    assert list(tmp_path.iterdir()) == []  # it has ended without a `with` block
    for process in processes:
        process.communicate()


def test_unreadable_results_raise_without_waiting():
    with Pool(2) as pool, pytest.raises(RuntimeError, match="not here"):
        list(pool.run([(make_unreadable, ()), (make_unreadable, ())]))


class Unreadable:
    def __reduce__(self) -> tuple[object, tuple[int, str]]:
        return raise_unless_in, (os.getpid(), "not here")


def raise_unless_in(process: int, what: str) -> None:
    if os.getpid() != process:
        raise RuntimeError(what)


def make_unreadable() -> Unreadable:
    return Unreadable()


@pytest.mark.slow
def test_no_further_job_begins_after_a_worker_is_killed(tmp_path: Path):
    jobs = [(touch_or_end, (os.getpid(), str(tmp_path / str(number)))) for number in range(100)]
    pool = Pool(2)
    with pool, pytest.raises(NdcgSparkError, match="a worker process was ended by SIGKILL"):
        list(pool.run(jobs))
    assert len(list(tmp_path.iterdir())) < 99


def touch_or_end(parent: int, path: str) -> None:
    if os.getpid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
    Path(path).touch()
    time.sleep(0.1)
