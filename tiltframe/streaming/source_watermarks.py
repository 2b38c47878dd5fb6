"""The watermark of a stream with several sources: the earliest of the watermarks of its active sources."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from aggr.arguments import checked_name, shown
from tiltframe.parameter_names import parameter_text
from tiltframe.streaming.moments import read_moment
from tiltframe.streaming.policies import micros


class SourceWatermarks:
    """The watermarks of the sources of a stream, and their minimum, which is the watermark of the stream.

    Because of the minimum, a source with older rows than the other sources does not lose rows. Two kinds of sources are
    left out of the minimum: those without rows for the time ``idle``, and those that have ended. If such a source has
    rows later, they may be late.

    Parameters
    ----------
    sources : iterable of str
        The names of the sources.
    idle : str, optional
        The time without rows after which a source is idle, such as ``1m``. This time is measured by the argument
        ``now`` of the methods. By default, sources are never idle.

    Raises
    ------
    ValueError
        If there is no source, a name occurs twice, or ``idle`` is not a duration above 0.

    Guarantee
    ---------
    The result of `combined` never decreases. It is the minimum of the watermarks of all sources that are neither idle
    nor ended. If all sources are idle or ended, it is the maximum of all watermarks, as in Flink.

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
        """Check the arguments, and create watermarks for sources that have not received any rows."""
        names = [checked_name(name, "a source") for name in sources]
        twice = [name for name in names if names.count(name) > 1]
        if twice or not names:
            problem = f"{shown(twice[0])} twice" if twice else "none"
            raise ValueError(f"sources must be one or more different names; got {problem}; name each source once")
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
        """Set the watermark of a source, because it has received rows.

        Parameters
        ----------
        source : str
        watermark : datetime or int
            The time before which no more rows of this source are expected: a datetime with a zone, or microseconds
            UTC. A value lower than the previous one changes nothing.
        now : datetime or int
            The arrival time of the rows: a datetime with a zone, or microseconds.

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
        """Record that a source will have no more rows. The source is then left out of the minimum.

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
        """Return the watermark of the stream. If an active source has not received any rows yet, return the result of
        the previous call, or None if no call has returned a watermark yet.

        Parameters
        ----------
        now : datetime or int
            The present time, which determines the idle sources.

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
        """Return the names of the sources that have had no rows for the time ``idle``. For a source that has never had
        rows, the time is measured from the first call of this method or of `combined`.

        Parameters
        ----------
        now : datetime or int
            The present time: a datetime with a zone, or microseconds.

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
        """Raise ``ValueError`` if the stream has no source of this name."""
        if source not in self._watermarks:
            raise ValueError(
                f"{shown(source)} is not a source of this stream; its sources are {[*self._watermarks]}; "
                "pass one of them"
            )


def _read_idle(text: str | None) -> int | None:
    """Return the argument ``idle`` in microseconds, or None if it was not passed."""
    if text is None:
        return None
    try:
        length = micros(text)
    except ValueError as error:
        raise ValueError(f"{parameter_text('idle')} must be a duration such as 1m: {error}") from None
    if length <= 0:
        raise ValueError(
            f"{parameter_text('idle')} must be more than 0s; got {shown(text)}; pass a duration such as 1m"
        )
    return length
