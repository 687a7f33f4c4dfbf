"""`scripts/check size`: lines by kind, and functions that an import calls."""

from __future__ import annotations

from scripts.checks import size

MODULE = '''"""What it is,
in two lines."""

import os
from math import (
    pi,
)


# a comment
class Shop:
    """One line."""

    def price(self):
        """One line."""
        return pi, os.name, """text
        of two lines"""
'''


def test_lines_are_counted_by_kind(tmp_path):
    """By hand: imports on one and on three lines are one statement each; a text is code."""
    for name in ("__init__.py", "rooms/__init__.py", "rooms/cellar/wine.py", "rooms/attic.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(MODULE if "wine" in name else "")
    sizes = size.count_rooms(tmp_path)
    assert list(sizes) == [size.TOP, "rooms"]
    assert dict(sizes["rooms"]) == {"files": 3, "lines": 17, "code": 4, "docstrings": 4, "imports": 4}
    assert size.format_table(sizes).splitlines()[-1].split() == ["total", "4", "17", "4", "4", "4"]


def test_functions_called_by_an_import_are_found(tmp_path):
    """The hook of a walk, on a package of that name: `used` is called by the program, `made` while it is imported."""
    package = tmp_path / size.NAME
    package.mkdir()
    (package / "__init__.py").write_text("from ndcg_spark import made\nmade.make()\n")
    (package / "made.py").write_text("def make():\n    pass\n")
    (package / "used.py").write_text("def use():\n    pass\n")
    assert size.walk_story(("from ndcg_spark.used import use; use()",), tmp_path) == ["used.py"]
