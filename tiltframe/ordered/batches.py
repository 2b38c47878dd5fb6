"""What rows come as: a table, a batch, or batches one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from aggr.arguments import shown
from aggr.arrow.normalize import filterable

_ROWS = "rows come as a pyarrow.Table, or as batches one after the other"


def as_table(batch: Any) -> pa.Table:
    """Take a batch, or a table, as a table whose rows Arrow can choose; raises ``TypeError`` for anything else."""
    if isinstance(batch, pa.RecordBatch):
        batch = pa.Table.from_batches([batch])
    if not isinstance(batch, pa.Table):
        raise TypeError(f"{_ROWS}; got {shown(batch)}")
    return filterable(batch)


def some_batches(data: Any) -> Iterator[pa.Table]:
    """Go through batches, at least one; raises ``TypeError`` for what are none, ``ValueError`` where there is none."""
    if not isinstance(data, Iterable) or isinstance(data, str | bytes | dict | set | type):
        raise TypeError(f"{_ROWS}; got {shown(data)}")
    none = True
    for batch in data:
        if not isinstance(batch, pa.Table | pa.RecordBatch):
            raise TypeError(f"{_ROWS}; got {shown(data)}, and in it {shown(batch)}")
        none = False
        yield as_table(batch)
    if none:
        raise ValueError("there are no batches, not even an empty one, to tell the columns from")
