"""The functions for SQL: `sql` writes their statements, and `register` runs them in a session.

It is read without PySpark: the wheel is built with the file `functions.sql`, which holds the same text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ndcg_spark.conventions.forms import LARGEST_GAIN, parse_discount, parse_gain, relevance_range
from ndcg_spark.errors import NdcgSparkError
from ndcg_spark.functions import formulas
from ndcg_spark.functions.formulas import AsText, Text, Value

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_GAINS = ("exponential", "linear", "binary")
_LOG2 = parse_discount("log2")
_CREATE = "CREATE OR REPLACE FUNCTION "
_HEAD = """\
-- Ranking metrics as SQL functions, for Spark 4.0 and later and for Databricks.
--
--   SELECT query_id, ndcg_list(collect_list(struct(score, relevance)), 10) FROM rankings GROUP BY query_id
--
-- A list holds structs of score and relevance. Mind their order: Spark takes fields by their place, not their name.
-- A list is ranked by score; items of one score count as the average of their orders (ties 'expected'; or 'best',
-- 'worst'). A null score is a judged item that was not retrieved, a null relevance an unjudged item. The result is
-- null where nothing is judged. A cutoff k of null is the whole list.
--
-- Create the functions with spark.sql.ansi.enabled on, as it is by default: they keep what is set then, and without
-- it text that is no number would be null.
--
-- Of arrays of relevances in rank order make lists first; Spark takes no lambda among the arguments of a function:
--   WITH made AS (SELECT transform(ranked, (rel, i) -> struct(-i, rel)) AS list FROM arrays)
--   SELECT ndcg_list(list, 10) FROM made
"""
_LIST = "list ARRAY<STRUCT<score: DOUBLE, relevance: DOUBLE>>"
_K = "k INT DEFAULT NULL"
_GAIN = "gain STRING DEFAULT 'exponential'"
_REL = "rel DOUBLE DEFAULT 1"
_WIDTH = 110
_TIES = "ties STRING DEFAULT 'expected'"


def register(spark: SparkSession) -> None:
    """Make the functions of SQL temporary functions of a session.

    These are `ndcg_list`, `dcg_list`, `precision_list`, `recall_list`, `average_precision_list` and
    `reciprocal_rank_list`; each takes `collect_list(struct(score, relevance))`, a cutoff (null is the whole list),
    `gain` (`exponential`, `linear`, `binary`) or `rel`, and `ties`. For functions of a catalog run the statements of
    `sql` there.

    Parameters
    ----------
    spark : SparkSession
        Of Spark 4.0 or later.

    Raises
    ------
    NdcgSparkError
        If the session cannot make functions of SQL, as those of Spark 3.5 cannot.

    Notes
    -----
    Spark cost: no job.
    """
    if int(spark.version.split(".")[0]) < 4:
        raise NdcgSparkError(
            f"functions of SQL need Spark 4.0 or later; this is {spark.version}. In Python the functions of "
            "ndcg_spark.functions do the same."
        )
    # A function keeps the setting of its making; without ANSI, text that is no number would be null.
    with _ansi(spark):
        for statement in sql().split(";\n"):
            _, create, rest = statement.partition(_CREATE)
            if create:
                spark.sql(f"CREATE OR REPLACE TEMPORARY FUNCTION {rest}")


@contextmanager
def _ansi(spark: SparkSession) -> Iterator[None]:
    """Turn ANSI mode on for a moment, where it is off."""
    from ndcg_spark.core.session import is_on

    name = "spark.sql.ansi.enabled"
    if is_on(spark, name, "true"):
        yield
        return
    spark.conf.set(name, "true")
    try:
        yield
    finally:
        spark.conf.set(name, "false")


def sql() -> str:
    """Return the statements that create the functions for SQL.

    Run in a catalog, as on Databricks, they make permanent functions, which need no Python. The same text is the file
    `ndcg_spark/functions/functions.sql` of the wheel, and what `python -m ndcg_spark.functions` prints.

    Returns
    -------
    str
        `CREATE OR REPLACE FUNCTION` statements, each ended by a semicolon, for Spark 4.0 and later.

    Examples
    --------
    >>> sql().count("CREATE OR REPLACE FUNCTION")
    6
    """
    return "\n".join([_HEAD, *_statements()])


def _statements() -> list[str]:
    on = AsText()
    k, ties = on.call("coalesce", Text("k"), on.lit(formulas.WHOLE)), Text("ties")
    sign = on.call("if", ties == on.lit("worst"), on.lit(-1.0), on.lit(1.0))
    cut = formulas.Cut(k, ties == on.lit("expected"), sign)

    def ndcg(on: AsText, judged: Text, ranked: Value, cut: formulas.Cut) -> Value:
        return formulas.ndcg(on, judged, ranked, cut, _LOG2, on.lit(0.0))

    def dcg(on: AsText, judged: Text, ranked: Value, cut: formulas.Cut) -> Value:
        return formulas.dcg(on, judged, ranked, cut, _LOG2)

    of_hits = (formulas.precision, formulas.recall, formulas.average_precision, formulas.reciprocal_rank)
    return [
        *[_created(on, metric, cut, _GAIN, _gain(on)) for metric in (ndcg, dcg)],
        *[_created(on, metric, cut, _REL, lambda one: formulas.hit_of(on, Text("rel"), one)) for metric in of_hits],
    ]


def _gain(on: AsText) -> Callable[[Text], Value]:
    """Gain by the argument `gain`, which is a name."""

    def gain_of(relevance: Text) -> Value:
        found = on.refuse("gain must be one of exponential, linear, binary; got ", Text("gain"), ".")
        for name in _GAINS:
            gain = formulas.gain_of(on, parse_gain(name), relevance)
            found = on.call("if", Text("gain") == on.lit(name), gain, found)
        return found

    return gain_of


def _created(
    on: AsText, metric: Callable[..., Value], cut: formulas.Cut, option: str, gain_of: Callable[[Text], Value]
) -> str:
    """Write a statement: a metric of the entries, unless an argument is not valid."""

    def entry(one: Text) -> Value:
        return formulas.entry(on, one["score"], gain_of(one["relevance"]))

    def value(entries: Text) -> Value:
        return metric(on, entries["gain"], formulas.rank_entries(on, entries, cut), cut)

    checked = formulas.named_once(on, on.transform(_checked_list(on, option), entry), value)
    refused = {
        "ties": ("ties IS NULL OR ties NOT IN ('expected', 'best', 'worst')", "one of expected, best, worst"),
        "k": ("k < 1", "a whole number from 1 on, or null for the whole list"),
    }
    if option == _GAIN:
        refused["gain"] = ("gain IS NULL", "one of exponential, linear, binary")
    else:
        refused["rel"] = (f"rel IS NULL OR NOT abs(rel) <= {formulas.LARGEST_DOUBLE!r}D", "a finite number")
    for name, (wrong, rule) in refused.items():
        text = name if name in ("ties", "gain") else f"string({name})"
        shown = on.call("coalesce", Text(text), on.lit("null"))
        checked = on.call("if", Text(wrong), on.refuse(f"{name} must be {rule}; got ", shown, "."), checked)
    arguments = ",\n  ".join((_LIST, _K, option, _TIES))
    body = laid_out(checked.sql, 2)
    return f"{_CREATE}{metric.__name__}_list(\n  {arguments}\n)\nRETURNS DOUBLE\nRETURN\n  {body};\n"


def _checked_list(on: AsText, option: str) -> Text:
    """Give the list, or raise for a value that is NaN or infinite, or whose gain exceeds 2^63 (NaN is above all)."""

    def check(one: Text) -> Value:
        score, relevance = on.call("abs", one["score"]), on.call("abs", one["relevance"])
        bad = (score > formulas.LARGEST_DOUBLE) | (relevance > LARGEST_GAIN)
        if option == _GAIN:
            is_exponential: Value = Text("gain") == "exponential"
            bad = bad | (is_exponential & (one["relevance"] > relevance_range("exponential")[1]))
        told = on.refuse(
            "bad value in the list: score ", formulas.shown(on, one["score"]), ", relevance ",
            formulas.shown(on, one["relevance"]), "; it must be finite, and a gain at most 2^63.",
        )  # fmt: skip
        return on.call("if", bad, told, one)

    return on.transform(Text("list"), check)


def laid_out(sql: str, indent: int) -> str:
    """Break an expression that is too long for a line: arguments of its long calls get lines of their own."""
    if len(sql) + indent <= _WIDTH:
        return sql
    parts, depth, start = [], 0, 0
    for at, sign in _signs(sql):
        depth += (sign == "(") - (sign == ")")
        if sign == "(" and depth == 1:
            parts.append(sql[start : at + 1])
            start = at + 1
        elif sign == ")" and depth == 0:
            parts.append(_lines_of(sql[start:at], indent))
            start = at
    return "".join([*parts, sql[start:]])


def _lines_of(arguments: str, indent: int) -> str:
    """Put each argument on a line, unless they are short together."""
    if len(arguments) <= _WIDTH // 2:
        return arguments
    found, depth, start = [], 0, 0
    for at, sign in _signs(arguments):
        depth += (sign == "(") - (sign == ")")
        if sign == "," and depth == 0:
            found.append(arguments[start:at])
            start = at + 1
    margin = "\n" + " " * (indent + 2)
    lines = [laid_out(one.strip(), indent + 2) for one in [*found, arguments[start:]]]
    return margin + f",{margin}".join(lines) + "\n" + " " * indent


def _signs(sql: str) -> Iterator[tuple[int, str]]:
    """Parentheses and commas that are in no text."""
    for found in re.finditer(r"'[^']*'|[(),]", sql):
        if len(found.group()) == 1:
            yield found.start(), found.group()
