"""The queries behind a difference between two runs."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from ndcg_spark.comparison.tables import evaluated_runs, one_of_runs, run_text
from ndcg_spark.core.flag import to_tuple
from ndcg_spark.core.labels import cutoffs
from ndcg_spark.diagnosis.frames import most_changed
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
    """The queries that gained and lost most between two runs, with both lists side by side.

    Parameters
    ----------
    evaluation : Evaluation
        Of a long table with both runs.
    baseline, run : str or int
    n : int
        Queries of each kind, per segment.
    metric : str
        Column of `evaluation.per_query`.
    k : int or None
        Default: the largest cutoff at which the metric was evaluated.
    segments : str or sequence of str
        Segment columns of the evaluation; the first `n` for each of their values are found.
    depth : int or None
        Items of each list that are shown. Default: the largest cutoff, or 10.

    Returns
    -------
    DataFrame
        `change` (`gained` or `lost`: became better or worse; `higher` or `lower` where the metric has no better
        direction), `place`, `run`, `baseline`, `metric`, segments, the query columns, `k`, `baseline_value`,
        `value`, `difference`, `weight`, and `baseline_list` and `list`: arrays of (`item`, `score` or `rank`,
        `relevance`) in rank order, tied items by name. A query of one run only has the value 0 in the other; where
        smaller is better, it is left out. Lazy.

    Raises
    ------
    InvalidParameterError
    InputRefusedError
        The action raises for a run without rows in the run column; see `readable_errors`.

    Notes
    -----
    Spark cost: the evaluation, one shuffle of a row a query, and two scans of the rows: for the lists of these
    queries, and of the run column, if there is one.
    """
    settings, known = evaluation.settings, evaluated_runs(evaluation.settings)
    segments = to_tuple("segments", segments)
    before, after = run_text(baseline), run_text(run)
    for named, name in (("baseline", before), ("run", after)):
        if known is not None:
            one_of_runs(named, name, known)
    if n < 1:
        raise InvalidParameterError(f"n must be at least 1; got {n}.")
    at = [(one.metric.column, one.k) for one in settings.computed if isinstance(one.metric, Metric)]
    evaluated = {name: [k for column, k in at if column == name] for name in settings.metric_columns}
    if not evaluated.get(metric):
        columns = ", ".join(name for name, ks in evaluated.items() if ks)
        raise InvalidParameterError(f"metric must be one of {columns}; got {metric!r}.")
    unknown = [name for name in segments if name not in (*settings.segment_columns, *settings.columns.query)]
    if unknown:
        raise InvalidParameterError(f"segment {unknown[0]!r} is no segment column of the evaluation.")
    k = evaluated[metric][-1] if k is None else parse_cutoff(k)
    if k not in evaluated[metric]:
        raise InvalidParameterError(f"{metric!r} was evaluated at k={cutoffs(evaluated[metric])}; got k={k!r}.")
    return most_changed(
        evaluation.per_query, evaluation.ranking, settings, baseline=before, run=after, n=n, metric=metric, k=k,
        segments=segments, depth=depth,
    )  # fmt: skip
