"""Names and values that are hard to get through Spark, files and SQL: numbers of the definition, or one line."""

from __future__ import annotations

import csv
import json
import math
import random
import re
from dataclasses import dataclass, replace
from datetime import datetime
from fractions import Fraction
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.engines import collect_rows, parametrize_engine, table
from support.main_job import assert_refused, mean_ndcg, read_files, read_stored_rows, run_command, run_mean_ndcg
from support.oracle import Choices, Row, mean
from support.oracle import evaluate as defined
from support.random_rankings import AWKWARD_PREFIXES, EXTREME_SCORES
from support.spark_rankings import SHORT_LIVED_PLANS, session_settings

from ndcg_spark import compare, evaluate, explain_difference, readable_errors
from ndcg_spark.clicks import ImpressionColumns, WeightSettings
from ndcg_spark.clicks.frames import judge_impressions
from ndcg_spark.diagnosis import changed_queries, score_losses
from ndcg_spark.errors import InputRefusedError, InvalidParameterError
from ndcg_spark.evaluation import Columns, EvaluationSettings, evaluation_settings
from ndcg_spark.evaluation.explanation import rank_rows
from ndcg_spark.judgments import EventColumns, EventSettings, RatingColumns, RatingSettings
from ndcg_spark.judgments.frames import judge_events, judge_ratings

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
    *("\u2063\u2062x\u2062\u2063", "\u2061run=x\u2061", "__malformed_line", "run_date=1"),
    *("\U0001f469\u200d\U0001f52c", "\U0010ffff"),
    *("x" * LONG, "x" * (LONG - 1) + "y", "\u00e9" * LONG, *AWKWARD_PREFIXES),
)
SCORES = (*EXTREME_SCORES, 1.7976931348623157e308, -1.7976931348623157e308, 2.2250738585072014e-308, -0.0, 1.0)
QUERY, ITEM, SCORE, RELEVANCE = "query \"id\" 'ü' 😀;--", "i.te`m", "sc'ore (x)", 'rel="1"'
RUN, WEIGHT, ORDER, RANK = "r.u`n 'x'", "w'ei.gh`t;", '`o"r.d`er', "r.an`k;--"
NAMES = {QUERY: "query", ITEM: "item", SCORE: "score", RELEVANCE: "relevance"}
COLUMNS = ("--query-col", QUERY, "--item-col", ITEM, "--score-col", SCORE, "--relevance-col", RELEVANCE)
CHOICES = Choices(gain="linear", ties="item_asc")
CUTOFFS = (2, 10)


NIGHT = ("--run-date", "2026-01-31", "--dataset", "shop")
LOCAL = ("--engine", "local")


def awkward_rows() -> list[Row]:
    """A query of each id, with items of some of them; ties are common."""
    picked = random.Random(20260131)
    return [
        Row(
            query=query, item=item, score=picked.choice(SCORES), relevance=picked.choice((0.0, 0.0, 1.0, 2.0, 5e-324))
        )
        for query in dict.fromkeys(IDS)
        for item in picked.sample(sorted(set(IDS)), picked.randint(1, 12))
    ]


ROWS = awkward_rows()


def write_rows(path: Path, rows: list[Row]) -> Path:
    cells = [{name: getattr(row, of) for name, of in NAMES.items()} for row in rows]
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(cells), path)
    elif path.suffix == ".json":
        path.write_text("".join(json.dumps(cell) + "\n" for cell in cells), encoding="utf-8")
    else:
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n")
            writer.writerows([list(NAMES), *[list(cell.values()) for cell in cells]])
    return path


def write_table(path: Path, cells: list[dict[str, object]]) -> Path:
    pq.write_table(pa.Table.from_pylist(cells), path)
    return path


# ------------------------------------------------------------------------------------------- numbers through the job


