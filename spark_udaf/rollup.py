"""rollup and finish on Spark DataFrames: the two-phase plan, one shuffle.

    partition ── reduce rows ──▶ states of the finest level ─┐
    partition ── reduce rows ──▶ states of the finest level ─┼─ shuffle by shard ──▶ merge, climb all levels
    partition ── reduce rows ──▶ states of the finest level ─┘

A shard is a set of (keys, coarsest window): every finer window nests in one coarsest window, so a shard can climb
all levels on its own. Only states cross the shuffle.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

from spark_udaf.schema import arrow_schema, as_schema, spark_schema
from spark_udaf.session import prepare
from tiltframe import TiltFrame
from tiltframe import finish as finish_table
from tiltframe.frame import INSTANT, START
from tiltframe.rollup import climb, merge_level, partial_states

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_MOST_PARTIAL = 1 << 17  # partial states a task holds before it hands them on
_SHARDS = 1 << 12
_COARSE, _SHARD = "__coarse", "__shard"


def rollup(df: DataFrame, frame: TiltFrame) -> DataFrame:
    """Roll up a DataFrame: the states of every level of a tilt frame.

    Parameters
    ----------
    df : DataFrame
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
    source = arrow_schema(df)
    frame.check(source)
    prepare(df)
    schema = frame.states_schema(source)
    partial = pa.schema([f for f in schema if f.name not in ("level", "window_end")]).insert(
        0, pa.field(_COARSE, INSTANT)
    )
    reduced = _selected(df, frame).mapInArrow(_reduce(frame, partial), spark_schema(partial))
    shard = F.pmod(F.xxhash64(*[F.col(f"`{name}`") for name in (_COARSE, *frame.keys)]), F.lit(_SHARDS))
    sharded = reduced.withColumn(_SHARD, shard.cast("int")).repartition(_SHARD).sortWithinPartitions(_SHARD)
    return sharded.mapInArrow(_climb(frame, schema), spark_schema(schema))


def finish(states: DataFrame, frame: TiltFrame) -> DataFrame:
    """Read the results of states: the same rows, a result for each measure.

    Parameters
    ----------
    states : DataFrame
        As `rollup` gives it, perhaps written and read back, filtered, or united with others.
    frame : TiltFrame
        The same, or one that asks the same states for other quantiles.

    Returns
    -------
    DataFrame of level, window_start, window_end, keys and one column per measure

    Raises
    ------
    ValueError
        If these are not states of the frame; before any job starts.
    """
    schema = frame.results_schema(arrow_schema(states))
    prepare(states)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            results = finish_table(pa.Table.from_batches([batch]), frame)
            yield from as_schema(results, schema).to_batches()

    return states.mapInArrow(read, spark_schema(schema))


def _selected(df: DataFrame, frame: TiltFrame) -> DataFrame:
    """Send only the columns that are read over to Python."""
    return df.select(*[F.col(f"`{name}`") for name in frame.columns])


class _reduce:
    """First phase: the rows of a partition to states of the finest level, each with its coarsest window."""

    def __init__(self, frame: TiltFrame, schema: pa.Schema) -> None:
        self.frame, self.schema = frame, schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        coarsest = self.frame.levels[-1]
        for states in partial_states(batches, self.frame, most=_MOST_PARTIAL):
            starts = states.column(START).cast(pa.int64()).to_numpy()
            states = states.add_column(0, _COARSE, pa.array(coarsest.starts(starts)).cast(INSTANT))
            yield from as_schema(states, self.schema).to_batches()


class _climb:
    """Second phase: the partial states of each shard, which come together, up through all levels."""

    def __init__(self, frame: TiltFrame, schema: pa.Schema) -> None:
        self.frame, self.schema = frame, schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for shards in _whole_shards(batches):
            finest = merge_level(shards, self.frame, self.frame.levels[0])
            yield from as_schema(climb(finest, self.frame), self.schema).to_batches()


def _whole_shards(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Cut batches, ordered by shard, where a shard ends, in pieces worth merging."""
    held: list[pa.Table] = []
    rows = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        table, shards = (
            pa.Table.from_batches([batch]),
            batch.column(batch.schema.names.index(_SHARD)).to_numpy(),
        )
        held.append(table)
        rows += len(shards)
        last = int(np.searchsorted(shards, shards[-1], side="left"))  # the last shard may go on
        if rows >= _MOST_PARTIAL and (last or len(held) > 1):
            whole = [*held[:-1], table.slice(0, last)]
            done = pa.concat_tables(whole)
            first_of_last = _start_of(done, int(shards[-1]))
            if first_of_last:
                yield done.slice(0, first_of_last).combine_chunks()
            held = [done.slice(first_of_last), table.slice(last)]
            rows = sum(piece.num_rows for piece in held)
    if held:
        yield pa.concat_tables(held).combine_chunks()


def _start_of(table: pa.Table, shard: int) -> int:
    return int(np.searchsorted(table.column(_SHARD).to_numpy(), shard, side="left"))
