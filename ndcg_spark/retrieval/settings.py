"""How items are retrieved: frozen, without Spark."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass

from ndcg_spark.errors import InvalidParameterError, one_of

METRICS = ("cosine", "inner", "euclidean", "hamming")
ZERO_VECTORS = ("bad", "zero")
MAX_PARTS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalPlan:
    """Everything that determines a retrieval, except the data and K.

    Parameters
    ----------
    metric : str
        What items are ranked by; the score is higher for a better item. `cosine`: cosine similarity; `inner`: inner
        product; `euclidean`: minus the sum of squared differences; `hamming`: minus the number of bits that differ.
    query : str
        Column of the query table that identifies a query.
    item : str
        Column of the corpus that identifies an item.
    vector : str or None
        Column of both tables with the vector or code. None: `code` for `hamming`, else `vector`.
    labels : str or None
        Column of both tables that decides relevance: an array of 0 and 1 (relevance is the number of shared labels),
        or a single value (relevance is 1 for the same value, else 0). None: relevance is not known.
    same : str or None
        Column of both tables that must agree, such as the tenant; None retrieves from the whole corpus.
    exclude_self : bool
        Leave out the item whose identifier is that of the query.
    zero_vector : str
        A vector of zeros under `cosine`: a `bad` row, or one whose cosine with every other is `zero`.
    run : str
        Name of the ranker in results.
    parts : int
        Stripes that the corpus is divided into. Stripes are searched in parallel, and each keeps its own K best.
    block_bytes : int
        Size of the block of the corpus that a worker holds at once.
    held_pairs : int
        About how many (query, item) pairs a worker holds as candidates. Together with K it decides how many queries
        are searched at once.
    """

    metric: str = "cosine"
    query: str = "query_id"
    item: str = "item_id"
    vector: str | None = None
    labels: str | None = None
    same: str | None = None
    exclude_self: bool = False
    zero_vector: str = "bad"
    run: str = ""
    parts: int = 4
    block_bytes: int = 2**25
    held_pairs: int = 2**21

    def __post_init__(self) -> None:
        one_of("metric", self.metric, METRICS)
        one_of("zero_vector", self.zero_vector, ZERO_VECTORS)
        if not 1 <= self.parts <= MAX_PARTS:
            raise InvalidParameterError(f"parts must lie between 1 and {MAX_PARTS}; got {self.parts}.")
        for name, value in (("block_bytes", self.block_bytes), ("held_pairs", self.held_pairs)):
            if value < 1:
                raise InvalidParameterError(f"{name} must be at least 1; got {value}.")

    @property
    def vector_column(self) -> str:
        """Column with the vector or code."""
        return self.vector or ("code" if self.metric == "hamming" else "vector")

    @property
    def digest(self) -> str:
        """Sixteen hex digits that change with any choice that can change a number."""
        choices = asdict(self)
        for name in ("parts", "block_bytes", "held_pairs", "run"):
            choices.pop(name)
        return hashlib.sha256(json.dumps(choices, sort_keys=True).encode()).hexdigest()[:16]
