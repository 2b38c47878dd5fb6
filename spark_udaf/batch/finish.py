"""finish: results for states, of a tilt frame or of an aggregation, without a shuffle of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

import tiltframe
from aggr import Measure
from aggr.arguments import checked_truth
from aggr.tables.flat_results import flat_schema, flattened
from spark_udaf.batch.aggregate import checked_measures, results, results_schema
from spark_udaf.plan.columns import check_distinct
from spark_udaf.plan.scan import ParquetScan
from spark_udaf.plan.schema import as_schema
from spark_udaf.plan.two_phase import Batches, plan_of, source_of
from tiltframe import OrderedFrame, TiltFrame
from tiltframe.frame import LEVEL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def finish(
    states: DataFrame | ParquetScan, measures: TiltFrame | OrderedFrame | Mapping[str, Measure], flat: bool = False
) -> DataFrame:
    """Read the results of states: the same rows, a result for each measure.

    What `rollup`, `aggregate` or `merge` gave is finished in the tasks that merge it, so that states do not cross to
    Python once more; where it is kept, by ``cache()`` or a checkpoint, or was changed since, what is there is read.

    Parameters
    ----------
    states : DataFrame, or Parquet files as `scan_parquet` gives them
        As `rollup`, `ordered_rollup` or `aggregate` gives it, perhaps merged, written and read back, filtered, or
        united with others.
    measures : TiltFrame, OrderedFrame, or name -> measure
        The same that made them, or others that the same states can answer, say for other quantiles.
    flat : bool
        Give plain columns in place of records: ``latency_count``, ``latency_p50``, ``latency_p99``.

    Returns
    -------
    DataFrame
        Of a frame: level, window_start, window_end, keys and one column per measure; of an ordered frame level, time,
        keys and the measures. Of an aggregation: the columns
        that are no states, and one column per measure.

    Raises
    ------
    ValueError, TypeError
        If these are not states of the measures; before any job starts.
    """
    if isinstance(measures, TiltFrame):
        source, states_schema = source_of(states, lambda names: measures.states_columns)
        schema, read_table = measures.results_schema(states_schema), partial(tiltframe.finish, frame=measures)
        names: Sequence[str] = measures.states_columns
    elif isinstance(measures, OrderedFrame):
        columns = [LEVEL, measures.order.time, *measures.order.keys, *(state.name for state in measures.states)]
        source, states_schema = source_of(states, lambda names: [name for name in columns if name in names])
        read_table = partial(tiltframe.finish_ordered, frame=measures)
        schema, names = read_table(states_schema.empty_table()).schema, states_schema.names
    else:
        checked_measures(measures)
        source, states_schema = source_of(states)
        schema, read_table = results_schema(states_schema, measures), partial(results, measures=measures)
        names = states_schema.names
    schema = flat_schema(schema) if checked_truth(flat, "flat") else schema
    check_distinct(schema.names, source.spark)

    def finish_table(table: pa.Table) -> pa.Table:
        results_table = read_table(table)
        return flattened(results_table) if flat else results_table

    plan = plan_of(states)
    if plan is not None:
        return plan.then(finish_table, schema).run()

    def read(batches: Batches, _: int) -> Batches:
        for batch in batches:
            yield from as_schema(finish_table(pa.Table.from_batches([batch])), schema).to_batches()

    return source.map(names, [], read, schema)
