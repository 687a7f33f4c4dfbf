"""What several tests of the whole project share."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest
from support.main_job import command

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))  # a folder of programs, no package


@pytest.fixture(scope="session")
def golden_nights(spark, tmp_path_factory):
    """The inputs of scripts/golden, and the first two of its nights in a metric table."""
    from golden import STORY
    from golden_nights import write_inputs

    folder = tmp_path_factory.mktemp("golden_nights")
    write_inputs(folder)
    for name in ("mean-ndcg", "the next night"):
        assert command(*shlex.split(STORY[name].format(f=folder))).code == 0
    return folder
