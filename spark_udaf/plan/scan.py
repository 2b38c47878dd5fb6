"""scan_parquet: Parquet files that the tasks read themselves, so that rows never pass through the JVM."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as fs

from spark_udaf.plan.exclusive_times import RowGroup, Span, exclusive_times, span_of
from spark_udaf.plan.parquet_files import (
    Batches,
    Filters,
    Partitioning,
    Piece,
    Selection,
    dataset_of,
    expression_of,
    files_in,
    paths_of,
    places_of,
    scanner,
    without_folders,
)
from spark_udaf.plan.parquet_times import time_problem
from spark_udaf.plan.schema import spark_schema
from spark_udaf.plan.session import check_session, parallelism

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MOST_ROWS = 10_000_000  # of a task, so that one that fails is soon done again, and cores that are faster do more
_LEAST_ROWS = 250_000  # of a task: reducing so many takes as long as starting it
_ROWS = 5_000_000  # of a task, where it is not known how many run at once
_REBASE_SETTING = "spark.sql.parquet.datetimeRebaseModeInRead"
_READERS = 16  # threads that read footers: they wait for an object store, not for the processor


@dataclass(frozen=True)
class ParquetScan:
    """Parquet files to be read inside Spark's Python workers; `scan_parquet` makes it."""

    spark: SparkSession
    dataset: ds.FileSystemDataset = field(repr=False)
    filters: pc.Expression | None
    rows_per_task: int | None

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows, columns of partitioned folders included."""
        return self.dataset.schema

    @property
    def partitions(self) -> int:
        """How many tasks read the files."""
        return len(self.tasks)

    @cached_property
    def tasks(self) -> list[list[Piece]]:
        """What each task reads: row groups, neighbours together, of about as many rows each."""
        return [_pieces(groups) for groups in self._shared_out]

    def exclusive_times(self, time: str, timezone: str = "UTC") -> list[Span | None] | None:
        """Tell which event times each task alone reads; None if statistics do not tell, or no task has such."""
        dtype = self.schema.field(time).type
        spans = [span_of(groups, time, dtype, timezone) for groups in self._shared_out]
        known_spans = [span for span in spans if span is not None]
        exclusive = exclusive_times(known_spans) if len(known_spans) == len(spans) else []
        return exclusive if any(exclusive) else None

    def check_times(self) -> None:
        """Raise ``ValueError`` for a file whose dates or times Spark reads as others than Arrow does."""
        if not any(pa.types.is_temporal(field.type) for field in self.schema):
            return
        setting = self.spark.conf.get(_REBASE_SETTING, None)
        with ThreadPoolExecutor(_READERS) as pool:
            problems = list(pool.map(partial(time_problem, setting=setting), self._fragments))
        for fragment, problem in zip(self._fragments, problems, strict=True):
            if problem is not None:
                raise ValueError(
                    f"{fragment.path} {problem}, and Spark reads its times as others than tasks do; give "
                    "the DataFrame, spark.read.parquet(…), in place of the files"
                )

    @cached_property
    def _fragments(self) -> list[ds.ParquetFileFragment]:
        """The files that may hold rows of the filter; each reads its footer once."""
        return list(self.dataset.get_fragments(filter=self.filters))

    @cached_property
    def _shared_out(self) -> list[list[RowGroup]]:
        """The row groups of each task."""
        self.check_times()
        fragments = self._fragments
        with ThreadPoolExecutor(_READERS) as pool:  # reads the files' footers
            groups = [
                (f, group)
                for f, row_groups in zip(fragments, pool.map(self._groups, fragments), strict=True)
                for group in row_groups
            ]
        ends = np.cumsum([group.num_rows for _, group in groups])
        count = self._count_tasks(int(ends[-1]) if len(ends) else 0)
        middles = ends - np.diff(ends, prepend=0) / 2
        tasks: list[list[RowGroup]] = [[] for _ in range(count)]
        for (fragment, group), middle in zip(groups, middles.tolist(), strict=True):
            tasks[min(int(middle * count / max(int(ends[-1]), 1)), count - 1)].append((fragment, group.id))
        return [task for task in tasks if task]

    def _count_tasks(self, rows: int) -> int:
        """Choose how many tasks read so many rows: one for each that runs at once, or as many times several."""
        if self.rows_per_task is not None:
            return max(1, -(-rows // self.rows_per_task))
        cores = parallelism(self.spark)
        if cores is None:
            return max(1, -(-rows // _ROWS))
        return max(1, min(cores * -(-rows // (cores * _MOST_ROWS)), -(-rows // _LEAST_ROWS)))

    def map(
        self,
        columns: Sequence[str],
        keys: Sequence[str],
        function: Callable[[Batches, int], Batches],
        schema: pa.Schema,
    ) -> DataFrame:
        """Run a function over each task's batches, with the named columns only; keys come as codes."""
        tasks = self.tasks
        plain = without_folders(keys, (piece.folders for task in tasks for piece in task))
        selection = Selection(self.schema, columns, plain, self.filters, self.dataset.filesystem)

        def read(numbers: Batches) -> Batches:
            for batch in numbers:
                for number in batch.column(0).to_pylist():
                    yield from function(selection.rows(tasks[number]), number)

        numbers = self.spark.range(0, len(tasks), 1, max(1, len(tasks)))
        return numbers.mapInArrow(read, spark_schema(schema))

    def _groups(self, fragment: ds.ParquetFileFragment) -> list[Any]:
        """List a file's row groups but those that no row can match in."""
        matching = fragment if self.filters is None else fragment.subset(self.filters, schema=self.schema)
        return list(matching.row_groups)

    def __repr__(self) -> str:
        """Say how many files and rows there are."""
        only = "" if self.filters is None else f" where {self.filters}"
        rows = "" if self.rows_per_task is None else f", {self.rows_per_task:,} rows a task"
        return f"ParquetScan({len(self.dataset.files):,} files{only}{rows})"


