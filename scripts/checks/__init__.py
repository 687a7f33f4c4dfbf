"""What checks the package beyond its tests; README.md lists them. They share the support of the tests."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests"))
