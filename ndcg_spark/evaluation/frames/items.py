"""Join the item features that metrics need to the first K items of each query, after lists are cut."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark.core.columns import exact_col, exact_cols, require_column, utc_date, vector_column
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
"""The name of a table in messages, and its option."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemTables:
    """Tables that metrics of items read.

    `relevances` is the table with the relevances: the judgments if `has_judgments_table`, else the main table.

    `rows_with_topics` has its valid canonical rows, without duplicates, and their `topics`.
    """

    items: DataFrame | None
    interactions: DataFrame | None
    relevances: DataFrame
    has_judgments_table: bool
    rows_with_topics: DataFrame | None = None


def check_item_tables(settings: EvaluationSettings, tables: ItemTables) -> None:
    """Raise unless the tables and columns that metrics need exist. Reads schemas, runs no action."""
    frames = {ITEMS: tables.items, INTERACTIONS: tables.interactions}
    for table, (title, how) in _TABLES.items():
        needs = [need for need in settings.needs if need.table == table]
        if needs and frames[table] is None:
            raise InvalidParameterError(f"metric {settings.metric_with(needs[0])!r} needs the {title} ({how}).")
        if frames[table] is not None and not needs:
            example = "ild@10" if table == ITEMS else "novelty@10"
            raise InvalidParameterError(
                f"no metric reads the {title}; add one, such as {example}, or remove the table."
            )
    item = str(settings.columns.item)
    for table, frame in frames.items():
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
    """Raise if a column that was named does not exist, even if no metric reads it: the name may be misspelt."""
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
                f"{option(name)} names {column!r}, a column of the {table}, but there is no such table ({how})."
            )
        require_column(frame, column, option(name), table)
    if settings.item_columns.topics != ItemColumns().topics:
        require_column(tables.relevances, settings.item_columns.topics, option("topics"), "table with the relevances")


def get_user_column(settings: EvaluationSettings) -> str:
    """Return the column of the user of a query."""
    return settings.item_columns.user or settings.columns.query[0]


def read_topics(settings: EvaluationSettings, tables: ItemTables) -> Column:
    """Return the topics of each row of the table with the relevances, as an array of text. Runs no action."""
    frame, column = tables.relevances, settings.item_columns.topics
    relevance = settings.columns.relevance
    is_array = relevance in frame.columns and isinstance(frame.schema[relevance].dataType, T.ArrayType)
    if settings.columns.ranked or is_array:
        form = "lists of relevant items" if settings.columns.ranked else "arrays of relevances"
        raise InvalidParameterError(
            f"metric {settings.metric_with(TOPICS)!r} needs a row for each judged item, with its topics; {form} have "
            "no topics."
        )
    require_column(frame, column, option("topics"), "judgments" if tables.has_judgments_table else "input")
    return _read_texts(frame, column, option("topics"), "table with the relevances")


def add_item_features(rankings: DataFrame, settings: EvaluationSettings, tables: ItemTables) -> DataFrame:
    """Add the features that metrics read of `items` to rankings. Lazy.

    `features` has a struct for each entry (`place` from 0, `vector`, `categories`, `days`, `interactions`, `users`,
    `seen`), `n_interactions` and `n_users` the totals, `topics_of_items` structs (`item`, `relevance`, `topics`).

    Spark cost: features need a join of K rows per query with each table and a shuffle by query. Topics need one more
    scan of the relevances, a shuffle of relevant rows, and a join. If rows may be rejected or repeated, topics need
    one more pass through workers.
    """
    if TOPICS in settings.needs and tables.rows_with_topics is not None:
        rankings = _add_topics(rankings, settings, tables.rows_with_topics)
    if {VECTOR, CATEGORIES, FIRST_SEEN, POPULARITY, SEEN} & set(settings.needs):
        rankings = _add_features(rankings, settings, tables)
    if POPULARITY in settings.needs and tables.interactions is not None:
        user = exact_col(get_user_column(settings))
        interactions = tables.interactions.where(exact_col(str(settings.columns.item)).isNotNull())
        totals = interactions.agg(F.count(F.lit(1)).alias("n_interactions"), F.countDistinct(user).alias("n_users"))
        rankings = rankings.crossJoin(F.broadcast(totals))
    return rankings


def list_item_costs(settings: EvaluationSettings, tables: ItemTables) -> list[str]:
    """List the additional costs of metrics of items, in clauses to print. Runs no action."""
    costs, needs = [], set(settings.needs)
    joined = [need for need in settings.needs if need in (VECTOR, CATEGORIES, FIRST_SEEN, POPULARITY, SEEN)]
    if joined:
        features = ", ".join(map(str, joined))
        costs.append(
            f"a join of the first K items of each query with the features that metrics read ({features}), and a "
            "shuffle by query"
        )
    if POPULARITY in needs:
        costs.append("shuffles of the interactions, counted by item and in all")
    if SEEN in needs:
        costs.append("a shuffle of the interactions by user and item")
    if CATALOGUE in needs:
        costs.append("a shuffle of counts of the listed items, and a join of them with the items of the catalogue")
    if TOPICS in needs:
        table = "judgments" if tables.has_judgments_table else "input"
        checks = ""
        if settings.convention.duplicates != "error":
            checks = " through Python workers, a shuffle of all of them by (query, item) for duplicates"
        elif settings.on_invalid == "reject":
            checks = " through Python workers"
        costs.append(
            f"a second scan of the {table} for topics{checks}, a shuffle of the relevant rows and a join, both by "
            "query"
        )
    return costs


