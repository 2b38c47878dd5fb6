"""Digits: check whether reading a column of a text file with its inferred type would lose or change digits.

Two different whole numbers beyond int64 may be the same double. The texts ``007`` and ``7`` are the same number, and so
are ``1.10`` and ``1.1``. If keys were read as numbers, the groups of such texts would be merged.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection
from decimal import Decimal

import pyarrow as pa

from aggr.arguments import shortened, shown
from aggr.arrow import compute as pc
from aggr.arrow.normalize import one_array
from aggr.sql.number_columns import Use
from tiltframe.files.read_options import ReadOptions

# texts that are read as null in columns of numbers, times or booleans, in addition to those of `ReadOptions.null`
NO_NUMBER = ["", "NA", "N/A", "null", "NULL"]

_INTEGER = r"[+-]?[0-9]+"
_FINITE = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?"
_DECIMAL_DIGITS = 38
# a decimal number with at most this number of digits has the same digits after its conversion to a double and back
_SAFE_DIGITS = 15
_FIRST_INEXACT = 2.0**53
_INFINITE = r"(?i)\s*[+-]?inf(inity)?\s*"


def canonical_pattern(kind: pa.DataType) -> str | None:
    """Return a regular expression for the canonical texts of values of the type ``kind``. For integers, it matches
    ``7``, but not ``007``. Return None if the type has no such pattern.
    """
    if pa.types.is_integer(kind):
        return r"^(0|-?[1-9][0-9]*)$"
    if pa.types.is_floating(kind):
        return r"^(0|-?[1-9][0-9]*|-?(0|[1-9][0-9]*)\.[0-9]*[1-9]|-?[1-9](\.[0-9]*[1-9])?e[+-]?[0-9]+|(?i:nan|-?inf))$"
    return r"(?i)^(true|false)$" if pa.types.is_boolean(kind) else None


def parse_texts(column: pa.Array, kind: pa.DataType, reading: ReadOptions) -> tuple[pa.Array, pa.Array]:
    """Convert a text column to the type ``kind``. Return two arrays: the values, and their texts with a decimal point
    and without separators of thousands, as Arrow reads them.

    Raise ``pa.ArrowInvalid`` if a text is not a value of the type.
    """
    column = plain_numbers(column, reading) if reading.has_number_notation and not pa.types.is_boolean(kind) else column
    null_texts = [*NO_NUMBER, *reading.null]
    try:
        if not reading.null:
            return column.cast(kind), column
    except pa.ArrowInvalid:
        column = pc.utf8_trim_whitespace(column)
    column = pc.if_else(pc.is_in(column, pa.array(null_texts)), None, column)
    return column.cast(kind), column


def plain_numbers(column: pa.Array, reading: ReadOptions) -> pa.Array:
    """Return texts of numbers as Arrow reads them: with a decimal point, and without separators of thousands. If the
    options declare a decimal comma, the point in a text such as ``1.5`` is replaced by another character, so that Arrow
    rejects the text.
    """
    point = re.escape(reading.point)
    separator = "" if reading.thousands is None else re.escape(reading.thousands)
    grouped = rf"[0-9]{{1,3}}({separator}[0-9]{{3}})+|" if separator else ""
    number = rf"(?i)^\s*[+-]?({grouped}[0-9]*)({point}[0-9]*)?(e[+-]?[0-9]+)?\s*$"
    plain = pc.replace_substring(column, reading.thousands, "") if reading.thousands is not None else column
    plain = pc.replace_substring(plain, reading.point, ".")
    foreign = pc.replace_substring(column, ".", "\N{FULLWIDTH FULL STOP}") if reading.decimal_comma else column
    return pc.if_else(pc.match_substring_regex(column, number), plain, foreign)


def check_digits(
    values: pa.Array, texts: pa.Array, uses: Collection[Use], digits_message: Callable[[str], str]
) -> None:
    """Raise ``ValueError`` if a whole number in ``texts`` was rounded to a double in ``values``. Nothing is checked if
    ``values`` does not have a floating-point type.

    ``uses`` contains `Use.ORDER` if functions compare the numbers. In this case, the error is also raised for rounded
    fractions.

    ``digits_message`` is a function that returns the message for the text of the rounded number.
    """
    if not pa.types.is_floating(values.type):
        return
    if (rounded_integer := first_rounded_whole(values, texts)) is not None:
        raise ValueError(digits_message(rounded_integer))
    if Use.ORDER in uses and (rounded := first_rounded(texts, values)) is not None:
        raise ValueError(digits_message(rounded))


def first_rounded_whole(values: pa.Array, texts: pa.Array) -> str | None:
    """Return the text of the first whole number that differs from its double in ``values``, or that exceeds the largest
    double. Return None if there is no such number.
    """
    if (highest := largest_magnitude(values)) is not None and highest >= _FIRST_INEXACT:
        large = texts.filter(pc.greater_equal(pc.abs(values), _FIRST_INEXACT))
        for text in pc.unique(large).to_pylist():
            if text is not None and not re.fullmatch(_INFINITE, text) and _is_rounded(text, exact=False):
                return str(text)
    return None


def first_rounded(texts: pa.Array, values: pa.Array) -> str | None:
    """Return the first text whose number cannot be recovered from its double. The number recovered from a double is the
    shortest decimal number that is rounded to this double. Return None if there is no such text.
    """
    long = pc.fill_null(pc.greater(pc.utf8_length(texts), _SAFE_DIGITS + 1), False)
    if not pc.any(long).as_py():
        return None
    texts = texts.filter(long)
    values = values.filter(long)
    changed_texts = texts.filter(pc.not_equal(values.cast(pa.string()), texts))
    for text in pc.unique(changed_texts).to_pylist():
        if Decimal(text) != Decimal(repr(float(text))):
            return str(text)
    return None


def first_noncanonical(texts: pa.Array, kind: pa.DataType) -> str | None:
    """Return the first text that differs from the canonical text of its value in the type ``kind``, or None if there is
    no such text.

    >>> first_noncanonical(pa.array(["7", None, "007"]), pa.int64())
    '007'
    >>> first_noncanonical(pa.array(["0.5"]), pa.float64())
    """
    pattern = canonical_pattern(kind)
    if pattern is None:
        return None
    lossy = texts.filter(pc.invert(pc.match_substring_regex(texts, pattern)))
    if len(lossy):
        return str(lossy[0].as_py())
    if pa.types.is_floating(kind):
        doubtful = pc.or_(pc.greater(pc.utf8_length(texts), _SAFE_DIGITS), pc.match_substring(texts, "e"))
        for text in pc.unique(texts.filter(doubtful)).to_pylist():
            if text is not None and _is_rounded(text, exact=True):
                return str(text)
    return None


def largest_magnitude(values: pa.Array) -> float | None:
    """Return the largest absolute value. Ignore NaN and null. Return None if ``values`` has nothing else."""
    highest: float | None = pc.max(pc.abs(values.filter(pc.invert(pc.is_nan(values))))).as_py()
    return highest


def _is_rounded(text: str, exact: bool) -> bool:
    """Return whether the number in ``text`` is beyond the range of doubles, or is a whole number that a double rounds.
    With ``exact``, also return True for a fraction that is not the shortest decimal text of its double.
    """
    if math.isinf(float(text)):
        return True
    if re.fullmatch(r"[+-]?[0-9]+", text):
        return int(float(text)) != int(text)
    return exact and _plain_exponent(text.lower()) != _plain_exponent(repr(float(text)))


def _plain_exponent(number: str) -> str:
    """Return the text of a number with the shortest form of its exponent: 1e100 for 1e+100, and 1e-7 for 1e-07."""
    return re.sub(r"e([+-]?)0*", lambda sign: "e-" if sign[1] == "-" else "e", number)


def digits_message(text: str, kind: pa.DataType, where: str, reading: ReadOptions, name: str, exact: str | None) -> str:
    """Return the error message for a text that would change if it were read as the inferred type ``kind``.

    ``where`` is the name of the file, and ``name`` is the name of the column. ``exact`` is the name of a type that
    represents all values of the column exactly, or None.
    """
    guessed = "float64" if kind == pa.float64() else str(kind)
    return (
        f"{where}: {shown(text)} in the column {name!r} would be changed by the inferred type "
        f"{guessed}; use {reading.type_option_text(name, 'text')} to keep the text, or "
        f"{reading.type_option_text(name, exact or 'float64')}"
    )


def check_floats(batch: pa.RecordBatch | pa.Table, source: str, text: Callable[[], str], reading: ReadOptions) -> None:
    """Raise ``ValueError`` if a whole number in JSON was rounded to a double. Numbers inside structs and lists are
    checked as well. If a column has only whole numbers, every number beyond int64 counts as rounded. ``text`` returns
    the JSON text of the rows, and ``source`` is the name of the file in messages.
    """
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        _check_doubles(one_array(column), name, source=source, text=text, reading=reading)


def _check_doubles(column: pa.Array, name: str, source: str, text: Callable[[], str], reading: ReadOptions) -> None:
    """Check one column for `check_floats`. ``name`` is the name of the column, or the path of a field such as
    ``http.status``. A column with a declared type is not checked.
    """
    if name in reading.declared:
        return
    if pa.types.is_struct(column.type):
        for field in column.type:
            inner = pc.struct_field(column, [field.name])
            _check_doubles(inner, f"{name}.{field.name}", source=source, text=text, reading=reading)
    elif pa.types.is_list(column.type):
        _check_doubles(pc.list_flatten(column), name, source=source, text=text, reading=reading)
    elif (
        pa.types.is_floating(column.type)
        and (highest := largest_magnitude(column)) is not None
        and highest >= _FIRST_INEXACT
    ):
        _check_whole_numbers(name, source, text(), reading)


def _check_whole_numbers(name: str, source: str, text: str, reading: ReadOptions) -> None:
    """Search a JSON text for the values of the column or field ``name``, and raise ``ValueError`` for the first whole
    number that a double rounds.
    """
    last = re.escape(json.dumps(name.rpartition(".")[2], ensure_ascii=False))
    numbers = [
        number
        for value in re.finditer(last + r"\s*:\s*(\[[^\]{]*|-?[0-9][0-9.eE+-]*)", text)
        for number in re.findall(r"(?<![\w.+-])-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?", value[1])
    ]
    are_whole = all(re.fullmatch(_INTEGER, number) for number in numbers)
    for number in numbers:
        beyond = are_whole and not -(2**63) <= int(number) < 2**63
        if re.fullmatch(_INTEGER, number) and (beyond or _is_rounded(number, exact=False)):
            kind = exact_type(numbers) or "float64"
            raise ValueError(
                f"{source}: {shortened(number)} in the column {name!r} would lose digits as "
                f"float64; use {reading.type_option_text(name, kind)}"
            )


def exact_type(numbers: Collection[str]) -> str | None:
    """Return the name of the type that represents all numbers exactly. Return None if a text is not a number, or if the
    type would need more than 38 digits.

    >>> exact_type(["1", "-2"]), exact_type(["9223372036854775808"]), exact_type(["0.25", "-3"]), exact_type(["9" * 40])
    ('int64', 'uint64', 'decimal(3, 2)', None)
    """
    values = [Decimal(number) for number in numbers if re.fullmatch(_FINITE, number.strip())]
    if len(values) < len(numbers):
        return None
    fraction = max((max(-int(value.as_tuple().exponent), 0) for value in values), default=0)
    low = min(values, default=Decimal(0))
    high = max(values, default=Decimal(0))
    if not fraction:
        if low >= -(2**63) and high < 2**63:
            return "int64"
        if low >= 0 and high < 2**64:
            return "uint64"
    digits = max(len(str(int(max(abs(low), abs(high))))) + fraction, 1)
    return f"decimal({digits}, {fraction})" if digits <= _DECIMAL_DIGITS else None
