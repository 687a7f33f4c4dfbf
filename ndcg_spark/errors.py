"""The errors users meet, and how a refusal inside a worker finds its way back."""

from __future__ import annotations

import re

_OPEN, _CLOSE = "[[ndcg-spark: ", " :ndcg-spark]]"
_REFUSAL = re.compile(re.escape(_OPEN) + r"(.*?)" + re.escape(_CLOSE), re.DOTALL)


class NdcgSparkError(Exception):
    """Base of every error this package raises on purpose."""


class InvalidParameterError(NdcgSparkError, ValueError):
    """An option has a value that it does not take."""


class MissingColumnError(NdcgSparkError, LookupError):
    """A table lacks a column that was named."""


class InputRefusedError(NdcgSparkError, ValueError):
    """The data breaks a rule and the policy says to stop."""


class OutputRefusedError(NdcgSparkError, ValueError):
    """A table cannot be written the way it was asked for."""


class MissingPackageError(NdcgSparkError, ImportError):
    """A package is not installed that only some functions need, or Python workers lack one."""


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
        The first marked message.

    Examples
    --------
    >>> find_refusal("org.apache.spark ... " + mark_refusal("query 7 is bad") + " at line 3")
    'query 7 is bad'
    """
    found = _REFUSAL.search(text)
    return found.group(1) if found else None


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
