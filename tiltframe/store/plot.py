"""Plots of a store: a measure over time, one level or several over each other, by matplotlib."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aggr import Measure
from aggr.arguments import nearest, shown
from aggr.asked_quantiles import check_quantiles
from aggr.extras import MissingExtra
from aggr.states.flat_results import flattened
from tiltframe.frame import TiltFrame
from tiltframe.names import LEVEL, RESERVED, START


class Asked(Protocol):
    """What a plot needs of a `tiltframe.FrameStore`."""

    frame: TiltFrame

    @property
    def query(self) -> Callable[..., pa.Table]:
        """Read results."""


_POINTS = 500  # as many as a screen shows apart


def plot(store: Asked, measure: str, quantiles: Sequence[float] | None = None, ax: Any = None, **asked: Any) -> Any:
    """Plot a measure over time, as steps from window to window; levels over each other, the finer ones paler.

    Parameters
    ----------
    store : FrameStore
    measure : str
        Of the frame. Of a record its quantiles are shown; of one without quantiles all of its numbers.
    quantiles : numbers from 0 to 1, optional
        In place of the measure's own.
    ax : matplotlib axes, optional
        To draw on; new ones unless given.
    asked
        As for `tiltframe.FrameStore.query`: ``per``, or several of them, ``within``, ``where``, ``keys``, ``points``.
        Keys are merged over, and there are at most 500 points, unless something else is asked.

    Returns
    -------
    matplotlib axes

    Raises
    ------
    ValueError
        For a measure that is not there, or is of no numbers.
    MissingExtra
        Without matplotlib.
    """
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise MissingExtra("a plot", "plot", error) from None
    if measure not in store.frame.measures:
        raise ValueError(f"the frame has no measure {shown(measure)}; {nearest(str(measure), store.frame.measures)}")
    if asked.get("per") is None:
        asked.setdefault("points", _POINTS)
    asked = {"keys": [], **asked, "measures": {measure: _reading(store.frame.measures[measure], quantiles)}}
    results = flattened(store.query(**asked))
    axes = plt.subplots()[1] if ax is None else ax
    levels = list(dict.fromkeys(results.column(LEVEL).to_pylist()))
    for number, level in enumerate(levels):
        paler = 1.0 - 0.6 * (len(levels) - 1 - number) / max(len(levels) - 1, 1)
        _draw(axes, results.filter(pc.equal(results.column(LEVEL), level)), level, paler)
    axes.set_ylabel(measure)
    axes.legend()
    return axes


def _reading(measure: Measure, quantiles: Sequence[float] | None) -> Measure:
    if quantiles is None:
        return measure
    if "quantiles" not in measure.function.parameters():
        raise ValueError(f"{measure!r} has no quantiles; leave out quantiles={shown(quantiles)}")
    parameters = {**measure.function.parameters(), "quantiles": check_quantiles(quantiles)}
    return replace(measure, function=type(measure.function)(**parameters))


def _draw(axes: Any, results: pa.Table, level: str, alpha: float) -> None:
    keys_and_numbers = [name for name in results.column_names if name not in RESERVED]
    numbers = [n for n in keys_and_numbers if _is_number(results.schema.field(n).type)]
    percentiles = [n for n in numbers if n.rpartition("_p")[2].replace("_", "").isdigit() and "_p" in n]
    keys = [name for name in keys_and_numbers if name not in numbers]
    if not numbers:
        raise ValueError(f"there are no numbers to plot in {', '.join(keys_and_numbers)}")
    groups: dict[tuple[Any, ...], list[int]] = {}
    for row, values in enumerate(zip(*(results.column(key).to_pylist() for key in keys), strict=True) if keys else ()):
        groups.setdefault(values, []).append(row)
    for values, rows in (groups or {(): list(range(results.num_rows))}).items():
        mine = results.take(rows)
        starts = mine.column(START).cast(pa.timestamp("us")).to_numpy()
        for name in percentiles or numbers:
            column = mine.column(name).cast(pa.float64()).to_numpy(zero_copy_only=False)
            said = " ".join([name, "per", level, *map(str, values)])
            axes.step(starts, np.asarray(column), where="post", alpha=alpha, label=said)


def _is_number(dtype: pa.DataType) -> bool:
    return bool(pa.types.is_integer(dtype) or pa.types.is_floating(dtype) or pa.types.is_decimal(dtype))
