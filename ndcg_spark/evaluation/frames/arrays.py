"""Tables with one row a query: an array of relevances in rank order, and maybe one of all judged relevances."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark.core.arrow_schemas import arrow_schema
from ndcg_spark.core.expressions import columns_of, key_text, named, number, raise_if, require_column
from ndcg_spark.core.task_limit import in_tasks
from ndcg_spark.core.workers import as_shipped
from ndcg_spark.errors import InputRefusedError, InvalidParameterError, option
from ndcg_spark.evaluation.frames.canonical import is_key, key_column, select_canonical
from ndcg_spark.evaluation.frames.engine import rankings_schema
from ndcg_spark.evaluation.frames.sampling import sampled
from ndcg_spark.evaluation.frames.summary import summarize_rankings
from ndcg_spark.evaluation.settings import EvaluationPlan
from ndcg_spark.evaluation.tasks.array_rankings import make_array_ranker
from ndcg_spark.evaluation.tasks.column_names import (
    IDEAL_ITEMS,
    IDEAL_LIST,
    RANKED_ITEMS,
    RANKED_LIST,
    RUN,
    WEIGHT,
    canonical_names,
)
from ndcg_spark.evaluation.tasks.query_rows import RankingTask


def array_rows(frame: DataFrame, plan: EvaluationPlan, *, original: bool = False) -> DataFrame:
    """Select the canonical columns of a table of arrays; `original` adds `row`, the row as it came. Lazy."""
    columns, names, frame = plan.columns, canonical_names(plan), sampled(frame, plan)
    selected: dict[str, Column] = {}
    if columns.run is not None:
        require_column(frame, columns.run, option("run"), "input")
        selected[RUN] = named(columns.run).cast("string")
    for name, column in names.query.items():
        selected[name] = key_column(frame, column, option("query"), "input")
    selected |= _lists(frame, columns.relevance, option("relevance"), plan, (RANKED_LIST, RANKED_ITEMS))
    if columns.ideal is not None:
        selected |= _lists(frame, columns.ideal, option("ideal"), plan, (IDEAL_LIST, IDEAL_ITEMS))
    for name, column in names.segments.items():
        selected[name] = key_column(frame, column, option("segments"), "input")
    if columns.weight is not None:
        selected[WEIGHT] = number(frame, columns.weight, option("weight"), "input", parse_text=False)
    return select_canonical(frame, selected, {}, original=original)


_ONE_ROW = (
    "a table of arrays has one row for each query of a run. Name what tells the rows apart "
    f"({option('run')}, {option('query')}), or "
    "remove all but one."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrays:
    """The strategy for tables of arrays, given their canonical rows: they are scored where they are."""

    plan: EvaluationPlan
    rows: DataFrame
    n_tasks: int | None = None

    @property
    def cost(self) -> str:
        """What `rankings` cost, for a person."""
        shuffle = "no shuffle of rows"
        if self.plan.check_duplicates == "all":
            shuffle = "a shuffle by query of about 2 K numbers a query, for queries that come twice"
        return f"{shuffle}; one pass through Python workers"

    @property
    def cost_of_means(self) -> str:
        """What `summary` costs, for a person."""
        return self.cost

    def rankings(self) -> DataFrame:
        """Cut the arrays of each query to its two lists. Lazy; one pass through Python workers.

        Only `check_duplicates=all` shuffles, the lists: queries that come twice lie in any two partitions.
        """
        task = RankingTask(
            plan=self.plan,
            rows=arrow_schema(self.rows.schema, self.rows.sparkSession),
            checks_duplicates=False,  # of lists that are cut; arrays are checked whole
        )
        found = self.rows.mapInArrow(
            as_shipped(make_array_ranker(task)), schema=rankings_schema(self.plan, self.rows, None)
        )
        if self.plan.check_duplicates != "all":
            return found
        return in_tasks(_refuse_repeats(found, self.plan), self.n_tasks)

    def summary(self) -> DataFrame:
        """Means of all metrics; lazy."""
        return summarize_rankings(self.rankings(), self.plan, n_tasks=self.n_tasks)


def _refuse_repeats(rankings: DataFrame, plan: EvaluationPlan) -> DataFrame:
    """Refuse a query that comes twice in a run; lazy."""
    keys = ["run", *plan.columns.query]
    n_rows = F.count(F.lit(1)).over(Window.partitionBy(*columns_of(keys)))
    shown = key_text(keys if plan.columns.run is not None else plan.columns.query, {"run": str(plan.columns.run)})
    message = ("query ", shown, " comes in ", n_rows.cast("string"), " rows; ", _ONE_ROW)
    return rankings.withColumn("n_rows", raise_if(F.col("n_rows"), n_rows > 1, *message, kind="bigint"))


def _lists(
    frame: DataFrame, column: str, part: str, plan: EvaluationPlan, names: tuple[str, str]
) -> dict[str, Column]:
    kind = require_column(frame, column, part, "input")
    element = kind.elementType if isinstance(kind, T.ArrayType) else None
    if (
        names[0] == RANKED_LIST
        and plan.lists_items
        and not (isinstance(element, T.StructType) and "item" in element.names)
    ):
        raise InvalidParameterError(
            f"metric {plan.metric_with(plan.needs[0])!r} needs items: column {column!r} must be an array of structs "
            "with fields item and relevance."
        )
    if isinstance(element, T.NumericType | T.BooleanType):
        return {names[0]: named(column).cast("array<double>")}
    if isinstance(element, T.StructType) and _are_numbers(element, "relevance"):
        found = {names[0]: named(column).getField("relevance").cast("array<double>")}
        if "item" in element.names and plan.convention.duplicates != "error":
            raise InvalidParameterError("duplicates=best and first are not for arrays; remove them beforehand.")
        if "item" in element.names and (plan.check_duplicates != "none" or plan.lists_items):
            its_type = element["item"].dataType
            if not is_key(its_type):
                what = f"items of column {column!r} ({part}) are {its_type.simpleString()}"
                raise InputRefusedError(f"{what}; cast them to text first.")
            found[names[1]] = named(column).getField("item")
        return found
    raise InputRefusedError(
        f"column {column!r} must be an array of numbers, or of structs with a numeric field 'relevance'; it "
        f"is {kind.simpleString()}."
    )


def _are_numbers(struct: T.StructType, field: str) -> bool:
    return field in struct.names and isinstance(struct[field].dataType, T.NumericType | T.BooleanType)
