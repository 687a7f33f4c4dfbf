"""Expected numbers as tests write them, and refusals of Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ndcg_spark.errors import find_refusal, spell_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def near(value: float) -> Any:
    """A number written with twelve decimals: tolerates half a unit of the last, and rounding."""
    return pytest.approx(value, abs=5.1e-13)


def approx(value: Any) -> Any:
    """A number, or a list of numbers, to 1e-12."""
    return pytest.approx(value, abs=1e-12)


def collect_refusal(frame: DataFrame) -> str | None:
    """Collect a frame; return the message of this package in the error, or None without an error."""
    try:
        frame.collect()
    except Exception as error:  # Spark chooses the class
        return spell_options(find_refusal(str(error)) or "") or f"not a refusal: {str(error)[:500]}"
    return None
