"""`--config FILE`: options from a TOML file, which those of the command line override; `--print-config` shows both.

The file fills click's `default_map` and nothing else, so its values take the same road as those of the command line.
"""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Iterable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from ndcg_spark.core.redaction import redacted_values
from ndcg_spark.errors import InvalidParameterError

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
    """Build `--config` and `--print-config`."""
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
    """Read what a configuration file says about a command: values by the name of the parameter, for `default_map`.

    TOML: `name = value` for each option, by the name of its flag or of its parameter. Keys of the table `[command]`
    override those outside of tables, which hold for every command that has such an option; a command within a command
    is `[outer.inner]`. A key that is no option of the command, or outside of tables of none, is refused.
    """
    options = keys_of(context.command)
    found: dict[str, Any] = {}
    for level, table in enumerate(_tables_for(path, context)):
        spellings: dict[str, str] = {}
        for key, value in table.items():
            option = options.get(key.replace("_", "-"))
            if (
                option is None
                and level == 0
                and key.replace("_", "-") in _options_of_all(context.find_root().command)
            ):
                continue
            if option is None:
                raise InvalidParameterError(
                    f"{path}: {_unknown(key, {_key(one) for one in options.values()}, context)}"
                )
            name = str(option.name)
            if spellings.setdefault(name, key) != key:
                raise InvalidParameterError(f"{path}: {spellings[name]!r} and {key!r} are one option; keep one.")
            found[name] = _checked(option, key, value, path, context)
    return found


def keys_of(command: click.Command) -> dict[str, click.Parameter]:
    """Options by their keys: the names of their flags, and of their parameters, under which the run log has them."""
    options = [one for one in command.params if one.name not in _NOT_IN_FILES]
    return {str(one.name).replace("_", "-"): one for one in options} | {_key(one): one for one in options}


def _options_of_all(command: click.Command) -> set[str]:
    """Names of the options of a command and of those within."""
    within = command.commands.values() if isinstance(command, click.Group) else ()
    return set(keys_of(command)).union(*map(_options_of_all, within))


def _tables_for(path: str, context: click.Context) -> list[dict[str, Any]]:
    """Keys outside of tables, then those of the tables of the command and of the groups around it."""
    level, command = _parsed(path), context.find_root().command
    names, tables = _names(context), []
    while True:
        within = command.commands if isinstance(command, click.Group) else {}
        for key, value in level.items():
            if isinstance(value, dict) and key not in within:
                raise InvalidParameterError(f"{path}: no command goes by the table [{key}]{_meant(key, within)}.")
        tables.append({key: value for key, value in level.items() if not isinstance(value, dict)})
        if not names:
            return tables
        name = names.pop(0)
        inner = level.get(name, {})
        level, command = inner if isinstance(inner, dict) else {}, within[name]


def _parsed(path: str) -> dict[str, Any]:
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
    """Name an option as its flag does: `run-date`."""
    return option.opts[0].removeprefix("--")


def _unknown(key: str, options: Iterable[str], context: click.Context) -> str:
    near = _meant(key.replace("_", "-"), options)
    listed = "--help lists them" if near else f"they are {', '.join(sorted(options))}"
    return f"unknown key {key!r}{near}; keys are the options of {context.command.name} ({listed})."


def _meant(word: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def _checked(option: click.Parameter, key: str, value: Any, path: str, context: click.Context) -> Any:
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
        raise InvalidParameterError(f"{path}: {key!r} must be {allowed}; got {_shown(value)}.")
    plain = value if allowed in _NO_TEXT else given
    if allowed == "text or an array" and isinstance(given, list):
        plain = ",".join(given)
    try:
        option.type_cast_value(context, plain)
    except click.BadParameter as error:
        raise InvalidParameterError(f"{path}: {key!r}: {error.message}") from error
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
    """Write the options in force as a file for `--config`, in TOML.

    Comments say where a value comes from unless it is a default. Credentials are hidden, so they have to be filled in
    again.
    """
    lines = [f"# {' '.join(['ndcg-spark', *(_names(context) or [str(context.command.name)])])}"]
    for title, options in groups.items():
        shown = [_line(option, context) for option in options if _is_in_force(option, context)]
        lines += ["", f"# {title}", *shown] if shown else []
    return "\n".join(lines)


def _is_in_force(option: click.Option, context: click.Context) -> bool:
    value = context.params.get(str(option.name))
    return not (value is None or value is False or value == ())


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
