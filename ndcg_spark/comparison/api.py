"""Compare runs over the same queries: differences, their intervals and tests, per segment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ndcg_spark.comparison.local import EvaluatedQueries, LocalQueries, StoredQueries
from ndcg_spark.comparison.plan import needs_spark
from ndcg_spark.comparison.results import LocalComparison, compared_evaluations
from ndcg_spark.comparison.settings import LiftInterval, Unpaired, refuse_unread_seed
from ndcg_spark.comparison.tables import Tables, choose_tables, comparison_settings, plan_tables, run_text
from ndcg_spark.conventions import Convention
from ndcg_spark.core.arrow_tables import ArrowTable
from ndcg_spark.core.engine import require_spark, resolve_engine
from ndcg_spark.core.given import is_spark_table, refuses_streams
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
        Runs to compare. None: all. The baseline is one of them, whether it is named here or not; where it is not, and
        for all, an action lists the runs of a table. The action of the result refuses a run without rows.
    metrics : str, sequence of str, or None
        Metrics to compare, such as `["ndcg@10", "ap"]`. Default: those of the evaluation, else `ndcg`; `dcg` then
        comes beside `ndcg` with difference and interval. It is tested only if it was named.
    k : int, str, None, or a sequence of these
        Cutoffs of metrics that name none. Default: all cutoffs of the tables at which the metric has a value.
    query : str, sequence of str, or None
        Columns that identify a query. Default: those of the evaluation, else `query_id`.
    segments : str, sequence of str or None
        Columns to compare by, constant within a query; `"a+b"` groups by both together. Default: those of the
        evaluation.
    weight : str or None
        Column with the weight of a query; `""` is none. Default: the weight of the evaluation, or the column `weight`
        of the tables, as `per_query` of a weighted evaluation has it, so that differences are those of its means.
    cluster : str or None
        Column whose values are independent, such as the user or session. Queries that share a value may depend on
        each other; errors and tests then are those of clusters.
    unpaired : str or None
        What happens to a query that only one of two runs has: `zero`, `drop` or `error`. Default: what the convention
        does with missing queries. Such queries are counted in any case.
    convention : str, Convention or None
        By which the tables were evaluated: the default of `unpaired`, and whether a query must have the same IDCG in
        all runs, as under `ideal=judged`. Default: that of the evaluation, else `default`.
    replicates, flips : int
        Replicates of the bootstrap, and random sign flips, where more than 16 queries differ; 0 for none.
    seed : int
        Seed of both.
    alpha : float
        Level of the tests; intervals have the level 1 - alpha.
    margin : float
        A run is `not_worse` if its interval lies above minus this; where smaller is better, below this.
    effect : float or None
        Difference that `n_required` is computed for.
    lift : str
        Interval of the relative lift: `fieller`, or by the `delta` method.
    keep_replicates : bool
        Whether results carry the sums of their replicates, so that nights can be added.
    across_rules : bool
        Whether runs that were evaluated by different rules, as by two conventions, are compared all the same. What
        differs is then `mixed` in the column `rules`, and `show` says so.
    allow_unmatched : bool
        Keep the zeros of runs that the judgments of their evaluation do not match, as in `EvaluationSettings`.

    Returns
    -------
    Comparison or LocalComparison
        Its `summary` has one row per (baseline, run, segment, metric, k): a lazy DataFrame of Spark, where a table or
        an evaluation is one of Spark; else a table of Arrow that is computed when it is asked for, without Spark.

    Raises
    ------
    MissingPackageError
        Without SciPy; workers of Spark need it, too.
    MissingColumnError, InputRefusedError, InvalidParameterError
        For what options and schemas show, and for evaluations of different `rules`. The action raises for tables
        whose column `rules` says so, for a run without rows, for a query that comes twice in a run, and for weights,
        segments, clusters or IDCG that differ between runs; see `readable_errors`. So do `show` and `to_pandas` for
        judgments of an evaluation that match nothing.

    Notes
    -----
    Spark cost: one shuffle of the rows (two with clusters), three small ones of sums; no action, except one that
    lists the runs of a run column that `runs` does not give, or gives without the baseline. Workers add up exact
    sums, so every number is the same to the last bit for any partitioning and row order.

    Examples
    --------
    >>> result = evaluate(rankings, run="ranker", k=10)  # doctest: +SKIP
    >>> compare(result, baseline="bm25").show()  # doctest: +SKIP
    """
    given = dict(locals())
    del given["results"], given["allow_unmatched"]
    require_scipy()
    refuse_unread_seed(replicates, flips, given=seed != 42)
    if k is not None and metrics is not None:
        refuse_unread_k(metrics)
    asked, where = resolve_engine("auto", "")
    found = f"{where} was asked for" if asked == "spark" else _tables_here(results, asked)
    if not isinstance(found, str):
        settings = comparison_settings(found, **given)
        plan_tables(found, settings)  # refuses what columns show
        infos = [one.info for one, _ in choose_tables(found, settings)]
        obstacle = needs_spark(infos, settings.query, settings.cluster, settings.segment_columns)
        if obstacle is None:
            return LocalComparison(
                settings=settings,
                evaluations=compared_evaluations(found, settings),
                allow_unmatched=allow_unmatched,
                tables=found,
                given=results,
            )
        found = obstacle
    require_spark(found, asked, where, "compare")
    from ndcg_spark.comparison.spark_results import comparison_of, tables_on_spark

    tables = tables_on_spark(results)
    return comparison_of(tables, comparison_settings(tables, **given), allow_unmatched=allow_unmatched)


def _tables_here(results: Any, engine: str) -> Tables | str:
    """Open what is compared on this machine; or say in a clause why Spark has to compare it."""
    named = {"results": (results, None)}
    if isinstance(results, Mapping):
        named = {f"results[{run!r}]": (one, run_text(run)) for run, one in results.items()}
    if any(is_spark_table(one) or getattr(one, "engine", None) == "spark" for one, _ in named.values()):
        return "a table is one of Spark"
    opened = {
        name: one if isinstance(one, LocalEvaluation) else open_memory_table(one, name)
        for name, (one, _) in named.items()
    }
    in_memory = {name: one for name, one in opened.items() if isinstance(one, LocalTable)}
    obstacle = find_memory_obstacle(in_memory) if engine == "auto" else None
    return obstacle or [(_queries(opened[name]), run) for name, (_, run) in named.items()]


def _queries(opened: LocalTable | LocalEvaluation) -> LocalQueries:
    return StoredQueries(opened) if isinstance(opened, LocalTable) else EvaluatedQueries(opened)
