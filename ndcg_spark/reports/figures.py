"""Figures of a page, their colours in light and dark, and the SVG that holds them."""

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
from ndcg_spark.reports.contents import Comparison, Mean, Night, run_name, split_at_gaps
from ndcg_spark.reports.sections import Contents
from ndcg_spark.reports.sentences import flag_tone
from ndcg_spark.reports.wording import MINUS, shortened

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


def run_colour(at: int) -> str:
    return LIGHT[f"run-{at % 8}"]


_SVG, _XLINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}"
_VARIABLE = {colour: f"var(--{name})" for name, colour in reversed(LIGHT.items())}
_COLOUR = re.compile(r"#[0-9a-f]{6}")
_FONT = re.compile(r"(?:^|;)\s*font:\s*(?:(bold|\d{3})\s+)?([\d.]+)px[^;]*")
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
_DECIMALS = re.compile(r"(\d+\.\d{2})\d+")


def inline_svg(figure: Figure, shape: Shape, *, prefix: str, label: str) -> str:
    """Write a figure, drawn for `shape`, as an `svg` element of HTML; `label` is its text alternative.

    Colours of the light theme are variables of the style sheet; fonts are those of the page. `prefix` keeps the ids
    of several figures apart.
    """
    drawn = io.BytesIO()
    with drawing(shape):
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        FigureCanvasSVG(figure).print_svg(drawn, metadata=nothing)
    root = ElementTree.fromstring(drawn.getvalue())
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
    """Make ids unique, and colours and fonts those of the page."""
    for name, value in list(element.attrib.items()):
        if name == "id":
            element.set("id", prefix + value)
        elif name in (f"{_XLINK}href", "href"):
            del element.attrib[name]
            element.set("href", "#" + prefix + value.removeprefix("#"))
        elif name.startswith("{"):
            del element.attrib[name]
        elif name == "style":
            element.set("style", _themed(value))
        else:
            short = _DECIMALS.sub(r"\1", value) if name in ("d", "transform", "x", "y") else value
            element.set(name, _REFERENCE.sub(rf"url(#{prefix}\1)", short))


def _themed(style: str) -> str:
    sized = _FONT.sub(
        lambda found: f";font-size:{found[2]}px" + (f";font-weight:{found[1]}" if found[1] else ""), style
    )
    return _COLOUR.sub(lambda found: _VARIABLE.get(found[0], found[0]), sized).strip("; ")


MOST_DIFFERENCES, MOST_PANELS = 24, 4
"""Rows of the forest plot, and panels of distributions; tables beside them have all."""
_FEW_NIGHTS = 4
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


def _settings(shape: Shape) -> Any:  # matplotlib has a type of its own for the names
    ink, muted, rule = LIGHT["ink"], LIGHT["muted"], LIGHT["rule"]
    return {
        "font.size": shape.text,
        "font.family": "sans-serif",
        "text.parse_math": False,  # a name with two dollar signs is a name
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
    }


@contextmanager
def drawing(shape: Shape) -> Iterator[None]:
    """Set the style of figures inside a block, and leave that of the user alone outside."""
    with mpl.rc_context(_settings(shape)), warnings.catch_warnings():
        # A browser has other fonts than the one that texts are measured with here.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        warnings.filterwarnings("ignore", message="Matplotlib currently does not support")
        yield


def figures_of(contents: Contents, shape: Shape = WIDE, *, legend: bool = True) -> dict[str, Figure]:
    """Draw `curve`, `trend`, `differences` and `distribution`, as far as there is data."""
    drawn: dict[str, tuple[bool, Callable[[Contents, Shape, bool], Figure]]] = {
        "curve": (len({one.k for one in contents.curve}) > 1, _curve),
        "trend": (any(len(nights) > 1 for nights in contents.trend.nights.values()), _trend),
        "differences": (bool(shown_differences(contents)), _differences),
        "distribution": (bool(contents.queries.distributions), _distribution),
    }
    with drawing(shape):
        return {name: draw(contents, shape, legend) for name, (wanted, draw) in drawn.items() if wanted}


