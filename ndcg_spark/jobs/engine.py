"""Choice of the engine of a job: Spark, or local processes without Spark. Imports neither engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from ndcg_spark.core.engine import find_spark_hint, resolve_engine
from ndcg_spark.core.redaction import redact
from ndcg_spark.errors import InvalidParameterError, NdcgSparkError
from ndcg_spark.jobs.command import Request
from ndcg_spark.jobs.options import format_flag
from ndcg_spark.jobs.places import Target, name_missing_packages
from ndcg_spark.local.pandas_later import leave_pandas_out
from ndcg_spark.sources.listing import Listing
from ndcg_spark.tables.kinds import TABLE_KINDS
from ndcg_spark.tables.places import canonicalize, is_local

LOCAL: Final = "local"
SPARK: Final = "spark"


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """The engine of a run, and the reason for the choice as a clause.

    `opened` holds the tables that the local engine has opened, or the refusal that the run raises when it starts.
    """

    name: str = SPARK
    reason: str = ""
    opened: Any = None

    @property
    def is_local(self) -> bool:
        return self.name == LOCAL

    @property
    def listings(self) -> dict[str, Listing]:
        """The files of the inputs that the local engine has opened."""
        tables = self.opened if isinstance(self.opened, Mapping) else getattr(self.opened, "tables", {})
        return {name: table.listing for name, table in tables.items() if table.listing is not None}

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


def choose_engine(request: Request[Any], *, in_night: bool = False, open_inputs: bool = True) -> Engine:
    """Choose the engine of a job, and open the tables that the local engine reads. Reads schemas and file footers.

    With `--engine auto`, signs of a Spark session in the environment choose Spark, except `in_night`, where the
    session belongs to other steps. Nothing is opened unless `open_inputs`: a step that has not run yet may
    write the inputs. Refuses `--engine local` if only Spark can do the job.
    """
    name = request.command.name
    if not request.command.local and request.shared.engine != LOCAL:
        return Engine(reason=f"{name} runs on Spark")
    requested, origin = resolve_engine(request.shared.engine, f"--engine {request.shared.engine}")
    if requested == SPARK:
        return Engine(reason=origin)
    hint = find_spark_hint() if requested != LOCAL and not in_night else None
    obstacle = hint or (_find_obstacle(request) if request.command.local else f"{name} runs on Spark")
    if obstacle is None:
        opened = _open_tables(request) if open_inputs else None
        if not isinstance(opened, str):
            reason = origin if requested == LOCAL else "inputs and outputs are files, and no session is given"
            return Engine(name=LOCAL, reason=reason, opened=opened)
        obstacle = opened
    if requested == LOCAL:
        raise InvalidParameterError(f"{origin} cannot do this: {obstacle.rstrip('.')}; --engine spark can.")
    return Engine(reason=obstacle)


def _find_obstacle(request: Request[Any]) -> str | None:
    """Describe an option that only Spark supports, as a clause; None if there is none."""
    if request.spark_settings:
        return "--conf is for Spark"
    targets = {**request.targets, **({} if request.run_log is None else {"run_log": request.run_log})}
    for name, target in targets.items():
        if needs_spark(target):
            place = redact(target.reference)
            suggestion = "" if "/" in place else f", as {f'./{place}'!r} would be"
            return f"{format_flag(name)} {place!r} is not a folder of this machine{suggestion}"
    return None


def needs_spark(target: Target | None) -> bool:
    """Check whether only Spark can write a table."""
    return target is not None and (target.format in TABLE_KINDS or not is_local(canonicalize(target.reference)))


def _open_tables(request: Request[Any]) -> Any:
    """Open the inputs of a command without Spark.

    Returns a clause if only Spark can open them, and a refusal instead of raising it.
    """
    module, _, name = request.command.local.partition(":")
    with name_missing_packages():
        leave_pandas_out()
        work = getattr(import_module(f"ndcg_spark.{module}"), name)
    try:
        return work.open_tables(request)
    except NdcgSparkError as error:
        return error
