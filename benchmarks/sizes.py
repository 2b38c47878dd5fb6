"""Bytes per stored state: in an Arrow column for tiltframe, and serialized for other packages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from aggr.groups.groups import Groups
from benchmarks import samples, sketches
from benchmarks.costs import heading, show
from benchmarks.samples import DISTRIBUTIONS

# pairs of the number of rows per state, and the number of states over which bytes are averaged
ROWS_AND_STATES = ((555, 20), (100_000, 3))


@dataclass(frozen=True)
class Size:
    """The mean bytes of a state of ``rows`` values of a distribution. The first two attributes are the names of the
    sketch and of its library. ``parts`` contains the mean bytes of each field of the state.
    """

    what: str
    who: str
    distribution: str
    rows: int
    bytes: float
    parts: dict[str, float]


def sizes() -> list[Size]:
    """Return the mean bytes of a state of each sketch, for each distribution and number of rows."""
    measured_sizes = []
    for distribution in DISTRIBUTIONS:
        for rows, states in ROWS_AND_STATES:
            values = samples.draw(distribution, rows * states, seed=13)
            for ours in (sketches.dds(), sketches.hdr()):
                groups = Groups(np.repeat(np.arange(states), rows), states)
                column = ours.function.reduce(pa.array(values), groups)
                parts = {name: column.field(name).nbytes / states for name in column.type.names}
                size = column.nbytes / states
                measured_sizes.append(Size(ours.name, ours.package, distribution, rows, bytes=size, parts=parts))
            for sketch in sketches.other_sketches():
                built = [sketch.build(part) for part in values.reshape(states, rows)]
                size = sum(map(sketch.size, built)) / states
                measured_sizes.append(Size(sketch.name, sketch.package, distribution, rows, bytes=size, parts={}))
                if sketch.name == "ddsketch":
                    bare = sum(map(trimmed, built)) / states
                    measured_sizes.append(
                        Size("ddsketch, trimmed", sketch.package, distribution, rows, bytes=bare, parts={})
                    )
    return measured_sizes


def trimmed(sketch: Any) -> int:
    """Return the number of serialized bytes of a sketch of the package ddsketch, without the empty bins that the
    package adds at both ends of its arrays.
    """
    message = sketches.protobuf(sketch)
    for store in (message.positiveValues, message.negativeValues):
        used = np.flatnonzero(np.array(store.contiguousBinCounts))
        counts = store.contiguousBinCounts[used[0] : used[-1] + 1] if len(used) else []
        store.contiguousBinIndexOffset += int(used[0]) if len(used) else 0
        del store.contiguousBinCounts[:]
        store.contiguousBinCounts.extend(counts)
    return len(message.SerializeToString())


def size_of(measured_sizes: Sequence[Size], what: str, distribution: str, rows: int) -> float:
    """Return the mean bytes of a state of a sketch, for a distribution and a number of rows."""
    return next(s.bytes for s in measured_sizes if (s.what, s.distribution, s.rows) == (what, distribution, rows))


def show_sizes(measured_sizes: Sequence[Size]) -> None:
    """Print one line per distribution and number of rows, and one column per sketch."""
    ways = list(dict.fromkeys(size.what for size in measured_sizes))
    table = heading("Bytes per state", ["", "rows", *ways, "dds / ddsketch"])
    for distribution, rows in dict.fromkeys((size.distribution, size.rows) for size in measured_sizes):
        size_of_way = {what: size_of(measured_sizes, what, distribution, rows) for what in ways}
        ratio = f"{size_of_way['dds'] / size_of_way['ddsketch']:.2f} ×"
        table.add_row(distribution, f"{rows:,}", *(f"{size:,.0f}" for size in size_of_way.values()), ratio)
    show(table)
