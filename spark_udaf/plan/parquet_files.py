"""Parquet files for Python workers: their locations, schema and rows."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as fs
import pyarrow.parquet as pq

from aggr.tables.partial_aggregation import REDUCE_ROWS
from spark_udaf.plan.parquet_times import int96_columns

if TYPE_CHECKING:
    from spark_udaf.plan.columns import Batches

Filters: TypeAlias = pc.Expression | Sequence[tuple[str, str, Any]] | Sequence[Sequence[tuple[str, str, Any]]]
Partitioning: TypeAlias = str | ds.Partitioning | None

_INSTANT = pa.timestamp("us", "UTC")
# With this option, pyarrow reads INT96 as timestamps in microseconds, the unit of Spark.
_FORMAT_OPTIONS = {"coerce_int96_timestamp_unit": "us"}


@dataclass(frozen=True)
class Piece:
    """A part of a file that a task reads. ``groups`` are the indices of the row groups to read, or None for all of
    them. ``partition_condition`` is a condition on partition columns, whose values are in the names of folders:
    ``day = 5`` for a file in the folder ``day=5``.
    """

    path: str
    groups: list[int] | None
    partition_condition: pc.Expression


@dataclass(frozen=True)
class Selection:
    """The columns and rows to read from files.

    Parameters
    ----------
    schema : schema of the rows, including partition columns, whose values are in the names of folders
    columns : names of the columns to read
    keys : names of the key columns; key columns with texts are read dictionary-encoded
    filters : condition on rows; None for all rows
    filesystem : filesystem of the files
    """

    schema: pa.Schema
    columns: Sequence[str]
    keys: Sequence[str]
    filters: pc.Expression | None
    filesystem: fs.FileSystem

    def rows(self, pieces: Iterable[Piece]) -> Batches:
        """Yield batches of the selected rows and columns of pieces."""
        texts = [name for name in self.keys if pa.types.is_string(self.schema.field(name).type)]
        dictionary_schema = pa.schema([_dictionary_encoded(f) if f.name in texts else f for f in self.schema])
        # Data of files in object stores are read in advance, because each request takes long. Data of local files are
        # read when they are needed.
        scan_options = ds.ParquetFragmentScanOptions(pre_buffer=not isinstance(self.filesystem, fs.LocalFileSystem))
        file_format = ds.ParquetFileFormat(
            dictionary_columns=texts, default_fragment_scan_options=scan_options, **_FORMAT_OPTIONS
        )
        for piece in pieces:
            fragment = file_format.make_fragment(
                piece.path, self.filesystem, piece.partition_condition, row_groups=piece.groups
            )
            yield from scanner(fragment, dictionary_schema, self.columns, self.filters).to_batches()


def columns_in_files(keys: Iterable[str], partition_conditions: Iterable[pc.Expression]) -> list[str]:
    """Return the names of the keys that are columns in the files. The other keys are partition columns, whose values
    are in the names of folders. ``partition_conditions`` contains the ``partition_condition`` of each `Piece`.
    """
    partition_columns = {name for expression in partition_conditions for name in ds.get_partition_keys(expression)}
    return [name for name in keys if name not in partition_columns]


def dataset_of(
    files: Sequence[str],
    filesystem: fs.FileSystem,
    partitioning: Partitioning,
    schema: pa.Schema | None = None,
    base: str | None = None,
) -> ds.FileSystemDataset:
    """Return one dataset of files. Its schema is ``schema``, or by default the union of the schemas of all files.

    Only names of folders below ``base`` become columns. Raise ``pyarrow.ArrowInvalid`` or ``pyarrow.ArrowTypeError`` if
    the files are not Parquet files of compatible schemas.
    """
    options = ds.FileSystemFactoryOptions(partition_base_dir=base, partitioning=_partitioning(partitioning))
    factory = ds.FileSystemDatasetFactory(filesystem, list(files), ds.ParquetFileFormat(**_FORMAT_OPTIONS), options)
    if schema is not None:
        return factory.finish(schema)
    try:
        union_schema = factory.inspect(promote_options="permissive")
    except TypeError:
        # Old versions of pyarrow inspect only the first file, and do not have the parameter ``promote_options``. Each
        # file is therefore inspected on its own.
        schemas = [
            ds.FileSystemDatasetFactory(filesystem, [f], ds.ParquetFileFormat(**_FORMAT_OPTIONS)).inspect()
            for f in files
        ]
        union_schema = pa.unify_schemas([*schemas, factory.inspect()], promote_options="permissive")
    return factory.finish(_with_instants(union_schema, factory.finish(union_schema)))


def _with_instants(schema: pa.Schema, dataset: ds.FileSystemDataset) -> pa.Schema:
    """Return ``schema`` with the type ``timestamp[us, UTC]`` for each column that is INT96 in the first file of
    ``dataset``. This is the type of instants, and Spark reads INT96 as instants.
    """
    first_file = next(iter(dataset.get_fragments()), None)
    if first_file is None:
        return schema
    for name in int96_columns(first_file.metadata):
        schema = schema.set(schema.get_field_index(name), pa.field(name, _INSTANT))
    return schema


def paths_of(value: Any) -> list[str]:
    """Return ``value``, which is one path or a sequence of paths, as a list of texts. Raise ``TypeError`` for other
    values, and ``ValueError`` for an empty path.
    """
    paths = [value] if isinstance(value, str | os.PathLike) else value
    if not isinstance(paths, Sequence) or not all(isinstance(path, str | os.PathLike) for path in paths):
        raise TypeError(f"paths must be a path or URI, or a list of them; got {value!r}")
    if not all(os.fspath(path) for path in paths):
        raise ValueError("a path to scan must not be empty; name a file or folder")
    return [os.fspath(path) for path in paths]


def expression_of(filters: Filters | None) -> pc.Expression | None:
    """Return filters as an expression of pyarrow, or None without filters. Raise ``ValueError`` if the filters cannot
    be read.
    """
    if filters is None or isinstance(filters, pc.Expression):
        return filters
    try:
        return pq.filters_to_expression(filters)
    except (TypeError, ValueError, IndexError, pa.ArrowException):
        raise ValueError(
            f"cannot read the filters {filters!r}; write tuples such as [('host', '=', 'a')], or a pyarrow expression"
        ) from None


def filesystem_paths(paths: list[str], filesystem: fs.FileSystem | None) -> tuple[list[str], fs.FileSystem]:
    """Return the paths within their filesystem, such as ``bucket/folder`` for ``s3://bucket/folder``, and the
    filesystem. Without the argument ``filesystem``, the filesystem is derived from the paths. Raise ``ValueError`` if
    the paths lie in different filesystems.
    """
    if not paths:
        raise ValueError("the argument paths is empty; name at least one file or folder")
    if filesystem is not None:
        return paths, filesystem
    try:
        located_paths = [_filesystem_and_path(path) for path in paths]
    except (pa.ArrowException, ValueError, OSError) as error:
        raise ValueError(
            f"cannot open {', '.join(paths)}: {str(error).splitlines()[0]}; check the paths, or pass filesystem"
        ) from None
    if any(other_filesystem != located_paths[0][0] for other_filesystem, _ in located_paths):
        raise ValueError(
            f"all paths of one scan must lie in one filesystem; got {', '.join(paths)}; scan each filesystem separately"
        )
    return [path for _, path in located_paths], located_paths[0][0]


def _filesystem_and_path(path: str) -> tuple[fs.FileSystem, str]:
    """Return the filesystem of a path or URI, and the path in this filesystem. Only texts with ``://`` are URIs."""
    if "://" not in path:
        return fs.LocalFileSystem(), str(Path(path).absolute())
    # Spark's URIs of files contain letters such as ü, which Arrow accepts only as percent-encoded bytes.
    ascii_uri = re.sub(r"[^\x00-\x7f]+", lambda match: quote(match[0]), path)
    return fs.FileSystem.from_uri(ascii_uri)  # type: ignore[no-any-return]


