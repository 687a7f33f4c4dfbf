"""Judgments from events and from ratings, in Spark SQL."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark.core.adapters import accepts_tables
from ndcg_spark.core.bad_rows import Reasons, check_each_row, drop_bad_rows, list_key_reasons
from ndcg_spark.core.columns import (
    TimeColumn,
    exact_col,
    exact_cols,
    from_limbs,
    limbs,
    number_column,
    require_column,
    time_column,
)
from ndcg_spark.core.exact import MAX_WEIGHT
from ndcg_spark.core.flag import OnInvalid, create_settings
from ndcg_spark.core.workers import in_workers
from ndcg_spark.errors import option
from ndcg_spark.judgments.settings import (
    GRADES,
    DedupRule,
    EventColumns,
    EventRule,
    EventSettings,
    NegativeRule,
    RatingRule,
    RatingSettings,
    TieRule,
)
from ndcg_spark.judgments.tasks import RATINGS, count_pairs, judge_items, measure_agreement

EVENTS_TABLE, RATINGS_TABLE = "events", "ratings"
_MICROS_A_DAY = 86_400_000_000.0
_N_LIMBS = 3
_CODE, _MICROS, _COPIES, _BUCKET = "event code", "event micros", "event copies", "event bucket"
_VALUE, _ROWS, _ALL_COPIES = "event value", "event rows", "event all copies"
_FIRST, _LAST, _BEST = "event first", "event last", "event best"
"""Intermediate columns. Their names contain spaces, which makes a clash with key columns unlikely."""


def judge_events(events: DataFrame, settings: EventSettings) -> DataFrame:
    """Implement `from_events`. Lazy."""
    time, reasons = _check_event_columns(events, settings)
    keys = [*settings.columns.query, settings.columns.item]
    valid = drop_bad_rows(_filter_window(events, time, settings), reasons, keys, settings.on_invalid)
    rows = valid.select(
        *exact_cols([*keys, *_list_dedup_columns(settings)]),
        _encode_event(settings).alias(_CODE),
        time.micros.alias(_MICROS),
    )
    rows = _drop_repeats(rows, keys, settings)
    if settings.rule == "sum":  # a column of its own, or Spark computes it once for each limb
        grades = F.array(*[F.lit(grade) for _, grade in settings.ranked_grades])
        value = _decay(F.get(grades, exact_col(_CODE)), exact_col(_MICROS), settings)
        rows = rows.withColumn(_VALUE, F.when(exact_col(_CODE) >= settings.n_negative, value))
    state = rows.groupBy(*exact_cols(keys)).agg(*_aggregate_events(settings))
    return state.select(*exact_cols(keys), *_derive_judgments(settings))


def check_events(events: DataFrame, settings: EventSettings, *, originals: bool = False) -> DataFrame:
    """Name the reason why each event in the window is bad; null for a good event. Lazy; columns of `check_each_row`.

    The reasons: `malformed_line`, `null_query`, `null_item`, `null_event`, `unknown_event`, `null_ts`,
    `ts_not_a_timestamp`, `null_event_id`, `null_user`.
    """
    time, reasons = _check_event_columns(events, settings)
    keys = [*settings.columns.query, settings.columns.item, settings.columns.event]
    return check_each_row(
        _filter_window(events, time, settings), reasons, keys, originals=events.columns if originals else ()
    )


def _check_event_columns(events: DataFrame, settings: EventSettings) -> tuple[TimeColumn, Reasons]:
    columns = settings.columns
    reasons = list_key_reasons(events, columns.query, columns.item, EVENTS_TABLE)
    require_column(events, columns.event, option("event"), EVENTS_TABLE)
    time = time_column(events, columns.ts, option("ts"), EVENTS_TABLE)
    event = exact_col(columns.event).cast("string")
    reasons.append(("null_event", event.isNull()))
    reasons.append(("unknown_event", ~event.isin(settings.impression, *settings.grades)))
    reasons.append(("null_ts", exact_col(columns.ts).isNull()))
    if time.is_text:
        reasons.append(("ts_not_a_timestamp", time.micros.isNull()))
    for field in ("event_id", "user"):
        if getattr(columns, field) != getattr(EventColumns(), field):  # named by the user, so it must exist
            require_column(events, getattr(columns, field), option(field), EVENTS_TABLE)
    for column, field in _list_dedup_options(settings):
        require_column(events, column, option(field), EVENTS_TABLE)
        reasons.append((f"null_{field}", exact_col(column).isNull()))
    return time, reasons


def _list_dedup_options(settings: EventSettings) -> list[tuple[str, str]]:
    options = {"event_id": (settings.columns.event_id, "event_id"), "time": (settings.columns.user, "user")}
    return [options[settings.dedup]] if settings.dedup in options else []


def _list_dedup_columns(settings: EventSettings) -> list[str]:
    keys = (*settings.columns.query, settings.columns.item)
    return [column for column, _ in _list_dedup_options(settings) if column not in keys]


def _filter_window(events: DataFrame, time: TimeColumn, settings: EventSettings) -> DataFrame:
    """Drop events outside the window. Events without a time stay and become bad rows."""
    for micros, compare in ((settings.start_micros, Column.__ge__), (settings.as_of_micros, Column.__lt__)):
        if micros is not None:
            is_inside = compare(time.comparable, time.bound(micros))
            events = events.where(is_inside | time.comparable.isNull())
    return events


def _encode_event(settings: EventSettings) -> Column:
    """Return the index of an event by rising grade; an impression is -1."""
    event = exact_col(settings.columns.event).cast("string")
    code = F.when(event == settings.impression, F.lit(-1))
    for index, (graded_event, _) in enumerate(settings.ranked_grades):
        code = code.when(event == graded_event, F.lit(index))
    return code


def _drop_repeats(rows: DataFrame, keys: Sequence[str], settings: EventSettings) -> DataFrame:
    """Deduplicate events. Shuffles by (query, item) first, so that later steps need no shuffle."""
    if settings.dedup == "none":
        return rows
    code, micros = exact_col(_CODE), exact_col(_MICROS)
    group = [*keys, *_list_dedup_columns(settings)]
    aggregates = [F.min(micros).alias(_MICROS), F.count(F.lit(1)).alias(_COPIES)]
    if settings.dedup == "event_id":
        aggregates.append(F.max(code).alias(_CODE))
    else:
        length = int(settings.dedup_seconds or 0) * 1_000_000
        rows = rows.withColumn(_BUCKET, micros - F.pmod(micros, F.lit(length)))
        group += [_CODE, _BUCKET]
    return rows.repartition(*exact_cols(keys)).groupBy(*exact_cols(group)).agg(*aggregates)


def _aggregate_events(settings: EventSettings) -> Iterable[Column]:
    """Yield the aggregates of a (query, item); all are whole numbers."""
    code, micros = exact_col(_CODE), exact_col(_MICROS)
    negative = settings.n_negative
    yield F.count(F.lit(1)).alias(_ROWS)
    yield F.count(F.when(code >= 0, 1)).alias("n_events")
    n_negative = F.count(F.when((code >= 0) & (code < negative), 1)) if negative else F.lit(0).cast("bigint")
    yield n_negative.alias("n_negative")
    copies = F.sum(exact_col(_COPIES)) if settings.dedup != "none" else F.count(F.lit(1))
    yield copies.alias(_ALL_COPIES)
    yield F.min(micros).alias(_FIRST)
    yield F.max(micros).alias(_LAST)
    for index, (_, grade) in enumerate(settings.ranked_grades):
        if index < negative or _needs_times(settings) or (negative and settings.negative == "latest" and grade > 0):
            yield F.max(F.when(code == index, micros)).alias(_latest_column(index))
    if settings.rule == "best" and settings.half_life is None:
        yield F.max(F.when(code >= negative, code)).alias(_BEST)
    if settings.rule == "sum":
        for limb, whole in enumerate(limbs(exact_col(_VALUE), _count_limbs(settings))):
            yield F.sum(whole).alias(_sum_column(limb))


def _latest_column(code: int) -> str:
    return f"event latest {code}"


def _sum_column(limb: int) -> str:
    return f"event sum {limb}"


def _needs_times(settings: EventSettings) -> bool:
    """Return True if the relevance depends on the latest time of each event."""
    return settings.rule == "last" or (settings.rule == "best" and settings.half_life is not None)


def _decay(grade: Column, micros: Column, settings: EventSettings) -> Column:
    if settings.half_life is None:
        return grade
    days = (F.lit(settings.as_of_micros) - micros) / F.lit(_MICROS_A_DAY)
    return grade * F.pow(F.lit(0.5), days / F.lit(float(settings.half_life)))


def _count_limbs(settings: EventSettings) -> int:
    """Return the number of limbs of a value of at least 0, in units 1, 2^-32 and 2^-64; whole grades need one."""
    whole_grades = all(grade == int(grade) for _, grade in settings.ranked_grades)
    return 1 if settings.half_life is None and whole_grades else _N_LIMBS


def _derive_judgments(settings: EventSettings) -> Iterable[Column]:
    """Yield the columns of the judgments, computed from the aggregates."""
    value, event = _decide_positive(settings)
    n_events, n_negative = F.col("n_events"), F.col("n_negative")
    n_impressions = exact_col(_ROWS) - n_events
    has_value = n_events > n_negative
    enough = n_impressions >= settings.min_impressions
    relevance = F.when(has_value, value).when(enough, F.lit(0.0))
    rule = F.when(has_value, F.lit(settings.rule)).when(enough, F.lit("impressions"))
    rule = rule.otherwise(F.lit("too_few_impressions"))
    event = F.when(has_value, event)
    if settings.n_negative:
        decides, grade, negative_event = _decide_negative(settings)
        relevance = F.when(decides, grade).otherwise(relevance)
        rule = F.when(decides, F.lit("negative")).otherwise(rule)
        event = F.when(decides, negative_event).otherwise(event)
    yield relevance.alias("relevance")
    yield rule.alias("rule")
    yield event.alias("event")
    yield n_events
    yield n_negative
    yield n_impressions.alias("n_impressions")
    yield (exact_col(_ALL_COPIES) - exact_col(_ROWS)).alias("n_duplicates")
    yield F.timestamp_micros(exact_col(_FIRST)).alias("first_ts")
    yield F.timestamp_micros(exact_col(_LAST)).alias("last_ts")


def _decide_positive(settings: EventSettings) -> tuple[Column, Column]:
    """Return the relevance from the events that are not negative, and the event that decided it."""
    graded = settings.ranked_grades
    grades = F.array(*[F.lit(grade) for _, grade in graded])
    events = F.array(*[F.lit(event) for event, _ in graded])
    if settings.rule == "sum":
        summed = from_limbs([exact_col(_sum_column(limb)) for limb in range(_count_limbs(settings))])
        return F.least(summed, F.lit(settings.highest)), F.lit(None).cast("string")
    if not _needs_times(settings):
        return F.get(grades, exact_col(_BEST)), F.get(events, exact_col(_BEST))
    candidates = []
    for code in range(settings.n_negative, len(graded)):
        latest = exact_col(_latest_column(code))
        value = _decay(F.lit(graded[code][1]), latest, settings).alias("value")
        sort_key = [latest.alias("at")] if settings.rule == "last" else []
        candidates.append(F.when(latest.isNotNull(), F.struct(*sort_key, value, F.lit(code).alias("code"))))
    deciding = _greatest(candidates)
    return deciding["value"], F.get(events, deciding["code"])


def _decide_negative(settings: EventSettings) -> tuple[Column, Column, Column]:
    """Return whether a negative event sets the relevance, its grade and its name."""
    graded = settings.ranked_grades
    candidates = []
    for code in range(settings.n_negative):
        latest = exact_col(_latest_column(code)).alias("at")
        candidates.append(F.when(latest.isNotNull(), F.struct(latest, F.lit(-code).alias("code"))))
    deciding = _greatest(candidates)
    decides = deciding.isNotNull()
    if settings.negative == "latest":
        positive = [exact_col(_latest_column(code)) for code, (_, grade) in enumerate(graded) if grade > 0]
        decides = decides & ~F.coalesce(_greatest(positive) > deciding["at"], F.lit(False))
    grades = F.array(*[F.lit(grade) for _, grade in graded])
    events = F.array(*[F.lit(event) for event, _ in graded])
    return decides, F.get(grades, -deciding["code"]), F.get(events, -deciding["code"])


def _greatest(columns: list[Column]) -> Column:
    return columns[0] if len(columns) == 1 else F.greatest(*columns)


_JUDGMENT_FIELDS = [
    T.StructField("relevance", T.DoubleType()),
    T.StructField("rule", T.StringType()),
    T.StructField("decided_by", T.ArrayType(T.StringType())),
    T.StructField("n_ratings", T.LongType()),
    T.StructField("n_zero_weight", T.LongType()),
    T.StructField("weight_sum", T.DoubleType()),
    T.StructField("lowest", T.DoubleType()),
    T.StructField("highest", T.DoubleType()),
    T.StructField("disputed", T.BooleanType()),
]


def judge_ratings(ratings: DataFrame, settings: RatingSettings) -> DataFrame:
    """Implement `from_ratings`. Lazy."""
    rows = collect_ratings(ratings, settings)
    keys = [field for field in rows.schema if field.name != RATINGS]
    schema = T.StructType([*keys, *_JUDGMENT_FIELDS, rows.schema[RATINGS]])
    return in_workers(rows, judge_items, settings, schema=schema)


def collect_ratings(ratings: DataFrame, settings: RatingSettings) -> DataFrame:
    """Collect the ratings of each item in a list `ratings`, sorted and without nulls. Lazy; one shuffle."""
    columns, keys = settings.columns, [*settings.columns.query, settings.columns.item]
    reasons = _check_rating_columns(ratings, settings)
    valid = drop_bad_rows(ratings, reasons, [*keys, columns.annotator], settings.on_invalid)
    relevance = number_column(ratings, columns.relevance, option("relevance"), RATINGS_TABLE)
    weight = F.lit(1.0)
    if columns.weight is not None:
        weight = number_column(ratings, columns.weight, option("weight"), RATINGS_TABLE)
    rating = F.struct(
        (relevance + F.lit(0.0)).alias("relevance"),  # -0.0 is 0.0
        exact_col(columns.annotator).cast("string").alias("annotator"),
        weight.alias("weight"),
    )
    rating_list = F.sort_array(F.collect_list(F.when(exact_col("rating relevance").isNotNull(), exact_col("rating"))))
    rows = valid.select(*exact_cols(keys), rating.alias("rating"), relevance.alias("rating relevance"))
    return rows.groupBy(*exact_cols(keys)).agg(rating_list.alias(RATINGS))


def check_ratings(ratings: DataFrame, settings: RatingSettings, *, originals: bool = False) -> DataFrame:
    """Name the reason why each rating is bad; null for a good rating. Lazy; columns of `check_each_row`.

    The reasons: `malformed_line`, `null_query`, `null_item`, `null_annotator`, `relevance_not_a_number`,
    `nan_relevance`, `infinite_relevance`, `bad_weight` (null, NaN, negative, or above 1e18).
    """
    keys = [*settings.columns.query, settings.columns.item, settings.columns.annotator]
    reasons = _check_rating_columns(ratings, settings)
    return check_each_row(ratings, reasons, keys, originals=ratings.columns if originals else ())


def _check_rating_columns(ratings: DataFrame, settings: RatingSettings) -> Reasons:
    columns = settings.columns
    reasons = list_key_reasons(ratings, columns.query, columns.item, RATINGS_TABLE)
    require_column(ratings, columns.annotator, option("annotator"), RATINGS_TABLE)
    relevance = number_column(ratings, columns.relevance, option("relevance"), RATINGS_TABLE)
    has_relevance = exact_col(columns.relevance).isNotNull()
    reasons += [
        ("null_annotator", exact_col(columns.annotator).isNull()),
        ("relevance_not_a_number", has_relevance & relevance.isNull()),
        ("nan_relevance", F.isnan(relevance)),
        ("infinite_relevance", F.abs(relevance) == float("inf")),
    ]
    if columns.weight is not None:
        weight = number_column(ratings, columns.weight, option("weight"), RATINGS_TABLE)
        is_good = F.coalesce((weight >= 0) & (weight <= MAX_WEIGHT), F.lit(False))
        reasons.append(("bad_weight", ~is_good))
    return reasons


_PAIRS = "raters bigint, first double, second double, n bigint"
_AGREEMENT = "alpha double, reason string, n_items bigint, n_ratings bigint"


def count_item_pairs(items: DataFrame, settings: RatingSettings) -> DataFrame:
    """Count ordered pairs of ratings of an item: `raters`, `first`, `second`, `n`. Lazy; one small shuffle.

    `items` has the keys and `ratings` of each item. Counts from tables with different items can be combined by
    `union`.
    """
    ratings = items.select(*exact_cols([*settings.columns.query, settings.columns.item, RATINGS]))
    pairs = in_workers(ratings, count_pairs, settings, schema=_PAIRS)
    return pairs.groupBy("raters", "first", "second").agg(F.sum("n").alias("n"))


def compute_agreement(pairs: DataFrame) -> DataFrame:
    """Compute Krippendorff's alpha from `count_item_pairs`; columns as in `rating_agreement`. Lazy."""
    pair_list = F.collect_list(F.struct("raters", "first", "second", "n")).alias("pairs")
    return in_workers(pairs.agg(pair_list), measure_agreement, schema=_AGREEMENT)


