"""Write slices of Delta and Iceberg tables, which keep a log of their files, with one commit for all slices.

Readers see the table before the commit or after it, so nothing has to be renamed. The remaining choice is when rows
are computed. If this process and Spark share the table's folder, rows are staged as Parquet in a hidden folder of the
table, as for other local tables: all outputs of a job are computed before the first commit, writers of the same slice
exclude each other before they compute anything, and leftovers of killed writers are removed. Elsewhere nothing is
staged, and the commit computes the rows: Unity Catalog and REST catalogs allow only files of commits, and Spark
cannot delete staged files on object stores. There, an output can fail after another one was committed; the other
commit is then undone.

Undo is a commit, too: it replaces the same slices by their previous rows. A rollback to the previous version
(`RESTORE`, `rollback_to_snapshot`) would also undo commits of others to other slices.
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
    CatalogTable,
    cast_to_table,
    read_columns,
    read_current_schema,
    read_wap_setting,
    split_name,
)
from ndcg_spark.tables.claims import InProcessClaim, Reporter, claim_slices
from ndcg_spark.tables.folders import count_file_rows, stage_files
from ndcg_spark.tables.slices import Slices, SliceWrite, build_condition, count_slices, verify_counts

MAX_ATTEMPTS = 20
"""Limit of attempts when commits of others to other slices come first. Formats also retry on their own."""
_PAUSE = 0.05
_CONFLICT = re.compile(
    r"Concurrent(Append|DeleteRead|DeleteDelete|Write|Transaction|Modification)Exception|DELTA_CONCURRENT_"
    r"|MetadataChangedException|DELTA_METADATA_CHANGED|CommitFailedException|Failed to commit transaction"
)


class ConflictError(Exception):
    """Another writer committed rows of the same slices meanwhile."""


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit of this writer: its version and the version before, and whether it changed no slices of others."""

    version: int
    before: int | None
    changed_only_own_slices: bool


class CommitLog:
    """The log of a table's commits, for some of its slices."""

    def __init__(self, spark: SparkSession, table: str, folders: Sequence[str]) -> None:
        self._spark, self._table, self._folders = spark, table, folders

    @property
    def undoable(self) -> bool:
        """True if `read_rows` can read the rows from before a commit."""
        return True

    def read_version(self) -> int | None:
        """Read the current version of the table; None for a new table."""
        raise NotImplementedError

    def replace(self, rows: DataFrame, since: int | None, write_id: str) -> None:
        """Run an action: replace the slices in one commit. Raise a ConflictError if they changed after `since`."""
        raise NotImplementedError

    def find_commit(self, write_id: str, since: int | None) -> Commit | None:
        """Find the commit of a write, after the version `since`."""
        raise NotImplementedError

    def read_rows(self, version: int) -> DataFrame:
        """Read the rows of an earlier version. Lazy."""
        return self._spark.sql(f"SELECT * FROM {self._table} VERSION AS OF {version}")


