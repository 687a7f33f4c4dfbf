"""Refusals of workers as rows: they pass through every step; showing results raises them in Python."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import functions as F
from support.main_job import run_command

from ndcg_spark import compare, evaluate, report
from ndcg_spark.core.batches import REFUSAL, WorkerTask
from ndcg_spark.errors import InputRefusedError, MissingColumnError, find_refusal

SCHEMA = "run string, query_id string, item_id string, score double, relevance int"
ROWS = [(run, f"q{query}", item, 1.0, 1) for run in "ab" for query in range(4) for item in "xy"]
NAN = ("a", "q1", "z", float("nan"), 0)
TWICE = ("a", "q1", "x", 1.0, 0)


def multiply(batches, factor):
    for batch in batches:
        if factor is None:
            raise InputRefusedError("no factor")
        yield pa.record_batch({"n": pa.array([n * factor for n in batch["n"].to_pylist()])})


NUMBERS = pa.schema([pa.field("n", pa.int64(), nullable=False)])
BATCH = pa.record_batch([pa.array([1, 2])], schema=NUMBERS)


def test_refusal_is_a_row_that_ends_the_next_step():
    sent = list(WorkerTask(multiply, (None,), NUMBERS)(iter([BATCH, BATCH])))
    assert [batch.to_pylist() for batch in sent] == [[{"n": 0, REFUSAL: "no factor"}]]
    good = list(WorkerTask(multiply, (3,), NUMBERS)(iter([BATCH])))
    assert good[0].to_pylist() == [{"n": 3, REFUSAL: None}, {"n": 6, REFUSAL: None}]
    passed = list(WorkerTask(multiply, (2,), NUMBERS)(iter([*good, *sent, *good])))
    assert [row[REFUSAL] for batch in passed for row in batch.to_pylist()] == [None, None, "no factor"]
    with pytest.raises(InputRefusedError) as caught:
        list(WorkerTask(multiply, (2,))(iter(sent)))
    assert find_refusal(str(caught.value.args[0])) == "no factor"


CALLS = {
    "show": lambda frame: evaluate(frame, run="run", k=2).show(),
    "to_pandas": lambda frame: evaluate(frame, run="run", k=2).to_pandas(),
    "plot": lambda frame: evaluate(frame, run="run", k=2).plot(),
    "compare": lambda frame: compare(evaluate(frame, run="run", k=2), baseline="a", replicates=10, flips=10).show(),
    "report": lambda frame: report(evaluate(frame, run="run", k=2)),
}


@pytest.mark.classic("what the JVM prints comes here")
def test_show_prints_nothing_of_java(spark, capfd):
    for call, row, said in [*((call, NAN, "nan_score") for call in CALLS), ("show", TWICE, "appears twice")]:
        frame = spark.createDataFrame([*ROWS, row], SCHEMA)
        capfd.readouterr()
        with pytest.raises(InputRefusedError, match=said) as caught:
            CALLS[call](frame)
        printed = "".join(capfd.readouterr())
        assert (call, REFUSAL in str(caught.value), "\n" in str(caught.value)) == (call, False, False)
        assert "ERROR" not in printed
        assert "at org.apache" not in printed


def test_lazy_results_have_no_column_of_refusals_and_raise(spark):
    good, bad = (evaluate(spark.createDataFrame(rows, SCHEMA), run="run", k=2) for rows in (ROWS, [*ROWS, NAN]))
    pairs = compare(bad, baseline="a", replicates=10, flips=10)
    assert REFUSAL not in {*good.summary.columns, *good.per_query.columns, *good.rankings.columns}
    for frame in (bad.summary, bad.per_query, bad.rankings, pairs.summary):
        assert REFUSAL not in frame.columns
        with pytest.raises(Exception, match="nan_score"):
            frame.collect()


@pytest.mark.classic("what the JVM prints comes here")
def test_jobs_print_one_line(spark, capfd, tmp_path):
    spark.createDataFrame([*ROWS, NAN], SCHEMA).write.parquet(str(tmp_path / "rows"))
    outputs = ("--per-query-output", tmp_path / "queries", "--output", tmp_path / "means")
    options = ("--input", tmp_path / "rows", "--run-col", "run", "--run-date", "2026-01-31", "--dataset", "shop")
    capfd.readouterr()
    ended = run_command("mean-ndcg", *options, *outputs)
    assert ended.code == 2
    assert "nan_score" in ended.err
    assert "ERROR" not in "".join(capfd.readouterr()) + ended.err
    assert not (tmp_path / "queries").exists()


def test_filters_keep_refusals_of_lazy_results(spark):
    """Spark reorders filters, and may evaluate later ones first."""
    bad = spark.createDataFrame([*ROWS, NAN], SCHEMA)
    summary = evaluate(bad, run="run", k=2).summary
    chosen = (
        summary.where("metric = 'ndcg'"),
        summary.where("n_queries > 1").select("value"),
        summary.groupBy("run").count(),
    )
    for frame in (*chosen, summary.join(summary.select("run", "metric"), ["run", "metric"])):
        with pytest.raises(Exception, match="nan_score"):
            frame.collect()


@pytest.fixture(scope="module")
def inputs(spark, tmp_path_factory):
    """The tables of each form of input, with one refused row, and options."""
    folder = tmp_path_factory.mktemp("forms")
    long, bad = (spark.createDataFrame(rows, SCHEMA) for rows in (ROWS, [*ROWS, NAN]))
    judged = "query_id string, item_id string, relevance double"
    once = [(f"q{query}", item, 1.0) for query in range(4) for item in "xy"]
    judgments, bad_judgments = (
        spark.createDataFrame(rows, judged) for rows in (once, [*once, ("q1", "z", float("nan"))])
    )
    items = spark.createDataFrame([(item, [item]) for item in "xyz"], "item_id string, categories array<string>")
    lists = "query_id string, recommended array<string>, relevant array<string>"
    bad.write.parquet(f"{folder}/bad")
    bad.repartition(1).sortWithinPartitions("query_id").drop("run").write.parquet(f"{folder}/sorted")
    return {
        "DataFrame": ((bad,), {}),
        "path": ((f"{folder}/bad",), {"source": "parquet"}),
        "sorted path": ((f"{folder}/sorted",), {"run": None}),
        "windows": ((bad,), {"strategy": "window"}),
        "run and judgments": ((bad.drop("relevance"), judgments), {}),
        "judgments": ((long.drop("relevance"), bad_judgments), {}),
        "arrays": (
            (spark.createDataFrame([("q", [1.0, float("nan")])], "query_id string, relevances array<double>"),),
            {"run": None, "relevance": "relevances"},
        ),
        "lists": (
            (spark.createDataFrame([("q", ["x", "x"], ["x"])], lists),),
            {"run": None, "ranked": "recommended", "relevant": "relevant"},
        ),
        "all duplicates": ((bad,), {"check_duplicates": "all"}),
        "best copies": ((bad,), {"convention": "default;duplicates=best"}),
        "metric of items": (
            (bad,),
            {"items": items, "k": None, "metrics": ["ndcg@2", "ild(by=categories)@2"],
             "convention": "default;ties=item_asc"},
        ),
        "weights and segments": (
            (bad.selectExpr("*", "1.0D AS w", "query_id AS s"),), {"weight": "w", "segments": ["s"]}
        ),
    }  # fmt: skip


@pytest.mark.classic("Python workers read files themselves")
def test_every_form_of_input_is_refused(inputs):
    """Valid tables of each form are shown wherever means are tested."""
    for tables, options in inputs.values():
        options = {name: value for name, value in {"run": "run", "k": 2, **options}.items() if value is not None}
        with pytest.raises(InputRefusedError, match=r"nan_\w+|appears twice"):
            evaluate(*tables, **options).to_pandas()


PAIRS = {
    "of one table": {},
    "cluster": {"cluster": "c"},
    "missing count as zero": {"unpaired": "zero"},
    "weights": {"weight": "weight"},
}


@pytest.mark.parametrize("options", list(PAIRS.values()), ids=list(PAIRS))
def test_comparisons_are_refused(spark, options):
    """Runs of one table, and of two tables of which one is stored."""
    good, bad = (
        spark.createDataFrame(rows, SCHEMA).selectExpr("*", "query_id AS c", "1.0D AS w")
        for rows in (ROWS, [*ROWS, NAN])
    )
    settings = {"k": 2, "segments": ["c"], "weight": "w"}
    more = {"replicates": 10, "flips": 10, "baseline": "a", **options}
    stored = evaluate(good.where("run = 'b'"), **settings).per_query_table.withColumn("run", F.lit("b"))
    both = {"a": evaluate(bad.where("run = 'a'"), **settings), "b": stored}
    for results in (evaluate(bad, run="run", **settings), both):
        with pytest.raises(InputRefusedError, match="nan_score"):
            compare(results, **more).to_pandas()
    if not options:
        assert len(compare({**both, "a": evaluate(good.where("run = 'a'"), **settings)}, **more).to_pandas())


def test_no_message_names_the_column_of_refusals(spark):
    result = evaluate(spark.createDataFrame(ROWS, SCHEMA), run="run", k=2)
    with pytest.raises(MissingColumnError) as caught:
        compare(result, baseline="a", weight="w")
    assert REFUSAL not in str(caught.value)
