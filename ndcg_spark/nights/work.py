"""Run the steps of a night one after another, in one Spark session if needed. Spark actions: those of the steps."""

from __future__ import annotations

import io
import json
import shlex
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from dataclasses import replace
from importlib.util import find_spec
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
from ndcg_spark.jobs.outputs import StagedFile
from ndcg_spark.jobs.places import Source, Target, name_missing_packages
from ndcg_spark.jobs.run_log import (
    ENDED_WELL,
    FAILED,
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
    CheckedJob,
    JobRun,
    check_job,
    describe_end,
    list_catalog_tables,
    run,
)
from ndcg_spark.nights.message import build_night_message
from ndcg_spark.nights.results import BEFORE, NOT_RUN, StepResult
from ndcg_spark.nights.stale import find_stale, has_later_nights
from ndcg_spark.nights.steps import Night, Step
from ndcg_spark.sources.local import open_memory_table
from ndcg_spark.tables import canonicalize, slice_name
from ndcg_spark.tables.claims import claim_slices, delay_signals
from ndcg_spark.tables.places import is_local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class NightRun:
    """Run the steps of a night; `is_brief` prints one line for the night and hides the output of each step."""

    def __init__(
        self, night: Night, steps: Sequence[Step], logs: CommandLog, prog: str, *, is_brief: bool = False
    ) -> None:
        self.night, self.steps, self.request, self.logs, self.prog = night, steps, night.request, logs, prog
        self.is_brief = is_brief
        self.results: list[StepResult] = []
        self.engines = {step.name: choose_engine(step.request, open_inputs=not step.needs) for step in steps}
        self._checked: dict[str, CheckedJob] = {}
        self._known: dict[str, StepResult] = {}
        self._waiting: set[str] = set()
        self._renews = False
        self.refusal: str | None = None

    @property
    def code(self) -> int:
        """Exit code of the night."""
        codes = [result.exit_code for result in self.results if result.exit_code is not None]
        return endings.choose_exit_code([*codes, *([] if self.refusal is None else [endings.EXIT_REFUSED])])

    @property
    def is_unchanged(self) -> bool:
        """True if no step was run again."""
        return self.refusal is None and all(result.status == BEFORE for result in self.results)

    @property
    def _status(self) -> str | None:
        """Status for the run log if the exit code does not show it (`flagged`), else None."""
        statuses = {result.status_before or result.status for result in self.results}
        ended_well = self.code in (endings.EXIT_DONE, endings.EXIT_GATE_NOT_MET)
        return FLAGGED if ended_well and FLAGGED in statuses and GATE_NOT_MET not in statuses else None

    @property
    def _reason(self) -> str | None:
        """The first step that was refused or failed, and why."""
        ended = (result for result in self.results if result.status in (REFUSED, FAILED))
        return next((f"{result.step} {result.status}: {result.message}" for result in ended), None)

    def run(self, spark: SparkSession | None, *, resume: bool = False, stale: bool = False) -> int:
        """Check all steps, run them, and print the status of each.

        `resume` skips steps that succeeded before. `stale` runs only steps whose results are older than their inputs.
        """
        try:
            return self._run(spark, resume=resume, stale=stale)
        except NdcgSparkError as error:
            self.refusal = f"refused: {to_one_line(redact(get_message(error)))}"
            raise

    def _run(self, spark: SparkSession | None, *, resume: bool, stale: bool) -> int:
        with lock_night(self.request):
            job = JobRun(spark, self.request)
            job.start()
            try:
                self._renews = stale
                self._known = self._find_known(spark, resume=resume, stale=stale)
                self._run_steps(spark, self._check(spark))
            except BaseException as error:
                job.end(error)
                raise
            finally:
                shown = [result for result in self.results if not stale or result.status != BEFORE]
                if shown and not self.is_brief:
                    print("\n".join([f"steps of {self.night.run_date}:", *(f"  {result.line}" for result in shown)]))
            self._list_refused_night()
            job.progress.steps += [(f"{result.step}: {result.status}", result.seconds) for result in self.results]
            job.set_exit(self.code, self._status, self._reason)
            job.end()
        if shown:
            lines = self.message["lines"]
            print(" ".join(lines[:2]) if self.is_brief else "\n  ".join(lines), flush=True)
        else:
            print(f"night {self.night.run_date}: nothing is older than its inputs", flush=True)
        return self.code

    def _list_refused_night(self) -> None:
        """Add the night to the index of a report that could not be drawn, because a step was refused or failed."""
        if self._reason is None:
            return
        for step, result in zip(self.steps, self.results, strict=True):
            index = Path(step.request.files.get("index", ""))
            if result.status in (NOT_RUN, REFUSED, FAILED) and index.is_file():
                from ndcg_spark.reports.index import add_night_without_result

                before = index.read_text(encoding="utf-8")
                after = add_night_without_result(before, step.request.run_date, self._reason)
                if after != before:
                    staged = StagedFile(str(index), after.rstrip("\n"))
                    staged.swap()

    def _find_known(self, spark: SparkSession | None, *, resume: bool, stale: bool) -> dict[str, StepResult]:
        """Find the steps that `resume` or `stale` skips."""
        if resume:
            return find_succeeded(spark, self.night, self.steps, self.engines)
        if stale:
            again = {stale.step for stale in find_stale(spark, self.night, *[self.night.run_date] * 2)}
            return find_up_to_date(again | (again and find_unsuccessful(spark, self.night)), self.steps)
        return {}

    def plan(self, spark: SparkSession | None, *, resume: bool = False, stale: bool = False) -> list[str]:
        """Return the lines of `--plan`; nothing is run."""
        known = self._find_known(spark, resume=resume, stale=stale)
        return list(self.night.lines(self.steps, known))

    @property
    def message(self) -> dict[str, Any]:
        """Summary of the night, as JSON."""
        return build_night_message(self.night, self.results, self.code, self.refusal)

    def _run_steps(self, spark: SparkSession | None, refused: Mapping[str, StepResult]) -> None:
        for step in self.steps:
            result = self._known.get(step.name) or refused.get(step.name) or self._skip_step(step)
            self.results.append(result or self._run_step(leave_out_tables(step, *self._split_results())))
            if self.results[-1].status == INTERRUPTED:
                raise TerminatedError if self.results[-1].exit_code == endings.EXIT_TERMINATED else KeyboardInterrupt

    def _split_results(self) -> tuple[set[str], dict[str, str]]:
        """Return the steps whose tables are complete, and the messages of those that were refused or failed."""
        usable = {result.step for result in self.results if result.is_usable}
        failed = (result for result in self.results if result.step not in usable | self._waiting)
        return usable, {result.step: result.problem for result in failed}

    def _skip_step(self, step: Step) -> StepResult | None:
        """Return the result of a step that must not run, with the reason; None if the step must run."""
        makers = [result for result in self.results if result.step in step.required_steps]
        failed = [result.step for result in makers if not result.is_usable]
        if failed:
            return _build_not_run(step, failed[0])
        if step.when == "flagged" and not self._renews and not any(result.is_flagged for result in self.results):
            self._waiting.add(step.name)
            return StepResult(step=step.name, status=NOT_RUN, message="nothing was flagged, and no gate was missed")
        return None

    def _run_step(self, step: Step) -> StepResult:
        if not self.is_brief:
            print(f"== {escape_unprintable(step.name)}", flush=True)
        start = time.monotonic()
        try:
            engine = choose_engine(step.request, in_night=True) if step.needs else self.engines[step.name]
            checked = self._checked[step.name]
            with self._redirect_output(step):
                work = step.request.command.load_work(engine)
                outcome = run(step.request, work, engine, checked.opened, checked.listings)
        except (Exception, KeyboardInterrupt) as error:
            return self._report_failure(step, error, time.monotonic() - start)
        return StepResult(
            step=step.name,
            status=outcome.status,
            exit_code=outcome.code,
            seconds=time.monotonic() - start,
            writes=step.writes,
            facts=outcome.facts,
        )

    def _redirect_output(self, step: Step) -> AbstractContextManager[object]:
        """Hide the output of a step if the summary of the night repeats it."""
        is_repeated = self.is_brief or step.request.command.name == "report"
        return redirect_stdout(io.StringIO()) if is_repeated else nullcontext()

    def _report_failure(self, step: Step, error: BaseException, seconds: float) -> StepResult:
        """Log the error of a step; return its result."""
        code = endings.report_error(error, self.logs, f"{self.prog}: {step.name}")
        status, message = describe_end(error, code)
        return StepResult(step=step.name, status=status, exit_code=code, seconds=seconds, message=message or "")

    # ------------------------------------------------------------------------------------- before anything runs

    def _check(self, spark: SparkSession | None) -> dict[str, StepResult]:
        """Check all steps before any of them runs, against the schemas of earlier steps; return the refused ones."""
        written: dict[str, Any] = {}
        refused: dict[str, StepResult] = {}
        problems: dict[str, str] = {}
        for step in self.steps:
            if step.name in self._known:
                continue
            makers = sorted(step.required_steps & problems.keys())
            if makers:
                problems[step.name] = _build_not_run(step, makers[0]).problem
                continue
            available = {other.name for other in self.steps} - problems.keys()
            try:
                written |= self._check_step(leave_out_tables(step, available, problems), spark, written)
            except Exception as error:
                refused[step.name] = self._report_failure(step, error, 0.0)
                problems[step.name] = refused[step.name].problem
                job = JobRun(spark, step.request)  # only to log the refusal
                job.start()
                job.end(error)
        return refused

    def _check_step(self, step: Step, spark: SparkSession | None, written: Mapping[str, Any]) -> dict[str, Any]:
        """Check a step; return the schemas of the tables that it will write, by path."""
        request, engine = step.request, self.engines[step.name]
        paths = {option: source.reference for option, source in request.sources.items()}
        schemas = {option: written[path] for option, path in paths.items() if path in written}
        if engine.is_local and step.needs and not schemas:
            engine = choose_engine(request, in_night=True)
        elif engine.is_local and step.needs:
            tables = {
                option: open_memory_table(schema.empty_table(), option, label=option)
                for option, schema in schemas.items()
                if isinstance(schema, pa.Schema)
            }
            engine = replace(engine, opened=tables) if len(tables) == len(schemas) else Engine()
        work = request.command.load_work(engine)
        checked = check_job(request, work, engine, None if engine.is_local else spark, schemas)
        self._checked[step.name] = checked
        outputs = checked.outputs
        targets = request.targets.items()
        return {target.reference: add_stamps(outputs[option]) for option, target in targets if option in outputs}


