"""Draw the one rule: merging the states of fine windows gives the state of the coarse window.

``python docs/pictures/one_rule.py`` writes one-rule.svg next to this file. The states are computed by tiltframe.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

import aggr
from tiltframe import TiltFrame, finish, rollup

PICTURE = Path(__file__).with_name("one-rule.svg")
VALUES = [12, 15, 340, 9, 21, 18, 11, 95, 14]
SECONDS = [1, 4, 8, 12, 15, 17, 21, 26, 28]
FRAME = TiltFrame(
    ["10s", "30s"],
    "ts",
    {"n": aggr.count(), "sum": aggr.sum("ms"), "max": aggr.max("ms"), "p50": aggr.hdr("ms", [0.5])},
)
WIDTH = 840
LEFT = 150
COLUMN = 220
INK = "#1f2933"
PAPER = "#ffffff"
FINE = "#e3f0fb"
COARSE = "#fdeccf"


def results() -> dict[str, list[str]]:
    """Return descriptions of the state of each window, by level."""
    rows = pa.table({"ts": [1000 * second for second in SECONDS], "ms": VALUES})
    said: dict[str, list[str]] = {}
    for row in finish(rollup(rows, FRAME), FRAME, flat=True).to_pylist():
        text = f"n {row['n']} · Σ {row['sum']} · max {row['max']} · p50 {row['p50_p50']}"
        said.setdefault(row["level"], []).append(text)
    return said


def text(x: float, y: float, words: str, size: int = 13, anchor: str = "middle") -> str:
    """Write a text at a place."""
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}" fill="{INK}">{words}</text>'


def box(x: float, y: float, width: float, words: str, fill: str) -> str:
    """Draw a state in its window."""
    outline = f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="40" rx="5" fill="{fill}" stroke="{INK}"/>'
    return outline + text(x + width / 2, y + 25, words, 12)


def arrow(x: float, y: float, to_y: float) -> str:
    """Draw an arrow upwards."""
    return f'<path d="M{x:g} {y:g} V{to_y:g}" stroke="{INK}" fill="none" marker-end="url(#tip)"/>'


def drawing() -> str:
    """Draw the rows at the bottom, their windows of 10 s above them, and the window of 30 s at the top."""
    said = results()
    parts = [box(LEFT, 20, width=3 * COLUMN, words=said["30s"][0], fill=COARSE), text(70, 45, "30 s", 14)]
    parts += [text(70, 165, "10 s", 14), text(70, 278, "rows, ms", 14)]
    for i, words in enumerate(said["10s"]):
        middle = LEFT + (i + 0.5) * COLUMN
        parts += [box(LEFT + i * COLUMN + 8, 140, width=COLUMN - 16, words=words, fill=FINE), arrow(middle, 138, 66)]
        parts.append(text(middle + 8, 106, "merge", size=12, anchor="start"))
        parts += [arrow(middle, 256, 184), text(middle + 8, 224, "reduce", size=12, anchor="start")]
    for second, value in zip(SECONDS, VALUES, strict=True):
        parts.append(text(LEFT + second * COLUMN / 10, 278, str(value), 14))
    parts += [f'<path d="M{LEFT} 258 H{LEFT + 3 * COLUMN}" stroke="{INK}"/>']
    parts.append(
        f'<path d="M{LEFT - 20} 258 V40 H{LEFT - 3}" stroke="{INK}" fill="none" marker-end="url(#tip)" '
        'stroke-dasharray="5 4"/>'
    )
    parts.append(text(LEFT - 28, 110, "reduce", size=12, anchor="end"))
    parts.append(text(WIDTH / 2, 312, "Along both ways, solid and dashed, the state on top is the same bits.", 14))
    tip = f'<path d="M0 0 L8 4 L0 8 z" fill="{INK}"/>'
    tip = f'<marker id="tip" markerWidth="9" markerHeight="9" refX="7" refY="4" orient="auto">{tip}</marker>'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} 330" font-family="sans-serif" role="img">'
    paper = f'<rect width="{WIDTH}" height="330" fill="{PAPER}"/>'
    title = "<title>States of three windows of ten seconds, merged, are the state of the window of thirty</title>"
    return "\n".join([head, title, f"<defs>{tip}</defs>", paper, *parts, "</svg>", ""])


if __name__ == "__main__":
    PICTURE.write_text(drawing())
