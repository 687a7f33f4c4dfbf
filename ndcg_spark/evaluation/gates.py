"""Quality gates: `ndcg@10>=0.40`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ndcg_spark.core.labels import describe_runs, metric_at
from ndcg_spark.errors import InvalidParameterError, get_message
from ndcg_spark.evaluation.settings import EvaluationSettings, read_metric
from ndcg_spark.metrics import EVERY, MetricAt, direction_of

_FORM = re.compile(r"(?:(?s:(?P<run>.*)):\s)?\s*(\w+(?:\([^()]*\))?(?:@\w+)?)\s*(>=|<=|>|<)\s*([-+0-9.eE]+)\s*")
COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


@dataclass(frozen=True, slots=True)
class Gate:
    """A condition on an overall mean: `bm25: ndcg@10>=0.40`; without `run` it applies to every run."""

    text: str
    metric: str
    k: int | None
    comparison: str
    bound: float
    run: str | None = None

    @classmethod
    def parse(cls, text: str, settings: EvaluationSettings) -> Gate:
        return cls.among(
            text, [(str(metric_at.metric), metric_at.k) for metric_at in settings.computed if metric_at.shown]
        )

    @classmethod
    def among(cls, text: str, computed: Sequence[tuple[str, int | None]]) -> Gate:
        """Parse a gate on one of the `computed` metrics, as (metric, k)."""
        match = _FORM.fullmatch(text)
        if match is None:
            raise InvalidParameterError(
                f"gate {text!r} must look like METRIC@K>=NUMBER, as in ndcg@10>=0.40, or RUN: METRIC@K>=NUMBER."
            )
        run, metric_text, comparison, number = match.groups()
        metric, k = find_metric(metric_text, computed, f"gate {text!r}")
        try:
            bound = float(number)
        except ValueError:
            raise InvalidParameterError(f"gate {text!r}: {number!r} is not a number.") from None
        return cls(text, metric, k, comparison, bound, None if run is None else run.strip())

    def results(self, summary: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Compare the overall mean of each run with the gate: `gate`, `run`, `value`, `met`. Null fails the gate."""
        rows = [
            row for row in summary if not row["segment_by"] and row["metric"] == self.metric and row["k"] == self.k
        ]
        if self.run is not None:
            runs = [row["run"] for row in rows]
            rows = [row for row in rows if row["run"] == self.run]
            if not rows:
                known = describe_runs(runs, ", ".join(map(repr, runs)))
                raise InvalidParameterError(f"gate {self.text!r}: there is no run {self.run!r}; {known}.")
        results = []
        for row in rows:
            met = row["value"] is not None and COMPARISONS[self.comparison](row["value"], self.bound)
            results.append({"gate": self.text, "run": row["run"], "value": row["value"], "met": met})
        return results

    @property
    def contrary(self) -> str:
        """A warning if the gate requires a worse value; else empty."""
        return describe_contrary_gate(self.text, self.metric, self.comparison)


def describe_contrary_gate(text: str, metric: str, comparison: str) -> str:
    """Return a warning if a gate requires more of a metric for which less is better, or the reverse; else empty."""
    asks_for_more, larger_is_better = comparison in (">", ">="), direction_of(metric)
    if larger_is_better in (None, asks_for_more):
        return ""
    required, better = ("more", "less") if asks_for_more else ("less", "more")
    return f"gate {text} requires {required} of {metric}, but {better} is better."


def find_metric(text: str, computed: Sequence[tuple[str, int | None]], subject: str) -> tuple[str, int | None]:
    """Find a computed (metric, k) by its name, which may omit the only cutoff. `subject` begins messages."""
    metric_at_k = parse_named_metric(text, subject)
    name, k = str(metric_at_k.metric), metric_at_k.k
    cutoffs = [cutoff for known, cutoff in computed if known == name]
    if k == EVERY and len(cutoffs) > 1:
        raise InvalidParameterError(f"{subject}: name the cutoff too, as {metric_at(name, cutoffs[0])}.")
    if k == EVERY:
        k = cutoffs[0] if cutoffs else None
    if k not in cutoffs:
        known = ", ".join(metric_at(*metric_and_k) for metric_and_k in computed)
        raise InvalidParameterError(f"{subject}: {metric_at(name, k)} is not computed; computed are {known}.")
    return name, k


def parse_named_metric(text: str, subject: str) -> MetricAt:
    """Parse a metric like `read_metric`; `subject` begins messages."""
    try:
        return read_metric(text)
    except InvalidParameterError as error:
        raise InvalidParameterError(f"{subject}: {get_message(error)}") from None
