"""Rank tables on Spark: `choose_ranking` selects a strategy, `Engine`, `Arrays` or `window.Windows`.

`resolve_duplicates` runs first if (query, item) pairs may repeat. Otherwise duplicates among the items that matter
are noticed while lists are made, at no cost (`tasks/partial_ranking.py`).
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TypeAlias

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark.core.adapters import accepts_tables
from ndcg_spark.core.columns import describe_table, exact_col, exact_cols, format_query_key, raise_if, spark_schema
from ndcg_spark.core.session import BATCH_BYTES, MAX_BATCH_BYTES, get_session, in_tasks, limits_batches, task_limit
from ndcg_spark.core.workers import EXCHANGE, arrow_schema, filter_rows, in_workers, raise_refusals
from ndcg_spark.errors import option
from ndcg_spark.evaluation.frames.columns import TOPICS_COLUMN, report_bad_rows, select_canonical_columns
from ndcg_spark.evaluation.frames.duplicates import resolve_duplicates
from ndcg_spark.evaluation.frames.items import (
    ItemTables,
    add_item_features,
    check_item_tables,
    list_item_costs,
    read_topics,
)
from ndcg_spark.evaluation.frames.lists import explode_tables, select_empty_lists
from ndcg_spark.evaluation.frames.source import (
    ParquetSource,
    Source,
    SparkSource,
    choose_source,
)
from ndcg_spark.evaluation.frames.summary import (
    PARTIAL_SCHEMA,
    Strategy,
    merge_partial_sums,
    score_queries,
    summarize,
    summarize_rankings,
)
from ndcg_spark.evaluation.frames.window import Windows
from ndcg_spark.evaluation.plan import (
    ARRAYS,
    ENGINE,
    WINDOW,
    RankingPlan,
    fit_settings,
    plan_ranking,
    require_spark_allowed,
)
from ndcg_spark.evaluation.settings import EvaluationSettings, ItemColumns
from ndcg_spark.evaluation.tasks import valid_rows
from ndcg_spark.evaluation.tasks.complete_queries import send_complete, send_files
from ndcg_spark.evaluation.tasks.exchange import (
    merge_and_add_up,
    merge_rankings,
    send_empty_lists,
    send_judgments,
    send_rows,
)
from ndcg_spark.evaluation.tasks.list_rankings import rank_lists
from ndcg_spark.evaluation.tasks.partial_ranking import N_REJECTED
from ndcg_spark.evaluation.tasks.partial_sums import SummingTask, build_summing_task
from ndcg_spark.evaluation.tasks.query_rows import (
    BAD_ROW,
    COPIES,
    ORDER,
    RUN,
    SCORE,
    RankingTask,
    bad_row_column,
    canonical_names,
)
from ndcg_spark.evaluation.tasks.scoring import ScoringTask, build_scoring_task
from ndcg_spark.evaluation.tasks.valid_rows import RowCheck
from ndcg_spark.metrics.base import TOPICS
from ndcg_spark.sources.formats import open_table
from ndcg_spark.sources.parquet import PART_SIZES, PartSizes
from ndcg_spark.sources.references import format_reference

Reference: TypeAlias = DataFrame | str | os.PathLike[str]
"""A table, or a reference that `open_table` opens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """A plan for the tables of an evaluation and the strategy that runs it on Spark. Nothing has run yet.

    `fitted` are the requested settings, fitted to `main_table`. If lists are exploded, the settings of the plan
    fit the long rows instead. `n_tasks` is as in `task_limit`.
    """

    fitted: EvaluationSettings
    plan: RankingPlan
    implementation: Engine | Windows | Arrays
    main_table: DataFrame
    judgments: DataFrame | None
    tables: ItemTables
    n_tasks: int | None = None

    @property
    def settings(self) -> EvaluationSettings:
        """The settings by which rows are ranked. If lists are exploded, they name the columns of the long rows."""
        return self.plan.settings

    @property
    def strategy(self) -> str:
        return self.plan.strategy

    @property
    def source(self) -> str:
        """The reader of the main table: `spark`, or `parquet` if workers read the files."""
        return self.implementation.source.name if isinstance(self.implementation, Engine) else "spark"

    @property
    def reason(self) -> str:
        """The reason for the strategy and the source, in a clause for `--explain`."""
        return self.implementation.source.reason if isinstance(self.implementation, Engine) else self.plan.reason

    @property
    def fell_back(self) -> bool:
        """True if workers should have read objects of a store, but Spark has to."""
        source = self.implementation.source if isinstance(self.implementation, Engine) else None
        return isinstance(source, SparkSource) and source.fell_back

    def report_bad_rows(self, *, originals: bool = False) -> dict[str, DataFrame]:
        """Report bad rows, by the name of their table. Lazy; see `columns.report_bad_rows`."""
        rows = select_canonical_columns(self.main_table, replace(self.plan.rows, keeps_original=originals))
        reports = {"input": report_bad_rows(rows, RowCheck(self.settings))}
        if self.judgments is not None and self.plan.judgments is not None:
            judged = select_canonical_columns(self.judgments, replace(self.plan.judgments, keeps_original=originals))
            reports["judgments"] = report_bad_rows(judged, RowCheck(self.settings, judgments=True))
        return reports

    def count(self) -> int:
        """Count the rows of the main table, those with several scores once for each. Runs an action."""
        rows = select_canonical_columns(self.main_table, self.plan.rows)
        return rows.count() * max(1, len(canonical_names(self.settings).scores))

    def costs(self, *, means_only: bool) -> list[str]:
        """List the costs of ranking, in clauses to print. `means_only`: metrics of queries are not needed."""
        settings = self.implementation.settings
        costs = [self.implementation.cost_of_means if means_only and not settings.needs else self.implementation.cost]
        if settings.resolves_duplicates and not isinstance(self.implementation, Arrays):  # whose cost includes this
            tables = "all rows, and of all judgments," if self.tables.has_judgments_table else "all rows"
            costs.append(
                f"a shuffle of {tables} by (query, item) for duplicates, after a pass through Python workers"
            )
        return costs + list_item_costs(settings, self.tables)

    @property
    def advice(self) -> str | None:
        """Advice on a session setting that makes ranking slow, in a clause, or None."""
        rows_pass = self.source == "spark" and not isinstance(self.implementation, Windows)
        if not rows_pass or self.settings.has_long_lists or not limits_batches(self.main_table.sparkSession):
            return None
        reason = "Spark then does not compute the size of a batch at every row"
        return f"{BATCH_BYTES}={MAX_BATCH_BYTES} saves about two fifths of the time: {reason}"

    @property
    def rows(self) -> DataFrame:
        """Canonical rows of the main table; lazy."""
        return (
            self.implementation.source.rows if isinstance(self.implementation, Engine) else self.implementation.rows
        )

    def rankings(self, *, rejected: bool = False, keep_refusals: bool = False) -> DataFrame:
        """Rank, one row per query; see `rank_queries`. Lazy.

        `rejected` adds `n_rejected`, and rows for queries that lost all rows and for rejected rows without a query.
        `keep_refusals` is as for `in_workers`, unless a metric needs the item table.
        """
        rankings, settings = self.implementation.rankings(), self.implementation.settings
        if settings.needs or not keep_refusals:
            rankings = raise_refusals(rankings)
        rankings = add_item_features(rankings, settings, self.tables) if settings.needs else rankings
        if rejected or N_REJECTED not in rankings.columns:
            return rankings
        return filter_rows(rankings, (F.col("n_rows") > 0) | (F.col("n_judged") > 0)).drop(N_REJECTED)

    def per_query(self, *, rejected: bool = False, keep_refusals: bool = False) -> DataFrame:
        """Compute the metrics of every query. Lazy; see `score_queries`, and `rankings` for the options."""
        rankings = self.rankings(rejected=rejected, keep_refusals=keep_refusals)
        return score_queries(rankings, self.implementation.settings)

    def summary(self, per_query: DataFrame | None = None, *, keep_refusals: bool = False) -> DataFrame:
        """Compute the means of all metrics. Lazy.

        `per_query` has the metrics of queries, with `rejected`, if they were computed already.
        """
        settings = self.implementation.settings
        if per_query is not None:
            summary = summarize(per_query, settings, items=self.tables.items, n_tasks=self.n_tasks)
        elif settings.needs:
            rankings = self.rankings(rejected=True)
            summary = summarize_rankings(rankings, settings, items=self.tables.items, n_tasks=self.n_tasks)
        else:
            summary = self.implementation.summary()
        return summary if keep_refusals else raise_refusals(summary)


