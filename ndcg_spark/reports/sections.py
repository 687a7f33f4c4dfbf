"""The sections of a report: each reads itself from the tables; together they are its contents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import date, timedelta
from statistics import median
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ndcg_spark.comparison.results import check_matched
from ndcg_spark.comparison.spark_results import Comparison as ComparedRuns
from ndcg_spark.conventions import Convention
from ndcg_spark.conventions.convention import in_words
from ndcg_spark.core.workers import raise_refusals
from ndcg_spark.errors import InputRefusedError, InvalidParameterError
from ndcg_spark.evaluation.gates import Gate
from ndcg_spark.evaluation.rules import RULES, find_differing_rules, format_difference, read_rules
from ndcg_spark.history import tasks as night_flags
from ndcg_spark.history.frames import find_missing_series
from ndcg_spark.history.settings import median_gap, missing_nights
from ndcg_spark.metrics import direction_of
from ndcg_spark.reports import contents
from ndcg_spark.reports import wording as w
from ndcg_spark.reports.contents import Change, Mean, Row, Section, Standing, level_of, read
from ndcg_spark.reports.queries import Queries
from ndcg_spark.reports.reading import Scope, collected, comparison_table, flag_table, of_night, require_rules
from ndcg_spark.reports.wording import day, plain

Computed = Sequence[tuple[str, int | None]]
"""Metrics of the night, as (metric, k)."""
_PARTS = {"evaluated": "evaluated", "rejected": w.REJECTED, "left_out": "left out by a stated rule"}


_OF_SEGMENTS = ("value", "std_error", "ci_low", "ci_high", "n_queries", "weight_sum", "n_missing", "n_unjudged_items",
                "n_top_items")  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags(Section):
    """Flagged nights by (night, run), and segments flagged on the night, the farthest from usual first."""

    nights: dict[tuple[date, str | None], str] = field(default_factory=dict)
    segments: tuple[contents.SegmentFlag, ...] = ()
    n_segments: int = 0
    """All of the night; `segments` has the first of them."""
    earlier_segments: dict[tuple[date, str], tuple[contents.SegmentFlag, int]] = field(default_factory=dict)
    """By (night, run) of earlier nights: the segment farthest from usual, and the number of flagged segments."""
    is_known: bool = False
    """There is a table of flags, so that a night without a flag was judged."""
    recovered: tuple[contents.SegmentFlag, ...] = ()
    """Runs, and segments of them, that are again on the night what they were before a flag."""

    @classmethod
    def read(cls, frame: DataFrame | None, scope: Scope) -> Flags:
        if frame is None:
            return cls()
        of_runs = F.col("run").isNull() | scope.of_runs()
        flags = flag_table(frame).where(scope.of_metric() & scope.of_dataset() & of_runs)
        is_flag, of_all = F.col("status").isin(night_flags.LOW, night_flags.HIGH), F.col("segment_by") == ""
        tonight = F.col("night").eqNullSafe(scope.night)
        newest = flags.where(is_flag & of_all).orderBy(F.desc("night"), "run")
        nights = collected(newest.limit(scope.limits.nights * len(scope.runs)))
        of_segment = is_flag & ~of_all
        (counts,) = flags.agg(
            F.count_if(of_segment & tonight).alias("now"),
            F.count_if(of_segment & (F.col("night") < scope.night)).alias("before"),
            F.count_if(tonight).alias("judged"),
            F.count_if(tonight & (F.col("status") == night_flags.RECOVERED)).alias("back"),
            F.max(F.when(F.col("night") <= scope.night, F.col("night"))).alias("last"),
            F.max(F.when(tonight, F.col("source_computed_at"))).alias("source"),
        ).collect()
        back = flags.where(tonight & (F.col("status") == night_flags.RECOVERED))
        order = (F.desc_nulls_last(F.abs("z")), "run", "segment_by", "segment")
        farthest = flags.where(of_segment & tonight).orderBy(*order).limit(scope.limits.segments)
        farthest_of_night = F.max_by(F.struct("segment_by", "segment", "metric", "status", "z", "limit", "weekday"),
                                     F.coalesce(F.abs("z"), F.lit(0.0))).alias("farthest")  # fmt: skip
        earlier = flags.where(of_segment & (F.col("night") < scope.night) & F.col("run").isNotNull())
        by_night = earlier.groupBy("night", "run").agg(F.count("*").alias("n"), farthest_of_night)
        newest_segments = by_night.orderBy(F.desc("night"), "run").limit(scope.limits.nights * len(scope.runs))
        night, last = day(scope.run_date), f"; its last night is {day(counts['last'])}" if counts["last"] else ""
        not_shown = f"Flags of segments on earlier nights: {counts['before']:,}; {night} is shown."
        lacks = f"The table of flags has no rows of {night}: it was not judged{last}."
        not_covered = [lacks] if scope.run_date is not None and not counts["judged"] else []
        return cls(
            nights={(row["night"], row["run"] and plain(row["run"])): _flag_text(row) for row in nights},
            segments=tuple(_read_segment_flag(row) for row in (collected(farthest) if counts["now"] else ())),
            n_segments=counts["now"],
            recovered=tuple(
                read(contents.SegmentFlag, row, flag=night_flags.RECOVERED)
                for row in (
                    collected(back.orderBy("run", "segment_by", "segment").limit(10)) if counts["back"] else ()
                )
            ),
            earlier_segments={
                (row["night"], plain(row["run"])): (
                    _read_segment_flag({"run": row["run"], **row["farthest"].asDict()}),
                    row["n"],
                )
                for row in (collected(newest_segments) if counts["before"] else ())
            },
            is_known=True,
            left_out=(not_shown,) if counts["before"] else (),
            not_covered=(*not_covered, *scope.older("The table of flags", counts["source"], "flag-changes")),
        )

    def of(self, row: Row) -> str | None:
        """Find the flag of a run on a night; the metric table may itself have one."""
        of_run, of_all = ((row["run_date"], run) for run in (plain(row["run"]), None))
        found = self.nights.get(of_run, self.nights.get(of_all))
        return _flag_text(row) if found is None and row.get("flagged") else found


def _read_segment_flag(row: Row) -> contents.SegmentFlag:
    return read(contents.SegmentFlag, row, flag=_flag_text(row))


def _flag_text(row: Row) -> str:
    """Explain why a night was flagged, as far as the table does."""
    z, limit = row.get("z"), row.get("limit")
    parts = [plain(row["status"])] if row.get("status") else []
    usual = "the night before" if night_flags.is_against_night_before(row) else "the usual value"
    parts += [] if z is None else [f"{w.signed(z, 1)} {night_flags.name_unit(row)} from {usual}"]
    parts += [] if z is None or limit is None else [f"limit {w.number(limit, 1)}"]
    parts += [plain(row["note"])] if row.get("note") else []
    return ", ".join(parts) or "unlike the nights before"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend(Section):
    """Nights by run, the oldest first."""

    nights: dict[str, tuple[contents.Night, ...]] = field(default_factory=dict)

    @classmethod
    def read(cls, table: DataFrame, scope: Scope, flags: Flags, n_nights: int) -> Trend:
        most, run_date = scope.limits.nights, F.col("run_date")
        until = run_date.isNull() if scope.run_date is None else run_date <= scope.night
        its = scope.of_dataset() & (F.col("segment_by") == "") & scope.of_metric() & scope.of_runs() & until
        newest = table.where(its).orderBy(F.desc("run_date"), "run").limit(most * len(scope.runs))
        kept = (*contents.columns(Mean), "config_hash", RULES, "run_date", "flagged", "note")
        rows = collected(newest.select(*kept))
        days = sorted({row["run_date"] for row in rows if row["run_date"]})[-most:]
        trend = cls.of_rows([row for row in rows if not days or row["run_date"] >= days[0]], flags)
        left_out = []
        if n_nights > most and len(days) == most:
            left_out.append(f"Trend: the newest {most:,} nights of {n_nights:,}.")
        return replace(trend, left_out=tuple(left_out))

    @classmethod
    def of_rows(cls, rows: Iterable[Row], flags: Flags) -> Trend:
        nights: dict[str, tuple[contents.Night, ...]] = {}
        for row in sorted(rows, key=lambda one: (one["run"], one["run_date"] or date.min)):
            mean, when = read(Mean, row), row["run_date"] or date.min
            night = read(contents.Night, row, run_date=when, mean=mean, flag=flags.of(row), rules=row["rules"])
            nights[mean.run] = (*nights.get(mean.run, ()), night)
        return cls(nights=nights)

    @property
    def days(self) -> list[date]:
        return sorted({night.run_date for nights in self.nights.values() for night in nights})

    @property
    def nights_apart(self) -> int:
        return median_gap(self.days)

    @property
    def missing(self) -> list[date]:
        """Days between the nights that no run has, where nights are mostly a day apart."""
        return missing_nights(self.days)

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
            change = contents.change_of(mean, before.mean, before.run_date, same=now.is_like(before), level=level)
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

    runs: tuple[contents.Absent, ...] = ()
    segments: tuple[contents.Absent, ...] = ()
    n_segments: int = 0
    """All of them; `segments` has the first."""

    @classmethod
    def read(cls, table: DataFrame, scope: Scope, runs: Sequence[str], seen: Mapping[str, date]) -> Missing:
        """Read the last nights of series, of `runs` if there are any; of `seen` only those nights may be known."""
        if scope.run_date is None:
            return cls()
        most, here, is_run = scope.limits.segments, scope.of_runs(), F.col("segment_by") == ""
        series = find_missing_series(table.where(scope.of_dataset() & scope.of_metric()), scope.run_date)
        other = is_run & ~here & (F.col("run").isin(*runs) if runs else F.lit(True))
        kept = series.where(other | (~is_run & here))
        order = (is_run.desc(), F.desc_nulls_last("last_queries"), "run", "segment_by", "segment")
        absent = [
            contents.Absent(
                last=read(Mean, row, value=row["median"], n_queries=row["last_queries"] or 0, std_error=None),
                night=row["last_night"],
            )
            for row in collected(kept.orderBy(*order).limit(most + 1))
        ]
        segments = [one for one in absent if one.last.by]
        known = {one.last.run: one for one in absent if not one.last.by}
        for run, night in seen.items():
            last = read(Mean, {"run": run, "segment_by": "", "metric": ""})
            known.setdefault(last.run, contents.Absent(last=last, night=night))
        n_segments = len(segments) if len(absent) <= most else kept.where(~is_run).count()
        return cls(runs=tuple(known.values()), segments=tuple(segments[:most]), n_segments=n_segments)


@dataclass(frozen=True, slots=True, kw_only=True)
class Segments(Section):
    """Segments with their change since the night before, those with the most queries first; then those missing."""

    rows: tuple[contents.SegmentRow, ...] = ()

    @classmethod
    def read(cls, table: DataFrame, scope: Scope, standings: Sequence[Standing], missing: Missing) -> Segments:
        most, since, now = scope.limits.segments, scope.before, of_night(scope.dataset, scope.run_date)
        either = now if since is None else now | of_night(scope.dataset, since)
        its = table.where(either & (F.col("segment_by") != "") & scope.of_metric() & scope.of_runs())
        aggregates = [F.max(now).alias("is_there")]
        for name in _OF_SEGMENTS:
            aggregates.append(F.max(F.when(now, F.col(name))).alias(name))
            aggregates.append(F.max(F.when(~now, F.col(name))).alias(f"before_{name}"))
        grouped = its.groupBy("run", "segment_by", "segment", "metric", "k").agg(*aggregates).where("is_there")
        rows = collected(grouped.orderBy(F.desc("n_queries"), "run", "segment_by", "segment").limit(most + 1))
        n_all = grouped.count() if len(rows) > most else len(rows)
        whole, level = {one.mean.run: one for one in standings}, level_of([one.mean for one in standings])
        found = []
        for row in rows[:most]:
            earlier = {name.removeprefix("before_"): row[name] for name in row if name.startswith("before_")}
            mean, before = read(Mean, row), read(Mean, {**row, **earlier})
            had = None if since is None or before.value is None else before
            of_run = whole[mean.run]
            change = contents.change_of(mean, had, since, same=of_run.change.kind != "incomparable", level=level)
            in_all = of_run.mean.weight * (of_run.change.difference or 0.0)
            share = change.difference * mean.weight / in_all if in_all and change.difference is not None else None
            found.append(contents.SegmentRow(mean=mean, change=change, share=share, before=had))
        there = {(one.mean.run, one.mean.by, one.mean.segment) for one in found}
        for one in missing.segments:
            if (one.last.run, one.last.by, one.last.segment) not in there:
                mean, change = replace(one.last, value=None, n_queries=0), Change(kind="lost", since=one.night)
                found.append(contents.SegmentRow(mean=mean, change=change, before=one.last))
        sentence = f"Segments: the {most:,} with the most queries of {n_all:,}."
        return cls(rows=tuple(found), left_out=(sentence,) if n_all > most else ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences(Section):
    """Comparisons of runs; `period` is empty if they are of the night alone."""

    rows: tuple[contents.Comparison, ...] = ()
    period: str = ""

    @classmethod
    def read(
        cls, comparison: DataFrame | ComparedRuns | None, scope: Scope, standings: Iterable[Standing]
    ) -> Differences:
        if comparison is None:
            return cls()
        frame = raise_refusals(comparison.counted) if isinstance(comparison, ComparedRuns) else comparison
        of_metric = comparison_table(frame).where(scope.of_metric() & scope.of_runs() & scope.of_dataset())
        its, night, most = of_metric, scope.night, scope.limits.comparisons
        if scope.run_date is not None:
            ends = F.when(F.col("period") == "rolling_7", F.col("period_end") == night)
            holds = ends.otherwise((F.col("period_start") <= night) & (F.col("period_end") >= night))
            its = its.where(
                F.when(F.col("period").isNotNull(), holds).otherwise(F.coalesce("run_date", night) == night)
            )
        overall_first = F.when(F.col("segment_by") == "", 0).otherwise(1)
        ordered = its.orderBy(overall_first, F.desc("n_queries"), "run", "baseline", "segment_by", "segment")
        found = collected(ordered.limit(most + 1))
        if not found:
            earlier = of_metric.where(F.col("period").isNull() & (F.col("run_date") < night))
            last: date | None = earlier.agg(F.max("run_date")).collect()[0][0]
            if last is None:
                raise InputRefusedError(f"the comparison table has no rows of {scope}.")
            lacks = f"The comparison table has no rows of {day(scope.run_date)}; its last night is {day(last)}."
            return cls(not_covered=(lacks,))
        periods = sorted({str(row["period"]) for row in found})
        if len(periods) > 1:
            raise InputRefusedError(
                f"the comparison table has several periods ({', '.join(periods)}); choose one by a query, such as "
                f"SELECT * FROM ... WHERE period = '{periods[0]}'."
            )
        rows = found[:most]
        if isinstance(comparison, ComparedRuns):
            check_matched(rows, comparison.evaluations, allowed=comparison.allow_unmatched)
        for row in rows:
            require_rules(standings, row["run"], [row.get(RULES)], "comparison table")
        period, *dates = (rows[0][name] for name in ("period", "period_start", "period_end"))
        sentence = f"Differences: overall ones, and the segments with the most queries, {most:,} rows."
        return cls(
            rows=tuple(read(contents.Comparison, row) for row in rows),
            period="" if period is None else w.period_name(period, *dates),
            left_out=(sentence,) if len(found) > most else (),
            not_covered=tuple(
                scope.older(
                    "The comparison",
                    max(filter(None, (row.get("source_computed_at") for row in rows)), default=None),
                    "compare-runs",
                )
            ),
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
        statuses = {"n_queries": "in the mean", **contents.OUTSIDE}
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
) -> tuple[contents.GateResult, ...]:
    """Hold the means over all queries against gates; runs that are `absent` do not meet those that name them."""
    results = []
    for gate in (Gate.among(text, computed) for text in texts):
        lacking = {"segment_by": "", "metric": gate.metric, "k": gate.k, "value": None}
        more = [{**lacking, "run": run} for run in absent if run == gate.run]
        stated = {**asdict(gate), "text": gate.text.strip()}
        results += [read(contents.GateResult, {**stated, **one}) for one in gate.results([*map(dict, rows), *more])]
    return tuple(results)


def provenance(rows: Iterable[Row]) -> tuple[contents.Provenance, ...]:
    """Provenance of the runs, without duplicates."""
    return tuple(dict.fromkeys(read(contents.Provenance, row, words=_words(row["convention"])) for row in rows))


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
    name = w.shortened(plain(dataset), w.MOST_CHARACTERS)
    if len(runs) == 1 and runs[0]:
        return f"Ranking quality of {w.shortened(plain(runs[0]), w.MOST_CHARACTERS)}" + (f", {name}" if name else "")
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
    changed: tuple[contents.ChangedQuery, ...] = ()
    gates: tuple[contents.GateResult, ...] = ()
    accounting: Accounting = field(default_factory=Accounting)
    provenance: tuple[contents.Provenance, ...] = ()
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
        return plain(format_difference(one.rules for one in self.standings))

    @property
    def label(self) -> str:
        return w.metric_name(self.metric, self.k)

    @property
    def unjudged_matters(self) -> bool:
        """Whether more than a hundredth of the first items of a run have no judgment."""
        return any((one.mean.unjudged or 0.0) > 0.01 for one in self.standings)

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
        texts = [one.rules for one in self.standings if one.rules]
        tables: dict[str, list[Standing]] = {}
        for one in self.standings:
            rules = one.rules or next(iter(texts), None)
            about = ", ".join(f"{name}={read_rules(rules).get(name)}" for name in find_differing_rules(texts))
            tables.setdefault(about, []).append(one)
        return list(tables.items())

    @property
    def decimals(self) -> int:
        """Decimals of the metric: the narrowest interval of the headline has two digits."""
        return w.decimals_for(one.mean.half for one in self.standings)

    @property
    def curve(self) -> tuple[Mean, ...]:
        return tuple(one for one in self.means if one.metric == self.metric)
