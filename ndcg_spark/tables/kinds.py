"""What kind of table columns make, and how those of a table differ from new results. Needs no Spark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import pyarrow as pa

from ndcg_spark.core.schemas import type_text
from ndcg_spark.errors import OutputRefusedError, option
from ndcg_spark.tables.slices import PARTITIONS

if TYPE_CHECKING:
    from pyspark.sql import types as T

COMMITTED = ("delta", "iceberg")
"""Providers whose tables have commits; those of others have partitions."""
TABLE_KINDS = ("table", *COMMITTED)
"""Formats of outputs that are catalog tables: of any provider, or of this one."""


class ColumnType(NamedTuple):
    """A column and its type, as Spark names it."""

    name: str
    kind: str
    nullable: bool = True


PARTITION_COLUMNS = (ColumnType("run_date", "date"), ColumnType("slice", "string"))
Field: TypeAlias = "T.StructField | pa.Field | ColumnType"
"""A column of a schema of Spark or Arrow, or by the name of its type."""


def columns_in(schema: Iterable[Field]) -> tuple[ColumnType, ...]:
    """Name the types of columns as Spark does, whatever has the schema."""
    return tuple(field if isinstance(field, ColumnType) else _column_type(field) for field in schema)


def _column_type(field: T.StructField | pa.Field) -> ColumnType:
    if isinstance(field, pa.Field):
        return ColumnType(field.name, type_text(field.type), field.nullable)
    return ColumnType(field.name, field.dataType.simpleString(), field.nullable)


_WIDER = {"int": ("bigint",), "float": ("double",)}
"""Types that a column of a catalog table may have instead, as no value changes by the cast."""
_DATASET = "dataset"
"""The last column of a new table; columns that were added later follow it."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of table that jobs write, known by its `marks`, columns that each such table has, with values.

    User-named columns that identify rows are after the first of `keys` (None: from the first column on) and before
    the second; without `keys` there are none.
    """

    name: str
    marks: str
    keys: tuple[str | None, str] | None = None

    def keys_in(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Columns of a table that identify rows; none if their order does not show them."""
        if self.keys is None or self.keys[1] not in columns:
            return ()
        first = columns.index(self.keys[0]) + 1 if self.keys[0] in columns else 0
        return tuple(name for name in columns[first : columns.index(self.keys[1])] if name != _DATASET)


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
"""The first whose marks a table has; a kind with the marks of another and more comes before it."""


def kind_of(columns: Sequence[str]) -> Kind | None:
    """Find the kind of a table by its columns in their order, whatever was added to it; None if none of ours."""
    names = [name.lower() for name in columns]
    first = names[: names.index(_DATASET)] if _DATASET in names else names
    kinds = (kind for some in (first, names) for kind in KINDS if set(kind.marks.split()) <= set(some))
    return next(kinds, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """Columns of results that a table lacks, `added` to it, and columns of the table that results are `lacking`."""

    added: tuple[ColumnType, ...] = ()
    lacking: tuple[str, ...] = ()

    def lines(self, reference: str) -> list[str]:
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
class Grown:
    """A table that is there, and what a refusal says of it.

    `name` is such as `'./metrics'` or `table 'metrics'`, `way_out` as `write to a new folder`. `schema` has the
    columns of all nights, in the order of the table. Columns that are declared (`in_catalog`) keep their spelling and
    wider types.
    """

    name: str
    schema: Iterable[Field]
    way_out: str
    in_catalog: bool = False

    def growth(self, results: Iterable[Field], *, grow: bool) -> Growth:
        """Compare the columns with those of results, which have `dataset` and no partition columns.

        Refused are a table of another kind, and a column of another type or spelling; without `grow` any difference.
        """
        have = {column.name: column for column in columns_in(self.schema) if column.name not in PARTITIONS}
        wanted = columns_in(results)
        matches = {column.name: match_name(column.name, [*have]) for column in wanted}
        added = tuple(column for column in wanted if matches[column.name] is None)
        lacking = [column for column in have.values() if column.name not in matches.values()]
        self._check_kind([*matches], [*have])
        for column in wanted:
            match = matches[column.name]
            if match is not None:
                self._check_type(have[match], column)
        for column in lacking:
            if not column.nullable and self.in_catalog:
                raise OutputRefusedError(
                    f"column {column.name!r} of {self.name} must not be null, and these results do not have it; "
                    f"{self.way_out}."
                )
        growth = Growth(added=added, lacking=tuple(column.name for column in lacking))
        for has, names in (("has no", [column.name for column in added]), ("has a", growth.lacking)):
            if names and not grow:
                raise OutputRefusedError(
                    f"{self.name} {has} column {', '.join(map(repr, names))}, unlike these results; {self.way_out}, "
                    f"or let the table grow ({option('grow', 'True')})."
                )
        return growth

    def _check_kind(self, results: list[str], have: list[str]) -> None:
        ours, theirs = kind_of(results), kind_of(have)
        if theirs is not None and (ours is None or theirs.name != ours.name):
            what = "other results" if ours is None else f"rows of a {ours.name}"
            raise OutputRefusedError(f"{self.name} is a {theirs.name}, and these are {what}; {self.way_out}.")
        if theirs is None and ours is not None:
            raise OutputRefusedError(f"{self.name} has other columns than a {ours.name}; {self.way_out}.")
        known = {name.lower() for name in have}
        if _DATASET not in known:  # no results were ever written to it
            raise OutputRefusedError(f"{self.name} has other columns than these results; {self.way_out}.")
        keys = [ours.keys_in(names) if ours else () for names in (results, have)]
        our_keys, their_keys = ({name.lower() for name in names} for names in keys)
        if (their_keys and our_keys != their_keys) or not our_keys <= known:
            listed = [", ".join(map(repr, names)) or "other columns" for names in keys]
            raise OutputRefusedError(
                f"rows of {self.name} are identified by {listed[1]}, and those of these results by {listed[0]}; "
                f"{self.way_out}."
            )

    def _check_type(self, have: ColumnType, want: ColumnType) -> None:
        if have.name != want.name and not self.in_catalog:
            raise OutputRefusedError(
                f"column {want.name!r} is spelled {have.name!r} in {self.name}; rename it in the input, or "
                f"{self.way_out}."
            )
        if have.kind != want.kind and not (self.in_catalog and have.kind in _WIDER.get(want.kind, ())):
            raise OutputRefusedError(
                f"column {want.name!r} is {have.kind} in {self.name} and {want.kind} in these results; cast it in "
                f"the input, or {self.way_out}."
            )


def match_name(name: str, names: Sequence[str]) -> str | None:
    """Find the column of a name; else the one that differs in case, which Spark ignores."""
    return name if name in names else next((other for other in names if other.lower() == name.lower()), None)
