"""Figures of a page, their colours in light and dark, and their SVG."""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

from ndcg_spark.core.labels import cutoff
from ndcg_spark.errors import cannot_import
from ndcg_spark.reports.contents import ComparisonRow, Mean, TrendPoint, name_run, split_at_gaps
from ndcg_spark.reports.sections import Contents
from ndcg_spark.reports.sentences import choose_flag_tone
from ndcg_spark.reports.wording import MINUS, shorten

try:
    import matplotlib as mpl
    from matplotlib import dates as mdates
    from matplotlib.axes import Axes
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator
except ImportError as error:
    raise cannot_import(error, "figures need matplotlib", "matplotlib", "report") from None

COLOURS = {
    "paper": ("#ffffff", "#12161b"),
    "panel": ("#f5f7f9", "#1a2027"),
    "ink": ("#1a2027", "#e9edf1"),
    "muted": ("#57616d", "#a5b0bb"),
    "rule": ("#dfe4e9", "#2e3741"),
    "accent": ("#0067a3", "#6bbcee"),
    "bad": ("#a83c00", "#ff9c66"),
    "band": ("#cfe2ef", "#1f3f56"),
    "run-0": ("#0072b2", "#56b4e9"),
    "run-1": ("#b87400", "#e69f00"),
    "run-2": ("#008a64", "#2cc295"),
    "run-3": ("#cf5a00", "#ff8136"),
    "run-4": ("#b0578a", "#e094c0"),
    "run-5": ("#2f8fc9", "#9fd4f3"),
    "run-6": ("#7d7300", "#f0e442"),
    "run-7": ("#3d454e", "#c4ccd4"),
}
"""Light and dark."""
LIGHT, DARK = ({name: pair[at] for name, pair in COLOURS.items()} for at in (0, 1))
MARKERS = ("o", "s", "D", "^", "v", "P", "X", "*")
LINES: tuple[Any, ...] = ("-", (0, (6, 2)), (0, (2, 2)), (0, (8, 2, 2, 2))) * 2


def choose_colour(at: int) -> str:
    return LIGHT[f"run-{at % 8}"]


_SVG, _XLINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}"
_VARIABLE = {colour: f"var(--{name})" for name, colour in reversed(LIGHT.items())}
_COLOUR = re.compile(r"#[0-9a-f]{6}")
_FONT = re.compile(r"(?:^|;)\s*font:\s*(?:(bold|\d{3})\s+)?([\d.]+)px[^;]*")
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
_DECIMALS = re.compile(r"(\d+\.\d{2})\d+")


def inline_svg(figure: Figure, shape: Shape, *, prefix: str, label: str) -> str:
    """Write a figure, drawn for `shape`, as an `svg` element of HTML; `label` is its text alternative.

    Colours of the light theme become variables of the style sheet; fonts are those of the page. `prefix` makes ids
    unique among several figures.
    """
    svg = io.BytesIO()
    with use_style(shape):
        no_metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        FigureCanvasSVG(figure).print_svg(svg, metadata=no_metadata)
    root = ElementTree.fromstring(svg.getvalue())
    parents = {child: parent for parent in root.iter() for child in parent}
    for element in list(root.iter()):
        if element.tag in (f"{_SVG}metadata", f"{_SVG}style"):
            parents[element].remove(element)
            continue
        element.tag = element.tag.removeprefix(_SVG)
        _rewrite(element, prefix)
    view = root.get("viewBox", "")
    root.attrib.clear()
    root.attrib.update(
        {"viewBox": view, "role": "img", "aria-label": label, "class": "wide" if shape.is_wide else "narrow"}
    )
    return ElementTree.tostring(root, encoding="unicode", short_empty_elements=False)


def _rewrite(element: ElementTree.Element, prefix: str) -> None:
    """Make ids unique, and use the colours and fonts of the page."""
    for name, value in list(element.attrib.items()):
        if name == "id":
            element.set("id", prefix + value)
        elif name in (f"{_XLINK}href", "href"):
            del element.attrib[name]
            element.set("href", "#" + prefix + value.removeprefix("#"))
        elif name.startswith("{"):
            del element.attrib[name]
        elif name == "style":
            element.set("style", _apply_theme(value))
        else:
            rounded = _DECIMALS.sub(r"\1", value) if name in ("d", "transform", "x", "y") else value
            element.set(name, _REFERENCE.sub(rf"url(#{prefix}\1)", rounded))


