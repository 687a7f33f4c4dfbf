"""Expected numbers as tests write them down."""

from __future__ import annotations

from typing import Any

import pytest


def near(value: float) -> Any:
    """A number that is written with twelve decimals: half a unit of the last, and what rounding adds."""
    return pytest.approx(value, abs=5.1e-13)


def approx(value: Any) -> Any:
    """A number, or a list of numbers, to 1e-12."""
    return pytest.approx(value, abs=1e-12)
