"""A planned join: one process plans the join of rows with a store, and other processes, which have the rows, run it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from aggr.arrow.normalize import one_array
from tiltframe.store.backends.stored_types import stored, stored_schema

if TYPE_CHECKING:
    from tiltframe.store.query.join import Join


class JoinedRows(Protocol):
    """The attribute of `tiltframe.store.Joined` that a planned join needs."""

    @property
    def slices(self) -> Iterator[pa.Table]:
        """The joined rows."""


class View(Protocol):
    """The method of `tiltframe.store.StoreView` that a planned join needs."""

    def join(self, rows: pa.Table, join: Join) -> JoinedRows:
        """Join rows with the results of the store."""


@dataclass(frozen=True)
class PlannedJoin:
    """A join that is planned from the schema of the rows; `tiltframe.FrameStore.plan_join` returns it. The plan can be
    pickled for the tasks that have the rows.

    Parameters
    ----------
    current_view : function
        A function that returns a view of the store at the moment of the call.
    join : Join
    row_schema : pa.Schema
        The schema of the rows.
    result_schema : pa.Schema
        The schema of the joined rows, before result columns are converted to their stored types.
    """

    current_view: Callable[[], View]
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
        view: View | None = None
        for rows in tables:
            if view is None:
                view = self.current_view()
            for table in view.join(rows, self.join).slices:
                yield self._in_stored_types(table)

    def _in_stored_types(self, table: pa.Table) -> pa.Table:
        """Convert the columns of results in a joined table to the types in which they are stored. The columns of the
        user's rows are unchanged.
        """
        row_column_count = len(self.row_schema)
        results = [stored(one_array(column)) for column in table.columns[row_column_count:]]
        return pa.table([*table.columns[:row_column_count], *results], names=table.column_names)
