"""Tables of any format for notebooks: what `evaluate` makes of them."""

from __future__ import annotations

import math

import pytest

from ndcg_spark import evaluate, read_table
from ndcg_spark.errors import InputRefusedError

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
    """By hand: the one relevant item is second, 1 / log2(3); ids keep their zeros."""
    run = read_table(written("run.txt", RUN), format="trec-run")
    judgments = read_table(written("qrels.txt", QRELS), format="trec-qrels")
    assert dict(run.dtypes) | dict(judgments.dtypes) == {
        "query_id": "string", "iteration": "string", "item_id": "string", "rank": "int", "score": "double",
        "tag": "string", "relevance": "double", "__malformed_line": "string",
    }  # fmt: skip
    assert {row["item_id"] for row in run.collect()} == {"007", "b"}
    assert evaluate(run, judgments).to_pandas()["value"].tolist() == pytest.approx([1 / math.log2(3)], abs=1e-15)


@pytest.mark.parametrize(
    ("table", "line"),
    [("run", "q1 Q0 c 3 high tag"), ("run", "q1 Q0 c 3"), ("qrels", "q1 0 c much"), ("run", "q1 Q0 c third 0.5 tag")],
)
def test_a_line_without_its_numbers_is_a_bad_row(spark, written, table, line):
    lines = {"run": RUN, "qrels": QRELS}
    lines[table] = [*lines[table], line]
    tables = [read_table(written("a", lines[name]), format=f"trec-{name}") for name in lines]
    with pytest.raises(InputRefusedError, match="malformed_line"):
        evaluate(*tables).to_pandas()
    assert len(evaluate(*tables, on_invalid="reject").to_pandas()) == 1


def test_tables_of_the_catalog_paths_and_queries(spark, written, tmp_path):
    rows = "SELECT 'q' query_id, 'a' item_id, 1D score, 1 relevance"
    spark.sql(rows).write.parquet(str(tmp_path / "rows"))
    spark.sql(rows).createOrReplaceTempView("rows_to_read")
    path = str(tmp_path / "rows")
    found = [read_table(path), read_table("rows_to_read"), read_table(rows, format="sql")]
    assert [one.collect() for one in found] == [spark.sql(rows).collect()] * 3
    text = read_table(written("a.csv", ["query_id;score", "007;1"]), options={"sep": ";"})
    assert text.select("query_id", "score").collect() == [("007", "1")]
    with pytest.raises(InputRefusedError, match=r"there is no path '/nowhere\.parquet'"):
        read_table("/nowhere.parquet")
