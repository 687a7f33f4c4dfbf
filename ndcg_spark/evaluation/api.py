"""`evaluate`, the entry point for notebooks."""

from __future__ import annotations

import difflib
import logging
import os
from collections.abc import Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, overload

from ndcg_spark.conventions import Convention
from ndcg_spark.core.adapters import is_spark_table, refuses_streams
from ndcg_spark.core.arrow_tables import ArrowTable
from ndcg_spark.core.engine import EngineName, find_spark_hint, has_pyspark, require_spark, resolve_engine
from ndcg_spark.core.flag import OnInvalid, list_settings, to_tuple
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
    tuple(option_field.field for option_field in list_settings(settings) if not option_field.is_nested)
    for settings in (Columns, ItemColumns, EvaluationSettings)
)
_PARSED_OPTIONS = ("k", "metrics", "segments", *COLUMN_OPTIONS, *ITEM_OPTIONS)
OPTIONS = (
    *_PARSED_OPTIONS,
    *(name for name in SETTING_OPTIONS if name not in ("cutoffs", "segment_sets", "metrics")),
)
"""Arguments of `evaluate` that are settings, not tables."""
_Table: TypeAlias = "DataFrame | ArrowTable | str | os.PathLike[str]"
Cutoffs: TypeAlias = int | str | Sequence[int | str | None] | None


