"""running, ordered_rollup: aggregate the rows of each key in the order of time.

Python receives the sorted rows in batches. The rows of a key need not fit into memory: a task keeps only one batch, and
the data about earlier rows that windows still need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from aggr import Measure
from aggr.arrow.normalize import normalize
from aggr.groups.groups import group_by
from aggr.tables.keys import key_column, key_fields, keyed
from spark_udaf.plan.columns import Batches, arrow_schema, map_columns
from spark_udaf.plan.engine import Feature, check_supports
from spark_udaf.plan.fractions import check_no_fractions_in_query
from spark_udaf.plan.schema import as_schema
from spark_udaf.plan.session import use_large_batches
from spark_udaf.plan.worker import tune_worker
from tiltframe import OrderedFrame, OrderedRollup, RunningAggregation
from tiltframe.event_time import INSTANT, event_times
from tiltframe.ordered.aggregator import OrderedAggregator
from tiltframe.ordered.query import running_query
from tiltframe.ordered.sequence import Order
from windows.ordered import OrderedWindow, Tick

_ARRIVAL = "__arrival"
_AT = "__at"
_LAST_TIME = "__end"
_FIRST_TIME = "__first"
_KEY = "__key"


def running(
    df: DataFrame,
    measures: Mapping[str, Measure | str],
    window: OrderedWindow | str | Mapping[str, OrderedWindow | str] | None = None,
    *,
    time: str,
    keys: Sequence[str] | Mapping[str, str] = (),
    order: Sequence[str] = (),
    ticks: Tick | str | Sequence[Tick | str] = (),
    emit: str = "rows",
    until: object = None,
    fill: str | None = None,
) -> DataFrame:
    """Aggregate the rows of each key in the order of time. By default, there is a result for every row.

    Parameters
    ----------
    df : DataFrame
        Classic or Connect.
    measures : name -> measure, or expression of other measures
        Measures such as `aggr.count` and `aggr.dds`. ``first`` and ``last`` without ``by=`` use the order of rows.
    window : an ordered window, its text, or measure -> window
        A window of `windows.ordered`. The default is all previous rows of the key.
    time : str
        The column of event times, of any type that a tilt frame accepts.
    keys : column names
        Each combination of key values has separate windows, which one task computes. Null is a legal key.
    order : column names
        The columns by which rows with equal times are ordered.
    ticks : ticks
        Times at which every key has an additional result, as in `tiltframe.running`.
    emit : "rows", "ticks" or "final"
        The results to return, as in `tiltframe.running`.
    until, fill : optional
        The end of the ticks, and whether every key has ticks for the whole range, as in `tiltframe.running`.

    Returns
    -------
    DataFrame
        The columns are those of `tiltframe.running`.

    Raises
    ------
    ValueError, TypeError
        If a column is missing, or a measure does not accept the type of its column. The error is raised before any job
        starts.

    Guarantee
    ---------
    The results are bit-for-bit those of `tiltframe.running`, however the rows are partitioned. Rows with equal times
    are ordered by ``order``, then by their position in the DataFrame. If the DataFrame is the result of a shuffle, this
    position may change from run to run. Pass ``order`` in this case.

    Examples
    --------
    The documentation has a tested example::

        su.running(df, {"total": aggr.sum("amount")}, time="at", keys=["account"])
    """
    query = running_query(
        measures, window, time=time, keys=keys, order=order, ticks=ticks, emit=emit, until=until, fill=fill
    )
    use_large_batches(df.sparkSession)
    schema = arrow_schema(df)
    query.check(schema)
    check_no_fractions_in_query(query, schema)
    columns = query.columns_in(schema.names)
    result_schema = RunningAggregation.for_query(query).finish(schema.empty_table()).schema
    task_query = query.ordered_by(with_key_columns_only(query.order))
    return _aggregate_sorted(
        df,
        columns=columns,
        order=query.order,
        create_aggregator=lambda first: RunningAggregation.for_query(replace(task_query, first_time=first)),
        has_ticks=bool(query.ticks),
        result_schema=result_schema,
    )


def ordered_rollup(df: DataFrame, frame: OrderedFrame) -> DataFrame:
    """Roll up rows in the order of key and time to the states of every level of an ordered frame, with one shuffle.

    Parameters
    ----------
    df : DataFrame
        Classic or Connect.
    frame : OrderedFrame

    Returns
    -------
    DataFrame
        The columns are those of `tiltframe.ordered_rollup`, with one row for each completed window.

    Raises
    ------
    ValueError, TypeError
        If a column is missing, or a measure does not accept the type of its column. The error is raised before any job
        starts.

    Guarantee
    ---------
    The states are bit-for-bit those of `tiltframe.ordered_rollup`, however the rows are partitioned. Rows with equal
    times are ordered as in `running`.
    """
    use_large_batches(df.sparkSession)
    schema = arrow_schema(df, frame.columns_in(df.columns))
    frame.check(schema)
    check_no_fractions_in_query(frame, schema)
    result_schema = OrderedRollup(frame).add(schema.empty_table()).schema
    task_frame = frame.ordered_by(with_key_columns_only(frame.order))
    return _aggregate_sorted(
        df,
        columns=frame.columns_in(schema.names),
        order=frame.order,
        create_aggregator=lambda _: OrderedRollup(task_frame),
        has_ticks=False,
        result_schema=result_schema,
    )


def _aggregate_sorted(
    df: DataFrame,
    *,
    columns: Sequence[str],
    order: Order,
    create_aggregator: Callable[[int | None], OrderedAggregator],
    has_ticks: bool,
    result_schema: pa.Schema,
) -> DataFrame:
    """Return the results of rows that are shuffled by key, sorted by time, and aggregated batch by batch.

    ``columns`` are the names of the columns to read. ``create_aggregator`` receives the earliest time of all rows in
    microseconds UTC, or None if ``has_ticks`` is false, and returns a new aggregator. ``result_schema`` is the schema
    of the results.
    """
    check_supports(df.sparkSession, Feature.ORDER, "a window over ordered rows", "use tiltframe.running on a table")
    task_order = with_key_columns_only(order)
    computed_keys = [column_name for name, column_name in task_order.keyed_by.items() if column_name != name]
    reserved = [name for name in (_ARRIVAL, _AT, _LAST_TIME, _FIRST_TIME, *computed_keys) if name in df.columns]
    if reserved:
        raise ValueError(
            f"the column name {reserved[0]!r} is reserved for a column that this function adds; rename your column"
        )
    rows = df.select(*[quoted_column(name) for name in columns]).withColumn(_ARRIVAL, F.monotonically_increasing_id())
    rows = _with_instants(_with_key_columns(rows, order), order.time)
    # The ticks of every key end at the latest time of all rows, not only of the rows of this key, and may start at the
    # earliest time of all rows. Both times are therefore added to each row as columns.
    if has_ticks:
        rows = rows.crossJoin(F.broadcast(rows.agg(F.max(_AT).alias(_LAST_TIME), F.min(_AT).alias(_FIRST_TIME))))
    keys = [quoted_column(column_name) for column_name in task_order.keyed_by.values()]
    partitioned_rows = rows.repartition(*keys) if keys else rows.repartition(1)
    sort_columns = [
        *keys,
        F.col(_AT),
        *(quoted_column(name).asc_nulls_last() for name in order.tie_columns),
        F.col(_ARRIVAL),
    ]

    def aggregate_partition(batches: Batches) -> Batches:
        tune_worker()
        for table in _aggregate_batches(
            batches,
            [*columns, *computed_keys],
            order=task_order,
            create_aggregator=create_aggregator,
            has_ticks=has_ticks,
        ):
            yield from as_schema(table, result_schema).to_batches()

    sorted_rows = partitioned_rows.sortWithinPartitions(*sort_columns)
    return map_columns(sorted_rows, sorted_rows.columns, aggregate_partition, result_schema)


def _aggregate_batches(
    batches: Batches,
    columns: Sequence[str],
    *,
    order: Order,
    create_aggregator: Callable[[int | None], OrderedAggregator],
    has_ticks: bool,
) -> Iterator[pa.Table]:
    """Yield tables of results for the batches of a partition, whose rows are sorted by key. When the rows of another
    key begin, the data about the previous keys are no longer needed, and are released.
    """
    aggregator: OrderedAggregator | None = None
    empty: pa.Table | None = None
    last_time: int | None = None
    first_time: int | None = None
    for batch in batches:
        table = pa.Table.from_batches([batch])
        if has_ticks and last_time is None and table.num_rows:
            last_time, first_time = (
                int(event_times(table.column(name), order.time)[0]) for name in (_LAST_TIME, _FIRST_TIME)
            )
        table = table.select(list(columns))
        empty = table.schema.empty_table()
        if not table.num_rows:
            continue
        aggregator = create_aggregator(first_time) if aggregator is None else aggregator
        start = _start_of_last_key(table, order)
        if start:
            yield aggregator.finish(table.slice(0, start), last_time)
            aggregator = create_aggregator(first_time)
        yield aggregator.add(table.slice(start))
    if empty is not None:
        yield (aggregator or create_aggregator(first_time)).finish(empty, last_time)


def _start_of_last_key(table: pa.Table, order: Order) -> int:
    if not order.keys:
        return 0
    key_columns = [key_column(table.column(column_name)) for column_name in order.keyed_by.values()]
    groups, _ = group_by(key_columns, table.num_rows)
    return int(np.append(0, np.flatnonzero(np.diff(groups.ids)) + 1)[-1])


def with_key_columns_only(order: Order) -> Order:
    """Return a copy of ``order`` whose keys are all names of columns. A key that is an expression is replaced by the
    name of the column that `_with_key_columns` adds for this key.
    """
    column_by_key = {
        name: name if name == text else f"{_KEY}{index}" for index, (name, text) in enumerate(order.keyed_by.items())
    }
    return Order(column_by_key, order.time, order.tie_columns)


def _with_key_columns(rows: DataFrame, order: Order) -> DataFrame:
    """Return the rows with an additional column for each key that is an expression. If a key is `each` of a column of
    lists, each row is repeated for each element of its list.
    """
    column_by_key = with_key_columns_only(order).keyed_by
    expressions = {
        column_name: order.keyed_by[name] for name, column_name in column_by_key.items() if column_name != name
    }
    if not expressions:
        return rows
    input_schema = arrow_schema(rows)
    schema = pa.schema([*input_schema, *key_fields(expressions, input_schema)])

    def compute(batches: Batches) -> Batches:
        for batch in batches:
            table, _, keys = keyed(pa.Table.from_batches([batch]), expressions, input_schema.names)
            for name, key in keys.items():
                table = table.append_column(name, normalize(key))
            yield from as_schema(table, schema).to_batches()

    return map_columns(rows, rows.columns, compute, schema)


def _with_instants(rows: DataFrame, time: str) -> DataFrame:
    """Return the rows with an additional column of event times that Spark can sort. Times that are texts are converted
    to timestamps, because texts with different UTC offsets do not sort chronologically.
    """
    input_schema = arrow_schema(rows)
    if not pa.types.is_string(input_schema.field(time).type):
        return rows.withColumn(_AT, quoted_column(time))

    schema = input_schema.append(pa.field(_AT, INSTANT))

    def read(batches: Batches) -> Batches:
        for batch in batches:
            instants = pa.array(event_times(batch.column(time), time)).cast(INSTANT)
            yield pa.RecordBatch.from_arrays([*batch.columns, instants], schema=schema)

    return map_columns(rows, rows.columns, read, schema)


def quoted_column(name: str) -> Column:
    """Return the column with the name ``name``, which may contain any characters, such as dots."""
    escaped = name.replace("`", "``")
    return F.col(f"`{escaped}`")
