"""Tables of every format and type, and what is said about those that cannot be used.

That text is read alike by this machine and by Spark: tests/sources/test_local_tables.py.
"""

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
from support.engines import collect_rows, parametrize_engine, with_columns
from support.engines import table as table_of
from support.oracle import Choices, Row, build_ranking, evaluate
from support.spark_rankings import Case, assert_same_results, session_settings
from support.spark_rows import select_run_rows

from ndcg_spark import evaluate as evaluate_frame
from ndcg_spark import read_table, readable_errors
from ndcg_spark.conventions import Convention
from ndcg_spark.core.bad_rows import RowCount, count_rows, select_rejects
from ndcg_spark.core.columns import is_text_table, mark_text_table, number_column
from ndcg_spark.core.schemas import MALFORMED
from ndcg_spark.errors import InputRefusedError, InvalidParameterError, MissingColumnError, NdcgSparkError
from ndcg_spark.evaluation.frames.columns import report_bad_rows
from ndcg_spark.evaluation.frames.ranking import rank_queries
from ndcg_spark.evaluation.frames.summary import score_queries
from ndcg_spark.evaluation.local import LocalRanking, rank_locally
from ndcg_spark.evaluation.plan_columns import plan_rows
from ndcg_spark.evaluation.settings import Columns, EvaluationSettings
from ndcg_spark.evaluation.tasks.valid_rows import RowCheck
from ndcg_spark.sources.formats import open_table
from ndcg_spark.sources.local import open_local, open_memory_table
from ndcg_spark.sources.references import guess_format

CHOICES = Choices()
CUTOFFS = (1, 3)
SETTINGS = EvaluationSettings(cutoffs=CUTOFFS)
SCHEMA = "query_id string, item_id string, score double, relevance double"


def counted(rows) -> RowCount:
    return count_rows(report_bad_rows(rows, RowCheck(SETTINGS)))


ROWS = [
    Row(query="007", item="01", score=0.5, relevance=1.0),
    Row(query="007", item="1", score=0.5, relevance=3.0),  # as numbers, the same item twice
    Row(query="007", item="a, \"b\"", score=2.0, relevance=0.0),
    Row(query="7", item="01", score=-1e-3, relevance=2.0),
    Row(query="7", item="é", score=1e-3, relevance=None),
    Row(query="7", item="z", score=0.0, relevance=1.0),
]  # fmt: skip


TABLE = table_of([(r.query, r.item, r.score, r.relevance) for r in ROWS], SCHEMA)
ARRAYS = table_of([("7", [1.0])], "query_id string, relevance array<double>")
OF_ITEMS = table_of(
    [("7", [("a", 1.0)])], "query_id string, relevance array<struct<item: string, relevance: double>>"
)


@pytest.fixture
def _one_shuffle_partition(spark):
    with session_settings(spark, spark__sql__shuffle__partitions=1):
        yield


@pytest.fixture
def table(spark, _one_shuffle_partition):
    return spark.createDataFrame([(r.query, r.item, r.score, r.relevance) for r in ROWS], SCHEMA)


def drop(table: pa.Table, *names: str) -> pa.Table:
    return table.drop_columns([*names])


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


def assert_expected(rows, expected: list[Row]) -> None:
    """Of rows of queries, against the oracle."""
    got = {(row["query_id"], row["k"]): row["ndcg"] for row in rows}
    results = evaluate(expected, CHOICES, CUTOFFS)
    assert got == pytest.approx({key: result.ndcg for key, result in results.items()}, abs=1e-12)


def ranked_here(settings: EvaluationSettings = SETTINGS, **opened) -> LocalRanking:
    actual = rank_locally(opened, settings)
    assert isinstance(actual, LocalRanking), actual
    return actual


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
    assert_expected(together(spark, paths, text="csv" in forms).collect(), expected)


