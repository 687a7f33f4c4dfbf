"""Tables of every format and type, and what is said about those that cannot be used."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from decimal import Decimal
from functools import reduce

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F
from support.canonical_rows import judgment_rows, run_rows
from support.main_job import write_table
from support.oracle import Choices, Row, evaluate
from support.small_rankings import ranked
from support.spark_rankings import Case, assert_same_results, collect_cases, session_settings

from ndcg_spark import evaluate as evaluate_frame
from ndcg_spark import read_table, readable_errors
from ndcg_spark.conventions import Convention
from ndcg_spark.core.bad_rows import RowCount, count_rows, rejects_table
from ndcg_spark.core.columns import is_text_table, mark_text_table, number
from ndcg_spark.core.schemas import MALFORMED
from ndcg_spark.errors import InputRefusedError, InvalidParameterError, MissingColumnError, NdcgSparkError
from ndcg_spark.evaluation.frames.columns import checked_rows
from ndcg_spark.evaluation.frames.ranking import rank_queries
from ndcg_spark.evaluation.frames.summary import score_queries
from ndcg_spark.evaluation.settings import Columns, EvaluationSettings
from ndcg_spark.evaluation.tasks.valid_rows import RowRules
from ndcg_spark.sources.formats import open_table
from ndcg_spark.sources.references import guess_format

CHOICES = Choices()
CUTOFFS = (1, 3)
SETTINGS = EvaluationSettings(cutoffs=CUTOFFS)
SCHEMA = "query_id string, item_id string, score double, relevance double"


def counted(rows, *, judgments: bool = False) -> RowCount:
    return count_rows(checked_rows(rows, RowRules(SETTINGS, judgments)))


ROWS = [
    Row(query="007", item="01", score=0.5, relevance=1.0),
    Row(query="007", item="1", score=0.5, relevance=3.0),  # as numbers, the same item twice
    Row(query="007", item="a, \"b\"", score=2.0, relevance=0.0),
    Row(query="7", item="01", score=-1e-3, relevance=2.0),
    Row(query="7", item="é", score=1e-3, relevance=None),
    Row(query="7", item="z", score=0.0, relevance=1.0),
]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _one_shuffle_partition(spark):
    with session_settings(spark, spark__sql__shuffle__partitions=1):
        yield


@pytest.fixture(scope="module")
def table(spark):
    return spark.createDataFrame([(r.query, r.item, r.score, r.relevance) for r in ROWS], SCHEMA)


def together(spark, references: dict[str, str], *, text: bool):
    """What `score_queries` gives for several tables as one, their names before the queries."""
    frames = []
    for name, reference in references.items():
        table = open_table(spark, reference)
        assert is_text_table(table.frame) == text, name
        assert ("score", "string" if text else "double") in table.frame.dtypes, name
        frames.append(table.frame.withColumn("query_id", F.concat(F.lit(f"{name}:"), "query_id")))
    joined = reduce(lambda left, right: left.unionByName(right), frames)
    return score_queries(rank_queries(joined, SETTINGS), SETTINGS)


def named_rows(name: str, rows=ROWS) -> list[Row]:
    return [replace(row, query=f"{name}:{row.query}") for row in rows]


def assert_expected(frame, rows=None) -> None:
    """Against the oracle; `frame` is what `score_queries` gave."""
    expected = evaluate(ROWS if rows is None else rows, CHOICES, CUTOFFS)
    got = {(row["query_id"], row["k"]): row["ndcg"] for row in frame.collect()}
    assert got == pytest.approx({key: result.ndcg for key, result in expected.items()}, abs=1e-12)


# --- Formats


@pytest.mark.parametrize("forms", [("parquet", "orc", "json", "folder"), ("csv", "tsv", "csv.gz")], ids=str)
def test_files(spark, table, tmp_path, forms):
    """By the ending of the path, without being told the format; ids such as 007 stay what they are."""
    paths = {form: str(tmp_path / ("rows" if form == "folder" else f"rows.{form}")) for form in forms}
    for form, path in paths.items():
        writer = table.coalesce(1).write
        if "csv" in forms:
            options = {"header": True, "sep": "\t" if form == "tsv" else ",", "escape": '"', "emptyValue": ""}
            writer = writer.options(**options, compression="gzip" if form == "csv.gz" else "none")
            writer.csv(path)
        else:
            writer.format("parquet" if form == "folder" else form).save(path)
        assert guess_format(path) == {"csv.gz": "csv", "folder": "parquet"}.get(form, form)
    expected = [row for form in forms for row in named_rows(form)]
    assert_expected(together(spark, paths, text="csv" in forms), expected)


def test_tables_of_the_catalog_views_and_queries(spark, table):
    table.createOrReplaceTempView("rows_view")
    spark.sql("CREATE DATABASE IF NOT EXISTS inputs")
    table.write.mode("overwrite").saveAsTable("inputs.rows")
    try:
        assert guess_format("inputs.rows") == "table"
        assert guess_format(" with good as (select 1) select * from good") == "sql"
        query = "WITH rows AS (SELECT * FROM inputs.rows) SELECT * FROM rows WHERE query_id = '7'; "
        found = together(spark, {"table": "inputs.rows", "view": "rows_view", "query": query}, text=False)
        seventh = [row for row in ROWS if row.query == "7"]
        assert_expected(found, named_rows("table") + named_rows("view") + named_rows("query", seventh))
    finally:
        spark.sql("DROP DATABASE inputs CASCADE")
        spark.catalog.dropTempView("rows_view")


@pytest.mark.parametrize(
    ("reference", "kind"),
    [
        ("-- rows of today\nSELECT * FROM t", "sql"),
        ("/* rows, of\n today */ select 1/2 as score", "sql"),
        ("((SELECT 1) UNION (SELECT 2))", "sql"),
        ("FROM t SELECT query_id", "sql"),
        ("VALUES (1, 'a/b')", "sql"),
        ("values(1)", "sql"),
        ("TABLE prod.rankings", "sql"),
        ("SELECT(1)", "sql"),
        ("select", "table"),
        ("tables.rankings", "table"),
        ("values", "table"),
        ("from_shop", "table"),
        ("select/2026/*.parquet", "parquet"),
        ("(old)/rows", "parquet"),
        ("table-of-today/rows.csv", "csv"),
    ],
)
def test_what_is_sql(reference, kind):
    assert guess_format(reference) == kind


def test_a_path_that_exists_is_no_sql(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "from here").mkdir()
    assert (guess_format("from here"), guess_format("from there")) == ("parquet", "sql")


def test_options_of_the_reader(spark, tmp_path):
    path = tmp_path / "rows.csv"
    lines = [f"{r.query};{r.item};{r.score};{'' if r.relevance is None else r.relevance}" for r in ROWS[3:]]
    path.write_text("\n".join(lines), "utf-8")
    table = open_table(spark, str(path), options={"sep": ";", "header": "false"})
    named = table.frame.toDF("query_id", "item_id", "score", "relevance", MALFORMED)
    assert_expected(score_queries(rank_queries(named, SETTINGS), SETTINGS), ROWS[3:])


def test_trec_text_files_with_comments_and_malformed_lines(spark, tmp_path):
    """Any white space between fields; empty lines and comments are no rows, other lengths bad ones."""
    run, qrels = tmp_path / "a.run", tmp_path / "a.qrels"
    run.write_text(
        "# made by bm25\n1 Q0 d1 1 0.9 my run v1\n\n1\tQ0\td2   2 0.8\ttag\r\n1 Q0 d3 0.7 tag\n2 Q0 d1 1 x tag\n"
    )
    qrels.write_text("  # comment\n1 0 d1 0\n1  0\td2 2\n1 0 d9 1 extra\n2 0 d1 1\n2 0 d2 one\n3 0 d1 -1\n")
    tables = open_table(spark, str(run), "trec-run"), open_table(spark, str(qrels), "trec-qrels")
    checked = run_rows(tables[0].frame, SETTINGS, judged=False)
    found = counted(checked)
    assert found.read == 4
    assert found.rejected == {"malformed_line": 1, "score_not_a_number": 1}
    assert found.examples["score_not_a_number"] == "query_id=2, item=d1"
    assert found.examples["malformed_line"] == "line '1 Q0 d3 0.7 tag'"
    judged = counted(judgment_rows(tables[1].frame, SETTINGS), judgments=True)
    assert (judged.read, judged.rejected) == (6, {"malformed_line": 1, "relevance_not_a_number": 1})
    settings = EvaluationSettings(cutoffs=CUTOFFS, on_invalid="reject")
    found = score_queries(rank_queries(tables[0].frame, settings, judgments=tables[1].frame), settings)
    rows = [Row(query="1", item="d1", score=0.9, relevance=0.0), Row(query="1", item="d2", score=0.8, relevance=2.0)]
    rows += [Row(query="2", item="d1", relevance=1.0), Row(query="3", item="d1", relevance=-1.0)]
    assert_expected(found, rows)


@pytest.mark.parametrize("kind", ["trec-run", "trec-qrels"])
def test_lines_that_start_with_a_hash_are_comments(spark, tmp_path, kind):
    """As in `te_get_trec_results` of trec_eval 10, whatever follows; it skips white space before the hash."""
    path = tmp_path / "a.txt"
    path.write_text("#jobs Q0 d1 1 0.9 tag\n \t# made by hand\n#\n1 0 d1 1\n1 Q0 d1 1 0.9 tag\n")
    found = open_table(spark, str(path), kind).frame
    assert [row["item_id"] for row in found.where(f"{MALFORMED} is null").collect()] == ["d1"]
    assert found.count() == 2


def test_fields_after_the_tag_of_a_run_are_ignored(spark, tmp_path):
    """As by trec_eval: "Any field following run_id is ignored" (get_trec_results.c)."""
    path = tmp_path / "a.run"
    path.write_text("q1 Q0 a 1 3.0 my run v1\n")
    (row,) = open_table(spark, str(path), "trec-run").frame.collect()
    assert row.asDict() == {
        "query_id": "q1", "iteration": "Q0", "item_id": "a", "rank": "1", "score": "3.0", "tag": "my",
        MALFORMED: None,
    }  # fmt: skip


@pytest.mark.parametrize("strategy", ["engine", "window"])
def test_a_malformed_line_is_shown(spark, tmp_path, strategy):
    """Two of them are one reason; an id with a colon in another line is none of its text."""
    path = tmp_path / "a.run"
    path.write_text("q: 1 Q0 a 1\nq2 Q0: b\nq3 Q0 a 1 2.5 tag\n" * 2)
    run = read_table(path, format="trec-run")
    judged = spark.createDataFrame([("q3", "a", 1.0)], "query_id string, item_id string, relevance double")
    told = r"^4 bad rows of 6 in the data: malformed_line 4 \(e\.g\. line 'q2 Q0: b'\)"
    if strategy == "window":  # which stops at the first one
        told = "^bad row: malformed_line at line 'q: 1 Q0 a 1'$"
    with pytest.raises(InputRefusedError, match=told):
        evaluate_frame(run, judged, strategy=strategy).to_pandas()


@pytest.mark.parametrize("ending", ["csv", "tsv"])
@pytest.mark.parametrize("pruning", [True, False])
def test_a_line_with_more_or_fewer_fields_than_the_header_is_malformed(spark, tmp_path, ending, pruning):
    """Also in the last column, which nobody reads; quoted separators and empty last fields are fine."""
    path = tmp_path / f"rows.{ending}"
    lines = ["query_id,item_id,score,relevance,comment", "q,a,1,1,fine", 'q,b,2,0,"so, so"', "q,c,3,1,"]
    lines += ["q,d,4,1,one,many", "q,e,5,1", "q,f", 'q,"g"",h",6,1,ok']
    separator = "," if ending == "csv" else "\t"
    path.write_text("\n".join(line.replace(",", separator) for line in lines) + "\n")
    with session_settings(spark, spark__sql__csv__parser__columnPruning__enabled=pruning):
        table = open_table(spark, str(path))
        checked = run_rows(table.frame, SETTINGS, judged=True)
        counts = counted(checked)
        assert (counts.read, counts.rejected) == (7, {"malformed_line": 3})
        settings = EvaluationSettings(cutoffs=(10,), on_invalid="reject")
        found = score_queries(rank_queries(table.frame, settings), settings).collect()
        assert [(row["n_items"], row["n_relevant"]) for row in found] == [(4, 3)]
        checked = run_rows(table.frame, SETTINGS, judged=True, original=True)
        lost = checked.where("bad_row is not null")
        assert {row["row"][MALFORMED] for row in lost.select("row").collect()} == {
            line.replace(",", separator) for line in ("q,d,4,1,one,many", "q,e,5,1", "q,f")
        }


def test_rejects_of_a_text_format_have_its_columns_and_the_line_where_it_is_no_row(spark, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("query_id,item_id,score,relevance\nq,a,one,1\nq,b,1\n")
    checked = run_rows(open_table(spark, str(path)).frame, SETTINGS, judged=True, original=True)
    rejected = rejects_table(checked_rows(checked, RowRules(SETTINGS)), "input").collect()
    found = {row["reason"]: json.loads(row["row"]) for row in rejected}
    assert found["score_not_a_number"] == {"query_id": "q", "item_id": "a", "score": "one", "relevance": "1"}
    assert found["malformed_line"][MALFORMED] == "q,b,1"


def test_files_of_a_csv_folder_whose_headers_differ_are_refused(spark, tmp_path):
    """Spark takes the columns of one file for all: other orders would swap numbers, a first row would be a header."""
    header = "query_id,item_id,score,relevance\n"
    others = {"order": "query_id,item_id,relevance,score\nq2,a,0,5\n", "none": "q2,a,5,0\nq3,a,5,0\n"}
    others["fewer"] = "query_id,item_id,score\nq2,a,1\n"
    for name, other in others.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.csv").write_text(header + "q1,a,1,1\n" * 9)
        (tmp_path / name / "b.csv").write_text(other)
        frame = open_table(spark, str(tmp_path / name), "csv").frame
        with (
            pytest.raises(InputRefusedError, match=r"[ab]\.csv.*header.*give all files the same header"),
            readable_errors(),
        ):
            score_queries(rank_queries(frame, SETTINGS), SETTINGS).collect()


def test_headers_that_spark_renames_or_that_differ_in_case_only_are_read(spark, tmp_path):
    """A nameless index as pandas writes it, and a name that comes twice, are other names in Spark's schema."""
    for name, headers in {"index": [",a,b"] * 2, "twice": ["a,b,b"] * 2, "case": ["q,a,b", "Q,A,B"]}.items():
        (tmp_path / name).mkdir()
        for at, header in enumerate(headers):
            (tmp_path / name / f"{at}.csv").write_text(f"{header}\n1,2,3\n")
        rows = open_table(spark, str(tmp_path / name), "csv").frame.collect()
        assert [tuple(row) for row in rows] == [("1", "2", "3", None)] * 2, name


