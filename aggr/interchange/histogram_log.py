"""Histogram logs (``.hlog``): an HdrHistogram for each interval of time, converted to a table of states of `hdr`, and
back.

A log::

    #[StartTime: 1441753532.570 (seconds since epoch), …]
    "StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"
    0.126,1.007,1.933,HISTFAAAAEB42pNpmSzMwMAg…
    Tag=A,1.133,1.000,0.377,HISTFAAAADx42pNpmSzM…

Timestamps are in seconds, absolute or relative to a base time. In a log without a base time, timestamps are relative to
the start time if the first timestamp lies more than a year before the start time, as in logs of jHiccup.

Source: ``HistogramLogReader`` and ``HistogramLogWriter`` of HdrHistogram in Java, and of the ``hdrhistogram`` package.
"""

from __future__ import annotations

import datetime as dt
import math
import os
import re
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aggr import Hdr
from aggr.extend.arguments import because, checked_type, is_name, nearest, shown
from aggr.extend.columns import Whole, normalize
from aggr.interchange.hdr_v2 import states_of_texts, to_hdr_v2

START = "start"
END = "end"
TAG = "tag"
HISTOGRAM = "histogram"
Micros = Whole

_INSTANT = pa.timestamp("us", "UTC")
_COLUMN_NAMES = '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"'
_YEAR = 365 * 24 * 3600 * 1_000_000
_MAX_SECONDS = 10**11  # the greatest timestamp that is accepted, in seconds; it lies after the year 5000
_TIME_COMMENT = re.compile(r"#\[(StartTime|BaseTime): *([^ ]*)")


def read_histogram_log(path: str | os.PathLike[str], function: Hdr) -> pa.Table:
    """Read a histogram log as a table of states, one row per interval.

    Parameters
    ----------
    path : path of a text file
        A log of any version of the log format, such as 1.2 or 1.3. Its histograms must be in V2 of HdrHistogram.
    function : Hdr
        The function. It must have the same number of digits as the histograms, and its unit must be equal to the ratio
        of the histograms, as in `aggr.interchange.hdr_v2.from_hdr_v2`. Histograms may have any lowest discernible
        value.

    Returns
    -------
    table with start and end (timestamps in microseconds UTC, the end exclusive), tag (text, null if there is none) and
    histogram (states of ``function``), in the order of the file

    Raises
    ------
    ValueError
        If a line is neither a comment, a legend nor an interval, or its histogram cannot be read; the message contains
        the number of the line. Also if the file cannot be read.

    Guarantee
    ---------
    Counts are read like in `from_hdr_v2`. The states can be merged and read like all other states.
    `tiltframe.rollup_states` adds them to a frame, and so to a store.

    Examples
    --------
    >>> import tempfile
    >>> from aggr import Groups
    >>> states = Hdr().reduce(pa.array([3, 5, 800]), Groups.of([0, 0, 1], 2))
    >>> moments = pa.array([1_000_000, 2_000_000, 3_500_000], pa.timestamp("us", "UTC"))
    >>> intervals = pa.table({"start": moments[:2], "end": moments[1:], "histogram": states})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_histogram_log(f"{folder}/x.hlog", intervals, Hdr())
    ...     read_histogram_log(f"{folder}/x.hlog", Hdr()).select(["start", "end", "histogram"]).equals(intervals)
    True
    """
    checked_type(function, Hdr, "function")
    lines = list(_parse_intervals(_read_lines(_checked_path(path)), os.fspath(path)))
    texts = [line.text for line in lines]
    names = [line.name for line in lines]
    columns = {
        START: pa.array([line.start for line in lines], pa.int64()).cast(_INSTANT),
        END: pa.array([line.end for line in lines], pa.int64()).cast(_INSTANT),
        TAG: pa.array([line.tag for line in lines], pa.string()),
        HISTOGRAM: states_of_texts(texts, function, names),
    }
    return pa.table(columns)


