"""Choice between the local engine and Spark, without loading Spark."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from typing import Any, Final, Literal, TypeAlias, get_args

from ndcg_spark.errors import InvalidParameterError, MissingPackageError, check_choice

EngineName: TypeAlias = Literal["auto", "local", "spark"]
VARIABLE: Final = "NDCG_SPARK_ENGINE"
"""Environment variable that sets the engine for `auto`."""

PROVIDED = (
    "PYSPARK_GATEWAY_PORT",
    "SPARK_REMOTE",
    "DATABRICKS_RUNTIME_VERSION",
    "SPARK_CONNECT_MODE_ENABLED",
)
"""Variables that are set if spark-submit, a Connect server or Databricks provides the session."""


def resolve_engine(engine: EngineName, spelled: str) -> tuple[EngineName, str]:
    """Return the requested engine and its origin: `spelled`, or the environment variable if that is `auto`."""
    check_choice("engine", engine, get_args(EngineName))
    from_environment: Any = os.environ.get(VARIABLE) or "auto"
    if engine != "auto" or from_environment == "auto":
        return engine, spelled
    check_choice(VARIABLE, from_environment, get_args(EngineName))
    return from_environment, f"{VARIABLE}={from_environment}"


def has_pyspark() -> bool:
    try:
        return find_spec("pyspark") is not None
    except ValueError:  # if a module was blocked in sys.modules
        return False


def find_spark_hint() -> str | None:
    """Return a clause that explains why Spark is used, such as an active session; None if nothing suggests Spark."""
    provided = next((name for name in PROVIDED if name in os.environ), None)
    if provided is not None:
        return f"{provided} is set"
    sql = sys.modules.get("pyspark.sql")
    return "a Spark session is active" if sql is not None and sql.SparkSession.getActiveSession() else None


def require_spark(why: str, requested: str, where: str, action: str) -> None:
    """Raise if Spark is needed, for the reason `why`, but the local engine was requested or PySpark is missing."""
    if requested == "local":
        raise InvalidParameterError(f"{where} cannot {action} this: {why}.")
    if not has_pyspark():
        raise MissingPackageError(
            f"this needs Spark, as {why}, and PySpark is not installed: pip install 'ndcg-spark[spark]'."
        )