def test_a_csv_without_a_line_has_no_columns(spark, tmp_path):
    (tmp_path / "empty.csv").write_text("")
    table = open_table(spark, str(tmp_path / "empty.csv"))
    with pytest.raises(MissingColumnError, match="has: no columns at all"):
        run_rows(table.frame, SETTINGS, judged=True)


def test_a_missing_column_of_a_csv_is_named_beside_those_of_its_header(spark, tmp_path):
    path = write_table(tmp_path / "rows.csv", {"query_id": ["q"], "item_id": ["a"], "score": [1]})
    with pytest.raises(MissingColumnError, match=r"which has: query_id, item_id, score\.$"):
        run_rows(open_table(spark, str(path)).frame, SETTINGS, judged=True)


def test_a_score_in_csv_that_is_no_number_is_a_bad_row(spark, tmp_path):
    """Spaces around a number are none of its business; NaN and infinities are read, and bad for that reason."""
    path = tmp_path / "rows.csv"
    texts = [" 1.5 ", "1e-3", "-.5", "high", "1,5", "12 %", "0,5", "NaN", "-Infinity", ""]
    lines = [f'q,i{n},"{text}",1' for n, text in enumerate(texts)]
    path.write_text("query_id,item_id,score,relevance\n" + "\n".join(lines) + "\n")
    table = open_table(spark, str(path))
    found = counted(run_rows(table.frame, SETTINGS, judged=True))
    expected = {"score_not_a_number": 4, "nan_score": 1, "infinite_score": 1, "null_score": 1}
    assert (found.read, found.rejected) == (10, expected)


