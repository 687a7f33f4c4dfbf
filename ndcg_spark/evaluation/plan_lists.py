"""Plan tables with one row per query: arrays of relevances, or lists of items and of relevant items."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import pyarrow as pa

from ndcg_spark.core.schemas import NO_KEYS, TableInfo, format_type, is_key, is_numeric, list_fields
from ndcg_spark.errors import InputRefusedError, InvalidParameterError, option
from ndcg_spark.evaluation.plan_columns import (
    KEYS,
    VALUES,
    ColumnRead,
    Conversion,
    TablePlan,
    number_type,
    read_carried,
    read_keys,
)
from ndcg_spark.evaluation.settings import Columns, EvaluationSettings, PositionColumns
from ndcg_spark.evaluation.tasks import query_rows as col

RANK, POSITION, ROW = "rank", "position", "row"
"""Names of columns of the long rows made from lists."""
SCORES, GRADES = ("score", "rating", RANK), ("relevance", "grade", "rating")
"""Default names of struct fields with numbers; ALS calls its scores `rating`."""


@dataclass(frozen=True, slots=True)
class ListColumn:
    """A column of lists: items and, if present, scores, ranks or grades."""

    name: str
    items: ColumnRead
    numbers: ColumnRead | None = None
    by_rank: bool = False

    @property
    def has_scores(self) -> bool:
        """True if items are ranked by scores, not by ranks or positions."""
        return self.numbers is not None and not self.by_rank


def plan_lists(info: TableInfo, settings: EvaluationSettings) -> TablePlan:
    """Plan the canonical columns of a table with one row per query. Each of several ranked columns becomes a row."""
    keys = read_keys(info, settings)
    lists, runs = _read_relevances(info, settings), {}
    if settings.columns.ranked:
        *ranked, relevant = unify_items([*read_ranked_lists(info, settings), read_relevant_list(info, settings)])
        grades = relevant.numbers or replace(relevant.items, conversion=Conversion.ONES, type=pa.list_(pa.float64()))
        lists = {col.IDEAL_ITEMS: relevant.items, col.IDEAL_LIST: grades}
        runs = {lists_read.name: _ranked_reads(lists_read) for lists_read in ranked}
        if len(runs) == 1:
            (run_columns,) = runs.values()
            lists, runs = run_columns | lists, {}
    columns = keys | lists | read_carried(info, settings, required=True)
    return TablePlan(columns=columns, runs=runs, sample=settings.sample)


def _ranked_reads(lists: ListColumn) -> dict[str, ColumnRead]:
    reads = {col.RANKED_ITEMS: lists.items}
    if lists.numbers is not None:
        reads[col.RANKED_SCORES if lists.has_scores else col.RANKED_RANKS] = lists.numbers
    return reads


def build_long_settings(info: TableInfo, settings: EvaluationSettings) -> EvaluationSettings:
    """Build the settings of the long table made from lists. Ranks are positions unless lists have scores."""
    columns, convention = settings.columns, settings.convention
    used = {*columns.query, *settings.segment_columns, columns.weight, columns.run, columns.item}

    def find_free_name(column: str) -> str:
        return column if column not in used else find_free_name(f"{column}_")

    needs_order = convention.ties == "input_order" or convention.duplicates == "first"
    lists = read_ranked_lists(info, settings)[0]
    columns = replace(
        columns,
        ranked=(),
        relevant=None,
        query=columns.query or (ROW,),
        rank=None if lists.has_scores else find_free_name(RANK),
        score=(find_free_name("score"),),
        order=columns.order
        or (find_free_name(POSITION) if needs_order else None),  # judgments may have such a column
        run=find_free_name(col.RUN) if len(columns.ranked) > 1 else columns.run,
    )
    if lists.numbers is None:
        columns = PositionColumns(**asdict(columns))
    long_settings = replace(settings, columns=columns)
    if settings.columns.query:
        return long_settings
    return replace(long_settings, columns=replace(columns, query=(), ranked=settings.columns.ranked[:1]))


def _read_relevances(info: TableInfo, settings: EvaluationSettings) -> dict[str, ColumnRead]:
    """Read the arrays of ranked and of ideal relevances."""
    columns = settings.columns
    if columns.ranked:
        return {}
    reads = _read_relevance_lists(info, columns.relevance, "relevance", settings, (col.RANKED_LIST, col.RANKED_ITEMS))
    if columns.ideal is not None:
        reads |= _read_relevance_lists(info, columns.ideal, "ideal", settings, (col.IDEAL_LIST, col.IDEAL_ITEMS))
    return reads


def _read_relevance_lists(
    info: TableInfo, column: str, option_name: str, settings: EvaluationSettings, names: tuple[str, str]
) -> dict[str, ColumnRead]:
    column_type, doubles = info.require(column, option(option_name)), pa.list_(pa.float64())
    fields = {field.name: field.type for field in list_fields(column_type)} if pa.types.is_list(column_type) else {}
    relevance, item = (
        info.find_field(column, field_name) if fields else None for field_name in ("relevance", "item")
    )
    if names[0] == col.RANKED_LIST and settings.lists_items and item is None:
        raise InvalidParameterError(
            f"metric {settings.metric_with(settings.needs[0])!r} needs items: column {column!r} must be an array of "
            "structs with fields item and relevance."
        )
    if pa.types.is_list(column_type) and _is_relevance(column_type.value_type, or_null=True):
        return {names[0]: ColumnRead((column,), Conversion.CAST, doubles)}
    if relevance is None or not _is_relevance(fields[relevance]):
        raise InputRefusedError(
            f"column {column!r} must be an array of numbers, or of structs with a numeric field 'relevance'; it is "
            f"{info.type_text(column)}."
        )
    reads = {names[0]: ColumnRead((column, relevance), Conversion.CAST, doubles)}
    if item and settings.convention.duplicates != "error":
        raise InvalidParameterError("duplicates=best and first do not support arrays; remove duplicates beforehand.")
    if item and (settings.check_duplicates != "none" or settings.lists_items):
        info.check(f"{column}.{item}", f"field {item!r} of column {column!r} ({option(option_name)})")
        if not is_key(fields[item]):
            items = f"items of column {column!r} ({option(option_name)}) are {format_type(fields[item])}"
            raise InputRefusedError(f"{items}; cast them to text first.")
        reads[names[1]] = ColumnRead((column, item), Conversion.AS_IS, pa.list_(fields[item]))
    return reads


def _is_relevance(value_type: pa.DataType, *, or_null: bool = False) -> bool:
    return bool(
        is_numeric(value_type) or pa.types.is_boolean(value_type) or (or_null and pa.types.is_null(value_type))
    )


def read_ranked_lists(info: TableInfo, settings: EvaluationSettings) -> list[ListColumn]:
    """Read the ranked columns; all must have numbers of one type, or none."""
    columns = settings.columns
    number_fields = _NumberFields(option("score"), columns.score[0], Columns().score[0], SCORES)
    lists = [_read_lists(info, column, option("ranked"), columns, number_fields) for column in columns.ranked]
    if number_fields.is_named and any(list_column.numbers is None for list_column in lists):
        raise InputRefusedError(
            f"column {lists[0].name!r} ({option('ranked')}) has only ids, without "
            f"{number_fields.requested!r} ({number_fields.argument}); remove that option."
        )
    roles = {(list_column.numbers is not None, list_column.has_scores): list_column.name for list_column in lists}
    if len(roles) > 1:
        names = ", ".join(map(repr, roles.values()))
        raise InputRefusedError(
            f"columns {names} ({option('ranked')}) mix scores, ranks and ids without numbers; evaluate them "
            "separately."
        )
    if len({list_column.numbers.type for list_column in lists if list_column.numbers is not None}) > 1:
        lists = [
            replace(list_column, numbers=_cast_numbers(list_column.numbers, pa.float64())) for list_column in lists
        ]
    return lists


def read_relevant_list(info: TableInfo, settings: EvaluationSettings) -> ListColumn:
    """Read the column of relevant items."""
    columns, argument = settings.columns, option("relevant")
    column = columns.relevant
    if column is None:
        raise InvalidParameterError(
            f"lists of items ({option('ranked')}) need relevant items: name a column ({argument}) or pass a "
            "judgments table."
        )
    column_type = info.require(column, argument)
    if pa.types.is_map(column_type) and (is_key(column_type.key_type) or column_type.key_type == NO_KEYS):
        item_type = pa.null() if column_type.key_type == NO_KEYS else column_type.key_type
        items = ColumnRead((column, KEYS), Conversion.AS_IS, pa.list_(item_type))
        return ListColumn(column, items, _read_list_numbers((column, VALUES), column_type.item_type, argument))
    number_fields = _NumberFields(option("relevance"), columns.relevance, Columns().relevance, GRADES)
    lists = _read_lists(info, column, argument, columns, number_fields)
    fields = [field.name for field in list_fields(column_type)]
    if lists.numbers is None and len(fields) > 1:
        raise InputRefusedError(
            f"column {column!r} ({argument}) has structs with fields {', '.join(fields)}, of which none is called "
            f"{' or '.join(number_fields.fields)}: name the field of grades ({number_fields.argument})."
        )
    return lists


@dataclass(frozen=True, slots=True)
class _NumberFields:
    """Names of struct fields with numbers: the requested name, or else the usual names."""

    argument: str
    requested: str
    default: str
    usual: tuple[str, ...]

    @property
    def is_named(self) -> bool:
        return self.requested != self.default

    @property
    def fields(self) -> tuple[str, ...]:
        """Candidate names in order; the first field that exists has the numbers."""
        return (self.requested,) if self.is_named else self.usual


def _read_lists(
    info: TableInfo, column: str, argument: str, columns: Columns, number_fields: _NumberFields
) -> ListColumn:
    """Read a column of arrays of ids, or of structs with an id and optionally a number."""
    column_type = info.require(column, argument)
    error = InputRefusedError(
        f"column {column!r} ({argument}) must be {_describe_forms(column_type, argument)}; it is "
        f"{info.type_text(column)}."
    )
    if not pa.types.is_list(column_type):
        raise error
    if is_key(column_type.value_type) or pa.types.is_null(column_type.value_type):
        return ListColumn(column, ColumnRead((column,), Conversion.AS_IS, column_type))
    fields = {field.name: field.type for field in list_fields(column_type)}
    if not fields:
        raise error
    candidates = (info.find_field(column, field_name) for field_name in number_fields.fields)
    number_field, item = (
        next((field for field in candidates if field), None),
        _find_item_field(info, column, list(fields), columns, number_fields),
    )
    for field_found, requested, field_argument in (
        (item, columns.item, option("item")),
        (number_field or not number_fields.is_named, number_fields.requested, number_fields.argument),
    ):
        if not field_found:
            raise InputRefusedError(
                f"column {column!r} ({argument}) has structs with fields {', '.join(fields)}; none is {requested!r} "
                f"({field_argument})."
            )
    info.check(f"{column}.{item}", f"field {item!r} of column {column!r} ({argument})")
    if not is_key(fields[str(item)]):
        raise error
    items = ColumnRead((column, str(item)), Conversion.AS_IS, pa.list_(fields[str(item)]))
    if number_field is None:
        return ListColumn(column, items)
    by_rank = number_field.lower() == RANK and not number_fields.is_named
    return ListColumn(
        column, items, _read_list_numbers((column, number_field), fields[number_field], argument), by_rank
    )


def _find_item_field(
    info: TableInfo, column: str, fields: Sequence[str], columns: Columns, number_fields: _NumberFields
) -> str | None:
    """Find the field with ids: the item column or, if none was named, the first field without numbers."""
    item = None if columns.item is None else info.find_field(column, columns.item)
    if item or columns.item not in (None, Columns().item):
        return item
    numbers = {field_name.lower() for field_name in (*number_fields.fields, *SCORES, *GRADES)}
    return next((field for field in fields if field.lower() not in numbers), None)


def _describe_forms(column_type: pa.DataType, argument: str) -> str:
    if argument == option("ranked"):
        return "an array of ids, or of structs with an id"
    is_struct = pa.types.is_struct(column_type)
    hint = " (a dict of pandas or json is not a map: convert it to a list of id and grade)" if is_struct else ""
    return f"an array of ids, an array of structs with an id and a grade, or a map from id to grade{hint}"


def _read_list_numbers(source: tuple[str, str], value_type: pa.DataType, argument: str) -> ColumnRead:
    """Read numbers of lists in the types that workers use for long tables."""
    if not _is_relevance(value_type, or_null=True):
        content = "grades" if argument == option("relevant") else "scores or ranks"
        raise InputRefusedError(
            f"the {content} in column {source[0]!r} ({argument}) are {format_type(value_type)}; cast them to numbers."
        )
    target_type = number_type(value_type)
    return ColumnRead(
        source, Conversion.AS_IS if target_type == value_type else Conversion.CAST, pa.list_(target_type)
    )


def _cast_numbers(read: ColumnRead | None, value_type: pa.DataType) -> ColumnRead | None:
    return None if read is None else replace(read, conversion=Conversion.CAST, type=pa.list_(value_type))


def unify_items(lists: Sequence[ListColumn], *, like: pa.DataType | None = None) -> list[ListColumn]:
    """Read items of all lists in one type; raise if text and numbers are mixed.

    Columns of empty lists (`array()`) get the type of the other items, else the type `like`.
    """
    default_type = next(
        (item_type for item_type in map(_item_type, lists) if not pa.types.is_null(item_type)), like or pa.string()
    )
    lists = [
        _cast_items(list_column, default_type) if pa.types.is_null(_item_type(list_column)) else list_column
        for list_column in lists
    ]
    first_type = _item_type(lists[0])
    for list_column in lists[1:]:
        item_type = _item_type(list_column)
        if item_type == first_type or (pa.types.is_integer(item_type) and pa.types.is_integer(first_type)):
            continue
        raise InputRefusedError(
            f"items are {format_type(first_type)} in column {lists[0].name!r} and {format_type(item_type)} in column "
            f"{list_column.name!r}; cast one of them to the type of the other."
        )
    if len(set(map(_item_type, lists))) == 1:
        return list(lists)
    return [_cast_items(list_column, pa.int64()) for list_column in lists]


def _item_type(list_column: ListColumn) -> pa.DataType:
    return list_column.items.type.value_type


def _cast_items(list_column: ListColumn, item_type: pa.DataType) -> ListColumn:
    """Cast the items of lists to a type."""
    return replace(
        list_column, items=replace(list_column.items, conversion=Conversion.CAST, type=pa.list_(item_type))
    )


ONE_LIST_PER_QUERY = "a table of relevant items must have one row per query. Put all items of a query into one list."


@dataclass(frozen=True, slots=True, kw_only=True)
class LongRows:
    """Long rows made from lists: one row per list entry, with the `kept` columns of its row.

    Without numbers, `number` is the position from 1, or 1 if the lists are `relevant`. A null list becomes a row
    without item, an empty list no row. With `run`, each list column is a run; `order` holds positions.
    """

    lists: tuple[ListColumn, ...]
    kept_columns: tuple[str, ...]
    item: str
    number: str
    run: str | None = None
    order: str | None = None
    relevant: bool = False

    def schema(self, info: TableInfo) -> pa.Schema:
        """Return the columns of the long rows of a table."""
        first, runs = self.lists[0], {} if self.run is None else {self.run: pa.string()}
        places = {} if self.order is None else {self.order: pa.int32()}
        number = pa.int32() if first.numbers is None else first.numbers.type.value_type
        kept_columns = {column: info.type_of(column) for column in self.kept_columns}
        return pa.schema(
            {**kept_columns, **runs, self.item: first.items.type.value_type, self.number: number, **places}
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LongTables:
    """Plans for the long rows of lists and of judgments, which may be lists, too."""

    settings: EvaluationSettings
    rows: LongRows
    judgments: LongRows | None


def plan_long_tables(info: TableInfo, judged: TableInfo, settings: EvaluationSettings) -> LongTables:
    """Plan the long tables of a run of lists and of its judgments, and fit settings to them."""
    columns = settings.columns
    if columns.relevant in info.names:
        raise InvalidParameterError(
            f"column {columns.relevant!r} ({option('relevant')}) of the input has the relevant items, but there is "
            "also a judgments table; remove one of them, or drop the column."
        )
    if not columns.query:
        raise InvalidParameterError(f"joining judgments needs a query column ({option('query')}).")
    if columns.item is None:
        raise InvalidParameterError(f"joining judgments needs an item column ({option('item')}).")
    query_options = [(column, option("query")) for column in columns.query]
    for column, column_option in [*query_options, *([] if columns.run is None else [(columns.run, option("run"))])]:
        info.require(column, column_option)
    long_settings = build_long_settings(info, settings)
    relevant = [] if columns.relevant is None else [read_relevant_list(judged, settings)]
    like_type = judged.type_of(columns.item) if columns.item in judged.names else None
    ranked = unify_items([*read_ranked_lists(info, settings), *relevant], like=like_type)
    item, order = str(columns.item), long_settings.columns.order
    judgments = None
    if relevant:
        kept_columns, number = _find_kept_columns(judged, settings), columns.relevance
        judgments = LongRows(
            lists=(ranked.pop(),), kept_columns=kept_columns, item=item, number=number, order=order, relevant=True
        )
    rows = LongRows(
        lists=tuple(ranked),
        kept_columns=_find_kept_columns(info, settings),
        item=item,
        number=long_settings.columns.rank or long_settings.columns.score[0],
        run=long_settings.columns.run if len(ranked) > 1 else None,
        order=order,
    )
    return LongTables(settings=long_settings, rows=rows, judgments=judgments)


def _find_kept_columns(info: TableInfo, settings: EvaluationSettings) -> tuple[str, ...]:
    """Find the columns of a table, other than lists, that settings name."""
    columns = settings.columns
    candidates = (*columns.query, *settings.segment_columns, columns.weight, columns.run)
    return tuple(column for column in dict.fromkeys(candidates) if column is not None and info.has(column))


def read_empty_lists(info: TableInfo, settings: EvaluationSettings) -> dict[str, ColumnRead]:
    """Read the columns of rows with empty lists, which the long table lacks: run, and query and segments if any.

    With several ranked columns they also name all runs.
    """
    carried = {name: read for name, read in read_carried(info, settings).items() if name != col.WEIGHT}
    keys = read_keys(info, settings)
    return {name: read for name, read in keys.items() if carried or name == col.RUN} | carried
