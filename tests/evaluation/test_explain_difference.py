"""The gap between two conventions, part by part: it adds up, and each part gets what is its own."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import reduce
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from support import engines
from support.main_job import assert_refused, mean_ndcg, run_command, run_mean_ndcg, write_judgments, write_run
from support.oracle import Choices, Row, evaluate, mean
from support.random_rankings import load, random_rows
from support.spark_rankings import SHORT_LIVED_PLANS, is_close, session_settings

from ndcg_spark import Convention, explain_difference

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EXACT = 1e-12
L = 1.0 / math.log2(3.0)
SCHEMA = "run string, query_id string, item_id string, score double, relevance double, w double"


@pytest.fixture(scope="module")
def _short_lived_plans(spark):
    with session_settings(spark, **SHORT_LIVED_PLANS):
        yield


Rows = dict[str, list[dict[str, Any]]]


def together(frames: Mapping[str, DataFrame | pa.Table]) -> Rows:
    """Rows of each table; of DataFrames by one action."""
    from pyspark.sql import functions as F

    if all(isinstance(frame, pa.Table) for frame in frames.values()):
        return {name: frame.to_pylist() for name, frame in frames.items()}
    named = [frame.withColumn("of", F.lit(name)) for name, frame in frames.items()]
    actual: Rows = {name: [] for name in frames}
    for row in reduce(lambda left, right: left.unionByName(right), named).collect():
        actual[row["of"]].append(row.asDict())
    return actual


def by_run(rows: list[dict[str, Any]]) -> Rows:
    """Steps of each run, in order."""
    ordered = sorted(rows, key=lambda row: (row["run"], row.get("step", 0)))
    return {run: list(group) for run, group in groupby(ordered, key=lambda row: row["run"])}


def parts_of(steps: list[dict[str, Any]]) -> dict[str, float]:
    assert (steps[0]["part"], steps[0]["contribution"]) == ("", None)
    assert [row["step"] for row in steps] == list(range(len(steps)))
    return {row["part"]: row["contribution"] for row in steps[1:]}


def assert_adds_up(steps: Rows, queries: Rows) -> None:
    """Of every run: steps add up to the gap, queries add up to the gap, each step is the change of the mean."""
    assert steps.keys() == queries.keys()
    for run, group in steps.items():
        gap = group[-1]["value"] - group[0]["value"]
        assert math.fsum(parts_of(group).values()) == pytest.approx(gap, rel=0, abs=EXACT), run
        assert math.fsum(row["contribution"] for row in queries[run]) == pytest.approx(gap, rel=0, abs=EXACT), run
        for before, row in pairwise(group):
            assert row["contribution"] == pytest.approx(row["value"] - before["value"], rel=0, abs=EXACT), run


# --- A table by hand, with a run for each part

A = "default;ties=item_asc"
B = "default;ties=expected;gain=linear;ideal=retrieved;no_relevant=one;missing_query=drop"
K_A, K_B = 2, 3
HAND: Mapping[str, list[tuple[str, str, float | None, float, float]]] = {  # query, item, score, relevance, weight
    "gain": [("g", "a", 2.0, 1.0, 1.0), ("g", "b", 1.0, 2.0, 1.0)],
    "ties": [("t", "a", 0.5, 0.0, 1.0), ("t", "b", 0.5, 1.0, 1.0)],
    "ideal": [("i", "a", 1.0, 1.0, 1.0), ("i", "u", None, 1.0, 1.0)],
    "cutoff": [("c", "a", 3.0, 1.0, 1.0), ("c", "b", 2.0, 0.0, 1.0), ("c", "c", 1.0, 1.0, 1.0)],
    "no relevant": [("n1", "a", 1.0, 1.0, 1.0), ("n2", "a", 1.0, 0.0, 1.0)],
    "missing": [("m1", "a", 1.0, 1.0, 1.0), ("m2", "u", None, 1.0, 1.0)],
    "weights": [("w1", "a", 0.5, 0.0, 3.0), ("w1", "b", 0.5, 1.0, 3.0), ("w2", "a", 1.0, 1.0, 1.0)],
}
EXPECTED = {
    # relevances 1, 2: (1 + 3 L) / (3 + L) with gains 1, 3, then (1 + 2 L) / (2 + L)
    "gain": ("gain", (1 + 3 * L) / (3 + L), (1 + 2 * L) / (2 + L)),
    # 0 and 1 tie: item b is on rank 2, then on either rank half of the time
    "ties": ("ties", L, (1 + L) / 2),
    # one of two relevant items is retrieved, on rank 1: ideal 1 + L, then 1
    "ideal": ("ideal", 1 / (1 + L), 1.0),
    # relevances 1, 0, 1: the third one counts with 1/log2(4) from k = 3 on
    "cutoff": ("cutoff", 1 / (1 + L), 1.5 / (1 + L)),
    # NDCG 1, and a query with nothing relevant: 0, then 1
    "no relevant": ("denominator", 0.5, 1.0),
    # NDCG 1, and a query that was not retrieved: counts 0, then not at all
    "missing": ("denominator", 0.5, 1.0),
    # the query of the run `ties` with weight 3, and one of NDCG 1 with weight 1
    "weights": ("ties", (3 * L + 1) / 4, (3 * (1 + L) / 2 + 1) / 4),
}
"""By run: the part that alone makes the gap, the value under A, the value under B."""


def table_of(spark: SparkSession | None) -> tuple[DataFrame | pa.Table, list[Row]]:
    """The runs by hand, and one of random rankings in which every part has an effect."""
    mixed = random_rows(400, fractional=True)
    cells: list[tuple[Any, ...]] = [(run, *row) for run, rows in HAND.items() for row in rows]
    cells += [("mixed", row.query, row.item, row.score, row.relevance, 1.0) for row in mixed]
    return engines.table(cells, SCHEMA) if spark is None else spark.createDataFrame(cells, SCHEMA).coalesce(1), mixed


@pytest.fixture(scope="module", params=["local", pytest.param("spark", marks=pytest.mark.spark)])
def by_hand(request):
    """Steps from A to B; and queries of that, of the way back, and from A to A."""
    if request.param == "spark":
        request.getfixturevalue("_short_lived_plans")
    table, _ = table_of(request.getfixturevalue("spark") if request.param == "spark" else None)
    options: Any = {"run": "run", "weight": "w", "null_score": "unretrieved"}
    actual = {
        "there": explain_difference(table, A, B, k=K_A, k_b=K_B, **options),
        "back": explain_difference(table, B, A, k=K_B, k_b=K_A, **options),
        "same": explain_difference(table, A, Convention.parse(A), k=K_A, **options),
    }
    queries = together({name: one.queries for name, one in actual.items()})
    return by_run(together({"": actual["there"].steps})[""]), {name: by_run(group) for name, group in queries.items()}


def test_the_part_that_differs_has_the_whole_gap(by_hand):
    steps = by_hand[0]
    for run, (part, before, after) in EXPECTED.items():
        contributions = dict.fromkeys(("ties", "gain", "ideal", "cutoff", "denominator"), 0.0)
        contributions[part] = after - before
        assert list(parts_of(steps[run])) == list(contributions), run
        assert parts_of(steps[run]) == pytest.approx(contributions, rel=0, abs=EXACT), run
        assert steps[run][0]["value"] == pytest.approx(before, rel=0, abs=EXACT), run
        assert steps[run][-1]["value"] == pytest.approx(after, rel=0, abs=EXACT), run
    assert [row["n_queries"] for row in steps["missing"]] == [2, 2, 2, 2, 2, 1]


def test_every_part_says_what_it_changes(by_hand):
    named = [(row["part"], row["before"], row["after"]) for row in by_hand[0]["mixed"]]
    assert named == [
        ("", "", ""),
        ("ties", "item_asc", "expected"),
        ("gain", "exponential", "linear"),
        ("ideal", "judged", "retrieved"),
        ("cutoff", "2", "3"),
        ("denominator", "no_relevant=zero, missing_query=zero", "no_relevant=one, missing_query=drop"),
    ]


def test_parts_and_queries_add_up_to_the_gap(by_hand):
    steps, queries = by_hand
    assert len(steps) == len(HAND) + 1
    assert_adds_up(steps, queries["there"])
    assert all(abs(contribution) > 0.001 for contribution in parts_of(steps["mixed"]).values())


def test_the_ends_are_what_the_oracle_says(by_hand):
    rows = table_of(None)[1]
    b = Choices(ties="expected", gain="linear", ideal="retrieved", no_relevant="one", missing_query="drop")
    ends = {"value_a": evaluate(rows, Choices(ties="item_asc"), [K_A]), "value_b": evaluate(rows, b, [K_B])}
    steps = by_hand[0]["mixed"]
    means = [mean(ends["value_a"], K_A), mean(ends["value_b"], K_B)]
    assert [steps[0]["value"], steps[-1]["value"]] == pytest.approx(means, rel=0, abs=EXACT)
    for name, results in ends.items():
        got = {row["query_id"]: row[name] for row in by_hand[1]["there"]["mixed"]}
        expected = {query: result.ndcg for (query, _), result in results.items()}
        assert got.keys() == expected.keys()
        assert [query for query in got if not is_close(got[query], expected[query], EXACT)] == [], name


def test_queries_that_only_one_convention_counts(by_hand):
    """m1 is 1 of two queries, then 1 of one: + 1/2. A query that leaves the mean takes its share along, here 0."""
    queries = {row["query_id"]: row for rows in by_hand[1]["there"].values() for row in rows}
    actual = {
        query: [queries[query][n] for n in ("value_a", "value_b", "contribution")] for query in ("m1", "m2", "n2")
    }
    assert actual == {"m1": [1.0, 1.0, 0.5], "m2": [0.0, None, 0.0], "n2": [0.0, 1.0, 0.5]}
    assert queries["w1"]["contribution"] == pytest.approx(0.75 * (1 - L) / 2, rel=0, abs=EXACT)


def test_the_way_back_is_the_negative(by_hand):
    """Of every query to the last bit, and so of the gap."""
    steps, queries = by_hand
    for run, there in queries["there"].items():
        back = {row["query_id"]: row for row in queries["back"][run]}
        assert len(back) == len(there)
        for row in there:
            group = back[row["query_id"]]
            assert (group["value_a"], group["value_b"]) == (row["value_b"], row["value_a"]), (run, row)
            assert group["contribution"] == -row["contribution"], (run, row)
        total = math.fsum(parts_of(steps[run]).values())
        assert math.fsum(row["contribution"] for row in back.values()) == pytest.approx(-total, rel=0, abs=EXACT), run


def test_one_convention_twice_has_no_gap_in_any_query(by_hand):
    for run, group in by_hand[1]["same"].items():
        assert {row["contribution"] for row in group} == {0.0}, run
        assert all(row["value_a"] == row["value_b"] for row in group), run
        values = {row["query_id"]: row["value_a"] for row in by_hand[1]["there"][run]}
        assert {row["query_id"]: row["value_a"] for row in group} == values, run


# --- Real rankings, where outside tools computed both ends

TOOLS = {"trec_eval": "pytrec_eval", "sklearn": "sklearn_avg_ties_rows_ideal", "lightgbm": "lightgbm_metric"}
BETWEEN = {
    ("trec_eval", "sklearn"): {
        "ties": "ref_linear_avg_full", "negative": "ref_linear_avg_full", "ideal": "ref_linear_avg_rows",
    },
    ("sklearn", "lightgbm"): {
        "ties": "ref_linear_stable_rows", "negative": "ref_linear_stable_rows", "gain": "ref_exp_stable_rows",
    },
    ("trec_eval", "lightgbm"): {
        "ties": "ref_linear_stable_full", "negative": "ref_linear_stable_full", "gain": "ref_exp_stable_full",
        "ideal": "ref_exp_stable_rows",
    },
}  # fmt: skip
"""Who else has the mean after each step; after the last one, the denominator, it is the other tool."""


@pytest.mark.usefixtures("_short_lived_plans")
def test_between_tools_on_real_rankings(spark, shared_data):
    """A run with few and one with 91 % tied rows; every query has something relevant: the denominator is idle."""
    shared = load(shared_data, "lightgbm_lambdarank")
    table = spark.read.parquet(str(shared_data / "lightgbm_lambdarank" / "rows.parquet")).coalesce(1)
    options: Any = {"k": 10, "item": "doc_id", "run": "run", "order": "pos"}
    actual = {" to ".join(pair): explain_difference(table, *pair, **options) for pair in BETWEEN}
    steps = together({pair: one.steps for pair, one in actual.items()})
    queries = together({pair: actual[pair].queries for pair in ("trec_eval to sklearn", "sklearn to lightgbm")})
    for a, b in BETWEEN:
        its_steps = by_run(steps[f"{a} to {b}"])
        assert its_steps.keys() == {"lgb20", "lgb2_ties"}
        for run, group in its_steps.items():
            means = {tool: value for (tool, r, _, k), (_, value) in shared.means.items() if (r, k) == (run, 10)}
            expected = [means[name] for name in (TOOLS[a], *BETWEEN[a, b].values(), TOOLS[b])]
            assert [row["value"] for row in group] == pytest.approx(expected, rel=0, abs=EXACT), (a, b, run)
            assert {row["n_queries"] for row in group} == {50}
            parts = parts_of(group)
            assert list(parts) == [*BETWEEN[a, b], "denominator"]
            assert (parts["negative"], parts["denominator"]) == (0.0, 0.0)
            assert math.fsum(parts.values()) == pytest.approx(means[TOOLS[b]] - means[TOOLS[a]], rel=0, abs=EXACT)
    for pair, rows in queries.items():
        assert_adds_up(by_run(steps[pair]), by_run(rows))
        for tool, side in zip(pair.split(" to "), ("value_a", "value_b"), strict=True):
            own = {key[1:3]: value for key, value in shared.per_query.items() if key[0::3] == (TOOLS[tool], 10)}
            if tool != "lightgbm":  # it tells means alone
                got = {(row["run"], row["query_id"]): row[side] for row in rows}
                assert got == pytest.approx(own, rel=0, abs=EXACT), (pair, tool)


# --- The job

JOB_ROWS = [
    Row(query="g", item="a", score=2.0, relevance=1.0),
    Row(query="g", item="b", score=1.0, relevance=2.0),
    Row(query="m", item="u", relevance=1.0),
]


def test_the_job_takes_a_gap_apart_and_writes_nothing_else(spark, tmp_path):
    """Query g as in the run `gain` above, query m missing: x/2, then y/2 with the linear gain, then y alone."""
    run, judgments = write_run(tmp_path / "run.parquet", JOB_ROWS), write_judgments(tmp_path / "j.parquet", JOB_ROWS)
    before = sorted(path.name for path in tmp_path.iterdir())
    asked = ("--input", run, "--judgments", judgments, "--k", "2", "--json", "-", "--output", tmp_path / "metrics")
    ended = run_mean_ndcg(*asked, "--explain-difference", "default;gain=linear;missing_query=drop")
    _, x, y = EXPECTED["gain"]
    steps = ended.json["steps"]
    assert [row["value"] for row in steps] == pytest.approx([x / 2, y / 2, y], rel=0, abs=EXACT)
    assert parts_of(steps) == pytest.approx({"gain": (y - x) / 2, "denominator": y / 2}, rel=0, abs=EXACT)
    g, m = ended.json["queries"]  # the largest contribution first
    assert (g["query_id"], m["query_id"]) == ("g", "m")
    names = ("value_a", "value_b", "contribution")
    assert [g[name] for name in names] == pytest.approx([x, y, y - x / 2], rel=0, abs=EXACT)
    assert [m[name] for name in names] == [0.0, None, 0.0]
    assert f"gap {y - x / 2:+.6f}" in ended.out
    assert f"query_id=g: {x:.6f} -> {y:.6f}, {y - x / 2:+.6f} of the gap" in ended.out
    assert sorted(path.name for path in tmp_path.iterdir()) == before


WORDS = [
    ("treceval", "10", ("unknown convention 'treceval'", "trec_eval")),
    ("default;gains=linear", "10", ("unknown choice 'gains'", "gain")),
    ("default;ties=random", "10", ("ties", "random")),
]
PLANS = [("trec_eval", "5,10", ("single k", "2 cutoffs")), ("lightgbm", "10", ("input_order", "--order-col"))]


@engines.parametrize_engine("other, k, named", local=WORDS, spark=PLANS)
def test_refusals_of_the_flag(engine, tmp_path, other, k, named):
    run, judgments = write_run(tmp_path / "run.parquet", JOB_ROWS), write_judgments(tmp_path / "j.parquet", JOB_ROWS)
    asked = ("--input", run, "--judgments", judgments, "--k", k, "--json", "-", "--explain-difference", other)
    assert_refused(mean_ndcg(*asked, "--engine", engine["engine"]), *named)


def test_rows_that_explain_nothing_are_refused(spark, tmp_path):
    empty = tmp_path / "empty.csv"
    empty.write_text("query_id,item_id,score,relevance\n")
    ended = run_command("explain-difference", "--input", empty, "--to", "sklearn", "--json", tmp_path / "out.json")
    assert_refused(ended, "no query has a mean that could be explained")
    assert not (tmp_path / "out.json").exists()
