"""How errors name options to who runs a command."""

from __future__ import annotations

from ndcg_spark.errors import spelled, unquoted

_COLUMNS = frozenset((
    "annotator", "categories", "click", "cluster", "event", "event_id", "first_seen", "ideal", "item", "labels",
    "order", "position", "propensity", "query", "rank", "relevance", "relevant", "run", "same", "score", "topics",
    "ts", "user", "vector", "weight",
))  # fmt: skip
"""Arguments of Python that name a column: `query` is `--query-col`."""


def with_flags(text: str) -> str:
    """Spell the options that the message of an error, from `text_of` or `find_refusal`, names as flags.

    Examples
    --------
    >>> from ndcg_spark.errors import option
    >>> with_flags(f"leave {option('run')} out; {option('weight', repr(''))}, {option('keep_replicates', 'True')}")
    "leave --run-col out; --weight-col '', --keep-replicates"
    """
    return spelled(text, flag_of)


def flag_of(name: str, value: str = "") -> str:
    """Write an option of Python as a flag, with its value unless it is a switch; a rule has a flag of its own."""
    value = unquoted(value)
    if name == "convention" and ";" in value:
        rule, _, value = value.rpartition(";")[2].partition("=")
        return f"--{rule.replace('_', '-')} {value}"
    if name == "grow":
        return "--schema grow"
    known = {"segments": "segment-cols", "ranked": "ranked-cols", "night": "run-date"}
    flag = "--" + known.get(name, f"{name}-col" if name in _COLUMNS else name).replace("_", "-")
    return flag if value in ("", "True") else f"{flag} {value}"
