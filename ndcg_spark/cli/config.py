"""Everything a user said on the command line, checked, in one frozen value."""

from __future__ import annotations

import os
import re
import tempfile
from dataclasses import dataclass
from datetime import date, datetime, timezone
from typing import Any

from ndcg_spark.cli.gates import Gate
from ndcg_spark.conventions import CHOICES, Convention
from ndcg_spark.errors import InvalidParameterError
from ndcg_spark.evaluation import cutoffs_of, metrics_of, segment_sets_of
from ndcg_spark.metrics import MetricAt
from ndcg_spark.plan import Columns, EvaluationPlan

SHORT = 200
"""Entries of a list, of which a batch of ten thousand rankings takes some tens of megabytes."""
CONVENTION_FLAGS = ("gain", "discount", "pad_to_k", *CHOICES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A table to read: reference, format (None: guess), options of the reader."""

    reference: str
    kind: str | None
    options: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A table to write: reference, format (None: guess)."""

    reference: str
    kind: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobConfig:
    """What one run of the main job is asked to do."""

    source: Source
    judgments: Source | None
    plan: EvaluationPlan
    run_date: date
    dataset: str
    output: Target | None
    per_query_output: Target | None
    rejects: Target | None
    max_reject_fraction: float | None
    gates: tuple[Gate, ...]
    json_path: str | None
    explain: bool
    explain_difference: Convention | None
    allow_empty: bool
    spark_settings: dict[str, str]

    @property
    def short_lists(self) -> bool:
        """Whether no list is much longer than a small k, so that ten thousand rankings fit into memory."""
        return self.plan.max_k is not None and self.plan.max_k <= SHORT


def job_config(options: dict[str, Any]) -> JobConfig:
    """Check options and put them in their places.

    Parameters
    ----------
    options : dict
        As the command line gave them.

    Returns
    -------
    JobConfig

    Raises
    ------
    InvalidParameterError
    """
    plan = _plan(options)
    fraction = options["max_reject_fraction"]
    if fraction is not None and not 0 <= fraction <= 1:
        raise InvalidParameterError(f"--max-reject-fraction must lie between 0 and 1; got {fraction}.")
    if options["rejects"] and plan.on_invalid != "reject":
        raise InvalidParameterError("--rejects goes with --on-invalid reject.")
    source = Source(
        reference=options["input"], kind=options["input_format"], options=name_value_pairs(options["input_option"])
    )
    judgments = None
    if options["judgments"]:
        judgments = Source(
            reference=options["judgments"],
            kind=options["judgments_format"],
            options=name_value_pairs(options["judgments_option"]),
        )
    config = JobConfig(
        source=source,
        judgments=judgments,
        plan=plan,
        run_date=run_date_of(options["run_date"]),
        dataset=options["dataset"] or dataset_of(source.reference),
        output=target_of(options["output"], options["output_format"]),
        per_query_output=target_of(options["per_query_output"], options["per_query_format"]),
        rejects=target_of(options["rejects"], options["rejects_format"]),
        max_reject_fraction=fraction,
        gates=tuple(Gate.parse(text, plan) for text in options["gate"]),
        json_path=options["json"],
        explain=options["explain"],
        explain_difference=_parsed(options["explain_difference"]),
        allow_empty=options["allow_empty"],
        spark_settings=name_value_pairs(options["conf"]),
    )
    _check_places(config)
    return config


def _check_places(config: JobConfig) -> None:
    """Refuse to write two things to one place, or over what is read, or JSON where it cannot go."""
    places: dict[str, str] = {}
    for name, reference in (
        ("--input", config.source.reference),
        ("--judgments", config.judgments.reference if config.judgments else None),
        ("--output", config.output.reference if config.output else None),
        ("--per-query-output", config.per_query_output.reference if config.per_query_output else None),
        ("--rejects", config.rejects.reference if config.rejects else None),
    ):
        place = None if reference is None else os.path.abspath(reference)
        if place is not None and name not in ("--input", "--judgments") and place in places:
            raise InvalidParameterError(
                f"{places[place]} and {name} are both {reference!r}; give each its own place."
            )
        if place is not None:
            places.setdefault(place, name)
    if config.json_path not in (None, "-"):
        parent = os.path.dirname(os.path.abspath(str(config.json_path)))
        if not os.path.isdir(parent) or os.path.isdir(str(config.json_path)):
            raise InvalidParameterError(f"--json {config.json_path!r} is no file in a folder that is there.")
        try:
            with tempfile.NamedTemporaryFile(dir=parent, prefix=".ndcg-spark-"):
                pass
        except OSError as error:
            raise InvalidParameterError(
                f"--json {config.json_path!r} cannot be written: {error.strerror}."
            ) from error


def _parsed(convention: str | None) -> Convention | None:
    return None if convention is None else Convention.parse(convention)


def _plan(options: dict[str, Any]) -> EvaluationPlan:
    changes = {flag: options[flag] for flag in CONVENTION_FLAGS if options[flag] is not None}
    convention = Convention.parse(options["convention"]).changed(changes)
    metrics, cutoffs = asked_metrics(options)
    columns = Columns(
        query=named_columns(options["query_col"]),
        item=options["item_col"] or None,
        score=named_columns(options["score_col"]),
        rank=options["rank_col"],
        relevance=options["relevance_col"],
        ideal=options["ideal_col"],
        run=options["run_col"],
        weight=options["weight_col"],
        order=options["order_col"],
    )
    return EvaluationPlan(
        columns=columns,
        convention=convention,
        cutoffs=cutoffs,
        metrics=metrics,
        segment_sets=segment_sets_of(named_columns(options["segment_cols"])),
        strategy=options["strategy"],
        source=options["source"],
        on_invalid=options["on_invalid"],
        null_score=options["null_score"],
        check_duplicates=options["check_duplicates"],
        confidence=options["confidence"],
        sample=options["sample"],
        tie_bounds=options["tie_bounds"],
    )


def asked_metrics(options: dict[str, Any]) -> tuple[tuple[MetricAt, ...], tuple[int | None, ...]]:
    """Metrics and cutoffs of `--metrics` and `--k`."""
    k = None if options["k"] is None else [one.strip() for one in options["k"].split(",")]
    return metrics_of(options["metrics"], k) if options["metrics"] is not None else ((), cutoffs_of(k or 10))


def named_columns(text: str | None) -> tuple[str, ...]:
    """Names between commas."""
    return tuple(name.strip() for name in text.split(",")) if text else ()


def name_value_pairs(texts: tuple[str, ...]) -> dict[str, str]:
    """Options of the form NAME=VALUE."""
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InvalidParameterError(f"{text!r} is not of the form NAME=VALUE.")
        pairs[name] = value
    return pairs


def target_of(reference: str | None, kind: str | None) -> Target | None:
    """A table to write, where one is named."""
    return Target(reference=reference, kind=kind) if reference else None


def run_date_of(text: str | None) -> date:
    """The date of a run; today, in UTC, where none is given."""
    if text is None:
        return datetime.now(timezone.utc).date()
    try:
        if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", text):
            raise ValueError
        return date.fromisoformat(text)
    except ValueError:
        raise InvalidParameterError(f"--run-date must be a date as 2026-01-31; got {text!r}.") from None


def dataset_of(reference: str) -> str:
    """A name for rows whose data set was not named: the last part of the path or table; `query` for SQL."""
    if re.search(r"\s", reference):
        return "query"
    name = os.path.basename(reference.rstrip("/")) or reference
    return re.sub(r"(\.(parquet|orc|csv|tsv|jsonl?|ndjson|avro|gz|bz2|zst))+$", "", name) or name
