"""Fields of settings classes, as the command line and the checks of values read them."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import date
from numbers import Integral, Real
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

from ndcg_spark.errors import InvalidParameterError, check_choice, option

S = TypeVar("S")


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """Option of a settings field: the parts that do not follow from the field.

    `name` is another name for the field (`segments`), or the flag and the parameter (`from start`). `group` is the
    title in help above this field and those after it. `shown` is printed as the default. `read` parses a text, and
    `text` formats the default. A `repeated` option may be given several times; a `hidden` field has no option.
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
    """A field of a settings class; `kind` is its type, without None if it is `optional`."""

    field: str
    kind: Any
    optional: bool
    default: Any
    group: str
    flag: Flag

    @property
    def is_nested(self) -> bool:
        """Check whether the field is a settings class itself, whose fields have flags of their own."""
        return is_dataclass(self.kind) and self.flag.read is None

    @property
    def is_required(self) -> bool:
        return self.default is MISSING

    @property
    def choices(self) -> tuple[str, ...]:
        """Listed values, of which the field takes one or several; empty if they are not listed."""
        kind = get_args(self.kind)[0] if get_origin(self.kind) is tuple else self.kind
        return get_args(kind) if get_origin(kind) is Literal else ()


_SETTINGS: dict[type, tuple[Setting, ...]] = {}
"""Fields by settings class: type hints take a millisecond to resolve."""


def list_settings(cls: type) -> tuple[Setting, ...]:
    """List the fields of a settings class, in their order."""
    if cls in _SETTINGS:
        return _SETTINGS[cls]
    hints, group, settings = get_type_hints(cls, include_extras=True), "", []
    for field in fields(cls):
        kind, flag = hints[field.name], Flag()
        if get_origin(kind) is Annotated:
            kind, *extras = get_args(kind)
            flag = next((extra for extra in extras if isinstance(extra, Flag)), flag)
        inner = [arg for arg in get_args(kind) if arg is not types.NoneType]
        optional = get_origin(kind) in (Union, types.UnionType) and len(inner) == 1
        default = field.default if field.default_factory is MISSING else field.default_factory()
        group = flag.group or group
        kind = inner[0] if optional else kind
        settings.append(
            Setting(field=field.name, kind=kind, optional=optional, default=default, group=group, flag=flag)
        )
    return _SETTINGS.setdefault(cls, tuple(settings))


def create_settings(cls: type[S], arguments: Mapping[str, Any]) -> S:
    """Create settings from arguments named as their fields and those of nested classes.

    A field of several names takes a single one as text.
    """
    values: dict[str, Any] = {}
    for setting in list_settings(cls):
        if setting.is_nested:
            values[setting.field] = create_settings(setting.kind, arguments)
        elif setting.field in arguments:
            value = arguments[setting.field]
            if get_origin(setting.kind) is tuple and not (value is None and setting.optional):
                value = to_tuple(setting.field, value)
            values[setting.field] = value
    return cls(**values)


def to_tuple(name: str, value: Any) -> tuple[Any, ...]:
    """Return one text, or several values, as a tuple."""
    if isinstance(value, str):
        return (value,)
    try:
        return tuple(value)
    except TypeError:
        raise InvalidParameterError(f"{option(name)} must be a name or a list of names; got {value!r}.") from None


def check_values(settings: Any) -> None:
    """Raise `InvalidParameterError` for a value that is not of the type of its field, or not among its choices.

    Numbers of NumPy become Python numbers, and an int becomes a float where the field is one, because hashes of
    settings tell 1 from 1.0.
    """
    for setting in list_settings(type(settings)):
        value = getattr(settings, setting.field)
        if value is None and setting.optional:
            continue
        if setting.choices:
            for choice in value if get_origin(setting.kind) is tuple else (value,):
                check_choice(setting.field, choice, setting.choices)
        elif setting.kind in _KINDS:
            object.__setattr__(settings, setting.field, convert_value(setting.field, setting.kind, value))
        elif get_origin(setting.kind) is tuple and get_args(setting.kind)[0] in _KINDS:
            converted = tuple(
                convert_value(setting.field, get_args(setting.kind)[0], choice)
                for choice in to_tuple(setting.field, value)
            )
            object.__setattr__(settings, setting.field, converted)


_KINDS: Mapping[Any, str] = {
    bool: "True or False", int: "a whole number", float: "a number", str: "a name", date: "a datetime.date",
}  # fmt: skip


def convert_value(name: str, kind: type, value: Any) -> Any:
    """Convert a value to the type `kind`, or raise; `name` is the user's name for it."""
    number = value.item() if type(value).__module__ == "numpy" and hasattr(value, "item") else value
    if type(number) is kind or (kind is str and isinstance(number, str)):
        return number
    is_flag = type(number) is bool  # which is a number to Python
    if kind is float and isinstance(number, Real) and not is_flag:
        return float(number)
    if kind is int and isinstance(number, Integral) and not is_flag:
        return int(number)
    raise InvalidParameterError(f"{option(name)} must be {_KINDS[kind]}; got {value!r}.")


OnInvalid: TypeAlias = Literal["fail", "reject"]
"""A bad row stops the action, or is left out and counted."""