def write_histogram_log(
    path: str | os.PathLike[str], intervals: pa.Table, function: Hdr, max_value_unit_ratio: float = 1_000_000.0
) -> None:
    """Write a table of states, one row per interval, as a histogram log of version 1.2.

    Parameters
    ----------
    path : path of the file; an existing file is replaced
    intervals : table with start, end, histogram and optionally tag, like the result of `read_histogram_log`
    function : Hdr
        The function of the states.
    max_value_unit_ratio : float
        The divisor of the maximum in each line. With 1,000,000, nanoseconds are shown as milliseconds.

    Raises
    ------
    ValueError, TypeError
        If a column is missing, has another type, or is null; if an interval ends before it starts; if a tag contains a
        comma, a blank or a line break; if the file cannot be written. After an error, an existing file is unchanged.

    Guarantee
    ---------
    Times are absolute, to the microsecond, and every count is written in its own bucket.
    """
    checked_type(function, Hdr, "function")
    ratio = max_value_unit_ratio
    if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not 0 < ratio < math.inf:
        raise ValueError(f"max_value_unit_ratio must be a finite number above 0; got {shown(ratio)}")
    start_times, end_times, tags, states = _checked_columns(checked_type(intervals, pa.Table, "intervals"))
    texts = to_hdr_v2(states, function).to_pylist()
    interval_maxima = (pc.fill_null(states.field("max"), 0).to_numpy() / ratio).tolist()
    columns = (start_times.tolist(), (end_times - start_times).tolist(), tags, interval_maxima, texts)
    rows = zip(*columns, strict=True)
    lines = [
        f"{f'Tag={tag},' if tag is not None else ''}{_seconds_text(start)},{_seconds_text(length)},{maximum:.3f},{text}"
        for start, length, tag, maximum, text in rows
    ]
    header_lines = ["#[Histogram log format version 1.2]", *_start_time_lines(start_times), _COLUMN_NAMES]
    _replace_file(_checked_path(path), "\n".join([*header_lines, *lines]) + "\n")


def _replace_file(path: str, text: str) -> None:
    """Write ``text`` to a file under a temporary name, and rename it to ``path``.

    After an error, a file that existed at ``path`` is unchanged.
    """
    path = os.path.realpath(path)  # if the path is a symbolic link, its target is replaced, not the link
    with _raise_value_error("written"):
        descriptor, temporary_path = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".hlog-")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as file:
                file.write(text)
            os.chmod(temporary_path, _file_mode(path))
            os.replace(temporary_path, path)
        except BaseException:
            os.unlink(temporary_path)
            raise


def _file_mode(path: str) -> int:
    """Return the permissions of the file at ``path``. If the file does not exist, return those of a new file."""
    try:
        return stat.S_IMODE(os.stat(path).st_mode)
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask


def _checked_path(path: object) -> str:
    """Return the path of a file as text. Raise ``ValueError`` if the path exists and is not a regular file.

    A number also raises ``ValueError``, because `open` would use it as a file descriptor.
    """
    if not isinstance(path, str | os.PathLike) or not is_name(os.fspath(path)):
        raise ValueError(f"path must name a file; got {shown(path)}")
    with _raise_value_error("opened"):
        try:
            mode = os.stat(path).st_mode
        except FileNotFoundError:
            return os.fspath(path)
    if not stat.S_ISREG(mode):
        raise ValueError(
            f"path must name a file; {shown(os.fspath(path))} is a folder, a pipe or a device, not a regular file"
        )
    return os.fspath(path)