def _canvas(shape: Shape, height: float | None = None, rows: int = 1) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(shape.width / 72, (height or shape.height) / 72), dpi=72, layout="constrained")
    # The engine of "constrained", which has these pads; types know only that there may be one.
    figure.get_layout_engine().set(w_pad=0.03, h_pad=0.05)  # type: ignore[union-attr,call-arg]
    axes = figure.subplots(rows, 1, sharex=True, sharey=True, squeeze=False)
    return figure, [row[0] for row in axes]


def _named(figure: Figure, axes: Axes, contents: Contents, title: str, *, legend: bool) -> None:
    if not legend:
        return
    axes.set_title(title, loc="left", color=LIGHT["ink"])
    if len(contents.runs) > 1:
        figure.legend(loc="outside lower center", ncols=min(4, len(contents.runs)))


def _style(at: int) -> dict[str, Any]:
    return {"color": run_colour(at), "marker": MARKERS[at % 8], "linestyle": LINES[at % 8]}


def _curve(contents: Contents, shape: Shape, legend: bool) -> Figure:
    figure, (axes,) = _canvas(shape)
    cutoffs = sorted({one.k for one in contents.curve if one.k is not None})
    at_end = 2.0 * cutoffs[-1] if cutoffs else 1.0  # the whole list has no place on the axis: it stands apart
    for at, run in enumerate(contents.runs):
        its = [one for one in contents.curve if one.run == run and one.value is not None]
        for part in ([one for one in its if one.k is not None], [one for one in its if one.k is None]):
            if not part:
                continue
            shift = 1 + 0.012 * (at - (len(contents.runs) - 1) / 2)  # so that intervals do not hide each other
            places = [(at_end if one.k is None else one.k) * shift for one in part]
            values = [one.value or 0.0 for one in part]
            bounds = [[_bound(one, end) for one in part] for end in ("low", "high")]
            _arrows(axes, places, part, _style(at)["color"])
            axes.errorbar(
                places,
                values,
                yerr=[[abs(end - value) for value, end in zip(values, ends, strict=True)] for ends in bounds],
                elinewidth=1.5,
                capsize=3,
                label=run_name(run) if part[0].k is not None else None,
                **_style(at),
            )
    ticks = [*map(float, cutoffs), *([at_end] if any(one.k is None for one in contents.curve) else [])]
    axes.set_xscale("log")
    axes.set_xticks(_apart(ticks, shape))
    axes.xaxis.set_minor_locator(NullLocator())
    names = {float(k): str(k) for k in cutoffs} | {at_end: cutoff(None)}
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: names.get(value, f"{value:g}")))
    axes.margins(x=0.06, y=0.12)
    axes.set_xlabel("k, the ranks that count" + (" (log scale)" if len(cutoffs) > 2 else ""))
    _value_axis(axes)
    _named(figure, axes, contents, f"{contents.metric.upper()}@k", legend=legend)
    return figure


def _apart(ticks: Sequence[float], shape: Shape) -> list[float]:
    """Ticks of a log scale that are far enough from each other for their labels, the last one first."""
    if len(ticks) < 2:
        return list(ticks)
    room = math.log(ticks[-1] / ticks[0]) * (30 / shape.width)
    kept: list[float] = []
    for tick in reversed(ticks):
        if not kept or math.log(kept[-1] / tick) > room:
            kept.append(tick)
    return kept[::-1]


def _value_axis(axes: Axes) -> None:
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=_STEPS))
    axes.yaxis.get_major_formatter().set_useOffset(False)  # type: ignore[attr-defined]  # a linear axis has it


