"""Logs of impressions: bad rows and weights, judgments, propensities and estimates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema

from ndcg_spark.clicks import tasks
from ndcg_spark.clicks.settings import (
    MAX_CLICK,
    MAX_CLIP,
    MAX_POSITION,
    ImpressionColumns,
    Method,
    PropensityOf,
    PropensitySettings,
    WeightSettings,
)
from ndcg_spark.core.adapters import accepts_tables
from ndcg_spark.core.bad_rows import Reasons, check_each_row, drop_bad_rows, list_key_reasons
from ndcg_spark.core.columns import (
    exact_col,
    exact_cols,
    from_limbs,
    has_column,
    limbs,
    mark_text_table,
    number_column,
    require_key_column,
)
from ndcg_spark.core.flag import OnInvalid, create_settings
from ndcg_spark.core.student import require_scipy
from ndcg_spark.core.workers import in_workers
from ndcg_spark.errors import option
from ndcg_spark.evaluation.settings import parse_segment_sets

TABLE = "impressions"
"""Name of the table in messages."""
N_LIMBS, HIGHEST_LIMB = 4, 1
"""Limbs from 2^32 down to 2^-64, which hold sums up to `MAX_CLIP` and `MAX_CLICK`, and all bits of a weight."""
_POSITION, _GIVEN, _TIMES = "given position", "given propensity", "times given"
CLICK, WEIGHT, WEIGHTED, SQUARED = "click value", "weight value", "weighted click", "squared weight"
_CLIPPED = "was clipped"
_SHOWN_AT, _CLICKED, _TIMES_SHOWN, _CLICKS = "shown at", "was clicked", "times shown", "times clicked"
_N, _QUERY = "number of impressions", "the query"
"""Intermediate columns; their names have spaces, so that key columns are unlikely to have the same names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Impressions:
    """A log with the reasons for bad rows, and columns for the valid rows: doubles, null if not requested.

    `weight` is the inverse propensity before clipping. `columns` are the columns of the log.
    """

    frame: DataFrame
    reasons: Reasons
    click: Column
    position: Column = field(default_factory=lambda: F.lit(None))
    weight: Column = field(default_factory=lambda: F.lit(None))
    columns: list[str]


def read_counted_impressions(impressions: DataFrame, settings: PropensitySettings) -> Impressions:
    """Read impressions to fit propensities from: clicks are 0 or 1. Reads the schema, runs no action."""
    columns = settings.columns
    reasons = list_key_reasons(impressions, columns.query, columns.item, TABLE)
    position, position_reasons = _read_position(impressions, columns)
    click, click_reasons = _read_click(impressions, columns)
    reasons += [*position_reasons, *click_reasons, ("click_not_0_or_1", (click != 0) & (click != 1))]
    names = impressions.columns
    return Impressions(frame=impressions, reasons=reasons, click=click, position=position, columns=names)


def read_weighted_impressions(
    impressions: DataFrame, settings: WeightSettings, propensities: DataFrame | None
) -> Impressions:
    """Read impressions and their inverse propensities. Reads schemas, runs no action.

    `propensities` has `position` and `propensity`, and is broadcast.
    """
    settings.check_source(table=propensities is not None)
    columns = settings.columns
    reasons = list_key_reasons(impressions, columns.query, columns.item, TABLE)
    for name in (name for names in settings.segment_sets for name in names):
        require_key_column(impressions, name, option("segments"), TABLE)
    if settings.run is not None:
        reasons.append(("null_run", require_key_column(impressions, settings.run, option("run"), TABLE).isNull()))
    frame = impressions
    propensity_reasons: Reasons = []
    if columns.propensity is not None:
        propensity = number_column(impressions, columns.propensity, option("propensity"), TABLE)
        propensity_reasons = [
            ("null_propensity", exact_col(columns.propensity).isNull()),
            ("propensity_not_a_number", propensity.isNull()),
            *_check_range(propensity),
        ]
    else:
        position, position_reasons = _read_position(impressions, columns)
        reasons += position_reasons
        if propensities is None:
            power, valid_position = float(settings.power or 0), F.when(position >= 1, position)
            propensity = F.lit(1.0) / (valid_position if power == 1 else F.pow(valid_position, F.lit(power)))
        else:
            frame, propensity = _join_propensities(impressions, position, propensities), exact_col(_GIVEN)
            propensity_reasons = [
                ("position_without_propensity", propensity.isNull()),
                ("position_with_two_propensities", exact_col(_TIMES) > 1),
                *_check_range(propensity),
            ]
    if settings.clip is None:
        propensity_reasons.append(("propensity_too_small", propensity < F.lit(1 / MAX_CLIP)))
    click, click_reasons = _read_click(impressions, columns)
    reasons += [*click_reasons, *propensity_reasons]
    weight = F.lit(1.0) / F.when(propensity > 0, propensity)  # a division by 0 would raise even in a bad row
    return Impressions(frame=frame, reasons=reasons, click=click, weight=weight, columns=impressions.columns)


