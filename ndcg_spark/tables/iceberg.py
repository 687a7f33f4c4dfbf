"""Tables of Apache Iceberg: slices are replaced by `writeTo(table).overwrite(condition)`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ndcg_spark.core.failures import SPARK_ERRORS
from ndcg_spark.tables.catalog import current_schema, publishes_later, split_name
from ndcg_spark.tables.commits import Commit, CommitLog, ConflictError
from ndcg_spark.tables.slices import slices_condition

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
