"""Plot an evaluation: means by segment with their intervals, and histograms of query values."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ndcg_spark.errors import cannot_import

try:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator
except ImportError as error:
    raise cannot_import(error, "plots need matplotlib", "matplotlib", "report") from None

MAX_SEGMENTS = 24
"""Groups that are drawn: those with the most queries."""
MAX_RUNS = 8
"""Runs with a histogram."""
N_BINS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Mean of a run over a group of queries. The ends of the interval are None below two queries."""

    run: str
    label: str
    value: float
    low: float | None
    high: float | None
    n: int


def choose_bin_width(groups: Sequence[Group], *, within_1: bool) -> float:
    """Choose a bin width near 1/20 of the range of most values: 1, 2 or 5 times a power of ten."""
    spans = [1.0] if within_1 else []
    for group in () if within_1 else groups:
        deviation = 0.0 if group.low is None else (group.value - group.low) / 2 * math.sqrt(group.n)
        spans.append(abs(group.value) + 3 * deviation)
    width = max(spans, default=1.0) / N_BINS or 1.0
    power = 10.0 ** math.floor(math.log10(width))
    return next(times * power for times in (1, 2, 5, 10) if times * power >= width * (1 - 1e-9))


class Plot(Figure):
    """A figure that notebooks display without an inline backend."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png")
        return buffer.getvalue()


def draw(metric: str, groups: Sequence[Group], counts: Mapping[str, Mapping[int, int]], step: float) -> Figure:
    """Draw the means of groups, in order, and the counts of queries by run and bin."""
    labels = list(dict.fromkeys(group.label for group in groups))
    runs = list(dict.fromkeys(group.run for group in groups))
    drawn_runs = runs[:MAX_RUNS]
    height = max(3.2, 0.8 + 0.28 * len(labels) * max(1, len(runs) / 2), 0.8 + 0.9 * len(drawn_runs))
    figure = Plot(figsize=(10, height), layout="constrained")
    grid = figure.add_gridspec(1, 2)
    left = figure.add_subplot(grid[0])
    _draw_means(left, groups, labels, runs)
    left.set_title(f"mean {metric}", loc="left")
    rows = grid[1].subgridspec(max(1, len(drawn_runs)), 1).subplots(sharex=True, sharey=True, squeeze=False)[:, 0]
    for index, run in enumerate(drawn_runs):
        _draw_counts(rows[index], counts.get(run, {}), step, f"C{index}", run)
    max_count = max((n for run in drawn_runs for n in counts.get(run, {}).values()), default=1)
    rows[0].set_ylim(0, 1.05 * max_count)  # the axes share it, so it is set after all are drawn
    note = "" if len(drawn_runs) == len(runs) else f", first {len(drawn_runs)} of {len(runs)} runs"
    rows[0].set_title(f"number of queries{note}", loc="left")
    rows[-1].set_xlabel(f"{metric} of a query")
    left.set_xlabel(f"mean {metric}, with its interval")
    if len(runs) > 1:
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=min(4, len(runs)))
    return figure


def _draw_counts(axes: Axes, counts: Mapping[int, int], step: float, color: str, run: str) -> None:
    bins = range(min(counts, default=0), max(counts, default=0) + 1)
    edges = [bin_ * step for bin_ in (*bins, bins[-1] + 1)]
    axes.stairs([counts.get(bin_, 0) for bin_ in bins], edges, color=color, fill=True)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=4))
    axes.set_ylabel(run or "queries", parse_math=False)


def _draw_means(axes: Axes, groups: Sequence[Group], labels: Sequence[str], runs: Sequence[str]) -> None:
    for index, run in enumerate(runs):
        run_groups = [group for group in groups if group.run == run]
        shift = 0.5 * (index - (len(runs) - 1) / 2) / max(1, len(runs))
        ends: list[list[float]] = [[], []]
        for group in run_groups:
            ends[0].append(0.0 if group.low is None else group.value - group.low)
            ends[1].append(0.0 if group.high is None else group.high - group.value)
        places = [labels.index(group.label) + shift for group in run_groups]
        values = [group.value for group in run_groups]
        axes.errorbar(values, places, xerr=ends, fmt="o", capsize=3, color=f"C{index}", label=run or "all")
    axes.set_yticks(range(len(labels)), labels, parse_math=False)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.grid(axis="x", alpha=0.3)


def select_groups(rows: Sequence[Mapping[str, Any]]) -> list[Group]:
    """Select the largest groups, in order, from rows with `run`, `label`, `value`, `n_queries` and interval."""
    valued = [row for row in rows if row["value"] is not None]
    sizes: dict[str, int] = {}
    for row in valued:
        sizes[row["label"]] = sizes.get(row["label"], 0) + row["n_queries"]
    largest = set(sorted(sizes, key=lambda label: -sizes[label])[:MAX_SEGMENTS])
    return [
        Group(
            run=row["run"], label=row["label"], value=row["value"], low=row["ci_low"], high=row["ci_high"],
            n=row["n_queries"],
        )
        for row in valued
        if row["label"] in largest
    ]  # fmt: skip
