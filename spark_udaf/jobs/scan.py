"""scan_parquet: Parquet files that the tasks read themselves, so that rows never pass through the JVM."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as fs
import pyarrow.parquet as pq

from spark_udaf.jobs.schema import spark_schema
from spark_udaf.jobs.session import check_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Batches = Iterator[pa.RecordBatch]
Filters: TypeAlias = pc.Expression | Sequence[tuple[str, str, Any]] | Sequence[Sequence[tuple[str, str, Any]]]

_BATCH_ROWS = 1 << 18  # what is reduced at once, as in `aggr.states.partial_aggregation`
_READERS = 16  # threads that read footers: they wait for an object store, not for the processor
_LAYOUT = {"coerce_int96_timestamp_unit": "us"}  # timestamps as Spark writes them, which it holds in microseconds


@dataclass(frozen=True)
class Piece:
    """Some row groups of one file, and what the names of its folders say."""

    path: str
    groups: list[int]
    folders: pc.Expression


@dataclass(frozen=True)
class ParquetScan:
    """Parquet files to be read inside Spark's Python workers; `scan_parquet` makes it."""

    spark: SparkSession
    dataset: ds.FileSystemDataset = field(repr=False)
    filters: pc.Expression | None
    rows_per_task: int

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows, columns of partitioned folders included."""
        return self.dataset.schema

    @property
    def partitions(self) -> int:
        """How many tasks read the files."""
        return max(1, len(self.tasks))

    @cached_property
    def tasks(self) -> list[list[Piece]]:
        """What each task reads: row groups, neighbours together, of some `rows_per_task` rows."""
        fragments = list(self.dataset.get_fragments(filter=self.filters))
        with ThreadPoolExecutor(_READERS) as pool:  # reads the files' footers
            groups = [
                (f, group)
                for f, found in zip(fragments, pool.map(self._groups, fragments), strict=True)
                for group in found
            ]
        tasks: list[list[Piece]] = []
        room = 0
        for fragment, group in groups:
            if not tasks or room < group.num_rows:
                tasks.append([])
                room = self.rows_per_task
            room -= group.num_rows
            pieces = tasks[-1]
            if pieces and pieces[-1].path == fragment.path:
                pieces[-1].groups.append(group.id)
            else:
                pieces.append(Piece(fragment.path, [group.id], fragment.partition_expression))
        return tasks

    def map(
        self, columns: Sequence[str], keys: Sequence[str], reduce: Callable[[Batches], Batches], schema: pa.Schema
    ) -> DataFrame:
        """Run ``reduce`` over each task's batches, with the named columns only; keys come as codes."""
        tasks, filesystem, filters = self.tasks, self.dataset.filesystem, self.filters
        folders = {name for task in tasks for piece in task for name in ds.get_partition_keys(piece.folders)}
        inside = [name for name in keys if name not in folders]  # the name of a folder is one text for all of its rows
        texts = [name for name in inside if pa.types.is_string(self.schema.field(name).type)]
        coded = pa.schema([_coded(f) if f.name in texts else f for f in self.schema])

        def rows(pieces: list[Piece]) -> Batches:
            layout = ds.ParquetFileFormat(dictionary_columns=texts, **_LAYOUT)
            for piece in pieces:
                fragment = layout.make_fragment(piece.path, filesystem, piece.folders, row_groups=piece.groups)
                yield from _scanner(fragment, coded, columns, filters).to_batches()

        def read(numbers: Batches) -> Batches:
            for batch in numbers:
                for number in batch.column(0).to_pylist():
                    yield from reduce(rows(tasks[number]))

        numbers = self.spark.range(0, len(tasks), 1, self.partitions)
        return numbers.mapInArrow(read, spark_schema(schema))

    def _groups(self, fragment: ds.ParquetFileFragment) -> list[Any]:
        """List a file's row groups but those that no row can match in."""
        kept = fragment if self.filters is None else fragment.subset(self.filters, schema=self.schema)
        return list(kept.row_groups)

    def __repr__(self) -> str:
        """Say how many files and rows there are."""
        only = "" if self.filters is None else f" where {self.filters}"
        return f"ParquetScan({len(self.dataset.files):,} files{only}, {self.rows_per_task:,} rows a task)"


