"""What cannot be printed does not change how a job ended: its tables are written by then."""

from __future__ import annotations

import io
import os
import shlex
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from support.processes import open_terminal

from ndcg_spark.errors import to_one_line
from ndcg_spark.evaluation.printed import show_summary
from ndcg_spark.jobs.printing import tolerate_lost_streams

ROOT = Path(__file__).resolve().parents[2]


def test_a_pipe_that_nobody_reads_is_a_warning(capsys):
    """As that of `| head`."""
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w", encoding="utf-8") as pipe, redirect_stdout(pipe):
        with tolerate_lost_streams("job"):
            print("some of it", flush=True)
            print("more")
        assert sys.stdout is pipe
    assert capsys.readouterr().err == "job: warning: standard output ended early: Broken pipe\n"


def test_a_full_disk_is_a_warning(capsys):
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    with open("/dev/full", "w", encoding="utf-8") as full, redirect_stdout(full), tolerate_lost_streams("job"):
        print("results")
    assert "job: warning: standard output ended early: No space left on device" in capsys.readouterr().err


def test_signs_that_the_terminal_lacks_are_escaped():
    content = io.BytesIO()
    ascii_only = io.TextIOWrapper(content, encoding="ascii")
    with redirect_stdout(ascii_only), tolerate_lost_streams("job"):
        print("0.40 \u00b1 0.01, run \u691c\u7d22")
    assert content.getvalue() == b"0.40 \\xb1 0.01, run \\u691c\\u7d22\n"


def test_errors_of_the_block_pass():
    with pytest.raises(KeyError), tolerate_lost_streams("job"):
        raise KeyError


def test_a_pipe_of_warnings_that_nobody_reads_is_no_error():
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w", encoding="utf-8") as pipe, redirect_stderr(pipe), tolerate_lost_streams("job"):
        print("a step", file=sys.stderr, flush=True)


CLOSED = [
    (">&-", "", "of Java\nprog: warning: standard output ended early: Bad file descriptor\n"),
    ("2>&-", "results\nof Java\n", ""),
    (">&- 2>&-", "", ""),
    ("<&- >&- 2>&-", "", ""),
]


@pytest.mark.parametrize(("redirection", "out", "err"), CLOSED)
def test_streams_that_the_shell_has_closed(tmp_path, redirection, out, err):
    """Python has None in their place. A file that is opened meanwhile must not get what Java prints."""
    script = """if True:
        import subprocess, sys
        from ndcg_spark.jobs.printing import tolerate_lost_streams
        with tolerate_lost_streams("prog"), open("table", "w") as table:
            print("results", flush=True)
            print("", end="", file=sys.stderr, flush=sys.stderr.isatty())
            code = subprocess.call(["sh", "-c", "echo of Java; echo of Java >&2; cat"], stdin=subprocess.DEVNULL)
            table.write(f"whole {code}")
        """
    command = f"{shlex.quote(sys.executable)} -c {shlex.quote(script)} {redirection}"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    ended = subprocess.run(command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, out, err)
    assert (tmp_path / "table").read_text() == "whole 0"


@pytest.mark.parametrize("at_a_terminal", [True, False])
def test_names_are_neither_markup_nor_control_characters(at_a_terminal):
    names = ("[/b]", "[red]x", ":smile:", "a\nb", "\x1b[31m", "\u202e")
    summary = [
        {"run": name, "segment_by": "s", "segment": name, "metric": "ndcg", "k": 1, "value": 0.5, "n_queries": 1}
        | {"ci_low": None, "ci_high": None, "asked": None}
        for name in names
    ]
    with open_terminal() as (stream, read), redirect_stdout(stream if at_a_terminal else io.StringIO()) as out:
        show_summary(summary)
        printed = read() if at_a_terminal else out.getvalue()
    shown = [line for line in printed.splitlines() if "0.5000" in line]
    assert len(shown) == len(names)
    for name, line in zip(names, shown, strict=True):
        assert to_one_line(name) in line or repr(name)[1:-1] in line
        assert "\u202e" not in line
