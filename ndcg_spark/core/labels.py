"""Names of metrics, cutoffs, segments, numbers and rows for people, and the order of rows; `_SQL`: the same in Spark.

Rows are those of results, with the columns of a summary.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

ASKED = "asked"
"""Column of results: the name by which a user asked for the metric."""
OVERALL = "overall"
"""The segment of all queries."""
SHOWN_FIRST = ("ndcg", "dcg", "idcg", "ndcg_best", "ndcg_worst", "tied_share")
"""Metrics that come before all others: NDCG and what comes with it."""
METRIC_AT_SQL = "concat_ws('@', cast(metric as string), coalesce(cast(k as string), 'all'))"
METRIC_SQL = f"coalesce({ASKED}, {METRIC_AT_SQL})"
SEGMENT_SQL = f"if(segment_by = '', '{OVERALL}', concat(segment_by, '=', coalesce(segment, 'null')))"
INTERVAL_SQL = "if(ci_low is null, null, format_string('[%.4f, %.4f]', ci_low, ci_high))"
Row = Mapping[str, Any]


def text(value: object) -> str:
    return "null" if value is None else str(value)


def describe_runs(runs: Collection[str], names: str) -> str:
    """Describe the available runs in a clause; `names` are their names, or some of them."""
    return "the only run has no name" if set(runs) == {""} else f"there are {names or 'none'}"


def key(values: Mapping[str, object]) -> str:
    """Name a row by its keys.

    >>> key({"query_id": 7, "item_id": None})
    'query_id=7, item_id=null'
    """
    return ", ".join(f"{name}={text(value)}" for name, value in values.items())


def cutoff(k: int | None) -> str:
    """Name a cutoff: `10`, or `all` for the whole list."""
    return "all" if k is None else str(k)


def cutoffs(ks: Iterable[int | None]) -> str:
    return ", ".join(map(cutoff, ks))


def metric_at(metric: object, k: int | None) -> str:
    """Name a metric at a cutoff: `recall@5`, `ap@all`."""
    return f"{metric}@{cutoff(k)}"


def metric(row: Row) -> str:
    """Name the metric of a row as the user requested it, if the row has that name."""
    return row.get(ASKED) or metric_at(row["metric"], row["k"])


def segment_at(by: str, value: str | None) -> str:
    """Name a segment: `country=DE`, or `overall`."""
    return f"{by}={text(value)}" if by else OVERALL


def segment_values(by: str, segment: str | None) -> list[Any] | None:
    """List the value of each column of a segment; None if its text does not have one for each."""
    names = by.split("+")
    try:
        values = [segment] if len(names) == 1 else json.loads(segment or "")
    except ValueError:
        return None
    return values if isinstance(values, list) and len(values) == len(names) else None


def segment(row: Row) -> str:
    return segment_at(row["segment_by"], row["segment"])


def number(value: float | None, form: str = ".4f") -> str:
    return "-" if value is None else format(value, form)


def interval(low: float, high: float, form: str = ".4f") -> str:
    return f"[{low:{form}}, {high:{form}}]"


def estimate(row: Row, name: str, bounds: str = "ci_", form: str = ".4f") -> str:
    """Write a number of a row with its interval, if it has one: `0.4310 [0.4281, 0.4339]`; `ci_` is before `low`."""
    value, low, high = row[name], row[f"{bounds}low"], row[f"{bounds}high"]
    return number(value, form) if low is None else f"{number(value, form)} {interval(low, high, form)}"


def mean(row: Row) -> str:
    """Write the mean of a row with half of its interval: `0.4310 ± 0.0029`."""
    value, low, high = (row[name] for name in ("value", "ci_low", "ci_high"))
    return number(value) if value is None or high is None else f"{number(value)} ± {number((high - low) / 2)}"


def cutoff_order(k: int | None) -> float:
    return math.inf if k is None else k


def metric_order(metric: str, k: int | None, first: Sequence[str] = ()) -> tuple[Any, ...]:
    """Sort metrics: those of `first`, as `ndcg@10`, then NDCG, then others by name; the whole list comes last."""
    return _position(metric_at(metric, k), first), _position(metric, SHOWN_FIRST), metric, cutoff_order(k)


def main_metric(computed: Sequence[tuple[str, int | None]]) -> tuple[str, int | None]:
    """Choose the metric to report from metrics in order: the first, at k=10 if computed, else at the largest k."""
    metric = computed[0][0]
    cutoffs = [k for name, k in computed if name == metric and k is not None]
    return metric, 10 if 10 in cutoffs else max(cutoffs, default=None)


def segment_order(row: Row) -> tuple[Any, ...]:
    """Sort rows by run; within it all queries come before segments, and null after their names."""
    return row["run"], row["segment_by"], row["segment"] is None, row["segment"] or ""


def row_order(row: Row, first: Sequence[str] = ()) -> tuple[Any, ...]:
    """Sort rows by run, segment, metric and cutoff."""
    return *segment_order(row), *metric_order(row["metric"], row["k"], first)


def row_order_sql(first: Sequence[str] = ()) -> list[str]:
    """Sort rows by segment, metric and cutoff; runs come last, next to each other."""
    places = [place_sql(METRIC_AT_SQL, first)] if first else []
    places.append(place_sql("metric", SHOWN_FIRST))
    return ["segment_by", "segment is null", "segment", *places, "metric", "k is null", "k", "run"]


def _position(name: str, names: Sequence[str]) -> int:
    return names.index(name) if name in names else len(names)


def place_sql(value: str, names: Sequence[str]) -> str:
    """Sort texts by their places among names, at least one; others come last."""
    texts = (name.replace("\\", "\\\\").replace("'", "\\'") for name in names)
    cases = " ".join(f"when '{text}' then {place}" for place, text in enumerate(texts))
    return f"case {value} {cases} else {len(names)} end"


def join_names(names: Iterable[str], limit: int = 6) -> str:
    """Join names by commas, the first few of them."""
    texts = list(names)
    rest = len(texts) - limit
    return ", ".join(texts[:limit]) + (f" and {rest:,} more" if rest > 0 else "")
