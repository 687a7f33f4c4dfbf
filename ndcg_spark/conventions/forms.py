"""Gains and discounts: how they are written, and how they are computed."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from types import BuiltinMethodType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, TypeAlias

import numpy as np

from ndcg_spark.core.ragged import FloatArray
from ndcg_spark.errors import InvalidParameterError

GainFunction: TypeAlias = Callable[[FloatArray], FloatArray]
DiscountFunction: TypeAlias = Callable[[FloatArray], FloatArray]

GAIN_FORMS = "exponential, linear, binary (each also NAME:LEVEL), power:P, table:LEVEL=GAIN,..."
DISCOUNT_FORMS = "log2, ln, log:BASE, reciprocal, table:D1,D2,..."
MAX_GAIN = 2.0**63
"""Gains up to here leave room for sums over a long list and exact sums over all queries."""

_NAMED_DISCOUNTS = ("log2", "ln", "reciprocal")


@dataclass(frozen=True, slots=True)
class GainForm:
    """A gain as it is written: `exponential`, `linear:2` (level 2), `power:0.5` or `table:0=0,1=3`."""

    name: str
    number: float | None = None
    """The level below which the gain is 0, or the exponent of a power."""
    table: dict[float, float] | None = None
    """Gain by relevance."""

    @property
    def text(self) -> str:
        """Canonical spelling: `table:0=0,1=3`, whatever blanks, zeros and order the user wrote."""
        if self.table is not None:
            return "table:" + ",".join(
                f"{_format_number(level)}={_format_number(self.table[level])}" for level in sorted(self.table)
            )
        return self.name if self.number is None else f"{self.name}:{_format_number(self.number)}"


@dataclass(frozen=True, slots=True)
class DiscountForm:
    """A discount as it is written: `log2`, `ln`, `log:3` (base 3), `reciprocal` or `table:1,0.5`."""

    name: str
    base: float | None = None
    table: list[float] | None = None
    """Weights from rank 1 on."""

    @property
    def text(self) -> str:
        if self.table is not None:
            return f"table:{','.join(map(_format_number, self.table))}"
        return self.name if self.base is None else f"{self.name}:{_format_number(self.base)}"


def _format_number(number: float) -> str:
    return repr(float(number) + 0.0).removesuffix(".0")


_HEAP_TYPE = 1 << 9
"""Flag of classes that are made by a `class` statement, not in C."""


def function_text(function: Callable[..., Any]) -> str:
    """Name a function and a digest of its code, since all lambdas of a notebook have one name.

    The digest covers the byte code with its constants, defaults and the values that it takes from outside; other
    versions of Python have other byte code.
    """
    name = getattr(function, "__qualname__", type(function).__name__)
    digest = hashlib.sha256(repr(_code_parts(function)).encode()).hexdigest()[:8]
    return f"{function.__module__}.{name}#{digest}"


def _code_parts(value: Any, depth: int = 4) -> Any:
    if isinstance(value, list | tuple | set | frozenset):
        parts = [_code_parts(part, depth) for part in value]
        return parts if isinstance(value, list | tuple) else sorted(map(repr, parts))
    if isinstance(value, Mapping):
        return sorted(repr((key, _code_parts(part, depth))) for key, part in value.items())
    if isinstance(value, CodeType):
        return value.co_code, value.co_names, _code_parts(value.co_consts, depth)
    if value is None or isinstance(value, str | bytes | int | float | complex):
        return repr(value)
    if hasattr(value, "tolist"):  # an array or number of NumPy
        return repr(value.tolist())
    name = getattr(value, "__qualname__", getattr(value, "__name__", type(value).__qualname__))
    if not depth or isinstance(value, ModuleType):
        return name
    parts = _unwrap(value)
    if parts:
        return name, _code_parts(parts, depth - 1)
    if isinstance(value, FunctionType):
        code = value.__code__
        consts = [part for part in code.co_consts if part != value.__doc__]
        outside = {name: value.__globals__[name] for name in code.co_names if name in value.__globals__}
        inside = [cell.cell_contents for cell in value.__closure__ or ()]
        parts = [consts, value.__defaults__, value.__kwdefaults__, inside, outside]
        return name, code.co_code, code.co_names, _code_parts(parts, depth - 1)
    if isinstance(value, type):
        return name, _code_parts(_list_members(value), depth - 1)
    return name, _code_parts([_get_state(value), _list_members(type(value))], depth - 1)


def _unwrap(value: Any) -> list[Any]:
    """Return what a method, `partial` or property is made of; empty for anything else."""
    if isinstance(value, partial):
        return [value.func, value.args, value.keywords]
    if isinstance(value, MethodType):
        return [value.__func__, value.__self__]
    if isinstance(value, BuiltinMethodType) and not isinstance(value.__self__, ModuleType):
        return [value.__self__]
    if isinstance(value, staticmethod | classmethod):
        return [value.__func__]
    return [value.fget] if isinstance(value, property) else []


def _list_members(kind: type) -> dict[str, Any]:
    """Methods and values that a user class and its bases define; classes of libraries have none."""
    bases = [base for base in reversed(kind.__mro__) if hasattr(base, "__module__") and _is_user_class(base)]
    members = {name: value for base in bases for name, value in vars(base).items()}
    return {name: value for name, value in members.items() if name == "__call__" or not name.startswith("__")}


def _is_user_class(kind: type) -> bool:
    return kind.__flags__ & _HEAP_TYPE != 0 and kind.__module__.partition(".")[0] not in ("numpy", "functools")


def _get_state(value: Any) -> Any:
    """Attributes of an object, in its `__dict__` and in its slots."""
    slots = [name for kind in type(value).__mro__ for name in _to_slot_names(vars(kind).get("__slots__", ()))]
    return {**{name: getattr(value, name, None) for name in slots}, **getattr(value, "__dict__", {})}


def _to_slot_names(names: str | Iterable[str]) -> list[str]:
    return [
        name for name in ([names] if isinstance(names, str) else names) if name not in ("__dict__", "__weakref__")
    ]


def parse_gain(text: object) -> GainForm:
    """Parse a gain; refuse an unknown name, a level below 0, a power not above 0, and a malformed or falling table.

    >>> parse_gain("table:0=0,1=1,2=4").table
    {0.0: 0.0, 1.0: 1.0, 2.0: 4.0}
    """
    if not isinstance(text, str):
        raise InvalidParameterError(f"gain must be a name or a function; got {text!r}.")
    if text in _NAMED:
        return GainForm(text)
    name, _, argument = text.partition(":")
    if name in _NAMED and argument:
        level = _parse_number(argument, "gain level")
        if level < 0:  # negative gains from there on, 0 below: the best would not come first in the ideal list
            raise InvalidParameterError(f"gain level must be 0 or more; got {argument!r}.")
        return GainForm(name, level)
    if name == "table" and argument:
        return GainForm(name, table=_parse_gain_table(argument))
    if name == "power" and argument:
        exponent = _parse_number(argument, "gain power")
        if exponent <= 0:
            raise InvalidParameterError(f"gain power must be a positive number; got {argument!r}.")
        return GainForm(name, exponent)
    raise InvalidParameterError(f"gain must be one of {GAIN_FORMS}; got {text!r}.")


def _parse_gain_table(text: str) -> dict[float, float]:
    table: dict[float, float] = {}
    for entry in text.split(","):
        level, equals, gain = entry.partition("=")
        try:
            key, value = float(level), float(gain)
        except ValueError:
            raise InvalidParameterError(f"gain table entry {entry!r} is not LEVEL=GAIN.") from None
        if not equals or key in table or not math.isfinite(key) or not abs(value) <= MAX_GAIN:
            raise InvalidParameterError(f"gain table entry {entry!r} is repeated or not finite.")
        table[key] = value
    for lower, higher in pairwise(sorted(table)):
        if table[higher] < table[lower]:
            raise InvalidParameterError(
                f"gain table falls from {table[lower]:g} at relevance {lower:g} to {table[higher]:g} at {higher:g}; "
                "the ideal list has the highest relevance first, so a gain may not fall as relevance grows."
            )
    return table


def _parse_number(text: str, label: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise InvalidParameterError(f"{label} must be a number; got {text!r}.")
    return number


def relevance_range(spec: str | GainFunction) -> tuple[float, float]:
    """Return the lowest and the highest relevance with a gain of at most 2^63; infinite for functions and tables.

    >>> relevance_range("exponential")
    (-inf, 63.0)
    """
    if callable(spec):
        return -math.inf, math.inf
    form = parse_gain(spec)
    if form.name == "exponential":
        return -math.inf, 63.0
    if form.name == "power" and form.number is not None:
        bits = 63.0 / form.number
        largest = 2.0**bits if bits < 1023 else math.inf
        return -largest, largest
    if form.name == "linear":
        return -MAX_GAIN if form.number is None else -math.inf, MAX_GAIN
    return -math.inf, math.inf


def parse_discount(text: object) -> DiscountForm:
    """Parse a discount; refuse an unknown name, a base not above 1, and a table that `check_weights` refuses.

    >>> parse_discount("table:1,0.5").table
    [1.0, 0.5]
    """
    if not isinstance(text, str):
        raise InvalidParameterError(f"discount must be a name or a function; got {text!r}.")
    if text in _NAMED_DISCOUNTS:
        return DiscountForm(text)
    name, _, argument = text.partition(":")
    if name == "log" and argument:
        return DiscountForm(name, _parse_log_base(argument))
    if name == "table" and argument:
        return DiscountForm(name, table=_parse_discount_table(argument))
    raise InvalidParameterError(f"discount must be one of {DISCOUNT_FORMS}; got {text!r}.")


def _parse_log_base(text: str) -> float:
    try:
        base = float(text)
    except ValueError:
        base = math.nan
    if not 1 < base < math.inf:
        raise InvalidParameterError(f"discount log base must be above 1; got {text!r}.")
    return base


def _parse_discount_table(text: str) -> list[float]:
    try:
        table = [float(entry) for entry in text.split(",")]
    except ValueError:
        raise InvalidParameterError(f"discount table {text!r} is not a list of numbers.") from None
    check_weights(table, "discount table")
    return table


def check_weights(weights: Sequence[float], label: str, *, may_end_in_zeros: bool = False) -> None:
    """Raise unless weights from rank 1 on are finite and above 0, and none is above the one before it.

    `label` names them in the message. `may_end_in_zeros`: as 0.5**rank does, which is 0 beyond rank 1,074.
    """
    before = math.inf
    for rank, weight in enumerate(weights, start=1):
        position = f"{weight:g} at rank {rank}"
        if not math.isfinite(weight):
            raise InvalidParameterError(f"{label} has a value that is not finite: {position}.")
        if weight <= 0 and not (may_end_in_zeros and weight == 0 and rank > 1):
            raise InvalidParameterError(
                f"{label} has {position}; a weight must be above 0 (the cutoff k ends a list)."
            )
        if weight > before:
            raise InvalidParameterError(
                f"{label} rises from {before:g} to {position}; the ideal list has the best gain first, so no rank "
                "may weigh more than the rank before it."
            )
        before = weight


def check_discount(spec: str | DiscountFunction, max_k: int | None) -> None:
    """Raise unless `spec` is a discount that covers `max_k` ranks; None: whole lists are scored."""
    if callable(spec):
        return
    table = parse_discount(spec).table
    if table is not None and (max_k is None or len(table) < max_k):
        ranks = "all ranks" if max_k is None else f"k={max_k}"
        raise InvalidParameterError(f"discount table has {len(table)} ranks, too few for {ranks}.")


_GRADE_GAINS: FloatArray = np.ldexp(1.0, np.arange(32)) - 1.0
"""2^n - 1: nearly all relevances are small whole numbers, for which a lookup is faster."""


def exponential(relevance: FloatArray) -> FloatArray:
    """2^rel - 1, exact for whole numbers; negative relevances give negative gains. Burges et al., ICML 2005.

    >>> exponential(np.array([0.0, 1.0, 3.0, -1.0])).tolist()
    [0.0, 1.0, 7.0, -0.5]
    """
    if relevance.size and relevance.min() >= 0 and relevance.max() < len(_GRADE_GAINS):
        grades = relevance.astype(np.intp)
        if (grades == relevance).all():
            return _GRADE_GAINS[grades]
    whole = np.rint(relevance)
    is_whole = whole == relevance
    # ldexp is exact; exp2 may be an ulp off, depending on the processor.
    powers = np.ldexp(1.0, np.clip(np.where(is_whole, whole, 0.0), -1100, 1100).astype(np.int32))
    if not is_whole.all():
        powers = np.where(is_whole, powers, np.exp2(relevance))
    return np.asarray(powers - 1.0)


def linear(relevance: FloatArray) -> FloatArray:
    """The relevance itself. Jarvelin and Kekalainen, TOIS 20(4), 2002."""
    return relevance


def binary(relevance: FloatArray) -> FloatArray:
    """1 for every relevance above 0, else 0.

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
        indices = np.minimum(np.searchsorted(levels, relevance), len(levels) - 1)
        known = levels[indices] == relevance
        if not known.all():
            level = relevance[~known].flat[0]
            raise InvalidParameterError(f"relevance {level:g} has no gain in the table {levels.tolist()}.")
        return np.asarray(gains[indices])

    return lookup


def gain_function(spec: str | GainFunction) -> GainFunction:
    """Return the function of float64 relevances that a gain stands for; refuse what `parse_gain` refuses.

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


def discount_table(spec: str | DiscountFunction, n_ranks: int) -> FloatArray:
    """Weights of ranks 1..n_ranks, by 1/log2(i+1), 1/ln(i+1), 1/log_B(i+1), 1/i, a table, or a function of the ranks.

    Refuses what `check_discount` and `check_weights` refuse, and a function whose result has another shape. Jarvelin
    and Kekalainen, TOIS 20(4), 2002; 1/log2(i+1) as in Burges et al., ICML 2005.

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
            raise InvalidParameterError(f"discount function returned shape {weights.shape} for {n_ranks} ranks.")
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
