"""A copy of the project in which guards are changed, and how its tests run."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from scripts.checks import ROOT


def copy_project(target: Path) -> list[str]:
    """Copy what git knows or would add; returns the names of the files."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    names = [name for name in sorted(listed.stdout.split("\0")) if name and (ROOT / name).exists()]
    for name in names:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target / name)
    return names


def variables(project: Path, *more: Path) -> dict[str, str]:
    """Variables of tests of a copy, which import from it first."""
    data = os.environ.get("NDCG_SPARK_SHARED_DATA") or str(ROOT.parent / "shared" / "data")
    paths = os.pathsep.join(map(str, (project, *more)))
    return os.environ | {"PYTHONPATH": paths, "NDCG_SPARK_SHARED_DATA": data}
