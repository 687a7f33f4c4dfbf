"""The engine of a job: Spark, or processes of this machine where nothing points to a Spark. Loads neither."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from ndcg_spark.core.engine import asked_engine, points_to_spark
from ndcg_spark.core.redaction import redacted
from ndcg_spark.errors import InvalidParameterError, NdcgSparkError
from ndcg_spark.jobs.command import Request
from ndcg_spark.jobs.options import flag_of
from ndcg_spark.jobs.places import Target, needed_packages
from ndcg_spark.local.pandas_later import leave_pandas_out
from ndcg_spark.tables.kinds import TABLE_KINDS
from ndcg_spark.tables.places import canonical, is_local

LOCAL: Final = "local"
SPARK: Final = "spark"


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """The engine of a run, and why it was chosen, in a clause.

    `opened` is what the local engine has opened, or the refusal that the run is to raise once it has started.
    """

    name: str = SPARK
    reason: str = ""
    opened: Any = None

    @property
    def is_local(self) -> bool:
        return self.name == LOCAL

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


def choose_engine(request: Request[Any], *, in_night: bool = False, reads: bool = True) -> Engine:
    """Choose the engine of a job, and open what the local one reads. Reads schemas and footers of files.

    The environment is asked where there is a choice; `in_night`, the session of the night's other steps is none.
    Without `reads`, as long as an earlier step has to write what is read, nothing is opened. Refused is
    `--engine local` where only Spark can do the job.
    """
    name = request.command.name
    if not request.command.local and request.shared.engine != LOCAL:
        return Engine(reason=f"{name} runs on Spark")
    wanted, where = asked_engine(request.shared.engine, f"--engine {request.shared.engine}")
    if wanted == SPARK:
        return Engine(reason=where)
    hint = points_to_spark() if wanted != LOCAL and not in_night else None
    obstacle = hint or (_obstacle(request) if request.command.local else f"{name} runs on Spark")
    if obstacle is None:
        opened = _open(request) if reads else None
        if not isinstance(opened, str):
            reason = where if wanted == LOCAL else "inputs and outputs are files, and no session is given"
            return Engine(name=LOCAL, reason=reason, opened=opened)
        obstacle = opened
    if wanted == LOCAL:
        raise InvalidParameterError(f"{where} cannot do this: {obstacle.rstrip('.')}; --engine spark can.")
    return Engine(reason=obstacle)


def _obstacle(request: Request[Any]) -> str | None:
    """Say in a clause which options only Spark can follow; None if there are none."""
    if request.spark_settings:
        return "--conf is for Spark"
    targets = {**request.targets, **({} if request.run_log is None else {"run_log": request.run_log})}
    for name, target in targets.items():
        if is_of_spark(target):
            place = redacted(target.reference)
            path = "" if "/" in place else f", as {f'./{place}'!r} would be"
            return f"{flag_of(name)} {place!r} is not a folder of this machine{path}"
    return None


def is_of_spark(target: Target | None) -> bool:
    """Check for a table that only Spark writes."""
    return target is not None and (target.format in TABLE_KINDS or not is_local(canonical(target.reference)))


def _open(request: Request[Any]) -> Any:
    """Open what a command reads without Spark; a clause says why only Spark can. A refusal is returned."""
    module, _, name = request.command.local.partition(":")
    with needed_packages():
        leave_pandas_out()
        work = getattr(import_module(f"ndcg_spark.{module}"), name)
    try:
        return work.open_tables(request)
    except NdcgSparkError as error:
        return error
