"""Metrics of queries in, exact states of means out, and the means from those states."""

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
    flags_of,
    float_values,
    int_values,
    list_offsets,
    plain_array,
    plain_values,
    value_at,
)
from ndcg_spark.core.exact import MOMENTS, day_estimate, estimate, query_states
from ndcg_spark.core.ragged import BoolArray, IntArray, query_of_rows
from ndcg_spark.core.sums import (
    STATE_TYPE,
    GroupSums,
    limb_columns,
    merge_states,
    read_limbs,
    read_states,
    state_column,
)
from ndcg_spark.errors import InputRefusedError, text_of
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
"""Counts that are null where nobody counted, as in metrics of queries."""
COUNTS = ("n_queries", "n_no_relevant", "n_missing", "n_unjudged", "n_rows", "n_left_out", *OPTIONAL_COUNTS)
SUM_ONLY_COUNTS = ("n_rows", "n_left_out", N_REJECTED, *ITEM_COUNTS)
"""Columns of metrics of queries that only sums need; tables of nights do not have them."""
GROUP_KEYS = ("run", "segment_by", "segment", "metric", "k")
MAX_GROUPS = 50_000
_BASE_KEYS = {"run": pa.string(), "k": pa.int32()}
"""What every group is of, whatever the segments."""
LISTS = ""
"""In place of a metric: counts of the lists from whose items metrics of the catalogue are made. No metric has it."""

PARTIAL_SCHEMA = pa.schema(
    [
        ("run", pa.string()),
        ("segment_by", pa.string()),
        ("segment", pa.string()),
        ("metric", pa.string()),
        ("k", pa.int32()),
        (labels.ASKED, pa.string()),
        *[(name, pa.int64()) for name in COUNTS],
        ("state", STATE_TYPE),
    ]
)

ITEM, LISTED = "item", "listed"
"""Columns of counts of items."""
MAX_ITEM_GROUPS = 500_000
"""Counts of items that a worker holds; more are passed on."""
ESTIMATES = ("value", "weight_sum", "std_error", "ci_low", "ci_high")


@dataclass(frozen=True, slots=True, kw_only=True)
class SummingTask:
    """What a worker must know to add up metrics."""

    segment_sets: tuple[tuple[str, ...], ...]  # beside the overall mean
    weighted: bool  # batches have a column `weight`
    metrics: tuple[MetricAt, ...]  # of the catalogue: their lists are counted
    convention: Convention  # says by their status which queries count
    needs_ndcg: bool = False  # of these, queries without NDCG do not count
    listed: pa.Schema | None = None  # columns of counts of items, for metrics of the catalogue
    unknown: frozenset[str] = frozenset()  # counts that are null, as batches do not tell
    max_groups: int = MAX_GROUPS  # of a segment set; a worker that holds more sends all of them on

    def list_averaged(self, k: int | None) -> list[NamedMetric]:
        return [metric for metric in at_cutoff(self.metrics, k) if not isinstance(metric, CatalogueMetric)]


def build_summing_task(
    settings: EvaluationSettings, columns: Collection[str] | None = None, listed: pa.Schema | None = None
) -> SummingTask:
    """Build the task that workers add up metrics by; `columns` are those of rows that somebody else made.

    `listed` are the columns of counts of items, for metrics of the catalogue.
    """
    metrics = tuple(one for one in settings.computed if one.shown)
    if not settings.metrics:  # whatever cutoffs the rows have
        metrics = in_order(replace(one, k=EVERY) for one in metrics)
    unknown = list[str]()
    if columns is not None:
        if settings.on_invalid == "reject" and N_REJECTED not in columns:
            unknown += REJECTED_COUNTS
        if "ranked" not in columns:
            unknown += [name for name in ITEM_COUNTS if name not in columns]
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
    """Add up metrics of rankings."""
    return add_scores((scores for batch in batches for scores in scoring.score_batch(batch, scoring_task)), task)


def add_up(batches: Iterator[pa.RecordBatch], task: SummingTask) -> Iterator[pa.RecordBatch]:
    """Add up tables with a row per query and cutoff."""
    return add_scores(_read_scores(batches, task), task)


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
                values={name: float_values(rows.column(name)) for name in columns},
            )


