"""The demo: queries and grades from Python's own documentation, and the output of its script."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from scripts.demos import runner, search

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def docs() -> list[search.Docstring]:
    return search.collect_docstrings()


def test_the_library_has_enough_documentation(docs: list[search.Docstring]) -> None:
    assert len(docs) > 800
    assert len({page.name for page in docs}) > 0.95 * len(docs)  # names defined twice, by platform, count once
    actual = {page.name: page for page in docs}["textwrap.dedent"]
    assert (actual.module, actual.scope) == ("textwrap", "textwrap")
    assert actual.first == "Remove any common leading whitespace from every line in `text`."


def test_grades_come_from_the_place_of_a_passage(docs: list[search.Docstring]) -> None:
    of_module = [page for page in docs if page.module == "collections"]
    graded = search.judge_passages(of_module, np.array([0])).to_pylist()
    query = of_module[0]
    assert {row["answers"] for row in graded} == {"4-20"}
    assert [row["relevance"] for row in graded if row["item_id"] == query.name] == [3]
    scopes = {field.name: field.scope for field in of_module}
    for row in graded:
        if row["item_id"] != query.name:
            assert row["relevance"] == (2 if scopes[row["item_id"]] == query.scope else 1)


def test_each_ranker_lists_as_many_passages_for_each_query(docs: list[search.Docstring]) -> None:
    few, queries = docs[:300], np.arange(0, 300, 50)
    score = search.score_passages([passage.rest for passage in few], [few[at].first for at in queries.tolist()])
    table = search.run_table(few, queries, score)
    assert set(table["ranker"].to_pylist()) == {"words", "mixed"}
    assert table.num_rows == 2 * len(queries) * search.N_LISTED


def test_script_lists_demos_and_refuses_other_names() -> None:
    door = ROOT / "scripts" / "demo"
    helped = subprocess.run([door, "--help"], capture_output=True, text=True, check=True).stdout
    listed = {name.replace("-", "_") for name in re.findall(r"^  (\S+)", helped, re.MULTILINE)}
    programs = (ROOT / "scripts" / "demos").glob("*.py")
    assert listed == {path.stem for path in programs if "def main(" in path.read_text(encoding="utf-8")}
    refused = subprocess.run([door, "nothing"], capture_output=True, text=True)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("demo: there is no demo nothing; there are search beyond ")


def test_commands_of_a_demo_are_shown_whole_or_by_their_first_lines() -> None:
    """The demo of search shows all commands; the demo of a report shows the first and the last night."""
    nights = [["metrics", "--help"]] * 4
    steps = f"""
from scripts.demos.runner import run_commands
run_commands([["metrics", "--help"]], refusals=False)
run_commands({nights!r} + [["--version"], ["no-such-command"]], refusals=True, most={{"--version": 0, "metrics": 1}})
"""
    ended = subprocess.run([sys.executable, "-c", steps], cwd=ROOT, capture_output=True, text=True, check=True)
    whole, *_ = ended.stdout.split("\n$ ", 2)[1:]
    shown = ended.stdout.split(whole, 1)[1].split("\n$ ")[1:]
    assert len(whole.splitlines()) > 5
    title, first, *_ = whole.splitlines()
    more = f"... and {len(whole.splitlines()) - 2} more lines"
    assert [row.splitlines() for row in shown[:2]] == [
        [title, first, more, "... and so on, night by night"],
        [title, first, more],
    ]
    assert [row.splitlines()[0] for row in shown[2:]] == ["ndcg-spark --version", "ndcg-spark no-such-command"]
    assert shown[3].splitlines()[-1] == "(exit code 2)"


def test_the_demo_begins_with_the_rows_and_the_number_of_the_readme(tmp_path, capfd) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (tmp_path / "shoes.csv").write_text(search.SHOES, encoding="utf-8")
    command = ["mean-ndcg", "--input", str(tmp_path / "shoes.csv"), "--k", "1,3"]
    assert runner.run(*command) == 0
    shown, first, *_ = capfd.readouterr().out.splitlines()
    assert shown.startswith("$ ndcg-spark mean-ndcg --input ")
    assert f"$ cat shoes.csv\n{search.SHOES}$ ndcg-spark mean-ndcg --input shoes.csv --k 1,3\n{first}\n```" in readme
    assert first == "overall queries=2  ndcg@1 0.5000 ± 0.9800  ndcg@3 0.7952 ± 0.3219"
    with pytest.raises(SystemExit) as ended:
        runner.run("mean-ndcg", "--input", str(tmp_path / "none.csv"))
    assert ended.value.code == 2
