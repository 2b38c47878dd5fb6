"""running, ordered_rollup: rows by key, in the order of time, streamed through Python in batches.

A key may be larger than memory: its rows come in batches, and only what the windows carry is held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from aggr import Measure
from aggr.arrow.normalize import normalize
from aggr.groups.groups import group_by
from aggr.tables.keys import key_column, key_fields, keyed
from spark_udaf.plan.columns import arrow_schema
from spark_udaf.plan.schema import as_schema, spark_schema
from spark_udaf.plan.session import check_is_spark, prepare
from spark_udaf.plan.worker import tune_worker
from tiltframe import OrderedFrame, OrderedRollup, RunningAggregation
from tiltframe.event_time import event_times
from tiltframe.frame import INSTANT
from tiltframe.ordered.aggregator import OrderedAggregator
from tiltframe.ordered.query import running_query
from tiltframe.ordered.sequence import Order
from windows.ordered import OrderedWindow, Tick

_ARRIVAL, _AT, _END, _KEY = "__arrival", "__at", "__end", "__key"

Batches = Iterator[pa.RecordBatch]


def running(
    df: DataFrame,
    measures: Mapping[str, Measure],
    window: OrderedWindow | str | Mapping[str, OrderedWindow | str] | None = None,
    *,
    time: str,
    keys: Sequence[str] | Mapping[str, str] = (),
    order: Sequence[str] = (),
    ticks: Tick | str | Sequence[Tick | str] = (),
    emit: str = "rows",
) -> DataFrame:
    """Aggregate rows in the order of key and time: by default a result for every row.

    Parameters
    ----------
    df : DataFrame
        Classic or Connect.
    measures : name -> measure
        As made by `aggr.count`, `aggr.dds` and the others. ``first`` and ``last`` without ``by=`` go by the order of
        rows.
    window : an ordered window, its text, or measure -> window
        Of `windows.ordered`; all rows of the key so far for those that none is given for.
    time : str
        The column of event times, of any type that a tilt frame takes.
    keys : column names
        Windows are kept per key; a key is computed in one task. Null is a legal key.
    order : column names
        What rows of equal times are ordered by.
    ticks : ticks
        Instants that there are results at, besides those of the window.
    emit : "rows", "ticks" or "final"
        Which results are returned, as `tiltframe.running` has it.

    Returns
    -------
    DataFrame
        With the columns of `tiltframe.running`.

    Raises
    ------
    ValueError, TypeError
        If the DataFrame does not fit; before any job starts.

    Guarantee
    ---------
    The same bits as `tiltframe.running`, whatever the partitions. Rows of equal times go by ``order``; what is left
    goes by their places in the DataFrame, so that without ``order`` a DataFrame that was shuffled may order them again.

    Examples
    --------
    The docs have one that runs::

        su.running(df, {"total": aggr.sum("amount")}, time="at", keys=["account"])
    """
    query = running_query(measures, window, time, keys, order, ticks, emit)
    prepare(df.sparkSession)
    schema = arrow_schema(df)
    query.check(schema)
    columns = query.columns_in(schema.names)
    result = RunningAggregation.of(query).finish(schema.empty_table()).schema
    inside = query.ordered_by(computed(query.order))
    return _streamed(df, columns, query.order, lambda: RunningAggregation.of(inside), bool(query.ticks), result)


def ordered_rollup(df: DataFrame, frame: OrderedFrame) -> DataFrame:
    """Roll up rows in the order of key and time: the states of every level of an ordered frame, by one shuffle.

    Parameters
    ----------
    df : DataFrame
        Classic or Connect.
    frame : OrderedFrame

    Returns
    -------
    DataFrame
        With the columns of `tiltframe.ordered_rollup`: one row for each window that is over.

    Raises
    ------
    ValueError, TypeError
        If the DataFrame does not fit; before any job starts.

    Guarantee
    ---------
    As of `running`.
    """
    prepare(df.sparkSession)
    schema = arrow_schema(df, frame.columns_in(df.columns))
    frame.check(schema)
    result = OrderedRollup(frame).add(schema.empty_table()).schema
    inside = frame.ordered_by(computed(frame.order))
    return _streamed(df, frame.columns_in(schema.names), frame.order, lambda: OrderedRollup(inside), False, result)


def _streamed(
    df: DataFrame,
    columns: Sequence[str],
    order: Order,
    begin: Callable[[], OrderedAggregator],
    ends: bool,
    result: pa.Schema,
) -> DataFrame:
    """Bring the rows of a key together, in order, and take them batch by batch."""
    check_is_spark(
        df.sparkSession, "a window over ordered rows", "drops the order; run it on a table: tiltframe.running"
    )
    inside = computed(order)
    made = [text for name, text in inside.keyed_by.items() if text != name]
    taken = [name for name in (_ARRIVAL, _AT, _END, *made) if name in df.columns]
    if taken:
        raise ValueError(f"the column name {taken[0]!r} is needed here; rename that column")
    rows = df.select(*[quoted_column(name) for name in columns]).withColumn(_ARRIVAL, F.monotonically_increasing_id())
    rows = _with_instants(_with_keys(rows, order), order.time)
    if ends:
        rows = rows.crossJoin(F.broadcast(rows.agg(F.max(_AT).alias(_END))))
    keys = [quoted_column(text) for text in inside.keyed_by.values()]
    together = rows.repartition(*keys) if keys else rows.repartition(1)
    by = [*keys, F.col(_AT), *(quoted_column(name).asc_nulls_last() for name in order.then), F.col(_ARRIVAL)]

    def work(batches: Batches) -> Batches:
        tune_worker()
        for table in _by_keys(batches, [*columns, *made], inside, begin, ends):
            yield from as_schema(table, result).to_batches()

    return together.sortWithinPartitions(*by).mapInArrow(work, spark_schema(result))


def _by_keys(
    batches: Batches, columns: Sequence[str], order: Order, begin: Callable[[], OrderedAggregator], ends: bool
) -> Iterator[pa.Table]:
    """Take the batches of a partition; what a key carries is let go once the next key has come."""
    made, end, empty = begin(), None, None
    for batch in batches:
        table = pa.Table.from_batches([batch])
        if ends and end is None and table.num_rows:
            end = int(event_times(table.column(_END), order.time)[0])
        table = table.select(list(columns))
        empty = table.schema.empty_table()
        head = _last_key(table, order)
        if head:
            yield made.finish(table.slice(0, head), end)
            made = begin()
        yield made.add(table.slice(head))
    if empty is not None:
        yield made.finish(empty, end)


def _last_key(table: pa.Table, order: Order) -> int:
    if not order.keys:
        return 0
    groups, _ = group_by([key_column(table.column(text)) for text in order.keyed_by.values()], table.num_rows)
    return int(np.append(0, np.flatnonzero(np.diff(groups.ids)) + 1)[-1])


def computed(order: Order) -> Order:
    """Say which columns the keys are in once they have been computed: before the shuffle, which goes by them."""
    named = {name: name if name == text else f"{_KEY}{i}" for i, (name, text) in enumerate(order.keyed_by.items())}
    return Order(named, order.time, order.then)


def _with_keys(rows: DataFrame, order: Order) -> DataFrame:
    """Add the keys that are computed, each row once per element of a list."""
    made = {text: order.keyed_by[name] for name, text in computed(order).keyed_by.items() if text != name}
    if not made:
        return rows
    before = arrow_schema(rows)
    schema = pa.schema([*before, *key_fields(made, before)])

    def compute(batches: Batches) -> Batches:
        for batch in batches:
            table, _, keys = keyed(pa.Table.from_batches([batch]), made, before.names)
            for name, key in keys.items():
                table = table.append_column(name, normalize(key))
            yield from as_schema(table, schema).to_batches()

    return rows.mapInArrow(compute, spark_schema(schema))


def _with_instants(rows: DataFrame, time: str) -> DataFrame:
    """Add the times as what Spark orders rightly; of text, which may carry offsets, as it is read."""
    before = arrow_schema(rows)
    if not pa.types.is_string(before.field(time).type):
        return rows.withColumn(_AT, quoted_column(time))

    schema = before.append(pa.field(_AT, INSTANT))

    def read(batches: Batches) -> Batches:
        for batch in batches:
            at = pa.array(event_times(batch.column(time), time)).cast(INSTANT)
            yield pa.RecordBatch.from_arrays([*batch.columns, at], schema=schema)

    return rows.mapInArrow(read, spark_schema(schema))


def quoted_column(name: str) -> Column:
    """Take a column by its name, whatever is in it."""
    escaped = name.replace("`", "``")
    return F.col(f"`{escaped}`")
