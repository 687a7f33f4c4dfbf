"""What metrics need of items beside relevances: joined to the first K items of each query, after the cut."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark.core.columns import columns_of, named, require_column, utc_date, vector_column
from ndcg_spark.errors import InputRefusedError, InvalidParameterError, option
from ndcg_spark.evaluation.frames.columns import TOPICS_COLUMN
from ndcg_spark.evaluation.settings import EvaluationSettings, ItemColumns
from ndcg_spark.evaluation.tasks.partial_ranking import N_REJECTED
from ndcg_spark.evaluation.tasks.query_rows import ITEM, RELEVANCE, RUN, canonical_names
from ndcg_spark.metrics.base import (
    CATALOGUE,
    CATEGORIES,
    FIRST_SEEN,
    INTERACTIONS,
    ITEMS,
    POPULARITY,
    SEEN,
    TOPICS,
    VECTOR,
)

_TABLES = {
    ITEMS: ("item table", option("items")),
    INTERACTIONS: ("interactions table", option("interactions")),
}
"""What a table is called, and how it is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemTables:
    """Tables that metrics of items read.

    `relevances` is the table with the relevances: the main table if `relevances_in_run`, else the judgments.

    `rows_with_topics`: its canonical rows that are ranked or judge, neither rejected nor copies, with `topics`.
    """

    items: DataFrame | None
    interactions: DataFrame | None
    relevances: DataFrame
    relevances_in_run: bool
    rows_with_topics: DataFrame | None = None


def check_item_tables(settings: EvaluationSettings, tables: ItemTables) -> None:
    """Raise unless the tables and columns that metrics need are there. Reads schemas, runs no action."""
    given = {ITEMS: tables.items, INTERACTIONS: tables.interactions}
    for table, (name, how) in _TABLES.items():
        needs = [need for need in settings.needs if need.table == table]
        if needs and given[table] is None:
            raise InvalidParameterError(f"metric {settings.metric_with(needs[0])!r} needs the {name} ({how}).")
        if given[table] is not None and not needs:
            example = "ild@10" if table == ITEMS else "novelty@10"
            raise InvalidParameterError(f"no metric reads the {name}; name one, such as {example}, or leave it out.")
    item = str(settings.columns.item)
    for table, frame in given.items():
        if frame is not None:
            require_column(frame, item, option("item"), _TABLES[table][0])
    _check_named_columns(settings, tables)
    if tables.items is not None:
        _select_attributes(tables.items, settings)
    if tables.interactions is not None:
        require_column(tables.interactions, get_user_column(settings), option("user"), "interactions table")
    if TOPICS in settings.needs:
        read_topics(settings, tables)
    known = {*settings.columns.query, *settings.segment_columns}
    if SEEN in settings.needs and get_user_column(settings) not in known:
        raise InvalidParameterError(
            f"metric {settings.metric_with(SEEN)!r} needs the user of each query: {get_user_column(settings)!r} "
            f"({option('user')}) must be a query or segment column."
        )


def _check_named_columns(settings: EvaluationSettings, tables: ItemTables) -> None:
    """Raise unless a column that was named is there, also where no metric reads it: a name may be misspelt."""
    frames = {
        **dict.fromkeys(("vector", "categories", "first_seen"), (tables.items, *_TABLES[ITEMS])),
        "user": (tables.interactions, *_TABLES[INTERACTIONS]),
    }
    for name, (frame, table, how) in frames.items():
        column = getattr(settings.item_columns, name)
        if column == getattr(ItemColumns(), name):
            continue
        if frame is None:
            raise InvalidParameterError(
                f"{option(name)} names {column!r}, a column of the {table}, which is not there ({how})."
            )
        require_column(frame, column, option(name), table)
    if settings.item_columns.topics != ItemColumns().topics:
        require_column(tables.relevances, settings.item_columns.topics, option("topics"), "table with the relevances")


def get_user_column(settings: EvaluationSettings) -> str:
    return settings.item_columns.user or settings.columns.query[0]