@accepts_tables
def from_events(
    events: DataFrame,
    *,
    query: str | Sequence[str] = "query_id",
    item: str = "item_id",
    event: str = "event",
    ts: str = "ts",
    event_id: str = "event_id",
    user: str = "user_id",
    grades: Mapping[str, float] | None = None,
    impression: str = "impression",
    rule: EventRule = "best",
    cap: float | None = None,
    half_life: float | None = None,
    min_impressions: int = 1,
    negative: NegativeRule = "override",
    start: datetime | None = None,
    as_of: datetime | None = None,
    dedup: DedupRule = "none",
    dedup_seconds: int | None = None,
    on_invalid: OnInvalid = "fail",
) -> DataFrame:
    """Build graded judgments from user events.

    Parameters
    ----------
    events : DataFrame
        One row per event: query, item, event, timestamp, and the event id or user if `dedup` needs them.
    query, item, event, ts, event_id, user : str
        Column names, as in `EventColumns`; `query` may be a sequence of names.
    grades : mapping from str to float or None
        Grade of each event, negative for a negative event. Default: `view` is 1, `cart` 2, `purchase` 3.
    impression, rule, cap, half_life, min_impressions, negative, start, as_of, dedup, dedup_seconds, on_invalid
        As in `EventSettings`.

    Returns
    -------
    DataFrame
        One row per (query, item) with an event in the window, lazy and unsorted: the query columns, the item column,
        and

        - `relevance` (double): null if the item is unjudged,
        - `rule` (string): `best`, `sum`, `last`: graded events decided; `negative`: a negative event decided;
          `impressions`: the item was shown without any event; `too_few_impressions`: the item is unjudged,
        - `event` (string): the event that decided; null for a sum and for impressions,
        - `n_events`, `n_negative`, `n_impressions` (bigint): graded events, graded events with a grade below 0, and
          impressions, after deduplication,
        - `n_duplicates` (bigint): repeated events that were left out,
        - `first_ts`, `last_ts` (timestamp): time of the first and of the last event.

    Raises
    ------
    MissingColumnError, InputRefusedError
        The action raises for a bad row (a null, an unknown event) in the window if `on_invalid=fail`.

    Notes
    -----
    Spark cost: one shuffle, no action, no Python. Rows are aggregated before the shuffle, except with deduplication.
    Decayed values are rounded down to multiples of 2^-64, so a sum does not depend on the order of rows.

    Examples
    --------
    >>> from_events(events, rule="sum", as_of=datetime(2026, 2, 1), half_life=7)  # doctest: +SKIP
    """
    arguments = dict(locals())
    arguments["grades"] = GRADES if grades is None else grades
    return judge_events(events, create_settings(EventSettings, arguments))


