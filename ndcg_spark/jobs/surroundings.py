"""What a local Spark needs of the machine, checked before it starts: Spark would fail with pages of stacks."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ndcg_spark.errors import MissingPackageError, NdcgSparkError

_FILES_BESIDE_JARS = 100
"""Files that Java has open beside its jars when a small job runs; with 64 fewer it ends for want of them."""
_ASK_VERSION = "import sys; print('%d.%d' % sys.version_info[:2])"
_PATIENCE = 60
"""Seconds in which a Python must say its version."""


def check_arrow() -> None:
    """Refuse a pyarrow that this Spark does not take."""
    from pyspark.sql.pandas.utils import require_minimum_pyarrow_version

    try:
        require_minimum_pyarrow_version()
    except ImportError as error:
        why = re.sub(r"^\[\w+\] ", "", str(error)).strip().rstrip(".")
        raise MissingPackageError(f"{why}: pip install --upgrade pyarrow, for Python workers, too.") from None


def check_surroundings(settings: Mapping[str, str]) -> None:
    """Refuse to start a local session where Spark, Java, the Python of workers, or files are not to be had."""
    home = _checked_home()
    _check_temporary_folder()
    if home is not None:
        _check_limit_of_files(home)
        _check_java(home)
    _check_local_folders(settings)
    if settings.get("spark.master", "local").startswith("local"):  # else it is a path on other machines
        _check_worker_python(os.environ["PYSPARK_PYTHON"])


def _checked_home() -> Path | None:
    """The folder of the Spark that will start; None if pyspark is to look for it."""
    import pyspark

    named = os.environ.get("SPARK_HOME")
    home = Path(named or Path(pyspark.__file__).parent)
    if not (home / "bin" / "spark-submit").exists():
        if not named:
            return None
        raise NdcgSparkError(
            f"SPARK_HOME is {named!r}, where there is no Spark (no bin/spark-submit): unset it, to use the Spark of "
            f"the installed pyspark {pyspark.__version__}."
        )
    found = re.search(r"-([\d.]+)[^-]*\.jar$", next((one.name for one in home.glob("jars/spark-core_*.jar")), ""))
    if found and _minor(found[1]) != _minor(pyspark.__version__):
        raise NdcgSparkError(
            f"SPARK_HOME is {str(home)!r}, a Spark {found[1].rstrip('.')}, and the installed pyspark is "
            f"{pyspark.__version__}: unset SPARK_HOME, or pip install pyspark=={found[1].rstrip('.')}."
        )
    return home


def _minor(version: str) -> list[str]:
    return version.split(".")[:2]


def _check_temporary_folder() -> None:
    try:
        tempfile.gettempdir()
    except OSError as error:  # it tries each of them by a small file
        raise NdcgSparkError(
            f"{error.strerror or error}: make room in one of them, or set TMPDIR to a folder on another disk."
        ) from None


def _check_local_folders(settings: Mapping[str, str]) -> None:
    """Refuse folders for temporary files of which none can be had; the Java of Spark would end without a word."""
    name = "SPARK_LOCAL_DIRS" if "SPARK_LOCAL_DIRS" in os.environ else "spark.local.dir"
    named = os.environ.get(name, settings.get(name))
    if named is None:
        return
    why = "it names none"
    for folder in filter(None, named.split(",")):
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            why = error.strerror or str(error)
            continue
        if os.access(folder, os.W_OK | os.X_OK):
            return
        why = "Permission denied"
    raise NdcgSparkError(
        f"{name} is {named!r}, where Spark cannot have temporary files ({why}): name another folder."
    )


def _check_limit_of_files(home: Path) -> None:
    try:
        import resource
    except ImportError:  # not on Windows
        return
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)  # the hard one: Java raises the soft one to it
    needed = len(list(home.glob("jars/*.jar"))) + _FILES_BESIDE_JARS
    if limit != resource.RLIM_INFINITY and limit < needed:
        raise NdcgSparkError(
            f"a process may have {limit} files open here (ulimit -n), and Spark needs at least {needed}: raise the "
            "limit, say to 4096."
        )


def _check_java(home: Path) -> None:
    import pyspark

    if (Path(os.environ.get("SPARK_CONF_DIR") or home / "conf") / "spark-env.sh").exists():
        return  # it may set JAVA_HOME
    oldest = 8 if pyspark.__version__.startswith("3.") else 17
    advice = f"install Java {max(oldest, 17)}, or set JAVA_HOME to one"
    of_home = os.environ.get("JAVA_HOME")
    java = shutil.which(Path(of_home, "bin", "java") if of_home else "java")
    if java is None:
        raise NdcgSparkError(
            f"Spark needs Java, and there is no bin/java in JAVA_HOME={of_home!r}: {advice}."
            if of_home
            else f"Spark needs Java, and there is no java on PATH: {advice}."
        )
    try:
        release = (Path(java).resolve().parents[1] / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:  # some have no such file
        return
    found = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', release, re.MULTILINE)
    if found and int(found[1]) < oldest:
        raise NdcgSparkError(f"Spark needs Java {oldest} or later, and {java} is Java {found[1]}: {advice}.")


def _check_worker_python(python: str) -> None:
    if python == sys.executable:
        return
    cure = f"unset PYSPARK_PYTHON, or export PYSPARK_PYTHON={sys.executable}"
    if shutil.which(python) is None:
        raise NdcgSparkError(f"PYSPARK_PYTHON is {python!r}, which is no program: {cure}.")
    try:
        said = subprocess.run(
            [python, "-c", _ASK_VERSION], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_PATIENCE
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NdcgSparkError(f"PYSPARK_PYTHON is {python!r}, which does not run ({error}): {cure}.") from None
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if said.returncode:
        last = (said.stderr.strip() or f"exit code {said.returncode}").splitlines()[-1]
        raise NdcgSparkError(f"PYSPARK_PYTHON is {python!r}, which does not run ({last}): {cure}.")
    if said.stdout.strip() != here:
        raise NdcgSparkError(
            f"PYSPARK_PYTHON is {python!r}, Python {said.stdout.strip()}, and this program runs Python {here} "
            f"({sys.executable}); Spark needs the same for both: {cure}."
        )
