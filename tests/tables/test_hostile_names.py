"""Hostile names and values: the numbers of the definition, or one line that says why not."""

from __future__ import annotations

import csv
import io
import json
import math
import random
import re
from contextlib import redirect_stdout
from datetime import date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.engines import by, rows_of, table
from support.main_job import assert_refused, command, done, files_below, mean_ndcg, stored_rows
from support.oracle import Choices, Row, mean
from support.oracle import evaluate as defined
from support.random_rankings import AWKWARD_PREFIXES, EXTREME_SCORES
from support.slices import replace_slices
from support.small_rankings import ranked
from support.spark_rankings import SHORT_LIVED_PLANS, session_settings
from support.terminals import terminal

from ndcg_spark import compare, evaluate, explain_difference, readable_errors
from ndcg_spark.clicks import ImpressionColumns, WeightSettings
from ndcg_spark.clicks.frames import judged_impressions
from ndcg_spark.diagnosis import changed_queries, score_losses
from ndcg_spark.errors import InputRefusedError, InvalidParameterError, OutputRefusedError, one_line
from ndcg_spark.evaluation import Columns, EvaluationSettings, evaluation_settings
from ndcg_spark.evaluation.explanation import ranked_rows
from ndcg_spark.evaluation.printed import show_summary
from ndcg_spark.judgments import EventColumns, EventSettings, RatingColumns, RatingSettings
from ndcg_spark.judgments.frames import judged_events, judged_ratings
from ndcg_spark.sources.references import sql_text
from ndcg_spark.tables import Slices, check_output

LONG = 10_000
IDS = (
    *("", " ", "  ", "a`b", 'a"b', "a'b", "a.b", "a\\b", "a\\", "a,b", "a;b", "a=b", "a/b", "a|b", "../..", "~", "*"),
    *("'; DROP TABLE rows; --", '" OR ""="', "${spark.master}", "%s%d", "{0}", "$(id)", "`id`", "<script>x</script>"),
    *(
        "a\nb",
        "\r\n",
        "\t",
        "\x00",
        "a\x00b",
        "\x1b[31m",
        "\x7f",
        "\u2028",
        "\u202eabc",
        "\ufeff",
        "\ue000",
        "\uffff",
    ),
    *("null", "NULL", "None", "NaN", "-", "0", "00", "-0", "1e3", "true", "=1+1", "@x", "+1", "#x", "[/b]", ":x:"),
    *(
        "\u2063\u2062x\u2062\u2063",
        "\u2061run=x\u2061",
        "__malformed_line",
        "run_date=1",
        "\U0001f469\u200d\U0001f52c",
        "\U0010ffff",
    ),
    *("x" * LONG, "x" * (LONG - 1) + "y", "\u00e9" * LONG, *AWKWARD_PREFIXES),
)
SCORES = (*EXTREME_SCORES, 1.7976931348623157e308, -1.7976931348623157e308, 2.2250738585072014e-308, -0.0, 1.0)
QUERY, ITEM, SCORE, RELEVANCE = "query \"id\" 'ü' 😀;--", "i.te`m", "sc'ore (x)", 'rel="1"'
NAMES = {QUERY: "query", ITEM: "item", SCORE: "score", RELEVANCE: "relevance"}
COLUMNS = ("--query-col", QUERY, "--item-col", ITEM, "--score-col", SCORE, "--relevance-col", RELEVANCE)
CHOICES = Choices(gain="linear", ties="item_asc")
CUTOFFS = (2, 10)


def hostile_rows() -> list[Row]:
    """A query of each id, with items of some of them; ties are common."""
    picked = random.Random(20260131)
    return [
        Row(
            query=query, item=item, score=picked.choice(SCORES), relevance=picked.choice((0.0, 0.0, 1.0, 2.0, 5e-324))
        )
        for query in dict.fromkeys(IDS)
        for item in picked.sample(sorted(set(IDS)), picked.randint(1, 12))
    ]


ROWS = hostile_rows()


