"""All steps of a night, for spark-submit and for `python jobs/nightly.py`; --help tells more."""

from __future__ import annotations

import os
import sys
from pathlib import Path

try:
    import ndcg_spark  # noqa: F401  # installed, or brought along with --py-files
except ModuleNotFoundError:  # run from a checkout: its root, for this process and for the workers it starts
    root = str(Path(__file__).resolve().parent.parent)
    sys.path.insert(0, root)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))

from ndcg_spark.main import main

if __name__ == "__main__":
    sys.exit(main(["nightly", *sys.argv[1:]], prog="nightly.py"))
