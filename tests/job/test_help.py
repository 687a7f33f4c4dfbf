"""`mean-ndcg --help`: every option once, in a group, with a sentence."""

from __future__ import annotations

import pytest

from ndcg_spark.cli.main import main
from ndcg_spark.cli.mean_ndcg import GROUPS, mean_ndcg
from ndcg_spark.conventions import CHOICES


def test_every_option_is_in_one_group() -> None:
    grouped = [option.name for options in GROUPS.values() for option in options]
    assert sorted(grouped) == sorted(option.name for option in mean_ndcg.params)
    assert len(set(grouped)) == len(grouped)


@pytest.mark.parametrize("option", mean_ndcg.params, ids=lambda option: option.name)
def test_every_option_has_a_sentence(option) -> None:
    assert len(option.help.split()) >= 3
    assert option.help[0].isupper()


def test_the_help_shows_groups_and_every_value_of_a_choice(capsys) -> None:
    assert main(["mean-ndcg", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert [title for title in GROUPS if f"{title}: --" not in shown] == []
    assert [value for values in CHOICES.values() for value in values if value not in shown] == []
    assert shown.count("--help") == 1
