"""Discounts: what a rank is worth.

Tables are computed with the C library's scalar logarithm, one value at a time, in this one place.
The vectorised logarithms of NumPy and of the JVM differ from it, and from each other, by an ulp.
"""

from __future__ import annotations

import math

import numpy as np

from ndcg_spark.conventions.forms import DiscountFunction, check_discount, check_weights, parse_discount
from ndcg_spark.core.ragged import FloatArray
from ndcg_spark.errors import InvalidParameterError


def discount_table(spec: str | DiscountFunction, n_ranks: int) -> FloatArray:
    """Weights of ranks 1..n_ranks.

    Parameters
    ----------
    spec : str or callable
        `log2` 1/log2(i+1), `ln` 1/ln(i+1), `log:B` 1/log_B(i+1), `reciprocal` 1/i,
        `table:D1,D2,...`, or a NumPy function from the 1-based ranks (float64) to weights.
    n_ranks : int

    Returns
    -------
    float64, shape (n_ranks,)

    Raises
    ------
    InvalidParameterError
        For an unknown name, a table that is too short, a function whose answer has another shape, or weights that
        are not finite and above 0, or rise.

    References
    ----------
    Jarvelin and Kekalainen, TOIS 20(4), 2002; with 1/log2(i+1) as in Burges et al., ICML 2005.

    Examples
    --------
    >>> discount_table("log2", 3).tolist()
    [1.0, 0.6309297535714575, 0.5]
    >>> discount_table("table:1.25,1", 2).tolist()
    [1.25, 1.0]
    """
    check_discount(spec, n_ranks)
    ranks = range(1, n_ranks + 1)
    if callable(spec):
        weights = np.asarray(spec(np.arange(1, n_ranks + 1, dtype=np.float64)), dtype=np.float64)
        if weights.shape != (n_ranks,):
            raise InvalidParameterError(f"discount function gave shape {weights.shape} for {n_ranks} ranks.")
        check_weights(weights.tolist(), "discount function", may_end_in_zeros=True)
        return weights
    form = parse_discount(spec)
    if form.table is not None:
        return np.array(form.table[:n_ranks], dtype=np.float64)
    if form.name == "log2":
        values = [1.0 / math.log2(rank + 1) for rank in ranks]
    elif form.name == "ln":
        values = [1.0 / math.log(rank + 1) for rank in ranks]
    elif form.base is not None:
        scale = math.log(form.base)
        values = [scale / math.log(rank + 1) for rank in ranks]
    else:
        values = [1.0 / rank for rank in ranks]
    return np.array(values, dtype=np.float64)
