"""Plots of the comparison: three pictures, with one colour for tiltframe and another for all other libraries."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks import reducing
from benchmarks.accuracy import Errors
from benchmarks.costs import Cost, cost_of
from benchmarks.samples import DISTRIBUTIONS, EXTREME_QUANTILES
from benchmarks.sizes import Size, size_of

OURS, PEERS, PALE, PALE_OURS = "#c2410c", "#475569", "#b6c2d1", "#f6bd9b"
LINES = ("#475569", "#0284c7", "#059669", "#7c3aed", "#ca8a04", "#db2777", "#0f766e", "#854d0e")
MARKERS = "osv^DPX<"
SMALLEST_ERROR = 1e-6
STYLE: Any = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.axisbelow": True,
    "legend.frameon": False,
    "figure.dpi": 130,
}


def plots(
    folder: Path, reduced: Sequence[Cost], errors: Sequence[Errors], stored: Sequence[Size], about: str
) -> list[Path]:
    """Write all plots to a folder. ``about`` describes the circumstances of the measurement in small print."""
    folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(STYLE):
        drawn = {"reduce": _reduce(reduced), "accuracy": _accuracy(errors), "bytes": _bytes(stored)}
        for name, figure in drawn.items():
            figure.supxlabel(about, fontsize=7.5, color="#64748b", x=0.01, ha="left")
            figure.savefig(folder / f"{name}.png")
    return [folder / f"{name}.png" for name in drawn]


def _reduce(costs: Sequence[Cost]) -> Figure:
    """Draw nanoseconds per row as bars, the fastest first."""
    figure = Figure(figsize=(9, 6.2), layout="constrained")
    axes = figure.subplots()
    ways = [(c.what, c.who) for c in costs if c.case == reducing.MANY]
    ways.sort(key=lambda way: cost_of(costs, way[0], way[1], reducing.MANY) or 0.0, reverse=True)
    for case, shift in ((reducing.MANY, 0.2), (reducing.ONE_GROUP, -0.2)):
        many = case == reducing.MANY
        values = [cost_of(costs, what, who, case) or 0.0 for what, who in ways]
        colours = [_colour(library, is_dark=many) for _, library in ways]
        at = [i + shift for i in range(len(ways))]
        _bars(axes, at, values, colours, form="{:,.0f}")
    axes.set_yticks(range(len(ways)), [_named(*way) for way in ways])
    _mark_ours(axes, [who for _, who in ways])
    axes.set(xscale="log", xlabel="nanoseconds a row, log scale")
    axes.grid(axis="x", color="#e2e8f0")
    title = f"What a row costs on one core. Dark: groups of {reducing.ROWS_A_GROUP} rows; pale: one group"
    figure.suptitle(title, x=0.01, ha="left", fontweight="bold")
    return figure


def _accuracy(accuracies: Sequence[Errors]) -> Figure:
    """Draw relative errors over quantiles, with one panel per distribution. Exact results are left out."""
    figure = Figure(figsize=(12, 5.4), layout="constrained")
    panels = figure.subplots(1, len(DISTRIBUTIONS), sharey=True)
    every = list(dict.fromkeys((e.what, e.who) for e in accuracies))
    exact = [who for what, who in every if not any(max(e.errors) for e in accuracies if (e.what, e.who) == (what, who))]
    ways = [way for way in every if way[1] not in exact]
    peers = [way for way in ways if not _is_ours(way[1])]
    for axes, distribution in zip(panels, DISTRIBUTIONS, strict=True):
        for e in accuracies:
            if e.distribution != distribution or (e.what, e.who) not in ways:
                continue
            ours = _is_ours(e.who)
            i = 0 if ours else peers.index((e.what, e.who))
            look: dict[str, Any] = (
                # a broad line, because other lines coincide with it
                {"color": OURS if e.what == "dds" else PALE_OURS, "lw": 5, "zorder": 2}
                if ours
                else {"color": LINES[i % len(LINES)], "lw": 1.2, "marker": MARKERS[i % len(MARKERS)], "ms": 4.5}
            )
            # An error of 0 cannot be drawn on a logarithmic scale, so it is drawn at the lower edge.
            axes.plot(
                range(len(e.errors)), [max(x, SMALLEST_ERROR) for x in e.errors], label=_named(e.what, e.who), **look
            )
        axes.axhline(0.01, color="#94a3b8", ls=":", lw=1.4, zorder=0)
        axes.set_xticks(range(len(EXTREME_QUANTILES)), [str(q) for q in EXTREME_QUANTILES])
        axes.set(yscale="log", xlabel="quantile", title=distribution)
        axes.grid(color="#eef2f7")
    panels[0].set_ylabel("relative error, log scale (dotted: 1 %)")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", fontsize=9)
    title = "How far each quantile is from the true one: the worst of several samples. " + (
        f"Exact, and left out: {', '.join(sorted(exact))}" if exact else ""
    )
    figure.suptitle(title, x=0.01, ha="left", fontweight="bold")
    return figure


def _bytes(stored: Sequence[Size]) -> Figure:
    """Draw bytes per state as bars, for states of few rows and of many rows."""
    figure = Figure(figsize=(9, 4.6), layout="constrained")
    axes = figure.subplots()
    few, many = sorted({s.rows for s in stored})
    ways = list(dict.fromkeys((s.what, s.who) for s in stored))
    ways.sort(key=lambda way: size_of(stored, way[0], "lognormal", many), reverse=True)
    for rows, shift in ((many, 0.2), (few, -0.2)):
        dark = rows == many
        values = [size_of(stored, what, "lognormal", rows) for what, _ in ways]
        colours = [_colour(library, is_dark=dark) for _, library in ways]
        _bars(axes, [i + shift for i in range(len(ways))], values, colours, form="{:,.0f}")
    axes.set_yticks(range(len(ways)), [_named(*way) for way in ways])
    _mark_ours(axes, [who for _, who in ways])
    axes.set(xlabel="bytes")
    axes.grid(axis="x", color="#e2e8f0")
    title = f"Bytes per state of lognormal values. Dark: {many:,} rows; pale: {few:,} rows"
    figure.suptitle(title, x=0.01, ha="left", fontweight="bold")
    return figure


def _bars(axes: Any, at: Sequence[float], values: Sequence[float], colours: Sequence[str], form: str) -> None:
    """Draw horizontal bars, each followed by its number."""
    bars = axes.barh(at, values, height=0.38, color=colours)
    axes.bar_label(bars, [form.format(value) for value in values], padding=3, fontsize=8, color="#334155")
    axes.margins(x=0.08, y=0.02)


def _mark_ours(axes: Any, whos: Sequence[str]) -> None:
    for label, who in zip(axes.get_yticklabels(), whos, strict=True):
        if _is_ours(who):
            label.set(color=OURS, fontweight="bold")


def _is_ours(who: str) -> bool:
    return who.startswith("tiltframe")


def _colour(library: str, is_dark: bool) -> str:
    if _is_ours(library):
        return OURS if is_dark else PALE_OURS
    return PEERS if is_dark else PALE


def _named(what: str, who: str) -> str:
    """Return the operation and its library: ``approx_quantile (DuckDB)``."""
    if who == reducing.REDUCE:
        return f"{what} (tiltframe, reduce alone)"
    if what.startswith(who):
        return f"{what} (package)"
    return f"{what} ({who})"
