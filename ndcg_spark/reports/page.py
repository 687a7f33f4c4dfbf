"""The page of a report: one HTML file without external resources.

Jinja fills the template and escapes every text. If it failed to, the content security policy of the page would still
block every script except the one whose hash it names.
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
from ndcg_spark.reports.contents import SMALL_SEGMENT, Mean, name_run
from ndcg_spark.reports.sections import Contents

try:
    from jinja2 import Environment, StrictUndefined, Template
    from markupsafe import Markup
except ImportError as error:
    raise cannot_import(error, "pages need Jinja2", "jinja2", "report") from None

from ndcg_spark.reports.figures import DARK, LIGHT, NARROW, WIDE, draw_figures, inline_svg

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
    """A small table: heads, each with whether its column is numeric, and rows of texts."""

    caption: str
    heads: tuple[tuple[str, bool], ...]
    rows: list[tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Scale:
    """Position of values on a strip of 100 units."""

    low: float
    high: float

    def locate(self, value: float | None) -> float:
        if value is None or self.high <= self.low:
            return 50.0
        return round(min(99.0, max(1.0, 100 * (value - self.low) / (self.high - self.low))), 1)


def draw_page(contents: Contents) -> str:
    script, css = _read_file("page.js"), build_styles()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return load_template("page.html.jinja").render(
        c=contents,
        css=Markup(css),  # ours
        script=Markup(script),
        script_hash=digest,
        figures=_draw_svgs(contents),
        tables=build_tables(contents),
        scale=_choose_scale([row.mean for row in contents.segments.rows]),
        result_scale=_choose_scale([result.mean for result in contents.results]),
        decimals=contents.decimals,
        difference_decimals=sentences.choose_difference_decimals(contents),
        markers=MARKER_PATHS,
        small=SMALL_SEGMENT,
        version=__version__,
        name_run=name_run,
        s=sentences,
        w=wording,
        labels=labels,
    )


def build_styles() -> str:
    """Read the style sheet of pages and add the colours of both themes."""
    css = _read_file("page.css")
    for name, theme in (("/*light*/", LIGHT), ("/*dark*/", DARK)):
        css = css.replace(name, "".join(f"--{colour}:{value};" for colour, value in theme.items()))
    return css


@cache
def load_template(name: str) -> Template:
    """Load a template of this package that escapes every text."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=False
    )
    return environment.from_string(_read_file(name))


@cache
def _read_file(name: str) -> str:
    return (files("ndcg_spark.reports") / name).read_text(encoding="utf-8")


def _choose_scale(means: Sequence[Mean]) -> Scale:
    ends = [end for mean in means for end in (mean.drawn_low, mean.drawn_high, mean.value) if end is not None]
    return Scale(min(ends, default=0.0), max(ends, default=1.0))


def _draw_svgs(contents: Contents) -> dict[str, Markup]:
    """Draw each figure twice: for wide and for narrow screens."""
    distributions = contents.queries.distributions
    texts = {
        "distribution": " ".join(
            sentences.describe_distribution(each, several=len(distributions) > 1) for each in distributions
        ),
        "differences": sentences.describe_differences(contents),
        "trend": sentences.describe_trend(contents),
        "curve": sentences.describe_curve(contents),
    }
    svgs: dict[str, str] = {}
    for shape, size in ((WIDE, "w"), (NARROW, "n")):
        for name, figure in draw_figures(contents, shape, legend=False).items():
            svg = inline_svg(figure, shape, prefix=f"{name}-{size}-", label=texts[name])
            svgs[name] = svgs.get(name, "") + svg
    return {name: Markup(svg) for name, svg in svgs.items()}  # escaped by ElementTree


def build_tables(contents: Contents) -> dict[str, Table]:
    """Build a table with the numbers of each figure, by the name of the figure."""
    run_head = (("Run", False),) if len(contents.trend_runs) > 1 else ()

    def build_row(mean: Mean, name: str) -> tuple[str, ...]:
        value = wording.format_number(mean.value, contents.decimals)
        interval = wording.format_interval(mean.low, mean.high, contents.decimals)
        run = (name_run(mean.run),) if run_head else ()
        return (*run, name, value, interval, wording.format_count(mean.n_queries))

    means = [build_row(mean, wording.name_metric(mean.metric, mean.k)) for mean in contents.means]
    nights = [
        (*build_row(point.mean, point.run_date.isoformat()), point.flag or "")
        for points in contents.trend.nights.values()
        for point in reversed(points)
    ]
    numbers: tuple[tuple[str, bool], ...] = (("Value", True), ("Interval", True), ("Queries", True))
    tables = {
        "curve": Table("All metrics over all queries", (*run_head, ("Metric", False), *numbers), means),
        "trend": Table(
            f"{contents.label} by night", (*run_head, ("Night", False), *numbers, ("Flag", False)), nights
        ),
    }
    if contents.queries.distributions:
        tables["distribution"] = _build_bins(contents)
    return tables


def _build_bins(contents: Contents) -> Table:
    distributions = contents.queries.distributions
    first = distributions[0]
    heads: list[tuple[str, bool]] = [(contents.label, False)]
    heads += [(name_run(each.run) if len(distributions) > 1 else "Queries", True) for each in distributions]
    rows = []
    for at, (low, high) in enumerate(zip(first.edges, first.edges[1:], strict=False)):
        last = at == len(first.counts) - 1
        name = f"{low:.3g} to {'' if last else 'below '}{high:.3g}"
        rows.append((name, *[wording.format_count(each.counts[at]) for each in distributions]))
    for name, column in (("lower", "n_below"), ("higher", "n_above"), ("without a value", "n_undefined")):
        counts = [getattr(each, column) for each in distributions]
        if any(counts):
            rows.append((name, *map(wording.format_count, counts)))
    return Table("Queries by value", tuple(heads), rows)