def _check_range(propensity: Column) -> Reasons:
    return [
        ("nan_propensity", F.isnan(propensity)),
        ("propensity_not_above_0", propensity <= 0),
        ("propensity_above_1", propensity > 1),
    ]


def check_impressions(impressions: Impressions, columns: ImpressionColumns, *, originals: bool) -> DataFrame:
    """Name the reason why each impression is bad; null for valid impressions. Lazy; the rows of `check_each_row`."""
    keys = [*columns.query, columns.item]
    return check_each_row(
        impressions.frame, impressions.reasons, keys, originals=impressions.columns if originals else ()
    )


def _read_position(frame: DataFrame, columns: ImpressionColumns) -> tuple[Column, Reasons]:
    position = number_column(frame, columns.position, option("position"), TABLE)
    reasons: Reasons = [
        ("null_position", exact_col(columns.position).isNull() | F.isnan(position)),
        ("position_not_a_number", position.isNull()),
        ("position_below_1", position < 1),
        ("position_too_large", position > MAX_POSITION),
        ("position_not_whole", position % 1 != 0),
    ]
    return position, reasons


def _read_click(frame: DataFrame, columns: ImpressionColumns) -> tuple[Column, Reasons]:
    click = number_column(frame, columns.click, option("click"), TABLE)
    reasons: Reasons = [
        ("null_click", exact_col(columns.click).isNull()),
        ("click_not_a_number", click.isNull()),
        ("nan_click", F.isnan(click)),
        ("infinite_click", F.abs(click) == float("inf")),
        ("click_too_large", F.abs(click) > MAX_CLICK),
    ]
    return click, reasons


def _join_propensities(impressions: DataFrame, position: Column, propensities: DataFrame) -> DataFrame:
    """Join propensities by position. A bad propensity makes all rows of its position bad."""
    position_read, propensity = (
        number_column(mark_text_table(propensities), column, "propensities", "table of propensities")
        for column in ("position", "propensity")
    )
    listed = propensities.select(position_read.alias(_POSITION), propensity.alias(_GIVEN)).groupBy(
        exact_col(_POSITION)
    )
    by_position = listed.agg(F.max(exact_col(_GIVEN)).alias(_GIVEN), F.count(F.lit(1)).alias(_TIMES))
    return impressions.join(F.broadcast(by_position), position == exact_col(_POSITION), "left").drop(_POSITION)


def judge_impressions(
    impressions: DataFrame, settings: WeightSettings, propensities: DataFrame | None = None
) -> DataFrame:
    """Implement `judgments_from_impressions`. Lazy."""
    read = read_weighted_impressions(impressions, settings, propensities)
    keys = [*settings.columns.query, settings.columns.item]
    aggregates = [F.count(F.lit(1)).alias("n_impressions"), F.sum(_CLIPPED).alias("n_clipped")]
    aggregates.append(F.max(exact_col(WEIGHT)).alias("largest_weight"))
    for column, name in ((WEIGHTED, "weighted"), (CLICK, "clicks"), (WEIGHT, "weights")):
        aggregates += sum_limbs(exact_col(column), name)
    state = select_weighted_rows(read, settings, keys).groupBy(*exact_cols(keys)).agg(*aggregates)
    n = F.col("n_impressions")
    return state.select(
        *exact_cols(keys),
        (join_limbs("weighted") / n).alias("relevance"),
        F.lit("ips").alias("rule"),
        (join_limbs("clicks") / n).alias("uncorrected"),
        n,
        F.col("n_clipped"),
        join_limbs("weights").alias("weight_sum"),
        F.col("largest_weight"),
    )


