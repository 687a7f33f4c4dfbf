"""What a worker must know to retrieve."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from ndcg_spark.conventions import Convention
from ndcg_spark.retrieval.settings import RetrievalSettings

ID, VECTOR, LABELS, SAME = "id", "vector", "labels", "same"
"""Canonical columns of both tables."""
N_QUERIES, N_ITEMS = "n_queries", "n_items"
"""Rows of the two tables, beside each row."""
SUB_BLOCKS = 16
"""Parts of a block of queries that are merged by themselves."""
_SENT_ROWS, _SENT_BYTES = 2**17, 2**23


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalTask:
    """What a worker must know to retrieve; small, and the same on every worker.

    `k` items are found for each query, None: all. `kind` is what the vector columns hold, and `item_kind` the same of
    the corpus: `doubles`, `floats`, `words` (packed bits, 64 each), `bytes` (packed bits), or `signs` (+1 and -1);
    only `doubles` and `floats` go together. `label_kind` is `array` or `value`; None where relevance is not wanted.
    `evaluation` are the rules of one; None: a table of items is wanted. `carried` are columns of the query table that
    go along. `item_type` is that of the item column of the result; None: as it comes, where whole numbers have 64
    bits. `levels` are relevances of which metrics must know how many items of the corpus reach them. `sent_rows` and
    `sent_bytes` are packed at once, which bounds a payload.
    """

    settings: RetrievalSettings
    k: int | None
    kind: str
    item_kind: str
    label_kind: str | None
    evaluation: Convention | None = None
    carried: tuple[str, ...] = ()
    item_type: pa.DataType | None = None
    levels: tuple[float, ...] = ()
    sent_rows: int = _SENT_ROWS
    sent_bytes: int = _SENT_BYTES

    @property
    def groups_ties(self) -> bool:
        """Whether tied items are kept as counts instead of items."""
        return self.evaluation is not None and self.evaluation.groups_ties

    @property
    def items_fall(self) -> bool:
        """Whether the larger item comes first among those that tie."""
        return self.evaluation is not None and self.evaluation.ties == "item_desc"

    def n_blocks(self, n_queries: int, n_items: int) -> int:
        """How many blocks the queries are divided into, so that the best of a block fit into memory."""
        kept = max(1, n_items if self.k is None else min(self.k, n_items))
        if self.k is None and self.groups_ties and self.settings.metric == "hamming":
            kept = min(kept, 2048)  # a count for each distance and relevance
        at_once = min(max(1, self.settings.held_pairs // kept), 2**14)
        return min(max(1, -(-n_queries // at_once)), 2**24 // max(SUB_BLOCKS, self.settings.parts))
