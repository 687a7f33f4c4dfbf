"""Tables of any format, for notebooks."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ndcg_spark.core.expressions import MALFORMED, named, number
from ndcg_spark.core.given import session_or_started
from ndcg_spark.sources.formats import open_table

_NUMBERS = {"rank": "int", "score": "double", "relevance": "double"}


def read_table(reference: str, *, format: str | None = None, options: Mapping[str, str] | None = None) -> DataFrame:
    """Read a table as the jobs do: rankings, judgments, or a table that a night was written to.

    Parameters
    ----------
    reference : str
        A path, the name of a table of the catalog, or a SQL query with `format="sql"`.
    format : str or None
        `parquet`, `csv`, `tsv`, `json`, `orc`, `table`, `sql`, `trec-run`, `trec-qrels`, or any other name that Spark
        has a reader for. Default: by the name, as `--input` is read.
    options : mapping from str to str, or None
        For Spark's reader.

    Returns
    -------
    DataFrame
        Lazy. Columns of csv and tsv are text, so that ids such as 007 keep their zeros: cast those that are numbers.
        A line with too few or too many fields, or without a number where the TREC formats have one, is a bad row of
        `evaluate`.

    Raises
    ------
    InputRefusedError, InvalidParameterError
        For a path or table that does not exist, or a format that Spark does not know.

    Notes
    -----
    Spark cost: schemas are read; for json, Spark scans the files to infer one. Uses the active session, or starts
    one, which a line of the log says.

    Examples
    --------
    >>> run = read_table("run.txt", format="trec-run")  # doctest: +SKIP
    >>> evaluate(run, read_table("qrels.txt", format="trec-qrels")).show()  # doctest: +SKIP
    """
    table = open_table(session_or_started(), reference, format, dict(options or {}))
    if not (table.parse_text and table.name.startswith("trec-")):
        return table.frame
    frame, line = table.frame, F.concat_ws(" ", *[named(name) for name in table.frame.columns if name != MALFORMED])
    found = {
        name: number(frame, name, "a field of the format", "table", parse_text=True).cast(kind)
        for name, kind in _NUMBERS.items()
        if name in frame.columns
    }
    no_number = F.lit(False)
    for name, value in found.items():
        no_number = no_number | (named(name).isNotNull() & value.isNull())
    malformed = F.coalesce(named(MALFORMED), F.when(no_number, line))
    return frame.withColumns({**found, MALFORMED: malformed})
