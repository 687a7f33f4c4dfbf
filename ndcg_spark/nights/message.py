"""What a night says to people when it ends, in a few lines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ndcg_spark.errors import escape_json, escape_unprintable
from ndcg_spark.history.causes import causes_of
from ndcg_spark.jobs.printing import format_gate
from ndcg_spark.nights.results import NOT_RUN, StepResult
from ndcg_spark.nights.steps import Night

MAX_LINES = 10


def message_of(night: Night, results: Sequence[StepResult], code: int, refusal: str | None = None) -> dict[str, Any]:
    """Build what a night says, as JSON has it: verdict (`good` or `bad`), exit code, lines, and the page.

    The report says most of it; steps that were not done come first. `refusal` says why the whole night did not run.
    """
    lost = [one for one in results if not one.is_usable and (one.exit_code or one.status != NOT_RUN)]
    found = next((one for one in reversed(results) if "message" in one.facts), None)
    said = {} if found is None else found.facts["message"]
    page = None if found is None else found.writes.get("page")
    lines = [] if refusal is None else [f"refused: {refusal}"]
    lines += [f"{one.step}: {one.status}{': ' if one.message else ''}{one.message}" for one in lost]
    lines += [said["headline"], *said["lines"]] if said else list(_lines_of_steps(results))
    of_night = f"night {night.run_date} of {night.dataset or 'one data set'}"
    lines = [f"{of_night}:", *lines[: MAX_LINES - 2]] if lines else [f"{of_night}: done"]
    is_bad = said["verdict"] == "bad" if said else any(one.is_flagged for one in results)
    return {
        "run_date": night.run_date.isoformat(),
        "dataset": night.dataset,
        "verdict": "bad" if code or is_bad else "good",
        "exit_code": code,
        "lines": list(map(escape_unprintable, [*lines, *([] if page is None else [f"page: {page}"])])),
        "page": page,
    }


def _lines_of_steps(results: Sequence[StepResult]) -> Iterator[str]:
    """Gates that were missed, and flags: what steps say where no report does."""
    for one in results:
        yield from (format_gate(gate) for gate in one.facts.get("gates", ()) if not gate["met"])
        yield from (cause.line for cause in causes_of(one.facts.get("flags", ())))


def write_message(message: dict[str, Any], path: str) -> None:
    """Write a message as text, and as JSON in a file of the same name that ends with .json."""
    Path(path).write_text("\n".join(message["lines"]) + "\n", encoding="utf-8")
    text = escape_json(json.dumps(message, ensure_ascii=False))
    Path(path).with_suffix(".json").write_text(text + "\n", encoding="utf-8")
