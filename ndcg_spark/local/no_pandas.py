"""Imported by processes of our own that need no pandas: Arrow would load it, which takes a third of a second."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder


class _NoPandas(MetaPathFinder):
    @classmethod
    def find_spec(cls, name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name)


if "pandas" not in sys.modules:
    sys.meta_path.insert(0, _NoPandas)
