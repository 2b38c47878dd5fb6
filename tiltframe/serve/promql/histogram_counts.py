"""Counts of sketches: the buckets of each state, and the number of values up to a bound.

             bound
┌────────┬─────┊──┬─────────┐     The bucket that contains a bound counts completely, so that rows equal to the
│ counts │ counts │   not   │     bound are always counted. Counts are exact if the bound is the edge of a bucket;
└────────┴────────┴─────────┘     otherwise the bound is moved by at most the width of one bucket.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.extend import BucketState, Function
from aggr.extend.columns import Floats
from aggr.extend.columns import compute as pc
from aggr.extend.histograms import BucketRanges
from aggr.extend.tables import mark_as_checked
from tiltframe.serve.errors import Unanswerable


def histogram_buckets(states: pa.StructArray, result_function: Function) -> tuple[Floats, Floats, BucketRanges]:
    """Return three values: an array with the count of each state, an array with the sum of each state, and the buckets
    of all states, sorted by state and then by bound. If the results of ``result_function`` have no sum, the sums are
    NaN.

    Raise `Unanswerable` if a sketch cannot list its buckets.
    """
    state = result_function.own_state
    if not isinstance(state, BucketState):
        raise Unanswerable(f"the buckets of {result_function.name} cannot be returned; use histogram_quantile")
    results = result_function.finish(mark_as_checked(states))
    names = [field.name for field in results.type]
    count, total = (
        pc.struct_field(results, name).cast(pa.float64()) if name in names else pa.nulls(len(results), pa.float64())
        for name in ("count", "sum")
    )
    return pc.fill_null(count, 0.0).to_numpy(), pc.fill_null(total, np.nan).to_numpy(), state.buckets(states)


def counts_up_to(buckets: BucketRanges, states: int, bounds: Floats) -> Floats:
    """Return, for each state and each bound, the number of values that are at most the bound, as an array of shape
    (states, bounds). ``bounds`` must be ascending.
    """
    low, includes_low = _lower_edges(buckets, states)
    above, from_low = (np.searchsorted(bounds, low, side) for side in ("right", "left"))
    return _sums(buckets, states, np.where(includes_low, from_low, above), len(bounds))


def counts_below(buckets: BucketRanges, states: int, bounds: Floats) -> Floats:
    """Return, for each state and each bound, the number of values below the bound, as an array of shape (states,
    bounds). ``bounds`` must be ascending.
    """
    low, _ = _lower_edges(buckets, states)
    return _sums(buckets, states, np.searchsorted(bounds, low, "right"), len(bounds))


def _lower_edges(buckets: BucketRanges, states: int) -> tuple[Floats, NDArray[np.bool_]]:
    """Return two arrays with one element per bucket: its lower edge, and whether it contains values equal to this edge.

    The bucket around 0 begins at 0 if the state has no negative values, as in Prometheus.
    """
    around_zero = (buckets.low < 0) & (buckets.high > 0)
    has_negatives = np.zeros(states, np.bool_)
    has_negatives[buckets.rows[(buckets.low < 0) & (buckets.high <= 0)]] = True
    low = np.where(around_zero & ~has_negatives[buckets.rows], 0.0, buckets.low)
    includes_low = (buckets.low == buckets.high) | around_zero | (buckets.high <= 0)
    return low, includes_low


def _sums(buckets: BucketRanges, states: int, first_bounds: NDArray[np.intp], bounds: int) -> Floats:
    """Return, for each state, the number of values up to each bound, as an array of shape (states, bounds).
    ``first_bounds`` has, for each bucket, the index of the first bound whose count includes the bucket.
    """
    cells = buckets.rows * (bounds + 1) + first_bounds
    counts = np.bincount(cells, weights=buckets.counts, minlength=states * (bounds + 1))
    sums: Floats = np.cumsum(counts.reshape(states, bounds + 1)[:, :bounds], axis=1)
    return sums
