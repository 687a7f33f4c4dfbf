"""Metrics of queries in, exact states of means out, and the means from those states."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ndcg_spark.conventions import Convention
from ndcg_spark.core import labels
from ndcg_spark.core.batches import flags_of, float_values, int_values, list_offsets, plain_values, value_at
from ndcg_spark.core.moments import MOMENTS, day_estimate, estimate, query_states
from ndcg_spark.core.ragged import BoolArray, IntArray, query_of_rows
from ndcg_spark.errors import InputRefusedError, text_of
from ndcg_spark.evaluation.rules import RULES, combine_rules
from ndcg_spark.evaluation.settings import SummedMetric
from ndcg_spark.evaluation.tasks.partial_ranking import N_REJECTED
from ndcg_spark.evaluation.tasks.scoring import (
    N_TOP_ITEMS,
    N_UNJUDGED_ITEMS,
    ScoringTask,
    dropped,
    score_rankings,
    uncounted,
)
from ndcg_spark.metrics import CatalogueMetric
from ndcg_spark.metrics.catalogue import Exposure

N_LOST = "n_lost_queries"
OF_REJECTED = (N_REJECTED, N_LOST)
OF_ITEMS = (N_UNJUDGED_ITEMS, N_TOP_ITEMS)
OPTIONAL_COUNTS = (*OF_REJECTED, *OF_ITEMS)
"""Counts that are null where nobody counted, as in metrics of queries."""
COUNTS = ("n_queries", "n_no_relevant", "n_missing", "n_unjudged", "n_rows", "n_left_out", *OPTIONAL_COUNTS)
GROUP_KEYS = ("run", "segment_by", "segment", "metric", "k")
MOST_GROUPS_HELD = 50_000
_ALWAYS = {"run": pa.string(), "k": pa.int32()}
"""What every group is of, whatever the segments."""
LISTS = ""
"""In place of a metric: counts of the lists from whose items metrics of the catalogue are made. No metric has it."""
_LIMB = "\0"
"""Between metric and number in the names of limb columns: no column of a user has it."""
_COUNTED = "n"
"""In place of a limb: queries of which the metric has a value."""

Totals: TypeAlias = dict[str, int]
"""Sums of one group, by the names of what is added up."""
STATE_TYPE = pa.list_(pa.int64())
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
MOST_HELD = 500_000
"""Counts of items that a worker holds; more are passed on."""
Keys: TypeAlias = dict[str, pa.Array]
ESTIMATES = ("value", "weight_sum", "std_error", "ci_low", "ci_high")


@dataclass(frozen=True, slots=True, kw_only=True)
class SummingTask:
    """What a worker must know to add up metrics."""

    segment_sets: tuple[tuple[str, ...], ...]  # beside the overall mean
    weighted: bool  # batches have a column `weight`
    metrics: tuple[SummedMetric, ...]
    convention: Convention  # says by their status which queries count
    needs_ndcg: bool = False  # of these, queries without NDCG do not count
    listed: pa.Schema | None = None  # columns of counts of items, for metrics of the catalogue
    unknown: frozenset[str] = frozenset()  # counts that are null, as batches do not tell
    most_groups: int = MOST_GROUPS_HELD  # of a segment set; a worker that holds more sends all of them on


class ListedItems:
    """Counts of items by keys, such as run, cutoff and segment."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, ...], pa.Table] = {}

    def add(self, batch: pa.RecordBatch, kept: BoolArray, keys: dict[tuple[str, ...], Keys]) -> None:
        """Count the items of kept lists, once for each set of keys."""
        lists = batch.column("items")
        rows = pa.array(np.flatnonzero(kept & flags_of(lists.is_valid())))
        chosen = lists.take(rows)
        owner = rows.take(pa.array(query_of_rows(list_offsets(chosen))))
        for names, columns in keys.items():
            table = pa.table(
                {**{name: column.take(owner) for name, column in columns.items()}, ITEM: chosen.flatten()}
            )
            table = _grouped(table.append_column(LISTED, pa.array(np.ones(table.num_rows, dtype=np.int64))))
            held = self._held.get(names)
            self._held[names] = table if held is None else _grouped(pa.concat_tables([held, table]))

    def passed_on(self, *, at_end: bool) -> Iterator[tuple[tuple[str, ...], pa.Table]]:
        """Hand over what is held, or only what has become too much."""
        for names in list(self._held):
            if at_end or self._held[names].num_rows > MOST_HELD:
                yield names, self._held.pop(names)


