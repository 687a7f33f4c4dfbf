"""Refusals of workers as rows: they pass through every step, and what shows results raises them in Python."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import functions as F
from support.main_job import command

from ndcg_spark import compare, evaluate, report
from ndcg_spark.core.batches import REFUSAL, WorkerTask
from ndcg_spark.errors import InputRefusedError, MissingColumnError, find_refusal

SCHEMA = "run string, query_id string, item_id string, score double, relevance int"
ROWS = [(run, f"q{query}", item, 1.0, 1) for run in "ab" for query in range(4) for item in "xy"]
NAN = ("a", "q1", "z", float("nan"), 0)
TWICE = ("a", "q1", "x", 1.0, 0)


def doubled(batches, factor):
    for batch in batches:
        if factor is None:
            raise InputRefusedError("no factor")
        yield pa.record_batch({"n": pa.array([one * factor for one in batch["n"].to_pylist()])})


NUMBERS = pa.schema([pa.field("n", pa.int64(), nullable=False)])
BATCH = pa.record_batch([pa.array([1, 2])], schema=NUMBERS)


def test_a_refusal_is_a_row_and_ends_what_gets_it():
    sent = list(WorkerTask(doubled, (None,), NUMBERS)(iter([BATCH, BATCH])))
    assert [batch.to_pylist() for batch in sent] == [[{"n": 0, REFUSAL: "no factor"}]]
    good = list(WorkerTask(doubled, (3,), NUMBERS)(iter([BATCH])))
    assert good[0].to_pylist() == [{"n": 3, REFUSAL: None}, {"n": 6, REFUSAL: None}]
    passed = list(WorkerTask(doubled, (2,), NUMBERS)(iter([*good, *sent, *good])))
    assert [row[REFUSAL] for batch in passed for row in batch.to_pylist()] == [None, None, "no factor"]
    with pytest.raises(InputRefusedError) as caught:
        list(WorkerTask(doubled, (2,))(iter(sent)))
    assert find_refusal(str(caught.value.args[0])) == "no factor"


CALLS = {
    "show": lambda frame: evaluate(frame, run="run", k=2).show(),
    "to_pandas": lambda frame: evaluate(frame, run="run", k=2).to_pandas(),
    "plot": lambda frame: evaluate(frame, run="run", k=2).plot(),
    "compare": lambda frame: compare(evaluate(frame, run="run", k=2), baseline="a", replicates=10, flips=10).show(),
    "report": lambda frame: report(evaluate(frame, run="run", k=2)),
}


@pytest.mark.classic("what the JVM prints comes here")
@pytest.mark.parametrize("call", list(CALLS))
@pytest.mark.parametrize(("row", "said"), [(NAN, "nan_score"), (TWICE, "comes twice")], ids=["bad row", "twice"])
def test_nothing_of_java_is_on_the_terminal(spark, capfd, call, row, said):
    frame = spark.createDataFrame([*ROWS, row], SCHEMA)
    capfd.readouterr()
    with pytest.raises(InputRefusedError, match=said) as caught:
        CALLS[call](frame)
    printed = "".join(capfd.readouterr())
    assert (REFUSAL in str(caught.value), "\n" in str(caught.value)) == (False, False)
    assert "ERROR" not in printed
    assert "at org.apache" not in printed


@pytest.mark.parametrize("name", ["summary", "per_query", "rankings"])
def test_lazy_results_have_no_column_of_refusals_and_raise(spark, name):
    good, bad = (spark.createDataFrame(rows, SCHEMA) for rows in (ROWS, [*ROWS, NAN]))
    assert REFUSAL not in getattr(evaluate(good, run="run", k=2), name).columns
    with pytest.raises(Exception, match="nan_score"):
        getattr(evaluate(bad, run="run", k=2), name).collect()
    pairs = compare(evaluate(bad, run="run", k=2), baseline="a", replicates=10, flips=10)
    assert REFUSAL not in pairs.summary.columns
    with pytest.raises(Exception, match="nan_score"):
        pairs.summary.collect()


@pytest.mark.classic("what the JVM prints comes here")
@pytest.mark.parametrize("queries", [False, True])
def test_jobs_print_one_line(spark, capfd, tmp_path, queries):
    spark.createDataFrame([*ROWS, NAN], SCHEMA).write.parquet(str(tmp_path / "rows"))
    outputs = ("--per-query-output", tmp_path / "queries") if queries else ()
    options = ("--input", tmp_path / "rows", "--run-col", "run", "--run-date", "2026-01-31", "--dataset", "shop")
    capfd.readouterr()
    ended = command("mean-ndcg", *options, *outputs, "--output", tmp_path / "means")
    assert ended.code == 2
    assert "nan_score" in ended.err
    assert "ERROR" not in "".join(capfd.readouterr()) + ended.err
    assert not (tmp_path / "queries").exists()


def test_what_filters_a_lazy_result_takes_no_refusal_out(spark):
    """Spark moves filters about, and may evaluate later ones first."""
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


REFUSED = r"nan_\w+|comes twice"
FORMS = ("DataFrame", "path", "sorted path", "windows", "run and judgments", "judgments", "arrays",
         "lists", "all duplicates", "best copies", "metric of items", "weights and segments")  # fmt: skip


@pytest.fixture(scope="module")
def inputs(spark, tmp_path_factory):
    """For each form of input its tables and options, good and with one row that is refused."""
    folder = tmp_path_factory.mktemp("forms")
    long, bad = (spark.createDataFrame(rows, SCHEMA) for rows in (ROWS, [*ROWS, NAN]))
    judged = "query_id string, item_id string, relevance double"
    once = [(f"q{query}", item, 1.0) for query in range(4) for item in "xy"]
    judgments, bad_judgments = (
        spark.createDataFrame(rows, judged) for rows in (once, [*once, ("q1", "z", float("nan"))])
    )
    arrays = "query_id string, relevances array<double>"
    lists = "query_id string, recommended array<string>, relevant array<string>"
    items = spark.createDataFrame([(item, [item]) for item in "xyz"], "item_id string, categories array<string>")
    weighed, of_bad = (table.selectExpr("*", "1.0D AS w", "query_id AS s") for table in (long, bad))
    for name, table in {"rows": long, "bad": bad}.items():
        table.write.parquet(f"{folder}/{name}")
        table.repartition(1).sortWithinPartitions("query_id").drop("run").write.parquet(f"{folder}/sorted-{name}")
    runs, bad_runs = (table.drop("relevance") for table in (long, bad))
    return {
        "DataFrame": ({}, [(long,), (bad,)]),
        "path": ({"source": "parquet"}, [(f"{folder}/rows",), (f"{folder}/bad",)]),
        "sorted path": ({"run": None}, [(f"{folder}/sorted-rows",), (f"{folder}/sorted-bad",)]),
        "windows": ({"strategy": "window"}, [(long,), (bad,)]),
        "run and judgments": ({}, [(runs, judgments), (bad_runs, judgments)]),
        "judgments": ({}, [(runs, judgments), (runs, bad_judgments)]),
        "arrays": (
            {"run": None, "relevance": "relevances"},
            [(spark.createDataFrame([("q", values)], arrays),) for values in ([1.0, 0.0], [1.0, float("nan")])],
        ),
        "lists": (
            {"run": None, "ranked": "recommended", "relevant": "relevant"},
            [(spark.createDataFrame([("q", its, ["x"])], lists),) for its in (["x", "y"], ["x", "x"])],
        ),
        "all duplicates": ({"check_duplicates": "all"}, [(long,), (bad,)]),
        "best copies": ({"convention": "default;duplicates=best"}, [(long,), (bad,)]),
        "metric of items": (
            {"items": items, "k": None, "metrics": ["ndcg@2", "ild(by=categories)@2"],
             "convention": "default;ties=item_asc"},
            [(long,), (bad,)],
        ),
        "weights and segments": ({"weight": "w", "segments": ["s"]}, [(weighed,), (of_bad,)]),
    }  # fmt: skip


@pytest.mark.classic("Python workers read files themselves")
@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_input_is_shown_or_refused(inputs, form):
    options, (good, bad) = inputs[form]
    options = {"run": "run", "k": 2, **options}
    options = {name: value for name, value in options.items() if value is not None}
    assert evaluate(*good, **options).to_pandas()["value"].notna().all()
    with pytest.raises(InputRefusedError, match=REFUSED):
        evaluate(*bad, **options).to_pandas()
    with pytest.raises(InputRefusedError, match=REFUSED):
        evaluate(*bad, **options).plot()


PAIRS = {
    "of one table": {},
    "cluster": {"cluster": "c"},
    "missing count as zero": {"unpaired": "zero"},
    "weights": {"weight": "weight"},
}


@pytest.mark.parametrize("options", list(PAIRS.values()), ids=list(PAIRS))
def test_comparisons_are_shown_or_refused(spark, options):
    good, bad = (
        spark.createDataFrame(rows, SCHEMA).selectExpr("*", "query_id AS c", "1.0D AS w")
        for rows in (ROWS, [*ROWS, NAN])
    )
    settings = {"run": "run", "k": 2, "segments": ["c"], "weight": "w"}
    more = {"replicates": 10, "flips": 10, "baseline": "a", **options}
    assert len(compare(evaluate(good, **settings), **more).to_pandas())
    with pytest.raises(InputRefusedError, match="nan_score"):
        compare(evaluate(bad, **settings), **more).to_pandas()
    settings.pop("run")
    results = {run: evaluate(table.where(f"run = '{run}'"), **settings) for run, table in (("a", good), ("b", good))}
    results["b"] = results["b"].per_query_table.withColumn("run", F.lit("b"))
    more["baseline"] = "a"
    assert len(compare(results, **more).to_pandas())
    results["a"] = evaluate(bad.where("run = 'a'"), **settings)
    with pytest.raises(InputRefusedError, match="nan_score"):
        compare(results, **more).to_pandas()


def test_no_message_names_the_column_of_refusals(spark):
    result = evaluate(spark.createDataFrame(ROWS, SCHEMA), run="run", k=2)
    with pytest.raises(MissingColumnError) as caught:
        compare(result, baseline="a", weight="w")
    assert REFUSAL not in str(caught.value)
