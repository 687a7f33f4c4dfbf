"""Exact retrieval by vectors and codes: the K best items of each query, and their evaluation by labels."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark.core.columns import comparable, comparable_key, is_ml_vector, named, require_column, vector_column
from ndcg_spark.core.flag import settings_from
from ndcg_spark.core.given import takes_tables
from ndcg_spark.core.workers import EXCHANGE, arrow_schema, in_workers
from ndcg_spark.errors import InputRefusedError, InvalidParameterError, option
from ndcg_spark.evaluation.settings import MAX_K, EvaluationSettings, check_k
from ndcg_spark.evaluation.tasks.partial_ranking import COUNTS
from ndcg_spark.evaluation.tasks.query_rows import WEIGHT
from ndcg_spark.retrieval.settings import Metric, RetrievalSettings, ZeroVector
from ndcg_spark.retrieval.tasks.merging import judge_pairs, merge_cells
from ndcg_spark.retrieval.tasks.searching import search_cells, send_rows
from ndcg_spark.retrieval.tasks.tables import ID, LABELS, N_ITEMS, N_QUERIES, SAME, VECTOR, RetrievalTask

_ANY_NUMBER = 2**62


def retrieved_items(queries: DataFrame, corpus: DataFrame, settings: RetrievalSettings, *, k: int = 10) -> DataFrame:
    """Implement `retrieve`. Lazy."""
    try:
        fits = check_k(k) <= MAX_K
    except InvalidParameterError:  # a whole list has no meaning here
        fits = False
    if not fits:
        raise InvalidParameterError(f"k must be a whole number from 1 to {MAX_K:,}; got {k!r}.")
    task = _task(queries, corpus, settings, k)
    schema = _keys(queries, corpus, settings).add("score", T.DoubleType()).add("rank", T.IntegerType())
    if settings.labels is not None:
        schema.add("relevance", T.DoubleType())
    return _Cells(queries, corpus, task).merged(schema)


def _keys(queries: DataFrame, corpus: DataFrame, settings: RetrievalSettings) -> T.StructType:
    schema = T.StructType().add(settings.query, queries.schema[settings.query].dataType)
    return schema.add(settings.item, corpus.schema[settings.item].dataType)


def ranked_corpus(
    queries: DataFrame, corpus: DataFrame, settings: RetrievalSettings, evaluation: EvaluationSettings
) -> DataFrame:
    """Implement `rank_by_retrieval`. Lazy."""
    _check_evaluation(settings, evaluation)
    weight = evaluation.columns.weight
    carried = {name: name for name in evaluation.carried_segments}
    if weight is not None:
        carried[WEIGHT] = weight
    task = _task(queries, corpus, settings, evaluation.max_k, evaluation=evaluation, carried=carried)
    numbers, counts = T.ArrayType(T.DoubleType()), T.ArrayType(T.LongType())
    schema = T.StructType().add("run", T.StringType())
    schema.add(settings.query, queries.schema[settings.query].dataType)
    for name in COUNTS:
        schema.add(name, T.LongType())
    if evaluation.levels:
        schema.add("n_at_least", counts)
    for name, label in carried.items():
        schema.add(name, T.DoubleType() if name == WEIGHT else queries.schema[label].dataType)
    schema.add("ranked", numbers)
    if task.groups_ties:
        schema.add("scores", numbers).add("tied", counts)
    return _Cells(queries, corpus, task, carried).merged(schema.add("ideal", numbers))


def labelled_items(queries: DataFrame, corpus: DataFrame, settings: RetrievalSettings) -> DataFrame:
    """Implement `judgments_from_labels`. Lazy."""
    if settings.labels is None:
        raise InvalidParameterError("judgments need labels, the column that decides relevance.")
    task = _task(queries, corpus, settings, 1)
    schema = _keys(queries, corpus, settings).add("relevance", T.DoubleType())
    return in_workers(_Cells(queries, corpus, task).cells(), judge_pairs, task, schema=schema)


@dataclass(frozen=True, slots=True)
class _Cells:
    """Two tables, and how they meet: each block of queries with each stripe of the corpus."""

    queries: DataFrame
    corpus: DataFrame
    task: RetrievalTask
    carried: dict[str, str] | None = None

    def cells(self) -> DataFrame:
        """Packed blocks in the partitions of their stripes, sorted by cell, queries first."""
        sizes = self.queries.agg(F.count(F.lit(1)).alias(N_QUERIES))
        if self.task.k is None:
            sizes = sizes.crossJoin(self.corpus.agg(F.count(F.lit(1)).alias(N_ITEMS)))
        else:
            sizes = sizes.withColumn(N_ITEMS, F.lit(_ANY_NUMBER).cast("bigint"))
        sent = []
        for of_corpus in (False, True):
            rows = self._rows(of_corpus).crossJoin(F.broadcast(sizes))
            sent.append(in_workers(rows, send_rows, self.task, of_corpus, schema=EXCHANGE))
        both, parts = sent[0].unionAll(sent[1]), self.task.settings.parts
        if hasattr(both, "repartitionById"):
            spread = both.repartitionById(parts, F.col("partition_id") % F.lit(parts))
        else:  # a hash may put two stripes into one of few partitions
            spread = both.repartition(8 * parts, F.col("partition_id") % F.lit(parts))
        return spread.sortWithinPartitions("partition_id", "kind")

    def merged(self, schema: T.StructType) -> DataFrame:
        """Search the cells, and merge the results of each query."""
        partial = in_workers(self.cells(), search_cells, self.task, schema=EXCHANGE)
        together = partial.repartition("partition_id").sortWithinPartitions("partition_id")
        return in_workers(together, merge_cells, self.task, schema=schema)

    def _rows(self, of_corpus: bool) -> DataFrame:
        """Select the canonical columns of a table."""
        settings = self.task.settings
        frame, other = (self.corpus, self.queries) if of_corpus else (self.queries, self.corpus)
        vector = None if settings.metric == "hamming" else vector_column(frame, settings.vector_column)
        if vector is None:  # an array or a code: `_kind` refuses columns of other types
            vector = named(settings.vector_column)
        chosen = [named(settings.item if of_corpus else settings.query).alias(ID), vector.alias(VECTOR)]
        for name, label in ((LABELS, settings.labels), (SAME, settings.same)):
            if label is not None:
                chosen.append(_in_both(frame, other, label).alias(name))
        if not of_corpus:
            for name, label in (self.carried or {}).items():
                value = named(label).cast("double") if name == WEIGHT else comparable(frame, label)
                chosen.append(value.alias(name))
        return frame.select(*chosen)


def _check_evaluation(settings: RetrievalSettings, evaluation: EvaluationSettings) -> None:
    if settings.labels is None:
        raise InvalidParameterError("an evaluation needs labels, the column that decides relevance.")
    if evaluation.columns.query != (settings.query,):
        raise InvalidParameterError(
            f"the query column of the evaluation is {', '.join(evaluation.columns.query)}, that of the retrieval "
            f"{settings.query}; name one column."
        )
    convention = evaluation.convention
    if evaluation.needs:
        raise InvalidParameterError(
            f"metric {evaluation.metric_with(evaluation.needs[0])!r} needs items: write the rankings, and evaluate "
            "them with the item table."
        )
    if convention.ties == "input_order" or convention.ideal == "unsorted":
        raise InvalidParameterError(
            f"convention {convention} needs rows in an order of their own; choose other ties."
        )
    if evaluation.sample < 1:
        raise InvalidParameterError("sample is not for retrieval: choose queries from the query table.")
    own = {ID, VECTOR, LABELS, SAME, N_QUERIES, N_ITEMS, "levels"}
    taken = [name for name in evaluation.carried_segments if name.lower() in own]
    if taken:
        raise InvalidParameterError(f"segment column {min(taken)!r} has a name that retrieval uses; rename it.")


def _task(
    queries: DataFrame,
    corpus: DataFrame,
    settings: RetrievalSettings,
    k: int | None,
    *,
    evaluation: EvaluationSettings | None = None,
    carried: dict[str, str] | None = None,
) -> RetrievalTask:
    """Check what schemas show, and build the task that is shipped to workers."""
    for frame, column, part, table in (
        (queries, settings.query, option("query"), "query table"),
        (corpus, settings.item, option("item"), "corpus"),
    ):
        comparable_key(frame, column, part, table)
        kind = frame.schema[column].dataType
        if isinstance(kind, T.FractionalType | T.BooleanType | T.BinaryType | T.TimestampNTZType):
            raise InputRefusedError(f"column {column!r} ({part}) is {kind.simpleString()}; cast it to text first.")
    if settings.query == settings.item:
        raise InvalidParameterError(f"query and item columns are both {settings.query!r}; rename one.")
    kinds = _kind(queries, settings, "query table"), _kind(corpus, settings, "corpus")
    if kinds[0] != kinds[1] and settings.metric == "hamming":
        raise InputRefusedError(
            f"column {settings.vector_column!r} holds {kinds[0]} in the query table and {kinds[1]} in the corpus; "
            "codes must be packed alike."
        )
    if settings.same is not None:
        for frame, table in _tables(queries, corpus):
            require_column(frame, settings.same, option("same"), table)
    if settings.exclude_self:
        _in_both(queries.select(named(settings.query).alias(ID)), corpus.select(named(settings.item).alias(ID)), ID)
    for label in (carried or {}).values():
        comparable_key(queries, label, option("segments"), "query table")
    item = T.StructType([corpus.schema[settings.item]])
    return RetrievalTask(
        settings=settings,
        k=k,
        kind=kinds[0],
        item_kind=kinds[1],
        label_kind=_label_kind(queries, corpus, settings),
        evaluation=None if evaluation is None else evaluation.convention,
        carried=tuple(carried or {}),
        item_type=arrow_schema(item, corpus.sparkSession).field(0).type,
        levels=() if evaluation is None else evaluation.levels,
    )


def _label_kind(queries: DataFrame, corpus: DataFrame, settings: RetrievalSettings) -> str | None:
    if settings.labels is None:
        return None
    found = [
        require_column(frame, settings.labels, option("labels"), table) for frame, table in _tables(queries, corpus)
    ]
    arrays = [isinstance(one, T.ArrayType) for one in found]
    if arrays[0] != arrays[1]:
        raise InputRefusedError(f"column {settings.labels!r} is an array in one of the tables only.")
    return "array" if arrays[0] else "value"


def _tables(queries: DataFrame, corpus: DataFrame) -> tuple[tuple[DataFrame, str], tuple[DataFrame, str]]:
    return (queries, "query table"), (corpus, "corpus")


def _kind(frame: DataFrame, settings: RetrievalSettings, table: str) -> str:
    """Name what a vector column holds, in the words of `RetrievalTask`."""
    column = settings.vector_column
    kind = require_column(frame, column, option("vector"), table)
    element = kind.elementType if isinstance(kind, T.ArrayType) else None
    if settings.metric == "hamming":
        if isinstance(kind, T.BinaryType):
            return "bytes"
        if isinstance(element, T.LongType):
            return "words"
        if isinstance(element, T.ByteType):
            return "signs"
        wanted = "binary or array<bigint> (packed bits), or array<tinyint> (+1 and -1)"
    else:
        if is_ml_vector(kind) or isinstance(element, T.DoubleType):
            return "doubles"
        if isinstance(element, T.FloatType):
            return "floats"
        if isinstance(element, T.NumericType):
            return "doubles"
        wanted = "an array of numbers or a vector of pyspark.ml"
    raise InputRefusedError(
        f"column {column!r} ({option('vector')}) of the {table} is {kind.simpleString()}; "
        f"{option('metric', settings.metric)} needs {wanted}."
    )


def _in_both(frame: DataFrame, other: DataFrame, column: str) -> Column:
    """Return a column whose values are compared, in the type that it has in both tables."""
    kind, beside = frame.schema[column].dataType, other.schema[column].dataType
    if isinstance(kind, T.ArrayType):
        if not isinstance(kind.elementType, T.IntegralType | T.BooleanType):
            raise InputRefusedError(f"column {column!r} is {kind.simpleString()}; labels are 0 and 1.")
        # A label that is neither 0 nor 1 is a bad row, which a worker finds: a narrower type could hide it.
        wide = isinstance(kind.elementType, T.LongType)
        return named(column) if wide else named(column).cast("array<int>")
    if kind == beside:
        return comparable(frame, column)
    if isinstance(kind, T.IntegralType) and isinstance(beside, T.IntegralType):
        return named(column).cast("bigint")
    raise InputRefusedError(
        f"column {column!r} is {kind.simpleString()} in one table and {beside.simpleString()} in the other; "
        "cast one of them so that values compare."
    )


@takes_tables
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
    """Find the k best items of each query, exactly.

    Parameters
    ----------
    queries : DataFrame
        One row a query: its identifier, a vector (array<double>, array<float>, or a `pyspark.ml` vector) or a code
        (binary or array<bigint> with packed bits, array<tinyint> of +1 and -1), and as far as they are named
        labels and a column that must agree.
    corpus : DataFrame
        One row an item, with the same columns.
    k : int
        All of the corpus where it has fewer items.
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
        For what the schemas show. Bad rows raise when an action reaches them; see `readable_errors`: a null
        identifier, vector, label or filter value, an empty vector, a null, NaN or infinity in one, a vector of zeros
        under `cosine` (unless `zero_vector=zero`), under `inner` and `euclidean` a sum of squares above 1e300, or
        below 1e-280 and not 0, an entry of array<tinyint> other than +1 and -1, a label other than 0 and 1; vectors
        or labels of two lengths; a query or a found item that comes twice.

    Notes
    -----
    Spark cost: no action. One more scan of the queries, to count them; two shuffles, of packed blocks (the corpus
    once for each 16,384 queries) and of K entries per query and stripe; three passes through Python workers.
    """
    return retrieved_items(queries, corpus, settings_from(RetrievalSettings, dict(locals())), k=k)


@takes_tables
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

    The whole corpus is judged, by labels, so the ideal list is that of the corpus. Tied items are counts per score
    and relevance, which add up across blocks: no list of them is made.

    Parameters
    ----------
    queries, corpus : DataFrame
        As for `retrieve`. Segment and weight columns of the evaluation are columns of `queries`.
    evaluation : EvaluationSettings
        Cutoffs and conventions; its query column must be `query`. `ties=input_order` and `ideal=unsorted` have no
        meaning here.
    labels : str
        Column of the labels in both tables.
    metric, query, item, vector, same, exclude_self, zero_vector, run, parts, block_bytes, held_pairs
        As in `RetrievalSettings`.

    Returns
    -------
    DataFrame
        As for `rank_queries`, one row per query; `run` is as given. Lazy.

    Notes
    -----
    Spark cost: as for `retrieve`. Without a cutoff (k=all) the corpus is counted, too, and workers hold a count per
    query, distance and relevance for codes, but the score of each item for vectors.
    """
    return ranked_corpus(queries, corpus, settings_from(RetrievalSettings, dict(locals())), evaluation)


@takes_tables
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
        The query and item columns, and `relevance` (double, above 0). A query without relevant items has no row: it
        is unjudged, and counts as 0 under the convention `"default;unjudged_query=zero"`. Lazy.

    Notes
    -----
    Spark cost: no action; one shuffle of packed blocks and two passes through Python workers. The result may be
    large: `rank_by_retrieval` evaluates without it.
    """
    return labelled_items(queries, corpus, settings_from(RetrievalSettings, dict(locals())))