def _build_not_run(step: Step, maker: str) -> StepResult:
    return StepResult(step=step.name, status=NOT_RUN, message=f"it needs {maker}")


def leave_out_tables(step: Step, available: Collection[str], problems: Mapping[str, str]) -> Step:
    """Leave out optional tables of steps that are not `available`, unless earlier nights have rows in them.

    `problems` are messages of refused and failed steps; the request gets those of the tables that it may lack.
    """
    makers = {maker for maker in step.needs.values() if maker not in {*available, *step.required_steps}}
    sources = {
        option: source
        for option, source in step.request.sources.items()
        if step.needs.get(option) not in makers or _may_have_rows(source)
    }
    messages = tuple(problems[maker] for maker in sorted(makers & problems.keys()))
    return replace(step, request=replace(step.request, sources=sources, problems=messages))


def _may_have_rows(source: Source) -> bool:
    """Check for nights in a local folder; a table elsewhere may have some."""
    place = canonicalize(source.reference)
    return source.format == "table" or not is_local(place) or any(Path(place).glob("run_date=*"))


@contextmanager
def open_shared_session(runs: Sequence[NightRun]) -> Iterator[SparkSession | None]:
    """Open one session for the steps of all nights; None if no step needs Spark.

    Without PySpark, the check of each step that needs it refuses that step.
    """
    steps = [step for night_run in runs for step in night_run.steps]
    spark_steps = [
        step for night_run in runs for step in night_run.steps if not night_run.engines[step.name].is_local
    ]
    is_logged_by_spark = any(needs_spark(night_run.request.run_log) for night_run in runs)
    if not spark_steps and not is_logged_by_spark:
        yield None
        return
    if find_spec("pyspark") is None and not is_logged_by_spark:
        yield None
        return
    with name_missing_packages("" if spark_steps else "the run log is not a folder of this machine"):
        from ndcg_spark.jobs.session import open_session

    requests = [step.request for step in steps]
    with open_session(
        "ndcg-spark nightly",
        runs[0].night.spark_settings,
        long_rows=any(request.command.long_rows(request.settings) for request in requests),
        small_tables=all(step.request.command.reads_results for step in spark_steps),
        tables={table: kind for request in requests for table, kind in list_catalog_tables(request).items()},
    ) as spark:
        yield spark


