"""Emit policies: they determine when windows are emitted, and whether an emission has all rows of the window or only
new ones.

All policies emit a window when it closes, if it has changed since its last emission. A closed window is emitted again,
with the next revision, after each batch that adds rows to it. The policies differ in the emissions before a window
closes.

A window closes when the watermark reaches its end plus ``delay``. A window over all time (``all``) has no end and never
closes. The policies are modelled on the triggers and accumulation modes of Beam, the ``EMIT`` clauses of Timeplus, and
Flink's triggers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from aggr import Measure, sql
from aggr.arguments import checked_truth, checked_whole, shown
from aggr.arrays import Flags
from tiltframe.streaming.policies.policy import DURATION, LONGER_THAN_0, HeldWindows, Policy, micros

if TYPE_CHECKING:
    from tiltframe.frame import TiltFrame


MODES = ("accumulating", "discarding", "changelog")
CLOCKS = ("arrival", "event")
CHANGED = ("rows", "result")


@dataclass(frozen=True, repr=False)
class EmitPolicy(Policy):
    """The base class of emit policies, which are frozen dataclasses. The text of a policy is its ``name`` with its
    fields as arguments.

    The methods of this class implement the policy `AfterClose`. A subclass overrides the methods that behave
    differently.

    Parameters
    ----------
    delay : duration
        The time for which a window stays open after its end, so that delayed events are not late. The delay is measured
        by the watermark.
    timeout : duration, optional
        The time without events after which a window is closed before its end. The timeout is measured by the arrival
        time of events, independently of the watermark. By default, windows are not closed before their end.
    mode : str
        ``accumulating``: each emission has all rows of the window. ``discarding``: each emission has only the rows
        since the previous emission. ``changelog``: each emission has all rows, and the previous emission is retracted
        first. The column ``change`` is -1 in the retraction and 1 in the new emission.
    having : str, optional
        An SQL condition on keys and results, which a window must meet in order to be emitted. In the mode
        ``changelog``, the last emission of a window that no longer meets the condition is retracted.
    latest : bool
        Whether to emit only the latest window of each level and key. A window is then not emitted if a window that
        begins later was emitted before. In the mode ``changelog``, the emission of a window retracts that of the
        earlier window.
    changed : str
        The change that a window must have undergone since its last emission in order to be emitted again. ``rows``:
        rows have arrived. ``result``: rows have arrived, and at least one result differs. With ``result``, the states
        of the last emissions are also kept in memory.

    Raises
    ------
    ValueError
        If an argument is invalid.

    Examples
    --------
    docs/streams.md has an example of a policy in another package, in a single file.
    """

    delay: str = field(default="0s", kw_only=True, metadata=DURATION)
    timeout: str | None = field(default=None, kw_only=True, metadata=LONGER_THAN_0)
    mode: str = field(default="accumulating", kw_only=True)
    having: str | None = field(default=None, kw_only=True)
    latest: bool = field(default=False, kw_only=True)
    changed: str = field(default="rows", kw_only=True)

    name: ClassVar[str] = ""
    # the value of the column ``reason`` for emitted open windows; empty if the policy does not emit open windows
    early_reason: ClassVar[str] = ""
    # name → type of the columns that the policy adds to emitted rows
    columns: ClassVar[Mapping[str, pa.DataType]] = {}
    # whether a window that a timeout has closed is removed from memory
    forgets_timed_out: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.mode, str) or self.mode not in MODES:
            raise ValueError(f"the argument mode must be one of {', '.join(MODES)}; got {shown(self.mode)}")
        checked_truth(self.latest, "latest")
        if not isinstance(self.changed, str) or self.changed not in CHANGED:
            raise ValueError(f"the argument changed must be one of {', '.join(CHANGED)}; got {shown(self.changed)}")
        if self.changed == "result" and self.mode == "discarding":
            raise ValueError(
                "changed=result compares the result of a window with its last emission, but mode=discarding emits "
                "only the rows since then; leave out one of them"
            )
        if self.having is not None:
            sql.check_condition(self.having)

    @property
    def delay_micros(self) -> int:
        """The delay in microseconds."""
        return micros(self.delay)

    @property
    def timeout_micros(self) -> int | None:
        """The timeout in microseconds, or None if there is no timeout."""
        return None if self.timeout is None else micros(self.timeout)

    @property
    def emits_open(self) -> bool:
        """Whether the policy may emit windows before they close."""
        return bool(self.early_reason)

    @property
    def emits_without_rows(self) -> bool:
        """Whether the policy may emit windows because time has passed, although no row has arrived. The stream must
        then be advanced regularly.
        """
        return self.timeout is not None

    @property
    def by_event(self) -> bool:
        """Whether the policy's clock is the watermark. Otherwise, it is the arrival time of rows."""
        return False

    def check(self, frame: TiltFrame) -> None:
        """Raise an error if the policy cannot be used with the windows of a frame.

        Parameters
        ----------
        frame : TiltFrame

        Raises
        ------
        ValueError
            The message states the frame that the policy requires.
        """

    def measures(self, frame: TiltFrame) -> Mapping[str, Measure]:
        """Return the measures that the policy needs for each window in addition to those of the frame. These measures
        are not emitted.

        Parameters
        ----------
        frame : TiltFrame

        Returns
        -------
        name -> measure
            `HeldWindows.result` returns their results by these names.
        """
        return {}

    def time(self, watermark: int | None, now: int | None) -> int | None:
        """Return the time of the policy's clock: the watermark or the arrival time.

        Parameters
        ----------
        watermark, now : int, optional
            The watermark and the arrival time in microseconds. Each is None before it is first received.

        Returns
        -------
        int or None
            Microseconds, or None if the time is not known yet.
        """
        return watermark if self.by_event else now

    def is_due(self, before: int | None, time: int | None) -> bool:
        """Return whether `emit_open` is called now, so that open windows may be emitted.

        Parameters
        ----------
        before, time : int, optional
            Microseconds of the policy's clock: the time of the last check, and the current time.

        Returns
        -------
        bool
        """
        return True

    def last_checked(self, before: int | None, time: int | None, emitted: bool) -> int | None:
        """Return the time that the next call of `is_due` receives as ``before``: the time of the last check of open
        windows. The method is called after each call of `is_due`.

        Parameters
        ----------
        before, time : int, optional
            Microseconds of the policy's clock: the time of the last check, and the current time.
        emitted : bool
            Whether an open window was emitted at ``time``.

        Returns
        -------
        int or None
            Microseconds, or None if open windows have not been checked yet.
        """
        return time

    def emit_open(self, windows: HeldWindows) -> Flags:
        """Return a mask of the open windows to emit now. They are emitted with the reason ``early_reason``.

        Parameters
        ----------
        windows : HeldWindows
            Open and closed windows. The mask is ignored for closed windows.

        Returns
        -------
        array of bool, shape (windows,)
        """
        return np.zeros(len(windows), np.bool_)

    def timed_out(self, windows: HeldWindows, watermark: int | None, now: int | None) -> Flags:
        """Return a mask of the windows to close before their end, because they have had no events for the time
        ``timeout``.

        Parameters
        ----------
        windows : HeldWindows
            All windows in memory.
        watermark, now : int, optional
            The watermark and the arrival time in microseconds. Each is None before it is first received.

        Returns
        -------
        array of bool, shape (windows,)
        """
        if self.timeout_micros is None or now is None:
            return np.zeros(len(windows), np.bool_)
        return windows.last_arrival <= now - self.timeout_micros

    def values(self, windows: HeldWindows) -> Mapping[str, pa.Array]:
        """Return the values of the columns that the attribute ``columns`` declares. These columns are added to the
        emitted rows.

        Parameters
        ----------
        windows : HeldWindows
            The emitted windows.

        Returns
        -------
        name -> array, shape (windows,)
            One array for each name in ``columns``, with the declared type.
        """
        return {}

    def reasons(self, windows: HeldWindows, reasons: NDArray[np.str_]) -> NDArray[np.str_]:
        """Return the column ``reason`` of the emitted rows.

        Parameters
        ----------
        windows : HeldWindows
            The emitted windows.
        reasons : array of str, shape (windows,)
            The reasons by default: ``close``, ``timeout``, ``late``, or ``early_reason``.

        Returns
        -------
        array of str, shape (windows,)
        """
        return reasons

    def admits(self, windows: HeldWindows) -> Flags:
        """Return a mask of the windows that may be emitted. The method is called with windows that are about to be
        emitted. A window for which the mask is false is not emitted now.

        Parameters
        ----------
        windows : HeldWindows
            The windows that would be emitted.

        Returns
        -------
        array of bool, shape (windows,)
        """
        return np.ones(len(windows), np.bool_)


