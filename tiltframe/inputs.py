"""Inputs: Parquet, CSV and JSON lines, files and folders, as one stream of Arrow batches."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.dataset as ds

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


@dataclass(frozen=True)
class Source:
    """Files of any of the formats, read with one schema.

    ``schema`` has every column of every file, each in the type that holds all of them.
    """

    files: tuple[Path, ...]
    schema: pa.Schema

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
                present = _dataset(file).schema
                read = [name for name in columns if name in present.names]
                known = pa.schema(
                    [self.schema.field(name) if name in read else present.field(name) for name in present.names]
                )
                for batch in _dataset(file, known).to_batches(columns=read, batch_size=1 << 17):
                    yield _widened(batch, schema)
            except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OSError) as error:
                raise ValueError(f"cannot read {file}: {_first_line(error)}") from None
            if done is not None:
                done(file)


def open_source(inputs: Sequence[str | Path]) -> Source:
    """Find the files of inputs and agree on a schema.

    Parameters
    ----------
    inputs : paths of files or folders
        A folder stands for all files of a known format below it.

    Raises
    ------
    FileNotFoundError
        If a path is not there.
    ValueError
        If a folder has no data, a format is unknown, a file is empty or damaged, or two files do not fit.
    """
    files = [file for given in inputs for file in _files(Path(given))]
    schema: pa.Schema | None = None
    for file in files:
        if not file.stat().st_size:
            raise ValueError(f"{file} is empty: it has no columns, let alone rows")
        try:
            own = _dataset(file).schema
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OSError) as error:
            raise ValueError(f"cannot read {file}: {_first_line(error)}") from None
        try:
            schema = own if schema is None else pa.unify_schemas([schema, own], promote_options="permissive")
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise ValueError(f"{file} does not fit the files before it: {_first_line(error)}") from None
    assert schema is not None
    return Source(tuple(files), schema)


def _files(path: Path) -> list[Path]:
    if not path.exists():
        raise FileNotFoundError(f"there is no file or folder {path}")
    if path.is_file():
        if _format(path) is None:
            raise ValueError(f"cannot tell the format of {path}; name it one of {', '.join(_FORMATS)}")
        return [path]
    visible = (p for p in sorted(path.rglob("*")) if not any(part[0] in "._" for part in p.relative_to(path).parts))
    found = [p for p in visible if p.is_file() and _format(p) is not None]
    if not found:
        raise ValueError(f"the folder {path} has no data: no file of {', '.join(_FORMATS)}")
    return found


def _format(path: Path) -> str | None:
    name = path.name.lower()
    return next((kind for ending, kind in _FORMATS.items() if name.endswith(ending)), None)


def _dataset(file: Path, schema: pa.Schema | None = None) -> ds.Dataset:
    kind = _format(file)
    if kind in ("csv", "tsv"):
        delimiter = "\t" if kind == "tsv" else ","
        convert = pacsv.ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=False)
        shape = ds.CsvFileFormat(pacsv.ParseOptions(delimiter=delimiter), convert_options=convert)
    else:
        shape = ds.ParquetFileFormat() if kind == "parquet" else ds.JsonFileFormat()
    return ds.dataset(file, schema=schema, format=shape)


def _widened(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Give a batch every column of the schema, null where its file has none."""
    columns = [
        batch.column(f.name).cast(f.type) if f.name in batch.schema.names else pa.nulls(batch.num_rows, f.type)
        for f in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _first_line(error: Exception) -> str:
    return re.sub(r"^Error creating dataset.*?\?: ", "", str(error).splitlines()[0]).rstrip(". ")
