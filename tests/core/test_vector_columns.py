"""Columns of vectors are read as arrays of floats or doubles; other columns are refused."""

from __future__ import annotations

from pyspark.ml.linalg import Matrices, Vectors
from pyspark.sql import types as T

from ndcg_spark.core.columns import is_ml_vector, vector_column


def test_arrays_of_numbers_are_vectors(spark):
    for column, kind in (
        ("array(1.5f)", "array<float>"),  # as they are: half of the bytes
        ("array(1.5d)", "array<double>"),
        ("array(1)", "array<double>"),
        ("array(1.5bd)", "array<double>"),
        ("array('1')", None),
        ("1.0d", None),
    ):
        frame = spark.range(1).selectExpr(f"{column} AS x")
        actual = vector_column(frame, "x")
        shown = None if actual is None else frame.select(actual.alias("x")).schema["x"].dataType.simpleString()
        assert (column, shown) == (column, kind)


def test_vectors_of_spark_are_read_and_other_udts_refused(spark):
    frame = spark.createDataFrame([(Vectors.dense(1.5, 2.0), Matrices.dense(1, 1, [1.0]))], ["vector", "matrix"])
    assert frame.select(vector_column(frame, "vector").alias("x")).first()["x"] == [1.5, 2.0]
    assert not is_ml_vector(frame.schema["matrix"].dataType)
    assert not is_ml_vector(T.DoubleType())
    assert vector_column(frame, "matrix") is None
