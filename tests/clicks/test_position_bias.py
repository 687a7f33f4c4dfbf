"""Position bias: worked values; simulated clicks for which naive labels are wrong and weighted ones are right."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats
from support.clicks import N_ITEMS, N_QUERIES, hash_uniform, simulate_clicks

from ndcg_spark.clicks.kernels import (
    MOMENTS,
    Cells,
    Expectation,
    StepSums,
    add_totals,
    compute_estimates,
    compute_query_states,
    count_totals,
    estimate_from_pairs,
    estimate_from_randomized,
    fit_click_model,
    sum_pairs,
)

NEAR = {"abs": 1e-12, "rel": 0}


def compute_state(reward, weight, squared):
    return MOMENTS.states(compute_query_states(reward, weight, squared), 1, np.sum)[0]


@pytest.mark.parametrize(
    ("clip", "ips", "snips", "n_eff"),
    [
        (None, (4, 2.273030282831), (0.888888888889, 0.120647038801), 2.492307692308),
        (4.0, (2.25, 1.030776406404), (0.818181818182, 0.176480632265), 3.270270270270),
    ],
)
def test_the_worked_values(clip, ips, snips, n_eff):
    """SNIPS as computed by obp 0.4.1, the rest by definition."""
    w, r = np.minimum([1.0, 2, 5, 10], clip or math.inf), np.array([1.0, 0, 1, 1])
    actual = compute_estimates(compute_state(w * r, w, w * w), 4)
    assert actual.ips[:2] == pytest.approx(ips, **NEAR)
    assert actual.snips[:2] == pytest.approx(snips, **NEAR)
    assert actual.n_eff == pytest.approx(n_eff, **NEAR)
    for estimate in (actual.ips, actual.snips):  # Student's t with 3 degrees of freedom: 3.182446305284
        assert estimate.ci_high - estimate.value == pytest.approx(3.182446305284 * estimate.std_error, abs=1e-11)


@pytest.mark.parametrize("n_queries", [2, 30])
def test_the_interval_of_ips_is_that_of_a_t_test(n_queries):
    """Expected: SciPy's ttest_1samp on the sums of the queries."""
    reward = np.random.default_rng(n_queries).exponential(size=n_queries)
    ones = np.ones(n_queries)
    expected = stats.ttest_1samp(reward, 0).confidence_interval(0.9)
    actual = compute_estimates(compute_state(reward, ones, ones), n_queries, confidence=0.9).ips
    assert (actual.ci_low, actual.ci_high) == pytest.approx((expected.low, expected.high), **NEAR)


def test_estimate_of_no_queries_is_none():
    zero = np.zeros(MOMENTS.size, dtype=np.int64)
    assert compute_estimates(zero, 0) == ((None,) * 4, (None,) * 4, None)
    ones = np.ones(1)
    actual = compute_estimates(compute_state(ones, ones, ones), 1)
    assert actual.ips == actual.snips == (1.0, None, None, None)


@pytest.mark.parametrize("seed", range(5))
def test_states_add_up_to_the_same_bits_in_any_order(seed):
    generator = np.random.default_rng(seed)
    w = 1 / generator.random(200)
    a = w * generator.random(200)
    whole, order = compute_state(a, w, w * w), generator.permutation(200)
    first, rest = order[:70], order[70:]
    parts = [compute_state(a[at], w[at], (w * w)[at]) for at in (first, rest)]
    assert (parts[0] + parts[1] == whole).all()
    exact = sum(map(Fraction, a.tolist())) / sum(map(Fraction, w.tolist()))
    assert compute_estimates(whole, 200).snips.value == float(exact)


# -------------------------------------------------------------------------------------------------- simulation


def test_simulated_clicks_have_known_counts():
    assert hash_uniform(7, "click", 0, 0, 0) == pytest.approx(0.688190948739, **NEAR)
    rows = simulate_clicks().rows
    assert (len(rows), rows[:, 3].sum()) == (60000, 13174)


def fit(cells, **options):
    n_positions = int(cells.position.max()) + 1
    totals = count_totals(cells, n_positions)
    return fit_click_model(totals, Expectation(cells, n_positions, int(totals.shown.sum())).step, **options)


