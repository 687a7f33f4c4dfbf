"""Comparisons by workers, without Spark: worked values, policies, refusals, and that order cannot matter."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
from support.comparing import (
    QUERIES,
    W,
    X,
    Y,
    build_metric,
    build_settings,
    compare_rows,
    estimate,
    example_1,
    example_2,
    index_by_segment,
    select_overall,
)
from support.expectations import near

from ndcg_spark.comparison.printed import format_sentences
from ndcg_spark.core import student
from ndcg_spark.errors import InputRefusedError

BOTH = {"replicates": 1000, "flips": 9999}


def test_example_1():
    (row,) = compare_rows(example_1(), build_settings(**BOTH, effect=0.02))
    assert (row["run"], row["baseline"], row["segment_by"], row["segment"]) == ("b", "a", "", "")
    assert (row["n_queries"], row["n_wins"], row["n_ties"], row["n_losses"]) == (12, 8, 2, 2)
    assert (row["baseline_value"], row["value"]) == (near(0.54), near(0.611666666667))
    assert (row["difference"], row["std_error"]) == (near(0.071666666667), near(0.026135814663))
    assert (row["t"], row["p_value"], row["df"]) == (near(2.742086580873), near(0.019159835596), 11)
    assert (row["ci_low"], row["ci_high"]) == (near(0.014142126447), near(0.129191206886))
    assert (row["lift"], row["lift_low"], row["lift_high"]) == (
        near(0.132716049383), near(0.021822497721), near(0.324287769832),
    )  # fmt: skip
    assert (row["p_sign_flip"], row["n_flips"]) == (0.021484375, 0)
    assert (row["boot_low"], row["boot_high"]) == (near(0.022714646424), near(0.123346153921))
    assert (row["boot_t_low"], row["boot_t_high"]) == (near(0.020274137492), near(0.133892227294))
    assert (row["mde"], row["n_required"]) == (near(0.080456195888), 163)
    assert (row["p_holm"], row["p_bh"], row["family_size"]) == (row["p_value"], row["p_value"], 1)
    assert (row["verdict"], row["note"]) == ("better", "")
    assert (row["n_clusters"], row["design_effect"], row["cluster_by"]) == (None, None, "")
    assert (row["seed"], row["n_replicates"], row["unpaired"]) == (42, 1000, "zero")


def test_example_1_by_segment():
    actual = compare_rows(example_1(), build_settings(**BOTH, segment_sets=(("country",),)))
    assert [row["segment"] for row in actual] == ["", "DE", "FR", "US"]
    group = index_by_segment(actual)
    assert (group["US"]["difference"], group["US"]["std_error"]) == (near(0.0225), near(0.039660013448))
    assert (group["US"]["p_value"], group["US"]["p_sign_flip"]) == (near(0.610173154686), 0.75)
    assert (group["DE"]["p_sign_flip"], group["DE"]["note"]) == (0.0625, "few_queries")
    assert (group["FR"]["difference"], group["FR"]["p_value"], group["FR"]["std_error"]) == (near(0.12), None, None)
    assert (group["US"]["boot_low"], group["US"]["boot_t_low"]) == (None, None)
    assert actual[0]["family_size"] == 3  # FR has no p-value
    assert actual[0]["boot_low"] == near(0.022714646424)  # added up from segments


def test_a_segment_set_changes_no_bit_of_the_others():
    alone = compare_rows(example_1(), build_settings(**BOTH, weight="weight"))[0]
    beside = compare_rows(
        example_1(), build_settings(**BOTH, weight="weight", segment_sets=(("country",), ("country", "user")))
    )
    several = select_overall(beside)[0]
    for name in set(alone) - {"p_holm", "p_bh", "family_size", "verdict"}:
        assert several[name] == alone[name], name
    assert {row["segment"] for row in beside if row["segment_by"] == "country+user"} >= {'["DE","u1"]'}


def test_example_1_weighted():
    (row,) = compare_rows(example_1(), build_settings(weight="weight", **BOTH))
    assert (row["difference"], row["std_error"]) == (near(0.065), near(0.029933342139))
    assert row["weight_sum"] == 16.0
    assert row["boot_low"] < row["difference"] < row["boot_high"]


def test_example_1_clustered():
    (row,) = compare_rows(example_1(), build_settings(cluster="user", **BOTH))
    assert (row["n_clusters"], row["n_clusters_effective"]) == (5, near(4.5))
    assert (row["std_error"], row["p_value"], row["df"]) == (near(0.034184728740), near(0.104069275444), 4)
    assert (row["design_effect"], row["n_effective"]) == (near(1.710772232491), near(7.014376181758))
    assert (row["p_sign_flip"], row["n_flips"]) == (0.0625, 0)
    assert (row["boot_low"], row["boot_high"]) == (near(0.027944444441), near(0.146208333347))
    assert (row["note"], row["cluster_by"]) == ("few_clusters", "user")
    assert row["difference"] == near(0.071666666667)
    (weighted,) = compare_rows(example_1(), build_settings(cluster="user", weight="weight"))
    assert weighted["std_error"] == near(0.041480623065)


def test_clustering_by_the_query_gives_the_same_bits_as_none():
    rows = [{**row, "user": row["query"]} for row in example_1()]
    settings = {**BOTH, "segment_sets": (("country",),)}
    with_clusters, without = (
        compare_rows(rows, build_settings(cluster="user", **settings)),
        compare_rows(rows, build_settings(**settings)),
    )
    for one, other in zip(with_clusters, without, strict=True):
        same = set(one) - {"n_clusters", "n_clusters_effective", "design_effect", "n_effective", "cluster_by", "note"}
        assert {name: one[name] for name in same} == {name: other[name] for name in same}


def test_a_query_without_cluster_is_one_by_itself():
    rows = [{**row, "user": None} for row in example_1()]
    (row,) = compare_rows(rows, build_settings(cluster="user", **BOTH))
    (plain,) = compare_rows(rows, build_settings(**BOTH))
    assert row["n_clusters"] == 12
    assert (row["std_error"], row["boot_t_low"]) == (plain["std_error"], plain["boot_t_low"])


def test_a_query_whose_name_is_that_of_a_cluster_stays_by_itself():
    namesake = [{"query": "u1", "run": run, "value": 0.5 + run / 8} for run in (0, 1)]
    rows = [{**row, "user": None if row["query"] == "u1" else "u1"} for row in (*example_1(), *namesake)]
    assert compare_rows(rows, build_settings(cluster="user"))[0]["n_clusters"] == 2


def test_queries_of_one_run():
    rows = example_1(one_sided=True)
    (zero,) = compare_rows(rows, build_settings())
    assert (zero["difference"], zero["std_error"]) == (near(0.032857142857), near(0.054303062584))
    assert (zero["n_queries"], zero["n_only_run"], zero["n_only_baseline"]) == (14, 1, 1)
    (dropped,) = compare_rows(rows, build_settings(unpaired="drop"))
    assert (dropped["difference"], dropped["n_queries"]) == (near(0.071666666667), 12)
    assert (dropped["n_only_run"], dropped["n_only_baseline"]) == (1, 1)
    with pytest.raises(
        InputRefusedError, match=r"query query_id=q1(3 is in run 'a' and not in 'b'|4 is in run 'b' and not in 'a')"
    ):
        compare_rows(rows, build_settings(unpaired="error"))


@pytest.mark.parametrize("unpaired", ["zero", "drop"])
def test_nothing_lacks_for_queries_of_one_run_without_a_value(unpaired):
    """As of queries that are not judged: they are in no mean, so that none is counted as 0."""
    alone = [{"query": query, "run": run, "value": None} for query, run in (("q21", 0), ("q22", 1), ("q23", 1))]
    (plain,) = compare_rows(example_1(one_sided=True), build_settings(unpaired=unpaired))
    (beside,) = compare_rows([*example_1(one_sided=True), *alone], build_settings(unpaired=unpaired))
    skipped = {"n_skipped": 3 if unpaired == "zero" else 0}
    assert beside == plain | skipped
    how = "counted as 0" if unpaired == "zero" else "left out"
    lacks = f"ndcg@10: b lacks 1 query of a and a lacks 1 query of b, {how}."
    assert format_sentences(beside, build_settings(unpaired=unpaired))[0] == lacks


@pytest.mark.parametrize("unpaired", ["zero", "drop"])
def test_a_segment_that_one_run_lacks_is_unclear(unpaired):
    """All zeros on one side would be a large difference with a small p-value."""
    rows = [row for row in example_1() if row["country"] != "DE" or row["run"] == 1]
    actual = compare_rows(rows, build_settings(**BOTH, segment_sets=(("country",),), unpaired=unpaired))
    group = index_by_segment(actual)
    assert (group["DE"]["verdict"], group["DE"]["note"]) == ("unclear", "one_side_empty,few_queries")
    assert (group["DE"]["n_only_run"], group["DE"]["n_only_baseline"]) == (7, 0)
    assert [group["DE"][name] for name in ("p_value", "p_sign_flip", "p_holm", "p_bh")] == [None] * 4
    assert group["DE"]["difference"] == (near(4.23 / 7) if unpaired == "zero" else None)
    assert "one_side_empty" not in group["US"]["note"] + actual[0]["note"]
    assert actual[0]["family_size"] == 2  # overall and US


@pytest.mark.parametrize("unpaired", ["zero", "drop"])
@pytest.mark.parametrize("baseline", ["c", "a", None])
def test_a_run_without_rows_is_refused(unpaired, baseline):
    settings = build_settings(runs=("a", "b", "c"), baseline=baseline, unpaired=unpaired)
    with pytest.raises(InputRefusedError, match=r"run 'c' has no rows; .* these have some: 'a', 'b'\."):
        compare_rows(example_1(), settings)


@pytest.mark.parametrize("unpaired", ["zero", "drop"])
def test_a_run_has_rows_if_its_common_queries_have_weight_0(unpaired):
    """The query that only run b has is 0 in run a (`zero`) or left out (`drop`); run a is not without rows."""
    rows = [
        {"query": "q1", "run": 0, "value": 0.5, "weight": 0.0},
        {"query": "q1", "run": 1, "value": 0.25, "weight": 0.0},
        {"query": "q2", "run": 1, "value": 0.75, "weight": 1.0},
    ]
    (row,) = compare_rows(rows, build_settings(unpaired=unpaired, weight="weight"))
    assert (row["n_queries"], row["difference"]) == ((1, 0.75) if unpaired == "zero" else (0, None))
    assert (row["n_only_run"], row["n_only_baseline"]) == (1, 0)
    assert "one_side_empty" not in row["note"]


@pytest.mark.parametrize("unpaired", ["zero", "drop"])
def test_a_segment_whose_queries_have_weight_0_has_no_row(unpaired):
    rows = [
        {"query": query, "run": run, "value": 0.5, "weight": weight, "country": country}
        for run in (0, 1)
        for query, weight, country in (("q1", 0.0, "US"), ("q2", 1.0, "DE"), ("q3", 1.0, "DE"))
    ]
    settings = build_settings(unpaired=unpaired, weight="weight", segment_sets=(("country",),))
    assert sorted(row["segment"] for row in compare_rows(rows, settings)) == ["", "DE"]


@pytest.mark.parametrize("baseline_is_larger", [False, True])
@pytest.mark.parametrize(
    ("n_run", "n_shared", "unpaired", "is_refused"),
    [
        (10, 0, "zero", True),
        (10, 1, "zero", True),
        (10, 2, "zero", False),
        (9, 0, "zero", False),
        (10, 1, "drop", False),
        (0, 0, "zero", False),  # another refusal
    ],
)
def test_runs_of_different_queries_are_refused(n_run, n_shared, unpaired, is_refused, baseline_is_larger):
    """90 queries of 0.5 in one run, and 10 of 0.6 in the other, which would be worse by 0.39."""
    queries = (range(90), range(90 - n_shared, 90 - n_shared + n_run))
    rows = [
        {"query": f"q{query}", "run": run if baseline_is_larger else 1 - run, "value": value}
        for run, value in ((0, 0.5), (1, 0.6))
        for query in queries[run]
    ]
    if not is_refused and n_run:
        assert compare_rows(rows, build_settings(unpaired=unpaired))
        return
    message = rf"share {n_shared} of 10 queries, as in an A/B test: .*unpaired='drop'" if n_run else "has no rows"
    with pytest.raises(InputRefusedError, match=message):
        compare_rows(rows, build_settings(unpaired=unpaired))


@pytest.mark.parametrize("n_missed_by_both", [0, 900])
def test_judged_queries_that_both_runs_miss_are_not_shared(n_missed_by_both):
    """Of a table of judgments each run has a row of every query; those without a list are `missing`."""
    queries = (range(90), range(90, 100))
    rows = [
        {
            "query": f"q{query}",
            "run": run,
            "value": 0.5 * (query in queries[run]),
            "missing": query not in queries[run],
        }
        for run in (0, 1)
        for query in range(100 + n_missed_by_both)
    ]
    with pytest.raises(InputRefusedError, match="share 0 of 10 queries"):
        compare_rows(rows, build_settings())


def test_shared_queries_may_have_weight_0():
    rows = [
        {"query": f"q{query}", "run": run, "value": 0.5, "weight": float(query % 20 == 0)}
        for run in (0, 1)
        for query in range(15 * run, 100 + 15 * run)
    ]
    (row,) = compare_rows(rows, build_settings(weight="weight"))
    assert (row["n_queries"], row["n_only_run"], row["n_only_baseline"]) == (6, 15, 15)


@pytest.mark.parametrize("metric", ["ndcg", "ils"])
def test_queries_that_are_left_out_anyway_may_differ(metric):
    """Of metrics where less is better a missing query is left out."""
    rows = [{"query": f"q{10 * run + at}", "run": run, "value": 0.5} for run in (0, 1) for at in range(10)]
    if metric == "ndcg":
        with pytest.raises(InputRefusedError, match="share 0 of 10 queries"):
            compare_rows(rows, build_settings())
    else:
        (row,) = compare_rows(rows, build_settings(metrics=(build_metric(metric),)))
        assert (row["n_queries"], row["n_skipped"]) == (0, 20)


def test_a_run_without_rows_at_one_cutoff_is_refused():
    rows = [{**row, "k": k} for row in example_1() for k in ((10,) if row["run"] == 0 else (5, 10))]
    with pytest.raises(InputRefusedError, match=r"run 'a' has no query at k=5, where 'b' has some; choose cutoffs"):
        compare_rows(rows, build_settings())


def test_three_runs():
    actual = compare_rows(example_1(with_c=True), build_settings(runs=("a", "b", "c"), baseline=None))
    assert [(row["run"], row["baseline"]) for row in actual] == [("b", "a"), ("c", "a"), ("c", "b")]
    assert [row["p_value"] for row in actual] == [near(0.019159835596), near(0.017505305127), near(0.054386395576)]
    assert [row["p_holm"] for row in actual] == [near(0.052515915382), near(0.052515915382), near(0.054386395576)]
    assert actual[2]["difference"] == near(-0.040833333333)
    against_b = compare_rows(example_1(with_c=True), build_settings(runs=("a", "b", "c"), baseline="b"))
    assert [(row["run"], row["family_size"]) for row in against_b] == [("a", 2), ("c", 2)]


def test_example_2():
    keys, x, y = example_2()
    rows = [
        {"query": key, "run": run, "value": v}
        for run, group in ((0, x), (1, y))
        for key, v in zip(keys, group, strict=True)
    ]
    (row,) = compare_rows(rows, build_settings(**BOTH), rows_per_batch=64)
    assert (row["difference"], row["std_error"]) == (near(0.006758690341), near(0.003050929414))
    assert (row["p_value"], row["p_sign_flip"]) == (near(0.027190978007), near(0.0282))
    assert row["n_flips"] == 9999
    assert (row["boot_low"], row["boot_high"]) == (near(0.000607763414), near(0.012962830640))
    assert (row["boot_t_low"], row["boot_t_high"]) == (near(0.000642763461), near(0.012807337028))


@pytest.mark.parametrize(
    "changes", [{}, {"weight": "weight"}, {"cluster": "user"}, {"cluster": "user", "weight": "w"}]
)
def test_order_and_partitions_change_no_bit(changes):
    keys, x, y = example_2()
    rng = np.random.default_rng(5)
    weights, users = rng.random(500), [f"u{n}" for n in rng.integers(0, 60, 500)]
    rows = [
        {"query": key, "run": run, "value": v, "weight": w, "w": w, "user": user, "country": "x" if w > 0.5 else None}
        for run, group in ((0, x), (1, y))
        for key, v, w, user in zip(keys, group, weights, users, strict=True)
    ]
    rows = [{**row, "k": k} for row in rows for k in (None, 5)]
    settings = build_settings(**{**BOTH, "flips": 500, "segment_sets": (("country",),), **changes})
    expected = compare_rows(rows, settings, n_partitions=1, rows_per_batch=10**6)
    assert len(expected) == 6
    assert {row["n_clusters"] for row in expected if not row["segment_by"]} == ({60} if settings.cluster else {None})
    shuffled = [rows[at] for at in rng.permutation(len(rows))]
    sizes = {"n_partitions": 7, "rows_per_batch": 11, "chunk_rows": 40, "max_held_bytes": 100_000}
    assert compare_rows(shuffled, settings, **sizes) == expected
    assert compare_rows(shuffled, settings, **sizes, min_summed_units=2) == expected


def test_nulls_and_nan_are_left_out_of_their_metric():
    rows = [
        {**row, "ndcg": row["value"], "ap": None if row["query"] == "q01" and row["run"] else row["value"]}
        for row in example_1()
    ]
    rows[0]["ndcg"] = float("nan")
    settings = build_settings(metrics=(build_metric("ndcg"), build_metric("ap")))
    ap, ndcg = compare_rows(rows, settings)
    expected = estimate(X[1:], Y[1:])
    for row in (ap, ndcg):
        assert (row["n_queries"], row["n_skipped"], row["difference"]) == (11, 1, expected.difference)


def test_a_weight_of_zero_does_not_count():
    rows = [{**row, "weight": 0.0 if row["query"] == "q01" else row["weight"]} for row in example_1()]
    (row,) = compare_rows(rows, build_settings(weight="weight"))
    assert row["n_queries"] == 11
    assert row["difference"] == estimate(X[1:], Y[1:], W[1:]).difference


def test_metrics_at_their_own_cutoffs():
    rows = [{**row, "k": k} for row in example_1() for k in (5, None)]
    metrics = (build_metric("ndcg", 5), build_metric("ap", None))
    assert [(row["metric"], row["k"]) for row in compare_rows(rows, build_settings(metrics=metrics))] == [
        ("ap", None),
        ("ndcg", 5),
    ]


def test_all_differences_equal():
    rows = [{"query": q, "run": run, "value": 0.25 + run / 8} for q in QUERIES for run in (0, 1)]
    (row,) = compare_rows(rows, build_settings(**BOTH))
    assert (row["std_error"], row["t"], row["p_value"], row["note"]) == (0.0, None, None, "no_spread")
    assert (row["family_size"], row["verdict"], row["boot_low"]) == (0, "not_worse", None)


def test_one_query():
    (row,) = compare_rows(example_1()[::12], build_settings(**BOTH))
    assert (row["difference"], row["std_error"], row["verdict"]) == (near(0.15), None, "unclear")


@pytest.mark.parametrize(("margin", "verdict"), [(0.0, "unclear"), (0.10, "unclear"), (0.11, "not_worse")])
def test_verdicts_of_the_segment_us(margin, verdict):
    # The interval of US begins at 0.0225 - 3.182446 * 0.039660 = -0.1037.
    rows = [row for row in example_1() if row["country"] == "US"]
    (row,) = compare_rows(rows, build_settings(margin=margin))
    assert row["ci_low"] == pytest.approx(0.0225 - 3.182446305284263 * 0.039660013448, abs=1e-11)
    assert row["verdict"] == verdict


def test_a_worse_run():
    rows = [{**row, "run": 1 - row["run"]} for row in example_1()]
    (row,) = compare_rows(rows, build_settings())
    assert (row["difference"], row["verdict"]) == (near(-0.071666666667), "worse")


# ------------------------------------------------------------------------------------------------- what is refused


def changed(at: int, **changes) -> list[dict]:
    rows = example_1()
    rows[at] = {**rows[at], **changes}
    return rows


@pytest.mark.parametrize(
    ("rows", "settings", "message"),
    [
        (example_1() + example_1()[:1], {}, r"query_id=q01 appears twice in run 'a' at k=10"),
        (changed(0, weight=9.0), {"weight": "weight"}, r"query_id=q01 has two values of column 'weight'"),
        (changed(0, country="FR"), {"segment_sets": (("country",),)}, r"column 'country' \('FR' and 'DE'\)"),
        (changed(0, country=None), {"segment_sets": (("country",),)}, "two values of column 'country'"),
        (changed(0, user="u9"), {"cluster": "user"}, r"query_id=q01 has two values of column 'user'"),
        (changed(0, user=None), {"cluster": "user"}, r"query_id=q01 has two values of column 'user'"),
        (changed(0, query=None), {}, "column 'query_id' is null"),
        (changed(0, value=float("inf")), {}, "not finite or too large"),
        ([{**row, "weight": -1.0} for row in example_1()], {"weight": "weight"}, r"has the weight -1.0"),
        ([{**row, "weight": None} for row in example_1()], {"weight": "weight"}, r"has the weight None"),
        (
            [{**row, "idcg": 2.0 + (row["query"] == "q03") * row["run"]} for row in example_1()],
            {},
            r"query_id=q03 has two values of IDCG, 2 in 'a' and 3 in 'b': one lacks rows",
        ),
    ],
)  # fmt: skip
def test_refusals(rows, settings, message):
    with pytest.raises(InputRefusedError, match=message):
        compare_rows(rows, build_settings(**settings))


def test_what_a_missing_query_cannot_know_is_taken_from_the_other_run():
    rows = changed(12, value=0.0, missing=True, country=None, weight=None, user=None)
    settings = {"segment_sets": (("country",),), "weight": "weight"}
    expected = compare_rows(changed(12, value=0.0), build_settings(**settings))
    assert {row["segment"] for row in expected} == {"", "DE", "US", "FR"}
    lacked = [{**row, "n_only_baseline": int(row["segment"] in ("", "DE"))} for row in expected]
    assert compare_rows(rows, build_settings(**settings)) == lacked
    (row,) = compare_rows(rows, build_settings(cluster="user"))
    assert row["n_clusters"] == 5


@pytest.mark.parametrize("cluster", [None, "user"])
@pytest.mark.parametrize("named_by", [0, 1])
def test_a_query_that_both_runs_miss_is_in_the_segment_that_one_of_them_knows(named_by, cluster):
    missed = {"query": "q13", "value": 0.0, "missing": True, "user": None}
    rows = [{**missed, "run": run, "country": "FR" if run == named_by else None} for run in (0, 1)]
    actual = compare_rows(example_1() + rows, build_settings(segment_sets=(("country",),), cluster=cluster))
    assert {row["segment"]: row["n_queries"] for row in actual} == {"": 13, "DE": 7, "US": 4, "FR": 2}


def test_queries_whose_hashes_collide_are_told_apart():
    rows = [{**row, "hash": 7 if row["query"] in ("q01", "q02") else 8} for row in example_1()]
    (row,) = compare_rows(rows, build_settings())
    assert (row["n_queries"], row["difference"]) == (12, near(0.071666666667))


@pytest.mark.parametrize("old_scipy", [False, True])
@pytest.mark.parametrize(("df", "alpha"), [(1.0, 0.05), (11.0, 0.05), (399.0, 0.01), (1e6, 0.2)])
def test_the_power_is_that_of_the_noncentral_t_and_80_percent_at_the_detectable_effect(
    monkeypatch, df, alpha, old_scipy
):
    """The same bits with the function of SciPy before 1.15."""
    if old_scipy:
        # stands in for: SciPy before 1.15, because one version is installed; the function it takes is the real one
        monkeypatch.setattr(student, "_has_exact_nctdtr", lambda: False)
    limit = scipy.stats.t.ppf(1 - alpha / 2, df)
    expected = scipy.stats.nct.sf(limit, df, 1.7) + scipy.stats.nct.cdf(-limit, df, 1.7)
    assert student.power(0.85, 0.5, df, alpha=alpha) == expected
    effect = student.detectable_effect(1.0, df, alpha=alpha)
    assert student.power(effect, 1.0, df, alpha=alpha) == pytest.approx(0.8, abs=1e-12)


def test_a_detectable_effect_that_scipy_cannot_compute_is_unknown():
    """SciPy 1.17 has no power above 101,452 standard errors, where it is 0.13; a number must be that of 0.8."""
    effect = student.detectable_effect(1.0, 1.0, alpha=1e-6)
    assert math.isnan(effect) or student.power(effect, 1.0, 1.0, alpha=1e-6) == pytest.approx(0.8, abs=1e-9)
