"""Choose one night and data set of a stored table. Independent of Spark."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date

from ndcg_spark.errors import InputRefusedError, option

RUN_DATE, DATASET = "run_date", "dataset"
_NOUNS = {RUN_DATE: "night", DATASET: "data set"}


def choose_value(
    column: str,
    table: str,
    requested: date | str | None,
    extent: tuple[int, str | None, str | None],
    has_rows: Callable[[str], bool],
    *,
    by: str = "",
    accepts_single: bool = False,
    hint: str = "",
) -> str | None:
    """Choose the night or data set whose rows are read; None for all rows, if the table has at most one.

    `extent` is the number of values, the first and the last; `has_rows` checks for a requested value. `by` is the
    option that requests it. The other parameters are those of `select_slice`.
    """
    noun, by, (n, first, last) = _NOUNS[column], option(by or column), extent
    if requested is not None and not (accepts_single and n < 2):
        if not has_rows(str(requested)):
            available = f"{noun}s from {first} to {last}" if n > 1 else f"the {noun} {first}"
            raise InputRefusedError(
                f"{table} has no rows of the {noun} {requested} ({by}); it has {available if n else 'no rows'}."
            )
        return str(requested)
    if n > 1:
        raise InputRefusedError(f"{table} has {n} {noun}s, from {first} to {last}; {hint or f'{by} chooses one'}.")
    return None
