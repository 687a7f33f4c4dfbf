"""The front door for notebooks: one call, lazy DataFrames."""

from __future__ import annotations

import difflib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ndcg_spark.conventions import Convention
from ndcg_spark.core import labels
from ndcg_spark.core.arrow_tables import ArrowTable
from ndcg_spark.core.bad_rows import count_rows, describe_bad_rows
from ndcg_spark.core.failures import readable_errors
from ndcg_spark.core.flag import OnInvalid, settings_in, several
from ndcg_spark.core.given import takes_tables
from ndcg_spark.core.shown import Shown
from ndcg_spark.core.workers import collect, filter_rows, raise_refusals
from ndcg_spark.errors import InputRefusedError, InvalidParameterError, option, text_of
from ndcg_spark.evaluation.frames.columns import checked_rows
from ndcg_spark.evaluation.frames.matching import check_matched, top_items
from ndcg_spark.evaluation.frames.ranking import Ranking, choose_ranking
from ndcg_spark.evaluation.frames.summary import per_query_rows, readable_means
from ndcg_spark.evaluation.settings import (
    Columns,
    DuplicateCheck,
    EvaluationSettings,
    ItemColumns,
    NullScore,
    Source,
    Strategy,
    cutoffs_of,
    metrics_of,
    refuse_unread,
    refuse_unread_k,
    segment_sets_of,
)
from ndcg_spark.evaluation.tasks.partial_sums import COUNTS
from ndcg_spark.evaluation.tasks.valid_rows import RowRules
from ndcg_spark.metrics import Metric, MetricAt
from ndcg_spark.metrics.normalized_gain import NDCG

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True, repr=False)
class Evaluation(Shown):
    """Result of `evaluate`: lazy DataFrames of means, of metrics per query, and of rankings.

    Parameters
    ----------
    settings : EvaluationSettings
    ranking : Ranking
        The strategy and the source that were chosen.

    Attributes
    ----------
    summary : DataFrame
        Means, one row per (run, segment, metric, k); see `summarize`.
    per_query : DataFrame
        Metrics, one row per (run, query, k); see `score_queries`.
    rankings : DataFrame
        What metrics are computed from, one row per (run, query); see `rank_queries`.

    Notes
    -----
    Nothing is cached: each action ranks again.

    Judgments that match nothing are refused by `show`, `to_pandas` and `plot`, and not by actions on `summary`,
    `per_query` and `rankings`: see `allow_unmatched` of `EvaluationSettings`.
    """

    settings: EvaluationSettings
    ranking: Ranking

    def __repr__(self) -> str:
        """What is computed, by whom, and that nothing has run yet."""
        metrics = ", ".join(one.label for one in self.settings.asked)
        segments = ", ".join("+".join(names) for names in self.settings.segment_sets)
        return "\n".join(
            (
                f"Evaluation: {metrics}{f', by {segments}' if segments else ''}; "
                f"convention {self.settings.convention}",
                f"ranked by: {self.ranking.strategy}, read by {self.ranking.source} ({self.ranking.reason})",
                "lazy: summary (means), per_query, rankings; each action on one of them ranks anew",
            )
        )

    @property
    def per_query_table(self) -> DataFrame:
        """`per_query` as tables of nights have it: without queries that a rule drops, and columns for sums; lazy."""
        return per_query_rows(self.per_query, self.settings)

    @property
    def provenance(self) -> dict[str, str]:
        """What the means were computed by, as tables of nights have it: `convention` and `config_hash`."""
        return {"convention": str(self.settings.convention), "config_hash": self.settings.digest}

    def means(self) -> DataFrame:
        """Means for people, sorted: `run`, `segment`, `metric`, `value`, `interval`, `ci_low`, `ci_high`, `n`.

        Returns
        -------
        DataFrame
            Lazy, one row per segment, metric and run; metrics in the order and by the names that were asked for,
            without `dcg` and `idcg`, which come with `ndcg`. Segments as `country=DE`, and `overall` for all queries,
            which come first; the interval as text, null below two queries, and its bounds; `n` are the queries that
            count.

        Notes
        -----
        Spark cost: that of `summary`, and one small shuffle. Whether judgments match anything is not checked.
        """
        return raise_refusals(self._means())

    def _means(self, *beside: str) -> DataFrame:
        with_ndcg = [one for one in self.settings.computed if one.metric in NDCG.comes_with and not one.asked]
        asked, without = (
            [labels.metric_at(one.metric, one.k) for one in metrics] for metrics in (self.settings.asked, with_ndcg)
        )
        return readable_means(self.ranking.summary(keep_refusals=True), asked=asked, without=without, beside=beside)

    def plot(self, metric: str | None = None) -> Figure:
        """Run two actions and draw means by segment with their intervals, and how many queries have which value.

        Parameters
        ----------
        metric : str or None
            One of those that were computed, such as `"ndcg@10"`. None: the first, at its largest cutoff.

        Returns
        -------
        matplotlib.figure.Figure
            A notebook shows it where it is the last line of a cell; `figure.savefig("means.png")` writes it.

        Raises
        ------
        InvalidParameterError
            For a metric that was not computed, or that has no value for each query.
        MissingPackageError
            Without matplotlib, which the extra `report` brings.
        InputRefusedError
            For bad rows, in one line.

        Notes
        -----
        Spark cost: an action on `summary` and one on `per_query`, which count queries by bins of their values; each
        ranks anew.
        """
        from ndcg_spark.evaluation.plots import N_BINS, draw, groups_of, step_of

        chosen = self._chosen(metric)
        of_k = F.col("k").eqNullSafe(F.lit(chosen.k))
        drawn = (F.col("metric") == str(chosen.metric)) & of_k
        summary = filter_rows(self.ranking.summary(keep_refusals=True), drawn | (F.col("segment_by") == ""))
        means = summary.orderBy(*map(F.expr, labels.row_order_sql()))
        value = F.col(chosen.metric.column)
        try:
            with readable_errors():
                means = means.drop("state").withColumns({"label": F.expr(labels.SEGMENT_SQL), "drawn": drawn})
                rows = [row.asDict() for row in collect(means)]
                check_matched(top_items(rows), self.ranking)
                groups = groups_of([row for row in rows if row["drawn"]])
                step = step_of(groups, within_1=chosen.metric.within_1)
                # The last bin of values within 0 and 1 has 1, too.
                last = F.when(value == 1, N_BINS - 1) if chosen.metric.within_1 else F.lit(None).cast("int")
                bin_ = F.coalesce(last, F.floor(F.round(value / step, 9)).cast("int"))
                valued = self.per_query_table.where(of_k & value.isNotNull())
                counted = valued.groupBy("run", bin_.alias("bin")).count().collect()
        except InputRefusedError as error:
            raise self._explained(error) from error
        counts: dict[str, dict[int, int]] = {}
        for run, bin_, n in counted:
            counts.setdefault(run, {})[bin_] = n
        return draw(chosen.label, groups, counts, step)

    def _chosen(self, metric: str | None) -> MetricAt:
        drawn = [one for one in self.settings.computed if one.shown and isinstance(one.metric, Metric)]
        if metric is None and drawn:
            return [one for one in drawn if one.metric == drawn[0].metric][-1]
        (asked, *more), _ = metrics_of(metric or "ndcg")
        for one in drawn:
            if one == asked and not more:
                return one
        have = ", ".join(one.label for one in drawn)
        raise InvalidParameterError(f"metric {metric!r} was not computed for each query; there are: {have}.")

    def _for_people(self) -> DataFrame:
        return self._means("segment_by", "run", "metric", "k", *COUNTS)

    def _lines_below(self, beside: list[dict[str, Any]]) -> list[str]:
        """What was left out, and whether runs have the same queries; refuse judgments that match nothing."""
        from ndcg_spark.evaluation.printed import lines_of_means

        matched = check_matched(top_items(beside), self.ranking)
        return lines_of_means(beside, self.settings, judged_apart=not self.ranking.tables.of_runs) + matched

    def _explained(self, refused: InputRefusedError, data: str = "data") -> InputRefusedError:
        """Run an action: count the bad rows by reason, where a refusal names the first of them. `data` has them."""
        if not text_of(refused).startswith("bad row:") or self.settings.on_invalid == "reject":
            return refused
        try:
            with readable_errors():
                counted = count_rows(checked_rows(self.ranking.rows, RowRules(self.ranking.settings)))
        except InputRefusedError:  # windows, and rules for duplicates, check rows before they are counted
            return refused
        if not counted.rejected:  # it is one of the judgments
            return refused
        advice = f"{option('on_invalid', repr('reject'))} leaves such rows out"
        return InputRefusedError(f"{describe_bad_rows(counted, data)}; {advice}.")

    @cached_property
    def rankings(self) -> DataFrame:
        """One row per (run, query), with the arrays `ranked` and `ideal`; see `rank_queries`. Lazy.

        Whether judgments match anything is not checked.
        """
        return self.ranking.rankings()

    @cached_property
    def summary(self) -> DataFrame:
        """One row per (run, segment, metric, k); see `summarize`. Lazy.

        Whether judgments match anything is not checked.
        """
        return self.ranking.summary()

    @cached_property
    def per_query(self) -> DataFrame:
        """One row per (run, query, k); see `score_queries`. Lazy.

        Whether judgments match anything is not checked.
        """
        return self.ranking.per_query()


