"""Sizes: bytes per stored state, ours as they sit in an Arrow column, other packages' as they serialize themselves."""

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

ROWS_AND_STATES = ((555, 20), (100_000, 3))  # rows a state, and how many such states are averaged


@dataclass(frozen=True)
class Size:
    """Mean bytes of a state of ``rows`` values of a distribution; ``parts`` says what they are made of."""

    what: str
    who: str
    distribution: str
    rows: int
    bytes: float
    parts: dict[str, float]


def sizes() -> list[Size]:
    """Store sketches of the same values in every way."""
    found = []
    for distribution in DISTRIBUTIONS:
        for rows, states in ROWS_AND_STATES:
            values = samples.draw(distribution, rows * states, seed=13)
            for ours in (sketches.dds(), sketches.hdr()):
                groups = Groups(np.repeat(np.arange(states), rows), states)
                column = ours.function.reduce(pa.array(values), groups)
                parts = {name: column.field(name).nbytes / states for name in column.type.names}
                size = column.nbytes / states
                found.append(Size(ours.name, ours.package, distribution, rows, size, parts))
            for sketch in sketches.others():
                built = [sketch.build(part) for part in values.reshape(states, rows)]
                size = sum(map(sketch.size, built)) / states
                found.append(Size(sketch.name, sketch.package, distribution, rows, size, {}))
                if sketch.name == "ddsketch":
                    bare = sum(map(trimmed, built)) / states
                    found.append(Size("ddsketch, trimmed", sketch.package, distribution, rows, bare, {}))
    return found


def trimmed(sketch: Any) -> int:
    """Serialize without the empty bins at both ends, with which the package fills up its arrays."""
    message = sketches.protobuf(sketch)
    for store in (message.positiveValues, message.negativeValues):
        used = np.flatnonzero(np.array(store.contiguousBinCounts))
        counts = store.contiguousBinCounts[used[0] : used[-1] + 1] if len(used) else []
        store.contiguousBinIndexOffset += int(used[0]) if len(used) else 0
        del store.contiguousBinCounts[:]
        store.contiguousBinCounts.extend(counts)
    return len(message.SerializeToString())


def size_of(found: Sequence[Size], what: str, distribution: str, rows: int) -> float:
    """Find a size."""
    return next(s.bytes for s in found if (s.what, s.distribution, s.rows) == (what, distribution, rows))


def show_sizes(found: Sequence[Size]) -> None:
    """Print a line per distribution and number of rows, and a column per way."""
    ways = list(dict.fromkeys(size.what for size in found))
    table = heading("Bytes per state", ["", "rows", *ways, "dds / ddsketch"])
    for distribution, rows in dict.fromkeys((size.distribution, size.rows) for size in found):
        of = {what: size_of(found, what, distribution, rows) for what in ways}
        ratio = f"{of['dds'] / of['ddsketch']:.2f} ×"
        table.add_row(distribution, f"{rows:,}", *(f"{size:,.0f}" for size in of.values()), ratio)
    show(table)
