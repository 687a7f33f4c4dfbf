"""Results of `compare`: the base class, and results that are computed without Spark as Arrow tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ndcg_spark.comparison.local import compare_locally
from ndcg_spark.comparison.settings import ComparisonSettings, is_companion
from ndcg_spark.comparison.tables import Tables, choose_tables
from ndcg_spark.comparison.tasks.finishing import PAIR_TOP_ITEMS
from ndcg_spark.core import labels
from ndcg_spark.core.shown import FOOTER, Shown
from ndcg_spark.errors import InputRefusedError, to_one_line
from ndcg_spark.evaluation.matching import TopItems
from ndcg_spark.evaluation.results import Results
from ndcg_spark.evaluation.rules import RULES, format_rules_notes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ndcg_spark.comparison.spark_results import Comparison

SHOWN = (
    "run", "baseline", "segment", "metric", "difference", "interval", "ci_low", "ci_high", "p", "verdict", "n",
    "missing",
)  # fmt: skip
"""Columns of the differences that `show` prints."""
DETAIL_COLUMNS = ("segment_by", "run", "baseline", "k", PAIR_TOP_ITEMS, RULES)
"""Columns from which the lines below the differences are built."""


@dataclass(frozen=True, kw_only=True, repr=False)
class BaseComparison(Shown):
    """Result of a comparison by either engine."""

    settings: ComparisonSettings
    evaluations: Mapping[str | None, Results] = field(default_factory=dict, compare=False)
    allow_unmatched: bool = False

    @property
    def _first_lines(self) -> tuple[str, str]:
        settings = self.settings
        pairs = [f"{settings.runs[run]} against {settings.runs[baseline]}" for baseline, run in settings.pairs]
        segments = ", ".join("+".join(columns) for columns in settings.segment_sets)
        metrics = ", ".join(metric.label for metric in settings.metrics if not is_companion(metric))
        return (
            f"Comparison: {', '.join(pairs)}; {metrics}{f', by {segments}' if segments else ''}",
            f"tests at {settings.alpha:g}: t, {settings.flips:,} sign flips, {settings.replicates:,} bootstrap "
            f"replicates, seed {settings.seed}; queries that one run lacks: {settings.unpaired}",
        )

    def _format_footer(self, details: list[dict[str, Any]]) -> list[str]:
        """Refuse judgments that match no item; report those that match few, and differing or unknown rules."""
        lines = check_matched(details, self.evaluations, allowed=self.allow_unmatched)
        return [*lines, *format_rules_notes(row[RULES] for row in details)]

    def _explain_refusal(self, refused: InputRefusedError) -> InputRefusedError:
        """Return the first evaluation's error with counts of its bad rows; `refused` if none has bad rows."""
        data = {run: "data" if run is None else f"data of run {run!r}" for run in self.evaluations}
        errors = (evaluation._explain_refusal(refused, data[run]) for run, evaluation in self.evaluations.items())
        return next((error for error in errors if error is not refused), refused)


