"""Turn the sums of groups into rows of a comparison: estimates, tests, and their adjustment for multiple testing."""

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
    BLOCKS,
    COUNTS,
    DRAWS,
    GROUP_SUMS,
    RULE_TEXTS,
    UNITS,
    Group,
    GroupKey,
    GroupSums,
    add_unsummed_units,
    iterate_partials,
    pack_replicates,
    sums_from_bytes,
)
from ndcg_spark.core import labels
from ndcg_spark.core.student import detectable_effect, required_units
from ndcg_spark.errors import InputRefusedError, option
from ndcg_spark.evaluation.rules import MIXED, RULES, add_weight, combine_rules, read_rules
from ndcg_spark.metrics import EVERY, at_cutoff, direction_of, has_value_when_missing, judge_change

_TEXT, _INT32, _INT64, _NUMBER, _INT64_LIST = pa.string(), pa.int32(), pa.int64(), pa.float64(), pa.list_(pa.int64())
RESULT_SCHEMA = pa.schema(
    [
        *((name, _TEXT) for name in ("run", "baseline", "segment_by", "segment", "metric")),
        ("k", _INT32),
        (labels.ASKED, _TEXT),
        *((name, _INT64) for name in COUNTS),
        *(
            (name, _NUMBER)
            for name in (
                "value", "baseline_value", "difference", "weight_sum", "std_error", "df", "ci_low", "ci_high", "t",
                "p_value", "p_sign_flip", "boot_low", "boot_high", "boot_t_low", "boot_t_high", "lift", "lift_low",
                "lift_high", "design_effect", "n_effective", "n_clusters_effective", "p_holm", "p_bh", "mde",
            )
        ),
        *((name, _INT64) for name in ("n_flips", "n_replicates", "seed", "family_size", "n_required")),
        *((name, _TEXT) for name in ("verdict", "note", "cluster_by", "unpaired", RULES)),
        ("state", _INT64_LIST),
        ("replicates", _INT64_LIST),
    ]
)  # fmt: skip
PAIR_TOP_ITEMS = "__top_items"
"""Extra column, neither shown nor stored: `GroupSums.top_items`, which show whether judgments match the runs."""
SCHEMA_WITH_TOP_ITEMS = RESULT_SCHEMA.append(pa.field(PAIR_TOP_ITEMS, _INT64_LIST))
ONE_SIDE_EMPTY = "one_side_empty"
"""Note on a segment in which one of the runs has no query, so that there is nothing to compare with."""
MAX_SHARED_BY_CHANCE = 0.1
"""Largest share of the queries of the smaller run with which two runs are taken to answer different queries."""
FAMILY_COLUMNS = ("p_holm", "p_bh", "family_size", "verdict")
"""Columns that depend on all rows of a comparison."""
UNTESTED, UNCLEAR = "untested", "unclear"
"""Verdicts: `untested` on a companion metric, stored as null; `unclear` without evidence of a difference."""
RESULTS_PER_BATCH = 64
"""Small, because a row with stored replicates has some hundred kilobytes."""


def estimate_groups(batches: Iterator[pa.RecordBatch], settings: ComparisonSettings) -> Iterator[pa.RecordBatch]:
    """Estimate each group from its merged rows, which must all be on one worker.

    `FAMILY_COLUMNS` stay null, except the verdicts of rows that are not tested.
    """
    groups: dict[GroupKey, Group] = {}
    for key, kind, block, payload in iterate_partials(batches):
        group = groups.setdefault(key, Group())
        if kind == GROUP_SUMS:
            group.sums = GroupSums.from_bytes(payload)
        elif kind == UNITS:
            group.units.append(payload)
        elif kind == RULE_TEXTS:
            group.rules.add(payload.decode())
        else:
            length = settings.replicates if kind == DRAWS else settings.flips
            start, all_sums = block * BLOCKS[kind], group.replicates(kind)
            for place, sums in sums_from_bytes(payload).items():
                numbers = all_sums.setdefault(place, np.zeros(length, dtype=np.int64))
                numbers[start : start + len(sums)] = sums
    rows: list[dict[str, Any]] = []
    for key in list(groups):
        group = groups.pop(key)
        if not group.sums.counts.any():  # only common queries of weight 0
            continue
        add_unsummed_units(group, settings)
        rows.append(_build_row(key, group, settings))
        if len(rows) >= RESULTS_PER_BATCH:
            yield _build_batch(rows)
            rows = []
    if rows:
        yield _build_batch(rows)


def _build_batch(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA_WITH_TOP_ITEMS)


