"""Where the rows of a query lie in a table, which decides whether lists are cut before the shuffle.

A list cut to K takes the room of K entries in every input partition that has a row of its query. Where a partition
has few rows of each query, the rows themselves take less.
"""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ndcg_spark.kernels.ragged import IntArray
from ndcg_spark.plan import EvaluationPlan
from ndcg_spark.spark.expressions import columns_of
from ndcg_spark.spark.ranking.stored import in_order

FIRST_ROWS = 20_000
ROWS_OF_A_PARTITION = 1_000_000
"""About as many as tens of megabytes of parquet hold, which is what Spark reads at once."""
WORTH_CUTTING = 4
"""Rows per entry of a cut list from which cutting paid (20 million rows, 10, 30 and 100 a query, k = 10)."""
LARGEST_SHARE = 0.1
"""Of the rows, in one query: more would make one task of the moved rows much longer than the others."""
SMALL = 64.0
"""Megabytes below which nothing is gained by looking."""
_UNITS = {"B": 2.0**-20, "KiB": 2.0**-10, "MiB": 1.0}


def size_in_words(frame: DataFrame) -> str:
    """What Spark's own statistics say of the size of a table. Runs no action.

    Parameters
    ----------
    frame : DataFrame

    Returns
    -------
    str
        `size unknown`, or such as `1.5 GiB` or `1.5 GiB, 1.00E+6 rows`: the files' size, or an estimate of what a
        query gives.
    """
    printed = io.StringIO()
    with redirect_stdout(printed):
        frame.explain(mode="cost")
    found = re.search(r"sizeInBytes=([\d.E+]+ \w+)(?:, rowCount=([\d.E+]+))?", printed.getvalue())
    if found is None:
        return "size unknown"
    size, n_rows = found.groups()
    return f"{size}, {n_rows} rows" if n_rows else size


def look_at_layout(frame: DataFrame, plan: EvaluationPlan) -> str:
    """Tell from the first rows how a table lies. Runs an action: it reads 20,000 rows, unless there is no need.

    Parameters
    ----------
    frame : DataFrame
        A long table that is read as it lies, not a query whose result must first be computed.
    plan : EvaluationPlan

    Returns
    -------
    str
        One of `plan.LAYOUTS`; `together` without a look for a small table, and for files in the order of queries.

    Notes
    -----
    Spark cost: one job of one task where the first partition has so many rows; a column of 20,000 hashes comes to
    the driver.
    """
    if plan.longest is None or _is_small(frame) or in_order(frame, plan):
        return "together"
    first = frame.select(F.xxhash64(*columns_of(plan.columns.keys))).limit(FIRST_ROWS)
    hashes = [query for (query,) in first.collect()]  # toPandas would take so many of every partition
    return layout_of(np.array(hashes, dtype=np.int64), plan.longest)


def layout_of(queries: IntArray, k: int) -> str:
    """Tell from the queries of successive rows how a table lies.

    Parameters
    ----------
    queries : int64, shape (n_rows,)
    k : int

    Returns
    -------
    str
        `scattered` where an input partition is expected to have fewer than 4 k rows of each query: because queries
        have no more, or because their rows lie far apart. `together` also where one query has a tenth of the rows,
        which would all go to one task.

    Notes
    -----
    Queries that come in one piece are as long as they look. Else their number Q is estimated from the chance that
    two of n rows share one, n^2 / 2Q, and a partition of a million rows has so many rows of each.

    Examples
    --------
    >>> import numpy as np
    >>> layout_of(np.repeat(np.arange(200), 100), 10), layout_of(np.tile(np.arange(10_000), 2), 10_000)
    ('together', 'scattered')
    """
    n_rows = len(queries)
    if n_rows < FIRST_ROWS:
        return "together"
    counts = np.unique(queries, return_counts=True)[1]
    n_pieces = 1 + np.count_nonzero(np.diff(queries))
    if counts.max() > LARGEST_SHARE * n_rows:
        return "together"
    if n_pieces < 2 * len(counts):
        rows_of_a_query = n_rows / len(counts)
    else:
        n_shared = max(n_rows - len(counts), 1)
        rows_of_a_query = ROWS_OF_A_PARTITION / max(len(counts), n_rows**2 / (2 * n_shared))
    return "together" if rows_of_a_query >= WORTH_CUTTING * k else "scattered"


def _is_small(frame: DataFrame) -> bool:
    size, unit = size_in_words(frame).split(",")[0].split(" ")
    return unit in _UNITS and float(size) * _UNITS[unit] < SMALL
