"""Commands whose help lists options in groups."""

from __future__ import annotations

from typing import Any

import click

Groups = dict[str, list[click.Option]]
"""Options by the title under which `--help` lists them."""


class GroupedCommand(click.Command):
    """A command whose help lists its options under the titles of their groups."""

    def __init__(self, *args: Any, groups: Groups, **others: Any) -> None:
        super().__init__(*args, **{**others, "params": [one for group in groups.values() for one in group]})
        self._groups = groups

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one section per group; `--help` itself goes to the last one."""
        grouped = [option for options in self._groups.values() for option in options]
        others = [param for param in self.get_params(ctx) if param not in grouped]
        for title, options in self._groups.items():
            shown = [*options, *(others if title == list(self._groups)[-1] else [])]
            records = [record for param in shown if (record := param.get_help_record(ctx)) is not None]
            with formatter.section(title):
                formatter.write_dl(records)
