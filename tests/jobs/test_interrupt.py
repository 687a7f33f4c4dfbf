"""Ctrl-C at a terminal: every process of the group is sent SIGINT, and a person sees one line."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.main_job import run_command
from support.spark_rankings import SHORT_LIVED

from ndcg_spark import main
from ndcg_spark.jobs.interrupts import TerminatedError, handle_interrupts
from ndcg_spark.jobs.worker_daemon import suppress_shutdown_errors

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 120  # seconds; on an idle machine everything here takes about ten
ENDLESS = "SELECT id AS query_id, array(3, 0, 1) AS relevance FROM range(1000000000000)"

needs_pgrep = pytest.mark.skipif(shutil.which("pgrep") is None, reason="pgrep tells what a group runs")


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def running(group: int, pattern: str) -> bool:
    return subprocess.run(["pgrep", "-g", str(group), "-f", pattern], capture_output=True).returncode == 0


@contextmanager
def endless_job(folder: Path) -> Iterator[subprocess.Popen]:
    """A job that would never end, in a process group of its own; its output goes to files."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK")}
    environment |= {"PYTHONPATH": str(ROOT), "SPARK_SUBMIT_OPTS": SHORT_LIVED, "SPARK_LOCAL_IP": "127.0.0.1"}
    with (folder / "out").open("w") as out, (folder / "err").open("w") as err:
        process = subprocess.Popen(
            [sys.executable, ROOT / "jobs" / "mean_ndcg.py", "--input", ENDLESS, "--k", "3"],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background shell ignores it
        )
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


MOMENTS = {
    "Ctrl-C, while Java starts": ("java", os.killpg, signal.SIGINT, 130, "interrupted"),
    "Ctrl-C, while workers score": ("worker_daemon", os.killpg, signal.SIGINT, 130, "interrupted"),
    "SIGTERM, while workers score": ("worker_daemon", os.kill, signal.SIGTERM, 143, "terminated"),
}


@needs_pgrep
@pytest.mark.spark
@pytest.mark.classic("processes with sessions of their own")
@pytest.mark.parametrize(("reached", "send", "number", "code", "said"), MOMENTS.values(), ids=MOMENTS)
def test_a_job_that_is_interrupted_says_so_in_a_line_and_leaves_nothing_behind(
    tmp_path, reached, send, number, code, said
):
    """A terminal sends to the whole group, a scheduler to the process that it has started."""
    with endless_job(tmp_path) as job:
        wait_until(lambda: running(job.pid, reached) or job.poll() is not None)
        if reached == "worker_daemon":
            time.sleep(2)  # workers import their modules, and get to work
        assert job.poll() is None, (tmp_path / "err").read_text()
        send(job.pid, number)
        assert job.wait(PATIENCE) == code
        wait_until(lambda: not running(job.pid, "."))
    lines = [line for line in (tmp_path / "err").read_text().splitlines() if line.strip()]
    assert [line for line in lines if not line.startswith("WARNING: Using incubator modules")] == [
        f"mean_ndcg.py: {said}"
    ]
    assert (tmp_path / "out").read_text() == ""


@pytest.fixture
def before() -> Iterator[object]:
    """Python's own handler, also where the tests run in the background of a shell, which ignores SIGINT."""
    outer = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield signal.default_int_handler
    signal.signal(signal.SIGINT, outer)


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def starting(n_interrupts: int, reached: list[str]) -> None:
    with handle_interrupts() as interrupts:
        for _ in range(n_interrupts):
            interrupt()
        reached.append("the end of the start")
        interrupts.finish_start()
        reached.append("the job")


@pytest.mark.parametrize(("n_interrupts", "expected"), [(1, ["the end of the start"]), (2, [])])
def test_an_interrupt_of_the_start_waits_for_its_end_unless_it_comes_twice(before, n_interrupts, expected):
    """As Java that is left alone while it starts would stay."""
    reached: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        starting(n_interrupts, reached)
    assert reached == expected
    assert signal.getsignal(signal.SIGINT) is before
    assert logging.getLogger("py4j").level <= logging.CRITICAL