def add_scores(batches: Iterator[Scores], task: SummingTask) -> Iterator[pa.RecordBatch]:
    """Add up metrics of queries to `PARTIAL_SCHEMA`, a row per group and metric.

    Metrics of the catalogue add two columns, and rows of counts of items.
    """
    keys_of_sets = {names: [*_BASE_KEYS, *map(_name_segment_key, names)] for names in ((), *task.segment_sets)}
    sums = {names: GroupSums(keys, task.max_groups) for names, keys in keys_of_sets.items()}
    items = {names: GroupSums([*keys, ITEM], MAX_ITEM_GROUPS) for names, keys in keys_of_sets.items()}
    segments = {name for names in task.segment_sets for name in names}
    for scores in batches:
        numbers, batch = _compute_numbers(scores, task), scores.queries
        keys = {"run": batch.column("run").cast(_BASE_KEYS["run"])}  # maybe of large strings
        keys["k"] = pa.repeat(pa.scalar(scores.k, _BASE_KEYS["k"]), batch.num_rows)
        keys |= {_name_segment_key(name): batch.column(name) for name in batch.schema.names if name in segments}
        in_segments = keys, numbers
        if N_REJECTED in numbers:  # rejected rows without a query count in the overall row alone
            has_query = scores.status != scoring.NO_QUERY
            in_segments = (
                {name: column.filter(pa.array(has_query)) for name, column in keys.items()},
                {name: values[has_query] for name, values in numbers.items()},
            )
        for names, held in sums.items():
            held.add(*(in_segments if names else (keys, numbers)))
        if task.listed is not None:
            listed = _count_listed_items(batch, _find_counted(scores, task), keys)
            for held in items.values():
                held.add(*listed)
        yield from _flush_groups(sums, items, task, at_end=False)
    yield from _flush_groups(sums, items, task, at_end=True)


def _count_listed_items(
    batch: pa.RecordBatch, kept: BoolArray, keys: dict[str, pa.Array]
) -> tuple[dict[str, pa.Array], dict[str, IntArray]]:
    """Keys and counts of the items of kept lists."""
    lists = batch.column("items")
    rows = pa.array(np.flatnonzero(kept & flags_of(lists.is_valid())))
    chosen = lists.take(rows)
    owner = rows.take(pa.array(query_of_rows(list_offsets(chosen))))
    columns = {name: column.take(owner) for name, column in keys.items()}
    return columns | {ITEM: chosen.flatten()}, {LISTED: np.ones(len(owner), dtype=np.int64)}


def _flush_groups(
    sums: dict[tuple[str, ...], GroupSums],
    items: dict[tuple[str, ...], GroupSums],
    task: SummingTask,
    *,
    at_end: bool,
) -> Iterator[pa.RecordBatch]:
    """Pass on groups that are too many, or all of them at the end."""
    for names, held in sums.items():
        for grouped in held.flush(at_end=at_end):
            yield from _write_sums(grouped, names, task)
    for names, held in items.items():
        for grouped in held.flush(at_end=at_end):
            yield from _write_item_counts(grouped, names, task)


def _write_item_counts(table: pa.Table, names: tuple[str, ...], task: SummingTask) -> Iterator[pa.RecordBatch]:
    """Counts of items as rows of the same groups, with sums of nothing."""
    n = table.num_rows
    columns = {
        "run": table.column("run"),
        **_build_segment_columns(table, names),
        "metric": pa.array([LISTS] * n, type=pa.string()),
        "k": table.column("k"),
        labels.ASKED: pa.nulls(n, pa.string()),
        **{name: pa.array(np.zeros(n, dtype=np.int64)) for name in COUNTS},
        "state": pa.nulls(n, STATE_TYPE),
        ITEM: table.column(ITEM),
        LISTED: table.column(LISTED),
    }
    yield from pa.table(columns).cast(task.listed).to_batches()


def _add_item_columns(batch: pa.RecordBatch, task: SummingTask) -> pa.RecordBatch:
    """Rows of sums with the columns that those of counts of items have."""
    if task.listed is None:
        return batch
    more = [pa.nulls(batch.num_rows, field.type) for field in list(task.listed)[batch.num_columns :]]
    return pa.RecordBatch.from_arrays([*batch.columns, *more], schema=task.listed)


def _name_segment_key(segment: str) -> str:
    """Name of a segment column among our own: a user's column may be called as a count is."""
    return f"segment:{segment}"