def _trend(contents: Contents, shape: Shape, legend: bool) -> Figure:
    figure, (axes,) = _canvas(shape)
    bands = len(contents.runs) <= 3
    for at, run in enumerate(contents.runs):
        nights = [one for one in contents.trend.nights.get(run, ()) if one.mean.value is not None]
        style = _style(at)
        many = len(nights) > (60 if shape.is_wide else 25)
        for number, part in enumerate(split_at_gaps(nights)):
            days = [one.run_date for one in part]
            if bands and len(part) > 1:
                axes.fill_between(
                    days,  # type: ignore[arg-type]  # matplotlib takes dates
                    [_bound(one.mean, "low") for one in part],
                    [_bound(one.mean, "high") for one in part],
                    color=style["color"],
                    alpha=0.16,
                    linewidth=0,
                )
                _arrows(axes, days, [one.mean for one in part], style["color"])
            marked = {**style, "marker": None} if many and len(part) > 1 else style
            values = [one.mean.value or 0.0 for one in part]
            axes.plot(days, values, label=run_name(run) if number == 0 else None, markersize=4, **marked)  # type: ignore[arg-type]  # dates
        _rings(axes, nights, contents)
    _gate_lines(axes, contents, shape)
    for changed in configuration_changes(contents):
        axes.axvline(changed, color=LIGHT["muted"], linewidth=1, linestyle=(0, (1, 3)))  # type: ignore[arg-type]  # dates
    shown = sorted({one.run_date for its in contents.trend.nights.values() for one in its})
    if len(shown) <= _FEW_NIGHTS:  # a locator would put hours between them
        axes.set_xticks(shown, [f"{one.day} {one:%b}" for one in shown])  # type: ignore[arg-type]  # dates
    else:
        locator = mdates.AutoDateLocator(minticks=3, maxticks=9 if shape.is_wide else 4)
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(mdates.ConciseDateFormatter(locator))
    axes.margins(x=0.03, y=0.12)
    _value_axis(axes)
    _named(figure, axes, contents, f"{contents.label} by night", legend=legend)
    return figure


def _rings(axes: Axes, nights: Sequence[Night], contents: Contents) -> None:
    """Mark flagged nights, in the colours of their flags."""
    for tone, colour in (("worse", "bad"), ("better", "accent"), ("neutral", "muted")):
        flagged = [one for one in nights if one.flag is not None and flag_tone(one.flag, contents) == tone]
        axes.plot(
            [one.run_date for one in flagged],  # type: ignore[arg-type]  # dates
            [one.mean.value or 0.0 for one in flagged],
            linestyle="none",
            marker="o",
            markersize=13,
            markerfacecolor="none",
            markeredgewidth=2,
            markeredgecolor=LIGHT[colour],
        )


def _bound(mean: Mean, end: str) -> float:
    """End of an interval, within the range of the metric; the value where there is no interval."""
    bound = mean.drawn_low if end == "low" else mean.drawn_high
    return float(mean.value if bound is None else bound)  # type: ignore[arg-type]  # without a value it is left out


def _arrows(axes: Axes, places: Sequence[Any], means: Sequence[Mean], colour: str) -> None:
    """Mark where intervals go on beyond the range of the metric."""
    for end, marker in (("low", "v"), ("high", "^")):
        at = [(place, _bound(one, end)) for place, one in zip(places, means, strict=True) if one.goes_beyond(end)]
        if at:
            axes.plot(
                *zip(*at, strict=True), marker=marker, markersize=7, color=colour, linestyle="none", clip_on=False
            )


def configuration_changes(contents: Contents) -> list[date]:
    found = set()
    for nights in contents.trend.nights.values():
        for before, after in pairwise(nights):
            if not after.is_like(before):
                found.add(after.run_date)
    return sorted(found)


