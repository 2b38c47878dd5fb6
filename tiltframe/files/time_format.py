"""Time formats: convert columns of text in a format such as ``%d.%m.%Y %H:%M`` to timestamps."""

from __future__ import annotations

import calendar
import re
from decimal import Decimal

import pyarrow as pa

from aggr.arguments import is_unicode, shown
from aggr.arrow import compute as pc
from aggr.iso8601 import cast_extended

_MONTHS = [name.lower() for name in calendar.month_abbr[1:]]
_SHORT = {"T": "%H:%M:%S", "F": "%Y-%m-%d", "D": "%m/%d/%y", "R": "%H:%M"}
_PARTS = {
    "Y": "[0-9]{4}",
    "y": "[0-9]{2}",
    **dict.fromkeys("mdHIMS", "[0-9]{1,2}"),
    "j": "[0-9]{1,3}",
    "f": "[0-9]{1,9}",
    **dict.fromkeys("bB", "[a-zA-Z]{3,9}"),
    "p": "[aApP][mM]",
    "z": "[Zz]|[+-][0-9]{2}:?[0-9]{2}",
}
# directives for the day of the week; the text that they match is ignored
_IGNORED = {"a": "[a-zA-Z]+", "A": "[a-zA-Z]+"}
_DIRECTIVES = ", ".join(f"%{sign}" for sign in (*_PARTS, *_IGNORED, *_SHORT))


def check_format(text: str) -> None:
    """Raise ``ValueError`` if a time format has an unknown directive, has a directive twice, does not determine the
    day, or has only one of %I and %p.
    """
    signs = _directives(_regex(text))
    has_day = "j" in signs or ("d" in signs and signs & set("mbB"))
    # A format with neither a day nor a time of day is accepted: %Y-%m stands for the first day of the month.
    is_coarse = "d" not in signs and not signs & set("HIMSf")
    if not ("Y" in signs or "y" in signs) or not (has_day or is_coarse):
        raise ValueError(
            f"the time format {shown(text)} does not contain the day; write a format such as %d.%m.%Y %H:%M:%S"
        )
    if ("I" in signs) != ("p" in signs):
        raise ValueError(f"the time format {shown(text)} has only one of %I and %p; a 12-hour clock needs both")


def has_offset(time_format: str) -> bool:
    """Return whether a format contains an offset from UTC. Times with an offset are instants; other times need a time
    zone.

    >>> has_offset("%d.%m.%Y %H:%M"), has_offset("%FT%T%z")
    (False, True)
    """
    return "z" in _directives(_regex(time_format))


def has_time_of_day(time_format: str) -> bool:
    """Return whether a format contains a time of day. Times in a format without a time of day are dates."""
    return bool(_directives(_regex(time_format)) & set("HI"))


def read_format(texts: pa.Array, time_format: str) -> pa.Array:
    """Convert texts in the format ``time_format`` to timestamps in microseconds UTC. If the format has no offset, the
    texts are read as UTC. Texts that do not match the format become null.

    >>> read_format(pa.array(["01.05.2024 10:00", "May 1"]), "%d.%m.%Y %H:%M").cast(pa.int64()).to_pylist()
    [1714557600000000, None]
    """
    regex = _regex(time_format)
    groups = pc.extract_regex(pc.utf8_trim_whitespace(texts), regex)
    parts = {sign: pc.struct_field(groups, sign) for sign in _directives(regex)}

    def number(sign: str, absent: int = 0) -> pa.Array:
        return parts[sign].cast(pa.int64()) if sign in parts else pc.if_else(pc.is_valid(groups), absent, None)

    year = number("Y") if "Y" in parts else number("y")
    if "Y" not in parts:
        # In a format with two digits for the year, 69 means 1969 and 68 means 2068, as in POSIX.
        year = pc.add(year, pc.if_else(pc.less(year, 69), 2000, 1900))
    month = _month_numbers(parts.get("b", parts.get("B"))) if not {"b", "B"}.isdisjoint(parts) else number("m", 1)
    hour = number("H") if "I" not in parts else _hour_of_day(number("I"), parts["p"])
    date = _join_padded([year, month, number("d", 1)], [4, 2, 2], "-")
    clock = _join_padded([hour, number("M"), number("S")], [2, 2, 2], ":")
    fraction = pc.utf8_slice_codeunits(pc.binary_join_element_wise(parts.get("f", ""), "000000", ""), 0, 6)
    zone = pc.utf8_upper(parts["z"]) if "z" in parts else "Z"
    pieces = [date, "T", clock, ".", fraction, zone]
    times = cast_extended(pc.binary_join_element_wise(*pieces, ""))
    micros = times.cast(pa.int64())
    if "j" in parts:
        since_first_day = pc.multiply(pc.subtract(number("j"), 1), 86_400_000_000)
        midnight = cast_extended(pc.binary_join_element_wise(date, "T00:00:00Z", "")).cast(pa.int64())
        days = pc.add(midnight, since_first_day).cast(pa.timestamp("us", "UTC"))
        micros = pc.if_else(pc.equal(pc.year(days), year), pc.add(micros, since_first_day), None)
    return micros.cast(pa.timestamp("us", "UTC"))


