"""Rows as workers read them: grouped by query, under names of our own, so that columns of users cannot collide."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ndcg_spark.core.batches import HashArray, key_hashes, number_values, sorted_by_hash, taken
from ndcg_spark.core.ragged import BoolArray, IntArray, NumberArray, rows_of
from ndcg_spark.evaluation.settings import EvaluationSettings

RUN, ITEM, SCORE, RANK, RELEVANCE = "run", "item", "score", "rank", "relevance"
ORDER, WEIGHT, COPIES, BAD_ROW = "order", "weight", "copies", "bad_row"
"""`copies`: how many rows of the input a row stands for. `bad_row`: a reason that only Spark can see."""

RANKED_LIST, RANKED_ITEMS, IDEAL_LIST, IDEAL_ITEMS = "ranked_list", "ranked_items", "ideal_list", "ideal_items"
"""Of tables with one row a query: relevances in rank order, all judged relevances, and their items."""
RANKED_SCORES, RANKED_RANKS = "ranked_scores", "ranked_ranks"
"""Beside `ranked_items`, one of them where these are not in rank order. Lists of items have no `ranked_list`."""


@dataclass(frozen=True, slots=True)
class Names:
    """The canonical names of the columns in use, and what the user calls them."""

    query: dict[str, str]
    segments: dict[str, str]
    scores: dict[str, str]  # several, where each score column is a run
    has_runs: bool

    @property
    def keys(self) -> tuple[str, ...]:
        """Canonical columns that identify a query of a run, as they are read."""
        return ((RUN,) if self.has_runs else ()) + tuple(self.query)

    @property
    def carried(self) -> dict[str, str]:
        """Segments and weight: constant within a query, and part of every result."""
        return {**self.segments, WEIGHT: WEIGHT}


def name_bad_row(score: str) -> str:
    """Name the `bad_row` of the run of one of several score columns."""
    return f"{BAD_ROW}:{score}"


def canonical_names(settings: EvaluationSettings) -> Names:
    scores = settings.columns.score if settings.columns.rank is None else ()
    several = len(scores) > 1
    return Names(
        query={f"query_{at}": name for at, name in enumerate(settings.columns.query)},
        segments={f"segment_{at}": name for at, name in enumerate(settings.carried_segments)},
        scores={(f"{SCORE}_{at}" if several else SCORE): name for at, name in enumerate(scores)},
        has_runs=settings.columns.run is not None,
    )


MAX_STRETCH_SHARE = 0.25
"""Share of the rows. Above it, rows are sorted by query first: most stretches then have one or two rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingTask:
    """What workers must know to rank; small, and the same on every worker."""

    settings: EvaluationSettings
    rows: pa.Schema  # canonical columns
    judgments: pa.Schema | None = None
    n_partitions: int = 1  # ids of the exchange
    checks_duplicates: bool = False  # lists carry items, so that duplicates among them are found
    counts_relevant: bool = True  # `n_relevant` is wanted
    others: tuple[str, ...] = ()  # columns of the table that the settings do not use, for messages
    chunk_rows: int = 131_072  # grouped at once; fewer cost more calls, half as many again gain nothing
    held_rows: int = 2**19  # until they are passed on
    held_bytes: int = 2**27
    block_bytes: int = 2**22  # of what has arrived, merged at once
    queries_at_once: int = 8192  # rankings of a batch
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
        """Whether the first K rows are known before judgments are looked up."""
        convention = self.settings.convention
        needs_labels = convention.unjudged == "condensed" or convention.ideal == "retrieved"
        return self.settings.max_k is not None and not (self.judgments is not None and needs_labels)


@dataclass(slots=True)
class QueryRows:
    """Valid rows of one run, grouped by query (or stretch of one). Flags that are None hold for all rows."""

    batch: pa.RecordBatch
    offsets: IntArray
    value: NumberArray  # score or given rank, maybe narrower than a double
    retrieved: BoolArray | None  # rows that have one
    ranked: BoolArray | None  # rows that the ranking keeps
    relevance: NumberArray | None  # None where judgments are a table of their own
    judged: BoolArray | None


