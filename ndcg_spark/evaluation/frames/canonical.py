"""Canonical rows of rankings and judgments: their columns under names that workers know, and which rows are bad."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark.core.columns import (
    MALFORMED,
    MALFORMED_LINE,
    comparable,
    comparable_key,
    field_named,
    has_column,
    is_key,
    is_text_table,
    named,
    number,
    refuse_collation,
    require_column,
    row_as_json,
    row_of,
    same_names,
)
from ndcg_spark.core.workers import in_workers
from ndcg_spark.errors import InputRefusedError, InvalidParameterError, option
from ndcg_spark.evaluation.settings import Columns, EvaluationSettings
from ndcg_spark.evaluation.tasks import query_rows as col
from ndcg_spark.evaluation.tasks.query_rows import bad_row_of, canonical_names
from ndcg_spark.evaluation.tasks.valid_rows import RowRules, find_bad_rows


def checked_rows(rows: DataFrame, rules: RowRules) -> DataFrame:
    """Find bad rows in one pass through workers: `reason`, `key`, `n` and, where the input has it, `row`. Lazy.

    Rows without a reason stand for `n` valid ones each. A row with several scores comes once for each.
    """
    fields = [
        T.StructField("reason", T.StringType()),
        T.StructField("key", T.StringType()),
        T.StructField("n", T.LongType()),
    ]
    if "row" in rows.columns:
        fields.append(T.StructField("row", rows.schema["row"].dataType))
    return in_workers(rows, find_bad_rows, rules, schema=T.StructType(fields))


Reasons = list[tuple[str, Column]]
TOPICS_COLUMN = "topics"
"""Topics of a row's item, beside the canonical columns where a metric reads them; workers hand them on untouched."""


def run_rows(
    frame: DataFrame,
    settings: EvaluationSettings,
    *,
    judged: bool,
    original: bool = False,
    topics: Column | None = None,
) -> DataFrame:
    """Select the canonical columns of the main table; `judged` if it has the relevances. Lazy.

    `original` adds `row`, the row as it came. `bad_row` exists only where Spark can see a bad row.
    """
    columns, names, frame = settings.columns, canonical_names(settings), sampled(frame, settings)
    reasons: Reasons = []
    of_scores: dict[str, Reasons] = {name: [] for name in names.scores}
    selected: dict[str, Column] = {}
    if columns.run is not None:
        selected[col.RUN] = comparable_key(frame, columns.run, option("run"), "input").cast("string")
    for name, column in names.query.items():
        selected[name] = comparable_key(frame, column, option("query"), "input")
    if columns.rank is not None:
        selected[col.RANK] = _number(frame, columns.rank, option("rank"), "input", "rank", reasons)
    for name, column in names.scores.items():
        part = (option("score"), "input", "score")
        selected[name] = _number(frame, column, *part, of_scores[name])
    _optional(frame, settings, selected, reasons, needs_item=item_needed(settings, judged))
    if columns.order is not None and has_column(frame, columns.order):
        selected[col.ORDER] = _order(frame, columns.order)
    if judged:
        part = (option("relevance"), "input", "relevance")
        selected[col.RELEVANCE] = _number(frame, columns.relevance, *part, reasons)
    if topics is not None:
        selected[TOPICS_COLUMN] = topics
    malformed = _malformed(frame)
    bad_rows = {col.BAD_ROW: [*malformed, *(one for its in of_scores.values() for one in its), *reasons]}
    if len(of_scores) > 1 and any(of_scores.values()):
        bad_rows = {bad_row_of(name): [*malformed, *its, *reasons] for name, its in of_scores.items()}
    return select_canonical(frame, selected, bad_rows, original=original)


def judgment_rows(
    frame: DataFrame, settings: EvaluationSettings, *, original: bool = False, topics: Column | None = None
) -> DataFrame:
    """Select the canonical columns of a judgments table, as `run_rows`. A null relevance judges nothing. Lazy."""
    names, frame = canonical_names(settings), sampled(frame, settings)
    reasons = _malformed(frame)
    key = option("query")
    selected = {name: comparable_key(frame, column, key, "judgments") for name, column in names.query.items()}
    needs = "joining judgments"
    _optional(frame, settings, selected, reasons, needs_item=needs, table="judgments")
    order = settings.columns.order
    if settings.convention.duplicates == "first" and order is not None and has_column(frame, order):
        selected[col.ORDER] = _order(frame, order)
    part = (option("relevance"), "judgments", "relevance")
    selected[col.RELEVANCE] = _number(frame, settings.columns.relevance, *part, reasons)
    if topics is not None:
        selected[TOPICS_COLUMN] = topics
    return select_canonical(frame, selected, {col.BAD_ROW: reasons}, original=original)


