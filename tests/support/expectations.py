"""Expected numbers as tests write them down, and what a refusal of Spark says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ndcg_spark.errors import find_refusal, spell_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def near(value: float) -> Any:
    """A number that is written with twelve decimals: half a unit of the last, and what rounding adds."""
    return pytest.approx(value, abs=5.1e-13)


def approx(value: Any) -> Any:
    """A number, or a list of numbers, to 1e-12."""
    return pytest.approx(value, abs=1e-12)


def refusal(frame: DataFrame) -> str | None:
    """The message of ours in what the action raises; None where nothing is raised."""
    try:
        frame.collect()
    except Exception as error:  # Spark chooses the class
        return spell_options(find_refusal(str(error)) or "") or f"not a refusal: {str(error)[:500]}"
    return None