@parametrize_engine("ending", local=["parquet", "json"], spark=["csv"])
def test_the_job_gives_the_numbers_of_the_definition(engine, tmp_path, ending):
    """Keys come back to the byte, in the per-query table, and as segments of the metric table."""
    rows = [row for row in ROWS if ending != "csv" or (row.query and row.item)]  # an empty field of a csv is null
    source = write_rows(tmp_path / f"rows.{ending}", rows)
    options = ("--input-option", "multiLine=true") if ending == "csv" else ()  # only Spark reads these
    run_mean_ndcg(
        *(
            "--input",
            source,
            *options,
            "--engine",
            engine["engine"],
            *COLUMNS,
            "--segment-cols",
            QUERY,
            "--k",
            "2,10",
        ),
        *("--gain", "linear", "--ties", "item_asc", "--per-query-output", tmp_path / "queries"),
        *("--output", tmp_path / "metrics", "--json", tmp_path / "out.json"),
    )
    expected = defined(rows, CHOICES, CUTOFFS)
    actual = {(row[QUERY], row["k"]): row for row in read_stored_rows(tmp_path / "queries")}
    assert actual.keys() == expected.keys()
    for key, row in actual.items():
        for name in ("dcg", "idcg", "ndcg"):
            assert row[name] == pytest.approx(getattr(expected[key], name), rel=1e-12, abs=0), (key, name)
    stored = [row for row in read_stored_rows(tmp_path / "metrics") if row["metric"] == "ndcg"]
    assert {(row["segment"], row["k"]): row["value"] for row in stored if row["segment_by"]} == {
        key: pytest.approx(result.ndcg, abs=1e-12) for key, result in expected.items()
    }
    overall = {row["k"]: row["value"] for row in stored if not row["segment_by"]}
    assert overall == {k: pytest.approx(mean(expected, k), abs=1e-12) for k in CUTOFFS}


@pytest.mark.parametrize(("query", "message"), [("a\nb", "malformed_line"), ("", "null_query")])
def test_what_a_csv_cannot_say_is_refused(tmp_path, query, message):
    source = write_rows(tmp_path / "rows.csv", [Row(query=query, item="x", score=1.0, relevance=1.0)])
    assert_refused(mean_ndcg("--input", source, *COLUMNS, *LOCAL, "--output", tmp_path / "metrics"), message)
    assert not (tmp_path / "metrics").exists()


RUNS = ("", "`a.b`", '"; DROP TABLE x; --')
# Beside ordinary weights huge ones would hide them; weights of nothing else are tried below.
WEIGHTS = (0.0, 5e-324, 1e-100, 0.1, 1.0, 3.5, 1e3)


@dataclass(frozen=True)
class Listed:
    """A row of the oracle, with what the job reads beside it."""

    run: str
    weight: float
    row: Row


def awkward_lists() -> list[Listed]:
    """The same judged items in each run, in other orders; ties are common, and the order column breaks them."""
    picked = random.Random(20260201)
    actual = []
    for query in dict.fromkeys(IDS):
        items = picked.sample(sorted(set(IDS)), picked.randint(1, 5))
        relevances = {item: picked.choice((0.0, 0.0, 1.0, 2.0, 5e-324, 2.0**62)) for item in items}
        weight = picked.choice(WEIGHTS)
        for run in RUNS:
            for place, item in enumerate(picked.sample(items, len(items))):
                row = Row(
                    query=query, item=item, score=picked.choice(SCORES), relevance=relevances[item], position=place
                )
                actual.append(Listed(run, weight, row))
    return actual


LISTS = awkward_lists()


def of_runs() -> dict[str, list[Row]]:
    return {run: [ranked_list.row for ranked_list in LISTS if ranked_list.run == run] for run in RUNS}


def in_rank_order(listed: list[Listed]) -> dict[tuple[str, str], list[Listed]]:
    """Rows of each list, best first."""
    lists: dict[tuple[str, str], list[Listed]] = {}
    for entry in sorted(listed, key=lambda entry: (-entry.row.score, entry.row.position)):
        lists.setdefault((entry.run, entry.row.query), []).append(entry)
    return lists


def long_table(folder: Path) -> list[object]:
    cells = [
        {QUERY: entry.row.query, ITEM: entry.row.item, SCORE: entry.row.score,
         RELEVANCE: entry.row.relevance, RUN: entry.run,
         WEIGHT: entry.weight, ORDER: entry.row.position}
        for entry in LISTS
    ]  # fmt: skip
    return ["--input", write_table(folder / "rows.parquet", cells), *COLUMNS, "--order-col", ORDER]


def two_tables(folder: Path) -> list[object]:
    cells = [
        {
            QUERY: ranked_list.row.query,
            ITEM: ranked_list.row.item,
            SCORE: ranked_list.row.score,
            RUN: ranked_list.run,
            ORDER: ranked_list.row.position,
        }
        for ranked_list in LISTS
    ]
    judged = [
        {
            QUERY: ranked_list.row.query,
            ITEM: ranked_list.row.item,
            RELEVANCE: ranked_list.row.relevance,
            WEIGHT: ranked_list.weight,
        }
        for ranked_list in LISTS
        if ranked_list.run == RUNS[0]
    ]
    run, judgments = (write_table(folder / f"{at}.parquet", rows) for at, rows in enumerate((cells, judged)))
    return ["--input", run, "--judgments", judgments, *COLUMNS, "--order-col", ORDER]


