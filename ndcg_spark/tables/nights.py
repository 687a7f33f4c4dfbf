"""Writing the tables of a night together: all of them, or none."""

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
from ndcg_spark.core.failures import readable_errors
from ndcg_spark.core.flag import of_kind
from ndcg_spark.core.given import takes_tables
from ndcg_spark.errors import InputRefusedError, InvalidParameterError, one_of, option
from ndcg_spark.tables.checks import check_output, reading_of
from ndcg_spark.tables.kinds import kind_of
from ndcg_spark.tables.slices import Slices
from ndcg_spark.tables.writing import Rows, write_together

_log = logging.getLogger(__name__)
METRIC_TABLE, RUN = "metric table", "run"
_STORED_OTHERWISE = frozenset((
    "table of compared periods", "table of periods", "table of flags", "comparison table", "run log",
))  # fmt: skip
_OF_THE_MOMENT = frozenset({"package_version", "computed_at"})
_PARTITIONS = re.compile(r"(/[^/=]+=[^/]*)+$")


@takes_tables
def write_night(
    tables: Mapping[str, DataFrame],
    *,
    night: date,
    dataset: str,
    runs: str | Sequence[str] | None = None,
    formats: Mapping[str, str] | None = None,
    stamps: Mapping[str, str | None] | None = None,
) -> None:
    """Write the tables of a night, in place of what they had of that night and data set. Runs actions.

    All tables are written, or none; readers see old rows or new ones. Rows of other nights, data sets and runs stay.
    Jobs write their tables in the same way, and read what is written here.

    Parameters
    ----------
    tables : mapping of str to DataFrame
        Rows by where they go: a folder of Parquet (a path has a slash), or a table of the catalog. Either is made if
        it is not there. Rows without a column `run` are of the run without a name. They may not have columns
        `run_date`, `dataset` or `slice`, which every stored row gets. Of metrics per query, take
        `Evaluation.per_query_table`. Comparisons, periods and flags are written by jobs, which store them otherwise.
    night : date
        The date that rows are stored under, as `run_date`.
    dataset : str
        The name of the data set that they are stored under.
    runs : str, sequence of str or None
        The runs whose rows are written, and replaced; rows of others are left out. A metric table must have rows of
        each. None: the runs that any of the tables has; one that another table lacks loses its rows there.
    formats : mapping of str to str, or None
        Formats of some of the tables: `parquet`, `table`, `delta` or `iceberg`. Else a folder is Parquet, and a table
        of the catalog is what it is, or what the catalog makes.
    stamps : mapping of str to str, or None
        Columns to add to a metric table, such as `Evaluation.provenance`: later nights are compared with those of the
        same `config_hash`. `package_version` and `computed_at` are added, too.

    Raises
    ------
    InvalidParameterError
        For a night that is no date, or without tables.
    OutputRefusedError
        For a table that is not one of nights, or that the rows are read from, as far as Spark tells: not of rows that
        were persisted, or that Python workers read. No row was written.
    InputRefusedError
        For rows that are bad, or a metric table over no query. No row was written.
    PartlyWrittenError
        Where a table was written and cannot be taken back, as on an object store, and another one failed.

    Notes
    -----
    Spark cost: an action for each table, another one to list its runs unless `runs` are given, and one more that
    counts the rows of a table of the catalog. Rows are computed anew by each: persist what is slow, or what comes out
    differently the next time, as a sample.

    Examples
    --------
    >>> result = evaluate(rankings, k=10, run="ranker")  # doctest: +SKIP
    >>> write_night(
    ...     {"prod.ranking_metrics": result.summary, "prod.ranking_queries": result.per_query_table},
    ...     night=date(2026, 1, 31), dataset="shop", stamps=result.provenance,
    ... )  # doctest: +SKIP
    """
    runs = (runs,) if isinstance(runs, str) and runs else runs
    _check(tables, night, dataset, runs, formats or {})
    with readable_errors():
        frames = {reference: _complete(reference, frame, stamps or {}) for reference, frame in tables.items()}
        kinds = {reference: (formats or {}).get(reference) for reference in tables}
        _check_places(frames, kinds)
        held = {reference: _list_runs(reference, frame) for reference, frame in frames.items() if runs is None}
        named = sorted(set().union(*held.values())) if runs is None else list(runs)
        if not named:
            raise InputRefusedError("there are no rows, and so nothing to write.")
        rows = []
        for reference, frame in frames.items():
            if runs is None:
                empty = set(named) - held[reference]
            else:
                empty = set() if _is_of_means(frame) else set(named)
                frame = frame.where(F.col(RUN).isin(*named))
            slices = Slices.for_night(night, dataset, named, empty=empty)
            rows.append(Rows(frame=frame, slices=slices, reference=reference, kind=kinds[reference]))
        write_together(rows)


