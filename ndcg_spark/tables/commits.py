"""Slices of Delta and Iceberg tables, which keep a log of their files: one commit replaces all slices of a write.

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

import json
import re
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ndcg_spark.core.failures import SPARK_ERRORS, first_line
from ndcg_spark.errors import OutputRefusedError
from ndcg_spark.tables.catalog import (
    TableFacts,
    cast_to_table,
    current_schema,
    publishes_later,
    read_columns,
    split_name,
)
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


_ROWS_STAY = re.compile(
    r"OPTIMIZE|VACUUM.*|(UN)?SET TBLPROPERTIES|(ADD|DROP|RENAME|CHANGE|REPLACE) COLUMNS?|(ADD|DROP) CONSTRAINT"
    r"|CLUSTER BY|UPGRADE PROTOCOL|COMPUTE STATS.*|REORG|CREATE TABLE"
)
"""Operations after which every slice has the rows that it had before."""
_FILE = re.compile(r"(\d{20})\.json")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_SLICE = re.compile(r"[A-Za-z0-9_.-]+-[0-9a-f]{8}\b")
_LOOK_BACK = 100


@dataclass(frozen=True, slots=True)
class _Entry:
    """A commit in the log, and the slices whose files it changed, if known."""

    version: int
    operation: str
    parameters: str
    mark: str | None
    changed: frozenset[str] | None

    def touches(self, folders: Sequence[str]) -> bool:
        """Check whether rows of some slices may have changed."""
        if self.changed is not None:
            return not self.changed.isdisjoint(folders)
        if _ROWS_STAY.fullmatch(self.operation):
            return False
        dates = _DATE.findall(_SLICE.sub("", self.parameters))  # data sets may be called by dates
        keys = [folder.removeprefix("run_date=").partition("/slice=") for folder in folders]
        named = any(name in self.parameters and (night in dates or not dates) for night, _, name in keys)
        return named or "predicate" not in self.parameters


class DeltaLog(CommitLog):
    """Commits of a Delta table: from `DESCRIBE HISTORY`, or from the files of the log if there is no such command.

    Slices are replaced by `writeTo(table).overwrite(condition)`, which Delta calls replaceWhere. The writer names the
    table only, so neither its partitions nor its clustering, properties or columns are touched. Delta commits all
    slices at once, and refuses the commit when somebody else has committed such rows since it began.
    """

    def __init__(self, spark: SparkSession, table: str, folders: Sequence[str], root: Path | None) -> None:
        super().__init__(spark, table, folders)
        self._files = None if root is None else root / "_delta_log"

    def version(self) -> int | None:
        """Version of the table now. A log without commits is refused: a table has one from the start."""
        newest = next(self._since(None), None)
        if newest is None:
            raise OutputRefusedError(
                f"the log of {self._table!r} shows no commit, of which a table has one from the start: look whether "
                "its _delta_log is whole, or name another table."
            )
        return newest.version

    def replace(self, rows: DataFrame, since: int | None, mark: str) -> None:
        if any(entry.touches(self._folders) for entry in self._since(since)):
            raise ConflictError
        rows.writeTo(self._table).option("userMetadata", mark).overwrite(F.expr(slices_condition(self._folders)))
        # Delta knows of commits since its transaction began; one may have come between our look and that.
        entries = list(self._since(since))
        ours = next((entry.version for entry in entries if entry.mark == mark), -1)
        if any(entry.version < ours and entry.touches(self._folders) for entry in entries):
            raise ConflictError

    def find(self, mark: str, since: int | None) -> Commit | None:
        entry = next((entry for entry in self._since(since) if entry.mark == mark), None)
        if entry is None:
            return None
        changed = entry.changed
        alone = "predicate" in entry.parameters if changed is None else changed <= set(self._folders)
        return Commit(version=entry.version, before=entry.version - 1, alone=alone)

    def _since(self, version: int | None) -> Iterator[_Entry]:
        """Commits after a version, the newest first; all where there is None."""
        try:
            yield from self._history(version)
        except SPARK_ERRORS as error:
            if self._files is None:
                raise OutputRefusedError(
                    f"this Spark shows no history of {self._table!r} (DESCRIBE HISTORY), which a safe write needs: "
                    f"{first_line(error)}"
                ) from error
            yield from self._logged(self._files, version)

    def _history(self, version: int | None) -> Iterator[_Entry]:
        limit = 1 if version is None else _LOOK_BACK
        while True:
            rows = self._spark.sql(f"DESCRIBE HISTORY {self._table} LIMIT {limit}").collect()
            if version is None or len(rows) < limit or rows[-1]["version"] <= version:
                break
            limit *= 10
        for row in rows:
            if version is None or row["version"] > version:
                parameters = json.dumps(row["operationParameters"] or {})
                yield _Entry(row["version"], row["operation"], parameters, row["userMetadata"], None)

    def _logged(self, files: Path, version: int | None) -> Iterator[_Entry]:
        matches = (_FILE.fullmatch(file.name) for file in files.iterdir())
        for number in sorted((int(match[1]) for match in matches if match), reverse=True):
            if version is not None and number <= version:
                break
            actions = [json.loads(line) for line in (files / f"{number:020d}.json").read_text().splitlines() if line]
            yield _read_entry(number, actions)


def _read_entry(version: int, actions: Sequence[dict[str, Any]]) -> _Entry:
    info: dict[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
    files = [file for action in actions for kind, file in action.items() if kind in ("add", "remove")]
    keys = [file.get("partitionValues") or {} for file in files if file.get("dataChange", True)]
    known = all({"run_date", "slice"} <= key.keys() for key in keys)
    changed = frozenset(f"run_date={key['run_date']}/slice={key['slice']}" for key in keys) if known else None
    parameters = json.dumps(info.get("operationParameters") or {})
    return _Entry(version, info.get("operation", ""), parameters, info.get("userMetadata"), changed)


_MAIN = "main"
MARK = "ndcg-spark-write"
"""Property of a snapshot that names the write which made it."""


class IcebergLog(CommitLog):
    """Snapshots of an Iceberg table: of its main branch, or of that which `spark.wap.branch` lets a session write.

    Needs no SQL extensions of Iceberg, and neither branches nor `write.wap.enabled`: publishing a staged snapshot
    needs both a procedure and a table on which nobody else has committed since.
    """

    def __init__(self, spark: SparkSession, table: str, folders: Sequence[str]) -> None:
        # The schema is named, too: `ranking.refs` would be the table `refs` of a schema `ranking`.
        super().__init__(spark, table if split_name(table)[0] else f"{current_schema(spark)}.{table}", folders)

    @property
    def undoable(self) -> bool:
        """Whether earlier snapshots can be read: a session that writes a branch reads nothing else."""
        return self._branch == _MAIN

    @cached_property
    def _branch(self) -> str:
        return publishes_later(self._spark, self._table, "spark.wap.branch") or _MAIN

    def version(self) -> int | None:
        """Id of the current snapshot; that of main if the branch begins with this write."""
        rows = self._spark.sql(f"SELECT name, snapshot_id FROM {self._table}.refs WHERE type = 'BRANCH'").collect()
        snapshots = {row[0]: int(row[1]) for row in rows}
        return snapshots.get(self._branch, snapshots.get(_MAIN))

    def replace(self, rows: DataFrame, since: int | None, mark: str) -> None:
        writer = rows.writeTo(self._table).option(f"snapshot-property.{MARK}", mark)
        writer = writer.option("isolation-level", "serializable")
        if since is not None:  # else all snapshots of the table are looked at
            writer = writer.option("validate-from-snapshot-id", str(since))
        try:
            writer.overwrite(F.expr(slices_condition(self._folders)))
        except SPARK_ERRORS as error:
            if "ound conflicting" in str(error):
                raise ConflictError from error
            raise

    def find(self, mark: str, since: int | None) -> Commit | None:
        del since
        row = self._spark.sql(
            f"SELECT snapshot_id, parent_id, summary['changed-partition-count'] FROM {self._table}.snapshots "
            f"WHERE summary['{MARK}'] = '{mark}'"
        ).first()
        if row is None:
            return None
        # A snapshot need not say how many partitions it changed; then nobody knows that it was these alone.
        alone = row[2] is not None and int(row[2]) <= len(self._folders)
        return Commit(version=row[0], before=row[1], alone=alone)
