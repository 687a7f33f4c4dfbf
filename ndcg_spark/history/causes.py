"""Flags that have one cause, and the line that tells it. Loads no Spark."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ndcg_spark.core.labels import main_metric, metric_order
from ndcg_spark.history.tasks import FLAGGED, HIGH, LOW, MISSING, series_name
from ndcg_spark.metrics import judge_change

MAX_CHARACTERS = 160
"""Longest line of a cause."""
Flag = Mapping[str, Any]
"""A row of the table of flags."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Flags of a night and run that have one cause: the one that is told, and those that follow from it."""

    first: Flag
    others: tuple[Flag, ...] = ()

    @property
    def line(self) -> str:
        """The cause in a line of at most `MAX_CHARACTERS`."""
        its, more = self.first, len(self.others)
        begin = f"{'FLAG ' if its['status'] in FLAGGED else ''}{its['status'].replace('_', ' ')}: "
        rest = f"; {more} more follow from it" if more > 1 else "; 1 more follows from it" if more else ""
        if its["status"] == MISSING:
            name, what = its["rule"], ""
        else:
            name, what = series_name(dict(its)), f" is {its['value']:.4f} on {its['night']}"
        if its["status"] in (LOW, HIGH):
            usual = "before" if str(its["weekday"]).startswith("before") else "usually"
            far = "" if its["z"] is None else f" ({its['z']:+.1f}, limit {its['limit']:.1f})"
            what += f", {usual} {its['median']:.4f}{far}"
        room = MAX_CHARACTERS - len(f"{begin}{what}{rest}")
        return f"{begin}{name if len(name) <= room else f'{name[: room - 1]}…'}{what}{rest}"


def group_by_cause(flags: Sequence[Flag]) -> list[Cause]:
    """Put flags together that have one cause; those of the farthest flags come first, as in `flags`.

    Taken together are flags of a night and run that go the same way: worse, better, missing, or recovered. The cause
    is told of the widest segment whose relative change is at least half of the largest: a segment that alone lost its
    items moves the mean of all queries by less. What follows from it: all metrics of the segment, parts of it, larger
    segments that hold it, and segments of other columns that changed less than half as much, as they share queries.
    """
    kinds: dict[tuple[Any, ...], list[Flag]] = {}
    for flag in flags:
        kinds.setdefault((flag["night"], flag["run"], _sense(flag)), []).append(flag)
    found = []
    for its in kinds.values():
        while its:
            lead = _lead(its)
            here = [flag for flag in its if _conditions(flag) == _conditions(lead)]
            follow = [flag for flag in its if _follows(flag, lead)]
            chosen = main_metric(
                sorted({(one["metric"], one["k"]) for one in here}, key=lambda one: metric_order(*one))
            )
            told = next(one for one in here if (one["metric"], one["k"]) == chosen)
            found.append(Cause(told, tuple(flag for flag in follow if flag is not told)))
            its = [flag for flag in its if not _follows(flag, lead)]
    places = {id(flag): at for at, flag in enumerate(flags)}
    return sorted(found, key=lambda cause: min(places[id(one)] for one in (cause.first, *cause.others)))


def _lead(flags: Sequence[Flag]) -> Flag:
    """Find the segment that the cause of the first flag is told of."""
    nested = [flag for flag in flags if _is_nested(flag, flags[0])]
    most = max(map(_change, nested))
    return min((flag for flag in nested if _change(flag) >= most / 2), key=lambda flag: len(_conditions(flag)))


def _follows(flag: Flag, lead: Flag) -> bool:
    if _is_nested(flag, lead):
        return True
    columns, of_lead = ({name for name, _ in _conditions(one)} for one in (flag, lead))
    return columns != of_lead and _change(flag) < _change(lead) / 2


def _is_nested(flag: Flag, other: Flag) -> bool:
    """Return whether one of two segments is a part of the other, or the same."""
    one, its = _conditions(flag), _conditions(other)
    return one <= its or its <= one


def _change(flag: Flag) -> float:
    """Relative change of a value from what is usual; infinite where nothing is known of either."""
    value, usual = flag["value"], flag["median"]
    return abs((value - usual) / usual) if value is not None and usual else math.inf


def _sense(flag: Flag) -> str:
    status = flag["status"]
    return judge_change(flag["metric"], 1 if status == HIGH else -1) if status in (LOW, HIGH) else str(status)


def _conditions(flag: Flag) -> frozenset[tuple[str, Any]]:
    """Columns of a segment and their values; none for all queries."""
    by, segment = flag["segment_by"], flag["segment"]
    if not by:
        return frozenset()
    names = by.split("+")
    values = json.loads(segment) if len(names) > 1 else [segment]
    return frozenset(zip(names, values, strict=False))
