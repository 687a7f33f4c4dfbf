"""Commands where nothing but click, NumPy and tomli can be imported: help, settings and refused options work."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from ndcg_spark.jobs.registry import load_jobs

ALLOWED = (*sys.stdlib_module_names, "ndcg_spark", "click", "numpy", "tomli", "typing_extensions")
PROGRAM = f"""
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in {ALLOWED!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocked())
import contextlib, io, json
from ndcg_spark.main import main

ended = []
for arguments in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(arguments)
    ended.append([code, out.getvalue(), err.getvalue()])
print(json.dumps(ended))
"""
COMMANDS = ((), *(tuple(job.name.split()) for job in load_jobs()), ("conventions",), ("metrics",))
REFUSED = (
    (("mean-ndcg", "--input", "x", "--k", "x"), "k must be a positive whole number, or all; got 'x'"),
    (("mean-ndcg", "--input", "x", "--metrics", "precison"), "did you mean 'precision'"),
    (("compare-runs", "--input", "x", "--alpha", "2"), "alpha must be between 0 and 1"),
    (("roll-up", "--input", "a", "--output", "b", "--periods", "year"), "must be one of week, month, rolling_7"),
    (("diagnose", "nights", "--metric-table", "t", "--before", "x", "--after", "y"), "is not a date"),
    (("report", "--metrics", "m", "--output", "no/folder/r.html"), "its folder does not exist"),
    (("mean-ndcg", "--nothing"), "No such option '--nothing'"),
)
STARTED = (
    ("conventions",), ("metrics",),
    ("mean-ndcg", "--input", "x"), ("compare-runs", "--per-query", "x"),
    ("report", "--metrics", "m", "--output", "r.html"), ("roll-up", "--input", "a", "--output", "b"),
)  # fmt: skip


@pytest.fixture(scope="module")
def ended() -> dict[tuple[str, ...], tuple[int, str, str]]:
    """How each command ended, in one process: code, output, complaints."""
    asked = [
        *((*command, "--help") for command in COMMANDS),
        *(arguments for arguments, _ in REFUSED),
        *STARTED,
        ("mean-ndcg", "--input", "x", "--print-config"),
    ]
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM], input=json.dumps(asked), capture_output=True, text=True, check=True
    )
    return {key: tuple(value) for key, value in zip(asked, json.loads(process.stdout), strict=True)}


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help(ended, command):
    code, out, err = ended[(*command, "--help")]
    assert (code, err) == (0, "")
    assert out.startswith(f"Usage: {' '.join(('ndcg-spark', *command))} ")


def test_settings(ended):
    code, out, err = ended["mean-ndcg", "--input", "x", "--print-config"]
    assert (code, err) == (0, "")
    assert 'input = "x"' in out


@pytest.mark.parametrize(("arguments", "named"), REFUSED, ids=[named for _, named in REFUSED])
def test_values_of_options_are_refused(ended, arguments, named):
    code, out, err = ended[arguments]
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert named in err


@pytest.mark.parametrize("arguments", STARTED, ids=" ".join)
def test_a_job_says_what_cannot_be_imported(ended, arguments):
    code, out, err = ended[arguments]
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(("ndcg-spark: numpy ", "ndcg-spark: rich ", "ndcg-spark: pyarrow "))
    assert "pip install" in err
