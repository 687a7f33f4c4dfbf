"""Cases in which a number was once wrong without a word, or a run failed on data that Spark reads.

Expected values are worked out by hand from the definition, beside the data.
"""

from __future__ import annotations

import math
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ndcg_spark import evaluate
from ndcg_spark.conventions import Convention
from ndcg_spark.core.failures import SPARK_ERRORS
from ndcg_spark.errors import InputRefusedError, NdcgSparkError, find_refusal
from ndcg_spark.evaluation import EvaluationSettings
from ndcg_spark.evaluation.explanation import ranked_rows

THIRD = 1 / np.log2(3)
"""Discount of rank 2."""


def mean_of(evaluation, k=10):
    row = evaluation.summary.where(f"metric = 'ndcg' and segment_by = '' and k = {k}").collect()[0]
    return row["value"], row["n_queries"]


def small_table(n_queries=40):
    """Queries of two items, the relevant one second: each scores NDCG@10 = 1/log2(3)."""
    query = np.repeat(np.arange(n_queries), 2)
    return pa.table(
        {
            "query_id": query,
            "item_id": np.tile([1, 2], n_queries),
            "score": np.tile([0.9, 0.1], n_queries),
            "relevance": np.tile([0, 1], n_queries).astype(np.int32),
        }
    )


# ------------------------------------------------------------------------------------------- threads and caches


def test_evaluations_in_threads_see_their_own_rows(spark, tmp_path):
    """Eight threads, each with a filter of its own on one table of files; standard output is as it was."""
    pq.write_table(small_table(), tmp_path / "rows.parquet")
    frame, before = spark.read.parquet(str(tmp_path)), sys.stdout

    def count(n):
        return mean_of(evaluate(frame.where(f"query_id < {n}")))[1]

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(count, range(1, 9)))
    assert found == list(range(1, 9))
    assert sys.stdout is before


def test_a_cached_frame_is_evaluated_as_it_was_cached(spark, tmp_path):
    path = str(tmp_path / "rows")
    spark.createDataFrame(small_table(4).to_pandas()).write.parquet(path)
    frame = spark.read.parquet(path)
    _ = evaluate(frame)  # a plan of it is made before it is cached
    frame.cache()
    try:
        assert frame.count() == 8
        pq.write_table(small_table(1), tmp_path / "rows" / "more.parquet")  # not in the cache
        assert mean_of(evaluate(frame))[1] == 4
    finally:
        frame.unpersist()


# --------------------------------------------------------------------------------- files that are not what they seem


def test_a_column_default_fills_files_without_the_column(spark):
    """Query 1 has relevance 2 by default on rank 1: NDCG 1, as query 2 has, whose relevance is stored."""
    spark.sql("CREATE TABLE with_default (query_id INT, item_id INT, score DOUBLE) USING parquet")
    try:
        spark.sql("INSERT INTO with_default VALUES (1, 1, 0.9)")
        spark.sql("ALTER TABLE with_default ADD COLUMN relevance INT DEFAULT 2")
        spark.sql("INSERT INTO with_default VALUES (2, 1, 0.9, 1)")
        assert mean_of(evaluate(spark.table("with_default"))) == (1.0, 2)
    finally:
        spark.sql("DROP TABLE with_default")


@pytest.mark.classic("Python workers read files themselves")
def test_files_that_change_after_the_evaluation_was_planned_are_refused(spark, tmp_path):
    pq.write_table(small_table(40), tmp_path / "rows.parquet")
    evaluation = evaluate(str(tmp_path), source="parquet")
    pq.write_table(small_table(20), tmp_path / "rows.parquet")
    with pytest.raises(SPARK_ERRORS) as caught:
        evaluation.summary.collect()
    assert "changed after the evaluation was planned; evaluate again." in str(find_refusal(str(caught.value)))


