"""The release: equal bytes wherever and whenever it is built, complete, and working once installed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import time
import zipfile
from pathlib import Path

import click
import pyarrow as pa
import pytest
from packaging.metadata import Metadata
from packaging.version import Version
from pyarrow import parquet

from ndcg_spark import __version__, functions
from scripts.checks.dependencies import collect_installed

ROOT = Path(__file__).resolve().parents[2]
RELEASED = (
    "ndcg_spark",
    "jobs",
    "scripts",
    "tests",
    "docs",
    "pyproject.toml",
    "README.md",
    "CHANGELOG.md",
    "LICENSE",
)
EPOCH = "1767225600"  # 2026-01-01
LEFT_OUT = shutil.ignore_patterns("__pycache__", "_build", "generated", ".*")


def build_dist(folder: Path, *, umask: int, modified: float) -> dict[str, bytes]:
    """Build dist/ from a copy of the checkout with one modification time; return its files by name."""
    folder.mkdir(parents=True)
    for name in (*RELEASED, "SECURITY.md"):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=LEFT_OUT)
        else:
            shutil.copy(source, folder / name)
    for path in folder.rglob("*"):
        os.utime(path, (modified, modified))
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHONPATH", "GIT_"))}
    result = subprocess.run(
        [sys.executable, folder / "scripts" / "release.py"],
        env=environment | {"SOURCE_DATE_EPOCH": EPOCH},
        umask=umask,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    files = {path.name: path.read_bytes() for path in (folder / "dist").iterdir()}
    assert [name for name in files if name not in result.stdout] == []
    return files


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """dist/ of one build."""
    folder = tmp_path_factory.mktemp("release") / "a"
    build_dist(folder, umask=0o022, modified=time.time())
    return folder / "dist"


@pytest.fixture(scope="module")
def wheel(dist):
    (path,) = dist.glob("*.whl")
    return path


@pytest.mark.slow
def test_the_same_sources_give_the_same_bytes(dist, tmp_path):
    other = build_dist(tmp_path / "elsewhere" / "deeper", umask=0o077, modified=1_000_000_000)
    first = {path.name: path.read_bytes() for path in dist.iterdir()}
    assert sorted(first) == [
        "ndcg_spark-" + __version__ + "-py3-none-any.whl",
        f"ndcg_spark-{__version__}.tar.gz",
        "ndcg_spark.zip",
    ]
    assert [name for name in first if first[name] != other[name]] == []


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
        others = {name.partition(".dist-info/")[2] for name in archive.namelist() if ".dist-info/" in name}
        times = {entry.date_time for entry in archive.infolist()}
    package = {str(path.relative_to(ROOT)) for path in (ROOT / "ndcg_spark").rglob("*") if path.is_file()}
    built = {"ndcg_spark/functions/functions.sql"}
    assert held == built | {name for name in package if "__pycache__" not in name}
    assert {Path(name).suffix for name in held} == {".py", ".typed", ".css", ".js", ".jinja", ".properties", ".sql"}
    assert others == {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"}
    assert times == {(2026, 1, 1, 0, 0, 0)}


@pytest.mark.slow
def test_the_wheel_holds_the_functions_for_sql(wheel):
    with zipfile.ZipFile(wheel) as archive:
        held = archive.read("ndcg_spark/functions/functions.sql").decode()
    printed = subprocess.run(
        [sys.executable, "-m", "ndcg_spark.functions"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert held == printed == functions.sql()


@pytest.mark.slow
def test_the_metadata_are_valid(wheel):
    with zipfile.ZipFile(wheel) as archive:
        actual = Metadata.from_email(archive.read(f"ndcg_spark-{__version__}.dist-info/METADATA"), validate=True)
    assert (actual.name, actual.version, actual.license_expression) == (
        "ndcg-spark",
        Version(__version__),
        "Apache-2.0",
    )
    assert {"spark", "compare", "report", "mlflow"} <= set(actual.provides_extra)
    assert not any(field.name == "pyspark" and field.marker is None for field in actual.requires_dist)


@pytest.mark.slow
def test_the_sdist_holds_what_tests_and_docs_need(dist):
    (path,) = dist.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        held = {member.name.partition("/")[2] for member in archive.getmembers()}
    wanted = {"pyproject.toml", "README.md", "CHANGELOG.md", "SECURITY.md", "LICENSE", "docs/conf.py", "scripts/test"}
    assert wanted | {"tests/conftest.py", "jobs/mean_ndcg.py", "ndcg_spark/py.typed"} <= held


def list_declared(wheel, *extras):
    """Return the installed distributions that the metadata of a wheel require, with some extras.

    Other extras could hide a missing requirement of the job.
    """
    with zipfile.ZipFile(wheel) as archive:
        metadata = Metadata.from_email(archive.read(f"ndcg_spark-{__version__}.dist-info/METADATA"))
    return collect_installed(extras, [str(requirement) for requirement in metadata.requires_dist])


def link_packages(distributions, folder):
    """Link the files and top folders of distributions into another folder, so that they can be imported there."""
    for distribution in distributions.values():
        for path in distribution.files or ():
            top = path.parts[0]
            if top not in ("..", "__pycache__") and not (folder / top).exists():
                (folder / top).symlink_to(distribution.locate_file(top))


def install(wheel, folder, *extras):
    """Make an environment with a wheel, the distributions that its metadata require, and nothing else.

    Every import has to be declared. Returns where its programs and its packages are.
    """
    if not Path(click.__file__).is_relative_to(sysconfig.get_path("purelib")):
        pytest.skip("this environment has packages of another one")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    installing = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install", "--no-deps", wheel]
    quiet = ["--no-index", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*map(str, installing), *quiet], check=True, capture_output=True)
    (packages,) = (folder / "lib").glob("python*/site-packages")
    link_packages(list_declared(wheel, *extras), packages)
    assert not {"pytest", "scipy", "sklearn"} & {path.name for path in packages.iterdir()}
    return folder / "bin", packages


@pytest.mark.slow
@pytest.mark.spark
def test_the_wheel_runs_in_an_environment_of_its_own(wheel, tmp_path):
    programs, packages = install(wheel, tmp_path / "venv", "spark")
    assert {"click", "pyspark"} <= {path.name for path in packages.iterdir()}
    (tmp_path / "rows.csv").write_text("query_id,item_id,score,relevance\nq,a,2,0\nq,b,1,1\n")
    environment = {
        name: os.environ[name] for name in ("PATH", "HOME", "LANG", "JAVA_HOME", "TMPDIR") if name in os.environ
    }

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(programs / "ndcg-spark"), *arguments]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)

    code = "import ndcg_spark; print(ndcg_spark.__file__)"
    where = subprocess.run([programs / "python", "-c", code], cwd=tmp_path, env=environment, capture_output=True)
    assert str(packages) in where.stdout.decode()
    message = run("--version")
    assert message.returncode == 0, message.stderr
    assert message.stdout.split()[-1] == __version__
    ended = run("mean-ndcg", "--input", "rows.csv", "--k", "2", "--engine", "spark", "--json", "-")
    assert ended.returncode == 0, ended.stderr
    (row,) = [row for row in json.loads(ended.stdout.splitlines()[-1])["metrics"] if row["metric"] == "ndcg"]
    assert row["value"] == pytest.approx(OF_THE_SECOND)


OF_THE_SECOND = 0.6309297535714575
"""NDCG@2 where the second item is the relevant one: 1 / log2(3)."""
OF_TABLES = """
import pyarrow as pa
import ndcg_spark
rows = [{"query_id": "q", "item_id": "ab"[at], "score": 2 - at, "relevance": at} for at in (0, 1)]
for table in (rows, pa.Table.from_pylist(rows)):
    found = ndcg_spark.evaluate(table, k=2)
    print(found.engine, found.means().column("value").to_pylist())
