"""Run a job: open its session and tables, write its outputs, set its exit code, log it. Runs actions."""

from __future__ import annotations

import os
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import reduce
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias, TypeVar

import pyarrow as pa

from ndcg_spark._version import __version__
from ndcg_spark.core.failures import explain_environment_error, first_line, spark_errors
from ndcg_spark.core.redaction import redact, redact_values
from ndcg_spark.errors import (
    InputRefusedError,
    NdcgSparkError,
    PartlyWrittenError,
    end_sentence,
    escape_unprintable,
    find_refusal,
    get_message,
)
from ndcg_spark.jobs.command import Request
from ndcg_spark.jobs.endings import (
    EXIT_CRASHED,
    EXIT_DONE,
    EXIT_GATE_NOT_MET,
    EXIT_INTERRUPTED,
    EXIT_REFUSED,
    EXIT_TERMINATED,
)
from ndcg_spark.jobs.engine import Engine
from ndcg_spark.jobs.interrupts import TerminatedError, handle_interrupts
from ndcg_spark.jobs.logs import Progress
from ndcg_spark.jobs.options import spell_flags
from ndcg_spark.jobs.outputs import (
    REJECT_SCHEMA,
    InputCounts,
    build_refusal,
    check_target,
    count_inputs,
    write_all,
)
from ndcg_spark.jobs.places import Target, format_place
from ndcg_spark.jobs.printing import format_gate, format_json
from ndcg_spark.jobs.run_log import (
    FAILED,
    FLAGGED,
    GATE_NOT_MET,
    INTERRUPTED,
    REFUSED,
    STARTED,
    SUCCEEDED,
    RunLog,
    collect_versions,
    describe_inputs,
    extract_counts,
    find_places,
    format_options,
    list_inputs,
    to_json,
)
from ndcg_spark.sources.listing import NOTHING_LISTED, Listing
from ndcg_spark.tables import (
    Rows,
    Slices,
    canonicalize,
    convert_write_errors,
    find_used_places,
    refuse_inside_table,
    refuse_nested,
)
from ndcg_spark.tables.kinds import TABLE_KINDS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import types as T

    from ndcg_spark.core.row_counts import RowCount
    from ndcg_spark.sources.formats import Table

_STATUS_BY_CODE = {
    EXIT_DONE: SUCCEEDED, EXIT_CRASHED: FAILED, EXIT_REFUSED: REFUSED, EXIT_GATE_NOT_MET: GATE_NOT_MET,
}  # fmt: skip
_SECONDS_AFTER_SIGNAL = 10
_MAX_MESSAGE_CHARACTERS = 1000


