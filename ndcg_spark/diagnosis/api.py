"""The queries behind a difference between two runs."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from ndcg_spark.comparison.tables import check_run, format_run, list_evaluated_runs
from ndcg_spark.core.flag import to_tuple
from ndcg_spark.core.labels import cutoffs
from ndcg_spark.diagnosis.frames import find_changed_queries
from ndcg_spark.errors import InvalidParameterError
from ndcg_spark.evaluation.settings import parse_cutoff
from ndcg_spark.evaluation.spark_results import Evaluation
from ndcg_spark.metrics import Metric


def changed_queries(
    evaluation: Evaluation,
    *,
    baseline: str | int,
    run: str | int,
    n: int = 10,
    metric: str = "ndcg",
    k: int | str | None = None,
    segments: str | Sequence[str] = (),
    depth: int | None = None,
) -> DataFrame:
    """Find the queries that gained and lost most between two runs, with both lists side by side.

    Parameters
    ----------
    evaluation : Evaluation
        Evaluation of a long table with both runs.
    baseline, run : str or int
    n : int
        Queries of each kind, per segment.
    metric : str
        Column of `evaluation.per_query`.
    k : int or None
        Default: the largest cutoff at which the metric was evaluated.
    segments : str or sequence of str
        Segment columns of the evaluation; the first `n` queries for each of their values are returned.
    depth : int or None
        Number of items of each list to return. Default: the largest cutoff, or 10.

    Returns
    -------
    DataFrame
        `change` (`gained` or `lost`: became better or worse; `higher` or `lower` if the metric has no better
        direction), `place`, `run`, `baseline`, `metric`, segments, the query columns, `k`, `baseline_value`,
        `value`, `difference`, `weight`, and `baseline_list` and `list`: arrays of (`item`, `score` or `rank`,
        `relevance`) in rank order, tied items by name. A query that only one run has gets the value 0 in the other;
        if smaller is better, it is left out. Lazy.

    Raises
    ------
    InvalidParameterError
    InputRefusedError
        The action raises for a run without rows in the run column; see `readable_errors`.

    Notes
    -----
    Spark cost: the evaluation, one shuffle of one row per query, and two scans of the rows: one for the lists of
    these queries, and one of the run column, if the table has it.
    """
    settings, known = evaluation.settings, list_evaluated_runs(evaluation.settings)
    segments = to_tuple("segments", segments)
    before, after = format_run(baseline), format_run(run)
    for option_name, run_name in (("baseline", before), ("run", after)):
        if known is not None:
            check_run(option_name, run_name, known)
    if n < 1:
        raise InvalidParameterError(f"n must be at least 1; got {n}.")
    metric_cutoffs = [
        (metric_at.metric.column, metric_at.k)
        for metric_at in settings.computed
        if isinstance(metric_at.metric, Metric)
    ]
    evaluated = {
        metric_column: [k for column, k in metric_cutoffs if column == metric_column]
        for metric_column in settings.metric_columns
    }
    if not evaluated.get(metric):
        columns = ", ".join(column for column, ks in evaluated.items() if ks)
        raise InvalidParameterError(f"metric must be one of {columns}; got {metric!r}.")
    known_segments = (*settings.segment_columns, *settings.columns.query)
    unknown = [segment for segment in segments if segment not in known_segments]
    if unknown:
        raise InvalidParameterError(f"segment {unknown[0]!r} is not a segment column of the evaluation.")
    k = evaluated[metric][-1] if k is None else parse_cutoff(k)
    if k not in evaluated[metric]:
        raise InvalidParameterError(f"{metric!r} was evaluated at k={cutoffs(evaluated[metric])}; got k={k!r}.")
    return find_changed_queries(
        evaluation.per_query, evaluation.ranking, settings, baseline=before, run=after, n=n, metric=metric, k=k,
        segments=segments, depth=depth,
    )  # fmt: skip