def _apply_theme(style: str) -> str:
    restyled = _FONT.sub(
        lambda match: f";font-size:{match[2]}px" + (f";font-weight:{match[1]}" if match[1] else ""), style
    )
    return _COLOUR.sub(lambda match: _VARIABLE.get(match[0], match[0]), restyled).strip("; ")


MAX_DIFFERENCES, MAX_PANELS = 24, 4
"""Limits to the rows of the forest plot and the panels of distributions; their tables are complete."""
_MAX_TICKED_NIGHTS = 4
_STEPS = (1, 2, 2.5, 5, 10)


@dataclass(frozen=True, slots=True)
class Shape:
    """Size of a figure in CSS pixels, and of its text."""

    width: int
    height: int
    text: int
    labels: int  # longest label beside an axis, in characters
    is_wide: bool


WIDE = Shape(960, 340, 13, 30, True)
NARROW = Shape(360, 300, 12, 14, False)


def _build_style(shape: Shape) -> Any:  # matplotlib has its own type for the names
    ink, muted, rule = LIGHT["ink"], LIGHT["muted"], LIGHT["rule"]
    return {
        "font.size": shape.text,
        "font.family": "sans-serif",
        "text.parse_math": False,  # dollar signs in names are not formulas
        "text.color": ink,
        "axes.labelcolor": muted,
        "axes.edgecolor": rule,
        "axes.facecolor": "none",
        "axes.grid": True,
        "axes.grid.axis": "y",
        "axes.axisbelow": True,
        **{f"axes.spines.{side}": False for side in ("left", "right", "top")},
        "axes.labelsize": shape.text,
        "axes.unicode_minus": True,
        "figure.facecolor": "none",
        "grid.color": rule,
        "grid.linewidth": 1,
        "legend.frameon": False,
        "lines.linewidth": 2,
        "lines.markersize": 6,
        **{f"{axis}tick.color": rule for axis in "xy"},
        **{f"{axis}tick.labelcolor": muted for axis in "xy"},
        **{f"{axis}tick.labelsize": shape.text for axis in "xy"},
        "ytick.left": False,
        "svg.fonttype": "none",
        "svg.hashsalt": "ndcg-spark",  # else names of elements are random
    }


@contextmanager
def use_style(shape: Shape) -> Iterator[None]:
    """Use the style of reports inside a block; the style of the user is restored after it."""
    with mpl.rc_context(_build_style(shape)), warnings.catch_warnings():
        # Browsers use other fonts than the one that measures texts here.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        warnings.filterwarnings("ignore", message="Matplotlib currently does not support")
        yield


def draw_figures(contents: Contents, shape: Shape = WIDE, *, legend: bool = True) -> dict[str, Figure]:
    """Draw `curve`, `trend`, `differences` and `distribution` if there is data for them."""
    drawers: dict[str, tuple[bool, Callable[[Contents, Shape, bool], Figure]]] = {
        "curve": (len({mean.k for mean in contents.curve}) > 1, _draw_curve),
        "trend": (any(len(nights) > 1 for nights in contents.trend.nights.values()), _draw_trend),
        "differences": (bool(select_differences(contents)), _draw_differences),
        "distribution": (bool(contents.queries.distributions), _draw_distributions),
    }
    with use_style(shape):
        return {name: draw(contents, shape, legend) for name, (has_data, draw) in drawers.items() if has_data}


def _create_axes(shape: Shape, height: float | None = None, rows: int = 1) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(shape.width / 72, (height or shape.height) / 72), dpi=72, layout="constrained")
    # The engine of "constrained" has these pads; the type of the method does not say so.
    figure.get_layout_engine().set(w_pad=0.03, h_pad=0.05)  # type: ignore[union-attr,call-arg]
    axes = figure.subplots(rows, 1, sharex=True, sharey=True, squeeze=False)
    return figure, [row[0] for row in axes]


