"""Propensities of positions from a log of impressions."""

from __future__ import annotations

from pyspark.errors import PySparkNotImplementedError
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ndcg_spark.clicks.frames.impressions import counted_impressions
from ndcg_spark.clicks.kernels.click_model import StepSums, fit_click_model
from ndcg_spark.clicks.settings import MAX_POSITIONS, PropensityPlan
from ndcg_spark.clicks.tasks.click_cells import (
    PAIRS,
    PATTERN,
    fit_row,
    known_positions,
    make_advancer,
    make_fitter,
    make_packer,
    make_stepper,
    make_totaller,
    step_sums,
    totals_of_blocks,
)
from ndcg_spark.core.bad_rows import without_bad_rows
from ndcg_spark.core.expressions import columns_of, named
from ndcg_spark.core.ragged import FloatArray
from ndcg_spark.core.streams import refuses_streams
from ndcg_spark.core.workers import as_shipped

_FIT = (
    "method string, positions array<struct<position:bigint,propensity:double,ratio:double,reason:string,"
    "n_impressions:bigint,n_clicks:bigint>>, n_patterns bigint, n_iterations bigint, converged boolean, "
    "log_likelihood array<double>"
)
_BLOCK = "payload binary, attractive binary, positions array<bigint>"
_TOTALS = "shown array<bigint>, clicked array<bigint>, chain array<bigint>, n_patterns bigint, sums array<bigint>"
_STEP = "seen array<bigint>, log_likelihood bigint"
_SHOWN_AT, _CLICKED, _TIMES, _CLICKS = "shown at", "was clicked", "times shown", "times clicked"
"""Columns on the way; they have spaces, so that no key is likely to share the name."""
_STORED_EVERY = 4
"""Steps of EM that are taken anew in each job before the state is stored. To store it costs about as much as two."""


@refuses_streams
def fit_propensities(
    impressions: DataFrame, plan: PropensityPlan | None = None, *, parse_text: bool = False
) -> DataFrame:
    """Estimate the probability that each position is examined, relative to the first.

    Parameters
    ----------
    impressions : DataFrame
        One row per item shown: query, item, position from 1, and whether it was clicked (0 or 1).
    plan : PropensityPlan or None
        None is `PropensityPlan()`: EM for a position-based click model, in one worker.
    parse_text : bool
        Whether numbers may be text.

    Returns
    -------
    DataFrame
        One row: `method`; `positions`, see `propensity_table`; `n_patterns` (bigint), the different vectors of
        counts of a (query, item); and of `pbm` also `n_iterations`, `converged`, and `log_likelihood`
        (array<double>) at the start and after each iteration. The bits do not depend on partitions or on `plan.fit`.

    Raises
    ------
    MissingColumnError, InputRefusedError
        The action raises for a bad row under `on_invalid=fail`, and for a log with more different counts than one
        worker holds.

    Notes
    -----
    Spark cost under `fit=worker`: lazy; a shuffle of counts by (query, item, position), of those by (query, item),
    and of different vectors of counts, all of them combined before the shuffle; then one task with one pass through a
    Python worker, which takes up to half a gigabyte for 8,000,000 counts.

    Under `fit=distributed` this function itself runs jobs: three, and one for each step of EM, which returns one
    number for each position and block of 1,000,000 counts. Blocks are kept by `localCheckpoint`, or by `persist`
    where a session has no checkpoints, until the result is garbage.

    References
    ----------
    Wang, Golbandi, Bendersky, Metzler and Najork, WSDM 2018, doi:10.1145/3159652.3159732 (`pbm`). Agarwal, Zaitsev,
    Wang, Li, Najork and Joachims, WSDM 2019, doi:10.1145/3289600.3291017 (`pairs`).

    Examples
    --------
    >>> fitted = fit_propensities(log, PropensityPlan(method="pbm"))  # doctest: +SKIP
    >>> propensity_table(fitted).show()  # doctest: +SKIP
    """
    plan = PropensityPlan() if plan is None else plan
    patterns = click_patterns(impressions, plan, parse_text=parse_text)
    if plan.fit == "worker" or plan.method == "randomized":
        return patterns.repartition(1).mapInArrow(as_shipped(make_fitter(plan)), schema=_FIT)
    return _Distributed(patterns, plan).fitted()


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


