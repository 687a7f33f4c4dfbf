"""Spark's hash of texts without Spark: known values, and values of Spark."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from ndcg_spark.core.hashing import hash_texts

TEXTS = ["", "a", "q01", "naïve 東京 \U0001f600", "\u0000", "x" * 7, "y" * 31, "z" * 32, "w" * 33, "v" * 1000, None]


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (("q01",), 0x9F1351CFBEA4F3F7),
        (("s1", "shoes"), 0xBBC10728CE977E93),
        ((None, "q01"), 0x9F1351CFBEA4F3F7),
        (("q01", None), 0x9F1351CFBEA4F3F7),
    ],
)
def test_known_values(keys, expected):
    assert hash_texts("compare", [pa.array([key], pa.string()) for key in keys]).tolist() == [expected]


def test_no_rows():
    assert hash_texts("compare", [pa.array([], pa.string())]).tolist() == []


def test_the_same_as_spark(spark):
    pairs = [(text, other) for text in TEXTS for other in TEXTS]
    frame = spark.createDataFrame(pairs, "a string, b string").coalesce(1)
    actual = [row[0] % 2**64 for row in frame.select(F.xxhash64(F.lit("ü"), "a", "b")).collect()]
    columns = [pa.array(texts, pa.string()) for texts in zip(*pairs, strict=True)]
    assert hash_texts("ü", columns).tolist() == actual
