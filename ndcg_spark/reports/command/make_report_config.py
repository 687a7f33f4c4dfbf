"""Everything a user said to `report`, checked, in one frozen value."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from ndcg_spark.errors import InvalidParameterError
from ndcg_spark.jobs.config import Operations, Source, check_file, operations_of, pairs_of, run_date_of, source_of

TABLES = ("metrics", "per_query", "comparison", "flags")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportConfig:
    """What one run of `report` is asked to do.

    `sources` has the tables that were named, by their names in `TABLES`; `summary` is the JSON of the main job,
    `changed` the queries of that of `diagnose runs`.
    """

    sources: dict[str, Source]
    summary: Mapping[str, Any] | None
    changed: tuple[Mapping[str, Any], ...] | None
    run_date: date | None
    dataset: str | None
    runs: tuple[str, ...]
    metric: str | None
    baseline: str | None
    production: str | None
    n_queries: int
    n_segments: int
    n_nights: int
    title: str | None
    gates: tuple[str, ...]
    output: str
    spark_settings: dict[str, str]
    operations: Operations


def report_config(options: dict[str, Any]) -> ReportConfig:
    """Check options and put them in their places. Reads the JSON."""
    output = options["output"]
    if output is None:
        raise InvalidParameterError("name the page to write: --output report.html.")
    check_file("--output", output)
    for name in ("summary", "diagnosis"):
        if options[name] and os.path.realpath(output) == os.path.realpath(options[name]):
            raise InvalidParameterError(f"--{name} and --output are both {output!r}; give each its own place.")
    return ReportConfig(
        sources={name: source_of(options, name) for name in TABLES if options[name] is not None},
        summary=None if options["summary"] is None else _read_json("--summary", options["summary"], "mean-ndcg"),
        changed=None if options["diagnosis"] is None else _changed_queries(options["diagnosis"]),
        run_date=None if options["run_date"] is None else run_date_of(options["run_date"]),
        dataset=options["dataset"],
        runs=tuple(dict.fromkeys(options["run"])),
        metric=options["metric"],
        baseline=options["baseline"],
        production=options["production"],
        n_queries=options["queries"],
        n_segments=options["segments"],
        n_nights=options["nights"],
        title=options["title"],
        gates=options["gate"],
        output=output,
        spark_settings=pairs_of(options["conf"]),
        operations=operations_of(options),
    )


def _changed_queries(path: str) -> tuple[Mapping[str, Any], ...]:
    queries = _read_json("--diagnosis", path, "diagnose runs").get("queries")
    if not isinstance(queries, list) or not all(isinstance(one, dict) for one in queries):
        raise InvalidParameterError(f"--diagnosis {path!r} is no JSON of diagnose runs --json.")
    return tuple(queries)


def _read_json(flag: str, path: str, command: str) -> Mapping[str, Any]:
    """Read what a command wrote with `--json`; in a log its last line is the JSON."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise InvalidParameterError(f"{flag} {path!r} cannot be read: {reason}.") from error
    lines = text.strip().splitlines()
    try:
        found = json.loads(lines[-1] if lines else "")
    except ValueError:
        raise InvalidParameterError(f"{flag} {path!r} is no JSON of {command} --json.") from None
    if not isinstance(found, dict):
        raise InvalidParameterError(f"{flag} {path!r} is no JSON of {command} --json.")
    return found
