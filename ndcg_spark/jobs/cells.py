"""Cells of tables at a terminal."""

from __future__ import annotations

from rich.text import Text

from ndcg_spark.errors import printable


def cell(text: str, style: str = "") -> Text:
    """Make a cell of any text, such as a name from the data: brackets and colons in it are no markup and no emoji."""
    return Text(printable(text), style=style)
