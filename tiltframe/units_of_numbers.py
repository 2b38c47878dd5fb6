"""Whole numbers in a time column: detect numbers that look like seconds or dates, although they would be read as Unix
milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.arrow import compute as pc

# the Unix seconds of the years 2001 to 2099
_SECONDS = range(1_000_000_000, 4_102_444_800)
# a time format of ISO 8601; texts in this format are therefore also read if no time format is declared
DAYS = "%Y%m%d"
_LAYOUTS = (DAYS, "%Y%m%d%H", "%Y%m%d%H%M", "%Y%m%d%H%M%S")
_FIRST_DAY = 19000101
_LAST_DAY = 20991231
_LONGEST_MONTHS = np.array([31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])


def refuse_other_units(numbers: pa.Array, name: str, option_text: Callable[[str], str] | None = None) -> None:
    """Raise ``ValueError`` if all numbers look like Unix seconds, or like dates without dashes.

    Numbers look like dates if each consists of the digits of a valid date, such as 20240501, or of a date and a time of
    day. Nulls are skipped. ``name`` is the name of the column in the message. ``option_text`` is a function that
    returns the text of the option which declares a unit or a time format; the message advises this option.
    """
    span = pc.min_max(numbers).as_py()
    if span["min"] is None:
        return
    layout = _layout_of(numbers, span["min"], span["max"])
    if layout is not None:
        likely_meaning = "dates without dashes"
        declaration = layout
    elif span["min"] in _SECONDS and span["max"] in _SECONDS:
        likely_meaning = "Unix seconds of the years 2001 to 2099"
        declaration = "seconds"
    else:
        return
    option_text = _in_python(name) if option_text is None else option_text
    year = np.datetime64(span["min"], "ms").astype("datetime64[Y]")
    raise ValueError(
        f"the whole numbers in the time column {name!r}, such as {span['min']}, would be milliseconds of "
        f"{year}, but look like {likely_meaning}; declare the meaning with {option_text(declaration)}, or "
        f"{option_text('milliseconds')}"
    )


def _layout_of(numbers: pa.Array, lowest: int, greatest: int) -> str | None:
    """Return the time format in which all numbers are valid dates, such as ``%Y%m%d%H``, or None if no format fits.
    ``lowest`` and ``greatest`` are the smallest and the largest number.
    """
    for pairs_of_digits, layout in enumerate(_LAYOUTS):
        clock_digits = 100**pairs_of_digits
        if lowest // clock_digits >= _FIRST_DAY and greatest // clock_digits <= _LAST_DAY:
            values = pc.drop_null(numbers).cast(pa.int64()).to_numpy()
            return layout if _are_dates(values, clock_digits) else None
    return None


def _are_dates(numbers: NDArray[np.int64], clock_digits: int) -> bool:
    """Return whether each number consists of the digits of a valid date (year, month, day), followed by those of a
    valid time of day. ``clock_digits`` is 10 to the power of the number of digits of the time of day, or 1 without a
    time of day.
    """
    days = numbers // clock_digits
    years = days // 10_000
    months = days // 100 % 100
    is_day = (months >= 1) & (months <= 12)
    is_leap_day = (days % 10_000 == 229) & (years % 4 == 0) & (years != 1900)
    longest = _LONGEST_MONTHS[np.where(is_day, months, 1) - 1]
    is_day &= (days % 100 >= 1) & ((days % 100 <= longest) | is_leap_day)
    # The time of day is read in pairs of digits: the hours, which must be below 24, and then minutes and seconds, which
    # must be below 60.
    limit = 24
    while clock_digits > 1:
        clock_digits //= 100
        is_day &= numbers // clock_digits % 100 < limit
        limit = 60
    return bool(is_day.all())


def _in_python(name: str) -> Callable[[str], str]:
    def option_text(kind: str) -> str:
        kind = "text" if kind == DAYS else kind
        if kind.startswith("%"):
            return f"ReadOptions(time_format={kind!r})"
        return f"ReadOptions(types={{{name!r}: {kind!r}}})"

    return option_text
