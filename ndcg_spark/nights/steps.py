"""A night as data: the steps of a file, what each reads and writes, and what it needs. Loads no Spark."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
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
from ndcg_spark.jobs.registry import load_jobs
from ndcg_spark.jobs.settings import SharedSettings

_NIGHT = Command(name="nightly", about="", settings=SharedSettings, reads=(), sliced=True, work="")
When: TypeAlias = Literal["always", "flagged"]
_OF_STEP = ("command", "name", "when")
_OF_NIGHT = ("run_date", "conf", "log_format")
"""Options that hold for a whole night, whatever a step says."""
_DATE = re.compile(r"\{run[-_]date(?:-(\d+))?\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A job of a night; `needs` are earlier steps, by the name of what it reads of them."""

    name: str
    request: Request[Any]
    needs: Mapping[str, str]
    when: When

    @property
    def writes(self) -> dict[str, str]:
        """Places of the tables and files, by what they hold."""
        request = self.request
        places = {name: target.reference for name, target in request.targets.items()} | dict(request.files)
        return {one.holds: redact(places[one.name]) for one in request.command.shown_outputs if one.name in places}

    @property
    def dataset(self) -> str:
        """Data set of its results; empty if the step takes the one there is."""
        return self.request.logged_slice[1]

    def lines(self) -> Iterator[str]:
        """Yield lines that say what it reads and writes."""
        command = self.request.command.name
        condition = "" if self.when == "always" else ", if something is flagged or a gate is missed"
        yield f"{self.name}{'' if self.name == command else f': {command}'}{condition}"
        for name, source in self.request.sources.items():
            made = f", of {self.needs[name]}" if name in self.needs else ""
            yield f"  reads {name.replace('_', '-')}: {redact(source.reference)}{made}"
        yield from (f"  writes {what}: {place}" for what, place in self.writes.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Night:
    """The steps of a night in their order, and what they share. `in_force` is the file as it was read."""

    run_date: date
    dataset: str
    steps: tuple[Step, ...]
    spark_settings: Mapping[str, str]
    in_force: Mapping[str, Any] = field(compare=False, repr=False)

    def chosen(self, only: Sequence[str] = (), first: str | None = None) -> tuple[Step, ...]:
        """Choose the steps to run: those of some names, or one and those after it."""
        names = [one.name for one in self.steps]
        for name in (*only, *(() if first is None else (first,))):
            if name not in names:
                raise InvalidParameterError(
                    f"no step is named {name!r}{suggest_closest(name, names)}; the steps are {', '.join(names)}."
                )
        start = 0 if first is None else names.index(first)
        return tuple(one for one in self.steps[start:] if not only or one.name in only)

    @property
    def request(self) -> Request[Any]:
        """The night as the run log has it, which is that of its steps."""
        requests = [one.request for one in self.steps]
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
            run_log=next((one.run_log for one in requests if one.run_log is not None), None),
            log_format=requests[0].log_format,
            in_force=self.in_force,
        )

    def lines(self) -> Iterator[str]:
        """Yield lines that say what would run."""
        yield f"night {self.run_date} of data set {self.dataset!r}"
        for step in self.steps:
            yield from (f"  {line}" for line in step.lines())


def read_night(
    path: str, run_date: date, *, dataset: str | None = None, conf: Sequence[str] = (), log_format: str | None = None
) -> Night:
    """Read a file of a night, and check the options of each of its steps."""
    shared, steps = _parts(path)
    jobs = {one.name: one for one in load_jobs()}
    _refuse_unknown_keys(path, shared, jobs)
    given = {"dataset": dataset, "log_format": log_format}
    found: list[Step] = []
    for number, table in enumerate(steps, 1):
        job = _job_of(path, number, table, jobs)
        name = str(table.get("name", job.name))
        if name in (one.name for one in found):
            raise InvalidParameterError(f"{path}: two steps are {name!r}; give each a name, as name = 'weekly'.")
        with prefix_refusals(f"{path}, step {name!r}"):
            request = _request(job, table, shared, given, found, run_date)
            found.append(Step(name=name, request=request, needs=_needs(request, found), when=_when(table)))
        given["dataset"] = given["dataset"] or request.dataset or None
    settings = parse_pairs([*_texts(shared.get("conf")), *conf])
    in_force = {"config": path, **shared, "step": steps}
    return Night(
        run_date=run_date,
        dataset=given["dataset"] or "",
        steps=tuple(found),
        spark_settings=settings,
        in_force=in_force,
    )