def given_ranks(folder: Path) -> list[object]:
    cells = [
        {QUERY: query, RANK: rank, RELEVANCE: one.row.relevance, RUN: run, WEIGHT: one.weight}
        for (run, query), group in in_rank_order(LISTS).items()
        for rank, one in enumerate(group, 1)
    ]
    names = ("--query-col", QUERY, "--rank-col", RANK, "--relevance-col", RELEVANCE)
    return ["--input", write_table(folder / "rows.parquet", cells), *names]


def arrays(folder: Path) -> list[object]:
    cells = [
        {QUERY: query, RELEVANCE: [element.row.relevance for element in group], RUN: run, WEIGHT: group[0].weight}
        for (run, query), group in in_rank_order(LISTS).items()
    ]
    names = ("--query-col", QUERY, "--relevance-col", RELEVANCE)
    return ["--input", write_table(folder / "rows.parquet", cells), *names]


# ------------------------------------------------------------------------------------------------ forms of the input


@parametrize_engine("form", local=[long_table, two_tables, given_ranks, arrays], spark=[two_tables])
def test_each_form_gives_the_numbers_of_the_definition(engine, tmp_path, form):
    """Of several runs, with weights, in an order that another column decides."""
    ties = ("--ties", "input_order") if form in (long_table, two_tables) else ()
    run_mean_ndcg(
        *form(tmp_path), *ties, "--run-col", RUN, "--weight-col", WEIGHT, "--k", "2,10", "--gain", "linear", *NIGHT,
        "--per-query-output", tmp_path / "queries", "--output", tmp_path / "metrics", "--engine", engine["engine"],
    )  # fmt: skip
    choices = Choices(gain="linear", ties="input_order")
    expected = {run: defined(rows, choices, CUTOFFS) for run, rows in of_runs().items()}
    actual = {(row["run"], row[QUERY], row["k"]): row for row in read_stored_rows(tmp_path / "queries")}
    assert actual.keys() == {(run, *key) for run, results in expected.items() for key in results}
    for (run, *key), row in actual.items():
        for name in ("dcg", "idcg", "ndcg"):
            wanted = getattr(expected[run][tuple(key)], name)
            assert row[name] == pytest.approx(wanted, rel=1e-12, abs=0), (run, key, name)
    weights = {ranked_list.row.query: Fraction(ranked_list.weight) for ranked_list in LISTS}
    total = sum(weights.values())
    stored = [row for row in read_stored_rows(tmp_path / "metrics") if row["metric"] == "ndcg"]
    assert {(row["run"], row["k"]): (row["value"], row["weight_sum"]) for row in stored} == {
        (run, k): (
            pytest.approx(
                float(
                    sum(weights[q] * Fraction(one.ndcg) for (q, group), one in results.items() if group == k) / total
                ),
                abs=1e-12,
            ),
            pytest.approx(float(total), rel=1e-15),
        )
        for run, results in expected.items()
        for k in CUTOFFS
    }


@pytest.mark.parametrize("weight", [3e17, 1e-20, 1e19, 1e300, 1e-40, 1e-70, 1e-100, 5e-324])
def test_weights_of_any_size_weigh_or_are_refused(tmp_path, weight):
    """Three queries of NDCG 1, 0 and 1 / log2(3), the first of which counts three times."""
    lists = {"a": (3 * weight, [1.0, 0.0]), "b": (weight, [0.0, 0.0]), "c": (weight, [0.0, 1.0])}
    cells = [{QUERY: query, RELEVANCE: group, WEIGHT: one} for query, (one, group) in lists.items()]
    asked = ("--input", write_table(tmp_path / "rows.parquet", cells), "--query-col", QUERY, "--relevance-col",
             RELEVANCE, "--weight-col", WEIGHT, "--k", "2", "--gain", "linear", *NIGHT, *LOCAL)  # fmt: skip
    if 1e-20 <= weight <= 3e17:
        (row,) = [row for row in run_mean_ndcg(*asked, "--json", "-").json["metrics"] if row["metric"] == "ndcg"]
        c = 1 / math.log2(3)
        mean = (3 + c) / 5
        # Cochran 1977, section 6.4: sqrt(n / (n - 1) * sum(w^2 (v - mean)^2)) / sum(w)
        error = math.sqrt(3 / 2 * (9 * (1 - mean) ** 2 + mean**2 + (c - mean) ** 2)) / 5
        assert (row["value"], row["std_error"]) == (pytest.approx(mean), pytest.approx(error))
    else:
        ended = mean_ndcg(*asked, "--output", tmp_path / "metrics")
        assert_refused(ended, "bad_weight 3" if weight > 1 else "weights of queries sum to")
        assert not (tmp_path / "metrics").exists()


