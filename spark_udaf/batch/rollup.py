"""rollup: tilt frames on Spark, as a two-phase plan with one shuffle for all levels.

The shuffle combines states by keys and coarsest window. Every finer window lies inside one coarsest window, so that
each shard can compute all levels without the states of other shards. If windows overlap, or their ends depend on rows,
the shuffle combines states by keys only. If a single task reads all rows of a window, this task computes the window
before the shuffle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Any, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from aggr.arguments import shown
from aggr.state_checks import mark_as_checked
from aggr.tables.keys import keyed, plain_keys
from spark_udaf.batch.excluded import ExclusionColumns, check_observation
from spark_udaf.plan.columns import Batches
from spark_udaf.plan.engine import Feature, check_supports
from spark_udaf.plan.exclusive_times import Span
from spark_udaf.plan.fractions import check_no_fractions_in_query
from spark_udaf.plan.scan import ParquetScan
from spark_udaf.plan.schema import with_descriptions
from spark_udaf.plan.shard_messages import Content
from spark_udaf.plan.two_phase import (
    MAX_STATE_BYTES,
    Source,
    TwoPhasePlan,
    UnreducedRows,
    as_contents,
    keys_as_in_states,
    rows_schema,
    source_of,
)
from tiltframe import TiltFrame
from tiltframe.event_time import INSTANT, event_times
from tiltframe.instants import instants_of, take_rows
from tiltframe.level_chain import climb, climb_within, join_levels
from tiltframe.merged_windows import merge_panes
from tiltframe.names import COARSE, LEVEL
from tiltframe.reducing import adaptive_states, reduce_rows
from windows import TimeWindow

LevelTables: TypeAlias = Iterable[tuple[TimeWindow, pa.Table]]
_Contents: TypeAlias = Iterator[tuple[Content, pa.Table]]
ON_NULL_TIME = ("fail", "skip")
NULL_TIMES = "null_times"  # the name of the metric that counts the rows without a time in each batch of a stream


def rollup(
    df: DataFrame | ParquetScan,
    frame: TiltFrame,
    on_null_time: str | Observation = "fail",
    scan: Literal["auto"] | None = None,
    excluded: Observation | None = None,
) -> DataFrame:
    """Roll up a DataFrame to the states of every level of a tilt frame.

    Parameters
    ----------
    df : DataFrame, or Parquet files from `scan_parquet`
        The rows, with the frame's time, keys and the columns of its measures; on classic Spark or Spark Connect.
    frame : TiltFrame
    on_null_time : str or `pyspark.sql.Observation`
        The treatment of rows of a DataFrame whose time is null: ``fail`` the job, or ``skip`` these rows. With an
        observation, these rows are skipped, and the metric ``rows`` of the observation is their number.
    scan : "auto", optional
        If a DataFrame only selects rows and columns of Parquet files, the tasks read these files themselves, as with
        `scan_of`. If the DataFrame does more, Spark sends the rows to the tasks, and the log contains the reason.
    excluded : `pyspark.sql.Observation`, optional
        An observation. When an action runs, the observation counts, for each level, the groups with more values than
        the limit of a measure with ``beyond="null"``, and the values that a measure with ``bad_values="skip"`` refused.
        For a measure ``latency`` and a level ``1h``, the metrics have the names ``latency groups beyond the limit, 1h``
        and ``latency refused values, 1h``. With an observation, a later `finish` takes longer, because Spark sends the
        states to Python again. If only results are needed, pass the observation to `finish` instead.

    Returns
    -------
    DataFrame
        One row per level, window and key: level, window_start, window_end (exclusive), keys, one struct per state. The
        states are bit-for-bit those of `tiltframe.rollup` for the same rows, however they are partitioned.

    Raises
    ------
    ValueError, TypeError
        If a column of the frame is missing, or a measure does not accept the type of its column. The error is raised
        before any job starts.

    Examples
    --------
    The README has a tested example::

        states = su.rollup(df, frame)
        su.finish(states, frame).where("level = '1h'").show()
    """
    source, input_schema = source_of(
        without_null_times(df, check_frame(frame).time, on_null_time), frame.columns_in, scan
    )
    frame.check(input_schema)
    result_schema = with_descriptions(frame.states_schema(input_schema), frame.states)
    if excluded is None:
        return plan_rollup(
            source,
            input_schema,
            frame,
            convert_levels=lambda levels: join_levels(levels, frame),
            result_schema=result_schema,
        ).run()
    check_observation(excluded, df)
    columns = ExclusionColumns(frame)

    def with_counts(levels: LevelTables) -> pa.Table:
        states = join_levels(levels, frame)
        return columns.append(states, states)

    planned = plan_rollup(
        source, input_schema, frame, convert_levels=with_counts, result_schema=columns.schema(result_schema)
    ).run()
    return columns.observe(planned, excluded)


def check_frame(frame: TiltFrame) -> TiltFrame:
    """Raise ``TypeError`` unless the argument is a frame."""
    if not isinstance(frame, TiltFrame):
        raise TypeError(f"frame must be a tiltframe.TiltFrame; got {frame!r}")
    return frame


def plan_rollup(
    source: Source,
    input_schema: pa.Schema,
    frame: TiltFrame,
    convert_levels: Callable[[LevelTables], pa.Table],
    result_schema: pa.Schema,
    *,
    can_finish_early: bool = True,
) -> TwoPhasePlan:
    """Return the plan of a rollup of rows with the schema ``input_schema``.

    Tasks pass the states of complete windows, one table per level, to ``convert_levels``, which returns a table with
    the schema ``result_schema``. If ``can_finish_early`` is true, and all rows of a window are in one partition, the
    task that reads this partition calls ``convert_levels`` for the window before the shuffle.
    """
    check_no_fractions_in_query(frame, input_schema)
    state_fields = [field for field in frame.states_schema(input_schema) if field.name != LEVEL]
    coarsest_columns = [COARSE] if frame.disjoint else []
    windows_allow_early_finish = frame.disjoint and frame.panes.contiguous
    exclusive_times = (
        source.exclusive_times(frame.time, frame.timezone) if can_finish_early and windows_allow_early_finish else None
    )
    # If tasks finish windows before the shuffle, the states of the remaining windows may belong to any level. The
    # column ``level`` then contains the index of the level of each state.
    level_fields = [] if exclusive_times is None else [pa.field(LEVEL, pa.int8())]
    partial_schema = pa.schema([*(pa.field(name, INSTANT) for name in coarsest_columns), *level_fields, *state_fields])

    def reduce(batches: Batches, number: int) -> _Contents:
        contents = as_contents(adaptive_states(batches, frame, MAX_STATE_BYTES))
        if exclusive_times is not None:
            contents = _finish_complete_windows(contents, frame, exclusive_times[number], convert_levels)
        for content, table in contents:
            needs_start = content is Content.STATES and bool(coarsest_columns)
            yield content, with_coarsest_start(table, frame) if needs_start else table

    def shard_rows(rows: pa.Table) -> tuple[pa.Table, list[pa.Array]]:
        coarsest_starts = []
        # The shard of a row depends on its coarsest window and its keys or, if windows overlap, on its keys alone.
        if coarsest_columns:
            assigned = frame.levels[-1].assign(event_times(rows.column(frame.time), frame.time, frame.timezone))
            rows = take_rows(rows, assigned.rows)
            coarsest_starts = [pa.array(assigned.starts).cast(INSTANT)]
        return rows, [*coarsest_starts, *keys_as_in_states(keyed(rows, frame.keyed_by, (), frame.timezone).keys)]

    def reduce_shuffled(rows: pa.Table) -> pa.Table:
        states = reduce_rows(rows, frame)
        states = with_coarsest_start(states, frame) if coarsest_columns else states
        return _with_level_number(states, 0) if level_fields else states

    def merge(states: pa.Table) -> pa.Table:
        states_by_level = [states]
        if level_fields:
            states_by_level = [
                states.filter(pc.equal(states.column(LEVEL), number)) for number in range(len(frame.levels))
            ]
        finest, *coarser = states_by_level
        return convert_levels(climb(merge_panes(mark_as_checked(finest), frame), frame, coarser))

    columns = frame.columns_in(input_schema.names)
    plain_names = plain_keys(frame.keyed_by)
    unreduced = UnreducedRows(rows_schema(input_schema, columns), shard_rows, reduce_shuffled)
    shard_columns = [*coarsest_columns, *frame.keys]
    return TwoPhasePlan(
        source=source,
        columns=columns,
        keys=plain_names,
        reduce=reduce,
        partial_schema=partial_schema,
        shard_by=shard_columns,
        merge=merge,
        result_schema=result_schema,
        unreduced=unreduced,
        can_finish_early=exclusive_times is not None,
    )


def _finish_complete_windows(
    contents: _Contents,
    frame: TiltFrame,
    exclusive_times: Span | None,
    convert_levels: Callable[[LevelTables], pa.Table],
) -> _Contents:
    """Yield the results of complete windows: the windows of all levels that lie in the range ``exclusive_times``. All
    rows with times in this range are in this partition. Then yield the states of the other windows, which must be
    merged with the states of other partitions.

    Without ``exclusive_times``, or if ``contents`` is not a single table of states, yield all tables of ``contents``
    instead. Each table of states then has an additional column ``level`` with the value 0, the index of the finest
    level.
    """
    first_tables = list(islice(contents, 2))
    # If there are several tables, the states of a window may be in more than one of them, so no window is complete.
    if exclusive_times is None or len(first_tables) != 1 or first_tables[0][0] is not Content.STATES:
        all_tables = chain(first_tables, contents)
        # Without this deletion, `first_tables` would keep two tables in memory while later tables are processed.
        del first_tables
        for content, table in all_tables:
            yield content, _with_level_number(table, 0) if content is Content.STATES else table
        return
    complete_levels, other_states = climb_within(
        merge_panes(mark_as_checked(first_tables[0][1]), frame), frame, *exclusive_times
    )
    yield Content.RESULTS, convert_levels(complete_levels)
    yield (
        Content.STATES,
        pa.concat_tables([_with_level_number(states, number) for number, states in enumerate(other_states)]),
    )


def _with_level_number(states: pa.Table, level: int) -> pa.Table:
    return states.append_column(LEVEL, pa.repeat(pa.scalar(level, pa.int8()), states.num_rows))


def with_coarsest_start(states: pa.Table, frame: TiltFrame) -> pa.Table:
    """Return the states with a new first column: the start of the coarsest window of each state. The shard of a state
    depends on this column and the keys.
    """
    coarsest_starts = frame.levels[-1].assign(instants_of(states)).starts
    return states.add_column(0, COARSE, pa.array(coarsest_starts).cast(INSTANT))


def without_null_times(rows: Any, time: str, on_null_time: str | Observation, metric: str = NULL_TIMES) -> Any:
    """Return the rows whose time is not null. If ``on_null_time`` is an observation, it counts the rows whose time is
    null. In a stream, the metric with the name ``metric`` counts them.

    If ``on_null_time`` is ``fail``, return ``rows`` unchanged. The tasks then raise an error for a time that is null.

    Raise ``ValueError`` for other values of ``on_null_time``, if rows must be skipped but ``rows`` is not a DataFrame,
    and if the engine does not support observations.
    """
    # The name of the class is compared, because Spark Connect has its own class Observation.
    observation = on_null_time if type(on_null_time).__name__ == "Observation" else None
    if observation is None and on_null_time not in ON_NULL_TIME:
        raise ValueError(
            f"on_null_time must be one of {', '.join(ON_NULL_TIME)}, or an Observation; got {shown(on_null_time)}"
        )
    if on_null_time == "fail" or isinstance(rows, type) or not hasattr(rows, "mapInArrow"):
        if on_null_time != "fail" and hasattr(rows, "schema"):
            raise ValueError(
                "on_null_time='skip' works only with a DataFrame, because tasks that read files do not skip rows; "
                "pass spark.read.parquet(…) in the place of the files"
            )
        return rows  # For an object that is neither a DataFrame nor files, a later check raises an error.
    if time not in rows.columns:
        return rows
    column = rows[f"`{time.replace('`', '``')}`"]
    if rows.isStreaming or observation is not None:
        if rows.isStreaming and observation is not None:
            raise ValueError(
                "an Observation works for one job only; for a stream, pass on_null_time='skip', and each batch counts "
                f"the skipped rows in its progress, observedMetrics[{metric!r}]"
            )
        check_supports(rows.sparkSession, Feature.OBSERVATIONS, "an Observation", "use on_null_time='skip'")
        rows = rows.observe(observation or metric, F.count_if(column.isNull()).alias("rows"))
    return rows.where(column.isNotNull())
