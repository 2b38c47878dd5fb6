"""Literals: numbers, times and dates in the syntax of conditions.

Times are ISO 8601 in extended or basic form: a date, optionally ``T`` or a blank and a time of day with up to nine
decimal places of a second, and optionally an offset (``Z``, ``+01``, ``+0100``, ``+01:00``). A time without an offset
is a local time of the time zone in which the condition is evaluated.
"""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal

import pyarrow as pa

from aggr.arguments import shown
from aggr.iso8601 import read_time
from aggr.sql.zones import UTC, from_local

_TIME_FORMS = (
    "a local time such as '2024-05-01', '2024-05-01 12:30' or '2024-05-01T12:30:15.25', or a time with an offset such "
    "as Z, +01 or +01:00"
)
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)
_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)", re.ASCII)
_TIME_OF_DAY = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d{1,9}))?)?", re.ASCII)
_SPECIAL_FLOATS = {"nan": "nan", "inf": "inf", "infinity": "inf"}
_BOOLEAN_WORDS = {
    **dict.fromkeys(("true", "t", "yes", "y", "1"), True),
    **dict.fromkeys(("false", "f", "no", "n", "0"), False),
}
_EPOCH = dt.datetime(1970, 1, 1)


def number(text: str) -> pa.Scalar:
    """Return a number that is written as text: float64 if it has an exponent, decimal if it has a point, else int64.

    Whole numbers beyond int64, or with a sign, are decimals. Raise ``ValueError`` if the text is not a number.

    >>> number("2.50").type, number("9223372036854775808").type
    (Decimal128Type(decimal128(3, 2)), Decimal128Type(decimal128(19, 0)))
    """
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"the number {shown(text)} cannot be read; write a number such as 12, 1.5 or 1e3")
    if "e" in text.lower():
        return pa.scalar(float(text), pa.float64())
    if text.isdigit() and int(text) < 2**63:
        return pa.scalar(int(text), pa.int64())
    exact = Decimal(text)
    digits = len(exact.as_tuple().digits)
    scale = max(0, -int(exact.as_tuple().exponent))
    if max(digits, scale) > 76:
        raise ValueError(f"the number {text} has more than 76 digits; write it with an exponent, as a float")
    precision = max(digits, scale, 1)
    return pa.scalar(exact, pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale))


def text_as(text: str, kind: pa.DataType) -> pa.Scalar:
    """Parse a text that is compared with values of the type ``kind``. The result may have a wider type than ``kind``.

    Raise ``ValueError`` if the text cannot be read as a value of this kind.
    """
    if pa.types.is_timestamp(kind):
        return timestamp(text, kind.tz)
    if pa.types.is_date32(kind):
        return date(text)
    stripped = text.strip()
    if pa.types.is_boolean(kind) and stripped.lower() in _BOOLEAN_WORDS:
        return pa.scalar(_BOOLEAN_WORDS[stripped.lower()])
    if pa.types.is_floating(kind):
        sign, bare = ("-", stripped[1:]) if stripped.startswith("-") else ("", stripped.removeprefix("+"))
        if _NUMBER.fullmatch(stripped) or bare.lower() in _SPECIAL_FLOATS:
            return pa.scalar(float(sign + _SPECIAL_FLOATS.get(bare.lower(), bare)), pa.float64())
    is_whole = pa.types.is_integer(kind) and _INTEGER.fullmatch(stripped)
    if is_whole or (pa.types.is_decimal(kind) and _DECIMAL.fullmatch(stripped)):
        return _signed_number(stripped)
    if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.scalar(text.encode(), pa.binary()).cast(kind)
    if pa.types.is_time(kind):
        return time_of_day(stripped)
    raise ValueError(
        f"the text {text!r} cannot be compared with a column of {kind}, because it cannot be read as a value of this "
        "type; write a value of this type"
    )


def _signed_number(text: str) -> pa.Scalar:
    value = number(text.lstrip("+-"))
    if not text.startswith("-"):
        return value
    return pa.scalar(-value.as_py(), None if pa.types.is_integer(value.type) else value.type)


def time_of_day(text: str) -> pa.Scalar:
    """Return the time of day that a text contains, in microseconds, or in nanoseconds if the time is not a whole number
    of microseconds. Raise ``ValueError`` if the text is not a time of day.

    >>> str(time_of_day("12:30"))
    '12:30:00'
    """
    match = _TIME_OF_DAY.fullmatch(text)
    hour, minute, second = (0, 0, 0) if match is None else (int(match[part] or 0) for part in (1, 2, 3))
    if match is None or hour > 23 or minute > 59 or second > 59:
        raise ValueError(f"the text {text!r} is not a time of day; write a time such as '12:30:00'")
    seconds = 3600 * hour + 60 * minute + second
    nanoseconds = 1_000_000_000 * seconds + int((match[4] or "").ljust(9, "0"))
    if nanoseconds % 1000:
        return pa.scalar(nanoseconds, pa.time64("ns"))
    return pa.scalar(nanoseconds // 1000, pa.time64("us"))


def timestamp(text: str, zone: str | None = None) -> pa.Scalar:
    """Return the time that a text contains, as a timestamp in ``zone``.

    The unit is microseconds, or nanoseconds if the time is not a whole number of microseconds. A time
    without an offset is a local time of the zone.

    >>> str(timestamp("2024-05-01T12:30+01:30", "UTC"))
    '2024-05-01 11:00:00+00:00'
    """
    moment, nanoseconds = _read_time(text, "time", _TIME_FORMS)
    epoch = _EPOCH if moment.tzinfo is None else _EPOCH.replace(tzinfo=dt.UTC)
    micros = (moment - epoch) // dt.timedelta(microseconds=1)
    unit, units_since_epoch = ("ns", micros * 1000 + nanoseconds) if nanoseconds else ("us", micros)
    if not -(2**63) <= units_since_epoch < 2**63:
        raise ValueError(
            f"the time {text!r} is too far from 1970 for nanoseconds; write a time of the years 1678 to 2261"
        )
    scalar = pa.scalar(units_since_epoch, pa.int64())
    if zone in (None, UTC) or moment.tzinfo is not None:
        return scalar.cast(pa.timestamp(unit, zone))
    return from_local(scalar.cast(pa.timestamp(unit)), zone)


def date(text: str) -> pa.Scalar:
    """Return the date that a text contains. A time of day after the date is ignored, as in DuckDB and Spark.

    >>> str(date("2024-05-01"))
    '2024-05-01'
    """
    return pa.scalar(_read_time(text, "date", "'2024-05-01'")[0].date(), pa.date32())


def _read_time(text: str, what: str, forms: str) -> tuple[dt.datetime, int]:
    try:
        return read_time(text)
    except ValueError as error:
        reason = f": {error}" if str(error) else ""
        raise ValueError(f"the {what} {shown(text)} cannot be read{reason}; write {forms}") from None
