"""The package as shipped to workers. test_connect.py and test_job_process.py show that workers can use it."""

from __future__ import annotations

import io
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

import ndcg_spark
from ndcg_spark import add_package_to_workers
from ndcg_spark.core.package import _read_files, package_zip
from ndcg_spark.errors import NdcgSparkError


def build_session(sent):
    """Build a classic session of a cluster."""
    # stands in for: one, because a process has one session, which is local; scripts/check cluster ships to a real one
    conf = SimpleNamespace(get=lambda *_: "spark://127.0.0.1:7077")
    return SimpleNamespace(conf=conf, addArtifacts=sent)


def test_the_zip_has_every_file_and_the_same_bytes_each_time():
    content = package_zip()
    assert package_zip() == content
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        names = archive.namelist()
        assert archive.testzip() is None
    root = Path(ndcg_spark.__file__).parent
    files = {path.relative_to(root.parent).as_posix() for path in root.rglob("*") if path.is_file()}
    assert set(names) == {name for name in files if "__pycache__" not in name}
    assert names == sorted(names)


def test_caches_beside_the_package_are_not_shipped(tmp_path):
    for name in ("a.py", ".DS_Store", "b/c.py", "b/.c.py.swp", "b/__pycache__/c.pyc"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    assert dict(_read_files(tmp_path, "ours")) == {"ours/a.py": b"a.py", "ours/b/c.py": b"b/c.py"}


def test_zipped_package_is_shipped(tmp_path):
    """The driver itself may have got it by `spark-submit --py-files`."""
    (tmp_path / "package.zip").write_bytes(package_zip())
    code = "from ndcg_spark.core import package as s; print(s.__file__, len(s.package_zip()))"
    environment = {"PYTHONPATH": str(tmp_path / "package.zip")}
    command = [sys.executable, "-c", code]
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ended.stdout.split() == [
        f"{tmp_path}/package.zip/ndcg_spark/core/package.py",
        str(len(package_zip())),
    ], ended.stderr


@pytest.mark.classic("sessions in local mode")
def test_nothing_is_shipped_in_local_mode(spark):
    assert add_package_to_workers(spark) is False


def test_name_of_the_zip_depends_on_its_content():
    sent = []

    def add(path, *, pyfile):
        sent.append((Path(path).name, Path(path).read_bytes(), pyfile))

    assert add_package_to_workers(build_session(add)) is True
    assert add_package_to_workers(build_session(add)) is True
    ((name, content, pyfile), again) = sent
    assert again == sent[0]
    assert (content, pyfile) == (package_zip(), True)
    assert name.startswith("ndcg_spark-")
    assert name.endswith(".zip")


def test_session_without_artifacts_is_refused():
    """In Spark 3.5 classic sessions have the method, but it raises."""

    def refuse(*_, **__):
        raise RuntimeError("only supported with Spark Connect")

    with pytest.raises(
        NdcgSparkError, match=r"\(only supported with Spark Connect\).*spark-submit --py-files"
    ) as refused:
        add_package_to_workers(build_session(refuse))
    assert "\n" not in str(refused.value)
