"""What a command line needs to know of a field of settings, beyond its type, its default and its sentence.

Workers import settings, and help is shown before Spark loads: the standard library does for all of it.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import date
from numbers import Integral, Real
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

from ndcg_spark.errors import InvalidParameterError, one_of, option

S = TypeVar("S")


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """How a field is asked for, where that does not follow from the field itself.

    `name` is another name for the field, `segments`; or the flag, and behind it the parameter: `from start`. `group`
    is the title in help under which it stands, as do the fields after it. `shown` is told as the default. `read`
    makes a value of a text, and `text` a text of the default. What is `repeated` may be given several times; what is
    `hidden` has no option.
    """

    name: str = ""
    group: str = ""
    metavar: str = ""
    shown: str = ""
    repeated: bool = False
    hidden: bool = False
    read: Callable[[str], Any] | None = None
    text: Callable[[Any], str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A field of a settings class as it is asked for; `kind` is its type, without None if it is `optional`."""

    field: str
    kind: Any
    optional: bool
    default: Any
    group: str
    flag: Flag

    @property
    def is_nested(self) -> bool:
        """Whether it is a settings class itself, whose fields have flags of their own."""
        return is_dataclass(self.kind) and self.flag.read is None

    @property
    def is_required(self) -> bool:
        """Whether there is no default."""
        return self.default is MISSING

    @property
    def choices(self) -> tuple[str, ...]:
        """Values that it takes, each or several of them; none where they are not listed."""
        kind = get_args(self.kind)[0] if get_origin(self.kind) is tuple else self.kind
        return get_args(kind) if get_origin(kind) is Literal else ()


_READ: dict[type, tuple[Setting, ...]] = {}
"""Settings classes whose fields were listed before: type hints take a millisecond to resolve."""


def settings_in(cls: type) -> tuple[Setting, ...]:
    """List the fields of a settings class, in their order."""
    if cls not in _READ:
        _READ[cls] = tuple(_settings_in(cls))
    return _READ[cls]


def _settings_in(cls: type) -> Iterator[Setting]:
    hints, group = get_type_hints(cls, include_extras=True), ""
    for one in fields(cls):
        kind, flag = hints[one.name], Flag()
        if get_origin(kind) is Annotated:
            kind, *extras = get_args(kind)
            flag = next((extra for extra in extras if isinstance(extra, Flag)), flag)
        inner = [its for its in get_args(kind) if its is not types.NoneType]
        optional = get_origin(kind) in (Union, types.UnionType) and len(inner) == 1
        default = one.default if one.default_factory is MISSING else one.default_factory()
        group = flag.group or group
        yield Setting(
            field=one.name,
            kind=inner[0] if optional else kind,
            optional=optional,
            default=default,
            group=group,
            flag=flag,
        )


def settings_from(cls: type[S], given: Mapping[str, Any]) -> S:
    """Make settings of arguments that are called as their fields are, those of nested classes, too.

    Where a field holds several names, a single one may be given as text.
    """
    values: dict[str, Any] = {}
    for one in settings_in(cls):
        if one.is_nested:
            values[one.field] = settings_from(one.kind, given)
        elif one.field in given:
            value = given[one.field]
            if get_origin(one.kind) is tuple and not (value is None and one.optional):
                value = several(one.field, value)
            values[one.field] = value
    return cls(**values)


def several(name: str, value: Any) -> tuple[Any, ...]:
    """A tuple of what is one text, or several values."""
    if isinstance(value, str):
        return (value,)
    try:
        return tuple(value)
    except TypeError:
        raise InvalidParameterError(f"{option(name)} must be one name or several; got {value!r}.") from None


def check_values(settings: Any) -> None:
    """Raise `InvalidParameterError` for a value that is not of the type of its field, or not among its choices.

    Numbers of NumPy become Python numbers, and an int becomes a float where the field is one, because hashes of
    settings tell 1 from 1.0.
    """
    for one in settings_in(type(settings)):
        value = getattr(settings, one.field)
        if value is None and one.optional:
            continue
        if one.choices:
            for its in value if get_origin(one.kind) is tuple else (value,):
                one_of(one.field, its, one.choices)
        elif one.kind in _KINDS:
            object.__setattr__(settings, one.field, of_kind(one.field, one.kind, value))
        elif get_origin(one.kind) is tuple and get_args(one.kind)[0] in _KINDS:
            found = tuple(of_kind(one.field, get_args(one.kind)[0], its) for its in several(one.field, value))
            object.__setattr__(settings, one.field, found)


_KINDS: Mapping[Any, str] = {
    bool: "True or False", int: "a whole number", float: "a number", str: "a name", date: "a datetime.date",
}  # fmt: skip


def of_kind(name: str, kind: type, value: Any) -> Any:
    """Give a value as one of the type `kind`, or raise; `name` is what it is called where the user wrote it."""
    given = value.item() if type(value).__module__ == "numpy" and hasattr(value, "item") else value
    if type(given) is kind or (kind is str and isinstance(given, str)):
        return given
    is_flag = type(given) is bool  # which is a number to Python
    if kind is float and isinstance(given, Real) and not is_flag:
        return float(given)
    if kind is int and isinstance(given, Integral) and not is_flag:
        return int(given)
    raise InvalidParameterError(f"{option(name)} must be {_KINDS[kind]}; got {value!r}.")


OnInvalid: TypeAlias = Literal["fail", "reject"]
"""What a bad row does: stop the action, or be left out and counted."""