def get_item_type(rows: DataFrame) -> T.DataType:
    """Return the type of the items in rankings."""
    items_type = rows.schema["items"].dataType
    return items_type.elementType if isinstance(items_type, T.ArrayType) else items_type


def count_catalogue(items: DataFrame, settings: EvaluationSettings, kind: T.DataType) -> DataFrame:
    """Count the rows of each item of the catalogue: `item`, in the type of the rankings, and `copies`. Lazy."""
    item = str(settings.columns.item)
    known = items.where(exact_col(item).isNotNull()).select(_cast_items(items, item, kind, ITEMS).alias("item"))
    return known.groupBy("item").agg(F.count(F.lit(1)).alias("copies"))


def _add_features(rankings: DataFrame, settings: EvaluationSettings, tables: ItemTables) -> DataFrame:
    kind = get_item_type(rankings)
    # A struct, so that the user's column names cannot collide with ours.
    rows = rankings.select(F.struct(*exact_cols(rankings.columns)).alias("row"))
    row = F.col("row")
    keys = [row.getField(column).alias(f"key_{index}") for index, column in enumerate((RUN, *settings.columns.query))]
    if N_REJECTED in rankings.columns:
        # Rankings of rejected rows only get a key of their own each: their query may be null.
        only_rejected = (row.getField("n_rows") == 0) & (row.getField("n_judged") == 0)
        keys.append(F.when(only_rejected, F.monotonically_increasing_id()).alias("rejected"))
    selected = [F.struct(*keys).alias("key")]
    if SEEN in settings.needs:
        selected.append(row.getField(get_user_column(settings)).alias("user"))

    def build_place(item: Column, position: Column) -> Column:
        """Return a position of a list as a struct. The first position carries the ranking."""
        return F.struct(position.alias("place"), item.alias("item"), F.when(position == 0, row).alias("row"))

    # Positions are numbered, as rows of a join have no order. An empty list gets one row without a number.
    no_place = F.struct(
        F.lit(None).cast("int").alias("place"), F.lit(None).cast(kind).alias("item"), row.alias("row")
    )
    items = row.getField("items")
    listed = F.when(F.size(items) > 0, F.transform(items, build_place)).otherwise(F.array(no_place))
    places = rows.select(*selected, F.inline(listed))
    names = ["place"]
    if tables.items is not None and {VECTOR, CATEGORIES, FIRST_SEEN} & set(settings.needs):
        attributes = _select_attributes(tables.items, settings)
        item = _cast_items(tables.items, str(settings.columns.item), kind, ITEMS)
        columns = [column.alias(name) for name, column in attributes.items()]
        item_table = tables.items.select(item.alias("item"), *columns)
        places, names = places.join(item_table, "item", "left"), [*names, *attributes]
    if tables.interactions is not None:
        interactions = _select_interactions(tables.interactions, settings, kind)
        if POPULARITY in settings.needs:
            counts = interactions.groupBy("item").agg(
                F.count(F.lit(1)).alias("interactions"), F.countDistinct("user").alias("users")
            )
            places, names = places.join(counts, "item", "left"), [*names, "interactions", "users"]
        if SEEN in settings.needs:
            _check_user_type(interactions, places, "user")
            seen = interactions.select("user", "item").distinct().withColumn("seen", F.lit(True))
            places, names = places.join(seen, ["user", "item"], "left"), [*names, "seen"]
    entry = F.when(F.col("place").isNotNull(), F.struct(*map(_fill_missing, names)))
    together = places.groupBy("key").agg(
        F.first("row", ignorenulls=True).alias("row"), F.sort_array(F.collect_list(entry)).alias("features")
    )
    return together.select("row.*", "features")


def _fill_missing(name: str) -> Column:
    """Return a feature of an item, with a default if the joined table lacks the item."""
    defaults = {"days": F.lit(0.0), "interactions": F.lit(0), "users": F.lit(0), "seen": F.lit(False)}
    return F.coalesce(F.col(name), defaults[name]).alias(name) if name in defaults else F.col(name)


