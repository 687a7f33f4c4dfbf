"""Every option that takes a name refuses unknown names and lists known ones."""

from __future__ import annotations

import shlex
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest
from support.main_job import assert_refused, run_command

from ndcg_spark.evaluation import Columns, ItemColumns
from ndcg_spark.main import cli
from scripts.checks.stored_format import SETTINGS, STORY, list_commands

TABLE = {
    *("input", "judgments", "items", "interactions", "queries", "corpus", "per_query", "baseline_per_query"),
    *(
        "query_texts",
        "metric_table",
        "propensities",
        "comparison",
        "flags",
        "clicks",
        "summary",
        "diagnosis",
        "config",
    ),
}
RUN = {"baseline", "runs", "run", "production"}
METRIC = {"metrics", "metric", "gate"}
CONVENTION = {"convention", "explain_difference", "to"}
NIGHT = {"before", "after"}
CONFIGURATION = {"config_hash"}
NEW = {
    *("output", "per_query_output", "rejects", "run_log", "json", "disputes", "rankings_output", "judgments_output"),
    "index",
    *("dataset", "run_date", "title"),
}
"""Options that name what the command makes, or what its results are called."""
OF_A_COMMAND = {
    ("report", "metrics"): "table",
    ("retrieve", "run"): "new",
    ("report", "run_date"): "night",
    ("diagnose nights", "segment_cols"): "segment column",
    **{(name, "dataset"): "data set" for name in ("diagnose nights", "report", "business-link", "roll-up",
                                                  "flag-changes")},
}  # fmt: skip
"""Options that name something else in one command than in the others."""
FORMS = {
    *("conf", "k", "periods", "limits", "start", "end", "as_of", "gain", "discount", "pad_to_k", "grades"),
    *("impression", "print_config", "ties", "score_precision", "ideal", "unjudged", "negative", "no_relevant"),
    *("missing_query", "unjudged_query", "duplicates", "memory"),
}  # fmt: skip
"""Options whose texts are numbers, dates that bound a range, or forms with a check of their own."""
OF_QUERIES = "compare-runs of per-query tables"
SHOWN = "--input {f}/impressions.parquet --json -"
BASE = {
    ("mean-ndcg", "vector_col"): STORY["metrics of items"],
    ("mean-ndcg", "order_col"): f"{STORY['mean-ndcg']} --ties input_order",
    ("compare-runs", "order_col"): f"{STORY['compare-runs']} --ties input_order",
    ("diagnose runs", "order_col"): f"{STORY['diagnose runs']} --ties input_order",
    ("compare-runs", "per_query"): STORY[OF_QUERIES],
    ("compare-runs", "baseline_per_query"): STORY[OF_QUERIES],
    ("report", "query_text_col"): f"{STORY['report']} --per-query {{f}}/queries --query-texts {{f}}/queries",
    ("position-bias judgments", "propensity_col"): f"position-bias judgments {SHOWN}",
    ("position-bias estimates", "propensity_col"): f"position-bias estimates {SHOWN}",
}
"""Arguments with which an option is of use, where it is not with those of the night of its command."""
EXIST = {"run": "a", "metric": "ndcg", "convention": "trec_eval", "night": "2026-0", "data set": "shop",
         "segment column": "country"}  # fmt: skip
"""A name of each kind that exists, and is told."""


def find_kind(name: str, option) -> str:
    """Return what an option of a command names."""
    known = OF_A_COMMAND.get((name, option.name))
    if known is not None:
        return known
    if option.type.name != "text" or option.name.endswith(("_format", "_option")):
        return "other"
    if option.name.endswith("_col") or option.name in ("segment_cols", "ranked_cols"):
        return "column"
    kinds = {"table": TABLE, "run": RUN, "metric": METRIC, "convention": CONVENTION, "night": NIGHT, "new": NEW,
             "configuration": CONFIGURATION}  # fmt: skip
    found_kinds = [kind for kind, names in kinds.items() if option.name in names]
    assert len(found_kinds) + (option.name in FORMS) == 1, f"say what --{option.name} of {name} names: {found_kinds}"
    return found_kinds[0] if found_kinds else "other"


OPTIONS = [
    (name, option.name, option.opts[0], kind)
    for name, command in list_commands(cli)
    if name not in ("nightly", "init")  # tests/nights has what they name
    for option in command.params
    if (kind := find_kind(name, option)) not in ("other", "new")
]