# ------------------------------------------------------------------------------------------- numbers through evaluate


@pytest.mark.parametrize("engine", ["window"], indirect=True)
def test_evaluate_gives_the_numbers_of_the_definition(engine):
    data = pa.Table.from_pylist([{name: getattr(row, of) for name, of in NAMES.items()} for row in ROWS])
    columns = {of: name for name, of in NAMES.items()}
    result = evaluate(data, k=CUTOFFS, convention="default;gain=linear;ties=item_asc", **columns, **engine)
    actual = {(row[QUERY], row["k"]): row["ndcg"] for row in collect_rows(result.per_query)}
    expected = defined(ROWS, CHOICES, CUTOFFS)
    assert actual == {key: pytest.approx(one.ndcg, abs=1e-12) for key, one in expected.items()}


@pytest.mark.parametrize(("name", "quoted"), [("a.b", "`a.b`"), ("a`b", "`a``b`")])
def test_keys_that_cannot_be_handed_to_workers_are_refused(name, quoted):
    message = f"dot or backtick in its name; rename it where it is read: SELECT *, {quoted} AS a_b FROM ..."
    for make in (
        lambda: evaluation_settings(query=name),
        lambda: evaluation_settings(segments=[name]),
        lambda: RatingColumns(query=(name,)),
        lambda: RatingColumns(item=name),
    ):
        with pytest.raises(InvalidParameterError, match=re.escape(message)) as refused:
            make()
        assert str(refused.value).endswith(f", or .withColumnRenamed({name!r}, 'a_b').")


def test_the_ways_out_for_such_keys_work(spark, tmp_path):
    """The column of a table that nobody may change is renamed where it is read."""
    name, quoted = "a`b.c", "`a``b.c`"
    cells = [{name: element, "item_id": "i", "score": 1.0, "relevance": 1.0} for element in ("x", "y")]
    pq.write_table(pa.Table.from_pylist(cells), tmp_path / "rows.parquet")
    source = f"SELECT *, {quoted} AS a_b FROM parquet.`{tmp_path}/rows.parquet`"
    ended = run_mean_ndcg("--input", source, "--query-col", "a_b", "--segment-cols", "a_b", "--json", "-")
    renamed_frame = spark.read.parquet(str(tmp_path / "rows.parquet")).withColumnRenamed(name, "a_b")
    rows = evaluate(renamed_frame, query="a_b").per_query.collect()
    assert {row["segment"] for row in ended.json["metrics"] if row["segment_by"]} == {row["a_b"] for row in rows}
    assert len(rows) == 2


def test_the_extremes_of_int64(engine):
    """As ids in order of their value, as scores by their doubles: 2^63 - 1 and 2^63 - 2 tie."""
    extremes = (-(2**63), -(2**63) + 1, -1, 0, 1, 2**53, 2**53 + 1, 2**63 - 2, 2**63 - 1)
    cells = [(query, item, extremes[-at - 1], at % 3) for query in extremes for at, item in enumerate(extremes)]
    data = table(cells, "query_id bigint, item_id bigint, score bigint, relevance bigint")
    rows = [Row(query=query, item=item, score=float(score), relevance=rel) for query, item, score, rel in cells]
    actual = evaluate(data, k=list(CUTOFFS), convention="default;ties=item_asc", **engine).per_query
    expected = defined(rows, Choices(ties="item_asc"), CUTOFFS)
    assert {(row["query_id"], row["k"]): row["ndcg"] for row in collect_rows(actual)} == {
        key: pytest.approx(one.ndcg, abs=1e-12) for key, one in expected.items()
    }


