"""`guards reached` and `guards jobs`: they find refusals, notice bad ends of jobs, and resume.

Running all tests and jobs would take too long.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.processes import INCUBATOR

from scripts.checks.guards import jobs, reached

LINE = "mean_ndcg.py: 1 bad row of 3 in the input: nan_score 1"
TRACEBACK = "Traceback (most recent call last):\n  File daemon.py\nBrokenPipeError: [Errno 32] Broken pipe\n"


@pytest.mark.parametrize(
    ("code", "message", "wrong"),
    [
        (2, f"{INCUBATOR}\nranking and scoring: 5.8 s\n{LINE}\n", []),
        (1, f"{LINE}\n", ["exit code 1, not 2"]),
        (2, TRACEBACK + LINE, ["a traceback"]),
        (2, f"{LINE}\n\tat org.apache.spark\n", ["a traceback"]),
        (2, f"\n{LINE}\nand more\n", ["2 lines"]),
        (2, "mean_ndcg.py: refused", ["'nan_score 1' is not named"]),
    ],
)
def test_undocumented_ends_of_jobs_are_noticed(code, message, wrong):
    assert jobs.list_errors(code, 2, message, "nan_score 1") == wrong


def test_jobs_with_a_stored_result_are_not_run_again(tmp_path, monkeypatch):
    started = []

    def fake(kind: str, number: int) -> jobs.Result:
        started.append((kind, number))
        return jobs.Result(kind, number, "x", 2, ["a traceback"] if number else [], "")

    # stands in for: jobs that start Spark, because each takes ten seconds, and this is about the file of their ends
    monkeypatch.setattr(jobs, "refused", lambda number: fake("refused", number))
    monkeypatch.setattr(jobs, "interrupted", lambda number, longest: fake("interrupted", number))
    path = tmp_path / "results"
    jobs.run_jobs(1, 1, 5, jobs.Kept(path))
    assert started == [("refused", 0), ("interrupted", 0)]
    with path.open("a") as file:
        file.write('{"kind": "refused", "num')  # as by a kill in the middle of a line
    actual = jobs.run_jobs(2, 1, 5, jobs.Kept(path))
    assert started[2:] == [("refused", 1), ("interrupted", 1)]
    assert jobs.format_table(actual).splitlines()[2:] == [
        "| refused | 2 | 1 | 1 | 0 |",
        "| interrupted | 2 | 1 | 1 | 0 |",
    ]


SOURCE = '''
class OurError(ValueError): pass

class Table:
    def check(self, rows, bad):
        """§ stands before what is found, in two bytes."""
        if bad > 1: raise OurError(f"§ {bad}")
        self.refuse(bad == 1, "one")
        try:
            return int(rows)
        except ValueError as error:
            raise refusal_of(error) or OurError(
                "no number"
            ) from error

    def refuse(self, bad, what):
        if bad: fail(what)

def refusal_of(error): return None

def fail(text) -> NoReturn:
    if text == "never": raise
    raise KeyError(text)

def again(error): raise error

def reasons(values) -> Iterator[Reason]:
    yield "null", values[0]
    yield "nan", None
    yield from ()

def column(message): return raise_if(1, 2, "a", *message, kind="double")

def raise_if(*values, kind): return values
'''
PLACES = [
    ("Table.check", "OurError(f'§ {bad}')", 7),
    ("Table.check", "self.refuse(bad == 1, 'one')", 8),
    ("Table.check", "OurError('no number')", 12),
    ("Table.refuse", "fail(what)", 17),
    ("again", "raise error", 25),
    ("reasons", "(yield ('null', values[0]))", 28),
    ("reasons", "(yield ('nan', None))", 29),
    ("column", "raise_if(1, 2, 'a', *message, kind='double')", 32),
]


@pytest.fixture
def marks(tmp_path):
    for number in range(10, 10 + len(PLACES)):
        (tmp_path / str(number)).touch()
        os.utime(tmp_path / str(number), (0, 0))
    return tmp_path


def read_marks(marks: Path) -> list[int]:
    """Return the places reached since the last call."""
    reached = sorted(int(path.name) - 10 for path in marks.iterdir() if path.stat().st_mtime)
    for number in reached:
        os.utime(marks / str(10 + number), (0, 0))
    return reached


def test_refusals_are_found_and_marked_when_reached(marks):
    text, actual = reached.mark_refusals(SOURCE, "a.py", str(marks), 10)
    assert [(site.place, site.text, site.line) for site in actual] == [
        (f"a.py:{place[0]}", *place[1:]) for place in PLACES
    ]
    assert len(text.splitlines()) == len(SOURCE.splitlines())
    names: dict[str, Any] = {"NoReturn": None, "Iterator": list, "Reason": int}
    exec(text, names)
    table, our = names["Table"](), names["OurError"]
    assert (table.check("7", 0), read_marks(marks)) == (7, [])
    with pytest.raises(our, match="§ 2"):
        table.check("7", 2)
    assert read_marks(marks) == [0]
    with pytest.raises(KeyError, match="one"):
        table.check("7", 1)
    assert read_marks(marks) == [1, 3]
    with pytest.raises(our, match="no number"):
        table.check("x", 0)
    assert read_marks(marks) == [2]
    with pytest.raises(KeyError):
        names["again"](KeyError())
    assert read_marks(marks) == [4]
    assert [at for _, at in names["reasons"]([np.array([False])])] == [np.array([False]), None]
    assert read_marks(marks) == []
    assert list(names["reasons"]([np.array([False, True])]))
    assert read_marks(marks) == [5]
    assert names["column"](["b"]) == (1, 2, "a", "b", "§17§")


def test_refusal_in_java_is_marked_at_its_message(marks):
    path = reached.ROOT / "ndcg_spark" / "errors.py"
    text, _ = reached.mark_refusals(path.read_text(), "ndcg_spark/errors.py", str(marks))
    names: dict[str, Any] = {"__name__": "marked"}
    exec(text, names)
    assert names["find_refusal"](names["mark_refusal"]("query 7 is bad§17§")) == "query 7 is bad"
    assert read_marks(marks) == [7]


def test_refusals_with_one_text_have_stable_names():
    source, moved = "def f():\n raise OurError()\n raise OurError()\n", "\n\ndef f():\n raise OurError()\n"
    keys = [
        [place.key for place in reached.number_refusals(reached.mark_refusals(text, "a.py")[1])]
        for text in (source, moved)
    ]
    assert keys == [["a.py:f: OurError()", "a.py:f: OurError() [2]"], ["a.py:f: OurError()"]]


def test_reasons_must_name_existing_unreached_refusals(monkeypatch):
    places = [reached.Refusal("a.py:f", f"OurError('{word}')", 1) for word in ("red", "green", "blue")]
    reasons = {("a.py:f", "red"): "no test paints", ("a.py:f", "green"): "", ("a.py:f", "white"): ""}
    monkeypatch.setattr(reached, "UNSEEN", reasons)
    left, wrong = reached.find_unseen(places, {places[1].key})
    assert [refusal.text for refusal in left] == ["OurError('blue')"]
    assert wrong == [
        "a.py:f: 'green' is reached, and needs no reason",
        "a.py:f: 'white' stands for 0 refusals, not for one",
    ]
    monkeypatch.setattr(reached, "UNSEEN", {("a.py:f", str(n)): "" for n in range(11)})
    assert reached.find_unseen(places, set())[1][0] == "11 reasons, more than 10"


def test_test_files_that_have_run_run_again_only_if_they_changed(tmp_path):
    parts = reached.Parts(tmp_path / "results")
    parts.add(reached.Part({"a": "1", "b": "1"}, ["x"], [], 1.0))
    with (tmp_path / "results").open("a") as file:
        file.write('\n{"files": {"c"')  # as by a kill in the middle of a line
    parts = reached.Parts(tmp_path / "results")
    parts.add(reached.Part({"d": "1"}, ["y"], [], 1.0))
    parts = reached.Parts(tmp_path / "results")
    assert (parts.to_run({"a": "1", "b": "2", "c": "1", "d": "1"}), parts.reached) == (
        {"b": "2", "c": "1"},
        {"x", "y"},
    )
    several = list(reached.split_into_parts({f"{n:02}": "" for n in range(2 * reached.FILES_OF_A_PART + 1)}))
    assert [max(len(part) for part in several) <= reached.FILES_OF_A_PART, len(several)] == [True, 3]
    assert sum(map(len, several)) == 2 * reached.FILES_OF_A_PART + 1


def test_a_test_file_that_is_not_there():
    with pytest.raises(SystemExit, match=r"there is no test file 'tests/test_x.py'"):
        reached.hash_test_files(reached.ROOT, ["tests/test_x.py"])
