"""Means are the same to the last bit, however the rows arrive and wherever they are added up."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import reduce

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from support.arrow_rows import build_long_table
from support.engines import collect_rows, with_columns
from support.oracle import Choices, Row, group_by_query
from support.oracle import evaluate as by_definition
from support.oracle import mean as mean_by_definition
from support.random_rankings import random_rows
from support.spark_rankings import (
    SHORT_LIVED_PLANS,
    create_scored_table,
    evaluate_small_parts,
    session_settings,
    shuffle_rows,
)

from ndcg_spark import evaluate, merge_summaries
from ndcg_spark.errors import find_refusal
from ndcg_spark.evaluation import rank_queries, score_queries, summarize, summarize_rankings
from ndcg_spark.evaluation.settings import Columns, EvaluationSettings

NUMBERS = ("value", "weight_sum", "std_error", "ci_low", "ci_high")
QUERY_COUNTS = ("n_queries", "n_no_relevant", "n_missing", "n_unjudged")
ROW_COUNTS = ("n_rows", "n_left_out")
KEYS = ("run", "segment_by", "segment", "metric", "k")
PER_QUERY = (
    "query_id", "k", "dcg", "idcg", "ndcg", "status", "n_items", "n_judged", "n_relevant", "country", "weight",
)  # fmt: skip
ROWS = random_rows(60, n_queries=60, max_items=8)
SETTINGS = EvaluationSettings(
    columns=Columns(weight="w"), cutoffs=(1, 3, 10), segment_sets=(("country",),), null_score="unretrieved"
)
WEIGHT = "(abs(hash(query_id)) % 97 + 1) / 7.0D as w"
"""Weights that have no short binary form: their sums depend on the order of floating-point addition."""
COUNTRY = "if(abs(hash(query_id)) % 97 < 50, 'DE', 'FR') as country"


def weighted_table(spark, rows: Sequence[Row]):
    return create_scored_table(spark, rows).selectExpr("*", WEIGHT, COUNTRY)


def bits(summary) -> dict[tuple, tuple]:
    """Every number of a summary as text that two doubles share only when they are the same bits."""
    return summary_bits(summary.collect())


def summary_bits(rows) -> dict[tuple, tuple]:
    actual = {}
    for row in rows:
        key = tuple(row[name] for name in KEYS)
        assert key not in actual
        actual[key] = (*numbers_of(row), *(row[name] for name in ROW_COUNTS))
    return actual


def numbers_of(row) -> tuple:
    return (*(exact(row[name]) for name in NUMBERS), *(row[name] for name in QUERY_COUNTS), tuple(row["state"]))


def exact(value: object) -> object:
    return value.hex() if isinstance(value, float) else value


def summary_of(spark, rows: Sequence[Row], settings: EvaluationSettings = SETTINGS, n_inputs: int = 2):
    return summarize_rankings(rank_queries(weighted_table(spark, rows).repartition(n_inputs), settings), settings)


@pytest.fixture(scope="module")
def collected(spark):
    """The summary that all others must equal, with its schema."""
    with session_settings(spark, spark__sql__shuffle__partitions=2):
        summary = summary_of(spark, ROWS)
        return summary.collect(), summary.schema


@pytest.fixture(scope="module")
def reference(collected) -> dict[tuple, tuple]:
    """Every metric and cutoff, overall and by country; a run without a name."""
    actual, metrics = summary_bits(collected[0]), ("ndcg", "dcg", "idcg")
    groups = (("", ""), ("country", "DE"), ("country", "FR"))
    assert set(actual) == {("", *group, metric, k) for group in groups for metric in metrics for k in (1, 3, 10)}
    return actual


# --- Whoever ranks, wherever rows lie


def tied_rows() -> list[Row]:
    """Rows of which many share score, item and order value, so that only relevance tells them apart.

    Query q0 is judged and not retrieved, q1 retrieved and not judged, q2 has nothing relevant.
    """
    random_ = random.Random(3)
    rows = [
        Row(
            query=f"q{random_.randint(0, 14)}",
            item=random_.choice("abcd"),
            score=random_.choice([0.0, -0.0, 1.0, 2.0, None]),
            relevance=random_.choice([None, 0.0, 1.0, 2.0, 3.0]),
            position=random_.randint(0, 3),
        )
        for _ in range(400)
    ]
    special = {
        "q0": lambda row: replace(row, score=None, relevance=row.relevance or 0.0),
        "q1": lambda row: replace(row, score=row.score or 1.0, relevance=None),
        "q2": lambda row: replace(row, relevance=0.0),
    }
    return [special.get(str(row.query), lambda row: row)(row) for row in rows]


def in_total_order(rows: Sequence[Row], ties: str) -> list[Row]:
    """Retrieved rows by score, tie rule, then relevance, the lowest first and an unjudged one before it."""

    def key(row: Row) -> tuple:
        rule = row.item if ties == "item_asc" else row.position
        assert row.score is not None
        return (-row.score, rule, -math.inf if row.relevance is None else row.relevance)

    return sorted((row for row in rows if row.score is not None), key=key)


def arrays_of(spark, rows: Sequence[Row], ties: str):
    cells = [
        (
            query,
            [r.relevance for r in in_total_order(group, ties)],
            [r.relevance for r in group if r.relevance is not None],
        )
        for query, group in group_by_query(rows).items()
    ]
    schema = "query_id string, ranked array<double>, judged array<double>"
    return spark.createDataFrame(cells, schema).selectExpr("*", WEIGHT, COUNTRY)


@pytest.fixture(scope="module")
def stored(spark, tmp_path_factory) -> dict[str, str]:
    """The rows as Parquet files: shuffled, and sorted by query."""
    folder, rows = tmp_path_factory.mktemp("determinism"), tied_rows()
    for name, group in {"shuffled": shuffle_rows(rows, 5), "sorted": sorted(rows, key=lambda row: row.query)}.items():
        cells = [row.asDict() for row in weighted_table(spark, group).drop("rank").collect()]
        table = pa.Table.from_pylist(cells)
        (folder / name).mkdir()
        for at in range(2):  # of ever so many row groups, so that parts begin and end within queries
            half = table.slice(at * 200, 200)
            pq.write_table(half, folder / name / f"part-{at}.parquet", row_group_size=30)
    return {name: str(folder / name) for name in ("shuffled", "sorted")}


def evaluations(spark, stored: dict[str, str], ties: str) -> dict[str, object]:
    """Every strategy and source, on shuffled and on sorted rows."""
    options = {
        "k": [1, 3, 10, "all"],
        "convention": f"default;ties={ties}",
        "check_duplicates": "none",
        "segments": ["country"],
        "weight": "w",
    }
    long = options | {"null_score": "unretrieved"} | ({"order": "position"} if ties == "input_order" else {})
    actual: dict[str, object] = {}
    for order, path in stored.items():
        frame = spark.read.parquet(path)
        actual[f"engine by Spark, {order}"] = evaluate(frame, strategy="engine", **long)
        actual[f"engine by files, {order}"] = evaluate_small_parts(path, source="parquet", **long)
        actual[f"window, {order}"] = evaluate(frame, strategy="window", **long)
        if ties in ("item_asc", "input_order"):
            rows = shuffle_rows(tied_rows(), 7) if order == "shuffled" else tied_rows()
            arrays = arrays_of(spark, rows, ties).repartition(3)
            named = {"relevance": "ranked", "ideal": "judged"} | ({"order": "w"} if ties == "input_order" else {})
            actual[f"arrays, {order}"] = evaluate(arrays, **options, **named)
    return actual


def together(frames: dict[str, object]) -> dict[str, list]:
    """Rows of some frames, by name, with one action for all of them."""
    named = [frame.withColumn("evaluation", F.lit(name)) for name, frame in frames.items()]
    actual: dict[str, list] = {name: [] for name in frames}
    for row in reduce(lambda left, right: left.unionByName(right), named).collect():
        actual[row["evaluation"]].append(row)
    return actual


@pytest.fixture(scope="module")
def first_bits() -> dict[str, tuple]:
    """What the first evaluation with a tie rule found: all others must find the same."""
    return {}


@pytest.mark.classic("Python workers read files themselves")
@pytest.mark.parametrize(
    ("partitions", "adaptive", "ties"),
    [(1, True, "item_asc"), (64, False, "item_asc"), (7, False, "input_order"), (7, True, "expected")],
)
def test_strategy_source_order_and_partitions_do_not_change_a_bit(
    spark, stored, first_bits, partitions, adaptive, ties
):
    """Of any query, and of any mean; equal scores, items and order values among the rows."""
    settings = {"spark__sql__shuffle__partitions": partitions, "spark__sql__adaptive__enabled": str(adaptive).lower()}
    with session_settings(spark, **{**SHORT_LIVED_PLANS, **settings}):
        actual = evaluations(spark, stored, ties)
        queries = together({name: one.per_query.select(*PER_QUERY) for name, one in actual.items()})
        means = together({name: one.summary for name, one in actual.items()})
    assert len(actual) == (8 if ties != "expected" else 6)
    for name in actual:
        of_queries = {(row["query_id"], row["k"]): tuple(map(exact, row[2:-1])) for row in queries[name]}
        of_means = {tuple(row[key] for key in KEYS): numbers_of(row) for row in means[name]}
        assert (len(of_queries), len(of_means)) == (15 * 4, 3 * 3 * 4)
        assert (of_queries, of_means) == first_bits.setdefault(ties, (of_queries, of_means)), name
    statuses = {row["status"] for row in queries["engine by Spark, sorted"]}
    assert statuses == {"evaluated", "missing", "unjudged", "no_relevant"}
    rows = {tuple(row[key] for key in KEYS): [row[n] for n in ROW_COUNTS] for row in means["window, sorted"]}
    for name in actual:
        if not name.startswith("arrays"):  # of which a row is a query
            group = {tuple(row[key] for key in KEYS): [row[n] for n in ROW_COUNTS] for row in means[name]}
            assert group == rows, name


@pytest.mark.classic("Python workers read files themselves")
def test_the_files_are_read_as_the_test_above_says(spark, stored):
    """By workers, in several parts; complete queries of sorted files are scored where they are read."""
    for order, path in stored.items():
        source = evaluate_small_parts(path).ranking.implementation.source
        assert source.name == "parquet"
        assert len(source.files.parts) >= 8
        assert (source.files.bounds is not None) == (order == "sorted")


def test_small_arrow_batches_do_not_change_a_bit(spark, reference):
    with session_settings(spark, spark__sql__execution__arrow__maxRecordsPerBatch=3):
        assert bits(summary_of(spark, ROWS)) == reference


def test_many_small_inputs_do_not_change_a_bit(spark, reference):
    assert bits(summary_of(spark, shuffle_rows(ROWS, 3), n_inputs=5)) == reference


def test_summaries_of_queries_and_of_rankings_are_the_same(spark, reference):
    rankings = rank_queries(weighted_table(spark, ROWS), SETTINGS)
    assert bits(summarize(score_queries(rankings, SETTINGS), SETTINGS)) == reference


def test_two_days_merge_into_the_summary_over_both(spark, reference):
    """Days of disjoint queries, the second with one segment alone: its other row comes from the first."""
    monday = [row for row in ROWS if len(row.query) % 2]
    tuesday = [row for row in ROWS if not len(row.query) % 2]
    assert min(len(monday), len(tuesday)) > 20
    merged = merge_summaries(summary_of(spark, monday).unionByName(summary_of(spark, tuesday)))
    assert bits(merged) == reference


def stamped(frame, convention: str | None, config_hash: str | None):
    """Rows of a metric table without rules."""
    return frame.drop("rules").withColumns({"convention": F.lit(convention), "config_hash": F.lit(config_hash)})


def test_nights_of_one_configuration_merge(spark, collected, reference):
    summary = stamped(spark.createDataFrame(*collected), "default", "aa11")
    assert bits(merge_summaries(summary)) == reference
    assert bits(merge_summaries(summary.drop("convention"))) == reference


def test_nights_of_different_rules_are_refused(spark, collected):
    """Building the merge runs nothing, so raises nothing. Rows without rules are merged."""
    summary = spark.createDataFrame(*collected)
    merged = merge_summaries(summary.unionByName(summary.withColumn("rules", F.lit("ties=worst"))))
    with pytest.raises(PySparkException) as caught:
        merged.collect()
    assert "different rules (ties: " in (find_refusal(str(caught.value)) or "")
    nights = stamped(summary, "default", "aa11").unionByName(stamped(summary, None, None))
    doubled = merge_summaries(nights).collect()
    assert {row["n_queries"] for row in doubled} == {2 * row["n_queries"] for row in collected[0]}
    assert {row["rules"] for row in doubled} == {None}


def test_different_conventions_in_different_rows_are_no_mixture(spark, collected):
    """Two runs, each with a configuration of its own: no number is made of both."""
    summary = spark.createDataFrame(*collected)
    other = stamped(summary.withColumn("run", F.lit("b")), "linear", "bb22")
    merged = merge_summaries(stamped(summary, "default", "aa11").unionByName(other))
    assert len(merged.collect()) == 2 * len(collected[0])


def test_the_confidence_of_a_merge(spark, collected, reference):
    from statistics import NormalDist

    key = ("", "", "", "ndcg", 10)
    merged = {
        tuple(row[name] for name in KEYS): row
        for row in merge_summaries(spark.createDataFrame(*collected), confidence=0.8).collect()
    }
    row = merged[key]
    assert row["value"].hex() == reference[key][0]
    half = NormalDist().inv_cdf(0.9) * row["std_error"]
    assert (row["ci_low"], row["ci_high"]) == pytest.approx((row["value"] - half, row["value"] + half), abs=1e-15)


PLAIN = [row for row in ROWS if row.score is not None]
TABLE = build_long_table(PLAIN, Choices())


def test_equal_weights_give_the_unweighted_values():
    """The weight 3 has no share in value, error and interval; weight_sum alone knows it."""
    plain = {row["metric"]: row for row in collect_rows(evaluate(TABLE, k=10).summary)}
    weighted = {
        row["metric"]: row for row in collect_rows(evaluate(with_columns(TABLE, w=3), k=10, weight="w").summary)
    }
    assert plain.keys() == weighted.keys()
    for metric, row in plain.items():
        for name in ("value", "std_error", "ci_low", "ci_high", "n_queries"):
            assert weighted[metric][name] == row[name], (metric, name)
        assert (row["weight_sum"], weighted[metric]["weight_sum"]) == (row["n_queries"], 3 * row["n_queries"])


def test_means_are_rounded_once(engine):
    """The exact mean of the values of the queries, as a fraction; their standard error; and the oracle's mean."""
    evaluation = evaluate(TABLE, k=10, **engine)
    summary = {row["metric"]: row for row in collect_rows(evaluation.summary)}
    per_query = [row for row in collect_rows(evaluation.per_query) if row["ndcg"] is not None]
    for metric in ("ndcg", "dcg", "idcg"):
        values = [row[metric] for row in per_query]
        assert summary[metric]["value"] == float(sum(map(Fraction, values)) / len(values))
        error = statistics.stdev(values) / math.sqrt(len(values))
        assert summary[metric]["std_error"] == pytest.approx(error, rel=1e-13)
    expected = by_definition(PLAIN, Choices(), [10])
    assert summary["ndcg"]["value"] == pytest.approx(mean_by_definition(expected, 10), abs=1e-14)


def test_a_naive_sum_would_fail_these_tests():
    """Doubles added in another order give another sum, with values such as these."""
    values = [1.0 / n for n in range(1, 200)]
    assert sum(values) != sum(reversed(values))
