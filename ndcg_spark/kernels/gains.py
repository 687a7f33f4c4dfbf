"""Gains: what an item of a given relevance is worth."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from ndcg_spark.errors import InvalidParameterError
from ndcg_spark.kernels.ragged import FloatArray

GainFunction: TypeAlias = Callable[[FloatArray], FloatArray]

GAIN_FORMS = "exponential, linear, binary (each also NAME:LEVEL), power:P, table:LEVEL=GAIN,..."
LARGEST_GAIN = 2.0**63
"""Gains up to here leave room for sums over a long list and exact sums over all queries."""
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


def parse_gain_table(text: str) -> dict[float, float]:
    """Read `LEVEL=GAIN,...`.

    Parameters
    ----------
    text : str

    Returns
    -------
    dict from relevance to gain

    Raises
    ------
    InvalidParameterError
        When an entry is no pair of numbers or a level comes twice.

    Examples
    --------
    >>> parse_gain_table("0=0,1=1,2=4")
    {0.0: 0.0, 1.0: 1.0, 2.0: 4.0}
    """
    table: dict[float, float] = {}
    for entry in text.split(","):
        level, equals, gain = entry.partition("=")
        try:
            key, value = float(level), float(gain)
        except ValueError:
            raise InvalidParameterError(f"gain table entry {entry!r} is not LEVEL=GAIN.") from None
        if not equals or key in table or not math.isfinite(key) or not abs(value) <= LARGEST_GAIN:
            raise InvalidParameterError(f"gain table entry {entry!r} is repeated or not finite.")
        table[key] = value
    return table


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
    if not isinstance(spec, str):
        raise InvalidParameterError(f"gain must be a name or a function; got {spec!r}.")
    form, _, argument = spec.partition(":")
    if spec in _NAMED:
        return _NAMED[spec]
    if form in _NAMED and argument:
        level = _number(argument, "gain level")
        if level < 0:  # negative gains from there on, 0 below: the best would not come first in the ideal list
            raise InvalidParameterError(f"gain level must be 0 or more; got {argument!r}.")
        return _from_level(_NAMED[form], level)
    if form == "table" and argument:
        return _table(parse_gain_table(argument))
    if form == "power" and argument:
        exponent = _number(argument, "gain power")
        if exponent <= 0:
            raise InvalidParameterError(f"gain power must be a positive number; got {argument!r}.")
        return _power(exponent)
    raise InvalidParameterError(f"gain must be one of {GAIN_FORMS}; got {spec!r}.")


def _number(text: str, what: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InvalidParameterError(f"{what} must be a number; got {text!r}.")
    return number


def relevance_range(spec: str | GainFunction) -> tuple[float, float]:
    """Return the lowest and the highest relevance whose gain stays within 2^63 in size.

    Parameters
    ----------
    spec : str or callable
        As for `gain_function`.

    Returns
    -------
    tuple of float
        Infinite where any will do, where nothing can be said beforehand (a callable), and for tables.

    Examples
    --------
    >>> relevance_range("exponential")
    (-inf, 63.0)
    """
    if callable(spec):
        return -math.inf, math.inf
    form, _, argument = spec.partition(":")
    if form == "exponential":
        return -math.inf, 63.0
    if form == "power":
        bits = 63.0 / float(argument)
        largest = 2.0**bits if bits < 1023 else math.inf
        return -largest, largest
    if form == "linear":
        return -math.inf if argument else -LARGEST_GAIN, LARGEST_GAIN
    return -math.inf, math.inf