def timestamps_with_fractions(numbers: pa.Array, unit: str) -> pa.Array:
    """Convert numbers of seconds, milliseconds, microseconds or nanoseconds since 1970-01-01 UTC to timestamps in
    microseconds. The numbers may have fractions, and the result is rounded down. ``unit`` is ``s``, ``ms``, ``us`` or
    ``ns``.

    >>> timestamps_with_fractions(pa.array([0.25, 1714521600.123456, -0.5]), "s").cast(pa.int64()).to_pylist()
    [250000, 1714521600123456, -500000]
    """
    # Convert the text of a double and not its bits, so that the double nearest to 0.1 counts as 0.1.
    texts = pc.utf8_trim_whitespace(numbers.cast(pa.string()))
    cut = pc.replace_substring_regex(texts, r"^([^.eE]*\.[0-9]{12})[0-9]+$", r"\1")
    exact = cut.cast(pa.decimal256(60, 25))
    steps = pa.scalar(Decimal({"s": 10**6, "ms": 10**3, "us": 1}.get(unit, 1)), pa.decimal256(8, 0))
    micros = pc.floor(pc.multiply(exact, steps) if unit != "ns" else pc.divide(exact, pa.scalar(Decimal(1000))))
    return micros.cast(pa.decimal256(60, 0)).cast(pa.int64()).cast(pa.timestamp("us", "UTC"))


def _regex(time_format: str) -> str:
    """Return a regular expression for the texts of a time format. It has a named group for each directive, such as
    ``(?P<Y>[0-9]{4})`` for %Y. Raise ``ValueError`` if a directive is unknown, or occurs twice.
    """
    if not isinstance(time_format, str) or not is_unicode(time_format):
        raise ValueError(f"a time format must be text, such as '%d.%m.%Y %H:%M'; got {shown(time_format)}")
    time_format = re.sub("%([TFDR])", lambda short: _SHORT[short[1]], time_format)
    pattern = ""
    seen = set[str]()
    for piece in re.findall(r"%.|%|\s+|[^%\s]", time_format, re.DOTALL):
        sign = piece[1:]
        if piece[0] != "%":
            pattern += r"\s+" if piece.isspace() else re.escape(piece)
        elif sign == "%":
            pattern += "%"
        elif sign in _IGNORED:
            pattern += _IGNORED[sign]
        elif sign in seen:
            raise ValueError(f"the time format {shown(time_format)} has the directive {piece} twice; use it once")
        elif sign not in _PARTS:
            raise ValueError(
                f"the time format {shown(time_format)} has the directive {piece}, which is not supported; the allowed "
                f"directives are {_DIRECTIVES}"
            )
        else:
            pattern += f"(?P<{sign}>{_PARTS[sign]})"
            seen.add(sign)
    return f"^{pattern}$"


def _directives(regex: str) -> set[str]:
    return set(re.findall(r"\(\?P<(\w)>", regex))


def _month_numbers(names: pa.Array) -> pa.Array:
    short = pc.utf8_slice_codeunits(pc.utf8_lower(names), 0, 3)
    return pc.add(pc.index_in(short, pa.array(_MONTHS)).cast(pa.int64()), 1)


def _hour_of_day(hour: pa.Array, half: pa.Array) -> pa.Array:
    inside = pc.and_(pc.greater(hour, 0), pc.less(hour, 13))
    late = pc.if_else(pc.equal(pc.utf8_lower(half), "pm"), 12, 0)
    return pc.if_else(inside, pc.add(pc.if_else(pc.equal(hour, 12), 0, hour), late), None)


def _join_padded(numbers: list[pa.Array], widths: list[int], sign: str) -> pa.Array:
    texts = [pc.utf8_lpad(n.cast(pa.string()), w, "0") for n, w in zip(numbers, widths, strict=True)]
    return pc.binary_join_element_wise(*texts, sign)
