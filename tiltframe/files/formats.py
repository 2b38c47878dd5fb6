"""Formats: Parquet, CSV and JSON lines, each as Arrow batches of chosen columns.

Types of text files are declared, or inferred from the first bytes; whatever would lose digits is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.json as pajson

from aggr.kernels import compute as pc
from tiltframe.files.digits import NO_NUMBER, canonical, check_floats, from_text

_KINDS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "tsv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}
_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4")
ENDINGS = f"{', '.join(_KINDS)}, those of text also with {', '.join(_COMPRESSED)}"

_INFERRED_BYTES = 1 << 24  # types are inferred from so much of a CSV or JSON file


def kind_of(path: Path) -> str | None:
    """Tell the format of a file by its name; None for what is none."""
    name = path.name.lower()
    ending = next((end for end in _COMPRESSED if name.endswith(end)), "")
    kind = next((kind for end, kind in _KINDS.items() if name.removesuffix(ending).endswith(end)), None)
    return None if ending and kind == "parquet" else kind


def delimiter_of(path: Path) -> str | None:
    """Return what parts the fields of a CSV file; None for other formats."""
    return {"csv": ",", "tsv": "\t"}.get(str(kind_of(path)))


def own_schema(file: Path, encoding: str) -> pa.Schema:
    """Read or infer the schema of a file."""
    if kind_of(file) == "json":
        with _json_stream(file, encoding) as stream:
            return pajson.open_json(stream, pajson.ReadOptions(block_size=_INFERRED_BYTES), _json_lines(None)).schema
    if kind_of(file) == "parquet":
        return _parquet(file).schema
    with _open(file) as stream:
        return _csv(stream, file, encoding).schema


def read(
    file: Path, columns: Sequence[str], wanted: pa.Schema, exact: Sequence[str], declared: Sequence[str], encoding: str
) -> Iterator[pa.RecordBatch]:
    """Read some columns of a file, those that it has.

    Parameters
    ----------
    columns : names
    wanted : schema
        The types that text files are read in; what is a dictionary here is one as Parquet is read, too.
    exact : names
        Columns whose values must be the digits that a text file writes: keys.
    declared : names
        Columns whose types were declared: nothing is checked.
    """
    if kind_of(file) == "parquet":  # as it is, and widened afterwards
        data = _parquet(file, [name for name in columns if pa.types.is_dictionary(wanted.field(name).type)])
        yield from data.to_batches(columns=[n for n in columns if n in data.schema.names], batch_size=1 << 17)
    elif kind_of(file) == "json":
        schema = pa.schema([wanted.field(name) for name in columns])
        with _json_stream(file, encoding) as stream:
            options = pajson.ReadOptions(block_size=_INFERRED_BYTES)
            for batch in pajson.open_json(stream, options, _json_lines(schema)):
                yield check_floats(batch, declared, file, encoding)
    else:
        yield from _read_csv(file, columns, wanted, exact, declared, encoding)


def _read_csv(
    file: Path, columns: Sequence[str], wanted: pa.Schema, exact: Sequence[str], declared: Sequence[str], encoding: str
) -> Iterator[pa.RecordBatch]:
    present = own_schema(file, encoding).names
    names = [name for name in columns if name in present]
    guessed = {name: wanted.field(name).type for name in names if name not in declared}
    texts = {
        name
        for name, kind in guessed.items()
        if pa.types.is_floating(kind) or (name in exact and canonical(kind) is not None)
    }
    schema = pa.schema(pa.field(name, pa.string() if name in texts else wanted.field(name).type) for name in names)
    with _open(file) as stream:
        for batch in _csv(stream, file, encoding, schema):
            yield _as_read(batch, wanted, texts, exact, file)


def _as_read(
    batch: pa.RecordBatch, wanted: pa.Schema, texts: Collection[str], exact: Sequence[str], file: Path
) -> pa.RecordBatch:
    """Read the numbers of columns that came as text; in others that are text, only what is empty is null."""
    arrays = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        kind = wanted.field(name).type
        if name in texts:
            column = from_text(column, kind, name, file, exact=name in exact)
        elif pa.types.is_string(kind):
            column = pc.if_else(pc.equal(column, ""), None, column)
        arrays.append(column)
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def _csv(stream: pa.NativeFile, file: Path, encoding: str, schema: pa.Schema | None = None) -> pacsv.CSVStreamingReader:
    """Begin to read a CSV file: all columns, in types that are inferred, or those of a schema."""
    parse = pacsv.ParseOptions(delimiter=delimiter_of(file), newlines_in_values=True)
    reading = pacsv.ReadOptions(block_size=_INFERRED_BYTES, encoding=encoding)
    names = None if schema is None else schema.names
    convert = pacsv.ConvertOptions(null_values=NO_NUMBER, column_types=schema, include_columns=names)
    return pacsv.open_csv(stream, reading, parse, convert)


def _parquet(file: Path, coded: Collection[str] = ()) -> pa.dataset.Dataset:
    import pyarrow.dataset as ds  # a quarter of a second, which other formats need not wait for

    return ds.dataset(file, format=ds.ParquetFileFormat(dictionary_columns=coded))


def _open(file: Path) -> pa.NativeFile:
    return pa.input_stream(file, compression="detect")


def _json_stream(file: Path, encoding: str) -> pa.NativeFile:
    stream = _open(file)
    return stream if encoding == "utf-8" else pa.transcoding_input_stream(stream, encoding, "utf-8")


def _json_lines(schema: pa.Schema | None) -> pajson.ParseOptions:
    """Ask for columns by name, for one may come late."""
    beside = "infer" if schema is None else "ignore"
    return pajson.ParseOptions(explicit_schema=schema, unexpected_field_behavior=beside, newlines_in_values=False)
