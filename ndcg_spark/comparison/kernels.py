"""The paired difference of two runs: its exact, mergeable state, estimates and p-values from it, and resampling.

The state of a group of queries, with weight w, value x of the baseline and y of the run, holds the sums of w, wx, wy;
of w^2, w^2 x, w^2 y, w^2 x^2, w^2 xy, w^2 y^2; and the sums that sign flips need. With clusters, the six squares are
those of each cluster's sums. All sums are exact (`core.exact`), so states of disjoint sets of queries merge by
adding.

The bootstrap weight and the sign of a query are hashes of the query, the seed and the purpose only. A query therefore
gets the same weights and signs in every run, metric, segment and night, on whatever worker its rows are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ndcg_spark.core.exact import LIMB_BITS, LOWEST_BIT, Limbs, Moments, check_size, refuse_small_weights, two_product
from ndcg_spark.core.ragged import FloatArray, IntArray
from ndcg_spark.core.student import t_quantile, two_sided_p
from ndcg_spark.errors import InputRefusedError

WordArray = NDArray[np.uint64]
ByteArray = NDArray[np.uint8]

BOOTSTRAP, SIGNS = 1, 2
"""Purposes of random numbers: each has its own independent stream."""
POISSON_COUNTS = (24109, 24110, 12055, 4017, 1005, 201, 34, 4, 1)
"""How many of the 2^16 values of 16 bits mean 0, 1, ..., 8 draws: Poisson(1), with mean and variance exactly 1."""
_CUTS = np.cumsum(POISSON_COUNTS[:-1]).astype(np.uint16)
_DRAWS_BY_BITS = np.repeat(np.arange(len(POISSON_COUNTS), dtype=np.uint8), POISSON_COUNTS)
_FREQUENT_CUTS = 4
_GOLDEN = 0x9E3779B97F4A7C15
_MIX_STEPS = ((np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB)))
_LAST_SHIFT = np.uint64(31)


def hash_words(hashes: WordArray, seed: int, purpose: int, n_words: int) -> WordArray:
    """Return words of 64 random bits for each hash, shape (n_keys, n_words).

    Steele, Lea and Flood, Fast splittable pseudorandom number generators, OOPSLA 2014, doi:10.1145/2660193.2660195.
    """
    salt = _mix_bits(np.array([(seed + purpose * _GOLDEN) % 2**64], dtype=np.uint64))
    steps = np.arange(1, n_words + 1, dtype=np.uint64) * np.uint64(_GOLDEN)
    return _mix_bits(_mix_bits(hashes ^ salt)[:, None] + steps)


def _mix_bits(words: WordArray) -> WordArray:
    """Mix the bits of words, in place."""
    shifted = np.empty_like(words)
    for bits, factor in _MIX_STEPS:
        np.right_shift(words, bits, out=shifted)
        np.bitwise_xor(words, shifted, out=words)
        np.multiply(words, factor, out=words)
    np.right_shift(words, _LAST_SHIFT, out=shifted)
    return np.bitwise_xor(words, shifted, out=words)


def poisson_weights(hashes: WordArray, seed: int, n_replicates: int) -> ByteArray:
    """Return how often each query is drawn in each replicate: 0 to 8, shape (n_keys, n_replicates).

    Over all words the counts are Poisson(1), with mean and variance exactly 1. Chamandy, Muralidharan, Najmi and
    Naidu, Estimating uncertainty for massive data streams, Google, 2012.

    >>> poisson_weights(np.array([0x9F1351CFBEA4F3F7], dtype=np.uint64), 42, 12).tolist()
    [[2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 0, 1]]
    """
    words = hash_words(hashes, seed, BOOTSTRAP, -(-n_replicates // 4))
    halves = words.astype("<u8", copy=False).view("<u2")
    # Comparing with the cuts takes half the time of a lookup. One number in 273 reaches the fifth cut.
    weights = (halves >= _CUTS[0]).view(np.uint8)
    for cut in _CUTS[1:_FREQUENT_CUTS]:
        np.add(weights, (halves >= cut).view(np.uint8), out=weights)
    rare = np.flatnonzero(halves >= _CUTS[_FREQUENT_CUTS])
    weights.reshape(-1)[rare] = _DRAWS_BY_BITS[halves.reshape(-1)[rare]]
    return np.asarray(weights[:, :n_replicates])


def sign_bits(hashes: WordArray, seed: int, n_flips: int) -> ByteArray:
    """Return the sign of each query in each random flip, 1 for minus and 0 for plus; shape (n_keys, n_flips).

    >>> sign_bits(np.array([0x9F1351CFBEA4F3F7], dtype=np.uint64), 42, 12).tolist()
    [[1, 1, 0, 0, 0, 1, 0, 0, 1, 0, 0, 1]]
    """
    words = hash_words(hashes, seed, SIGNS, -(-n_flips // 64))
    return np.unpackbits(words.astype("<u8", copy=False).view(np.uint8), axis=1, bitorder="little")[:, :n_flips]


def sum_draws(hashes: WordArray, columns: NDArray[np.float64], *, seed: int, n_replicates: int) -> IntArray:
    """Return the exact sums of bootstrap replicates, shape (n_columns, n_replicates): numbers times their draws.

    `columns`, shape (n_columns, n_keys), holds whole numbers below 2^32 in absolute value, such as limbs.
    """
    return _multiply_blocks(hashes, columns, n_replicates, lambda block: poisson_weights(block, seed, n_replicates))


def sum_flips(hashes: WordArray, columns: NDArray[np.float64], *, seed: int, n_flips: int) -> IntArray:
    """Return the exact sums over random sign flips: numbers of queries, as for `sum_draws`, times their signs."""
    minus = _multiply_blocks(hashes, columns, n_flips, lambda block: sign_bits(block, seed, n_flips))
    total = columns.astype(np.int64).sum(axis=1)
    return np.asarray(total[:, None] - 2 * minus)


_EXACT_ROWS = 2**18
"""Rows whose sum is exact in a double: numbers below 2^32, each drawn up to 8 times, add up to at most 2^53."""
_BLOCK_NUMBERS = 2**17
"""Doubles of a block, 1 MiB, which stay in the cache. With twice as many, BLAS starts threads, and a product then
takes six times as long if all cores are busy."""


def _multiply_blocks(
    hashes: WordArray,
    columns: NDArray[np.float64],
    width: int,
    numbers: Callable[[WordArray], ByteArray],
) -> IntArray:
    """Multiply columns by small whole numbers computed from the hashes, in blocks of queries."""
    total = np.zeros((len(columns), width), dtype=np.int64)
    if not len(columns) or not width:
        return total
    rows = min(max(_BLOCK_NUMBERS // width, 8), 1024)
    for first in range(0, len(hashes), _EXACT_ROWS):
        last = min(first + _EXACT_ROWS, len(hashes))
        exact = np.zeros((len(columns), width))
        for start in range(first, last, rows):
            block = slice(start, min(start + rows, last))
            exact += columns[:, block] @ numbers(hashes[block]).astype(np.float64)
        total += exact.astype(np.int64)
    return total


Ends: TypeAlias = tuple[float | None, float | None]
"""Ends of an interval; None if they are not defined."""
DRAWN = Moments("m", "a", "d", "aa", "ad", "dd")
"""Sums of a replicate: draws of units, their weights A and differences D, and the products of these."""
MAX_EXACT_UNITS = 16
"""The exact test tries all signs of up to this many differing units."""
SCALE = 1 << -LOWEST_BIT
_ROUNDING = 50
"""A spread below 2^-50 of the sum of squares is rounding error."""


def join_limbs(limbs: Limbs, size: int) -> NDArray[Any]:
    """Join limbs of shape (size,) to Python integers in units of 2^-256."""
    total = np.zeros(size, dtype=object)
    for place, limb in limbs.items():
        total = total + (limb.astype(object) << (LIMB_BITS * place))
    return total


def exact_flip_p(differences: Sequence[float], slack: Fraction) -> float:
    """Return the p-value of the exact sign-flip test, which tries all signs of the differences.

    At most `MAX_EXACT_UNITS` differences, none of them 0. The p-value is the share of sign vectors whose sum is at
    least as large in absolute value as the observed sum. Sums closer than `slack`, the possible error of rounded
    differences, count as equal. Fisher, The Design of Experiments, 1935, chapter 3.

    >>> exact_flip_p([0.25, 0.125, 0.125], Fraction(0))
    0.25
    """
    if not differences:
        return 1.0
    integers = [int(Fraction(difference) * SCALE) for difference in differences]
    threshold = abs(sum(integers)) - int(slack * SCALE)
    sums = np.array(integers[:1], dtype=object)  # the other half of the signs has the same sums, negative
    for integer in integers[1:]:
        sums = np.concatenate([sums + integer, sums - integer])
    return float(np.count_nonzero(np.abs(sums) >= threshold)) / len(sums)


def random_flip_p(sums: Limbs, observed: Fraction, slack: Fraction, n_flips: int) -> float:
    """Return the p-value of the sign-flip test from the sums under random signs; `slack` as for `exact_flip_p`.

    It is (1 + count) / (1 + n_flips), because the observed signs are one possible outcome. Phipson and Smyth,
    Permutation p-values should never be zero, Stat. Appl. Genet. Mol. Biol. 9(1), 2010.
    """
    threshold = abs(observed * SCALE) - slack * SCALE
    count = np.count_nonzero(np.abs(join_limbs(sums, n_flips)) >= math.ceil(threshold))
    return (1 + int(count)) / (1 + n_flips)


def bootstrap_statistics(
    drawn: dict[str, Limbs], difference: float, n_replicates: int
) -> tuple[FloatArray, FloatArray]:
    """Return the means of the replicates that drew a unit, and the t statistics of their distance from `difference`.

    `drawn` maps the names in `DRAWN` to sums, shape (n_replicates,); only `m`, `d` and `dd` if all weights are 1.
    Replicates with one draw, or without spread, have no t statistic. Efron and Tibshirani, An Introduction to the
    Bootstrap, 1993, section 12.5 (bootstrap-t).
    """
    sums = {name: join_limbs(limbs, n_replicates).tolist() for name, limbs in drawn.items()}
    draw_sums = sums["m"]
    means, t_statistics = [], []
    for r in range(n_replicates):
        m, d, dd = draw_sums[r] // SCALE, sums["d"][r], sums["dd"][r]
        a = sums["a"][r] if "a" in sums else draw_sums[r]
        aa = sums["aa"][r] if "aa" in sums else draw_sums[r]
        ad = sums["ad"][r] if "ad" in sums else d
        if a == 0:
            continue
        mean = d / a  # division of whole numbers rounds only once
        means.append(mean)
        # All sums but m are scaled: `spread` by SCALE^3 and a^4 by SCALE^4, so their ratio is multiplied by SCALE.
        spread = dd * a * a - 2 * d * ad * a + d * d * aa
        if m >= 2 and spread > dd * a * a >> _ROUNDING:
            std_error = math.sqrt(m * spread * SCALE / ((m - 1) * a**4))
            t_statistics.append((mean - difference) / std_error)
    return np.array(means), np.array(t_statistics)


def percentile_interval(means: FloatArray, *, alpha: float) -> Ends:
    """Return the percentile interval of a bootstrap at level 1 - alpha."""
    if not len(means):
        return None, None
    low, high = np.quantile(means, [alpha / 2, 1 - alpha / 2])
    return float(low), float(high)


def studentised_interval(t_statistics: FloatArray, difference: float, std_error: float, *, alpha: float) -> Ends:
    """Return the studentised interval of a bootstrap (bootstrap-t), from the t statistics of its replicates."""
    if not len(t_statistics):
        return None, None
    low, high = np.quantile(t_statistics, [alpha / 2, 1 - alpha / 2])
    return float(difference - high * std_error), float(difference - low * std_error)


SQUARES = Moments("ww", "wwx", "wwy", "wwxx", "wwxy", "wwyy")
SUMS = Moments("w", "wx", "wy", *SQUARES.names, "delta", "w_differ")
"""`delta`: weighted differences, rounded; `w_differ`: weights of the queries that differ."""
DELTA_STEP = 2.0**-32
_MAX_DELTA_STEPS = 2.0**63
MIN_QUERIES, MIN_CLUSTERS = 10, 50


def round_differences(x: FloatArray, y: FloatArray) -> FloatArray:
    """Return the difference y - x of each query, rounded to a whole multiple of 2^-32, half to even.

    A tie is 0.0, so values that differ by up to 2^-33 tie. Refuses differences of 2^31 or more.
    """
    steps = np.rint((y - x) / DELTA_STEP)
    if not np.abs(steps).max(initial=0.0) < _MAX_DELTA_STEPS:
        raise InputRefusedError("a difference of two values is not finite or too large to compare (limit 2^31).")
    return np.asarray(steps * DELTA_STEP)


def compute_states(x: FloatArray, y: FloatArray, weights: FloatArray | None, delta: FloatArray) -> Limbs:
    """Return the state of each query: limbs of shape (n_queries,), by their place in a state of `SUMS`.

    `x` and `y` are the values of the baseline and the run, `delta` is their `round_differences`. Without weights,
    `fill_unweighted` sets the places of w, w^2, w^2 x and w^2 y.
    """
    differ = (delta != 0).astype(np.float64)
    if weights is None:
        return SUMS.limbs(
            wx=[x], wy=[y], wwxx=[(x, x)], wwxy=[(x, y)], wwyy=[(y, y)], delta=[delta], w_differ=[differ]
        )
    check_size(weights)  # before arithmetic on infinities or NaN can warn
    wx, wy = two_product(weights, x), two_product(weights, y)
    return SUMS.limbs(
        w=[weights],
        wx=wx,
        wy=wy,
        ww=[(weights, weights)],
        wwx=[(weights, term) for term in wx],
        wwy=[(weights, term) for term in wy],
        wwxx=product(wx, wx),
        wwxy=product(wx, wy),
        wwyy=product(wy, wy),
        delta=[weights * delta],
        w_differ=[weights * differ],
    )


def cluster_squares(a: FloatArray, x: FloatArray, y: FloatArray) -> Limbs:
    """Return the squares of each cluster's sums of w, wx and wy, by their place in a state of `SQUARES`."""
    return SQUARES.limbs(ww=[(a, a)], wwx=[(a, x)], wwy=[(a, y)], wwxx=[(x, x)], wwxy=[(x, y)], wwyy=[(y, y)])


