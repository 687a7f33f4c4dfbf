"""Rank by window functions: the reference for tests of other strategies, written for clarity and not tuned."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ndcg_spark.conventions.forms import parse_gain
from ndcg_spark.core.columns import exact_col, exact_cols, format_query_key, raise_if, spark_schema
from ndcg_spark.core.session import in_tasks
from ndcg_spark.evaluation.frames.summary import Strategy
from ndcg_spark.evaluation.settings import EvaluationSettings
from ndcg_spark.evaluation.tasks import query_rows as col
from ndcg_spark.evaluation.tasks.partial_ranking import (
    HIGH,
    LOW,
    N_REJECTED,
    REJECTED_LOW,
    TWO_ON_ONE_RANK,
    advise_on_repeats,
)
from ndcg_spark.evaluation.tasks.query_rows import canonical_names

IN_RUN = "in_run"
"""Flag column: true for rows of the main table. Judged items that the main table lacks are rows, too."""

NO_CUTOFF = 2**62
"""A cutoff beyond every rank."""

JUDGED_BESIDE = "judged:"
"""Prefix of a segment or weight of the judgments, if the run has the column, too: the values must agree."""

JUDGED = "judged"
"""Flag column: true for rows that count as a judgment; one row only, if the run has an item twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows(Strategy):
    """Rank by window functions, given valid canonical judgments and rows that are valid or marked as rejected.

    Rejected rows have no score, item or relevance: they are only counted. `empty_lists` are as for `Engine`.
    """

    rows: DataFrame
    judgments: DataFrame | None = None
    empty_lists: DataFrame | None = None

    @property
    def cost(self) -> str:
        join = ""
        if self.judgments is not None:
            join = "a full join of all rows and all judgments, and a shuffle of the result, by (query, item); "
        return f"{join}three shuffles of all rows, two of them with a sort; two passes through Python workers"

    def rankings(self) -> DataFrame:
        """Rank every query. Lazy; three shuffles of all rows, two with a sort, after a full join with judgments."""
        rows = self._partition_by_query(self._build_long_table())
        ranked = add_ranks(rows, self.settings)
        keys = _list_keys(ranked, self.settings)
        queries = ranked.groupBy(*exact_cols(keys)).agg(*_build_aggregates(ranked, self.settings))
        if self.judgments is not None and col.RUN in keys:
            queries = self._fill_segments(queries)
        condition = "n_rows > 0 OR n_judged > 0" + (" OR n_rejected > 0" if N_REJECTED in queries.columns else "")
        return self._check_and_rename(queries.where(condition), keys)

    def _build_long_table(self) -> DataFrame:
        """Return one table of retrieved and judged items. A judged item that is not retrieved has no score."""
        rejected = F.col(col.BAD_ROW).isNotNull() if col.BAD_ROW in self.rows.columns else F.lit(False)
        rows = self.rows.withColumn(IN_RUN, F.when(~rejected, True))
        if self.judgments is None:
            return rows.withColumn(JUDGED, F.col(col.RELEVANCE).isNotNull())
        keys = _list_keys(rows, self.settings)
        if self.empty_lists is not None and keys[-1] in self.empty_lists.columns:
            # Rows of empty lists have the segments of their queries.
            rows = rows.unionByName(self.empty_lists.where(exact_col(keys[-1]).isNotNull()), allowMissingColumns=True)
        judgments = _number_copies(self._partition_by_query(self.judgments), self.settings)
        for carried in _list_carried(rows, self.settings):
            if carried in judgments.columns:
                judgments = judgments.withColumnRenamed(carried, JUDGED_BESIDE + carried)
        if col.RUN in keys:
            runs = self.rows.select(col.RUN).where(F.col(col.RUN).isNotNull())
            runs = (runs if self.empty_lists is None else runs.unionAll(self.empty_lists.select(col.RUN))).distinct()
            judgments = in_tasks(runs, self.n_tasks).crossJoin(judgments)
        joined = rows.withColumn("copy", F.lit(1)).join(judgments, [*keys, col.ITEM, "copy"], "full")
        # The column added in between keeps Spark from combining the two repartitions.
        joined = in_tasks(joined, self.n_tasks).withColumn(JUDGED, F.col(col.RELEVANCE).isNotNull())
        joined = self._partition_by_query(joined)
        repeats = Window.partitionBy(*exact_cols([*keys, col.ITEM, "copy"])).orderBy(F.lit(1))
        return joined.withColumn(JUDGED, F.col(JUDGED) & (F.row_number().over(repeats) == 1))

    def _partition_by_query(self, rows: DataFrame) -> DataFrame:
        """Partition rows by query into `n_tasks` partitions, which all later steps keep."""
        keys = exact_cols(_list_keys(rows, self.settings))
        return rows if self.n_tasks is None else rows.repartition(self.n_tasks, *keys)

    def _fill_segments(self, queries: DataFrame) -> DataFrame:
        """Fill missing segments of a query from its other runs. Refuse two segments of a query."""
        names = canonical_names(self.settings)
        by_query = Window.partitionBy(*exact_cols([*names.query]))
        query = format_query_key([*names.query], names.query)
        for segment in (segment for segment in _list_carried(queries, self.settings, LOW) if segment != col.WEIGHT):
            low, high = (
                F.min(exact_col(f"{LOW}{segment}")).over(by_query),
                F.max(exact_col(f"{HIGH}{segment}")).over(by_query),
            )
            queries = queries.withColumns({"lowest": low, "highest": high})
            low, high = F.col("lowest"), F.col("highest")
            problem = f"column {names.segments[segment]!r} has more than one value in query "
            message = (problem, query, ": ", low.cast("string"), " and ", high.cast("string"))
            kind = queries.schema["lowest"].dataType.simpleString()
            for column, default in ((f"{LOW}{segment}", low), (f"{HIGH}{segment}", high)):
                value = F.coalesce(exact_col(column), default)
                checked = raise_if(value, low != high, *message, "; it must be the same in all runs.", kind=kind)
                queries = queries.withColumn(column, checked)
            queries = queries.drop("lowest", "highest")
        return in_tasks(queries, self.n_tasks)

    def _check_and_rename(self, queries: DataFrame, keys: list[str]) -> DataFrame:
        """Refuse invalid queries, and use the user's column names."""
        names = canonical_names(self.settings)
        labels = {**names.query, **names.carried}
        query = format_query_key(keys, labels)
        for carried in _list_carried(queries, self.settings, LOW):
            low, high = exact_col(f"{LOW}{carried}"), exact_col(f"{HIGH}{carried}")
            kind = queries.schema[f"{LOW}{carried}"].dataType.simpleString()
            shown = self.settings.columns.weight if carried == "weight" else labels[carried]
            message = (f"column {shown!r} has more than one value in query ", query, ".")
            queries = queries.withColumn(carried, raise_if(low, low != high, *message, kind=kind))
            if f"{REJECTED_LOW}{carried}" in queries.columns:
                lost = F.when(
                    (F.col("n_rows") == 0) & (F.col("n_judged") == 0), exact_col(f"{REJECTED_LOW}{carried}")
                )
                queries = queries.withColumn(carried, F.coalesce(lost, exact_col(carried)))
        ideal_kind = "ideal list" if self.judgments is None else "judgments"
        for items, values, list_kind in (("checked", "ranked", "ranking"), ("checked_ideal", "ideal", ideal_kind)):
            if items in queries.columns:
                twice = F.size(F.array_distinct(items)) < F.size(items)
                advice = advise_on_repeats(list_kind, self.settings, self.plan.others)
                message = (f"an item appears twice in the {list_kind} of query ", query, f". {advice}")
                queries = queries.withColumn(values, raise_if(F.col(values), twice, *message, kind="array<double>"))
        if "shared_place" in queries.columns:
            message = ("query ", query, f" {TWO_ON_ONE_RANK}.")
            ranked = raise_if(F.col("ranked"), F.col("shared_place"), *message, kind="array<double>")
            queries = queries.withColumn("ranked", ranked)
        if col.RUN not in queries.columns:
            queries = queries.withColumn(col.RUN, F.lit(""))
        schema = spark_schema(self.plan.rankings_schema)
        canonical = {label: name for name, label in labels.items()}
        return queries.select(
            *[
                exact_col(canonical.get(field.name, field.name)).cast(field.dataType).alias(field.name)
                for field in schema
            ]
        )