@accepts_tables
def rank_queries(
    data: Reference,
    settings: EvaluationSettings,
    *,
    judgments: Reference | None = None,
    items: Reference | None = None,
    interactions: Reference | None = None,
) -> DataFrame:
    """Rank every query: one row per (run, query), with the lists that metrics are computed from.

    Parameters
    ----------
    data : DataFrame, str or path
        A long table, a run, or one row per query with arrays. A string is a path, table or query, as for `evaluate`.
    settings : EvaluationSettings
    judgments : DataFrame, str, path or None
        Query, item and relevance, if the main table has no relevances.
    items, interactions : DataFrame, str, path or None
        The item table and the interactions of users, if metrics read them; see `evaluate`.

    Returns
    -------
    DataFrame
        Lazy, with the columns

        - `run`, the query columns, segments, `weight`;
        - `n_rows`, `n_left_out`, `n_items`, `n_judged`, `n_relevant` (bigint);
        - `ranked`: relevances of the first K items, null for an unjudged item;
        - `ranks`: their 1-based ranks, if ranks are given;
        - `scores` and `tied`, under `ties=expected`, `best` or `worst`: the score of each entry of `ranked`, and the
          number of items it stands for;
        - `ideal`: the K best judged relevances;
        - `items`, if metrics read items: the items of `ranked`, and their features; see
          `ndcg_spark.evaluation.frames.items.add_item_features`.

    Raises
    ------
    MissingColumnError, InputRefusedError, InvalidParameterError
        Raised at once for errors that schemas show. Bad rows raise when an action reads them.

    Notes
    -----
    Spark cost: no action. The engine takes two passes through Python workers and one shuffle, of about 2 K numbers
    per query and input partition; windows take three shuffles of all rows; arrays take one pass.
    """
    ranking = choose_ranking(data, settings, judgments=judgments, items=items, interactions=interactions)
    return ranking.rankings()


