"""Options that several commands share: tables read and written, the slice of a night, bad rows."""

from __future__ import annotations

import click

from ndcg_spark.core.choices import ON_INVALID
from ndcg_spark.jobs.config import GROW, STRICT
from ndcg_spark.jobs.config_file import config_options
from ndcg_spark.jobs.logs import log_format_option

READ_FORMATS = "parquet, orc, csv, tsv, json, table, sql, or any other that Spark reads"
WRITTEN_FORMATS = "parquet, or table; delta or iceberg for a table of that format"


def table_to_read(flag: str, what: str, *, required: bool = True, formats: str = READ_FORMATS) -> list[click.Option]:
    """Build the options of an input table: its place, its format, and what Spark's reader is told."""
    return [
        click.Option([flag], required=required, metavar="REF", help=what),
        click.Option([f"{flag}-format"], metavar="F", help=f"Format of that table: {formats}.  [default: guessed "
                     "from the reference]"),
        click.Option([f"{flag}-option"], multiple=True, metavar="NAME=VALUE", help="Option of Spark's reader for "
                     "that table; may be repeated."),
    ]  # fmt: skip


def table_to_write(flag: str, what: str, *, formats: str = WRITTEN_FORMATS) -> list[click.Option]:
    """Build the options of an output table: its place and its format."""
    return [
        click.Option([flag], metavar="REF", help=what),
        click.Option([format_flag(flag)], metavar="F", help=f"Format of that table: {formats}."),
    ]


def format_flag(flag: str) -> str:
    """Name the option for the format of an output: `--output-format`, `--rejects-format`, `--per-query-format`."""
    return f"{flag}-format" if flag == "--output" else f"{flag.removesuffix('-output')}-format"


def slice_options(source: str = "--input") -> list[click.Option]:
    """Build the options that say under which date and name results are stored; `source` gives the default name."""
    return [
        click.Option(["--run-date"], metavar="YYYY-MM-DD", help="Date under which results are stored.  [default: "
                     "today, UTC]"),
        click.Option(["--dataset"], metavar="NAME", help="Data set under which results are stored; needed where "
                     f"the input is a query.  [default: last part of {source} that is not a date]"),
    ]  # fmt: skip


def json_option(what: str = "summary") -> click.Option:
    """Build `--json`."""
    return click.Option(["--json"], metavar="FILE", help=f"Write the {what} as JSON; - prints it as the last line.")


def allow_empty_option() -> click.Option:
    """Build `--allow-empty`."""
    return click.Option(["--allow-empty"], is_flag=True, help="Accept an input without data, and write what "
                        "there is then: rows over no query, or none.")  # fmt: skip


def bad_row_options() -> list[click.Option]:
    """Build the options that say what a bad row does."""
    return [
        click.Option(["--on-invalid"], type=click.Choice(ON_INVALID), default="fail", show_default=True,
                     help="What a bad row does: stop the job before anything is written, or be left out and "
                     "counted."),
        *reject_options(),
    ]  # fmt: skip


def reject_options() -> list[click.Option]:
    """Build the options about rows that are left out as bad."""
    return [
        *table_to_write("--rejects", "Table of the rejected rows and their reasons to write."),
        click.Option(["--max-reject-fraction"], type=float, metavar="X", help="Stop the job if a larger share of the "
                     "rows is bad."),
    ]  # fmt: skip


def query_column() -> click.Option:
    """Build `--query-col` for one or several columns."""
    return click.Option(["--query-col"], default="query_id", show_default=True, metavar="A,B", help="Columns that "
                        "identify a query.")  # fmt: skip


def item_column() -> click.Option:
    """Build `--item-col`."""
    return click.Option(["--item-col"], default="item_id", show_default=True, metavar="NAME", help="Column that "
                        "identifies an item.")  # fmt: skip


def gate_option(example: str = "ndcg@10>=0.40", what: str = "an overall mean") -> click.Option:
    """Build `--gate`."""
    return click.Option(["--gate"], multiple=True, metavar=f'"{example}"', help=f"Exit with 3 if {what} does not "
                        "meet this; may be repeated.")  # fmt: skip


def confidence_option() -> click.Option:
    """Build `--confidence`."""
    return click.Option(["--confidence"], type=float, default=0.95, show_default=True, metavar="X", help="Level of "
                        "the confidence intervals.")  # fmt: skip


def explain_option() -> click.Option:
    """Build `--explain`."""
    return click.Option(
        ["--explain"], is_flag=True, help="Print what the job would do and its cost, and run nothing."
    )


def spark_option() -> click.Option:
    """Build `--conf`."""
    return click.Option(["--conf"], multiple=True, metavar="NAME=VALUE", help="Spark setting of a local run; may be "
                        "repeated.")  # fmt: skip


def operation_options() -> list[click.Option]:
    """Build the options about how a job is set up and watched, which all jobs have."""
    return [
        *config_options(),
        *table_to_write(
            "--run-log", "Table with one row per run of a job to write: how it ended, when, and on what."
        ),
        click.Option(["--schema"], type=click.Choice([GROW, STRICT]), default=GROW, show_default=True, help="What "
                     "tables to write do if columns are new or lacking: get the new ones and have nulls, or refuse."),
        log_format_option(),
    ]  # fmt: skip