def _number_copies(judgments: DataFrame, settings: EvaluationSettings) -> DataFrame:
    """Number the judgments of an item as `copy`, the lowest relevance first: copy 1 is joined to the rows."""
    names = canonical_names(settings)
    by_item = Window.partitionBy(*exact_cols([*names.query, col.ITEM]))
    copy = F.row_number().over(by_item.orderBy(F.col(col.RELEVANCE).asc_nulls_first()))
    if settings.checks_top_duplicates:
        twice = F.count(F.when(F.col(col.RELEVANCE) > 0, 1)).over(by_item) > 1
        advice = advise_on_repeats("judgments", settings, ())
        message = (
            "an item appears twice in the judgments of query ",
            format_query_key([*names.query], names.query),
            f". {advice}",
        )
        judgments = judgments.withColumn(
            col.RELEVANCE, raise_if(F.col(col.RELEVANCE), twice, *message, kind="double")
        )
    return judgments.withColumn("copy", copy).withColumn("judged_copies", F.count(F.lit(1)).over(by_item))


def add_ranks(rows: DataFrame, settings: EvaluationSettings) -> DataFrame:
    """Add `place` (1-based, the first of a tie group), `tied` (items of the group) and `ideal_place`.

    A row that is not in the list has a null.
    """
    keys = exact_cols(_list_keys(rows, settings))
    retrieved = exact_col(col.RANK if col.RANK in rows.columns else col.SCORE).isNotNull()
    ranks = retrieved & F.col(col.RELEVANCE).isNotNull() if settings.convention.unjudged == "condensed" else retrieved
    value = _build_rank_value(rows, settings)
    within = Window.partitionBy(*keys, ranks)
    if settings.ranks_given:
        place, tied = F.col(col.RANK).cast("bigint"), F.lit(1)
    elif settings.groups_ties:
        place = F.rank().over(within.orderBy(value.desc()))
        tied = F.count(F.lit(1)).over(Window.partitionBy(*keys, ranks, value))
    else:
        by_item = {"item_asc": F.col(col.ITEM).asc, "item_desc": F.col(col.ITEM).desc}.get(settings.convention.ties)
        by_order = [exact_col(col.ORDER).asc()] if col.ORDER in rows.columns else []
        rule = by_order if by_item is None else [by_item()]
        order = [value.desc(), *rule, F.col(col.RELEVANCE).asc_nulls_first()]
        if col.ITEM in rows.columns:  # between equal rows: decides which are listed and checked for duplicates
            order.append(F.col(col.ITEM).asc())
        place, tied = F.row_number().over(within.orderBy(*order)), F.lit(1)
    listed = F.col(col.RELEVANCE).isNotNull() & ranks if settings.convention.ideal == "retrieved" else F.col(JUDGED)
    items = [F.col(col.ITEM)] if col.ITEM in rows.columns else []
    by_gain = Window.partitionBy(*keys, listed).orderBy(build_ideal_key(settings).desc(), *items)
    rows = rows.withColumn("value", value).withColumn("place", F.when(ranks, place))
    rows = rows.withColumn("tied", F.when(ranks, tied))
    return rows.withColumn("ideal_place", F.when(listed, F.row_number().over(by_gain)))