class JobRun:
    """A run of a job, with or without a Spark session. Its night defaults to the day of its start in UTC."""

    def __init__(
        self,
        spark: SparkSession | None,
        request: Request[Any],
        listings: Mapping[str, Listing] = MappingProxyType({}),
    ) -> None:
        self.id = str(uuid.uuid4())
        self.spark, self.request, self.command, self._listings = spark, request, request.command.name, listings
        self.progress = Progress(request.log_format, {"run_id": self.id, "command": self.command})
        self._is_watched = request.log_format == "json" or request.run_log is not None
        self._code, self._began = 0, time.monotonic()
        self._status: str | None = None
        self._message: str | None = None
        self._started_at = datetime.now(timezone.utc)
        night, self._dataset = request.logged_night_and_dataset
        self._night = night or self._started_at.date()
        self._log: RunLog | None = None
        self._row: dict[str, Any] = {}

    @property
    def tags(self) -> tuple[str, ...]:
        return f"ndcg-spark {self.command}", f"ndcg-spark run {self.id}"

    def set_exit(self, code: int, status: str | None = None, message: str | None = None) -> None:
        """Set the exit code, the status if it does not follow from the code, and the reason of a refusal."""
        self._code, self._status, self._message = code, status, message

    def start(self) -> None:
        """Log that the run starts. Runs an action if there is a run log."""
        if self.request.run_log is not None:
            self._log = self._open_log(self.request.run_log)
        if self._is_watched:
            about = {"run_date": str(self._night), "dataset": self._dataset, "status": STARTED}
            self.progress.log(f"run {self.id}: {STARTED}", **about)

    def _open_log(self, place: Target) -> RunLog:
        log = RunLog(self.spark, place, self._build_slice(), self.progress.log)
        log.check(find_places(self.spark, self.request, self._listings))
        self._row = {
            "run_id": self.id,
            "command": self.command,
            "status": STARTED,
            "started_at": self._started_at,
            "config": format_options(self.request),
            "inputs": to_json(describe_inputs(self.spark, self.request.sources, self._listings)),
            **collect_versions(self.spark),
        }
        log.write(self._row)
        return log

    def end(self, error: BaseException | None = None) -> None:
        """Log how the run ended. Runs an action if there is a run log.

        If the run log cannot be written any more, that is a warning: the outputs of the job stay.
        """
        status, message = describe_end(error, self._code)
        if error is None:
            status, message = self._status or status, self._message
        seconds = time.monotonic() - self._began
        stopped = EXIT_TERMINATED if isinstance(error, TerminatedError) else EXIT_INTERRUPTED
        code = {REFUSED: EXIT_REFUSED, INTERRUPTED: stopped, FAILED: EXIT_CRASHED}.get(status, self._code)
        if self._is_watched:
            about = {
                "status": status,
                "exit_code": code,
                "seconds": round(seconds, 3),
                **extract_counts(self.progress.facts),
            }
            self.progress.log(f"run {self.id}: {status} after {seconds:.1f} s", **about)
        if self._log is None:
            return
        row = {"status": status, "exit_code": code, "seconds": seconds, "message": message}
        row = {**self._row, **row, **self._build_facts(), "finished_at": datetime.now(timezone.utc)}
        try:
            if status == INTERRUPTED:
                self._write_in_time(self._log, row)
            else:
                self._log.write(row, self._build_slice())
        except Exception as problem:
            why = " ".join(str(problem).split())[:_MAX_MESSAGE_CHARACTERS]
            self.progress.log(f"warning: the end of this run is not in the run log {self._log.reference!r}: {why}")

    def _write_in_time(self, log: RunLog, row: dict[str, Any]) -> None:
        """Write a row while Spark may still run the interrupted action; give up after ten seconds."""

        def write() -> None:
            with suppress(Exception):  # Spark 3.5 has no tags; its jobs end with the session
                if self.spark is not None:
                    self.spark.interruptTag(self.tags[-1])
            try:
                log.write(row, self._build_slice())
            except Exception as problem:
                failed.append(problem)

        failed: list[Exception] = []
        writing = threading.Thread(target=write, daemon=True)
        writing.start()
        writing.join(_SECONDS_AFTER_SIGNAL)
        if writing.is_alive():
            raise TimeoutError("Spark is busy")
        if failed:
            raise failed[0]

    def _build_slice(self) -> Slices:
        """Build the slice of the run in the run log; the job may have recorded a night and data set of its own."""
        facts = self.progress.facts
        night, dataset = facts.get("night") or self._night, self._dataset or facts.get("dataset") or ""
        return Slices.for_night(night, dataset, [self.id], whole=True)

    def _build_facts(self) -> dict[str, Any]:
        facts = self.progress.facts
        steps = [{"step": redact(label), "seconds": round(seconds, 3)} for label, seconds in self.progress.steps]
        outputs = [redact_values(output) for output in facts.get("outputs", [])]
        reasons = (facts.get("rows") or {}).get("rejected_by_reason")
        return {
            **extract_counts(facts),
            "rejected_by_reason": None if reasons is None else to_json(reasons),
            "config_hash": facts.get("config_hash"),
            "outputs": to_json(outputs),
            "steps": to_json(steps),
        }


def describe_end(error: BaseException | None, code: int) -> tuple[str, str | None]:
    """Return the status of a run, from its error or its exit code, and the message of the error."""
    if error is None:
        return _STATUS_BY_CODE[code], None
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED, None
    text = spell_flags(find_refusal(get_message(error)) or get_message(error))
    if isinstance(error, NdcgSparkError) and not isinstance(error, PartlyWrittenError):
        return REFUSED, redact(" ".join(text.split()))[:_MAX_MESSAGE_CHARACTERS]
    first = first_line(error) if isinstance(error, spark_errors()) else next(iter(text.strip().splitlines()), "")
    return FAILED, redact(f"{type(error).__name__}: {first}")[:_MAX_MESSAGE_CHARACTERS]


