"""Classic histograms: series such as ``x_bucket{le="0.5"}``, whose value is the number of a sketch's values up to the
bound ``le``.

From the state of a sketch, the number of values up to any bound can be computed. From the state of the function
``histogram``, only the numbers of values below its edges can be computed. A value that is equal to an edge is counted
above this edge.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.contrib import Histogram
from aggr.extend import BucketState, Function
from aggr.extend.arguments import nearest, shown
from aggr.extend.columns import Floats
from aggr.extend.columns import compute as pc
from aggr.extend.tables import mark_as_checked
from tiltframe.serve.promql.histogram_counts import counts_up_to, histogram_buckets

LE = "le"
Bounds = Mapping[str, float]  # text in the label ``le`` → bound, in ascending order

_MOST_BOUNDS = 1000
_EXAMPLE = "--buckets 0.1,0.5,2.5 or, for one measure, --buckets latency=0.1,0.5,2.5"


def bounds_of(numbers: Iterable[float]) -> Bounds:
    """Return a dict that maps the text of each bound, as in the label ``le``, to the bound. ``numbers`` must be
    ascending; the bound ``+Inf`` is added at the end.

    >>> bounds_of([0.005, 1.0])
    {'0.005': 0.005, '1': 1.0, '+Inf': inf}
    """
    finite = {np.format_float_positional(number, trim="-"): float(number) for number in numbers}
    return {**finite, "+Inf": math.inf}


@dataclass(frozen=True)
class BucketBounds:
    """The bounds of the buckets of classic histograms. ``by_measure`` has the bounds for single measures, by name, and
    ``all`` has the bounds for all other measures.
    """

    all: Bounds = field(default_factory=lambda: bounds_of(Histogram().edges))
    by_measure: Mapping[str, Bounds] = field(default_factory=dict)

    @classmethod
    def read(cls, texts: Iterable[str]) -> BucketBounds:
        """Return the bounds in the texts of the option ``--buckets``, such as ``0.1,0.5`` and ``latency=5,10``.

        Raise ``ValueError`` if a text does not consist of ascending numbers, or if two texts apply to the same measure
        or to all measures.

        >>> BucketBounds.read(["latency=5,10"]).by_measure["latency"]
        {'5': 5.0, '10': 10.0, '+Inf': inf}
        """
        by_measure: dict[str, Bounds] = {}
        for text in texts:
            measure, _, numbers = text.rpartition("=")
            if measure in by_measure:
                raise ValueError(f"--buckets is passed twice for {measure or 'all measures'}; pass it once")
            by_measure[measure] = bounds_of(_read_numbers(numbers))
        return cls(by_measure.pop("", cls().all), by_measure)

    def check(self, measures: Iterable[str]) -> None:
        """Raise ``ValueError`` if there are bounds for a measure that does not exist."""
        existing = list(measures)
        for name in self.by_measure:
            if name not in existing:
                raise ValueError(f"no store has the measure {shown(name)} of --buckets; {nearest(name, existing)}")

    def for_measure(self, measure: str, function: Function) -> Bounds:
        """Return the bounds of a measure. For the function ``histogram``, these are its edges, and bounds from options
        are ignored.
        """
        if isinstance(function, Histogram):
            return bounds_of(function.edges)
        return self.by_measure.get(measure, self.all)


DEFAULT_BOUNDS = BucketBounds()


def _read_numbers(text: str) -> list[float]:
    try:
        numbers = [float(number) for number in text.split(",")]
    except ValueError:
        numbers = []
    is_ascending = all(low < high for low, high in pairwise(numbers))
    if not 1 <= len(numbers) <= _MOST_BOUNDS or not is_ascending or not all(map(math.isfinite, numbers)):
        raise ValueError(
            f"--buckets needs ascending numbers, at least 1 and at most {_MOST_BOUNDS} of them, {_EXAMPLE}; "
            f"got {shown(text)}"
        )
    return numbers


def requested_bounds(texts: Iterable[str], bounds: Bounds, function: Function) -> Bounds:
    """Return the bounds that matchers such as ``le="0.3"`` request, as text → bound. ``texts`` are the texts in the
    matchers. A text is left out if it is not a number. A bound that is not in ``bounds`` is left out if the number of
    values up to this bound cannot be computed from the states of ``function``.
    """
    requested = {}
    for text in texts:
        try:
            number = float(text)
        except ValueError:
            continue
        if number in bounds.values() or (is_sketch(function) and not math.isnan(number)):
            requested[text] = number
    return requested


def is_sketch(function: Function) -> bool:
    """Return whether the states of a function have buckets (`BucketState`). From such states, the number of values up
    to any bound, and any quantile, can be computed.
    """
    return isinstance(function.own_state, BucketState)


def bucket_counts(states: pa.StructArray, result_function: Function, bounds: Bounds) -> Floats:
    """Return, for each state, the number of its values up to each bound, as an array of shape (states, bounds).
    ``result_function`` is the function that computes results from the states.
    """
    numbers = np.array(list(bounds.values()))
    if isinstance(result_function, Histogram):
        results = result_function.finish(mark_as_checked(states))
        counts = _interval_counts(results, len(result_function.edges) - 1)
        below, above = (pc.struct_field(results, name).to_numpy()[:, None] for name in ("below", "above"))
        cumulative: Floats = np.cumsum(np.hstack([below, counts, above]), axis=1, dtype=np.float64)
        return cumulative[:, np.searchsorted([*result_function.edges, math.inf], numbers)]
    _, _, buckets = histogram_buckets(states, result_function)
    ascending = np.argsort(numbers, kind="stable")
    counted = np.empty((len(states), len(numbers)))
    counted[:, ascending] = counts_up_to(buckets, len(states), numbers[ascending])
    return counted


def compute_missing_part(results: pa.StructArray, part: str) -> pa.Array:
    """Return a part that is missing in the results of a function: the count of ``histogram``, or the sum of ``hdr``.

    The sum is the mean times the count, so it has the accuracy of the mean.
    """
    if part == "sum":
        mean, count = (pc.struct_field(results, name).cast(pa.float64()) for name in ("mean", "count"))
        return pc.multiply(mean, count)
    intervals = len(pc.struct_field(results[:1], "counts").flatten())
    counts = _interval_counts(results, intervals).sum(axis=1)
    total = counts + sum(pc.struct_field(results, name).to_numpy() for name in ("below", "above"))
    return pa.array(total, mask=total == 0)


def _interval_counts(results: pa.StructArray, intervals: int) -> NDArray[np.int64]:
    """Return the number of values in each interval between two edges of ``histogram``, for each of its ``results``, as
    an array of shape (results, intervals).
    """
    counts: NDArray[np.int64] = pc.struct_field(results, "counts").flatten().to_numpy()
    return counts.reshape(len(results), intervals)
