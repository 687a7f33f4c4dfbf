"""How the lists of a run spread over the catalogue."""

from __future__ import annotations

from dataclasses import dataclass

from ndcg_spark.metrics.base import CatalogueMetric, NamedMetric
from ndcg_spark.metrics.kernels.exposure import Exposure, coverage, entropy, gini, outside_share

SOURCE = "Shani and Gunawardana, Recommender Systems Handbook, 2011, doi:10.1007/978-0-387-85820-3_8"


@dataclass(frozen=True)
class OutsideCatalogue(CatalogueMetric):
    """Places that the catalogue knows nothing of."""

    name = "outside_catalogue"
    about = "share of the first k places of all lists filled by items that the item table does not have"
    source = "definition"

    def value(self, exposure: Exposure) -> float | None:
        """Places outside over all places."""
        return outside_share(exposure)


@dataclass(frozen=True)
class _OfItems(CatalogueMetric):
    source = SOURCE

    @property
    def comes_with(self) -> tuple[NamedMetric, ...]:
        """How many places do not count."""
        return (OutsideCatalogue(),)


@dataclass(frozen=True)
class Coverage(_OfItems):
    """Items that are listed at all."""

    name = "coverage"
    about = "share of the catalogue that is among the first k of any list"

    def value(self, exposure: Exposure) -> float | None:
        """Listed items over all items."""
        return coverage(exposure)


@dataclass(frozen=True)
class Gini(_OfItems):
    """Inequality of exposures."""

    name = "gini"
    about = "Gini coefficient of how often each item of the catalogue is among the first k; 0: all equally often"

    def value(self, exposure: Exposure) -> float | None:
        """Between 0 and 1."""
        return gini(exposure)


@dataclass(frozen=True)
class Entropy(_OfItems):
    """Evenness of exposures."""

    name = "entropy"
    about = "Shannon entropy in bits of how often each item of the catalogue is among the first k"

    def value(self, exposure: Exposure) -> float | None:
        """Between 0 and log2 of the size of the catalogue."""
        return entropy(exposure)
