"""Imports of what a command runs: packages that are not there, or do not fit together, are a line."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version

from ndcg_spark.errors import MissingPackageError

_NEEDED = ("numpy", "pyarrow", "pandas", "pyspark", "rich")


@contextmanager
def needed_packages() -> Iterator[None]:
    """Import in this block what needs Spark, after the options are checked: it takes a second.

    A package that cannot be imported is refused by name.
    """
    try:
        with redirect_stderr(io.StringIO()):  # NumPy prints stacks about modules that were made for another one
            yield
    except Exception:
        for name in _NEEDED:
            refused = _refused_import(name)
            if refused is not None:
                raise refused from None
        raise


def _refused_import(name: str) -> MissingPackageError | None:
    """Say why a package cannot be imported; None if it can."""
    try:
        with redirect_stderr(io.StringIO()):
            import_module(name)
    except Exception as error:
        try:
            installed = f"{name} {version(name)}"
        except PackageNotFoundError:
            extra, note = ("[spark]", " (not on Databricks, which has its own)") if name == "pyspark" else ("", "")
            return MissingPackageError(f"{name} is not installed: pip install 'ndcg-spark{extra}'{note}.")
        why = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        numpy = f" with NumPy {version('numpy')}" if name != "numpy" else ""
        return MissingPackageError(
            f"{installed} cannot be imported{numpy} ({why.rstrip('.')}): pip install --upgrade {name}, or the "
            "packages that it was made for."
        )
    return None
