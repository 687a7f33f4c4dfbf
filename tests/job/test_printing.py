"""What cannot be printed does not change how a job ended: its tables are written by then."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pytest

from ndcg_spark.cli.printing import lasting_output


def test_a_pipe_that_nobody_reads_is_a_warning(monkeypatch, capsys):
    """As that of `| head`."""
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w", encoding="utf-8") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        with lasting_output("job"):
            print("some of it", flush=True)
            print("more")
        assert sys.stdout is pipe
        monkeypatch.undo()
    assert capsys.readouterr().err == "job: warning: standard output ended early: Broken pipe\n"


def test_a_full_disk_is_a_warning(monkeypatch, capsys):
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    with open("/dev/full", "w", encoding="utf-8") as full:
        monkeypatch.setattr(sys, "stdout", full)
        with lasting_output("job"):
            print("results")
        monkeypatch.undo()
    assert "job: warning: standard output ended early: No space left on device" in capsys.readouterr().err


def test_signs_that_the_terminal_lacks_are_escaped(monkeypatch):
    content = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(content, encoding="ascii"))
    with lasting_output("job"):
        print("0.40 \u00b1 0.01, run \u691c\u7d22")
    assert content.getvalue() == b"0.40 \\xb1 0.01, run \\u691c\\u7d22\n"


def test_errors_of_the_block_pass():
    with pytest.raises(KeyError), lasting_output("job"):
        raise KeyError