def test_what_only_java_takes_for_a_number_is_a_bad_row(spark, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("query_id,item_id,score,relevance\nq,a,1d,1\nq,b,2.5f,1\nq,c,0x1p3,1\n")
    table = open_table(spark, str(path))
    found = counted(run_rows(table.frame, SETTINGS, judged=True))
    assert found.rejected == {"score_not_a_number": 3}


# --- What is not there, and what does not fit


@pytest.mark.parametrize(
    ("reference", "kind", "message"),
    [
        ("{folder}/nowhere", None, "there is no path '{folder}/nowhere'."),
        ("{folder}/nowhere.csv", None, "there is no path '{folder}/nowhere.csv'."),
        ("{folder}/nowhere", "trec-run", "there is no path '{folder}/nowhere'."),
        ("inputs.nothing", None, "there is no table 'inputs.nothing' in the catalog"),
        ("SELECT * FROM inputs.nothing", None, "cannot read sql 'SELECT * FROM inputs.nothing'"),
        ("SELECT 1 +", None, "cannot read sql 'SELECT 1 +'"),
        ("{folder}", "orc", "holds no orc files"),
        ("{folder}/rows.avro", None, "avro"),
    ],
)
def test_a_table_that_is_not_there_is_named(spark, tmp_path, reference, kind, message):
    with pytest.raises(InputRefusedError, match=re.escape(message.format(folder=tmp_path))):
        open_table(spark, reference.format(folder=tmp_path), kind)


def test_nanoseconds_in_parquet_are_refused_with_the_way_out(spark, tmp_path):
    """As pandas writes timestamps by default, with and without a time zone."""
    for zone in (None, "UTC"):
        path = tmp_path / f"{zone}.parquet"
        pq.write_table(pa.table({"query_id": ["q"], "at": pa.array([1], pa.timestamp("ns", zone))}), path)
        with pytest.raises(InputRefusedError) as caught:
            open_table(spark, str(path))
        text = str(caught.value)
        assert text.startswith(
            f"cannot read parquet {str(path)!r}: it has timestamps in nanoseconds, which Spark does"
        )
        assert "coerce_timestamps='us'" in text
        assert "--conf spark.sql.legacy.parquet.nanosAsLong=true" in text
        assert "\n" not in text
        with pytest.raises(InputRefusedError, match="in nanoseconds"):
            evaluate_frame(path)
        with session_settings(spark, spark__sql__legacy__parquet__nanosAsLong="true"):
            assert dict(open_table(spark, str(path)).frame.dtypes)["at"] == "bigint"


@pytest.mark.parametrize(
    ("reference", "kind", "way_out"),
    [
        ("metrics", "table", "the folder of that name is './metrics', without a format of tables."),
        ("SELECT * FROM metrics", None, "the folder of that name is in SQL parquet.`./metrics`."),
    ],
)
def test_a_table_that_is_a_folder_instead_is_named_as_one(spark, tmp_path, monkeypatch, reference, kind, way_out):
    (tmp_path / "metrics").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputRefusedError) as refused:
        open_table(spark, reference, kind)
    assert str(refused.value) == f"there is no table 'metrics' in the catalog; {way_out}"


