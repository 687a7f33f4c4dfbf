"""Metrics by name."""

from __future__ import annotations

import difflib
import inspect
import pkgutil
import re
from dataclasses import fields
from functools import cache
from importlib import import_module

import ndcg_spark.metrics as package
from ndcg_spark.errors import InvalidParameterError
from ndcg_spark.metrics.base import NamedMetric

_FORM = re.compile(r"\s*([A-Za-z_]\w*)\s*(?:\(([^()]*)\))?\s*(?:@\s*(\w+))?\s*")
ADVICE = "`ndcg-spark metrics` lists them all"


@cache
def all_metrics() -> dict[str, type[NamedMetric]]:
    """Find all metrics, by name and in order of their names."""
    found: dict[str, type[NamedMetric]] = {}
    for module in pkgutil.iter_modules(package.__path__):
        for _, value in inspect.getmembers(import_module(f"{package.__name__}.{module.name}"), inspect.isclass):
            if issubclass(value, NamedMetric) and not inspect.isabstract(value) and hasattr(value, "name"):
                found[value.name] = value
    return dict(sorted(found.items()))


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
    found = _FORM.fullmatch(text)
    if found is None:
        raise InvalidParameterError(f"metric {text!r} is not of the form NAME(PARAMETER=VALUE,...)@K.")
    name, parameters, k = found.groups()
    kind = _names().get(name.lower())
    if kind is None:
        near = difflib.get_close_matches(name.lower(), _names(), n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise InvalidParameterError(f"there is no metric {name!r}: {hint}{ADVICE}.")
    given = [_parameter(one, kind, text) for one in (parameters or "").split(",") if one.strip()]
    if len(dict(given)) < len(given):
        raise InvalidParameterError(f"metric {text!r} sets a parameter twice.")
    metric = kind(**dict(given))
    if k is not None and not metric.takes_cutoff and k != "all":
        raise InvalidParameterError(f"metric {text!r}: {metric.name} has no cutoff; leave @{k} out.")
    return metric, k


@cache
def direction_of(name: str) -> bool | None:
    """Return `larger_is_better` of a metric, by its name in stored rows; None for a name that is unknown.

    Examples
    --------
    >>> direction_of("p(rel=2)"), direction_of("ils"), direction_of("tied_share")
    (True, False, None)
    """
    try:
        return parse_metric(name)[0].larger_is_better
    except InvalidParameterError:
        return None


@cache
def has_value_when_missing(name: str) -> bool:
    """Check if a query that a run misses counts as 0 in a comparison, by the name of the metric in stored rows.

    It is left out where an empty list has no value, and where smaller is better: 0 would reward the run. Queries of a
    metric with an unknown name count as 0.
    """
    try:
        metric = parse_metric(name)[0]
    except InvalidParameterError:
        return True
    return metric.larger_is_better is not False and not metric.undefined


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
    name, _, value = (part.strip() for part in text.partition("="))
    known = {one.name: one for one in fields(kind)}
    if name not in known:
        there_are = f"it has {', '.join(known)}" if known else f"{kind.name} has none"
        raise InvalidParameterError(f"metric {metric!r}: there is no parameter {name!r}; {there_are}.")
    if isinstance(known[name].default, str):
        return name, value
    try:
        return name, float(value)
    except ValueError:
        raise InvalidParameterError(f"metric {metric!r}: {name} must be a number; got {value!r}.") from None
