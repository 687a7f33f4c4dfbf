"""Writing the tables of a night together: all of them, or none."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from dataclasses import dataclass
from datetime import date, datetime, timezone
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ndcg_spark._version import __version__
from ndcg_spark.core.failures import plain_refusals
from ndcg_spark.core.given import takes_tables
from ndcg_spark.errors import InputRefusedError, InvalidParameterError, one_of, option
from ndcg_spark.tables.checks import Reading, check_output, reading_of
from ndcg_spark.tables.claims import Tell
from ndcg_spark.tables.slices import ManyNights, RunPartition
from ndcg_spark.tables.writing import Swappable, stage_partition, swap_in

_log = logging.getLogger(__name__)
ALL_PAIRS = "(all pairs)"
"""Names the slice of a comparison without baseline."""
_OF_MEANS, _OF_COMPARISONS = "metric", "baseline"
"""Columns that tables of means, and those of comparisons, have and others have not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRows:
    """Rows of a table to write: its place, and the runs whose slices they replace; those of `empty` may have none.

    Rows that are a `whole` are one slice, which the only run names. `holds` is what a person calls them.
    """

    reference: str
    kind: str | None
    frame: DataFrame
    runs: Sequence[str]
    empty: Sequence[str] = ()
    whole: bool = False
    grow: bool = True
    holds: str = "rows"


def write_together(
    tables: Iterable[TableRows],
    night: RunPartition | ManyNights,
    *,
    more: Callable[[ExitStack], Iterable[Swappable]] = lambda stack: (),
    step: Callable[[str], AbstractContextManager[None]] = lambda what: nullcontext(),
    tell: Tell = _log.warning,
) -> None:
    """Compute tables where no reader looks, then make all of them visible, or none. Runs an action for each.

    `more` stages what is no table, behind them; `step` is entered for each table.
    """
    with ExitStack() as stack:
        staged: list[Swappable] = []
        for one in tables:
            with step(f"writing {one.holds} to {one.reference}"):
                its = stage_partition(
                    one.frame,
                    one.reference,
                    one.kind,
                    night,
                    one.runs,
                    empty=one.empty,
                    whole=one.whole,
                    grow=one.grow,
                    tell=tell,
                )
                staged.append(stack.enter_context(closing(its)))
        swap_in([*staged, *more(stack)])


@takes_tables
def write_night(
    tables: Mapping[str, DataFrame],
    *,
    night: date,
    dataset: str,
    runs: Sequence[str] | None = None,
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
        `run_date`, `dataset` or `slice`, which every stored row gets.
    night : date
        The date that rows are stored under, as `run_date`.
    dataset : str
        The name of the data set that they are stored under.
    runs : sequence of str or None
        The runs whose rows are replaced; each must have rows in each table. None: those that a table has. The rows of
        a comparison are replaced as a whole, by their baseline.
    formats : mapping of str to str, or None
        Formats of some of the tables: `parquet`, `table`, `delta` or `iceberg`. Else a folder is Parquet, and a table
        of the catalog is what it is, or what the catalog makes.
    stamps : mapping of str to str, or None
        Columns to add to tables of means, those with a column `metric`, such as `Evaluation.provenance`: later nights
        are compared with those of the same `config_hash`. `package_version` and `computed_at` are added, too.

    Raises
    ------
    InvalidParameterError
        For a night that is no date, or without tables.
    OutputRefusedError
        For a table that is not one of nights, or that the rows are read from. Nothing was written.
    InputRefusedError
        For rows that are bad. Nothing was written.
    PartlyWrittenError
        Where a table was written and cannot be taken back, as on an object store, and another one failed.

    Notes
    -----
    Spark cost: an action for each table, another one to list its runs unless `runs` are given, and one more that
    counts the rows of a table of the catalog. Rows are computed anew by each: keep what is slow, as by
    `DataFrame.persist`.

    Examples
    --------
    >>> result = evaluate(rankings, k=10, run="ranker")  # doctest: +SKIP
    >>> write_night(
    ...     {"prod.ranking_metrics": result.summary, "prod.ranking_queries": result.per_query_table},
    ...     night=date(2026, 1, 31), dataset="shop", stamps=result.provenance,
    ... )  # doctest: +SKIP
    """
    _check(tables, night, dataset, formats or {})
    with plain_refusals():
        rows = [
            _rows_of(reference, frame, runs, (formats or {}).get(reference), stamps or {})
            for reference, frame in tables.items()
        ]
        _check_places(rows)
        write_together(rows, RunPartition(run_date=night, dataset=dataset))


def _check(tables: Mapping[str, DataFrame], night: date, dataset: str, formats: Mapping[str, str]) -> None:
    if not tables:
        raise InvalidParameterError("there is no table to write.")
    if type(night) is not date:  # a datetime is one, too
        raise InvalidParameterError(f"{option('night')} must be a datetime.date; got {night!r}.")
    if not dataset:
        raise InvalidParameterError(f"{option('dataset')} must be a name; got {dataset!r}.")
    for reference in formats:
        one_of("table", reference, tuple(tables))


def _rows_of(
    reference: str, frame: DataFrame, runs: Sequence[str] | None, kind: str | None, stamps: Mapping[str, str | None]
) -> TableRows:
    """Complete rows, and list their runs: an action unless these are given."""
    if "run" not in frame.columns:
        frame = frame.withColumn("run", F.lit(""))
    if _OF_MEANS in frame.columns:
        frame = frame.select("*", *_stamped(frame, stamps))
    by = _OF_COMPARISONS if _OF_COMPARISONS in frame.columns else "run"
    if runs is None or by != "run":
        runs = sorted(row[by] for row in frame.select(by).distinct().collect() if row[by] is not None)
        if not runs:
            raise InputRefusedError(f"the rows for {reference!r} are none; there is nothing to write.")
    if by != "run":  # tests are adjusted over all rows of a baseline, so that these are one slice
        whole = runs[0] if len(runs) == 1 else ALL_PAIRS
        return TableRows(reference=reference, kind=kind, frame=frame, runs=[whole], whole=True)
    return TableRows(reference=reference, kind=kind, frame=frame, runs=runs)


def _stamped(frame: DataFrame, stamps: Mapping[str, str | None]) -> list[Any]:
    now = datetime.now(timezone.utc).replace(microsecond=0)
    texts = {"convention": None, "config_hash": None, "input": None, **stamps, "package_version": __version__}
    added = [F.lit(text).cast("string").alias(name) for name, text in texts.items()]
    added.append(F.lit(now).cast("timestamp").alias("computed_at"))
    names = [*texts, "computed_at"]
    return [one for name, one in zip(names, added, strict=True) if name not in frame.columns]


def _check_places(rows: Sequence[TableRows]) -> None:
    """Raise when a table could not be written, is in the place of another, or is what rows are read from."""
    readings: list[Reading] = []
    for one in rows:
        spark = one.frame.sparkSession
        readings.append(reading_of(spark, f"what goes to {one.reference!r}", "", "sql", one.frame))
    for one in rows:
        found = check_output(
            one.frame.sparkSession,
            one.reference,
            one.kind,
            one.frame.schema,
            name=repr(one.reference),
            readings=readings,
            grow=one.grow,
            tell=_log.warning,
        )
        readings.append(found)
