"""Judgments from events by the definition: plain loops over a list, sums as fractions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from fractions import Fraction

import numpy as np

from ndcg_spark.judgments.settings import EventSettings

AS_OF = datetime(2026, 3, 1, tzinfo=timezone.utc)
EVENT_SCHEMA = "query_id string, item_id string, event string, ts timestamp, event_id string, user_id string"


@dataclass(frozen=True)
class Event:
    """A line of an event log."""

    event: str
    days: float = 1.0
    """How long before AS_OF."""
    query: str = "q"
    item: str = "i"
    event_id: str = ""
    user: str = "u"

    @property
    def ts(self) -> datetime:
        return AS_OF - timedelta(days=self.days)

    @property
    def row(self) -> tuple[str, str, str, datetime, str, str]:
        return self.query, self.item, self.event, self.ts, self.event_id, self.user


def to_utc(instant: datetime | None) -> datetime | None:
    return instant if instant is None or instant.tzinfo else instant.replace(tzinfo=timezone.utc)


def judge_by_loops(events: Iterable[Event], settings: EventSettings) -> dict[tuple[str, str], dict[str, object]]:
    """Return relevance, rule, deciding event and counts of each (query, item)."""
    pairs: defaultdict[tuple[str, str], list[Event]] = defaultdict(list)
    start, end = to_utc(settings.start), to_utc(settings.as_of)
    for event in events:
        if (start is None or event.ts >= start) and (end is None or event.ts < end):
            pairs[event.query, event.item].append(event)
    return {pair: _judge_pair(pair_events, settings) for pair, pair_events in pairs.items()}


def _judge_pair(all_events: list[Event], settings: EventSettings) -> dict[str, object]:
    events = _deduplicate(all_events, settings)
    graded = [event for event in events if event.event != settings.impression]
    negative = [event for event in graded if settings.grades[event.event] < 0]
    others = [event for event in graded if settings.grades[event.event] >= 0]
    n_impressions = len(events) - len(graded)

    def value(event: Event) -> float:
        if settings.half_life is None:
            return float(settings.grades[event.event])
        age = (to_utc(settings.as_of) - event.ts) / timedelta(days=1)
        return settings.grades[event.event] * 0.5 ** (age / settings.half_life)

    relevance, rule, event = None, "too_few_impressions", None
    if n_impressions >= settings.min_impressions:
        relevance, rule = 0.0, "impressions"
    if others:
        rule = settings.rule
        best = max(others, key=lambda event: (value(event), settings.grades[event.event], event.event))
        last = max(others, key=lambda event: (event.ts, value(event), event.event))
        cap = max(settings.grades.values()) if settings.cap is None else settings.cap
        total = sum((Fraction(value(other)) for other in others), Fraction(0))
        relevance, event = {
            "best": (value(best), best.event),
            "last": (value(last), last.event),
            "sum": (float(min(Fraction(cap), total)), None),
        }[settings.rule]
    if negative:
        decisive = max(negative, key=lambda event: (event.ts, -settings.grades[event.event], event.event))
        followed = any(settings.grades[other.event] > 0 and other.ts > decisive.ts for other in others)
        if settings.negative == "override" or not followed:
            relevance, rule, event = float(settings.grades[decisive.event]), "negative", decisive.event
    return {
        "relevance": relevance,
        "rule": rule,
        "event": event,
        "n_events": len(graded),
        "n_negative": len(negative),
        "n_impressions": n_impressions,
        "n_duplicates": len(all_events) - len(events),
        "first_ts": min(event.ts for event in events),
        "last_ts": max(event.ts for event in events),
    }


def _deduplicate(events: list[Event], settings: EventSettings) -> list[Event]:
    if settings.dedup == "none":
        return events
    groups: defaultdict[object, list[Event]] = defaultdict(list)
    for event in events:
        interval = int(event.ts.timestamp()) // settings.dedup_seconds if settings.dedup_seconds else None
        groups[event.event_id if settings.dedup == "event_id" else (event.user, event.event, interval)].append(event)
    grade = {settings.impression: -np.inf, **settings.grades}
    merged = []
    for group in groups.values():
        first, best = min(group, key=lambda event: event.ts), max(group, key=lambda event: grade[event.event])
        merged.append(Event(best.event, first.days, first.query, first.item, first.event_id, first.user))
    return merged


def random_events(seed: int, n: int = 400) -> list[Event]:
    """Generate events of few pairs at coarse times, so that ties, repeats and empty windows occur."""
    generator = np.random.default_rng(seed)
    names = ["impression", "impression", "view", "cart", "purchase", "dislike", "skip"]
    return [
        Event(
            event=str(generator.choice(names)),
            days=float(generator.integers(0, 200)) / 4,
            query=f"q{generator.integers(12)}",
            item=f"i{generator.integers(8)}",
            event_id=f"e{generator.integers(60)}",
            user=f"u{generator.integers(2)}",
        )
        for _ in range(n)
    ]
