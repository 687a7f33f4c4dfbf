"""Gains and discounts of single rows, for a person to look at."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ndcg_spark.conventions import Convention
from ndcg_spark.conventions.discounts import discount_table
from ndcg_spark.conventions.gains import gain_function
from ndcg_spark.core.batches import BatchFunction, batch_function, float_values
from ndcg_spark.core.ragged import FloatArray

_HELPERS = ("tied", "n_ranked")


def make_row_viewer(convention: Convention, k: int | None) -> BatchFunction:
    """Build the function that adds `gain`, `discount` and `ideal_discount` to ranked rows; ranks beyond k weigh 0.

    Batches have `relevance`, `rank` and `ideal_rank` (null: not in that list, and so without a discount). Two more
    columns are left out: `tied` (how many ranks, from `rank` on, the row shares with others) and `n_ranked`, the
    items that the ranking of its query has.
    """
    return batch_function(lambda batches: (_view(batch, convention, k) for batch in batches))


def _view(batch: pa.RecordBatch, convention: Convention, k: int | None) -> pa.RecordBatch:
    relevance, judged = float_values(batch.column("relevance"))
    levels = np.maximum(relevance, 0.0) if convention.negative == "clip" else relevance
    gains = np.zeros(len(levels))
    gains[judged] = gain_function(convention.gain)(levels[judged])
    tied, n_ranked = (float_values(batch.column(name))[0].astype(np.int64) for name in _HELPERS)
    columns = {name: batch.column(name) for name in batch.schema.names if name not in _HELPERS}
    columns["gain"] = pa.array(gains)
    ends = n_ranked if convention.ideal == "as_many" else None
    columns["discount"] = _discounts(batch.column("rank"), np.maximum(tied, 1), None, convention, k)
    columns["ideal_discount"] = _discounts(batch.column("ideal_rank"), np.ones_like(tied), ends, convention, k)
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _discounts(
    column: pa.Array, tied: np.ndarray, ends: np.ndarray | None, convention: Convention, k: int | None
) -> pa.Array:
    """Discount of each rank, averaged over the ranks that tied rows share; 0 beyond the end of its list."""
    ranks, known = float_values(column)
    first = np.maximum(ranks.astype(np.int64) - 1, 0)
    n_ranks = int((first + tied).max(initial=0))
    table: FloatArray = discount_table(convention.discount, n_ranks if k is None else min(n_ranks, k))
    total = np.concatenate([[0.0], np.cumsum(table)])
    limit = np.full(len(first), len(table)) if ends is None else np.minimum(ends, len(table))
    span = total[np.minimum(first + tied, limit)] - total[np.minimum(first, limit)]
    alone = np.where(first < limit, table[np.minimum(first, len(table) - 1)] if len(table) else 0.0, 0.0)
    return pa.array(np.where(tied == 1, alone, span / tied), mask=~known)