def report_stale(
    spark: SparkSession | None, runs: Sequence[NightRun], config: str, message: str | None, *, is_renewal: bool
) -> list[str]:
    """Return lines about results that are now older than their inputs, with the command that renews them."""
    results = [result for night_run in runs for result in night_run.results]
    is_renewed = is_renewal and any(result.status != BEFORE for result in results)
    up_to_date = (
        ["these results are up to date"] if is_renewed and all(result.is_usable for result in results) else []
    )
    last = max(runs, key=lambda night_run: night_run.night.run_date)
    done = {result.step for result in last.results if result.is_usable}
    if done == {step.name for step in last.night.steps} and not has_later_nights(last.night):
        return up_to_date
    stale_steps = find_stale(spark, last.night, min(night_run.night.run_date for night_run in runs))
    if not stale_steps:
        return up_to_date
    nights = sorted({night for stale in stale_steps for night in stale.nights})
    options = shlex.join(["--config", config, *(["--message", message] if message else [])])
    command = f"ndcg-spark nightly {options} --backfill {nights[0]}..{nights[-1]} --stale"
    lines = [f"  {stale.line}" for stale in stale_steps]
    return ["older than their inputs:", *lines, f"  to renew them: {command}"]


def find_up_to_date(names: Collection[str], steps: Sequence[Step]) -> dict[str, StepResult]:
    """Return a result for each step that is not one of `names` and reads the tables of none of them."""
    again = {*names}
    for step in steps:
        if again & {*step.needs.values()}:
            again.add(step.name)
    return {
        step.name: StepResult(
            step=step.name,
            status=BEFORE,
            exit_code=endings.EXIT_DONE,
            message="it is newer than its inputs",
            writes=step.writes,
        )
        for step in steps
        if step.name not in again
    }


