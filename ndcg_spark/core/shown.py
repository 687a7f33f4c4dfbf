"""Results that display themselves: the plan before an action, the rows after it."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

from ndcg_spark.core.batches import REFUSAL
from ndcg_spark.errors import InputRefusedError, escape_unprintable, spell_options

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame

MAX_SHOWN = 1000
"""Rows in a notebook."""
_BOUNDS = ["ci_low", "ci_high"]
FOOTER = "_footer"
"""Column of displayed rows that is not shown: data for the lines below them."""
_LAST_ROWS = "_last_rows"


class Shown:
    """A result that displays rows: those of `_collect`, by default of the lazy DataFrame from `_build_display`."""

    def _build_display(self) -> DataFrame:
        """Return rows in few columns, in order, and perhaps `FOOTER`. Lazy."""
        raise NotImplementedError

    def _collect(self) -> tuple[list[str], list[dict[str, Any]]]:
        """Run an action: return column names and rows as dicts; `FOOTER` is a dict or None."""
        from ndcg_spark.core.workers import collect

        frame = self._build_display()
        rows = [row.asDict(recursive=True) for row in collect(frame)]
        return [name for name in frame.columns if name != REFUSAL], rows

    def _format_footer(self, details: list[dict[str, Any]]) -> list[str]:
        """Return lines that `show` prints below the rows; `details` are the values of `FOOTER` that are not null."""
        return []

    def _explain_refusal(self, refused: InputRefusedError) -> InputRefusedError:
        """Return the error that `to_pandas` raises instead of a refusal of the action; may run another action."""
        return refused

    def to_pandas(self) -> pd.DataFrame:
        """Run an action: return the rows that `show` prints, with the bounds of intervals, as a DataFrame of pandas.

        Raises InputRefusedError for bad rows, in one line.
        """
        import pandas as pd

        try:
            names, rows = self._collect()
        except InputRefusedError as error:
            explained = self._explain_refusal(error)
            if explained is error:
                raise
            raise explained from error
        shown = [name for name in names if name != FOOTER]
        frame = pd.DataFrame([tuple(row[name] for name in shown) for row in rows], columns=shown)
        if FOOTER in names:
            details = [row[FOOTER] for row in rows if row[FOOTER] is not None]
            self.__dict__[FOOTER] = self._format_footer(details)
        self.__dict__[_LAST_ROWS] = frame.copy()
        return frame

    def show(self, n: int = 20) -> None:
        """Run an action: print the first `n` rows; if there are more, a line says how many and how to see them.

        Raises InputRefusedError for bad rows, in one line.
        """
        frame = self.to_pandas()
        shown = frame.head(max(n, 0))
        if frame.empty:
            print("no rows")
        elif len(shown):
            print(_format_rows(shown).to_string(index=False, na_rep="", float_format=_format_number))
        if len(frame) > len(shown):
            print(f"... and {len(frame) - len(shown):,} more; show({len(frame)}) prints all rows")
        for line in self.__dict__.get(FOOTER, []):
            print(escape_unprintable(spell_options(line)))

    def _repr_html_(self) -> str:
        """Rows that `show` or `to_pandas` computed last, at most 1,000; before that, the plan."""
        frame: pd.DataFrame | None = self.__dict__.get(_LAST_ROWS)
        if frame is None:
            return f"<pre>{html.escape(repr(self))}</pre>"
        more = len(frame) - MAX_SHOWN
        cut = [f"... and {more:,} more; to_pandas() has all rows"] if more > 0 else []
        lines = [escape_unprintable(spell_options(line)) for line in (*cut, *self.__dict__.get(FOOTER, []))]
        below = "".join(f"<p>{html.escape(line)}</p>" for line in lines)
        return str(_format_rows(frame.head(MAX_SHOWN)).to_html(index=False, na_rep="")) + below


def _format_number(value: float) -> str:
    """Format with four digits, or two significant ones if these would make it 0."""
    return f"{value:.4f}" if value == 0 or abs(value) >= 0.0001 else f"{value:.1e}"


def _format_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """Drop the bounds of intervals, which are text, too; null in a text column becomes empty text."""
    frame = frame.drop(columns=_BOUNDS, errors="ignore")
    return frame.fillna({name: "" for name in frame.columns if frame[name].dtype == object})