@pytest.fixture(scope="module")
def fitted():
    return fit(simulate_clicks().cells(), tolerance=1e-9, max_iter=5000)


def test_the_fitted_propensities(fitted):
    """Expected: SciPy's L-BFGS, which agrees to 1e-6."""
    assert fitted.ratio[[0, 1, 4]] == pytest.approx([1, 0.494810392287, 0.179822679039], **NEAR)
    assert fitted.converged
    assert (fitted.ratio[1:] < 1).all()


@pytest.mark.parametrize(("tolerance", "steps"), [(1e-6, 569), (1e-9, 2696)])
def test_fit_click_model_number_of_steps(tolerance, steps):
    actual = fit(simulate_clicks().cells(), tolerance=tolerance, max_iter=5000)
    assert len(actual.log_likelihood) - 1 == steps


def test_the_likelihood_never_falls(fitted):
    # A step near the limit adds less than the sum of 1,500 logarithms can show.
    assert (np.diff(fitted.log_likelihood) >= -1e-9).all()
    assert fitted.log_likelihood[-1] > fitted.log_likelihood[0]


def test_fit_click_model_reports_no_convergence():
    actual = fit(simulate_clicks().cells(), max_iter=3)
    assert (actual.converged, len(actual.log_likelihood)) == (False, 4)


def test_propensities_of_shuffled_traffic():
    actual = estimate_from_randomized(count_totals(simulate_clicks().cells(explored_only=True), N_ITEMS))
    assert actual[[1, 4]] == pytest.approx([0.481260647359, 0.189097103918], **NEAR)


def test_propensities_of_items_at_two_positions():
    """Expected: ultr-bias-toolkit 0.0.5."""
    actual = estimate_from_pairs(sum_pairs(simulate_clicks().cells(), N_ITEMS))
    assert actual[[1, 4]] == pytest.approx([0.477104599911, 0.194416208472], **NEAR)


def compare_rankings(labels):
    """Return mean DCG@5 of rankings A and B with gain = label, and the interval of B - A over queries."""
    discount = 1 / np.log2(np.arange(2, N_ITEMS + 2))
    simulated = simulate_clicks()
    a, b = (
        np.array([labels[q, order[q]] @ discount for q in range(N_QUERIES)])
        for order in (simulated.order_a, simulated.order_b)
    )
    error = (b - a).std(ddof=1) / math.sqrt(N_QUERIES)
    middle = (b - a).mean()
    return a.mean(), b.mean(), middle, middle - 1.959963984540 * error, middle + 1.959963984540 * error


def compute_labels(propensity):
    rows = simulate_clicks().rows
    labels, shown = np.zeros((2, N_QUERIES, N_ITEMS))
    np.add.at(labels, (rows[:, 0], rows[:, 1]), rows[:, 3] / propensity[rows[:, 2]])
    np.add.at(shown, (rows[:, 0], rows[:, 1]), 1)
    return labels / shown


def test_naive_labels_are_biased_and_weighted_ones_are_not(fitted):
    truth = compare_rankings(simulate_clicks().truth)
    assert truth[:3] == pytest.approx([1.422973601954, 1.593985502497, 0.171011900543], **NEAR)
    naive = compare_rankings(compute_labels(np.ones(N_ITEMS)))
    weighted = compare_rankings(compute_labels(1 / np.arange(1.0, N_ITEMS + 1)))
    by_em = compare_rankings(compute_labels(fitted.ratio))
    assert naive == pytest.approx(
        [0.784240957374, 0.738001195846, -0.046239761527, -0.069475500283, -0.023004022772], **NEAR
    )
    assert weighted == pytest.approx(
        [1.404291745490, 1.562393497756, 0.158101752265, 0.119690244103, 0.196513260427], **NEAR
    )
    assert by_em[:3] == pytest.approx([1.437604274189, 1.607836677112, 0.170232402923], abs=1e-9)
    assert naive[4] < truth[2]  # the truth is outside
    assert all(actual[3] < truth[2] < actual[4] for actual in (weighted, by_em))


# --------------------------------------------------------------------------------------------- what can be told


