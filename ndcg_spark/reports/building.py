"""Rows that were collected, turned into what a report says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date, timedelta
from itertools import pairwise
from statistics import median
from typing import Any

from ndcg_spark.conventions import Convention
from ndcg_spark.conventions.convention import in_words
from ndcg_spark.errors import InvalidParameterError
from ndcg_spark.evaluation.gates import Gate
from ndcg_spark.history import tasks as night_flags
from ndcg_spark.reports import contents
from ndcg_spark.reports.reading import BEFORE, OF_CHANGES, VALUE
from ndcg_spark.reports.sentences import MOST_CHARACTERS, REJECTED
from ndcg_spark.reports.wording import day, number, plain, shortened, signed

Row = Mapping[str, Any]

_OUTSIDE = {
    "n_no_relevant": "with nothing relevant",
    "n_missing": "judged, but not answered",
    "n_unjudged": "without any judgment",
    "n_lost_queries": "whose rows were all rejected",
}
_STATUSES = {"n_queries": "in the mean", **_OUTSIDE}


def mean_of(row: Row, prefix: str = "") -> contents.Mean:
    """Read a row of the metric table; `prefix` precedes the columns of numbers."""

    def of(name: str) -> Any:
        return row[prefix + name]

    n_rows, n_left_out, n_rejected = (row.get(prefix + name) for name in ("n_rows", "n_left_out", "n_rejected"))
    return contents.Mean(
        run=plain(row["run"]),
        by=plain(row["segment_by"]),
        segment=None if row["segment"] is None else plain(row["segment"]),
        metric=plain(row["metric"]),
        k=row["k"],
        value=of("value"),
        n_queries=of("n_queries") or 0,
        std_error=of("std_error"),
        low=of("ci_low"),
        high=of("ci_high"),
        n_read=None if n_rows is None or n_rejected is None else n_rows + (n_left_out or 0) + n_rejected,
        n_rejected=n_rejected,
        outside=tuple(
            (words, row[prefix + name]) for name, words in _OUTSIDE.items() if row.get(prefix + name) is not None
        ),
    )


def absent_of(row: Row) -> contents.Absent:
    """Read a row of `missing_series`: the last night of a run or segment."""
    key = {name: row[name] for name in ("run", "segment_by", "segment", "metric", "k")}
    numbers = dict.fromkeys(("std_error", "ci_low", "ci_high"))
    mean = mean_of({**key, **numbers, "value": row["median"], "n_queries": row["last_queries"]})
    return contents.Absent(last=mean, night=row["last_night"])


def last_seen_of(run: str, night: date) -> contents.Absent:
    """A run of which only the last night is known."""
    unknown = dict.fromkeys(("segment", "k", "value", "n_queries", "std_error", "ci_low", "ci_high"))
    return contents.Absent(last=mean_of({**unknown, "run": run, "segment_by": "", "metric": ""}), night=night)


def headline_metric(computed: Sequence[tuple[str, int | None]]) -> tuple[str, int | None]:
    """Choose the metric of the headline: the first, at 10 if it was computed there, else at the largest cutoff."""
    metric = computed[0][0]
    cutoffs = [k for name, k in computed if name == metric]
    numbers = [k for k in cutoffs if k is not None]
    return metric, 10 if 10 in numbers else max(numbers, default=None)


def trend_of(rows: Iterable[Row], flags: Iterable[Row]) -> dict[str, tuple[contents.Night, ...]]:
    """Points of the trend by run, the oldest first; flags are those of `flags`, else of the metric table itself."""
    flagged: dict[tuple[date, str | None], str] = {}
    for row in flags:
        flagged[row["night"], None if row["run"] is None else plain(row["run"])] = _flag_text(row)
    found: dict[str, list[contents.Night]] = {}
    for row in sorted(rows, key=lambda one: (one["run"], one["run_date"] or date.min)):
        mean = mean_of(row)
        flag = flagged.get((row["run_date"], mean.run), flagged.get((row["run_date"], None)))
        if flag is None and row.get("flagged"):
            flag = _flag_text(row)
        night = contents.Night(
            run_date=row["run_date"] or date.min,
            mean=mean,
            config_hash=plain(row["config_hash"]),
            convention=plain(row["convention"]),
            flag=flag,
            rules=row["rules"],
        )
        found.setdefault(mean.run, []).append(night)
    return {run: tuple(nights) for run, nights in found.items()}


def _flag_text(row: Row) -> str:
    """Explain why a night was flagged, as far as the table does."""
    z, limit = row.get("z"), row.get("limit")
    parts = [plain(row["status"])] if row.get("status") else []
    usual = "the night before" if night_flags.is_of_the_night_before(row) else "the usual value"
    parts += [] if z is None else [f"{signed(z, 1)} {night_flags.unit_of(row)} from {usual}"]
    parts += [] if z is None or limit is None else [f"limit {number(limit, 1)}"]
    parts += [plain(row["note"])] if row.get("note") else []
    return ", ".join(parts) or "unlike the nights before"


def standings_of(
    means: Sequence[contents.Mean], trend: Mapping[str, Sequence[contents.Night]], level: float
) -> tuple[contents.Standing, ...]:
    """Runs with their change since the night before, from means of the metric of the headline over all queries."""
    found = []
    for mean in means:
        nights = trend.get(mean.run, ())
        if not nights:
            found.append(contents.Standing(mean=mean, change=contents.Change(kind="first")))
            continue
        now, earlier = nights[-1], nights[:-1]
        before = next((one for one in reversed(earlier) if one.mean.value is not None), None)
        change = contents.Change(kind="first")
        if before is not None:
            change = contents.change_of(mean, before.mean, before.run_date, same=now.is_like(before), level=level)
        week_before = [one.mean for one in earlier if now.run_date - one.run_date == timedelta(days=7)]
        rejected = [one.mean.rejected for one in earlier if one.mean.rejected is not None]
        found.append(
            contents.Standing(
                mean=mean,
                change=change,
                flag=now.flag,
                before=None if before is None else before.mean,
                week_before=week_before[0] if week_before else None,
                usually_rejected=median(rejected) if rejected else None,
                rules=now.rules,
            )
        )
    return tuple(found)


def segment_flag(row: Row) -> contents.SegmentFlag:
    return contents.SegmentFlag(
        run=plain(row["run"] or ""),
        by=plain(row["segment_by"]),
        segment=None if row["segment"] is None else plain(row["segment"]),
        flag=_flag_text(row),
    )


def segment_rows(
    rows: Iterable[Row],
    standings: Sequence[contents.Standing],
    since: date | None,
    level: float,
    weights: Mapping[str, float],
) -> tuple[contents.SegmentRow, ...]:
    """Segments with their change since the night before; `standings` and `weights` are of all queries of a run."""
    changes = {one.mean.run: one.change.difference for one in standings}
    changed = {one.mean.run for one in standings if one.change.kind == "incomparable"}
    found = []
    for row in rows:
        mean, before = mean_of(row), mean_of(row, "before_")
        had = since is not None and before.value is not None
        change = contents.change_of(mean, before if had else None, since, same=mean.run not in changed, level=level)
        whole = weights.get(mean.run, 0.0) * (changes.get(mean.run) or 0.0)
        share = change.difference * weight_of(row) / whole if whole and change.difference is not None else None
        found.append(contents.SegmentRow(mean=mean, change=change, share=share, before=before if had else None))
    return tuple(found)


def with_absent(
    rows: Sequence[contents.SegmentRow], absent: Iterable[contents.Absent]
) -> tuple[contents.SegmentRow, ...]:
    """Add segments without a row on the night of the report, as rows without a value."""
    there = {(one.mean.run, one.mean.by, one.mean.segment) for one in rows}
    more = [one for one in absent if (one.last.run, one.last.by, one.last.segment) not in there]
    found = list(rows)
    for one in more:
        mean, change = replace(one.last, value=None, n_queries=0), contents.Change(kind="lost", since=one.night)
        found.append(contents.SegmentRow(mean=mean, change=change, before=one.last))
    return tuple(found)


def weight_of(row: Row) -> float:
    """Weight of the queries behind a mean; their number in tables without weights."""
    weight = row["weight_sum"]
    return float((row["n_queries"] or 0) if weight is None else weight)


def gate_results(
    texts: Iterable[str], computed: Sequence[tuple[str, int | None]], rows: Sequence[Row], absent: Iterable[str] = ()
) -> tuple[contents.GateResult, ...]:
    """Hold the means over all queries against gates; runs that are `absent` do not meet those that name them."""
    found = []
    for gate in (Gate.among(text, computed) for text in texts):
        lacking = {"segment_by": "", "metric": gate.metric, "k": gate.k, "value": None}
        more = [{**lacking, "run": run} for run in absent if run == gate.run]
        for one in gate.results([*map(dict, rows), *more]):
            found.append(
                contents.GateResult(
                    text=plain(gate.text.strip()),
                    run=plain(one["run"]),
                    metric=gate.metric,
                    k=gate.k,
                    comparison=gate.comparison,
                    bound=gate.bound,
                    value=one["value"],
                    met=one["met"],
                )
            )
    return tuple(found)


def distribution_of(row: Row) -> contents.Distribution:
    fields = {name: value for name, value in row.items() if name not in ("run", "bins")}
    return contents.Distribution(run=plain(row["run"]), counts=tuple(row["bins"]), **fields)


def query_row(row: Row, keys: Sequence[str]) -> contents.QueryRow:
    """Read a query; several key columns are joined."""
    return contents.QueryRow(
        run=plain(row["run"]),
        query=" · ".join(plain(row[key]) for key in keys),
        value=row[VALUE],
        before=row.get(BEFORE),
        status=plain(row["status"]) if row.get("status") else "",
        n_items=row.get("n_items"),
        n_relevant=row.get("n_relevant"),
    )


def changed_query(row: Row, most_items: int) -> contents.ChangedQuery:
    """Read a query that changed; any other column of the diagnosis is a key."""
    first, second = (_listed(row[name], most_items) for name in ("baseline_list", "list"))
    return contents.ChangedQuery(
        change=plain(row["change"]),
        run=plain(row["run"]),
        baseline=plain(row["baseline"]),
        query=" · ".join(plain(value) for name, value in row.items() if name not in OF_CHANGES),
        metric=plain(row["metric"]),
        k=row["k"],
        before=row["baseline_value"],
        value=row["value"],
        baseline_list=_beside(first, second),
        run_list=_beside(second, first),
    )


def _listed(items: Sequence[Row] | None, most: int) -> list[tuple[str, float | None]]:
    return [(plain(one["item"]) if "item" in one else "", one.get("relevance")) for one in (items or [])[:most]]


def _beside(
    items: Sequence[tuple[str, float | None]], others: Sequence[tuple[str, float | None]]
) -> tuple[contents.ListedItem, ...]:
    """Items of a list, each with its rank in the other; lists without names of items have none."""
    ranks = {name: rank for rank, (name, _) in enumerate(others, start=1) if name}
    return tuple(
        contents.ListedItem(rank=rank, name=name, relevance=relevance, other=ranks.get(name))
        for rank, (name, relevance) in enumerate(items, start=1)
    )


def comparison_of(row: Row) -> contents.Comparison:
    numbers = ("k", "value", "baseline_value", "difference", "lift", "p_value", "p_holm")
    return contents.Comparison(
        run=plain(row["run"]),
        baseline=plain(row["baseline"]),
        by=plain(row["segment_by"]),
        segment=None if row["segment"] is None else plain(row["segment"]),
        metric=plain(row["metric"]),
        n_queries=row["n_queries"] or 0,
        low=row["ci_low"],
        high=row["ci_high"],
        wins=row["n_wins"],
        ties=row["n_ties"],
        losses=row["n_losses"],
        verdict=plain(row["verdict"] or ""),
        note=plain(row["note"] or ""),
        **{name: row[name] for name in numbers},
    )


def accounting_of(rows: Sequence[Row], summary: Mapping[str, Any] | None) -> contents.Accounting:
    """Account for rows and queries by the JSON of the job, else by overall rows of the headline, one a run."""
    statuses = dict(_STATUSES)
    if None in [row["n_lost_queries"] for row in rows]:
        del statuses["n_lost_queries"]
    queries = tuple((words, sum(row[name] or 0 for row in rows)) for name, words in statuses.items())
    unjudged = [row["n_unjudged_items"] for row in rows]
    counted = [row for row in rows if row["n_rows"] is not None]
    parts: dict[str, int] = {}
    by_reason: dict[str, int] = {}
    n_read = None
    if summary is not None:
        its = summary["rows"]
        n_read, parts = int(its["read"]), {name: int(its.get(name, 0)) for name in _PARTS}
        by_reason = {plain(reason): int(n) for reason, n in its.get("rejected_by_reason", {}).items()}
    elif counted:
        parts = {"evaluated": sum(row["n_rows"] for row in counted)}
        parts["left_out"] = sum(row["n_left_out"] or 0 for row in counted)
        if None not in (n_rejected := [row["n_rejected"] for row in counted]):
            parts["rejected"] = sum(n_rejected)
    return contents.Accounting(
        rows=tuple((words, parts[name]) for name, words in _PARTS.items() if name in parts),
        n_read=n_read,
        rejected=tuple(sorted(by_reason.items(), key=lambda one: (-one[1], one[0]))),
        queries=queries,
        n_unjudged_items=None if None in unjudged else sum(unjudged),
        k=rows[0]["k"] if rows else None,
        runs_added=len(rows) > 1,
    )


_PARTS = {"evaluated": "evaluated", "rejected": REJECTED, "left_out": "left out by a stated rule"}


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


def provenance_of(rows: Iterable[Row]) -> tuple[contents.Provenance, ...]:
    """Provenance of the runs, without duplicates."""
    found: dict[contents.Provenance, None] = {}
    for row in rows:
        found[
            contents.Provenance(
                convention=plain(row["convention"] or ""),
                words=_words(row["convention"]),
                config_hash=plain(row["config_hash"] or ""),
                input=plain(row["input"] or ""),
                package_version=plain(row["package_version"] or ""),
                computed_at=plain(row["computed_at"] or ""),
            )
        ] = None
    return tuple(found)


def _words(convention: str | None) -> tuple[tuple[str, str], ...]:
    if not convention:
        return ()
    try:
        parsed = Convention.parse(convention)
    except InvalidParameterError:
        return ()  # with functions that only its author has
    return tuple((plain(title), plain(words)) for title, words in in_words(parsed))


def nights_apart(trend: Mapping[str, Sequence[contents.Night]]) -> int:
    """Days from one night of the trend to the next, in the median; 1 where there is only one."""
    gaps = sorted((after - before).days for before, after in pairwise(_days(trend)))
    return gaps[(len(gaps) - 1) // 2] if gaps else 1


def _days(trend: Mapping[str, Sequence[contents.Night]]) -> list[date]:
    return sorted({night.run_date for nights in trend.values() for night in nights})


def missing_nights(trend: Mapping[str, Sequence[contents.Night]]) -> list[date]:
    """Days between the nights of the trend that no run has, where nights are mostly a day apart."""
    days = _days(trend)
    if not days or nights_apart(trend) != 1:
        return []
    every = {days[0] + timedelta(days=ahead) for ahead in range((days[-1] - days[0]).days)}
    return sorted(every - set(days))


def gap_text(days: Sequence[date]) -> str:
    shown = ", ".join(day(one) for one in days[:5])
    return shown + (f" and {len(days) - 5:,} more" if len(days) > 5 else "")


def titled(title: str | None, dataset: str, runs: Sequence[str]) -> str:
    if title:
        return plain(title)
    name = shortened(plain(dataset), MOST_CHARACTERS)
    if len(runs) == 1 and runs[0]:
        return f"Ranking quality of {shortened(contents.run_name(runs[0]), MOST_CHARACTERS)}" + (
            f", {name}" if name else ""
        )
    return f"Ranking quality, {name}" if name else "Ranking quality"