def select_weighted_rows(impressions: Impressions, settings: WeightSettings, kept_columns: list[str]) -> DataFrame:
    """Select valid impressions with click, weight, their product, and whether the weight was clipped. Lazy."""
    keys = [*settings.columns.query, settings.columns.item]
    valid = drop_bad_rows(impressions.frame, impressions.reasons, keys, settings.on_invalid)
    weight, clipped = impressions.weight, F.lit(0)
    if settings.clip is not None:
        limit = F.lit(float(settings.clip))
        weight, clipped = F.least(impressions.weight, limit), (impressions.weight > limit).cast("int")
    rows = valid.select(
        *exact_cols(kept_columns),
        impressions.click.alias(CLICK),
        weight.alias(WEIGHT),
        clipped.cast("bigint").alias(_CLIPPED),
    )
    return rows.withColumn(WEIGHTED, exact_col(WEIGHT) * exact_col(CLICK))


def sum_limbs(value: Column, name: str) -> list[Column]:
    """Aggregate the limbs of a value, for `join_limbs`."""
    parts = limbs(value, N_LIMBS, highest=HIGHEST_LIMB)
    return [F.sum(limb).alias(name_limb(name, number)) for number, limb in enumerate(parts)]


def name_limb(name: str, number: int) -> str:
    return f"{name} limb {number}"


def join_limbs(name: str) -> Column:
    """Join the limbs that `sum_limbs` aggregated to their sum."""
    return from_limbs([exact_col(name_limb(name, number)) for number in range(N_LIMBS)], highest=HIGHEST_LIMB)


FIT: T.StructType = from_arrow_schema(tasks.FIT_SCHEMA)


def fit_impressions(impressions: DataFrame, settings: PropensitySettings) -> DataFrame:
    """Implement `fit_propensities`. Lazy."""
    patterns = count_patterns(impressions, settings)
    return in_workers(patterns.repartition(1), tasks.fit_patterns, settings, schema=FIT)


def list_propensities(fitted: DataFrame) -> DataFrame:
    """List the propensities of a fit, one row per position, with its method. Lazy."""
    return fitted.select(F.explode("positions").alias("fit"), "method").select("fit.*", "method")


def count_patterns(impressions: DataFrame, settings: PropensitySettings) -> DataFrame:
    """Count the (query, item) with the same impressions and clicks at the same positions. Lazy.

    Columns are `cells`, `pairs` and `hash`, see `clicks/tasks.py`. `method=randomized` needs only counts by position,
    so all (query, item) are one pattern.
    """
    read = read_counted_impressions(impressions, settings)
    keys = [*settings.columns.query, settings.columns.item]
    valid = drop_bad_rows(read.frame, read.reasons, keys, settings.on_invalid)
    if settings.method == "randomized":
        keys = []
    rows = valid.select(
        *exact_cols(keys), read.position.cast("bigint").alias(_SHOWN_AT), read.click.cast("bigint").alias(_CLICKED)
    )
    counts = rows.groupBy(*exact_cols([*keys, _SHOWN_AT])).agg(
        F.count(F.lit(1)).alias(_TIMES_SHOWN), F.sum(exact_col(_CLICKED)).alias(_CLICKS)
    )
    counts_at_position = F.struct(
        exact_col(_SHOWN_AT).alias("position"),
        exact_col(_TIMES_SHOWN).alias("shown"),
        exact_col(_CLICKS).alias("clicked"),
    )
    pairs = counts.groupBy(*exact_cols(keys)).agg(
        F.sort_array(F.collect_list(counts_at_position)).alias(tasks.PATTERN)
    )
    patterns = pairs.groupBy(tasks.PATTERN).agg(F.count(F.lit(1)).alias(tasks.PAIRS))
    return patterns.withColumn(tasks.HASH, F.xxhash64(tasks.PATTERN))


_KEYS = [T.StructField(name, T.StringType()) for name in tasks.GROUP_KEYS]
_COUNTS = [T.StructField(name, T.LongType()) for name in ("n_queries", "n_impressions")]
_STATE = T.StructField("state", T.ArrayType(T.LongType()))
_PARTIAL = T.StructType([*_KEYS, *_COUNTS, _STATE])
_VALUES = [T.StructField(name, T.DoubleType()) for name in tasks.ESTIMATES]
_KIND = [T.StructField(name, T.StringType()) for name in (tasks.PROPENSITY_OF, tasks.REASON)]
_ESTIMATES = T.StructType([*_KEYS, *_COUNTS, *_VALUES, *_KIND, _STATE])
_SUMS = {"a": WEIGHTED, "b": WEIGHT, "ww": SQUARED}