def item_needed(settings: EvaluationSettings, judged: bool) -> str | None:
    convention = settings.convention
    if not judged:
        return "joining judgments"
    if settings.lists_items:
        return f"metric {settings.metric_with(settings.needs[0])!r}"
    ranks_anew = not settings.ranks_given
    if ranks_anew and convention.ties in ("item_asc", "item_desc"):
        return f"ties={convention.ties}"
    if settings.resolves_duplicates:
        return f"duplicates={convention.duplicates}"
    return None


def require_carried(settings: EvaluationSettings, *tables: DataFrame) -> None:
    """Raise unless each segment, weight and order column is in one of the tables. Reads schemas, runs no action."""
    wanted = [(name, option("segments")) for name in settings.carried_segments]
    wanted += [(name, part) for name, part in ((settings.columns.weight, option("weight")),) if name is not None]
    if settings.columns.order is not None:
        wanted.append((settings.columns.order, option("order")))
    for name, part in wanted:
        if not any(has_column(table, name) for table in tables):
            require_column(tables[0], name, part, "input")


def with_common_keys(
    run: DataFrame, judgments: DataFrame, settings: EvaluationSettings
) -> tuple[DataFrame, DataFrame]:
    """Cast keys and segments of two canonical tables to one type; refuse text beside numbers. Reads schemas."""
    names = canonical_names(settings)
    for name, label in {**names.query, col.ITEM: settings.columns.item, **names.segments}.items():
        if name not in run.columns or name not in judgments.columns:
            continue
        left, right = run.schema[name].dataType, judgments.schema[name].dataType
        if left == right:
            continue
        if not (isinstance(left, T.IntegralType) and isinstance(right, T.IntegralType)):
            raise InputRefusedError(
                f"column {label!r} is {left.simpleString()} in the run and {right.simpleString()} in the judgments; "
                "cast one of them so that values compare."
            )
        run = run.withColumn(name, named(name).cast("bigint"))
        judgments = judgments.withColumn(name, named(name).cast("bigint"))
    return run, judgments


def select_canonical(
    frame: DataFrame, selected: dict[str, Column], bad_rows: Mapping[str, Reasons], *, original: bool
) -> DataFrame:
    """Select columns by their canonical names, the first reason that holds for each of `bad_rows`, and the row."""
    chosen = [column.alias(name) for name, column in selected.items()]
    for column, reasons in bad_rows.items():
        reason = F.lit(None).cast("string")
        for name, bad in reversed(reasons):
            line = name == MALFORMED_LINE
            told = F.concat(F.lit(f"{name}: "), F.substring(named(MALFORMED), 1, 200)) if line else F.lit(name)
            reason = F.when(bad, told).otherwise(reason)
        if reasons or column != col.BAD_ROW:
            chosen.append(reason.alias(column))
    if original:
        row = row_of(frame, frame.columns)
        # Few rows are bad: they become JSON once they are known, unless a column has a type that workers cannot hand
        # on untouched.
        kinds = [field.dataType for field in frame.schema.fields]
        plain = all(is_key(kind.elementType if isinstance(kind, T.ArrayType) else kind) for kind in kinds)
        chosen.append((row if plain else row_as_json(row, frame.columns)).alias("row"))
    return frame.select(*chosen)


def _malformed(frame: DataFrame) -> Reasons:
    return [(MALFORMED_LINE, F.col(MALFORMED).isNotNull())] if MALFORMED in frame.columns else []


def _number(frame: DataFrame, column: str, part: str, table: str, what: str, reasons: Reasons) -> Column:
    """Give a column of numbers in its own type where workers read it; text and decimals as doubles."""
    value = number(frame, column, part, table)
    kind = frame.schema[column].dataType
    if isinstance(kind, T.StringType):
        reasons.append((f"{what}_not_a_number", value.isNull() & named(column).isNotNull()))
    if isinstance(kind, T.BooleanType):
        return named(column).cast("int")
    return named(column) if isinstance(kind, T.IntegralType | T.FloatType | T.DoubleType) else value


def _optional(
    frame: DataFrame,
    settings: EvaluationSettings,
    selected: dict[str, Column],
    reasons: Reasons,
    *,
    needs_item: str | None,
    table: str = "input",
) -> None:
    """Add item, segments and weight where the table has them or a rule needs them."""
    columns = settings.columns
    if needs_item and columns.item is None:
        raise InvalidParameterError(f"{needs_item} needs an item column ({option('item')}).")
    is_looked_for = needs_item is None and settings.checks_top_duplicates and columns.item is not None
    is_there = is_looked_for and (columns.item != Columns().item or has_column(frame, str(columns.item)))
    wanted = needs_item or is_there
    if columns.item is not None and wanted:
        selected[col.ITEM] = comparable_key(frame, columns.item, option("item"), table)
    for name, column in canonical_names(settings).segments.items():
        if has_column(frame, column):
            selected[name] = comparable_key(frame, column, option("segments"), table)
    if columns.weight is not None and has_column(frame, columns.weight):
        selected[col.WEIGHT] = number(frame, columns.weight, option("weight"), table)


