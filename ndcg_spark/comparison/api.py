"""Compare runs over the same queries: differences, their intervals and tests, per segment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ndcg_spark.comparison.frames import STORED_WEIGHT, compare_queries, runs_in
from ndcg_spark.comparison.settings import (
    ComparisonSettings,
    LiftInterval,
    Unpaired,
    compared_metrics,
    is_companion,
    refuse_unread_seed,
)
from ndcg_spark.comparison.tasks.finishing import TOP_ITEMS as TOP_ITEMS_OF_PAIR
from ndcg_spark.comparison.tasks.pairing import TOP_ITEMS, UNWEIGHTED
from ndcg_spark.conventions import Convention
from ndcg_spark.core import labels
from ndcg_spark.core.batches import REFUSAL
from ndcg_spark.core.columns import has_column
from ndcg_spark.core.flag import several
from ndcg_spark.core.given import takes_tables
from ndcg_spark.core.shown import BESIDE, Shown
from ndcg_spark.core.student import require_scipy
from ndcg_spark.core.workers import filter_rows, raise_refusals
from ndcg_spark.errors import InputRefusedError, InvalidParameterError, one_of, option
from ndcg_spark.evaluation.api import Cutoffs
from ndcg_spark.evaluation.frames.lists import require_query
from ndcg_spark.evaluation.frames.matching import check_matched
from ndcg_spark.evaluation.matching import TopItems
from ndcg_spark.evaluation.rules import RULES, combine_rules, read_rules, rules_lines
from ndcg_spark.evaluation.settings import EvaluationSettings, cutoffs_of, refuse_unread_k, segment_sets_of
from ndcg_spark.evaluation.spark_results import Evaluation
from ndcg_spark.evaluation.tasks.scoring import N_TOP_ITEMS, N_UNJUDGED_ITEMS, dropped
from ndcg_spark.metrics import EVERY, Metric, MetricAt, in_order, parse_metric

Tables = DataFrame | Evaluation | Mapping[str, DataFrame | Evaluation]


@dataclass(frozen=True, kw_only=True, repr=False)
class Comparison(Shown):
    """Result of `compare`.

    Parameters
    ----------
    settings : ComparisonSettings
    summary : DataFrame
        Lazy, one row per (baseline, run, segment, metric, k): means, difference, intervals, tests and verdict. The
        columns are explained in `docs/compare.md`.
    evaluations : mapping of run to Evaluation
        What is compared, as far as it was not metrics of queries; None stands for all runs. Their bad rows are
        counted where an action of `show` or `to_pandas` meets one.
    counted : DataFrame
        What `show` and `to_pandas` read: the summary with counts of items, by which they check that judgments match
        the runs, and refusals as rows.
    allow_unmatched : bool
        Whether runs that judgments do not match are compared.

    Notes
    -----
    Nothing is cached: each action compares again. Judgments of an evaluation that match nothing are refused by `show`
    and `to_pandas`, and not by actions on `summary`.
    """

    settings: ComparisonSettings
    summary: DataFrame
    evaluations: Mapping[str | None, Evaluation] = field(default_factory=dict, compare=False)
    counted: DataFrame = field(compare=False)
    allow_unmatched: bool = False

    def __repr__(self) -> str:
        """What is compared, by which tests, and that nothing has run yet."""
        settings = self.settings
        pairs = [f"{settings.runs[run]} against {settings.runs[baseline]}" for baseline, run in settings.pairs]
        segments = ", ".join("+".join(names) for names in settings.segment_sets)
        metrics = ", ".join(one.label for one in settings.metrics if not is_companion(one))
        return "\n".join(
            (
                f"Comparison: {', '.join(pairs)}; {metrics}{f', by {segments}' if segments else ''}",
                f"tests at {settings.alpha:g}: t, {settings.flips:,} sign flips, {settings.replicates:,} bootstrap "
                f"replicates, seed {settings.seed}; queries that one run lacks: {settings.unpaired}",
                "lazy: summary (differences); each action on it compares anew",
            )
        )

    def differences(self) -> DataFrame:
        """Differences for people: `run`, `baseline`, `segment`, `metric`, `difference`, `interval`, and more.

        Returns
        -------
        DataFrame
            Lazy, one row per segment, metric and pair of runs, of metrics that are tested, in the order in which they
            were asked for. All queries come first; then the segments with a clear difference, the largest first; then
            the others. Beside the interval also its bounds `ci_low` and `ci_high`, `p` (after Holm; null
            where there is no test), `verdict`, `n`, the queries that count, and `missing`, those that one of the two
            runs lacks. Segments and metrics are named as by `Evaluation.means`.

        Notes
        -----
        Spark cost: that of `summary`, and one small shuffle.
        """
        return self._differences(self.summary)

    def _differences(self, summary: DataFrame, *beside: Column) -> DataFrame:
        of_segment = F.col("segment_by") != ""
        size = [F.when(of_segment, one) for one in (F.col("verdict") == "unclear", -F.abs("difference"))]
        by_metric = [
            F.expr(labels.place_sql("metric", list(map(str, self.settings.compared)))),
            F.col("k").asc_nulls_last(),
        ]
        names = [F.col(name).asc_nulls_last() for name in ("segment_by", "segment", "baseline", "run")]
        tested = filter_rows(summary, F.col("verdict").isNotNull()).orderBy(of_segment, *by_metric, *size, *names)
        return tested.select(
            "run",
            "baseline",
            F.expr(labels.SEGMENT_SQL).alias("segment"),
            F.expr(labels.METRIC_SQL).alias("metric"),
            "difference",
            F.expr(labels.INTERVAL_SQL).alias("interval"),
            "ci_low",
            "ci_high",
            F.col("p_holm").alias("p"),
            "verdict",
            F.col("n_queries").alias("n"),
            (F.col("n_only_run") + F.col("n_only_baseline")).alias("missing"),
            *beside,
            *([REFUSAL] if REFUSAL in summary.columns else []),
        )

    def _for_people(self) -> DataFrame:
        """The same as `differences`, with the rules of each row and what is counted beside."""
        return self._differences(
            self.counted, F.struct("segment_by", "run", "baseline", "k", TOP_ITEMS_OF_PAIR, RULES).alias(BESIDE)
        )

    def _lines_below(self, beside: list[dict[str, Any]]) -> list[str]:
        """Refuse judgments that match nothing; say where they match little, and where rules differ or are unknown."""
        lines = check_compared(beside, self.evaluations, allowed=self.allow_unmatched)
        return [*lines, *rules_lines(row[RULES] for row in beside)]

    def _explained(self, refused: InputRefusedError) -> InputRefusedError:
        """Run an action for each evaluation, until one has bad rows: count these, as it does itself."""
        data = {run: "data" if run is None else f"data of run {run!r}" for run in self.evaluations}
        told = (one._explained(refused, data[run]) for run, one in self.evaluations.items())
        return next((one for one in told if one is not refused), refused)


@takes_tables
def compare(
    results: Tables,
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
) -> Comparison:
    """Compare runs over the same queries.

    Parameters
    ----------
    results : DataFrame, Evaluation, or mapping from run to these
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
    Comparison
        Its `summary` is a lazy DataFrame, one row per (baseline, run, segment, metric, k).

    Raises
    ------
    MissingPackageError
        Without SciPy; workers need it, too.
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
    require_scipy()
    del given["allow_unmatched"]
    refuse_unread_seed(replicates, flips, given=seed != 42)
    if k is not None and metrics is not None:
        refuse_unread_k(metrics)
    settings = comparison_settings(given.pop("results"), **given)
    counted = compare_by(results, settings)
    return Comparison(
        settings=settings,
        summary=raise_refusals(counted).drop(TOP_ITEMS_OF_PAIR),
        evaluations=compared_evaluations(results, settings),
        counted=counted,
        allow_unmatched=allow_unmatched,
    )


