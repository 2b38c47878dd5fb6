"""Numbers that are written as text: decide which columns are read as text, and which as text and as numbers.

A column is read as text if a measure or key returns its values, and if the values would change as numbers: ``007``
would become ``7``, and ``1.10`` would become ``1.1``. If functions also compute with such a column, its numbers are an
additional column (`aggr.sql.number_columns`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress

import pyarrow as pa

from aggr.arguments import shown
from aggr.arrow.normalize import is_number, normalized_type
from aggr.sql.inputs import quoted
from aggr.sql.number_columns import Use, number_column
from aggr.tables.column_uses import ColumnUses
from tiltframe.files.digits import exact_type, first_noncanonical, first_rounded, first_rounded_whole, parse_texts
from tiltframe.files.read_options import ReadOptions

_NUMBERS = (pa.int64(), pa.float64())
Sample = Mapping[str, list[pa.Array]]  # column → its texts, as one array per file


def is_number_or_boolean(kind: pa.DataType) -> bool:
    """Return whether ``kind`` is a type of numbers or booleans. For a text file, such an inferred type is only a guess,
    because different texts, such as ``007`` and ``7``, may have the same value.
    """
    return is_number(kind) or bool(pa.types.is_boolean(kind))


def stays_text(texts: Iterable[pa.Array], kind: pa.DataType, uses: frozenset[Use], reading: ReadOptions) -> bool:
    """Return whether a column is read as text although the type ``kind`` was inferred for it. This is the case if
    functions use the texts of the column, or if functions return the values of the column and the type ``kind`` would
    change a value. ``texts`` has the first texts of the column.
    """
    if Use.TEXT in uses:
        return True
    return Use.KEEP in uses and any(first_changed_text(part, kind, reading) is not None for part in texts)


def first_changed_text(texts: pa.Array, kind: pa.DataType, reading: ReadOptions) -> str | None:
    """Return the first text that differs from the canonical text of its value in the type ``kind``, such as ``007`` for
    an integer. Return None if there is no such text.
    """
    return first_noncanonical(parse_texts(texts, kind, reading)[1], kind)


def number_type_of(texts: Iterable[pa.Array], reading: ReadOptions, exactly: bool) -> pa.DataType | None:
    """Return the type in which all of ``texts`` can be read as numbers: int64, float64, uint64 or a decimal. Return
    None if a text is not a number, or if all texts are null.

    float64 is returned only if it represents all whole numbers exactly. With ``exactly``, it must also represent all
    fractions exactly. Otherwise the type is uint64 or a decimal. If the numbers need more than 38 digits, return None.
    """
    parts = list(texts)
    for kind in _NUMBERS:
        with suppress(pa.ArrowInvalid):
            read = [parse_texts(part, kind, reading) for part in parts]
            if sum(len(values) - values.null_count for values, _ in read) == 0:
                return None
            if pa.types.is_floating(kind) and any(_is_rounded(values, texts, exactly) for values, texts in read):
                exact = exact_type({text for _, texts in read for text in texts.to_pylist() if text is not None})
                return None if exact is None else ReadOptions({"x": exact}).declared["x"]
            return kind
    return None


def _is_rounded(values: pa.Array, texts: pa.Array, exactly: bool) -> bool:
    return first_rounded_whole(values, texts) is not None or (exactly and first_rounded(texts, values) is not None)


def needs_numbers(uses: frozenset[Use], is_declared: bool) -> bool:
    """Return whether a function reads the numbers of a text column. This is the case if a function computes with the
    numbers, or if a function compares values and the type of the column was not declared (``is_declared`` is false).
    """
    return Use.NUMBER in uses or (Use.ORDER in uses and not is_declared)


def find_number_types(
    schema: pa.Schema, texts: Callable[[str], Iterable[pa.Array]], uses: ColumnUses, reading: ReadOptions
) -> dict[str, pa.DataType]:
    """Return the text columns that functions read as numbers, as a dict from columns to types of numbers. Columns with
    texts that are not numbers are left out.

    ``texts`` is a function that returns the first texts of a column. Raise ``ValueError`` for the same reasons as
    `check_shared_states`.
    """
    number_types = {}
    names = tuple(name for name in schema.names if schema.names.count(name) == 1)
    for name, column_uses in uses.among(names).items():
        kind = schema.field(name).type
        is_text = not pa.types.is_null(kind) and pa.types.is_string(normalized_type(kind))
        if not is_text or not needs_numbers(column_uses, name in reading.declared):
            continue
        if number_column(name) in names:
            continue
        numbers = number_type_of(texts(name), reading, exactly=Use.ORDER in column_uses)
        if numbers is not None:
            number_types[name] = numbers
    check_shared_states(uses, number_types, reading)
    return number_types


def with_number_columns(schema: pa.Schema, numbers: Mapping[str, pa.DataType]) -> pa.Schema:
    """Return a schema with an additional column of numbers for each text column in ``numbers``, which maps the names of
    text columns to types of numbers.
    """
    added = [pa.field(number_column(name), kind) for name, kind in numbers.items()]
    return pa.schema([*schema, *added], schema.metadata)


def number_arrays(batch: pa.RecordBatch, schema: pa.Schema, reading: ReadOptions) -> Iterator[tuple[str, pa.Array]]:
    """Yield the names and values of the columns of numbers that ``schema`` has and ``batch`` lacks. They are read from
    the text columns of the batch.

    Raise ``ValueError`` for the first text that is not a number.
    """
    for name in batch.schema.names:
        numbers = number_column(name)
        if numbers in schema.names:
            yield numbers, read_numbers(batch.column(name), schema.field(numbers).type, name, reading)


def read_numbers(texts: pa.Array, kind: pa.DataType, name: str, reading: ReadOptions) -> pa.Array:
    """Return the numbers in ``texts`` in the type ``kind``. ``name`` is the name of the column. Raise ``ValueError``
    for the first text that is not a number, or is a whole number that float64 rounds.
    """
    try:
        values, written = parse_texts(texts, kind, reading)
        rounded = first_rounded_whole(values, written) if pa.types.is_floating(kind) else None
        if rounded is not None:
            raise ValueError(
                f"{rounded!r} in the column {name!r} would lose digits as float64; convert the column to decimals"
            )
        return values.cast(kind)
    except pa.ArrowInvalid:
        wrong = next(text for text in texts.to_pylist() if text is not None and not _is_number(text, kind, reading))
        raise ValueError(
            f"{shown(wrong)} in the column {name!r} is not a number of type {kind}, which a measure or a condition "
            "needs; correct it, exclude the row by a condition, or compute the number with "
            f"TRY_CAST({quoted(name)} AS DOUBLE)"
        ) from None


def check_shared_states(uses: ColumnUses, names: Iterable[str], reading: ReadOptions) -> None:
    """Raise ``ValueError`` if two measures share a state, but one of them reads a column in ``names`` as text and the
    other reads it as numbers.
    """
    for name in names:
        if measures := uses.conflict(name):
            measure_texts = " and ".join(repr(measure) for measure in measures)
            raise ValueError(
                f"{measure_texts} share a state, but one reads the texts of {name!r} and the other its numbers; "
                f"declare the type of the column with {reading.type_option_text(name, 'float64')} or "
                f"{reading.type_option_text(name, 'text')}"
            )


def _is_number(text: str, kind: pa.DataType, reading: ReadOptions) -> bool:
    try:
        parse_texts(pa.array([text]), kind, reading)
    except pa.ArrowInvalid:
        return False
    return True