def choose_ranking(
    data: Reference,
    settings: EvaluationSettings,
    *,
    judgments: Reference | None = None,
    items: Reference | None = None,
    interactions: Reference | None = None,
    path: str | None = None,
    sizes: PartSizes = PART_SIZES,
) -> Ranking:
    """Plan how a table is ranked, and choose the strategy. Reads schemas, and footers of Parquet files.

    `path` is the path of the DataFrame, if the user named Parquet files. `sizes` limits the parts of these files.
    """
    frame, path = _open_reference(data, path)
    judgments, items, interactions = (
        None if table is None else _open_reference(table)[0] for table in (judgments, items, interactions)
    )
    info, empty_lists = describe_table(frame), None
    settings = fitted = fit_settings(info, settings)
    if settings.columns.ranked and judgments is not None:
        empty_lists, path = select_empty_lists(frame, settings), None
        frame, judgments, settings = explode_tables(frame, judgments, settings)
        info = describe_table(frame)
    relevances = frame if judgments is None else judgments
    tables = ItemTables(
        items=items, interactions=interactions, relevances=relevances, has_judgments_table=judgments is not None
    )
    if settings.needs or items is not None or interactions is not None or settings.item_columns != ItemColumns():
        check_item_tables(settings, tables)
    n_tasks = task_limit(frame, judgments)
    judged = None if judgments is None else describe_table(judgments, "judgments")
    plan = plan_ranking(info, judged, settings, fitted=True)
    if plan.strategy != ENGINE and plan.why_spark_reads is not None:
        require_spark_allowed(settings, plan.why_spark_reads)
    implementation = _build_strategy(plan, frame, judgments, empty_lists, n_tasks, path, sizes)
    if TOPICS in settings.needs:
        tables = replace(tables, rows_with_topics=_select_rows_with_topics(plan, tables))
    return Ranking(
        fitted=fitted,
        plan=plan,
        implementation=implementation,
        main_table=frame,
        judgments=judgments,
        tables=tables,
        n_tasks=n_tasks,
    )


def _open_reference(table: Reference, path: str | None = None) -> tuple[DataFrame, str | None]:
    """Open a reference, and return the table and its `path`. A DataFrame is returned unchanged."""
    if not isinstance(table, str | os.PathLike):
        return table, path
    opened = open_table(get_session(), format_reference(table))
    return opened.frame, opened.path


def _build_strategy(
    plan: RankingPlan,
    frame: DataFrame,
    judgments: DataFrame | None,
    empty_lists: DataFrame | None,
    n_tasks: int | None,
    path: str | None,
    sizes: PartSizes,
) -> Engine | Windows | Arrays:
    settings, rows = plan.settings, select_canonical_columns(frame, plan.rows)
    if plan.strategy == ARRAYS:
        return Arrays(plan=plan, rows=rows, n_tasks=n_tasks)
    judged = (
        None if judgments is None or plan.judgments is None else select_canonical_columns(judgments, plan.judgments)
    )
    if empty_lists is not None:
        empty_lists = empty_lists.select(
            *[exact_col(column).cast(rows.schema[column].dataType).alias(column) for column in empty_lists.columns]
        )
    if settings.resolves_duplicates:
        rows = resolve_duplicates(
            _mark_rejected_rows(explode_scores(rows, settings), settings), settings, n_tasks, others=plan.others
        )
        if judged is not None:
            judged = select_valid_rows(judged, RowCheck(settings, judgments=True))
            judged = resolve_duplicates(judged, settings, n_tasks).drop(COPIES, ORDER)
    if plan.strategy == WINDOW:
        rows = _mark_rejected_rows(explode_scores(rows, settings), settings)
        judged = None if judged is None else select_valid_rows(judged, RowCheck(settings, judgments=True))
        return Windows(plan=plan, rows=rows, judgments=judged, n_tasks=n_tasks, empty_lists=empty_lists)
    source = choose_source(frame, plan, rows, path=path, n_tasks=n_tasks, sizes=sizes)
    return Engine(plan=plan, n_tasks=n_tasks, source=source, judgments=judged, empty_lists=empty_lists)


