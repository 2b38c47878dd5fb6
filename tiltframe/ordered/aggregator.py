"""The base class of aggregations that process ordered rows batch by batch. They have a few states per key in memory,
and no rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from aggr.arguments import listed, shown
from aggr.arrow.normalize import filterable, one_array
from tiltframe.ordered.query import POSITION, OrderedQuery
from tiltframe.ordered.sequence import Keys, empty_keys
from tiltframe.ordered.window_state import WindowState
from windows.ordered import Carry

if TYPE_CHECKING:
    from typing import Self

_KEYS = "keys"
_CARRY = "carry"
_STATES = "states"
_EXPECTED_ROWS = "rows must be a pyarrow.Table, or an iterable of batches"


class OrderedAggregator:
    """The base class of `RunningAggregation` and `OrderedRollup`. It contains the state that is kept between two
    batches, and methods that save and restore this state.
    """

    query: Any  # an `OrderedQuery`; subclasses declare its class

    def __init__(self, query: OrderedQuery) -> None:
        """Create an aggregation that has not processed any rows."""
        self.query = query
        self._schema: pa.Schema | None = None
        self._keys: Keys
        self._window_states: list[WindowState]

    def add(self, batch: pa.Table | pa.RecordBatch, until: int | None = None) -> pa.Table:
        """Process a batch of rows, and return results or states; see `RunningAggregation.add` and
        `OrderedRollup.add`.
        """
        raise NotImplementedError

    def finish(self, batch: pa.Table | pa.RecordBatch | None = None, end: int | None = None) -> pa.Table:
        """Process the last batch, and return the results at the end of the data; see `RunningAggregation.finish`."""
        raise NotImplementedError

    def results(self, emitted: pa.Table) -> pa.Table:
        """Return the results of states that `add` returned. If `add` returns results already, they are returned
        unchanged.

        Parameters
        ----------
        emitted : table
            A table that `add` or `finish` returned.

        Returns
        -------
        table
            One row of results for each row of ``emitted``.
        """
        return emitted

    @classmethod
    def for_query(cls, query: OrderedQuery) -> Self:
        """Create an aggregation for a query. It has not processed any rows."""
        aggregator = cls.__new__(cls)
        OrderedAggregator.__init__(aggregator, query)
        return aggregator

    def carried(self) -> dict[str, pa.Table]:
        """Return the complete state between two batches, as name → table. The dict is empty before the first batch."""
        if self._schema is None:
            return {}
        keys = {str(at): column for at, column in enumerate(self._keys.columns)}
        bounds = {
            name: np.full(self._keys.n, at)
            for name, at in (("end", self._keys.last_time), ("first", self._keys.first_time))
        }
        tables = {_KEYS: pa.table({**keys, "latest": self._keys.latest, **bounds})}
        for window_index, (carry, states) in enumerate(self._window_states):
            key_columns = {"position": carry.position, "counts": carry.counts}
            tables[f"{window_index}.{_CARRY}"] = pa.table(
                {**key_columns, **{f"number {n}": v for n, v in carry.numbers.items()}}
            )
            state_columns = {f"of {name}": state for name, state in states.items()}
            tables[f"{window_index}.{_STATES}"] = pa.table({"start": carry.open_starts, **state_columns})
        return tables

    def restore(self, tables: Mapping[str, pa.Table], schema: pa.Schema) -> None:
        """Restore the state from ``tables``, which `carried` returned. ``schema`` is the schema of the batches."""
        self._begin(schema)
        *columns, latest, last_time, first_time = (one_array(column) for column in tables[_KEYS].columns)
        bounds = (self._keys.last_time, self._keys.first_time)
        if len(latest):
            bounds = (last_time[0].as_py(), first_time[0].as_py())
        self._keys = Keys(tuple(columns), _numbers(latest), *bounds)
        for window_index, measured_window in enumerate(self.query.measured_windows):
            carry_table = tables[f"{window_index}.{_CARRY}"]
            states = tables[f"{window_index}.{_STATES}"]
            position, counts, *numbers = (_numbers(column) for column in carry_table.columns)
            names = [name.removeprefix("number ") for name in carry_table.column_names[2:]]
            carry = Carry(position, counts, _numbers(states.column("start")), dict(zip(names, numbers, strict=True)))
            restored = {name: one_array(states.column(f"of {name}")) for name in measured_window.functions}
            self._window_states[window_index] = WindowState(carry, restored)

    def _begin(self, schema: pa.Schema) -> None:
        """Check the schema of the first batch, and create the initial state, which has no keys."""
        self.query.check(schema)
        self._schema = schema
        self._keys = empty_keys(schema, self.query.order)
        self._window_states = [
            WindowState(
                measured_window.window.start(0),
                {
                    c.name: c.measure.function.zero(0, c.measure.input_type(schema, POSITION))
                    for c in measured_window.states
                },
            )
            for measured_window in self.query.measured_windows
        ]

    def _checked_batch(self, batch: pa.Table | pa.RecordBatch) -> pa.Table:
        """Return a batch as a table. Raise ``ValueError`` if it has other columns than earlier batches."""
        table = as_table(batch)
        if self._schema is None:
            self._begin(table.schema)
        elif not table.schema.equals(self._schema):
            raise ValueError(
                f"batches must have the same columns; got {columns_text(table.schema)} after "
                f"{columns_text(self._schema)}; convert each batch to the columns and types of the first one"
            )
        return table


def columns_text(schema: pa.Schema) -> str:
    """Return the names and types of columns as one line for a message.

    >>> columns_text(pa.schema({"ts": pa.int64(), "host": pa.string()}))
    'ts int64, host string'
    """
    return listed([f"{field.name} {field.type}" for field in schema])


def _numbers(column: pa.Array | pa.ChunkedArray) -> Any:
    """Return a copy of a column of integers as a numpy array."""
    return column.to_numpy().copy()


def as_table(batch: Any) -> pa.Table:
    """Convert a batch to a table from which Arrow can select rows. Raise ``TypeError`` if it is neither a table nor a
    record batch.
    """
    if isinstance(batch, pa.RecordBatch):
        batch = pa.Table.from_batches([batch])
    if not isinstance(batch, pa.Table):
        raise TypeError(f"{_EXPECTED_ROWS}; got {shown(batch)}")
    return filterable(batch)


def iterate_batches(data: Any) -> Iterator[pa.Table]:
    """Yield the batches of an iterable as tables. Raise ``TypeError`` if it is not an iterable of batches, and
    ``ValueError`` if it has no batch.
    """
    if not isinstance(data, Iterable) or isinstance(data, str | bytes | dict | set | type):
        raise TypeError(f"{_EXPECTED_ROWS}; got {shown(data)}")
    is_empty = True
    for batch in data:
        if not isinstance(batch, pa.Table | pa.RecordBatch):
            raise TypeError(f"{_EXPECTED_ROWS}; got {shown(data)}, which contains {shown(batch)}")
        is_empty = False
        yield as_table(batch)
    if is_empty:
        raise ValueError("no batch was passed, so the columns are unknown; pass at least one batch, which may be empty")