def _parts(path: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Keys outside of steps, and the tables of steps."""
    shared = read_toml(path)
    steps = shared.pop("step", [])
    if not isinstance(steps, list) or not steps:
        raise InvalidParameterError(f'{path}: a night needs steps: [[step]], and below it command = "mean-ndcg".')
    for key, value in shared.items():
        if isinstance(value, dict):
            raise InvalidParameterError(
                f"{path}: [{key}] is no step; write [[step]], and command = {key!r} below it."
            )
    return shared, steps


def _refuse_unknown_keys(path: str, shared: Mapping[str, Any], jobs: Mapping[str, Command[Any]]) -> None:
    known = {key for job in jobs.values() for key in index_options(job.to_click())}
    for key in shared:
        if key.replace("_", "-") not in known:
            raise InvalidParameterError(
                f"{path}: unknown key {key!r}{suggest_closest(key.replace('_', '-'), known)}."
            )
    if "run-date" in shared or "run_date" in shared:
        raise InvalidParameterError(f"{path}: the night is named by --run-date, not by the file.")


def _job_of(path: str, number: int, table: Mapping[str, Any], jobs: Mapping[str, Command[Any]]) -> Command[Any]:
    command = str(table.get("command", ""))
    if command not in jobs:
        named = f"has the command {command!r}{suggest_closest(command, jobs)}" if command else "has no command"
        raise InvalidParameterError(f"{path}: step {number} {named}; there are {', '.join(jobs)}.")
    return jobs[command]


def _when(table: Mapping[str, Any]) -> When:
    found: When = table.get("when", "always")
    if found not in get_args(When):
        raise InvalidParameterError(f"when must be one of {', '.join(get_args(When))}; got {found!r}.")
    return found


def _request(
    job: Command[Any],
    table: Mapping[str, Any],
    shared: Mapping[str, Any],
    given: Mapping[str, Any],
    before: Sequence[Step],
    run_date: date,
) -> Request[Any]:
    """Check a step: keys of its own as on a command line, tables of earlier steps, and keys outside of steps."""
    command = job.to_click()
    context = click.Context(command, info_name=job.name)
    others = {key.replace("_", "-") for key in shared}
    own = read_config_table(_dated(table, run_date, _OF_STEP), context)
    for name in _OF_NIGHT:
        if name in own:
            raise InvalidParameterError(f"{name.replace('_', '-')} holds for the whole night; leave it out.")
    defaults = read_config_table(_dated(shared, run_date, ("conf",)), context, others)
    defaults |= {name: value for name, value in given.items() if value is not None}
    defaults |= {name: str(run_date + timedelta(days=days)) for name, days in job.nights.items()}
    for read in job.reads:
        if read.name not in own and read.instead_of not in own:
            made = [one for name in read.follows for one in before if _output(one, name) is not None]
            if made:
                last = max(made, key=before.index)
                for name in (read.name, read.instead_of):
                    defaults = {key: its for key, its in defaults.items() if key.partition("_format")[0] != name}
                defaults[read.name] = next(filter(None, (_output(last, name) for name in read.follows)))
                if read.with_gates:
                    defaults["gate"] = last.request.in_force.get("gate") or []
    known = {str(one.name) for one in command.params}
    defaults = {name: value for name, value in defaults.items() if name in known}
    with command.make_context(job.name, _arguments(command, own), default_map=defaults) as parsed:
        return build_request(job, {name: its for name, its in parsed.params.items() if name != "print_config"})


def _output(step: Step, name: str) -> str | None:
    """Place of an output, as "mean-ndcg.output", if the step writes it."""
    command, _, output = name.partition(".")
    target = step.request.targets.get(output)
    return target.reference if target is not None and step.request.command.name == command else None


def _arguments(command: click.Command, values: Mapping[str, Any]) -> list[str]:
    """Spell values of options as arguments of a command line."""
    found: list[str] = []
    for option in command.params:
        value, flag = values.get(str(option.name)), option.opts[0]
        if isinstance(value, bool):
            found += [flag] if value else []
        elif value is not None:
            found += [part for one in (value if isinstance(value, list) else [value]) for part in (flag, str(one))]
    return found


def _dated(table: Mapping[str, Any], run_date: date, without: Collection[str] = ()) -> dict[str, Any]:
    """Put the night in the place of {run_date}, and days before it in that of {run_date-7}."""

    def put(value: Any) -> Any:
        if isinstance(value, list):
            return [put(one) for one in value]
        if isinstance(value, str):
            return _DATE.sub(lambda found: str(run_date - timedelta(days=int(found[1] or 0))), value)
        return value

    return {key: put(value) for key, value in table.items() if key not in without}


def _needs(request: Request[Any], before: Sequence[Step]) -> dict[str, str]:
    """Find the last earlier step that writes what is read, by the name of the reading."""
    made = {
        os.path.abspath(target.reference): step.name for step in before for target in step.request.targets.values()
    }
    places = {name: os.path.abspath(source.reference) for name, source in request.sources.items()}
    return {name: made[place] for name, place in places.items() if place in made}


def _texts(value: Any) -> list[str]:
    return [] if value is None else [str(one) for one in (value if isinstance(value, list) else [value])]
