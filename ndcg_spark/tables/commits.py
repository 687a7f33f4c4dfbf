"""Slices of tables that keep a log of their files: one commit replaces all slices of a write.

Readers see the table before the commit or after it, so nothing has to be renamed. What remains is to decide when rows
are computed. Where this process and Spark share the table's folder, they are staged as Parquet in a hidden folder of
it, as those of other local tables are: all outputs of a job are computed before the first of them is committed,
writers of one slice exclude each other before they compute anything, and leftovers of killed writers are found and
removed. Elsewhere nothing is staged, and the commit computes the rows: Unity Catalog and REST catalogs allow no
files but those of a commit, and Spark cannot delete staged files on object stores. So an output that fails there can
find another one committed, which is then taken back.

Taking back is a commit, too: it replaces the same slices by the rows that they had before. Rolling back to the
version before (`RESTORE`, `rollback_to_snapshot`) would also undo what others have committed to other slices since.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from ndcg_spark.core.failures import SPARK_ERRORS
from ndcg_spark.errors import OutputRefusedError
from ndcg_spark.tables.catalog import TableFacts, cast_to_table, read_columns
from ndcg_spark.tables.claims import Tell, ThreadClaim, claim_slices
from ndcg_spark.tables.folders import count_file_rows, stage_files
from ndcg_spark.tables.slices import Slices, SliceWrite, count_slices, slices_condition, verify_counts

ATTEMPTS = 20
"""Commits that others' commits to other slices have beaten; formats repeat some of them on their own."""
_PAUSE = 0.05
_CONFLICT = re.compile(
    r"Concurrent(Append|DeleteRead|DeleteDelete|Write|Transaction|Modification)Exception|DELTA_CONCURRENT_"
    r"|MetadataChangedException|DELTA_METADATA_CHANGED|CommitFailedException|Failed to commit transaction"
)


class ConflictError(Exception):
    """Somebody else has committed rows of the same slices meanwhile."""


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit of this writer: its version, the version before, and whether it changed these slices alone."""

    version: int
    before: int | None
    alone: bool


class CommitLog:
    """The commits of a table to some of its slices."""

    def __init__(self, spark: SparkSession, table: str, folders: Sequence[str]) -> None:
        self._spark, self._table, self._folders = spark, table, folders

    @property
    def undoable(self) -> bool:
        """Whether `rows_at` finds the rows from before a commit."""
        return True

    def version(self) -> int | None:
        """Version of the table now; None for a new one."""
        raise NotImplementedError

    def replace(self, rows: DataFrame, since: int | None, mark: str) -> None:
        """Run an action: replace the slices in one commit with a mark; ConflictError if they changed since."""
        raise NotImplementedError

    def find(self, mark: str, since: int | None) -> Commit | None:
        """Find the commit with a mark, which came after the version `since`."""
        raise NotImplementedError

    def rows_at(self, version: int) -> DataFrame:
        """Rows of an earlier version."""
        return self._spark.sql(f"SELECT * FROM {self._table} VERSION AS OF {version}")


class CommittedWrite(SliceWrite):
    """New rows of some slices of a table, all of them replaced by one commit.

    Of two writers of a slice one is refused: before it computes anything where the table's folder is shared;
    elsewhere when it commits, as somebody else has changed the slice since it began. Writers of other slices never
    refuse each other: a commit that another one has beaten is tried again.
    """

    def __init__(
        self, spark: SparkSession, facts: TableFacts, log: CommitLog, slices: Slices, root: Path | None, tell: Tell
    ) -> None:
        super().__init__(facts.name, slices)
        self.spark, self.facts, self._log, self.undoable = spark, facts, log, log.undoable
        if root is None:
            self.claim = ThreadClaim(facts.name, self.folders, facts.name)
        else:
            self.claim = claim_slices(root, self.folders, tell)
        self._condition, self._mark = slices_condition(self.folders), uuid.uuid4().hex
        self._since: int | None = None
        self._counts: dict[str, int] | None = None

    def stage(self, rows: DataFrame) -> None:
        """Run an action if rows can be staged: write them to a folder of this writer's own, and count them."""
        self._since = self._log.version()
        rows = cast_to_table(rows, self.facts)
        if isinstance(self.claim, ThreadClaim):
            self._rows = self.slices.reject_unexpected(rows, self.reference)
            return
        staged = stage_files(rows, "parquet", self.claim)
        self.slices.check(staged, self.reference)
        self._counts = {folder: count_file_rows(self.claim.rows / folder, "parquet") for folder in staged}
        reader = self.spark.read.schema(rows.schema)
        self._rows = reader.parquet(f"file://{self.claim.rows}") if staged else rows.limit(0)

    def swap(self) -> None:
        """Run actions: commit the rows, and check the commit and the table."""
        name = self.reference
        try:
            self._commit(self._rows, self._since, self._mark)
        except ConflictError as error:
            raise OutputRefusedError(f"another job wrote the same runs to {name!r} meanwhile; run again.") from error
        commit = self._log.find(self._mark, self._since)
        if commit is None and self._has_nothing_to_commit():
            return
        if commit is None or not commit.alone:
            raise OutputRefusedError(f"the log of {name!r} does not show that these runs alone were replaced.")
        if self._counts is None:
            self.slices.check(self._count_stored(), name)
        else:
            verify_counts(self.spark, name, self.folders, self._counts)

    def _count_stored(self) -> dict[str, int]:
        return count_slices(self.spark.table(self.reference).where(self._condition))

    def _has_nothing_to_commit(self) -> bool:
        """Check that there are no new and no old rows; Delta then makes no commit."""
        if any((self._counts or {}).values()) or self.slices.empty != set(self.slices.folders):
            return False
        return not self._count_stored()

    def _commit(self, rows: DataFrame, since: int | None, mark: str) -> None:
        """Replace the slices; try again if commits of others to other slices come first."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                # By the columns of now: Iceberg refuses rows without a column that another job has added.
                declared = cast_to_table(rows, read_columns(self.spark, self.facts))
                self._log.replace(declared, since, mark)
            except SPARK_ERRORS as error:
                if not _CONFLICT.search(str(error)):
                    raise
                if attempt == ATTEMPTS:
                    raise OutputRefusedError(
                        f"commits of other jobs to {self.reference!r} came first {ATTEMPTS} times; run again."
                    ) from error
                time.sleep(_PAUSE * attempt)
            else:
                return

    def undo(self) -> None:
        """Commit the old rows again, unless there is no commit, or others have replaced its rows."""
        commit = self._log.find(self._mark, self._since)
        if commit is None:
            return
        before = commit.before
        old = self.spark.table(self.reference).limit(0) if before is None else self._log.rows_at(before)
        with suppress(ConflictError):
            self._commit(old.where(self._condition), commit.version, uuid.uuid4().hex)
