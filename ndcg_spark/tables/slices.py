"""Slices, the rows of a night, data set and run: their names, the columns they add, and how they are replaced."""

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
from ndcg_spark.tables.claims import Claim, InProcessClaim, delay_signals

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Frame: TypeAlias = "DataFrame | pa.Table"
"""Rows of Spark, or of Arrow in the driver process."""
PARTITIONS = ("run_date", "slice")
STAMPS = ("run_date", "dataset", "slice")
"""Columns that are added to every stored row. Results must not have columns of these names."""


class SliceKey(NamedTuple):
    """The key of a slice in its data set.

    `run` is the run, or the baseline in a comparison table; `part` is the length of a period.
    """

    night: date
    run: str
    part: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slices:
    """The slices of a data set that a write replaces, and the columns that assign rows to them.

    `columns` maps each field of `SliceKey` that varies among rows to a column. `may_be_empty` has slices that
    may have no rows, by their names in messages: the run, after night and part if `columns` has the night.
    """

    dataset: str
    keys: tuple[SliceKey, ...]
    columns: Mapping[str, str]
    may_be_empty: frozenset[str] = frozenset()

    @classmethod
    def for_night(
        cls,
        night: date,
        dataset: str,
        runs: Sequence[str],
        *,
        may_be_empty: Collection[str] = (),
        whole: bool = False,
    ) -> Slices:
        """Make the slices of the runs of a night. With `whole`, all rows belong to the slice of the only run."""
        keys = tuple(SliceKey(night, run) for run in dict.fromkeys(runs))
        return cls(
            dataset=dataset, keys=keys, columns={} if whole else {"run": "run"}, may_be_empty=frozenset(may_be_empty)
        )

    @property
    def folders(self) -> dict[str, str]:
        """Folder of each slice, such as `run_date=2026-01-31/slice=digits.bm25-c62165d1`, by its name in messages."""
        return {self._label(key): f"run_date={key.night}/slice={self._name_slice(key)}" for key in self.keys}

    def _label(self, key: SliceKey) -> str:
        night = str(key.night) if "night" in self.columns else ""
        return " ".join(filter(None, (night, key.part, key.run)))

    def _name_slice(self, key: SliceKey) -> str:
        return slice_name(self.dataset, key.run, *filter(None, (key.part,)))

    def stamp(self, frame: DataFrame) -> DataFrame:
        """Add `dataset`, `run_date` and `slice`. `slice` is null in rows of no slice. Lazy."""
        from pyspark.sql import functions as F

        from ndcg_spark.core.columns import exact_col, exact_cols

        first, rows = self.keys[0], frame
        if len(self.keys) == 1:
            matches = [exact_col(column) == getattr(first, field) for field, column in self.columns.items()]
            slice_column = F.lit(self._name_slice(first))
            slice_column = F.when(reduce(and_, matches), slice_column) if matches else slice_column
        else:
            # A join, because some hundred `when` would overflow the stack of Spark's optimizer.
            values = [(*(getattr(key, field) for field in self.columns), self._name_slice(key)) for key in self.keys]
            # Names with spaces are unlikely to be names of result columns.
            types = [f"`{field} of the slice` {'date' if field == 'night' else 'string'}" for field in self.columns]
            table = frame.sparkSession.createDataFrame(values, ", ".join([*types, "slice string"]))
            matches = [
                exact_col(column) == exact_col(f"{field} of the slice") for field, column in self.columns.items()
            ]
            rows, slice_column = frame.join(F.broadcast(table), reduce(and_, matches), "left"), F.col("slice")
        night = exact_col(self.columns["night"]) if "night" in self.columns else F.lit(first.night)
        dataset = F.lit(self.dataset).alias("dataset")
        return rows.select(*exact_cols(frame.columns), dataset, night.alias("run_date"), slice_column.alias("slice"))

    def stamp_table(self, table: pa.Table) -> pa.Table:
        """Add the columns of `stamp` to an Arrow table."""
        first, n_rows = self.keys[0], table.num_rows
        slices = pa.array([self._name_slice(key) for key in self.keys])
        if self.columns:
            keys = ["\0".join(str(getattr(key, field)) for field in self.columns) for key in self.keys]
            texts = [table.column(column).cast(pa.string()) for column in self.columns.values()]
            slice_column = pc.take(
                slices, pc.index_in(pc.binary_join_element_wise(*texts, "\0"), value_set=pa.array(keys))
            )
        else:
            slice_column = pa.repeat(slices[0], n_rows)
        night = pa.repeat(pa.scalar(first.night, pa.date32()), n_rows)
        if "night" in self.columns:
            night = table.column(self.columns["night"]).cast(pa.date32())
        stamped = table.append_column("dataset", pa.repeat(self.dataset, n_rows))
        return stamped.append_column("run_date", night).append_column("slice", slice_column)

    def check(self, staged: Collection[str], reference: str) -> None:
        """Raise if a folder with rows is none of these slices, or a slice without rows is not in `may_be_empty`."""
        unexpected = set(staged) - set(self.folders.values())
        if unexpected:
            raise OutputRefusedError(
                f"rows for {reference!r} belong to an unexpected slice: {sorted(unexpected)[0]}."
            )
        missing = [
            run for run, folder in self.folders.items() if folder not in staged and run not in self.may_be_empty
        ]
        if missing:
            raise OutputRefusedError(
                f"there are no rows of run {missing[0]!r} for {reference!r}; existing rows were kept."
            )

    def reject_unexpected(self, rows: DataFrame, reference: str) -> DataFrame:
        """Make rows of other slices raise an error when they are computed. Lazy."""
        from pyspark.sql import functions as F

        message = F.lit(f"rows for {reference!r} belong to an unexpected slice.")
        expected = F.expr(build_condition(list(self.folders.values())))
        checked = F.when(expected, F.col("slice")).otherwise(F.raise_error(message))
        return rows.withColumn("slice", checked.cast("string"))


