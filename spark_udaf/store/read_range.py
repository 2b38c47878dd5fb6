"""read_range: the rows that one task reads of a store."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.types import StructType

from aggr.arrow.normalize import one_array
from spark_udaf.plan.columns import unsliced_batches
from spark_udaf.plan.schema import as_schema, spark_schema
from spark_udaf.plan.worker import tune_worker
from tiltframe.ranges import Range
from tiltframe.store import PlannedQuery
from tiltframe.store.backends.stored_types import stored, stored_schema

SOURCE_NAME = "tiltframe"
_BATCH_ROWS = 10_000  # results sent to the JVM at once: as many as Spark's own batches have by default


def read_range(query: PlannedQuery, within: Range, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Read the results, or states, of the windows that start in a range, as batches of a schema."""
    tune_worker()
    results = query.read(within)  # the column partial marks expired windows
    if not query.as_states:
        columns = [stored(one_array(column)) for column in results.columns]
        results = pa.table(columns, names=results.column_names)
    yield from unsliced_batches(as_schema(results, schema), _BATCH_ROWS)


def result_schema(query: PlannedQuery) -> StructType:
    """Return the schema of the results, in types that the store keeps if Spark lacks theirs, or of the states."""
    return spark_schema(query.schema if query.as_states else stored_schema(query.schema))
