"""A report in a few lines, for a chat or a terminal."""

from __future__ import annotations

from typing import Any

from ndcg_spark.reports import wording as w
from ndcg_spark.reports.contents import SegmentRow, run_name
from ndcg_spark.reports.sections import Contents
from ndcg_spark.reports.sentences import attention, bad_news, difference_text, headline, notices, worst_segment

MAX_LINES = 9
"""Lines of a message; a night adds the place of its page."""
_MAX_OF_A_KIND = 2


def message_of(contents: Contents) -> dict[str, Any]:
    """What a report says, as JSON has it: verdict (`good` or `bad`), headline, and lines with more of it."""
    return {
        "verdict": "bad" if bad_news(contents) else "good",
        "dataset": contents.dataset,
        "run_date": None if contents.run_date is None else contents.run_date.isoformat(),
        "headline": f"{headline(contents)}.",
        "means": {one.mean.run: one.mean.value for one in contents.standings},
        "lines": _lines(contents),
    }


def _lines(contents: Contents) -> list[str]:
    values = (f"{w.shortened(run_name(one.mean.run), w.MOST_CHARACTERS)} "
              f"{w.number(one.mean.value, contents.decimals)}" for one in contents.standings)  # fmt: skip
    lines = [f"{contents.label}: {', '.join(values)}."]
    segment = worst_segment(contents)
    if segment is not None:
        lines.append(_share_text(segment, contents))
    overall = [row for row in contents.differences.rows if not row.by]
    told = [difference_text(row, contents) for row in overall]
    lines += [one for one in attention(contents) if one not in told][:_MAX_OF_A_KIND]
    for row in overall[:_MAX_OF_A_KIND]:
        text = difference_text(row, contents).rstrip(".")
        lift = "" if row.lift is None else f"{w.signed(100 * row.lift, 1)}\u00a0%"
        if lift:
            text = f"Lift: {lift}" if text == headline(contents) else f"{text} ({lift})"
        lines.append(f"{text}.")
    lines += [text for _, text in notices(contents)][:_MAX_OF_A_KIND]
    return [line for line in lines if line.rstrip(".") != headline(contents)][: MAX_LINES - 1]


def _share_text(row: SegmentRow, contents: Contents) -> str:
    """How many of the queries of its run a segment has."""
    whole = next(one.mean for one in contents.standings if one.mean.run == row.mean.run)
    n = max(row.mean.n_queries, 0 if row.before is None else row.before.n_queries)
    return f"{row.mean.full_name} has {w.share(n, max(n, whole.n_queries))} of the queries."
