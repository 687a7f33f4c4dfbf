"""Tables with one row a query, whose array is in rank order already."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark.errors import InputRefusedError, InvalidParameterError
from ndcg_spark.plan import LARGEST_WEIGHT, EvaluationPlan
from ndcg_spark.spark.expressions import columns_of, named, require_column
from ndcg_spark.spark.ranking.duplicates import relevances_of
from ndcg_spark.spark.ranking.lists import ENTRIES, empty_list
from ndcg_spark.spark.reasons import gain_overflows, with_reason
from ndcg_spark.spark.rows import keys_of, usable
from ndcg_spark.spark.sampling import sampled


def array_rows(frame: DataFrame, plan: EvaluationPlan, *, originals: bool = False) -> DataFrame:
    """Give a table of arrays as canonical rows: keys, `ranked_list`, `ideal_list`, carried columns, `bad_row`.

    Parameters
    ----------
    frame : DataFrame
    plan : EvaluationPlan
    originals : bool
        Give the columns as they came, with `bad_row`.

    Returns
    -------
    DataFrame
        Lazy.

    Raises
    ------
    MissingColumnError, InputRefusedError
    """
    columns, frame = plan.columns, sampled(frame, plan)
    selected = {name: named(name) for name in columns.query}
    for name in columns.query:
        require_column(frame, name, "query-col", "input")
    reasons = [("null_query", named(name).isNull()) for name in columns.query]
    if columns.run is not None:
        require_column(frame, columns.run, "run-col", "input")
        selected["run"] = named(columns.run).cast("string")
        reasons.append(("null_run", named(columns.run).isNull()))
    lists = {"ranked_list": columns.relevance}
    if columns.ideal is not None:
        lists["ideal_list"] = columns.ideal
    for name, column in lists.items():
        selected[name] = _relevances(frame, column, plan)
        reasons += _list_reasons(selected[name], plan)
    for name in plan.carried_segments:
        selected[name] = named(name)
    if columns.weight is not None:
        weight = named(columns.weight).cast("double")
        selected["weight"] = weight
        reasons.append(("bad_weight", ~F.coalesce(weight.between(0.0, LARGEST_WEIGHT), F.lit(False))))
    return with_reason(frame, selected, reasons, originals=originals)


def rank_arrays(frame: DataFrame, plan: EvaluationPlan) -> DataFrame:
    """Rank a table of arrays, which is only to count and to cut.

    Parameters
    ----------
    frame : DataFrame
    plan : EvaluationPlan

    Returns
    -------
    DataFrame
        Rankings, with `run` only where rankers are named; lazy.

    Notes
    -----
    Spark cost: a projection; no shuffle, no action.
    """
    rows = usable(array_rows(frame, plan), plan, "ranked_list")
    retrieved = F.col("ranked_list")
    ranked = F.filter(retrieved, lambda one: one.isNotNull()) if _condensed(plan) else retrieved
    own = F.filter(retrieved, lambda one: one.isNotNull())
    judged = own if plan.columns.ideal is None else F.filter(F.col("ideal_list"), lambda one: one.isNotNull())
    in_ideal = own if plan.convention.ideal == "retrieved" else judged
    best = in_ideal if plan.convention.ideal == "unsorted" else F.sort_array(in_ideal, asc=False)
    if plan.convention.ideal == "k_ones":
        best = empty_list()
    by_kernel = plan.convention.has_gain_table  # which alone knows what comes first then
    counted = {
        "n_rows": F.lit(1).cast("bigint"),
        "n_left_out": F.lit(0).cast("bigint"),
        "n_items": F.size(retrieved).cast("bigint"),
        "n_judged": F.size(judged).cast("bigint"),
        "n_relevant": F.size(F.filter(judged, lambda one: one > 0)).cast("bigint"),
        "ranked": _cut(ranked, plan),
        "ideal": best if by_kernel else _cut(best, plan),
    }
    passed = [*keys_of(plan), *plan.carried_segments, *(["weight"] if plan.columns.weight else [])]
    return rows.select(*columns_of(passed), *[column.alias(name) for name, column in counted.items()])


def _condensed(plan: EvaluationPlan) -> bool:
    return plan.convention.unjudged == "condensed"


def _cut(values: Column, plan: EvaluationPlan) -> Column:
    return values if plan.longest is None else F.slice(values, 1, plan.longest)


def _relevances(frame: DataFrame, column: str, plan: EvaluationPlan) -> Column:
    kind = require_column(frame, column, "relevance-col", "input")
    element = kind.elementType if isinstance(kind, T.ArrayType) else None
    if isinstance(element, T.NumericType | T.BooleanType):
        return named(column).cast(ENTRIES)
    if isinstance(element, T.StructType) and "relevance" in element.names:
        if "item" in element.names and plan.convention.duplicates != "error":
            raise InvalidParameterError("duplicates=best and first are not for arrays; remove them beforehand.")
        with_item = "item" in element.names and plan.check_duplicates != "none"
        return relevances_of(named(column), keys_of(plan), "list", with_item=with_item)
    raise InputRefusedError(
        f"column {column!r} must be an array of numbers, or of structs with a field 'relevance'; it is "
        f"{kind.simpleString()}."
    )


def _list_reasons(values: Column, plan: EvaluationPlan) -> list[tuple[str, Column]]:
    reasons = [
        ("null_list", values.isNull()),
        ("nan_relevance", F.exists(values, F.isnan)),
        ("infinite_relevance", F.exists(values, lambda one: F.abs(one) == float("inf"))),
    ]
    reasons += [("gain_overflow", F.exists(values, overflows)) for overflows in gain_overflows(plan.convention)]
    if plan.convention.negative == "error":
        reasons.append(("negative_relevance", F.exists(values, lambda one: one < 0)))
    return reasons