def _order(frame: DataFrame, order: str) -> Column:
    kind = require_column(frame, order, option("order"), "input")
    is_parsed = isinstance(kind, T.StringType) and is_text_table(frame)
    return number(frame, order, option("order"), "input") if is_parsed else named(order)


def sampled(frame: DataFrame, settings: EvaluationSettings) -> DataFrame:
    """Keep the rows of sampled queries. Keys are hashed as text, so that an int and a bigint agree. Lazy."""
    names = settings.columns.query
    if settings.sample == 1 or any(name not in frame.columns or len(same_names(frame, name)) > 1 for name in names):
        return frame  # what is missing, or there twice, is said where it is looked for
    key = F.xxhash64(F.lit("sample"), *[comparable(frame, name).cast("string") for name in names])
    return frame.where(F.shiftrightunsigned(key, 11) * F.lit(2.0**-53) < settings.sample)


def rows_with_lists(
    frame: DataFrame, settings: EvaluationSettings, lists: Mapping[str, Column], *, original: bool = False
) -> DataFrame:
    """Select the canonical columns of a table with one row a query; `original` adds `row`, as it came. Lazy."""
    columns, names, frame = settings.columns, canonical_names(settings), sampled(frame, settings)
    selected: dict[str, Column] = {}
    if columns.run is not None:
        selected[col.RUN] = comparable_key(frame, columns.run, option("run"), "input").cast("string")
    for name, column in names.query.items():
        selected[name] = comparable_key(frame, column, option("query"), "input")
    selected |= lists
    for name, column in names.segments.items():
        selected[name] = comparable_key(frame, column, option("segments"), "input")
    if columns.weight is not None:
        selected[col.WEIGHT] = number(frame, columns.weight, option("weight"), "input")
    return select_canonical(frame, selected, {}, original=original)


def relevance_lists(frame: DataFrame, settings: EvaluationSettings) -> dict[str, Column]:
    columns = settings.columns
    found = _lists(frame, columns.relevance, option("relevance"), settings, (col.RANKED_LIST, col.RANKED_ITEMS))
    if columns.ideal is not None:
        found |= _lists(frame, columns.ideal, option("ideal"), settings, (col.IDEAL_LIST, col.IDEAL_ITEMS))
    return found


def _lists(
    frame: DataFrame, column: str, part: str, settings: EvaluationSettings, names: tuple[str, str]
) -> dict[str, Column]:
    kind = require_column(frame, column, part, "input")
    element = kind.elementType if isinstance(kind, T.ArrayType) else None
    fields = element.names if isinstance(element, T.StructType) else ()
    relevance, item = (field_named(frame, column, fields, name) for name in ("relevance", "item"))
    if names[0] == col.RANKED_LIST and settings.lists_items and item is None:
        raise InvalidParameterError(
            f"metric {settings.metric_with(settings.needs[0])!r} needs items: column {column!r} must be an array of "
            "structs with fields item and relevance."
        )
    if isinstance(element, T.NumericType | T.BooleanType | T.NullType):  # the last of empty arrays alone
        return {names[0]: named(column).cast("array<double>")}
    of_field = element[relevance].dataType if isinstance(element, T.StructType) and relevance else None
    if isinstance(element, T.StructType) and isinstance(of_field, T.NumericType | T.BooleanType):
        found = {names[0]: named(column).getField(relevance).cast("array<double>")}
        if item and settings.convention.duplicates != "error":
            raise InvalidParameterError("duplicates=best and first are not for arrays; remove them beforehand.")
        if item and (settings.check_duplicates != "none" or settings.lists_items):
            its_type = element[item].dataType
            refuse_collation(its_type, f"field {item!r} of column {column!r} ({part})", "item")
            if not is_key(its_type):
                what = f"items of column {column!r} ({part}) are {its_type.simpleString()}"
                raise InputRefusedError(f"{what}; cast them to text first.")
            found[names[1]] = named(column).getField(item)
        return found
    raise InputRefusedError(
        f"column {column!r} must be an array of numbers, or of structs with a numeric field 'relevance'; it "
        f"is {kind.simpleString()}."
    )
