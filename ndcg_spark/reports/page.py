"""The page of a report: one HTML file that loads nothing.

Jinja fills the template and escapes every text. Should a text of the data get through all the same, the content
security policy of the page lets no script run but the one whose hash it names.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from ndcg_spark._version import __version__
from ndcg_spark.core import labels
from ndcg_spark.errors import cannot_import
from ndcg_spark.reports import sentences, wording
from ndcg_spark.reports.contents import SMALL, Mean, run_name
from ndcg_spark.reports.sections import Contents

try:
    from jinja2 import Environment, StrictUndefined, Template
    from markupsafe import Markup
except ImportError as error:
    raise cannot_import(error, "pages need Jinja2", "jinja2", "report") from None

from ndcg_spark.reports.figures import DARK, LIGHT, NARROW, WIDE, figures_of, inline_svg

MARKER_PATHS = (
    "M8 4a4 4 0 1 1-8 0a4 4 0 1 1 8 0z",
    "M.5.5h7v7h-7z",
    "M4 0l4 4l-4 4l-4-4z",
    "M4 .5l4 7h-8z",
    "M4 7.5l4-7h-8z",
    "M2.7 0h2.6v2.7h2.7v2.6h-2.7v2.7h-2.6v-2.7h-2.7v-2.6h2.7z",
    "M1.5 0l2.5 2.5l2.5-2.5l1.5 1.5l-2.5 2.5l2.5 2.5l-1.5 1.5l-2.5-2.5l-2.5 2.5l-1.5-1.5l2.5-2.5l-2.5-2.5z",
    "M4 0l1 3h3l-2.400 1.900l.9 3.100l-2.500-1.900l-2.500 1.900l.9-3.100l-2.400-1.900h3z",
)
"""Shapes of `figures.MARKERS` in a box of 8 by 8, for legends."""


@dataclass(frozen=True, slots=True)
class Table:
    """A small table: heads with whether they are of numbers, and rows of texts."""

    caption: str
    heads: tuple[tuple[str, bool], ...]
    rows: list[tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Scale:
    """Where values stand on a strip of 100 units."""

    low: float
    high: float

    def at(self, value: float | None) -> float:
        if value is None or self.high <= self.low:
            return 50.0
        return round(min(99.0, max(1.0, 100 * (value - self.low) / (self.high - self.low))), 1)


def page_of(contents: Contents) -> str:
    script, css = _text_of("page.js"), styles()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return template("page.html.jinja").render(
        c=contents,
        css=Markup(css),  # ours
        script=Markup(script),
        script_hash=digest,
        figures=_drawn(contents),
        tables=tables_of(contents),
        scale=_scale([one.mean for one in contents.segments.rows]),
        standing_scale=_scale([one.mean for one in contents.standings]),
        decimals=contents.decimals,
        difference_decimals=sentences.difference_decimals(contents),
        markers=MARKER_PATHS,
        small=SMALL,
        version=__version__,
        run_name=run_name,
        s=sentences,
        w=wording,
        labels=labels,
    )


def styles() -> str:
    """The style sheet of pages, with the colours of both themes."""
    css = _text_of("page.css")
    for name, theme in (("/*light*/", LIGHT), ("/*dark*/", DARK)):
        css = css.replace(name, "".join(f"--{colour}:{value};" for colour, value in theme.items()))
    return css


@cache
def template(name: str) -> Template:
    """A template of this package, which escapes every text."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=False
    )
    return environment.from_string(_text_of(name))


@cache
def _text_of(name: str) -> str:
    return (files("ndcg_spark.reports") / name).read_text(encoding="utf-8")


def _scale(means: Sequence[Mean]) -> Scale:
    ends = [end for one in means for end in (one.drawn_low, one.drawn_high, one.value) if end is not None]
    return Scale(min(ends, default=0.0), max(ends, default=1.0))


def _drawn(contents: Contents) -> dict[str, Markup]:
    """Each figure twice: for wide and for narrow screens."""
    its = contents.queries.distributions
    texts = {
        "distribution": " ".join(sentences.distribution_text(one, several=len(its) > 1) for one in its),
        "differences": sentences.differences_text(contents),
        "trend": sentences.trend_text(contents),
        "curve": sentences.curve_text(contents),
    }
    found: dict[str, str] = {}
    for shape, size in ((WIDE, "w"), (NARROW, "n")):
        for name, figure in figures_of(contents, shape, legend=False).items():
            drawn = inline_svg(figure, shape, prefix=f"{name}-{size}-", label=texts[name])
            found[name] = found.get(name, "") + drawn
    return {name: Markup(text) for name, text in found.items()}  # escaped by ElementTree


def tables_of(contents: Contents) -> dict[str, Table]:
    """Numbers behind the figures, as tables beside them, by the name of the figure."""
    decimals = contents.decimals
    run = (("Run", False),) if len(contents.runs) > 1 else ()

    def of_run(name: str) -> tuple[str, ...]:
        return (run_name(name),) if run else ()

    means = [
        (*of_run(one.run), wording.metric_name(one.metric, one.k), wording.number(one.value, decimals),
         wording.interval(one.low, one.high, decimals), wording.count(one.n_queries))
        for one in contents.means
    ]  # fmt: skip
    nights = [
        (*of_run(name), one.run_date.isoformat(), wording.number(one.mean.value, decimals),
         wording.interval(one.mean.low, one.mean.high, decimals), wording.count(one.mean.n_queries), one.flag or "")
        for name, its in contents.trend.nights.items()
        for one in reversed(its)
    ]  # fmt: skip
    value: tuple[tuple[str, bool], ...] = (("Value", True), ("Interval", True), ("Queries", True))
    found = {
        "curve": Table("All metrics over all queries", (*run, ("Metric", False), *value), means),
        "trend": Table(f"{contents.label} by night", (*run, ("Night", False), *value, ("Flag", False)), nights),
    }
    if contents.queries.distributions:
        found["distribution"] = _bins(contents)
    return found


def _bins(contents: Contents) -> Table:
    its = contents.queries.distributions
    first = its[0]
    heads: list[tuple[str, bool]] = [(contents.label, False)]
    heads += [(run_name(one.run) if len(its) > 1 else "Queries", True) for one in its]
    rows = []
    for at, (low, high) in enumerate(zip(first.edges, first.edges[1:], strict=False)):
        last = at == len(first.counts) - 1
        name = f"{low:.3g} to {'' if last else 'below '}{high:.3g}"
        rows.append((name, *[wording.count(one.counts[at]) for one in its]))
    for name, column in (("lower", "n_below"), ("higher", "n_above"), ("without a value", "n_undefined")):
        if any(getattr(one, column) for one in its):
            rows.append((name, *[wording.count(getattr(one, column)) for one in its]))
    return Table("Queries by value", tuple(heads), rows)
