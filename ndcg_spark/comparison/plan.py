"""Which columns of metrics of queries a comparison reads, and how, decided once for both engines. Arrow only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from ndcg_spark.comparison.settings import ComparisonSettings
from ndcg_spark.comparison.tasks import pairing
from ndcg_spark.core.schemas import TableInfo
from ndcg_spark.errors import InputRefusedError, option
from ndcg_spark.evaluation.plan_columns import ColumnRead, Conversion, TablePlan, read_double, read_key, read_text
from ndcg_spark.evaluation.rules import RULES

STORED_WEIGHT = "weight"
"""Column of per-query tables with the weight of a query in the means."""
SALT = "compare"
"""Hashed before keys, by which queries and clusters get their random numbers."""
STATUS = "status"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueriesPlan:
    """How metrics of queries are read, under names that workers know: keys and the cluster as text.

    `run` is the number of the run of all rows; None: the column RUN names it. `told` are columns that tell which
    queries count: the status and, where their nulls show `no_relevant=skip`, NDCG and IDCG.
    """

    columns: Mapping[str, ColumnRead]
    run: int | None
    told: Mapping[str, ColumnRead]

    @property
    def table(self) -> TablePlan:
        """All columns that are read."""
        return TablePlan(columns={**self.columns, **self.told})

    @property
    def keys(self) -> list[str]:
        return [name for name in self.columns if name.startswith("key_")]

    @property
    def shows_skipped(self) -> bool:
        return {"ndcg", "idcg"} <= self.told.keys()


def plan_queries(tables: Sequence[tuple[TableInfo, str | None]], settings: ComparisonSettings) -> list[QueriesPlan]:
    """Plan how tables are read; raise for all that is wrong with their columns.

    Each comes with the run that it holds, None where a column `run` tells.
    """
    named = [(replace(info, label=_label(run), is_text=False), run) for info, run in tables]
    _refuse_other_keys(named, settings)
    has_ideal = settings.same_ideal and all(info.has("idcg") for info, _ in named)
    return [_plan_table(info, run, settings, has_ideal=has_ideal) for info, run in named]


def _label(run: str | None) -> str:
    return "per-query table" if run is None else f"per-query table of run {run!r}"


def _refuse_other_keys(tables: Sequence[tuple[TableInfo, str | None]], settings: ComparisonSettings) -> None:
    """Raise where a query column has another kind of type in another table: as texts, 1 and 1.0 would be no pair."""
    for name in settings.query:
        kinds: dict[str, tuple[str, str | None]] = {}
        for info, run in tables:
            is_whole = pa.types.is_integer(info.require(name, option("query")))
            kinds.setdefault("whole" if is_whole else info.type_text(name), (info.type_text(name), run))
        if len(kinds) > 1:
            (one, of), (other, of_other), *_ = kinds.values()
            raise InputRefusedError(
                f"column {name!r} is {one} in run {of!r} and {other} in run {of_other!r}; cast one of them so that "
                "values compare."
            )


def _plan_table(info: TableInfo, run: str | None, settings: ComparisonSettings, *, has_ideal: bool) -> QueriesPlan:
    reads = {pairing.key_column(at): read_text(info, name, option("query")) for at, name in enumerate(settings.query)}
    if settings.cluster is not None:
        reads[pairing.CLUSTER] = read_text(info, settings.cluster, option("cluster"))
    if run is None:
        kind = info.require(pairing.RUN, "it says whose row it is")
        reads[pairing.RUN] = ColumnRead((pairing.RUN,), Conversion.AS_IS, kind)
    info.require("k", "k")
    reads[pairing.K] = ColumnRead(("k",), Conversion.CAST, pa.int32())
    for at, metric in enumerate(settings.compared):
        reads[pairing.value_column(at)] = read_double(info, metric.column, "metrics")
    if has_ideal:
        reads[pairing.IDCG] = read_double(info, "idcg", "ideal")
    if settings.weight is not None:
        reads[pairing.WEIGHT] = read_double(info, settings.weight, option("weight"))
    for at, name in enumerate(settings.segment_columns):
        reads[pairing.segment_column(at)] = read_key(info, name, option("segments"))
    if settings.rules_in_rows and info.has(RULES):
        reads[RULES] = read_text(info, RULES, RULES)
    counts = [name for name in pairing.TOP_ITEMS if name in info.names]
    reads |= {name: ColumnRead((name,), Conversion.AS_IS, pa.int64()) for name in counts}
    told = {}
    if info.has(STATUS):
        told[STATUS] = read_text(info, STATUS, STATUS)
        if {"ndcg", "idcg"} <= set(info.names):
            told |= {name: ColumnRead((name,), Conversion.AS_IS, info.type_of(name)) for name in ("ndcg", "idcg")}
    return QueriesPlan(columns=reads, run=None if run is None else settings.runs.index(run), told=told)


def needs_spark(
    tables: Iterable[TableInfo], query: Iterable[str], cluster: str | None, segments: Iterable[str]
) -> str | None:
    """Say in a clause why only Spark can read tables for a comparison by these columns."""
    texts, infos = [*query, *([] if cluster is None else [cluster]), pairing.RUN, STATUS, RULES], list(tables)
    for info in infos:
        for name in (one for one in (*texts, "k") if one in info.names):
            kind = info.type_of(name)
            is_text = name != "k" and (pa.types.is_string(kind) or pa.types.is_date(kind))
            if not (is_text or pa.types.is_integer(kind)):
                return f"Spark alone compares by column {name!r} of type {info.type_text(name)}"
    for name in segments:
        if len({info.type_text(name) for info in infos if name in info.names}) > 1:
            return f"column {name!r} has several types"
    return None
