"""Read tables in notebooks as the jobs read them, and select one night and data set of a stored table."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import date

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark.core.columns import exact_col, has_column, mark_text_table, number_column
from ndcg_spark.core.failures import readable_errors
from ndcg_spark.core.flag import convert_value
from ndcg_spark.core.redaction import redact
from ndcg_spark.core.schemas import MALFORMED
from ndcg_spark.core.session import get_session
from ndcg_spark.errors import InputRefusedError, option
from ndcg_spark.sources.formats import open_table
from ndcg_spark.sources.references import format_reference
from ndcg_spark.sources.slices import DATASET, RUN_DATE, choose_value


def select_slice(
    frame: DataFrame, table: str, *, night: date | None, dataset: str | None, hint: str = ""
) -> DataFrame:
    """Select the rows of one night and data set. Runs one or two actions for each of the two columns that exist.

    If no night or data set is requested, there must be only one. If its night has a single data set, that one is used
    whatever `dataset` is, because `dataset` may be the name of the results. `table` and `hint` are for messages.
    """
    frame = select_value(frame, RUN_DATE, table, night, hint=hint)
    return select_value(frame, DATASET, table, dataset, accepts_single=True)


def select_value(
    frame: DataFrame,
    column: str,
    table: str,
    requested: date | str | None,
    *,
    by: str = "",
    accepts_single: bool = False,
    hint: str = "",
) -> DataFrame:
    """Select the rows of one night or one data set, requested by the option `by`. See `select_slice`."""
    if not has_column(frame, column):
        return frame
    text = exact_col(column).cast("string")
    extent = frame.select(F.count_distinct(text), F.min(text), F.max(text)).collect()[0]
    chosen = choose_value(
        column,
        table,
        requested,
        extent,
        lambda value: not frame.where(text == value).isEmpty(),
        by=by,
        accepts_single=accepts_single,
        hint=hint,
    )
    return frame if chosen is None else frame.where(text == chosen)


_TREC_NUMBERS = ("rank", "score", "relevance")
_BAD_NUMBER = float("nan")
"""NaN is a bad row for every rule and selection of columns; a null could mean an unjudged item."""


def read_table(
    reference: str | os.PathLike[str],
    *,
    night: date | None = None,
    dataset: str | None = None,
    format: str | None = None,
    numbers: str | Sequence[str] | None = None,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Read a table as the jobs do. Lazy, except for up to four actions that check a night or a data set.

    The table holds rankings, judgments, or nightly results.

    Parameters
    ----------
    reference : str or path
        A path, the name of a table of the catalog, or a SQL query.
    night : date or None
        Return only the rows of this night, from a table that `write_night` or a job wrote. None: all nights.
    dataset : str or None
        Return only the rows of this data set. None: all data sets; with `night`, that night must have only one.
    format : str or None
        `parquet`, `csv`, `tsv`, `json`, `orc`, `table`, `sql`, `trec-run`, `trec-qrels`, or any other name that Spark
        has a reader for. Default: guessed from the reference, as for `--input`.
    numbers : str, sequence of str or None
        Text columns to parse as numbers, such as `["score", "relevance"]` of a csv file. Text that is not a number
        becomes NaN, which `evaluate` counts as a bad row; a cast would make it null, which is an item without a
        judgment. Default: the rank, score and relevance of the TREC formats.
    options : mapping from str to str, or None
        Options of Spark's reader.

    Returns
    -------
    DataFrame
        Lazy. Other columns of csv and tsv are text, so that ids such as 007 keep their zeros. In a line with too few
        or too many fields, `numbers` are NaN; in the TREC formats, the ids are null. The column `__malformed_line` of
        csv, tsv and the TREC formats holds the text of such lines, for messages.

    Raises
    ------
    InputRefusedError, InvalidParameterError, MissingColumnError
        If a path, table, column, night or data set does not exist; if Spark does not know the format; or if a night
        has several data sets and `dataset` is None.

    Notes
    -----
    Spark cost: schemas are read; for json, Spark scans the files to infer one. Uses the active session. If there is
    none, starts one and logs it.

    Examples
    --------
    >>> run = read_table("run.txt", format="trec-run")  # doctest: +SKIP
    >>> evaluate(run, read_table("qrels.txt", format="trec-qrels")).show()  # doctest: +SKIP
    >>> queries = read_table("prod.ranking_queries", night=date(2026, 1, 31))  # doctest: +SKIP
    >>> queries.where("k = 10").orderBy("ndcg").show(10)  # doctest: +SKIP
    """
    if night is not None:
        convert_value("night", date, night)
    table = open_table(get_session(), format_reference(reference), format, dict(options or {}))
    frame = table.frame
    if night is not None or dataset is not None:
        frame = _select_night(frame, f"table {redact(os.fspath(reference))!r}", night, dataset)
    if numbers is None:
        numbers = (
            [column for column in _TREC_NUMBERS if column in frame.columns] if table.name.startswith("trec-") else []
        )
    parsed = {}
    for column in [numbers] if isinstance(numbers, str) else numbers:
        value = number_column(mark_text_table(frame), column, "one of the numbers", "table").cast("double")
        if isinstance(frame.schema[column].dataType, T.StringType):
            is_bad = exact_col(column).isNotNull() & value.isNull()
            if MALFORMED in frame.columns:
                is_bad = is_bad | exact_col(MALFORMED).isNotNull()
            parsed[column] = F.when(is_bad, F.lit(_BAD_NUMBER)).otherwise(value)
    frame = frame.withColumns(parsed) if parsed else frame
    return frame.withMetadata(MALFORMED, {}) if MALFORMED in frame.columns else frame  # other text stays text


def _select_night(frame: DataFrame, table: str, night: date | None, dataset: str | None) -> DataFrame:
    for parameter, column, requested in (("night", RUN_DATE, night), ("dataset", DATASET, dataset)):
        if requested is not None and column not in frame.columns:
            raise InputRefusedError(f"{table} has no column {column!r}; remove {option(parameter)}.")
    with readable_errors():
        if night is not None:
            frame = select_value(frame, RUN_DATE, table, night, by="night")
        return select_value(frame, DATASET, table, dataset)
