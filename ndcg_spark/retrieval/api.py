"""Exact retrieval by vectors and codes."""

from __future__ import annotations

from pyspark.sql import DataFrame

from ndcg_spark.core.flag import settings_from
from ndcg_spark.core.given import takes_tables
from ndcg_spark.evaluation.settings import EvaluationSettings
from ndcg_spark.retrieval.frames import labelled_items, ranked_corpus, retrieved_items
from ndcg_spark.retrieval.settings import Metric, RetrievalSettings, ZeroVector


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
        1), and `relevance` (double) with `labels`. Of items with equal scores the smaller identifier
        comes first; text is compared by bytes. Lazy.

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
    Spark cost: no action. One scan more of the queries, to count them; two shuffles, of packed blocks (the corpus,
    once for each block of queries, of up to 16,384) and of K entries per query and stripe; three passes through
    Python workers. A worker holds one block of queries and one of the corpus.
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

    Raises
    ------
    MissingColumnError, InputRefusedError, InvalidParameterError

    Notes
    -----
    Spark cost: as for `retrieve`. Without a cutoff (k=all) the corpus is counted, too; codes need memory for a count
    per query, distance and relevance, but vectors for the score of each item.
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
        The query and item columns, and `relevance` (double, above 0). All other items, except those that a filter
        rules out, have relevance 0 and are left out. So a query that nothing is relevant to has no row: it is
        unjudged, and counts as 0 under the convention `"default;unjudged_query=zero"`. Lazy.

    Raises
    ------
    MissingColumnError, InputRefusedError, InvalidParameterError

    Notes
    -----
    Spark cost: no action; one shuffle of packed blocks and two passes through Python workers. The result may be
    large: `rank_by_retrieval` evaluates without it.
    """
    return labelled_items(queries, corpus, settings_from(RetrievalSettings, dict(locals())))
