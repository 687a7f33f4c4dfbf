"""The position-based click model: P(click) = t(position) * g(query, item), fitted by EM to counts.

Clicks determine only the product t * g. Propensities are therefore t relative to the first position, and exist only
for positions that a chain of shared items links to it.

Pairs of query and item with the same counts at the same positions have the same g at every step, so they are one
*pattern* with a number of pairs. Sums over patterns are whole multiples of a fixed unit, so they add up to the same
bits in any order of the patterns.
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

BLOCK_CELLS = 1 << 16
"""Cells that a step computes at once, so that temporary arrays fit into the caches of a core."""
_HALF = 2.0**31


class Cells(NamedTuple):
    """Impressions and clicks by pattern and position, numbered from 0; cells are sorted by pattern, shape (n_cells,).

    `shown` and `clicked` are whole counts of one (query, item): 0 <= clicked <= shown, shown > 0. `pairs`, shape
    (n_patterns,), is the number of (query, item) with these counts.
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
    """Whole numbers from a step of EM; sums over parts of the cells add up.

    `seen` is the expected number of examined impressions by position, in units of `sum_unit`. `log_likelihood`
    belongs to the parameters before the step, in units of `log_unit`.
    """

    seen: IntArray
    log_likelihood: int


class ClickModel(NamedTuple):
    """A fitted model.

    `ratio` is t_k / t_1, shape (n_positions,); NaN if clicks do not determine it. `log_likelihood`, up to binomial
    coefficients, has the value at the start and after each iteration. It never falls, and is empty if the first
    position has no clicks.
    """

    ratio: FloatArray
    log_likelihood: FloatArray
    converged: bool


def sum_unit(n_shown: int) -> float:
    """Return the unit of sums over all cells, a power of two with which they fit into 64 bits.

    >>> sum_unit(1000) == 2.0**-51
    True
    """
    return 2.0 ** (n_shown.bit_length() - 61)


def log_unit(n_shown: int) -> float:
    """Return the unit of log-likelihoods, which are up to 2^10 times as large as impressions.

    >>> log_unit(1000) == 2.0**-41
    True
    """
    return sum_unit(n_shown) * 2.0**10