def _grouped(table: pa.Table) -> pa.Table:
    keys = [name for name in table.column_names if name != LISTED]
    grouped = table.group_by(keys, use_threads=False).aggregate([(LISTED, "sum")])
    return grouped.rename_columns([LISTED if name == f"{LISTED}_sum" else name for name in grouped.column_names])


def score_and_add_up(
    batches: Iterator[pa.RecordBatch], scoring: ScoringTask, summing: SummingTask
) -> Iterator[pa.RecordBatch]:
    """Add up metrics of rankings."""
    return add_up(score_rankings(batches, scoring), summing)


def add_up(batches: Iterator[pa.RecordBatch], task: SummingTask) -> Iterator[pa.RecordBatch]:
    """Add up metrics of queries to `PARTIAL_SCHEMA`, a row per group and metric.

    Metrics of the catalogue add two columns, and rows of counts of items.
    """
    sets = ((), *task.segment_sets)
    held: dict[tuple[str, ...], pa.Table] = {}
    totals: dict[tuple[Any, ...], Totals] = {}
    listed = ListedItems()
    segments = {name for names in task.segment_sets for name in names}
    for batch in batches:
        numbers = _numbers(batch, task)
        keys = {name: batch.column(name).cast(kind) for name, kind in _ALWAYS.items()}  # maybe of large strings
        keys |= {_key(name): batch.column(name) for name in batch.schema.names if name in segments}
        alone = batch.num_rows > 0 and all(_is_constant(keys[name]) for name in _ALWAYS)
        if alone:  # one run and cutoff: to group costs much more
            group = tuple(keys[name][0].as_py() for name in _ALWAYS)
            its = totals.setdefault(group, {})
            for name, values in numbers.items():
                its[name] = its.get(name, 0) + int(values.sum())
        table = pa.table({**keys, **numbers})
        in_segments = table
        if N_REJECTED in table.column_names:  # rejected rows without a query count in the overall row alone
            in_segments = table.filter(pc.not_equal(batch.column("status"), "no_query"))
        for names in task.segment_sets if alone else sets:
            _hold(held, names, _group(in_segments if names else table, names))
            if held[names].num_rows > task.most_groups:
                yield from _partial_batches(held.pop(names), names, task)
        if task.listed is not None:
            chosen = {names: {name: keys[name] for name in (*_ALWAYS, *map(_key, names))} for names in sets}
            listed.add(batch, _counted(batch, task), chosen)
            yield from _listed_batches(listed, task, at_end=False)
    if totals:
        _hold(held, (), _totals_table(totals))
    for names, grouped in held.items():
        yield from _partial_batches(grouped, names, task)
    yield from _listed_batches(listed, task, at_end=True)


def _listed_batches(listed: ListedItems, task: SummingTask, *, at_end: bool) -> Iterator[pa.RecordBatch]:
    """Counts of items as rows of the same groups, with sums of nothing."""
    for names, table in listed.passed_on(at_end=at_end):
        n = table.num_rows
        columns = {
            "run": table.column("run"),
            **_segment_columns(table, names),
            "metric": pa.array([LISTS] * n, type=pa.string()),
            "k": table.column("k"),
            labels.ASKED: pa.nulls(n, pa.string()),
            **{name: pa.array(np.zeros(n, dtype=np.int64)) for name in COUNTS},
            "state": pa.nulls(n, STATE_TYPE),
            ITEM: table.column(ITEM),
            LISTED: table.column(LISTED),
        }
        yield from pa.table(columns).cast(task.listed).to_batches()


def _widened(batch: pa.RecordBatch, task: SummingTask) -> pa.RecordBatch:
    """Rows of sums with the columns that those of counts of items have."""
    if task.listed is None:
        return batch
    more = [pa.nulls(batch.num_rows, field.type) for field in list(task.listed)[batch.num_columns :]]
    return pa.RecordBatch.from_arrays([*batch.columns, *more], schema=task.listed)


def _hold(held: dict[tuple[str, ...], pa.Table], names: tuple[str, ...], grouped: pa.Table) -> None:
    if names in held:
        grouped = _group(pa.concat_tables([held[names], grouped], promote_options="default"), names)
    held[names] = grouped


