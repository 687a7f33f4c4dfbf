"""Commands as data: settings, input and output tables, and the class that does the work. Spark is not imported."""

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
    build_options,
    build_settings,
    config_options,
    format_config,
    format_flag,
    merge_groups,
    parse_pairs,
    parse_run_date,
)
from ndcg_spark.jobs.places import Source, Target, check_file, check_places, choose_dataset, name_missing_packages
from ndcg_spark.jobs.settings import SharedSettings

if TYPE_CHECKING:
    from ndcg_spark.jobs.engine import Engine
    from ndcg_spark.jobs.runner import Work

S = TypeVar("S")
READ_FORMATS = "parquet, orc, csv, tsv, json, table, sql, or any other that Spark reads"
WRITTEN_FORMATS = "parquet, or table; delta or iceberg for a table of that format"
_LAST_GROUPS = ("Output", "Checks", "Running", "Operations")


class GroupedCommand(click.Command):
    """A click command whose help groups options under titles; `--help` is in the last group."""

    def __init__(self, *args: Any, groups: Mapping[str, Sequence[click.Option]], **options: Any) -> None:
        options["params"] = [option for group in groups.values() for option in group]
        super().__init__(*args, **options)
        self.groups = groups

    def invoke(self, ctx: click.Context) -> Any:
        if ctx.params.pop("print_config", False):
            click.echo(format_config(ctx, self.groups))
            return 0
        return super().invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        grouped_options = [option for options in self.groups.values() for option in options]
        others = [param for param in self.get_params(ctx) if param not in grouped_options]
        for title, options in self.groups.items():
            shown = [*options, *(others if title == list(self.groups)[-1] else [])]
            records = [record for param in shown if (record := param.get_help_record(ctx)) is not None]
            with formatter.section(title):
                formatter.write_dl(records)


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """Input table of a command: `--NAME`, its format, and reader options. The first input names the data set.

    `follows` lists outputs of earlier steps of a night, such as "mean-ndcg.output"; the last of them that the night
    has is the default, unless the step names the table `instead_of`. `nights` are the nights that a result depends
    on: its own (`one`), all `until` it, or a `period`. `with_gates`: the gates of the step that wrote the table apply
    to the reading step, unless that has gates of its own. `can_lack`: the reading step runs, too, if the step that
    writes the table was refused or failed.
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
    can_lack: bool = False

    @property
    def options(self) -> list[click.Option]:
        flag = format_flag(self.name)
        return [
            click.Option([flag], required=self.required, metavar="REF", help=self.about),
            click.Option([f"{flag}-format"], metavar="F", help=f"Format of that table: {self.formats}.  [default: "
                         "guessed from the reference]"),
            click.Option([f"{flag}-option"], multiple=True, metavar="NAME=VALUE", help="Option of Spark's reader for "
                         "that table; may be repeated."),
        ]  # fmt: skip

    def source(self, params: Mapping[str, Any]) -> Source:
        name = self.name
        return Source(
            reference=params[name],
            kind=params[f"{name}_format"],
            options=parse_pairs(params[f"{name}_option"], f"{format_flag(name)}-option"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """Output of a command: a table (`--NAME`, its format) or, with `file`, a text file. `holds` names it in logs."""

    name: str
    holds: str
    about: str
    group: str = "Output"
    file: bool = False

    @property
    def options(self) -> list[click.Option]:
        if self.file:
            return [click.Option([format_flag(self.name)], metavar="FILE", help=self.about)]
        return [
            click.Option([format_flag(self.name)], metavar="REF", help=self.about),
            click.Option([format_flag(self._format)], metavar="F", help=f"Format of that table: "
                         f"{WRITTEN_FORMATS}."),
        ]  # fmt: skip

    @property
    def _format(self) -> str:
        return f"{self.name.removesuffix('_output')}_format"

    def target(self, params: Mapping[str, Any]) -> Target | None:
        if not params[self.name]:
            return None
        return Target(reference=params[self.name], kind=params[self._format], grow=params["schema"] == "grow")


REJECTS = Output(
    name="rejects", holds="rejects", about="Output table: rejected rows and their reasons.", group="Checks"
)
RUN_LOG = Output(
    name="run_log",
    holds="run log",
    about="Output table with one row per run: status, times, inputs.",
    group="Operations",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gates(Generic[S]):
    """Gates of a command: conditions on results that set the exit code. `parse` reads the text of a gate."""

    example: str
    about: str
    parse: Callable[[str, S], Any]

    @property
    def option(self) -> click.Option:
        return click.Option(["--gate"], multiple=True, metavar=f'"{self.example}"', help=f"Exit with 3 if "
                            f"{self.about} does not meet this; may be repeated.")  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Command(Generic[S]):
    """A job, as the command line and the runner know it.

    - `fields_without_option`: fields of the settings that are not options of this command.
    - `sliced`: results are stored under `--run-date` and `--dataset`; other commands have `find_night_and_dataset`.
    - `check` refuses settings that contradict other options.
    - `nights`: options that are set from the night, with the days to add to it.
    - `long_rows`: rows are so long that Spark must check the size of each batch for workers.
    - `reads_results`: it reads only tables that other commands wrote, which are small beside rankings; without Spark,
      one process is enough.
    - `options` and `parse_settings` replace the options and settings that are derived from the fields.
    - `choose_command` returns another command that runs in place of this one with some options.
    - `list_ignored` returns tables that are not used; a `--config` file may name them for another command.
    - `writes` become visible in this order; the output that other jobs wait for is the last.
    - `work` is a class as "module:name", imported when the command runs; `local` is the class that works without
      Spark, or empty.
    """

    name: str
    short: str = ""
    about: str
    settings: type[S]
    fields_without_option: frozenset[str] = frozenset()
    reads: tuple[Input, ...]
    writes: tuple[Output, ...] = ()
    json: bool = True
    sliced: bool = False
    rejects: bool = False
    allows_empty: bool = False
    explains: bool = False
    gates: Gates[S] | None = None
    check: Callable[[Request[S]], None] = lambda request: None
    find_night_and_dataset: Callable[[S], tuple[date | None, str]] = lambda settings: (None, "")
    nights: Mapping[str, int] = field(default_factory=lambda: {"run_date": 0})
    long_rows: Callable[[S], bool] = lambda settings: False
    reads_results: bool = False
    options: Callable[[], dict[str, list[click.Option]]] | None = None
    parse_settings: Callable[[Mapping[str, Any]], S] | None = None
    choose_command: Callable[[Mapping[str, Any]], Command[Any] | None] = lambda params: None
    list_ignored: Callable[[Mapping[str, Any]], Collection[str]] = lambda params: ()
    work: str
    local: str = ""

    @property
    def outputs(self) -> tuple[Output, ...]:
        """Outputs in the order of writing: rejected rows first."""
        return (*((REJECTS,) if self.rejects else ()), *self.writes)

    @property
    def shown_outputs(self) -> tuple[Output, ...]:
        """Outputs in the order of messages."""
        return self.outputs[::-1]

    def build_settings(self, params: Mapping[str, Any]) -> S:
        return build_settings(self.settings, params) if self.parse_settings is None else self.parse_settings(params)

    def groups(self) -> dict[str, list[click.Option]]:
        """Group the options under the titles of the help."""
        own_options = (
            build_options(self.settings, without=self.fields_without_option)
            if self.options is None
            else self.options()
        )
        shared = {
            "run_date": self.sliced, "dataset": self.sliced, "json": self.json, "explain": self.explains,
            "allow_empty": self.allows_empty, "max_reject_fraction": self.rejects,
            "engine": bool(self.local),
            **dict.fromkeys(("processes", "memory"), bool(self.local) and not self.reads_results),
        }  # fmt: skip
        return merge_groups(
            {"Input": []},
            *({table.group: table.options} for table in self.reads),
            {title: [] for title in own_options if title not in _LAST_GROUPS},
            *({table.group: table.options} for table in self.writes[::-1]),
            own_options,
            *([{REJECTS.group: REJECTS.options}] if self.rejects else []),
            build_options(SharedSettings, without={name for name, is_offered in shared.items() if not is_offered}),
            {"Checks": [self.gates.option]} if self.gates else {},
            {"Operations": [*config_options(), *RUN_LOG.options, log_format_option()]},
        )

    def to_click(self) -> click.Command:
        last = self.name.split()[-1]
        return GroupedCommand(
            last, groups=self.groups(), callback=self._run, help=self.about, short_help=self.short or None
        )

    def _run(self, **params: Any) -> int:
        request, command = build_request(self, params), self.choose_command(params) or self
        if command is not self:
            request = build_request(command, params)
        with name_missing_packages():
            from ndcg_spark.jobs.engine import choose_engine
            from ndcg_spark.jobs.runner import run
        engine = choose_engine(request)
        return run(request, command.load_work(engine), engine).code

    def load_work(self, engine: Engine) -> type[Work[S]]:
        """Import the class that does the work on an engine, and check its packages."""
        with name_missing_packages(engine.reason):
            module, _, attribute = (self.local if engine.is_local else self.work).partition(":")
            work: type[Work[S]] = getattr(import_module(f"ndcg_spark.{module}"), attribute)
            work.require_packages()
        return work


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandGroup:
    """Commands that share the first word of their names."""

    name: str
    about: str
    commands: tuple[Command[Any], ...]

    def to_click(self) -> click.Group:
        commands = {command.name.split()[-1]: command.to_click() for command in self.commands}
        return click.Group(self.name, commands=commands, help=self.about, no_args_is_help=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(Generic[S]):
    """Checked options of a run of a command: everything that is known before Spark is imported.

    `sources` and `targets` are keyed by `Input.name` and `Output.name`; `files` are paths of the other outputs.
    `sliced` commands store results under `run_date` and `dataset`. `in_force` has the options with a value, unparsed.
    `problems` are messages of refused or failed steps whose tables are optional for this step.
    """

    command: Command[S]
    settings: S
    shared: SharedSettings
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
    problems: tuple[str, ...] = ()

    @property
    def logged_night_and_dataset(self) -> tuple[date | None, str]:
        """Night and data set of the run in the run log; None and "" if no option names them."""
        return (
            (self.run_date, self.dataset)
            if self.command.sliced
            else self.command.find_night_and_dataset(self.settings)
        )

    @property
    def paths(self) -> dict[str, str]:
        """Files to write, by option."""
        json = self.shared.json
        return {**self.files, **({} if json in (None, "-") else {"json": json})}

    @property
    def outputs_text(self) -> str:
        """Outputs and their places as text, such as "metrics to out/metrics"; empty if there are none."""
        outputs = [output for output in self.command.shown_outputs if output.name in self.targets]
        return ", ".join(f"{output.holds} to {self.targets[output.name].reference}" for output in outputs)


def build_request(command: Command[S], params: Mapping[str, Any]) -> Request[S]:
    """Build the request of a command from click's parameters; refuse options that contradict each other."""
    settings, shared, ignored = (
        command.build_settings(params),
        build_settings(SharedSettings, params),
        command.list_ignored(params),
    )
    inputs = [
        table for table in command.reads if (params[table.name] or table.required) and table.name not in ignored
    ]
    sources = {table.name: table.source(params) for table in inputs}
    requested = [table for table in command.shown_outputs if table.name not in ignored]
    outputs = {table.name: table.target(params) for table in requested if not table.file}
    targets = {name: target for name, target in outputs.items() if target is not None}
    dataset = ""
    if command.sliced and sources:
        dataset = choose_dataset(shared.dataset, next(iter(sources.values())), is_stored=bool(targets))
    request = Request(
        command=command,
        settings=settings,
        shared=shared,
        sources=sources,
        targets=targets,
        files={
            table.name: params[table.name] for table in requested if table.file and params[table.name] is not None
        },
        gates=() if command.gates is None else tuple(command.gates.parse(text, settings) for text in params["gate"]),
        run_date=parse_run_date(params.get("run_date")),
        dataset=dataset,
        on_invalid=params.get("on_invalid") or "fail",
        spark_settings=parse_pairs(shared.conf, "--conf"),
        run_log=RUN_LOG.target(params),
        log_format=params["log_format"],
        in_force={name: value for name, value in params.items() if value not in (None, ())},
    )
    command.check(request)
    if "rejects" in targets and request.on_invalid != "reject":
        raise InvalidParameterError("--rejects needs --on-invalid reject.")
    all_targets = targets if request.run_log is None else {**targets, "run_log": request.run_log}
    check_places(sources, all_targets)
    for name, path in request.paths.items():
        check_file(format_flag(name), path)
    return request
