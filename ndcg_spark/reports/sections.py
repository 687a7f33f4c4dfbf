"""The sections of a report: each reads itself from the tables; together they are its contents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import date, timedelta
from itertools import pairwise
from statistics import median
from typing import Any

from pyspark.sql import DataFrame

from ndcg_spark.comparison.api import Comparison as ComparedRuns
from ndcg_spark.comparison.api import check_compared
from ndcg_spark.conventions import Convention
from ndcg_spark.conventions.convention import in_words
from ndcg_spark.core.workers import raise_refusals
from ndcg_spark.errors import InputRefusedError, InvalidParameterError
from ndcg_spark.evaluation.gates import Gate
from ndcg_spark.evaluation.rules import (
    MIXED,
    RULES,
    differing_rules,
    is_known,
    read_rules,
    rules_difference,
)
from ndcg_spark.history import tasks as night_flags
from ndcg_spark.metrics import direction_of
from ndcg_spark.reports import reading
from ndcg_spark.reports.contents import (
    OUTSIDE,
    Absent,
    Change,
    ChangedQuery,
    Comparison,
    Distribution,
    GateResult,
    ListedItem,
    Mean,
    Night,
    Provenance,
    QueryRow,
    Row,
    SegmentFlag,
    SegmentRow,
    Standing,
    change_of,
    plain_key,
    read,
)
from ndcg_spark.reports.reading import OF_CHANGES, Scope
from ndcg_spark.reports.wording import (
    MOST_CHARACTERS,
    REJECTED,
    day,
    decimals_for,
    metric_name,
    number,
    period_name,
    plain,
    shortened,
    signed,
)

Computed = Sequence[tuple[str, int | None]]
"""Metrics of the night, as (metric, k)."""
_PARTS = {"evaluated": "evaluated", "rejected": REJECTED, "left_out": "left out by a stated rule"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Sentences about what a section leaves out, and about tables that lack the night of the report."""

    left_out: tuple[str, ...] = ()
    not_covered: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags(Section):
    """Flagged nights by (night, run), and segments flagged on the night, the farthest from usual first."""

    nights: dict[tuple[date, str | None], str] = field(default_factory=dict)
    segments: tuple[SegmentFlag, ...] = ()
    n_segments: int = 0
    """All of the night; `segments` has the first of them."""

    @classmethod
    def read(cls, frame: DataFrame | None, scope: Scope) -> Flags:
        if frame is None:
            return cls()
        flags, night = reading.flag_table(frame), day(scope.run_date)
        nights = reading.flags_of(flags, scope)
        segments, counts = reading.segment_flags_of(flags, scope)
        left_out, not_covered = [], []
        if counts["before"]:
            left_out.append(f"Flags of segments on earlier nights: {counts['before']:,}; {night} is shown.")
        if scope.run_date is not None and not counts["judged"]:
            last = f"; its last night is {day(counts['last'])}" if counts["last"] else ""
            not_covered.append(f"The table of flags has no rows of {night}: it was not judged{last}.")
        return cls(
            nights={(row["night"], row["run"] and plain(row["run"])): _flag_text(row) for row in nights},
            segments=tuple(read(SegmentFlag, row, flag=_flag_text(row)) for row in segments),
            n_segments=counts["now"],
            left_out=tuple(left_out),
            not_covered=tuple(not_covered),
        )

    def of(self, row: Row) -> str | None:
        """Find the flag of a run on a night; the metric table may itself have one."""
        of_run, of_all = ((row["run_date"], run) for run in (plain(row["run"]), None))
        found = self.nights.get(of_run, self.nights.get(of_all))
        return _flag_text(row) if found is None and row.get("flagged") else found