class CommittedWrite(SliceWrite):
    """New rows of some slices of a table; one commit replaces all of them.

    If two writers write the same slice, one of them is refused. In a shared folder it is refused before it computes
    anything; elsewhere when it commits, because the slice has changed since it began. Writers of different slices do
    not refuse each other: a commit that comes second is tried again.
    """

    def __init__(
        self,
        spark: SparkSession,
        catalog_table: CatalogTable,
        log: CommitLog,
        slices: Slices,
        root: Path | None,
        report: Reporter,
    ) -> None:
        super().__init__(catalog_table.name, slices)
        self.spark, self.catalog_table, self._log, self.undoable = spark, catalog_table, log, log.undoable
        if root is None:
            self.claim = InProcessClaim(catalog_table.name, self.folders, catalog_table.name)
        else:
            self.claim = claim_slices(root, self.folders, report)
        self._condition, self._write_id = build_condition(self.folders), uuid.uuid4().hex
        self._since: int | None = None
        self._counts: dict[str, int] | None = None

    def stage(self, rows: DataFrame) -> None:
        """Run an action if rows can be staged: write them to this writer's own folder, and count them."""
        self._since = self._log.read_version()
        rows = cast_to_table(rows, self.catalog_table)
        if isinstance(self.claim, InProcessClaim):
            self._rows = self.slices.reject_unexpected(rows, self.reference)
            return
        staged = stage_files(rows, "parquet", self.claim)
        self.slices.check(staged, self.reference)
        self._counts = {folder: count_file_rows(self.claim.rows_folder / folder, "parquet") for folder in staged}
        reader = self.spark.read.schema(rows.schema)
        self._rows = reader.parquet(f"file://{self.claim.rows_folder}") if staged else rows.limit(0)

    def swap(self) -> None:
        """Run actions: commit the rows, and check the commit and the table."""
        name = self.reference
        try:
            self._commit(self._rows, self._since, self._write_id)
        except ConflictError as error:
            raise OutputRefusedError(f"another job wrote the same runs to {name!r} meanwhile; run again.") from error
        commit = self._log.find_commit(self._write_id, self._since)
        if commit is None and self._has_nothing_to_commit():
            return
        if commit is None or not commit.changed_only_own_slices:
            raise OutputRefusedError(f"the log of {name!r} does not confirm that only these runs were replaced.")
        if self._counts is None:
            self.slices.check(self._count_stored(), name)
        else:
            verify_counts(self.spark, name, self.folders, self._counts)

    def _count_stored(self) -> dict[str, int]:
        return count_slices(self.spark.table(self.reference).where(self._condition))

    def _has_nothing_to_commit(self) -> bool:
        """Check that there are neither new nor old rows. Delta makes no commit then."""
        if any((self._counts or {}).values()) or self.slices.may_be_empty != set(self.slices.folders):
            return False
        return not self._count_stored()

    def _commit(self, rows: DataFrame, since: int | None, write_id: str) -> None:
        """Replace the slices. Retry if commits of others to other slices come first."""
        for attempt in range(1, MAX_ATTEMPTS + 1):
            try:
                # With the current columns: Iceberg refuses rows that lack a column, and other jobs may add some.
                declared = cast_to_table(rows, read_columns(self.spark, self.catalog_table))
                self._log.replace(declared, since, write_id)
            except SPARK_ERRORS as error:
                if not _CONFLICT.search(str(error)):
                    raise
                if attempt == MAX_ATTEMPTS:
                    raise OutputRefusedError(
                        f"commits of other jobs to {self.reference!r} came first {MAX_ATTEMPTS} times; run again."
                    ) from error
                time.sleep(_PAUSE * attempt)
            else:
                return

    def undo(self) -> None:
        """Commit the old rows again, unless nothing was committed or others have replaced the rows since."""
        commit = self._log.find_commit(self._write_id, self._since)
        if commit is None:
            return
        before = commit.before
        old = self.spark.table(self.reference).limit(0) if before is None else self._log.read_rows(before)
        with suppress(ConflictError):
            self._commit(old.where(self._condition), commit.version, uuid.uuid4().hex)


_KEEPS_ROWS = re.compile(
    r"OPTIMIZE|VACUUM.*|(UN)?SET TBLPROPERTIES|(ADD|DROP|RENAME|CHANGE|REPLACE) COLUMNS?|(ADD|DROP) CONSTRAINT"
    r"|CLUSTER BY|UPGRADE PROTOCOL|COMPUTE STATS.*|REORG|CREATE TABLE"
)
"""Operations of Delta that do not change the rows of any slice."""
_LOG_FILE = re.compile(r"(\d{20})\.json")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_SLICE = re.compile(r"[A-Za-z0-9_.-]+-[0-9a-f]{8}\b")
_HISTORY_LIMIT = 100


