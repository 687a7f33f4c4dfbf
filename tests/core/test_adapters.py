"""Functions take tables of pandas and Arrow like DataFrames: with equal numbers, and NaN as null."""

from __future__ import annotations

import datetime
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import types as T

from ndcg_spark import compare, evaluate, explain_difference, merge_summaries, report
from ndcg_spark.core.adapters import accepts_tables
from ndcg_spark.diagnosis import score_losses
from ndcg_spark.errors import InputRefusedError, InvalidParameterError
from ndcg_spark.evaluation import evaluation_settings, rank_queries, score_queries
from ndcg_spark.ml import with_query_folds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS = {
    "query_id": ["q1", "q1", "q1", "q2", "q2"],
    "item_id": ["a", "b", "c", "a", "b"],
    "score": [3.0, 2.0, 1.0, 1.0, 2.0],
    "relevance": [1.0, math.nan, 3.0, 2.0, 0.0],
}
NULLS = {**ROWS, "relevance": [1.0, None, 3.0, 2.0, 0.0]}


class Exported:
    """A table of any library that exports its rows as Arrow."""

    def __init__(self, table: pa.Table) -> None:
        self.table, self.columns = table, table.schema.names

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


class Lazy:
    """A table that is computed when it is collected."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def collect_schema(self):
        return self.table.schema

    def collect(self):
        return Exported(self.table)


CATEGORIES = pa.DictionaryArray.from_arrays(
    pa.array([1, None, 0], pa.uint32()), pa.array(["a", "b"], pa.string_view())
)
TABLES = {
    "pandas": lambda: pd.DataFrame(ROWS, index=[9, 8, 7, 6, 5]),
    "arrow": lambda: pa.table(ROWS),
    "another library": lambda: Exported(pa.table(ROWS).cast(pa.schema(
        [("query_id", pa.string_view()), ("item_id", pa.large_string()), ("score", pa.float64()),
         ("relevance", pa.float64())]
    ))),
}  # fmt: skip


def collect_rows(table):
    if isinstance(table, pa.Table):  # of this machine
        return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)
    return sorted(map(tuple, table.collect()), key=repr)


def test_an_evaluation_has_the_same_bits(spark):
    frame = spark.createDataFrame(list(zip(*NULLS.values(), strict=True)), "query_id string, item_id string, "
                                  "score double, relevance double")  # fmt: skip
    theirs = evaluate(frame, k=[1, 3])
    per_query, summary = collect_rows(theirs.per_query), collect_rows(theirs.summary)
    for name, table in TABLES.items():
        ours, on_spark = evaluate(table(), k=[1, 3]), evaluate(table(), k=[1, 3], engine="spark")
        assert (name, collect_rows(ours.per_query), collect_rows(ours.summary)) == (name, per_query, summary)
        assert set(ours.per_query.column("n_judged").to_pylist()) == {2}  # NaN is no judgment
        assert (name, collect_rows(on_spark.per_query)) == (name, per_query)


def test_a_score_that_is_nan_is_a_bad_row():
    bad = pd.DataFrame({**ROWS, "score": [3.0, math.nan, 1.0, 1.0, 2.0]})
    with pytest.raises(InputRefusedError, match="null_score"):
        evaluate(bad).to_pandas()


def test_run_and_judgments():
    table = pd.DataFrame(ROWS)
    judged = evaluate(table.drop(columns="relevance"), pa.table(ROWS).select(
        ["query_id", "item_id", "relevance"]
    ), k=3)  # fmt: skip
    assert collect_rows(judged.summary) == collect_rows(evaluate(table, k=3).summary)


def test_other_functions_take_them_too(spark):
    table = pd.DataFrame({**ROWS, "run": ["x"] * 5})
    other = table.assign(run="y", score=-table.score)
    result = evaluate(pd.concat([table, other]), run="run", k=3)
    per_query = result.per_query.to_pandas()
    actual = compare(per_query, metrics="ndcg", k=3, query="query_id", replicates=0, flips=0).summary
    assert collect_rows(actual) == collect_rows(compare(result, k=3, metrics="ndcg", replicates=0, flips=0).summary)
    assert len(explain_difference(table, "default", "sklearn", k=3).steps) > 0
    summary = result.summary.to_pandas()
    assert merge_summaries(summary).equals(result.summary)
    assert report(summary).contents.results == report(result).contents.results


TYPES = {
    "category": (pd.DataFrame({"x": pd.Categorical(["a", "b", None])}), T.StringType(), ["a", "b", None]),
    "unsigned": (pa.table({"x": pa.array([1, 2**64 - 1], pa.uint64())}), T.DecimalType(20, 0), [1, 2**64 - 1]),
    "small": (pa.table({"x": pa.array([1, 255], pa.uint8())}), T.ShortType(), [1, 255]),
    "half": (pa.table({"x": pa.array(np.array([0.5, math.nan], np.float16))}), T.FloatType(), [0.5, None]),
    "views of text, as of polars": (pa.table({"x": pa.array(["a", None], pa.string_view())}), T.StringType(),
                                    ["a", None]),
    "lists of views": (pa.table({"x": pa.array([["a"], []], pa.list_(pa.string_view()))}),
                       T.ArrayType(T.StringType()), [["a"], []]),
    "large lists of views": (pa.table({"x": pa.array([["a"], []], pa.large_list(pa.string_view()))}),
                             T.ArrayType(T.StringType()), [["a"], []]),
    "pairs of views": (pa.table({"x": pa.array([["a", "b"]], pa.list_(pa.string_view(), 2))}),
                       T.ArrayType(T.StringType()), [["a", "b"]]),
    "categories of views": (
        pa.table({"x": pa.DictionaryArray.from_arrays(pa.array([1, None, 0], pa.uint32()),
                                                      pa.array(["a", "b"], pa.string_view()))}),
        T.StringType(), ["b", None, "a"],
    ),
    "categories of numbers": (pd.DataFrame({"x": pd.Categorical([3, None, 1])}), T.LongType(), [3, None, 1]),
    "times without zone": (pd.DataFrame({"x": [pd.Timestamp("2026-01-31 12:00")]}), T.TimestampNTZType(),
                           [datetime.datetime(2026, 1, 31, 12)]),
    "nanoseconds that are cut": (pd.DataFrame({"x": [pd.Timestamp("2026-01-31 12:00:00.000000001")]}),
                                 T.TimestampNTZType(), [datetime.datetime(2026, 1, 31, 12)]),
    "an index with a name": (pd.DataFrame({"y": [1.0, 2.0]}, index=pd.Index(["a", "b"], name="x")), T.StringType(),
                             ["a", "b"]),
    "a subclass of pandas": (type("Frame", (pd.DataFrame,), {})({"x": ["a"]}, index=[7]), T.StringType(), ["a"]),
    "nulls": (pa.table({"x": pa.array([None, None])}), T.DoubleType(), [None, None]),
    "empty lists": (pd.DataFrame({"x": [[], []]}), T.ArrayType(T.NullType()), [[], []]),
    "large empty lists, as of polars": (pa.table({"x": pa.array([[], None], pa.large_list(pa.null()))}),
                                        T.ArrayType(T.NullType()), [[], None]),
    "lists of categories, as of polars": (
        pa.table({"x": pa.LargeListArray.from_arrays(pa.array([0, None, 2, 3], pa.int64()), CATEGORIES)}),
        T.ArrayType(T.StringType()), [["b", None], None, ["a"]],
    ),
    "pairs of categories in lists of structs": (
        pa.table({"x": pa.array([[{"y": ["b", "a"]}, None], []], pa.list_(pa.struct(
            [("y", pa.list_(pa.dictionary(pa.int8(), pa.string()), 2))]
        )))}).slice(0, 1),
        T.ArrayType(T.StructType([T.StructField("y", T.ArrayType(T.StringType()))])), [[(["b", "a"],), None]],
    ),
    "a lazy table, as of polars": (Lazy(pa.table({"x": ["a"]})), T.StringType(), ["a"]),
    "dicts": ([{"x": 1.0, "y": 2}, {"y": 3}], T.DoubleType(), [1.0, None]),
    "lists": (pa.table({"x": pa.array([[1.0], []], pa.large_list(pa.float32()))}), T.ArrayType(T.FloatType()),
              [[1.0], []]),
    "dates": (pd.DataFrame({"x": [datetime.date(2026, 1, 31)]}), T.DateType(), [datetime.date(2026, 1, 31)]),
    "nanoseconds": (pd.DataFrame({"x": [pd.Timestamp("2026-01-31 12:00", tz="UTC")]}), T.TimestampType(), None),
    "mixed in pandas": (pd.DataFrame({"x": pd.array([1, None], dtype="Int64")}), T.LongType(), [1, None]),
    "no rows": (pd.DataFrame({"x": pd.Series([], dtype="float64")}), T.DoubleType(), []),
}  # fmt: skip


def test_types_that_spark_lacks(spark):
    for name, (table, kind, values) in TYPES.items():
        frame = accepts_tables(lambda data: data)(table)
        assert (name, frame.schema["x"].dataType) == (name, kind)
        if values is not None:
            assert (name, [row["x"] for row in frame.collect()]) == (name, values)


def test_types_that_cannot_be_converted_are_refused(spark):
    for table, message in (
        (pd.DataFrame({"x": [1, "a"]}), "x"),
        (pd.DataFrame([[1, 2]], columns=["x", "x"]), "x"),
        (pa.table([[1], [2]], names=["x", "x"]), "column names are not unique"),
        (pd.DataFrame({"a": [1], "x": [2**70]}), "large"),
        (pa.table({"a": [1], "x": pa.array([1], pa.time32("s"))}), "time32"),
        (pd.DataFrame({"a": [1.0], "x": [pd.Period("2026-01")]}), "x"),
    ):
        with pytest.raises(InvalidParameterError, match=rf"^data cannot be converted for Spark.*{message}") as raised:
            evaluate(table, engine="spark")
        assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (None, "None"),
        (pd.Series([1.0]), "of type Series"),
        (pa.chunked_array([[1.0]]), "of type ChunkedArray"),
        ((row for row in [{"query_id": "q"}]), "of type generator"),
        (pa.table(ROWS).to_reader(), "of type RecordBatchReader"),
        ({"query_id": ["q"]}, "of type dict"),
        ([1, 2], "of type list"),
        (3, "of type int"),
    ],
    ids=lambda element: str(element)[:30],
)
def test_what_is_not_a_table_is_refused_in_one_line(data, what):
    """In the main table, in judgments, and in functions that take no path."""
    forms = "a DataFrame of Spark, pandas or polars, a table of Arrow{} or a list of dicts"
    for call, said in (
        (lambda: evaluate(data), f"data must be a table: {forms.format(', a path')}; it is {what}."),
        (lambda: merge_summaries(data), f"summaries must be a table: {forms.format('')}; it is {what}."),
        (lambda: merge_summaries("metrics/"), f"summaries must be a table: {forms.format('')}; it is of type str."),
    ):
        with pytest.raises(InvalidParameterError) as refused:
            call()
        assert str(refused.value) == said
    if data is not None:
        with pytest.raises(InvalidParameterError, match=r"^judgments must be a table"):
            evaluate([{"query_id": "q", "item_id": "a", "score": 1.0}], data)


def test_refusal_names_the_argument_that_is_not_a_table():
    """An earlier argument may be None."""

    def join(left: DataFrame | None, right: DataFrame) -> object:
        return right.sparkSession

    with pytest.raises(InvalidParameterError, match=r"^right must be a table: .* it is of type int\."):
        accepts_tables(join)(None, 3)


def test_dicts_of_two_types_are_refused_by_column():
    with pytest.raises(InvalidParameterError, match=r"^data cannot be converted for Spark \(column 'y'\): "):
        evaluate([{"x": 1, "y": "a"}, {"y": 1}])


def test_a_convention_is_a_name_or_a_convention(spark):
    for call in (
        lambda: evaluate(pa.table(ROWS), convention=None),
        lambda: explain_difference(pa.table(ROWS), "default", None),
    ):
        with pytest.raises(InvalidParameterError) as refused:
            call()
        assert str(refused.value) == "a convention is the name of a preset or a Convention; got None."


def test_counts_that_pandas_makes_floats_are_whole_numbers(spark):
    """NaN among whole numbers makes them floats: the cutoff of `all` is null."""
    table = spark.createDataFrame(pd.DataFrame(ROWS).fillna(0))
    summary = evaluate(table, k=[1, "all"]).summary
    actual = accepts_tables(lambda data: data)(summary.toPandas())
    assert actual.schema["k"].dataType == T.IntegerType()
    assert collect_rows(merge_summaries(actual)) == collect_rows(merge_summaries(summary))
    fractions = accepts_tables(lambda data: data)(pd.DataFrame({"k": [0.5, None], "n_queries": [1.0, None]}))
    assert [field.dataType for field in fractions.schema] == [T.DoubleType(), T.LongType()]


def test_a_series_is_refused():
    actual = compare(evaluate(pd.DataFrame({**ROWS, "run": ["x", "x", "x", "y", "y"]}), run="run"),
                    runs=pd.Series(["x", "y"]), replicates=0, flips=0).summary  # fmt: skip
    assert set(actual.column("run").to_pylist()) == {"y"}


def test_rankings_of_pandas_are_scored(spark):
    """Results of `rank_queries`, converted to pandas and back, are scored; also losses."""
    settings = evaluation_settings(k=3)
    rankings = rank_queries(pd.DataFrame(ROWS), settings)
    for score in (score_queries, score_losses):
        assert collect_rows(score(rankings.toPandas(), settings)) == collect_rows(score(rankings, settings))
    folds = with_query_folds(pd.DataFrame(ROWS), num_folds=2)
    assert folds.select("query_id", "fold").distinct().count() == 2


def test_row_by_row_functions_take_streams(spark):
    stream = spark.readStream.format("rate").load()
    assert with_query_folds(stream, "value").isStreaming


def test_an_arrow_column_is_refused():
    array = pa.chunked_array([["x", "y"]])  # hands its values over as a table does
    assert accepts_tables(lambda data: data)(array) is array


@pytest.mark.classic("a client has one session of a server")
def test_the_session_is_that_of_a_dataframe_beside_it(spark):
    other = spark.newSession()
    run = other.createDataFrame([("q1", "a", 1.0)], "query_id string, item_id string, score double")
    taken = accepts_tables(lambda data, judgments: judgments)(run, pd.DataFrame(ROWS))
    assert taken.sparkSession is other


def test_convert_tables_leaves_other_values(spark):
    values = ["a", {"b": 1}, None, 3]
    assert accepts_tables(lambda data: data)(values) is values
    with pytest.raises(TypeError, match="positional argument"):
        evaluate("rankings/", "judgments/", "more/")


PROGRAM = """
import pandas as pd
from ndcg_spark import evaluate, read_table
rows = pd.DataFrame({"query_id": ["q", "q"], "item_id": ["a", "b"], "score": [1.0, 2.0], "relevance": [1.0, 0.0]})
rows.to_parquet("rows.parquet")
print(evaluate(%s, k=1, engine="spark").to_pandas().value[0])
"""


@pytest.mark.slow
@pytest.mark.parametrize("table", ["rows", 'read_table("rows.parquet")', '"rows.parquet"'])
def test_a_missing_session_is_started(tmp_path, table):
    """Its workers run this Python, although the `python3` of PATH may lack this package."""
    unset = {name: value for name, value in os.environ.items() if name not in ("PYSPARK_PYTHON", "VIRTUAL_ENV")}
    paths = [path for path in unset["PATH"].split(os.pathsep) if Path(path) != Path(sys.executable).parent]
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM % table], capture_output=True, text=True, check=True, cwd=tmp_path,
        env={**unset, "PATH": os.pathsep.join(paths)},
    )  # fmt: skip
    assert ended.stdout.split() == ["0.0"]
    assert "no active Spark session: started one with Spark" in ended.stderr
