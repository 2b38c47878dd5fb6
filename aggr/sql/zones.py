"""Zones: a time is an instant, and the time zone in its Arrow type determines its hour, day and date.

A local time is converted to the first instant that has this local time or a later one. For a repeated time, this is the
earlier instant; for a skipped time, it is the instant at which the UTC offset changes. Days therefore begin at the same
instants as windows of a day.

Arrays and scalars are converted by `aggr.clocks`, as windows are. Filters of files are expressions of Arrow, in which
zones have no changes of the UTC offset after 2037.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aggr.arrays import Whole
from aggr.clocks import Clock, clock_around
from aggr.sql.term import Term, Value, apply
from aggr.time_zones import fixed_offset

UTC = "UTC"
STEPS_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_MICROS_PER_SECOND = 10**6
_NANOS_PER_MICRO = 1000
# Times are limited to this magnitude, in microseconds, so that an added offset cannot overflow int64. The limit lies
# after the year 9999, from which on offsets are constant.
_LAST_MICROS = 2**62


def follows_clock(kind: pa.DataType) -> bool:
    """Return whether a type is a timestamp with a time zone other than UTC."""
    return bool(pa.types.is_timestamp(kind) and kind.tz not in (None, UTC))


def in_zone(kind: pa.DataType, zone: str) -> pa.DataType:
    """Return the type ``kind`` with the zone ``zone``, if it is a timestamp. With UTC, the type is unchanged."""
    return pa.timestamp(kind.unit, zone) if pa.types.is_timestamp(kind) and zone != UTC else kind


def localize(term: Term, zone: str) -> Term:
    """Return a term whose times without a zone are interpreted as local times of ``zone``.

    Such times result from dates, for example from a date plus an interval. With UTC, the term is unchanged.
    """
    if zone == UTC or not pa.types.is_timestamp(term.type) or term.type.tz is not None:
        return term
    return apply(lambda value: from_local(value, zone), term, kind=in_zone(term.type, zone))


def from_local(local: Value, zone: str) -> Value:
    """For each local time, return the first instant at which the clock of ``zone`` shows this time or a later one."""
    if isinstance(local, pc.Expression):
        return pc.assume_timezone(local, zone, ambiguous="earliest", nonexistent="latest")
    return _converted(local, zone, _instants_of_local, pa.timestamp(local.type.unit, zone))


def to_local(value: Value) -> Value:
    """Return the local time at each instant, without a zone. The type of ``value`` contains the zone of the clock."""
    if isinstance(value, pc.Expression):
        return pc.local_timestamp(value)
    if value.type.tz is None:
        return value
    return _converted(value, value.type.tz, Clock.local_times, pa.timestamp(value.type.unit))


def without_zone(value: Value) -> Value:
    """Return the instants as times without a zone that show UTC."""
    return value.cast(pa.int64()).cast(pa.timestamp(value.type.unit))


def offset_texts(values: pa.Array) -> pa.Array:
    """Return the UTC offset at each instant as text, such as ``+02:00``. The type of ``values`` contains the zone."""
    steps_per_minute = 60 * STEPS_PER_SECOND[values.type.unit]
    steps = pc.subtract(to_local(values).cast(pa.int64()), values.cast(pa.int64())).dictionary_encode()
    texts = []
    for offset in steps.dictionary.to_pylist():
        minutes = abs(offset) // steps_per_minute
        texts.append(f"{'-' if offset < 0 else '+'}{minutes // 60:02}:{minutes % 60:02}")
    return pa.array(texts, pa.string()).take(steps.indices)


def _instants_of_local(clock: Clock, local: Whole) -> Whole:
    """Return the first instant at which a clock shows each local time or a later one.

    Local times and instants are in microseconds. For times before the range of the clock, the first offset of the clock
    applies.
    """
    instants = clock.first_instant_showing(local)
    if local.min() < clock.since[0] + clock.offsets[0]:
        instants = np.where(local < clock.since[0] + clock.offsets[0], local - clock.offsets[0], instants)
    return instants


def _converted(value: Value, zone: str, convert: Callable[[Clock, Whole], Whole], kind: pa.DataType) -> Value:
    """Return the times in ``value``, converted by the clock of ``zone``, as a scalar or an array of the type ``kind``.

    ``convert`` makes the conversion. It receives and returns microseconds.
    """
    if isinstance(value, pa.Scalar):
        return _converted(pa.repeat(value, 1), zone, convert, kind)[0]
    if isinstance(value, pa.ChunkedArray):
        chunks = [_converted(chunk, zone, convert, kind) for chunk in value.chunks]
        return pa.chunked_array(chunks, kind)
    if fixed_offset(zone) == 0:
        return value.cast(kind)
    if value.null_count == len(value):
        return pa.nulls(len(value), kind)
    numbers = pc.fill_null(value.cast(pa.int64()), pc.min(value).cast(pa.int64())).to_numpy()
    if value.type.unit == "ns":
        converted = _convert_nanoseconds(numbers, zone, convert)
    elif value.type.unit == "us":
        converted = convert(clock_around(zone, numbers), numbers)
    else:
        micros_per_step = _MICROS_PER_SECOND // STEPS_PER_SECOND[value.type.unit]
        converted = _convert_coarse(numbers, micros_per_step, zone, convert)
    is_null = pc.is_null(value).to_numpy(zero_copy_only=False) if value.null_count else None
    return pa.array(converted, pa.int64(), mask=is_null).cast(kind)


def _convert_coarse(numbers: Whole, micros_per_step: int, zone: str, convert: Callable[[Clock, Whole], Whole]) -> Whole:
    """Return the results of ``convert`` for times in seconds or milliseconds, in the same unit.

    If the microseconds of a time would overflow int64, the same UTC offset is used as for other times before the year 1
    or after the year 9999.
    """
    limit = _LAST_MICROS // micros_per_step
    micros = np.clip(numbers, -limit, limit) * micros_per_step
    shifts = convert(clock_around(zone, micros), micros) - micros
    # The division is exact, because offsets and the instants at which they change are whole seconds.
    converted: Whole = numbers + shifts // micros_per_step
    return converted


def _convert_nanoseconds(numbers: Whole, zone: str, convert: Callable[[Clock, Whole], Whole]) -> Whole:
    """Return the results of ``convert`` for times in nanoseconds, in nanoseconds."""
    micros = numbers // _NANOS_PER_MICRO
    digits = numbers - micros * _NANOS_PER_MICRO
    clock = clock_around(zone, micros)
    converted = convert(clock, micros)
    if convert is _instants_of_local:
        # A local time that the clock skips becomes the instant at which the UTC offset changes. This instant has no
        # fraction of a microsecond.
        digits = np.where(clock.local_times(converted) == micros, digits, 0)
    nanos: Whole = converted * _NANOS_PER_MICRO + digits
    return nanos
