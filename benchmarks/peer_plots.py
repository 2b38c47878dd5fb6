"""Plots of measurements on one core: times, errors and bytes compared with other libraries, and the time of each
function.
"""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from benchmarks.plots import OURS, PALE_OURS, bar_chart
from benchmarks.quantiles import EXTREME_QUANTILES

LINES = ("#475569", "#0284c7", "#059669", "#7c3aed", "#ca8a04", "#db2777", "#0f766e", "#854d0e")
MARKERS = "osv^DPX<"
SMALLEST_ERROR = 1e-6


def draw_reduce(figures: Any) -> Figure:
    """Draw bars with the nanoseconds per row of each sketch. The sketch that is fastest for many groups comes first."""
    cases = ["many groups", "one group"]
    ns = {(_label(line), line["case"]): line["ns"] for line in figures["quantiles"]}
    labels = sorted({label for label, _ in ns}, key=lambda label: ns[label, cases[0]])
    rows = {label: [ns.get((label, case)) for case in cases] for label in labels}
    return bar_chart(
        rows, cases, is_ours=_is_ours, xlabel="nanoseconds a row on one core, log scale", form="{:,.0f}", scale="log"
    )


def draw_accuracy(figures: Any) -> Figure:
    """Draw a line with the relative errors of each sketch by quantile, in one panel per distribution."""
    lines = figures["accuracy"]
    distributions = list(dict.fromkeys(line["distribution"] for line in lines))
    peers = [label for label in dict.fromkeys(map(_label, lines)) if not _is_ours(label)]
    figure = Figure(figsize=(12, 5.4), layout="constrained")
    panels = figure.subplots(1, len(distributions), sharey=True)
    for axes, distribution in zip(panels, distributions, strict=True):
        for line in lines:
            if line["distribution"] != distribution:
                continue
            label = _label(line)
            # An error of 0 cannot be drawn on a logarithmic scale, so it is drawn at the lower edge.
            errors = [max(error, SMALLEST_ERROR) for error in line["errors"]]
            axes.plot(range(len(errors)), errors, label=label, **_look(label, line["what"], peers))
        axes.axhline(0.01, color="#94a3b8", ls=":", lw=1.4, zorder=0)
        axes.set_xticks(range(len(EXTREME_QUANTILES)), [str(q) for q in EXTREME_QUANTILES])
        axes.set(yscale="log", xlabel="quantile", title=distribution)
        axes.grid(color="#eef2f7")
    panels[0].set_ylabel("relative error, log scale (dotted: 1 %)")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", fontsize=9)
    return figure


def draw_bytes(figures: Any) -> Figure:
    """Draw bars with the bytes per state of each sketch of lognormal values, the smallest first. A number of rows
    is left out if a sketch was not measured with it.
    """
    lognormal_lines = [line for line in figures["bytes"] if line["distribution"] == "lognormal"]
    size = {(_label(line), line["rows"]): line["bytes"] for line in lognormal_lines}
    labels = list({label for label, _ in size})
    all_counts = sorted({count for _, count in size}, reverse=True)
    counts = [count for count in all_counts if all((label, count) in size for label in labels)]
    labels.sort(key=lambda label: (size[label, counts[0]], label))
    rows = {label: [size.get((label, count)) for count in counts] for label in labels}
    return bar_chart(
        rows, [f"{count:,} rows" for count in counts], is_ours=_is_ours, xlabel="bytes a state", form="{:,.0f}"
    )


def draw_functions(figures: Any) -> Figure:
    """Draw bars with the nanoseconds per row of each function, the fastest first."""
    ns = {name: function["reduce_ns_per_row"] for name, function in figures["functions"].items()}
    rows = {name: [ns[name]] for name in sorted(ns, key=lambda name: ns[name])}
    xlabel = "nanoseconds a row in 1,000 groups on one core, log scale"
    return bar_chart(rows, ["reduce"], is_ours=lambda _: False, xlabel=xlabel, form="{:,.0f}", scale="log")


def _look(label: str, what: str, peers: list[str]) -> dict[str, Any]:
    """Return Matplotlib's properties for the line of a sketch. The lines of tiltframe are broad, so that they remain
    visible if other lines coincide with them.
    """
    if _is_ours(label):
        return {"color": OURS if what == "dds" else PALE_OURS, "lw": 5, "zorder": 2}
    number = peers.index(label)
    return {
        "color": LINES[number % len(LINES)],
        "lw": 1.2,
        "marker": MARKERS[number % len(MARKERS)],
        "ms": 4.5,
    }


def _is_ours(label: str) -> bool:
    return "(tiltframe" in label


def _label(line: Any) -> str:
    """Return the name of an operation with its library, such as ``approx_quantile (DuckDB)``."""
    what = line["what"]
    who = line["who"]
    if who.endswith(", reduce"):
        return f"{what} ({who} alone)"
    if what.startswith(who):
        return f"{what} (package)"
    return f"{what} ({who})"