def _add_title(figure: Figure, axes: Axes, contents: Contents, title: str, *, legend: bool) -> None:
    if not legend:
        return
    axes.set_title(title, loc="left", color=LIGHT["ink"])
    if len(contents.trend_runs) > 1:
        figure.legend(loc="outside lower center", ncols=min(4, len(contents.trend_runs)))


def _choose_style(at: int) -> dict[str, Any]:
    return {"color": choose_colour(at), "marker": MARKERS[at % 8], "linestyle": LINES[at % 8]}


def _draw_curve(contents: Contents, shape: Shape, legend: bool) -> Figure:
    figure, (axes,) = _create_axes(shape)
    cutoffs = sorted({mean.k for mean in contents.curve if mean.k is not None})
    at_end = 2.0 * cutoffs[-1] if cutoffs else 1.0  # whole lists are drawn beyond the last cutoff
    for at, run in enumerate(contents.runs):
        means = [mean for mean in contents.curve if mean.run == run and mean.value is not None]
        for part in ([mean for mean in means if mean.k is not None], [mean for mean in means if mean.k is None]):
            if not part:
                continue
            shift = 1 + 0.012 * (at - (len(contents.runs) - 1) / 2)  # keeps intervals of runs apart
            places = [(at_end if mean.k is None else mean.k) * shift for mean in part]
            values = [mean.value or 0.0 for mean in part]
            bounds = [[_cut_bound(mean, end) for mean in part] for end in ("low", "high")]
            style = _choose_style(contents.styles[run])
            _draw_arrows(axes, places, part, style["color"])
            axes.errorbar(
                places,
                values,
                yerr=[[abs(end - value) for value, end in zip(values, ends, strict=True)] for ends in bounds],
                elinewidth=1.5,
                capsize=3,
                label=name_run(run) if part[0].k is not None else None,
                **style,
            )
    ticks = [*map(float, cutoffs), *([at_end] if any(mean.k is None for mean in contents.curve) else [])]
    axes.set_xscale("log")
    axes.set_xticks(_space_ticks(ticks, shape))
    axes.xaxis.set_minor_locator(NullLocator())
    names = {float(k): str(k) for k in cutoffs} | {at_end: cutoff(None)}
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: names.get(value, f"{value:g}")))
    axes.margins(x=0.06, y=0.12)
    axes.set_xlabel("k, the ranks that count" + (" (log scale)" if len(cutoffs) > 2 else ""))
    _format_value_axis(axes)
    _add_title(figure, axes, contents, f"{contents.metric.upper()}@k", legend=legend)
    return figure


def _space_ticks(ticks: Sequence[float], shape: Shape) -> list[float]:
    """Choose ticks of a log scale whose labels do not overlap; the last tick is always one of them."""
    if len(ticks) < 2:
        return list(ticks)
    min_distance = math.log(ticks[-1] / ticks[0]) * (30 / shape.width)
    spaced: list[float] = []
    for tick in reversed(ticks):
        if not spaced or math.log(spaced[-1] / tick) > min_distance:
            spaced.append(tick)
    return spaced[::-1]


def _format_value_axis(axes: Axes) -> None:
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=_STEPS))
    axes.yaxis.get_major_formatter().set_useOffset(False)  # type: ignore[attr-defined]  # linear axes have it


