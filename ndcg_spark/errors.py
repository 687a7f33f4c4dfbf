"""The errors users meet, and how a refusal inside a worker finds its way back."""

from __future__ import annotations

import re
from collections.abc import Callable

_OPEN, _CLOSE, _AROUND = "\u2063\u2062", "\u2062\u2063", "\u2061"
"""Marks of a refusal in the text of an error of Spark, and of an option in a message: characters without a shape.

People read such texts, too, as `str` of what an action raises, and in logs.
"""
_REFUSAL = re.compile(rf"{_OPEN}(.*?){_CLOSE}", re.DOTALL)
_LONG_WORD = re.compile(r"(\S{200})\S{101,}")
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, which move the cursor or end a line; marks that turn the direction of text; half characters."""


_OPTION = re.compile(rf"{_AROUND}([a-z_]+)=([^{_AROUND}]*){_AROUND}")
"""What `option` writes."""
_WORD = re.compile(r"(?!True$|False$|None$)[A-Za-z_]\w*")
_QUOTED = re.compile(r"'([^']+)'")


class NdcgSparkError(Exception):
    """Base of every error this package raises on purpose. Its text names options as Python does: `run=`."""

    def __str__(self) -> str:
        """Return the message with options spelled for Python; `text_of` keeps them for others to spell."""
        text = text_of(self)
        return text if is_marked(text) else spelled(text)  # on the way from a worker to whoever is to read it


class InvalidParameterError(NdcgSparkError, ValueError):
    """An option has a value that it does not take."""


class MissingColumnError(NdcgSparkError, LookupError):
    """A table lacks a column that was named."""


class InputRefusedError(NdcgSparkError, ValueError):
    """The data breaks a rule and the policy says to stop."""


class OutputRefusedError(NdcgSparkError, ValueError):
    """A table cannot be written the way it was asked for."""


class PartlyWrittenError(NdcgSparkError, RuntimeError):
    """A write has failed after an output was changed, and what was changed could not be taken back."""


class MissingPackageError(NdcgSparkError, ImportError):
    """A package is not installed that only some functions need, or Python workers lack one."""


def cannot_import(error: ImportError, use: str, package: str, extra: str) -> MissingPackageError:
    """Say that a package is not installed, or is and cannot be imported, which installing it again would not mend.

    `use` says what needs it, as `figures need matplotlib`; `package` is what it is called where it is imported, and
    `extra` the extra of this package that brings it.
    """
    if isinstance(error, ModuleNotFoundError) and str(error.name).partition(".")[0] == package:
        return MissingPackageError(f"{use}: pip install 'ndcg-spark[{extra}]'.")
    return MissingPackageError(
        f"{use}, and {package} is installed but cannot be imported ({one_line(str(error)).rstrip('.')}): pip install "
        f"--upgrade {package}, or the packages that it was made for."
    )


def not_in_file(column: str, path: str) -> InputRefusedError:
    """Say that a file lacks a column that other files of the table have; `column` says which, and of what."""
    return InputRefusedError(
        f"{column} is not in {path}, but in other files: Spark takes it for null there; write it into all files, or "
        "leave that file out."
    )


def mark_refusal(text: str) -> str:
    """Wrap a message so that it survives the way from a worker through the JVM, for `find_refusal` to find."""
    return f"{_OPEN}{text}{_CLOSE}"


def find_refusal(text: str) -> str | None:
    """Return the last message between the marks of `mark_refusal`, or None; options are not `spelled` in it yet.

    What stands before it may be an id of the data with marks of its own.
    """
    found = _REFUSAL.findall(text)
    return found[-1] if found else None


def option(name: str, value: str = "") -> str:
    """Name an option, as Python calls it, in a message, such that each front end spells it as its users write it.

    `value` is what to give it, as the command line writes it. A rule is named by a convention that has it; see
    `Convention.advice`.

    Examples
    --------
    >>> print(InvalidParameterError(f"leave {option('run')} out, or choose {option('unpaired', 'zero')}."))
    leave run= out, or choose unpaired='zero'.
    """
    return f"{_AROUND}{name}={repr(value) if _WORD.fullmatch(value) else value}{_AROUND}"


def spelled(text: str, spelling: Callable[[str, str], str] = "{}={}".format) -> str:
    """Spell the options that a message names by pieces of `option`.

    `spelling` takes a name and a value, which may be empty. The default is how Python has them.

    Examples
    --------
    >>> spelled(option("weight", "''") + " compares without weights")
    "weight='' compares without weights"
    """
    return _OPTION.sub(lambda found: spelling(found[1], found[2]), text)


def unquoted(value: str) -> str:
    """Take the quotes of Python from a value of `option` that is not empty."""
    found = _QUOTED.fullmatch(value)
    return found[1] if found else value


def text_of(error: BaseException) -> str:
    """Text of an error for another error to repeat, with the pieces of `option` as they are."""
    if isinstance(error, NdcgSparkError):
        return str(error.args[0]) if error.args else ""
    return str(error)


def is_marked(text: str) -> bool:
    """Whether a message begins with the mark of `mark_refusal`."""
    return text.startswith(_OPEN)


def one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    """Raise unless `value` is one of `allowed`; `name` is what it is called where the user wrote it."""
    if value not in allowed:
        raise InvalidParameterError(f"{name} must be one of {', '.join(allowed)}; got {value!r}.")


def printable(text: str) -> str:
    """Show characters that a terminal acts on as escapes, so that no id or name can colour or fake a line."""
    return _UNPRINTABLE.sub(lambda found: repr(found.group())[1:-1], text)


def json_printable(text: str) -> str:
    """Escape in JSON what `printable` escapes; it remains the same value, and is one line for every reader."""
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def one_line(text: str) -> str:
    """Put a message on one line that can be printed; words of more than 300 characters, such as ids, are cut."""
    return _LONG_WORD.sub(r"\1…", printable(" ".join(text.split())))
