"""Recognize kinds of tables by their columns, and compare the columns of a table with new results. Without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import pyarrow as pa

from ndcg_spark.core.schemas import format_type
from ndcg_spark.errors import OutputRefusedError, option
from ndcg_spark.tables.slices import PARTITIONS

if TYPE_CHECKING:
    from pyspark.sql import types as T

COMMITTED = ("delta", "iceberg")
"""Providers whose tables have commits; those of others have partitions."""
TABLE_KINDS = ("table", *COMMITTED)
"""Formats of outputs that are catalog tables. `table` stands for any provider."""


class ColumnType(NamedTuple):
    """A column and its type, as Spark names it."""

    name: str
    kind: str
    nullable: bool = True


PARTITION_COLUMNS = (ColumnType("run_date", "date"), ColumnType("slice", "string"))
Field: TypeAlias = "T.StructField | pa.Field | ColumnType"
"""A column of a schema of Spark or Arrow, or by the name of its type."""


def list_columns(schema: Iterable[Field]) -> tuple[ColumnType, ...]:
    """List the columns of a schema of Spark or Arrow, with Spark's names of their types."""
    return tuple(field if isinstance(field, ColumnType) else _to_column_type(field) for field in schema)


def _to_column_type(field: T.StructField | pa.Field) -> ColumnType:
    if isinstance(field, pa.Field):
        return ColumnType(field.name, format_type(field.type), field.nullable)
    return ColumnType(field.name, field.dataType.simpleString(), field.nullable)