def compared_evaluations(runs: Tables, settings: ComparisonSettings) -> dict[str | None, Evaluation]:
    """Evaluations among what is compared, by the run that they are; None stands for all runs."""
    return {run: one for one, run in _chosen(runs, settings) if isinstance(one, Evaluation)}


def check_compared(
    rows: Iterable[Mapping[str, Any]], evaluations: Mapping[str | None, Evaluation], *, allowed: bool = False
) -> list[str]:
    """Refuse judgments of an evaluation that match nothing, as `check_matched`, by rows of `compare_by`."""
    counts: dict[str, tuple[int | None, list[int]]] = {}
    for row in sorted((row for row in rows if not row["segment_by"]), key=lambda row: -labels.cutoff_order(row["k"])):
        for run, its in ((row["baseline"], row[TOP_ITEMS_OF_PAIR][:2]), (row["run"], row[TOP_ITEMS_OF_PAIR][2:])):
            counts.setdefault(run, (row["k"], its))
    found = {run: TopItems(run=run, k=k, n_items=its[0], n_judged=its[1]) for run, (k, its) in sorted(counts.items())}
    lines = []
    for run, evaluation in evaluations.items():
        its_runs = (
            list(found.values()) if run is None else [replace(found[run], is_table=True)] if run in found else []
        )
        lines += check_matched(its_runs, evaluation.ranking, beside=list(found.values()), allowed=allowed)
    return lines


