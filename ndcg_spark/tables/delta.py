"""Tables of Delta Lake: slices are replaced by `writeTo(table).overwrite(condition)`, which Delta calls replaceWhere.

The writer names the table only, so neither its partitions nor its clustering, properties or columns are touched.
Delta commits all slices at once, and refuses the commit when somebody else has committed such rows since it began.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ndcg_spark.core.failures import SPARK_ERRORS, first_line
from ndcg_spark.errors import OutputRefusedError
from ndcg_spark.tables.commits import Commit, CommitLog, ConflictError
from ndcg_spark.tables.slices import slices_condition

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
    """Commits of a Delta table: from `DESCRIBE HISTORY`, or from the files of the log if there is no such command."""

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
