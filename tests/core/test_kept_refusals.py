"""Refusals of workers as rows: they pass through every step, and what shows results raises them in Python."""

from __future__ import annotations

import pyarrow as pa
import pytest
from support.main_job import command

from ndcg_spark import compare, evaluate, report
from ndcg_spark.core.batches import REFUSAL, WorkerTask
from ndcg_spark.errors import InputRefusedError, find_refusal

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
