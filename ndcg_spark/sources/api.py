"""Tables for notebooks, read as jobs read them, and one night and data set of a stored table."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import date

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark.core.columns import has_column, mark_text_table, named, number
from ndcg_spark.core.failures import readable_errors
from ndcg_spark.core.flag import of_kind
from ndcg_spark.core.given import session_or_started
from ndcg_spark.core.redaction import redacted
from ndcg_spark.core.schemas import MALFORMED
from ndcg_spark.errors import InputRefusedError, option
from ndcg_spark.sources.formats import open_table
from ndcg_spark.sources.references import reference_text
from ndcg_spark.sources.slices import DATASET, RUN_DATE, choose_value


def one_slice(
    frame: DataFrame, table: str, *, night: date | None, dataset: str | None, chosen_otherwise: str = ""
) -> DataFrame:
    """Rows of one night and data set of a table that has either column. Runs one or two actions for each column.

    A night or data set that is not requested must be the only one; a data set that is the only one of its night is
    used whatever `dataset` is, as that may name the results. `table` and `chosen_otherwise` are for messages.
    """
    frame = rows_of_one(frame, RUN_DATE, table, night, chosen_otherwise=chosen_otherwise)
    return rows_of_one(frame, DATASET, table, dataset, takes_one_alone=True)


def rows_of_one(
    frame: DataFrame,
    column: str,
    table: str,
    asked: date | str | None,
    *,
    by: str = "",
    takes_one_alone: bool = False,
    chosen_otherwise: str = "",
) -> DataFrame:
    """Rows of one night, or one data set, which the option `by` requests. See `one_slice`."""
    if not has_column(frame, column):
        return frame
    text = named(column).cast("string")
    there = frame.select(F.count_distinct(text), F.min(text), F.max(text)).collect()[0]
    taken = choose_value(
        column,
        table,
        asked,
        there,
        lambda value: not frame.where(text == value).isEmpty(),
        by=by,
        takes_one_alone=takes_one_alone,
        chosen_otherwise=chosen_otherwise,
    )
    return frame if taken is None else frame.where(text == taken)


_OF_TREC = ("rank", "score", "relevance")
_NO_NUMBER = float("nan")
"""Every rule for rows refuses it, whatever columns are selected; a null can mean that an item is unjudged."""


def read_table(
    reference: str | os.PathLike[str],
    *,
    night: date | None = None,
    dataset: str | None = None,
    format: str | None = None,
    numbers: str | Sequence[str] | None = None,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Read a table as the jobs do; lazy, but for up to four actions that look for a night or a data set.

    The table has rankings or judgments, or nights were written to it.

    Parameters
    ----------
    reference : str or path
        A path, the name of a table of the catalog, or a SQL query.
    night : date or None
        Rows of one night only, of a table that `write_night` or a job wrote. None: of all nights.
    dataset : str or None
        Rows of one data set only. None: of all; with `night`, that night must have one alone.
    format : str or None
        `parquet`, `csv`, `tsv`, `json`, `orc`, `table`, `sql`, `trec-run`, `trec-qrels`, or any other name that Spark
        has a reader for. Default: by the name, as `--input` is read.
    numbers : str, sequence of str or None
        Columns of text that are numbers, such as `["score", "relevance"]` of csv. Text that is no number is NaN,
        which is a bad row of `evaluate`; a cast would make it null, which is an item without a judgment. Default: the
        rank, score and relevance of the TREC formats.
    options : mapping from str to str, or None
        For Spark's reader.

    Returns
    -------
    DataFrame
        Lazy. Other columns of csv and tsv are text, so that ids such as 007 keep their zeros. Of a line with too few
        or too many fields, `numbers` are NaN; in the TREC formats the ids are null. Such a line is in the column
        `__malformed_line` of csv, tsv and the TREC formats, for messages about it.

    Raises
    ------
    InputRefusedError, InvalidParameterError, MissingColumnError
        For a path, table, column, night or data set that does not exist, or a format that Spark does not know; and
        for a night with several data sets, of which none is chosen.

    Notes
    -----
    Spark cost: schemas are read; for json, Spark scans the files to infer one. Uses the active session, or starts
    one, which a line of the log says.

    Examples
    --------
    >>> run = read_table("run.txt", format="trec-run")  # doctest: +SKIP
    >>> evaluate(run, read_table("qrels.txt", format="trec-qrels")).show()  # doctest: +SKIP
    >>> queries = read_table("prod.ranking_queries", night=date(2026, 1, 31))  # doctest: +SKIP
    >>> queries.where("k = 10").orderBy("ndcg").show(10)  # doctest: +SKIP
    """
    if night is not None:
        of_kind("night", date, night)
    table = open_table(session_or_started(), reference_text(reference), format, dict(options or {}))
    frame = table.frame
    if night is not None or dataset is not None:
        frame = _of_slice(frame, f"table {redacted(os.fspath(reference))!r}", night, dataset)
    if numbers is None:
        numbers = [name for name in _OF_TREC if name in frame.columns] if table.name.startswith("trec-") else []
    found = {}
    for name in [numbers] if isinstance(numbers, str) else numbers:
        value = number(mark_text_table(frame), name, "one of the numbers", "table").cast("double")
        if isinstance(frame.schema[name].dataType, T.StringType):
            lost = named(name).isNotNull() & value.isNull()
            if MALFORMED in frame.columns:
                lost = lost | named(MALFORMED).isNotNull()
            found[name] = F.when(lost, F.lit(_NO_NUMBER)).otherwise(value)
    frame = frame.withColumns(found) if found else frame
    return frame.withMetadata(MALFORMED, {}) if MALFORMED in frame.columns else frame  # other text stays text


def _of_slice(frame: DataFrame, table: str, night: date | None, dataset: str | None) -> DataFrame:
    for name, column, asked in (("night", RUN_DATE, night), ("dataset", DATASET, dataset)):
        if asked is not None and column not in frame.columns:
            raise InputRefusedError(f"{table} has no column {column!r}: leave {option(name)} out.")
    with readable_errors():
        if night is not None:
            frame = rows_of_one(frame, RUN_DATE, table, night, by="night")
        return rows_of_one(frame, DATASET, table, dataset)
