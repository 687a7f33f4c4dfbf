"""From tables to rankings: the one entry to every strategy."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark.core.expressions import columns_of, named
from ndcg_spark.core.session_settings import session_here
from ndcg_spark.core.streams import refuses_streams
from ndcg_spark.core.task_limit import task_limit
from ndcg_spark.core.workers import as_shipped
from ndcg_spark.errors import InvalidParameterError, option
from ndcg_spark.evaluation.frames.arrays import Arrays, array_rows
from ndcg_spark.evaluation.frames.canonical import judgment_rows, require_carried, run_rows, with_common_keys
from ndcg_spark.evaluation.frames.duplicates import other_columns, resolve_duplicates
from ndcg_spark.evaluation.frames.engine import Engine
from ndcg_spark.evaluation.frames.scoring import score_queries
from ndcg_spark.evaluation.frames.source import SparkSource, choose_source, require_spark_allowed
from ndcg_spark.evaluation.frames.summary import summarize, summarize_rankings
from ndcg_spark.evaluation.frames.window import Windows
from ndcg_spark.evaluation.items.items import (
    ItemTables,
    check_item_tables,
    item_costs,
    topics_column,
    with_item_features,
)
from ndcg_spark.evaluation.settings import EvaluationPlan
from ndcg_spark.evaluation.tasks.column_names import BAD_ROW, COPIES, ORDER, RUN, SCORE, bad_row_of, canonical_names
from ndcg_spark.evaluation.tasks.partial_ranking import N_REJECTED
from ndcg_spark.evaluation.tasks.valid_rows import RowRules, make_row_marker, make_valid_rows
from ndcg_spark.metrics.base import TOPICS
from ndcg_spark.sources.formats import read_path
from ndcg_spark.sources.parquet import PART_SIZES, PartSizes


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """How a table is ranked, decided once; nothing of it has run.

    The strategy is `engine`, `window` or `arrays`; the source, which reads the table, `spark` or `parquet`; the
    reason is for `--explain`; `n_tasks` is as of `task_limit`.
    """

    strategy: str
    source: str
    reason: str
    steps: Engine | Windows | Arrays
    tables: ItemTables
    n_tasks: int | None = None

    @property
    def fell_back(self) -> bool:
        """Whether workers were to read objects of a store, and Spark has to."""
        source = self.steps.source if isinstance(self.steps, Engine) else None
        return isinstance(source, SparkSource) and source.fell_back

    def costs(self, *, means_only: bool) -> list[str]:
        """What ranking costs, in clauses for a person; `means_only`: no metrics of queries are asked for."""
        plan = self.steps.plan
        found = [self.steps.cost_of_means if means_only and not plan.needs else self.steps.cost]
        if plan.resolves_duplicates and not isinstance(self.steps, Arrays):  # they tell their own cost
            tables = "all rows" if self.tables.of_runs else "all rows, and of all judgments,"
            found.append(
                f"a shuffle of {tables} by (query, item) for duplicates, after a pass through Python workers"
            )
        return found + item_costs(plan, self.tables)

    def rows(self) -> DataFrame:
        """Canonical rows of the main table, not checked yet; lazy."""
        return self.steps.source.rows if isinstance(self.steps, Engine) else self.steps.rows

    def rankings(self, *, rejected: bool = False) -> DataFrame:
        """One row a query; lazy. See `rank_queries`.

        `rejected`: with `n_rejected`, and with rows for queries that lost all their rows, and for rejected rows that
        have no query. A summary needs them.
        """
        found, plan = self.steps.rankings(), self.steps.plan
        found = with_item_features(found, plan, self.tables) if plan.needs else found
        if rejected or N_REJECTED not in found.columns:
            return found
        return found.where("n_rows > 0 OR n_judged > 0").drop(N_REJECTED)

    def per_query(self, *, rejected: bool = False) -> DataFrame:
        """Metrics of every query; lazy. See `score_queries`; `rejected` as for `rankings`."""
        return score_queries(self.rankings(rejected=rejected), self.steps.plan)

    def summary(self, per_query: DataFrame | None = None) -> DataFrame:
        """Summary of all metrics; lazy. `per_query`: metrics of queries, with `rejected`, if these are kept."""
        plan = self.steps.plan
        if per_query is not None:
            return summarize(per_query, plan, items=self.tables.items, n_tasks=self.n_tasks)
        if plan.needs:
            rankings = self.rankings(rejected=True)
            return summarize_rankings(rankings, plan, items=self.tables.items, n_tasks=self.n_tasks)
        return self.steps.summary()


@refuses_streams
def rank_queries(
    data: DataFrame | str | os.PathLike[str],
    plan: EvaluationPlan,
    *,
    judgments: DataFrame | None = None,
    items: DataFrame | None = None,
    interactions: DataFrame | None = None,
    parse_text: bool = False,
    parse_judgment_text: bool = False,
) -> DataFrame:
    """Rank every query: one row per (run, query), with the lists that metrics are computed from.

    Parameters
    ----------
    data : DataFrame, str or path
        A long table, a run, or one row per query with arrays. A string is the path of Parquet files.
    plan : EvaluationPlan
    judgments : DataFrame or None
        Query, item and relevance, if the main table has no relevances.
    items, interactions : DataFrame or None
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
          `ndcg_spark.evaluation.items.items.with_item_features`.

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
        plan,
        judgments=judgments,
        items=items,
        interactions=interactions,
        parse_text=parse_text,
        parse_judgment_text=parse_judgment_text,
    ).rankings()