def read_topics(settings: EvaluationSettings, tables: ItemTables) -> Column:
    """Topics of each row of the table with the relevances, as an array of text. Reads schemas, runs no action."""
    frame, column = tables.relevances, settings.item_columns.topics
    relevance = settings.columns.relevance
    is_array = relevance in frame.columns and isinstance(frame.schema[relevance].dataType, T.ArrayType)
    if settings.columns.ranked or is_array:
        what = "lists of relevant items" if settings.columns.ranked else "arrays of relevances"
        raise InvalidParameterError(
            f"metric {settings.metric_with(TOPICS)!r} needs a row for each judged item, with its topics; {what} have "
            "none."
        )
    require_column(frame, column, option("topics"), "input" if tables.relevances_in_run else "judgments")
    return _read_texts(frame, column, option("topics"), "table with the relevances")


def add_item_features(rankings: DataFrame, settings: EvaluationSettings, tables: ItemTables) -> DataFrame:
    """Add what metrics read of `items` to rankings. Lazy.

    `features`: a struct for each entry (`place` from 0, `vector`, `categories`, `days`, `interactions`, `users`,
    `seen`); `n_interactions`, `n_users`: totals; `topics_of_items`: structs (`item`, `relevance`, `topics`).

    Spark cost: features take a join of K rows per query with each table and a shuffle by query; topics one more scan
    of the relevances, a shuffle of relevant rows, and a join; rejected rows or copies one more pass through workers.
    """
    found = rankings
    if TOPICS in settings.needs and tables.rows_with_topics is not None:
        found = _add_topics(found, settings, tables.rows_with_topics)
    if {VECTOR, CATEGORIES, FIRST_SEEN, POPULARITY, SEEN} & set(settings.needs):
        found = _add_features(found, settings, tables)
    if POPULARITY in settings.needs and tables.interactions is not None:
        user = named(get_user_column(settings))
        met = tables.interactions.where(named(str(settings.columns.item)).isNotNull())
        totals = met.agg(F.count(F.lit(1)).alias("n_interactions"), F.countDistinct(user).alias("n_users"))
        found = found.crossJoin(F.broadcast(totals))
    return found


def list_item_costs(settings: EvaluationSettings, tables: ItemTables) -> list[str]:
    """What metrics of items cost beside ranking, in clauses for a person. Runs no action."""
    found, needs = [], set(settings.needs)
    joined = [need for need in settings.needs if need in (VECTOR, CATEGORIES, FIRST_SEEN, POPULARITY, SEEN)]
    if joined:
        read = ", ".join(map(str, joined))
        found.append(
            f"a join of the first K items of each query with what metrics read ({read}), and a shuffle by query"
        )
    if POPULARITY in needs:
        found.append("shuffles of the interactions, counted by item and in all")
    if SEEN in needs:
        found.append("a shuffle of the interactions by user and item")
    if CATALOGUE in needs:
        found.append("a shuffle of counts of the listed items, and a join of them with the items of the catalogue")
    if TOPICS in needs:
        table = "input" if tables.relevances_in_run else "judgments"
        chosen = ""
        if settings.convention.duplicates != "error":
            chosen = " through Python workers, a shuffle of all of them by (query, item) for duplicates"
        elif settings.on_invalid == "reject":
            chosen = " through Python workers"
        found.append(
            f"a second scan of the {table} for topics{chosen}, a shuffle of the relevant rows and a join, both by "
            "query"
        )
    return found


def get_item_type(rows: DataFrame) -> T.DataType:
    found = rows.schema["items"].dataType
    return found.elementType if isinstance(found, T.ArrayType) else found


def count_catalogue(items: DataFrame, settings: EvaluationSettings, kind: T.DataType) -> DataFrame:
    """Items of the catalogue and how often each is there: `item` in the type of the rankings, `copies`. Lazy."""
    item = str(settings.columns.item)
    found = items.where(named(item).isNotNull()).select(_cast_items(items, item, kind, ITEMS).alias("item"))
    return found.groupBy("item").agg(F.count(F.lit(1)).alias("copies"))