def _build_row(key: GroupKey, group: Group, settings: ComparisonSettings) -> dict[str, Any]:
    """Compute the row of a group, without the columns that depend on the family of tests."""
    baseline, run = settings.pairs[key.pair]
    columns = ((), *settings.segment_sets)[key.segment_set]
    stored = None
    if settings.keep_replicates:
        stored = pack_replicates([(settings.replicates, group.drawn), (settings.flips, group.flipped)])
    metric = settings.compared[key.metric]
    metric_at = at_cutoff(settings.metrics, key.k)[metric]
    if not columns and settings.unpaired == "zero" and has_value_when_missing(str(metric)):
        _refuse_different_queries(group.sums, settings.runs[run], settings.runs[baseline])
    row = {
        "run": settings.runs[run], "baseline": settings.runs[baseline], "segment_by": "+".join(columns),
        "segment": key.segment,
        "metric": str(metric), "k": key.k, labels.ASKED: metric_at.asked_at, "seed": settings.seed,
        "cluster_by": settings.cluster or "",
        "unpaired": settings.unpaired, "n_replicates": settings.replicates, "state": group.sums.state.tolist(),
        "replicates": stored, RULES: _combine_rules(group, settings.runs[run], settings.runs[baseline], settings),
        PAIR_TOP_ITEMS: group.sums.top_items.tolist(), **compute_estimates(group, settings),
    }  # fmt: skip
    if direction_of(str(metric)) is False:
        row["n_wins"], row["n_losses"] = row["n_losses"], row["n_wins"]
    return mark_if_untested(row, is_companion=is_companion(metric_at), one_side_empty=group.sums.one_side_empty)


def _refuse_different_queries(group_sums: GroupSums, run: str, baseline: str) -> None:
    """Refuse runs that share hardly any query: if missing ones count as 0, the run with more would be better."""
    shared = group_sums.n_shared
    fewer = shared + min(group_sums.n_unpaired)
    if fewer >= kernels.MIN_QUERIES and shared <= MAX_SHARED_BY_CHANCE * fewer:
        raise InputRefusedError(
            f"runs {baseline!r} and {run!r} share {shared:,} of {fewer:,} queries, as in an A/B test: a query that a "
            "run lacks counts as 0, so the run with more queries would be better; choose "
            f"{option('unpaired', 'drop')} to compare the shared queries, or do not compare these runs."
        )


def _combine_rules(group: Group, run: str, baseline: str, settings: ComparisonSettings) -> str | None:
    subject = f"the comparison of {run!r} with {baseline!r}"
    rules = combine_rules(sorted(group.rules), subject, across=settings.across_rules)
    unpaired = settings.unpaired != "drop" and any(group.sums.n_unpaired)
    if unpaired and read_rules(rules).get("sample") == MIXED:
        raise InputRefusedError(
            f"{subject} uses two different samples of queries, so queries that are in one sample only would count as "
            f"missing; choose {option('unpaired', 'drop')}."
        )
    return add_weight(rules, weighted=settings.weight is not None)


def mark_if_untested(row: dict[str, Any], *, is_companion: bool, one_side_empty: bool) -> dict[str, Any]:
    """Set the verdict of a row that is not tested, and remove its p-values; return other rows unchanged."""
    if one_side_empty:
        note = ",".join([ONE_SIDE_EMPTY, *filter(None, [row["note"]])])
        row = row | {"note": note, "p_value": None, "p_sign_flip": None, "verdict": UNCLEAR}
    return row | {"p_value": None, "verdict": UNTESTED} if is_companion else row


def compute_estimates(group: Group, settings: ComparisonSettings) -> dict[str, Any]:
    """Compute counts and estimates of a group from its sums; undefined estimates are None or left out.

    History passes the sums of a period, which have no `differences`, so that no exact sign-flip test is made.
    """
    group_sums = group.sums
    counts = dict(zip(COUNTS, group_sums.counts.tolist(), strict=True))
    n = counts["n_queries"]
    sums, clustered = kernels.SUMS.fractions(group_sums.state), settings.cluster is not None
    queries = squares = kernels.select_squares(sums, n)
    if clustered:
        squares = kernels.select_squares(kernels.SQUARES.fractions(group_sums.squares), counts["n_clusters"])
    no_spread = has_no_spread(group_sums)
    estimate = kernels.estimate_difference(
        sums, squares, alpha=settings.alpha, lift=settings.lift, no_spread=no_spread
    )
    row: dict[str, Any] = {**counts, "n_clusters": None}
    row |= {field: getattr(estimate, field) for field in PairedEstimate.__dataclass_fields__}
    row |= (
        _test_sign_flips(group, sums, settings)
        | _compute_bootstrap(group, estimate, n, settings)
        | _compute_power(estimate, squares, n, settings)
    )
    if clustered:
        row["n_clusters"] = counts["n_clusters"]
        if squares.ww:
            row["n_clusters_effective"] = float(sums["w"] ** 2 / squares.ww)
        row |= compute_design_effect(estimate.std_error, sums, queries)
    row["note"] = ",".join(list_notes(row, no_spread=no_spread))
    return row


