"""Plan which columns of a table are read and how they are converted to canonical columns. Arrow only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

import pyarrow as pa

from ndcg_spark.core.schemas import MALFORMED, TableInfo, format_type
from ndcg_spark.errors import InputRefusedError, InvalidParameterError, option
from ndcg_spark.evaluation.settings import Columns, EvaluationSettings
from ndcg_spark.evaluation.tasks import query_rows as col
from ndcg_spark.evaluation.tasks.query_rows import bad_row_column, canonical_names

KEYS, VALUES = "key", "value"
"""Fields of a map in the source of a column."""
SAMPLE = "sample"
"""Hashed together with the query to decide whether a sample includes it."""


class Conversion(Enum):
    """Conversion of a column, or of each element of its lists, before workers receive it."""

    AS_IS = "as it is"
    CLEAN_ZERO = "-0.0 becomes 0.0"
    CAST = "to the target type: numbers to a wider type, booleans to 1 and 0, decimals to doubles"
    TO_TEXT = "whole numbers, booleans and dates as text"
    SPARK_TEXT = "other types as text, which only Spark formats; -0.0 as 0.0"
    PARSE_DOUBLE = "text is parsed; null if it is not a number"
    ONES = "1.0 for each element of a list"


@dataclass(frozen=True, slots=True)
class ColumnRead:
    """A canonical column: its source, conversion and type.

    `source` is a column and, if it has lists of structs, a field of these; of a map, `KEYS` or `VALUES`. With a
    `reason`, a row is bad if the source is not null but the converted value is.
    """

    source: tuple[str, ...]
    conversion: Conversion
    type: pa.DataType
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePlan:
    """Plan for reading the canonical columns of a table.

    `runs` has the columns of each run if a row holds the lists of several runs; each run becomes a row. `bad_rows`
    maps each `bad_row` column to the columns whose failed conversions it reports. `sample` is the share of queries
    read; `keeps_original` adds `row`, the original row.
    """

    columns: Mapping[str, ColumnRead]
    runs: Mapping[str, Mapping[str, ColumnRead]] = field(default_factory=dict)
    bad_rows: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    has_malformed: bool = False
    sample: float = 1.0
    keeps_original: bool = False

    @property
    def query(self) -> tuple[str, ...]:
        return tuple(column for column in self.columns if column.startswith("query_"))

    @property
    def schema(self) -> pa.Schema:
        """Types of the canonical columns."""
        run_columns = next(iter(self.runs.values()), {})
        fields = [(column, read.type) for column, read in (*self.columns.items(), *run_columns.items())]
        runs = [(col.RUN, pa.string())] if self.runs else []
        return pa.schema([*fields, *runs, *((column, pa.string()) for column in self.bad_rows)])


def find_item_need(settings: EvaluationSettings, has_judgments_table: bool) -> str | None:
    """Return what needs the item column, or None."""
    convention = settings.convention
    if has_judgments_table:
        return "joining judgments"
    if settings.lists_items:
        return f"metric {settings.metric_with(settings.needs[0])!r}"
    if not settings.ranks_given and convention.ties in ("item_asc", "item_desc"):
        return f"ties={convention.ties}"
    if settings.resolves_duplicates:
        return f"duplicates={convention.duplicates}"
    return None


def plan_rows(info: TableInfo, settings: EvaluationSettings, *, has_judgments_table: bool) -> TablePlan:
    """Plan the canonical columns of the main table, which has the relevances unless judgments are a table."""
    columns, names = settings.columns, canonical_names(settings)
    reads = read_keys(info, settings)
    if columns.rank is not None:
        reads[col.RANK] = _read_number(info, columns.rank, option("rank"), "rank")
    for name, column in names.scores.items():
        reads[name] = _read_number(info, column, option("score"), "score")
    reads |= _read_item_and_carried(info, settings, find_item_need(settings, has_judgments_table))
    if columns.order is not None and info.has(columns.order):
        reads[col.ORDER] = _read_order(info, columns.order)
    if not has_judgments_table:
        reads[col.RELEVANCE] = _read_number(info, columns.relevance, option("relevance"), "relevance")
    has_malformed = MALFORMED in info.names
    scores, others = (
        [name for name, read in reads.items() if read.reason and (name in names.scores) == is_score]
        for is_score in (True, False)
    )
    if len(names.scores) > 1 and scores:
        bad_rows = {bad_row_column(name): (name, *others) if name in scores else (*others,) for name in names.scores}
    else:
        bad_rows = {col.BAD_ROW: (*scores, *others)} if scores or others or has_malformed else {}
    return TablePlan(columns=reads, bad_rows=bad_rows, has_malformed=has_malformed, sample=settings.sample)


def plan_judgments(info: TableInfo, settings: EvaluationSettings) -> TablePlan:
    """Plan the canonical columns of a judgments table, like `plan_rows`. A null relevance is not a judgment."""
    order = settings.columns.order
    reads = read_keys(info, settings, run=False) | _read_item_and_carried(info, settings, "joining judgments")
    if settings.convention.duplicates == "first" and order is not None and info.has(order):
        reads[col.ORDER] = _read_order(info, order)
    reads[col.RELEVANCE] = _read_number(info, settings.columns.relevance, option("relevance"), "relevance")
    has_malformed = MALFORMED in info.names
    reasons = tuple(name for name, read in reads.items() if read.reason)
    bad_rows = {col.BAD_ROW: reasons} if reasons or has_malformed else {}
    return TablePlan(columns=reads, bad_rows=bad_rows, has_malformed=has_malformed, sample=settings.sample)


def read_keys(info: TableInfo, settings: EvaluationSettings, *, run: bool = True) -> dict[str, ColumnRead]:
    """Read the run column, if any, and the query columns."""
    reads = {}
    if run and settings.columns.run is not None:
        reads[col.RUN] = read_text(info, settings.columns.run, option("run"))
    return reads | {
        name: read_key(info, column, option("query")) for name, column in canonical_names(settings).query.items()
    }


def read_key(info: TableInfo, column: str, argument: str) -> ColumnRead:
    key_type = info.require_key(column, argument)
    is_float = pa.types.is_floating(key_type)
    return ColumnRead((column,), Conversion.CLEAN_ZERO if is_float else Conversion.AS_IS, key_type)


def has_plain_text(key_type: pa.DataType) -> bool:
    """Check that Arrow formats keys of this type as Spark does."""
    checks = (pa.types.is_string, pa.types.is_integer, pa.types.is_boolean, pa.types.is_date)
    return any(is_type(key_type) for is_type in checks)


def read_text(info: TableInfo, column: str, argument: str) -> ColumnRead:
    """Read a column of keys as text."""
    key_type = info.require_key(column, argument)
    conversion = Conversion.TO_TEXT if has_plain_text(key_type) else Conversion.SPARK_TEXT
    return ColumnRead((column,), Conversion.AS_IS if pa.types.is_string(key_type) else conversion, pa.string())


def read_double(info: TableInfo, column: str, argument: str) -> ColumnRead:
    """Read a column of numbers, or of text in a text table, as doubles."""
    source_type = info.require_number(column, argument)
    is_text, is_double = pa.types.is_string(source_type), source_type == pa.float64()
    conversion = Conversion.PARSE_DOUBLE if is_text else Conversion.AS_IS if is_double else Conversion.CAST
    return ColumnRead((column,), conversion, pa.float64())


def number_type(kind: pa.DataType) -> pa.DataType:
    """Return the type in which workers read numbers: unchanged, double for decimals, int for booleans."""
    if pa.types.is_boolean(kind):
        return pa.int32()
    return kind if pa.types.is_integer(kind) or pa.types.is_floating(kind) else pa.float64()


def _read_number(info: TableInfo, column: str, argument: str, prefix: str) -> ColumnRead:
    """Read a column of numbers in its own type if workers support it; text and decimals as doubles."""
    source_type = info.require_number(column, argument)
    if pa.types.is_string(source_type):
        return ColumnRead((column,), Conversion.PARSE_DOUBLE, pa.float64(), f"{prefix}_not_a_number")
    target_type = number_type(source_type)
    return ColumnRead((column,), Conversion.AS_IS if target_type == source_type else Conversion.CAST, target_type)


def _read_order(info: TableInfo, column: str) -> ColumnRead:
    order_type = info.require(column, option("order"))
    if pa.types.is_string(order_type) and info.is_text:
        return read_double(info, column, option("order"))
    return ColumnRead((column,), Conversion.AS_IS, order_type)


def _read_item_and_carried(
    info: TableInfo, settings: EvaluationSettings, needs_item: str | None
) -> dict[str, ColumnRead]:
    """Read item, segments and weight if the table has them or a rule needs them."""
    columns = settings.columns
    if needs_item and columns.item is None:
        raise InvalidParameterError(f"{needs_item} needs an item column ({option('item')}).")
    is_checked = needs_item is None and settings.checks_top_duplicates and columns.item is not None
    has_item = is_checked and (columns.item != Columns().item or info.has(str(columns.item)))
    reads = {}
    if columns.item is not None and (needs_item or has_item):
        reads[col.ITEM] = read_key(info, columns.item, option("item"))
    return reads | read_carried(info, settings)


def read_carried(info: TableInfo, settings: EvaluationSettings, *, required: bool = False) -> dict[str, ColumnRead]:
    """Read segments and weight, if the table has them or they are `required`."""
    columns = settings.columns
    reads = {
        name: read_key(info, column, option("segments"))
        for name, column in canonical_names(settings).segments.items()
        if required or info.has(column)
    }
    if columns.weight is not None and (required or info.has(columns.weight)):
        reads[col.WEIGHT] = read_double(info, columns.weight, option("weight"))
    return reads


def unify_keys(run: TablePlan, judgments: TablePlan, settings: EvaluationSettings) -> tuple[TablePlan, TablePlan]:
    """Read keys and segments of two tables in common types; raise for text in one and numbers in the other."""
    names = canonical_names(settings)
    widened: tuple[dict[str, ColumnRead], dict[str, ColumnRead]] = ({}, {})
    for name, label in {**names.query, col.ITEM: settings.columns.item, **names.segments}.items():
        if name not in run.columns or name not in judgments.columns:
            continue
        reads = run.columns[name], judgments.columns[name]
        left, right = (read.type for read in reads)
        if left == right:
            continue
        if not (pa.types.is_integer(left) and pa.types.is_integer(right)):
            raise InputRefusedError(
                f"column {label!r} is {format_type(left)} in the run and {format_type(right)} in the judgments; cast "
                "one of them to the type of the other."
            )
        for columns, read in zip(widened, reads, strict=True):
            columns[name] = replace(read, conversion=Conversion.CAST, type=pa.int64())
    tables = zip((run, judgments), widened, strict=True)
    first, second = (replace(plan, columns={**plan.columns, **columns}) for plan, columns in tables)
    return first, second
