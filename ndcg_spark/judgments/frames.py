"""Judgments from events and from ratings, in Spark SQL."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark.core.bad_rows import Reasons, checked, key_reasons, without_bad_rows
from ndcg_spark.core.columns import (
    TimeColumn,
    columns_of,
    from_limbs,
    limbs,
    named,
    number,
    require_column,
    time_column,
)
from ndcg_spark.core.exact import MAX_WEIGHT
from ndcg_spark.core.flag import OnInvalid, settings_from
from ndcg_spark.core.given import takes_tables
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
"""Intermediate columns; they have spaces, so that no key is likely to share the name."""


def judged_events(events: DataFrame, settings: EventSettings) -> DataFrame:
    """Implement `from_events`. Lazy."""
    time, reasons = _checks(events, settings)
    keys = [*settings.columns.query, settings.columns.item]
    valid = without_bad_rows(_in_window(events, time, settings), reasons, keys, settings.on_invalid)
    rows = valid.select(
        *columns_of([*keys, *_dedup_columns(settings)]), _code(settings).alias(_CODE), time.micros.alias(_MICROS)
    )
    rows = _without_repeats(rows, keys, settings)
    if settings.rule == "sum":  # a column of its own, or Spark computes it once for each limb
        grades = F.array(*[F.lit(grade) for _, grade in settings.ranked_grades])
        value = _decayed(F.get(grades, named(_CODE)), named(_MICROS), settings)
        rows = rows.withColumn(_VALUE, F.when(named(_CODE) >= settings.n_negative, value))
    state = rows.groupBy(*columns_of(keys)).agg(*_state(settings))
    return state.select(*columns_of(keys), *_judged(settings))


def checked_events(events: DataFrame, settings: EventSettings, *, originals: bool = False) -> DataFrame:
    """Name the reason why each event of the window is bad; null if it is not. Lazy; rows as from `checked`.

    The reasons: `malformed_line`, `null_query`, `null_item`, `null_event`, `unknown_event`, `null_ts`,
    `ts_not_a_timestamp`, `null_event_id`, `null_user`.
    """
    time, reasons = _checks(events, settings)
    keys = [*settings.columns.query, settings.columns.item, settings.columns.event]
    return checked(_in_window(events, time, settings), reasons, keys, originals=events.columns if originals else ())


def _checks(events: DataFrame, settings: EventSettings) -> tuple[TimeColumn, Reasons]:
    columns = settings.columns
    reasons = key_reasons(events, columns.query, columns.item, EVENTS_TABLE)
    require_column(events, columns.event, option("event"), EVENTS_TABLE)
    time = time_column(events, columns.ts, option("ts"), EVENTS_TABLE)
    event = named(columns.event).cast("string")
    reasons.append(("null_event", event.isNull()))
    reasons.append(("unknown_event", ~event.isin(settings.impression, *settings.grades)))
    reasons.append(("null_ts", named(columns.ts).isNull()))
    if time.is_text:
        reasons.append(("ts_not_a_timestamp", time.micros.isNull()))
    for part in ("event_id", "user"):
        if getattr(columns, part) != getattr(EventColumns(), part):  # named, though perhaps not needed
            require_column(events, getattr(columns, part), option(part), EVENTS_TABLE)
    for column, part in _dedup_parts(settings):
        require_column(events, column, option(part), EVENTS_TABLE)
        reasons.append((f"null_{part}", named(column).isNull()))
    return time, reasons


def _dedup_parts(settings: EventSettings) -> list[tuple[str, str]]:
    found = {"event_id": (settings.columns.event_id, "event_id"), "time": (settings.columns.user, "user")}
    return [found[settings.dedup]] if settings.dedup in found else []


def _dedup_columns(settings: EventSettings) -> list[str]:
    keys = (*settings.columns.query, settings.columns.item)
    return [column for column, _ in _dedup_parts(settings) if column not in keys]


def _in_window(events: DataFrame, time: TimeColumn, settings: EventSettings) -> DataFrame:
    """Drop events outside the window; those without a time stay, as bad rows."""
    for micros, inside in ((settings.start_micros, Column.__ge__), (settings.as_of_micros, Column.__lt__)):
        if micros is not None:
            kept = inside(time.comparable, time.bound(micros))
            events = events.where(kept | time.comparable.isNull())
    return events


def _code(settings: EventSettings) -> Column:
    """Number of an event by rising grade; an impression is -1."""
    event = named(settings.columns.event).cast("string")
    found = F.when(event == settings.impression, F.lit(-1))
    for code, (name, _) in enumerate(settings.ranked_grades):
        found = found.when(event == name, F.lit(code))
    return found


def _without_repeats(rows: DataFrame, keys: Sequence[str], settings: EventSettings) -> DataFrame:
    """Let repeated events count once. Shuffle by (query, item) first, so that later steps need no shuffle."""
    if settings.dedup == "none":
        return rows
    code, micros = named(_CODE), named(_MICROS)
    same = [*keys, *_dedup_columns(settings)]
    taken = [F.min(micros).alias(_MICROS), F.count(F.lit(1)).alias(_COPIES)]
    if settings.dedup == "event_id":
        taken.append(F.max(code).alias(_CODE))
    else:
        length = int(settings.dedup_seconds or 0) * 1_000_000
        rows = rows.withColumn(_BUCKET, micros - F.pmod(micros, F.lit(length)))
        same += [_CODE, _BUCKET]
    return rows.repartition(*columns_of(keys)).groupBy(*columns_of(same)).agg(*taken)


def _state(settings: EventSettings) -> Iterable[Column]:
    """Aggregates of a (query, item), all of them of whole numbers."""
    code, micros = named(_CODE), named(_MICROS)
    negative = settings.n_negative
    yield F.count(F.lit(1)).alias(_ROWS)
    yield F.count(F.when(code >= 0, 1)).alias("n_events")
    n_negative = F.count(F.when((code >= 0) & (code < negative), 1)) if negative else F.lit(0).cast("bigint")
    yield n_negative.alias("n_negative")
    copies = F.sum(named(_COPIES)) if settings.dedup != "none" else F.count(F.lit(1))
    yield copies.alias(_ALL_COPIES)
    yield F.min(micros).alias(_FIRST)
    yield F.max(micros).alias(_LAST)
    for at, (_, grade) in enumerate(settings.ranked_grades):
        if at < negative or _needs_times(settings) or (negative and settings.negative == "latest" and grade > 0):
            yield F.max(F.when(code == at, micros)).alias(_latest(at))
    if settings.rule == "best" and settings.half_life is None:
        yield F.max(F.when(code >= negative, code)).alias(_BEST)
    if settings.rule == "sum":
        for limb, whole in enumerate(limbs(named(_VALUE), _n_limbs(settings))):
            yield F.sum(whole).alias(_sum(limb))


def _latest(code: int) -> str:
    return f"event latest {code}"


def _sum(limb: int) -> str:
    return f"event sum {limb}"


def _needs_times(settings: EventSettings) -> bool:
    """Check whether the value follows from the latest time of each event."""
    return settings.rule == "last" or (settings.rule == "best" and settings.half_life is not None)


def _decayed(grade: Column, micros: Column, settings: EventSettings) -> Column:
    if settings.half_life is None:
        return grade
    days = (F.lit(settings.as_of_micros) - micros) / F.lit(_MICROS_A_DAY)
    return grade * F.pow(F.lit(0.5), days / F.lit(float(settings.half_life)))


def _n_limbs(settings: EventSettings) -> int:
    """Number of limbs of a value of at least 0, in units 1, 2^-32 and 2^-64; whole grades need one."""
    whole_grades = all(grade == int(grade) for _, grade in settings.ranked_grades)
    return 1 if settings.half_life is None and whole_grades else _N_LIMBS


def _judged(settings: EventSettings) -> Iterable[Column]:
    """Columns of the judgments from the aggregates."""
    value, event = _positive(settings)
    n_events, n_negative = F.col("n_events"), F.col("n_negative")
    n_impressions = named(_ROWS) - n_events
    has_value = n_events > n_negative
    enough = n_impressions >= settings.min_impressions
    relevance = F.when(has_value, value).when(enough, F.lit(0.0))
    rule = F.when(has_value, F.lit(settings.rule)).when(enough, F.lit("impressions"))
    rule = rule.otherwise(F.lit("too_few_impressions"))
    event = F.when(has_value, event)
    if settings.n_negative:
        sets, grade, name = _negative(settings)
        relevance = F.when(sets, grade).otherwise(relevance)
        rule = F.when(sets, F.lit("negative")).otherwise(rule)
        event = F.when(sets, name).otherwise(event)
    yield relevance.alias("relevance")
    yield rule.alias("rule")
    yield event.alias("event")
    yield n_events
    yield n_negative
    yield n_impressions.alias("n_impressions")
    yield (named(_ALL_COPIES) - named(_ROWS)).alias("n_duplicates")
    yield F.timestamp_micros(named(_FIRST)).alias("first_ts")
    yield F.timestamp_micros(named(_LAST)).alias("last_ts")


def _positive(settings: EventSettings) -> tuple[Column, Column]:
    """Value and name of the events that decide among those that are not negative."""
    events = settings.ranked_grades
    grades = F.array(*[F.lit(grade) for _, grade in events])
    names = F.array(*[F.lit(name) for name, _ in events])
    if settings.rule == "sum":
        summed = from_limbs([named(_sum(limb)) for limb in range(_n_limbs(settings))])
        return F.least(summed, F.lit(settings.highest)), F.lit(None).cast("string")
    if not _needs_times(settings):
        return F.get(grades, named(_BEST)), F.get(names, named(_BEST))
    found = []
    for code in range(settings.n_negative, len(events)):
        latest = named(_latest(code))
        value = _decayed(F.lit(events[code][1]), latest, settings).alias("value")
        at = [latest.alias("at")] if settings.rule == "last" else []
        found.append(F.when(latest.isNotNull(), F.struct(*at, value, F.lit(code).alias("code"))))
    chosen = _greatest(found)
    return chosen["value"], F.get(names, chosen["code"])


def _negative(settings: EventSettings) -> tuple[Column, Column, Column]:
    """Whether a negative event sets the relevance, its grade and its name."""
    events = settings.ranked_grades
    found = []
    for code in range(settings.n_negative):
        latest = named(_latest(code)).alias("at")
        found.append(F.when(latest.isNotNull(), F.struct(latest, F.lit(-code).alias("code"))))
    chosen = _greatest(found)
    sets = chosen.isNotNull()
    if settings.negative == "latest":
        positive = [named(_latest(code)) for code, (_, grade) in enumerate(events) if grade > 0]
        sets = sets & ~F.coalesce(_greatest(positive) > chosen["at"], F.lit(False))
    grades = F.array(*[F.lit(grade) for _, grade in events])
    names = F.array(*[F.lit(name) for name, _ in events])
    return sets, F.get(grades, -chosen["code"]), F.get(names, -chosen["code"])


def _greatest(columns: list[Column]) -> Column:
    return columns[0] if len(columns) == 1 else F.greatest(*columns)


_JUDGED = [
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


def judged_ratings(ratings: DataFrame, settings: RatingSettings) -> DataFrame:
    """Implement `from_ratings`. Lazy."""
    rows = rated_items(ratings, settings)
    keys = [one for one in rows.schema if one.name != RATINGS]
    schema = T.StructType([*keys, *_JUDGED, rows.schema[RATINGS]])
    return in_workers(rows, judge_items, settings, schema=schema)


def rated_items(ratings: DataFrame, settings: RatingSettings) -> DataFrame:
    """Collect the ratings of each item as `ratings`: sorted, without nulls. Lazy; one shuffle."""
    columns, keys = settings.columns, [*settings.columns.query, settings.columns.item]
    reasons = _reasons(ratings, settings)
    valid = without_bad_rows(ratings, reasons, [*keys, columns.annotator], settings.on_invalid)
    relevance = number(ratings, columns.relevance, option("relevance"), RATINGS_TABLE)
    weight = F.lit(1.0)
    if columns.weight is not None:
        weight = number(ratings, columns.weight, option("weight"), RATINGS_TABLE)
    rating = F.struct(
        (relevance + F.lit(0.0)).alias("relevance"),  # -0.0 is 0.0
        named(columns.annotator).cast("string").alias("annotator"),
        weight.alias("weight"),
    )
    listed = F.sort_array(F.collect_list(F.when(named("rating relevance").isNotNull(), named("rating"))))
    rows = valid.select(*columns_of(keys), rating.alias("rating"), relevance.alias("rating relevance"))
    return rows.groupBy(*columns_of(keys)).agg(listed.alias(RATINGS))


def checked_ratings(ratings: DataFrame, settings: RatingSettings, *, originals: bool = False) -> DataFrame:
    """Name the reason why each rating is bad; null if it is not. Lazy; rows as from `checked`.

    The reasons: `malformed_line`, `null_query`, `null_item`, `null_annotator`, `relevance_not_a_number`,
    `nan_relevance`, `infinite_relevance`, `bad_weight` (null, NaN, negative, or above 1e18).
    """
    keys = [*settings.columns.query, settings.columns.item, settings.columns.annotator]
    reasons = _reasons(ratings, settings)
    return checked(ratings, reasons, keys, originals=ratings.columns if originals else ())


def _reasons(ratings: DataFrame, settings: RatingSettings) -> Reasons:
    columns = settings.columns
    reasons = key_reasons(ratings, columns.query, columns.item, RATINGS_TABLE)
    require_column(ratings, columns.annotator, option("annotator"), RATINGS_TABLE)
    relevance = number(ratings, columns.relevance, option("relevance"), RATINGS_TABLE)
    given = named(columns.relevance).isNotNull()
    reasons += [
        ("null_annotator", named(columns.annotator).isNull()),
        ("relevance_not_a_number", given & relevance.isNull()),
        ("nan_relevance", F.isnan(relevance)),
        ("infinite_relevance", F.abs(relevance) == float("inf")),
    ]
    if columns.weight is not None:
        weight = number(ratings, columns.weight, option("weight"), RATINGS_TABLE)
        good = F.coalesce((weight >= 0) & (weight <= MAX_WEIGHT), F.lit(False))
        reasons.append(("bad_weight", ~good))
    return reasons


_PAIRS = "raters bigint, first double, second double, n bigint"
_AGREEMENT = "alpha double, reason string, n_items bigint, n_ratings bigint"


def item_pairs(items: DataFrame, settings: RatingSettings) -> DataFrame:
    """Count ordered pairs of ratings of one item: `raters`, `first`, `second`, `n`. Lazy; one small shuffle.

    `items` has the keys and `ratings` of each item. Pairs from tables of different items may be united with `union`.
    """
    kept = items.select(*columns_of([*settings.columns.query, settings.columns.item, RATINGS]))
    pairs = in_workers(kept, count_pairs, settings, schema=_PAIRS)
    return pairs.groupBy("raters", "first", "second").agg(F.sum("n").alias("n"))


def agreement_of(pairs: DataFrame) -> DataFrame:
    """Krippendorff's alpha of pairs from `item_pairs`, with the columns of `rating_agreement`. Lazy."""
    listed = F.collect_list(F.struct("raters", "first", "second", "n")).alias("pairs")
    return in_workers(pairs.agg(listed), measure_agreement, schema=_AGREEMENT)