def _pieces(groups: Sequence[RowGroup]) -> list[Piece]:
    """Join row groups that are neighbours in a file."""
    pieces: list[Piece] = []
    for fragment, group in groups:
        if not pieces or pieces[-1].path != fragment.path:
            chosen: list[int] = []
            pieces.append(Piece(fragment.path, chosen, fragment.partition_expression))
        chosen.append(group)
    return pieces


def scan_parquet(
    spark: SparkSession,
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    filters: Filters | None = None,
    filesystem: fs.FileSystem | None = None,
    partitioning: Partitioning = "hive",
    rows_per_task: int | None = None,
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
    rows_per_task : int, optional
        Row groups are joined into tasks of some so many rows; a row group is never split. Unless given, there is a task
        for each core of the session's, or where that is more than 10 million rows a task, a multiple of it; 5 million
        rows a task where the settings do not tell how many cores there are.

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
    A worker holds one batch of rows at a time next to its states, whatever the size of the files; of files that each
    have rows of all times, up to 256 MiB of rows.

    Examples
    --------
    The docs have one that runs::

        scan = su.scan_parquet(spark, "s3://logs/requests/", filters=[("day", ">=", "2024-05-01")])
        states = su.rollup(scan, frame)
    """
    if rows_per_task is not None and (
        isinstance(rows_per_task, bool) or not isinstance(rows_per_task, int) or rows_per_task < 1
    ):
        raise ValueError(f"rows_per_task must be a whole number from 1; got {rows_per_task!r}")
    check_session(spark)
    filters = expression_of(filters)
    if filesystem is not None and not isinstance(filesystem, fs.FileSystem):
        raise TypeError(f"filesystem must be one of pyarrow.fs; got {filesystem!r}")
    places, filesystem = places_of(paths_of(paths), filesystem)
    files = [file for place in places for file in files_in(place, filesystem)]
    try:
        dataset = dataset_of(files, filesystem, partitioning)
        scan = ParquetScan(spark, dataset, filters, rows_per_task)
        scanner(dataset, scan.schema, scan.schema.names, filters)  # a filter must name columns that there are
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise ValueError(f"cannot scan {', '.join(places)}: {str(error).splitlines()[0]}") from None
    return scan