def build_ideal_key(settings: EvaluationSettings) -> Column:
    """Return the sort key of the ideal order: the relevance, or the gain if the convention has a gain table."""
    relevance, convention = F.col(col.RELEVANCE).cast("double"), settings.convention
    if not convention.has_gain_table:
        return relevance
    level = F.greatest(relevance, F.lit(0.0)) if convention.negative == "clip" else relevance
    gain = F.lit(None).cast("double")
    for table_level, table_gain in (parse_gain(convention.gain).table or {}).items():
        gain = F.when(level == table_level, F.lit(table_gain)).otherwise(gain)
    return gain


def _build_aggregates(rows: DataFrame, settings: EvaluationSettings) -> list[Column]:
    k, in_run = settings.max_k or NO_CUTOFF, F.col(IN_RUN).isNotNull()
    retrieved = exact_col(col.RANK if col.RANK in rows.columns else col.SCORE).isNotNull()
    copies = F.coalesce(F.col(col.COPIES), F.lit(1)) if col.COPIES in rows.columns else F.lit(1)
    removed = F.sum(F.when(retrieved & F.col("place").isNull(), 1).otherwise(0))
    aggregates = {
        "n_rows": F.sum(F.when(in_run, copies).otherwise(0)),
        "n_left_out": F.sum(F.when(in_run, copies - 1).otherwise(0)) + removed,
        "n_items": F.count(F.when(retrieved, 1)),
        "n_judged": F.count(F.when(F.col(JUDGED), 1)),
        "n_relevant": F.count(F.when(F.col(JUDGED) & (F.col(col.RELEVANCE) > 0), 1)),
    }
    if settings.levels:
        reaching = [F.count(F.when(F.col(JUDGED) & (F.col(col.RELEVANCE) >= level), 1)) for level in settings.levels]
        aggregates["n_at_least"] = F.array(*reaching)
    aggregates |= _build_ranges(rows, settings)
    if col.BAD_ROW in rows.columns:
        aggregates[N_REJECTED] = F.sum(F.when(F.col(col.BAD_ROW).isNotNull(), copies).otherwise(0))
    relevance = F.col(col.RELEVANCE).cast("double").alias("relevance")
    fields = [F.col("place"), (-F.col("value")).alias("falling"), relevance, F.col("tied")]
    if settings.lists_items:
        fields.append(F.col(col.ITEM).alias("item"))
    entry = F.struct(*fields)
    entries = F.sort_array(F.collect_list(F.when(F.col("place") <= k, entry)))
    aggregates["ranked"] = entries.getField("relevance")
    if settings.lists_items:
        aggregates["items"] = entries.getField("item")
    if settings.ranks_given:
        aggregates["ranks"] = entries.getField("place")
    elif settings.columns.ranks_are_positions:
        aggregates["shared_place"] = F.size(F.array_distinct(entries.getField("falling"))) < F.size(entries)
    elif settings.groups_ties:
        # One entry for all items of equal score and relevance, whose structs are equal.
        distinct = F.array_distinct(entries)
        aggregates["ranked"] = distinct.getField("relevance")
        aggregates["scores"] = F.transform(distinct.getField("falling"), lambda score: -score)
        aggregates["tied"] = F.transform(
            distinct, lambda entry: F.size(F.filter(entries, lambda other: other.eqNullSafe(entry)))
        )
    best = F.struct(F.col("ideal_place"), relevance)
    listed = F.lit(False) if settings.convention.ideal == "k_ones" else F.col("ideal_place") <= k
    aggregates["ideal"] = F.sort_array(F.collect_list(F.when(listed, best))).getField("relevance")
    if settings.checks_top_duplicates and col.ITEM in rows.columns:
        aggregates |= _collect_items(rows, settings)
    return [column.alias(name) for name, column in aggregates.items()]


