"""Running a night: its steps one after another, in one session of Spark if any of them needs one. It runs actions."""

from __future__ import annotations

import io
import json
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ndcg_spark._version import __version__
from ndcg_spark.core.redaction import redact
from ndcg_spark.errors import (
    InvalidParameterError,
    NdcgSparkError,
    OutputRefusedError,
    escape_unprintable,
    get_message,
    to_one_line,
)
from ndcg_spark.jobs import endings
from ndcg_spark.jobs.command import Request
from ndcg_spark.jobs.engine import Engine, choose_engine, needs_spark
from ndcg_spark.jobs.interrupts import TerminatedError
from ndcg_spark.jobs.logs import CommandLog
from ndcg_spark.jobs.run_log import (
    ENDED_WELL,
    FLAGGED,
    GATE_NOT_MET,
    INTERRUPTED,
    REFUSED,
    describe_inputs,
    format_options,
    read_runs,
    to_json,
)
from ndcg_spark.jobs.runner import (
    JobRun,
    check,
    describe_end,
    list_catalog_tables,
    run,
)
from ndcg_spark.nights.message import message_of
from ndcg_spark.nights.results import BEFORE, NOT_RUN, StepResult
from ndcg_spark.nights.stale import Stale, find_stale, has_later_nights
from ndcg_spark.nights.steps import Night, Step
from ndcg_spark.sources.local import open_memory_table
from ndcg_spark.tables import canonical, slice_name
from ndcg_spark.tables.claims import claim_slices

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ndcg_spark.sources.formats import Table


