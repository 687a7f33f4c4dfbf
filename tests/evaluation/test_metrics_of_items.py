"""Metrics of items on Spark: their definitions, the same bits by every strategy and source, refusals."""

from __future__ import annotations

import math
import random
from datetime import date
from functools import partial

import pytest
from pyspark.sql import functions as F
from support import item_lists

import ndcg_spark
from ndcg_spark.errors import InputRefusedError, InvalidParameterError, MissingColumnError
from ndcg_spark.evaluation import evaluation_settings, rank_queries, summarize_rankings
from ndcg_spark.evaluation.tasks.scoring import build_scoring_task
from ndcg_spark.metrics import CatalogueMetric, Metric, parse_metric

METRICS = [
    "ndcg@3", "ild@3", "ils(by=categories)@20", "alpha_ndcg@3", "alpha_ndcg(alpha=0.3,rel=2)@20", "novelty@3",
    "novelty(by=users)@20", "first_appearance@3", "first_new@3", "coverage@3", "gini@20", "entropy@3", "p@3",
]  # fmt: skip
SCHEMA = "query_id string, item_id long, score double, relevance double, topics array<string>, country string"
ITEMS = "item_id int, vector array<double>, categories array<string>, first_seen date"
AS_OF = date(2026, 3, 1)
CONVENTION = "default;ties=item_asc"


