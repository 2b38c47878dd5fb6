"""Histograms as they are: the buckets of sketches, as native histograms of Prometheus have them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from aggr.arrow import compute as pc
from aggr.histograms.bucket_ranges import BucketRanges
from aggr.state_checks import made_here
from tiltframe.serve.promql.cells import Floats, States
from tiltframe.serve.promql.errors import Unanswerable


def histogram_buckets(states: States) -> tuple[Floats, Floats, BucketRanges]:
    """List buckets: count and sum of each state, NaN if it keeps no sum, and all buckets, by state and ascending.

    Raises `Unanswerable` for a sketch that does not list its buckets.
    """
    if "buckets" not in states.reader.accessors:
        raise Unanswerable(f"the buckets of {states.reader.name} cannot be shown; read them by histogram_quantile")
    results = states.reader.finish(made_here(states.states))
    names = [field.name for field in results.type]
    count, total = (
        pc.struct_field(results, name).cast(pa.float64()) if name in names else pa.nulls(len(results), pa.float64())
        for name in ("count", "sum")
    )
    ranges = states.reader.buckets(states.states)
    count, total = pc.fill_null(count, 0.0).to_numpy() / states.per, pc.fill_null(total, np.nan).to_numpy() / states.per
    return count, total, ranges