@contextmanager
def open_run(
    request: Request[Any], engine: Engine, listings: Mapping[str, Listing] = MappingProxyType({})
) -> Iterator[JobRun]:
    """Open the session of a job if Spark runs it, and log its start and end.

    The block passes the exit code to `JobRun.set_exit`.
    """
    with _open_session(request, engine) as spark:
        run = JobRun(spark, request, {**engine.listings, **listings})
        if request.shared.explain:  # nothing runs, so nothing is logged
            yield run
            return
        with ExitStack() as stack:
            if spark is not None:
                stack.enter_context(tag_jobs(spark, run.tags))
                stack.enter_context(run.progress.show_tasks(spark))
            run.start()
            try:
                with _explain_crashes():
                    yield run
            except BaseException as error:
                run.end(error)
                raise
            run.end()


@contextmanager
def _open_session(request: Request[Any], engine: Engine) -> Iterator[SparkSession | None]:
    """Open a session if Spark runs the job; with both engines, a signal raises one `KeyboardInterrupt`."""
    if engine.is_local:
        with handle_interrupts() as interrupts:
            interrupts.finish_start()
            yield None
        return
    from ndcg_spark.jobs.session import open_session

    with open_session(
        f"ndcg-spark {request.command.name}",
        request.spark_settings,
        long_rows=request.command.long_rows(request.settings),
        small_tables=request.command.reads_results,
        tables=list_catalog_tables(request),
    ) as spark:
        yield spark


def list_catalog_tables(request: Request[Any]) -> dict[str, str]:
    """List the catalog tables that a job writes, the run log too, with their formats."""
    targets = [*request.targets.values(), *([request.run_log] if request.run_log else [])]
    formats = {target.reference: target.format for target in targets}
    return {name: kind for name, kind in formats.items() if kind in TABLE_KINDS and "/" not in name}


@contextmanager
def _explain_crashes() -> Iterator[None]:
    """Replace a crash by an error that names what the machine or its Python workers lack."""
    try:
        yield
    except Exception as error:
        unfit = explain_environment_error(error)
        if unfit is None:
            raise
        raise unfit from error


@contextmanager
def tag_jobs(spark: SparkSession, tags: tuple[str, ...]) -> Iterator[None]:
    """Tag the Spark jobs of this thread, if the session supports that (Spark 4; Connect 3.5)."""
    added = []
    with suppress(Exception):  # tags only help to find jobs
        existing = spark.getTags()
        for tag in tags:
            if tag not in existing:
                spark.addTag(tag)
                added.append(tag)
    try:
        yield
    finally:
        for tag in added:
            with suppress(Exception):  # the session may have ended
                spark.removeTag(tag)


S = TypeVar("S")
PlannedSchemas: TypeAlias = "Mapping[str, pa.Schema | T.StructType]"
"""Columns of tables that an earlier job will write."""
Line: TypeAlias = str | Callable[[], None]
"""A line to print, or a function that prints several. `warning: ` sends it to standard error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The results of a job: the `facts` of its JSON, `lines` to print, and by output the rows or text to write.

    Outputs without an entry in `tables` are not written. The exit code is 3 unless `met` and all gates are met.
    """

    facts: Mapping[str, Any]
    lines: Iterable[Line] = ()
    tables: Mapping[str, Rows | str] = field(default_factory=dict)
    met: bool = True

    @property
    def gates(self) -> list[dict[str, Any]]:
        return list(self.facts.get("gates", ()))