def _build_ranges(rows: DataFrame, settings: EvaluationSettings) -> dict[str, Column]:
    """Return the range of each carried column, and the lowest value of each segment in rejected rows."""
    ranges: dict[str, Column] = {}
    for carried in _list_carried(rows, settings):
        columns = exact_cols([column for column in (carried, JUDGED_BESIDE + carried) if column in rows.columns])
        if col.BAD_ROW in rows.columns and carried != col.WEIGHT:
            ranges[f"{REJECTED_LOW}{carried}"] = F.min(F.when(F.col(col.BAD_ROW).isNotNull(), exact_col(carried)))
            columns[0] = F.when(F.col(col.BAD_ROW).isNull(), exact_col(carried))
        ranges[f"{LOW}{carried}"] = F.array_min(F.array(*map(F.min, columns)))
        ranges[f"{HIGH}{carried}"] = F.array_max(F.array(*map(F.max, columns)))
    return ranges


def _collect_items(rows: DataFrame, settings: EvaluationSettings) -> dict[str, Column]:
    """Collect the items of both lists to check for repeats. Items tied at the end of a list are left out."""
    k = settings.max_k or NO_CUTOFF
    end = k if settings.ranks_given else k + 1
    times = F.coalesce("judged_copies", F.lit(1)).cast("int") if "judged_copies" in rows.columns else F.lit(1)
    items = F.when(F.col("place") + F.col("tied") - 1 <= end, F.array_repeat(col.ITEM, times))
    checked = {"checked": F.flatten(F.collect_list(items))}
    if settings.convention.ideal == "k_ones":
        return checked
    order = F.struct(F.col("ideal_place"), build_ideal_key(settings).alias("gain"), F.col(col.ITEM).alias("item"))
    best = F.sort_array(F.collect_list(F.when(F.col("ideal_place") <= k + 1, order)))
    certain = F.filter(best, lambda entry: (F.size(best) <= k) | (entry["gain"] > F.element_at(best, -1)["gain"]))
    return {**checked, "checked_ideal": certain.getField("item")}


def _build_rank_value(rows: DataFrame, settings: EvaluationSettings) -> Column:
    """Return the value by which rows are ranked, highest first."""
    if col.RANK in rows.columns:
        return -F.col(col.RANK).cast("double")
    score = F.col(col.SCORE).cast("double")
    return score.cast("float").cast("double") if settings.convention.score_precision == "float32" else score


def _list_keys(rows: DataFrame, settings: EvaluationSettings) -> list[str]:
    return ([col.RUN] if col.RUN in rows.columns else []) + list(canonical_names(settings).query)


def _list_carried(rows: DataFrame, settings: EvaluationSettings, prefix: str = "") -> list[str]:
    return [carried for carried in canonical_names(settings).carried if prefix + carried in rows.columns]
