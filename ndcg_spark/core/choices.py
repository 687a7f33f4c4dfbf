"""Choices that settings of several rooms have."""

from __future__ import annotations

from typing import Literal, TypeAlias

OnInvalid: TypeAlias = Literal["fail", "reject"]
"""What a bad row does: stop the action, or be left out and counted."""
