"""finish: results for states, of a tilt frame or of an aggregation, without a shuffle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

import tiltframe
from aggr import Measure
from spark_udaf.jobs.aggregate import checked_measures, results, results_schema
from spark_udaf.jobs.columns import check_distinct
from spark_udaf.jobs.scan import ParquetScan
from spark_udaf.jobs.schema import as_schema
from spark_udaf.jobs.two_phase import Batches, source_of
from tiltframe import TiltFrame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def finish(states: DataFrame | ParquetScan, measures: TiltFrame | Mapping[str, Measure]) -> DataFrame:
    """Read the results of states: the same rows, a result for each measure.

    Parameters
    ----------
    states : DataFrame, or Parquet files as `scan_parquet` gives them
        As `rollup` or `aggregate` gives it, perhaps merged, written and read back, filtered, or united with others.
    measures : TiltFrame, or name -> measure
        The same that made them, or others that the same states can answer, say for other quantiles.

    Returns
    -------
    DataFrame
        Of a frame: level, window_start, window_end, keys and one column per measure. Of an aggregation: the columns
        that are no states, and one column per measure.

    Raises
    ------
    ValueError, TypeError
        If these are not states of the measures; before any job starts.
    """
    if isinstance(measures, TiltFrame):
        source, given = source_of(states, lambda names: measures.states_columns)
        schema, read_table = measures.results_schema(given), partial(tiltframe.finish, frame=measures)
        names: Sequence[str] = measures.states_columns
    else:
        checked_measures(measures)
        source, given = source_of(states)
        schema, read_table = results_schema(given, measures), partial(results, measures=measures)
        names = given.names
    check_distinct(schema.names, source.spark)

    def read(batches: Batches) -> Batches:
        for batch in batches:
            yield from as_schema(read_table(pa.Table.from_batches([batch])), schema).to_batches()

    return source.map(names, [], read, schema)
