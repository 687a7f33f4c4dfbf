"""Keys, order columns and segments of types other than text and whole numbers."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.engines import collect_rows, parametrize_engine, run_refused, table, with_columns
from support.expectations import collect_refusal
from support.spark_rankings import session_settings

from ndcg_spark import Convention, evaluate

CELLS = {
    "timestamp": "2026-01-0{} 00:00:00.5Z",
    "date": "2026-01-0{}",
    "decimal(20,2)": "{}.50",
}
"""Texts of values, which are in the order of their digits."""


@pytest.fixture(autouse=True)
def _far_from_utc(request):
    if not request.node.get_closest_marker("spark"):
        yield
        return
    settings = {"spark__sql__shuffle__partitions": 1, "spark__sql__session__timeZone": "Asia/Kolkata"}
    with session_settings(request.getfixturevalue("spark"), **settings):
        yield


KEY = "query_id KEY, item_id KEY, score double, relevance double, position KEY, day KEY"
LISTS = "query_id KEY, day KEY, relevance array<struct<item: KEY, relevance: double>>"
ROWS = [(q, i, float((i * 3 + q) % 4), float((i + q) % 3), i % 3, q % 2) for q in range(4) for i in range(6)]
ITEM_ASC = {"convention": Convention(ties="item_asc")}
IN_ORDER = {"convention": Convention(ties="input_order"), "order": "position"}
FIRST = {"convention": Convention(ties="item_desc", duplicates="first"), "order": "position"}
FORMS = {"long": ITEM_ASC, "in order": IN_ORDER, "first": FIRST, "judged": ITEM_ASC, "judged in order": IN_ORDER,
         "arrays": ITEM_ASC}  # fmt: skip


def tables(text: str, kind: str, form: str) -> tuple[pa.Table, ...]:
    """The same rankings with keys of a type."""
    cells = [
        (text.format(q + 1), text.format(i + 1), score, grade, text.format(at + 1), text.format(day + 1))
        for q, i, score, grade, at, day in ROWS
    ]
    schema = LISTS if form == "arrays" else KEY
    if form == "arrays":
        ranked = sorted(cells, key=lambda row: (-row[2], row[1]))
        days = {row[0]: row[5] for row in cells}
        cells = [(q, day, [(row[1], row[3]) for row in ranked if row[0] == q]) for q, day in days.items()]
    data = table(cells, schema.replace("KEY", "string")).cast(table([], schema.replace("KEY", kind)).schema)
    names = ["query_id", "item_id", "relevance", *(["position"] if "order" in form else [])]
    return (data.drop_columns(["relevance"]), data.select(names)) if "judged" in form else (data,)


@parametrize_engine(
    "kind, form",
    local=[(kind, form) for kind in CELLS for form in FORMS if form != "first"],
    spark=[("decimal(20,2)", "first"), ("timestamp", "judged in order"), ("date", "arrays")],
    window=[("timestamp", "long")],
)
def test_types_change_no_number(engine, kind, form):
    """Each form gives the values of the same table of text, whose order is that of the type."""

    def values(actual) -> list[tuple]:
        rows = sorted(collect_rows(actual.summary, "ndcg"), key=lambda row: row["segment"])
        assert {row["segment_by"] for row in rows} == {"", "day"}
        return [(row["n_queries"], row["value"]) for row in rows]

    options = {"k": 3, "segments": ["day"], **FORMS[form]}
    expected = evaluate(*tables(CELLS[kind], "string", form), **options)
    assert values(evaluate(*tables(CELLS[kind], kind, form), **options, **engine)) == values(expected)


MICROS = (-9 * 10**18, -62_135_616_000_000_000, 253_402_297_200_000_000, 253_419_580_800_500_000, 9 * 10**18)
"""Before the year 1, about the end of 9999 in several time zones, in 10000 (with half a second), and far away."""


@pytest.mark.parametrize(
    ("kind", "zone"),
    [("timestamp", "Asia/Kolkata"), ("timestamp_ntz", "America/New_York"), ("date", "America/New_York")],
)
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


@pytest.mark.parametrize("engine", ["local", "spark"], indirect=True)
def test_segments_of_dates_beyond_the_year_9999_in_files(given, engine):
    """Which Python workers read themselves."""
    days = pa.array([2_932_897, 0], pa.int32()).cast(pa.date32())
    rows = table(
        [("p", "x", 1.0, 1), ("q", "x", 1.0, 1)], "query_id string, item_id string, score double, relevance int"
    )
    actual = evaluate(given(with_columns(rows, day=days), path=True), segments=["day"], **engine).summary
    segments = {row["segment"]: row["n_queries"] for row in collect_rows(actual, "ndcg") if row["segment_by"]}
    assert segments == {"1970-01-01": 1, "+10000-01-01": 1}


NAN_SCORE = ("'nan'", "1", "bad row: nan_score at query_id={}")


@pytest.mark.parametrize(
    ("strategy", "score", "relevance", "what"),
    [
        ("engine", *NAN_SCORE),
        ("window", *NAN_SCORE),
        ("engine", "1", "1", "column 'part' has more than one value in query query_id={}."),
    ],
    ids=["bad row", "bad row, window", "two segments"],
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
    evaluation = evaluate(table, segments=["part"], convention=Convention(no_relevant="error"), strategy=strategy)
    assert collect_refusal(evaluation.summary) == what.format(text)


NAN = float("nan")


@pytest.fixture
def given(request, tmp_path, engine):
    """Store a table and give it as the engine reads it: tables in memory have null for NaN."""

    def make(data: pa.Table, *, path: bool = engine["engine"] == "local") -> object:
        place = tmp_path / f"{len(list(tmp_path.iterdir()))}.parquet"
        pq.write_table(data, place)
        return str(place) if path else request.getfixturevalue("spark").read.parquet(str(place))

    return make


@pytest.mark.parametrize(
    ("engine", "form", "kind"),
    [
        *(("local", form, kind) for form in ("long", "files", "judgments", "arrays") for kind in ("float", "double")),
        ("spark", "judgments", "double"),
        pytest.param("spark", "files", "double", marks=pytest.mark.classic("Python workers read files themselves")),
        ("window", "long", "float"),
    ],
    indirect=["engine"],
)
def test_the_two_zeros_are_one_key_and_all_nan_are_one_segment(given, engine, form, kind):
    """Query 0 has three items, of which item 0 is relevant; queries 1 and 2 are of segment 0, the others of NaN."""
    rows = [(0.0, 1.0, 3.0, 0.0, NAN), (-0.0, -0.0, 2.0, 1.0, NAN), (0.0, 3.0, 1.0, 0.0, NAN)]
    rows += [
        (1.0, 0.0, 3.0, 1.0, 0.0),
        (1.0, 5.0, 2.0, 0.0, -0.0),
        (2.0, 5.0, 2.0, 1.0, -0.0),
        (3.0, 5.0, 2.0, 1.0, NAN),
    ]
    data = table(rows, f"query_id {kind}, item_id {kind}, score double, relevance double, day {kind}")
    if form == "files":  # workers read no keys that are floats, but segments
        keys = data["query_id"].cast(pa.int32())
        tables = (given(with_columns(data, query_id=keys).drop_columns(["item_id"]), path=True),)
        engine = {**engine, "source": "parquet"}
    if form == "long":
        tables = (given(data),)
    if form == "judgments":
        other = [(q if q else -q, i if i else -i, relevance) for q, i, _, relevance, _ in rows]
        judgments = table(other, f"query_id {kind}, item_id {kind}, relevance double")
        tables = (given(data.drop_columns(["relevance"])), given(judgments))
    if form == "arrays":
        lists = [(0.0, [0.0, 1.0, 0.0], NAN), (1.0, [1.0, 0.0], 0.0), (2.0, [1.0], -0.0), (3.0, [1.0], NAN)]
        tables = (given(table(lists, f"query_id {kind}, relevance array<double>, day {kind}")),)
    actual = collect_rows(evaluate(*tables, k=1, segments=["day"], **engine).summary, "ndcg")
    means = {row["segment"]: (row["value"], row["n_queries"]) for row in actual}
    assert means == {"": (0.75, 4), "0.0": (1.0, 2), "nan": (0.5, 2)}


@parametrize_engine("judged", local=[False, True], spark=[True], window=[False])
def test_an_item_that_is_nan_is_a_bad_row_and_the_two_zeros_are_one_item(given, engine, judged):
    def said(*items):
        rows = [("q", item, 1.0 - at, 1.0) for at, item in enumerate(items)]
        data = table(rows, "query_id string, item_id double, score double, relevance double")
        tables = (data.slice(0, 1).drop_columns(["relevance"]), data.drop_columns(["score"])) if judged else (data,)
        return run_refused(evaluate(*map(given, tables), k=3, convention=Convention(ties="item_asc"), **engine))

    assert "null_item" in said(1.0, NAN)
    assert said(1.0, 0.0, -0.0).startswith("an item appears twice in the ")
    assert said(1.0, 0.0) == ""


def test_items_of_arrays_that_are_the_two_zeros_come_twice(engine):
    def said(*items: float) -> str:
        lists = table([("q", [(item, 1.0) for item in items])],
                      "query_id string, relevance array<struct<item: double, relevance: double>>")  # fmt: skip
        return run_refused(evaluate(lists, **engine))

    assert said(0.0, -0.0).startswith("an item appears twice in the list ")
    assert said(NAN, NAN) == ""