class Job(Generic[S]):
    """A request with open tables, and the services of its run.

    `tables` are Spark tables; without Spark, `engine.opened` holds the tables that the work has opened.
    """

    def __init__(
        self,
        spark: SparkSession | None,
        request: Request[S],
        progress: Progress,
        stack: ExitStack,
        work: type[Work[S]],
        engine: Engine,
        *,
        planned: PlannedSchemas = MappingProxyType({}),
        opened: Mapping[str, Table] = MappingProxyType({}),
    ) -> None:
        if isinstance(engine.opened, NdcgSparkError):
            raise engine.opened
        self.session, self.request, self.settings, self.engine = spark, request, request.settings, engine
        self.now = datetime.now(timezone.utc)  # `computed_at` of all tables of the run
        self.tables: dict[str, Table] = {} if spark is None else _open_tables(spark, request, planned, opened)
        self.input_counts: InputCounts | None = None
        self.step, self.record, self.log, self._stack = progress.step, progress.record, progress.log, stack
        self.work = work(self)

    @property
    def spark(self) -> SparkSession:
        """Session of a job that Spark runs."""
        if self.session is None:
            raise RuntimeError("this job runs without Spark.")
        return self.session

    def is_requested(self, output: str) -> bool:
        return self.request.shared.json is not None if output == "json" else output in self.request.targets

    def build_slices(
        self, runs: Sequence[str] = ("",), *, may_be_empty: Sequence[str] = (), whole: bool = False
    ) -> Slices:
        """Build the slices of runs under the night and data set of the request; see `Slices.for_night`."""
        return Slices.for_night(
            self.request.run_date, self.request.dataset, runs, may_be_empty=may_be_empty, whole=whole
        )

    def persist(self, frame: DataFrame) -> bool:
        """Cache rows until the job ends; False if the platform has no cache."""
        from pyspark.errors import PySparkException

        from ndcg_spark.core.session import merge_cached_partitions

        try:
            with merge_cached_partitions(self.spark):
                frame.persist()
        except PySparkException:  # some serverless platforms have no cache and compute the rows twice
            return False
        self._stack.callback(frame.unpersist)
        return True

    def count_bad_rows(self, all_valid: Callable[[], int | None] = lambda: None) -> InputCounts | None:
        """Read each table, count bad rows, and refuse too many; None unless bad rows are left out.

        `all_valid` returns the number of rows of the first table if all are valid; the table is not read again then.
        """
        if self.request.on_invalid == "reject":
            with self.step("counting bad rows"):
                self.input_counts = count_inputs(self.work, self.request.shared.max_reject_fraction, all_valid())
        return self.input_counts


class Work(Generic[S]):
    """The work of a command on open tables. The constructor is lazy; it refuses missing columns and wrong types.

    The methods for bad rows use Spark here; local work overrides them.
    """

    EXPLAINED = "Nothing was run."

    def __init__(self, job: Job[S]) -> None:
        self.job, self.request, self.settings, self.tables = job, job.request, job.settings, job.tables

    @staticmethod
    def require_packages() -> None:
        """Raise for a missing package, before Spark starts."""

    def schemas(self) -> Mapping[str, T.StructType | pa.Schema]:
        return {}

    def check_rows(self, *, originals: bool) -> dict[str, DataFrame]:
        """Return each table's rows with the reasons why they are bad, like `report_bad_rows`; lazy.

        With `originals`, they also have the original row, for `build_rejects`.
        """
        return {}

    def check_originals(self) -> None:
        """Refuse tables whose bad rows cannot be stored in their original form."""
        self.check_rows(originals=True)

    def count_rows(self, all_valid: int | None = None) -> dict[str, RowCount]:
        """Count the bad rows of each table by reason. Runs an action for each table.

        `all_valid` is the number of rows of the first table if all are known to be valid; the table is not read then.
        """
        from ndcg_spark.core.bad_rows import RowCount, count_rows

        tables, counts = self.check_rows(originals=False), {}
        if all_valid is not None:
            counts[next(iter(tables))] = RowCount(read=all_valid, rejected={}, examples={})
        return counts | {name: count_rows(rows) for name, rows in tables.items() if name not in counts}

    def build_rejects(self, input_counts: InputCounts | None) -> DataFrame | pa.Table:
        """Build the stored form of bad rows (`source`, `reason`, `row`, `run`); valid tables are not read again."""
        from pyspark.sql import DataFrame
        from pyspark.sql import functions as F

        from ndcg_spark.core.bad_rows import select_rejects

        tables = {name: select_rejects(rows, name) for name, rows in self.check_rows(originals=True).items()}
        frames = [
            rows if input_counts is None or name in input_counts.with_rejects else rows.limit(0)
            for name, rows in tables.items()
        ]
        return reduce(DataFrame.unionByName, frames).withColumn("run", F.lit(""))

    def add_hint(self, message: str) -> str:
        """Add the command line options that help to a refusal of rows."""
        return message

    def check_columns(self) -> None:
        """Refuse columns that `run` would refuse. A night calls this before an earlier job writes the tables."""

    def explain(self) -> Sequence[tuple[str, str]]:
        """Return labels and texts for `--explain`: the steps of the job and their cost."""
        return ()

    def run(self) -> Outcome:
        raise NotImplementedError

    def build_provenance(self, **more: Any) -> dict[str, Any]:
        """Return the facts that results of a night are stored with, and `more`."""
        night = {"run_date": self.request.run_date.isoformat(), "dataset": self.request.dataset}
        return {**night, **more, "package_version": __version__}