def _add_features(rankings: DataFrame, settings: EvaluationSettings, tables: ItemTables) -> DataFrame:
    kind = get_item_type(rankings)
    rows = rankings.select(F.struct(*columns_of(rankings.columns)).alias("row"))  # names of users stay inside
    row = F.col("row")
    keys = [row.getField(name).alias(f"key_{at}") for at, name in enumerate((RUN, *settings.columns.query))]
    if (
        N_REJECTED in rankings.columns
    ):  # what stands for rejected rows only stays apart, also where they have no query
        only_rejected = (row.getField("n_rows") == 0) & (row.getField("n_judged") == 0)
        keys.append(F.when(only_rejected, F.monotonically_increasing_id()).alias("rejected"))
    chosen = [F.struct(*keys).alias("key")]
    if SEEN in settings.needs:
        chosen.append(row.getField(get_user_column(settings)).alias("user"))

    def place(item: Column, at: Column) -> Column:
        """One place of a list; the first carries the ranking."""
        return F.struct(at.alias("place"), item.alias("item"), F.when(at == 0, row).alias("row"))

    # Rows of a join have no order, so places are numbered; an empty list has one without a number.
    none = F.struct(F.lit(None).cast("int").alias("place"), F.lit(None).cast(kind).alias("item"), row.alias("row"))
    items = row.getField("items")
    listed = F.when(F.size(items) > 0, F.transform(items, place)).otherwise(F.array(none))
    places = rows.select(*chosen, F.inline(listed))
    names = ["place"]
    if tables.items is not None and {VECTOR, CATEGORIES, FIRST_SEEN} & set(settings.needs):
        attributes = _select_attributes(tables.items, settings)
        item = _cast_items(tables.items, str(settings.columns.item), kind, ITEMS)
        of_items = tables.items.select(item.alias("item"), *[one.alias(name) for name, one in attributes.items()])
        places, names = places.join(of_items, "item", "left"), [*names, *attributes]
    if tables.interactions is not None:
        met = _select_interactions(tables.interactions, settings, kind)
        if POPULARITY in settings.needs:
            counts = met.groupBy("item").agg(
                F.count(F.lit(1)).alias("interactions"), F.countDistinct("user").alias("users")
            )
            places, names = places.join(counts, "item", "left"), [*names, "interactions", "users"]
        if SEEN in settings.needs:
            seen = (
                _check_user_type(met, places, "user")
                .select("user", "item")
                .distinct()
                .withColumn("seen", F.lit(True))
            )
            places, names = places.join(seen, ["user", "item"], "left"), [*names, "seen"]
    entry = F.when(F.col("place").isNotNull(), F.struct(*map(_fill_missing, names)))
    together = places.groupBy("key").agg(
        F.first("row", ignorenulls=True).alias("row"), F.sort_array(F.collect_list(entry)).alias("features")
    )
    return together.select("row.*", "features")


def _fill_missing(name: str) -> Column:
    """A feature of an item, and what stands for one that the joined table lacks."""
    missing = {"days": F.lit(0.0), "interactions": F.lit(0), "users": F.lit(0), "seen": F.lit(False)}
    return F.coalesce(F.col(name), missing[name]).alias(name) if name in missing else F.col(name)


def _select_attributes(items: DataFrame, settings: EvaluationSettings) -> dict[str, Column]:
    found, columns, table = {}, settings.item_columns, "item table"
    if VECTOR in settings.needs:
        require_column(items, columns.vector, option("vector"), table)
        vector = vector_column(items, columns.vector)
        if vector is None:
            kind = items.schema[columns.vector].dataType.simpleString()
            raise InputRefusedError(
                f"column {columns.vector!r} ({option('vector')}) of the {table} is {kind}; it must be an array of "
                "numbers or a vector of pyspark.ml."
            )
        found[VECTOR.what] = vector
    if CATEGORIES in settings.needs:
        found[CATEGORIES.what] = _read_texts(items, columns.categories, option("categories"), table)
    if FIRST_SEEN in settings.needs:
        seen = require_column(items, columns.first_seen, option("first_seen"), table)
        if not isinstance(seen, T.DateType | T.TimestampType | T.TimestampNTZType):
            raise InputRefusedError(
                f"column {columns.first_seen!r} ({option('first_seen')}) of the {table} is {seen.simpleString()}, "
                "not a date; cast it first."
            )
        days = F.datediff(F.lit(settings.as_of), utc_date(named(columns.first_seen), seen))
        found["days"] = F.greatest(days, F.lit(0)).cast("double")
    return found


