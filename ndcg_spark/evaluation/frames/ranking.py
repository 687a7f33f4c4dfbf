"""From tables to rankings: `choose_ranking` decides how; `Engine`, `Arrays` and `window.Windows` are the strategies.

`resolve_duplicates` runs before if (query, item) pairs may repeat; duplicates among the items that matter are found
where lists are made, at no cost (`tasks/rankings.py`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark.conventions.convention import CHOICES
from ndcg_spark.core.batches import BatchFunction
from ndcg_spark.core.columns import MALFORMED, columns_of, key_text, named, raise_if
from ndcg_spark.core.given import takes_tables
from ndcg_spark.core.session import in_tasks, session_here, task_limit
from ndcg_spark.core.workers import EXCHANGE, arrow_schema, as_shipped
from ndcg_spark.errors import InvalidParameterError, option
from ndcg_spark.evaluation.frames.canonical import (
    TOPICS_COLUMN,
    judgment_rows,
    require_carried,
    run_rows,
    with_common_keys,
)
from ndcg_spark.evaluation.frames.items import (
    ItemTables,
    check_item_tables,
    item_costs,
    topics_column,
    with_item_features,
)
from ndcg_spark.evaluation.frames.lists import (
    long_tables,
    rows_of_lists,
    runs_of_lists,
    settings_of_lists,
    without_query,
)
from ndcg_spark.evaluation.frames.scoring import rankings_schema, score_queries, scoring_task
from ndcg_spark.evaluation.frames.source import (
    ParquetSource,
    Source,
    SparkSource,
    choose_source,
    require_spark_allowed,
)
from ndcg_spark.evaluation.frames.summary import PARTIAL_SCHEMA, finished, summarize, summarize_rankings, summing_task
from ndcg_spark.evaluation.frames.window import Windows
from ndcg_spark.evaluation.settings import EvaluationSettings
from ndcg_spark.evaluation.tasks.complete_queries import make_complete_sender
from ndcg_spark.evaluation.tasks.exchange import (
    make_judgment_sender,
    make_merger,
    make_merging_summer,
    make_row_sender,
    make_run_sender,
)
from ndcg_spark.evaluation.tasks.list_rankings import make_array_ranker, make_list_ranker
from ndcg_spark.evaluation.tasks.partial_ranking import N_REJECTED
from ndcg_spark.evaluation.tasks.query_rows import (
    BAD_ROW,
    COPIES,
    ITEM,
    ORDER,
    RANK,
    RANKED_LIST,
    RELEVANCE,
    RUN,
    SCORE,
    RankingTask,
    bad_row_of,
    canonical_names,
)
from ndcg_spark.evaluation.tasks.rankings import advice_on_repeats
from ndcg_spark.evaluation.tasks.valid_rows import RowRules, make_row_marker, make_valid_rows
from ndcg_spark.metrics.base import TOPICS
from ndcg_spark.sources.formats import open_table
from ndcg_spark.sources.parquet import PART_SIZES, PartSizes
from ndcg_spark.sources.references import reference_text

Reference: TypeAlias = DataFrame | str | os.PathLike[str]
"""A table, or what `open_table` opens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """How a table is ranked; nothing of it has run. `reason` is for `--explain`, `n_tasks` as in `task_limit`."""

    strategy: str
    source: str
    reason: str
    steps: Engine | Windows | Arrays
    tables: ItemTables
    n_tasks: int | None = None

    @property
    def settings(self) -> EvaluationSettings:
        """Those by which rows are ranked: where lists become long rows, not those that name the lists."""
        return self.steps.settings

    @property
    def fell_back(self) -> bool:
        """Whether workers were to read objects of a store, and Spark has to."""
        source = self.steps.source if isinstance(self.steps, Engine) else None
        return isinstance(source, SparkSource) and source.fell_back

    def costs(self, *, means_only: bool) -> list[str]:
        """What ranking costs, in clauses for a person; `means_only`: no metrics of queries are asked for."""
        settings = self.steps.settings
        found = [self.steps.cost_of_means if means_only and not settings.needs else self.steps.cost]
        if settings.resolves_duplicates and not isinstance(self.steps, Arrays):  # they tell their own cost
            tables = "all rows" if self.tables.of_runs else "all rows, and of all judgments,"
            found.append(
                f"a shuffle of {tables} by (query, item) for duplicates, after a pass through Python workers"
            )
        return found + item_costs(settings, self.tables)

    def rows(self) -> DataFrame:
        return self.steps.source.rows if isinstance(self.steps, Engine) else self.steps.rows

    def rankings(self, *, rejected: bool = False) -> DataFrame:
        """Rank, one row per query; see `rank_queries`. Lazy.

        `rejected` adds `n_rejected` and rows for queries that lost all rows and for rejected rows without a query.
        """
        found, settings = self.steps.rankings(), self.steps.settings
        found = with_item_features(found, settings, self.tables) if settings.needs else found
        if rejected or N_REJECTED not in found.columns:
            return found
        return found.where("n_rows > 0 OR n_judged > 0").drop(N_REJECTED)

    def per_query(self, *, rejected: bool = False) -> DataFrame:
        """Metrics of every query; lazy. See `score_queries`; `rejected` as for `rankings`."""
        return score_queries(self.rankings(rejected=rejected), self.steps.settings)

    def summary(self, per_query: DataFrame | None = None) -> DataFrame:
        """Summary of all metrics; lazy. `per_query`: metrics of queries, with `rejected`, if these are kept."""
        settings = self.steps.settings
        if per_query is not None:
            return summarize(per_query, settings, items=self.tables.items, n_tasks=self.n_tasks)
        if settings.needs:
            rankings = self.rankings(rejected=True)
            return summarize_rankings(rankings, settings, items=self.tables.items, n_tasks=self.n_tasks)
        return self.steps.summary()


