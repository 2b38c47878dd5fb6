"""Capacity: what a frame will take a day, before a job is run, from a sample of its rows."""

from __future__ import annotations

import json
import math
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr.arguments import shown
from aggr.duration import DAY
from aggr.tables.keys import keyed
from tiltframe.event_time import INSTANT, event_times
from tiltframe.files.read_options import ReadOptions
from tiltframe.frame import TiltFrame
from tiltframe.instants import instants_of
from tiltframe.level_chain import climb, joined
from tiltframe.merged_windows import merge_panes
from tiltframe.names import END, START
from tiltframe.reducing import reduce_rows
from tiltframe.rolling_up import from_rows
from tiltframe.store import FrameStore
from tiltframe.store.backends.buckets import bucket_of
from tiltframe.store.log.manifest import checked_retention
from windows import TimeWindow, window

_YEAR = 365  # days
_SOME_DAY = 19_723 * DAY  # 2024-01-01
_GROUP_BYTES, _FEWEST = 1 << 19, 512  # of a row group of a store's files, about
_COMMITS = 4  # that are timed
_TABLE_BYTES = 1 << 26  # of states that a task of Spark merges and writes at once
_SHUFFLE_BLOCK = 1 << 15  # bytes that Spark compresses at once, where its settings say nothing else
_ENOUGH = 4  # whole windows of a level in the sample, by which its states are counted


@dataclass(frozen=True)
class LevelCapacity:
    """What a level takes.

    Parameters
    ----------
    level : str
    states_per_day : float
        One for each window and key that has rows.
    bytes_per_state : mapping of str to float
        What a row of states takes in a store in a folder, compressed: its window and keys, and each column of states
        by the measures that read it.
    retained_states : float
        How many the level holds once its retention has passed, or a year if it keeps all.
    open_bytes : float
        What the states of one window of all keys take in memory: what a stream holds for each open window.
    extrapolated : bool
        Whether the sample has too few whole windows of the level: then every key is taken to have rows in each of its
        windows, and the bytes of a state follow those of the finer levels by the logarithm of their rows.
    """

    level: str
    states_per_day: float
    bytes_per_state: Mapping[str, float]
    retained_states: float
    open_bytes: float
    extrapolated: bool

    @property
    def bytes_per_day(self) -> float:
        """States times their bytes."""
        return self.states_per_day * sum(self.bytes_per_state.values())

    @property
    def retained_bytes(self) -> float:
        """What the level takes in the end."""
        return self.retained_states * sum(self.bytes_per_state.values())


@dataclass(frozen=True, repr=False)
class Capacity:
    """What a frame takes a day: states, bytes, shuffle and work, predicted from a sample of its rows.

    Parameters
    ----------
    rows_per_day, keys : float, int
        As they were given, or as the sample has them.
    levels : tuple of LevelCapacity
        From the finest to the coarsest.
    shuffle_bytes_per_day : float
        The finest states as Spark's shuffle compresses them, by LZ4, each once. Files in no order send a state once for
        each task that has rows of it.
    commits_per_day, files_per_day : float
        As many commits as were given, and the files that they write into a store in a folder: for each level and bucket
        of time one, of commits on Spark for each 64 MiB of states, and one again after compaction. 0 if a store does
        not keep such windows.
    core_seconds_per_day : float
        Of reducing rows, merging states and committing them, measured with the sample on one core of this machine;
        reading the rows, and what an engine adds, come on top.
    """

    rows_per_day: float
    keys: int
    levels: tuple[LevelCapacity, ...]
    shuffle_bytes_per_day: float
    commits_per_day: float
    files_per_day: float
    core_seconds_per_day: float

    @property
    def states_per_day(self) -> float:
        """States of all levels."""
        return sum(level.states_per_day for level in self.levels)

    @property
    def bytes_per_day(self) -> float:
        """Bytes of all levels."""
        return sum(level.bytes_per_day for level in self.levels)

    @property
    def retained_bytes(self) -> float:
        """Bytes that a store holds in the end."""
        return sum(level.retained_bytes for level in self.levels)

    def __repr__(self) -> str:
        head = f"{'level':>8} {'states a day':>16} {'bytes a state':>14} {'a day':>10} {'retained':>10} {'open':>10}"
        lines = [
            f"{level.level:>8} {level.states_per_day:16,.0f} {sum(level.bytes_per_state.values()):14.1f} "
            f"{_size(level.bytes_per_day):>10} {_size(level.retained_bytes):>10} {_size(level.open_bytes):>10}"
            + (" (extrapolated)" if level.extrapolated else "")
            for level in self.levels
        ]
        return "\n".join(
            [
                f"{self.rows_per_day:,.0f} rows a day of {self.keys:,} keys: {self.states_per_day:,.0f} states, "
                f"{_size(self.bytes_per_day)} a day, {_size(self.retained_bytes)} retained",
                f"shuffled: {_size(self.shuffle_bytes_per_day)} a day, of files in the order of time; "
                f"commits: {self.commits_per_day:,.3g} a day, {self.files_per_day:,.0f} files; "
                f"work: {self.core_seconds_per_day / 3600:,.3g} core-hours a day",
                head,
                *lines,
            ]
        )

    def to_json(self) -> str:
        """Say it as JSON: bytes, seconds, and states as numbers."""
        return json.dumps(asdict(self), indent=1)


