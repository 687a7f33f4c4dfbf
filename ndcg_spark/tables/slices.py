"""Slices: how the rows of a date, data set and run are named, marked and counted, and the steps that replace them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from ndcg_spark.errors import OutputRefusedError
from ndcg_spark.tables.claims import Claim, ThreadClaim, delayed_signals

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Frame: TypeAlias = "DataFrame | pa.Table"
"""Rows of Spark, or of Arrow in this process."""
PARTITIONS = ("run_date", "slice")
STAMPS = ("run_date", "dataset", "slice")
"""Columns that every stored row gets; results may not bring columns of these names."""


class SliceKey(NamedTuple):
    """The key of a slice in its data set. Of comparisons, `run` is the baseline; of periods, `part` is the length."""

    night: date
    run: str
    part: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slices:
    """The slices of a data set that a write replaces, and how a row finds its own.

    `columns` are columns of rows by those fields of `SliceKey` in which rows differ. Slices named in `empty` may have
    no rows; a name for people is the run, with night and part where rows differ in their night.
    """

    dataset: str
    keys: tuple[SliceKey, ...]
    columns: Mapping[str, str]
    empty: frozenset[str] = frozenset()

    @classmethod
    def for_night(
        cls, night: date, dataset: str, runs: Sequence[str], *, empty: Collection[str] = (), whole: bool = False
    ) -> Slices:
        """Make the slices of runs of a night. With `whole`, all rows are the slice of the one run."""
        keys = tuple(SliceKey(night, run) for run in dict.fromkeys(runs))
        return cls(dataset=dataset, keys=keys, columns={} if whole else {"run": "run"}, empty=frozenset(empty))

    @property
    def folders(self) -> dict[str, str]:
        """Folder of each slice below the table, as `run_date=2026-01-31/slice=digits.bm25-c62165d1`, by its name."""
        return {self._name(key): f"run_date={key.night}/slice={self._slice(key)}" for key in self.keys}

    def _name(self, key: SliceKey) -> str:
        night = str(key.night) if "night" in self.columns else ""
        return " ".join(filter(None, (night, key.part, key.run)))

    def _slice(self, key: SliceKey) -> str:
        return slice_name(self.dataset, key.run, *filter(None, (key.part,)))

    def stamp(self, frame: DataFrame) -> DataFrame:
        """Add `dataset`, `run_date` and `slice`; a row of no slice gets a null one. Lazy."""
        from pyspark.sql import functions as F

        from ndcg_spark.core.columns import columns_of, named

        first, rows = self.keys[0], frame
        if len(self.keys) == 1:
            same = [named(column) == getattr(first, field) for field, column in self.columns.items()]
            name = F.lit(self._slice(first))
            name = F.when(reduce(and_, same), name) if same else name
        else:
            # A join with a small table: some hundred `when` overflow the stack of Spark's optimizer.
            values = [(*(getattr(key, field) for field in self.columns), self._slice(key)) for key in self.keys]
            # Names with spaces, so that no column of a result is likely to share them.
            types = [f"`{field} of the slice` {'date' if field == 'night' else 'string'}" for field in self.columns]
            table = frame.sparkSession.createDataFrame(values, ", ".join([*types, "slice string"]))
            same = [named(column) == named(f"{field} of the slice") for field, column in self.columns.items()]
            rows, name = frame.join(F.broadcast(table), reduce(and_, same), "left"), F.col("slice")
        night = named(self.columns["night"]) if "night" in self.columns else F.lit(first.night)
        dataset = F.lit(self.dataset).alias("dataset")
        return rows.select(*columns_of(frame.columns), dataset, night.alias("run_date"), name.alias("slice"))

    def stamp_table(self, table: pa.Table) -> pa.Table:
        """Do what `stamp` does, with a table of Arrow."""
        first, n = self.keys[0], table.num_rows
        slices = pa.array([self._slice(key) for key in self.keys])
        if self.columns:
            keys = ["\0".join(str(getattr(key, field)) for field in self.columns) for key in self.keys]
            texts = [table.column(column).cast(pa.string()) for column in self.columns.values()]
            name = pc.take(slices, pc.index_in(pc.binary_join_element_wise(*texts, "\0"), value_set=pa.array(keys)))
        else:
            name = pa.repeat(slices[0], n)
        night = pa.repeat(pa.scalar(first.night, pa.date32()), n)
        if "night" in self.columns:
            night = table.column(self.columns["night"]).cast(pa.date32())
        stamped = table.append_column("dataset", pa.repeat(self.dataset, n))
        return stamped.append_column("run_date", night).append_column("slice", name)

    def check(self, staged: Collection[str], reference: str) -> None:
        """Raise unless the folders that have rows are those of these slices; slices in `empty` may have none."""
        others = set(staged) - set(self.folders.values())
        if others:
            raise OutputRefusedError(f"rows for {reference!r} belong to no announced run: {sorted(others)[0]}.")
        missing = [name for name, folder in self.folders.items() if folder not in staged and name not in self.empty]
        if missing:
            raise OutputRefusedError(
                f"there are no rows of run {missing[0]!r} for {reference!r}; what is there was left as it is."
            )

    def reject_unexpected(self, rows: DataFrame, reference: str) -> DataFrame:
        """Let rows of other slices raise, as a write would add them."""
        from pyspark.sql import functions as F

        others = F.lit(f"rows for {reference!r} belong to no announced run.")
        expected = F.expr(slices_condition(list(self.folders.values())))
        checked = F.when(expected, F.col("slice")).otherwise(F.raise_error(others))
        return rows.withColumn("slice", checked.cast("string"))


class SliceWrite:
    """New rows of some slices: `stage`, then `swap`, then `finish` or `undo`; and `close`, in any case.

    Making one claims its slices, for as long as it is not closed. `swap_in` makes several visible together.
    """

    undoable = True
    """Whether `undo` shows the old rows again, also after a swap that failed half-way."""
    on_failure: Callable[[], None] | None = None
    """What `close` does if the write was not finished."""
    claim: Claim | ThreadClaim

    def __init__(self, reference: str, slices: Slices) -> None:
        self.reference, self.slices, self.folders = reference, slices, list(slices.folders.values())

    def stage(self, rows: Any) -> None:
        """Write rows where no reader looks."""

    def swap(self) -> None:
        """Show the new rows in place of the old ones."""

    def undo(self) -> None:
        """Show the old rows again."""

    def finish(self) -> None:
        """Keep the new rows for good."""
        self.on_failure = None

    def close(self) -> None:
        """Remove old rows, or new ones that were not swapped in, and let others write the slices."""
        with delayed_signals():
            self.claim.release()
            if self.on_failure is not None:
                self.on_failure()
                self.on_failure = None


def slice_name(dataset: str, run: str, *parts: str) -> str:
    """Name (data set, run) as a partition value: readable, safe in paths, not a number or date, unique for the pair.

    >>> slice_name("digits", "bm25")
    'digits.bm25-c62165d1'
    """
    digest = hashlib.sha256(json.dumps([dataset, run, *parts]).encode()).hexdigest()[:8]
    readable = [re.sub(r"[^A-Za-z0-9_-]+", "-", part)[:40] for part in (dataset, run, *parts) if part]
    return ".".join(readable or ["unnamed"]) + "-" + digest


def refuse_stamps(columns: Sequence[str], reference: str) -> None:
    taken = [name for name in columns if name.lower() in STAMPS]  # Spark does not mind the case
    if taken:
        raise OutputRefusedError(
            f"column {taken[0]!r} cannot be written to {reference!r}: every stored row gets a column "
            f"{taken[0].lower()!r} of its own; rename yours in the input."
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


def count_slices(rows: DataFrame) -> dict[str, int]:
    """Run an action: rows of each slice, by its folder."""
    counts = rows.groupBy(*PARTITIONS).count().collect()
    return {f"run_date={row['run_date']}/slice={row['slice']}": row["count"] for row in counts}


def verify_counts(spark: SparkSession, table: str, folders: Sequence[str], staged: Mapping[str, int]) -> None:
    """Run an action: raise unless a table has as many rows of each slice as were staged."""
    from pyspark.sql import functions as F

    nights = sorted({folder.partition("/")[0].partition("=")[2] for folder in folders})
    names = sorted({folder.partition("/slice=")[2] for folder in folders})
    # Of these slices only: files of others may be replaced while they are read.
    ours = F.col("run_date").isin([date.fromisoformat(night) for night in nights]) & F.col("slice").isin(names)
    counts = count_slices(spark.table(table).where(ours))
    for folder in folders:
        if counts.get(folder, 0) != staged.get(folder, 0):
            raise OutputRefusedError(
                f"{folder} of table {table!r} has {counts.get(folder, 0)} rows where {staged.get(folder, 0)} were "
                "written: somebody else changed it meanwhile; run again."
            )
