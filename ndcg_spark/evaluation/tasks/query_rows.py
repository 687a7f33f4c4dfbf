"""Rows as workers read them: grouped by query, under canonical column names that cannot collide with a user's."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ndcg_spark.core.batches import HashArray, hash_keys, number_values, sort_by_hash, take_rows
from ndcg_spark.core.ragged import BoolArray, IntArray, NumberArray, rows_of_queries
from ndcg_spark.evaluation.settings import EvaluationSettings

RUN, ITEM, SCORE, RANK, RELEVANCE = "run", "item", "score", "rank", "relevance"
ORDER, WEIGHT, COPIES, BAD_ROW = "order", "weight", "copies", "bad_row"
"""`copies`: the number of input rows that a row represents.

`bad_row`: the reason why a value could not be converted, or the malformed line; after `mark_rejected`, a mark.
"""

RANKED_LIST, RANKED_ITEMS, IDEAL_LIST, IDEAL_ITEMS = "ranked_list", "ranked_items", "ideal_list", "ideal_items"
"""Columns of tables with one row per query: relevances in rank order, all judged relevances, and their items."""
RANKED_SCORES, RANKED_RANKS = "ranked_scores", "ranked_ranks"
"""Columns of lists of items, one of which exists if items are not in rank order. These have no `ranked_list`."""


@dataclass(frozen=True, slots=True)
class Names:
    """The columns in use: canonical names, mapped to the user's names."""

    query: dict[str, str]
    segments: dict[str, str]
    scores: dict[str, str]  # more than one if each score column is a run
    has_runs: bool

    @property
    def keys(self) -> tuple[str, ...]:
        """Canonical columns of the input that identify a query of a run."""
        return ((RUN,) if self.has_runs else ()) + tuple(self.query)

    @property
    def carried(self) -> dict[str, str]:
        """Segments and weight: constant within a query, and part of every result row."""
        return {**self.segments, WEIGHT: WEIGHT}


def bad_row_column(score: str) -> str:
    """Return the name of the `bad_row` column of a score column, if each score column is a run."""
    return f"{BAD_ROW}:{score}"


def canonical_names(settings: EvaluationSettings) -> Names:
    scores = settings.columns.score if settings.columns.rank is None else ()
    has_several = len(scores) > 1
    return Names(
        query={f"query_{index}": column for index, column in enumerate(settings.columns.query)},
        segments={f"segment_{index}": column for index, column in enumerate(settings.carried_segments)},
        scores={(f"{SCORE}_{index}" if has_several else SCORE): column for index, column in enumerate(scores)},
        has_runs=settings.columns.run is not None,
    )


