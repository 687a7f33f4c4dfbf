"""Judgments from events and from ratings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from pyspark.sql import DataFrame

from ndcg_spark.core.choices import OnInvalid
from ndcg_spark.core.flag import settings_from
from ndcg_spark.core.given import takes_tables
from ndcg_spark.judgments.frames.agreement import agreement_of, item_pairs
from ndcg_spark.judgments.frames.events import judged_events
from ndcg_spark.judgments.frames.ratings import judged_ratings, rated_items
from ndcg_spark.judgments.settings import (
    GRADES,
    DedupRule,
    EventRule,
    EventSettings,
    NegativeRule,
    RatingRule,
    RatingSettings,
    TieRule,
)


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
        - `rule` (string): what it follows from. `best`, `sum`, `last`: the graded events; `negative`: a negative
          event; `impressions`: it was shown and nothing followed; `too_few_impressions`: it was not shown
          `min_impressions` times, so it is unjudged,
        - `event` (string): the event that decided; null for a sum and for impressions,
        - `n_events`, `n_negative`, `n_impressions` (bigint): graded events, those of them with a grade below 0, and
          impressions, after deduplication,
        - `n_duplicates` (bigint): repeated events that were left out,
        - `first_ts`, `last_ts` (timestamp): of all of these events.

    Raises
    ------
    MissingColumnError, InputRefusedError
        The action raises for a bad row (a null, an unknown event) under `on_invalid=fail`. Rows outside the window
        are not looked at.

    Notes
    -----
    Spark cost: one shuffle, no action, no Python. Without deduplication, rows are aggregated before the shuffle; with
    it, all rows of the window are shuffled.

    Values that decay are rounded down to multiples of 2^-64 before they are added, so a sum does not depend on the
    order of rows or their partitions.

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
        - `decided_by` (array of string): the annotators whose ratings the relevance follows from: all of them for
          the mean, those at the median, those of the majority,
        - `n_ratings` (bigint): ratings that weigh something,
        - `n_zero_weight` (bigint): ratings of weight 0, which count nowhere else,
        - `weight_sum`, `lowest`, `highest` (double),
        - `disputed` (boolean): whether the highest and lowest rating are `dispute_range` or more apart, or no grade
          has more than half of the weight; ratings of weight 0 do not count,
        - `ratings` (array of struct<relevance, annotator, weight>): all of them, the lowest first; those of weight 0,
          too.

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
    passes through Python workers. There is a count for each pair of grades and
    number of raters, so ratings should be grades, not a continuum.

    References
    ----------
    Hayes and Krippendorff, Communication Methods and Measures 1(1), 2007, doi:10.1080/19312450709336664.
    """
    settings = settings_from(RatingSettings, dict(locals()))
    return agreement_of(item_pairs(rated_items(ratings, settings, parse_text=False), settings))
