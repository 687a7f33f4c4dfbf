"""The front door: options of `evaluate`, and refusals that name the query."""

from __future__ import annotations

import math
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.engines import collect_rows, parametrize_engine, run_refused, table, with_columns
from support.spark_rankings import session_settings

from ndcg_spark import Convention, evaluate
from ndcg_spark.core.failures import SPARK_ERRORS
from ndcg_spark.errors import InputRefusedError, InvalidParameterError, find_refusal
from ndcg_spark.evaluation import EvaluationSettings, evaluation_settings
from ndcg_spark.evaluation.api import OPTIONS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def test_options_become_settings() -> None:
    settings = evaluation_settings(
        k=["all", 5, 1],
        convention="trec_eval;gain=exponential",
        query=["session", "query"],
        score=["a", "b"],
        segments=["country", "country+device"],
        ideal="judged",
        strategy="window",
        confidence=0.9,
        null_score="unretrieved",
    )
    columns = settings.columns
    assert (columns.query, columns.score, columns.ideal) == (("session", "query"), ("a", "b"), "judged")
    assert settings.cutoffs == (1, 5, None)
    assert settings.convention == Convention.parse("trec_eval;gain=exponential")
    assert settings.segment_sets == (("country",), ("country", "device"))
    assert (settings.strategy, settings.confidence, settings.null_score) == ("window", 0.9, "unretrieved")


def test_no_options_are_the_defaults_of_the_settings() -> None:
    assert evaluation_settings() == EvaluationSettings()


def names_of(settings: Any) -> list[str]:
    return [field.name for field in fields(settings)]


def test_every_field_of_a_plan_can_be_chosen() -> None:
    renamed = {"cutoffs": "k", "segment_sets": "segments"}
    fields = {renamed.get(name, name) for name in names_of(EvaluationSettings)}
    settings = EvaluationSettings()
    columns = {name for group in (settings.columns, settings.item_columns) for name in names_of(group)}
    assert (fields - {"columns", "item_columns"}) | columns == set(OPTIONS)


TWO_RUNS = "r string, query_id string, item_id string, score double, relevance int, of string"
IDS = "query_id string, item_id string, "
RUN = table([("q1", "a", 1.0, 2.0)], IDS + "score double, w double")
JUDGMENTS = table([("q1", "a", 1.0), ("q2", "b", 1.0)], IDS + "relevance double")
ON_SPARK = {"engine": "spark"}


def rows_of_two_runs(score: float) -> pa.Table:
    """Run a has the one relevant item of q1 on rank 2: NDCG 1 / log2(3); all others are on rank 1."""
    rows = [("a", "q1", "x", 1.0, 1, "DE"), ("a", "q1", "y", score, 0, "DE"), ("a", "q2", "x", 1.0, 1, None),
            ("b", "q1", "x", 1.0, 1, "DE")]  # fmt: skip
    return table(rows, TWO_RUNS)


def test_a_result_says_in_three_lines_what_it_computes(spark: SparkSession) -> None:
    result = evaluate(
        RUN, JUDGMENTS, k=[5, 1], segments=["query_id"], convention="trec_eval;ties=expected", **ON_SPARK
    )
    assert repr(result).splitlines()[:3] == [
        "Evaluation: ndcg@1, ndcg@5, by query_id; convention trec_eval;ties=expected",
        f"ranked by: engine, read by spark ({result.ranking.reason})",
        "lazy: summary (means), per_query, rankings; each action on one of them ranks anew",
    ]
    assert "ap@3, rr" in repr(evaluate(RUN, JUDGMENTS, metrics="ap@3,rr", **ON_SPARK))


@pytest.mark.parametrize(
    ("limit", "options", "slow"),
    [
        ("256m", {}, True),
        ("2147483647", {}, False),
        ("256m", {"k": 500}, False),  # whose rows can be large: the limit protects memory
        ("256m", {"strategy": "window"}, False),
    ],
)
def test_a_session_that_limits_batches_is_told(spark: SparkSession, limit: str, options: Any, slow: bool) -> None:
    with session_settings(spark, spark__sql__execution__arrow__maxBytesPerBatch=limit):
        lines = repr(evaluate(rows_of_two_runs(2.0), run="r", **options, **ON_SPARK)).splitlines()
    assert len(lines) == 3 + slow
    assert lines[-1].startswith("faster: spark.sql.execution.arrow.maxBytesPerBatch=2147483647 saves") is slow


