"""Tables that outlive their columns: which of our tables one is, and what differs from new results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import types as T

from ndcg_spark.errors import OutputRefusedError, option
from ndcg_spark.tables.slices import PARTITIONS

_WIDER = {"int": ("bigint",), "float": ("double",)}
"""Types that a column of a catalog table may have instead, as no value changes by the cast."""
_DATASET = "dataset"
"""The last column of a table when it was made; those that were added later stand behind it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of table that jobs write.

    `marks` are columns by which it is known: each table of the kind has had them from the first version on, with
    values. Columns whose names the user chooses, and which identify rows, stand after the first of `keys` (None: from
    the first column on) and before the second; no `keys`: there are no such columns.
    """

    name: str
    marks: frozenset[str]
    keys: tuple[str | None, str] | None = None

    def keys_in(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Columns of a table, in its order, that identify rows; none where the order does not show them."""
        if self.keys is None or self.keys[1] not in columns:
            return ()
        first = columns.index(self.keys[0]) + 1 if self.keys[0] in columns else 0
        return tuple(name for name in columns[first : columns.index(self.keys[1])] if name != _DATASET)


def _kind(name: str, marks: str, keys: tuple[str | None, str] | None = None) -> Kind:
    return Kind(name=name, marks=frozenset(marks.split()), keys=keys)


KINDS = (
    _kind("table of compared periods", "period period_start n_days baseline metric n_wins"),
    _kind("table of periods", "period period_start n_days metric n_queries"),
    _kind("table of flags", "night metric status rule n_nights"),
    _kind("table of business links", "metric rate n_nights n_changes"),
    _kind("comparison table", "baseline segment_by metric n_wins n_losses"),
    _kind("metric table", "segment_by metric n_queries n_no_relevant n_left_out"),
    _kind("table of click estimates", "segment_by n_queries n_impressions n_eff"),
    _kind("per-query table", "k status n_items n_relevant", ("run", "k")),
    _kind("run log", "run_id command status started_at"),
    _kind("table of rejected rows", "source reason row"),
    _kind("table of propensities", "position propensity n_clicks"),
    _kind("table of rankings", "score rank", (None, "score")),
    _kind("judgments table", "relevance", (None, "relevance")),
)
"""The first whose marks a table has; where one has the marks of another and more, it stands before it."""


