"""How tables are read and ranked, decided once from their columns and the settings. NumPy and Arrow only.

A runner carries a plan out: it reads the columns of a table by its `TablePlan`, and gives them to worker functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final, Literal

import pyarrow as pa

from ndcg_spark.conventions.convention import CHOICES
from ndcg_spark.core.schemas import MALFORMED, TableInfo, type_text
from ndcg_spark.errors import InputRefusedError, InvalidParameterError, option
from ndcg_spark.evaluation.settings import Columns, EvaluationSettings
from ndcg_spark.evaluation.tasks import query_rows as col
from ndcg_spark.evaluation.tasks.query_rows import RankingTask, bad_row_of, canonical_names

ARRAYS: Final = "arrays"
WINDOW: Final = "window"
ENGINE: Final = "engine"
KEYS, VALUES = "key", "value"
"""Fields of a map in the source of a column."""
MALFORMED_LINE = "malformed_line"
"""Reason of a bad row; workers get it with the line, as `malformed_line: 1 Q0 a`."""


class Conversion(Enum):
    """What is done to a column, or to each element of its lists, before workers get it."""

    AS_IS = "as it is"
    CLEAN_ZERO = "-0.0 becomes 0.0"
    CAST = "to the type of the column: a number to a wider one, a boolean to 1 and 0, a decimal to a double"
    TO_TEXT = "text as Spark's cast writes it, of -0.0 as of 0.0"
    PARSE_DOUBLE = "text is parsed; what is no number is null"
    ONES = "1.0 for each element of a list"


@dataclass(frozen=True, slots=True)
class ColumnRead:
    """A column that workers get: where from, changed how, of which type. `source` may end in a field.

    With a `reason`, a row is bad whose source is not null and whose value is.
    """

    source: tuple[str, ...]
    conversion: Conversion
    type: pa.DataType
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePlan:
    """The canonical columns of a table. Several `runs` in lists are a row each, with columns of their own.

    `bad_rows`: of each column that says why a row is bad, the columns whose reasons count. `sample` is the share of
    the queries that are read, and `keeps_original` adds `row`, the row as it came.
    """

    columns: Mapping[str, ColumnRead]
    runs: Mapping[str, Mapping[str, ColumnRead]] = field(default_factory=dict)
    bad_rows: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    has_malformed: bool = False
    sample: float = 1.0
    keeps_original: bool = False

    @property
    def query(self) -> tuple[str, ...]:
        return tuple(name for name in self.columns if name.startswith("query_"))

    @property
    def schema(self) -> pa.Schema:
        """Types of the canonical columns."""
        of_runs = next(iter(self.runs.values()), {})
        fields = [(name, one.type) for name, one in (*self.columns.items(), *of_runs.items())]
        runs = [(col.RUN, pa.string())] if self.runs else []
        return pa.schema([*fields, *runs, *((name, pa.string()) for name in self.bad_rows)])


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingPlan:
    """How rows become rankings: a strategy, why, and what it needs. `settings` are fitted to the table.

    `others` are columns that the settings do not use and that may name a ranker. `spark_reads` is a clause: why
    workers cannot read files of the table themselves.
    """

    settings: EvaluationSettings
    rows: TablePlan
    judgments: TablePlan | None
    strategy: Literal["arrays", "window", "engine"]
    reason: str = ""
    others: tuple[str, ...] = ()
    spark_reads: str | None = None

    @property
    def needs_spark(self) -> str | None:
        """Why nothing but Spark can rank the table, in a clause."""
        return None if self.strategy == ARRAYS else self.spark_reads

    @property
    def task(self) -> RankingTask:
        """What workers must know to rank."""
        rows, is_arrays = self.rows.schema, self.strategy == ARRAYS  # arrays are checked whole, not when they are cut
        return RankingTask(
            settings=self.settings,
            rows=rows,
            judgments=None if self.judgments is None else self.judgments.schema,
            checks_duplicates=self.settings.checks_top_duplicates and col.ITEM in rows.names and not is_arrays,
            others=self.others,
        )


def plan_ranking(
    rows: TableInfo, judgments: TableInfo | None, settings: EvaluationSettings, *, fitted: bool = False
) -> RankingPlan:
    """Decide how tables are read and ranked; raise for all that is wrong with their columns.

    Lists beside judgments are to be long tables already. `fitted` settings are those of `fit_settings`.
    """
    settings = settings if fitted else fit_settings(rows, settings)
    lists = _plan_arrays(rows, judgments, settings)
    if lists is not None:
        return lists
    relevance = settings.columns.relevance
    if settings.columns.ideal is not None:
        raise InvalidParameterError(
            f"column {relevance!r} is no array of relevances, so nothing reads {settings.columns.ideal!r} "
            f"({option('ideal')}); leave it out."
        )
    if settings.convention.ideal == "unsorted":
        raise InvalidParameterError("ideal=unsorted needs arrays: a column of relevances and one of judged ones.")
    require_carried(settings, rows, *([] if judgments is None else [judgments]))
    read = plan_rows(rows, settings, judged=judgments is None)
    judged = None if judgments is None else plan_judgments(judgments, settings)
    if judged is not None:
        read, judged = with_common_keys(read, judged, settings)
    is_window = settings.strategy == "window"
    reasons = {
        "strategy=window ranks in Spark": is_window,
        "duplicates are resolved among all rows": settings.resolves_duplicates,
        "a sample is taken": settings.sample < 1,
    }
    return RankingPlan(
        settings=settings,
        rows=read,
        judgments=judged,
        strategy=WINDOW if is_window else ENGINE,
        reason="the reference was asked for" if is_window else "",
        others=other_columns(rows, settings),
        spark_reads=next((reason for reason, holds in reasons.items() if holds), None),
    )


def _plan_arrays(info: TableInfo, judgments: TableInfo | None, settings: EvaluationSettings) -> RankingPlan | None:
    """Plan a table with one row a query; None for any other."""
    from ndcg_spark.evaluation.plan_lists import plan_lists, settings_of_lists

    columns, fitted = settings.columns, settings
    if columns.ranked:
        what, how = f"column {columns.ranked[0]!r} has lists", "ranked"
        fitted = settings_of_lists(info, settings)
    elif is_array(info, columns.relevance):
        what, how = f"column {columns.relevance!r} is an array", "scored"
        if judgments is not None:
            raise InvalidParameterError("arrays of relevances need no judgments table.")
        if len(columns.score) > 1:
            raise InvalidParameterError(
                f"{option('score')} names {', '.join(columns.score)}: arrays of relevances are in rank order and "
                "have no scores; leave it out, and put the lists of each ranker in rows of their own "
                f"({option('run')})."
            )
    else:
        return None
    require_carried(settings, info)
    return RankingPlan(
        settings=fitted,
        rows=plan_lists(info, settings),
        judgments=None,
        strategy=ARRAYS,
        reason=f"{what}: each row is {how} where it is",
        spark_reads=what,
    )


def fit_settings(info: TableInfo, settings: EvaluationSettings) -> EvaluationSettings:
    """Fit settings to a table: its usual rank column, and lists without a query column. Refuse a mistaken `ideal`."""
    columns = settings.columns
    if columns.ranked and not columns.query_in(info.names):
        needs = {"sample": settings.sample < 1}
        needs |= {f"metric {str(one)!r}": bool(one.metric.needs) for one in settings.computed}
        for what in (what for what, holds in needs.items() if holds):
            raise InvalidParameterError(
                f"{what} needs to know the query of a row: name its column ({option('query')})."
            )
        settings = replace(settings, columns=replace(columns, query=()))
    if not is_array(info, columns.relevance):  # arrays are in rank order already
        settings = replace(settings, columns=settings.columns.with_usual_rank(info.names))
    if columns.ideal in CHOICES["ideal"] and columns.ideal not in info.names:
        raise InvalidParameterError(
            f"there is no column {columns.ideal!r}, which {option('ideal')} names; the rule for ideal lists is "
            f"{settings.convention.advice('ideal', columns.ideal)}."
        )
    return settings


def is_array(info: TableInfo, column: str) -> bool:
    return column in info.names and pa.types.is_list(info.type_of(column))


def other_columns(info: TableInfo, settings: EvaluationSettings) -> tuple[str, ...]:
    """Columns that the settings do not use and that may name a ranker."""
    columns = settings.columns
    used = {*columns.query, *columns.score, *settings.segment_columns, columns.item, columns.rank, columns.relevance}
    used |= {columns.run, columns.weight, columns.order, MALFORMED}
    kinds = (pa.types.is_string, pa.types.is_integer, pa.types.is_boolean, pa.types.is_date)
    return tuple(
        one.name
        for one in info.schema
        if one.name not in used and one.name not in info.spellings and any(is_kind(one.type) for is_kind in kinds)
    )


def require_carried(settings: EvaluationSettings, *tables: TableInfo) -> None:
    """Raise unless each segment, weight and order column is in one of the tables."""
    columns = settings.columns
    wanted = [(name, option("segments")) for name in settings.carried_segments]
    for name, part in ((columns.weight, option("weight")), (columns.order, option("order"))):
        wanted += [] if name is None else [(name, part)]
    for name, part in wanted:
        if not any(table.has(name) for table in tables):
            tables[0].require(name, part)


def item_needed(settings: EvaluationSettings, judged: bool) -> str | None:
    """Say what needs the item column, if anything does."""
    convention = settings.convention
    if not judged:
        return "joining judgments"
    if settings.lists_items:
        return f"metric {settings.metric_with(settings.needs[0])!r}"
    if not settings.ranks_given and convention.ties in ("item_asc", "item_desc"):
        return f"ties={convention.ties}"
    if settings.resolves_duplicates:
        return f"duplicates={convention.duplicates}"
    return None


def plan_rows(info: TableInfo, settings: EvaluationSettings, *, judged: bool) -> TablePlan:
    """Plan the canonical columns of the main table; `judged` if it has the relevances."""
    columns, names = settings.columns, canonical_names(settings)
    found = read_keys(info, settings)
    if columns.rank is not None:
        found[col.RANK] = _number(info, columns.rank, option("rank"), "rank")
    for name, column in names.scores.items():
        found[name] = _number(info, column, option("score"), "score")
    found |= _item_and_carried(info, settings, item_needed(settings, judged))
    if columns.order is not None and info.has(columns.order):
        found[col.ORDER] = _order(info, columns.order)
    if judged:
        found[col.RELEVANCE] = _number(info, columns.relevance, option("relevance"), "relevance")
    has_malformed = MALFORMED in info.names
    scores, others = (
        [name for name, one in found.items() if one.reason and (name in names.scores) == its] for its in (True, False)
    )
    if len(names.scores) > 1 and scores:
        bad_rows = {bad_row_of(name): (name, *others) if name in scores else (*others,) for name in names.scores}
    else:
        bad_rows = {col.BAD_ROW: (*scores, *others)} if scores or others or has_malformed else {}
    return TablePlan(columns=found, bad_rows=bad_rows, has_malformed=has_malformed, sample=settings.sample)


def plan_judgments(info: TableInfo, settings: EvaluationSettings) -> TablePlan:
    """Plan the canonical columns of a judgments table, as `plan_rows`. A null relevance judges nothing."""
    order = settings.columns.order
    found = read_keys(info, settings, run=False) | _item_and_carried(info, settings, "joining judgments")
    if settings.convention.duplicates == "first" and order is not None and info.has(order):
        found[col.ORDER] = _order(info, order)
    found[col.RELEVANCE] = _number(info, settings.columns.relevance, option("relevance"), "relevance")
    has_malformed = MALFORMED in info.names
    reasons = tuple(name for name, one in found.items() if one.reason)
    bad_rows = {col.BAD_ROW: reasons} if reasons or has_malformed else {}
    return TablePlan(columns=found, bad_rows=bad_rows, has_malformed=has_malformed, sample=settings.sample)


def read_keys(info: TableInfo, settings: EvaluationSettings, *, run: bool = True) -> dict[str, ColumnRead]:
    """Read the run, where a table has it, and the query columns."""
    found = {}
    if run and settings.columns.run is not None:
        is_text = pa.types.is_string(info.require_key(settings.columns.run, option("run")))
        conversion = Conversion.AS_IS if is_text else Conversion.TO_TEXT
        found[col.RUN] = ColumnRead((settings.columns.run,), conversion, pa.string())
    return found | {
        name: read_key(info, its, option("query")) for name, its in canonical_names(settings).query.items()
    }


def read_key(info: TableInfo, column: str, part: str) -> ColumnRead:
    kind = info.require_key(column, part)
    cleaned = pa.types.is_floating(kind)
    return ColumnRead((column,), Conversion.CLEAN_ZERO if cleaned else Conversion.AS_IS, kind)


def read_double(info: TableInfo, column: str, part: str) -> ColumnRead:
    """Read a column of numbers, or of text in a text table, as doubles."""
    kind = info.require_number(column, part)
    is_text, is_double = pa.types.is_string(kind), kind == pa.float64()
    change = Conversion.PARSE_DOUBLE if is_text else Conversion.AS_IS if is_double else Conversion.CAST
    return ColumnRead((column,), change, pa.float64())


def number_type(kind: pa.DataType) -> pa.DataType:
    """The type in which workers read numbers: their own, a double for decimals, an int for booleans."""
    if pa.types.is_boolean(kind):
        return pa.int32()
    return kind if pa.types.is_integer(kind) or pa.types.is_floating(kind) else pa.float64()


def _number(info: TableInfo, column: str, part: str, what: str) -> ColumnRead:
    """Read a column of numbers in its own type where workers read it; text and decimals as doubles."""
    kind = info.require_number(column, part)
    if pa.types.is_string(kind):
        return ColumnRead((column,), Conversion.PARSE_DOUBLE, pa.float64(), f"{what}_not_a_number")
    wanted = number_type(kind)
    return ColumnRead((column,), Conversion.AS_IS if wanted == kind else Conversion.CAST, wanted)


def _order(info: TableInfo, column: str) -> ColumnRead:
    kind = info.require(column, option("order"))
    if pa.types.is_string(kind) and info.is_text:
        return read_double(info, column, option("order"))
    return ColumnRead((column,), Conversion.AS_IS, kind)


def _item_and_carried(info: TableInfo, settings: EvaluationSettings, needs_item: str | None) -> dict[str, ColumnRead]:
    """Read item, segments and weight where the table has them or a rule needs them."""
    columns = settings.columns
    if needs_item and columns.item is None:
        raise InvalidParameterError(f"{needs_item} needs an item column ({option('item')}).")
    is_looked_for = needs_item is None and settings.checks_top_duplicates and columns.item is not None
    is_there = is_looked_for and (columns.item != Columns().item or info.has(str(columns.item)))
    found = {}
    if columns.item is not None and (needs_item or is_there):
        found[col.ITEM] = read_key(info, columns.item, option("item"))
    return found | read_carried(info, settings)


def read_carried(info: TableInfo, settings: EvaluationSettings, *, required: bool = False) -> dict[str, ColumnRead]:
    """Read segments and weight: where the table has them, unless they are `required`."""
    columns = settings.columns
    found = {
        name: read_key(info, column, option("segments"))
        for name, column in canonical_names(settings).segments.items()
        if required or info.has(column)
    }
    if columns.weight is not None and (required or info.has(columns.weight)):
        found[col.WEIGHT] = read_double(info, columns.weight, option("weight"))
    return found


def with_common_keys(
    run: TablePlan, judgments: TablePlan, settings: EvaluationSettings
) -> tuple[TablePlan, TablePlan]:
    """Read keys and segments of two tables in one type; refuse text beside numbers."""
    names = canonical_names(settings)
    wider: tuple[dict[str, ColumnRead], dict[str, ColumnRead]] = ({}, {})
    for name, label in {**names.query, col.ITEM: settings.columns.item, **names.segments}.items():
        if name not in run.columns or name not in judgments.columns:
            continue
        reads = run.columns[name], judgments.columns[name]
        left, right = (one.type for one in reads)
        if left == right:
            continue
        if not (pa.types.is_integer(left) and pa.types.is_integer(right)):
            raise InputRefusedError(
                f"column {label!r} is {type_text(left)} in the run and {type_text(right)} in the judgments; cast one "
                "of them so that values compare."
            )
        for its, one in zip(wider, reads, strict=True):
            its[name] = replace(one, conversion=Conversion.CAST, type=pa.int64())
    tables = zip((run, judgments), wider, strict=True)
    first, second = (replace(plan, columns={**plan.columns, **its}) for plan, its in tables)
    return first, second
