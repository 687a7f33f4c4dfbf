"""Options of commands: made of fields of settings, read from a configuration file, named in errors."""

from __future__ import annotations

import difflib
import inspect
import json
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any, TypeVar, get_origin

import click
from click.core import ParameterSource

from ndcg_spark.core.flag import Setting, settings_in
from ndcg_spark.core.redaction import redacted_values
from ndcg_spark.errors import InvalidParameterError, NdcgSparkError, spelled, text_of, unquoted

_COLUMNS = frozenset((
    "annotator", "categories", "click", "cluster", "event", "event_id", "first_seen", "ideal", "item", "labels",
    "order", "position", "propensity", "query", "rank", "relevance", "relevant", "run", "same", "score", "topics",
    "ts", "user", "vector", "weight",
))  # fmt: skip
"""Arguments of Python that name a column: `query` is `--query-col`."""


def with_flags(text: str) -> str:
    """Spell the options that an error names as flags.

    >>> from ndcg_spark.errors import option
    >>> with_flags(f"leave {option('run')} out; {option('weight', repr(''))}, {option('keep_replicates', 'True')}")
    "leave --run-col out; --weight-col '', --keep-replicates"
    """
    return spelled(text, flag_of)


def flag_of(name: str, value: str = "") -> str:
    """Spell an option of Python as a flag, with its value unless it is a switch; a rule has its own flag."""
    value = unquoted(value)
    if name == "convention" and ";" in value:
        rule, _, value = value.rpartition(";")[2].partition("=")
        return f"--{rule.replace('_', '-')} {value}"
    if name == "grow":
        return "--schema grow"
    known = {"segments": "segment-cols", "ranked": "ranked-cols", "night": "run-date"}
    flag = "--" + known.get(name, f"{name}-col" if name in _COLUMNS else name).replace("_", "-")
    return flag if value in ("", "True") else f"{flag} {value}"


S = TypeVar("S")
_ENTRY = re.compile(r"(\w+(?:, \w+)*)(?: : .*)?")
_METAVARS = {date: "YYYY-MM-DD", datetime: "TIME"}
_TITLE = re.compile(r"(\w[\w ]*)\n-+\n", re.MULTILINE)


def options_of(settings: type, *, without: Collection[str] = ()) -> dict[str, list[click.Option]]:
    """Build the options of the fields of a settings class, by their title in the help, except fields in `without`."""
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
    """Build options that change given settings: none has a default, and each is a text, which the class parses."""
    sentences, found = sentences_of(settings), dict[str, list[click.Option]]()
    for one in settings_in(settings):
        if one.field not in without:
            told = sentences[one.field].replace("`", "") if one.field in sentences else ""
            metavar = one.flag.metavar or "RULE"
            flag = "--" + one.field.replace("_", "-")
            found.setdefault(one.group, []).append(click.Option([flag], metavar=metavar, help=told))
    return found


def grouped(*parts: Mapping[str, Sequence[click.Option]]) -> dict[str, list[click.Option]]:
    """Join options by their titles, in the order in which these first appear."""
    found: dict[str, list[click.Option]] = {}
    for part in parts:
        for title, options in part.items():
            found.setdefault(title, []).extend(options)
    return found


def settings_of(settings: type[S], given: Mapping[str, Any], **more: Any) -> S:
    """Make settings from the values of the options of `options_of`; `more` are fields that have no option."""
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
    """Name the parameter of a setting, as configuration files and the run log have it."""
    names = setting.flag.name.split()
    return names[1] if len(names) > 1 else _flag(setting).removeprefix("--").replace("-", "_")


def sentences_of(settings: type) -> dict[str, str]:
    """Read the first paragraph of each parameter from numpydoc docstrings of a class and its bases."""
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
    if setting.flag.text is not None:
        return setting.flag.text(setting.default)
    return ",".join(setting.default) if get_origin(setting.kind) is tuple else setting.default


def _value(setting: Setting, given: Any) -> Any:
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
    """Parse the time of an option: a date, or a time of day in ISO 8601."""
    try:
        return datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith(("Z", "z")) else text)
    except ValueError:
        raise InvalidParameterError(f"{flag} must be as 2026-01-31 or 2026-01-31T18:00:00Z; got {text!r}.") from None


