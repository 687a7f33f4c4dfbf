"""Sums of groups in, rows of a comparison out: estimates, tests, and what many tests at once leave of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from ndcg_spark.comparison import kernels
from ndcg_spark.comparison.kernels import PairedEstimate, Squares, benjamini_hochberg, holm
from ndcg_spark.comparison.settings import ComparisonSettings, is_companion
from ndcg_spark.comparison.tasks.summing import (
    BASE,
    BLOCKS,
    COUNTS,
    DRAWS,
    TEXTS,
    UNITS,
    Base,
    GroupKey,
    Totals,
    add_replicates,
    stored_numbers,
    sums_from_bytes,
    travelling,
)
from ndcg_spark.core import labels
from ndcg_spark.core.student import detectable_effect, required_units
from ndcg_spark.errors import InputRefusedError, option
from ndcg_spark.evaluation.rules import MIXED, RULES, add_weight, combine_rules, read_rules
from ndcg_spark.metrics import EVERY, at_cutoff, direction_of, judge_change

_TEXT, _INT, _WHOLE, _NUMBER, _WHOLES = pa.string(), pa.int32(), pa.int64(), pa.float64(), pa.list_(pa.int64())
RESULT_SCHEMA = pa.schema(
    [
        *((name, _TEXT) for name in ("run", "baseline", "segment_by", "segment", "metric")),
        ("k", _INT),
        (labels.ASKED, _TEXT),
        *((name, _WHOLE) for name in COUNTS),
        *(
            (name, _NUMBER)
            for name in (
                "value", "baseline_value", "difference", "weight_sum", "std_error", "df", "ci_low", "ci_high", "t",
                "p_value", "p_sign_flip", "boot_low", "boot_high", "boot_t_low", "boot_t_high", "lift", "lift_low",
                "lift_high", "design_effect", "n_effective", "n_clusters_effective", "p_holm", "p_bh", "mde",
            )
        ),
        *((name, _WHOLE) for name in ("n_flips", "n_replicates", "seed", "family_size", "n_required")),
        *((name, _TEXT) for name in ("verdict", "note", "cluster_by", "unpaired", RULES)),
        ("state", _WHOLES),
        ("replicates", _WHOLES),
    ]
)  # fmt: skip
TOP_ITEMS = "__top_items"
"""A column beside those of a comparison that is neither shown nor stored: sums as in `Base`."""
COUNTED_SCHEMA = RESULT_SCHEMA.append(pa.field(TOP_ITEMS, _WHOLES))
ONE_SIDE_EMPTY = "one_side_empty"
"""Note on a segment in which one of the runs has no query: what the other has is compared with nothing."""
OF_FAMILY = ("p_holm", "p_bh", "family_size", "verdict")
"""Columns that depend on all rows of a comparison."""
UNTESTED, UNCLEAR = "untested", "unclear"
"""Verdicts that are settled before the family is there: of a companion, which is stored as null; of no evidence."""
HELD_RESULTS = 64
"""Rows of a batch of results; with stored replicates a row has some hundred kilobytes."""


def estimate_groups(batches: Iterator[pa.RecordBatch], settings: ComparisonSettings) -> Iterator[pa.RecordBatch]:
    """Estimate each group from its merged rows, all in one worker; `OF_FAMILY` is filled in later."""
    held: dict[GroupKey, Totals] = {}
    for key, kind, block, payload in travelling(batches):
        totals = held.setdefault(key, Totals())
        if kind == BASE:
            totals.base = Base.from_bytes(payload)
        elif kind == UNITS:
            totals.units.append(payload)
        elif kind == TEXTS:
            totals.rules.add(payload.decode())
        else:
            length = settings.replicates if kind == DRAWS else settings.flips
            start, whole = block * BLOCKS[kind], totals.replicates(kind)
            for place, sums in sums_from_bytes(payload).items():
                numbers = whole.setdefault(place, np.zeros(length, dtype=np.int64))
                numbers[start : start + len(sums)] = sums
    rows: list[dict[str, Any]] = []
    for key in list(held):
        totals = held.pop(key)
        add_replicates(totals, settings)
        rows.append(_result(key, totals, settings))
        if len(rows) >= HELD_RESULTS:
            yield _row_batch(rows)
            rows = []
    if rows:
        yield _row_batch(rows)


def _row_batch(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=COUNTED_SCHEMA)


def _result(key: GroupKey, totals: Totals, settings: ComparisonSettings) -> dict[str, Any]:
    """Compute a row of a comparison. The columns that need its family of tests are added later."""
    baseline, run = settings.pairs[key.pair]
    names = ((), *settings.segment_sets)[key.segment_set]
    stored = None
    if settings.keep_replicates:
        stored = stored_numbers([(settings.replicates, totals.drawn), (settings.flips, totals.flipped)])
    metric = settings.compared[key.metric]
    at = at_cutoff(settings.metrics, key.k)[metric]
    row = {
        "run": settings.runs[run], "baseline": settings.runs[baseline], "segment_by": "+".join(names),
        "segment": key.segment,
        "metric": str(metric), "k": key.k, labels.ASKED: at.asked_at, "seed": settings.seed,
        "cluster_by": settings.cluster or "",
        "unpaired": settings.unpaired, "n_replicates": settings.replicates, "state": totals.base.state.tolist(),
        "replicates": stored, RULES: _rules(totals, settings.runs[run], settings.runs[baseline], settings),
        TOP_ITEMS: totals.base.top_items.tolist(), **estimates_of(totals, settings),
    }  # fmt: skip
    if direction_of(str(metric)) is False:
        row["n_wins"], row["n_losses"] = row["n_losses"], row["n_wins"]
    return settled(row, is_companion=is_companion(at), one_side_empty=totals.base.one_side_empty)


def _rules(totals: Totals, run: str, baseline: str, settings: ComparisonSettings) -> str | None:
    what = f"the comparison of {run!r} with {baseline!r}"
    rules = combine_rules(sorted(totals.rules), what, across=settings.across_rules)
    unpaired = settings.unpaired != "drop" and totals.base.counts[4:6].any()
    if unpaired and read_rules(rules).get("sample") == MIXED:
        raise InputRefusedError(
            f"{what} is of two samples, and would count queries that one of them does not have as missing; choose "
            f"{option('unpaired', 'drop')}."
        )
    return add_weight(rules, weighted=settings.weight is not None)


def settled(row: dict[str, Any], *, is_companion: bool, one_side_empty: bool) -> dict[str, Any]:
    """A row whose verdict does not depend on its family, if it is one of those that are not tested."""
    if one_side_empty:
        note = ",".join([ONE_SIDE_EMPTY, *filter(None, [row["note"]])])
        row = row | {"note": note, "p_value": None, "p_sign_flip": None, "verdict": UNCLEAR}
    return row | {"p_value": None, "verdict": UNTESTED} if is_companion else row


def estimates_of(totals: Totals, settings: ComparisonSettings) -> dict[str, Any]:
    """Counts of a group, and all that is estimated from its sums; what is not defined is left out or None."""
    base = totals.base
    counts = dict(zip(COUNTS, base.counts.tolist(), strict=True))
    n = counts["n_queries"]
    sums, clustered = kernels.SUMS.fractions(base.state), settings.cluster is not None
    queries = squares = kernels.read_squares(sums, n)
    if clustered:
        squares = kernels.read_squares(kernels.SQUARES.fractions(base.squares), counts["n_clusters"])
    no_spread = has_no_spread(base)
    found = kernels.paired_estimate(sums, squares, alpha=settings.alpha, lift=settings.lift, no_spread=no_spread)
    row: dict[str, Any] = {**counts, "n_clusters": None}
    row |= {name: getattr(found, name) for name in PairedEstimate.__dataclass_fields__}
    row |= (
        _flips(totals, sums, settings) | _bootstrap(totals, found, n, settings) | _power(found, squares, n, settings)
    )
    if clustered:
        row["n_clusters"] = counts["n_clusters"]
        if squares.ww:
            row["n_clusters_effective"] = float(sums["w"] ** 2 / squares.ww)
        row |= design_of(found.std_error, sums, queries)
    row["note"] = ",".join(notes_of(row, no_spread=no_spread))
    return row


def has_no_spread(base: Base) -> bool:
    """Whether all differences of a group are the same, so that no test can be made."""
    return bool(base.counts[0] > 1 and base.low == base.high)


def _flips(totals: Totals, sums: dict[str, Fraction], settings: ComparisonSettings) -> dict[str, Any]:
    base, slack = totals.base, sums["n_differ"] * Fraction(kernels.DELTA_UNIT)
    if not base.counts[0]:
        return {}
    if base.differences is not None:
        return {"p_sign_flip": kernels.exact_flip_p(base.differences, slack), "n_flips": 0}
    if not settings.flips:
        return {}
    return {
        "p_sign_flip": kernels.hashed_flip_p(totals.flipped, sums["delta"], slack, settings.flips),
        "n_flips": settings.flips,
    }


def _bootstrap(totals: Totals, found: PairedEstimate, n: int, settings: ComparisonSettings) -> dict[str, Any]:
    if not settings.replicates or n < kernels.FEW_QUERIES or found.difference is None or not found.std_error:
        return {}
    drawn = kernels.DRAWN.named(totals.drawn)
    means, distances = kernels.replicate_values(drawn, found.difference, settings.replicates)
    low, high = kernels.percentile_interval(means, alpha=settings.alpha)
    t_low, t_high = kernels.studentised_interval(distances, found.difference, found.std_error, alpha=settings.alpha)
    return {"boot_low": low, "boot_high": high, "boot_t_low": t_low, "boot_t_high": t_high}


def _power(found: PairedEstimate, squares: Squares, n: int, settings: ComparisonSettings) -> dict[str, Any]:
    if not found.std_error or found.df is None:
        return {}
    row: dict[str, Any] = {"mde": detectable_effect(found.std_error, found.df, alpha=settings.alpha)}
    if settings.effect is not None:
        units = required_units(settings.effect, found.std_error, squares.n, alpha=settings.alpha)
        row["n_required"] = math.ceil(Fraction(units * n, squares.n))
    return row


def design_of(std_error: float | None, sums: dict[str, Fraction], queries: Squares) -> dict[str, Any]:
    """What an error that takes some queries as dependent is against one that takes none."""
    if std_error is None or queries.n < 2:
        return {}
    plain = kernels.error_of_difference(sums, queries)
    if plain <= 0:
        return {}
    effect = (std_error / plain) ** 2
    return {"design_effect": effect, "n_effective": queries.n / effect if effect else None}


def notes_of(row: dict[str, Any], *, no_spread: bool) -> Iterator[str]:
    """Words that a reader must know about a row."""
    if no_spread:
        yield "no_spread"
    if row["n_queries"] < kernels.FEW_QUERIES:
        yield "few_queries"
    if row.get("n_clusters_effective") is not None and row["n_clusters_effective"] < kernels.FEW_CLUSTERS:
        yield "few_clusters"


def decide_family(batches: Iterator[pa.RecordBatch], settings: ComparisonSettings) -> Iterator[pa.RecordBatch]:
    """Adjust the p-values of all rows of a comparison, and decide on each."""
    tables = _at_its_cutoffs([batch for batch in batches if batch.num_rows], settings)
    _refuse_empty_sides(tables, settings)
    p_values = [p for batch in tables for p in batch.column("p_value").to_pylist()]
    for batch in decided(tables, p_values, alpha=settings.alpha, margin=settings.margin):
        yield batch.cast(COUNTED_SCHEMA)


def _refuse_empty_sides(tables: Sequence[pa.RecordBatch], settings: ComparisonSettings) -> None:
    """Refuse a run without rows: by `unpaired=zero` its queries would all count as zeros."""
    names = ("run", "baseline", "segment_by", "k", "note", "n_only_run")
    rows = [row for batch in tables for row in batch.select(names).to_pylist() if not row["segment_by"]]
    there, lacking = set(), []
    for row in rows:
        if ONE_SIDE_EMPTY not in row["note"].split(","):
            there |= {row["run"], row["baseline"]}
        else:
            has, lacks = ("run", "baseline") if row["n_only_run"] else ("baseline", "run")
            there.add(row[has])
            lacking.append((row[lacks], row[has], labels.cutoff(row["k"])))
    if not lacking:
        return
    lacks, has, k = min(lacking, key=lambda one: (one[0] in there, *map(str, one)))
    if lacks in there:
        raise InputRefusedError(
            f"run {lacks!r} has no query at k={k}, where {has!r} has some; choose cutoffs that both have (k)."
        )
    known = ", ".join(repr(run) for run in settings.runs if run in there)
    raise InputRefusedError(f"run {lacks!r} has no rows; of the runs to compare, these have some: {known}.")


def _at_its_cutoffs(tables: list[pa.RecordBatch], settings: ComparisonSettings) -> list[pa.RecordBatch]:
    """Leave out rows of a metric at cutoffs at which no pair has a query with a value.

    Per-query tables have a row for each cutoff, and a metric is null where it was not asked for. Rows stay where the
    cutoff was named, and of a metric that has no value at all.
    """
    compared: dict[str, set[int | None]] = {}
    for batch in tables:
        for row in batch.select(["segment_by", "metric", "k", "n_queries"]).to_pylist():
            if not row["segment_by"] and row["n_queries"]:
                compared.setdefault(row["metric"], set()).add(row["k"])
    everywhere = {str(one.metric) for one in settings.metrics if one.k == EVERY} & compared.keys()
    kept = []
    for batch in tables:
        at = zip(batch.column("metric").to_pylist(), batch.column("k").to_pylist(), strict=True)
        rows = batch.filter(pa.array([name not in everywhere or k in compared[name] for name, k in at], pa.bool_()))
        kept += [rows] if rows.num_rows else []
    return kept


def decided(
    tables: Sequence[pa.RecordBatch], p_values: Sequence[float | None], *, alpha: float, margin: float
) -> Iterator[pa.RecordBatch]:
    """Fill in the columns `OF_FAMILY` of all rows of a family, whose p-values are given.

    Rows whose verdict is settled already are not in the family.
    """
    before = [verdict for batch in tables for verdict in batch.column("verdict").to_pylist()]
    p_values = [None if verdict else p for p, verdict in zip(p_values, before, strict=True)]
    adjusted = list(zip(holm(p_values), benjamini_hochberg(p_values), strict=True))
    family, at = sum(p is not None for p in p_values), 0
    for batch in tables:
        its, given = adjusted[at : at + batch.num_rows], before[at : at + batch.num_rows]
        at += batch.num_rows
        rows = batch.select(["metric", "difference", "ci_low", "ci_high"]).to_pylist()
        verdicts = [
            (None if verdict == UNTESTED else verdict) if verdict else verdict_of(row, p, alpha=alpha, margin=margin)
            for (p, _), row, verdict in zip(its, rows, given, strict=True)
        ]
        columns = {
            "p_holm": pa.array([p for p, _ in its], _NUMBER),
            "p_bh": pa.array([p for _, p in its], _NUMBER),
            "family_size": pa.array([family] * batch.num_rows, _WHOLE),
            "verdict": pa.array(verdicts, _TEXT),
        }
        arrays = [columns.get(name, batch.column(name)) for name in batch.schema.names]
        yield pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def verdict_of(row: dict[str, Any], p_holm: float | None, *, alpha: float, margin: float) -> str:
    """Say in a word what a row shows: by its metric, difference and interval."""
    if p_holm is not None and row["difference"] is not None and p_holm <= alpha:
        return judge_change(row["metric"], row["difference"])
    larger_is_better = direction_of(row["metric"])
    if larger_is_better is None or row["ci_low"] is None:
        return UNCLEAR
    is_not_worse = row["ci_low"] > -margin if larger_is_better else row["ci_high"] < margin
    return "not_worse" if is_not_worse else UNCLEAR
