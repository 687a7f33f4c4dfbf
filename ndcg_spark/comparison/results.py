"""What every result of `compare` has, and the results that are computed on this machine: tables of Arrow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ndcg_spark.comparison.local import compare_locally
from ndcg_spark.comparison.settings import ComparisonSettings, is_companion
from ndcg_spark.comparison.tables import Tables, choose_tables
from ndcg_spark.comparison.tasks.finishing import TOP_ITEMS
from ndcg_spark.core import labels
from ndcg_spark.core.shown import BESIDE, Shown
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
"""Columns of differences for people."""
TOLD = ("segment_by", "run", "baseline", "k", TOP_ITEMS, RULES)
"""Columns that lines below them are made from."""


@dataclass(frozen=True, kw_only=True, repr=False)
class ComparedRuns(Shown):
    """A comparison, whatever engine carries it out."""

    settings: ComparisonSettings
    evaluations: Mapping[str | None, Results] = field(default_factory=dict, compare=False)
    allow_unmatched: bool = False

    @property
    def _first_lines(self) -> tuple[str, str]:
        settings = self.settings
        pairs = [f"{settings.runs[run]} against {settings.runs[baseline]}" for baseline, run in settings.pairs]
        segments = ", ".join("+".join(names) for names in settings.segment_sets)
        metrics = ", ".join(one.label for one in settings.metrics if not is_companion(one))
        return (
            f"Comparison: {', '.join(pairs)}; {metrics}{f', by {segments}' if segments else ''}",
            f"tests at {settings.alpha:g}: t, {settings.flips:,} sign flips, {settings.replicates:,} bootstrap "
            f"replicates, seed {settings.seed}; queries that one run lacks: {settings.unpaired}",
        )

    def _lines_below(self, beside: list[dict[str, Any]]) -> list[str]:
        """Refuse judgments that match nothing; say where they match little, and where rules differ or are unknown."""
        lines = check_compared(beside, self.evaluations, allowed=self.allow_unmatched)
        return [*lines, *format_rules_notes(row[RULES] for row in beside)]

    def _explained(self, refused: InputRefusedError) -> InputRefusedError:
        """Look into each evaluation, until one has bad rows: count these, as it does itself."""
        data = {run: "data" if run is None else f"data of run {run!r}" for run in self.evaluations}
        told = (one._explained(refused, data[run]) for run, one in self.evaluations.items())
        return next((one for one in told if one is not refused), refused)


@dataclass(frozen=True, kw_only=True, repr=False)
class LocalComparison(ComparedRuns):
    """Result of `compare` for tables of pandas, polars and Arrow, and for evaluations of this machine.

    Parameters
    ----------
    settings : ComparisonSettings
    evaluations : mapping of run to LocalEvaluation
        What is compared, as far as it was not metrics of queries; None stands for all runs.
    allow_unmatched : bool
        Whether runs that judgments do not match are compared.
    tables : sequence of tables and runs
        What is read.
    given : object
        What was given to `compare`, for `to_spark`.

    Attributes
    ----------
    summary : pyarrow.Table
        One row per (baseline, run, segment, metric, k), sorted; the columns of `Comparison.summary`.

    Notes
    -----
    The table is computed when it is first asked for, and kept. All numbers are those of Spark, to the last bit.
    """

    tables: Tables
    given: Any

    def __repr__(self) -> str:
        """What is compared, by which tests, and by whom."""
        return "\n".join((*self._first_lines, "compared on this machine: summary (differences)"))

    @property
    def engine(self) -> str:
        """Who compares: `local`."""
        return "local"

    @cached_property
    def summary(self) -> pa.Table:
        """One row per (baseline, run, segment, metric, k). Runs when it is first asked for."""
        return self.counted.drop_columns([TOP_ITEMS])

    @cached_property
    def counted(self) -> pa.Table:
        """The summary, with counts of items."""
        try:
            return compare_locally(self.tables, self.settings)
        except InputRefusedError as error:
            raise InputRefusedError(to_one_line(str(self._explained(error)))) from None

    def differences(self) -> pa.Table:
        """Differences for people: `run`, `baseline`, `segment`, `metric`, `difference`, `interval`, and more.

        Returns
        -------
        pyarrow.Table
            As `Comparison.differences`.
        """
        of_summary = {"p": "p_holm", "n": "n_queries", "missing": "n_only_run"}
        kinds = {
            name: self.summary.schema.field(of_summary.get(name, name)).type for name in SHOWN if name != "interval"
        }
        schema = pa.schema([(name, kinds.get(name, pa.string())) for name in SHOWN])
        return pa.Table.from_pylist([{name: row[name] for name in SHOWN} for row in self._collected()[1]], schema)

    def to_spark(self, spark: SparkSession | None = None) -> Comparison:
        """Compare the same by Spark: a lazy DataFrame with the same numbers.

        Parameters
        ----------
        spark : SparkSession or None
            Where tables in memory go; None: the active session, or one that is started.

        Returns
        -------
        Comparison
        """
        from ndcg_spark.comparison.spark_results import comparison_of, tables_on_spark

        tables = tables_on_spark(self.given, spark)
        return comparison_of(tables, self.settings, allow_unmatched=self.allow_unmatched)

    def _collected(self) -> tuple[list[str], list[dict[str, Any]]]:
        asked = [str(one) for one in self.settings.compared]
        rows = self.counted.drop_columns(["state", "replicates"]).to_pylist()
        tested = [row for row in rows if row["verdict"] is not None]
        tested.sort(key=lambda row: _order_for_people(row, asked))
        return [*SHOWN, BESIDE], [_row_for_people(row) for row in tested]


def _order_for_people(row: Mapping[str, Any], asked: Sequence[str]) -> tuple[Any, ...]:
    """All queries first; then the segments with a clear difference, the largest first; then the others."""
    of_segment = row["segment_by"] != ""
    size = (row["verdict"] == "unclear", -abs(row["difference"] or 0.0)) if of_segment else ()
    names = row["segment_by"], row["segment"] is None, row["segment"] or "", row["baseline"], row["run"]
    return of_segment, asked.index(row["metric"]), labels.cutoff_order(row["k"]), size, names


def _row_for_people(row: Mapping[str, Any]) -> dict[str, Any]:
    low, high = row["ci_low"], row["ci_high"]
    return {
        **{name: row[name] for name in ("run", "baseline", "difference", "ci_low", "ci_high", "verdict")},
        "segment": labels.segment(row),
        "metric": labels.metric(row),
        "interval": None if low is None else labels.interval(low, high),
        "p": row["p_holm"],
        "n": row["n_queries"],
        "missing": row["n_only_run"] + row["n_only_baseline"],
        BESIDE: {name: row[name] for name in TOLD},
    }


def compared_evaluations(tables: Tables, settings: ComparisonSettings) -> dict[str | None, Any]:
    """Evaluations among what is compared, by the run that they are; None stands for all runs."""
    chosen = choose_tables(tables, settings)
    return {run: one.evaluation for one, run in chosen if one.evaluation is not None}


def check_compared(
    rows: Iterable[Mapping[str, Any]], evaluations: Mapping[str | None, Results], *, allowed: bool = False
) -> list[str]:
    """Refuse judgments of an evaluation that match nothing, as `check_top_items`, by rows with counts of items."""
    counts: dict[str, tuple[int | None, list[int]]] = {}
    for row in sorted((row for row in rows if not row["segment_by"]), key=lambda row: -labels.cutoff_order(row["k"])):
        for run, its in ((row["baseline"], row[TOP_ITEMS][:2]), (row["run"], row[TOP_ITEMS][2:])):
            counts.setdefault(run, (row["k"], its))
    found = {run: TopItems(run=run, k=k, n_items=its[0], n_judged=its[1]) for run, (k, its) in sorted(counts.items())}
    lines = []
    for run, evaluation in evaluations.items():
        its_runs = (
            list(found.values()) if run is None else [replace(found[run], is_table=True)] if run in found else []
        )
        lines += evaluation._check_matched(its_runs, other_runs=list(found.values()), allowed=allowed)
    return lines
