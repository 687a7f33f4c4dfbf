"""Series of nights: one list per series, in order of the nights."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import Any

import pyarrow as pa

from ndcg_spark.errors import InputRefusedError
from ndcg_spark.evaluation.rules import RULES, combine_rules
from ndcg_spark.evaluation.settings import shown_metric
from ndcg_spark.history.settings import EPOCH

SERIES = ("run", "segment_by", "segment", "metric", "k")
"""What a series is of: the keys of a metric table within a night and data set."""


_KINDS: dict[str, pa.DataType] = {
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "date": pa.date32(),
    "array<date>": pa.list_(pa.date32()),
}
SERIES_COLUMNS = {name: "int" if name == "k" else "string" for name in SERIES}


def arrow_schema(columns: Mapping[str, str], more: Mapping[str, pa.DataType] = {}) -> pa.Schema:
    """Schema of columns whose types are named as Spark names them; `more` has types that are not in the list."""
    return pa.schema([(name, more.get(kind) or _KINDS[kind]) for name, kind in columns.items()])


def date_of(day: int) -> date:
    """Date of a day that is counted from 1970."""
    return EPOCH + timedelta(days=int(day))


def series_name(series: dict[str, Any]) -> str:
    """Name a series for a person: `ndcg@10 of run 'bm25', country=DE`; one of pairs of runs says against which."""
    against = f" against {series['baseline']!r}" if "baseline" in series else ""
    run = f"run {series['run']!r}{against}, " if series["run"] or against else ""
    by = series["segment_by"]
    segment = f"{by}={'null' if series['segment'] is None else series['segment']}" if by else "overall"
    return f"{shown_metric(series)} of {run}{segment}"


def in_order(
    series: dict[str, Any], nights: Sequence[dict[str, Any]], *, keep: str = "one data set"
) -> list[dict[str, Any]]:
    """Sort the nights of a series by `day`; refuse a night that comes twice.

    `keep` is what the message advises to keep the rows of.
    """
    ordered = sorted(nights, key=lambda one: int(one["day"]))
    for one, following in itertools.pairwise(ordered):
        if one["day"] == following["day"]:
            raise InputRefusedError(
                f"{series_name(series)} has two rows for the night {date_of(one['day'])}; keep the rows of {keep}."
            )
    return ordered


def series_rules(series: dict[str, Any], nights: Sequence[dict[str, Any]], *, across: bool) -> str | None:
    """Combine the rules of the nights of a series, which must be the same unless `across`."""
    return combine_rules((night[RULES] for night in nights), series_name(series), across=across)


def common_value(nights: Sequence[dict[str, Any]], column: str) -> Any:
    """Value of a column that all nights have; None where they differ."""
    first = nights[0][column]
    return first if all(night[column] == first for night in nights) else None


def require_same(series: dict[str, Any], nights: Sequence[dict[str, Any]], column: str) -> None:
    """Refuse a series whose ordered nights were not all computed in the same way, as a column says."""
    for one, following in itertools.pairwise(nights):
        if one[column] != following[column]:
            raise InputRefusedError(
                f"{series_name(series)} was computed in two ways: {column} {one[column]} on "
                f"{date_of(one['day'])}, {following[column]} on {date_of(following['day'])}; "
                f"keep the rows of one {column}."
            )
