"""Settings of a session, as far as its platform tells them."""

from __future__ import annotations

from pyspark.sql import SparkSession

from ndcg_spark.spark.failures import SPARK_ERRORS

SHUFFLE_PARTITIONS = 200
"""Spark's own default."""


def setting(spark: SparkSession, name: str, default: str) -> str:
    """Look up a setting; the default where it is not set, which must be a value that Spark takes for it.

    Also where the platform does not tell: serverless compute of Databricks refuses most names with
    `CONFIG_NOT_AVAILABLE`, whatever default is given.
    """
    try:
        return str(spark.conf.get(name, default))
    except SPARK_ERRORS:
        return default


def session_time_zone(spark: SparkSession) -> str:
    """Time zone of a session; where none is set, that of Java, which only a question without a default tells."""
    try:
        return str(spark.conf.get("spark.sql.session.timeZone"))
    except SPARK_ERRORS:
        return "UTC"


def shuffle_partitions(spark: SparkSession) -> int:
    """Number of partitions that a shuffle begins with; Databricks also takes `auto` for it, which names none."""
    found = setting(spark, "spark.sql.shuffle.partitions", str(SHUFFLE_PARTITIONS))
    return int(found) if found.isdecimal() else SHUFFLE_PARTITIONS


def runs_locally(spark: SparkSession, unknown: str = "") -> bool:
    """Whether executors run on this machine; `unknown` is taken for the master where that is not told."""
    return setting(spark, "spark.master", unknown).startswith("local")
