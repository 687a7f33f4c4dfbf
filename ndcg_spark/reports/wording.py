"""Numbers, dates and names as a person reads them."""

from __future__ import annotations

import json
import math
import unicodedata
from collections.abc import Iterable
from datetime import date
from typing import Any

from ndcg_spark.core import labels
from ndcg_spark.core.labels import join_names as join_names

MINUS = "\u2212"
NOTHING = "\u2014"
"""Shown for a number that is null."""
MOST_CHARACTERS = 60
"""Longest name in the headline."""
REJECTED = "rejected as bad"
_LARGE = 1e12
_FEWEST, _MOST, _USUAL = 2, 6, 4
_HARMFUL = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufffe\uffff")
"""Characters that turn the direction of the text after them, and two that XML forbids."""


def plain(value: Any) -> str:
    """Turn a value of a table into text without control characters, which terminals obey and XML forbids.

    None becomes `null`; line breaks and tabs become spaces, other characters that control a terminal or the direction
    of text U+FFFD.
    """
    if value is None:
        return "null"
    return "".join(map(_harmless, str(value)))


def _harmless(character: str) -> str:
    if character in "\t\n\r":
        return " "
    return "\ufffd" if unicodedata.category(character) in ("Cc", "Cs") or character in _HARMFUL else character


def segment_name(by: str, segment: str | None) -> str:
    """Name a segment for a person; that of several columns (joined by `+`) is a JSON list in tables.

    >>> segment_name("country+device", '["DE", null]')
    'DE · null'
    """
    return " · ".join(segment_values(by, segment))


def segment_values(by: str, segment: str | None) -> list[str]:
    """Values of a segment, one for each of its columns; or the whole text, if it is no list of them."""
    names = by.split("+")
    if segment is not None and len(names) > 1:
        try:
            parts = json.loads(segment)
        except ValueError:
            parts = None
        if isinstance(parts, list) and len(parts) == len(names):
            return [plain(one) for one in parts]
    return ["null" if segment is None else plain(segment) or "(empty)"]


def shortened(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def metric_name(metric: str, k: int | None) -> str:
    """Name a metric at a cutoff, as `NDCG@10`; those with parameters keep their spelling."""
    return labels.metric_at(metric.upper() if metric.isalpha() else metric, k)


def decimals_for(half_widths: Iterable[float | None]) -> int:
    """Choose how many decimals to show (2 to 6, 4 without an interval), so that the narrowest one has two digits."""
    widths = [one for one in half_widths if one is not None and one > 0 and math.isfinite(one)]
    if not widths:
        return _USUAL
    return min(_MOST, max(_FEWEST, 1 + math.ceil(-math.log10(min(widths)))))


def number(value: float | None, decimals: int = _USUAL) -> str:
    """Show a number with a true minus sign: a dash for None and NaN; six digits and a power of ten from 1e12 on."""
    if value is None or math.isnan(value):
        return NOTHING
    if abs(value) >= _LARGE:
        return f"{value:.5e}".replace("-", MINUS)
    text = f"{value:,.{decimals}f}"
    if float(text.replace(",", "")) == 0:
        text = text.lstrip("-")
    return text.replace("-", MINUS)


def signed(value: float | None, decimals: int = _USUAL) -> str:
    """Like `number`, with a plus sign if it is above 0."""
    text = number(value, decimals)
    return f"+{text}" if value is not None and value > 0 and text.strip("0.,") else text


def interval(low: float | None, high: float | None, decimals: int = _USUAL) -> str:
    """Show an interval as `[0.428, 0.434]`; empty without one."""
    if low is None or high is None:
        return ""
    return f"[{number(low, decimals)}, {number(high, decimals)}]"


def count(value: int | None) -> str:
    return NOTHING if value is None else f"{value:,}"


def counted(n: int, one: str, many: str) -> str:
    """Show a count with its noun: `1 query`, `2 queries`."""
    return f"{n:,} {one if n == 1 else many}"


def grade(value: float) -> str:
    return f"{value:g}".replace("-", MINUS)


def share(part: int, whole: int) -> str:
    """Show a share in percent; only 0 looks like 0, and only all like all."""
    if not whole:
        return NOTHING
    percent = 100 * part / whole
    if part and percent < 0.1:
        return "<\u00a00.1\u00a0%"
    if part != whole and percent > 99.9:
        return ">\u00a099.9\u00a0%"
    return f"{percent:.1f}\u00a0%"


def p_value(value: float | None) -> str:
    if value is None:
        return NOTHING
    if value < 0.0001:
        return "< 0.0001"
    return f"{value:.2g}" if value < 0.1 else f"{value:.2f}"


def day(value: date | None, *, year: bool = True) -> str:
    """Show a date as `31 January 2026`."""
    if value is None:
        return "undated"
    return f"{value.day} {value:%B %Y}" if year else f"{value.day} {value:%B}"


def period_name(period: str, start: date, end: date) -> str:
    """Name a period of a roll-up: `week`, `month` or `rolling_7`.

    >>> period_name("week", date(2026, 1, 26), date(2026, 2, 1))
    'the week from 26 January to 1 February 2026'
    """
    if period == "month":
        return f"{start:%B %Y}"
    names = {"week": "the week", "rolling_7": "the seven days"}
    return f"{names.get(period, plain(period))} from {day(start, year=start.year != end.year)} to {day(end)}"