class Squares(NamedTuple):
    """Sums of squares over `n` units, which are queries or clusters."""

    n: int
    ww: Fraction
    wwx: Fraction
    wwy: Fraction
    wwxx: Fraction
    wwxy: Fraction
    wwyy: Fraction

    def spread(self, p: Fraction, q: Fraction, r: Fraction) -> Fraction:
        """Return the sum of (p X + q Y + r A)^2, at least 0, scaled by n / (n - 1).

        A, X and Y are the sums of w, wx and wy in a unit.
        """
        total = (
            p * p * self.wwxx
            + q * q * self.wwyy
            + r * r * self.ww
            + 2 * (p * q * self.wwxy + p * r * self.wwx + q * r * self.wwy)
        )
        return max(Fraction(0), total) * Fraction(self.n, self.n - 1)


def select_squares(sums: Mapping[str, Fraction], n: int) -> Squares:
    """Select the sums of squares among sums over n queries or clusters."""
    return Squares(n, **{name: sums[name] for name in SQUARES.names})


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedEstimate:
    """Estimates of a paired difference; None if an estimate is not defined."""

    value: float | None = None
    baseline_value: float | None = None
    difference: float | None = None
    weight_sum: float = 0.0
    std_error: float | None = None
    df: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    t: float | None = None
    p_value: float | None = None
    lift: float | None = None
    lift_low: float | None = None
    lift_high: float | None = None