def evaluation_settings(**options: Any) -> EvaluationSettings:
    """Build settings from arguments of `evaluate`.

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
        raise InvalidParameterError(f"unknown option {unknown[0]!r}.{hint}")
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
@refuses_streams  # type: ignore[misc] # the overloads take options as **options: there are too many to repeat
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
        A long table (query, item, score or rank, relevance); a run without relevances, together with `judgments`;
        one row per query with lists of items (`ranked`); or one row per query with an array of relevances in rank
        order. A string is a path, the name of a table or a SQL query, as for `read_table`. Python workers read
        Parquet files directly if possible, which is fastest. The files must all be at the top level of a path, or all
        in `name=value` folders of the same depth; such a column is text unless all values are numbers or dates.
    judgments : DataFrame, other table, str or path, or None
        Query, item and relevance, under the same column names.
    items : DataFrame, other table, str or path, or None
        The catalogue, one row per item, with the columns that metrics need: `vector`, `categories`, `first_seen`.
    interactions : DataFrame, other table, str or path, or None
        Earlier interactions, one row per user and item, for `novelty` and `first_new`.
    k : int, `"all"`, a sequence of these, or None
        Cutoffs, computed in one pass; `"all"` is the whole list, and `"1,3"` means `[1, 3]`. Default: 10; with
        `metrics`, the whole list for names without `@`.
    metrics : str or sequence of str
        Metrics to compute in the same pass, such as `["ndcg@10", "ap@100", "p(rel=2)@5", "rr"]`; names of ir_measures
        are understood. A name without `@` is computed at each `k` if `k` is set, else on the whole list.
        Default: `ndcg`, `dcg` and `idcg` at each `k`.
    convention : str or Convention
        Name of a preset, with changes after semicolons: `"trec_eval;gain=exponential"`.
    segments : str or sequence of str
        Columns to group means by, constant within a query; `"a+b"` groups by both together.
    query, item, score, rank, relevance, ideal, run, weight, order : str
        Column names, as in `Columns`. Defaults: `query_id`, `item_id`, `score` and `relevance`; the others are not
        used. A sequence of names makes a composite query key, or one run of each score column.
    ranked : str or sequence of str
        Columns of lists, instead of `item` and `score`: arrays of ids in rank order, or arrays of structs. The id is
        the field named by `item`; if that is missing, the first field that is not the score, rank or grade. Items
        are ranked by the field named by `score`, else by a field `score`, `rating` or `rank`; without any of these,
        by their position. Several columns are evaluated as one run each. Without a query column, each row is a query.
    relevant : str
        Column of the relevant items of a row of lists: an array of ids (grade 1); an array of structs of an id
        and a grade (`relevance`, `grade` or `rating`); or a map from id to grade. With `judgments`, it
        is a column of that table, which then has one row per query.
    vector, categories, first_seen, topics, user : str
        Column names, as in `ItemColumns`, for metrics that need items, topics or interactions.
    as_of : date
        The day up to which `first_appearance` counts ages.
    strategy, source, on_invalid, null_score, check_duplicates, allow_unmatched, confidence, sample, tie_bounds
        As in `EvaluationSettings`.
    engine : {"auto", "local", "spark"}
        Engine that ranks. `local` is this machine, without Spark and Java; all numbers are identical. `auto` uses
        Spark for Spark DataFrames and for paths (this machine if PySpark is not installed), and this machine for
        tables of pandas, polars and Arrow, unless an option needs Spark. The environment variable
        `NDCG_SPARK_ENGINE` overrides `auto`.

    Returns
    -------
    Evaluation or LocalEvaluation
        Lazy Spark DataFrames, or Arrow tables that are computed on first access.

    Raises
    ------
    MissingColumnError, InputRefusedError, InvalidParameterError
        For errors in options and schemas. Bad rows raise in the action; see `readable_errors`.

    Notes
    -----
    Spark cost: none until an action; then the cost of `rank_queries`, `score_queries` and `summarize`. If `data` is a
    path, the footers of its files are read immediately, in an object store by a small job. Item metrics add a join of
    the first K items of each query with the tables they need, and a shuffle to group them by query again;
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
            settings=ranking.fitted, ranking=ranking, inputs=tables
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
    """Plan the ranking on this machine for each of the settings; return None if Spark has to rank.

    By default this machine ranks tables in memory, and paths if PySpark is not installed. `engine`, or else the
    environment variable `NDCG_SPARK_ENGINE`, overrides this. `action`, a verb, is for messages.
    """
    requested, origin = resolve_engine(engine, option("engine", repr(engine)))
    obstacle = f"{origin} was requested" if requested == "spark" else _find_obstacle(tables, requested)
    if obstacle is None:
        opened = {_TABLE_LABELS[name]: _open_table(name, table) for name, table in tables.items()}
        clauses = [table for table in opened.values() if isinstance(table, str)]
        local = {label: table for label, table in opened.items() if isinstance(table, LocalTable)}
        obstacle = clauses[0] if clauses else find_memory_obstacle(local) if requested == "auto" else None
    if obstacle is None:
        rankings = [rank_locally(local, settings) for settings in settings_list]
        obstacle = next((ranking for ranking in rankings if isinstance(ranking, str)), None)
        if obstacle is None:
            return [ranking for ranking in rankings if isinstance(ranking, LocalRanking)]
    require_spark(obstacle, requested, origin, action)
    return None


_TABLE_LABELS = {"data": "input", "judgments": "judgments"}


def _find_obstacle(tables: Mapping[str, Any], engine: str) -> str | None:
    """Return in a clause why tables of these kinds need Spark, or None."""
    if any(map(is_spark_table, tables.values())):
        return "a table is a Spark DataFrame"
    if tables.keys() - _TABLE_LABELS.keys():
        return "metrics of items are joined in Spark"
    if engine == "auto" and has_pyspark() and any(map(_is_reference, tables.values())):
        return "Spark reads paths unless engine='local' is set"
    return None


def _is_reference(table: object) -> bool:
    return isinstance(table, str | os.PathLike)


def _open_table(name: str, table: Any) -> LocalTable | str:
    label = "input" if name == "data" else name
    if _is_reference(table):
        return open_local(format_reference(table), label=label)
    return open_memory_table(table, name, label=label, or_path=True)


def find_memory_obstacle(tables: Mapping[str, LocalTable]) -> str | None:
    """Return in a clause why large tables go to an active Spark session, or None; log the reason."""
    limit = Resources.from_machine().memory
    n_bytes = sum(table.n_bytes for table in tables.values() if not table.name)
    if n_bytes <= limit or find_spark_hint() is None:
        return None
    _log.warning("tables of %d MB, above a quarter of the memory, go to the active Spark session", n_bytes // 2**20)
    return "tables are above a quarter of the memory, and a session is active"
