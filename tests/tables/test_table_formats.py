"""A short leg of `writes formats`, on tables that need nothing but Spark; and that it notices broken promises."""

from __future__ import annotations

import pytest

from scripts.checks.writes import formats
from scripts.checks.writes.places import Place, places_of
from scripts.checks.writes.properties import PROPERTIES

HERE = ("rerun", "nights", "stray", "evolved")
"""Of the others there are tests in test_table_writes.py, or they start processes."""


@pytest.fixture
def places(spark, tmp_path):
    found = places_of("spark", spark, tmp_path, hive=False)
    yield found
    for place in found:
        place.drop()


@pytest.mark.parametrize("property_", HERE)
def test_promises_are_kept(places, property_):
    title, call = next((title, call) for title, call in PROPERTIES.items() if call.__name__ == property_)
    for place in places:
        assert not call(place).startswith("NO"), (place.title, title)
        place.drop()


def test_what_is_not_kept_is_a_row_of_the_table(spark, tmp_path, monkeypatch):
    """Of a place whose writes are lost."""
    (place, *_) = places_of("spark", spark, tmp_path, hive=False)
    # stands in for: an output that loses what is written to it, because none of ours does
    monkeypatch.setattr(Place, "write", lambda *_, **__: None)
    found = formats.try_all([place], "re-run")
    assert found["parquet folder"]["re-run replaces its rows only"].startswith("NO: PropertyError: rows: []")
    assert "| re-run replaces its rows only | NO: " in formats.table_of(found)
