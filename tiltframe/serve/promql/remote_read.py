"""Remote read: what Prometheus asks of other storages, samples of series by matchers, as protobuf in snappy.

Source: ``prompb/remote.proto`` and ``prompb/types.proto`` of prometheus/prometheus; of responses the kind SAMPLES.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.interchange.protobuf_messages import message_classes
from tiltframe.frame import TiltFrame
from tiltframe.serve.errors import BadData
from tiltframe.serve.promql.cells import Vector
from tiltframe.serve.promql.evaluate import numbers_of
from tiltframe.serve.promql.metrics import NAME, STORE, Matcher, Metric
from tiltframe.serve.promql.select import LOOKBACK, Evaluation, Selector
from windows import TimeWindow

_MOST_BYTES = 16 << 20  # of a request that is unpacked
_MILLIS = 1000  # microseconds
_MESSAGES = {
    "Matcher": {"type": (1, "int32"), "name": (2, "string"), "value": (3, "string")},
    "Hints": {"step_ms": (1, "int64"), "range_ms": (7, "int64")},
    "Query": {
        "start_ms": (1, "int64"),
        "end_ms": (2, "int64"),
        "matchers": (3, "repeated Matcher"),
        "hints": (4, "Hints"),
    },
    "ReadRequest": {"queries": (1, "repeated Query")},
    "Label": {"name": (1, "string"), "value": (2, "string")},
    "Series": {"labels": (1, "repeated Label")},  # and samples = 2, which are written by whole columns
    "Result": {"series": (1, "repeated bytes")},  # of a Series each: bytes and messages are written alike
    "ReadResponse": {"results": (1, "repeated Result")},
}
_SAMPLE = np.frombuffer(b"\x12\x14\x09" + b"\0" * 8 + b"\x10" + b"\0" * 10, np.uint8)  # value = 1, timestamp = 2


@dataclass(frozen=True)
class _Asked:
    """One query: matchers, a range of time, both ends within, and the steps and ranges of what is computed of it."""

    matchers: tuple[Matcher, ...]
    start: int
    end: int
    step: int
    span: int


def remote_read(body: bytes, evaluation: Evaluation) -> bytes:
    """Answer a request; raises `BadData` for one that cannot be read."""
    response = _classes()["ReadResponse"]()
    for asked in _queries(body):
        result = response.results.add()
        for metric in (metric for named in evaluation.metrics.values() for metric in named):
            if metric.is_chosen(asked.matchers):
                result.series.extend(_series_of(metric, asked, evaluation))
    return bytes(pa.compress(response.SerializeToString(), "snappy", asbytes=True))


def _queries(body: bytes) -> list[_Asked]:
    try:
        request = _classes()["ReadRequest"].FromString(_unpacked(body))
        return [_asked(query) for query in request.queries]
    except BadData:
        raise
    except Exception as error:
        raise BadData(f"this is no ReadRequest in snappy: {' '.join(str(error).split())[:100]}") from None


def _unpacked(body: bytes) -> bytes:
    size = shift = 0
    for byte in body[:5]:  # a block of snappy begins with its length, as a varint
        size |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
    if size > _MOST_BYTES:
        raise BadData(f"a request has at most {_MOST_BYTES:,} bytes; this one has {size:,}")
    return bytes(pa.decompress(body, size, "snappy", asbytes=True))


def _asked(query: Any) -> _Asked:
    kinds = [(False, False), (False, True), (True, False), (True, True)]  # EQ, NEQ, RE, NRE
    matchers = tuple(Matcher(each.name, each.value, *kinds[each.type]) for each in query.matchers)
    start, end = (int(at) * _MILLIS for at in (query.start_ms, query.end_ms))
    return _Asked(matchers, start, end, query.hints.step_ms * _MILLIS, query.hints.range_ms * _MILLIS)


def _series_of(metric: Metric, asked: _Asked, evaluation: Evaluation) -> list[bytes]:
    """Read a metric's windows: each is a sample at its end; of a counter it is what the windows so far add up to."""
    level = _level(metric.store.frame, asked)
    parts = metric.snapshot.of(level.name)  # Prometheus may ask for all of time
    first = min((part.first_start for part in parts), default=0)
    low = max(asked.start, first) - int(level.length)  # before the first events a counter is 0
    high = min(asked.end, max((part.last_start for part in parts), default=-1)) + 1
    evaluation.check(max(high - low, 0) // int(level.length))
    ends = level.ends(level.starts_between(low, max(low, high)))
    ends = ends[(ends >= asked.start) & (ends <= asked.end)]
    if not len(ends):
        return []
    on_keys = tuple(matcher for matcher in asked.matchers if matcher.label not in (NAME, STORE))
    at_ends = replace(evaluation, moments=ends, step=int(level.length), lookback=0)
    vector = numbers_of(Selector(metric, on_keys, None, 0, metric.name), at_ends)
    if metric.is_counter:
        values = np.cumsum(np.where(vector.present, vector.values, 0.0), axis=1)
        vector = Vector(vector.series, values, np.ones_like(vector.present))
    return _written(vector, ends // _MILLIS)


def _level(frame: TiltFrame, asked: _Asked) -> TimeWindow:
    """Choose the coarsest level that steps and ranges are made of, ranges of ten windows or more.

    Without a range, one whose samples are not yet stale when the next come.
    """
    longest = asked.span // 10 or LOOKBACK

    def fits(level: TimeWindow) -> bool:
        length = int(level.length)
        return length <= longest and asked.step % length == 0 and asked.span % length == 0

    return next(filter(fits, reversed(frame.levels)), frame.levels[0])


def _written(vector: Vector, times: NDArray[np.int64]) -> list[bytes]:
    """Write each series as a message: labels, in order, then samples, all of one length."""
    rows, moments = np.nonzero(vector.present)
    samples = np.tile(_SAMPLE, (len(rows), 1))
    samples[:, 3:11] = vector.values[rows, moments].astype("<f8").view(np.uint8).reshape(-1, 8)
    shifts = 7 * np.arange(10, dtype=np.uint64)
    varints = times[moments].astype(np.uint64)[:, None] >> shifts & np.uint64(127)
    samples[:, 12:] = varints | np.where(shifts < 63, 128, 0).astype(np.uint64)
    offsets = np.searchsorted(rows, np.arange(len(vector.series) + 1))
    make = _classes()["Series"]
    written = []
    for i, labels in enumerate(vector.series):
        if offsets[i] < offsets[i + 1]:
            named = [{"name": name, "value": labels[name]} for name in sorted(labels)]
            written.append(make(labels=named).SerializeToString() + samples[offsets[i] : offsets[i + 1]].tobytes())
    return written


@cache
def _classes() -> dict[str, type[Any]]:
    return message_classes("prometheus", _MESSAGES, "serve")
