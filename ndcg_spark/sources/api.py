"""Tables of any format, for notebooks."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark.core.expressions import MALFORMED, named, number
from ndcg_spark.core.given import session_or_started
from ndcg_spark.sources.formats import open_table

_OF_TREC = ("rank", "score", "relevance")
_NO_NUMBER = float("nan")
"""Every rule for rows refuses it, whatever columns are selected; a null can mean that an item is unjudged."""


def read_table(
    reference: str | os.PathLike[str],
    *,
    format: str | None = None,
    numbers: str | Sequence[str] | None = None,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Read a table as the jobs do: rankings, judgments, or a table that a night was written to.

    Parameters
    ----------
    reference : str or path
        A path, the name of a table of the catalog, or a SQL query.
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
        or too many fields, `numbers` are NaN; in the TREC formats the ids are null.

    Raises
    ------
    InputRefusedError, InvalidParameterError, MissingColumnError
        For a path, table or column that does not exist, or a format that Spark does not know.

    Notes
    -----
    Spark cost: schemas are read; for json, Spark scans the files to infer one. Uses the active session, or starts
    one, which a line of the log says.

    Examples
    --------
    >>> run = read_table("run.txt", format="trec-run")  # doctest: +SKIP
    >>> evaluate(run, read_table("qrels.txt", format="trec-qrels")).show()  # doctest: +SKIP
    """
    table = open_table(session_or_started(), os.fspath(reference), format, dict(options or {}))
    frame, of_trec = table.frame, table.name.startswith("trec-")
    if numbers is None:
        numbers = [name for name in _OF_TREC if name in frame.columns] if of_trec else []
    found = {}
    for name in [numbers] if isinstance(numbers, str) else numbers:
        value = number(frame, name, "one of the numbers", "table", parse_text=True).cast("double")
        if isinstance(frame.schema[name].dataType, T.StringType):
            lost = named(name).isNotNull() & value.isNull()
            if MALFORMED in frame.columns:
                lost = lost | named(MALFORMED).isNotNull()
            found[name] = F.when(lost, F.lit(_NO_NUMBER)).otherwise(value)
    frame = frame.withColumns(found) if found else frame
    return frame.drop(MALFORMED) if of_trec else frame
