"""Counts of sketches: the buckets of each state, and the rows up to bounds.

             bound
┌────────┬─────┊──┬─────────┐     The bucket that contains a bound counts completely, so that rows equal to the
│ counts │ counts │   not   │     bound are always counted. Counts are exact if the bound is the edge of a bucket;
└────────┴────────┴─────────┘     otherwise the bound is moved by at most the width of one bucket.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.arrow import compute as pc
from aggr.histograms.bucket_ranges import BucketRanges
from aggr.histograms.bucket_state import BucketState
from aggr.state_checks import made_here
from tiltframe.serve.errors import Unanswerable
from tiltframe.serve.promql.cells import Floats, States


def histogram_buckets(states: States) -> tuple[Floats, Floats, BucketRanges]:
    """Return the count and sum of each state, NaN without a sum, and all buckets, ascending by state and bound.

    Raise `Unanswerable` if a sketch cannot list its buckets.
    """
    state = states.reader.own_state
    if not isinstance(state, BucketState):
        raise Unanswerable(f"the buckets of {states.reader.name} cannot be shown; read them by histogram_quantile")
    results = states.reader.finish(made_here(states.states))
    names = [field.name for field in results.type]
    count, total = (
        pc.struct_field(results, name).cast(pa.float64()) if name in names else pa.nulls(len(results), pa.float64())
        for name in ("count", "sum")
    )
    ranges = state.buckets(states.states)
    count, total = pc.fill_null(count, 0.0).to_numpy() / states.per, pc.fill_null(total, np.nan).to_numpy() / states.per
    return count, total, ranges


def counts_up_to(buckets: BucketRanges, states: int, bounds: Floats) -> Floats:
    """Return the number of rows up to each bound, both included, shape (states, bounds)."""
    low, includes_low = _lower_edges(buckets, states)
    counted = (low[:, None] < bounds) | (includes_low[:, None] & (low[:, None] == bounds))
    return _sums(buckets, states, counted)


def counts_below(buckets: BucketRanges, states: int, bounds: Floats) -> Floats:
    """Return the number of rows below each bound, shape (states, bounds): rows equal to an edge are not counted."""
    low, _ = _lower_edges(buckets, states)
    return _sums(buckets, states, low[:, None] < bounds)


def _lower_edges(buckets: BucketRanges, states: int) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the lower edge of each bucket, and whether its bucket includes it.

    The bucket around 0 begins at 0 if the state does not have negative values, as in Prometheus.
    """
    around_zero = (buckets.low < 0) & (buckets.high > 0)
    has_negatives = np.zeros(states, np.bool_)
    has_negatives[buckets.rows[(buckets.low < 0) & (buckets.high <= 0)]] = True
    low = np.where(around_zero & ~has_negatives[buckets.rows], 0.0, buckets.low)
    includes_low = (buckets.low == buckets.high) | around_zero | (buckets.high <= 0)
    return low, includes_low


def _sums(buckets: BucketRanges, states: int, counted: NDArray[np.bool_]) -> Floats:
    sums = np.zeros((states, counted.shape[1]))
    for bound in range(counted.shape[1]):
        chosen = counted[:, bound]
        sums[:, bound] = np.bincount(buckets.rows[chosen], weights=buckets.counts[chosen], minlength=states)
    return sums
