"""Histograms as they are: the buckets of sketches, as native histograms of Prometheus have them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.arrow import compute as pc
from aggr.function import Function
from aggr.functions.ddsketch import Dds
from aggr.functions.hdrhistogram import Hdr
from aggr.histograms.column import Histograms
from aggr.state_checks import made_here
from tiltframe.serve.promql.cells import Floats, States
from tiltframe.serve.promql.errors import Unanswerable

Whole = NDArray[np.int64]
Part = tuple[Whole, Floats, Floats, Whole]  # rows, lower and upper edges, counts, of the buckets of a column of states


def histogram_buckets(states: States) -> tuple[Floats, Floats, Whole, Floats, Floats, Floats]:
    """List buckets: count and sum of each state, NaN if it keeps no sum, and rows, edges and counts of all buckets.

    Rows ascend, and so do the edges of each. Raises `Unanswerable` for a sketch whose buckets are not known here.
    """
    list_parts = _PARTS.get(states.reader.name)
    if list_parts is None:
        raise Unanswerable(f"the buckets of {states.reader.name} cannot be shown; read them by histogram_quantile")
    results = states.reader.finish(made_here(states.states))
    names = [field.name for field in results.type]
    count, total = (
        pc.struct_field(results, name).cast(pa.float64()) if name in names else pa.nulls(len(results), pa.float64())
        for name in ("count", "sum")
    )
    rows, low, high, counts = map(np.concatenate, zip(*list_parts(states.reader, states.states), strict=True))
    order = np.argsort(rows, kind="stable")
    count, total = pc.fill_null(count, 0.0).to_numpy() / states.per, pc.fill_null(total, np.nan).to_numpy() / states.per
    return count, total, rows[order], low[order], high[order], counts[order] / states.per


def _dds_parts(reader: Function, states: pa.StructArray) -> list[Part]:
    """List the buckets of DDSketches, from the least value to the greatest: ``(γ^(k−1), γ^k]``, and mirrored."""
    assert isinstance(reader, Dds)
    mapping = reader.mapping

    def edges(keys: Whole) -> Floats:
        return mapping.values(keys) * ((1.0 + mapping.gamma) / 2.0)

    up, down = (Histograms.of(states.field(sign)) for sign in ("positive", "negative"))
    keys = down.keys[::-1]
    return [
        _single(states.field("negative_infinity"), -np.inf, -np.inf),
        (down.rows()[::-1].astype(np.int64), -edges(keys), -edges(keys - 1), down.counts[::-1].astype(np.int64)),
        _single(states.field("zero"), -mapping.least, mapping.least),
        (up.rows().astype(np.int64), edges(up.keys - 1), edges(up.keys), up.counts),
        _single(states.field("positive_infinity"), np.inf, np.inf),
    ]


def _hdr_parts(reader: Function, states: pa.StructArray) -> list[Part]:
    """List the buckets of HdrHistograms: of whole units, from above the bucket before to the greatest value."""
    assert isinstance(reader, Hdr)
    part, unit = Histograms.of(states.field("buckets")), reader.unit or 1.0
    low = np.maximum(reader.layout.lowest(part.keys) - 1, 0).astype(np.float64)
    high = reader.layout.highest(part.keys).astype(np.float64)
    return [(part.rows().astype(np.int64), low * unit, high * unit, part.counts)]


def _single(counts: pa.Array, low: float, high: float) -> Part:
    numbers: Whole = counts.to_numpy()
    rows = np.flatnonzero(numbers)
    return rows, np.full(len(rows), low), np.full(len(rows), high), numbers[rows]


_PARTS: dict[str, Callable[[Function, pa.StructArray], list[Part]]] = {Dds.name: _dds_parts, Hdr.name: _hdr_parts}
