"""What the tests share: one Spark session, the reference data, and how hypothesis looks for examples."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from support.spark_rankings import SHORT_LIVED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROJECT_ROOT = Path(__file__).resolve().parent.parent

# A shared machine may stall any example, so time proves nothing here; on CI the same examples run every time.
settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what starts Spark, so that `pytest -m "not spark"` runs the rest in half a minute."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one local session of the test run: two cores, small shuffles, UTC, files in a temporary folder."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    folder = tmp_path_factory.mktemp("spark")
    options = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f'"-Dderby.system.home={folder / "derby"}" {SHORT_LIVED}',
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.default.parallelism": "2",
        # Otherwise each `F.col(...)` looks up and sends the line of Python that it stands in.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    session = SparkSession.builder.master("local[2]").appName("ndcg-spark-tests").config(map=options).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real rankings with values computed by outside tools; it is not part of the project."""
    folder = Path(os.environ.get("NDCG_SPARK_SHARED_DATA") or PROJECT_ROOT.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"no reference data at {folder}; NDCG_SPARK_SHARED_DATA may name its folder")
    return folder
