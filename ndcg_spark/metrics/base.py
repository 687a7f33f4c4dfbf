"""What a metric is."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import ClassVar

from ndcg_spark.errors import InvalidParameterError
from ndcg_spark.kernels.ragged import FloatArray
from ndcg_spark.metrics.lists import RelevanceLists


class QueryError(Exception):
    """A query whose lists a metric cannot be computed of: its number in the batch, and what is wrong with it."""

    def __init__(self, query: int, what: str) -> None:
        super().__init__(what)
        self.query, self.what = query, what


@dataclass(frozen=True)
class Metric(ABC):
    """A metric of ranked lists: a value, whose fields are the parameters that a name can set.

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
    """

    name: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()
    about: ClassVar[str]
    source: ClassVar[str]
    takes_cutoff: ClassVar[bool] = True
    needs_order: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check parameters; subclasses check more."""
        for one in fields(self):
            value = getattr(self, one.name)
            self.refuse(isinstance(value, float) and not math.isfinite(value), f"{one.name} must be a finite number")

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

        Raises
        ------
        QueryError
        """

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


def shortest(value: object) -> str:
    """The shortest text that is read as the same value: `2`, `0.8`."""
    text = repr(value) if isinstance(value, float) else str(value)
    return text.removesuffix(".0")


@dataclass(frozen=True, slots=True)
class MetricAt:
    """A metric at a cutoff; None is the whole list."""

    metric: Metric
    k: int | None

    def __str__(self) -> str:
        """The form that users write: `p(rel=2)@5`."""
        return str(self.metric) if self.k is None else f"{self.metric}@{self.k}"
