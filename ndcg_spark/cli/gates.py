"""Quality gates: `ndcg@10>=0.40`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ndcg_spark.errors import InvalidParameterError
from ndcg_spark.plan import METRICS

_FORM = re.compile(r"\s*(\w+)@(\w+)\s*(>=|<=|>|<)\s*([-+0-9.eE]+)\s*")
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


@dataclass(frozen=True, slots=True)
class Gate:
    """A condition on an overall mean, for every run.

    Parameters
    ----------
    text : str
        As the user wrote it.
    metric : str
    k : int or None
    comparison : str
    bound : float
    """

    text: str
    metric: str
    k: int | None
    comparison: str
    bound: float

    @classmethod
    def parse(cls, text: str, cutoffs: Iterable[int | None]) -> Gate:
        """Read a gate; refuse one on a number that is not computed.

        Parameters
        ----------
        text : str
        cutoffs : iterable of int or None

        Returns
        -------
        Gate

        Raises
        ------
        InvalidParameterError
        """
        found = _FORM.fullmatch(text)
        if found is None:
            raise InvalidParameterError(f"gate {text!r} is not of the form METRIC@K>=NUMBER, as ndcg@10>=0.40.")
        metric, at, comparison, number = found.groups()
        if metric not in METRICS:
            raise InvalidParameterError(f"gate {text!r}: there are the metrics {', '.join(METRICS)}.")
        known = {"all" if k is None else str(k): k for k in cutoffs}
        if at not in known:
            raise InvalidParameterError(f"gate {text!r}: k={at} is not among the cutoffs {', '.join(known)}.")
        try:
            bound = float(number)
        except ValueError:
            raise InvalidParameterError(f"gate {text!r}: {number!r} is no number.") from None
        return cls(text, metric, known[at], comparison, bound)

    def results(self, summary: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Hold every run's overall mean against the gate.

        Parameters
        ----------
        summary : list of dict
            Rows of a summary.

        Returns
        -------
        list of dict
            `gate`, `run`, `value`, `met`. A mean of no query meets no gate.
        """
        rows = [
            row for row in summary if not row["segment_by"] and row["metric"] == self.metric and row["k"] == self.k
        ]
        return [
            {"gate": self.text, "run": row["run"], "value": row["value"], "met": self._met(row["value"])}
            for row in rows
        ]

    def _met(self, value: float | None) -> bool:
        return value is not None and _COMPARE[self.comparison](value, self.bound)
