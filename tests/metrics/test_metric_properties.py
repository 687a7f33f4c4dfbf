"""Every metric compared with its definition, and properties of any list."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given as for_any
from hypothesis import strategies as st
from support.metric_definitions import DEFINITIONS, average_over_orders, build_lists

from ndcg_spark.errors import InvalidParameterError
from ndcg_spark.metrics import Metric, QueryError, all_metrics, parse_metric
from ndcg_spark.metrics.normalized_gain import GAINS, TIE_BOUNDS

VARIANTS = (
    "ap", "ap(rel=2)", "ap(denominator=achievable)", "ap(denominator=k)", "ap(denominator=hits)", "ap_r", "acg",
    "bpref", "bpref(rel=2)", "cg", "err", "err(max_grade=3)", "p", "p(rel=2)", "r", "r(rel=3)", "rbp", "rbp(p=0.5)",
    "rprec", "rprec(rel=2)", "rr", "rr(rel=2)", "success", "success(rel=3)", "wap", "rbp_residual", "judged",
)  # fmt: skip
LEVELS = (None, 0, 0, 0.5, 1, 2, 3, -1)
BOUNDED = [name for name in VARIANTS if parse_metric(name)[0].within_1 and name not in ("rbp_residual", "judged")]


def random_query(draw: random.Random, *, largest_group: int):
    groups = [[draw.choice(LEVELS) for _ in range(draw.randint(1, largest_group))] for _ in range(draw.randint(0, 4))]
    return groups, [draw.choice((0, 1, 2, 3)) for _ in range(draw.randint(0, 3))]


def list_judged(groups, missing):
    return [relevance for group in groups for relevance in group if relevance is not None] + list(missing)


def compute_by_definition(name: str, groups, missing, k: int) -> float:
    metric = parse_metric(name)[0]
    options = {field: getattr(metric, field) for field in metric.__dataclass_fields__ if field in name}
    definition = partial(DEFINITIONS[metric.name], judged=list_judged(groups, missing), k=k, **options)
    return average_over_orders(definition, groups)


def test_every_metric_of_relevances_is_among_the_variants():
    """Metrics of items have their own definitions (`tests/evaluation/test_item_metrics.py`)."""
    elsewhere = {field.name for field in (*GAINS, *TIE_BOUNDS)}
    metrics = [parse_metric(name)[0] for name, kind in all_metrics().items() if issubclass(kind, Metric)]
    expected = {metric.name for metric in metrics if not metric.needs} - elsewhere
    assert {parse_metric(name)[0].name for name in VARIANTS} == expected == set(DEFINITIONS)


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("k", [1, 3, 5, 20])
def test_metric_equals_its_definition_over_every_order_of_ties(name, k):
    draw, metric = random.Random(f"{name} {k}"), parse_metric(name)[0]
    queries = [random_query(draw, largest_group=1 if metric.needs_order else 3) for _ in range(60)]
    cutoff = k if metric.takes_cutoff else None
    lists = build_lists(
        [groups for groups, _ in queries], [metric], unretrieved=[missing for _, missing in queries], max_k=cutoff
    )
    actual = metric.values(lists, cutoff)
    wanted = [compute_by_definition(name, groups, missing, k) for groups, missing in queries]
    np.testing.assert_allclose(actual, wanted, rtol=0, atol=1e-13)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_query_has_the_same_bits_alone_and_in_a_batch_and_at_any_largest_cutoff(name):
    draw, metric = random.Random(name), parse_metric(name)[0]
    queries = [random_query(draw, largest_group=1 if at % 2 or metric.needs_order else 4) for at in range(80)]
    queries = [
        ([[1.5 if relevance == 1 else relevance for relevance in group] for group in groups], more)
        for groups, more in queries
    ]
    k = 4 if metric.takes_cutoff else None
    together = metric.values(
        build_lists([groups for groups, _ in queries], [metric], unretrieved=[more for _, more in queries], max_k=k),
        k,
    )
    for at, (groups, missing) in enumerate(queries):
        for largest in {k, None if k is None else 7, None}:
            alone = build_lists([groups], [metric], unretrieved=[missing], max_k=largest)
            np.testing.assert_array_equal(metric.values(alone, k)[0], together[at])


@pytest.mark.parametrize("name", BOUNDED)
def test_the_best_order_is_the_maximum_and_all_values_lie_between_0_and_1(name):
    draw, metric = random.Random(name), parse_metric(name)[0]
    for _ in range(60):
        items = [draw.choice((None, 0, 1, 2, 3)) for _ in range(draw.randint(1, 8))]
        best = sorted(items, key=lambda relevance: -1 if relevance is None else relevance, reverse=True)
        k = draw.randint(1, 9) if metric.takes_cutoff else None
        lists = build_lists([[[item] for item in items], [[relevance] for relevance in best]], [metric], max_k=k)
        actual = metric.values(lists, k)
        assert 0 <= actual[0] <= actual[1] + 1e-15 <= 1 + 2e-15


@pytest.mark.parametrize("name", sorted(DEFINITIONS.keys() - {"rbp_residual", "judged"}))
def test_nothing_retrieved_and_nothing_at_all_give_0(name):
    metric = all_metrics()[name]()
    k = 5 if metric.takes_cutoff else None
    assert metric.values(build_lists([[], []], [metric], unretrieved=[[2, 0], []], max_k=k), k).tolist() == [0, 0]
    assert metric.values(build_lists([], [metric], max_k=k), k).tolist() == []


def test_large_groups_of_tied_items_stay_exact():
    """A constant scorer on 2,000 items; expected: chances as exact fractions."""
    group = [1] * 3 + [0] * 1997
    metric = parse_metric("success")[0]
    missed = 1997 * 1996 * 1995 * 1994 * 1993 / (2000 * 1999 * 1998 * 1997 * 1996)
    actual = metric.values(build_lists([[group]], [metric], max_k=5), 5)[0]
    assert actual == pytest.approx(1 - missed, abs=1e-15)


@pytest.mark.parametrize("name", ["err(max_grade=2)", "rbp(max_grade=2)"])
def test_a_relevance_above_the_highest_grade_names_its_query(name):
    metric = parse_metric(name)[0]
    with pytest.raises(QueryError, match="relevance 3, above max_grade 2") as raised:
        metric.values(build_lists([[[1]], [[0], [3]]], [metric], max_k=5), 5)
    assert raised.value.query == 1


# ------------------------------------------------------------------------------------------------------- names


@pytest.mark.parametrize("name", VARIANTS)
def test_a_name_is_printed_as_it_is_read(name):
    assert str(parse_metric(name)[0]) == name


@pytest.mark.parametrize(
    ("text", "metric", "k"),
    [
        ("AP", "ap", None), ("AP(rel=2)@100", "ap(rel=2)", "100"), ("P@5", "p", "5"), ("R@1000", "r", "1000"),
        ("RR@10", "rr", "10"), ("RBP(p=0.5)", "rbp(p=0.5)", None), ("Rprec", "rprec", None), ("MAP", "ap", None),
        ("Bpref", "bpref", None), ("Success@1", "success", "1"), ("ERR@20", "err", "20"), ("MRR", "rr", None),
        (" p ( rel = 2 ) @ 5 ", "p(rel=2)", "5"), ("rbp(p=.8)", "rbp", None),
        ("rprec@all", "rprec", "all"),
    ],
)  # fmt: skip
def test_names_of_ir_measures_are_understood(text, metric, k):
    actual, cutoff = parse_metric(text)
    assert (str(actual), cutoff) == (metric, k)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("apx@5", "unknown metric 'apx': did you mean 'ap'"),
        ("p(level=2)", "unknown parameter 'level'; it has rel"),
        ("p(rel=two)", "rel must be a number; got 'two'"),
        ("p(rel)", "rel must be a number; got ''"),
        ("ap(denominator)", "denominator must be one of judged, achievable, k, hits"),
        ("ap(denominator=n)", "denominator must be one of judged, achievable, k, hits"),
        ("rbp(p=1)", "p must be between 0 and 1"),
        ("rbp(max_grade=-1)", "max_grade must be a relevance above 0"),
        ("rbp_residual(p=0)", "p must be between 0 and 1"),
        ("p(rel=nan)", "rel must be a finite number"),
        ("err(max_grade=2000)", "max_grade must be a relevance above 0, and at most 63"),
        ("p(rel=1,rel=2)", "sets a parameter twice"),
        ("rprec@5", "rprec has no cutoff; remove @5"),
        ("p@5@6", "is not of the form"),
        ("", "is not of the form"),
    ],
)
def test_names_that_are_refused(text, message):
    with pytest.raises(InvalidParameterError, match=r"^[^\n]*$") as raised:
        parse_metric(text)
    assert message in str(raised.value)


@for_any(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=2, unique=True))
def test_different_metrics_have_different_columns(levels):
    """Per-query tables name their columns after metrics."""
    plain = [metric().column for metric in all_metrics().values()]
    assert len({*plain, *(parse_metric(f"p(rel={level!r})")[0].column for level in levels if level != 1)}) == (
        len(plain) + sum(level != 1 for level in levels)
    )


def test_parameters_keep_all_their_digits():
    names = [str(parse_metric(f"rbp(p={p})")[0]) for p in ("0.1234567", "0.1234568", "0.99999999", ".5")]
    assert names == ["rbp(p=0.1234567)", "rbp(p=0.1234568)", "rbp(p=0.99999999)", "rbp(p=0.5)"]


def test_a_relevance_beyond_the_cutoff_is_not_refused():
    metric = parse_metric("err(max_grade=2)")[0]
    assert metric.values(build_lists([[[1], [3]]], [metric], max_k=5), 1).tolist() == [0.25]


def test_long_ties_are_averaged_fast():
    """600 tied items, one of them relevant: it is equally likely at each rank."""
    metric = parse_metric("err(max_grade=1)")[0]
    actual = metric.values(build_lists([[[1] + [0] * 599]], [metric]), None)[0]
    assert actual == pytest.approx(sum(0.5 / (rank + 1) for rank in range(600)) / 600, abs=1e-15)


def test_a_given_rank_far_down_costs_no_table_of_all_ranks():
    metric = parse_metric("rbp")[0]
    lists = build_lists([[[1], [2]]], [metric])
    groups = replace(lists.groups, start=np.array([0, 9_999_999]))
    far = replace(lists, read=lambda: replace(lists.entries, groups=groups))
    assert metric.values(far, None).tolist() == pytest.approx([0.2], abs=1e-16)


def test_every_metric_has_a_description():
    for name, metric in all_metrics().items():
        assert metric.name == name
        assert metric.about
        assert metric.source
        assert metric().column.isidentifier()