def _check(tables: Any, night: Any, dataset: Any, runs: Any, formats: Mapping[str, str]) -> None:
    if not isinstance(tables, Mapping) or not tables:
        raise InvalidParameterError("tables must be DataFrames by where they go, and there must be one.")
    for reference, frame in tables.items():
        if not isinstance(reference, str) or not hasattr(frame, "sparkSession"):
            raise InvalidParameterError(
                f"tables must be DataFrames by where they go, such as 'prod.metrics'; got {reference!r}: "
                f"{type(frame).__name__}."
            )
    of_kind("night", date, night)
    if not isinstance(dataset, str) or not dataset:
        raise InvalidParameterError(f"{option('dataset')} must be a name; got {dataset!r}.")
    if runs is not None and (not runs or not all(isinstance(run, str) for run in runs)):
        raise InvalidParameterError(f"{option('runs')} must be names of runs; got {runs!r}.")
    for reference in formats:
        one_of("table", reference, tuple(tables))


def _is_of_means(frame: DataFrame) -> bool:
    kind = kind_of(frame.columns)
    return kind is not None and kind.name == METRIC_TABLE


def _complete(reference: str, frame: DataFrame, stamps: Mapping[str, str | None]) -> DataFrame:
    """Add a run, and to means their provenance."""
    kind = kind_of(frame.columns)
    if kind is not None and kind.name in _STORED_OTHERWISE:
        raise InvalidParameterError(
            f"the rows for {reference!r} are those of a {kind.name}, which jobs store in other slices than those of "
            "a night and a run; write it by its job."
        )
    named = [name for name in frame.columns if name.lower() == RUN]
    if not named:
        frame = frame.withColumn(RUN, F.lit(""))
    elif named != [RUN]:
        frame = frame.withColumnRenamed(named[0], RUN)
    now = F.lit(datetime.now(timezone.utc).replace(microsecond=0)).cast("timestamp").alias("computed_at")
    computed = [] if "computed_at" in frame.columns else [now]
    if not _is_of_means(frame):
        return frame.select("*", *computed)
    taken = sorted({*stamps} & {*frame.columns, *_OF_THE_MOMENT})
    if taken:
        raise InvalidParameterError(f"the rows for {reference!r} have a column {taken[0]!r} of their own; drop it.")
    texts = {**dict.fromkeys(("convention", "config_hash", "input")), **stamps, "package_version": __version__}
    added = [F.lit(text).cast("string").alias(name) for name, text in texts.items() if name not in frame.columns]
    rows = frame.where(F.col(RUN).isNotNull())  # rejected rows without a run
    return rows.select("*", *added, *computed)


def _list_runs(reference: str, frame: DataFrame) -> set[str]:
    """Run an action: list the runs of a table. Refused is a metric table in which no query counts."""
    numbers = [F.max("n_queries").alias("n")] if _is_of_means(frame) else []
    rows = frame.groupBy(RUN).agg(F.lit(0).alias("there"), *numbers).collect()
    if rows and numbers and not any(row["n"] for row in rows):
        raise InputRefusedError(f"no query counts in the means for {reference!r}.")
    if any(row[RUN] is None for row in rows):
        raise InputRefusedError(
            f"some rows for {reference!r} have null in column 'run', which says whose they are; fill it, or name the "
            f"runs whose rows are written ({option('runs')})."
        )
    return {row[RUN] for row in rows}


def _check_places(frames: Mapping[str, DataFrame], kinds: Mapping[str, str | None]) -> None:
    """Raise for a table that cannot be written, or whose folder holds another one or files of the rows."""
    readings = []
    for reference, frame in frames.items():
        source = reading_of(frame.sparkSession, f"what goes to {reference!r}", "", "sql", frame)
        folders = {_PARTITIONS.sub("", file.rpartition("/")[0]) for file in source.files} - {""}
        readings.append(replace(source, folders=source.folders | folders))
    for reference, frame in frames.items():
        spark, kind = frame.sparkSession, kinds[reference]
        reading = check_output(
            spark, reference, kind, frame.schema, name="the table", readings=readings, tell=_log.warning
        )
        readings.append(reading)
