"""Options that nothing reads beside the others: they are refused, so that nobody takes them for granted."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ndcg_spark.errors import InvalidParameterError, option
from ndcg_spark.evaluation.settings import Columns, EvaluationSettings, ItemColumns, split_metrics
from ndcg_spark.metrics import parse_metric
from ndcg_spark.metrics.base import FIRST_SEEN, TOPICS


def unread_options(settings: EvaluationSettings) -> dict[str, str]:
    """Name the options that differ from their defaults and that nothing reads, each with the reason."""
    columns, convention = settings.columns, settings.convention
    found = {}
    has_order = settings.ranks_given or columns.ranked  # but copies in judgments beside lists have none
    reads_order = convention.duplicates == "first" or (convention.ties == "input_order" and not has_order)
    if columns.order is not None and not reads_order:
        rules = (convention.advice("ties", "input_order"), convention.advice("duplicates", "first"))
        found["order"] = f"only {' and '.join(rules)} do, of rows without ranks"
    if columns.score != Columns().score and columns.rank is not None:
        found["score"] = f"ranks are given ({option('rank')})"
    if settings.check_duplicates != "top" and convention.duplicates != "error":
        found["check_duplicates"] = f"duplicates={convention.duplicates} searches all rows"
    if settings.item_columns.topics != ItemColumns().topics and TOPICS not in settings.needs:
        found["topics"] = "no metric reads topics, as alpha_ndcg does"
    if settings.as_of is not None and FIRST_SEEN not in settings.needs:
        found["as_of"] = "no metric counts ages, as first_appearance does"
    return found


def refuse_unread(settings: EvaluationSettings, given: Collection[str] | None = None) -> None:
    """Raise for an option that nothing reads: one of those `given`, or any that differs from its default."""
    for name, why in unread_options(settings).items():
        if given is None or name in given:
            raise InvalidParameterError(f"nothing reads {option(name)}: {why}; leave it out.")


def refuse_unread_k(names: str | Sequence[str]) -> None:
    """Raise where each metric names its cutoff, or has none, so that nothing reads `k`."""
    if all(at is not None or not metric.takes_cutoff for metric, at in map(parse_metric, split_metrics(names))):
        raise InvalidParameterError(
            f"nothing reads {option('k')}: each of the metrics names its cutoff, or has none; leave it out."
        )
