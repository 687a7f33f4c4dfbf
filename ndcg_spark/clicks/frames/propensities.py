"""Propensities of positions from a log of impressions."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema

from ndcg_spark.clicks.frames.impressions import counted_impressions
from ndcg_spark.clicks.settings import PropensitySettings
from ndcg_spark.clicks.tasks.click_cells import (
    FIT_SCHEMA,
    HASH,
    PAIRS,
    PATTERN,
    make_fitter,
)
from ndcg_spark.core.bad_rows import without_bad_rows
from ndcg_spark.core.expressions import columns_of, named
from ndcg_spark.core.given import takes_tables
from ndcg_spark.core.workers import as_shipped

FIT: T.StructType = from_arrow_schema(FIT_SCHEMA)
_SHOWN_AT, _CLICKED, _TIMES, _CLICKS = "shown at", "was clicked", "times shown", "times clicked"
"""Columns on the way; they have spaces, so that no key is likely to share the name."""


@takes_tables
def fit_propensities(
    impressions: DataFrame, settings: PropensitySettings | None = None, *, parse_text: bool = False
) -> DataFrame:
    """Estimate the probability that each position is examined, relative to the first.

    Parameters
    ----------
    impressions : DataFrame
        One row per item shown: query, item, position from 1, and whether it was clicked (0 or 1).
    settings : PropensitySettings or None
        None is `PropensitySettings()`: EM for a position-based click model.
    parse_text : bool
        Whether numbers may be text.

    Returns
    -------
    DataFrame
        One row: `method`; `positions`, see `propensity_table`; `n_patterns` (bigint), the different vectors of
        counts of a (query, item); `n_fitted` (bigint), those of them that were fitted; and of `pbm` also
        `n_iterations`, `converged`, and `log_likelihood` (array<double>) at the start and after each iteration. The
        bits do not depend on partitions.

        `pbm` is fitted to all patterns, or to a sample by hash where these have more than 8,000,000 counts of
        impressions and clicks. It keeps patterns that are frequent, and some of the rare ones, each of which then
        stands for several. `n_impressions` and `n_clicks` are of the whole log.

    Raises
    ------
    MissingColumnError, InputRefusedError
        The action raises for a bad row under `on_invalid=fail`.

    Notes
    -----
    Spark cost: lazy; a shuffle of counts by (query, item, position), of those by (query, item), and of different
    vectors of counts, all of them combined before the shuffle; then one task with one pass through a Python worker,
    which takes up to half a gigabyte.

    References
    ----------
    Wang, Golbandi, Bendersky, Metzler and Najork, WSDM 2018, doi:10.1145/3159652.3159732 (`pbm`). Agarwal, Zaitsev,
    Wang, Li, Najork and Joachims, WSDM 2019, doi:10.1145/3289600.3291017 (`pairs`).

    Examples
    --------
    >>> fitted = fit_propensities(log, PropensitySettings(method="pbm"))  # doctest: +SKIP
    >>> propensity_table(fitted).show()  # doctest: +SKIP
    """
    settings = PropensitySettings() if settings is None else settings
    patterns = click_patterns(impressions, settings, parse_text=parse_text)
    return patterns.repartition(1).mapInArrow(as_shipped(make_fitter(settings)), schema=FIT)


def propensity_table(fitted: DataFrame) -> DataFrame:
    """List the propensities of a fit, one row a position, as `judgments_from_impressions` takes them.

    Parameters
    ----------
    fitted : DataFrame
        From `fit_propensities`.

    Returns
    -------
    DataFrame
        Lazy: `position` (bigint); `propensity` (double, above 0, up to 1, or null); `ratio` (double), what was
        estimated; `reason` (string), why the propensity is null or not the ratio: `above_1` (1 is taken),
        `no_clicks`, `no_chain` (no chain of items shown at two positions links it to the first), `no_pairs` (no item
        was shown there and at the first), `first_not_shown`, `first_not_clicked`; `n_impressions` and `n_clicks`
        (bigint); `method`.
    """
    return fitted.select(F.explode("positions").alias("one"), "method").select("one.*", "method")


def click_patterns(impressions: DataFrame, settings: PropensitySettings, *, parse_text: bool) -> DataFrame:
    """Count the (query, item) with the same impressions and clicks at the same positions. Lazy.

    Gives `cells`, `pairs` and `hash`, see `clicks/tasks/click_cells.py`. With `method=randomized` all pairs are one,
    as it needs nothing but counts by position.
    """
    found = counted_impressions(impressions, settings, parse_text=parse_text)
    keys = [*settings.columns.query, settings.columns.item]
    valid = without_bad_rows(found.frame, found.reasons, keys, settings.on_invalid)
    if settings.method == "randomized":
        keys = []
    rows = valid.select(
        *columns_of(keys), found.position.cast("bigint").alias(_SHOWN_AT), found.click.cast("bigint").alias(_CLICKED)
    )
    counted = [F.count(F.lit(1)).alias(_TIMES), F.sum(named(_CLICKED)).alias(_CLICKS)]
    counts = rows.groupBy(*columns_of([*keys, _SHOWN_AT])).agg(*counted)
    one = F.struct(named(_SHOWN_AT).alias("position"), named(_TIMES).alias("shown"), named(_CLICKS).alias("clicked"))
    pairs = counts.groupBy(*columns_of(keys)).agg(F.sort_array(F.collect_list(one)).alias(PATTERN))
    return pairs.groupBy(PATTERN).agg(F.count(F.lit(1)).alias(PAIRS)).withColumn(HASH, F.xxhash64(PATTERN))
