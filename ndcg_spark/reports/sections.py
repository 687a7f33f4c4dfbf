"""The sections of a report, each read from the tables; together they are its contents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import date, timedelta
from statistics import median
from typing import Any

from ndcg_spark.conventions import Convention
from ndcg_spark.conventions.convention import in_words
from ndcg_spark.errors import InputRefusedError, InvalidParameterError
from ndcg_spark.evaluation.gates import Gate
from ndcg_spark.evaluation.rules import RULES, find_differing_rules, format_difference, read_rules
from ndcg_spark.history.causes import group_by_cause
from ndcg_spark.history.settings import median_gap, missing_nights
from ndcg_spark.history.tasks import judging as night_flags
from ndcg_spark.metrics import direction_of
from ndcg_spark.reports import contents
from ndcg_spark.reports import wording as w
from ndcg_spark.reports.contents import Change, Mean, Row, RunResult, Section, infer_level, read
from ndcg_spark.reports.queries import Queries
from ndcg_spark.reports.reading import ComparisonTable, FlagTable, MetricTable, Scope, require_rules
from ndcg_spark.reports.wording import clean_text, format_day

Computed = Sequence[tuple[str, int | None]]
"""Metrics of the night, as (metric, k)."""
_PARTS = {"evaluated": "evaluated", "rejected": w.REJECTED, "left_out": "left out by a stated rule"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags(Section):
    """Flagged nights by (night, run), and segments flagged on the night, the farthest from usual first."""

    nights: dict[tuple[date, str | None], str] = field(default_factory=dict)
    changes: dict[tuple[str, str, str | None], contents.SegmentFlag] = field(default_factory=dict)
    """Flags of tonight against an earlier night, by (run, segment columns, segment)."""
    segments: tuple[contents.SegmentFlag, ...] = ()
    n_segments: int = 0
    """Number of flagged segments of the night; `segments` has one for each cause, of the first of them."""
    following: tuple[contents.SegmentFlag, ...] = ()
    """The rest of these: they have the cause of one of `segments`, or of all queries of the run."""
    earlier_segments: dict[tuple[date, str], tuple[contents.SegmentFlag, int]] = field(default_factory=dict)
    """Segment farthest from usual, and number of flagged segments, by (night, run) of earlier nights."""
    is_known: bool = False
    """True with a table of flags: nights without a flag were judged."""
    recovered: tuple[contents.SegmentFlag, ...] = ()
    """Runs and segments that were flagged before and are back to usual on the night; one for each cause."""
    ongoing: tuple[contents.SegmentFlag, ...] = ()
    """Runs and segments that were flagged before, changed to the worse, and are still away; one for each cause."""
    ongoing_runs: dict[str, contents.SegmentFlag] = field(default_factory=dict)
    """All queries of runs for which that is so, whatever the cause."""

    @classmethod
    def read(cls, table: FlagTable | None, scope: Scope) -> Flags:
        if table is None:
            return cls()
        rows, night = table.read(scope), format_day(scope.run_date)
        last = f"; its last night is {format_day(rows.last)}" if rows.last else ""
        days = sorted({row["night"] for row in rows.earlier}, reverse=True)
        nights = w.join_names(map(format_day, days), 5)
        not_shown = f"Flags of segments on earlier nights: {rows.n_earlier:,}; see the pages of {nights}."
        lacks = f"The table of flags has no rows of {night}: it was not judged{last}."
        of_tonight = [row for row in rows.nights if row["night"] == scope.run_date]
        causes = group_by_cause([*of_tonight, *rows.segments])
        leads, following = [cause.first for cause in causes], [flag for cause in causes for flag in cause.others]
        against_nights = [row for row in (*leads, *following) if night_flags.is_against_night_before(row)]
        not_covered = [lacks] if scope.run_date is not None and not rows.n_judged else []
        return cls(
            nights={
                (row["night"], row["run"] and clean_text(row["run"])): _describe_flag(row) for row in rows.nights
            },
            changes={(flag.run, flag.by, flag.segment): flag for flag in map(_read_segment_flag, against_nights)},
            segments=tuple(_read_segment_flag(row) for row in leads if row["segment_by"]),
            following=tuple(_read_segment_flag(row) for row in following if row["segment_by"]),
            n_segments=rows.n_segments,
            recovered=_read_causes(rows.recovered),
            ongoing=_read_causes(rows.ongoing),
            ongoing_runs={flag.run: flag for flag in map(_read_segment_flag, rows.ongoing) if not flag.by},
            earlier_segments={
                (row["night"], clean_text(row["run"])): (
                    _read_segment_flag(row["farthest"]),
                    row["n"],
                )
                for row in rows.earlier
            },
            is_known=True,
            left_out=(not_shown,) if rows.earlier else (),
            not_covered=(*not_covered, *scope.find_older("The table of flags", rows.source, "flag-changes")),
        )

    def find(self, row: Row) -> str | None:
        """Find the flag of a run on a night, in the table of flags or in the metric table."""
        run_key, all_runs_key = ((row["run_date"], run) for run in (clean_text(row["run"]), None))
        flag = self.nights.get(run_key, self.nights.get(all_runs_key))
        return _describe_flag(row) if flag is None and row.get("flagged") else flag

    def find_error(self, mean: Mean, before: Mean | None) -> float | None:
        """Find the standard error of the flag for the change of a mean from an earlier night; None without a flag."""
        flag = self.changes.get((mean.run, mean.by, mean.segment))
        is_of_night = flag is not None and before is not None and flag.before == before.value
        return flag.error if flag is not None and is_of_night else None


def _read_causes(rows: Sequence[Row]) -> tuple[contents.SegmentFlag, ...]:
    causes = group_by_cause(rows)
    return tuple(read(contents.SegmentFlag, cause.first, flag=cause.first["status"]) for cause in causes)


def _read_segment_flag(row: Row) -> contents.SegmentFlag:
    return read(contents.SegmentFlag, row, flag=_describe_flag(row))


def _describe_flag(row: Row) -> str:
    """Describe a flag: its status, its distance from the usual value, and its note."""
    z = row.get("z")
    parts = [clean_text(row["status"])] if row.get("status") else []
    usual, reference_night = "the usual value", row.get("reference_night")
    if night_flags.is_against_night_before(row):
        usual = "an earlier night" if reference_night is None else w.name_night(reference_night, row["night"])
    if z is not None:
        side = "below" if z < 0 else "above"
        paired = ", query by query" if row.get("weekday") == night_flags.BEFORE_PAIRED else ""
        parts.append(f"{w.format_number(abs(z), 1)} {night_flags.name_unit(row)} {side} {usual}{paired}")
    parts += [clean_text(row["note"])] if row.get("note") else []
    return ", ".join(parts) or "unlike the nights before"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend(Section):
    """Points by run, the oldest night first; also of runs that the night of the report lacks."""

    nights: dict[str, tuple[contents.TrendPoint, ...]] = field(default_factory=dict)
    narrowest: float | None = None
    """Half the width of the narrowest interval, without those below a quarter of the median."""

    @classmethod
    def read(cls, table: MetricTable, scope: Scope, flags: Flags, n_nights: int) -> Trend:
        limit, rows = scope.limits.nights, table.read_trend(scope)
        days = sorted({row["run_date"] for row in rows if row["run_date"]})[-limit:]
        trend = cls.from_rows([row for row in rows if not days or row["run_date"] >= days[0]], flags)
        left_out = []
        if n_nights > limit and len(days) == limit:
            left_out.append(f"Trend: the newest {limit:,} nights of {n_nights:,}.")
        return replace(trend, left_out=tuple(left_out))

    @classmethod
    def from_rows(cls, rows: Iterable[Row], flags: Flags) -> Trend:
        nights: dict[str, tuple[contents.TrendPoint, ...]] = {}
        for row in sorted(rows, key=lambda row: (row["run"], row["run_date"] or date.min)):
            mean, run_date = read(Mean, row), row["run_date"] or date.min
            known = {"run_date": run_date, "mean": mean, "flag": flags.find(row)}
            nights[mean.run] = (*nights.get(mean.run, ()), read(contents.TrendPoint, row, **known))
        halves = [point.mean.half for points in nights.values() for point in points]
        widths = sorted(half for half in halves if half)
        # A night whose queries are all alike says nothing about the decimals of others.
        least = median(widths) / 4 if widths else 0.0
        return cls(nights=nights, narrowest=next((half for half in widths if half >= least), None))

    @property
    def days(self) -> list[date]:
        return sorted({point.run_date for points in self.nights.values() for point in points})

    @property
    def nights_apart(self) -> int:
        return median_gap(self.days)

    @property
    def missing(self) -> list[date]:
        """Days without a result of any run, if nights are mostly a day apart."""
        return missing_nights(self.days)

    def find_gaps(self, run: str) -> list[date]:
        """Find the nights of other runs that a run lacks, although it has most of the nights since its first one."""
        days = {point.run_date for point in self.nights.get(run, ())}
        gaps = [day for day in self.days if day not in days and days and min(days) < day < max(days)]
        return gaps if len(gaps) < len(days) else []

    def find_night_before(self, night: date | None) -> date | None:
        return max((day for day in self.days if night and day < night), default=None)

    def compare_run(self, mean: Mean, level: float, flags: Flags) -> RunResult:
        """Compare the mean of a run over all queries with its earlier nights."""
        points = self.nights.get(mean.run, ())
        if not points:
            return RunResult(mean=mean, change=Change(kind="first"))
        now, earlier = points[-1], points[:-1]
        with_values = [point for point in earlier if point.mean.value is not None]
        comparable = [point for point in with_values if now.is_like(point)]
        nights = comparable or with_values
        full_nights = night_flags.find_full_nights(_list_counts(nights), mean.n_with_list)
        before = nights[full_nights[-1]] if full_nights else None
        full = night_flags.find_night_before_loss(
            _list_counts(comparable), now.run_date.toordinal(), mean.n_with_list
        )
        change = Change(kind="first")
        if before is not None:
            same = now.is_like(before)
            error = flags.find_error(mean, before.mean)
            change = contents.compare_nights(mean, before.mean, before.run_date, same=same, level=level, error=error)
            if change.kind == "incomparable":
                change = replace(change, rules=format_difference([before.mean.rules, mean.rules]))
        week_before = [point.mean for point in earlier if now.run_date - point.run_date == timedelta(days=7)]
        rejected = [point.mean.rejected_share for point in earlier if point.mean.rejected_share is not None]
        return RunResult(
            mean=mean,
            change=change,
            flag=now.flag,
            before=None if before is None else before.mean,
            lost_from=None if full is None or mean.value is None else comparable[full],
            week_before=week_before[0] if week_before else None,
            usual_rejected_share=median(rejected) if rejected else None,
        )


def _list_counts(points: Sequence[contents.TrendPoint]) -> list[night_flags.Count]:
    return [(point.run_date.toordinal(), point.mean.n_with_list) for point in points]


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """Runs, and segments of the shown runs, without rows on the night; segments with the most queries first."""

    runs: tuple[contents.MissingSeries, ...] = ()
    segments: tuple[contents.MissingSeries, ...] = ()
    n_segments: int = 0
    """Number of missing segments; `segments` has the first of them."""

    @classmethod
    def read(cls, table: MetricTable, scope: Scope, runs: Sequence[str], last_nights: Mapping[str, date]) -> Missing:
        """Read missing series, of `runs` if there are any; `last_nights` are of further missing runs."""
        if scope.run_date is None:
            return cls()
        limit = scope.limits.segments
        rows, n_segments = table.find_missing(scope, runs)
        all_series = [
            contents.MissingSeries(
                last=read(Mean, row, value=row["median"], n_queries=row["last_queries"] or 0, std_error=None),
                night=row["reference_night"],
            )
            for row in rows
        ]
        segments = [series for series in all_series if series.last.by]
        by_run = {series.last.run: series for series in all_series if not series.last.by}
        for run, night in last_nights.items():
            last = read(Mean, {"run": run, "segment_by": "", "metric": ""})
            by_run.setdefault(last.run, contents.MissingSeries(last=last, night=night))
        return cls(runs=tuple(by_run.values()), segments=tuple(segments[:limit]), n_segments=n_segments)


@dataclass(frozen=True, slots=True, kw_only=True)
class Segments(Section):
    """Segments with their change since the night before, the largest first; missing segments come last."""

    rows: tuple[contents.SegmentRow, ...] = ()

    @classmethod
    def read(
        cls, table: MetricTable, scope: Scope, results: Sequence[RunResult], missing: Missing, flags: Flags
    ) -> Segments:
        limit = scope.limits.segments
        rows, n_all = table.read_segments(scope)
        result_by_run = {result.mean.run: result for result in results}
        level = infer_level([result.mean for result in results])
        segment_rows = []
        for row in rows:
            earlier = {name.removeprefix("before_"): row[name] for name in row if name.startswith("before_")}
            mean, stored_before = read(Mean, row), read(Mean, {**row, **earlier})
            before = None if stored_before.value is None else stored_before
            result = result_by_run[mean.run]
            since = result.change.since
            same = result.change.kind != "incomparable"
            error = flags.find_error(mean, before)
            change = contents.compare_nights(mean, before, since, same=same, level=level, error=error)
            total = result.mean.weight * (result.change.difference or 0.0)
            share = change.difference * mean.weight / total if total and change.difference is not None else None
            segment_rows.append(contents.SegmentRow(mean=mean, change=change, share=share, before=before))
        present = {(row.mean.run, row.mean.by, row.mean.segment) for row in segment_rows}
        for series in missing.segments:
            if (series.last.run, series.last.by, series.last.segment) not in present:
                mean, change = replace(series.last, value=None, n_queries=0), Change(kind="lost", since=series.night)
                segment_rows.append(contents.SegmentRow(mean=mean, change=change, before=series.last))
        sentence = f"Segments: the {limit:,} with the most queries of {n_all:,}."
        return cls(rows=tuple(segment_rows), left_out=(sentence,) if n_all > limit else ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences(Section):
    """Comparisons of runs; `period` is empty for comparisons of a single night."""

    rows: tuple[contents.ComparisonRow, ...] = ()
    period: str = ""

    @classmethod
    def read(cls, table: ComparisonTable | None, scope: Scope, results: Iterable[RunResult]) -> Differences:
        if table is None:
            return cls()
        rows, limit = table.read(scope), scope.limits.comparisons
        if not rows:
            last = table.find_last_night(scope)
            if last is None:
                raise InputRefusedError(f"the comparison table has no rows of {scope}.")
            night = format_day(scope.run_date)
            lacks = f"The comparison table has no rows of {night}; its last night is {format_day(last)}."
            if last == scope.run_date:
                names = w.join_names(contents.name_run(clean_text(run)) for run in scope.runs)
                lacks = f"The comparison table compares other rankers than {names} on {night}."
            return cls(not_covered=(lacks,))
        periods = sorted({str(row["period"]) for row in rows})
        if len(periods) > 1:
            raise InputRefusedError(
                f"the comparison table has several periods ({', '.join(periods)}); choose one by a query, such as "
                f"SELECT * FROM ... WHERE period = '{periods[0]}'."
            )
        rows, is_cut = rows[:limit], len(rows) > limit
        table.check(rows)
        for row in rows:
            require_rules(results, row["run"], [row.get(RULES)], "comparison table")
        period, *dates = (rows[0][name] for name in ("period", "period_start", "period_end"))
        source = max(filter(None, (row.get("source_computed_at") for row in rows)), default=None)
        sentence = f"Differences: overall ones, and the segments with the most queries, {limit:,} rows."
        return cls(
            rows=tuple(read(contents.ComparisonRow, row) for row in rows),
            period="" if period is None else w.name_period(period, *dates),
            left_out=(sentence,) if is_cut else (),
            not_covered=tuple(scope.find_older("The comparison", source, "compare-runs")),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounting:
    """Counts of rows and queries by status, added up over runs if `runs_added`.

    `n_read` is None without the JSON of the job: the metric table lacks rejected rows without a run. Items among the
    first `k` without a judgment are not counted (None) in older tables.
    """

    rows: tuple[tuple[str, int], ...] = ()
    n_read: int | None = None
    rejected: tuple[tuple[str, int], ...] = ()
    queries: tuple[tuple[str, int], ...] = ()
    n_unjudged_items: int | None = None
    k: int | None = None
    runs_added: bool = False

    @classmethod
    def read(cls, means: Sequence[Mean], summary: Mapping[str, Any] | None) -> Accounting:
        """Count rows from the JSON of the job or, without it, from the means of the headline, one per run."""
        statuses = {"n_queries": "in the mean", **contents.UNCOUNTED}
        if any(mean.n_lost_queries is None for mean in means):
            del statuses["n_lost_queries"]
        unjudged = [mean.n_unjudged_items for mean in means]
        with_rows = [mean for mean in means if mean.n_rows is not None]
        parts: dict[str, int] = {}
        counts = {} if summary is None else summary["rows"]
        if summary is not None:
            parts = {name: int(counts.get(name, 0)) for name in _PARTS}
        elif with_rows:
            parts = {"evaluated": sum(mean.n_rows or 0 for mean in with_rows)}
            parts["left_out"] = sum(mean.n_left_out or 0 for mean in with_rows)
            if all(mean.n_rejected is not None for mean in with_rows):
                parts["rejected"] = sum(mean.n_rejected or 0 for mean in with_rows)
        reasons = {clean_text(reason): int(n) for reason, n in counts.get("rejected_by_reason", {}).items()}
        return cls(
            rows=tuple((words, parts[name]) for name, words in _PARTS.items() if name in parts),
            n_read=None if summary is None else int(counts["read"]),
            rejected=tuple(sorted(reasons.items(), key=lambda pair: (-pair[1], pair[0]))),
            queries=tuple(
                (status, sum(getattr(mean, name) or 0 for mean in means)) for name, status in statuses.items()
            ),
            n_unjudged_items=None if None in unjudged else sum(n or 0 for n in unjudged),
            k=means[0].k if means else None,
            runs_added=len(means) > 1,
        )


def check_summary(summary: Mapping[str, Any], dataset: str, night: date | None, config_hashes: set[str]) -> None:
    rows = summary.get("rows")
    is_complete = isinstance(rows, Mapping) and all(isinstance(rows.get(name), int) for name in ("read", *_PARTS))
    if not is_complete:
        raise InvalidParameterError(
            "the summary is not a JSON file of mean-ndcg: it lacks rows with read, evaluated, rejected."
        )
    stated = [
        ("data set", summary.get("dataset"), {dataset}),
        ("date", summary.get("run_date"), {night.isoformat()} if night else set()),
        ("config_hash", summary.get("config_hash"), config_hashes),
    ]
    for name, value, expected in stated:
        if value is not None and expected and value not in expected:
            raise InvalidParameterError(
                f"the summary is of another {name}: {value!r}; the report is of "
                f"{', '.join(sorted(map(repr, expected)))}."
            )


def check_gates(
    texts: Iterable[str], computed: Computed, rows: Sequence[Row], missing_runs: Iterable[str] = ()
) -> tuple[contents.GateResult, ...]:
    """Check gates on the means over all queries; gates that name a missing run are not met."""
    results = []
    for gate in (Gate.among(text, computed) for text in texts):
        missing = {"segment_by": "", "metric": gate.metric, "k": gate.k, "value": None}
        candidates = [*map(dict, rows), *({**missing, "run": run} for run in missing_runs if run == gate.run)]
        columns = {**asdict(gate), "text": gate.text.strip()}
        results += [read(contents.GateResult, {**columns, **result}) for result in gate.results(candidates)]
    return tuple(results)


def list_provenance(rows: Iterable[Row]) -> tuple[contents.Provenance, ...]:
    """List the provenance of the runs, without duplicates."""
    values = (read(contents.Provenance, row, words=_describe_convention(row["convention"])) for row in rows)
    return tuple(dict.fromkeys(values))


def _describe_convention(convention: str | None) -> tuple[tuple[str, str], ...]:
    if not convention:
        return ()
    try:
        parsed = Convention.parse(convention)
    except InvalidParameterError:
        return ()  # it names functions of a user
    return tuple((clean_text(title), clean_text(words)) for title, words in in_words(parsed))


def choose_title(title: str | None, dataset: str, runs: Sequence[str]) -> str:
    if title:
        return clean_text(title)
    name = w.shorten(clean_text(dataset), w.MAX_NAME)
    if len(runs) == 1 and runs[0]:
        return f"Ranking quality of {w.shorten(clean_text(runs[0]), w.MAX_NAME)}" + (f", {name}" if name else "")
    return f"Ranking quality, {name}" if name else "Ranking quality"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """Everything that a report shows."""

    title: str
    dataset: str
    run_date: date | None
    metric: str
    k: int | None
    level: float
    results: tuple[RunResult, ...]
    means: tuple[Mean, ...]
    """Means over all queries."""
    notes: tuple[str, ...] = ()
    """Sentences about what is left out that belong to no section."""
    flags: Flags = field(default_factory=Flags)
    trend: Trend = field(default_factory=Trend)
    missing: Missing = field(default_factory=Missing)
    segments: Segments = field(default_factory=Segments)
    queries: Queries = field(default_factory=Queries)
    differences: Differences = field(default_factory=Differences)
    changed: tuple[contents.ChangedQuery, ...] = ()
    gates: tuple[contents.GateResult, ...] = ()
    accounting: Accounting = field(default_factory=Accounting)
    provenance: tuple[contents.Provenance, ...] = ()
    production: str | None = None
    """The run whose bad news comes first in the headline; None: any."""
    today: date | None = None
    """Day of the report, if the headline shall warn that a later night is due."""
    problems: tuple[str, ...] = ()
    """Messages of refused or failed steps whose tables are optional for the report."""

    @property
    def left_out(self) -> list[str]:
        return [*self.notes, *(text for section in self._sections for text in section.left_out)]

    @property
    def not_covered(self) -> list[str]:
        return [text for section in self._sections for text in section.not_covered]

    @property
    def _sections(self) -> list[Section]:
        values = [getattr(self, each.name) for each in fields(self)]
        return [value for value in values if isinstance(value, Section)]

    @property
    def night_before(self) -> date | None:
        """The latest earlier night with a result of any run."""
        return self.trend.find_night_before(self.run_date)

    @property
    def rules_differ(self) -> str:
        """Differences between the rules of the runs."""
        return clean_text(format_difference(result.mean.rules for result in self.results))

    @property
    def label(self) -> str:
        return w.name_metric(self.metric, self.k)

    @property
    def unjudged_matters(self) -> bool:
        """True if over 1 % of the first items of a run have no judgment."""
        return any((result.mean.unjudged_share or 0.0) > 0.01 for result in self.results)

    @property
    def larger_is_better(self) -> bool | None:
        """True, False, or None if neither direction of the metric is better."""
        return direction_of(self.metric)

    @property
    def runs(self) -> tuple[str, ...]:
        """Runs, the best first; if neither direction is better, the highest first."""
        return tuple(result.mean.run for result in self.results)

    @property
    def trend_runs(self) -> tuple[str, ...]:
        """Runs of the trend: those of the night, then those that the night lacks."""
        return tuple(dict.fromkeys((*self.runs, *self.trend.nights)))

    @property
    def styles(self) -> dict[str, int]:
        """Number of the colour and marker of each run: by name, so that it is the same each night."""
        return {run: at for at, run in enumerate(sorted(self.trend_runs))}

    @property
    def result_tables(self) -> list[tuple[str, list[RunResult]]]:
        """Results grouped by rules, with the rules that differ; results without rules join the first group."""
        texts = [result.mean.rules for result in self.results if result.mean.rules]
        tables: dict[str, list[RunResult]] = {}
        for result in self.results:
            rules = result.mean.rules or next(iter(texts), None)
            about = ", ".join(f"{name}={read_rules(rules).get(name)}" for name in find_differing_rules(texts))
            tables.setdefault(about, []).append(result)
        return list(tables.items())

    @property
    def decimals(self) -> int:
        """Decimals of the metric: the narrowest interval of the trend has two digits, so that nights look alike."""
        return w.choose_decimals([self.trend.narrowest, *(result.mean.half for result in self.results)])

    @property
    def curve(self) -> tuple[Mean, ...]:
        return tuple(mean for mean in self.means if mean.metric == self.metric)