def scan_parquet(
    spark: SparkSession,
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    filters: Filters | None = None,
    filesystem: fs.FileSystem | None = None,
    partitioning: str | ds.Partitioning | None = "hive",
    rows_per_task: int = 5_000_000,
) -> ParquetScan:
    """Scan Parquet files inside the Python workers: the fast way into `rollup` and `aggregate`.

    Parameters
    ----------
    spark : SparkSession
        Classic or Connect.
    paths : path or URI, or several
        Files or folders; object stores as ``s3://…``, ``gs://…``, ``abfs://…`` or whatever
        `pyarrow.fs.FileSystem.from_uri` reads. The driver and every worker must reach them.
    filters : pyarrow expression, or tuples such as ``[("host", "=", "a")]``
        Only these rows. Folders and row groups that hold none are not read.
    filesystem : pyarrow filesystem, optional
        For stores that need settings of their own; paths are then paths in it.
    partitioning : "hive", a pyarrow partitioning, or None
        How the names of folders become columns.
    rows_per_task : int
        Row groups are joined into tasks of so many rows; a row group is never split.

    Returns
    -------
    ParquetScan
        To be given to `rollup` or `aggregate` instead of a DataFrame. The states are the same, bit for bit.

    Raises
    ------
    FileNotFoundError
        If there is nothing at a path.
    ValueError
        If a filter names no column of the files, or ``rows_per_task`` is not above 0.

    Guarantee
    ---------
    A worker holds one batch of rows at a time beside its states, whatever the size of the files.

    Examples
    --------
    The docs have one that runs::

        scan = su.scan_parquet(spark, "s3://logs/requests/", filters=[("day", ">=", "2024-05-01")])
        states = su.rollup(scan, frame)
    """
    if isinstance(rows_per_task, bool) or not isinstance(rows_per_task, int) or rows_per_task < 1:
        raise ValueError(f"rows_per_task must be a whole number from 1; got {rows_per_task!r}")
    check_session(spark)
    filters = _expression(filters)
    if filesystem is not None and not isinstance(filesystem, fs.FileSystem):
        raise TypeError(f"filesystem must be one of pyarrow.fs; got {filesystem!r}")
    places, filesystem = _places(_paths(paths), filesystem)
    files = [file for place in places for file in _files(place, filesystem)]
    options = ds.FileSystemFactoryOptions(partitioning=_partitioning(partitioning))
    try:
        factory = ds.FileSystemDatasetFactory(filesystem, files, ds.ParquetFileFormat(**_LAYOUT), options)
        dataset = factory.finish(factory.inspect(promote_options="permissive"))  # of all files: columns may come late
        scan = ParquetScan(spark, dataset, filters, rows_per_task)
        _scanner(dataset, scan.schema, scan.schema.names, filters)  # a filter must name columns that there are
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise ValueError(f"cannot scan {', '.join(places)}: {str(error).splitlines()[0]}") from None
    return scan


def _paths(given: Any) -> list[str]:
    paths = [given] if isinstance(given, str | os.PathLike) else given
    if not isinstance(paths, Sequence) or not all(isinstance(path, str | os.PathLike) for path in paths):
        raise TypeError(f"paths must be a path or URI, or a list of them; got {given!r}")
    if not all(os.fspath(path) for path in paths):
        raise ValueError("a path to scan is empty; name a file or folder")
    return [os.fspath(path) for path in paths]


def _expression(filters: Filters | None) -> pc.Expression | None:
    if filters is None or isinstance(filters, pc.Expression):
        return filters
    try:
        return pq.filters_to_expression(filters)
    except (TypeError, ValueError, IndexError, pa.ArrowException):
        raise ValueError(
            f"cannot read the filters {filters!r}; write tuples such as [('host', '=', 'a')], or a pyarrow expression"
        ) from None


def _places(paths: list[str], filesystem: fs.FileSystem | None) -> tuple[list[str], fs.FileSystem]:
    """Find the filesystem of paths or URIs, which must have one, and the paths in it."""
    if not paths:
        raise ValueError("name at least one file or folder to scan")
    if filesystem is not None:
        return paths, filesystem
    try:
        found = [fs.FileSystem.from_uri(path if "://" in path else Path(path).absolute().as_uri()) for path in paths]
    except (pa.ArrowException, ValueError, OSError) as error:
        raise ValueError(f"cannot reach {', '.join(paths)}: {str(error).splitlines()[0]}") from None
    if any(other != found[0][0] for other, _ in found):
        raise ValueError(f"all paths of one scan must lie in one store; got {', '.join(paths)}")
    return [unquote(place) if "://" not in path else place for (_, place), path in zip(found, paths, strict=True)], (
        found[0][0]
    )


def _files(place: str, filesystem: fs.FileSystem) -> list[str]:
    """List the files of a folder as Spark does: none whose name, or whose folder's, begins with _ or a dot."""
    info = filesystem.get_file_info(place)
    if info.type == fs.FileType.File:
        return [info.path]
    if info.type == fs.FileType.NotFound:
        raise FileNotFoundError(f"there is nothing at {place}")
    inside = filesystem.get_file_info(fs.FileSelector(place, recursive=True))
    names = sorted(
        entry.path
        for entry in inside
        if entry.is_file and not re.search(r"/[_.]", entry.path[len(info.path.rstrip("/")) :]) and entry.size
    )
    if not names:
        raise FileNotFoundError(f"there are no files in {place}")
    return names


def _partitioning(given: str | ds.Partitioning | None) -> Any:
    if given == "hive":
        return ds.HivePartitioning.discover(infer_dictionary=False)
    if given is not None and not isinstance(given, ds.Partitioning | ds.PartitioningFactory):
        raise ValueError(f"partitioning must be 'hive', a pyarrow.dataset partitioning or None; got {given!r}")
    return given


def _coded(column: pa.Field) -> pa.Field:
    return column.with_type(pa.dictionary(pa.int32(), column.type))


def _scanner(
    data: ds.Dataset | ds.Fragment, schema: pa.Schema, columns: Sequence[str], filters: pc.Expression | None
) -> ds.Scanner:
    """Read ahead by no more than a batch, on this thread."""
    settings = {"columns": list(columns), "filter": filters, "batch_size": _BATCH_ROWS, "use_threads": False}
    ahead = {"batch_readahead": 1, "fragment_readahead": 1}
    if isinstance(data, ds.Dataset):
        return ds.Scanner.from_dataset(data, **settings, **ahead)
    return ds.Scanner.from_fragment(data, schema=schema, **settings, **ahead)
