"""What is aggregated beside the lists: counts that account for every row, and columns carried along."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ndcg_spark.plan import EvaluationPlan
from ndcg_spark.spark.expressions import guarded, key_text, named


def counts(rows: DataFrame, plan: EvaluationPlan) -> dict[str, Column]:
    """Aggregate the counts that account for every row, and the columns carried along.

    Parameters
    ----------
    rows : DataFrame
    plan : EvaluationPlan

    Returns
    -------
    dict from name to aggregate
        `low:NAME` and `high:NAME` for a carried column: they differ where it is not constant in a query.
    """
    ranks = "rank" if "rank" in rows.columns else "score" if "score" in rows.columns else None
    n_used = F.count(F.lit(1))
    if ranks is not None and plan.null_score == "bad":
        # Counts rows as well and refuses bad ones. Lists may not: joined by key, they see no row that has none.
        n_used = F.count(named(ranks))
    n_rows = F.sum("copies") if "copies" in rows.columns else n_used
    found = {"n_rows": n_rows}
    left_out = n_rows - n_used if "copies" in rows.columns else F.lit(0).cast("bigint")
    if ranks is not None:
        found["n_items"] = n_used if plan.null_score == "bad" else F.count(F.when(named(ranks).isNotNull(), 1))
        if plan.convention.unjudged == "condensed" and "relevance" in rows.columns:
            left_out = left_out + F.count(F.when(named(ranks).isNotNull() & F.col("relevance").isNull(), 1))
    found["n_left_out"] = left_out
    if "relevance" in rows.columns:
        found["n_judged"] = F.count("relevance")
        found["n_relevant"] = F.sum(F.when(F.col("relevance") > 0, 1).otherwise(0))  # quicker than a count of some
    for name in carried(rows, plan):
        found[f"low:{name}"], found[f"high:{name}"] = F.min(named(name)), F.max(named(name))
    return found


def carried(rows: DataFrame, plan: EvaluationPlan) -> list[str]:
    """Columns handed along with each query that this table has.

    Parameters
    ----------
    rows : DataFrame
    plan : EvaluationPlan

    Returns
    -------
    list of str
    """
    names = [*plan.carried_segments, *(["weight"] if plan.columns.weight else [])]
    return [name for name in names if name in rows.columns]


def settled(grouped: DataFrame, keys: tuple[str, ...], names: list[str], plan: EvaluationPlan) -> DataFrame:
    """Replace `low:NAME` and `high:NAME` by NAME, refusing a query in which they differ.

    Parameters
    ----------
    grouped : DataFrame
    keys : tuple of str
    names : list of str
    plan : EvaluationPlan

    Returns
    -------
    DataFrame
        Lazy.
    """
    shown_names = {"weight": plan.columns.weight}
    for name in names:
        low, high = named(f"low:{name}"), named(f"high:{name}")
        kind = grouped.schema[f"low:{name}"].dataType.simpleString()
        shown = shown_names.get(name, name)
        message = (f"column {shown!r} has more than one value in query ", key_text(keys), ".")
        one = guarded(low, low != high, *message, kind=kind)
        grouped = grouped.withColumn(name, one).drop(f"low:{name}", f"high:{name}")
    return grouped
