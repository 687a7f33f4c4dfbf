"""Group flags that have one cause, and format each cause in a line. Does not import Spark."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ndcg_spark.core import labels
from ndcg_spark.history.tasks.judging import (
    FEW_QUERIES,
    FLAGGED,
    HIGH,
    LOW,
    MISSING,
    ONGOING,
    format_series,
    name_unit,
)
from ndcg_spark.metrics import judge_change

MAX_CHARACTERS = 160
"""Limit for the line of a cause."""
Flag = Mapping[str, Any]
"""A row of the table of flags."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Flags of a night and run that have one cause: the one to print, and those that follow from it."""

    first: Flag
    others: tuple[Flag, ...] = ()

    @property
    def line(self) -> str:
        """The cause in a line of at most `MAX_CHARACTERS`."""
        flag, more = self.first, len(self.others)
        status = flag["status"]
        begin = f"{'FLAG ' if status in FLAGGED else ''}{status.replace('_', ' ')}: "
        rest = f"; also in {more} more series" if more else ""
        if status in (MISSING, FEW_QUERIES):
            name, change = flag["rule"], ""
        else:
            name, change = format_series(dict(flag)), f" is {flag['value']:.4f} on {flag['night']}"
        if status == ONGOING:
            change += f", {flag['median']:.4f} before it changed"
        if status in (LOW, HIGH):
            usual = "before" if str(flag["weekday"]).startswith("before") else "usually"
            side = "below" if status == LOW else "above"
            # The queries that both nights share may have changed in the other direction than the means.
            is_contrary = (flag["value"] > flag["median"]) == (status == LOW)
            paired = ", query by query" if is_contrary else ""
            distance = "" if flag["z"] is None else f" ({abs(flag['z']):.1f} {name_unit(flag)} {side}{paired})"
            change += f", {usual} {flag['median']:.4f}{distance}"
        room = MAX_CHARACTERS - len(f"{begin}{change}{rest}")
        return f"{begin}{name if len(name) <= room else f'{name[: room - 1]}…'}{change}{rest}"


def group_by_cause(flags: Sequence[Flag]) -> list[Cause]:
    """Group flags that have one cause, in the order of `flags`: the farthest first.

    A group has flags of one night and run in one direction: worse, better, missing, few queries, recovered, or
    ongoing. It is printed for the widest segment whose relative change is at least half of the largest: a segment
    that alone lost its items moves the mean of all queries by less. The others follow from it: all metrics of the
    segment, parts of it, larger segments that contain it, and segments of other columns that changed less than half
    as much, as they share queries.
    """
    groups: dict[tuple[Any, ...], list[Flag]] = {}
    for flag in flags:
        groups.setdefault((flag["night"], flag["run"], _get_direction(flag)), []).append(flag)
    causes = []
    for group in groups.values():
        rest = group
        while rest:
            lead = _find_lead(rest)
            of_segment = [flag for flag in rest if _parse_conditions(flag) == _parse_conditions(lead)]
            metrics = {(flag["metric"], flag["k"]) for flag in of_segment}
            main = labels.main_metric(sorted(metrics, key=lambda metric_and_k: labels.metric_order(*metric_and_k)))
            first = next(flag for flag in of_segment if (flag["metric"], flag["k"]) == main)
            others = tuple(flag for flag in rest if _follows(flag, lead) and flag is not first)
            causes.append(Cause(first, others))
            rest = [flag for flag in rest if not _follows(flag, lead)]
    positions = {id(flag): i for i, flag in enumerate(flags)}
    return sorted(causes, key=lambda cause: min(positions[id(flag)] for flag in (cause.first, *cause.others)))


def _find_lead(flags: Sequence[Flag]) -> Flag:
    """Find the flag of the segment that is printed for the cause of the first flag."""
    nested = [flag for flag in flags if _is_nested(flag, flags[0])]
    largest = max(map(_relative_change, nested))
    return min(
        (flag for flag in nested if _relative_change(flag) >= largest / 2),
        key=lambda flag: len(_parse_conditions(flag)),
    )


def _follows(flag: Flag, lead: Flag) -> bool:
    if _is_nested(flag, lead):
        return True
    columns, lead_columns = ({column for column, _ in _parse_conditions(either)} for either in (flag, lead))
    return columns != lead_columns and is_side_effect(_relative_change(flag), _relative_change(lead))


def is_side_effect(change: float, lead: float) -> bool:
    """Return whether a change of segments of other columns may come from shared queries: less than half of `lead`."""
    return change < lead / 2


def _is_nested(flag: Flag, other: Flag) -> bool:
    """Return whether one of two segments contains the other, or they are the same."""
    conditions, others = _parse_conditions(flag), _parse_conditions(other)
    return conditions <= others or others <= conditions


def _relative_change(flag: Flag) -> float:
    """Return the relative change of a value from the usual one; infinite if either is unknown."""
    value, usual = flag["value"], flag["median"]
    return abs((value - usual) / usual) if value is not None and usual else math.inf


def _get_direction(flag: Flag) -> str:
    status = flag["status"]
    return judge_change(flag["metric"], 1 if status == HIGH else -1) if status in (LOW, HIGH) else str(status)


def _parse_conditions(flag: Flag) -> frozenset[tuple[str, Any]]:
    """Return the columns of a segment with their values; empty for all queries. Another text is one condition."""
    by, segment = flag["segment_by"], flag["segment"]
    if not by:
        return frozenset()
    values = labels.segment_values(by, segment)
    return frozenset({(by, repr(segment))} if values is None else zip(by.split("+"), map(repr, values), strict=True))
