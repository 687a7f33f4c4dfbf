"""Figures of matplotlib as SVG to stand inside a page: themed by its style sheet, with texts that stay text."""

from __future__ import annotations

import io
import re
from xml.etree import ElementTree

from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from ndcg_spark.reports.figures import Shape, drawing
from ndcg_spark.reports.palette import LIGHT

_SVG, _XLINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}"
_VARIABLE = {colour: f"var(--{name})" for name, colour in reversed(LIGHT.items())}
_COLOUR = re.compile(r"#[0-9a-f]{6}")
_FONT = re.compile(r"(?:^|;)\s*font:\s*(?:(bold|\d{3})\s+)?([\d.]+)px[^;]*")
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
_DECIMALS = re.compile(r"(\d+\.\d{2})\d+")


def inline_svg(figure: Figure, shape: Shape, *, prefix: str, label: str) -> str:
    """Write a figure as an `svg` element of HTML.

    Colours of the light theme are variables of the style sheet; fonts are those of the page. `shape` is what it was
    drawn for. `prefix` is put before the ids of its parts, so that those of several figures differ; `label` is the
    text alternative.
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
