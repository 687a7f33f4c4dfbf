"""Metrics as columns over arrays: `df.select(ndcg(col("ranked"), col("ideal"), k=10))`."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pandas as pd
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import pandas_udf

from ndcg_spark.conventions.forms import check_discount
from ndcg_spark.conventions.gains import gain_function
from ndcg_spark.core.expressions import refuse
from ndcg_spark.errors import one_of
from ndcg_spark.evaluation.settings import check_cutoffs, cutoff_of
from ndcg_spark.evaluation.tasks.array_metrics import dcg_series, ndcg_series
from ndcg_spark.evaluation.tasks.scoring import NO_RELEVANT_VALUE


def ndcg(
    ranked: Column | str,
    ideal: Column | str | None = None,
    *,
    k: int | str | None = None,
    gain: str = "exponential",
    discount: str = "log2",
    no_relevant: str = "zero",
) -> Column:
    """NDCG of the array in each row.

    Parameters
    ----------
    ranked : Column or str
        Array of numbers: relevances in rank order. A null array is an empty list, and a null relevance gains 0.
    ideal : Column, str or None
        Array of all judged relevances of the query, in any order. None takes those of `ranked`.
    k : int, `"all"` or None
        Cutoff; None is the whole list, as `"all"` is.
    gain, discount : str
        As in `Convention`.
    no_relevant : str
        Value if nothing is relevant: `zero`, `one`, or `skip` for null.

    Returns
    -------
    Column
        Double, named `ndcg(ranked)` or `ndcg(ranked, ideal)` after its arguments. The action raises for a relevance
        that is NaN, infinite, or so large that its gain exceeds 2^63.

    Raises
    ------
    InvalidParameterError

    Notes
    -----
    Spark cost: no shuffle, no action, one pass of both arrays through Python workers.
    """
    one_of("no_relevant", no_relevant, ("zero", "one", "skip"))
    cutoff = _checked(k, gain, discount)
    value = NO_RELEVANT_VALUE[no_relevant]

    def score_itself(lists: pd.Series) -> pd.Series:
        return pd.Series(ndcg_series(lists, lists, gain=gain, discount=discount, k=cutoff, no_relevant=value))

    def score(lists: pd.Series, ideals: pd.Series) -> pd.Series:
        return pd.Series(ndcg_series(lists, ideals, gain=gain, discount=discount, k=cutoff, no_relevant=value))

    if ideal is None:
        return _applied("ndcg", score_itself, ranked)
    return _applied("ndcg", score, ranked, ideal)


def dcg(
    ranked: Column | str, *, k: int | str | None = None, gain: str = "exponential", discount: str = "log2"
) -> Column:
    """DCG of the array in each row.

    Parameters
    ----------
    ranked : Column or str
        Array of numbers: relevances in rank order.
    k : int, `"all"` or None
        Cutoff; None is the whole list, as `"all"` is.
    gain, discount : str
        As in `Convention`.

    Returns
    -------
    Column
        Double, named `dcg(ranked)` after its argument; 0.0 for an empty or null array. The action raises for a
        relevance that is NaN, infinite, or so large that its gain exceeds 2^63.

    Raises
    ------
    InvalidParameterError

    Notes
    -----
    Spark cost: no shuffle, no action, one pass of the array through Python workers.
    """
    cutoff = _checked(k, gain, discount)

    def score(lists: pd.Series) -> pd.Series:
        return pd.Series(dcg_series(lists, gain=gain, discount=discount, k=cutoff, best_first=False))

    return _applied("dcg", score, ranked)


def _checked(k: int | str | None, gain: str, discount: str) -> int | None:
    """Return the cutoff, unless it or another option is refused."""
    cutoff = cutoff_of(k)
    check_cutoffs((cutoff,))
    gain_function(gain)
    check_discount(discount, cutoff)
    return cutoff


def _applied(name: str, function: Callable[..., pd.Series], *columns: Column | str) -> Column:
    """Apply a function of pandas Series to columns, under the same name on classic sessions and on Connect."""
    scored = pandas_udf(function, "double")  # type: ignore[call-overload]  # its stubs leave plain functions out
    found = cast("Column", scored(*[_without_nan(column) for column in columns]))
    return found.alias(f"{name}({', '.join(_shown(column) for column in columns)})")


def _without_nan(column: Column | str) -> Column:
    """Make the action raise for a NaN in an array: pandas shows nulls as NaN, so it is too late in the worker.

    Nobody knows the type of a column before a table is selected from. So this is an expression of arrays of any
    type, which also raises where they are of structs: NaN is above all numbers, and has a text as everything has.
    """
    array, shown = F.col(column) if isinstance(column, str) else column, _shown(column)
    kind = F.typeof(array)
    advice = "NaN is a bad value; make it null (an unjudged item) or take the item out."
    structs = refuse(
        f"the array {shown} is ", kind, "; it must be one of numbers: pass one field, such as "
        f"transform({shown}, x -> x.relevance).",
    )  # fmt: skip
    has_nan = F.lower(F.array_max(array).cast("string")) == "nan"
    return (
        F.when(kind.startswith("array<struct"), structs)
        .when(has_nan, refuse(f"nan_relevance in the array {shown}: {advice}"))
        .otherwise(array)
    )


def _shown(column: Column | str) -> str:
    """What a column is called for a person: `Column<'rels'>` is `rels`."""
    return column if isinstance(column, str) else str(column).removeprefix("Column<'").removesuffix("'>")