class NightRun:
    """Run the steps of a night; `is_brief` prints one line for the night, and not what each step prints."""

    def __init__(
        self, night: Night, steps: Sequence[Step], logs: CommandLog, prog: str, *, is_brief: bool = False
    ) -> None:
        self.night, self.steps, self.request, self.logs, self.prog = night, steps, night.request, logs, prog
        self.is_brief = is_brief
        self.results: list[StepResult] = []
        self.engines = {one.name: choose_engine(one.request, reads=not one.needs) for one in steps}
        self._opened: dict[str, Mapping[str, Table]] = {}
        self._known: dict[str, StepResult] = {}
        self._renews = False
        self.refusal: str | None = None

    @property
    def code(self) -> int:
        """The exit code of the night."""
        codes = [one.exit_code for one in self.results if one.exit_code is not None]
        return endings.choose_exit_code([*codes, *([] if self.refusal is None else [endings.REFUSED])])

    @property
    def _status(self) -> str | None:
        """The status of the night in the run log, where steps tell more than the exit code."""
        statuses = {one.status_before or one.status for one in self.results}
        ended_well = self.code in (endings.DONE, endings.GATE_NOT_MET)
        return FLAGGED if ended_well and FLAGGED in statuses and GATE_NOT_MET not in statuses else None

    def run(self, spark: SparkSession | None, *, resume: bool = False, stale: bool = False) -> int:
        """Check all steps, run them, and print how each ended.

        With `resume`, those that ended well are not run; with `stale`, those alone whose results are older than what
        they are made of.
        """
        try:
            return self._run(spark, resume=resume, stale=stale)
        except NdcgSparkError as error:
            self.refusal = to_one_line(redact(get_message(error)))
            raise

    def _run(self, spark: SparkSession | None, *, resume: bool, stale: bool) -> int:
        with only_run(self.request):
            whole = JobRun(spark, self.request)
            whole.start()
            try:
                self._renews = stale
                if stale:
                    self._known = renewed(find_stale(spark, self.night, *[self.night.run_date] * 2), self.steps)
                if resume:
                    self._known = ended_before(spark, self.request, self.steps)
                self._run_steps(spark, self._check(spark))
            except BaseException as error:
                whole.end(error)
                raise
            finally:
                shown = [one for one in self.results if not stale or one.status != BEFORE]
                if shown and not self.is_brief:
                    print("\n".join([f"steps of {self.night.run_date}:", *(f"  {one.line}" for one in shown)]))
            whole.progress.steps += [(f"{one.step}: {one.status}", one.seconds) for one in self.results]
            whole.set_exit(self.code, self._status)
            whole.end()
        if shown:
            lines = self.message["lines"]
            print(" ".join(lines[:2]) if self.is_brief else "\n  ".join(lines), flush=True)
        else:
            print(f"night {self.night.run_date}: nothing is older than what it was made of", flush=True)
        return self.code

    @property
    def message(self) -> dict[str, Any]:
        """What the night says to people, as JSON has it."""
        return message_of(self.night, self.results, self.code, self.refusal)

    def _run_steps(self, spark: SparkSession | None, refused: Mapping[str, StepResult]) -> None:
        for step in self.steps:
            result = self._known.get(step.name) or refused.get(step.name) or self._idle(step)
            self.results.append(result or self._run_step(step))
            if self.results[-1].status == INTERRUPTED:
                raise TerminatedError if self.results[-1].exit_code == endings.TERMINATED else KeyboardInterrupt

    def _idle(self, step: Step) -> StepResult | None:
        """Say why a step is not run; None if it is."""
        lost = [one.step for one in self.results if one.step in step.needs.values() and not one.is_usable]
        if lost:
            return StepResult(step=step.name, status=NOT_RUN, message=f"it needs {lost[0]}")
        if step.when == "flagged" and not self._renews and not any(one.is_flagged for one in self.results):
            return StepResult(step=step.name, status=NOT_RUN, message="nothing was flagged, and no gate was missed")
        return None

    def _run_step(self, step: Step) -> StepResult:
        if not self.is_brief:
            print(f"== {escape_unprintable(step.name)}", flush=True)
        began = time.monotonic()
        try:
            engine = choose_engine(step.request, in_night=True) if step.needs else self.engines[step.name]
            opened = self._opened.get(step.name, {})
            with self._printing(step):
                ended = run(step.request, step.request.command.load_work(engine), engine, opened)
        except (Exception, KeyboardInterrupt) as error:
            return self._failed(step, error, time.monotonic() - began)
        return StepResult(
            step=step.name,
            status=ended.status,
            exit_code=ended.code,
            seconds=time.monotonic() - began,
            writes=step.writes,
            facts=ended.facts,
        )

    def _printing(self, step: Step) -> AbstractContextManager[object]:
        """Hide what a step prints, where the message of the night repeats it."""
        is_repeated = self.is_brief or step.request.command.name == "report"
        return redirect_stdout(io.StringIO()) if is_repeated else nullcontext()

    def _failed(self, step: Step, error: BaseException, seconds: float) -> StepResult:
        code = endings.report_error(error, self.logs, f"{self.prog}: {step.name}")
        status, message = describe_end(error, code)
        return StepResult(step=step.name, status=status, exit_code=code, seconds=seconds, message=message or "")

    # ------------------------------------------------------------------------------------- before anything runs

    def _check(self, spark: SparkSession | None) -> dict[str, StepResult]:
        """Refuse steps before any of them runs: names, columns and places, by the columns that earlier ones write."""
        made: dict[str, Any] = {}
        refused: dict[str, StepResult] = {}
        for step in self.steps:
            makers = {*step.needs.values()} & {one.name for one in self.steps}
            if step.name in self._known or makers & refused.keys():
                continue
            try:
                made |= self._checked(step, spark, made)
            except Exception as error:
                refused[step.name] = self._failed(step, error, 0.0)
                row = JobRun(spark, step.request)  # it did not run, and the run log says why
                row.start()
                row.end(error)
        return refused

    def _checked(self, step: Step, spark: SparkSession | None, made: Mapping[str, Any]) -> dict[str, Any]:
        """Check a step; return the columns of the tables that it writes, by their place."""
        request, engine = step.request, self.engines[step.name]
        places = {name: source.reference for name, source in request.sources.items()}
        columns = {name: made[place] for name, place in places.items() if place in made}
        if engine.is_local and step.needs and not columns:
            engine = choose_engine(request, in_night=True)
        elif engine.is_local and step.needs:
            tables = {
                name: open_memory_table(its.empty_table(), name, label=name)
                for name, its in columns.items()
                if isinstance(its, pa.Schema)
            }
            engine = replace(engine, opened=tables) if len(tables) == len(columns) else Engine()
        work = request.command.load_work(engine)
        checked = check(request, work, engine, None if engine.is_local else spark, columns)
        self._opened[step.name] = checked.opened
        outputs = checked.outputs
        return {one.reference: with_stamps(outputs[name]) for name, one in request.targets.items() if name in outputs}


@contextmanager
def session_of(runs: Sequence[NightRun]) -> Iterator[SparkSession | None]:
    """Open one session for all steps of all nights that need one."""
    steps = [step for one in runs for step in one.steps]
    needing = [step for one in runs for step in one.steps if not one.engines[step.name].is_local]
    if not needing and not any(needs_spark(one.request.run_log) for one in runs):
        yield None
        return
    from ndcg_spark.jobs.session import open_session

    requests = [one.request for one in steps]
    with open_session(
        "ndcg-spark nightly",
        runs[0].night.spark_settings,
        short_lists=not any(one.command.long_rows(one.settings) for one in requests),
        small_tables=all(step.request.command.reads_results for step in needing),
        tables={name: kind for one in requests for name, kind in list_catalog_tables(one).items()},
    ) as spark:
        yield spark