@takes_tables
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
    """Make graded judgments from what users did.

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
        - `rule` (string): `best`, `sum`, `last`: graded events decided; `negative`: a negative event did;
          `impressions`: it was shown and nothing followed; `too_few_impressions`: it is unjudged,
        - `event` (string): the event that decided; null for a sum and for impressions,
        - `n_events`, `n_negative`, `n_impressions` (bigint): graded events, those of them with a grade below 0, and
          impressions, after deduplication,
        - `n_duplicates` (bigint): repeated events that were left out,
        - `first_ts`, `last_ts` (timestamp): of all of these events.

    Raises
    ------
    MissingColumnError, InputRefusedError
        The action raises for a bad row (a null, an unknown event) of the window under `on_invalid=fail`.

    Notes
    -----
    Spark cost: one shuffle, no action, no Python. Rows are aggregated before the shuffle, except with deduplication.
    Values that decay are rounded down to multiples of 2^-64, so a sum does not depend on the order of rows.

    Examples
    --------
    >>> from_events(events, rule="sum", as_of=datetime(2026, 2, 1), half_life=7)  # doctest: +SKIP
    """
    given = dict(locals())
    given["grades"] = GRADES if grades is None else grades
    return judged_events(events, settings_from(EventSettings, given))


@takes_tables
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
    """Make one judgment of each item from the ratings of several annotators.

    Parameters
    ----------
    ratings : DataFrame
        One row per query, item and annotator: a relevance, and maybe a weight.
    query, item, annotator, relevance, weight : str
        Column names, as in `RatingColumns`; `query` may be a sequence of names. Default: all ratings weigh 1.
    rule, tie, dispute_range, on_invalid
        As in `RatingSettings`; default: the mean.

    Returns
    -------
    DataFrame
        One row per (query, item), lazy and unsorted: the query columns, the item column, and

        - `relevance` (double): null where `rule` says why,
        - `rule` (string): `mean`, `median`, `majority`; or why there is no relevance: `no_ratings` (all are null),
          `no_weight` (all weigh 0), `tie`,
        - `decided_by` (array of string): annotators whose ratings decided: all, at the median, or of the majority,
        - `n_ratings` (bigint): ratings that weigh something,
        - `n_zero_weight` (bigint): ratings of weight 0, which count nowhere else,
        - `weight_sum`, `lowest`, `highest` (double),
        - `disputed` (boolean): the highest and lowest rating of a weight above 0 are `dispute_range` or more apart,
          or no grade has more than half of the weight,
        - `ratings` (array of struct<relevance, annotator, weight>): all ratings, the lowest first.

    Raises
    ------
    MissingColumnError, InputRefusedError
        The action raises for a bad row under `on_invalid=fail`, and for an annotator who rated an item twice.

    Notes
    -----
    Spark cost: one shuffle of all rows, no action, one pass through Python workers.
    """
    return judged_ratings(ratings, settings_from(RatingSettings, dict(locals())))


@takes_tables
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
    """Krippendorff's alpha with the ordinal difference.

    Parameters
    ----------
    ratings : DataFrame
        As for `from_ratings`. Ratings of weight 0 are left out; all others count alike.
    query, item, annotator, relevance, weight, on_invalid
        As for `from_ratings`.

    Returns
    -------
    DataFrame
        One row, lazy: `alpha` (double; null where `reason` says why: `no_pairs`, `single_grade`), `reason` (string),
        `n_items` (bigint; those with two ratings or more) and `n_ratings` (bigint; of these items).

    Raises
    ------
    MissingColumnError, InputRefusedError
        As `from_ratings`.

    Notes
    -----
    Spark cost: a shuffle of all rows, and two small ones of counts, the last into a single task; no action; two
    passes through Python workers. Ratings should be grades: each pair of them has a count.

    References
    ----------
    Hayes and Krippendorff, Communication Methods and Measures 1(1), 2007, doi:10.1080/19312450709336664.
    """
    settings = settings_from(RatingSettings, dict(locals()))
    return agreement_of(item_pairs(rated_items(ratings, settings), settings))