def estimate_impressions(
    impressions: DataFrame, settings: WeightSettings, propensities: DataFrame | None = None
) -> DataFrame:
    """Implement `inverse_propensity_estimates`. Lazy."""
    require_scipy()
    read = read_weighted_impressions(impressions, settings, propensities)
    segments = list(dict.fromkeys(name for columns in settings.segment_sets for name in columns))
    runs = [settings.run] if settings.run is not None else []
    keys = list(dict.fromkeys([*runs, *segments, *settings.columns.query]))
    rows = select_weighted_rows(read, settings, keys).withColumn(SQUARED, exact_col(WEIGHT) * exact_col(WEIGHT))
    limbs_of_sums = [limb for name, column in _SUMS.items() for limb in sum_limbs(exact_col(column), name)]
    queries = rows.groupBy(*exact_cols(keys)).agg(F.count(F.lit(1)).alias(_N), *limbs_of_sums)
    sums = [join_limbs(name).alias(name) for name in _SUMS]
    grouped = (
        _split_by_segment(queries, settings)
        if segments
        else queries.select(*_select_overall(settings), *_select_limbs())
    )
    values = grouped.select(*tasks.GROUP_KEYS, exact_col(_N).alias("n_impressions"), *sums)
    partial = in_workers(values, tasks.add_up, schema=_PARTIAL)
    return _merge_groups(partial.withColumn(tasks.PROPENSITY_OF, F.lit(settings.propensity_of)), settings.confidence)


def _merge_groups(partial: DataFrame, confidence: float) -> DataFrame:
    aggregates = [F.sum(field.name).alias(field.name) for field in _COUNTS]
    aggregates.append(F.collect_list("state").alias("states"))
    kind = F.when(F.min(tasks.PROPENSITY_OF) == F.max(tasks.PROPENSITY_OF), F.min(tasks.PROPENSITY_OF)).otherwise(
        tasks.MIXED
    )
    groups = partial.groupBy(*tasks.GROUP_KEYS).agg(*aggregates, kind.alias(tasks.PROPENSITY_OF))
    return in_workers(groups, tasks.estimate_groups, confidence, schema=_ESTIMATES)


def _select_overall(settings: WeightSettings) -> list[Column]:
    run = exact_col(settings.run).cast("string") if settings.run is not None else F.lit("")
    return [run.alias("run"), F.lit("").alias("segment_by"), F.lit("").alias("segment")]


def _select_limbs() -> list[Column]:
    names = [name_limb(name, number) for name in _SUMS for number in range(N_LIMBS)]
    return exact_cols([_N, *names])


def _split_by_segment(queries: DataFrame, settings: WeightSettings) -> DataFrame:
    """Add up the rows of each query over all impressions, and for each segment set."""
    groups = F.array(*[_build_segment(names) for names in ((), *settings.segment_sets)])
    # Put the query columns into a struct, because one of them may be named `segment`.
    query = F.struct(*exact_cols(settings.columns.query)).alias(_QUERY)
    run = _select_overall(settings)[0]
    parts = queries.select(run, query, F.explode(groups).alias("group"), *_select_limbs())
    keys = [F.col("run"), F.col("group.segment_by"), F.col("group.segment"), exact_col(_QUERY)]
    sums = [F.sum(exact_col(name)).alias(name) for name in parts.columns[3:]]
    return parts.groupBy(*keys).agg(*sums)


def _build_segment(segment_columns: tuple[str, ...]) -> Column:
    texts = [exact_col(column).cast("string") for column in segment_columns] or [F.lit("")]
    text = texts[0] if len(texts) == 1 else F.to_json(F.array(*texts))
    return F.struct(F.lit("+".join(segment_columns)).alias("segment_by"), text.alias("segment"))


