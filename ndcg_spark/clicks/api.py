"""Clicks corrected for the position at which items were shown: propensities, judgments, estimates."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from ndcg_spark.clicks.frames.estimates import merged_estimates, propensity_estimates
from ndcg_spark.clicks.frames.labels import judged_impressions
from ndcg_spark.clicks.frames.propensities import fitted_propensities, propensity_table
from ndcg_spark.clicks.settings import Method, PropensityOf, PropensitySettings, WeightSettings
from ndcg_spark.core.choices import OnInvalid
from ndcg_spark.core.expressions import has_column
from ndcg_spark.core.flag import settings_from
from ndcg_spark.core.given import takes_tables
from ndcg_spark.evaluation.settings import segment_sets_of


@takes_tables
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
        One row: `method`; `positions`, see below; `n_patterns` (bigint), the different vectors of
        counts of a (query, item); `n_fitted` (bigint), those of them that were fitted; and of `pbm` also
        `n_iterations`, `converged`, and `log_likelihood` (array<double>) at the start and after each iteration. The
        bits do not depend on partitions.

        `pbm` is fitted to all patterns, or to a sample by hash where these have more than 8,000,000 counts of
        impressions and clicks. It keeps patterns that are frequent, and some of the rare ones, each of which then
        stands for several. `n_impressions` and `n_clicks` are of the whole log.

        `positions` is an array of structs, which `fitted.select(F.inline("positions"))` lists: `position` (bigint);
        `propensity` (double, above 0, up to 1, or null); `ratio` (double), what was estimated; `reason` (string), why
        the propensity is null or not the ratio: `above_1` (1 is taken), `no_clicks`, `no_chain` (no chain of items
        shown at two positions links it to the first), `no_pairs` (no item was shown there and at the first),
        `first_not_shown`, `first_not_clicked`; `n_impressions` and `n_clicks` (bigint).

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
    >>> fitted = fit_propensities(log, method="pbm")  # doctest: +SKIP
    >>> fitted.select(F.inline("positions")).show()  # doctest: +SKIP
    """
    return fitted_propensities(impressions, settings_from(PropensitySettings, dict(locals())))


@takes_tables
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

    The relevance of an item is the sum of weight times click over its impressions for the query, divided by their
    number, where the weight of an impression is 1 / propensity, at most `clip`. With propensities of examination it
    estimates without bias the rate at which the item would be clicked if it were always examined.

    Parameters
    ----------
    impressions : DataFrame
        One row per item shown: query, item, click, and the position or the propensity.
    propensities : DataFrame or None
        What `fit_propensities` returns, or `position` and `propensity`, one row for each position.
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
        - `n_impressions`, `n_clipped` (bigint): impressions, and those of them whose weight was cut to `clip`,
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
    settings = settings_from(WeightSettings, dict(locals()))
    return judged_impressions(impressions, settings, _by_position(propensities))


@takes_tables
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
        policy that shows each item with the same probability. Default: of examining a `position`.
    run : str or None
        Column that tells several rankers apart.
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
          B the sum of weights of a query; `ips_std_error`, `ips_ci_low`, `ips_ci_high` and the same of `snips`
          (double; null where there is no such number, as the errors of a single query). Intervals are Student's,
        - `n_eff`: effective sample size, (sum w)^2 / sum w^2,
        - `propensity_of` (string): `position` or `action`, as in the settings,
        - `snips_reason` (string): why `snips` is null: `propensities_of_positions`, as the sum of their inverses does
          not estimate the number of impressions,
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
    settings = settings_from(WeightSettings, {**locals(), "segment_sets": segment_sets_of(segments)})
    return propensity_estimates(impressions, settings, _by_position(propensities))


@takes_tables
def merge_estimates(estimates: DataFrame, *, confidence: float = 0.95, propensity_of: str = "position") -> DataFrame:
    """Merge estimates of disjoint sets of queries, such as nights, exactly and without reading impressions again.

    Parameters
    ----------
    estimates : DataFrame
        Rows of one or more tables from `inverse_propensity_estimates`, with the same clip.
    confidence : float
        Level of the new intervals.
    propensity_of : str
        What the propensities of rows that do not say were of: tables of earlier versions lack the column, or have
        null there.

    Returns
    -------
    DataFrame
        As for `inverse_propensity_estimates`: the same bits as if all queries had been estimated together. Lazy.
        Where estimates with propensities of positions meet others with those of actions, `propensity_of` is `mixed`,
        and `snips` is null (`propensities_of_both_kinds`).

    Raises
    ------
    InvalidParameterError, MissingPackageError

    Notes
    -----
    Spark cost: one small shuffle, no action, one pass through Python workers.
    """
    return merged_estimates(estimates, confidence=confidence, propensity_of=propensity_of)


def _by_position(propensities: DataFrame | None) -> DataFrame | None:
    """One row for each position, also of what `fit_propensities` returns."""
    if propensities is None or not has_column(propensities, "positions"):
        return propensities
    return propensity_table(propensities)
