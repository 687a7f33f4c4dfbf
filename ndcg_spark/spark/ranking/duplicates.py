"""The same (query, item) twice: one of them is kept, or the evaluation is refused."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ndcg_spark.errors import InvalidParameterError
from ndcg_spark.plan import EvaluationPlan
from ndcg_spark.spark.expressions import columns_of, guarded, key_text, named
from ndcg_spark.spark.ranking.lists import ENTRIES

_ADVICE = " Remove it, or say which counts (duplicates=best or first)."


def resolve_duplicates(rows: DataFrame, plan: EvaluationPlan, keys: tuple[str, ...]) -> DataFrame:
    """Keep one row of each (query, item), with the number of `copies` it stands for.

    Parameters
    ----------
    rows : DataFrame
        Canonical rows of a run, or of judgments.
    plan : EvaluationPlan
        Under `duplicates=error` rows are left as they are, unless `check_duplicates=all`: duplicates are then looked
        for in the lists that ranking makes, or nowhere.
    keys : tuple of str

    Returns
    -------
    DataFrame
        Lazy. `best` keeps the best score (of judgments: the highest relevance), `first` the first by the
        order column; equal ones are told apart by relevance, so that the choice does not depend on row order.

    Raises
    ------
    InvalidParameterError
        When `first` is asked of a judgments table without the order column.

    Notes
    -----
    Spark cost: one shuffle of all rows by (query, item), unless nothing is to be done.
    """
    policy = plan.convention.duplicates
    if "item" not in rows.columns or (policy == "error" and plan.check_duplicates != "all"):
        return rows
    if policy == "first" and "position" not in rows.columns:
        raise InvalidParameterError("duplicates=first needs the order column (order-col) in the judgments too.")
    group = [*keys, "item"]
    rest = [name for name in rows.columns if name not in group]
    best = [-F.col("position")] if policy == "first" else []
    if policy != "first" and "rank" in rows.columns:
        best = [-F.col("rank")]
    elif policy != "first" and "score" in rows.columns:
        best = [F.col("score")]
    best += [F.col("relevance")] if "relevance" in rows.columns else []
    kept = F.max_by(F.struct(*columns_of(rest)), F.struct(*best))
    found = rows.groupBy(*columns_of(group)).agg(kept.alias("kept"), F.count(F.lit(1)).alias("copies"))
    flat = found.select(*columns_of(group), "copies", *[F.col("kept")[name].alias(name) for name in rest])
    if policy != "error":
        return flat
    guard = next(name for name in ("score", "rank", "relevance") if name in flat.columns)
    kind = flat.schema[guard].dataType.simpleString()
    message = (
        "item ",
        F.col("item").cast("string"),
        " comes ",
        F.col("copies").cast("string"),
        " times in query ",
    )
    once = guarded(named(guard), F.col("copies") > 1, *message, key_text(keys), ".", kind=kind)
    return flat.withColumn(guard, once)


def refuse_repeated_items(top: DataFrame, keys: tuple[str, ...]) -> DataFrame:
    """Raise on the worker where two rows of a query have one item.

    Parameters
    ----------
    top : DataFrame
        Rows with `item` and `score`.
    keys : tuple of str

    Returns
    -------
    DataFrame
        The same rows; lazy.

    Notes
    -----
    Spark cost: a sort of these rows within the partitioning by query that they have.
    """
    by_item = Window.partitionBy(*columns_of(keys)).orderBy("item")
    repeated = F.coalesce(F.lag("item").over(by_item) == F.col("item"), F.lit(False))
    message = ("item ", F.col("item").cast("string"), " comes twice in the ranking or its judgments of query ")
    checked = guarded(F.col("score"), F.col("repeated"), *message, key_text(keys), f".{_ADVICE}", kind="double")
    return top.withColumn("repeated", repeated).withColumn("score", checked).drop("repeated")


def relevances_of(entries: Column, keys: tuple[str, ...], kind: str, *, with_item: bool) -> Column:
    """Give the relevances of a list of entries, refusing one that has an item twice.

    Parameters
    ----------
    entries : Column
        Array of struct with `relevance`, and `item` where duplicates are looked for.
    keys : tuple of str
    kind : str
        Of the list, for the message.
    with_item : bool
        Whether duplicates are looked for.

    Returns
    -------
    Column
        Array of double.
    """
    relevances = entries.getField("relevance").cast(ENTRIES)
    if not with_item:
        return relevances
    return refuse_repeats(relevances, entries.getField("item"), F.size(entries), keys, kind)


def certain_ideal(grouped: DataFrame, keys: tuple[str, ...], k: int | None, *, with_nulls: bool) -> DataFrame:
    """Give `ideal`, the k best relevances, refusing an item that is certainly in it twice.

    Parameters
    ----------
    grouped : DataFrame
        With `best`, structs of relevance and item (null: not looked at), and maybe `orders`: of up to k + 1 elements.
    keys : tuple of str
    k : int or None
        None: the lists are whole.
    with_nulls : bool
        Whether items can be null; to leave them out costs a loop that Spark does not compile.

    Returns
    -------
    DataFrame
        Lazy. Of items that tie across the end of the list, which are in it is chance, and they are not looked at:
        the refusal must not depend on the order of rows.
    """
    best = F.col("best")
    ideal, items = best.getField("relevance").cast(ENTRIES), best.getField("item")
    orders = F.col("orders") if "orders" in grouped.columns else best.getField("relevance")
    certain = items
    if k is not None:
        beyond = F.get(orders, F.lit(k))  # null where the list is not longer than k
        first_beyond = F.call_function("array_position", orders, beyond)  # F.array_position of 3.5 takes no column
        n_certain = F.coalesce((first_beyond - 1).cast("int"), F.size(items))
        ideal, certain = F.slice(ideal, 1, k), F.slice(items, F.lit(1), n_certain)
    looked_at = F.array_compact(certain) if with_nulls else certain
    ideal = refuse_repeats(ideal, looked_at, F.size(best), keys, "judgments")
    return grouped.withColumn("ideal", F.when(best.isNotNull(), ideal)).drop("best", "orders")


def refuse_repeats(relevances: Column, items: Column, n_listed: Column, keys: tuple[str, ...], kind: str) -> Column:
    """Give relevances, or raise where the items beside them repeat.

    Parameters
    ----------
    relevances, items : Column
        Arrays.
    n_listed : Column
        At least the number of items, and cheap to compute: of one item no set is made.
    keys : tuple of str
    kind : str

    Returns
    -------
    Column
        Array of double.
    """
    twice = (n_listed > 1) & (F.size(F.array_distinct(items)) < F.size(items))
    message = (f"an item comes twice in the {kind} of query ", key_text(keys), f".{_ADVICE}")
    return guarded(relevances, twice, *message, kind=ENTRIES)
