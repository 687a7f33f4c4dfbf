"""A job as data: its settings, the tables that it reads and writes, and its work. Loads no Spark."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import click

from ndcg_spark.errors import InvalidParameterError
from ndcg_spark.jobs.logs import log_format_option
from ndcg_spark.jobs.options import (
    config_options,
    config_text,
    flag_of,
    grouped,
    options_of,
    pairs_of,
    run_date_of,
    settings_of,
)
from ndcg_spark.jobs.places import Source, Target, check_file, check_places, dataset_of, needed_packages
from ndcg_spark.jobs.settings import Shared

if TYPE_CHECKING:
    from ndcg_spark.jobs.engine import Engine
    from ndcg_spark.jobs.runner import Work

S = TypeVar("S")
READ_FORMATS = "parquet, orc, csv, tsv, json, table, sql, or any other that Spark reads"
WRITTEN_FORMATS = "parquet, or table; delta or iceberg for a table of that format"
_LAST = ("Output", "Checks", "Running", "Operations")


class GroupedCommand(click.Command):
    """A command whose help lists its options under titles; `--help` is in the last group."""

    def __init__(self, *args: Any, groups: Mapping[str, Sequence[click.Option]], **options: Any) -> None:
        options["params"] = [one for group in groups.values() for one in group]
        super().__init__(*args, **options)
        self.groups = groups

    def invoke(self, ctx: click.Context) -> Any:
        if ctx.params.pop("print_config", False):
            click.echo(config_text(ctx, self.groups))
            return 0
        return super().invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        grouped = [option for options in self.groups.values() for option in options]
        others = [param for param in self.get_params(ctx) if param not in grouped]
        for title, options in self.groups.items():
            shown = [*options, *(others if title == list(self.groups)[-1] else [])]
            records = [record for param in shown if (record := param.get_help_record(ctx)) is not None]
            with formatter.section(title):
                formatter.write_dl(records)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reads:
    """A table to read: `--NAME`, its format, and reader options. The first one that is given names the data set.

    In a night it is the table that an earlier step wrote: the last of those that `follows` names, as
    "mean-ndcg.output". It is not where the step itself names the table `instead_of`. Results of a night are made of
    one of its `nights`, of all `until` then, or of those of a `period`. `with_gates`: gates of the step that wrote it
    are those of the step that reads it, unless it has some of its own.
    """

    name: str
    about: str
    required: bool = True
    formats: str = READ_FORMATS
    group: str = "Input"
    follows: tuple[str, ...] = ()
    instead_of: str = ""
    nights: Literal["one", "until", "period"] = "one"
    with_gates: bool = False

    @property
    def options(self) -> list[click.Option]:
        flag = flag_of(self.name)
        return [
            click.Option([flag], required=self.required, metavar="REF", help=self.about),
            click.Option([f"{flag}-format"], metavar="F", help=f"Format of that table: {self.formats}.  [default: "
                         "guessed from the reference]"),
            click.Option([f"{flag}-option"], multiple=True, metavar="NAME=VALUE", help="Option of Spark's reader for "
                         "that table; may be repeated."),
        ]  # fmt: skip

    def source(self, given: Mapping[str, Any]) -> Source:
        name = self.name
        return Source(reference=given[name], kind=given[f"{name}_format"], options=pairs_of(given[f"{name}_option"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Writes:
    """A table to write, `--NAME` and its format, or one `file`; logs call it what it `holds`."""

    name: str
    holds: str
    about: str
    group: str = "Output"
    file: bool = False

    @property
    def options(self) -> list[click.Option]:
        if self.file:
            return [click.Option([flag_of(self.name)], metavar="FILE", help=self.about)]
        return [
            click.Option([flag_of(self.name)], metavar="REF", help=self.about),
            click.Option([flag_of(self._format)], metavar="F", help=f"Format of that table: "
                         f"{WRITTEN_FORMATS}."),
        ]  # fmt: skip

    @property
    def _format(self) -> str:
        return f"{self.name.removesuffix('_output')}_format"

    def target(self, given: Mapping[str, Any]) -> Target | None:
        if not given[self.name]:
            return None
        return Target(reference=given[self.name], kind=given[self._format], grow=given["schema"] == "grow")


REJECTS = Writes(
    name="rejects", holds="rejects", about="Table of the rejected rows and their reasons to write.", group="Checks"
)
RUN_LOG = Writes(
    name="run_log",
    holds="run log",
    about="Table with one row per run of a job to write: how it ended, when, and on what.",
    group="Operations",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gates(Generic[S]):
    """Conditions on results that set the exit code: an example, their subject, and the function that parses one."""

    example: str
    about: str
    read: Callable[[str, S], Any]

    @property
    def option(self) -> click.Option:
        return click.Option(["--gate"], multiple=True, metavar=f'"{self.example}"', help=f"Exit with 3 if "
                            f"{self.about} does not meet this; may be repeated.")  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Command(Generic[S]):
    """A job, as the command line and the runner know it.

    `without` are fields of the settings that have no option. `sliced`: results are stored under `--run-date` and
    `--dataset`; else `slice_of` names the night and data set of a run. `check` refuses settings that contradict
    other options. `nights` are the options that name the night, and the days between them and it. `long_rows`:
    Spark must weigh rows on their way to workers. `options` and `read` replace options and settings made from the
    fields. `instead` is the command that some options are short for; `ignores` are tables that play no part, as a
    file for `--config` may name them for another command. `writes` become visible in their order, so the one that
    others wait for is the last. `work` is a class as "module:name", loaded when the command is called; `local` is
    the class that does the same without Spark, if there is one.
    """

    name: str
    short: str = ""
    about: str
    settings: type[S]
    without: frozenset[str] = frozenset()
    reads: tuple[Reads, ...]
    writes: tuple[Writes, ...] = ()
    json: bool = True
    sliced: bool = False
    rejects: bool = False
    allows_empty: bool = False
    explains: bool = False
    gates: Gates[S] | None = None
    check: Callable[[Request[S]], None] = lambda request: None
    slice_of: Callable[[S], tuple[date | None, str]] = lambda settings: (None, "")
    nights: Mapping[str, int] = field(default_factory=lambda: {"run_date": 0})
    long_rows: Callable[[S], bool] = lambda settings: False
    options: Callable[[], dict[str, list[click.Option]]] | None = None
    read: Callable[[Mapping[str, Any]], S] | None = None
    instead: Callable[[Mapping[str, Any]], Command[Any] | None] = lambda given: None
    ignores: Callable[[Mapping[str, Any]], Collection[str]] = lambda given: ()
    work: str
    local: str = ""

    @property
    def written(self) -> tuple[Writes, ...]:
        """Tables that it may write, in the order of writing: rejected rows first."""
        return (*((REJECTS,) if self.rejects else ()), *self.writes)

    @property
    def listed(self) -> tuple[Writes, ...]:
        """Tables that it may write, in the order of messages."""
        return self.written[::-1]

    def settings_of(self, given: Mapping[str, Any]) -> S:
        return settings_of(self.settings, given) if self.read is None else self.read(given)

    def groups(self) -> dict[str, list[click.Option]]:
        """Options by their title in the help."""
        own = options_of(self.settings, without=self.without) if self.options is None else self.options()
        shared = {
            "run_date": self.sliced, "dataset": self.sliced, "json": self.json, "explain": self.explains,
            "allow_empty": self.allows_empty, "max_reject_fraction": self.rejects,
            **dict.fromkeys(("engine", "processes", "memory"), bool(self.local)),
        }  # fmt: skip
        return grouped(
            {"Input": []},
            *({one.group: one.options} for one in self.reads),
            {title: [] for title in own if title not in _LAST},
            *({one.group: one.options} for one in self.writes[::-1]),
            own,
            *([{REJECTS.group: REJECTS.options}] if self.rejects else []),
            options_of(Shared, without={name for name, has in shared.items() if not has}),
            {"Checks": [self.gates.option]} if self.gates else {},
            {"Operations": [*config_options(), *RUN_LOG.options, log_format_option()]},
        )

    def as_click(self) -> click.Command:
        last = self.name.split()[-1]
        return GroupedCommand(
            last, groups=self.groups(), callback=self._called, help=self.about, short_help=self.short or None
        )

    def _called(self, **given: Any) -> int:
        request, command = request_of(self, given), self.instead(given) or self
        if command is not self:
            request = request_of(command, given)
        with needed_packages():
            from ndcg_spark.jobs.engine import choose_engine
            from ndcg_spark.jobs.runner import run
        engine = choose_engine(request)
        return run(request, command.load_work(engine), engine).code

    def load_work(self, engine: Engine) -> type[Work[S]]:
        """Load the class that does the work by an engine, and require its packages."""
        with needed_packages(engine.reason):
            module, _, name = (self.local if engine.is_local else self.work).partition(":")
            work: type[Work[S]] = getattr(import_module(f"ndcg_spark.{module}"), name)
            work.require_packages()
        return work


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandGroup:
    """Commands whose names begin with one word."""

    name: str
    about: str
    commands: tuple[Command[Any], ...]

    def as_click(self) -> click.Group:
        within = {one.name.split()[-1]: one.as_click() for one in self.commands}
        return click.Group(self.name, commands=within, help=self.about, no_args_is_help=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(Generic[S]):
    """The checked options of one run of a command: all that can be known before Spark loads.

    `sources` and `targets` are by `Reads.name` and `Writes.name`; `files` are other outputs. Results are
    stored under `run_date`. `in_force` are the options as they were given.
    """

    command: Command[S]
    settings: S
    shared: Shared
    sources: Mapping[str, Source]
    targets: Mapping[str, Target]
    files: Mapping[str, str]
    gates: tuple[Any, ...]
    run_date: date
    dataset: str
    on_invalid: str
    spark_settings: Mapping[str, str]
    run_log: Target | None
    log_format: str
    in_force: Mapping[str, Any] = field(compare=False, repr=False)

    @property
    def logged_slice(self) -> tuple[date | None, str]:
        """Night and data set of its rows in the run log, as far as options name them."""
        return (self.run_date, self.dataset) if self.command.sliced else self.command.slice_of(self.settings)

    @property
    def paths(self) -> dict[str, str]:
        """Files to write, by their option."""
        json = self.shared.json
        return {**self.files, **({} if json in (None, "-") else {"json": json})}

    @property
    def written(self) -> str:
        """Outputs and their places, as a phrase; empty if there are none."""
        named = [one for one in self.command.listed if one.name in self.targets]
        return ", ".join(f"{one.holds} to {self.targets[one.name].reference}" for one in named)


def request_of(command: Command[S], given: Mapping[str, Any]) -> Request[S]:
    settings, shared, ignored = command.settings_of(given), settings_of(Shared, given), command.ignores(given)
    read = [one for one in command.reads if (given[one.name] or one.required) and one.name not in ignored]
    sources = {one.name: one.source(given) for one in read}
    asked = [one for one in command.listed if one.name not in ignored]
    tables = {one.name: one.target(given) for one in asked if not one.file}
    targets = {name: target for name, target in tables.items() if target is not None}
    dataset = ""
    if command.sliced and sources:
        dataset = dataset_of(shared.dataset, next(iter(sources.values())), is_stored=bool(targets))
    request = Request(
        command=command,
        settings=settings,
        shared=shared,
        sources=sources,
        targets=targets,
        files={one.name: given[one.name] for one in asked if one.file and given[one.name] is not None},
        gates=() if command.gates is None else tuple(command.gates.read(text, settings) for text in given["gate"]),
        run_date=run_date_of(given.get("run_date")),
        dataset=dataset,
        on_invalid=given.get("on_invalid") or "fail",
        spark_settings=pairs_of(shared.conf),
        run_log=RUN_LOG.target(given),
        log_format=given["log_format"],
        in_force={name: value for name, value in given.items() if value not in (None, ())},
    )
    command.check(request)
    if "rejects" in targets and request.on_invalid != "reject":
        raise InvalidParameterError("--rejects goes with --on-invalid reject.")
    written = targets if request.run_log is None else {**targets, "run_log": request.run_log}
    check_places(sources, written)
    for name, path in request.paths.items():
        check_file(flag_of(name), path)
    return request
