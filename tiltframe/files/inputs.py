"""Inputs: open files and folders in Parquet, CSV, JSON and further formats as one `Source` with a common schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa

from aggr.arrow.normalize import normalized_type
from aggr.sql.inputs import columns_in
from aggr.sql.number_columns import Use
from aggr.tables.column_uses import ColumnUses, Uses
from tiltframe.event_time import INSTANT
from tiltframe.files.formats import (
    first_texts,
    has_types,
    kind_of,
    schema_of_file,
)
from tiltframe.files.found_files import find_files
from tiltframe.files.key_texts import with_key_texts
from tiltframe.files.read_options import NO_OPTIONS, ReadOptions
from tiltframe.files.reading_errors import check_text_file, first_line, reading_error, type_hint
from tiltframe.files.rows import with_time_column
from tiltframe.files.source import Source, is_text_type
from tiltframe.files.written_numbers import (
    find_number_types,
    is_number_or_boolean,
    needs_numbers,
    stays_text,
    with_number_columns,
)
from tiltframe.files.wrong_values import explain_parse_error, find_wrong_value

_NO_USES = ColumnUses()


def open_source(
    inputs: Sequence[str | Path],
    time: str,
    uses: ColumnUses = _NO_USES,
    reading: ReadOptions = NO_OPTIONS,
    timezone: str = "UTC",
    sample: Callable[[Path], Path] = lambda file: file,
) -> Source:
    """Return files, and the files in folders, as a `Source` with a common schema.

    Parameters
    ----------
    inputs : sequence of paths
        A folder stands for all files of known formats in it and its subfolders, except the folders of stores. The
        notation of the event times may differ between files.
    time : str
        The column of event times.
    uses : ColumnUses
        How measures and keys use columns. The use decides whether the digits of a column must be preserved.
    reading : ReadOptions
    timezone : str
        The time zone of the windows. Dates, and the times in expressions, are read in this zone.
    sample : function
        A function that receives a file, and returns the file from which its types are inferred: the same file, or a
        sample of it.

    Raises
    ------
    FileNotFoundError
        If a path does not exist.
    ValueError
        If a folder has no data, a format is unknown, a file is empty or damaged, or the types of a column in two files
        have no common type.
    """
    files = list(dict.fromkeys(file.resolve() for source in inputs for file in find_files(Path(source))))
    working_folder = Path.cwd()
    files = [file.relative_to(working_folder) if file.is_relative_to(working_folder) else file for file in files]
    schema: pa.Schema | None = None
    file_schemas: dict[Path, pa.Schema] = {}
    key_texts = set[str]()
    for file in files:
        if not file.stat().st_size:
            raise ValueError(f"{file} is empty: it has no columns and no rows; leave it out")
        try:
            file_schemas[file] = schema_of_file(sample(file), reading, uses.is_missing)
            inferred = _schema_to_read(file, file_schemas[file], time=time, uses=uses, reading=reading)
            is_text_file = not has_types(file)
            schema_of_types = with_key_texts(inferred, time, uses, reading) if is_text_file else inferred
            key_texts |= {
                name for name in schema_of_types.names if schema_of_types.field(name).type != inferred.field(name).type
            }
        except (pa.ArrowException, OSError, UnicodeError) as error:
            check_text_file(file, reading)
            raise reading_error(file, error, partial(explain_parse_error, file, error, reading)) from None
        try:
            schema = schema_of_types if schema is None else _unify_schemas(schema, schema_of_types, uses)
        except pa.ArrowException as error:
            raise ValueError(
                f"{file} does not match the previous files: {first_line(error)}{type_hint(error, reading)}"
            ) from None
    assert schema is not None
    at = schema.get_field_index(time)
    # The column has the type null if the files have no rows, or no event times.
    if at >= 0 and reading.time is None and pa.types.is_null(schema.field(at).type):
        schema = schema.set(at, pa.field(time, INSTANT))
    by_column = uses.among(tuple(schema.names))
    texts = {
        file: names
        for file in files
        if (names := _columns_to_examine(file, file_schemas[file], schema=schema, uses=by_column, reading=reading))
    }
    samples = {file: _first_texts(file, sample(file), names, reading) for file, names in texts.items()}
    schema = _with_texts(schema, samples, by_column, reading)
    numbers = find_number_types(
        schema, lambda name: [sample[name] for sample in samples.values() if name in sample], uses, reading
    )
    schema_before_time = None if reading.time is None else schema
    schema = with_number_columns(with_time_column(schema, time, reading), numbers)
    return Source(
        files=tuple(files),
        schema=schema,
        time=time,
        uses=by_column,
        reading=reading,
        timezone=timezone,
        schema_before_time=schema_before_time,
        file_schemas=file_schemas,
        key_texts=frozenset(key_texts),
        complete_structs=uses.complete_structs(schema),
    )


def _first_texts(file: Path, sampled: Path, names: Sequence[str], reading: ReadOptions) -> dict[str, pa.Array]:
    """Return columns of the first rows of ``sampled``, as `first_texts` does. ``sampled`` is ``file`` itself, or a
    sample of it; error messages contain the name of ``file``. Raise ``ValueError`` if a value in a JSON file is not
    text.
    """
    try:
        return first_texts(sampled, names, reading)
    except pa.ArrowInvalid as error:
        kinds = dict.fromkeys(names, pa.string())
        raise reading_error(file, error, partial(find_wrong_value, file, kinds, reading)) from None


def _unify_schemas(schema: pa.Schema, other: pa.Schema, uses: ColumnUses) -> pa.Schema:
    """Return the common schema of two files. If a measure or key uses a column that is text in one file and numbers or
    booleans in the other, the column is text.
    """
    by_column = uses.among(tuple(schema.names))
    for name in by_column.keys() & set(other.names):
        kinds = {schema.field(name).type, other.field(name).type}
        if pa.string() in kinds and all(kind == pa.string() or is_number_or_boolean(kind) for kind in kinds):
            schema = schema.set(schema.get_field_index(name), pa.field(name, pa.string()))
            other = other.set(other.get_field_index(name), pa.field(name, pa.string()))
    return pa.unify_schemas([schema, other], promote_options="permissive")


def _columns_to_examine(
    file: Path, file_schema: pa.Schema, schema: pa.Schema, uses: Uses, reading: ReadOptions
) -> list[str]:
    """Return the names of the columns of a file whose texts must be examined before their type is chosen.

    In files of all formats, a text column is examined if functions read it as numbers. In CSV, a column of inferred
    numbers or booleans is examined too if a function uses its texts, or if its texts must be preserved.
    """
    names = []
    for name in [name for name in uses if name in file_schema.names]:
        kind = schema.field(name).type
        column_uses = uses[name]
        is_guessed = is_number_or_boolean(kind) and kind_of(file) in ("csv", "tsv") and name not in reading.declared
        if (is_guessed and column_uses & {Use.TEXT, Use.KEEP}) or (
            pa.types.is_string(kind) and needs_numbers(column_uses, name in reading.declared)
        ):
            names.append(name)
    return names


def _with_texts(
    schema: pa.Schema, samples: Mapping[Path, Mapping[str, pa.Array]], uses: Uses, reading: ReadOptions
) -> pa.Schema:
    """Return ``schema`` with the type text for some columns: those whose inferred type is a number or a boolean, and
    for which `stays_text` returns true. ``samples`` has the first texts of columns, as file → column → texts.
    """
    for name in dict.fromkeys(name for sample in samples.values() for name in sample):
        at = schema.get_field_index(name)
        kind = schema.field(at).type
        parts = [sample[name] for sample in samples.values() if name in sample]
        if is_number_or_boolean(kind) and stays_text(parts, kind, uses[name], reading):
            schema = schema.set(at, pa.field(name, pa.string()))
    return schema


def _without_unread_duplicates(file: Path, file_schema: pa.Schema, read: set[str]) -> pa.Schema:
    """Return the schema of a file without the columns whose names occur twice. Raise ``ValueError`` if such a name is
    in ``read``, the names of the needed columns.
    """
    twice = {name for name in file_schema.names if file_schema.names.count(name) > 1}
    for name in file_schema.names:
        if name in twice & read:
            raise ValueError(f"{file} has two columns called {name!r}; rename one of them")
    return pa.schema([field for field in file_schema if field.name not in twice])


def _schema_to_read(file: Path, file_schema: pa.Schema, time: str, uses: ColumnUses, reading: ReadOptions) -> pa.Schema:
    """Return the schema in which the columns of a file are read. A column has its declared type or, without a declared
    type, its type in ``file_schema``, the schema of the file. Event times are instants in microseconds UTC, unless they
    are integers without a declared unit or format.
    """
    file_schema = _without_unread_duplicates(
        file, file_schema, {time, *uses.among(tuple(file_schema.names)), *reading.reads()}
    )
    time_columns = () if reading.time is None else columns_in(reading.time, file_schema.names)
    fields = []
    for name, file_type in zip(file_schema.names, file_schema.types, strict=True):
        kind = file_type if pa.types.is_null(file_type) else normalized_type(file_type)
        if pa.types.is_binary(kind) and not has_types(file):
            check_text_file(file, reading)
        declared_kind = reading.declared.get(name)
        kind = kind if declared_kind is not None else reading.type_of(name, kind)
        if reading.time is None and name == time:
            is_text_time = is_text_type(declared_kind) or pa.types.is_string(kind) or pa.types.is_temporal(kind)
            if reading.unit(time) or reading.time_format is not None or is_text_time:
                kind = INSTANT
            elif pa.types.is_floating(kind):
                raise ValueError(
                    f"{file}: the time column {time!r} contains numbers with fractions; declare their unit, counted "
                    "from 1970: "
                    f"{reading.type_option_text(time, 'seconds')}, or milliseconds, microseconds or nanoseconds"
                )
        elif declared_kind is not None:
            kind = reading.type_of(name, kind) if pa.types.is_list(kind) else declared_kind
        elif name in time_columns and not has_types(file) and pa.types.is_temporal(kind):
            kind = pa.string()  # The expression for the event times reads this column as text.
        fields.append(pa.field(name, kind))
    return pa.schema(fields)
