"""The position-based click model: P(click) = t(position) * g(query, item), fitted by EM to counts.

Only the product t * g can be told from clicks, so propensities are t relative to that of the first position, and only
for positions that a chain of shared items links to it.

Pairs of query and item with the same counts at the same positions have the same g at every step, so they are one
*pattern* with a number of pairs. Sums over patterns are whole numbers of a fixed unit: they add up to the same bits
whatever the order of patterns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from ndcg_spark.core.exact import N_LIMBS, Limbs, Moments, from_limbs, to_limbs
from ndcg_spark.core.ragged import BoolArray, FloatArray, IntArray
from ndcg_spark.core.student import t_quantile
from ndcg_spark.errors import InvalidParameterError

BLOCK_CELLS = 1 << 16
"""Cells that a step computes at once; their temporary arrays then stay in the caches of a core."""
_HALF = 2.0**31


class Cells(NamedTuple):
    """Impressions and clicks by pattern and position, numbered from 0; cells are sorted by pattern, shape (n_cells,).

    `shown` and `clicked` are whole numbers of one (query, item): 0 <= clicked <= shown, shown > 0. `pairs`, shape
    (n_patterns,), counts the (query, item) with these numbers.
    """

    pattern: IntArray
    position: IntArray
    shown: FloatArray
    clicked: FloatArray
    pairs: FloatArray


class Totals(NamedTuple):
    """Impressions and clicks of all cells by position, shape (n_positions,).

    `chain` is the lowest position that a chain of shared (query, item) links each position to.
    """

    shown: IntArray
    clicked: IntArray
    chain: IntArray

    @property
    def linked(self) -> BoolArray:
        """Positions that a chain links to the first, shape (n_positions,)."""
        return np.asarray((self.chain == 0) & (self.shown > 0))


class StepSums(NamedTuple):
    """Whole numbers from a step of EM; those of parts of the cells add up.

    `seen` is the expected number of examined impressions by position, in units of `sum_unit`; `log_likelihood` that
    of the parameters before the step, in units of `log_unit`.
    """

    seen: IntArray
    log_likelihood: int


class ClickModel(NamedTuple):
    """A fitted model.

    `ratio` is t_k / t_1, shape (n_positions,); NaN where clicks do not determine it. `log_likelihood`, up to binomial
    coefficients, is at the start and after each iteration: it never falls, and is empty if the first position has no
    clicks.
    """

    ratio: FloatArray
    log_likelihood: FloatArray
    converged: bool

    @property
    def propensity(self) -> FloatArray:
        """t_k / t_1, at most 1; NaN where clicks do not determine it."""
        return np.minimum(self.ratio, 1.0)


def sum_unit(n_shown: int) -> float:
    """Unit of sums over all cells, a power of two with which they fit into 64 bits.

    >>> sum_unit(1000) == 2.0**-51
    True
    """
    return 2.0 ** (n_shown.bit_length() - 61)


def log_unit(n_shown: int) -> float:
    """Unit of log-likelihoods, which are up to 2^10 times as large as impressions.

    >>> log_unit(1000) == 2.0**-41
    True
    """
    return sum_unit(n_shown) * 2.0**10


def totals_of(cells: Cells, n_positions: int, *, block_cells: int = BLOCK_CELLS) -> Totals:
    """Count impressions and clicks by position, and find which positions share items.

    >>> one = np.ones(4)
    >>> cells = Cells(np.array([0, 0, 1, 2]), np.array([0, 2, 2, 1]), one, one, np.ones(3))
    >>> totals_of(cells, 3).linked.tolist()
    [True, False, True]
    """
    nothing = np.zeros(n_positions, dtype=np.int64)
    totals = Totals(nothing, nothing, np.arange(n_positions))
    for _, its in _blocks(cells, block_cells):
        pairs = its.pairs[its.pattern]
        shown, clicked = (_counts_by(its.position, count * pairs, n_positions) for count in (its.shown, its.clicked))
        same = its.pattern[1:] == its.pattern[:-1]
        edges = np.unique(its.position[:-1][same] * n_positions + its.position[1:][same])
        chain = _chains(edges // n_positions, edges % n_positions, n_positions)
        totals = add_totals(totals, Totals(shown, clicked, chain))
    return totals


def add_totals(first: Totals, second: Totals) -> Totals:
    """Add up the totals of two parts of the cells; chains through items of both parts link positions.

    >>> one = np.ones(3, dtype=np.int64)
    >>> add_totals(Totals(one, one, np.array([0, 0, 2])), Totals(one, one, np.array([0, 1, 1]))).chain.tolist()
    [0, 0, 0]
    """
    position = np.arange(len(first.chain))
    begin, end = np.r_[position, position], np.r_[first.chain, second.chain]
    chain = _chains(begin, end, len(position))
    return Totals(first.shown + second.shown, first.clicked + second.clicked, chain)


def _chains(begin: IntArray, end: IntArray, n_positions: int) -> IntArray:
    chain = np.arange(n_positions)
    while True:
        lowest = np.minimum(chain[begin], chain[end])
        reached = chain.copy()
        np.minimum.at(reached, begin, lowest)
        np.minimum.at(reached, end, lowest)
        if (reached == chain).all():
            return chain
        chain = reached


def _counts_by(position: IntArray, counts: FloatArray, n_positions: int) -> IntArray:
    """Sum up to 2^22 whole numbers by position, exactly: `bincount` adds doubles, so halves are added alone."""
    high = np.floor(counts / _HALF)
    parts = [np.bincount(position, its, n_positions).astype(np.int64) for its in (high, counts - high * _HALF)]
    return np.asarray(parts[0] * int(_HALF) + parts[1])


class Expectation:
    """Steps of EM over cells; holds the attractiveness g of each pattern, 0.5 at first. `n_shown` sets the unit."""

    def __init__(self, cells: Cells, n_positions: int, n_shown: int, *, block_cells: int = BLOCK_CELLS) -> None:
        self._blocks = list(_blocks(cells, block_cells))
        self._n_positions = n_positions
        self._per_unit, self._per_log_unit = 1 / sum_unit(n_shown), 1 / log_unit(n_shown)
        self.attractive = np.full(len(cells.pairs), 0.5)

    def step(self, examined: FloatArray) -> StepSums:
        """Take one step of EM from t, shape (n_positions,): update g, and return the sums that give the new t.

        Wang, Golbandi, Bendersky, Metzler and Najork, WSDM 2018, doi:10.1145/3159652.3159732.
        """
        seen, likelihood = np.zeros(self._n_positions, dtype=np.int64), 0
        for patterns, its in self._blocks:
            shown, clicked, pairs = its.shown, its.clicked, its.pairs[its.pattern]
            missed = shown - clicked
            t, g = examined[its.position], self.attractive[patterns][its.pattern]
            both = t * g
            # The comparisons keep logarithms of 0 out, whose factor is 0.
            of_cell = clicked * np.log(both + (clicked == 0)) + missed * np.log1p(-both * (missed > 0))
            likelihood += int(np.rint(pairs * of_cell * self._per_log_unit).astype(np.int64).sum())
            # Where every impression was clicked there is nothing to divide, even if t g = 1.
            unseen = missed / ((1 - both) + (missed == 0))
            units = np.rint(pairs * (clicked + unseen * (t * (1 - g))) * self._per_unit)
            seen += _counts_by(its.position, units, self._n_positions)
            attracted = np.bincount(its.pattern, clicked + unseen * ((1 - t) * g))
            self.attractive[patterns] = attracted / np.bincount(its.pattern, shown)
        return StepSums(seen, likelihood)


def _blocks(cells: Cells, block_cells: int) -> Iterator[tuple[slice, Cells]]:
    """Cut cells where a pattern ends: the patterns of a block, and its cells, whose patterns are numbered from 0."""
    n_cells, begin = len(cells.pattern), 0
    while begin < n_cells:
        first, last = int(cells.pattern[begin]), int(cells.pattern[min(begin + block_cells, n_cells) - 1])
        end = int(np.searchsorted(cells.pattern, last, side="right"))
        patterns, rows = slice(first, last + 1), slice(begin, end)
        columns = (cells.position[rows], cells.shown[rows], cells.clicked[rows])
        yield patterns, Cells(cells.pattern[rows] - first, *columns, cells.pairs[patterns])
        begin = end


def fit_click_model(
    totals: Totals, step: Callable[[FloatArray], StepSums], *, tolerance: float = 1e-6, max_iter: int = 1000
) -> ClickModel:
    """Fit examination and attractiveness by expectation maximisation, both from 0.5; `step` is `Expectation.step`.

    EM takes small steps: a last step below `tolerance` does not mean that the limit is as near. Wang, Golbandi,
    Bendersky, Metzler and Najork, WSDM 2018, doi:10.1145/3159652.3159732.
    """
    if not tolerance > 0:
        raise InvalidParameterError(f"tolerance must be above 0; got {tolerance:g}.")
    if max_iter < 1:
        raise InvalidParameterError(f"max_iter must be at least 1; got {max_iter}.")
    known, shown = totals.linked, totals.shown > 0
    n_shown = int(totals.shown.sum())
    if not totals.clicked[0]:
        return ClickModel(np.full(len(shown), np.nan), np.zeros(0), False)
    examined = np.full(len(shown), 0.5)
    likelihood: list[float] = []
    converged = False
    while not converged and len(likelihood) < max_iter:
        found, before = step(examined), examined
        likelihood.append(found.log_likelihood * log_unit(n_shown))
        examined = before.copy()
        examined[shown] = found.seen[shown] * sum_unit(n_shown) / totals.shown[shown]
        moved = np.abs(examined / examined[0] - before / before[0])
        converged = bool((moved[known] < tolerance).all())
    likelihood.append(step(examined).log_likelihood * log_unit(n_shown))
    return ClickModel(np.where(known, examined / examined[0], np.nan), np.array(likelihood), converged)


def randomized_propensities(totals: Totals) -> FloatArray:
    """Click-through at each position over that at the first, of shuffled traffic; shape (n_positions,).

    NaN for a position that was not shown, and where the first has no clicks.
    """
    found = np.full(len(totals.shown), np.nan)
    if totals.clicked[0] > 0:
        shown = totals.shown > 0
        found[shown] = (totals.clicked[shown] / totals.shown[shown]) / (totals.clicked[0] / totals.shown[0])
    return found


def pair_sums(cells: Cells, n_positions: int) -> IntArray:
    """Add up click-through of items shown at the first position and at others, shape (n_positions, 2, N_LIMBS).

    Limbs of the sums there and, of the same items, at the first position. Sums of parts of the cells add up; a part
    has less than 2^31 pairs.
    """
    found = np.zeros((n_positions, 2, N_LIMBS), dtype=np.int64)
    for _, its in _blocks(cells, BLOCK_CELLS):
        rate, at_first = its.clicked / its.shown, its.position == 0
        of_first = np.full(len(its.pairs), np.nan)
        of_first[its.pattern[at_first]] = rate[at_first]
        both = ~np.isnan(of_first[its.pattern])
        position, pairs = its.position[both], its.pairs[its.pattern[both]].astype(np.int64)
        for at, values in enumerate((rate[both], of_first[its.pattern[both]])):
            for limb, whole in to_limbs(values).items():
                np.add.at(found[:, at, limb], position, whole * pairs)
    return found


def pair_propensities(sums: IntArray) -> FloatArray:
    """Divide the sums of `pair_sums`, shape (n_positions,); NaN without shared items or clicks at the first position.

    Agarwal, Zaitsev, Wang, Li, Najork and Joachims, WSDM 2019, doi:10.1145/3289600.3291017.
    """
    pairs = [[from_limbs(part) for part in both] for both in sums.tolist()]
    return np.array([float(here / first) if first else math.nan for here, first in pairs])


MOMENTS = Moments("a", "b", "aa", "ab", "bb", "squared")


class WeightedEstimate(NamedTuple):
    """Mean of weighted clicks with its uncertainty; None where it is not defined."""

    value: float | None
    std_error: float | None
    ci_low: float | None
    ci_high: float | None


NO_ESTIMATE = WeightedEstimate(None, None, None, None)


class PropensityEstimates(NamedTuple):
    """Inverse propensity scoring, its self-normalised form, and the effective sample size."""

    ips: WeightedEstimate
    snips: WeightedEstimate
    n_eff: float | None


def query_states(reward: FloatArray, weight: FloatArray, squared: FloatArray) -> Limbs:
    """Limbs of A, B, A^2, AB, B^2 and `squared` of each query, by their place in a state; states add up.

    `reward` is A, the sum of weight times click; `weight` is B, the sum of weights; `squared` the sum of their
    squares.
    """
    return MOMENTS.limbs(
        a=[reward], b=[weight], aa=[(reward, reward)], ab=[(reward, weight)], bb=[(weight, weight)], squared=[squared]
    )


def estimates(state: IntArray, n_queries: int, *, confidence: float = 0.95) -> PropensityEstimates:
    """Estimate from the sum of all states, shape (MOMENTS.size,); each number is rounded once from exact fractions.

    IPS is the mean of A; its standard error the sample standard deviation over sqrt(n). SNIPS is sum A / sum B; its
    standard error sqrt(sum (A - SNIPS B)^2) / sum B. n_eff is (sum w)^2 / sum w^2. Intervals are Student's. None for
    0 / 0, and for errors with fewer than two queries. SNIPS means something only if the expected weight is 1, as with
    the logged probabilities of actions: otherwise sum B does not estimate the number of impressions.

    Swaminathan and Joachims, The self-normalized estimator for counterfactual learning, NeurIPS 2015.

    >>> w, r = np.array([1.0, 2.0, 5.0, 10.0]), np.array([1.0, 0.0, 1.0, 1.0])
    >>> states = query_states(w * r, w, w * w)
    >>> found = estimates(MOMENTS.states(states, 1, np.sum)[0], 4)
    >>> found.ips.value, round(found.snips.value, 12), round(found.n_eff, 12)
    (4.0, 0.888888888889, 2.492307692308)
    """
    a, b, aa, ab, bb, ww = MOMENTS.fractions(state).values()
    ips, snips, n_eff = NO_ESTIMATE, NO_ESTIMATE, None
    several, ratio = n_queries > 1, a / b if b else None
    half = t_quantile((1 + confidence) / 2, n_queries - 1) if several else math.nan
    if n_queries:
        spread = (aa - a * a / n_queries) / ((n_queries - 1) * n_queries) if several else None
        ips = _estimate(a / n_queries, spread, half)
    if ratio is not None:
        spread = (aa - 2 * ratio * ab + ratio * ratio * bb) / (b * b) if several else None
        snips, n_eff = _estimate(ratio, spread, half), float(b * b / ww)
    return PropensityEstimates(ips, snips, n_eff)


def _estimate(value: Fraction, variance: Fraction | None, half: float) -> WeightedEstimate:
    if variance is None:
        return WeightedEstimate(float(value), None, None, None)
    error = math.sqrt(float(variance))
    return WeightedEstimate(float(value), error, float(value) - half * error, float(value) + half * error)
