"""What both engines need to know of nights before rows are read: which metrics to pair. Does not import Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ndcg_spark.comparison.plan import STORED_WEIGHT
from ndcg_spark.comparison.settings import ComparisonSettings
from ndcg_spark.core.schemas import TableInfo
from ndcg_spark.errors import InputRefusedError, InvalidParameterError, option
from ndcg_spark.evaluation.rules import RULES
from ndcg_spark.history.settings import METRIC_TABLE
from ndcg_spark.metrics import MetricAt, NamedMetric, in_order, parse_metric

PER_QUERY_TABLE = "per-query table"
BASELINE, JUDGED = "an earlier night", "the night"
MAX_NAMES = 10
PAIR_KEYS = ("run", "config_hash", RULES, "later", "earlier")


def build_absence_error(what: str, name: str, others: Sequence[str]) -> InputRefusedError:
    """Build the refusal of a name that a metric table lacks; `others` are its last `MAX_NAMES` + 1, in reverse."""
    listed = ", ".join(others[:MAX_NAMES][::-1]) + (", and others" if len(others) > MAX_NAMES else "")
    return InputRefusedError(
        f"there is no {what} {name!r} in the {METRIC_TABLE}; there {'is' if len(others) == 1 else 'are'} "
        f"{listed or 'none'}."
    )


def create_comparison_settings(
    series: Sequence[Mapping[str, Any]], per_query: TableInfo, query: Sequence[str]
) -> ComparisonSettings:
    """Create settings for the metrics of `series` that the per-query table also has; `query` must be in it."""
    known = {name: _parse_known_metric(name) for name in sorted({row["metric"] for row in series})}
    metrics = in_order(
        MetricAt(metric, row["k"], name)
        for name, metric in known.items()
        if metric is not None and metric.column in per_query.names and name != "idcg"
        for row in series
        if row["metric"] == name
    )
    if not metrics:
        raise InputRefusedError(
            f"the {PER_QUERY_TABLE} has none of the metrics to judge ({', '.join(known)}); it has the columns "
            f"{', '.join(per_query.names)}."
        )
    sets = [tuple(by.split("+")) for by in sorted({row["segment_by"] for row in series} - {""})]
    return ComparisonSettings(
        runs=(BASELINE, JUDGED),
        baseline=BASELINE,
        metrics=metrics,
        query=tuple(query),
        segment_sets=tuple(names for names in sets if set(names) <= set(per_query.names)),
        weight=STORED_WEIGHT if per_query.has(STORED_WEIGHT) else None,
        unpaired="drop",
        same_ideal=False,
        replicates=0,
        flips=0,
    )


def require_query_columns(per_query: TableInfo, query: Sequence[str]) -> None:
    for name in (*query, "k"):
        per_query.require(name, option("query") if name in query else "k")


def _parse_known_metric(name: str) -> NamedMetric | None:
    try:
        return parse_metric(name)[0]
    except InvalidParameterError:
        return None