@accepts_tables
def fit_propensities(
    impressions: DataFrame,
    *,
    query: str | Sequence[str] = "query_id",
    item: str = "item_id",
    position: str = "position",
    click: str = "click",
    method: Method = "pbm",
    tolerance: float = 1e-6,
    max_iter: int = 1000,
    on_invalid: OnInvalid = "fail",
) -> DataFrame:
    """Estimate the probability that each position is examined, relative to the first.

    Parameters
    ----------
    impressions : DataFrame
        One row per item shown: query, item, position from 1, and whether it was clicked (0 or 1).
    query, item, position, click : str
        Column names, as in `ImpressionColumns`; `query` may be a sequence of names.
    method, tolerance, max_iter, on_invalid
        As in `PropensitySettings`; default: EM for a position-based click model.

    Returns
    -------
    DataFrame
        One row: `method`; `positions`, see below; `n_patterns` (bigint), the number of different count vectors of
        (query, item); `n_fitted` (bigint), how many of them were fitted; and for `pbm` also `n_iterations`,
        `converged`, and `log_likelihood` (array<double>) at the start and after each iteration. Bits do not depend on
        partitions.

        `pbm` is fitted to all patterns or, if these have more than 8,000,000 counts, to a sample by hash: all
        frequent patterns, and some rare patterns, each weighted for several. Counts of positions cover the whole log.

        `positions` is an array of structs, which `fitted.select(F.inline("positions"))` lists: `position` (bigint);
        `propensity` (double, above 0, up to 1, or null); `ratio` (double), the estimate; `reason` (string), why the
        propensity is null or differs from the ratio: `above_1` (the propensity is 1), `no_clicks`, `no_chain` (no
        chain of items shown at two positions links it to the first), `no_pairs` (no item was shown there and at the
        first), `first_not_shown`, `first_not_clicked`; `n_impressions` and `n_clicks` (bigint).

    Raises
    ------
    MissingColumnError, InputRefusedError
        The action raises for a bad row under `on_invalid=fail`.

    Notes
    -----
    Spark cost: lazy; three shuffles of counts, combined before each: by (query, item, position), by (query, item),
    and by pattern; then one task with one pass through a Python worker, which needs up to half a gigabyte.

    References
    ----------
    Wang, Golbandi, Bendersky, Metzler and Najork, WSDM 2018, doi:10.1145/3159652.3159732 (`pbm`). Agarwal, Zaitsev,
    Wang, Li, Najork and Joachims, WSDM 2019, doi:10.1145/3289600.3291017 (`pairs`).

    Examples
    --------
    >>> fitted = fit_propensities(log, method="pbm")  # doctest: +SKIP
    >>> fitted.select(F.inline("positions")).show()  # doctest: +SKIP
    """
    return fit_impressions(impressions, create_settings(PropensitySettings, dict(locals())))


@accepts_tables
def judgments_from_impressions(
    impressions: DataFrame,
    propensities: DataFrame | None = None,
    *,
    query: str | Sequence[str] = "query_id",
    item: str = "item_id",
    position: str = "position",
    click: str = "click",
    propensity: str | None = None,
    power: float | None = None,
    clip: float | None = None,
    on_invalid: OnInvalid = "fail",
) -> DataFrame:
    """Make judgments from clicks, corrected for the position at which items were shown.

    The relevance of an item is the mean of weight times click over its impressions for the query. The weight is
    1 / propensity, at most `clip`. With propensities of examination, relevance is an unbiased estimate of the rate at
    which the item would be clicked if it were always examined.

    Parameters
    ----------
    impressions : DataFrame
        One row per item shown: query, item, click, and the position or the propensity.
    propensities : DataFrame or None
        The result of `fit_propensities`, or `position` and `propensity`, one row for each position.
    query, item, position, click, propensity : str
        Column names, as in `ImpressionColumns`; `query` may be a sequence of names.
    power, clip, on_invalid
        As in `WeightSettings`. Propensities come from one of a table, a column and `power`.

    Returns
    -------
    DataFrame
        One row per (query, item) that was shown, lazy and unsorted: the query columns, the item column, and

        - `relevance` (double): the corrected label,
        - `rule` (string): `ips`,
        - `uncorrected` (double): the mean click,
        - `n_impressions`, `n_clipped` (bigint): impressions, and how many of them had their weight clipped,
        - `weight_sum`, `largest_weight` (double).

    Raises
    ------
    InvalidParameterError, MissingColumnError, InputRefusedError
        The action raises for a bad row under `on_invalid=fail`.

    Notes
    -----
    Spark cost: one shuffle, of sums by (query, item) and partition; a table of propensities is broadcast. No action,
    no Python. Sums are exact down to 2^-64, so bits do not depend on the order of rows or their partitions.

    References
    ----------
    Joachims, Swaminathan and Schnabel, WSDM 2017, doi:10.1145/3018661.3018699.

    Examples
    --------
    >>> judgments_from_impressions(log, fit_propensities(log), clip=100)  # doctest: +SKIP
    """
    settings = create_settings(WeightSettings, dict(locals()))
    return judge_impressions(impressions, settings, _to_position_rows(propensities))