ODD_FILES = {
    "another whole type": small_table(2).set_column(3, "relevance", pa.array([0, 1, 0, 1], pa.int64())),
    "categories": small_table(2).set_column(1, "item_id", pa.array(["a", "b", "a", "b"]).dictionary_encode()),
    "unsigned": small_table(2).set_column(3, "relevance", pa.array([0, 1, 0, 1], pa.uint32())),
    "doubles": small_table(2).set_column(3, "relevance", pa.array([0.0, 1.0, 0.0, 1.0])),
    "large texts": small_table(2).set_column(1, "item_id", pa.array(["a", "b", "a", "b"], pa.large_string())),
}


@pytest.mark.parametrize("name", ODD_FILES)
def test_a_path_of_odd_files_is_read_as_spark_reads_it(spark, tmp_path, name):
    pq.write_table(ODD_FILES[name], tmp_path / "rows.parquet")
    assert mean_of(evaluate(str(tmp_path))) == (THIRD, 2)


def test_a_file_that_spells_a_column_otherwise_is_left_to_spark(spark, tmp_path):
    """Spark takes the case of names lightly: two queries of each file."""
    pq.write_table(small_table(2), tmp_path / "a.parquet")
    other = small_table(4).slice(4).rename_columns(["QUERY_ID", "item_id", "score", "relevance"])
    pq.write_table(other, tmp_path / "b.parquet")
    assert mean_of(evaluate(str(tmp_path))) == (THIRD, 4)


@pytest.mark.classic("Python workers read files themselves")
def test_files_of_two_types_are_left_to_spark(spark, tmp_path):
    """Spark reads whole numbers of both widths as the wider; workers do not decide that."""
    first = small_table(2)
    pq.write_table(first, tmp_path / "a.parquet")
    narrow = first.set_column(0, "query_id", pa.array([7, 7, 8, 8], pa.int32()))
    pq.write_table(narrow, tmp_path / "b.parquet")
    evaluation = evaluate(str(tmp_path))
    assert evaluation.ranking.source == "spark"
    assert "is int32, not int64" in evaluation.ranking.reason


@pytest.mark.parametrize("setting", ["ignoreCorruptFiles", "ignoreMissingFiles"])
def test_settings_that_let_spark_pass_over_files_leave_reading_to_spark(spark, tmp_path, setting):
    pq.write_table(small_table(2), tmp_path / "rows.parquet")
    spark.conf.set(f"spark.sql.files.{setting}", "true")
    try:
        if setting == "ignoreCorruptFiles":
            (tmp_path / "zz-broken.parquet").write_bytes(b"this is no Parquet file, whatever its name says")
        assert mean_of(evaluate(str(tmp_path))) == (THIRD, 2)
    finally:
        spark.conf.unset(f"spark.sql.files.{setting}")


@pytest.mark.parametrize("by_path", [True, False])
def test_large_variable_width_types_change_nothing(spark, tmp_path, by_path):
    table = small_table(2).append_column("country", pa.array(["DE", "DE", "FR", "FR"]))
    pq.write_table(table, tmp_path / "rows.parquet")
    spark.conf.set("spark.sql.execution.arrow.useLargeVarTypes", "true")
    try:
        data = str(tmp_path) if by_path else spark.read.parquet(str(tmp_path))
        evaluation = evaluate(data, segments=["country"])
        assert mean_of(evaluation) == (THIRD, 2)
        assert {row["country"] for row in evaluation.per_query.collect()} == {"DE", "FR"}
    finally:
        spark.conf.unset("spark.sql.execution.arrow.useLargeVarTypes")


@pytest.mark.parametrize("by_path", [True, False])
def test_segments_of_dates_beyond_the_year_9999(spark, tmp_path, by_path):
    far = pa.array([2_932_897] * 2 + [0] * 2, pa.int32()).cast(pa.date32())  # 10000-01-01, 1970-01-01
    pq.write_table(small_table(2).append_column("day", far), tmp_path / "rows.parquet")
    data = str(tmp_path) if by_path else spark.read.parquet(str(tmp_path))
    rows = evaluate(data, segments=["day"]).summary.where("segment_by = 'day' and metric = 'ndcg'").collect()
    assert {row["segment"]: row["n_queries"] for row in rows} == {"1970-01-01": 1, "+10000-01-01": 1}


