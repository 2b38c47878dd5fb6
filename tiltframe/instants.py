"""Times of a table: convert them to microseconds UTC and back. `take_rows` selects rows by index."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.arrow.normalize import normalize, one_array
from tiltframe.event_time import INSTANT
from tiltframe.names import END, START
from windows.timezone import Instants


def instants_of(table: pa.Table, name: str = START) -> Instants:
    """Return the values of a timestamp column as int64, in microseconds UTC. The default is the column of the starts of
    windows.
    """
    column = one_array(table.column(name))
    if column.type != INSTANT:
        column = normalize(column).cast(INSTANT)
    micros: Instants = column.view(pa.int64()).to_numpy()
    return micros


def checked_instants(states: pa.Table, name: str) -> NDArray[np.int64]:
    """Return the values of a timestamp column as `instants_of` does. Raise ``ValueError`` if the column has nulls or
    cannot be converted to microseconds.
    """
    if states.column(name).null_count:
        raise ValueError(
            f"the column {name!r} of states must not contain null; {states.column(name).null_count:,} of "
            f"{states.num_rows:,} values are null; pass states as rollup returns them"
        )
    try:
        return instants_of(states, name)
    except pa.ArrowInvalid as error:
        raise ValueError(
            f"the column {name!r} of states cannot be converted to times in microseconds: {error}; pass states as "
            "rollup returns them"
        ) from None


def as_instants(micros: Instants) -> pa.Array:
    """Convert microseconds UTC to an Arrow array of timestamps in UTC."""
    return pa.array(micros).cast(INSTANT)


def with_bounds(states: pa.Table, starts: Instants, end_times: Instants) -> pa.Table:
    """Return a table of states with ``starts`` and ``end_times``, in microseconds UTC, as the columns window_start and
    window_end.
    """
    for name, micros in ((START, starts), (END, end_times)):
        states = states.set_column(states.column_names.index(name), name, as_instants(micros))
    return states


def take_rows(table: pa.Table, rows: NDArray[np.int64]) -> pa.Table:
    """Return the rows of a table with the indices ``rows``. If these are the indices of all rows, return ``table``."""
    return table if selects_all(rows, table.num_rows) else table.take(pa.array(rows))


def selects_all(rows: NDArray[np.int64], n: int) -> bool:
    """Return whether the indices ``rows`` are those of all ``n`` rows, in their order."""
    return len(rows) == n and bool((rows == np.arange(n)).all())