def files_in(path: str, filesystem: fs.FileSystem) -> list[str]:
    """Return the sorted paths of all files in a folder and its subfolders. For the path of a file, return this path
    alone. As in Spark, empty files are skipped, and so are files and folders whose names begin with _ or a dot. Raise
    ``FileNotFoundError`` if there are no files.
    """
    info = filesystem.get_file_info(path)
    if info.type == fs.FileType.File:
        return [info.path]
    if info.type == fs.FileType.NotFound:
        raise FileNotFoundError(f"there is no file or folder {path}; check the path")
    entries = filesystem.get_file_info(fs.FileSelector(path, recursive=True))
    names = sorted(
        entry.path
        for entry in entries
        if entry.is_file and not re.search(r"/[_.]", entry.path[len(info.path.rstrip("/")) :]) and entry.size
    )
    if not names:
        raise FileNotFoundError(
            f"there are no files in {path}; empty files, and those whose names begin with _ or a dot, are not read"
        )
    return names


def _partitioning(partitioning: Partitioning) -> Any:
    if partitioning == "hive":
        return ds.HivePartitioning.discover(infer_dictionary=False)
    if partitioning is not None and not isinstance(partitioning, ds.Partitioning | ds.PartitioningFactory):
        raise ValueError(f"partitioning must be 'hive', a pyarrow.dataset partitioning or None; got {partitioning!r}")
    return partitioning


def _dictionary_encoded(column: pa.Field) -> pa.Field:
    return column.with_type(pa.dictionary(pa.int32(), column.type))


def scanner(
    data: ds.Dataset | ds.Fragment, schema: pa.Schema, columns: Sequence[str], filters: pc.Expression | None
) -> ds.Scanner:
    """Return a scanner that reads the columns ``columns`` of the rows that pass ``filters``. The scanner reads files in
    the calling thread. It reads at most one batch in advance.
    """
    settings = {"columns": list(columns), "filter": filters, "batch_size": REDUCE_ROWS, "use_threads": False}
    readahead = {"batch_readahead": 1, "fragment_readahead": 1}
    if isinstance(data, ds.Dataset):
        return ds.Scanner.from_dataset(data, **settings, **readahead)
    return ds.Scanner.from_fragment(data, schema=schema, **settings, **readahead)
