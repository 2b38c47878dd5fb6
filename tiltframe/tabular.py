"""Tabular inputs: read rows as Arrow batches of one schema. The rows may be in any of the following objects:

    of pyarrow: Table, RecordBatch, RecordBatchReader, dataset, scanner
    of other packages: DataFrames of polars and pandas, DuckDB relations, and other objects with Arrow's C stream
    paths of files and folders: Parquet, CSV, JSON lines, and formats of `tiltframe.files.readers`

A stream is read once, batch by batch. Only the needed columns of datasets and files are read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias, TypeVar

import pyarrow as pa

from aggr.arguments import because, checked_type, shortened, shown
from aggr.arrow import versions
from aggr.arrow.normalize import normalize, normalized_type
from aggr.sql.number_columns import number_column
from aggr.tables.column_uses import ColumnUses
from aggr.tables.keys import Keys, plain_keys
from tiltframe.event_time import INSTANT
from tiltframe.files.inputs import open_source
from tiltframe.files.read_options import NO_OPTIONS, ReadOptions
from tiltframe.files.rows import columns_to_prepare, convert_times, prepare_rows, with_time_column
from tiltframe.files.source import Source
from tiltframe.files.type_widening import WiderTypeNeeded, read_widening
from tiltframe.files.written_numbers import find_number_types, read_numbers, with_number_columns

_ALLOWED_INPUTS = (
    "a pyarrow.Table or dataset, a DataFrame of polars or pandas, a DuckDB relation, any other Arrow stream, or the "
    "path of a file or folder"
)
# type of an object that cannot be read → the conversion that the error message advises
_CONVERSIONS = {
    "LazyFrame": "call .collect() first",
    "DuckDBPyConnection": "fetch the result with .arrow(), or pass the relation, con.sql('…')",
    "Series": "call .to_frame() first",
}
_NO_USES = ColumnUses()
T = TypeVar("T")
# a function that receives the names of all columns, and returns those of the needed columns
Columns: TypeAlias = Callable[[Sequence[str]], Sequence[str]]
# a function that receives a schema and the names of columns, and returns the schema with a store's types for these
# columns
StoredTypes: TypeAlias = Callable[[pa.Schema, Sequence[str]], pa.Schema]


class InputRows(NamedTuple):
    """A schema, and a stream of any number of batches with this schema.

    ``widened`` is a function if the batches come from files, and None otherwise. The function receives a
    `WiderTypeNeeded` error, which says that the inferred type of a column is too narrow. It returns the batches of the
    same files with the wider type.
    """

    schema: pa.Schema
    batches: Iterable[pa.RecordBatch]
    widened: Callable[[WiderTypeNeeded], InputRows] | None = None


def consume(rows: InputRows, read: Callable[[InputRows], T]) -> T:
    """Return ``read(rows)``. If a value in a file does not fit the type that was inferred for its column, call ``read``
    again with all rows of the files and a wider type.
    """
    if rows.widened is None:  # a table or a stream, whose types are not inferred
        return read(rows)
    return read_widening(rows, read, _widened)


def _widened(rows: InputRows, needed: WiderTypeNeeded) -> InputRows:
    assert rows.widened is not None
    return rows.widened(needed)


def is_tabular(data: object) -> bool:
    """Return whether an object is a table, a stream or the path of a file, and not, for example, a sequence of tables.

    >>> is_tabular(pa.table({"a": [1]})), is_tabular("rows.csv"), is_tabular([pa.table({"a": [1]})])
    (True, True, False)
    """
    if isinstance(data, type):
        return False
    ways = ("__arrow_c_stream__", "__arrow_c_array__", "to_reader", "scanner")
    return isinstance(data, str | os.PathLike) or _is_pandas(data) or any(hasattr(data, way) for way in ways)


def _is_pandas(data: object) -> bool:
    """Return whether an object is a DataFrame of pandas. Before pandas 2.2, it has no ``__arrow_c_stream__``."""
    return type(data).__module__.startswith("pandas.") and type(data).__name__ == "DataFrame"


def rows_of(
    data: Any,
    what: str,
    columns: Columns | None,
    time: str,
    uses: ColumnUses = _NO_USES,
    keys: Keys = MappingProxyType({}),
    reading: ReadOptions = NO_OPTIONS,
    timezone: str = "UTC",
    check: Callable[[pa.Schema], None] = lambda schema: None,
    use_stored_types: StoredTypes | None = None,
) -> InputRows:
    """Return the rows of a table, a stream, a dataset or files as a stream of batches.

    Parameters
    ----------
    data : object
        One of the objects that the docstring of `tiltframe.tabular` lists.
    what : str
        The name of ``data`` in error messages.
    columns : function, optional
        A function that receives the names of all columns, and returns the names of the needed ones. It raises an error
        if a needed column is missing. Other columns of datasets and files are not read. None means all columns.
    time : str
        The column of event times.
    uses : ColumnUses
        How measures and keys use each column: whether its digits must be preserved, and whether functions read its
        texts as numbers.
    keys : name -> column or expression
        Keys. Text columns with the name of a key are returned as dictionaries if all files are Parquet.
    reading : ReadOptions
    timezone : str
        The time zone of the windows. Dates are read in this zone.
    check : function
        A function that receives the schema of files, and raises an error if the schema does not fit. If the schema does
        not fit because a column of numbers has a value that is not a number, another error is raised, which names this
        value and its line.
    use_stored_types : function, optional
        A function that receives the schema of files and the names of the columns whose types were inferred. It returns
        the schema, in which these columns have the types of a store.

    Returns
    -------
    InputRows

    Raises
    ------
    ValueError
        If ``data`` has another type, or a file cannot be read.

    >>> schema, batches, _ = rows_of(pa.table({"ts": [0], "a": [1]}), "data", lambda names: ["ts", "a"], "ts")
    >>> [batch.num_rows for batch in batches]
    [1]
    """
    paths = _paths(data, what)
    if not paths:
        return _with_options(data, what, columns, time=time, uses=uses, reading=reading, timezone=timezone)
    try:
        source = open_source(paths, time, uses, reading=reading, timezone=timezone)
        source = source.with_dictionaries(plain_keys(keys))
    except OSError as error:
        raise ValueError(f"{what} cannot be read: {because(error)}") from None
    source.check(check)
    if use_stored_types is not None:
        source = replace(source, schema=use_stored_types(source.schema, source.replaceable_columns))
    return _of_source(source, columns)


def _of_source(source: Source, columns: Columns | None) -> InputRows:
    needed = source.schema.names if columns is None else columns(source.schema.names)
    names = [name for name in source.schema.names if name in needed]
    schema = pa.schema([source.schema.field(name) for name in names])
    return InputRows(schema, source.batches(names), lambda needed: _of_source(source.with_wider_type(needed), columns))


def _with_options(
    data: Any,
    what: str,
    columns: Columns | None,
    *,
    time: str,
    uses: ColumnUses,
    reading: ReadOptions,
    timezone: str,
) -> InputRows:
    """Return those rows of a table or a stream that meet the condition of ``reading``. Their times are converted to
    instants, or computed by the expression of ``reading``.
    """
    if reading == NO_OPTIONS:
        return _with_numbers(_stream(data, what, columns), uses)
    is_declared = reading.unit(time) is not None or reading.declared.get(time) == pa.string()
    time_types = {name: kind for name, kind in reading.types.items() if name == time and is_declared}
    if replace(reading, types={}, clock=None, time_format=None, time=None, where=None) != NO_OPTIONS or (
        time_types != reading.types
    ):
        raise ValueError(
            f"{what} is a table or a stream, for which ReadOptions may set only where, time, clock, time_format and "
            "the type of the time column; remove the other options, which are for files"
        )
    schema, batches, _ = _with_numbers(_stream(data, what, None), uses)
    full_schema = with_time_column(schema, time, reading)
    at = full_schema.get_field_index(time)
    if at >= 0:
        full_schema = full_schema.set(at, full_schema.field(at).with_type(INSTANT))
    names = (
        full_schema.names
        if columns is None
        else [name for name in full_schema.names if name in columns(full_schema.names)]
    )
    read = columns_to_prepare(names, full_schema, schema, time=time, reading=reading).names
    rows = (
        prepare_rows(
            _with_instants(batch.select(read), time, reading, timezone), names, time, reading=reading, timezone=timezone
        )
        for batch in batches
    )
    return InputRows(pa.schema([full_schema.field(name) for name in names]), rows)


def _with_instants(batch: pa.RecordBatch, time: str, reading: ReadOptions, timezone: str) -> pa.RecordBatch:
    """Return the batch with its column of times converted to instants in UTC. Return the batch unchanged if it has no
    such column, if the times contain null, or if an expression computes the times.
    """
    at = batch.schema.get_field_index(time)
    if reading.time is not None or at < 0 or batch.column(at).null_count:
        return batch
    column = batch.column(at)
    is_instant = pa.types.is_timestamp(column.type) and column.type.tz is not None
    times = (
        column.cast(INSTANT) if is_instant else convert_times(normalize(column), time, reading, timezone).cast(INSTANT)
    )
    return versions.set_column(batch, at, time, times)


def _with_numbers(rows: InputRows, uses: ColumnUses) -> InputRows:
    """Return the rows, with an additional column of numbers for each text column that functions read as numbers. A
    column is added only if all texts of the table, or of the first batch of a stream, are numbers.
    """
    batches = iter(rows.batches)
    is_list = isinstance(rows.batches, list)
    sample = list[pa.RecordBatch](rows.batches if is_list else ())

    def texts(name: str) -> list[pa.Array]:
        if not is_list and not sample:
            sample.extend(islice(batches, 1))
        return [normalize(batch.column(name)) for batch in sample]

    numbers = find_number_types(rows.schema, texts, uses, NO_OPTIONS)
    if not numbers:
        return rows if is_list else InputRows(rows.schema, chain(sample, batches))

    def append_numbers(batch: pa.RecordBatch) -> pa.RecordBatch:
        for name, kind in numbers.items():
            texts = normalize(batch.column(name))
            batch = versions.append_column(batch, number_column(name), read_numbers(texts, kind, name, NO_OPTIONS))
        return batch

    all_batches = rows.batches if is_list else chain(sample, batches)
    return InputRows(with_number_columns(rows.schema, numbers), map(append_numbers, all_batches))


def one_table_or_batches(data: Any, what: str, time: str, uses: ColumnUses, reading: ReadOptions | None = None) -> Any:
    """Return the rows of ``data`` as one table. The rows need not be sorted. If ``reading`` sets no options, tables and
    streams of Arrow, and sequences of batches, are returned unchanged.
    """
    reading = checked_type(NO_OPTIONS if reading is None else reading, ReadOptions, "reading")
    reading.check(time, reading.types)
    is_arrow = isinstance(data, pa.Table | pa.RecordBatch | pa.RecordBatchReader)
    if reading == NO_OPTIONS and (is_arrow or not (is_tabular(data) or _paths(data, what))):
        return data
    rows = rows_of(data, what, columns=None, time=time, uses=uses, reading=reading)
    return consume(rows, lambda rows: pa.Table.from_batches(rows.batches, rows.schema))


def table_of(data: Any, what: str) -> pa.Table:
    """Return ``data``, for example a table of states, as an Arrow table. It may be a table, DataFrame, stream, dataset
    or Parquet files. Raise ``ValueError`` for other objects and other formats of files; the message calls ``data`` by
    the name ``what``.
    """
    if isinstance(data, pa.Table):
        return data
    for path in (paths := _paths(data, what)):
        if path.is_file() and path.suffix.lower() not in (".parquet", ".pq"):
            raise ValueError(
                f"files of {what} must be in the format Parquet; got {shown(str(path))}; convert this file"
            )
    if paths:
        import pyarrow.dataset as ds  # imported here, because the import takes a quarter of a second

        try:
            data = ds.dataset([str(path) for path in paths] if len(paths) > 1 else str(paths[0]), format="parquet")
        except (pa.ArrowException, OSError) as error:
            raise ValueError(
                f"{what} cannot be read: {str(error).splitlines()[0]}; pass undamaged Parquet files with equal columns"
            ) from None
    schema, batches, _ = _stream(data, what, None)
    plain = pa.schema([field.with_type(_plain_type(field.type)) for field in schema], schema.metadata)
    return pa.Table.from_batches(batches, schema).cast(plain)


def _plain_type(dtype: pa.DataType) -> pa.DataType:
    """Return the type that tiltframe uses in states for values of the type ``dtype``. Other programs may use other
    types for text, bytes and instants, such as ``large_string``; these types are replaced, also inside structs. All
    other types are returned unchanged.
    """
    if pa.types.is_struct(dtype):
        return pa.struct([field.with_type(_plain_type(field.type)) for field in dtype])
    is_text = pa.types.is_large_string(dtype) or versions.is_string_view(dtype)
    is_bytes = pa.types.is_large_binary(dtype) or versions.is_binary_view(dtype)
    return normalized_type(dtype) if is_text or is_bytes or pa.types.is_timestamp(dtype) else dtype


def _stream(data: Any, what: str, columns: Columns | None) -> InputRows:
    if isinstance(data, pa.Table):
        return InputRows(data.schema, data.to_batches())
    if isinstance(data, pa.RecordBatch):
        return InputRows(data.schema, [data])
    if type(data).__module__.startswith("pyspark."):
        raise ValueError(
            f"{what} must not be a Spark DataFrame here: import spark_udaf as su, and call su.rollup, "
            "su.ordered_rollup or su.finish, which run in Spark; or pass df.toArrow()"
        )
    if not is_tabular(data):
        raise _not_tabular(data, what)
    data = _narrowed(data, what, columns)
    is_dataset = hasattr(data, "scanner") and isinstance(getattr(data, "schema", None), pa.Schema)
    needed = list(columns(data.schema.names)) if is_dataset and columns is not None else None
    try:
        data = data.scanner(columns=needed) if is_dataset else data
        if hasattr(data, "to_reader"):
            reader = data.to_reader()
        elif hasattr(data, "__arrow_c_stream__"):
            reader = versions.open_stream(data)
        elif _is_pandas(data):
            reader = pa.Table.from_pandas(data).to_reader()
        else:
            batch = pa.record_batch(data)
            return InputRows(batch.schema, [batch])
        return InputRows(reader.schema, _read_stream(reader, what))
    except (pa.ArrowException, TypeError, ValueError, AttributeError) as error:
        if hasattr(data, "columns") and isinstance(error, pa.ArrowException):
            message = str(error.args[-1]).splitlines()[0]  # the messages of pandas and polars already name the column
            raise ValueError(
                f"{what} cannot be read: {shortened(message)}; use values of a single type in each column"
            ) from None
        raise _not_tabular(data, what) from None


def _narrowed(data: Any, what: str, columns: Columns | None) -> Any:
    """Return a DataFrame of pandas or polars with only the needed columns, because Arrow may have no type for the
    values of a column that is not needed. Other objects are returned unchanged.
    """
    package = type(data).__module__.partition(".")[0]
    if columns is None or package not in ("pandas", "polars") or type(data).__name__ != "DataFrame":
        return data
    names = [str(name) for name in data.columns]
    index = [str(name) for name in getattr(getattr(data, "index", None), "names", []) if name is not None]
    needed = columns([*names, *index])
    for name in needed:
        if names.count(name) > 1:
            raise ValueError(f"{what} has two columns called {shown(name)}; rename one of them")
    places = [place for place, name in enumerate(names) if name in needed]
    return data.iloc[:, places] if package == "pandas" else data.select([names[place] for place in places])


def _not_tabular(data: object, what: str) -> ValueError:
    name = type(data).__name__
    conversion = f": {_CONVERSIONS[name]}" if name in _CONVERSIONS else ""
    return ValueError(f"{what} must be {_ALLOWED_INPUTS}; got {shown(data)}{conversion}")


def _read_stream(reader: pa.RecordBatchReader, what: str) -> Iterator[pa.RecordBatch]:
    try:
        yield from reader
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{what} cannot be read: {str(error).splitlines()[0]}") from None


def _paths(data: Any, what: str) -> list[Path]:
    """Return ``data`` as a list of paths if it is a path or a list of paths; otherwise return an empty list. Raise
    ``ValueError`` if a path does not exist.
    """
    if isinstance(data, str | os.PathLike):
        data = [data]
    if not isinstance(data, list | tuple) or not all(isinstance(path, str | os.PathLike) for path in data):
        return []
    paths = [Path(path) for path in data]
    for path in paths:
        if not _exists(path):
            raise ValueError(
                f"{what}: there is no file or folder {shown(str(path))}; correct the path, or pass a pyarrow.Table or "
                "DataFrame"
            )
    return paths


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False