OF_RANKINGS = {"compare-runs", "diagnose runs", "explain-difference"}
"""Commands that evaluate rankings as mean-ndcg does."""
PARTS = (Columns, ItemColumns)
FIELDS = {f"{field.name}_col{'s' * (field.name == 'ranked')}": field.name for part in PARTS for field in fields(part)}
ASKED = ("query_col", "vector_col", "relevant_col")
"""Of these each command is asked."""
SHARED = [option for option in OPTIONS if option[0] in OF_RANKINGS and option[1] in FIELDS and option[1] not in ASKED]
ON_SPARK = {"items", "interactions", "vector_col", "categories_col", "first_seen_col", "topics_col", "user_col"}
"""Options of mean-ndcg that are about metrics of items."""
HERE = [option for option in OPTIONS if option[0] == "mean-ndcg" and option[1] not in ON_SPARK]
THERE = [option for option in OPTIONS if option not in HERE and option not in SHARED]


def build_arguments(name: str, option: str, flag: str, value: str, folder: object) -> list[str]:
    """Return the arguments of a command of the story with one option changed."""
    night = next(text for text in STORY.values() if text.startswith(f"{name} "))
    words = shlex.split(BASE.get((name, option), night).format(f=folder))
    if "--run-log" in words:  # it would log its own line
        at = words.index("--run-log")
        words[at : at + 2] = []
    if flag in words:
        words[words.index(flag) + 1] = value
    else:
        words += [flag, value]
    return words


def assert_refuses_a_name(name: str, option: str, flag: str, kind: str, folder: Path, *more: str) -> None:
    values = {"table": str(folder / "nowhere"), "night": "2020-02-02", "metric": "nowhere@5"}
    value = values.get(kind, "nowhere") + (">=0.5" if option == "gate" else "")
    ended, exists = run_command(*build_arguments(name, option, flag, value, folder), *more), EXIST.get(kind, "")
    if f"{flag} has no effect" in ended.err:
        assert_refused(ended, f"{flag} has no effect")
        return
    if kind == "column" and not any(
        text in ended.err for text in ("remove it", "leave it out", "no such table", "does not exist", "not given")
    ):
        exists = "which has: "
    assert_refused(
        ended, "2020-02-02" if kind == "night" else flag if "not given" in ended.err else "nowhere", exists
    )


@pytest.mark.parametrize(("name", "option", "flag", "kind"), HERE, ids=[f"{case[0]} {case[2]}" for case in HERE])
def test_a_name_that_does_not_exist_is_refused(golden_nights, name, option, flag, kind):
    assert_refuses_a_name(name, option, flag, kind, golden_nights, "--engine", "local")


@pytest.mark.parametrize("name", dict.fromkeys(name[0] for name in THERE))
def test_names_that_do_not_exist_are_refused_on_spark(spark, golden_nights, name):
    for _, option, flag, kind in (case for case in THERE if case[0] == name):
        assert_refuses_a_name(name, option, flag, kind, golden_nights)


def test_commands_that_evaluate_read_columns_as_mean_ndcg_does():
    """So names are refused by one rule."""
    commands = dict(list_commands(cli))
    for name, option, flag, _ in SHARED:
        words = build_arguments(name, option, flag, "nowhere", "")[len(name.split()) :]
        settings = SETTINGS[name](commands[name].make_context(name, words).params).settings
        (columns,) = (element for element in find_columns(settings) if hasattr(element, FIELDS[option]))
        assert getattr(columns, FIELDS[option]) in ("nowhere", ("nowhere",)), (name, option)


def find_columns(settings: object) -> list[Columns | ItemColumns]:
    if isinstance(settings, PARTS):
        return [settings]
    parts = [getattr(settings, field.name) for field in fields(settings)] if is_dataclass(settings) else []
    return [columns for part in parts for columns in find_columns(part)]


def test_one_of_several_metrics_that_the_table_does_not_have_is_refused(spark, golden_nights):
    for metrics, missing in (("ndcg@10,ap@10", "'ap'"), ("ndcg@10,ndcg@3", "'ndcg@3'")):
        ended = run_command("flag-changes", "--input", golden_nights / "history.parquet", "--metrics", metrics)
        assert_refused(ended, f"there is no metric {missing} in the metric table; there is ndcg")
