"""Formatted numbers and names."""

from __future__ import annotations

import pytest

from ndcg_spark.reports.wording import (
    choose_decimals,
    clean_text,
    format_interval,
    format_number,
    format_p_value,
    format_share,
    format_signed,
    name_segment,
    pluralize,
    shorten,
)


@pytest.mark.parametrize(
    ("value", "decimals", "shown"),
    [
        (0.43125, 3, "0.431"),
        (-0.002, 3, "\u22120.002"),
        (-0.0001, 3, "0.000"),
        (1234.5, 1, "1,234.5"),
        (606_762_625_366_397_056.0, 2, "6.06763e+17"),
        (None, 3, "\u2014"),
        (float("nan"), 3, "\u2014"),
    ],
)
def test_format_number(value, decimals, shown):
    assert format_number(value, decimals) == shown


def test_pluralize():
    assert [pluralize(n, "query", "queries") for n in (0, 1, 1234)] == ["0 queries", "1 query", "1,234 queries"]


@pytest.mark.parametrize(("value", "shown"), [(0.002, "+0.002"), (-0.002, "\u22120.002"), (0.0001, "0.000")])
def test_format_signed(value, shown):
    assert format_signed(value, 3) == shown


@pytest.mark.parametrize(
    ("halves", "decimals"),
    [([0.003], 4), ([0.03, 0.003], 4), ([0.05], 3), ([2.0], 2), ([0.0000001], 6), ([None, 0.0], 4), ([], 4)],
)
def test_choose_decimals_shows_two_digits_of_the_narrowest_interval(halves, decimals):
    assert choose_decimals(halves) == decimals


def test_format_interval_is_empty_without_an_end():
    assert format_interval(None, 0.5) == ""
    assert format_interval(0.4281, 0.4343, 3) == "[0.428, 0.434]"


@pytest.mark.parametrize(
    ("part", "whole", "shown"),
    [(1, 4, "25.0 %"), (1, 100_000, "< 0.1 %"), (99_999, 100_000, "> 99.9 %"), (0, 5, "0.0 %"), (5, 5, "100.0 %"),
     (1, 0, "\u2014")],
)  # fmt: skip
def test_format_share_never_rounds_to_0_or_100(part, whole, shown):
    assert format_share(part, whole).replace("\u00a0", " ") == shown


@pytest.mark.parametrize(
    ("value", "shown"), [(0.00001, "< 0.0001"), (0.0123, "0.012"), (0.5, "0.50"), (None, "\u2014")]
)
def test_format_p_value(value, shown):
    assert format_p_value(value) == shown


def test_clean_text_replaces_control_characters():
    assert clean_text("a\x1b[31mb\u202ec\x00\ud800d\ne") == "a\ufffd[31mb\ufffdc\ufffd\ufffdd e"
    assert clean_text("日本 \u200f \N{PILE OF POO}") == "日本 \u200f \N{PILE OF POO}"
    assert clean_text(None) == "null"


def test_name_segment():
    assert name_segment("country", "DE") == "DE"
    assert name_segment("country", None) == "null"
    assert name_segment("country", "") == "(empty)"
    assert name_segment("a+b", '["DE", null]') == "DE · null"
    assert name_segment("a+b", '["\\u001b", "x"]') == "\ufffd · x"
    assert name_segment("a+b", "no json") == "no json"


def test_shorten():
    assert shorten("a red shoe", 6) == "a red…"
    assert shorten("a red", 6) == "a red"
