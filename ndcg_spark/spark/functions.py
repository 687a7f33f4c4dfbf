"""Metrics as columns over arrays: `df.select(ndcg(col("ranked"), col("ideal"), k=10))`."""

from __future__ import annotations

from typing import cast

import pandas as pd
from pyspark.sql import Column
from pyspark.sql.pandas.functions import pandas_udf

from ndcg_spark.errors import one_of
from ndcg_spark.kernels.discounts import check_discount
from ndcg_spark.kernels.gains import gain_function
from ndcg_spark.worker.array_metrics import dcg_series, ndcg_series
from ndcg_spark.worker.scoring import NO_RELEVANT_VALUE


def ndcg(
    ranked: Column | str,
    ideal: Column | str | None = None,
    *,
    k: int | None = None,
    gain: str = "exponential",
    discount: str = "log2",
    no_relevant: str = "zero",
) -> Column:
    """NDCG of the array in each row.

    Parameters
    ----------
    ranked : Column or str
        Array of numbers: relevances in rank order. A null array has no items, a null relevance gains 0.
    ideal : Column, str or None
        Array of all judged relevances of the query, in any order. None: those of `ranked`.
    k : int or None
        Cutoff; None is the whole list.
    gain, discount : str
        As in `Convention`.
    no_relevant : str
        Value where nothing is relevant: `zero`, `one`, or `skip` for null.

    Returns
    -------
    Column
        Double.

    Notes
    -----
    Spark cost: no shuffle, no action, one pass through Python workers of both arrays.
    """
    one_of("no_relevant", no_relevant, ("zero", "one", "skip"))
    gain_function(gain)
    check_discount(discount, k)
    value = NO_RELEVANT_VALUE[no_relevant]

    def score(lists: pd.Series, ideals: pd.Series) -> pd.Series:
        found = ndcg_series(lists, ideals, gain=gain, discount=discount, k=k, no_relevant=value)
        return pd.Series(found)

    scored = pandas_udf(score, "double")  # type: ignore[call-overload]  # its stubs leave plain functions out
    return cast("Column", scored(ranked, ranked if ideal is None else ideal))


def dcg(ranked: Column | str, *, k: int | None = None, gain: str = "exponential", discount: str = "log2") -> Column:
    """DCG of the array in each row.

    Parameters
    ----------
    ranked : Column or str
        Array of numbers: relevances in rank order.
    k : int or None
        Cutoff; None is the whole list.
    gain, discount : str
        As in `Convention`.

    Returns
    -------
    Column
        Double; 0.0 for an empty or null array.

    Notes
    -----
    Spark cost: no shuffle, no action, one pass through Python workers of the array.
    """
    gain_function(gain)
    check_discount(discount, k)

    def score(lists: pd.Series) -> pd.Series:
        return pd.Series(dcg_series(lists, gain=gain, discount=discount, k=k, best_first=False))

    scored = pandas_udf(score, "double")  # type: ignore[call-overload]  # its stubs leave plain functions out
    return cast("Column", scored(ranked))
