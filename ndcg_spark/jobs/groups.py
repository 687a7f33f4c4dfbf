"""Commands whose help lists options in groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from ndcg_spark.jobs.config_file import config_text


class GroupedCommand(click.Command):
    """A command whose help lists its options under titles; `groups` have all but `--help`, which goes to the last."""

    def __init__(self, *args: Any, groups: Mapping[str, Sequence[click.Option]], **options: Any) -> None:
        options["params"] = [one for group in groups.values() for one in group]
        super().__init__(*args, **options)
        self.groups = groups

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, or answer `--print-config`."""
        if ctx.params.pop("print_config", False):
            click.echo(config_text(ctx, self.groups))
            return 0
        return super().invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one section per group."""
        grouped = [option for options in self.groups.values() for option in options]
        others = [param for param in self.get_params(ctx) if param not in grouped]
        for title, options in self.groups.items():
            shown = [*options, *(others if title == list(self.groups)[-1] else [])]
            records = [record for param in shown if (record := param.get_help_record(ctx)) is not None]
            with formatter.section(title):
                formatter.write_dl(records)
