"""Add up metrics of queries to exact states, and compute means from these states."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ndcg_spark.conventions import Convention
from ndcg_spark.core import labels
from ndcg_spark.core.batches import (
    concat_chunks,
    float_values,
    get_value,
    int_values,
    list_offsets,
    make_row_lists,
    to_flags,
    to_python_values,
)
from ndcg_spark.core.exact import MOMENTS, estimate, estimate_days, query_states
from ndcg_spark.core.ragged import BoolArray, IntArray, query_of_rows
from ndcg_spark.core.sums import STATE_TYPE, GroupSums, limb_columns, merge_states, read_limbs, read_states
from ndcg_spark.errors import InputRefusedError, get_message
from ndcg_spark.evaluation.rules import RULES, combine_rules
from ndcg_spark.evaluation.settings import EvaluationSettings
from ndcg_spark.evaluation.tasks import scoring
from ndcg_spark.evaluation.tasks.partial_ranking import N_REJECTED
from ndcg_spark.evaluation.tasks.scoring import N_TOP_ITEMS, N_UNJUDGED_ITEMS, Scores, ScoringTask
from ndcg_spark.metrics import EVERY, CatalogueMetric, MetricAt, NamedMetric, at_cutoff, in_order
from ndcg_spark.metrics.catalogue import Exposure

N_LOST = "n_lost_queries"
REJECTED_COUNTS = (N_REJECTED, N_LOST)
ITEM_COUNTS = (N_UNJUDGED_ITEMS, N_TOP_ITEMS)
OPTIONAL_COUNTS = (*REJECTED_COUNTS, *ITEM_COUNTS)
"""Counts that are null if the input does not have them."""
GROUP_COUNTS = ("n_queries", "n_no_relevant", "n_missing", "n_unjudged", "n_rows", "n_left_out", *OPTIONAL_COUNTS)
SUM_ONLY_COUNTS = ("n_rows", "n_left_out", N_REJECTED, *ITEM_COUNTS)
"""Columns of metrics of queries that only sums need. The tables of nights do not have them."""
GROUP_KEYS = ("run", "segment_by", "segment", "metric", "k")
MAX_GROUPS = 50_000
_BASE_KEYS = {"run": pa.string(), "k": pa.int32()}
"""Types of the keys that every group has, besides segments."""
LIST_COUNT = ""
"""Metric name of the rows that count lists for catalogue metrics. No metric has this name."""

PARTIAL_SCHEMA = pa.schema(
    [
        ("run", pa.string()),
        ("segment_by", pa.string()),
        ("segment", pa.string()),
        ("metric", pa.string()),
        ("k", pa.int32()),
        (labels.ASKED, pa.string()),
        *[(count, pa.int64()) for count in GROUP_COUNTS],
        ("state", STATE_TYPE),
    ]
)

ITEM, LISTED = "item", "listed"
"""Columns of item counts."""
MAX_ITEM_GROUPS = 500_000
"""Item counts that a worker holds before it emits them."""
ESTIMATES = ("value", "weight_sum", "std_error", "ci_low", "ci_high")


@dataclass(frozen=True, slots=True, kw_only=True)
class SummingTask:
    """Task for workers that add up metrics."""

    segment_sets: tuple[tuple[str, ...], ...]  # besides the overall mean
    weighted: bool  # batches have a column `weight`
    metrics: tuple[MetricAt, ...]  # for catalogue metrics, lists are counted instead
    convention: Convention  # decides which queries count, by their status
    needs_ndcg: bool = False  # queries without NDCG do not count
    listed: pa.Schema | None = None  # columns of item counts, for catalogue metrics
    unknown: frozenset[str] = frozenset()  # counts that are null, as batches do not have them
    max_groups: int = MAX_GROUPS  # per segment set; a worker with more emits all of them

    def list_averaged(self, k: int | None) -> list[NamedMetric]:
        return [metric for metric in at_cutoff(self.metrics, k) if not isinstance(metric, CatalogueMetric)]


def build_summing_task(
    settings: EvaluationSettings, columns: Collection[str] | None = None, listed: pa.Schema | None = None
) -> SummingTask:
    """Build the task for workers that add up metrics.

    `columns` are the columns of rows from another source, `listed` those of item counts for catalogue metrics.
    """
    metrics = tuple(metric for metric in settings.computed if metric.shown)
    if not settings.metrics:  # at all cutoffs of the rows
        metrics = in_order(replace(metric, k=EVERY) for metric in metrics)
    unknown = list[str]()
    if columns is not None:
        if settings.on_invalid == "reject" and N_REJECTED not in columns:
            unknown += REJECTED_COUNTS
        if "ranked" not in columns:
            unknown += [count for count in ITEM_COUNTS if count not in columns]
    return SummingTask(
        segment_sets=settings.segment_sets,
        weighted=settings.columns.weight is not None,
        metrics=metrics,
        convention=settings.convention,
        listed=listed,
        unknown=frozenset(unknown),
    )


def score_and_add_up(
    batches: Iterator[pa.RecordBatch], scoring_task: ScoringTask, task: SummingTask
) -> Iterator[pa.RecordBatch]:
    """Score rankings and add up their metrics."""
    return sum_scores((scores for batch in batches for scores in scoring.score_batch(batch, scoring_task)), task)


def add_up(batches: Iterator[pa.RecordBatch], task: SummingTask) -> Iterator[pa.RecordBatch]:
    """Add up metrics of queries, a row per query and cutoff."""
    return sum_scores(_read_scores(batches, task), task)


def _read_scores(batches: Iterator[pa.RecordBatch], task: SummingTask) -> Iterator[Scores]:
    for batch in batches:
        for k in pc.unique(batch.column("k")):
            at_k = batch.column("k").is_null() if k.as_py() is None else pc.equal(batch.column("k"), k)
            rows = batch if at_k.true_count == len(at_k) else batch.filter(at_k)
            status = rows.column("status")
            numbers = pc.index_in(status, value_set=pa.array(scoring.STATUS_NAMES, status.type))
            columns = [metric.column for metric in task.list_averaged(k.as_py())]
            yield Scores(
                k=k.as_py(),
                queries=rows,
                status=int_values(pc.fill_null(numbers, scoring.EVALUATED)),
                values={column: float_values(rows.column(column)) for column in columns},
            )


def sum_scores(batches: Iterator[Scores], task: SummingTask) -> Iterator[pa.RecordBatch]:
    """Add up metrics of queries to `PARTIAL_SCHEMA`, a row per group and metric.

    Catalogue metrics add two columns, and rows of item counts.
    """
    keys_by_set = {
        segment_set: [*_BASE_KEYS, *map(_name_segment_key, segment_set)] for segment_set in ((), *task.segment_sets)
    }
    sums = {segment_set: GroupSums(keys, task.max_groups) for segment_set, keys in keys_by_set.items()}
    items = {segment_set: GroupSums([*keys, ITEM], MAX_ITEM_GROUPS) for segment_set, keys in keys_by_set.items()}
    segments = {segment for segment_set in task.segment_sets for segment in segment_set}
    for scores in batches:
        numbers, batch = _compute_numbers(scores, task), scores.queries
        keys = {"run": batch.column("run").cast(_BASE_KEYS["run"])}  # the input may have large strings
        keys["k"] = pa.repeat(pa.scalar(scores.k, _BASE_KEYS["k"]), batch.num_rows)
        keys |= {
            _name_segment_key(column): batch.column(column) for column in batch.schema.names if column in segments
        }
        segment_sums = keys, numbers
        if N_REJECTED in numbers:  # rejected rows without a query count in the overall row only
            has_query = scores.status != scoring.NO_QUERY
            segment_sums = (
                {key: column.filter(pa.array(has_query)) for key, column in keys.items()},
                {number: values[has_query] for number, values in numbers.items()},
            )
        for segment_set, group_sums in sums.items():
            group_sums.add(*(segment_sums if segment_set else (keys, numbers)))
        if task.listed is not None:
            listed = _count_listed_items(batch, _flag_counted_queries(scores, task), keys)
            for group_sums in items.values():
                group_sums.add(*listed)
        yield from _flush_groups(sums, items, task, at_end=False)
    yield from _flush_groups(sums, items, task, at_end=True)


def _count_listed_items(
    batch: pa.RecordBatch, counted: BoolArray, keys: dict[str, pa.Array]
) -> tuple[dict[str, pa.Array], dict[str, IntArray]]:
    """Return keys and counts of the items in the lists of counted queries."""
    lists = batch.column("items")
    rows = pa.array(np.flatnonzero(counted & to_flags(lists.is_valid())))
    counted_lists = lists.take(rows)
    owner = rows.take(pa.array(query_of_rows(list_offsets(counted_lists))))
    columns = {key: column.take(owner) for key, column in keys.items()}
    return columns | {ITEM: counted_lists.flatten()}, {LISTED: np.ones(len(owner), dtype=np.int64)}


def _flush_groups(
    sums: dict[tuple[str, ...], GroupSums],
    items: dict[tuple[str, ...], GroupSums],
    task: SummingTask,
    *,
    at_end: bool,
) -> Iterator[pa.RecordBatch]:
    """Emit the groups of each segment set once they are too many, or at the end."""
    for segment_set, group_sums in sums.items():
        for grouped in group_sums.flush(at_end=at_end):
            yield from _write_sums(grouped, segment_set, task)
    for segment_set, group_sums in items.items():
        for grouped in group_sums.flush(at_end=at_end):
            yield from _write_item_counts(grouped, segment_set, task)


def _write_item_counts(table: pa.Table, segment_set: tuple[str, ...], task: SummingTask) -> Iterator[pa.RecordBatch]:
    """Return item counts as rows of the same groups, with counts of 0 and without a state."""
    n = table.num_rows
    columns = {
        "run": table.column("run"),
        **_build_segment_columns(table, segment_set),
        "metric": pa.array([LIST_COUNT] * n, type=pa.string()),
        "k": table.column("k"),
        labels.ASKED: pa.nulls(n, pa.string()),
        **{count: pa.array(np.zeros(n, dtype=np.int64)) for count in GROUP_COUNTS},
        "state": pa.nulls(n, STATE_TYPE),
        ITEM: table.column(ITEM),
        LISTED: table.column(LISTED),
    }
    yield from pa.table(columns).cast(task.listed).to_batches()


def _pad_item_columns(batch: pa.RecordBatch, task: SummingTask) -> pa.RecordBatch:
    """Add the columns of item counts, as nulls, to rows of sums."""
    if task.listed is None:
        return batch
    nulls = [pa.nulls(batch.num_rows, field.type) for field in list(task.listed)[batch.num_columns :]]
    return pa.RecordBatch.from_arrays([*batch.columns, *nulls], schema=task.listed)


def _name_segment_key(segment: str) -> str:
    """Name a segment column such that it cannot collide with a count."""
    return f"segment:{segment}"


def _flag_counted_queries(scores: Scores, task: SummingTask) -> BoolArray:
    """Flag the queries that count in the means. Values cannot decide: they are null at cutoffs not requested."""
    counted = ~scoring.has_status(scores.status, scoring.list_uncounted_statuses(task.convention))
    return counted & scores.values["ndcg"][1] if task.needs_ndcg else counted


def _compute_numbers(scores: Scores, task: SummingTask) -> dict[str, IntArray]:
    """Return the counts of every query, and the limbs of its states that are not all zero."""
    batch, status, weights = scores.queries, scores.status, None
    is_counted = _flag_counted_queries(scores, task)
    if task.weighted:
        weights = np.where(is_counted, float_values(batch.column("weight"))[0], 0.0)
        is_counted = weights > 0  # a query of weight 0 affects neither the mean nor its error
    is_dropped = scoring.has_status(status, scoring.list_dropped_statuses(task.convention))
    rows, left_out = int_values(batch.column("n_rows")), int_values(batch.column("n_left_out"))
    numbers: dict[str, IntArray] = {"n_queries": is_counted.astype(np.int64)}
    for counted in (scoring.NO_RELEVANT, scoring.MISSING, scoring.UNJUDGED):
        numbers[f"n_{scoring.STATUS_NAMES[counted]}"] = (status == counted).astype(np.int64)
    numbers["n_rows"] = np.where(is_dropped, 0, rows - left_out)
    numbers["n_left_out"] = np.where(is_dropped, rows, left_out)
    rejected = None
    if N_REJECTED in batch.schema.names:
        column = batch.column(N_REJECTED)
        rejected = int_values(pc.fill_null(column, 0))
        if column.null_count:
            numbers |= {
                _name_unknown_count(count): to_flags(column.is_null()).astype(np.int64) for count in REJECTED_COUNTS
            }
    if rejected is not None and rejected.any():
        lost = (rows == 0) & (rejected > 0) & (status != scoring.NO_QUERY)
        numbers |= {N_REJECTED: rejected, N_LOST: lost.astype(np.int64)}
    for count in (count for count in ITEM_COUNTS if count in batch.schema.names):
        column = batch.column(count)
        n_items = int_values(pc.fill_null(column, 0))
        if n_items.any():
            numbers[count] = np.where(is_dropped, 0, n_items)
        if column.null_count:
            numbers[_name_unknown_count(count)] = to_flags(column.is_null()).astype(np.int64)
    for metric in task.list_averaged(scores.k):
        values, known = scores.values[metric.column]
        values, metric_weights = np.where(is_counted & known, values, 0.0), weights
        if metric.undefined:
            is_averaged = is_counted & known
            numbers[_name_query_count(str(metric))] = is_averaged.astype(np.int64)
            metric_weights = np.where(is_averaged, 1.0 if weights is None else weights, 0.0)
        numbers |= limb_columns(str(metric), query_states(values, metric_weights))
    return numbers


def _name_unknown_count(count: str) -> str:
    """Name the number of queries for which a count is unknown."""
    return f"{count}:unknown"


def _name_query_count(metric: str) -> str:
    """Name the number of queries for which a metric has a value."""
    return f"{metric}:n"


def _write_sums(grouped: pa.Table, segment_set: tuple[str, ...], task: SummingTask) -> Iterator[pa.RecordBatch]:
    """Return the sums of groups as `PARTIAL_SCHEMA`, a row per metric."""
    n, segments, ks = grouped.num_rows, _build_segment_columns(grouped, segment_set), grouped.column("k").to_pylist()
    requested: dict[tuple[str, bool], dict[int | None, str | None]] = {}
    for k in dict.fromkeys(ks):
        for named_metric, metric_at in at_cutoff(task.metrics, k).items():
            counts_lists = isinstance(named_metric, CatalogueMetric)
            key = (LIST_COUNT, False) if counts_lists else (str(named_metric), named_metric.undefined)
            requested.setdefault(key, {})[k] = None if counts_lists else metric_at.asked_at
    for (metric, undefined), names_by_k in requested.items():
        states = MOMENTS.states(read_limbs(grouped, metric), n)
        counts = {count: grouped.column(count) for count in GROUP_COUNTS if count not in OPTIONAL_COUNTS}
        counts |= {count: _read_optional_count(grouped, count, task) for count in OPTIONAL_COUNTS}
        if _name_query_count(metric) in grouped.column_names:
            counts["n_queries"] = grouped.column(_name_query_count(metric))
        if not task.weighted and not undefined:
            MOMENTS.fill_unweighted(states, int_values(grouped.column("n_queries")))
        table = pa.table(
            {
                "run": grouped.column("run"),
                **segments,
                "metric": pa.array([metric] * n, type=pa.string()),
                "k": grouped.column("k"),
                labels.ASKED: pa.array([names_by_k.get(k) for k in ks], pa.string()),
                **counts,
                "state": make_row_lists(states),
            }
        )
        table = table.filter(pa.array([k in names_by_k for k in ks], pa.bool_()))
        for batch in table.cast(PARTIAL_SCHEMA).to_batches():
            yield _pad_item_columns(batch, task)


def _read_optional_count(grouped: pa.Table, count: str, task: SummingTask) -> pa.Array | pa.ChunkedArray:
    """Return a count of each group: 0 if no batch had it, null if it is unknown for some query."""
    if count in task.unknown:
        return pa.nulls(grouped.num_rows, pa.int64())
    counts: Any = pa.array(np.zeros(grouped.num_rows, dtype=np.int64))
    if count in grouped.column_names:
        counts = grouped.column(count)
    if _name_unknown_count(count) in grouped.column_names:
        is_known = pc.equal(grouped.column(_name_unknown_count(count)), 0)
        counts = pc.if_else(is_known, counts, pa.scalar(None, pa.int64()))
    return counts


def _build_segment_columns(grouped: pa.Table, segment_set: tuple[str, ...]) -> dict[str, pa.Array]:
    n = grouped.num_rows
    columns = [to_python_values(grouped.column(_name_segment_key(column))) for column in segment_set]
    segments = format_segments(columns, n)
    return {
        "segment_by": pa.array(["+".join(segment_set)] * n, type=pa.string()),
        "segment": pa.array(segments, type=pa.string()),
    }


def format_segments(columns: list[list[Any]], n_rows: int) -> list[str | None]:
    """Format segments as text: '' without columns, a JSON list for more than one, as no value makes it ambiguous.

    >>> format_segments([["DE", None], [True, False]], 2)
    ['["DE","true"]', '[null,"false"]']
    """
    if not columns:
        return [""] * n_rows
    texts = [[_format_value(value) for value in column] for column in columns]
    if len(texts) == 1:
        return texts[0]
    return [json.dumps(values, ensure_ascii=False, separators=(",", ":")) for values in zip(*texts, strict=True)]


def _format_value(value: object) -> str | None:
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def merge_partials(rows: pa.Table, keys: Sequence[str] = GROUP_KEYS) -> pa.RecordBatch:
    """Merge rows of `PARTIAL_SCHEMA`, perhaps with `rules`, by group, as input of `compute_means`.

    Groups come in the order of their first rows.
    """
    aggregates = {count: ["sum", "count"] for count in GROUP_COUNTS} | {labels.ASKED: ["min"], "row": ["list"]}
    aggregates |= {RULES: ["distinct"]} if RULES in rows.column_names else {}
    numbered = rows.drop_columns(["state"]).append_column("row", pa.array(np.arange(rows.num_rows)))
    grouped = numbered.group_by(list(keys), use_threads=False).aggregate(
        [(column, function) for column, functions in aggregates.items() for function in functions]
    )
    lists = concat_chunks(grouped.combine_chunks().column("row_list"))
    columns = {key: grouped.column(key) for key in keys}
    columns[labels.ASKED] = grouped.column(f"{labels.ASKED}_min")
    for count in GROUP_COUNTS:
        columns[count] = grouped.column(f"{count}_sum")
    for count in OPTIONAL_COUNTS:
        is_known = pc.equal(grouped.column(f"{count}_count"), pc.list_value_length(lists))
        columns[count] = pc.if_else(is_known, columns[count], pa.scalar(None, pa.int64()))
    columns["states"] = _collect_states(concat_chunks(rows.column("state")), lists)
    if RULES in aggregates:
        columns[RULES] = grouped.column(f"{RULES}_distinct")
    arrays = [concat_chunks(column) for column in columns.values()]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def _collect_states(states: pa.Array, lists: pa.ListArray) -> pa.ListArray:
    """Replace row numbers in lists by the states of these rows, and drop nulls."""
    row_states = states.take(lists.flatten())
    n_before = np.concatenate([[0], np.cumsum(to_flags(row_states.is_valid()))])
    return pa.ListArray.from_arrays(pa.array(n_before[list_offsets(lists)].astype(np.int32)), row_states.drop_null())


def compute_means(
    batches: Iterator[pa.RecordBatch],
    confidence: float,
    day_quantiles: Sequence[float] | None = None,
    across_rules: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Compute means from keys, counts and `states`; each number is rounded once.

    With `day_quantiles`, errors are those of `estimate_days`. If rows have `rules`, a list, it must have one element
    unless `across_rules`.
    """
    for batch in batches:
        means = compute_batch_means(batch, confidence, day_quantiles)
        yield means if RULES not in means.schema.names else _combine_rules(means, across=across_rules)


