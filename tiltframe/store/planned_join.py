"""A planned join: other processes have the rows, in several tables, and join them with a store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from aggr.arrow.normalize import one_array
from tiltframe.store.backends.protocol import Backend
from tiltframe.store.backends.stored_types import stored, stored_schema
from tiltframe.store.log.manifest import Manifest
from tiltframe.store.query.join import Join
from tiltframe.store.view import StoreView
from tiltframe.time_range import moment_or_now


@dataclass(frozen=True)
class PlannedJoin:
    """A join that is planned from the schema of the rows; `tiltframe.FrameStore.plan_join` returns it. The plan can be
    pickled for the tasks that have the rows.

    Parameters
    ----------
    backend : Backend
    manifest : Manifest
    join : Join
    row_schema : pa.Schema
        The schema of the rows.
    result_schema : pa.Schema
        The schema of the joined rows, before result columns are converted to their stored types.
    """

    backend: Backend
    manifest: Manifest
    join: Join
    row_schema: pa.Schema
    result_schema: pa.Schema

    @property
    def schema(self) -> pa.Schema:
        """The schema of joined rows. Result columns have their stored types, which Delta Lake and Spark support (for
        example decimal instead of uint64).
        """
        fields = list(self.result_schema)
        row_column_count = len(self.row_schema)
        return pa.schema([*fields[:row_column_count], *stored_schema(pa.schema(fields[row_column_count:]))])

    def joined(self, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Join tables of rows, one after another, with the store at the moment of the first table.

        Parameters
        ----------
        tables : iterable of tables
            Tables with the columns of ``row_schema``. The store is queried once for each table, so a few large tables
            are faster than many small tables.

        Returns
        -------
        iterator of tables
            The results of `tiltframe.FrameStore.join`, in the order of the rows.

        Raises
        ------
        ValueError, StoreError
            If a range or a window of a row cannot be read, or the store is damaged.
        """
        view: StoreView | None = None
        for rows in tables:
            if view is None:
                now = moment_or_now(None, self.manifest.frame.timezone)
                view = StoreView.of(self.backend, self.manifest, now)
            for table in view.join(rows, self.join).slices:
                yield self._in_stored_types(table)

    def _in_stored_types(self, table: pa.Table) -> pa.Table:
        """Convert the columns of results in a joined table to the types in which they are stored. The columns of the
        user's rows are unchanged.
        """
        row_column_count = len(self.row_schema)
        results = [stored(one_array(column)) for column in table.columns[row_column_count:]]
        return pa.table([*table.columns[:row_column_count], *results], names=table.column_names)