def _read_texts(frame: DataFrame, column: str, part: str, table: str) -> Column:
    """Give a column of several values, or of one, as an array of text."""
    kind = require_column(frame, column, part, table)
    element = kind.elementType if isinstance(kind, T.ArrayType) else kind
    if not isinstance(element, T.StringType | T.IntegralType | T.BooleanType):
        raise InputRefusedError(
            f"column {column!r} ({part}) of the {table} is {kind.simpleString()}; it must be an array of text or "
            "whole numbers, or one of them."
        )
    values = named(column) if isinstance(kind, T.ArrayType) else F.array(named(column))
    return values.cast("array<string>")


def _select_interactions(frame: DataFrame, settings: EvaluationSettings, kind: T.DataType) -> DataFrame:
    item = str(settings.columns.item)
    there = frame.where(named(item).isNotNull())
    return there.select(
        named(get_user_column(settings)).alias("user"), _cast_items(frame, item, kind, INTERACTIONS).alias("item")
    )


def _cast_items(frame: DataFrame, column: str, kind: T.DataType, table: str) -> Column:
    """Give items of a table in the type that they have in rankings."""
    found = frame.schema[column].dataType
    if found == kind:
        return named(column)
    if isinstance(found, T.IntegralType) and isinstance(kind, T.IntegralType):
        return named(column).cast("bigint")  # Spark compares whole numbers of two widths as they are
    raise InputRefusedError(
        f"column {column!r} is {kind.simpleString()} in the rankings and {found.simpleString()} in the "
        f"{_TABLES[table][0]}; cast one of them so that items compare."
    )


def _check_user_type(met: DataFrame, places: DataFrame, column: str) -> DataFrame:
    one, other = met.schema[column].dataType, places.schema[column].dataType
    both_whole = isinstance(one, T.IntegralType) and isinstance(other, T.IntegralType)
    if one != other and not both_whole:
        raise InputRefusedError(
            f"users are {other.simpleString()} in the rankings and {one.simpleString()} in the interactions table; "
            "cast one of them so that they compare."
        )
    return met


def _add_topics(rankings: DataFrame, settings: EvaluationSettings, rows: DataFrame) -> DataFrame:
    """Add the judged items of each query that reach the lowest relevance asked for, and their topics."""
    keys = dict(canonical_names(settings).query)
    if RUN in rows.columns:  # rows of one run may be left out where those of another are not
        keys[RUN] = RUN
    of_topics = [one.metric for one in settings.computed if TOPICS in one.metric.needs]
    level = min(float(metric.rel) for metric in of_topics)  # type: ignore[attr-defined]  # all of these have it
    relevance, topics = F.col(RELEVANCE).cast("double"), F.col(TOPICS_COLUMN)
    entry = F.struct(
        F.col(ITEM).cast(get_item_type(rankings)).alias("item"), relevance.alias("relevance"), topics.alias("topics")
    )
    # Only now: a copy of an item that is not relevant may be the one that was kept.
    judged = rows.where((relevance >= level) & (F.size(topics) > 0))
    labels = {f"__key_{at}": name for at, name in enumerate(keys)}  # rankings have names of the user
    typed = [named(name).cast(rankings.schema[keys[name]].dataType).alias(label) for label, name in labels.items()]
    of_query = (
        judged.select(*typed, entry.alias("entry"))
        .groupBy(*labels)
        .agg(F.collect_list("entry").alias("topics_of_items"))
    )
    same = [named(keys[name]).eqNullSafe(F.col(label)) for label, name in labels.items()]
    return rankings.join(of_query, same, "left").drop(*labels)
