"""Plots of a store: a measure over time, on one or several levels, with matplotlib.

colour = key, or entry of a map or list     line style = quantile     shade = level     dotted = incomplete window

A window is incomplete if the store does not have all of its data, for example because the window has not ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from aggr import Measure
from aggr.arguments import nearest, shown
from aggr.arrow.normalize import is_number, one_array
from aggr.extras import MissingExtra
from aggr.groups.groups import group_by
from aggr.python_objects import python_objects
from aggr.quantile_parameters import check_quantiles
from aggr.tables.by_key import key_column
from aggr.time_zones import zone_of
from tiltframe.instants import instants_of
from tiltframe.names import END, LEVEL, PARTIAL, RESERVED, START
from tiltframe.store.query.query import Query

if TYPE_CHECKING:
    from tiltframe.store.view import StoreView

_MAX_POINTS = 500  # the maximum number of points that a screen can show separately

_MAX_LINES = 16  # the maximum number of lines per level that can be distinguished
_MAX_COLORS = 10
_STYLES: tuple[Any, ...] = ("-", "--", "-.", (0, (7, 2, 1, 2, 1, 2)))  # line styles of quantiles

_INCOMPLETE: Any = ":"  # the line style of incomplete windows, dotted


@dataclass(frozen=True)
class _Line:
    """One line: a column of the results for one key, with its colour and line style."""

    group: int  # the index of the line's key, among the different keys of the results
    column: str
    label: str
    color: Any
    style: Any


@dataclass(frozen=True)
class _Lines:
    """The lines of a plot and the entries of its legend.

    Parameters
    ----------
    lines : sequence of _Line
    colors : label -> colour
        The colours in the legend. The mapping is empty if all lines have the same colour.
    styles : quantile -> line style
        The line styles in the legend. The mapping is empty if there are no quantiles.
    notes : sequence of str
        The title of the legend, one text per line: the names of the keys, and which lines are not drawn.
    """

    lines: Sequence[_Line]
    colors: Mapping[str, Any]
    styles: Mapping[str, Any]
    notes: Sequence[str]


def plot(
    store: Any,
    measure: str,
    quantiles: Sequence[float] | None = None,
    ax: Any = None,
    unit: str | None = None,
    **options: Any,
) -> Any:
    """Plot a measure of a store; see `tiltframe.FrameStore.plot`."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise MissingExtra("a plot", extra="plot", error=error) from None
    frame = store.frame
    if measure not in frame.results:
        raise ValueError(f"the frame has no measure {shown(measure)}; {nearest(str(measure), frame.results)}")
    if options.get("per") is None:
        options.setdefault("points", _MAX_POINTS)
    plotted_measure = _plotted_measure(frame.results[measure], quantiles)
    query = {"keys": [], **options, "flat": True, "measures": {measure: plotted_measure}}
    results = store.query(**query)
    is_duration = pa.types.is_duration(results.schema.field(measure).type) if measure in results.column_names else False
    results = _with_entries(results)
    incomplete = _incomplete(store.at(), results)
    levels = list(dict.fromkeys(results.column(LEVEL).to_pylist()))
    groups, first_rows = group_by([key_column(results.column(key)) for key in query["keys"]], results.num_rows)
    key_values = [python_objects(results.column(key).take(pa.array(first_rows))) for key in query["keys"]]
    key_texts = [" ".join(map(str, words)) for words in zip(*key_values, strict=True)] or [""] * groups.n
    lines_to_draw = _choose_lines(results, measure, ids=groups.ids, key_texts=key_texts, keys=query["keys"])
    if ax is None:
        axes = plt.subplots(figsize=(9, 4.5), layout="constrained")[1]
    else:
        axes = ax
        if axes.figure.figure.get_layout_engine() is None:
            # Without this layout, the legend would be outside of the figure.
            axes.figure.figure.set_layout_engine("constrained")
    level_of_row = np.array(results.column(LEVEL).to_pylist(), object)
    shades = {level: 1.0 - 0.6 * (len(levels) - 1 - i) / max(len(levels) - 1, 1) for i, level in enumerate(levels)}
    for (level, shade), line in product(shades.items(), lines_to_draw.lines):
        rows = np.flatnonzero((level_of_row == level) & (groups.ids == line.group))
        _draw_line(axes, results.take(pa.array(rows)), line, level=level, alpha=shade, incomplete=incomplete[rows])
    is_amount = isinstance(plotted_measure, Measure) and plotted_measure.function.is_amount
    if is_amount:
        _begin_at_zero(axes)
    _label_times(axes, results.schema.field(START).type.tz)
    axes.set_ylabel(_value_label(measure, plotted_measure, unit=unit or ("s" if is_duration else None), levels=levels))
    _add_legend(axes, lines_to_draw, shades=shades, has_incomplete=bool(incomplete.any()))
    return axes


