"""Hold every preset against the tool whose numbers it reproduces, query by query. Prints a table.

The tools are called live where they are installed, on the shared data sets and on seeded random rankings with ties,
negative labels, unjudged items, missing queries and short lists; with --engine also `ndcg_spark.evaluate` is held
against them. A tool that cannot be called from here is replaced by its definition in definitions.py.
Exit code 1 if a preset is off.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Literal

from ndcg_spark.conventions import PRESETS
from scripts.checks.peers.comparisons import (
    COMPARISONS,
    STORED,
    Outcome,
    against_random,
    against_shared,
    against_stored,
)
from scripts.checks.peers.data import DATA_SETS, find_shared_folder, load_shared
from scripts.checks.peers.metrics import metric_outcomes
from scripts.checks.peers.topics import topic_outcomes

HEADINGS = ("preset", "data", "compared with", "values", "worst difference", "tolerance", "")


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    outcomes = list(all_outcomes(range(arguments.seeds), engines=arguments.engine))
    order = {name: position for position, name in enumerate(PRESETS)}
    outcomes.sort(key=lambda outcome: order[get_preset(outcome)])
    print("\n".join(table(outcomes)))
    if find_shared_folder() is None:
        print("\nThe shared data sets are not there: NDCG_SPARK_SHARED_DATA may name their folder. Skipped.")
    off = sorted({outcome.convention for outcome in outcomes if outcome.is_off})
    skipped = sum(1 for outcome in outcomes if outcome.skipped)
    compared = sum(outcome.values for outcome in outcomes)
    print(f"\n{compared:,} values compared; {skipped} comparisons skipped; off: {', '.join(off) or 'none'}")
    return 1 if off else 0


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seeds", type=int, default=10, help="random data sets a comparison")
    about = "also evaluate the shared data by this engine; repeatable"
    options.add_argument("--engine", action="append", default=[], choices=["local", "spark"], help=about)
    return options


def all_outcomes(seeds: Sequence[int], *, engines: Sequence[Literal["local", "spark"]]) -> Iterator[Outcome]:
    folder = find_shared_folder()
    sets = [load_shared(folder, name) for name in DATA_SETS] if folder is not None else []
    for comparison in COMPARISONS:
        outcome = against_random(comparison, seeds)
        if comparison.optional and outcome.skipped:
            continue
        yield outcome
        taken = [] if outcome.skipped else [data for data in sets if comparison.takes(data)]
        yield from merge_outcomes(f"{len(taken)} shared sets", [against_shared(comparison, data) for data in taken])
    for tool in STORED:
        keys = [(data, run) for data in sets for name, run in data.expected if name == tool]
        yield from merge_outcomes(f"{len(keys)} shared runs", [against_stored(data, tool, run) for data, run in keys])
    yield from metric_outcomes(seeds, sets)
    yield from topic_outcomes(seeds)
    if engines:
        from scripts.checks.peers.engines import engine_outcomes  # PySpark takes its time to be imported

        for engine in engines:
            yield from engine_outcomes(sets, engine)


def merge_outcomes(data: str, outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Merge the outcomes of several data sets: number of values, and the worst difference."""
    compared = [outcome for outcome in outcomes if not outcome.skipped]
    if not compared:
        return list(outcomes[:1])
    values, worst = (
        sum(engine_outcome.values for engine_outcome in compared),
        max(engine_outcome.worst for engine_outcome in compared),
    )
    return [replace(compared[0], data=data, values=values, worst=worst)]


def get_preset(outcome: Outcome) -> str:
    return outcome.convention.partition(";")[0]


def table(outcomes: Iterable[Outcome]) -> list[str]:
    """Aligned for a terminal, and Markdown all the same."""
    rows = [HEADINGS, *(_cells(outcome) for outcome in outcomes)]
    widths = [max(len(row[index]) for row in rows) for index in range(len(HEADINGS))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    return [lines[0], "| " + " | ".join("-" * max(3, width) for width in widths) + " |", *lines[1:]]


def _cells(outcome: Outcome) -> tuple[str, ...]:
    names = (outcome.convention, outcome.data, outcome.tool)
    if outcome.skipped:
        return (*names, "", "", "", f"skipped: {outcome.skipped}")
    numbers = (f"{outcome.values}", f"{outcome.worst:.2g}", f"{outcome.tolerance:.2g}")
    return (*names, *numbers, "OFF" if outcome.is_off else "ok")


if __name__ == "__main__":
    sys.exit(main())
