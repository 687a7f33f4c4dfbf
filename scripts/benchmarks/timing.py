"""Contenders that take turns, since machines are shared and noisy; and tables of what they took."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

Contender = Callable[[], tuple[object, float]]
"""Gives what it found, and the seconds it took."""


def time_contender(work: Callable[[], object]) -> Contender:
    """Make a contender that is timed in this process."""

    def run() -> tuple[object, float]:
        began = time.perf_counter()
        value = work()
        return value, time.perf_counter() - began

    return run


def run_in_turns(contenders: Mapping[str, Contender], rounds: int, *, warm_ups: int = 0) -> dict[str, list[float]]:
    """Seconds of each; every round runs all, the order turned by one. The first rounds do not count."""
    names = list(contenders)
    taken: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(warm_ups + rounds):
        start = turn % len(names)
        for name in names[start:] + names[:start]:
            value, seconds = contenders[name]()
            suffix = f", {value}" if isinstance(value, float | tuple) else ""
            print(f"{name}: {seconds:.2f} s{suffix}", file=sys.stderr, flush=True)
            if turn >= warm_ups:
                taken[name].append(seconds)
    return taken


def compute_medians(taken: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {name: statistics.median(seconds) for name, seconds in taken.items()}


def build_ratio_rows(
    title: str, seconds: Mapping[str, float], first: str, *, digits: int = 1
) -> list[tuple[str, ...]]:
    """Return table rows: title, contender, seconds, and the ratio to the first contender."""
    return [
        (title, name, f"{duration:.{digits}f}", f"{duration / seconds[first]:.2f}")
        for name, duration in seconds.items()
    ]


def format_table(names: Sequence[str], numbers: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Format a Markdown table; columns of numbers come last."""
    lines = [(*names, *numbers), (*["---"] * len(names), *["---:"] * len(numbers)), *rows]
    return [f"| {' | '.join(cells)} |" for cells in lines]
