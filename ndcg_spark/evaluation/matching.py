"""Check that a judgments table matches the ranked items: ids in another case would make every value 0."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ndcg_spark.errors import InputRefusedError, option
from ndcg_spark.evaluation.settings import EvaluationSettings

LOW_SHARE, LOW_RATIO = 0.01, 0.1
"""A run is reported if its share of judged items is below these: absolute, and relative to the best run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopItems:
    """Counts of items on the first k ranks of a run. `is_table` is True if the run is the whole table."""

    run: str
    k: int | None
    n_items: int
    n_judged: int
    is_table: bool = False

    @property
    def share(self) -> float:
        return self.n_judged / self.n_items if self.n_items else 0.0

    @property
    def label(self) -> str:
        return f"run {self.run!r}: " if self.run else ""

    @property
    def none_judged(self) -> str:
        return f"{f'none of the {self.n_items:,} items' if self.n_items else 'no item'} {self.where} is judged"

    @property
    def where(self) -> str:
        return "ranked" if self.k is None else f"ranked among the first {self.k}"


def read_top_items(summary: Sequence[Mapping[str, Any]]) -> list[TopItems]:
    """Read the counts of each run with rows from a summary: all queries, at the largest cutoff."""
    last_rows: dict[str, Mapping[str, Any]] = {}
    for row in summary:
        if row["segment_by"] or row["run"] is None or not row["n_rows"] + row["n_left_out"]:
            continue
        other = last_rows.setdefault(row["run"], row)
        if other["k"] is not None and (row["k"] is None or row["k"] > other["k"]):
            last_rows[row["run"]] = row
    return [
        TopItems(
            run=run,
            k=row["k"],
            n_items=row["n_top_items"],
            n_judged=row["n_top_items"] - row["n_unjudged_items"],
        )
        for run, row in sorted(last_rows.items())
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """Flags for a run with any judged query and item, and examples of ids of the run and of the judgments."""

    query_judged: bool
    item_judged: bool
    item: Any
    query: tuple[Any, ...]
    judged_item: Any
    judged_query: tuple[Any, ...]


def check_top_items(
    runs: Sequence[TopItems],
    settings: EvaluationSettings,
    find_matches: Callable[[Sequence[TopItems]], Mapping[str, Match]],
    *,
    other_runs: Sequence[TopItems] = (),
    allowed: bool = False,
) -> list[str]:
    """Refuse a run that a table of judgments does not match; return lines about runs with few judged items.

    A run is refused if none of its queries is judged; or if none of its first K items is judged and no judged item
    occurs anywhere in it. `find_matches` is called with the runs without judged items among their first K, and leaves
    out runs without a valid row. Shares are also compared with `other_runs`; `allowed` refuses nothing.
    """
    lines = []
    unmatched = [run for run in runs if not run.n_judged]
    if unmatched and not (allowed or settings.allow_unmatched):
        matches = find_matches(unmatched)
        unmatched = [run for run in unmatched if run.run in matches]
        for run in unmatched:
            _refuse_unmatched(run, matches[run.run], settings)
    best = max((*runs, *other_runs), key=lambda run: run.share, default=None)
    for run in runs:
        if not run.n_judged:
            lines += [f"{run.label}{run.none_judged}"] if run in unmatched else []
        elif best is not None and (run.share < LOW_SHARE or run.share < LOW_RATIO * best.share):
            other = f"; of run {best.run!r}, {best.share:.2%}" if best.run != run.run else ""
            lines.append(f"{run.label}{run.share:.2%} of the {run.n_items:,} items {run.where} are judged{other}")
    return lines


def _refuse_unmatched(run: TopItems, match: Match, settings: EvaluationSettings) -> None:
    advice = f"{option('allow_unmatched', 'True')} accepts zeros"
    if match.judged_item is None:
        raise InputRefusedError(f"{run.label}no query is judged: the judgments have no relevances; {advice}.")
    if not match.query_judged:
        pair = _format_pair(settings.columns.query, match.query, match.judged_query)
        raise InputRefusedError(f"{run.label}none of its queries is judged; compare {pair}. {advice}.")
    if not match.item_judged:
        pair = _format_pair((str(settings.columns.item),), (match.item,), (match.judged_item,))
        raise InputRefusedError(
            f"{run.label}{run.none_judged}, and no judged item occurs anywhere in it; compare {pair}. {advice}."
        )


def _format_pair(names: Sequence[str], first: Sequence[Any], second: Sequence[Any]) -> str:
    """Format keys of two tables for comparison: `sku='ABC-1' with 'abc-1'`."""
    keys = ", ".join(f"{name}={value!r}" for name, value in zip(names, first, strict=True))
    return f"{keys} with {', '.join(map(repr, second))}"
