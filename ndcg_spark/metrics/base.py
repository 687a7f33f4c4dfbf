"""Base classes of metrics, metrics at a cutoff, and metrics by name."""

from __future__ import annotations

import difflib
import inspect
import math
import pkgutil
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import ndcg_spark.metrics as package
from ndcg_spark.core.labels import cutoff_order, metric_at
from ndcg_spark.core.ragged import FloatArray
from ndcg_spark.errors import InvalidParameterError

if TYPE_CHECKING:
    from ndcg_spark.metrics.catalogue import Exposure
    from ndcg_spark.metrics.lists import RelevanceLists


class QueryError(Exception):
    """A query that a metric cannot score: its number in the batch, and the reason."""

    def __init__(self, query: int, reason: str) -> None:
        super().__init__(reason)
        self.query, self.reason = query, reason


class Need(NamedTuple):
    """Input that a metric needs beside relevances: a table, and its column or count."""

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
        Whether tied items must be in some order, so that ties cannot be averaged.
    needs_ties : bool
        Whether it is about tied items, so that they must not be put in an order.
    within_1 : bool
        Whether all values are between 0 and 1.
    larger_is_better : bool or None
        Whether a better ranking has a larger value (True) or a smaller one (False). None: neither, as for a number
        that shows how reliable others are. Each metric sets its own: there is no default.
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
        """Refuse a metric that does not set `larger_is_better` itself: it is not inherited."""
        super().__init_subclass__(**options)
        direction = cls.__dict__.get("larger_is_better", "nothing")
        if "name" in cls.__dict__ and not (direction is None or isinstance(direction, bool)):
            raise TypeError(
                f"metric {cls.name!r} must set larger_is_better itself: True, False or None; got {direction!r}."
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
        for parameter in fields(self):
            value = getattr(self, parameter.name)
            self.refuse(
                isinstance(value, float) and not math.isfinite(value), f"{parameter.name} must be a finite number"
            )

    def __str__(self) -> str:
        """Name and the parameters that differ from their defaults, as `parse_metric` reads them."""
        changed = [
            (parameter.name, getattr(self, parameter.name))
            for parameter in fields(self)
            if getattr(self, parameter.name) != parameter.default
        ]
        texts = [f"{name}={format_value(value)}" for name, value in changed]
        return f"{self.name}({','.join(texts)})" if texts else self.name

    @property
    def column(self) -> str:
        """Name of its column in tables with a row per query: letters, digits and underscores."""
        return re.sub(r"\W+", "_", str(self).replace("-", "minus_")).strip("_")

    def refuse(self, condition: bool, requirement: str) -> None:
        """Raise if a condition holds; `requirement` says what a parameter must be."""
        if condition:
            raise InvalidParameterError(f"metric {str(self)!r}: {requirement}.")


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
        """Relevances for which the number of judged items that reach them is needed, listed or not."""
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
    """A metric of all lists together, from how often each item of the catalogue is listed."""

    needs_order = True

    @property
    def needs(self) -> tuple[Need, ...]:
        return (CATALOGUE,)

    @abstractmethod
    def value(self, exposure: Exposure) -> float | None:
        """Value of all lists of a run or segment; None if undefined."""


def format_value(value: object) -> str:
    """Format a value as the shortest text that parses to it: `2`, `0.8`."""
    text = repr(value) if isinstance(value, float) else str(value)
    return text.removesuffix(".0")


EVERY = 0
"""Placeholder for a cutoff: all cutoffs of a table."""


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
        """The requested name, else its own, with the cutoff: `recall@5`, `map@all`; `ap` at every cutoff."""
        name = self.asked or str(self.metric)
        return name if self.k == EVERY else metric_at(name, self.k)

    @property
    def asked_at(self) -> str | None:
        """The label if the user named the metric, else None."""
        return self.label if self.asked else None


def in_order(metrics: Iterable[MetricAt]) -> tuple[MetricAt, ...]:
    """Sort metrics at cutoffs, each once: metrics as they first appear, and their cutoffs rising."""
    unique = dict.fromkeys(metrics)
    place = {
        metric: index for index, metric in enumerate(dict.fromkeys(metric_at_k.metric for metric_at_k in unique))
    }
    return tuple(sorted(unique, key=lambda metric_at_k: (place[metric_at_k.metric], cutoff_order(metric_at_k.k))))


def at_cutoff(metrics: Iterable[MetricAt], k: int | None) -> dict[NamedMetric, MetricAt]:
    """Find the metrics at a cutoff. `metrics` are `in_order`, so that a name for this cutoff is taken first."""
    return {metric_at_k.metric: replace(metric_at_k, k=k) for metric_at_k in metrics if metric_at_k.k in (k, EVERY)}


_FORM = re.compile(r"\s*([A-Za-z_]\w*)\s*(?:\(([^()]*)\))?\s*(?:@\s*(\w+))?\s*")
ADVICE = "`ndcg-spark metrics` lists them all"


@cache
def all_metrics() -> dict[str, type[NamedMetric]]:
    """Find all metrics, by name and in order of their names."""
    metrics: dict[str, type[NamedMetric]] = {}
    for module in pkgutil.iter_modules(package.__path__):
        for _, value in inspect.getmembers(import_module(f"{package.__name__}.{module.name}"), inspect.isclass):
            if issubclass(value, NamedMetric) and not inspect.isabstract(value) and hasattr(value, "name"):
                metrics[value.name] = value
    return dict(sorted(metrics.items()))


@cache
def _names() -> dict[str, type[NamedMetric]]:
    metrics = all_metrics()
    return {alias: metric for metric in metrics.values() for alias in metric.aliases} | metrics


def parse_metric(text: str) -> tuple[NamedMetric, str | None]:
    """Read the name of a metric: the metric, and what was written after `@`.

    It is `name`, `name@k` or `name(parameter=value,...)@k`. Names of ir_measures are understood, too.

    Examples
    --------
    >>> metric, k = parse_metric("P(rel=2)@5")
    >>> str(metric), k
    ('p(rel=2)', '5')
    """
    match = _FORM.fullmatch(text)
    if match is None:
        raise InvalidParameterError(f"metric {text!r} is not of the form NAME(PARAMETER=VALUE,...)@K.")
    name, parameters, k = match.groups()
    kind = _names().get(name.lower())
    if kind is None:
        near = difflib.get_close_matches(name.lower(), _names(), n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise InvalidParameterError(f"unknown metric {name!r}: {hint}{ADVICE}.")
    values = [_parameter(parameter, kind, text) for parameter in (parameters or "").split(",") if parameter.strip()]
    if len(dict(values)) < len(values):
        raise InvalidParameterError(f"metric {text!r} sets a parameter twice.")
    metric = kind(**dict(values))
    if k is not None and not metric.takes_cutoff and k != "all":
        raise InvalidParameterError(f"metric {text!r}: {metric.name} has no cutoff; remove @{k}.")
    return metric, k


@cache
def _find_metric(name: str) -> NamedMetric | None:
    """Find a metric by its name in stored rows; None if it is unknown."""
    try:
        return parse_metric(name)[0]
    except InvalidParameterError:
        return None


def direction_of(name: str) -> bool | None:
    """Return `larger_is_better` of a metric, by its name in stored rows; None for a name that is unknown.

    Examples
    --------
    >>> direction_of("p(rel=2)"), direction_of("ils"), direction_of("tied_share")
    (True, False, None)
    """
    metric = _find_metric(name)
    return None if metric is None else metric.larger_is_better


def has_value_when_missing(name: str) -> bool:
    """Check if a query that a run misses counts as 0 in a comparison, by the name of the metric in stored rows.

    It is left out where an empty list has no value, and where smaller is better: 0 would reward the run. Queries of a
    metric with an unknown name count as 0.
    """
    metric = _find_metric(name)
    return metric is None or (metric.larger_is_better is not False and not metric.undefined)


def has_value_without_list(name: str) -> bool:
    """Check if an empty list has a value, by the name of the metric in stored rows; True for an unknown name."""
    metric = _find_metric(name)
    return metric is None or not (metric.undefined or isinstance(metric, CatalogueMetric))


def judge_change(name: str, difference: float) -> str:
    """Call a difference of a metric `better` or `worse`; `higher` or `lower` where neither direction is better.

    Examples
    --------
    >>> judge_change("ndcg", 0.1), judge_change("ils", 0.1), judge_change("tied_share", 0.1)
    ('better', 'worse', 'higher')
    """
    larger_is_better = direction_of(name)
    if larger_is_better is None:
        return "higher" if difference > 0 else "lower"
    return "better" if (difference > 0) is larger_is_better else "worse"


def _parameter(text: str, kind: type[NamedMetric], metric: str) -> tuple[str, object]:
    name, _, value = (side.strip() for side in text.partition("="))
    known = {parameter.name: parameter for parameter in fields(kind)}
    if name not in known:
        parameters = f"it has {', '.join(known)}" if known else f"{kind.name} has none"
        raise InvalidParameterError(f"metric {metric!r}: unknown parameter {name!r}; {parameters}.")
    if isinstance(known[name].default, str):
        return name, value
    try:
        return name, float(value)
    except ValueError:
        raise InvalidParameterError(f"metric {metric!r}: {name} must be a number; got {value!r}.") from None
