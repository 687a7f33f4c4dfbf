"""Everything a user said to `build-judgments`, checked, in one frozen value."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from ndcg_spark.errors import InvalidParameterError
from ndcg_spark.jobs.config import (
    Operations,
    Source,
    Target,
    check_places,
    dataset_of,
    names_of,
    operations_of,
    pairs_of,
    reject_fraction_of,
    run_date_of,
    source_of,
    target_of,
)
from ndcg_spark.judgments.settings import EventColumns, EventPlan, RatingColumns, RatingPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgmentsConfig:
    """What one run of `build-judgments` is asked to do."""

    source: Source
    plan: EventPlan | RatingPlan
    run_date: date
    dataset: str
    output: Target | None
    disputes: Target | None
    rejects: Target | None
    max_reject_fraction: float | None
    json_path: str | None
    explain: bool
    allow_empty: bool
    spark_settings: dict[str, str]
    operations: Operations


def judgments_config(options: dict[str, Any], plan: EventPlan | RatingPlan) -> JudgmentsConfig:
    """Check the options that do not depend on what judgments are made from."""
    source = source_of(options, "input")
    config = JudgmentsConfig(
        source=source,
        plan=plan,
        run_date=run_date_of(options["run_date"]),
        dataset=dataset_of(options, source),
        output=target_of(options, "output"),
        disputes=target_of(options, "disputes"),
        rejects=target_of(options, "rejects"),
        max_reject_fraction=reject_fraction_of(options),
        json_path=options["json"],
        explain=options["explain"],
        allow_empty=options["allow_empty"],
        spark_settings=pairs_of(options["conf"]),
        operations=operations_of(options),
    )
    written = [("--output", config.output), ("--disputes", config.disputes), ("--rejects", config.rejects)]
    check_places([("--input", source.reference)], written, config.json_path)
    return config


def event_plan(options: dict[str, Any]) -> EventPlan:
    """Read how judgments are made from events."""
    columns = EventColumns(
        query=names_of(options["query_col"]),
        item=options["item_col"],
        event=options["event_col"],
        ts=options["ts_col"],
        event_id=options["event_id_col"],
        user=options["user_col"],
    )
    same = ("impression", "rule", "cap", "half_life", "min_impressions", "negative", "dedup", "dedup_seconds")
    return EventPlan(
        columns=columns,
        grades=_grades(options["grades"]),
        start=_instant("--from", options["start"]),
        as_of=_instant("--as-of", options["as_of"]),
        on_invalid=options["on_invalid"],
        **{name: options[name] for name in same},
    )


def rating_plan(options: dict[str, Any]) -> RatingPlan:
    """Read how judgments are made from ratings."""
    columns = RatingColumns(
        query=names_of(options["query_col"]),
        item=options["item_col"],
        annotator=options["annotator_col"],
        relevance=options["relevance_col"],
        weight=options["weight_col"],
    )
    same = ("rule", "tie", "dispute_range", "on_invalid")
    return RatingPlan(columns=columns, **{name: options[name] for name in same})


def _grades(text: str) -> dict[str, float]:
    pairs = [one.strip() for one in text.split(",")]
    grades = pairs_of(pairs)
    if len(grades) < len(pairs):
        raise InvalidParameterError(f"--grades names an event twice: {text!r}.")
    try:
        return {event.strip(): float(grade) for event, grade in grades.items()}
    except ValueError:
        raise InvalidParameterError(f"--grades must be as view=1,cart=2; got {text!r}.") from None


def _instant(flag: str, text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith(("Z", "z")) else text)
    except ValueError:
        raise InvalidParameterError(f"{flag} must be as 2026-01-31 or 2026-01-31T18:00:00Z; got {text!r}.") from None
