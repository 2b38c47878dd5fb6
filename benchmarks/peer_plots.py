"""Plots of measurements on one core: times, errors and bytes compared with other libraries, and the time of each
function.
"""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from benchmarks.plots import OUR_COLOUR, OUR_PALE_COLOUR, bar_chart
from benchmarks.quantiles import EXTREME_QUANTILES

PEER_COLOURS = ("#475569", "#0284c7", "#059669", "#7c3aed", "#ca8a04", "#db2777", "#0f766e", "#854d0e")
MARKERS = "osv^DPX<"
SMALLEST_ERROR = 1e-6


def draw_reduce(figures: Any) -> Figure:
    """Draw bars with the nanoseconds per row of each sketch. The sketch that is fastest for many groups comes first."""
    cases = ["many groups", "one group"]
    ns = {(_label(record), record["case"]): record["ns"] for record in figures["quantiles"]}
    labels = sorted({label for label, _ in ns}, key=lambda label: ns[label, cases[0]])
    rows = {label: [ns.get((label, case)) for case in cases] for label in labels}
    return bar_chart(
        rows, cases, is_ours=_is_ours, xlabel="nanoseconds a row on one core, log scale", form="{:,.0f}", scale="log"
    )


def draw_accuracy(figures: Any) -> Figure:
    """Draw one line per sketch, which shows its relative errors by quantile. There is one panel per distribution."""
    records = figures["accuracy"]
    distributions = list(dict.fromkeys(record["distribution"] for record in records))
    peers = [label for label in dict.fromkeys(map(_label, records)) if not _is_ours(label)]
    figure = Figure(figsize=(12, 5.4), layout="constrained")
    panels = figure.subplots(1, len(distributions), sharey=True)
    for axes, distribution in zip(panels, distributions, strict=True):
        for record in records:
            if record["distribution"] != distribution:
                continue
            label = _label(record)
            # An error of 0 cannot be drawn on a logarithmic scale, so it is drawn at the lower edge.
            errors = [max(error, SMALLEST_ERROR) for error in record["errors"]]
            axes.plot(range(len(errors)), errors, label=label, **_look(label, record["what"], peers))
        axes.axhline(0.01, color="#94a3b8", ls=":", lw=1.4, zorder=0)
        axes.set_xticks(range(len(EXTREME_QUANTILES)), [str(q) for q in EXTREME_QUANTILES])
        axes.set(yscale="log", xlabel="quantile", title=distribution)
        axes.grid(color="#eef2f7")
    panels[0].set_ylabel("relative error, log scale (dotted: 1 %)")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", fontsize=9)
    return figure


def draw_bytes(figures: Any) -> Figure:
    """Draw bars with the bytes per state of each sketch of lognormal values, the smallest first. Numbers of rows with
    which not every sketch was measured are left out.
    """
    lognormal_records = [record for record in figures["bytes"] if record["distribution"] == "lognormal"]
    size = {(_label(record), record["rows"]): record["bytes"] for record in lognormal_records}
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


def _look(label: str, operation: str, peers: list[str]) -> dict[str, Any]:
    """Return Matplotlib's properties for the line of a sketch. The lines of tiltframe are broad, so that they remain
    visible if the lines of other libraries cover them.
    """
    if _is_ours(label):
        return {"color": OUR_COLOUR if operation == "dds" else OUR_PALE_COLOUR, "lw": 5, "zorder": 2}
    number = peers.index(label)
    return {
        "color": PEER_COLOURS[number % len(PEER_COLOURS)],
        "lw": 1.2,
        "marker": MARKERS[number % len(MARKERS)],
        "ms": 4.5,
    }


def _is_ours(label: str) -> bool:
    return "(tiltframe" in label


def _label(record: Any) -> str:
    """Return the name of an operation with its library, such as ``approx_quantile (DuckDB)``."""
    operation = record["what"]
    library = record["who"]
    if library.endswith(", reduce"):
        return f"{operation} ({library} alone)"
    if operation.startswith(library):
        return f"{operation} (package)"
    return f"{operation} ({library})"
