"""Options of commands: built from fields of settings, read from a configuration file, and named in errors."""

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

from ndcg_spark.core.flag import Setting, list_settings
from ndcg_spark.core.redaction import redact_values
from ndcg_spark.errors import InvalidParameterError, NdcgSparkError, get_message, spell_options, strip_quotes

_COLUMN_OPTIONS = frozenset((
    "annotator", "categories", "click", "cluster", "event", "event_id", "first_seen", "ideal", "item", "labels",
    "order", "position", "propensity", "query", "rank", "relevance", "relevant", "run", "same", "score", "topics",
    "ts", "user", "vector", "weight",
))  # fmt: skip
"""Python arguments that name a column: `query` is `--query-col`."""


def spell_flags(text: str) -> str:
    """Spell the options that an error names as flags.

    >>> from ndcg_spark.errors import option
    >>> spell_flags(f"leave {option('run')} out; {option('weight', repr(''))}, {option('keep_replicates', 'True')}")
    "leave --run-col out; --weight-col '', --keep-replicates"
    """
    return spell_options(text, format_flag)


def format_flag(name: str, value: str = "") -> str:
    """Spell an option of Python as a flag, with its value unless it is a switch; a rule has its own flag."""
    value = strip_quotes(value)
    if name == "convention" and ";" in value:
        rule, _, value = value.rpartition(";")[2].partition("=")
        return f"--{rule.replace('_', '-')} {value}"
    if name == "grow":
        return "--schema grow"
    known = {"segments": "segment-cols", "ranked": "ranked-cols", "night": "run-date"}
    flag = "--" + known.get(name, f"{name}-col" if name in _COLUMN_OPTIONS else name).replace("_", "-")
    return flag if value in ("", "True") else f"{flag} {value}"


S = TypeVar("S")
_PARAMETER_HEAD = re.compile(r"(\w+(?:, \w+)*)(?: : .*)?")
_METAVARS = {date: "YYYY-MM-DD", datetime: "TIME"}
_TITLE = re.compile(r"(\w[\w ]*)\n-+\n", re.MULTILINE)


def build_options(settings: type, *, without: Collection[str] = ()) -> dict[str, list[click.Option]]:
    """Build the options of the fields of a settings class, by their title in the help, except fields in `without`."""
    sentences, groups = read_parameter_docs(settings), dict[str, list[click.Option]]()
    spelling = {setting.field: _format_setting_flag(setting) for setting in list_settings(settings)}
    for setting in list_settings(settings):
        if setting.field in without or setting.flag.hidden:
            continue
        if setting.is_nested:
            groups = merge_groups(groups, build_options(setting.kind, without=without))
        else:
            groups.setdefault(setting.group, []).append(
                _build_option(setting, sentences.get(setting.field, ""), spelling)
            )
    return groups


def build_override_options(settings: type, *, without: Collection[str] = ()) -> dict[str, list[click.Option]]:
    """Build options that override existing settings: none has a default, and the settings class parses their text."""
    sentences, groups = read_parameter_docs(settings), dict[str, list[click.Option]]()
    for setting in list_settings(settings):
        if setting.field not in without:
            help_text = sentences[setting.field].replace("`", "") if setting.field in sentences else ""
            metavar = setting.flag.metavar or "RULE"
            flag = "--" + setting.field.replace("_", "-")
            groups.setdefault(setting.group, []).append(click.Option([flag], metavar=metavar, help=help_text))
    return groups


def merge_groups(*mappings: Mapping[str, Sequence[click.Option]]) -> dict[str, list[click.Option]]:
    """Join options by their titles, in the order in which these first appear."""
    groups: dict[str, list[click.Option]] = {}
    for mapping in mappings:
        for title, options in mapping.items():
            groups.setdefault(title, []).extend(options)
    return groups


def build_settings(settings: type[S], params: Mapping[str, Any], **fixed: Any) -> S:
    """Build settings from the values of their options; `fixed` are fields that have no option."""
    values = dict(fixed)
    for setting in list_settings(settings):
        if setting.field in fixed or setting.flag.hidden:
            continue
        if setting.is_nested:
            values[setting.field] = build_settings(setting.kind, params)
        elif params.get(get_parameter_name(setting)) is not None:
            values[setting.field] = _parse_value(setting, params[get_parameter_name(setting)])
    return settings(**values)


