"""The work of `diagnose` and what it prints. Methods named `run` run actions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from rich.console import Console
from rich.table import Table

from ndcg_spark.core import labels
from ndcg_spark.core.columns import require_column
from ndcg_spark.diagnosis.api import changed_queries
from ndcg_spark.diagnosis.frames import score_losses, shift_of_means, summarize_losses
from ndcg_spark.diagnosis.settings import ChangeJobSettings, RunsJobSettings, ShiftJobSettings
from ndcg_spark.errors import InputRefusedError, escape_unprintable
from ndcg_spark.evaluation.rules import RULES, format_rules_notes
from ndcg_spark.evaluation.spark_results import Evaluation
from ndcg_spark.evaluation.work import RankingWork
from ndcg_spark.history.frames import require_present
from ndcg_spark.jobs.printing import MAX_SEGMENTS, make_cell
from ndcg_spark.jobs.runner import Job, Line, Outcome, Work
from ndcg_spark.metrics import EVERY

WIDTH = 118
"""Width of tables in a log, which has no terminal width."""
_PROFILE = 10


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=WIDTH)


def show_shifts(rows: list[dict[str, Any]], settings: ShiftJobSettings) -> None:
    """Print the shifts of segments between two nights: a table for each mean, whose total is first in `rows`."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["run"], row["metric"], row["k"], row["segment_by"]), []).append(row)
    for (run, metric, k, by), group in groups.items():
        title = f"{labels.metric_at(metric, k)} by {by}, {settings.before} to {settings.after}"
        table = Table(title=make_cell(f"{title}, run {run}" if run else title))
        table.add_column(make_cell(by))
        for label in ("share before", "after", "mean before", "after", "mix", "within", "change"):
            table.add_column(label, justify="right")
        total = group[0]
        for row in [*group[1 : MAX_SEGMENTS + 1], total]:
            label = labels.OVERALL if row["is_total"] else labels.text(row["segment"])
            shares = [f"{row[f'weight_{night}'] / total[f'weight_{night}']:.1%}" for night in ("before", "after")]
            means = [labels.number(row[f"value_{night}"]) for night in ("before", "after")]
            parts = [f"{row[part]:+.4f}" for part in ("mix", "within", "change")]
            table.add_row(make_cell(label), *shares, *means, *parts)
        _console().print(table)
        if len(group) > MAX_SEGMENTS + 1:
            print(f"... and {len(group) - MAX_SEGMENTS - 1} more segments; --json has all of them.")


def show_losses(rows: list[dict[str, Any]]) -> None:
    """Print the losses of runs, sorted rows of `summarize_losses`: means, and the gain of the first ranks."""
    groups: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        groups.setdefault((row["run"], row["segment_by"], row["segment"], row["k"]), {})[row["metric"]] = row
    table = Table(title="what is lost: 1 = NDCG + not retrieved + ranked too low")
    for label in ("run", "segment", "k"):
        table.add_column(label)
    for label in ("queries", "NDCG", "not retrieved", "ranked too low", "best swap adds (DCG)"):
        table.add_column(label, justify="right")
    for (run, by, segment, k), metrics in list(groups.items())[:MAX_SEGMENTS]:
        label, n_queries = labels.segment_at(by, segment), f"{metrics['ndcg']['n_queries']:,}"
        shown = [
            metrics[metric]["value"] for metric in ("ndcg", "lost_not_retrieved", "lost_ranked_low", "swap_gain")
        ]
        table.add_row(make_cell(run), make_cell(label), labels.cutoff(k), n_queries, *map(labels.number, shown))
    _console().print(table)
    for (run, by, _, k), metrics in groups.items():
        ranks = [
            metrics[f"ndcg_rank_{rank}"]["value"] for rank in range(1, _PROFILE + 1) if f"ndcg_rank_{rank}" in metrics
        ]
        if not by:
            suffix = f", run {escape_unprintable(run)}" if run else ""
            print(f"{labels.metric_at('NDCG', k)} by rank{suffix}: {'  '.join(map(labels.number, ranks))}")


def show_changes(queries: list[dict[str, Any]], keys: Sequence[str], chosen: ChangeJobSettings) -> None:
    """Print the queries that changed most, sorted rows of `changed_queries`, with both lists side by side."""
    for change in ("lost", "gained"):
        changed = [row for row in queries if row["change"] == change]
        if not changed:
            print(escape_unprintable(f"No query {change} from {chosen.baseline} to {chosen.run}."))
            continue
        table = Table(title=make_cell(f"queries that {change} most from {chosen.baseline} to {chosen.run}"))
        for column in ("query", "change"):
            table.add_column(column)
        for run in (chosen.baseline, chosen.run):
            table.add_column(make_cell(f"{run}: item (relevance)"), overflow="fold")
        for row in changed:
            query = ", ".join(str(row[column]) for column in keys)
            moved = f"{row['baseline_value']:.4f} -> {row['value']:.4f}"
            table.add_row(
                make_cell(query),
                moved,
                *(make_cell(_format_items(row[column])) for column in ("baseline_list", "list")),
            )
        _console().print(table)


def _format_items(items: list[dict[str, Any]] | None) -> str:
    texts = []
    for item in items or []:
        relevance = labels.number(item.get("relevance"), "g")
        texts.append(f"{item['item']} ({relevance})" if "item" in item else relevance)
    return "  ".join(texts)


