"""Write the tables of a night together: all of them, or none."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, timezone
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ndcg_spark._version import __version__
from ndcg_spark.core.adapters import accepts_tables
from ndcg_spark.core.failures import readable_errors
from ndcg_spark.core.flag import convert_value
from ndcg_spark.errors import InputRefusedError, InvalidParameterError, check_choice, option
from ndcg_spark.tables.checks import check_output, find_used_places
from ndcg_spark.tables.kinds import find_kind
from ndcg_spark.tables.slices import Slices
from ndcg_spark.tables.writing import Rows, write_together

_log = logging.getLogger(__name__)
METRIC_TABLE, RUN = "metric table", "run"
_JOB_TABLES = frozenset((
    "table of compared periods", "table of periods", "table of flags", "comparison table", "run log",
))  # fmt: skip
_RUN_STAMPS = frozenset({"package_version", "computed_at"})
_PARTITION_FOLDERS = re.compile(r"(/[^/=]+=[^/]*)+$")


@accepts_tables
def write_night(
    tables: Mapping[str, DataFrame],
    *,
    night: date,
    dataset: str,
    runs: str | Sequence[str] | None = None,
    formats: Mapping[str, str] | None = None,
    stamps: Mapping[str, str | None] | None = None,
) -> None:
    """Write the tables of a night, replacing their rows of that night and data set. Runs actions.

    All tables are written, or none; readers see either the old rows or the new ones. Rows of other nights, data sets
    and runs stay. Jobs write their tables in the same way, and read the tables that are written here.

    Parameters
    ----------
    tables : mapping of str to DataFrame
        The rows by destination: a folder of Parquet files (a path has a slash), or a table of the catalog. Both are
        created if missing. Rows without a column `run` belong to the unnamed run. The rows must not have columns
        `run_date`, `dataset` or `slice`, which are added to every stored row. For metrics per query, use
        `Evaluation.per_query_table`. Comparisons, periods and flags are written by jobs, in other slices.
    night : date
        The date of the rows, stored as `run_date`.
    dataset : str
        The name of the data set of the rows.
    runs : str, sequence of str or None
        The runs whose rows are written and replaced; rows of other runs are ignored. A metric table must have rows of
        each run. None: all runs in any of the tables; a run that is missing in a table loses its old rows there.
    formats : mapping of str to str, or None
        Formats of some of the tables: `parquet`, `table`, `delta` or `iceberg`. By default, a folder is Parquet, an
        existing catalog table keeps its format, and the catalog chooses the format of a new table.
    stamps : mapping of str to str, or None
        Columns to add to a metric table, such as `Evaluation.provenance`: later nights are compared with nights of
        the same `config_hash`. `package_version` and `computed_at` are always added.

    Raises
    ------
    InvalidParameterError
        If `night` is not a date, or `tables` is empty.
    OutputRefusedError
        If a table is not a nightly table, or if the rows are read from it, as far as Spark reports its sources:
        sources of persisted rows and files that Python workers read are unknown. No row was written.
    InputRefusedError
        If rows are bad, or a metric table has no query that counts. No row was written.
    PartlyWrittenError
        If a table was written and cannot be undone, as on an object store, and another one failed.

    Notes
    -----
    Spark cost: an action for each table, another one to list its runs if `runs` is None, and another one to count the
    rows of a catalog table. Each action computes the rows again: persist rows that are slow to compute, or that
    differ between computations, such as a sample.

    Examples
    --------
    >>> result = evaluate(rankings, k=10, run="ranker")  # doctest: +SKIP
    >>> write_night(
    ...     {"prod.ranking_metrics": result.summary, "prod.ranking_queries": result.per_query_table},
    ...     night=date(2026, 1, 31), dataset="shop", stamps=result.provenance,
    ... )  # doctest: +SKIP
    """
    runs = (runs,) if isinstance(runs, str) and runs else runs
    _check_arguments(tables, night, dataset, runs, formats or {})
    with readable_errors():
        frames = {reference: _complete_columns(reference, frame, stamps or {}) for reference, frame in tables.items()}
        kinds = {reference: (formats or {}).get(reference) for reference in tables}
        _check_places(frames, kinds)
        runs_by_table = {
            reference: _list_runs(reference, frame) for reference, frame in frames.items() if runs is None
        }
        run_names = sorted(set().union(*runs_by_table.values())) if runs is None else list(runs)
        if not run_names:
            raise InputRefusedError("there are no rows to write.")
        rows = []
        for reference, frame in frames.items():
            if runs is None:
                empty = set(run_names) - runs_by_table[reference]
            else:
                empty = set() if _has_means(frame) else set(run_names)
                frame = frame.where(F.col(RUN).isin(*run_names))
            slices = Slices.for_night(night, dataset, run_names, may_be_empty=empty)
            rows.append(Rows(frame=frame, slices=slices, reference=reference, kind=kinds[reference]))
        write_together(rows)


def _check_arguments(tables: Any, night: Any, dataset: Any, runs: Any, formats: Mapping[str, str]) -> None:
    if not isinstance(tables, Mapping) or not tables:
        raise InvalidParameterError(
            "tables must map references, such as 'prod.metrics', to DataFrames, and must not be empty."
        )
    for reference, frame in tables.items():
        if not isinstance(reference, str) or not hasattr(frame, "sparkSession"):
            raise InvalidParameterError(
                f"tables must map references, such as 'prod.metrics', to DataFrames; got {reference!r}: "
                f"{type(frame).__name__}."
            )
    convert_value("night", date, night)
    if not isinstance(dataset, str) or not dataset:
        raise InvalidParameterError(f"{option('dataset')} must be a name; got {dataset!r}.")
    if runs is not None and (not runs or not all(isinstance(run, str) for run in runs)):
        raise InvalidParameterError(f"{option('runs')} must be names of runs; got {runs!r}.")
    for reference in formats:
        check_choice("table", reference, tuple(tables))


def _has_means(frame: DataFrame) -> bool:
    kind = find_kind(frame.columns)
    return kind is not None and kind.name == METRIC_TABLE


def _complete_columns(reference: str, frame: DataFrame, stamps: Mapping[str, str | None]) -> DataFrame:
    """Add the column `run` if missing, and the provenance to a metric table."""
    kind = find_kind(frame.columns)
    if kind is not None and kind.name in _JOB_TABLES:
        raise InvalidParameterError(
            f"the rows for {reference!r} are those of a {kind.name}, which is not stored by night and run alone; "
            "write it with its job."
        )
    run_columns = [column for column in frame.columns if column.lower() == RUN]
    if not run_columns:
        frame = frame.withColumn(RUN, F.lit(""))
    elif run_columns != [RUN]:
        frame = frame.withColumnRenamed(run_columns[0], RUN)
    now = F.lit(datetime.now(timezone.utc).replace(microsecond=0)).cast("timestamp").alias("computed_at")
    computed = [] if "computed_at" in frame.columns else [now]
    if not _has_means(frame):
        return frame.select("*", *computed)
    reserved = sorted({*stamps} & {*frame.columns, *_RUN_STAMPS})
    if reserved:
        raise InvalidParameterError(
            f"the rows for {reference!r} have a column {reserved[0]!r} of their own; drop it."
        )
    texts = {**dict.fromkeys(("convention", "config_hash", "input")), **stamps, "package_version": __version__}
    added = [
        F.lit(text).cast("string").alias(column) for column, text in texts.items() if column not in frame.columns
    ]
    rows = frame.where(F.col(RUN).isNotNull())  # rejected rows without a run
    return rows.select("*", *added, *computed)


def _list_runs(reference: str, frame: DataFrame) -> set[str]:
    """Run an action: list the runs of a table. Refuse a metric table in which no query counts."""
    counts = [F.max("n_queries").alias("n")] if _has_means(frame) else []
    rows = frame.groupBy(RUN).agg(F.lit(0).alias("there"), *counts).collect()
    if rows and counts and not any(row["n"] for row in rows):
        raise InputRefusedError(f"no query counts in the means for {reference!r}.")
    if any(row[RUN] is None for row in rows):
        raise InputRefusedError(
            f"some rows for {reference!r} have null in column 'run'; fill it, or set the runs to write "
            f"({option('runs')})."
        )
    return {row[RUN] for row in rows}


def _check_places(frames: Mapping[str, DataFrame], kinds: Mapping[str, str | None]) -> None:
    """Raise if a table cannot be written, or overlaps another table or the files of the rows."""
    used_places = []
    for reference, frame in frames.items():
        source = find_used_places(frame.sparkSession, f"the source of the rows for {reference!r}", "", "sql", frame)
        folders = {_PARTITION_FOLDERS.sub("", file.rpartition("/")[0]) for file in source.files} - {""}
        used_places.append(replace(source, folders=source.folders | folders))
    for reference, frame in frames.items():
        spark, kind = frame.sparkSession, kinds[reference]
        places = check_output(
            spark, reference, kind, frame.schema, name="the table", used_places=used_places, report=_log.warning
        )
        used_places.append(places)
