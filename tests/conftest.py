"""Shared fixtures: a Spark session and reference data; settings of hypothesis; which tests ran."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from support import disks
from support.disks import public_folder  # noqa: F401  # a fixture
from support.engines import ENGINES
from support.spark_rankings import SHORT_LIVED, SHORT_LIVED_SETTINGS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REASONS = pytest.StashKey[Counter[str]]()
SKIPPED = pytest.StashKey[Counter[str]]()
LEFT_OUT = pytest.StashKey[dict[str, int]]()
PROJECT_ROOT = Path(__file__).resolve().parent.parent

# A shared machine may stall any example, so time proves nothing here; on CI the same examples run every time.
settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cluster", action="store_true", help="run every test on a real cluster")
    parser.addoption(
        "--as-users-have-it",
        action="store_true",
        help="leave adaptive execution and compiled plans as Spark sets them, as scripts/test-matrix does",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests that start Spark for `scripts/test --fast`, tests that start processes with Spark for `--all`."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()) or _uses_spark_engine(item):
            item.add_marker(pytest.mark.spark)
        classic = item.get_closest_marker("classic")
        if classic is not None and classic.args[0].startswith("processes"):
            item.add_marker(pytest.mark.slow)
        marked = item.get_closest_marker("cluster")
        if marked is not None and not config.getoption("cluster"):
            item.add_marker(pytest.mark.skip(reason=f"run by scripts/check cluster: {marked.args[0]}"))
    if "SPARK_REMOTE" in os.environ:
        _deselect_classic_tests(config, items)
    _sort_long_files_first(items)


def _sort_long_files_first(items: list[pytest.Item]) -> None:
    """Run the longest files first: short ones at the end keep both processes busy."""
    marked: Counter[Path] = Counter()
    for item in items:
        marked[item.path] += 10 * (item.get_closest_marker("slow") is not None)
        marked[item.path] += item.get_closest_marker("spark") is not None
    items.sort(key=lambda item: -marked[item.path])


def _uses_spark_engine(item: pytest.Item) -> bool:
    params = item.callspec.params if hasattr(item, "callspec") else {}
    return params.get("engine") in ("spark", "window")


def _deselect_classic_tests(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = [item for item in items if item.get_closest_marker("classic")]
    items[:] = [item for item in items if not item.get_closest_marker("classic")]
    config.hook.pytest_deselected(items=left_out)
    config.stash[REASONS] = Counter(str(item.get_closest_marker("classic").args[0]) for item in left_out)


def pytest_deselected(items: list[pytest.Item]) -> None:
    """Count tests deselected by `-m`; workers of xdist send their counts to the main process."""
    config = items[0].config
    if not config.option.markexpr:
        return
    counts = {name: sum(item.get_closest_marker(name) is not None for item in items) for name in ("slow", "spark")}
    config.stash[LEFT_OUT] = counts
    getattr(config, "workeroutput", {})["left_out"] = counts


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    node.config.stash[LEFT_OUT] = getattr(node, "workeroutput", {}).get("left_out", {})


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """List the tests left out on Spark Connect, with reasons."""
    for reason, n_tests in sorted(config.stash.get(REASONS, Counter()).items()):
        terminalreporter.write_line(f"left out on Spark Connect: {n_tests} tests, {reason}")
    config.stash[SKIPPED] = Counter(
        str(report.longrepr[2]).removeprefix("Skipped: ") for report in terminalreporter.stats.get("skipped", ())
    )


def pytest_unconfigure(config: pytest.Config) -> None:
    """Print last what was not tested."""
    line = format_not_tested(config.stash.get(SKIPPED, Counter()), config.stash.get(LEFT_OUT, {}))
    if line:
        print(line)


def format_not_tested(skipped: Counter[str], left_out: Mapping[str, int]) -> str:
    """Format a line about tests that markers deselected or that were skipped, by reason without details."""
    by_reason = Counter({f"marked {name}": n_tests for name, n_tests in left_out.items() if n_tests})
    for reason, n_tests in skipped.items():
        by_reason[re.split(r": |; | \(", reason, maxsplit=1)[0]] += n_tests
    listed = ", ".join(f"{n_tests} ({reason})" for reason, n_tests in by_reason.most_common())
    return f"Not tested: {listed}; pytest -rs has the details." if listed else ""


@pytest.fixture(scope="session")
def spark(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one session of the test run.

    A local one: two cores, small shuffles, UTC, files in a temporary folder. With SPARK_REMOTE
    (scripts/test-matrix connect) it is a session of that server.
    """
    from pyspark.sql import SparkSession

    from ndcg_spark.jobs import worker_daemon

    if "SPARK_REMOTE" in os.environ:
        yield from configure_connect(SparkSession.builder.remote(os.environ["SPARK_REMOTE"]).getOrCreate())
        return
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    folder = tmp_path_factory.mktemp("spark")
    options = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f'"-Dderby.system.home={folder / "derby"}" {SHORT_LIVED}',
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.default.parallelism": "2",
        # Otherwise each `F.col(...)` looks up and sends its line of Python.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **disks.SETTINGS,
        # As in jobs: shorter waits around each task.
        **worker_daemon.SETTINGS,
    }
    if not pytestconfig.getoption("--as-users-have-it"):
        options = SHORT_LIVED_SETTINGS | options
    session = SparkSession.builder.master("local[2]").appName("ndcg-spark-tests").config(map=options).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


def configure_connect(session: SparkSession) -> Iterator[SparkSession]:
    """Yield a session of Spark Connect whose workers have the package and import tests by path."""
    from ndcg_spark import add_package_to_workers

    assert "NDCG_SPARK_SHIPPED" in os.environ or add_package_to_workers(
        session
    )  # Sail takes no packages, and runs where they are
    session.conf.set("spark.sql.session.timeZone", "UTC")
    session.conf.set("spark.sql.shuffle.partitions", "2")
    yield session
    session.stop()


@pytest.fixture(params=["local", "spark"])
def engine(request: pytest.FixtureRequest) -> Mapping[str, str]:
    """Options of `evaluate` that select an engine."""
    if request.param != "local":
        request.getfixturevalue("spark")
    return ENGINES[request.param]


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real rankings with values computed by other tools; it is not part of the project."""
    folder = Path(os.environ.get("NDCG_SPARK_SHARED_DATA") or PROJECT_ROOT.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"no reference data at {folder}; NDCG_SPARK_SHARED_DATA may name its folder")
    return folder


@pytest.fixture(scope="session")
def golden_nights(tmp_path_factory):
    """The inputs of scripts/check stored-format, and a metric table with the first two of its nights."""
    from support.main_job import run_command

    from scripts.checks.stored_format import STORY
    from scripts.checks.stored_nights import write_inputs

    folder = tmp_path_factory.mktemp("golden_nights")
    write_inputs(folder)
    for name in ("mean-ndcg", "the next night"):
        assert run_command(*shlex.split(STORY[name].format(f=folder)), "--engine", "local").code == 0
    return folder


@pytest.fixture
def also_without_spark(monkeypatch):
    """Build the reports of a test also without Spark; a list of those that were built twice."""
    from support.report_engines import build_reports_twice

    return build_reports_twice(monkeypatch)