def _find_counted(scores: Scores, task: SummingTask) -> BoolArray:
    """Find the queries that count in the means. Values do not tell: they are null where they are not asked for."""
    counted = ~scoring.has_status(scores.status, scoring.list_uncounted_statuses(task.convention))
    return counted & scores.values["ndcg"][1] if task.needs_ndcg else counted


def _compute_numbers(scores: Scores, task: SummingTask) -> dict[str, IntArray]:
    """Every query's counts and the limbs of its states that are not all zero."""
    batch, status, weights = scores.queries, scores.status, None
    kept = _find_counted(scores, task)
    if task.weighted:
        weights = np.where(kept, float_values(batch.column("weight"))[0], 0.0)
        kept = weights > 0  # one of weight 0 is in no mean, and tells nothing of its error
    is_dropped = scoring.has_status(status, scoring.list_dropped_statuses(task.convention))
    rows, left_out = int_values(batch.column("n_rows")), int_values(batch.column("n_left_out"))
    numbers: dict[str, IntArray] = {"n_queries": kept.astype(np.int64)}
    for reason in (scoring.NO_RELEVANT, scoring.MISSING, scoring.UNJUDGED):
        numbers[f"n_{scoring.STATUS_NAMES[reason]}"] = (status == reason).astype(np.int64)
    numbers["n_rows"] = np.where(is_dropped, 0, rows - left_out)
    numbers["n_left_out"] = np.where(is_dropped, rows, left_out)
    rejected = None
    if N_REJECTED in batch.schema.names:
        column = batch.column(N_REJECTED)
        rejected = int_values(pc.fill_null(column, 0))
        if column.null_count:
            numbers |= {
                _name_unknown_count(name): flags_of(column.is_null()).astype(np.int64) for name in REJECTED_COUNTS
            }
    if rejected is not None and rejected.any():
        lost = (rows == 0) & (rejected > 0) & (status != scoring.NO_QUERY)
        numbers |= {N_REJECTED: rejected, N_LOST: lost.astype(np.int64)}
    for name in (one for one in ITEM_COUNTS if one in batch.schema.names):
        column = batch.column(name)
        n_items = int_values(pc.fill_null(column, 0))
        if n_items.any():
            numbers[name] = np.where(is_dropped, 0, n_items)
        if column.null_count:
            numbers[_name_unknown_count(name)] = flags_of(column.is_null()).astype(np.int64)
    for metric in task.list_averaged(scores.k):
        values, known = scores.values[metric.column]
        values, its_weights = np.where(kept & known, values, 0.0), weights
        if metric.undefined:
            counted = kept & known
            numbers[_name_query_count(str(metric))] = counted.astype(np.int64)
            its_weights = np.where(counted, 1.0 if weights is None else weights, 0.0)
        numbers |= limb_columns(str(metric), query_states(values, its_weights))
    return numbers


def _name_unknown_count(count: str) -> str:
    """Name of the number of queries of which a count is not known."""
    return f"{count}:unknown"


def _name_query_count(metric: str) -> str:
    """Name of the number of queries of which a metric has a value."""
    return f"{metric}:n"


def _write_sums(grouped: pa.Table, names: tuple[str, ...], task: SummingTask) -> Iterator[pa.RecordBatch]:
    """Sums of groups, a row for each metric."""
    n, segments, ks = grouped.num_rows, _build_segment_columns(grouped, names), grouped.column("k").to_pylist()
    asked: dict[tuple[str, bool], dict[int | None, str | None]] = {}
    for k in dict.fromkeys(ks):
        for owner, one in at_cutoff(task.metrics, k).items():
            of_lists = isinstance(owner, CatalogueMetric)
            key = (LISTS, False) if of_lists else (str(owner), owner.undefined)
            asked.setdefault(key, {})[k] = None if of_lists else one.asked_at
    for (metric, undefined), at in asked.items():
        states = MOMENTS.states(read_limbs(grouped, metric), n)
        counts = {name: grouped.column(name) for name in COUNTS if name not in OPTIONAL_COUNTS}
        counts |= {name: _read_optional_count(grouped, name, task) for name in OPTIONAL_COUNTS}
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
                labels.ASKED: pa.array([at.get(k) for k in ks], pa.string()),
                **counts,
                "state": state_column(states),
            }
        )
        table = table.filter(pa.array([k in at for k in ks], pa.bool_()))
        for batch in table.cast(PARTIAL_SCHEMA).to_batches():
            yield _add_item_columns(batch, task)


