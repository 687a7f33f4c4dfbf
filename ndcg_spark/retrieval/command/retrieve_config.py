"""Everything a user said to `retrieve`, checked, in one frozen value."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Any

from ndcg_spark.conventions import Convention
from ndcg_spark.errors import InvalidParameterError
from ndcg_spark.evaluation.gates import Gate
from ndcg_spark.evaluation.settings import Columns, EvaluationPlan, segment_sets_of
from ndcg_spark.jobs.config import (
    Operations,
    Source,
    Target,
    asked_metrics,
    check_places,
    dataset_of,
    names_of,
    operations_of,
    pairs_of,
    run_date_of,
    source_of,
    target_of,
)
from ndcg_spark.jobs.fields import settings_of
from ndcg_spark.retrieval.settings import RetrievalPlan

OUTPUTS = ("rankings", "judgments", "per_query", "metrics")
_OPTIONS = {"metrics": "output"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrieveConfig:
    """What one run of the retrieval job is asked to do; `targets` are by names of `OUTPUTS`.

    `evaluation` gives the cutoffs in any case; its rules matter where the plan has labels.
    """

    queries: Source
    corpus: Source
    plan: RetrievalPlan
    evaluation: EvaluationPlan
    targets: dict[str, Target]
    run_date: date
    dataset: str
    gates: tuple[Gate, ...]
    json_path: str | None
    spark_settings: dict[str, str]
    operations: Operations

    @property
    def evaluates(self) -> bool:
        """Whether metrics are computed."""
        return self.plan.labels is not None


def flag_of(output: str) -> str:
    """Name the option of an output."""
    return "--" + _name_of(output).replace("_", "-")


def _name_of(output: str) -> str:
    return _OPTIONS.get(output, f"{output}_output")


def retrieve_config(options: dict[str, Any]) -> RetrieveConfig:
    """Check options and put them in their places."""
    sources = {name: source_of(options, name) for name in ("queries", "corpus")}
    found = {output: target_of(options, _name_of(output)) for output in OUTPUTS}
    metrics, cutoffs = asked_metrics(options)
    evaluation = EvaluationPlan(
        columns=Columns(query=(options["query_col"],), item=options["item_col"], weight=options["weight_col"]),
        convention=Convention.parse(options["convention"]),
        cutoffs=cutoffs,
        metrics=metrics,
        segment_sets=segment_sets_of(names_of(options["segment_cols"])),
        confidence=options["confidence"],
    )
    config = RetrieveConfig(
        **sources,
        plan=settings_of(RetrievalPlan, options),
        evaluation=evaluation,
        targets={output: target for output, target in found.items() if target is not None},
        run_date=run_date_of(options["run_date"]),
        dataset=dataset_of(options, sources["queries"]),
        gates=tuple(Gate.parse(text, evaluation) for text in options["gate"]),
        json_path=options["json"],
        spark_settings=pairs_of(options["conf"]),
        operations=operations_of(options),
    )
    _check(config)
    return config


def _check(config: RetrieveConfig) -> None:
    """Refuse what cannot be done with these options, and two outputs in one place."""
    if not config.evaluates:
        needing = [flag_of(name) for name in config.targets if name != "rankings"]
        needing += ["--gate"] if config.gates else []
        if needing:
            raise InvalidParameterError(f"{needing[0]} needs --labels-col, the column that decides relevance.")
        if not config.targets:
            raise InvalidParameterError("there is nothing to do: name --labels-col, or --rankings-output.")
    if "rankings" in config.targets and config.evaluation.max_k is None:
        raise InvalidParameterError("--rankings-output needs a number of items: --k all is for evaluation only.")
    read = [("--queries", config.queries.reference), ("--corpus", config.corpus.reference)]
    check_places(read, [(flag_of(name), target) for name, target in config.targets.items()], config.json_path)