def get_parameter_name(setting: Setting) -> str:
    """Return the parameter name of a setting, as in configuration files and the run log."""
    names = setting.flag.name.split()
    return names[1] if len(names) > 1 else _format_setting_flag(setting).removeprefix("--").replace("-", "_")


def read_parameter_docs(settings: type) -> dict[str, str]:
    """Read the first paragraph of each parameter from numpydoc docstrings of a class and its bases."""
    docs: dict[str, str] = {}
    for base in reversed(settings.__mro__):
        docs |= _parse_parameters(inspect.cleandoc(base.__dict__.get("__doc__") or ""))
    return docs


def _parse_parameters(text: str) -> dict[str, str]:
    sections = _TITLE.split(text)
    entries = dict(zip(sections[1::2], sections[2::2], strict=True)).get("Parameters", "")
    lines_by_name: dict[str, list[str]] = {}
    names: list[str] = []
    for line in entries.splitlines():
        head = _PARAMETER_HEAD.fullmatch(line)
        if head is not None:
            names = head[1].split(", ")
            lines_by_name |= {name: [] for name in names}
        for name in names if head is None else ():
            lines_by_name[name].append(line.strip())
    return {
        name: "\n".join(lines).strip().partition("\n\n")[0].replace("\n", " ")
        for name, lines in lines_by_name.items()
    }


def _format_setting_flag(setting: Setting) -> str:
    names = setting.flag.name.split()
    return f"--{names[0]}" if len(names) > 1 else format_flag(names[0] if names else setting.field)


def _build_option(setting: Setting, sentence: str, spelling: Mapping[str, str]) -> click.Option:
    kind, flag = setting.kind, setting.flag
    attributes: dict[str, Any] = {}
    if flag.repeated:
        attributes["multiple"] = True
    elif kind is bool:
        attributes["is_flag"] = True
    elif setting.choices and get_origin(kind) is not tuple:
        attributes["type"] = click.Choice(setting.choices)
    elif kind in (int, float) and flag.read is None:
        attributes["type"] = kind
    if setting.is_required:
        attributes["required"] = True
    elif setting.default not in (None, ()) and kind is not bool:
        attributes["default"] = _format_default(setting)
        attributes["show_default"] = not flag.shown
    metavar = (
        flag.metavar or _METAVARS.get(kind, "") or ("NAME" if _format_setting_flag(setting).endswith("-col") else "")
    )
    if metavar:
        attributes["metavar"] = metavar
    sentence_with_default = f"{sentence}  [default: {flag.shown}]" if flag.shown else sentence
    help_text = re.sub(r"`(\w+)`", lambda match: spelling.get(match[1], match[1]), sentence_with_default)
    return click.Option([_format_setting_flag(setting), get_parameter_name(setting)], help=help_text, **attributes)


def _format_default(setting: Setting) -> Any:
    if setting.flag.text is not None:
        return setting.flag.text(setting.default)
    return ",".join(setting.default) if get_origin(setting.kind) is tuple else setting.default


def _parse_value(setting: Setting, raw: Any) -> Any:
    if raw == "" and setting.optional and _format_setting_flag(setting).endswith("-col"):
        return None  # an empty value of other options may be meant: a run may have the empty name
    if setting.flag.read is not None:
        return setting.flag.read(raw)
    if setting.flag.repeated:
        return tuple(raw)
    if get_origin(setting.kind) is tuple:
        return parse_names(raw)
    if setting.kind is datetime:
        return parse_instant(_format_setting_flag(setting), raw)
    return parse_date(_format_setting_flag(setting), raw) if setting.kind is date else raw


def parse_instant(flag: str, text: str) -> datetime:
    """Parse the time of an option: a date, or a date and time in ISO 8601."""
    try:
        return datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith(("Z", "z")) else text)
    except ValueError:
        raise InvalidParameterError(f"{flag} must be as 2026-01-31 or 2026-01-31T18:00:00Z; got {text!r}.") from None


def parse_run_date(text: str | None) -> date:
    """Parse the date under which results are stored; the default is today in UTC."""
    return parse_date("--run-date", text) or datetime.now(timezone.utc).date()


def parse_date(flag: str, text: str | None) -> date | None:
    if text is None:
        return None
    try:
        if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", text):
            raise ValueError
        return date.fromisoformat(text)
    except ValueError:
        problem = "is not a day of the calendar" if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text) else "is not a date"
        raise InvalidParameterError(f"{flag}: {text!r} {problem}; write it as 2026-01-31.") from None


