"""Options of the command line from the fields of settings classes, and settings from what was given.

A setting stands once, as a field: its type, default, docstring and `Flag` are all that a flag needs. Help shows the
first paragraph of the field's entry; what it has in backticks is a flag if it is a field, else plain text.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Mapping, Sequence
from datetime import date, datetime, timezone
from typing import Any, TypeVar, get_origin

import click

from ndcg_spark.core.flag import Setting, settings_in
from ndcg_spark.errors import InvalidParameterError
from ndcg_spark.jobs.flags import flag_of

S = TypeVar("S")
_ENTRY = re.compile(r"(\w+(?:, \w+)*)(?: : .*)?")
_METAVARS = {date: "YYYY-MM-DD", datetime: "TIME"}
_TITLE = re.compile(r"(\w[\w ]*)\n-+\n", re.MULTILINE)


def options_of(settings: type, *, without: Collection[str] = ()) -> dict[str, list[click.Option]]:
    """Build the options of the fields of a settings class, by the title of help that they stand under.

    `without` are fields that get none, also of the settings within.
    """
    sentences, found = sentences_of(settings), dict[str, list[click.Option]]()
    spelling = {one.field: _flag(one) for one in settings_in(settings)}
    for one in settings_in(settings):
        if one.field in without or one.flag.hidden:
            continue
        if one.is_nested:
            found = grouped(found, options_of(one.kind, without=without))
        else:
            found.setdefault(one.group, []).append(_option(one, sentences.get(one.field, ""), spelling))
    return found


def changes_of(settings: type, *, without: Collection[str] = ()) -> dict[str, list[click.Option]]:
    """Build options that change given settings: none has a default, and each takes a text, which the class reads."""
    sentences, found = sentences_of(settings), dict[str, list[click.Option]]()
    for one in settings_in(settings):
        if one.field not in without:
            told = sentences[one.field].replace("`", "") if one.field in sentences else ""
            metavar = one.flag.metavar or "RULE"
            flag = "--" + one.field.replace("_", "-")
            found.setdefault(one.group, []).append(click.Option([flag], metavar=metavar, help=told))
    return found


def grouped(*parts: Mapping[str, Sequence[click.Option]]) -> dict[str, list[click.Option]]:
    """Put options together by their titles, which come in the order in which they are first met."""
    found: dict[str, list[click.Option]] = {}
    for part in parts:
        for title, options in part.items():
            found.setdefault(title, []).extend(options)
    return found


def settings_of(settings: type[S], given: Mapping[str, Any], **more: Any) -> S:
    """Make settings of what the options of `options_of` were given; `more` are fields that have no option."""
    values = dict(more)
    for one in settings_in(settings):
        if one.field in more or one.flag.hidden:
            continue
        if one.is_nested:
            values[one.field] = settings_of(one.kind, given)
        elif given.get(parameter_of(one)) is not None:
            values[one.field] = _value(one, given[parameter_of(one)])
    return settings(**values)


def parameter_of(setting: Setting) -> str:
    """Name of the parameter of a setting, under which configuration files and the run log have it, too."""
    names = setting.flag.name.split()
    return names[1] if len(names) > 1 else _flag(setting).removeprefix("--").replace("-", "_")


def sentences_of(settings: type) -> dict[str, str]:
    """The first paragraph of the entry of each field in docstrings of numpydoc, those of bases, too.

    python -OO has none.
    """
    found: dict[str, str] = {}
    for one in reversed(settings.__mro__):
        found |= _entries(inspect.cleandoc(one.__dict__.get("__doc__") or ""))
    return found


def _entries(text: str) -> dict[str, str]:
    pieces = _TITLE.split(text)
    entries = dict(zip(pieces[1::2], pieces[2::2], strict=True)).get("Parameters", "")
    found: dict[str, list[str]] = {}
    names: list[str] = []
    for line in entries.splitlines():
        head = _ENTRY.fullmatch(line)
        if head is not None:
            names = head[1].split(", ")
            found |= {name: [] for name in names}
        for name in names if head is None else ():
            found[name].append(line.strip())
    return {name: "\n".join(lines).strip().partition("\n\n")[0].replace("\n", " ") for name, lines in found.items()}


def _flag(setting: Setting) -> str:
    names = setting.flag.name.split()
    return f"--{names[0]}" if len(names) > 1 else flag_of(names[0] if names else setting.field)


def _option(setting: Setting, sentence: str, spelling: Mapping[str, str]) -> click.Option:
    kind, flag = setting.kind, setting.flag
    more: dict[str, Any] = {}
    if flag.repeated:
        more["multiple"] = True
    elif kind is bool:
        more["is_flag"] = True
    elif setting.choices and get_origin(kind) is not tuple:
        more["type"] = click.Choice(setting.choices)
    elif kind in (int, float) and flag.read is None:
        more["type"] = kind
    if setting.is_required:
        more["required"] = True
    elif setting.default not in (None, ()) and kind is not bool:
        more["default"] = _text(setting)
        more["show_default"] = not flag.shown
    metavar = flag.metavar or _METAVARS.get(kind, "") or ("NAME" if _flag(setting).endswith("-col") else "")
    if metavar:
        more["metavar"] = metavar
    told = f"{sentence}  [default: {flag.shown}]" if flag.shown else sentence
    help_text = re.sub(r"`(\w+)`", lambda found: spelling.get(found[1], found[1]), told)
    return click.Option([_flag(setting), parameter_of(setting)], help=help_text, **more)


def _text(setting: Setting) -> Any:
    """The default as the command line has it."""
    if setting.flag.text is not None:
        return setting.flag.text(setting.default)
    return ",".join(setting.default) if get_origin(setting.kind) is tuple else setting.default


def _value(setting: Setting, given: Any) -> Any:
    """Make the value of a field of what its option was given."""
    if given == "" and setting.optional and _flag(setting).endswith("-col"):
        return None  # of a name, an empty one may be meant: that of a run without a name
    if setting.flag.read is not None:
        return setting.flag.read(given)
    if setting.flag.repeated:
        return tuple(given)
    if get_origin(setting.kind) is tuple:
        return names_of(given)
    if setting.kind is datetime:
        return instant_of(_flag(setting), given)
    return night_of(_flag(setting), given) if setting.kind is date else given


def instant_of(flag: str, text: str) -> datetime:
    """Read the time that an option names: a date, or a time of day in ISO 8601."""
    try:
        return datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith(("Z", "z")) else text)
    except ValueError:
        raise InvalidParameterError(f"{flag} must be as 2026-01-31 or 2026-01-31T18:00:00Z; got {text!r}.") from None


def run_date_of(text: str | None) -> date:
    """Read the date under which results are stored; today in UTC if there is none."""
    return night_of("--run-date", text) or datetime.now(timezone.utc).date()


def night_of(flag: str, text: str | None) -> date | None:
    """Read the date that an option names, if it was given."""
    if text is None:
        return None
    try:
        if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", text):
            raise ValueError
        return date.fromisoformat(text)
    except ValueError:
        raise InvalidParameterError(f"{flag} must be a date as 2026-01-31; got {text!r}.") from None


def names_of(text: str | None) -> tuple[str, ...]:
    """Split a list of names at its commas."""
    return tuple(name.strip() for name in text.split(",")) if text else ()


def pairs_of(texts: Sequence[str]) -> dict[str, str]:
    """Split texts of the form NAME=VALUE."""
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InvalidParameterError(f"{text!r} is not of the form NAME=VALUE.")
        pairs[name] = value
    return pairs
