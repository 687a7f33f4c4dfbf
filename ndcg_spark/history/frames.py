"""Nights of metric tables: their series, flags, pairs with the night before, and periods. Lazy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import reduce
from operator import and_
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema

from ndcg_spark.comparison.frames import estimate_all_groups
from ndcg_spark.comparison.settings import ComparisonSettings
from ndcg_spark.comparison.tasks.pairing import PAIR
from ndcg_spark.core.adapters import accepts_tables
from ndcg_spark.core.columns import (
    describe_table,
    exact_col,
    exact_cols,
    has_column,
    number_column,
    raise_if,
    require_column,
)
from ndcg_spark.core.flag import create_settings
from ndcg_spark.core.labels import ASKED
from ndcg_spark.core.schemas import MALFORMED
from ndcg_spark.core.student import require_scipy
from ndcg_spark.core.workers import in_workers, raise_refusals
from ndcg_spark.errors import InputRefusedError
from ndcg_spark.evaluation.frames import summary
from ndcg_spark.evaluation.rules import RULES
from ndcg_spark.evaluation.tasks.partial_sums import GROUP_COUNTS
from ndcg_spark.evaluation.tasks.stored import CONFIG_HASH, CONVENTION
from ndcg_spark.history.plan import (
    BASELINE,
    JUDGED,
    MAX_NAMES,
    PAIR_KEYS,
    PER_QUERY_TABLE,
    build_absence_error,
    create_comparison_settings,
    require_query_columns,
)
from ndcg_spark.history.settings import (
    COMPARISON_TABLE,
    EPOCH,
    LIMITS,
    METRIC_TABLE,
    NIGHT,
    PERIODS,
    Direction,
    FlagSettings,
    Independence,
    Period,
    RollUpSettings,
)
from ndcg_spark.history.tasks import judging, period_sums


def select_series_rows(metrics: DataFrame, table: str = METRIC_TABLE) -> DataFrame:
    """Select a table of results with `night` in place of `run_date`, and keys in their stored types; lazy."""
    for name in ("run_date", *judging.SERIES):
        require_column(metrics, name, f"column of a {table}", table)
    k = number_column(metrics, "k", f"column of a {table}", table).cast("int")
    by = F.coalesce(F.col("segment_by").cast("string"), F.lit(""))  # csv and json write no empty text
    keys = {
        NIGHT: night_column(metrics, table),
        "run": F.coalesce(F.col("run").cast("string"), F.lit("")),
        "segment_by": by,
        "segment": segment_column(by),
        "metric": F.col("metric").cast("string"),
        "k": k,
    }
    others = [exact_col(name) for name in metrics.columns if name not in keys and name != "run_date"]
    return metrics.select(*[column.alias(name) for name, column in keys.items()], *others)


def segment_column(by: Column) -> Column:
    """Return the segment as text: empty for all queries, in formats without empty text, too."""
    return F.when(by == "", F.lit("")).otherwise(F.col("segment").cast("string"))


def require_present(table: DataFrame, what: str, column: Column, names: Sequence[str]) -> None:
    """Run an action: raise for the first of `names` that no row has, and list the existing ones."""
    if not names:
        return
    distinct = table.select(column.alias("name")).distinct()
    present = {row["name"] for row in distinct.where(F.col("name").isin(*names)).collect()}
    missing = [name for name in names if name not in present]
    if missing:
        rows = distinct.where("name <> ''").orderBy(F.desc("name")).take(MAX_NAMES + 1)
        raise build_absence_error(what, missing[0], [row["name"] for row in rows])


def night_column(frame: DataFrame, table: str) -> Column:
    """Return `run_date` as a date; the action raises for other text, and for a malformed line."""
    night = date_or_null(frame, table)
    text = F.coalesce(F.col("run_date").cast("string"), F.lit("null"))
    if MALFORMED in frame.columns:
        night = F.when(F.col(MALFORMED).isNull(), night)
        text = F.coalesce(F.col(MALFORMED), text)
    message = (f"the {table} has a row whose run_date is not a date: ", text, ".")
    return raise_if(night, night.isNull(), *message, kind="date")


def date_or_null(frame: DataFrame, table: str) -> Column:
    """Return `run_date` as a date, null for other text. A date column is unchanged, so that partitions are pruned."""
    kind = require_column(frame, "run_date", "the night", table)
    if isinstance(kind, T.StringType):
        return F.expr("try_cast(trim(run_date) as date)")
    if isinstance(kind, T.DateType):
        return F.col("run_date")
    raise InputRefusedError(f"column 'run_date' of the {table} is {kind.simpleString()}; cast it to date.")


def is_between(night: Column, start: date | None, end: date | None) -> Column:
    inside = F.lit(True)
    if start is not None:
        inside = inside & (night >= F.lit(start))
    if end is not None:
        inside = inside & (night <= F.lit(end))
    return inside


def days_since_epoch(night: Column) -> Column:
    return F.datediff(night, F.lit(EPOCH))


def read_config_hash(rows: DataFrame) -> Column:
    """Return the configuration as text; null if the table lacks it."""
    if "config_hash" in rows.columns:
        return F.col("config_hash").cast("string")
    return F.lit(None).cast("string")


def select_nights(rows: DataFrame, columns: Sequence[str], settings: RollUpSettings) -> DataFrame:
    """Select the nights that the periods of settings need, from `select_series_rows`. Lazy.

    Adds `convention`, `config_hash` and `rules`, null if the table lacks them, and `as_of`, the last known night.
    """
    provenance = [
        (F.col(name) if name in rows.columns else F.lit(None)).cast("string").alias(name)
        for name in (CONVENTION, CONFIG_HASH)
    ]
    nights = rows.select(*exact_cols([NIGHT, *columns]), *provenance, summary.read_rules(rows).alias(RULES))
    if settings.as_of is None:
        nights = nights.crossJoin(F.broadcast(rows.agg(F.max(NIGHT).alias("as_of"))))
    else:
        nights = nights.withColumn("as_of", F.lit(settings.as_of)).where(F.col(NIGHT) <= F.col("as_of"))
    return nights.where(is_between(F.col(NIGHT), *settings.read))


_NIGHT_RUN, _HASH, _DAY, _SIDE, _OWN, _VOICE = "__run", "__hash", "__day", "__side", "__own", "__voice"
"""Columns beside those of the table; users may have any other name."""
_KEYS = {name: f"__of_{name}" for name in (PAIR, "segment_by", "segment", "metric", "k")}
"""Columns by which flags are joined with the pairs of their nights, and their names on the side of the pairs."""


def add_pairs(flags: DataFrame, per_query: DataFrame, settings: ComparisonSettings, name: str) -> DataFrame:
    """Add the differences of queries between two nights, `later` and `earlier`, in place of these; lazy.

    `flags` has keys of series and `PAIR_KEYS`. The struct `name` of `PAIRED_COLUMNS` is null if a night, metric or
    segment column is missing.
    """
    flags = flags.withColumn(PAIR, F.xxhash64(*PAIR_KEYS).cast("string"))
    pairs = flags.where(F.col("earlier").isNotNull()).select(PAIR, *PAIR_KEYS).distinct()
    pair_rows = _select_pair_rows(per_query, pairs, settings)
    differences = _split_pair_keys(raise_refusals(estimate_all_groups([(pair_rows, None)], settings)))
    on = [F.col(name).eqNullSafe(F.col(key)) for name, key in _KEYS.items()]
    joined = flags.join(differences.withColumnRenamed("paired", name), reduce(and_, on), "left")
    return joined.drop(*_KEYS.values(), PAIR)


def _split_pair_keys(differences: DataFrame) -> DataFrame:
    """Separate the pair from the segments of a comparison, in which it is the first column."""
    is_overall = F.col("segment_by") == PAIR
    values = F.from_json("segment", "array<string>")
    without = F.when(F.size(values) > 2, F.regexp_replace("segment", r'^\["-?\d+",', "[")).otherwise(
        F.get(values, F.lit(1))
    )
    keys = {
        PAIR: F.when(is_overall, F.col("segment")).otherwise(F.get(values, F.lit(0))),
        "segment_by": F.when(is_overall, F.lit("")).otherwise(F.substring("segment_by", len(PAIR) + 2, 2**31 - 1)),
        "segment": F.when(is_overall, F.lit("")).otherwise(without),
        "metric": F.col("metric"),
        "k": F.col("k"),
    }
    columns = [column.alias(_KEYS[name]) for name, column in keys.items()]
    return differences.where(F.col("segment_by") != "").select(
        *columns, F.struct(*judging.PAIRED_COLUMNS).alias("paired")
    )


def _create_comparison_settings(rows: DataFrame, per_query: DataFrame, query: Sequence[str]) -> ComparisonSettings:
    """Run an action: create settings for the metrics of both tables; the pair is in the query and segments."""
    info = describe_table(per_query, PER_QUERY_TABLE)
    require_query_columns(info, query)
    series = [row.asDict() for row in rows.select("segment_by", "metric", "k").distinct().collect()]
    settings = create_comparison_settings(series, info, query)
    sets = ((PAIR,), *((PAIR, *names) for names in settings.segment_sets))
    return replace(settings, query=(PAIR, *query), segment_sets=sets)


def _select_pair_rows(per_query: DataFrame, pairs: DataFrame, settings: ComparisonSettings) -> DataFrame:
    """Select the rows of both nights of each pair, with the pair as a column and the night as the run."""
    run = F.coalesce(exact_col("run").cast("string"), F.lit("")) if has_column(per_query, "run") else F.lit("")
    rows = per_query.withColumns(
        {_NIGHT_RUN: run, _HASH: read_config_hash(per_query), _DAY: date_or_null(per_query, PER_QUERY_TABLE)}
    )
    nights = [("later", JUDGED), ("earlier", BASELINE)]
    sides = F.explode(F.array(*[F.struct(F.col(day).alias("day"), F.lit(name).alias("as")) for day, name in nights]))
    by = [F.col("config_hash").alias("__by"), F.col(RULES).alias("__rules")]
    of = pairs.select(PAIR, F.col("run").alias("__of"), *by, sides.alias(_SIDE))
    on = (F.col(_NIGHT_RUN) == F.col("__of")) & (F.col(_DAY) == F.col(_SIDE)["day"])
    if has_column(per_query, RULES):  # rules of means are longer: they say whether queries have weights
        on = on & F.coalesce(F.startswith("__rules", exact_col(RULES)), F.lit(True))
    elif has_column(per_query, "config_hash"):
        on = on & F.col(_HASH).eqNullSafe(F.col("__by"))
    pair_rows = _unify_weights(
        rows.join(F.broadcast(of), on).drop("__rules").withColumn("run", F.col(_SIDE)["as"]), settings
    )
    if not has_column(pair_rows, "status"):
        return pair_rows
    # A query that was missing on one night is a pair, too: it fell to 0, or rose from it.
    return pair_rows.withColumn("status", F.when(F.col("status") != "missing", F.col("status")))


def _unify_weights(rows: DataFrame, settings: ComparisonSettings) -> DataFrame:
    """Use the weight and segments of the later night that has a query, as they may differ between nights."""
    columns = {name: exact_col(name) for name in settings.segment_columns if name != PAIR}
    if settings.weight is not None:
        columns[settings.weight] = F.coalesce(exact_col(settings.weight), F.lit(1.0))  # null in runs without weights
    if not columns:
        return rows
    missing = F.coalesce(exact_col("status") == "missing", F.lit(False)) if "status" in rows.columns else F.lit(False)
    voice = F.when(missing, 0).otherwise(2) + F.when(F.col("run") == JUDGED, 1).otherwise(0)
    rows = rows.withColumns(
        {_OWN: F.struct(*[column.alias(name) for name, column in columns.items()]), _VOICE: voice}
    )
    query = Window.partitionBy(*exact_cols(settings.query))
    is_later = F.col(_VOICE) == F.max(_VOICE).over(query)  # is unchanged: differences between cutoffs are refused
    chosen = F.when(is_later, F.col(_OWN)).otherwise(F.max_by(_OWN, _VOICE).over(query))
    rows = rows.withColumn(_OWN, chosen)
    return rows.withColumns({name: F.col(_OWN)[name] for name in columns})


_OF_RUN = ("run", "metric", "k")
"""Keys that the series of a run share with its series over all queries."""


def judge_nights(
    metrics: DataFrame,
    settings: FlagSettings,
    *,
    per_query: DataFrame | None = None,
    query: str | Sequence[str] = "query_id",
    keep: Callable[[DataFrame], Any] = lambda frame: None,
) -> DataFrame:
    """Judge nights by the nights before them, as described in `flag_changes`; `keep` may cache rows read twice."""
    rows = select_series_rows(metrics)
    selected = rows.where(is_between(F.col(NIGHT), judging.find_first_nights(settings)[0], settings.end))
    series = _collect_series(rows, settings)
    if per_query is None:
        return in_workers(series, judging.flag_nights, settings, schema=_format_ddl(judging.FLAG_COLUMNS))
    require_scipy()
    columns = judging.TO_PAIR_COLUMNS
    judged = in_workers(series, judging.flag_nights, settings, columns, schema=_format_ddl(columns))
    comparison = _create_comparison_settings(selected, per_query, [query] if isinstance(query, str) else query)
    nights = judged.withColumns({"later": F.col("night"), "earlier": F.col("before")})
    paired = add_pairs(nights, per_query, comparison, "paired").drop(*judging.PAIR_OF_FLAG)
    schema = {**columns, "paired": f"struct<{_format_ddl(judging.PAIRED_COLUMNS)}>", **judging.PAIR_OF_FLAG}
    requested = in_workers(paired, judging.request_pairs, schema=_format_ddl(schema))
    keep(requested)
    again = add_pairs(requested, per_query, comparison, "of_flag")
    of_flag = F.struct(*judging.PAIR_OF_FLAG, F.col("of_flag").alias("paired"))
    is_night = F.col("later").isNull()
    others = [name for name in (*columns, "paired") if name not in (*judging.SERIES, "night")]
    grouped = again.groupBy("night", *judging.SERIES).agg(
        F.first(F.when(is_night, F.struct(*others)), ignorenulls=True).alias("of_night"),
        F.collect_list(F.when(~is_night, of_flag)).alias("of_flags"),
    )
    nights = grouped.select("night", *judging.SERIES, "of_night.*", "of_flags")
    return in_workers(nights, judging.flag_pairs, settings, schema=_format_ddl(judging.FLAG_COLUMNS))


def find_missing_series(metrics: DataFrame, night: date) -> DataFrame:
    """Find the series that are missing on a night: `MISSING_COLUMNS`; lazy."""
    settings = FlagSettings(start=night, end=night, lookback=judging.LATEST_DAYS)
    series = _collect_series(select_series_rows(metrics), settings)
    columns = judging.MISSING_COLUMNS
    judged = in_workers(series, judging.flag_nights, settings, columns, schema=_format_ddl(columns))
    return judged.where(F.col("status") == judging.MISSING)


def _collect_series(rows: DataFrame, settings: FlagSettings) -> DataFrame:
    """Collect the nights of each series, of its run and of the table, from which it may be missing; lazy."""
    day, by_hash = days_since_epoch(F.col(NIGHT)).alias("day"), read_config_hash(rows).alias("config_hash")
    numbers = ("value", "std_error", "n_queries", "n_missing")
    columns = [_read_number(rows, name) for name in numbers]
    night = F.struct(day, by_hash, summary.read_rules(rows).alias(RULES), *columns)
    first, first_of_runs = judging.find_first_nights(settings)
    needed, is_latest = (is_between(F.col(NIGHT), night, settings.end) for night in (first, first_of_runs))
    series = rows.where(needed).groupBy(*judging.SERIES)
    of_runs = rows.where(needed).withColumnsRenamed({name: f"__{name}" for name in _OF_RUN})
    run_night = F.struct(day, by_hash, summary.read_rules(rows).alias(RULES), "segment_by")
    run_count = F.struct(day, summary.read_rules(rows).alias(RULES), *columns[2:])
    runs = of_runs.groupBy(*[f"__{name}" for name in _OF_RUN]).agg(
        F.collect_set(F.when(is_latest, run_night)).alias("run_nights"),
        F.collect_list(F.when(F.col("segment_by") == "", run_count)).alias("run_counts"),
    )
    table = rows.where(is_latest).agg(F.collect_set(day).alias("__table"))
    on = reduce(and_, [F.col(name).eqNullSafe(F.col(f"__{name}")) for name in _OF_RUN])
    joined = series.agg(F.collect_list(night).alias("nights")).join(F.broadcast(runs), on, "left")
    of_table = F.when(F.col("segment_by") == "", F.col("__table")).alias("table_nights")
    return joined.crossJoin(F.broadcast(table)).select(
        *judging.SERIES, "nights", "run_nights", "run_counts", of_table
    )


def _format_ddl(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


def _read_number(rows: DataFrame, name: str) -> Column:
    if name != "value" and name not in rows.columns:
        return F.lit(None).cast("double").alias(name)
    return number_column(rows, name, "column of a metric table", METRIC_TABLE).alias(name)


PERIODS_OF_MEANS: T.StructType = from_arrow_schema(period_sums.MEANS_SCHEMA)
PERIODS_OF_PAIRS: T.StructType = from_arrow_schema(period_sums.PAIRS_SCHEMA)


def roll_up_table(metrics: DataFrame, settings: RollUpSettings) -> DataFrame:
    metrics = metrics.drop(MALFORMED)  # tables of text are refused: they have no states
    if is_comparison(metrics):
        return _roll_up_comparisons(metrics, settings)
    day_quantiles = period_sums.find_day_quantiles(settings)
    rows = select_series_rows(summary.add_missing_counts(metrics))
    nights = select_nights(rows, [*judging.SERIES, ASKED, *GROUP_COUNTS, "state"], settings)
    by_series = _sort_by(nights, period_sums.SERIES_KEY, judging.SERIES)
    return in_workers(by_series, period_sums.roll_up_means, settings, day_quantiles, schema=PERIODS_OF_MEANS)


def _sort_by(rows: DataFrame, key: str, columns: Sequence[str]) -> DataFrame:
    """Put rows with the same `columns` next to each other in one partition, and add their hash as `key`. Lazy."""
    keyed = rows.withColumn(key, F.xxhash64(*exact_cols(columns)))
    return keyed.repartition(key).sortWithinPartitions(key)


def is_comparison(table: DataFrame) -> bool:
    return has_column(table, "baseline")


def _roll_up_comparisons(comparisons: DataFrame, settings: RollUpSettings) -> DataFrame:
    """Add up the nights of a comparison table. Lazy; replicates are read only if they may be needed."""
    require_scipy()
    for name in ("baseline", *period_sums.STORED):
        require_column(comparisons, name, f"column of a {COMPARISON_TABLE}", COMPARISON_TABLE)
    columns = [
        *period_sums.SERIES_OF_PAIRS,
        *period_sums.STORED,
        *(name for name in (ASKED,) if name in comparisons.columns),
    ]
    if settings.independence in (None, "query") and "replicates" in comparisons.columns:
        columns.append("replicates")
    rows = select_nights(select_series_rows(comparisons, COMPARISON_TABLE), columns, settings)
    by_series = rows.repartition(*exact_cols(period_sums.SERIES_OF_PAIRS)).sortWithinPartitions(
        *exact_cols([*period_sums.SERIES_OF_PAIRS, NIGHT])
    )
    rolled = in_workers(by_series, period_sums.roll_up_nights, settings, schema=PERIODS_OF_PAIRS)
    ordered = _sort_by(rolled, period_sums.FAMILY, [*period_sums.PERIOD, "baseline"])
    return in_workers(ordered, period_sums.decide_families, settings, schema=PERIODS_OF_PAIRS)


@accepts_tables
def roll_up(
    metrics: DataFrame,
    *,
    periods: Period | Sequence[Period] = PERIODS,
    start: date | None = None,
    end: date | None = None,
    as_of: date | None = None,
    independence: Independence | None = None,
    confidence: float = 0.95,
    margin: float = 0.0,
    across_rules: bool = False,
) -> DataFrame:
    """Add the nights of a metric table or comparison table up to ISO weeks, months and rolling seven days.

    Parameters
    ----------
    metrics : DataFrame
        Rows of one data set with their `state`: of a metric table, or, with a column `baseline`, of a comparison
        table.
    periods : str or sequence of str
        `week`, `month`, `rolling_7`; default: all three.
    start, end, as_of, independence, confidence, margin, across_rules
        As in `RollUpSettings`; default: all nights.

    Returns
    -------
    DataFrame
        One row per period, run, segment, metric and k, lazy and unsorted:

        - `period` (`week`, `month`, `rolling_7`), `period_start`, `period_end` (date; both in the period),
        - the keys, counts, means and `state` of a summary (see `summarize`), the same bits as of one evaluation of
          all queries of these days,
        - `n_days` (bigint): days of the period that have a row,
        - `missing_days` (array of date): days up to the last night of the table that have none,
        - `convention`, `config_hash` (string) of all these nights; null if the table lacks them or nights differ,
        - `rules` (string) of all these nights; null if those of one are not known,
        - `independence` (string): what the interval assumes.

        Of comparisons: the columns of `compare` without `replicates`; `docs/history.md` says which are null under
        which `independence`. P-values are adjusted within each period and baseline.

    Raises
    ------
    InvalidParameterError
        For `independence=query` of a metric table.
    MissingColumnError, MissingPackageError
        The latter for comparisons or `independence=day` where there is no SciPy. The action raises for nights of
        different `rules` in one period, and names what differs; and for a night that a period has twice.

    Notes
    -----
    Queries weigh, not days. Spark cost: one shuffle of the rows and their states, no action, one pass
    through Python workers; without `as_of` the dates are read once more. Comparisons: two shuffles, the first of the
    stored replicates (once per night), and two passes.
    """
    arguments = dict(locals())
    return roll_up_table(arguments.pop("metrics"), create_settings(RollUpSettings, arguments))


@accepts_tables
def flag_changes(
    metrics: DataFrame,
    *,
    per_query: DataFrame | None = None,
    query: str | Sequence[str] = "query_id",
    start: date | None = None,
    end: date | None = None,
    lookback: int | None = None,
    limits: Sequence[tuple[int, float]] = LIMITS,
    fewest_any_day: int = 28,
    direction: Direction = "worse",
) -> DataFrame:
    """Flag nights whose value is far from what was usual on earlier nights of the same weekday.

    Parameters
    ----------
    metrics : DataFrame
        Rows of a metric table of one data set: `run_date`, `run`, `segment_by`, `segment`, `metric`, `k`, `value`,
        and `std_error`, `rules` and `config_hash`, if they are there. Nights of other `rules` are no history; where
        these are not known, nights of another `config_hash`.
    per_query : DataFrame or None
        Metrics of every query of the same data set, with `run_date`, as `--per-query-output` of `mean-ndcg` stores
        them. A night that is held against the night before it is then compared query by query, where the table has
        both nights of the run, by the same `rules`.
    query : str or sequence of str
        Columns of `per_query` that identify a query.
    start, end, lookback, limits, fewest_any_day, direction
        As in `FlagSettings`; default: all nights are judged, each by the nights before it.

    Returns
    -------
    DataFrame
        One row per night that is judged and series, lazy and unsorted: `night`, the keys, `config_hash`, `value`,
        `std_error`, and

        - `status` (string): `low`, `high`, `missing`, `few_queries`: flagged; `usual`; `other_direction`: beyond the
          limit on the side that `direction` does not ask for; `short_history`: too few earlier nights, and no clear
          difference from the night before; `recovered`: again as it was before a flagged night, and `ongoing`: still
          away from it (both only if nights are compared with the one before); `no_value`,
        - `median`, `spread` (double): of the earlier nights; spread is 1.482602218505602 times their median absolute
          deviation,
        - `z` (double): (value - median) / max(spread, std_error); where that is 0, 0 without a change, else null,
        - `limit` (double): the value is flagged if z is farther from 0,
        - `n_nights` (bigint), `weekday` (string): how many nights, and of which day: `Monday`, ..., or `any`;
          `before`: too few, so that the night was held against the one before it (its value is `median`, the standard
          error of the difference is `spread`); `before_paired`: likewise, by the mean difference of the queries that
          both nights have and its standard error; `before_flag`: an ongoing change against the night before its flag,
        - `reference_night` (date): the night of `median`, if that is the value of a single night, else null,
        - `change_night` (date): of a status `ongoing` or `recovered`: the night of the change, else null,
        - `rule` (string): all that in words.

    Raises
    ------
    MissingColumnError, InputRefusedError
        The action raises for a night that a series has twice, and for a query that a night of `per_query` has twice.
    MissingPackageError
        With `per_query` and without SciPy; workers need it, too.

    Notes
    -----
    With at least 8 earlier nights of the weekday these are the history; else all earlier nights are, if there are 28;
    else the night is held against the one before it at level 0.001: as of independent nights, or, by `per_query`, by
    a paired t-test, if they share at least half of the queries of each. A query that one of the two nights lacks is
    left out then, and counted in `rule`. Where weight or segments of a query differ, those of the later night count.
    A series is `missing` on a night that the table has: its run has no row, or it has no value there, although it had
    one on the latest seven nights (within 31 days) or on some of them. A segment is missing only if its run was
    computed by the same `config_hash` on these nights, or by the same `rules` with other segments of the same
    columns, and if their `n_queries` make a night without any query improbable (at most 1 %). `median` is then the
    last value. Segments of a run that has no row are not listed. A run has `few_queries` if its value is not flagged,
    but at most half as many queries have a list as on the night before and as a week before; after a night that had
    as many as a week before it, a week before is enough.
    Spark cost: one shuffle of rows per night and two small ones, no action, three scans of the table, one pass
    through Python workers. A worker holds the nights of the series in its batch. With `per_query` also an action that
    lists segment sets, metrics and cutoffs, and shuffles of the queries of the nights that are paired, with the night
    before and because of earlier flags: one each, two where they have weights or segments. The first of these is done
    twice, as nothing is cached here.
    """
    settings = create_settings(FlagSettings, dict(locals()))
    return judge_nights(metrics, settings, per_query=per_query, query=query)
