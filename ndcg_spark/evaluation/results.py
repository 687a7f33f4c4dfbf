"""Base of the results of `evaluate`, and the result computed on this machine, with Arrow tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ndcg_spark.core import labels
from ndcg_spark.core.arrow_tables import sort_rows
from ndcg_spark.core.batches import concat_chunks, float_values
from ndcg_spark.core.row_counts import RowCount, describe_bad_rows
from ndcg_spark.core.shown import FOOTER, Shown
from ndcg_spark.errors import InputRefusedError, InvalidParameterError, get_message, option, to_one_line
from ndcg_spark.evaluation.local import LocalRanking, select_per_query_rows
from ndcg_spark.evaluation.matching import TopItems, read_top_items
from ndcg_spark.evaluation.settings import EvaluationSettings, parse_metrics
from ndcg_spark.evaluation.tasks.partial_sums import GROUP_COUNTS
from ndcg_spark.metrics import Metric, MetricAt
from ndcg_spark.metrics.normalized_gain import NDCG

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pyspark.sql import SparkSession

    from ndcg_spark.evaluation.frames.ranking import Ranking
    from ndcg_spark.evaluation.spark_results import Evaluation


@dataclass(frozen=True, kw_only=True, repr=False)
class Results(Shown):
    """Result of `evaluate` with either engine."""

    settings: EvaluationSettings
    ranking: LocalRanking | Ranking

    @property
    def _first_line(self) -> str:
        metrics = ", ".join(metric_at.label for metric_at in self.settings.requested)
        segments = ", ".join("+".join(segment_set) for segment_set in self.settings.segment_sets)
        by = f", by {segments}" if segments else ""
        return f"Evaluation: {metrics}{by}; convention {self.settings.convention}"

    @property
    def _order_of_means(self) -> tuple[list[str], list[str]]:
        """Labels of metrics in requested order, and labels of hidden metrics."""
        companions = [
            metric_at
            for metric_at in self.settings.computed
            if metric_at.metric in NDCG.comes_with and not metric_at.asked
        ]
        requested, hidden = (
            [labels.metric_at(metric_at.metric, metric_at.k) for metric_at in metrics]
            for metrics in (self.settings.requested, companions)
        )
        return requested, hidden

    @property
    def provenance(self) -> dict[str, str]:
        """Provenance of the means, as stored in metric tables: `convention` and `config_hash`."""
        return {"convention": str(self.settings.convention), "config_hash": self.settings.digest}

    def _check_matched(
        self, runs: Sequence[TopItems], *, other_runs: Sequence[TopItems] = (), allowed: bool = False
    ) -> list[str]:
        """Check a judgments table by `check_top_items`."""
        raise NotImplementedError

    def _count_bad_rows(self) -> RowCount | None:
        """Count the bad rows of the main table; None if it is refused before they are counted. Reads the table."""
        raise NotImplementedError

    def _explain_refusal(self, refused: InputRefusedError, data: str = "data") -> InputRefusedError:
        """Replace a refusal of the first bad row by counts of all bad rows of `data`, by reason."""
        if not get_message(refused).startswith("bad row:") or self.settings.on_invalid == "reject":
            return refused
        row_count = self._count_bad_rows()
        if row_count is None or not row_count.rejected:  # the bad row is in the judgments
            return refused
        advice = f"{option('on_invalid', repr('reject'))} leaves such rows out"
        return InputRefusedError(f"{describe_bad_rows(row_count, data)}; {advice}.")

    def _format_footer(self, details: list[dict[str, Any]]) -> list[str]:
        """Format lines on left out and different queries; raise if judgments match nothing."""
        from ndcg_spark.evaluation.printed import format_notes

        match_notes = self._check_matched(read_top_items(details))
        has_judgments_table = self.ranking.plan.judgments is not None
        return format_notes(details, self.settings, has_judgments_table=has_judgments_table) + match_notes

    def _choose_metric(self, metric: str | None) -> MetricAt:
        drawn = [
            metric_at
            for metric_at in self.settings.computed
            if metric_at.shown and isinstance(metric_at.metric, Metric)
        ]
        if metric is None and drawn:
            return [metric_at for metric_at in drawn if metric_at.metric == drawn[0].metric][-1]
        (requested, *others), _ = parse_metrics(metric or "ndcg")
        for metric_at in drawn:
            if metric_at == requested and not others:
                return metric_at
        computed = ", ".join(metric_at.label for metric_at in drawn)
        raise InvalidParameterError(f"metric {metric!r} was not computed for each query; computed are: {computed}.")


@dataclass(frozen=True, kw_only=True, repr=False)
class LocalEvaluation(Results):
    """Result of `evaluate` for tables of pandas, polars and Arrow, and for files with `engine="local"`.

    Parameters
    ----------
    settings : EvaluationSettings
    ranking : LocalRanking
        The plan and the parts of tables to execute it.
    inputs : mapping of str to object
        Tables and paths as passed by the caller, for `to_spark`.

    Attributes
    ----------
    summary : pyarrow.Table
        Means, one row per (run, segment, metric, k), sorted; the columns of `summarize`.
    per_query : pyarrow.Table
        Metrics, one row per (run, query, k); the columns of `score_queries`.
    rankings : pyarrow.Table
        Ranked lists, one row per (run, query); the columns of `rank_queries`.

    Notes
    -----
    Each table is computed on first access and cached. All numbers are bit for bit equal to those of Spark.

    `show`, `to_pandas` and `plot` raise if judgments match nothing, as in `Evaluation`.
    """

    ranking: LocalRanking
    inputs: Mapping[str, Any]

    def __repr__(self) -> str:
        """Describe the metrics and the engine."""
        return f"{self._first_line}\nranked by: {self.ranking.strategy}, on this machine ({self.ranking.reason})"

    @property
    def engine(self) -> str:
        """Engine that ranks: `local`."""
        return "local"

    @cached_property
    def summary(self) -> pa.Table:
        """One row per (run, segment, metric, k); see `summarize`. Computed on first access."""
        return sort_rows(self._run(self.ranking.summary))

    @cached_property
    def per_query(self) -> pa.Table:
        """One row per (run, query, k); see `score_queries`. Computed on first access."""
        return self._run(self.ranking.per_query)

    @cached_property
    def rankings(self) -> pa.Table:
        """One row per (run, query); see `rank_queries`. Computed on first access."""
        return self._run(self.ranking.rankings)

    @property
    def per_query_table(self) -> pa.Table:
        """`per_query` as stored: without queries that a rule drops, and without columns that only sums need."""
        return select_per_query_rows(self.per_query, self.settings)

    def means(self) -> pa.Table:
        """Readable means, sorted: `run`, `segment`, `metric`, `value`, `interval`, `ci_low`, `ci_high`, `n`.

        Returns
        -------
        pyarrow.Table
            As `Evaluation.means`.
        """
        columns, rows = self._collect()
        types = {"value": pa.float64(), "ci_low": pa.float64(), "ci_high": pa.float64(), "n": pa.int64()}
        schema = pa.schema([(column, types.get(column, pa.string())) for column in columns if column != FOOTER])
        return pa.Table.from_pylist([{column: row[column] for column in schema.names} for row in rows], schema)

    def plot(self, metric: str | None = None) -> Figure:
        """Draw means by segment with their intervals, and histograms of query values.

        Parameters
        ----------
        metric : str or None
            A computed metric, such as `"ndcg@10"`. Default: the first, at its largest cutoff.

        Returns
        -------
        matplotlib.figure.Figure
            As from `Evaluation.plot`, with the same errors.
        """
        from ndcg_spark.evaluation.plots import N_BINS, choose_bin_width, draw, select_groups

        metric_at = self._choose_metric(metric)
        rows = self.summary.drop_columns(["state"]).to_pylist()
        self.ranking.check_matched(read_top_items(rows))
        drawn = [row for row in rows if row["metric"] == str(metric_at.metric) and row["k"] == metric_at.k]
        requested, _ = self._order_of_means
        drawn.sort(key=lambda row: _display_order(row, requested))
        groups = select_groups([{**row, "label": labels.segment(row)} for row in drawn])
        step = choose_bin_width(groups, within_1=metric_at.metric.within_1)
        k = pa.scalar(metric_at.k, pa.int32())
        is_k = pc.field("k").is_null() if metric_at.k is None else pc.equal(pc.field("k"), k)
        queries = self.per_query_table.filter(is_k & pc.field(metric_at.metric.column).is_valid())
        values = float_values(concat_chunks(queries.column(metric_at.metric.column)))[0]
        bins = np.floor(np.round(values / step, 9)).astype(np.int64)
        if metric_at.metric.within_1:  # for values within 0 and 1, the last bin includes 1
            bins[values == 1] = N_BINS - 1
        counts: dict[str, dict[int, int]] = {}
        for run, bin_ in zip(queries.column("run").to_pylist(), bins.tolist(), strict=True):
            run_counts = counts.setdefault(run, {})
            run_counts[bin_] = run_counts.get(bin_, 0) + 1
        return draw(metric_at.label, groups, counts, step)

    def to_spark(self, spark: SparkSession | None = None) -> Evaluation:
        """Evaluate the same tables with Spark, as lazy DataFrames with the same numbers.

        Parameters
        ----------
        spark : SparkSession or None
            Session for tables in memory. Default: the active session, or a new one.

        Returns
        -------
        Evaluation
        """
        from ndcg_spark.evaluation.spark_results import evaluate_on_spark

        return evaluate_on_spark(self.inputs, self.settings, spark)

    def _collect(self) -> tuple[list[str], list[dict[str, Any]]]:
        requested, hidden = self._order_of_means
        rows = self.summary.drop_columns(["state"]).to_pylist()
        rows = [row for row in rows if labels.metric_at(row["metric"], row["k"]) not in hidden]
        rows.sort(key=lambda row: _display_order(row, requested))
        columns = ["run", "segment", "metric", "value", "interval", "ci_low", "ci_high", "n", FOOTER]
        return columns, [_format_row(row) for row in rows]

    def _run(self, compute: Any) -> Any:
        try:
            return compute()
        except InputRefusedError as error:
            raise InputRefusedError(to_one_line(str(self._explain_refusal(error)))) from None

    def _check_matched(
        self, runs: Sequence[TopItems], *, other_runs: Sequence[TopItems] = (), allowed: bool = False
    ) -> list[str]:
        return self.ranking.check_matched(runs, other_runs=other_runs, allowed=allowed)

    def _count_bad_rows(self) -> RowCount:
        return self.ranking.count_bad_rows()["input"]


def _display_order(row: Mapping[str, Any], requested: Sequence[str]) -> tuple[Any, ...]:
    """Return the sort key of `labels.row_order_sql`: segment, metric, run."""
    segment = row["segment_by"], row["segment"] is None, row["segment"] or ""
    return *segment, *labels.metric_order(row["metric"], row["k"], requested), row["run"] or ""


def _format_row(row: Mapping[str, Any]) -> dict[str, Any]:
    low, high = row["ci_low"], row["ci_high"]
    return {
        "run": row["run"],
        "segment": labels.segment(row),
        "metric": labels.metric(row),
        "value": row["value"],
        "interval": None if low is None else labels.interval(low, high),
        "ci_low": low,
        "ci_high": high,
        "n": row["n_queries"],
        FOOTER: {column: row[column] for column in ("segment_by", "run", "metric", "k", *GROUP_COUNTS)}
        if row["segment_by"] == ""
        else None,
    }
