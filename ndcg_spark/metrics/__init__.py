"""Metrics of ranked lists: one small module each, found by name.

To add a metric, add a module with a subclass of `Metric`; no other code names it.
"""

from ndcg_spark.metrics.base import (
    EVERY,
    CatalogueMetric,
    Metric,
    MetricAt,
    NamedMetric,
    Need,
    QueryError,
    all_metrics,
    at_cutoff,
    direction_of,
    has_value_when_missing,
    has_value_without_list,
    in_order,
    judge_change,
    parse_metric,
)

__all__ = [
    "EVERY",
    "CatalogueMetric",
    "Metric",
    "MetricAt",
    "NamedMetric",
    "Need",
    "QueryError",
    "all_metrics",
    "at_cutoff",
    "direction_of",
    "has_value_when_missing",
    "has_value_without_list",
    "in_order",
    "judge_change",
    "parse_metric",
]
