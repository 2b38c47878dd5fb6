"""Event times: convert columns of any supported type to microseconds since 1970-01-01 UTC."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.arguments import shown
from aggr.arrow import compute as pc
from aggr.arrow.normalize import normalize, one_array
from aggr.iso8601 import read_times
from tiltframe.parameter_names import by_caller
from tiltframe.units_of_numbers import refuse_other_units


class NoTimeZone(ValueError):
    """The error for times without a time zone, if their zone was not declared and the windows are not in UTC."""


UTC = "UTC"
INSTANT = pa.timestamp("us", "UTC")
_DAY = 86_400_000_000
_MICROS_PER_UNIT = {"s": 1_000_000, "ms": 1000, "us": 1}
_WITH_OFFSET = r"(Z|[T ][0-9:.,]+ *[+-][0-9]{2}(:?[0-9]{2})?)$"
_DATE_ALONE = r"^[0-9]{4}-?([0-9]{1,2}-?[0-9]{1,2}|W[0-9]{2}(-?[0-9])?)$"
_ADVICE = "use ISO 8601, such as 2024-05-01, 20240501T100000 or 2024-05-01T10:00:00.5+05:30, or declare the format: "
_OPTION = "--time-format '%d.%m.%Y %H:%M'"


def event_times(
    column: pa.Array | pa.ChunkedArray, name: str, timezone: str = UTC, clock: str | None = None
) -> NDArray[np.int64]:
    """Convert a column of event times to microseconds since 1970-01-01 UTC.

    Parameters
    ----------
    column : Arrow array or chunked array
        Timestamps, dates, ISO 8601 text or Unix milliseconds as integers. Text is in the extended or
        the basic format of ISO 8601, with or without dashes and colons: ``2024-05-01T10:00:00.123 +0530``,
        ``2024-05-01 10:00``, ``20240501T100000,5Z``. A date is the first instant of its day in ``timezone``.
    name : str
        The name of the column, for messages.
    timezone : str
        The time zone of the windows.
    clock : str, optional
        The time zone of timestamps without a zone and of text without an offset; the default is UTC. Required for such
        times if ``timezone`` is not UTC. A local time that occurs twice is read as the earlier instant. A local time
        that is skipped is read as the instant of the transition.

    Returns
    -------
    array of int64
        The times in microseconds since 1970-01-01 UTC. Fractions of a microsecond are rounded down, also before 1970.

    Raises
    ------
    ValueError
        If a time is missing or cannot be read, if ``clock`` is missing, or if whole numbers look like seconds or dates.
    TypeError
        If the type of the column cannot represent times.

    Examples
    --------
    >>> event_times(pa.array(["1970-01-01T01:00:00+01:00", "1970-01-01 00:00:01"]), "ts")
    array([      0, 1000000])
    """
    times = one_array(column) if pa.types.is_timestamp(column.type) else normalize(column)
    if times.null_count:
        raise ValueError(
            f"{times.null_count} of {len(times)} rows have no event time in {name!r}, and so they do not "
            "belong to a window; leave out these rows, or add their times"
        )
    dtype = times.type
    try:
        if pa.types.is_string(dtype):
            return _text_times(times, name, timezone, clock)
        elif pa.types.is_integer(dtype):
            refuse_other_units(times, name)
            return _scaled(times, 1000)
        elif pa.types.is_timestamp(dtype):
            micros = _floor(times, dtype.unit)
            return (
                micros
                if dtype.tz or not len(times)
                else checked_local_times_to_utc(micros, times, name, timezone=timezone, clock=clock)
            )
        elif pa.types.is_date(dtype):
            days = _scaled(times.cast(pa.int32()), _DAY)
            return local_times_to_utc(days, timezone)
        elif not pa.types.is_null(dtype):
            raise TypeError(
                f"the time column {name!r} has type {shown(dtype)}; it must contain timestamps, dates, ISO 8601 text "
                "or whole numbers of Unix milliseconds"
            )
    except NoTimeZone:
        raise
    except ValueError as error:
        raise ValueError(f"cannot read the time column {name!r}: {str(error).splitlines()[0]}") from None
    return np.empty(0, np.int64)


def checked_local_times_to_utc(
    micros: NDArray[np.int64], times: pa.Array, name: str, timezone: str, clock: str | None
) -> NDArray[np.int64]:
    """Convert local times of the zone ``clock`` to microseconds UTC. ``micros`` are the local times in microseconds
    since 1970-01-01 00:00 local time, and ``times`` are the same times as an Arrow array. Raise `NoTimeZone` if
    ``clock`` equals None and the windows are not in UTC; the message shows the first of ``times``.
    """
    if clock is None and timezone != UTC:
        check_clock(name, timezone, clock, times[:1].cast(pa.string())[0].as_py())
    return local_times_to_utc(micros, clock or UTC)


def check_clock(name: str, timezone: str, clock: str | None, example: str = "") -> None:
    """Raise `NoTimeZone` if ``clock`` is missing, and the windows are not in UTC. ``clock`` is the zone of local times,
    and ``timezone`` is the zone of the windows. The message contains ``name``, the name of the column of times, and
    ``example``, one of the times.
    """
    if clock is None and timezone != UTC:
        example_text = f", such as {shown(example)}," if example else ""
        raise NoTimeZone(
            f"times in {shown(name)}{example_text} have no zone, and the windows are in {timezone}; declare the zone "
            f"of the times with --clock {timezone} or --clock UTC"
            + by_caller("", f" on the command line, ReadOptions(clock={timezone!r}) in Python")
            + ", or convert the column to a type with a time zone"
        )


def _accepted_times() -> str:
    """Return the end of an error message, which lists the accepted notations of times."""
    return _ADVICE + by_caller(_OPTION, f"{_OPTION}, ReadOptions(time_format=…) in Python")


def local_times_to_utc(micros: NDArray[np.int64], zone: str) -> NDArray[np.int64]:
    """Convert local times of a zone, in microseconds since 1970-01-01 00:00 local time, to microseconds UTC.

    A local time that occurs twice is read as the earlier instant. A local time that is skipped is read as the instant
    of the transition.

    >>> local_times_to_utc(np.array([0]), "Europe/Berlin")
    array([-3600000000])
    """
    if zone == UTC:
        return micros
    # imported here, because the import is slow (it loads pyarrow.compute), and times in UTC do not need it
    from aggr.sql.zones import from_local

    return _int64(from_local(pa.array(micros, pa.timestamp("us")), zone))


def _floor(times: pa.Array, unit: str) -> NDArray[np.int64]:
    """Convert timestamps with the unit ``unit`` to microseconds. Nanoseconds are rounded down."""
    if unit == "us":
        return _int64(times)
    if unit != "ns":
        return _scaled(times, _MICROS_PER_UNIT[unit])
    floor: NDArray[np.int64] = np.floor_divide(_int64(times), 1000)
    return floor


def _scaled(times: pa.Array, micros_per_unit: int) -> NDArray[np.int64]:
    """Convert times in another unit to microseconds. Raise ``ValueError`` if one of them is too large for 64 bits."""
    numbers = times.cast(pa.int64())
    try:
        return _int64(pc.multiply_checked(numbers, micros_per_unit))
    except pa.ArrowInvalid:
        largest = max(numbers.to_pylist(), key=abs)
        raise ValueError(
            f"event times must lie in the years 2 to 9998; got the number {largest:,} in a column of {times.type}; "
            "leave out such rows, or check the unit of the times"
        ) from None


def _int64(times: pa.Array) -> NDArray[np.int64]:
    numbers: NDArray[np.int64] = times.cast(pa.int64()).to_numpy()
    return numbers


def _text_times(texts: pa.Array, name: str, timezone: str, clock: str | None) -> NDArray[np.int64]:
    """Convert ISO 8601 texts to microseconds UTC. Times without an offset are local times of the zone ``clock``. A date
    is the first instant of its day in ``timezone``, the zone of the windows.
    """
    micros = _int64(_read_text(texts))
    if timezone == UTC and clock in (None, UTC):
        return micros
    plain = pc.utf8_upper(pc.utf8_trim_whitespace(texts))
    is_date = pc.match_substring_regex(plain, _DATE_ALONE).to_numpy(zero_copy_only=False)
    is_local = ~is_date & ~pc.match_substring_regex(plain, _WITH_OFFSET).to_numpy(zero_copy_only=False)
    if is_date.any():
        micros = np.where(is_date, local_times_to_utc(micros, timezone), micros)
    if is_local.any():
        check_clock(name, timezone, clock, texts[int(np.argmax(is_local))].as_py())
        micros = np.where(is_local, local_times_to_utc(micros, clock or UTC), micros)
    return micros


def _read_text(texts: pa.Array) -> pa.Array:
    """Convert ISO 8601 texts to timestamps. A text without an offset is read as UTC. If a text is not a time, raise
    ``ValueError`` with the first such text.
    """
    # try the fast conversions first, which require that all texts have the same form
    for dtype in (INSTANT, pa.timestamp("us")):
        with suppress(pa.ArrowInvalid):
            texts[:1].cast(dtype)  # try one text first, because Arrow converts all texts before it reports an error
            return texts.cast(dtype)
    times = read_times(texts)
    if times.null_count:
        first = pc.index(times.is_null(), True).as_py()
        raise ValueError(f"cannot parse {shown(texts[first].as_py())} as a time; {_accepted_times()}")
    return times
