"""Refusals that no test reaches, and why: (file and function, words of it) to the reason. At most ten."""

from __future__ import annotations

UNSEEN: dict[tuple[str, str], str] = {}
