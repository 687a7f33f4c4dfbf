"""Arrow without pandas, until somebody imports pandas: that takes longer than a small evaluation."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from typing import Any

import pyarrow as pa


def defer_pandas() -> None:
    """Keep Arrow from importing pandas to find out whether a list is one of its objects."""
    if "pandas" in sys.modules or not hasattr(pa.lib, "_pandas_api"):
        return
    finder = _PandasFinder()
    sys.meta_path.insert(0, finder)
    pa.array([0])  # Arrow tries once, and takes pandas for not installed
    finder.is_closed = False


class _PandasFinder:
    """Find no pandas while this is closed; later find it, and let Arrow try again."""

    is_closed = True

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != "pandas":
            return None
        if self.is_closed:
            raise ModuleNotFoundError("No module named 'pandas'", name=name)
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_tell(module: Any) -> None:
                execute(module)
                pa.lib._pandas_api.pd  # noqa: B018  # Arrow imports it for whoever asks for it

            spec.loader.exec_module = execute_and_tell  # type: ignore[method-assign]  # of this import alone
        return spec
