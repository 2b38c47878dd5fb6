"""Plots of a report: errors against bytes of a state, and times and shuffled bytes against the number of groups."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aggr.bench.report import OURS, Report
from aggr.extras import MissingExtra

_COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999")
_ZERO_ERROR = 1e-17  # zero errors are drawn at this value, because the axis is logarithmic


def plot(report: Report, file: str | Path) -> None:
    """Draw a report into a file.

    One plot shows the time from rows to results for each number of groups. If the report has errors, a second plot
    shows them against the bytes of a state. If it has shuffled bytes, another plot shows them for each number of
    groups.

    Parameters
    ----------
    report : Report
    file : str or Path
        The file, whose extension determines the format, such as ``.png`` or ``.svg``.

    Raises
    ------
    MissingExtra
        If matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtra("a plot", "plot", error) from None
    panels = [_draw_speed]
    if report.errors:
        panels.append(_draw_errors)
    if any(traffic.shuffle_bytes for traffic in report.traffic):
        panels.append(_draw_shuffled)
    figure = Figure(figsize=(7 * len(panels), 5), layout="constrained")
    for index, draw in enumerate(panels):
        draw(report, figure.add_subplot(1, len(panels), index + 1))
    versions = ", ".join(f"{name} {value}" for name, value in report.about.items() if value and name != "rounds")
    figure.supxlabel(versions, fontsize=7)
    figure.savefig(file, dpi=150)


def _draw_speed(report: Report, axes: Any) -> None:
    """Draw the nanoseconds per row, from rows to results, over the number of groups: one line per measure, package and
    distribution of rows over groups.
    """
    points = [
        (_label(t.measure, t.by, t.keys), t.groups, t.ns, ":" in t.by) for t in report.timings if t.stage == "answers"
    ]
    _draw_lines(axes, points, "ns per row, from rows to results")


def _draw_shuffled(report: Report, axes: Any) -> None:
    """Draw the shuffled bytes per row over the number of groups: one line per measure, kind of job on Spark and
    distribution of rows over groups.
    """
    points = [
        (_label(t.measure, t.by, t.keys), t.groups, t.shuffle_bytes / t.rows, ":" in t.by)
        for t in report.traffic
        if t.shuffle_bytes
    ]
    _draw_lines(axes, points, "bytes shuffled per row")


def _draw_lines(axes: Any, points: Sequence[tuple[str, int, float, bool]], label: str) -> None:
    """Draw one line per name over the number of groups. ``label`` is the label of the vertical axis.

    A point is a tuple: the name of its line, a number of groups, the value on the vertical axis, and whether the line
    belongs to another package. The lines of other packages are dashed.
    """
    for index, name in enumerate(dict.fromkeys(name for name, *_ in points)):
        line = sorted((groups, figure) for line_name, groups, figure, _ in points if line_name == name)
        is_peer = any(peer for line_name, *_, peer in points if line_name == name)
        color = _COLORS[index % len(_COLORS)]
        axes.plot(*zip(*line, strict=True), "--" if is_peer else "-", marker="o", color=color, label=name)
    axes.set(xscale="log", yscale="log", xlabel="groups", ylabel=label)
    axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(0, -0.12))


def _draw_errors(report: Report, axes: Any) -> None:
    """Draw one point per measure and package, at the bytes of a state and the largest relative error. The state is the
    one that was reduced from the largest number of rows.
    """
    sizes = {(s.measure, s.by): s.bytes for s in report.sizes if s.bytes is not None}
    worst: dict[tuple[str, str], float] = {}
    for error in report.errors:
        key = error.measure, error.by
        worst[key] = max(worst.get(key, _ZERO_ERROR), error.worst_relative)
    for index, (key, worst_error) in enumerate(worst.items()):
        if key in sizes:
            marker = "o" if key[1] == OURS else "x"
            axes.plot(sizes[key], worst_error, marker, color=_COLORS[index % len(_COLORS)], label=_label(*key))
    axes.set(xscale="log", yscale="log", xlabel="bytes of one state", ylabel="worst relative error")
    axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(0, -0.12))


def _label(measure: str, by: str, keys: str = "even") -> str:
    """Return the name of a line or a point. ``by`` is tiltframe, another package or a kind of job on Spark. ``keys`` is
    the distribution of rows over groups. The name contains the distribution unless it is "even".
    """
    name = by if ":" in by else f"{by}, {measure}"
    label = measure if by == OURS else name
    return label if keys == "even" else f"{label}, {keys} keys"
