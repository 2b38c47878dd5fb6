"""scan_parquet_stream: a stream of the Parquet files that arrive in a folder, read by Spark's Python workers.

Spark lists the folder, selects the files of a batch, and records them in its checkpoint, so that each file is read in
only one batch. Spark passes only the paths of the files to the tasks, which read the rows with pyarrow and reduce them
to states. With the states, the tasks return the latest event time, from which Spark computes the watermark.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as fs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from aggr.arguments import checked_mapping, checked_type, checked_whole
from aggr.arrow import versions
from aggr.duration import read_duration
from spark_udaf.plan.columns import Batches
from spark_udaf.plan.engine import Feature, check_supports
from spark_udaf.plan.parquet_files import (
    Filters,
    Partitioning,
    Piece,
    Selection,
    columns_in_files,
    dataset_of,
    expression_of,
    files_in,
    filesystem_paths,
    paths_of,
    scanner,
)
from spark_udaf.plan.scan import ParquetScan
from spark_udaf.plan.schema import spark_schema
from spark_udaf.plan.session import check_session, shuffle_partitions
from spark_udaf.plan.shards import choose_shuffle_keys
from spark_udaf.streaming.source import Read, Reduce
from spark_udaf.versions.same_version import TaskFunction
from tiltframe.event_time import INSTANT, event_times

# The schema of Spark's source ``binaryFile``, which reads files as bytes.
_FILE_SCHEMA = "path string, modificationTime timestamp, length bigint, content binary"
_PATH = "path"
_LENGTH = "length"
_SHARE = "share"
_LATEST = pa.field("latest", INSTANT)


@dataclass(frozen=True)
class ArrivingFiles:
    """The folder in which files arrive, and the columns and rows to read. The object can be pickled for the tasks."""

    # The path or URI under which Spark reads the folder.
    folder: str

    # The path of the folder in ``filesystem``.
    folder_path: str
    filesystem: fs.FileSystem

    # The schema of the rows, including partition columns, whose values are in the names of folders.
    schema: pa.Schema

    # A condition on rows. None selects all rows.
    filters: pc.Expression | None

    # The way in which names of folders, such as ``day=2024-05-01``, become columns.
    partitioning: Partitioning

    def dataset(self, paths: Iterable[str]) -> ds.FileSystemDataset:
        """Return a dataset of the files with the paths ``paths``, which Spark has listed."""
        files = sorted(map(self.path_of, paths))
        return dataset_of(files, self.filesystem, self.partitioning, schema=self.schema, base=self.folder_path)

    def scan(self, spark: SparkSession, paths: Iterable[str]) -> ParquetScan:
        """Return a scan of the files of one batch. ``paths`` are the paths of the files, which Spark has listed."""
        return ParquetScan(spark, self.dataset(paths), self.filters, None)

    def path_of(self, path: str) -> str:
        """Return the path that a file has in ``filesystem``. ``path`` is the path or URI that Spark has listed."""
        relative_path = _path_in_uri(path).removeprefix(_path_in_uri(self.folder).rstrip("/"))
        return self.folder_path.rstrip("/") + relative_path

    def pieces_of_share(self, lengths: Mapping[str, int], share: int, shares: int) -> list[Piece]:
        """Return the parts of files that one task reads in a batch. ``share`` is the index of the task, and ``shares``
        is the number of tasks.

        ``lengths`` maps the path of each file of the batch to its size in bytes.
        """
        lengths_by_path = {self.path_of(path): length for path, length in lengths.items()}
        fragments = list(self.dataset(lengths).get_fragments(filter=self.filters))
        file_lengths = [lengths_by_path[f.path] for f in fragments]

        def sizes(index: int) -> list[int]:
            return [group.total_byte_size for group in fragments[index].row_groups]

        pieces = share_of(file_lengths, sizes, share, shares)
        return [Piece(fragments[index].path, groups, fragments[index].partition_expression) for index, groups in pieces]


@dataclass(frozen=True)
class ParquetStream:
    """Parquet files that arrive in a folder, to be read in Spark's Python workers; see `scan_parquet_stream`."""

    spark: SparkSession
    files: ArrivingFiles = field(repr=False)
    delay_us: int | None
    options: Mapping[str, str]
    tasks: int

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows, including partition columns, whose values are in the names of folders."""
        return self.files.schema

    def input_schema(self, select_names: Read) -> pa.Schema:
        """Return the schema of the rows of the files. ``select_names`` is ignored."""
        return self.schema

    def delay_of(self, time: str) -> int | None:
        """Return the delay in microseconds of the watermark behind the latest event time in the files. Return None
        without a watermark. ``time`` is ignored.
        """
        return self.delay_us

    @property
    def has_watermark(self) -> bool:
        """Whether a watermark was declared for the stream."""
        return self.delay_us is not None

    def paths(self) -> DataFrame:
        """Return a stream of the paths of files and their sizes in bytes. Spark does not read the contents of files."""
        reader = self.spark.readStream.format("binaryFile").schema(_FILE_SCHEMA).options(**self.options)
        return reader.load(self.files.folder).select(_PATH, _LENGTH)

    def map(
        self,
        columns: Sequence[str],
        keys: Sequence[str],
        *,
        time: str,
        timezone: str,
        reduce: Reduce,
        schema: pa.Schema,
    ) -> DataFrame:
        """Return a streaming DataFrame of messages: rows with the columns of ``schema``, such as states.

        Each task reads its share of the files of a batch, with only the columns ``columns``. It calls ``reduce`` with
        these rows and with the index of the share. The batches that ``reduce`` yields are the messages.

        Each message also contains the latest event time that the task has read so far. Spark computes the watermark
        from these times. Event times are in the column ``time``. If this column contains dates, they are days in
        ``timezone``.
        """
        files = self.files
        tasks = self.tasks
        # Every task receives the paths of all files of a batch, and reads one share of their bytes. To send all paths
        # to every task, each path is repeated once per task with the shuffle key of this task, and Spark partitions the
        # repeated paths by the shuffle key. Each shuffle key belongs to a different partition.
        keys_of_shares = choose_shuffle_keys(tasks, tasks).tolist()
        shares = {key: share for share, key in enumerate(keys_of_shares)}

        def read(batches: Batches) -> Batches:
            file_rows = [row for batch in batches for row in batch.to_pylist()]
            if file_rows:
                lengths = {row[_PATH]: row[_LENGTH] for row in file_rows}
                share = shares[file_rows[0][_SHARE]]
                pieces = files.pieces_of_share(lengths, share, tasks)
                key_columns = columns_in_files(keys, (piece.partition_condition for piece in pieces))
                selection = Selection(
                    schema=files.schema,
                    columns=columns,
                    keys=key_columns,
                    filters=files.filters,
                    filesystem=files.filesystem,
                )
                rows = selection.rows(pieces)
                latest: int | None = None

                def track_latest() -> Batches:
                    nonlocal latest
                    for batch in rows:
                        if batch.num_rows:
                            newest = int(event_times(batch.column(time), time, timezone).max())
                            latest = newest if latest is None else max(newest, latest)
                        yield batch

                for batch in reduce(track_latest(), share):
                    latest_column = pa.array([latest] * batch.num_rows, pa.int64()).cast(_LATEST.type)
                    yield versions.append_column(batch, _LATEST, latest_column)

        shares_of_files = self.paths().withColumn(_SHARE, F.explode(F.array(*map(F.lit, keys_of_shares))))
        messages = shares_of_files.repartition(tasks, _SHARE).mapInArrow(
            TaskFunction(read), spark_schema(schema.append(_LATEST))
        )
        if self.delay_us is not None:
            messages = messages.withWatermark(_LATEST.name, f"{self.delay_us} microseconds")
        return messages.select(*schema.names)

    def __repr__(self) -> str:
        only = "" if self.files.filters is None else f" where {self.files.filters}"
        return f"ParquetStream({self.files.folder}{only})"


def share_of(
    lengths: Sequence[int], sizes: Callable[[int], Sequence[int]], share: int, shares: int
) -> list[tuple[int, list[int] | None]]:
    """Return the files and row groups that task ``share`` of ``shares`` tasks reads. All tasks read about the same
    number of bytes, and each row group is read by one task.

    The result is a list of pairs: the index of a file, and the indices of its row groups, or None for the complete
    file. ``lengths`` contains the size of each file in bytes. ``sizes`` receives the index of a file, and returns the
    sizes of its row groups in bytes; it is called only for a file that several tasks read.

    >>> groups = lambda at: [10, 10, 10]
    >>> [share_of([5, 30], groups, share, 2) for share in range(2)]
    [[(0, None), (1, [0])], [(1, [1, 2])]]
    """
    total = max(sum(lengths), 1)

    def share_at(byte: int) -> int:
        return min(byte * shares // total, shares - 1)

    pieces: list[tuple[int, list[int] | None]] = []
    end = 0
    for index, length in enumerate(lengths):
        begin = end
        end = end + length
        if share_at(begin) == share_at(max(end - 1, begin)):
            if share_at(begin) == share:
                pieces.append((index, None))
            continue
        totals = list(accumulate(sizes(index)))
        middles = (
            begin + length * (2 * total - size) // (2 * totals[-1])
            for total, size in zip(totals, sizes(index), strict=True)
        )
        groups = [group for group, middle in enumerate(middles) if share_at(middle) == share]
        if groups:
            pieces.append((index, groups))
    return pieces


def scan_parquet_stream(
    spark: SparkSession,
    folder: str | os.PathLike[str],
    *,
    watermark: str | None = None,
    schema: pa.Schema | None = None,
    filters: Filters | None = None,
    filesystem: fs.FileSystem | None = None,
    partitioning: Partitioning = "hive",
    options: Mapping[str, str] | None = None,
    tasks: int | None = None,
) -> ParquetStream:
    """Return a stream of the Parquet files that arrive in a folder. The Python workers read them. It is a fast input of
    `stream` and `stream_into`.

    Parameters
    ----------
    spark : SparkSession
        Classic or Connect.
    folder : path or URI
        A folder that is accessible to Spark, the driver and every worker; ``s3://`` is passed to Spark as ``s3a://``.
        Files must be complete when they appear in the folder.
    watermark : duration, optional
        The delay of the watermark behind the latest event time, such as ``10s``, like ``df.withWatermark``. Without
        it, there is no watermark.
    schema : pyarrow schema, optional
        The schema of the rows, including partition columns, whose values are in the names of folders. The default is
        the schema of the existing files. If a file lacks a column, the column is null in the rows of this file.
    filters : pyarrow expression, or tuples such as ``[("host", "=", "a")]``
        The rows to read.
    filesystem : pyarrow filesystem, optional
        The filesystem of the folder, if it needs settings that a URI does not contain.
    partitioning : "hive", a pyarrow partitioning, or None
        The conversion of folder names to columns, as in `scan_parquet`.
    options : names and values
        Options of Spark's file source, such as ``{"maxFilesPerTrigger": "8"}``.
    tasks : int, optional
        The number of tasks per batch. All tasks of a batch read about the same number of bytes. The default is
        ``spark.sql.shuffle.partitions``. The fastest choice is the number of cores.

    Returns
    -------
    ParquetStream
        An argument of `stream` or `stream_into` instead of a streaming DataFrame. The results equal, bit for bit, the
        results of a streaming DataFrame with the same rows.

    Raises
    ------
    FileNotFoundError
        If the folder does not exist.
    ValueError, TypeError
        If an argument cannot be read, or the folder is empty and ``schema`` is missing.

    Guarantee
    ---------
    Each file is read in one batch. A repeated batch reads the same files, whose paths are in Spark's checkpoint. In the
    progress of the query, ``numInputRows`` is the number of files times the number of tasks.

    Examples
    --------
    docs/streams.md has a tested example::

        requests = su.scan_parquet_stream(spark, "s3://logs/requests/", watermark="10s")
        emitted = su.stream(requests, frame)
    """
    check_session(spark)
    check_supports(spark, Feature.STREAMS, "a stream of files", "use Spark, or tiltframe stream")
    if isinstance(partitioning, ds.PartitioningFactory):
        raise ValueError(
            "a partitioning that infers its schema cannot be sent to tasks; pass 'hive', or a partitioning with a "
            "schema"
        )
    delay = None if watermark is None else read_duration(watermark, "delay of the watermark")
    source_options = {} if options is None else options
    settings = dict(checked_mapping(source_options, "options", "settings of Spark's source of files"))
    task_count = shuffle_partitions(spark) if tasks is None else checked_whole(tasks, "tasks", 1, 10_000)
    (path,) = paths_of([folder])
    spark_folder, folder_path, filesystem = _locate_folder(path, filesystem)
    condition = expression_of(filters)
    if schema is None:
        schema = _schema_of(folder_path, filesystem, partitioning)
    checked_type(schema, pa.Schema, "schema")
    files = ArrivingFiles(
        folder=spark_folder,
        folder_path=folder_path,
        filesystem=filesystem,
        schema=schema,
        filters=condition,
        partitioning=partitioning,
    )
    try:
        no_files = files.dataset([])
        # The scanner raises an error if a filter names a missing column.
        scanner(no_files, schema, schema.names, condition)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise ValueError(
            f"cannot scan {path}: {str(error).splitlines()[0]}; correct the filters, the schema or the files"
        ) from None
    texts = {name: str(value) for name, value in settings.items()}
    return ParquetStream(spark=spark, files=files, delay_us=delay, options=texts, tasks=task_count)


def _locate_folder(path: str, filesystem: fs.FileSystem | None) -> tuple[str, str, fs.FileSystem]:
    """Return three values: the URI under which Spark reads a folder, the path of the folder in pyarrow's filesystem,
    and this filesystem. Raise an error if ``path`` has wildcards or is not an existing folder.
    """
    if re.search(r"[*?{\[]", path):
        raise ValueError(
            f"folder must be one folder, without wildcards; got {path!r}; pass options={{'pathGlobFilter': …}} to "
            "select files in a folder"
        )
    if filesystem is None:
        (folder_path,), filesystem = filesystem_paths([re.sub("^s3[an]://", "s3://", path)], None)
    elif "://" not in path:
        folder_path = path
    else:
        folder_path = _path_in_uri(path) if re.match("(file|hdfs)://", path) else path.split("://")[1]
    if filesystem.get_file_info(folder_path).type != fs.FileType.Directory:
        raise FileNotFoundError(f"the folder {path} does not exist; create it before the stream starts")
    if isinstance(filesystem, fs.LocalFileSystem):
        return f"file://{Path(folder_path).absolute()}", str(Path(folder_path).absolute()), filesystem
    return re.sub("^s3n?://", "s3a://", path), folder_path, filesystem


def _schema_of(folder_path: str, filesystem: fs.FileSystem, partitioning: Partitioning) -> pa.Schema:
    try:
        return dataset_of(files_in(folder_path, filesystem), filesystem, partitioning, base=folder_path).schema
    except FileNotFoundError as error:
        raise ValueError(
            f"the schema cannot be read, because {error}; pass schema=, the schema of future files"
        ) from None
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise ValueError(
            f"cannot scan {folder_path}: {str(error).splitlines()[0]}; correct the filters, the schema or the files"
        ) from None


def _path_in_uri(path: str) -> str:
    """Return the path in a URI, without its scheme and host: ``/a b`` for ``file:///a b`` and ``file:/a b``."""
    return re.sub("^[A-Za-z0-9+.-]+:(//[^/]*)?", "", path)