@takes_tables
def rank_queries(
    data: Reference,
    settings: EvaluationSettings,
    *,
    judgments: Reference | None = None,
    items: Reference | None = None,
    interactions: Reference | None = None,
    parse_text: bool = False,
    parse_judgment_text: bool = False,
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
    parse_text, parse_judgment_text : bool
        Whether columns of text are parsed as numbers, as for csv files.

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
        - `items`, with metrics that read items: the items of `ranked`; and what is joined to them, see
          `ndcg_spark.evaluation.frames.items.with_item_features`.

    Raises
    ------
    MissingColumnError, InputRefusedError, InvalidParameterError
        For what the schemas show. Bad rows raise when an action reaches them.

    Notes
    -----
    Spark cost: no action. The engine takes two passes through Python workers and one shuffle, of about 2 K numbers
    per query and input partition; windows take three shuffles of all rows; arrays take one pass.
    """
    return choose_ranking(
        data,
        settings,
        judgments=judgments,
        items=items,
        interactions=interactions,
        parse_text=parse_text,
        parse_judgment_text=parse_judgment_text,
    ).rankings()


def choose_ranking(
    data: Reference,
    settings: EvaluationSettings,
    *,
    judgments: Reference | None = None,
    items: Reference | None = None,
    interactions: Reference | None = None,
    path: str | None = None,
    parse_text: bool = False,
    parse_judgment_text: bool = False,
    sizes: PartSizes = PART_SIZES,
) -> Ranking:
    """Decide how a table is ranked. Reads schemas, and footers of Parquet files.

    `path` is where the DataFrame comes from, if the user named Parquet files; `sizes` are those of their parts.
    """
    frame, path, parse_text = _opened(data, path, parse_text)
    if judgments is not None:
        judgments, _, parse_judgment_text = _opened(judgments, None, parse_judgment_text)
    items, interactions = (None if one is None else _opened(one)[0] for one in (items, interactions))
    settings = without_query(frame, settings)
    if not _is_array(frame, settings.columns.relevance):  # arrays are in rank order already
        settings = replace(settings, columns=settings.columns.with_usual_rank(frame.columns))
    ideal = settings.columns.ideal
    if ideal in CHOICES["ideal"] and ideal not in frame.columns:
        raise InvalidParameterError(
            f"there is no column {ideal!r}, which {option('ideal')} names; the rule for ideal lists is "
            f"{settings.convention.advice('ideal', ideal)}."
        )
    runs = None
    if settings.columns.ranked and judgments is not None:
        runs = runs_of_lists(frame, settings)
        frame, judgments, settings = long_tables(frame, judgments, settings)
        path = None
    tables = ItemTables(
        items=items,
        interactions=interactions,
        relevances=frame if judgments is None else judgments,
        of_runs=judgments is None,
    )
    check_item_tables(settings, tables)
    n_tasks = task_limit(frame, judgments)
    strategy, source, reason, steps = _chosen(
        *(frame, settings, judgments, path, sizes, n_tasks),
        runs=runs,
        parse_text=parse_text,
        parse_judgment_text=parse_judgment_text,
    )
    if TOPICS in settings.needs:
        judged = _rows_with_topics(
            settings, tables, parse_text=parse_text if judgments is None else parse_judgment_text
        )
        tables = replace(tables, rows_with_topics=judged)
    return Ranking(strategy=strategy, source=source, reason=reason, steps=steps, tables=tables, n_tasks=n_tasks)


def _opened(
    table: Reference, path: str | None = None, parse_text: bool = False
) -> tuple[DataFrame, str | None, bool]:
    """Open what a reference names: the table, its `path` and whether text is parsed; a DataFrame is as it was."""
    if not isinstance(table, str | os.PathLike):
        return table, path, parse_text
    found = open_table(session_here(), reference_text(table))
    return found.frame, found.path, found.parse_text


def _chosen(
    frame: DataFrame,
    settings: EvaluationSettings,
    judgments: DataFrame | None,
    path: str | None,
    sizes: PartSizes,
    n_tasks: int | None,
    *,
    runs: DataFrame | None,
    parse_text: bool,
    parse_judgment_text: bool,
) -> tuple[str, str, str, Engine | Windows | Arrays]:
    arrays = _arrays(frame, settings, judgments, n_tasks)
    if arrays is not None:
        return "arrays", "spark", *arrays
    relevance = settings.columns.relevance
    if settings.columns.ideal is not None:
        raise InvalidParameterError(
            f"column {relevance!r} is no array of relevances, so nothing reads {settings.columns.ideal!r} "
            f"({option('ideal')}); leave it out."
        )
    if settings.convention.ideal == "unsorted":
        raise InvalidParameterError("ideal=unsorted needs arrays: a column of relevances and one of judged ones.")
    require_carried(settings, frame, *([] if judgments is None else [judgments]))
    rows = run_rows(frame, settings, judged=judgments is None, parse_text=parse_text)
    if runs is not None:
        runs = runs.select(*[named(name).cast(rows.schema[name].dataType).alias(name) for name in runs.columns])
    judged, others = None, other_columns(frame, settings)
    if judgments is not None:
        judged = judgment_rows(judgments, settings, parse_text=parse_judgment_text)
        rows, judged = with_common_keys(rows, judged, settings)
    if settings.resolves_duplicates:
        rows = resolve_duplicates(_checked(long_rows(rows, settings), settings), settings, n_tasks, others=others)
        if judged is not None:
            judged = valid_only(judged, RowRules(settings, True))
            judged = resolve_duplicates(judged, settings, n_tasks).drop(COPIES, ORDER)
    if settings.strategy == "window":
        require_spark_allowed(settings, "strategy=window ranks in Spark")
        rows = _checked(long_rows(rows, settings), settings)
        judged = None if judged is None else valid_only(judged, RowRules(settings, True))
        windows = Windows(settings=settings, rows=rows, judgments=judged, n_tasks=n_tasks, others=others, runs=runs)
        return "window", "spark", "the reference was asked for", windows
    source = choose_source(frame, settings, rows, path=path, judged=judgments is None, n_tasks=n_tasks, sizes=sizes)
    engine = Engine(settings=settings, source=source, judgments=judged, others=others, runs=runs)
    return "engine", source.name, source.reason, engine


def _is_array(frame: DataFrame, column: str) -> bool:
    return column in frame.columns and isinstance(frame.schema[column].dataType, T.ArrayType)


def _arrays(
    frame: DataFrame, settings: EvaluationSettings, judgments: DataFrame | None, n_tasks: int | None
) -> tuple[str, Arrays] | None:
    """The reason and the steps for a table with one row a query; None for any other."""
    relevance, fitted = settings.columns.relevance, settings
    if settings.columns.ranked:
        what, how = f"column {settings.columns.ranked[0]!r} has lists", "ranked"
        fitted = settings_of_lists(frame, settings)
    elif _is_array(frame, relevance):
        what, how = f"column {relevance!r} is an array", "scored"
        if judgments is not None:
            raise InvalidParameterError("arrays of relevances need no judgments table.")
        if len(settings.columns.score) > 1:
            raise InvalidParameterError(
                f"{option('score')} names {', '.join(settings.columns.score)}: arrays of relevances are in rank "
                "order and have no scores; leave it out, and put the lists of each ranker in rows of their own "
                f"({option('run')})."
            )
    else:
        return None
    require_carried(settings, frame)
    require_spark_allowed(settings, what)
    steps = Arrays(settings=fitted, rows=rows_of_lists(frame, settings), n_tasks=n_tasks)
    return f"{what}: each row is {how} where it is", steps


def _rows_with_topics(settings: EvaluationSettings, tables: ItemTables, *, parse_text: bool) -> DataFrame:
    """Select the rows with relevances and topics; checked only if some are left out, as ranking refuses bad rows."""
    frame, topics = tables.relevances, topics_column(settings, tables)
    chooses = settings.convention.duplicates != "error"
    if tables.of_runs:
        rows = run_rows(frame, settings, judged=True, parse_text=parse_text, topics=topics)
    else:
        rows = judgment_rows(frame, settings, parse_text=parse_text, topics=topics)
    if chooses or settings.on_invalid == "reject":
        rows = long_rows(rows, settings) if tables.of_runs else rows
        rows = valid_only(rows, RowRules(settings, judgments=not tables.of_runs))
    return resolve_duplicates(rows, settings) if chooses else rows


def long_rows(rows: DataFrame, settings: EvaluationSettings) -> DataFrame:
    """One row for each score column, which is a run; any other table, and one that is long already, as it is."""
    scores = canonical_names(settings).scores
    if len(scores) < 2 or SCORE in rows.columns:
        return rows
    pairs = []
    for name, run in scores.items():
        of_run = [F.lit(run).alias(RUN), named(name).cast("double").alias(SCORE)]
        if bad_row_of(name) in rows.columns:
            of_run.append(named(bad_row_of(name)).alias(BAD_ROW))
        pairs.append(F.struct(*of_run))
    rest = [name for name in rows.columns if name not in {*scores, *map(bad_row_of, scores)}]
    return rows.select(*columns_of(rest), F.inline(F.array(*pairs)))


def _checked(rows: DataFrame, settings: EvaluationSettings) -> DataFrame:
    """Valid rows of the main table; rejected ones are marked, so that they are counted."""
    if settings.on_invalid == "fail":
        return valid_only(rows, RowRules(settings))
    kept = [T.StructField(one.name, one.dataType) for one in rows.schema if one.name != BAD_ROW]
    schema = T.StructType([*kept, T.StructField(BAD_ROW, T.StringType())])
    return rows.mapInArrow(as_shipped(make_row_marker(RowRules(settings))), schema=schema)


def valid_only(rows: DataFrame, rules: RowRules) -> DataFrame:
    kept = [one for one in rows.schema if one.name != BAD_ROW]
    return rows.mapInArrow(as_shipped(make_valid_rows(rules)), schema=T.StructType(kept))


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A source, and canonical judgments if they are a table of their own. `runs` comes from `runs_of_lists`."""

    settings: EvaluationSettings
    source: Source
    judgments: DataFrame | None = None
    others: tuple[str, ...] = ()
    runs: DataFrame | None = None

    def rankings(self) -> DataFrame:
        """Rank every query, count rejected rows: two passes through workers, a shuffle of packed batches. Lazy."""
        task = self._task(counts_relevant=True)
        return self._exchanged(task, None).mapInArrow(as_shipped(make_merger(task)), schema=self.schema())

    def summary(self) -> DataFrame:
        """Summarize rankings inside workers; complete queries of sorted files are scored where read. Lazy."""
        task = self._task(counts_relevant=False)
        columns = [name for name in self.schema().names if name != "n_relevant"]  # of no use to means
        scoring, summing = scoring_task(columns, self.settings), summing_task(self.settings)
        send = None
        if isinstance(self.source, ParquetSource) and self.source.files.bounds:
            send = make_complete_sender(self.source.files, task, scoring, summing)  # `cost_of_means` tells it
        merge = make_merging_summer(task, scoring, summing)
        partial = self._exchanged(task, send).mapInArrow(as_shipped(merge), schema=PARTIAL_SCHEMA)
        return finished(partial, self.settings, n_tasks=self.source.n_tasks)

    @property
    def cost(self) -> str:
        rows = "all rows"
        if self._task(counts_relevant=False).cuts_early:
            rows = "about 2 K numbers a query and input partition, or of its rows where these are fewer"
        judgments = "" if self.judgments is None else ", and of all judgments"
        return f"one shuffle of {rows}{judgments}; two passes through Python workers"

    @property
    def cost_of_means(self) -> str:
        if isinstance(self.source, ParquetSource) and self.source.files.bounds:
            return f"complete queries are scored where they are read; of the others, {self.cost}"
        return self.cost

    def schema(self) -> T.StructType:
        return rankings_schema(self.settings, self.source.rows, self.judgments)

    def _task(self, *, counts_relevant: bool) -> RankingTask:
        rows, spark = self.source.rows.schema, self.source.rows.sparkSession
        return RankingTask(
            settings=self.settings,
            rows=arrow_schema(rows, spark),
            judgments=None if self.judgments is None else arrow_schema(self.judgments.schema, spark),
            n_partitions=self.source.n_partitions,
            checks_duplicates=self.settings.checks_top_duplicates and ITEM in rows.names,
            counts_relevant=counts_relevant,
            others=self.others,
        )

    def exchanged(self, *, shuffled: bool = True) -> DataFrame:
        """What crosses the shuffle on the way to `rankings`, before or after it: for measurements. Lazy."""
        task = self._task(counts_relevant=False)
        return self._exchanged(task, None) if shuffled else self._sent(task, None)

    def _exchanged(self, task: RankingTask, send: BatchFunction | None) -> DataFrame:
        sent = self._sent(task, send)
        if self.judgments is not None:
            sent = sent.unionAll(self.judgments.mapInArrow(as_shipped(make_judgment_sender(task)), schema=EXCHANGE))
        if self.runs is not None:
            sent = sent.unionAll(self.runs.mapInArrow(as_shipped(make_run_sender(task)), schema=EXCHANGE))
        if isinstance(self.source, SparkSource):
            # Spark puts small partitions together, which it does not do with a number given, nor by id: 200 tasks
            # for six rows take 6.5 s, one takes 0.7. Without adaptive execution it does not, and a number is given.
            n_tasks = self.source.n_tasks
            by_id = F.col("partition_id")
            return sent.repartition(by_id) if n_tasks is None else sent.repartition(n_tasks, by_id)
        if hasattr(sent, "repartitionById"):
            return sent.repartitionById(task.n_partitions, "partition_id")
        return sent.repartition(task.n_partitions, "partition_id")

    def _sent(self, task: RankingTask, send: BatchFunction | None) -> DataFrame:
        if isinstance(self.source, SparkSource):
            return self.source.rows.mapInArrow(as_shipped(make_row_sender(task)), schema=EXCHANGE)
        files = self.source.files
        n_parts = max(1, len(files.parts))
        numbers = self.source.rows.sparkSession.range(0, len(files.parts), 1, n_parts)
        return numbers.mapInArrow(as_shipped(send or make_row_sender(task, files.read)), schema=EXCHANGE)


_ONE_ROW = (
    "a table of arrays or lists has one row for each query of a run. Name what tells the rows apart "
    f"({option('run')}, {option('query')}), or "
    "remove all but one."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrays:
    """The strategy for tables with one row a query, given their canonical rows: they are scored where they are."""

    settings: EvaluationSettings
    rows: DataFrame
    n_tasks: int | None = None

    @property
    def cost(self) -> str:
        shuffle = "no shuffle of rows"
        if self.settings.check_duplicates == "all" and self.settings.columns.query:
            shuffle = "a shuffle by query of about 2 K numbers a query, for queries that come twice"
        return f"{shuffle}; one pass through Python workers"

    cost_of_means = cost

    def rankings(self) -> DataFrame:
        """Cut the arrays of each query to two lists in one pass; `check_duplicates=all` shuffles the lists. Lazy."""
        task = RankingTask(
            settings=self.settings,
            rows=arrow_schema(self.rows.schema, self.rows.sparkSession),
            checks_duplicates=False,  # of lists that are cut; arrays are checked whole
        )
        rank = make_array_ranker(task) if RANKED_LIST in self.rows.columns else make_list_ranker(task)
        found = self.rows.mapInArrow(as_shipped(rank), schema=rankings_schema(self.settings, self.rows, None))
        if self.settings.check_duplicates != "all" or not self.settings.columns.query:
            return found
        return in_tasks(_refuse_repeats(found, self.settings), self.n_tasks)

    def summary(self) -> DataFrame:
        return summarize_rankings(self.rankings(), self.settings, n_tasks=self.n_tasks)


def _refuse_repeats(rankings: DataFrame, settings: EvaluationSettings) -> DataFrame:
    keys = ["run", *settings.columns.query]
    n_rows = F.sum("n_rows").over(Window.partitionBy(*columns_of(keys)))
    shown = key_text(
        keys if settings.columns.run is not None else settings.columns.query, {"run": str(settings.columns.run)}
    )
    message = ("query ", shown, " comes in ", n_rows.cast("string"), " rows; ", _ONE_ROW)
    return rankings.withColumn("n_rows", raise_if(F.col("n_rows"), n_rows > 1, *message, kind="bigint"))


def resolve_duplicates(
    rows: DataFrame, settings: EvaluationSettings, n_tasks: int | None = None, *, others: Sequence[str] = ()
) -> DataFrame:
    """Keep one valid row of each (query, item), and the number of `copies` it stands for. Lazy; one shuffle of rows.

    `best` keeps the best score (of judgments: the highest relevance), `first` the first in order. Ties go to the
    highest relevance, then the other rule, then what rows carry, so the choice does not depend on row order. Rejected
    rows become one for each query and segments.
    """
    policy = settings.convention.duplicates
    if ITEM not in rows.columns:
        return rows
    if policy == "first" and ORDER not in rows.columns:
        raise InvalidParameterError(
            f"duplicates=first needs the order column ({option('order')}) in the judgments too."
        )
    names = canonical_names(settings)
    keys = [name for name in (RUN, *names.query) if name in rows.columns]
    rest = [name for name in rows.columns if name not in (*keys, ITEM)]
    kept = F.min_by(F.struct(*columns_of(rest)), F.struct(*_preference(rows, rest, policy)))
    groups = columns_of([*keys, ITEM])
    if BAD_ROW in rows.columns:
        segments = columns_of([name for name in names.segments if name in rows.columns])
        groups.append(F.when(F.col(BAD_ROW).isNotNull(), F.struct(F.lit(True), *segments)).alias("rejected"))
    found = rows.groupBy(*groups).agg(kept.alias("kept"), F.count(F.lit(1)).alias(COPIES))
    flat = in_tasks(found, n_tasks).select(
        *columns_of([*keys, ITEM, COPIES]), *[F.col("kept").getField(name).alias(name) for name in rest]
    )
    if policy != "error":
        return flat
    message = ("item ", F.col(ITEM).cast("string"), " comes ", F.col(COPIES).cast("string"), " times in query ")
    text = key_text(keys, names.query)
    advice = advice_on_repeats("ranking" if {SCORE, RANK} & {*flat.columns} else "judgments", settings, others)
    guard = next(name for name in (SCORE, RANK, RELEVANCE) if name in flat.columns)
    kind = flat.schema[guard].dataType.simpleString()
    twice = F.col(COPIES) > 1
    if BAD_ROW in flat.columns:
        twice &= F.col(BAD_ROW).isNull()
    return flat.withColumn(guard, raise_if(named(guard), twice, *message, text, f". {advice}", kind=kind))


def other_columns(frame: DataFrame, settings: EvaluationSettings) -> tuple[str, ...]:
    """Columns that the settings do not use and that may name a ranker. Reads the schema, runs no action."""
    columns = settings.columns
    used = {*columns.query, *columns.score, *settings.segment_columns, columns.item, columns.rank, columns.relevance}
    used |= {columns.run, columns.weight, columns.order, MALFORMED}
    return tuple(
        one.name
        for one in frame.schema
        if one.name not in used
        and isinstance(one.dataType, T.StringType | T.IntegralType | T.BooleanType | T.DateType)
    )


def differing_columns(frame: DataFrame, settings: EvaluationSettings, query: str) -> list[str] | None:
    """Run an action (a scan): find unused columns in which rows of the same query and item differ, most items first.

    `query` is text such as `query_id=7`. Empty if no item comes twice; None if there is no such query.
    """
    others, item = other_columns(frame, settings), str(settings.columns.item)

    def differs(name: str) -> Column:
        """Whether the rows of an item have two values, of which one may be null."""
        column = named(name)
        return (F.min(column) != F.max(column)) | (F.count(column).between(1, F.count(F.lit(1)) - 1))

    rows = frame.where(key_text(settings.columns.query, {}) == query)
    flags = [F.coalesce(differs(name), F.lit(False)) for name in others]
    columns = [flag.cast("int").alias(f"differs_{at}") for at, flag in enumerate(flags)]
    items = rows.groupBy(named(item)).agg(F.count(F.lit(1)), *columns)
    sums = [F.sum(f"differs_{at}") for at in range(len(others))]
    n_items, *found = items.agg(F.count(F.lit(1)), *sums).collect()[0]
    if not n_items:
        return None
    return [name for n, name in sorted(zip(found, others, strict=True), key=lambda one: -one[0]) if n]


def _preference(rows: DataFrame, names: Sequence[str], policy: str) -> list[Column]:
    """What rows are compared by, all that a row has: of the row that is kept it is the smallest. Nulls come last."""
    by = [ORDER, RELEVANCE, RANK, SCORE] if policy == "first" else [RANK, SCORE, RELEVANCE, ORDER]
    carried = [name for name in names if name not in (*by, TOPICS_COLUMN)]
    found: list[Column] = []
    for name in [one for one in (*by, *carried, TOPICS_COLUMN) if one in names]:
        column = value = named(name)
        if name in (SCORE, RELEVANCE):  # the highest first; ~x cannot overflow, as -x can
            value = F.bitwise_not(column) if isinstance(rows.schema[name].dataType, T.IntegralType) else -column
        found += [column.isNull(), value]
    return found