def parse_names(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",")) if text else ()


def parse_pairs(texts: Sequence[str], flag: str) -> dict[str, str]:
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InvalidParameterError(f"{flag} {text!r} is not of the form NAME=VALUE.")
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
_NOT_TEXT = ("true or false", "a whole number", "a number")
_NOT_IN_FILES = ("config", "print_config", "help")


def config_options() -> list[click.Option]:
    return [
        click.Option(["--config"], metavar="FILE", is_eager=True, expose_value=False, callback=_load_config_file,
                     help="TOML file with options of this command; those of the command line override them."),
        click.Option(["--print-config"], is_flag=True, help="Print the options in force, as a file for --config, and "
                     "run nothing."),
    ]  # fmt: skip


def _load_config_file(context: click.Context, _: click.Parameter, path: str | None) -> None:
    if path is not None:
        context.default_map = read_config_file(path, context)


def read_config_file(path: str, context: click.Context) -> dict[str, Any]:
    """Read options of a command from a TOML file: its table, `[outer.inner]`, overrides keys outside of tables.

    A key is refused that is not an option of the command, or, outside of tables, of any command.
    """
    options: dict[str, Any] = {}
    for level, table in enumerate(_select_config_tables(path, context)):
        others = _collect_keys(context.find_root().command) if level == 0 else set()
        with prefix_refusals(path):
            options |= read_config_table(table, context, others)
    return options


@contextmanager
def prefix_refusals(place: str) -> Iterator[None]:
    """Prefix refusals of options with the file, or the table in it, that contains them."""
    try:
        yield
    except (click.ClickException, NdcgSparkError) as error:
        message = (
            error.format_message() if isinstance(error, click.ClickException) else spell_flags(get_message(error))
        )
        raise InvalidParameterError(f"{place}: {message}") from error


def read_config_table(
    table: Mapping[str, Any], context: click.Context, others: Collection[str] = ()
) -> dict[str, Any]:
    """Read options of a command from a table of a file, whose keys may also be the `others`, of other commands."""
    options = index_options(context.command)
    params: dict[str, Any] = {}
    spellings: dict[str, str] = {}
    for key, value in table.items():
        option = options.get(key.replace("_", "-"))
        if option is None:
            if key.replace("_", "-") in others:
                continue
            raise InvalidParameterError(
                _describe_unknown_key(
                    key, {_get_config_key(known_option) for known_option in options.values()}, context
                )
            )
        name = str(option.name)
        if spellings.setdefault(name, key) != key:
            raise InvalidParameterError(f"{spellings[name]!r} and {key!r} are the same option; keep one of them.")
        params[name] = _convert_config_value(option, key, value, context)
    return params


def index_options(command: click.Command) -> dict[str, click.Parameter]:
    """Return options by their keys: the names of flags, and of parameters, which the run log uses."""
    options = [option for option in command.params if option.name not in _NOT_IN_FILES]
    return {str(option.name).replace("_", "-"): option for option in options} | {
        _get_config_key(option): option for option in options
    }


def _collect_keys(command: click.Command) -> set[str]:
    subcommands = command.commands.values() if isinstance(command, click.Group) else ()
    return set(index_options(command)).union(*map(_collect_keys, subcommands))


def _select_config_tables(path: str, context: click.Context) -> list[dict[str, Any]]:
    """Return the keys outside of tables, then those of the command's groups, then those of the command."""
    level, command = read_toml(path), context.find_root().command
    names, tables = _list_command_names(context), []
    while True:
        subcommands = command.commands if isinstance(command, click.Group) else {}
        for key, value in level.items():
            if isinstance(value, dict) and key not in subcommands:
                raise InvalidParameterError(f"{path}: [{key}] is not a command{suggest_closest(key, subcommands)}.")
        tables.append({key: value for key, value in level.items() if not isinstance(value, dict)})
        if not names:
            return tables
        name = names.pop(0)
        inner = level.get(name, {})
        level, command = inner if isinstance(inner, dict) else {}, subcommands[name]


