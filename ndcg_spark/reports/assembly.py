"""The report of a metric table: what is read, in which order, and what is made of it."""

from __future__ import annotations

import html
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from ndcg_spark.comparison.api import Comparison, check_compared
from ndcg_spark.core.flag import of_kind, several
from ndcg_spark.core.given import takes_tables
from ndcg_spark.core.labels import metric_order
from ndcg_spark.core.workers import raise_refusals
from ndcg_spark.errors import InputRefusedError, InvalidParameterError
from ndcg_spark.evaluation.api import Evaluation
from ndcg_spark.evaluation.frames.matching import check_matched, top_items
from ndcg_spark.evaluation.gates import find_metric
from ndcg_spark.evaluation.rules import MIXED, RULES, read_rules, rules_difference
from ndcg_spark.jobs.outputs import StagedFile
from ndcg_spark.metrics import direction_of
from ndcg_spark.reports import building, reading
from ndcg_spark.reports.contents import Contents, Night, Standing, level_of
from ndcg_spark.reports.reading import Rows, Scope
from ndcg_spark.reports.sentences import headline
from ndcg_spark.reports.settings import ReportLimits
from ndcg_spark.reports.wording import counted, day, listed, metric_name, period_name, plain
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


@takes_tables
def report(
    metrics: DataFrame | Evaluation,
    *,
    per_query: DataFrame | None = None,
    comparison: DataFrame | Comparison | None = None,
    flags: DataFrame | None = None,
    changed: DataFrame | Iterable[Mapping[str, Any]] | None = None,
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
    which shuffles the queries of two nights; one each for comparisons, flags and changed queries. Rows are filtered
    and cut by Spark; what comes to the driver is bounded by `limits`.
    """
    limits = limits or ReportLimits()
    means = metrics.ranking.summary(keep_refusals=True) if isinstance(metrics, Evaluation) else metrics
    table = reading.metric_table(means)
    # Queries of lists may lack names.
    if isinstance(metrics, Evaluation) and per_query is None and metrics.settings.columns.query:
        per_query = metrics.per_query_table
    runs, gates = several("runs", runs), several("gates", gates)
    place = _place(reading.datasets_of(table), dataset, night)
    table = raise_refusals(table)
    rows, seen = _night(table, place, runs, baseline=baseline, production=production)
    computed = sorted({(row["metric"], row["k"]) for row in rows}, key=lambda one: metric_order(*one))
    found = (
        building.headline_metric(computed) if metric is None else find_metric(metric, computed, f"metric {metric!r}")
    )
    here = None if production in seen else production
    shown, left_out = choose_shown_runs(rows, found, limits, asked=bool(runs), production=here)
    if isinstance(metrics, Evaluation):
        left_out += [f"Judgments: {line}." for line in check_matched(top_items(rows), metrics.ranking)]
    scope = Scope(dataset=place.dataset, run_date=place.night, runs=shown, metric=found[0], k=found[1])
    rows = [row for row in rows if row["run"] in shown]
    baseline = None if baseline in seen else baseline
    if baseline is not None and baseline not in shown:
        known = ", ".join(map(repr, shown))
        raise InvalidParameterError(f"baseline {baseline!r} is not among the runs of the report: {known}.")
    if summary is not None:
        building.check_summary(summary, place.dataset, place.night, {row["config_hash"] for row in rows} - {None, ""})
    parts = _Parts(scope=scope, limits=limits, rows=rows, left_out=left_out, production=production, today=today)
    parts.read_trend(table, flags, place.n_nights)
    parts.read_segments(table)
    parts.read_absent(table, runs, seen)
    if per_query is not None:
        parts.read_queries(per_query, baseline)
    if comparison is not None:
        parts.read_comparisons(comparison)
    if changed is not None:
        parts.read_changes(changed)
    return Report(parts.contents(title, gates, computed, summary))


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
        of_kind("night", date, night)
    names = [row["dataset"] for row in found]
    if not names:
        raise InputRefusedError("the metric table has no rows.")
    if dataset is None and len(names) > 1:
        raise InvalidParameterError(
            f"the metric table has several data sets; name one of {listed(map(repr, names))}."
        )
    chosen = names[0] if dataset is None else dataset
    if chosen not in names:
        raise InvalidParameterError(f"there is no data set {chosen!r}; there are {listed(map(repr, names))}.")
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
        raise InvalidParameterError(
            f"there is no run {unknown[0]!r} in {place}; there are {listed(map(repr, sorted(others))) or 'none'}."
        )
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
                f"production {production!r} is not among the runs: {listed(map(repr, names))}."
            )
        if production not in names[: limits.runs]:
            names = [*names[: limits.runs - 1], production]
    label = metric_name(*found)
    sentence = f"Runs: the {limits.runs} with the {extreme} {label}; {rest:,} more are left out."
    return tuple(names[: limits.runs]), [sentence] if rest > 0 else []


@dataclass
class _Parts:
    """The parts of a report while they are read."""

    scope: Scope
    limits: ReportLimits
    rows: Rows
    left_out: list[str]
    trend: dict[str, tuple[Night, ...]] = field(default_factory=dict)
    standings: tuple[Standing, ...] = ()
    level: float = 0.95
    before: date | None = None
    production: str | None = None
    today: date | None = None
    not_covered: list[str] = field(default_factory=list)
    found: dict[str, Any] = field(default_factory=dict)
    """Fields of `Contents` that have been read."""

    @property
    def of_headline(self) -> Rows:
        """Rows of the metric of the headline, in the order of the runs."""
        its = {row["run"]: row for row in self.rows if (row["metric"], row["k"]) == (self.scope.metric, self.scope.k)}
        return [its[run] for run in self.scope.runs]

    def read_trend(self, table: DataFrame, flags: DataFrame | None, n_nights: int) -> None:
        """Read earlier nights, and what differs from them."""
        flagged = []
        if flags is not None:
            flagged = reading.flags_of(reading.flag_table(flags), self.scope, self.limits.nights)
            self._read_segment_flags(reading.flag_table(flags))
        rows = reading.nights_of(table, self.scope, self.limits.nights)
        days = sorted({row["run_date"] for row in rows if row["run_date"]})[-self.limits.nights :]
        kept = [row for row in rows if not days or row["run_date"] >= days[0]]
        self.trend = building.trend_of(kept, flagged)
        means = [building.mean_of(row) for row in self.of_headline]
        self.level = level_of(means)
        self.standings = building.standings_of(means, self.trend, self.level)
        self.before = max((one for one in days if self.scope.run_date and one < self.scope.run_date), default=None)
        if n_nights > self.limits.nights and len(days) == self.limits.nights:
            self.left_out.append(f"Trend: the newest {self.limits.nights:,} nights of {n_nights:,}.")
        missing = building.missing_nights(self.trend)
        if missing:
            self.left_out.append(
                f"Nights without a result, where the line of the trend breaks: {building.gap_text(missing)}."
            )

    def _read_segment_flags(self, flags: DataFrame) -> None:
        rows, counts = reading.segment_flags_of(flags, self.scope, self.limits.segments)
        self.found |= {"segment_flags": tuple(map(building.segment_flag, rows)), "n_segment_flags": counts["now"]}
        night = day(self.scope.run_date)
        if counts["before"]:
            self.left_out.append(f"Flags of segments on earlier nights: {counts['before']:,}; {night} is shown.")
        if self.scope.run_date is not None and not counts["judged"]:
            last = f"; its last night is {day(counts['last'])}" if counts["last"] else ""
            self.not_covered.append(f"The table of flags has no rows of {night}: it was not judged{last}.")

    def read_segments(self, table: DataFrame) -> None:
        rows, n_all = reading.segments_of(table, self.scope, self.before, self.limits.segments)
        weights = {plain(row["run"]): building.weight_of(row) for row in self.of_headline}
        self.found["segments"] = building.segment_rows(rows, self.standings, self.before, self.level, weights)
        if n_all > len(rows):
            self.left_out.append(f"Segments: the {len(rows):,} with the most queries of {n_all:,}.")

    def read_absent(self, table: DataFrame, runs: Sequence[str], seen: Mapping[str, date]) -> None:
        absent, segments, n_segments = reading.absent_of(table, self.scope, runs, self.limits.segments)
        self.found["n_absent_segments"] = n_segments
        found = [building.absent_of(row) for row in absent]
        has = {one.last.run for one in found}
        found += [building.last_seen_of(run, night) for run, night in seen.items() if plain(run) not in has]
        self.found["absent_runs"] = tuple(found)
        self.found["absent_segments"] = tuple(building.absent_of(row) for row in segments)
        self.found["segments"] = building.with_absent(self.found["segments"], self.found["absent_segments"])

    def read_queries(self, frame: DataFrame, baseline: str | None) -> None:
        """Read how queries are distributed, and which are lowest."""
        table = reading.query_table(frame, self.scope.metric)
        places = {run: at for at, run in enumerate(self.scope.runs)}
        rules = reading.rules_of_queries(table, self.scope, self.scope.run_date)
        for run, texts in rules.items():
            self._require_rules(run, texts, "per-query table")
        counted = reading.distributions_of(table, self.scope)
        self.found["distributions"] = tuple(
            building.distribution_of(row) for row in sorted(counted, key=lambda row: places[row["run"]])
        )
        most = self.limits.queries
        lowest = sorted(reading.lowest_queries(table, self.scope, most), key=lambda row: places[row["run"]])
        self.found["lowest"] = tuple(building.query_row(row, table.keys) for row in lowest)
        changed = any(one.change.kind == "incomparable" for one in self.standings)
        before = self.before if table.has_nights and not changed else None
        if baseline is None and before is None:
            return
        if baseline is not None and self._rules_differ:
            self.not_covered.append(f"Losses against {plain(baseline)} are not shown: other rules, other values.")
            return
        if before is not None and baseline is None:
            earlier = reading.rules_of_queries(table, self.scope, before)
            if any(rules_difference([*texts, *rules.get(run, ())]) for run, texts in earlier.items()):
                self.not_covered.append(f"Losses against {day(before)} are not shown: other rules, other values.")
                return
        lost = reading.largest_losses(table, self.scope, most, before=before, baseline=baseline)
        lost.sort(key=lambda row: places[row["run"]])
        self.found["losses"] = tuple(building.query_row(row, table.keys) for row in lost)
        self.found["losses_against"] = day(before) if baseline is None else plain(baseline)

    def _require_rules(self, run: str, texts: Iterable[str | None], table: str) -> None:
        """Refuse a table whose rows of a run were computed by other rules than the means of that run."""
        means = [one.rules for one in self.standings if one.mean.run == run]
        known = [text for text in texts if MIXED not in read_rules(text).values()]  # else combined on purpose
        difference = rules_difference([*means, *known])
        if difference:
            raise InputRefusedError(
                f"the {table} has rows of run {run!r} by other rules than its means ({difference}); evaluate both by "
                "the same rules, or leave the table out."
            )

    @property
    def _rules_differ(self) -> str:
        return rules_difference(one.rules for one in self.standings)

    def read_comparisons(self, comparison: DataFrame | Comparison) -> None:
        frame = raise_refusals(comparison.counted) if isinstance(comparison, Comparison) else comparison
        table = reading.comparison_table(frame)
        rows, more, last = reading.comparisons_of(table, self.scope, self.limits.comparisons)
        if isinstance(comparison, Comparison):
            check_compared(rows, comparison.evaluations, allowed=comparison.allow_unmatched)
        for row in rows:
            self._require_rules(row["run"], [row.get(RULES)], "comparison table")
        self.found["comparisons"] = tuple(building.comparison_of(row) for row in rows)
        if not rows:
            night = day(self.scope.run_date)
            self.not_covered.append(f"The comparison table has no rows of {night}; its last night is {day(last)}.")
            return
        if rows[0]["period"] is not None:
            period = [rows[0][name] for name in ("period", "period_start", "period_end")]
            self.found["compared_period"] = period_name(*period)
        if more:
            self.left_out.append(
                f"Differences: overall ones, and the segments with the most queries, {len(rows):,} rows."
            )

    def read_changes(self, changed: DataFrame | Iterable[Mapping[str, Any]]) -> None:
        rows = reading.changes_of(changed, self.limits.queries)
        self.found["changed"] = tuple(building.changed_query(row, self.limits.items) for row in rows)

    def contents(
        self,
        title: str | None,
        gates: Sequence[str],
        computed: Sequence[tuple[str, int | None]],
        summary: Mapping[str, Any] | None,
    ) -> Contents:
        places = {plain(run): at for at, run in enumerate(self.scope.runs)}
        means = sorted(
            (building.mean_of(row) for row in self.rows),
            key=lambda one: (places[one.run], metric_order(one.metric, one.k)),
        )
        runs = [plain(run) for run in self.scope.runs]
        return Contents(
            title=building.titled(title, self.scope.dataset, runs),
            dataset=plain(self.scope.dataset),
            run_date=self.scope.run_date,
            metric=plain(self.scope.metric),
            k=self.scope.k,
            level=self.level,
            standings=self.standings,
            means=tuple(means),
            trend=self.trend,
            gates=building.gate_results(
                gates, computed, self.rows, [one.last.run for one in self.found["absent_runs"]]
            ),
            accounting=building.accounting_of(self.of_headline, summary),
            provenance=building.provenance_of(self.of_headline),
            left_out=tuple(self.left_out),
            production=None if self.production is None else plain(self.production),
            today=self.today,
            nights_apart=building.nights_apart(self.trend),
            not_covered=tuple(self.not_covered),
            rules_differ=plain(self._rules_differ),
            **self.found,
        )