@pytest.mark.usefixtures("before")
def test_an_interrupt_within_a_finalizer_is_not_lost(capfd):
    """As py4j has one for each object of Java: Python prints what is raised there, and goes on."""

    class Handle:
        pass

    hook = sys.unraisablehook

    def work() -> None:
        with handle_interrupts() as interrupts:
            interrupts.finish_start()
            handle = Handle()
            watched = weakref.ref(handle, lambda _: interrupt())
            del handle
            assert watched() is None
            time.sleep(PATIENCE)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert capfd.readouterr().err == ""
    assert sys.unraisablehook is hook


@pytest.mark.parametrize("interrupted", [True, False])
@pytest.mark.usefixtures("before")
def test_what_fails_after_an_interrupt_is_not_told(interrupted):
    def work() -> None:
        with handle_interrupts() as interrupts:
            interrupts.finish_start()
            try:
                if interrupted:
                    interrupt()
            finally:
                raise ConnectionError("Java is gone")

    with pytest.raises(KeyboardInterrupt if interrupted else ConnectionError):
        work()


def test_what_schedulers_send_ends_a_job_as_ctrl_c_does():
    """SIGTERM, which ends Python at once where nobody handles it: claims and unfinished files would stay."""
    before, undone = signal.getsignal(signal.SIGTERM), []

    def work() -> None:
        with handle_interrupts() as interrupts:
            interrupts.finish_start()
            try:
                signal.raise_signal(signal.SIGTERM)
            finally:
                undone.append(True)

    with pytest.raises(TerminatedError):
        work()
    assert undone == [True]
    assert signal.getsignal(signal.SIGTERM) is before


def as_of(path: str) -> SimpleNamespace:
    """The root logger as a module of that path calls it."""
    code = compile("import logging\ndef error(text): logging.error(text)", path, "exec")
    module: dict[str, Any] = {}
    exec(code, module)
    return SimpleNamespace(error=module["error"])


def test_lines_of_the_package_are_logged_after_an_interrupt(before, caplog):
    """Those of py4j are not: it logs every call that is interrupted, by the root logger."""
    py4j = as_of("/spark/python/lib/py4j-0.10.9.9-src.zip/py4j/java_gateway.py")

    def work() -> None:
        with handle_interrupts() as interrupts:
            interrupts.finish_start()
            try:
                interrupt()
            finally:
                logging.getLogger("py4j.java_gateway").error("a traceback")
                py4j.error("a traceback, by the root logger")
                logging.error("a line of a user, by the root logger")
                logging.getLogger("ndcg_spark.jobs").error("interrupted after 3 s")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert [record.message for record in caplog.records] == [
        "a line of a user, by the root logger",
        "interrupted after 3 s",
    ]
    py4j.error("another job")
    assert caplog.records[-1].message == "another job"
    assert logging.getLogger("py4j").level != logging.CRITICAL + 1


def test_a_session_in_another_thread_leaves_signals_alone():
    before = signal.getsignal(signal.SIGINT)
    actual = []

    def work() -> None:
        with handle_interrupts() as interrupts:
            interrupts.finish_start()
            actual.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert actual == [before]


def test_a_worker_that_is_interrupted_ends_without_a_traceback():
    def worker() -> int:
        raise KeyboardInterrupt

    assert suppress_shutdown_errors(worker)() == 1


@pytest.mark.parametrize(
    ("number", "code", "said"), [(signal.SIGTERM, 143, "terminated"), (signal.SIGINT, 130, "interrupted")]
)
def test_a_signal_before_a_job_begins_is_a_line(monkeypatch, number, code, said):
    """While modules are loaded and tables opened, there are no handlers of the job yet."""

    def load(name: str) -> None:
        signal.raise_signal(number)

    # stands in for: the loading of a command, because the signal has to come within it
    monkeypatch.setattr(main, "load_command", load)
    before = signal.getsignal(signal.SIGTERM)
    ended = run_command("mean-ndcg", "--input", "in.parquet")
    assert (ended.code, ended.out, ended.complaints) == (code, "", [f"ndcg-spark: {said}"])
    assert signal.getsignal(signal.SIGTERM) is before


LOADED = """
import signal, sys

class Signal:
    def find_spec(self, name, path=None, target=None):
        if name == "ndcg_spark.jobs.command":
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Signal())
signal.signal(signal.SIGINT, signal.default_int_handler)
from ndcg_spark.__main__ import run
run()
"""


def test_a_signal_before_the_command_is_loaded_is_a_line():
    ended = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "ndcg-spark: interrupted\n")
