"""Gathering: combine the batches of a partition into tables that are large enough to amortize the work per table."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from spark_udaf.plan.columns import Batches
from spark_udaf.plan.two_phase import MOST_BYTES


def gathered(batches: Batches) -> Iterator[pa.Table]:
    """Join batches, in order, into tables of about 64 MB. Without batches, yield no tables."""
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
