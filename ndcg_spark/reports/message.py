"""A report in a few lines, for a chat or a terminal."""

from __future__ import annotations

from typing import Any

from ndcg_spark.core import labels
from ndcg_spark.reports import wording as w
from ndcg_spark.reports.contents import SegmentRow, name_run
from ndcg_spark.reports.sections import Contents
from ndcg_spark.reports.sentences import (
    describe_difference,
    find_bad_news,
    find_named_segment,
    list_notices,
    list_warnings,
    write_headline,
)

_MAX_PER_KIND = 2


def build_message(contents: Contents) -> dict[str, Any]:
    """Build the message as JSON: verdict (`good` or `bad`), headline, means of the runs, and further lines."""
    return {
        "verdict": "bad" if find_bad_news(contents) else "good",
        "dataset": contents.dataset,
        "run_date": None if contents.run_date is None else contents.run_date.isoformat(),
        "headline": f"{write_headline(contents)}.",
        "means": {result.mean.run: result.mean.value for result in contents.results},
        "lines": _list_lines(contents),
    }


def _list_lines(contents: Contents) -> list[str]:
    """List what comes after the headline, the most important first: a message may not have room for all."""
    values = (f"{w.shorten(name_run(result.mean.run), w.MAX_NAME)} "
              f"{w.format_number(result.mean.value, contents.decimals)}" for result in contents.results)  # fmt: skip
    lines = [f"{contents.label}: {', '.join(values)}."]
    headline, segment = write_headline(contents), find_named_segment(contents)
    if segment is not None:
        lines.append(_describe_share(segment, contents))
    overall = [row for row in contents.differences.rows if not row.by]
    differences = [describe_difference(row, contents) for row in overall]
    lifts = []
    for row in overall[:_MAX_PER_KIND]:
        text = describe_difference(row, contents).rstrip(".")
        lift = "" if row.lift is None else f"{w.format_signed(100 * row.lift, 1)}\u00a0%"
        if lift:
            names = f"{w.shorten(name_run(row.run), w.MAX_NAME)} over {w.shorten(name_run(row.baseline), w.MAX_NAME)}"
            text = f"Lift of {names}: {lift}" if headline.startswith(text) else f"{text} (lift {lift})"
        lifts.append(f"{text}.")
    warnings = [warning for warning in list_warnings(contents) if warning not in differences]
    lines += [*warnings[:_MAX_PER_KIND], *lifts[:1], *warnings[_MAX_PER_KIND:], *lifts[1:]]
    lines += [text for _, text in list_notices(contents)]
    return [line for line in lines if not headline.startswith(line.rstrip("."))]


def _describe_share(row: SegmentRow, contents: Contents) -> str:
    """Describe the share of a segment among the queries of its run."""
    result = next(result for result in contents.results if result.mean.run == row.mean.run)
    segment, overall, had = row.mean, result.mean, "has"
    if not segment.n_queries and row.before is not None and result.before is not None:
        segment, overall, had = row.before, result.before, "had"
    name = labels.segment_at(segment.by, segment.name)
    of_run = f" of {w.shorten(name_run(row.mean.run), w.MAX_NAME)}" if len(contents.results) > 1 else ""
    return f"{name} {had} {w.format_share(segment.n_queries, overall.n_queries)} of the queries{of_run}."
