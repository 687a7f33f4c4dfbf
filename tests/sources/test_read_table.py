"""`read_table`: tables of any format for notebooks, evaluated by `evaluate`."""

from __future__ import annotations

import math
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.spark_rankings import session_settings

from ndcg_spark import evaluate, read_table, write_night
from ndcg_spark.errors import InputRefusedError, InvalidParameterError, MissingColumnError
from ndcg_spark.sources.references import quote_sql

RUN = ["q1 Q0 007 1 2.5 tag", "q1 Q0 b 2 1.5 tag"]
QRELS = ["q1 0 007 0", "q1 0 b 3"]


@pytest.fixture
def written(tmp_path):
    def write(name, lines):
        path = tmp_path / name
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return str(path)

    return write


def test_the_trec_formats_are_evaluated_as_they_are(spark, written):
    """By hand: the only relevant item is second, 1 / log2(3); ids keep their zeros."""
    run = read_table(written("run.txt", RUN), format="trec-run")
    judgments = read_table(written("qrels.txt", QRELS), format="trec-qrels")
    assert dict(run.dtypes) | dict(judgments.dtypes) == {
        "query_id": "string", "iteration": "string", "item_id": "string", "rank": "double", "score": "double",
        "tag": "string", "relevance": "double", "__malformed_line": "string",
    }  # fmt: skip
    assert {row["item_id"] for row in run.collect()} == {"007", "b"}
    assert evaluate(run, judgments).to_pandas()["value"].tolist() == pytest.approx([1 / math.log2(3)], abs=1e-15)


def test_incomplete_trec_line_is_a_bad_row(spark, written):
    """For any selected columns: a null relevance would be an item without a judgment."""
    for table, line, reason in (
        ("run", "q1 Q0 c 3 high tag", "nan_score"),
        ("run", "q1 Q0 c 3", "null_query"),
        ("qrels", "q1 0 c much", "nan_relevance"),
        ("qrels", "q1 0 c", "null_query"),
    ):
        lines = {"run": RUN, "qrels": QRELS}
        lines[table] = [*lines[table], line]
        run, qrels = (read_table(written(name, lines[name]), format=f"trec-{name}") for name in lines)
        few = run.select("query_id", "item_id", "score"), qrels.select("query_id", "item_id", "relevance")
        for tables in ((run, qrels), few):
            shown = reason if reason != "null_query" or tables is few else f"malformed_line .*line '{line}'"
            with pytest.raises(InputRefusedError, match=shown):
                evaluate(*tables).to_pandas()
        assert len(evaluate(*few, on_invalid="reject").to_pandas()) == 1


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_ranks_are_read_as_they_are(spark, written, ansi):
    """A rank that is fractional or missing is a bad row if it is used, and ignored otherwise."""
    qrels = read_table(written("qrels", ["q1 0 007 1"]), format="trec-qrels")
    with session_settings(spark, spark__sql__ansi__enabled=ansi):
        for rank in ("2.7", "-", "99999999999", "nan"):
            run = read_table(written("run", [RUN[0], f"q1 Q0 b {rank} 1.5 tag"]), format="trec-run")
            assert evaluate(run, qrels).to_pandas()["value"].tolist() == [1.0]
            with pytest.raises(InputRefusedError, match="rank"):
                evaluate(run, qrels, rank="rank").to_pandas()


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_numbers_of_csv(spark, written, ansi):
    """Short lines are bad rows, too, even if the column that marks them is not selected."""
    names = ["query_id,item_id,score,relevance", "007,a,1.5,1", "007,b,0.5,2"]
    with session_settings(spark, spark__sql__ansi__enabled=ansi):
        good = read_table(written("good.csv", names), numbers=["score", "relevance"])
        assert evaluate(good, k=1).to_pandas()["value"].tolist() == pytest.approx([1 / 3], abs=1e-15)
        assert good.select("query_id").first()[0] == "007"
        for line, reason in (("007,c,0.1,high", "nan_relevance"), ("007,c,low,1", "nan_score"), ("007,c", "nan_")):
            bad = read_table(written("bad.csv", [*names, line]), numbers=["score", "relevance"])
            with pytest.raises(InputRefusedError, match=reason):
                evaluate(bad.select("query_id", "item_id", "score", "relevance")).to_pandas()
        with pytest.raises(InputRefusedError, match=r"'relevance' .* is string, not a number"):
            evaluate(read_table(written("good.csv", names), numbers="score"))
        with pytest.raises(MissingColumnError, match=r"column 'grade' .* is not in the table"):
            read_table(written("good.csv", names), numbers="grade")


def test_tables_of_the_catalog_paths_and_queries(spark, written, tmp_path):
    rows = "SELECT 'q' query_id, 'a' item_id, 1D score, 1 relevance"
    spark.sql(rows).write.parquet(str(tmp_path / "rows"))
    spark.sql(rows).createOrReplaceTempView("rows_to_read")
    path = tmp_path / "rows"
    actual = [read_table(path), read_table("rows_to_read"), read_table(rows, format="sql")]
    assert [frame.collect() for frame in actual] == [spark.sql(rows).collect()] * 3
    text = read_table(written("a.csv", ["query_id;score", "007;1"]), options={"sep": ";"})
    assert text.select("query_id", "score").collect() == [("007", "1")]
    with pytest.raises(InputRefusedError, match=r"there is no path '/nowhere\.parquet'"):
        read_table("/nowhere.parquet")


