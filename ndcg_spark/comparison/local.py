"""Compare runs without Spark: call the functions of the workers one after another on one Arrow table."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from datetime import date, datetime
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ndcg_spark.comparison.plan import SALT, STATUS, STORED_WEIGHT, QueriesPlan
from ndcg_spark.comparison.settings import ComparisonSettings
from ndcg_spark.comparison.tables import QueryTable, Tables, choose_tables, plan_tables
from ndcg_spark.comparison.tasks import finishing, pairing, summing
from ndcg_spark.core.arrow_tables import sort_rows
from ndcg_spark.core.batches import concat_chunks
from ndcg_spark.core.hashing import hash_texts
from ndcg_spark.core.schemas import TableInfo
from ndcg_spark.evaluation.results import LocalEvaluation
from ndcg_spark.evaluation.rules import RULES
from ndcg_spark.evaluation.tasks.columns import convert_batch
from ndcg_spark.evaluation.tasks.scoring import N_TOP_ITEMS, N_UNJUDGED_ITEMS, list_dropped_statuses
from ndcg_spark.metrics import EVERY
from ndcg_spark.sources.local import LocalTable, filter_rows, select_local_value
from ndcg_spark.sources.slices import DATASET, RUN_DATE

_BATCH_ROWS = 2**17


class LocalQueries(QueryTable):
    """Per-query metrics that this process reads."""

    @abstractmethod
    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Read columns; an evaluation computes them first."""


class StoredQueries(LocalQueries):
    """A table of files or in memory; `name` is its run if it has no run column."""

    def __init__(self, table: LocalTable, name: str = "") -> None:
        self._table, self._name = table, name

    @property
    def evaluation(self) -> None:
        return None

    @property
    def info(self) -> TableInfo:
        return self._table.info

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        schema = pa.schema([(column, self.info.type_of(column)) for column in names])
        for table_part in self._table.parts(1):
            yield from table_part.read(names, schema, _BATCH_ROWS)

    def runs(self) -> dict[str, bool]:
        """Read the columns of runs and weights."""
        columns = [name for name in (pairing.RUN, STORED_WEIGHT) if self.info.has(name)]
        has_weights: dict[object, bool] = {}
        for batch in self.batches(columns or self.info.names[:1]):
            runs, is_weighted = pa.repeat(self._name, batch.num_rows), pa.repeat(False, batch.num_rows)
            runs = batch.column(pairing.RUN) if pairing.RUN in columns else runs
            is_weighted = batch.column(STORED_WEIGHT).is_valid() if STORED_WEIGHT in columns else is_weighted
            maxima = pa.table({"run": runs, "has": is_weighted}).group_by("run").aggregate([("has", "max")])
            for run, weighted in zip(maxima["run"].to_pylist(), maxima["has_max"].to_pylist(), strict=True):
                has_weights[run] = has_weights.get(run, False) or weighted
        return {str(run): has_weights[run] for run in sorted(has_weights, key=str) if run is not None}

    def computed_at(self) -> datetime | None:
        if not self.info.has("computed_at") or not pa.types.is_timestamp(self.info.type_of("computed_at")):
            return None
        times = (pc.max(batch.column("computed_at")).as_py() for batch in self.batches(["computed_at"]))
        return max(filter(None, times), default=None)

    def with_runs(self, column: str, name: str) -> StoredQueries:
        """Set the run of a table without the column `run`; only Spark reads other run columns (`column`)."""
        return StoredQueries(self._table, name)

    def select_slice(self, name: str, night: date | None, dataset: str | None, hint: str = "") -> StoredQueries:
        table = select_local_value(self._table, RUN_DATE, name, night, hint=hint)
        return StoredQueries(select_local_value(table, DATASET, name, dataset, accepts_single=True), self._name)

    def select_run(self, run: str) -> StoredQueries:
        is_named = pairing.RUN in self.info.names
        return StoredQueries(filter_rows(self._table, pairing.RUN, run) if is_named else self._table, self._name)


class EvaluatedQueries(LocalQueries):
    """Per-query metrics of an evaluation, as a stored table has them: without queries that the convention drops.

    If the judgments are a separate table, the rows have counts of items among the first k.
    """

    def __init__(self, evaluation: LocalEvaluation) -> None:
        self._evaluation = evaluation

    @property
    def evaluation(self) -> LocalEvaluation:
        return self._evaluation

    @cached_property
    def info(self) -> TableInfo:
        ranking = self._evaluation.ranking
        counts = [] if ranking.judged is None else [(column, pa.int64()) for column in pairing.TOP_ITEM_COLUMNS]
        return TableInfo(
            schema=pa.schema([*ranking.per_query_schema, *(pa.field(*counts_column) for counts_column in counts)])
        )

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        yield from self._rows.select(names).to_batches(_BATCH_ROWS)

    @cached_property
    def _rows(self) -> pa.Table:
        ranking, computed = self._evaluation.ranking, vars(self._evaluation)  # per_query is a cached property
        rows = computed["per_query"] if "per_query" in computed else ranking.per_query()
        convention = self._evaluation.settings.convention
        if convention.missing_query == "drop":
            rows = rows.filter(pc.not_equal(rows.column(STATUS), "missing"))
        if ranking.judged is None:
            return rows
        is_counted = pc.invert(
            pc.is_in(rows.column(STATUS), pa.array(list_dropped_statuses(convention), pa.string()))
        )
        n_items = rows.column(N_TOP_ITEMS)
        for column, counts_per_query in zip(
            pairing.TOP_ITEM_COLUMNS, (n_items, pc.subtract(n_items, rows.column(N_UNJUDGED_ITEMS))), strict=True
        ):
            rows = rows.append_column(column, pc.if_else(is_counted, counts_per_query, None).cast(pa.int64()))
        return rows

    def runs(self) -> dict[str, bool]:
        """Read the run column."""
        return dict.fromkeys(self._evaluation.ranking.runs(), True)


