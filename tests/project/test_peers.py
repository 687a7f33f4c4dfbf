"""Presets compared with the tools they reproduce, as in `check peers`; the comparison notices errors."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np
import pytest

from ndcg_spark.conventions import PRESETS

os.environ.setdefault("NUMBA_DISABLE_JIT", "1")  # ranx would compile for half a minute to rank a few rows
from scripts.checks.peers import metrics
from scripts.checks.peers import run as peers
from scripts.checks.peers.comparisons import (
    COMPARISONS,
    STORED,
    against_random,
    against_shared,
    against_stored,
    compute_differences,
)
from scripts.checks.peers.data import DATA_SETS, load_shared
from scripts.checks.peers.metrics import metric_outcomes
from scripts.checks.peers.tools import Tool, UnavailableError, import_tool
from scripts.checks.peers.topics import topic_outcomes

pytestmark = pytest.mark.peers
SEEDS = range(2)

WRONG = (
    "default;gain=linear",
    "linear;ties=item_desc",
    "trec_eval;score_precision=float32",
    "trec_eval_9;score_precision=double",
    "trec_eval_9;ties=item_asc",
    "trec_eval_9;negative=keep",
    "ir_measures;missing_query=drop",
    "gdeval;no_relevant=zero",
    "sklearn;ideal=judged",
    "sklearn;ties=item_asc",
    "lightgbm;no_relevant=zero",
    "lightgbm;ties=item_asc",
    "xgboost;score_precision=double",
    "xgboost_minus;no_relevant=one",
    "catboost;ties=best",
    "catboost_exp;gain=linear",
    "mllib;ideal=judged",
    "mllib_sorted;ideal=retrieved",
    "mllib_binary;unjudged_query=drop",
    "recommenders_spark;missing_query=zero",
    "recommenders_pandas;no_relevant=zero",
    "ranx;gain=linear",
    "ranx_burges;ideal=retrieved",
    "torchmetrics;score_precision=double",
    "talr;ties=expected;no_relevant=zero",
    "replay;ties=item_asc",
    "rectools;ideal=judged",
    "mlflow;ideal=judged",
    "evidently;no_relevant=zero",
)


def format_title(comparison) -> str:
    return f"{comparison.convention}, {comparison.tool.title}"


def find_comparison(preset: str):
    return next(comparison for comparison in COMPARISONS if comparison.convention == preset)


def assert_same(outcome) -> None:
    if outcome.skipped:
        pytest.skip(outcome.skipped)
    assert outcome.values > 0, outcome
    assert outcome.worst <= outcome.tolerance, outcome


# --- Presets are what their tools are


def test_every_preset_is_compared_with_something():
    assert {comparison.convention for comparison in COMPARISONS} >= set(PRESETS)
    assert {comparison.convention for comparison in COMPARISONS if not comparison.optional} >= set(PRESETS)


@pytest.mark.parametrize("comparison", COMPARISONS, ids=format_title)
def test_random_rankings(comparison):
    assert_same(against_random(comparison, SEEDS))


@pytest.mark.parametrize("name", DATA_SETS)
def test_shared_rankings_with_live_tools(shared_data, name):
    data = load_shared(shared_data, name)
    taken = [
        replace(comparison, cutoffs=comparison.cutoffs[-2:]) for comparison in COMPARISONS if comparison.takes(data)
    ]
    outcomes = [against_shared(tool, data) for tool in taken]
    assert [outcome for outcome in outcomes if outcome.is_off] == []
    assert sum(1 for outcome in outcomes if outcome.values) >= 10


@pytest.mark.parametrize("name", DATA_SETS)
def test_shared_rankings_with_the_values_stored_beside_them(shared_data, name):
    data = load_shared(shared_data, name)
    outcomes = [against_stored(data, *key) for key in data.expected if key[0] in STORED]
    assert {outcome.convention.partition(";")[0] for outcome in outcomes} >= {"trec_eval_9", "sklearn", "ranx"}
    assert [outcome for outcome in outcomes if outcome.is_off] == []


def test_metrics_beside_ndcg_are_those_of_their_tools():
    outcomes = list(metric_outcomes(SEEDS, []))
    assert [outcome for outcome in outcomes if outcome.is_off] == []
    assert sum(1 for outcome in outcomes if outcome.values > 40) >= 20


# --- What is not, is shown


def test_metric_at_another_level_is_noticed(monkeypatch):
    monkeypatch.setattr(metrics, "TREC_EVAL", {"ap(rel=2)": "map", "p@5": "P_10", "r@5": "recall_10"})
    outcomes = [outcome for outcome in metric_outcomes(SEEDS, []) if outcome.tool.startswith("pytrec_eval")]
    assert [outcome.is_off for outcome in outcomes] == [True] * 3


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_choice_is_noticed(wrong):
    outcome = against_random(replace(find_comparison(wrong.partition(";")[0]), convention=wrong), range(4))
    if outcome.skipped:
        pytest.skip(outcome.skipped)
    assert outcome.is_off


def test_every_preset_is_made_wrong_once():
    assert {wrong.partition(";")[0] for wrong in WRONG} == set(PRESETS)


def test_a_value_on_one_side_alone_is_a_difference():
    assert max(compute_differences({("1", 5): 0.5}, {("1", 5): 0.25})) == 0.25
    assert max(compute_differences({("1", 5): 0.5}, {})) == float("inf")
    assert max(compute_differences({("1", 5): 0.5}, {("2", 5): 0.5})) == float("inf")


def test_empty_comparison_is_noticed():
    nothing = replace(
        find_comparison("linear"), tool=Tool(call=lambda queries, cutoffs: {}), domain=lambda rows: False
    )
    assert against_random(nothing, SEEDS).is_off


# --- The command


@pytest.fixture
def _no_shared_data(monkeypatch, tmp_path):
    monkeypatch.setenv("NDCG_SPARK_SHARED_DATA", str(tmp_path / "nothing"))


@pytest.mark.usefixtures("_no_shared_data")
def test_the_command_prints_a_table_and_says_what_it_skips(monkeypatch, capsys):
    missing = replace(
        find_comparison("linear"), tool=Tool(package="nothing", call=lambda *_: import_tool("no_such_tool_anywhere"))
    )
    monkeypatch.setattr(peers, "COMPARISONS", (missing, find_comparison("default")))
    assert peers.main(["--seeds", "1"]) == 0
    printed = capsys.readouterr().out
    lines = printed.splitlines()
    assert [cell.strip() for cell in lines[2].split("|")[1:4]] == [
        "default", "random, 1 seeds", "definition of NDCG, 2^rel - 1",
    ]  # fmt: skip
    assert lines[2].rstrip(" |").endswith("ok")
    assert sum("skipped: no_such_tool_anywhere cannot be imported" in line for line in lines) == 1
    assert "NDCG_SPARK_SHARED_DATA may name their folder" in printed
    assert lines[-1].endswith("1 comparisons skipped; off: none")


@pytest.mark.usefixtures("_no_shared_data")
def test_the_command_fails_where_a_preset_is_off(monkeypatch, capsys):
    wrong = replace(find_comparison("default"), convention="default;gain=linear")
    monkeypatch.setattr(peers, "COMPARISONS", (wrong, find_comparison("linear")))
    assert peers.main(["--seeds", "1"]) == 1
    printed = capsys.readouterr().out
    assert "| OFF" in printed
    assert printed.splitlines()[-1].endswith("off: default;gain=linear")


def test_a_tool_that_is_not_there_is_an_error_of_its_own():
    with pytest.raises(UnavailableError, match="no_such_tool_anywhere"):
        import_tool("no_such_tool_anywhere")


def test_alpha_ndcg_is_that_of_ndeval(monkeypatch):
    pytest.importorskip("pyndeval")
    assert [(outcome.is_off, outcome.values > 50) for outcome in topic_outcomes(SEEDS)] == [(False, True)] * 3
    # stands in for: a wrong alpha-nDCG, because ours is right
    monkeypatch.setattr("ndcg_spark.metrics.alpha_ndcg.repeated_gains", lambda *args: np.ones(len(args[1])))
    assert all(outcome.is_off for outcome in topic_outcomes(SEEDS))
