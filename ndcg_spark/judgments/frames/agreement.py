"""How far annotators agree: Krippendorff's alpha."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ndcg_spark.core.expressions import columns_of
from ndcg_spark.core.given import takes_tables
from ndcg_spark.core.workers import as_shipped
from ndcg_spark.judgments.frames.ratings import rated_items
from ndcg_spark.judgments.settings import RatingSettings
from ndcg_spark.judgments.tasks import RATINGS, make_agreement, make_pair_counter

_PAIRS = "raters bigint, first double, second double, n bigint"
_AGREEMENT = "alpha double, reason string, n_items bigint, n_ratings bigint"


@takes_tables
def rating_pairs(
    ratings: DataFrame, settings: RatingSettings | None = None, *, parse_text: bool = False
) -> DataFrame:
    """Count the ordered pairs of ratings of the same item, which agreement is computed from.

    Parameters
    ----------
    ratings : DataFrame
        As for `judgments_from_ratings`. Ratings of weight 0 are left out; all others count alike.
    settings : RatingSettings or None
    parse_text : bool

    Returns
    -------
    DataFrame
        `raters` (ratings of the item, bigint), `first` and `second` (double), `n` (ordered pairs of two annotators,
        bigint); lazy, at most one row for each. Tables of nights of different items may be put together with `union`.

    Raises
    ------
    MissingColumnError, InputRefusedError
        As `judgments_from_ratings`.

    Notes
    -----
    Spark cost: two shuffles, one of all rows and a small one; no action; one pass through Python workers.
    """
    settings = RatingSettings() if settings is None else settings
    return item_pairs(rated_items(ratings, settings, parse_text=parse_text), settings)


def item_pairs(items: DataFrame, settings: RatingSettings) -> DataFrame:
    """As `rating_pairs`, of rows that have the keys and `ratings` of each item, as judgments have them."""
    kept = items.select(*columns_of([*settings.columns.query, settings.columns.item, RATINGS]))
    pairs = kept.mapInArrow(as_shipped(make_pair_counter(settings)), schema=_PAIRS)
    return pairs.groupBy("raters", "first", "second").agg(F.sum("n").alias("n"))


@takes_tables
def rating_agreement(pairs: DataFrame) -> DataFrame:
    """Krippendorff's alpha with the ordinal difference.

    Parameters
    ----------
    pairs : DataFrame
        From `rating_pairs`, or several of them put together.

    Returns
    -------
    DataFrame
        One row, lazy: `alpha` (double; null where `reason` says why: `no_pairs`, `single_grade`), `reason` (string),
        `n_items` (bigint; those with two ratings or more) and `n_ratings` (bigint; of these items).

    Notes
    -----
    Spark cost: one shuffle of the counts into a single task, no action. There is a count for each pair of grades and
    number of raters, so ratings should be grades, not a continuum.

    References
    ----------
    Hayes and Krippendorff, Communication Methods and Measures 1(1), 2007, doi:10.1080/19312450709336664.
    """
    listed = F.collect_list(F.struct("raters", "first", "second", "n")).alias("pairs")
    return pairs.agg(listed).mapInArrow(as_shipped(make_agreement()), schema=_AGREEMENT)
