"""Rows that cannot be used, by both engines and by windows: refused, or left out of every number.

Every reason is tested where it is decided (test_valid_rows.py); what jobs say of them, in test_job_bad_rows.py.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F
from support.arrow_rankings import BAD_ROWS, BY_RANK, GOOD, INF, NAN, SCHEMA, SCORED
from support.engines import collect_rows, parametrize_engine, run_refused, table
from support.oracle import Choices, Row
from support.oracle import evaluate as evaluate_by_loops
from support.spark_rankings import Case, assert_same_results, collect_cases
from support.spark_rows import select_run_rows

from ndcg_spark import evaluate
from ndcg_spark.conventions import Convention
from ndcg_spark.core.bad_rows import count_rows
from ndcg_spark.evaluation.frames.columns import report_bad_rows
from ndcg_spark.evaluation.settings import EvaluationSettings
from ndcg_spark.evaluation.tasks.valid_rows import RowCheck

CHOICES = Choices(ties="item_asc")
GOOD_ROWS = ({}, {"item_id": "y", "score": 0.5, "rank": 2.0, "relevance": 0.0}, {"query_id": "q2", "relevance": None})
GOOD_RANKING = [
    Row(query=("a", "q1"), item="x", score=1.0, relevance=2.0),
    Row(query=("a", "q1"), item="y", score=0.5, relevance=0.0),
    Row(query=("a", "q2"), item="x", score=1.0),
]


@pytest.fixture
def given(request, engine, tmp_path):
    """A table as the engine reads it, with NaN, which a table in memory has for null."""
    if engine["engine"] != "local":
        return request.getfixturevalue("spark").createDataFrame
    return lambda rows, schema: stored(tmp_path, rows, schema)


def stored(folder: Path, rows: list[tuple], schema: str) -> str:
    path = folder / f"{len(list(folder.iterdir()))}.parquet"
    pq.write_table(table(rows, schema), path)
    return str(path)


def cells(*rows: dict[str, object]) -> list[tuple]:
    names = [part.split()[0] for part in SCHEMA.split(", ")]
    return [tuple({**GOOD, **row}.get(name) for name in names) for row in rows]


FORMS = {
    "long": {},
    "whole lists": {"k": "all"},
    "no ideal": {"convention": "default;ideal=k_ones"},
    "ranks": {"rank": "rank"},
    "judgments": {},
    "best copy": {"convention": "default;duplicates=best"},
}
KEYS = [*((form, "query_id") for form in FORMS), ("long", "run")]


@parametrize_engine("form, key", local=KEYS[:5] + KEYS[6:], spark=KEYS[4:6], window=[KEYS[0], *KEYS[3:]])
def test_a_row_without_a_key_is_refused_by_every_strategy(engine, form, key):
    """Windows and joins by key would leave it away, or make a group of it."""
    data, judgments = table(cells(*GOOD_ROWS, {key: None}), SCHEMA), None
    if form == "judgments":
        judgments = table(cells(*GOOD_ROWS), SCHEMA).select(["query_id", "item_id", "relevance", "w"])
        data = data.drop_columns(["relevance"])
    said = run_refused(evaluate(data, judgments, **{"run": "run", "weight": "w", "k": 1} | FORMS[form] | engine))
    assert f"null_{key.removesuffix('_id')} " in said
    assert f"{key}=null" in said


@pytest.mark.parametrize("engine", ["local", "spark", "window"], indirect=True)
@pytest.mark.parametrize(("by_rank", "columns"), [(False, SCORED), (True, BY_RANK)], ids=["score", "rank"])
def test_reject_evaluates_as_if_the_rows_were_not_there(engine, given, by_rank, columns):
    """Beside a row of each reason, two queries score what loops say of them alone."""
    bad = [row for row in BAD_ROWS.values() if row.columns is columns and row.convention == Convention()]
    assert len(bad) == (6 if by_rank else 15)
    rows = cells(*[{"item_id": f"b{n}", **one.cells} for n, one in enumerate(bad)], *GOOD_ROWS)
    options = {"run": "run", "weight": "w", "k": [1, 3], "on_invalid": "reject", **engine}
    options |= {"rank": "rank"} if by_rank else {}
    names = ("status", "n_items", "n_judged", "n_relevant", "dcg", "idcg", "ndcg")
    actual = {
        ((row["run"], row["query_id"]), row["k"]): [row[name] for name in names]
        for row in collect_rows(evaluate(given(rows, SCHEMA), **options).per_query)
    }
    expected = evaluate_by_loops(GOOD_RANKING, CHOICES, [1, 3])
    assert actual == {key: [getattr(one, name) for name in names] for key, one in expected.items()}


def test_ranks_are_checked_in_their_own_type(spark):
    """Those that no whole number of Spark holds are bad, not an overflow."""
    settings = EvaluationSettings(columns=BY_RANK, cutoffs=(1, 3), on_invalid="reject")
    ranks = {
        "bigint": (
            (None, 0.0, -1.0, 10_000_001.0, 2.0**40),
            {"null_rank": 1, "rank_below_1": 2, "rank_too_large": 2},
        ),
        "double": ((10_000_001.0, 1e15, 1e19, INF), {"rank_too_large": 4}),
    }
    for kind, (bad, expected) in ranks.items():
        rows = cells(*[{"item_id": f"b{n}", "rank": rank} for n, rank in enumerate(bad)], *GOOD_ROWS)
        frame = spark.createDataFrame(rows, SCHEMA).withColumn("rank", F.col("rank").cast(kind))
        counted = count_rows(report_bad_rows(select_run_rows(frame, settings, judged=True), RowCheck(settings)))
        assert (counted.read, counted.rejected) == (len(bad) + 3, expected)
        actual = collect_cases({"one": Case(data=frame, settings=settings)})["one"]
        assert_same_results(actual, evaluate_by_loops(GOOD_RANKING, CHOICES, [1, 3]))


def test_bad_rows_of_judgments(engine, given):
    """Refused, or left out: of two ranked items the second is judged, so that DCG@3 is 3 / log2(3)."""
    reasons = ("null_query", "null_item", "nan_relevance", "infinite_relevance", "gain_overflow", "bad_weight")
    bad = [row for row in BAD_ROWS.values() if row.reason in reasons]
    rows = cells(*[{"query_id": "q9", "item_id": f"b{n}", **one.cells} for n, one in enumerate(bad)], {})
    chosen = [(row[1], row[2], row[5], row[6]) for row in rows]
    judgments = given(chosen, "query_id string, item_id string, relevance double, w double")
    run = given([("q1", "x", 1.0), ("q1", "y", 2.0)], "query_id string, item_id string, score double")
    options = {"weight": "w", "k": 3, **engine}
    assert run_refused(evaluate(run, judgments, **options)).startswith("bad row: ")
    evaluation = evaluate(run, judgments, on_invalid="reject", **options)
    (row,) = collect_rows(evaluation.per_query)
    assert (row["query_id"], row["dcg"]) == ("q1", pytest.approx(3 * 0.6309297535714575))


BAD_ARRAYS = [("q9", [1.0, NAN]), ("q9", [INF]), ("q9", [64.5]), ("q9", None), (None, [1.0])]


def test_bad_rows_of_arrays(engine, given):
    """Each alone is refused; all are left out beside a good one, of which the one relevant item is first."""
    schema, good = "query_id string, relevance array<double>", ("q", [1.0, None])
    for bad in BAD_ARRAYS if engine["engine"] == "local" else BAD_ARRAYS[3:]:
        assert "1 bad row of 2" in run_refused(evaluate(given([good, bad], schema), k=1, **engine))
    evaluation = evaluate(given([*BAD_ARRAYS[:3], good, *BAD_ARRAYS[3:]], schema), k=1, on_invalid="reject", **engine)
    (row,) = collect_rows(evaluation.per_query)
    assert [row[name] for name in ("query_id", "n_items", "n_judged", "ndcg")] == ["q", 2, 1, 1.0]
