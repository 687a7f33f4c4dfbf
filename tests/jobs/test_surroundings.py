"""Machines on which Spark cannot start or run: one line that names the cause and the way out, and exit code 2."""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pyspark
import pytest
from support.disks import mount_small_disk
from support.main_job import RunResult, write_rows
from support.oracle import build_ranking
from support.processes import INCUBATOR, ROOT, list_installed, run_process
from support.spark_rankings import SHORT_LIVED

from ndcg_spark.errors import NdcgSparkError
from ndcg_spark.jobs import session as checks

pytestmark = [pytest.mark.classic("a local Spark in a process of its own, or what keeps it from starting")]
JOB = [sys.executable, ROOT / "jobs" / "mean_ndcg.py", "--engine", "spark"]
HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"


def program(path: Path, said: str) -> str:
    path.write_text(f"#!/bin/sh\n{said}\n")
    path.chmod(0o755)
    return str(path)


def run_job(folder: Path, changed: dict[str, str | None], *flags: str | Path, before: str = "") -> RunResult:
    """The job in a process of its own, with these variables of the environment, below a shell that says `before`."""
    kept = {name: value for name, value in os.environ.items() if name not in ("SPARK_HOME", "SPARK_LOCAL_DIRS")}
    kept |= {"PYTHONPATH": str(ROOT), "SPARK_SUBMIT_OPTS": SHORT_LIVED, "PYSPARK_PYTHON": sys.executable}
    environment = {name: value for name, value in {**kept, **changed}.items() if value is not None}
    source = write_rows(folder / "rows.parquet", build_ranking([3, 2, 3, 0, 1, 2]))
    return run_process(
        ["/bin/sh", "-c", f'{before} exec "$@"', "sh", *JOB, "--input", source, *flags], folder, environment
    )


def line_of(ended: RunResult) -> str:
    """The one line of a refusal."""
    assert (ended.code, ended.out) == (2, ""), ended.err
    (line,) = [line for line in ended.err.splitlines() if line != INCUBATOR]
    return line.removeprefix("mean_ndcg.py: ")


def no_program(folder: Path) -> dict[str, str | None]:
    """Marked as one, but made for no machine."""
    path = folder / "python"
    path.write_bytes(b"\x7fELF\x00\x00")
    path.chmod(0o755)
    return {"PYSPARK_PYTHON": str(path)}


def another_spark(folder: Path) -> dict[str, str | None]:
    (folder / "spark" / "bin").mkdir(parents=True)
    (folder / "spark" / "jars").mkdir()
    (folder / "spark" / "bin" / "spark-submit").touch()
    (folder / "spark" / "jars" / "spark-core_2.12-3.3.1.jar").touch()
    return {"SPARK_HOME": str(folder / "spark")}


def old_java(folder: Path) -> dict[str, str | None]:
    (folder / "bin").mkdir()
    program(folder / "bin" / "java", "exit 1")
    (folder / "release").write_text('IMPLEMENTOR="x"\nJAVA_VERSION="1.7.0_80"\n')
    return {"JAVA_HOME": str(folder)}


def no_java(folder: Path) -> dict[str, str | None]:
    (folder / "empty").mkdir()
    return {"JAVA_HOME": None, "PATH": str(folder / "empty")}


def package(folder: Path, name: str, code: str) -> dict[str, str | None]:
    (folder / "first" / name).mkdir(parents=True)
    (folder / "first" / name / "__init__.py").write_text(code)
    return {"PYTHONPATH": f"{folder / 'first'}{os.pathsep}{ROOT}"}


def old_arrow(folder: Path) -> dict[str, str | None]:
    """The installed one, with another version."""
    import pyarrow

    code = f"__path__.append({str(Path(pyarrow.__file__).parent)!r})\n"
    return package(folder, "pyarrow", code + f"exec(open({pyarrow.__file__!r}).read())\n__version__ = '3.0.0'\n")


def arrow_of_another_numpy(folder: Path) -> dict[str, str | None]:
    """Fails as pyarrow 14.0.2 does with NumPy 2.4, which also prints a stack by itself."""
    code = "import sys\nprint('A module that was compiled using NumPy 1.x ...\\nTraceback', file=sys.stderr)\n"
    return package(folder, "pyarrow", code + "raise ImportError('numpy.core.multiarray failed to import')\n")