# ------------------------------------------------------------------------------------------ ties and duplicates


@pytest.mark.parametrize("strategy", ["engine", "window"])
def test_equal_order_values_do_not_leave_a_number_to_row_order(spark, strategy):
    """Score and order value tie, so the lowest relevance comes first: DCG@1 is 0, whatever the order of rows."""
    rows = [("q", "a", 0.5, 0, 1), ("q", "b", 0.5, 1, 1), ("q", "c", 0.5, 1, 1), ("q", "d", 0.5, 0, 1)]
    schema = "query_id string, item_id string, score double, relevance int, position int"
    options = {"k": 1, "order": "position", "convention": "default;ties=input_order", "strategy": strategy}
    found = [mean_of(evaluate(spark.createDataFrame(its, schema), **options), 1) for its in (rows, rows[::-1])]
    assert found == [(0.0, 1), (0.0, 1)]


@pytest.mark.parametrize("strategy", ["engine", "window"])
def test_rows_alike_in_all_that_orders_them_are_listed_by_item(spark, strategy):
    """Score, order value and relevance tie, so item a comes first, which 1 of 5 interactions have: log2(5)."""
    rows = [("q", "b", 0.5, 1, 1), ("q", "a", 0.5, 1, 1)]
    schema = "query_id string, item_id string, score double, relevance int, position int"
    seen = [("a", f"u{user}") for user in range(1)] + [("b", f"u{user}") for user in range(4)]
    interactions = spark.createDataFrame(seen, "item_id string, query_id string")
    options = {"metrics": "novelty@1", "order": "position", "convention": "default;ties=input_order"}
    found = []
    for its in (rows, rows[::-1]):
        one = evaluate(
            spark.createDataFrame(its, schema), interactions=interactions, strategy=strategy, **options
        ).summary
        found.append([row["value"] for row in one.collect()])
    assert found == [[pytest.approx(math.log2(5))]] * 2


TWICE = [("q", "a", 0.5, 0), ("q", "a", 0.5, 1)]
LONG = "query_id string, item_id string, score double, relevance int"


@pytest.mark.parametrize("strategy", ["engine", "window"])
def test_an_item_twice_across_the_cutoff_is_refused(spark, strategy):
    with pytest.raises(SPARK_ERRORS) as caught:
        evaluate(spark.createDataFrame(TWICE, LONG), k=1, strategy=strategy).summary.collect()
    assert "an item comes twice in the ranking of query query_id=q" in str(find_refusal(str(caught.value)))


@pytest.mark.parametrize("ties", ["item_asc", "item_desc"])
@pytest.mark.parametrize("strategy", ["engine", "window"])
def test_an_item_twice_with_the_check_off_counts_its_lowest_relevance_first(spark, strategy, ties):
    options = {"k": 1, "strategy": strategy, "check_duplicates": "none", "convention": f"default;ties={ties}"}
    for rows in (TWICE, TWICE[::-1]):
        assert mean_of(evaluate(spark.createDataFrame(rows, LONG), **options), 1) == (0.0, 1)


# --------------------------------------------------------------------------------------------------- names


INSIDE = ("entry", "entries", "judged", "best", "orders", "n_zero", "bad_row", "kept", "n", "malformed_line",
          "raw_score", "one_score", "run_of_score", "item", "score", "rank", "relevance", "position", "copies",
          "query_0", "segment_0", "low", "high", "place", "copy", "value", "metric", "reason")  # fmt: skip
"""Names that some step has or had for itself."""


