"""Plots of a store: a measure over time, on one or several levels, with matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aggr import Measure
from aggr.arguments import nearest, shown
from aggr.arrow.normalize import is_number, one_array
from aggr.asked_quantiles import check_quantiles
from aggr.extras import MissingExtra
from aggr.groups.groups import group_by
from aggr.tables.by_key import key_column
from aggr.time_zones import zone_of
from tiltframe.names import END, LEVEL, PARTIAL, RESERVED, START

_POINTS = 500  # the maximum number of points that a screen can show separately
_MOST_LINES = 40  # the maximum number of lines that can be distinguished and listed in a legend


def plot(store: Any, measure: str, quantiles: Sequence[float] | None = None, ax: Any = None, **options: Any) -> Any:
    """Plot a measure of a store; see `tiltframe.FrameStore.plot`."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise MissingExtra("a plot", "plot", error) from None
    if measure not in store.frame.measures:
        raise ValueError(f"the frame has no measure {shown(measure)}; {nearest(str(measure), store.frame.measures)}")
    if options.get("per") is None:
        options.setdefault("points", _POINTS)
    shown_measure = _reading(store.frame.measures[measure], quantiles)
    query = {"keys": [], **options, "flat": True, "measures": {measure: shown_measure}}
    results = _with_parts(store.query(**query))
    axes = plt.subplots()[1] if ax is None else ax
    levels = list(dict.fromkeys(results.column(LEVEL).to_pylist()))
    for number, level in enumerate(levels):
        paler = 1.0 - 0.6 * (len(levels) - 1 - number) / max(len(levels) - 1, 1)
        _draw(
            axes, results.filter(pc.equal(results.column(LEVEL), level)), keys=query["keys"], level=level, alpha=paler
        )
    if pc.any(results.column(PARTIAL)).as_py():
        axes.plot([], [], ":", color="gray", label="incomplete")
    _label_times(axes, results.schema.field(START).type.tz)
    axes.set_ylabel(measure)
    axes.legend()
    return axes


def _reading(measure: Measure, quantiles: Sequence[float] | None) -> Measure:
    if quantiles is None:
        return measure
    if "quantiles" not in measure.function.parameters():
        raise ValueError(f"{measure!r} does not have quantiles; leave out quantiles={shown(quantiles)}")
    parameters = {**measure.function.parameters(), "quantiles": check_quantiles(quantiles)}
    return replace(measure, function=type(measure.function)(**parameters))


def _with_parts(results: pa.Table) -> pa.Table:
    """Replace maps and lists of numbers by a column for each key, ``m[key]``, or for each position, ``m[0]``."""
    columns: dict[str, pa.ChunkedArray | pa.Array] = {}
    for field in results.schema:
        column = results.column(field.name)
        if pa.types.is_map(field.type) and is_number(field.type.item_type):
            parts = _parts_of_map(column)
        elif pa.types.is_list(field.type) and is_number(field.type.value_type):
            parts = _parts_of_list(column)
        else:
            columns[field.name] = column
            continue
        columns |= {f"{field.name}[{name}]": part for name, part in parts.items()}
    return pa.table(columns)


def _parts_of_map(column: pa.ChunkedArray) -> dict[str, pa.ChunkedArray]:
    keys = {key for chunk in column.chunks for key in pc.unique(chunk.keys).to_pylist()}
    return {str(key): pc.map_lookup(column, pa.scalar(key, column.type.key_type), "first") for key in sorted(keys)}


def _parts_of_list(column: pa.ChunkedArray) -> dict[str, pa.Array]:
    """Return a column for each position in the lists; it is null if a list has fewer values."""
    lists = one_array(column)
    parents = pc.list_parent_indices(lists).to_numpy()
    places = np.arange(len(parents)) - np.searchsorted(parents, parents)
    values = lists.flatten().cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    parts = {}
    for place in range(int(places.max(initial=-1)) + 1):
        part = np.full(len(lists), np.nan)
        part[parents[places == place]] = values[places == place]
        parts[str(place)] = pa.array(part, mask=np.isnan(part))
    return parts


def _draw(axes: Any, results: pa.Table, keys: Sequence[str], level: str, alpha: float) -> None:
    columns = [name for name in results.column_names if name not in (*RESERVED, *keys)]
    numbers = [name for name in columns if is_number(results.schema.field(name).type)]
    percentiles = [n for n in numbers if n.rpartition("_p")[2].replace("_", "").isdigit() and "_p" in n]
    if not numbers:
        raise ValueError(f"there are no numbers to plot in {', '.join(columns)}")
    if len(numbers) > _MOST_LINES and not percentiles:
        raise ValueError(f"the results have {len(numbers):,} parts, which would be as many lines; plot another measure")
    groups, first_rows = group_by([key_column(results.column(key)) for key in keys], results.num_rows)
    if groups.n * len(percentiles or numbers) > _MOST_LINES:
        raise ValueError(
            f"{groups.n:,} keys would be {groups.n * len(percentiles or numbers):,} lines; select fewer keys with where"
        )
    values = zip(*(results.column(key).take(pa.array(first_rows)).to_pylist() for key in keys), strict=True)
    for group, words in enumerate(list(values) if keys else [()]):
        line = results.filter(pa.array(groups.ids == group))
        for name in percentiles or numbers:
            _draw_line(axes, line, name=name, label=" ".join([name, "per", level, *map(str, words)]), alpha=alpha)


def _draw_line(axes: Any, results: pa.Table, name: str, label: str, alpha: float) -> None:
    """Draw steps from window to window. The line is interrupted if windows are missing, and dotted if they are
    incomplete.
    """
    starts, window_ends = (results.column(bound).cast(pa.timestamp("us")).to_numpy() for bound in (START, END))
    values = results.column(name).cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    partial = results.column(PARTIAL).to_numpy(zero_copy_only=False)
    # the last step before a gap, and the last step of all
    last = np.append(starts[1:] > window_ends[:-1], True)[: len(starts)]
    at = np.concatenate([starts, window_ends[last], window_ends[last]])
    order, nothing, color = np.argsort(at, kind="stable"), np.full(int(last.sum()), np.nan), None
    for rows, line, line_label in ((~partial, "-", label), (partial, ":", "_incomplete"))[: 1 + bool(partial.any())]:
        steps = np.where(rows, values, np.nan)
        steps = np.concatenate([steps, steps[last], nothing])[order]
        (drawn,) = axes.step(at[order], steps, line, where="post", color=color, alpha=alpha, label=line_label)
        color = drawn.get_color()


def _label_times(axes: Any, timezone: str) -> None:
    """Label the time axis in a time zone, with dates that are short enough not to overlap."""
    from matplotlib import dates

    zone, ticks = zone_of(timezone), {"minticks": 3, "maxticks": 8}
    locator = dates.AutoDateLocator(tz=zone, **ticks)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator, tz=zone))  # type: ignore[no-untyped-call]
    axes.set_xlabel(timezone)
