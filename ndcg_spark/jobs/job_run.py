"""One run of a job, from its session to its exit code: progress, log lines, tags of Spark jobs, and the run log."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import date, datetime, timezone
from typing import TYPE_CHECKING, Any, Protocol

from ndcg_spark.core.redaction import redacted, redacted_values
from ndcg_spark.errors import NdcgSparkError, PartlyWrittenError, find_refusal, text_of
from ndcg_spark.jobs.flags import with_flags
from ndcg_spark.jobs.interrupts import TerminatedError
from ndcg_spark.jobs.places import Operations, Target, catalog_tables_written
from ndcg_spark.jobs.progress import Progress
from ndcg_spark.jobs.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ndcg_spark.jobs.run_log import RunLog
    from ndcg_spark.tables import RunPartition

STARTED, SUCCEEDED, REFUSED, GATE_NOT_MET = "started", "succeeded", "refused", "gate_not_met"
INTERRUPTED, FAILED = "interrupted", "failed"
_BY_CODE = {0: SUCCEEDED, 3: GATE_NOT_MET}
_SECONDS_AFTER_SIGNAL = 10
_LONGEST = 1000
"""Characters of a message in the run log."""


class Watched(Protocol):
    """Configuration of a job, whatever else it says."""

    @property
    def spark_settings(self) -> Mapping[str, str]:
        """Spark settings of a local session."""

    @property
    def operations(self) -> Operations:
        """How the run is watched."""


class JobRun:
    """A run of a job, for the night `run_date`; None: for the day on which it starts, UTC."""

    def __init__(
        self, spark: SparkSession, command: str, operations: Operations, run_date: date | None, dataset: str
    ) -> None:
        self.id = str(uuid.uuid4())
        self.spark, self.command = spark, command
        self.progress = Progress(operations.log_format, {"run_id": self.id, "command": command})
        self._is_watched = operations.log_format == "json" or operations.run_log is not None
        self._code, self._began, self._operations = 0, time.monotonic(), operations
        self._started_at = datetime.now(timezone.utc)
        self._night, self._dataset = run_date or self._started_at.date(), dataset
        self._log: RunLog | None = None
        self._row: dict[str, Any] = {}

    @property
    def tags(self) -> tuple[str, ...]:
        """Labels of the Spark jobs of this run."""
        return f"ndcg-spark {self.command}", f"ndcg-spark run {self.id}"

    def exit(self, code: int) -> int:
        """Note the exit code, and return it."""
        self._code = code
        return code

    def start(self) -> None:
        """Say that the run starts, in the log and in the run log. An action, if there is a run log."""
        place = self._operations.run_log
        if place is not None:
            self._log = self._opened(place)
        if self._is_watched:
            about = {"run_date": str(self._night), "dataset": self._dataset, "status": STARTED}
            self.progress.line(f"run {self.id}: {STARTED}", **about)

    def _opened(self, place: Target) -> RunLog:
        from ndcg_spark.jobs.input_identity import input_identities
        from ndcg_spark.jobs.run_log import RunLog, as_json, versions

        options = self._operations.options
        in_force = {name: value for name, value in options.items() if value is not None and value != ()}
        log = RunLog(self.spark, place, self._about(), self.id, self.progress.line)
        log.check(options)
        self._row = {
            "run_id": self.id,
            "command": self.command,
            "status": STARTED,
            "started_at": self._started_at,
            "config": as_json(redacted_values(in_force)),
            "inputs": as_json(input_identities(self.spark, options)),
            **versions(self.spark),
        }
        log.write(self._row)
        return log

    def end(self, error: BaseException | None = None) -> None:
        """Say how the run ended, in the log and in the run log. An action, if there is a run log.

        A run log that cannot be written any more is a warning: what the job has written stays.
        """
        status, message = ended(error, self._code)
        seconds = time.monotonic() - self._began
        stopped = 143 if isinstance(error, TerminatedError) else 130
        code = {REFUSED: 2, INTERRUPTED: stopped, FAILED: 1}.get(status, self._code)
        if self._is_watched:
            about = {"status": status, "exit_code": code, "seconds": round(seconds, 3), **self._counts()}
            self.progress.line(f"run {self.id}: {status} after {seconds:.1f} s", **about)
        if self._log is None:
            return
        row = {"status": status, "exit_code": code, "seconds": seconds, "message": message}
        row = {**self._row, **row, **self._facts(), "finished_at": datetime.now(timezone.utc)}
        try:
            if status == INTERRUPTED:
                self._write_in_time(self._log, row)
            else:
                self._log.write(row, self._about())
        except Exception as problem:
            why = " ".join(str(problem).split())[:_LONGEST]
            self.progress.line(f"warning: the end of this run is not in the run log {self._log.reference!r}: {why}")

    def _write_in_time(self, log: RunLog, row: dict[str, Any]) -> None:
        """Write a row while Spark may still be busy with what was interrupted; that has to end soon anyway."""

        def write() -> None:
            with suppress(Exception):  # Spark 3.5 has no tags; its jobs end with the session
                self.spark.interruptTag(self.tags[-1])
            try:
                log.write(row, self._about())
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

    def _about(self) -> RunPartition:
        """The night and the data set of the run: those that the job has found, if no option names them."""
        from ndcg_spark.tables import RunPartition

        facts = self.progress.facts
        return RunPartition(
            run_date=facts.get("night") or self._night, dataset=self._dataset or facts.get("dataset") or ""
        )

    def _counts(self) -> dict[str, int]:
        from ndcg_spark.jobs.run_log import counts_of

        return counts_of(self.progress.facts)

    def _facts(self) -> dict[str, Any]:
        from ndcg_spark.jobs.run_log import as_json

        facts = self.progress.facts
        steps = [{"step": redacted(what), "seconds": round(seconds, 3)} for what, seconds in self.progress.steps]
        outputs = [redacted_values(one) for one in facts.get("outputs", [])]
        reasons = (facts.get("rows") or {}).get("rejected_by_reason")
        return {
            **self._counts(),
            "rejected_by_reason": None if reasons is None else as_json(reasons),
            "config_hash": facts.get("config_hash"),
            "outputs": as_json(outputs),
            "steps": as_json(steps),
        }


def ended(error: BaseException | None, code: int) -> tuple[str, str | None]:
    """Tell how a run ended, by its error or else its exit code: its status, and a line that says why."""
    from ndcg_spark.core.failures import SPARK_ERRORS, first_line

    if error is None:
        return _BY_CODE[code], None
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED, None
    text = with_flags(find_refusal(text_of(error)) or text_of(error))
    if isinstance(error, NdcgSparkError) and not isinstance(error, PartlyWrittenError):
        return REFUSED, redacted(" ".join(text.split()))[:_LONGEST]
    first = first_line(error) if isinstance(error, SPARK_ERRORS) else next(iter(text.strip().splitlines()), "")
    return FAILED, redacted(f"{type(error).__name__}: {first}")[:_LONGEST]


@contextmanager
def job_run(
    command: str,
    config: Watched,
    *,
    short_lists: bool,
    run_date: date | None = None,
    dataset: str = "",
) -> Iterator[JobRun]:
    """Run a job: open its session, and log how it starts and how it ends.

    The block calls `exit` of what is yielded with its exit code. `short_lists` is as for `spark_session`.
    """

    def tables() -> dict[str, str]:
        return catalog_tables_written(config.operations.options)

    name = f"ndcg-spark {command}"
    with spark_session(name, config.spark_settings, short_lists=short_lists, tables=tables) as spark:
        run = JobRun(spark, command, config.operations, run_date, dataset)
        if config.operations.options.get("explain"):  # nothing will run
            yield run
            return
        with tagged(spark, run.tags), run.progress.watching(spark):
            run.start()
            try:
                with _surroundings_named():
                    yield run
            except BaseException as error:
                run.end(error)
                raise
            run.end()


@contextmanager
def _surroundings_named() -> Iterator[None]:
    """Say what a machine or its Python workers lack in place of a crash, whichever action of a job met it."""
    from ndcg_spark.core.failures import unfit_surroundings  # loads pyspark, which takes a moment

    try:
        yield
    except Exception as error:
        unfit = unfit_surroundings(error)
        if unfit is None:
            raise
        raise unfit from error


@contextmanager
def tagged(spark: SparkSession, tags: tuple[str, ...]) -> Iterator[None]:
    """Label the Spark jobs that this thread starts, where sessions can do that (Spark 4; Connect 3.5)."""
    added = []
    with suppress(Exception):  # without tags jobs are harder to find, and that is all
        there = spark.getTags()
        for tag in tags:
            if tag not in there:
                spark.addTag(tag)
                added.append(tag)
    try:
        yield
    finally:
        for tag in added:
            with suppress(Exception):  # the session may have ended
                spark.removeTag(tag)