def explain(
    sample: Any,
    frame: TiltFrame,
    rows_per_day: float | None = None,
    keys: int | None = None,
    retention: Mapping[str, str | None] | None = None,
    reading: ReadOptions | None = None,
    commits_per_day: float = 1,
) -> Capacity:
    """Predict what a frame takes a day, before a job is run: states, bytes, shuffle and work.

    Parameters
    ----------
    sample : table, DataFrame, paths
        Rows, as `tiltframe.rollup` takes them: a stretch of the data as it comes, or drawn from it at random. A
        million is enough for most.
    frame : TiltFrame
    rows_per_day : float, optional
        How many there will be; as many as the sample has in its time unless given.
    keys : int, optional
        How many combinations of keys there will be; the sample's unless given. More are taken to be like those.
    retention : level -> duration, optional
        As of a store; levels without one are counted for a year.
    reading : ReadOptions, optional
        As for `tiltframe.rollup`.
    commits_per_day : float
        How many commits bring the rows into a store, each those of a stretch of time.

    Returns
    -------
    Capacity

    Raises
    ------
    ValueError, TypeError
        If the sample does not fit the frame, has no two times, or a number is not above 0.

    Guarantee
    ---------
    A prediction: docs/capacity.md compares one with the costs of 10⁸ rows; states and bytes are within a tenth, work is
    within a quarter. The sample's times are brought together until each key has as many rows a day as it will have;
    then it is rolled up, and its states are counted and written. A level for which the sample has few windows is
    extrapolated and marked so.

    Examples
    --------
    >>> import aggr
    >>> frame = TiltFrame(["1m", "1h"], time="ts", measures={"n": aggr.count()}, keys=["k"])
    >>> sample = pa.table({"ts": range(0, 36_000_000, 1000), "k": ["a", "b"] * 18_000})
    >>> explain(sample, frame, rows_per_day=864_000_000, keys=20_000).states_per_day
    29280000.0
    """
    retained = {name: window(length).length / DAY for name, length in checked_retention(retention or {}, frame).items()}
    for name, value in (("rows_per_day", rows_per_day), ("keys", keys), ("commits_per_day", commits_per_day)):
        if value is not None and not (isinstance(value, int | float) and 0 < value < 2**63):
            raise ValueError(f"{name} must be a number above 0; got {shown(value)}")
    if keys is not None and keys != int(keys):
        raise ValueError(f"keys must be a whole number from 1; got {shown(keys)}")
    rows = from_rows(sample, frame, reading, pa.Table.from_batches)
    times = event_times(rows.column(frame.time), frame.time, frame.timezone)
    if not len(times) or times.min() == times.max():
        raise ValueError("the sample must have rows of at least two times, so that its rate is known")
    sampled_keys = _count_keys(pa.table(keyed(rows, frame.keyed_by, {frame.time}, frame.timezone).keys), frame)
    sampled_rate = len(times) * DAY / float(times.max() - times.min())
    rate, count = float(rows_per_day or sampled_rate), int(keys or sampled_keys)
    repeated = count / sampled_keys  # as if there were this number of samples, with different keys
    levels, seconds = _rolled_up(_at_rate(rows, times, frame, rate / repeated / sampled_rate), frame)
    _, finest = levels[0]
    level_capacities = _level_capacities(levels, frame, repeated, rate=rate, retained=retained)
    shuffled = level_capacities[0].states_per_day * _compressed_bytes(finest) / max(finest.num_rows, 1)
    work = (
        seconds / len(times) * rate
        + _commit_seconds(levels, frame) / finest.num_rows * level_capacities[0].states_per_day
    )
    states_bytes = level_capacities[0].states_per_day * finest.nbytes / max(finest.num_rows, 1)
    files = _files_per_commit([level for level, _ in levels], states_bytes, commits_per_day) * commits_per_day
    return Capacity(rate, count, tuple(level_capacities), shuffled, commits_per_day, files, work)