def _combine_rules(means: pa.RecordBatch, *, across: bool) -> pa.RecordBatch:
    """Combine the rules of each mean, and move them to the last column."""
    texts = means.column(RULES).to_pylist()
    combined: dict[tuple[str, ...], str | None] = {}
    for row, rules in enumerate(texts):
        key = tuple(sorted(rules))
        if key not in combined:
            combined[key] = combine_rules(key, f"the mean of {_format_group(means, row)}", across=across)
    names = [name for name in means.schema.names if name != RULES]
    column = pa.array([combined[tuple(sorted(rules))] for rules in texts], pa.string())
    return pa.RecordBatch.from_arrays([*means.select(names).columns, column], names=[*names, RULES])


def _format_group(batch: pa.RecordBatch, row: int) -> str:
    """Format the group of a row for a message, such as `run=a, metric=ndcg, k=10`."""
    keys = ("run", "segment", "metric", "k", "period", "period_start", "period_end")
    names = [key for key in keys if key in batch.schema.names]
    values = {key: batch.column(key)[row].as_py() for key in names}
    return labels.key({key: value for key, value in values.items() if value not in (None, "")})


def compute_batch_means(
    batch: pa.RecordBatch, confidence: float, day_quantiles: Sequence[float] | None = None
) -> pa.RecordBatch:
    """Compute the means of a batch; see `compute_means`."""
    n_queries = int_values(batch.column("n_queries")).tolist()
    group_states = read_states(batch.column("states"), MOMENTS.size)
    states = merge_states(group_states, MOMENTS.size)
    estimates = []
    for row, n in enumerate(n_queries):
        try:
            if day_quantiles is None:
                estimates.append(estimate(states[row], n, confidence=confidence))
            else:
                estimates.append(estimate_days(group_states[row], quantiles=day_quantiles))
        except InputRefusedError as error:
            raise InputRefusedError(f"{_format_group(batch, row)}: {get_message(error)}") from error
    columns = {name: batch.column(name) for name in batch.schema.names if name != "states"}
    for number in ESTIMATES:
        columns[number] = pa.array([getattr(row, number) for row in estimates], type=pa.float64())
    columns["state"] = make_row_lists(states)
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def build_empty_summary(runs: Iterable[str], metrics: Iterable[MetricAt]) -> list[dict[str, Any]]:
    """Return the rows of a summary without queries: a row per run and metric."""
    blank_row: dict[str, Any] = dict.fromkeys(GROUP_COUNTS, 0) | dict.fromkeys(ESTIMATES)
    blank_row |= {"weight_sum": 0.0, "state": [0] * MOMENTS.size, "segment_by": "", "segment": ""}
    return [
        {**blank_row, "run": run, "metric": str(metric_at.metric), "k": metric_at.k, labels.ASKED: metric_at.asked_at}
        for run, metric_at in product(runs, metrics)
    ]


