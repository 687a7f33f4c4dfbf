"""Exact retrieval with vectors and codes: the K best items of each query, and their evaluation with labels."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark.core.adapters import accepts_tables
from ndcg_spark.core.columns import (
    exact_col,
    is_ml_vector,
    normalize_zero,
    require_column,
    require_key_column,
    vector_column,
)
from ndcg_spark.core.flag import create_settings
from ndcg_spark.core.workers import EXCHANGE, arrow_schema, in_workers
from ndcg_spark.errors import InputRefusedError, InvalidParameterError, option
from ndcg_spark.evaluation.settings import MAX_K, EvaluationSettings, check_k
from ndcg_spark.evaluation.tasks.partial_ranking import QUERY_COUNTS
from ndcg_spark.evaluation.tasks.query_rows import WEIGHT
from ndcg_spark.retrieval.settings import Metric, RetrievalSettings, ZeroVector
from ndcg_spark.retrieval.tasks.merging import judge_pairs, merge_cells
from ndcg_spark.retrieval.tasks.searching import search_cells, send_rows
from ndcg_spark.retrieval.tasks.tables import ID, LABELS, N_ITEMS, N_QUERIES, SAME, VECTOR, RetrievalTask

_UNCOUNTED = 2**62


def retrieve_items(queries: DataFrame, corpus: DataFrame, settings: RetrievalSettings, *, k: int = 10) -> DataFrame:
    """Implement `retrieve`. Lazy."""
    try:
        is_valid = check_k(k) <= MAX_K
    except InvalidParameterError:  # k=all is not supported
        is_valid = False
    if not is_valid:
        raise InvalidParameterError(f"k must be a whole number from 1 to {MAX_K:,}; got {k!r}.")
    task = _build_task(queries, corpus, settings, k)
    schema = _build_key_schema(queries, corpus, settings).add("score", T.DoubleType()).add("rank", T.IntegerType())
    if settings.labels is not None:
        schema.add("relevance", T.DoubleType())
    return _CellSearch(queries, corpus, task).search(schema)


def _build_key_schema(queries: DataFrame, corpus: DataFrame, settings: RetrievalSettings) -> T.StructType:
    schema = T.StructType().add(settings.query, queries.schema[settings.query].dataType)
    return schema.add(settings.item, corpus.schema[settings.item].dataType)


def rank_corpus(
    queries: DataFrame, corpus: DataFrame, settings: RetrievalSettings, evaluation: EvaluationSettings
) -> DataFrame:
    """Implement `rank_by_retrieval`. Lazy."""
    _check_evaluation(settings, evaluation)
    weight = evaluation.columns.weight
    carried = {column: column for column in evaluation.carried_segments}
    if weight is not None:
        carried[WEIGHT] = weight
    task = _build_task(queries, corpus, settings, evaluation.max_k, evaluation=evaluation, carried=carried)
    numbers, counts = T.ArrayType(T.DoubleType()), T.ArrayType(T.LongType())
    schema = T.StructType().add("run", T.StringType())
    schema.add(settings.query, queries.schema[settings.query].dataType)
    for column in QUERY_COUNTS:
        schema.add(column, T.LongType())
    if evaluation.levels:
        schema.add("n_at_least", counts)
    for column, source in carried.items():
        schema.add(column, T.DoubleType() if column == WEIGHT else queries.schema[source].dataType)
    schema.add("ranked", numbers)
    if task.groups_ties:
        schema.add("scores", numbers).add("tied", counts)
    return _CellSearch(queries, corpus, task, carried).search(schema.add("ideal", numbers))


def list_labelled_items(queries: DataFrame, corpus: DataFrame, settings: RetrievalSettings) -> DataFrame:
    """Implement `judgments_from_labels`. Lazy."""
    if settings.labels is None:
        raise InvalidParameterError("judgments need labels, the column that defines relevance.")
    task = _build_task(queries, corpus, settings, 1)
    schema = _build_key_schema(queries, corpus, settings).add("relevance", T.DoubleType())
    return in_workers(_CellSearch(queries, corpus, task).build_cells(), judge_pairs, task, schema=schema)


@dataclass(frozen=True, slots=True)
class _CellSearch:
    """A search of two tables by cells: each block of queries with each stripe of the corpus."""

    queries: DataFrame
    corpus: DataFrame
    task: RetrievalTask
    carried: dict[str, str] | None = None

    def build_cells(self) -> DataFrame:
        """Pack blocks into the partitions of their stripes, sorted by cell, queries first. Lazy."""
        sizes = self.queries.agg(F.count(F.lit(1)).alias(N_QUERIES))
        if self.task.k is None:
            sizes = sizes.crossJoin(self.corpus.agg(F.count(F.lit(1)).alias(N_ITEMS)))
        else:
            sizes = sizes.withColumn(N_ITEMS, F.lit(_UNCOUNTED).cast("bigint"))
        sent = []
        for of_corpus in (False, True):
            rows = self._select_rows(of_corpus).crossJoin(F.broadcast(sizes))
            sent.append(in_workers(rows, send_rows, self.task, of_corpus, schema=EXCHANGE))
        exchanged, parts = sent[0].unionAll(sent[1]), self.task.settings.parts
        if hasattr(exchanged, "repartitionById"):
            partitioned = exchanged.repartitionById(parts, F.col("partition_id") % F.lit(parts))
        else:  # more partitions, because a hash may put several stripes into one
            partitioned = exchanged.repartition(8 * parts, F.col("partition_id") % F.lit(parts))
        return partitioned.sortWithinPartitions("partition_id", "kind")

    def search(self, schema: T.StructType) -> DataFrame:
        """Search the cells, and merge the results of each query. Lazy."""
        partial = in_workers(self.build_cells(), search_cells, self.task, schema=EXCHANGE)
        grouped = partial.repartition("partition_id").sortWithinPartitions("partition_id")
        return in_workers(grouped, merge_cells, self.task, schema=schema)

    def _select_rows(self, of_corpus: bool) -> DataFrame:
        """Select the canonical columns of a table."""
        settings = self.task.settings
        frame, other = (self.corpus, self.queries) if of_corpus else (self.queries, self.corpus)
        vector = None if settings.metric == "hamming" else vector_column(frame, settings.vector_column)
        if vector is None:  # an array or a code: `_find_vector_kind` refuses columns of other types
            vector = exact_col(settings.vector_column)
        columns = [exact_col(settings.item if of_corpus else settings.query).alias(ID), vector.alias(VECTOR)]
        for name, label in ((LABELS, settings.labels), (SAME, settings.same)):
            if label is not None:
                columns.append(_select_comparable(frame, other, label).alias(name))
        if not of_corpus:
            for name, label in (self.carried or {}).items():
                value = exact_col(label).cast("double") if name == WEIGHT else normalize_zero(frame, label)
                columns.append(value.alias(name))
        return frame.select(*columns)


def _check_evaluation(settings: RetrievalSettings, evaluation: EvaluationSettings) -> None:
    if settings.labels is None:
        raise InvalidParameterError("an evaluation needs labels, the column that defines relevance.")
    if evaluation.columns.query != (settings.query,):
        raise InvalidParameterError(
            f"the query column of the evaluation is {', '.join(evaluation.columns.query)}, but that of the retrieval "
            f"is {settings.query}; use the same column."
        )
    convention = evaluation.convention
    if evaluation.needs:
        raise InvalidParameterError(
            f"metric {evaluation.metric_with(evaluation.needs[0])!r} needs items: write the rankings, and evaluate "
            "them with the item table."
        )
    if convention.ties == "input_order" or convention.ideal == "unsorted":
        raise InvalidParameterError(f"convention {convention} needs the order of the input rows; choose other ties.")
    if evaluation.sample < 1:
        raise InvalidParameterError("sample is not supported by retrieval: filter the query table instead.")
    reserved = {ID, VECTOR, LABELS, SAME, N_QUERIES, N_ITEMS, "levels"}
    conflicting = [column for column in evaluation.carried_segments if column.lower() in reserved]
    if conflicting:
        raise InvalidParameterError(f"segment column {min(conflicting)!r} has a name that retrieval uses; rename it.")


def _build_task(
    queries: DataFrame,
    corpus: DataFrame,
    settings: RetrievalSettings,
    k: int | None,
    *,
    evaluation: EvaluationSettings | None = None,
    carried: dict[str, str] | None = None,
) -> RetrievalTask:
    """Check the schemas, and build the task that is shipped to workers."""
    for frame, column, part, table in (
        (queries, settings.query, option("query"), "query table"),
        (corpus, settings.item, option("item"), "corpus"),
    ):
        require_key_column(frame, column, part, table)
        data_type = frame.schema[column].dataType
        if isinstance(data_type, T.FractionalType | T.BooleanType | T.BinaryType | T.TimestampNTZType):
            raise InputRefusedError(
                f"column {column!r} ({part}) is {data_type.simpleString()}; cast it to text first."
            )
    if settings.query == settings.item:
        raise InvalidParameterError(f"query and item columns are both {settings.query!r}; rename one.")
    vector_kinds = _find_vector_kind(queries, settings, "query table"), _find_vector_kind(corpus, settings, "corpus")
    if vector_kinds[0] != vector_kinds[1] and settings.metric == "hamming":
        raise InputRefusedError(
            f"column {settings.vector_column!r} has {vector_kinds[0]} in the query table and {vector_kinds[1]} in "
            "the corpus; codes must have the same type."
        )
    if settings.same is not None:
        for frame, table in _name_tables(queries, corpus):
            require_column(frame, settings.same, option("same"), table)
    if settings.exclude_self:
        _select_comparable(
            queries.select(exact_col(settings.query).alias(ID)), corpus.select(exact_col(settings.item).alias(ID)), ID
        )
    for label in (carried or {}).values():
        require_key_column(queries, label, option("segments"), "query table")
    item = T.StructType([corpus.schema[settings.item]])
    return RetrievalTask(
        settings=settings,
        k=k,
        kind=vector_kinds[0],
        item_kind=vector_kinds[1],
        label_kind=_find_label_kind(queries, corpus, settings),
        evaluation=None if evaluation is None else evaluation.convention,
        carried=tuple(carried or {}),
        item_type=arrow_schema(item, corpus.sparkSession).field(0).type,
        levels=() if evaluation is None else evaluation.levels,
    )


def _find_label_kind(queries: DataFrame, corpus: DataFrame, settings: RetrievalSettings) -> str | None:
    if settings.labels is None:
        return None
    types = [
        require_column(frame, settings.labels, option("labels"), table)
        for frame, table in _name_tables(queries, corpus)
    ]
    are_arrays = [isinstance(data_type, T.ArrayType) for data_type in types]
    if are_arrays[0] != are_arrays[1]:
        raise InputRefusedError(f"column {settings.labels!r} is an array in one of the tables only.")
    return "array" if are_arrays[0] else "value"


def _name_tables(queries: DataFrame, corpus: DataFrame) -> tuple[tuple[DataFrame, str], tuple[DataFrame, str]]:
    return (queries, "query table"), (corpus, "corpus")


def _find_vector_kind(frame: DataFrame, settings: RetrievalSettings, table: str) -> str:
    """Return the kind of a vector column, as in `RetrievalTask.kind`."""
    column = settings.vector_column
    data_type = require_column(frame, column, option("vector"), table)
    element_type = data_type.elementType if isinstance(data_type, T.ArrayType) else None
    if settings.metric == "hamming":
        if isinstance(data_type, T.BinaryType):
            return "bytes"
        if isinstance(element_type, T.LongType):
            return "words"
        if isinstance(element_type, T.ByteType):
            return "signs"
        expected = "binary or array<bigint> (packed bits), or array<tinyint> (+1 and -1)"
    else:
        if is_ml_vector(data_type) or isinstance(element_type, T.DoubleType):
            return "doubles"
        if isinstance(element_type, T.FloatType):
            return "floats"
        if isinstance(element_type, T.NumericType):
            return "doubles"
        expected = "an array of numbers or a vector of pyspark.ml"
    raise InputRefusedError(
        f"column {column!r} ({option('vector')}) of the {table} is {data_type.simpleString()}; "
        f"{option('metric', settings.metric)} needs {expected}."
    )


def _select_comparable(frame: DataFrame, other: DataFrame, column: str) -> Column:
    """Return a column whose values are compared between the tables, cast to their common type."""
    data_type, other_type = frame.schema[column].dataType, other.schema[column].dataType
    if isinstance(data_type, T.ArrayType):
        if not isinstance(data_type.elementType, T.IntegralType | T.BooleanType):
            raise InputRefusedError(f"column {column!r} is {data_type.simpleString()}; labels are 0 and 1.")
        # Workers refuse labels other than 0 and 1; a cast to a narrower type could hide them.
        is_wide = isinstance(data_type.elementType, T.LongType)
        return exact_col(column) if is_wide else exact_col(column).cast("array<int>")
    if data_type == other_type:
        return normalize_zero(frame, column)
    if isinstance(data_type, T.IntegralType) and isinstance(other_type, T.IntegralType):
        return exact_col(column).cast("bigint")
    raise InputRefusedError(
        f"column {column!r} is {data_type.simpleString()} in one table and {other_type.simpleString()} in the other; "
        "cast one of them so that values compare."
    )


@accepts_tables
def retrieve(
    queries: DataFrame,
    corpus: DataFrame,
    *,
    k: int = 10,
    metric: Metric = "cosine",
    query: str = "query_id",
    item: str = "item_id",
    vector: str | None = None,
    labels: str | None = None,
    same: str | None = None,
    exclude_self: bool = False,
    zero_vector: ZeroVector = "bad",
    parts: int = 4,
    block_bytes: int = 2**25,
    held_pairs: int = 2**21,
) -> DataFrame:
    """Find the k best items of each query, by exact search.

    Parameters
    ----------
    queries : DataFrame
        One row per query: its identifier, a vector (array<double>, array<float>, or a `pyspark.ml` vector) or a code
        (binary or array<bigint> with packed bits, array<tinyint> of +1 and -1), and optionally the columns `labels`
        and `same`.
    corpus : DataFrame
        One row per item, with the same columns.
    k : int
        Number of items per query. A smaller corpus is returned as a whole.
    metric, query, item, vector, labels, same, exclude_self, zero_vector, parts, block_bytes, held_pairs
        As in `RetrievalSettings`.

    Returns
    -------
    DataFrame
        One row per (query, item): the query and item columns, `score` (double, higher is better), `rank` (int, from
        1), and `relevance` (double) with `labels`. Ties go to the smaller identifier; text compares by bytes. Lazy.

    Raises
    ------
    MissingColumnError, InputRefusedError, InvalidParameterError
        If the schemas are not valid. Bad rows raise when an action reaches them; see `readable_errors`. Bad rows are:
        a null identifier, vector, label or filter value; an empty vector; a null, NaN or infinity in a vector; a
        vector of zeros under `cosine` (unless `zero_vector=zero`); under `inner` and `euclidean`, a sum of squares
        above 1e300, or below 1e-280 and not 0; an entry of array<tinyint> other than +1 and -1; a label other than 0
        and 1; vectors or labels of different lengths; a repeated query or retrieved item.

    Notes
    -----
    Spark cost: no action. The queries are scanned once more, to count them. There are two shuffles, of packed blocks
    (the corpus once for each 16,384 queries) and of K entries per query and stripe, and three passes through Python
    workers.
    """
    return retrieve_items(queries, corpus, create_settings(RetrievalSettings, dict(locals())), k=k)


@accepts_tables
def rank_by_retrieval(
    queries: DataFrame,
    corpus: DataFrame,
    evaluation: EvaluationSettings,
    *,
    labels: str,
    metric: Metric = "cosine",
    query: str = "query_id",
    item: str = "item_id",
    vector: str | None = None,
    same: str | None = None,
    exclude_self: bool = False,
    zero_vector: ZeroVector = "bad",
    run: str = "",
    parts: int = 4,
    block_bytes: int = 2**25,
    held_pairs: int = 2**21,
) -> DataFrame:
    """Rank the corpus for each query, for `score_queries` and `summarize_rankings`.

    Labels judge the whole corpus, so the ideal list is that of the corpus. Tied items are kept as counts per score
    and relevance, which add up across blocks, instead of as lists.

    Parameters
    ----------
    queries, corpus : DataFrame
        As for `retrieve`. Segment and weight columns of the evaluation are columns of `queries`.
    evaluation : EvaluationSettings
        Cutoffs and conventions. Its query column must be `query`. `ties=input_order` and `ideal=unsorted` are
        refused.
    labels : str
        Column of the labels in both tables.
    metric, query, item, vector, same, exclude_self, zero_vector, run, parts, block_bytes, held_pairs
        As in `RetrievalSettings`.

    Returns
    -------
    DataFrame
        As for `rank_queries`, one row per query; the column `run` is `run`. Lazy.

    Notes
    -----
    Spark cost: as for `retrieve`. Without a cutoff (k=all), the corpus is counted, too. Workers then hold a count per
    query, distance and relevance for codes, but the score of each item for vectors.
    """
    return rank_corpus(queries, corpus, create_settings(RetrievalSettings, dict(locals())), evaluation)


@accepts_tables
def judgments_from_labels(
    queries: DataFrame,
    corpus: DataFrame,
    *,
    labels: str,
    metric: Metric = "cosine",
    query: str = "query_id",
    item: str = "item_id",
    vector: str | None = None,
    same: str | None = None,
    exclude_self: bool = False,
    zero_vector: ZeroVector = "bad",
    parts: int = 4,
    block_bytes: int = 2**25,
    held_pairs: int = 2**21,
) -> DataFrame:
    """List the relevant items of each query in the whole corpus: a judgments table for the rows of `retrieve`.

    Parameters
    ----------
    queries, corpus : DataFrame
        As for `retrieve`.
    labels : str
        Column of the labels in both tables.
    metric, query, item, vector, same, exclude_self, zero_vector, parts, block_bytes, held_pairs
        As in `RetrievalSettings`.

    Returns
    -------
    DataFrame
        The query and item columns, and `relevance` (double, above 0). A query without relevant items has no rows: it
        is unjudged, and counts as 0 under the convention `"default;unjudged_query=zero"`. Lazy.

    Notes
    -----
    Spark cost: no action; one shuffle of packed blocks and two passes through Python workers. The result may be
    large: `rank_by_retrieval` evaluates without it.
    """
    return list_labelled_items(queries, corpus, create_settings(RetrievalSettings, dict(locals())))