@pytest.mark.classic("a server keeps its catalog as it was started")
def test_a_table_that_a_catalog_in_memory_cannot_have_is_named_with_the_way_out(spark):
    with pytest.raises(
        InputRefusedError, match=r"kept in memory; start Spark with --conf spark.sql.catalogImpl.*=hive"
    ):
        open_table(spark, "prod.rankings")


@pytest.mark.parametrize(
    "statement", ["DROP TABLE kept", "WITH new AS (SELECT 2 AS x) INSERT INTO kept SELECT * FROM new"]
)
def test_a_statement_that_is_no_query_is_refused_and_not_run(spark, statement):
    """Spark runs it at once, and `--explain` runs nothing."""
    spark.sql("CREATE TABLE kept USING parquet AS SELECT 1 AS x")
    try:
        with pytest.raises(InputRefusedError, match="cannot read sql"):
            open_table(spark, statement, "sql")
        assert [row["x"] for row in spark.table("kept").collect()] == [1]
    finally:
        spark.sql("DROP TABLE IF EXISTS kept")


def test_a_format_that_spark_does_not_know_is_named(spark, tmp_path):
    with pytest.raises(NdcgSparkError, match="'perquet'"):
        open_table(spark, str(tmp_path / "rows"), "perquet")


def test_ranks_are_taken_where_there_is_no_score(spark, table):
    """As by the job, with the same configuration; a table with both is ranked by its scores."""
    rows = [("q", "a", 1, 0.0), ("q", "b", 2, 1.0)]
    ranks = spark.createDataFrame(rows, "query_id string, item_id string, rank int, relevance double")
    named, found = evaluate_frame(ranks, k=2, rank="rank"), evaluate_frame(ranks, k=2)
    assert found.provenance == named.provenance
    assert found.summary.where("metric = 'ndcg'").first()["value"] == pytest.approx(0.6309297535714575, abs=1e-12)
    both = evaluate_frame(ranks.withColumn("score", F.col("rank").cast("double")), k=2)
    assert both.summary.where("metric = 'ndcg'").first()["value"] == 1.0
    assert both.provenance != named.provenance
    for wrong, there in (({"score": "scoer"}, ranks), ({}, ranks.withColumn("SCORE", F.col("rank")))):
        with pytest.raises(MissingColumnError, match=r"\(score=\) is not in the input"):
            evaluate_frame(there, k=2, **wrong)


