"""One night and data set of a stored table: which is chosen, and what is refused. Without Spark."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date

from ndcg_spark.errors import InputRefusedError, option

RUN_DATE, DATASET = "run_date", "dataset"
_WORDS = {RUN_DATE: "night", DATASET: "data set"}


def choose_value(
    column: str,
    table: str,
    asked: date | str | None,
    there: tuple[int, str | None, str | None],
    has_rows: Callable[[str], bool],
    *,
    by: str = "",
    takes_one_alone: bool = False,
    chosen_otherwise: str = "",
) -> str | None:
    """Choose the night or data set whose rows are taken; None: all rows, as there is one alone.

    `there` are how many there are, the first and the last; `has_rows` looks for one that is requested by the option
    `by`. The others are as for `one_slice`.
    """
    words, by, (n, first, last) = _WORDS[column], option(by or column), there
    if asked is not None and not (takes_one_alone and n < 2):
        if not has_rows(str(asked)):
            seen = f"{words}s from {first} to {last}" if n > 1 else f"the {words} {first}"
            raise InputRefusedError(
                f"{table} has no rows of the {words} {asked} ({by}); it has {seen if n else 'no rows'}."
            )
        return str(asked)
    if n > 1:
        raise InputRefusedError(
            f"{table} has {n} {words}s, from {first} to {last}; {chosen_otherwise or f'{by} chooses one'}."
        )
    return None