def add_stamps(schema: Any) -> Any:
    """Add the columns of stored results, `dataset`, `run_date` and `slice`, to a schema of Arrow or Spark."""
    if isinstance(schema, pa.Schema):
        return pa.schema([*schema, ("dataset", pa.string()), ("run_date", pa.date32()), ("slice", pa.string())])
    stamped = type(schema)([*schema.fields])
    return stamped.add("dataset", "string").add("run_date", "date").add("slice", "string")


def find_succeeded(
    spark: SparkSession | None, night: Night, steps: Sequence[Step], engines: Mapping[str, Engine]
) -> dict[str, StepResult]:
    """Find steps that succeeded for this night with the same options, version and inputs, according to the run log.

    The last run that may have written the tables of a step counts. A step is run again if a step that it needs is run
    again, or was run after it. The state of a table that a step writes is ignored, as it holds other nights, too.
    """
    run_log = night.request.run_log
    if run_log is None:
        raise InvalidParameterError("--resume needs a run log: add run-log = ... to the file, outside of steps.")
    last_runs = _find_last_runs(spark, night, run_log, may_have_written)
    succeeded: dict[str, StepResult] = {}
    for step in steps:
        step_request, again = step.request, {other.name for other in steps} - succeeded.keys()
        sources = {option: source for option, source in step_request.sources.items() if option not in step.needs}
        inputs = to_json(describe_inputs(spark, sources, engines[step.name].listings))
        expected = {
            "command": step_request.command.name,
            "config": format_options(step_request),
            "package_version": __version__,
        }
        last, makers = last_runs[step.name], {*step.needs.values()}
        if last is None or last["status"] not in ENDED_WELL or again & makers:
            continue
        maker_runs = [run for name in makers if (run := last_runs[name]) is not None]
        is_current = all(last[column] == value for column, value in expected.items())
        is_newest = all(run["started_at"] <= last["started_at"] for run in maker_runs)
        if is_current and is_newest and to_json(_select_inputs(last["inputs"], sources)) == inputs:
            succeeded[step.name] = StepResult(
                step=step.name,
                status=BEFORE,
                exit_code=last["exit_code"],
                writes=step.writes,
                status_before=last["status"],
            )
    return succeeded