"""


@pytest.mark.slow
def test_the_wheel_runs_without_spark_and_java(wheel, tmp_path):
    programs, packages = install(wheel, tmp_path / "venv")
    assert not {"pyspark", "py4j"} & {path.name for path in packages.iterdir()}
    columns = {"query_id": ["q", "q"], "item_id": ["a", "b"], "score": [2.0, 1.0], "relevance": [0, 1]}
    parquet.write_table(pa.table(columns), tmp_path / "rows.parquet")

    def run(program: str, *arguments: str) -> str:
        environment = {"PATH": str(programs), "HOME": str(tmp_path), "LANG": "C.UTF-8"}  # no Java
        ended = subprocess.run(
            [programs / program, *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert ended.returncode == 0, ended.stderr
        assert "Traceback" not in ended.stderr
        return ended.stdout

    message = run(
        "ndcg-spark", "mean-ndcg", "--input", "rows.parquet", "--k", "2", "--output", "metrics/", "--json", "-"
    )
    (row,) = [row for row in json.loads(message.splitlines()[-1])["metrics"] if row["metric"] == "ndcg"]
    (path,) = (tmp_path / "metrics").rglob("*.parquet")
    (stored,) = [row for row in parquet.ParquetFile(path).read().to_pylist() if row["metric"] == "ndcg"]
    assert row["value"] == stored["value"] == pytest.approx(OF_THE_SECOND)
    lines = run("python", "-c", OF_TABLES).splitlines()
    assert lines == [f"local [{row['value']}]"] * 2
    assert "trec_eval" in run("ndcg-spark", "conventions")


def test_the_changelog_has_versions_in_order():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert headings[0] == "[Unreleased]"
    released = [re.fullmatch(r"\[(\d+\.\d+\.\d+)\] - \d{4}-\d\d-\d\d", heading) for heading in headings[1:]]
    assert all(released), headings
    versions = [Version(match[1]) for match in released if match]
    assert versions == sorted(set(versions), reverse=True)
    assert not versions or versions[0] <= Version(__version__)


def test_the_version_is_written_once():
    """The build reads it from `_version.py`; no other file has it."""
    others = [path for name in ("pyproject.toml", "docs/conf.py", "README.md") if (path := ROOT / name).exists()]
    assert [path.name for path in others if f'"{__version__}"' in path.read_text(encoding="utf-8")] == []
