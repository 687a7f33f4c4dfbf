"""Explain why two conventions give different means."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ndcg_spark.conventions import Convention
from ndcg_spark.core.adapters import convert_tables, refuses_streams
from ndcg_spark.core.arrow_tables import ArrowTable
from ndcg_spark.core.flag import OnInvalid
from ndcg_spark.core.labels import cutoff
from ndcg_spark.errors import InvalidParameterError
from ndcg_spark.evaluation.api import OPTIONS, choose_engine, evaluation_settings
from ndcg_spark.evaluation.plan import require_query
from ndcg_spark.evaluation.results import LocalEvaluation
from ndcg_spark.evaluation.settings import (
    DuplicateCheck,
    EvaluationSettings,
    NullScore,
    Source,
    Strategy,
    parse_single_cutoff,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ndcg_spark.evaluation.explanation import Explanation

PARTS: dict[str, tuple[str, ...]] = {
    "duplicates": ("duplicates",),
    "precision": ("score_precision",),
    "ties": ("ties",),
    "negative": ("negative",),
    "gain": ("gain",),
    "discount": ("discount",),
    "unjudged": ("unjudged",),
    "ideal": ("ideal",),
    "padding": ("pad_to_k",),
    "denominator": ("no_relevant", "missing_query", "unjudged_query"),
}
"""Parts of a convention in the order in which they are changed. The cutoff changes first if it becomes smaller, else
before the denominator."""


class Step(NamedTuple):
    """A changed part of a convention, its value before and after, and the settings after the change."""

    part: str
    before: str
    after: str
    settings: EvaluationSettings


def list_steps(settings: EvaluationSettings, other: Convention | str, k: int | str | None = "same") -> list[Step]:
    """List steps from one convention to another at cutoff `k`, one part changed at a time.

    The first step changes nothing; parts in which both conventions agree are left out.
    """
    if len(settings.cutoffs) != 1:
        raise InvalidParameterError(f"explain_difference needs a single k; got {len(settings.cutoffs)} cutoffs.")
    other = Convention.parse(other)
    settings = replace(settings, segment_sets=(), tie_bounds=False, metrics=())
    steps = [Step("", "", "", settings)]
    parts = list(PARTS.items())
    cutoffs = settings.cutoffs if k == "same" else (parse_single_cutoff(k, "the k of the other convention"),)
    if cutoffs[0] is not None and (settings.max_k is None or settings.max_k > cutoffs[0]):
        _append_cutoff_step(steps, cutoffs)  # a table of discounts must cover the cutoff at every step
    for part, choices in parts[:-1]:
        _append_step(steps, part, choices, other)
    _append_cutoff_step(steps, cutoffs)
    _append_step(steps, *parts[-1], other)
    return steps


def _append_cutoff_step(steps: list[Step], cutoffs: tuple[int | None, ...]) -> None:
    last = steps[-1].settings
    if cutoffs != last.cutoffs:
        before, after = map(cutoff, (*last.cutoffs, *cutoffs))
        steps.append(Step("cutoff", before, after, replace(last, cutoffs=cutoffs)))


def _append_step(steps: list[Step], part: str, choices: tuple[str, ...], other: Convention) -> None:
    last = steps[-1].settings
    before = {choice: getattr(last.convention, choice) for choice in choices}
    after: dict[str, Any] = {choice: getattr(other, choice) for choice in choices}
    if before != after:
        changed = [choice for choice in choices if before[choice] != after[choice]]
        has_several = len(choices) > 1
        texts = [
            ", ".join(f"{choice}={side[choice]}" if has_several else str(side[choice]) for choice in changed)
            for side in (before, after)
        ]
        settings = replace(last, convention=replace(last.convention, **after))
        steps.append(Step(part, texts[0], texts[1], settings))


@dataclass(frozen=True, kw_only=True)
class LocalExplanation:
    """Result of `explain_difference` for tables of pandas, polars and Arrow.

    Parameters
    ----------
    changes : tuple of Step
        The change of each step, and the settings after it.
    evaluations : tuple of LocalEvaluation
        The evaluation of each step.
    inputs : mapping of str to object
        Tables and paths as passed by the caller, for `to_spark`.

    Attributes
    ----------
    steps, queries : pyarrow.Table
        The columns of `Explanation`, sorted by run and step, and by run and query. Each is computed on first access
        and cached.
    """

    changes: tuple[Step, ...]
    evaluations: tuple[LocalEvaluation, ...]
    inputs: Mapping[str, Any]

    @property
    def conventions(self) -> tuple[EvaluationSettings, ...]:
        """Settings from the first convention to the second, one part changed at a time."""
        return tuple(step.settings for step in self.changes)

    @cached_property
    def steps(self) -> pa.Table:
        """One row per run and step. Evaluates each step on first access."""
        rows: list[dict[str, Any]] = []
        for index, (step, evaluation) in enumerate(zip(self.changes, self.evaluations, strict=True)):
            facts = {"step": index, "part": step.part, "before": step.before, "after": step.after}
            means = evaluation.summary.filter((pc.field("metric") == "ndcg") & (pc.field("segment_by") == ""))
            rows += [{**row, **facts} for row in means.select(["run", "value", "n_queries"]).to_pylist()]
        rows.sort(key=lambda row: (row["run"], row["step"]))
        for before, row in pairwise(rows):
            values = before["value"], row["value"]
            if row["run"] == before["run"] and None not in values:
                row["contribution"] = row["value"] - before["value"]
        return pa.Table.from_pylist(rows, _STEPS)

    @cached_property
    def queries(self) -> pa.Table:
        """One row per run and query. Evaluates the first and the last step on first access."""
        keys = ["run", *self.conventions[0].columns.query]
        first, last = (
            _compute_shares(evaluation, keys, side) for evaluation, side in zip(self._ends, ("a", "b"), strict=True)
        )
        joined = first.join(last, keys, join_type="full outer", use_threads=False)
        a, b = (
            pc.fill_null(pc.multiply(joined[f"value_{side}"], joined[f"share_{side}"]), 0.0) for side in ("a", "b")
        )
        joined = joined.append_column("contribution", pc.subtract(b, a)).drop_columns(["share_a", "share_b"])
        return joined.sort_by([(key, "ascending") for key in keys])

    @property
    def _ends(self) -> tuple[LocalEvaluation, LocalEvaluation]:
        return self.evaluations[0], self.evaluations[-1]

    def to_spark(self, spark: SparkSession | None = None) -> Explanation:
        """Explain the same difference with Spark, as lazy DataFrames.

        Parameters
        ----------
        spark : SparkSession or None
            Session for tables in memory. Default: the active session, or a new one.

        Returns
        -------
        Explanation
        """
        from ndcg_spark.evaluation.explanation import explain_on_spark

        return explain_on_spark(**convert_tables(self.inputs, spark), steps=self.changes)


_STEPS = pa.schema(
    [
        ("run", pa.string()),
        ("step", pa.int32()),
        *((name, pa.string()) for name in ("part", "before", "after")),
        ("value", pa.float64()),
        ("n_queries", pa.int64()),
        ("contribution", pa.float64()),
    ]
)


def _compute_shares(evaluation: LocalEvaluation, keys: Sequence[str], side: str) -> pa.Table:
    """Return the value of each query and its share of the total weight of its run's queries with a value."""
    rows = evaluation.per_query
    values = rows.column("ndcg")
    weights = pa.repeat(1.0, len(rows)) if evaluation.settings.columns.weight is None else rows.column("weight")
    weights = pc.if_else(values.is_valid(), pc.cast(weights, pa.float64()), pa.scalar(None, pa.float64()))
    values_and_weights = rows.select(keys).append_column(f"value_{side}", values).append_column("weight", weights)
    totals = values_and_weights.group_by("run", use_threads=False).aggregate([("weight", "sum")])
    run_index = pc.index_in(values_and_weights.column("run"), value_set=totals.column("run"))
    shares = pc.divide(weights, totals.column("weight_sum").take(run_index))
    return values_and_weights.append_column(f"share_{side}", shares).drop_columns(["weight"])


