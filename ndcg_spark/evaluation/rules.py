"""Rules that results were computed by, as one text: `gain=exponential;...;sample=1.0`, of means also `weight=yes`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ndcg_spark.errors import InputRefusedError, option

RULES = "rules"
"""Column of results; null where it is not known by which rules a row was computed."""
MIXED = "mixed"
"""Value of a field in the rules of a result in which several values of it were combined on purpose."""
UNKNOWN = "unknown"
"""Field of a result that was made of results with known rules and of `some` others."""
UNKNOWN_LINE = (
    "rules: some of the results do not say by which rules they were computed; taken to be those of the others"
)


def write_rules(fields: Mapping[str, str]) -> str:
    return ";".join(f"{field}={value}" for field, value in fields.items())


def read_rules(text: str | None) -> dict[str, str]:
    """Read rules by field; none where they are not known.

    >>> read_rules("gain=table:0=0,1=3;ties=expected")
    {'gain': 'table:0=0,1=3', 'ties': 'expected'}
    """
    parts = (part.partition("=") for part in text.split(";")) if text else ()
    return {field: value for field, _, value in parts}


def add_weight(rules: str | None, *, weighted: bool) -> str | None:
    return f"{rules};weight={'yes' if weighted else 'no'}" if rules else None


def have_same_rules(first: str | None, second: str | None) -> bool | None:
    """Whether two results are by the same rules; None where that is not known."""
    return not find_differing_rules([first, second]) if first and second else None


def find_differing_rules(texts: Iterable[str | None]) -> dict[str, list[str]]:
    """Values of the fields that differ; what one text does not have is not known of it."""
    values: dict[str, dict[str, None]] = {}
    for text in texts:
        for field, value in read_rules(text).items():
            values.setdefault(field, {})[value] = None
    return {field: list(distinct) for field, distinct in values.items() if len(distinct) > 1}


def format_difference(texts: Iterable[str | None]) -> str:
    """Name each field that differs, and its values; empty where none does.

    >>> format_difference(["ties=expected;sample=1.0", "ties=worst;sample=0.5"])
    'ties: expected and worst; sample: 1.0 and 0.5'
    """
    return "; ".join(f"{field}: {' and '.join(values)}" for field, values in find_differing_rules(texts).items())


def combine_rules(texts: Iterable[str | None], what: str, *, across: bool) -> str | None:
    """Combine rules; refuse different ones unless `across`, which makes their fields `mixed`. None if none is known.

    Unknown rules count as those that are known, and the last field says so. `what` begins the message.
    """
    texts = list(dict.fromkeys(texts))
    conflicts = find_differing_rules(texts)
    if conflicts and not across:
        raise InputRefusedError(
            f"{what} would combine results of different rules ({format_difference(texts)}); compute them by the same "
            f"rules, or choose {option('across_rules', 'True')} to combine them all the same."
        )
    known = [text for text in texts if text]
    if not known:
        return None
    fields = {field: MIXED if field in conflicts else value for field, value in read_rules(known[0]).items()}
    if len(known) < len(texts):
        fields[UNKNOWN] = "some"
    return write_rules(fields)


def format_rules_notes(texts: Iterable[str | None]) -> list[str]:
    """Say what results are combined of, where that is not one set of rules that is known."""
    texts = list(texts)
    mixed = dict.fromkeys(field for text in texts for field, value in read_rules(text).items() if value == MIXED)
    lines = [f"rules: results of different rules are combined, as asked for; they differ in {', '.join(mixed)}"]
    return lines[: bool(mixed)] + [UNKNOWN_LINE] * any(UNKNOWN in read_rules(text) for text in texts)