def kind_of(columns: Sequence[str]) -> Kind | None:
    """Tell which of our tables one is, by its columns in their order; None: it is none of ours.

    A table to which columns of another kind were added is still of its own.
    """
    names = [one.lower() for one in columns]
    first = names[: names.index(_DATASET)] if _DATASET in names else names
    for some in (set(first), set(names)):
        for kind in KINDS:
            if kind.marks <= some:
                return kind
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """How results differ from the table that they go to: columns `added` to it, and those that they are `lacking`."""

    added: tuple[T.StructField, ...] = ()
    lacking: tuple[str, ...] = ()

    def lines(self, reference: str) -> list[str]:
        """Say what becomes of these columns."""
        found = []
        if self.added:
            names = ", ".join(repr(one.name) for one in self.added)
            what, is_null = ("columns", "they are") if len(self.added) > 1 else ("column", "it is")
            verb = is_null.split()[1]
            found.append(f"{what} {names} {verb} added to {reference!r}; {is_null} null for earlier nights")
        if self.lacking:
            names, is_null = ", ".join(map(repr, self.lacking)), "they are" if len(self.lacking) > 1 else "it is"
            found.append(f"this night has no {names} of {reference!r}; {is_null} null")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Grown:
    """A table that is there, and what a refusal says of it.

    `name` is such as `'./metrics'` or `table 'metrics'`, `way_out` as `write to a new folder`. `schema` has the
    columns of all nights, in the order of the table. Columns that are declared (`in_catalog`) keep their spelling and
    wider types.
    """

    name: str
    schema: T.StructType
    way_out: str
    in_catalog: bool = False

    def growth(self, results: T.StructType, *, grow: bool) -> Growth:
        """Compare the columns with those of results, and refuse what no new column can settle.

        Results have `dataset`, and no partition columns. Refused are a table of another kind, and a column of another
        type or spelling; without `grow` also one that is new or lacking.
        """
        have = [one for one in self.schema if one.name not in PARTITIONS]
        pairs = {one.name: self._alike(one.name, have) for one in results}
        taken = {one.name for one in pairs.values() if one is not None}
        added = tuple(one for one in results if pairs[one.name] is None)
        lacking = tuple(one for one in have if one.name not in taken)
        self._check_kind(results, [one.name for one in have])
        for one in results:
            self._check_type(pairs[one.name], one)
        for one in lacking:
            if not one.nullable and self.in_catalog:
                raise OutputRefusedError(
                    f"column {one.name!r} of {self.name} must not be null, and these results do not have it; "
                    f"{self.way_out}."
                )
        found = Growth(added=added, lacking=tuple(one.name for one in lacking))
        if not grow:
            self._refuse(found)
        return found

    def _refuse(self, growth: Growth) -> None:
        parts = (("has no", [one.name for one in growth.added]), ("has a", growth.lacking))
        for has, names in parts:
            if names:
                raise OutputRefusedError(
                    f"{self.name} {has} column {', '.join(map(repr, names))}, unlike these results; {self.way_out}, "
                    f"or let the table grow ({option('grow', 'True')})."
                )

    def _alike(self, name: str, have: Sequence[T.StructField]) -> T.StructField | None:
        """The column of a name; else one that Spark takes for it, as it does not mind the case."""
        exact = next((one for one in have if one.name == name), None)
        return exact or next((one for one in have if one.name.lower() == name.lower()), None)

    def _check_kind(self, results: T.StructType, have: list[str]) -> None:
        names = results.fieldNames()
        ours, theirs = kind_of(names), kind_of(have)
        if theirs is not None and (ours is None or theirs.name != ours.name):
            what = "other results" if ours is None else f"rows of a {ours.name}"
            raise OutputRefusedError(f"{self.name} is a {theirs.name}, and these are {what}; {self.way_out}.")
        if theirs is None and ours is not None:
            raise OutputRefusedError(f"{self.name} has other columns than a {ours.name}; {self.way_out}.")
        if _DATASET not in (one.lower() for one in have):  # no results were ever written to it
            raise OutputRefusedError(f"{self.name} has other columns than these results; {self.way_out}.")
        if ours is None:
            return
        keys = ours.keys_in(names), ours.keys_in(have)
        lowered = [{name.lower() for name in some} for some in keys]
        known = {name.lower() for name in have}
        if (lowered[1] and lowered[0] != lowered[1]) or not lowered[0] <= known:
            listed = [", ".join(map(repr, some)) or "other columns" for some in keys]
            raise OutputRefusedError(
                f"rows of {self.name} are identified by {listed[1]}, and those of these results by {listed[0]}; "
                f"{self.way_out}."
            )

    def _check_type(self, have: T.StructField | None, want: T.StructField) -> None:
        if have is None:
            return
        if have.name != want.name and not self.in_catalog:
            raise OutputRefusedError(
                f"column {want.name!r} is spelled {have.name!r} in {self.name}; rename it in the input, or "
                f"{self.way_out}."
            )
        if self._differ(have.dataType, want.dataType):
            raise OutputRefusedError(
                f"column {want.name!r} is {have.dataType.simpleString()} in {self.name} and "
                f"{want.dataType.simpleString()} in these results; cast it in the input, or {self.way_out}."
            )

    def _differ(self, have: T.DataType, want: T.DataType) -> bool:
        wider = _WIDER.get(want.simpleString(), ()) if self.in_catalog else ()
        return have.simpleString() not in (want.simpleString(), *wider)