def _draw_trend(contents: Contents, shape: Shape, legend: bool) -> Figure:
    figure, (axes,) = _create_axes(shape)
    bands = len(contents.trend_runs) <= 3
    for run in contents.trend_runs:
        nights = [night for night in contents.trend.nights.get(run, ()) if night.mean.value is not None]
        style = _choose_style(contents.styles[run])
        hide_markers = len(nights) > (60 if shape.is_wide else 25)
        for number, part in enumerate(split_at_gaps(nights)):
            part_days = [night.run_date for night in part]
            if bands and len(part) > 1:
                axes.fill_between(
                    part_days,  # type: ignore[arg-type]  # matplotlib takes dates
                    [_cut_bound(night.mean, "low") for night in part],
                    [_cut_bound(night.mean, "high") for night in part],
                    color=style["color"],
                    alpha=0.16,
                    linewidth=0,
                )
                _draw_arrows(axes, part_days, [night.mean for night in part], style["color"])
            line_style = {**style, "marker": None} if hide_markers and len(part) > 1 else style
            values = [night.mean.value or 0.0 for night in part]
            axes.plot(part_days, values, label=name_run(run) if number == 0 else None, markersize=4, **line_style)  # type: ignore[arg-type]  # dates
        _mark_flags(axes, nights, contents)
    _draw_gates(axes, contents, shape)
    for day in find_rule_changes(contents):
        axes.axvline(day, color=LIGHT["muted"], linewidth=1, linestyle=(0, (1, 3)))  # type: ignore[arg-type]  # dates
    days = contents.trend.days
    if len(days) <= _MAX_TICKED_NIGHTS:  # a locator would add ticks for hours
        axes.set_xticks(days, [f"{day.day} {day:%b}" for day in days])  # type: ignore[arg-type]  # dates
    else:
        locator = mdates.AutoDateLocator(minticks=3, maxticks=9 if shape.is_wide else 4)
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(mdates.ConciseDateFormatter(locator))
    axes.margins(x=0.03, y=0.12)
    _format_value_axis(axes)
    _add_title(figure, axes, contents, f"{contents.label} by night", legend=legend)
    return figure


def _mark_flags(axes: Axes, nights: Sequence[TrendPoint], contents: Contents) -> None:
    """Mark flagged nights with rings in the colours of their flags."""
    for tone, colour in (("worse", "bad"), ("better", "accent"), ("neutral", "muted")):
        flagged = [night for night in nights if night.flag and choose_flag_tone(night.flag, contents) == tone]
        axes.plot(
            [night.run_date for night in flagged],  # type: ignore[arg-type]  # dates
            [night.mean.value or 0.0 for night in flagged],
            linestyle="none",
            marker="o",
            markersize=13,
            markerfacecolor="none",
            markeredgewidth=2,
            markeredgecolor=LIGHT[colour],
        )


def _cut_bound(mean: Mean, end: str) -> float:
    """Return an end of an interval, cut at the range of the metric; the value if there is no interval."""
    bound = mean.drawn_low if end == "low" else mean.drawn_high
    return float(mean.value if bound is None else bound)  # type: ignore[arg-type]  # means without a value are not drawn


def _draw_arrows(axes: Axes, places: Sequence[Any], means: Sequence[Mean], colour: str) -> None:
    """Mark intervals that are cut at the range of the metric."""
    for end, marker in (("low", "v"), ("high", "^")):
        ends = [
            (place, _cut_bound(mean, end)) for place, mean in zip(places, means, strict=True) if mean.goes_beyond(end)
        ]
        if ends:
            axes.plot(
                *zip(*ends, strict=True), marker=marker, markersize=7, color=colour, linestyle="none", clip_on=False
            )


def find_rule_changes(contents: Contents) -> list[date]:
    """Find nights that were computed differently from the night before."""
    dates = set()
    for nights in contents.trend.nights.values():
        for before, after in pairwise(nights):
            if not after.is_like(before):
                dates.add(after.run_date)
    return sorted(dates)


def _draw_gates(axes: Axes, contents: Contents, shape: Shape) -> None:
    gates = [gate for gate in contents.gates if (gate.metric, gate.k) == (contents.metric, contents.k)]
    for bound, text in sorted({(gate.bound, gate.text) for gate in gates}):
        axes.axhline(bound, color=LIGHT["bad"], linewidth=1.5, linestyle=(0, (5, 3)))
        axes.annotate(
            f"gate {shorten(text, shape.labels)}",
            (0, bound),
            xycoords=("axes fraction", "data"),
            xytext=(2, 5),
            textcoords="offset points",
            color=LIGHT["bad"],
            bbox={"facecolor": LIGHT["paper"], "edgecolor": "none", "alpha": 0.8, "pad": 0},
        )


