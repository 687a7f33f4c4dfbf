"""Two ways to write one expression: as a column of PySpark (`arguments.AsColumns`), and as text of SQL.

Formulas are written once, for either. Values of both have the operators of Python and their fields by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from ndcg_spark.sources.references import sql_text

Value: TypeAlias = Any
"""A Column or a `Text`: an expression, which operators make larger."""


class Language(Protocol):
    """What formulas are written with."""

    def lit(self, value: float | str | bool | None) -> Value:
        """Write a constant; None is a null number."""

    def call(self, name: str, *arguments: Value) -> Value:
        """Call a function of Spark by its name in SQL."""

    def refuse(self, *parts: Value | str) -> Value:
        """Raise, with a message."""

    def aggregate(self, array: Value, start: Value, add: Callable[..., Value], end: Callable[..., Value]) -> Value:
        """Fold an array."""

    def transform(self, array: Value, change: Callable[..., Value]) -> Value:
        """Change each element of an array; a function of two arguments gets its place, too, from 0 on."""

    def filter(self, array: Value, keep: Callable[..., Value]) -> Value:
        """Keep some elements of an array."""


class Text:
    """An expression as text of SQL."""

    def __init__(self, sql: str) -> None:
        self.sql = sql

    def __getitem__(self, field: str) -> Text:
        return Text(f"{self.sql}.{field}")

    def _with(self, sign: str, other: Text | float) -> Text:
        return Text(f"({self.sql} {sign} {_text(other)})")

    def __add__(self, other: Text | float) -> Text:
        return self._with("+", other)

    def __sub__(self, other: Text | float) -> Text:
        return self._with("-", other)

    def __mul__(self, other: Text | float) -> Text:
        return self._with("*", other)

    def __truediv__(self, other: Text | float) -> Text:
        return self._with("/", other)

    def __lt__(self, other: Text | float) -> Text:
        return self._with("<", other)

    def __le__(self, other: Text | float) -> Text:
        return self._with("<=", other)

    def __gt__(self, other: Text | float) -> Text:
        return self._with(">", other)

    def __ge__(self, other: Text | float) -> Text:
        return self._with(">=", other)

    def __eq__(self, other: object) -> Text:  # type: ignore[override]  # as columns do
        return self._with("=", other)  # type: ignore[arg-type]

    def __and__(self, other: Text) -> Text:
        return self._with("AND", other)

    def __or__(self, other: Text) -> Text:
        return self._with("OR", other)

    __hash__ = None  # type: ignore[assignment]  # what is never equal, but compared in SQL, is no key


def _text(value: object) -> str:
    """Write a constant such that Spark reads the type that a column of it has: 1.0 alone would be a decimal."""
    if isinstance(value, Text):
        return value.sql
    if value is None:
        return "CAST(NULL AS DOUBLE)"
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, str):
        return sql_text(value)
    return f"{value!r}D" if isinstance(value, float) else str(value)


class AsText:
    """Expressions as text of SQL, with names of their own for the variables of lambdas."""

    def __init__(self) -> None:
        self._around: list[str] = []

    def lit(self, value: float | str | bool | None) -> Text:
        """Write a constant."""
        return Text(_text(value))

    def call(self, name: str, *arguments: Text) -> Text:
        """Call a function by its name."""
        return Text(f"{name}({', '.join(_text(one) for one in arguments)})")

    def refuse(self, *parts: Text | str) -> Text:
        """Raise, with a message."""
        return self.call("raise_error", self.call("concat", *[Text(_text(part)) for part in parts]))

    def aggregate(self, array: Text, start: Text, add: Callable[..., Text], end: Callable[..., Text]) -> Text:
        """Fold an array."""
        return self.call("aggregate", array, start, self._lambda(add), self._lambda(end))

    def transform(self, array: Text, change: Callable[..., Text]) -> Text:
        """Change each element."""
        return self.call("transform", array, self._lambda(change))

    def filter(self, array: Text, keep: Callable[..., Text]) -> Text:
        """Keep some elements."""
        return self.call("filter", array, self._lambda(keep))

    def _lambda(self, function: Callable[..., Text]) -> Text:
        """Write a lambda, whose variables are called as in Python, if none around it is."""
        names = []
        for name in function.__code__.co_varnames[: function.__code__.co_argcount]:
            names.append(name if name not in self._around else f"{name}_{len(self._around)}")
        self._around.extend(names)
        body = function(*[Text(name) for name in names])
        del self._around[-len(names) :]
        variables = names[0] if len(names) == 1 else f"({', '.join(names)})"
        return Text(f"{variables} -> {body.sql}")
