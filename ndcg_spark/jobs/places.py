"""What a command reads and writes by its options, and the packages that it needs for that."""

from __future__ import annotations

import io
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from ndcg_spark.core.redaction import redacted
from ndcg_spark.errors import InvalidParameterError, MissingPackageError
from ndcg_spark.jobs.options import pairs_of
from ndcg_spark.sources.references import guess_format, without_ending

_NEEDED = ("numpy", "pyarrow", "pandas", "pyspark", "rich")


@contextmanager
def needed_packages() -> Iterator[None]:
    """Import in this block what needs Spark, after options are checked; a package that fails is refused by name."""
    try:
        with redirect_stderr(io.StringIO()):  # NumPy prints stacks about modules that were made for another one
            yield
    except Exception:
        for name in _NEEDED:
            refused = _refused_import(name)
            if refused is not None:
                raise refused from None
        raise


def _refused_import(name: str) -> MissingPackageError | None:
    """Return why a package cannot be imported; None if it can."""
    try:
        with redirect_stderr(io.StringIO()):
            import_module(name)
    except Exception as error:
        try:
            installed = f"{name} {version(name)}"
        except PackageNotFoundError:
            extra, note = ("[spark]", " (not on Databricks, which has its own)") if name == "pyspark" else ("", "")
            return MissingPackageError(f"{name} is not installed: pip install 'ndcg-spark{extra}'{note}.")
        why = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        numpy = f" with NumPy {version('numpy')}" if name != "numpy" else ""
        return MissingPackageError(
            f"{installed} cannot be imported{numpy} ({why.rstrip('.')}): pip install --upgrade {name}, or the "
            "packages that it was made for."
        )
    return None


_DATE = re.compile(r"(?:^|[-_.])?(?<!\d)\d{4}([-_]?)\d{2}\1\d{2}(?!\d)")
_OF_A_PART = re.compile(r"[^=]+=.*|\d*|part-\d.*|.*[*?\[{].*")
"""Files and folders of one night or part: their names differ every night, which names of data sets must not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A table to read; no `kind`: guess its format."""

    reference: str
    kind: str | None
    options: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A table to write: reference, format (None: guess), whether it may get columns (`--schema`)."""

    reference: str
    kind: str | None
    grow: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations:
    """The run log, the form of log lines, and all options of a job."""

    run_log: Target | None
    log_format: str
    options: dict[str, Any] = field(compare=False, repr=False)


def check_places(
    read: Sequence[tuple[str, str]], written: Sequence[tuple[str, Target | None]], json_path: str | None
) -> None:
    """Refuse to write two outputs to one place, or over an input, or JSON where it cannot go."""
    places: dict[str, str] = {}
    for flag, reference in read:
        places.setdefault(os.path.abspath(reference), flag)
    for flag, target in written:
        if target is None:
            continue
        place = os.path.abspath(target.reference)
        if place in places:
            raise InvalidParameterError(
                f"{places[place]} and {flag} are both {target.reference!r}; give each its own place."
            )
        places[place] = flag
    if json_path not in (None, "-"):
        check_file("--json", str(json_path))


def check_file(flag: str, path: str) -> None:
    parent = os.path.dirname(os.path.realpath(path))  # a link stays one, and its target is written
    if not os.path.isdir(parent) or os.path.isdir(path):
        raise InvalidParameterError(f"{flag} {path!r} is no file in a folder that is there.")
    if os.path.exists(path) and not os.path.isfile(path):
        raise InvalidParameterError(f"{flag} {path!r} is a device or a pipe; name a file.")
    try:
        with tempfile.NamedTemporaryFile(dir=parent, prefix=".ndcg-spark-"):
            pass
    except OSError as error:
        raise InvalidParameterError(f"{flag} {path!r} cannot be written: {error.strerror}.") from error


def source_of(options: dict[str, Any], name: str) -> Source:
    return Source(
        reference=options[name], kind=options[f"{name}_format"], options=pairs_of(options[f"{name}_option"])
    )


def operations_of(options: dict[str, Any]) -> Operations:
    """Read the options for operations; refuse a run log in the place of another table."""
    target = target_of(options, "run_log")
    if target is not None:
        others = [(name, options[name]) for name in (*tables_read(options), *tables_written(options))]
        check_places([(f"--{name.replace('_', '-')}", reference) for name, reference in others],
                     [("--run-log", target)], None)  # fmt: skip
    return Operations(run_log=target, log_format=options["log_format"], options=dict(options))


def tables_read(options: Mapping[str, Any]) -> list[str]:
    """Names of given options that name input tables: those of a `Reads`."""
    return [name for name in options if f"{name}_option" in options and options[name]]


def tables_written(options: Mapping[str, Any]) -> list[str]:
    """Names of given options that name output tables: those of a `Writes`."""
    made = [name for name in options if format_name(name) in options and f"{name}_option" not in options]
    return [name for name in made if name != "run_log" and options[name]]


def catalog_tables_written(options: Mapping[str, Any]) -> dict[str, str]:
    """Catalog tables that are written, with the run log, and the format of each."""
    with needed_packages():
        from ndcg_spark.tables.catalog import TABLE_KINDS

    written = [name for name in (*tables_written(options), "run_log") if options.get(name)]
    formats = {name: options.get(format_name(name)) for name in written}
    found = {options[name]: formats[name] or guess_format(options[name]) for name in written}
    return {name: kind for name, kind in found.items() if kind in TABLE_KINDS and "/" not in name}


def format_name(name: str) -> str:
    """Name the option for the format of an output: `output_format`, `rejects_format`, `per_query_format`."""
    return f"{name.removesuffix('_output')}_format"


def target_of(options: Mapping[str, Any], name: str) -> Target | None:
    if not options.get(name):
        return None
    return Target(reference=options[name], kind=options[format_name(name)], grow=options["schema"] == "grow")


def dataset_of(options: Mapping[str, Any], source: Source) -> str:
    """Name the data set of a job: `--dataset`, `query` for SQL, else the last part of the reference without dates.

    Parts such as `run_date=2026-01-31`, `2026/01/31`, `part-00000.parquet` or `*.csv` are passed over.
    """
    if options["dataset"]:
        return str(options["dataset"])
    if (source.kind or guess_format(source.reference)) == "sql":
        if tables_written(options):
            raise InvalidParameterError(
                "--dataset NAME is needed where rows of an SQL query are stored: without it, results of all queries "
                "would have one name, and replace each other."
            )
        return "query"
    reference = redacted(source.reference).rstrip("/")  # the name is stored
    names = [without_ending(part) or part for part in reversed(reference.split("/")) if part]
    lasting = (_DATE.sub("", name) for name in names if not _OF_A_PART.fullmatch(name))
    return next(filter(None, lasting), names[0] if names else source.reference)