@dataclass(frozen=True, repr=False)
class ByClock(EmitPolicy):
    """The base class of emit policies that measure time either by the watermark or by the arrival time of rows.

    Parameters
    ----------
    clock : str
        ``arrival``: the arrival time of rows. ``event``: the watermark.
    delay, timeout, mode, having, latest, changed : as in `EmitPolicy`
    """

    clock: str = field(default="arrival", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.clock, str) or self.clock not in CLOCKS:
            raise ValueError(f"the argument clock must be one of {', '.join(CLOCKS)}; got {shown(self.clock)}")

    @property
    def by_event(self) -> bool:
        return self.clock == "event"


@dataclass(frozen=True, repr=False)
class AfterClose(EmitPolicy):
    """Emit a window when it closes, and again after each batch that adds late events to it.

    Parameters
    ----------
    delay, timeout, mode, having, latest, changed : as in `EmitPolicy`

    Examples
    --------
    >>> AfterClose(delay="10 s", timeout="5m")
    AfterClose(delay='10s', timeout='5m')
    >>> print(AfterClose(delay="10s"))
    after_close(delay=10s)
    """

    name: ClassVar[str] = "after_close"


@dataclass(frozen=True, repr=False)
class Periodic(ByClock):
    """Emit changed open windows once per period, in addition to the emission when a window closes.

    Parameters
    ----------
    every : duration
        The length of a period. Periods begin at multiples of this length since 1970-01-01 UTC, measured by ``clock``.
    repeat : bool
        Whether to emit all open windows once per period, even those that have not changed.
    clock, delay, timeout, mode, having, latest, changed : as in `ByClock`

    Examples
    --------
    >>> Periodic("60s", having="n > 300")
    Periodic(every='1m', having='n > 300')
    """

    every: str = field(metadata=LONGER_THAN_0)
    repeat: bool = False

    name: ClassVar[str] = "periodic"
    early_reason: ClassVar[str] = "period"

    def __post_init__(self) -> None:
        super().__post_init__()
        if checked_truth(self.repeat, "repeat") and self.changed == "result":
            raise ValueError(
                "repeat=true emits windows that have not changed, but changed=result does not; leave out one of them"
            )

    @property
    def emits_without_rows(self) -> bool:
        return super().emits_without_rows or not self.by_event

    def is_due(self, before: int | None, time: int | None) -> bool:
        every = micros(self.every)
        return before is not None and time is not None and time // every > before // every

    def emit_open(self, windows: HeldWindows) -> Flags:
        return (windows.new_rows > 0) | self.repeat


