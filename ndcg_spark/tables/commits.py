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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

from ndcg_spark.core.failures import SPARK_ERRORS
from ndcg_spark.errors import OutputRefusedError
from ndcg_spark.tables.catalog import TableFacts, as_declared, count_slices, verify_counts, with_columns_of_now
from ndcg_spark.tables.claims import Claim, Tell, ThreadClaim, claim_slices
from ndcg_spark.tables.folders import rows_in, stage_slices
from ndcg_spark.tables.slices import announced, check_staged, slices_condition

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


class CommitLog(Protocol):
    """The commits of a table to some of its slices."""

    @property
    def undoable(self) -> bool:
        """Whether `rows_at` finds the rows from before a commit."""

    def version(self) -> int | None:
        """Version of the table now; None for a new one."""

    def replace(self, rows: DataFrame, since: int | None, mark: str) -> None:
        """Run an action: replace the slices in one commit with a mark; ConflictError if they changed since."""

    def find(self, mark: str, since: int | None) -> Commit | None:
        """Find the commit with a mark, which came after the version `since`."""

    def rows_at(self, version: int) -> DataFrame:
        """Rows of an earlier version."""


class CommittedWrite:
    """New rows of some slices of a table, all of them replaced by one commit.

    Of two writers of a slice one is refused: before it computes anything where the table's folder is shared;
    elsewhere when it commits, as somebody else has changed the slice since it began. Writers of other slices never
    refuse each other: a commit that another one has beaten is tried again.
    """

    def __init__(
        self,
        spark: SparkSession,
        facts: TableFacts,
        log: CommitLog,
        folders: Mapping[str, str],
        root: Path | None,
        tell: Tell,
    ) -> None:
        self.spark, self.facts, self.folders, self._log = spark, facts, folders, log
        self.undoable = log.undoable
        wanted = list(folders.values())
        self._claim: Claim | ThreadClaim = (
            ThreadClaim(facts.name, wanted, facts.name) if root is None else claim_slices(root, wanted, tell)
        )
        self._condition, self._mark = slices_condition(wanted), uuid.uuid4().hex
        self._since: int | None = None
        self._counted: dict[str, int] | None = None

    def stage(self, rows: DataFrame, kind: str, empty: Sequence[str]) -> None:
        """Run an action if rows can be staged: write them to a folder of this writer's own, and count them."""
        del kind  # that of the table counts
        self._since, self._empty = self._log.version(), empty
        rows = as_declared(rows, self.facts)
        if isinstance(self._claim, ThreadClaim):
            self._rows = announced(rows, self.folders, self.facts.name)
            return
        found = stage_slices(rows, "parquet", self._claim)
        check_staged(found, self.folders, empty, self.facts.name)
        self._counted = {folder: rows_in(self._claim.rows / folder, "parquet") for folder in found}
        staged = self.spark.read.schema(rows.schema)
        self._rows = staged.parquet(f"file://{self._claim.rows}") if found else rows.limit(0)

    def swap(self) -> None:
        """Run actions: commit the rows, and check the commit and the table."""
        name = self.facts.name
        try:
            self._commit(self._rows, self._since, self._mark)
        except ConflictError as error:
            raise OutputRefusedError(f"another job wrote the same runs to {name!r} meanwhile; run again.") from error
        commit = self._log.find(self._mark, self._since)
        if commit is None and self._nothing_to_commit():
            return
        if commit is None or not commit.alone:
            raise OutputRefusedError(f"the log of {name!r} does not show that these runs alone were replaced.")
        if self._counted is not None:
            verify_counts(self.spark, name, list(self.folders.values()), self._counted)
            return
        found = count_slices(self.spark.table(name).where(self._condition))
        check_staged(set(found), self.folders, self._empty, name)

    def _nothing_to_commit(self) -> bool:
        """Check that there are no new and no old rows; Delta then makes no commit."""
        if any((self._counted or {}).values()) or set(self._empty) != set(self.folders):
            return False
        return not count_slices(self.spark.table(self.facts.name).where(self._condition))

    def _commit(self, rows: DataFrame, since: int | None, mark: str) -> None:
        """Replace the slices; try again if commits of others to other slices come first."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                # By the columns of now: Iceberg refuses rows without a column that another job has added.
                declared = as_declared(rows, with_columns_of_now(self.spark, self.facts))
                self._log.replace(declared, since, mark)
            except SPARK_ERRORS as error:
                if not _CONFLICT.search(str(error)):
                    raise
                if attempt == ATTEMPTS:
                    raise OutputRefusedError(
                        f"commits of other jobs to {self.facts.name!r} came first {ATTEMPTS} times; run again."
                    ) from error
                time.sleep(_PAUSE * attempt)
            else:
                return

    def undo(self) -> None:
        """Commit the old rows again, unless there is no commit, or others have replaced its rows."""
        commit = self._log.find(self._mark, self._since)
        if commit is None:
            return
        old = (
            self.spark.table(self.facts.name).limit(0) if commit.before is None else self._log.rows_at(commit.before)
        )
        try:
            self._commit(old.where(self._condition), commit.version, uuid.uuid4().hex)
        except ConflictError:
            return

    def finish(self) -> None:
        """Do nothing; `release` removes what was staged."""

    def release(self) -> None:
        self._claim.release()
