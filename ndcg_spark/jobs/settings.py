"""Settings that are common to all jobs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Literal, TypeAlias

from ndcg_spark.core.engine import EngineName
from ndcg_spark.core.flag import Flag
from ndcg_spark.errors import InvalidParameterError

Schema: TypeAlias = Literal["grow", "strict"]
_SIZE = re.compile(r"(\d+)([kmgt]?)b?", re.IGNORECASE)


def parse_bytes(text: str) -> int:
    """Parse a size of memory.

    >>> parse_bytes("512m")
    536870912
    """
    size = _SIZE.fullmatch(text.strip())
    if size is None or not int(size[1]):
        raise InvalidParameterError(f"--memory must be a size such as 2g or 512m; got {text!r}.")
    return int(size[1]) << 10 * " kmgt".index(size[2].lower() or " ")


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedSettings:
    """Options of every job: names under which results are stored, limits, and how the job runs.

    Parameters
    ----------
    run_date
        Date under which results are stored.
    dataset
        Data set under which results are stored; needed where the input is a query.
    json
        Write what is printed as JSON, too; - prints it as the last line.
    allow_empty
        Accept an input without data: outputs then have rows over 0 queries, or no rows.
    max_reject_fraction
        Stop the job if a larger share of the rows is bad.
    explain
        Print what the job would do and its cost, and run nothing.
    engine
        What runs the job: Spark, or processes of this machine without Spark and Java (`local`), with the same
        results. `auto` is what NDCG_SPARK_ENGINE says; if it is not set, `local` where inputs are files, outputs are
        folders, and no session of Spark is given.
    processes
        Processes of this machine that run a job without Spark.
    memory
        Memory for what these processes exchange, such as 2g or 512m; the rest goes to temporary files.
    conf
        Setting of the Spark session that the job starts; may be repeated.
    schema
        If columns differ from an existing table: add new ones and fill missing ones with null (`grow`), or refuse
        (`strict`).
    """

    run_date: Annotated[date | None, Flag(group="Output", shown="today, UTC")] = None
    dataset: Annotated[str | None, Flag(metavar="NAME", shown="last part of the first input that is not a date")] = (
        None
    )
    json: Annotated[str | None, Flag(metavar="FILE")] = None
    allow_empty: bool = False
    max_reject_fraction: Annotated[float | None, Flag(group="Checks", metavar="X")] = None
    explain: Annotated[bool, Flag(group="Running")] = False
    engine: EngineName = "auto"
    processes: Annotated[int | None, Flag(metavar="N", shown="as many as cores")] = None
    memory: Annotated[int | None, Flag(metavar="SIZE", shown="a quarter of the memory", read=parse_bytes)] = None
    conf: Annotated[tuple[str, ...], Flag(metavar="NAME=VALUE", repeated=True)] = ()
    schema: Annotated[Schema, Flag(group="Operations")] = "grow"

    def __post_init__(self) -> None:
        fraction = self.max_reject_fraction
        if fraction is not None and not 0 <= fraction <= 1:
            raise InvalidParameterError(f"--max-reject-fraction must be between 0 and 1; got {fraction}.")
        if self.processes is not None and self.processes < 1:
            raise InvalidParameterError(f"--processes must be at least 1; got {self.processes}.")
