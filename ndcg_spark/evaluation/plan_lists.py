"""How tables with one row a query are read: arrays of relevances, or lists of items with what is relevant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import pyarrow as pa

from ndcg_spark.core.schemas import NO_KEYS, TableInfo, fields_of, is_key, is_number, type_text
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
from ndcg_spark.evaluation.settings import Columns, EvaluationSettings, PlaceColumns
from ndcg_spark.evaluation.tasks import query_rows as col

RANK, POSITION, ROW = "rank", "position", "row"
"""Names of columns of the long rows that lists stand for."""
SCORES, GRADES = ("score", "rating", RANK), ("relevance", "grade", "rating")
"""Fields of structs with numbers, where none is named; ALS calls its scores `rating`."""


@dataclass(frozen=True, slots=True)
class ListColumn:
    """A column of lists: items and, if it has them, scores, ranks or grades."""

    name: str
    items: ColumnRead
    numbers: ColumnRead | None = None
    by_rank: bool = False

    @property
    def has_scores(self) -> bool:
        """Whether items are ranked by numbers that are no ranks."""
        return self.numbers is not None and not self.by_rank


def plan_lists(info: TableInfo, settings: EvaluationSettings) -> TablePlan:
    """Plan the canonical columns of a table with one row a query. Several ranked columns are a row each."""
    keys = read_keys(info, settings)
    lists, runs = _read_relevances(info, settings), {}
    if settings.columns.ranked:
        *ranked, relevant = unify_items([*read_ranked_lists(info, settings), read_relevant_list(info, settings)])
        grades = relevant.numbers or replace(relevant.items, conversion=Conversion.ONES, type=pa.list_(pa.float64()))
        lists = {col.IDEAL_ITEMS: relevant.items, col.IDEAL_LIST: grades}
        runs = {one.name: _ranked_reads(one) for one in ranked}
        if len(runs) == 1:
            (its,) = runs.values()
            lists, runs = its | lists, {}
    columns = keys | lists | read_carried(info, settings, required=True)
    return TablePlan(columns=columns, runs=runs, sample=settings.sample)


def _ranked_reads(one: ListColumn) -> dict[str, ColumnRead]:
    found = {col.RANKED_ITEMS: one.items}
    if one.numbers is not None:
        found[col.RANKED_SCORES if one.has_scores else col.RANKED_RANKS] = one.numbers
    return found


def build_long_settings(info: TableInfo, settings: EvaluationSettings) -> EvaluationSettings:
    """Build the settings of the long table of the lists. Ranks are positions unless lists have scores."""
    columns, convention = settings.columns, settings.convention
    taken = {*columns.query, *settings.segment_columns, columns.weight, columns.run, columns.item}

    def free(name: str) -> str:
        return name if name not in taken else free(f"{name}_")

    ordered = convention.ties == "input_order" or convention.duplicates == "first"
    lists = read_ranked_lists(info, settings)[0]
    columns = replace(
        columns,
        ranked=(),
        relevant=None,
        query=columns.query or (ROW,),
        rank=None if lists.has_scores else free(RANK),
        score=(free("score"),),
        order=columns.order or (free(POSITION) if ordered else None),  # judgments may have a column of that order
        run=free(col.RUN) if len(columns.ranked) > 1 else columns.run,
    )
    if lists.numbers is None:
        columns = PlaceColumns(**asdict(columns))
    found = replace(settings, columns=columns)
    if settings.columns.query:
        return found
    return replace(found, columns=replace(columns, query=(), ranked=settings.columns.ranked[:1]))


def _read_relevances(info: TableInfo, settings: EvaluationSettings) -> dict[str, ColumnRead]:
    """Read arrays of relevances, in rank order and ideal."""
    columns = settings.columns
    if columns.ranked:
        return {}
    found = _read_relevance_lists(info, columns.relevance, "relevance", settings, (col.RANKED_LIST, col.RANKED_ITEMS))
    if columns.ideal is not None:
        found |= _read_relevance_lists(info, columns.ideal, "ideal", settings, (col.IDEAL_LIST, col.IDEAL_ITEMS))
    return found


def _read_relevance_lists(
    info: TableInfo, column: str, part: str, settings: EvaluationSettings, names: tuple[str, str]
) -> dict[str, ColumnRead]:
    kind, doubles = info.require(column, option(part)), pa.list_(pa.float64())
    fields = {one.name: one.type for one in fields_of(kind)} if pa.types.is_list(kind) else {}
    relevance, item = (info.field_named(column, name) if fields else None for name in ("relevance", "item"))
    if names[0] == col.RANKED_LIST and settings.lists_items and item is None:
        raise InvalidParameterError(
            f"metric {settings.metric_with(settings.needs[0])!r} needs items: column {column!r} must be an array of "
            "structs with fields item and relevance."
        )
    if pa.types.is_list(kind) and _is_relevance(kind.value_type, or_null=True):
        return {names[0]: ColumnRead((column,), Conversion.CAST, doubles)}
    if relevance is None or not _is_relevance(fields[relevance]):
        raise InputRefusedError(
            f"column {column!r} must be an array of numbers, or of structs with a numeric field 'relevance'; it is "
            f"{info.type_text(column)}."
        )
    found = {names[0]: ColumnRead((column, relevance), Conversion.CAST, doubles)}
    if item and settings.convention.duplicates != "error":
        raise InvalidParameterError("duplicates=best and first are not for arrays; remove them beforehand.")
    if item and (settings.check_duplicates != "none" or settings.lists_items):
        info.check(f"{column}.{item}", f"field {item!r} of column {column!r} ({option(part)})")
        if not is_key(fields[item]):
            what = f"items of column {column!r} ({option(part)}) are {type_text(fields[item])}"
            raise InputRefusedError(f"{what}; cast them to text first.")
        found[names[1]] = ColumnRead((column, item), Conversion.AS_IS, pa.list_(fields[item]))
    return found


def _is_relevance(kind: pa.DataType, *, or_null: bool = False) -> bool:
    return bool(is_number(kind) or pa.types.is_boolean(kind) or (or_null and pa.types.is_null(kind)))


def read_ranked_lists(info: TableInfo, settings: EvaluationSettings) -> list[ListColumn]:
    """Read the ranked columns, all with numbers or none, which are of one type."""
    columns = settings.columns
    by = _NumberFields(option("score"), columns.score[0], Columns().score[0], SCORES)
    found = [_read_lists(info, name, option("ranked"), columns, by) for name in columns.ranked]
    if by.is_named and any(one.numbers is None for one in found):
        raise InputRefusedError(
            f"column {found[0].name!r} ({option('ranked')}) has ids alone, and no {by.asked!r} ({by.part}); leave "
            "that out."
        )
    roles = {(one.numbers is not None, one.has_scores): one.name for one in found}
    if len(roles) > 1:
        names = ", ".join(map(repr, roles.values()))
        raise InputRefusedError(
            f"of columns {names} ({option('ranked')}) some have scores, and others ranks or ids alone; evaluate one "
            "after the other."
        )
    if len({one.numbers.type for one in found if one.numbers is not None}) > 1:
        found = [replace(one, numbers=_cast_numbers(one.numbers, pa.float64())) for one in found]
    return found


def read_relevant_list(info: TableInfo, settings: EvaluationSettings) -> ListColumn:
    """Read the column of relevant items."""
    columns, part = settings.columns, option("relevant")
    name = columns.relevant
    if name is None:
        raise InvalidParameterError(
            f"lists of items ({option('ranked')}) need the items that are relevant: a column ({part}) or a table of "
            "judgments."
        )
    kind = info.require(name, part)
    if pa.types.is_map(kind) and (is_key(kind.key_type) or kind.key_type == NO_KEYS):
        its_type = pa.null() if kind.key_type == NO_KEYS else kind.key_type
        items = ColumnRead((name, KEYS), Conversion.AS_IS, pa.list_(its_type))
        return ListColumn(name, items, _read_list_numbers((name, VALUES), kind.item_type, part))
    by = _NumberFields(option("relevance"), columns.relevance, Columns().relevance, GRADES)
    found = _read_lists(info, name, part, columns, by)
    fields = [one.name for one in fields_of(kind)]
    if found.numbers is None and len(fields) > 1:
        raise InputRefusedError(
            f"column {name!r} ({part}) has structs with fields {', '.join(fields)}, of which none is called "
            f"{' or '.join(by.fields)}: name the field of grades ({by.part})."
        )
    return found


@dataclass(frozen=True, slots=True)
class _NumberFields:
    """How fields with numbers are called: as the user asked for, or else as is usual."""

    part: str
    asked: str
    default: str
    usual: tuple[str, ...]

    @property
    def is_named(self) -> bool:
        return self.asked != self.default

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of fields, the first of which that is there has the numbers."""
        return (self.asked,) if self.is_named else self.usual