RANKED = "SELECT * FROM VALUES ('q', 'a', 1D, 0D), ('q', 'b', 2D, 1D) AS t(query_id, item_id, score, relevance)"


def test_evaluate_accepts_the_tables_of_read_table(spark, written, tmp_path, monkeypatch):
    """By hand: `b` is relevant and first, so each mean is 1. CSV text is parsed in judgments and runs."""
    monkeypatch.chdir(tmp_path)
    rows = spark.sql(RANKED)
    rows.createOrReplaceTempView("ranked_view")
    rows.write.parquet(str(tmp_path / "ranked"))
    rows.write.parquet(str(tmp_path / "s[1]" / "{a}"))
    rows.write.option("header", True).csv(str(tmp_path / "ranked.csv"))
    folder = tmp_path / "s[1]" / "{a}"
    for data in ("ranked_view", RANKED, f"-- of today\n({RANKED})", "FROM ranked_view", tmp_path / "ranked",
                str(tmp_path / "ranked.csv"), folder, str(folder)):  # fmt: skip
        for result in (evaluate(data), evaluate(RANKED.replace(", relevance)", ", other)"), data)):
            assert result.to_pandas()["value"].tolist() == [1.0], data


def test_a_path_object_is_never_the_name_of_a_table(spark):
    spark.range(1).createOrReplaceTempView("ranked_view")
    with pytest.raises(InputRefusedError, match=r"there is no path '\./ranked_view'"):
        evaluate(Path("ranked_view"))


@pytest.mark.parametrize("kind", ["parquet", "csv", "trec-run"])
def test_existing_path_is_not_a_pattern(spark, tmp_path, kind):
    """A file that the pattern would match is beside it."""
    names = ("[ab]", "{a,b}", "a\\b", "a:b", "a?b", "*")
    for folder in (*names, "a"):
        place = tmp_path / folder / ("day=1" if kind == "parquet" else "")
        place.mkdir(parents=True)
        if kind == "parquet":
            pq.write_table(pa.table({"query_id": [folder]}), place / "0.parquet")
        else:
            text = f"{folder} Q0 a 1 1.5 tag" if kind == "trec-run" else f'query_id\n"{folder}"'
            (place / "0.txt").write_text(text + "\n")
    for name in names:
        actual = read_table(str(tmp_path / name), format=kind, options={"escape": '"'} if kind == "csv" else None)
        assert [row["query_id"] for row in actual.collect()] == [name]


def test_a_file_with_a_colon_in_its_name_is_refused_in_a_line(spark, written):
    path = written("a:b.parquet", [])
    with pa.OSFile(path, "wb") as file:
        pq.write_table(pa.table({"x": [1]}), file)
    with pytest.raises(InputRefusedError, match=r"a:b\.parquet.* with a colon in their names; rename the file\.$"):
        read_table(path)


@pytest.fixture
def nights(spark, tmp_path):
    """Two nights of one data set; the second night has another data set, too."""
    path = str(tmp_path / "queries") + "/"
    for day, dataset, value in ((30, "shop", 1), (31, "shop", 2), (31, "blog", 3)):
        rows = spark.createDataFrame([("q", value)], "query_id string, value int")
        write_night({path: rows}, night=date(2026, 1, day), dataset=dataset)
    return path


def test_a_night_and_a_data_set_are_chosen(spark, nights, tmp_path):
    for options, values in (
        ({}, [1, 2, 3]),
        ({"night": date(2026, 1, 30)}, [1]),
        ({"night": date(2026, 1, 31), "dataset": "blog"}, [3]),
        ({"dataset": "shop"}, [1, 2]),
    ):
        assert sorted(row["value"] for row in read_table(nights, **options).collect()) == values, options
    for options, message in (
        (
            {"night": date(2026, 2, 1)},
            "no rows of the night 2026-02-01 (night=); it has nights from 2026-01-30 to 2026",
        ),
        ({"night": date(2026, 1, 31)}, "has 2 data sets, from blog to shop; dataset= chooses one."),
        (
            {"night": date(2026, 1, 30), "dataset": "blog"},
            "no rows of the data set blog (dataset=); it has the data set",
        ),
        ({"dataset": "app"}, "no rows of the data set app (dataset=); it has data sets from blog to shop."),
    ):
        with pytest.raises(InputRefusedError) as refused:
            read_table(nights, **options)
        assert str(refused.value).startswith(f"table {nights!r} has ")
        assert message in str(refused.value)
    spark.range(1).write.parquet(str(tmp_path / "other"))
    with pytest.raises(InputRefusedError, match="has no column 'run_date'; remove night="):
        read_table(str(tmp_path / "other"), night=date(2026, 1, 30))
    with pytest.raises(InvalidParameterError, match=r"must be a datetime\.date; got '2026-01-30'"):
        read_table(nights, night="2026-01-30")


def test_text_in_a_statement_is_a_literal(spark):
    texts = [
        "",
        "a`b",
        'a"b',
        "a'b",
        "a\\b",
        "a\\",
        "\n",
        "\x00",
        "\u2028",
        "\U0010ffff",
        "${spark.master}",
        "%s",
        "''",
    ]
    (row,) = spark.sql(f"SELECT array({', '.join(map(quote_sql, texts))})").collect()
    assert list(row[0]) == texts