def choose_ranking(
    data: DataFrame | str | os.PathLike[str],
    plan: EvaluationPlan,
    *,
    judgments: DataFrame | None = None,
    items: DataFrame | None = None,
    interactions: DataFrame | None = None,
    path: str | None = None,
    parse_text: bool = False,
    parse_judgment_text: bool = False,
    sizes: PartSizes = PART_SIZES,
) -> Ranking:
    """Decide how a table is ranked. Reads schemas, and footers of files that were given by their path.

    Options are those of `rank_queries`; `path` is what a DataFrame was read from, where the user gave Parquet files,
    which are divided into parts of `sizes`.
    """
    if not isinstance(data, DataFrame) and isinstance(data, str | os.PathLike):
        path = os.fspath(data)
        spark = session_here() if judgments is None else judgments.sparkSession
        frame = read_path(spark, path)
    else:
        frame = data
    tables = ItemTables(
        items=items,
        interactions=interactions,
        relevances=frame if judgments is None else judgments,
        of_runs=judgments is None,
    )
    check_item_tables(plan, tables)
    n_tasks = task_limit(frame, judgments)
    strategy, source, reason, steps = _chosen(
        *(frame, plan, judgments, path, sizes, n_tasks),
        parse_text=parse_text,
        parse_judgment_text=parse_judgment_text,
    )
    if TOPICS in plan.needs:
        judged = _rows_with_topics(plan, tables, parse_text=parse_text if judgments is None else parse_judgment_text)
        tables = replace(tables, rows_with_topics=judged)
    return Ranking(strategy=strategy, source=source, reason=reason, steps=steps, tables=tables, n_tasks=n_tasks)