def _totals_table(totals: dict[tuple[Any, ...], Totals]) -> pa.Table:
    """Groups that were added up by themselves, a row each."""
    names = {name: None for its in totals.values() for name in its}  # in order, unlike those of a set
    keys = {name: pa.array([group[at] for group in totals], kind) for at, (name, kind) in enumerate(_ALWAYS.items())}
    sums = {name: pa.array([its.get(name, 0) for its in totals.values()], pa.int64()) for name in names}
    return pa.table({**keys, **sums})


def _key(segment: str) -> str:
    """Name of a segment column among our own: a user's column may be called as a count is."""
    return f"segment:{segment}"


def _counted(batch: pa.RecordBatch, task: SummingTask) -> BoolArray:
    """Find the queries that count in the means. Values do not tell: they are null where they are not asked for."""
    counted = ~_has_status(batch, uncounted(task.convention))
    return counted & float_values(batch.column("ndcg"))[1] if task.needs_ndcg else counted


def _has_status(batch: pa.RecordBatch, names: tuple[str, ...]) -> BoolArray:
    return flags_of(pc.is_in(batch.column("status"), value_set=pa.array(names, pa.string())))


def _numbers(batch: pa.RecordBatch, task: SummingTask) -> dict[str, IntArray]:
    """Every query's counts and the limbs of its states that are not all zero."""
    kept, status, weights = _counted(batch, task), batch.column("status"), None
    if task.weighted:
        weights = np.where(kept, float_values(batch.column("weight"))[0], 0.0)
        kept = weights > 0  # one of weight 0 is in no mean, and tells nothing of its error
    is_dropped = _has_status(batch, dropped(task.convention))
    rows, left_out = int_values(batch.column("n_rows")), int_values(batch.column("n_left_out"))
    numbers: dict[str, IntArray] = {"n_queries": kept.astype(np.int64)}
    for name in ("no_relevant", "missing", "unjudged"):
        numbers[f"n_{name}"] = int_values(pc.equal(status, name).cast(pa.int64()))
    numbers["n_rows"] = np.where(is_dropped, 0, rows - left_out)
    numbers["n_left_out"] = np.where(is_dropped, rows, left_out)
    rejected = None
    if N_REJECTED in batch.schema.names:
        column = batch.column(N_REJECTED)
        rejected = int_values(pc.fill_null(column, 0))
        if column.null_count:
            numbers |= {_unknown(name): flags_of(column.is_null()).astype(np.int64) for name in OF_REJECTED}
    if rejected is not None and rejected.any():
        lost = (rows == 0) & (rejected > 0) & flags_of(pc.not_equal(status, "no_query"))
        numbers |= {N_REJECTED: rejected, N_LOST: lost.astype(np.int64)}
    for name in (one for one in OF_ITEMS if one in batch.schema.names):
        column = batch.column(name)
        n_items = int_values(pc.fill_null(column, 0))
        if n_items.any():
            numbers[name] = np.where(is_dropped, 0, n_items)
        if column.null_count:
            numbers[_unknown(name)] = flags_of(column.is_null()).astype(np.int64)
    k = batch.column("k")
    at = {k[0].as_py()} if len(k) and _is_constant(k) else set(k.unique().to_pylist())
    for metric in task.metrics:
        if metric.name != LISTS and any(map(metric.is_at, at)):
            values, known = float_values(batch.column(metric.column))
            values, its_weights = np.where(kept & known, values, 0.0), weights
            if metric.undefined:
                counted = kept & known
                numbers[f"{metric.name}{_LIMB}{_COUNTED}"] = counted.astype(np.int64)
                its_weights = np.where(counted, 1.0 if weights is None else weights, 0.0)
            states = query_states(values, its_weights)
            numbers |= {f"{metric.name}{_LIMB}{limb}": its for limb, its in states.items()}
    return numbers


def _unknown(count: str) -> str:
    """Name of the number of queries of which a count is not known."""
    return f"{count}{_LIMB}unknown"


def _group(table: pa.Table, names: tuple[str, ...]) -> pa.Table:
    sums = {f"{name}_sum": name for name in table.column_names if _LIMB in name or name in COUNTS}
    grouped = table.group_by([*_ALWAYS, *map(_key, names)], use_threads=False).aggregate(
        [(name, "sum") for name in sums.values()]
    )
    return grouped.rename_columns([sums.get(name, name) for name in grouped.column_names])


