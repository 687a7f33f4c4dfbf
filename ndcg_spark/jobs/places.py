"""Inputs and outputs of a command as its options name them, and the packages that they need."""

from __future__ import annotations

import io
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version

from ndcg_spark.core.redaction import redact
from ndcg_spark.errors import InvalidParameterError, MissingPackageError
from ndcg_spark.jobs.options import format_flag
from ndcg_spark.sources.references import guess_format, strip_endings

_NEEDED_PACKAGES = ("numpy", "pyarrow", "pyspark", "pandas", "rich")


@contextmanager
def name_missing_packages(why_spark: str = "") -> Iterator[None]:
    """Replace a failed import in this block by a refusal that names the missing package.

    `why_spark` is the reason why Spark is needed, a clause for the refusal that names PySpark.
    """
    try:
        with redirect_stderr(io.StringIO()):  # NumPy prints stack traces about modules built for another NumPy
            yield
    except Exception:
        for name in _NEEDED_PACKAGES:
            refused = _check_import(name, why_spark)
            if refused is not None:
                raise refused from None
        raise


def _check_import(name: str, why_spark: str) -> MissingPackageError | None:
    """Return an error if a package cannot be imported; None if it can."""
    try:
        with redirect_stderr(io.StringIO()):
            import_module(name)
    except Exception as error:
        needs = f"Spark is needed ({why_spark}), and " if why_spark and name == "pyspark" else ""
        try:
            installed = f"{name} {version(name)}"
        except PackageNotFoundError:
            extra, note = ("[spark]", " (not on Databricks, which has its own)") if name == "pyspark" else ("", "")
            return MissingPackageError(f"{needs}{name} is not installed: pip install 'ndcg-spark{extra}'{note}.")
        why = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        numpy = f" with NumPy {version('numpy')}" if name != "numpy" else ""
        return MissingPackageError(
            f"{needs}{installed} cannot be imported{numpy} ({why.rstrip('.')}): pip install --upgrade {name}, or the "
            "packages that it was built for."
        )
    return None


_DATE = re.compile(r"(?:^|[-_.])?(?<!\d)\d{4}([-_]?)\d{2}\1\d{2}(?!\d)")
_PART_NAME = re.compile(r"[^=]+=.*|\d*|part-\d.*|.*[*?\[{].*")
"""Names of files and folders that belong to one night or part; a data set must have the same name every night."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A table by its reference; the format is guessed if `kind` is None."""

    reference: str
    kind: str | None

    @property
    def format(self) -> str:
        return self.kind or guess_format(self.reference)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source(Place):
    """A table to read, and options of the reader."""

    options: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target(Place):
    """A table to write, and whether it may get columns (`--schema`)."""

    grow: bool = True


def format_place(name: str, reference: str) -> str:
    return f"{format_flag(name)} {reference!r}"


def check_places(read: Mapping[str, Source], written: Mapping[str, Target]) -> None:
    """Refuse two outputs in one place, and outputs that overwrite an input."""
    places: dict[str, str] = {}
    for name, source in read.items():
        places.setdefault(os.path.abspath(source.reference), format_flag(name))
    for name, target in written.items():
        place, flag = os.path.abspath(target.reference), format_flag(name)
        if place in places:
            raise InvalidParameterError(
                f"{places[place]} and {flag} are both {target.reference!r}; give each its own place."
            )
        places[place] = flag


def check_file(flag: str, path: str) -> None:
    parent = os.path.dirname(os.path.realpath(path))  # the target of a link is written, not the link
    if os.path.isdir(path):
        raise InvalidParameterError(f"{flag} {path!r} is a folder; name a file.")
    if not os.path.isdir(parent):
        raise InvalidParameterError(f"{flag} {path!r}: its folder does not exist.")
    if os.path.exists(path) and not os.path.isfile(path):
        raise InvalidParameterError(f"{flag} {path!r} is a device or a pipe; name a file.")
    try:
        with tempfile.NamedTemporaryFile(dir=parent, prefix=".ndcg-spark-"):
            pass
    except OSError as error:
        raise InvalidParameterError(f"{flag} {path!r} cannot be written: {error.strerror}.") from error


def choose_dataset(name: str | None, source: Source, *, is_stored: bool) -> str:
    """Return the name of a job's data set: `--dataset`, `query` for SQL, or the last part of the reference.

    Dates are removed, and parts such as `run_date=2026-01-31`, `part-00000.parquet` or `*.csv` are skipped.
    """
    if name:
        return name
    if source.format == "sql":
        if is_stored:
            raise InvalidParameterError(
                "--dataset NAME is needed to store rows of an SQL query: without it, results of all queries would "
                "have one name, and replace each other."
            )
        return "query"
    reference = redact(source.reference).rstrip("/")  # the name is stored
    names = [strip_endings(part) or part for part in reversed(reference.split("/")) if part]
    lasting = (_DATE.sub("", name) for name in names if not _PART_NAME.fullmatch(name))
    return next(filter(None, lasting), names[0] if names else source.reference)