def has_no_spread(sums: GroupSums) -> bool:
    """Return True if all differences of a group are equal, so that no test is possible."""
    return bool(sums.counts[0] > 1 and sums.low == sums.high)


def _test_sign_flips(group: Group, sums: dict[str, Fraction], settings: ComparisonSettings) -> dict[str, Any]:
    differences, slack = group.sums.differences, sums["w_differ"] * Fraction(kernels.DELTA_STEP)
    if not group.sums.counts[0]:
        return {}
    if differences is not None:
        return {"p_sign_flip": kernels.exact_flip_p(differences, slack), "n_flips": 0}
    if not settings.flips:
        return {}
    return {
        "p_sign_flip": kernels.random_flip_p(group.flipped, sums["delta"], slack, settings.flips),
        "n_flips": settings.flips,
    }


def _compute_bootstrap(
    group: Group, estimate: PairedEstimate, n: int, settings: ComparisonSettings
) -> dict[str, Any]:
    if not settings.replicates or n < kernels.MIN_QUERIES or estimate.difference is None or not estimate.std_error:
        return {}
    drawn = kernels.DRAWN.named(group.drawn)
    means, t_statistics = kernels.bootstrap_statistics(drawn, estimate.difference, settings.replicates)
    low, high = kernels.percentile_interval(means, alpha=settings.alpha)
    t_low, t_high = kernels.studentised_interval(
        t_statistics, estimate.difference, estimate.std_error, alpha=settings.alpha
    )
    return {"boot_low": low, "boot_high": high, "boot_t_low": t_low, "boot_t_high": t_high}


def _compute_power(
    estimate: PairedEstimate, squares: Squares, n: int, settings: ComparisonSettings
) -> dict[str, Any]:
    if not estimate.std_error or estimate.df is None:
        return {}
    effect = detectable_effect(estimate.std_error, estimate.df, alpha=settings.alpha)
    row: dict[str, Any] = {"mde": None if math.isnan(effect) else effect}
    if settings.effect is not None:
        units = required_units(settings.effect, estimate.std_error, squares.n, alpha=settings.alpha)
        row["n_required"] = math.ceil(Fraction(units * n, squares.n))
    return row


def compute_design_effect(std_error: float | None, sums: dict[str, Fraction], queries: Squares) -> dict[str, Any]:
    """Compute the design effect: the squared ratio of the clustered standard error to the unclustered one."""
    if std_error is None or queries.n < 2:
        return {}
    unclustered = kernels.error_of_difference(sums, queries)
    if unclustered <= 0:
        return {}
    effect = (std_error / unclustered) ** 2
    return {"design_effect": effect, "n_effective": queries.n / effect if effect else None}


def list_notes(row: dict[str, Any], *, no_spread: bool) -> Iterator[str]:
    """Yield the warnings that apply to a row."""
    if no_spread:
        yield "no_spread"
    if row["n_queries"] < kernels.MIN_QUERIES:
        yield "few_queries"
    if row.get("n_clusters_effective") is not None and row["n_clusters_effective"] < kernels.MIN_CLUSTERS:
        yield "few_clusters"


def decide_family(batches: Iterator[pa.RecordBatch], settings: ComparisonSettings) -> Iterator[pa.RecordBatch]:
    """Adjust the p-values of all rows of a comparison and set their verdicts, without cutoffs that have no values.

    Refuses a run without rows.
    """
    kept_batches = _drop_empty_cutoffs([batch for batch in batches if batch.num_rows], settings)
    _refuse_empty_sides(kept_batches, settings)
    p_values = [p for batch in kept_batches for p in batch.column("p_value").to_pylist()]
    for batch in fill_family_columns(kept_batches, p_values, alpha=settings.alpha, margin=settings.margin):
        yield batch.cast(SCHEMA_WITH_TOP_ITEMS)