SURROUNDINGS: dict[str, tuple[Callable[[Path], dict[str, str | None]], tuple[str, ...]]] = {
    "worker Python that does not exist": (
        lambda _: {"PYSPARK_PYTHON": "/nowhere/python"},
        ("PYSPARK_PYTHON is '/nowhere/python', which is not an executable",
         f"export PYSPARK_PYTHON={sys.executable}"),
    ),
    "worker Python of another minor version": (
        lambda folder: {"PYSPARK_PYTHON": program(folder / "python", "echo 3.9")},
        ("python', Python 3.9, and this program runs Python " + HERE, f"export PYSPARK_PYTHON={sys.executable}"),
    ),
    "worker Python that does not run": (
        lambda folder: {"PYSPARK_PYTHON": program(folder / "python", "echo no library >&2; exit 127")},
        ("which does not run (no library)", "unset PYSPARK_PYTHON"),
    ),
    "worker Python that is no program": (
        no_program,
        ("which does not run (", "Exec format error"),
    ),
    "SPARK_HOME of none": (
        lambda _: {"SPARK_HOME": "/nowhere"},
        ("SPARK_HOME is '/nowhere', which has no bin/spark-submit",
         f"unset it, to use the Spark of the installed pyspark {pyspark.__version__}"),
    ),
    "SPARK_HOME of another": (
        another_spark,
        ("a Spark 3.3.1, and the installed pyspark is " + pyspark.__version__, "unset SPARK_HOME"),
    ),
    "no Java": (no_java, ("Spark needs Java, and there is no java on PATH: install Java 17",)),
    "no Java in JAVA_HOME": (
        lambda _: {"JAVA_HOME": "/nowhere"}, ("there is no bin/java in JAVA_HOME='/nowhere'", "install Java 17")
    ),
    "an old Java": (old_java, ("or later, and", "bin/java is Java 7", "install Java 17")),
    "an old pyarrow": (
        old_arrow, ("must be installed; however, your version", "3.0.0", "pip install --upgrade pyarrow")
    ),
    "pyarrow of another NumPy": (
        arrow_of_another_numpy,
        ("cannot be imported with NumPy", "(numpy.core.multiarray failed to import)", "install --upgrade pyarrow"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("surroundings", "named"), SURROUNDINGS.values(), ids=SURROUNDINGS)
def test_a_line_says_what_spark_lacks(tmp_path, surroundings, named):
    line = line_of(run_job(tmp_path, surroundings(tmp_path)))
    assert [name for name in named if name not in line] == [], line


@pytest.mark.parametrize(
    ("memory", "message"),
    [
        (
            "much",
            "Spark could not start; Java's message above says why: a refused setting, too little memory, or",
        ),
        ("100m", "Spark could not start: "),
    ],
)
def test_memory_that_is_none_or_too_small_is_a_line(tmp_path, memory, message):
    """Java does not start with the first, and Spark not with the second, 450 MiB being the least."""
    ended = run_job(tmp_path, {}, "--conf", f"spark.driver.memory={memory}")
    assert (ended.code, ended.out, "Traceback" in ended.err) == (2, "", False), ended.err
    assert ended.err.splitlines()[-1].startswith(f"mean_ndcg.py: {message}")


def test_a_limit_of_open_files_is_a_line(tmp_path):
    line = line_of(run_job(tmp_path, {}, before="ulimit -n 64;"))
    assert line.startswith("a process may open 64 files (ulimit -n), and Spark needs at least ")
    assert line.endswith("raise the limit, for example to 4096.")


def run_without_pyspark(folder: Path, job: str, *flags: str) -> RunResult:
    """All other packages are there, and nothing else: -S leaves out the environment itself."""
    packages = folder / "packages"
    packages.mkdir()
    for path in list_installed():
        if not path.name.startswith("pyspark"):
            (packages / path.name).symlink_to(path)
    paths = os.pathsep.join(map(str, (packages, ROOT)))
    return run_process([sys.executable, "-S", ROOT / "jobs" / job, *flags], folder, {"PYTHONPATH": paths})


def test_without_pyspark_a_line_says_what_to_install(tmp_path):
    line = line_of(run_without_pyspark(tmp_path, "mean_ndcg.py", "--input", "x"))
    assert line == (
        "Spark is needed ('x' is a table of a catalog, not a path such as './x'), and pyspark is not installed: "
        "pip install 'ndcg-spark[spark]' (not on Databricks, which has its own)."
    )


NIGHT = """
run-log = "./log"

[[step]]
command = "mean-ndcg"
input = "./rankings"
output = "./metrics"

[[step]]
command = "mean-ndcg"
name = "second"
dataset = "second"
input = "./rankings/rows.parquet"
output = "./metrics"
"""


def write_night(folder: Path) -> None:
    """Write a night whose first step needs Spark, as its files are on two levels, and an old message."""
    (folder / "rankings" / "more").mkdir(parents=True)
    for path in ("rows.parquet", "more/rows.parquet"):
        write_rows(folder / "rankings" / path, build_ranking([3, 2, 3, 0, 1, 2]))
    (folder / "night.toml").write_text(NIGHT)
    (folder / "said.json").write_text('{"verdict": "good"}')


NIGHT_FLAGS = ("--config", "night.toml", "--run-date", "2026-01-31", "--message", "said.txt")


def test_without_pyspark_the_steps_of_a_night_that_need_it_are_refused(tmp_path):
    """The others run."""
    write_night(tmp_path)
    ended = run_without_pyspark(tmp_path, "nightly.py", *NIGHT_FLAGS)
    said = json.loads((tmp_path / "said.json").read_text())
    assert (ended.code, said["verdict"]) == (2, "bad"), ended.err
    assert "Traceback" not in ended.err
    (line,) = [line for line in said["lines"] if "pyspark is not installed" in line]
    assert line.startswith("mean-ndcg: refused: Spark is needed (data files are on two levels")
    assert "  second: succeeded after" in ended.out
    assert len(list((tmp_path / "log").rglob("*.parquet"))) == 3


def test_a_night_whose_spark_cannot_start_has_a_message(tmp_path):
    write_night(tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SPARK_HOME": str(tmp_path)}
    ended = run_process([sys.executable, ROOT / "jobs" / "nightly.py", *NIGHT_FLAGS], tmp_path, environment)
    said = json.loads((tmp_path / "said.json").read_text())
    assert (ended.code, said["verdict"], said["run_date"]) == (2, "bad", "2026-01-31"), ended.err
    assert said["lines"][1].startswith("refused: SPARK_HOME is ")


@pytest.mark.slow
def test_a_full_disk_of_spark_is_a_line(tmp_path):
    """Not that of an output: what Spark exchanges between tasks does not fit."""
    with mount_small_disk(tmp_path / "disk", 64) as disk:
        rows = [row for n in range(3000) for row in build_ranking([3, 2, n % 3], query=f"query {n}")]
        source = write_rows(tmp_path / "many.csv", rows)
        flags = ("--input", source, "--conf", f"spark.local.dir={disk.folder}", "--output", tmp_path / "metrics")
        line = line_of(run_job(tmp_path, {}, *flags))
        assert line == (
            f"Spark has no room for its temporary files (No space left on device): free space in {disk.folder}, or "
            "set spark.local.dir to a folder on another disk."
        )


def test_a_folder_for_temporary_files_that_cannot_be_is_a_line(tmp_path):
    """Java would end in the middle of the start; of several folders one is enough."""
    place = tmp_path / "rows.parquet"
    line = line_of(run_job(tmp_path, {}, "--conf", f"spark.local.dir={place}/x,{place}"))
    assert line == (
        f"spark.local.dir is '{place}/x,{place}', where Spark cannot have temporary files (File exists): name "
        "another folder."
    )
    line = line_of(run_job(tmp_path, {"SPARK_LOCAL_DIRS": ""}, "--conf", f"spark.local.dir={tmp_path}"))
    assert line.startswith("SPARK_LOCAL_DIRS is '', where Spark cannot have temporary files (the list is empty)")


def test_no_folder_for_temporary_files_at_all_is_a_line(monkeypatch, tmp_path):
    """TMPDIR and the folders of the system: none can be written."""
    nowhere = str(tmp_path / "nowhere")
    # stands in for: a machine whose disks are all full, because these tests have their own files on them
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: [nowhere])
    with pytest.raises(NdcgSparkError, match=r"No usable temporary .*set TMPDIR to a folder on another"):
        checks.check_environment({})


def test_what_does_not_say_its_version_is_taken_as_it_is(monkeypatch, tmp_path):
    """A Spark whose jars have other names, and a Java whose `release` has no version; both may be fitting."""
    monkeypatch.setenv("SPARK_HOME", another_spark(tmp_path)["SPARK_HOME"])
    (tmp_path / "spark" / "jars" / "spark-core_2.12-3.3.1.jar").rename(tmp_path / "spark" / "jars" / "core.jar")
    assert checks._find_spark_home() == tmp_path / "spark"
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    monkeypatch.setenv("JAVA_HOME", old_java(tmp_path)["JAVA_HOME"])
    with pytest.raises(NdcgSparkError, match="is Java 7"):
        checks._check_java(tmp_path)
    (tmp_path / "release").write_text('IMPLEMENTOR="x"\n')
    checks._check_java(tmp_path)


def test_a_machine_without_a_limit_of_open_files_is_no_small_one(monkeypatch):
    """Python tells such a limit as -1."""
    # stands in for: a machine without a limit, because Linux gives every process a number
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, resource.RLIM_INFINITY))
    checks._check_open_file_limit(Path(pyspark.__file__).parent)


def test_what_java_refuses_is_a_line(tmp_path):
    """Java itself writes to standard output what it was."""
    ended = run_job(tmp_path, {}, "--conf", "spark.driver.memory=1k")
    assert "maximum heap" in ended.out
    assert ended.code == 2
    (line,) = [line for line in ended.err.splitlines() if line != INCUBATOR]
    assert line.startswith("mean_ndcg.py: Spark could not start; Java's message above says why: ")


@pytest.mark.parametrize(("flags", "code"), [(("--print-config",), 0), (("--k", "x"), 2)])
def test_streams_that_are_closed_are_no_crash(tmp_path, flags, code):
    """What a job that ends well prints, and a refusal; test_printing.py has what is told of it."""
    ended = run_job(tmp_path, {}, *flags, before="exec >&- 2>&-;")
    assert (ended.code, ended.out, ended.err) == (code, "", "")
