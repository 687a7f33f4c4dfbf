"""The report of a metric table: reads the sections in order and assembles them."""

from __future__ import annotations

import html
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from ndcg_spark.comparison.spark_results import Comparison
from ndcg_spark.core.adapters import accepts_tables
from ndcg_spark.core.flag import convert_value, to_tuple
from ndcg_spark.core.labels import describe_runs, main_metric, metric_order
from ndcg_spark.core.workers import raise_refusals
from ndcg_spark.errors import InputRefusedError, InvalidParameterError
from ndcg_spark.evaluation.frames.matching import check_matched
from ndcg_spark.evaluation.gates import find_metric
from ndcg_spark.evaluation.matching import read_top_items
from ndcg_spark.evaluation.spark_results import Evaluation
from ndcg_spark.jobs.outputs import StagedFile
from ndcg_spark.metrics import direction_of
from ndcg_spark.reports import queries, reading, sections
from ndcg_spark.reports.contents import Mean, infer_level, read
from ndcg_spark.reports.reading import Rows, Scope
from ndcg_spark.reports.sections import Contents
from ndcg_spark.reports.sentences import write_headline
from ndcg_spark.reports.settings import ReportLimits
from ndcg_spark.reports.wording import clean_text, format_day, join_names, name_metric, pluralize
from ndcg_spark.tables import swap_in

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Report:
    """A report; its page and figures are drawn on first access.

    Parameters
    ----------
    contents : Contents
        Everything that the report shows, as plain values.

    Notes
    -----
    In Jupyter the report shows itself; in Databricks use `displayHTML(report.html)`.
    """

    contents: Contents

    def __repr__(self) -> str:
        night = "" if self.contents.run_date is None else f", {format_day(self.contents.run_date)}"
        return "\n".join(
            (
                f"Report: {self.contents.title}{night}",
                write_headline(self.contents),
                "html (the page), figures; save(path) writes the page",
            )
        )

    @cached_property
    def html(self) -> str:
        """One page of HTML without external resources. Needs the extra `report`."""
        from ndcg_spark.reports.page import draw_page

        return draw_page(self.contents)

    @cached_property
    def figures(self) -> dict[str, Figure]:
        """Matplotlib figures by name: `curve`, `trend`, `differences` and `distribution`, if there is data for them.

        The page does not use these objects, so they can be changed. Needs the extra `report`.
        """
        from ndcg_spark.reports.figures import draw_figures

        return draw_figures(self.contents)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page to a file, atomically.

        Parameters
        ----------
        path : str or path
            An existing file is replaced.

        Returns
        -------
        Path
        """
        with closing(StagedFile(os.fspath(path), self.html)) as staged:
            swap_in([staged])
        return Path(path)

    def _repr_html_(self) -> str:
        """Show the page in a separate frame, so that its styles do not mix with those of the notebook."""
        return (
            f'<iframe title="{html.escape(self.contents.title)}" sandbox="allow-scripts" '
            f'style="width:100%;height:48rem;border:0" srcdoc="{html.escape(self.html)}"></iframe>'
        )


@accepts_tables
def report(
    metrics: DataFrame | Evaluation,
    *,
    per_query: DataFrame | None = None,
    comparison: DataFrame | Comparison | None = None,
    flags: DataFrame | None = None,
    changed: DataFrame | Iterable[Mapping[str, Any]] | None = None,
    query_texts: DataFrame | None = None,
    query_text_col: str | None = None,
    summary: Mapping[str, Any] | None = None,
    night: date | None = None,
    dataset: str | None = None,
    runs: str | Sequence[str] = (),
    metric: str | None = None,
    gates: str | Sequence[str] = (),
    baseline: str | None = None,
    production: str | None = None,
    title: str | None = None,
    today: date | None = None,
    limits: ReportLimits | None = None,
) -> Report:
    """Build the report of one night from the tables that jobs have written. Runs actions.

    Parameters
    ----------
    metrics : DataFrame or Evaluation
        A metric table; or a summary or the result of `evaluate`, which are one night without a date. For a result the
        report also shows queries.
    per_query : DataFrame or None
        A per-query table: adds the distribution of queries, and those with the worst values.
    comparison : DataFrame, Comparison or None
        A comparison table, or the result of `compare`: adds the differences between runs.
    flags : DataFrame or None
        The table of `flag_changes`: nights to mark. A metric table may itself have `flagged` (boolean) and `note`.
    changed : DataFrame, iterable of mapping, or None
        Rows of `changed_queries`: adds the queries that lost and gained most between two runs, with both lists.
    query_texts : DataFrame or None
        A table with the text of each query: the query columns of the per-query table, and `query_text_col`. The page
        then shows texts beside the queries. A query without a row, or whose text is null, has no text.
    query_text_col : str or None
        Column of `query_texts` with the text. None: `query_text`.
    summary : mapping or None
        The JSON of the job: adds the rows that were rejected.
    night : date or None
        None: the newest.
    dataset : str or None
        None: the only one.
    runs : str or sequence of str
        Runs to show; empty: those with the best values. If one of them, `baseline` or `production` has no rows on the
        night, the headline reports that.
    metric : str or None
        Metric of the headline, as `ndcg@10`. None: NDCG at 10, or at the largest cutoff.
    gates : str or sequence of str
        Gates such as `ndcg@10>=0.40`.
    baseline : str or None
        The run that losses of queries are against. None: losses since the night before.
    production : str or None
        The run that the headline is about. None: the run with the worst news.
    title : str or None
    today : date or None
        Day of the report: the headline warns if the newest night is older than the day before. None: no warning.
    limits : ReportLimits or None
        Limits to the number of rows shown.

    Returns
    -------
    Report

    Raises
    ------
    InvalidParameterError, InputRefusedError, MissingColumnError
        For names that the tables do not have, and for an evaluation whose judgments match no items.

    Notes
    -----
    Spark cost: an action each for data sets, night, trend, segments and missing series of the metric table; the last
    passes rows of 31 days through Python workers. Queries need three more, one of which shuffles the queries of two
    nights. Comparisons, flags, changed queries and texts of queries need one each (two for texts of both kinds of
    queries). Spark filters and limits the rows; the driver collects at most as many as `limits` allow.
    """
    limits = limits or ReportLimits()
    texts = queries.QueryTexts.from_frame(query_texts, query_text_col)
    means = metrics.ranking.summary(keep_refusals=True) if isinstance(metrics, Evaluation) else metrics
    table = reading.select_metrics(means)
    # Rankings of lists may have no query column.
    if isinstance(metrics, Evaluation) and per_query is None and metrics.settings.columns.query:
        per_query = metrics.per_query_table
    runs, gates = to_tuple("runs", runs), to_tuple("gates", gates)
    selection = _select_night(reading.list_datasets(table), dataset, night)
    table = raise_refusals(table)
    rows, last_nights = _read_night(table, selection, runs, baseline=baseline, production=production)
    computed = sorted({(row["metric"], row["k"]) for row in rows}, key=lambda pair: metric_order(*pair))
    chosen = main_metric(computed) if metric is None else find_metric(metric, computed, f"metric {metric!r}")
    present = None if production in last_nights else production
    shown, notes = choose_shown_runs(rows, chosen, limits, are_named=bool(runs), production=present)
    if isinstance(metrics, Evaluation):
        notes += [f"Judgments: {line}." for line in check_matched(read_top_items(rows), metrics.ranking)]
    baseline = None if baseline in last_nights else baseline
    _check_baseline(baseline, shown)
    scope = Scope(selection.dataset, selection.night, shown, *chosen, limits, baseline=baseline)
    rows = [row for row in rows if row["run"] in shown]
    scope = replace(scope, computed=max(filter(None, (row["computed"] for row in rows)), default=None))
    if summary is not None:
        config_hashes = {row["config_hash"] for row in rows} - {None, ""}
        sections.check_summary(summary, selection.dataset, selection.night, config_hashes)
    overall = sorted((row for row in rows if (row["metric"], row["k"]) == chosen), key=scope.rank_run)
    headline_means = [read(Mean, row) for row in overall]
    level = infer_level(headline_means)
    night_flags = sections.Flags.read(flags, scope)
    trend = sections.Trend.read(table, scope, night_flags, selection.n_nights)
    scope = replace(scope, before=trend.find_night_before(selection.night))
    results = tuple(trend.compare_run(mean, level) for mean in headline_means)
    missing = sections.Missing.read(table, scope, runs, last_nights)
    sorted_rows = sorted(sorted(rows, key=lambda row: metric_order(row["metric"], row["k"])), key=scope.rank_run)
    return Report(
        Contents(
            title=sections.choose_title(title, selection.dataset, shown),
            dataset=clean_text(selection.dataset),
            run_date=selection.night,
            metric=clean_text(scope.metric),
            k=scope.k,
            level=level,
            results=results,
            means=tuple(read(Mean, row) for row in sorted_rows),
            notes=tuple(notes),
            flags=night_flags,
            trend=trend,
            missing=missing,
            segments=sections.Segments.read(table, scope, results, missing),
            queries=queries.Queries.read(per_query, scope, results, texts),
            differences=sections.Differences.read(comparison, scope, results),
            changed=() if changed is None else queries.read_changed_queries(changed, scope, texts),
            gates=sections.check_gates(gates, computed, rows, [series.last.run for series in missing.runs]),
            accounting=sections.Accounting.read(headline_means, summary),
            provenance=sections.list_provenance(overall),
            production=None if production is None else clean_text(production),
            today=today,
        )
    )


def _check_baseline(baseline: str | None, shown: Sequence[str]) -> None:
    if baseline is not None and baseline not in shown:
        known = ", ".join(map(repr, shown))
        raise InvalidParameterError(f"baseline {baseline!r} is not among the runs of the report: {known}.")


@dataclass(frozen=True, slots=True)
class _Selection:
    dataset: str
    night: date | None
    newest: date | None
    n_nights: int

    def __str__(self) -> str:
        return f"data set {self.dataset!r}" + (f" on {self.night.isoformat()}" if self.night else "")


def _select_night(datasets: Rows, dataset: str | None, night: date | None) -> _Selection:
    """Select the data set and the night; refuse names that do not exist."""
    if night is not None:
        convert_value("night", date, night)
    names = [row["dataset"] for row in datasets]
    if not names:
        raise InputRefusedError("the metric table has no rows.")
    if dataset is None and len(names) > 1:
        raise InvalidParameterError(
            f"the metric table has several data sets; name one of {join_names(map(repr, names))}."
        )
    chosen = names[0] if dataset is None else dataset
    if chosen not in names:
        raise InvalidParameterError(f"there is no data set {chosen!r}; there are {join_names(map(repr, names))}.")
    (row,) = [row for row in datasets if row["dataset"] == chosen]
    return _Selection(chosen, night or row["newest"], row["newest"], row["n_nights"])


def _read_night(
    table: DataFrame, selection: _Selection, runs: Sequence[str], *, baseline: str | None, production: str | None
) -> tuple[Rows, dict[str, date]]:
    """Read the means of a night, and the last nights of named runs that the night lacks."""
    rows = reading.read_means(table, selection.dataset, selection.night, runs)
    present = {row["run"] for row in rows}
    if not present and not runs:
        raise InputRefusedError(f"the metric table has no rows of {selection}{_describe_last_night(selection)}.")
    named = dict.fromkeys((*runs, *(name for name in (baseline, production) if name and (name in runs or not runs))))
    lacking = [run for run in named if run not in present]
    last_nights = reading.find_last_nights(table, selection.dataset, selection.night, lacking)
    unknown = [run for run in runs if run not in present and run not in last_nights]
    if unknown:
        others = {row["run"] for row in reading.read_means(table, selection.dataset, selection.night, ())}
        known = describe_runs(others, join_names(map(repr, sorted(others))))
        raise InvalidParameterError(f"there is no run {unknown[0]!r} in {selection}; {known}.")
    if not present:
        run, last = next(iter(last_nights.items()))
        raise InputRefusedError(f"run {run!r} has no rows of {selection}; its last night is {last.isoformat()}.")
    return rows, last_nights


def _describe_last_night(selection: _Selection) -> str:
    if selection.night is None or selection.newest is None:
        return ""
    last, days = f"; its last night is {selection.newest.isoformat()}", (selection.night - selection.newest).days
    return f"{last}, {pluralize(days, 'night', 'nights')} before" if days > 0 else last


def choose_shown_runs(
    rows: Rows, metric: tuple[str, int | None], limits: ReportLimits, *, are_named: bool, production: str | None
) -> tuple[tuple[str, ...], list[str]]:
    """Choose the runs with the best (or highest) values and the production run; a sentence counts the others."""
    means = [row for row in rows if (row["metric"], row["k"]) == metric]
    sign, extreme = (1, "lowest") if direction_of(metric[0]) is False else (-1, "highest")
    best = sorted(means, key=lambda row: (row["value"] is None, sign * (row["value"] or 0), row["run"]))
    names = [row["run"] for row in best]
    n_left_out = len(names) - limits.runs
    if n_left_out > 0 and are_named:
        raise InvalidParameterError(f"a report shows at most {limits.runs} runs; got {len(names)}.")
    if production is not None:
        if production not in names:
            raise InvalidParameterError(
                f"production {production!r} is not among the runs: {join_names(map(repr, names))}."
            )
        if production not in names[: limits.runs]:
            names = [*names[: limits.runs - 1], production]
    label = name_metric(*metric)
    sentence = f"Runs: the {limits.runs} with the {extreme} {label}; {n_left_out:,} more are left out."
    return tuple(names[: limits.runs]), [sentence] if n_left_out > 0 else []