REFUSED = [
    ("x" * LONG, 1.0, 1.7976931348623157e308, "gain_overflow"),
    ("q", 1.0, 1024.0, "gain_overflow"),
    ("q", math.inf, 1.0, "infinite_score"),
    ("q", 1.0, -math.inf, "infinite_relevance"),
    ("a\nb\x1b[31m\u202e", math.inf, 1.0, "infinite_score"),
    ("\u2063\u2062x\u2062\u2063", math.inf, 1.0, "infinite_score"),  # signs around refusals on their way through Java
]


@parametrize_engine("query, score, relevance, message", local=REFUSED[:-1], spark=REFUSED[-1:])
def test_what_cannot_be_evaluated_is_refused_in_a_line(engine, query, score, relevance, message):
    data = table([(query, "i", score, relevance)], "query_id string, item_id string, score double, relevance double")
    with pytest.raises(InputRefusedError) as refused, readable_errors():
        collect_rows(evaluate(data, **engine).summary)
    assert message in str(refused.value)
    assert len(str(refused.value)) < 400
    assert str(refused.value).isprintable()


def test_a_refusal_of_the_job_is_a_line_that_can_be_printed(engine, tmp_path):
    rows = [Row(query="a\n\x1b]0;x\x07" + "y" * LONG, item="\x00" * 9, score=math.nan, relevance=1.0)]
    source = write_rows(tmp_path / "rows.parquet", rows)
    ended = mean_ndcg("--input", source, *COLUMNS, "--engine", engine["engine"])
    assert_refused(ended, "nan_score", r"\x1b]0;x\x07y")
    assert len(ended.err) < 1000
    assert ended.complaints[0].isprintable()


def test_arguments_of_the_job_that_are_no_names_are_refused():
    ended = mean_ndcg("--input", "rows\udcff.parquet")
    assert_refused(ended, r"'rows\udcff.parquet' is not valid UTF-8")
    ended = run_command("mean-ndcg", "--input", "x", "--convention", "\x1b[31m DROP TABLE x")
    assert_refused(ended, r"'\x1b[31m DROP TABLE x'")


def test_an_input_that_is_no_name_is_refused(spark):
    for name in ("no`tick", "rows; DROP TABLE rows", "SELECT * FROM rows; DROP TABLE rows", ""):
        assert_refused(mean_ndcg("--input", name))


# ------------------------------------------------------------------------------------------ names of columns on Spark


def renamed(frame, names):
    return frame.select(*[frame[plain].alias(awkward) for plain, awkward in names.items()])


def same_rows(spark, make, rows, schema, names):
    """Rows of `make` from columns of plain names, and from the same under awkward names."""
    plain = spark.createDataFrame(rows, schema)
    group = {name: names.get(name, name) for name in plain.columns}
    with session_settings(spark, **SHORT_LIVED_PLANS):
        actual = [
            sorted(map(repr, (tuple(row) for row in made.collect())))
            for made in (make(plain, lambda name: name), make(renamed(plain, group), group.__getitem__))
        ]
    return actual


LONG_LISTS = [(f"q{n}", f"i{i}", "DE" if n % 2 else "FR", float(-i), float((i * (n + 2)) % 7), i * n % 4)
         for n in range(1, 7) for i in range(5)]  # fmt: skip