def compute_with_catalogue(
    batches: Iterator[pa.RecordBatch],
    confidence: float,
    metrics: tuple[MetricAt, ...],
    item_column: str,
) -> Iterator[pa.RecordBatch]:
    """Compute means and catalogue metrics; raise if an item is in the item table twice."""
    for batch in batches:
        if batch.num_rows and (twice := get_value(batch.column("twice"), 0)) is not None:
            raise InputRefusedError(f"item {item_column}={twice} appears twice in the item table; keep one row.")
        is_list_count = pc.equal(batch.column("metric"), LIST_COUNT)
        means = batch.filter(pc.invert(is_list_count)).select([*GROUP_KEYS, labels.ASKED, *GROUP_COUNTS, "states"])
        yield compute_batch_means(means, confidence)
        yield from _compute_catalogue_metrics(batch.filter(is_list_count), metrics)


def _compute_catalogue_metrics(lists: pa.RecordBatch, metrics: tuple[MetricAt, ...]) -> Iterator[pa.RecordBatch]:
    """Return the rows of catalogue metrics. They are not means, so they have a value but no error and no state."""
    exposures = []
    for row in lists.select(["levels", "n_items"]).to_pylist():
        inside = {level["listed"]: level["n"] for level in row["levels"] if level["known"]}
        outside = sum(level["listed"] * level["n"] for level in row["levels"] if not level["known"])
        exposures.append(Exposure(inside, row["n_items"], outside))
    ks = lists.column("k").to_pylist()
    for metric_at in metrics:
        metric = metric_at.metric
        if not isinstance(metric, CatalogueMetric):
            continue
        rows = [row for row, k in enumerate(ks) if k == metric_at.k]
        counts = lists.take(pa.array(rows, pa.int64()))
        columns = {name: counts.column(name) for name in (*GROUP_KEYS, labels.ASKED, *GROUP_COUNTS)}
        columns["metric"] = pa.array([str(metric)] * len(rows), pa.string())
        columns[labels.ASKED] = pa.array([metric_at.asked_at] * len(rows), pa.string())
        columns |= {name: pa.nulls(len(rows), pa.float64()) for name in ESTIMATES}
        columns["value"] = pa.array([metric.value(exposures[row]) for row in rows], pa.float64())
        columns["state"] = pa.nulls(len(rows), STATE_TYPE)
        yield pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
