"""scan_parquet: Parquet files that Spark's Python workers read, so that their rows are not sent through the JVM."""

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

from spark_udaf.plan.columns import Batches
from spark_udaf.plan.exclusive_times import RowGroup, Span, exclusive_times, time_bounds_of
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
from spark_udaf.plan.parquet_times import time_problem
from spark_udaf.plan.schema import spark_schema
from spark_udaf.plan.session import check_session, parallelism
from spark_udaf.versions.same_version import TaskFunction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The maximum number of rows per task. If a core has more rows to read, they are divided among several tasks. Less work
# is then repeated if a task fails, and a fast core can run more tasks than a slow one.
_MAX_ROWS = 10_000_000

# The minimum number of rows per task. To reduce so few rows takes about as long as to start a task.
_MIN_ROWS = 250_000

# The number of rows per task if the number of cores is unknown.
_DEFAULT_ROWS = 5_000_000

_REBASE_SETTING = "spark.sql.parquet.datetimeRebaseModeInRead"

# The number of threads that read the footers of files. It may exceed the number of cores, because the threads wait for
# an object store.
_FOOTER_THREADS = 16


@dataclass(frozen=True)
class ParquetScan:
    """Parquet files to be read in Spark's Python workers, created by `scan_parquet`. Only rows that pass ``filters``
    are read. Without ``rows_per_task``, the number of tasks depends on the number of cores.
    """

    spark: SparkSession
    dataset: ds.FileSystemDataset = field(repr=False)
    filters: pc.Expression | None
    rows_per_task: int | None

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows, including partition columns, whose values are in the names of folders."""
        return self.dataset.schema

    @property
    def partitions(self) -> int:
        """The number of tasks that read the files."""
        return len(self.tasks)

    @cached_property
    def tasks(self) -> list[list[Piece]]:
        """The pieces of files that each task reads, as one list per task. The pieces of a task are neighbouring row
        groups, and all tasks read about the same number of rows.
        """
        return [_pieces(groups) for groups in self._row_groups_by_task]

    def exclusive_times(self, time: str, timezone: str = "UTC") -> list[Span | None] | None:
        """Return a list with one range for each task: the times, in microseconds UTC, that no other task reads.

        The range of a task is None if other tasks may read all of its times. Return None instead of the list if a file
        lacks statistics, or if the range of every task is None.
        """
        dtype = self.schema.field(time).type
        bounds_by_task = [time_bounds_of(groups, time, dtype, timezone) for groups in self._row_groups_by_task]
        known_bounds = [bounds for bounds in bounds_by_task if bounds is not None]
        exclusive = exclusive_times(known_bounds) if len(known_bounds) == len(bounds_by_task) else []
        return exclusive if any(exclusive) else None

    def check_times(self) -> None:
        """Raise ``ValueError`` if Spark and Arrow would read different dates or times from a file."""
        if not any(pa.types.is_temporal(field.type) for field in self.schema):
            return
        rebase_mode = self.spark.conf.get(_REBASE_SETTING, None)
        with ThreadPoolExecutor(_FOOTER_THREADS) as pool:
            problems = list(pool.map(partial(time_problem, rebase_mode=rebase_mode), self._fragments))
        for fragment, problem in zip(self._fragments, problems, strict=True):
            if problem is not None:
                raise ValueError(
                    f"{fragment.path} {problem}, so Spark and the tasks would read different times from "
                    "it; pass the DataFrame, spark.read.parquet(…), in place of the files"
                )

    @cached_property
    def _fragments(self) -> list[ds.ParquetFileFragment]:
        """The files that may contain rows that pass the filter. The footer of each file is read only once."""
        return list(self.dataset.get_fragments(filter=self.filters))

    @cached_property
    def _row_groups_by_task(self) -> list[list[RowGroup]]:
        """The row groups that each task reads, as one list per task."""
        self.check_times()
        fragments = self._fragments
        with ThreadPoolExecutor(_FOOTER_THREADS) as pool:  # The threads read the footers of files.
            groups = [
                (f, group)
                for f, row_groups in zip(fragments, pool.map(self._groups, fragments), strict=True)
                for group in row_groups
            ]
        totals = np.cumsum([group.num_rows for _, group in groups])
        count = self._count_tasks(int(totals[-1]) if len(totals) else 0)
        middles = totals - np.diff(totals, prepend=0) / 2
        tasks: list[list[RowGroup]] = [[] for _ in range(count)]
        for (fragment, group), middle in zip(groups, middles.tolist(), strict=True):
            tasks[min(int(middle * count / max(int(totals[-1]), 1)), count - 1)].append((fragment, group.id))
        return [task for task in tasks if task]

    def _count_tasks(self, rows: int) -> int:
        """Return the number of tasks for ``rows`` rows.

        If ``rows_per_task`` is set, a task has about this number of rows. Otherwise, there is one task per core. If a
        task would then have more than 10 million rows, there are several tasks per core. If tasks would have fewer than
        250,000 rows, there are fewer tasks. If the number of cores is unknown, a task has about 5 million rows.
        """
        if self.rows_per_task is not None:
            return max(1, -(-rows // self.rows_per_task))
        cores = parallelism(self.spark)
        if cores is None:
            return max(1, -(-rows // _DEFAULT_ROWS))
        return max(1, min(cores * -(-rows // (cores * _MAX_ROWS)), -(-rows // _MIN_ROWS)))

    def map(
        self,
        columns: Sequence[str],
        keys: Sequence[str],
        function: Callable[[Batches, int], Batches],
        schema: pa.Schema,
    ) -> DataFrame:
        """Return a DataFrame with the batches of ``schema`` that ``function`` yields in each task.

        ``function`` receives two arguments: the batches of the row groups that the task reads, and the index of the
        task. The batches have only the columns ``columns``. Texts in the columns ``keys`` are dictionary-encoded.
        """
        tasks = self.tasks
        key_columns_in_files = columns_in_files(keys, (piece.partition_condition for task in tasks for piece in task))
        selection = Selection(
            schema=self.schema,
            columns=columns,
            keys=key_columns_in_files,
            filters=self.filters,
            filesystem=self.dataset.filesystem,
        )

        def read(numbers: Batches) -> Batches:
            for batch in numbers:
                for number in batch.column(0).to_pylist():
                    yield from function(selection.rows(tasks[number]), number)

        numbers = self.spark.range(0, len(tasks), 1, max(1, len(tasks)))
        return numbers.mapInArrow(TaskFunction(read), spark_schema(schema))

    def _groups(self, fragment: ds.ParquetFileFragment) -> list[Any]:
        """Return those row groups of a file that may contain rows that pass the filter."""
        matching = fragment if self.filters is None else fragment.subset(self.filters, schema=self.schema)
        return list(matching.row_groups)

    def __repr__(self) -> str:
        """Return the number of files, the filter and the rows per task."""
        only = "" if self.filters is None else f" where {self.filters}"
        rows = "" if self.rows_per_task is None else f", {self.rows_per_task:,} rows a task"
        return f"ParquetScan({len(self.dataset.files):,} files{only}{rows})"


def _pieces(groups: Sequence[RowGroup]) -> list[Piece]:
    """Return pieces with the row groups. Consecutive row groups of the same file are in the same piece."""
    pieces: list[Piece] = []
    for fragment, group in groups:
        if not pieces or pieces[-1].path != fragment.path:
            group_indices: list[int] = []
            pieces.append(Piece(fragment.path, group_indices, fragment.partition_expression))
        group_indices.append(group)
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
    """Return a scan of Parquet files, which the Python workers read. It is a fast input of `rollup` and `aggregate`.

    Parameters
    ----------
    spark : SparkSession
        Classic or Connect.
    paths : path or URI, or several
        Files or folders. URIs of object stores are ``s3://…``, ``gs://…``, ``abfs://…`` or others of
        `pyarrow.fs.FileSystem.from_uri`. The driver and every worker must have access.
    filters : pyarrow expression, or tuples such as ``[("host", "=", "a")]``
        The rows to read. Folders and row groups without such rows are skipped.
    filesystem : pyarrow filesystem, optional
        The filesystem of the files, if it needs settings that a URI does not contain. ``paths`` are then paths in this
        filesystem.
    partitioning : "hive", a pyarrow partitioning, or None
        The way in which names of folders become columns: ``"hive"`` reads names such as ``day=2024-05-01``, and None
        reads no columns from names.
    rows_per_task : int, optional
        The approximate number of rows per task; row groups are not split. By default, the number of tasks is the number
        of cores of the session, or a multiple of this number if a task would have more than 10 million rows. If the
        settings do not contain the number of cores, a task has 5 million rows.

    Returns
    -------
    ParquetScan
        An argument of `rollup` or `aggregate` instead of a DataFrame. The states equal, bit for bit, the states of a
        DataFrame with the same rows.

    Raises
    ------
    FileNotFoundError
        If a path does not exist, or a folder has no files.
    ValueError
        If a filter names a column that is not in the files, if a file is not a Parquet file, or if ``rows_per_task`` is
        less than 1.

    Guarantee
    ---------
    A worker has only one batch of rows in memory in addition to its states, for files of any size. There is one
    exception: if each file has rows of all times, the worker first collects up to 256 MiB of rows, to group them by
    time.

    Examples
    --------
    The documentation has a tested example::

        scan = su.scan_parquet(spark, "s3://logs/requests/", filters=[("day", ">=", "2024-05-01")])
        states = su.rollup(scan, frame)
    """
    if rows_per_task is not None and (
        isinstance(rows_per_task, bool) or not isinstance(rows_per_task, int) or rows_per_task < 1
    ):
        raise ValueError(f"rows_per_task must be a whole number of at least 1; got {rows_per_task!r}")
    check_session(spark)
    filters = expression_of(filters)
    if filesystem is not None and not isinstance(filesystem, fs.FileSystem):
        raise TypeError(f"filesystem must be a filesystem of pyarrow.fs; got {filesystem!r}")
    located_paths, filesystem = filesystem_paths(paths_of(paths), filesystem)
    files = [file for path in located_paths for file in files_in(path, filesystem)]
    try:
        dataset = dataset_of(files, filesystem, partitioning)
        scan = ParquetScan(spark, dataset, filters, rows_per_task)
        # The scanner raises an error if a filter names a missing column.
        scanner(dataset, scan.schema, scan.schema.names, filters)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise ValueError(
            f"cannot scan {', '.join(located_paths)}: {str(error).splitlines()[0]}; correct the filters, or leave out "
            "files that are not Parquet"
        ) from None
    return scan
