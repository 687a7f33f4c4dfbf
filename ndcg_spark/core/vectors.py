"""Columns of vectors."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import types as T

from ndcg_spark.core.expressions import named


def is_ml_vector(kind: T.DataType) -> bool:
    """Whether a type is that of vectors of `pyspark.ml`."""
    return isinstance(kind, T.UserDefinedType) and type(kind).__name__ == "VectorUDT"


def vector_column(frame: DataFrame, column: str) -> Column | None:
    """Give vectors as array<float>, where they are that, or array<double>; None for a column of something else."""
    kind = frame.schema[column].dataType
    if is_ml_vector(kind):
        from pyspark.ml.functions import vector_to_array

        return vector_to_array(named(column))
    element = kind.elementType if isinstance(kind, T.ArrayType) else None
    if isinstance(element, T.FloatType):
        return named(column)
    return named(column).cast("array<double>") if isinstance(element, T.NumericType) else None