OF_COLUMNS, OF_ITEMS, OF_PLAN = (
    tuple(one.field for one in settings_in(settings) if not one.is_nested)
    for settings in (Columns, ItemColumns, EvaluationSettings)
)
NAMED = ("k", "metrics", "segments", *OF_COLUMNS, *OF_ITEMS)
OPTIONS = (*NAMED, *(name for name in OF_PLAN if name not in ("cutoffs", "segment_sets", "metrics")))
"""Arguments of `evaluate` that say how rankings are evaluated."""
Cutoffs: TypeAlias = int | str | Sequence[int | str | None] | None


def evaluation_settings(**options: Any) -> EvaluationSettings:
    """Build the settings that arguments of `evaluate` describe.

    Parameters
    ----------
    **options
        As for `evaluate`.

    Returns
    -------
    EvaluationSettings

    Raises
    ------
    InvalidParameterError

    Examples
    --------
    >>> evaluation_settings(k=[5, 1], convention="trec_eval").cutoffs
    (1, 5)
    """
    unknown = sorted(set(options) - set(OPTIONS))
    if unknown:
        near = difflib.get_close_matches(unknown[0], OPTIONS, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise InvalidParameterError(f"there is no option {unknown[0]!r}.{hint}")
    columns = {name: options[name] for name in OF_COLUMNS if name in options}
    for name in ("query", "score", "ranked"):
        if name in columns:
            columns[name] = () if columns[name] is None else several(name, columns[name])
    k, named = options.get("k"), options.get("metrics")
    metrics, cutoffs = ((), cutoffs_of(10 if k is None else k)) if named is None else metrics_of(named, k)
    return EvaluationSettings(
        columns=Columns(**columns),
        item_columns=ItemColumns(**{name: options[name] for name in OF_ITEMS if name in options}),
        convention=Convention.parse(options.get("convention", "default")),
        cutoffs=cutoffs,
        metrics=metrics,
        segment_sets=segment_sets_of(options.get("segments", ())),
        **{name: its for name, its in options.items() if name not in (*NAMED, "convention")},
    )


@takes_tables
def evaluate(
    data: DataFrame | ArrowTable | str | os.PathLike[str],
    judgments: DataFrame | ArrowTable | str | os.PathLike[str] | None = None,
    *,
    items: DataFrame | ArrowTable | str | os.PathLike[str] | None = None,
    interactions: DataFrame | ArrowTable | str | os.PathLike[str] | None = None,
    k: Cutoffs = None,
    metrics: str | Sequence[str] | None = None,
    convention: str | Convention = "default",
    segments: str | Sequence[str] = (),
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
    strategy: Strategy = "auto",
    source: Source = "auto",
    on_invalid: OnInvalid = "fail",
    null_score: NullScore = "bad",
    check_duplicates: DuplicateCheck = "top",
    allow_unmatched: bool = False,
    confidence: float = 0.95,
    sample: float = 1.0,
    tie_bounds: bool = False,
    vector: str = "vector",
    categories: str = "categories",
    first_seen: str = "first_seen",
    topics: str = "topics",
    user: str | None = None,
    as_of: date | None = None,
) -> Evaluation:
    """Evaluate rankings: NDCG and other metrics of every query, and their means.

    Parameters
    ----------
    data : DataFrame, table of pandas, polars or Arrow, str or path
        A long table (query, item, score or rank, relevance); a run without relevances, with `judgments` beside it;
        one row per query with lists of items (`ranked`); or one row per query with an array of relevances in rank
        order. A string is a path, the name of a table or a SQL query, as for `read_table`. Python workers read
        Parquet files themselves where they can; that is the fastest. All files lie at the top of a path, or all in
        `name=value` folders of one depth; such a column is text where a name is not the text of a number or date.
    judgments : DataFrame, other table, str or path, or None
        Query, item and relevance, under the same column names.
    items : DataFrame, other table, str or path, or None
        The catalogue, one row per item, with what metrics need: `vector`, `categories`, `first_seen`.
    interactions : DataFrame, other table, str or path, or None
        What users have met before, one row per interaction: user and item. For `novelty` and `first_new`.
    k : int, `"all"`, a sequence of these, or None
        Cutoffs, computed in one pass; `"all"` is the whole list, and `"1,3"` is as `[1, 3]`. None: 10, and with
        `metrics` the whole list for names without `@`.
    metrics : str or sequence of str
        Metrics to compute in the same pass, such as `["ndcg@10", "ap@100", "p(rel=2)@5", "rr"]`; names of ir_measures
        are understood. A name without `@` is computed at each `k` where `k` is given, else on the whole list.
        Default: `ndcg`, `dcg` and `idcg` at each `k`.
    convention : str or Convention
        Name of a preset, with changes after semicolons: `"trec_eval;gain=exponential"`.
    segments : str or sequence of str
        Columns to group means by, constant within a query; `"a+b"` groups by both together.
    query, item, score, rank, relevance, ideal, run, weight, order : str
        Column names, as in `Columns`. Defaults: `query_id`, `item_id`, `score` and `relevance`; the others are not
        used. A sequence of names makes a composite query key, or one run of each score column.
    ranked : str or sequence of str
        Columns of lists, in place of `item` and `score`: arrays of ids in rank order, or arrays of structs. The id is
        the field named by `item`; without one of that name, the first field that is not the score, rank or grade.
        Items are ranked by the field named by `score`, or else by `score` or `rating`; or else by a field `rank`; or
        else they are in the order of the list. Several columns are evaluated as one run each. Without a query column,
        each row is a query.
    relevant : str
        Column of the relevant items of such a row: an array of ids, which have grade 1; an array of structs of an id
        and a grade (`relevance`, `grade` or `rating`); or a map from id to grade. With `judgments`, which then has
        one row per query, a column of that table.
    vector, categories, first_seen, topics, user : str
        Column names, as in `ItemColumns`, for metrics that need items, topics or interactions.
    as_of : date
        The day on which `first_appearance` counts ages.
    strategy, source, on_invalid, null_score, check_duplicates, allow_unmatched, confidence, sample, tie_bounds
        As in `EvaluationSettings`.

    Returns
    -------
    Evaluation
        Lazy DataFrames.

    Raises
    ------
    MissingColumnError, InputRefusedError, InvalidParameterError
        For what options and schemas show. Bad rows are found by the action; see `readable_errors`.

    Notes
    -----
    Spark cost: none until an action; then that of `rank_queries`, `score_queries` and `summarize`. If `data` is a
    path, the footers of its files are read at once, those in an object store by a small job. Metrics of items add a
    join of the first K items of each query with the tables they need, and a shuffle to bring these together again;
    `alpha_ndcg` reads the judged rows twice.

    Examples
    --------
    >>> result = evaluate(rankings, k=[1, 10], segments=["country"])  # doctest: +SKIP
    >>> result.summary.where("metric = 'ndcg'").show()  # doctest: +SKIP
    >>> evaluate(recommended, ranked="prediction", relevant="label", k=10).show()  # doctest: +SKIP
    """
    given = dict(locals())
    settings = evaluation_settings(**{name: its for name, its in given.items() if name in OPTIONS})
    of_spark = {name: given[name] for name in ("judgments", "items", "interactions")}  # as `takes_tables` hands them
    ranking = choose_ranking(given["data"], settings, **of_spark)
    refuse_unread(ranking.fitted)
    if k is not None and metrics is not None:
        refuse_unread_k(metrics)
    return Evaluation(settings=ranking.fitted, ranking=ranking)