@dataclass(frozen=True, slots=True)
class _LogEntry:
    """A commit in the log. `changed` has the slices whose files it changed; None if unknown."""

    version: int
    operation: str
    parameters: str
    write_id: str | None
    changed: frozenset[str] | None

    def touches(self, folders: Sequence[str]) -> bool:
        """Check whether the commit may have changed rows of these slices."""
        if self.changed is not None:
            return not self.changed.isdisjoint(folders)
        if _KEEPS_ROWS.fullmatch(self.operation):
            return False
        dates = _DATE.findall(_SLICE.sub("", self.parameters))  # names of data sets may be dates
        keys = [folder.removeprefix("run_date=").partition("/slice=") for folder in folders]
        is_named = any(name in self.parameters and (night in dates or not dates) for night, _, name in keys)
        return is_named or "predicate" not in self.parameters


class DeltaLog(CommitLog):
    """The log of a Delta table, read with `DESCRIBE HISTORY`, or from its files if there is no such command.

    Slices are replaced by `writeTo(table).overwrite(condition)`, which Delta calls replaceWhere. It does not change
    the table's partitions, clustering, properties or columns. Delta commits all slices at once, and refuses the
    commit if others have committed rows of these slices since it began.
    """

    def __init__(self, spark: SparkSession, table: str, folders: Sequence[str], root: Path | None) -> None:
        super().__init__(spark, table, folders)
        self._files = None if root is None else root / "_delta_log"

    def read_version(self) -> int | None:
        """Read the current version of the table. Refuse a log without commits: creating a table is one."""
        newest = next(self._list_entries(None), None)
        if newest is None:
            raise OutputRefusedError(
                f"the log of {self._table!r} has no commits, but creating a table is one: check that its _delta_log "
                "is complete, or name another table."
            )
        return newest.version

    def replace(self, rows: DataFrame, since: int | None, write_id: str) -> None:
        if any(entry.touches(self._folders) for entry in self._list_entries(since)):
            raise ConflictError
        rows.writeTo(self._table).option("userMetadata", write_id).overwrite(F.expr(build_condition(self._folders)))
        # Delta checks commits since its transaction began; others may have committed between our check and that.
        entries = list(self._list_entries(since))
        own_version = next((entry.version for entry in entries if entry.write_id == write_id), -1)
        if any(entry.version < own_version and entry.touches(self._folders) for entry in entries):
            raise ConflictError

    def find_commit(self, write_id: str, since: int | None) -> Commit | None:
        entry = next((entry for entry in self._list_entries(since) if entry.write_id == write_id), None)
        if entry is None:
            return None
        changed = entry.changed
        changed_only_own = "predicate" in entry.parameters if changed is None else changed <= set(self._folders)
        return Commit(version=entry.version, before=entry.version - 1, changed_only_own_slices=changed_only_own)

    def _list_entries(self, version: int | None) -> Iterator[_LogEntry]:
        """List the commits after a version, the newest first. None: all that the first query returns."""
        try:
            yield from self._read_history(version)
        except SPARK_ERRORS as error:
            if self._files is None:
                raise OutputRefusedError(
                    f"this Spark cannot show the history of {self._table!r} (DESCRIBE HISTORY), which a write needs: "
                    f"{first_line(error)}"
                ) from error
            yield from self._read_log_files(self._files, version)

    def _read_history(self, version: int | None) -> Iterator[_LogEntry]:
        limit = 1 if version is None else _HISTORY_LIMIT
        while True:
            rows = self._spark.sql(f"DESCRIBE HISTORY {self._table} LIMIT {limit}").collect()
            if version is None or len(rows) < limit or rows[-1]["version"] <= version:
                break
            limit *= 10
        for row in rows:
            if version is None or row["version"] > version:
                parameters = json.dumps(row["operationParameters"] or {})
                yield _LogEntry(row["version"], row["operation"], parameters, row["userMetadata"], None)

    def _read_log_files(self, files: Path, version: int | None) -> Iterator[_LogEntry]:
        matches = (_LOG_FILE.fullmatch(file.name) for file in files.iterdir())
        for number in sorted((int(match[1]) for match in matches if match), reverse=True):
            if version is not None and number <= version:
                break
            actions = [json.loads(line) for line in (files / f"{number:020d}.json").read_text().splitlines() if line]
            yield _read_entry(number, actions)