def _select_rows_with_topics(plan: RankingPlan, tables: ItemTables) -> DataFrame:
    """Select the rows with relevances and topics.

    Rows are checked only if bad rows or duplicates are left out: otherwise ranking refuses them anyway.
    """
    settings, judged = plan.settings, plan.judgments
    topics = {TOPICS_COLUMN: read_topics(settings, tables)}
    rows = select_canonical_columns(tables.relevances, plan.rows if judged is None else judged, topics)
    drops_duplicates = settings.convention.duplicates != "error"
    if drops_duplicates or settings.on_invalid == "reject":
        rows = rows if tables.has_judgments_table else explode_scores(rows, settings)
        rows = select_valid_rows(rows, RowCheck(settings, judgments=tables.has_judgments_table))
    return resolve_duplicates(rows, settings) if drops_duplicates else rows


def explode_scores(rows: DataFrame, settings: EvaluationSettings) -> DataFrame:
    """Return one row for each score column, which becomes a run. Other tables are returned unchanged."""
    scores = canonical_names(settings).scores
    if len(scores) < 2 or SCORE in rows.columns:
        return rows
    structs = []
    for score, run in scores.items():
        fields = [F.lit(run).alias(RUN), exact_col(score).cast("double").alias(SCORE)]
        if bad_row_column(score) in rows.columns:
            fields.append(exact_col(bad_row_column(score)).alias(BAD_ROW))
        structs.append(F.struct(*fields))
    rest = [column for column in rows.columns if column not in {*scores, *map(bad_row_column, scores)}]
    return rows.select(*exact_cols(rest), F.inline(F.array(*structs)))


def _mark_rejected_rows(rows: DataFrame, settings: EvaluationSettings) -> DataFrame:
    """Return valid rows of the main table and, under on_invalid=reject, marked rejected rows, which are counted."""
    if settings.on_invalid == "fail":
        return select_valid_rows(rows, RowCheck(settings))
    fields = [T.StructField(field.name, field.dataType) for field in rows.schema if field.name != BAD_ROW]
    schema = T.StructType([*fields, T.StructField(BAD_ROW, T.StringType())])
    return in_workers(rows, valid_rows.mark_rejected_rows, RowCheck(settings), schema=schema)