def _plotted_measure(measure: Measure | str, quantiles: Sequence[float] | None) -> Measure | str:
    if quantiles is None:
        return measure
    if isinstance(measure, str) or "quantiles" not in [f.name for f in fields(measure.function)]:
        raise ValueError(f"{measure!r} does not have quantiles; leave out quantiles={shown(quantiles)}")
    parameters: dict[str, Any] = {"quantiles": check_quantiles(quantiles)}
    return replace(measure, function=replace(measure.function, **parameters))


def _with_entries(results: pa.Table) -> pa.Table:
    """Return the results with columns of plain values. A map ``m`` of numbers becomes one column per key, ``m[key]``,
    and a list of numbers one column per position, ``m[0]``. Durations become seconds.
    """
    columns: dict[str, pa.ChunkedArray | pa.Array] = {}
    for field in results.schema:
        column = results.column(field.name)
        if pa.types.is_duration(field.type):
            microseconds = column.cast(pa.duration("us"), safe=False).cast(pa.int64())
            columns[field.name] = pc.divide(microseconds.cast(pa.float64(), safe=False), 1e6)
            continue
        if pa.types.is_map(field.type) and is_number(field.type.item_type):
            entries = _entries_of_map(column)
        elif pa.types.is_list(field.type) and is_number(field.type.value_type):
            entries = _entries_of_list(column)
        else:
            columns[field.name] = column
            continue
        columns |= {f"{field.name}[{name}]": entry for name, entry in entries.items()}
    return pa.table(columns)


def _entries_of_map(column: pa.ChunkedArray) -> dict[str, pa.ChunkedArray]:
    keys = {key for chunk in column.chunks for key in pc.unique(chunk.keys).to_pylist()}
    return {str(key): pc.map_lookup(column, pa.scalar(key, column.type.key_type), "first") for key in sorted(keys)}


def _entries_of_list(column: pa.ChunkedArray) -> dict[str, pa.Array]:
    """Return one column per position in the lists, as position → column. A value is null if the list of its row is
    shorter.
    """
    lists = one_array(column)
    parents = pc.list_parent_indices(lists).to_numpy()
    places = np.arange(len(parents)) - np.searchsorted(parents, parents)
    values = lists.flatten().cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    entries = {}
    for place in range(int(places.max(initial=-1)) + 1):
        entry = np.full(len(lists), np.nan)
        entry[parents[places == place]] = values[places == place]
        entries[str(place)] = pa.array(entry, mask=np.isnan(entry))
    return entries


def _incomplete(view: StoreView, results: pa.Table) -> NDArray[np.bool_]:
    """Return a mask, of shape (rows,), of the rows of results whose window is incomplete.

    A window is incomplete if the column ``partial`` is true, because the window has not ended or a part of its states
    has expired. It is also incomplete if the data of the store begin or end inside the window (`_are_cut_off`).
    """
    incomplete: NDArray[np.bool_] = results.column(PARTIAL).to_numpy(zero_copy_only=False).astype(bool)
    starts = instants_of(results)
    window_ends = instants_of(results, END)
    level_of_row = np.array(results.column(LEVEL).to_pylist(), object)
    for level in set(level_of_row):
        rows = np.flatnonzero(level_of_row == level)
        is_cut = _are_cut_off(view, level, starts[rows], window_ends[rows])
        incomplete[rows[is_cut]] = True
    return incomplete


