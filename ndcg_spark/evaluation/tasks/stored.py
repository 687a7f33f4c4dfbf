"""Schemas of the stored results of an evaluation: the metric table, and metrics of queries."""

from __future__ import annotations

import pyarrow as pa

from ndcg_spark.evaluation.rules import RULES
from ndcg_spark.evaluation.settings import EvaluationSettings
from ndcg_spark.evaluation.tasks.partial_sums import ESTIMATES, PARTIAL_SCHEMA, SUM_ONLY_COUNTS
from ndcg_spark.evaluation.tasks.scoring import N_TOP_ITEMS, N_UNJUDGED_ITEMS, list_carried_columns

HIDDEN = ("state", RULES)
"""Columns of a summary that are not written to JSON."""
CONFIG_HASH, CONVENTION = "config_hash", "convention"
"""Columns of a metric table that identify the settings of its numbers."""
PROVENANCE = (CONVENTION, CONFIG_HASH, "input", "package_version")
SUMMARY_SCHEMA = pa.schema(
    [
        *(field for field in PARTIAL_SCHEMA if field.name != "state"),
        *((name, pa.float64()) for name in ESTIMATES),
        PARTIAL_SCHEMA.field("state"),
        (RULES, pa.string()),
    ]
)
METRIC_SCHEMA = pa.schema(
    [
        *SUMMARY_SCHEMA,
        *((name, pa.string()) for name in PROVENANCE),
        ("computed_at", pa.timestamp("us", "UTC")),
    ]
)


def list_sum_columns(settings: EvaluationSettings) -> tuple[str, ...]:
    """List the columns of metrics of queries that only sums need."""
    return (*SUM_ONLY_COUNTS, "items") if settings.catalogue_metrics else SUM_ONLY_COUNTS


def build_scored_schema(rankings: pa.Schema, settings: EvaluationSettings) -> pa.Schema:
    """Return the schema of computed metrics of queries, given the schema of rankings."""
    keys = ("run", *settings.columns.query_columns(rankings.names))
    carried = list_carried_columns(rankings.names, settings)
    items = ("items",) if settings.catalogue_metrics else ()
    return pa.schema(
        [
            *(rankings.field(key) for key in keys),
            ("k", pa.int32()),
            *((metric, pa.float64()) for metric in settings.metric_columns),
            ("status", pa.string()),
            *((count, pa.int64()) for count in (N_UNJUDGED_ITEMS, N_TOP_ITEMS)),
            *(rankings.field(column) for column in (*carried, *items)),
        ]
    )


def build_per_query_schema(rankings: pa.Schema, settings: EvaluationSettings) -> pa.Schema:
    """Return the schema of stored metrics of queries, given the schema of rankings."""
    scored = build_scored_schema(rankings, settings)
    stored = [field for field in scored if field.name not in list_sum_columns(settings)]
    return pa.schema([*stored, (RULES, pa.string())])