def _read_lists(info: TableInfo, name: str, part: str, columns: Columns, by: _NumberFields) -> ListColumn:
    """Read a column of arrays of ids, or of structs with an id and maybe a number."""
    kind = info.require(name, part)
    unfit = InputRefusedError(
        f"column {name!r} ({part}) must be {_describe_forms(kind, part)}; it is {info.type_text(name)}."
    )
    if not pa.types.is_list(kind):
        raise unfit
    if is_key(kind.value_type) or pa.types.is_null(kind.value_type):
        return ListColumn(name, ColumnRead((name,), Conversion.AS_IS, kind))
    fields = {one.name: one.type for one in fields_of(kind)}
    if not fields:
        raise unfit
    numbers = (info.field_named(name, usual) for usual in by.fields)
    its, item = next((one for one in numbers if one), None), _find_item_field(info, name, list(fields), columns, by)
    for found, asked, named_by in ((item, columns.item, option("item")), (its or not by.is_named, by.asked, by.part)):
        if not found:
            raise InputRefusedError(
                f"column {name!r} ({part}) has structs with fields {', '.join(fields)}; none is {asked!r} "
                f"({named_by})."
            )
    info.check(f"{name}.{item}", f"field {item!r} of column {name!r} ({part})")
    if not is_key(fields[str(item)]):
        raise unfit
    items = ColumnRead((name, str(item)), Conversion.AS_IS, pa.list_(fields[str(item)]))
    if its is None:
        return ListColumn(name, items)
    by_rank = its.lower() == RANK and not by.is_named
    return ListColumn(name, items, _read_list_numbers((name, its), fields[its], part), by_rank)