def find_unsuccessful(spark: SparkSession | None, night: Night) -> set[str]:
    """Find steps that were refused, failed or killed when this night ran last; none without a run log."""
    run_log = night.request.run_log
    last_runs = {} if run_log is None else _find_last_runs(spark, night, run_log, has_outputs_of)
    return {name for name, last in last_runs.items() if last is not None and last["status"] not in ENDED_WELL}


def _find_last_runs(
    spark: SparkSession | None,
    night: Night,
    run_log: Target,
    is_of_step: Callable[[Mapping[str, Any], Request[Any]], bool],
) -> dict[str, dict[str, Any] | None]:
    """Return the last logged run of each step among those that are `is_of_step`; None if there is none."""
    rows = {step.dataset: read_runs(spark, run_log, night.run_date, step.dataset) for step in night.steps}
    runs = {step.name: [row for row in rows[step.dataset] if is_of_step(row, step.request)] for step in night.steps}
    return {name: max(rows, key=lambda row: row["started_at"], default=None) for name, rows in runs.items()}


def _select_inputs(logged: str, sources: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Select the logged states of `sources` from the JSON of the run log."""
    options = {option.replace("_", "-") for option in sources}
    return [state for state in json.loads(logged) if state["option"] in options]


def may_have_written(row: Mapping[str, Any], request: Request[Any]) -> bool:
    """Return whether a logged run may have written to an output path of a request."""
    return row["status"] != REFUSED and has_outputs_of(row, request)


def has_outputs_of(row: Mapping[str, Any], request: Request[Any]) -> bool:
    """Return whether a logged run was to write to an output path of a request."""
    if row["command"] != request.command.name:
        return False
    before, now = json.loads(row["config"]), json.loads(format_options(request))
    outputs = {*request.targets, *request.files} & now.keys()
    return not outputs or any(before.get(option) == now[option] for option in outputs)


@contextmanager
def lock_night(request: Request[Any]) -> Iterator[None]:
    """Refuse to run a night of a data set twice at the same time; the lock is in the folder of the run log."""
    run_log = request.run_log
    if run_log is None or needs_spark(run_log):
        yield
        return
    night = f"run_date={request.run_date}/slice={slice_name(request.dataset, 'nightly')}"
    try:
        claim = claim_slices(Path(canonicalize(run_log.reference)), [night], lambda message: None)
    except OutputRefusedError as error:
        raise OutputRefusedError(
            f"the night {request.run_date} of data set {request.dataset!r} is already being run by another process: "
            f"{get_message(error)}"
        ) from error
    try:
        yield
    finally:
        with delay_signals():
            claim.release()
