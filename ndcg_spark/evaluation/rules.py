"""Rules by which results were computed, as text: `gain=exponential;...;sample=1.0`, for means also `weight=yes`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ndcg_spark.errors import InputRefusedError, option
from ndcg_spark.metrics import has_value_without_list

RULES = "rules"
"""Column of results; null if the rules are unknown."""
MIXED = "mixed"
"""Value of a rule if results with different values were combined on purpose."""
UNKNOWN = "unknown"
"""Field with value `some` if results with known and with unknown rules were combined."""
UNKNOWN_LINE = "rules: the rules of some results are unknown; assumed to be the rules of the others"


def write_rules(fields: Mapping[str, str]) -> str:
    return ";".join(f"{field}={value}" for field, value in fields.items())


def read_rules(text: str | None) -> dict[str, str]:
    """Parse rules by field; empty if they are unknown.

    >>> read_rules("gain=table:0=0,1=3;ties=expected")
    {'gain': 'table:0=0,1=3', 'ties': 'expected'}
    """
    parts = (part.partition("=") for part in text.split(";")) if text else ()
    return {field: value for field, _, value in parts}


def add_weight(rules: str | None, *, weighted: bool) -> str | None:
    return f"{rules};weight={'yes' if weighted else 'no'}" if rules else None


def count_with_list(metric: str, n_queries: int, n_missing: int | None, rules: str | None) -> int:
    """Count the queries of a mean that have a list: a query without one may be in it, with the value of no items.

    Of queries with weights all are counted, as `n_missing` has those of weight 0, which are in no mean.
    """
    known = read_rules(rules)
    is_counted = known.get("missing_query") == "zero" and known.get("weight") != "yes"
    return max(n_queries - (n_missing or 0), 0) if is_counted and has_value_without_list(metric) else n_queries


def have_same_rules(first: str | None, second: str | None) -> bool | None:
    """Return True if two results have the same rules; None if unknown."""
    return (first == second or not find_differing_rules([first, second])) if first and second else None


def find_differing_rules(texts: Iterable[str | None]) -> dict[str, list[str]]:
    """Return the values of fields that differ. A missing field is unknown, not different."""
    values: dict[str, dict[str, None]] = {}
    for text in texts:
        for field, value in read_rules(text).items():
            values.setdefault(field, {})[value] = None
    return {field: list(distinct) for field, distinct in values.items() if len(distinct) > 1}


def format_difference(texts: Iterable[str | None]) -> str:
    """Format the fields that differ and their values; empty if none differs.

    >>> format_difference(["ties=expected;sample=1.0", "ties=worst;sample=0.5"])
    'ties: expected and worst; sample: 1.0 and 0.5'
    """
    return "; ".join(f"{field}: {' and '.join(values)}" for field, values in find_differing_rules(texts).items())


def combine_rules(texts: Iterable[str | None], subject: str, *, across: bool) -> str | None:
    """Combine rules; raise if they differ, unless `across`: these fields are then `mixed`. None if all are unknown.

    Unknown rules are assumed to equal the known ones, and marked by a last field. `subject` begins the message.
    """
    texts = list(dict.fromkeys(texts))
    conflicts = find_differing_rules(texts)
    if conflicts and not across:
        raise InputRefusedError(
            f"{subject} would combine results of different rules ({format_difference(texts)}); compute them by the "
            f"same rules, or use {option('across_rules', 'True')} to combine them anyway."
        )
    known = [text for text in texts if text]
    if not known:
        return None
    fields = {field: MIXED if field in conflicts else value for field, value in read_rules(known[0]).items()}
    if len(known) < len(texts):
        fields[UNKNOWN] = "some"
    return write_rules(fields)


def format_rules_notes(texts: Iterable[str | None]) -> list[str]:
    """Return lines about combined results with mixed or unknown rules."""
    texts = list(texts)
    mixed = dict.fromkeys(field for text in texts for field, value in read_rules(text).items() if value == MIXED)
    lines = [f"rules: results of different rules are combined, as requested; they differ in {', '.join(mixed)}"]
    return lines[: bool(mixed)] + [UNKNOWN_LINE] * any(UNKNOWN in read_rules(text) for text in texts)