def write_hostile(path: Path, rows: list[Row]) -> Path:
    cells = [{name: getattr(row, of) for name, of in NAMES.items()} for row in rows]
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(cells), path)
    elif path.suffix == ".json":
        path.write_text("".join(json.dumps(one) + "\n" for one in cells), encoding="utf-8")
    else:
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n")
            writer.writerows([list(NAMES), *[list(one.values()) for one in cells]])
    return path


# ------------------------------------------------------------------------------------------- numbers through the job


@by("ending", local=["parquet", "json"], spark=["csv"])
def test_the_job_gives_the_numbers_of_the_definition(engine, tmp_path, ending):
    """Keys come back to the byte, in the per-query table, and as segments of the metric table."""
    rows = [row for row in ROWS if ending != "csv" or (row.query and row.item)]  # an empty field of a csv is null
    source = write_hostile(tmp_path / f"rows.{ending}", rows)
    options = ("--input-option", "multiLine=true") if ending == "csv" else ()  # only Spark reads these
    options += ("--engine", engine["engine"])
    done(
        *("--input", source, *options, *COLUMNS, "--segment-cols", QUERY, "--k", "2,10"),
        *("--gain", "linear", "--ties", "item_asc", "--per-query-output", tmp_path / "queries"),
        *("--output", tmp_path / "metrics", "--json", tmp_path / "out.json"),
    )
    expected = defined(rows, CHOICES, CUTOFFS)
    found = {(row[QUERY], row["k"]): row for row in stored_rows(tmp_path / "queries")}
    assert found.keys() == expected.keys()
    for key, row in found.items():
        for name in ("dcg", "idcg", "ndcg"):
            assert row[name] == pytest.approx(getattr(expected[key], name), rel=1e-12, abs=0), (key, name)
    stored = [row for row in stored_rows(tmp_path / "metrics") if row["metric"] == "ndcg"]
    assert {(row["segment"], row["k"]): row["value"] for row in stored if row["segment_by"]} == {
        key: pytest.approx(result.ndcg, abs=1e-12) for key, result in expected.items()
    }
    overall = {row["k"]: row["value"] for row in stored if not row["segment_by"]}
    assert overall == {k: pytest.approx(mean(expected, k), abs=1e-12) for k in CUTOFFS}


@pytest.mark.parametrize(("query", "told"), [("a\nb", "malformed_line"), ("", "null_query")])
def test_what_a_csv_cannot_say_is_refused(tmp_path, query, told):
    source = write_hostile(tmp_path / "rows.csv", [Row(query=query, item="x", score=1.0, relevance=1.0)])
    options = ("--engine", "local", "--output", tmp_path / "metrics")
    assert_refused(mean_ndcg("--input", source, *COLUMNS, *options), told)
    assert not (tmp_path / "metrics").exists()


# ------------------------------------------------------------------------------------------- numbers through evaluate


@pytest.mark.parametrize("engine", ["local", "window"], indirect=True)
def test_evaluate_gives_the_numbers_of_the_definition(engine):
    data = pa.Table.from_pylist([{name: getattr(row, of) for name, of in NAMES.items()} for row in ROWS])
    columns = {of: name for name, of in NAMES.items()}
    result = evaluate(data, k=CUTOFFS, convention="default;gain=linear;ties=item_asc", **columns, **engine)
    found = {(row[QUERY], row["k"]): row["ndcg"] for row in rows_of(result.per_query)}
    expected = defined(ROWS, CHOICES, CUTOFFS)
    assert found == {key: pytest.approx(one.ndcg, abs=1e-12) for key, one in expected.items()}


@pytest.mark.parametrize(("name", "quoted"), [("a.b", "`a.b`"), ("a`b", "`a``b`")])
def test_keys_that_cannot_be_handed_to_workers_are_refused(name, quoted):
    told = f"dot or backtick in its name; rename it where it is read: SELECT *, {quoted} AS a_b FROM ..."
    for make in (
        lambda: evaluation_settings(query=name),
        lambda: evaluation_settings(segments=[name]),
        lambda: RatingColumns(query=(name,)),
        lambda: RatingColumns(item=name),
    ):
        with pytest.raises(InvalidParameterError, match=re.escape(told)) as refused:
            make()
        assert str(refused.value).endswith(f", or .withColumnRenamed({name!r}, 'a_b').")