def count_totals(cells: Cells, n_positions: int, *, block_cells: int = BLOCK_CELLS) -> Totals:
    """Count impressions and clicks by position, and find which positions share items.

    >>> ones = np.ones(4)
    >>> cells = Cells(np.array([0, 0, 1, 2]), np.array([0, 2, 2, 1]), ones, ones, np.ones(3))
    >>> count_totals(cells, 3).linked.tolist()
    [True, False, True]
    """
    zeros = np.zeros(n_positions, dtype=np.int64)
    totals = Totals(zeros, zeros, np.arange(n_positions))
    for _, block in _split_blocks(cells, block_cells):
        pairs = block.pairs[block.pattern]
        shown, clicked = (
            _sum_by_position(block.position, count * pairs, n_positions) for count in (block.shown, block.clicked)
        )
        same = block.pattern[1:] == block.pattern[:-1]
        edges = np.unique(block.position[:-1][same] * n_positions + block.position[1:][same])
        chain = _link_positions(edges // n_positions, edges % n_positions, n_positions)
        totals = add_totals(totals, Totals(shown, clicked, chain))
    return totals


def add_totals(first: Totals, second: Totals) -> Totals:
    """Add up the totals of two parts of the cells; chains through items of both parts link positions.

    >>> ones = np.ones(3, dtype=np.int64)
    >>> add_totals(Totals(ones, ones, np.array([0, 0, 2])), Totals(ones, ones, np.array([0, 1, 1]))).chain.tolist()
    [0, 0, 0]
    """
    position = np.arange(len(first.chain))
    begin, end = np.r_[position, position], np.r_[first.chain, second.chain]
    chain = _link_positions(begin, end, len(position))
    return Totals(first.shown + second.shown, first.clicked + second.clicked, chain)


def _link_positions(begin: IntArray, end: IntArray, n_positions: int) -> IntArray:
    chain = np.arange(n_positions)
    while True:
        lowest = np.minimum(chain[begin], chain[end])
        reached = chain.copy()
        np.minimum.at(reached, begin, lowest)
        np.minimum.at(reached, end, lowest)
        if (reached == chain).all():
            return chain
        chain = reached


def _sum_by_position(position: IntArray, counts: FloatArray, n_positions: int) -> IntArray:
    """Sum up to 2^22 whole numbers by position, exactly: `bincount` adds doubles, so it adds each half separately."""
    high = np.floor(counts / _HALF)
    parts = [np.bincount(position, halves, n_positions).astype(np.int64) for halves in (high, counts - high * _HALF)]
    return np.asarray(parts[0] * int(_HALF) + parts[1])


class Expectation:
    """Steps of EM over cells; holds the attractiveness g of each pattern, initially 0.5. `n_shown` sets the unit."""

    def __init__(self, cells: Cells, n_positions: int, n_shown: int, *, block_cells: int = BLOCK_CELLS) -> None:
        self._blocks = list(_split_blocks(cells, block_cells))
        self._n_positions = n_positions
        self._per_unit, self._per_log_unit = 1 / sum_unit(n_shown), 1 / log_unit(n_shown)
        self.attractive = np.full(len(cells.pairs), 0.5)

    def step(self, examined: FloatArray) -> StepSums:
        """Take one step of EM from t, shape (n_positions,): update g, and return the sums that give the new t.

        Wang, Golbandi, Bendersky, Metzler and Najork, WSDM 2018, doi:10.1145/3159652.3159732.
        """
        seen, likelihood = np.zeros(self._n_positions, dtype=np.int64), 0
        for patterns, block in self._blocks:
            shown, clicked, pairs = block.shown, block.clicked, block.pairs[block.pattern]
            not_clicked = shown - clicked
            t, g = examined[block.position], self.attractive[patterns][block.pattern]
            click_probability = t * g
            # The comparisons avoid log(0) where its factor is 0.
            cell_likelihood = clicked * np.log(click_probability + (clicked == 0)) + not_clicked * np.log1p(
                -click_probability * (not_clicked > 0)
            )
            likelihood += int(np.rint(pairs * cell_likelihood * self._per_log_unit).astype(np.int64).sum())
            # If every impression was clicked, the numerator is 0; avoid dividing by 0 if t g = 1.
            unseen = not_clicked / ((1 - click_probability) + (not_clicked == 0))
            units = np.rint(pairs * (clicked + unseen * (t * (1 - g))) * self._per_unit)
            seen += _sum_by_position(block.position, units, self._n_positions)
            attracted = np.bincount(block.pattern, clicked + unseen * ((1 - t) * g))
            self.attractive[patterns] = attracted / np.bincount(block.pattern, shown)
        return StepSums(seen, likelihood)


def _split_blocks(cells: Cells, block_cells: int) -> Iterator[tuple[slice, Cells]]:
    """Split cells between patterns; yield each block's slice of patterns, and its cells with patterns from 0."""
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

    EM takes small steps: a last step below `tolerance` does not imply that the limit is that close. Wang, Golbandi,
    Bendersky, Metzler and Najork, WSDM 2018, doi:10.1145/3159652.3159732.
    """
    known, shown = totals.linked, totals.shown > 0
    n_shown = int(totals.shown.sum())
    if not totals.clicked[0]:
        return ClickModel(np.full(len(shown), np.nan), np.zeros(0), False)
    examined = np.full(len(shown), 0.5)
    likelihood: list[float] = []
    converged = False
    while not converged and len(likelihood) < max_iter:
        sums, before = step(examined), examined
        likelihood.append(sums.log_likelihood * log_unit(n_shown))
        examined = before.copy()
        examined[shown] = sums.seen[shown] * sum_unit(n_shown) / totals.shown[shown]
        moved = np.abs(examined / examined[0] - before / before[0])
        converged = bool((moved[known] < tolerance).all())
    likelihood.append(step(examined).log_likelihood * log_unit(n_shown))
    return ClickModel(np.where(known, examined / examined[0], np.nan), np.array(likelihood), converged)


def estimate_from_randomized(totals: Totals) -> FloatArray:
    """Divide the click-through at each position by that at the first, for shuffled traffic; shape (n_positions,).

    NaN for a position that was not shown, and for all if the first has no clicks.
    """
    propensities = np.full(len(totals.shown), np.nan)
    if totals.clicked[0] > 0:
        shown = totals.shown > 0
        propensities[shown] = (totals.clicked[shown] / totals.shown[shown]) / (totals.clicked[0] / totals.shown[0])
    return propensities


def sum_pairs(cells: Cells, n_positions: int) -> IntArray:
    """Add up click-through of items shown at the first position and at others, shape (n_positions, 2, N_LIMBS).

    Returns limbs of the sums at each position and, for the same items, at the first position. Sums over parts of the
    cells add up; a part must have fewer than 2^31 pairs.
    """
    sums = np.zeros((n_positions, 2, N_LIMBS), dtype=np.int64)
    for _, block in _split_blocks(cells, BLOCK_CELLS):
        rate, at_first = block.clicked / block.shown, block.position == 0
        of_first = np.full(len(block.pairs), np.nan)
        of_first[block.pattern[at_first]] = rate[at_first]
        both = ~np.isnan(of_first[block.pattern])
        position, pairs = block.position[both], block.pairs[block.pattern[both]].astype(np.int64)
        for side, values in enumerate((rate[both], of_first[block.pattern[both]])):
            for limb, whole in to_limbs(values).items():
                np.add.at(sums[:, side, limb], position, whole * pairs)
    return sums


def estimate_from_pairs(sums: IntArray) -> FloatArray:
    """Divide the sums of `sum_pairs`, shape (n_positions,); NaN without shared items or clicks at the first position.

    Agarwal, Zaitsev, Wang, Li, Najork and Joachims, WSDM 2019, doi:10.1145/3289600.3291017.
    """
    pairs = [[from_limbs(part) for part in both] for both in sums.tolist()]
    return np.array([float(here / first) if first else math.nan for here, first in pairs])


MOMENTS = Moments("a", "b", "aa", "ab", "bb", "squared")


class WeightedEstimate(NamedTuple):
    """Mean of weighted clicks with its uncertainty; None if it is not defined."""

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


def compute_query_states(reward: FloatArray, weight: FloatArray, squared: FloatArray) -> Limbs:
    """Return limbs of A, B, A^2, AB, B^2 and `squared` of each query, by their place in a state; states add up.

    `reward` is A, the sum of weight times click; `weight` is B, the sum of weights; `squared` the sum of their
    squares.
    """
    return MOMENTS.limbs(
        a=[reward], b=[weight], aa=[(reward, reward)], ab=[(reward, weight)], bb=[(weight, weight)], squared=[squared]
    )


def compute_estimates(state: IntArray, n_queries: int, *, confidence: float = 0.95) -> PropensityEstimates:
    """Compute estimates from the sum of all states, shape (MOMENTS.size,); each is rounded once from exact fractions.

    IPS is the mean of A; its standard error the sample standard deviation over sqrt(n). SNIPS is sum A / sum B; its
    standard error sqrt(sum (A - SNIPS B)^2) / sum B. n_eff is (sum w)^2 / sum w^2. Intervals are Student's. None for
    0 / 0, and for errors with fewer than two queries. SNIPS is valid only if the expected weight is 1, as with the
    logged probabilities of actions: otherwise sum B does not estimate the number of impressions.

    Swaminathan and Joachims, The self-normalized estimator for counterfactual learning, NeurIPS 2015.

    >>> w, r = np.array([1.0, 2.0, 5.0, 10.0]), np.array([1.0, 0.0, 1.0, 1.0])
    >>> states = compute_query_states(w * r, w, w * w)
    >>> estimates = compute_estimates(MOMENTS.states(states, 1, np.sum)[0], 4)
    >>> estimates.ips.value, round(estimates.snips.value, 12), round(estimates.n_eff, 12)
    (4.0, 0.888888888889, 2.492307692308)
    """
    a, b, aa, ab, bb, ww = MOMENTS.fractions(state).values()
    ips, snips, n_eff = NO_ESTIMATE, NO_ESTIMATE, None
    has_error, ratio = n_queries > 1, a / b if b else None
    half = t_quantile((1 + confidence) / 2, n_queries - 1) if has_error else math.nan
    if n_queries:
        spread = (aa - a * a / n_queries) / ((n_queries - 1) * n_queries) if has_error else None
        ips = _build_estimate(a / n_queries, spread, half)
    if ratio is not None:
        spread = (aa - 2 * ratio * ab + ratio * ratio * bb) / (b * b) if has_error else None
        snips, n_eff = _build_estimate(ratio, spread, half), float(b * b / ww)
    return PropensityEstimates(ips, snips, n_eff)


def _build_estimate(value: Fraction, variance: Fraction | None, half: float) -> WeightedEstimate:
    if variance is None:
        return WeightedEstimate(float(value), None, None, None)
    error = math.sqrt(float(variance))
    return WeightedEstimate(float(value), error, float(value) - half * error, float(value) + half * error)
