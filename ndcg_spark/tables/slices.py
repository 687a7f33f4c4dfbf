"""Slices: how the rows of a date, data set and run are named and marked."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark.core.columns import columns_of, named
from ndcg_spark.errors import OutputRefusedError

PARTITIONS = ("run_date", "slice")
PARTITION_FIELDS = (T.StructField("run_date", T.DateType()), T.StructField("slice", T.StringType()))
STAMPS = ("run_date", "dataset", "slice")
"""Columns that every stored row gets; results may not bring columns of these names."""
_RUN = "run of the slice"  # has spaces, so that no column of a result is likely to share the name


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPartition:
    """The night and data set that a set of rows belongs to."""

    run_date: date
    dataset: str

    def folders(self, runs: Sequence[str]) -> dict[str, str]:
        """Folder of each run below the table, as `run_date=2026-01-31/slice=digits.bm25-c62165d1`."""
        return {run: f"run_date={self.run_date}/slice={slice_name(self.dataset, run)}" for run in runs}


class NightlySlice(NamedTuple):
    """What a slice is of, where rows of many nights are written together; of comparisons, `run` is the baseline."""

    night: date
    run: str
    part: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ManyNights:
    """The data set of rows of many nights, and the columns that say which slice a row belongs to.

    Column `night` has the date of the night, `run` the run, and `part`, if there is one, a value that belongs to the
    slice beside data set and run, such as the length of a period. `slices` are all that rows belong to; their `part`
    is empty where there is no such column.
    """

    dataset: str
    night: str
    part: str | None
    slices: tuple[NightlySlice, ...]
    run: str = "run"

    @property
    def names(self) -> dict[str, NightlySlice]:
        """Slices by a name for a person, which is used where `RunPartition` has the run."""
        return {" ".join(filter(None, (str(one.night), one.part, one.run))): one for one in self.slices}

    def folders(self, names: Sequence[str]) -> dict[str, str]:
        """Folder of each slice below the table, for some of `names`."""
        known = self.names
        return {name: f"run_date={known[name].night}/slice={self.slice_of(known[name])}" for name in names}

    def slice_of(self, one: NightlySlice) -> str:
        """Name of a slice as a partition value."""
        return slice_name(self.dataset, one.run, *filter(None, (one.part,)))


def slice_name(dataset: str, run: str, *parts: str) -> str:
    """Name the (data set, run) that rows belong to, as a partition value.

    Readable, safe in paths, never taken for a number or date, and different for different pairs.

    Examples
    --------
    >>> slice_name("digits", "bm25")
    'digits.bm25-c62165d1'
    """
    digest = hashlib.sha256(json.dumps([dataset, run, *parts]).encode()).hexdigest()[:8]
    readable = [re.sub(r"[^A-Za-z0-9_-]+", "-", part)[:40] for part in (dataset, run, *parts) if part]
    return ".".join(readable or ["unnamed"]) + "-" + digest


def stamped(
    frame: DataFrame, partition: RunPartition | ManyNights, runs: Sequence[str], *, whole: bool = False
) -> DataFrame:
    """Add `dataset`, `run_date` and `slice` to rows; a row of another run than `runs` gets a null slice.

    Lazy, in the partitions of `frame`. With `whole`, all rows belong to the one slice that `runs` names, whatever
    their column `run` says. For `ManyNights`, `runs` are names of slices.
    """
    columns = columns_of(frame.columns)
    if isinstance(partition, ManyNights):
        return _stamped_by_night(frame, partition, runs)
    if whole:
        sliced, name = frame, F.lit(slice_name(partition.dataset, runs[0]))
    elif len(runs) == 1:
        sliced = frame
        name = F.when(F.col("run") == runs[0], F.lit(slice_name(partition.dataset, runs[0])))
    else:
        # A join with a small table: a `when` per run overflows the stack of Spark's optimizer at some hundred runs.
        names = [(run, slice_name(partition.dataset, run)) for run in runs]
        table = frame.sparkSession.createDataFrame(names, f"`{_RUN}` string, slice string")
        sliced = frame.join(F.broadcast(table), F.col("run") == named(_RUN), "left")
        name = F.col("slice")
    dataset, run_date = F.lit(partition.dataset).alias("dataset"), F.lit(partition.run_date).alias("run_date")
    return sliced.select(*columns, dataset, run_date, name.alias("slice"))


def _stamped_by_night(frame: DataFrame, partition: ManyNights, names: Sequence[str]) -> DataFrame:
    known = partition.names
    slices = [known[name] for name in names]
    rows = [(one.night, one.run, one.part, partition.slice_of(one)) for one in slices]
    schema = f"`night of the slice` date, `{_RUN}` string, `part of the slice` string, slice string"
    table = frame.sparkSession.createDataFrame(rows, schema)
    part = F.lit("") if partition.part is None else named(partition.part)
    same = (named(partition.night) == named("night of the slice")) & (named(partition.run) == named(_RUN))
    joined = frame.join(F.broadcast(table), same & (part == named("part of the slice")), "left")
    run_date = named(partition.night).alias("run_date")
    return joined.select(*columns_of(frame.columns), F.lit(partition.dataset).alias("dataset"), run_date, "slice")


def refuse_stamps(columns: Sequence[str], reference: str) -> None:
    """Raise when rows have a column that storing them would overwrite."""
    taken = [name for name in columns if name.lower() in STAMPS]  # Spark does not mind the case
    if taken:
        raise OutputRefusedError(
            f"column {taken[0]!r} cannot be written to {reference!r}: every stored row gets a column "
            f"{taken[0].lower()!r} of its own; rename yours in the input."
        )


def check_staged(found: set[str], folders: Mapping[str, str], empty: Sequence[str], reference: str) -> None:
    """Raise unless the slices that rows were found for are those that were announced.

    Runs in `empty` may have no rows.
    """
    others = found - set(folders.values())
    if others:
        raise OutputRefusedError(f"rows for {reference!r} belong to no announced run: {sorted(others)[0]}.")
    missing = [run for run, folder in folders.items() if folder not in found and run not in empty]
    if missing:
        raise OutputRefusedError(
            f"there are no rows of run {missing[0]!r} for {reference!r}; what is there was left as it is."
        )


def slices_condition(folders: Sequence[str]) -> str:
    """Write the condition that rows of some slices meet, in SQL; one clause for each night."""
    nights: dict[str, list[str]] = {}
    for folder in folders:
        night, _, name = folder.partition("/slice=")
        nights.setdefault(night.partition("=")[2], []).append(name)
    clauses = [f"(run_date = DATE'{night}' AND slice IN ({_quoted(names)}))" for night, names in nights.items()]
    return " OR ".join(clauses)


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in sorted(names))  # of `slice_name`, which leaves no quotes in them


def announced(rows: DataFrame, folders: Mapping[str, str], reference: str) -> DataFrame:
    """Let rows of other slices raise, as a write would add them to the output."""
    others = F.lit(f"rows for {reference!r} belong to no announced run.")
    checked = F.when(F.expr(slices_condition(list(folders.values()))), F.col("slice")).otherwise(
        F.raise_error(others)
    )
    return rows.withColumn("slice", checked.cast("string"))