def stale_lines(spark: SparkSession | None, runs: Sequence[NightRun], config: str) -> list[str]:
    """Say which results are older than what they were made of, now that nights were run, and how to renew them."""
    last = max(runs, key=lambda one: one.night.run_date)
    done = {one.step for one in last.results if one.is_usable}
    if done == {one.name for one in last.night.steps} and not has_later_nights(last.night):
        return []
    stale = find_stale(spark, last.night, min(one.night.run_date for one in runs))
    if not stale:
        return []
    nights = sorted({night for one in stale for night in one.nights})
    command = f"ndcg-spark nightly --config {shlex.quote(config)} --backfill {nights[0]}..{nights[-1]} --stale"
    return ["older than what they were made of:", *(f"  {one.line}" for one in stale), f"  to renew them: {command}"]


def renewed(stale: Sequence[Stale], steps: Sequence[Step]) -> dict[str, StepResult]:
    """Steps that are not run, where only what is stale is renewed, and what is made of it."""
    again = {one.step for one in stale}
    for step in steps:
        if again & {*step.needs.values()}:
            again.add(step.name)
    message = "it is newer than what it was made of"
    return {
        step.name: StepResult(step=step.name, status=BEFORE, exit_code=endings.DONE, message=message)
        for step in steps
        if step.name not in again
    }


def with_stamps(schema: Any) -> Any:
    """Columns of a result, in the types of Arrow or Spark, as it is stored."""
    if isinstance(schema, pa.Schema):
        return pa.schema([*schema, ("dataset", pa.string()), ("run_date", pa.date32()), ("slice", pa.string())])
    stamped = type(schema)([*schema.fields])
    return stamped.add("dataset", "string").add("run_date", "date").add("slice", "string")


def ended_before(spark: SparkSession | None, request: Request[Any], steps: Sequence[Step]) -> dict[str, StepResult]:
    """Find steps that ended well for this night with the same options, version and inputs, by the run log.

    Of the runs that may have written the tables of a step, the last one counts. A step that reads what another one
    writes is run again with it.
    """
    place = request.run_log
    if place is None:
        raise InvalidParameterError("--resume needs a run log: write run-log = ... into the file, outside of steps.")
    datasets = {step.request.logged_slice[1] for step in steps}
    rows = {dataset: read_runs(spark, place, request.run_date, dataset) for dataset in datasets}
    found: dict[str, StepResult] = {}
    for step in steps:
        its, again = step.request, {one.name for one in steps} - found.keys()
        same = {
            "command": its.command.name,
            "config": format_options(its),
            "inputs": to_json(describe_inputs(spark, its.sources)),
            "package_version": __version__,
        }
        writers = [row for row in rows[its.logged_slice[1]] if may_have_written(row, its)]
        last = max(writers, key=lambda row: row["started_at"], default=dict[str, Any](status=""))
        ended_well = last["status"] in ENDED_WELL and all(last[name] == value for name, value in same.items())
        if ended_well and not again & {*step.needs.values()}:
            found[step.name] = StepResult(
                step=step.name,
                status=BEFORE,
                exit_code=last["exit_code"],
                writes=step.writes,
                status_before=last["status"],
            )
    return found


def may_have_written(row: Mapping[str, Any], request: Request[Any]) -> bool:
    """Return whether a run of the run log may have written to one of the places of a request."""
    if row["command"] != request.command.name or row["status"] == REFUSED:
        return False
    before, now = json.loads(row["config"]), json.loads(format_options(request))
    names = {*request.targets, *request.files} & now.keys()
    return not names or any(before.get(name) == now[name] for name in names)


@contextmanager
def only_run(request: Request[Any]) -> Iterator[None]:
    """Refuse to run one night of a data set twice at the same time, by a lock in the folder of the run log."""
    place = request.run_log
    if place is None or needs_spark(place):
        yield
        return
    night = f"run_date={request.run_date}/slice={slice_name(request.dataset, 'nightly')}"
    try:
        claim = claim_slices(Path(canonical(place.reference)), [night], lambda told: None)
    except OutputRefusedError as error:
        raise OutputRefusedError(
            f"the night {request.run_date} of data set {request.dataset!r} is run by somebody else: "
            f"{get_message(error)}"
        ) from error
    try:
        yield
    finally:
        claim.release()
