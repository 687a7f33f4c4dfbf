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
    """The night and data set of rows."""

    run_date: date
    dataset: str

    def folders(self, runs: Sequence[str]) -> dict[str, str]:
        """Folder of each run below the table, as `run_date=2026-01-31/slice=digits.bm25-c62165d1`."""
        return {run: f"run_date={self.run_date}/slice={slice_name(self.dataset, run)}" for run in runs}


class NightlySlice(NamedTuple):
    """A slice of rows of many nights; of comparisons, `run` is the baseline."""

    night: date
    run: str
    part: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ManyNights:
    """The data set of rows of many nights, and the columns `night`, `run` and `part` that name the slice of a row.

    `part` is a third key of a slice, such as the length of a period, or None; then it is empty in `slices`, which are
    all that rows belong to.
    """

    dataset: str
    night: str
    part: str | None
    slices: tuple[NightlySlice, ...]
    run: str = "run"

    @property
    def names(self) -> dict[str, NightlySlice]:
        """Slices by a name for a person, which takes the place of the run of `RunPartition`."""
        return {" ".join(filter(None, (str(one.night), one.part, one.run))): one for one in self.slices}

    def folders(self, names: Sequence[str]) -> dict[str, str]:
        known = self.names
        return {name: f"run_date={known[name].night}/slice={self.slice_of(known[name])}" for name in names}

    def slice_of(self, one: NightlySlice) -> str:
        return slice_name(self.dataset, one.run, *filter(None, (one.part,)))


def slice_name(dataset: str, run: str, *parts: str) -> str:
    """Name (data set, run) as a partition value: readable, safe in paths, not a number or date, unique for the pair.

    >>> slice_name("digits", "bm25")
    'digits.bm25-c62165d1'
    """
    digest = hashlib.sha256(json.dumps([dataset, run, *parts]).encode()).hexdigest()[:8]
    readable = [re.sub(r"[^A-Za-z0-9_-]+", "-", part)[:40] for part in (dataset, run, *parts) if part]
    return ".".join(readable or ["unnamed"]) + "-" + digest


def stamped(
    frame: DataFrame, partition: RunPartition | ManyNights, runs: Sequence[str], *, whole: bool = False
) -> DataFrame:
    """Add `dataset`, `run_date` and `slice`; a row of another run than `runs` gets a null slice. Lazy.

    With `whole`, all rows belong to the one slice that `runs` names. For `ManyNights`, `runs` are names of slices.
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
    taken = [name for name in columns if name.lower() in STAMPS]  # Spark does not mind the case
    if taken:
        raise OutputRefusedError(
            f"column {taken[0]!r} cannot be written to {reference!r}: every stored row gets a column "
            f"{taken[0].lower()!r} of its own; rename yours in the input."
        )


def check_staged(found: set[str], folders: Mapping[str, str], empty: Sequence[str], reference: str) -> None:
    """Raise unless the slices with rows are those that were announced; runs in `empty` may have none."""
    others = found - set(folders.values())
    if others:
        raise OutputRefusedError(f"rows for {reference!r} belong to no announced run: {sorted(others)[0]}.")
    missing = [run for run, folder in folders.items() if folder not in found and run not in empty]
    if missing:
        raise OutputRefusedError(
            f"there are no rows of run {missing[0]!r} for {reference!r}; what is there was left as it is."
        )


def slices_condition(folders: Sequence[str]) -> str:
    """Write a SQL condition for rows of some slices; one clause for each night."""
    nights: dict[str, list[str]] = {}
    for folder in folders:
        night, _, name = folder.partition("/slice=")
        nights.setdefault(night.partition("=")[2], []).append(f"'{name}'")  # of `slice_name`: without quotes
    clauses = [
        f"(run_date = DATE'{night}' AND slice IN ({', '.join(sorted(names))}))" for night, names in nights.items()
    ]
    return " OR ".join(clauses)


def announced(rows: DataFrame, folders: Mapping[str, str], reference: str) -> DataFrame:
    """Let rows of other slices raise, as a write would add them."""
    others = F.lit(f"rows for {reference!r} belong to no announced run.")
    checked = F.when(F.expr(slices_condition(list(folders.values()))), F.col("slice")).otherwise(
        F.raise_error(others)
    )
    return rows.withColumn("slice", checked.cast("string"))
