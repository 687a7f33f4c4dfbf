"""Keys are equal where Spark says so, for every type: by all ways to rank, in joins, lists and comparisons.

Equal are values that Python says are equal, and Spark by groupBy and joins. A type whose equality workers do not have
is refused, by all ways with one text.
"""

from __future__ import annotations

import os
import random
import re
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from itertools import product
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import functions as F
from support.engines import collect_rows, parametrize_engine, parse_type, run_refused, table, with_columns
from support.spark_rankings import session_settings

from ndcg_spark import Convention, compare, evaluate, retrieve
from ndcg_spark.clicks import inverse_propensity_estimates, judgments_from_impressions
from ndcg_spark.core.adapters import convert_tables
from ndcg_spark.errors import InputRefusedError
from ndcg_spark.judgments import from_events, from_ratings

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
WHOLE = [0, 1, -1, 127, -128, 7]
NOON, MICRO = datetime(2026, 6, 1, 12, tzinfo=timezone.utc), timedelta(microseconds=1)
NO_HOUR = datetime(2026, 3, 29, 2, 30)
"""Which clocks in Berlin skip."""
TYPES: dict[str, list[Any]] = {
    "string": ["a", "A", "a ", "", "é", "e\u0301", "ß", "ss"],
    "binary": [b"a", b"A", b"", b"\x00", b"\xff", b"a\x00"],
    "boolean": [True, False],
    "tinyint": WHOLE,
    "smallint": WHOLE,
    "int": WHOLE,
    "bigint": [*WHOLE, 2**53, 2**53 + 1],
    "decimal(3,1)": [Decimal(element) for element in ("1.0", "1.00", "0.1", "-0.0", "0", "10")],
    "decimal(38,18)": [Decimal(text) for text in ("1.5", "1.50", "1e-18", "-1.5", "0", "12345678901234567890.5")],
    "float": [0.0, -0.0, 1.5, 0.125, 1e-45, -1e-45],
    "double": [0.0, -0.0, 1.5, 0.1, 0.3, 0.1 + 0.2],
    "date": [date(2026, 10, 25), date(2026, 10, 26), date(1, 1, 1), date(1582, 10, 4), date(1582, 10, 15), date.max],
    "timestamp": [NOON, NOON.astimezone(timezone(timedelta(hours=2))), NOON + MICRO,
                  datetime(1970, 1, 1, tzinfo=timezone.utc) - MICRO, datetime(1, 1, 2, tzinfo=timezone.utc)],
    "timestamp_ntz": [NO_HOUR, NO_HOUR + timedelta(hours=1), NO_HOUR + MICRO],
}  # fmt: skip
"""Values of each type that workers compare, many of which are written in two ways."""
OTHERS = {
    "interval day to second": "INTERVAL '1' DAY",
    "interval year to month": "INTERVAL '1' YEAR",
    "struct<a:int>": "struct(1 AS a)",
    "array<int>": "array(1)",
    "map<int,int>": "map(1, 1)",
    "variant": "parse_json('1')",
}
COLLATIONS = ["UTF8_LCASE", "UTF8_BINARY_RTRIM", "UNICODE", "UNICODE_CI"]
SOME = ("double", "decimal(38,18)", "timestamp")
"""Types that Spark hands over in a way of their own: two zeros, digits, and the zone of the session."""


def column(kind: str, n: int, seed: int) -> pa.Array:
    draw = random.Random(f"{kind} {seed}")
    return pa.array([draw.choice(TYPES[kind]) for _ in range(n)], parse_type(kind))


def distinct(keys: pa.Array) -> list[Any]:
    return [*dict.fromkeys(keys.to_pylist())]


RUNS_OF_SPARK = {"binary", "decimal(3,1)", "decimal(38,18)", "float", "double", "timestamp", "timestamp_ntz"}
"""Types of which Spark alone writes the text of a run."""


@parametrize_engine("kind", local=TYPES, spark=["double", "timestamp", "binary"], window=SOME[:1])
def test_queries_runs_and_segments_are_told_apart(engine, kind):
    """A run of each value with every query and every segment of it."""
    if engine["engine"] == "spark" and kind == "binary" and "SPARK_REMOTE" in os.environ:
        pytest.skip("Spark Connect cannot return text that is not UTF-8")
    keys = column(kind, 16, 1)  # with both zeros of floats
    rows = table([(at, float(at), at % 2) for at in range(16)], "item_id int, score double, relevance int")
    n = len(distinct(keys))
    segments = with_columns(rows, query_id=keys, part=keys, ranker=keys)
    run = {} if engine["engine"] == "local" and kind in RUNS_OF_SPARK else {"run": "ranker"}
    actual = collect_rows(evaluate(segments, k=2, segments=["part"], **run, **engine).summary, "ndcg")
    assert sorted(row["n_queries"] for row in actual) == ([1] * (2 * n) if run else [1] * n + [n])
    assert len({row["run"] for row in actual}) == (n if run else 1)
    (row,) = collect_rows(evaluate(with_columns(rows, query_id=keys), k=2, **engine).summary, "ndcg")
    assert row["n_queries"] == n