def select_differences(contents: Contents) -> list[ComparisonRow]:
    """Select the rows of the forest plot: the first with a difference and an interval."""
    rows = [row for row in contents.differences.rows if None not in (row.difference, row.low, row.high)]
    return rows[:MAX_DIFFERENCES]


VERDICTS = {
    "better": ("run-0", "o", True),
    "not_worse": ("run-0", "o", False),
    "worse": ("bad", "s", True),
    "higher": ("muted", "o", True),
    "lower": ("muted", "s", True),
    "unclear": ("muted", "D", False),
}
"""Colour, marker, and whether the marker is filled, by the verdict of a comparison."""


def _draw_differences(contents: Contents, shape: Shape, legend: bool) -> Figure:
    rows = select_differences(contents)
    step = 26 if shape.is_wide else 24
    figure, (axes,) = _create_axes(shape, height=70 + step * len(rows))
    several = len({(row.run, row.baseline) for row in rows}) > 1
    for at, row in enumerate(rows):
        colour, marker, filled = VERDICTS.get(row.verdict, VERDICTS["unclear"])
        low, middle, high = row.low or 0.0, row.difference or 0.0, row.high or 0.0  # none of them is null here
        axes.plot([low, high], [at, at], color=LIGHT[colour], linewidth=2, solid_capstyle="butt")
        face = LIGHT[colour] if filled else LIGHT["paper"]
        axes.plot(
            [middle], [at], color=LIGHT[colour], marker=marker, markersize=8, markerfacecolor=face, markeredgewidth=2
        )
    axes.axvline(0, color=LIGHT["ink"], linewidth=1)
    names = [f"{name_run(row.run)}: {row.name}" if several else row.name for row in rows]
    names = [shorten(name, shape.labels) + " *" * row.is_small for name, row in zip(names, rows, strict=True)]
    axes.set_yticks(range(len(rows)), names)
    axes.tick_params(axis="y", labelcolor=LIGHT["ink"])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    axes.grid(visible=True, axis="x")
    axes.xaxis.set_major_locator(MaxNLocator(7 if shape.is_wide else 4, steps=_STEPS))
    signed = FuncFormatter(lambda value, _: f"{value:+.6g}".replace("-", MINUS) if abs(value) > 1e-12 else "0")
    axes.xaxis.set_major_formatter(signed)
    axes.set_xlabel(f"difference in {contents.label}")
    if legend:
        axes.set_title(f"Differences in {contents.label}", loc="left", color=LIGHT["ink"])
    return figure


def _draw_distributions(contents: Contents, shape: Shape, legend: bool) -> Figure:
    shown = contents.queries.distributions[:MAX_PANELS]
    panel_height = 180 if shape.is_wide else 150
    figure, panels = _create_axes(
        shape, height=shape.height if len(shown) == 1 else 50 + panel_height * len(shown), rows=len(shown)
    )
    for axes, distribution in zip(panels, shown, strict=True):
        width = (distribution.high - distribution.low) / len(distribution.counts)
        middles = [edge + width / 2 for edge in distribution.edges[:-1]]
        heights = [100 * n / max(1, distribution.n_queries) for n in distribution.counts]
        colour = choose_colour(contents.styles[distribution.run])
        axes.bar(middles, heights, width=width * 0.92, color=colour, linewidth=0)
        median = distribution.quartiles[1]
        if median is not None and distribution.low <= median <= distribution.high:
            axes.axvline(median, color=LIGHT["ink"], linewidth=1.5, linestyle=(0, (4, 2)), clip_on=False)
            axes.set_title(f"median {median:.3g}", loc="right", color=LIGHT["muted"], size=shape.text)
        if len(shown) > 1:
            name = shorten(name_run(distribution.run), shape.labels + 8)
            axes.set_title(name, loc="left", color=LIGHT["ink"], size=shape.text)
        axes.set_xlim(distribution.low, distribution.high)
        axes.yaxis.set_major_locator(MaxNLocator(4, steps=_STEPS))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} %"))
    panels[-1].set_xlabel(f"{contents.label} of a query")
    if legend:
        figure.suptitle(f"Share of queries by {contents.label}", color=LIGHT["ink"], ha="left", x=0.02)
    return figure
