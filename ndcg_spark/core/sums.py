"""Sums by group: of counts, and of the limbs of exact sums, held by a worker until they are too many."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ndcg_spark.core.batches import int_values
from ndcg_spark.core.exact import Limbs
from ndcg_spark.core.ragged import IntArray

STATE_TYPE = pa.list_(pa.int64())
_LIMB = "\0"
"""Between a name and the place of a limb in the names of columns: no column of a user has it."""
_MAX_PARTS = 32
"""Tables that are held before they are added up into one."""


class GroupSums:
    """Sums of whole numbers by `keys`. Batches need not have the same numbers: what one lacks is 0.

    >>> sums = GroupSums(["run"], limit=100)
    >>> sums.add({"run": pa.array(["a", "b", "a"])}, {"n": np.array([1, 2, 3])})
    >>> sums.add({"run": pa.array(["b"])}, {"m": np.array([5])})
    >>> [table.to_pylist() for table in sums.flush(at_end=True)]
    [[{'run': 'a', 'n': 4, 'm': 0}, {'run': 'b', 'n': 2, 'm': 5}]]
    """

    def __init__(self, keys: Sequence[str], limit: int) -> None:
        self.keys = list(keys)
        self._limit = limit
        self._parts: list[pa.Table] = []
        self._totals: dict[tuple[Any, ...], dict[str, int]] = {}
        self._types: list[pa.DataType] = []

    def add(self, keys: Mapping[str, pa.Array], numbers: Mapping[str, IntArray]) -> None:
        """Add numbers of rows by their keys, which may be more than those of the groups."""
        columns = [keys[name] for name in self.keys]
        if not len(columns[0]):
            return
        self._types = [column.type for column in columns]
        if all(_is_constant(column) for column in reversed(columns)):  # grouping takes several times as long
            totals = self._totals.setdefault(tuple(column[0].as_py() for column in columns), {})
            for name, values in numbers.items():
                totals[name] = totals.get(name, 0) + int(values.sum())
        else:
            self._parts.append(self._aggregate(pa.table(dict(zip(self.keys, columns, strict=True)) | dict(numbers))))
        if len(self._parts) > _MAX_PARTS or self._n_groups > self._limit:
            self._merge()

    def flush(self, *, at_end: bool = False) -> Iterator[pa.Table]:
        """Hand over all groups if they are more than `limit`, or at the end."""
        if self._n_groups > (0 if at_end else self._limit):
            if self._totals:
                self._parts.append(self._totals_table())
            self._merge()
            (table,), self._parts, self._totals = self._parts, [], {}
            columns = dict(zip(table.column_names, table.columns, strict=True))
            yield pa.table(
                {name: column if name in self.keys else pc.fill_null(column, 0) for name, column in columns.items()}
            )

    @property
    def _n_groups(self) -> int:
        """Groups held, some of which may be counted twice."""
        return sum(map(len, [self._totals, *self._parts]))

    def _totals_table(self) -> pa.Table:
        names = dict.fromkeys(name for totals in self._totals.values() for name in totals)
        types = [*zip(self.keys, self._types, strict=True), *((name, pa.int64()) for name in names)]
        rows = [dict(zip(self.keys, group, strict=True)) | totals for group, totals in self._totals.items()]
        return pa.Table.from_pylist(rows, pa.schema(types))

    def _merge(self) -> None:
        if len(self._parts) > 1:
            self._parts = [self._aggregate(pa.concat_tables(self._parts, promote_options="default"))]

    def _aggregate(self, rows: pa.Table) -> pa.Table:
        numbers = rows.column_names[len(self.keys) :]
        grouped = rows.group_by(self.keys, use_threads=False).aggregate([(name, "sum") for name in numbers])
        return grouped.select([*self.keys, *(f"{name}_sum" for name in numbers)]).rename_columns(rows.column_names)


def _is_constant(column: pa.Array) -> bool:
    if column.null_count:
        return bool(column.null_count == len(column))
    if not (pa.types.is_string(column.type) or pa.types.is_integer(column.type)):
        return False
    return bool(pc.all(pc.equal(column, column[0])).as_py())


def limb_columns(name: str, limbs: Limbs) -> dict[str, IntArray]:
    """Name limbs by their place in a state, as columns of a table."""
    return {f"{name}{_LIMB}{place}": limb for place, limb in limbs.items()}


def read_limbs(table: pa.Table, name: str) -> Limbs:
    """Read the columns that `limb_columns` named."""
    start = f"{name}{_LIMB}"
    return {
        int(column.removeprefix(start)): int_values(table.column(column))
        for column in table.column_names
        if column.startswith(start)
    }


def read_states(column: pa.Array, size: int) -> list[IntArray]:
    """Read a column of lists of states: those of each row, shape (n_states, size)."""
    return [int_values(states.values.flatten()).reshape(-1, size) for states in column]


def merge_states(rows: Sequence[IntArray], size: int) -> IntArray:
    """Add up the states of each row of `read_states`, shape (n_rows, size)."""
    return np.array([states.sum(axis=0) for states in rows], dtype=np.int64).reshape(-1, size)
