"""Tied items: averaged, best first, worst first, as their definitions say; and how a tied scorer shows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sklearn.metrics import ndcg_score
from support.arrow_rows import build_long_table
from support.engines import parametrize_engine
from support.main_job import assert_refused, find_value, mean_ndcg, write_rows
from support.oracle import Choices, Cutoff, Row, build_rows, evaluate, evaluate_single, group_by_query, to_float32
from support.random_rankings import random_rows
from support.spark_rankings import (
    EXACT_FIELDS,
    Case,
    build_convention,
    is_close,
    session_settings,
    shuffle_rows,
)

from ndcg_spark import PRESETS
from ndcg_spark import evaluate as evaluate_on_spark
from ndcg_spark.core.adapters import convert_tables
from ndcg_spark.evaluation import EvaluationSettings, rank_queries, summarize_rankings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EXACT = 1e-12
L = 1.0 / math.log2(3.0)
CAPPED = (1, 2, 3, 5)
WHOLE = (1, 3, 10, None)
IN_STEPS = "table:0=0.5,1=1,2=1,3=3,4=3"
RULES = ("expected", "best", "worst")

CASES: Mapping[str, tuple[Choices, dict[str, bool]]] = {
    "expected": (Choices(ties="expected"), {}),
    "expected, float32, clip, retrieved": (
        Choices(gain="linear", ties="expected", score_precision="float32", negative="clip", ideal="retrieved"),
        {"extreme_scores": True, "negatives": True, "integer_items": True},
    ),
    "best": (Choices(gain=IN_STEPS, ties="best", unjudged="condensed", discount="reciprocal"), {}),
    "worst, condensed, pad": (
        Choices(ties="worst", unjudged="condensed", pad_to_k=0.5, missing_query="drop", unjudged_query="zero"),
        {"fractional": True, "negatives": True},
    ),
}
"""Choices, and the shape of the random rankings that they are tried on."""


def rows_of(name: str) -> list[Row]:
    return random_rows(200 + list(CASES).index(name), **CASES[name][1])


def values_of_all_orders(scores: Sequence[float], relevances: Sequence[float], k: int) -> list[float]:
    """NDCG@k, linear gain, of every permutation of the items that has falling scores. All permutations are tried."""

    def dcg(order: Sequence[float]) -> float:
        return math.fsum(relevance / math.log2(n + 2) for n, relevance in enumerate(order[:k]))

    items = list(zip(scores, relevances, strict=True))
    orders = [order for order in itertools.permutations(items) if list(order) == sorted(order, key=lambda i: -i[0])]
    return [dcg([relevance for _, relevance in order]) / dcg(sorted(relevances, reverse=True)) for order in orders]


@pytest.mark.parametrize("k", [1, 2, 3, 6])
@pytest.mark.parametrize(
    ("scores", "relevances", "n_orders"),
    [
        ((1.0, 1.0, 1.0, 1.0, 1.0, 1.0), (3.0, 0.0, 1.0, 1.0, 2.0, 0.0), 720),
        ((2.0, 1.0, 1.0, 1.0, 0.0, 0.0), (0.0, 2.0, 1.0, 0.0, 0.0, 3.0), 12),
        ((0.0, 2.0, 2.0, 0.0, 2.0, 1.0), (-1.0, 1.0, -2.0, 3.0, 0.0, 1.0), 12),
        ((6.0, 5.0, 4.0, 3.0, 2.0, 1.0), (0.0, 2.0, 1.0, 0.0, 0.0, 3.0), 1),
    ],
)
def test_the_oracle_is_the_mean_the_maximum_and_the_minimum_over_all_orders(scores, relevances, n_orders, k):
    every = values_of_all_orders(scores, relevances, k)
    assert len(every) == n_orders
    got = [
        evaluate_single(build_rows(scores, relevances), Choices(gain="linear", ties=ties), k).ndcg for ties in RULES
    ]
    assert got == pytest.approx([math.fsum(every) / n_orders, max(every), min(every)], rel=0, abs=EXACT)


# --- Both engines equal the oracle


def tied_share(rows: Sequence[Row], choices: Choices, k: Cutoff) -> float:
    """Share of the first k ranks of one query that the tie group fills which goes on beyond rank k."""
    condensed, single = choices.unjudged == "condensed", choices.score_precision == "float32"
    listed = [row for row in rows if not (condensed and row.relevance is None)]
    scores = [row.score for row in listed if row.score is not None]
    ranked = sorted((to_float32(score) if single else score for score in scores), reverse=True)
    if k is None or len(ranked) <= k or ranked[k - 1] != ranked[k]:
        return 0.0
    return sum(1 for score in ranked[:k] if score == ranked[k]) / k


def expected_of(rows: Sequence[Row], choices: Choices, cutoffs: Sequence[Cutoff]) -> dict[Any, dict[str, Any]]:
    """What the oracle says of each (query, k), tie bounds included; these are null where the query has no NDCG."""
    own, best, worst = (evaluate(rows, replace(choices, ties=t), cutoffs) for t in (choices.ties, "best", "worst"))
    its_rows = group_by_query(rows)
    actual = {key: asdict(result) for key, result in own.items()}
    for key, row in actual.items():
        share = None if row["ndcg"] is None else tied_share(its_rows[key[0]], choices, key[1])
        row |= {"ndcg_best": best[key].ndcg, "ndcg_worst": worst[key].ndcg, "tied_share": share}
    return actual


def case_of(rows: Sequence[Row], choices: Choices, cutoffs: Sequence[Cutoff], form: str) -> Case:
    """Of a long table, or of a run with judgments."""
    table = build_long_table(rows, choices)
    settings = EvaluationSettings(convention=build_convention(choices), cutoffs=tuple(cutoffs), tie_bounds=True)
    if form == "long":
        return Case(data=table, settings=replace(settings, null_score="unretrieved"))
    run = table.filter(table["score"].is_valid()).drop_columns(["relevance"])
    judgments = table.filter(table["relevance"].is_valid()).drop_columns(["score"])
    return Case(data=run, judgments=judgments, settings=settings)


def together(frames: Mapping[str, DataFrame]) -> dict[str, list[Any]]:
    """Rows of each frame; one action for all of them."""
    from pyspark.sql import functions as F

    named = [frame.withColumn("of", F.lit(name)) for name, frame in frames.items()]
    actual: dict[str, list[Any]] = {name: [] for name in frames}
    for row in reduce(lambda left, right: left.unionByName(right), named).collect():
        actual[row["of"]].append(row)
    return actual


@parametrize_engine("name", local=CASES, spark=["expected, float32, clip, retrieved"])
def test_every_query_scores_what_the_oracle_says(engine, name):
    """Cut in the query engine (k=5) and from whole lists; each rule meets both forms of input with either."""
    rows, choices = rows_of(name), CASES[name][0]
    cutoffs = {"long": WHOLE, "judgments": CAPPED} if name in RULES else {"long": CAPPED, "judgments": WHOLE}
    cases = {form: case_of(rows, choices, cutoffs[form], form) for form in cutoffs}
    local = engine["engine"] == "local"
    for form, case in cases.items():
        actual = case.ranking_here().per_query().to_pylist() if local else case.per_query().collect()
        expected = expected_of(rows, choices, cutoffs[form])
        got = {(row["query_id"], row["k"]): row for row in actual}
        assert len(actual) == len(got)
        assert got.keys() == expected.keys()
        for key, values in expected.items():
            for field, value in values.items():
                group = got[key][field]
                same = group == value if field in EXACT_FIELDS else is_close(group, value, EXACT)
                assert same, f"{form}, {key}, {field}: got {group}, expected {value}"


@pytest.mark.parametrize("name", CASES)
def test_the_random_rankings_are_hostile_enough(name):
    """Else the test above could pass for nothing: at each cutoff a tie straddles it and its order matters."""
    rows, choices = rows_of(name), CASES[name][0]
    best, expected, worst = (
        evaluate(rows, replace(choices, ties=ties), (*CAPPED, 10)) for ties in ("best", "expected", "worst")
    )
    its_rows = group_by_query(rows)
    for k in (*CAPPED, 10):
        straddled = [query for query in its_rows if tied_share(its_rows[query], choices, k) > 0]
        dcgs = [[group[query, k].dcg for group in (best, expected, worst)] for query in straddled]
        matters = sum(1 for high, middle, low in dcgs if high is not None and high > middle > low)
        assert matters >= (1 if k == 10 else 2), k  # at 10, the query that is half of all rows
    assert {result.status for result in best.values()} >= {"evaluated", "missing", "unjudged"}
    assert any(0 < result.n_items < 5 for result in best.values())
    assert any(row.score is None for row in rows)
    assert any(row.relevance is None for row in rows)


def test_expected_ties_are_those_of_scikit_learn():
    """The preset `sklearn` against `ndcg_score`, which has another implementation of the same average."""
    rows = random_rows(
        300, n_queries=40, max_items=20, fractional=True, nulls=False, unretrieved=False, special=False
    )
    lists = {
        query: group for query, group in group_by_query(rows).items() if len(group) > 1
    }  # it refuses single items
    kept = [row for group in lists.values() for row in group]
    settings = EvaluationSettings(cutoffs=(1, 3, 10, None), convention=PRESETS["sklearn"])
    case = Case(data=build_long_table(kept, Choices()), settings=settings)
    actual = case.ranking_here().per_query().to_pylist()
    assert len(actual) == 4 * len(lists) >= 120
    for row in actual:
        group = lists[row["query_id"]]
        scores, relevances = (
            np.array([[getattr(element, name) for element in group]]) for name in ("score", "relevance")
        )
        expected = ndcg_score(relevances, scores, k=row["k"])
        assert row["ndcg"] == pytest.approx(expected, rel=0, abs=EXACT), (row["query_id"], row["k"])


def mean_bits(rows: Iterable[Mapping[str, Any]]) -> dict[tuple[Any, ...], str]:
    """Each value by what it is the value of; a number by its bits."""
    keys, values = ("segment", "metric", "k"), ("value", "std_error", "ci_low", "ci_high")
    return {
        tuple(row[name] for name in keys): " ".join("-" if row[n] is None else row[n].hex() for n in values)
        for row in rows
    }


def test_neither_row_order_nor_partitions_nor_the_form_change_a_bit(spark):
    """Gains that are no binary fractions, in groups of some twenty: another order of adding would show.

    Each query is a segment of its own, whose mean is the value of the query.
    """
    rows, choices = random_rows(301, n_queries=10, max_items=25, fractional=True), Choices(gain="power:1.5")
    cases = {
        "long": (1, case_of(rows, choices, (2, 7), "long")),
        "seven": (7, case_of(shuffle_rows(rows, 5), choices, (2, 7), "long")),
        "judgments": (7, case_of(shuffle_rows(rows, 5), choices, (2, 7), "judgments")),
    }
    frames = {}
    for name, (n_partitions, case) in cases.items():
        settings = replace(case.settings, segment_sets=(("query_id",),))
        tables = {of: frame.repartition(n_partitions) for of, frame in convert_tables(case.tables).items()}
        ranked = rank_queries(tables["input"], settings, judgments=tables.get("judgments"))
        frames[name] = summarize_rankings(ranked, settings)
    with session_settings(spark, spark__sql__shuffle__partitions=3):
        actual = {name: mean_bits(group) for name, group in together(frames).items()}
    assert len(actual["long"]) >= 2 * 6 * 12  # cutoffs, metrics, queries that count
    assert actual["long"] == actual["seven"] == actual["judgments"]


def test_a_query_of_200000_tied_rows_has_the_closed_form_and_needs_four_entries(spark):
    """Of ten items one has relevance 3, one has 1, one is unjudged, seven have 0: mean gain (7 + 1) / 10 = 0.8.

    Every rank gets 0.8 * discount. The ideal has gain 7 on its first 20,000 ranks, then 1 on as many:
    NDCG@10 = 0.8 D(10) / (7 D(10)) = 4/35, and of the whole list 0.8 D(200000) / (6 D(20000) + D(40000)).
    """
    relevance = "case id % 10 when 0 then 3D when 1 then 1D when 2 then null else 0D end as relevance"
    rows = spark.range(200_000, numPartitions=2).selectExpr("'q' query_id", "id item_id", "0.25D score", relevance)
    run, judged = rows.drop("relevance"), rows.where("relevance is not null").drop("score")
    options: Any = {"convention": "default;ties=expected", "tie_bounds": True}
    evaluations = {
        "long": evaluate_on_spark(rows, k=[10, "all"], item=None, **options),
        "judgments": evaluate_on_spark(run, judgments=judged, k=[10], **options),
    }
    kept = {form: element.rankings.persist() for form, element in evaluations.items()}
    try:
        lists = together(
            {form: element.selectExpr("size(ranked)", "scores", "tied") for form, element in kept.items()}
        )
        actual = together({form: element.per_query for form, element in evaluations.items()})
    finally:
        for element in kept.values():
            element.unpersist()
    for [(n_entries, scores, tied, _)] in lists.values():
        assert (n_entries, scores, sorted(tied)) == (4, [0.25] * 4, [20_000, 20_000, 20_000, 140_000])
    got = {
        (form, row["k"]): [row[name] for name in ("ndcg_worst", "ndcg", "ndcg_best", "tied_share")]
        for form, group in actual.items()
        for row in group
    }
    discounts = [1.0 / math.log2(rank + 1) for rank in range(1, 200_001)]
    d_all, d_20, d_40, d_160, d_180 = (math.fsum(discounts[: n * 1000]) for n in (200, 20, 40, 160, 180))
    best, worst = 6.0 * d_20 + d_40, 7.0 * (d_all - d_180) + (d_180 - d_160)
    assert got.keys() == {("long", 10), ("long", None), ("judgments", 10)}
    assert got["judgments", 10] == got["long", 10] == pytest.approx([0.0, 4.0 / 35.0, 1.0, 1.0], rel=0, abs=EXACT)
    assert got["long", None] == pytest.approx([worst / best, 0.8 * d_all / best, 1.0, 0.0], rel=0, abs=EXACT)


TWO_RUNS = [
    *[
        Row(query=f"constant {n}", item=f"{n} {i}", score=0.5, relevance=float(i == 2))
        for n in (1, 2)
        for i in range(4)
    ],
    *[Row(query="sorted", item=f"{i}", score=-float(i), relevance=float(i == 1)) for i in range(4)],
]
"""Four items, one of them relevant: all tied, or relevant on rank 2."""


def test_a_constant_scorer_is_warned_of_and_its_bounds_lie_apart(tmp_path):
    """NDCG@2 of one relevant item in four tied ones: best 1, worst 0, expected (1 + L) / 4; a sorted run has L."""
    table = write_rows(tmp_path / "rows.parquet", TWO_RUNS, run=lambda row: row.query.split()[0])
    ended = mean_ndcg(
        "--input", table, "--run-col", "run", "--ties", "expected", "--tie-bounds", "--k", "2", "--json", "-",
        "--engine", "local",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    assert len(ended.complaints) == 1, ended.err
    assert ended.complaints[0].startswith(
        "warning: run 'constant' is nearly constant: on average 100% of the first 2"
    )
    metrics = ("ndcg_worst", "ndcg", "ndcg_best", "tied_share")
    values = {
        run: [find_value(ended.json, metric, 2, run=run) for metric in metrics] for run in ("constant", "sorted")
    }
    assert values["constant"] == pytest.approx([0.0, (1.0 + L) / 4.0, 1.0, 1.0], rel=0, abs=EXACT)
    assert values["sorted"] == pytest.approx([L, L, L, 0.0], rel=0, abs=EXACT)


def test_tie_bounds_of_an_order_without_ties_are_refused(tmp_path):
    table = write_rows(tmp_path / "rows.parquet", TWO_RUNS)
    assert_refused(mean_ndcg("--input", table, "--ties", "item_asc", "--tie-bounds"), "tie bounds", "item_asc")
