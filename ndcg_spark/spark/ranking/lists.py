"""One row per query by plain aggregation: counts, carried columns, and lists by top-K aggregates.

Relevances, items and counts of a query come out of one `groupBy`. The K best by score and the K best by
relevance are `max_by(value, order, K)`: they merge, so they are cut before the shuffle.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ndcg_spark.kernels.gains import parse_gain_table
from ndcg_spark.plan import EvaluationPlan
from ndcg_spark.spark.expressions import columns_of, guarded, key_text, named

ENTRIES = "array<double>"


def rankable(rows: DataFrame, plan: EvaluationPlan) -> Column:
    """Whether a row is in the ranking at all: retrieved, and judged where unjudged items are removed.

    Parameters
    ----------
    rows : DataFrame
        Canonical rows.
    plan : EvaluationPlan

    Returns
    -------
    Column
        Boolean.
    """
    retrieved = named("rank" if "rank" in rows.columns else "score").isNotNull()
    if plan.convention.unjudged == "condensed" and "relevance" in rows.columns:
        return retrieved & F.col("relevance").isNotNull()
    return retrieved


def every_row_ranks(rows: DataFrame, plan: EvaluationPlan) -> bool:
    """Whether `rankable` is always true, so that no filter is needed.

    Parameters
    ----------
    rows : DataFrame
    plan : EvaluationPlan

    Returns
    -------
    bool
    """
    condensed = plan.convention.unjudged == "condensed" and "relevance" in rows.columns
    return plan.null_score == "bad" and not condensed


def tie_order(plan: EvaluationPlan) -> tuple[bool, list[Column]]:
    """How rows rank by score, as a key for `max_by` or `min_by`.

    Parameters
    ----------
    plan : EvaluationPlan

    Returns
    -------
    tuple
        Whether the largest key ranks first, and the parts of the key.
    """
    ties = plan.convention.ties
    if ties == "item_desc":
        return True, [F.col("score"), F.col("item")]
    return False, [-F.col("score"), F.col("position" if ties == "input_order" else "item")]


def ideal_order(rows: DataFrame, plan: EvaluationPlan) -> Column:
    """By what judged items are put in ideal order: relevance, or gain where a table need not rise with it.

    Parameters
    ----------
    rows : DataFrame
    plan : EvaluationPlan

    Returns
    -------
    Column
        Null for rows that are not in the ideal list.
    """
    convention = plan.convention
    order = F.col("relevance")
    if isinstance(convention.gain, str) and convention.gain.startswith("table:"):
        level = F.when(order < 0, F.lit(0.0)).otherwise(order) if convention.negative == "clip" else order
        gain = F.lit(None).cast("double")
        for relevance, value in parse_gain_table(convention.gain.partition(":")[2]).items():
            gain = F.when(level == relevance, F.lit(value)).otherwise(gain)
        order = gain
    if convention.ideal == "retrieved" and not every_row_ranks(rows, plan):
        order = F.when(rankable(rows, plan), order)
    return order


def entry(rows: DataFrame, *, with_item: bool) -> Column:
    """What a list holds of each row: the relevance, and the item where duplicates are looked for.

    Parameters
    ----------
    rows : DataFrame
    with_item : bool

    Returns
    -------
    Column
        Struct.
    """
    names = [name for name in ("relevance", "item") if name in rows.columns]
    return F.struct(*columns_of([name for name in names if name != "item" or with_item]))


def top_ranked(rows: DataFrame, plan: EvaluationPlan, value: Column, k: int) -> Column:
    """Aggregate the K best rows of a query by score, in rank order.

    Parameters
    ----------
    rows : DataFrame
    plan : EvaluationPlan
    value : Column
        What to keep of each row.
    k : int

    Returns
    -------
    Column
        Array; null where no row ranks.
    """
    largest_first, parts = tie_order(plan)
    order = F.struct(*parts)
    if not every_row_ranks(rows, plan):
        order = F.when(rankable(rows, plan), order)  # the aggregate skips rows whose order is null
    return F.call_function("max_by" if largest_first else "min_by", value, order, F.lit(k))


def top_relevant(rows: DataFrame, plan: EvaluationPlan, k: int, *, with_item: bool) -> Column:
    """Aggregate the K best judged rows of a query by gain.

    Parameters
    ----------
    rows : DataFrame
    plan : EvaluationPlan
    k : int
    with_item : bool
        Keep items too, ordered by item within equal gains, so that a duplicate is found whatever the row order.

    Returns
    -------
    Column
        Array; null where nothing is judged.
    """
    order = ideal_order(rows, plan)
    if with_item:
        order = F.when(order.isNotNull(), F.struct(order, F.col("item")))
    return F.call_function("max_by", entry(rows, with_item=with_item), order, F.lit(k))


def given_ranks(plan: EvaluationPlan, value: Column) -> Column:
    """Aggregate the rows whose given rank is within the largest cutoff, in rank order.

    Parameters
    ----------
    plan : EvaluationPlan
    value : Column

    Returns
    -------
    Column
        Array of struct(rank, entry).
    """
    pair = F.struct(F.col("rank"), value.alias("entry"))
    within = F.col("rank").isNotNull() if plan.longest is None else F.col("rank") <= plan.longest
    pair = F.when(within, pair)
    return F.sort_array(F.collect_list(pair))


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
    n_rows = F.sum("copies") if "copies" in rows.columns else F.count(F.lit(1))
    found = {"n_rows": n_rows}
    ranks = "rank" if "rank" in rows.columns else "score" if "score" in rows.columns else None
    left_out = n_rows - F.count(F.lit(1)) if "copies" in rows.columns else F.lit(0).cast("bigint")
    if ranks is not None:
        n_retrieved = F.count(F.lit(1)) if plan.null_score == "bad" else F.count(F.when(named(ranks).isNotNull(), 1))
        found["n_items"] = n_retrieved
        if plan.convention.unjudged == "condensed" and "relevance" in rows.columns:
            left_out = left_out + F.count(F.when(named(ranks).isNotNull() & F.col("relevance").isNull(), 1))
    found["n_left_out"] = left_out
    if "relevance" in rows.columns:
        found["n_judged"] = F.count("relevance")
        found["n_relevant"] = F.count(F.when(F.col("relevance") > 0, 1))
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


def empty_list() -> Column:
    """Give a list of nothing.

    Returns
    -------
    Column
        Array of double.
    """
    return F.array().cast(ENTRIES)