def _open_tables(
    spark: SparkSession, request: Request[Any], planned: PlannedSchemas, opened: Mapping[str, Table]
) -> dict[str, Table]:
    """Open the inputs of a job that are not in `opened`; `planned` tables are opened without rows."""
    from pyspark.sql.pandas.types import from_arrow_schema

    from ndcg_spark.sources.formats import Table, open_table

    tables = {}
    for name, source in request.sources.items():
        if name in planned:
            schema = planned[name]
            types = from_arrow_schema(schema) if isinstance(schema, pa.Schema) else schema
            tables[name] = Table(frame=spark.createDataFrame([], types), name=source.reference, path=None)
        else:
            tables[name] = opened.get(name) or open_table(spark, source.reference, source.kind, source.options)
    return tables


class JobResult(NamedTuple):
    """Result of a run: exit code, status as in the run log, and the JSON of its results."""

    code: int
    status: str
    facts: Mapping[str, Any]


def run(
    request: Request[S],
    work: type[Work[S]],
    engine: Engine,
    opened: Mapping[str, Table] = MappingProxyType({}),
    listings: Mapping[str, Listing] = MappingProxyType({}),
) -> JobResult:
    """Run a job. If it is refused, nothing was written.

    `opened` holds tables that Spark has opened before, and `listings` their state then.
    """
    with open_run(request, engine, listings) as run:
        with ExitStack() as stack:
            job = Job(run.spark, request, run.progress, stack, work, engine, opened=opened)
            _check_outputs(run.spark, job, run.progress)
            with _convert_refusals(job):
                if request.shared.explain:
                    _print_explanation(job)
                    return JobResult(EXIT_DONE, SUCCEEDED, {})
                outcome = job.work.run()
                _write_outputs(outcome, job, run.progress)
        _print_outcome(outcome, request, run.progress)
        code = EXIT_DONE if outcome.met and all(gate["met"] for gate in outcome.gates) else EXIT_GATE_NOT_MET
        status = FLAGGED if outcome.facts.get("flags") else _STATUS_BY_CODE[code]
        run.set_exit(code, status)
        return JobResult(code, status, outcome.facts)


class CheckedJob(NamedTuple):
    """A job that can run: columns of its outputs, tables that Spark has opened for it, and their state before."""

    outputs: PlannedSchemas
    opened: Mapping[str, Table]
    listings: Mapping[str, Listing]


def check_job(
    request: Request[S], work: type[Work[S]], engine: Engine, spark: SparkSession | None, planned: PlannedSchemas
) -> CheckedJob:
    """Refuse a job that cannot run, before it runs. Reads schemas.

    `planned` holds the columns of the inputs that an earlier job will write, by the names of `request.sources`.
    """
    with ExitStack() as stack:
        progress = Progress(request.log_format)
        logged = {} if request.run_log is None else request.sources
        unplanned = {name: source for name, source in logged.items() if source.reference and name not in planned}
        listings = {} if spark is None else list_inputs(spark, unplanned)
        job = Job(spark, request, progress, stack, work, engine, planned=planned)
        _check_outputs(spark, job, progress, planned)
        job.work.check_columns()
        opened = {name: table for name, table in job.tables.items() if name not in planned}
        return CheckedJob(job.work.schemas(), opened, listings)


