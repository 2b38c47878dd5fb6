"""The watermark of several sources: the earliest watermark of the sources that are not idle."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from aggr.arguments import checked_name, shown
from tiltframe.streaming.moments import read_moment
from tiltframe.streaming.policies import micros


class SourceWatermarks:
    """A watermark for each source of a stream, and their minimum.

    A source that is behind the others does not lose rows, because the stream waits for it. The stream does not wait for
    a source that has had no rows for the time ``idle``, or that has ended. Later rows of such a source may be late.

    Parameters
    ----------
    sources : iterable of str
        The names of the sources.
    idle : str, optional
        A duration such as ``1m``, measured by the clock that the caller passes. By default, the stream waits for a
        source without rows until the source ends.

    Raises
    ------
    ValueError
        If there is no source, a name occurs twice, or ``idle`` is not a duration above 0.

    Guarantee
    ---------
    `combined` never decreases. It is the minimum of the watermarks of all sources that are neither idle nor ended. If
    there are no such sources, it is the maximum of all watermarks, as in Flink.

    Examples
    --------
    >>> sources = SourceWatermarks(["a", "b"], idle="1m")
    >>> sources.advance("a", 50_000_000, now=0)
    >>> sources.combined(now=0)                          # b has no rows yet
    >>> sources.advance("b", 20_000_000, now=1_000_000)
    >>> sources.combined(now=1_000_000)
    20000000
    >>> sources.advance("a", 70_000_000, now=61_000_000)
    >>> sources.combined(now=61_000_000), sources.idle_sources(now=61_000_000)
    (70000000, ('b',))
    """

    def __init__(self, sources: Iterable[str], *, idle: str | None = None) -> None:
        """Check the arguments. No source has received rows yet."""
        names = [checked_name(name, "a source") for name in sources]
        twice = [name for name in names if names.count(name) > 1]
        if twice or not names:
            problem = f"{shown(twice[0])} occurs twice" if twice else "got none"
            raise ValueError(f"sources need different names: {problem}; name each source once")
        self.idle = idle
        self._idle_micros = _read_idle(idle)
        self._watermarks: dict[str, int | None] = dict.fromkeys(names)
        self._last_rows: dict[str, int | None] = dict.fromkeys(names)
        self._ended: set[str] = set()
        self._combined: int | None = None

    @property
    def watermarks(self) -> Mapping[str, int | None]:
        """The watermark of each source in microseconds UTC, or None before its first rows."""
        return MappingProxyType(self._watermarks)

    def advance(self, source: str, watermark: dt.datetime | int, now: dt.datetime | int) -> None:
        """Record that rows of a source have arrived.

        Parameters
        ----------
        source : str
        watermark : datetime or int
            The time before which no more rows of this source are expected: a datetime with a zone, or microseconds
            UTC. A value lower than the previous one changes nothing.
        now : datetime or int
            The arrival time of the rows.

        Raises
        ------
        ValueError
            If the stream has no such source, or a time cannot be read.
        """
        self._check(source)
        at = read_moment(watermark, "watermark")
        before = self._watermarks[source]
        self._watermarks[source] = at if before is None else max(before, at)
        self._last_rows[source] = read_moment(now, "now", 0)

    def end(self, source: str) -> None:
        """Record that a source has no more rows, so that the stream does not wait for it.

        Parameters
        ----------
        source : str

        Raises
        ------
        ValueError
            If the stream has no such source.
        """
        self._check(source)
        self._ended.add(source)

    def combined(self, now: dt.datetime | int) -> int | None:
        """Return the watermark of the stream at a time of the clock, or None if there is no watermark yet.

        Parameters
        ----------
        now : datetime or int

        Returns
        -------
        int or None
            The watermark in microseconds UTC, to pass to `OpenWindows.advance`.

        Raises
        ------
        ValueError
            If the time cannot be read.
        """
        resting = self._ended.union(self.idle_sources(now))
        active = [watermark for name, watermark in self._watermarks.items() if name not in resting]
        reported = [watermark for watermark in (active or self._watermarks.values()) if watermark is not None]
        if len(reported) < len(active) or not reported:
            return self._combined
        latest = min(reported) if active else max(reported)
        self._combined = latest if self._combined is None else max(self._combined, latest)
        return self._combined

    def idle_sources(self, now: dt.datetime | int) -> tuple[str, ...]:
        """Return the names of the sources that have had no rows for the time ``idle``. The first call starts the
        measurement.

        Parameters
        ----------
        now : datetime or int

        Returns
        -------
        tuple of str

        Raises
        ------
        ValueError
            If the time cannot be read.
        """
        at = read_moment(now, "now", 0)
        if self._idle_micros is None:
            return ()
        for name, last in self._last_rows.items():
            if last is None:
                self._last_rows[name] = at
        return tuple(
            name for name, last in self._last_rows.items() if last is not None and at - last >= self._idle_micros
        )

    def _check(self, source: str) -> None:
        if source not in self._watermarks:
            raise ValueError(f"{shown(source)} is not a source of this stream; its sources are {[*self._watermarks]}")


def _read_idle(text: str | None) -> int | None:
    """Return a duration in microseconds, or None for None."""
    if text is None:
        return None
    try:
        length = micros(text)
    except ValueError as error:
        raise ValueError(f"cannot read idle: {error}; pass a duration such as 1m") from None
    if length <= 0:
        raise ValueError(f"idle must be more than 0s; got {shown(text)}")
    return length
