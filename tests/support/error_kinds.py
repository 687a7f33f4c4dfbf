"""One call for each kind of error that a user can meet, with the expected class and beginning of the line.

`test_error_kinds.py` makes the calls in the session of the tests; a client of Connect makes the same ones.

`test_error_kinds.py` makes the calls in the session of the tests; a client of Connect makes the same ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from ndcg_spark import compare, errors, evaluate, merge_summaries, ndcg, readable_errors
from ndcg_spark.evaluation.explanation import rank_rows
from ndcg_spark.evaluation.settings import Columns, EvaluationSettings
from ndcg_spark.tables import Rows, Slices, write_together

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "query_id string, item_id string, score double, relevance double"
GOOD = ("q7", "a", 2.0, 1.0)
SLICES = Slices.for_night(date(2026, 1, 31), "shop", [""])


def write(rows: DataFrame, reference: str) -> None:
    write_together([Rows(frame=rows, slices=SLICES, reference=reference)])


def table(spark: SparkSession, *rows: tuple[object, ...], schema: str = SCHEMA) -> DataFrame:
    return spark.createDataFrame(list(rows) or [GOOD], schema)


@dataclass(frozen=True)
class Kind:
    """A kind of error; `call` gets the session and an empty folder."""

    name: str
    begins: str
    call: Callable[[SparkSession, Path], object]


def write_corrupt_file(folder: Path) -> str:
    (folder / "corrupt").mkdir(exist_ok=True)
    (folder / "corrupt" / "z.parquet").write_bytes(b"PAR1" + b"x" * 100)
    return str(folder / "corrupt")


def evaluate_summary(spark: SparkSession, convention: str) -> DataFrame:
    return evaluate(table(spark), convention=convention).summary.selectExpr("*", f"'{convention}' AS config_hash")


def write_below_a_file(spark: SparkSession, folder: Path) -> None:
    (folder / "file").touch()
    write(table(spark).selectExpr("'' AS run"), str(folder / "file" / "x"))


def write_rows_that_raise(spark: SparkSession, folder: Path) -> None:
    rows = table(spark).selectExpr("'' AS run", "raise_error('broken row') AS x")
    write(rows, str(folder / "metrics"))


def write_other_columns(spark: SparkSession, folder: Path) -> None:
    del folder
    spark.sql(
        "CREATE TABLE error_kinds_other (x INT, run_date DATE, slice STRING) USING parquet "
        "PARTITIONED BY (run_date, slice)"
    )
    try:
        write(table(spark).selectExpr("'' AS run"), "error_kinds_other")
    finally:
        spark.sql("DROP TABLE error_kinds_other")


NAN = ("q7", "b", math.nan, 1.0)
NOT_FOR_PEOPLE = ("\n", "org.apache", "Traceback", "SQLSTATE")
COMPARED = "run string, query_id string, k int, ndcg double"
HOSTILE = "nan array<double>, large array<double>"
KINDS = {
    # Errors of options and schemas, raised at once.
    "value of an option": Kind(
        "InvalidParameterError",
        "k must be a positive whole number, or all; got 0.",
        lambda spark, _: evaluate(table(spark), k=0),
    ),
    "convention": Kind(
        "InvalidParameterError",
        "gain must be one of exponential, ",
        lambda spark, _: evaluate(table(spark), convention="default;gain=square"),
    ),
    "missing column": Kind(
        "MissingColumnError",
        "column 'points' (score=) is not in the input, which has: query_id, ",
        lambda spark, _: evaluate(table(spark), score="points").summary,
    ),
    "missing segment": Kind(
        "MissingColumnError",
        "column 'country' (segments=) is not in the input, which has: ",
        lambda spark, _: evaluate(table(spark), segments=["country"]).summary,
    ),
    "type of a column": Kind(
        "InputRefusedError",
        "column 'a' (score=) of the input is array<int>, not a number; cast it first.",
        lambda spark, _: evaluate(table(spark).selectExpr("*", "array(1) a"), score="a").summary,
    ),
    "settings that fit no view": Kind(
        "InvalidParameterError",
        "explain_ranks needs scores; remove rank=.",
        lambda spark, _: rank_rows(table(spark), EvaluationSettings(columns=Columns(rank="rank"))),
    ),
    "name of nothing": Kind(
        "InputRefusedError",
        "there is no table 'nowhere' in the catalog, and no file or folder of that name.",
        lambda spark, _: evaluate("nowhere"),
    ),
    "path of nothing": Kind(
        "InputRefusedError", "there is no path 'nowhere/rows'.", lambda spark, _: evaluate("nowhere/rows")
    ),
    "stream": Kind(
        "InputRefusedError",
        "data is a stream, and metrics need all rows of a query: call evaluate in a function for writeStream",
        lambda spark, _: evaluate(spark.readStream.format("rate").load()),
    ),
    "streams to compare": Kind(
        "InputRefusedError",
        "results['b'] is a stream, ",
        lambda spark, _: (
            compare({"a": table(spark), "b": spark.readStream.format("rate").load()}, baseline="a").summary
        ),
    ),
    # Errors of the action.
    "array of text": Kind(
        "InputRefusedError",
        "array judged is array<string>; it must hold numbers (relevances): cast it first.",
        lambda spark, _: spark.sql("SELECT array('1', 'two') AS judged").select(ndcg("judged")).collect(),
    ),
    "bad row": Kind(
        "InputRefusedError",
        "bad row: nan_score at query_id=q7",
        lambda spark, _: evaluate(table(spark, GOOD, NAN), k=3).summary.collect(),
    ),
    "bad row, windows": Kind(
        "InputRefusedError",
        "bad row: nan_score at query_id=q7",
        lambda spark, _: evaluate(table(spark, GOOD, NAN), k=3, strategy="window").per_query.collect(),
    ),
    "item twice": Kind(
        "InputRefusedError",
        "an item appears twice in the ranking of query query_id=q7.",
        lambda spark, _: evaluate(table(spark, GOOD, ("q7", "a", 1.0, 0.0)), k=3).per_query.collect(),
    ),
    "nothing relevant": Kind(
        "InputRefusedError",
        "query query_id=q7 has nothing relevant.",
        lambda spark, _: evaluate(
            table(spark, ("q7", "a", 1.0, 0.0)), convention="default;no_relevant=error"
        ).summary.collect(),
    ),
    "array with NaN": Kind(
        "InputRefusedError",
        "nan_relevance in array nan: ",
        lambda spark, _: table(spark, ([math.nan], [1.0]), schema=HOSTILE).select(ndcg("nan")).collect(),
    ),
    "gain beyond bounds": Kind(
        "InputRefusedError",
        "relevance 2000 in array large has a gain that is infinite",
        lambda spark, _: table(spark, ([1.0], [2000.0]), schema=HOSTILE).select(ndcg("large")).collect(),
    ),
    "corrupt file": Kind(
        "InputRefusedError",
        "",
        lambda spark, folder: evaluate(
            spark.read.schema(SCHEMA).parquet(write_corrupt_file(folder)), strategy="window"
        ).summary.collect(),
    ),
    "compared queries twice": Kind(
        "InputRefusedError",
        "query query_id=q appears twice in run 'a' at k=10",
        lambda spark, _: compare(
            table(
                spark,
                *[(run, "q", 10, 0.5) for run in "aab"],
                schema=COMPARED,
            ),
            baseline="a",
            metrics="ndcg",
        ).summary.collect(),
    ),
    "conventions that do not merge": Kind(
        "InputRefusedError",
        "the mean of metric=ndcg, k=10 would combine results of different rules (gain: ",
        lambda spark, _: merge_summaries(
            evaluate_summary(spark, "default").unionByName(evaluate_summary(spark, "linear"))
        ).collect(),
    ),
    # Errors of tables.
    "output below a file": Kind("OutputRefusedError", "", write_below_a_file),
    "rows that raise while they are written": Kind("OutputRefusedError", "cannot write '", write_rows_that_raise),
    "table of other columns": Kind("OutputRefusedError", "table 'error_kinds_other' has other", write_other_columns),
    # Not an error of this package: it is passed on.
    "an error of the user": Kind("", "", lambda spark, _: spark.sql("SELECT raise_error('boom')").collect()),
}


def catch_kind_error(spark: SparkSession, name: str, folder: Path) -> tuple[str, str]:
    """Return the class and text of the error that the call of this name raises."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with readable_errors():
            KINDS[name].call(spark, folder)
    except Exception as error:
        return type(error).__name__, str(error)
    return "", ""


def assert_expected_errors(errors_met: Mapping[str, Sequence[str]]) -> None:
    """Check the class of each kind and that its one line begins as expected."""
    assert errors_met.keys() == KINDS.keys()
    for name, (actual, text) in errors_met.items():
        kind = KINDS[name]
        if not kind.name:
            assert not hasattr(errors, actual)
            assert "boom" in text
            continue
        assert (actual, text[: len(kind.begins)]) == (kind.name, kind.begins), (name, text)
        assert text, name
        assert [sign for sign in NOT_FOR_PEOPLE if sign in text] == [], (name, text)