def _is_constant(column: pa.Array) -> bool:
    if column.null_count:
        return bool(column.null_count == len(column))
    return bool(pc.all(pc.equal(column, column[0])).as_py())


def _partial_batches(grouped: pa.Table, names: tuple[str, ...], task: SummingTask) -> Iterator[pa.RecordBatch]:
    n, segments = grouped.num_rows, _segment_columns(grouped, names)
    for metric in task.metrics:
        states = np.zeros((n, MOMENTS.size), dtype=np.int64)
        counts = {name: grouped.column(name) for name in COUNTS if name not in OPTIONAL_COUNTS}
        counts |= {name: _optional_count(grouped, name, task) for name in OPTIONAL_COUNTS}
        for name in grouped.column_names:
            owner, marked_as_limb, at = name.partition(_LIMB)
            if marked_as_limb and owner == metric.name:
                its = pc.fill_null(grouped.column(name).combine_chunks(), 0)
                if at == _COUNTED:
                    counts["n_queries"] = its
                else:
                    states[:, int(at)] = int_values(its)
        if not task.weighted and not metric.undefined:
            MOMENTS.fill_unweighted(states, int_values(grouped.column("n_queries")))
        table = pa.table(
            {
                "run": grouped.column("run"),
                **segments,
                "metric": pa.array([metric.name] * n, type=pa.string()),
                "k": grouped.column("k"),
                labels.ASKED: pa.array([metric.asked_at(k) for k in grouped.column("k").to_pylist()], pa.string()),
                **counts,
                "state": _state_column(states),
            }
        )
        if metric.cutoffs is not None:
            table = table.filter(pa.array([metric.is_at(k) for k in grouped.column("k").to_pylist()], pa.bool_()))
        for batch in table.cast(PARTIAL_SCHEMA).to_batches():
            yield _widened(batch, task)


def _optional_count(grouped: pa.Table, name: str, task: SummingTask) -> pa.Array | pa.ChunkedArray:
    """A count that batches have where it is not 0; null where nobody knows it, if only of one query."""
    if name in task.unknown:
        return pa.nulls(grouped.num_rows, pa.int64())
    found: Any = pa.array(np.zeros(grouped.num_rows, dtype=np.int64))
    if name in grouped.column_names:
        found = pc.fill_null(grouped.column(name), 0)
    if _unknown(name) in grouped.column_names:
        told = pc.equal(pc.fill_null(grouped.column(_unknown(name)), 0), 0)
        found = pc.if_else(told, found, pa.scalar(None, pa.int64()))
    return found


def _segment_columns(grouped: pa.Table, names: tuple[str, ...]) -> dict[str, pa.Array]:
    n = grouped.num_rows
    segments = segment_texts([plain_values(grouped.column(_key(name))) for name in names], n)
    return {
        "segment_by": pa.array(["+".join(names)] * n, type=pa.string()),
        "segment": pa.array(segments, type=pa.string()),
    }


def _state_column(states: IntArray) -> pa.Array:
    offsets = np.arange(0, states.size + 1, MOMENTS.size, dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(states.reshape(-1)))


def segment_texts(columns: list[list[Any]], n_rows: int) -> list[str | None]:
    """Format segments: '' is the overall mean; several columns become a JSON list, which no value can make ambiguous.

    >>> segment_texts([["DE", None], [True, False]], 2)
    ['["DE","true"]', '[null,"false"]']
    """
    if not columns:
        return [""] * n_rows
    texts = [[_value_text(value) for value in column] for column in columns]
    if len(texts) == 1:
        return texts[0]
    return [json.dumps(values, ensure_ascii=False, separators=(",", ":")) for values in zip(*texts, strict=True)]


def _value_text(value: object) -> str | None:
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


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
        yield means if RULES not in means.schema.names else _with_one_rules(means, across=across_rules)


def _with_one_rules(means: pa.RecordBatch, *, across: bool) -> pa.RecordBatch:
    """Combine the rules of each mean, and put them last."""
    texts = means.column(RULES).to_pylist()
    combined: dict[tuple[str, ...], str | None] = {}
    for row, its in enumerate(texts):
        key = tuple(sorted(its))
        if key not in combined:
            combined[key] = combine_rules(key, f"the mean of {_group_text(means, row)}", across=across)
    names = [name for name in means.schema.names if name != RULES]
    rules = pa.array([combined[tuple(sorted(its))] for its in texts], pa.string())
    return pa.RecordBatch.from_arrays([*means.select(names).columns, rules], names=[*names, RULES])


