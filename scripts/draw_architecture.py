"""Draw docs/architecture.svg, the engine on one screen: python scripts/draw_architecture.py."""

from __future__ import annotations

from html import escape
from pathlib import Path

TARGET = Path(__file__).resolve().parent.parent / "docs" / "architecture.svg"
WIDTH, HEIGHT, BOX, GAP, LEFT, TOP = 1180, 390, 190, 48, 18, 52
WORKER, SPARK, TEXT, LINE = "#e3f0fb", "#fdeeda", "#1b2733", "#5b6b7a"
STEPS = (
    (
        "1  Source",
        SPARK,
        "evaluation/frames/source.py",
        ("Arrow batches of", "canonical columns", "", "read by Spark, or by", "workers from files"),
    ),
    (
        "2  Partial rankings",
        WORKER,
        "evaluation/tasks/partial_ranking.py",
        ("per query of a chunk:", "counts", "first K + 1 entries", "best K relevances", "or the rows, if few"),
    ),
    (
        "3  Exchange",
        SPARK,
        "evaluation/tasks/exchange.py",
        ("one shuffle of", "(partition id, kind, payload)", "", "a payload is one", "packed Arrow batch"),
    ),
    (
        "4  Merge and score",
        WORKER,
        "evaluation/tasks/partial_ranking.py",
        ("all of a query meets:", "merge partial rankings", "look up judgments", "refuse duplicates", "NDCG"),
    ),
    (
        "5  Means",
        SPARK,
        "evaluation/frames/summary.py",
        ("exact sums per", "(run, segment, metric, k)", "", "one small shuffle,", "rounded once"),
    ),
)
SORTED = (
    "files sorted by query: complete queries are scored where they are read; only their sums travel "
    "(evaluation/tasks/complete_queries.py)"
)


def text(x: float, y: float, words: str, *, size: int = 13, weight: str = "normal", mono: bool = False) -> str:
    family = "monospace" if mono else "sans-serif"
    return (
        f'<text x="{x:g}" y="{y:g}" font-family="{family}" font-size="{size}" font-weight="{weight}" '
        f'fill="{TEXT}">{escape(words)}</text>'
    )


def box(x: float, y: float, width: float, height: float, color: str) -> str:
    shape = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="8"'
    return f'<rect {shape} fill="{color}" stroke="{LINE}"/>'


def arrow(points: str, *, dashed: bool = False) -> str:
    dashes = ' stroke-dasharray="6 4"' if dashed else ""
    return (
        f'<polyline points="{points}" fill="none" stroke="{LINE}" stroke-width="1.6"{dashes} marker-end="url(#tip)"/>'
    )


def left_of(step: int) -> int:
    return LEFT + step * (BOX + GAP)


def drawing() -> list[str]:
    found = []
    middle = TOP + 78
    for at, (title, color, module, lines) in enumerate(STEPS):
        x = left_of(at)
        found += [box(x, TOP, BOX, 156, color), text(x + 12, TOP + 26, title, size=15, weight="bold")]
        found += [text(x + 12, TOP + 50 + 18 * n, line) for n, line in enumerate(lines)]
        found.append(text(x + 12, TOP + 146, module, size=11, mono=True))
        if at:
            found.append(arrow(f"{x - GAP + 2},{middle} {x - 4},{middle}"))
    low = TOP + 206
    found += [
        box(left_of(1), low, BOX, 64, WORKER),
        text(left_of(1) + 12, low + 26, "Judgments", size=15, weight="bold"),
    ]
    found.append(text(left_of(1) + 12, low + 46, "rows of their table"))
    found.append(
        arrow(f"{left_of(1) + BOX + 2},{low + 32} {left_of(2) + 60},{low + 32} {left_of(2) + 60},{TOP + 160}")
    )
    above = TOP - 20
    ends = (left_of(0) + BOX / 2, left_of(4) + BOX / 2)
    found.append(
        arrow(f"{ends[0]:g},{TOP - 2} {ends[0]:g},{above} {ends[1]:g},{above} {ends[1]:g},{TOP - 4}", dashed=True)
    )
    found.append(text(left_of(1), above - 8, SORTED, size=12))
    branch = left_of(3) + 60
    found.append(arrow(f"{branch},{TOP + 158} {branch},{low + 32} {left_of(4) - 4},{low + 32}"))
    found += [
        box(left_of(4), low, BOX, 64, SPARK),
        text(left_of(4) + 12, low + 26, "rankings", size=15, weight="bold"),
    ]
    found.append(text(left_of(4) + 12, low + 46, "per query: score_queries"))
    legend = low + 100
    for x, color, words in (
        (LEFT, SPARK, "Spark moves and plans"),
        (LEFT + 220, WORKER, "NumPy and Arrow in Python workers"),
    ):
        found += [box(x, legend, 22, 16, color), text(x + 30, legend + 13, words, size=12)]
    return found


def main() -> None:
    tip = (
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0,0 L8,4 L0,8 z" fill="{LINE}"/></marker></defs>'
    )
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">'
    title = "<title>Source, partial rankings, exchange, merge and score, means</title>"
    ground = f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>'
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text("\n".join([head, title, tip, ground, *drawing(), "</svg>", ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