@dataclass(frozen=True, repr=False)
class OnUpdate(ByClock):
    """Emit every open window to which new rows have been added, in addition to the emission when a window closes.

    Parameters
    ----------
    batch : duration, optional
        The minimum time between two emissions of open windows, measured by ``clock``. A window is then emitted once for
        all changes in this time.
    clock : str
        The clock for ``batch``: ``arrival`` or ``event``, see `ByClock`.
    delay, timeout, mode, having, latest, changed : as in `EmitPolicy`

    Examples
    --------
    >>> print(OnUpdate(batch="2s", mode="changelog"))
    on_update(batch=2s, mode=changelog)
    """

    batch: str | None = field(default=None, metadata=LONGER_THAN_0)

    name: ClassVar[str] = "on_update"
    early_reason: ClassVar[str] = "update"

    @property
    def emits_without_rows(self) -> bool:
        return super().emits_without_rows or (self.batch is not None and not self.by_event)

    def is_due(self, before: int | None, time: int | None) -> bool:
        if self.batch is None or before is None:
            return self.batch is None or time is not None
        return time is not None and time - before >= micros(self.batch)

    def last_checked(self, before: int | None, time: int | None, emitted: bool) -> int | None:
        return time if emitted else before

    def emit_open(self, windows: HeldWindows) -> Flags:
        return windows.new_rows > 0


@dataclass(frozen=True, repr=False)
class AfterCount(EmitPolicy):
    """Emit an open window when at least ``rows`` rows have arrived since its last emission, in addition to the emission
    when it closes.

    The number is checked after each batch, so that an emission may contain more than ``rows`` new rows.

    Parameters
    ----------
    rows : int
        The number of new rows, at least 1.
    delay, timeout, mode, having, latest, changed : as in `EmitPolicy`

    Examples
    --------
    >>> AfterCount(100)
    AfterCount(rows=100)
    """

    rows: int

    name: ClassVar[str] = "after_count"
    early_reason: ClassVar[str] = "count"

    def __post_init__(self) -> None:
        super().__post_init__()
        checked_whole(self.rows, "rows", 1)

    def emit_open(self, windows: HeldWindows) -> Flags:
        return windows.new_rows >= self.rows
