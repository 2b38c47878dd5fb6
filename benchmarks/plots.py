"""The style of all plots, and bar charts with one colour for tiltframe and another for all other libraries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Patch

OUR_COLOUR = "#c2410c"
PEER_COLOUR = "#475569"
PALE_COLOUR = "#b6c2d1"
OUR_PALE_COLOUR = "#f6bd9b"
GRID_COLOUR = "#e2e8f0"
TEXT_COLOUR = "#334155"
SMALL_PRINT_COLOUR = "#64748b"
DARK_AND_PALE = ((OUR_COLOUR, PEER_COLOUR), (OUR_PALE_COLOUR, PALE_COLOUR))
STYLE: Any = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.axisbelow": True,
    "legend.frameon": False,
    # SVG files contain text as characters and not as outlines of characters, so that the files are small.
    "svg.fonttype": "none",
    # The seed of the identifiers in SVG files is fixed, so that equal figures give equal files.
    "svg.hashsalt": "tiltframe",
}


def bar_chart(
    rows: Mapping[str, Sequence[float | None]],
    cases: Sequence[str],
    is_ours: Callable[[str], bool],
    xlabel: str,
    form: str,
    scale: str = "linear",
    shades: Sequence[tuple[str, str]] = DARK_AND_PALE,
) -> Figure:
    """Draw a horizontal bar for each row and case, with its number next to it.

    Parameters
    ----------
    rows : mapping of str to sequence of float or None
        The label of each row, the first one at the top, and its number for each case. None leaves the bar out.
    cases : sequence of str
        The names of the cases, for the legend. There is no legend for a single case.
    is_ours : function
        A function that receives the label of a row, and returns whether the row is tiltframe's.
    xlabel : str
        The quantity with its unit.
    form : str
        The format of the numbers next to the bars, such as ``"{:,.1f}"``.
    scale : str, optional
        The scale of the axis: "linear" or "log".
    shades : sequence of pairs of str, optional
        The colours of each case, for rows of tiltframe and for other rows.

    Returns
    -------
    Figure
        The figure, without a title.
    """
    labels = list(rows)
    height = 0.8 / len(cases)
    inches = 1.2 + len(labels) * max(0.2 * len(cases), 0.24)
    figure = Figure(figsize=(9, inches), layout="constrained")
    axes = figure.subplots()
    for number, (own_colour, other_colour) in enumerate(shades[: len(cases)]):
        values = {row: value for row, label in enumerate(labels) if (value := rows[label][number]) is not None}
        shift = (number - (len(cases) - 1) / 2) * height
        colours = [own_colour if is_ours(labels[row]) else other_colour for row in values]
        bars = axes.barh([row + shift for row in values], list(values.values()), height=0.95 * height, color=colours)
        axes.bar_label(
            bars, [form.format(value) for value in values.values()], padding=3, fontsize=8, color=TEXT_COLOUR
        )
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.margins(x=0.08, y=0.02)
    for text in axes.get_yticklabels():
        if is_ours(text.get_text()):
            text.set(color=OUR_COLOUR, fontweight="bold")
    axes.set(xscale=scale, xlabel=xlabel)
    axes.grid(axis="x", color=GRID_COLOUR)
    if len(cases) > 1:
        patches = [
            Patch(color=other_colour, label=case) for case, (_, other_colour) in zip(cases, shades, strict=False)
        ]
        figure.legend(handles=patches, loc="outside upper right", ncols=len(cases), fontsize=9)
    return figure
