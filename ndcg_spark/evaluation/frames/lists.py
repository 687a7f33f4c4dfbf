"""Tables with one row a query whose lists name items. Only beside a table of judgments do they become long rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark.core.columns import (
    columns_of,
    comparable_key,
    field_named,
    has_column,
    is_key,
    key_text,
    named,
    raise_if,
    refuse_collation,
    require_column,
)
from ndcg_spark.errors import InputRefusedError, InvalidParameterError, option
from ndcg_spark.evaluation.frames.canonical import relevance_lists, rows_with_lists
from ndcg_spark.evaluation.settings import Columns, EvaluationSettings, PlaceColumns
from ndcg_spark.evaluation.tasks import query_rows as col
from ndcg_spark.evaluation.tasks.query_rows import canonical_names

RANK, POSITION, ROW = "rank", "position", "row"
"""Names of columns of the long rows that lists stand for."""
SCORES, GRADES = ("score", "rating", RANK), ("relevance", "grade", "rating")
"""Fields of structs with numbers, where none is named; ALS calls its scores `rating`."""
ONE_TRUTH = "a table of relevant items has one row for each query. Put all items of a query into one list."
_LISTS = "lists"


@dataclass(frozen=True, slots=True)
class _Lists:
    """A column of lists: items and, if it has them, scores, ranks or grades; both with the types of elements."""

    name: str
    items: Column
    kind: T.DataType
    numbers: Column | None = None
    number_kind: T.DataType | None = None
    by_rank: bool = False

    @property
    def has_scores(self) -> bool:
        """Whether items are ranked by numbers that are no ranks."""
        return self.numbers is not None and not self.by_rank


def rows_of_lists(frame: DataFrame, settings: EvaluationSettings, *, original: bool = False) -> DataFrame:
    """Select the canonical columns of a table with one row a query: lists of items, or arrays of relevances. Lazy.

    `original` adds `row`. Several ranked columns yield a row each.
    """
    if not settings.columns.ranked:
        return rows_with_lists(frame, settings, relevance_lists(frame, settings), original=original)
    ranked, relevant = _ranked(frame, settings), _relevant(frame, settings)
    *ranked, relevant = _with_common_items([*ranked, relevant])
    grades = F.transform(relevant.items, lambda _: F.lit(1.0)) if relevant.numbers is None else relevant.numbers
    judged = {col.IDEAL_ITEMS: relevant.items, col.IDEAL_LIST: grades}
    several = len(ranked) > 1
    of_runs = []
    for one in ranked:
        lists = {col.RUN: F.lit(one.name)} if several else {}
        lists[col.RANKED_ITEMS] = one.items
        if one.numbers is not None:
            lists[col.RANKED_SCORES if one.has_scores else col.RANKED_RANKS] = one.numbers
        of_runs.append(lists)
    if not several:
        return rows_with_lists(frame, settings, of_runs[0] | judged, original=original)
    structs = [F.struct(*(column.alias(name) for name, column in lists.items())) for lists in of_runs]
    rows = rows_with_lists(frame, settings, {_LISTS: F.array(*structs)} | judged, original=original)
    return rows.select(*columns_of([name for name in rows.columns if name != _LISTS]), F.inline(_LISTS))


def without_query(frame: DataFrame, settings: EvaluationSettings) -> EvaluationSettings:
    """Drop the query columns if rows of lists have no key: none was named, and the usual one is missing."""
    columns = settings.columns
    if not columns.ranked or columns.query_in(frame.columns):
        return settings
    needs = {"sample": settings.sample < 1}
    needs |= {f"metric {str(one)!r}": bool(one.metric.needs) for one in settings.computed}
    for what in (what for what, holds in needs.items() if holds):
        raise InvalidParameterError(f"{what} needs to know the query of a row: name its column ({option('query')}).")
    return replace(settings, columns=replace(columns, query=()))


def require_query(settings: EvaluationSettings) -> None:
    """Raise where rows of lists have no key, by which queries could be told apart."""
    if not settings.columns.query:
        raise InvalidParameterError(
            "this compares queries one by one, and the lists have no query column: name the column "
            f"({option('query')})."
        )


def settings_of_lists(frame: DataFrame, settings: EvaluationSettings) -> EvaluationSettings:
    """Build the settings of the long table of the lists. Ranks are positions unless lists have scores."""
    columns, convention = settings.columns, settings.convention
    taken = {*columns.query, *settings.segment_columns, columns.weight, columns.run, columns.item}

    def free(name: str) -> str:
        return name if name not in taken else free(f"{name}_")

    ordered = convention.ties == "input_order" or convention.duplicates == "first"
    lists = _ranked(frame, settings)[0]
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


def long_tables(
    frame: DataFrame, judgments: DataFrame, settings: EvaluationSettings
) -> tuple[DataFrame, DataFrame, EvaluationSettings]:
    """Turn lists into the long tables of a run and of its judgments, and fit settings to them. Lazy.

    A null list becomes a row without item, which is bad; an empty one becomes no row.
    """
    columns = settings.columns
    if columns.relevant in frame.columns:
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
        require_column(frame, name, part, "input")
    found = settings_of_lists(frame, settings)
    relevant = [] if columns.relevant is None else [_relevant(judgments, settings, "judgments")]
    ranked = _with_common_items([*_ranked(frame, settings), *relevant], like=judgments.schema, item=columns.item)
    if relevant:
        judgments = _long_judgments(judgments, settings, found.columns, ranked.pop())
    number = found.columns.rank or found.columns.score[0]
    entries = [_entries(one, found.columns, number, run=len(ranked) > 1) for one in ranked]
    return _long(frame, settings, F.concat(*entries)), judgments, found


def _long(frame: DataFrame, settings: EvaluationSettings, entries: Column) -> DataFrame:
    """A row for each entry of a query, with the columns of the table that settings name."""
    columns = settings.columns
    kept = (*columns.query, *settings.segment_columns, columns.weight, columns.run)
    there = [name for name in dict.fromkeys(kept) if name is not None and has_column(frame, name)]
    return frame.select(*columns_of(there), F.inline(entries))


def _long_judgments(frame: DataFrame, settings: EvaluationSettings, columns: Columns, relevant: _Lists) -> DataFrame:
    """Explode lists of relevant items; refuse a query in two rows (one shuffle), if duplicates are checked."""
    keys = [comparable_key(frame, name, option("query"), "judgments") for name in columns.query]
    if settings.check_duplicates != "none":
        first, is_known = columns.query[0], reduce(and_, [key.isNotNull() for key in keys])
        n_rows = F.count(F.when(is_known, 1)).over(Window.partitionBy(*keys))
        message = ("query ", key_text(columns.query, {}), " comes in ", n_rows.cast("string"), f" rows; {ONE_TRUTH}")
        kind = frame.schema[first].dataType.simpleString()
        frame = frame.withColumn(first, raise_if(named(first), n_rows > 1, *message, kind=kind))
    return _long(frame, settings, _entries(relevant, columns, columns.relevance, usual=F.lit(1)))


def runs_of_lists(frame: DataFrame, settings: EvaluationSettings) -> DataFrame | None:
    """Select the empty lists, which the long table lacks: run and, if there are segments, query and segments. Lazy.

    Several ranked columns also yield the names of all runs, without a query. None where nothing is lost.
    """
    columns, names, spark = settings.columns, canonical_names(settings), frame.sparkSession
    carried = {
        name: comparable_key(frame, column, option("segments"), "input")
        for name, column in names.segments.items()
        if has_column(frame, column)
    }
    if carried:
        carried |= {
            name: comparable_key(frame, column, option("query"), "input") for name, column in names.query.items()
        }
    chosen = [column.alias(name) for name, column in carried.items()]
    if len(columns.ranked) > 1:
        found = spark.range(1).select(F.explode(F.array(*[F.lit(name) for name in columns.ranked])).alias(col.RUN))
        for name in columns.ranked if carried else ():
            rows = frame.where(F.size(named(name)) == 0).select(F.lit(name).alias(col.RUN), *chosen)
            found = rows.unionByName(found, allowMissingColumns=True)
        return found
    keys, empty = list(columns.query), F.size(named(columns.ranked[0])) == 0
    if columns.run is not None:
        keys.append(columns.run)
        chosen.insert(0, comparable_key(frame, columns.run, option("run"), "input").cast("string").alias(col.RUN))
    for name in keys:
        empty &= named(name).isNotNull()
    return frame.where(empty).select(*chosen) if chosen else None


def _entries(one: _Lists, columns: Columns, number: str, *, run: bool = False, usual: Column | None = None) -> Column:
    """An array of structs, the long rows of a list; without numbers `number` is the place, or what is `usual`."""
    item = str(columns.item)
    whose = [F.lit(one.name).alias(str(columns.run))] if run else []

    def placed(item_of: Column, place: Column) -> Column:
        numbers = [(place + 1 if usual is None else usual).alias(number)] if one.numbers is None else []
        order = [] if columns.order is None else [(place + 1).alias(columns.order)]
        return F.struct(*whose, item_of.alias(item), *numbers, *order)

    def numbered(entry: Column, its: Column) -> Column:
        return entry.withField(number, its)

    def or_null(column: Column, kind: T.DataType | None) -> Column:
        return F.coalesce(column, F.array(F.lit(None).cast(kind or T.DoubleType())))

    found = F.transform(or_null(one.items, one.kind), placed)
    return found if one.numbers is None else F.zip_with(found, or_null(one.numbers, one.number_kind), numbered)


def _ranked(frame: DataFrame, settings: EvaluationSettings) -> list[_Lists]:
    """The ranked columns, all with numbers or none, which are of one type."""
    columns = settings.columns
    by = _Numbers(option("score"), columns.score[0], Columns().score[0], SCORES)
    found = [_lists(frame, name, option("ranked"), columns, by) for name in columns.ranked]
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
    kinds = {one.number_kind for one in found if one.number_kind is not None}
    if len(kinds) > 1:
        double = T.DoubleType()
        found = [replace(one, numbers=_cast(one.numbers, double), number_kind=double) for one in found]
    return found


def _relevant(frame: DataFrame, settings: EvaluationSettings, table: str = "input") -> _Lists:
    """The column of relevant items, in the table that a person calls `table`."""
    columns, part = settings.columns, option("relevant")
    name = columns.relevant
    if name is None:
        raise InvalidParameterError(
            f"lists of items ({option('ranked')}) need the items that are relevant: a column ({part}) or a table of "
            "judgments."
        )
    kind = require_column(frame, name, part, table)
    if isinstance(kind, T.MapType) and (is_key(kind.keyType) or isinstance(kind.keyType, T.NullType)):
        found = _Lists(name, F.map_keys(named(name)), kind.keyType, F.map_values(named(name)), kind.valueType)
        return _with_numbers(found, part)
    by = _Numbers(option("relevance"), columns.relevance, Columns().relevance, GRADES)
    found = _lists(frame, name, part, columns, by)
    element = kind.elementType if isinstance(kind, T.ArrayType) else None
    if found.numbers is None and isinstance(element, T.StructType) and len(element) > 1:
        raise InputRefusedError(
            f"column {name!r} ({part}) has structs with fields {', '.join(element.names)}, of which none is called "
            f"{' or '.join(by.fields)}: name the field of grades ({by.part})."
        )
    return found


@dataclass(frozen=True, slots=True)
class _Numbers:
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


def _lists(frame: DataFrame, name: str, part: str, columns: Columns, by: _Numbers) -> _Lists:
    """Read a column of arrays of ids, or of structs with an id and maybe a number."""
    kind = require_column(frame, name, part, "input")
    unfit = InputRefusedError(f"column {name!r} ({part}) must be {_forms(kind, part)}; it is {kind.simpleString()}.")
    if not isinstance(kind, T.ArrayType):
        raise unfit
    if is_key(kind.elementType) or isinstance(kind.elementType, T.NullType):
        return _Lists(name, named(name), kind.elementType)
    if not isinstance(kind.elementType, T.StructType):
        raise unfit
    fields = kind.elementType.names
    numbers = (field_named(frame, name, fields, usual) for usual in by.fields)
    its, item = next((field for field in numbers if field), None), _item_of(frame, name, fields, columns, by)
    for found, asked, named_by in ((item, columns.item, option("item")), (its or not by.is_named, by.asked, by.part)):
        if not found:
            raise InputRefusedError(
                f"column {name!r} ({part}) has structs with fields {', '.join(fields)}; none is {asked!r} "
                f"({named_by})."
            )
    refuse_collation(kind.elementType[str(item)].dataType, f"field {item!r} of column {name!r} ({part})", str(item))
    if not is_key(kind.elementType[str(item)].dataType):
        raise unfit
    lists = _Lists(name, named(name).getField(str(item)), kind.elementType[str(item)].dataType)
    if its is None:
        return lists
    values, number_kind = named(name).getField(its), kind.elementType[its].dataType
    by_rank = its.lower() == RANK and not by.is_named
    return _with_numbers(replace(lists, numbers=values, number_kind=number_kind, by_rank=by_rank), part)


def _item_of(frame: DataFrame, name: str, fields: Sequence[str], columns: Columns, by: _Numbers) -> str | None:
    """The field with ids: that named as the item column or, if none was named, the first without numbers."""
    field = None if columns.item is None else field_named(frame, name, fields, columns.item)
    if field or columns.item not in (None, Columns().item):
        return field
    numbers = {usual.lower() for usual in (*by.fields, *SCORES, *GRADES)}
    return next((field for field in fields if field.lower() not in numbers), None)


def _forms(kind: T.DataType, part: str) -> str:
    if part == option("ranked"):
        return "an array of ids, or of structs with an id"
    is_struct = isinstance(kind, T.StructType)
    hint = " (a dict of pandas or json is no map: make it a list of id and grade)" if is_struct else ""
    return f"an array of ids, an array of structs with an id and a grade, or a map from id to grade{hint}"


def _with_numbers(found: _Lists, part: str) -> _Lists:
    """Numbers in the types that workers read: those of long tables."""
    kind = found.number_kind
    if isinstance(kind, T.BooleanType):
        kind = T.IntegerType()
    elif isinstance(kind, T.DecimalType | T.NullType):
        kind = T.DoubleType()
    elif not isinstance(kind, T.NumericType):
        what = "grades" if part == option("relevant") else "scores or ranks"
        shown = "nothing" if kind is None else kind.simpleString()
        raise InputRefusedError(f"the {what} in column {found.name!r} ({part}) are {shown}; cast them to numbers.")
    return (
        found if kind == found.number_kind else replace(found, numbers=_cast(found.numbers, kind), number_kind=kind)
    )


def _cast(column: Column | None, kind: T.DataType) -> Column | None:
    return None if column is None else column.cast(T.ArrayType(kind))


def _with_common_items(
    lists: Sequence[_Lists], *, like: T.StructType | None = None, item: str | None = None
) -> list[_Lists]:
    """Cast items of all lists to one type; refuse text beside numbers. `array()` takes the type of other items."""
    known: T.DataType = like[item].dataType if like and item in like.names else T.StringType()
    known = next((one.kind for one in lists if not isinstance(one.kind, T.NullType)), known)
    lists = [_of_kind(one, known) if isinstance(one.kind, T.NullType) else one for one in lists]
    first = lists[0]
    for one in lists[1:]:
        if one.kind == first.kind or all(isinstance(its.kind, T.IntegralType) for its in (one, first)):
            continue
        raise InputRefusedError(
            f"items are {first.kind.simpleString()} in column {first.name!r} and {one.kind.simpleString()} in column "
            f"{one.name!r}; cast one of them so that values compare."
        )
    if len({one.kind for one in lists}) == 1:
        return list(lists)
    return [_of_kind(one, T.LongType()) for one in lists]


def _of_kind(lists: _Lists, kind: T.DataType) -> _Lists:
    """Lists with items of another type; those of `array()`, which are all empty, have none."""
    return replace(lists, items=lists.items.cast(T.ArrayType(kind)), kind=kind)
