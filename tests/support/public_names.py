"""What users import: the names of the package, and those of its rooms."""

from __future__ import annotations

import ast
import importlib
import inspect
from pathlib import Path
from typing import Any

import ndcg_spark

ROOMS = (
    "evaluation", "comparison", "diagnosis", "history", "business", "retrieval", "judgments", "clicks", "functions",
    "reports",
)  # fmt: skip
WITH_SETTINGS = tuple(room for room in ROOMS if room != "functions")
"""The arguments of functions of columns are all there is."""
OF_ML = ("NdcgEvaluator", "with_query_folds")


def names_of_room(room: str) -> list[str]:
    """Public names of a room, without importing what they name."""
    return dir(importlib.import_module(f"ndcg_spark.{room}"))


def public() -> dict[str, Any]:
    """All of it, as `evaluate` and `history.roll_up`; what the package has itself is not there twice."""
    found = {name: getattr(ndcg_spark, name) for name in ndcg_spark.__all__}
    for room in ROOMS:
        module = importlib.import_module(f"ndcg_spark.{room}")
        found |= {f"{room}.{name}": getattr(module, name) for name in dir(module) if name not in found}
    return found | {f"ml.{name}": getattr(importlib.import_module("ndcg_spark.ml"), name) for name in OF_ML}


def public_functions() -> dict[str, Any]:
    return {name: one for name, one in public().items() if inspect.isfunction(one)}


def names_for_type_checkers(package: str) -> list[str]:
    """What `__init__` imports for type checkers alone."""
    path = Path(inspect.getfile(importlib.import_module(package)))
    (block,) = (one for one in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(one, ast.If))
    return sorted(alias.name for one in block.body if isinstance(one, ast.ImportFrom) for alias in one.names)
