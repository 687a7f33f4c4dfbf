"""The errors users meet, and how a refusal inside a worker finds its way back."""

from __future__ import annotations

import re
from collections.abc import Callable

_OPEN, _CLOSE = "[[ndcg-spark: ", " :ndcg-spark]]"
_REFUSAL = re.compile(re.escape(_OPEN) + r"(.*?)" + re.escape(_CLOSE), re.DOTALL)
_LONG_WORD = re.compile(r"(\S{200})\S{101,}")
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, which move the cursor or end a line; marks that turn the direction of text; half characters."""


_OPTION = re.compile(r"\[\[([a-z_]+)=([^\[\]]*)\]\]")
"""What `option` writes."""


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

    Parameters
    ----------
    error : ImportError
    use : str
        Says what needs the package, as `figures need matplotlib`.
    package : str
        What the package is called where it is imported.
    extra : str
        The extra of this package that brings it.

    Returns
    -------
    MissingPackageError
    """
    if isinstance(error, ModuleNotFoundError) and str(error.name).partition(".")[0] == package:
        return MissingPackageError(f"{use}: pip install 'ndcg-spark[{extra}]'.")
    return MissingPackageError(
        f"{use}, and {package} is installed but cannot be imported ({one_line(str(error)).rstrip('.')}): pip install "
        f"--upgrade {package}, or the packages that it was made for."
    )


def mark_refusal(text: str) -> str:
    """Wrap a message so that it survives the way from a worker through the JVM.

    Parameters
    ----------
    text : str
        One line naming the thing, the value and the way out.

    Returns
    -------
    str
        The text between marks that `find_refusal` looks for.
    """
    return f"{_OPEN}{text}{_CLOSE}"


def find_refusal(text: str) -> str | None:
    """Return the message between the marks of `mark_refusal`, or None.

    Parameters
    ----------
    text : str
        Any text, usually that of a Spark exception with a stack trace in it.

    Returns
    -------
    str or None
        The last marked message, in which options are not `spelled` yet: what stands before it may be an id of the
        data with marks of its own.

    Examples
    --------
    >>> find_refusal("org.apache.spark ... " + mark_refusal("query 7 is bad") + " at line 3")
    'query 7 is bad'
    """
    found = _REFUSAL.findall(text)
    return found[-1] if found else None


def option(name: str, value: str = "") -> str:
    """Name an option in a message, such that each front end spells it as its users write it.

    Parameters
    ----------
    name : str
        What the argument is called in Python.
    value : str
        What to give it, as both front ends write it.

    Returns
    -------
    str
        A piece of the message of an error, in the driver or in a worker.

    Examples
    --------
    >>> print(InvalidParameterError(f"leave {option('run')} out."))
    leave run= out.
    """
    return f"[[{name}={value}]]"


def spelled(text: str, spelling: Callable[[str, str], str] = "{}={}".format) -> str:
    """Spell the options that a message names.

    Parameters
    ----------
    text : str
        With pieces of `option`.
    spelling : callable
        Takes a name and a value, which may be empty. The default is how Python has them.

    Returns
    -------
    str

    Examples
    --------
    >>> spelled(option("weight", "''") + " compares without weights"), spelled("a[[0]]")
    ("weight='' compares without weights", 'a[[0]]')
    """
    return _OPTION.sub(lambda found: spelling(found[1], found[2]), text)


def text_of(error: BaseException) -> str:
    """Text of an error for another error to repeat, with the pieces of `option` as they are.

    Parameters
    ----------
    error : BaseException

    Returns
    -------
    str
    """
    if isinstance(error, NdcgSparkError):
        return str(error.args[0]) if error.args else ""
    return str(error)


def is_marked(text: str) -> bool:
    """Whether a message begins with the mark of `mark_refusal`.

    Parameters
    ----------
    text : str

    Returns
    -------
    bool
    """
    return text.startswith(_OPEN)


def one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    """Raise unless `value` is one of `allowed`.

    Parameters
    ----------
    name : str
        What the value is called where the user wrote it.
    value : object
        What the user wrote.
    allowed : tuple of str
        The values there are.

    Raises
    ------
    InvalidParameterError
        Naming the option, the value and what is allowed.
    """
    if value not in allowed:
        raise InvalidParameterError(f"{name} must be one of {', '.join(allowed)}; got {value!r}.")


def printable(text: str) -> str:
    r"""Show characters that a terminal acts on as escapes, so that no id or name can colour or fake a line.

    Parameters
    ----------
    text : str

    Returns
    -------
    str

    Examples
    --------
    >>> printable("red\x1b[31m\n")
    'red\\x1b[31m\\n'
    """
    return _UNPRINTABLE.sub(lambda found: repr(found.group())[1:-1], text)


def json_printable(text: str) -> str:
    r"""Escape the same characters in JSON, which remains the same value; it is then one line for every reader.

    Parameters
    ----------
    text : str

    Returns
    -------
    str

    Examples
    --------
    >>> json_printable('"\u2028"')
    '"\\u2028"'
    """
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def one_line(text: str) -> str:
    """Put a message on one line that can be printed; words of more than 300 characters, such as ids, are cut.

    Parameters
    ----------
    text : str

    Returns
    -------
    str

    Examples
    --------
    >>> one_line("bad row: nan_score at query_id=" + 10_000 * "7")[-20:]
    '7777777777777777777…'
    """
    return _LONG_WORD.sub(r"\1…", printable(" ".join(text.split())))
