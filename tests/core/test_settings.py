"""Settings of sessions: set, not set, without a value, hidden by the platform."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession
from support.spark_rankings import session_settings

from ndcg_spark.core import session as settings
from ndcg_spark.core.session import (
    get_session,
    get_setting,
    has_own_catalog,
    is_on,
    runs_locally,
    session_time_zone,
    shuffle_partitions,
)
from ndcg_spark.errors import NdcgSparkError
from ndcg_spark.tables.catalog import choose_provider


def build_databricks_session(message):
    """Build a session of serverless compute on Databricks, which shows some settings and hides the rest."""
    # stands in for: that session, because Databricks is not here

    def get(name):
        if name not in message:
            raise AnalysisException(f"[CONFIG_NOT_AVAILABLE] Configuration {name} is not available. SQLSTATE: 42K0I")
        return message[name]

    return SimpleNamespace(conf=SimpleNamespace(get=get))


def test_get_setting_prefers_user_then_spark_then_our_default(spark):
    """Neither of the requested defaults is a value that Spark would accept."""
    with session_settings(spark, spark__sql__caseSensitive="true", ours__own="1"):
        assert get_setting(spark, "spark.sql.caseSensitive", "neither") == "true"
        assert get_setting(spark, "ours.own", "0") == "1"
    assert get_setting(spark, "spark.sql.caseSensitive", "neither") == "false"
    assert get_setting(spark, "ours.own", "0") == "0"  # Spark does not know it
    assert (
        get_setting(spark, "spark.sql.optimizer.excludedRules", "none") == "none"
    )  # it does, and has no value for it


@pytest.mark.classic("a server has the catalog that it was started with")
def test_the_catalog_of_a_session_is_known(spark):
    assert has_own_catalog(spark)
    assert get_setting(spark, "spark.sql.catalogImplementation", "") == "in-memory"


@pytest.mark.classic("asks the settings of a classic session")
def test_refused_setting_has_no_value(spark, monkeypatch):
    """Fault injection: the real session is asked with a default, as `get_setting` once did, which Spark refuses."""
    ask = spark.conf.get
    monkeypatch.setattr(type(spark.conf), "get", lambda self, name: ask(name, "no such catalog"))
    with pytest.raises(PySparkException, match=r"INVALID_CONF_VALUE|should be one of"):
        get_setting(spark, "spark.sql.catalogImplementation", "")


@pytest.mark.parametrize(("n", "expected"), [("7", 7), ("auto", 200), (None, 200)])
def test_shuffle_partitions(n, expected):
    assert (
        shuffle_partitions(build_databricks_session({} if n is None else {"spark.sql.shuffle.partitions": n}))
        == expected
    )


def test_hidden_settings_have_their_defaults():
    hidden = build_databricks_session({})
    assert get_setting(hidden, "spark.sql.caseSensitive", "false") == "false"
    assert session_time_zone(hidden) == "UTC"
    assert not has_own_catalog(hidden)
    assert not runs_locally(hidden)
    assert runs_locally(hidden, "local")


@pytest.mark.classic("a client does not tell the master of its server")
def test_a_local_session_runs_locally(spark):
    assert runs_locally(spark)


@pytest.mark.parametrize(("message", "expected"), [({"spark.sql.sources.default": "delta"}, "delta"), ({}, "delta"),
                                                ({"spark.sql.sources.default": "csv"}, "parquet")])  # fmt: skip
def test_new_tables_on_databricks_default_to_delta(monkeypatch, message, expected):
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "client.4")
    assert choose_provider(build_databricks_session(message), "table") == expected


@pytest.mark.parametrize(("text", "expected"), [("true", True), (" TRUE ", True), ("False", False), ("", False)])
def test_a_setting_is_on_however_it_is_written(spark, text, expected):
    with session_settings(spark, ours__own=text):
        assert is_on(spark, "ours.own", "true") is expected
    assert is_on(spark, "ours.own", "true")


def test_error_of_the_active_session_is_raised(spark, monkeypatch):
    def fail():
        raise PySparkException("NO_ACTIVE_SESSION")

    assert get_session() is spark
    monkeypatch.setattr(SparkSession, "active", fail)
    with pytest.raises(PySparkException, match="NO_ACTIVE_SESSION"):
        get_session()


def test_unreadable_defaults_are_an_error(tmp_path, monkeypatch):
    """They may name a cluster whose workers lack this Python. A folder takes the file's place here."""
    for name in ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE", "DATABRICKS_RUNTIME_VERSION", "MASTER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert settings._would_be_local()
    (tmp_path / "spark-defaults.conf").mkdir()
    with pytest.raises(NdcgSparkError, match=r"spark-defaults\.conf' \(Is a directory\)"):
        settings._would_be_local()
