"""Paired differences, resampling and power, against worked values and outside tools."""

from __future__ import annotations

import math
import sys
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from scipy import integrate, stats
from support.comparing import (
    COUNTRIES,
    QUERIES,
    USERS,
    W,
    X,
    Y,
    compute_state,
    estimate,
    example_2,
    hash_key,
    hash_keys,
)
from support.expectations import near

from ndcg_spark.comparison import kernels
from ndcg_spark.comparison.kernels import benjamini_hochberg, holm
from ndcg_spark.core import student
from ndcg_spark.core.exact import to_limbs
from ndcg_spark.errors import MissingPackageError

DE = np.array(COUNTRIES) == "DE"
US = np.array(COUNTRIES) == "US"


# ------------------------------------------------------------------------------------------------------ hashes


def test_keys_hash_as_the_definition_says():
    assert hash_key("q01") == 0x9F1351CFBEA4F3F7
    assert hash_key("s1", "shoes") == 0xBBC10728CE977E93


def test_words_weights_and_signs_of_the_worked_key():
    h = hash_keys(["q01"])
    assert kernels.hash_words(h.copy(), 42, 1, 1)[0, 0] == 0xB278CDD9A9DFC77D
    assert kernels.poisson_weights(h, 42, 12)[0].tolist() == [2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 0, 1]
    signs = "".join("-" if bit else "+" for bit in kernels.sign_bits(h, 42, 12)[0])
    assert signs == "--+++-++-++-"


def test_hashes_are_not_changed():
    h = hash_keys(QUERIES)
    before = h.copy()
    kernels.poisson_weights(h, 42, 10)
    kernels.sign_bits(h, 42, 10)
    assert (h == before).all()


def plain_words(h: int, seed: int, purpose: int, n: int) -> list[int]:
    """The definition, with Python's integers."""
    whole = 2**64 - 1

    def mix(z: int) -> int:
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & whole
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & whole
        return z ^ (z >> 31)

    golden = 0x9E3779B97F4A7C15
    base = mix(h ^ mix((seed + purpose * golden) & whole))
    return [mix((base + step * golden) & whole) for step in range(1, n + 1)]


