"""aggregate and merge: states by any keys, without windows; two steps, combined before the shuffle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from aggr import Measure
from aggr.keyed import check_rows, columns_read, finish_by, key_column, merge_by, reduce_by, states_fields
from aggr.partial import WORTH, partial_states
from aggr.plan import plan
from aggr.recognise import class_of, function_of
from spark_udaf.scan import ParquetScan
from spark_udaf.two_phase import MOST_BYTES, Batches, source_of, two_phase

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def aggregate(df: DataFrame | ParquetScan, by: Sequence[str], measures: Mapping[str, Measure]) -> DataFrame:
    """Aggregate rows to states, one row per group: the first of two steps.

    Parameters
    ----------
    df : DataFrame, or Parquet files as `scan_parquet` gives them
    by : column names
        What to group by; none at all gives one row.
    measures : name -> measure
        As made by `aggr.count`, `aggr.dds` and the others; first and last need ``by=``, their column of times.

    Returns
    -------
    DataFrame
        The columns of ``by``, and one struct per state; measures that can share a state do, and the column is named
        after the first. `merge` re-aggregates it, `finish` and the accessors read it, in this job or years later.

    Raises
    ------
    ValueError, TypeError
        If the DataFrame does not fit; before any job starts.

    Examples
    --------
    The docs have one that runs::

        states = su.aggregate(df, ["host", "day"], {"latency": aggr.dds("latency_ms")})
        su.merge(states, ["day"]).select("day", su.quantile("latency", 0.99))
    """
    keys, states = _names(by), plan(_checked(measures))
    source, given = source_of(df)
    check_rows(given, columns_read(keys, states), keys, states, pa.timestamp("us", "UTC"))
    schema = _schema(pa.schema(states_fields(given, keys, states)), keys)
    functions = {c.name: c.measure.function for c in states}

    def reduce(rows: pa.Table) -> pa.Table:
        return reduce_by(rows, _keys(rows, keys), states)

    def merge(held: pa.Table, worth: float = 1.0) -> pa.Table:
        return merge_by(held, _keys(held, keys), functions, worth)

    def first(batches: Batches) -> Iterator[pa.Table]:
        return partial_states(batches, reduce, partial(merge, worth=WORTH), MOST_BYTES)

    return two_phase(source, columns_read(keys, states), keys, first, schema, keys, merge, schema)


def merge(states: DataFrame, by: Sequence[str]) -> DataFrame:
    """Merge states into coarser groups, without the rows they came from.

    Parameters
    ----------
    states : DataFrame
        As `aggregate` or `rollup` gives it, perhaps written, read back, filtered or united with others.
    by : column names
        What to group by; any columns but states.

    Returns
    -------
    DataFrame of the columns of ``by`` and the columns of states

    Raises
    ------
    ValueError, TypeError
        If there are no states, or a column of ``by`` is missing; before any job starts.

    Guarantee
    ---------
    The same bits as `aggregate` gives for the rows themselves.
    """
    keys = _names(by)
    source, given = source_of(states)
    kept = states_in(given)
    if not kept:
        raise ValueError(f"there are no states to merge among {', '.join(given.names)}; su.aggregate makes some")
    check_rows(given, keys, keys, (), pa.timestamp("us", "UTC"))
    schema = _schema(pa.schema([*(given.field(k) for k in keys), *(given.field(name) for name in kept)]), keys)

    def combine(table: pa.Table) -> pa.Table:
        functions = {name: function_of(table.column(name)) for name in kept}
        return merge_by(table, _keys(table, keys), functions)

    def first(batches: Batches) -> Iterator[pa.Table]:
        return partial_states(batches, combine, combine, MOST_BYTES)

    return two_phase(source, [*keys, *kept], keys, first, schema, keys, combine, schema)


def results(states: pa.Table, measures: Mapping[str, Measure]) -> pa.Table:
    """Read the results of a table of states by keys: the keys, a result for each measure."""
    serving = {name: column.name for column in plan(measures) for name in column.serves}
    keys = [name for name in states.column_names if name not in states_in(states.schema)]
    return finish_by(states, keys, {name: (serving[name], measure) for name, measure in measures.items()})


def results_schema(schema: pa.Schema, measures: Mapping[str, Measure]) -> pa.Schema:
    """Return the schema of `results`; raises ``ValueError`` unless these are states of the measures."""
    for column in plan(_checked(measures)):
        if column.name not in states_in(schema):
            raise ValueError(
                f"these are not states of {', '.join(column.serves)}: they have no states {column.name!r}; "
                f"there are {', '.join(states_in(schema)) or 'none'}"
            )
    return results(schema.empty_table(), measures).schema


def states_in(schema: pa.Schema) -> list[str]:
    """Name the columns that hold states of a registered function."""
    return [f.name for f in schema if class_of(f.type) is not None]


def _keys(table: pa.Table, names: Sequence[str]) -> dict[str, pa.Array]:
    return {name: key_column(table.column(name)) for name in names}


def _names(by: Sequence[str]) -> list[str]:
    if isinstance(by, str) or not all(isinstance(name, str) and name for name in by):
        raise ValueError(f"by must be a list of column names; got {by!r}" + (f": write [{by!r}]" * isinstance(by, str)))
    if len(set(by)) < len(by):
        raise ValueError(f"by names a column twice: {list(by)}")
    return list(by)


def _checked(measures: Mapping[str, Measure]) -> Mapping[str, Measure]:
    if not isinstance(measures, Mapping) or not measures:
        raise ValueError(f"measures must name at least one, say {{'p': aggr.dds('latency_ms')}}; got {measures!r}")
    for name, measure in measures.items():
        if not isinstance(measure, Measure):
            raise ValueError(f"the measure {name!r} must be made by aggr, say aggr.sum('x'); got {measure!r}")
    return measures


def _schema(schema: pa.Schema, keys: Sequence[str]) -> pa.Schema:
    if taken := [name for name in schema.names if schema.names.count(name) > 1]:
        raise ValueError(f"the name {taken[0]!r} is both a measure's and a column's to group by; rename the measure")
    return schema