class SliceWrite:
    """New rows of some slices. Call `stage`, then `swap`, then `finish` or `undo`, and always `close`.

    The constructor claims the slices, until `close`. `swap_in` makes several writes visible together.
    """

    undoable = True
    """True if `undo` restores the old rows, even after a swap that failed midway."""
    on_failure: Callable[[], None] | None = None
    """Called by `close` if the write was not finished."""
    claim: Claim | InProcessClaim

    def __init__(self, reference: str, slices: Slices) -> None:
        self.reference, self.slices, self.folders = reference, slices, list(slices.folders.values())

    def stage(self, rows: Any) -> None:
        """Write rows to a place that readers ignore."""

    def swap(self) -> None:
        """Replace the old rows by the new ones."""

    def undo(self) -> None:
        """Restore the old rows."""

    def finish(self) -> None:
        """Make the new rows permanent."""
        self.on_failure = None

    def close(self) -> None:
        """Remove old rows, or new rows that were not swapped in, and release the slices."""
        with delay_signals():
            self.claim.release()
            if self.on_failure is not None:
                self.on_failure()
                self.on_failure = None


def slice_name(dataset: str, run: str, *parts: str) -> str:
    """Return the partition value of (data set, run): unique, readable, safe in paths, not a number or date.

    >>> slice_name("digits", "bm25")
    'digits.bm25-c62165d1'
    """
    digest = hashlib.sha256(json.dumps([dataset, run, *parts]).encode()).hexdigest()[:8]
    readable = [re.sub(r"[^A-Za-z0-9_-]+", "-", part)[:40] for part in (dataset, run, *parts) if part]
    return ".".join(readable or ["unnamed"]) + "-" + digest


def refuse_stamps(columns: Sequence[str], reference: str) -> None:
    reserved = [column for column in columns if column.lower() in STAMPS]  # Spark ignores case
    if reserved:
        raise OutputRefusedError(
            f"column {reserved[0]!r} cannot be written to {reference!r}: a column {reserved[0].lower()!r} is added "
            "to every stored row; rename yours in the input."
        )


def build_condition(folders: Sequence[str]) -> str:
    """Build the SQL condition that selects some slices, with one clause for each night."""
    nights: dict[str, list[str]] = {}
    for folder in folders:
        night, _, name = folder.partition("/slice=")
        nights.setdefault(night.partition("=")[2], []).append(f"'{name}'")  # a `slice_name` has no quotes
    clauses = [
        f"(run_date = DATE'{night}' AND slice IN ({', '.join(sorted(names))}))" for night, names in nights.items()
    ]
    return " OR ".join(clauses)


def count_slices(rows: DataFrame) -> dict[str, int]:
    """Run an action: count the rows of each slice, by folder."""
    counts = rows.groupBy(*PARTITIONS).count().collect()
    return {f"run_date={row['run_date']}/slice={row['slice']}": row["count"] for row in counts}


def verify_counts(spark: SparkSession, table: str, folders: Sequence[str], staged: Mapping[str, int]) -> None:
    """Run an action: raise if a slice of a table has another number of rows than were staged."""
    from pyspark.sql import functions as F

    nights = sorted({folder.partition("/")[0].partition("=")[2] for folder in folders})
    names = sorted({folder.partition("/slice=")[2] for folder in folders})
    # Read these slices only: files of others may be replaced meanwhile.
    of_slices = F.col("run_date").isin([date.fromisoformat(night) for night in nights]) & F.col("slice").isin(names)
    counts = count_slices(spark.table(table).where(of_slices))
    for folder in folders:
        if counts.get(folder, 0) != staged.get(folder, 0):
            raise OutputRefusedError(
                f"{folder} of table {table!r} has {counts.get(folder, 0)} rows where {staged.get(folder, 0)} were "
                "written: somebody else changed it meanwhile; run again."
            )
