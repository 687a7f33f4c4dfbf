"""Everything a user said to `compare-runs`, checked, in one frozen value."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace
from datetime import date
from typing import Any

from ndcg_spark.comparison.settings import Statistics
from ndcg_spark.conventions import Convention
from ndcg_spark.errors import InvalidParameterError
from ndcg_spark.evaluation.gates import COMPARISONS, name_and_cutoff
from ndcg_spark.evaluation.settings import EvaluationPlan, cutoffs_of
from ndcg_spark.jobs.config import (
    Operations,
    Source,
    Target,
    check_places,
    convention_of,
    dataset_of,
    evaluation_plan_of,
    names_of,
    night_of,
    operations_of,
    pairs_of,
    reject_fraction_of,
    run_date_of,
    source_of,
    target_of,
)
from ndcg_spark.jobs.fields import settings_of

_GATE = re.compile(r"\s*(\w+(?:\([^()]*\))?(?:@\w+)?)\.(\w+)\s*(>=|<=|>|<)\s*([-+0-9.eE]+)\s*")
GATED = (
    "n_queries", "n_wins", "n_ties", "n_losses", "n_only_run", "n_only_baseline", "n_skipped", "n_clusters", "value",
    "baseline_value", "difference", "weight_sum", "std_error", "df", "ci_low", "ci_high", "t", "p_value",
    "p_sign_flip", "boot_low", "boot_high", "boot_t_low", "boot_t_high", "lift", "lift_low", "lift_high",
    "design_effect", "n_effective", "n_clusters_effective", "p_holm", "p_bh", "mde", "n_required",
)  # fmt: skip
"""Columns that gates may be about."""


@dataclass(frozen=True, slots=True)
class ComparisonGate:
    """A condition on a column of the rows over all queries, for every pair of runs.

    With `any_k` the user named no cutoff; then there must be one alone.
    """

    text: str
    metric: str
    k: int | None
    any_k: bool
    column: str
    comparison: str
    bound: float

    @classmethod
    def parse(cls, text: str) -> ComparisonGate:
        """Read a gate, such as `ndcg@10.ci_low>-0.002`."""
        found = _GATE.fullmatch(text)
        if found is None:
            raise InvalidParameterError(
                f"gate {text!r} is not of the form METRIC@K.COLUMN>NUMBER, as ndcg@10.ci_low>-0.002."
            )
        named, column, comparison, number = found.groups()
        if column not in GATED:
            raise InvalidParameterError(
                f"gate {text!r}: there is no number {column!r}; there are {', '.join(GATED)}."
            )
        name, at = name_and_cutoff(named, text)
        try:
            bound = float(number)
        except ValueError:
            raise InvalidParameterError(f"gate {text!r}: {number!r} is no number.") from None
        return cls(text, name, None if at is None else cutoffs_of(at)[0], at is None, column, comparison, bound)

    def results(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Hold every pair's row over all queries against the gate: `gate`, `run`, `baseline`, `value`, `met`.

        A null meets no gate. A gate on a metric or cutoff that was not compared is refused.
        """
        overall = [row for row in rows if not row["segment_by"]]
        its = [row for row in overall if row["metric"] == self.metric and (self.any_k or row["k"] == self.k)]
        if self.column in ("p_value", "p_holm", "p_bh") and any(row["verdict"] is None for row in its):
            raise InvalidParameterError(
                f"gate {self.text!r}: {self.metric} stands beside ndcg and is not tested; name it in --metrics."
            )
        cutoffs = sorted({"all" if row["k"] is None else str(row["k"]) for row in its})
        if not its:
            there = sorted({f"{row['metric']}@{'all' if row['k'] is None else row['k']}" for row in overall})
            raise InvalidParameterError(
                f"gate {self.text!r} is about what is not compared; there are {', '.join(there)}."
            )
        if len(cutoffs) > 1:
            raise InvalidParameterError(f"gate {self.text!r}: name the cutoff too, as {self.metric}@{cutoffs[0]}.")
        return [
            {"gate": self.text, "run": row["run"], "baseline": row["baseline"], "value": row[self.column],
             "met": row[self.column] is not None and COMPARISONS[self.comparison](row[self.column], self.bound)}
            for row in its
        ]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingInput:
    """Rankings to evaluate before they are compared."""

    source: Source
    judgments: Source | None
    plan: EvaluationPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareConfig:
    """What one run of `compare-runs` is asked to do.

    Either `rankings` are evaluated and compared in one go, or tables `per_query` are compared. `options` are those of
    `compare`. `night` and `asked_dataset` are what `--run-date` and `--dataset` name, if they were given: per-query
    tables are read at these.
    """

    rankings: RankingInput | None
    per_query: Source | None
    baseline_per_query: Source | None
    convention: Convention
    options: dict[str, Any]
    runs: tuple[str, ...] | None
    run_column: str
    run_date: date
    night: date | None
    dataset: str
    asked_dataset: str | None
    output: Target | None
    rejects: Target | None
    gates: tuple[ComparisonGate, ...]
    json_path: str | None
    max_reject_fraction: float | None
    explain: bool
    spark_settings: dict[str, str]
    operations: Operations

    @property
    def baseline(self) -> str | None:
        """The run that others are compared with."""
        found: str | None = self.options["baseline"]
        return found

    @property
    def sources(self) -> list[tuple[str, Source]]:
        """The tables that are read, by their flags."""
        read = [("--per-query", self.per_query), ("--baseline-per-query", self.baseline_per_query)]
        if self.rankings is not None:
            read += [("--input", self.rankings.source), ("--judgments", self.rankings.judgments)]
        return [(flag, source) for flag, source in read if source is not None]