def _print_explanation(job: Job[S]) -> None:
    request, labelled = job.request, [*job.work.explain()]
    if request.command.local:
        labelled.append(("engine", str(job.engine)))
    if request.command.outputs:
        night = f"replacing {request.run_date} of data set {request.dataset!r} only"
        labelled.append(("would write", f"{request.outputs_text}, {night}" if request.outputs_text else "nothing"))
    width = max(len(label) for label, _ in labelled) + 2
    lines = [redact(f"{label:{width}}{text}") for label, text in labelled]
    print("\n".join(map(escape_unprintable, [*lines, job.work.EXPLAINED])))


def _check_outputs(
    spark: SparkSession | None, job: Job[S], progress: Progress, planned: PlannedSchemas = MappingProxyType({})
) -> None:
    """Refuse outputs that cannot be written or would overwrite other data. Runs no action."""
    request, work = job.request, job.work
    if "rejects" in request.targets:
        work.check_originals()
    if not request.targets and not request.paths:
        return
    schemas = {"rejects": REJECT_SCHEMA, **work.schemas()}
    frames = {
        name: table.frame for name, table in job.tables.items() if name not in planned
    }  # those may not exist yet
    listings = job.engine.listings
    used_places = [
        find_used_places(
            spark,
            format_place(name, source.reference),
            source.reference,
            source.kind,
            frames.get(name),
            files=listings.get(name, NOTHING_LISTED).files,
        )
        for name, source in request.sources.items()
    ]
    for output in request.command.shown_outputs:
        if output.name in request.targets:
            target, schema = request.targets[output.name], schemas[output.name]
            used_places.append(check_target(spark, output.name, target, schema, used_places, progress.log))
    for path in request.paths.values():
        refuse_nested(canonicalize(os.path.abspath(path)), path, used_places)
        with convert_write_errors(path):
            refuse_inside_table(path)


@contextmanager
def _convert_refusals(job: Job[S]) -> Iterator[None]:
    """Convert Spark's errors about bad rows to refusals that end with "Nothing was written"."""
    try:
        yield
    except Exception as error:
        refused = build_refusal(error, job.work)
        if refused is None:
            raise
        if type(refused) is InputRefusedError and job.request.command.outputs:
            text = get_message(refused)
            if "nothing was written" not in text.lower():
                refused = InputRefusedError(f"{end_sentence(text)} Nothing was written.")
        raise refused from error


def _write_outputs(outcome: Outcome, job: Job[S], progress: Progress) -> None:
    """Write all outputs or none. Spark runs an action for each table, and another for each catalog table."""
    request, tables = job.request, dict(outcome.tables)
    rows_to_write: list[Rows] = []
    files: list[tuple[str, str, str]] = []
    if "rejects" in request.targets and outcome.tables:
        tables["rejects"] = Rows(
            frame=job.work.build_rejects(job.input_counts), slices=job.build_slices(may_be_empty=[""])
        )
    for output in request.command.outputs:
        content = tables.get(output.name)
        if isinstance(content, str):
            files.append((output.holds, request.files[output.name], content))
        elif content is not None and output.name in request.targets:
            target = request.targets[output.name]
            rows_to_write.append(
                replace(content, reference=target.reference, kind=target.kind, grow=target.grow, holds=output.holds)
            )
    if "json" in request.paths:
        files.append(("JSON", request.paths["json"], format_json(outcome.facts)))
    write_all(rows_to_write, files, outcome.facts, progress)


def _print_outcome(outcome: Outcome, request: Request[S], progress: Progress) -> None:
    for line in outcome.lines:
        if callable(line):
            line()
        elif line.startswith("warning: "):
            progress.log(line)
        else:
            print(escape_unprintable(spell_flags(line)))
    for gate in outcome.gates:
        print(format_gate(gate))
    if request.shared.json == "-":
        sys.stdout.flush()
        print(format_json(outcome.facts), flush=True)
