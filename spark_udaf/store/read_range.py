"""read_range: the rows of a store that one task reads."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.types import StructType

from spark_udaf.plan.columns import unsliced_batches
from spark_udaf.plan.schema import as_schema, spark_schema
from spark_udaf.plan.worker import tune_worker
from tiltframe.ranges import Range
from tiltframe.store import PlannedQuery

SOURCE_NAME = "tiltframe"
# The number of results per batch that is passed to the JVM: the default size of Spark's own batches.
_BATCH_ROWS = 10_000


def read_range(query: PlannedQuery, within: Range, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the results or states of the windows that start in the range ``within``, as batches of ``schema``."""
    tune_worker()
    # Tasks emit no warnings of expired windows. The warnings are emitted when the query is planned, and the column
    # ``partial`` of the results marks these windows.
    results = query.read(within)
    yield from unsliced_batches(as_schema(results, schema), _BATCH_ROWS)


def result_schema(query: PlannedQuery) -> StructType:
    """Return Spark's schema of the results or states of a query."""
    return spark_schema(query.schema)