def select_valid_rows(rows: DataFrame, check: RowCheck) -> DataFrame:
    """Keep the valid rows, without the column of marks. Lazy."""
    fields = [field for field in rows.schema if field.name != BAD_ROW]
    return in_workers(rows, valid_rows.select_valid_rows, check, schema=T.StructType(fields))


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine(Strategy):
    """Rank rows of a source, with canonical judgments, in workers. `empty_lists` comes from `select_empty_lists`."""

    source: Source
    judgments: DataFrame | None = None
    empty_lists: DataFrame | None = None

    def rankings(self) -> DataFrame:
        """Rank every query and count rejected rows. Lazy; two passes through workers, a shuffle of packed batches."""
        task = self._task(counts_relevant=True)
        schema = spark_schema(self.plan.rankings_schema)
        return in_workers(self._exchange(task), merge_rankings, task, schema=schema)

    def summary(self) -> DataFrame:
        """Summarize rankings inside workers; complete queries of sorted files in the tasks that read them. Lazy."""
        task = self._task(counts_relevant=False)
        columns = [
            column for column in self.plan.rankings_schema.names if column != "n_relevant"
        ]  # means do not use it
        tasks = build_scoring_task(columns, self.settings), build_summing_task(self.settings)
        partial = in_workers(self._exchange(task, *tasks), merge_and_add_up, task, *tasks, schema=PARTIAL_SCHEMA)
        return merge_partial_sums(partial, self.settings, n_tasks=self.n_tasks)

    @property
    def cost(self) -> str:
        rows = "all rows"
        if self._task(counts_relevant=False).cuts_early:
            rows = "about 2 K numbers per query and input partition, or the rows of a query if these are fewer"
        judgments = "" if self.judgments is None else ", and of all judgments"
        return f"one shuffle of {rows}{judgments}; two passes through Python workers"

    @property
    def cost_of_means(self) -> str:
        if isinstance(self.source, ParquetSource) and self.source.files.bounds:
            return f"complete queries are scored by the tasks that read them; for other queries, {self.cost}"
        return self.cost

    def _task(self, *, counts_relevant: bool) -> RankingTask:
        task, rows = self.plan.task, self.source.rows
        if self.settings.resolves_duplicates:  # duplicates were resolved, which changes columns
            task = replace(task, rows=arrow_schema(rows.schema, rows.sparkSession))
        return replace(task, n_partitions=self.source.n_partitions, counts_relevant=counts_relevant)

    def exchange(self, *, shuffled: bool = True) -> DataFrame:
        """Return the rows that are shuffled for `rankings`, before or after the shuffle. For measurements; lazy."""
        task = self._task(counts_relevant=False)
        return self._exchange(task) if shuffled else self._send(task)

    def _exchange(self, task: RankingTask, *of_means: ScoringTask | SummingTask) -> DataFrame:
        sent = self._send(task, *of_means)
        for table, send in ((self.judgments, send_judgments), (self.empty_lists, send_empty_lists)):
            if table is not None:
                sent = sent.unionAll(in_workers(table, send, task, schema=EXCHANGE, keep_refusals=True))
        if isinstance(self.source, SparkSource):
            # Adaptive execution combines small partitions, but not after a repartition to a given number or by id:
            # 200 tasks for six rows take 6.5 s, one task takes 0.7 s. `n_tasks` is set if adaptive execution is off.
            by_id = F.col("partition_id")
            return sent.repartition(by_id) if self.n_tasks is None else sent.repartition(self.n_tasks, by_id)
        if hasattr(sent, "repartitionById"):
            return sent.repartitionById(task.n_partitions, "partition_id")
        return sent.repartition(task.n_partitions, "partition_id")

    def _send(self, task: RankingTask, *of_means: ScoringTask | SummingTask) -> DataFrame:
        """Send rows. With the tasks of means, add up complete queries of sorted files (see `cost_of_means`)."""
        if isinstance(self.source, SparkSource):
            return in_workers(self.source.rows, send_rows, task, schema=EXCHANGE, keep_refusals=True)
        files = self.source.files
        n_parts = max(1, len(files.parts))
        numbers = self.source.rows.sparkSession.range(0, len(files.parts), 1, n_parts)
        if of_means and files.bounds:
            return in_workers(numbers, send_complete, files, task, *of_means, schema=EXCHANGE, keep_refusals=True)
        return in_workers(numbers, send_files, files, task, schema=EXCHANGE, keep_refusals=True)


_ONE_ROW = (
    "a table of arrays or lists has one row for each query of a run. Name the columns that tell the rows apart "
    f"({option('run')}, {option('query')}), or "
    "remove all but one."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrays(Strategy):
    """Strategy for tables with one row per query, given as canonical rows: each row is ranked by itself."""

    rows: DataFrame

    @property
    def cost(self) -> str:
        shuffle = "no shuffle of rows"
        if self.settings.check_duplicates == "all" and self.settings.columns.query:
            shuffle = "a shuffle by query of about 2 K numbers per query, to find repeated queries"
        return f"{shuffle}; one pass through Python workers"

    def rankings(self) -> DataFrame:
        """Cut the arrays of each query to two lists in one pass. `check_duplicates=all` shuffles the lists. Lazy."""
        schema = spark_schema(self.plan.rankings_schema)
        rankings = in_workers(self.rows, rank_lists, self.plan.task, schema=schema, keep_refusals=True)
        if self.settings.check_duplicates != "all" or not self.settings.columns.query:
            return rankings
        return in_tasks(_refuse_repeated_queries(rankings, self.settings), self.n_tasks)


def _refuse_repeated_queries(rankings: DataFrame, settings: EvaluationSettings) -> DataFrame:
    keys = ["run", *settings.columns.query]
    n_rows = F.sum("n_rows").over(Window.partitionBy(*exact_cols(keys)))
    shown = format_query_key(
        keys if settings.columns.run is not None else settings.columns.query, {"run": str(settings.columns.run)}
    )
    message = ("query ", shown, " comes in ", n_rows.cast("string"), " rows; ", _ONE_ROW)
    return rankings.withColumn("n_rows", raise_if(F.col("n_rows"), n_rows > 1, *message, kind="bigint"))