def _select_attributes(items: DataFrame, settings: EvaluationSettings) -> dict[str, Column]:
    attributes, columns, table = {}, settings.item_columns, "item table"
    if VECTOR in settings.needs:
        require_column(items, columns.vector, option("vector"), table)
        vector = vector_column(items, columns.vector)
        if vector is None:
            kind = items.schema[columns.vector].dataType.simpleString()
            raise InputRefusedError(
                f"column {columns.vector!r} ({option('vector')}) of the {table} is {kind}; it must be an array of "
                "numbers or a vector of pyspark.ml."
            )
        attributes[VECTOR.what] = vector
    if CATEGORIES in settings.needs:
        attributes[CATEGORIES.what] = _read_texts(items, columns.categories, option("categories"), table)
    if FIRST_SEEN in settings.needs:
        seen = require_column(items, columns.first_seen, option("first_seen"), table)
        if not isinstance(seen, T.DateType | T.TimestampType | T.TimestampNTZType):
            raise InputRefusedError(
                f"column {columns.first_seen!r} ({option('first_seen')}) of the {table} is {seen.simpleString()}, "
                "not a date; cast it first."
            )
        days = F.datediff(F.lit(settings.as_of), utc_date(exact_col(columns.first_seen), seen))
        attributes["days"] = F.greatest(days, F.lit(0)).cast("double")
    return attributes


def _read_texts(frame: DataFrame, column: str, spelling: str, table: str) -> Column:
    """Return a column as an array of text; a value that is not an array becomes an array of one."""
    kind = require_column(frame, column, spelling, table)
    element = kind.elementType if isinstance(kind, T.ArrayType) else kind
    if not isinstance(element, T.StringType | T.IntegralType | T.BooleanType):
        raise InputRefusedError(
            f"column {column!r} ({spelling}) of the {table} is {kind.simpleString()}; it must be an array of text or "
            "whole numbers, or one of them."
        )
    values = exact_col(column) if isinstance(kind, T.ArrayType) else F.array(exact_col(column))
    return values.cast("array<string>")


def _select_interactions(frame: DataFrame, settings: EvaluationSettings, kind: T.DataType) -> DataFrame:
    """Select the user and the item of interactions, as `user` and `item`."""
    item = str(settings.columns.item)
    known = frame.where(exact_col(item).isNotNull())
    return known.select(
        exact_col(get_user_column(settings)).alias("user"), _cast_items(frame, item, kind, INTERACTIONS).alias("item")
    )


def _cast_items(frame: DataFrame, column: str, kind: T.DataType, table: str) -> Column:
    """Return the items of a table in the type that they have in rankings. Raise if types do not compare."""
    column_type = frame.schema[column].dataType
    if column_type == kind:
        return exact_col(column)
    if isinstance(column_type, T.IntegralType) and isinstance(kind, T.IntegralType):
        return exact_col(column).cast("bigint")  # Spark compares integers of different widths
    raise InputRefusedError(
        f"column {column!r} is {kind.simpleString()} in the rankings and {column_type.simpleString()} in the "
        f"{_TABLES[table][0]}; cast one of them so that items compare."
    )


def _check_user_type(interactions: DataFrame, rankings: DataFrame, column: str) -> None:
    """Raise if the users of two tables have types that do not compare."""
    left, right = interactions.schema[column].dataType, rankings.schema[column].dataType
    are_whole = isinstance(left, T.IntegralType) and isinstance(right, T.IntegralType)
    if left != right and not are_whole:
        raise InputRefusedError(
            f"users are {right.simpleString()} in the rankings and {left.simpleString()} in the interactions table; "
            "cast one of them so that they compare."
        )


def _add_topics(rankings: DataFrame, settings: EvaluationSettings, rows: DataFrame) -> DataFrame:
    """Add the judged items of each query with at least the lowest relevance of the metrics, and their topics."""
    keys = dict(canonical_names(settings).query)
    if RUN in rows.columns:  # a row may be left out in one run only
        keys[RUN] = RUN
    topic_metrics = [metric_at.metric for metric_at in settings.computed if TOPICS in metric_at.metric.needs]
    level = min(float(metric.rel) for metric in topic_metrics)  # type: ignore[attr-defined]  # all of these have it
    relevance, topics = F.col(RELEVANCE).cast("double"), F.col(TOPICS_COLUMN)
    entry = F.struct(
        F.col(ITEM).cast(get_item_type(rankings)).alias("item"), relevance.alias("relevance"), topics.alias("topics")
    )
    # Filtered after duplicates are resolved: the copy that was kept may not be relevant.
    judged = rows.where((relevance >= level) & (F.size(topics) > 0))
    labels = {f"__key_{index}": name for index, name in enumerate(keys)}  # rankings have the user's column names
    typed = [exact_col(key).cast(rankings.schema[keys[key]].dataType).alias(label) for label, key in labels.items()]
    topics_by_query = (
        judged.select(*typed, entry.alias("entry"))
        .groupBy(*labels)
        .agg(F.collect_list("entry").alias("topics_of_items"))
    )
    same = [exact_col(keys[key]).eqNullSafe(F.col(label)) for label, key in labels.items()]
    return rankings.join(topics_by_query, same, "left").drop(*labels)
