"""Gains and discounts of single rows, for a person to look at."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from ndcg_spark.conventions import Convention
from ndcg_spark.kernels.discounts import discount_table
from ndcg_spark.kernels.gains import gain_function
from ndcg_spark.worker.batches import BatchFunction, float_values, marked


def make_row_viewer(convention: Convention) -> BatchFunction:
    """Build the function that adds `gain`, `discount` and `ideal_discount` to ranked rows.

    Parameters
    ----------
    convention : Convention

    Returns
    -------
    callable
        From batches with `relevance`, `rank` and `ideal_rank` to the same with three double columns more.
        A rank that is null gives a null discount.
    """

    def view(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return marked(_view(batch, convention) for batch in batches)

    return view


def _view(batch: pa.RecordBatch, convention: Convention) -> pa.RecordBatch:
    relevance, judged = float_values(batch.column("relevance"))
    levels = np.maximum(relevance, 0.0) if convention.negative == "clip" else relevance
    gains = np.zeros(len(levels))
    gains[judged] = gain_function(convention.gain)(levels[judged])
    columns = {name: batch.column(name) for name in batch.schema.names}
    columns["gain"] = pa.array(gains)
    for rank_name, name in (("rank", "discount"), ("ideal_rank", "ideal_discount")):
        ranks, known = float_values(batch.column(rank_name))
        table = discount_table(convention.discount, int(ranks.max(initial=0)))
        found = np.zeros(len(ranks))
        found[known] = table[ranks[known].astype(np.int64) - 1]
        columns[name] = pa.array(found, mask=~known)
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
