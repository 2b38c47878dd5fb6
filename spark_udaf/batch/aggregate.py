"""aggregate, merge and finish: reduce the rows of each key to states, merge states, and compute results from states."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Observation

import tiltframe
from aggr import Groups, Measure
from aggr.arguments import checked_truth, shown
from aggr.arrow.normalize import one_array
from aggr.groups.groups import group_by
from aggr.state_checks import CheckedStates, arrow_of, mark_as_checked
from aggr.tables.by_key import (
    check_rows,
    columns_of_keys_and_measures,
    columns_of_measures,
    finish_by,
    key_column,
    merge_by,
    reduce_by,
    states_fields,
)
from aggr.tables.flat_results import flat_schema, flattened
from aggr.tables.identify import function_of, states_in
from aggr.tables.keys import Keys, checked_keys, keyed, plain_keys
from aggr.tables.partial_aggregation import MAX_RATIO, adaptive_states, partial_states
from aggr.tables.state_plan import plan_state_columns
from spark_udaf.batch.excluded import ExclusionColumns, check_observation
from spark_udaf.batch.rollup import LevelTables, plan_rollup
from spark_udaf.plan.columns import Batches, check_distinct_names
from spark_udaf.plan.engine import Feature, engine_of
from spark_udaf.plan.fractions import check_no_fractions_in_columns
from spark_udaf.plan.scan import ParquetScan
from spark_udaf.plan.schema import as_schema, check_descriptions, check_has_description, with_descriptions
from spark_udaf.plan.shard_messages import Content
from spark_udaf.plan.two_phase import (
    MAX_STATE_BYTES,
    TwoPhasePlan,
    UnreducedRows,
    as_contents,
    as_states,
    keys_as_in_states,
    plan_of,
    rows_schema,
    source_of,
)
from spark_udaf.plan.united_states import check_unions
from tiltframe import OrderedFrame, TiltFrame
from tiltframe.level_chain import join_levels
from tiltframe.names import LEVEL, check_names
from windows import TimeWindow, as_window


def aggregate(
    df: DataFrame | ParquetScan,
    by: Sequence[str] | Mapping[str, str],
    measures: Mapping[str, Measure],
    window: str | TimeWindow | None = None,
    time: str | None = None,
    scan: Literal["auto"] | None = None,
) -> DataFrame:
    """Return the states of groups of rows, one row per group. `finish` computes their results.

    Parameters
    ----------
    df : DataFrame, or Parquet files from `scan_parquet`
    by : column names, or name -> column or expression
        The keys of groups; without keys, the result is one row. ``{"route": "lower(route)"}`` groups by an expression
        in SQL, ``{"tag": each("tags")}`` by the elements of a list.
    measures : name -> measure
        Measures such as `aggr.count` and `aggr.dds`. ``first`` and ``last`` need a column of event times: their own
        argument ``by=``, or the argument ``time``.
    window : str or TimeWindow, optional
        A window by which rows are grouped as well, such as ``session(30m)``, ``hopping(1h, 10m)`` or ``1d``. Text is
        read by `windows.read_window`, in UTC.
    time : str, optional
        The column of event times; required with ``window``.
    scan : "auto", optional
        As in `rollup`: if the DataFrame only selects rows and columns of Parquet files, the tasks read these files
        themselves, instead of receiving the rows from the JVM.

    Returns
    -------
    DataFrame
        The columns window_start and window_end (with a window), the columns of ``by``, and one struct per state. If
        several measures can share a state, this state has one column, which has the name of the first such measure.
        `merge` aggregates the states further; `finish` and the functions of `su.states` compute results from states.

    Raises
    ------
    ValueError, TypeError
        If arguments are invalid, a column is missing, or a measure does not accept the type of its column. The error is
        raised before any job starts.

    Examples
    --------
    The documentation has a tested example::

        states = su.aggregate(df, ["host", "day"], {"latency": aggr.dds("latency_ms")})
        su.merge(states, ["day"]).select("day", su.states.quantile("latency", 0.99))
    """
    if (window is None) != (time is None):
        raise ValueError(
            "window and time must be passed together: window is the window to group by, and time is the column of "
            f"event times; got window={window!r} and time={time!r}"
        )
    if window is None or time is None:
        return plan_states(df, by, measures, scan).run()
    keys = keys_from(by, measures)
    level = as_window(window)
    frame = TiltFrame([level], time=time, measures=measures, keys=keys, timezone=level.timezone or "UTC")
    source, input_schema = source_of(df, frame.columns_in, scan)
    frame.check(input_schema)
    schema = pa.schema([field for field in frame.states_schema(input_schema) if field.name != LEVEL])
    schema = with_descriptions(schema, frame.states)

    def without_level(levels: LevelTables) -> pa.Table:
        return join_levels(levels, frame).drop_columns([LEVEL])

    return plan_rollup(source, input_schema, frame, convert_levels=without_level, result_schema=schema).run()


def plan_states(
    df: DataFrame | ParquetScan,
    by: Sequence[str] | Mapping[str, str],
    measures: Mapping[str, Measure],
    scan: Literal["auto"] | None = None,
) -> TwoPhasePlan:
    """Return the plan of a job that computes the states of groups without windows. Raise the same errors as
    `aggregate`.
    """
    keys = keys_from(by, measures)
    states = plan_state_columns(measures)
    source, input_schema = source_of(df, lambda names: columns_of_keys_and_measures(keys, states, names), scan)
    check_rows(input_schema, keys, states, pa.timestamp("us", "UTC"))
    check_no_fractions_in_columns(states, keys, input_schema, pa.timestamp("us", "UTC"))
    schema = with_descriptions(pa.schema(states_fields(input_schema, keys, states)), states)
    functions = {c.name: c.measure.function for c in states}
    columns = columns_of_keys_and_measures(keys, states, input_schema.names)
    measure_columns = columns_of_measures(keys, states, input_schema.names)

    def reduce(rows: pa.Table) -> pa.Table:
        rows, _, groups = keyed(rows, keys, measure_columns)
        return reduce_by(rows, groups, states)

    def merge(states_table: pa.Table, max_ratio: float = 1.0) -> pa.Table:
        if not keys and not states_table.num_rows:  # Without keys, there is one group even if there are no rows.
            return pa.table({c.name: c.measure.function.zero(1, c.measure.input_type(input_schema)) for c in states})
        return merge_by(mark_as_checked(states_table), _key_arrays(states_table, list(keys)), functions, max_ratio)

    def count_groups(rows: pa.Table) -> int:
        _, row_indices, key_columns = keyed(rows, keys, ())
        # If `count_groups` returns 0, `adaptive_states` always reduces the rows to states, and never yields the rows
        # themselves for the shuffle. Rows without columns, and rows that are repeated for the elements of a list, must
        # always be reduced, because they cannot be shuffled.
        if row_indices is not None or not columns:
            return 0
        return group_by(list(key_columns.values()), rows.num_rows)[0].n

    def reduce_partition(batches: Batches, _: int) -> Iterator[tuple[Content, pa.Table]]:
        merge_if_smaller = partial(merge, max_ratio=MAX_RATIO)
        states_or_rows = adaptive_states(
            batches, reduce=reduce, merge=merge_if_smaller, max_bytes=MAX_STATE_BYTES, count_groups=count_groups
        )
        return as_contents(states_or_rows)

    def shard_rows(rows: pa.Table) -> tuple[pa.Table, list[pa.Array]]:
        return rows, keys_as_in_states(keyed(rows, keys, ()).keys)

    unreduced = UnreducedRows(rows_schema(input_schema, columns), shard_rows, reduce)
    return TwoPhasePlan(
        source=source,
        columns=columns,
        keys=plain_keys(keys),
        reduce=reduce_partition,
        partial_schema=schema,
        shard_by=list(keys),
        merge=merge,
        result_schema=schema,
        unreduced=unreduced,
        is_one_group=not keys,
    )


def plan_results(states: TwoPhasePlan, measures: Mapping[str, Measure]) -> TwoPhasePlan:
    """Return a plan whose tasks merge the states and compute the results of the measures.

    ``states`` must be a plan for the states of ``measures``. The states and their types are not checked again.
    """
    state_of_measure = {name: column.name for column in plan_state_columns(measures) for name in column.serves}
    state_columns = states_in(states.result_schema)
    keys = [field for field in states.result_schema if field.name not in state_columns]
    state_types = {name: states.result_schema.field(state_of_measure[name]).type for name in measures}
    fields = [pa.field(name, measure.function.result_type(state_types[name])) for name, measure in measures.items()]

    def results_of_merged(merged: pa.Table) -> pa.Table:
        return results(mark_as_checked(merged), measures)

    return states.with_results(results_of_merged, pa.schema([*keys, *fields]))


def merge(states: DataFrame | ParquetScan, by: Sequence[str]) -> DataFrame:
    """Merge states into the states of coarser groups. Rows are not read.

    The levels of a frame contain the same rows. Select the states of one level, ``.where("level = '1h'")``, or add
    ``level`` to ``by``. The job fails if a group contains several levels.

    Parameters
    ----------
    states : DataFrame, or Parquet files from `scan_parquet`
        The result of `aggregate` or `rollup`, which may have been written and read back, filtered, or united with other
        states.
    by : column names
        The keys of groups; any columns except states.

    Returns
    -------
    DataFrame of the columns of ``by`` and the columns of states

    Raises
    ------
    ValueError, TypeError
        If there are no states, a column of ``by`` is missing, or a union has put states of different measures into one
        column. The error is raised before any job starts.

    Guarantee
    ---------
    The states equal, bit for bit, those that `aggregate` computes directly from the rows of all merged groups.
    """
    keys = _checked_names(by)
    source, schema_of_states = source_of(states, lambda names: keys)
    check_unions(states)
    state_columns = states_in(schema_of_states)
    if not state_columns:
        names = ", ".join(schema_of_states.names)
        raise ValueError(f"the columns {names} contain no states to merge; pass the result of su.aggregate")
    check_rows(schema_of_states, {name: name for name in keys}, (), pa.timestamp("us", "UTC"))
    # States of different levels are merged separately at first, so that `merge_shard` can detect a group that contains
    # states of several levels.
    keys_and_level = [*keys, LEVEL] if LEVEL in schema_of_states.names and LEVEL not in keys else keys
    schema = pa.schema([schema_of_states.field(name) for name in [*keys, *state_columns]])
    shuffled_schema = pa.schema([schema_of_states.field(name) for name in [*keys_and_level, *state_columns]])

    def combine(states: pa.Table | CheckedStates, by: Sequence[str] = keys_and_level) -> pa.Table:
        table = arrow_of(states)
        functions = {name: function_of(table.column(name)) for name in state_columns}
        key_arrays = _key_arrays(table, by)
        return _null_if_all_null(
            merge_by(states, key_arrays, functions), table, list(key_arrays.values()), state_columns
        )

    def merge_partition(batches: Batches, _: int) -> Iterator[tuple[Content, pa.Table]]:
        return as_states(partial_states(batches, combine, combine, MAX_STATE_BYTES))

    def merge_shard(table: pa.Table) -> pa.Table:
        # Without keys, the result has one row even if there are no states. The states in this row are null. They can be
        # merged with any other states later, because merging a null state with another state gives the other state.
        if not keys and not table.num_rows:
            return pa.table({name: pa.nulls(1, schema.field(name).type) for name in state_columns})
        table = combine(table)  # `combine` raises an error if partitions have states with different parameters
        if keys_and_level is keys:
            return table
        merged = combine(mark_as_checked(table), keys)
        if merged.num_rows < table.num_rows:
            levels = " and ".join(sorted(map(str, pc.unique(table.column(LEVEL)).to_pylist())))
            raise ValueError(
                f"these are states of the levels {levels}, which contain the same rows, so merging them would count "
                f"rows twice; merge the states of one level, .where(\"level = '…'\"), or name {LEVEL!r} in by"
            )
        return merged

    return TwoPhasePlan(
        source=source,
        columns=[*keys_and_level, *state_columns],
        keys=keys_and_level,
        reduce=merge_partition,
        partial_schema=shuffled_schema,
        shard_by=keys,
        merge=merge_shard,
        result_schema=schema,
        is_one_group=not keys,
    ).run()


def _null_if_all_null(
    merged: pa.Table, states: pa.Table, keys: Sequence[pa.Array], state_columns: Sequence[str]
) -> pa.Table:
    """Return the table ``merged``, which has one merged state per group. In the returned table, the merged state of a
    group is null if all ``states`` of the group are null.

    A state contains the parameters of its function, and a null does not. Merging only nulls therefore gives a state
    with default parameters. This state could not be merged with states of other tasks that have other parameters.
    """
    if not any(states.column(name).null_count for name in state_columns):
        return merged
    groups, _ = group_by(keys, states.num_rows)
    for name in state_columns:
        is_valid = one_array(states.column(name)).is_valid().to_numpy(zero_copy_only=False)
        is_absent = np.bincount(groups.ids[is_valid], minlength=groups.n) == 0
        column = one_array(merged.column(name)).take(pa.array(np.arange(groups.n), mask=is_absent))
        merged = merged.set_column(merged.column_names.index(name), merged.schema.field(name), column)
    return merged


def results(states: pa.Table | CheckedStates, measures: Mapping[str, Measure]) -> pa.Table:
    """Return a table with the key columns of ``states``, and one column of results per measure.

    The states are checked, unless they have the type `CheckedStates`.
    """
    columns_of_states = plan_state_columns(measures)
    state_of_measure = {name: column.name for column in columns_of_states for name in column.serves}
    table: pa.Table = arrow_of(states)
    state_names = states_in(table.schema)
    keys = [name for name in table.column_names if name not in state_names]
    # Without keys, there is one group even if there are no rows. The state of this group may be null. Merging a null
    # state alone gives the state of no rows, so that a count is 0 and not null.
    if not keys:
        for column in columns_of_states:
            merged = column.measure.function.merge(states.column(column.name), Groups.each(table.num_rows))
            table = table.set_column(table.column_names.index(column.name), column.name, arrow_of(merged))
        states = mark_as_checked(table)
    return finish_by(states, keys, {name: (state_of_measure[name], measure) for name, measure in measures.items()})


def results_schema(
    schema: pa.Schema, measures: Mapping[str, Measure], trust: bool = False, needs_description: bool = False
) -> pa.Schema:
    """Return the schema of the table that `results` returns for states with the schema ``schema``. Raise
    ``ValueError`` unless ``schema`` has the columns of states that the measures need.

    The metadata of a column may describe its states. Unless ``trust`` is true, this description is compared with the
    measures. With ``needs_description``, also raise the error for a column without a description.
    """
    for column in plan_state_columns(measures):
        if column.name not in states_in(schema):
            raise ValueError(
                f"these are not states of {', '.join(column.serves)}: there is no column {column.name!r} of states, "
                f"only {', '.join(states_in(schema)) or 'other columns'}; pass the measures of su.aggregate"
            )
    if not trust:
        check_descriptions(schema, plan_state_columns(measures), needs_description)
    taken_names = [name for name in schema.names if name in measures and name not in states_in(schema)]
    if taken_names:
        raise ValueError(
            f"the DataFrame of states already has a column {taken_names[0]!r}; choose another name for the measure"
        )
    return results(schema.empty_table(), measures).schema


def _has_metadata(states: DataFrame | ParquetScan) -> bool:
    """Return whether the columns of ``states`` can have metadata. The result is false for a scan of files, which does
    not read metadata, and on an engine that does not preserve metadata.
    """
    if isinstance(states, ParquetScan) or not hasattr(states, "sparkSession"):
        return False
    return engine_of(states.sparkSession).has(Feature.METADATA)


def _key_arrays(table: pa.Table, names: Sequence[str]) -> dict[str, pa.Array]:
    return {name: key_column(table.column(name)) for name in names}


def _checked_names(by: Sequence[str]) -> list[str]:
    if isinstance(by, str) or not isinstance(by, Sequence) or not all(isinstance(name, str) and name for name in by):
        hint = f": write [{by!r}]" if isinstance(by, str) else ""
        raise ValueError(f"by must be a list of column names; got {by!r}{hint}")
    if len(set(by)) < len(by):
        raise ValueError(f"the argument by contains a column twice: {list(by)}; list each column once")
    return list(by)


def keys_from(by: Sequence[str] | Mapping[str, str], measures: Mapping[str, Measure]) -> Keys:
    """Return the keys that the argument ``by`` describes. Raise ``ValueError`` for invalid keys or measures, and for
    names that occur twice.
    """
    keys = checked_keys(by if isinstance(by, Mapping) else _checked_names(by), "by")
    check_names(keys, checked_measures(measures))
    return keys


def checked_measures(measures: Mapping[str, Measure]) -> Mapping[str, Measure]:
    """Return the measures unchanged. Raise ``ValueError`` unless they are a mapping from names to measures with at
    least one measure.
    """
    if not isinstance(measures, Mapping) or not measures:
        raise ValueError(
            f"measures must name at least one measure, such as {{'p': aggr.dds('latency_ms')}}; got {measures!r}"
        )
    for name, measure in measures.items():
        if not isinstance(measure, Measure):
            raise ValueError(f"the measure {name!r} must be made by aggr, such as aggr.sum('x'); got {shown(measure)}")
    return measures


def finish(
    states: DataFrame | ParquetScan,
    measures: TiltFrame | OrderedFrame | Mapping[str, Measure],
    flat: bool = False,
    trust: bool = False,
    excluded: Observation | None = None,
) -> DataFrame:
    """Compute the results of states. The result has one row per row of states, with a result for each measure.

    If ``states`` is the direct result of `rollup`, `aggregate` or `merge`, the tasks that merge the states also compute
    the results. Otherwise, for example after ``cache()``, a checkpoint or a filter, Spark sends the states to Python
    again, which takes longer.

    Parameters
    ----------
    states : DataFrame, or Parquet files from `scan_parquet`
        The result of `rollup`, `ordered_rollup` or `aggregate`, which may have been merged, written and read back,
        filtered, or united with other states.
    measures : TiltFrame, OrderedFrame, or name -> measure
        The measures of the states, or other measures that can be computed from the same states, such as other
        quantiles.
    flat : bool
        Return plain columns instead of records: ``latency_count``, ``latency_p50``, ``latency_p99``.
    trust : bool
        Accept states whose metadata do not describe their measures. Also accept states of `aggregate` whose metadata
        describe another column, condition or parameter than ``measures`` has.
    excluded : `pyspark.sql.Observation`, optional
        An observation. When an action runs, the observation counts the groups with more values than the limit of a
        measure with ``beyond="null"``, and the values that a measure with ``bad_values="skip"`` refused. For an
        aggregation with a measure ``latency``, the metrics have the names ``latency groups beyond the limit`` and
        ``latency refused values``. For a frame, there are metrics for each level, as in `rollup`.

    Returns
    -------
    DataFrame
        For a frame: level, window_start, window_end, keys and one column per measure. For an ordered frame: level,
        time, keys and the measures. For an aggregation: the columns that are not states, and one column per measure.

    Raises
    ------
    ValueError, TypeError
        If ``states`` are not states of ``measures``, if the metadata is missing and ``trust`` is not set, or if a union
        has put states of different measures into one column. The error is raised before any job starts.
    """
    is_trusted = checked_truth(trust, "trust")
    existing_plan = plan_of(states)
    needs_description = not is_trusted and existing_plan is None and _has_metadata(states)
    if not is_trusted and existing_plan is None:
        check_unions(states)
    if isinstance(measures, TiltFrame):
        source, states_schema = source_of(states, lambda names: measures.states_columns)
        schema = measures.results_schema(states_schema)
        compute_table = partial(tiltframe.finish, frame=measures)
        if needs_description:
            check_has_description(states_schema.field(LEVEL))
        names: Sequence[str] = measures.states_columns
    elif isinstance(measures, OrderedFrame):
        columns = [LEVEL, measures.order.time, *measures.order.keys, *(state.name for state in measures.states)]
        source, states_schema = source_of(states, lambda names: [name for name in columns if name in names])
        compute_table = partial(tiltframe.finish_ordered, frame=measures)
        schema = compute_table(states_schema.empty_table()).schema
        names = states_schema.names
    else:
        checked_measures(measures)
        source, states_schema = source_of(states)
        schema = results_schema(states_schema, measures, is_trusted, needs_description)
        compute_table = partial(results, measures=measures)
        names = states_schema.names
    schema = flat_schema(schema) if checked_truth(flat, "flat") else schema
    check_distinct_names(schema.names, source.spark)

    exclusion_columns = None
    if excluded is not None:
        check_observation(excluded, states)
        if isinstance(measures, OrderedFrame):
            raise ValueError(
                "the argument excluded works with time windows and aggregations, but this frame has ordered windows; "
                "leave out excluded"
            )
        exclusion_columns = ExclusionColumns(measures)
        schema = exclusion_columns.schema(schema)

    def finish_table(table: pa.Table) -> pa.Table:
        results_table = compute_table(table)
        results_table = flattened(results_table) if flat else results_table
        return results_table if exclusion_columns is None else exclusion_columns.append(results_table, table)

    if existing_plan is not None:
        results_df = existing_plan.with_results(finish_table, schema).run()
        return results_df if exclusion_columns is None else exclusion_columns.observe(results_df, excluded)

    def finish_partition(batches: Batches, _: int) -> Batches:
        for batch in batches:
            yield from as_schema(finish_table(pa.Table.from_batches([batch])), schema).to_batches()

    results_df = source.map(names, [], finish_partition, schema)
    return results_df if exclusion_columns is None else exclusion_columns.observe(results_df, excluded)
