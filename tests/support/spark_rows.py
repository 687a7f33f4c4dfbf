"""Rows as Spark selects them by a plan, and slices as jobs write them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame

from ndcg_spark.core.columns import describe_table
from ndcg_spark.evaluation.frames.columns import select_canonical_columns
from ndcg_spark.evaluation.plan_columns import plan_judgments, plan_rows
from ndcg_spark.evaluation.settings import EvaluationSettings
from ndcg_spark.tables import Rows, Slices, write_together


def replace_slices(frame: DataFrame, reference: str, kind: str | None, slices: Slices, **more: Any) -> None:
    write_together([Rows(frame=frame, slices=slices, reference=reference, kind=kind)], **more)


def select_run_rows(
    frame: DataFrame, settings: EvaluationSettings, *, judged: bool, original: bool = False
) -> DataFrame:
    """Select rows of the main table; with relevances if `judged`. `original` adds `row`, the unchanged row."""
    plan = plan_rows(describe_table(frame), settings, has_judgments_table=not judged)
    return select_canonical_columns(frame, replace(plan, keeps_original=original))


def select_judgment_rows(frame: DataFrame, settings: EvaluationSettings) -> DataFrame:
    return select_canonical_columns(frame, plan_judgments(describe_table(frame, "judgments"), settings))
