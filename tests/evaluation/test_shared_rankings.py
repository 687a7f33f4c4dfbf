"""Real rankings on Spark: per query and in the mean, what trec_eval, scikit-learn and others say about them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path

import pytest
from support.oracle import evaluate
from support.random_rankings import (
    CHOICES_OF_TOOL,
    CUTOFFS,
    DATA_SETS,
    PRINTED_DECIMALS,
    TIES_UNSPECIFIED,
    choose_for_mean,
    find_queries_without_ties,
    load,
)
from support.spark_rankings import Case, build_convention, collect_cases, session_settings

from ndcg_spark.conventions import PRESETS, Convention
from ndcg_spark.evaluation.frames.ranking import rank_queries
from ndcg_spark.evaluation.frames.summary import score_queries, summarize_rankings
from ndcg_spark.evaluation.settings import Columns, EvaluationSettings
from ndcg_spark.sources.formats import open_table

COLUMNS = Columns(item="doc_id", run="run", order="pos")
RUN_TOOLS = ("pytrec_eval_rows_ideal", "gdeval_exp_ndcg", "sklearn_ignore_ties_rows_ideal", "ranx_ndcg")


@pytest.fixture(scope="module", autouse=True)
def _one_shuffle_partition(spark):
    with session_settings(spark, spark__sql__shuffle__partitions=1):
        yield


def settings_of(convention, **changes) -> EvaluationSettings:
    settings = {"columns": COLUMNS, "cutoffs": CUTOFFS, "convention": convention} | changes
    return EvaluationSettings(**settings)


def tables_of(spark, folder: Path, *names: str):
    """The long table, and its split into run and judgments. Items not retrieved have no place in the source.

    Of several data sets, evaluated together, `named` tells the runs and the queries apart.
    """
    long = reduce(lambda left, right: left.unionByName(right), [long_table(spark, folder, name) for name in names])
    run = long.where("retrieved").drop("relevance")
    judgments = long.where("relevance is not null").select("query_id", "doc_id", "relevance").distinct()
    return long, run, judgments


def long_table(spark, folder: Path, name: str):
    from pyspark.sql import functions as F

    keys = {key: F.concat(F.lit(named(name, "")), key) for key in ("run", "query_id")}
    rows = spark.read.parquet(str(folder / name / "rows.parquet"))
    return rows.withColumns({**keys, "pos": F.coalesce("pos", F.lit(0))})


def named(name: str, key: str) -> str:
    """A run or a query of the data set `name`."""
    return f"{name}:{key}"


def expected_of(folder: Path, tool: str, names: Iterable[str] = DATA_SETS) -> dict:
    """What the tool says about every query of the data sets it was run on."""
    return {
        ((named(name, run), named(name, query)), k): value
        for name in names
        for (group, run, query, k), value in load(folder, name).per_query.items()
        if group == tool
    }


def assert_values(got, expected: dict, tolerance: float, where: object) -> None:
    """Of the runs that `expected` has: the same queries with a value, and the same values."""
    runs = {run for (run, _), _ in expected}
    values = {key: group.ndcg for key, group in got.items() if group.ndcg is not None and key[0][0] in runs}
    assert values.keys() == expected.keys(), where
    wrong = {
        key: (values[key], expected[key]) for key in expected if not abs(values[key] - expected[key]) <= tolerance
    }
    assert not wrong, (where, len(wrong), next(iter(wrong.items()), None))


def test_pytrec_eval_from_a_run_with_judgments_and_from_a_long_table(spark, shared_data):
    """As long tables all data sets are one; judgments are for every run beside them."""
    preset = PRESETS["trec_eval_9"]
    long, _, _ = tables_of(spark, shared_data, *DATA_SETS)
    cases = {"long": Case(data=long, settings=settings_of(preset, null_score="unretrieved"))}
    for name in DATA_SETS:
        _, run, judgments = tables_of(spark, shared_data, name)
        cases[name] = Case(data=run, judgments=judgments, settings=settings_of(preset))
    windows = replace(cases["lightgbm_lambdarank"], settings=settings_of(preset, strategy="window"))
    for form, got in collect_cases({**cases, "lightgbm_lambdarank, windows": windows}).items():
        expected = expected_of(shared_data, "pytrec_eval", DATA_SETS if form == "long" else [form.split(",")[0]])
        assert expected
        assert_values(got, expected, 1e-9, form)


def test_other_tools(spark, shared_data):
    """scikit-learn and ranx order tied items as they like: compared where no tie reaches the cutoff."""
    cases = {}
    for tool in RUN_TOOLS:
        settings = settings_of(build_convention(CHOICES_OF_TOOL[tool]), null_score="unretrieved")
        names = [name for name in DATA_SETS if expected_of(shared_data, tool, [name])]
        cases[tool] = Case(data=tables_of(spark, shared_data, *names)[0], settings=settings)
    untied = {
        ((named(name, run), named(name, query)), k)
        for name in DATA_SETS
        for run, rows in load(shared_data, name).rows.items()
        for k in CUTOFFS
        for query in find_queries_without_ties(rows, k)
    }
    compared: dict[tuple[str, str], int] = {}
    for tool, got in collect_cases(cases).items():
        expected = expected_of(shared_data, tool)
        its_sets = {run.split(":")[0] for (run, _), _ in expected}
        if tool in TIES_UNSPECIFIED:
            expected = {key: value for key, value in expected.items() if key in untied}
            got = {key: value for key, value in got.items() if key in untied}
        for name in its_sets:
            compared[tool, name] = sum(run.startswith(f"{name}:") for (run, _), _ in expected)
        assert_values(got, expected, 0.5001 * 10.0 ** -PRINTED_DECIMALS.get(tool, 9), tool)
    assert all(compared.values()), compared
    assert {tool for tool, _ in compared} == set(RUN_TOOLS)
    assert {name for _, name in compared} == set(DATA_SETS)


@pytest.mark.parametrize(
    ("judgments", "name"), [("qrels.test", "trec_eval"), ("qrels.rel_level", "trec_eval_rel_level")]
)
def test_the_text_files_of_trec_eval(spark, shared_data, judgments, name):
    """`results.test` and the two judgment files as NIST ships them, numbers as text and all."""
    folder = shared_data / "trec_eval"
    run = open_table(spark, str(folder / "results.test"), "trec-run")
    judged = open_table(spark, str(folder / judgments), "trec-qrels")
    settings = EvaluationSettings(cutoffs=CUTOFFS, convention=PRESETS["trec_eval_9"])
    rankings = rank_queries(run.frame, settings, judgments=judged.frame)
    rows = score_queries(rankings, settings).where("ndcg is not null").collect()
    got = {(row["query_id"], row["k"]): row["ndcg"] for row in rows}
    shared = load(shared_data, name)
    expected = {
        key[2:]: value for key, value in shared.per_query.items() if key[:2] == ("pytrec_eval", "results.test")
    }
    assert got == pytest.approx(expected, abs=1e-9)
    assert sum({row["query_id"]: row["n_rows"] for row in rows}.values()) == sum(
        1 for line in (folder / "results.test").read_text().splitlines() if line.strip()
    )


def test_the_output_that_trec_eval_keeps_with_its_own_run(spark, shared_data):
    """Means in `test/out.test.a` of trec_eval, with four decimals."""
    _, run, judgments = tables_of(spark, shared_data, "trec_eval")
    settings = EvaluationSettings(
        columns=Columns(item="doc_id"), cutoffs=(5, 10, 20, 100, None), convention=PRESETS["trec_eval_9"]
    )
    its_run = run.where(run["run"] == named("trec_eval", "results.test"))
    rankings = rank_queries(its_run, settings, judgments=judgments)
    got = {
        row["k"]: row["value"] for row in summarize_rankings(rankings, settings).where("metric = 'ndcg'").collect()
    }
    expected = {None: 0.4021, 5: 0.2768, 10: 0.3016, 20: 0.3525, 100: 0.3916}
    assert got == pytest.approx(expected, abs=5e-5)


def test_means_and_numbers_of_queries(spark, shared_data):
    """LightGBM and XGBoost give means alone; of trec_eval both ways to treat a missing query are there."""
    names = ("trec_eval", "lightgbm_lambdarank")
    means = {
        (tool, named(name, run), over, k): group
        for name in names
        for (tool, run, over, k), group in load(shared_data, name).means.items()
    }
    chosen = {
        (tool, over): build_convention(choose_for_mean(tool, over))
        for tool, _, over, _ in means
        if tool in CHOICES_OF_TOOL and tool not in TIES_UNSPECIFIED and CHOICES_OF_TOOL[tool].ties != "expected"
    }
    assert chosen
    conventions = sorted(set(chosen.values()), key=repr)
    got = summaries(tables_of(spark, shared_data, *names)[0], conventions)
    for (tool, run, over, k), (n_queries, value) in means.items():
        if (tool, over) in chosen:
            actual = got[conventions.index(chosen[tool, over]), run, k]
            where = (tool, run, over, k)
            assert actual[0] == n_queries, where
            assert actual[1] == pytest.approx(value, abs=0.5001 * 10.0 ** -PRINTED_DECIMALS.get(tool, 9)), where


def summaries(long, conventions: Sequence[Convention]) -> dict[tuple[int, str, int], tuple[int, float]]:
    """(n_queries, mean NDCG) by (number of the convention, run, k)."""
    from pyspark.sql import functions as F

    frames = []
    for number, convention in enumerate(conventions):
        settings = settings_of(convention, null_score="unretrieved")
        summary = summarize_rankings(rank_queries(long, settings), settings).where("metric = 'ndcg'")
        frames.append(summary.select(F.lit(number).alias("convention"), "run", "k", "n_queries", "value"))
    rows = reduce(lambda left, right: left.unionByName(right), frames).collect()
    return {(row["convention"], row["run"], row["k"]): (row["n_queries"], row["value"]) for row in rows}


def test_the_counts_of_a_long_table_of_real_rankings(spark, shared_data):
    """n_items, n_judged, n_relevant and status of every query of a run that misses a third of the topics."""
    long, _, _ = tables_of(spark, shared_data, "trec_eval")
    rows = [
        replace(row, query=named("trec_eval", str(row.query)))
        for row in load(shared_data, "trec_eval").rows["results.trunc"]
    ]
    choices = CHOICES_OF_TOOL["pytrec_eval"]
    settings = settings_of(
        build_convention(choices), columns=Columns(item="doc_id"), null_score="unretrieved", cutoffs=(10,)
    )
    actual = collect_cases({"one": Case(data=long.where("run like '%:results.trunc'"), settings=settings)})["one"]
    expected = evaluate(rows, choices, [10])
    assert {status.status for status in expected.values()} >= {"evaluated", "missing"}
    assert {key: (r.status, r.n_items, r.n_judged, r.n_relevant) for key, r in actual.items()} == {
        key: (r.status, r.n_items, r.n_judged, r.n_relevant) for key, r in expected.items()
    }
