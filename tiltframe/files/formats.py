"""Formats: read columns of a file as Arrow batches. The file is in Parquet, CSV or JSON, or in a format that
`tiltframe.files.readers` adds.

The types of columns in text files are declared, or inferred from the first 16 MB. If an inferred type would change the
digits of a number, an error is raised.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.json as pajson

from aggr.arrow import compute as pc
from aggr.arrow import versions
from aggr.arrow.normalize import is_number, normalize
from aggr.sql.number_columns import Use
from aggr.tables.column_uses import Uses
from aggr.tables.partial_aggregation import REDUCE_ROWS
from tiltframe.files.digits import (
    NO_NUMBER,
    canonical_pattern,
    check_digits,
    check_floats,
    digits_message,
    exact_type,
    first_noncanonical,
    parse_texts,
    plain_numbers,
)
from tiltframe.files.json_arrays import ArrayLines, is_array
from tiltframe.files.json_batches import open_json_lines
from tiltframe.files.nesting import CheckedLines
from tiltframe.files.new_fields import NewFields, with_new_fields
from tiltframe.files.read_options import ReadOptions
from tiltframe.files.readers import read_batches, read_schema, reader_of, readers
from tiltframe.files.type_widening import WiderTypeNeeded

_KINDS = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".tsv": "tsv"}
_KINDS |= dict.fromkeys((".json", ".jsonl", ".ndjson"), "json")
COMPRESSED = (".gz", ".bz2", ".zst", ".lz4")

# the number of bytes at the beginning of a JSON file that are read to detect an array
_DETECTED_BYTES = 1 << 12
# the number of rows at the beginning of a Parquet file that are read to detect numbers in text columns
_PARQUET_ROWS = 1 << 16
# the number of bytes at the beginning of a CSV or JSON file from which types are inferred
_INFERRED_BYTES = 1 << 24


def known_endings() -> str:
    """Return the endings of the file names that can be read, as text for messages."""
    further_endings = [ending for reader in readers().values() for ending in reader.endings]
    return f"{', '.join([*_KINDS, *further_endings])}, those of text also with {', '.join(COMPRESSED)}"


def kind_of(path: Path) -> str | None:
    """Return the format of a file by the ending of its name, such as ``csv``, or None if the ending is unknown."""
    reader = reader_of(path)
    if reader is not None:
        return reader.name
    name = path.name.lower()
    ending = next((end for end in COMPRESSED if name.endswith(end)), "")
    kind = next((kind for end, kind in _KINDS.items() if name.removesuffix(ending).endswith(end)), None)
    return None if ending and kind == "parquet" else kind


def has_types(path: Path) -> bool:
    """Return whether the format of a file stores the types of columns. Types of other files are inferred from text."""
    return kind_of(path) not in (None, "csv", "tsv", "json")


def delimiter_of(path: Path, reading: ReadOptions) -> str | None:
    """Return the delimiter of a CSV file, or None for other formats."""
    by_ending = {"csv": ",", "tsv": "\t"}.get(str(kind_of(path)))
    return by_ending and (reading.delimiter or by_ending)


def schema_of_file(
    file: Path, reading: ReadOptions, is_missing: Callable[[pa.Schema], bool] = lambda schema: False
) -> pa.Schema:
    """Return the names and types of a file's columns.

    The types in a text file are inferred from its first 16 MB. In JSON, a needed column may first appear in a later
    line. Therefore more lines are read as long as ``is_missing`` returns true for the schema.
    """
    own_reader = reader_of(file)
    if own_reader is not None:
        return read_schema(own_reader, file)
    if kind_of(file) == "json":
        with _json_stream(file, reading) as stream:
            schema = open_json_lines(stream, None, _INFERRED_BYTES).schema
        if not is_missing(schema):
            return schema
        return _later_schema(file, reading, schema, is_missing)
    if kind_of(file) == "parquet":
        return _parquet(file).schema
    with open_text(file) as stream:
        reader = open_csv(stream, file, reading)
        return reader.schema if reading.thousands is None else _with_grouped_numbers(reader, reading)


def _later_schema(
    file: Path, reading: ReadOptions, schema: pa.Schema, is_missing: Callable[[pa.Schema], bool]
) -> pa.Schema:
    """Return ``schema`` with columns that appear only in later lines of a JSON file. Lines are read until
    ``is_missing`` returns false for the schema, which means that no needed column is missing. A column of type null
    receives the type of its first values.
    """
    with _json_stream(file, reading) as stream:
        incomplete_line = b""
        while (chunk := stream.read(_INFERRED_BYTES)) and is_missing(schema):
            data = incomplete_line + chunk
            end = data.rfind(b"\n") + 1
            incomplete_line = data[end:]
            if data[:end].strip():
                schema = _with_later_fields(schema, pajson.read_json(io.BytesIO(data[:end])).schema)
        if incomplete_line.strip() and is_missing(schema):
            schema = _with_later_fields(schema, pajson.read_json(io.BytesIO(incomplete_line)).schema)
    return schema


def _with_later_fields(schema: pa.Schema, later: pa.Schema) -> pa.Schema:
    for field in later:
        at = schema.get_field_index(field.name)
        if at < 0:
            schema = schema.append(field)
        elif pa.types.is_null(schema.field(at).type):
            schema = schema.set(at, field)
    return schema


def _with_grouped_numbers(reader: pacsv.CSVStreamingReader, reading: ReadOptions) -> pa.Schema:
    """Return the schema of a CSV file whose numbers may have separators of thousands. A column of text becomes a column
    of numbers if all its values in the first block are numbers.
    """
    schema = reader.schema
    first = reader.read_next_batch()
    for place, field in enumerate(schema):
        if not pa.types.is_string(field.type):
            continue
        for kind in (pa.int64(), pa.float64()):
            with suppress(pa.ArrowInvalid):
                parse_texts(first.column(place), kind, reading)
                schema = schema.set(place, field.with_type(kind))
                break
    return schema


def first_texts(file: Path, names: Sequence[str], reading: ReadOptions) -> dict[str, pa.Array]:
    """Return columns of the first rows of a file, as name → array. For a text file, the arrays have the texts in the
    file. For other formats, they have the types of the columns.
    """
    if kind_of(file) == "csv" or kind_of(file) == "tsv":
        with open_text(file) as stream:
            batch = open_csv(
                stream, file, reading, pa.schema([(name, pa.string()) for name in names])
            ).read_next_batch()
        return dict(zip(names, batch.columns, strict=True))
    if kind_of(file) == "json":
        schema = pa.schema([(name, pa.string()) for name in names])
        with _json_stream(file, reading) as stream:
            batch = open_json_lines(stream, schema, _INFERRED_BYTES).read_next_batch()
        return {name: batch.column(name) for name in names}
    own_reader = reader_of(file)
    if own_reader is not None:
        batch = _first_rows(read_batches(own_reader, file, names), read_schema(own_reader, file))
    else:
        batch = _parquet(file).head(_PARQUET_ROWS, columns=list(names)).combine_chunks()
    return {name: normalize(batch.column(name)) for name in names}


def _first_rows(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """Return the first batches of a file as a table of at least `_PARQUET_ROWS` rows, or of all rows if there are
    fewer.
    """
    first: list[pa.RecordBatch] = []
    for batch in batches:
        first.append(batch)
        if sum(batch.num_rows for batch in first) >= _PARQUET_ROWS:
            break
    return pa.Table.from_batches(first, first[0].schema if first else schema)


def read_columns(
    file: Path,
    columns: Sequence[str],
    types: pa.Schema,
    uses: Uses,
    reading: ReadOptions,
    complete_structs: Collection[str] = (),
) -> Iterator[pa.RecordBatch]:
    """Yield batches of columns of a file.

    Parameters
    ----------
    file : Path
    columns : sequence of str
        Columns of the file. For JSON, a column may be missing in some rows, which then have null.
    types : pa.Schema
        The types in which columns of text files are read. In other formats, columns have the types of the file; but
        columns of Parquet that have a dictionary type in ``types`` are read as dictionaries.
    uses : column -> uses
        How measures and keys use a column. The use decides whether an error is raised if the inferred type would change
        the digits of a number.
    reading : ReadOptions
    complete_structs : collection of str
        Columns of JSON that are read with all fields. If a row has a field that ``types`` lacks, `WiderTypeNeeded` is
        raised.
    """
    own_reader = reader_of(file)
    if own_reader is not None:
        yield from read_batches(own_reader, file, columns)
    # Parquet is read in its own types. `Source.batches_of_file` converts the batches to the common types of all files.
    elif kind_of(file) == "parquet":
        data = _parquet(file, [name for name in columns if pa.types.is_dictionary(types.field(name).type)])
        yield from data.to_batches(columns=list(columns), batch_size=REDUCE_ROWS, batch_readahead=4)
    elif kind_of(file) == "json":
        schema = json_types(pa.schema([types.field(name) for name in columns]))
        with _json_stream(file, reading) as stream:
            try:
                for batch in open_json_lines(stream, schema, _INFERRED_BYTES, complete_structs):
                    check_floats(batch, str(file), lambda: _text_of_file(file, reading), reading)
                    yield replace_null_texts(batch, reading.null)
            except NewFields as new_fields:
                wider = with_new_fields(types.field(new_fields.column).type, new_fields.parsed)
                raise WiderTypeNeeded(new_fields.column, wider, partial("{}: {}".format, file, new_fields)) from None
    else:
        yield from _read_csv(file, columns, types=types, uses=uses, reading=reading)


def _read_csv(
    file: Path, columns: Sequence[str], types: pa.Schema, uses: Uses, reading: ReadOptions
) -> Iterator[pa.RecordBatch]:
    """Yield batches of a CSV file for `read_columns`. A column is read as text and then converted if its digits must be
    checked, or if Arrow cannot read the notation of its numbers.
    """
    kinds = {name: types.field(name).type for name in columns}
    texts = {name for name, kind in kinds.items() if _is_read_as_text(name, kind, _uses_of_column(uses, name), reading)}
    # columns of type null, which have no values in the rows from which types were inferred
    empty = {name for name, kind in kinds.items() if pa.types.is_null(kind)}
    schema = pa.schema(pa.field(name, pa.string() if name in texts | empty else kinds[name]) for name in columns)
    with open_text(file) as stream:
        for batch in open_csv(stream, file, reading, schema):
            batch = replace_null_texts(batch, ["", *reading.null], texts)
            for place, name in enumerate(batch.schema.names):
                if name in empty:
                    _check_empty(batch.column(place), name, file, reading)
                    batch = versions.set_column(batch, place, name, pa.nulls(batch.num_rows))
                elif name in texts:
                    column = batch.column(place)
                    values, written = parse_texts(column, kinds[name], reading)
                    if name not in reading.declared:
                        column_uses = _uses_of_column(uses, name)
                        explain = partial(_digits_message, file=file, name=name, kind=kinds[name], reading=reading)
                        if Use.KEEP in column_uses and (text := first_noncanonical(written, kinds[name])) is not None:
                            raise WiderTypeNeeded(name, pa.string(), partial(explain, text))
                        check_digits(values, written, column_uses, explain)
                    batch = versions.set_column(batch, place, name, values)
            yield batch


def _check_empty(texts: pa.Array, name: str, file: Path, reading: ReadOptions) -> None:
    """Raise `WiderTypeNeeded` if a column contains a value, although it was empty in the rows from which its type was
    inferred.
    """
    values = pc.if_else(pc.is_in(texts, pa.array([*NO_NUMBER, *reading.null])), None, texts)
    if values.null_count == len(values):
        return
    kinds = {"int64": pa.int64(), "float64": pa.float64()}
    kind = next((name for name, kind in kinds.items() if _can_parse_all(values, kind, reading)), "text")
    first = values.drop_null()[0].as_py()
    raise WiderTypeNeeded(
        name,
        kinds.get(kind, pa.string()),
        lambda: (
            f"{file}: the column {name!r} is empty in the first rows, from which types are inferred, and contains "
            f"{first!r} later; declare its type with {reading.type_option_text(name, kind)}"
        ),
    )


def _can_parse_all(texts: pa.Array, kind: pa.DataType, reading: ReadOptions) -> bool:
    try:
        parse_texts(texts, kind, reading)
    except pa.ArrowInvalid:
        return False
    return True


def wider_type(file: Path, name: str, guess: pa.DataType, uses: frozenset[Use], reading: ReadOptions) -> str | None:
    """Return the name of a type that fits all values of a column of a CSV file. A value of the column did not fit
    the inferred type ``guess``. The type is float64 if ``guess`` is an integer type and all values are numbers, and
    otherwise text.

    Return None instead of text if a function computes with the values, or compares them as numbers.
    """
    if pa.types.is_integer(guess) and column_type(file, name, reading) is not None:
        return "float64"
    return None if uses & {Use.NUMBER, Use.ORDER} else "text"


def _digits_message(text: str, file: Path, name: str, kind: pa.DataType, reading: ReadOptions) -> str:
    """Return the error message for a text that would change if it were read as the inferred type ``kind``. The message
    advises to keep the text, or to declare a type that represents all numbers of the column.
    """
    exact = column_type(file, name, reading)
    return digits_message(text, kind, where=str(file), reading=reading, name=name, exact=exact)


def column_texts(file: Path, name: str, reading: ReadOptions) -> list[pa.Array]:
    """Return all texts of a column of a CSV file except those that mean null, as one array per block of the file."""
    null_texts = pa.array([*NO_NUMBER, *reading.null])
    with open_text(file) as stream:
        batches = list(open_csv(stream, file, reading, pa.schema([(name, pa.string())])))
    return [batch.column(0).filter(pc.invert(pc.is_in(batch.column(0), null_texts))).drop_null() for batch in batches]


def column_type(file: Path, name: str, reading: ReadOptions) -> str | None:
    """Return the name of the type that represents all numbers of a column of a CSV file exactly. Return None if a value
    is not a number, or if the numbers have more than 38 digits.
    """
    texts = set[str]()
    for part in column_texts(file, name, reading):
        texts |= set(pc.unique(plain_numbers(part, reading) if reading.has_number_notation else part).to_pylist())
    return exact_type(texts)


def _uses_of_column(uses: Uses, name: str) -> frozenset[Use]:
    return uses.get(name, frozenset())


def _is_read_as_text(name: str, kind: pa.DataType, uses: frozenset[Use], reading: ReadOptions) -> bool:
    """Return whether a column of a CSV file is read as text and then converted to its type ``kind``. This is necessary
    if the digits of the column must be checked, or if Arrow cannot read the notation of its numbers.
    """
    if reading.has_number_notation and is_number(kind):
        return True
    guessed = name not in reading.declared
    return guessed and (pa.types.is_floating(kind) or (Use.KEEP in uses and canonical_pattern(kind) is not None))


def json_types(schema: pa.Schema) -> pa.Schema:
    """Return the schema with which Arrow reads JSON. Dates are read as text, because Arrow does not convert them."""
    return pa.schema([field.with_type(_json_type(field.type)) for field in schema])


def _json_type(dtype: pa.DataType) -> pa.DataType:
    if pa.types.is_list(dtype):
        return pa.list_(_json_type(dtype.value_type))
    if pa.types.is_struct(dtype):
        return pa.struct([field.with_type(_json_type(field.type)) for field in dtype])
    return pa.string() if pa.types.is_date(dtype) else dtype


def replace_null_texts(
    batch: pa.RecordBatch, null_texts: Sequence[str], except_columns: Collection[str] = ()
) -> pa.RecordBatch:
    """Return a batch in which texts that occur in ``null_texts`` are replaced by null, except in the columns
    ``except_columns``.
    """
    if not null_texts:
        return batch
    for place, field in enumerate(batch.schema):
        if pa.types.is_string(field.type) and field.name not in except_columns:
            column = batch.column(place)
            values = pc.if_else(pc.is_in(column, pa.array(null_texts)), None, column)
            batch = versions.set_column(batch, place, field.name, values)
    return batch


def open_csv(
    stream: pa.NativeFile, file: Path, reading: ReadOptions, schema: pa.Schema | None = None
) -> pacsv.CSVStreamingReader:
    """Return a reader of a CSV file, whose bytes are read from ``stream``. It reads the columns of ``schema`` in their
    types or, without a schema, all columns in inferred types.
    """
    parse = pacsv.ParseOptions(delimiter=delimiter_of(file, reading), newlines_in_values=True)
    options = pacsv.ReadOptions(block_size=_INFERRED_BYTES, encoding=reading.encoding, skip_rows=reading.skip_rows)
    convert = pacsv.ConvertOptions(
        null_values=[*NO_NUMBER, *reading.null],
        column_types=schema,
        include_columns=None if schema is None else schema.names,
        decimal_point=reading.point,
    )
    return pacsv.open_csv(stream, options, parse, convert)


def _text_of_file(file: Path, reading: ReadOptions) -> str:
    with open_text(file) as stream:
        text: str = stream.read().decode(reading.encoding)
    return text


def _parquet(file: Path, coded: Collection[str] = ()) -> pa.dataset.Dataset:
    import pyarrow.dataset as ds  # imported here, because the import takes a quarter of a second

    scan_options = ds.ParquetFragmentScanOptions(pre_buffer=False)  # local files need no read-ahead
    form = ds.ParquetFileFormat(dictionary_columns=coded, default_fragment_scan_options=scan_options)
    return ds.dataset(file, format=form)


def open_text(file: Path) -> pa.NativeFile:
    """Open a text file as a stream of bytes. The stream is decompressed if the file's name has the ending of a
    compression, such as ``.gz``.
    """
    return pa.input_stream(file, compression="detect")


def _json_stream(file: Path, reading: ReadOptions) -> pa.NativeFile:
    with _decoded(file, reading) as beginning:
        array = is_array(beginning.read(_DETECTED_BYTES))
    stream = _decoded(file, reading)
    lines = pa.PythonFile(ArrayLines(stream, str(file)), "r") if array else stream
    return pa.PythonFile(CheckedLines(lines, str(file)), "r")


def _decoded(file: Path, reading: ReadOptions) -> pa.NativeFile:
    stream = open_text(file)
    return stream if reading.encoding == "utf-8" else pa.transcoding_input_stream(stream, reading.encoding, "utf-8")
