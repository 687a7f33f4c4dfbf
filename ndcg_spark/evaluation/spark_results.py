"""Result of `evaluate` with Spark: lazy DataFrames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ndcg_spark.core import labels
from ndcg_spark.core.adapters import convert_tables
from ndcg_spark.core.bad_rows import count_rows
from ndcg_spark.core.failures import readable_errors
from ndcg_spark.core.row_counts import RowCount
from ndcg_spark.core.workers import collect, filter_rows, raise_refusals
from ndcg_spark.errors import InputRefusedError
from ndcg_spark.evaluation.frames.columns import report_bad_rows
from ndcg_spark.evaluation.frames.matching import check_matched
from ndcg_spark.evaluation.frames.ranking import Ranking, choose_ranking
from ndcg_spark.evaluation.frames.summary import format_means, select_per_query_rows
from ndcg_spark.evaluation.matching import TopItems, read_top_items
from ndcg_spark.evaluation.results import Results
from ndcg_spark.evaluation.settings import EvaluationSettings
from ndcg_spark.evaluation.tasks.partial_sums import GROUP_COUNTS
from ndcg_spark.evaluation.tasks.valid_rows import RowCheck

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True, repr=False)
class Evaluation(Results):
    """Result of `evaluate`: lazy DataFrames of means, of metrics per query, and of rankings.

    Parameters
    ----------
    settings : EvaluationSettings
    ranking : Ranking
        The strategy and the source.

    Attributes
    ----------
    summary : DataFrame
        Means, one row per (run, segment, metric, k); see `summarize`.
    per_query : DataFrame
        Metrics, one row per (run, query, k); see `score_queries`.
    rankings : DataFrame
        Ranked lists, one row per (run, query); see `rank_queries`.

    Notes
    -----
    Nothing is cached: each action ranks again.

    `show`, `to_pandas` and `plot` raise if judgments match nothing; actions on `summary`, `per_query` and `rankings`
    do not. See `allow_unmatched` of `EvaluationSettings`.
    """

    ranking: Ranking

    def __repr__(self) -> str:
        """Describe the metrics, the engine, and that results are lazy."""
        return "\n".join(
            (
                self._first_line,
                f"ranked by: {self.ranking.strategy}, read by {self.ranking.source} ({self.ranking.reason})",
                "lazy: summary (means), per_query, rankings; each action on one of them ranks anew",
                *([f"faster: {self.ranking.advice}"] if self.ranking.advice else []),
            )
        )

    @property
    def engine(self) -> str:
        """Engine that ranks: `spark`."""
        return "spark"

    @property
    def per_query_table(self) -> DataFrame:
        """`per_query` as stored: without queries that a rule drops, and columns that only sums need. Lazy."""
        return select_per_query_rows(self.per_query, self.settings)

    def means(self) -> DataFrame:
        """Readable means, sorted: `run`, `segment`, `metric`, `value`, `interval`, `ci_low`, `ci_high`, `n`.

        Returns
        -------
        DataFrame
            Lazy, one row per segment, metric and run; metrics in the requested order and by the requested names,
            without `dcg` and `idcg`, which `ndcg` implies. `segment` is text such as `country=DE`, or `overall` for
            all queries, which come first; `interval` is text, null below two queries; `n` is the number of queries
            that count.

        Notes
        -----
        Spark cost: that of `summary`, and one small shuffle. Does not check that judgments match.
        """
        return raise_refusals(self._means())

    def _means(self, *beside: str) -> DataFrame:
        requested, hidden = self._order_of_means
        return format_means(
            self.ranking.summary(keep_refusals=True), requested=requested, hidden=hidden, overall=beside
        )

    def plot(self, metric: str | None = None) -> Figure:
        """Draw means by segment with their intervals, and histograms of query values. Runs two actions.

        Parameters
        ----------
        metric : str or None
            A computed metric, such as `"ndcg@10"`. Default: the first, at its largest cutoff.

        Returns
        -------
        matplotlib.figure.Figure
            Notebooks display it as the last line of a cell; `figure.savefig("means.png")` writes it.

        Raises
        ------
        InvalidParameterError
            For a metric that was not computed, or that has no per-query values.
        MissingPackageError
            If matplotlib, part of the extra `report`, is not installed.
        InputRefusedError
            For bad rows.

        Notes
        -----
        Spark cost: an action on `summary` and one on `per_query`, which counts queries by bins; each ranks again.
        """
        from ndcg_spark.evaluation.plots import N_BINS, choose_bin_width, draw, select_groups

        metric_at = self._choose_metric(metric)
        is_k = F.col("k").eqNullSafe(F.lit(metric_at.k))
        drawn = (F.col("metric") == str(metric_at.metric)) & is_k
        summary = filter_rows(self.ranking.summary(keep_refusals=True), drawn | (F.col("segment_by") == ""))
        means = summary.orderBy(*map(F.expr, labels.row_order_sql()))
        value = F.col(metric_at.metric.column)
        try:
            with readable_errors():
                means = means.drop("state").withColumns({"label": F.expr(labels.SEGMENT_SQL), "drawn": drawn})
                rows = [row.asDict() for row in collect(means)]
                check_matched(read_top_items(rows), self.ranking)
                groups = select_groups([row for row in rows if row["drawn"]])
                step = choose_bin_width(groups, within_1=metric_at.metric.within_1)
                # For values within 0 and 1, the last bin includes 1.
                last_bin = F.when(value == 1, N_BINS - 1) if metric_at.metric.within_1 else F.lit(None).cast("int")
                bin_ = F.coalesce(last_bin, F.floor(F.round(value / step, 9)).cast("int"))
                valued = self.per_query_table.where(is_k & value.isNotNull())
                bin_counts = valued.groupBy("run", bin_.alias("bin")).count().collect()
        except InputRefusedError as error:
            raise self._explain_refusal(error) from error
        counts: dict[str, dict[int, int]] = {}
        for run, bin_, n in bin_counts:
            counts.setdefault(run, {})[bin_] = n
        return draw(metric_at.label, groups, counts, step)

    def _build_display(self) -> DataFrame:
        return self._means("segment_by", "run", "metric", "k", *GROUP_COUNTS)

    def _check_matched(
        self, runs: Sequence[TopItems], *, other_runs: Sequence[TopItems] = (), allowed: bool = False
    ) -> list[str]:
        return check_matched(runs, self.ranking, other_runs=other_runs, allowed=allowed)

    def _count_bad_rows(self) -> RowCount | None:
        """Run an action."""
        try:
            with readable_errors():
                return count_rows(report_bad_rows(self.ranking.rows, RowCheck(self.ranking.settings)))
        except InputRefusedError:  # windows and rules for duplicates raise before rows are counted
            return None

    @cached_property
    def rankings(self) -> DataFrame:
        """One row per (run, query), with the arrays `ranked` and `ideal`; see `rank_queries`. Lazy.

        Does not check that judgments match.
        """
        return self.ranking.rankings()

    @cached_property
    def summary(self) -> DataFrame:
        """One row per (run, segment, metric, k); see `summarize`. Lazy.

        Does not check that judgments match.
        """
        return self.ranking.summary()

    @cached_property
    def per_query(self) -> DataFrame:
        """One row per (run, query, k); see `score_queries`. Lazy.

        Does not check that judgments match.
        """
        return self.ranking.per_query()


def evaluate_on_spark(
    tables: Mapping[str, Any], settings: EvaluationSettings, spark: SparkSession | None = None
) -> Evaluation:
    """Evaluate `data` with optional `judgments`, `items` and `interactions`: DataFrames, other tables or paths."""
    frames = convert_tables(tables, spark)
    ranking = choose_ranking(frames.pop("data"), settings, **frames)
    return Evaluation(settings=ranking.fitted, ranking=ranking)
