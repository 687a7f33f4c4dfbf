"""Settings of platforms that are not here: Databricks names some otherwise, and does not tell others."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from pyspark.errors import AnalysisException

from ndcg_spark.spark.settings import runs_locally, session_time_zone, setting, shuffle_partitions
from ndcg_spark.tables.catalog import provider_of_new


def session(told):
    """A session whose settings are those of a mapping; None: it does not tell any."""

    def get(name, default=None):
        if told is None:
            raise AnalysisException(f"[CONFIG_NOT_AVAILABLE] Configuration {name} is not available.")
        return told.get(name, "of Java" if default is None else default)

    return SimpleNamespace(conf=SimpleNamespace(get=get))


@pytest.mark.parametrize(("n", "expected"), [("7", 7), ("auto", 200), (None, 200)])
def test_shuffle_partitions(n, expected):
    assert shuffle_partitions(session(None if n is None else {"spark.sql.shuffle.partitions": n})) == expected


def test_a_time_zone_that_is_not_set_is_that_of_java():
    assert [session_time_zone(session(told)) for told in ({}, None)] == ["of Java", "UTC"]


def test_what_is_not_told_is_as_by_default():
    assert setting(session(None), "spark.sql.caseSensitive", "false") == "false"
    assert not runs_locally(session(None))
    assert runs_locally(session(None), "local")
    assert runs_locally(session({"spark.master": "local[2]"}))


@pytest.mark.parametrize(("told", "expected"), [({"spark.sql.sources.default": "delta"}, "delta"), (None, "delta"),
                                                ({"spark.sql.sources.default": "csv"}, "parquet")])  # fmt: skip
def test_new_tables_on_databricks_are_of_delta_where_the_default_is_not_told(monkeypatch, told, expected):
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "client.4")
    assert provider_of_new(session(told), "table") == expected
