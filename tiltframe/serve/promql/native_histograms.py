"""Native histograms of remote read: the states of `exponential`, with the buckets of Prometheus.

    end of the one-minute window                        10:01      10:02      10:03
    rows in the state of the window                     3          0          4
    rows in the sample at this time     0 at 10:00      3          3          7

Like a counter, a native histogram of Prometheus is a running total. A sample is the merge of the states of all windows
up to its time, so Prometheus computes the histogram of a range as the difference of two samples.

Source: ``prompb/types.proto`` of prometheus/prometheus.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.contrib import Exponential
from aggr.extend import Groups
from aggr.extend.tables import scan
from aggr.interchange.prometheus import remote_message, to_remote_histograms
from tiltframe.serve.deadline import Deadline
from tiltframe.serve.errors import Unanswerable
from tiltframe.serve.promql.cells import States
from tiltframe.serve.promql.kinds import HISTOGRAM
from tiltframe.serve.promql.metrics import Metric

_STATES_AT_ONCE = 1000  # the number of states that are encoded between two checks of the deadline


def has_native_histograms(metric: Metric) -> bool:
    """Return whether the states of a metric can be sent as native histograms. Prometheus has no schema for
    the buckets of the other sketches, `dds` and `hdr`.
    """
    return metric.kind == HISTOGRAM and isinstance(metric.state[1], Exponential)


def encode_native_series(
    states: States, times: NDArray[np.int64], *, is_running: bool, deadline: Deadline
) -> Iterator[bytes]:
    """Yield each series as an encoded ``TimeSeries`` message with native histograms.

    Parameters
    ----------
    states : States
        States of `exponential`.
    times : array of int64, shape (moments,)
        The times of the samples in milliseconds.
    is_running : bool
        If true, a sample is the running total, which exists at all moments. If false, a sample is the state of its
        window alone.
    deadline : Deadline
        The time after which `OutOfTime` is raised.

    Yields
    ------
    bytes

    Raises
    ------
    Unanswerable
        If a state has a scale that Prometheus does not have.
    """
    function = states.function
    assert isinstance(function, Exponential)
    series_indices, moment_indices = np.divmod(states.cells, states.moment_count)
    merged = scan(function, states.states, series_indices) if is_running else states.states
    histograms = [_empty_histogram(function)]
    try:
        for begin in deadline.check_each(range(0, len(merged), _STATES_AT_ONCE)):
            slice_of_states = merged.slice(begin, _STATES_AT_ONCE)
            histograms += to_remote_histograms(slice_of_states, function, first_row=begin).to_pylist()
    except ValueError as error:
        raise Unanswerable(
            f"native histograms cannot be sent: {error}; query a single number of the histogram, such as "
            "the metric with the suffix _count"
        ) from None
    # for each series and moment, the index of the histogram in ``histograms``; the index 0 is the histogram of no rows
    places = np.zeros((len(states.series), states.moment_count), np.intp)
    places[series_indices, moment_indices] = 1 + np.arange(len(states.cells))
    if is_running:
        places = np.maximum.accumulate(places, axis=1)
    histogram_message = remote_message("Histogram")
    # The fields of a protobuf message may be encoded separately. The time of a sample is therefore encoded alone, and
    # appended to the encoded histogram.
    encoded_times = [histogram_message(timestamp=time).SerializeToString() for time in times.tolist()]
    series_message = remote_message("TimeSeries")
    for labels, places_of_series in zip(states.series, places.tolist(), strict=True):
        samples = [
            histograms[place] + time
            for place, time in zip(places_of_series, encoded_times, strict=True)
            if is_running or place
        ]
        label_pairs = [{"name": name, "value": labels[name]} for name in sorted(labels)]
        yield series_message(labels=label_pairs, histograms=samples).SerializeToString()


def _empty_histogram(function: Exponential) -> bytes:
    """Return the encoded histogram of no rows."""
    no_rows = function.reduce(pa.array([], pa.float64()), Groups(np.zeros(0, np.intp), 1))
    message: bytes = to_remote_histograms(no_rows, function)[0].as_py()
    return message
