"""The front door for notebooks: one call, lazy DataFrames."""

from __future__ import annotations

import difflib
import logging
import os
from collections.abc import Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, overload

from ndcg_spark.conventions import Convention
from ndcg_spark.core.arrow_tables import ArrowTable
from ndcg_spark.core.engine import EngineName, find_spark_hint, has_pyspark, require_spark, resolve_engine
from ndcg_spark.core.flag import OnInvalid, list_settings, to_tuple
from ndcg_spark.core.given import is_spark_table, refuses_streams
from ndcg_spark.errors import InvalidParameterError, option
from ndcg_spark.evaluation.local import LocalRanking, Resources, rank_locally
from ndcg_spark.evaluation.results import LocalEvaluation
from ndcg_spark.evaluation.settings import (
    Columns,
    DuplicateCheck,
    EvaluationSettings,
    ItemColumns,
    NullScore,
    Source,
    Strategy,
    parse_cutoffs,
    parse_metrics,
    parse_segment_sets,
    refuse_unread_k,
    refuse_unread_options,
)
from ndcg_spark.sources.local import LocalTable, open_local, open_memory_table
from ndcg_spark.sources.references import format_reference

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ndcg_spark.evaluation.spark_results import Evaluation

_log = logging.getLogger("ndcg_spark")


COLUMN_OPTIONS, ITEM_OPTIONS, SETTING_OPTIONS = (
    tuple(one.field for one in list_settings(settings) if not one.is_nested)
    for settings in (Columns, ItemColumns, EvaluationSettings)
)
_PARSED_OPTIONS = ("k", "metrics", "segments", *COLUMN_OPTIONS, *ITEM_OPTIONS)
OPTIONS = (
    *_PARSED_OPTIONS,
    *(name for name in SETTING_OPTIONS if name not in ("cutoffs", "segment_sets", "metrics")),
)
"""Arguments of `evaluate` that say how rankings are evaluated."""
_Table: TypeAlias = "DataFrame | ArrowTable | str | os.PathLike[str]"
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
        close_matches = difflib.get_close_matches(unknown[0], OPTIONS, n=1)
        hint = f" Did you mean {close_matches[0]!r}?" if close_matches else ""
        raise InvalidParameterError(f"there is no option {unknown[0]!r}.{hint}")
    columns = {argument: options[argument] for argument in COLUMN_OPTIONS if argument in options}
    for argument in ("query", "score", "ranked"):
        if argument in columns:
            columns[argument] = () if columns[argument] is None else to_tuple(argument, columns[argument])
    k, metric_names = options.get("k"), options.get("metrics")
    metrics, cutoffs = (
        ((), parse_cutoffs(10 if k is None else k)) if metric_names is None else parse_metrics(metric_names, k)
    )
    return EvaluationSettings(
        columns=Columns(**columns),
        item_columns=ItemColumns(**{argument: options[argument] for argument in ITEM_OPTIONS if argument in options}),
        convention=Convention.parse(options.get("convention", "default")),
        cutoffs=cutoffs,
        metrics=metrics,
        segment_sets=parse_segment_sets(options.get("segments", ())),
        **{
            argument: value for argument, value in options.items() if argument not in (*_PARSED_OPTIONS, "convention")
        },
    )