OF_LISTS = "query_id string, item_id string, country string, old double, new double, relevance int"
AWKWARD = {
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


OF_RANKINGS = {
    "explain_difference": lambda frame, name: explain_difference(
        frame, "linear;ties=item_asc", "mllib_binary", k=3, score=name("new"), query=name("query_id"),
        item=name("item_id"), relevance=name("relevance"),
    ).queries,
    "explain_ranks": lambda frame, name: rank_rows(frame, EvaluationSettings(columns=Columns(
        query=(name("query_id"),), item=name("item_id"), score=(name("new"),), relevance=name("relevance"),
    ))),
    "compare": lambda frame, name: compare(two_runs(frame, name), baseline=name("old")).summary.drop(
        "run", "baseline", "segment_by"
    ),
    "changed_queries": lambda frame, name: changed_queries(
        two_runs(frame, name), baseline=name("old"), run=name("new")
    ).drop("run", "baseline"),
    "score_losses": lambda frame, name: score_losses(
        two_runs(frame, name).rankings, two_runs(frame, name).settings
    ).drop("run"),
}  # fmt: skip


def test_names_of_columns_change_no_value(spark):
    for name, make in OF_RANKINGS.items():
        plain, awkward = same_rows(spark, make, LONG_LISTS, OF_LISTS, AWKWARD)
        assert plain
        assert (name, plain) == (name, awkward)


EVENTS = [
    ("q", f"i{n % 3}", ("view", "cart", "purchase")[n % 3], datetime(2026, 1, n + 1), f"u{n % 2}") for n in range(9)
]
RATINGS = [("q", f"i{n % 3}", f"a{n}", float(n % 4), 1.0 + n) for n in range(9)]
IMPRESSIONS = [("q", f"i{n % 3}", n + 1, n % 2, 1 / (n + 1)) for n in range(9)]
OF_LOGS = {
    **{"query_id": QUERY, "item_id": "i te'm", "event": "e.v`ent", "ts": "t's.", "user": "u ser`", "weight": "w.`"},
    **{"annotator": "a.n`n", "relevance": RELEVANCE, "position": "p.`os", "click": "c'l.ick", "propensity": 'p"r`'},
}


OF_JUDGMENTS = [
    (
        lambda frame, name: judge_events(frame, EventSettings(
            columns=EventColumns(
                query=(name("query_id"),), item=name("item_id"), event=name("event"), ts=name("ts"),
                user=name("user"),
            ),
            dedup="time", dedup_seconds=9,
        )),
        EVENTS, "query_id string, item_id string, event string, ts timestamp, user string",
    ),
    (
        lambda frame, name: judge_ratings(frame, RatingSettings(columns=RatingColumns(
            query=(name("query_id"),), item=name("item_id"), annotator=name("annotator"),
            relevance=name("relevance"), weight=name("weight"),
        ))),
        RATINGS, "query_id string, item_id string, annotator string, relevance double, weight double",
    ),
    (
        lambda frame, name: judge_impressions(frame, WeightSettings(columns=ImpressionColumns(
            query=(name("query_id"),), item=name("item_id"), position=name("position"), click=name("click"),
            propensity=name("propensity"),
        ))),
        IMPRESSIONS, "query_id string, item_id string, position int, click int, propensity double",
    ),
]  # fmt: skip


def test_names_of_columns_change_no_judgment(spark):
    for make, rows, schema in OF_JUDGMENTS:
        plain, awkward = same_rows(spark, make, rows, schema, OF_LOGS)
        assert plain
        assert plain == awkward


# --------------------------------------------------------------------------------------------- other tables and jobs

VECTOR, CATEGORIES = "v.ec`tor", "c'at.`s;"
HUGE, TINY = [1e149, 0.0], [1e-139, 1e-139]  # of cosine 1 / sqrt(2)


def test_metrics_of_items(spark, tmp_path):
    """Two items of each query. The items at even places of IDS are huge and of category `x.y`, the others tiny."""
    ids = list(dict.fromkeys(IDS))
    rng = random.Random(3)
    lists = {query: rng.sample(range(len(ids)), 2) for query in ids}
    cells = [
        {QUERY: query, ITEM: ids[at], SCORE: float(-place), RELEVANCE: 1.0}
        for query, group in lists.items()
        for place, at in enumerate(group)
    ]
    items = [
        {ITEM: one, VECTOR: TINY if at % 2 else HUGE, CATEGORIES: ["x.y"] if at % 2 == 0 else ["a`b", ""]}
        for at, one in enumerate(ids)
    ]
    # The first item was met by three users, the second one by one.
    met = [{QUERY: user, ITEM: ids[0]} for user in ("u", "", "'")] + [{QUERY: "u", ITEM: ids[1]}]
    run_mean_ndcg(
        *("--input", write_table(tmp_path / "rows.parquet", cells), *COLUMNS),
        *("--items", write_table(tmp_path / "items.parquet", items), "--vector-col", VECTOR),
        *("--categories-col", CATEGORIES, "--interactions", write_table(tmp_path / "met.parquet", met)),
        *("--metrics", "ild@2,ild(by=categories)@2,novelty@2,coverage@2", *NIGHT, "--ties", "item_asc"),
        *("--per-query-output", tmp_path / "queries", "--output", tmp_path / "metrics"),
    )
    actual = {row[QUERY]: row for row in read_stored_rows(tmp_path / "queries")}
    assert actual.keys() == lists.keys()
    for query, (one, other) in lists.items():
        differ = one % 2 != other % 2
        assert actual[query]["ild"] == pytest.approx(1 - 1 / math.sqrt(2) if differ else 0, abs=1e-12)
        assert actual[query]["ild_by_categories"] == pytest.approx(1 if differ else 0, abs=1e-12)
        # -log2 of the share of the four meetings; an item that nobody has met counts as met once
        information = [math.log2(4 / 3) if at == 0 else 2 for at in (one, other)]
        assert actual[query]["novelty"] == pytest.approx(sum(information) / 2, abs=1e-12)
    (coverage,) = [row["value"] for row in read_stored_rows(tmp_path / "metrics") if row["metric"] == "coverage"]
    assert coverage == len({at for group in lists.values() for at in group}) / len(ids)


def test_retrieval(spark, tmp_path):
    """The cosine of (cos a, sin a) with (1, 0), whatever the length of the vectors."""
    ids = list(dict.fromkeys(IDS))
    angles = {one: 0.02 * (at + 1) for at, one in enumerate(random.Random(5).sample(ids, len(ids)))}
    lengths = (1e149, 1e-138, 1.0, 1e-5)
    labels = "la'be.l`s"
    corpus = [
        {ITEM: one, VECTOR: [lengths[at % 4] * math.cos(angle), lengths[at % 4] * math.sin(angle)],
         labels: "a`b" if at % 3 else ""}
        for at, (one, angle) in enumerate(angles.items())
    ]  # fmt: skip
    queries = [{QUERY: one, VECTOR: [lengths[at % 4], 0.0], labels: "a`b"} for at, one in enumerate(ids[::5])]
    ended = run_command(
        *("retrieve", "--queries", write_table(tmp_path / "q.parquet", queries)),
        *("--corpus", write_table(tmp_path / "c.parquet", corpus), "--query-col", QUERY, "--item-col", ITEM),
        *("--vector-col", VECTOR, "--labels-col", labels, "--parts", 2, "--k", "3", "--run", RUNS[2], *NIGHT),
        *("--rankings-output", tmp_path / "rankings", "--per-query-output", tmp_path / "queries"),
    )
    assert (ended.code, ended.complaints) == (0, []), ended.err
    rows = sorted(read_stored_rows(tmp_path / "rankings"), key=lambda row: (row[QUERY], row["rank"]))
    nearest = list(enumerate(angles.items()))[:3]  # the smallest angles
    assert [(row["run"], row[QUERY], row[ITEM], row["rank"]) for row in rows] == [
        (RUNS[2], query, item, at + 1) for query in sorted(ids[::5]) for at, (item, _) in nearest
    ]
    assert [row["score"] for row in rows] == pytest.approx(
        [math.cos(angle) for _ in ids[::5] for _, (_, angle) in nearest], abs=1e-12
    )
    # Relevances 0, 1, 1 of many: (1 / log2(3) + 1 / 2) / (1 + 1 / log2(3) + 1 / 2)
    gained = 1 / math.log2(3) + 1 / 2
    actual = {row[QUERY]: row["ndcg"] for row in read_stored_rows(tmp_path / "queries")}
    assert actual == {query: pytest.approx(gained / (1 + gained), abs=1e-12) for query in ids[::5]}


class Page(HTMLParser):
    """Names of all elements, numbers behind what is shown, and all text between elements."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.text: list[str] = []
        self.values: list[float] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.values += [float(value) for name, value in attributes if name == "data-value" and value]

    def handle_data(self, text: str) -> None:
        self.text.append(text)


def test_a_report(spark, tmp_path):
    """Runs, data set and segments are text in the page, not markup."""
    rows = [ranked_list for ranked_list in LISTS if ranked_list.run in RUNS[1:]]
    marked = "<img src=x onerror=alert(1)>"
    cells = [
        {QUERY: entry.row.query, ITEM: entry.row.item, SCORE: entry.row.score,
         RELEVANCE: min(entry.row.relevance, 2.0), RUN: marked if entry.run == RUNS[1] else entry.run}
        for entry in rows
    ]  # fmt: skip
    plain = [{**cell, RUN: "plain" if cell[RUN] == marked else "other"} for cell in cells]
    pages = []
    for name, rankings, dataset in (("awkward", cells, "</title><script>x</script>"), ("plain", plain, "shop")):
        folder = tmp_path / name
        folder.mkdir()
        asked = (*COLUMNS, "--run-col", RUN, "--segment-cols", QUERY, "--k", "2", "--ties", "item_asc")
        outputs = ("--output", folder / "metrics", "--per-query-output", folder / "queries")
        night = ("--run-date", "2026-01-31", "--dataset", dataset)
        run_mean_ndcg("--input", write_table(folder / "rows.parquet", rankings), *asked, *outputs, *night, *LOCAL)
        ended = run_command("report", "--metrics", folder / "metrics", "--per-query", folder / "queries", "--output",
                            folder / "page.html", "--run-date", "2026-01-31")  # fmt: skip
        assert (ended.code, ended.complaints) == (0, [])
        assert len(ended.out.splitlines()) == 1  # the headline
        pages.append(Page((folder / "page.html").read_text(encoding="utf-8")))
    awkward, ordinary = pages
    assert [page.elements.count(tag) for page in pages for tag in ("script", "img")] == [
        *[ordinary.elements.count("script"), 0] * 2
    ]
    text = "\n".join(awkward.text)
    for name in (marked, RUNS[2], "</title><script>x</script>"):
        assert name in text
    of_run = [entry.row for entry in rows if entry.run == RUNS[2]]
    clipped = [replace(row, relevance=min(row.relevance, 2.0)) for row in of_run]
    results = defined(clipped, Choices(ties="item_asc"), (2,))
    mean = sum(result.ndcg for result in results.values()) / len(results)
    assert [value for value in awkward.values if value == pytest.approx(mean, abs=1e-12)]


@parametrize_engine("kind", local=["folder"], spark=["table"])
def test_runs_and_data_sets_of_any_name(request, engine, tmp_path, kind):
    """Their slices have safe names; the names themselves are stored as they are."""
    runs = sorted({*IDS[::2], "", "../..", "a'b", "x" * LONG})
    cells = [
        {"ranker": run, "query_id": "q", "item_id": f"i{n}", "score": -n, "relevance": rel}
        for run in runs
        for n, rel in enumerate((0, 1))
    ]
    pq.write_table(pa.Table.from_pylist(cells), tmp_path / "rows.parquet")
    dataset = "../../etc/passwd'`\"; DROP TABLE awkward_metrics; --\n😀" + "x" * LONG
    output = tmp_path / "out" / "metrics" if kind == "folder" else "awkward_metrics"
    run_mean_ndcg(
        *("--input", tmp_path / "rows.parquet", "--run-col", "ranker", "--k", "1,2", "--dataset", dataset),
        *("--run-date", "2026-01-31", "--output", output, "--json", tmp_path / "out.json"),
        *("--engine", engine["engine"]),
    )
    if kind == "folder":
        stored = read_stored_rows(output)
        assert {path.name for path in tmp_path.iterdir()} == {"rows.parquet", "out", "out.json"}
        assert {path.name for path in (tmp_path / "out").iterdir()} == {"metrics"}
        assert [element for element in read_files(output) if re.search(r"[^\w/.=-]", element)] == []
    else:
        spark = request.getfixturevalue("spark")
        stored = collect_rows(spark.table("awkward_metrics"))
        spark.sql("DROP TABLE awkward_metrics")
    values = sorted((row["run"], row["k"], row["value"]) for row in stored if row["metric"] == "ndcg")
    by_hand = {1: 0.0, 2: pytest.approx(0.6309297535714575)}  # the relevant item is second: 1 / log2(3)
    assert values == [(run, k, by_hand[k]) for run in runs for k in (1, 2)]
    assert {row["dataset"] for row in stored} == {dataset}
    assert {row["run"] for row in json.loads((tmp_path / "out.json").read_text())["metrics"]} == set(runs)


def test_queries_in_a_catalog_table(spark, tmp_path):
    """A new table, and one that is there, have the column under its name."""
    queries = list(dict.fromkeys(IDS))
    rows = write_table(tmp_path / "rows.parquet", [{QUERY: query, RELEVANCE: [0.0, 1.0]} for query in queries])
    for night in ("2026-01-30", "2026-01-31"):
        run_mean_ndcg(
            *("--input", rows, "--query-col", QUERY, "--relevance-col", RELEVANCE, "--run-date", night),
            *("--per-query-output", "awkward_queries", "--per-query-format", "table", "--k", "2"),
        )
    actual = spark.table("awkward_queries").collect()
    spark.sql("DROP TABLE awkward_queries")
    assert sorted((str(row["run_date"]), row[QUERY], row["ndcg"]) for row in actual) == [
        (night, query, pytest.approx(1 / math.log2(3)))
        for night in ("2026-01-30", "2026-01-31")
        for query in sorted(queries)
    ]
