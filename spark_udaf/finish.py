"""finish: results for states, of a tilt frame or of an aggregation, without a shuffle."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

import tiltframe
from aggr import Measure
from spark_udaf.aggregate import results, results_schema
from spark_udaf.schema import arrow_schema, as_schema, spark_schema
from spark_udaf.session import prepare
from spark_udaf.two_phase import Batches
from tiltframe import TiltFrame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def finish(states: DataFrame, measures: TiltFrame | Mapping[str, Measure]) -> DataFrame:
    """Read the results of states: the same rows, a result for each measure.

    Parameters
    ----------
    states : DataFrame
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
    ValueError
        If these are not states of the measures; before any job starts.
    """
    given = arrow_schema(states)
    if isinstance(measures, TiltFrame):
        schema, read_table = measures.results_schema(given), partial(tiltframe.finish, frame=measures)
    else:
        schema, read_table = results_schema(given, measures), partial(results, measures=measures)
    prepare(states.sparkSession)

    def read(batches: Batches) -> Batches:
        for batch in batches:
            yield from as_schema(read_table(pa.Table.from_batches([batch])), schema).to_batches()

    return states.mapInArrow(read, spark_schema(schema))
