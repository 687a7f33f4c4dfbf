"""What commands make of options before Spark loads: tables that are used, empty names, checks that come first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest

from ndcg_spark.clicks.command import JUDGMENTS
from ndcg_spark.comparison.command import COMPARE_RUNS
from ndcg_spark.diagnosis.command import RUNS
from ndcg_spark.evaluation.command import MEAN_NDCG
from ndcg_spark.jobs.command import Command, Request, build_request
from ndcg_spark.main import cli, main


def requested(command: Command[Any], *words: object) -> Request[Any]:
    """The request that words on the command line give, in the context of the command, as when it is called."""
    made = command.to_click()
    with click.Context(cli, info_name="ndcg-spark", **cli.context_settings) as root:
        context = made.make_context(command.name, [*map(str, words)], parent=root)
        with context:
            return build_request(command, context.params)


def test_a_table_for_another_command_plays_no_part(tmp_path: Path) -> None:
    """A file for --config serves several commands; that of judgments would name the data set, and be opened."""
    config = tmp_path / "night.toml"
    config.write_text('judgments = "data/qrels.parquet"\nrejects = "data/rejects"\non-invalid = "reject"\n')
    asked = ("--config", config, "--per-query", "data/shop_queries", "--output", tmp_path / "differences")
    actual = requested(COMPARE_RUNS, *asked)
    assert (actual.dataset, list(actual.sources), list(actual.targets)) == ("shop_queries", ["per_query"], ["output"])
    of_rankings = requested(COMPARE_RUNS, "--config", config, "--input", "data/shop")
    assert (of_rankings.dataset, list(of_rankings.sources)) == ("shop", ["input", "judgments"])


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (MEAN_NDCG, ("--input", "x", "--judgments", "", "--items", "")),
        (RUNS, ("--input", "x", "--judgments", "")),
        (JUDGMENTS, ("--input", "x", "--propensities", "", "--power", 1)),
    ],
    ids=lambda element: element.name if isinstance(element, Command) else "",
)
def test_a_table_without_a_name_is_none(command, words) -> None:
    """As of a variable of the shell that is not set."""
    assert list(requested(command, *words).sources) == ["input"]


def test_a_run_may_have_no_name() -> None:
    words = ("--per-query", "q", "--baseline-per-query", "p", "--baseline", "", "--runs", "new")
    assert requested(COMPARE_RUNS, *words).settings.chosen.baseline == ""
    chosen = requested(RUNS, "--input", "x", "--baseline", "", "--run", "new").settings.chosen
    assert (chosen.baseline, chosen.run) == ("", "new")


def test_a_column_without_a_name_is_none() -> None:
    assert requested(MEAN_NDCG, "--input", "x", "--item-col", "").settings.columns.item is None


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("mean-ndcg", "--input", "x", "--explain-difference", "sklearn", "--gate", "rubbish"), "gate 'rubbish'"),
        (("mean-ndcg", "--input", "x", "--explain-difference", "sklearn", "--rejects", "r"), "--rejects needs"),
        (("mean-ndcg", "--input", "x", "--explain-difference", "sklearn", "--output", "x"), "--input and --output"),
        (("mean-ndcg", "--input", "x", "--explain-difference", "sklaern"), "unknown convention 'sklaern'"),
        (("explain-difference", "--input", "x", "--to", "sklaern"), "unknown convention 'sklaern'"),
        (("diagnose", "nights", "--metric-table", "t", "--before", "2026-01-30", "--after", "2026-01-31", "--metric",
          "ndcg@0"), "k must be a positive whole number"),
        (("report", "--metrics", "m", "--output", "r.html", "--summary", "a[1].json"), "'a[1].json' cannot be read"),
    ],
    ids=lambda element: element if isinstance(element, str) else "",
)  # fmt: skip
def test_refused_before_spark_starts(words, named, capsys, monkeypatch) -> None:
    def started(*_: object, **__: object) -> None:
        raise AssertionError("a session is not needed for this")

    monkeypatch.setattr("ndcg_spark.jobs.runner.run", started)
    assert main([*words]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert named in err


def test_a_difference_is_filed_under_the_night_and_the_data_set() -> None:
    words = ("--input", "data/shop", "--explain-difference", "sklearn", "--run-date", "2026-01-31")
    given = requested(MEAN_NDCG, *words)
    asked = MEAN_NDCG.choose_command({"explain_difference": "sklearn", "explain": False})
    assert asked is not None
    assert (asked.sliced, str(given.run_date), given.dataset) == (True, "2026-01-31", "shop")
    assert MEAN_NDCG.choose_command({"explain_difference": "sklearn", "explain": True}) is None