@pytest.mark.parametrize(
    ("reference", "kind"),
    [
        ("-- rows of today\nSELECT * FROM t", "sql"),
        ("/* rows, of\n today */ select 1/2 as score", "sql"),
        ("((SELECT 1) UNION (SELECT 2))", "sql"),
        ("FROM t SELECT query_id", "sql"),
        (" with good as (select 1) select * from good", "sql"),
        ("VALUES (1, 'a/b')", "sql"),
        ("values(1)", "sql"),
        ("TABLE prod.rankings", "sql"),
        ("SELECT(1)", "sql"),
        ("select", "table"),
        ("tables.rankings", "table"),
        ("values", "table"),
        ("from_shop", "table"),
        ("inputs.rows", "table"),
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


def test_trec_text_files_with_comments_and_malformed_lines(tmp_path):
    """Any white space between fields; empty lines and comments are no rows, other lengths bad ones.

    As in trec_eval, "Any field following run_id is ignored", and what begins with a hash is a comment.
    """
    run, qrels = tmp_path / "a.run", tmp_path / "a.qrels"
    run.write_text(
        "# made by bm25\n#jobs Q0 d1 1 0.9 tag\n \t# made by hand\n#\n"
        "1 Q0 d1 1 0.9 my run v1\n\n1\tQ0\td2   2 0.8\ttag\r\n1 Q0 d3 0.7 tag\n2 Q0 d1 1 x tag\n"
    )
    qrels.write_text(
        "  # comment\n#1 0 d1 1\n1 0 d1 0\n1  0\td2 2\n1 0 d9 1 extra\n2 0 d1 1\n2 0 d2 one\n3 0 d1 -1\n"
    )
    settings = replace(SETTINGS, on_invalid="reject")
    opened = {"input": open_local(str(run), "trec-run"), "judgments": open_local(str(qrels), "trec-qrels")}
    actual = ranked_here(settings, **opened)
    bad = actual.count_bad_rows()
    assert (bad["input"].read, bad["input"].rejected) == (4, {"malformed_line": 1, "score_not_a_number": 1})
    assert bad["input"].examples == {
        "score_not_a_number": "query_id=2, item=d1", "malformed_line": "line '1 Q0 d3 0.7 tag'"
    }  # fmt: skip
    judged = bad["judgments"]
    assert (judged.read, judged.rejected) == (6, {"malformed_line": 1, "relevance_not_a_number": 1})
    rows = [Row(query="1", item="d1", score=0.9, relevance=0.0), Row(query="1", item="d2", score=0.8, relevance=2.0)]
    rows += [Row(query="2", item="d1", relevance=1.0), Row(query="3", item="d1", relevance=-1.0)]
    assert_expected(actual.per_query().to_pylist(), rows)


def test_a_malformed_line_is_shown(spark, tmp_path):
    """Two of them are one reason; an id with a colon in another line is none of its text."""
    path = tmp_path / "a.run"
    path.write_text("q: 1 Q0 a 1\nq2 Q0: b\nq3 Q0 a 1 2.5 tag\n" * 2)
    run = read_table(path, format="trec-run")
    judged = spark.createDataFrame([("q3", "a", 1.0)], "query_id string, item_id string, relevance double")
    told = r"^4 bad rows of 6 in the data: malformed_line 4 \(e\.g\. line 'q2 Q0: b'\)"
    with pytest.raises(InputRefusedError, match=told):
        evaluate_frame(run, judged).to_pandas()


@pytest.mark.parametrize(("ending", "pruning"), [("csv", True), ("tsv", False)])
def test_a_line_with_more_or_fewer_fields_than_the_header_is_malformed(spark, tmp_path, ending, pruning):
    """Also in the last column, which nobody reads; quoted separators and empty last fields are fine."""
    path = tmp_path / f"rows.{ending}"
    lines = ["query_id,item_id,score,relevance,comment", "q,a,1,1,fine", 'q,b,2,0,"so, so"', "q,c,3,1,"]
    lines += ["q,d,4,1,one,many", "q,e,5,1", "q,f", 'q,"g"",h",6,1,ok']
    separator = "," if ending == "csv" else "\t"
    path.write_text("\n".join(line.replace(",", separator) for line in lines) + "\n")
    with session_settings(spark, spark__sql__csv__parser__columnPruning__enabled=pruning):
        table = open_table(spark, str(path))
        checked = select_run_rows(table.frame, SETTINGS, judged=True)
        counts = counted(checked)
        assert (counts.read, counts.rejected) == (7, {"malformed_line": 3})
        settings = EvaluationSettings(cutoffs=(10,), on_invalid="reject")
        rows = score_queries(rank_queries(table.frame, settings), settings).collect()
        assert [(row["n_items"], row["n_relevant"]) for row in rows] == [(4, 3)]
        checked = select_run_rows(table.frame, SETTINGS, judged=True, original=True)
        lost = checked.where("bad_row is not null")
        assert {row["row"][MALFORMED] for row in lost.select("row").collect()} == {
            line.replace(",", separator) for line in ("q,d,4,1,one,many", "q,e,5,1", "q,f")
        }


def test_rejects_of_a_text_format_have_its_columns_and_the_line_where_it_is_no_row(spark, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("query_id,item_id,score,relevance\nq,a,one,1\nq,b,1\n")
    checked = select_run_rows(open_table(spark, str(path)).frame, SETTINGS, judged=True, original=True)
    rejected = select_rejects(report_bad_rows(checked, RowCheck(SETTINGS)), "input").collect()
    actual = {row["reason"]: json.loads(row["row"]) for row in rejected}
    assert actual["score_not_a_number"] == {"query_id": "q", "item_id": "a", "score": "one", "relevance": "1"}
    assert actual["malformed_line"][MALFORMED] == "q,b,1"


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
    """A nameless index as pandas writes it, and a name that appears twice, are other names in Spark's schema."""
    for name, headers in {"index": [",a,b"] * 2, "twice": ["a,b,b"] * 2, "case": ["q,a,b", "Q,A,B"]}.items():
        (tmp_path / name).mkdir()
        for at, header in enumerate(headers):
            (tmp_path / name / f"{at}.csv").write_text(f"{header}\n1,2,3\n")
        rows = open_table(spark, str(tmp_path / name), "csv").frame.collect()
        assert [tuple(row) for row in rows] == [("1", "2", "3", None)] * 2, name


def test_columns_that_a_csv_lacks_are_named_beside_those_of_its_header(tmp_path):
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "rows.csv").write_text("query_id,item_id,score\nq,a,1\n")
    for name, told in (("empty", "has: no columns"), ("rows", r"which has: query_id, item_id, score\.$")):
        with pytest.raises(MissingColumnError, match=told):
            evaluate_frame(str(tmp_path / f"{name}.csv"), engine="local")


def test_a_score_in_csv_that_is_no_number_is_a_bad_row(tmp_path):
    """Spaces around a number do not matter; NaN and infinities are bad for that reason; Java alone reads the last."""
    texts = [" 1.5 ", "1e-3", "-.5", "high", "1,5", "12 %", "0,5", "NaN", "-Infinity", "", "1d", "2.5f", "0x1p3"]
    lines = [f'q,i{n},"{text}",1' for n, text in enumerate(texts)]
    (tmp_path / "rows.csv").write_text("query_id,item_id,score,relevance\n" + "\n".join(lines) + "\n")
    actual = ranked_here(input=open_local(str(tmp_path / "rows.csv"))).count_bad_rows()["input"]
    expected = {"score_not_a_number": 7, "nan_score": 1, "infinite_score": 1, "null_score": 1}
    assert (actual.read, actual.rejected) == (13, expected)


# --- What is not there, and what does not fit


@pytest.mark.parametrize(
    ("reference", "kind", "message"),
    [
        ("{folder}/nowhere", None, "there is no path '{folder}/nowhere'."),
        ("inputs.nothing", None, "there is no table 'inputs.nothing' in the catalog"),
        ("SELECT * FROM inputs.nothing", None, "cannot read sql 'SELECT * FROM inputs.nothing'"),
        ("SELECT 1 +", None, "cannot read sql 'SELECT 1 +'"),
        ("{folder}", "orc", "holds no orc files"),
        ("{folder}/rows.avro", None, "avro"),
        ("{folder}/rows", "perquet", "'perquet'"),
    ],
)
def test_a_table_that_is_not_there_is_named(spark, tmp_path, reference, kind, message):
    with pytest.raises(NdcgSparkError, match=re.escape(message.format(folder=tmp_path))):
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


def test_ranks_are_taken_where_there_is_no_score():
    """With the same configuration; a table with both is ranked by its scores."""
    rows = [("q", "a", 1, 0.0), ("q", "b", 2, 1.0)]
    ranks = table_of(rows, "query_id string, item_id string, rank int, relevance double")
    named, actual = evaluate_frame(ranks, k=2, rank="rank"), evaluate_frame(ranks, k=2)
    assert actual.provenance == named.provenance
    assert collect_rows(actual.summary, "ndcg")[0]["value"] == pytest.approx(0.6309297535714575, abs=1e-12)
    both = evaluate_frame(with_columns(ranks, score=pa.array([1.0, 2.0])), k=2)
    assert collect_rows(both.summary, "ndcg")[0]["value"] == 1.0
    assert both.provenance != named.provenance
    for wrong, given in (({"score": "scoer"}, ranks), ({}, with_columns(ranks, SCORE=ranks["rank"]))):
        with pytest.raises(MissingColumnError, match=r"\(score=\) is not in the input"):
            evaluate_frame(given, k=2, **wrong)


def test_a_column_that_is_not_there_is_named_with_the_nearest():
    with pytest.raises(MissingColumnError) as caught:
        evaluate_frame(TABLE, score="scores")
    assert str(caught.value) == (
        "column 'scores' (score=) is not in the input, which has: query_id, item_id, score, relevance. "
        "Did you mean 'score'?"
    )
    renamed = TABLE.rename_columns(["Query_ID", *TABLE.column_names[1:]])
    run, judgments = drop(TABLE, "relevance"), drop(TABLE, "score")
    for tables, options, told in (
        ((TABLE,), {"query": "query"}, r"'query' \(query=\).*Did you mean"),
        ((run, judgments), {"relevance": "grade"}, r"'grade' \(relevance=\) is not in the judgments"),
        ((TABLE,), {"rank": "rank"}, r"'rank' \(rank=\)"),
        ((TABLE,), {"run": "model"}, r"'model' \(run=\)"),
        ((TABLE,), {"segments": "contry"}, r"'contry' \(segments=\)"),
        ((TABLE,), {"weight": "w"}, r"'w' \(weight=\)"),
        ((ARRAYS,), {"run": "model"}, r"'model' \(run=\)"),
        ((ARRAYS,), {"order": "nowhere"}, r"column .nowhere. .order=. is not in the input"),
        ((renamed,), {"sample": 0.5}, r"'query_id' \(query=\).*Did you mean 'Query_ID'"),
    ):
        with pytest.raises(MissingColumnError, match=told):
            evaluate_frame(*tables, **options)


def test_a_column_that_is_there_twice_is_refused_only_where_it_is_read(spark, table):
    twice = table.crossJoin(spark.sql("SELECT '7' AS query_id"))
    for settings in (SETTINGS, replace(SETTINGS, sample=0.5)):
        with pytest.raises(InputRefusedError, match=r"'query_id' \(query=\) is present 2 times in the input; name"):
            select_run_rows(twice, settings, judged=True)
    others = table.selectExpr("*", "1 as note", "2 as Note")
    assert select_run_rows(others, SETTINGS, judged=True).count() == len(ROWS)
    with pytest.raises(
        InputRefusedError, match=r"'note' is present 2 times \(Note, note\) in a table whose bad rows"
    ):
        select_run_rows(others, SETTINGS, judged=True, original=True)
    spelled = table.selectExpr("*", "score as Score")
    with pytest.raises(
        InputRefusedError, match=r"'score' \(score=\) is present 2 times \(Score, score\) in the input"
    ):
        select_run_rows(spelled, SETTINGS, judged=True)
    with session_settings(spark, spark__sql__caseSensitive=True):
        assert select_run_rows(spelled, SETTINGS, judged=True, original=True).count() == len(ROWS)


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
        with pytest.raises(InputRefusedError, match=f"{named} is present 2 times"):
            evaluate_frame(frame, **options)


UNFIT = [
    (ARRAYS, {"judgments": drop(TABLE, "score")}, "arrays of relevances cannot be combined with a judgments table"),
    (ARRAYS, {"score": ["a", "b"]}, "score= names a, b: arrays of relevances are in rank order"),
    (TABLE, {"convention": "default;ideal=unsorted"}, "ideal=unsorted needs arrays: a column of relevances and"),
    (
        TABLE,
        {"ideal": "best"},
        r"column 'relevance' is not an array of relevances, so 'best' \(ideal=\) has no effect; ",
    ),
]
COPIES = (OF_ITEMS, {"convention": "default;duplicates=best"}, "duplicates=best and first do not support arrays")


@parametrize_engine("data, options, named", local=UNFIT, spark=[COPIES])
def test_what_does_not_go_with_arrays_or_without_them(engine, data, options, named):
    with pytest.raises(InvalidParameterError, match=named):
        evaluate_frame(data, **options, **engine)


def test_structs_without_items_are_lists_of_relevances(spark):
    """Nothing in them can appear twice, so every rule of duplicates is the same; metrics of items need more."""
    lists = table_of([("7", [(1.0,)])], "query_id string, relevance array<struct<relevance: double>>")
    for options in ({"engine": "local"}, {"convention": "default;duplicates=best", "engine": "spark"}):
        assert [row["ndcg"] for row in collect_rows(evaluate_frame(lists, k=1, **options).per_query)] == [1.0]
    items = table_of([(1, [1.0])], "item_id int, vector array<double>")
    with pytest.raises(InvalidParameterError, match=r"'ild@3' needs items: column 'relevance' must be an array of"):
        _ = evaluate_frame(lists, metrics="ild@3", convention="default;ties=item_asc", items=items).summary


@pytest.mark.parametrize("column", ["score", "relevance"])
def test_text_in_a_typed_table_is_refused_not_cast(column):
    text = with_columns(TABLE, **{column: TABLE[column].cast(pa.string())})
    with pytest.raises(InputRefusedError, match=f"'{column}'.* is string, not a number; cast it first"):
        evaluate_frame(text)


STRUCT = "array<struct<item: {}, {}: {}>>"
UNREADABLE = [
    ("relevance", STRUCT.format("string", "relevance", "string"), [("a", "1")]),
    ("query_id", "map<string, int>", {"a": 1}),
    ("tier", "array<int>", [1]),
    ("w", "string", "1"),
    ("relevance", STRUCT.format("struct<id: int>", "relevance", "double"), [((1,), 1.0)]),
    ("relevance", "array<string>", ["1"]),
    ("relevance", STRUCT.format("string", "score", "double"), [("a", 1.0)]),
]


@pytest.mark.parametrize(("column", "kind", "cell"), UNREADABLE, ids=lambda element: str(element)[:30])
def test_types_beside_and_inside_arrays_are_refused_as_in_long_tables(column, kind, cell):
    rest = {
        "query_id": ("string", "q"),
        "relevance": ("array<double>", [1.0]),
        "tier": ("int", 1),
        "w": ("double", 1.0),
    }
    columns = {**rest, column: (kind, cell)}
    schema = ", ".join(f"{name} {kind}" for name, (kind, _) in columns.items())
    data = table_of([tuple(cell for _, cell in columns.values())], schema)
    with pytest.raises(InputRefusedError, match=f"column '{column}'.* (is|are) "):
        evaluate_frame(data, segments=["tier"], weight="w", engine="local")


def test_arrays_are_read_by_spark_whatever_is_asked_for(spark, tmp_path):
    spark.sql("SELECT 'q' AS query_id, array(1.0D) AS relevance").write.parquet(str(tmp_path / "arrays"))
    assert evaluate_frame(str(tmp_path / "arrays")).ranking.source == "spark"
    with pytest.raises(InvalidParameterError, match=r"source='parquet' is not available .*'relevance' is an array"):
        evaluate_frame(str(tmp_path / "arrays"), source="parquet")


@pytest.mark.parametrize("key", ["query_id", "item_id"])
def test_keys_of_different_types_are_refused(key):
    numbers = with_columns(drop(TABLE, "score"), **{key: pa.array(range(len(TABLE)), pa.int64())})
    with pytest.raises(InputRefusedError, match=r"is string in the run and bigint in the judgments; cast"):
        evaluate_frame(drop(TABLE, "relevance"), numbers)


RUN = table_of([(1, 2, 1.0, 1), (1, 3, 2.0, 1)], "query_id int, item_id bigint, score float, tier int")


def test_whole_numbers_of_different_widths_are_the_same_key_and_segment():
    rows = [Row(query="1", item=2, score=1.0, relevance=1.0), Row(query="1", item=3, score=2.0, relevance=None)]
    judged = table_of([(1, 2, 1, 1)], "query_id bigint, item_id smallint, relevance tinyint, tier bigint")
    actual = Case(data=RUN, judgments=judged, settings=SETTINGS).results_here()
    assert_same_results(actual, evaluate(rows, CHOICES, CUTOFFS))
    summary = evaluate_frame(RUN, judged, segments=["tier"]).summary
    assert sorted(row["segment"] for row in collect_rows(summary, "ndcg")) == ["", "1"]
    for tables, kind in (((drop(RUN, "tier"), judged), pa.int64()), ((RUN, drop(judged, "tier")), pa.int32())):
        assert evaluate_frame(*tables, segments=["tier"]).per_query.schema.field("tier").type == kind


def test_segments_of_different_types_are_refused_in_run_and_judgments():
    judged = table_of([(1, 2, 1, "1")], "query_id int, item_id bigint, relevance int, tier string")
    with pytest.raises(InputRefusedError, match="'tier' is int in the run and string in the judgments; cast"):
        evaluate_frame(RUN, judged, segments=["tier"])


def test_an_item_column_is_asked_for_where_judgments_are_joined():
    with pytest.raises(InvalidParameterError, match="joining judgments needs an item column"):
        evaluate_frame(drop(TABLE, "relevance"), drop(TABLE, "score"), item=None)


def test_no_item_column_is_asked_for_where_no_rule_needs_items():
    """Ranks that are given are used as they are, whatever the rule of ties; so nothing asks for items."""
    info = open_memory_table(with_columns(drop(TABLE, "item_id"), rank=1), "data").info
    by_item = Convention(ties="item_asc")
    for item in (None, "item_id"):
        assert (
            "item"
            not in plan_rows(info, EvaluationSettings(columns=Columns(item=item)), has_judgments_table=False).columns
        )
        ranks = EvaluationSettings(columns=Columns(item=item, rank="rank"), convention=by_item)
        assert "item" not in plan_rows(info, ranks, has_judgments_table=False).columns
        with pytest.raises(InvalidParameterError if item is None else MissingColumnError, match=r"\(item=\)"):
            plan_rows(info, replace(ranks, columns=Columns(item=item)), has_judgments_table=False)


# --- Types


def test_a_column_that_is_no_text_is_not_parsed_in_a_text_format_either(spark):
    """As one of names of folders."""
    table = mark_text_table(spark.sql("SELECT '1' AS text, true AS yes, 2.5D AS plain, array(1) AS several"))
    names = ("text", "yes", "plain")
    columns = [number_column(table, name, "x=", "input").alias(name) for name in names]
    assert table.select(columns).collect() == [(1.0, 1.0, 2.5)]
    with pytest.raises(InputRefusedError, match=r"'several' \(x=\) of the input is array<int>, not a number"):
        number_column(table, "several", "x=", "input")


@pytest.mark.parametrize("kind", ["tinyint", "bigint", "float", "decimal(10,3)", "boolean"])
def test_every_type_of_score_and_relevance(kind):
    """0/1 labels and whole scores, so that every type holds them. Other tests have doubles, others types of ids."""
    plain = build_ranking((1.0, 0.0, None, 1.0), query="7") + build_ranking((0.0, 1.0), query="8")
    types = table_of([], f"score {'double' if kind == 'boolean' else kind}, relevance {kind}").schema
    data = table_of([(r.query, r.item, float(r.score), r.relevance) for r in plain], SCHEMA)
    data = with_columns(data, **{field.name: data[field.name].cast(field.type) for field in types})
    actual = Case(data=data, settings=SETTINGS).results_here()
    assert_same_results(actual, evaluate(plain, CHOICES, CUTOFFS))


def test_fractions_of_decimals_count_in_full():
    """1/log2(2) * (2^1.5 - 1), and a score that differs in the third decimal alone."""
    cells = [("q", "a", Decimal("0.123"), Decimal("1.5")), ("q", "b", Decimal("0.124"), Decimal("0.5"))]
    data = table_of(cells, "query_id string, item_id string, score decimal(6,3), relevance decimal(3,1)")
    actual = Case(data=data, settings=EvaluationSettings(cutoffs=(1,))).results_here()["q", 1]
    assert (actual.dcg, actual.idcg) == pytest.approx((2**0.5 - 1, 2**1.5 - 1), abs=1e-15)
