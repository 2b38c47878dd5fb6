"""Digits: whether the numbers that are read of a text file are the ones that it writes.

A type that is guessed must not lose anything: whole numbers beyond int64 would become the nearest doubles, and two
keys one; ``007`` and ``7``, ``1.10`` and ``1.1`` would be one number.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pyarrow as pa

from aggr.arguments import shortened, shown
from aggr.arrow import compute as pc
from tiltframe.files.read_options import ReadOptions

NO_NUMBER = ["", "NA", "N/A", "null", "NULL"]  # read as null where a number, a time or a truth is expected

_MANY = 15  # so many digits, and fewer, are exact in a double
_EXACT = 2.0**53
_INFINITE = r"(?i)\s*[+-]?inf(inity)?\s*"


def canonical(kind: pa.DataType) -> str | None:
    """Return the pattern of the one text that stands for each value of a type; None where any text may."""
    if pa.types.is_integer(kind):
        return r"^(0|-?[1-9][0-9]*)$"
    if pa.types.is_floating(kind):
        return r"(?i)^(0|-?[1-9][0-9]*|-?(0|[1-9][0-9]*)\.[0-9]*[1-9]|nan|-?inf)$"
    return r"(?i)^(true|false)$" if pa.types.is_boolean(kind) else None


def from_text(column: pa.Array, kind: pa.DataType, reading: ReadOptions) -> tuple[pa.Array, pa.Array]:
    """Read the numbers or truths of a column of text, and give the texts as well, numbers as Arrow writes them.

    Raises ``pa.ArrowInvalid`` where a text is none.
    """
    column = plain_numbers(column, reading) if reading.own_numbers and not pa.types.is_boolean(kind) else column
    nothing = [*NO_NUMBER, *reading.null]
    try:
        if not reading.null:
            return column.cast(kind), column
    except pa.ArrowInvalid:
        column = pc.utf8_trim_whitespace(column)
    column = pc.if_else(pc.is_in(column, pa.array(nothing)), None, column)
    return column.cast(kind), column


def plain_numbers(column: pa.Array, reading: ReadOptions) -> pa.Array:
    """Write numbers as Arrow reads them, without groups of thousands, with a point; other texts are no numbers then."""
    point, apart = re.escape(reading.point), "" if reading.thousands is None else re.escape(reading.thousands)
    grouped = rf"[0-9]{{1,3}}({apart}[0-9]{{3}})+|" if apart else ""
    number = rf"(?i)^\s*[+-]?({grouped}[0-9]*)({point}[0-9]*)?(e[+-]?[0-9]+)?\s*$"
    plain = pc.replace_substring(column, reading.thousands, "") if reading.thousands is not None else column
    plain = pc.replace_substring(plain, reading.point, ".")
    foreign = pc.replace_substring(column, ".", "\N{FULLWIDTH FULL STOP}") if reading.decimal_comma else column
    return pc.if_else(pc.match_substring_regex(column, number), plain, foreign)


def check_digits(values: pa.Array, texts: pa.Array, name: str, file: Path, exact: bool, reading: ReadOptions) -> None:
    """Raise ``ValueError`` naming what would be lost in a type that was guessed, and how to say what it is.

    With ``exact`` each value must be written in one way only.
    """
    if exact:
        _check_exact(pc.unique(texts).drop_null(), values.type, name, file, reading)
    elif (most := largest(values)) is not None and most >= _EXACT:
        large = texts.filter(pc.greater_equal(pc.abs(values), _EXACT))
        for text in pc.unique(large).to_pylist():  # whole numbers that a double rounds, and those beyond the largest
            if text is not None and not re.fullmatch(_INFINITE, text) and _rounds(text, exact=False):
                raise _lost(text, values.type, name, file, reading)


def _check_exact(texts: pa.Array, kind: pa.DataType, name: str, file: Path, reading: ReadOptions) -> None:
    """Refuse texts that are not the only ones for their values."""
    pattern = canonical(kind)
    if pattern is None:
        return
    lossy = texts.filter(pc.invert(pc.match_substring_regex(texts, pattern)))
    if not len(lossy) and pa.types.is_floating(kind):
        long = texts.filter(pc.greater(pc.utf8_length(texts), _MANY)).to_pylist()
        lossy = pa.array([text for text in long if _rounds(text, exact=True)], pa.string())
    if len(lossy):
        raise _lost(lossy[0].as_py(), kind, name, file, reading)


def largest(values: pa.Array) -> float | None:
    """Return the largest magnitude that is not NaN; None without any."""
    most: float | None = pc.max(pc.abs(values.filter(pc.invert(pc.is_nan(values))))).as_py()
    return most


def _rounds(text: str, exact: bool) -> bool:
    """Say whether a double is beyond its range, or rounds a whole number or, with ``exact``, any number."""
    if math.isinf(float(text)):
        return True
    if re.fullmatch(r"[+-]?[0-9]+", text):
        return int(float(text)) != int(text)
    return exact and text.lower() != repr(float(text))


def _lost(text: str, kind: pa.DataType, name: str, file: Path, reading: ReadOptions) -> ValueError:
    guessed = "float64" if kind == pa.float64() else str(kind)
    return ValueError(
        f"{file}: {shown(text)} in the column {name!r} would not be kept as it is written, if that is {guessed}; "
        f"say {reading.say(name, 'text')} to keep the text, or {reading.say(name, _number(text))}"
    )


def _number(text: str) -> str:
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        return "bool" if text.lower() in ("true", "false") else "float64"
    number = int(text)
    if -(2**63) <= number < 2**63:
        return "int64"
    return "uint64" if 0 <= number < 2**64 else "decimal(38)" if abs(number) < 10**38 else "float64"


def check_floats(batch: pa.RecordBatch, file: Path, reading: ReadOptions) -> pa.RecordBatch:
    """Let a batch of JSON pass, unless doubles in it, or in its structs, stand for whole numbers that they round."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        _check_doubles(column, name, file, reading)
    return batch


def _check_doubles(column: pa.Array, name: str, file: Path, reading: ReadOptions) -> None:
    if name in reading.declared:
        return
    if pa.types.is_struct(column.type):
        for field in column.type:
            _check_doubles(pc.struct_field(column, [field.name]), f"{name}.{field.name}", file, reading)
    elif pa.types.is_floating(column.type) and (most := largest(column)) is not None and most >= _EXACT:
        _look_for_whole(file, name, reading)


def _look_for_whole(file: Path, name: str, reading: ReadOptions) -> None:
    """Search a file of JSON lines for whole numbers in a column that a double rounds."""
    last = name.rpartition(".")[2]  # of a field of a struct
    number = re.compile(re.escape(json.dumps(last, ensure_ascii=False)) + r"\s*:\s*(-?[0-9]{16,})(?![0-9.eE])")
    with pa.input_stream(file, compression="detect") as stream:
        text = stream.read().decode(reading.encoding)
    for found in number.finditer(text):
        if _rounds(found[1], exact=False):
            raise ValueError(
                f"{file}: {shortened(found[1])} in the column {name!r} would lose digits as float64; "
                f"say {reading.say(name, _number(found[1]))}"
            )
