"""Results of `compare` on Spark: lazy DataFrames."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import cached_property
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ndcg_spark.comparison.frames import compare_queries, list_runs
from ndcg_spark.comparison.results import DETAIL_COLUMNS, BaseComparison, select_evaluations
from ndcg_spark.comparison.settings import ComparisonSettings
from ndcg_spark.comparison.tables import QueryTable, Tables, choose_tables, format_run
from ndcg_spark.comparison.tasks.finishing import PAIR_TOP_ITEMS
from ndcg_spark.comparison.tasks.pairing import TOP_ITEM_COLUMNS
from ndcg_spark.core import labels
from ndcg_spark.core.adapters import convert_tables
from ndcg_spark.core.arrow_tables import wrong_table_error
from ndcg_spark.core.batches import REFUSAL
from ndcg_spark.core.columns import computed_micros, describe_table, exact_col, has_column, micros_to_datetime
from ndcg_spark.core.schemas import TableInfo
from ndcg_spark.core.shown import FOOTER
from ndcg_spark.core.workers import filter_rows, raise_refusals
from ndcg_spark.evaluation.spark_results import Evaluation
from ndcg_spark.evaluation.tasks.scoring import N_TOP_ITEMS, N_UNJUDGED_ITEMS, list_dropped_statuses
from ndcg_spark.sources.api import select_slice


@dataclass(frozen=True, kw_only=True, repr=False)
class Comparison(BaseComparison):
    """Result of `compare`.

    Parameters
    ----------
    settings : ComparisonSettings
    evaluations : mapping of run to Evaluation
        The evaluations among the compared results; the key None stands for all runs. Their bad rows are counted if an
        action of `show` or `to_pandas` finds one.
    allow_unmatched : bool
        Compare runs even if no judgment matches them.
    summary : DataFrame
        Lazy, one row per (baseline, run, segment, metric, k): means, difference, intervals, tests and verdict. The
        columns are explained in `docs/compare.md`.
    counted : DataFrame
        The rows that `show` and `to_pandas` read: the summary with refusals as rows, and with counts of items that
        show whether judgments match the runs.

    Notes
    -----
    Nothing is cached: each action compares again. `show` and `to_pandas` refuse judgments of an evaluation that match
    no item; actions on `summary` do not.
    """

    summary: DataFrame
    counted: DataFrame = field(compare=False)

    def __repr__(self) -> str:
        """Return the pairs, metrics and tests of the comparison; runs nothing."""
        return "\n".join((*self._first_lines, "lazy: summary (differences); each action on it compares anew"))

    @property
    def engine(self) -> str:
        """The engine: `spark`."""
        return "spark"

    def differences(self) -> DataFrame:
        """Return readable differences: `run`, `baseline`, `segment`, `metric`, `difference`, `interval`, and more.

        Returns
        -------
        DataFrame
            Lazy, one row per segment, tested metric and pair of runs. Metrics are in the order in which they were
            requested; all queries come first, then segments with a clear difference, largest first, then other
            segments. Further columns are the bounds `ci_low` and `ci_high`, `p` (after Holm; null without a test),
            `verdict`, `n` (queries that are compared) and `missing` (queries that one of the two runs lacks).
            Segments and metrics are named as in `Evaluation.means`.

        Notes
        -----
        Spark cost: that of `summary`, and one small shuffle.
        """
        return self._differences(self.summary)

    def _differences(self, summary: DataFrame, *beside: Column) -> DataFrame:
        of_segment = F.col("segment_by") != ""
        size = [F.when(of_segment, order) for order in (F.col("verdict") == "unclear", -F.abs("difference"))]
        by_metric = [
            F.expr(labels.place_sql("metric", list(map(str, self.settings.compared)))),
            F.col("k").asc_nulls_last(),
        ]
        by_name = [F.col(column).asc_nulls_last() for column in ("segment_by", "segment", "baseline", "run")]
        tested = filter_rows(summary, F.col("verdict").isNotNull()).orderBy(of_segment, *by_metric, *size, *by_name)
        return tested.select(
            "run",
            "baseline",
            F.expr(labels.SEGMENT_SQL).alias("segment"),
            F.expr(labels.METRIC_SQL).alias("metric"),
            "difference",
            F.expr(labels.INTERVAL_SQL).alias("interval"),
            "ci_low",
            "ci_high",
            F.col("p_holm").alias("p"),
            "verdict",
            F.col("n_queries").alias("n"),
            (F.col("n_only_run") + F.col("n_only_baseline")).alias("missing"),
            *beside,
            *([REFUSAL] if REFUSAL in summary.columns else []),
        )

    def _build_display(self) -> DataFrame:
        """Return `differences` with the columns `DETAIL_COLUMNS` of each row. Lazy."""
        return self._differences(self.counted, F.struct(*DETAIL_COLUMNS).alias(FOOTER))


class SparkQueries(QueryTable):
    """Per-query metrics that Spark reads; `frame` is lazy."""

    def __init__(self, source: DataFrame | Evaluation) -> None:
        self._source = source

    @property
    def evaluation(self) -> Evaluation | None:
        return self._source if isinstance(self._source, Evaluation) else None

    @cached_property
    def frame(self) -> DataFrame:
        return _select_queries(self._source) if isinstance(self._source, Evaluation) else self._source

    @cached_property
    def info(self) -> TableInfo:
        return describe_table(self.frame)

    def runs(self) -> dict[str, bool]:
        """Run an action."""
        if isinstance(self._source, Evaluation):
            return dict.fromkeys(list_runs(self._source.ranking.rows.select("run")), True)
        return list_runs(self._source)

    def computed_at(self) -> datetime | None:
        """Run an action, if the table has the column."""
        if not has_column(self.frame, "computed_at"):
            return None
        return micros_to_datetime(self.frame.agg(F.max(computed_micros(self.frame))).collect()[0][0])

    def with_runs(self, column: str, name: str) -> SparkQueries:
        if column == "run" and has_column(self.frame, column):
            return self
        run = exact_col(column).cast("string") if has_column(self.frame, column) else F.lit(name)
        return SparkQueries(self.frame.withColumn("run", run))

    def select_slice(self, name: str, night: date | None, dataset: str | None, hint: str = "") -> SparkQueries:
        """Run an action or two for each column."""
        return SparkQueries(select_slice(self.frame, name, night=night, dataset=dataset, hint=hint))

    def select_run(self, run: str) -> SparkQueries:
        return SparkQueries(self.frame.where(exact_col("run") == run))


def _select_queries(evaluation: Evaluation) -> DataFrame:
    """Select query rows as a stored table has them: without queries that the convention drops.

    If the judgments are a separate table, the rows have counts of items among the first k.
    """
    convention, rows = evaluation.settings.convention, evaluation.ranking.per_query(keep_refusals=True)
    if convention.missing_query == "drop":
        rows = filter_rows(rows, F.col("status") != "missing")
    if not evaluation.ranking.tables.has_judgments_table:
        return rows
    is_counted = ~F.col("status").isin(*list_dropped_statuses(convention))
    counts = (F.col(N_TOP_ITEMS), F.col(N_TOP_ITEMS) - F.col(N_UNJUDGED_ITEMS))
    return rows.withColumns(
        {column: F.when(is_counted, count) for column, count in zip(TOP_ITEM_COLUMNS, counts, strict=True)}
    )


def open_on_spark(results: Any, spark: SparkSession | None = None) -> Tables:
    """Open the `results` argument of `compare` on Spark."""
    opened = convert_tables({"results": results}, spark)["results"]
    if not isinstance(opened, Mapping):
        return [(_wrap_table("results", opened), None)]
    return [(_wrap_table(f"results[{run!r}]", table), format_run(run)) for run, table in opened.items()]


def _wrap_table(name: str, table: Any) -> SparkQueries:
    if not isinstance(table, Evaluation) and not hasattr(table, "sparkSession"):
        raise wrong_table_error(name, table, ("DataFrame",))
    return SparkQueries(table)


def compare_tables(tables: Tables, settings: ComparisonSettings) -> DataFrame:
    """Compare runs with resolved settings; lazy. The result has counts of items, and refusals as rows."""
    chosen = choose_tables(tables, settings)
    return compare_queries([(table.frame, run) for table, run in chosen if isinstance(table, SparkQueries)], settings)


def build_comparison(tables: Tables, settings: ComparisonSettings, *, allow_unmatched: bool) -> Comparison:
    with_top_items = compare_tables(tables, settings)
    return Comparison(
        settings=settings,
        summary=raise_refusals(with_top_items).drop(PAIR_TOP_ITEMS),
        evaluations=select_evaluations(tables, settings),
        counted=with_top_items,
        allow_unmatched=allow_unmatched,
    )