def _read_optional_count(grouped: pa.Table, name: str, task: SummingTask) -> pa.Array | pa.ChunkedArray:
    """A count that batches have where it is not 0; null where nobody knows it, if only of one query."""
    if name in task.unknown:
        return pa.nulls(grouped.num_rows, pa.int64())
    found: Any = pa.array(np.zeros(grouped.num_rows, dtype=np.int64))
    if name in grouped.column_names:
        found = grouped.column(name)
    if _name_unknown_count(name) in grouped.column_names:
        told = pc.equal(grouped.column(_name_unknown_count(name)), 0)
        found = pc.if_else(told, found, pa.scalar(None, pa.int64()))
    return found


def _build_segment_columns(grouped: pa.Table, names: tuple[str, ...]) -> dict[str, pa.Array]:
    n = grouped.num_rows
    segments = format_segments([plain_values(grouped.column(_name_segment_key(name))) for name in names], n)
    return {
        "segment_by": pa.array(["+".join(names)] * n, type=pa.string()),
        "segment": pa.array(segments, type=pa.string()),
    }


def format_segments(columns: list[list[Any]], n_rows: int) -> list[str | None]:
    """Format segments: '' is the overall mean; several columns become a JSON list, which no value can make ambiguous.

    >>> segment_texts([["DE", None], [True, False]], 2)
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


def merge_partials(rows: pa.Table) -> pa.RecordBatch:
    """Group rows of `PARTIAL_SCHEMA`, and perhaps their `rules`, to what `finish_means` finishes."""
    chosen = {name: ["sum", "count"] for name in COUNTS} | {labels.ASKED: ["min"], "row": ["list"]}
    chosen |= {RULES: ["distinct"]} if RULES in rows.column_names else {}
    numbered = rows.drop_columns(["state"]).append_column("row", pa.array(np.arange(rows.num_rows)))
    grouped = numbered.group_by(list(GROUP_KEYS), use_threads=False).aggregate(
        [(name, how) for name, several in chosen.items() for how in several]
    )
    lists = plain_array(grouped.combine_chunks().column("row_list"))
    columns = {name: grouped.column(name) for name in GROUP_KEYS}
    columns[labels.ASKED] = grouped.column(f"{labels.ASKED}_min")
    for name in COUNTS:
        columns[name] = grouped.column(f"{name}_sum")
    for name in OPTIONAL_COUNTS:
        is_known = pc.equal(grouped.column(f"{name}_count"), pc.list_value_length(lists))
        columns[name] = pc.if_else(is_known, columns[name], pa.scalar(None, pa.int64()))
    columns["states"] = _collect_states(plain_array(rows.column("state")), lists)
    if RULES in chosen:
        columns[RULES] = grouped.column(f"{RULES}_distinct")
    arrays = [plain_array(column) for column in columns.values()]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def _collect_states(states: pa.Array, lists: pa.ListArray) -> pa.ListArray:
    """States of the rows in lists, without those that are null."""
    taken = states.take(lists.flatten())
    n_before = np.concatenate([[0], np.cumsum(flags_of(taken.is_valid()))])
    return pa.ListArray.from_arrays(pa.array(n_before[list_offsets(lists)].astype(np.int32)), taken.drop_null())


def finish_means(
    batches: Iterator[pa.RecordBatch],
    confidence: float,
    day_quantiles: Sequence[float] | None = None,
    across_rules: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Make means of keys, counts and `states`; each number is rounded once. See `day_estimate`.

    `rules`, a list of those of the states, must be one unless `across_rules`.
    """
    for batch in batches:
        means = finish_batch(batch, confidence, day_quantiles)
        yield means if RULES not in means.schema.names else _combine_rules(means, across=across_rules)


def _combine_rules(means: pa.RecordBatch, *, across: bool) -> pa.RecordBatch:
    """Combine the rules of each mean, and put them last."""
    texts = means.column(RULES).to_pylist()
    combined: dict[tuple[str, ...], str | None] = {}
    for row, its in enumerate(texts):
        key = tuple(sorted(its))
        if key not in combined:
            combined[key] = combine_rules(key, f"the mean of {_format_group(means, row)}", across=across)
    names = [name for name in means.schema.names if name != RULES]
    rules = pa.array([combined[tuple(sorted(its))] for its in texts], pa.string())
    return pa.RecordBatch.from_arrays([*means.select(names).columns, rules], names=[*names, RULES])


