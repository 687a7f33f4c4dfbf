"""Spread of the lists of a run over the catalogue, from a histogram: so many items were in so many lists.

It stays small for any catalogue. Counts per item merge by adding them, histograms of disjoint sets of items as well.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from ndcg_spark.metrics.base import CatalogueMetric, NamedMetric

SOURCE = "Shani and Gunawardana, Recommender Systems Handbook, 2011, doi:10.1007/978-0-387-85820-3_8"


class Exposure(NamedTuple):
    """Exposures of the items of a catalogue of `n_items`, listed or not.

    `items_by_count` maps each number of lists above 0 to the number of items in so many lists; `outside` counts
    places in lists that are filled by items outside the catalogue.
    """

    items_by_count: dict[int, int]
    n_items: int
    outside: int = 0

    @property
    def places(self) -> int:
        """Places in lists that are filled by items of the catalogue."""
        return sum(count * items for count, items in self.items_by_count.items())


@dataclass(frozen=True)
class OutsideCatalogue(CatalogueMetric):
    """Share of places that are filled by items outside the catalogue."""

    name = "outside_catalogue"
    larger_is_better = False
    about = "share of the first k places of all lists filled by items that are not in the item table"
    source = "definition"

    def value(self, exposure: Exposure) -> float | None:
        """Places outside over all places; None if nothing is listed.

        >>> OutsideCatalogue().value(Exposure({1: 2, 2: 1}, 5, outside=1))
        0.2
        """
        places = exposure.places + exposure.outside
        return exposure.outside / places if places else None


@dataclass(frozen=True)
class _ExposureMetric(CatalogueMetric):
    source = SOURCE

    @property
    def comes_with(self) -> tuple[NamedMetric, ...]:
        return (OutsideCatalogue(),)


@dataclass(frozen=True)
class Coverage(_ExposureMetric):
    """Items that are listed at all."""

    name = "coverage"
    larger_is_better = None
    about = "share of the catalogue that is among the first k of any list"

    def value(self, exposure: Exposure) -> float | None:
        """Listed items over all items; None for an empty catalogue.

        >>> Coverage().value(Exposure({1: 2, 2: 1}, 5))
        0.6
        """
        return sum(exposure.items_by_count.values()) / exposure.n_items if exposure.n_items else None


@dataclass(frozen=True)
class Gini(_ExposureMetric):
    """Inequality of exposures: 0 if all items are listed equally often, near 1 if one item fills all lists."""

    name = "gini"
    larger_is_better = None
    about = "Gini coefficient of how often each item of the catalogue is among the first k; 0: all equally often"

    def value(self, exposure: Exposure) -> float | None:
        """With exposures x_1 <= ... <= x_n, zeros among them: sum of (2 i - n - 1) x_i over n sum of x_i.

        None if no item of the catalogue is listed.

        >>> Gini().value(Exposure({1: 2, 2: 1}, 5))
        0.5
        """
        n, total = exposure.n_items, 0
        below = n - sum(exposure.items_by_count.values())
        for count, items in sorted(exposure.items_by_count.items()):
            total += count * items * (2 * below + items - n)
            below += items
        return float(Fraction(total, n * exposure.places)) if exposure.places else None


@dataclass(frozen=True)
class Entropy(_ExposureMetric):
    """Evenness of exposures: log2 of how many items are listed, if all are listed equally often."""

    name = "entropy"
    larger_is_better = None
    about = "Shannon entropy in bits of how often each item of the catalogue is among the first k"

    def value(self, exposure: Exposure) -> float | None:
        """Between 0 and log2 of the size of the catalogue; None if no item of it is listed.

        >>> Entropy().value(Exposure({1: 2, 2: 1}, 5))
        1.5
        """
        places = exposure.places
        if not places:
            return None
        shares = [(items, count / places) for count, items in sorted(exposure.items_by_count.items())]
        return math.fsum(-items * share * math.log2(share) for items, share in shares) + 0.0
