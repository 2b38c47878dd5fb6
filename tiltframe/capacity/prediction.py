"""Predict the cost of a frame per day from a sample of its rows: the number of states and bytes of each level, and the
computing time.
"""

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

from aggr.extend.arguments import DAY, shown
from aggr.extend.columns import group_by, one_array
from aggr.extend.tables import keyed
from tiltframe import ReadOptions, TiltFrame
from tiltframe.extend import event_times, from_rows
from tiltframe.level_chain import climb, join_levels
from tiltframe.merged_windows import merge_panes
from tiltframe.reducing import reduce_rows
from tiltframe.store import FrameStore
from tiltframe.store.backends import END, INSTANT, START, instants_of
from tiltframe.store.backends.buckets import bucket_of
from tiltframe.store.log.manifest import checked_retention
from windows import TimeWindow, window

# the length of a year in days
_YEAR = 365
# 2024-01-01, in microseconds UTC; the number of windows per day is computed for the time from this day on
_SOME_DAY = 19_723 * DAY
# the approximate bytes, and the minimum number of rows, of a Parquet row group in a store
_GROUP_BYTES = 1 << 20
_MIN_GROUP_ROWS = 512
# the number of commits whose time is measured
_COMMITS = 4
# the number of bytes of states that a Spark task merges and writes at once
_TABLE_BYTES = 1 << 26
# the default size, in bytes, of the blocks that Spark compresses separately
_SHUFFLE_BLOCK = 1 << 15
# the minimum number of complete windows of a level in the sample; with fewer, the costs of the level are extrapolated
_MIN_WINDOWS = 4


@dataclass(frozen=True)
class LevelCapacity:
    """The predicted cost of one level.

    Parameters
    ----------
    level : str
    states_per_day : float
        The number of states per day. A window has one state for each key that has rows in it.
    bytes_per_state : mapping of str to float
        The compressed bytes of one row of states in a folder store. They are listed separately for ``window and keys``
        and for each column of states, which is named after the measures that are computed from it.
    retained_states : float
        The number of states that a store keeps: those added during the level's retention, or during a year if the level
        has no retention.
    open_bytes : float
        The memory for the states of one window of all keys. A stream needs this memory for each open window.
    extrapolated : bool
        Whether the sample has too few complete windows of the level to count their states. In this case, every key is
        assumed to have rows in every window. The bytes of a state are extrapolated from two finer levels, as a linear
        function of the logarithm of the number of rows per state.
    """

    level: str
    states_per_day: float
    bytes_per_state: Mapping[str, float]
    retained_states: float
    open_bytes: float
    extrapolated: bool

    @property
    def bytes_per_day(self) -> float:
        """The bytes of the states that are added per day."""
        return self.states_per_day * sum(self.bytes_per_state.values())

    @property
    def retained_bytes(self) -> float:
        """The bytes of the states that a store keeps; see ``retained_states``."""
        return self.retained_states * sum(self.bytes_per_state.values())