@pytest.mark.parametrize(("name", "quoted"), [("a.b", "`a.b`"), ("a`b", "`a``b`")])
def test_the_ways_out_for_such_keys_work(spark, tmp_path, name, quoted):
    """The column of a table that nobody may change is renamed where it is read."""
    cells = [{name: one, "item_id": "i", "score": 1.0, "relevance": 1.0} for one in ("x", "y")]
    pq.write_table(pa.Table.from_pylist(cells), tmp_path / "rows.parquet")
    source = f"SELECT *, {quoted} AS a_b FROM parquet.`{tmp_path}/rows.parquet`"
    ended = done("--input", source, "--query-col", "a_b", "--segment-cols", "a_b", "--json", "-")
    renamed_frame = spark.read.parquet(str(tmp_path / "rows.parquet")).withColumnRenamed(name, "a_b")
    found = evaluate(renamed_frame, query="a_b").per_query.collect()
    assert {row["segment"] for row in ended.json["metrics"] if row["segment_by"]} == {row["a_b"] for row in found}
    assert len(found) == 2


def test_the_extremes_of_int64(engine):
    """As ids in order of their value, as scores by their doubles: 2^63 - 1 and 2^63 - 2 tie."""
    extremes = (-(2**63), -(2**63) + 1, -1, 0, 1, 2**53, 2**53 + 1, 2**63 - 2, 2**63 - 1)
    cells = [(query, item, extremes[-at - 1], at % 3) for query in extremes for at, item in enumerate(extremes)]
    data = table(cells, "query_id bigint, item_id bigint, score bigint, relevance bigint")
    rows = [Row(query=query, item=item, score=float(score), relevance=rel) for query, item, score, rel in cells]
    found = evaluate(data, k=list(CUTOFFS), convention="default;ties=item_asc", **engine).per_query
    expected = defined(rows, Choices(ties="item_asc"), CUTOFFS)
    assert {(row["query_id"], row["k"]): row["ndcg"] for row in rows_of(found)} == {
        key: pytest.approx(one.ndcg, abs=1e-12) for key, one in expected.items()
    }


