"""The report of a metric table: what is read, in which order, and what is made of it."""

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
from ndcg_spark.reports.contents import Mean, level_of, read
from ndcg_spark.reports.reading import Rows, Scope
from ndcg_spark.reports.sections import Contents
from ndcg_spark.reports.sentences import headline
from ndcg_spark.reports.settings import ReportLimits
from ndcg_spark.reports.wording import counted, day, join_names, metric_name, plain
from ndcg_spark.tables import swap_in

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Report:
    """A report that was read; it is drawn when it is asked for.

    Parameters
    ----------
    contents : Contents
        Everything that it says, as plain values.

    Notes
    -----
    In Jupyter the report shows itself; in Databricks use `displayHTML(report.html)`.
    """

    contents: Contents

    def __repr__(self) -> str:
        night = "" if self.contents.run_date is None else f", {day(self.contents.run_date)}"
        return "\n".join(
            (
                f"Report: {self.contents.title}{night}",
                headline(self.contents),
                "html (the page), figures; save(path) writes the page",
            )
        )

    @cached_property
    def html(self) -> str:
        """One page of HTML without any link to outside. Needs the extra `report`."""
        from ndcg_spark.reports.page import page_of

        return page_of(self.contents)

    @cached_property
    def figures(self) -> dict[str, Figure]:
        """Figures of matplotlib by name: `curve`, `trend`, `differences`, `distribution`, as far as there is data.

        They are not shared with the page, so that they can be changed. Needs the extra `report`.
        """
        from ndcg_spark.reports.figures import figures_of

        return figures_of(self.contents)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page into a file, whole or not at all.

        Parameters
        ----------
        path : str or path
            A file that is there is replaced.

        Returns
        -------
        Path
        """
        with closing(StagedFile(os.fspath(path), self.html)) as staged:
            swap_in([staged])
        return Path(path)

    def _repr_html_(self) -> str:
        """Show the page in a frame of its own, so that its styles and those of the notebook do not mix."""
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
    """Read what a person wants to know about one night out of the tables that jobs have written. Runs actions.

    Parameters
    ----------
    metrics : DataFrame or Evaluation
        A metric table; or a summary, or the result of `evaluate`, which are one night without a date. Of a result the
        queries are shown, too.
    per_query : DataFrame or None
        A per-query table: adds how queries are distributed, and those with the lowest values.
    comparison : DataFrame, Comparison or None
        A comparison table, or the result of `compare`: adds the differences between runs.
    flags : DataFrame or None
        What `flag_changes` found: nights to mark. A metric table may itself have `flagged` (boolean) and `note`.
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
        None takes the newest.
    dataset : str or None
        None: the only one.
    runs : str or sequence of str
        Runs to show; empty takes those with the highest values. One of them may lack the night, which the report then
        tells first; likewise `baseline` and `production`.
    metric : str or None
        Metric of the headline, as `ndcg@10`. None: NDCG at 10, or at the largest cutoff.
    gates : str or sequence of str
        Such as `ndcg@10>=0.40`.
    baseline : str or None
        Queries are shown that lose the most against this run. None: since the night before.
    production : str or None
        The run that the headline is about. None: the run with the worst news.
    title : str or None
    today : date or None
        The day on which the newest night is looked for: the headline then tells if that night is older than the day
        before. None: a night of any age is the newest.
    limits : ReportLimits or None
        How much is shown.

    Returns
    -------
    Report

    Raises
    ------
    InvalidParameterError, InputRefusedError, MissingColumnError
        For names that the tables do not have, and for judgments of an evaluation that match nothing.

    Notes
    -----
    Spark cost: an action each for the data sets, the night, its trend, its segments, and what it lacks, over rows of
    the metric table; the last one passes rows of 31 days through Python workers. With queries three more, one of
    which shuffles the queries of two nights; one each for comparisons, flags, changed queries, and texts of queries
    (two with both kinds of queries). Rows are filtered
    and cut by Spark; what comes to the driver is bounded by `limits`.
    """
    limits = limits or ReportLimits()
    texts = queries.QueryTexts.of(query_texts, query_text_col)
    means = metrics.ranking.summary(keep_refusals=True) if isinstance(metrics, Evaluation) else metrics
    table = reading.metric_table(means)
    # Queries of lists may lack names.
    if isinstance(metrics, Evaluation) and per_query is None and metrics.settings.columns.query:
        per_query = metrics.per_query_table
    runs, gates = to_tuple("runs", runs), to_tuple("gates", gates)
    place = _place(reading.datasets_of(table), dataset, night)
    table = raise_refusals(table)
    rows, seen = _night(table, place, runs, baseline=baseline, production=production)
    computed = sorted({(row["metric"], row["k"]) for row in rows}, key=lambda one: metric_order(*one))
    chosen = main_metric(computed) if metric is None else find_metric(metric, computed, f"metric {metric!r}")
    here = None if production in seen else production
    shown, notes = choose_shown_runs(rows, chosen, limits, asked=bool(runs), production=here)
    if isinstance(metrics, Evaluation):
        notes += [f"Judgments: {line}." for line in check_matched(read_top_items(rows), metrics.ranking)]
    baseline = None if baseline in seen else baseline
    _check_baseline(baseline, shown)
    scope = Scope(place.dataset, place.night, shown, *chosen, limits, baseline=baseline)
    rows = [row for row in rows if row["run"] in shown]
    scope = replace(scope, computed=max(filter(None, (row["computed"] for row in rows)), default=None))
    if summary is not None:
        sections.check_summary(summary, place.dataset, place.night, {row["config_hash"] for row in rows} - {None, ""})
    overall = sorted((row for row in rows if (row["metric"], row["k"]) == chosen), key=scope.place)
    headline_means = [read(Mean, row) for row in overall]
    level = level_of(headline_means)
    flagged = sections.Flags.read(flags, scope)
    trend = sections.Trend.read(table, scope, flagged, place.n_nights)
    scope = replace(scope, before=trend.night_before(place.night))
    standings = tuple(trend.standing(mean, level) for mean in headline_means)
    missing = sections.Missing.read(table, scope, runs, seen)
    in_order = sorted(sorted(rows, key=lambda row: metric_order(row["metric"], row["k"])), key=scope.place)
    return Report(
        Contents(
            title=sections.titled(title, place.dataset, shown),
            dataset=plain(place.dataset),
            run_date=place.night,
            metric=plain(scope.metric),
            k=scope.k,
            level=level,
            standings=standings,
            means=tuple(read(Mean, row) for row in in_order),
            notes=tuple(notes),
            flags=flagged,
            trend=trend,
            missing=missing,
            segments=sections.Segments.read(table, scope, standings, missing),
            queries=queries.Queries.read(per_query, scope, standings, texts),
            differences=sections.Differences.read(comparison, scope, standings),
            changed=() if changed is None else queries.changed_queries(changed, scope, texts),
            gates=sections.gate_results(gates, computed, rows, [one.last.run for one in missing.runs]),
            accounting=sections.Accounting.read(headline_means, summary),
            provenance=sections.provenance(overall),
            production=None if production is None else plain(production),
            today=today,
        )
    )


def _check_baseline(baseline: str | None, shown: Sequence[str]) -> None:
    if baseline is not None and baseline not in shown:
        known = ", ".join(map(repr, shown))
        raise InvalidParameterError(f"baseline {baseline!r} is not among the runs of the report: {known}.")


@dataclass(frozen=True, slots=True)
class _Place:
    dataset: str
    night: date | None
    newest: date | None
    n_nights: int

    def __str__(self) -> str:
        return f"data set {self.dataset!r}" + (f" on {self.night.isoformat()}" if self.night else "")


def _place(found: Rows, dataset: str | None, night: date | None) -> _Place:
    """Find the data set and the night, or list which exist."""
    if night is not None:
        convert_value("night", date, night)
    names = [row["dataset"] for row in found]
    if not names:
        raise InputRefusedError("the metric table has no rows.")
    if dataset is None and len(names) > 1:
        raise InvalidParameterError(
            f"the metric table has several data sets; name one of {join_names(map(repr, names))}."
        )
    chosen = names[0] if dataset is None else dataset
    if chosen not in names:
        raise InvalidParameterError(f"there is no data set {chosen!r}; there are {join_names(map(repr, names))}.")
    (row,) = [row for row in found if row["dataset"] == chosen]
    return _Place(chosen, night or row["newest"], row["newest"], row["n_nights"])


def _night(
    table: DataFrame, place: _Place, runs: Sequence[str], *, baseline: str | None, production: str | None
) -> tuple[Rows, dict[str, date]]:
    """Read the means of a night, and find the last nights of runs that are named and that it lacks."""
    rows = reading.means_of_night(table, place.dataset, place.night, runs)
    there = {row["run"] for row in rows}
    if not there and not runs:
        raise InputRefusedError(f"the metric table has no rows of {place}{_last_night(place)}.")
    named = dict.fromkeys((*runs, *(one for one in (baseline, production) if one and (one in runs or not runs))))
    lacking = [run for run in named if run not in there]
    seen = reading.last_seen(table, place.dataset, place.night, lacking)
    unknown = [run for run in runs if run not in there and run not in seen]
    if unknown:
        others = {row["run"] for row in reading.means_of_night(table, place.dataset, place.night, ())}
        known = describe_runs(others, join_names(map(repr, sorted(others))))
        raise InvalidParameterError(f"there is no run {unknown[0]!r} in {place}; {known}.")
    if not there:
        run, last = next(iter(seen.items()))
        raise InputRefusedError(f"run {run!r} has no rows of {place}; its last night is {last.isoformat()}.")
    return rows, seen


def _last_night(place: _Place) -> str:
    if place.night is None or place.newest is None:
        return ""
    last, days = f"; its last night is {place.newest.isoformat()}", (place.night - place.newest).days
    return f"{last}, {counted(days, 'night', 'nights')} before" if days > 0 else last


def choose_shown_runs(
    rows: Rows, found: tuple[str, int | None], limits: ReportLimits, *, asked: bool, production: str | None
) -> tuple[tuple[str, ...], list[str]]:
    """Choose the runs with the best (or highest) values, and the one in production; a sentence counts the others."""
    its = [row for row in rows if (row["metric"], row["k"]) == found]
    sign, extreme = (1, "lowest") if direction_of(found[0]) is False else (-1, "highest")
    best = sorted(its, key=lambda row: (row["value"] is None, sign * (row["value"] or 0), row["run"]))
    names = [row["run"] for row in best]
    rest = len(names) - limits.runs
    if rest > 0 and asked:
        raise InvalidParameterError(f"a report shows at most {limits.runs} runs; got {len(names)}.")
    if production is not None:
        if production not in names:
            raise InvalidParameterError(
                f"production {production!r} is not among the runs: {join_names(map(repr, names))}."
            )
        if production not in names[: limits.runs]:
            names = [*names[: limits.runs - 1], production]
    label = metric_name(*found)
    sentence = f"Runs: the {limits.runs} with the {extreme} {label}; {rest:,} more are left out."
    return tuple(names[: limits.runs]), [sentence] if rest > 0 else []
