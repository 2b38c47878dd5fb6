"""Gathering: join the small batches of a partition to large tables, because the processing of each table has a fixed
cost.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from spark_udaf.plan.columns import Batches
from spark_udaf.plan.two_phase import MOST_BYTES


def gathered(batches: Batches) -> Iterator[pa.Table]:
    """Yield tables of about 64 MB with the rows of all batches in the same order, or no table if there are no
    batches.
    """
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        waiting.append(batch)
        size += batch.nbytes
        if size >= MOST_BYTES:
            yield pa.Table.from_batches(waiting)
            waiting, size = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)