def compare_by(runs: Tables, settings: ComparisonSettings) -> DataFrame:
    """Compare runs by settings that fit them; lazy, as `compare`, with counts of items and with refusals kept."""
    tables = _chosen(runs, settings)
    return compare_queries(
        [(_queries_of(one) if isinstance(one, Evaluation) else one, run) for one, run in tables], settings
    )


def _queries_of(evaluation: Evaluation) -> DataFrame:
    """Rows of queries, as a stored table has them: without those that the convention drops as missing.

    Where judgments are a table of their own, with counts of items among the first k.
    """
    convention, rows = evaluation.settings.convention, evaluation.ranking.per_query(keep_refusals=True)
    if convention.missing_query == "drop":
        rows = filter_rows(rows, F.col("status") != "missing")
    if evaluation.ranking.tables.of_runs:
        return rows
    counts = ~F.col("status").isin(*dropped(convention))
    n_items = (F.col(N_TOP_ITEMS), F.col(N_TOP_ITEMS) - F.col(N_UNJUDGED_ITEMS))
    return rows.withColumns({name: F.when(counts, n) for name, n in zip(TOP_ITEMS, n_items, strict=True)})


def _chosen(runs: Tables, settings: ComparisonSettings) -> list[tuple[DataFrame | Evaluation, str | None]]:
    return [(one, run) for one, run in _tables(runs) if run is None or run in settings.runs]


def comparison_settings(
    results: Tables,
    *,
    baseline: str | int | None = None,
    runs: str | int | Sequence[str | int] | None = None,
    metrics: str | Sequence[str] | None = None,
    k: Cutoffs = None,
    query: str | Sequence[str] | None = None,
    segments: str | Sequence[str] | None = None,
    convention: str | Convention | None = None,
    **options: Any,
) -> ComparisonSettings:
    """Build the settings that the options of `compare` describe; an action may list the runs."""
    first = next((one for one, _ in _tables(results) if isinstance(one, Evaluation)), None)
    baseline = None if baseline is None else run_text(baseline)
    if convention is None and first is not None:
        convention = first.settings.convention
    used = convention if isinstance(convention, Convention) else Convention.parse(convention or "default")
    if first is not None:
        query = first.settings.columns.query if query is None else query
        require_query(first.settings)
        segments = ["+".join(one) for one in first.settings.segment_sets] if segments is None else segments
    names, listed = _named_runs(results, baseline, runs)
    weight = options.pop("weight", None)
    if weight is None and any(listed.values()) and _has_weight(results):
        weight = STORED_WEIGHT
    compared = _metrics(metrics, k, first, results)
    rules = _rules(results, () if names is None else names, used, across=options.get("across_rules", False))
    usual = "drop" if len({read_rules(text)["sample"] for text in rules.evaluated}) > 1 else used.missing_query
    return ComparisonSettings(
        runs=tuple(listed) if names is None else names,
        baseline=baseline,
        metrics=compared,
        weight=weight or None,
        query=(query,) if isinstance(query, str) else ("query_id",) if query is None else tuple(query),
        segment_sets=segment_sets_of(segments or ()),
        same_ideal=used.ideal == "judged",
        skips_no_relevant=used.no_relevant == "skip",
        rules=rules.text,
        rules_in_rows=rules.in_rows,
        **{**options, "unpaired": options.get("unpaired") or usual},
    )