@accepts_tables
def inverse_propensity_estimates(
    impressions: DataFrame,
    propensities: DataFrame | None = None,
    *,
    query: str | Sequence[str] = "query_id",
    item: str = "item_id",
    position: str = "position",
    click: str = "click",
    propensity: str | None = None,
    power: float | None = None,
    clip: float | None = None,
    propensity_of: PropensityOf = "position",
    run: str | None = None,
    segments: str | Sequence[str] = (),
    confidence: float = 0.95,
    on_invalid: OnInvalid = "fail",
) -> DataFrame:
    """Estimate clicks per query, or a gain, as if every impression had been examined.

    Parameters
    ----------
    impressions, propensities, query, item, position, click, propensity, power, clip
        As for `judgments_from_impressions`.
    propensity_of : str
        With propensities of *showing* an item (`action`), as a randomised policy logs them, the estimate is that of a
        policy that shows each item with the same probability. Default: propensities of examining a `position`.
    run : str or None
        Column that names the ranker, for several rankers.
    segments : str or sequence of str
        Columns to estimate by; `"a+b"` groups by both together.
    confidence : float
        Level of the intervals.
    on_invalid : str
        As in `WeightSettings`.

    Returns
    -------
    DataFrame
        One row per (run, segment), lazy, with the columns

        - `run` (empty without a run column); `segment_by`, the columns of the segment set joined by `+` (empty: all
          impressions); `segment`, the value as text, a JSON list for several columns, null for null. A segment holds
          the impressions that have its value,
        - `n_queries`, `n_impressions` (bigint),
        - `ips`, the mean over queries of A, and `snips`, sum A / sum B, where A is the sum of weight times click and
          B the sum of weights of a query; each with `_std_error`, `_ci_low` and `_ci_high` (double; null if not
          defined, such as the errors of a single query). Intervals are Student's,
        - `n_eff`: effective sample size, (sum w)^2 / sum w^2,
        - `propensity_of` (string): `position` or `action`, as in the settings,
        - `snips_reason` (string): why `snips` is null: `propensities_of_positions`, because the sum of their inverses
          does not estimate the number of impressions,
        - `state`: the exact sums, for `merge_estimates`.

    Raises
    ------
    InvalidParameterError, MissingColumnError, InputRefusedError, MissingPackageError
        The action raises for a bad row under `on_invalid=fail`. SciPy is needed, here and on workers.

    Notes
    -----
    Spark cost: one shuffle of sums by query and partition, with segments one more; a small one of groups; no action;
    two passes of queries and groups through Python workers. Sums are exact, so bits do not depend on partitions.

    References
    ----------
    Swaminathan and Joachims, The self-normalized estimator for counterfactual learning, NeurIPS 2015.
    """
    settings = create_settings(WeightSettings, {**locals(), "segment_sets": parse_segment_sets(segments)})
    return estimate_impressions(impressions, settings, _to_position_rows(propensities))


@accepts_tables
def merge_estimates(estimates: DataFrame, *, confidence: float = 0.95) -> DataFrame:
    """Merge estimates of disjoint sets of queries, such as nights, exactly and without reading impressions again.

    Parameters
    ----------
    estimates : DataFrame
        Rows of one or more tables from `inverse_propensity_estimates`, with the same clip.
    confidence : float
        Level of the new intervals.

    Returns
    -------
    DataFrame
        As for `inverse_propensity_estimates`: the same bits as if all queries had been estimated together. Lazy.
        If estimates with propensities of positions and of actions are merged, `propensity_of` is `mixed`, and `snips`
        is null (`propensities_of_both_kinds`).

    Notes
    -----
    Spark cost: one small shuffle, no action, one pass through Python workers.
    """
    require_scipy()
    return _merge_groups(estimates.select(*_PARTIAL.names, tasks.PROPENSITY_OF), confidence)


def _to_position_rows(propensities: DataFrame | None) -> DataFrame | None:
    """Return one row per position; explode the result of `fit_propensities`."""
    if propensities is None or not has_column(propensities, "positions"):
        return propensities
    return list_propensities(propensities)
