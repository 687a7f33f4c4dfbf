"""Errors that users meet, and the marks by which a refusal inside a worker reaches the driver."""

from __future__ import annotations

import re
from collections.abc import Callable

_OPEN, _CLOSE, _AROUND = "\u2063\u2062", "\u2062\u2063", "\u2061"
"""Invisible marks of a refusal in the text of a Spark error, and of an option in a message; people read both."""
MARKS = "".join({*_OPEN, *_CLOSE})
"""Characters of marks, which have no shape."""
_WITHOUT_MARKS = dict.fromkeys(map(ord, MARKS))
_REFUSAL = re.compile(rf"{_OPEN}(.*?){_CLOSE}", re.DOTALL)
_LONG_WORD = re.compile(r"(\S{200})\S{101,}")
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, which move the cursor or end a line; marks that turn the direction of text; half characters."""


_OPTION = re.compile(rf"{_AROUND}([a-z_]+)=([^{_AROUND}]*){_AROUND}")
_WORD = re.compile(r"(?!True$|False$|None$)[A-Za-z_]\w*")
_QUOTED = re.compile(r"'([^']+)'")


class NdcgSparkError(Exception):
    """Base of every error this package raises on purpose. Its text names options as Python does: `run=`."""

    def __str__(self) -> str:
        """Return the message with options spelled for Python; `get_message` keeps them for others to spell."""
        text = get_message(self)
        return text if is_marked(text) else spell_options(text)  # on the way from a worker to whoever is to read it


class InvalidParameterError(NdcgSparkError, ValueError):
    """An option has a value that it does not take."""


class MissingColumnError(NdcgSparkError, LookupError):
    """A table lacks a column that was named."""


class InputRefusedError(NdcgSparkError, ValueError):
    """The data breaks a rule, and the policy is to stop."""


class OutputRefusedError(NdcgSparkError, ValueError):
    """A table cannot be written as requested."""


class PartlyWrittenError(NdcgSparkError, RuntimeError):
    """A write has failed after an output was changed, and what was changed could not be taken back."""


class MissingPackageError(NdcgSparkError, ImportError):
    """A package is not installed that only some functions need, or Python workers lack one."""


def cannot_import(error: ImportError, use: str, package: str, extra: str) -> MissingPackageError:
    """Report a package that is not installed, or cannot be imported. `use` begins the message."""
    if isinstance(error, ModuleNotFoundError) and str(error.name).partition(".")[0] == package:
        return MissingPackageError(f"{use}: pip install 'ndcg-spark[{extra}]'.")
    cause = to_one_line(str(error)).rstrip(".")
    return MissingPackageError(
        f"{use}, and {package} is installed but cannot be imported ({cause}): pip install --upgrade {package}, or "
        "the packages that it was made for."
    )


def explain_missing_column(path: str) -> str:
    """Explain, after the name of a column, that a file lacks it although other files of the table have it."""
    return (
        f"is not in {path}, but in other files: Spark reads it as null there; add it to all files, or remove "
        "that file."
    )


def mark_refusal(text: str) -> str:
    """Wrap a message so that `find_refusal` finds it behind the JVM; ids in it lose marks of their own."""
    return f"{_OPEN}{text.translate(_WITHOUT_MARKS)}{_CLOSE}"


def find_refusal(text: str) -> str | None:
    """Return the last message of `mark_refusal`, or None; ids may have earlier marks. Options stay marked."""
    messages = _REFUSAL.findall(text)
    return messages[-1] if messages else None


def option(name: str, value: str = "") -> str:
    """Name an option of Python, and its value for the command line, for each front end to spell.

    A rule is named by a convention that has it; see `Convention.advice`.

    >>> print(InvalidParameterError(f"leave {option('run')} out, or choose {option('unpaired', 'zero')}."))
    leave run= out, or choose unpaired='zero'.
    """
    return f"{_AROUND}{name}={repr(value) if _WORD.fullmatch(value) else value}{_AROUND}"


def spell_options(text: str, spelling: Callable[[str, str], str] = "{}={}".format) -> str:
    """Spell the options in a message by a function of name and value (may be empty); default: as Python does.

    >>> spell_options(option("weight", "''") + " compares without weights")
    "weight='' compares without weights"
    """
    return _OPTION.sub(lambda match: spelling(match[1], match[2]), text)


def strip_quotes(value: str) -> str:
    """Strip Python's quotes from a value of `option`."""
    match = _QUOTED.fullmatch(value)
    return match[1] if match else value


def get_message(error: BaseException) -> str:
    """Text of an error for another error to repeat, with options as `option` wrote them."""
    if isinstance(error, NdcgSparkError):
        return str(error.args[0]) if error.args else ""
    return str(error)


def is_marked(text: str) -> bool:
    return text.startswith(_OPEN)


def check_choice(name: str, value: object, allowed: tuple[str, ...]) -> None:
    """Raise unless a value is one of `allowed`; `name` is the user's name of it."""
    if value not in allowed:
        raise InvalidParameterError(f"{name} must be one of {', '.join(allowed)}; got {value!r}.")


def check_fraction(name: str, value: float) -> None:
    """Raise unless a value is between 0 and 1, exclusive."""
    if not 0 < value < 1:
        raise InvalidParameterError(f"{name} must be between 0 and 1; got {value}.")


def escape_unprintable(text: str) -> str:
    """Escape characters that a terminal acts on, so that no id or name can colour or fake a line."""
    return _UNPRINTABLE.sub(lambda match: repr(match.group())[1:-1], text)


def escape_json(text: str) -> str:
    """Escape in JSON what `escape_unprintable` escapes; values stay the same."""
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def end_sentence(text: str) -> str:
    """End a text with one full stop, unless it is a question."""
    return text if text.endswith("?") else f"{text.rstrip('.')}."


def to_one_line(text: str) -> str:
    """Put a message on one printable line; words of more than 300 characters, such as ids, are cut."""
    return _LONG_WORD.sub(r"\1…", escape_unprintable(" ".join(text.split())))
