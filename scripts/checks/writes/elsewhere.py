"""Legs in environments of their own: Iceberg runs on Spark 3.5, Delta on the engine Sail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from scripts.checks import ROOT

FORMATS = ("iceberg", "delta")
ENSURE = 'source scripts/_environment.sh; VENV=$1; ensure_format "$2"'


def run_elsewhere(leg: str, module: str, *arguments: str) -> Any:
    """Run a module for a leg in a process of its own, and for a format in its environment, which is made if need be.

    Gives the JSON of the last line.
    """
    place = Path(sys.prefix) / "bin"
    if leg in FORMATS:
        made = subprocess.run(["bash", "-euc", ENSURE, "scripts/check", sys.prefix, leg], cwd=ROOT, check=False)
        if made.returncode:
            raise SystemExit(made.returncode)  # it has said why
        place = Path(sys.prefix) / f"formats-{leg}" / "bin"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{place}{os.pathsep}{os.environ['PATH']}"}
    environment |= dict.fromkeys(("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"), str(place / "python"))
    command = [str(place / "python"), "-m", module, "--here", *arguments]
    ended = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if ended.returncode:
        raise RuntimeError(f"the leg {leg} ended with exit code {ended.returncode}")
    return json.loads(ended.stdout.splitlines()[-1])
