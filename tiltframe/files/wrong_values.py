"""Wrong values: the error for the first value in a text file that does not fit its column's type. Its message names the
line of the value, and the option with which the file can be read.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from aggr.arguments import shown
from aggr.arrow import compute as pc
from aggr.arrow.normalize import one_array
from aggr.sql.inputs import quoted
from tiltframe.files.digits import parse_texts
from tiltframe.files.formats import column_texts, column_type, delimiter_of, kind_of, open_csv, open_text
from tiltframe.files.read_options import ReadOptions
from tiltframe.parameter_names import by_caller

_MAX_SIGNS = 4
_USUAL_FRACTION = 0.5
_HEADER_BYTES = 1 << 16
_NOTHING = re.compile(r"(?i)[-–—.?*_]*|n\.?/?a\.?|none|nil|unknown|missing|undefined|keine?|#n/a")
_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+")
_GROUPED = re.compile(r"[+-]?[0-9]{1,3}(?:(?P<sign>[., '_])[0-9]{3})+(?P<fraction>[.,][0-9]+)?")
_KINDS = {"number": pa.float64(), "string": pa.string(), "boolean": pa.bool_(), "object": pa.struct([])}
_KINDS |= {"array": pa.list_(pa.null())}
_NAMES = {"double": "float64", "date32[day]": "date", "timestamp[us]": "timestamp", "string": "text"}
_NAMES |= {"struct<>": "object", "list<item: null>": "array"}


def find_wrong_value(
    file: Path, types: Mapping[str, pa.DataType], reading: ReadOptions, keys: Collection[str] = ()
) -> ValueError | None:
    """Return the error for the first value of a text file that does not fit the type of its column, or None if all
    values fit. ``types`` maps columns to types. For columns of CSV in ``keys``, the message advises to read the column
    as text.
    """
    if kind_of(file) == "json":
        return _find_in_json(file, types, reading)
    kinds = {name: kind for name, kind in types.items() if not pa.types.is_string(kind)}
    read = {name: partial(parse_texts, kind=kind, reading=reading) for name, kind in kinds.items()}
    unread = first_unreadable(file, read, reading)
    if unread is None:
        return None
    line, name, text = unread
    exact = _whole_type(file, name, kinds[name], reading)
    if exact is not None:
        advice = f"use {reading.type_option_text(name, exact)}"
    elif name in keys:
        advice = f"use {reading.type_option_text(name, 'text')}"
    else:
        advice = _advice(str(text), name, reading, partial(_number_fraction, file, name, reading))
    return ValueError(
        f"{file}: {shown(text)} in line {line:,}, in the column {name!r}, is not of type {_type_name(types[name])}; "
        f"{advice}"
    )


def _whole_type(file: Path, name: str, kind: pa.DataType, reading: ReadOptions) -> str | None:
    """Return the name of the type that represents all numbers of the column ``name`` exactly. Return None if ``kind``,
    the type of the column, is not an integer type.
    """
    return column_type(file, name, reading) if pa.types.is_integer(kind) else None


def _number_fraction(file: Path, name: str, reading: ReadOptions, removed: Sequence[str]) -> float:
    """Remove the characters ``removed`` from the texts of a column. Return the fraction of the texts that are numbers
    after this, from 0 to 1.
    """
    texts = pa.chunked_array(column_texts(file, name, reading), pa.string())
    for sign in removed:
        texts = pc.replace_substring(texts, sign, "")
    numbers = pc.match_substring_regex(texts, r"^\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*$")
    return float(pc.mean(numbers.cast(pa.int8())).as_py() or 0)


def explain_parse_error(file: Path, error: Exception, reading: ReadOptions) -> ValueError | None:
    """Return an error that explains ``error``, with which Arrow has rejected a text file, or None if the cause is not
    known. For JSON, the message names the first line that is wrong. For CSV, the message names the character that seems
    to separate the fields, if this is not the expected delimiter.
    """
    if assumed := delimiter_of(file, reading):
        with open_text(file) as stream:
            header = stream.read(_HEADER_BYTES).partition(b"\n")[0].decode(reading.encoding)
        other = next((sign for sign in ";\t|" if sign in header), None)
        if other is None or assumed in header:
            return None
        option = reading.option_text("delimiter", other)
        return ValueError(
            f"cannot read {file}: fields seem to be separated by {other!r}, not by {assumed!r}; use {option}"
        )
    if kind_of(file) != "json":
        return None
    change = re.search(r"Column\(/(.+?)\) changed from (\w+) to", str(error))
    kinds = {change[1]: _KINDS[change[2]]} if change and change[2] in _KINDS else {}
    return _find_in_json(file, kinds, reading)


def first_unreadable(
    file: Path, read: Mapping[str, Callable[[pa.Array], object]], reading: ReadOptions
) -> tuple[int, str, str | None] | None:
    """Find the first value of a CSV file that cannot be read. Return its line, its column and its text, or None if all
    values can be read. ``read`` maps each column to a function, which receives an array of texts and raises an error if
    a text cannot be read.
    """
    row = 0
    texts = pa.schema([(name, pa.string()) for name in read])
    with open_text(file) as stream:
        for batch in open_csv(stream, file, reading, texts):
            places = {name: _first_failure(one_array(batch.column(name)), read[name]) for name in read}
            present = {name: place for name, place in places.items() if place is not None}
            if present:
                name = min(present, key=lambda column: present[column])
                return _line_of(file, row + present[name], reading), name, batch.column(name)[present[name]].as_py()
            row += batch.num_rows
    return None


def find_non_number(file: Path, name: str, reading: ReadOptions) -> ValueError | None:
    """Find the first value that is not a number in a column of a CSV file, and return an error that names it. Return
    None if all values are numbers, if the type of the column is declared, or if the file is not CSV.
    """
    if kind_of(file) not in ("csv", "tsv") or name in reading.declared:
        return None
    return find_wrong_value(file, {name: pa.float64()}, reading)


def _first_failure(column: pa.Array, read: Callable[[pa.Array], object]) -> int | None:
    """Return the index of the first value for which ``read`` raises an error, found by bisection. Return None if
    ``read`` does not raise an error.
    """

    def fails(values: pa.Array) -> bool:
        try:
            # The values are copied, because if_else of pyarrow 14 reads wrong texts from a part of an array.
            read(values.take(pa.array(range(len(values)))))
        except (pa.ArrowException, ValueError):
            return True
        return False

    if not fails(column):
        return None
    at = 0
    while len(column) > 1:
        half = len(column) // 2
        fails_in_first_half = fails(column[:half])
        at, column = (at, column[:half]) if fails_in_first_half else (at + half, column[half:])
    return at


def _line_of(file: Path, row: int, reading: ReadOptions) -> int:
    """Return the number of the line in which a row of a CSV file begins, counted from 1. ``row`` is the index of the
    row: 0 is the first one after the header. Empty lines are not rows.
    """
    with open_text(file) as stream:
        lines = io.TextIOWrapper(stream, reading.encoding, newline="")
        for _ in range(reading.skip_rows):
            next(lines)
        rows = csv.reader(lines, delimiter=str(delimiter_of(file, reading)))
        before = 0
        row_number = -1  # the header comes first and has the number -1; rows of values are numbered from 0
        for fields in rows:
            if fields:
                if row_number == row:
                    return reading.skip_rows + before + 1
                row_number += 1
            before = rows.line_num
    return before


def _type_name(kind: pa.DataType) -> str:
    return _NAMES.get(str(kind), str(kind))


def _advice(text: str, name: str, reading: ReadOptions, number_fraction: Callable[[Sequence[str]], float]) -> str:
    """Return advice on reading a column that contains ``text``, which is not a number: an option, or an expression to
    use instead of the column. ``number_fraction`` is a function that receives characters. It returns the fraction, from
    0 to 1, of the column's texts that are numbers after these characters are removed.
    """
    bare = text.strip()
    grouped = _GROUPED.fullmatch(bare)
    comma = [] if reading.decimal_comma else [reading.option_text("decimal_comma", True)]
    if reading.thousands is None and grouped and grouped["fraction"] and grouped["fraction"][0] != grouped["sign"]:
        thousands_option = reading.option_text("thousands", grouped["sign"])
        return f"use {' and '.join([thousands_option, *(comma if grouped['fraction'][0] == ',' else [])])}"
    if comma and reading.thousands != "," and _COMMA.fullmatch(bare):
        other_advice = f", or {reading.option_text('thousands', ',')}" if grouped else ""
        return f"use {comma[0]}{other_advice}"
    if reading.has_number_notation:  # SQL cannot read the other numbers of the column
        use = ""
        otherwise = "correct it, or leave out the row" + by_caller(" with --bad-rows skip", "")
    else:
        use = "use "
        expression = _number_of_text(bare, name, number_fraction)
        otherwise = f"{reading.type_option_text(name, 'text')} and {expression}"
    if bare and _NOTHING.fullmatch(bare):
        return f"if it means null, use {reading.option_text('null', bare)}; else {otherwise}"
    return use + otherwise


def _number_of_text(bare: str, name: str, number_fraction: Callable[[Sequence[str]], float]) -> str:
    """Return an expression that converts as many texts of the column ``name`` to numbers as possible. It is a part of
    the advice that `_advice` returns. ``bare`` is a value of the column that is not a number. ``number_fraction`` is
    the argument of `_advice`.
    """
    signs = list(dict.fromkeys(re.findall(r"[^0-9.+eE-]", bare)))
    plain_fraction = number_fraction(())
    column = quoted(name)
    # If at least half of the values are numbers, ``bare`` is an exception.
    is_rare = plain_fraction >= _USUAL_FRACTION
    if (
        not is_rare
        and re.search("[0-9]", bare)
        and 0 < len(signs) <= _MAX_SIGNS
        and number_fraction(signs) > plain_fraction
    ):
        text = column
        for sign in signs:
            quoted_sign = sign.replace("'", "''")
            text = f"replace({text}, '{quoted_sign}', '')"
        return f"CAST({text} AS DOUBLE) in place of {column}"
    cast = f"TRY_CAST({column} AS DOUBLE)"
    if plain_fraction == 0:
        return (
            f"use a function of text such as count: none of its values is a number, so {cast} would be null in every "
            "row"
        )
    return f"{cast}, which returns null for it"


def _find_in_json(file: Path, types: Mapping[str, pa.DataType], reading: ReadOptions) -> ValueError | None:
    """Return the error for the first row of a JSON file that is not an object, or that has a value of another type than
    in ``types``. Return None if there is no such row.
    """
    for line, row in _objects(file, reading):
        if not isinstance(row, dict):
            what = "is not a JSON object" if row is None else "is JSON, but not an object"
            return ValueError(f"cannot read {file}: line {line:,} {what}; correct this line, or leave it out")
        for name, kind in types.items():
            value = row.get(name)
            if value is not None and not _fits(value, kind):
                type_name = _type_name(kind)
                if reading.declared.get(name) == kind:
                    return ValueError(
                        f"{file}: {shown(value)} in line {line:,}, in the column {name!r}, is not {type_name}, the "
                        f"type declared by {reading.type_option_text(name, type_name)}; declare the type of the JSON "
                        "values, or quote texts and leave numbers without quotes in the file"
                    )
                return ValueError(
                    f"{file}: {shown(value)} in line {line:,}, of {name!r}, is not of type {type_name}, which "
                    "previous values have; a column of JSON has only one type; correct the value, or write null"
                )
    return None


def _objects(file: Path, reading: ReadOptions) -> Iterator[tuple[int, Any]]:
    """Yield the number of the first line and the value of each row of a JSON file. A row is a line in a file of JSON
    lines, or an element of an array. If the text of a row cannot be parsed, yield None as its value.
    """
    with open_text(file) as stream:
        text = stream.read().decode(reading.encoding).removeprefix("\ufeff")
    if not text.lstrip().startswith("["):
        for number, line in enumerate(text.split("\n"), 1):
            if line.strip():
                try:
                    yield number, json.loads(line)
                except ValueError:
                    yield number, None
        return
    at = text.index("[") + 1
    decoder = json.JSONDecoder()
    while start := re.compile(r"[\s,]*([^\s,\]])").match(text, at):
        line = text.count("\n", 0, start.start(1)) + 1
        try:
            row, at = decoder.raw_decode(text, start.start(1))
        except ValueError:
            yield line, None
            return
        yield line, row


def _fits(value: Any, kind: pa.DataType) -> bool:
    """Return whether a JSON value can be read as the type ``kind``."""
    if pa.types.is_boolean(kind):
        return isinstance(value, bool)
    if pa.types.is_integer(kind):
        return isinstance(value, int) and not isinstance(value, bool)
    if pa.types.is_floating(kind):
        return isinstance(value, int | float) and not isinstance(value, bool)
    if pa.types.is_struct(kind) or pa.types.is_list(kind):
        return isinstance(value, dict if pa.types.is_struct(kind) else list)
    return isinstance(value, str) or not pa.types.is_string(kind)
