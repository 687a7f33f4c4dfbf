"""Whether the judgments of a table of their own match what runs ranked: ids in another case make every value 0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from ndcg_spark.core.columns import columns_of, named
from ndcg_spark.core.failures import readable_errors
from ndcg_spark.errors import InputRefusedError, option
from ndcg_spark.evaluation.frames.ranking import Ranking, long_rows, valid_only
from ndcg_spark.evaluation.tasks.query_rows import ITEM, RANK, RELEVANCE, RUN, SCORE, canonical_names
from ndcg_spark.evaluation.tasks.valid_rows import RowRules

MAX_IDS = 10_000
"""Judged ids that are looked for in a run. A run in which none of so many occurs has other ids."""
LOW_SHARE, LOW_RATIO = 0.01, 0.1
"""Shares of judged items below which a line says so: of all, and of the share of another run."""
_ITEM_JUDGED, _QUERY_JUDGED, _JUDGED = "item_judged", "query_judged", "judged"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopItems:
    """Items on the first k ranks of a run over all queries that count. `is_table`: the run is the whole table."""

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


def top_items(summary: Sequence[Mapping[str, Any]]) -> list[TopItems]:
    """Read rows of a summary: all queries, at the largest cutoff, of each run that has rows."""
    last: dict[str, Mapping[str, Any]] = {}
    for row in summary:
        if row["segment_by"] or row["run"] is None or not row["n_rows"] + row["n_left_out"]:
            continue
        other = last.setdefault(row["run"], row)
        if other["k"] is not None and (row["k"] is None or row["k"] > other["k"]):
            last[row["run"]] = row
    return [
        TopItems(
            run=run,
            k=row["k"],
            n_items=row["n_top_items"],
            n_judged=row["n_top_items"] - row["n_unjudged_items"],
        )
        for run, row in sorted(last.items())
    ]


def check_matched(
    found: Sequence[TopItems], ranking: Ranking, *, beside: Sequence[TopItems] = (), allowed: bool = False
) -> list[str]:
    """Refuse a run that a table of judgments does not match; return lines about runs with few judged items.

    A run is refused if none of its queries is judged, or if no item among its first K is and no judged item occurs
    anywhere in it. Runs an action, which reads run and judgments, if no item among the first K of a run is judged.
    `beside` are runs to compare the shares with; `allowed` refuses nothing.
    """
    if ranking.tables.of_runs:
        return []
    lines = []
    unmatched = [run for run in found if not run.n_judged]
    if unmatched and not (allowed or ranking.settings.allow_unmatched):
        matches = _find_matches(unmatched, ranking)
        unmatched = [run for run in unmatched if run.run in matches]  # others have no valid row
        for run in unmatched:
            _refuse_unmatched(run, matches[run.run], ranking)
    best = max((*found, *beside), key=lambda run: run.share, default=None)
    for run in found:
        if not run.n_judged:
            lines += [f"{run.label}{run.none_judged}"] if run in unmatched else []
        elif best is not None and (run.share < LOW_SHARE or run.share < LOW_RATIO * best.share):
            other = f"; of run {best.run!r}, {best.share:.2%}" if best.run != run.run else ""
            lines.append(f"{run.label}{run.share:.2%} of the {run.n_items:,} items {run.where} are judged{other}")
    return lines


def _find_matches(runs: Sequence[TopItems], ranking: Ranking) -> dict[str, Row]:
    """Run an action: find out for runs with valid rows if a query and an item are judged, and an id of each side."""
    settings, names = ranking.settings, canonical_names(ranking.settings)
    queries = [*names.query]
    rows = valid_only(long_rows(ranking.rows, settings), RowRules(settings))
    rows = rows.where(named(RANK if RANK in rows.columns else SCORE).isNotNull())
    if RUN not in rows.columns or runs[0].is_table:
        rows = rows.withColumn(RUN, F.lit(runs[0].run))
    rows = rows.where(F.col(RUN).isin([run.run for run in runs]))
    judgments: DataFrame = ranking.steps.judgments  # type: ignore[union-attr,assignment]  # arrays have none
    judged = judgments.where(F.col(RELEVANCE).isNotNull())
    ids = judged.select(ITEM).distinct().orderBy(F.xxhash64(ITEM), ITEM).limit(MAX_IDS)
    known = judged.select(*columns_of(queries)).distinct().withColumn(_QUERY_JUDGED, F.lit(True))
    examples = [F.min(ITEM).alias("item"), F.min(F.struct(*columns_of(queries))).alias("query")]
    matches = (
        rows.join(F.broadcast(ids.withColumn(_ITEM_JUDGED, F.lit(True))), ITEM, "left")
        .join(known, queries, "left")
        .groupBy(RUN)
        .agg(
            *(F.coalesce(F.max(flag), F.lit(False)).alias(flag) for flag in (_ITEM_JUDGED, _QUERY_JUDGED)), *examples
        )
    )
    with readable_errors():
        found = matches.crossJoin(judged.agg(F.struct(*examples).alias(_JUDGED))).collect()
    return {row[RUN]: row for row in found}


def _refuse_unmatched(run: TopItems, match: Row, ranking: Ranking) -> None:
    settings = ranking.settings
    way_out = f"{option('allow_unmatched', 'True')} keeps the zeros"
    if match[_JUDGED]["item"] is None:
        raise InputRefusedError(
            f"{run.label}no query is judged: the judgments have no row with a relevance; {way_out}."
        )
    if not match[_QUERY_JUDGED]:
        sides = [tuple(side["query"]) for side in (match, match[_JUDGED])]
        raise InputRefusedError(
            f"{run.label}none of its queries is judged; compare {_pair(settings.columns.query, *sides)}. {way_out}."
        )
    if not match[_ITEM_JUDGED]:
        sides = [(side["item"],) for side in (match, match[_JUDGED])]
        raise InputRefusedError(
            f"{run.label}{run.none_judged}, and no judged item occurs anywhere in it; compare "
            f"{_pair((str(settings.columns.item),), *sides)}. {way_out}."
        )


def _pair(names: Sequence[str], first: Sequence[Any], second: Sequence[Any]) -> str:
    """Show keys of two tables next to each other: `sku='ABC-1' with 'abc-1'`."""
    shown = ", ".join(f"{name}={value!r}" for name, value in zip(names, first, strict=True))
    return f"{shown} with {', '.join(map(repr, second))}"
