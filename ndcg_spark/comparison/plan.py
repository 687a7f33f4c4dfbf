"""Plan which columns of per-query metrics a comparison reads, and how; shared by both engines. Arrow only."""

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
"""Column of per-query tables that holds the weight of a query in the means."""
SALT = "compare"
"""Hashed before the keys of queries and clusters; changing it changes all random numbers."""
STATUS = "status"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueriesPlan:
    """Plan for reading a table of per-query metrics: the columns of workers, by their names in `pairing`.

    Keys and the cluster are read as text. `run` is the index of the only run of the table; None if the column RUN
    names the runs. `status_columns` decide which queries count: the status and, if their nulls show
    `no_relevant=skip`, NDCG and IDCG.
    """

    columns: Mapping[str, ColumnRead]
    run: int | None
    status_columns: Mapping[str, ColumnRead]

    @property
    def table(self) -> TablePlan:
        """All columns that are read."""
        return TablePlan(columns={**self.columns, **self.status_columns})

    @property
    def keys(self) -> list[str]:
        return [column for column in self.columns if column.startswith("key_")]

    @property
    def shows_skipped(self) -> bool:
        return {"ndcg", "idcg"} <= self.status_columns.keys()


def plan_queries(tables: Sequence[tuple[TableInfo, str | None]], settings: ComparisonSettings) -> list[QueriesPlan]:
    """Plan how tables are read; raise if their columns are missing or have wrong types.

    Each table comes with the run that it holds; None if a column `run` names the runs.
    """
    labelled = [(replace(info, label=_label(run), is_text=False), run) for info, run in tables]
    _refuse_other_keys(labelled, settings)
    has_ideal = settings.same_ideal and all(info.has("idcg") for info, _ in labelled)
    return [_plan_table(info, run, settings, has_ideal=has_ideal) for info, run in labelled]


def _label(run: str | None) -> str:
    return "per-query table" if run is None else f"per-query table of run {run!r}"


def _refuse_other_keys(tables: Sequence[tuple[TableInfo, str | None]], settings: ComparisonSettings) -> None:
    """Raise if a query column has different types in two tables: as texts, 1 and 1.0 would not match."""
    for column in settings.query:
        kinds: dict[str, tuple[str, str | None]] = {}
        for info, run in tables:
            is_whole = pa.types.is_integer(info.require(column, option("query")))
            kinds.setdefault("whole" if is_whole else info.type_text(column), (info.type_text(column), run))
        if len(kinds) > 1:
            (first_type, first_run), (other_type, other_run), *_ = kinds.values()
            raise InputRefusedError(
                f"column {column!r} is {first_type} in run {first_run!r} and {other_type} in run {other_run!r}; cast "
                "one of them so that values compare."
            )


def _plan_table(info: TableInfo, run: str | None, settings: ComparisonSettings, *, has_ideal: bool) -> QueriesPlan:
    reads = {
        pairing.key_column(number): read_text(info, column, option("query"))
        for number, column in enumerate(settings.query)
    }
    if settings.cluster is not None:
        reads[pairing.CLUSTER] = read_text(info, settings.cluster, option("cluster"))
    if run is None:
        kind = info.require(pairing.RUN, "it names the run of a row")
        reads[pairing.RUN] = ColumnRead((pairing.RUN,), Conversion.AS_IS, kind)
    info.require("k", "k")
    reads[pairing.K] = ColumnRead(("k",), Conversion.CAST, pa.int32())
    for number, metric in enumerate(settings.compared):
        reads[pairing.value_column(number)] = read_double(info, metric.column, "metrics")
    if has_ideal:
        reads[pairing.IDCG] = read_double(info, "idcg", "ideal")
    if settings.weight is not None:
        reads[pairing.WEIGHT] = read_double(info, settings.weight, option("weight"))
    for number, column in enumerate(settings.segment_columns):
        reads[pairing.segment_column(number)] = read_key(info, column, option("segments"))
    if settings.rules_in_rows and info.has(RULES):
        reads[RULES] = read_text(info, RULES, RULES)
    counts = [column for column in pairing.TOP_ITEM_COLUMNS if column in info.names]
    reads |= {column: ColumnRead((column,), Conversion.AS_IS, pa.int64()) for column in counts}
    status = {}
    if info.has(STATUS):
        status[STATUS] = read_text(info, STATUS, STATUS)
        if {"ndcg", "idcg"} <= set(info.names):
            status |= {
                column: ColumnRead((column,), Conversion.AS_IS, info.type_of(column)) for column in ("ndcg", "idcg")
            }
    return QueriesPlan(columns=reads, run=None if run is None else settings.runs.index(run), status_columns=status)


def find_local_obstacle(
    tables: Iterable[TableInfo], query: Iterable[str], cluster: str | None, segments: Iterable[str]
) -> str | None:
    """Return the reason why only Spark can compare tables by these columns; None if this process can."""
    texts, infos = [*query, *([] if cluster is None else [cluster]), pairing.RUN, STATUS, RULES], list(tables)
    for info in infos:
        for column in (*texts, "k"):
            if column not in info.names:
                continue
            kind = info.type_of(column)
            is_text = column != "k" and (pa.types.is_string(kind) or pa.types.is_date(kind))
            if not (is_text or pa.types.is_integer(kind)):
                return f"only Spark can compare by column {column!r} of type {info.type_text(column)}"
    for column in segments:
        if len({info.type_text(column) for info in infos if column in info.names}) > 1:
            return f"column {column!r} has different types in two of the tables"
    return None
