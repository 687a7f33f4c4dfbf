"""Counts of the bad rows of a table by reason, from either engine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCount:
    """Rows of a table: number read, number rejected by reason, and the key of one example of each reason."""

    read: int
    rejected: dict[str, int]
    examples: dict[str, str]


def describe_bad_rows(counted: RowCount, table: str) -> str:
    """Describe in a line how many rows of a table are bad, with reasons and examples."""
    total = sum(counted.rejected.values())
    parts = [f"{reason} {n} (e.g. {counted.examples[reason]})" for reason, n in counted.rejected.items()]
    return f"{total} bad row{'s' if total != 1 else ''} of {counted.read} in the {table}: {'; '.join(parts)}"
