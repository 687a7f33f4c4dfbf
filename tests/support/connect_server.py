"""A Spark Connect server in its own process. Its Python workers lack the package until a client ships it.

As a script it runs a command with SPARK_REMOTE set to a new server:

    python tests/support/connect_server.py python -m pytest ...
"""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path.insert(0, str(TESTS))

from support import disks  # noqa: E402
from support.processes import kill_group, make_bare_python  # noqa: E402
from support.spark_rankings import SHORT_LIVED  # noqa: E402

PATIENCE = 600  # seconds; on an idle machine the server is up in four
NEEDED = ("grpc", "grpc_status", "google.rpc", "zstandard")


class NoServerError(Exception):
    """No server can be started here; the message says why."""


def is_importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def connect_server(
    folder: Path, *, cores: int = 1, settings: Mapping[str, str] = {}, path: str = ""
) -> Iterator[str]:
    """Start a server from the pip package; yield its address. `path` is for Python workers."""
    missing = [name for name in NEEDED if not is_importable(name)]
    if missing:
        raise NoServerError(f"Spark Connect needs {', '.join(missing)}: pip install 'pyspark[connect]'")
    _, environment = make_bare_python(folder / "python")
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (environment["PYTHONPATH"], path)))
    port = find_free_port()
    chosen = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": SHORT_LIVED,
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        **disks.SETTINGS,
        **settings,
    }
    command = [f"{environment['SPARK_HOME']}/bin/spark-submit", "--master", f"local[{cores}]"]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    command += [part for name, value in chosen.items() for part in ("--conf", f"{name}={value}")]
    log = folder / "log"
    with log.open("w") as out:
        process = subprocess.Popen(
            [*command, "spark-internal"],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + PATIENCE
        while not is_listening(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise NoServerError(f"no Connect server here: {log.read_text()[-300:]}")
            time.sleep(0.2)
        yield f"sc://127.0.0.1:{port}"
    finally:
        kill_group(process)
        process.wait()


def main(command: list[str]) -> int:
    """Run a command with a server; return its exit code."""
    with tempfile.TemporaryDirectory(prefix="ndcg-spark-connect-") as folder:
        settings = {"spark.driver.memory": "3g", "spark.sql.shuffle.partitions": "2"}
        # Workers find what tests send them by reference; the package itself is shipped by the client.
        with connect_server(Path(folder), cores=2, settings=settings, path=str(TESTS)) as address:
            environment = {
                name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))
            }
            return subprocess.run(command, env={**environment, "SPARK_REMOTE": address}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
