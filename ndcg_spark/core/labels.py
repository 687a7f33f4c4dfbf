"""Texts by which people recognise segments, metrics, cutoffs, numbers and rows, and the order in which they see them.

Names that end in `_column` or `_columns` do the same as columns of Spark, in tables with the columns of a summary.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column

ASKED = "asked"
"""Column of results: the name by which a user asked for the metric."""
OVERALL = "overall"
"""The segment of all queries."""
SHOWN_FIRST = ("ndcg", "dcg", "idcg", "ndcg_best", "ndcg_worst", "tied_share")
"""Metrics that come before all others: NDCG and what comes with it."""

Row = Mapping[str, Any]


def text(value: object) -> str:
    return "null" if value is None else str(value)


def key(values: Mapping[str, object]) -> str:
    """Name a row by its keys.

    >>> key({"query_id": 7, "item_id": None})
    'query_id=7, item_id=null'
    """
    return ", ".join(f"{name}={text(value)}" for name, value in values.items())


def key_column(columns: Iterable[str], names: Mapping[str, str] = {}) -> Column:
    """Name a row by its keys, as `key` does; `names` are what people call the columns that they know by others."""
    from pyspark.sql import functions as F

    from ndcg_spark.core.columns import named

    parts = [
        F.concat(F.lit(f"{names.get(column, column)}="), F.coalesce(named(column).cast("string"), F.lit("null")))
        for column in columns
    ]
    return F.concat_ws(", ", *parts)


def cutoff(k: int | None) -> str:
    """Name a cutoff: `10`, or `all` for the whole list."""
    return "all" if k is None else str(k)


def top(k: int | None) -> str:
    """Say where the items up to a cutoff are: `among the first 10`."""
    return "in the lists" if k is None else f"among the first {k}"


def metric_at(metric: object, k: int | None) -> str:
    """Name a metric at a cutoff: `recall@5`, `ap@all`."""
    return f"{metric}@{cutoff(k)}"


def metric_at_column() -> Column:
    from pyspark.sql import functions as F

    return F.concat_ws("@", F.col("metric").cast("string"), F.coalesce(F.col("k").cast("string"), F.lit("all")))


def metric(row: Row) -> str:
    """Name the metric of a row of results as it was asked for, if the row says that."""
    return row.get(ASKED) or metric_at(row["metric"], row["k"])


def metric_column() -> Column:
    from pyspark.sql import functions as F

    return F.coalesce(ASKED, metric_at_column())


def segment_at(by: str, value: str | None) -> str:
    """Name a segment: `country=DE`, or `overall`."""
    return f"{by}={text(value)}" if by else OVERALL


def segment(row: Row) -> str:
    return segment_at(row["segment_by"], row["segment"])


def segment_column() -> Column:
    from pyspark.sql import functions as F

    by = F.col("segment_by")
    value = F.coalesce(F.col("segment"), F.lit("null"))
    return F.when(by == "", F.lit(OVERALL)).otherwise(F.concat(by, F.lit("="), value))


def segment_values(columns: list[list[Any]], n_rows: int) -> list[str | None]:
    """Write segments as tables have them: one column as text, several as a JSON list, none as ''.

    >>> segment_values([["DE", None], [True, False]], 2)
    ['["DE","true"]', '[null,"false"]']
    """
    if not columns:
        return [""] * n_rows
    texts = [[_segment_value(value) for value in column] for column in columns]
    if len(texts) == 1:
        return texts[0]
    return [json.dumps(values, ensure_ascii=False, separators=(",", ":")) for values in zip(*texts, strict=True)]


def _segment_value(value: object) -> str | None:
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def segment_value_column(columns: Sequence[str]) -> Column:
    from pyspark.sql import functions as F

    from ndcg_spark.core.columns import named

    texts = [named(column).cast("string") for column in columns] or [F.lit("")]
    return texts[0] if len(texts) == 1 else F.to_json(F.array(*texts))


def number(value: float | None, form: str = ".4f") -> str:
    return "-" if value is None else format(value, form)


def interval(low: float, high: float, form: str = ".4f") -> str:
    """Write an interval: `[0.4281, 0.4339]`."""
    return f"[{low:{form}}, {high:{form}}]"


def interval_column(low: str, high: str) -> Column:
    """Write an interval; null without bounds."""
    from pyspark.sql import functions as F

    return F.when(F.col(low).isNotNull(), F.format_string("[%.4f, %.4f]", low, high))


def estimate(value: float | None, low: float | None, high: float | None, form: str = ".4f") -> str:
    """Write a value with its interval, if it has one: `0.4310 [0.4281, 0.4339]`."""
    if value is None or low is None or high is None:
        return number(value, form)
    return f"{number(value, form)} {interval(low, high, form)}"


def mean(row: Row) -> str:
    """Write the mean of a row of results with half of its interval: `0.4310 ± 0.0029`."""
    value, low, high = (row[name] for name in ("value", "ci_low", "ci_high"))
    return number(value) if value is None or high is None else f"{number(value)} ± {number((high - low) / 2)}"


def cutoff_order(k: int | None) -> float:
    return math.inf if k is None else k


def metric_order(metric: str, k: int | None, first: Sequence[str] = ()) -> tuple[Any, ...]:
    """Sort metrics: those of `first`, as `ndcg@10`, then NDCG, then others by name; the whole list comes last."""
    return _place(metric_at(metric, k), first), _place(metric, SHOWN_FIRST), metric, cutoff_order(k)


def segment_order(row: Row) -> tuple[Any, ...]:
    """Sort rows of results by run; within it all queries come before segments, and null after their names."""
    return row["run"], row["segment_by"], row["segment"] is None, row["segment"] or ""


def row_order(row: Row, first: Sequence[str] = ()) -> tuple[Any, ...]:
    """Sort rows of results by run, segment, metric and cutoff."""
    return *segment_order(row), *metric_order(row["metric"], row["k"], first)


def row_order_columns(first: Sequence[str] = ()) -> list[Column]:
    """Sort rows of results by segment, metric and cutoff; runs come last, next to each other."""
    from pyspark.sql import functions as F

    places = [*place_columns(metric_at_column(), first), *place_columns(F.col("metric"), SHOWN_FIRST)]
    by_segment = [F.col("segment_by"), F.col("segment").asc_nulls_last()]
    return [*by_segment, *places, F.col("metric"), F.col("k").asc_nulls_last(), F.col("run")]


def _place(name: str, names: Sequence[str]) -> int:
    return names.index(name) if name in names else len(names)


def place_columns(value: Column, names: Sequence[str]) -> list[Column]:
    """Sort texts by their places among names; others come last."""
    from pyspark.sql import functions as F

    if not names:
        return []
    # F.array_position of Spark 3.5 takes no column as the value.
    place = F.call_function("array_position", F.array(*map(F.lit, names)), value)
    return [place == 0, place]