def _chosen(
    frame: DataFrame,
    plan: EvaluationPlan,
    judgments: DataFrame | None,
    path: str | None,
    sizes: PartSizes,
    n_tasks: int | None,
    *,
    parse_text: bool,
    parse_judgment_text: bool,
) -> tuple[str, str, str, Engine | Windows | Arrays]:
    """Strategy, source, the reason, and the steps."""
    relevance = plan.columns.relevance
    if relevance in frame.columns and isinstance(frame.schema[relevance].dataType, T.ArrayType):
        _refuse_beside_arrays(plan, judgments)
        require_carried(plan, frame)
        require_spark_allowed(plan, f"column {relevance!r} is an array")
        reason = f"column {relevance!r} is an array: each row is scored where it is"
        return "arrays", "spark", reason, Arrays(plan=plan, rows=array_rows(frame, plan), n_tasks=n_tasks)
    if plan.columns.ideal is not None:
        raise InvalidParameterError(
            f"column {relevance!r} is no array of relevances, so nothing reads {plan.columns.ideal!r} "
            f"({option('ideal')}); leave it out."
        )
    if plan.convention.ideal == "unsorted":
        raise InvalidParameterError("ideal=unsorted needs arrays: a column of relevances and one of judged ones.")
    require_carried(plan, frame, *([] if judgments is None else [judgments]))
    rows = run_rows(frame, plan, judged=judgments is None, parse_text=parse_text)
    judged, others = None, other_columns(frame, plan)
    if judgments is not None:
        judged = judgment_rows(judgments, plan, parse_text=parse_judgment_text)
        rows, judged = with_common_keys(rows, judged, plan)
    if plan.resolves_duplicates:
        rows = resolve_duplicates(_checked(long_rows(rows, plan), plan), plan, n_tasks, others=others)
        if judged is not None:
            judged = resolve_duplicates(valid_only(judged, RowRules(plan, True)), plan, n_tasks).drop(COPIES, ORDER)
    if plan.strategy == "window":
        require_spark_allowed(plan, "strategy=window ranks in Spark")
        rows = _checked(long_rows(rows, plan), plan)
        judged = None if judged is None else valid_only(judged, RowRules(plan, True))
        windows = Windows(plan=plan, rows=rows, judgments=judged, n_tasks=n_tasks, others=others)
        return "window", "spark", "the reference was asked for", windows
    source = choose_source(frame, plan, rows, path=path, judged=judgments is None, n_tasks=n_tasks, sizes=sizes)
    engine = Engine(plan=plan, source=source, judgments=judged, others=others)
    return "engine", source.name, source.reason, engine


def _refuse_beside_arrays(plan: EvaluationPlan, judgments: DataFrame | None) -> None:
    """Refuse what a table of arrays cannot be ranked with."""
    if judgments is not None:
        raise InvalidParameterError("arrays of relevances need no judgments table.")
    if len(plan.columns.score) > 1:
        raise InvalidParameterError(
            f"{option('score')} names {', '.join(plan.columns.score)}: arrays of relevances are in rank order "
            "and have no scores; leave it out, and put the lists of each ranker in rows of their own "
            f"({option('run')})."
        )


def _rows_with_topics(plan: EvaluationPlan, tables: ItemTables, *, parse_text: bool) -> DataFrame:
    """Rows of the table with the relevances, and topics: those rows that are ranked or judge, and no others.

    If nothing is left out, these are all rows, unchecked: ranking refuses bad ones anyway.
    """
    frame, topics = tables.relevances, topics_column(plan, tables)
    chooses = plan.convention.duplicates != "error"
    if tables.of_runs:
        rows = run_rows(frame, plan, judged=True, parse_text=parse_text, topics=topics)
    else:
        rows = judgment_rows(frame, plan, parse_text=parse_text, topics=topics)
    if chooses or plan.on_invalid == "reject":
        rows = long_rows(rows, plan) if tables.of_runs else rows
        rows = valid_only(rows, RowRules(plan, judgments=not tables.of_runs))
    return resolve_duplicates(rows, plan) if chooses else rows


def long_rows(rows: DataFrame, plan: EvaluationPlan) -> DataFrame:
    """One row for each score column, which is a run; any other table, and one that is long already, as it is."""
    scores = canonical_names(plan).scores
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


def _checked(rows: DataFrame, plan: EvaluationPlan) -> DataFrame:
    """Valid rows of the main table; rejected ones are marked, so that they are counted."""
    if plan.on_invalid == "fail":
        return valid_only(rows, RowRules(plan))
    kept = [T.StructField(one.name, one.dataType) for one in rows.schema if one.name != BAD_ROW]
    schema = T.StructType([*kept, T.StructField(BAD_ROW, T.StringType())])
    return rows.mapInArrow(as_shipped(make_row_marker(RowRules(plan))), schema=schema)


def valid_only(rows: DataFrame, rules: RowRules) -> DataFrame:
    """Keep the valid rows: one pass through Python workers."""
    kept = [one for one in rows.schema if one.name != BAD_ROW]
    return rows.mapInArrow(as_shipped(make_valid_rows(rules)), schema=T.StructType(kept))
