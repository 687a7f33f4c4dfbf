"""One night and data set of a table that nights were written to."""

from __future__ import annotations

from datetime import date

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ndcg_spark.core.expressions import has_column, named
from ndcg_spark.errors import InputRefusedError, option

RUN_DATE, DATASET = "run_date", "dataset"
_WORDS = {RUN_DATE: "night", DATASET: "data set"}


def one_slice(
    frame: DataFrame, table: str, *, night: date | None, dataset: str | None, chosen_otherwise: str = ""
) -> DataFrame:
    """Rows of one night and data set, of a table that has either column.

    What is not asked for must be one alone. Where the night has one data set, its rows are taken whatever `dataset`
    is, as that may name the results. `table` is what a person calls it; where no option chooses its night,
    `chosen_otherwise` says what does.

    Spark cost: an action for each of the columns, and one more for each that is asked for.
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
    """Rows of one night, or one data set; `by` is the option that asks for it. See `one_slice`."""
    if not has_column(frame, column):
        return frame
    words, text, by = _WORDS[column], named(column).cast("string"), option(by or column)
    n, first, last = frame.select(F.count_distinct(text), F.min(text), F.max(text)).collect()[0]
    if asked is not None and not (takes_one_alone and n < 2):
        frame = frame.where(text == str(asked))
        if frame.isEmpty():
            there = f"{words}s from {first} to {last}" if n > 1 else f"the {words} {first}"
            raise InputRefusedError(
                f"{table} has no rows of the {words} {asked} ({by}); it has {there if n else 'no rows'}."
            )
    elif n > 1:
        raise InputRefusedError(
            f"{table} has {n} {words}s, from {first} to {last}; {chosen_otherwise or f'{by} chooses one'}."
        )
    return frame
