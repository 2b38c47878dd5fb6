"""Remote read: Prometheus requests the samples of series. The response is a protobuf message that is compressed by
snappy, or a stream of chunks.

Counts, sums, and the numbers of values up to a bound are sent as counters, which are running totals over windows. These
counters are read from the coarsest level that gives Prometheus the same result as the finest level. Other measures are
read from the finest windows. If the finest windows have expired or are too many, coarser windows are read, provided
that the function of the query can be computed from coarser windows too. The time of a sample is the end of its window.
The exception is a measure ``last``: the time of its samples is the time of the last event in the window.

Source: ``prompb/remote.proto`` and ``prompb/types.proto`` of prometheus/prometheus.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.interchange.prometheus import remote_message
from tiltframe.extend import as_text
from tiltframe.serve.deadline import Deadline
from tiltframe.serve.errors import BadData, Unanswerable
from tiltframe.serve.promql.cells import Floats, States, Vector
from tiltframe.serve.promql.evaluate import numbers_of
from tiltframe.serve.promql.kinds import BUCKETS, LAST, MAX, MIN, SUM
from tiltframe.serve.promql.metrics import NAME, QUANTILE, Matcher, Metric
from tiltframe.serve.promql.native_histograms import encode_native_series, has_native_histograms
from tiltframe.serve.promql.select import LOOKBACK, Evaluation, Selector, select
from tiltframe.serve.promql.xor_chunks import encode_chunks, frame
from windows import TimeWindow

# the maximum number of bytes of a request after decompression
_MAX_BYTES = 16 << 20
# the number of microseconds in a millisecond
_MICROS_PER_MILLI = 1000
# two values of ReadRequest.ResponseType, the type of the response that a client accepts
_SAMPLES = 0
_STREAMED_CHUNKS = 1
# the value of Chunk.Encoding for chunks that are encoded by XOR
_XOR = 1
# the maximum number of chunks in a frame, so that a frame has less than 1 MiB, as in Prometheus
_CHUNKS_PER_FRAME = 300
# the maximum number of samples in a response; each takes 22 bytes, and a native histogram counts as several samples
_MAX_SAMPLES = 5_000_000
# the maximum number of values that are encoded at once, unless a single series has more
_VALUES_AT_ONCE = 200_000
# functions of PromQL that treat each decrease of a counter as a reset
_COUNTER_FUNCTIONS = ("rate", "irate", "increase", "resets")
# functions of PromQL that need only the values at the ends of a range; "" means that the expression has no function
_END_VALUE_FUNCTIONS = ("", "rate", "increase", "delta")
# Functions of PromQL that add or subtract samples. If a query has such a function, only the native histograms of a
# metric are sent, and not its quantiles, because Prometheus cannot add histograms and quantiles.
_ADDING_FUNCTIONS = ("rate", "irate", "increase", "delta", "sum", "sum_over_time")
# the bytes of one sample without its numbers: tag and length, and the tags of the fields ``value`` (1) and
# ``timestamp`` (2)
_SAMPLE = np.frombuffer(b"\x12\x14\x09" + b"\0" * 8 + b"\x10" + b"\0" * 10, np.uint8)


@dataclass(frozen=True)
class _ReadQuery:
    """One query of a request: its matchers, its time range from ``start`` to ``end`` (inclusive), and hints about the
    PromQL expression. The hints are the function, the step and the length of the range (``range_length``). Times are in
    microseconds.
    """

    matchers: tuple[Matcher, ...]
    start: int
    end: int
    step: int
    range_length: int
    function: str

    def selects_native_histograms(self, metric: Metric) -> bool:
        """Return whether the query selects the native histograms of a metric. Unlike the quantiles of the same metric,
        native histograms have no label ``quantile``.
        """
        quantile_matchers = (matcher for matcher in self.matchers if matcher.label == QUANTILE)
        return (
            has_native_histograms(metric)
            and metric.matches_name_and_store(self.matchers)
            and all(matcher.matches_text("") for matcher in quantile_matchers)
        )


@dataclass(frozen=True)
class ReadRequest:
    """A request for remote read: its queries, whether the client prefers a stream of chunks to a single message of
    samples, and whether the client accepts a message of samples.
    """

    queries: tuple[_ReadQuery, ...]
    prefers_stream: bool
    accepts_samples: bool

    @classmethod
    def parse(cls, body: bytes) -> ReadRequest:
        """Return the request in a body. The body is a protobuf message that is compressed by snappy. Raise `BadData` if
        the body cannot be read.
        """
        try:
            request = remote_message("ReadRequest").FromString(_decompress(body))
            accepted = list(request.accepted_response_types) or [_SAMPLES]
            response_type = next((kind for kind in accepted if kind in (_SAMPLES, _STREAMED_CHUNKS)), None)
            if response_type is None:
                raise BadData(
                    f"the response types {accepted} are not supported; this server sends SAMPLES ({_SAMPLES}) and "
                    f"STREAMED_XOR_CHUNKS ({_STREAMED_CHUNKS}); accept one of them"
                )
            queries = tuple(_read_query(query) for query in request.queries)
            return cls(queries, response_type == _STREAMED_CHUNKS, _SAMPLES in accepted)
        except BadData:
            raise
        except Exception as error:
            raise BadData(
                f"the body is not a ReadRequest in snappy: {' '.join(str(error).split())[:100]}; send it as Prometheus "
                "does"
            ) from None

    def is_streamed(self, metrics: Iterable[Metric]) -> bool:
        """Return whether the response is a stream of chunks. The chunks of this server cannot contain native
        histograms. If a query selects native histograms, the response is therefore a message of samples, unless the
        client accepts only chunks.
        """
        if not self.prefers_stream or not self.accepts_samples:
            return self.prefers_stream
        return not any(query.selects_native_histograms(metric) for metric in metrics for query in self.queries)


def sampled_response(request: ReadRequest, evaluation: Evaluation) -> bytes:
    """Return the response with the samples of all queries, compressed by snappy. Raise `OutOfTime` after the deadline
    of the evaluation, and `Unanswerable` if there are too many samples.
    """
    response = remote_message("ReadResponse")()
    metrics = [metric for named in evaluation.metrics.values() for metric in named]
    samples = 0
    for query in request.queries:
        result = response.results.add()
        for metric in evaluation.deadline.check_each(metrics):
            if not metric.matches_name_and_store(query.matchers):
                continue
            has_native = query.selects_native_histograms(metric)
            if not (has_native and query.function in _ADDING_FUNCTIONS):
                vector, times = _samples_of(metric, query, evaluation)
                samples += int(vector.present.sum())
                _check_size(samples)
                result.timeseries.extend(_encode_series(vector, times, evaluation.deadline))
            if has_native:
                for series in evaluation.deadline.check_each(_native_series(metric, query, evaluation)):
                    samples += len(series) // len(_SAMPLE)
                    _check_size(samples)
                    result.timeseries.append(series)
    return bytes(pa.compress(response.SerializeToString(), "snappy", asbytes=True))


def _check_size(samples: int) -> None:
    if samples > _MAX_SAMPLES:
        raise Unanswerable(
            f"a response has at most {_MAX_SAMPLES:,} samples, and this one would have more; use fewer series, a "
            "shorter range, or greater steps and ranges, which need only coarser windows"
        )


def chunked_response(request: ReadRequest, evaluation: Evaluation) -> Iterator[bytes]:
    """Yield the frames of a stream. Each frame is a message with chunks of one series. Only the series of metrics with
    the same name are in memory at the same time.

    The series of a query are sorted by their labels, because clients merge the streams of several servers.
    """
    for index, query in enumerate(request.queries):
        for metrics in _metrics_in_label_order(evaluation, query):
            vectors = [_samples_of(metric, query, evaluation) for metric in evaluation.deadline.check_each(metrics)]
            yield from _frames(vectors, index, evaluation.deadline)


def _metrics_in_label_order(evaluation: Evaluation, query: _ReadQuery) -> Iterator[list[Metric]]:
    """Yield the metrics of a query in groups. In the order of labels, all series of a group come before all series of
    the next group. Usually a group has the metrics of one name. If the name of a label sorts before ``__name__``, there
    is a single group with all metrics.
    """
    metrics_of_query = [
        metric
        for name in sorted(evaluation.metrics)
        for metric in evaluation.metrics[name]
        if metric.matches_name_and_store(query.matchers)
    ]
    if any(label < NAME for metric in metrics_of_query for label in metric.labels):
        yield metrics_of_query
        return
    for _, metrics in groupby(metrics_of_query, key=lambda metric: metric.name):
        yield list(metrics)


def _frames(vectors: Sequence[tuple[Vector, NDArray[np.int64]]], index: int, deadline: Deadline) -> Iterator[bytes]:
    """Yield the frames with the chunks of all series in ``vectors``, sorted by the labels of the series. An element of
    ``vectors`` is a vector with the times of its samples. ``index`` is the index of the query in the request.
    """
    places = [(v, i) for v, (vector, _) in enumerate(vectors) for i in range(len(vector.series))]
    places.sort(key=lambda place: sorted(vectors[place[0]][0].series[place[1]].items()))
    batch_size = max(_VALUES_AT_ONCE // max(*(times.shape[1] for _, times in vectors), 1, 1), 1)
    make = remote_message("ChunkedReadResponse")
    for begin in deadline.check_each(range(0, len(places), batch_size)):
        part = places[begin : begin + batch_size]
        for (v, i), chunks in zip(part, _chunks(vectors, part), strict=True):
            labels = vectors[v][0].series[i]
            label_pairs = [{"name": name, "value": labels[name]} for name in sorted(labels)]
            for first in range(0, len(chunks), _CHUNKS_PER_FRAME):
                series = {"labels": label_pairs, "chunks": chunks[first : first + _CHUNKS_PER_FRAME]}
                yield frame(make(chunked_series=[series], query_index=index).SerializeToString())


def _chunks(
    vectors: Sequence[tuple[Vector, NDArray[np.int64]]], places: Sequence[tuple[int, int]]
) -> list[list[dict[str, Any]]]:
    """Return a list of chunks for each series in ``places``. An element of ``places`` is a pair: the index of a vector
    in ``vectors``, and the index of a series in this vector.
    """
    chunks: list[list[dict[str, Any]]] = [[] for _ in places]
    present = [vectors[v][0].present[i] for v, i in places]
    values = np.concatenate([vectors[v][0].values[i][row] for (v, i), row in zip(places, present, strict=True)])
    times = np.concatenate([vectors[v][1][i][row] for (v, i), row in zip(places, present, strict=True)])
    series = np.repeat(np.arange(len(places)), [int(row.sum()) for row in present])
    for row, first, last, data in encode_chunks(times, values.astype(np.float64), series):
        chunks[row].append({"min_time_ms": first, "max_time_ms": last, "type": _XOR, "data": data})
    return chunks


def _decompress(body: bytes) -> bytes:
    """Return the decompressed body of a request. The size after decompression is checked first; raise `BadData` if it
    exceeds the limit.
    """
    size = shift = 0
    for byte in body[:5]:  # The body begins with its uncompressed length as a varint, like every snappy block.
        size |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
    if size > _MAX_BYTES:
        raise BadData(f"a request has at most {_MAX_BYTES:,} bytes; this one has {size:,}; send fewer queries")
    return bytes(pa.decompress(body, size, "snappy", asbytes=True))


def _read_query(query: Any) -> _ReadQuery:
    # ``regex`` and ``negated`` of a `Matcher`, for each value of LabelMatcher.Type: EQ, NEQ, RE, NRE
    kinds = [(False, False), (False, True), (True, False), (True, True)]
    matchers = tuple(Matcher(matcher.name, matcher.value, *kinds[matcher.type]) for matcher in query.matchers)
    start, end = (int(at) * _MICROS_PER_MILLI for at in (query.start_timestamp_ms, query.end_timestamp_ms))
    hints = query.hints
    if hints.end_ms:
        # The query has the range that all selectors of the expression need together. The hints have the range of this
        # selector alone.
        start = max(start, hints.start_ms * _MICROS_PER_MILLI)
        end = min(end, hints.end_ms * _MICROS_PER_MILLI)
    step = hints.step_ms * _MICROS_PER_MILLI
    range_length = hints.range_ms * _MICROS_PER_MILLI
    return _ReadQuery(matchers, start, end, step=step, range_length=range_length, function=hints.func)


def _samples_of(metric: Metric, query: _ReadQuery, evaluation: Evaluation) -> tuple[Vector, NDArray[np.int64]]:
    """Return two values: the series of a metric, with one sample per window, and an array of the times of the samples,
    in milliseconds, of shape (series, samples).

    Samples of a counter are running totals. The function ``sum_over_time`` adds samples, so a query with this function
    receives the value of each window instead.
    """
    is_total = metric.kind in (SUM, BUCKETS) and query.function != "sum_over_time"
    selection = _select_windows(metric, query, evaluation, matchers=query.matchers, is_total=is_total)
    if selection is None:
        return Vector.empty(0), np.zeros((0, 0), np.int64)
    selector, at_ends = selection
    if metric.has_event_times:
        return _event_samples(select(selector, at_ends), query)
    vector = numbers_of(selector, at_ends)
    if is_total:
        vector = _running_total(vector, selector.metric, query)
    return vector, np.broadcast_to(at_ends.moments // _MICROS_PER_MILLI, vector.present.shape)


def _native_series(metric: Metric, query: _ReadQuery, evaluation: Evaluation) -> Iterator[bytes]:
    """Yield the series of a metric as encoded messages with native histograms. A histogram is a running total, except
    for a query with ``sum_over_time``, which adds samples.
    """
    is_total = query.function != "sum_over_time"
    matchers = [matcher for matcher in query.matchers if matcher.label != QUANTILE]
    selection = _select_windows(metric, query, evaluation, matchers=matchers, is_total=is_total)
    if selection is None:
        return
    selector, at_ends = selection
    times = at_ends.moments // _MICROS_PER_MILLI
    states = select(selector, at_ends)
    yield from encode_native_series(states, times, is_running=is_total, deadline=evaluation.deadline)


def _select_windows(
    metric: Metric, query: _ReadQuery, evaluation: Evaluation, *, matchers: Iterable[Matcher], is_total: bool
) -> tuple[Selector, Evaluation] | None:
    """Return a selector of the series of a metric that meet ``matchers``, and an evaluation whose moments are the ends
    of the windows to read. Return None if there are no windows in the range of the query.
    """
    level, window_ends = _windows_to_read(metric, query, evaluation, is_total=is_total)
    if not len(window_ends):
        return None
    selected_metric, key_matchers = metric.with_matchers(matchers)
    selector = Selector(selected_metric, key_matchers, range_length=None, offset=0, text=selected_metric.name)
    return selector, replace(evaluation, moments=window_ends, step=int(level.length), lookback=0)


def _windows_to_read(
    metric: Metric, query: _ReadQuery, evaluation: Evaluation, *, is_total: bool
) -> tuple[TimeWindow, NDArray[np.int64]]:
    """Return the level that is read, and the ends of its windows in the range of a query, in microseconds UTC."""
    first, last = _first_and_last_start(metric)
    level = _level_to_read(metric, query, evaluation, is_total=is_total)
    # A window that ends in the range may begin up to one window length before the range. If the range begins before the
    # first window of the store, the empty window before this first window is read too, so that a counter begins with a
    # sample of 0.
    low = max(query.start, first) - int(level.length)
    high = min(query.end, last) + 1
    evaluation.check_limits(cells=max(high - low, 0) // int(level.length))
    window_ends = level.ends(level.starts_between(low, max(low, high)))
    window_ends = window_ends[window_ends >= query.start]
    if not metric.has_event_times:
        # Windows that have not ended yet are not shown, also if the range ends in the future.
        window_ends = window_ends[window_ends <= min(query.end, metric.view.now)]
    return level, window_ends


def _event_samples(states: States, query: _ReadQuery) -> tuple[Vector, NDArray[np.int64]]:
    """Return the last value of each window, and the time of the event with this value, in milliseconds. Events outside
    the range of the query are marked as absent.
    """
    vector = states.values()
    times = np.full(vector.present.shape, query.start - 1)
    times.flat[states.cells] = states.states.field("latest").field("time").cast(pa.int64()).to_numpy()
    is_in_range = (times >= query.start) & (times <= query.end)
    return replace(vector, present=vector.present & is_in_range), times // _MICROS_PER_MILLI


def _first_and_last_start(metric: Metric) -> tuple[int, int]:
    """Return the starts of the first and of the last window of all levels, in microseconds UTC. A request for all times
    is limited to this range.
    """
    view = metric.view
    levels = [view.level(level.name) for level in view.frame.levels]
    first = min((level.first_start for level in levels if level.first_start is not None), default=0)
    last = max((level.last_start for level in levels if level.last_start is not None), default=-1)
    return first, last


def _running_total(vector: Vector, metric: Metric, query: _ReadQuery) -> Vector:
    """Return the running total of each series. Raise `Unanswerable` if a total decreases and the function of the query
    would treat this as a reset.
    """
    increments = np.where(vector.present, vector.values, 0.0)
    if query.function in _COUNTER_FUNCTIONS and (increments < 0).any():
        raise Unanswerable(
            f"{metric.name} has negative sums, and {query.function} of Prometheus treats each decrease of a total as a "
            f"reset; use delta, or query this server for {query.function}"
        )
    return Vector(vector.series, np.cumsum(increments, axis=1), np.ones_like(vector.present))


def _level_to_read(metric: Metric, query: _ReadQuery, evaluation: Evaluation, *, is_total: bool) -> TimeWindow:
    """Return the level to read: the first of `_candidate_levels` whose windows have not expired in the range of the
    query, and do not exceed the limit of windows. If all candidates without expired windows exceed the limit, return
    the first candidate without expired windows. Raise `Unanswerable` if every candidate has expired windows in the
    range.
    """
    first, last = _first_and_last_start(metric)
    start = max(query.start, first)
    duration = max(min(query.end, last) - start, 0)
    candidates = _candidate_levels(metric, query, is_total=is_total)
    unexpired = [level for level in candidates if metric.view.level(level.name).available_from <= start]
    if not unexpired:
        finest = metric.view.frame.levels[0].name
        available_from = as_text(metric.view.level(finest).available_from)
        raise Unanswerable(
            f"{metric.name} has windows of {finest} only from {available_from} on, and the range begins at "
            f"{as_text(start)}; use a later range, or query this server, which reads coarser windows"
        )
    max_windows = evaluation.budget.limits.windows
    return next((level for level in unexpired if duration // int(level.length) < max_windows), unexpired[0])


def _candidate_levels(metric: Metric, query: _ReadQuery, *, is_total: bool) -> list[TimeWindow]:
    """Return the levels that may be read, the preferred level first.

    A level fits the query if its windows end at every moment at which Prometheus evaluates the expression, and at both
    ends of every range. A coarser level (any level except the finest) is short if its windows are at most a tenth of
    the range or, without a range, at most the lookback period. The returned levels depend on the metric and the query:

    - A running total, if there is no range, or if the function of the query needs only the values at the ends of a
      range: first the short levels that fit, beginning with the coarsest; then the finest level; then the short levels
      that do not fit.
    - A running total, if the function of the query needs further values in a range: only the finest level.
    - Another metric, if there is no range: first the finest level; then the coarser levels that fit, because Prometheus
      needs only the value at each moment.
    - Another metric, if there is a range: first the finest level; then, if the function of the query merges values in
      the same way as the store, the short levels that fit.
    """
    frame = metric.view.frame
    if query.function == "series":  # Prometheus lists series, and ignores their samples, so any level can be read.
        return list(frame.levels)
    finest = frame.levels[0]
    # Without a range, Prometheus uses the last sample in the lookback period. Each such period must contain a sample,
    # so windows must not be longer than the period.
    longest = query.range_length // 10 or LOOKBACK
    moments = [query.start + (query.range_length or LOOKBACK)]
    moments += [] if query.step else [query.end]

    def fits(level: TimeWindow) -> bool:
        length = int(level.length)
        is_aligned = query.step % length == 0 and query.range_length % length == 0
        # In Prometheus 3 and later, a range excludes its start, so the requested range begins 1 ms after the start.
        return is_aligned and all(at % length in (0, _MICROS_PER_MILLI) for at in moments)

    short = [level for level in frame.levels[1:] if int(level.length) <= longest]
    if is_total:
        coarser = short if not query.range_length or query.function in _END_VALUE_FUNCTIONS else []
        return [*filter(fits, reversed(coarser)), finest, *coarser]
    if not query.range_length:
        return [finest, *filter(fits, frame.levels[1:])]
    is_merge = metric.kind in (MIN, MAX, LAST) and query.function == f"{metric.kind}_over_time"
    return [finest, *(filter(fits, short) if is_merge else [])]


def _encode_series(vector: Vector, times: NDArray[np.int64], deadline: Deadline) -> Iterator[bytes]:
    """Yield each series that has samples as an encoded message: its labels, sorted, and then its samples, each of 22
    bytes.
    """
    batch_size = max(_VALUES_AT_ONCE // max(times.shape[1], 1), 1)
    make = remote_message("TimeSeries")
    for begin in deadline.check_each(range(0, len(vector.series), batch_size)):
        part = slice(begin, begin + batch_size)
        rows, moments = np.nonzero(vector.present[part])
        samples = _encode_samples(vector.values[part][rows, moments], times[part][rows, moments])
        offsets = np.searchsorted(rows, np.arange(batch_size + 1))
        for i, labels in enumerate(vector.series[part]):
            if offsets[i] < offsets[i + 1]:
                label_pairs = [{"name": name, "value": labels[name]} for name in sorted(labels)]
                yield make(labels=label_pairs).SerializeToString() + samples[offsets[i] : offsets[i + 1]].tobytes()


def _encode_samples(values: Floats, times: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Return samples as encoded protobuf messages of 22 bytes each, of shape (samples, 22)."""
    samples = np.tile(_SAMPLE, (len(values), 1))
    samples[:, 3:11] = values.astype("<f8").view(np.uint8).reshape(-1, 8)
    shifts = 7 * np.arange(10, dtype=np.uint64)
    varints = times.astype(np.uint64)[:, None] >> shifts & np.uint64(127)
    samples[:, 12:] = varints | np.where(shifts < 63, 128, 0).astype(np.uint64)
    return samples
