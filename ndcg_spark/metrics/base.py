"""Base classes of metrics, and metrics at a cutoff."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from ndcg_spark.core.labels import cutoff_order, metric_at
from ndcg_spark.core.ragged import FloatArray
from ndcg_spark.errors import InvalidParameterError

if TYPE_CHECKING:
    from ndcg_spark.metrics.catalogue import Exposure
    from ndcg_spark.metrics.lists import RelevanceLists


class QueryError(Exception):
    """A query that a metric cannot score: its number in the batch, and the reason."""

    def __init__(self, query: int, what: str) -> None:
        super().__init__(what)
        self.query, self.what = query, what


class Need(NamedTuple):
    """Something that a metric reads beside relevances: a table, and a column of it or what is counted in it."""

    table: str
    what: str = ""

    def __str__(self) -> str:
        return f"{self.table}: {self.what}" if self.what else self.table


ITEMS, INTERACTIONS, JUDGMENTS = "items", "interactions", "judgments"
CATALOGUE = Need(ITEMS)
VECTOR, CATEGORIES, FIRST_SEEN = (Need(ITEMS, what) for what in ("vector", "categories", "first_seen"))
POPULARITY, SEEN = Need(INTERACTIONS, "counts"), Need(INTERACTIONS, "of the user")
TOPICS = Need(JUDGMENTS, "topics")


@dataclass(frozen=True)
class NamedMetric(ABC):
    """A metric by its name: a value, whose fields are the parameters that a name can set.

    Attributes
    ----------
    name : str
        As in tables, options and gates.
    aliases : tuple of str
        Other names, in any case, such as those of ir_measures.
    about : str
        The value of one query, in a line.
    source : str
        Where the definition comes from.
    takes_cutoff : bool
        Whether it can be computed at a cutoff. If not, the whole list is ranked.
    needs_order : bool
        Whether tied items must stand in some order, so that ties cannot be averaged.
    needs_ties : bool
        Whether it is about tied items, so that they must not be put in an order.
    within_1 : bool
        Whether all values lie between 0 and 1.
    larger_is_better : bool or None
        Whether a better ranking has a larger value (True) or a smaller one (False). None: neither, as of a number
        that says how far others can be trusted. Each metric states its own: there is no default.
    undefined : bool
        Whether a query may have no value. It is then left out of the mean of this metric, and counted in its
        `n_queries`. Otherwise a query that is missing or not judged has the value 0: see `Metric`.
    """

    name: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()
    about: ClassVar[str]
    source: ClassVar[str]
    takes_cutoff: ClassVar[bool] = True
    needs_order: ClassVar[bool] = False
    needs_ties: ClassVar[bool] = False
    within_1: ClassVar[bool] = True
    larger_is_better: ClassVar[bool | None]
    undefined: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        """Refuse a metric that does not state whether larger is better; not even its parent speaks for it."""
        super().__init_subclass__(**options)
        stated = cls.__dict__.get("larger_is_better", "nothing")
        if "name" in cls.__dict__ and not any(stated is one for one in (True, False, None)):
            raise TypeError(
                f"metric {cls.name!r} must state larger_is_better itself: True, False or None; got {stated!r}."
            )

    @property
    def needs(self) -> tuple[Need, ...]:
        """Tables and columns that are read beside relevances."""
        return ()

    @property
    def comes_with(self) -> tuple[NamedMetric, ...]:
        """Other metrics that are always reported beside this one."""
        return ()

    def __post_init__(self) -> None:
        """Check parameters; subclasses check more."""
        for one in fields(self):
            value = getattr(self, one.name)
            self.refuse(isinstance(value, float) and not math.isfinite(value), f"{one.name} must be a finite number")

    def __str__(self) -> str:
        """Name and the parameters that differ from their defaults, as `parse_metric` reads them."""
        given = [
            (one.name, getattr(self, one.name)) for one in fields(self) if getattr(self, one.name) != one.default
        ]
        texts = [f"{name}={shortest(value)}" for name, value in given]
        return f"{self.name}({','.join(texts)})" if texts else self.name

    @property
    def column(self) -> str:
        """Name of its column in tables with a row per query: letters, digits and underscores."""
        return re.sub(r"\W+", "_", str(self).replace("-", "minus_")).strip("_")

    def refuse(self, condition: bool, wanted: str) -> None:
        """Raise where a parameter has a value that it does not take."""
        if condition:
            raise InvalidParameterError(f"metric {str(self)!r}: {wanted}.")


@dataclass(frozen=True)
class Metric(NamedMetric):
    """A metric with a value for each query, of which means are taken.

    Attributes
    ----------
    needs_list : bool
        Whether a query that is missing from the run has the value 0.
    needs_judgments : bool
        Whether a query that is not judged has the value 0.
    """

    needs_list: ClassVar[bool] = True
    needs_judgments: ClassVar[bool] = True

    @property
    def levels(self) -> tuple[float, ...]:
        """Relevances of which it must be known how many judged items reach them, in the list or not."""
        return ()

    @abstractmethod
    def values(self, lists: RelevanceLists, k: int | None) -> FloatArray:
        """Value of each query.

        Parameters
        ----------
        lists : RelevanceLists
        k : int or None
            Ranks beyond it do not count. None: the whole list.

        Returns
        -------
        float64, shape (n_queries,)
            NaN, if the metric allows it, for a query without a value.

        Raises
        ------
        QueryError
        """


@dataclass(frozen=True)
class CatalogueMetric(NamedMetric):
    """A metric of all lists together: of how often each item of the catalogue is listed."""

    needs_order = True

    @property
    def needs(self) -> tuple[Need, ...]:
        return (CATALOGUE,)

    @abstractmethod
    def value(self, exposure: Exposure) -> float | None:
        """Value of all lists of a run or segment; None where there is none."""


def shortest(value: object) -> str:
    """The shortest text that is read as the same value: `2`, `0.8`."""
    text = repr(value) if isinstance(value, float) else str(value)
    return text.removesuffix(".0")


EVERY = 0
"""In place of a cutoff: all those of a table."""


@dataclass(frozen=True, slots=True)
class MetricAt:
    """A metric at a cutoff; None is the whole list.

    `asked` is the name that a user gave it, if any, and `shown` is whether summaries have it.
    """

    metric: NamedMetric
    k: int | None
    asked: str = field(default="", compare=False)
    shown: bool = field(default=True, compare=False)

    def __str__(self) -> str:
        """The form that users write: `p(rel=2)@5`."""
        return str(self.metric) if self.k in (None, EVERY) else metric_at(self.metric, self.k)

    @property
    def label(self) -> str:
        """The name that was asked for, else its own, with the cutoff: `recall@5`, `map@all`; `ap` at every cutoff."""
        name = self.asked or str(self.metric)
        return name if self.k == EVERY else metric_at(name, self.k)

    @property
    def asked_at(self) -> str | None:
        """The label, if the metric was asked for."""
        return self.label if self.asked else None


def in_order(metrics: Iterable[MetricAt]) -> tuple[MetricAt, ...]:
    """Sort metrics at cutoffs, each once: metrics as they first appear, and their cutoffs rising."""
    unique = dict.fromkeys(metrics)
    place = {metric: at for at, metric in enumerate(dict.fromkeys(one.metric for one in unique))}
    return tuple(sorted(unique, key=lambda one: (place[one.metric], cutoff_order(one.k))))


def at_cutoff(metrics: Iterable[MetricAt], k: int | None) -> dict[NamedMetric, MetricAt]:
    """Find the metrics at a cutoff. `metrics` are `in_order`, so that a name for this cutoff is taken first."""
    return {one.metric: replace(one, k=k) for one in metrics if one.k in (k, EVERY)}
