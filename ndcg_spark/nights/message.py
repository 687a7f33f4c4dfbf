"""The summary of a night: a few lines for people, printed when the night ends."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ndcg_spark.errors import escape_json, escape_unprintable
from ndcg_spark.history.causes import group_by_cause
from ndcg_spark.jobs.printing import format_gate
from ndcg_spark.nights.results import BEFORE, NOT_RUN, StepResult
from ndcg_spark.nights.steps import Night

MAX_LINES = 10


def build_night_message(
    night: Night, results: Sequence[StepResult], code: int, refusal: str | None = None
) -> dict[str, Any]:
    """Build the summary as JSON: verdict (`good` or `bad`), exit code, lines, and the page.

    The headline of the report comes first, then failed steps, then the other lines of the report. `refusal` is the
    line of a night that did not run at all.
    """
    failed = [result for result in results if not result.is_usable and (result.exit_code or result.status != NOT_RUN)]
    report = next((result for result in reversed(results) if "message" in result.facts), None)
    summary = {} if report is None else report.facts["message"]
    page = None if report is None else report.writes.get("page")
    problems = [*([] if refusal is None else [refusal]), *(result.problem for result in failed)]
    headline = [summary["headline"]] if summary else []
    if headline and any(problem.startswith(headline[0].rstrip(".")) for problem in problems):
        headline = []  # it is the first sentence of a problem
    details = summary["lines"] if summary else list(_summarize_steps(results))
    lines = list({line.rstrip("."): line for line in (*headline, *problems, *details)}.values())
    title = f"night {night.run_date} of {night.dataset or 'one data set'}"
    drawn = next((result for result in results if result.status == BEFORE and "page" in result.writes), None)
    verdict = None
    if report is None and drawn is not None and not failed:
        from ndcg_spark.reports.index import read_verdict

        verdict = read_verdict(Path(drawn.writes["page"]))
        page = None if verdict is None else drawn.writes["page"]
        lines = [] if verdict is None else [f"{verdict[0]}."]
    has_no_page = drawn is not None and not Path(drawn.writes["page"]).exists()  # such a night did not succeed
    if results and all(result.status == BEFORE for result in results):
        lines.append(f"nothing was run; {'this night has no page' if has_no_page else 'all results are up to date'}")
    room = MAX_LINES - 2  # beside the title and the page
    if len(lines) > room:
        n_more = len(lines) - room + 1
        lines = [*lines[: room - 1], f"{n_more} more lines{'' if page is None else ' are on the page'}."]
    lines = [f"{title}:", *lines] if lines else [f"{title}: done"]
    is_bad = has_no_page or any(result.is_flagged or result.facts.get("ongoing") for result in results)
    if summary:
        is_bad = summary["verdict"] == "bad"
    elif verdict is not None:
        is_bad = verdict[1]
    return {
        "run_date": night.run_date.isoformat(),
        "dataset": night.dataset,
        "verdict": "bad" if code or is_bad else "good",
        "exit_code": code,
        "lines": list(map(escape_unprintable, [*lines, *([] if page is None else [f"page: {page}"])])),
        "page": page,
    }


def _summarize_steps(results: Sequence[StepResult]) -> Iterator[str]:
    """Yield lines for missed gates and flags; used without a report."""
    for result in results:
        yield from (format_gate(gate) for gate in result.facts.get("gates", ()) if not gate["met"])
        flags = [*result.facts.get("flags", ()), *result.facts.get("ongoing", ())]
        yield from (cause.line for cause in group_by_cause(flags))


def write_message(message: dict[str, Any], path: str) -> None:
    """Write a message as text, and as JSON to a file of the same name with the ending .json."""
    Path(path).write_text("\n".join(message["lines"]) + "\n", encoding="utf-8")
    text = escape_json(json.dumps(message, ensure_ascii=False))
    Path(path).with_suffix(".json").write_text(text + "\n", encoding="utf-8")
