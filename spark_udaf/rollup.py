"""rollup: tilt frames on Spark: the two-phase plan, one shuffle for all levels.

What comes together in the second phase is (keys, coarsest window): every finer window nests in one coarsest window, so
a shard climbs all levels on its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from spark_udaf.scan import ParquetScan
from spark_udaf.two_phase import MOST_BYTES, Batches, Source, source_of, two_phase
from tiltframe import TiltFrame
from tiltframe.frame import END, INSTANT, LEVEL, START
from tiltframe.rollup import climb, merge_level, partial_states

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_COARSE = "__coarse"


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
    source, given = source_of(df)
    frame.check(given)
    return plan_rollup(source, given, frame, lambda states: states, frame.states_schema(given))


def plan_rollup(
    source: Source, given: pa.Schema, frame: TiltFrame, then: Callable[[pa.Table], pa.Table], result: pa.Schema
) -> DataFrame:
    """Plan a rollup of rows of a schema; ``then`` gets the states of all levels, whole windows at a time, in tasks."""
    partial = pa.schema([f for f in frame.states_schema(given) if f.name not in (LEVEL, END)]).insert(
        0, pa.field(_COARSE, INSTANT)
    )

    def reduce(batches: Batches) -> Iterator[pa.Table]:
        for states in partial_states(batches, frame, most=MOST_BYTES):
            starts = states.column(START).cast(pa.int64()).to_numpy()
            coarse = pa.array(frame.levels[-1].starts(starts)).cast(INSTANT)
            yield states.add_column(0, _COARSE, coarse)

    def merge(states: pa.Table) -> pa.Table:
        return then(climb(merge_level(states, frame, frame.levels[0]), frame))

    return two_phase(source, frame.columns, frame.keys, reduce, partial, [_COARSE, *frame.keys], merge, result)
