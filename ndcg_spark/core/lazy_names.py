"""Public names of a package that are imported when first used: workers import the package, too."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from ndcg_spark.errors import cannot_import


def export_names(package: str, rooms: str = "", **homes: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Create `__getattr__` and `__dir__` of a package.

    Each keyword is a module (`__` for a dot) with its public names; `rooms` are packages, imported when first used.
    """
    home_of = {name: home for home, names in homes.items() for name in names.split()}

    def load(name: str) -> Any:
        if name in rooms.split():
            return import_module(f"{package}.{name}")
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            return getattr(import_module(f"{package}.{home_of[name].replace('__', '.')}"), name)
        except ModuleNotFoundError as error:
            if str(error.name).partition(".")[0] != "pyspark":
                raise
            raise cannot_import(
                error, f"{name} needs Spark, and PySpark is not installed", "pyspark", "spark"
            ) from error

    return load, lambda: sorted(home_of)
