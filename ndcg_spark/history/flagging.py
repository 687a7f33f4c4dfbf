"""The part of flag-changes that both engines share: which nights are judged, and what is said of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, timezone
from typing import Any, NamedTuple

import pyarrow as pa

from ndcg_spark._version import __version__
from ndcg_spark.core import labels
from ndcg_spark.errors import InputRefusedError
from ndcg_spark.history.causes import group_by_cause
from ndcg_spark.history.settings import FlagJobSettings, FlagSettings, MetricRows, is_behind, missing_nights
from ndcg_spark.history.tasks.judging import (
    FLAG_COLUMNS,
    FLAGGED,
    ONGOING,
    OTHER_DIRECTION,
    RECOVERED,
    SHORT,
    USUAL,
    build_schema,
)
from ndcg_spark.jobs.outputs import SOURCE_TIME
from ndcg_spark.jobs.runner import Line, Outcome, Work
from ndcg_spark.tables import Rows, SliceKey, Slices
from ndcg_spark.tables.slices import Frame

PROVENANCE = ("limits", "input", "package_version")
MAX_FLAGS = 100
"""Limit for printed flags, and for those of the JSON."""
_STATUS_TEXTS = {SHORT: "with a short history", OTHER_DIRECTION: "changed in the other direction"}
"""Texts for statuses that are unclear as counts."""


class Nights(NamedTuple):
    """The data set of the rows, and their first and last night."""

    dataset: str
    first: date
    last: date
    computed_at: datetime | None
    """Newest time of the rows up to the requested night."""


def choose_nights(
    table: str,
    requested: MetricRows,
    datasets: Collection[str],
    nights: tuple[date | None, date | None],
    computed_at: datetime | None,
) -> Nights:
    """Return the nights of the requested rows; refuse a table without such rows, and several data sets."""
    first, last = nights
    if first is None or last is None:
        raise InputRefusedError(f"{table} has no rows{_format_request(requested)}.")
    if len(datasets) > 1:
        listed = ", ".join(sorted(datasets)[:5])
        raise InputRefusedError(f"{table} has rows of several data sets ({listed}); name one with --dataset.")
    return Nights(next(iter(datasets), ""), first, last, computed_at)


def _format_request(requested: MetricRows) -> str:
    parts = []
    if requested.dataset is not None:
        parts.append(f"data set {requested.dataset!r}")
    if requested.metrics:
        parts.append(f"metrics {', '.join(metric.label for metric in requested.metrics)}")
    if requested.config_hash is not None:
        parts.append(f"config_hash {requested.config_hash!r}")
    return f" of {' and '.join(parts)}" if parts else ""


def add_provenance_columns(results: pa.Schema) -> pa.Schema:
    """Add the columns that say what results were made from, and when."""
    kinds = dict.fromkeys(PROVENANCE, pa.string()) | dict.fromkeys(
        (SOURCE_TIME, "computed_at"), pa.timestamp("us", "UTC")
    )
    return pa.schema([*results, *kinds.items()])


class FlagChangesBase(Work[FlagJobSettings], ABC):
    """Judge nights by the nights before them."""

    # ---------------------------------------------------------------------------------------- methods of each engine

    @property
    @abstractmethod
    def input_names(self) -> list[str]:
        """Identities of the metric table and, if it is given, of the per-query table."""

    @abstractmethod
    def find_nights(self) -> Nights:
        """Find the data set and the nights of the requested rows. Reads the metric table."""

    @abstractmethod
    def judge(self, settings: FlagSettings, dataset: str) -> None:
        """Judge the nights of `settings`; the methods below return what was found."""

    @abstractmethod
    def list_keys(self) -> list[SliceKey]:
        """List the distinct nights and runs that were judged."""

    @abstractmethod
    def count_statuses(self) -> list[dict[str, Any]]:
        """Count rows by `status`, sorted: `n`, `held` (with a z), `nights` (most), `before` and `paired`."""

    @abstractmethod
    def list_flags(self) -> list[dict[str, Any]]:
        """List at most `MAX_FLAGS` rows with flags, then ongoing and recovered ones, the farthest first."""

    @abstractmethod
    def flag_table(self, facts: Mapping[str, Any]) -> Frame:
        """Build the table of flags."""

    # ------------------------------------------------------------------------------------- methods of both engines

    def schemas(self) -> Mapping[str, pa.Schema]:
        return {"output": add_provenance_columns(build_schema(FLAG_COLUMNS))}

    def run(self) -> Outcome:
        """Find the nights and judge them."""
        with self.job.step("looking for nights"):
            nights = self.find_nights()
        end = self.settings.flags.end or nights.last
        self.job.record(night=end, dataset=nights.dataset)
        settings = replace(self.settings.flags, start=self.settings.flags.start or end, end=end)
        name, *others = self.input_names
        with self.job.step("judging nights"):
            self.judge(settings, nights.dataset)
            keys = tuple(self.list_keys())
            if not keys:
                existing = f"{nights.first} to {nights.last}{_format_delay(nights.last, settings.start)}"
                raise InputRefusedError(
                    f"{name} has no night from {settings.start} to {settings.end}; its nights are from {existing}."
                )
            facts = {
                **_summarize_flags(self.count_statuses(), self.list_flags()),
                "missing_nights": [str(night) for night in missing_nights(sorted({key.night for key in keys}))],
                "from": str(settings.start),
                "to": str(settings.end),
                "dataset": nights.dataset,
                "limits": settings.text,
                "input": " with ".join([name, *others]),
                "package_version": __version__,
                SOURCE_TIME: nights.computed_at,
            }
        slices = Slices(dataset=nights.dataset, keys=keys, columns={"night": "night", "run": "run"})
        return Outcome(
            facts=facts,
            tables={"output": Rows(frame=self.flag_table(facts), slices=slices)},
            lines=self._lines(facts, settings, end),
            met=not (facts["flags"] and self.settings.fail_on_flag),
        )

    def _lines(self, facts: Mapping[str, Any], settings: FlagSettings, last: date) -> Iterator[Line]:
        today = datetime.now(timezone.utc).date()
        if self.settings.flags.end is None and is_behind(last, today):
            yield f"the last night in the table is {last}{_format_delay(last, today)}; this night is judged"
        nights = "night" if facts["from"] == facts["to"] else f"nights {facts['from']} to"
        numbers = {_STATUS_TEXTS.get(status, status): n for status, n in facts["by_status"].items()}
        n_compared = (facts["short_history"] or {}).get("held_against_the_night_before", 0)
        if n_compared:
            numbers["without a clear change"] = n_compared
            numbers[_STATUS_TEXTS[SHORT]] -= n_compared
        counts = ", ".join(f"{n:,} {text}" for text, n in numbers.items() if n)
        n_rows = sum(facts["by_status"].values())
        unit = "series" if facts["from"] == facts["to"] else "values"
        yield f"{nights} {facts['to']}, {n_rows:,} {unit}: {counts}"
        if facts["missing_nights"]:
            yield f"nights without a row: {labels.join_names(facts['missing_nights'])}"
        for cause in group_by_cause([*facts["flags"], *facts["ongoing"], *facts["recovered"]]):
            yield cause.line
            if self.settings.verbose:
                yield from (f"  {row['status']}: {row['rule']}" for row in (cause.first, *cause.others))
        n = sum(facts["by_status"].get(status, 0) for status in FLAGGED)
        if n > len(facts["flags"]):
            yield f"... and {n - len(facts['flags'])} more; --output has all of them."
        if not n:
            yield _format_no_flag(facts, settings)
        counts = facts["night_before"]
        if "per_query" in self.request.sources and counts["held"]:
            paired = f", {counts['paired']:,} of them query by query" if counts["paired"] else ""
            yield f"compared with one earlier night: {counts['held']:,} series{paired}"


def _format_delay(last: date, night: date | None) -> str:
    """Format by how many nights the last one precedes the expected `night`; empty if it does not."""
    if night is None or last >= night:
        return ""
    n = (night - last).days
    return f", {n:,} {'night' if n == 1 else 'nights'} before {night}"


def _summarize_flags(counts: Sequence[Mapping[str, Any]], flags: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Build the facts of the JSON from the results of `count_statuses` and `list_flags`."""
    short = {row["status"]: row for row in counts}.get(SHORT)
    history = {"held_against_the_night_before": short["held"], "nights": short["nights"]} if short else None
    return {
        "by_status": {row["status"]: row["n"] for row in counts},
        "short_history": history,
        "night_before": {
            "held": sum(row["before"] for row in counts),
            "paired": sum(row["paired"] for row in counts),
        },
        "flags": [row for row in flags if row["status"] in FLAGGED],
        "ongoing": [row for row in flags if row["status"] == ONGOING],
        "recovered": [row for row in flags if row["status"] == RECOVERED],
    }


def _format_no_flag(facts: Mapping[str, Any], settings: FlagSettings) -> str:
    """Format that there is no flag, and what could not be judged."""
    short_history, usual = facts["short_history"], facts["by_status"].get(USUAL, 0)
    if short_history is None:
        return "no flag" if usual else "nothing could be judged: no night has a value"
    n = short_history["nights"] or 0
    if not n:
        return "nothing could be judged yet: no earlier night to compare with"
    lacks = f"{n:,} earlier {'night' if n == 1 else 'nights'}, {settings.fewest_any_day} needed"
    if usual:
        return f"no flag; some could not be judged by history: {lacks}"
    if short_history["held_against_the_night_before"]:
        stored = f"{settings.fewest_any_day} are stored, now {n:,}"
        return f"no new flag; nights are compared with the one before until {stored}"
    return f"nothing could be judged: {lacks}"