def _group_text(batch: pa.RecordBatch, row: int) -> str:
    """Name the group of a row for a message, by the keys that it has."""
    keys = ("run", "segment", "metric", "k", "period", "period_start", "period_end")
    names = [name for name in keys if name in batch.schema.names]
    values = {name: batch.column(name)[row].as_py() for name in names}
    return labels.key({name: value for name, value in values.items() if value not in (None, "")})


def finish_batch(
    batch: pa.RecordBatch, confidence: float, day_quantiles: Sequence[float] | None = None
) -> pa.RecordBatch:
    n_queries = int_values(batch.column("n_queries")).tolist()
    parts = [int_values(one.values.flatten()).reshape(-1, MOMENTS.size) for one in batch.column("states")]
    states = np.zeros((batch.num_rows, MOMENTS.size), dtype=np.int64)
    for row, part in enumerate(parts):
        states[row] = part.sum(axis=0)
    found = []
    for row, n in enumerate(n_queries):
        try:
            if day_quantiles is None:
                found.append(estimate(states[row], n, confidence=confidence))
            else:
                found.append(day_estimate(parts[row], quantiles=day_quantiles))
        except InputRefusedError as error:
            raise InputRefusedError(f"{_group_text(batch, row)}: {text_of(error)}") from error
    columns = {name: batch.column(name) for name in batch.schema.names if name != "states"}
    for name in ESTIMATES:
        columns[name] = pa.array([getattr(one, name) for one in found], type=pa.float64())
    columns["state"] = _state_column(states)
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def empty_summary(
    runs: tuple[str, ...], cutoffs: tuple[int | None, ...], metrics: tuple[SummedMetric, ...]
) -> list[dict[str, Any]]:
    nothing: dict[str, Any] = dict.fromkeys(COUNTS, 0) | dict.fromkeys(ESTIMATES)
    nothing |= {"weight_sum": 0.0, "state": [0] * MOMENTS.size, "segment_by": "", "segment": ""}
    return [
        {**nothing, "run": run, "metric": metric.name, "k": k, labels.ASKED: metric.asked_at(k)}
        for run in runs
        for metric in metrics
        for k in cutoffs
        if metric.is_at(k)
    ]


def finish_catalogue(
    batches: Iterator[pa.RecordBatch],
    confidence: float,
    metrics: tuple[tuple[CatalogueMetric, int | None, str | None], ...],
    item_column: str,
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if batch.num_rows and (twice := value_at(batch.column("twice"), 0)) is not None:
            raise InputRefusedError(f"item {item_column}={twice} comes twice in the item table; keep one row of it.")
        of_lists = pc.equal(batch.column("metric"), LISTS)
        means = batch.filter(pc.invert(of_lists)).select([*GROUP_KEYS, labels.ASKED, *COUNTS, "states"])
        yield finish_batch(means, confidence)
        yield from _of_catalogue(batch.filter(of_lists), metrics)


def _of_catalogue(
    lists: pa.RecordBatch, metrics: tuple[tuple[CatalogueMetric, int | None, str | None], ...]
) -> Iterator[pa.RecordBatch]:
    """Rows of each metric at its cutoff: a value with neither error nor state, as it is no mean."""
    exposures = []
    for row in lists.select(["levels", "n_items"]).to_pylist():
        inside = {level["listed"]: level["n"] for level in row["levels"] if level["known"]}
        outside = sum(level["listed"] * level["n"] for level in row["levels"] if not level["known"])
        exposures.append(Exposure(inside, row["n_items"], outside))
    at = lists.column("k").to_pylist()
    for metric, k, asked in metrics:
        rows = [row for row, its in enumerate(at) if its == k]
        its = lists.take(pa.array(rows, pa.int64()))
        columns = {name: its.column(name) for name in (*GROUP_KEYS, labels.ASKED, *COUNTS)}
        columns["metric"] = pa.array([str(metric)] * len(rows), pa.string())
        columns[labels.ASKED] = pa.array([asked] * len(rows), pa.string())
        columns |= {name: pa.nulls(len(rows), pa.float64()) for name in ESTIMATES}
        columns["value"] = pa.array([metric.value(exposures[row]) for row in rows], pa.float64())
        columns["state"] = pa.nulls(len(rows), STATE_TYPE)
        yield pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
