"""Event times: any column that can be one, as microseconds since 1970-01-01 UTC."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.arguments import shown
from aggr.kernels import compute as pc
from aggr.kernels.normalize import normalize, one_array

INSTANT = pa.timestamp("us", "UTC")
_DAY = 86_400_000_000
_MICROS = {"s": 1_000_000, "ms": 1000, "us": 1}
_FORMS = (
    "write ISO 8601 such as 2024-05-01, 2024-05-01T10:00:00.5 or 20240501T100000, with an offset such as Z, +01, "
    "+0530 or +05:30, or without one in UTC; hours go from 00 to 23"
)
_BASIC = (  # what ISO 8601 writes without - and :, and the same with them
    (r"^([0-9]{4})([0-9]{2})([0-9]{2})($|[Tt ])", r"\1-\2-\3\4"),
    (r"^([0-9-]{10}[Tt ][0-9]{2})([0-9]{2})([0-9]{2})", r"\1:\2:\3"),
    (r"^([0-9-]{10}[Tt ][0-9]{2})([0-9]{2})", r"\1:\2"),
)
_ISO = (
    r"^(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[Tt ](?P<hour>[0-9]{2})(?::(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2})(?:[.,](?P<fraction>[0-9]+))?)?)?)?"
    r"(?: *(?:[Zz]|(?P<sign>[+-])(?P<ahead>[01][0-9]|2[0-3])(?::?(?P<beside>[0-5][0-9]))?))?$"
)


def event_times(column: pa.Array | pa.ChunkedArray, name: str) -> NDArray[np.int64]:
    """Read event times.

    Parameters
    ----------
    column : array of timestamps, dates, strings or integers
        Timestamps without a zone are UTC; strings are ISO 8601, UTC unless they carry an offset: extended
        or basic, ``2024-05-01 10:00``, ``20240501T100000,5Z``, ``2024-05-01T10:00:00.123 +0530``; integers are Unix
        milliseconds. What is finer than a microsecond is rounded down, also before 1970.
    name : str
        Of the column, for messages.

    Returns
    -------
    array of int64, microseconds UTC

    Raises
    ------
    ValueError
        If a time is missing or cannot be read.
    TypeError
        If the column cannot hold times.

    Examples
    --------
    >>> event_times(pa.array(["1970-01-01T01:00:00+01:00", "1970-01-01 00:00:01"]), "ts")
    array([      0, 1000000])
    """
    times = one_array(column) if pa.types.is_timestamp(column.type) else normalize(column)
    if times.null_count:
        raise ValueError(
            f"{times.null_count} of {len(times)} rows have no event time in {name!r}, and belong to no window; "
            "leave them out, or give them a time"
        )
    dtype = times.type
    try:
        if pa.types.is_string(dtype):
            return _int64(_read_text(times))
        elif pa.types.is_integer(dtype):
            return _int64(pc.multiply_checked(times.cast(pa.int64()), 1000))
        elif pa.types.is_timestamp(dtype):
            return _floor(times, dtype.unit)
        elif pa.types.is_date(dtype):
            return _int64(pc.multiply_checked(times.cast(pa.int32()).cast(pa.int64()), _DAY))
        elif not pa.types.is_null(dtype):
            raise TypeError(
                f"the time column {name!r} has type {shown(dtype)}; it must hold timestamps, dates, ISO 8601 text "
                "or whole numbers of Unix milliseconds"
            )
    except ValueError as error:
        raise ValueError(f"cannot read the time column {name!r}: {str(error).splitlines()[0]}") from None
    return np.empty(0, np.int64)


def _floor(times: pa.Array, unit: str) -> NDArray[np.int64]:
    """Give timestamps of any unit in microseconds; nanoseconds are rounded down."""
    if unit == "us":
        return _int64(times)
    if unit != "ns":
        return _int64(pc.multiply_checked(times.cast(pa.int64()), _MICROS[unit]))
    floor: NDArray[np.int64] = np.floor_divide(_int64(times), 1000)
    return floor


def _int64(times: pa.Array) -> NDArray[np.int64]:
    numbers: NDArray[np.int64] = times.cast(pa.int64()).to_numpy()
    return numbers


def _read_text(texts: pa.Array) -> pa.Array:
    """Read ISO 8601, each text with an offset or without; raises ``ValueError`` naming the first that is none."""
    for read in (_read_zoned, _read_local, _read_mixed):  # from fast to slow, each as Arrow reads
        try:
            read(texts[:1])  # Arrow notices at the end only
            return read(texts)
        except pa.ArrowInvalid:
            continue
    return _read_each(texts)


def _read_zoned(texts: pa.Array) -> pa.Array:
    return texts.cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us"))


def _read_local(texts: pa.Array) -> pa.Array:
    return texts.cast(pa.timestamp("us"))


def _read_mixed(texts: pa.Array) -> pa.Array:
    times = pc.utf8_upper(pc.utf8_trim_whitespace(texts))
    times = pc.replace_substring_regex(times, r"(:[0-9]{2})[.,]([0-9]{1,6})[0-9]*", r"\1.\2")
    zoned = pc.match_substring_regex(times, r"T?[0-9]{2}:[0-9]{2}.*(Z|[+-][0-9]{2}(:?[0-9]{2})?)$")
    times = pc.replace_substring_regex(times, r" +(Z|[+-][0-9:]+)$", r"\1")
    local = _read_local(pc.if_else(zoned, None, times))
    return pc.coalesce(_read_zoned(pc.if_else(zoned, times, None)), local)


def _read_each(texts: pa.Array) -> pa.Array:
    """Read ISO 8601 part by part."""
    times = pc.utf8_trim_whitespace(texts)
    for basic, extended in _BASIC:
        times = pc.replace_substring_regex(times, basic, extended)
    parts = pc.extract_regex(times, _ISO)

    def part(name: str, absent: str = "00") -> pa.Array:
        text = pc.struct_field(parts, name)
        return pc.if_else(pc.equal(text, ""), absent, text)

    clock = pc.binary_join_element_wise(part("hour"), part("minute"), part("second"), ":")
    fraction = pc.utf8_slice_codeunits(pc.binary_join_element_wise(part("fraction", ""), "000000", ""), 0, 6)
    whole = pc.binary_join_element_wise(part("date"), "T", clock, ".", fraction, "")
    bare = [pc.equal(pc.struct_field(parts, name), "") for name in ("hour", "ahead", "beside")]
    hour_or_offset = pc.and_(bare[0], pc.and_(pc.invert(bare[1]), bare[2]))  # 2024-05-01-05: nobody can tell
    whole = pc.if_else(hour_or_offset, None, whole)
    unread = _first_unread(whole)
    if unread is not None:
        raise ValueError(f"{texts[unread].as_py()!r} is no time that is read; {_FORMS}")
    minutes = pc.add(pc.multiply(part("ahead").cast(pa.int64()), 60), part("beside").cast(pa.int64()))
    east = pc.if_else(pc.equal(part("sign"), "-"), pc.negate(minutes), minutes)
    local = whole.cast(pa.timestamp("us")).cast(pa.int64())
    return pc.subtract(local, pc.multiply(east, 60_000_000)).cast(pa.timestamp("us"))


def _first_unread(times: pa.Array) -> int | None:
    """Find the first text that is missing or no time, though it may be written as one (``24:00``)."""

    def unread(some: pa.Array) -> bool:
        try:
            return bool(some.cast(pa.timestamp("us")).null_count)
        except pa.ArrowInvalid:
            return True

    if not unread(times):
        return None
    at = 0
    while len(times) > 1:
        half = len(times) // 2
        left = unread(times[:half])
        at, times = (at, times[:half]) if left else (at + half, times[half:])
    return at