@dataclass(frozen=True, kw_only=True, repr=False)
class LocalComparison(BaseComparison):
    """Result of `compare` for tables of pandas, polars and Arrow, and for evaluations of this machine.

    Parameters
    ----------
    settings : ComparisonSettings
    evaluations : mapping of run to LocalEvaluation
        The evaluations among the compared results; the key None stands for all runs.
    allow_unmatched : bool
        Compare runs even if no judgment matches them.
    tables : sequence of tables and runs
        Tables to read, each with the run it holds.
    inputs : object
        The `results` argument of `compare`, for `to_spark`.

    Attributes
    ----------
    summary : pyarrow.Table
        One row per (baseline, run, segment, metric, k), sorted; the columns of `Comparison.summary`.

    Notes
    -----
    The table is computed at its first use and cached. All numbers equal those of Spark to the last bit.
    """

    tables: Tables
    inputs: Any

    def __repr__(self) -> str:
        """Return the pairs, metrics, tests and engine of the comparison."""
        return "\n".join((*self._first_lines, "compared on this machine: summary (differences)"))

    @property
    def engine(self) -> str:
        """The engine: `local`."""
        return "local"

    @cached_property
    def summary(self) -> pa.Table:
        """One row per (baseline, run, segment, metric, k). Computed at its first use."""
        return self.counted.drop_columns([PAIR_TOP_ITEMS])

    @cached_property
    def counted(self) -> pa.Table:
        """The summary with counts of items."""
        try:
            return compare_locally(self.tables, self.settings)
        except InputRefusedError as error:
            raise InputRefusedError(to_one_line(str(self._explain_refusal(error)))) from None

    def differences(self) -> pa.Table:
        """Return readable differences: `run`, `baseline`, `segment`, `metric`, `difference`, `interval`, and more.

        Returns
        -------
        pyarrow.Table
            As `Comparison.differences`.
        """
        sources = {"p": "p_holm", "n": "n_queries", "missing": "n_only_run"}
        types = {
            column: self.summary.schema.field(sources.get(column, column)).type
            for column in SHOWN
            if column != "interval"
        }
        schema = pa.schema([(column, types.get(column, pa.string())) for column in SHOWN])
        return pa.Table.from_pylist([{column: row[column] for column in SHOWN} for row in self._collect()[1]], schema)

    def to_spark(self, spark: SparkSession | None = None) -> Comparison:
        """Run the same comparison on Spark: a lazy DataFrame with the same numbers.

        Parameters
        ----------
        spark : SparkSession or None
            Session for tables in memory. None: the active session, or a new one.

        Returns
        -------
        Comparison
        """
        from ndcg_spark.comparison.spark_results import build_comparison, open_on_spark

        tables = open_on_spark(self.inputs, spark)
        return build_comparison(tables, self.settings, allow_unmatched=self.allow_unmatched)

    def _collect(self) -> tuple[list[str], list[dict[str, Any]]]:
        metrics = [str(metric) for metric in self.settings.compared]
        rows = self.counted.drop_columns(["state", "replicates"]).to_pylist()
        tested = [row for row in rows if row["verdict"] is not None]
        tested.sort(key=lambda row: _sort_key(row, metrics))
        return [*SHOWN, FOOTER], [_format_row(row) for row in tested]


def _sort_key(row: Mapping[str, Any], metrics: Sequence[str]) -> tuple[Any, ...]:
    """Sort all queries first, then segments with a clear difference, largest first, then other segments."""
    of_segment = row["segment_by"] != ""
    size = (row["verdict"] == "unclear", -abs(row["difference"] or 0.0)) if of_segment else ()
    keys = row["segment_by"], row["segment"] is None, row["segment"] or "", row["baseline"], row["run"]
    return of_segment, metrics.index(row["metric"]), labels.cutoff_order(row["k"]), size, keys


def _format_row(row: Mapping[str, Any]) -> dict[str, Any]:
    low, high = row["ci_low"], row["ci_high"]
    return {
        **{column: row[column] for column in ("run", "baseline", "difference", "ci_low", "ci_high", "verdict")},
        "segment": labels.segment(row),
        "metric": labels.metric(row),
        "interval": None if low is None else labels.interval(low, high),
        "p": row["p_holm"],
        "n": row["n_queries"],
        "missing": row["n_only_run"] + row["n_only_baseline"],
        FOOTER: {column: row[column] for column in DETAIL_COLUMNS},
    }


def select_evaluations(tables: Tables, settings: ComparisonSettings) -> dict[str | None, Any]:
    """Select the evaluations among the compared tables, by run; the key None stands for all runs."""
    chosen = choose_tables(tables, settings)
    return {run: table.evaluation for table, run in chosen if table.evaluation is not None}


def check_matched(
    rows: Iterable[Mapping[str, Any]], evaluations: Mapping[str | None, Results], *, allowed: bool = False
) -> list[str]:
    """Refuse judgments of an evaluation that match no item, like `check_top_items`; return warnings."""
    counts: dict[str, tuple[int | None, list[int]]] = {}
    for row in sorted((row for row in rows if not row["segment_by"]), key=lambda row: -labels.cutoff_order(row["k"])):
        for run, items in ((row["baseline"], row[PAIR_TOP_ITEMS][:2]), (row["run"], row[PAIR_TOP_ITEMS][2:])):
            counts.setdefault(run, (row["k"], items))
    top_items = {
        run: TopItems(run=run, k=k, n_items=items[0], n_judged=items[1]) for run, (k, items) in sorted(counts.items())
    }
    lines = []
    for run, evaluation in evaluations.items():
        all_items = list(top_items.values())
        evaluated = [replace(top_items[run], is_table=True)] if run in top_items else []
        evaluated = all_items if run is None else evaluated
        lines += evaluation._check_matched(evaluated, other_runs=all_items, allowed=allowed)
    return lines