def test_judgments_may_be_a_path_as_the_rankings(spark, table, tmp_path):
    table.drop("relevance").write.parquet(str(tmp_path / "run"))
    table.drop("score").write.parquet(str(tmp_path / "judged"))
    found = evaluate_frame(str(tmp_path / "run"), tmp_path / "judged", k=2).summary
    expected = evaluate_frame(table.drop("relevance"), table.drop("score"), k=2).summary
    assert sorted(map(str, found.collect())) == sorted(map(str, expected.collect()))


def test_a_column_that_is_not_there_is_named_with_the_nearest(table):
    with pytest.raises(MissingColumnError) as caught:
        evaluate_frame(table, score="scores")
    assert str(caught.value) == (
        "column 'scores' (score=) is not in the input, which has: query_id, item_id, score, relevance. "
        "Did you mean 'score'?"
    )
    with pytest.raises(MissingColumnError, match=r"'query' \(query=\).*Did you mean"):
        evaluate_frame(table, query="query")
    with pytest.raises(MissingColumnError, match=r"'grade' \(relevance=\) is not in the judgments"):
        evaluate_frame(table.drop("relevance"), judgments=table.drop("score"), relevance="grade")
    with pytest.raises(MissingColumnError, match=r"'rank' \(rank=\)"):
        evaluate_frame(table, rank="rank")
    lists = table.selectExpr("query_id", "array(relevance) as relevance")
    for frame in (table, lists):
        with pytest.raises(MissingColumnError, match=r"'model' \(run=\)"):
            evaluate_frame(frame, run="model")
    with pytest.raises(MissingColumnError, match=r"'query_id' \(query=\).*Did you mean 'Query_ID'"):
        evaluate_frame(table.withColumnRenamed("query_id", "Query_ID"), sample=0.5)