def _refuse_empty_sides(batches: Sequence[pa.RecordBatch], settings: ComparisonSettings) -> None:
    """Refuse a run without rows: with `unpaired=zero` all of its queries would count as 0."""
    columns = ("run", "baseline", "segment_by", "k", "note", "n_only_run")
    rows = [row for batch in batches for row in batch.select(columns).to_pylist() if not row["segment_by"]]
    with_rows, lacking = set(), []
    for row in rows:
        if ONE_SIDE_EMPTY not in row["note"].split(","):
            with_rows |= {row["run"], row["baseline"]}
        else:
            has, lacks = ("run", "baseline") if row["n_only_run"] else ("baseline", "run")
            with_rows.add(row[has])
            lacking.append((row[lacks], row[has], labels.cutoff(row["k"])))
    if not lacking:
        return
    lacks, has, k = min(lacking, key=lambda sides: (sides[0] in with_rows, *map(str, sides)))
    if lacks in with_rows:
        raise InputRefusedError(
            f"run {lacks!r} has no query at k={k}, where {has!r} has some; choose cutoffs that both have (k)."
        )
    known = ", ".join(repr(run) for run in settings.runs if run in with_rows)
    raise InputRefusedError(f"run {lacks!r} has no rows; of the runs to compare, these have some: {known}.")


def _drop_empty_cutoffs(batches: list[pa.RecordBatch], settings: ComparisonSettings) -> list[pa.RecordBatch]:
    """Drop rows of a metric at cutoffs where no pair has a query with a value.

    Per-query tables have a row for each cutoff, with nulls in metrics that were not requested there. Rows are kept if
    the user named the cutoff, or if the metric has no value at any cutoff.
    """
    cutoffs: dict[str, set[int | None]] = {}
    for batch in batches:
        for row in batch.select(["segment_by", "metric", "k", "n_queries"]).to_pylist():
            if not row["segment_by"] and row["n_queries"]:
                cutoffs.setdefault(row["metric"], set()).add(row["k"])
    everywhere = {str(metric.metric) for metric in settings.metrics if metric.k == EVERY} & cutoffs.keys()
    filtered = []
    for batch in batches:
        metrics_and_ks = zip(batch.column("metric").to_pylist(), batch.column("k").to_pylist(), strict=True)
        rows = batch.filter(
            pa.array([name not in everywhere or k in cutoffs[name] for name, k in metrics_and_ks], pa.bool_())
        )
        filtered += [rows] if rows.num_rows else []
    return filtered


def fill_family_columns(
    batches: Sequence[pa.RecordBatch], p_values: Sequence[float | None], *, alpha: float, margin: float
) -> Iterator[pa.RecordBatch]:
    """Adjust the p-values of a family of tests, and fill in `FAMILY_COLUMNS` of its rows.

    `p_values` are those of all rows, in order. Rows that have a verdict already are not in the family.
    """
    before = [verdict for batch in batches for verdict in batch.column("verdict").to_pylist()]
    p_values = [None if verdict else p for p, verdict in zip(p_values, before, strict=True)]
    adjusted = list(zip(holm(p_values), benjamini_hochberg(p_values), strict=True))
    family, start = sum(p is not None for p in p_values), 0
    for batch in batches:
        adjusted_rows, verdicts_before = (
            adjusted[start : start + batch.num_rows],
            before[start : start + batch.num_rows],
        )
        start += batch.num_rows
        rows = batch.select(["metric", "difference", "ci_low", "ci_high"]).to_pylist()
        verdicts = [
            (None if verdict == UNTESTED else verdict)
            if verdict
            else choose_verdict(row, p, alpha=alpha, margin=margin)
            for (p, _), row, verdict in zip(adjusted_rows, rows, verdicts_before, strict=True)
        ]
        columns = {
            "p_holm": pa.array([p for p, _ in adjusted_rows], _NUMBER),
            "p_bh": pa.array([p for _, p in adjusted_rows], _NUMBER),
            "family_size": pa.array([family] * batch.num_rows, _INT64),
            "verdict": pa.array(verdicts, _TEXT),
        }
        arrays = [columns.get(column, batch.column(column)) for column in batch.schema.names]
        yield pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def choose_verdict(row: dict[str, Any], p_holm: float | None, *, alpha: float, margin: float) -> str:
    """Return the verdict on a row, by its metric, difference, interval and adjusted p-value."""
    if p_holm is not None and row["difference"] is not None and p_holm <= alpha:
        return judge_change(row["metric"], row["difference"])
    larger_is_better = direction_of(row["metric"])
    if larger_is_better is None or row["ci_low"] is None:
        return UNCLEAR
    is_not_worse = row["ci_low"] > -margin if larger_is_better else row["ci_high"] < margin
    return "not_worse" if is_not_worse else UNCLEAR
