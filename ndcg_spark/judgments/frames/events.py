"""Graded judgments from an event log.

All rows stay in Spark SQL. A (query, item) is aggregated into counts, latest times and, for sums, whole numbers: what
adds up without rounding, in any order, and what Spark keeps in a hash table of fixed width (texts and structs would
make it sort all rows). Values are computed from these after the shuffle.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ndcg_spark.core.bad_rows import Reasons, checked, key_reasons, without_bad_rows
from ndcg_spark.core.exact_sums import from_limbs, limbs
from ndcg_spark.core.expressions import columns_of, named, require_column
from ndcg_spark.core.timestamps import TimeColumn, time_column
from ndcg_spark.errors import option
from ndcg_spark.judgments.settings import EventColumns, EventSettings

TABLE = "events"
"""What the table is called for a person."""
_DAY = 86_400_000_000.0
_N_LIMBS = 3
_CODE, _MICROS, _COPIES, _BUCKET = "event code", "event micros", "event copies", "event bucket"
_VALUE, _ROWS, _ALL_COPIES, _FIRST, _LAST, _BEST = (
    "event value",
    "event rows",
    "event all copies",
    "event first",
    "event last",
    "event best",
)
"""Columns on the way; they have spaces, so that no key is likely to share the name."""


def judged_events(events: DataFrame, settings: EventSettings, *, parse_text: bool = False) -> DataFrame:
    """Judge items by events, as `from_events` describes it; with `parse_text`, timestamps may be text. Lazy."""
    time, reasons = _checks(events, settings, parse_text)
    keys = [*settings.columns.query, settings.columns.item]
    valid = without_bad_rows(_in_window(events, time, settings), reasons, keys, settings.on_invalid)
    rows = valid.select(
        *columns_of([*keys, *_dedup_columns(settings)]), _code(settings).alias(_CODE), time.micros.alias(_MICROS)
    )
    rows = _without_repeats(rows, keys, settings)
    if settings.rule == "sum":  # a column of its own, or Spark computes it once for each limb
        graded = named(_CODE) >= settings.n_negative
        rows = rows.withColumn(_VALUE, F.when(graded, _value(named(_CODE), named(_MICROS), settings)))
    state = rows.groupBy(*columns_of(keys)).agg(*_state(settings))
    return state.select(*columns_of(keys), *_judged(settings))


def checked_events(
    events: DataFrame, settings: EventSettings, *, parse_text: bool = False, originals: bool = False
) -> DataFrame:
    """Say of each event of the window whether it is bad, and why. Lazy; rows as `checked` gives them.

    The reasons: `malformed_line`, `null_query`, `null_item`, `null_event`, `unknown_event`, `null_ts`,
    `ts_not_a_timestamp`, `null_event_id`, `null_user`. With `parse_text`, timestamps may be text.
    """
    time, reasons = _checks(events, settings, parse_text)
    keys = [*settings.columns.query, settings.columns.item, settings.columns.event]
    return checked(_in_window(events, time, settings), reasons, keys, originals=events.columns if originals else ())


def _checks(events: DataFrame, settings: EventSettings, parse_text: bool) -> tuple[TimeColumn, Reasons]:
    columns = settings.columns
    reasons = key_reasons(events, columns.query, columns.item, TABLE)
    require_column(events, columns.event, option("event"), TABLE)
    time = time_column(events, columns.ts, option("ts"), TABLE, parse_text=parse_text)
    event = named(columns.event).cast("string")
    reasons.append(("null_event", event.isNull()))
    reasons.append(("unknown_event", ~event.isin(settings.impression, *settings.grades)))
    reasons.append(("null_ts", named(columns.ts).isNull()))
    if time.is_text:
        reasons.append(("ts_not_a_timestamp", time.micros.isNull()))
    for part in ("event_id", "user"):
        if getattr(columns, part) != getattr(EventColumns(), part):  # named, though perhaps not needed
            require_column(events, getattr(columns, part), option(part), TABLE)
    for column, part in _dedup_parts(settings):
        require_column(events, column, option(part), TABLE)
        reasons.append((f"null_{part}", named(column).isNull()))
    return time, reasons


def _dedup_parts(settings: EventSettings) -> list[tuple[str, str]]:
    found = {"event_id": (settings.columns.event_id, "event_id"), "time": (settings.columns.user, "user")}
    return [found[settings.dedup]] if settings.dedup in found else []


def _dedup_columns(settings: EventSettings) -> list[str]:
    keys = (*settings.columns.query, settings.columns.item)
    return [column for column, _ in _dedup_parts(settings) if column not in keys]


def _in_window(events: DataFrame, time: TimeColumn, settings: EventSettings) -> DataFrame:
    """Drop events outside the window. Those of which nobody knows when they were stay: they are bad rows."""
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
    """Let repeated events count once. Shuffled by (query, item) first, so that what follows needs no shuffle."""
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
    yield (F.count(F.when((code >= 0) & (code < negative), 1)) if negative else F.lit(0).cast("bigint")).alias(
        "n_negative"
    )
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
    """Whether the value follows from the latest time of each event."""
    return settings.rule == "last" or (settings.rule == "best" and settings.half_life is not None)


def _value(code: Column, micros: Column, settings: EventSettings) -> Column:
    grades = F.array(*[F.lit(grade) for _, grade in settings.ranked_grades])
    return _decayed(F.get(grades, code), micros, settings)


def _decayed(grade: Column, micros: Column, settings: EventSettings) -> Column:
    if settings.half_life is None:
        return grade
    days = (F.lit(settings.as_of_micros) - micros) / F.lit(_DAY)
    return grade * F.pow(F.lit(0.5), days / F.lit(float(settings.half_life)))


def _n_limbs(settings: EventSettings) -> int:
    """Number of limbs of a value of 0 and more, in units 1, 2^-32 and 2^-64; one does for whole grades."""
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
    """Value and name of what the events that are not negative come to."""
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
    """Whether a negative event sets the relevance, to what, and its name."""
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