def run_date_of(text: str | None) -> date:
    """Parse the date under which results are stored; today in UTC if there is none."""
    return night_of("--run-date", text) or datetime.now(timezone.utc).date()


def night_of(flag: str, text: str | None) -> date | None:
    if text is None:
        return None
    try:
        if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", text):
            raise ValueError
        return date.fromisoformat(text)
    except ValueError:
        raise InvalidParameterError(f"{flag} must be a date as 2026-01-31; got {text!r}.") from None


def names_of(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",")) if text else ()


def pairs_of(texts: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InvalidParameterError(f"{text!r} is not of the form NAME=VALUE.")
        pairs[name] = value
    return pairs


if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_ORIGINS = {
    ParameterSource.COMMANDLINE: "command line",
    ParameterSource.ENVIRONMENT: "environment",
    ParameterSource.DEFAULT_MAP: "--config",
}
_NO_TEXT = ("true or false", "a whole number", "a number")
_NOT_IN_FILES = ("config", "print_config", "help")


def config_options() -> list[click.Option]:
    return [
        click.Option(["--config"], metavar="FILE", is_eager=True, expose_value=False, callback=_use_file, help="TOML "
                     "file with options of this command; those of the command line override them."),
        click.Option(["--print-config"], is_flag=True, help="Print the options in force, as a file for --config, and "
                     "run nothing."),
    ]  # fmt: skip


def _use_file(context: click.Context, _: click.Parameter, path: str | None) -> None:
    if path is not None:
        context.default_map = options_in_file(path, context)


def options_in_file(path: str, context: click.Context) -> dict[str, Any]:
    """Read options of a command from a TOML file: its table, `[outer.inner]`, overrides keys outside of tables.

    A key is refused that is not an option of the command, or, outside of tables, of any command.
    """
    found: dict[str, Any] = {}
    for level, table in enumerate(_tables_for(path, context)):
        others = _options_of_all(context.find_root().command) if level == 0 else set()
        with named_in_refusals(path):
            found |= values_in_table(table, context, others)
    return found


@contextmanager
def named_in_refusals(place: str) -> Iterator[None]:
    """Begin refusals of options with the file, or part of one, that has them."""
    try:
        yield
    except (click.ClickException, NdcgSparkError) as error:
        message = error.format_message() if isinstance(error, click.ClickException) else with_flags(text_of(error))
        raise InvalidParameterError(f"{place}: {message}") from error


def values_in_table(table: Mapping[str, Any], context: click.Context, others: Collection[str] = ()) -> dict[str, Any]:
    """Read options of a command from a table of a file, whose keys may also be the `others`, of other commands."""
    options = keys_of(context.command)
    found: dict[str, Any] = {}
    spellings: dict[str, str] = {}
    for key, value in table.items():
        option = options.get(key.replace("_", "-"))
        if option is None:
            if key.replace("_", "-") in others:
                continue
            raise InvalidParameterError(_unknown(key, {_key(one) for one in options.values()}, context))
        name = str(option.name)
        if spellings.setdefault(name, key) != key:
            raise InvalidParameterError(f"{spellings[name]!r} and {key!r} are one option; keep one.")
        found[name] = _checked(option, key, value, context)
    return found


def keys_of(command: click.Command) -> dict[str, click.Parameter]:
    """Options by their keys: the names of their flags, and of their parameters, under which the run log has them."""
    options = [one for one in command.params if one.name not in _NOT_IN_FILES]
    return {str(one.name).replace("_", "-"): one for one in options} | {_key(one): one for one in options}


def _options_of_all(command: click.Command) -> set[str]:
    within = command.commands.values() if isinstance(command, click.Group) else ()
    return set(keys_of(command)).union(*map(_options_of_all, within))


def _tables_for(path: str, context: click.Context) -> list[dict[str, Any]]:
    """Keys outside of tables, then those of the tables of the command and of the groups around it."""
    level, command = read_toml(path), context.find_root().command
    names, tables = _names(context), []
    while True:
        within = command.commands if isinstance(command, click.Group) else {}
        for key, value in level.items():
            if isinstance(value, dict) and key not in within:
                raise InvalidParameterError(f"{path}: no command goes by the table [{key}]{closest(key, within)}.")
        tables.append({key: value for key, value in level.items() if not isinstance(value, dict)})
        if not names:
            return tables
        name = names.pop(0)
        inner = level.get(name, {})
        level, command = inner if isinstance(inner, dict) else {}, within[name]


def read_toml(path: str) -> dict[str, Any]:
    """Read a file for `--config`."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidParameterError(f"--config {path!r} cannot be read: {error.strerror}.") from error
    except ValueError as error:  # of decoding, too
        raise InvalidParameterError(f"{path}: no TOML: {error}.") from error


def _names(context: click.Context) -> list[str]:
    """Names of the command below the root: `["build-judgments", "events"]`."""
    names: list[str] = []
    while context.parent is not None:
        names.insert(0, str(context.command.name))
        context = context.parent
    return names


def _key(option: click.Parameter) -> str:
    return option.opts[0].removeprefix("--")


def _unknown(key: str, options: Iterable[str], context: click.Context) -> str:
    near = closest(key.replace("_", "-"), options)
    listed = "--help lists them" if near else f"they are {', '.join(sorted(options))}"
    return f"unknown key {key!r}{near}; keys are the options of {context.command.name} ({listed})."


def closest(word: str, known: Iterable[str]) -> str:
    """Ask in brackets for the known word that is most like a word; empty if none is."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def _checked(option: click.Parameter, key: str, value: Any, context: click.Context) -> Any:
    """Return a value in the form in which the command line gives it."""
    allowed = _allowed(option)
    given: Any = [_as_text(one) for one in value] if isinstance(value, list) else _as_text(value)
    fits = {
        "true or false": isinstance(value, bool),
        "a whole number": isinstance(value, int) and not isinstance(value, bool),
        "a number": isinstance(value, int | float) and not isinstance(value, bool),
        "text": isinstance(given, str),
        "text or an array": isinstance(given, str) or (isinstance(given, list) and None not in given),
        "an array of text": isinstance(given, list) and None not in given,
    }[allowed]
    if not fits:
        raise InvalidParameterError(f"{key!r} must be {allowed}; got {_shown(value)}.")
    plain = value if allowed in _NO_TEXT else given
    if allowed == "text or an array" and isinstance(given, list):
        plain = ",".join(given)
    try:
        option.type_cast_value(context, plain)
    except click.BadParameter as error:
        raise InvalidParameterError(f"{key!r}: {error.message}") from error
    return plain


def _allowed(option: click.Parameter) -> str:
    """What TOML may say for an option. A list such as `--k 1,3,5` shows a comma in its help."""
    if isinstance(option, click.Option) and option.is_flag:
        return "true or false"
    if option.multiple:
        return "an array of text"
    if isinstance(option.type, click.types.IntParamType | click.IntRange):
        return "a whole number"
    if isinstance(option.type, click.types.FloatParamType | click.FloatRange):
        return "a number"
    return "text or an array" if "," in (option.metavar or "") else "text"


def _as_text(value: Any) -> str | None:
    """Text of a value that needs no quotes on the command line; None where there is no such text."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return None
    if isinstance(value, date):  # of a time of day, too
        return value.isoformat()
    return str(value) if isinstance(value, int | float) else None


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def config_text(context: click.Context, groups: Mapping[str, Iterable[click.Option]]) -> str:
    """Write the options in force as TOML for `--config`, with their origin in comments; credentials are hidden."""
    lines = [f"# {' '.join(['ndcg-spark', *(_names(context) or [str(context.command.name)])])}"]
    for title, options in groups.items():
        in_force = [one for one in options if context.params.get(str(one.name)) not in (None, False, ())]
        shown = [_line(option, context) for option in in_force]
        lines += ["", f"# {title}", *shown] if shown else []
    return "\n".join(lines)


def _line(option: click.Option, context: click.Context) -> str:
    name = str(option.name)
    value = context.params[name]
    value = list(value) if isinstance(value, tuple) else value
    safe = redacted_values(value)
    # JSON of text, numbers, booleans and arrays of text is TOML, but for one control character.
    text = json.dumps(safe, ensure_ascii=False).replace("\x7f", "\\u007f")
    origin = _ORIGINS.get(context.get_parameter_source(name))  # type: ignore[arg-type]  # None has no name
    notes = [*([origin] if origin else []), *(["*** hides a credential"] if safe != value else [])]
    return f"{_key(option)} = {text}{'  # ' + '; '.join(notes) if notes else ''}"
