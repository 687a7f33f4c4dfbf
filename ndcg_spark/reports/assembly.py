"""The report of a metric table: reads the sections in order and assembles them."""

from __future__ import annotations

import html
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ndcg_spark.core.flag import convert_value, to_tuple
from ndcg_spark.core.labels import describe_runs, main_metric, metric_order
from ndcg_spark.errors import InputRefusedError, InvalidParameterError
from ndcg_spark.evaluation.gates import find_metric
from ndcg_spark.jobs.outputs import StagedFile
from ndcg_spark.metrics import direction_of
from ndcg_spark.reports import queries, sections
from ndcg_spark.reports.contents import Mean, infer_level, read
from ndcg_spark.reports.reading import MetricTable, NightTables, Rows, Scope
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
    In Jupyter the report shows itself; in Databricks use `displayHTML(report.html)`. Pages, figures and sentences
    about segments need the extra `report`.
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


def build_report(
    tables: NightTables,
    *,
    changed: Iterable[Mapping[str, Any]] | None,
    summary: Mapping[str, Any] | None,
    night: date | None,
    dataset: str | None,
    runs: str | Sequence[str],
    metric: str | None,
    gates: str | Sequence[str],
    baseline: str | None,
    production: str | None,
    title: str | None,
    today: date | None,
    limits: ReportLimits | None,
    list_notes: Callable[[Rows], list[str]] | None = None,
) -> Report:
    """Build a report as described in `report`. `list_notes` returns sentences about the means of the night."""
    limits, table = limits or ReportLimits(), tables.metrics
    runs, gates = to_tuple("runs", runs), to_tuple("gates", gates)
    selection = _select_night(table.list_datasets(), dataset, night)
    rows, last_nights = _read_night(table, selection, runs, baseline=baseline, production=production)
    computed = sorted({(row["metric"], row["k"]) for row in rows}, key=lambda pair: metric_order(*pair))
    chosen = main_metric(computed) if metric is None else find_metric(metric, computed, f"metric {metric!r}")
    present = None if production in last_nights else production
    shown, notes = choose_shown_runs(rows, chosen, limits, are_named=bool(runs), production=present)
    notes += list_notes(rows) if list_notes else []
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
    missing = sections.Missing.read(table, scope, runs, last_nights)
    missing_runs = (series.last.run for series in missing.runs)
    trend_scope = replace(scope, runs=tuple(dict.fromkeys((*shown, *missing_runs)))[: limits.runs])
    night_flags = sections.Flags.read(tables.flags, trend_scope)
    trend = sections.Trend.read(table, trend_scope, night_flags, selection.n_nights)
    results = tuple(trend.compare_run(mean, level, night_flags) for mean in headline_means)
    nights = {row["run"]: result.change.since for row, result in zip(overall, results, strict=True)}
    earlier = {run: night for run, night in nights.items() if night is not None}
    scope = replace(scope, earlier=earlier, before=max(earlier.values(), default=None))
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
            segments=sections.Segments.read(table, scope, results, missing, night_flags),
            queries=queries.Queries.read(tables.queries and tables.queries(scope), results, tables.texts),
            differences=sections.Differences.read(tables.comparison, scope, results),
            changed=() if changed is None else queries.read_changed_queries(changed, scope, tables.texts),
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
    table: MetricTable, selection: _Selection, runs: Sequence[str], *, baseline: str | None, production: str | None
) -> tuple[Rows, dict[str, date]]:
    """Read the means of a night, and the last nights of named runs that the night lacks."""
    rows = table.read_means(selection.dataset, selection.night, runs)
    present = {row["run"] for row in rows}
    if not present and not runs:
        raise InputRefusedError(f"the metric table has no rows of {selection}{_describe_last_night(selection)}.")
    named = dict.fromkeys((*runs, *(name for name in (baseline, production) if name and (name in runs or not runs))))
    lacking = [run for run in named if run not in present]
    known_night = selection.night if lacking else None
    newest = table.find_last_nights(selection.dataset, known_night, lacking) if known_night else {}
    last_nights = {run: newest[run] for run in lacking if run in newest}
    unknown = [run for run in runs if run not in present and run not in last_nights]
    if unknown:
        others = {row["run"] for row in table.read_means(selection.dataset, selection.night, ())}
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
