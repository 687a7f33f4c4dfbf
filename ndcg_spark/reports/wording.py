"""Formatted numbers, dates and names."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable
from datetime import date, timedelta
from typing import Any

from ndcg_spark.core import labels
from ndcg_spark.core.labels import join_names as join_names

MINUS = "\u2212"
NOTHING = "\u2014"
"""Shown for a null number."""
MAX_NAME = 60
"""Longest name in the headline."""
REJECTED = "rejected as bad"
_MIN_SCIENTIFIC = 1e12
_MIN_DECIMALS, _MAX_DECIMALS, _DEFAULT_DECIMALS = 2, 6, 4
_HARMFUL = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufffe\uffff")
"""Characters that change the direction of the text after them, and two that XML forbids."""


def clean_text(value: Any) -> str:
    """Turn a value of a table into text without control characters, which terminals obey and XML forbids.

    None becomes `null`; line breaks and tabs become spaces; other characters that control a terminal or the direction
    of text become U+FFFD.
    """
    if value is None:
        return "null"
    return "".join(map(_replace_control, str(value)))


def _replace_control(character: str) -> str:
    if character in "\t\n\r":
        return " "
    return "\ufffd" if unicodedata.category(character) in ("Cc", "Cs") or character in _HARMFUL else character


def name_segment(by: str, segment: str | None) -> str:
    """Format the values of a segment; tables store those of several columns (joined by `+`) as a JSON list.

    >>> name_segment("country+device", '["DE", null]')
    'DE · null'
    """
    return " · ".join(list_segment_values(by, segment))


def list_segment_values(by: str, segment: str | None) -> list[str]:
    """List the value of each column of a segment; or the whole text, if it is not a list of them."""
    values = labels.segment_values(by, segment)
    if values is not None and "+" in by:
        return [clean_text(value) for value in values]
    return ["null" if segment is None else clean_text(segment) or "(empty)"]


def shorten(text: str, max_length: int) -> str:
    return text if len(text) <= max_length else text[: max_length - 1].rstrip() + "…"


def name_metric(metric: str, k: int | None) -> str:
    """Name a metric at a cutoff, such as `NDCG@10`; metrics with parameters keep their spelling."""
    return labels.metric_at(metric.upper() if metric.isalpha() else metric, k)


def choose_decimals(half_widths: Iterable[float | None]) -> int:
    """Choose how many decimals to show (2 to 6; 4 by default) so that the narrowest interval has two digits."""
    widths = [width for width in half_widths if width is not None and width > 0 and math.isfinite(width)]
    if not widths:
        return _DEFAULT_DECIMALS
    return min(_MAX_DECIMALS, max(_MIN_DECIMALS, 1 + math.ceil(-math.log10(min(widths)))))


def format_number(value: float | None, decimals: int = _DEFAULT_DECIMALS) -> str:
    """Format a number with a true minus sign; None and NaN as a dash, numbers from 1e12 on with a power of ten."""
    if value is None or math.isnan(value):
        return NOTHING
    if abs(value) >= _MIN_SCIENTIFIC:
        return f"{value:.5e}".replace("-", MINUS)
    text = f"{value:,.{decimals}f}"
    if float(text.replace(",", "")) == 0:
        text = text.lstrip("-")
    return text.replace("-", MINUS)


def format_signed(value: float | None, decimals: int = _DEFAULT_DECIMALS) -> str:
    """Like `format_number`, with a plus sign if it is above 0."""
    text = format_number(value, decimals)
    return f"+{text}" if value is not None and value > 0 and text.strip("0.,") else text


def format_interval(low: float | None, high: float | None, decimals: int = _DEFAULT_DECIMALS) -> str:
    """Format an interval as `[0.428, 0.434]`; empty without one."""
    if low is None or high is None:
        return ""
    return f"[{format_number(low, decimals)}, {format_number(high, decimals)}]"


def format_count(value: int | None) -> str:
    return NOTHING if value is None else f"{value:,}"


def pluralize(n: int, singular: str, plural: str) -> str:
    """Format a count with its noun: `1 query`, `2 queries`."""
    return f"{n:,} {singular if n == 1 else plural}"


def format_grade(value: float) -> str:
    return f"{value:g}".replace("-", MINUS)


def format_share(part: int, whole: int) -> str:
    """Format a share in percent; only exact 0 and 100 % are shown as such."""
    if not whole:
        return NOTHING
    percent = 100 * part / whole
    if part and percent < 0.1:
        return "<\u00a00.1\u00a0%"
    if part != whole and percent > 99.9:
        return ">\u00a099.9\u00a0%"
    return f"{percent:.1f}\u00a0%"


def format_p_value(value: float | None) -> str:
    if value is None:
        return NOTHING
    if value < 0.0001:
        return "< 0.0001"
    return f"{value:.2g}" if value < 0.1 else f"{value:.2f}"


def format_day(value: date | None, *, year: bool = True) -> str:
    """Format a date as `31 January 2026`."""
    if value is None:
        return "undated"
    return f"{value.day} {value:%B %Y}" if year else f"{value.day} {value:%B}"


def name_night(earlier: date | None, night: date | None) -> str:
    """Name an earlier night, as seen from a night."""
    is_before = earlier is not None and night is not None and night - earlier == timedelta(days=1)
    return "the night before" if is_before else format_day(earlier)


def name_period(period: str, start: date, end: date) -> str:
    """Name a period of a roll-up: `week`, `month` or `rolling_7`.

    >>> name_period("week", date(2026, 1, 26), date(2026, 2, 1))
    'the week from 26 January to 1 February 2026'
    """
    if period == "month":
        return f"{start:%B %Y}"
    names = {"week": "the week", "rolling_7": "the seven days"}
    first, last = format_day(start, year=start.year != end.year), format_day(end)
    return f"{names.get(period, clean_text(period))} from {first} to {last}"
