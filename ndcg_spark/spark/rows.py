"""Tables of any naming to canonical rows, and which rows are bad.

Canonical columns: `run` (only where rankers are named), the query columns under their own names, `item`
(where there is one), `score` or `rank`, `relevance`, carried segment columns, `weight`, `position`, and
`bad_row`: the reason why a row cannot be used, null for a good one.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark.errors import InvalidParameterError
from ndcg_spark.plan import LARGEST_RANK, LARGEST_WEIGHT, EvaluationPlan
from ndcg_spark.spark.expressions import guarded, key_text, named, number, require_column
from ndcg_spark.spark.reasons import (
    BAD_ROW,
    Reasons,
    is_whole,
    malformed_reasons,
    rank_reasons,
    relevance_reasons,
    with_reason,
)
from ndcg_spark.spark.sampling import sampled


def keys_of(plan: EvaluationPlan) -> tuple[str, ...]:
    """Columns that name a query of a run: the query columns, after `run` where rankers are named.

    Parameters
    ----------
    plan : EvaluationPlan

    Returns
    -------
    tuple of str
    """
    columns = plan.columns
    has_runs = columns.run is not None or len(columns.score) > 1
    return (("run",) if has_runs else ()) + columns.query


def run_rows(
    frame: DataFrame, plan: EvaluationPlan, *, judged: bool, parse_text: bool = False, originals: bool = False
) -> DataFrame:
    """Give the main table as canonical rows: retrieved items, with their relevance where the table has it.

    Parameters
    ----------
    frame : DataFrame
        One row per (query, item), and per run where a column names it.
    plan : EvaluationPlan
    judged : bool
        Whether this table carries the relevances (no judgments table beside it).
    parse_text : bool
        Whether text columns are read as numbers, for csv and the TREC formats.
    originals : bool
        Give the columns as they came, with `bad_row` beside them, for a table of rejects.

    Returns
    -------
    DataFrame
        Canonical rows; lazy. Several score columns give as many rows each.

    Raises
    ------
    MissingColumnError, InputRefusedError

    Notes
    -----
    Spark cost: a projection; no shuffle, no action.
    """
    columns, table, frame = plan.columns, "input", sampled(frame, plan)
    reasons: Reasons = malformed_reasons(frame)
    selected = _keys(frame, plan, table, reasons, with_run=True)
    if columns.rank is not None:
        rank = _lean_number(frame, columns.rank, "rank-col", table, parse_text=parse_text)
        reasons += rank_reasons(rank, plan, whole=is_whole(frame, columns.rank))
        if plan.convention.unjudged == "condensed":
            selected["score"] = -rank.cast("double")  # ranks close up over the removed items: rank anew
            selected["position"] = rank  # unless a column says otherwise
        else:
            selected["rank"] = F.when(rank.between(1, LARGEST_RANK), rank.cast("int"))
    else:
        frame, score, score_reasons = _scores(frame, plan, table, parse_text)
        reasons += score_reasons
        selected["score"] = score
        if len(columns.score) > 1:
            selected["run"] = F.col("run_of_score")
    _optional(frame, plan, selected, reasons, item_needed=_item_needed(plan, judged), parse_text=parse_text)
    if judged:
        selected["relevance"] = _relevance(frame, plan, table, reasons, parse_text=parse_text)
    return with_reason(frame, selected, reasons, originals=originals)


def judgment_rows(
    frame: DataFrame, plan: EvaluationPlan, *, parse_text: bool = False, originals: bool = False
) -> DataFrame:
    """Give a judgments table as canonical rows; rows with a null relevance judge nothing and stay null.

    Parameters
    ----------
    frame : DataFrame
        One row per (query, item).
    plan : EvaluationPlan
    parse_text, originals : bool
        As for `run_rows`.

    Returns
    -------
    DataFrame
        Query columns, `item`, `relevance`, carried columns this table has, `bad_row`; lazy.

    Raises
    ------
    MissingColumnError, InputRefusedError

    Notes
    -----
    Spark cost: a projection; no shuffle, no action.
    """
    table, frame = "judgments", sampled(frame, plan)
    reasons: Reasons = malformed_reasons(frame)
    selected = _keys(frame, plan, table, reasons, with_run=False)
    _optional(frame, plan, selected, reasons, item_needed=True, parse_text=parse_text, table=table)
    selected["relevance"] = _relevance(frame, plan, table, reasons, parse_text=parse_text)
    return with_reason(frame, selected, reasons, originals=originals)


def usable(rows: DataFrame, plan: EvaluationPlan, guard: str) -> DataFrame:
    """Take the rows that can be evaluated.

    Parameters
    ----------
    rows : DataFrame
        With `bad_row`.
    plan : EvaluationPlan
        Under `on_invalid=fail` the first bad row raises when it is reached; under `reject` bad rows are left out.
    guard : str
        The column that every later step reads, on which the check rides: no pass of its own.

    Returns
    -------
    DataFrame
        Without `bad_row`; lazy.

    Notes
    -----
    Spark cost: a projection or a filter.
    """
    if plan.on_invalid == "reject":
        return rows.where(F.col(BAD_ROW).isNull()).drop(BAD_ROW)
    kind = rows.schema[guard].dataType.simpleString()
    keys = [name for name in keys_of(plan) if name in rows.columns]
    checked = guarded(
        named(guard),
        F.col(BAD_ROW).isNotNull(),
        "bad row: ",
        F.col(BAD_ROW),
        " at ",
        key_text(keys),
        kind=kind,
    )
    return rows.withColumn(guard, checked).drop(BAD_ROW)


def _keys(
    frame: DataFrame, plan: EvaluationPlan, table: str, reasons: Reasons, *, with_run: bool
) -> dict[str, Column]:
    selected: dict[str, Column] = {}
    if with_run and plan.columns.run is not None:
        require_column(frame, plan.columns.run, "run-col", table)
        selected["run"] = named(plan.columns.run).cast("string")
        reasons.append(("null_run", named(plan.columns.run).isNull()))
    for name in plan.columns.query:
        require_column(frame, name, "query-col", table)
        selected[name] = named(name)
    reasons.append(("null_query", reduce(Column.__or__, [named(name).isNull() for name in plan.columns.query])))
    return selected


def _item_needed(plan: EvaluationPlan, judged: bool) -> str | None:
    convention = plan.convention
    if not judged:
        return "joining judgments"
    if (plan.columns.rank is None or convention.unjudged == "condensed") and convention.ties in (
        "item_asc",
        "item_desc",
    ):
        return f"ties={convention.ties}"
    if convention.duplicates != "error" or plan.check_duplicates == "all":
        return f"duplicates={convention.duplicates}"
    return None


def _optional(
    frame: DataFrame,
    plan: EvaluationPlan,
    selected: dict[str, Column],
    reasons: Reasons,
    *,
    item_needed: str | bool | None,
    parse_text: bool,
    table: str = "input",
) -> None:
    """Add item, carried segments, weight and position where the table has them or a rule needs them."""
    columns = plan.columns
    if item_needed and columns.item is None:
        raise InvalidParameterError(f"{item_needed} needs an item column (item-col).")
    if columns.item is not None and (item_needed or columns.item in frame.columns):
        require_column(frame, columns.item, "item-col", table)
        selected["item"] = named(columns.item)
        reasons.append(("null_item", named(columns.item).isNull()))
    for name in plan.carried_segments:
        if name in frame.columns:
            selected[name] = named(name)
    if columns.weight is not None and columns.weight in frame.columns:
        weight = number(frame, columns.weight, "weight-col", table, parse_text=parse_text)
        selected["weight"] = weight
        usable_weight = weight.between(0.0, LARGEST_WEIGHT)
        reasons.append(("bad_weight", ~F.coalesce(usable_weight, F.lit(False))))
    if columns.order is not None and columns.order in frame.columns:
        selected["position"] = _position(frame, columns.order, parse_text)
        if table == "input":
            reasons.append(("null_order", named(columns.order).isNull()))


def _position(frame: DataFrame, order: str, parse_text: bool) -> Column:
    is_text = isinstance(frame.schema[order].dataType, T.StringType)
    return number(frame, order, "order-col", "input", parse_text=True) if is_text and parse_text else named(order)


def _relevance(frame: DataFrame, plan: EvaluationPlan, table: str, reasons: Reasons, *, parse_text: bool) -> Column:
    column = plan.columns.relevance
    relevance = _lean_number(frame, column, "relevance-col", table, parse_text=parse_text)
    reasons += relevance_reasons(relevance, column, plan, whole=is_whole(frame, column))
    return relevance


def _lean_number(frame: DataFrame, column: str, part: str, table: str, *, parse_text: bool) -> Column:
    """Give a column as double, or as it is where it is whole: that compares faster, for every row."""
    value = number(frame, column, part, table, parse_text=parse_text)
    if not is_whole(frame, column):
        return value
    return named(column).cast("int") if isinstance(frame.schema[column].dataType, T.BooleanType) else named(column)


def _scores(
    frame: DataFrame, plan: EvaluationPlan, table: str, parse_text: bool
) -> tuple[DataFrame, Column, Reasons]:
    """Give the score as double; several score columns become rows, named by `run_of_score`."""
    names = plan.columns.score
    scores = {name: number(frame, name, "score-col", table, parse_text=parse_text) for name in names}
    if len(names) == 1:
        raw, score = named(names[0]), scores[names[0]]
    else:
        pairs = [
            F.struct(
                F.lit(name).alias("run_of_score"),
                named(name).cast("string").alias("raw_score"),
                scores[name].alias("one_score"),
            )
            for name in names
        ]
        frame = frame.select("*", F.inline(F.array(*pairs)))
        raw, score = F.col("raw_score"), F.col("one_score")
    reasons: Reasons = [("score_not_a_number", score.isNull() & raw.isNotNull())]
    if plan.null_score == "bad":
        reasons.append(("null_score", score.isNull()))
    reasons += [("nan_score", F.isnan(score)), ("infinite_score", F.abs(score) == float("inf"))]
    if plan.convention.score_precision == "float32":
        score = score.cast("float").cast("double")
    return frame, score, reasons


def require_carried(plan: EvaluationPlan, *tables: DataFrame) -> None:
    """Raise unless each segment and weight column is in one of the tables. Reads schemas, runs no action.

    Parameters
    ----------
    plan : EvaluationPlan
    *tables : DataFrame

    Raises
    ------
    MissingColumnError
    """
    wanted = [(name, "segment-cols") for name in plan.carried_segments]
    wanted += [(name, part) for name, part in ((plan.columns.weight, "weight-col"),) if name is not None]
    if plan.columns.order is not None:
        wanted.append((plan.columns.order, "order-col"))
    for name, part in wanted:
        if not any(name in table.columns for table in tables):
            require_column(tables[0], name, part, "input")
