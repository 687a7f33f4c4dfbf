"""Errors name options the way their readers write them: arguments in Python, flags on the command line."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import is_dataclass

import click
import pytest
from support.main_job import assert_refused, mean_ndcg, run_command
from support.source_rules import PACKAGE, WITH_SETTINGS, Source, list_public, parse_sources

from ndcg_spark import compare, evaluate, readable_errors, tables
from ndcg_spark.errors import InputRefusedError, InvalidParameterError
from ndcg_spark.evaluation.api import OPTIONS
from ndcg_spark.jobs.options import format_flag
from ndcg_spark.main import cli

OF_OTHERS = {"--conf", "--master", "--packages", "--py-files", "--upgrade"}
"""Flags of Spark and of pip."""
ENGLISH = {"per-query"}


def iterate_commands(command: click.Command) -> Iterator[click.Command]:
    yield command
    for subcommand in getattr(command, "commands", {}).values():
        yield from iterate_commands(subcommand)


FLAGS = {
    flag: param
    for command in iterate_commands(cli)
    for param in command.params
    for flag in (*param.opts, *param.secondary_opts)
    if flag.startswith("--")
}
HYPHENATED = {flag.removeprefix("--") for flag in FLAGS if "-" in flag.removeprefix("--")} - ENGLISH
NAMES_A_FLAG = re.compile(
    rf"(?<![\w-])(--[a-z][a-z-]*|{'|'.join(sorted(HYPHENATED, key=len, reverse=True))})(?![\w-])"
)


def iterate_texts(source: Source) -> Iterator[ast.Constant]:
    """Yield strings that are not docstrings."""
    tree = source.tree
    statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in statements:
            yield node


OF_COMMANDS = re.compile(
    rf"{PACKAGE}\.(main|nights|jobs|\w+\.(command|work|local_work|means|differences|flagging|rolling_up|printed|options|inputs|metric_rows|choice))\b"
)


def find_flags(source: Source) -> list[str]:
    """Find texts of the library that name a flag; commands and their shared modules may."""
    if OF_COMMANDS.match(source.module):
        return []
    return [
        f"{source.module}:{node.lineno} names {flag}"
        for node in iterate_texts(source)
        for flag in NAMES_A_FLAG.findall(node.value)
        if flag not in OF_OTHERS
    ]


def find_options(source: Source) -> list[str]:
    """Return the first arguments of calls of `option`."""
    calls = (node for node in ast.walk(source.tree) if isinstance(node, ast.Call))
    named = [call.args[0] for call in calls if isinstance(call.func, ast.Name) and call.func.id == "option"]
    return [name.value for name in named if isinstance(name, ast.Constant)]


def list_python_arguments() -> set[str]:
    named = [*list_public().values(), *(getattr(tables, name) for name in tables.__all__)]
    called = [name for name in named if inspect.isfunction(name) or is_dataclass(name)]
    return {name for f in [*called, *list_job_settings()] for name in inspect.signature(f).parameters} | {*OPTIONS}


def list_job_settings() -> list[type]:
    """Return settings of commands; no function takes their own fields, such as files."""
    named = (vars(importlib.import_module(f"{PACKAGE}.{room}.settings")) for room in WITH_SETTINGS)
    return [value for names in named for name, value in names.items() if name.endswith("JobSettings")]


NAMED = sorted({name for source in parse_sources(PACKAGE) for name in find_options(source)})


def test_no_text_of_the_library_names_a_flag():
    assert [finding for source in parse_sources(PACKAGE) for finding in find_flags(source)] == []


@pytest.mark.parametrize(
    "text",
    ["query-col names a column twice", "leave run-col out", "or --items", "tie bounds or pad-to-k", "--schema grow"],
)
def test_the_rule_sees_a_flag(text):
    source = Source(f"{PACKAGE}.plan", f"raise ValueError(f'{{n}} {text}')")
    assert len(find_flags(source)) == 1


def test_options_that_errors_name_are_arguments_of_python_and_flags():
    assert {"ReportJobSettings", "ComparisonJobSettings"} < {job.__name__ for job in list_job_settings()}
    assert {"query", "run", "segments", "weight"} <= set(NAMED)
    assert set(NAMED) - list_python_arguments() == set()
    assert {name for name in NAMED if format_flag(name).split()[0] not in FLAGS} == set()


def test_errors_name_arguments_in_python_and_flags_in_commands(spark, tmp_path):
    schema = "query_id string, item_id string, s double, t double, relevance double"
    table = spark.createDataFrame([("q", "a", 1.0, 2.0, 1.0)], schema)
    with pytest.raises(InvalidParameterError, match=r"^each score column is a run: remove run=\.$"):
        evaluate(table, score=["s", "t"], run="query_id")
    table.write.parquet(str(tmp_path / "rows"))
    ended = mean_ndcg("--input", tmp_path / "rows", "--score-col", "s,t", "--run-col", "query_id")
    assert_refused(ended, "each score column is a run: remove --run-col.")


def test_errors_of_workers_name_arguments_or_flags(spark, tmp_path):
    rows = [("a", "q", 1, 0.5), ("b", "q", 1, 0.5), ("a", "p", 1, 0.5)]
    table = spark.createDataFrame(rows, "run string, query_id string, k int, ndcg double")
    options = {"baseline": "a", "metrics": "ndcg", "replicates": 0, "flips": 0}
    message = "query query_id=p is in run 'a' and not in 'b'; choose "
    with pytest.raises(InputRefusedError) as raised, readable_errors():
        compare(table, **options, unpaired="error").summary.collect()
    assert str(raised.value) == f"{message}unpaired='zero' or drop."
    table.write.parquet(str(tmp_path / "rows"))
    flags = [text for name, value in options.items() for text in (f"--{name}", value)]
    ended = run_command("compare-runs", "--per-query", tmp_path / "rows", *flags, "--unpaired", "error")
    assert_refused(ended, f"{message}--unpaired zero or drop.")
