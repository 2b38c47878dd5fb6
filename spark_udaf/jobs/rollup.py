"""rollup: tilt frames on Spark: the two-phase plan, one shuffle for all levels.

What comes together in the second phase is (keys, coarsest window): every finer window nests in one coarsest window, so
a shard climbs all levels on its own. Where windows overlap, or rows decide where they end, it is all of a key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from aggr.states.keys import keyed, plain_keys
from spark_udaf.jobs.scan import ParquetScan
from spark_udaf.jobs.two_phase import (
    MOST_BYTES,
    Batches,
    Source,
    TwoPhases,
    Unreduced,
    kept_keys,
    rows_schema,
    source_of,
)
from tiltframe import TiltFrame
from tiltframe.event_time import event_times
from tiltframe.frame import INSTANT, LEVEL
from tiltframe.level_chain import adaptive_states, climb, instants_of, joined, merge_panes, reduce_rows, taken
from tiltframe.names import COARSE
from windows import TimeWindow

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Levels: TypeAlias = Iterable[tuple[TimeWindow, pa.Table]]


def rollup(df: DataFrame | ParquetScan, frame: TiltFrame) -> DataFrame:
    """Roll up a DataFrame: the states of every level of a tilt frame.

    Parameters
    ----------
    df : DataFrame, or Parquet files as `scan_parquet` gives them
        Of classic Spark or Spark Connect, with the frame's time, keys and the columns of its measures.
    frame : TiltFrame

    Returns
    -------
    DataFrame
        One row per level, window and key: level, window_start, window_end (exclusive), keys, one struct per
        state. The same bits as `tiltframe.rollup` gives for the same rows, whatever the partitions.

    Raises
    ------
    ValueError, TypeError
        If the DataFrame does not fit the frame; before any job starts.

    Examples
    --------
    The README has one that runs::

        states = su.rollup(df, frame)
        su.finish(states, frame).where("level = '1h'").show()
    """
    source, given = source_of(df, check_frame(frame).columns_in)
    frame.check(given)
    return plan_rollup(source, given, frame, lambda levels: joined(levels, frame), frame.states_schema(given))


def check_frame(frame: TiltFrame) -> TiltFrame:
    """Raise ``TypeError`` for what is no frame."""
    if not isinstance(frame, TiltFrame):
        raise TypeError(f"give a tiltframe.TiltFrame; got {frame!r}")
    return frame


def plan_rollup(
    source: Source, given: pa.Schema, frame: TiltFrame, then: Callable[[Levels], pa.Table], result: pa.Schema
) -> DataFrame:
    """Plan a rollup of rows of a schema; ``then`` gets the states of all levels, whole windows at a time, in tasks."""
    panes = [field for field in frame.states_schema(given) if field.name != LEVEL]
    together = [COARSE] * frame.disjoint
    partial = pa.schema([*(pa.field(name, INSTANT) for name in together), *panes])

    def reduce(batches: Batches) -> Iterator[tuple[bool, pa.Table]]:
        for reduced, table in adaptive_states(batches, frame, MOST_BYTES):
            yield reduced, with_coarsest(table, frame) if reduced and together else table

    def located(rows: pa.Table) -> tuple[pa.Table, list[pa.Array]]:
        coarse = []
        if together:  # each row is in one window, of one shard; where windows overlap, a shard has whole keys
            found = frame.levels[-1].assign(event_times(rows.column(frame.time), frame.time))
            rows, coarse = taken(rows, found.rows), [pa.array(found.starts).cast(INSTANT)]
        return rows, [*coarse, *kept_keys(keyed(rows, frame.keyed_by, ()).keys)]

    def reduce_late(rows: pa.Table) -> pa.Table:
        states = reduce_rows(rows, frame)
        return with_coarsest(states, frame) if together else states

    def merge(states: pa.Table) -> pa.Table:
        return then(climb(merge_panes(states, frame), frame))

    columns, plain = frame.columns_in(given.names), plain_keys(frame.keyed_by)
    unreduced = Unreduced(rows_schema(given, columns), located, reduce_late)
    shards = [*together, *frame.keys]
    return TwoPhases(source, columns, plain, reduce, partial, shards, merge, result, unreduced).run()


def with_coarsest(states: pa.Table, frame: TiltFrame) -> pa.Table:
    """Add the start of the coarsest window that each state falls into: what a shard is told by, with the keys."""
    coarse = frame.levels[-1].assign(instants_of(states)).starts
    return states.add_column(0, COARSE, pa.array(coarse).cast(INSTANT))