@parametrize_engine("kind", local=TYPES, spark=SOME[:2], window=SOME[:1])
def test_items_are_joined_and_found_twice(engine, kind):
    """Hits of a run among judgments: items of a query, and queries of an item."""
    run, truth = (distinct(column(kind, 6, seed)) for seed in (2, 3))
    for role, other in (("item_id", "query_id"), ("query_id", "item_id")):
        ranked = table([(element, "x", 1.0) for element in run], f"{role} {kind}, {other} string, score double")
        judged = table([(element, "x", 1) for element in truth], f"{role} {kind}, {other} string, relevance int")
        evaluation = evaluate(
            ranked, judged, metrics="p@1000", convention=Convention(unjudged_query="zero"), **engine
        )
        assert round(1000 * sum(row["p"] for row in collect_rows(evaluation.per_query))) == len({*run} & {*truth})
    keys = column(kind, 6, 2)
    repeated = with_columns(table([("q", 1.0, 1)] * 6, "query_id string, score double, relevance int"), item_id=keys)
    for options in ({},) if engine["engine"] == "local" else ({}, {"check_duplicates": "all"}):  # by Spark alone
        message = run_refused(evaluate(repeated, k=10, **options, **engine))
        assert bool(re.match(r"an item appears twice|item .* appears \d times", message)) == (len(distinct(keys)) < 6)


@parametrize_engine("kind", local=TYPES, spark=SOME[:1])
def test_items_of_lists_are_compared(engine, kind):
    run, truth = (distinct(column(kind, 6, seed)) for seed in (4, 5))
    schema = f"query_id string, a array<{kind}>, b array<{{}}>"
    lists = table([("q", run, truth)], schema.format(kind))
    graded = table(
        [("q", run, [(element, 1) for element in truth])], schema.format(f"struct<id: {kind}, grade: int>")
    )
    for data in (lists, graded):
        (row,) = collect_rows(evaluate(data, ranked="a", relevant="b", metrics="p@1000", **engine).per_query)
        assert round(1000 * row["p"]) == len({*run} & {*truth})


def test_what_python_says_is_equal_spark_says_is_equal(spark):
    """And keys of all types at once are as many as Spark counts: each row differs from the first in one of them."""
    first = [values[0] for values in TYPES.values()]
    rows = [[*first[:at], value, *first[at + 1 :]] for at, group in enumerate(TYPES.values()) for value in group]
    names = [f"key{at}" for at in range(len(TYPES))]
    keys = table(rows, ", ".join(f"{name} {kind}" for name, kind in zip(names, TYPES, strict=True)))
    data = with_columns(keys, item_id=pa.array(range(len(rows))), score=1.0, relevance=1)
    data = with_columns(data, **{f"s_{name}": keys[name] for name in names})
    actual = collect_rows(
        evaluate(data, k=2, query=names, segments=[f"s_{name}" for name in names], engine="spark").summary
    )
    frame = convert_tables({"data": data})["data"]
    counts = frame.agg(F.count_distinct(F.struct(*names)), *map(F.count_distinct, names)).first()
    pairs = [tuple(row[name] for name in names) for row in keys.to_pylist()]
    assert [*counts] == [len({*pairs}), *(len({*group}) for group in zip(*pairs, strict=True))]
    assert [row["segment_by"] for row in actual if row["metric"] == "ndcg"].count("") == 1
    assert len([row for row in actual if row["metric"] == "ndcg"]) == 1 + sum(counts[1:])
    assert max(row["n_queries"] for row in actual) == counts[0]

    of_queries = with_columns(keys, k=10, ndcg=0.5)
    one, other = (of_queries.slice(at).take(pa.array(range(0, len(keys) - at, 2 - at))) for at in (0, 1))
    frames = convert_tables({"one": one, "other": other})
    paired = frames["one"].select(names).distinct().join(frames["other"].select(names).distinct(), names).count()
    (row,) = compare({name: rows.dropDuplicates(names) for name, rows in frames.items()}, baseline="one", query=names,
                     metrics="ndcg", replicates=0, flips=0).summary.collect()  # fmt: skip
    assert row["n_queries"] - row["n_only_run"] - row["n_only_baseline"] == paired
    assert row["n_queries"] == counts[0]