def _named_runs(
    results: Tables, baseline: str | None, runs: str | int | Sequence[str | int] | None
) -> tuple[tuple[str, ...] | None, dict[str, bool]]:
    """Runs to compare, None for all; and those there are, with whether they may have weights. May list them."""
    names = None if runs is None else tuple(map(run_text, several("runs", run_text(runs))))
    is_named = names is not None and (baseline is None or baseline in names)
    listed = dict.fromkeys(names or (), True) if is_named else _runs(results)
    known = known_runs(results) or tuple(listed)
    for run in names or ():
        one_of_runs("run", run, known)
    if baseline is not None:
        one_of_runs("baseline", baseline, known)
    if names is not None:
        names = with_baseline(names, baseline)
        listed = {run: listed.get(run, True) for run in names}
    return names, listed


class _Rules(NamedTuple):
    """Rules of the queries that are compared: those of evaluations; what is known of all; whether rows say more."""

    evaluated: list[str]
    text: str
    in_rows: bool


def _rules(results: Tables, names: Sequence[str], convention: Convention, *, across: bool) -> _Rules:
    """Look at what is known before anything runs, and refuse two rules of evaluations."""
    tables = [one for one, run in _tables(results) if run is None or not names or run in names]
    evaluated = [one.settings.rules for one in tables if isinstance(one, Evaluation)]
    text = combine_rules(evaluated, "the comparison", across=across)
    if len(evaluated) == len(tables):
        return _Rules(evaluated, text or "", False)
    in_rows = bool(evaluated) or any(has_column(one, RULES) for one in tables if isinstance(one, DataFrame))
    usual = text or EvaluationSettings.rules_by(convention)
    return _Rules(evaluated, usual if in_rows else "", in_rows)


def with_baseline(runs: Sequence[str], baseline: str | None) -> tuple[str, ...]:
    """Runs that were chosen, and the one that they are compared with."""
    return (*runs,) if baseline is None or baseline in runs else (baseline, *runs)


def _tables(runs: Tables) -> list[tuple[DataFrame | Evaluation, str | None]]:
    if isinstance(runs, Mapping):
        return [(table, run_text(run)) for run, table in runs.items()]
    return [(runs, None)]


def run_text(run: Any) -> Any:
    """Name of a run as results have it, which is text, where it was given as a value of a run column of numbers."""
    return run if isinstance(run, bool) or not isinstance(run, Integral) else str(run)


def known_runs(runs: Tables) -> tuple[str, ...] | None:
    """Name the runs, without an action; None where a run column holds their names."""
    if isinstance(runs, Mapping):
        return tuple(map(run_text, runs))
    if not isinstance(runs, Evaluation):
        return None if has_column(runs, "run") else ()
    columns = runs.settings.columns
    if columns.runs:
        return columns.runs
    return None if columns.run is not None else ("",)