def test_a_column_that_is_there_twice_is_refused_only_where_it_is_read(spark, table):
    twice = table.crossJoin(spark.sql("SELECT '7' AS query_id"))
    for settings in (SETTINGS, replace(SETTINGS, sample=0.5)):
        with pytest.raises(InputRefusedError, match=r"'query_id' \(query=\) is there 2 times in the input; name"):
            run_rows(twice, settings, judged=True)
    others = table.selectExpr("*", "1 as note", "2 as Note")
    assert run_rows(others, SETTINGS, judged=True).count() == len(ROWS)
    with pytest.raises(InputRefusedError, match=r"'note' is there 2 times \(Note, note\) in a table whose bad rows"):
        run_rows(others, SETTINGS, judged=True, original=True)
    spelled = table.selectExpr("*", "score as Score")
    with pytest.raises(InputRefusedError, match=r"'score' \(score=\) is there 2 times \(Score, score\) in the input"):
        run_rows(spelled, SETTINGS, judged=True)
    with session_settings(spark, spark__sql__caseSensitive=True):
        assert run_rows(spelled, SETTINGS, judged=True, original=True).count() == len(ROWS)


def test_a_segment_or_an_order_that_is_there_twice_is_refused(table):
    lists = table.selectExpr(
        "query_id", "array(relevance) as relevance", "1 as part", "2 as part", "1 as w", "2 as w"
    )
    rows = table.selectExpr("*", "1 as place", "2 as place")
    for frame, options, named in (
        (lists, {"segments": ["part"]}, r"'part' \(segments=\)"),
        (lists, {"weight": "w"}, r"'w' \(weight=\)"),
        (rows, {"order": "place", "convention": "default;ties=input_order"}, r"'place' \(order=\)"),
    ):
        with pytest.raises(InputRefusedError, match=f"{named} is there 2 times"):
            evaluate_frame(frame, **options)


def test_what_does_not_go_with_arrays_or_without_them(spark, table):
    lists = spark.sql("SELECT '7' AS query_id, array(1.0D) AS relevance")
    of_items = spark.sql("SELECT '7' AS query_id, array(named_struct('item', 'a', 'relevance', 1.0D)) AS relevance")
    for frame, options, named in (
        (of_items, {"convention": "default;duplicates=best"}, "duplicates=best and first are not for arrays"),
        (lists, {"judgments": table.drop("score")}, "arrays of relevances need no judgments table"),
        (table, {"convention": "default;ideal=unsorted"}, "ideal=unsorted needs arrays: a column of relevances and"),
    ):
        with pytest.raises(InvalidParameterError, match=named):
            evaluate_frame(frame, **options)


def test_structs_without_items_are_lists_of_relevances(spark):
    """Nothing in them can come twice, so every rule of duplicates is the same; metrics of items need more."""
    lists = spark.sql("SELECT '7' AS query_id, array(named_struct('relevance', 1.0D)) AS relevance")
    for convention in ("default", "default;duplicates=best"):
        assert [row["ndcg"] for row in evaluate_frame(lists, convention=convention, k=1).per_query.collect()] == [1.0]
    items = spark.sql("SELECT 1 AS item_id, array(1.0D) AS vector")
    with pytest.raises(InvalidParameterError, match=r"'ild@3' needs items: column 'relevance' must be an array of"):
        _ = evaluate_frame(lists, metrics="ild@3", convention="default;ties=item_asc", items=items).summary


