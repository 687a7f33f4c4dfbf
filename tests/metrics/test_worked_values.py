"""Metrics compared with values of other tools, and with their definitions.

pte: pytrec_eval-terrier 0.5.11; te: trec_eval 10.0-rc3; rt: RecTools 0.19.0; rp: RePlay 0.22.0; rec: recommenders
1.2.1; def: by definition; perm: also the mean over every order of tied items.
"""

from __future__ import annotations

import pytest
from support.metric_definitions import compute_value

LIST = [[0], [3], [None], [2], [0], [1], [3], [0]]
NOT_RETRIEVED = [2, 0]
TIED = [[0], [3, None, 2, 0], [1, 3, 0]]


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("cg@5", 5),  # def
        ("p@10", 0.4),  # pte te
        ("r@5", 0.4),
        ("success@1", 0),
        ("rr", 0.5),
        ("rprec", 0.4),
        ("bpref", 0.5),
        ("rprec(rel=2)", 0.5),
        ("bpref(rel=2)", 0.4375),  # pte
        ("ap", 0.414285714286),
        ("ap(rel=2)", 0.357142857143),  # pte te
        ("ap@3", 0.1),
        ("ap(denominator=achievable)@3", 0.166666666667),  # rp rec
        ("ap(denominator=hits)@3", 0.5),  # def
        ("ap(denominator=k)@10", 0.207142857143),  # rt
        ("err@10", 0.276657104492),  # ir_measures, by gdeval, to 5 decimals
        ("err(max_grade=3)@10", 0.459391276042),  # def
        ("rbp", 0.3803648),
        ("rbp(rel=2)", 0.3148288),  # cwl-eval 1.0.12
        ("rbp(max_grade=3)", 0.3025408),  # te
        ("rbp_residual", 0.29577216),  # te
        ("judged@3", 2 / 3),  # def
        ("judged@10", 0.875),
    ],
)
def test_a_list_with_unjudged_and_missing_items(metric, expected):
    assert compute_value(metric, LIST, NOT_RETRIEVED) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("p@3", 0.333333333333),
        ("success@3", 0.833333333333),
        ("rr@3", 0.361111111111),
        ("err@3", 0.125651041667),
        ("ap@3", 0.094444444444),
        ("ap(denominator=hits)@3", 0.375),
        ("judged@3", (1 + 2 * 3 / 4) / 3),  # one item of rank 1, and two of four items, three of them judged
    ],
)
def test_tied_items_averaged_over_all_orders(metric, expected):  # perm
    assert compute_value(metric, TIED, [2, 0]) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("ap(denominator=hits)@4", 0.879629629630),
        ("acg@4", 1.083333333333),
        ("wap@4", 1.152777777778),
        ("ap_r", 0.56),
        ("ap(denominator=hits)@8", 0.773888888889),
        ("acg@8", 1.125),
        ("wap@8", 1.157222222222),
    ],
)
def test_binary_codes_whose_distances_tie(metric, expected):
    """Query 178 with labels ABD; distances 0,1,1,2,2,2,3,5 and relevances 1,0,2,3,0,1,0,2 (perm)."""
    assert compute_value(metric, [[1], [0, 2], [3, 0, 1], [0], [2]]) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("metric", "expected"), [("ap", 0.355026455026), ("ap(denominator=achievable)@3", 0.240740740741)]
)
def test_the_rankings_of_spark_ranking_metrics_suite(metric, expected):
    lists = [[1, 6, 2, 7, 8, 3, 9, 10, 4, 5], [4, 1, 5, 6, 2, 7, 3, 8, 9, 10], [1, 2, 3, 4, 5]]
    labels = [[1, 2, 3, 4, 5], [1, 2, 3], []]
    actual = [
        compute_value(metric, [[1 if item in truth else None] for item in items])
        for items, truth in zip(lists, labels, strict=True)
    ]
    assert sum(actual) / 3 == pytest.approx(expected, abs=1e-12)