@dataclass(frozen=True, repr=False)
class Capacity:
    """The daily cost of a frame, predicted from a sample of its rows: states, bytes, shuffle and computing time.

    Parameters
    ----------
    rows_per_day, keys : float, int
        The values that were passed to `explain`, or those that were estimated from the sample.
    levels : tuple of LevelCapacity
        The levels, finest first.
    shuffle_bytes_per_day : float
        The bytes, compressed by LZ4, that Spark shuffles per day if each state of the finest level is sent once. If the
        files are not in the order of time, a state is sent once by each task that reads rows of its window and key.
    commits_per_day, files_per_day : float
        The number of commits, as passed to `explain`, and the number of files that these commits write into a folder
        store. A commit writes one file for each level and bucket of time. If a commit has more than 64 MiB of states of
        the finest level, Spark divides the states into tables of this size, and writes separate files for each table.
        Compaction writes one more file for each level and bucket. The number of files is 0 if a store cannot contain
        the windows of the frame.
    core_seconds_per_day : float
        The time to reduce the rows, to merge the states and to commit them, on one core. It is measured with the sample
        on this machine. It does not include the time to read the rows and the overhead of an engine.
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
        """The number of states of all levels that are added per day."""
        return sum(level.states_per_day for level in self.levels)

    @property
    def bytes_per_day(self) -> float:
        """The bytes of all levels that are added per day."""
        return sum(level.bytes_per_day for level in self.levels)

    @property
    def retained_bytes(self) -> float:
        """The bytes of the states that a store keeps, summed over all levels; see `LevelCapacity.retained_states`."""
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
                f"shuffled: {_size(self.shuffle_bytes_per_day)} a day, if the files are in the order of time; commits: "
                f"{self.commits_per_day:,.3g} a day, {self.files_per_day:,.0f} files; "
                f"work: {self.core_seconds_per_day / 3600:,.3g} core-hours a day",
                head,
                *lines,
            ]
        )

    def to_json(self) -> str:
        """Return the prediction as JSON. Sizes are in bytes, and times in seconds."""
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
    """Predict the cost of a frame per day before a job runs: states, bytes, shuffled bytes, files and computing time.

    Parameters
    ----------
    sample : table, DataFrame, paths
        A sample of rows, in any form that `tiltframe.rollup` accepts: a contiguous part of the data, or a random
        sample. A million rows are usually sufficient.
    frame : TiltFrame
    rows_per_day : float, optional
        The expected number of rows per day of all keys. The default is the number of rows per day in the sample, times
        the ratio of ``keys`` to the number of keys in the sample.
    keys : int, optional
        The expected number of different combinations of keys; by default the number in the sample. Keys that are not in
        the sample are assumed to have as many rows as the keys in the sample.
    retention : level -> duration, optional
        How long each level is kept, as for a store. Levels without a retention are counted for a year.
    reading : ReadOptions, optional
        See `tiltframe.rollup`.
    commits_per_day : float
        The number of commits per day that write the rows into a store. Each commit contains the rows of a contiguous
        range of time.

    Returns
    -------
    Capacity

    Raises
    ------
    ValueError, TypeError
        If the sample does not fit the frame or has fewer than two different times, or if a number is not above 0.

    Guarantee
    ---------
    The result is a prediction. docs/capacity.md compares a prediction with the measured costs of 10⁸ rows: states and
    bytes differ by less than a tenth, computing time by less than a quarter. The sample's times are compressed until
    each key has its expected number of rows per day. The sample is then rolled up, and its states are counted and
    written. The costs of a level for which the sample has few windows are extrapolated and marked as extrapolated.

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
        raise ValueError(f"keys must be a whole number of at least 1; got {shown(keys)}")
    rows = from_rows(sample, frame, reading, pa.Table.from_batches)
    times = event_times(rows.column(frame.time), frame.time, frame.timezone)
    if not len(times) or times.min() == times.max():
        raise ValueError(
            "the sample must have rows at two or more different times, so that the number of rows per day can be "
            f"estimated; got {len(times):,} rows{', all at the same time' if len(times) else ''}; pass a larger sample"
        )
    sampled_keys = _count_keys(rows, frame)
    sampled_rate = len(times) * DAY / float(times.max() - times.min())
    count = int(keys or sampled_keys)
    # The expected number of keys divided by the number of keys in the sample. The number of states in the sample is
    # multiplied by this ratio, because the other keys are assumed to have as many rows as the keys in the sample.
    key_ratio = count / sampled_keys
    rate = float(rows_per_day or sampled_rate * key_ratio)
    levels, seconds = _roll_up_twice(_compress_times(rows, times, frame, rate / key_ratio / sampled_rate), frame)
    _, finest = levels[0]
    level_capacities = _level_capacities(levels, frame, key_ratio, rate=rate, retained=retained)
    shuffled = level_capacities[0].states_per_day * _compressed_bytes(finest) / max(finest.num_rows, 1)
    work = (
        seconds / len(times) * rate
        + _commit_seconds(levels, frame) / finest.num_rows * level_capacities[0].states_per_day
    )
    states_bytes = level_capacities[0].states_per_day * finest.nbytes / max(finest.num_rows, 1)
    files = _files_per_commit([level for level, _ in levels], states_bytes, commits_per_day) * commits_per_day
    return Capacity(
        rate,
        count,
        tuple(level_capacities),
        shuffle_bytes_per_day=shuffled,
        commits_per_day=commits_per_day,
        files_per_day=files,
        core_seconds_per_day=work,
    )


def _count_keys(rows: pa.Table, frame: TiltFrame) -> int:
    """Return the number of different keys in rows, which is 1 for a frame without keys."""
    key_columns = keyed(rows, frame.keyed_by, {frame.time}, frame.timezone).keys.values()
    return group_by(list(key_columns), len(next(iter(key_columns))))[0].n if frame.keys else 1


