"""The tables a job reads, and the columns they turn out to have."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from pyspark.sql import DataFrame, SparkSession

from ndcg_spark.cli.config import JobConfig, Source
from ndcg_spark.plan import EvaluationPlan
from ndcg_spark.spark.formats import Table, read_table
from ndcg_spark.spark.layout import look_at_layout
from ndcg_spark.spark.ranking import rank_queries
from ndcg_spark.spark.ranking.arrays import array_rows
from ndcg_spark.spark.ranking.choose import Way, choose_way
from ndcg_spark.spark.rows import judgment_rows, run_rows


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What was read, and the plan that fits it."""

    table: Table
    judgments: Table | None
    plan: EvaluationPlan
    way: Way

    @property
    def name(self) -> str:
        """Identity of the input, for the metric table."""
        judged = f" judged by {self.judgments.name}" if self.judgments else ""
        share = f", {self.plan.sample:g} of the queries" if self.plan.sample < 1 else ""
        return f"{self.table.name}{judged}{share}"

    @property
    def tables(self) -> tuple[Table, ...]:
        """The tables that are read."""
        return (self.table,) if self.judgments is None else (self.table, self.judgments)

    @cached_property
    def rankings(self) -> DataFrame:
        """Lazy rankings of every query; Spark takes half a second to analyse them."""
        judgments = self.judgments
        return rank_queries(
            self.table.frame,
            self.plan,
            judgments=judgments.frame if judgments else None,
            parse_text=self.table.parse_text,
            parse_judgment_text=judgments.parse_text if judgments else False,
        )

    def checked(self, *, originals: bool) -> dict[str, DataFrame]:
        """Rows of each table with `bad_row`, by the table's name; lazy."""
        if self.way.ranked == "arrays":
            return {"input": array_rows(self.table.frame, self.plan, originals=originals)}
        judged = self.judgments is None
        found = {
            "input": run_rows(
                self.table.frame,
                self.plan,
                judged=judged,
                parse_text=self.table.parse_text,
                originals=originals,
            )
        }
        if self.judgments is not None:
            found["judgments"] = judgment_rows(
                self.judgments.frame, self.plan, parse_text=self.judgments.parse_text, originals=originals
            )
        return found


def read_inputs(spark: SparkSession, config: JobConfig) -> Inputs:
    """Open the tables of a job. Reads schemas, runs no action.

    Parameters
    ----------
    spark : SparkSession
    config : JobConfig

    Returns
    -------
    Inputs
        A `rank` column is used when no rank column was named, there is one, and there is no score.

    Raises
    ------
    InputRefusedError
    """
    table = _read(spark, config.source)
    judgments = _read(spark, config.judgments) if config.judgments else None
    plan = config.plan
    names = table.frame.columns
    has_score = any(name in names for name in plan.columns.score)
    if plan.columns.rank is None and "rank" in names and not has_score:
        plan = replace(plan, columns=replace(plan.columns, rank="rank"))
    way = choose_way(table.frame, plan, judged=judgments is None)
    return Inputs(table=table, judgments=judgments, plan=plan, way=way)


def look_at_input(inputs: Inputs, config: JobConfig) -> Inputs:
    """Let the first rows decide on the layout, where that was left to them. Runs an action on a large table.

    Parameters
    ----------
    inputs : Inputs
    config : JobConfig

    Returns
    -------
    Inputs
    """
    if not decides_by_rows(inputs, config):
        return inputs
    _ = inputs.rankings  # finds missing columns and wrong types
    layout = look_at_layout(inputs.table.frame, inputs.plan)
    return inputs if layout == inputs.plan.layout else replace(inputs, plan=replace(inputs.plan, layout=layout))


def decides_by_rows(inputs: Inputs, config: JobConfig) -> bool:
    """Whether `look_at_input` looks at rows: of a long table that is stored, as a query would have to be computed.

    Parameters
    ----------
    inputs : Inputs
    config : JobConfig

    Returns
    -------
    bool
    """
    return config.look_at_layout and inputs.way.ranked != "arrays" and not inputs.table.computed


def _read(spark: SparkSession, source: Source) -> Table:
    return read_table(spark, source.reference, source.kind, source.options)
