"""Accounts of rows: how many were read and rejected, and why a run is refused."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any, Protocol

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark.core.bad_rows import RowCount, count_rows, describe_bad_rows, rejects_table
from ndcg_spark.core.failures import refusal_text
from ndcg_spark.errors import InputRefusedError, NdcgSparkError

REJECT_SCHEMA = T.StructType([T.StructField(name, T.StringType()) for name in ("source", "reason", "row", "run")])


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounts:
    """Rows of the first table read and rejected, by reason; the same of the judgments, for the report.

    `with_rejects` names the tables that have bad rows.
    """

    read: int
    rejected: dict[str, int]
    judgments: dict[str, Any] | None
    with_rejects: frozenset[str]


class Checked(Protocol):
    """Tables of a job whose rows may be bad."""

    def checked(self, *, originals: bool) -> dict[str, DataFrame]:
        """Reasons why rows are bad, by the name of their table; lazy."""

    def advice(self, message: str) -> str:
        """Say what a refusal of rows says, with the way out as users of the command line have it."""


def account(inputs: Checked, limit: float | None, all_valid: int | None = None) -> Accounts:
    """Count the rows of each table by reason, and refuse when too many are bad. Runs an action for each table.

    `limit` is the largest share of the rows of a table that may be bad. With `all_valid`, the number of rows of a
    first table that is known to have no bad ones, that table is not read.
    """
    tables, counted = inputs.checked(originals=False), {}
    if all_valid is not None:
        counted[next(iter(tables))] = RowCount(read=all_valid, rejected={}, examples={})
    counted |= {name: count_rows(rows) for name, rows in tables.items() if name not in counted}
    for name, found in counted.items():
        bad = sum(found.rejected.values())
        if limit is not None and bad > limit * found.read:
            raise InputRefusedError(
                f"{describe_bad_rows(found, name)}; that is more than --max-reject-fraction {limit:g}. "
                "Nothing was written."
            )
    main, judgments = next(iter(counted.values())), counted.get("judgments")
    return Accounts(
        read=main.read,
        rejected=main.rejected,
        judgments=None if judgments is None else {"read": judgments.read, "rejected": judgments.rejected},
        with_rejects=frozenset(name for name, found in counted.items() if found.rejected),
    )


def written_rejects(inputs: Checked, accounts: Accounts | None) -> DataFrame:
    """Bad rows of all tables, as they are written; lazy. A table that has none is not read again.

    Columns: `run` (empty), `source`, `reason`, `row`. Without `accounts` it is not known which have none, and all are
    read.
    """
    found = {name: rejects_table(rows, name) for name, rows in inputs.checked(originals=True).items()}
    parts = [
        rows if accounts is None or name in accounts.with_rejects else rows.limit(0) for name, rows in found.items()
    ]
    return reduce(DataFrame.unionByName, parts).withColumn("run", F.lit(""))


def refusal_of(error: Exception, inputs: Checked) -> NdcgSparkError | None:
    """Find the refusal in an error; None where it is a crash. Runs an action a table when the cause is bad rows."""
    if isinstance(error, NdcgSparkError):
        return error
    message = refusal_text(error)
    if message is None:
        return None
    tables = inputs.checked(originals=False) if message.startswith("bad row:") else {}
    if not tables:
        return InputRefusedError(f"{inputs.advice(message).rstrip('.')}. Nothing was written.")
    found = []
    for name, rows in tables.items():
        counted = count_rows(rows)
        if counted.rejected:
            found.append(describe_bad_rows(counted, name))
    advice = "Nothing was written; --on-invalid reject leaves such rows out."
    return InputRefusedError(f"{'; '.join(found) or message}. {advice}")
