"""Gathering: join the small batches of a partition into large tables, because the processing of each table has a fixed
cost.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from spark_udaf.plan.columns import Batches
from spark_udaf.plan.two_phase import MAX_STATE_BYTES


def gather_batches(batches: Batches) -> Iterator[pa.Table]:
    """Yield tables of about 64 MB with the rows of all batches in the same order, or no table if there are no
    batches.
    """
    pending: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        pending.append(batch)
        size += batch.nbytes
        if size >= MAX_STATE_BYTES:
            yield pa.Table.from_batches(pending)
            pending = []
            size = 0
    if pending:
        yield pa.Table.from_batches(pending)