@accepts_tables
def from_ratings(
    ratings: DataFrame,
    *,
    query: str | Sequence[str] = "query_id",
    item: str = "item_id",
    annotator: str = "annotator",
    relevance: str = "relevance",
    weight: str | None = None,
    rule: RatingRule = "mean",
    tie: TieRule = "lower",
    dispute_range: float = 2.0,
    on_invalid: OnInvalid = "fail",
) -> DataFrame:
    """Build one judgment of each item from the ratings of several annotators.

    Parameters
    ----------
    ratings : DataFrame
        One row per query, item and annotator, with a relevance and optionally a weight.
    query, item, annotator, relevance, weight : str
        Column names, as in `RatingColumns`; `query` may be a sequence of names. Without `weight`, all weights are 1.
    rule, tie, dispute_range, on_invalid
        As in `RatingSettings`; default: the mean.

    Returns
    -------
    DataFrame
        One row per (query, item), lazy and unsorted: the query columns, the item column, and

        - `relevance` (double): null if the item is unjudged; `rule` gives the reason,
        - `rule` (string): `mean`, `median`, `majority`; or the reason for a null: `no_ratings` (all are null),
          `no_weight` (all weights are 0), `tie`,
        - `decided_by` (array of string): annotators whose ratings decided: all, at the median, or of the majority,
        - `n_ratings` (bigint): ratings with a weight above 0,
        - `n_zero_weight` (bigint): ratings of weight 0, which are otherwise ignored,
        - `weight_sum`, `lowest`, `highest` (double),
        - `disputed` (boolean): the highest and lowest rating of a weight above 0 are `dispute_range` or more apart,
          or no grade has more than half of the weight,
        - `ratings` (array of struct<relevance, annotator, weight>): all ratings, the lowest first.

    Raises
    ------
    MissingColumnError, InputRefusedError
        The action raises for a bad row if `on_invalid=fail`, and for an annotator who rated an item twice.

    Notes
    -----
    Spark cost: one shuffle of all rows, no action, one pass through Python workers.
    """
    return judge_ratings(ratings, create_settings(RatingSettings, dict(locals())))


