"""Entries of the two lists of queries, in NumPy and Arrow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from ndcg_spark.kernels.cut import NumberArray
from ndcg_spark.kernels.ragged import IntArray, lengths_of, offsets_of

Values: TypeAlias = NumberArray | pa.Array
"""Numbers are NumPy's, texts are Arrow's."""


@dataclass(slots=True)
class Entries:
    """Entries of one of the two lists, those of a query end to end.

    Parameters
    ----------
    columns : dict from name to values
        `scores` or `ranks`, `relevances` (NaN = unjudged), maybe `items` or `order`; or `best`, maybe `best_items`.
    offsets : int64, shape (n_queries + 1,)
    """

    columns: dict[str, Values]
    offsets: IntArray


def joined_entries(found: Sequence[Entries]) -> Entries:
    """Put the lists of some queries behind those of others.

    Parameters
    ----------
    found : sequence of Entries
        With the same columns; at least one.

    Returns
    -------
    Entries
    """
    columns: dict[str, Values] = {}
    for name, first in found[0].columns.items():
        join = np.concatenate if isinstance(first, np.ndarray) else pa.concat_arrays
        columns[name] = join([one.columns[name] for one in found])
    return Entries(columns, offsets_of(np.concatenate([lengths_of(one.offsets) for one in found])))
