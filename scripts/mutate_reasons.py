"""Why mutants of scripts/mutate survive that no test can catch, by the name of the mutant."""

from __future__ import annotations

REASONS: dict[str, str] = {}