def click_patterns(impressions: DataFrame, plan: PropensityPlan, *, parse_text: bool) -> DataFrame:
    """Count the (query, item) with the same impressions and clicks at the same positions. Lazy.

    Gives `cells` and `pairs`, see `clicks/tasks/click_cells.py`. With `method=randomized` all pairs are one, as it
    needs nothing but counts by position.
    """
    found = counted_impressions(impressions, plan, parse_text=parse_text)
    keys = [*plan.columns.query, plan.columns.item]
    valid = without_bad_rows(found.frame, found.reasons, keys, plan.on_invalid)
    if plan.method == "randomized":
        keys = []
    rows = valid.select(
        *columns_of(keys), found.position.cast("bigint").alias(_SHOWN_AT), found.click.cast("bigint").alias(_CLICKED)
    )
    counted = [F.count(F.lit(1)).alias(_TIMES), F.sum(named(_CLICKED)).alias(_CLICKS)]
    counts = rows.groupBy(*columns_of([*keys, _SHOWN_AT])).agg(*counted)
    one = F.struct(named(_SHOWN_AT).alias("position"), named(_TIMES).alias("shown"), named(_CLICKS).alias("clicked"))
    pairs = counts.groupBy(*columns_of(keys)).agg(F.sort_array(F.collect_list(one)).alias(PATTERN))
    return pairs.groupBy(PATTERN).agg(F.count(F.lit(1)).alias(PAIRS))


class _Distributed:
    """A fit whose counts are held by all workers. Everything here runs actions."""

    def __init__(self, patterns: DataFrame, plan: PropensityPlan) -> None:
        self._plan, self._session = plan, patterns.sparkSession
        self._blocks = _stored(patterns.mapInArrow(as_shipped(make_packer()), schema=_BLOCK))
        listed = self._blocks.select(F.explode("positions").alias("position")).distinct().limit(MAX_POSITIONS + 1)
        self._positions: list[int] = known_positions([row["position"] for row in listed.collect()])
        self._n_shown = 0
        self._steps: list[FloatArray] = []

    def fitted(self) -> DataFrame:
        """Fit, and put the result in a row."""
        totaller = make_totaller(self._positions, pairs=self._plan.method == "pairs")
        rows = self._blocks.mapInArrow(as_shipped(totaller), schema=_TOTALS).collect()
        totals, n_patterns, sums = totals_of_blocks(rows, len(self._positions))
        self._n_shown = int(totals.shown.sum())
        model = None
        if self._plan.method == "pbm":
            plan = self._plan
            model = fit_click_model(totals, self._step, tolerance=plan.tolerance, max_iter=plan.max_iter)
        row = fit_row(self._plan.method, self._positions, totals, n_patterns, model, sums)
        listed = [tuple(its.values()) for its in row["positions"]]
        return self._session.createDataFrame([tuple({**row, "positions": listed}.values())], _FIT)

    def _step(self, examined: FloatArray) -> StepSums:
        """Take a step in a job; it begins where the state was stored last."""
        if len(self._steps) == _STORED_EVERY:
            advance = make_advancer(self._positions, self._n_shown, self._steps)
            self._blocks, self._steps = _stored(self._blocks.mapInArrow(as_shipped(advance), schema=_BLOCK)), []
        self._steps = [*self._steps, examined]
        step = make_stepper(self._positions, self._n_shown, self._steps)
        rows = self._blocks.mapInArrow(as_shipped(step), schema=_STEP).collect()
        return step_sums(rows, len(self._positions))


def _stored(frame: DataFrame) -> DataFrame:
    """Compute a frame now and keep its rows, so that what follows does not compute it anew."""
    try:
        return frame.localCheckpoint()
    except (AttributeError, PySparkNotImplementedError):  # Spark Connect has had checkpoints since 4.0
        frame.persist()
        frame.count()
        return frame