MAX_STRETCH_SHARE = 0.25
"""Stretches per row above which rows are sorted by query first: most stretches then have one or two rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingTask:
    """Task for workers that rank; small, and the same on every worker."""

    settings: EvaluationSettings
    rows: pa.Schema  # canonical columns
    judgments: pa.Schema | None = None
    n_partitions: int = 1  # ids of the exchange
    checks_duplicates: bool = False  # lists have items, so that duplicates are found
    counts_relevant: bool = True  # `n_relevant` is needed
    others: tuple[str, ...] = ()  # unused columns of the table, for messages
    chunk_rows: int = 131_072  # grouped at once; fewer need more calls, and 1.5 times as many are not faster
    held_rows: int = 2**19  # buffered before they are sent
    held_bytes: int = 2**27
    block_bytes: int = 2**22  # of arrived batches, merged at once
    queries_at_once: int = 8192  # rankings per batch
    names: Names = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", canonical_names(self.settings))

    @property
    def ranks_given(self) -> bool:
        return self.settings.ranks_given

    @property
    def counts_rejected(self) -> bool:
        return self.settings.on_invalid == "reject"

    @property
    def cuts_early(self) -> bool:
        """True if the first K rows are known before judgments are looked up."""
        convention = self.settings.convention
        needs_relevances = convention.unjudged == "condensed" or convention.ideal == "retrieved"
        return self.settings.max_k is not None and not (self.judgments is not None and needs_relevances)


@dataclass(slots=True)
class QueryRows:
    """Valid rows of a run, grouped by query or stretch of a query. Flags of None hold for all rows."""

    batch: pa.RecordBatch
    offsets: IntArray
    value: NumberArray  # score or rank, perhaps narrower than a double
    retrieved: BoolArray | None  # rows with a value
    ranked: BoolArray | None  # rows that the ranking keeps
    relevance: NumberArray | None  # None if judgments are a table of their own
    judged: BoolArray | None


def read_query_rows(batch: pa.RecordBatch, offsets: IntArray, settings: EvaluationSettings) -> QueryRows:
    """Read the arrays that a ranking needs from valid rows with one score column or ranks."""
    relevance: NumberArray | None = None
    judged: BoolArray | None = None
    if RELEVANCE in batch.schema.names:
        relevance, judged = number_values(batch.column(RELEVANCE))
    value, retrieved = number_values(batch.column(SCORE if SCORE in batch.schema.names else RANK))
    condensed = settings.convention.unjudged == "condensed"
    if SCORE not in batch.schema.names and not settings.ranks_given:
        value = -value.astype(np.float64)  # ranks close the gaps of removed items
    elif SCORE in batch.schema.names and settings.convention.score_precision == "float32":
        with np.errstate(over="ignore"):  # a score out of range becomes infinite, as in Spark
            value = value.astype(np.float32).astype(np.float64)
    ranked = intersect_flags(retrieved, judged) if condensed and relevance is not None else retrieved
    return QueryRows(batch, offsets, value, retrieved, ranked, relevance, judged)


def intersect_flags(left: BoolArray | None, right: BoolArray | None) -> BoolArray | None:
    """Return the rows flagged by both; None flags all rows."""
    if left is None or right is None:
        return right if left is None else left
    return left & right


def list_keys(batch: pa.RecordBatch, names: Names) -> tuple[str, ...]:
    """List the columns of a batch that identify a query of a run, or of judgments."""
    return ((RUN,) if RUN in batch.schema.names else ()) + tuple(names.query)


def find_stretches(batch: pa.RecordBatch, keys: tuple[str, ...]) -> IntArray:
    """Return the offsets of stretches: successive rows with equal keys. Keys must have no nulls."""
    n_rows = batch.num_rows
    begins = np.zeros(n_rows + 1, dtype=np.bool_)
    begins[0] = begins[n_rows] = True
    for key in keys:
        column = batch.column(key)
        if pa.types.is_integer(column.type):
            values = column.to_numpy(zero_copy_only=False)
            begins[1:n_rows] |= values[1:] != values[:-1]
            continue
        changes = pc.not_equal(column.slice(1), column.slice(0, max(0, n_rows - 1)))
        begins[1:n_rows] |= np.asarray(changes.to_numpy(zero_copy_only=False), dtype=np.bool_)
    return np.flatnonzero(begins) if n_rows else np.zeros(1, dtype=np.int64)


def hash_rows(batch: pa.RecordBatch, names: Names) -> HashArray:
    """Hash the query and the run of each row."""
    return hash_keys(batch, tuple(names.query), RUN if RUN in batch.schema.names else None)


def group_rows(batch: pa.RecordBatch, names: Names, *, completely: bool) -> tuple[pa.RecordBatch, IntArray]:
    """Group rows by query, and return the offsets of groups.

    Unless `completely`, rows stay in their order if most stretches are long.
    """
    keys = list_keys(batch, names)
    offsets = find_stretches(batch, keys)
    n_stretches = len(offsets) - 1
    if not completely:
        if n_stretches <= MAX_STRETCH_SHARE * batch.num_rows:
            return batch, offsets
        batch = take_rows(batch, sort_by_hash(hash_rows(batch, names))[1])
        return batch, find_stretches(batch, keys)
    order = order_by_group(batch.select(list(keys)).take(pa.array(offsets[:-1])), names)
    if order is None:
        return batch, offsets
    batch = take_rows(batch, rows_of_queries(order, offsets))
    return batch, find_stretches(batch, keys)


def order_by_group(keys: pa.RecordBatch, names: Names) -> IntArray | None:
    """Return an order of rows in which equal keys are neighbours, or None if all keys differ."""
    key_names = tuple(keys.schema.names)
    hashes, order = sort_by_hash(hash_rows(keys, names))
    n_groups = len(np.unique(hashes)) if len(hashes) else 0
    if n_groups == len(hashes):
        return None
    if len(find_stretches(take_rows(keys, order), key_names)) - 1 == n_groups:
        return order
    codes = [column.dictionary_encode().indices.to_numpy(zero_copy_only=False) for column in keys.columns]
    return np.lexsort(codes)  # two keys have the same hash
