"""Colours of pages and figures, in light and in dark.

The hues of runs are those of Okabe and Ito, which people with any kind of colour vision tell apart (M. Okabe and
K. Ito, Color Universal Design, 2008); on white some are darkened, so that a line has a contrast of 3 to 1. Runs also
differ by their markers.
"""

from __future__ import annotations

LIGHT = {
    "paper": "#ffffff",
    "panel": "#f5f7f9",
    "ink": "#1a2027",
    "muted": "#57616d",
    "rule": "#dfe4e9",
    "accent": "#0067a3",
    "bad": "#a83c00",
    "band": "#cfe2ef",
    "run-0": "#0072b2",
    "run-1": "#b87400",
    "run-2": "#008a64",
    "run-3": "#cf5a00",
    "run-4": "#b0578a",
    "run-5": "#2f8fc9",
    "run-6": "#7d7300",
    "run-7": "#3d454e",
}
DARK = {
    "paper": "#12161b",
    "panel": "#1a2027",
    "ink": "#e9edf1",
    "muted": "#a5b0bb",
    "rule": "#2e3741",
    "accent": "#6bbcee",
    "bad": "#ff9c66",
    "band": "#1f3f56",
    "run-0": "#56b4e9",
    "run-1": "#e69f00",
    "run-2": "#2cc295",
    "run-3": "#ff8136",
    "run-4": "#e094c0",
    "run-5": "#9fd4f3",
    "run-6": "#f0e442",
    "run-7": "#c4ccd4",
}
MARKERS = ("o", "s", "D", "^", "v", "P", "X", "*")
LINES: tuple[str | tuple[int, tuple[int, ...]], ...] = (
    "-", (0, (6, 2)), (0, (2, 2)), (0, (8, 2, 2, 2)), "-", (0, (6, 2)), (0, (2, 2)), (0, (8, 2, 2, 2)),
)  # fmt: skip


def run_colour(at: int) -> str:
    """Colour of a run on white, by its place."""
    return LIGHT[f"run-{at % 8}"]


def css_variables(theme: dict[str, str]) -> str:
    """Write a theme as custom properties of CSS."""
    return "".join(f"--{name}:{value};" for name, value in theme.items())
