"""Compare runs over the same queries: differences, their intervals and tests, per segment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ndcg_spark.comparison.local import EvaluatedQueries, LocalQueries, StoredQueries
from ndcg_spark.comparison.plan import find_local_obstacle
from ndcg_spark.comparison.results import LocalComparison, select_evaluations
from ndcg_spark.comparison.settings import LiftInterval, Unpaired, refuse_unread_seed
from ndcg_spark.comparison.tables import Tables, build_settings, choose_tables, format_run, plan_tables
from ndcg_spark.conventions import Convention
from ndcg_spark.core.adapters import is_spark_table, refuses_streams
from ndcg_spark.core.arrow_tables import ArrowTable
from ndcg_spark.core.engine import require_spark, resolve_engine
from ndcg_spark.core.student import require_scipy
from ndcg_spark.evaluation.api import Cutoffs, find_memory_obstacle
from ndcg_spark.evaluation.results import LocalEvaluation
from ndcg_spark.evaluation.settings import refuse_unread_k
from ndcg_spark.sources.local import LocalTable, open_memory_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ndcg_spark.comparison.spark_results import Comparison
    from ndcg_spark.evaluation.spark_results import Evaluation


@refuses_streams
def compare(
    results: DataFrame
    | Evaluation
    | LocalEvaluation
    | ArrowTable
    | Mapping[str, DataFrame | Evaluation | LocalEvaluation | ArrowTable],
    *,
    baseline: str | int | None = None,
    runs: str | int | Sequence[str | int] | None = None,
    metrics: str | Sequence[str] | None = None,
    k: Cutoffs = None,
    query: str | Sequence[str] | None = None,
    segments: str | Sequence[str] | None = None,
    weight: str | None = None,
    cluster: str | None = None,
    unpaired: Unpaired | None = None,
    convention: str | Convention | None = None,
    replicates: int = 1000,
    flips: int = 9999,
    seed: int = 42,
    alpha: float = 0.05,
    margin: float = 0.0,
    effect: float | None = None,
    lift: LiftInterval = "fieller",
    keep_replicates: bool = False,
    across_rules: bool = False,
    allow_unmatched: bool = False,
) -> Comparison | LocalComparison:
    """Compare runs over the same queries.

    Parameters
    ----------
    results : DataFrame, other table, Evaluation, LocalEvaluation, or mapping from run to these
        Metrics of every query, one row per (run, query, k), as `evaluate(...).per_query` has them; an evaluation of
        several runs; or a table or evaluation for each run.
    baseline : str, int or None
        The run that the others are compared with. None: each run with each one before it. A run of a run column of
        whole numbers may be given as a number.
    runs : str, int, sequence of these or None
        Runs to compare; None: all. The baseline is added if it is missing. An action lists the runs of a table if
        `runs` is None or lacks the baseline. The action of the result refuses a run without rows.
    metrics : str, sequence of str, or None
        Metrics to compare, such as `["ndcg@10", "ap"]`. Default: those of the evaluation, else `ndcg`; `dcg` then
        is added to `ndcg` with difference and interval. It is tested only if it is named.
    k : int, str, None, or a sequence of these
        Cutoffs of metrics that name none. Default: all cutoffs of the tables at which the metric has a value.
    query : str, sequence of str, or None
        Columns that identify a query. Default: those of the evaluation, else `query_id`.
    segments : str, sequence of str or None
        Columns to compare by, constant within a query; `"a+b"` groups by both together. Default: those of the
        evaluation.
    weight : str or None
        Column with the weight of a query; `""` for no weights. Default: the weight of the evaluation, or the column
        `weight` that `per_query` of a weighted evaluation has, so that differences are those of its means.
    cluster : str or None
        Column whose values are independent, such as the user or session. Queries that share a value may depend on
        each other; errors and tests are then those of clusters.
    unpaired : str or None
        What to do with a query that only one of two runs has: count the other value as 0 (`zero`), leave the query
        out (`drop`), or raise (`error`). Default: as the convention treats missing queries. `n_only_run` and
        `n_only_baseline` count such queries in any case.
    convention : str, Convention or None
        Convention by which the tables were evaluated. It sets the default of `unpaired`, and whether a query must
        have the same IDCG in all runs, as with `ideal=judged`. Default: that of the evaluation, else `default`.
    replicates, flips : int
        Replicates of the bootstrap, and random sign flips, if more than 16 queries differ; 0 for none.
    seed : int
        Seed of both.
    alpha : float
        Level of the tests; intervals have the level 1 - alpha.
    margin : float
        A run is `not_worse` if its interval is above minus this; if smaller is better, below this.
    effect : float or None
        Difference that `n_required` is computed for.
    lift : str
        Interval of the relative lift: `fieller`, or by the `delta` method.
    keep_replicates : bool
        Add the sums of the replicates to the results, so that nights can be added.
    across_rules : bool
        Compare runs even if they were evaluated by different rules, such as two conventions. A rule that differs is
        then `mixed` in the column `rules`, and `show` reports it.
    allow_unmatched : bool
        Keep the zeros of runs that the judgments of their evaluation do not match, as in `EvaluationSettings`.

    Returns
    -------
    Comparison or LocalComparison
        Its `summary` has one row per (baseline, run, segment, metric, k). If a table or an evaluation belongs to
        Spark, it is a lazy DataFrame; else it is an Arrow table that is computed without Spark at its first use.

    Raises
    ------
    MissingPackageError
        If SciPy is not installed; Spark workers need it, too.
    MissingColumnError, InputRefusedError, InvalidParameterError
        For errors in options and schemas, and for evaluations of different `rules`. The action raises for tables with
        different rules in the column `rules`, for a run without rows, for a query that is twice in a run, and for
        weights, segments, clusters or IDCG that differ between runs; see `readable_errors`. `show` and `to_pandas`
        also raise for judgments of an evaluation that match no item.

    Notes
    -----
    Spark cost: one shuffle of the rows (two with clusters), three small shuffles of sums; no action, except one that
    lists the runs of a run column if `runs` is None or does not name the baseline. Workers add up exact sums, so
    every number is the same to the last bit for any partitioning and row order.

    Examples
    --------
    >>> result = evaluate(rankings, run="ranker", k=10)  # doctest: +SKIP
    >>> compare(result, baseline="bm25").show()  # doctest: +SKIP
    """
    options = dict(locals())
    del options["results"], options["allow_unmatched"]
    require_scipy()
    refuse_unread_seed(replicates, flips, is_given=seed != 42)
    if k is not None and metrics is not None:
        refuse_unread_k(metrics)
    engine, where = resolve_engine("auto", "")
    opened = f"{where} was requested" if engine == "spark" else _open_tables(results, engine)
    obstacle: str | None
    if isinstance(opened, str):
        obstacle = opened
    else:
        settings = build_settings(opened, **options)
        plan_tables(opened, settings)  # refuses missing or wrong columns
        infos = [table.info for table, _ in choose_tables(opened, settings)]
        obstacle = find_local_obstacle(infos, settings.query, settings.cluster, settings.segment_columns)
        if obstacle is None:
            return LocalComparison(
                settings=settings,
                evaluations=select_evaluations(opened, settings),
                allow_unmatched=allow_unmatched,
                tables=opened,
                inputs=results,
            )
    require_spark(obstacle, engine, where, "compare")
    from ndcg_spark.comparison.spark_results import build_comparison, open_on_spark

    tables = open_on_spark(results)
    return build_comparison(tables, build_settings(tables, **options), allow_unmatched=allow_unmatched)


def _open_tables(results: Any, engine: str) -> Tables | str:
    """Open the results in this process, or return the reason why Spark has to compare them."""
    named = {"results": (results, None)}
    if isinstance(results, Mapping):
        named = {f"results[{run!r}]": (table, format_run(run)) for run, table in results.items()}
    if any(is_spark_table(table) or getattr(table, "engine", None) == "spark" for table, _ in named.values()):
        return "a table is one of Spark"
    opened = {
        label: table if isinstance(table, LocalEvaluation) else open_memory_table(table, label)
        for label, (table, _) in named.items()
    }
    in_memory = {label: table for label, table in opened.items() if isinstance(table, LocalTable)}
    obstacle = find_memory_obstacle(in_memory) if engine == "auto" else None
    return obstacle or [(_wrap_queries(opened[label]), run) for label, (_, run) in named.items()]


def _wrap_queries(opened: LocalTable | LocalEvaluation) -> LocalQueries:
    return StoredQueries(opened) if isinstance(opened, LocalTable) else EvaluatedQueries(opened)
