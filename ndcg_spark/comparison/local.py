"""A comparison carried out without Spark: the functions of workers, one after another, over one table of rows."""

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
    """Metrics of queries that this machine reads."""

    @abstractmethod
    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Read columns; those of an evaluation are computed first."""


class StoredQueries(LocalQueries):
    """A table of files or in memory; `name` is the run of one without a run column."""

    def __init__(self, table: LocalTable, name: str = "") -> None:
        self._table, self._name = table, name

    @property
    def evaluation(self) -> None:
        return None

    @property
    def info(self) -> TableInfo:
        return self._table.info

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        schema = pa.schema([(name, self.info.type_of(name)) for name in names])
        for part in self._table.parts(1):
            yield from part.read(names, schema, _BATCH_ROWS)

    def runs(self) -> dict[str, bool]:
        """Read the columns of runs and weights."""
        names = [name for name in (pairing.RUN, STORED_WEIGHT) if self.info.has(name)]
        found: dict[object, bool] = {}
        for batch in self.batches(names or self.info.names[:1]):
            runs, has = pa.repeat(self._name, batch.num_rows), pa.repeat(False, batch.num_rows)
            runs = batch.column(pairing.RUN) if pairing.RUN in names else runs
            has = batch.column(STORED_WEIGHT).is_valid() if STORED_WEIGHT in names else has
            its = pa.table({"run": runs, "has": has}).group_by("run").aggregate([("has", "max")])
            for run, weighted in zip(its["run"].to_pylist(), its["has_max"].to_pylist(), strict=True):
                found[run] = found.get(run, False) or weighted
        return {str(run): found[run] for run in sorted(found, key=str) if run is not None}

    def computed_at(self) -> datetime | None:
        if not self.info.has("computed_at") or not pa.types.is_timestamp(self.info.type_of("computed_at")):
            return None
        times = (pc.max(batch.column("computed_at")).as_py() for batch in self.batches(["computed_at"]))
        return max(filter(None, times), default=None)

    def with_runs(self, column: str, name: str) -> StoredQueries:
        return StoredQueries(self._table, name)

    def of_slice(self, name: str, night: date | None, dataset: str | None, otherwise: str = "") -> StoredQueries:
        table = select_local_value(self._table, RUN_DATE, name, night, hint=otherwise)
        return StoredQueries(select_local_value(table, DATASET, name, dataset, accepts_single=True), self._name)

    def of_run(self, run: str) -> StoredQueries:
        is_named = pairing.RUN in self.info.names
        return StoredQueries(filter_rows(self._table, pairing.RUN, run) if is_named else self._table, self._name)


class EvaluatedQueries(LocalQueries):
    """The metrics of an evaluation, as a stored table has them: without what the convention drops as missing.

    Where judgments are a table of their own, with counts of items among the first k.
    """

    def __init__(self, evaluation: LocalEvaluation) -> None:
        self._evaluation = evaluation

    @property
    def evaluation(self) -> LocalEvaluation:
        return self._evaluation

    @cached_property
    def info(self) -> TableInfo:
        ranking = self._evaluation.ranking
        counts = [] if ranking.judged is None else [(name, pa.int64()) for name in pairing.TOP_ITEMS]
        return TableInfo(schema=pa.schema([*ranking.queries, *(pa.field(*one) for one in counts)]))

    def batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        yield from self._rows.select(names).to_batches(_BATCH_ROWS)

    @cached_property
    def _rows(self) -> pa.Table:
        ranking, computed = self._evaluation.ranking, vars(self._evaluation)  # a property that keeps its value
        rows = computed["per_query"] if "per_query" in computed else ranking.per_query()
        convention = self._evaluation.settings.convention
        if convention.missing_query == "drop":
            rows = rows.filter(pc.not_equal(rows.column(STATUS), "missing"))
        if ranking.judged is None:
            return rows
        counts = pc.invert(pc.is_in(rows.column(STATUS), pa.array(list_dropped_statuses(convention), pa.string())))
        n_items = rows.column(N_TOP_ITEMS)
        for name, n in zip(
            pairing.TOP_ITEMS, (n_items, pc.subtract(n_items, rows.column(N_UNJUDGED_ITEMS))), strict=True
        ):
            rows = rows.append_column(name, pc.if_else(counts, n, None).cast(pa.int64()))
        return rows

    def runs(self) -> dict[str, bool]:
        """Read the run column."""
        return dict.fromkeys(self._evaluation.ranking.runs(), True)


def compare_locally(tables: Tables, settings: ComparisonSettings) -> pa.Table:
    """Compare runs, with the columns of `COUNTED_SCHEMA`, sorted; the counterpart of `frames.compare_queries`."""
    rows = _canonical_rows(tables, settings)
    if settings.cluster is not None:
        checked = pairing.unify_queries(_sorted(rows, [pairing.QUERY]), settings)
        rows = pa.Table.from_batches(list(checked)) if rows.num_rows else rows
    sums = summing.add_up(_sorted(rows, pairing.order_of_units(settings)), settings)
    groups = finishing.estimate_groups(summing.merge_sums(sums), settings)
    found = pa.Table.from_batches(list(finishing.decide_family(groups, settings)), finishing.COUNTED_SCHEMA)
    return sort_rows(found, "baseline")


def _sorted(rows: pa.Table, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    if not rows.num_rows:
        return iter(())
    columns = [np.asarray(rows.column(name).to_numpy()) for name in names]
    return iter(rows.take(pa.array(np.lexsort(columns[::-1]))).to_batches(pairing.CHUNK_ROWS))


def _canonical_rows(tables: Tables, settings: ComparisonSettings) -> pa.Table:
    """Read what a comparison needs, under the names that workers know."""
    chosen = [(one, run) for one, run in choose_tables(tables, settings) if isinstance(one, LocalQueries)]
    found = []
    for (one, _), plan in zip(chosen, plan_tables(tables, settings), strict=True):
        names = list(dict.fromkeys(read.source[0] for read in plan.table.columns.values()))
        nothing = pa.RecordBatch.from_pylist([], pa.schema([(name, one.info.type_of(name)) for name in names]))
        batches = [_canonical(batch, plan, settings) for batch in (nothing, *one.batches(names))]
        found.append(pa.Table.from_batches(batches))
    return pa.concat_tables(found, promote_options="default")


def _canonical(batch: pa.RecordBatch, plan: QueriesPlan, settings: ComparisonSettings) -> pa.RecordBatch:
    """Select and rename columns, as `frames._selected` does on Spark."""
    if plan.run is None:
        runs = batch.column(plan.columns[pairing.RUN].source[0]).cast(pa.string())
        numbers = pc.index_in(runs, value_set=pa.array(settings.runs, pa.string()))
        batch, numbers = batch.filter(numbers.is_valid()), numbers.drop_null()
    else:
        numbers = pa.repeat(pa.scalar(plan.run, pa.int32()), batch.num_rows)
    at_cutoffs = _at_cutoffs(batch.column("k"), settings)
    batch, numbers = batch.filter(at_cutoffs), numbers.filter(at_cutoffs)
    rows = convert_batch(batch, plan.table)
    found = {name: rows.column(name) for name in plan.columns}
    told = {name: rows.column(name) for name in plan.told}
    query = _hashed([found[name] for name in plan.keys])
    found[pairing.UNIT if settings.cluster is None else pairing.QUERY] = query
    if settings.cluster is not None:
        unit = found[pairing.CLUSTER]
        found[pairing.CLUSTER] = pc.if_else(unit.is_valid(), _hashed([unit]), pa.scalar(None, pa.int64()))
    found[pairing.RUN] = numbers
    if told:
        found[pairing.MISSING], skipped = (
            pc.fill_null(pc.equal(told[STATUS], one), False) for one in ("missing", "no_relevant")
        )
        if not settings.skips_no_relevant:
            none = pa.repeat(False, batch.num_rows)
            shown = pc.and_(told["idcg"].is_valid(), told["ndcg"].is_null()) if plan.shows_skipped else none
            skipped = pc.and_(skipped, shown)
        for name in map(pairing.value_column, range(len(settings.compared))):
            found[name] = pc.if_else(skipped, pa.scalar(None, pa.float64()), found[name])
    if RULES in found:
        found[RULES] = pc.if_else(pc.equal(found[RULES], settings.rules), pairing.SAME_RULES, found[RULES])
    return pa.RecordBatch.from_arrays([concat_chunks(one) for one in found.values()], names=list(found))


def _hashed(keys: Sequence[pa.Array]) -> pa.Array:
    return pa.array(hash_texts(SALT, keys).view(np.int64))


def _at_cutoffs(k: pa.Array, settings: ComparisonSettings) -> pa.Array:
    wanted = {one.k for one in settings.metrics}
    if EVERY in wanted:
        return pa.repeat(True, len(k))
    return pc.is_in(k, value_set=pa.array(list(wanted), k.type))  # a null among them is one, too
