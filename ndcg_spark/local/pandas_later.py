"""Arrow without pandas, in processes that hand it no table of pandas: to import it takes longer than to evaluate."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder

import pyarrow as pa


class _NoPandas(MetaPathFinder):
    @classmethod
    def find_spec(cls, name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name)


def leave_pandas_out() -> None:
    """Keep Arrow from importing pandas to find out whether a list is one of its objects. It tries only once."""
    if "pandas" not in sys.modules:
        sys.meta_path.insert(0, _NoPandas)
        pa.array([0])
        sys.meta_path.remove(_NoPandas)
