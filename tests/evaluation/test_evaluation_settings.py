"""Settings: what they refuse, what they derive, and how cutoffs and segments are read."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ndcg_spark.conventions import Convention
from ndcg_spark.errors import InvalidParameterError
from ndcg_spark.evaluation.settings import (
    RESERVED,
    Columns,
    EvaluationSettings,
    parse_cutoffs,
    parse_metrics,
    parse_segment_sets,
)

((AP,), _) = parse_metrics("ap@5")
((BEST,), _) = parse_metrics("ndcg_best@5")
BY_ITEM = Convention(ties="item_asc")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cutoffs": ()}, "k needs at least one cutoff"),
        ({"cutoffs": (0,)}, "k must be a positive whole number, or None for the whole list; got 0"),
        ({"cutoffs": (-3, 5)}, "k must be a positive whole number, or None for the whole list; got -3"),
        ({"cutoffs": (10, 5)}, r"cutoffs must be increasing and distinct \(all last\); got \(10, 5\)"),
        ({"cutoffs": (5, 5)}, "cutoffs must be increasing"),
        ({"cutoffs": (None, 5)}, "cutoffs must be increasing"),
        ({"cutoffs": (None, None)}, "cutoffs must be increasing"),
        ({"strategy": "fast"}, "strategy must be one of auto, engine, window; got 'fast'"),
        ({"on_invalid": "skip"}, "on_invalid must be one of fail, reject; got 'skip'"),
        ({"null_score": "zero"}, "null_score must be one of bad, unretrieved; got 'zero'"),
        ({"source": "disk"}, "source must be one of auto, spark, parquet; got 'disk'"),
        ({"check_duplicates": "never"}, "check_duplicates must be one of top, all, none; got 'never'"),
        ({"confidence": 0.0}, "confidence must be between 0 and 1; got 0.0"),
        ({"confidence": 1}, "confidence must be between 0 and 1; got 1"),
        ({"confidence": 95.0}, "confidence must be between 0 and 1; got 95.0"),
        ({"confidence": math.nan}, "confidence must be between 0 and 1; got nan"),
        ({"convention": Convention(discount="table:1,0.5")}, "discount table has 2 ranks, too few for k=10"),
        ({"convention": Convention(discount="table:1"), "cutoffs": (1, None)}, "too few for all ranks"),
        ({"convention": Convention(ties="input_order")}, "ties=input_order needs order=,"),
        ({"convention": Convention(duplicates="first")}, "duplicates=first needs order=,"),
        ({"metrics": (AP, AP), "cutoffs": (5,)}, "a metric is named twice: ap@5, ap@5"),
        ({"metrics": (AP,), "cutoffs": (10,)}, r"metric 'ap@5' is not at one of the cutoffs \(10,\)"),
        (
            {"convention": BY_ITEM, "tie_bounds": True},
            "ties=expected', or best or worst; got ties=item_asc",
        ),
        (
            {"convention": BY_ITEM, "metrics": (BEST,), "cutoffs": (5,)},
            "'ndcg_best@5' needs convention=",
        ),
        ({"sample": 0.0}, "sample must be above 0 and at most 1; got 0.0"),
        ({"convention": Convention(duplicates="first"), "columns": Columns(rank="rank")}, "duplicates=first needs"),
    ],
)
def test_what_a_plan_refuses(options, message):
    with pytest.raises(InvalidParameterError, match=message):
        EvaluationSettings(**options)


@pytest.mark.parametrize(
    "options",
    [
        {"cutoffs": (1, 3, 10, None)},
        {"cutoffs": (None,)},
        {"convention": Convention(discount="table:1,0.5"), "cutoffs": (1, 2)},
        {"convention": Convention(ties="input_order"), "columns": Columns(order="at")},
        {"convention": Convention(ties="input_order"), "columns": Columns(rank="rank")},
        {"convention": Convention(duplicates="first"), "columns": Columns(order="at")},
        {"columns": Columns(query=("session_id", "query")), "segment_sets": (("query",), ("country", "query"))},
    ],
)
def test_what_a_plan_takes(options):
    settings = EvaluationSettings(**options)
    assert all(getattr(settings, name) == value for name, value in options.items())


@pytest.mark.parametrize("name", [*RESERVED, "NDCG"])
def test_names_that_results_have_for_themselves_are_refused(name):
    for options in ({"columns": Columns(query=("a", name))}, {"segment_sets": (("a",), ("a", name))}):
        with pytest.raises(InvalidParameterError, match=f"column '{name}' has a reserved name"):
            EvaluationSettings(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"query": ()}, "query= must name at least one column"),
        ({"query": ("a", "b", "a")}, "query= names a column twice: a, b, a"),
        ({"score": ("bm25", "dense"), "run": "ranker"}, "remove run="),
        ({"score": ("bm25", "bm25")}, "score"),
        (
            {"score": ("bm25", "dense"), "rank": "rank"},
            "several score columns cannot be combined with ranks: remove rank=",
        ),
    ],
)
def test_columns_that_do_not_go_together(options, message):
    with pytest.raises(InvalidParameterError, match=message):
        Columns(**options)


def test_what_a_plan_derives():
    columns = Columns(query=("session_id", "query"))
    settings = EvaluationSettings(
        columns=columns, cutoffs=(1, 5), segment_sets=(("country",), ("device", "country"), ("query", "day"))
    )
    assert settings.max_k == 5
    assert settings.segment_columns == ("country", "device", "query", "day")
    assert settings.carried_segments == ("country", "device", "day")
    assert replace(settings, cutoffs=(1, 5, None)).max_k is None


SETTINGS = EvaluationSettings()
CHANGES = [
    {"cutoffs": (5, 10)},
    {"cutoffs": (10, None)},
    {"convention": Convention(gain="linear")},
    {"segment_sets": (("country",),)},
    {"on_invalid": "reject"},
    {"null_score": "unretrieved"},
    {"check_duplicates": "all"},
    {"confidence": 0.9},
    *[{"columns": Columns(**{name: "other"})} for name in ("item", "rank", "relevance", "ideal")],
    *[{"columns": Columns(**{name: "other"})} for name in ("run", "weight", "order")],
    *[{"columns": Columns(**{name: ("other",)})} for name in ("query", "score")],
]


def test_the_digest_differs_for_every_choice_that_can_change_a_number():
    digests = [SETTINGS.digest, *(replace(SETTINGS, **change).digest for change in CHANGES)]
    assert len(set(digests)) == len(CHANGES) + 1
    assert EvaluationSettings(convention=Convention(name="mine")).digest == SETTINGS.digest


# --- Cutoffs


@pytest.mark.parametrize(
    ("given_cutoffs", "expected"),
    [
        (10, (10,)),
        ("10", (10,)),
        ("3, 1, all", (1, 3, None)),
        (None, (None,)),
        ("all", (None,)),
        (["all", 10, 1], (1, 10, None)),
        (["10", " 5", 5, None, "all"], (5, 10, None)),
        (range(1, 4), (1, 2, 3)),
        ((), ()),
    ],
)
def test_cutoffs(given_cutoffs, expected):
    assert parse_cutoffs(given_cutoffs) == expected


@given(st.lists(st.none() | st.just("all") | st.integers(1, 50), min_size=1))
def test_any_cutoffs_come_in_an_order_that_a_plan_takes(given_cutoffs):
    cutoffs = parse_cutoffs(given_cutoffs)
    assert set(cutoffs) == {None if k == "all" else k for k in given_cutoffs}
    assert EvaluationSettings(cutoffs=cutoffs).cutoffs == cutoffs


@pytest.mark.parametrize("bad", ["", "ten", "1.5", "1e1", "ALL", "0x5"])
def test_cutoffs_that_are_no_whole_numbers_are_named(bad):
    for given_cutoffs in (bad, [5, bad]):
        with pytest.raises(InvalidParameterError, match=f"positive whole number, or all; got '{bad}'"):
            parse_cutoffs(given_cutoffs)


@pytest.mark.parametrize("given_cutoffs", ["1,", "1,,3", ["1,3"], "5;6"])
def test_commas_stand_between_cutoffs_of_a_text_alone(given_cutoffs):
    with pytest.raises(InvalidParameterError, match=r"positive whole number, or all; got '(|1,3|5;6)'"):
        parse_cutoffs(given_cutoffs)


@pytest.mark.parametrize("bad", [2.5, 2.0, True, math.inf, math.nan])
def test_a_fraction_is_not_cut_down_to_a_cutoff(bad):
    with pytest.raises(InvalidParameterError, match=r"k must be a positive whole number"):
        parse_cutoffs([bad])


# --- Segments


@pytest.mark.parametrize(
    ("texts", "sets"),
    [
        ([], ()),
        ("country", (("country",),)),
        (["country"], (("country",),)),
        (["country", "country+device"], (("country",), ("country", "device"))),
        ([" country + device "], (("country", "device"),)),
        (["a+b", "b+a"], (("a", "b"), ("b", "a"))),
    ],
)
def test_segment_sets(texts, sets):
    assert parse_segment_sets(texts) == sets


@pytest.mark.parametrize("texts", [[""], ["a+"], ["+"], ["a", " "], ["a", "a"], ["a+b", "a +b"], ["a+a"]])
def test_segment_sets_that_are_none(texts):
    with pytest.raises(InvalidParameterError, match="segments= must be column names, each set once"):
        parse_segment_sets(texts)
