"""Keys, order columns and segments of types other than text and whole numbers."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F
from support.refusals import refusal
from support.spark_rankings import session_settings

from ndcg_spark import Convention, evaluate

TEXTS = "query_id string, item_id string, score double, relevance double, position string, day string"
CELLS = {
    "timestamp": lambda n: f"2026-01-0{n + 1} 00:00:00.5",
    "date": lambda n: f"2026-01-0{n + 1}",
    "decimal(20,2)": lambda n: f"{n}.50",
}


@pytest.fixture(scope="module", autouse=True)
def _far_from_utc(spark):
    with session_settings(spark, spark__sql__shuffle__partitions=1, spark__sql__session__timeZone="Asia/Kolkata"):
        yield


@pytest.mark.parametrize("kind", CELLS)
def test_types_change_no_number(spark, kind):
    """Each form gives the values of the same table of text, whose order is that of the type."""
    text = CELLS[kind]
    rows = [
        (text(q), text(i), float((i * 3 + q) % 4), float((i + q) % 3), text(i % 3), text(q % 2))
        for q in range(4)
        for i in range(6)
    ]
    plain = spark.createDataFrame(rows, TEXTS)
    cast = [F.col(name).cast(kind).alias(name) for name in ("query_id", "item_id", "position", "day")]
    typed = plain.select(*cast, "score", "relevance")

    def values(table, **options):
        judged = options.pop("judged", False)
        judgments = table.select("query_id", "item_id", "relevance") if judged else None
        data = table.drop("relevance") if judged else table
        options = {"convention": Convention(ties="item_asc"), **options}
        found = evaluate(data, k=3, segments=["day"], judgments=judgments, **options)
        rows = found.summary.where("metric = 'ndcg'").orderBy("segment").collect()
        assert {row["segment_by"] for row in rows} == {"", "day"}
        return [(row["n_queries"], row["value"]) for row in rows]

    in_order = {"convention": Convention(ties="input_order"), "order": "position"}
    first = {"convention": Convention(ties="item_desc", duplicates="first"), "order": "position"}
    for options in ({}, in_order, first, {"judged": True}, {"judged": True, **in_order}, {"strategy": "window"}):
        assert values(typed, **options) == values(plain, **options), options
    entry = F.struct((-F.col("score")).alias("place"), F.col("item_id").alias("item"), "relevance")
    lists = F.expr("transform(entries, one -> struct(one.item, one.relevance)) AS relevance")
    arrays = typed.groupBy("query_id", "day").agg(F.sort_array(F.collect_list(entry)).alias("entries"))
    assert values(arrays.select("query_id", "day", lists)) == values(plain)


MICROS = (-9 * 10**18, -62_135_616_000_000_000, 253_402_297_200_000_000, 253_419_580_800_500_000, 9 * 10**18)
"""Before the year 1, about the end of 9999 in several time zones, in 10000 (with half a second), and far away."""


@pytest.mark.parametrize("zone", ["Asia/Kolkata", "America/New_York", "UTC"])
@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz", "date"])
def test_segments_of_times_that_python_has_no_value_for_are_named_as_spark_casts_them(spark, kind, zone):
    with session_settings(spark, spark__sql__session__timeZone=zone):
        times = spark.createDataFrame(
            [(str(n), micros) for n, micros in enumerate(MICROS)], "query_id string, at long"
        )
        table = times.selectExpr(
            "query_id",
            "'x' as item_id",
            "1.0D as score",
            "1.0D as relevance",
            f"cast(timestamp_micros(at) as {kind}) as day",
        )
        texts = {row[0] for row in table.selectExpr("cast(day as string)").collect()}
        rows = evaluate(table, segments=["day"]).summary.where("segment_by = 'day' and metric = 'ndcg'").collect()
    far = {text for text in texts if not text.startswith("9999")}  # Python has the others, with their offset from UTC
    assert {row["segment"] for row in rows if not row["segment"].startswith("9999")} == far
    assert sum(row["n_queries"] for row in rows) == len(MICROS)


@pytest.mark.parametrize("strategy", ["engine", "window"])
@pytest.mark.parametrize(
    ("score", "relevance", "what"),
    [
        ("'nan'", "1", "bad row: nan_score at query_id={}"),
        ("1", "1", "column 'part' has more than one value in query query_id={}."),
        ("1", "0", "query query_id={} has nothing relevant."),
    ],
    ids=["bad row", "two segments", "nothing relevant"],
)
def test_a_query_that_python_has_no_value_for_is_refused_in_a_line(spark, score, relevance, what, strategy):
    query = "timestamp_micros(253419580800500000)"
    text = spark.sql(f"SELECT cast({query} AS string)").first()[0]
    part = "id" if "part" in what else "0"
    table = spark.range(2).selectExpr(
        f"{query} AS query_id",
        "timestamp_seconds(-100000000000 - id) AS item_id",
        f"cast({score} AS double) AS score",
        f"cast({relevance} AS double) AS relevance",
        f"{part} AS part",
    )
    found = evaluate(table, segments=["part"], convention=Convention(no_relevant="error"), strategy=strategy)
    assert refusal(found.summary) == what.format(text)


NAN = float("nan")
FILES = pytest.param("files", marks=pytest.mark.classic("Python workers read files themselves"))


@pytest.mark.parametrize("kind", ["float", "double"])
@pytest.mark.parametrize("form", ["engine", "window", FILES, "judgments", "judgments window", "arrays"])
def test_the_two_zeros_are_one_key_and_all_nan_are_one_segment(spark, tmp_path, form, kind):
    """Query 0 has three items, of which item 0 is relevant; queries 1 and 2 are of segment 0, the others of NaN."""
    rows = [(0.0, 1.0, 3.0, 0.0, NAN), (-0.0, -0.0, 2.0, 1.0, NAN), (0.0, 3.0, 1.0, 0.0, NAN)]
    rows += [
        (1.0, 0.0, 3.0, 1.0, 0.0),
        (1.0, 5.0, 2.0, 0.0, -0.0),
        (2.0, 5.0, 2.0, 1.0, -0.0),
        (3.0, 5.0, 2.0, 1.0, NAN),
    ]
    names = f"query_id {kind}, item_id {kind}, score double, relevance double, day {kind}"
    table, judgments = spark.createDataFrame(rows, names), None
    data = table
    options = {"strategy": "window"} if "window" in form else {}
    if form == "files":  # workers read no keys that are floats, but segments
        data = str(tmp_path / "rows")
        table.withColumn("query_id", F.col("query_id").cast("int")).drop("item_id").write.parquet(data)
        options["source"] = "parquet"
    if "judgments" in form:
        other = [(q if q else -q, i if i else -i, relevance) for q, i, _, relevance, _ in rows]
        judgments = spark.createDataFrame(other, f"query_id {kind}, item_id {kind}, relevance double")
        data = table.drop("relevance")
    if form == "arrays":
        lists = F.sort_array(F.collect_list(F.struct((-F.col("score")).alias("place"), "relevance")))
        arrays = table.groupBy("query_id").agg(lists.alias("relevance"), F.min("day").alias("day"))
        data = arrays.withColumn(
            "day", F.when(F.col("query_id") == 2, F.lit(-0.0).cast(kind)).otherwise(F.col("day"))
        )
    found = evaluate(data, judgments=judgments, k=1, segments=["day"], **options)
    means = {
        row["segment"]: (row["value"], row["n_queries"]) for row in found.summary.where("metric = 'ndcg'").collect()
    }
    assert means == {"": (0.75, 4), "0.0": (1.0, 2), "nan": (0.5, 2)}


@pytest.mark.parametrize("strategy", ["engine", "window"])
@pytest.mark.parametrize("table", ["long", "judgments"])
def test_an_item_that_is_nan_is_a_bad_row_and_the_two_zeros_are_one_item(spark, table, strategy):
    def refused(*items):
        rows = [("q", item, 1.0 - at, 1.0) for at, item in enumerate(items)]
        data = spark.createDataFrame(rows, "query_id string, item_id double, score double, relevance double")
        judgments = data.drop("score") if table == "judgments" else None
        run = data.drop("relevance").where("item_id = 1") if table == "judgments" else data
        options = {"convention": Convention(ties="item_asc"), "strategy": strategy}
        return refusal(evaluate(run, judgments=judgments, k=3, **options).summary)

    assert refused(1.0, NAN) == "bad row: null_item at query_id=q"
    assert refused(1.0, 0.0, -0.0).startswith("an item comes twice in the ")
    assert refused(1.0, 0.0) is None


def test_items_of_arrays_that_are_the_two_zeros_come_twice(spark):
    def lists(one, other):
        items = f"array(struct({one} AS item, 1D AS relevance), struct({other} AS item, 1D AS relevance))"
        return spark.sql(f"SELECT 'q' AS query_id, {items} AS relevance")

    assert refusal(evaluate(lists("0D", "-0D")).summary).startswith("an item comes twice in the list ")
    assert refusal(evaluate(lists("double('nan')", "double('nan')")).summary) is None
