"""Flags of one cause are told in one line."""

from __future__ import annotations

import json
from datetime import date

import pytest

from ndcg_spark.history.causes import MAX_CHARACTERS, group_by_cause

NIGHT = date(2026, 1, 30)


def flag(value=0.3, usual=0.6, z=-9.0, **keys):
    """A flag of all queries, or of the segment whose columns and values are in `of`."""
    of = keys.pop("of", {})
    segment = json.dumps([*of.values()]) if len(of) > 1 else next(iter(of.values()), "")
    row = {
        "night": NIGHT,
        "run": "vectors",
        "segment_by": "+".join(of),
        "segment": segment,
        "metric": "ndcg",
        "k": 10,
    }
    row |= {"status": "low", "value": value, "median": usual, "z": z, "limit": 5.0, "weekday": "any"}
    return row | keys


FR, PHONE = {"country": "FR"}, {"device": "phone"}


def names(cause):
    flags = (cause.first, *cause.others)
    return {(flag["segment_by"], flag["segment"], flag["k"]) for flag in flags}


def test_a_segment_that_lost_its_items_is_told_once():
    """FR fell by 99 %; all queries, a part of FR, phones and other cutoffs follow from it."""
    flags = [
        flag(0.004, 0.658, -40.0, of=FR, k=3),
        flag(0.004, 0.658, -39.0, of=FR),
        flag(0.596, 0.661, -20.0),
        flag(0.600, 0.661, -20.0, k=3),
        flag(0.004, 0.650, -15.0, of=FR | PHONE),
        flag(0.590, 0.650, -12.0, of=PHONE),
    ]
    (cause,) = group_by_cause(flags)
    assert cause.line == (
        "FLAG low: ndcg@10 of run 'vectors', country=FR is 0.0040 on 2026-01-30, usually 0.6580 (39.0 spreads "
        "below); also in 5 more series"
    )
    assert len(names(cause)) == 6


def test_a_fall_of_all_queries_is_told_of_all_queries():
    flags = [flag(0.30, 0.61, -30.0, of={"country": element}) for element in ("DE", "FR", "US")]
    (cause,) = group_by_cause([*flags, flag(0.31, 0.60, -25.0)])
    assert (cause.first["segment_by"], len(cause.others)) == ("", 3)


@pytest.mark.parametrize(
    "more",
    [{"of": {"country": "DE"}}, {"run": "bm25"}, {"night": date(2026, 1, 29)}, {"status": "high", "value": 0.9}],
    ids=["another segment", "another run", "another night", "the other way"],
)
def test_what_has_another_cause_has_a_line_of_its_own(more):
    assert len(group_by_cause([flag(0.1, of=FR), flag(**{"value": 0.2, **more})])) == 2


def test_larger_is_worse_for_some_metrics_and_it_is_the_same_cause():
    (cause,) = group_by_cause([flag(0.1), flag(0.9, 0.5, 8.0, metric="ils", status="high")])
    assert len(cause.others) == 1


def test_a_segment_without_queries_is_told_with_its_parts():
    rule = "ndcg@10 of run 'vectors', country=FR has no value on 2026-01-30; its last was 0.600000 over 50 queries"
    gone = {"status": "missing", "value": None, "z": None, "limit": None, "rule": rule}
    (cause,) = group_by_cause([flag(of=FR, **gone), flag(of=FR | PHONE, **gone)])
    assert cause.line == f"FLAG missing: {rule}; also in 1 more series"


@pytest.mark.parametrize("status", ["low", "high", "missing", "recovered"])
def test_a_line_has_at_most_160_characters(status):
    long = flag(of={"country": "x" * 200}, run="r" * 200, status=status, rule=f"on 2026-01-30: {'x' * 200}")
    (cause,) = group_by_cause([long])
    assert len(cause.line) <= MAX_CHARACTERS
    assert "2026-01-30" in cause.line