@pytest.mark.parametrize("kind", SOME[:2])
def test_comparisons_pair_the_queries_that_spark_joins(spark, kind):
    one, other = (distinct(column(kind, 6, seed)) for seed in (6, 7))
    schema = f"query_id {kind}, user {kind}, part {kind}, k int, ndcg double"
    tables = {name: table([(key, key, key, 10, 0.5) for key in group], schema) for name, group in
              (("one", one), ("other", other))}  # fmt: skip
    frames = convert_tables(tables)
    assert frames["one"].join(frames["other"], "query_id").count() == len({*one} & {*other})
    comparison = compare(
        tables, baseline="one", metrics="ndcg", replicates=0, flips=0, segments="part", cluster="user"
    )
    rows = comparison.summary.collect()
    (whole,) = [row for row in rows if row["segment_by"] == ""]
    assert whole["n_queries"] - whole["n_only_run"] - whole["n_only_baseline"] == len({*one} & {*other})
    assert whole["n_queries"] == len({*one} | {*other}) == len(rows) - 1


def test_other_types_are_refused_by_all_ways_with_one_text(spark):
    row = "SELECT 'q' AS query_id, 'i' AS item_id, 1D AS score, 1 AS relevance, 10 AS k, 0.5D AS ndcg, 's' AS part"
    kinds = [kind for kind in OTHERS if kind != "variant" or int(spark.version.partition(".")[0]) >= 4]
    roles = (("query", "query_id"), ("item", "item_id"), ("run", "part"), ("segments", "part"))
    for kind, (role, name) in product(kinds, roles):
        table = spark.sql(row).withColumn(name, F.expr(OTHERS[kind]))
        shown = table.schema[name].dataType.simpleString()
        text = f"column {name!r} ({role}=) is {shown}; cast it to text first."
        options = {"run": "part"} if role == "run" else {"segments": "part"} if role == "segments" else {}
        for strategy in ("engine", "window"):
            convention = Convention(ties="item_asc")
            assert refused_at_once(evaluate, table, k=1, convention=convention, strategy=strategy, **options) == text
        if role in ("query", "segments"):
            tables = {"one": table, "other": table}
            assert refused_at_once(compare, tables, baseline="one", metrics="ndcg", **options) == text


def refused_at_once(function, *args, **options) -> str:
    """What a call refuses, before any action."""
    with pytest.raises(InputRefusedError) as error:
        function(*args, **options)
    return str(error.value)