@pytest.mark.parametrize("scores", [("s",), ("s", "t")])
def test_no_name_of_the_inside_is_taken_from_the_user(spark, scores):
    """Four queries of two columns each with such a name: one key, one segment; the relevant item is second."""
    pairs = list(zip(INSIDE[::2], INSIDE[1::2], strict=True))
    for query, segment in pairs:
        schema = f"`{query}` int, `{segment}` string, i string, s double, t double, rel int"
        rows = [(q, "x", i, s, s, r) for q in range(4) for i, s, r in (("a", 0.9, 0), ("b", 0.1, 1))]
        options = {"query": query, "item": "i", "score": scores, "relevance": "rel", "segments": [segment]}
        evaluation = evaluate(spark.createDataFrame(rows, schema), **options)
        found = evaluation.summary.where("metric = 'ndcg'").collect()
        assert {(row["value"], row["n_queries"]) for row in found} == {(THIRD, 4)}, (query, segment)
        assert len(found) == 2 * len(scores)


@pytest.mark.parametrize("name", ["ndcg", "run", "k", "n_items", "NDCG", "weight", "ideal"])
def test_a_name_that_results_have_is_refused_before_anything_runs(name):
    from ndcg_spark.evaluation import Columns

    with pytest.raises(NdcgSparkError, match=name):
        EvaluationSettings(columns=Columns(query=(name,)))


# ------------------------------------------------------------------------------------------------ explain_ranks


@pytest.mark.parametrize("ties", ["item_asc", "item_desc", "expected", "best", "worst"])
@pytest.mark.parametrize("ideal", ["judged", "retrieved", "as_many"])
@pytest.mark.parametrize("k", [2, 10])
def test_gains_times_discounts_of_rows_add_up_to_dcg_and_idcg(spark, ties, ideal, k):
    rows = [("q", "a", 0.5, 2), ("q", "b", 0.5, 0), ("q", "c", 0.5, 3), ("q", "d", 0.1, None), ("q", "e", None, 1)]
    frame = spark.createDataFrame(rows, LONG)
    settings = EvaluationSettings(
        cutoffs=(k,), null_score="unretrieved", convention=Convention(ties=ties, ideal=ideal), check_duplicates="all"
    )
    shown = ranked_rows(frame, settings).collect()
    options = {"k": k, "null_score": "unretrieved", "convention": settings.convention}
    (result,) = evaluate(frame, **options).per_query.collect()
    dcg = sum(row["gain"] * (row["discount"] or 0.0) for row in shown)
    idcg = sum(row["gain"] * (row["ideal_discount"] or 0.0) for row in shown)
    assert (dcg, idcg) == pytest.approx((result["dcg"], result["idcg"]), abs=1e-12)


def test_explained_ranks_refuse_or_resolve_duplicates_as_evaluate_does(spark):
    frame = spark.createDataFrame(TWICE, LONG)
    with pytest.raises(SPARK_ERRORS) as caught:
        ranked_rows(frame, EvaluationSettings()).collect()
    assert "comes twice" in str(find_refusal(str(caught.value)))
    best = replace(EvaluationSettings(), convention=Convention(duplicates="best"))
    assert [row["relevance"] for row in ranked_rows(frame, best).collect()] == [1.0]


def test_explained_ranks_show_no_ideal_ranks_where_the_ideal_is_not_made_of_rows(spark):
    rows = [("q", "a", 0.5, 1), ("q", "b", 0.4, 0)]
    settings = EvaluationSettings(convention=Convention(ideal="k_ones"))
    shown = ranked_rows(spark.createDataFrame(rows, LONG), settings).collect()
    assert {row["ideal_rank"] for row in shown} == {None}


def test_source_parquet_is_refused_where_it_is_not_available(spark):
    with pytest.raises(NdcgSparkError, match="source='parquet' is not available for this table"):
        evaluate(spark.createDataFrame(TWICE, LONG), source="parquet")
    assert issubclass(InputRefusedError, NdcgSparkError)