def estimate_difference(
    sums: dict[str, Fraction], squares: Squares, *, alpha: float, lift: str = "fieller", no_spread: bool = False
) -> PairedEstimate:
    """Estimate the difference of two means over the same queries, with its error, interval, t-test and lift.

    The difference is (sum(wy) - sum(wx)) / sum(w). Its error is that of a regression on a constant, weighted by w,
    with HC1 errors, or clustered errors if `squares` are sums over clusters. `no_spread`: all differences are equal,
    and no test is made. MacKinnon and White, J. Econometrics 29, 1985 (HC1); Liang and Zeger, Biometrika 73(1), 1986
    (clusters); Fieller, Some problems in interval estimation, JRSS B 16(2), 1954 (lift).
    """
    w = sums["w"]
    if w == 0:
        return PairedEstimate()
    refuse_small_weights(w)
    x, y = sums["wx"] / w, sums["wy"] / w
    estimates = {"value": float(y), "baseline_value": float(x), "difference": float(y - x), "weight_sum": float(w)}
    ratio = y / x if x > 0 else None
    if ratio is not None:
        estimates["lift"] = float(ratio - 1)
    if squares.n < 2:
        return PairedEstimate(**estimates)
    quantile = t_quantile(1 - alpha / 2, squares.n - 1)
    std_error = 0.0 if no_spread else error_of_difference(sums, squares)
    half = quantile * std_error
    estimates |= {"std_error": std_error, "df": float(squares.n - 1)}
    estimates |= {"ci_low": estimates["difference"] - half, "ci_high": estimates["difference"] + half}
    if std_error > 0:
        estimates["t"] = estimates["difference"] / std_error
        estimates["p_value"] = two_sided_p(estimates["t"], squares.n - 1)
    if ratio is not None:
        ends = _fieller(x, y, w, squares, quantile) if lift == "fieller" else None
        if lift == "delta":
            half = quantile * lift_error(sums, squares)
            ends = (estimates["lift"] - half, estimates["lift"] + half)
        if ends is not None:
            estimates["lift_low"], estimates["lift_high"] = ends
    return PairedEstimate(**estimates)