def _compress_times(rows: pa.Table, times: NDArray[np.int64], frame: TiltFrame, speedup: float) -> pa.Table:
    """Return the rows with new event times. The distances between the times are divided by ``speedup``, so that each
    key has its expected number of rows per day. ``times`` are the event times of the rows, in microseconds UTC.
    """
    begin = frame.levels[-1].assign(times.min(keepdims=True)).starts.max()
    # A window over all time starts at the earliest time that can be represented. Therefore ``begin`` is limited to a
    # day before the earliest row.
    begin = max(int(begin), int(times.min()) - DAY)
    moved = pa.array(begin + ((times - times.min()) / speedup).astype(np.int64), INSTANT)
    return rows.set_column(rows.column_names.index(frame.time), pa.field(frame.time, INSTANT), moved)


def _roll_up_twice(rows: pa.Table, frame: TiltFrame) -> tuple[list[tuple[TimeWindow, pa.Table]], float]:
    """Roll up the rows twice, because the first run also compiles loops. Return the states of each level, and the CPU
    time of the second run in seconds.
    """
    for _ in range(2):
        begun = time.process_time()
        levels = list(climb(merge_panes(reduce_rows(rows, frame), frame), frame))
        seconds = time.process_time() - begun
    return levels, seconds


def _commit_seconds(levels: Sequence[tuple[TimeWindow, pa.Table]], frame: TiltFrame) -> float:
    """Return the CPU time of a commit of the states, in seconds: the minimum over several commits, because the first
    commits also open connections and files. Return 0 if a store cannot contain the windows of the levels.
    """
    if not all(level.contiguous for level, _ in levels):
        return 0.0
    states = join_levels(levels, frame)
    seconds = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(_COMMITS):
            store = FrameStore(f"{folder}/{number}", frame)
            begun = time.process_time()
            store.append(states, "explain", 0)
            seconds.append(time.process_time() - begun)
    return min(seconds)


def _files_per_commit(levels: Sequence[TimeWindow], states_bytes: float, commits_per_day: float) -> float:
    """Return the number of files that a commit writes. It writes one file for each combination of a level, a bucket of
    time, and a table of states that a task writes. A bucket of time is the hour, day, month or year of one folder of a
    store. Return 0 if a store cannot contain windows of the levels.

    ``states_bytes`` is the number of bytes of the states of the finest level that are added per day.
    """
    if not all(level.contiguous for level in levels):
        return 0.0
    tables = math.ceil(states_bytes / commits_per_day / _TABLE_BYTES)
    buckets = (max(1.0, DAY / commits_per_day / bucket_of(level).length) for level in levels)
    return max(tables, 1) * sum(buckets)


def _compressed_bytes(states: pa.Table) -> int:
    """Return the number of bytes of the states as an Arrow message. The message is compressed by LZ4 in blocks of 32
    KiB, as Spark does for a shuffle.
    """
    (batch,) = states.combine_chunks().to_batches()
    message = batch.serialize()
    blocks = (message[start : start + _SHUFFLE_BLOCK] for start in range(0, message.size, _SHUFFLE_BLOCK))
    return sum(pa.compress(block, codec="lz4_raw").size for block in blocks)


def _level_capacities(
    levels: Sequence[tuple[TimeWindow, pa.Table]],
    frame: TiltFrame,
    key_ratio: float,
    rate: float,
    retained: Mapping[str, float],
) -> list[LevelCapacity]:
    """Return the predicted cost of each level, finest first.

    ``levels`` has the states of the sample. ``key_ratio`` is the expected number of keys divided by the number of keys
    in the sample. ``rate`` is the number of rows per day of all expected keys. ``retained`` maps the names of levels to
    their retention in days.
    """
    capacities: list[LevelCapacity] = []
    # One pair for each level that is not extrapolated: the logarithm of its number of rows per state, and the bytes of
    # a row of states, as a dict from measures to bytes.
    sampled: list[tuple[float, dict[str, float]]] = []
    keys = _count_keys(levels[0][1], frame)
    for level, states in levels:
        starts = instants_of(states)
        # the window that begins last is not counted, because it may be incomplete
        span = float(starts.max() - starts.min()) / DAY
        windows = len(np.unique(starts)) - 1
        per_day = _windows_per_day(level)
        if per_day is None and not windows:
            raise ValueError(
                f"all windows of {level.name} in the sample begin at the same time, so their number per day is "
                "unknown; pass rows of a longer time"
            )
        is_extrapolated = windows < _MIN_WINDOWS and per_day is not None
        per_window = keys if is_extrapolated else int((starts < starts.max()).sum()) / max(windows, 1)
        per_day = windows / span if per_day is None else per_day
        states_per_day = key_ratio * per_window * per_day
        rows_log = math.log(rate / states_per_day) if states_per_day else math.inf
        sizes = _stored_bytes(states, frame)
        if is_extrapolated and len(sampled) > 1 and states_per_day:
            sizes = _extrapolate_bytes(sampled[-2:], rows_log)
        elif not is_extrapolated:
            sampled.append((rows_log, sizes))
        states_kept = retained.get(level.name, _YEAR) * states_per_day if per_day else key_ratio * keys
        in_memory = key_ratio * per_window * states.nbytes / states.num_rows
        capacity = LevelCapacity(
            level.name,
            states_per_day=states_per_day,
            bytes_per_state=sizes,
            retained_states=states_kept,
            open_bytes=in_memory,
            extrapolated=is_extrapolated,
        )
        capacities.append(capacity)
    return capacities