def compare_locally(tables: Tables, settings: ComparisonSettings) -> pa.Table:
    """Compare runs; return sorted rows of `SCHEMA_WITH_TOP_ITEMS`. The counterpart of `frames.compare_queries`."""
    groups = estimate_all_groups(tables, settings)
    comparison = pa.Table.from_batches(
        list(finishing.decide_family(groups, settings)), finishing.SCHEMA_WITH_TOP_ITEMS
    )
    return sort_rows(comparison, "baseline")


def estimate_all_groups(tables: Tables, settings: ComparisonSettings) -> Iterator[pa.RecordBatch]:
    """Compare runs like `compare_locally`, but accept empty runs; `FAMILY_COLUMNS` stay null, as on Spark."""
    rows = _read_rows(tables, settings)
    if settings.cluster is not None:
        unified = pairing.unify_queries(_sort_rows(rows, [pairing.QUERY]), settings)
        rows = pa.Table.from_batches(list(unified)) if rows.num_rows else rows
    sums = summing.add_up(_sort_rows(rows, pairing.list_sort_columns(settings)), settings)
    return finishing.estimate_groups(summing.merge_sums(sums), settings)


def _sort_rows(rows: pa.Table, sort_columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    if not rows.num_rows:
        return iter(())
    keys = [np.asarray(rows.column(column).to_numpy()) for column in sort_columns]
    return iter(rows.take(pa.array(np.lexsort(keys[::-1]))).to_batches(pairing.CHUNK_ROWS))


def _read_rows(tables: Tables, settings: ComparisonSettings) -> pa.Table:
    """Read the columns that a comparison needs, under the names that workers use."""
    selected = [(table, run) for table, run in choose_tables(tables, settings) if isinstance(table, LocalQueries)]
    worker_tables = []
    for (table, _), plan in zip(selected, plan_tables(tables, settings), strict=True):
        sources = list(dict.fromkeys(read.source[0] for read in plan.table.columns.values()))
        empty = pa.RecordBatch.from_pylist(
            [], pa.schema([(source, table.info.type_of(source)) for source in sources])
        )
        batches = [_select_columns(batch, plan, settings) for batch in (empty, *table.batches(sources))]
        worker_tables.append(pa.Table.from_batches(batches))
    return pa.concat_tables(worker_tables, promote_options="default")


def _select_columns(batch: pa.RecordBatch, plan: QueriesPlan, settings: ComparisonSettings) -> pa.RecordBatch:
    """Select and rename columns like `frames._select_columns`."""
    if plan.run is None:
        runs = batch.column(plan.columns[pairing.RUN].source[0]).cast(pa.string())
        numbers = pc.index_in(runs, value_set=pa.array(settings.runs, pa.string()))
        batch, numbers = batch.filter(numbers.is_valid()), numbers.drop_null()
    else:
        numbers = pa.repeat(pa.scalar(plan.run, pa.int32()), batch.num_rows)
    at_cutoffs = _match_cutoffs(batch.column("k"), settings)
    batch, numbers = batch.filter(at_cutoffs), numbers.filter(at_cutoffs)
    rows = convert_batch(batch, plan.table)
    columns = {column: rows.column(column) for column in plan.columns}
    status = {column: rows.column(column) for column in plan.status_columns}
    query = hash_keys([columns[column] for column in plan.keys])
    columns[pairing.UNIT if settings.cluster is None else pairing.QUERY] = query
    if settings.cluster is not None:
        cluster = columns[pairing.CLUSTER]
        columns[pairing.CLUSTER] = pc.if_else(cluster.is_valid(), hash_keys([cluster]), pa.scalar(None, pa.int64()))
    columns[pairing.RUN] = numbers
    if status:
        columns[pairing.MISSING], has_no_relevant = (
            pc.fill_null(pc.equal(status[STATUS], state), False) for state in ("missing", "no_relevant")
        )
        is_skipped = pa.repeat(settings.skips_no_relevant, batch.num_rows)
        if plan.shows_skipped:
            is_skipped = pc.or_(is_skipped, pc.and_(status["idcg"].is_valid(), status["ndcg"].is_null()))
        is_left_out = pc.and_(has_no_relevant, is_skipped)
        for column in map(pairing.value_column, range(len(settings.compared))):
            columns[column] = pc.if_else(is_left_out, pa.scalar(None, pa.float64()), columns[column])
    if RULES in columns:
        columns[RULES] = pc.if_else(pc.equal(columns[RULES], settings.rules), pairing.SAME_RULES, columns[RULES])
    return pa.RecordBatch.from_arrays([concat_chunks(array) for array in columns.values()], names=list(columns))


def hash_keys(keys: Sequence[pa.Array]) -> pa.Array:
    """Hash keys, which are text, like `frames.hash_keys`."""
    return pa.array(hash_texts(SALT, keys).view(np.int64))


def _match_cutoffs(k: pa.Array, settings: ComparisonSettings) -> pa.Array:
    cutoffs = {metric.k for metric in settings.metrics}
    if EVERY in cutoffs:
        return pa.repeat(True, len(k))
    return pc.is_in(k, value_set=pa.array(list(cutoffs), k.type))  # a null cutoff matches null
