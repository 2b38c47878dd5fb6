"""Numbers that are stored as text: which columns stay text, and which text columns get an additional column of numbers.

Type inference never changes a value. A column stays text if a measure or key returns its values and a number would
change them. As numbers, ``007`` and ``1.10`` would become ``7`` and ``1.1``. Functions that compute with such a column
read its numbers from the additional column (`aggr.sql.number_columns`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress

import pyarrow as pa

from aggr.arguments import shown
from aggr.arrow.normalize import is_number, normalized_type
from aggr.sql.number_columns import Use, number_column
from aggr.tables.column_uses import ColumnUses
from tiltframe.files.digits import exact_type, first_rounded, first_rounded_whole, first_unfaithful, from_text
from tiltframe.files.read_options import ReadOptions

_NUMBERS = (pa.int64(), pa.float64())
Sample = Mapping[str, list[pa.Array]]  # the texts of each column, one array per file


def is_guess(kind: pa.DataType) -> bool:
    """Return whether the type of a column of a text file is inferred and may lose the notation of values."""
    return is_number(kind) or bool(pa.types.is_boolean(kind))


def stays_text(texts: Iterable[pa.Array], kind: pa.DataType, uses: frozenset[Use], reading: ReadOptions) -> bool:
    """Return whether a column is read as text although numbers or booleans were inferred from its texts."""
    if Use.TEXT in uses:
        return True
    return Use.KEEP in uses and any(unfaithful(part, kind, reading) is not None for part in texts)


def unfaithful(texts: pa.Array, kind: pa.DataType, reading: ReadOptions) -> str | None:
    """Return the first text that differs from the text of its value, or None if all are equal."""
    return first_unfaithful(from_text(texts, kind, reading)[1], kind)


def numbers_of(texts: Iterable[pa.Array], reading: ReadOptions, exactly: bool) -> pa.DataType | None:
    """Return the type that represents all numbers in the texts, or None if a text is not a number or all are null.

    If a double would round whole numbers (with ``exactly``, also fractions), the type is uint64 or a decimal, or None
    if these have too few digits.
    """
    parts = list(texts)
    for kind in _NUMBERS:
        with suppress(pa.ArrowInvalid):
            read = [from_text(part, kind, reading) for part in parts]
            if sum(len(values) - values.null_count for values, _ in read) == 0:
                return None
            if pa.types.is_floating(kind) and any(_rounds(values, texts, exactly) for values, texts in read):
                exact = exact_type({text for _, texts in read for text in texts.to_pylist() if text is not None})
                return None if exact is None else ReadOptions({"x": exact}).declared["x"]
            return kind
    return None


def _rounds(values: pa.Array, texts: pa.Array, exactly: bool) -> bool:
    return first_rounded_whole(values, texts) is not None or (exactly and first_rounded(texts, values) is not None)


def needs_numbers(uses: frozenset[Use], is_declared: bool) -> bool:
    """Return whether a function reads the numbers of a text column. Text that a user declared is compared as text."""
    return Use.NUMBER in uses or (Use.ORDER in uses and not is_declared)


def find_numbers(
    schema: pa.Schema, texts: Callable[[str], Iterable[pa.Array]], uses: ColumnUses, reading: ReadOptions
) -> dict[str, pa.DataType]:
    """Return the number types of the text columns whose numbers functions read.

    ``texts`` returns the texts of a column, from which the type follows. Raise ``ValueError`` as `check_shared` does.
    """
    number_types = {}
    names = [name for name in schema.names if schema.names.count(name) == 1]
    names = [name for name in names if number_column(name) not in schema.names]
    for name, of_column in uses.among(names).items():
        kind = schema.field(name).type
        is_text = pa.types.is_string(normalized_type(kind)) if not pa.types.is_null(kind) else False
        if not is_text or not needs_numbers(of_column, name in reading.declared):
            continue
        numbers = numbers_of(texts(name), reading, exactly=Use.ORDER in of_column)
        if numbers is not None:
            number_types[name] = numbers
    check_shared(uses, number_types, reading)
    return number_types


def with_numbers(schema: pa.Schema, numbers: Mapping[str, pa.DataType]) -> pa.Schema:
    """Return a schema with columns of numbers in addition to the text columns."""
    added = [pa.field(number_column(name), kind) for name, kind in numbers.items()]
    return pa.schema([*schema, *added], schema.metadata)


def number_arrays(batch: pa.RecordBatch, schema: pa.Schema, reading: ReadOptions) -> Iterator[tuple[str, pa.Array]]:
    """Yield the columns of numbers that a schema has and a batch does not have.

    Raise ``ValueError`` for the first text that is not a number.
    """
    for name in batch.schema.names:
        numbers = number_column(name)
        if numbers in schema.names:
            yield numbers, read_numbers(batch.column(name), schema.field(numbers).type, name, reading)


def read_numbers(texts: pa.Array, kind: pa.DataType, name: str, reading: ReadOptions) -> pa.Array:
    """Return the numbers of a text column; raise ``ValueError`` for the first text that is not a number."""
    try:
        values, written = from_text(texts, kind, reading)
        rounded = first_rounded_whole(values, written) if pa.types.is_floating(kind) else None
        if rounded is not None:
            raise ValueError(f"{rounded!r} in the column {name!r} would lose digits as float64")
        return values.cast(kind)
    except pa.ArrowInvalid:
        wrong = next(text for text in texts.to_pylist() if text is not None and not _is_number(text, kind, reading))
        raise ValueError(
            f"{shown(wrong)} in the column {name!r} is not a number ({kind}), as a measure or a condition "
            f"needs; correct it, leave out the row with a condition, or compute the number with TRY_CAST({name} AS "
            "DOUBLE)"
        ) from None


def check_shared(uses: ColumnUses, names: Iterable[str], reading: ReadOptions) -> None:
    """Raise ``ValueError`` if two measures share a state, and one reads the texts of a column while the other reads its
    numbers.
    """
    for name in names:
        if measures := uses.conflict(name):
            both = " and ".join(repr(measure) for measure in measures)
            raise ValueError(
                f"{both} share a state, but some values of {name!r} are not numbers; declare the type of the column "
                "with "
                f"{reading.say(name, 'float64')} or {reading.say(name, 'text')}"
            )


def _is_number(text: str, kind: pa.DataType, reading: ReadOptions) -> bool:
    try:
        from_text(pa.array([text]), kind, reading)
    except pa.ArrowInvalid:
        return False
    return True