def _format_group(batch: pa.RecordBatch, row: int) -> str:
    """Name the group of a row for a message, by the keys that it has."""
    keys = ("run", "segment", "metric", "k", "period", "period_start", "period_end")
    names = [name for name in keys if name in batch.schema.names]
    values = {name: batch.column(name)[row].as_py() for name in names}
    return labels.key({name: value for name, value in values.items() if value not in (None, "")})


def finish_batch(
    batch: pa.RecordBatch, confidence: float, day_quantiles: Sequence[float] | None = None
) -> pa.RecordBatch:
    n_queries = int_values(batch.column("n_queries")).tolist()
    parts = read_states(batch.column("states"), MOMENTS.size)
    states = merge_states(parts, MOMENTS.size)
    found = []
    for row, n in enumerate(n_queries):
        try:
            if day_quantiles is None:
                found.append(estimate(states[row], n, confidence=confidence))
            else:
                found.append(day_estimate(parts[row], quantiles=day_quantiles))
        except InputRefusedError as error:
            raise InputRefusedError(f"{_format_group(batch, row)}: {text_of(error)}") from error
    columns = {name: batch.column(name) for name in batch.schema.names if name != "states"}
    for name in ESTIMATES:
        columns[name] = pa.array([getattr(one, name) for one in found], type=pa.float64())
    columns["state"] = state_column(states)
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def build_empty_summary(runs: Iterable[str], metrics: Iterable[MetricAt]) -> list[dict[str, Any]]:
    nothing: dict[str, Any] = dict.fromkeys(COUNTS, 0) | dict.fromkeys(ESTIMATES)
    nothing |= {"weight_sum": 0.0, "state": [0] * MOMENTS.size, "segment_by": "", "segment": ""}
    return [
        {**nothing, "run": run, "metric": str(one.metric), "k": one.k, labels.ASKED: one.asked_at}
        for run, one in product(runs, metrics)
    ]


def finish_catalogue(
    batches: Iterator[pa.RecordBatch],
    confidence: float,
    metrics: tuple[MetricAt, ...],
    item_column: str,
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if batch.num_rows and (twice := value_at(batch.column("twice"), 0)) is not None:
            raise InputRefusedError(f"item {item_column}={twice} comes twice in the item table; keep one row of it.")
        of_lists = pc.equal(batch.column("metric"), LISTS)
        means = batch.filter(pc.invert(of_lists)).select([*GROUP_KEYS, labels.ASKED, *COUNTS, "states"])
        yield finish_batch(means, confidence)
        yield from _compute_catalogue_metrics(batch.filter(of_lists), metrics)


def _compute_catalogue_metrics(lists: pa.RecordBatch, metrics: tuple[MetricAt, ...]) -> Iterator[pa.RecordBatch]:
    """Rows of each metric at its cutoff: a value with neither error nor state, as it is no mean."""
    exposures = []
    for row in lists.select(["levels", "n_items"]).to_pylist():
        inside = {level["listed"]: level["n"] for level in row["levels"] if level["known"]}
        outside = sum(level["listed"] * level["n"] for level in row["levels"] if not level["known"])
        exposures.append(Exposure(inside, row["n_items"], outside))
    at = lists.column("k").to_pylist()
    for metric, one in ((one.metric, one) for one in metrics if isinstance(one.metric, CatalogueMetric)):
        rows = [row for row, k in enumerate(at) if k == one.k]
        its = lists.take(pa.array(rows, pa.int64()))
        columns = {name: its.column(name) for name in (*GROUP_KEYS, labels.ASKED, *COUNTS)}
        columns["metric"] = pa.array([str(metric)] * len(rows), pa.string())
        columns[labels.ASKED] = pa.array([one.asked_at] * len(rows), pa.string())
        columns |= {name: pa.nulls(len(rows), pa.float64()) for name in ESTIMATES}
        columns["value"] = pa.array([metric.value(exposures[row]) for row in rows], pa.float64())
        columns["state"] = pa.nulls(len(rows), STATE_TYPE)
        yield pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
