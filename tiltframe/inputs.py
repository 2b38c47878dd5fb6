"""Inputs: Parquet, CSV and JSON lines, files and folders, as one stream of Arrow batches."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.dataset as ds
import pyarrow.json as pajson

from aggr.plain import plain, plain_type
from tiltframe.frame import INSTANT
from tiltframe.store.place import is_store
from tiltframe.times import event_times

_FORMATS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".csv.gz": "csv",
    ".tsv": "tsv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".json.gz": "json",
    ".jsonl.gz": "json",
}

_NO_NUMBER = ["", "NA", "N/A", "null", "NULL"]  # read as null where a number, a time or a truth is expected
_INFERRED_BYTES = 1 << 24  # types are told from so much of a CSV or JSON file


@dataclass(frozen=True)
class Source:
    """Files of any of the formats, read with one schema.

    ``schema`` has every column of every file, each in the type that holds all of them; ``time`` names the column of
    event times.
    """

    files: tuple[Path, ...]
    schema: pa.Schema
    time: str

    @property
    def bytes(self) -> int:
        """The size of all files."""
        return sum(file.stat().st_size for file in self.files)

    def batches(self, columns: Sequence[str], done: Callable[[Path], None] | None = None) -> Iterator[pa.RecordBatch]:
        """Read some columns of every row, at least one batch; ``done`` hears of each file that is through.

        Raises ``ValueError`` naming the file that is damaged or does not fit.
        """
        schema = pa.schema([self.schema.field(name) for name in columns])
        yield pa.RecordBatch.from_pylist([], schema)
        for file in self.files:
            try:
                for batch in _read(file, self.schema, columns):
                    yield self._widened(batch, schema)
            except pa.ArrowCancelled:  # Arrow noticed the Ctrl-C first
                raise KeyboardInterrupt from None
            except (pa.ArrowException, OSError) as error:
                raise ValueError(f"cannot read {file}: {_first_line(error)}") from None
            if done is not None:
                done(file)

    def _widened(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        """Give a batch every column of the schema, null where its file has none."""
        columns = []
        for field in schema:
            if field.name not in batch.schema.names:
                column = pa.nulls(batch.num_rows, field.type)
            else:
                column = plain(batch.column(field.name))
                if field.name == self.time and column.type != field.type:
                    column = pa.array(event_times(column, field.name)).cast(field.type)
            columns.append(column if column.type == field.type else column.cast(field.type))
        return pa.RecordBatch.from_arrays(columns, schema=schema)


def open_source(inputs: Sequence[str | Path], time: str) -> Source:
    """Find the files of inputs and agree on a schema.

    Parameters
    ----------
    inputs : paths of files or folders
        A folder stands for all files of a known format below it, but for those of stores.
    time : str
        The column of event times, which may be written in another way in each file.

    Raises
    ------
    FileNotFoundError
        If a path is not there.
    ValueError
        If a folder has no data, a format is unknown, a file is empty or damaged, or two files do not fit.
    """
    files = list(dict.fromkeys(file.resolve() for given in inputs for file in _files(Path(given))))
    here = Path.cwd()
    files = [file.relative_to(here) if file.is_relative_to(here) else file for file in files]
    schema: pa.Schema | None = None
    for file in files:
        if not file.stat().st_size:
            raise ValueError(f"{file} is empty: it has no columns, let alone rows")
        try:
            own = _schema(file, time)
        except (pa.ArrowException, OSError) as error:
            raise ValueError(f"cannot read {file}: {_first_line(error)}") from None
        try:
            schema = own if schema is None else pa.unify_schemas([schema, own], promote_options="permissive")
        except pa.ArrowException as error:
            raise ValueError(f"{file} does not fit the files before it: {_first_line(error)}") from None
    assert schema is not None
    return Source(tuple(files), schema, time)


def _files(path: Path) -> list[Path]:
    if not path.exists():
        raise FileNotFoundError(f"there is no file or folder {path}")
    if path.is_file():
        if _format(path) is None:
            raise ValueError(f"cannot tell the format of {path}; name it one of {', '.join(_FORMATS)}")
        return [path]
    visible = (p for p in sorted(path.rglob("*")) if not any(part[0] in "._" for part in p.relative_to(path).parts))
    found = [p for p in visible if p.is_file() and _format(p) is not None and not _in_store(p, path)]
    if not found:
        raise ValueError(f"the folder {path} has no data: no file of {', '.join(_FORMATS)}")
    return found


def _format(path: Path) -> str | None:
    name = path.name.lower()
    return next((kind for ending, kind in _FORMATS.items() if name.endswith(ending)), None)


def _in_store(file: Path, below: Path) -> bool:
    """Say whether a file belongs to a store, which is no input."""
    return any(is_store(folder) for folder in file.parents if folder.is_relative_to(below))


def _schema(file: Path, time: str) -> pa.Schema:
    """Read a file's schema in plain types; event times that are no whole numbers count as microseconds UTC."""
    fields = []
    for field in _dataset(file).schema:
        kind = field.type if pa.types.is_null(field.type) else plain_type(field.type)
        if field.name == time and (pa.types.is_string(kind) or pa.types.is_temporal(kind)):
            kind = INSTANT
        fields.append(pa.field(field.name, kind))
    return pa.schema(fields)


def _read(file: Path, schema: pa.Schema, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Read some columns of a file, text files in the types of the schema but for times, which differ by file."""
    present = _dataset(file).schema

    def asked(name: str) -> pa.Field:
        own = present.field(name) if name in present.names else None
        return own if own is not None and pa.types.is_temporal(schema.field(name).type) else schema.field(name)

    kind = _format(file)
    if kind == "json":  # asked for by name, for a column may come late
        wanted = pa.schema([asked(name) for name in columns])
        parse = pajson.ParseOptions(
            explicit_schema=wanted, unexpected_field_behavior="ignore", newlines_in_values=False
        )
        with pa.input_stream(file, compression="detect") as stream:
            yield from pajson.open_json(stream, pajson.ReadOptions(block_size=_INFERRED_BYTES), parse)
        return
    typed = pa.schema([asked(name) if name in columns else present.field(name) for name in present.names])
    read = [name for name in columns if name in present.names]
    for batch in _dataset(file, typed).to_batches(columns=read, batch_size=1 << 17):
        yield batch if kind == "parquet" else _emptied(batch)


def _dataset(file: Path, schema: pa.Schema | None = None) -> ds.Dataset:
    kind = _format(file)
    if kind == "parquet":  # read as it is, and widened afterwards
        return ds.dataset(file, format=ds.ParquetFileFormat())
    if kind == "json":
        return ds.dataset(file, format=ds.JsonFileFormat(read_options=pajson.ReadOptions(block_size=_INFERRED_BYTES)))
    parse = pacsv.ParseOptions(delimiter="\t" if kind == "tsv" else ",", newlines_in_values=True)
    convert = pacsv.ConvertOptions(null_values=_NO_NUMBER)  # in text, only what is empty is null
    shape = ds.CsvFileFormat(parse, convert_options=convert, read_options=pacsv.ReadOptions(block_size=_INFERRED_BYTES))
    return ds.dataset(file, schema=schema, format=shape)


def _emptied(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Take empty text in a CSV file as null."""
    columns = [
        pc.if_else(pc.equal(column, ""), None, column) if pa.types.is_string(column.type) else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _first_line(error: Exception) -> str:
    return re.sub(r"^Error creating dataset.*?\?: ", "", str(error).splitlines()[0]).rstrip(". ")
