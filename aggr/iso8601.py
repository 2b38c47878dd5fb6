"""ISO 8601: parse single times and columns of times, in extended or basic form, with or without an offset.

2024-05-01   20240501   2024-05-01T10:00   20240501T100000,5Z   2024-05-01 10:00:00.123 +0530   2024-05-01Z
"""

from __future__ import annotations

import datetime as dt
import re
from contextlib import suppress
from decimal import Decimal

import pyarrow as pa

from aggr.arrow import compute as pc

_LEAP = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
DATE = (  # a pattern of the valid calendar dates in extended form
    "(?:[0-9]{4}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)|"
    rf"{_LEAP}-02-29)"
)
_OFFSET = "(?:Z|[+-](?:[01][0-9]|2[0-3])(?::?[0-5][0-9])?)"
_EXTENDED = (
    rf"^{DATE}[T ](?:[01][0-9]|2[0-3])(?::[0-5][0-9](?::[0-5][0-9](?:\.[0-9]{{1,6}})?)?)?"
    rf"{_OFFSET}$"
)
_TO_ARROW_FORM = (  # patterns and replacements that convert fractions and offsets to Arrow's form
    (r"(:[0-9]{2})[.,]([0-9]{1,6})[0-9]*", r"\1.\2"),
    (r" +(Z|[+-][0-9:]+)$", r"\1"),
)
_TO_EXTENDED = (
    (r"^([0-9]{4})([0-9]{2})([0-9]{2})($|[TZ +-])", r"\1-\2-\3\4"),
    # The minutes of an offset are required, because 2024-05-01-05 may end with an offset or with an hour.
    (r"^([0-9-]{10})(Z|[+-][0-9]{2}:?[0-9]{2})?$", r"\1T00:00\2"),
    (r"^([0-9-]{10}[T ][0-9]{2})([0-9]{2})([0-9]{2})", r"\1:\2:\3"),
    (r"^([0-9-]{10}[T ][0-9]{2})([0-9]{2})", r"\1:\2"),
    _TO_ARROW_FORM[0],
)
_TIME = re.compile(
    r"\s*(?P<date>\d{4}-?(?:\d\d-?\d\d|W\d\d(?:-?\d)?)|\d{4}-\d{1,2}-\d{1,2})"
    r"(?:[Tt ]\s*(?P<hour>\d\d|\d(?=:))(?::?(?P<minute>\d\d)(?::?(?P<second>\d\d)(?:[.,](?P<fraction>\d+))?)?)?)?"
    r"\s*(?P<offset>[Zz]|[+-]\d\d(?P<offset_minutes>:?[0-5]\d)?)?\s*",
    re.ASCII,
)


def read_time(text: str) -> tuple[dt.datetime, int]:
    """Return a time as a datetime with microseconds, and the remaining nanoseconds, from 0 to 999.

    Raises ``ValueError`` for a text that is not a time. The message is the reason, or empty if no reason is known.

    A time without an offset is returned without a zone. Months, days and hours may have one digit, and a date may be a
    week date.

    >>> read_time("2024-5-1 9:30:00.0000015Z")
    (datetime.datetime(2024, 5, 1, 9, 30, 0, 1, tzinfo=datetime.timezone.utc), 500)
    """
    match = _TIME.fullmatch(text)
    is_ambiguous = match and match["offset"] not in (None, "Z", "z") and not (match["hour"] or match["offset_minutes"])
    if match is None or is_ambiguous:
        raise ValueError("")
    date = re.sub(r"-(?=\d(?!\d))", "-0", match["date"]) if "W" not in match["date"] else match["date"]
    time_of_day = ":".join((match[part] or "0").zfill(2) for part in ("hour", "minute", "second"))
    fraction = f"{match['fraction'] or '':0<9.9}"
    try:
        moment = dt.datetime.fromisoformat(f"{date}T{time_of_day}.{fraction[:6]}{(match['offset'] or '').upper()}")
    except ValueError as error:
        raise ValueError("" if "isoformat" in str(error) else str(error)) from None
    return moment, int(fraction[6:])


def duration_text(count: int, *, digits: int) -> str:
    """Return the ISO 8601 text, in seconds, of a duration of ``count`` times 10^-``digits`` seconds.

    >>> duration_text(60_500, digits=3), duration_text(-2, digits=0), duration_text(1, digits=9)
    ('PT60.5S', '-PT2S', 'PT0.000000001S')
    """
    seconds = f"{Decimal(abs(count)).scaleb(-digits):f}"
    if "." in seconds:
        seconds = seconds.rstrip("0").rstrip(".")
    return f"-PT{seconds}S" if count < 0 else f"PT{seconds}S"


def read_times(texts: pa.Array) -> pa.Array:
    """Parse a column of texts as microseconds. Texts without an offset are in UTC; a text that is not a time becomes
    null.

    Fractions of a microsecond are rounded down.

    >>> read_times(pa.array(["20240501T10+01", "2024-02-30", None])).cast(pa.int64()).to_pylist()
    [1714554000000000, None, None]
    """
    times = pc.utf8_upper(pc.utf8_trim_whitespace(texts))
    with suppress(pa.ArrowInvalid):
        # One text is tried first, because Arrow raises an error only after it has parsed the complete column.
        _parse_directly(times[:1])
        return _parse_directly(times)
    for pattern, replacement in (_TO_ARROW_FORM[1], *_TO_EXTENDED):
        times = pc.replace_substring_regex(times, pattern, replacement)
    return cast_extended(_with_offset(times))


def _parse_directly(times: pa.Array) -> pa.Array:
    for pattern, replacement in _TO_ARROW_FORM:
        times = pc.replace_substring_regex(times, pattern, replacement)
    return _with_offset(times).cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us"))


def _with_offset(times: pa.Array) -> pa.Array:
    zone = pc.if_else(pc.match_substring_regex(times, rf"[T ][0-9:.]+{_OFFSET}$"), "", "Z")
    return pc.binary_join_element_wise(times, zone, "")


def cast_extended(times: pa.Array) -> pa.Array:
    """Parse texts in extended form, with a time of day and an offset, as microseconds. Other texts become null."""
    valid_times = pc.if_else(pc.match_substring_regex(times, _EXTENDED), times, pa.scalar(None, pa.string()))
    return valid_times.cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us"))