def _flag_text(row: Row) -> str:
    """Explain why a night was flagged, as far as the table does."""
    z, limit = row.get("z"), row.get("limit")
    parts = [plain(row["status"])] if row.get("status") else []
    usual = "the night before" if night_flags.is_of_the_night_before(row) else "the usual value"
    parts += [] if z is None else [f"{signed(z, 1)} {night_flags.unit_of(row)} from {usual}"]
    parts += [] if z is None or limit is None else [f"limit {number(limit, 1)}"]
    parts += [plain(row["note"])] if row.get("note") else []
    return ", ".join(parts) or "unlike the nights before"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend(Section):
    """Nights by run, the oldest first."""

    nights: dict[str, tuple[Night, ...]] = field(default_factory=dict)

    @classmethod
    def read(cls, table: DataFrame, scope: Scope, flags: Flags, n_nights: int) -> Trend:
        most = scope.limits.nights
        rows = reading.nights_of(table, scope)
        days = sorted({row["run_date"] for row in rows if row["run_date"]})[-most:]
        trend = cls.of_rows([row for row in rows if not days or row["run_date"] >= days[0]], flags)
        left_out = []
        if n_nights > most and len(days) == most:
            left_out.append(f"Trend: the newest {most:,} nights of {n_nights:,}.")
        if missing := trend.missing:
            shown = ", ".join(map(day, missing[:5])) + (f" and {len(missing) - 5:,} more" if missing[5:] else "")
            left_out.append(f"Nights without a result, where the line of the trend breaks: {shown}.")
        return replace(trend, left_out=tuple(left_out))

    @classmethod
    def of_rows(cls, rows: Iterable[Row], flags: Flags) -> Trend:
        nights: dict[str, tuple[Night, ...]] = {}
        for row in sorted(rows, key=lambda one: (one["run"], one["run_date"] or date.min)):
            mean, when = read(Mean, row), row["run_date"] or date.min
            night = read(Night, row, run_date=when, mean=mean, flag=flags.of(row), rules=row["rules"])
            nights[mean.run] = (*nights.get(mean.run, ()), night)
        return cls(nights=nights)

    @property
    def days(self) -> list[date]:
        return sorted({night.run_date for nights in self.nights.values() for night in nights})

    @property
    def nights_apart(self) -> int:
        """Days from one night to the next, in the median; 1 where there is only one."""
        gaps = sorted((after - before).days for before, after in pairwise(self.days))
        return gaps[(len(gaps) - 1) // 2] if gaps else 1

    @property
    def missing(self) -> list[date]:
        """Days between the nights that no run has, where nights are mostly a day apart."""
        days = self.days
        if not days or self.nights_apart != 1:
            return []
        every = {days[0] + timedelta(days=ahead) for ahead in range((days[-1] - days[0]).days)}
        return sorted(every - set(days))

    def night_before(self, night: date | None) -> date | None:
        return max((one for one in self.days if night and one < night), default=None)

    def standing(self, mean: Mean, level: float) -> Standing:
        """Compare a mean of the metric of the headline over all queries with the nights before."""
        nights = self.nights.get(mean.run, ())
        if not nights:
            return Standing(mean=mean, change=Change(kind="first"))
        now, earlier = nights[-1], nights[:-1]
        before = next((one for one in reversed(earlier) if one.mean.value is not None), None)
        change = Change(kind="first")
        if before is not None:
            change = change_of(mean, before.mean, before.run_date, same=now.is_like(before), level=level)
        week_before = [one.mean for one in earlier if now.run_date - one.run_date == timedelta(days=7)]
        rejected = [one.mean.rejected for one in earlier if one.mean.rejected is not None]
        return Standing(
            mean=mean,
            change=change,
            flag=now.flag,
            before=None if before is None else before.mean,
            week_before=week_before[0] if week_before else None,
            usually_rejected=median(rejected) if rejected else None,
            rules=now.rules,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """Runs, and segments of the runs of the report, without rows on the night; segments with most queries first."""

    runs: tuple[Absent, ...] = ()
    segments: tuple[Absent, ...] = ()
    n_segments: int = 0
    """All of them; `segments` has the first."""

    @classmethod
    def read(cls, table: DataFrame, scope: Scope, runs: Sequence[str], seen: Mapping[str, date]) -> Missing:
        """Read the last nights of series; of runs in `seen` only those nights may be known."""
        absent, segments, n_segments = reading.absent_of(table, scope, runs)
        found = [_absent(row) for row in absent]
        has = {one.last.run for one in found}
        for run, night in seen.items():
            if plain(run) not in has:
                mean = read(Mean, {"run": run, "segment_by": "", "metric": ""})
                found.append(Absent(last=mean, night=night))
        return cls(runs=tuple(found), segments=tuple(map(_absent, segments)), n_segments=n_segments)


def _absent(row: Row) -> Absent:
    """Read a row of `missing_series`: the last night of a run or segment."""
    key = {name: row[name] for name in ("run", "segment_by", "segment", "metric", "k")}
    mean = read(Mean, {**key, "value": row["median"], "n_queries": row["last_queries"]})
    return Absent(last=mean, night=row["last_night"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Segments(Section):
    """Segments with their change since the night before, those with the most queries first; then those missing."""

    rows: tuple[SegmentRow, ...] = ()

    @classmethod
    def read(
        cls,
        table: DataFrame,
        scope: Scope,
        standings: Iterable[Standing],
        missing: Missing,
        *,
        since: date | None,
        level: float,
    ) -> Segments:
        rows, n_all = reading.segments_of(table, scope, since)
        whole = {one.mean.run: one for one in standings}
        found = []
        for row in rows:
            earlier = {name.removeprefix("before_"): row[name] for name in row if name.startswith("before_")}
            mean, before = read(Mean, row), read(Mean, {**row, **earlier})
            had = None if since is None or before.value is None else before
            of_run = whole[mean.run]
            change = change_of(mean, had, since, same=of_run.change.kind != "incomparable", level=level)
            in_all = of_run.mean.weight * (of_run.change.difference or 0.0)
            share = change.difference * mean.weight / in_all if in_all and change.difference is not None else None
            found.append(SegmentRow(mean=mean, change=change, share=share, before=had))
        there = {(one.mean.run, one.mean.by, one.mean.segment) for one in found}
        for one in missing.segments:
            if (one.last.run, one.last.by, one.last.segment) not in there:
                mean, change = replace(one.last, value=None, n_queries=0), Change(kind="lost", since=one.night)
                found.append(SegmentRow(mean=mean, change=change, before=one.last))
        more = n_all > len(rows)
        sentence = f"Segments: the {len(rows):,} with the most queries of {n_all:,}."
        return cls(rows=tuple(found), left_out=(sentence,) if more else ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Queries(Section):
    """How queries are distributed, the lowest, and those that lost the most against an earlier night or a run."""

    distributions: tuple[Distribution, ...] = ()
    lowest: tuple[QueryRow, ...] = ()
    losses: tuple[QueryRow, ...] = ()
    losses_against: str = ""

    @classmethod
    def read(
        cls,
        frame: DataFrame | None,
        scope: Scope,
        standings: Sequence[Standing],
        *,
        before: date | None,
        baseline: str | None,
    ) -> Queries:
        if frame is None:
            return cls()
        table = reading.query_table(frame, scope.metric)
        rules = reading.rules_of_queries(table, scope, scope.run_date)
        for run, texts in rules.items():
            _require_rules(standings, run, texts, "per-query table")
        queries = cls(
            distributions=tuple(reading.distributions_of(table, scope)), lowest=reading.lowest_queries(table, scope)
        )
        changed = any(one.change.kind == "incomparable" for one in standings)
        before = before if baseline is None and table.has_nights and not changed else None
        if baseline is None and before is None:
            return queries
        against = day(before) if baseline is None else plain(baseline)
        earlier = {} if before is None else reading.rules_of_queries(table, scope, before)
        differ = [rules_difference([*texts, *rules.get(run, ())]) for run, texts in earlier.items()]
        if any(differ) or (baseline is not None and rules_difference(one.rules for one in standings)):
            return replace(
                queries, not_covered=(f"Losses against {against} are not shown: other rules, other values.",)
            )
        losses = reading.largest_losses(table, scope, before=before, baseline=baseline)
        return replace(queries, losses=losses, losses_against=against)


def _require_rules(standings: Iterable[Standing], run: str, texts: Iterable[str | None], table: str) -> None:
    """Refuse a table whose rows of a run were computed by other rules than the means of that run."""
    means = [one.rules for one in standings if one.mean.run == run]
    known = [text for text in texts if MIXED not in read_rules(text).values()]  # else combined on purpose
    difference = rules_difference([*means, *known])
    if difference:
        raise InputRefusedError(
            f"the {table} has rows of run {run!r} by other rules than its means ({difference}); evaluate both by "
            "the same rules, or leave the table out."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences(Section):
    """Comparisons of runs; `period` is empty if they are of the night alone."""

    rows: tuple[Comparison, ...] = ()
    period: str = ""

    @classmethod
    def read(
        cls, comparison: DataFrame | ComparedRuns | None, scope: Scope, standings: Iterable[Standing]
    ) -> Differences:
        if comparison is None:
            return cls()
        frame = raise_refusals(comparison.counted) if isinstance(comparison, ComparedRuns) else comparison
        table = reading.comparison_table(frame)
        rows, more, last = reading.comparisons_of(table, scope)
        if isinstance(comparison, ComparedRuns):
            check_compared(rows, comparison.evaluations, allowed=comparison.allow_unmatched)
        for row in rows:
            _require_rules(standings, row["run"], [row.get(RULES)], "comparison table")
        if not rows:
            lacks = f"The comparison table has no rows of {day(scope.run_date)}; its last night is {day(last)}."
            return cls(not_covered=(lacks,))
        period, *ends = (rows[0][name] for name in ("period", "period_start", "period_end"))
        sentence = f"Differences: overall ones, and the segments with the most queries, {len(rows):,} rows."
        return cls(
            rows=tuple(read(Comparison, row) for row in rows),
            period="" if period is None else period_name(period, *ends),
            left_out=(sentence,) if more else (),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Accounting:
    """Counts of rows and queries by what became of them, added up over runs if `runs_added`.

    `n_read` is None if only the metric table is given, which lacks rejected rows without a run; `n_unjudged_items`,
    of the first `k`, if the table lacks it.
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
        """Count by the JSON of the job, else by the means of the headline, one a run."""
        statuses = {"n_queries": "in the mean", **OUTSIDE}
        if any(one.n_lost_queries is None for one in means):
            del statuses["n_lost_queries"]
        unjudged = [one.n_unjudged_items for one in means]
        counted = [one for one in means if one.n_rows is not None]
        parts: dict[str, int] = {}
        its = {} if summary is None else summary["rows"]
        if summary is not None:
            parts = {name: int(its.get(name, 0)) for name in _PARTS}
        elif counted:
            parts = {"evaluated": sum(one.n_rows or 0 for one in counted)}
            parts["left_out"] = sum(one.n_left_out or 0 for one in counted)
            if all(one.n_rejected is not None for one in counted):
                parts["rejected"] = sum(one.n_rejected or 0 for one in counted)
        reasons = {plain(reason): int(n) for reason, n in its.get("rejected_by_reason", {}).items()}
        return cls(
            rows=tuple((words, parts[name]) for name, words in _PARTS.items() if name in parts),
            n_read=None if summary is None else int(its["read"]),
            rejected=tuple(sorted(reasons.items(), key=lambda one: (-one[1], one[0]))),
            queries=tuple((words, sum(getattr(one, name) or 0 for one in means)) for name, words in statuses.items()),
            n_unjudged_items=None if None in unjudged else sum(n or 0 for n in unjudged),
            k=means[0].k if means else None,
            runs_added=len(means) > 1,
        )


def check_summary(summary: Mapping[str, Any], dataset: str, night: date | None, config_hashes: set[str]) -> None:
    rows = summary.get("rows")
    whole = isinstance(rows, Mapping) and all(isinstance(rows.get(name), int) for name in ("read", *_PARTS))
    if not whole:
        raise InvalidParameterError(
            "the summary is no JSON of mean-ndcg: it lacks rows with read, evaluated, rejected."
        )
    stated = [
        ("data set", summary.get("dataset"), {dataset}),
        ("date", summary.get("run_date"), {night.isoformat()} if night else set()),
        ("config_hash", summary.get("config_hash"), config_hashes),
    ]
    for what, has, wanted in stated:
        if has is not None and wanted and has not in wanted:
            raise InvalidParameterError(
                f"the summary is of another {what}: {has!r}; the report is of {', '.join(sorted(map(repr, wanted)))}."
            )


def gate_results(
    texts: Iterable[str], computed: Computed, rows: Sequence[Row], absent: Iterable[str] = ()
) -> tuple[GateResult, ...]:
    """Hold the means over all queries against gates; runs that are `absent` do not meet those that name them."""
    results = []
    for gate in (Gate.among(text, computed) for text in texts):
        lacking = {"segment_by": "", "metric": gate.metric, "k": gate.k, "value": None}
        more = [{**lacking, "run": run} for run in absent if run == gate.run]
        stated = {**asdict(gate), "text": gate.text.strip()}
        results += [read(GateResult, {**stated, **one}) for one in gate.results([*map(dict, rows), *more])]
    return tuple(results)


def changed_queries(changed: DataFrame | Iterable[Mapping[str, Any]], scope: Scope) -> tuple[ChangedQuery, ...]:
    """Read queries that changed; any other column of the diagnosis is a key."""
    found = []
    for row in reading.changes_of(changed, scope.limits.queries):
        first, second = ((row[name] or [])[: scope.limits.items] for name in ("baseline_list", "list"))
        query = plain_key(value for name, value in row.items() if name not in OF_CHANGES)
        lists = {"baseline_list": _beside(first, second), "run_list": _beside(second, first)}
        found.append(read(ChangedQuery, row, query=query, **lists))
    return tuple(found)


def _beside(items: Sequence[Row], others: Sequence[Row]) -> tuple[ListedItem, ...]:
    """Items of a list, each with its rank in the other; lists without names of items have none."""
    names, other_names = ([plain(one["item"]) if "item" in one else "" for one in its] for its in (items, others))
    ranks = {name: rank for rank, name in enumerate(other_names, start=1) if name}
    return tuple(
        ListedItem(rank=rank, name=name, relevance=one.get("relevance"), other=ranks.get(name))
        for rank, (name, one) in enumerate(zip(names, items, strict=True), start=1)
    )


def provenance(rows: Iterable[Row]) -> tuple[Provenance, ...]:
    """Provenance of the runs, without duplicates."""
    return tuple(dict.fromkeys(read(Provenance, row, words=_words(row["convention"])) for row in rows))


def _words(convention: str | None) -> tuple[tuple[str, str], ...]:
    if not convention:
        return ()
    try:
        parsed = Convention.parse(convention)
    except InvalidParameterError:
        return ()  # with functions that only its author has
    return tuple((plain(title), plain(words)) for title, words in in_words(parsed))


def titled(title: str | None, dataset: str, runs: Sequence[str]) -> str:
    if title:
        return plain(title)
    name = shortened(plain(dataset), MOST_CHARACTERS)
    if len(runs) == 1 and runs[0]:
        return f"Ranking quality of {shortened(plain(runs[0]), MOST_CHARACTERS)}" + (f", {name}" if name else "")
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
    standings: tuple[Standing, ...]
    means: tuple[Mean, ...]
    """Means over all queries."""
    notes: tuple[str, ...] = ()
    """Sentences about what no section knows that it is left out."""
    flags: Flags = field(default_factory=Flags)
    trend: Trend = field(default_factory=Trend)
    missing: Missing = field(default_factory=Missing)
    segments: Segments = field(default_factory=Segments)
    queries: Queries = field(default_factory=Queries)
    differences: Differences = field(default_factory=Differences)
    changed: tuple[ChangedQuery, ...] = ()
    gates: tuple[GateResult, ...] = ()
    accounting: Accounting = field(default_factory=Accounting)
    provenance: tuple[Provenance, ...] = ()
    production: str | None = None
    """The run that the headline is about; None: any."""
    today: date | None = None
    """Day of the report, if the headline is to tell that a later night is due."""

    @property
    def left_out(self) -> list[str]:
        return [*self.notes, *(text for one in self._sections for text in one.left_out)]

    @property
    def not_covered(self) -> list[str]:
        return [text for one in self._sections for text in one.not_covered]

    @property
    def _sections(self) -> list[Section]:
        values = [getattr(self, one.name) for one in fields(self)]
        return [one for one in values if isinstance(one, Section)]

    @property
    def rules_differ(self) -> str:
        """Differences between the rules of the runs."""
        return plain(rules_difference(one.rules for one in self.standings))

    @property
    def label(self) -> str:
        return metric_name(self.metric, self.k)

    @property
    def larger_is_better(self) -> bool | None:
        """None if neither direction of the metric of the headline is better."""
        return direction_of(self.metric)

    @property
    def runs(self) -> tuple[str, ...]:
        """Runs, the best first; those with the highest value first where neither direction is better."""
        return tuple(one.mean.run for one in self.standings)

    @property
    def standing_tables(self) -> list[tuple[str, list[Standing]]]:
        """Runs by their rules, and what differs between these; runs of unknown rules are put with the first."""
        texts = [one.rules for one in self.standings if is_known(one.rules)]
        tables: dict[str, list[Standing]] = {}
        for one in self.standings:
            rules = one.rules if is_known(one.rules) else next(iter(texts), None)
            about = ", ".join(f"{name}={read_rules(rules).get(name)}" for name in differing_rules(texts))
            tables.setdefault(about, []).append(one)
        return list(tables.items())

    @property
    def decimals(self) -> int:
        """Decimals of the metric: the narrowest interval of the headline has two digits."""
        return decimals_for(one.mean.half for one in self.standings)

    @property
    def curve(self) -> tuple[Mean, ...]:
        return tuple(one for one in self.means if one.metric == self.metric)