def _read_entry(version: int, actions: Sequence[dict[str, Any]]) -> _LogEntry:
    info: dict[str, Any] = next((action["commitInfo"] for action in actions if "commitInfo" in action), {})
    files = [file for action in actions for kind, file in action.items() if kind in ("add", "remove")]
    keys = [file.get("partitionValues") or {} for file in files if file.get("dataChange", True)]
    known = all({"run_date", "slice"} <= key.keys() for key in keys)
    changed = frozenset(f"run_date={key['run_date']}/slice={key['slice']}" for key in keys) if known else None
    parameters = json.dumps(info.get("operationParameters") or {})
    return _LogEntry(version, info.get("operation", ""), parameters, info.get("userMetadata"), changed)


_MAIN_BRANCH = "main"
WRITE_ID_PROPERTY = "ndcg-spark-write"
"""Property of a snapshot with the id of the write that made it."""


class IcebergLog(CommitLog):
    """The snapshots of an Iceberg table, in its main branch or in the branch that `spark.wap.branch` sets.

    Works without Iceberg's SQL extensions, branches and `write.wap.enabled`. Snapshots are not staged: publishing one
    needs a procedure, and a table without other commits since.
    """

    def __init__(self, spark: SparkSession, table: str, folders: Sequence[str]) -> None:
        # Add the schema, because `ranking.refs` could be the table `refs` of a schema `ranking`.
        super().__init__(spark, table if split_name(table)[0] else f"{read_current_schema(spark)}.{table}", folders)

    @property
    def undoable(self) -> bool:
        """True if earlier snapshots can be read. A session that writes a branch can read only this branch."""
        return self._branch == _MAIN_BRANCH

    @cached_property
    def _branch(self) -> str:
        return read_wap_setting(self._spark, self._table, "spark.wap.branch") or _MAIN_BRANCH

    def read_version(self) -> int | None:
        """Read the id of the current snapshot; that of the main branch if this write creates the branch."""
        rows = self._spark.sql(f"SELECT name, snapshot_id FROM {self._table}.refs WHERE type = 'BRANCH'").collect()
        snapshots = {row[0]: int(row[1]) for row in rows}
        return snapshots.get(self._branch, snapshots.get(_MAIN_BRANCH))

    def replace(self, rows: DataFrame, since: int | None, write_id: str) -> None:
        writer = rows.writeTo(self._table).option(f"snapshot-property.{WRITE_ID_PROPERTY}", write_id)
        writer = writer.option("isolation-level", "serializable")
        if since is not None:  # without it, Iceberg checks all snapshots of the table
            writer = writer.option("validate-from-snapshot-id", str(since))
        try:
            writer.overwrite(F.expr(build_condition(self._folders)))
        except SPARK_ERRORS as error:
            if "found conflicting" in str(error).lower():
                raise ConflictError from error
            raise

    def find_commit(self, write_id: str, since: int | None) -> Commit | None:
        del since
        row = self._spark.sql(
            f"SELECT snapshot_id, parent_id, summary['changed-partition-count'] FROM {self._table}.snapshots "
            f"WHERE summary['{WRITE_ID_PROPERTY}'] = '{write_id}'"
        ).first()
        if row is None:
            return None
        # If a snapshot does not count its changed partitions, it may have changed others, too.
        changed_only_own = row[2] is not None and int(row[2]) <= len(self._folders)
        return Commit(version=row[0], before=row[1], changed_only_own_slices=changed_only_own)