def test_windows_rank_where_they_are_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    """The reference gives the same numbers as the engine, so that only its name tells who ranked."""
    pq.write_table(rows_of_two_runs(2.0), tmp_path / "rows.parquet")
    path = str(tmp_path / "rows.parquet")
    result = evaluate(path, run="r", strategy="window")
    assert repr(result).splitlines()[1] == "ranked by: window, read by spark (strategy=window was requested)"
    with pytest.raises(InvalidParameterError, match=r"source='parquet' is not available .*: strategy=window"):
        evaluate(path, run="r", strategy="window", source="parquet")


def test_means_for_people(engine: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """Of two values their mean, and 1.96 (normal, 97.5 %) times half of their difference, the standard error."""
    second = 1 / math.log2(3)
    mean, half = (1 + second) / 2, 1.959963984540054 * (1 - second) / 2
    result = evaluate(rows_of_two_runs(2.0), run="r", segments="of", **engine)
    assert "<pre>Evaluation: ndcg@10, by of" in result._repr_html_()
    result.show(3)
    *_, last, more, below = capsys.readouterr().out.splitlines()
    assert below.startswith("runs have different numbers of queries: 'b' has 1, 'a' 2. ")
    assert (last.split(), more) == (
        ["a", "of=DE", "ndcg@10", f"{second:.4f}", "1"],
        "... and 2 more; show(5) prints all rows",
    )
    actual = result.to_pandas()
    names = ["run", "segment", "metric", "value", "interval", "ci_low", "ci_high", "n"]
    means = result.means()
    shown = means.column_names if isinstance(means, pa.Table) else means.columns
    assert actual.columns.tolist() == shown == names
    assert actual["ci_low"].tolist() == pytest.approx([mean - half, *[math.nan] * 4], abs=1e-12, nan_ok=True)
    assert actual["ci_high"].tolist() == pytest.approx([mean + half, *[math.nan] * 4], abs=1e-12, nan_ok=True)
    assert actual["value"].tolist() == pytest.approx([mean, 1, second, 1, 1], abs=1e-12)
    assert actual["interval"].tolist() == [f"[{mean - half:.4f}, {mean + half:.4f}]", *[None] * 4]
    keys = [("a", "overall", 2), ("b", "overall", 1), ("a", "of=DE", 1), ("b", "of=DE", 1), ("a", "of=null", 1)]
    assert list(zip(actual["run"], actual["segment"], actual["n"], strict=True)) == keys
    assert set(actual["metric"]) == {"ndcg@10"}
    assert result._repr_html_().count("<tr") == 6
    asked = evaluate(rows_of_two_runs(2.0), run="r", metrics="dcg@2,ndcg@all").to_pandas()
    assert asked["metric"].tolist() == ["dcg@2"] * 2 + ["ndcg@all"] * 2


def test_metrics_come_as_they_were_asked_for() -> None:
    names = ["recall@2", "ndcg@1", "MRR", "dcg@2", "ndcg@2", "AP"]
    result = evaluate(rows_of_two_runs(2.0)[:3], metrics=names, segments="of", convention="trec_eval")
    shown = [name if "@" in name else f"{name}@all" for name in names]
    assert result.to_pandas()["metric"].tolist() == shown * 3


def test_queries_with_nothing_relevant_are_counted_below(capsys: pytest.CaptureFixture[str]) -> None:
    """Of three queries one has an item of relevance 0 alone, and counts as 0: the mean is 2 / 3."""
    result = evaluate(table([(f"q{n}", "a", 1.0, min(n, 1)) for n in range(3)], IDS + "score double, relevance int"))
    result.show()
    *_, means, below = capsys.readouterr().out.splitlines()
    assert "0.6667" in means
    assert below == "queries: 3 in the mean, among them 1 with nothing relevant, 0 missing; left out: 0 unjudged"
    assert "among them 1 with nothing relevant" in result._repr_html_()


def test_a_table_of_a_notebook_that_is_cut_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ndcg_spark.core.shown.MAX_SHOWN", 2)
    result = evaluate(rows_of_two_runs(2.0), run="r", segments="of")
    assert len(result.to_pandas()) == 5
    assert "... and 3 more; to_pandas() has all rows" in result._repr_html_()


def test_a_table_without_rows_shows_that(engine: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    evaluate(rows_of_two_runs(2.0)[:0], run="r", **engine).show()
    assert capsys.readouterr().out == "no rows\n"


def test_a_bad_row_is_one_line(engine: dict[str, str]) -> None:
    result = evaluate(rows_of_two_runs(math.inf), run="r", **engine)
    told = r"^1 bad row of 4 in the data: infinite_score 1 \(e\.g\. run=a, query_id=q1, item=y\); on_invalid='reject'"
    for ask in (result.show, result.to_pandas):
        with pytest.raises(InputRefusedError, match=told) as refused:
            ask()
        assert "\n" not in str(refused.value)


def test_a_bad_judgment_is_named_as_it_is_found(spark: SparkSession) -> None:
    with pytest.raises(InputRefusedError, match=r"^bad row: [a-z_]+ at query_id=q"):
        evaluate(RUN, with_columns(JUDGMENTS, relevance=math.inf), **ON_SPARK).to_pandas()


def test_an_unknown_option_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(InvalidParameterError, match=r"unknown option 'segment'\. Did you mean 'segments'\?"):
        evaluation_settings(segment=["country"])


def test_queries_of_weight_0_tell_nothing_of_the_error() -> None:
    """Values 1 and 0: the error is sd / sqrt(2) = 1 / 2, however many others weigh nothing."""
    rows = [("p", 1, 1.0), ("q", 0, 1.0), *((f"z{at}", 1, 0.0) for at in range(20))]
    cells = [(query, item, score, rel if item == "a" else 1 - rel, w) for query, rel, w in rows
             for item, score in (("a", 2.0), ("b", 1.0))]  # fmt: skip
    data = table(cells, IDS + "score double, relevance int, w double")
    (row,) = collect_rows(evaluate(data, k=1, weight="w").summary, "ndcg")
    assert (row["value"], row["n_queries"], row["weight_sum"], row["std_error"]) == (0.5, 2, 2.0, 0.5)
    data = table([cell for cell in cells if cell[0] != "q"], IDS + "score double, relevance int, w double")
    (row,) = collect_rows(evaluate(data, k=1, weight="w").summary, "ndcg")
    assert (row["value"], row["n_queries"], row["std_error"], row["ci_low"]) == (1.0, 1, None, None)


def test_arrays_whose_judged_ones_lack_a_relevance_are_refused(engine: dict[str, str]) -> None:
    """NDCG would be above 1. One that is judged and not retrieved is fine, and so are nulls and zeros."""
    schema = "query_id string, relevance array<double>, judged array<double>"
    good = [
        ("a", [0.0, 3.0, None, 0.0], [1.0, 3.0]),
        ("b", [], [1.0]),
        ("c", [0.0], []),
        ("d", [2.0, 1.0], [2.0, 1.0]),
    ]
    rows = collect_rows(evaluate(table(good, schema), ideal="judged", k=4, **engine).per_query)
    assert all(0 <= row["ndcg"] <= 1 for row in rows if row["ndcg"] is not None)
    for bad in (([3.0, 3.0], [3.0]), ([3.0], [2.0, 2.0]), ([1.0], []), ([1.0, 2.0, 1.0], [2.0, 1.0])):
        said = run_refused(evaluate(table([good[0], ("e", *bad)], schema), ideal="judged", k=1, **engine))
        assert "'relevance' has a relevance that column 'judged' lacks, in query query_id=e" in said
        if engine == ON_SPARK:
            return


def test_a_missing_query_that_is_dropped_needs_no_weight() -> None:
    (row,) = collect_rows(
        evaluate(RUN, JUDGMENTS, weight="w", convention="default;missing_query=drop").summary, "ndcg"
    )
    assert (row["value"], row["weight_sum"], row["n_queries"], row["n_missing"]) == (1.0, 2.0, 1, 1)


def test_a_gain_that_a_function_makes_infinite_is_refused_by_query(spark: SparkSession) -> None:
    data = spark.createDataFrame(
        [("q1", 1, 0.5, 1.0), ("q7", 1, 0.5, 3.0)], "query_id string, item_id int, score double, relevance double"
    )
    evaluation = evaluate(data, convention=Convention(gain=lambda level: 1.0 / (3.0 - level)))
    with pytest.raises(SPARK_ERRORS) as raised:
        evaluation.per_query.collect()
    message = find_refusal(str(raised.value)) or ""
    assert message.startswith("query query_id=q7 has relevance 3, whose gain is not finite")


# --- Frames that Spark knows more of than their files say


def n_queries(frame: DataFrame) -> int:
    return evaluate(frame).summary.where("metric = 'ndcg'").first()["n_queries"]


def few_rows(n: int) -> list[tuple[int, int, float, int]]:
    return [(query, item, -float(item), item) for query in range(n) for item in range(2)]


LONG = "query_id int, item_id int, score double, relevance int"


def test_evaluations_in_threads_see_their_own_rows(spark: SparkSession, tmp_path: Path) -> None:
    """Four threads, with filters of their own on one table of files; standard output is as it was."""
    spark.createDataFrame(few_rows(40), LONG).write.parquet(f"{tmp_path}/rows")
    frame, before = spark.read.parquet(f"{tmp_path}/rows"), sys.stdout
    with ThreadPoolExecutor(4) as pool:
        actual = list(pool.map(lambda n: n_queries(frame.where(f"query_id < {n}")), range(1, 9)))
    assert actual == list(range(1, 9))
    assert sys.stdout is before


def test_a_cached_frame_is_evaluated_as_it_was_cached(spark: SparkSession, tmp_path: Path) -> None:
    path = f"{tmp_path}/rows"
    spark.createDataFrame(few_rows(4), LONG).write.parquet(path)
    frame = spark.read.parquet(path)
    _ = evaluate(frame)  # a plan of it is made before it is cached
    frame.cache()
    try:
        assert frame.count() == 8
        pq.write_table(table(few_rows(9), LONG), f"{path}/more.parquet")  # not in the cache
        assert n_queries(frame) == 4
    finally:
        frame.unpersist()


def test_a_column_default_fills_files_without_the_column(spark: SparkSession) -> None:
    """Query 1 has relevance 2 by default on rank 1: NDCG 1, as query 2 has, whose relevance is stored."""
    spark.sql("CREATE TABLE with_default (query_id INT, item_id INT, score DOUBLE) USING parquet")
    try:
        spark.sql("INSERT INTO with_default VALUES (1, 1, 0.9)")
        spark.sql("ALTER TABLE with_default ADD COLUMN relevance INT DEFAULT 2")
        spark.sql("INSERT INTO with_default VALUES (2, 1, 0.9, 1)")
        row = evaluate(spark.table("with_default")).summary.where("metric = 'ndcg'").first()
        assert (row["value"], row["n_queries"]) == (1.0, 2)
    finally:
        spark.sql("DROP TABLE with_default")


INSIDE = ("entry", "entries", "judged", "best", "orders", "n_zero", "bad_row", "kept", "n", "malformed_line",
          "raw_score", "one_score", "run_of_score", "item", "score", "rank", "relevance", "position", "copies",
          "query_0", "segment_0", "low", "high", "place", "copy", "value", "metric", "reason")  # fmt: skip
"""Names that some step has or had for itself."""


@parametrize_engine("scores", local=[("s",), ("s", "t")], spark=[("s", "t")], window=[("s",)])
def test_no_name_of_the_inside_is_taken_from_the_user(engine: dict[str, str], scores: tuple[str, ...]) -> None:
    """Four queries: half of the names are their key, half of them segments; the relevant item is second."""
    queries, segments = INSIDE[::2], INSIDE[1::2]
    names = [*(f"{query} int" for query in queries), *(f"{segment} string" for segment in segments)]
    rows = [
        (*[query] * len(queries), *"x" * len(segments), item, score, score, relevance)
        for query in range(4)
        for item, score, relevance in (("a", 0.9, 0), ("b", 0.1, 1))
    ]
    data = table(rows, ", ".join([*names, "i string, s double, t double, rel int"]))
    options = {"query": queries, "item": "i", "score": scores, "relevance": "rel", "segments": segments}
    actual = collect_rows(evaluate(data, **options, **engine).summary, "ndcg")
    assert {(row["value"], row["n_queries"]) for row in actual} == {(1 / math.log2(3), 4)}
    assert len(actual) == (1 + len(segments)) * len(scores)
