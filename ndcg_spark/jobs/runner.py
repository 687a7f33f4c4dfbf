"""Running a job: the one story that all of them tell, from opened tables to the exit code. It runs actions."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, fields
from typing import Any, Generic, TypeAlias, TypeVar

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from ndcg_spark.errors import InputRefusedError, printable, text_of
from ndcg_spark.jobs.accounts import REJECT_SCHEMA, Accounts, account, refusal_of, written_rejects
from ndcg_spark.jobs.command import Request, Writes
from ndcg_spark.jobs.flags import flag_of, with_flags
from ndcg_spark.jobs.job_run import job_run
from ndcg_spark.jobs.outputs import refuse_outputs, write_all
from ndcg_spark.jobs.printed import gate_line, to_json
from ndcg_spark.jobs.progress import Progress
from ndcg_spark.sources.formats import Table, open_table
from ndcg_spark.tables import ManyNights, Rows, RunPartition, TableRows, reading_of

S = TypeVar("S")
EXIT_DONE, EXIT_GATE = 0, 3
Line: TypeAlias = str | Callable[[], None]
"""A line to print, or what prints several. One that begins with `warning: ` goes to standard error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a job.

    `facts` is a frozen class of the command, whose fields are the JSON. `tables` are rows by the name of the output,
    and texts of files; one that is not among them is not written. `night` is the slice, if not that of the request.
    `gates` are results of gates, each with the `run` that it is about. Unless `met`, the exit code is 3.
    """

    facts: Any
    lines: Iterable[Line] = ()
    tables: Mapping[str, Rows | str] = field(default_factory=dict)
    night: RunPartition | ManyNights | None = None
    gates: Sequence[Mapping[str, Any]] = ()
    met: bool = True


class Job(Generic[S]):
    """A request whose tables are open, and what the work may ask of its run."""

    def __init__(
        self, spark: SparkSession, request: Request[S], progress: Progress, stack: ExitStack, work: type[Work[S]]
    ) -> None:
        self.spark, self.request, self.settings = spark, request, request.settings
        self.tables: dict[str, Table] = {
            name: open_table(spark, source.reference, source.kind, source.options)
            for name, source in request.sources.items()
        }
        self.accounts: Accounts | None = None
        self._progress, self._stack = progress, stack
        self.work = work(self)

    def wants(self, name: str) -> bool:
        """Whether an output was named; `json` is the JSON."""
        return self.request.json_path is not None if name == "json" else name in self.request.targets

    def step(self, what: str) -> AbstractContextManager[None]:
        """Show a step while it runs, and how long it took."""
        return self._progress.step(what)

    def note(self, **facts: Any) -> None:
        """Keep what the run log is to say of the run."""
        self._progress.note(**facts)

    def tell(self, line: str) -> None:
        """Print a line on standard error."""
        self._progress.line(line)

    def keep(self, frame: DataFrame) -> bool:
        """Keep rows until the job ends, between the actions that need them; False where the platform cannot."""
        try:
            frame.persist()
        except PySparkException:  # some serverless platforms have no cache: the work is then done twice
            return False
        self._stack.callback(frame.unpersist)
        return True

    def count_bad_rows(self, all_valid: Callable[[], int | None] = lambda: None) -> Accounts | None:
        """Run an action for each table: count bad rows, and refuse too many; None unless they are to be left out.

        `all_valid` counts the rows of the first table, if none of them can be bad: it is not read again then.
        """
        if self.request.on_invalid == "reject":
            with self.step("counting bad rows"):
                self.accounts = account(self.work, self.request.shared.max_reject_fraction, all_valid())
        return self.accounts


class Work(Generic[S]):
    """What a command does with its opened tables. Making it is lazy, and finds missing columns and wrong types."""

    def __init__(self, job: Job[S]) -> None:
        self.job, self.request, self.settings, self.tables = job, job.request, job.settings, job.tables

    @staticmethod
    def require_packages() -> None:
        """Raise for a package that it needs and that is not installed, before Spark starts."""

    def schemas(self) -> Mapping[str, T.StructType]:
        """Schemas of the tables that were asked for, by the name of the output."""
        return {}

    def checked(self, *, originals: bool) -> dict[str, DataFrame]:
        """Reasons why rows are bad, by the name of their table, as from `checked_rows`; lazy."""
        return {}

    def advice(self, message: str) -> str:
        """Say what a refusal of rows says, with the way out as users of the command line have it."""
        return message

    def explanation(self) -> Sequence[str]:
        """Say what the job would do, and its cost."""
        return ()

    def run(self) -> Outcome:
        """Run the actions."""
        raise NotImplementedError


def run(request: Request[S], work: type[Work[S]]) -> int:
    """Run a job: 0 done, 3 gate not met. Where input or options are refused, nothing has been written."""
    command, settings = request.command, request.settings
    night, dataset = (request.run_date, request.dataset) if command.sliced else command.slice_of(settings)
    with job_run(
        command.name, request, short_lists=not command.long_rows(settings), run_date=night, dataset=dataset
    ) as run:
        with ExitStack() as stack:
            job = Job(run.spark, request, run.progress, stack, work)
            _check_outputs(run.spark, job, run.progress)
            with _refusals(job):
                if request.shared.explain:
                    print("\n".join(map(printable, job.work.explanation())))
                    return run.exit(EXIT_DONE)
                outcome = job.work.run()
                shown = json_of(outcome.facts)
                _write(outcome, shown, job, run.progress)
        _tell(outcome, shown, request, run.progress)
        return run.exit(EXIT_DONE if outcome.met and all(gate["met"] for gate in outcome.gates) else EXIT_GATE)


def _check_outputs(spark: SparkSession, job: Job[S], progress: Progress) -> None:
    """Raise when an output could not be written, or would overwrite what is not ours. Runs no action."""
    request, work = job.request, job.work
    if "rejects" in request.targets:
        work.checked(originals=True)  # rows that cannot be kept as they came are refused
    if not request.targets and not request.files and request.json_path in (None, "-"):
        return
    schemas = {"rejects": REJECT_SCHEMA, **work.schemas()}
    readings = [
        reading_of(
            spark, f"{flag_of(name)} {source.reference!r}", source.reference, source.kind, job.tables[name].frame
        )
        for name, source in request.sources.items()
    ]
    planned = [
        (flag_of(one.name), request.targets[one.name], schemas[one.name])
        for one in request.command.listed
        if one.name in request.targets
    ]
    paths = [*request.files.values(), *([] if request.json_path in (None, "-") else [str(request.json_path)])]
    refuse_outputs(spark, planned, readings, paths, progress)


@contextmanager
def _refusals(job: Job[S]) -> Iterator[None]:
    """Turn what Spark says of bad rows into a refusal, and say of what is refused that nothing was written."""
    try:
        yield
    except Exception as error:
        refused = refusal_of(error, job.work)
        if refused is None:
            raise
        if type(refused) is InputRefusedError and job.request.command.written:
            text = text_of(refused)
            if "othing was written" not in text:
                sentence = text if text.endswith("?") else f"{text.rstrip('.')}."
                refused = InputRefusedError(f"{sentence} Nothing was written.")
        raise refused from error


def json_of(facts: Any) -> dict[str, Any]:
    """What JSON says: the fields of a frozen class. One that is a word of Python ends in `_` there."""
    return {one.name.removesuffix("_"): getattr(facts, one.name) for one in fields(facts)}


def _write(outcome: Outcome, shown: dict[str, Any], job: Job[S], progress: Progress) -> None:
    """Write all outputs, or none. Runs an action for each table, and one more for each catalog table."""
    request, tables, planned = job.request, dict(outcome.tables), []
    if "rejects" in request.targets and outcome.tables:
        tables["rejects"] = Rows(frame=written_rejects(job.work, job.accounts), empty=[""])
    texts: list[tuple[Writes, str, str]] = []
    for one in request.command.written:
        made = tables.get(one.name)
        if isinstance(made, str):
            texts.append((one, request.files[one.name], made))
        elif made is not None and one.name in request.targets:
            target = request.targets[one.name]
            planned.append(
                TableRows(
                    reference=target.reference,
                    kind=target.kind,
                    grow=target.grow,
                    holds=one.holds,
                    **{its.name: getattr(made, its.name) for its in fields(Rows)},
                )
            )
    night = outcome.night or RunPartition(run_date=request.run_date, dataset=request.dataset)
    files = [(one.holds, path, text) for one, path, text in texts]
    if request.json_path not in (None, "-"):
        files.append(("JSON", str(request.json_path), to_json(shown)))
    write_all(planned, night, files, shown, progress)


def _tell(outcome: Outcome, shown: dict[str, Any], request: Request[S], progress: Progress) -> None:
    """Print lines, how gates did, and the JSON as the last line."""
    for line in outcome.lines:
        if callable(line):
            line()
        elif line.startswith("warning: "):
            progress.line(line)
        else:
            print(printable(with_flags(line)))
    for gate in outcome.gates:
        print(gate_line(gate, gate.get("who", gate["run"])))
    if request.json_path == "-":
        sys.stdout.flush()
        print(to_json(shown), flush=True)
