"""README and docs are correct: their Python runs and prints the shown output, and their flags exist."""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click import Command, Context, Group

from ndcg_spark.conventions import PRESETS
from ndcg_spark.main import cli

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
README = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
OF_OTHER_TOOLS = {"--deploy-mode", "--help", "--hours", "--master", "--packages", "--py-files", "--upgrade"}
OF_SCRIPTS = {"--all", "--fast"} | {
    flag
    for path in (ROOT / "scripts").glob("*/**/*.py")
    for flag in re.findall(r'add_argument\(\s*"(--[a-z-]+)"', path.read_text(encoding="utf-8"))
}
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def list_examples() -> list[tuple[str, str]]:
    """Return each Python block with the text block that follows it on its page before the next one."""
    blocks: list[tuple[str, str]] = []
    for page in PAGES:
        first = len(blocks)
        for kind, text in BLOCK.findall(page.read_text(encoding="utf-8")):
            if kind == "python":
                blocks.append((text, ""))
            elif kind == "text" and len(blocks) > first:
                blocks[-1] = (blocks[-1][0], text)
    return blocks


@pytest.mark.filterwarnings("ignore:unsafe cast from uint64 to int64")  # ranx, if nothing has compiled it before
@pytest.mark.slow
def test_python_of_the_readme_prints_the_shown_output(spark: SparkSession) -> None:
    names: dict[str, Any] = {"spark": spark}
    assert list_examples()
    for code, expected in list_examples():
        printed = io.StringIO()
        with redirect_stdout(printed):
            exec(compile(code, "README.md", "exec"), names)
        assert printed.getvalue().strip() == expected.strip(), code


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.classic("a session of its own, in a process of its own")
def test_the_ten_lines_are_a_program_that_runs_in_a_fresh_shell() -> None:
    """The last lines of the demo: the environment is active, and the session is a plain one."""
    (code, expected), *_ = [example for example in list_examples() if "result.per_query.select" in example[0]]
    program = ROOT / "docs" / "examples" / "ten_lines.py"
    lines = [line for line in program.read_text(encoding="utf-8").splitlines() if line]
    assert lines[0].startswith('"""The example of the README')
    made = {"from pyspark.sql import SparkSession", "spark = SparkSession.builder.getOrCreate()"}
    assert [line for line in lines[1:] if line not in made] == [line for line in code.splitlines() if line]
    activate = Path(sys.executable).parent / "activate"
    if not activate.exists():
        pytest.skip("this Python is of no environment that could be entered")
    ended = subprocess.run(
        ["bash", "-c", f"source {shlex.quote(str(activate))} && python {shlex.quote(str(program))}"],
        env={"HOME": os.environ["HOME"], "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip() == expected.strip()


def list_flags(*names: str) -> set[str]:
    """Return the flags of `mean-ndcg`, or of a nested command."""
    command: Command = cli
    for name in names or ("mean-ndcg",):
        assert isinstance(command, Group)
        subcommand = command.get_command(Context(command), name)
        assert subcommand is not None
        command = subcommand
    return {flag for option in command.params for flag in option.opts}


def iterate_commands(command: Command, names: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the names of commands that are not groups."""
    if not isinstance(command, Group):
        yield names
        return
    for name, subcommand in command.commands.items():
        yield from iterate_commands(subcommand, (*names, name))


OF_ALL_JOBS = {flag for names in iterate_commands(cli) for flag in list_flags(*names)}


def test_every_flag_of_the_readme_exists() -> None:
    shown = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", README))
    assert shown - (OF_ALL_JOBS | OF_SCRIPTS | OF_OTHER_TOOLS) == set()


def test_every_flag_of_a_choice_is_in_the_readme() -> None:
    shown = set(re.findall(r"--[a-z][a-z-]+", README))
    conventions = {"--gain", "--discount", "--ties", "--score-precision", "--ideal", "--unjudged", "--negative"}
    conventions |= {"--no-relevant", "--missing-query", "--unjudged-query", "--pad-to-k", "--duplicates"}
    assert conventions <= shown & list_flags()


def test_every_preset_is_in_the_readme() -> None:
    assert [name for name in PRESETS if f"`{name}`" not in README] == []