def compare_config(options: dict[str, Any]) -> CompareConfig:
    """Check options and put them in their places."""
    if (options["input"] is None) == (options["per_query"] is None):
        raise InvalidParameterError("name what to compare: either --input (rankings) or --per-query (their metrics).")
    statistics = settings_of(Statistics, options)
    rankings = _rankings(options) if options["input"] is not None else None
    given = asdict(statistics) | _given(options, rankings)
    tables = {name: _optional(options, name) for name in ("per_query", "baseline_per_query")}
    if tables["baseline_per_query"] is not None and (tables["per_query"] is None or given["baseline"] is None):
        raise InvalidParameterError("--baseline-per-query goes with --per-query and --baseline NAME.")
    config = CompareConfig(
        rankings=rankings,
        **tables,
        convention=convention_of(options),
        options=given,
        runs=names_of(options["runs"]) or None,
        run_column=options["run_col"] or "run",
        run_date=run_date_of(options["run_date"]),
        night=night_of("--run-date", options["run_date"]),
        asked_dataset=options["dataset"],
        dataset=dataset_of(options, source_of(options, "per_query" if rankings is None else "input")),
        output=target_of(options, "output"),
        rejects=target_of(options, "rejects"),
        gates=tuple(ComparisonGate.parse(text) for text in options["gate"]),
        json_path=options["json"],
        max_reject_fraction=reject_fraction_of(options),
        explain=options["explain"],
        spark_settings=pairs_of(options["conf"]),
        operations=operations_of(options),
    )
    read = [(flag, source.reference) for flag, source in config.sources]
    check_places(read, [("--output", config.output), ("--rejects", config.rejects)], config.json_path)
    return config


def _optional(options: dict[str, Any], name: str) -> Source | None:
    return source_of(options, name) if options[name] is not None else None


def _rankings(options: dict[str, Any]) -> RankingInput:
    plan = evaluation_plan_of({**options, "confidence": 1 - options["alpha"], "tie_bounds": False})
    cluster = options["cluster_col"]
    if cluster is not None and cluster not in (*plan.segment_columns, *plan.columns.query):
        plan = replace(plan, segment_sets=(*plan.segment_sets, (cluster,)))  # so that results carry it
    return RankingInput(source=source_of(options, "input"), judgments=_optional(options, "judgments"), plan=plan)


def _given(options: dict[str, Any], rankings: RankingInput | None) -> dict[str, Any]:
    """Options of `compare`, but for statistics."""
    given = {name: options[name] for name in ("baseline", "unpaired")}
    given |= {"segments": names_of(options["segment_cols"]), "cluster": options["cluster_col"]}
    if rankings is None:
        k = options["k"]
        given |= {"query": names_of(options["query_col"]), "weight": options["weight_col"]}
        given |= {"metrics": options["metrics"], "k": None if k is None else [one.strip() for one in k.split(",")]}
    return given