@contextmanager
def _raise_value_error(action: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ValueError(f"the histogram log cannot be {action}: {because(error)}") from None


def _read_lines(path: str) -> list[str]:
    with _raise_value_error("read"), open(path, encoding="utf-8") as file:
        try:
            return file.readlines()
        except UnicodeDecodeError:
            raise ValueError(
                f"{shown(path)} is not a histogram log, because its text is not in UTF-8; pass a log that HdrHistogram "
                "wrote"
            ) from None


@dataclass(frozen=True)
class _Interval:
    """One interval of a log.

    ``start`` and ``end`` are absolute times in microseconds, ``text`` is the encoded histogram, and ``name`` names the
    line in errors.
    """

    start: int
    end: int
    tag: str | None
    text: str
    name: str


def _parse_intervals(lines: Iterable[str], path: str) -> Iterable[_Interval]:
    """Yield the intervals of a log, with their times made absolute. Raise ``ValueError`` for a line that is neither an
    interval, a comment nor a legend.
    """
    header_times: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        line = line.strip()
        name = f"line {number} of {path}"
        if match := _TIME_COMMENT.match(line):
            header_times[match[1]] = _parse_seconds(match[2], f"{name}: the {match[1]}")
        if not line or line.startswith(("#", '"StartTimestamp"', '"Timestamp"')):
            continue
        tag = None
        fields = line
        if line.startswith("Tag="):
            tag, _, fields = line.removeprefix("Tag=").partition(",")
        parts = fields.split(",")
        if len(parts) != 4:
            raise ValueError(
                f"{name}: the line of an interval must have the form "
                "[Tag=…,]StartTimestamp,Interval_Length,Interval_Max,"
                f"Interval_Compressed_Histogram; got {shown(line)}"
            )
        start, length = (_parse_seconds(text, f"{name}: its {what}") for text, what in zip(parts, _TIMES, strict=False))
        if length < 0:
            raise ValueError(f"{name}: its Interval_Length must not be negative; got {parts[1]}")
        log_start = header_times.setdefault("StartTime", start)
        base = header_times.setdefault("BaseTime", log_start if start < log_start - _YEAR else 0)
        start += base
        yield _Interval(start, start + length, tag=tag, text=parts[3].strip(), name=name)


_TIMES = ("StartTimestamp", "Interval_Length")


def _parse_seconds(text: str, what: str) -> int:
    """Parse the text of a number of seconds, and return it in whole microseconds, rounded.

    ``what`` names the number in errors.
    """
    try:
        seconds = Decimal(text.strip())
    except InvalidOperation:
        seconds = Decimal("NaN")
    if not seconds.is_finite() or seconds.copy_abs() > _MAX_SECONDS:
        raise ValueError(f"{what} must be a number of seconds; got {shown(text)}")
    return round(seconds * 1_000_000)


def _seconds_text(micros: int) -> str:
    sign = "-" if micros < 0 else ""
    return f"{sign}{abs(micros) // 1_000_000}.{abs(micros) % 1_000_000:06}"


def _start_time_lines(starts: Micros) -> list[str]:
    """Return a list with the comment line for the start time of a log. Without intervals, the list is empty."""
    if not len(starts):
        return []
    first = int(starts.min())
    moment = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=first)
    return [f"#[StartTime: {_seconds_text(first)} (seconds since epoch), {moment.isoformat(' ')} UTC]"]


def _checked_columns(intervals: pa.Table) -> tuple[Micros, Micros, list[str | None], pa.StructArray]:
    """Return the columns of a table of intervals: starts and ends in microseconds, tags, and states.

    Raise ``ValueError`` or ``TypeError`` if a column is missing or wrong.
    """
    for name in (START, END, HISTOGRAM):
        if name not in intervals.column_names:
            suggestion = nearest(name, intervals.column_names)
            raise ValueError(f"intervals need the columns start, end and histogram; there is no {name!r}; {suggestion}")
        if intervals.column(name).null_count:
            raise ValueError(
                f"the column {name!r} of intervals must not have nulls; got {intervals.column(name).null_count}; fill "
                "them, or leave out their rows"
            )
    start_times, end_times = (_times_in_microseconds(intervals, name) for name in (START, END))
    wrong_rows = np.flatnonzero(end_times < start_times)
    if len(wrong_rows):
        start = start_times[wrong_rows[0]]
        end = end_times[wrong_rows[0]]
        raise ValueError(
            f"row {wrong_rows[0]} ends before it starts: its start is {start}, and its end {end}, in microseconds "
            "since 1970; exchange start and end"
        )
    tags = intervals.column(TAG).to_pylist() if TAG in intervals.column_names else [None] * len(start_times)
    for tag in tags:
        if tag is not None and (not isinstance(tag, str) or re.search(r"[,\s]", tag)):
            raise ValueError(f"a tag must be text without commas, blanks and line breaks; got {shown(tag)}")
    return start_times, end_times, tags, normalize(intervals.column(HISTOGRAM))


def _times_in_microseconds(intervals: pa.Table, name: str) -> Micros:
    column = intervals.column(name)
    if not pa.types.is_timestamp(column.type):
        raise TypeError(
            f"the column {name!r} of intervals must have timestamps; got {column.type}; cast it to timestamps"
        )
    try:
        micros: Micros = normalize(column.cast(_INSTANT)).cast(pa.int64()).to_numpy()
    except pa.ArrowInvalid as error:
        raise ValueError(
            f"the column {name!r} of intervals cannot be converted to times in microseconds: {error}; round its times "
            "to microseconds"
        ) from None
    return micros
