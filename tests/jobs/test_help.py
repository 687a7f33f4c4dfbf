"""`--help` of each job: every option once, in a group, with a sentence."""

from __future__ import annotations

import pytest

from ndcg_spark.business.command.business_link import GROUPS as LINK_GROUPS
from ndcg_spark.business.command.business_link import business_link
from ndcg_spark.clicks.command.position_bias import ESTIMATE_GROUPS, JUDGMENT_GROUPS, PROPENSITY_GROUPS, position_bias
from ndcg_spark.comparison.command.compare_runs import GROUPS as COMPARISON_GROUPS
from ndcg_spark.comparison.command.compare_runs import compare_runs
from ndcg_spark.conventions import CHOICES
from ndcg_spark.diagnosis.command.diagnose import NIGHT_GROUPS, RUN_GROUPS, between_nights, between_runs
from ndcg_spark.evaluation.command.mean_ndcg import GROUPS, mean_ndcg
from ndcg_spark.history.command.flag_changes import GROUPS as FLAG_GROUPS
from ndcg_spark.history.command.flag_changes import flag_changes
from ndcg_spark.history.command.roll_up import GROUPS as ROLL_UP_GROUPS
from ndcg_spark.history.command.roll_up import roll_up
from ndcg_spark.judgments.command.build_judgments import EVENT_GROUPS, RATING_GROUPS, from_annotators, from_events
from ndcg_spark.main import main
from ndcg_spark.reports.command.make_report import GROUPS as REPORT_GROUPS
from ndcg_spark.reports.command.make_report import report
from ndcg_spark.retrieval.command.retrieve import GROUPS as RETRIEVE_GROUPS
from ndcg_spark.retrieval.command.retrieve import retrieve

JOBS = {
    "mean-ndcg": (mean_ndcg, GROUPS),
    "business-link": (business_link, LINK_GROUPS),
    "roll-up": (roll_up, ROLL_UP_GROUPS),
    "flag-changes": (flag_changes, FLAG_GROUPS),
    "build-judgments events": (from_events, EVENT_GROUPS),
    "build-judgments annotators": (from_annotators, RATING_GROUPS),
    "position-bias propensities": (position_bias.commands["propensities"], PROPENSITY_GROUPS),
    "position-bias judgments": (position_bias.commands["judgments"], JUDGMENT_GROUPS),
    "position-bias estimates": (position_bias.commands["estimates"], ESTIMATE_GROUPS),
    "report": (report, REPORT_GROUPS),
    "compare-runs": (compare_runs, COMPARISON_GROUPS),
    "diagnose nights": (between_nights, NIGHT_GROUPS),
    "diagnose runs": (between_runs, RUN_GROUPS),
    "retrieve": (retrieve, RETRIEVE_GROUPS),
}
OPTIONS = [pytest.param(option, id=f"{job} {option.name}") for job, (its, _) in JOBS.items() for option in its.params]


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