@accepts_tables
def rating_agreement(
    ratings: DataFrame,
    *,
    query: str | Sequence[str] = "query_id",
    item: str = "item_id",
    annotator: str = "annotator",
    relevance: str = "relevance",
    weight: str | None = None,
    on_invalid: OnInvalid = "fail",
) -> DataFrame:
    """Compute Krippendorff's alpha with the ordinal difference.

    Parameters
    ----------
    ratings : DataFrame
        As for `from_ratings`. Ratings of weight 0 are ignored; all others count equally.
    query, item, annotator, relevance, weight, on_invalid
        As for `from_ratings`.

    Returns
    -------
    DataFrame
        One row, lazy: `alpha` (double, or null), `reason` for a null (string: `no_pairs`, `single_grade`), `n_items`
        (bigint: items with two or more ratings) and `n_ratings` (bigint: ratings of these items).

    Raises
    ------
    MissingColumnError, InputRefusedError
        As `from_ratings`.

    Notes
    -----
    Spark cost: one shuffle of all rows, two small shuffles of counts, the last into a single task; no action; two
    passes through Python workers. Ratings should be grades: every pair of distinct ratings is counted separately.

    References
    ----------
    Hayes and Krippendorff, Communication Methods and Measures 1(1), 2007, doi:10.1080/19312450709336664.
    """
    settings = create_settings(RatingSettings, dict(locals()))
    return compute_agreement(count_item_pairs(collect_ratings(ratings, settings), settings))
