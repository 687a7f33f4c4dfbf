"""Jobs in their own processes, as users start them, and pseudo-terminals."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from support.main_job import RunResult
from support.spark_rankings import SHORT_LIVED

ROOT = Path(__file__).resolve().parents[2]
INCUBATOR = "WARNING: Using incubator modules: jdk.incubator.vector"
"""Java itself says so; Spark asks for that module."""
PATIENCE = 300  # seconds; on an idle machine a run takes about ten


def run_process(command: list[str | Path], cwd: Path, environment: dict[str, str]) -> RunResult:
    """Run to the end; kill the rest of the process group after that, or at the time limit."""
    with subprocess.Popen(
        [str(part) for part in command],
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=PATIENCE)
        finally:
            kill_group(process)
    return RunResult(process.returncode, out, err)


def kill_group(process: subprocess.Popen[str]) -> None:
    """Kill a process and its descendants. It must have been started in a session of its own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def list_installed() -> list[Path]:
    """Return files and folders of installed packages except this one, the first on the path of each name."""
    paths: dict[str, Path] = {}
    for folder in map(Path, sys.path):
        if folder.name in ("site-packages", "dist-packages") and folder.is_dir():
            for path in folder.iterdir():
                paths.setdefault(path.name, path)
    return [path for name, path in paths.items() if not name.startswith(("ndcg_spark", "_ndcg_spark", "__pycache__"))]


def make_bare_python(folder: Path) -> tuple[Path, dict[str, str]]:
    """Make a Python with every installed package except this one; return it and the environment for it and for Spark.

    An editable install hides that workers cannot import the package: -S leaves out .pth files, and the links
    leave out an ordinary install.
    """
    packages = folder / "packages"
    packages.mkdir(parents=True)
    import pyspark

    home = Path(pyspark.__file__).resolve().parent
    for path in list_installed():
        (packages / path.name).symlink_to(path)
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -S "$@"\n')
    python.chmod(0o755)
    names = ("PATH", "HOME", "LANG", "JAVA_HOME", "TMPDIR")
    environment = {name: os.environ[name] for name in names if name in os.environ}
    environment |= {"PYTHONPATH": str(packages), "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
    environment |= {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python)}
    environment |= {"SPARK_SUBMIT_OPTS": SHORT_LIVED}
    result = run_process([python, "-c", "import pyspark, click; import ndcg_spark"], folder, environment)
    assert result.err.strip().endswith("No module named 'ndcg_spark'")
    return python, environment


def build_package(folder: Path, environment: dict[str, str]) -> Path:
    """Build the zip of scripts/package from a copy of the sources."""
    checkout = folder / "checkout"
    for name in ("ndcg_spark", "scripts"):
        shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
    bare = [sys.executable, "-S", "-I"]  # it needs nothing but Python
    built = run_process([*bare, checkout / "scripts" / "package"], folder, environment)
    assert (built.code, built.err) == (0, "")
    assert "dist/ndcg_spark.zip" in built.out
    return checkout / "dist" / "ndcg_spark.zip"


TERMINAL_PATIENCE = 60  # seconds; a spinner shows a new text within a tenth of one
_END = "\0end of what was printed\0"


@contextmanager
def open_terminal() -> Iterator[tuple[TextIO, Callable[[], str]]]:
    """Open a terminal; yield a stream to print to and a function that returns what was printed so far."""
    leader, follower = os.openpty()
    shown: list[bytes] = []

    def take() -> None:
        """Read at once: a terminal holds some kilobytes, then the printing process waits."""
        try:
            while some := os.read(leader, 2**16):
                shown.append(some)
        except OSError:  # the other end is closed
            pass

    def read() -> str:
        return b"".join(shown).decode("utf-8", "replace").replace("\r\n", "\n").replace(_END, "")

    def read_all() -> str:
        n_before = b"".join(shown).count(_END.encode())
        print(end=_END, file=stream, flush=True)
        end = time.monotonic() + TERMINAL_PATIENCE
        while b"".join(shown).count(_END.encode()) == n_before:
            assert time.monotonic() < end, "the terminal does not show what was printed"
            time.sleep(0.01)
        return read()

    taking = threading.Thread(target=take, daemon=True)
    taking.start()
    try:
        with os.fdopen(follower, "w", encoding="utf-8") as stream:
            yield stream, read_all
    finally:
        taking.join(TERMINAL_PATIENCE)
        os.close(leader)


def wait_for_text(text: str, read: Callable[[], str]) -> None:
    """Wait until a text is shown."""
    end = time.monotonic() + TERMINAL_PATIENCE
    while text not in read():
        assert time.monotonic() < end, f"{text!r} is not in {read()!r}"
        time.sleep(0.02)
