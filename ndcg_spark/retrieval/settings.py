"""Frozen settings of a retrieval. Without Spark."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Annotated, Literal, TypeAlias

from ndcg_spark.core.flag import Flag, check_values
from ndcg_spark.errors import InvalidParameterError
from ndcg_spark.evaluation.settings import EvaluationSettings, read_segment_sets

Metric: TypeAlias = Literal["cosine", "inner", "euclidean", "hamming"]
ZeroVector: TypeAlias = Literal["bad", "zero"]
MAX_PARTS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalSettings:
    """All choices that determine a retrieval, except the data and K.

    Parameters
    ----------
    metric
        Measure that ranks items: `cosine`, `inner` product, squared distance (`euclidean`), or number of differing
        bits (`hamming`).

        The score is higher for a better item: minus the sum of squared differences, or minus the number of bits.
    query
        Column of the query table that identifies a query.
    item
        Column of the corpus that identifies an item.
    vector
        Vectors, or codes, in both tables.
    labels
        Labels in both tables: an array of 0 and 1 (relevance is the number of shared labels), or a value (relevance
        is 1 if it is equal). With it, the retrieval is evaluated.
    same
        Retrieve only items that agree with the query in this column, such as the tenant.
    exclude_self
        Leave out the item whose identifier is that of the query.
    zero_vector
        A vector of zeros under cosine: a `bad` row, or one whose cosine with every other is `zero`.
    run
        Name of the ranker in all results.
    parts
        Stripes of the corpus that are searched in parallel; one or two for each core.

        Each stripe keeps its own K best.
    block_bytes
        Size of the block of the corpus that a worker holds at once.
    held_pairs
        Approximate number of (query, item) pairs that a worker holds as candidates. Together with K it determines how
        many queries are searched at once.
    """

    metric: Annotated[Metric, Flag(group="Retrieval")] = "cosine"
    query: Annotated[str, Flag(group="Columns")] = "query_id"
    item: str = "item_id"
    vector: Annotated[str | None, Flag(shown="code under hamming, else vector")] = None
    labels: str | None = None
    same: Annotated[str | None, Flag(group="Retrieval")] = None
    exclude_self: bool = False
    zero_vector: ZeroVector = "bad"
    run: Annotated[str, Flag(group="Output", name="run run", metavar="NAME")] = ""
    parts: Annotated[int, Flag(group="Running", metavar="N")] = 4
    block_bytes: Annotated[int, Flag(hidden=True)] = 2**25
    held_pairs: Annotated[int, Flag(hidden=True)] = 2**21

    def __post_init__(self) -> None:
        check_values(self)
        if not 1 <= self.parts <= MAX_PARTS:
            raise InvalidParameterError(f"parts must be between 1 and {MAX_PARTS}; got {self.parts}.")
        for parameter, value in (("block_bytes", self.block_bytes), ("held_pairs", self.held_pairs)):
            if value < 1:
                raise InvalidParameterError(f"{parameter} must be at least 1; got {value}.")

    @property
    def vector_column(self) -> str:
        """Return the column with the vector or code."""
        return self.vector or ("code" if self.metric == "hamming" else "vector")

    @property
    def digest(self) -> str:
        """Sixteen hex digits that change with any choice that can change a number."""
        choices = asdict(self)
        for field_name in ("parts", "block_bytes", "held_pairs", "run"):
            choices.pop(field_name)
        return hashlib.sha256(json.dumps(choices, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryColumns:
    """Columns of the query table that determine how metrics are averaged.

    Parameters
    ----------
    segment_sets
        Also compute means by A, and by B and C together.
    weight
        Weight of a query in the means.
    confidence
        Level of the confidence intervals.
    """

    segment_sets: Annotated[
        tuple[tuple[str, ...], ...],
        Flag(group="Columns", name="segments", metavar="A,B+C", read=read_segment_sets),
    ] = ()
    weight: str | None = None
    confidence: Annotated[float, Flag(group="Retrieval", metavar="X")] = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalJobSettings:
    """Settings of `retrieve`. Without labels, only the cutoffs of the evaluation are used."""

    retrieval: RetrievalSettings
    evaluation: EvaluationSettings

    @property
    def evaluates(self) -> bool:
        return self.retrieval.labels is not None