class DiagnoseNights(Work[ShiftJobSettings]):
    """Splits the change of a mean between two nights."""

    def __init__(self, job: Job[ShiftJobSettings]) -> None:
        super().__init__(job)
        settings, self.table = self.settings, self.tables["metric_table"].frame
        means = _select_means(self.table, settings)
        nights = [
            means.where(F.col("run_date").cast("string") == day.isoformat())
            for day in (settings.before, settings.after)
        ]
        self.shifts = shift_of_means(*nights, across_rules=settings.across_rules)

    def run(self) -> Outcome:
        """Compare the nights by one action; further actions find the missing run, segment or night for an error."""
        settings = self.settings
        with self.job.step("comparing nights"):
            rows = [row.asDict() for row in self.shifts.collect()]
        lacks = {*settings.runs} - {row["run"] for row in rows}
        if not rows or lacks or {*settings.segments} - {row["segment_by"] for row in rows}:
            self._check_names()
            raise InputRefusedError(
                f"{self.request.sources['metric_table'].reference!r} has no segments of "
                f"{settings.means.metric} on both {settings.before} and {settings.after}."
            )
        rows.sort(key=labels.row_order)
        rows.sort(key=lambda row: (row["run"], row["segment_by"], not row["is_total"], -abs(row["change"])))
        nights = {"before": settings.before.isoformat(), "after": settings.after.isoformat()}
        return Outcome(
            facts={"shifts": rows, **nights, "metric": str(settings.means.metric)},
            lines=(lambda: show_shifts(rows, settings), *format_rules_notes(row[RULES] for row in rows)),
        )

    def _check_names(self) -> None:
        """Run actions: raise for the first requested value that the metric table does not have."""
        settings = self.settings
        means = settings.means
        for kind, column, names in (
            ("data set", F.col("dataset"), [] if settings.dataset is None else [settings.dataset]),
            ("metric", F.col("metric"), [str(means.metric)]),
            ("metric", F.expr(labels.METRIC_AT_SQL), [means.label] if means.k != EVERY else []),
            ("run", F.col("run"), settings.runs),
            ("segment column", F.col("segment_by"), settings.segments),
            ("night", F.col("run_date").cast("string"), [str(settings.before), str(settings.after)]),
        ):
            require_present(self.table, kind, column, names)


def _select_means(table: DataFrame, settings: ShiftJobSettings) -> DataFrame:
    """Select the requested rows of the metric table, of all nights."""
    for column in ("run_date", "metric", "segment_by", "k", "dataset"):
        require_column(table, column, "metric-table", "metric table")
    rows = table.where(F.col("metric") == str(settings.means.metric))
    if settings.dataset is not None:
        rows = rows.where(F.col("dataset") == settings.dataset)
    if settings.runs:
        rows = rows.where(F.col("run").isin(*settings.runs))
    if settings.means.k != EVERY:
        rows = rows.where(F.col("k").eqNullSafe(F.lit(settings.means.k)))
    return rows.where(F.col("segment_by").isin(*settings.segments)) if settings.segments else rows


class DiagnoseRuns(RankingWork[RunsJobSettings]):
    """Reports the losses of runs, and the queries that changed most between two runs."""

    def __init__(self, job: Job[RunsJobSettings]) -> None:
        super().__init__(job)
        self.open(self.settings.evaluation)
        chosen = self.settings.chosen
        self.losses = summarize_losses(score_losses(self.rankings, self.fitted), self.fitted)
        self.changed: DataFrame | None = None
        if chosen.baseline is not None and chosen.run is not None:
            evaluation = Evaluation(settings=self.fitted, ranking=self.ranking)
            self.changed = changed_queries(
                evaluation, baseline=chosen.baseline, run=chosen.run, n=chosen.top, depth=chosen.depth
            )

    def explain(self) -> Sequence[tuple[str, str]]:
        return ("input", self.input_name), ("strategy", self.describe_strategy())

    def run(self) -> Outcome:
        """Compute the losses by one action, and the queries that changed by another."""
        with self.job.step("ranking and scoring"):
            rows = sorted((row.asDict() for row in self.losses.collect()), key=labels.row_order)
        queries: list[dict[str, Any]] = []
        if self.changed is not None:
            runs = sorted({row["run"] for row in rows})
            for flag, name in (("--baseline", self.settings.chosen.baseline), ("--run", self.settings.chosen.run)):
                if name not in runs:
                    listed = ", ".join(map(repr, runs))
                    raise InputRefusedError(f"run {name!r} ({flag}) has no rows; the runs are {listed}.")
            with self.job.step("finding the queries that changed most"):
                changed = self.changed.orderBy("change", "place").collect()
                queries = [row.asDict(recursive=True) for row in changed]
        if not any(row["n_queries"] for row in rows):
            raise InputRefusedError("there is no query with a relevant item to diagnose.")
        losses = [{name: value for name, value in row.items() if name != "state"} for row in rows]
        lines: list[Line] = [lambda: show_losses(losses)]
        if self.changed is not None:
            keys = self.fitted.columns.query
            lines.append(lambda: show_changes(queries, keys, self.settings.chosen))
        return Outcome(facts={"losses": losses, "queries": queries, "input": self.input_name}, lines=lines)