class World:
    """Rankings with ties, unjudged and missing items and queries; items of which some lack features."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        self.rows = []
        for query in range(20):
            for item in draw.sample(range(40), draw.randint(1, 9)):
                relevance = None if query == 3 or draw.random() < 0.3 else draw.choice([0.0, 1.0, 2.0])
                score = None if relevance is not None and draw.random() < 0.3 else float(draw.randint(0, 4))
                topics = draw.sample(["1", "2", "3", "4"], draw.randint(0, 2)) if draw.random() < 0.9 else None
                self.rows.append((f"q{query}", item, score, relevance, topics, f"c{query % 3}"))
        self.rows.append(("missing", 0, None, 2.0, ["1"], "c0"))
        self.items = [
            (
                item,
                [draw.gauss(0, 1) for _ in range(3)] if draw.random() < 0.8 else None,
                draw.sample("abcdef", draw.randint(0, 3)) if draw.random() < 0.8 else None,
                date(2026, 1, 1 + draw.randint(0, 30)) if draw.random() < 0.8 else None,
            )
            for item in range(35)
        ]
        self.interactions = [(f"q{draw.randint(0, 25)}", draw.randint(0, 38)) for _ in range(300)]
        self.interactions = [(user, item if item % 5 else 5) for user, item in self.interactions]

    def tables(self, spark):
        return {
            "items": spark.createDataFrame(self.items, ITEMS),
            "interactions": spark.createDataFrame(self.interactions, "user string, item_id long"),
        }

    def lists(self) -> dict[str, list[int]]:
        """Items of each judged query in rank order."""
        actual = {}
        for query in sorted({row[0] for row in self.rows if row[3] is not None}):
            group = [row for row in self.rows if row[0] == query and row[2] is not None]
            actual[query] = [row[1] for row in sorted(group, key=lambda row: (-row[2], row[1]))]
        return actual

    def features(self, query: str):
        met = [item for _, item in self.interactions]
        users = {item: {user for user, one in self.interactions if one == item} for item in met}
        known = {item: (vector, categories, day) for item, vector, categories, day in self.items}
        actual = {}
        for item in range(40):
            vector, categories, day = known.get(item, (None, None, None))
            actual[item] = {
                "vector": vector, "categories": categories, "days": float((AS_OF - day).days) if day else 0.0,
                "interactions": met.count(item), "users": len(users.get(item, ())),
                "seen": (query, item) in self.interactions,
            }  # fmt: skip
        return actual

    def defined(self, name: str) -> dict[str, float]:
        """A metric of each query, by its definition; NaN where it has no value."""
        metric, at = parse_metric(name)
        actual, k = {}, int(at)
        for query, listed in self.lists().items():
            items = self.features(query)
            judged = [(row[1], row[3], row[4] or ()) for row in self.rows if row[0] == query and row[3] is not None]
            totals = {
                "interactions": len(self.interactions), "users": len({user for user, _ in self.interactions}),
            }  # fmt: skip
            if metric.name in ("ils", "ild"):
                value = item_lists.compute_ils(listed, items, metric.by, k)
                actual[query] = 1 - value if metric.name == "ild" else value
            elif metric.name == "pairs_left_out":
                actual[query] = item_lists.compute_left_out(listed, items, metric.by, k)
            elif metric.name == "alpha_ndcg":
                actual[query] = item_lists.compute_alpha_ndcg(listed, judged, metric.alpha, metric.rel, k)
            elif metric.name == "novelty":
                bits = {one: -math.log2(max(1, group[metric.by]) / totals[metric.by]) for one, group in items.items()}
                actual[query] = item_lists.compute_mean(listed, bits.get, k)
            elif metric.name == "first_appearance":
                actual[query] = item_lists.compute_mean(
                    listed, lambda element, items=items: items[element]["days"], k
                )
            else:
                actual[query] = item_lists.compute_first_new(listed, items, k)
        return actual


@pytest.fixture(scope="module")
def world():
    return World(1)


def evaluation_bits(evaluation) -> tuple[dict, dict]:
    """Every value of every query, and every row of the summary, to the last bit."""
    settings = evaluation.settings
    per_query = {
        (str(element.metric), row["query_id"], row["k"]): row[element.metric.column]
        for row in evaluation.per_query.collect()
        for element in settings.computed
        if isinstance(element.metric, Metric) and element.k == row["k"] and row["status"] != "unjudged"
    }
    summary = {
        (row["segment_by"], row["segment"], row["metric"], row["k"]): (
            row["value"], row["n_queries"], row["std_error"], row["state"],
        )
        for row in evaluation.summary.collect()
    }  # fmt: skip
    return per_query, summary


@pytest.mark.classic("Python workers read files themselves")
def test_every_strategy_and_source_gives_the_bits_of_the_definition(spark, tmp_path, world):
    table = spark.createDataFrame(world.rows, SCHEMA)
    table.coalesce(1).write.parquet(str(tmp_path / "table"))
    table.orderBy("query_id").coalesce(1).write.parquet(str(tmp_path / "sorted"))
    run = table.where("score is not null").drop("relevance", "topics")
    judgments = table.where("relevance is not null").drop("score")
    evaluate = partial(
        ndcg_spark.evaluate, metrics=METRICS, convention=CONVENTION, null_score="unretrieved", user="user",
        as_of=AS_OF, segments=["country"], **world.tables(spark),
    )  # fmt: skip
    frames = [table, table.repartition(7, F.rand(3))]
    tables = [evaluate(frame.withColumn("user", F.col("query_id")), query=["query_id", "user"]) for frame in frames]
    renamed = {
        "interactions": world.tables(spark)["interactions"].withColumnRenamed("user", "query_id"),
        "user": None,
    }
    actual = {
        "Spark": tables[0],
        "seven partitions": tables[1],
        "window": evaluate(table, strategy="window", **renamed),
        "files": evaluate(str(tmp_path / "table"), source="parquet", **renamed),
        "sorted files": evaluate(str(tmp_path / "sorted"), source="parquet", **renamed),
        "judgments": evaluate(run, judgments=judgments, **renamed),
        "judgments, window": evaluate(run, judgments=judgments, strategy="window", **renamed),
    }
    values = {name: evaluation_bits(evaluation) for name, evaluation in actual.items()}
    for name, group in values.items():
        assert group == values["Spark"], name
    per_query, summary = values["Spark"]
    asked = actual["Spark"].settings.computed
    assert {str(element) for element in asked} - set(METRICS) == {
        "dcg@3", "idcg@3", "pairs_left_out@3", "pairs_left_out(by=categories)@20", "outside_catalogue@3",
        "outside_catalogue@20",
    }  # fmt: skip
    for one in asked:
        if isinstance(one.metric, CatalogueMetric) or one.metric.name in ("ndcg", "dcg", "idcg", "p"):
            continue
        wanted = world.defined(str(one))
        got = {query: value for (name, query, _), value in per_query.items() if name == str(one.metric)}
        known = {query: value for query, value in wanted.items() if not math.isnan(value)}
        assert {query: value for query, value in got.items() if value is not None} == pytest.approx(known, abs=1e-12)
        assert got.keys() == wanted.keys()
        value, n_queries, error, _ = summary["", "", str(one.metric), one.k]
        assert n_queries == len(known)
        assert value == pytest.approx(sum(known.values()) / len(known), abs=1e-12)
        assert error > 0
    for k in (3, 20):
        exposures = item_lists.compute_exposure(list(world.lists().values()), range(35), k)
        for name, wanted in exposures.items():
            if ("", "", name, k) in summary:
                value, n_queries, error, state = summary["", "", name, k]
                assert value == pytest.approx(wanted, abs=1e-12)
                assert (n_queries, error, state) == (len(world.lists()), None, None)
    of_country = {key[1] for key in summary if key[0] == "country" and key[2] == "coverage"}
    assert of_country == {"c0", "c1", "c2"}


def test_arrays_and_given_ranks_give_the_same(spark, world):
    metrics = [name for name in METRICS if name != "alpha_ndcg(alpha=0.3,rel=2)@20"]
    table = spark.createDataFrame(world.rows, SCHEMA)
    tables = world.tables(spark)
    tables["interactions"] = tables["interactions"].withColumnRenamed("user", "query_id")
    evaluate = partial(ndcg_spark.evaluate, metrics=metrics, convention=CONVENTION, as_of=AS_OF, **tables)
    wanted = evaluation_bits(evaluate(table, null_score="unretrieved"))
    ranked = table.where("score is not null").selectExpr(
        "query_id", "item_id", "row_number() over (partition by query_id order by score desc, item_id) as rank"
    )
    judgments = table.where("relevance is not null").select("query_id", "item_id", "relevance", "topics")
    assert evaluation_bits(evaluate(ranked, rank="rank", judgments=judgments)) == wanted
    simple = [name for name in metrics if not name.startswith("alpha")]
    item = F.struct((-F.col("score")).alias("at"), F.col("item_id").alias("item"), "relevance")
    lists = table.groupBy("query_id").agg(
        F.sort_array(F.collect_list(F.when(F.col("score").isNotNull(), item))).alias("ranked"),
        F.collect_list("relevance").alias("all"),
    )
    evaluation = evaluate(lists, relevance="ranked", ideal="all", metrics=simple)
    assert evaluation_bits(evaluation) == evaluation_bits(evaluate(table, null_score="unretrieved", metrics=simple))


def test_refusals_of_lists_and_tables_that_do_not_fit(spark, world):
    """Arrays without items, means of items without their table, users of another type."""
    items, lists = world.tables(spark)["items"], spark.sql("SELECT '7' AS query_id, array(1.0D) AS relevance")
    with pytest.raises(InvalidParameterError, match="needs items: column 'relevance' must be an array of structs"):
        _ = ndcg_spark.evaluate(lists, metrics=["ild@3"], convention=CONVENTION, items=items).summary
    table = spark.createDataFrame(world.rows, SCHEMA)
    evaluation = ndcg_spark.evaluate(
        table, metrics=["coverage@3"], convention=CONVENTION, null_score="unretrieved", items=items
    )
    with pytest.raises(InvalidParameterError, match=r"metric 'coverage@3' needs the item table"):
        summarize_rankings(evaluation.rankings, evaluation.settings)
    with pytest.raises(InvalidParameterError, match=r"metric 'coverage@3' needs the item table"):
        rank_queries(table, evaluation.settings)
    met = spark.sql("SELECT 7L AS query_id, 1L AS item_id")
    with pytest.raises(InputRefusedError, match="users are string in the rankings and bigint in the"):
        _ = ndcg_spark.evaluate(
            table, metrics=["first_new@3"], convention=CONVENTION, null_score="unretrieved", interactions=met,
        ).summary  # fmt: skip


def test_metrics_of_items_change_nothing_of_the_others(spark, world):
    table = spark.createDataFrame(world.rows, SCHEMA).where("score is not null")
    tables = world.tables(spark)
    plain = ndcg_spark.evaluate(table, metrics=["ndcg@3", "p@3"], convention=CONVENTION)
    beside = ndcg_spark.evaluate(
        table, metrics=["ndcg@3", "p@3", "ild@3", "coverage@3"], convention=CONVENTION, items=tables["items"]
    )
    wanted = {tuple(row) for row in plain.summary.select("metric", "k", "value", "n_queries", "std_error").collect()}
    rows = beside.summary.where("metric in ('ndcg', 'dcg', 'idcg', 'p')")
    assert {tuple(row) for row in rows.select("metric", "k", "value", "n_queries", "std_error").collect()} == wanted
    assert plain.rankings.columns == [
        name for name in beside.rankings.columns if name not in ("items", "features")
    ]  # fmt: skip
    assert beside.settings.digest == plain.settings.digest


def test_weights_and_nights_of_a_metric_that_some_queries_lack(spark):
    rows = [("a", 1, 2.0, 1.0, 3.0), ("a", 2, 1.0, 1.0, 3.0), ("b", 1, 1.0, 1.0, 5.0), ("c", 1, 2.0, 0.0, 1.0)]
    rows += [("c", 3, 1.0, 1.0, 1.0)]
    items = spark.createDataFrame(
        [(1, [1.0, 0.0]), (2, [0.0, 1.0]), (3, [0.6, 0.8])], "item_id int, vector array<double>"
    )
    table = spark.createDataFrame(rows, "query_id string, item_id int, score double, relevance double, weight double")
    evaluate = partial(
        ndcg_spark.evaluate, metrics=["ild@5", "coverage@5"], convention=CONVENTION, items=items, weight="weight"
    )
    whole = evaluate(table).summary
    row = whole.where("metric = 'ild'").collect()[0]
    assert row["value"] == pytest.approx((3 * 1 + 1 * (1 - 0.6)) / 4, abs=1e-15)
    assert (row["n_queries"], row["weight_sum"]) == (2, 4.0)
    nights = [evaluate(table.where(element)).summary for element in ("query_id = 'a'", "query_id > 'a'")]
    merged = {row["metric"]: row for row in ndcg_spark.merge_summaries(nights[0].unionAll(nights[1])).collect()}
    assert merged["ild"].asDict() == row.asDict()
    assert (merged["coverage"]["value"], merged["coverage"]["n_queries"]) == (None, 3)


# ------------------------------------------------------------------- topics of the rows that are ranked, no others

NAN, INFINITE = math.nan, math.inf
JUDGED_SCHEMA = "query_id string, item_id string, score double, relevance double, topics array<string>, at int"
NEW, OLD = ["1"], ["2", "3"]


def alpha_of(spark, rows, *, schema=JUDGED_SCHEMA, apart=False, convention=CONVENTION, **options):
    """Alpha-NDCG of each run and query."""
    table = spark.createDataFrame(rows, schema).coalesce(1)
    judgments = table.drop("score") if apart else None
    run = table.drop("relevance", "topics") if apart else table
    asked = {"metrics": ["alpha_ndcg@3"], "convention": convention, "judgments": judgments, **options}
    actual = ndcg_spark.evaluate(run, **asked).per_query.where("k = 3").collect()
    return {(row["run"], row["query_id"]): row["alpha_ndcg"] for row in actual}


@pytest.mark.parametrize("apart", [False, True])
def test_alpha_ndcg_a_rejected_row_is_not_in_the_ideal_list(spark, apart):
    good = [(query, item, score, 1.0, NEW, 0) for query in "pqr" for item, score in (("a", 3.0), ("b", 2.0))]
    bad = [("q", "c", 1.0, INFINITE, OLD, 0), ("r", "c", 1.0 if apart else NAN, INFINITE if apart else 1.0, OLD, 0)]
    actual = alpha_of(spark, [*good, *bad, ("p", "c", 1.0, 1.0, OLD, 0)], apart=apart, on_invalid="reject")
    of_p = item_lists.compute_alpha_ndcg(["a", "b", "c"], [("a", 1, NEW), ("b", 1, NEW), ("c", 1, OLD)], 0.5, 1, 3)
    assert of_p < 1
    assert actual == pytest.approx({("", "p"): of_p, ("", "q"): 1.0, ("", "r"): 1.0}, abs=1e-12)


@pytest.mark.parametrize(
    ("apart", "rule", "score", "relevance", "at"),
    [
        (False, "best", 1.0, 3.0, 1),  # a lower score
        (False, "first", 9.0, 3.0, 3),  # a higher score, which is not the first
        (True, "best", 2.0, 1.0, 1),  # a judgment of a lower relevance
        (True, "first", 2.0, 3.0, 3),  # a judgment of a higher relevance, which is not the first
    ],
)
def test_alpha_ndcg_a_copy_that_was_left_out_adds_no_topics(spark, apart, rule, score, relevance, at):
    rows = [("q", "a", 3.0, 1.0, NEW, 0), ("q", "b", 2.0, 2.0, NEW, 2), ("q", "b", score, relevance, OLD, at)]
    # Of copies that differ in topics alone those that sort first count, in whatever order the rows come.
    same = [("b", 2.0, 1.0, NEW, 1), ("b", 2.0, 1.0, OLD, 1)]
    rows += [("x", "a", 1.0, 1.0, OLD, 0), *(("x", *row) for row in same)]
    rows += [("y", "a", 1.0, 1.0, OLD, 0), *(("y", *row) for row in same[::-1])]
    order = {"order": "at"} if rule == "first" else {}
    actual = alpha_of(spark, rows, apart=apart, convention=f"{CONVENTION};duplicates={rule}", **order)
    of_x = (1 + 2 / math.log2(3)) / (2 + 1 / math.log2(3))  # b has one topic, and a two others
    assert actual == pytest.approx({("", "q"): 1.0, ("", "x"): of_x, ("", "y"): of_x}, abs=1e-12)


def test_alpha_ndcg_a_copy_of_no_relevance_may_be_the_one_that_was_kept(spark):
    rows = [("q", "a", 3.0, 0.0, OLD, 0), ("q", "a", 1.0, 1.0, OLD, 0), ("q", "b", 2.0, 1.0, NEW, 0)]
    for strategy in ("engine", "window"):
        actual = alpha_of(spark, rows, convention=f"{CONVENTION};duplicates=best", strategy=strategy)
        assert actual == pytest.approx({("", "q"): 1 / math.log2(3)}, abs=1e-12)


def test_alpha_ndcg_each_run_has_the_ideal_list_of_its_own_rows(spark):
    rows = [("x", "a", 3.0), ("x", "b", 2.0), ("x", "c", NAN), ("y", "a", 3.0), ("y", "b", 2.0), ("y", "c", None)]
    topics = {"a": NEW, "b": NEW, "c": ["2"]}
    table = [("q", item, score, 1.0, topics[item], 0, run) for run, item, score in rows]
    table.append(("q", "d", 1.0, None, ["4"], 0, "x"))  # not judged, and so of no topic
    actual = alpha_of(
        spark, table, schema=f"{JUDGED_SCHEMA}, ranker string", run="ranker", on_invalid="reject",
        null_score="unretrieved",
    )  # fmt: skip
    ideal = 1 + 1 / math.log2(3) + 0.5 / 2
    assert actual == pytest.approx({("x", "q"): 1.0, ("y", "q"): (1 + 0.5 / math.log2(3)) / ideal}, abs=1e-12)


def test_alpha_ndcg_each_score_column_has_the_ideal_list_of_its_own_rows(spark):
    rows = [("q", "a", 3.0, 1.0, NEW, 0, 3.0), ("q", "b", 2.0, 1.0, NEW, 0, 2.0), ("q", "c", NAN, 1.0, OLD, 0, 1.0)]
    rows += [("p", "a", 3.0, 1.0, NEW, 0, 3.0), ("p", "b", 2.0, 1.0, NEW, 0, 2.0)]
    columns = {"schema": f"{JUDGED_SCHEMA}, other double", "score": ["score", "other"]}
    actual = alpha_of(spark, rows, **columns, on_invalid="reject")
    # OLD has two topics, so that the greedy list begins with it.
    of_other = (1 + 0.5 / math.log2(3) + 2 / 2) / (2 + 1 / math.log2(3) + 0.5 / 2)
    of_p = {("score", "p"): 1.0, ("other", "p"): 1.0}
    assert actual == pytest.approx({("score", "q"): 1.0, ("other", "q"): of_other, **of_p}, abs=1e-12)
    assert alpha_of(spark, rows[3:], **columns) == of_p


def test_alpha_ndcg_of_arrays_is_refused_before_anything_runs(spark):
    lists = spark.createDataFrame([("q", [("a", 1.0)], ["1"])],
                                  "query_id string, relevance array<struct<item: string, relevance: double>>, "
                                  "topics array<string>")  # fmt: skip
    with pytest.raises(InvalidParameterError, match="'alpha_ndcg@5' needs a row for each judged item"):
        _ = ndcg_spark.evaluate(lists, metrics=["alpha_ndcg@5"], convention=CONVENTION).summary


# ----------------------------------------------------------------------------------------------------- refusals

ROWS = [("q", "a", 2.0, 1.0), ("q", "b", 1.0, 0.0)]
TEXT_SCHEMA = "query_id string, item_id string, score double, relevance double"


def evaluated(spark, metric, items=None, interactions=None, **options):
    table = spark.createDataFrame(ROWS, TEXT_SCHEMA)
    options = {"convention": CONVENTION, **options}
    return ndcg_spark.evaluate(table, metrics=[metric], items=items, interactions=interactions, **options)


def test_what_cannot_be_computed_is_refused_before_anything_runs(spark):
    items = spark.createDataFrame([("a", "1,2", 3)], "item_id string, vector string, first_seen int")
    numbers = spark.createDataFrame([(1, [1.0])], "item_id int, vector array<double>")
    priced = spark.createDataFrame([("a", 1.0)], "item_id string, categories double")
    refused, missing, wrong = InputRefusedError, MissingColumnError, InvalidParameterError
    in_order = "needs an order of tied items"
    cases = [
        ("ild@5", {}, wrong, "metric 'ild@5' needs the item table (items=)"),
        ("coverage@5", {}, wrong, "metric 'coverage@5' needs the item table"),
        ("novelty@5", {}, wrong, "metric 'novelty@5' needs the interactions table"),
        ("ild@5", {"convention": "default"}, wrong, f"metric 'ild@5' {in_order}, but ties=expected has none"),
        ("gini@5", {"convention": "default"}, wrong, f"metric 'gini@5' {in_order}"),
        ("first_appearance@5", {}, wrong, "metric 'first_appearance@5' needs as_of"),
        ("ild@5", {"item": None}, wrong, "metric 'ild@5' needs an item column"),
        ("ild@5", {"query": ["features"]}, wrong, "'features' has a reserved name"),
        ("ild@5", {"items": items}, refused, "column 'vector' (vector=) of the item table is string"),
        ("ild(by=categories)@5", {"items": priced}, refused,
         "column 'categories' (categories=) of the item table is double; it must be an array of text or whole"),
        ("ild@5", {"items": items, "vector": "vec"}, missing, "column 'vec' (vector=) is not in the item"),
        ("ild(by=categories)@5", {"items": items}, missing, "column 'categories' (categories=)"),
        ("ild@5", {"items": numbers}, refused, "column 'item_id' is string in the rankings and int in the"),
        ("coverage@5", {"items": numbers}, refused, "column 'item_id' is string in the rankings and int"),
        ("first_appearance@5", {"items": items, "as_of": AS_OF}, refused, "is int, not a date; cast it"),
        ("alpha_ndcg@5", {}, missing, "column 'topics' (topics=) is not in the input"),
        ("p@5", {"items": items}, wrong, "no metric reads the item table"),
        ("first_new@5", {"interactions": items, "user": "item_id"}, wrong, "needs the user of each"),
    ]  # fmt: skip
    for metric, options, kind, message in cases:
        with pytest.raises(kind) as raised:
            _ = evaluated(spark, metric, **options).summary
        assert message in str(raised.value), metric
        assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("metric", "items", "message"),
    [
        ("ild@5", [("a", [1.0]), ("b", [1.0, 2.0])], "item item_id=b is listed with items that have vectors of two"),
        ("ild@5", [("a", [1.0]), ("b", [2.0]), ("b", [1.0])], "item item_id=b appears twice in the item table"),
        ("coverage@5", [("a", [1.0]), ("z", [2.0]), ("z", [1.0])], "item item_id=z appears twice in the item table"),
    ],
)
def test_bad_items_are_refused_by_name(spark, metric, items, message):
    """Other vectors: test_item_metrics.py."""
    table = spark.createDataFrame(items, "item_id string, vector array<double>")
    with pytest.raises(InputRefusedError) as raised, ndcg_spark.readable_errors():
        evaluated(spark, metric, items=table).summary.collect()
    assert str(raised.value).startswith(message)


def test_no_interactions_at_all_are_refused(spark):
    nothing = spark.createDataFrame([], "query_id string, item_id string")
    with pytest.raises(InputRefusedError, match="has no interactions"), ndcg_spark.readable_errors():
        evaluated(spark, "novelty@5", interactions=nothing).summary.collect()


def test_rankings_of_a_plan_without_items_are_refused():
    settings = evaluation_settings(metrics="coverage@5", convention=CONVENTION)
    with pytest.raises(MissingColumnError, match="rankings lack column items"):
        build_scoring_task(["run", "query_id", "n_items", "n_judged", "ranked", "ideal"], settings)


def test_several_rankers_are_told_apart(spark):
    rows = [("q", 1, 2.0, 1.0, 1.0), ("q", 2, 1.0, 2.0, 0.0), ("p", 1, 1.0, 2.0, 1.0), ("p", 3, 2.0, 1.0, 1.0)]
    table = spark.createDataFrame(rows, "query_id string, item_id int, a double, b double, relevance double")
    items = spark.createDataFrame([(1,), (2,), (3,), (4,)], "item_id int")
    evaluation = ndcg_spark.evaluate(
        table, score=["a", "b"], metrics=["coverage@1"], convention=CONVENTION, items=items
    )
    values = {row["run"]: row["value"] for row in evaluation.summary.where("metric = 'coverage'").collect()}
    assert values == {"a": 0.5, "b": 0.5}
    runs = table.selectExpr("query_id", "item_id", "stack(2, 'a', a, 'b', b) as (run, score)", "relevance")
    evaluation = ndcg_spark.evaluate(runs, run="run", metrics=["coverage@1"], convention=CONVENTION, items=items)
    values = {row["run"]: row["value"] for row in evaluation.summary.where("metric = 'coverage'").collect()}
    assert values == {"a": 0.5, "b": 0.5}


@pytest.mark.parametrize("strategy", ["engine", "window"])
def test_rows_alike_in_all_that_orders_them_are_listed_by_item(spark, strategy):
    """Score, order value and relevance tie, so item a comes first, which 1 of 5 interactions have: log2(5)."""
    rows = [("q", "b", 0.5, 1, 1), ("q", "a", 0.5, 1, 1)]
    schema = "query_id string, item_id string, score double, relevance int, position int"
    seen = [("a", "u0"), *(("b", f"u{user}") for user in range(4))]
    options = {"interactions": spark.createDataFrame(seen, "item_id string, query_id string"), "order": "position",
               "metrics": "novelty@1", "convention": "default;ties=input_order", "strategy": strategy}  # fmt: skip
    for group in (rows, rows[::-1]):
        (row,) = ndcg_spark.evaluate(spark.createDataFrame(group, schema), **options).summary.collect()
        assert row["value"] == pytest.approx(math.log2(5))
