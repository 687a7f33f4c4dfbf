"""Night files: the steps of a night, their inputs and outputs, and the steps they need. Does not import Spark."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from difflib import get_close_matches
from typing import Any, Literal, TypeAlias, get_args

import click

from ndcg_spark.core.redaction import redact
from ndcg_spark.errors import InvalidParameterError
from ndcg_spark.jobs.command import Command, Request, build_request
from ndcg_spark.jobs.options import (
    index_options,
    parse_pairs,
    prefix_refusals,
    read_config_table,
    read_toml,
    suggest_closest,
)
from ndcg_spark.jobs.registry import find_job, load_jobs
from ndcg_spark.jobs.settings import SharedSettings

_NIGHT = Command(name="nightly", about="", settings=SharedSettings, reads=(), sliced=True, work="")
When: TypeAlias = Literal["always", "flagged"]
_STEP_KEYS = ("command", "name", "when")
_NIGHT_OPTIONS = ("run_date", "conf", "log_format")
"""Options that are set for the whole night, never for one step."""
_IN_BRACES = re.compile(r"\{([\w +-]+)\}")
_DATE = re.compile(r"\{run[-_]date(?:-(\d+))?\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One job of a night. `needs` maps each input that an earlier step writes to the name of that step."""

    name: str
    request: Request[Any]
    needs: Mapping[str, str]
    when: When

    @property
    def required_steps(self) -> set[str]:
        """The steps that must have ended well for this one to run."""
        can_lack = {table_input.name for table_input in self.request.command.reads if table_input.can_lack}
        return {maker for option, maker in self.needs.items() if option not in can_lack}

    @property
    def writes(self) -> dict[str, str]:
        """Paths of the output tables and files, by what they hold."""
        request = self.request
        paths = {option: target.reference for option, target in request.targets.items()} | dict(request.files)
        outputs = request.command.shown_outputs
        return {output.holds: redact(paths[output.name]) for output in outputs if output.name in paths}

    @property
    def dataset(self) -> str:
        """Data set of the results; empty if the step uses the only data set of its input."""
        return self.request.logged_night_and_dataset[1]

    def lines(self) -> Iterator[str]:
        """Yield the lines of `--plan`: what the step reads and writes."""
        command = self.request.command.name
        condition = "" if self.when == "always" else ", if something is flagged or a gate is missed"
        yield f"{self.name}{'' if self.name == command else f': {command}'}{condition}"
        for option, source in self.request.sources.items():
            maker = f", of {self.needs[option]}" if option in self.needs else ""
            yield f"  reads {option.replace('_', '-')}: {redact(source.reference)}{maker}"
        yield from (f"  writes {content}: {path}" for content, path in self.writes.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """The steps of a night, in order, and the options they share. `in_force` is the parsed file."""

    run_date: date
    dataset: str
    steps: tuple[Step, ...]
    spark_settings: Mapping[str, str]
    in_force: Mapping[str, Any] = field(compare=False, repr=False)

    def select_steps(self, only: Sequence[str] = (), first: str | None = None) -> tuple[Step, ...]:
        """Select the steps to run: those named in `only`, from step `first` on."""
        names = [step.name for step in self.steps]
        for requested in (*only, *(() if first is None else (first,))):
            if requested not in names:
                raise InvalidParameterError(
                    f"no step is named {requested!r}{suggest_closest(requested, names)}; "
                    f"the steps are {', '.join(names)}."
                )
        start = 0 if first is None else names.index(first)
        return tuple(step for step in self.steps[start:] if not only or step.name in only)

    @property
    def request(self) -> Request[Any]:
        """The night as a request, for the run log of its steps."""
        requests = [step.request for step in self.steps]
        return Request(
            command=_NIGHT,
            settings=SharedSettings(),
            shared=SharedSettings(),
            sources={},
            targets={},
            files={},
            gates=(),
            run_date=self.run_date,
            dataset=self.dataset,
            on_invalid="fail",
            spark_settings=self.spark_settings,
            run_log=next((request.run_log for request in requests if request.run_log is not None), None),
            log_format=requests[0].log_format,
            in_force=self.in_force,
        )

    def lines(self, steps: Sequence[Step], up_to_date: Collection[str] = ()) -> Iterator[str]:
        """Yield the lines of `--plan` for the steps to run; those that are `up_to_date` are not run again."""
        yield f"night {self.run_date} of data set {self.dataset!r}"
        for step in steps:
            if step.name in up_to_date:
                yield f"  {step.name}: up to date, not run again"
            else:
                yield from (f"  {line}" for line in step.lines())


def read_night(
    path: str, run_date: date, *, dataset: str | None = None, conf: Sequence[str] = (), log_format: str | None = None
) -> Night:
    """Read the file of a night and check the options of each step."""
    shared, tables = _read_file(path)
    jobs = [_find_job(path, number, table) for number, table in enumerate(tables, 1)]
    _refuse_unknown_keys(path, shared, jobs)
    overrides = {"dataset": dataset, "log_format": log_format}
    steps: list[Step] = []
    for job, table in zip(jobs, tables, strict=True):
        name = str(table.get("name", job.name))
        if name in (step.name for step in steps):
            raise InvalidParameterError(
                f"{path}: two steps are named {name!r}; give each its own name, such as name = 'weekly'."
            )
        with prefix_refusals(f"{path}, step {name!r}"):
            request = _build_step_request(job, table, shared, overrides, steps, run_date)
            step = Step(name=name, request=request, needs=_find_needs(request, steps), when=_read_when(table))
            steps.append(step)
        overrides["dataset"] = overrides["dataset"] or request.dataset or None
    settings = parse_pairs([*_list_strings(shared.get("conf")), *conf], "--conf")
    in_force = {"config": path, **shared, "step": tables}
    return Night(
        run_date=run_date,
        dataset=overrides["dataset"] or "",
        steps=tuple(steps),
        spark_settings=settings,
        in_force=in_force,
    )


def _read_file(path: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the keys outside of steps, and the table of each step."""
    shared = read_toml(path)
    steps = shared.pop("step", [])
    if not isinstance(steps, list) or not steps:
        raise InvalidParameterError(f'{path}: a night needs steps: [[step]], and below it command = "mean-ndcg".')
    for key, setting in shared.items():
        if isinstance(setting, dict):
            raise InvalidParameterError(
                f"{path}: [{key}] is not a step; write [[step]], and command = {key!r} below it."
            )
    return shared, steps


def _refuse_unknown_keys(path: str, shared: Mapping[str, Any], jobs: Iterable[Command[Any]]) -> None:
    """Refuse a key outside of steps that no command has; one of a command that the file lacks is allowed."""
    known = _list_keys(jobs)
    if {key.replace("_", "-") for key in shared} - known:
        known = _list_keys(load_jobs())  # importing all of them takes 0.2 s
    for key in shared:
        if key.replace("_", "-") not in known:
            raise InvalidParameterError(
                f"{path}: unknown key {key!r}{suggest_closest(key.replace('_', '-'), known)}."
            )
    if "run-date" in shared or "run_date" in shared:
        raise InvalidParameterError(f"{path}: remove run-date; the night is set by --run-date.")


def _list_keys(jobs: Iterable[Command[Any]]) -> set[str]:
    return {key for job in jobs for key in index_options(job.to_click())}


def _find_job(path: str, number: int, table: Mapping[str, Any]) -> Command[Any]:
    command = str(table.get("command", ""))
    job = find_job(command)
    if job is None:
        jobs = [job.name for job in load_jobs()]
        problem = f"has the command {command!r}{suggest_closest(command, jobs)}" if command else "has no command"
        raise InvalidParameterError(f"{path}: step {number} {problem}; the commands are {', '.join(jobs)}.")
    return job


def _read_when(table: Mapping[str, Any]) -> When:
    when: When = table.get("when", "always")
    if when not in get_args(When):
        raise InvalidParameterError(f"when must be one of {', '.join(get_args(When))}; got {when!r}.")
    return when


def _build_step_request(
    job: Command[Any],
    table: Mapping[str, Any],
    shared: Mapping[str, Any],
    overrides: Mapping[str, Any],
    earlier: Sequence[Step],
    run_date: date,
) -> Request[Any]:
    """Build the request of a step: its own keys win over outputs of earlier steps, these over the shared keys."""
    command = job.to_click()
    context = click.Context(command, info_name=job.name)
    shared_keys = {key.replace("_", "-") for key in shared}
    own_options = read_config_table(insert_dates(table, run_date, _STEP_KEYS), context)
    for option in _NIGHT_OPTIONS:
        if option in own_options:
            raise InvalidParameterError(
                f"{option.replace('_', '-')} applies to the whole night; remove it from the step."
            )
    defaults = read_config_table(insert_dates(shared, run_date, ("conf",)), context, shared_keys)
    defaults |= {option: setting for option, setting in overrides.items() if setting is not None}
    defaults |= {option: str(run_date + timedelta(days=days)) for option, days in job.nights.items()}
    for table_input in job.reads:
        if table_input.name not in own_options and table_input.instead_of not in own_options:
            makers = [
                step
                for output in table_input.follows
                for step in earlier
                if _get_output_path(step, output) is not None
            ]
            if makers:
                maker = max(makers, key=earlier.index)
                for option in (table_input.name, table_input.instead_of):
                    defaults = {
                        key: setting for key, setting in defaults.items() if key.partition("_format")[0] != option
                    }
                defaults[table_input.name] = next(
                    filter(None, (_get_output_path(maker, output) for output in table_input.follows))
                )
                if table_input.with_gates:
                    defaults["gate"] = maker.request.in_force.get("gate") or []
    known = {str(param.name) for param in command.params}
    defaults = {option: setting for option, setting in defaults.items() if option in known}
    with command.make_context(job.name, _format_arguments(command, own_options), default_map=defaults) as parsed:
        params = {option: setting for option, setting in parsed.params.items() if option != "print_config"}
        return build_request(job, params)


def _get_output_path(step: Step, output: str) -> str | None:
    """Return the path of an output such as "mean-ndcg.output", or None if the step does not write it."""
    command, _, option = output.partition(".")
    target = step.request.targets.get(option)
    return target.reference if target is not None and step.request.command.name == command else None


def _format_arguments(command: click.Command, options: Mapping[str, Any]) -> list[str]:
    """Write options as arguments of a command line."""
    arguments: list[str] = []
    for option in command.params:
        setting, flag = options.get(str(option.name)), option.opts[0]
        if isinstance(setting, bool):
            arguments += [flag] if setting else []
        elif setting is not None:
            repeated = setting if isinstance(setting, list) else [setting]
            arguments += [word for argument in repeated for word in (flag, str(argument))]
    return arguments


def insert_dates(table: Mapping[str, Any], run_date: date, without: Collection[str] = ()) -> dict[str, Any]:
    """Replace {run_date} with the night, and {run_date-7} with the date seven days before it."""

    def insert(setting: Any) -> Any:
        if isinstance(setting, list):
            return [insert(element) for element in setting]
        if isinstance(setting, str):
            inserted = _DATE.sub(lambda match: str(run_date - timedelta(days=int(match[1] or 0))), setting)
            for match in _IN_BRACES.finditer(inserted):
                name = re.sub(r"[+-]\d+$", "", match[1].strip()).lower()
                if name not in ("date", "night") and not get_close_matches(name, ("run_date",), cutoff=0.8):
                    continue  # such as a pattern of the path
                raise InvalidParameterError(
                    f"{setting!r}: {match[0]} is unknown; write {{run_date}} for the night, or {{run_date-7}} for "
                    "seven days before."
                )
            return inserted
        return setting

    return {key: insert(setting) for key, setting in table.items() if key not in without}


def _find_needs(request: Request[Any], earlier: Sequence[Step]) -> dict[str, str]:
    """Find the last earlier step that writes each input; inputs that no step writes are left out."""
    makers = {
        os.path.abspath(target.reference): step.name for step in earlier for target in step.request.targets.values()
    }
    paths = {option: os.path.abspath(source.reference) for option, source in request.sources.items()}
    return {option: makers[path] for option, path in paths.items() if path in makers}


def _list_strings(setting: Any) -> list[str]:
    strings = setting if isinstance(setting, list) else [setting]
    return [] if setting is None else list(map(str, strings))
