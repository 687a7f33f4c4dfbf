"""Stored tables, the command line and other interfaces equal the files of tests/golden: `stored-format`."""

from __future__ import annotations

import difflib

import pytest

from scripts.checks import stored_format


def assert_same(name, spark, folder):
    expected = (stored_format.FOLDER / f"{name}.json").read_text(encoding="utf-8").splitlines()
    actual = stored_format.format_golden(name, spark, folder).splitlines()
    changed = "\n".join(difflib.unified_diff(expected, actual, "kept", "made", lineterm="", n=1))
    assert changed == "", f"if this is meant: scripts/check stored-format {name}, and a line in the changelog"


@pytest.mark.parametrize("name", ["options", "arguments"])
def test_command_line_equals_golden(name):
    assert_same(name, None, None)


@pytest.mark.parametrize("name", ["digests", "nights"])
def test_stored_format_equals_golden(name, spark, tmp_path):
    assert_same(name, spark, tmp_path)


def test_every_command_has_a_night_and_arguments():
    commands = {name for name, _ in stored_format.list_commands(stored_format.cli)} - {
        "conventions",
        "metrics",
        "init",
        "nightly",
    }
    for listed in (stored_format.ARGUMENTS, stored_format.STORY.values()):
        assert {name for name in commands if any(text.startswith(f"{name} ") for text in listed)} == commands


def test_difference_is_one_line():
    rows = {"metrics": [{"run": "a", "value": 0.5}, {"run": "b" * 600, "value": 0.25}]}
    text = stored_format.format_readable(rows)
    assert '    {"run": "a", "value": 0.5},\n' in text
    changed = set(text.splitlines()) - set(
        stored_format.format_readable({"metrics": [rows["metrics"][0] | {"k": 1}]}).splitlines()
    )
    assert '    {"run": "a", "value": 0.5},' in changed
