"""Gains: what an item of a given relevance is worth."""

from __future__ import annotations

import numpy as np

from ndcg_spark.conventions.forms import GainFunction, parse_gain
from ndcg_spark.core.ragged import FloatArray
from ndcg_spark.errors import InvalidParameterError

_OF_GRADES: FloatArray = np.ldexp(1.0, np.arange(32)) - 1.0
"""2^n - 1: nearly all relevances are small whole numbers, for which looking up is quicker."""


def exponential(relevance: FloatArray) -> FloatArray:
    """2^rel - 1, exact for whole numbers.

    Parameters
    ----------
    relevance : float64, any shape
        Negative relevances give negative gains: 2^-1 - 1 = -0.5.

    Returns
    -------
    float64, the same shape

    References
    ----------
    Burges et al., Learning to rank using gradient descent, ICML 2005.

    Examples
    --------
    >>> exponential(np.array([0.0, 1.0, 3.0, -1.0])).tolist()
    [0.0, 1.0, 7.0, -0.5]
    """
    if relevance.size and relevance.min() >= 0 and relevance.max() < len(_OF_GRADES):
        grades = relevance.astype(np.intp)
        if (grades == relevance).all():
            return _OF_GRADES[grades]
    whole = np.rint(relevance)
    is_whole = whole == relevance
    # ldexp is exact; exp2 may be an ulp off, depending on the processor.
    powers = np.ldexp(1.0, np.clip(np.where(is_whole, whole, 0.0), -1100, 1100).astype(np.int32))
    if not is_whole.all():
        powers = np.where(is_whole, powers, np.exp2(relevance))
    return np.asarray(powers - 1.0)


def linear(relevance: FloatArray) -> FloatArray:
    """Take the relevance itself as gain (Jarvelin and Kekalainen, TOIS 20(4), 2002).

    Parameters
    ----------
    relevance : float64, any shape

    Returns
    -------
    float64, the same shape
    """
    return relevance


def binary(relevance: FloatArray) -> FloatArray:
    """Give 1 for every relevance above 0, else 0.

    Parameters
    ----------
    relevance : float64, any shape

    Returns
    -------
    float64, the same shape

    Examples
    --------
    >>> binary(np.array([0.0, 0.5, 3.0, -1.0])).tolist()
    [0.0, 1.0, 1.0, 0.0]
    """
    return np.where(relevance > 0, 1.0, 0.0)


_NAMED: dict[str, GainFunction] = {"exponential": exponential, "linear": linear, "binary": binary}


def _from_level(gain: GainFunction, level: float) -> GainFunction:
    def above(relevance: FloatArray) -> FloatArray:
        return np.where(relevance >= level, gain(relevance), 0.0)

    return above


def _power(exponent: float) -> GainFunction:
    def power(relevance: FloatArray) -> FloatArray:
        return np.asarray(np.copysign(np.abs(relevance) ** exponent, relevance))

    return power


def _table(table: dict[float, float]) -> GainFunction:
    levels = np.array(sorted(table), dtype=np.float64)
    gains = np.array([table[level] for level in levels.tolist()], dtype=np.float64)

    def lookup(relevance: FloatArray) -> FloatArray:
        at = np.minimum(np.searchsorted(levels, relevance), len(levels) - 1)
        known = levels[at] == relevance
        if not known.all():
            level = relevance[~known].flat[0]
            raise InvalidParameterError(f"relevance {level:g} has no gain in the table {levels.tolist()}.")
        return np.asarray(gains[at])

    return lookup


def gain_function(spec: str | GainFunction) -> GainFunction:
    """Turn the gain a user named, or wrote, into a function of relevances.

    Parameters
    ----------
    spec : str or callable
        `exponential`, `linear`, `binary`; each of these with a level, as `linear:2`, below which the gain is 0;
        `power:P` (sign kept), `table:LEVEL=GAIN,...`, or a NumPy function from float64 relevances to float64
        gains of the same shape.

    Returns
    -------
    callable

    Raises
    ------
    InvalidParameterError
        For an unknown name or a malformed table.

    Examples
    --------
    >>> gain_function("power:2")(np.array([0.0, 3.0, -1.0])).tolist()
    [0.0, 9.0, -1.0]
    >>> gain_function("table:0=0,1=1,2=4")(np.array([2.0, 0.0])).tolist()
    [4.0, 0.0]
    """
    if callable(spec):
        return spec
    form = parse_gain(spec)
    if form.table is not None:
        return _table(form.table)
    if form.number is None:
        return _NAMED[form.name]
    return _power(form.number) if form.name == "power" else _from_level(_NAMED[form.name], form.number)