def _count_keys(rows: pa.Table, frame: TiltFrame) -> int:
    return int(rows.group_by(list(frame.keys)).aggregate([]).num_rows) if frame.keys else 1


def _at_rate(rows: pa.Table, times: NDArray[np.int64], frame: TiltFrame, faster: float) -> pa.Table:
    """Bring the times of rows together, so that each key has as many rows a day as it will have."""
    begin = frame.levels[-1].assign(times.min(keepdims=True)).starts.max()
    begin = max(int(begin), int(times.min()) - DAY)  # the window of all times begins nowhere
    moved = pa.array(begin + ((times - times.min()) / faster).astype(np.int64), INSTANT)
    return rows.set_column(rows.column_names.index(frame.time), pa.field(frame.time, INSTANT), moved)


def _rolled_up(rows: pa.Table, frame: TiltFrame) -> tuple[list[tuple[TimeWindow, pa.Table]], float]:
    """Roll up; return each level's states, and the seconds of a run that compiles nothing."""
    for _ in range(2):
        begun = time.process_time()
        levels = list(climb(merge_panes(reduce_rows(rows, frame), frame), frame))
        seconds = time.process_time() - begun
    return levels, seconds


def _commit_seconds(levels: Sequence[tuple[TimeWindow, pa.Table]], frame: TiltFrame) -> float:
    """Measure commits of the states to a store: the minimum of a few, as the first ones also open shared resources."""
    if not all(level.contiguous for level, _ in levels):
        return 0.0
    states, seconds = joined(levels, frame), []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(_COMMITS):
            store = FrameStore(f"{folder}/{number}", frame)
            begun = time.process_time()
            store.append(states, "explain", 0)
            seconds.append(time.process_time() - begun)
    return min(seconds)


def _files_per_commit(levels: Sequence[TimeWindow], states_bytes: float, commits_per_day: float) -> float:
    """Count the files of a commit: for each level and bucket of time one of each table that a task writes."""
    if not all(level.contiguous for level in levels):
        return 0.0
    tables = math.ceil(states_bytes / commits_per_day / _TABLE_BYTES)
    buckets = (max(1.0, DAY / commits_per_day / bucket_of(level).length) for level in levels)
    return max(tables, 1) * sum(buckets)


def _compressed_bytes(states: pa.Table) -> int:
    """Weigh states as a message that Spark's shuffle compresses."""
    (batch,) = states.combine_chunks().to_batches()
    message = batch.serialize()
    blocks = (message[start : start + _SHUFFLE_BLOCK] for start in range(0, message.size, _SHUFFLE_BLOCK))
    return sum(pa.compress(block, codec="lz4_raw").size for block in blocks)