def _find_item_field(
    info: TableInfo, name: str, fields: Sequence[str], columns: Columns, by: _NumberFields
) -> str | None:
    """The field with ids: that named as the item column or, if none was named, the first without numbers."""
    found = None if columns.item is None else info.field_named(name, columns.item)
    if found or columns.item not in (None, Columns().item):
        return found
    numbers = {usual.lower() for usual in (*by.fields, *SCORES, *GRADES)}
    return next((one for one in fields if one.lower() not in numbers), None)


def _describe_forms(kind: pa.DataType, part: str) -> str:
    if part == option("ranked"):
        return "an array of ids, or of structs with an id"
    is_struct = pa.types.is_struct(kind)
    hint = " (a dict of pandas or json is no map: make it a list of id and grade)" if is_struct else ""
    return f"an array of ids, an array of structs with an id and a grade, or a map from id to grade{hint}"


def _read_list_numbers(source: tuple[str, str], kind: pa.DataType, part: str) -> ColumnRead:
    """Read numbers of lists in the types that workers read: those of long tables."""
    if not _is_relevance(kind, or_null=True):
        what = "grades" if part == option("relevant") else "scores or ranks"
        raise InputRefusedError(
            f"the {what} in column {source[0]!r} ({part}) are {type_text(kind)}; cast them to numbers."
        )
    wanted = number_type(kind)
    return ColumnRead(source, Conversion.AS_IS if wanted == kind else Conversion.CAST, pa.list_(wanted))


def _cast_numbers(read: ColumnRead | None, kind: pa.DataType) -> ColumnRead | None:
    return None if read is None else replace(read, conversion=Conversion.CAST, type=pa.list_(kind))


def unify_items(lists: Sequence[ListColumn], *, like: pa.DataType | None = None) -> list[ListColumn]:
    """Read items of all lists in one type; refuse text beside numbers.

    Lists that are all empty (`array()`) take the type of other items, else that of `like`.
    """
    known = next((kind for kind in map(_item_type, lists) if not pa.types.is_null(kind)), like or pa.string())
    lists = [_cast_items(one, known) if pa.types.is_null(_item_type(one)) else one for one in lists]
    first = _item_type(lists[0])
    for one in lists[1:]:
        kind = _item_type(one)
        if kind == first or (pa.types.is_integer(kind) and pa.types.is_integer(first)):
            continue
        raise InputRefusedError(
            f"items are {type_text(first)} in column {lists[0].name!r} and {type_text(kind)} in column {one.name!r}; "
            "cast one of them so that values compare."
        )
    if len(set(map(_item_type, lists))) == 1:
        return list(lists)
    return [_cast_items(one, pa.int64()) for one in lists]


