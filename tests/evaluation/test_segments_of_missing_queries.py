"""A query that a run misses belongs to the segment that judgments name, else the other runs, else to none."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pytest
from pyspark.sql import functions as F
from support.arrow_rows import build_ranking_task, deal_rows, exchange_rows

from ndcg_spark import compare, evaluate
from ndcg_spark.core.failures import readable_errors
from ndcg_spark.errors import InputRefusedError
from ndcg_spark.evaluation.settings import Columns, EvaluationSettings

RUNS = ("a", "b", "c")
QUERIES = [f"q{n}" for n in range(14)]
COUNTRIES = ("DE", "FR", "US", None)


class World:
    """Runs that miss queries, and judgments of most queries, some of which name a country."""

    def __init__(self, seed: int, *, judgments_name: bool) -> None:
        draw = random.Random(seed)
        country = {query: draw.choice(COUNTRIES) for query in QUERIES}
        self.judged = {query: draw.choice((0.0, 1.0, 2.0)) for query in QUERIES if draw.random() < 0.8}
        self.of_judgments = {
            query: country[query] if judgments_name and draw.random() < 0.5 else None for query in self.judged
        }
        self.answers = {
            (run, query): country[query] if draw.random() < 0.8 else None
            for run in RUNS
            for query in QUERIES
            if draw.random() < 0.5
        }

    def segment(self, query: str) -> str | None:
        """The segment by the rule."""
        named = [self.of_judgments.get(query), *(self.answers.get((run, query)) for run in RUNS)]
        return next((country for country in named if country is not None), None)

    def expected(self, runs=RUNS) -> dict[tuple[str, str], str | None]:
        """Segment of each query of each run: of those that are judged, and of those that the run answers."""
        there = [(run, query) for run in runs for query in QUERIES if query in self.judged]
        return {key: self.segment(key[1]) for key in {*there, *(key for key in self.answers if key[0] in runs)}}

    def run_rows(self) -> list[tuple]:
        return [
            (run, query, f"i{n}", float(9 - n), country)
            for (run, query), country in sorted(self.answers.items())
            for n in range(3)
        ]

    def judgment_rows(self) -> list[tuple]:
        return [(query, "i1", grade, self.of_judgments[query]) for query, grade in sorted(self.judged.items())]


SETTINGS = EvaluationSettings(columns=Columns(run="run"), cutoffs=(2,), segment_sets=(("country",),))


def batch(rows: list[tuple], **kinds: pa.DataType) -> pa.RecordBatch:
    columns = zip(*rows, strict=True) if rows else [[]] * len(kinds)
    return pa.RecordBatch.from_pydict(
        {name: pa.array(list(group), kind) for (name, kind), group in zip(kinds.items(), columns, strict=True)}
    )


TEXT, NUMBER = pa.string(), pa.float64()
OF_RUN = {"run": TEXT, "query_0": TEXT, "item": TEXT, "score": NUMBER, "segment_0": TEXT}
OF_JUDGMENTS = {"query_0": TEXT, "item": TEXT, "relevance": NUMBER, "segment_0": TEXT}


def segments_of(rankings) -> dict[tuple[str, str], str | None]:
    return {(row["run"], row["query_id"]): row["country"] for actual in rankings for row in actual.to_pylist()}


@pytest.mark.parametrize("judgments_name", [False, True])
@pytest.mark.parametrize("seed", range(25))
def test_workers_follow_the_rule_however_rows_are_split(seed, judgments_name):
    world = World(seed, judgments_name=judgments_name)
    rows = batch(world.run_rows(), **OF_RUN)
    judgments = batch(world.judgment_rows(), **OF_JUDGMENTS)
    judgments = judgments if judgments_name else judgments.drop_columns(["segment_0"])
    expected = world.expected()
    assert len({*expected.values()}) > 2
    for n_partitions in (1, 5):
        task = build_ranking_task(rows, SETTINGS, judgments, n_partitions=n_partitions)
        actual = exchange_rows(task, deal_rows(rows, seed), deal_rows(judgments, seed), seed)
        assert segments_of(actual) == expected


@pytest.mark.parametrize("n_partitions", [1, 7])
def test_two_segments_of_a_query_are_refused(n_partitions):
    rows = batch([("a", "q1", "x", 1.0, "DE"), ("a", "q2", "x", 1.0, "DE"), ("b", "q2", "x", 1.0, "US")], **OF_RUN)
    judgments = batch([("q1", "x", 1.0), ("q2", "x", 1.0)], query_0=TEXT, item=TEXT, relevance=NUMBER)
    task = build_ranking_task(rows, SETTINGS, judgments, n_partitions=n_partitions)
    with pytest.raises(InputRefusedError, match=r"'country'.*query query_id=q2: 'DE' and 'US'; .*same in all runs"):
        exchange_rows(task, deal_rows(rows, 1), deal_rows(judgments, 1))


def tables(spark, world: World, form: str, *, judgments_name: bool):
    """Run and judgments, and the options that name their columns."""
    judgments = spark.createDataFrame(
        world.judgment_rows(), "query_id string, item_id string, relevance double, country string"
    )
    judgments = judgments if judgments_name else judgments.drop("country")
    long = spark.createDataFrame(
        world.run_rows(), "run_ string, query_id string, item_id string, score double, country string"
    )
    if form == "run column":
        return long, judgments, {"run": "run_"}
    if form == "lists":
        in_order = "transform(sort_array(collect_list(struct(-score as falling, item_id))), x -> x.item_id)"
        lists = long.groupBy("run_", "query_id", "country").agg(F.expr(in_order).alias("items"))
        return lists, judgments, {"run": "run_", "ranked": "items"}
    raise ValueError(form)


@pytest.mark.parametrize("strategy", ["engine", "window"])
@pytest.mark.parametrize(("form", "judgments_name", "seed"), [("run column", False, 3), ("lists", True, 4)])
def test_means_and_comparisons_put_a_query_into_one_segment(spark, form, judgments_name, seed, strategy):
    world = World(seed, judgments_name=judgments_name)
    run, judgments, columns = tables(spark, world, form, judgments_name=judgments_name)
    result = evaluate(run, judgments, k=2, segments=["country"], strategy=strategy, **columns)
    rows = result.per_query.select("run", "query_id", "country").collect()
    assert {(row["run"], row["query_id"]): row["country"] for row in rows} == world.expected()
    if strategy == "window":
        return
    counts = Counter(world.segment(query) for query in world.judged)
    means = result.summary.where("metric = 'ndcg' and segment_by = 'country'").collect()
    assert {(row["run"], row["segment"]): row["n_queries"] for row in means if row["n_queries"]} == {
        (run, segment): n for run in RUNS for segment, n in counts.items()
    }
    compared = compare(result, baseline="a", runs=["b"], replicates=0, flips=0).summary
    actual = compared.where("metric = 'ndcg' and segment_by = 'country'").collect()
    assert {row["segment"]: row["n_queries"] for row in actual if row["n_queries"]} == dict(counts)


def test_several_score_columns_are_runs(spark):
    """A null score is a judged item that was not retrieved: run b misses q2, and its rows name the country."""
    rows = [("q1", "x", 1.0, 2.0, "DE"), ("q2", "x", 1.0, None, "US")]
    run = spark.createDataFrame(rows, "query_id string, item_id string, a double, b double, country string")
    judgments = spark.createDataFrame(
        [("q1", "x", 1), ("q2", "x", 1)], "query_id string, item_id string, relevance int"
    )
    for strategy in ("engine", "window"):
        result = evaluate(
            run, judgments, score=["a", "b"], k=1, segments=["country"], null_score="unretrieved", strategy=strategy
        )
        rows = result.summary.where("metric = 'ndcg' and segment_by = 'country'").collect()
        assert {(row["run"], row["segment"]): row["value"] for row in rows} == {
            ("a", "DE"): 1.0, ("a", "US"): 1.0, ("b", "DE"): 1.0, ("b", "US"): 0.0,
        }  # fmt: skip


@pytest.mark.parametrize("strategy", ["engine", "window"])
def test_two_segments_of_a_query_are_refused_by_each_strategy(spark, strategy):
    rows = [("a", "q1", "x", 1.0, "DE"), ("b", "q1", "x", 1.0, "US")]
    run = spark.createDataFrame(rows, "model string, query_id string, item_id string, score double, country string")
    judgments = spark.createDataFrame([("q1", "x", 1)], "query_id string, item_id string, relevance int")
    result = evaluate(run, judgments, run="model", k=1, segments=["country"], strategy=strategy)
    with (
        pytest.raises(InputRefusedError, match=r"'country'.*query query_id=q1: '?DE'? and '?US'?;"),
        readable_errors(),
    ):
        result.per_query.collect()


@pytest.mark.parametrize("strategy", ["engine", "window"])
def test_an_empty_list_names_the_segment_of_its_query(spark, strategy):
    """Nobody judged q3; in q2 both lists are empty, in q4 one of them."""
    rows = [("q1", "DE", ["x"], ["y"]), ("q2", "FR", [], []), ("q3", "US", [], ["x"]), ("q4", "US", [], ["x"])]
    lists = spark.createDataFrame(rows, "query_id string, country string, a array<string>, b array<string>")
    judged = [(query, "x", 1) for query in ("q1", "q2", "q4", "q5")]
    judgments = spark.createDataFrame(judged, "query_id string, item_id string, relevance int")
    asked = {"k": 1, "segments": ["country"], "strategy": strategy}

    def means(**options):
        evaluation = evaluate(options.pop("table", lists), judgments, **asked, **options)
        rows = evaluation.summary.where("metric = 'ndcg' and segment_by = 'country'").collect()
        return {(row["run"], row["segment"]): (row["value"], row["n_queries"]) for row in rows if row["n_queries"]}

    alone = {"DE": (1.0, 1), "FR": (0.0, 1), "US": (0.0, 1), None: (0.0, 1)}
    assert means(ranked="a") == {("", segment): group for segment, group in alone.items()}
    second = {"DE": (0.0, 1), "FR": (0.0, 1), "US": (1.0, 1), None: (0.0, 1)}
    assert means(ranked=["a", "b"]) == {
        (run, segment): group for run, actual in (("a", alone), ("b", second)) for segment, group in actual.items()
    }
    long = lists.selectExpr("'a' as model", "query_id", "if(query_id = 'q3', null, country) as country", "b as list")
    long = long.union(lists.selectExpr("'b' as model", "query_id", "country", "a as list"))
    rows = evaluate(long, judgments, ranked="list", run="model", **asked).per_query
    (unjudged,) = rows.where("query_id = 'q3'").collect()  # the empty list of b tells its country, and is no query
    assert (unjudged["run"], unjudged["country"], unjudged["status"]) == ("a", "US", "unjudged")
    named = lists.selectExpr("'only' as model", "query_id", "country", "a")
    assert means(table=named, ranked="a", run="model") == {
        ("only", segment): group for segment, group in alone.items()
    }