@pytest.mark.parametrize("column", ["score", "relevance"])
def test_text_in_a_typed_table_is_refused_not_cast(table, column):
    text = table.withColumn(column, table[column].cast("string"))
    with pytest.raises(InputRefusedError, match=f"'{column}'.* is string, not a number; cast it first"):
        evaluate_frame(text)


ARRAY_COLUMNS = {
    "relevance": "array(named_struct('item', 'a', 'relevance', '1'))",
    "query_id": "map('a', 1)",
    "tier": "array(1)",
    "w": "'1'",
    "items": "array(named_struct('item', named_struct('id', 1), 'relevance', 1.0D))",
    "texts": "array('1')",
    "scores": "array(named_struct('item', 'a', 'score', 1.0D))",
}


@pytest.mark.parametrize("column", ARRAY_COLUMNS)
def test_types_beside_and_inside_arrays_are_refused_as_in_long_tables(spark, column):
    cells = {"query_id": "'q'", "relevance": "array(1.0D)", "tier": "1", "w": "1.0D"}
    named = column if column in cells else "relevance"
    cells[named] = ARRAY_COLUMNS[column]
    frame = spark.range(1).selectExpr(*(f"{cell} AS {name}" for name, cell in cells.items()))
    with pytest.raises(InputRefusedError, match=f"column '{named}'.* (is|are) "):
        evaluate_frame(frame, segments=["tier"], weight="w")


def test_a_list_of_judgments_beside_no_array_is_refused(table):
    told = r"column 'relevance' is no array of relevances, so nothing reads 'best' \(ideal=\); leave it out"
    with pytest.raises(InvalidParameterError, match=told):
        evaluate_frame(table, ideal="best")


def test_an_order_column_that_arrays_lack_is_refused(spark):
    arrays = spark.sql("SELECT 'q' AS query_id, array(1.0D) AS relevance")
    with pytest.raises(MissingColumnError, match=r"column .nowhere. .order=. is not in the input"):
        evaluate_frame(arrays, order="nowhere")


def test_arrays_are_read_by_spark_whatever_is_asked_for(spark, tmp_path):
    spark.sql("SELECT 'q' AS query_id, array(1.0D) AS relevance").write.parquet(str(tmp_path / "arrays"))
    assert evaluate_frame(str(tmp_path / "arrays")).ranking.source == "spark"
    with pytest.raises(InvalidParameterError, match=r"source='parquet' is not available .*'relevance' is an array"):
        evaluate_frame(str(tmp_path / "arrays"), source="parquet")


@pytest.mark.parametrize("key", ["query_id", "item_id"])
def test_keys_of_different_types_are_refused(table, key):
    judgments = table.drop("score")
    numbers = judgments.withColumn(key, F.expr(f"try_cast({key} as bigint)"))
    with pytest.raises(InputRefusedError, match=r"is string in the run and bigint in the judgments; cast"):
        evaluate_frame(table.drop("relevance"), judgments=numbers).per_query.collect()


def test_whole_numbers_of_different_widths_are_the_same_key(spark):
    rows = [Row(query="1", item=2, score=1.0, relevance=1.0), Row(query="1", item=3, score=2.0, relevance=None)]
    run = spark.createDataFrame([(1, 2, 1.0), (1, 3, 2.0)], "query_id int, item_id bigint, score float")
    judgments = spark.createDataFrame([(1, 2, 1)], "query_id bigint, item_id smallint, relevance tinyint")
    found = collect_cases({"one": Case(data=run, judgments=judgments, settings=SETTINGS)})
    assert_same_results(found["one"], evaluate(rows, CHOICES, CUTOFFS))


def test_segments_of_different_types_are_refused_in_run_and_judgments(spark):
    run = spark.createDataFrame([("q", "a", 1.0, 1)], "query_id string, item_id string, score float, tier int")
    judgments = run.selectExpr("query_id", "item_id", "1 as relevance", "cast(tier as string) as tier")
    with pytest.raises(InputRefusedError, match="'tier' is int in the run and string in the judgments; cast"):
        evaluate_frame(run, judgments=judgments, segments=["tier"])