def test_positions_without_a_shared_item_have_no_ratio():
    cells = Cells(np.array([0, 0, 1]), np.array([0, 1, 2]), np.full(3, 10.0), np.array([5.0, 3.0, 2.0]), np.ones(2))
    assert count_totals(cells, 3).linked.tolist() == [True, True, False]
    assert np.isnan(fit(cells).ratio).tolist() == [False, False, True]


def test_a_chain_through_other_positions_links():
    pattern, position, ten = np.array([0, 0, 1, 1, 2]), np.array([2, 3, 0, 3, 1]), np.full(5, 10.0)
    cells = Cells(pattern, position, ten, ten / 2, np.ones(3))
    assert count_totals(cells, 4).linked.tolist() == [True, False, True, True]
    halves = [count_totals(half_cells, 4) for half_cells in split_cells(cells, np.array([1, 0, 0]))]
    assert [half.linked.tolist() for half in halves] == [[True, False, False, True], [False] * 4]
    assert add_totals(*halves).linked.tolist() == [True, False, True, True]


def test_a_ratio_may_be_above_one():
    cells = Cells(np.zeros(2, int), np.array([0, 1]), np.full(2, 10.0), np.array([2.0, 8.0]), np.ones(1))
    actual = fit(cells, max_iter=100)
    assert actual.ratio[1] > 1


def test_no_propensities_without_clicks_at_the_first_position():
    cells = Cells(np.zeros(2, int), np.array([0, 1]), np.full(2, 10.0), np.array([0.0, 8.0]), np.ones(1))
    assert np.isnan(fit(cells).ratio).all()
    assert np.isnan(estimate_from_randomized(count_totals(cells, 2))).all()
    assert np.isnan(estimate_from_pairs(sum_pairs(cells, 2))).all()


def split_cells(cells, part):
    """Split cells into the patterns of part 0 and part 1, renumbered."""
    halves = []
    for which in (0, 1):
        is_part = part[cells.pattern] == which
        number = np.cumsum(part == which) - 1
        columns = (
            number[cells.pattern[is_part]],
            *(column[is_part] for column in cells[1:4]),
            cells.pairs[part == which],
        )
        halves.append(Cells(*columns))
    return halves


@pytest.mark.parametrize("block", [1, 100, 1 << 16])
def test_two_workers_in_any_order_and_blocks_of_any_size_give_the_same_bits(block):
    cells = simulate_clicks().cells()
    expected = fit(cells, max_iter=50)
    order = np.random.default_rng(block).permutation(len(cells.pairs))  # pattern p becomes order[p]
    moved = np.argsort(order[cells.pattern], kind="stable")
    turned = Cells(order[cells.pattern][moved], *(column[moved] for column in cells[1:4]), cells.pairs)
    parts = split_cells(turned, (np.arange(len(order)) % 3 == 0).astype(int))
    totals = add_totals(*(count_totals(part, N_ITEMS, block_cells=block) for part in parts))
    workers = [Expectation(part, N_ITEMS, int(totals.shown.sum()), block_cells=block) for part in parts]

    def step(examined):
        first, second = (worker.step(examined) for worker in workers)
        return StepSums(first.seen + second.seen, first.log_likelihood + second.log_likelihood)

    actual = fit_click_model(totals, step, max_iter=50)
    assert actual.ratio.tolist() == expected.ratio.tolist()
    assert actual.log_likelihood.tolist() == expected.log_likelihood.tolist()


def test_equal_pairs_are_one_pattern():
    shown, clicked = np.array([5.0, 4.0]), np.array([3.0, 1.0])
    cells = Cells(np.zeros(2, int), np.arange(2), shown, clicked, np.array([3.0]))
    three = Cells(np.repeat(np.arange(3), 2), np.tile([0, 1], 3), np.tile(shown, 3), np.tile(clicked, 3), np.ones(3))
    assert fit(cells, max_iter=20).ratio.tolist() == fit(three, max_iter=20).ratio.tolist()
    assert (sum_pairs(cells, 2) == sum_pairs(three, 2)).all()


def test_clicks_on_every_impression():
    cells = Cells(np.zeros(2, int), np.array([0, 1]), np.full(2, 4.0), np.full(2, 4.0), np.ones(1))
    assert fit(cells).ratio.tolist() == [1.0, 1.0]