def error_of_difference(sums: dict[str, Fraction], squares: Squares) -> float:
    """Return the standard error of the difference, sqrt(n/(n-1) sum((Y - X - difference A)^2)) / sum(w), n >= 2."""
    w = sums["w"]
    difference = (sums["wy"] - sums["wx"]) / w
    return math.sqrt(float(squares.spread(Fraction(-1), Fraction(1), -difference) / (w * w)))


def lift_error(sums: dict[str, Fraction], squares: Squares) -> float:
    """Return the standard error of the lift R - 1 by the delta method, sqrt(n/(n-1) sum((Y - R X)^2)) / sum(wx)."""
    wx = sums["wx"]
    return math.sqrt(float(squares.spread(-sums["wy"] / wx, Fraction(1), Fraction(0)) / (wx * wx)))


def _fieller(x: Fraction, y: Fraction, w: Fraction, squares: Squares, quantile: float) -> tuple[float, float] | None:
    """Return the roots R of (y - R x)^2 = t^2 var(y - R x), minus 1; None if they are not an interval."""
    variance_x = squares.spread(Fraction(1), Fraction(0), -x) / (w * w)
    variance_y = squares.spread(Fraction(0), Fraction(1), -y) / (w * w)
    variance_d = squares.spread(Fraction(-1), Fraction(1), x - y) / (w * w)
    covariance = (variance_x + variance_y - variance_d) / 2
    t2 = Fraction(quantile) ** 2
    a, b, c = x * x - t2 * variance_x, x * y - t2 * covariance, y * y - t2 * variance_y
    if a <= 0:
        return None
    half = math.sqrt(max(0.0, float((b * b - a * c) / (a * a))))
    return float(b / a - 1) - half, float(b / a - 1) + half


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Adjust p-values to bound the probability of any false finding; None, a test not made, is not counted.

    Holm, A simple sequentially rejective multiple test procedure, Scand. J. Statist. 6, 1979.

    >>> [round(p, 12) for p in holm([0.04, 0.001, 0.03])]
    [0.06, 0.003, 0.06]
    """
    known = _sort_p_values(p_values)
    adjusted: list[float | None] = [None] * len(p_values)
    highest = 0.0
    for rank, (p, position) in enumerate(known):
        highest = max(highest, min(1.0, (len(known) - rank) * p))
        adjusted[position] = highest
    return adjusted


def benjamini_hochberg(p_values: Sequence[float | None]) -> list[float | None]:
    """Adjust p-values to bound the expected share of false findings; None, a test not made, is not counted.

    Benjamini and Hochberg, Controlling the false discovery rate, JRSS B 57(1), 1995.

    >>> benjamini_hochberg([0.04, 0.001, None])
    [0.04, 0.002, None]
    """
    known = _sort_p_values(p_values)
    adjusted: list[float | None] = [None] * len(p_values)
    lowest = 1.0
    for rank, (p, position) in reversed(list(enumerate(known, start=1))):
        lowest = min(lowest, len(known) * p / rank)
        adjusted[position] = lowest
    return adjusted


def _sort_p_values(p_values: Sequence[float | None]) -> list[tuple[float, int]]:
    """Return the p-values of the tests that were made, smallest first, with their positions."""
    return sorted((p, position) for position, p in enumerate(p_values) if p is not None)
