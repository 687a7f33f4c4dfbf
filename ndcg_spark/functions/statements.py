"""The SQL functions: `sql` writes their statements, and `register` runs them in a session.

This module imports without PySpark, because building the wheel writes the statements to `functions.sql`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ndcg_spark.conventions.forms import MAX_GAIN, parse_discount, parse_gain, relevance_range
from ndcg_spark.errors import NdcgSparkError
from ndcg_spark.functions import formulas
from ndcg_spark.functions.formulas import Expression, SqlExpression, SqlLanguage

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
-- A list holds structs of score and relevance. Keep this order: Spark matches fields by position, not by name.
-- A list is ranked by score. Items with equal scores are averaged over their orders (ties 'expected'; or 'best',
-- 'worst'). A null score is a judged item that was not retrieved, a null relevance an unjudged item. The result is
-- null if nothing is judged. A cutoff k of null is the whole list.
--
-- Create the functions with spark.sql.ansi.enabled on (the default). A function keeps the setting of its creation;
-- without ANSI mode, text that is not a number would become null.
--
-- Convert arrays of relevances in rank order to lists first; the arguments of a SQL function cannot hold lambdas:
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
    """Register the SQL functions as temporary functions of a session.

    These are `ndcg_list`, `dcg_list`, `precision_list`, `recall_list`, `average_precision_list` and
    `reciprocal_rank_list`; each takes `collect_list(struct(score, relevance))`, a cutoff (null is the whole list),
    `gain` (`exponential`, `linear`, `binary`) or `rel`, and `ties`. For permanent functions, run the statements of
    `sql` in a catalog.

    Parameters
    ----------
    spark : SparkSession
        Session of Spark 4.0 or later.

    Raises
    ------
    NdcgSparkError
        If the session runs Spark 3.5, which has no SQL functions.

    Notes
    -----
    Spark cost: no job.
    """
    if int(spark.version.split(".")[0]) < 4:
        raise NdcgSparkError(
            f"SQL functions need Spark 4.0 or later; this is {spark.version}. Use the column functions in "
            "ndcg_spark.functions instead."
        )
    # A function keeps the setting of its creation; without ANSI mode, text that is not a number would become null.
    with _enable_ansi(spark):
        for statement in sql().split(";\n"):
            _, create, rest = statement.partition(_CREATE)
            if create:
                spark.sql(f"CREATE OR REPLACE TEMPORARY FUNCTION {rest}")


@contextmanager
def _enable_ansi(spark: SparkSession) -> Iterator[None]:
    """Turn ANSI mode on inside the block, if it is off."""
    from ndcg_spark.core.session import is_on

    setting = "spark.sql.ansi.enabled"
    if is_on(spark, setting, "true"):
        yield
        return
    spark.conf.set(setting, "true")
    try:
        yield
    finally:
        spark.conf.set(setting, "false")


def sql() -> str:
    """Return the statements that create the SQL functions.

    Run in a catalog, as on Databricks, they create permanent functions, which need no Python. The wheel contains the
    same text as `ndcg_spark/functions/functions.sql`, and `python -m ndcg_spark.functions` prints it.

    Returns
    -------
    str
        `CREATE OR REPLACE FUNCTION` statements, each ended by a semicolon, for Spark 4.0 and later.

    Examples
    --------
    >>> sql().count("CREATE OR REPLACE FUNCTION")
    6
    """
    return "\n".join([_HEAD, *_write_statements()])


def _write_statements() -> list[str]:
    lang = SqlLanguage()
    k, ties = lang.call("coalesce", SqlExpression("k"), lang.lit(formulas.WHOLE)), SqlExpression("ties")
    sign = lang.call("if", ties == lang.lit("worst"), lang.lit(-1.0), lang.lit(1.0))
    cut = formulas.Cut(k, ties == lang.lit("expected"), sign)

    def ndcg(lang: SqlLanguage, judged: SqlExpression, ranked: Expression, cut: formulas.Cut) -> Expression:
        return formulas.ndcg(lang, judged, ranked, cut, _LOG2, lang.lit(0.0))

    def dcg(lang: SqlLanguage, judged: SqlExpression, ranked: Expression, cut: formulas.Cut) -> Expression:
        return formulas.dcg(lang, judged, ranked, cut, _LOG2)

    hit_metrics = (formulas.precision, formulas.recall, formulas.average_precision, formulas.reciprocal_rank)
    return [
        *[_write_statement(lang, metric, cut, _GAIN, _build_gain(lang)) for metric in (ndcg, dcg)],
        *[
            _write_statement(
                lang, metric, cut, _REL, lambda relevance: formulas.compute_hit(lang, SqlExpression("rel"), relevance)
            )
            for metric in hit_metrics
        ],
    ]


def _build_gain(lang: SqlLanguage) -> Callable[[SqlExpression], Expression]:
    """Build the gain function, which chooses by the SQL argument `gain`."""

    def compute_gain(relevance: SqlExpression) -> Expression:
        gain_case = lang.refuse("gain must be one of exponential, linear, binary; got ", SqlExpression("gain"), ".")
        for form in _GAINS:
            gain = formulas.compute_gain(lang, parse_gain(form), relevance)
            gain_case = lang.call("if", SqlExpression("gain") == lang.lit(form), gain, gain_case)
        return gain_case

    return compute_gain


def _write_statement(
    lang: SqlLanguage,
    metric: Callable[..., Expression],
    cut: formulas.Cut,
    option: str,
    compute_gain: Callable[[SqlExpression], Expression],
) -> str:
    """Write the statement of a metric, whose body raises for invalid arguments."""

    def make_entry(element: SqlExpression) -> Expression:
        return formulas.make_entry(lang, element["score"], compute_gain(element["relevance"]))

    def value(entries: SqlExpression) -> Expression:
        return metric(lang, entries["gain"], formulas.rank_entries(lang, entries, cut), cut)

    body = formulas.bind_once(lang, lang.transform(_check_list(lang, option), make_entry), value)
    rules = {
        "ties": ("ties IS NULL OR ties NOT IN ('expected', 'best', 'worst')", "one of expected, best, worst"),
        "k": ("k < 1", "a whole number of at least 1, or null for the whole list"),
    }
    if option == _GAIN:
        rules["gain"] = ("gain IS NULL", "one of exponential, linear, binary")
    else:
        rules["rel"] = (f"rel IS NULL OR NOT abs(rel) <= {formulas.MAX_DOUBLE!r}D", "a finite number")
    for argument, (is_invalid, rule) in rules.items():
        text = argument if argument in ("ties", "gain") else f"string({argument})"
        value_text = lang.call("coalesce", SqlExpression(text), lang.lit("null"))
        error = lang.refuse(f"{argument} must be {rule}; got ", value_text, ".")
        body = lang.call("if", SqlExpression(is_invalid), error, body)
    arguments = ",\n  ".join((_LIST, _K, option, _TIES))
    body_lines = break_lines(body.sql, 2)
    return f"{_CREATE}{metric.__name__}_list(\n  {arguments}\n)\nRETURNS DOUBLE\nRETURN\n  {body_lines};\n"


def _check_list(lang: SqlLanguage, option: str) -> SqlExpression:
    """Return the list; raise for NaN (which sorts above all), an infinite value, or a gain above 2^63."""

    def check(element: SqlExpression) -> Expression:
        score, relevance = lang.call("abs", element["score"]), lang.call("abs", element["relevance"])
        is_bad = (score > formulas.MAX_DOUBLE) | (relevance > MAX_GAIN)
        if option == _GAIN:
            is_exponential: Expression = SqlExpression("gain") == "exponential"
            is_bad = is_bad | (is_exponential & (element["relevance"] > relevance_range("exponential")[1]))
        error = lang.refuse(
            "bad value in the list: score ", formulas.format_number(lang, element["score"]), ", relevance ",
            formulas.format_number(lang, element["relevance"]), "; it must be finite, and a gain at most 2^63.",
        )  # fmt: skip
        return lang.call("if", is_bad, error, element)

    return lang.transform(SqlExpression("list"), check)


def break_lines(sql: str, indent: int) -> str:
    """Break an expression that is too long for a line: put the arguments of its long calls on separate lines."""
    if len(sql) + indent <= _WIDTH:
        return sql
    pieces, depth, start = [], 0, 0
    for end, sign in _find_signs(sql):
        depth += (sign == "(") - (sign == ")")
        if sign == "(" and depth == 1:
            pieces.append(sql[start : end + 1])
            start = end + 1
        elif sign == ")" and depth == 0:
            pieces.append(_break_arguments(sql[start:end], indent))
            start = end
    return "".join([*pieces, sql[start:]])


def _break_arguments(arguments: str, indent: int) -> str:
    """Put each argument on its own line, unless all fit on half a line."""
    if len(arguments) <= _WIDTH // 2:
        return arguments
    pieces, depth, start = [], 0, 0
    for end, sign in _find_signs(arguments):
        depth += (sign == "(") - (sign == ")")
        if sign == "," and depth == 0:
            pieces.append(arguments[start:end])
            start = end + 1
    margin = "\n" + " " * (indent + 2)
    lines = [break_lines(piece.strip(), indent + 2) for piece in [*pieces, arguments[start:]]]
    return margin + f",{margin}".join(lines) + "\n" + " " * indent


def _find_signs(sql: str) -> Iterator[tuple[int, str]]:
    """Yield the parentheses and commas outside of string literals, with their positions."""
    for match in re.finditer(r"'[^']*'|[(),]", sql):
        if len(match.group()) == 1:
            yield match.start(), match.group()
