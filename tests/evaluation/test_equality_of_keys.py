"""Keys are equal where Spark says so, for every type: by engine, by windows, in joins, lists and comparisons.

What is equal is counted by Spark itself, by groupBy and joins. A type whose equality workers do not have is refused,
by all ways with one text.
"""

from __future__ import annotations

import random
import re
from datetime import datetime, timezone

import pandas as pd
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from support.refusals import refusal
from support.spark_rankings import session_settings

from ndcg_spark import Convention, compare, evaluate, retrieve
from ndcg_spark.clicks import inverse_propensity_estimates, judgments_from_impressions
from ndcg_spark.errors import InputRefusedError
from ndcg_spark.judgments import from_events, from_ratings

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
WHOLE = ["0", "1", "-1", "127", "-128", "7"]
TYPES: dict[str, list[str]] = {
    "string": ["'a'", "'A'", "'a '", "''", "'é'", "'e\u0301'", "'ß'", "'ss'"],
    "binary": ["X'61'", "X'41'", "X''", "X'00'", "X'FF'", "X'6100'"],
    "boolean": ["true", "false"],
    "tinyint": WHOLE,
    "smallint": WHOLE,
    "int": WHOLE,
    "bigint": [*WHOLE, "9007199254740992", "9007199254740993"],
    "decimal(3,1)": ["1.0", "1.00", "0.1", "-0.0", "0", "10"],
    "decimal(38,18)": ["1.5", "1.50", "0.000000000000000001", "-1.5", "0", "12345678901234567890.5"],
    "float": ["0.0", "'-0.0'", "1.5", "0.1", "'1e-45'", "'-1e-45'"],
    "double": ["0.0", "'-0.0'", "1.5", "0.1", "0.3", "'0.30000000000000004'"],
    "date": ["'2026-10-25'", "'2026-10-26'", "'0001-01-01'", "'1582-10-04'", "'1582-10-15'", "'9999-12-31'"],
    "timestamp": [
        "'2026-06-01 12:00:00+00:00'", "'2026-06-01 14:00:00+02:00'", "'2026-06-01 12:00:00.000001+00:00'",
        "'2026-06-01 12:00:00.0000019+00:00'", "'1969-12-31 23:59:59.999999+00:00'", "'0001-01-01 00:00:00+00:00'",
    ],
    "timestamp_ntz": ["'2026-03-29 02:30:00'", "'2026-03-29 03:30:00'", "'2026-03-29 02:30:00.000001'"],
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
CAST = "CAST({} AS {})"


def column(spark, kind: str, n: int, seed: int) -> DataFrame:
    """Give a table of the numbers 0 to n - 1, and a value of a type beside each."""
    draw = random.Random(f"{kind} {seed}")
    values = [(at, draw.choice(TYPES[kind])) for at in range(n)]
    rows = ", ".join(f"({at}, {CAST.format(value, kind)})" for at, value in values)
    return spark.sql(f"SELECT * FROM VALUES {rows} AS t(n, key)")


def groups(frame: DataFrame, *names: str) -> int:
    return frame.groupBy(*names).count().count()


def mean(frame: DataFrame, metric: str) -> DataFrame:
    return frame.where(F.col("metric") == metric)


@pytest.mark.parametrize("kind", TYPES)
def test_queries_runs_and_segments_are_those_of_spark(spark, kind):
    """A run of each value with every query and every segment of it: counts of one table say all."""
    rows = column(spark, kind, 16, 1).select(F.col("key").alias("query_id"), "n")  # with both zeros of floats
    rows = rows.selectExpr("query_id", "n AS item_id", "CAST(n AS double) AS score", "n % 2 AS relevance")
    segments = rows.withColumn("part", F.col("query_id")).withColumn("ranker", F.col("query_id"))
    n = groups(rows, "query_id")
    for strategy in ("engine", "window"):
        means = evaluate(segments, k=2, segments=["part"], run="ranker", strategy=strategy).summary
        found = mean(means, "ndcg").select("run", "segment_by", "segment", "n_queries").collect()
        assert sorted(row["n_queries"] for row in found) == [1] * (2 * n)
        assert len({row["run"] for row in found}) == n
        assert mean(evaluate(rows, k=2, strategy=strategy).summary, "ndcg").first()["n_queries"] == n


@pytest.mark.parametrize("kind", TYPES)
def test_items_are_joined_and_found_twice_as_by_spark(spark, kind):
    """Hits of a run among judgments are the rows that Spark joins, by items of a query and by queries of an item."""
    run, truth = [column(spark, kind, 6, seed).select("key") for seed in (2, 3)]
    joined = run.distinct().join(truth.distinct(), "key").count()
    of_items = ("engine", "window", "item_id", "query_id"), ("engine", "query_id", "item_id")
    for *strategies, role, other in of_items:
        ranked = run.distinct().select(F.col("key").alias(role), F.lit("x").alias(other), F.lit(1.0).alias("score"))
        judged = truth.distinct().select(
            F.col("key").alias(role), F.lit("x").alias(other), F.lit(1).alias("relevance")
        )
        for strategy in strategies:
            convention = Convention(unjudged_query="zero")
            found = evaluate(ranked, judged, metrics="p@1000", strategy=strategy, convention=convention)
            assert round(1000 * found.per_query.agg(F.sum("p")).first()[0]) == joined
    repeated = run.selectExpr("'q' AS query_id", "key AS item_id", "1D AS score", "1 AS relevance")
    is_twice = groups(repeated, "item_id") < repeated.count()
    for options in ({}, {"check_duplicates": "all"}):
        message = refusal(evaluate(repeated, k=10, **options).summary)
        assert bool(re.match(r"an item comes twice|item .* comes \d times", message or "")) == is_twice


@pytest.mark.parametrize("kind", TYPES)
def test_items_of_lists_are_compared_as_by_spark(spark, kind):
    run, truth = [column(spark, kind, 6, seed).select("key").distinct() for seed in (4, 5)]
    joined = run.join(truth, "key").count()
    ranked, relevant = [frame.agg(F.collect_list("key").alias(name)) for frame, name in ((run, "a"), (truth, "b"))]
    lists = ranked.crossJoin(relevant).withColumn("query_id", F.lit("q"))
    graded = lists.withColumn("b", F.transform("b", lambda item: F.struct(item.alias("id"), F.lit(1).alias("grade"))))
    for table in (lists, graded):
        found = evaluate(table, ranked="a", relevant="b", metrics="p@1000").per_query.first()
        assert round(1000 * found["p"]) == joined


@pytest.mark.parametrize("kind", TYPES)
def test_comparisons_pair_the_queries_that_spark_joins(spark, kind):
    one, other = [column(spark, kind, 6, seed).select("key").distinct() for seed in (6, 7)]
    paired, n = one.join(other, "key").count(), one.union(other).distinct().count()
    tables = {
        name: frame.selectExpr("key AS query_id", "key AS user", "key AS part", "10 AS k", "0.5D AS ndcg")
        for name, frame in (("one", one), ("other", other))
    }
    for options in ({}, {"cluster": "user"}):
        found = compare(tables, baseline="one", metrics="ndcg", replicates=0, flips=0, segments="part", **options)
        rows = found.summary.collect()
        (whole,) = [row for row in rows if row["segment_by"] == ""]
        assert whole["n_queries"] - whole["n_only_run"] - whole["n_only_baseline"] == paired
        assert whole["n_queries"] == n == len(rows) - 1


@pytest.mark.parametrize("kind", OTHERS)
def test_other_types_are_refused_by_all_ways_with_one_text(spark, kind):
    if kind == "variant" and int(spark.version.partition(".")[0]) < 4:
        pytest.skip("Spark 3.5 has no variants")
    row = "SELECT 'q' AS query_id, 'i' AS item_id, 1D AS score, 1 AS relevance, 10 AS k, 0.5D AS ndcg, 's' AS part"
    for role, name in (("query", "query_id"), ("item", "item_id"), ("run", "part"), ("segments", "part")):
        table = spark.sql(row).withColumn(name, F.expr(OTHERS[kind]))
        shown = table.schema[name].dataType.simpleString()
        text = f"column {name!r} ({role}=) is {shown}; cast it to text first."
        options = {"run": "part"} if role == "run" else {"segments": "part"} if role == "segments" else {}
        for strategy in ("engine", "window"):
            convention = Convention(ties="item_asc")
            assert refused(evaluate, table, k=1, convention=convention, strategy=strategy, **options) == text
        if role in ("query", "segments"):
            tables = {"one": table, "other": table}
            assert refused(compare, tables, baseline="one", metrics="ndcg", **options) == text


def refused(function, *args, **options) -> str:
    """What a call refuses, before any action."""
    with pytest.raises(InputRefusedError) as error:
        function(*args, **options)
    return str(error.value)


@pytest.mark.parametrize("name", COLLATIONS)
def test_text_with_a_collation_is_refused_wherever_it_is_compared(spark, name):
    """And what the message advises is taken."""
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
    for what, call in calls.items():
        changed = what.partition(",")[0]
        message = refused(call, plain.withColumn(changed, F.expr(table[changed].format(name))))
        assert f" collate {name}" in message, (what, message)
        assert "make it plain text: CAST(" in message, (what, message)
        advice = message.partition("make it plain text: ")[2].partition(" (of one")[0].rstrip(".")
        if changed in ("query_id", "item_id", "user", "ranked", "relevant"):
            made = plain.withColumn(changed, F.expr(table[changed].format(name))).withColumn(changed, F.expr(advice))
            assert made.schema[changed].dataType.simpleString() == plain.schema[changed].dataType.simpleString()
            call(made)


def test_timestamps_below_a_microsecond_are_refused_where_they_are_compared():
    """As text they are two queries; with whole microseconds, and in a column that nothing reads, they are taken."""
    at = datetime(2026, 1, 1, tzinfo=timezone.utc)
    times = pd.to_datetime([at, at]) + pd.to_timedelta([0, 1], unit="ns")
    frame = pd.DataFrame({"query_id": times, "item_id": ["a", "b"], "score": [2.0, 1.0], "relevance": [0, 1]})
    for options in ({}, {"strategy": "window"}, {"query": "item_id", "segments": "query_id"}):
        message = refused(evaluate, frame, k=2, **options)
        assert message.startswith("column 'query_id' (")
        assert "timestamps in nanoseconds, which Spark cuts to microseconds, and makes some equal" in message
    text = frame.assign(query_id=frame["query_id"].astype(str))
    whole = frame.assign(query_id=frame["query_id"].dt.floor("us"))
    beside = frame.rename(columns={"query_id": "logged_at"}).assign(query_id="q")
    for table, n_queries in ((text, 2), (whole, 1), (beside, 1)):
        here = evaluate(table, k=2).summary.to_pylist()
        assert [row["n_queries"] for row in here if row["metric"] == "ndcg"] == [n_queries]
        on_spark = evaluate(table, k=2, engine="spark").summary
        assert mean(on_spark, "ndcg").first()["n_queries"] == n_queries


@pytest.fixture(autouse=True)
def _one_zone(spark):
    with session_settings(spark, spark__sql__shuffle__partitions=2, spark__sql__session__timeZone="Europe/Berlin"):
        yield