def one_of_runs(name: str, run: str, known: tuple[str, ...]) -> None:
    """Raise unless `run` is one of the runs there are; `name` is what it is called where the user wrote it."""
    if not known:
        raise InputRefusedError(f"there is no run {run!r} to compare: the input has no rows.")
    if known == ("",) and run:
        raise InvalidParameterError(
            f"the input has one run without a name; two runs need {option('run')} or {option('score')}, or two "
            f"columns of {option('ranked')}."
        )
    one_of(name, run, known)


def _runs(runs: Tables) -> dict[str, bool]:
    """Names of the runs, those of a run column by an action; and whether queries may have stored weights."""
    known = known_runs(runs)
    if known is not None:
        return dict.fromkeys(known, True)
    if isinstance(runs, Evaluation):
        return dict.fromkeys(runs_in(runs.ranking.rows.select("run")), True)
    assert isinstance(runs, DataFrame)
    return runs_in(runs)


def _has_weight(runs: Tables) -> bool:
    """Whether the tables have weights, by their schemas: all of them or none."""
    weighted = {
        run: one.settings.columns.weight is not None
        if isinstance(one, Evaluation)
        else has_column(one, STORED_WEIGHT)
        for one, run in _tables(runs)
    }
    if len(set(weighted.values())) > 1:
        has, lacks = (next(run for run, its in weighted.items() if its is whether) for whether in (True, False))
        raise InputRefusedError(
            f"the table of run {has!r} has stored weights and that of run {lacks!r} has none; {UNWEIGHTED}."
        )
    return any(weighted.values())


def _metrics(
    names: str | Sequence[str] | None,
    k: int | str | Sequence[int | str | None] | None,
    evaluation: Evaluation | None,
    runs: Tables,
) -> tuple[MetricAt, ...]:
    """Choose the metrics to compare; `dcg` comes beside `ndcg` without being asked for."""
    if names is not None:
        chosen = compared_metrics(names, k)
        computed = () if evaluation is None else evaluation.settings.computed
        for metric in dict.fromkeys(one.metric for one in chosen if isinstance(one.metric, Metric)):
            evaluated, at = ([one.k for one in metrics if one.metric == metric] for metrics in (computed, chosen))
            if evaluated and EVERY not in at and set(at).isdisjoint(evaluated):
                raise InvalidParameterError(
                    f"{str(metric)!r} was evaluated at k={labels.cutoffs(evaluated)}; got k={labels.cutoffs(at)}."
                )
        return chosen
    if evaluation is None:
        chosen = compared_metrics(None, k)
        has_dcg = all("dcg" in table.columns for table, _ in _tables(runs) if isinstance(table, DataFrame))
        return (*chosen, *(MetricAt(parse_metric("dcg")[0], one.k) for one in chosen if has_dcg))
    common = _common_metrics([table.settings for table, _ in _tables(runs) if isinstance(table, Evaluation)], k)
    if not common:
        raise InvalidParameterError(f"k={k!r} is none of the cutoffs that were evaluated.")
    return common


def _common_metrics(
    evaluated: Sequence[EvaluationSettings], k: int | str | Sequence[int | str | None] | None
) -> tuple[MetricAt, ...]:
    """Metrics of queries, without `idcg`, that all evaluations have, each at the cutoffs that all of them have."""
    shown = [
        [one for one in settings.computed if one.shown and isinstance(one.metric, Metric)] for settings in evaluated
    ]
    common = [one for one in shown[0] if one.metric.name != "idcg" and all(one in metrics for metrics in shown)]
    if not common:
        raise InvalidParameterError(
            f"nothing can be compared: no metric of queries was evaluated at one cutoff in all runs; choose "
            f"{option('metrics')} and {option('k')} of the evaluations so that they share one."
        )
    if k is not None:
        at = cutoffs_of(k)
        return tuple(one for one in common if one.k in at)
    if evaluated[0].metrics:
        return tuple(common)
    partly = {one.metric for metrics in shown for one in metrics if one not in common}
    return in_order(one if one.metric in partly else replace(one, k=EVERY) for one in common)
