"""The position-based click model: P(click) = t(position) * g(query, item), fitted by EM to counts.

Only the product t * g can be told from clicks, so propensities are t relative to that of the first position, and only
for positions that a chain of shared items links to it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ndcg_spark.errors import InvalidParameterError
from ndcg_spark.kernels.ragged import BoolArray, FloatArray, IntArray


class Cells(NamedTuple):
    """Impressions and clicks by (query, item) and position.

    Parameters
    ----------
    pair : int64, shape (n_cells,)
        Number of the (query, item), from 0.
    position : int64, shape (n_cells,)
        Number of the position, from 0; 0 is the first.
    shown, clicked : float64, shape (n_cells,)
        Whole numbers; 0 <= clicked <= shown, shown > 0.
    """

    pair: IntArray
    position: IntArray
    shown: FloatArray
    clicked: FloatArray


class ClickModel(NamedTuple):
    """A fitted model.

    Parameters
    ----------
    propensity : float64, shape (n_positions,)
        t_k / t_1, at most 1; NaN where it cannot be told from clicks.
    above_one : bool, shape (n_positions,)
        Where the fit was above 1, and 1 was taken.
    log_likelihood : float64, shape (n_iterations + 1,)
        At the start and after each iteration; it never falls.
    converged : bool
        Whether no t_k / t_1 moved by the tolerance in the last iteration.
    """

    propensity: FloatArray
    above_one: BoolArray
    log_likelihood: FloatArray
    converged: bool


def fit_click_model(cells: Cells, *, tolerance: float = 1e-6, max_iter: int = 1000) -> ClickModel:
    """Fit examination and attractiveness by expectation maximisation, both from 0.5.

    Parameters
    ----------
    cells : Cells
    tolerance : float
        Above 0. EM takes small steps: a step of this size does not mean that the limit is as near.
    max_iter : int
        At least 1.

    Returns
    -------
    ClickModel

    Raises
    ------
    InvalidParameterError

    References
    ----------
    Wang, Golbandi, Bendersky, Metzler and Najork, WSDM 2018, doi:10.1145/3159652.3159732.
    """
    if not tolerance > 0:
        raise InvalidParameterError(f"tolerance must be above 0; got {tolerance:g}.")
    if max_iter < 1:
        raise InvalidParameterError(f"max_iter must be at least 1; got {max_iter}.")
    order = np.lexsort((cells.position, cells.pair))  # sums then do not depend on the order of cells
    cells = Cells(cells.pair[order], cells.position[order], cells.shown[order], cells.clicked[order])
    n_positions, n_pairs = int(cells.position.max(initial=0)) + 1, int(cells.pair.max(initial=-1)) + 1
    known = linked_positions(cells)
    examined, attractive = np.full(n_positions, 0.5), np.full(n_pairs, 0.5)
    likelihood = [log_likelihood(cells, examined, attractive)]
    converged = False
    while not converged and len(likelihood) <= max_iter:
        before = examined
        examined, attractive = em_step(cells, examined, attractive)
        likelihood.append(log_likelihood(cells, examined, attractive))
        moved = np.abs(examined / examined[0] - before / before[0]) if examined[0] > 0 else np.zeros(n_positions)
        converged = bool((moved[known] < tolerance).all())
    ratio = np.full(n_positions, np.nan)
    if examined[0] > 0:
        ratio[known] = examined[known] / examined[0]
    return ClickModel(np.minimum(ratio, 1.0), ratio > 1, np.array(likelihood), converged)


def em_step(cells: Cells, examined: FloatArray, attractive: FloatArray) -> tuple[FloatArray, FloatArray]:
    """One step of EM.

    Parameters
    ----------
    cells : Cells
    examined : float64, shape (n_positions,)
        t.
    attractive : float64, shape (n_pairs,)
        g.

    Returns
    -------
    tuple of float64 arrays
        New t and g. A position without cells keeps its t.
    """
    t, g = examined[cells.position], attractive[cells.pair]
    missed = np.zeros(len(t))
    some = cells.shown > cells.clicked
    missed[some] = (cells.shown - cells.clicked)[some] / (1 - t * g)[some]
    by_position = np.bincount(cells.position, cells.clicked + missed * t * (1 - g), minlength=len(examined))
    by_pair = np.bincount(cells.pair, cells.clicked + missed * (1 - t) * g, minlength=len(attractive))
    shown_at = np.bincount(cells.position, cells.shown, minlength=len(examined))
    shown_of = np.bincount(cells.pair, cells.shown, minlength=len(attractive))
    there = shown_at > 0
    moved = examined.copy()
    moved[there] = by_position[there] / shown_at[there]
    return moved, by_pair / shown_of


def log_likelihood(cells: Cells, examined: FloatArray, attractive: FloatArray) -> float:
    """Logarithm of the probability of the clicks, up to binomial coefficients.

    Parameters
    ----------
    cells : Cells
    examined : float64, shape (n_positions,)
    attractive : float64, shape (n_pairs,)

    Returns
    -------
    float
    """
    p = examined[cells.position] * attractive[cells.pair]
    clicked, missed = cells.clicked > 0, cells.shown > cells.clicked
    found = (cells.clicked[clicked] * np.log(p[clicked])).sum()
    return float(found + ((cells.shown - cells.clicked)[missed] * np.log1p(-p[missed])).sum())


def linked_positions(cells: Cells) -> BoolArray:
    """Positions that a chain of (query, item) shown at two positions links to the first.

    Parameters
    ----------
    cells : Cells

    Returns
    -------
    bool, shape (n_positions,)

    Examples
    --------
    >>> one = np.ones(4)
    >>> linked_positions(Cells(np.array([0, 0, 1, 2]), np.array([0, 2, 2, 1]), one, one)).tolist()
    [True, False, True]
    """
    linked = np.zeros(int(cells.position.max(initial=0)) + 1, dtype=np.bool_)
    linked[0] = True
    pairs = np.zeros(int(cells.pair.max(initial=-1)) + 1, dtype=np.bool_)
    while True:
        pairs[cells.pair[linked[cells.position]]] = True
        reached = linked.copy()
        reached[cells.position[pairs[cells.pair]]] = True
        if (reached == linked).all():
            return linked
        linked = reached


def randomized_propensities(cells: Cells) -> FloatArray:
    """Propensities from traffic whose order was shuffled: the click-through at a position over that at the first.

    Parameters
    ----------
    cells : Cells

    Returns
    -------
    float64, shape (n_positions,)
        NaN for a position that was not shown, and where the first has no clicks.
    """
    shown = np.bincount(cells.position, cells.shown)
    clicked = np.bincount(cells.position, cells.clicked)
    with np.errstate(invalid="ignore", divide="ignore"):
        rate = clicked / shown
        return rate / rate[0] if len(rate) and rate[0] > 0 else np.full(len(rate), np.nan)


def pair_propensities(cells: Cells) -> FloatArray:
    """Propensities from items shown at position k and at the first: sums of their click-through, divided.

    Parameters
    ----------
    cells : Cells
        Each (pair, position) once.

    Returns
    -------
    float64, shape (n_positions,)
        NaN where no (query, item) was shown at both, and where those at the first have no clicks.

    References
    ----------
    Agarwal, Zaitsev, Wang, Li, Najork and Joachims, WSDM 2019, doi:10.1145/3289600.3291017.
    """
    n_positions, n_pairs = int(cells.position.max(initial=0)) + 1, int(cells.pair.max(initial=-1)) + 1
    rate = np.full((n_pairs, n_positions), np.nan)
    rate[cells.pair, cells.position] = cells.clicked / cells.shown
    found = np.full(n_positions, np.nan)
    for k in range(n_positions):
        both = ~np.isnan(rate[:, 0]) & ~np.isnan(rate[:, k])
        at_first = rate[both, 0].sum()
        if at_first > 0:
            found[k] = rate[both, k].sum() / at_first
    return found