def _level_capacities(
    levels: Sequence[tuple[TimeWindow, pa.Table]],
    frame: TiltFrame,
    repeated: float,
    rate: float,
    retained: Mapping[str, float],
) -> list[LevelCapacity]:
    capacities: list[LevelCapacity] = []
    sampled: list[tuple[float, dict[str, float]]] = []  # by level: the logarithm of a state's rows, its bytes
    keys = _count_keys(levels[0][1], frame)
    for level, states in levels:
        starts = instants_of(states)
        span, windows = float(starts.max() - starts.min()) / DAY, len(np.unique(starts)) - 1  # without the last
        per_day = _windows_per_day(level)
        few = windows < _ENOUGH and per_day is not None
        per_window = keys if few else int((starts < starts.max()).sum()) / max(windows, 1)
        per_day = windows / span if per_day is None else per_day
        states_per_day = repeated * per_window * per_day
        rows_log = math.log(rate / states_per_day) if states_per_day else math.inf
        sizes = _stored_bytes(states, frame)
        if few and len(sampled) > 1 and states_per_day:
            sizes = _extrapolated(sampled[-2:], rows_log)
        elif not few:
            sampled.append((rows_log, sizes))
        states_kept = retained.get(level.name, _YEAR) * states_per_day if per_day else repeated * keys
        in_memory = repeated * per_window * states.nbytes / states.num_rows
        capacities.append(LevelCapacity(level.name, states_per_day, sizes, states_kept, in_memory, few))
    return capacities


def _windows_per_day(level: TimeWindow) -> float | None:
    """How many windows of a level begin in a day; None if that depends on the rows."""
    if level.is_merging:
        return None
    days = 1 if level.length <= DAY / 24 else 4 * _YEAR + 1
    try:
        return len(level.starts_between(_SOME_DAY, _SOME_DAY + days * DAY)) / days
    except ValueError:  # it has no start
        return 0.0


def _stored_bytes(states: pa.Table, frame: TiltFrame) -> dict[str, float]:
    """Write states as a store in a folder does; return the bytes of a row by what they are of."""
    names = {column.name: ", ".join(column.serves) for column in frame.states}
    sizes = dict.fromkeys(["window and keys", *names.values()], 0.0)
    import pyarrow.parquet as pq  # heavy, and needed here alone

    file = pa.BufferOutputStream()
    ordered = states.drop_columns([END]).sort_by([*((name, "ascending") for name in frame.keys), (START, "ascending")])
    group_rows = min(max(int(_GROUP_BYTES * states.num_rows / states.nbytes), _FEWEST), 1 << 16)
    pq.write_table(ordered, file, compression="zstd", row_group_size=group_rows, use_dictionary=[START, *frame.keys])
    described = pq.read_metadata(pa.BufferReader(file.getvalue()))
    for group in range(described.num_row_groups):
        for column in map(described.row_group(group).column, range(described.num_columns)):
            name = names.get(column.path_in_schema.split(".")[0], "window and keys")
            sizes[name] += column.total_compressed_size / states.num_rows
    return sizes


def _extrapolated(sampled: Sequence[tuple[float, dict[str, float]]], rows_log: float) -> dict[str, float]:
    """Follow the bytes of two finer levels, as a sketch grows: by the logarithm of the rows in it."""
    (log_before, before), (log_last, last) = sampled
    further = (rows_log - log_last) / max(log_last - log_before, 1e-9)
    return {name: size + further * max(size - before[name], 0.0) for name, size in last.items()}


def _size(count: float) -> str:
    """Say an amount of bytes with three digits.

    >>> _size(1234567), _size(12)
    ('1.23 MB', '12 B')
    """
    power = min(int(math.log10(max(count, 1)) // 3), 5)
    return f"{count / 1000**power:.3g} {['B', 'kB', 'MB', 'GB', 'TB', 'PB'][power]}"
