"""What starts the Python workers of a local session of our own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark

from ndcg_spark.cli.worker_daemon import zips_last

ROOT = Path(__file__).resolve().parent.parent


def test_zips_of_spark_come_after_what_is_installed():
    path = ["", "/files", "/spark/pyspark.zip", "/spark/py4j-0.10.9.9-src.zip", "/spark/core.jar", "/site-packages"]
    assert zips_last(path) == ["", "/files", "/spark/core.jar", "/site-packages", *path[2:4]]


def test_workers_come_from_the_installed_pyspark():
    """The path is as Spark makes it, its zips first; Python names the file of each module that it imports."""
    zips = sorted(Path(pyspark.__file__).parent.glob("python/lib/*.zip"))
    assert any(path.name == "pyspark.zip" for path in zips), zips
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(str(path) for path in [*zips, ROOT])}
    command = [sys.executable, "-v", "-m", "ndcg_spark.cli.worker_daemon", "pyspark.worker"]
    ended = subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,  # at whose end the daemon ends, with a port written
        capture_output=True,
        timeout=60,
        check=False,
    )
    told = ended.stderr.decode()
    assert len(ended.stdout) == 4, told[-2000:]
    assert "import 'pyspark.daemon'" in told
    assert "pyspark.zip/" not in told