@refuses_streams
def explain_difference(
    data: DataFrame | ArrowTable | str | os.PathLike[str],
    a: Convention | str,
    b: Convention | str,
    *,
    judgments: DataFrame | ArrowTable | str | os.PathLike[str] | None = None,
    k_b: int | str | None = "same",
    k: int | str = 10,
    query: str | Sequence[str] = "query_id",
    item: str | None = "item_id",
    score: str | Sequence[str] = "score",
    rank: str | None = None,
    relevance: str = "relevance",
    ideal: str | None = None,
    ranked: str | Sequence[str] = (),
    relevant: str | None = None,
    run: str | None = None,
    weight: str | None = None,
    order: str | None = None,
    vector: str = "vector",
    categories: str = "categories",
    first_seen: str = "first_seen",
    topics: str = "topics",
    user: str | None = None,
    strategy: Strategy = "auto",
    source: Source = "auto",
    on_invalid: OnInvalid = "fail",
    null_score: NullScore = "bad",
    check_duplicates: DuplicateCheck = "top",
    confidence: float = 0.95,
    sample: float = 1.0,
    as_of: date | None = None,
) -> Explanation | LocalExplanation:
    """Explain why two conventions give different means on the same data.

    Parameters
    ----------
    data : DataFrame, other table, str or path
        As for `evaluate`.
    a, b : Convention or str
        As in `evaluate`. The gap is the mean under `b` minus the mean under `a`.
    judgments : DataFrame, other table, str or path, or None
    k_b : int, None or "same"
        Cutoff of the second convention.
    k : int or "all"
        Cutoff of the first convention, and of the second unless `k_b` is set.
    query, item, score, rank, relevance, ideal, ranked, relevant, run, weight, order : str
        Column names, as for `evaluate`.
    vector, categories, first_seen, topics, user : str
        Column names, as for `evaluate`.
    strategy, source, on_invalid, null_score, check_duplicates, confidence, sample, as_of
        As for `evaluate`.

    Returns
    -------
    Explanation or LocalExplanation
        Lazy Spark DataFrames; for tables of pandas, polars and Arrow, Arrow tables that are computed on first access.

        Choices are changed one after the other; each contribution is the effect of one choice after all earlier
        changes.

    Raises
    ------
    InvalidParameterError

    Notes
    -----
    Spark cost: none until an action. `steps` then evaluates the data once per step, `queries` twice.
    """
    arguments = dict(locals())
    settings = evaluation_settings(
        convention=a, **{argument: value for argument, value in arguments.items() if argument in OPTIONS}
    )
    steps = list_steps(settings, b, k_b)
    tables = {"data": data} | ({} if judgments is None else {"judgments": judgments})
    rankings = choose_engine(tables, [step.settings for step in steps], "auto", "explain")
    if rankings is None:
        from ndcg_spark.evaluation.explanation import explain_on_spark

        return explain_on_spark(**convert_tables(tables), steps=steps)
    require_query(rankings[0].settings)
    return LocalExplanation(
        changes=tuple(steps),
        evaluations=tuple(
            LocalEvaluation(settings=ranking.fitted, ranking=ranking, inputs=tables) for ranking in rankings
        ),
        inputs=tables,
    )
