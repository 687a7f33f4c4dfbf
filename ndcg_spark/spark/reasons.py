"""Why a row cannot be used."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark.conventions import Convention
from ndcg_spark.kernels.gains import parse_gain_table, relevance_range
from ndcg_spark.plan import LARGEST_RANK, EvaluationPlan
from ndcg_spark.spark.expressions import MALFORMED as MALFORMED  # among the reasons for those who import them
from ndcg_spark.spark.expressions import named

BAD_ROW = "bad_row"
Reasons = list[tuple[str, Column]]


def malformed_reasons(frame: DataFrame) -> Reasons:
    """Why a line of a text format is no row at all.

    Parameters
    ----------
    frame : DataFrame

    Returns
    -------
    list of (name, condition)
    """
    return [(MALFORMED, F.col(MALFORMED).isNotNull())] if MALFORMED in frame.columns else []


def is_whole(frame: DataFrame, column: str) -> bool:
    """Whether a column can hold nothing but whole numbers and nulls. Reads the schema, runs no action.

    Parameters
    ----------
    frame : DataFrame
    column : str

    Returns
    -------
    bool
        Checks that its type rules out are left away: each costs time for every row.
    """
    return isinstance(frame.schema[column].dataType, T.IntegralType | T.BooleanType)


def rank_reasons(rank: Column, plan: EvaluationPlan, *, whole: bool) -> Reasons:
    """Why a given rank cannot be used.

    Parameters
    ----------
    rank : Column
        Double, or of whole numbers where `whole`.
    plan : EvaluationPlan
    whole : bool
        See `is_whole`.

    Returns
    -------
    list of (name, condition)
    """
    missing = [rank.isNull()] if plan.null_score == "bad" else []
    missing += [] if whole else [F.isnan(rank)]
    reasons: Reasons = [("null_rank", reduce(Column.__or__, missing))] if missing else []
    reasons += [("rank_below_1", rank < 1), ("rank_too_large", rank > LARGEST_RANK)]
    return reasons if whole else [*reasons, ("rank_not_whole", rank % 1 != 0)]


def relevance_reasons(relevance: Column, column: str, plan: EvaluationPlan, *, whole: bool) -> Reasons:
    """Why a relevance cannot be used.

    Parameters
    ----------
    relevance : Column
        Double, or of whole numbers where `whole`.
    column : str
        What it was read from.
    plan : EvaluationPlan
    whole : bool
        See `is_whole`.

    Returns
    -------
    list of (name, condition)
    """
    convention = plan.convention
    reasons: Reasons = []
    if not whole:
        reasons = [
            ("relevance_not_a_number", relevance.isNull() & named(column).isNotNull()),
            ("nan_relevance", F.isnan(relevance)),
            ("infinite_relevance", F.abs(relevance) == float("inf")),
        ]
    reasons += [("gain_overflow", overflows(relevance)) for overflows in gain_overflows(convention)]
    if isinstance(convention.gain, str) and convention.gain.startswith("table:"):
        levels = list(parse_gain_table(convention.gain.partition(":")[2]))
        clipped = (
            F.when(relevance < 0, F.lit(0.0)).otherwise(relevance) if convention.negative == "clip" else relevance
        )
        reasons.append(("level_without_gain", ~clipped.isin(levels)))
    if convention.negative == "error":
        reasons.append(("negative_relevance", relevance < 0))
    return reasons


def gain_overflows(convention: Convention) -> list[Callable[[Column], Column]]:
    """Tell relevances whose gain would be above 2^63 in size.

    Parameters
    ----------
    convention : Convention

    Returns
    -------
    list of callable
        Conditions on a column of relevances; none where no gain can be too large.
    """
    lowest, highest = relevance_range(convention.gain)
    found: list[Callable[[Column], Column]] = []
    if highest < float("inf"):
        found.append(lambda relevance: relevance > highest)
    if lowest > -float("inf") and convention.negative != "clip":
        found.append(lambda relevance: relevance < lowest)
    return found


def with_reason(frame: DataFrame, selected: dict[str, Column], reasons: Reasons, *, originals: bool) -> DataFrame:
    """Select columns, with the first reason that holds beside them as `bad_row`.

    Parameters
    ----------
    frame : DataFrame
    selected : dict from name to Column
    reasons : list of (name, condition)
    originals : bool
        Keep the columns as they are instead.

    Returns
    -------
    DataFrame
        Lazy.
    """
    reason = F.lit(None).cast("string")
    for name, bad in reversed(reasons):
        reason = F.when(bad, F.lit(name)).otherwise(reason)
    chosen = [F.col("*")] if originals else [column.alias(name) for name, column in selected.items()]
    return frame.select(*chosen, reason.alias(BAD_ROW))