def _are_cut_off(
    view: StoreView, per: str, starts: NDArray[np.int64], window_ends: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return a mask, of shape (windows,), of the windows in which the data of the store begin or end. ``per`` is the
    name of the windows, which may be coarser than all levels.

    The windows are compared with those of the next finer level that has rows. If the first finer window starts inside a
    window, the store has no data from the start of the window to the start of the first finer window. The window is in
    the mask if this time is longer than the longest gap between consecutive finer windows near the beginning of the
    data. A shorter time may be an ordinary gap. If finer windows have expired, the beginning is not checked, because
    the data began earlier.

    The end is checked in the same way. If the last finer window ends inside a window, the store has no data from the
    end of the last finer window to the end of the window. This time is compared with the longest gap between
    consecutive finer windows near the end of the data.

    Windows of the finest level are never in the mask.
    """
    is_cut = np.zeros(len(starts), bool)
    length = int((window_ends - starts).max(initial=0))
    finer = [level.name for level in view.frame.levels if level.name != per and level.length < length]
    finer = [name for name in finer if view.level(name).rows]
    if not finer:
        return is_cut
    finer_windows = view.level(finer[-1])
    assert finer_windows.first_start is not None
    assert finer_windows.end is not None
    data_begin_inside = (
        (starts < finer_windows.first_start)
        & (finer_windows.first_start < window_ends)
        & (not finer_windows.has_expired)
    )
    if data_begin_inside.any():
        gap = _longest_gap(view, finer[-1], (finer_windows.first_start, finer_windows.first_start + 2 * length))
        is_cut |= data_begin_inside & (finer_windows.first_start - starts > gap)
    data_end_inside = (starts < finer_windows.end) & (finer_windows.end < window_ends)
    if data_end_inside.any():
        gap = _longest_gap(view, finer[-1], (finer_windows.end - 2 * length, finer_windows.end))
        is_cut |= data_end_inside & (window_ends - finer_windows.end > gap)
    return is_cut


def _longest_gap(view: StoreView, level: str, within: tuple[int, int]) -> int:
    """Return the longest gap, in microseconds, between consecutive windows of a level that start in the range
    ``within``.
    """
    bounds = tuple(np.datetime64(at, "us").astype(object) for at in within)
    windows = view.windows(Query(per=level, within=bounds, keys=[], timezone="UTC")).table()
    starts = instants_of(windows)
    window_ends = instants_of(windows, END)
    return int((starts[1:] - window_ends[:-1]).max(initial=0))


def _choose_lines(
    results: pa.Table, measure: str, *, ids: NDArray[np.int64], key_texts: Sequence[str], keys: Sequence[str]
) -> _Lines:
    """Return the lines to draw: one for each key and column of numbers or, if the results have quantiles, one for each
    key and quantile.

    Of the quantiles, at most four are drawn: the first, the last, and others at even distances. All quantiles of a key
    have the same colour; otherwise each line has its own colour. If there would be more than `_MAX_COLORS` colours or
    `_MAX_LINES` lines, the lines with the largest sums of absolute values are drawn.
    """
    from matplotlib import rcParams

    columns = [name for name in results.column_names if name not in (*RESERVED, *keys)]
    numbers = [name for name in columns if is_number(results.schema.field(name).type)]
    if not numbers:
        raise ValueError(
            f"there are no numbers to plot in {', '.join(columns)}; choose a measure whose results are numbers"
        )
    percentiles = [n for n in numbers if n.rpartition("_p")[2].replace("_", "").isdigit() and "_p" in n]
    places = np.linspace(0, len(percentiles) - 1, min(len(percentiles), len(_STYLES))).round().astype(int)
    shown_percentiles = [percentiles[place] for place in places]
    omitted = [_percentile(name) for name in percentiles if name not in shown_percentiles]
    notes = [f"without {', '.join(omitted)}"] if omitted else []
    colored_names = [measure] if percentiles else numbers
    cycle = list(dict.fromkeys(rcParams["axes.prop_cycle"].by_key().get("color", ["C0"])))
    series_limit = min(len(cycle), _MAX_COLORS, _MAX_LINES // max(len(shown_percentiles), 1))
    totals = {}
    for colored_name in colored_names:
        values = _as_doubles(results.column(shown_percentiles[0] if percentiles else colored_name))
        magnitudes = np.where(np.isfinite(values), np.abs(values), 0.0)
        for group, total in enumerate(np.bincount(ids, magnitudes, minlength=len(key_texts))):
            totals[group, colored_name] = total
    series = [(group, colored_name) for group, colored_name in product(range(len(key_texts)), colored_names)]
    chosen_series = sorted(sorted(series, key=totals.__getitem__, reverse=True)[:series_limit], key=series.index)
    is_per_key = bool(keys) and len(colored_names) == 1
    if is_per_key:
        notes.append(", ".join(keys))
    if len(chosen_series) < len(series):
        notes.append(f"the {len(chosen_series)} largest of {len(series):,} {'keys' if is_per_key else 'lines'}")
    colors = {}
    lines = []
    for (group, colored_name), color in zip(chosen_series, cycle, strict=False):
        text = " ".join(word for word in (colored_name if len(colored_names) > 1 else "", key_texts[group]) if word)
        colors[text or measure] = color
        for name, style in zip(shown_percentiles or [colored_name], _STYLES, strict=False):
            label = " ".join([name, key_texts[group]]).strip()
            lines.append(_Line(group, name, label=label, color=color, style=style))
    styles = dict(zip(map(_percentile, shown_percentiles), _STYLES, strict=False))
    return _Lines(lines, colors if len(series) > 1 or keys else {}, styles, notes)


def _percentile(column: str) -> str:
    """Return the percentile in the name of a column, such as ``p99.9`` for ``latency_p99_9``."""
    return f"p{column.rpartition('_p')[2].replace('_', '.')}"


def _as_doubles(column: pa.ChunkedArray) -> NDArray[np.float64]:
    values: NDArray[np.float64] = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return values


def _draw_line(
    axes: Any, results: pa.Table, line: _Line, *, level: str, alpha: float, incomplete: NDArray[np.bool_]
) -> None:
    """Draw a line of one level as steps, one per window. The line is interrupted where windows are missing, and dotted
    in incomplete windows.
    """
    starts, window_ends = (results.column(bound).cast(pa.timestamp("us")).to_numpy() for bound in (START, END))
    values = _as_doubles(results.column(line.column))
    # a mask of the windows at whose end the line is interrupted: the windows before a gap, and the last window
    is_before_gap = np.append(starts[1:] > window_ends[:-1], True)[: len(starts)]
    at = np.concatenate([starts, window_ends[is_before_gap], window_ends[is_before_gap]])
    order = np.argsort(at, kind="stable")
    no_values = np.full(int(is_before_gap.sum()), np.nan)
    label = f"{line.column} per {level}{line.label.removeprefix(line.column)}"
    variants = [(~incomplete, line.style, label)]
    if incomplete.any():
        variants.append((incomplete, _INCOMPLETE, "_incomplete"))
    for rows, style, line_label in variants:
        steps = np.where(rows, values, np.nan)
        steps = np.concatenate([steps, steps[is_before_gap], no_values])[order]
        axes.step(at[order], steps, linestyle=style, where="post", color=line.color, alpha=alpha, label=line_label)


def _begin_at_zero(axes: Any) -> None:
    """Extend the axis of values to 0, unless there are both positive and negative values."""
    values = np.concatenate([np.empty(0), *(np.asarray(line.get_ydata(), float) for line in axes.get_lines())])
    values = values[np.isfinite(values)]
    if values.min(initial=0) >= 0:
        axes.set_ylim(bottom=0)
    elif values.max(initial=0) <= 0:
        axes.set_ylim(top=0)


def _value_label(measure: str, plotted_measure: Measure | str, *, unit: str | None, levels: Sequence[str]) -> str:
    """Return the label of the axis of values: the measure and its unit. If no unit is known, the label has the function
    and the column of the measure instead, because the column's name may contain the unit.
    """
    per = f" per {levels[0]}" if len(levels) == 1 else ""
    if unit is not None:
        return f"{measure} ({unit}){per}"
    if isinstance(plotted_measure, str):
        return f"{measure} = {plotted_measure}{per}"
    return f"{measure}: {plotted_measure.function.name}({plotted_measure.column or ''}){per}"


def _add_legend(axes: Any, lines_to_draw: _Lines, *, shades: Mapping[str, float], has_incomplete: bool) -> None:
    """Add a legend at the right of the axes. A single line has no legend, because the label of the axis already names
    the measure.
    """
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=color, label=label) for label, color in lines_to_draw.colors.items()]
    is_one_color = not lines_to_draw.colors and lines_to_draw.lines
    legend_color = lines_to_draw.lines[0].color if is_one_color else "0.3"
    handles += [
        Line2D([], [], color=legend_color, linestyle=style, label=label)
        for label, style in lines_to_draw.styles.items()
    ]
    if len(shades) > 1:
        handles += [
            Line2D([], [], color=legend_color, alpha=shade, label=f"per {level}") for level, shade in shades.items()
        ]
    if has_incomplete:
        handles.append(Line2D([], [], color="gray", linestyle=_INCOMPLETE, label="incomplete"))
    if handles or lines_to_draw.notes:
        title = "\n".join(lines_to_draw.notes) or None
        axes.legend(
            handles=handles, title=title, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, alignment="left"
        )


def _label_times(axes: Any, timezone: str) -> None:
    """Label the time axis in a time zone, with dates that are short enough not to overlap."""
    from matplotlib import dates

    zone = zone_of(timezone)
    ticks = {"minticks": 3, "maxticks": 6}
    locator = dates.AutoDateLocator(tz=zone, **ticks)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator, tz=zone))  # type: ignore[no-untyped-call]
    axes.set_xlabel(f"time ({timezone})")
