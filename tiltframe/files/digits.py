"""Digits: whether the numbers that are read of a text file are the ones that it writes.

A type that is guessed must not lose anything: whole numbers beyond int64 would become the nearest doubles, and two
keys one; ``007`` and ``7``, ``1.10`` and ``1.1`` would be one number.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from aggr.kernels import compute as pc

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


def from_text(column: pa.Array, kind: pa.DataType, name: str, file: Path, exact: bool) -> pa.Array:
    """Read the numbers or truths of a column of text, in a type that was guessed.

    With ``exact`` each value must be written in one way only. Raises ``ValueError`` naming what would be lost, and
    how to say what it is.
    """
    try:
        values = column.cast(kind)
    except pa.ArrowInvalid:
        column = pc.utf8_trim_whitespace(column)
        column = pc.if_else(pc.is_in(column, pa.array(NO_NUMBER)), None, column)
        try:
            values = column.cast(kind)
        except pa.ArrowInvalid as error:
            said = str(error).splitlines()[0]
            raise ValueError(f"cannot read {file}: {said}, in the column {name!r}; {_way_out(name)}") from None
    if exact:
        _check_exact(pc.unique(column).drop_null(), kind, name, file)
    elif (most := largest(values)) is not None and most >= _EXACT:
        _check_large(pc.unique(column.filter(pc.greater_equal(pc.abs(values), _EXACT))), kind, name, file)
    return values


def _check_exact(texts: pa.Array, kind: pa.DataType, name: str, file: Path) -> None:
    """Refuse texts that are not the only ones for their values."""
    pattern = canonical(kind)
    if pattern is None:
        return
    lossy = texts.filter(pc.invert(pc.match_substring_regex(texts, pattern)))
    if not len(lossy) and pa.types.is_floating(kind):
        long = texts.filter(pc.greater(pc.utf8_length(texts), _MANY)).to_pylist()
        lossy = pa.array([text for text in long if _rounds(text, exact=True)], pa.string())
    if len(lossy):
        raise _lost(lossy[0].as_py(), kind, name, file)


def _check_large(texts: pa.Array, kind: pa.DataType, name: str, file: Path) -> None:
    """Refuse whole numbers that a double rounds, and numbers beyond the largest."""
    for text in texts.to_pylist():
        if text is not None and not re.fullmatch(_INFINITE, text) and _rounds(text, exact=False):
            raise _lost(text, kind, name, file)


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


def _lost(text: str, kind: pa.DataType, name: str, file: Path) -> ValueError:
    guessed = "float64" if kind == pa.float64() else str(kind)
    return ValueError(
        f"{file}: {text!r} in the column {name!r} would not be kept as it is written, if that is {guessed}; "
        f"say --text {name} to keep the text, or --type {name}={_number(text)}"
    )


def _number(text: str) -> str:
    """Name the type of a number."""
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        return "bool" if text.lower() in ("true", "false") else "float64"
    number = int(text)
    if -(2**63) <= number < 2**63:
        return "int64"
    return "uint64" if 0 <= number < 2**64 else "'decimal(38)'" if abs(number) < 10**38 else "float64"


def _way_out(name: str) -> str:
    return f"say what it is with --type {name}=TYPE, or --text {name}"


def check_floats(batch: pa.RecordBatch, declared: Sequence[str], file: Path, encoding: str) -> pa.RecordBatch:
    """Let a batch of JSON pass, unless doubles in it stand for whole numbers that they round."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        guessed = name not in declared and pa.types.is_floating(column.type)
        if guessed and (most := largest(column)) is not None and most >= _EXACT:
            _look_for_whole(file, name, encoding)
    return batch


def _look_for_whole(file: Path, name: str, encoding: str) -> None:
    """Search a file of JSON lines for whole numbers in a column that a double rounds."""
    number = re.compile(re.escape(json.dumps(name, ensure_ascii=False)) + r"\s*:\s*(-?[0-9]{16,})(?![0-9.eE])")
    with pa.input_stream(file, compression="detect") as stream:
        text = stream.read().decode(encoding)
    for found in number.finditer(text):
        if _rounds(found[1], exact=False):
            raise ValueError(
                f"{file}: {found[1]} in the column {name!r} would lose digits as float64; "
                f"say --type {name}={_number(found[1])}"
            )
