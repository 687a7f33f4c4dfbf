"""What `compare` returns where Spark compares: lazy DataFrames."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import cached_property
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ndcg_spark.comparison.frames import compare_queries, runs_in
from ndcg_spark.comparison.results import TOLD, ComparedRuns, compared_evaluations
from ndcg_spark.comparison.settings import ComparisonSettings
from ndcg_spark.comparison.tables import QueryTable, Tables, choose_tables, run_text
from ndcg_spark.comparison.tasks.finishing import TOP_ITEMS as TOP_ITEMS_OF_PAIR
from ndcg_spark.comparison.tasks.pairing import TOP_ITEMS
from ndcg_spark.core import labels
from ndcg_spark.core.arrow_tables import wrong_table_error
from ndcg_spark.core.batches import REFUSAL
from ndcg_spark.core.columns import computed_micros, describe_table, exact_col, has_column, micros_to_datetime
from ndcg_spark.core.given import convert_tables
from ndcg_spark.core.schemas import TableInfo
from ndcg_spark.core.shown import BESIDE
from ndcg_spark.core.workers import filter_rows, raise_refusals
from ndcg_spark.evaluation.spark_results import Evaluation
from ndcg_spark.evaluation.tasks.scoring import N_TOP_ITEMS, N_UNJUDGED_ITEMS, list_dropped_statuses
from ndcg_spark.sources.api import select_slice


@dataclass(frozen=True, kw_only=True, repr=False)
class Comparison(ComparedRuns):
    """Result of `compare`.

    Parameters
    ----------
    settings : ComparisonSettings
    evaluations : mapping of run to Evaluation
        What is compared, as far as it was not metrics of queries; None stands for all runs. Their bad rows are
        counted where an action of `show` or `to_pandas` meets one.
    allow_unmatched : bool
        Whether runs that judgments do not match are compared.
    summary : DataFrame
        Lazy, one row per (baseline, run, segment, metric, k): means, difference, intervals, tests and verdict. The
        columns are explained in `docs/compare.md`.
    counted : DataFrame
        What `show` and `to_pandas` read: the summary with counts of items, by which they check that judgments match
        the runs, and refusals as rows.

    Notes
    -----
    Nothing is cached: each action compares again. Judgments of an evaluation that match nothing are refused by `show`
    and `to_pandas`, and not by actions on `summary`.
    """

    summary: DataFrame
    counted: DataFrame = field(compare=False)

    def __repr__(self) -> str:
        """What is compared, by which tests, and that nothing has run yet."""
        return "\n".join((*self._first_lines, "lazy: summary (differences); each action on it compares anew"))

    @property
    def engine(self) -> str:
        """Who compares: `spark`."""
        return "spark"

    def differences(self) -> DataFrame:
        """Differences for people: `run`, `baseline`, `segment`, `metric`, `difference`, `interval`, and more.

        Returns
        -------
        DataFrame
            Lazy, one row per segment, metric and pair of runs, of metrics that are tested, in the order in which they
            were asked for. All queries come first; then the segments with a clear difference, the largest first; then
            the others. Beside the interval also its bounds `ci_low` and `ci_high`, `p` (after Holm; null
            where there is no test), `verdict`, `n`, the queries that count, and `missing`, those that one of the two
            runs lacks. Segments and metrics are named as by `Evaluation.means`.

        Notes
        -----
        Spark cost: that of `summary`, and one small shuffle.
        """
        return self._differences(self.summary)

    def _differences(self, summary: DataFrame, *beside: Column) -> DataFrame:
        of_segment = F.col("segment_by") != ""
        size = [F.when(of_segment, one) for one in (F.col("verdict") == "unclear", -F.abs("difference"))]
        by_metric = [
            F.expr(labels.place_sql("metric", list(map(str, self.settings.compared)))),
            F.col("k").asc_nulls_last(),
        ]
        names = [F.col(name).asc_nulls_last() for name in ("segment_by", "segment", "baseline", "run")]
        tested = filter_rows(summary, F.col("verdict").isNotNull()).orderBy(of_segment, *by_metric, *size, *names)
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

    def _for_people(self) -> DataFrame:
        """The same as `differences`, with the rules of each row and what is counted beside."""
        return self._differences(self.counted, F.struct(*TOLD).alias(BESIDE))


class SparkQueries(QueryTable):
    """Metrics of queries that Spark reads; `frame` is lazy."""

    def __init__(self, given: DataFrame | Evaluation) -> None:
        self._given = given

    @property
    def evaluation(self) -> Evaluation | None:
        return self._given if isinstance(self._given, Evaluation) else None

    @cached_property
    def frame(self) -> DataFrame:
        return _queries_of(self._given) if isinstance(self._given, Evaluation) else self._given

    @cached_property
    def info(self) -> TableInfo:
        return describe_table(self.frame)

    def runs(self) -> dict[str, bool]:
        """Run an action."""
        if isinstance(self._given, Evaluation):
            return dict.fromkeys(runs_in(self._given.ranking.rows.select("run")), True)
        return runs_in(self._given)

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

    def of_slice(self, name: str, night: date | None, dataset: str | None, otherwise: str = "") -> SparkQueries:
        """Run an action or two for each column."""
        return SparkQueries(select_slice(self.frame, name, night=night, dataset=dataset, hint=otherwise))

    def of_run(self, run: str) -> SparkQueries:
        return SparkQueries(self.frame.where(exact_col("run") == run))


def _queries_of(evaluation: Evaluation) -> DataFrame:
    """Rows of queries, as a stored table has them: without those that the convention drops as missing.

    Where judgments are a table of their own, with counts of items among the first k.
    """
    convention, rows = evaluation.settings.convention, evaluation.ranking.per_query(keep_refusals=True)
    if convention.missing_query == "drop":
        rows = filter_rows(rows, F.col("status") != "missing")
    if evaluation.ranking.tables.relevances_in_run:
        return rows
    counts = ~F.col("status").isin(*list_dropped_statuses(convention))
    n_items = (F.col(N_TOP_ITEMS), F.col(N_TOP_ITEMS) - F.col(N_UNJUDGED_ITEMS))
    return rows.withColumns({name: F.when(counts, n) for name, n in zip(TOP_ITEMS, n_items, strict=True)})


def tables_on_spark(results: Any, spark: SparkSession | None = None) -> Tables:
    """Take what is given to `compare` to Spark."""
    taken = convert_tables({"results": results}, spark)["results"]
    if not isinstance(taken, Mapping):
        return [(_table("results", taken), None)]
    return [(_table(f"results[{run!r}]", one), run_text(run)) for run, one in taken.items()]


def _table(name: str, given: Any) -> SparkQueries:
    if not isinstance(given, Evaluation) and not hasattr(given, "sparkSession"):
        raise wrong_table_error(name, given, ("DataFrame",))
    return SparkQueries(given)


def compare_by(tables: Tables, settings: ComparisonSettings) -> DataFrame:
    """Compare runs by settings that fit them; lazy, as `compare`, with counts of items and with refusals kept."""
    chosen = choose_tables(tables, settings)
    return compare_queries([(one.frame, run) for one, run in chosen if isinstance(one, SparkQueries)], settings)


def comparison_of(tables: Tables, settings: ComparisonSettings, *, allow_unmatched: bool) -> Comparison:
    counted = compare_by(tables, settings)
    return Comparison(
        settings=settings,
        summary=raise_refusals(counted).drop(TOP_ITEMS_OF_PAIR),
        evaluations=compared_evaluations(tables, settings),
        counted=counted,
        allow_unmatched=allow_unmatched,
    )