@overload
def evaluate(
    data: DataFrame, judgments: _Table | None = None, *, engine: Literal["auto", "spark"] = "auto", **options: Any
) -> Evaluation: ...
@overload
def evaluate(
    data: _Table, judgments: DataFrame, *, engine: Literal["auto", "spark"] = "auto", **options: Any
) -> Evaluation: ...
@overload
def evaluate(
    data: _Table, judgments: _Table | None = None, *, engine: Literal["spark"], **options: Any
) -> Evaluation: ...
@overload
def evaluate(
    data: _Table, judgments: _Table | None = None, *, engine: Literal["local"], **options: Any
) -> LocalEvaluation: ...
@overload
def evaluate(
    data: ArrowTable,
    judgments: ArrowTable | None = None,
    *,
    items: None = None,
    interactions: None = None,
    engine: Literal["auto"] = "auto",
    **options: Any,
) -> LocalEvaluation: ...
@overload
def evaluate(
    data: _Table, judgments: _Table | None = None, *, engine: EngineName = "auto", **options: Any
) -> Evaluation | LocalEvaluation: ...
@refuses_streams  # type: ignore[misc] # it takes the options by name, which are too many to list in each form
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
    engine: EngineName = "auto",
) -> Evaluation | LocalEvaluation:
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
    engine : {"auto", "local", "spark"}
        Who ranks. `local` is this machine, without Spark and Java; all numbers are the same. `auto` takes Spark for
        DataFrames of Spark and for paths (where PySpark is not installed, this machine reads them), and this machine
        for tables of pandas, polars and Arrow, unless what is asked for needs Spark. The environment variable
        `NDCG_SPARK_ENGINE` sets what `auto` is.

    Returns
    -------
    Evaluation or LocalEvaluation
        Lazy DataFrames of Spark, or tables of Arrow that are computed when they are asked for.

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
    arguments = dict(locals())
    settings = evaluation_settings(
        **{argument: value for argument, value in arguments.items() if argument in OPTIONS}
    )
    other_tables = {
        argument: arguments[argument]
        for argument in ("judgments", "items", "interactions")
        if arguments[argument] is not None
    }
    tables = {"data": data, **other_tables}
    rankings = choose_engine(tables, [settings], engine, "evaluate")
    if rankings is not None:
        (ranking,) = rankings
        evaluation: Evaluation | LocalEvaluation = LocalEvaluation(
            settings=ranking.fitted, ranking=ranking, given=tables
        )
    else:
        from ndcg_spark.evaluation.spark_results import evaluate_on_spark

        evaluation = evaluate_on_spark(tables, settings)
    refuse_unread_options(evaluation.settings)
    if k is not None and metrics is not None:
        refuse_unread_k(metrics)
    return evaluation


def choose_engine(
    tables: Mapping[str, Any], settings_list: Sequence[EvaluationSettings], engine: EngineName, action: str
) -> list[LocalRanking] | None:
    """Rank tables and paths on this machine by each of some settings, if that is asked for and possible.

    None leaves it to Spark. Tables in memory are ranked here, and paths where PySpark is not installed; `engine`, or
    else the environment variable `NDCG_SPARK_ENGINE`, says otherwise. `what`, a verb, is for refusals.
    """
    requested, origin = resolve_engine(engine, option("engine", repr(engine)))
    obstacle = f"{origin} was asked for" if requested == "spark" else _find_obstacle(tables, requested)
    if obstacle is None:
        opened = {_TABLE_LABELS[name]: _open_table(name, table) for name, table in tables.items()}
        clauses = [one for one in opened.values() if isinstance(one, str)]
        local = {name: one for name, one in opened.items() if isinstance(one, LocalTable)}
        obstacle = clauses[0] if clauses else find_memory_obstacle(local) if requested == "auto" else None
    if obstacle is None:
        rankings = [rank_locally(local, settings) for settings in settings_list]
        obstacle = next((one for one in rankings if isinstance(one, str)), None)
        if obstacle is None:
            return [one for one in rankings if isinstance(one, LocalRanking)]
    require_spark(obstacle, requested, origin, action)
    return None


_TABLE_LABELS = {"data": "input", "judgments": "judgments"}


def _find_obstacle(tables: Mapping[str, Any], engine: str) -> str | None:
    """Say in a clause why Spark has to evaluate tables, from what they are."""
    if any(map(is_spark_table, tables.values())):
        return "a table is one of Spark"
    if tables.keys() - _TABLE_LABELS.keys():
        return "metrics of items are joined in Spark"
    if engine == "auto" and has_pyspark() and any(map(_is_reference, tables.values())):
        return "Spark reads paths unless engine='local' is asked for"
    return None


def _is_reference(table: object) -> bool:
    return isinstance(table, str | os.PathLike)


def _open_table(name: str, table: Any) -> LocalTable | str:
    label = "input" if name == "data" else name
    if _is_reference(table):
        return open_local(format_reference(table), label=label)
    return open_memory_table(table, name, label=label, or_path=True)


def find_memory_obstacle(tables: Mapping[str, LocalTable]) -> str | None:
    """Say in a clause that an active session should take large tables; log a line."""
    limit = Resources.from_machine().memory
    n_bytes = sum(table.n_bytes for table in tables.values() if not table.name)
    if n_bytes <= limit or find_spark_hint() is None:
        return None
    _log.warning("tables of %d MB, above a quarter of the memory, go to the active Spark session", n_bytes // 2**20)
    return "tables are above a quarter of the memory, and a session is active"
