"""How lists spread over a catalogue: from how many items were listed how often.

The state is a histogram: so many items were in so many lists. It stays small for any catalogue. Counts per item merge
by adding them, histograms of disjoint sets of items by adding those.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple


class Exposure(NamedTuple):
    """Exposures of the items of a catalogue.

    Parameters
    ----------
    items_by_count : dict from int to int
        How many items of the catalogue are in how many lists, for each number of lists above 0.
    n_items : int
        Items of the catalogue, listed or not.
    outside : int
        Places in lists that are filled by items outside the catalogue.
    """

    items_by_count: dict[int, int]
    n_items: int
    outside: int = 0

    @property
    def places(self) -> int:
        """Places in lists that are filled by items of the catalogue."""
        return sum(count * items for count, items in self.items_by_count.items())


def coverage(exposure: Exposure) -> float | None:
    """Share of the catalogue that is in any list.

    Parameters
    ----------
    exposure : Exposure

    Returns
    -------
    float or None
        None for an empty catalogue.

    References
    ----------
    Shani and Gunawardana, Recommender Systems Handbook, 2011, doi:10.1007/978-0-387-85820-3_8.

    Examples
    --------
    >>> coverage(Exposure({1: 2, 2: 1}, 5))
    0.6
    """
    return sum(exposure.items_by_count.values()) / exposure.n_items if exposure.n_items else None


def gini(exposure: Exposure) -> float | None:
    """Gini coefficient of exposures: 0 if all items are listed equally often, near 1 if one item fills all lists.

    With exposures x_1 <= ... <= x_n, zeros among them: sum of (2 i - n - 1) x_i over n sum of x_i.

    Parameters
    ----------
    exposure : Exposure

    Returns
    -------
    float or None
        None if no item of the catalogue is listed.

    References
    ----------
    Shani and Gunawardana, Recommender Systems Handbook, 2011, doi:10.1007/978-0-387-85820-3_8.

    Examples
    --------
    >>> gini(Exposure({1: 2, 2: 1}, 5))
    0.5
    """
    n, total = exposure.n_items, 0
    below = n - sum(exposure.items_by_count.values())
    for count, items in sorted(exposure.items_by_count.items()):
        total += count * items * (2 * below + items - n)
        below += items
    return float(Fraction(total, n * exposure.places)) if exposure.places else None


def entropy(exposure: Exposure) -> float | None:
    """Shannon entropy of exposures in bits: log2 of how many items are listed, if all are listed equally often.

    Parameters
    ----------
    exposure : Exposure

    Returns
    -------
    float or None
        None if no item of the catalogue is listed.

    References
    ----------
    Shani and Gunawardana, Recommender Systems Handbook, 2011, doi:10.1007/978-0-387-85820-3_8.

    Examples
    --------
    >>> entropy(Exposure({1: 2, 2: 1}, 5))
    1.5
    """
    places = exposure.places
    if not places:
        return None
    shares = [(items, count / places) for count, items in sorted(exposure.items_by_count.items())]
    return math.fsum(-items * share * math.log2(share) for items, share in shares) + 0.0


def outside_share(exposure: Exposure) -> float | None:
    """Share of the places in lists that is filled by items outside the catalogue.

    Parameters
    ----------
    exposure : Exposure

    Returns
    -------
    float or None
        None if nothing is listed.
    """
    places = exposure.places + exposure.outside
    return exposure.outside / places if places else None
