"""Canonical rows of a table, as a plan describes them and Spark reads them."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import DataFrame

from ndcg_spark.core.columns import info_of
from ndcg_spark.evaluation.frames.columns import spark_columns
from ndcg_spark.evaluation.plan_columns import plan_judgments, plan_rows
from ndcg_spark.evaluation.settings import EvaluationSettings


def run_rows(frame: DataFrame, settings: EvaluationSettings, *, judged: bool, original: bool = False) -> DataFrame:
    """Of the main table; `judged` if it has the relevances. `original` adds `row`, the row as it came."""
    plan = plan_rows(info_of(frame), settings, judged=judged)
    return spark_columns(frame, replace(plan, keeps_original=original))


def judgment_rows(frame: DataFrame, settings: EvaluationSettings) -> DataFrame:
    return spark_columns(frame, plan_judgments(info_of(frame, "judgments"), settings))