def plain_weights(h: int, seed: int, n: int) -> list[int]:
    table = [count for count, times in enumerate(kernels.POISSON_COUNTS) for _ in range(times)]
    halves = [word >> shift & 0xFFFF for word in plain_words(h, seed, 1, -(-n // 4)) for shift in (0, 16, 32, 48)]
    return [table[half] for half in halves[:n]]


@pytest.mark.parametrize("seed", [0, 1, 2**63, 2**64 - 1])
def test_weights_and_signs_equal_the_definition(seed):
    h = hash_keys(["a", "b", ""])
    assert kernels.poisson_weights(h, seed, 131).tolist() == [plain_weights(int(element), seed, 131) for element in h]
    bits = [[w >> b & 1 for w in plain_words(int(element), seed, 2, 3) for b in range(64)][:131] for element in h]
    assert kernels.sign_bits(h, seed, 131).tolist() == bits


def test_the_table_is_poisson_with_mean_and_variance_1():
    counts = kernels.POISSON_COUNTS
    assert sum(counts) == 2**16
    assert sum(k * n for k, n in enumerate(counts)) == 2**16
    assert sum((k - 1) ** 2 * n for k, n in enumerate(counts)) == 2**16
    assert max(abs(n / 2**16 - stats.poisson.pmf(k, 1)) for k, n in enumerate(counts)) < 2e-5


def test_sums_of_replicates_are_exact_at_their_bounds():
    n = 3000
    h = hash_keys([str(i) for i in range(n)])
    columns = np.array([np.full(n, 2.0**32 - 1), np.arange(n) - 1500.0])
    weights = kernels.poisson_weights(h, 7, 70).astype(object)
    got = kernels.sum_draws(h, columns, seed=7, n_replicates=70)
    assert got.tolist() == (columns.astype(int).astype(object) @ weights).tolist()
    signs = 1 - 2 * kernels.sign_bits(h, 7, 70).astype(object)
    got = kernels.sum_flips(h, columns, seed=7, n_flips=70)
    assert got.tolist() == (columns.astype(int).astype(object) @ signs).tolist()


# ---------------------------------------------------------------------------------------------- example 1: moments


def test_sum_flips_is_exact_for_more_queries_than_a_sum_of_doubles():
    """2^21 numbers of almost 2^32 add up to 2^53, and more of them are rounded in doubles."""
    n, number = 2**21 + 3, 2**32 - 1
    hashes = np.arange(n, dtype=np.uint64)
    (signs,) = kernels.sign_bits(hashes, 5, 1).T
    n_minus = int(np.count_nonzero(signs))
    assert kernels.sum_flips(hashes, np.full((1, n), float(number)), seed=5, n_flips=1).tolist() == [
        [(n - 2 * n_minus) * number]
    ]


def test_example_1():
    actual = estimate(X, Y)
    assert (actual.baseline_value, actual.value) == (near(0.54), near(0.611666666667))
    assert (actual.difference, actual.std_error) == (near(0.071666666667), near(0.026135814663))
    assert (actual.t, actual.p_value, actual.df) == (near(2.742086580873), near(0.019159835596), 11)
    assert (actual.ci_low, actual.ci_high) == (near(0.014142126447), near(0.129191206886))
    assert actual.lift == near(0.132716049383)
    assert (actual.lift_low, actual.lift_high) == (near(0.021822497721), near(0.324287769832))
    by_delta = estimate(X, Y, lift="delta")
    assert (by_delta.lift_low, by_delta.lift_high) == (near(-0.004429402183), near(0.269861500949))


def test_the_error_of_the_lift_in_example_1():
    sums = kernels.SUMS.fractions(compute_state(X, Y))
    assert kernels.lift_error(sums, kernels.select_squares(sums, 12)) == near(0.062310938780)


def test_example_1_clustered():
    actual = estimate(X, Y, clusters=USERS)
    assert (actual.std_error, actual.p_value) == (near(0.034184728740), near(0.104069275444))
    assert estimate(X, Y, W, clusters=USERS).std_error == near(0.041480623065)
    assert (actual.std_error / estimate(X, Y).std_error) ** 2 == near(1.710772232491)


@pytest.mark.parametrize("seed", range(5))
def test_unweighted_estimates_are_those_of_ttest_rel(seed):
    rng = np.random.default_rng(seed)
    x, y = rng.random(200), rng.random(200)
    actual, expected = estimate(x, y), stats.ttest_rel(y, x)
    assert (actual.t, actual.p_value) == (pytest.approx(expected.statistic, rel=1e-11), near(expected.pvalue))
    interval = expected.confidence_interval()
    assert (actual.ci_low, actual.ci_high) == (near(interval.low), near(interval.high))


@pytest.mark.parametrize("seed", range(5))
def test_weighted_and_clustered_errors_are_those_of_statsmodels(seed):
    sm = pytest.importorskip("statsmodels.api")
    rng = np.random.default_rng(seed)
    x, y, w = rng.random(120), rng.random(120), rng.choice([0.5, 1.0, 3.25], 120)
    users = rng.integers(0, 20, 120)
    robust = sm.WLS(y - x, np.ones(120), weights=w).fit(cov_type="HC1", use_t=True)
    assert estimate(x, y, w).std_error == pytest.approx(robust.bse[0], rel=1e-11)
    for weights in (w, np.ones(120)):
        model = sm.WLS(y - x, np.ones(120), weights=weights)
        clustered = model.fit(cov_type="cluster", cov_kwds={"groups": users}, use_t=True)
        assert estimate(x, y, weights, clusters=list(users)).std_error == pytest.approx(clustered.bse[0], rel=1e-11)


def test_weights_of_one_change_nothing():
    assert estimate(X, Y, np.ones(12)) == estimate(X, Y)
    assert (compute_state(X, Y, np.ones(12)) == compute_state(X, Y)).all()


def test_states_of_parts_add_to_the_state_of_all():
    assert (compute_state(X[:5], Y[:5], W[:5]) + compute_state(X[5:], Y[5:], W[5:]) == compute_state(X, Y, W)).all()


def test_the_sums_are_exact():
    rng = np.random.default_rng(3)
    x, y, w = rng.random(50), 10 * rng.random(50), rng.random(50)
    sums = kernels.SUMS.fractions(compute_state(x, y, w))
    fx, fy, fw = ([Fraction(v) for v in values] for values in (x, y, w))
    assert sums["wwxy"] == sum(a * a * b * c for a, b, c in zip(fw, fx, fy, strict=True))
    assert sums["wwyy"] == sum(a * a * c * c for a, c in zip(fw, fy, strict=True))
    assert sums["wx"] == sum(a * b for a, b in zip(fw, fx, strict=True))
    assert sums["delta"] == sum(Fraction(v) for v in w * kernels.round_differences(x, y))


def test_a_baseline_of_zeros_has_no_lift():
    actual = estimate(np.zeros(3), Y[:3])
    assert (actual.lift, actual.lift_low) == (None, None)


def test_a_baseline_that_may_be_zero_has_no_interval_of_fieller():
    actual = estimate(np.array([0.9, 0, 0, 0]), Y[:4])
    assert actual.lift is not None
    assert actual.lift_low is None


# --------------------------------------------------------------------------------------------------- sign flips


def flips(x, y, n_flips=9999, seed=42, keys=QUERIES):
    delta = kernels.round_differences(x, y)
    limbs = to_limbs(delta)
    h = hash_keys(list(keys))
    columns = np.array([limb.astype(np.float64) for limb in limbs.values()]).reshape(len(limbs), len(h))
    sums = dict(zip(limbs, kernels.sum_flips(h, columns, seed=seed, n_flips=n_flips), strict=True))
    slack = Fraction(int((delta != 0).sum())) * Fraction(kernels.DELTA_STEP)
    return kernels.random_flip_p(sums, sum(map(Fraction, delta)), slack, n_flips)


def exact_flips(x, y):
    delta = kernels.round_differences(x, y)
    differ = [float(element) for element in delta if element]
    return kernels.exact_flip_p(differ, Fraction(len(differ)) * Fraction(kernels.DELTA_STEP))


def test_sign_flips_of_example_1():
    assert exact_flips(X, Y) == 0.021484375
    assert flips(X, Y) == near(0.0229)
    assert exact_flips(X[DE], Y[DE]) == 0.0625
    assert exact_flips(X[US], Y[US]) == 0.75


def test_sign_flips_of_clusters():
    sums = [
        sum(d for d, user in zip(kernels.round_differences(X, Y), USERS, strict=True) if user == element)
        for element in set(USERS)
    ]
    assert kernels.exact_flip_p(sums, 10 * Fraction(kernels.DELTA_STEP)) == 0.0625


def test_exact_sign_flips_are_those_of_scipy():
    expected = stats.permutation_test(
        (X, Y), lambda a, b: np.mean(b - a), permutation_type="samples", n_resamples=np.inf
    )
    assert exact_flips(X, Y) == expected.pvalue


@pytest.mark.parametrize("seed", range(10))
def test_exact_sign_flips_try_all_signs(seed):
    rng = np.random.default_rng(seed)
    values = [float(v) for v in rng.choice([-2, -1, 1, 2, 3], 9) / 8]
    sums = [abs(sum(s * v for s, v in zip(signs, values, strict=True))) for signs in product((1, -1), repeat=9)]
    assert kernels.exact_flip_p(values, Fraction(0)) == sum(s >= abs(sum(values)) for s in sums) / 512


def test_no_difference_at_all_has_the_p_value_1():
    assert kernels.exact_flip_p([], Fraction(0)) == 1.0
    assert flips(X, X, n_flips=99) == 1.0


# ---------------------------------------------------------------------------------------------------- bootstrap


def drawn(h, a, d, n_replicates, seed=42):
    numbers = {"m": np.ones(len(h)), "a": a, "d": d, "aa": a * a, "ad": a * d, "dd": d * d}
    actual = {}
    for name, values in numbers.items():
        limbs = to_limbs(values)
        columns = np.array([limb.astype(np.float64) for limb in limbs.values()])
        sums = kernels.sum_draws(h, columns, seed=seed, n_replicates=n_replicates)
        actual[name] = dict(zip(limbs, sums, strict=True))
    return actual


def bootstrap(x, y, keys, n_replicates=1000):
    actual = estimate(x, y)
    sums = drawn(hash_keys(list(keys)), np.ones(len(x)), kernels.round_differences(x, y), n_replicates)
    means, t_statistics = kernels.bootstrap_statistics(sums, actual.difference, n_replicates)
    studentised = kernels.studentised_interval(t_statistics, actual.difference, actual.std_error, alpha=0.05)
    return kernels.percentile_interval(means, alpha=0.05), studentised, sums


def test_bootstrap_of_example_1():
    percentile, studentised, sums = bootstrap(X, Y, QUERIES)
    assert percentile == (near(0.022714646424), near(0.123346153921))
    assert studentised == (near(0.020274137492), near(0.133892227294))
    assert kernels.join_limbs(sums["m"], 1000)[0] == 15 * kernels.SCALE
    assert kernels.join_limbs(sums["d"], 1000)[0] * 2**32 == 5282809773 * kernels.SCALE


def test_bootstrap_of_clusters():
    users = sorted(set(USERS))
    at = [np.array(USERS) == user for user in users]
    a, d = np.array([element.sum() for element in at], dtype=float), kernels.round_differences(X, Y)
    sums = drawn(hash_keys(users), a, np.array([d[element].sum() for element in at]), 1000)
    means, _ = kernels.bootstrap_statistics(sums, 0.0716666666666667, 1000)
    assert kernels.percentile_interval(means, alpha=0.05) == (near(0.027944444441), near(0.146208333347))


def test_units_without_weights_need_three_sums():
    sums = drawn(hash_keys(QUERIES), np.ones(12), kernels.round_differences(X, Y), 100)
    few = {name: sums[name] for name in ("m", "d", "dd")}
    for one, other in zip(
        kernels.bootstrap_statistics(sums, 0.07, 100), kernels.bootstrap_statistics(few, 0.07, 100), strict=True
    ):
        assert (one == other).all()


def test_a_replicate_is_the_estimate_of_queries_repeated():
    sums = drawn(hash_keys(QUERIES), W, W * kernels.round_differences(X, Y), 20)
    means, t_statistics = kernels.bootstrap_statistics(sums, 0.065, 20)
    weights = kernels.poisson_weights(hash_keys(QUERIES), 42, 20)
    for r in range(20):
        again = np.repeat(np.arange(12), weights[:, r])
        expected = estimate(X[again], Y[again], W[again])
        assert means[r] == pytest.approx(expected.difference, abs=1e-9)
        assert t_statistics[r] == pytest.approx((expected.difference - 0.065) / expected.std_error, rel=1e-7)


def test_example_2():
    keys, x, y = example_2()
    actual = estimate(x, y)
    assert (actual.difference, actual.std_error) == (near(0.006758690341), near(0.003050929414))
    assert actual.p_value == near(0.027190978007)
    assert flips(x, y, keys=keys) == near(0.0282)
    percentile, studentised, _ = bootstrap(x, y, keys)
    assert percentile == (near(0.000607763414), near(0.012962830640))
    assert studentised == (near(0.000642763461), near(0.012807337028))
    other = stats.bootstrap((y - x,), np.mean, n_resamples=9999, method="percentile", rng=1).confidence_interval
    allowed = 4 * np.sqrt(0.0244 * (1 / 1000 + 1 / 9999)) / 0.0584 * actual.std_error
    assert abs(percentile[0] - other.low) < allowed
    assert abs(percentile[1] - other.high) < allowed


# --------------------------------------------------------------------------------- many comparisons, power, runs

P = [0.001, 0.008, 0.012, 0.02, 0.04, 0.3]


def test_holm_and_benjamini_hochberg():
    assert holm(P) == pytest.approx([0.006, 0.04, 0.048, 0.06, 0.08, 0.3], abs=1e-12)
    assert benjamini_hochberg(P) == pytest.approx([0.006, 0.024, 0.024, 0.03, 0.048, 0.3], abs=1e-12)


@pytest.mark.parametrize("seed", range(10))
def test_adjusted_p_values_are_those_of_statsmodels(seed):
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    p = np.round(np.random.default_rng(seed).random(30) ** 3, 2).tolist()
    assert holm(p) == pytest.approx(multitest.multipletests(p, method="holm")[1], abs=1e-12)
    assert benjamini_hochberg(p) == pytest.approx(multitest.multipletests(p, method="fdr_bh")[1], abs=1e-12)


def test_a_null_p_value_stays_null_and_does_not_count():
    assert holm([None, 0.02, 0.5]) == [None, 0.04, 0.5]
    assert benjamini_hochberg([0.02, None, 0.5]) == [0.04, None, 0.5]


def test_power_of_example_1():
    error = estimate(X, Y).std_error
    shift = student.detectable_effect(1.0, 11, alpha=0.05)
    assert shift == near(3.078388675702)
    assert student.detectable_effect(error, 11, alpha=0.05) == near(0.080456195888)
    assert student.power(0.05, error, 11, alpha=0.05) == near(0.415487174027)
    assert student.required_units(0.02, error, 12, alpha=0.05) == 163
    assert student.detectable_effect(error, 11, alpha=0.9) == 0  # which no effect at all is found with
    actual = estimate(X, Y)
    assert student.upper_p((actual.difference + 0.01) / actual.std_error, 11) == near(0.004834274074)


def test_power_is_that_of_statsmodels():
    tools = pytest.importorskip("statsmodels.stats.power")
    expected = tools.TTestPower().power(effect_size=0.2, nobs=120, alpha=0.05)
    assert student.power(0.2, 120**-0.5, 119, alpha=0.05) == pytest.approx(expected, abs=1e-9)
    effect = tools.TTestPower().solve_power(nobs=120, alpha=0.05, power=0.8)
    assert student.detectable_effect(120**-0.5, 119, alpha=0.05) == pytest.approx(effect, rel=1e-6)


@pytest.mark.parametrize("df", [1, 2, 1e4, 1e7])
def test_a_detectable_effect_is_found_with_its_power(df):
    effect = student.detectable_effect(0.25, df, alpha=0.05)
    assert student.power(effect, 0.25, df, alpha=0.05) == pytest.approx(0.8, abs=1e-6)


@pytest.mark.parametrize(("df", "alpha"), [(3, 0.01), (7, 0.001), (11, 0.001), (50, 0.001), (3, 0.001)])
def test_a_detectable_effect_at_low_levels(df, alpha):
    """The power by its definition: |Z + effect| > limit S, where S is the root of chi-squared over df."""
    effect, limit = student.detectable_effect(1.0, df, alpha=alpha), stats.t.ppf(1 - alpha / 2, df)

    def actual(s):
        density = stats.chi.pdf(s * df**0.5, df) * df**0.5
        return (stats.norm.sf(limit * s - effect) + stats.norm.cdf(-limit * s - effect)) * density

    assert sum(integrate.quad(actual, *ends)[0] for ends in ((0, 1), (1, 9))) == pytest.approx(0.8, abs=1e-9)


@pytest.mark.parametrize("df", [1, 2, 3, 11, 119, 10**6])
def test_probabilities_and_quantiles_of_t_have_the_bits_of_scipy(df):
    for t in (0.0, 1e-300, 0.1, 1.96, 3.3, 40.0, 1e5, math.inf):
        assert student.two_sided_p(-t, df) == 2 * stats.t.sf(t, df)
        assert [student.upper_p(sign * t, df) for sign in (1, -1)] == [stats.t.sf(t, df), stats.t.sf(-t, df)]
    for level in (1e-9, 0.05, 0.5, 0.975, 0.9995, 1.0):
        assert student.t_quantile(level, df) == stats.t.ppf(level, df)


def test_without_scipy_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'ndcg-spark\[compare\]'"):
        student.require_scipy()