def _item_type(one: ListColumn) -> pa.DataType:
    return one.items.type.value_type


def _cast_items(one: ListColumn, kind: pa.DataType) -> ListColumn:
    """Lists with items of another type; those of `array()`, which are all empty, have none."""
    return replace(one, items=replace(one.items, conversion=Conversion.CAST, type=pa.list_(kind)))


ONE_LIST_PER_QUERY = "a table of relevant items has one row for each query. Put all items of a query into one list."


@dataclass(frozen=True, slots=True, kw_only=True)
class LongRows:
    """The long rows that lists stand for: one for each entry, with the columns `kept` of its row.

    Lists without numbers get their places from 1 on as `number`, or ones if they are `relevant`. A null list is a row
    without item, and an empty one no row. With `run`, lists of several columns are a run each; `order` are places.
    """

    lists: tuple[ListColumn, ...]
    kept: tuple[str, ...]
    item: str
    number: str
    run: str | None = None
    order: str | None = None
    relevant: bool = False

    def schema(self, info: TableInfo) -> pa.Schema:
        """Columns of the long rows of a table."""
        first, runs = self.lists[0], {} if self.run is None else {self.run: pa.string()}
        places = {} if self.order is None else {self.order: pa.int32()}
        number = pa.int32() if first.numbers is None else first.numbers.type.value_type
        kept = {name: info.type_of(name) for name in self.kept}
        return pa.schema({**kept, **runs, self.item: first.items.type.value_type, self.number: number, **places})


@dataclass(frozen=True, slots=True, kw_only=True)
class LongTables:
    """How lists beside a table of judgments become long rows, and those of judgments if they are lists, too."""

    settings: EvaluationSettings
    rows: LongRows
    judgments: LongRows | None


def plan_long_tables(info: TableInfo, judged: TableInfo, settings: EvaluationSettings) -> LongTables:
    """Plan the long tables of a run of lists and of its judgments, and fit settings to them."""
    columns = settings.columns
    if columns.relevant in info.names:
        raise InvalidParameterError(
            f"column {columns.relevant!r} ({option('relevant')}) of the input has the relevant items, and there is a "
            "table of judgments; leave one of them out, or drop the column."
        )
    if not columns.query:
        raise InvalidParameterError(f"joining judgments needs a query column ({option('query')}).")
    if columns.item is None:
        raise InvalidParameterError(f"joining judgments needs an item column ({option('item')}).")
    named_so = [(name, option("query")) for name in columns.query]
    for name, part in [*named_so, *([] if columns.run is None else [(columns.run, option("run"))])]:
        info.require(name, part)
    found = build_long_settings(info, settings)
    relevant = [] if columns.relevant is None else [read_relevant_list(judged, settings)]
    like = judged.type_of(columns.item) if columns.item in judged.names else None
    ranked = unify_items([*read_ranked_lists(info, settings), *relevant], like=like)
    item, order = str(columns.item), found.columns.order
    judgments = None
    if relevant:
        kept, number = _find_kept_columns(judged, settings), columns.relevance
        judgments = LongRows(lists=(ranked.pop(),), kept=kept, item=item, number=number, order=order, relevant=True)
    rows = LongRows(
        lists=tuple(ranked),
        kept=_find_kept_columns(info, settings),
        item=item,
        number=found.columns.rank or found.columns.score[0],
        run=found.columns.run if len(ranked) > 1 else None,
        order=order,
    )
    return LongTables(settings=found, rows=rows, judgments=judgments)


def _find_kept_columns(info: TableInfo, settings: EvaluationSettings) -> tuple[str, ...]:
    """Find the columns of a table that settings name, beside lists."""
    columns = settings.columns
    names = (*columns.query, *settings.segment_columns, columns.weight, columns.run)
    return tuple(name for name in dict.fromkeys(names) if name is not None and info.has(name))


def read_empty_lists(info: TableInfo, settings: EvaluationSettings) -> dict[str, ColumnRead]:
    """Read what empty lists tell, which the long table lacks: the run and, if there are segments, query and segments.

    Several ranked columns also tell the names of all runs.
    """
    carried = {name: one for name, one in read_carried(info, settings).items() if name != col.WEIGHT}
    keys = read_keys(info, settings)
    return {name: read for name, read in keys.items() if carried or name == col.RUN} | carried
