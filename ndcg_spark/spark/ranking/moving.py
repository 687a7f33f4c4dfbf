"""Rows of files that workers read, and Spark moves to the other rows of their query in packed batches."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from ndcg_spark.spark.ranking.stored import estimated_size
from ndcg_spark.worker.batches import BatchFunction
from ndcg_spark.worker.moving import MoveTask, make_mover
from ndcg_spark.worker.pieces import CutTask

ROWS_OF_A_PARTITION, BYTES_OF_A_PARTITION = 2**21, 2**26
"""That a worker puts together at once."""
FEWEST, MOST = 8, 2**16
_SCHEMA = T.StructType([T.StructField("label", T.IntegerType()), T.StructField("rows", T.BinaryType())])


def by_query(frame: DataFrame, task: CutTask, summarize: BatchFunction, schema: T.StructType) -> DataFrame:
    """Let workers read the parts of a table, a task each, and others work on the rows of queries.

    Reads the footer and the first rows of a file, runs no action.

    Parameters
    ----------
    frame : DataFrame
        The table, for its session and files.
    task : CutTask
    summarize : callable
        From batches with packed `rows`, of which a partition has all of a query; see `worker.moving`.
    schema : StructType
        Of what it gives.

    Returns
    -------
    DataFrame
        Lazy.

    Notes
    -----
    Spark cost: two passes through Python workers, and between them one shuffle of all rows, columnar, in packed
    batches: of 100 million rows some 20,000.
    """
    n_partitions = _n_partitions(frame, task)
    labels = labels_of_partitions(n_partitions)
    numbers = frame.sparkSession.range(0, len(task.parts), 1, max(1, len(task.parts)))
    moved = numbers.mapInArrow(make_mover(MoveTask(cut=task, labels=labels)), schema=_SCHEMA)
    return moved.repartition(n_partitions, "label").mapInArrow(summarize, schema=schema)


def _n_partitions(frame: DataFrame, task: CutTask) -> int:
    n_rows, n_bytes = estimated_size(frame, task.plan)
    wanted = max(n_rows / ROWS_OF_A_PARTITION, n_bytes / BYTES_OF_A_PARTITION)
    return min(MOST, max(FEWEST, round(wanted)))


def labels_of_partitions(n: int) -> tuple[int, ...]:
    """Find for each of n partitions a number that Spark's hash sends there.

    Parameters
    ----------
    n : int

    Returns
    -------
    tuple of int
        The first such number, from 0 on. Were Spark to hash otherwise, partitions would only be uneven.

    References
    ----------
    MurmurHash3, x86, 32 bits, of a block of four bytes, with seed 42, as Spark's `hash` function documents.

    Examples
    --------
    >>> labels_of_partitions(3)
    (0, 1, 11)
    """
    labels: dict[int, int] = {}
    label = 0
    while len(labels) < n:
        labels.setdefault(_signed(_murmur(label)) % n, label)
        label += 1
    return tuple(labels[partition] for partition in range(n))


def _murmur(number: int, seed: int = 42) -> int:
    key = (_rotated(number * 0xCC9E2D51 % 2**32, 15) * 0x1B873593) % 2**32
    found = (_rotated(seed ^ key, 13) * 5 + 0xE6546B64) % 2**32 ^ 4
    found = (found ^ found >> 16) * 0x85EBCA6B % 2**32
    found = (found ^ found >> 13) * 0xC2B2AE35 % 2**32
    return found ^ found >> 16


def _rotated(word: int, n: int) -> int:
    return (word << n | word >> (32 - n)) % 2**32


def _signed(word: int) -> int:
    return word - 2**32 if word >= 2**31 else word