_WIDER_TYPES = {"int": ("bigint",), "float": ("double",)}
"""Wider types that a column of a catalog table may have: the cast changes no value."""
_DATASET = "dataset"
"""The last column of a new table; columns that were added later follow it."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of table that jobs write. It is recognized by its `typical_columns`, separated by spaces.

    The columns that identify rows have names of the user. They are between the two columns `keys` (None as the first:
    from the start of the table). Without `keys` there are no such columns.
    """

    name: str
    typical_columns: str
    keys: tuple[str | None, str] | None = None

    def find_keys(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Return the columns of a table that identify rows; none if the column order does not show them."""
        if self.keys is None or self.keys[1] not in columns:
            return ()
        start = columns.index(self.keys[0]) + 1 if self.keys[0] in columns else 0
        return tuple(column for column in columns[start : columns.index(self.keys[1])] if column != _DATASET)


KINDS = (
    Kind("table of compared periods", "period period_start n_days baseline metric n_wins"),
    Kind("table of periods", "period period_start n_days metric n_queries"),
    Kind("table of flags", "night metric status rule n_nights"),
    Kind("table of business links", "metric rate n_nights n_changes"),
    Kind("comparison table", "baseline segment_by metric n_wins n_losses"),
    Kind("metric table", "segment_by metric n_queries n_no_relevant n_left_out"),
    Kind("table of click estimates", "segment_by n_queries n_impressions n_eff"),
    Kind("per-query table", "k status n_items n_relevant", ("run", "k")),
    Kind("run log", "run_id command status started_at"),
    Kind("table of rejected rows", "source reason row"),
    Kind("table of propensities", "position propensity n_clicks"),
    Kind("table of rankings", "score rank", (None, "score")),
    Kind("judgments table", "relevance", (None, "relevance")),
)
"""Kinds in order of precedence: a kind with more typical columns comes before a kind with a subset of them."""


def find_kind(columns: Sequence[str]) -> Kind | None:
    """Find the kind of a table by its columns in order, ignoring added columns; None for other tables."""
    names = [name.lower() for name in columns]
    result_names = names[: names.index(_DATASET)] if _DATASET in names else names
    kinds = (
        kind
        for candidates in (result_names, names)
        for kind in KINDS
        if set(kind.typical_columns.split()) <= set(candidates)
    )
    return next(kinds, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """The difference between results and a table: columns `added` to the table, and columns that results lack."""

    added: tuple[ColumnType, ...] = ()
    lacking: tuple[str, ...] = ()

    def format_lines(self, reference: str) -> list[str]:
        lines = []
        if self.added:
            s, they, are = ("s", "they", "are") if len(self.added) > 1 else ("", "it", "is")
            names = ", ".join(repr(column.name) for column in self.added)
            lines.append(f"column{s} {names} {are} added to {reference!r}; {they} {are} null for earlier nights")
        if self.lacking:
            names, they_are = ", ".join(map(repr, self.lacking)), "they are" if len(self.lacking) > 1 else "it is"
            lines.append(f"this night has no {names} of {reference!r}; {they_are} null")
        return lines


@dataclass(frozen=True, slots=True, kw_only=True)
class ExistingTable:
    """An existing table that results are written to.

    `name` (such as `'./metrics'` or `table 'metrics'`) and `hint` (such as `write to a new folder`) are for
    messages. `schema` has the columns of all nights, in the order of the table. A catalog table (`in_catalog`) keeps
    the spelling and wider types of its columns.
    """

    name: str
    schema: Iterable[Field]
    hint: str
    in_catalog: bool = False

    def compare(self, results: Iterable[Field], *, grow: bool) -> Growth:
        """Compare the columns with those of results, which include `dataset` and no partition columns.

        Refuse a table of another kind, and a column of another type or spelling; without `grow`, any difference.
        """
        existing = {column.name: column for column in list_columns(self.schema) if column.name not in PARTITIONS}
        new_columns = list_columns(results)
        matches = {column.name: match_name(column.name, [*existing]) for column in new_columns}
        added = tuple(column for column in new_columns if matches[column.name] is None)
        lacking = [column for column in existing.values() if column.name not in matches.values()]
        self._check_kind([*matches], [*existing])
        for column in new_columns:
            match = matches[column.name]
            if match is not None:
                self._check_type(existing[match], column)
        for column in lacking:
            if not column.nullable and self.in_catalog:
                raise OutputRefusedError(
                    f"column {column.name!r} of {self.name} must not be null, and these results do not have it; "
                    f"{self.hint}."
                )
        growth = Growth(added=added, lacking=tuple(column.name for column in lacking))
        for verb, names in (("has no", [column.name for column in added]), ("has a", growth.lacking)):
            if names and not grow:
                raise OutputRefusedError(
                    f"{self.name} {verb} column {', '.join(map(repr, names))}, unlike these results; {self.hint}, "
                    f"or let the table grow ({option('grow', 'True')})."
                )
        return growth

    def _check_kind(self, results: list[str], existing: list[str]) -> None:
        ours, theirs = find_kind(results), find_kind(existing)
        if theirs is not None and (ours is None or theirs.name != ours.name):
            described = "other results" if ours is None else f"rows of a {ours.name}"
            raise OutputRefusedError(f"{self.name} is a {theirs.name}, and these are {described}; {self.hint}.")
        if theirs is None and ours is not None:
            raise OutputRefusedError(f"{self.name} has other columns than a {ours.name}; {self.hint}.")
        existing_names = {name.lower() for name in existing}
        if _DATASET not in existing_names:  # no results were ever written to it
            raise OutputRefusedError(f"{self.name} has other columns than these results; {self.hint}.")
        keys = [ours.find_keys(names) if ours else () for names in (results, existing)]
        our_keys, their_keys = ({name.lower() for name in names} for names in keys)
        if (their_keys and our_keys != their_keys) or not our_keys <= existing_names:
            key_texts = [", ".join(map(repr, names)) or "other columns" for names in keys]
            raise OutputRefusedError(
                f"rows of {self.name} are identified by {key_texts[1]}, but these results by {key_texts[0]}; "
                f"{self.hint}."
            )

    def _check_type(self, existing: ColumnType, new: ColumnType) -> None:
        if existing.name != new.name and not self.in_catalog:
            raise OutputRefusedError(
                f"column {new.name!r} is spelled {existing.name!r} in {self.name}; rename it in the input, or "
                f"{self.hint}."
            )
        if existing.kind != new.kind and not (self.in_catalog and existing.kind in _WIDER_TYPES.get(new.kind, ())):
            raise OutputRefusedError(
                f"column {new.name!r} is {existing.kind} in {self.name} and {new.kind} in these results; cast it in "
                f"the input, or {self.hint}."
            )


def match_name(name: str, names: Sequence[str]) -> str | None:
    """Find the column with a name, or one that differs only in case, which Spark ignores; None if there is none."""
    return (
        name if name in names else next((candidate for candidate in names if candidate.lower() == name.lower()), None)
    )