def read_query_rows(batch: pa.RecordBatch, offsets: IntArray, settings: EvaluationSettings) -> QueryRows:
    """Read what rankings are made of from valid rows, with one score column or ranks."""
    relevance: NumberArray | None = None
    judged: BoolArray | None = None
    if RELEVANCE in batch.schema.names:
        relevance, judged = number_values(batch.column(RELEVANCE))
    value, retrieved = number_values(batch.column(SCORE if SCORE in batch.schema.names else RANK))
    condensed = settings.convention.unjudged == "condensed"
    if SCORE not in batch.schema.names and not settings.ranks_given:
        value = -value.astype(np.float64)  # ranks close up over the removed items
    elif SCORE in batch.schema.names and settings.convention.score_precision == "float32":
        with np.errstate(over="ignore"):  # too large a score becomes infinite, as in Spark
            value = value.astype(np.float32).astype(np.float64)
    ranked = intersect_flags(retrieved, judged) if condensed and relevance is not None else retrieved
    return QueryRows(batch, offsets, value, retrieved, ranked, relevance, judged)


def intersect_flags(one: BoolArray | None, other: BoolArray | None) -> BoolArray | None:
    """Combine two sets of rows, where None is all of them."""
    if one is None or other is None:
        return other if one is None else one
    return one & other


def list_keys(batch: pa.RecordBatch, names: Names) -> tuple[str, ...]:
    """Columns that identify a query of a run, or of judgments, in a batch."""
    return ((RUN,) if RUN in batch.schema.names else ()) + tuple(names.query)


def find_stretches(batch: pa.RecordBatch, keys: tuple[str, ...]) -> IntArray:
    """Offsets between stretches of rows of one query; keys have no nulls."""
    n_rows = batch.num_rows
    begins = np.zeros(n_rows + 1, dtype=np.bool_)
    begins[0] = begins[n_rows] = True
    for name in keys:
        column = batch.column(name)
        if pa.types.is_integer(column.type):
            values = column.to_numpy(zero_copy_only=False)
            begins[1:n_rows] |= values[1:] != values[:-1]
            continue
        changes = pc.not_equal(column.slice(1), column.slice(0, max(0, n_rows - 1)))
        begins[1:n_rows] |= np.asarray(changes.to_numpy(zero_copy_only=False), dtype=np.bool_)
    return np.flatnonzero(begins) if n_rows else np.zeros(1, dtype=np.int64)


def hash_rows(batch: pa.RecordBatch, names: Names) -> HashArray:
    return key_hashes(batch, tuple(names.query), RUN if RUN in batch.schema.names else None)


def group_rows(batch: pa.RecordBatch, names: Names, *, completely: bool) -> tuple[pa.RecordBatch, IntArray]:
    """Group rows by query; return offsets, too. Unless `completely`, rows stay if most stretches are long."""
    keys = list_keys(batch, names)
    offsets = find_stretches(batch, keys)
    n_stretches = len(offsets) - 1
    if not completely:
        if n_stretches <= MAX_STRETCH_SHARE * batch.num_rows:
            return batch, offsets
        batch = taken(batch, sorted_by_hash(hash_rows(batch, names))[1])
        return batch, find_stretches(batch, keys)
    order = order_by_group(batch.select(list(keys)).take(pa.array(offsets[:-1])), names)
    if order is None:
        return batch, offsets
    batch = taken(batch, rows_of(order, offsets))
    return batch, find_stretches(batch, keys)


def order_by_group(heads: pa.RecordBatch, names: Names) -> IntArray | None:
    """Order rows such that equal keys are next to each other; None where all keys differ."""
    keys = tuple(heads.schema.names)
    hashes, order = sorted_by_hash(hash_rows(heads, names))
    n_groups = len(np.unique(hashes)) if len(hashes) else 0
    if n_groups == len(hashes):
        return None
    if len(find_stretches(taken(heads, order), keys)) - 1 == n_groups:
        return order
    codes = [heads.column(name).dictionary_encode().indices.to_numpy(zero_copy_only=False) for name in keys]
    return np.lexsort(codes)  # two keys share the kept bits of their hashes