def _gate_lines(axes: Axes, contents: Contents, shape: Shape) -> None:
    bounds = {(one.bound, one.text) for one in contents.gates if (one.metric, one.k) == (contents.metric, contents.k)}
    for bound, text in sorted(bounds):
        axes.axhline(bound, color=LIGHT["bad"], linewidth=1.5, linestyle=(0, (5, 3)))
        axes.annotate(
            f"gate {shortened(text, shape.labels)}",
            (0, bound),
            xycoords=("axes fraction", "data"),
            xytext=(2, 5),
            textcoords="offset points",
            color=LIGHT["bad"],
            bbox={"facecolor": LIGHT["paper"], "edgecolor": "none", "alpha": 0.8, "pad": 0},
        )


def shown_differences(contents: Contents) -> list[Comparison]:
    """Rows of the forest plot: the first of those with a difference and an interval."""
    whole = [one for one in contents.differences.rows if one.difference is not None and one.low is not None]
    return [one for one in whole if one.high is not None][:MOST_DIFFERENCES]


VERDICTS = {
    "better": ("run-0", "o", True),
    "not_worse": ("run-0", "o", False),
    "worse": ("bad", "s", True),
    "higher": ("muted", "o", True),
    "lower": ("muted", "s", True),
    "unclear": ("muted", "D", False),
}
"""Colour, marker, and whether it is filled, by the verdict of a comparison."""


def _differences(contents: Contents, shape: Shape, legend: bool) -> Figure:
    rows = shown_differences(contents)
    step = 26 if shape.is_wide else 24
    figure, (axes,) = _canvas(shape, height=70 + step * len(rows))
    several = len({(one.run, one.baseline) for one in rows}) > 1
    for at, one in enumerate(rows):
        colour, marker, filled = VERDICTS.get(one.verdict, VERDICTS["unclear"])
        low, middle, high = one.low or 0.0, one.difference or 0.0, one.high or 0.0  # none of them is null here
        axes.plot([low, high], [at, at], color=LIGHT[colour], linewidth=2, solid_capstyle="butt")
        face = LIGHT[colour] if filled else LIGHT["paper"]
        axes.plot(
            [middle], [at], color=LIGHT[colour], marker=marker, markersize=8, markerfacecolor=face, markeredgewidth=2
        )
    axes.axvline(0, color=LIGHT["ink"], linewidth=1)
    names = [f"{run_name(one.run)}: {one.name}" if several else one.name for one in rows]
    names = [shortened(name, shape.labels) + " *" * one.is_small for name, one in zip(names, rows, strict=True)]
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


def _distribution(contents: Contents, shape: Shape, legend: bool) -> Figure:
    shown = contents.queries.distributions[:MOST_PANELS]
    each = 180 if shape.is_wide else 150
    figure, panels = _canvas(
        shape, height=shape.height if len(shown) == 1 else 50 + each * len(shown), rows=len(shown)
    )
    for axes, one in zip(panels, shown, strict=True):
        whole = max(1, one.n_queries)
        width = (one.high - one.low) / len(one.counts)
        middles = [edge + width / 2 for edge in one.edges[:-1]]
        heights = [100 * n / whole for n in one.counts]
        axes.bar(middles, heights, width=width * 0.92, color=run_colour(contents.runs.index(one.run)), linewidth=0)
        median = one.quartiles[1]
        if median is not None and one.low <= median <= one.high:
            axes.axvline(median, color=LIGHT["ink"], linewidth=1.5, linestyle=(0, (4, 2)), clip_on=False)
            axes.set_title(f"median {median:.3g}", loc="right", color=LIGHT["muted"], size=shape.text)
        if len(shown) > 1:
            axes.set_title(
                shortened(run_name(one.run), shape.labels + 8), loc="left", color=LIGHT["ink"], size=shape.text
            )
        axes.set_xlim(one.low, one.high)
        axes.yaxis.set_major_locator(MaxNLocator(4, steps=_STEPS))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} %"))
    panels[-1].set_xlabel(f"{contents.label} of a query")
    if legend:
        figure.suptitle(f"Share of queries by {contents.label}", color=LIGHT["ink"], ha="left", x=0.02)
    return figure