def _windows_per_day(level: TimeWindow) -> float | None:
    """Return the number of windows of a level that begin per day, or None if this number depends on the rows, as for
    sessions.
    """
    if level.is_merging:
        return None
    days = 1 if level.length <= DAY / 24 else 4 * _YEAR + 1
    try:
        return len(level.starts_between(_SOME_DAY, _SOME_DAY + days * DAY)) / days
    except ValueError:  # `starts_between` does not support windows over all time
        return 0.0


def _stored_bytes(states: pa.Table, frame: TiltFrame) -> dict[str, float]:
    """Write the states to memory in the format of a folder store, and return the compressed bytes per row as a dict.
    The keys of the dict are ``window and keys`` and, for each column of states, the names of the measures that are
    computed from the column.
    """
    names = {column.name: ", ".join(column.serves) for column in frame.states}
    sizes = dict.fromkeys(["window and keys", *names.values()], 0.0)
    import pyarrow.parquet as pq  # imported here, because it is slow to import and only this function needs it

    file = pa.BufferOutputStream()
    groups, _ = group_by([one_array(states.column(name)) for name in frame.keys], states.num_rows)
    ordered = states.drop_columns([END]).take(pa.array(np.lexsort((instants_of(states), groups.ids))))
    keys = ordered.select(list(frame.keys))
    while any(pa.types.is_struct(dtype) for dtype in keys.schema.types):
        keys = keys.flatten()  # This replaces a struct by its fields, but does not flatten structs in these fields.
    for name in keys.column_names:
        if name not in frame.keys:  # The column is a field of a key that is a struct, such as tags.host.
            ordered = ordered.append_column(name, keys.column(name))
    ordered = ordered.drop_columns([name for name in frame.keys if name not in keys.column_names])
    group_rows = min(max(int(_GROUP_BYTES * states.num_rows / states.nbytes), _MIN_GROUP_ROWS), 1 << 16)
    pq.write_table(
        ordered, file, compression="zstd", row_group_size=group_rows, use_dictionary=[START, *keys.column_names]
    )
    metadata = pq.read_metadata(pa.BufferReader(file.getvalue()))
    for group in range(metadata.num_row_groups):
        for column in map(metadata.row_group(group).column, range(metadata.num_columns)):
            name = names.get(column.path_in_schema.split(".")[0], "window and keys")
            sizes[name] += column.total_compressed_size / states.num_rows
    return sizes


def _extrapolate_bytes(sampled: Sequence[tuple[float, dict[str, float]]], rows_log: float) -> dict[str, float]:
    """Return the bytes of a state that has e^``rows_log`` rows, as a dict like those of `_stored_bytes`. ``sampled``
    has two finer levels, each with the logarithm of its rows per state and its bytes. The bytes are extrapolated as a
    linear function of the logarithm of the rows per state, because the size of sketches grows with this logarithm.
    """
    (log_before, before), (log_last, last) = sampled
    distance = (rows_log - log_last) / max(log_last - log_before, 1e-9)
    return {name: size + distance * max(size - before[name], 0.0) for name, size in last.items()}


def _size(count: float) -> str:
    """Return a number of bytes as text with three digits.

    >>> _size(1234567), _size(12)
    ('1.23 MB', '12 B')
    """
    power = min(int(math.log10(max(count, 1)) // 3), 5)
    return f"{count / 1000**power:.3g} {['B', 'kB', 'MB', 'GB', 'TB', 'PB'][power]}"
