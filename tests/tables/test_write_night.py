"""A notebook writes a night as the jobs do: the same tables, all of them or none, in place of what was there."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from support.main_job import read_files, read_stored_rows, run_command, run_mean_ndcg, write_table

from ndcg_spark import compare, evaluate, merge_summaries
from ndcg_spark.errors import InputRefusedError, InvalidParameterError, OutputRefusedError
from ndcg_spark.history import flag_changes, roll_up
from ndcg_spark.tables import write_night

NIGHT, BEFORE = date(2026, 1, 31), date(2026, 1, 30)
ASKED = {"k": [1, 3], "run": "ranker", "segments": ["country"]}
ROWS = {
    "ranker": ["a"] * 6 + ["b"] * 6,
    "query_id": ["q1", "q1", "q1", "q2", "q2", "q2"] * 2,
    "country": ["DE", "DE", "DE", "FR", "FR", "FR"] * 2,
    "item_id": list("xyzxyz") * 2,
    "score": [3.0, 2.0, 1.0, 3.0, 2.0, 1.0, 1.0, 2.0, 3.0, 2.0, 2.0, 1.0],
    "relevance": [0.0, 2.0, 1.0, 1.0, 0.0, 3.0] * 2,
}
OF_THE_MOMENT = {"computed_at", "input"}


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    return write_table(tmp_path_factory.mktemp("write_night") / "rows.parquet", ROWS)


@pytest.fixture(scope="module")
def rankings(spark, source) -> DataFrame:
    return spark.read.parquet(str(source))


@pytest.fixture(scope="module")
def result(rankings) -> Any:
    return evaluate(rankings, **ASKED)


def contents(place: Path) -> list[dict[str, Any]]:
    rows = [
        {name: value for name, value in row.items() if name not in OF_THE_MOMENT} for row in read_stored_rows(place)
    ]
    return sorted(rows, key=repr)


def test_tables_are_those_that_jobs_write(result, source, tmp_path):
    write_night(
        {f"{tmp_path}/metrics": result.summary, f"{tmp_path}/queries": result.per_query_table},
        night=NIGHT, dataset="shop", stamps=result.provenance,
    )  # fmt: skip
    asked = ("--run-col", "ranker", "--segment-cols", "country", "--k", "1,3")
    asked += ("--run-date", NIGHT, "--dataset", "shop")
    outputs = ("--output", tmp_path / "of_job", "--per-query-output", tmp_path / "queries_of_job")
    run_mean_ndcg("--input", source, *asked, *outputs)
    for ours, group in (("metrics", "of_job"), ("queries", "queries_of_job")):
        assert contents(tmp_path / ours) == contents(tmp_path / group)
        assert list(read_stored_rows(tmp_path / ours)[0]) == list(read_stored_rows(tmp_path / group)[0])
    # The job of the next night, and one that reads many, take them as theirs.
    again = ("--run-date", "2026-02-01", "--dataset", "shop", "--output", tmp_path / "metrics")
    run_mean_ndcg("--input", source, *asked[:6], *again)
    periods = run_command("roll-up", "--input", tmp_path / "metrics", "--periods", "rolling_7", "--json", "-")
    assert (periods.code, {row["n_days"] for row in periods.json["periods"]}) == (0, {1, 2})


def test_tables_that_jobs_store_otherwise_are_refused(result, tmp_path):
    """Comparisons are one slice of a baseline, periods and flags are of many nights."""
    place = f"{tmp_path}/metrics"
    for night in (BEFORE, NIGHT):
        write_night({place: result.summary}, night=night, dataset="shop", stamps=result.provenance)
    before = contents(tmp_path / "metrics")
    stored = result.summary.sparkSession.read.parquet(place)
    for kind, frame in (
        ("comparison table", compare(result, replicates=0, flips=0).summary),
        ("table of periods", roll_up(stored)),
        ("table of flags", flag_changes(stored)),
    ):
        with pytest.raises(InvalidParameterError, match=f"are those of a {kind}"):
            write_night({f"{tmp_path}/other": frame}, night=NIGHT, dataset="shop")
    assert contents(tmp_path / "metrics") == before
    assert not (tmp_path / "other").exists()


def test_only_the_night_the_data_set_and_the_runs_are_replaced(rankings, result, tmp_path):
    place = f"{tmp_path}/metrics"
    for night in (BEFORE, NIGHT):
        for dataset in ("shop", "web"):
            write_night({place: result.summary}, night=night, dataset=dataset, stamps=result.provenance)
    before = contents(tmp_path / "metrics")
    better = evaluate(rankings.where("ranker = 'a'").withColumn("score", F.col("relevance")), **ASKED)
    write_night({place: better.summary}, night=NIGHT, dataset="shop", stamps=better.provenance)
    after = contents(tmp_path / "metrics")
    replaced = [row for row in after if row not in before]
    key = {(row["run_date"], row["dataset"], row["run"]) for row in replaced}
    assert key == {("2026-01-31", "shop", "a")}
    assert len(after) == len(before)
    assert {row["value"] for row in replaced if row["metric"] == "ndcg"} == {1.0}


def test_a_table_of_the_catalog(spark, result):
    try:
        for _ in range(2):
            write_night({"night_of_notebook": result.summary}, night=NIGHT, dataset="shop", stamps=result.provenance)
        stored = spark.table("night_of_notebook")
        assert stored.count() == result.summary.count()
        assert {row["config_hash"] for row in stored.collect()} == {result.settings.digest}
        (merged,) = (
            merge_summaries(stored).where("metric = 'ndcg' and k = 3 and run = 'a' and segment_by = ''").collect()
        )
        assert merged["n_queries"] == 2
    finally:
        spark.sql("DROP TABLE IF EXISTS night_of_notebook")


def test_all_tables_or_none(rankings, result, tmp_path):
    """The rows of the second table are found to be bad when they are written; the first one is complete by then."""
    bad = evaluate(rankings.withColumn("score", F.lit(float("nan"))), **ASKED)
    tables = {f"{tmp_path}/metrics": result.summary, f"{tmp_path}/queries": bad.per_query}
    with pytest.raises(InputRefusedError, match="nan_score"):
        write_night(tables, night=NIGHT, dataset="shop", runs=["a", "b"])
    assert read_files(tmp_path) == {}


def test_rows_are_not_written_over_what_they_are_read_from(spark, result, tmp_path):
    place = f"{tmp_path}/metrics"
    write_night({place: result.summary}, night=BEFORE, dataset="shop")
    before = contents(tmp_path / "metrics")
    own = spark.read.parquet(place).drop("run_date", "dataset", "slice")
    for output in (place, f"{place}/below"):
        with pytest.raises(OutputRefusedError, match="metrics"):
            write_night({output: own}, night=NIGHT, dataset="shop")
    assert contents(tmp_path / "metrics") == before


def test_a_run_without_queries_loses_those_that_it_had(rankings, tmp_path):
    """As in the job: of a run whose queries are all dropped the old queries go; its means say that there are none."""
    tables = [f"{tmp_path}/metrics", f"{tmp_path}/queries"]
    first, second = evaluate(rankings, **ASKED), evaluate(rankings.where("ranker = 'b' OR query_id = 'q1'"), **ASKED)
    for result, queries in ((first, "k = 1"), (second, "k = 1 AND run = 'b'")):
        frames = (result.summary, result.per_query_table.where(queries))
        write_night(dict(zip(tables, frames, strict=True)), night=NIGHT, dataset="shop")
    assert {row["run"] for row in read_stored_rows(tmp_path / "queries")} == {"b"}
    assert {row["run"] for row in read_stored_rows(tmp_path / "metrics")} == {"a", "b"}
    write_night({tables[1]: first.per_query_table}, night=NIGHT, dataset="shop", runs=["a", "a", "b"])
    assert len(read_stored_rows(tmp_path / "queries")) == first.per_query_table.count()


def test_rejected_rows_without_a_run_are_not_in_the_way(rankings, tmp_path):
    """And the run may be spelled in capitals."""
    bad = rankings.limit(1).withColumn("ranker", F.lit(None).cast("string"))
    result = evaluate(rankings.unionByName(bad), **ASKED, on_invalid="reject")
    place = f"{tmp_path}/metrics"
    write_night({place: result.summary.withColumnRenamed("run", "Run")}, night=NIGHT, dataset="shop")
    assert {row["run"] for row in read_stored_rows(tmp_path / "metrics")} == {"a", "b"}


def test_a_night_over_no_query_replaces_nothing(rankings, tmp_path):
    nothing = evaluate(rankings.withColumn("relevance", F.lit(0.0)), **ASKED, convention="default;no_relevant=skip")
    with pytest.raises(InputRefusedError, match="no query counts in the means"):
        write_night({f"{tmp_path}/metrics": nothing.summary}, night=NIGHT, dataset="shop")
    assert read_files(tmp_path) == {}


def test_a_table_of_another_kind_beside_metrics(spark, result, tmp_path):
    """Such as notes about the night; its runs are those that it has. Rows of runs that are not named are left out."""
    notes = spark.createDataFrame([("a", "new index"), ("b", "old index")], "run string, note string")
    tables = {f"{tmp_path}/metrics": result.summary, f"{tmp_path}/notes": notes}
    write_night(tables, night=NIGHT, dataset="shop", runs="a")
    assert [(row["run"], row["note"]) for row in read_stored_rows(tmp_path / "notes")] == [("a", "new index")]
    assert {row["run"] for row in read_stored_rows(tmp_path / "metrics")} == {"a"}


def test_refusals(spark, result, tmp_path):
    summary, place = result.summary, f"{tmp_path}/metrics"
    of_null = spark.createDataFrame([("a", 1), (None, 2)], "run string, note int")
    for change, error, message in (
        ({"night": datetime(2026, 1, 31)}, InvalidParameterError, "night= must be a datetime.date"),
        ({"night": "2026-01-31"}, InvalidParameterError, "night= must be a datetime.date; got '2026-01-31'"),
        ({"dataset": ""}, InvalidParameterError, "dataset= must be a name"),
        ({"dataset": 5}, InvalidParameterError, "dataset= must be a name; got 5"),
        ({"runs": ""}, InvalidParameterError, "runs= must be names of runs; got ''"),
        ({"runs": []}, InvalidParameterError, "runs= must be names of runs"),
        ({"runs": ["a", 1]}, InvalidParameterError, "runs= must be names of runs; got"),
        ({"runs": ["a", "b", "c"]}, OutputRefusedError, "'c'"),
        ({"stamps": {"computed_at": "x"}}, InvalidParameterError, "'computed_at'"),
        ({"stamps": {"value": "x"}}, InvalidParameterError, "have a column 'value' of their own"),
        ({"formats": {place: "csv"}}, OutputRefusedError, "not 'csv'"),
        ({"formats": {"metricz": "parquet"}}, InvalidParameterError, "'metricz'"),
        ({"tables": {}}, InvalidParameterError, "must not be empty"),
        ({"tables": ["prod.metrics"]}, InvalidParameterError, "tables must map references, such as 'prod.metrics'"),
        ({"tables": {5: summary}}, InvalidParameterError, r"to DataFrames; got 5: DataFrame\."),
        ({"tables": {place: result}}, InvalidParameterError, "Evaluation"),
        ({"tables": {place: summary.limit(0)}}, InputRefusedError, "no rows to write"),
        ({"tables": {place: summary.withColumn("dataset", F.lit("x"))}}, OutputRefusedError, "dataset"),
        ({"tables": {place: of_null}}, InputRefusedError, "null in column 'run'"),
        ({"tables": {place: summary, f"{tmp_path}/./metrics": summary}}, OutputRefusedError, "metrics"),
    ):
        options: dict[str, Any] = {"tables": {place: summary}, "night": NIGHT, "dataset": "shop", **change}
        with pytest.raises(error, match=message):
            write_night(options.pop("tables"), **options)
        assert read_files(tmp_path) == {}
