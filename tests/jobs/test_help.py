"""`--help` of each job: every option once, in a group, with a sentence."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from ndcg_spark.conventions import CHOICES
from ndcg_spark.jobs.command import GroupedCommand
from ndcg_spark.main import cli, main


def jobs_of(command: click.Command, name: str = "") -> Iterator[tuple[str, GroupedCommand]]:
    """Commands with options, by their words."""
    if isinstance(command, click.Group):
        for word, one in command.commands.items():
            yield from jobs_of(one, f"{name} {word}".strip())
    elif isinstance(command, GroupedCommand):
        yield name, command


JOBS = {name: (one, one.groups) for name, one in jobs_of(cli)}
OPTIONS = [pytest.param(option, id=f"{job} {option.name}") for job, (its, _) in JOBS.items() for option in its.params]


def test_all_jobs_are_here() -> None:
    assert len(JOBS) == 16


@pytest.mark.parametrize(("job", "groups"), JOBS.values(), ids=JOBS)
def test_every_option_is_in_one_group(job, groups) -> None:
    grouped = [option.name for options in groups.values() for option in options]
    assert sorted(grouped) == sorted(option.name for option in job.params)
    assert len(set(grouped)) == len(grouped)


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_has_a_sentence(option) -> None:
    """Up to a default that click does not show by itself."""
    sentence = option.help.partition("  [default")[0]
    assert len(sentence.split()) >= 5
    assert sentence[0].isupper()
    assert sentence.endswith(".")
    assert not sentence.endswith("..")  # as of a bare list


@pytest.mark.parametrize("job", JOBS)
def test_the_help_shows_the_groups(capsys, job) -> None:
    assert main([*job.split(), "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert [title for title in JOBS[job][1] if f"{title}: --" not in shown] == []
    assert shown.count("--help") == 1


def test_the_help_shows_every_value_of_a_choice(capsys) -> None:
    main(["mean-ndcg", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert [value for values in CHOICES.values() for value in values if value not in shown] == []