def test_whole_numbers_of_different_widths_are_the_same_segment(spark):
    run = spark.createDataFrame([("q", "a", 1.0, 1)], "query_id string, item_id string, score float, tier int")
    judgments = run.selectExpr("query_id", "item_id", "1 as relevance", "cast(tier as bigint) as tier")
    found = evaluate_frame(run, judgments=judgments, segments=["tier"]).summary.where("metric = 'ndcg'")
    assert sorted(row["segment"] for row in found.collect()) == ["", "1"]
    for pair, kind in (((run.drop("tier"), judgments), "bigint"), ((run, judgments.drop("tier")), "int")):
        found = evaluate_frame(pair[0], judgments=pair[1], segments=["tier"])
        assert ("tier", kind) in found.per_query.dtypes


def test_an_item_column_is_asked_for_where_judgments_are_joined(table):
    with pytest.raises(InvalidParameterError, match="joining judgments needs an item column"):
        evaluate_frame(table.drop("relevance"), judgments=table.drop("score"), item=None)


def test_no_item_column_is_asked_for_where_no_rule_needs_items(table):
    """Ranks that are given are used as they are, whatever the rule of ties; so nothing asks for items."""
    rows, by_item = table.drop("item_id").withColumn("rank", F.lit(1)), Convention(ties="item_asc")
    for item in (None, "item_id"):
        assert "item" not in run_rows(rows, EvaluationSettings(columns=Columns(item=item)), judged=True).columns
        ranks = EvaluationSettings(columns=Columns(item=item, rank="rank"), convention=by_item)
        assert "item" not in run_rows(rows, ranks, judged=True).columns
        scores = replace(ranks, columns=Columns(item=item))
        with pytest.raises(InvalidParameterError if item is None else MissingColumnError, match=r"\(item=\)"):
            run_rows(rows, scores, judged=True)


@pytest.mark.parametrize("name", ["k", "ndcg", "weight", "status", "n_rows"])
def test_a_query_column_with_a_name_of_the_results_is_refused(table, name):
    with pytest.raises(InvalidParameterError, match=f"'{name}' has a name that results use for themselves"):
        evaluate_frame(table.withColumnRenamed("query_id", name), query=name)


# --- Types


def test_a_column_that_is_no_text_is_not_parsed_in_a_text_format_either(spark):
    """As one of names of folders."""
    table = mark_text_table(spark.sql("SELECT '1' AS text, true AS yes, 2.5D AS plain, array(1) AS several"))
    names = ("text", "yes", "plain")
    columns = [number(table, name, "x=", "input").alias(name) for name in names]
    assert table.select(columns).collect() == [(1.0, 1.0, 2.5)]
    with pytest.raises(InputRefusedError, match=r"'several' \(x=\) of the input is array<int>, not a number"):
        number(table, "several", "x=", "input")


def test_every_type_of_score_and_relevance(spark):
    """0/1 labels and whole scores, so that every type holds them; ids of both types. Other tests have doubles."""
    plain = ranked((1.0, 0.0, None, 1.0), query="7") + ranked((0.0, 1.0), query="8")
    cells = [(r.query, r.item, float(r.score), r.relevance) for r in plain]
    table = spark.createDataFrame(cells, SCHEMA)
    kinds = ["tinyint", "bigint", "float", "decimal(10,3)", "boolean"]
    cases = {}
    for n, kind in enumerate(kinds):
        ids, score = ("string", "bigint")[n % 2], "double" if kind == "boolean" else kind
        select = f"cast(query_id as {ids}) query_id, cast(item_id as {ids}) item_id, cast(score as {score}) score"
        cases[kind] = Case(
            data=table.selectExpr(*select.split(", "), f"cast(relevance as {kind}) relevance"), settings=SETTINGS
        )
    for got in collect_cases(cases).values():
        assert_same_results(got, evaluate(plain, CHOICES, CUTOFFS))


def test_fractions_of_decimals_count_in_full(spark):
    """1/log2(2) * (2^1.5 - 1), and a score that differs in the third decimal alone."""
    cells = [("q", "a", Decimal("0.123"), Decimal("1.5")), ("q", "b", Decimal("0.124"), Decimal("0.5"))]
    table = spark.createDataFrame(
        cells, "query_id string, item_id string, score decimal(6,3), relevance decimal(3,1)"
    )
    settings = EvaluationSettings(cutoffs=(1,), columns=Columns())
    found = collect_cases({"one": Case(data=table, settings=settings)})["one"]["q", 1]
    assert (found.dcg, found.idcg) == pytest.approx((2**0.5 - 1, 2**1.5 - 1), abs=1e-15)