@pytest.mark.parametrize(
    ("query", "score", "relevance", "told"),
    [
        ("x" * LONG, 1.0, 1.7976931348623157e308, "gain_overflow"),
        ("q", 1.0, 1024.0, "gain_overflow"),
        ("q", math.inf, 1.0, "infinite_score"),
        ("q", 1.0, -math.inf, "infinite_relevance"),
        ("a\nb\x1b[31m\u202e", math.nan, 1.0, "nan_score"),
        ("\u2063\u2062x\u2062\u2063", math.nan, 1.0, "nan_score"),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_what_cannot_be_evaluated_is_refused_in_a_line(spark, query, score, relevance, told):
    frame = spark.createDataFrame(
        [(query, "i", score, relevance)], "query_id string, item_id string, score double, relevance double"
    )
    with pytest.raises(InputRefusedError) as refused, readable_errors():
        evaluate(frame).summary.collect()
    assert str(refused.value).startswith(f"bad row: {told} at query_id=")
    assert len(str(refused.value)) < 400
    assert str(refused.value).isprintable()


def test_a_refusal_of_the_job_is_a_line_that_can_be_printed(engine, tmp_path):
    rows = [Row(query="a\n\x1b]0;x\x07" + "y" * LONG, item="\x00" * 9, score=math.nan, relevance=1.0)]
    source = write_hostile(tmp_path / "rows.parquet", rows)
    ended = mean_ndcg("--input", source, *COLUMNS, "--engine", engine["engine"])
    assert_refused(ended, "nan_score", r"\x1b]0;x\x07y")
    assert len(ended.err) < 1000
    assert ended.complaints[0].isprintable()


def renamed(frame, names):
    return frame.select(*[frame[plain].alias(hostile) for plain, hostile in names.items()])


def same_rows(spark, make, rows, schema, names):
    """Rows of `make` from columns of plain names, and from the same under hostile names."""
    plain = spark.createDataFrame(rows, schema)
    its = {name: names.get(name, name) for name in plain.columns}
    with session_settings(spark, **SHORT_LIVED_PLANS):
        found = [
            sorted(map(repr, (tuple(row) for row in made.collect())))
            for made in (make(plain, lambda name: name), make(renamed(plain, its), its.__getitem__))
        ]
    return found


LISTS = [(f"q{n}", f"i{i}", "DE" if n % 2 else "FR", float(-i), float((i * (n + 2)) % 7), i * n % 4)
         for n in range(1, 7) for i in range(5)]  # fmt: skip
OF_LISTS = "query_id string, item_id string, country string, old double, new double, relevance int"
HOSTILE = {
    "query_id": QUERY,
    "item_id": ITEM,
    "country": "c'ou;n try",
    "old": "o.ld`",
    "new": 'n"ew',
    "relevance": RELEVANCE,
}


def two_runs(frame, name):
    scores = {"score": [name("old"), name("new")]}
    return evaluate(frame, k=3, query=name("query_id"), item=name("item_id"), relevance=name("relevance"),
                    segments=[name("country")], **scores)  # fmt: skip


@pytest.mark.parametrize(
    "make",
    [
        lambda frame, name: explain_difference(
            frame, "linear;ties=item_asc", "mllib_binary", k=3, score=name("new"), query=name("query_id"),
            item=name("item_id"), relevance=name("relevance"),
        ).queries,
        lambda frame, name: ranked_rows(frame, EvaluationSettings(columns=Columns(
            query=(name("query_id"),), item=name("item_id"), score=(name("new"),), relevance=name("relevance"),
        ))),
        lambda frame, name: compare(two_runs(frame, name), baseline=name("old")).summary.drop(
            "run", "baseline", "segment_by"
        ),
        lambda frame, name: changed_queries(two_runs(frame, name), baseline=name("old"), run=name("new")).drop(
            "run", "baseline"
        ),
        lambda frame, name: score_losses(two_runs(frame, name).rankings, two_runs(frame, name).settings).drop("run"),
    ],
    ids=["explain_difference", "explain_ranks", "compare", "changed_queries", "score_losses"],
)  # fmt: skip
def test_names_of_columns_change_no_value(spark, make):
    plain, hostile = same_rows(spark, make, LISTS, OF_LISTS, HOSTILE)
    assert plain
    assert plain == hostile


EVENTS = [
    ("q", f"i{n % 3}", ("view", "cart", "purchase")[n % 3], datetime(2026, 1, n + 1), f"u{n % 2}") for n in range(9)
]
RATINGS = [("q", f"i{n % 3}", f"a{n}", float(n % 4), 1.0 + n) for n in range(9)]
IMPRESSIONS = [("q", f"i{n % 3}", n + 1, n % 2, 1 / (n + 1)) for n in range(9)]
OF_LOGS = {
    **{"query_id": QUERY, "item_id": "i te'm", "event": "e.v`ent", "ts": "t's.", "user": "u ser`", "weight": "w.`"},
    **{"annotator": "a.n`n", "relevance": RELEVANCE, "position": "p.`os", "click": "c'l.ick", "propensity": 'p"r`'},
}


@pytest.mark.parametrize(
    ("make", "rows", "schema"),
    [
        (
            lambda frame, name: judged_events(frame, EventSettings(
                columns=EventColumns(
                    query=(name("query_id"),), item=name("item_id"), event=name("event"), ts=name("ts"),
                    user=name("user"),
                ),
                dedup="time", dedup_seconds=9,
            )),
            EVENTS, "query_id string, item_id string, event string, ts timestamp, user string",
        ),
        (
            lambda frame, name: judged_ratings(frame, RatingSettings(columns=RatingColumns(
                query=(name("query_id"),), item=name("item_id"), annotator=name("annotator"),
                relevance=name("relevance"), weight=name("weight"),
            ))),
            RATINGS, "query_id string, item_id string, annotator string, relevance double, weight double",
        ),
        (
            lambda frame, name: judged_impressions(frame, WeightSettings(columns=ImpressionColumns(
                query=(name("query_id"),), item=name("item_id"), position=name("position"), click=name("click"),
                propensity=name("propensity"),
            ))),
            IMPRESSIONS, "query_id string, item_id string, position int, click int, propensity double",
        ),
    ],
    ids=["events", "ratings", "impressions"],
)  # fmt: skip
def test_names_of_columns_change_no_judgment(spark, make, rows, schema):
    plain, hostile = same_rows(spark, make, rows, schema, OF_LOGS)
    assert plain
    assert plain == hostile


# --------------------------------------------------------------------------------------- runs, data sets, table names


@by("kind", local=["folder"], spark=["table"])
def test_runs_and_data_sets_of_any_name(request, engine, tmp_path, kind):
    """Their slices have safe names; the names themselves are stored as they are."""
    runs = sorted({*IDS[::2], "", "../..", "a'b", "x" * LONG})
    cells = [
        {"ranker": run, "query_id": "q", "item_id": f"i{n}", "score": -n, "relevance": rel}
        for run in runs
        for n, rel in enumerate((0, 1))
    ]
    pq.write_table(pa.Table.from_pylist(cells), tmp_path / "rows.parquet")
    dataset = "../../etc/passwd'`\"; DROP TABLE hostile_metrics; --\n😀" + "x" * LONG
    output = tmp_path / "out" / "metrics" if kind == "folder" else "hostile_metrics"
    done(
        *("--input", tmp_path / "rows.parquet", "--run-col", "ranker", "--k", "1,2", "--dataset", dataset),
        *("--run-date", "2026-01-31", "--output", output, "--json", tmp_path / "out.json"),
        *("--engine", engine["engine"]),
    )
    if kind == "folder":
        stored = stored_rows(output)
        assert {path.name for path in tmp_path.iterdir()} == {"rows.parquet", "out", "out.json"}
        assert {path.name for path in (tmp_path / "out").iterdir()} == {"metrics"}
        assert [one for one in files_below(output) if re.search(r"[^\w/.=-]", one)] == []
    else:
        spark = request.getfixturevalue("spark")
        stored = rows_of(spark.table("hostile_metrics"))
        spark.sql("DROP TABLE hostile_metrics")
    values = sorted((row["run"], row["k"], row["value"]) for row in stored if row["metric"] == "ndcg")
    by_hand = {1: 0.0, 2: pytest.approx(0.6309297535714575)}  # the relevant item is second: 1 / log2(3)
    assert values == [(run, k, by_hand[k]) for run in runs for k in (1, 2)]
    assert {row["dataset"] for row in stored} == {dataset}
    assert {row["run"] for row in json.loads((tmp_path / "out.json").read_text())["metrics"]} == set(runs)


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    rows = ranked([3, 0, 1])
    cells = [{"query_id": "q", "item_id": r.item, "score": r.score, "relevance": r.relevance} for r in rows]
    path = tmp_path_factory.mktemp("good") / "rows.parquet"
    pq.write_table(pa.Table.from_pylist(cells), path)
    return path


@pytest.mark.parametrize(
    "name",
    [
        "`odd``name`",
        "`odd.name`",
        "no`tick",
        "metrics; DROP TABLE x",
        "metrics USING csv",
        "a b",
        "x.y.z.w",
        "é",
        ".",
    ],
)
def test_a_table_name_that_the_catalog_does_not_take_is_refused(spark, good, name):
    before = {one.name for one in spark.catalog.listTables()}
    ended = mean_ndcg("--input", good, "--output", name, "--output-format", "table")
    assert_refused(ended, name)
    assert {one.name for one in spark.catalog.listTables()} == before


def test_names_that_need_quotes_can_be_read_and_written(spark, good, tmp_path):
    spark.read.parquet(str(good)).createOrReplaceTempView("`odd ``view``.name`")
    done("--input", "`odd ``view``.name`", "--input-format", "table", "--output", "`Quoted_metrics`")
    assert spark.table("quoted_metrics").count() == 3
    done("--input", good, "--output", "`spark_catalog`.`default`.`quoted_metrics`", "--output-format", "table")
    assert spark.table("quoted_metrics").count() == 6  # another data set beside the first
    spark.sql("DROP TABLE quoted_metrics")


def test_text_in_a_statement_is_a_literal(spark):
    texts = sorted(set(IDS))
    (row,) = spark.sql(f"SELECT array({', '.join(map(sql_text, texts))})").collect()
    assert list(row[0]) == texts


@pytest.mark.parametrize("name", ["no`tick", "rows; DROP TABLE rows", "SELECT * FROM rows; DROP TABLE rows", ""])
def test_an_input_that_is_no_name_is_refused(spark, name):
    assert_refused(mean_ndcg("--input", name))


def test_arguments_that_are_no_text_are_refused():
    assert_refused(mean_ndcg("--input", "rows\udcff.parquet"), r"'rows\udcff.parquet' is not valid UTF-8")


# ------------------------------------------------------------------------------------------------------- credentials


def test_credentials_are_not_stored_or_shown(spark, good, tmp_path):
    spark.read.parquet(str(good)).createOrReplaceTempView("credentials_input")
    query = "SELECT * FROM credentials_input WHERE 'password=hunter2' <> ''"
    ended = done("--input", query, "--dataset", "web", "--output", tmp_path / "metrics", "--json", "-")
    spark.catalog.dropTempView("credentials_input")
    (stored,) = {row["input"] for row in stored_rows(tmp_path / "metrics")}
    assert stored.startswith("sql:SELECT * FROM credentials_input")
    assert "hunter2" not in stored + ended.out + ended.err
    refused = mean_ndcg("--input", "s3://AKIAKEY:hunter2@bucket/rows.parquet", "--output", tmp_path / "other")
    assert_refused(refused, "***@bucket/rows.parquet")
    assert "hunter2" not in refused.err
    explained = done("--input", good, "--explain", "--output", f"{tmp_path}/x&sig=hunter2")
    assert "hunter2" not in explained.out


# ---------------------------------------------------------------------------------------------------------- terminals


@pytest.mark.parametrize("at_a_terminal", [True, False])
def test_names_are_neither_markup_nor_control_characters(at_a_terminal):
    names = ("[/b]", "[red]x", ":smile:", "a\nb", "\x1b[31m", "\u202e")
    summary = [
        {"run": name, "segment_by": "s", "segment": name, "metric": "ndcg", "k": 1, "value": 0.5, "n_queries": 1}
        | {"ci_low": None, "ci_high": None, "asked": None}
        for name in names
    ]
    with terminal() as (stream, read), redirect_stdout(stream if at_a_terminal else io.StringIO()) as out:
        show_summary(summary)
        printed = read() if at_a_terminal else out.getvalue()
    shown = [line for line in printed.splitlines() if "0.5000" in line]
    assert len(shown) == len(names)
    for name, line in zip(names, shown, strict=True):
        assert one_line(name) in line or repr(name)[1:-1] in line
        assert "\u202e" not in line


def test_a_conventions_name_is_refused_whatever_it_is():
    ended = command("mean-ndcg", "--input", "x", "--convention", "\x1b[31m DROP TABLE x")
    assert_refused(ended, r"'\x1b[31m DROP TABLE x'")


def test_tables_in_a_schema_that_needs_quotes(spark):
    slices = Slices.for_night(date(2026, 1, 31), "shop", [""])
    rows = spark.sql("SELECT '' AS run, 1 AS value")
    spark.sql("CREATE SCHEMA `2026`")
    try:
        spark.sql("USE `2026`")
        for name in ("`2026`.metrics", "spark_catalog.`2026`.more", "plain"):
            for _ in range(2):  # a new table, and one that is there
                check_output(spark, name, "table", rows.schema)
                replace_slices(rows, name, "table", slices)
            assert [row["value"] for row in spark.table(name).collect()] == [1]
        with pytest.raises(OutputRefusedError, match="there is no schema '`no-db`' to make table"):
            check_output(spark, "`no-db`.metrics", "table", rows.schema)
    finally:
        spark.sql("USE default")
        spark.sql("DROP SCHEMA `2026` CASCADE")
