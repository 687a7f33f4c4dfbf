"""Real rankings on Spark: per query and in the mean, what trec_eval, scikit-learn and others say about them."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from pathlib import Path

import pytest
from oracle import evaluate
from shared_rankings import (
    CHOICES_OF_TOOL,
    CUTOFFS,
    DATA_SETS,
    PRINTED_DECIMALS,
    TIES_UNSPECIFIED,
    choices_of_mean,
    load,
    queries_without_ties,
)
from spark_rankings import Case, collect_cases, convention_of, session_settings

from ndcg_spark.conventions import PRESETS
from ndcg_spark.plan import Columns, EvaluationPlan
from ndcg_spark.spark.formats import read_table
from ndcg_spark.spark.ranking import rank_queries
from ndcg_spark.spark.scoring import score_queries
from ndcg_spark.spark.summary import summarize_rankings

COLUMNS = Columns(item="doc_id", run="run", order="pos")
RUN_TOOLS = ("pytrec_eval_rows_ideal", "gdeval_exp_ndcg", "sklearn_ignore_ties_rows_ideal", "ranx_ndcg")


@pytest.fixture(scope="module", autouse=True)
def _one_shuffle_partition(spark):
    with session_settings(spark, spark__sql__shuffle__partitions=1):
        yield


def plan_of(convention, **changes) -> EvaluationPlan:
    settings = {"columns": COLUMNS, "cutoffs": CUTOFFS, "convention": convention} | changes
    return EvaluationPlan(**settings)


def tables_of(spark, folder: Path, name: str):
    """The long table, and its split into run and judgments. Items not retrieved have no place in the source."""
    rows = spark.read.parquet(str(folder / name / "rows.parquet")).selectExpr("*", "coalesce(pos, 0) as place")
    long = rows.drop("pos").withColumnRenamed("place", "pos")
    run = long.where("retrieved").drop("relevance")
    judgments = long.where("relevance is not null").select("query_id", "doc_id", "relevance").distinct()
    return long, run, judgments


def expected_of(shared, tool: str) -> dict:
    return {((run, query), k): value for (its, run, query, k), value in shared.per_query.items() if its == tool}


def assert_values(got, expected: dict, tolerance: float, where: object) -> None:
    values = {key: result.ndcg for key, result in got.items() if result.ndcg is not None}
    assert values.keys() == expected.keys(), where
    wrong = {
        key: (values[key], expected[key]) for key in expected if not abs(values[key] - expected[key]) <= tolerance
    }
    assert not wrong, (where, len(wrong), next(iter(wrong.items()), None))


@pytest.mark.parametrize("name", DATA_SETS)
def test_pytrec_eval_from_a_run_with_judgments_and_from_a_long_table(spark, shared_data, name):
    long, run, judgments = tables_of(spark, shared_data, name)
    preset = PRESETS["trec_eval_9"]
    cases = {
        "judgments": Case(data=run, judgments=judgments, plan=plan_of(preset)),
        "long": Case(data=long, plan=plan_of(preset, null_score="unretrieved")),
    }
    if name == "lightgbm_lambdarank":
        cases["judgments, windows"] = replace(cases["judgments"], plan=plan_of(preset, way="window"))
    expected = expected_of(load(shared_data, name), "pytrec_eval")
    for form, got in collect_cases(cases).items():
        assert_values(got, expected, 1e-9, form)


@pytest.mark.parametrize("name", DATA_SETS)
def test_other_tools(spark, shared_data, name):
    """scikit-learn and ranx order tied items as they like: compared where no tie reaches the cutoff."""
    long, _, _ = tables_of(spark, shared_data, name)
    shared = load(shared_data, name)
    tools = [tool for tool in RUN_TOOLS if any(key[0] == tool for key in shared.per_query)]
    cases = {
        tool: Case(data=long, plan=plan_of(convention_of(CHOICES_OF_TOOL[tool]), null_score="unretrieved"))
        for tool in tools
    }
    untied = {
        ((run, query), k)
        for run, rows in shared.rows.items()
        for k in CUTOFFS
        for query in queries_without_ties(rows, k)
    }
    compared = dict.fromkeys(tools, 0)
    for tool, got in collect_cases(cases).items():
        expected = expected_of(shared, tool)
        if tool in TIES_UNSPECIFIED:
            expected = {key: value for key, value in expected.items() if key in untied}
            got = {key: value for key, value in got.items() if key in untied}
        compared[tool] = len(expected)
        assert_values(got, expected, 0.5001 * 10.0 ** -PRINTED_DECIMALS.get(tool, 9), tool)
    assert all(compared.values()), compared


@pytest.mark.parametrize(
    ("judgments", "name"), [("qrels.test", "trec_eval"), ("qrels.rel_level", "trec_eval_rel_level")]
)
def test_the_text_files_of_trec_eval(spark, shared_data, judgments, name):
    """`results.test` and the two judgment files as NIST ships them, numbers as text and all."""
    folder = shared_data / "trec_eval"
    run = read_table(spark, str(folder / "results.test"), "trec-run")
    judged = read_table(spark, str(folder / judgments), "trec-qrels")
    plan = EvaluationPlan(cutoffs=CUTOFFS, convention=PRESETS["trec_eval_9"])
    rankings = rank_queries(
        run.frame,
        plan,
        judgments=judged.frame,
        parse_text=run.parse_text,
        parse_judgment_text=judged.parse_text,
    )
    found = score_queries(rankings, plan).where("ndcg is not null").collect()
    got = {(row["query_id"], row["k"]): row["ndcg"] for row in found}
    shared = load(shared_data, name)
    expected = {
        key[2:]: value for key, value in shared.per_query.items() if key[:2] == ("pytrec_eval", "results.test")
    }
    assert got == pytest.approx(expected, abs=1e-9)
    assert sum({row["query_id"]: row["n_rows"] for row in found}.values()) == sum(
        1 for line in (folder / "results.test").read_text().splitlines() if line.strip()
    )


def test_the_output_that_trec_eval_keeps_with_its_own_run(spark, shared_data):
    """Means in `test/out.test.a` of trec_eval, with four decimals."""
    _, run, judgments = tables_of(spark, shared_data, "trec_eval")
    plan = EvaluationPlan(
        columns=Columns(item="doc_id"), cutoffs=(5, 10, 20, 100, None), convention=PRESETS["trec_eval_9"]
    )
    rankings = rank_queries(run.where("run = 'results.test'"), plan, judgments=judgments)
    got = {row["k"]: row["value"] for row in summarize_rankings(rankings, plan).where("metric = 'ndcg'").collect()}
    expected = {None: 0.4021, 5: 0.2768, 10: 0.3016, 20: 0.3525, 100: 0.3916}
    assert got == pytest.approx(expected, abs=5e-5)


@pytest.mark.parametrize("name", ["trec_eval", "lightgbm_lambdarank"])
def test_means_and_numbers_of_queries(spark, shared_data, name):
    """LightGBM and XGBoost give means alone; of trec_eval both ways to treat a missing query are there."""
    from pyspark.sql import functions as F

    long, _, _ = tables_of(spark, shared_data, name)
    shared = load(shared_data, name)
    chosen = {
        (tool, over): choices_of_mean(tool, over)
        for tool, _, over, _ in shared.means
        if tool in CHOICES_OF_TOOL and tool not in TIES_UNSPECIFIED and CHOICES_OF_TOOL[tool].ties != "expected"
    }
    assert chosen
    conventions = sorted({convention_of(choices) for choices in chosen.values()}, key=repr)
    frames = []
    for number, convention in enumerate(conventions):
        plan = plan_of(convention, null_score="unretrieved")
        summary = summarize_rankings(rank_queries(long, plan), plan).where("metric = 'ndcg'")
        frames.append(summary.select(F.lit(number).alias("convention"), "run", "k", "n_queries", "value"))
    rows = reduce(lambda left, right: left.unionByName(right), frames).collect()
    got = {(row["convention"], row["run"], row["k"]): (row["n_queries"], row["value"]) for row in rows}
    for (tool, run, over, k), (n_queries, value) in shared.means.items():
        if (tool, over) in chosen:
            found = got[conventions.index(convention_of(chosen[tool, over])), run, k]
            where = (tool, run, over, k)
            assert found[0] == n_queries, where
            assert found[1] == pytest.approx(value, abs=0.5001 * 10.0 ** -PRINTED_DECIMALS.get(tool, 9)), where


def test_the_counts_of_a_long_table_of_real_rankings(spark, shared_data):
    """n_items, n_judged, n_relevant and status of every query of a run that misses a third of the topics."""
    long, _, _ = tables_of(spark, shared_data, "trec_eval")
    rows = load(shared_data, "trec_eval").rows["results.trunc"]
    choices = CHOICES_OF_TOOL["pytrec_eval"]
    plan = plan_of(convention_of(choices), columns=Columns(item="doc_id"), null_score="unretrieved", cutoffs=(10,))
    found = collect_cases({"one": Case(data=long.where("run = 'results.trunc'"), plan=plan)})["one"]
    expected = evaluate(rows, choices, [10])
    assert {status.status for status in expected.values()} >= {"evaluated", "missing"}
    assert {key: (r.status, r.n_items, r.n_judged, r.n_relevant) for key, r in found.items()} == {
        key: (r.status, r.n_items, r.n_judged, r.n_relevant) for key, r in expected.items()
    }