@pytest.mark.parametrize("name", COLLATIONS)
def test_text_with_a_collation_is_refused_wherever_it_is_compared(spark, name):
    """And what the message advises is taken. What compares texts asks for one collation; the others are as that."""
    if int(spark.version.partition(".")[0]) < 4:
        pytest.skip("Spark 3.5 has no collations")
    plain = spark.sql(
        "SELECT 'q' AS query_id, 'i' AS item_id, 1D AS score, 1 AS relevance, 'u' AS user, 10 AS k, 0.5D AS ndcg, "
        "array('i') AS ranked, map('i', 1) AS relevant, array(struct('i' AS id, 1 AS grade)) AS graded, "
        "array(struct('i' AS item, 1 AS relevance)) AS judged, 'click' AS event, "
        "timestamp '2026-01-01' AS ts, 'e' AS event_id, 1 AS position, 1 AS click, 'p' AS topics, array(1D) AS vector"
    )
    table = {
        "query_id": "query_id COLLATE {}", "item_id": "item_id COLLATE {}", "user": "user COLLATE {}",
        "ranked": "array('i' COLLATE {})", "relevant": "map('i' COLLATE {}, 1)",
        "graded": "array(struct('i' COLLATE {} AS id, 1 AS grade))",
        "judged": "array(struct('i' COLLATE {} AS item, 1 AS relevance))",
        "event_id": "event_id COLLATE {}", "topics": "topics COLLATE {}",
    }  # fmt: skip
    ties = Convention(ties="item_asc")
    lists = {"ranked": "ranked", "relevant": "graded"}
    calls = {
        "query_id": lambda data: evaluate(data, k=1),
        "query_id, window": lambda data: evaluate(data, k=1, strategy="window"),
        "query_id, judgments": lambda data: evaluate(plain.drop("relevance"), data, k=1),
        "query_id, compare": lambda data: compare({"a": data, "b": data}, baseline="a", metrics="ndcg"),
        "query_id, ratings": lambda data: from_ratings(data, annotator="user"),
        "query_id, retrieval": lambda data: retrieve(data, plain),
        "query_id, clicks": lambda data: judgments_from_impressions(data, power=1),
        "item_id": lambda data: evaluate(data, k=1, convention=ties),
        "item_id, judgments": lambda data: evaluate(plain.drop("relevance"), data, k=1),
        "item_id, items": lambda data: evaluate(
            plain, metrics="novelty@1", convention=ties, interactions=data, user="user"
        ),
        "item_id, events": lambda data: from_events(data, as_of=datetime(2026, 2, 1)),
        "user": lambda data: evaluate(data, k=1, segments="user"),
        "user, run": lambda data: evaluate(data, k=1, run="user"),
        "user, cluster": lambda data: compare({"a": data, "b": data}, baseline="a", metrics="ndcg", cluster="user"),
        "user, segment": lambda data: compare({"a": data, "b": data}, baseline="a", metrics="ndcg", segments="user"),
        "user, interactions": lambda data: evaluate(
            plain, metrics="novelty@1", convention=ties, interactions=data, user="user"
        ),
        "user, annotator": lambda data: from_ratings(data, annotator="user"),
        "user, estimates": lambda data: inverse_propensity_estimates(data, power=1, segments="user"),
        "event_id": lambda data: from_events(data, as_of=datetime(2026, 2, 1), dedup="event_id"),
        "topics": lambda data: evaluate(data, metrics="alpha_ndcg@1", convention=ties),
        "ranked": lambda data: evaluate(data, k=1, **lists),
        "ranked, judgments": lambda data: evaluate(data, plain, k=1, ranked="ranked"),
        "relevant": lambda data: evaluate(data, k=1, ranked="ranked", relevant="relevant"),
        "graded": lambda data: evaluate(data, k=1, **lists),
        "judged": lambda data: evaluate(data, k=1, relevance="judged"),
    }
    if name != "UNICODE_CI":
        calls = {what: call for what, call in calls.items() if what in ("query_id", "relevant")}
    for what, call in calls.items():
        changed = what.partition(",")[0]
        message = refused_at_once(call, plain.withColumn(changed, F.expr(table[changed].format(name))))
        assert f" collate {name}" in message, (what, message)
        assert "convert it to plain text: CAST(" in message, (what, message)
        advice = message.partition("convert it to plain text: ")[2].partition(" (or, to keep")[0].rstrip(".")
        if changed in ("query_id", "item_id", "user", "ranked", "relevant"):
            made = plain.withColumn(changed, F.expr(table[changed].format(name))).withColumn(changed, F.expr(advice))
            assert made.schema[changed].dataType.simpleString() == plain.schema[changed].dataType.simpleString()
            call(made)


def test_timestamps_below_a_microsecond_are_refused_where_they_are_compared(engine):
    """As text they are two queries; with whole microseconds, and in a column that nothing reads, they are taken."""
    at = datetime(2026, 1, 1, tzinfo=timezone.utc)
    times = pd.to_datetime([at, at]) + pd.to_timedelta([0, 1], unit="ns")
    frame = pd.DataFrame({"query_id": times, "item_id": ["a", "b"], "score": [2.0, 1.0], "relevance": [0, 1]})
    for options in ({}, {"query": "item_id", "segments": "query_id"}):
        message = refused_at_once(evaluate, frame, k=2, **options, **engine)
        assert message.startswith("column 'query_id' (")
        assert (
            "timestamps in nanoseconds, which Spark truncates to microseconds, so that some become equal" in message
        )
    text = frame.assign(query_id=frame["query_id"].astype(str))
    whole = frame.assign(query_id=frame["query_id"].dt.floor("us"))
    beside = frame.rename(columns={"query_id": "logged_at"}).assign(query_id="q")
    for data, n_queries in ((text, 2), (whole, 1), (beside, 1)):
        (row,) = collect_rows(evaluate(data, k=2, **engine).summary, "ndcg")
        assert row["n_queries"] == n_queries


@pytest.fixture(autouse=True)
def _in_berlin(request):
    if not request.node.get_closest_marker("spark"):
        yield
        return
    session = request.getfixturevalue("spark")
    with session_settings(session, spark__sql__shuffle__partitions=2, spark__sql__session__timeZone="Europe/Berlin"):
        yield