def read_toml(path: str) -> dict[str, Any]:
    """Read a file for `--config`."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidParameterError(f"--config {path!r} cannot be read: {error.strerror}.") from error
    except ValueError as error:  # includes decoding errors
        raise InvalidParameterError(f"{path} is not valid TOML: {error}.") from error


def _list_command_names(context: click.Context) -> list[str]:
    """List the words of a command below the root: `["build-judgments", "events"]`."""
    names: list[str] = []
    while context.parent is not None:
        names.insert(0, str(context.command.name))
        context = context.parent
    return names


def _get_config_key(option: click.Parameter) -> str:
    return option.opts[0].removeprefix("--")


def _describe_unknown_key(key: str, options: Iterable[str], context: click.Context) -> str:
    suggestion = suggest_closest(key.replace("_", "-"), options)
    hint = "--help lists them" if suggestion else f"they are {', '.join(sorted(options))}"
    return f"unknown key {key!r}{suggestion}; keys are the options of {context.command.name} ({hint})."


def suggest_closest(word: str, known: Iterable[str]) -> str:
    """Return " (did you mean 'x'?)" for the most similar known word; empty if none is similar."""
    matches = difflib.get_close_matches(word, list(known), n=1)
    return f" (did you mean {matches[0]!r}?)" if matches else ""


def _convert_config_value(option: click.Parameter, key: str, value: Any, context: click.Context) -> Any:
    """Check a value of a configuration file, and convert it to the form of the command line."""
    allowed = _describe_toml_type(option)
    texts: Any = [_format_plain(entry) for entry in value] if isinstance(value, list) else _format_plain(value)
    fits = {
        "true or false": isinstance(value, bool),
        "a whole number": isinstance(value, int) and not isinstance(value, bool),
        "a number": isinstance(value, int | float) and not isinstance(value, bool),
        "text": isinstance(texts, str),
        "text or an array": isinstance(texts, str) or (isinstance(texts, list) and None not in texts),
        "an array of text": isinstance(texts, list) and None not in texts,
    }[allowed]
    if not fits:
        shown = json.dumps(value, ensure_ascii=False, default=str)
        raise InvalidParameterError(f"{key!r} must be {allowed}; got {shown}.")
    plain = value if allowed in _NOT_TEXT else texts
    if allowed == "text or an array" and isinstance(texts, list):
        plain = ",".join(texts)
    try:
        option.type_cast_value(context, plain)
    except click.BadParameter as error:
        raise InvalidParameterError(f"{key!r}: {error.message}") from error
    return plain


def _describe_toml_type(option: click.Parameter) -> str:
    """Describe the TOML values that an option accepts. A comma in its metavar marks a list (`--k 1,3,5`)."""
    if isinstance(option, click.Option) and option.is_flag:
        return "true or false"
    if option.multiple:
        return "an array of text"
    if isinstance(option.type, click.types.IntParamType | click.IntRange):
        return "a whole number"
    if isinstance(option.type, click.types.FloatParamType | click.FloatRange):
        return "a number"
    return "text or an array" if "," in (option.metavar or "") else "text"


def _format_plain(value: Any) -> str | None:
    """Format a value as on the command line; None if it has no such form."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return None
    if isinstance(value, date):  # includes datetime
        return value.isoformat()
    return str(value) if isinstance(value, int | float) else None


def format_config(context: click.Context, groups: Mapping[str, Iterable[click.Option]]) -> str:
    """Format the options in force as TOML for `--config`, with their origin in comments; credentials are hidden."""
    lines = [f"# {' '.join(['ndcg-spark', *(_list_command_names(context) or [str(context.command.name)])])}"]
    for title, options in groups.items():
        in_force = [option for option in options if context.params.get(str(option.name)) not in (None, False, ())]
        shown = [_format_config_line(option, context) for option in in_force]
        lines += ["", f"# {title}", *shown] if shown else []
    return "\n".join(lines)


def _format_config_line(option: click.Option, context: click.Context) -> str:
    name = str(option.name)
    value = context.params[name]
    value = list(value) if isinstance(value, tuple) else value
    safe = redact_values(value)
    # JSON of text, numbers, booleans and arrays of text is valid TOML except for one control character.
    text = json.dumps(safe, ensure_ascii=False).replace("\x7f", "\\u007f")
    origin = _ORIGINS.get(context.get_parameter_source(name))  # type: ignore[arg-type]  # None has no name
    notes = [*([origin] if origin else []), *(["*** hides a credential"] if safe != value else [])]
    return f"{_get_config_key(option)} = {text}{'  # ' + '; '.join(notes) if notes else ''}"
